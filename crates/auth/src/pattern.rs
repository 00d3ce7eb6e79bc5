//! `/regex` names. PostgreSQL reads them as its advanced regular expressions (manual, "Regular Expression
//! Details", collation C), we by another engine: what the two read alike is accepted, all else refused, so
//! that no pattern ever matches a name that it doesn't match in PostgreSQL. Names are bytes to both: when a client
//! authenticates, PostgreSQL doesn't know an encoding yet, so `.` is one byte of a letter beyond ASCII.
//!
//! Matching takes time linear in the name's length.

use std::iter::Peekable;
use std::str::Chars;

use regex::bytes::{Regex, RegexBuilder};

use crate::files::Wrong;

/// How much memory one compiled pattern may take, in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// What follows the slash.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    pub(crate) fn compile(text: &str) -> Result<Pattern, Wrong> {
        let wrong = |why: String| {
            let what = format!("invalid regular expression \"{text}\": {why}");
            Wrong::new(what, "use what PostgreSQL's and Perl's expressions have in common")
        };
        let translator = Translator { rest: text.chars().peekable(), out: String::new() };
        let regex = RegexBuilder::new(&translator.translate().map_err(wrong)?)
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| wrong(last_line(&error.to_string()).to_owned()))?;
        Ok(Pattern { text: text.to_owned(), regex })
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name.as_bytes())
    }

    /// Whether the first group captures the same in PostgreSQL, which prefers the longest match: the whole name
    /// must match, without alternatives, and nothing but greedy repetitions of single characters.
    pub(crate) fn captures_alike(&self) -> bool {
        let is_whole = self.text.starts_with('^') && self.text.ends_with('$');
        let ambiguous = ["|", "*?", "+?", "??", "}?", ")*", ")+", "){", "\\$"];
        is_whole && !ambiguous.iter().any(|part| self.text.contains(part))
    }

    /// What the first group captured, if anything; `None` if the name doesn't match.
    pub(crate) fn captured<'a>(&self, name: &'a str) -> Option<Option<&'a [u8]>> {
        let captures = self.regex.captures(name.as_bytes())?;
        Some(captures.get(1).map(|group| group.as_bytes()))
    }
}

/// The engine's errors repeat the pattern first.
fn last_line(error: &str) -> &str {
    error.lines().last().unwrap_or_default().trim_start_matches("error: ")
}

type Result<T, E = String> = std::result::Result<T, E>;

struct Translator<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
}

impl Translator<'_> {
    fn translate(mut self) -> Result<String> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape(false)?,
                '[' => self.bracket()?,
                '(' => self.group()?,
                '{' if !self.rest.peek().is_some_and(char::is_ascii_digit) => {
                    return Err("write \\{ for a brace".into());
                }
                c => self.literal(c),
            }
        }
        Ok(self.out)
    }

    /// Each byte beyond ASCII by itself, so that a quantifier behind it is the last one's.
    fn literal(&mut self, c: char) {
        if c.is_ascii() {
            self.out.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                self.out += &format!("\\x{byte:02X}");
            }
        }
    }

    /// Lookahead and options are PostgreSQL's own.
    fn group(&mut self) -> Result<()> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_some() {
            self.rest.next_if_eq(&':').ok_or("of the groups with ?, only (?: is supported")?;
            self.out.push_str("?:");
        }
        Ok(())
    }

    /// The shorthands are ASCII's, as in collation C.
    fn escape(&mut self, in_bracket: bool) -> Result<()> {
        let escaped = self.rest.next().ok_or("it ends with a backslash")?;
        let class = match escaped.to_ascii_lowercase() {
            'd' => "0-9",
            'w' => "0-9A-Za-z_",
            's' => r" \t\n\x0B\x0C\r",
            _ => "",
        };
        match escaped {
            'd' | 'w' | 's' if in_bracket => self.out.push_str(class),
            'd' | 'w' | 's' => self.out.extend(["[", class, "]"]),
            'D' | 'W' | 'S' if !in_bracket => self.out.extend(["[^", class, "]"]),
            'A' if !in_bracket => self.out.push_str(r"\A"),
            'Z' if !in_bracket => self.out.push_str(r"\z"),
            'n' | 't' | 'r' | 'f' | 'v' => self.out.extend(['\\', escaped]),
            c if c.is_ascii_punctuation() && !"<>".contains(c) => self.out.extend(['\\', c]),
            c => return Err(format!("\\{c} is not supported")),
        }
        Ok(())
    }

    /// Set operations and nested sets are the engine's own, collating elements PostgreSQL's.
    fn bracket(&mut self) -> Result<()> {
        self.out.push('[');
        self.out.extend(self.rest.next_if_eq(&'^'));
        // Here it is an ordinary character.
        self.out.extend(self.rest.next_if_eq(&']').map(|_| r"\]"));
        while let Some(c) = self.rest.next() {
            match c {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '\\' => self.escape(true)?,
                '[' => self.class()?,
                '&' | '-' | '~' if self.rest.peek() == Some(&c) => {
                    return Err(format!("{c}{c} is not supported in brackets"));
                }
                c => self.literal(c),
            }
        }
        Err("brackets [] not balanced".into())
    }

    /// `[:name:]` in brackets; the engine would take a name that it doesn't know for letters.
    fn class(&mut self) -> Result<()> {
        self.rest.next_if_eq(&':').ok_or("write \\[ for a bracket in brackets")?;
        let name: String =
            std::iter::from_fn(|| self.rest.next_if(char::is_ascii_lowercase)).collect();
        let is_closed = self.rest.next() == Some(':') && self.rest.next() == Some(']');
        if !is_closed || !CLASSES.contains(&name.as_str()) {
            return Err("invalid character class".into());
        }
        self.out.extend(["[:", &name, ":]"]);
        Ok(())
    }
}

/// The character classes of POSIX.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_as_postgresql_does() {
        // Pattern, name, what `SELECT name ~ pattern COLLATE "C"` says in a database of encoding SQL_ASCII.
        for (pattern, name, expected) in [
            (r"^db\d+$", "db12", true),
            (r"^db\d+$", "db١", false),
            (r"^\w+$", "é", false),
            (r"^\W+$", "é", true),
            // Two bytes.
            (r"^.$", "é", false),
            (r"^..$", "é", true),
            (r"^é+$", "é", true),
            (r"^é+$", "éé", false),
            (r"^[é]{2}$", "é", true),
            (r"^.$", "\n", true),
            (r"^a", "b\na", false),
            (r"a$", "a\n", false),
            (r"a\Z", "ba", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]a]+$", "b", true),
            (r"^[^]a]+$", "b]", false),
            (r"^[\d-]+$", "1-2", true),
            (r"^[[:alpha:]_]+$", "a_b", true),
            (r"^[[:alpha:]]+$", "é", false),
            (r"^(?:a|b){2}$", "ab", true),
            (r"", "anything", true),
            (r"b", "abc", true),
            (r"^a\.b$", "a.b", true),
        ] {
            let compiled = Pattern::compile(pattern).unwrap();
            assert_eq!(compiled.matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn refuses_what_the_engines_read_differently() {
        for pattern in [
            r"\bword",
            r"\mword",
            r"\yword",
            r"\<word",
            r"(a)\1",
            "(?i)a",
            "(?=a)",
            "(?P<n>a)",
            "[a&&b]",
            "[a--b]",
            "[[a]]",
            "[[.a.]]",
            "[[=a=]]",
            "a{,5}",
            "a{x",
            r"\x41",
            "a\\",
            "[a",
            "[[:nosuch:]]",
            "[[:alpha",
            "***=a",
            "(",
            r"[\W]",
            r"\é",
            "(a{1000}){1000}",
        ] {
            assert!(Pattern::compile(pattern).is_err(), "{pattern}");
        }
    }
}
