//! The log: every committed transaction of one replicated database, in the order of the primary's write-ahead
//! log, durable (I5). It is the Transactions Buffer and the Archiver Buffer of the Hihooi paper (sections 3
//! and 4) in one. It also stores what a new manager must know about earlier ones: epochs and server connections.
//!
//! [`Log`] is the embedded implementation.

mod embedded;
mod record;
mod segment;
mod store;
mod tail;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use hihooi_replication::ids::Tsid;
use serde::{Deserialize, Serialize};

/// Entries up to this many bytes in all are kept in memory for [`Log::read`]; older ones are
/// read from disk.
pub const TAIL_LEN_MAX: usize = 16 << 20;
/// Appended but not yet written bytes; [`Log::append`] waits at this bound (I8).
pub const PENDING_LEN_MAX: usize = 16 << 20;

/// Name of the thread that writes the log, as the operating system has it (15 bytes at most).
pub const WRITER: &str = "log writer";

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
    /// The entry was trimmed: a replica that needs it must be copied again.
    #[error("entry {wanted} is no longer in the log, which begins at {first}")]
    Trimmed {
        /// What was asked for.
        wanted: Tsid,
        /// What is still there.
        first: Tsid,
    },
    /// The disk takes nothing now, because it is full for example. It is tried again and again.
    #[error("the log can't be written: {0}")]
    Disk(String),
    /// Nothing more is accepted: the process must open the log again.
    #[error("the log failed: {0}")]
    Failed(String),
}

/// The result of using the log.
pub type Result<T> = std::result::Result<T, Error>;

/// A server connection of some manager, noted before its first statement, so that a later
/// manager can end it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
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

/// The embedded log. Clones share it; when the last one goes, what is pending becomes durable.
#[derive(Clone)]
pub struct Log {
    inner: Arc<embedded::Inner>,
}
