//! Which objects of a replica correspond to which of the primary's (see [`hihooi_session::own_types`]): matched
//! by name, in catalogs of both sites that were read at the same state of the schema
//! (`docs/decisions/0010-own-types.md`).

use std::sync::Arc;

use ahash::AHashMap;
use hihooi_postgres::connection::{Connection, Error, Result};
use hihooi_session::own_types::Objects;

/// Types that have a name of their own, and with each the array type over it, whose name depends on what
/// others are called. A type carries OIDs in its binary form if that is an array's or a record's, or a range's
/// over such a type. A type is checked if it is or contains a domain with a CHECK, which runs where a value is given.
const TYPES: &str = "\
WITH RECURSIVE named AS (
  SELECT t.oid, t.typarray, n.nspname, t.typname FROM pg_catalog.pg_type t
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
   WHERE t.oid >= 16384 AND n.nspname !~ '^pg_(temp|toast)'
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid)
), inside AS (
  SELECT oid, oid AS part FROM named
   UNION
  SELECT i.oid, CASE t.typtype WHEN 'd' THEN t.typbasetype WHEN 'r' THEN r.rngsubtype ELSE m.rngtypid END
    FROM inside i JOIN pg_catalog.pg_type t ON t.oid = i.part
    LEFT JOIN pg_catalog.pg_range r ON t.typtype = 'r' AND r.rngtypid = t.oid
    LEFT JOIN pg_catalog.pg_range m ON t.typtype = 'm' AND m.rngmultitypid = t.oid
   WHERE t.typtype IN ('d', 'r', 'm')
), carrying AS (
  SELECT DISTINCT i.oid FROM inside i JOIN pg_catalog.pg_type t ON t.oid = i.part
   WHERE t.typsend IN ('pg_catalog.array_send'::pg_catalog.regproc,
                       'pg_catalog.record_send'::pg_catalog.regproc)
), parts(part, whole) AS MATERIALIZED (
  SELECT typbasetype, oid FROM pg_catalog.pg_type WHERE typbasetype <> 0
   UNION ALL
  SELECT typelem, oid FROM pg_catalog.pg_type WHERE typelem >= 16384
   UNION ALL
  SELECT a.atttypid, t.oid FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_type t ON t.typrelid = a.attrelid
   WHERE a.atttypid >= 16384 AND a.attnum > 0 AND NOT a.attisdropped
   UNION ALL
  SELECT rngsubtype, r.part FROM pg_catalog.pg_range, LATERAL (VALUES (rngtypid), (rngmultitypid)) r(part)
   WHERE rngsubtype >= 16384
), checked AS (
  SELECT contypid AS oid FROM pg_catalog.pg_constraint WHERE contype = 'c' AND contypid >= 16384
   UNION
  SELECT p.whole FROM checked c JOIN parts p ON p.part = c.oid
)
SELECT nspname, typname, named.oid, typarray, carrying.oid IS NOT NULL, checked.oid IS NOT NULL
  FROM named LEFT JOIN carrying USING (oid) LEFT JOIN checked USING (oid)";

/// Relations that columns may be said to belong to, and a hash of their columns' numbers and names.
const TABLES: &str = "\
SELECT n.nspname, c.relname, c.oid, a.columns
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN (SELECT attrelid, pg_catalog.bit_xor(pg_catalog.hashtextextended(
               (attnum::text || ' ' || attname) COLLATE \"C\", 0)) AS columns
          FROM pg_catalog.pg_attribute WHERE attnum > 0 AND NOT attisdropped
           AND attrelid >= 16384 GROUP BY attrelid) a ON a.attrelid = c.oid
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_(temp|toast)'";

/// A schema's name and a name in it.
type Name = (Box<str>, Box<str>);

/// The objects of a site by their names.
#[derive(Debug, Default)]
pub struct NamedObjects {
    types: AHashMap<Name, NamedType>,
    tables: AHashMap<Name, NamedTable>,
}

#[derive(Debug)]
struct NamedType {
    oid: u32,
    /// 0 if it has none.
    array: u32,
    carries: bool,
    is_checked: bool,
}

#[derive(Debug)]
struct NamedTable {
    oid: u32,
    columns: Box<str>,
}

/// The objects of a replica, and of which schema that is true.
#[derive(Debug)]
pub struct ObjectsAt {
    /// How often the schema had changed.
    pub changes: u64,
    /// Which of the replica's appliers it was ([`hihooi_postgres::site::Replica::rounds`]).
    pub round: u64,
    /// They.
    pub objects: Arc<Objects>,
}

impl NamedObjects {
    /// Makes a session, one with [`hihooi_sql::catalog_queries::SETTINGS`], ready for [`NamedObjects::read`].
    ///
    /// # Errors
    /// The connection failed.
    pub async fn prepare(connection: &mut Connection) -> Result<()> {
        // Planned once: that takes longer than asking.
        for (name, text) in [("types", TYPES), ("tables", TABLES)] {
            connection.query(&format!("PREPARE hihooi_{name} AS {text}")).await?;
        }
        Ok(())
    }

    /// Reads those of a site, in the transaction that is open there, in a session that is
    /// [prepared](NamedObjects::prepare).
    ///
    /// # Errors
    /// The connection failed.
    pub async fn read(connection: &mut Connection) -> Result<NamedObjects> {
        let mut named = NamedObjects::default();
        for row in connection.query("EXECUTE hihooi_types").await?.rows {
            let [Some(schema), Some(name), oid, array, carries, is_checked] = &row[..] else {
                return Err(unreadable());
            };
            let found = NamedType {
                oid: number(oid)?,
                array: number(array)?,
                carries: carries.as_deref() == Some("t"),
                is_checked: is_checked.as_deref() == Some("t"),
            };
            named.types.insert((schema.as_str().into(), name.as_str().into()), found);
        }
        for row in connection.query("EXECUTE hihooi_tables").await?.rows {
            let [Some(schema), Some(name), oid, Some(columns)] = &row[..] else {
                return Err(unreadable());
            };
            let found = NamedTable { oid: number(oid)?, columns: columns.as_str().into() };
            named.tables.insert((schema.as_str().into(), name.as_str().into()), found);
        }
        Ok(named)
    }

    /// Which of a replica's objects are which of these, the primary's, if both sites have the same schema.
    #[must_use]
    pub fn matched(&self, replica: &NamedObjects) -> Objects {
        let mut objects = Objects::default();
        for (name, theirs) in &replica.types {
            let Some(ours) = self.types.get(name) else { continue };
            objects.add_type(theirs.oid, ours.oid, ours.carries || theirs.carries);
            let has_arrays = theirs.array != 0 && ours.array != 0;
            if has_arrays {
                objects.add_type(theirs.array, ours.array, true);
            }
            if ours.is_checked || theirs.is_checked {
                continue;
            }
            objects.add_parameter(theirs.oid, ours.oid);
            if has_arrays {
                objects.add_parameter(theirs.array, ours.array);
            }
        }
        for (name, theirs) in &replica.tables {
            if let Some(ours) = self.tables.get(name).filter(|ours| ours.columns == theirs.columns)
            {
                objects.add_table(theirs.oid, ours.oid);
            }
        }
        objects
    }
}

fn number(value: &Option<String>) -> Result<u32> {
    value.as_deref().and_then(|value| value.parse().ok()).ok_or_else(unreadable)
}

fn unreadable() -> Error {
    Error::Protocol("a row of the objects isn't readable".to_owned())
}
