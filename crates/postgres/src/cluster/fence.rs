//! Fencing off the managers of older epochs (I5): a manager takes an epoch in the log and ends
//! every server connection that older ones recorded there, before it trusts what it sees.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::connection::{self, Connection};

/// How long the backends of older epochs may take to go away.
pub const END_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks whether they are gone.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks a session when its own backend started, in microseconds since 1970. With the process id
/// this names a backend for ever, since process ids come again. Safe under any `search_path`.
pub const BACKEND_START: &str = "SELECT (extract(epoch FROM a.backend_start) \
     OPERATOR(pg_catalog.*) 1000000)::bigint \
     FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a";

/// A backend of a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Backend {
    /// Process id.
    pub pid: i32,
    /// When it started, microseconds since 1970.
    pub start_us: i64,
}

/// Why old backends could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The site can't be asked.
    #[error(transparent)]
    Site(#[from] connection::Error),
    /// They are still there after [`END_LIMIT`].
    #[error("{0} server connections of an earlier manager don't end: see pg_stat_activity")]
    Stubborn(usize),
}

/// The backend that serves `connection`.
///
/// # Errors
/// What the connection says.
pub async fn backend_of(connection: &mut Connection) -> connection::Result<Backend> {
    let answer = connection.query(BACKEND_START).await?;
    let start_us = answer.value().and_then(|value| value.parse().ok());
    let start_us = start_us
        .ok_or_else(|| connection::Error::Protocol("no start time of the backend".to_owned()))?;
    Ok(Backend { pid: connection.key().process, start_us })
}

/// Ends those of `backends` that still live, and waits until they are gone.
///
/// # Errors
/// [`Error::Stubborn`] when some live on.
pub async fn end(connection: &mut Connection, backends: &[Backend]) -> Result<(), Error> {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        let left = terminate(connection, backends).await?;
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::Stubborn(left));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Asks the live ones to end; how many there were.
async fn terminate(connection: &mut Connection, backends: &[Backend]) -> connection::Result<usize> {
    if backends.is_empty() {
        return Ok(0);
    }
    let mut values = String::new();
    for Backend { pid, start_us } in backends {
        let comma = if values.is_empty() { "" } else { ", " };
        values.push_str(&format!("{comma}({pid}, {start_us}::bigint)"));
    }
    let text = format!(
        "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a \
         JOIN (VALUES {values}) AS old (pid, start_us) ON a.pid = old.pid \
         AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = old.start_us \
         WHERE a.pid <> pg_backend_pid()"
    );
    Ok(connection.query(&text).await?.rows.len())
}
