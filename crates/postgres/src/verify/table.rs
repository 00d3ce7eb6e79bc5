//! What is compared row by row, and how it is read so that no code of users runs as superuser.
//!
//! Planning a query evaluates immutable functions with constant arguments in the predicates and expressions of
//! a table's indexes, in its constraints and its statistics. So a role's code would run as the superuser who
//! verifies. Therefore tables are read by `COPY table TO`, which plans nothing and calls only output functions
//! of types, which only superusers can create (row security doesn't apply to superusers). Leaf partitions and
//! inheritance children are read one by one.
//!
//! COPY doesn't read generated columns, and materialized views only since PostgreSQL 18. Tables with the former
//! and all of the latter are read by a query in a temporary function with SECURITY DEFINER that belongs to the
//! relation's owner. So user-defined code runs, but with the owner's rights, as in REFRESH or ANALYZE. In such
//! a function it is not possible to switch to the session's role (manual, "Writing SECURITY DEFINER Functions
//! Safely", SET SESSION AUTHORIZATION). The function is created and rolled back with its transaction, on a
//! connection of its own, in the snapshot that the others use.
//!
//! Both return a row as a line with the same syntax: fields separated by commas, quoted where necessary, empty
//! for NULL (COPY's CSV and the text form of a record). Text format is used because binary records and arrays
//! contain OIDs, which differ between sites.

use crate::connection::Row;

/// Something whose rows are compared.
pub(super) struct Table {
    /// Schema and name, quoted.
    pub name: String,
    /// Its columns, quoted, between commas.
    pub columns: String,
    /// Columns of its primary key, as above; empty if it has none.
    key: String,
    /// Their places among the columns.
    key_places: Vec<usize>,
    /// Its owner, quoted, as whom it has to be read.
    owner: Option<String>,
}

/// Logged tables and materialized views that hold rows.
pub(super) const TABLES: &str = r"
    select format('%I.%I', n.nspname, c.relname),
           (select string_agg(quote_ident(a.attname), ', ' order by a.attnum)
            from pg_attribute a
            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
           key.columns, key.places,
           case when c.relkind = 'm' or exists (
                select from pg_attribute a where a.attrelid = c.oid and a.attgenerated <> '')
           then quote_ident(pg_get_userbyid(c.relowner)) end
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
         cross join lateral (
            select string_agg(quote_ident(a.attname), ', ' order by a.attnum) as columns,
                   string_agg((select count(*) from pg_attribute b
                               where b.attrelid = c.oid and b.attnum > 0 and b.attnum < a.attnum
                                 and not b.attisdropped)::text, ' ' order by a.attnum) as places
            from pg_index i join pg_attribute a
                 on a.attrelid = c.oid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])
            where i.indrelid = c.oid and i.indisprimary) as key
    where c.relkind in ('r', 'm') and c.relpersistence = 'p' and c.relispopulated
      and n.nspname not in ('hihooi', 'information_schema') and n.nspname !~ '^pg_'
    order by 1";

/// Whether the rows of the table that has the name now are in the file that the snapshot shows; nothing
/// if the snapshot doesn't show that table. (`pg_relation_filenode` doesn't use the snapshot.)
pub(super) const SAME_FILE: &str = "
    select relfilenode = pg_relation_filenode(oid) from pg_class where oid = to_regclass($1)";

/// What became of a table behind the snapshot.
pub(super) enum Changed {
    /// It was dropped; another one may have its name.
    Dropped,
    /// What it held is gone, whatever the snapshot.
    Rewritten,
}

/// Settings of a connection for [`Table::prepare`]: no event trigger notices the function.
pub(super) const PREPARE_SETTINGS: [(&str, &str); 2] =
    [("session_replication_role", "replica"), ("check_function_bodies", "off")];

impl Table {
    pub fn read(row: Row) -> Option<Table> {
        let [name, columns, key, places, owner] = <[_; 5]>::try_from(row).ok()?;
        let places = places.unwrap_or_default();
        Some(Table {
            name: name?,
            columns: columns.unwrap_or_default(),
            key: key.unwrap_or_default(),
            key_places: places.split_whitespace().filter_map(|at| at.parse().ok()).collect(),
            owner,
        })
    }

    /// Whether it is read with its owner's rights.
    pub fn is_read_as_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether its lines can be compared with another one's.
    pub fn is_like(&self, other: &Table) -> bool {
        self.columns == other.columns && self.is_read_as_owner() == other.is_read_as_owner()
    }

    /// What reads it, on a connection on which [`Table::prepare`] was run.
    pub fn statement(&self) -> String {
        match (&self.owner, self.columns.as_str()) {
            (Some(_), _) => "SELECT pg_temp.hihooi_rows()".to_owned(),
            (None, "") => format!("COPY {} TO STDOUT (FORMAT csv)", self.name),
            (None, columns) => format!("COPY {} ({columns}) TO STDOUT (FORMAT csv)", self.name),
        }
    }

    /// Makes the function that reads it as its owner, in a transaction with this snapshot.
    pub fn prepare(&self, snapshot: &str) -> Option<[String; 5]> {
        let owner = self.owner.as_ref()?;
        let body = format!("SELECT ROW({})::text FROM ONLY {}", self.columns, self.name);
        Some([
            "BEGIN ISOLATION LEVEL REPEATABLE READ, READ WRITE".to_owned(),
            format!("SET TRANSACTION SNAPSHOT '{snapshot}'"),
            format!(
                "CREATE FUNCTION pg_temp.hihooi_rows() RETURNS SETOF text LANGUAGE sql \
                 SECURITY DEFINER SET search_path = pg_catalog AS '{}'",
                body.replace('\'', "''")
            ),
            format!("ALTER FUNCTION pg_temp.hihooi_rows() OWNER TO {owner}"),
            "SET TRANSACTION READ ONLY".to_owned(),
        ])
    }

    /// The key's columns, or a replacement if it has none.
    pub fn key_names(&self) -> &str {
        if self.key.is_empty() { "row" } else { &self.key }
    }

    /// The key's fields of a line; all of it if there is no key.
    pub fn key_of(&self, line: &[u8]) -> Vec<u8> {
        let Some(last) = self.key_places.last() else { return line.to_vec() };
        let fields = fields(line).enumerate().take(last + 1);
        let key = fields.filter(|(place, _)| self.key_places.contains(place));
        key.map(|(_, field)| field).collect::<Vec<_>>().join(&b',')
    }
}

/// The fields of a line, with their quotes. (A quote within quotes is doubled.)
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    line.split(move |&byte| {
        quoted ^= byte == b'"';
        byte == b',' && !quoted
    })
}
