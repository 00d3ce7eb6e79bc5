//! The queries that fill a [`Builder`] from PostgreSQL 14 to 18, each with the function that takes its rows. A
//! loader runs them as a superuser, in one REPEATABLE READ transaction with an empty `search_path`
//! ([`SETTINGS`]), so that every name outside `pg_catalog` is returned qualified. It passes each row as text.
//!
//! The queries are the same for all versions. They use `pg_get_function_sqlbody`, which exists since version
//! 14, and they pass on values of `prokind`, `attidentity` and `attgenerated` that later versions add.

use hihooi_replication::items::RelId;
use thiserror::Error;

use crate::catalog_builder::{Builder, ColumnRow, FunctionRow, RelationRow, Volatility};

/// What must be set in the session that asks the questions.
pub const SETTINGS: [(&str, &str); 4] =
    [("search_path", ""), ("jit", "off"), (UNPRINTABLE, "{}"), (PRIMARY_ONLY, "{}")];

/// The setting that holds the objects whose definitions are not to be printed, since PostgreSQL would wait for a lock
/// on a relation that they refer to, or fail: an array of OIDs. What such code does counts as unknown.
pub const UNPRINTABLE: &str = "hihooi.unprintable";

/// The setting that holds the objects that replicas don't have: an array of OIDs. Of views, functions and policies it shows
/// whether a query needs them; while there are other such objects (types, operators, casts …), any query may.
pub const PRIMARY_ONLY: &str = "hihooi.primary_only";

/// Returns the OIDs of the relations on which other sessions have ACCESS EXCLUSIVE locks, or wait for them, and what has code that
/// refers to them: relations with rules (views) and policies, and functions.
pub const READ_LOCKED: &str = "\
WITH locked(relation) AS MATERIALIZED (
    SELECT relation FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'AccessExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
), dependent(class, object) AS (
    SELECT d.classid, d.objid FROM locked l JOIN pg_depend d ON d.refobjid = l.relation AND d.refclassid = 'pg_class'::regclass
), objects(object) AS (
    SELECT relation FROM locked
  UNION
    SELECT r.ev_class FROM dependent d JOIN pg_rewrite r ON r.oid = d.object AND d.class = 'pg_rewrite'::regclass
  UNION
    SELECT p.polrelid FROM dependent d JOIN pg_policy p ON p.oid = d.object AND d.class = 'pg_policy'::regclass
  UNION
    SELECT d.object FROM dependent d WHERE d.class = 'pg_proc'::regclass
)
SELECT object::text FROM objects";

/// Returns the OIDs of what has code that refers to something that is no more: relations with rules (views), policies, defaults,
/// constraints and indexes, functions, and domains. PostgreSQL lets a transaction drop what another one has come to use meanwhile, unless that
/// is a relation, and can't print such code (XX000).
pub const READ_BROKEN: &str = "\
WITH gone(class, object) AS MATERIALIZED (
    SELECT refclassid, refobjid FROM (SELECT DISTINCT refclassid, refobjid FROM pg_depend) d
    WHERE pg_describe_object(refclassid, refobjid, 0) IS NULL
), dependent(class, object) AS (
    SELECT d.classid, d.objid FROM gone g JOIN pg_depend d ON d.refobjid = g.object AND d.refclassid = g.class
), objects(object) AS (
    SELECT r.ev_class FROM dependent d JOIN pg_rewrite r ON r.oid = d.object AND d.class = 'pg_rewrite'::regclass
  UNION
    SELECT p.polrelid FROM dependent d JOIN pg_policy p ON p.oid = d.object AND d.class = 'pg_policy'::regclass
  UNION
    SELECT a.adrelid FROM dependent d JOIN pg_attrdef a ON a.oid = d.object AND d.class = 'pg_attrdef'::regclass
  UNION
    SELECT CASE k.conrelid WHEN 0 THEN k.contypid ELSE k.conrelid END FROM dependent d JOIN pg_constraint k ON k.oid = d.object AND d.class = 'pg_constraint'::regclass
  UNION
    SELECT i.indrelid FROM dependent d JOIN pg_index i ON i.indexrelid = d.object AND d.class = 'pg_class'::regclass
  UNION
    SELECT d.object FROM dependent d WHERE d.class IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_type'::regclass)
)
SELECT object::text FROM objects";

/// Prints a definition of an object, unless that is [`UNPRINTABLE`]: then a call that may do anything, with or without SELECT in
/// front of it.
macro_rules! if_printable {
    ($object:literal, $print:literal) => {
        if_printable!($object, $print, "")
    };
    ($object:literal, $print:literal, $select:literal) => {
        concat!(
            "CASE WHEN ",
            $object,
            " = ANY ((SELECT current_setting('hihooi.unprintable')::oid[])::oid[]) THEN '",
            $select,
            "pg_catalog.set_config(NULL, NULL, NULL)' ELSE ",
            $print,
            " END"
        )
    };
}

/// What is added to the definition of an object that replicas don't have: a call whose answer is the server's own.
macro_rules! primary_only {
    ($object:literal) => {
        concat!(
            "CASE WHEN ",
            $object,
            " = ANY ((SELECT current_setting('hihooi.primary_only')::oid[])::oid[]) \
             THEN 'pg_catalog.pg_backend_pid()' END"
        )
    };
}

/// A row of a catalog query: the columns as text, `None` for NULL.
pub type Row<'a> = [Option<&'a str>];

/// A question to PostgreSQL and what takes its answer.
pub struct CatalogQuery {
    /// What it is about, for messages.
    pub name: &'static str,
    /// The question. All its columns are text.
    pub sql: &'static str,
    /// Its columns in order.
    pub columns: &'static [&'static str],
    /// Takes one row.
    pub read: fn(&mut Builder, &Row<'_>) -> Result<(), BadRow>,
}

/// A row that isn't as the question promised. The catalog would be wrong: don't use it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("column {column} of a catalog query is missing or not readable")]
pub struct BadRow {
    /// Which column, from 0.
    pub column: usize,
}

/// The functions of `pg_catalog` by name, with the worst volatility of their overloads: thousands, which
/// need not be read again while [`BUILTINS_STATE`] answers the same.
pub const BUILTINS: CatalogQuery = CatalogQuery {
    name: "built-in functions",
    sql: "\
SELECT p.proname::text,
       CASE WHEN bool_or(p.provolatile = 'v') THEN 'v'
            WHEN bool_or(p.provolatile = 's') THEN 's' ELSE 'i' END
FROM pg_proc p
WHERE p.pronamespace = 'pg_catalog'::regnamespace
GROUP BY p.proname",
    columns: &["name", "volatility"],
    read: builtin,
};

/// A text that changes whenever a function of `pg_catalog` does: how many rows there are of each
/// transaction that wrote some. A later change is a later transaction's, and takes a row from an earlier.
pub const BUILTINS_STATE: &str = "\
SELECT string_agg(x.xmin::text || ' ' || x.count, ',' ORDER BY x.xmin::text)
FROM (SELECT xmin, count(*) FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace GROUP BY xmin) x";

/// All other questions. The order doesn't matter.
pub const QUERIES: &[CatalogQuery] = &[
    CatalogQuery {
        name: "relations",
        sql: RELATIONS,
        columns: &["oid", "schema", "name", "kind", "persistence", "code", "has_rules"],
        read: relation,
    },
    CatalogQuery {
        name: "columns",
        sql: COLUMNS,
        columns: &[
            "relation",
            "number",
            "name",
            "type",
            "base",
            "exact",
            "deterministic",
            "generated",
        ],
        read: column,
    },
    CatalogQuery { name: "keys", sql: KEYS, columns: &["relation", "columns"], read: key },
    CatalogQuery {
        name: "comparisons",
        sql: COMPARISONS,
        columns: &["operator"],
        read: comparison,
    },
    CatalogQuery { name: "views", sql: VIEWS, columns: &["oid", "query"], read: view },
    CatalogQuery {
        name: "inheritance",
        sql: INHERITANCE,
        columns: &["child", "parent"],
        read: inheritance,
    },
    CatalogQuery {
        name: "foreign keys",
        sql: FOREIGN_KEYS,
        columns: &["referencing", "referenced", "on_delete", "on_update"],
        read: foreign_key,
    },
    CatalogQuery {
        name: "policies",
        sql: POLICIES,
        columns: &["relation", "expressions"],
        read: policies,
    },
    CatalogQuery {
        name: "expressions",
        sql: EXPRESSIONS,
        columns: &["relation", "expressions"],
        read: expressions,
    },
    CatalogQuery {
        name: "checks of domains",
        sql: CHECKS,
        columns: &["relation", "expressions"],
        read: checks,
    },
    CatalogQuery { name: "domains", sql: DOMAINS, columns: &["type", "expressions"], read: domain },
    CatalogQuery {
        name: "functions",
        sql: FUNCTIONS,
        columns: &[
            "schema",
            "name",
            "volatility",
            "language",
            "takes_row",
            "returns",
            "body",
            "types",
        ],
        read: function,
    },
    CatalogQuery {
        name: "operators",
        sql: OPERATORS,
        columns: &["name", "function", "is_builtin"],
        read: operator,
    },
    CatalogQuery {
        name: "casts",
        sql: CASTS,
        columns: &["implicit", "type", "function", "is_builtin"],
        read: cast,
    },
];

/// Relations of all schemas, without those in temporary schemas. Triggers count unless they are
/// internal (those of constraints, but not what version 14 makes of a parent's for a partition) or disabled; rules unless they are a view's own. Of both only what runs.
pub const RELATIONS: &str = concat!(
    "\
SELECT c.oid::text, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text,
       concat_ws('; ',
           (SELECT string_agg(coalesce(substring(pg_get_triggerdef(t.oid) FROM ' FOR EACH .*'), '?'), '; ')
            FROM pg_trigger t
            WHERE t.tgrelid = c.oid AND t.tgenabled <> 'D' AND (NOT t.tgisinternal OR t.tgparentid <> 0)
              AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.oid = t.tgconstraint
                              AND k.contype IN ('f', 'p', 'u', 'x'))),
           (SELECT string_agg(coalesce(",
    if_printable!("c.oid", "substring(pg_get_ruledef(r.oid) FROM ' DO .*')"),
    ", '?'), '; ')
            FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.rulename <> '_RETURN')),
       EXISTS (SELECT FROM pg_rewrite r
               WHERE r.ev_class = c.oid AND r.rulename <> '_RETURN')::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND c.relpersistence <> 't'"
);

/// Columns of users' tables. A domain's modifier is on its type.
pub const COLUMNS: &str = "\
WITH RECURSIVE bases(domain, base, modifier) AS (
    SELECT oid, typbasetype, typtypmod FROM pg_type WHERE typtype = 'd'
  UNION ALL
    SELECT b.domain, t.typbasetype, CASE WHEN b.modifier = -1 THEN t.typtypmod ELSE b.modifier END
    FROM bases b JOIN pg_type t ON t.oid = b.base WHERE t.typtype = 'd'
), base(domain, base, modifier) AS (
    SELECT b.* FROM bases b JOIN pg_type t ON t.oid = b.base WHERE t.typtype <> 'd'
)
SELECT a.attrelid::text, a.attnum::text, a.attname::text, a.atttypid::text,
       coalesce(b.base, a.atttypid)::text,
       (a.atttypmod = -1 AND coalesce(b.modifier, -1) = -1)::text,
       coalesce(l.collisdeterministic, true)::text, (a.attgenerated <> '')::text
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN base b ON b.domain = a.atttypid
LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't' AND a.attnum > 0 AND NOT a.attisdropped
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'hihooi')
  AND n.nspname NOT LIKE 'pg\\_toast%'";

/// The columns of tables' replica identities, in the order of their indexes.
pub const KEYS: &str = "\
SELECT c.oid::text, (SELECT string_agg(k.attnum::text, ' ' ORDER BY k.place)
                     FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
                     WHERE k.place <= i.indnkeyatts)
FROM pg_class c
JOIN pg_index i ON i.indrelid = c.oid
     AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL AND c.oid >= 16384";

/// Users' operators that may be meant where a value of a built-in type, or of a domain, is compared.
pub const COMPARISONS: &str = "\
SELECT o.oid::text
FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE o.oid >= 16384 AND o.oprname IN ('=', '<', '<=', '>', '>=')
  AND (n.nspname <> 'pg_catalog' OR o.oprnamespace <> n.oid)
  AND EXISTS (SELECT FROM pg_type t WHERE t.oid IN (o.oprleft, o.oprright)
              AND (t.oid < 16384 OR t.typtype = 'd'))";

/// The queries of users' views.
pub const VIEWS: &str = concat!(
    "\
SELECT c.oid::text, coalesce('SELECT ' || ",
    primary_only!("c.oid"),
    " || ' FROM (' || rtrim(d.text, ';') || ') view', d.text)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL (SELECT ",
    if_printable!("c.oid", "pg_get_viewdef(c.oid)", "SELECT "),
    ") d(text)
WHERE c.relkind = 'v' AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'hihooi')"
);

/// Inheritance and partitions, direct ones. Partitioned indexes inherit too; their OIDs meet no
/// relation of ours.
pub const INHERITANCE: &str = "SELECT inhrelid::text, inhparent::text FROM pg_inherits";

/// Foreign keys, also those that partitions have of their parents.
pub const FOREIGN_KEYS: &str = "\
SELECT conrelid::text, confrelid::text, confdeltype::text, confupdtype::text
FROM pg_constraint WHERE contype = 'f'";

/// Row security policies of tables where row security is on.
pub const POLICIES: &str = concat!(
    "\
SELECT p.polrelid::text, concat_ws(', ', ",
    if_printable!(
        "p.polrelid",
        "concat_ws(', ', pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))"
    ),
    ", ",
    primary_only!("p.oid"),
    ")
FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
WHERE c.relrowsecurity AND (p.polqual IS NOT NULL OR p.polwithcheck IS NOT NULL)"
);

/// What runs when a table is written: defaults and generation expressions, checks, expressions
/// and predicates of indexes, partition keys.
pub const EXPRESSIONS: &str = concat!(
    "\
WITH expressions(relation, expression) AS (
    SELECT adrelid, ",
    if_printable!("adrelid", "pg_get_expr(adbin, adrelid)"),
    " FROM pg_attrdef
  UNION
    SELECT a.attrelid, ",
    if_printable!("t.oid", "pg_get_expr(t.typdefaultbin, 0)"),
    "
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE t.typtype = 'd' AND t.typdefaultbin IS NOT NULL AND NOT a.attisdropped
  UNION
    SELECT conrelid, ",
    if_printable!("conrelid", "pg_get_expr(conbin, conrelid)"),
    " FROM pg_constraint
    WHERE contype = 'c' AND conrelid <> 0
  UNION
    SELECT indrelid, ",
    if_printable!("indrelid", "pg_get_expr(indexprs, indrelid)"),
    " FROM pg_index WHERE indexprs IS NOT NULL
  UNION
    SELECT indrelid, ",
    if_printable!("indrelid", "pg_get_expr(indpred, indrelid)"),
    " FROM pg_index WHERE indpred IS NOT NULL
  UNION
    SELECT partrelid, ",
    if_printable!("partrelid", "pg_get_expr(partexprs, partrelid)"),
    " FROM pg_partitioned_table
    WHERE partexprs IS NOT NULL
)
-- (NULL: the table is gone by now.)
SELECT e.relation::text, coalesce(string_agg(e.expression, ', '), '')
FROM expressions e JOIN pg_class c ON c.oid = e.relation
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't' AND c.relnamespace NOT IN
      (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema'))
GROUP BY e.relation"
);

/// The beginning of a query: which checks belong to a type (`told`), and which types contain such types (`contains`).
macro_rules! checks_of_types {
    () => {
        concat!(
            "\
WITH RECURSIVE named(typ) AS (
    SELECT oid FROM pg_type WHERE oid < 16384 AND typname ~ '^_?(reg|xid$)' AND typname !~ '^_?reg(config|dictionary)$'
), parts(part, whole) AS MATERIALIZED (
    SELECT typbasetype, oid FROM pg_type WHERE typbasetype <> 0
    UNION ALL SELECT typelem, oid FROM pg_type WHERE typelem >= 16384
    UNION ALL SELECT a.atttypid, t.oid FROM pg_attribute a JOIN pg_type t ON t.typrelid = a.attrelid
              WHERE t.oid >= 16384 AND a.attnum > 0 AND NOT a.attisdropped
                AND (a.atttypid >= 16384 OR a.atttypid IN (SELECT typ FROM named))
    UNION ALL SELECT rngsubtype, rngtypid FROM pg_range WHERE rngsubtype >= 16384
    UNION ALL SELECT rngsubtype, rngmultitypid FROM pg_range WHERE rngsubtype >= 16384
), told(typ, expression) AS (
    SELECT contypid, ",
            if_printable!("contypid", "pg_get_expr(conbin, 0)"),
            " FROM pg_constraint WHERE contype = 'c' AND contypid >= 16384
    UNION ALL SELECT typ, 'NULL::pg_catalog.regclass' FROM named
), contains(container, typ) AS (
    SELECT typ, typ FROM told
  UNION
    SELECT p.whole, c.typ FROM contains c JOIN parts p ON p.part = c.container"
        )
    };
}

/// Checks of the domains that a table's columns contain. They run when it is written, and where a value is turned
/// into the type of a column that is read (`coalesce(c, 'x')`).
///
/// Where a column contains a type whose values name objects (`regclass`), there is a mention of such a type: what the values
/// are, in binary or as `oid`, depends on the server. So does the age of an `xid`.
///
/// Types below 16384 are PostgreSQL's own and contain no user's domain.
pub const CHECKS: &str = concat!(
    checks_of_types!(),
    "
), checked(relation, expression) AS (
    SELECT DISTINCT a.attrelid, k.expression
    FROM contains c
    JOIN told k ON k.typ = c.typ
    JOIN pg_attribute a ON a.atttypid = c.container AND a.attnum > 0 AND NOT a.attisdropped
)
SELECT k.relation::text, coalesce(string_agg(k.expression, ', '), '')
FROM checked k JOIN pg_class c ON c.oid = k.relation
WHERE c.relkind IN ('r', 'p', 'm', 'f') AND c.relpersistence <> 't' AND c.relnamespace NOT IN
      (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema'))
GROUP BY k.relation"
);

/// Checks of domains, for each type that is or contains such a domain; or a mention of `regclass`, as for [`CHECKS`].
pub const DOMAINS: &str = concat!(
    checks_of_types!(),
    "
)
SELECT t.typname::text, string_agg(DISTINCT k.expression, ', ')
FROM contains c
JOIN told k ON k.typ = c.typ
JOIN pg_type t ON t.oid = c.container
JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')
GROUP BY t.typname"
);

/// Users' functions, procedures, aggregates and window functions; those of extensions and of
/// information_schema too, since they are called by name like any other. An aggregate is as
/// volatile as its worst support function (its own row always says immutable), and its body is
/// their names. The defaults of arguments are a part of a body: a call runs those that it leaves out.
/// So does information_schema in its search path. The types of users are those of arguments and results.
pub const FUNCTIONS: &str = concat!(
    "\
SELECT n.nspname::text, p.proname::text,
       CASE WHEN a.aggfnoid IS NULL THEN p.provolatile::text ELSE s.volatility END,
       CASE WHEN a.aggfnoid IS NULL THEN l.lanname::text
            WHEN s.compiled THEN 'internal' ELSE 'sql' END,
       (p.prokind = 'f' AND p.pronargs >= 1 AND p.pronargs - p.pronargdefaults <= 1
        AND EXISTS (SELECT FROM pg_type t WHERE t.oid = p.proargtypes[0]
                    AND (t.typtype NOT IN ('b', 'e', 'r', 'm') OR p.provariadic <> 0)))::text,
       p.prorettype::regtype::text,
       concat_ws('; ', ",
    if_printable!(
        "p.oid",
        "concat_ws('; ', CASE WHEN a.aggfnoid IS NOT NULL THEN s.names
                              WHEN l.lanname NOT IN ('c', 'internal') THEN coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) END,
                   pg_get_expr(p.proargdefaults, 0))"
    ),
    ", 'SELECT ' || ",
    primary_only!("p.oid"),
    ",
                       CASE WHEN p.proconfig::text ~* 'information_schema' THEN 'information_schema' END,
                       (SELECT string_agg('NULL::' || t.typname, '; ') FROM pg_type t
                        WHERE t.oid = ANY (p.proargtypes) AND t.oid < 16384 AND t.typname ~ '^_?(reg|xid$)' AND t.typname !~ '^_?reg(config|dictionary)$'
                          AND l.lanname NOT IN ('c', 'internal'))),
       (SELECT string_agg(t.typname, E'\\n') FROM pg_type t WHERE t.oid >= 16384
        AND t.oid = ANY (p.proargtypes::oid[] || p.proallargtypes || p.prorettype))
FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN pg_language l ON l.oid = p.prolang
LEFT JOIN pg_aggregate a ON a.aggfnoid = p.oid
LEFT JOIN LATERAL (
    SELECT CASE WHEN bool_or(f.provolatile = 'v') THEN 'v'
                WHEN bool_or(f.provolatile = 's') THEN 's' ELSE 'i' END AS volatility,
           bool_and(fl.lanname IN ('c', 'internal')) AS compiled,
           string_agg(f.proname, ' ') AS names
    FROM pg_proc f JOIN pg_language fl ON fl.oid = f.prolang
    WHERE f.oid IN (a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn,
                    a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn)) s ON true
WHERE n.nspname NOT IN ('pg_catalog', 'hihooi') AND n.nspname NOT LIKE 'pg\\_temp\\_%'"
);

/// Users' operators, and whether their function is one of `pg_catalog`.
pub const OPERATORS: &str = "\
SELECT o.oprname::text, p.proname::text, (p.pronamespace = 'pg_catalog'::regnamespace)::text
FROM pg_operator o
JOIN pg_proc p ON p.oid = o.oprcode
WHERE o.oid >= 16384";

/// Functions that PostgreSQL calls where a text doesn't show them: of users' casts, for their target type and all types that
/// contain it, and of operator classes and ranges that they define, for no type; and one that stands for objects that replicas
/// don't have ([`PRIMARY_ONLY`]). The first column is whether that needs no cast in the text: PostgreSQL applies it in
/// assignments or everywhere, or within functions of its own (those that make JSON apply casts to `json`, and `||` and
/// `quote_literal` such to `text`), or it compares values. The last one is whether the function is one of `pg_catalog`.
/// (Indexes and sorting call functions in C, too, whose volatility extensions tend not to declare.)
pub const CASTS: &str = "\
WITH RECURSIVE parts(part, whole) AS MATERIALIZED (
    SELECT typbasetype, oid FROM pg_type WHERE typbasetype <> 0
    UNION ALL SELECT typelem, oid FROM pg_type WHERE typelem <> 0
    UNION ALL SELECT a.atttypid, t.oid FROM pg_attribute a JOIN pg_type t ON t.typrelid = a.attrelid
              WHERE t.oid >= 16384 AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT rngsubtype, rngtypid FROM pg_range
    UNION ALL SELECT rngsubtype, rngmultitypid FROM pg_range
), casts(implicit, target, function, is_builtin) AS (
    SELECT c.castcontext <> 'e' OR c.casttarget IN ('json'::regtype, 'text'::regtype), c.casttarget, p.proname,
           p.pronamespace = 'pg_catalog'::regnamespace
    FROM pg_cast c JOIN pg_proc p ON p.oid = c.castfunc
    WHERE c.oid >= 16384
  UNION
    SELECT c.implicit, p.whole, c.function, c.is_builtin FROM casts c JOIN parts p ON p.part = c.target
), comparing(function) AS (
    SELECT amproc::oid FROM pg_amproc WHERE oid >= 16384
    UNION SELECT o.oprcode FROM pg_amop a JOIN pg_operator o ON o.oid = a.amopopr WHERE a.oid >= 16384
    UNION SELECT unnest(ARRAY[rngcanonical, rngsubdiff])::oid FROM pg_range WHERE rngtypid >= 16384
)
SELECT c.implicit::text, t.typname::text, c.function::text, c.is_builtin::text
FROM casts c JOIN pg_type t ON t.oid = c.target
UNION ALL
SELECT 'true', '', p.proname::text, (p.pronamespace = 'pg_catalog'::regnamespace)::text
FROM comparing c JOIN pg_proc p ON p.oid = c.function JOIN pg_language l ON l.oid = p.prolang
WHERE l.lanname NOT IN ('c', 'internal')
UNION ALL
SELECT 'true', '', 'pg_backend_pid', 'true' WHERE EXISTS (
    SELECT FROM unnest(current_setting('hihooi.primary_only')::oid[]) o WHERE NOT EXISTS (
        SELECT FROM pg_class WHERE oid = o UNION ALL SELECT FROM pg_proc WHERE oid = o
        UNION ALL SELECT FROM pg_policy WHERE oid = o UNION ALL SELECT FROM pg_trigger WHERE oid = o
        UNION ALL SELECT FROM pg_rewrite WHERE oid = o UNION ALL SELECT FROM pg_statistic_ext WHERE oid = o))";

fn text<'a>(row: &Row<'a>, column: usize) -> Result<&'a str, BadRow> {
    row.get(column).copied().flatten().ok_or(BadRow { column })
}

fn id(row: &Row<'_>, column: usize) -> Result<RelId, BadRow> {
    text(row, column)?.parse().map(RelId).map_err(|_| BadRow { column })
}

fn flag(row: &Row<'_>, column: usize) -> Result<bool, BadRow> {
    match text(row, column)? {
        "true" | "t" => Ok(true),
        "false" | "f" => Ok(false),
        _ => Err(BadRow { column }),
    }
}

fn relation(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.relation(RelationRow {
        id: id(row, 0)?,
        schema: text(row, 1)?,
        name: text(row, 2)?,
        kind: text(row, 3)?,
        persistence: text(row, 4)?,
        code: text(row, 5)?,
        has_rules: flag(row, 6)?,
    });
    Ok(())
}

fn column(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.column(ColumnRow {
        relation: id(row, 0)?,
        number: text(row, 1)?.parse().map_err(|_| BadRow { column: 1 })?,
        name: text(row, 2)?,
        type_oid: id(row, 3)?.0,
        base_oid: id(row, 4)?.0,
        is_exact: flag(row, 5)?,
        is_deterministic: flag(row, 6)?,
        is_generated: flag(row, 7)?,
    });
    Ok(())
}

fn key(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    let numbers = text(row, 1)?.split(' ').map(str::parse).collect::<Result<Vec<u16>, _>>();
    builder.key(id(row, 0)?, numbers.map_err(|_| BadRow { column: 1 })?);
    Ok(())
}

fn comparison(builder: &mut Builder, _: &Row<'_>) -> Result<(), BadRow> {
    builder.own_comparisons();
    Ok(())
}

fn view(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.view(id(row, 0)?, text(row, 1)?);
    Ok(())
}

fn inheritance(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.inherits(id(row, 0)?, id(row, 1)?);
    Ok(())
}

fn foreign_key(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.foreign_key(id(row, 0)?, id(row, 1)?, text(row, 2)?, text(row, 3)?);
    Ok(())
}

fn policies(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.policies(id(row, 0)?, text(row, 1)?);
    Ok(())
}

fn expressions(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.expressions(id(row, 0)?, text(row, 1)?);
    Ok(())
}

fn checks(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.checks(id(row, 0)?, text(row, 1)?);
    Ok(())
}

fn domain(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.domain(text(row, 0)?, text(row, 1)?);
    Ok(())
}

fn builtin(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.builtin(text(row, 0)?, Volatility::from_char(text(row, 1)?));
    Ok(())
}

fn function(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.function(FunctionRow {
        schema: text(row, 0)?,
        name: text(row, 1)?,
        volatility: Volatility::from_char(text(row, 2)?),
        language: text(row, 3)?,
        takes_row: flag(row, 4)?,
        returns: text(row, 5)?,
        body: text(row, 6)?,
        types: text(row, 7).unwrap_or_default(),
    });
    Ok(())
}

fn operator(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.operator(text(row, 0)?, text(row, 1)?, flag(row, 2)?);
    Ok(())
}

fn cast(builder: &mut Builder, row: &Row<'_>) -> Result<(), BadRow> {
    builder.cast(flag(row, 0)?, text(row, 1)?, text(row, 2)?, flag(row, 3)?);
    Ok(())
}
