//! Texts and their facts, one golden file per topic: a text, then `=> ` and the facts of each of
//! its statements, then an empty line. `UPDATE_GOLDEN=1 cargo test` rewrites the facts; read the
//! diff before you commit it.
//!
//! Every file tests I6 (never too little), and that what may go to a replica does. A line that
//! starts with `#` is a comment; `# path: a, b` sets the search path for what follows, `# path: ?`
//! makes it unknown.

use std::fmt::Write;
use std::path::Path;

use hihooi_sql::catalog_builder::{FunctionRow, Volatility};
use hihooi_sql::{Catalog, SearchPath, analyse};

use crate::common;

fn check(topic: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/all/golden/{topic}.txt"));
    let before = std::fs::read_to_string(&file).expect("a golden file");
    let after = run(&before);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, after).expect("writing the golden file");
        return;
    }
    for (line, (before, after)) in before.lines().zip(after.lines()).enumerate() {
        assert_eq!(after, before, "{topic}.txt:{}", line + 1);
    }
    assert_eq!(after.lines().count(), before.lines().count(), "{topic}.txt");
}

fn run(golden: &str) -> String {
    let catalog = common::catalog();
    let mut path = Some(common::public());
    let mut out = String::new();
    let mut text = String::new();
    for line in golden.lines().chain([""]) {
        if let Some(schemas) = line.strip_prefix("# path: ") {
            path = (schemas != "?").then(|| SearchPath::new(schemas.split(", ")));
        }
        if line.starts_with('#') {
            let _ = writeln!(out, "{line}");
        } else if line.is_empty() {
            if !text.is_empty() {
                let whole = text.trim_end_matches('\n');
                let _ = write!(out, "{text}");
                common::check_cached(whole, &catalog, path.as_ref());
                for statement in &analyse(whole, &catalog, path.as_ref()).statements {
                    let facts = common::render(statement, whole, &catalog);
                    let _ = writeln!(out, "=> {facts}");
                }
                let _ = writeln!(out);
            }
            text.clear();
        } else if !line.starts_with("=> ") {
            let _ = writeln!(text, "{line}");
        }
    }
    out
}

#[test]
fn reads() {
    check("reads");
}

#[test]
fn rows() {
    check("rows");
}

#[test]
fn writes() {
    check("writes");
}

#[test]
fn functions() {
    check("functions");
}

#[test]
fn not_on_replicas() {
    check("not_on_replicas");
}

#[test]
fn utility() {
    check("utility");
}

#[test]
fn ddl() {
    check("ddl");
}

#[test]
fn papers() {
    check("papers");
}

/// What computes expressions of indexes says that it is IMMUTABLE, and may write all the same.
#[test]
fn maintenance_may_write_if_an_immutable_function_does() {
    let is_write =
        |catalog: &Catalog, text: &str| analyse(text, catalog, None).statements[0].is_write();
    let mut builder = common::builder();
    builder.function(FunctionRow {
        schema: "public",
        name: "liar",
        volatility: Volatility::Immutable,
        language: "sql",
        takes_row: false,
        returns: "integer",
        body: "SELECT vol()",
        types: "",
    });
    let liar = builder.build(1);
    for text in ["VACUUM", "ANALYZE parent", "CLUSTER", "REINDEX TABLE parent"] {
        assert!(!is_write(&common::catalog(), text), "{text}");
        assert!(is_write(&liar, text), "{text}");
    }
}
