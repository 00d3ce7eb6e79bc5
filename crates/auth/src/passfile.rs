//! libpq's password file, `~/.pgpass` (manual, "The Password File"): lines of
//! `hostname:port:database:username:password`. Who reads it must refuse one that others may read (mode above
//! 0600), as libpq does.

use std::fmt;

use zeroize::Zeroizing;

/// The lines of the file that have all five fields, in their order; libpq ignores others, too.
#[derive(Debug, Clone, Default)]
pub struct Passfile(Vec<Entry>);

#[derive(Clone)]
struct Entry {
    /// Host, port, database, user; `None` is `*`: any.
    keys: [Option<String>; 4],
    password: Zeroizing<String>,
}

/// Without the password.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Passfile {
    /// Reads a file's text.
    #[must_use]
    pub fn parse(text: &str) -> Passfile {
        Passfile(text.lines().filter_map(Entry::parse).collect())
    }

    /// The password of the first line that matches; `None` also if it is empty. The host is as the connection
    /// names it; that of a Unix socket in the default folder is `localhost`.
    #[must_use]
    pub fn find(&self, host: &str, port: u16, database: &str, user: &str) -> Option<&str> {
        let asked = [host, &port.to_string(), database, user];
        let matches = |entry: &&Entry| {
            entry.keys.iter().zip(asked).all(|(key, asked)| key.as_ref().is_none_or(|k| k == asked))
        };
        let password = self.0.iter().find(matches)?.password.as_str();
        (!password.is_empty()).then_some(password)
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Entry> {
        let mut rest = Some(line.trim_end_matches('\r')).filter(|line| !line.starts_with('#'));
        let mut keys = [const { None }; 4];
        for key in &mut keys {
            let (raw, field) = next_field(&mut rest)?;
            *key = (raw != "*").then(|| field.to_string());
        }
        let (_, password) = next_field(&mut rest)?;
        Some(Entry { keys, password })
    }
}

/// Takes a field off the line up to a colon: as it is written, and what it means, without the backslashes in
/// front of colons and backslashes.
fn next_field<'a>(rest: &mut Option<&'a str>) -> Option<(&'a str, Zeroizing<String>)> {
    let line = rest.take()?;
    let mut field = Zeroizing::new(String::with_capacity(line.len()));
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            ':' => {
                *rest = Some(&line[at + 1..]);
                return Some((&line[..at], field));
            }
            '\\' => field.push(chars.next().map_or(c, |(_, escaped)| escaped)),
            _ => field.push(c),
        }
    }
    Some((line, field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_line_that_matches_decides() {
        let file = Passfile::parse(
            "# a comment:*:*:*:no\r\n\
             localhost:5432:shop:ann:first\r\n\
             \n\
             localhost:*:shop:*:second\n\
             too:few:fields\n\
             2001\\:db8\\:\\:1:5432:*:bob:pa\\:ss\\\\word:ignored\n\
             \\*:5432:*:*:star\n\
             db:5432:*:eve:\n\
             db:5432:*:eve:unreachable\n\
             db:5432:*:zoë:ends\\",
        );
        for (host, port, database, user, expected) in [
            ("localhost", 5432, "shop", "ann", Some("first")),
            ("localhost", 5433, "shop", "ann", Some("second")),
            ("localhost", 5432, "shops", "ann", None),
            ("localhos", 5432, "shop", "ann", None),
            ("2001:db8::1", 5432, "any", "bob", Some("pa:ss\\word")),
            ("*", 5432, "any", "any", Some("star")),
            ("elsewhere", 5432, "any", "any", None),
            ("db", 5432, "any", "eve", None),
            ("db", 5432, "any", "zoë", Some("ends\\")),
            ("# a comment", 1, "a", "b", None),
        ] {
            assert_eq!(file.find(host, port, database, user), expected, "{host} {port} {user}");
        }
    }

    #[test]
    fn debug_does_not_show_passwords() {
        assert!(!format!("{:?}", Passfile::parse("*:*:*:*:hidden")).contains("hidden"));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[a*:\\\\\n\r#é]{0,60}", user in "[a*:\\\\]{0,3}") {
            let _ = Passfile::parse(&text).find("a", 1, "a", &user);
        }

        #[test]
        fn what_is_escaped_comes_back(fields in prop::array::uniform3("[a-z:\\\\*]{1,8}"), password in "[^\n\r\0]{1,20}") {
            let escape = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:").replace('*', "\\*");
            let [host, database, user] = &fields;
            let (h, d, u, p) = (escape(host), escape(database), escape(user), escape(&password));
            let file = Passfile::parse(&format!("{h}:1:{d}:{u}:{p}"));
            prop_assert_eq!(file.find(host, 1, database, user), Some(password.as_str()));
        }
    }
}
