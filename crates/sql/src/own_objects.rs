//! Statements about hihooi's own objects on the primary: schema `hihooi`, publication `hihooi`, event triggers
//! `!hihooi_*` and `~hihooi_*`. A dump of a replicated database contains them. When it is restored through hihooi they exist
//! already and must not be changed.

use crate::lexer::{Token, TokenKind, tokens};

/// The command tag of a statement that defines, changes, fills or drops one of hihooi's own
/// objects; `None` if it is about something else.
#[must_use]
pub fn own_object(statement: &str) -> Option<&'static str> {
    if sets_own_sequence(statement) {
        return Some("SELECT 0");
    }
    let words: Vec<String> = tokens(statement)
        .filter(|token| !matches!(token.kind, TokenKind::Space))
        .map(|token| plain(&token))
        .take_while(|word| word != "(" && word != "as" && word != "from" && word != "to")
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (verb, rest) = words.split_first()?;
    let tag = tag(verb, rest)?;
    is_ours(rest).then_some(tag)
}

/// `SELECT pg_catalog.setval('hihooi.…', …)`, which is all that a dump says of a sequence's state.
fn sets_own_sequence(statement: &str) -> bool {
    let mut tokens = tokens(statement).filter(|token| !matches!(token.kind, TokenKind::Space));
    let is_call = ["select", "pg_catalog", ".", "setval", "("]
        .iter()
        .all(|word| tokens.next().is_some_and(|token| plain(&token) == *word));
    is_call && tokens.next().is_some_and(|token| token.text.starts_with("'hihooi."))
}

fn plain(token: &Token<'_>) -> String {
    match token.text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => token.text.to_ascii_lowercase(),
    }
}

fn tag(verb: &str, rest: &[&str]) -> Option<&'static str> {
    let kind = rest.iter().find(|word| !matches!(**word, "or" | "replace" | "unlogged"));
    Some(match (verb, *kind?) {
        ("create", "schema") => "CREATE SCHEMA",
        ("create", "table") => "CREATE TABLE",
        ("create", "materialized") => "CREATE MATERIALIZED VIEW",
        ("create", "function") => "CREATE FUNCTION",
        ("create", "sequence") => "CREATE SEQUENCE",
        ("create", "publication") => "CREATE PUBLICATION",
        ("create", "event") => "CREATE EVENT TRIGGER",
        ("alter", "schema") => "ALTER SCHEMA",
        ("alter", "table") => "ALTER TABLE",
        ("alter", "materialized") => "ALTER MATERIALIZED VIEW",
        ("alter", "function") => "ALTER FUNCTION",
        ("alter", "sequence") => "ALTER SEQUENCE",
        ("alter", "publication") => "ALTER PUBLICATION",
        ("alter", "event") => "ALTER EVENT TRIGGER",
        ("drop", "schema") => "DROP SCHEMA",
        ("drop", "table") => "DROP TABLE",
        ("drop", "materialized") => "DROP MATERIALIZED VIEW",
        ("refresh", _) => "REFRESH MATERIALIZED VIEW",
        ("drop", "function") => "DROP FUNCTION",
        ("drop", "sequence") => "DROP SEQUENCE",
        ("drop", "publication") => "DROP PUBLICATION",
        ("drop", "event") => "DROP EVENT TRIGGER",
        ("comment", _) => "COMMENT",
        ("grant", _) => "GRANT",
        ("revoke", _) => "REVOKE",
        ("copy", _) => "COPY 0",
        _ => return None,
    })
}

/// Whether one of our names stands where a statement names its object.
fn is_ours(words: &[&str]) -> bool {
    words.windows(2).any(|pair| match pair {
        ["schema" | "publication" | "exists", "hihooi"] | ["hihooi", "."] => true,
        ["trigger" | "exists", name] => {
            name.starts_with("!hihooi_") || name.starts_with("~hihooi_")
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::own_object;

    #[test]
    fn what_a_dump_says_about_us_is_recognised() {
        for (text, tag) in [
            ("CREATE SCHEMA hihooi;", "CREATE SCHEMA"),
            ("ALTER SCHEMA hihooi OWNER TO postgres;", "ALTER SCHEMA"),
            ("CREATE TABLE hihooi.note (id text)", "CREATE TABLE"),
            ("ALTER TABLE ONLY hihooi.note ADD CONSTRAINT k PRIMARY KEY (id)", "ALTER TABLE"),
            ("CREATE FUNCTION hihooi.f() RETURNS event_trigger AS $$x$$", "CREATE FUNCTION"),
            ("CREATE SEQUENCE hihooi.s START WITH 1", "CREATE SEQUENCE"),
            ("ALTER TABLE hihooi.s OWNER TO postgres", "ALTER TABLE"),
            ("CREATE PUBLICATION hihooi FOR ALL TABLES", "CREATE PUBLICATION"),
            ("CREATE EVENT TRIGGER \"!hihooi_2_drop\" ON sql_drop", "CREATE EVENT TRIGGER"),
            (
                "CREATE EVENT TRIGGER \"~hihooi_2_start\" ON ddl_command_start",
                "CREATE EVENT TRIGGER",
            ),
            ("DROP EVENT TRIGGER IF EXISTS \"!hihooi_2_drop\"", "DROP EVENT TRIGGER"),
            ("DROP SCHEMA IF EXISTS \"hihooi\"", "DROP SCHEMA"),
            ("GRANT USAGE ON SCHEMA hihooi TO PUBLIC", "GRANT"),
            ("-- x\nREVOKE ALL ON FUNCTION hihooi.f() FROM PUBLIC", "REVOKE"),
            ("CREATE MATERIALIZED VIEW hihooi.s AS SELECT 1", "CREATE MATERIALIZED VIEW"),
            ("REFRESH MATERIALIZED VIEW hihooi.s", "REFRESH MATERIALIZED VIEW"),
            ("COPY hihooi.identity (relation) FROM stdin", "COPY 0"),
            ("SELECT pg_catalog.setval('hihooi.last_ddl', 12, true);", "SELECT 0"),
            ("DROP SEQUENCE IF EXISTS hihooi.last_ddl", "DROP SEQUENCE"),
        ] {
            assert_eq!(own_object(text), Some(tag), "{text}");
        }
    }

    #[test]
    fn what_is_the_users_is_left_alone() {
        for text in [
            "CREATE TABLE public.hihooi (id int)",
            "CREATE TABLE hihooi (id int)",
            "CREATE FUNCTION f() RETURNS int AS $$ select 1 from hihooi.note $$",
            "CREATE VIEW v AS SELECT * FROM hihooi.note",
            "SELECT * FROM hihooi.note",
            "SELECT pg_catalog.setval('public.hihooi', 12, true)",
            "CREATE TABLE t (hihooi text)",
            "GRANT SELECT ON t TO hihooi",
            "CREATE TRIGGER hihooi_mine BEFORE INSERT ON t",
        ] {
            assert_eq!(own_object(text), None, "{text}");
        }
    }
}
