//! Whether a server and a log belong to the same cluster (I5). Before that is known, hihooi reads nothing from
//! the server, writes nothing to it, and terminates no connection there.
//!
//! | where | what stands there |
//! |---|---|
//! | primary, `hihooi.cluster` | the cluster's id; the primary's name, once a manager has begun a log for it |
//! | replica, `hihooi.cluster` | the same id, as a copy of the primary; the replica's own name |
//! | log | the id; how far the log reaches, written before the slot is confirmed beyond its last entry |
//!
//! If a slot was confirmed beyond that, another process has read it, and entries are missing in the log.
//! Clusters created before there were ids get one at the next start. Then `PostgreSQL`'s own system identifier,
//! which copies have in common, shows whether a replica is a copy of the primary.

use hihooi_log::Log;
use hihooi_replication::ids::Lsn;

use crate::connection::{self, Connection};
use crate::setup::{REBUILD, SLOT};

/// Names in the log.
const CLUSTER: &str = "cluster";
const SYSTEM: &str = "system";
const REACH: &str = "reach";

/// Makes the table where it is missing; in a transaction of its own or a script's.
pub(crate) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS hihooi.cluster (
        id uuid NOT NULL,
        site text,
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)
    );
    REVOKE ALL ON hihooi.cluster FROM PUBLIC;
    GRANT SELECT ON hihooi.cluster TO PUBLIC;";
/// Gives a new cluster its id.
pub(crate) const BEGIN: &str = "
    INSERT INTO hihooi.cluster (id) SELECT pg_catalog.gen_random_uuid()
        WHERE NOT EXISTS (SELECT FROM hihooi.cluster);";

/// Why a server isn't used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It can't be asked.
    #[error(transparent)]
    Connection(#[from] connection::Error),
    /// The log can't be asked, or written.
    #[error(transparent)]
    Log(#[from] hihooi_log::Error),
    /// It isn't what it should be; one line that names both sides and the remedy.
    #[error("{0}")]
    Stranger(String),
}

type Result<T> = std::result::Result<T, Error>;

/// The identity that a server reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// `PostgreSQL`'s system identifier, which copies of a data directory share.
    pub system: String,
    /// The cluster's id; `None` if it belongs to no cluster, or to one without ids.
    pub cluster: Option<String>,
    /// The site's name; `None` in a copy that nobody has used yet.
    pub site: Option<String>,
}

impl Identity {
    /// What the server says that it is. A view, or what belongs to somebody who is no superuser, says
    /// nothing: whose server this is isn't known yet, and asking it must not run his code.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn read(connection: &mut Connection) -> connection::Result<Identity> {
        let asked = "SELECT system_identifier, EXISTS (
                         SELECT FROM pg_catalog.pg_class c
                             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                             JOIN pg_catalog.pg_roles r ON r.oid = c.relowner AND r.rolsuper
                         WHERE n.nspname = 'hihooi' AND c.relname = 'cluster' AND c.relkind = 'r')
                     FROM pg_catalog.pg_control_system()";
        let mut found = connection.query(asked).await?.rows.pop().unwrap_or_default();
        let has_table = found.pop().flatten().as_deref() == Some("t");
        let system = found.pop().flatten().unwrap_or_default();
        let mut row = match has_table {
            true => connection.query("SELECT id, site FROM hihooi.cluster").await?.rows.pop(),
            false => None,
        }
        .unwrap_or_default();
        let site = row.pop().flatten();
        Ok(Identity { system, cluster: row.pop().flatten(), site })
    }

    /// Why this isn't site `name` of a cluster whose primary has this system identifier; `None` if
    /// nothing speaks against it.
    #[must_use]
    pub fn problem(&self, cluster: &str, system: &str, name: &str) -> Option<String> {
        match (&self.cluster, &self.site) {
            (Some(own), _) if own != cluster => Some(format!(
                "it belongs to cluster {own}, not to this one, {cluster}: correct the site's host and port, \
                 or pass its own cluster's directory with --data"
            )),
            (Some(_), Some(site)) if site != name => Some(format!(
                "it is {site} of its cluster, not {name}: correct the site's host and port, or its name"
            )),
            (None, _) if self.system != system => Some(format!(
                "it belongs to no cluster and is no copy of the primary (system identifiers {} and \
                 {system}): correct the site's host and port, or copy the primary's data directory",
                self.system
            )),
            _ => None,
        }
    }

    /// Writes where it isn't written yet which site of which cluster this is.
    async fn sign(&self, connection: &mut Connection, cluster: &str, name: &str) -> Result<()> {
        // As one: an id of its own would make it a stranger.
        connection.simple("BEGIN").await?;
        if self.cluster.is_none() {
            let table = format!(
                "SET LOCAL session_replication_role = replica;
                 CREATE SCHEMA IF NOT EXISTS hihooi; {TABLE} {BEGIN}"
            );
            connection.simple(&table).await?;
        }
        if self.site.is_none() {
            let sign = "UPDATE hihooi.cluster SET id = $1::uuid, site = $2";
            connection.query_with(sign, &[Some(cluster), Some(name)]).await?;
        }
        connection.simple("COMMIT").await?;
        Ok(())
    }
}

/// Makes a copy of the primary the site `name` of the same cluster. `connection` is a superuser's.
///
/// # Errors
/// Those of the connection.
pub(crate) async fn rename(connection: &mut Connection, name: &str) -> connection::Result<()> {
    let rename = "UPDATE hihooi.cluster SET site = $1";
    connection.query_with(rename, &[Some(name)]).await.map(|_| ())
}

/// Gives the cluster of this primary another id, and forgets which site it is. Without effect on a server
/// that belongs to no cluster. `connection` is a superuser's.
///
/// # Errors
/// Those of the connection.
pub(crate) async fn renew(connection: &mut Connection) -> connection::Result<()> {
    if Identity::read(connection).await?.cluster.is_some() {
        let renew = "UPDATE hihooi.cluster SET id = pg_catalog.gen_random_uuid(), site = NULL";
        connection.query(renew).await?;
    }
    Ok(())
}

/// Whether the server is the primary that the log belongs to. Nothing is changed.
///
/// # Errors
/// [`Error::Stranger`] if not.
pub async fn check_primary(connection: &mut Connection, log: &Log, name: &str) -> Result<()> {
    let here = Identity::read(connection).await?;
    let problem = match (kept(log, CLUSTER)?, kept(log, SYSTEM)?) {
        (Some(cluster), Some(system)) => here.problem(&cluster, &system, name),
        _ => match (here.cluster, here.site) {
            (Some(cluster), Some(_)) => Some(format!(
                "it belongs to cluster {cluster}, whose log is not in this data directory: pass the \
                 cluster's own directory with --data, or {REBUILD}"
            )),
            _ => None,
        },
    };
    problem.map_or(Ok(()), |text| Err(Error::Stranger(text)))
}

/// Whether nobody else has read the slot, so that the log holds all that was confirmed.
///
/// # Errors
/// [`Error::Stranger`] if somebody has.
pub async fn check_slot(connection: &mut Connection, log: &Log) -> Result<()> {
    let Some(reach) = reach(log)? else { return Ok(()) };
    let confirmed = confirmed(connection).await?;
    if confirmed <= reach {
        return Ok(());
    }
    Err(Error::Stranger(format!(
        "replication slot {SLOT:?} was read up to {confirmed}, but the log reaches only to {reach}: another \
         hihooi with another data directory has served this server. Continue with that directory, or {REBUILD}"
    )))
}

/// Writes into log and primary that they belong together, where it isn't written yet: the first time a
/// manager runs, or the first time one runs that knows of ids. `connection` is a superuser's; the primary
/// was checked, and our objects are there.
///
/// # Errors
/// [`Error::Connection`], [`Error::Log`].
pub async fn take_primary(connection: &mut Connection, log: &Log, name: &str) -> Result<()> {
    let here = Identity::read(connection).await?;
    let cluster = match kept(log, CLUSTER)? {
        Some(cluster) => cluster,
        None => {
            let cluster = here.cluster.clone().unwrap_or_default();
            mark_reach(log, confirmed(connection).await?).await?;
            log.set_meta(SYSTEM, here.system.as_bytes()).await?;
            log.set_meta(CLUSTER, cluster.as_bytes()).await?;
            cluster
        }
    };
    here.sign(connection, &cluster, name).await
}

/// Writes into the primary again, where it was dropped, what the log knows of it. `connection` is a
/// superuser's; the primary was checked.
///
/// # Errors
/// [`Error::Connection`], [`Error::Log`].
pub async fn restore_primary(connection: &mut Connection, log: &Log, name: &str) -> Result<()> {
    match kept(log, CLUSTER)? {
        Some(cluster) => Identity::read(connection).await?.sign(connection, &cluster, name).await,
        None => Ok(()),
    }
}

/// Makes sure that the server is the replica of that name in the log's cluster; a copy that nobody has
/// used yet becomes it. `connection` is a superuser's.
///
/// # Errors
/// [`Error::Stranger`] if it isn't; nothing was changed there.
pub async fn take_replica(connection: &mut Connection, log: &Log, name: &str) -> Result<()> {
    let (Some(cluster), Some(system)) = (kept(log, CLUSTER)?, kept(log, SYSTEM)?) else {
        return Ok(());
    };
    let here = Identity::read(connection).await?;
    match here.problem(&cluster, &system, name) {
        Some(text) => Err(Error::Stranger(text)),
        None => here.sign(connection, &cluster, name).await,
    }
}

/// How far the log reaches: everything before it is in the log, or concerns nobody. `None` before a
/// manager has taken the primary.
///
/// # Errors
/// Those of the log.
pub fn reach(log: &Log) -> hihooi_log::Result<Option<Lsn>> {
    let marked = kept(log, REACH)?.and_then(|text| text.parse().ok());
    Ok(marked.map(|marked: Lsn| marked.max(log.last().map_or(Lsn(0), |last| last.end_lsn))))
}

/// Notes how far the log reaches, durably before it returns.
///
/// # Errors
/// Those of the log.
pub async fn mark_reach(log: &Log, reach: Lsn) -> hihooi_log::Result<()> {
    log.set_meta(REACH, reach.to_string().as_bytes()).await
}

/// The LSN up to which the slot is confirmed; 0 if there is none.
async fn confirmed(connection: &mut Connection) -> Result<Lsn> {
    let asked =
        "SELECT confirmed_flush_lsn FROM pg_catalog.pg_replication_slots WHERE slot_name = $1";
    let found = connection.query_with(asked, &[Some(SLOT)]).await?;
    Ok(found.value().and_then(|text| text.parse().ok()).unwrap_or(Lsn(0)))
}

fn kept(log: &Log, name: &str) -> hihooi_log::Result<Option<String>> {
    Ok(log.meta(name)?.map(|value| String::from_utf8_lossy(&value).into_owned()))
}
