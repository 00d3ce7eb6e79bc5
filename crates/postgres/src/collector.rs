//! The collector: turns the primary's logical replication stream into entries of the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hihooi_log::Log;
use hihooi_replication::ddl::ClusterKey;
use hihooi_replication::entry::Header;
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_replication::items::Items;
use tokio::sync::{Notify, mpsc, watch};

use crate::connection::Address;

/// What is said of an entry as soon as its commit was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntrySummary {
    /// Position in the log.
    pub tsid: Tsid,
    /// Low 32 bits of the transaction's id.
    pub xid: u32,
    /// LSN of the commit record.
    pub commit_lsn: Lsn,
    /// LSN right behind it.
    pub end_lsn: Lsn,
    /// What the transaction wrote.
    pub items: Items,
    /// Whether it holds DDL.
    pub has_ddl: bool,
    /// Commit time, microseconds since 2000-01-01 UTC.
    pub commit_time_us: i64,
}

impl From<&Header> for EntrySummary {
    fn from(header: &Header) -> EntrySummary {
        EntrySummary {
            tsid: header.tsid,
            xid: header.xid,
            commit_lsn: header.commit_lsn,
            end_lsn: header.end_lsn,
            items: header.items.clone(),
            has_ddl: header.has_ddl,
            commit_time_us: header.commit_time_us,
        }
    }
}

/// What the stream told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamEvent {
    /// A transaction that committed. Sent when received, before it is durable in the log: it
    /// tells what was written; appliers wait for [`Log::durable`].
    Entry(EntrySummary),
    /// Every transaction whose commit record begins before this LSN has been told. Never
    /// overtakes an entry.
    Passed(Lsn),
}

/// What others may know of the collector at any moment.
#[derive(Debug, Default)]
pub struct CollectorStatus {
    /// Whether the stream runs. While it does not, lag is unknown.
    pub connected: AtomicBool,
    received: AtomicU64,
    confirmed: AtomicU64,
    error: Mutex<String>,
}

impl CollectorStatus {
    /// Everything before this LSN was received.
    #[must_use]
    pub fn received(&self) -> Lsn {
        Lsn(self.received.load(Ordering::Acquire))
    }

    /// What was last confirmed to the slot.
    #[must_use]
    pub fn confirmed(&self) -> Lsn {
        Lsn(self.confirmed.load(Ordering::Acquire))
    }

    /// Why the stream last broke; empty while it runs.
    #[must_use]
    pub fn error(&self) -> String {
        self.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// Where the collector reads, and what it needs to know for it.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// The primary.
    pub address: Address,
    /// A superuser there.
    pub user: String,
    /// The replicated database.
    pub database: String,
    /// Incarnation of the primary.
    pub incarnation: u32,
    /// Authenticates DDL messages.
    pub key: ClusterKey,
}

/// Why the collector gave up; what can mend itself is retried instead.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The log can't take entries.
    #[error(transparent)]
    Log(#[from] hihooi_log::Error),
    /// Someone else reads the slot.
    #[error("{0}")]
    SlotInUse(String),
    /// The slot can't be read any more, or the stream can't be understood.
    #[error("{0}")]
    Broken(String),
}

/// Reads the stream into the log until `shutdown` turns true (or its sender is gone), over
/// restarts of the primary. `poke` makes the server tell its position at once. A full `events`
/// holds the stream back.
///
/// # Errors
/// What needs an operator, see [`CollectorError`].
pub async fn run(
    config: CollectorConfig,
    log: Log,
    events: mpsc::Sender<StreamEvent>,
    poke: Arc<Notify>,
    status: Arc<CollectorStatus>,
    shutdown: watch::Receiver<bool>,
) -> Result<(), CollectorError> {
    let _ = (config, log, events, poke, status, shutdown);
    unimplemented!("skeleton")
}
