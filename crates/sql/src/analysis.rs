//! Finds the facts about a query text: parses it with PostgreSQL's own parser (of version 18, which accepts
//! everything that versions 14 to 17 accept) and walks the raw parse tree.
//!
//! Keeps I6: if the walk meets an unknown node, a name that isn't in the catalog, or nesting that is too deep,
//! the statement counts as touching everything.
//!
//! The caller must make sure that the server interprets the text as this parser does: that the text is UTF-8
//! and `standard_conforming_strings` is on. Otherwise it may mean something else at the server.

mod ddl;
mod dml;
mod expressions;
mod functions;
mod keys;
mod names;
mod query;
mod relations;
mod scan;
mod utility;

pub(crate) use expressions::{is_system_column, names_catalog_objects};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hihooi_replication::items::Items;
use pg_raw_parse::nodes::RawStmt;

use crate::catalog::{Catalog, SearchPath};
use crate::facts::{Analysis, Kind, Replica, SessionEffect, Statement, Unsafe};
use crate::parser::parse;
use crate::template;
pub(crate) use scan::Facts;
use scan::Scan;

/// The facts about a text. `path` is the session's search path, `None` if it isn't known.
#[must_use]
pub fn analyse(text: &str, catalog: &Catalog, path: Option<&SearchPath>) -> Analysis {
    analyse_with(text, catalog, path, None)
}

/// The facts about all texts of one template: its constants are slots.
pub(crate) fn analyse_template(
    text: &str,
    catalog: &Catalog,
    path: Option<&SearchPath>,
) -> Analysis {
    analyse_with(text, catalog, path, Some(&template::constants(text.as_bytes())))
}

fn analyse_with(
    text: &str,
    catalog: &Catalog,
    path: Option<&SearchPath>,
    constants: Option<&[Range<usize>]>,
) -> Analysis {
    // The parser's bindings panic where the parser surprises them, on a constant that isn't UTF-8
    // for example. None is known, but a client's text must not end the process.
    let analysis = catch_unwind(AssertUnwindSafe(|| statements(text, catalog, path, constants)));
    let statements = analysis.unwrap_or_else(|_| Box::new([unparsable(0..text.len())]));
    Analysis { statements, number: 0 }
}

fn statements(
    text: &str,
    catalog: &Catalog,
    path: Option<&SearchPath>,
    constants: Option<&[Range<usize>]>,
) -> Box<[Statement]> {
    let whole = 0..text.len();
    let Some(tree) = parse(text) else { return Box::new([unparsable(whole)]) };
    if tree.is_empty() {
        return Box::new([empty(whole)]);
    }
    let scan = |raw: &RawStmt| {
        let range = range_of(raw, text);
        let mut scan = Scan::new(catalog, path);
        scan.text = &text[range.clone()];
        scan.whole_text = text;
        scan.constants = constants;
        scan.statement(raw.stmt(), range)
    };
    tree.iter().map(scan).collect()
}

/// Where a statement stands: the parser counts the space before it, and says length 0 for "to the
/// end of the text".
pub(crate) fn range_of(raw: &RawStmt, text: &str) -> Range<usize> {
    let start = usize::try_from(raw.stmt_location).unwrap_or(0).min(text.len());
    let end = match usize::try_from(raw.stmt_len) {
        Ok(0) | Err(_) => text.len(),
        Ok(len) => (start + len).min(text.len()),
    };
    let Some(statement) = text.get(start..end) else { return 0..text.len() };
    let start = start + (statement.len() - statement.trim_start().len());
    start..start + statement.trim().len()
}

impl Analysis {
    /// Of a text of so many bytes that can't be understood: it may do anything (I6).
    #[must_use]
    pub fn unparsable(len: usize) -> Analysis {
        Analysis { statements: Box::new([unparsable(0..len)]), number: 0 }
    }

    /// Of a FunctionCall message, which names its function by OID: it may be any.
    #[must_use]
    pub fn function_call() -> Analysis {
        let call = Statement { kind: Kind::Call, may_commit_inside: true, ..unparsable(0..0) };
        Analysis { statements: Box::new([call]), number: 0 }
    }
}

fn unparsable(range: Range<usize>) -> Statement {
    Statement {
        range,
        kind: Kind::Unparsable,
        reads: Items::Everything,
        writes: Items::Everything,
        read_rows: Box::default(),
        written_rows: Box::default(),
        replica: Replica::Unsafe(Unsafe::Unparsable),
        session: SessionEffect::anything(),
        row_locks: true,
        may_commit_inside: true,
        answers_more: true,
        lists_prepared: false,
        reads_clock: true,
        reasons: u32::MAX,
        only_catalogs: false,
    }
}

fn empty(range: Range<usize>) -> Statement {
    Statement {
        range,
        kind: Kind::Empty,
        reads: Items::Nothing,
        writes: Items::Nothing,
        read_rows: Box::default(),
        written_rows: Box::default(),
        replica: Replica::Safe,
        session: SessionEffect::default(),
        row_locks: false,
        may_commit_inside: false,
        answers_more: false,
        lists_prepared: false,
        reads_clock: false,
        reasons: 0,
        only_catalogs: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_what_cant_be_understood_may_do_anything() {
        let catalog = Catalog::default();
        assert_eq!(analyse("select '", &catalog, None), Analysis::unparsable(8));
        let called = analyse("CALL nobody.knows()", &catalog, None);
        let (called, call) = (&called.statements[0], &Analysis::function_call().statements[0]);
        assert_eq!(called.kind, call.kind);
        assert_eq!((&called.reads, &called.writes), (&call.reads, &call.writes));
        assert_eq!(called.session, call.session);
        assert!(call.is_write() && call.may_commit_inside);
    }
}
