//! Where an applier takes its entries from: the log, seen as narrowly as appliers need it.

use std::sync::Arc;

use bytes::Bytes;
use hihooi_replication::entry::Entry;
use hihooi_replication::ids::Tsid;
use tokio::sync::watch;

/// The log as appliers see it. Calls return at once (memory or local disk).
pub trait Source: Send + Sync + 'static {
    /// The entries from `from` on, in order: at most `entries_max`, and no more than make up
    /// about `bytes_max`, but at least one if there is one. Entries that are not durable yet
    /// may be among them.
    ///
    /// # Errors
    /// A sentence for the operator when `from` is no longer held, or the log can't be read.
    fn read(
        &self,
        from: Tsid,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<Entry>>, String>;

    /// One chunk of a large entry.
    ///
    /// # Errors
    /// As for [`Source::read`].
    fn chunk(&self, tsid: Tsid, number: u32) -> Result<Bytes, String>;

    /// The position up to which the log is durable; changes when it grows.
    fn durable(&self) -> watch::Receiver<Tsid>;

    /// The oldest entry that is held; one past the last when none is.
    fn first(&self) -> Tsid;

    /// The newest entry.
    fn last(&self) -> Tsid;
}
