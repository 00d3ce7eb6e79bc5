//! PostgreSQL's own parser, for texts that it reads in about the time that their length needs.

use pg_raw_parse::ParseResult;

/// So many characters of operators may follow each other, without a space.
const RUN_LEN_MAX: usize = 256;

/// The raw parse tree; `None` if the text makes no sense, or would take too long.
pub(crate) fn parse(text: &str) -> Option<ParseResult> {
    if has_long_run(text) { None } else { pg_raw_parse::parse(text).ok() }
}

/// Whether so many characters of operators follow each other that PostgreSQL's lexer reads them again and again: at each
/// beginning of a comment in one (`/*/*/*`), and at each sign of a row of them (`+++`, `+-+-`; see `xcstart` and
/// `operator` in its scan.l). Lines of dashes, asterisks or equal signs take no longer than other texts.
fn has_long_run(text: &str) -> bool {
    let is_operator = |byte: &u8| b"~!@#^&|`?+-*/%<>=".contains(byte);
    let begins_comments = |run: &[u8]| run.windows(2).filter(|pair| pair == b"/*").count() > 1;
    let is_slow = |run: &[u8]| run.contains(&b'+') || begins_comments(run);
    let mut runs = text.as_bytes().split(|byte| !is_operator(byte));
    runs.any(|run| run.len() > RUN_LEN_MAX && is_slow(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_too_long_is_not_read() {
        for line in ["*", "-", "=", "#"].map(|sign| sign.repeat(300)) {
            assert!(parse(&format!("/*{line}*/ SELECT 1 --{line}")).is_some(), "{line}");
        }
        for text in [
            "/*".repeat(200),
            format!("SELECT {}1", "+".repeat(300)),
            format!("SELECT {}1", "+-".repeat(150)),
        ] {
            assert!(parse(&text).is_none(), "{text}");
        }
        assert!(parse(&format!("SELECT {}1", "+".repeat(200))).is_some());
    }
}
