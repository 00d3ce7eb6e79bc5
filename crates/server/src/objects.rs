//! Which objects of a replica correspond to which of the primary's (see [`hihooi_session::own_types`]): matched
//! by name, in catalogs of both sites that were read at the same state of the schema
//! (`docs/decisions/0010-own-types.md`).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use hihooi_postgres::connection::{Connection, Error, Result};
use hihooi_postgres::site::Replica;
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::Items;
use hihooi_session::events::Outcome;
use hihooi_session::own_types::Objects;
use hihooi_session::sites::SiteId;
use hihooi_sql::catalog_queries;
use tracing::debug;

use crate::outcomes::login_at;
use crate::relay::Relay;

/// After a failure at the replica.
const RETRY: Duration = Duration::from_millis(200);
/// How often a replica is looked at whose schema didn't change: its applier may have begun anew.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked at whether the stream has passed a position.
const PASSED_EVERY: Duration = Duration::from_millis(50);

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
SELECT n.nspname, c.relname, c.oid, pg_catalog.hashtextextended(a.columns COLLATE \"C\", 0)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN (SELECT attrelid, pg_catalog.string_agg(attnum::text || ' ' || attname, E'\\n' ORDER BY attnum) AS columns
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
    /// Which of the replica's appliers it was ([`Replica::rounds`]).
    pub round: u64,
    /// They.
    pub objects: Arc<Objects>,
}

impl NamedObjects {
    /// Makes a session, one with [`catalog_queries::SETTINGS`], ready for [`NamedObjects::read`].
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
    fn matched(&self, replica: &NamedObjects) -> Objects {
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

/// Keeps what is known of a replica's objects up to date.
pub async fn keep(relay: Rc<Relay>, number: usize) {
    let (site, replica) = (SiteId::Replica(number), relay.replicas[number].clone());
    // A connection, kept while the schema goes on changing, and of which round it is.
    let mut idle = None;
    loop {
        let is_set = relay.catalog_set.notified();
        match relay.schema() {
            Some((changes, changed_at, primarys)) if relay.objects_at(site).is_none() => {
                let found = tokio::select! {
                    found = load(&relay, &replica, (changes, changed_at), &primarys, &mut idle) => found,
                    _ = replica.silenced() => Ok(None),
                };
                match found {
                    // The catalogs were of the same schema only if that hasn't changed meanwhile.
                    Ok(Some((round, objects))) => {
                        let found = ObjectsAt { changes, round, objects: Arc::new(objects) };
                        *relay.objects[number].borrow_mut() = Some(found);
                        relay.changed.notify_waiters();
                    }
                    Ok(None) => tokio::time::sleep(RETRY).await,
                    Err(error) => {
                        debug!(site = replica.site.name, %error, "its objects can't be read");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
            _ => {
                let is_quiet = tokio::time::timeout(LOOK_EVERY, is_set).await.is_err();
                if let Some((_, connection)) = idle.take_if(|_| is_quiet) {
                    connection.close().await;
                }
            }
        }
    }
}

/// Reads a replica's objects when it has applied all DDL; of which round of its appliers they are.
async fn load(
    relay: &Relay,
    replica: &Replica,
    (changes, changed_at): (u64, Tsid),
    primarys: &NamedObjects,
    idle: &mut Option<(u64, Connection)>,
) -> Result<Option<(u64, Objects)>> {
    let round = replica.rounds();
    let mut progress = replica.progress();
    while !(replica.state().is_readable() && replica.applied() >= changed_at) {
        if tokio::time::timeout(LOOK_EVERY, progress.changed()).await.is_err() {
            return Ok(None);
        }
    }
    if relay.schema().is_none_or(|(now, ..)| now != changes) {
        return Ok(None);
    }
    // One that fails isn't kept, nor one of another round, which may be to another server.
    let mut connection = match idle.take() {
        Some((of, connection)) if of == round => connection,
        _ => {
            let login = login_at(relay, &replica.site, "hihooi objects");
            let login = login.with_all(&catalog_queries::SETTINGS);
            let mut connection = Connection::open(&login).await?;
            NamedObjects::prepare(&mut connection).await?;
            connection
        }
    };
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let named = NamedObjects::read(&mut connection).await?;
    connection.query("COMMIT").await?;
    *idle = Some((round, connection));
    passed_now(relay).await;
    Ok(Some((round, primarys.matched(&named))))
}

/// Waits until the stream has told all that any site shows now.
async fn passed_now(relay: &Relay) {
    let look = relay.begin_write(Items::Nothing);
    relay.end_write(look, Outcome::Unidentified);
    while relay.freshness.borrow().is_unresolved(look) {
        // It may be told while we look.
        let _ = tokio::time::timeout(PASSED_EVERY, relay.changed.notified()).await;
    }
}
