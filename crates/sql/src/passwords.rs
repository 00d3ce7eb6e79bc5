//! Finds passwords in clear text in CREATE ROLE, ALTER ROLE and their older names (manual, CREATE ROLE,
//! "PASSWORD"), so that they can be replaced.

use std::ops::Range;

use pg_raw_parse::Node;

use crate::lexer::{Token, TokenKind, tokens};
use crate::parser::parse;

/// A password in clear text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClearPassword {
    /// Where its constant stands in the text, in bytes.
    pub range: Range<usize>,
    /// What the constant says.
    pub password: String,
}

/// The passwords in clear text of a query's statements, in their order. Not among them: an empty
/// one, which the server takes for none, and what is a verifier already. Nothing if the text can't
/// be understood. Assumes standard_conforming_strings.
#[must_use]
pub fn clear_passwords(text: &str) -> Vec<ClearPassword> {
    let Some(tree) = parse(text) else { return Vec::new() };
    let mut found = Vec::new();
    for statement in tree.stmts() {
        let options = match statement {
            Node::CreateRoleStmt(create) => create.options(),
            Node::AlterRoleStmt(alter) => alter.options(),
            _ => continue,
        };
        for option in options.iter().filter(|option| option.defname() == Some("password")) {
            let Node::String(password) = option.arg() else { continue }; // NULL
            let password = password.sval().unwrap_or_default();
            let place = usize::try_from(option.location).ok().and_then(|at| constant(text, at));
            if let Some(range) = place
                && !password.is_empty()
                && !is_verifier(password)
            {
                found.push(ClearPassword { range, password: password.to_owned() });
            }
        }
    }
    found
}

/// Where the first string constant behind a place stands: one in several parts, or with its
/// UESCAPE, as a whole.
fn constant(text: &str, from: usize) -> Option<Range<usize>> {
    let behind = |token: &Token<'_>| token.start >= from && token.kind != TokenKind::Space;
    let mut tokens = tokens(text).filter(behind).skip_while(|t| t.kind != TokenKind::String);
    let first = tokens.next()?;
    let mut end = first.start + first.text.len();
    for token in tokens {
        match token.kind {
            TokenKind::String => end = token.start + token.text.len(),
            TokenKind::Word if token.text.eq_ignore_ascii_case("uescape") => {}
            _ => break,
        }
    }
    Some(first.start..end)
}

/// Whether a server stores this as it is: an MD5 hash or a SCRAM verifier (`get_password_type` of
/// PostgreSQL's `crypt.c`).
fn is_verifier(password: &str) -> bool {
    let is_md5 = |hash: &str| {
        hash.len() == 32 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    password.strip_prefix("md5").is_some_and(is_md5)
        || password.strip_prefix("SCRAM-SHA-256$").is_some_and(is_scram)
}

/// `iterations:salt$StoredKey:ServerKey`, keys of 32 bytes in Base64.
fn is_scram(rest: &str) -> bool {
    let Some((before, keys)) = rest.split_once('$') else { return false };
    let (Some((iterations, salt)), Some((stored, server))) =
        (before.split_once(':'), keys.split_once(':'))
    else {
        return false;
    };
    let is_key = |key: &str| key.len() == 44 && key.ends_with('=') && is_base64(key);
    iterations.parse::<u32>().is_ok() && is_base64(salt) && is_key(stored) && is_key(server)
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAM: &str = "SCRAM-SHA-256$4096:YWJjZGVmZ2hpamtsbW5vcA==$\
         AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn found(text: &str) -> Vec<(&str, String)> {
        let each = |p: ClearPassword| (&text[p.range.clone()], p.password);
        clear_passwords(text).into_iter().map(each).collect()
    }

    #[test]
    fn passwords_are_found_where_they_stand() {
        for (text, constant, password) in [
            ("CREATE ROLE a PASSWORD 'x'", "'x'", "x"),
            (
                "create user password encrypted password /* 'c' */ 'x''y' valid until 'z'",
                "'x''y'",
                "x'y",
            ),
            ("ALTER USER a LOGIN PASSWORD E'\\x41\\'' CONNECTION LIMIT 3;", "E'\\x41\\''", "A'"),
            ("CREATE GROUP a PASSWORD $$it's$$", "$$it's$$", "it's"),
            ("ALTER ROLE current_user PASSWORD 'a'\n  'c' SUPERUSER", "'a'\n  'c'", "ac"),
            ("ALTER ROLE é PASSWORD U&'!0041' UESCAPE '!' LOGIN", "U&'!0041' UESCAPE '!'", "A"),
            ("ALTER ROLE a PASSWORD 'SCRAM-SHA-256$x'", "'SCRAM-SHA-256$x'", "SCRAM-SHA-256$x"),
            ("ALTER ROLE a PASSWORD 'md5'", "'md5'", "md5"),
        ] {
            assert_eq!(found(text), [(constant, password.to_owned())], "{text}");
        }
        let two = "SELECT 'p'; ALTER ROLE a PASSWORD 'x'; CREATE ROLE b PASSWORD 'y'";
        assert_eq!(found(two), [("'x'", "x".to_owned()), ("'y'", "y".to_owned())]);
    }

    #[test]
    fn what_is_no_clear_password_stays() {
        let md5 = "ALTER ROLE a PASSWORD 'md5d0d55b1d4a0a4b6f2fd6ba5ac7a9d6dd'";
        let scram = format!("ALTER ROLE a PASSWORD '{SCRAM}'");
        for text in [
            md5,
            &scram,
            "ALTER ROLE a PASSWORD NULL",
            "ALTER ROLE a PASSWORD ''",
            "ALTER ROLE a SET x TO 'password'",
            "CREATE USER MAPPING FOR a SERVER s OPTIONS (password 'x')",
            "DO $$ BEGIN ALTER ROLE a PASSWORD 'x'; END $$",
            "SELECT 'ALTER ROLE a PASSWORD ''x'''",
            "ALTER ROLE a PASSWORD 'x' and no more",
            "",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }
}
