//! Other texts for replicas, where replaying the client's own would do too much: a table that is
//! made and filled in one command, whose rows travel in the stream (manual, CREATE TABLE AS and
//! SELECT INTO).

use pg_raw_parse::Node;

use crate::lexer::{Token, TokenKind, tokens};

/// A command that makes the same empty table as this CREATE TABLE AS, SELECT INTO, or EXPLAIN
/// ANALYZE of the former; `None` if it isn't one (see [`crate::Ddl::carries_rows`]). The text is
/// one statement, with or without its semicolon.
///
/// CREATE TABLE AS EXECUTE is given back with WITH NO DATA as well, but only its session has the
/// prepared statement.
#[must_use]
pub fn without_rows(text: &str) -> Option<String> {
    let tokens: Vec<Token<'_>> =
        tokens(text).filter(|token| token.kind != TokenKind::Space).collect();
    let end = tokens.iter().rposition(|token| token.text != ";")? + 1;
    let start = tokens[..end].iter().position(|token| is(token, &["create", "select", "with"]))?;
    let tokens = &tokens[start..end];
    let empty = if is(&tokens[0], &["create"]) {
        table_as(text, tokens)
    } else {
        select_into(text, tokens)?
    };
    makes_an_empty_table(&empty).then_some(empty)
}

fn is(token: &Token<'_>, words: &[&str]) -> bool {
    token.kind == TokenKind::Word && words.iter().any(|word| token.text.eq_ignore_ascii_case(word))
}

fn end_of(token: &Token<'_>) -> usize {
    token.start + token.text.len()
}

fn table_as(text: &str, tokens: &[Token<'_>]) -> String {
    let (first, last) = (tokens[0].start, end_of(&tokens[tokens.len() - 1]));
    let body_end = match tokens {
        [.., with, no, data] if is(with, &["with"]) && is(no, &["no"]) && is(data, &["data"]) => {
            with.start
        }
        [.., with, data] if is(with, &["with"]) && is(data, &["data"]) => with.start,
        _ => last,
    };
    // On its own line, in case a comment ends the text.
    format!("{}\nWITH NO DATA", &text[first..body_end])
}

/// INTO stands outside of all parentheses, once; the target's name follows it.
fn select_into(text: &str, tokens: &[Token<'_>]) -> Option<String> {
    let mut depth = 0;
    let into = tokens.iter().position(|token| {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        depth == 0 && is(token, &["into"])
    })?;
    let says = |token: &&Token<'_>| is(token, &["unlogged", "table"]);
    let skipped = tokens[into + 1..].iter().take_while(says).count();
    let unlogged = tokens[into + 1..].iter().take(skipped).any(|token| is(token, &["unlogged"]));
    let name = into + 1 + skipped;
    let more = tokens.get(name + 1..)?.chunks(2).take_while(|pair| pair[0].text == ".").count();
    let name_end = name + 2 * more;
    let target = &text[tokens[name].start..end_of(tokens.get(name_end)?)];
    let before = &text[tokens[0].start..tokens[into].start];
    let after = &text[end_of(&tokens[name_end])..end_of(&tokens[tokens.len() - 1])];
    let unlogged = if unlogged { "UNLOGGED " } else { "" };
    Some(format!("CREATE {unlogged}TABLE {target} AS\n{before}{after}\nWITH NO DATA"))
}

/// The parser has the last word.
fn makes_an_empty_table(text: &str) -> bool {
    let Ok(tree) = pg_raw_parse::parse(text) else { return false };
    let mut statements = tree.stmts();
    let made = matches!(
        statements.next(),
        Some(Node::CreateTableAsStmt(s)) if s.into().is_some_and(|into| into.skip_data)
    );
    made && statements.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_made_without_their_rows() {
        let cases = [
            ("CREATE TABLE x AS SELECT 1;", "CREATE TABLE x AS SELECT 1\nWITH NO DATA"),
            ("CREATE TABLE x AS SELECT 1 WITH DATA", "CREATE TABLE x AS SELECT 1 \nWITH NO DATA"),
            ("CREATE TABLE x AS TABLE y WITH NO DATA", "CREATE TABLE x AS TABLE y \nWITH NO DATA"),
            ("CREATE TABLE x AS SELECT 1 -- end", "CREATE TABLE x AS SELECT 1\nWITH NO DATA"),
            (
                "EXPLAIN (ANALYZE) CREATE TABLE x AS SELECT 1",
                "CREATE TABLE x AS SELECT 1\nWITH NO DATA",
            ),
            (
                "SELECT a, (SELECT 1) INTO s.\"X y\" FROM t UNION SELECT 2;",
                "CREATE TABLE s.\"X y\" AS\nSELECT a, (SELECT 1)  FROM t UNION SELECT 2\nWITH NO DATA",
            ),
            (
                "WITH w AS (SELECT 1) SELECT 'into' INTO UNLOGGED TABLE x FROM w",
                "CREATE UNLOGGED TABLE x AS\nWITH w AS (SELECT 1) SELECT 'into'  FROM w\nWITH NO DATA",
            ),
            ("SELECT 1 INTO x", "CREATE TABLE x AS\nSELECT 1 \nWITH NO DATA"),
        ];
        for (text, empty) in cases {
            assert_eq!(without_rows(text).as_deref(), Some(empty), "{text}");
        }
        for other in ["SELECT 1", "CREATE TABLE x (a int)", "", ";", "SELECT 1 INTO", "SELECT (1"] {
            assert_eq!(without_rows(other), None, "{other}");
        }
    }
}
