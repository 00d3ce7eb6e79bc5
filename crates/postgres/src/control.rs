//! Requests of the admin database to the replication side, which runs on another thread.

use tokio::sync::{mpsc, oneshot};

use crate::verify::Report;

/// Requests that wait at most; further ones wait for their turn (I8).
pub const REQUESTS_MAX: usize = 16;
/// News of long work on their way to the client at most.
pub const NEWS_MAX: usize = 64;

/// One request. An answer that nobody waits for any more is dropped.
#[derive(Debug)]
pub enum ControlRequest {
    /// `PAUSE REPLICA name`.
    Pause {
        /// The replica.
        replica: String,
        /// Gets the answer; an error is a sentence for the operator.
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// `RESUME REPLICA name`.
    Resume {
        /// The replica.
        replica: String,
        /// Gets the answer; an error is a sentence for the operator.
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// `VERIFY`.
    Verify {
        /// Gets progress, then the result, of capacity [`NEWS_MAX`].
        news: mpsc::Sender<News<Report>>,
    },
    /// `REBUILD REPLICA name`.
    Rebuild {
        /// The replica.
        replica: String,
        /// Also if it serves reads.
        is_forced: bool,
        /// Gets progress, then the result, of capacity [`NEWS_MAX`].
        news: mpsc::Sender<News<()>>,
    },
}

/// What long work tells.
#[derive(Debug)]
pub enum News<T> {
    /// A line for the user.
    Progress(String),
    /// The end: what was found, or why it couldn't be done.
    Done(Result<T, String>),
}
