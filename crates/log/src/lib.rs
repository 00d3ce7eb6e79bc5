//! The log: every committed transaction of one replicated database, in the order of the
//! primary's write-ahead log, durable (I5). It is the papers' Transactions Buffer and Archiver
//! Buffer in one (Hihooi sections 3 and 4), and also keeps what a new manager must know of an
//! old one: epochs and server connections.
//!
//! [`Log`] is the embedded implementation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hihooi_replication::entry::{Entry, Header};
use hihooi_replication::ids::Tsid;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Entries up to this many bytes in all are kept in memory for [`Log::read`]; older ones are
/// read from disk.
pub const TAIL_LEN_MAX: usize = 64 << 20;
/// Appended but not yet written bytes; [`Log::append`] waits at this bound (I8).
pub const PENDING_LEN_MAX: usize = 64 << 20;

/// Why the log can't do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has the directory open.
    #[error("the log in {0} is in use by another process; stop that one first")]
    Locked(PathBuf),
    /// A record has a format that this version does not know, or is damaged.
    #[error("the log holds a record this version can't read: {0}")]
    Format(String),
    /// An entry that does not follow the last one.
    #[error("entry {got} does not follow entry {last} of the log")]
    Gap {
        /// Last entry in the log.
        last: Tsid,
        /// The entry that was to be appended.
        got: Tsid,
    },
    /// The entry was trimmed: whoever needs it must be cloned anew.
    #[error("entry {wanted} is no longer in the log, which begins at {first}")]
    Trimmed {
        /// What was asked for.
        wanted: Tsid,
        /// What is still there.
        first: Tsid,
    },
    /// The disk failed. Nothing more is accepted: the process must open the log again.
    #[error("the log failed: {0}")]
    Failed(String),
}

/// The result of using the log.
pub type Result<T> = std::result::Result<T, Error>;

/// A server connection of some manager, noted before its first statement, so that a later
/// manager can end it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BackendRecord {
    /// Epoch of the manager that opened it.
    pub epoch: u64,
    /// Name of the site.
    pub site: String,
    /// Process id of the backend there.
    pub pid: i32,
    /// `backend_start` of `pg_stat_activity`, as printed there: pids are used again.
    pub backend_start: String,
}

/// The embedded log. Clones share it.
#[derive(Clone)]
pub struct Log {}

#[allow(unused_variables, clippy::unused_async)]
impl Log {
    /// Opens the log in `dir`, which is made if missing.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open; [`Error::Format`] if a newer version
    /// wrote it.
    pub fn open(dir: &Path) -> Result<Log> {
        unimplemented!("skeleton")
    }

    /// Stores chunk `n` of the entry that will get `tsid`. Waits at [`PENDING_LEN_MAX`].
    /// The entry does not exist before [`Log::append`] of its header.
    pub async fn append_chunk(&self, tsid: Tsid, n: u32, bytes: Bytes) -> Result<()> {
        unimplemented!("skeleton")
    }

    /// Appends an entry; its chunks travel inside, or were stored before by
    /// [`Log::append_chunk`]. Idempotent: an entry already there, by incarnation and commit LSN,
    /// is skipped and `false` returned. Waits at [`PENDING_LEN_MAX`], never for the disk
    /// otherwise; visible to [`Log::read`] at once, durable when [`Log::durable`] says so.
    ///
    /// # Errors
    /// [`Error::Gap`] if it does not follow the last entry.
    pub async fn append(&self, entry: Entry) -> Result<bool> {
        unimplemented!("skeleton")
    }

    /// Starts making durable what was appended; never waits.
    pub fn flush(&self) {
        unimplemented!("skeleton")
    }

    /// Makes durable what was appended so far; returns the last durable entry.
    pub async fn persist(&self) -> Result<Tsid> {
        unimplemented!("skeleton")
    }

    /// The last entry that is durable. Replicas commit nothing beyond (log before apply).
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<Tsid> {
        unimplemented!("skeleton")
    }

    /// Header of the last appended entry: where the collector goes on.
    #[must_use]
    pub fn last(&self) -> Option<Header> {
        unimplemented!("skeleton")
    }

    /// The oldest entry still there; 1 while the log is empty.
    #[must_use]
    pub fn first(&self) -> Tsid {
        unimplemented!("skeleton")
    }

    /// Entries from `from` on, in order without gap: at most `entries_max`, and no more than
    /// `bytes_max` bytes of chunks unless the first one alone is larger. Empty if `from` was not
    /// appended yet. Includes entries that are not durable yet: look at [`Log::durable`].
    /// Of an entry with more than one chunk `chunks` is empty: use [`Log::chunk`].
    ///
    /// # Errors
    /// [`Error::Trimmed`] if `from` is gone.
    pub async fn read(
        &self,
        from: Tsid,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<Entry>>> {
        unimplemented!("skeleton")
    }

    /// Chunk `n` of a durable entry.
    pub async fn chunk(&self, tsid: Tsid, n: u32) -> Result<Bytes> {
        unimplemented!("skeleton")
    }

    /// Forgets every entry below `below`, except the last one of the log.
    pub async fn trim(&self, below: Tsid) -> Result<()> {
        unimplemented!("skeleton")
    }

    /// Takes the next epoch, durably: a number greater than any manager before had.
    pub async fn take_epoch(&self) -> Result<u64> {
        unimplemented!("skeleton")
    }

    /// Notes a server connection, durably before it returns.
    pub async fn record_backend(&self, backend: &BackendRecord) -> Result<()> {
        unimplemented!("skeleton")
    }

    /// Forgets a server connection that is closed. Lazy: may come back after a crash.
    pub fn forget_backend(&self, backend: &BackendRecord) {
        unimplemented!("skeleton")
    }

    /// Connections noted by managers of epochs below `epoch`.
    pub async fn backends_before(&self, epoch: u64) -> Result<Vec<BackendRecord>> {
        unimplemented!("skeleton")
    }

    /// A small value kept under a name, such as the incarnation.
    pub fn meta(&self, name: &str) -> Result<Option<Bytes>> {
        unimplemented!("skeleton")
    }

    /// Keeps a small value, durably before it returns.
    pub async fn set_meta(&self, name: &str, value: &[u8]) -> Result<()> {
        unimplemented!("skeleton")
    }
}
