//! Passes over transactions that the server can't decode. PostgreSQL has written some into its WAL (decision 0005)
//! at which logical decoding fails whenever it comes to them, so that all replicas would stand still, and the slot
//! would keep WAL until the disk is full.
//!
//! Decoding is begun anew at the primary's present position instead. When it has come there, nothing but those
//! transactions was in the way. Then one entry stands in the log for all that were left out. It may have written
//! anything, and no replica can apply it: each is replaced by a copy of the primary (decision 0022).

use std::time::Duration;

use hihooi_replication::assemble::{AssembleError, Assembler, Output};
use hihooi_replication::ids::Lsn;

use super::{Interrupted, StreamContext};
use crate::connection::{Connection, Login};
use crate::wal_positions::WalPositions;

/// How often the primary is asked whether its open transactions have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is passed over.
pub(super) struct Over {
    /// All transactions whose commit record begins before this. They have ended at the primary.
    pub(super) end: Lsn,
    /// The last one's id that had ended before.
    xid: u32,
    /// In words.
    why: String,
}

/// Where passing over can end: at the primary's present position, once it shows all that was committed before,
/// since the entry is taken to be shown. (A commit that waits for a synchronous standby isn't.) That waits for
/// the transactions that are open now.
pub(super) async fn find_end(context: &StreamContext, why: &str) -> Result<Over, Interrupted> {
    let config = &context.config;
    let login = Login::new(config.address.clone(), &config.user, &config.database, "hihooi");
    let mut positions = WalPositions::new(Connection::open(&login).await?).await?;
    let xid = all_ended(&mut positions).await?;
    let end = positions.lsn_after().await?;
    positions.ensure_flushed(end).await?;
    all_ended(&mut positions).await?;
    positions.close().await;
    Ok(Over { end, xid: u32::try_from(xid & 0xFFFF_FFFF).unwrap_or_default(), why: why.to_owned() })
}

/// Waits until all transactions that are open now have ended; the last one's id.
async fn all_ended(positions: &mut WalPositions) -> Result<u64, Interrupted> {
    let next = positions.shown().await?.0.xmax;
    while positions.shown().await?.0.xmin < next {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(next.saturating_sub(1))
}

impl Over {
    /// The stream has come to the end.
    pub(super) fn pass(
        self,
        assembler: &mut Assembler,
        time_us: i64,
        out: &mut Vec<Output>,
    ) -> Result<(), AssembleError> {
        tracing::warn!(
            "what the primary committed up to {} is passed over, since it can't decode it ({}): replicas have to be new \
             copies",
            self.end,
            self.why
        );
        assembler.pass_over(self.end, self.xid, time_us, self.why, out)
    }
}
