//! Appliers: our connections that write the log's entries to a replica, in parallel where rows
//! differ, committing strictly in the log's order (I2), exactly once (I5).

mod handle;
pub mod source;
pub mod stats;
pub mod visibility;

pub use handle::{ApplierHandle, HoldError};
pub use source::Source;
pub use stats::ApplyStats;
pub use visibility::Visibility;

use std::sync::Arc;

use crate::connection::Login;
use crate::site::Replica;

/// What an applier is started with.
#[derive(Clone)]
pub struct Config {
    /// The replica; its state and applied prefix are written by the applier.
    pub replica: Arc<Replica>,
    /// The database that is replicated.
    pub database: String,
    /// Connections that write, at least 1; [`CONNECTIONS`] is usual.
    pub connections: usize,
    /// Replication origins are called `{origin}_0`, `{origin}_1` …; `hihooi` is usual.
    pub origin: String,
    /// The log.
    pub source: Arc<dyn Source>,
    /// What the primary shows.
    pub visibility: Arc<Visibility>,
}

/// Connections that write to a replica, unless told otherwise.
pub const CONNECTIONS: usize = 4;

/// Starts an applier on the current runtime. It connects by itself, again and again if need be,
/// and publishes the replica's state.
#[must_use]
pub fn start(config: Config) -> ApplierHandle {
    let _ = Login::new;
    let _ = config;
    unimplemented!("the applier's task")
}
