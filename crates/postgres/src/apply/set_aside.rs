//! Tables that a replica *sets aside*: their rows can't be written there, so it goes on without them, and they are read
//! elsewhere ([`Replica::lacks`]).
//!
//! The rows of some tables run code when they are written, in indexes, domains, generated columns and partition keys.
//! At the primary that was called by the client; here it may fail, since it asks for the client's settings, or because
//! the table's owner lacks rights that the client had. A copy of the primary would meet the same error at the next
//! row. So the replica loses that table, and nothing else: which ones it has lost is stored in the replica, read with
//! whatever else an applier knows of a table, and told to the router before an entry is applied without the table's
//! rows. TRUNCATE brings it back, in the transaction of its entry, and so does a copy of the primary.

use std::sync::Arc;
use std::time::Duration;

use hihooi_replication::entry::Relation;
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::RelId;

use super::Config;
use super::progress;
use super::round::CANCEL_PATIENCE;
use crate::connection::{Connection, Error, Result};
use crate::site::{Replica, TablesSetAside};

/// What a copy of the primary that is no older can't write isn't the replica's fault. (Something else writes there: a
/// function of another table, which its owner's rows run.)
const COPY_IS_NEW: Duration = Duration::from_secs(60 * 60);
/// A replica that has set so many tables aside has a problem of another kind.
const TABLES_MAX: usize = 1_000;

/// What an entry is refused for, if it is one table's rows.
#[derive(Clone, Debug)]
pub(super) struct Blame {
    /// The table.
    pub relation: Arc<Relation>,
    /// Why its rows may not fit.
    pub cause: Cause,
}

/// Why rows can't be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The table's own code, or a value that the primary has stored: a copy of the primary would meet it again.
    Code,
    /// The server's condition, unless the table's code has raised an error that looks so.
    Passing,
    /// The replica's rows are others than the primary's; a copy of the primary has the right ones.
    Rows,
}

impl Cause {
    /// Of an error with this SQLSTATE, which code of the table's may have raised.
    pub(super) fn of_code(code: &str) -> Cause {
        const SERVERS: [&str; 5] = ["40", "53", "55", "57", "58"];
        if SERVERS.iter().any(|class| code.starts_with(class)) {
            Cause::Passing
        } else {
            Cause::Code
        }
    }
}

impl Blame {
    /// Whether the replica is to go on without the table; whether the entry was tried often enough.
    pub(super) fn is_to_go(&self, replica: &Replica, was_tried: bool) -> bool {
        match self.cause {
            Cause::Code => true,
            Cause::Passing => was_tried,
            Cause::Rows => was_tried && replica.was_rebuilt_within(COPY_IS_NEW),
        }
    }
}

/// Stores that a replica goes on without a table's rows, of which it can't write those of an entry, and tells the router;
/// false if that was known of this entry: then it is something else.
///
/// # Errors
/// Those of the connection, or too many tables are set aside.
pub(super) async fn set_aside(
    config: &Config,
    relation: &Relation,
    tsid: Tsid,
    reason: &str,
) -> Result<bool> {
    const ADD: &str = "
        insert into hihooi.set_aside as s (relation, name, tsid, reason)
            values ($1::oid, pg_catalog.format('%I.%I', $2::text, $3::text), $4::int8, $5)
        on conflict (relation) do update set tsid = excluded.tsid, reason = excluded.reason
            where s.tsid <> excluded.tsid
        returning true";
    let login = progress::control_login(&config.replica.site, &config.database);
    let mut control = Connection::open(&login).await?;
    let known = config.replica.set_aside();
    if known.len() >= TABLES_MAX && !known.contains_key(&relation.id) {
        return Err(Error::Protocol(format!("{TABLES_MAX} tables are set aside already")));
    }
    let (id, tsid) = (relation.id.0.to_string(), tsid.0.to_string());
    let values = [id.as_str(), &relation.schema, &relation.name, &tsid, reason].map(Some);
    let added = control.query_with(ADD, &values).await?;
    tell(&config.replica, &mut control).await?;
    control.close().await;
    Ok(!added.rows.is_empty())
}

/// Tells the router which tables the replica has set aside, without those that are dropped.
pub(super) async fn tell(replica: &Replica, control: &mut Connection) -> Result<()> {
    const TOLD: &str =
        "update hihooi.set_aside set since = pg_catalog.clock_timestamp() where since is null";
    let tables = read(control).await?;
    let is_any = !tables.is_empty();
    replica.set_tables_aside(tables);
    if is_any {
        control.query(TOLD).await?;
    }
    Ok(())
}

async fn read(control: &mut Connection) -> Result<TablesSetAside> {
    const TIDY: &str =
        "delete from hihooi.set_aside where local not in (select oid from pg_catalog.pg_class)";
    const READ: &str =
        "select s.relation, coalesce(c.oid::pg_catalog.regclass::text, s.name), s.reason
                        from hihooi.set_aside s left join pg_catalog.pg_class c on c.oid = s.local";
    control.query(TIDY).await?;
    let found = control.query(READ).await?;
    let tables = found.rows.into_iter().filter_map(|row| {
        let [relation, name, reason] = <[_; 3]>::try_from(row).ok()?;
        Some((RelId(relation?.parse().ok()?), (name?, reason?)))
    });
    Ok(tables.collect())
}

/// Notes which table of the replica it is whose rows are skipped: only where the first of them would be written is it
/// certain which table has the name.
pub(super) async fn found(
    relation: &Relation,
    oid: &str,
    connection: &mut Connection,
) -> Result<()> {
    const FOUND: &str = "update hihooi.set_aside set local = $2::oid
                         where relation = $1::oid and local is distinct from $2::oid";
    let id = relation.id.0.to_string();
    connection.query_with(FOUND, &[Some(&id), Some(oid)]).await.map(drop)
}

/// Empties tables in front of DDL, so that rows which are no longer kept up to date fulfil what is added. Only TRUNCATE
/// runs no functions of indexes with our rights (what it runs, it runs as the owner, and keeps the rows if that fails); but
/// it takes the rows from older snapshots, too. So
/// a table isn't emptied while anybody has a snapshot who may have come before the router was told, nor if foreign keys refer
/// to it. (Of whoever came later the answer is dropped.)
pub(super) async fn empty_for_ddl(connection: &mut Connection) -> Result<()> {
    const TO_EMPTY: &str = "
        update hihooi.set_aside s set is_emptied = true
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where c.oid = s.local and c.relkind = 'r' and not s.is_emptied
          and s.since is not null
          and not exists (select from pg_catalog.pg_stat_activity a
              where a.backend_type = 'client backend' and a.backend_xmin is not null
                and coalesce(a.xact_start, '-infinity') <= s.since)
          and not exists (select from pg_catalog.pg_constraint k
              where k.contype = 'f' and k.confrelid = c.oid and k.conrelid <> k.confrelid)
        returning pg_catalog.format('TRUNCATE ONLY %I.%I', n.nspname, c.relname)";
    let texts = connection.query(TO_EMPTY).await?.rows;
    for text in texts.into_iter().flatten().flatten() {
        connection.query("SAVEPOINT hihooi_empty").await?;
        let end = match connection.query(&text).await {
            Ok(_) => "RELEASE SAVEPOINT hihooi_empty",
            // Its indexes run functions of constants, as their owner: what these raise is not about the DDL.
            Err(Error::Server(fields)) if !fields.ends_session() => {
                "ROLLBACK TO SAVEPOINT hihooi_empty; RELEASE SAVEPOINT hihooi_empty"
            }
            Err(lost) => return Err(lost),
        };
        connection.query(end).await?;
    }
    Ok(())
}

/// Ends whoever has kept [`empty_for_ddl`] from emptying a table by an older snapshot: what can't be applied may fail because
/// of the table's rows. (A copy of the primary, which comes next, would end all readers.)
pub(super) async fn end_older_readers(replica: &Replica, control: &mut Connection) -> Result<()> {
    const OLDER: &str = "
        select a.pid from pg_catalog.pg_stat_activity a
        where a.backend_type = 'client backend' and a.backend_xmin is not null and a.pid <> pg_catalog.pg_backend_pid()
          and coalesce(a.xact_start, '-infinity') <= (
              select pg_catalog.max(since) from hihooi.set_aside where not is_emptied)";
    for end in ["pg_cancel_backend($1)", "pg_terminate_backend($1, 1000)"] {
        let older = control.query(OLDER).await?.rows;
        if older.is_empty() {
            break;
        }
        for process in older.into_iter().flatten().flatten() {
            let site = &replica.site.name;
            tracing::warn!(
                site,
                process,
                end,
                "it reads a table as it was before it was set aside"
            );
            replica.ends_session(process.parse().unwrap_or_default());
            control.query_with(&format!("select pg_catalog.{end}"), &[Some(&process)]).await?;
        }
        tokio::time::sleep(CANCEL_PATIENCE).await;
    }
    Ok(())
}

/// Brings tables back that an entry has emptied, unless the rows behind that in the same entry can't be written. `$1` is
/// their OIDs at the primary, `$2` the entry.
pub(super) const BRING_BACK: &str = "
    delete from hihooi.set_aside
    where relation = any ($1::pg_catalog.oid[]) and tsid <> $2::pg_catalog.int8";
