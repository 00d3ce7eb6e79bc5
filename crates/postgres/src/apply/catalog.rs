//! What an applier must know about a replica's tables: types to cast to, which operators compare keys, in which
//! tables two rows can conflict (manual, chapter "System Catalogs").

use std::sync::Arc;

use ahash::AHashMap;
use hihooi_replication::entry::{Identity, Relation};
use hihooi_replication::items::RelId;

use super::restricted::{Array, Guard};
use crate::connection::{Connection, Result, Row};

/// Tables that are remembered; beyond, all are forgotten and asked for again (I8).
const TABLES_MAX: usize = 10_000;

/// How two values of a column are compared when the whole row is the identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compare {
    /// `=` holds for identical values only.
    Exact,
    /// `=` holds for some values that differ, such as 1.0 and 1.00: the text decides.
    Coarse,
    /// There may be no `=`: the text decides.
    Text,
}

/// A column at the replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Column {
    /// Its type with modifier, as casts take it.
    pub type_name: String,
    /// `GENERATED ALWAYS AS IDENTITY`.
    pub identity_always: bool,
    /// Computed from the others, so it is neither written nor looked for (PostgreSQL 18 publishes it).
    pub is_generated: bool,
    /// How it is compared under FULL identity.
    pub compare: Compare,
    /// The equality operator of a unique index on it, as `OPERATOR(schema.=)`; without one, the text
    /// decides.
    pub equals: Option<String>,
    /// A text of the stream's bytes, cast to the type, is what the server would read: the database is in UTF8, as the
    /// stream is, and nobody has defined such a cast.
    pub text_is_input: bool,
}

impl Column {
    /// An UPDATE can't set it.
    pub(super) fn cant_be_set(&self) -> bool {
        self.identity_always || self.is_generated
    }
}

/// A table at the replica.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Table {
    /// Its columns by name.
    pub columns: AHashMap<String, Column>,
    /// Rows with different identities can conflict: it has another unique index, or an exclusion constraint.
    pub has_other_keys: bool,
    /// Writing to it may run code of others, so it is done as the owner.
    pub guard: Option<Guard>,
    /// Writing to it may run code of its owner's, a superuser, under this search path.
    pub path: Option<String>,
    /// Its rows are not followed.
    pub is_set_aside: bool,
    /// Its OID.
    pub oid: String,
}

impl Table {
    /// Writing to it may run code that isn't the server's own.
    pub(super) fn runs_code(&self) -> bool {
        self.guard.is_some() || self.path.is_some()
    }
}

/// Tables of a replica, remembered until [`Catalog::clear`].
#[derive(Default)]
pub(super) struct Catalog {
    tables: AHashMap<RelId, (Arc<Relation>, Option<Arc<Table>>)>,
}

impl Catalog {
    /// Forgets everything: DDL ran.
    pub(super) fn clear(&mut self) {
        self.tables.clear();
    }

    /// The table of that name, if it is known already. The inner `None` means that there is none.
    pub(super) fn known(&self, relation: &Arc<Relation>) -> Option<Option<Arc<Table>>> {
        let (described, table) = self.tables.get(&relation.id)?;
        (described == relation).then(|| table.clone())
    }

    /// The table that the stream calls `relation`; `None` if the replica has none.
    pub(super) async fn table(
        &mut self,
        relation: &Arc<Relation>,
        connection: &mut Connection,
    ) -> Result<Option<Arc<Table>>> {
        if let Some(known) = self.known(relation) {
            return Ok(known);
        }
        let table = load(relation, connection).await?.map(Arc::new);
        if self.tables.len() >= TABLES_MAX {
            self.tables.clear();
        }
        self.tables.insert(relation.id, (Arc::clone(relation), table.clone()));
        Ok(table)
    }
}

/// Columns with the equality operator of some unique index on them. (If users made an implicit cast
/// from an enum to text, say, neither the operator for enums nor that for text fits better.)
const COLUMNS: &str = "
    select a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attidentity, a.attgenerated <> '',
           case when t.typtype = 'e' then case when not has_cast then 'enum' end
                when t.typnamespace = 'pg_catalog'::regnamespace then t.typname::text end,
           (select pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname)
            from pg_catalog.pg_index i,
                 lateral rows from (pg_catalog.unnest(i.indkey::int2[]),
                                    pg_catalog.unnest(i.indclass::oid[]))
                     with ordinality k(attnum, opclass, position),
                 pg_catalog.pg_opclass c, pg_catalog.pg_amop p, pg_catalog.pg_operator o,
                 pg_catalog.pg_namespace n
            where i.indrelid = a.attrelid and i.indisunique and k.attnum = a.attnum
              and k.position <= i.indnkeyatts
              -- (Keys WITHOUT OVERLAPS have GiST indexes, in which this strategy may be another operator.)
              and c.opcmethod = 403 and (c.oid = k.opclass or c.opcdefault and exists (
                  select from pg_catalog.pg_opclass g
                  where g.oid = k.opclass and g.opcmethod <> 403 and g.opcintype = c.opcintype))
              and p.amopfamily = c.opcfamily and p.amoplefttype = c.opcintype
              and p.amoprighttype = c.opcintype and p.amopstrategy = 3
              and o.oid = p.amopopr and n.oid = o.oprnamespace
              and not (has_cast and c.opcintype = any (
                  '{anyenum,anyarray,anyrange,anymultirange,record}'::regtype[]))
            order by i.indisprimary desc, i.indisreplident desc, i.indexrelid limit 1),
           not exists (select from pg_catalog.pg_cast k
                       where k.castsource = 'pg_catalog.text'::regtype
                         and k.casttarget in (t.oid, t.typbasetype) and k.oid >= 16384
                         and k.castmethod = 'f')
           and pg_catalog.getdatabaseencoding() = 'UTF8'
           and not exists (select from pg_catalog.pg_type b
                           where b.oid = t.typbasetype and b.typtype = 'd')
    from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid,
        lateral (select exists (select from pg_catalog.pg_cast k
            where k.castsource in (t.oid, t.typbasetype) and k.castcontext = 'i'
              and k.oid >= 16384)) k(has_cast)
    where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped";

/// Whether a table may run code of others.
const GUARD: &str = include_str!("guard.sql");

/// Rows in the stream have passed the CHECK constraints of the primary, and what these call may fail
/// here: it may ask for the client's user, settings, search path. So they are not evaluated where
/// they run code that isn't plain: PostgreSQL reads them only where `relchecks` says that there are
/// any. Which tables that are is remembered for [`resume_checks`], which undoes it.
const SUSPEND_CHECKS: &str = "
    with suspended as (
        update pg_catalog.pg_class set relchecks = 0 where oid = $1::oid and relchecks > 0 returning oid)
    insert into hihooi.unchecked select oid from suspended on conflict do nothing";
const RESUME_CHECKS: &str = "
    with resumed as (delete from hihooi.unchecked returning relation)
    update pg_catalog.pg_class set relchecks = (
        select pg_catalog.count(*) from pg_catalog.pg_constraint where contype = 'c' and conrelid = resumed.relation)
    from resumed where pg_class.oid = resumed.relation";
/// The same for all tables, wherever it was remembered.
const RESUME_ALL_CHECKS: &str = "
    with resumed as (delete from hihooi.unchecked)
    update pg_catalog.pg_class c set relchecks = k.checks
    from (select conrelid, pg_catalog.count(*) from pg_catalog.pg_constraint
          where contype = 'c' and conrelid <> 0 group by conrelid) k(relation, checks)
    where c.oid = k.relation and c.relchecks <> k.checks";

/// The same since PostgreSQL 18, which can leave constraints unenforced, and which stops reading a table's constraints,
/// those of NOT NULL too, where there are more than `relchecks` says. What is set aside is marked in a column that only
/// foreign keys use (and is described as it was: `hihooi.describe_constraints`). PostgreSQL reads a table's constraints
/// again if the table's own row changes.
const SUSPEND_ENFORCED: &str = "
    with suspended as (
        update pg_catalog.pg_constraint set conenforced = false, confupdtype = 'h'
        where conrelid = $1::oid and contype = 'c' and conenforced returning conrelid),
    remembered as (
        insert into hihooi.unchecked select distinct conrelid from suspended on conflict do nothing)
    update pg_catalog.pg_class set relname = relname where oid in (select conrelid from suspended)";
const RESUME_ENFORCED: &str = "
    with unchecked as (delete from hihooi.unchecked returning relation),
    not_null as (
        update pg_catalog.pg_attribute a set attnotnull = true from unchecked, pg_catalog.pg_constraint k
        where k.conrelid = relation and k.contype = 'n' and not k.convalidated
          and a.attrelid = relation and a.attnum = k.conkey[1]),
    resumed as (
        update pg_catalog.pg_constraint set conenforced = true, confupdtype = ' ' from unchecked
        where conrelid = relation and contype = 'c' and confupdtype = 'h' returning conrelid)
    update pg_catalog.pg_class set relname = relname where oid in (select conrelid from resumed)";
const RESUME_ALL_ENFORCED: &str = "
    with not_null as (
        update pg_catalog.pg_attribute a set attnotnull = true from pg_catalog.pg_constraint k
        where k.contype = 'n' and not k.convalidated
          and a.attrelid = k.conrelid and a.attnum = k.conkey[1] and not a.attnotnull),
    resumed as (
        update pg_catalog.pg_constraint set conenforced = true, confupdtype = ' '
        where contype = 'c' and confupdtype = 'h' returning conrelid)
    update pg_catalog.pg_class set relname = relname where oid in (select conrelid from resumed)";
/// Since PostgreSQL 18, NOT NULL constraints can be NOT VALID: rows that are older than such a constraint come again when the
/// table is rewritten. (Its columns are described as they were: `hihooi.describe_columns`.)
const SUSPEND_NOT_NULL: &str = "
    with suspended as (
        update pg_catalog.pg_attribute a set attnotnull = false from pg_catalog.pg_constraint k
        where k.conrelid = $1::oid and k.contype = 'n' and not k.convalidated
          and a.attrelid = k.conrelid and a.attnum = k.conkey[1] and a.attnotnull returning a.attrelid)
    insert into hihooi.unchecked select distinct attrelid from suspended on conflict do nothing";
/// The first version with `conenforced`.
const ENFORCED_SINCE: u32 = 18;

async fn suspend_checks(table: &str, connection: &mut Connection) -> Result<()> {
    let has_enforced = connection.major_version() >= ENFORCED_SINCE;
    let suspend = if has_enforced { SUSPEND_ENFORCED } else { SUSPEND_CHECKS };
    connection.query_with(suspend, &[Some(table)]).await.map(drop)
}

/// Makes CHECK constraints, and NOT NULL, be evaluated again: DDL counts on it.
pub(super) async fn resume_checks(connection: &mut Connection) -> Result<()> {
    let has_enforced = connection.major_version() >= ENFORCED_SINCE;
    let resume = if has_enforced { RESUME_ENFORCED } else { RESUME_CHECKS };
    connection.query(resume).await.map(drop)
}

/// The same, whatever earlier versions did.
pub(super) async fn resume_all_checks(connection: &mut Connection) -> Result<()> {
    connection.query(RESUME_ALL_CHECKS).await?;
    if connection.major_version() >= ENFORCED_SINCE {
        connection.query(RESUME_ALL_ENFORCED).await?;
    }
    Ok(())
}

/// As [`SUSPEND_CHECKS`], for the CHECK constraints of all domains: a value that is older than a NOT
/// VALID one, and that an UPDATE left alone, is written anew here. Within one transaction: nobody else
/// sees it.
pub(super) const SUSPEND_DOMAINS: &str =
    "update pg_catalog.pg_constraint set contypid = oid where contype = 'c' and contypid <> 0";

/// Undoes [`SUSPEND_DOMAINS`]: what a constraint belongs to stands among its dependencies, too.
pub(super) const RESUME_DOMAINS: &str = "
    update pg_catalog.pg_constraint k set contypid = d.refobjid from pg_catalog.pg_depend d
    where d.classid = 'pg_catalog.pg_constraint'::regclass and d.objid = k.oid
      and d.refclassid = 'pg_catalog.pg_type'::regclass and d.deptype = 'a' and k.contypid = k.oid";

/// The search path under which functions of a table's indexes, domains and generated columns run: its
/// own schema, then that of its owner's sessions. For a superuser only schemas in which nobody but superusers
/// may create anything, or has: what others put there would run with a superuser's rights. Tables of others are
/// harmless: reading them runs nothing, and their names and those of their row types stand for nothing else.
const PATH: &str = r#"
    with wanted(owner, is_super, path) as (
        select c.relowner, o.rolsuper,
            pg_catalog.concat_ws(', ', pg_catalog.quote_ident(n.nspname), coalesce(
                (select pg_catalog.substr(setting, 13)
                 from pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) setting,
                      pg_catalog.pg_database d
                 where d.datname = pg_catalog.current_database() and s.setdatabase in (0, d.oid)
                   and s.setrole in (0, c.relowner)
                   and pg_catalog.starts_with(setting, 'search_path=')
                 order by s.setrole <> 0 desc, s.setdatabase <> 0 desc limit 1),
                (select boot_val from pg_catalog.pg_settings where name = 'search_path')))
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            join pg_catalog.pg_roles o on o.oid = c.relowner
        where c.oid = $1::oid
    ), listed(name, place) as (
        select case when pg_catalog.starts_with(p.word[1], '"')
                then pg_catalog.replace(pg_catalog.substr(p.word[1], 2, pg_catalog.length(p.word[1]) - 2), '""', '"')
                else pg_catalog.lower(p.word[1]) end, place
        from wanted, pg_catalog.regexp_matches(path, '"(?:[^"]|"")*"|[^",[:space:]]+', 'g')
            with ordinality p(word, place)
    ), harmless(relation) as (
        select c.oid from listed l join pg_catalog.pg_namespace n on n.nspname = l.name
            join pg_catalog.pg_class c on c.relnamespace = n.oid
        where c.relkind in ('i', 'I', 'S', 't') or c.relkind in ('r', 'p')
          -- (A call of a function isn't taken for a cast to a row type.)
          and not exists (select from pg_catalog.pg_type t
                          where t.typname = c.relname and t.typnamespace <> n.oid)
    ), safe(schema) as (
        select n.nspname from pg_catalog.pg_namespace n
        where not exists (
            select from pg_catalog.aclexplode(coalesce(n.nspacl,
                    pg_catalog.acldefault('n', n.nspowner))) a
                left join pg_catalog.pg_roles g on g.oid = a.grantee
                left join pg_catalog.pg_database d on g.rolname = 'pg_database_owner'
                    and d.datname = pg_catalog.current_database()
                left join pg_catalog.pg_roles o on o.oid = d.datdba
            where a.privilege_type = 'CREATE' and not coalesce(o.rolsuper, g.rolsuper, false))
        or not exists (
            -- (Of predefined roles, which anybody may be a member of, pg_shdepend tells nothing.)
            select from (
                select pronamespace, proowner from pg_catalog.pg_proc
                union all select t.typnamespace, t.typowner
                    from pg_catalog.pg_type t left join pg_catalog.pg_type e on e.typarray = t.oid
                    where coalesce(e.typrelid, t.typrelid) not in (select relation from harmless)
                union all select relnamespace, relowner from pg_catalog.pg_class
                    where oid not in (select relation from harmless)
                union all select oprnamespace, oprowner from pg_catalog.pg_operator
                union all select collnamespace, collowner from pg_catalog.pg_collation
                union all select connamespace, conowner from pg_catalog.pg_conversion
                union all select dictnamespace, dictowner from pg_catalog.pg_ts_dict
                union all select cfgnamespace, cfgowner from pg_catalog.pg_ts_config
            ) object(schema, owner)
            where object.schema = n.oid
              and owner not in (select oid from pg_catalog.pg_roles where rolsuper))
    )
    select case when not is_super then path else coalesce(
        (select pg_catalog.string_agg(pg_catalog.quote_ident(schema), ', ' order by place)
         from listed join safe on schema = name), 'pg_catalog') end
    from wanted"#;

/// The table; whether another index than that of its identity keeps rows apart; its owner, if that
/// is no superuser; whether its rows are not followed; whether it has a NOT NULL constraint that is NOT VALID.
const TABLE: &str = "
    select c.oid, exists (
        select from pg_catalog.pg_index i
        where i.indrelid = c.oid and (i.indisexclusion or i.indisunique
          and not case $3 when 'd' then i.indisprimary else i.indisreplident end)),
        case when not o.rolsuper then o.rolname end, c.relforcerowsecurity,
        exists (select from hihooi.set_aside s where s.relation = $4::oid),
        exists (select from pg_catalog.pg_constraint k
                where k.conrelid = c.oid and k.contype = 'n' and not k.convalidated)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        join pg_catalog.pg_roles o on o.oid = c.relowner
    where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p')";

async fn load(relation: &Relation, connection: &mut Connection) -> Result<Option<Table>> {
    let identity = if relation.identity == Identity::Default { "d" } else { "i" };
    let id = relation.id.0.to_string();
    let values = [relation.schema.as_str(), &relation.name, identity, &id].map(Some);
    let found = connection.query_prepared(("hihooi_table", TABLE), &values).await?;
    let Some([oid, other_keys, owner, forced, set_aside, has_older]) =
        found.rows.first().map(Vec::as_slice)
    else {
        return Ok(None);
    };
    if has_older.as_deref() == Some("t") {
        connection.query_with(SUSPEND_NOT_NULL, &[oid.as_deref()]).await?;
    }
    let (mut guard, mut path) = (None, None);
    if let Some(oid) = oid
        && is_guarded(oid, relation, true, connection).await?
    {
        suspend_checks(oid, connection).await?;
        if is_guarded(oid, relation, false, connection).await? {
            let found = connection.query_with(PATH, &[Some(oid)]).await?;
            let found = found.value().unwrap_or_default().to_owned();
            match owner {
                Some(owner) => {
                    let is_forced = forced.as_deref() == Some("t");
                    guard = Some(Guard { owner: owner.clone(), is_forced, path: found });
                }
                None => path = Some(found),
            }
        }
    }
    let columns = ("hihooi_columns", COLUMNS);
    let columns = connection.query_prepared(columns, &[oid.as_deref()]).await?;
    let columns = columns.rows.into_iter().filter_map(column).collect();
    let has_other_keys = other_keys.as_deref() != Some("f");
    let is_set_aside = set_aside.as_deref() == Some("t");
    let oid = oid.clone().unwrap_or_default();
    Ok(Some(Table { columns, has_other_keys, guard, path, is_set_aside, oid }))
}

async fn is_guarded(
    oid: &str,
    relation: &Relation,
    with_checks: bool,
    connection: &mut Connection,
) -> Result<bool> {
    let mut names = Array::default();
    relation.columns.iter().for_each(|column| names.push(Some(column.name.as_bytes())));
    let names = String::from_utf8_lossy(&names.text()).into_owned();
    let with_checks = if with_checks { "true" } else { "false" };
    let values = [Some(oid), Some(&names), Some(with_checks), None];
    let answer = connection.query_prepared(("hihooi_guard", GUARD), &values).await?;
    Ok(answer.value() != Some("f"))
}

/// Whether a CHECK constraint may depend on anything but the row: on settings, or on the role.
pub(super) async fn asks_for_more(constraint: &str, connection: &mut Connection) -> Result<bool> {
    let values = [None, None, None, Some(constraint)];
    let answer = connection.query_prepared(("hihooi_guard", GUARD), &values).await?;
    Ok(answer.value() != Some("f"))
}

fn column(row: Row) -> Option<(String, Column)> {
    let mut values = row.into_iter();
    let mut next = || values.next().flatten();
    let (name, type_name) = (next()?, next()?);
    let identity_always = next().as_deref() == Some("a");
    let is_generated = next().as_deref() == Some("t");
    let compare = compare_of(next().as_deref());
    let equals = next();
    let text_is_input = next().as_deref() == Some("t");
    let column =
        Column { type_name, identity_always, is_generated, compare, equals, text_is_input };
    Some((name, column))
}

fn compare_of(type_name: Option<&str>) -> Compare {
    const EXACT: [&str; 16] = [
        "bool",
        "int2",
        "int4",
        "int8",
        "oid",
        "text",
        "varchar",
        "name",
        "char",
        "uuid",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "bytea",
        "enum",
    ];
    const COARSE: [&str; 13] = [
        "numeric", "float4", "float8", "bpchar", "interval", "timetz", "inet", "cidr", "jsonb",
        "macaddr", "money", "bit", "varbit",
    ];
    match type_name {
        Some(name) if EXACT.contains(&name) => Compare::Exact,
        Some(name) if COARSE.contains(&name) => Compare::Coarse,
        _ => Compare::Text,
    }
}
