//! The text of DDL, to be executed at another server: splits it into commands, and removes what applies to one
//! server only. Each changed text is checked with PostgreSQL's parser.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{AlterTableCmd, AlterTableStmt, ColumnDef};
use pg_raw_parse::raw::{AlterTableType, ConstrType, ObjectType};

use crate::analysis::range_of;
use crate::lexer::{Token, TokenKind, tokens, tokens_if};
use crate::parser::parse;

/// Where the statements of a text stand in it; `None` if it has a syntax error.
#[must_use]
pub fn statements(text: &str) -> Option<Vec<Range<usize>>> {
    // As in `analyse`: the parser's bindings may panic.
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let tree = parse(text)?;
        Some(tree.iter().map(|raw| range_of(raw, text)).collect())
    }));
    parsed.ok().flatten()
}

/// The same of a text that the server took, though it has words that are keywords only in the parser's version: cut at
/// its semicolons.
#[must_use]
pub fn pieces(text: &str) -> Vec<Range<usize>> {
    let is_end = |token: &Token<'_>| token.kind != TokenKind::Space && token.text == ";";
    let ends = tokens(text).filter(is_end).map(|token| token.start).chain([text.len()]);
    let mut start = 0;
    let pieces = ends.filter_map(|end| {
        let piece = text.get(start..end)?;
        let from = start + (piece.len() - piece.trim_start().len());
        start = (end + 1).min(text.len());
        (!piece.trim().is_empty()).then(|| from..from + piece.trim().len())
    });
    let mut pieces: Vec<_> = pieces.collect();
    // A body may have semicolons.
    if pieces.len() > 1 {
        pieces.push(0..text.len());
    }
    pieces
}

/// The text with all backslashes of its string constants in such as E'…', whose meaning doesn't depend on
/// `standard_conforming_strings` (manual, section 4.1.2.2). `is_conforming` tells whether that was on when the text was parsed.
#[must_use]
pub fn with_escape_strings(text: &str, is_conforming: bool) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let all: Vec<Token<'_>> = tokens_if(text, is_conforming).collect();
    let is_plain = |token: &Token<'_>| {
        token.kind == TokenKind::String && token.text.starts_with(['\'', 'n', 'N'])
    };
    let mut changed = String::with_capacity(text.len() + 8);
    let mut rest = &all[..];
    while let Some((first, behind)) = rest.split_first() {
        // A string constant may consist of several, each in a line of its own.
        let is_part = |token: &&Token<'_>| token.kind == TokenKind::Space || is_plain(token);
        let is_string = first.kind == TokenKind::String;
        let more = if is_string { behind.iter().take_while(is_part).count() } else { 0 };
        let (parts, behind) = rest.split_at(1 + more);
        rest = behind;
        let has_backslash = |part: &Token<'_>| is_plain(part) && part.text.contains('\\');
        if !is_plain(first) || !parts.iter().any(has_backslash) {
            parts.iter().for_each(|part| changed.push_str(part.text));
            continue;
        }
        changed.push_str(if first.text.starts_with('\'') { "E" } else { "nchar E" });
        for part in parts {
            let string = part.text.trim_start_matches(['n', 'N']);
            match is_plain(part) && is_conforming {
                true => changed.push_str(&string.replace('\\', "\\\\")),
                false => changed.push_str(string),
            }
        }
    }
    changed.into()
}

/// Whether a text consists of the same tokens, if `standard_conforming_strings` is on or off.
#[must_use]
pub fn is_cut_alike(text: &str) -> bool {
    tokens_if(text, true).eq(tokens_if(text, false))
}

/// Those of some places in a text at each of which, in front of a double quote there, it could end: in no string, quoted name
/// or comment that would still be open, if `standard_conforming_strings` was on, or if it was off. `places` ascend.
#[must_use]
pub fn ends(text: &str, places: &[usize]) -> Vec<usize> {
    let is_closed = |token: &Token<'_>, place: usize| match token.kind {
        TokenKind::Space => !token.text.starts_with("/*"),
        // Two quotes in a name stand for one: behind the first, the name may have ended.
        TokenKind::Quoted => {
            let name = token.text[..place - token.start].trim_start_matches(['u', 'U', '&']);
            let inner = name.get(1..).unwrap_or("\"");
            inner.bytes().rev().take_while(|b| *b == b'"').count() % 2 == 1
        }
        _ => false,
    };
    let closed = |is_conforming| {
        let mut rest = places.iter().copied().peekable();
        let mut closed = Vec::new();
        for token in tokens_if(text, is_conforming) {
            while let Some(place) = rest.next_if(|place| *place < token.start + token.text.len()) {
                if place == token.start || is_closed(&token, place) {
                    closed.push(place);
                }
            }
        }
        closed
    };
    let all: BTreeSet<usize> = closed(true).into_iter().chain(closed(false)).collect();
    all.into_iter().collect()
}

/// Whether a text has a constant that PostgreSQL may compute when it parses the text (manual, section 8.5.1.4): a string, no longer than
/// dates and times are, with one of these words.
#[must_use]
pub fn names_moment(text: &str) -> bool {
    const WORDS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
    let names = |part: &str| WORDS.iter().any(|word| part.eq_ignore_ascii_case(word));
    tokens(text).filter(may_be_time).any(|token| token.text.split(|c| !is_letter(c)).any(names))
}

fn may_be_time(token: &Token<'_>) -> bool {
    const LEN_MAX: usize = 64;
    token.kind == TokenKind::String && token.text.len() <= LEN_MAX
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text with what `now`, `today`, `tomorrow` and `yesterday` stand for in its constants, as for [`names_moment`]; `None` if it has
/// none.
#[must_use]
pub fn at_moment(text: &str, moment: &BTreeMap<String, String>) -> Option<String> {
    let mut changed = String::with_capacity(text.len() + 32);
    for token in tokens(text) {
        // (Not in what a quote has in front.)
        let from = token.text.find(['\'', '$']).filter(|_| may_be_time(&token));
        let from = from.unwrap_or(token.text.len());
        changed.push_str(&token.text[..from]);
        // Words, each with what comes behind it.
        for part in token.text[from..].split_inclusive(|c: char| !is_letter(c)) {
            let word = part.trim_end_matches(|c: char| !is_letter(c));
            let value = moment.get(&word.to_ascii_lowercase());
            changed.push_str(value.map_or(word, String::as_str));
            changed.push_str(&part[word.len()..]);
        }
    }
    (changed != text).then_some(changed)
}

/// A value that existing rows have in a column that ALTER TABLE added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddedValue<'a> {
    /// The column's name, without quotes.
    pub column: &'a str,
    /// The value, as a literal.
    pub literal: String,
    /// The default of rows to come, as an expression. Without one, the column keeps the literal: it
    /// can't be dropped in the same command.
    pub default: Option<&'a str>,
}

/// The same ALTER TABLE with literals in place of the defaults of columns that it adds, which it
/// then sets to what they were: each site would compute other values (manual, "Adding a Column").
/// `None` if that can't be written.
#[must_use]
pub fn with_values(text: &str, values: &[AddedValue<'_>]) -> Option<String> {
    let tree = parse(text)?;
    let Node::AlterTableStmt(alter) = tree.stmts().next()? else { return None };
    let tokens: Vec<Token<'_>> =
        tokens(text).filter(|token| token.kind != TokenKind::Space).collect();
    let last = tokens.iter().rev().find(|token| token.text != ";")?;
    let end = last.start + last.text.len();
    let alter = Alter { tokens: &tokens, alter };
    let (mut changed, mut at, mut defaults) = (String::new(), 0, String::new());
    for definition in alter.added() {
        let column = definition.colname()?;
        let Some(value) = values.iter().find(|value| value.column == column) else { continue };
        let range = alter.default_of(definition)?;
        changed.push_str(text.get(at..range.start)?);
        changed.push_str(&format!(" DEFAULT ({})", value.literal));
        at = range.end;
        if let Some(default) = value.default {
            let column = column.replace('"', "\"\"");
            defaults.push_str(&format!(",\nALTER COLUMN \"{column}\" SET DEFAULT {default}"));
        }
    }
    changed.push_str(text.get(at..end)?);
    changed.push_str(&defaults);
    let tree = parse(&changed)?;
    let mut statements = tree.stmts();
    let is_alter = matches!(statements.next(), Some(Node::AlterTableStmt(_)));
    (is_alter && statements.next().is_none()).then_some(changed)
}

/// What kind of object a GRANT or REVOKE is about, as it is named there; `None` of other statements,
/// and of objects that have no rights of their own in a database.
#[must_use]
pub fn granted_kind(text: &str) -> Option<&'static str> {
    let tree = parse(text)?;
    let Node::GrantStmt(grant) = tree.stmts().next()? else { return None };
    Some(match grant.objtype {
        ObjectType::OBJECT_TABLE => "TABLE",
        ObjectType::OBJECT_SEQUENCE => "SEQUENCE",
        ObjectType::OBJECT_FUNCTION | ObjectType::OBJECT_PROCEDURE | ObjectType::OBJECT_ROUTINE => {
            "ROUTINE"
        }
        ObjectType::OBJECT_SCHEMA => "SCHEMA",
        ObjectType::OBJECT_TYPE => "TYPE",
        ObjectType::OBJECT_DOMAIN => "DOMAIN",
        ObjectType::OBJECT_LANGUAGE => "LANGUAGE",
        ObjectType::OBJECT_FDW => "FOREIGN DATA WRAPPER",
        ObjectType::OBJECT_FOREIGN_SERVER => "FOREIGN SERVER",
        _ => return None,
    })
}

/// The text without its TABLESPACE clauses: each server has its own.
#[must_use]
pub fn without_tablespaces(text: &str) -> String {
    let all: Vec<Token<'_>> = tokens(text).filter(|token| token.kind != TokenKind::Space).collect();
    let is = |at: usize, word: &str| {
        all.get(at).is_some_and(|token: &Token<'_>| {
            token.kind == TokenKind::Word && token.text.eq_ignore_ascii_case(word)
        })
    };
    let (mut changed, mut copied) = (String::new(), 0);
    for at in 0..all.len() {
        // A column or table may have that name, so its surroundings count.
        let names = all
            .get(at + 1)
            .is_some_and(|next| matches!(next.kind, TokenKind::Word | TokenKind::Quoted));
        let before = at.checked_sub(1).map(|before| all[before].text);
        if !is(at, "tablespace") || !names || matches!(before, None | Some("(" | "," | "." | "add"))
        {
            continue;
        }
        let sets = at > 0 && is(at - 1, "set");
        let uses = at > 1 && is(at - 1, "index") && is(at - 2, "using");
        let from = all[if uses { at - 2 } else { at }].start;
        let name = all[at + 1];
        changed.push_str(&text[copied..from]);
        if sets {
            changed.push_str("TABLESPACE pg_default");
        }
        copied = name.start + name.text.len();
    }
    changed.push_str(&text[copied..]);
    if statements(&changed).is_some() { changed } else { text.to_owned() }
}

struct Alter<'t> {
    tokens: &'t [Token<'t>],
    alter: &'t AlterTableStmt,
}

impl<'t> Alter<'t> {
    /// The columns that it adds.
    fn added(&self) -> impl Iterator<Item = &'t ColumnDef> {
        self.alter.cmds().iter().filter_map(|node| match node {
            Node::AlterTableCmd(command) => added(command),
            _ => None,
        })
    }

    /// The DEFAULT clause of a column, or the empty place for one.
    fn default_of(&self, definition: &'t ColumnDef) -> Option<Range<usize>> {
        let default = constraints(definition).find(|(kind, _)| *kind == ConstrType::CONSTR_DEFAULT);
        if let Some((_, start)) = default {
            // Only what comes after the default can end it.
            let after = ends_of(definition).filter(|end| *end > start).min();
            let expression = self.range(start + "default".len(), after, &[]);
            return Some(start..expression.end);
        }
        let start = usize::try_from(definition.type_name()?.location).ok()?;
        let of_type =
            self.range(start, ends_of(definition).min(), &["storage", "compression", "options"]);
        Some(of_type.end..of_type.end)
    }

    /// From the first token at or behind `start` up to what ends a part of a command: a comma
    /// outside of parentheses, one of the words there, `before`.
    fn range(&self, start: usize, before: Option<usize>, words: &[&str]) -> Range<usize> {
        let mut depth = 0;
        let mut range = start..start;
        let mut behind_dot = false;
        for token in self.tokens.iter().filter(|token| token.start >= start) {
            let is_first = range.end == start && range.start == start;
            let ends = match token.text {
                "," | ";" => depth == 0,
                _ if before.is_some_and(|before| token.start >= before) => true,
                word => {
                    let listed = words.iter().any(|w| word.eq_ignore_ascii_case(w));
                    listed && depth == 0 && !is_first && !behind_dot
                }
            };
            if ends {
                break;
            }
            match token.text {
                "(" | "[" => depth += 1,
                ")" | "]" => depth -= 1,
                _ => {}
            }
            behind_dot = token.text == ".";
            if is_first {
                range.start = token.start;
            }
            range.end = token.start + token.text.len();
        }
        range
    }
}

fn added(command: &AlterTableCmd) -> Option<&ColumnDef> {
    let Node::ColumnDef(definition) = command.def() else { return None };
    (command.subtype == AlterTableType::AT_AddColumn).then_some(definition)
}

/// A column's constraints: what sort, and where they stand.
fn constraints(definition: &ColumnDef) -> impl Iterator<Item = (ConstrType::Type, usize)> {
    definition.constraints().iter().filter_map(|node| match node {
        Node::Constraint(constraint) => {
            Some((constraint.contype, usize::try_from(constraint.location).ok()?))
        }
        _ => None,
    })
}

/// Where a column's constraints and its collation begin.
fn ends_of(definition: &ColumnDef) -> impl Iterator<Item = usize> {
    let collation = definition.coll_clause().and_then(|c| usize::try_from(c.location).ok());
    constraints(definition).map(|(_, at)| at).chain(collation)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I2: the rows get the primary's value, later rows the default that was asked for.
    #[test]
    fn values_take_the_place_of_defaults() {
        let value = |column: &'static str, literal: &str, default| AddedValue {
            column,
            literal: literal.to_owned(),
            default,
        };
        let cases = [
            (
                "ALTER TABLE t ADD at timestamptz DEFAULT now() NOT NULL; -- x",
                vec![value("at", "'2026-01-01'", Some("now()"))],
                Some(
                    "ALTER TABLE t ADD at timestamptz  DEFAULT ('2026-01-01') NOT NULL,\n\
                     ALTER COLUMN \"at\" SET DEFAULT now()",
                ),
            ),
            (
                "ALTER TABLE t ADD \"A\" date NOT NULL DEFAULT CURRENT_DATE COLLATE x, ADD b int",
                vec![value("A", "'2026-01-01'", None)],
                Some(
                    "ALTER TABLE t ADD \"A\" date NOT NULL  DEFAULT ('2026-01-01') COLLATE x, \
                     ADD b int",
                ),
            ),
            (
                "ALTER TABLE t ADD at d CHECK (at > now())",
                vec![value("at", "'x'", None)],
                Some("ALTER TABLE t ADD at d DEFAULT ('x') CHECK (at > now())"),
            ),
            ("ALTER TABLE t ADD at date DEFAULT now()", vec![value("at", "')", None)], None),
            ("CREATE TABLE t ()", vec![value("at", "1", None)], None),
        ];
        for (text, values, expected) in cases {
            assert_eq!(with_values(text, &values).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn backslashes_mean_the_same_under_any_setting() {
        let as_parsed = |text, is_conforming| with_escape_strings(text, is_conforming).into_owned();
        let cases = [
            (r"select 'a\b'", r"select E'a\\b'", r"select E'a\b'"),
            (
                r"select 'a', E'\t', $$\$$, '\t'",
                r"select 'a', E'\t', $$\$$, E'\\t'",
                r"select 'a', E'\t', $$\$$, E'\t'",
            ),
            (r"select N'\a'", r"select nchar E'\\a'", r"select nchar E'\a'"),
            (
                "select 'a' -- \\\n 'b\\c'",
                "select E'a' -- \\\n 'b\\\\c'",
                "select E'a' -- \\\n 'b\\c'",
            ),
            ("select E'a'\n '\\'b'", "select E'a'\n '\\'b'", "select E'a'\n '\\'b'"),
            (r"select 'it\'s'", r"select E'it\\'s'", r"select E'it\'s'"),
            (
                r"select U&'\0061', b'\', '\'",
                r"select U&'\0061', b'\', E'\\'",
                r"select U&'\0061', b'\', E'\'",
            ),
        ];
        for (text, on, off) in cases {
            assert_eq!(
                (as_parsed(text, true), as_parsed(text, false)),
                (on.to_owned(), off.to_owned()),
                "{text}"
            );
        }
        assert!(is_cut_alike(r"select 'a\b\\'") && !is_cut_alike(r"select 'it\'s'"));
    }

    #[test]
    fn a_text_ends_where_nothing_is_open() {
        let ends_of = |text: &str| {
            let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
            ends(text, &quotes).iter().map(|at| text[..*at].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ends_of("select 1\""), ["select 1"]);
        assert_eq!(ends_of("a '\"' \"b\"\"\""), ["a '\"' ", "a '\"' \"b\""]);
        assert_eq!(ends_of("a U&\"b\"\""), ["a U&", "a U&\"b\""]);
        assert_eq!(ends_of("a $$\"$$ /* \" */ -- \"\n"), ["a $$\"$$ /* \" */ -- "]);
        // With backslashes as escapes, or without.
        assert_eq!(ends_of(r#"a '\'" b"#), [r"a '\'"]);
        assert_eq!(ends_of(r#"a '\'" ' ""#), [r"a '\'", r#"a '\'" ' "#]);
    }

    #[test]
    fn a_moment_is_that_of_the_primary() {
        let moment = [("now", "2026-01-02 03:04:05+00"), ("today", "2026-01-02")];
        let moment = moment.map(|(word, value)| (word.to_owned(), value.to_owned())).into();
        let changed = |text| at_moment(text, &moment);
        assert_eq!(
            changed("check (a < ' Now' and b > 'today 10:00') -- 'now'").as_deref(),
            Some("check (a < ' 2026-01-02 03:04:05+00' and b > '2026-01-02 10:00') -- 'now'")
        );
        assert_eq!(changed("a = E'now'").as_deref(), Some("a = E'2026-01-02 03:04:05+00'"));
        assert_eq!(changed("a = $$now$$").as_deref(), Some("a = $$2026-01-02 03:04:05+00$$"));
        assert_eq!(changed("select now(), 'nowhere', \"now\" /* 'now' */"), None);
        assert!(names_moment("d = 'Yesterday 10:00'") && !names_moment("select now(), 'nowhere'"));
    }

    #[test]
    fn tablespaces_are_left_out() {
        let cases = [
            ("CREATE TABLE t (a int) TABLESPACE x", "CREATE TABLE t (a int) "),
            (
                "CREATE TABLE t (a int PRIMARY KEY USING INDEX TABLESPACE \"X y\") WITH (a=1) TABLESPACE x",
                "CREATE TABLE t (a int PRIMARY KEY ) WITH (a=1) ",
            ),
            ("ALTER TABLE t SET TABLESPACE x", "ALTER TABLE t SET TABLESPACE pg_default"),
            ("CREATE TABLE t (tablespace text)", "CREATE TABLE t (tablespace text)"),
            ("CREATE TABLE t (a int, tablespace text)", "CREATE TABLE t (a int, tablespace text)"),
            (
                "CREATE INDEX ON t (a) TABLESPACE x WHERE a > 1",
                "CREATE INDEX ON t (a)  WHERE a > 1",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(without_tablespaces(text), expected);
        }
    }
}
