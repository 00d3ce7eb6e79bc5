//! Splits SQL texts into tokens, for what needs no parse tree (manual, section 4.1): removing CONCURRENTLY from
//! a command, and finding the words of a function's body.

/// One token of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token<'a> {
    /// What sort of token.
    pub kind: TokenKind,
    /// Its text, as it stands.
    pub text: &'a str,
    /// Where it starts in the text, in bytes.
    pub start: usize,
}

/// The sorts of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// White space or a comment.
    Space,
    /// An identifier or keyword without quotes.
    Word,
    /// An identifier in double quotes.
    Quoted,
    /// A string constant of any sort: '…', E'…', B'…', U&'…', $tag$…$tag$.
    String,
    /// A number.
    Number,
    /// A parameter: $1.
    Parameter,
    /// Anything else, one character at a time.
    Other,
}

/// The tokens of a text, spaces and comments included; their texts joined give the text back.
/// Assumes standard_conforming_strings. Something unfinished extends to the end of the text.
pub fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    tokens_if(text, true)
}

/// The same, if `standard_conforming_strings` is on or off.
pub(crate) fn tokens_if(text: &str, is_conforming: bool) -> impl Iterator<Item = Token<'_>> {
    let mut start = 0;
    // A string constant goes on behind a line break, with the escapes that it began with.
    let mut last: Option<bool> = None;
    let mut continued = None;
    std::iter::from_fn(move || {
        let rest = &text[start..];
        let (kind, len) = token(rest, continued.unwrap_or(!is_conforming))?;
        let token = Token { kind, text: &rest[..len], start };
        start += len;
        match kind {
            TokenKind::Space if token.text.contains(['\n', '\r']) => continued = last,
            TokenKind::Space => {}
            TokenKind::String if token.text.starts_with(['\'', 'n', 'N']) => {
                last = Some(continued.take().unwrap_or(!is_conforming));
            }
            _ => {
                let is_escaped = kind == TokenKind::String && token.text.starts_with(['e', 'E']);
                (last, continued) = (is_escaped.then_some(true), None);
            }
        }
        Some(token)
    })
}

/// The first token of a text. A backslash escapes in strings without a prefix if `escapes`.
fn token(rest: &str, escapes: bool) -> Option<(TokenKind, usize)> {
    let bytes = rest.as_bytes();
    let first = *bytes.first()?;
    let second = bytes.get(1).copied().unwrap_or(0);
    Some(match first {
        b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c' => {
            (TokenKind::Space, run(bytes, |b| b.is_ascii_whitespace() || b == b'\x0b'))
        }
        b'-' if second == b'-' => (TokenKind::Space, run(bytes, |b| b != b'\n' && b != b'\r')),
        b'/' if second == b'*' => (TokenKind::Space, comment_len(bytes)),
        b'\'' => (TokenKind::String, quoted_len(bytes, 0, escapes)),
        b'"' => (TokenKind::Quoted, quoted_len(bytes, 0, false)),
        b'e' | b'E' if second == b'\'' => (TokenKind::String, quoted_len(bytes, 1, true)),
        b'b' | b'B' | b'x' | b'X' if second == b'\'' => {
            (TokenKind::String, quoted_len(bytes, 1, false))
        }
        b'n' | b'N' if second == b'\'' => (TokenKind::String, quoted_len(bytes, 1, escapes)),
        b'u' | b'U' if second == b'&' && bytes.get(2) == Some(&b'\'') => {
            (TokenKind::String, quoted_len(bytes, 2, false))
        }
        b'u' | b'U' if second == b'&' && bytes.get(2) == Some(&b'"') => {
            (TokenKind::Quoted, quoted_len(bytes, 2, false))
        }
        b'$' if second.is_ascii_digit() => {
            (TokenKind::Parameter, 1 + run(&bytes[1..], |b| b.is_ascii_digit()))
        }
        b'$' => match dollar_len(bytes) {
            Some(len) => (TokenKind::String, len),
            None => (TokenKind::Other, 1),
        },
        b if is_word_start(b) => (TokenKind::Word, run(bytes, is_word)),
        b if b.is_ascii_digit() => (TokenKind::Number, run(bytes, |b| is_word(b) || b == b'.')),
        _ => (TokenKind::Other, 1),
    })
}

fn run(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&b| !belongs(b)).unwrap_or(bytes.len())
}

pub(crate) fn is_word_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b >= 0x80
}

pub(crate) fn is_word(b: u8) -> bool {
    is_word_start(b) || b.is_ascii_digit() || b == b'$'
}

/// The length of a comment that starts here; comments nest.
pub(crate) fn comment_len(bytes: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of what starts with a quote at `open`, to its closing quote. A doubled quote is
/// part of it, and with `escapes` what follows a backslash.
pub(crate) fn quoted_len(bytes: &[u8], open: usize, escapes: bool) -> usize {
    let quote = bytes[open];
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            b if b != quote => at += 1,
            _ if bytes.get(at + 1) == Some(&quote) => at += 2,
            _ => return at + 1,
        }
    }
    bytes.len()
}

/// The length of a dollar-quoted string that starts here, if one does.
pub(crate) fn dollar_len(bytes: &[u8]) -> Option<usize> {
    let tag = 1 + run(&bytes[1..], |b| is_word_start(b) || b.is_ascii_digit());
    if bytes.get(tag) != Some(&b'$') || bytes[1].is_ascii_digit() {
        return None;
    }
    let tag = &bytes[..=tag];
    let body = &bytes[tag.len()..];
    let end = body.windows(tag.len()).position(|window| window == tag);
    Some(end.map_or(bytes.len(), |end| tag.len() + end + tag.len()))
}

/// The text without the keyword CONCURRENTLY, outside of quotes and comments; `None` if it isn't
/// there. The space around it stays: it may end a comment.
///
/// For CREATE INDEX, DROP INDEX, REINDEX, REFRESH MATERIALIZED VIEW and DETACH PARTITION.
/// Without quotes it can't be a name there.
#[must_use]
pub fn without_concurrently(text: &str) -> Option<String> {
    let found = tokens(text).find(|token| {
        token.kind == TokenKind::Word && token.text.eq_ignore_ascii_case("concurrently")
    })?;
    Some(format!("{}{}", &text[..found.start], &text[found.start + found.text.len()..]))
}

/// Of longer names PostgreSQL takes the beginning (manual, section 4.1.1).
const NAME_BYTES_MAX: usize = 63;

/// A word of a function's body.
pub(crate) struct Word {
    /// In lower case.
    pub text: String,
    /// The first byte behind it that is neither space nor a double quote; a parenthesis if that may begin a comment.
    pub next: Option<u8>,
    /// It may be the first of a statement.
    pub opens_statement: bool,
    /// Where the text after it begins.
    pub end: usize,
}

/// How a name stands in a text that mentions it, if no word of it does: one of signs and digits only needs quotes.
pub(crate) fn without_words(name: &str) -> Option<Box<str>> {
    let quoted = || format!("\"{}\"", name.replace('"', "\"\"")).into();
    words(name).next().is_none().then(quoted)
}

/// Whether names in a text may be spelled so that they can't be read as they stand (`U&"\0061"`).
pub(crate) fn has_escaped_names(text: &str) -> bool {
    text.as_bytes().windows(3).any(|bytes| bytes.eq_ignore_ascii_case(b"u&\""))
}

/// The words of a body in whatever language, also those in its strings and comments, because a
/// string may be executed.
pub(crate) fn words(body: &str) -> impl Iterator<Item = Word> {
    Words { body, at: 0, opens_statement: true, before_comment: None }
}

struct Words<'a> {
    body: &'a str,
    at: usize,
    opens_statement: bool,
    /// In a comment: what held before it, and holds again after it.
    before_comment: Option<bool>,
}

impl Words<'_> {
    /// Skips to the next word. Operators and parentheses continue a statement; a semicolon ends
    /// one, and a quote may open one that is executed later.
    fn skip(&mut self) {
        let bytes = self.body.as_bytes();
        while let Some(&b) = bytes.get(self.at).filter(|b| !is_word_start(**b)) {
            let next = bytes.get(self.at + 1).copied().unwrap_or(0);
            match (b, next) {
                (b'-', b'-') | (b'/', b'*') => {
                    self.before_comment.get_or_insert(self.opens_statement);
                }
                (b'\n', _) | (b'*', b'/') => {
                    if let Some(before) = self.before_comment.take() {
                        self.opens_statement = before;
                        self.at += usize::from(b == b'*');
                    }
                }
                _ if b.is_ascii_whitespace() => {}
                _ => self.opens_statement = matches!(b, b';' | b'\'' | b'"' | b'$' | b'>'),
            }
            self.at += 1;
        }
    }
}

impl Iterator for Words<'_> {
    type Item = Word;

    fn next(&mut self) -> Option<Word> {
        self.skip();
        let bytes = self.body.as_bytes();
        let start = self.at;
        self.at += run(&bytes[start..], |b| is_word_start(b) || b.is_ascii_digit());
        if start == self.at {
            return None;
        }
        // (PostgreSQL cuts names.)
        let word = &self.body[start..self.at];
        let text = word[..word.floor_char_boundary(NAME_BYTES_MAX)].to_lowercase();
        let skipped = |b: &&u8| !b.is_ascii_whitespace() && **b != b'"';
        let next = bytes[self.at..].iter().find(skipped).copied();
        // Behind a comment anything can come, so a parenthesis, too.
        let next = next.map(|next| if matches!(next, b'/' | b'-') { b'(' } else { next });
        let opens_statement = self.opens_statement;
        self.opens_statement =
            matches!(&*text, "begin" | "then" | "else" | "loop" | "as" | "atomic" | "declare");
        Some(Word { text, next, opens_statement, end: self.at })
    }
}
