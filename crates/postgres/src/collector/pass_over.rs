//! Passes over transactions that the server can't decode. PostgreSQL has written some into its WAL (docs/decisions/0024)
//! at which logical decoding fails whenever it comes to them, so that all replicas would stand still, and the slot
//! would keep WAL until the disk is full.
//!
//! Decoding is begun anew at the primary's present position instead. When it has come there, nothing but those
//! transactions was in the way. Then one entry stands in the log for all that were left out. It may have written
//! anything, and no replica can apply it: each is replaced by a copy of the primary (decision 0022).

use std::time::Duration;

use hihooi_replication::assemble::{AssembleError, Assembler, Output};
use hihooi_replication::ids::{Lsn, Xid};

use super::{CollectorError, Interrupted, StreamContext};
use crate::connection::{Connection, Login};
use crate::wal_positions::WalPositions;

/// How often the primary is asked whether its open transactions have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is passed over.
pub(super) struct Over {
    /// All transactions whose commit record begins before this. They have ended at the primary.
    pub(super) end: Lsn,
    /// Low 32 bits of a transaction's id: who sees this one sees all of them.
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
    let mut connection = Connection::open(&login).await?;
    check_catalog(&mut connection).await?;
    let mut positions = WalPositions::new(connection).await?;
    let end = positions.lsn_after().await?;
    let xid = positions.mark().await?;
    context.status.set_error(format!(
        "{why}; that is passed over when the transactions that are open at the primary have ended"
    ));
    while positions.shown().await?.0.xmin <= xid {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    positions.close().await;
    Ok(Over { end, xid: Xid(xid).low(), why: why.to_owned() })
}

/// Whether the primary itself can read its definitions: if they are damaged, replicas may be the better copies.
async fn check_catalog(connection: &mut Connection) -> Result<(), Interrupted> {
    const DAMAGED: &str = "SELECT c.oid FROM pg_catalog.pg_class c LEFT JOIN (
            SELECT attrelid, pg_catalog.count(*) FROM pg_catalog.pg_attribute WHERE attnum > 0 GROUP BY attrelid
        ) a ON a.attrelid = c.oid
        WHERE c.relnatts <> COALESCE(a.count, 0) LIMIT 1";
    match connection.query(DAMAGED).await?.value() {
        None => Ok(()),
        Some(oid) => {
            let why =
                format!("the primary's catalog is damaged: columns of relation {oid} are missing");
            Err(CollectorError::Broken(why).into())
        }
    }
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
