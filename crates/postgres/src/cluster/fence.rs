//! Fencing off the managers of older epochs (I5): a manager takes an epoch in the log and terminates every
//! server connection that older managers recorded there, before it relies on anything that it reads from the
//! servers.

use std::time::Duration;

use hihooi_log::{BackendRecord, Log};
use tokio::time::{Instant, sleep};

use crate::connection::{self, Connection, Login};
use crate::site::Site;

/// How long the backends of older epochs may take to end.
pub const END_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks whether they are gone.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How managers name the connections that they open for themselves, as a LIKE pattern.
const OWN_NAMES: &str = "hihooi %";
/// Backends that one statement names.
const RECORDS_AT_ONCE: usize = 500;

/// Asks a session when its own backend started, in microseconds since 1970. With the process id
/// this names a backend for ever, since process ids come again. Safe under any `search_path`.
pub const BACKEND_START: &str = "SELECT (extract(epoch FROM a.backend_start) \
     OPERATOR(pg_catalog.*) 1000000)::bigint \
     FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a";

/// Why old backends could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The site can't be asked.
    #[error(transparent)]
    Site(#[from] connection::Error),
    /// The log can't be asked.
    #[error(transparent)]
    Log(#[from] hihooi_log::Error),
    /// They are still there after [`END_LIMIT`].
    #[error("{0} server connections of an earlier manager don't end: see pg_stat_activity")]
    Stubborn(usize),
}

/// A manager's epoch: what it notes of its own connections, and how it ends those of others.
/// Clones stand for the same epoch.
#[derive(Clone)]
pub struct Fence {
    log: Log,
    epoch: u64,
}

impl Fence {
    /// Takes a new epoch in the log, durably.
    ///
    /// # Errors
    /// What the log says.
    pub async fn take(log: Log) -> hihooi_log::Result<Fence> {
        let epoch = log.take_epoch().await?;
        Ok(Fence { log, epoch })
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Notes a fresh connection of our own durably; to be called before it does anything else.
    /// The record is what [`Fence::forget`] takes when the connection is closed.
    ///
    /// # Errors
    /// What the connection or the log says.
    pub async fn record(
        &self,
        site: &str,
        connection: &mut Connection,
    ) -> Result<BackendRecord, Error> {
        // (ALTER ROLE … SET role may give the session another role, which doesn't see it.)
        let text = format!(
            "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL ROLE NONE; {BACKEND_START}; COMMIT"
        );
        let answers = connection.simple(&text).await?;
        let start = answers.iter().find_map(|answer| answer.value());
        let start = start.map(str::to_owned).ok_or_else(|| {
            connection::Error::Protocol("the server gave no start time of a backend".to_owned())
        })?;
        Ok(self.record_backend(site, connection.key().process, start).await?)
    }

    /// Notes a connection by its backend's process id and its answer to [`BACKEND_START`].
    ///
    /// # Errors
    /// What the log says.
    pub async fn record_backend(
        &self,
        site: &str,
        pid: i32,
        backend_start: String,
    ) -> hihooi_log::Result<BackendRecord> {
        let site = site.to_owned();
        let record = BackendRecord { epoch: self.epoch, site, pid, backend_start };
        self.log.record_backend(&record).await?;
        Ok(record)
    }

    /// Forgets a connection that is closed.
    pub fn forget(&self, record: &BackendRecord) {
        self.log.forget_backend(record);
    }

    /// Ends what managers of older epochs left open at `site`, and waits until it is gone. Until
    /// this succeeded, nothing there can be trusted. Returns how many records there were.
    ///
    /// # Errors
    /// The site or the log can't be asked, or [`Error::Stubborn`].
    pub async fn end_older(&self, site: &Site) -> Result<usize, Error> {
        let mut records = self.log.backends_before(self.epoch).await?;
        records.retain(|record| record.site == site.name);
        if records.is_empty() {
            return Ok(0);
        }
        let login = Login::new(site.address.clone(), &site.user, "postgres", "hihooi fence");
        let mut connection = Connection::open(&login).await?;
        end(&mut connection, &records).await?;
        connection.close().await;
        for record in &records {
            self.log.forget_backend(record);
        }
        Ok(records.len())
    }
}

/// Ends the connections that earlier managers opened for themselves (appliers and the like),
/// which are known by their names: to be called after [`Fence::end_older`] and before the first
/// of our own. Waits until they are gone.
///
/// # Errors
/// The site can't be asked, or [`Error::Stubborn`].
pub async fn end_unrecorded(connection: &mut Connection) -> Result<(), Error> {
    let deadline = Instant::now() + END_LIMIT;
    let text = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name LIKE '{OWN_NAMES}' AND usename = current_user \
         AND backend_start < (SELECT backend_start FROM pg_stat_activity \
                              WHERE pid = pg_backend_pid())"
    );
    loop {
        let left = connection.query(&text).await?.rows.len();
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::Stubborn(left));
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn end(connection: &mut Connection, records: &[BackendRecord]) -> Result<(), Error> {
    let deadline = Instant::now() + END_LIMIT;
    for some in records.chunks(RECORDS_AT_ONCE) {
        loop {
            let left = terminate(connection, some).await?;
            if left == 0 {
                break;
            }
            if Instant::now() > deadline {
                return Err(Error::Stubborn(left));
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Asks the live ones to end; how many there were.
async fn terminate(
    connection: &mut Connection,
    records: &[BackendRecord],
) -> connection::Result<usize> {
    let live: Vec<String> = records
        .iter()
        // What isn't a number was not written by this version and can't name a backend.
        .filter_map(|record| Some((record.pid, record.backend_start.parse::<i64>().ok()?)))
        .map(|(pid, start_us)| format!("({pid}, {start_us}::bigint)"))
        .collect();
    if live.is_empty() {
        return Ok(0);
    }
    let text = format!(
        "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a \
         JOIN (VALUES {}) AS old (pid, start_us) ON a.pid = old.pid \
         AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = old.start_us \
         WHERE a.pid <> pg_backend_pid()",
        live.join(", ")
    );
    Ok(connection.query(&text).await?.rows.len())
}
