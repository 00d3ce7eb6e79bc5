//! What ALTER TABLE computes for the rows that are there: values of columns that it adds (manual,
//! "Adding a Column"), values that it converts with USING. Neither is in the stream, and a
//! replica that computes them again can get others: the clock, chance, the session's user.
//!
//! Keeps I2: an expression that isn't understood is taken for one that gives other values at
//! other sites (I6). Pure; the one who runs the statement asks the primary what the names in an
//! expression stand for, and for the value of what has only one.

use std::ops::Range;

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{AlterTableCmd, AlterTableStmt, ColumnDef, RangeVar};
use pg_raw_parse::raw::{AlterTableType, ConstrType, ObjectType};

use crate::builtins;
use crate::lexer::{Token, TokenKind, tokens};

/// What an ALTER TABLE computes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Computed {
    /// The table as it may stand in a statement: quoted, with its schema if the text has one.
    pub table: Box<str>,
    /// The columns that it adds, without generated ones.
    pub added: Vec<Added>,
    /// What the expressions behind USING depend on.
    pub conversions: Vec<Names>,
}

/// A column that is added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Added {
    /// Its name, without quotes.
    pub column: Box<str>,
    /// Its type, where it stands in the text.
    pub of_type: Range<usize>,
    /// What the rows that are there get.
    pub source: Source,
    /// Nothing becomes of it if the table has a column of this name.
    pub if_not_exists: bool,
    /// The same command says later what its default is from then on.
    pub has_other_default: bool,
}

/// What rows get in a column that is added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// NULL, or the default of its type.
    Type,
    /// A constant.
    Constant,
    /// The value of an expression, which stands here in the text.
    Expression(Range<usize>, Names),
    /// Another number for each row: serial types and identity columns.
    Numbers,
}

/// What an expression depends on, by the names in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// Functions that it calls.
    pub functions: Vec<Box<str>>,
    /// Of [`Names::functions`], those of PostgreSQL's own that have one value throughout a
    /// transaction if they aren't volatile.
    pub fixed: Vec<Box<str>>,
    /// Of [`Names::functions`], those of PostgreSQL's own that have one value at all sites under
    /// the same settings if they aren't volatile.
    pub settled: Vec<Box<str>>,
    /// Operators.
    pub operators: Vec<Box<str>>,
    /// Whatever else may be the name of a type.
    pub types: Vec<Box<str>>,
    /// It asks for the moment or the user without calling a function: CURRENT_DATE, 'today'.
    pub asks_for_moment: bool,
    /// It does so by a string only, which PostgreSQL reads once for all, so that what it stands
    /// for is a constant from then on.
    pub is_moment: bool,
    /// It has names that aren't understood.
    pub opaque: bool,
}

/// SQL's functions without parentheses.
const VALUE_FUNCTIONS: [&str; 12] = [
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "localtime",
    "localtimestamp",
    "session_user",
    "system_user",
    "user",
];

/// Words that the input of dates and times takes for the moment.
const MOMENTS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];

/// What an ALTER TABLE computes; `None` if the text isn't one, or computes nothing. The text is
/// one statement, with or without its semicolon and what is around it.
#[must_use]
pub fn computed(text: &str) -> Option<Computed> {
    let starts = tokens(text).find(|token| token.kind != TokenKind::Space)?;
    if !starts.text.eq_ignore_ascii_case("alter") {
        return None;
    }
    let tree = pg_raw_parse::parse(text).ok()?;
    let Node::AlterTableStmt(alter) = tree.stmts().next()? else { return None };
    if alter.objtype != ObjectType::OBJECT_TABLE {
        return None;
    }
    let tokens: Vec<Token<'_>> =
        tokens(text).filter(|token| token.kind != TokenKind::Space).collect();
    let scan = Alter { text, tokens: &tokens, alter };
    let computed = Computed {
        table: table(alter.relation()?),
        added: scan.commands().filter_map(|command| scan.added(command)).collect(),
        conversions: scan.commands().filter_map(|command| scan.conversion(command)).collect(),
    };
    (!computed.added.is_empty() || !computed.conversions.is_empty()).then_some(computed)
}

/// The same ALTER TABLE with literals in place of some columns' defaults, which it then sets to
/// what they were: `values` are the numbers of columns in [`Computed::added`], in their order,
/// each with the literal, and whether the column is there already, so that nothing becomes of it.
/// `None` if that can't be written.
#[must_use]
pub fn with_values(
    text: &str,
    computed: &Computed,
    values: &[(usize, String, bool)],
) -> Option<String> {
    let last = tokens(text).filter(|t| t.kind != TokenKind::Space && t.text != ";").last()?;
    let end = last.start + last.text.len();
    let (mut changed, mut at, mut defaults) = (String::new(), 0, String::new());
    for (index, literal, exists) in values {
        let added = computed.added.get(*index)?;
        let Source::Expression(range, names) = &added.source else { return None };
        changed.push_str(text.get(at..range.start)?);
        changed.push_str(&format!("({literal})"));
        at = range.end;
        if !added.has_other_default && !exists && !names.is_moment {
            let (column, expression) = (quote(&added.column), text.get(range.clone())?);
            defaults.push_str(&format!(",\nALTER COLUMN {column} SET DEFAULT {expression}"));
        }
    }
    changed.push_str(text.get(at..end)?);
    changed.push_str(&defaults);
    // The parser has the last word.
    let tree = pg_raw_parse::parse(&changed).ok()?;
    let mut statements = tree.stmts();
    let is_alter = matches!(statements.next(), Some(Node::AlterTableStmt(_)));
    (is_alter && statements.next().is_none()).then_some(changed)
}

struct Alter<'t> {
    text: &'t str,
    tokens: &'t [Token<'t>],
    alter: &'t AlterTableStmt,
}

impl<'t> Alter<'t> {
    fn commands(&self) -> impl Iterator<Item = &'t AlterTableCmd> {
        self.alter.cmds().iter().filter_map(|node| match node {
            Node::AlterTableCmd(command) => Some(command),
            _ => None,
        })
    }

    fn added(&self, command: &'t AlterTableCmd) -> Option<Added> {
        let Node::ColumnDef(definition) = command.def() else { return None };
        if command.subtype != AlterTableType::AT_AddColumn || has(definition, GENERATED) {
            return None;
        }
        let column = definition.colname()?;
        let of_type = self.type_range(definition)?;
        let serial = ["serial", "bigserial", "smallserial", "serial2", "serial4", "serial8"];
        let is_serial = definition.type_name()?.names().iter().next_back()?.sval();
        let source = if has(definition, IDENTITY) || serial.contains(&is_serial?) {
            Source::Numbers
        } else {
            self.default_of(definition)
        };
        let sets = |other: &AlterTableCmd| {
            other.subtype == AlterTableType::AT_ColumnDefault && other.name() == Some(column)
        };
        let has_other_default = self.commands().any(sets);
        let if_not_exists = command.missing_ok;
        Some(Added { column: column.into(), of_type, source, if_not_exists, has_other_default })
    }

    fn default_of(&self, definition: &'t ColumnDef) -> Source {
        let Some(at) = constraints(definition).find(|(kind, _)| *kind == DEFAULT) else {
            return Source::Type;
        };
        // Only what stands behind the default can end it.
        let after = ends_of(definition).filter(|end| *end > at.1).min();
        let expression = self.range(at.1 + "default".len(), after, &[]);
        let names = self.names(&expression);
        if names.is_constant() { Source::Constant } else { Source::Expression(expression, names) }
    }

    fn type_range(&self, definition: &ColumnDef) -> Option<Range<usize>> {
        let start = usize::try_from(definition.type_name()?.location).ok()?;
        Some(self.range(start, ends_of(definition).min(), &["storage", "compression", "options"]))
    }

    fn conversion(&self, command: &'t AlterTableCmd) -> Option<Names> {
        let Node::ColumnDef(definition) = command.def() else { return None };
        let converts = command.subtype == AlterTableType::AT_AlterColumnType;
        if !converts || matches!(definition.raw_default(), Node::None) {
            return None;
        }
        let start = usize::try_from(definition.type_name()?.location).ok()?;
        let before = self.range(start, None, &["using"]);
        let using = self.tokens.iter().find(|token| token.start >= before.end)?;
        let names = self.names(&self.range(using.start + using.text.len(), None, &[]));
        (!names.is_constant()).then_some(names)
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

    fn names(&self, range: &Range<usize>) -> Names {
        let mut names = Names::default();
        let inside = |token: &&Token<'_>| range.contains(&token.start);
        let tokens: Vec<&Token<'_>> = self.tokens.iter().filter(inside).collect();
        for (index, token) in tokens.iter().enumerate() {
            let next = tokens.get(index + 1).map(|next| next.text);
            match token.kind {
                TokenKind::Word => names.word(&token.text.to_ascii_lowercase(), next),
                TokenKind::Quoted => match unquote(token.text) {
                    Some(name) => names.name(&name, next),
                    None => names.opaque = true,
                },
                TokenKind::String if names_moment(token.text) => {
                    names.is_moment = !names.asks_for_moment;
                    names.asks_for_moment = true;
                }
                TokenKind::String => {}
                TokenKind::Parameter => names.opaque = true,
                TokenKind::Other | TokenKind::Number | TokenKind::Space => {}
            }
        }
        names.operators = operators(&self.text[range.clone()]);
        names.is_moment &= names.functions.is_empty() && names.operators.is_empty();
        names
    }
}

impl Names {
    fn word(&mut self, word: &str, next: Option<&str>) {
        if VALUE_FUNCTIONS.contains(&word) && next != Some(".") {
            self.asks_for_moment = true;
            self.is_moment = false;
        } else {
            self.name(word, next);
        }
    }

    fn name(&mut self, name: &str, next: Option<&str>) {
        self.types.push(name.into());
        if next == Some("(") {
            self.functions.push(name.into());
            if builtins::is_fixed(name) {
                self.fixed.push(name.into());
            }
            if builtins::is_settled(name) {
                self.settled.push(name.into());
            }
        }
    }

    fn is_constant(&self) -> bool {
        self.functions.is_empty()
            && self.operators.is_empty()
            && !self.asks_for_moment
            && !self.opaque
    }
}

const DEFAULT: ConstrType::Type = ConstrType::CONSTR_DEFAULT;
const GENERATED: ConstrType::Type = ConstrType::CONSTR_GENERATED;
const IDENTITY: ConstrType::Type = ConstrType::CONSTR_IDENTITY;

/// A column's constraints: what sort, and where they stand.
fn constraints(definition: &ColumnDef) -> impl Iterator<Item = (ConstrType::Type, usize)> {
    definition.constraints().iter().filter_map(|node| match node {
        Node::Constraint(constraint) => {
            Some((constraint.contype, usize::try_from(constraint.location).ok()?))
        }
        _ => None,
    })
}

fn has(definition: &ColumnDef, kind: ConstrType::Type) -> bool {
    constraints(definition).any(|(other, _)| other == kind)
}

/// Where a column's constraints and its collation begin.
fn ends_of(definition: &ColumnDef) -> impl Iterator<Item = usize> {
    let collation = definition.coll_clause().and_then(|c| usize::try_from(c.location).ok());
    constraints(definition).map(|(_, at)| at).chain(collation)
}

fn table(relation: &RangeVar) -> Box<str> {
    let name = quote(relation.relname().unwrap_or_default());
    match relation.schemaname() {
        Some(schema) => format!("{}.{name}", quote(schema)).into(),
        None => name.into(),
    }
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `None` for a name with escapes.
fn unquote(quoted: &str) -> Option<String> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    Some(inner.replace("\"\"", "\""))
}

fn names_moment(string: &str) -> bool {
    let words = string.split(|c: char| !c.is_ascii_alphabetic());
    words.into_iter().any(|word| MOMENTS.iter().any(|moment| word.eq_ignore_ascii_case(moment)))
}

/// Operators other than signs of numbers.
fn operators(text: &str) -> Vec<Box<str>> {
    let is_part = |token: &Token<'_>| {
        token.kind == TokenKind::Other && "+-*/<>=~!@#%^&|`?".contains(token.text)
    };
    let mut operators: Vec<String> = Vec::new();
    let mut end = None;
    for token in tokens(text).filter(is_part) {
        match operators.last_mut().filter(|_| end == Some(token.start)) {
            Some(operator) => operator.push_str(token.text),
            None => operators.push(token.text.to_owned()),
        }
        end = Some(token.start + token.text.len());
    }
    operators.retain(|operator| operator != "-" && operator != "+");
    operators.into_iter().map(String::into_boxed_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the tests see of a text: columns with their types and sources, and conversions.
    fn seen(text: &str) -> String {
        let Some(computed) = computed(text) else { return "nothing".to_owned() };
        let mut lines = vec![computed.table.to_string()];
        for added in &computed.added {
            let source = match &added.source {
                Source::Expression(range, names) => {
                    format!("<{}> {}", &text[range.clone()], words(names))
                }
                other => format!("{other:?}"),
            };
            let other = if added.has_other_default { " other" } else { "" };
            let of_type = &text[added.of_type.clone()];
            lines.push(format!("{} {of_type}: {source}{other}", added.column));
        }
        lines.extend(computed.conversions.iter().map(|names| format!("using {}", words(names))));
        lines.join("; ").replace(" ;", ";").trim_end().to_owned()
    }

    fn words(names: &Names) -> String {
        let mut words: Vec<String> = names.functions.iter().map(|f| format!("{f}()")).collect();
        words.extend(names.operators.iter().map(ToString::to_string));
        words.extend(names.asks_for_moment.then(|| "moment".to_owned()));
        words.extend(names.opaque.then(|| "opaque".to_owned()));
        words.join(" ")
    }

    /// I2: what a replica would compute otherwise is found, at its exact place.
    #[test]
    fn what_is_computed_is_found() {
        let cases = [
            ("ALTER TABLE t ADD a int", "\"t\"; a int: Type"),
            ("ALTER TABLE t ADD a int DEFAULT 7 NOT NULL", "\"t\"; a int: Constant"),
            (
                "alter table s.\"T x\" add a varchar(3) default 'x'",
                "\"s\".\"T x\"; a varchar(3): Constant",
            ),
            (
                "ALTER TABLE t ADD a int DEFAULT -1, ADD b text DEFAULT NULL",
                "\"t\"; a int: Constant; b text: Constant",
            ),
            (
                "ALTER TABLE t ADD COLUMN at timestamp (3) with time zone DEFAULT now() NOT NULL;",
                "\"t\"; at timestamp (3) with time zone: <now()> now()",
            ),
            (
                "/* x */ ALTER TABLE t ADD at date NOT NULL DEFAULT CURRENT_DATE -- y",
                "\"t\"; at date: <CURRENT_DATE> moment",
            ),
            (
                "ALTER TABLE t ADD at timestamptz DEFAULT 'now'",
                "\"t\"; at timestamptz: <'now'> moment",
            ),
            ("ALTER TABLE t ADD w text DEFAULT 'known snow'", "\"t\"; w text: Constant"),
            (
                "ALTER TABLE t ADD at date DEFAULT (now() + interval '1 day')::date CHECK (at > '2000-01-01'), ADD c int",
                "\"t\"; at date: <(now() + interval '1 day')::date> now(); c int: Type",
            ),
            (
                "ALTER TABLE t ADD n text COLLATE \"C\" DEFAULT upper(current_user) || 'x' CONSTRAINT k UNIQUE",
                "\"t\"; n text: <upper(current_user) || 'x'> upper() || moment",
            ),
            (
                "ALTER TABLE t ADD n text DEFAULT f(1, 2) COLLATE \"C\"",
                "\"t\"; n text: <f(1, 2)> f()",
            ),
            (
                "ALTER TABLE t ADD n text DEFAULT CASE WHEN f() IS NOT NULL THEN 'a' ELSE 'b' END NULL",
                "\"t\"; n text: <CASE WHEN f() IS NOT NULL THEN 'a' ELSE 'b' END> f()",
            ),
            (
                "ALTER TABLE t ADD n text COMPRESSION pglz DEFAULT \"F g\"()",
                "\"t\"; n text: <\"F g\"()> F g()",
            ),
            (
                "ALTER TABLE t ADD a int[] DEFAULT array[1, 2], ADD b numeric(8, 2) DEFAULT random()",
                "\"t\"; a int[]: Constant; b numeric(8, 2): <random()> random()",
            ),
            ("ALTER TABLE t ADD s bigserial PRIMARY KEY", "\"t\"; s bigserial: Numbers"),
            ("ALTER TABLE t ADD i int GENERATED BY DEFAULT AS IDENTITY", "\"t\"; i int: Numbers"),
            (
                "ALTER TABLE t ADD at timestamptz DEFAULT now(), ALTER at DROP DEFAULT",
                "\"t\"; at timestamptz: <now()> now() other",
            ),
            ("ALTER TABLE t ADD n text DEFAULT U&\"f\"()", "\"t\"; n text: <U&\"f\"()> opaque"),
            (
                "ALTER TABLE t ALTER n TYPE numeric(8,2) USING random() * n, ALTER b TYPE text",
                "\"t\"; using random() *",
            ),
            ("ALTER TABLE t ALTER n SET DATA TYPE date USING 'today'::date", "\"t\"; using moment"),
        ];
        for (text, expected) in cases {
            assert_eq!(seen(text), expected, "{text}");
        }
        for nothing in [
            "ALTER TABLE t ADD g int GENERATED ALWAYS AS (a * 2) STORED",
            "ALTER TABLE t ALTER a SET DEFAULT now()",
            "ALTER TABLE t ALTER a TYPE bigint",
            "ALTER TABLE t ALTER a TYPE bigint USING a::bigint",
            "ALTER TABLE t ADD CHECK (a > 0)",
            "ALTER FOREIGN TABLE t ADD a timestamptz DEFAULT now()",
            "CREATE TABLE t (a timestamptz DEFAULT now())",
            "ALTER TABLE t ADD",
            "",
        ] {
            assert_eq!(seen(nothing), "nothing", "{nothing}");
        }
    }

    /// I2: the rows get the primary's value, later rows the default that was asked for.
    #[test]
    fn values_take_the_place_of_expressions() {
        let cases = [
            (
                "ALTER TABLE t ADD at timestamptz DEFAULT now() NOT NULL; -- x",
                vec![(0, "'2026-01-01'".to_owned(), false)],
                Some(
                    "ALTER TABLE t ADD at timestamptz DEFAULT ('2026-01-01') NOT NULL,\n\
                     ALTER COLUMN \"at\" SET DEFAULT now()",
                ),
            ),
            (
                "ALTER TABLE t ADD \"A\" date DEFAULT CURRENT_DATE, ADD b int, ADD c text DEFAULT user",
                vec![(0, "'2026-01-01'".to_owned(), true), (2, "'joe'".to_owned(), false)],
                Some(
                    "ALTER TABLE t ADD \"A\" date DEFAULT ('2026-01-01'), ADD b int, \
                     ADD c text DEFAULT ('joe'),\nALTER COLUMN \"c\" SET DEFAULT user",
                ),
            ),
            (
                "ALTER TABLE t ADD at date DEFAULT now(), ALTER at DROP DEFAULT",
                vec![(0, "NULL".to_owned(), false)],
                Some("ALTER TABLE t ADD at date DEFAULT (NULL), ALTER at DROP DEFAULT"),
            ),
            (
                "ALTER TABLE t ADD at date DEFAULT 'today'",
                vec![(0, "'2026-01-01'".to_owned(), false)],
                Some("ALTER TABLE t ADD at date DEFAULT ('2026-01-01')"),
            ),
            ("ALTER TABLE t ADD at date DEFAULT now()", vec![(0, "')".to_owned(), false)], None),
            ("ALTER TABLE t ADD at date", vec![(0, "1".to_owned(), false)], None),
        ];
        for (text, values, expected) in cases {
            let computed = computed(text).expect("computes");
            assert_eq!(with_values(text, &computed, &values).as_deref(), expected, "{text}");
        }
    }
}
