//! A small database as analysis sees it, and facts as one line of text.

use std::fmt::Write;

use hihooi_replication::items::{Columns, Granularity, Items, RelId};
use hihooi_sql::catalog_builder::{ColumnRow, FunctionRow, RelationRow, Volatility};
use hihooi_sql::named_rows::NamedRows;
use hihooi_sql::{
    Builder, Cache, Catalog, Parameter, Replica, SearchPath, SessionEffect, Statement, Values,
    analyse,
};

/// The functions of pg_catalog of PostgreSQL 15: volatility and names, one line each.
const BUILTINS: &str = include_str!("builtins_15.txt");

/// Relations: OID, schema, name, kind and persistence, `c` for code (triggers, rules), `n` for
/// numbers from a sequence.
const RELATIONS: &[(u32, &str, &str, &str, &str)] = &[
    (1, "public", "pgbench_accounts", "rp", ""),
    (2, "public", "pgbench_branches", "rp", ""),
    (3, "public", "pgbench_tellers", "rp", ""),
    (4, "public", "pgbench_history", "rp", ""),
    (10, "public", "parent", "rp", ""),
    (11, "public", "child", "rp", ""),
    (12, "public", "grandchild", "rp", ""),
    (13, "public", "note", "rp", ""),
    (20, "public", "part", "pp", ""),
    (21, "public", "part1", "pp", ""),
    (22, "public", "part1a", "rp", ""),
    (23, "public", "part2", "rp", ""),
    (30, "public", "unlog", "ru", ""),
    (31, "public", "remote", "fp", ""),
    (32, "public", "mat", "mp", ""),
    (34, "public", LONG_NAME, "ru", ""),
    (33, "public", "numbers", "Sp", ""),
    (40, "public", "v", "vp", ""),
    (41, "public", "vv", "vp", ""),
    (42, "public", "vvol", "vp", ""),
    (43, "public", "vtrig", "vp", "c"),
    (44, "public", "vouter", "vp", ""),
    (45, "public", "circle1", "vp", ""),
    (46, "public", "circle2", "vp", ""),
    (47, "public", "vlock", "vp", ""),
    (48, "public", "vsys", "vp", ""),
    (50, "public", "trig", "rp", "c"),
    (51, "public", "dflt", "rp", ""),
    (52, "public", "ser", "rp", ""),
    (53, "public", "rls", "rp", ""),
    (54, "public", "Tablé", "rp", ""),
    (55, "public", "uu", "rp", ""),
    (56, "public", "rlsvol", "rp", ""),
    (57, "public", "r", "rp", ""),
    (58, "public", "s", "rp", ""),
    (59, "public", "checked", "rp", ""),
    (60, "s1", "t", "rp", ""),
    (61, "s2", "t", "rp", ""),
    (62, "s2", "only2", "rp", ""),
    (80, "hihooi", "state", "rp", ""),
    (90, "public", "items", "rp", ""),
    (91, "public", "orders", "rp", ""),
    (92, "public", "toparent", "rp", ""),
    (93, "public", "pmix", "pp", ""),
    (94, "public", "pmix_remote", "fp", ""),
    (95, "public", "coded", "rp", ""),
    (96, "public", "collated", "rp", ""),
    (97, "public", "floats", "rp", ""),
    (98, "public", "named", "rp", ""),
    (99, "public", "made", "rp", ""),
    (1259, "pg_catalog", "pg_class", "rp", ""),
    (12222, "pg_catalog", "pg_stat_activity", "vp", ""),
    (13425, "information_schema", "tables", "vp", ""),
];

/// As long as names can be.
const LONG_NAME: &str = "a_name_of_sixty_three_bytes_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

const INT4: u32 = 23;
const INT8: u32 = 20;
const TEXT: u32 = 25;
const VARCHAR: u32 = 1043;
const UUID: u32 = 2950;
const NUMERIC: u32 = 1700;
const FLOAT8: u32 = 701;
const DATE: u32 = 1082;

/// Names and types.
type NamesAndTypes = &'static [(&'static str, u32)];

/// Columns of relations, by name and type; `!` for a modifier, `g` for generated, `~` for a collation that isn't
/// deterministic. Then the numbers of the key's columns.
const COLUMNS: &[(u32, NamesAndTypes, &[u16])] = &[
    (57, &[("a1", INT4), ("a2", INT4), ("a3", INT4), ("a4", INT4)], &[1]),
    (58, &[("b1", INT4), ("b2", INT4), ("b3", INT4), ("b4", INT4), ("b5", INT4)], &[1]),
    (20, &[("k", INT8), ("v", TEXT)], &[]),
    (21, &[("k", INT8), ("v", TEXT)], &[]),
    (22, &[("k", INT8), ("v", TEXT)], &[1]),
    (23, &[("v", TEXT), ("x", TEXT), ("k", INT8)], &[3]),
    (53, &[("id", INT4), ("tenant", INT4)], &[1]),
    (90, &[("w", INT4), ("d", INT4), ("id", INT8), ("n", INT4), ("g g", INT4)], &[2, 1, 3]),
    (91, &[("o", UUID), ("name", TEXT), ("code!", VARCHAR), ("f", FLOAT8), ("on", DATE)], &[1]),
    (95, &[("code!", VARCHAR), ("n", INT4)], &[1]),
    (96, &[("name~", TEXT), ("n", INT4)], &[1]),
    (97, &[("f", FLOAT8), ("n", INT4)], &[1]),
    (98, &[("name", TEXT), ("n", NUMERIC)], &[1, 2]),
    (99, &[("a", INT4), ("g g", INT4)], &[2]),
];

/// Code that belongs to relations: `v` view, `p` policies, `e` expressions.
const CODE: &[(u32, char, &str)] = &[
    (40, 'v', " SELECT a.aid, a.abalance FROM public.pgbench_accounts a;"),
    (41, 'v', " SELECT v.aid, b.bid FROM (public.v JOIN public.pgbench_branches b ON (true));"),
    (42, 'v', " SELECT v.aid, public.vol() AS vol FROM public.v;"),
    (43, 'v', " SELECT parent.id FROM public.parent;"),
    (44, 'v', " SELECT vtrig.id FROM public.vtrig;"),
    (45, 'v', " SELECT circle2.id FROM public.circle2;"),
    (46, 'v', " SELECT circle1.id FROM public.circle1;"),
    (47, 'v', " SELECT parent.id FROM public.parent FOR UPDATE;"),
    (48, 'v', " SELECT pg_class.relname FROM pg_class;"),
    (51, 'e', "public.vol(), now()"),
    (52, 'e', "nextval('public.ser_id_seq'::regclass)"),
    (53, 'p', "(tenant IN ( SELECT parent.v FROM public.parent))"),
    (55, 'e', "public.uuid_generate_v4()"),
    (56, 'p', "(public.vol() > 0)"),
];

/// Functions: schema, name, volatility, language, takes a row, body.
const FUNCTIONS: &[(&str, &str, &str, &str, bool, &str)] = &[
    ("public", "stab", "s", "sql", false, "SELECT count(*) FROM parent"),
    ("public", "vol", "v", "plpgsql", false, "BEGIN INSERT INTO parent VALUES (1); END"),
    ("public", "sly", "s", "plpgsql", false, "BEGIN PERFORM slier(); END"),
    ("public", "slier", "s", "plpgsql", false, "BEGIN RETURN (SELECT aid FROM vvol); END"),
    ("public", "counts", "s", "sql", false, "SELECT count(*) FROM mat"),
    (
        "public",
        "dynamic",
        "s",
        "plpgsql",
        false,
        "BEGIN EXECUTE 'SELECT ' || q INTO r; RETURN r; END",
    ),
    ("public", "imm", "i", "sql", false, "SELECT $1 + 1"),
    ("public", "cimm", "i", "c", false, ""),
    ("public", "cvol", "v", "c", false, ""),
    ("public", "uuid_generate_v4", "v", "c", false, ""),
    ("public", "setter", "v", "plpgsql", false, "BEGIN -- now\n SET search_path = x; END"),
    ("public", "rowf", "s", "sql", true, "SELECT $1.v"),
    ("app", "initcap", "v", "sql", false, "SELECT 'shadow'"),
    ("app", "only_here", "s", "sql", false, "SELECT 1"),
    ("public", "volagg", "v", "sql", false, "sfunc"),
    ("public", "viaop", "s", "sql", false, "SELECT $1###$2"),
    ("public", "viapolicy", "s", "sql", false, "SELECT count(*) FROM rlsvol"),
    ("public", "pyt", "i", "plpython3u", false, "return 1"),
    ("public", "tocomp", "i", "sql", false, "SELECT stab()"),
    ("public", "Q f", "s", "sql", false, "SELECT vol()"),
    ("public", "viaquoted", "s", "sql", false, "SELECT \"Q f\"()"),
    ("public", "posfn", "i", "c", false, ""),
    ("public", "mixed", "s", "sql", false, "SELECT count(*) FROM pmix"),
    ("public", "port", "s", "sql", false, "SELECT current_setting('port')"),
    ("public", "setting", "s", "sql", false, "SELECT current_setting($1)"),
    ("public", "tenant_of", "s", "sql", false, "SELECT current_setting('app.tenant', true)"),
    ("public", "crosstab", "s", "c", false, ""),
    ("public", "similarity_op", "s", "c", false, ""),
    ("public", "perl", "i", "plperl", false, "return $_[0] + 1"),
    ("public", "perlask", "s", "plperl", false, "return spi_exec_query($_[0])"),
    ("public", "java", "i", "java", false, "a.B.c"),
    ("public", "ntab", "s", "sql", false, "SELECT count(*) FROM tables; information_schema"),
    ("public", "xage", "s", "sql", false, "SELECT age(x) FROM parent; NULL::xid"),
    ("public", "tage", "s", "sql", false, "SELECT age(at) FROM parent"),
    ("public", "viabuiltin", "s", "sql", false, "SELECT @?@ 'port'"),
    (
        "public",
        "longer",
        "s",
        "sql",
        false,
        "SELECT count(*) FROM a_name_of_sixty_three_bytes_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_cut",
    ),
    ("public", "1", "s", "sql", false, "SELECT vol()"),
    ("public", "viadigit", "s", "sql", false, "SELECT \"1\"()"),
    ("public", "viaescape", "s", "sql", false, "SELECT U&\"\\0076ol\"()"),
];

pub fn builder() -> Builder {
    let mut builder = Catalog::builder();
    for line in BUILTINS.lines() {
        let (volatility, names) = line.split_once(' ').expect("volatility and names");
        for name in names.split(' ') {
            builder.builtin(name, Volatility::from_char(volatility));
        }
    }
    for &(id, schema, name, kind, flags) in RELATIONS {
        let (kind, persistence) = kind.split_at(1);
        let (code, has_rules) = (if flags.contains('c') { "vol" } else { "" }, false);
        let id = RelId(id);
        let row = RelationRow { id, schema, name, kind, persistence, code, has_rules };
        builder.relation(row);
    }
    for &(id, columns, key) in COLUMNS {
        for (number, &(name, oid)) in (1..).zip(columns) {
            builder.column(ColumnRow {
                relation: RelId(id),
                number,
                name: name.trim_end_matches(['!', '~']).trim_end_matches(" g"),
                type_oid: oid,
                base_oid: oid,
                is_exact: !name.ends_with('!'),
                is_deterministic: !name.ends_with('~'),
                is_generated: name == "g g",
            });
        }
        builder.key(RelId(id), key.iter().copied());
    }
    for &(id, kind, text) in CODE {
        match kind {
            'v' => builder.view(RelId(id), text),
            'p' => builder.policies(RelId(id), text),
            _ => builder.expressions(RelId(id), text),
        }
    }
    for &(schema, name, volatility, language, takes_row, body) in FUNCTIONS {
        let volatility = Volatility::from_char(volatility);
        builder.function(FunctionRow {
            schema,
            name,
            volatility,
            language,
            takes_row,
            returns: "integer",
            body,
            types: if name == "posfn" { "posint" } else { "" },
        });
    }
    builder.checks(RelId(59), "(VALUE > public.stab())");
    for (child, parent) in [(21, 20), (22, 21), (23, 20), (94, 93)] {
        builder.inherits(RelId(child), RelId(parent));
    }
    for (from, to, on_delete, on_update) in
        [(11, 10, "c", "a"), (12, 11, "n", "c"), (13, 10, "a", "a"), (92, 10, "r", "a")]
    {
        builder.foreign_key(RelId(from), RelId(to), on_delete, on_update);
    }
    builder.operator("###", "vol", false);
    builder.operator("@@@", "cimm", false);
    builder.operator("@?@", "current_setting", true);
    builder.operator("@!@", "set_config", true);
    builder.operator("@+@", "int4pl", true);
    builder.cast(false, "comp", "tocomp", false);
    builder.domain("posint", "(VALUE > public.stab())");
    builder
}

pub fn catalog() -> Catalog {
    builder().build(1)
}

pub fn public() -> SearchPath {
    SearchPath::new(["public"])
}

/// The values of a text without parameters.
struct Text<'a>(&'a str);

impl Values for Text<'_> {
    fn constant(&self, place: u16) -> Option<&[u8]> {
        let constants = hihooi_sql::constants(self.0.as_bytes());
        Some(self.0[constants.get(usize::from(place))?.clone()].as_bytes())
    }

    fn parameter(&self, _: u16) -> Option<Parameter<'_>> {
        None
    }
}

/// Checks that a text has the same rows when its template was analysed with it.
pub fn check_cached(text: &str, catalog: &Catalog, path: Option<&SearchPath>) {
    same_rows(text, &mut Cache::default(), catalog, path);
}

/// Checks that a text has the same rows whether its template is known or not.
pub fn same_rows(text: &str, cache: &mut Cache, catalog: &Catalog, path: Option<&SearchPath>) {
    let (cached, fresh) = (cache.get(text, catalog, path), analyse(text, catalog, path));
    let values = Text(text);
    for (cached, fresh) in cached.statements.iter().zip(&fresh.statements) {
        let each = [
            (cached.reads_with(&values), fresh.reads_with(&values)),
            (cached.writes_with(&values), fresh.writes_with(&values)),
        ];
        for (cached, fresh) in each {
            // A sign that may belong to another number is no slot.
            let gives_up = text.contains("- -") && cached == fresh.clone().at(Granularity::Column);
            assert!(cached == fresh || gives_up, "{text}: {cached:?} {fresh:?}");
        }
    }
}

/// A statement's facts in one line. Tables stand as `schema.name`, without `public`.
pub fn render(statement: &Statement, text: &str, catalog: &Catalog) -> String {
    let mut line = format!("{:?}", statement.kind);
    let Statement { reads, read_rows, writes, written_rows, .. } = statement;
    let reads = items(reads, read_rows, catalog);
    let _ = write!(line, " reads={reads} writes={}", items(writes, written_rows, catalog));
    match statement.replica {
        Replica::Safe => line.push_str(" safe"),
        Replica::Unsafe(reason) => {
            let _ = write!(line, " unsafe({reason})");
        }
    }
    if statement.session != SessionEffect::default() {
        let _ = write!(line, " session={}", session(&statement.session));
    }
    if statement.row_locks {
        line.push_str(" row_locks");
    }
    if statement.may_commit_inside {
        line.push_str(" may_commit_inside");
    }
    if statement.range != (0..text.len()) {
        let _ = write!(line, " text={:?}", &text[statement.range.clone()]);
    }
    line
}

/// Tables with columns and rows, where these are known: `t(1,2)[1,$1]`.
pub fn items(items: &Items, named: &[NamedRows], catalog: &Catalog) -> String {
    match items {
        Items::Nothing => "-".into(),
        Items::Everything => "*".into(),
        Items::Tables(items) => {
            let names = items.iter().map(|item| {
                let relation = catalog.relation(item.table).expect("a table of the catalog");
                let mut name = match &*relation.schema {
                    "public" => relation.name.to_string(),
                    schema => format!("{schema}.{}", relation.name),
                };
                if let Columns::In(columns) = &item.columns {
                    let numbers: Vec<_> =
                        columns.iter().map(|column| column.0.to_string()).collect();
                    let _ = write!(name, "({})", numbers.join(","));
                }
                if let Some(rows) = named.iter().find(|rows| rows.table == item.table) {
                    let _ = write!(name, "{rows}");
                }
                name
            });
            names.collect::<Vec<_>>().join(",")
        }
    }
}

fn session(effect: &SessionEffect) -> String {
    if effect.any_setting && effect.unseen_code {
        let load = if effect.load { "+load" } else { "" };
        assert_eq!(SessionEffect { load: false, ..effect.clone() }, SessionEffect::anything());
        return format!("anything{load}");
    }
    let flags = [
        (effect.settings, "settings"),
        (effect.local_settings, "local_settings"),
        (effect.search_path, "search_path"),
        (effect.temp, "temp"),
        (effect.prepared, "prepared"),
        (effect.listen, "listen"),
        (effect.advisory, "advisory"),
        (effect.cursor_hold, "cursor_hold"),
        (effect.discard_all, "discard_all"),
        (effect.role, "role"),
        (effect.load, "load"),
        (effect.any_setting, "any_setting"),
        (effect.unseen_code, "unseen_code"),
    ];
    let mut words: Vec<&str> = flags.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    words.extend(effect.custom_settings.iter().chain(&effect.executed).map(|name| &**name));
    words.join("+")
}
