//! PostgreSQL's own parser, for texts that it reads in about the time that their length needs.

use pg_raw_parse::ParseResult;

/// So many characters of operators may follow each other, without a space.
const RUN_LEN_MAX: usize = 256;

/// The raw parse tree; `None` if the text makes no sense, or would take too long.
pub(crate) fn parse(text: &str) -> Option<ParseResult> {
    if has_long_run(text) { None } else { pg_raw_parse::parse(text).ok() }
}

/// Whether many characters of operators follow each other (`/*/*/*`, `+++`): at each one, PostgreSQL's lexer may read
/// all the others again (`xcstart` and `operator` in its scan.l).
fn has_long_run(text: &str) -> bool {
    let is_operator = |byte: &u8| b"~!@#^&|`?+-*/%<>=".contains(byte);
    text.as_bytes().split(|byte| !is_operator(byte)).any(|run| run.len() > RUN_LEN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_too_long_is_not_read() {
        let banner = format!("/*{}*/ SELECT 1 -- {0}", "*".repeat(100));
        assert!(parse(&banner).is_some());
        for text in ["/*".repeat(200), format!("SELECT {}1", "+".repeat(300))] {
            assert!(parse(&text).is_none(), "{text}");
        }
        assert!(parse(&format!("SELECT {}1", "+".repeat(200))).is_some());
    }
}
