//! The text of DDL as replicas run it. Pure.
//!
//! The rows of `CREATE TABLE AS` and `SELECT INTO` come in the stream, so replicas only make the
//! table. A materialized view's contents don't, so it is filled by its own statement.

use hihooi_sql::lexer::{Token, TokenKind, tokens, without_concurrently};

/// The statement that replicas run for a statement of the primary.
#[must_use]
pub(super) fn replayed(text: &str) -> String {
    let tokens: Vec<Token<'_>> = tokens(text).collect();
    let words = top_words(&tokens);
    let first = words.first().map(|word| word.upper.as_str());
    let rewritten = match first {
        Some("CREATE") if creates_table(&words) => {
            words.iter().any(|word| word.upper == "AS").then(|| text.to_owned())
        }
        Some("SELECT" | "WITH") => create_instead_of_into(text, &tokens, &words),
        // That would need a temporary table, which a restricted operation can't have.
        Some("REFRESH") => return without_concurrently(text).unwrap_or_else(|| text.to_owned()),
        _ => None,
    };
    rewritten.map_or_else(|| text.to_owned(), |text| without_data(&text))
}

/// A word outside of parentheses.
struct Word {
    /// Number of its token.
    at: usize,
    upper: String,
}

fn top_words(tokens: &[Token<'_>]) -> Vec<Word> {
    let mut depth = 0;
    let mut words = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match (token.kind, token.text) {
            (TokenKind::Other, "(") => depth += 1,
            (TokenKind::Other, ")") => depth -= 1,
            (TokenKind::Word, text) if depth == 0 => {
                words.push(Word { at, upper: text.to_ascii_uppercase() });
            }
            _ => {}
        }
    }
    words
}

fn creates_table(words: &[Word]) -> bool {
    const KINDS: [&str; 5] = ["GLOBAL", "LOCAL", "TEMP", "TEMPORARY", "UNLOGGED"];
    let kind = words[1..].iter().find(|word| !KINDS.contains(&word.upper.as_str()));
    kind.is_some_and(|word| word.upper == "TABLE")
}

/// `SELECT … INTO t …` as `CREATE TABLE t AS SELECT … …`.
fn create_instead_of_into(text: &str, tokens: &[Token<'_>], words: &[Word]) -> Option<String> {
    let into = words.iter().find(|word| word.upper == "INTO")?.at;
    let mut kind = String::new();
    let mut at = next_token(tokens, into)?;
    while let word @ ("UNLOGGED" | "TABLE") = tokens[at].text.to_ascii_uppercase().as_str() {
        if word == "UNLOGGED" {
            kind.push_str("UNLOGGED ");
        }
        at = next_token(tokens, at)?;
    }
    let name_start = tokens[at].start;
    while let Some(dot) = next_token(tokens, at).filter(|&dot| tokens[dot].text == ".") {
        at = next_token(tokens, dot)?;
    }
    let name_end = tokens[at].start + tokens[at].text.len();
    let (before, name) = (&text[..tokens[into].start], &text[name_start..name_end]);
    Some(format!("CREATE {kind}TABLE {name} AS {before}{}", &text[name_end..]))
}

fn next_token(tokens: &[Token<'_>], after: usize) -> Option<usize> {
    (after + 1..tokens.len()).find(|&at| tokens[at].kind != TokenKind::Space)
}

/// The text with `WITH NO DATA` at its end, in place of what it says there itself.
fn without_data(text: &str) -> String {
    let tokens: Vec<Token<'_>> = tokens(text).collect();
    let significant: Vec<&Token<'_>> =
        tokens.iter().filter(|token| token.kind != TokenKind::Space && token.text != ";").collect();
    let ends_with = |words: &[&str]| {
        let tail = significant.len().checked_sub(words.len()).map(|from| &significant[from..]);
        tail.is_some_and(|tail| {
            tail.iter().zip(words).all(|(token, word)| token.text.eq_ignore_ascii_case(word))
        })
    };
    let drop = if ends_with(&["WITH", "NO", "DATA"]) {
        3
    } else if ends_with(&["WITH", "DATA"]) {
        2
    } else {
        0
    };
    let last = significant.len().checked_sub(drop + 1).map(|last| significant[last]);
    let end = last.map_or(0, |last| last.start + last.text.len());
    format!("{} WITH NO DATA", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::replayed;

    #[test]
    fn tables_made_from_queries_get_their_rows_from_the_stream() {
        let same = |text: &str| assert_eq!(replayed(text), text);
        same("create table t (id int generated always as identity, a int check (a in (1)))");
        same("create materialized view v as select 1");
        same("create view v as select 1 as one");
        same("alter table t add column b int");
        same("refresh materialized view v with no data");
        assert_eq!(
            replayed("refresh materialized view concurrently v"),
            "refresh materialized view  v"
        );
        let cases = [
            ("create table t as select 1 as a;", "create table t as select 1 as a WITH NO DATA"),
            (
                "create table t as select 1 with data -- x",
                "create table t as select 1 WITH NO DATA",
            ),
            (
                "CREATE UNLOGGED TABLE a.t (x) AS (VALUES (1)) WITH NO DATA ;",
                "CREATE UNLOGGED TABLE a.t (x) AS (VALUES (1)) WITH NO DATA",
            ),
            (
                "select a, 'into' into \"S t\".u from (select 1) x limit 5;",
                "CREATE TABLE \"S t\".u AS select a, 'into'  from (select 1) x limit 5 WITH NO DATA",
            ),
            (
                "with c as (select 1) select * into unlogged table t from c",
                "CREATE UNLOGGED TABLE t AS with c as (select 1) select *  from c WITH NO DATA",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(replayed(text), expected);
        }
    }
}
