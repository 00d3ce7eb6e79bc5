//! Turns a query text into its template: the text without numbers, and without strings to which something is
//! compared. Texts with the same template have the same facts.
//!
//! Why this keeps I6: facts depend on names, operators, keywords and other strings (the name of a sequence or a
//! setting), which are kept. A number is removed only where it is a whole token, and a string only after a
//! comparison operator, so the parse tree keeps its shape. Only an integer may become a decimal, and no fact
//! depends on that. A constant that names a row is a slot, which is filled for each text (see
//! `crate::named_rows`). Where a number could matter in another way, in SET, EXPLAIN and other commands, the
//! text itself is the key.

use std::ops::Range;

use crate::lexer::{comment_len, dollar_len, is_word, quoted_len};

/// Stands for a number, twice for a string. It can't be in a text: the protocol ends strings with it.
const CONSTANT: u8 = 0;

/// First byte of a key that is a template.
const TEMPLATE: u8 = 1;

/// First byte of a key that is a text as it stands.
const EXACT: u8 = 2;

/// Writes the key of a text into `key`, which is emptied first. Whether it is a template; then
/// the text holds at most one statement.
pub(crate) fn write_key(text: &str, key: &mut Vec<u8>) -> bool {
    key.clear();
    key.reserve(text.len() + 1);
    key.push(TEMPLATE);
    if is_query(text) && walk(text.as_bytes(), |part| key.extend_from_slice(part), |_| ()).is_some()
    {
        return true;
    }
    key.clear();
    key.push(EXACT);
    key.extend_from_slice(text.as_bytes());
    false
}

/// Where the constants stand that a text's template lacks, in order. Strings have their quotes.
#[must_use]
pub fn constants(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // A text that is no template has no slots for constants.
    let _ = walk(text, |_| (), |constant| found.push(constant));
    found
}

/// Whether the first word is of a statement whose facts no number changes.
fn is_query(text: &str) -> bool {
    let start = text.trim_ascii_start().as_bytes();
    ["select", "insert", "update", "delete", "with", "values", "merge"].iter().any(|word| {
        start.get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word.as_bytes()))
            && !start.get(word.len()).is_some_and(|&b| is_word(b))
    })
}

/// What to do at a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Copy,
    Word,
    Digit,
    Quote,
    Dollar,
    Comment,
    Semicolon,
}

const CLASSES: [Class; 256] = classes();

const fn classes() -> [Class; 256] {
    let mut classes = [Class::Copy; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => Class::Word,
            b'0'..=b'9' => Class::Digit,
            b'\'' | b'"' => Class::Quote,
            b'$' => Class::Dollar,
            b'-' | b'/' => Class::Comment,
            b';' => Class::Semicolon,
            _ => Class::Copy,
        };
        byte += 1;
    }
    classes
}

/// Tells the parts that a template keeps, and where the constants stand that it lacks. `None` if the text may
/// hold several statements, or a string with escapes, which the lexer continues in ways not followed here.
fn walk(
    bytes: &[u8],
    mut keep: impl FnMut(&[u8]),
    mut tell: impl FnMut(Range<usize>),
) -> Option<()> {
    let (mut at, mut copied) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        at += match CLASSES[byte as usize] {
            Class::Copy => 1,
            Class::Word => {
                let len = word_len(rest);
                if len == 1 && byte.eq_ignore_ascii_case(&b'e') && rest.get(1) == Some(&b'\'') {
                    return None;
                }
                len
            }
            Class::Digit => {
                let len = word_len(rest);
                if rest[..len].iter().all(u8::is_ascii_digit) {
                    keep(&bytes[copied..at]);
                    keep(&[CONSTANT]);
                    copied = at + len;
                    tell(at..copied);
                }
                len
            }
            Class::Quote => {
                let len = quoted_len(rest, 0, false);
                if byte == b'\'' && is_compared(&bytes[..at]) {
                    keep(&bytes[copied..at]);
                    keep(&[CONSTANT, CONSTANT]);
                    copied = at + len;
                    tell(at..copied);
                }
                len
            }
            Class::Dollar => dollar_len(rest).unwrap_or_else(|| 1 + word_len(&rest[1..])),
            Class::Comment => comment(rest),
            Class::Semicolon => {
                if rest.iter().any(|b| *b != b';' && !b.is_ascii_whitespace()) {
                    return None;
                }
                rest.len()
            }
        };
    }
    keep(&bytes[copied..]);
    Some(())
}

/// Whether what stands here is compared with what stands in front. (`=>` and `:=` name an argument.)
fn is_compared(front: &[u8]) -> bool {
    let front = front.trim_ascii_end();
    let is_named = front.ends_with(b"=>") || front.ends_with(b":=");
    !is_named && front.last().is_some_and(|b| matches!(b, b'=' | b'<' | b'>'))
}

/// Whether a byte goes on with a word or number.
const IN_WORD: [bool; 256] = {
    let mut in_word = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        in_word[byte] = matches!(CLASSES[byte], Class::Word | Class::Digit | Class::Dollar);
        byte += 1;
    }
    in_word
};

fn word_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| !IN_WORD[byte as usize]).unwrap_or(bytes.len())
}

fn comment(bytes: &[u8]) -> usize {
    match bytes {
        [b'-', b'-', ..] => {
            bytes.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(bytes.len())
        }
        [b'/', b'*', ..] => comment_len(bytes),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_taken_out_behind_comparisons() {
        let same = [
            (
                "select a from t where b='x' and c <> 'it''s'",
                "select a from t where b=?? and c <> ??",
            ),
            ("select f(a => 'x', b := 'y'), c >= 'z'", "select f(a => 'x', b := 'y'), c >= ??"),
            ("select 'x' = a, n = n'x', b in ('x')", "select 'x' = a, n = n'x', b in ('x')"),
            ("select a = \"x\", a = -- '\n'x'", "select a = \"x\", a = -- '\n'x'"),
        ];
        for (text, template) in same {
            assert_eq!(key(text), (true, template.to_string()));
        }
    }

    #[test]
    fn constants_are_found_again() {
        let text = "select 5 from t where b = 'x''y' and c = -07";
        let found: Vec<&str> = constants(text.as_bytes()).into_iter().map(|c| &text[c]).collect();
        assert_eq!(found, ["5", "'x''y'", "07"]);
    }

    fn key(text: &str) -> (bool, String) {
        let mut key = Vec::new();
        let is_template = write_key(text, &mut key);
        (is_template, String::from_utf8(key[1..].to_vec()).unwrap().replace('\0', "?"))
    }

    #[test]
    fn only_whole_numbers_are_taken_out() {
        let same = [
            (
                "SELECT a1 FROM t2 WHERE x=123 AND y = -4.5",
                "SELECT a1 FROM t2 WHERE x=? AND y = -?.?",
            ),
            ("select '12''3', \"4\"\"5\", $1, $12", "select '12''3', \"4\"\"5\", $1, $12"),
            ("select $$1$$, $a$2$b$3$a$ + 4", "select $$1$$, $a$2$b$3$a$ + ?"),
            ("select 1 -- 2\n+3 /* 4 /* 5 */ 6 */ - 7", "select ? -- 2\n+? /* 4 /* 5 */ 6 */ - ?"),
            ("select 1e5, 0x1F, 1_000, 5a, é1", "select 1e5, 0x1F, 1_000, 5a, é1"),
            ("update t set a=a+1 where b=2 ; ", "update t set a=a+? where b=? ; "),
            ("select n'1', b'1', u&'1', a$1 , 2", "select n'1', b'1', u&'1', a$1 , ?"),
            ("select 'unfinished 1", "select 'unfinished 1"),
        ];
        for (text, template) in same {
            assert_eq!(key(text), (true, template.to_string()));
        }
    }

    #[test]
    fn texts_where_numbers_may_matter_stay() {
        for text in [
            "SET statement_timeout = 100",
            "EXPLAIN (ANALYZE 0) SELECT 1",
            "SELECT 1; SELECT 2",
            "SELECT 1; -- 2",
            "SELECT E'\\'1', 2",
            "selects 1",
            "COPY t FROM STDIN",
            "",
        ] {
            assert_eq!(key(text), (false, text.to_string()));
        }
    }
}
