//! How long ago an entry of the log was committed.

use std::time::{SystemTime, UNIX_EPOCH};

use hihooi_replication::ids::Tsid;

use crate::relay::Relay;

/// Microseconds between 1970 and 2000, from which PostgreSQL counts.
const EPOCH_2000_US: i64 = 946_684_800_000_000;

impl Relay {
    /// How long ago an entry was committed, milliseconds by the primary's clock and ours; `None` if it is not in the
    /// log.
    pub async fn age_ms(&self, tsid: Tsid) -> Option<u64> {
        let entries = self.log.read(tsid, 1, 1).await.ok()?;
        let committed_us = entries.first()?.header.commit_time_us + EPOCH_2000_US;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let age_us = i64::try_from(now.as_micros()).ok()? - committed_us;
        u64::try_from(age_us / 1_000).ok().or(Some(0))
    }
}
