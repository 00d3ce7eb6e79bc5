//! Takes LSNs on the primary, to resolve transactions that never appear in the stream (I3). Once the stream has
//! passed an LSN that was taken after a point in time, it has brought everything that was committed before that
//! point.
//!
//! The LSN is the insert position (`pg_current_wal_insert_lsn()`), since a commit with `synchronous_commit =
//! off` is acknowledged before it is flushed. If the insert position is right after a page header, an idle
//! stream never reports it, but only the page's boundary. So the header's length is subtracted.

use hihooi_replication::assemble::FLUSH_PREFIX;
use hihooi_replication::ids::Lsn;

use crate::apply::visibility::Snapshot;
use crate::connection::{Answer, Connection, Error, Result};

/// WAL page size that servers are built with, unless someone changed it.
const WAL_BLOCK: u64 = 8192;
/// Header of a page (`SizeOfXLogShortPHD`).
const SHORT_HEADER: u64 = 24;
/// Header of a segment's first page (`SizeOfXLogLongPHD`).
const LONG_HEADER: u64 = 40;

/// Takes LSNs on the primary over one connection.
pub struct WalPositions {
    connection: Connection,
    wal: WalShape,
}

/// Sizes that decide where page headers stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WalShape {
    block: u64,
    segment: u64,
}

impl WalShape {
    /// The position before the page header, if `lsn` lies right after one.
    fn without_header(self, lsn: Lsn) -> Lsn {
        if lsn.0 % self.segment == LONG_HEADER {
            Lsn(lsn.0 - LONG_HEADER)
        } else if lsn.0 % self.block == SHORT_HEADER && lsn.0 % self.segment != SHORT_HEADER {
            Lsn(lsn.0 - SHORT_HEADER)
        } else {
            lsn
        }
    }
}

impl WalPositions {
    /// Uses `connection`, a superuser's to the replicated database of the primary.
    ///
    /// # Errors
    /// If the server can't be asked for its WAL's sizes.
    pub async fn new(mut connection: Connection) -> Result<WalPositions> {
        let answer = connection
            .query(
                "SELECT pg_catalog.pg_size_bytes(pg_catalog.current_setting(name)) \
                 FROM (VALUES ('wal_segment_size'), ('wal_block_size')) s(name)",
            )
            .await?;
        let size = |place: usize| {
            let value = answer.rows.get(place).and_then(|row| row.first().cloned().flatten());
            value.and_then(|value| value.parse::<u64>().ok()).filter(|size| *size > LONG_HEADER)
        };
        let segment = size(0).ok_or_else(|| Error::Protocol("no wal_segment_size".to_owned()))?;
        let wal = WalShape { block: size(1).unwrap_or(WAL_BLOCK), segment };
        Ok(WalPositions { connection, wal })
    }

    /// A position behind every commit record that exists now. The stream passes it even when
    /// nothing more happens, given [`WalPositions::ensure_flushed`].
    ///
    /// # Errors
    /// If the server can't be asked.
    pub async fn lsn_after(&mut self) -> Result<Lsn> {
        let position = self.ask("SELECT pg_catalog.pg_current_wal_insert_lsn()").await?;
        Ok(self.wal.without_header(position))
    }

    /// What the primary shows now, and a position behind the commit records of all of that.
    ///
    /// # Errors
    /// If the server can't be asked.
    pub async fn shown(&mut self) -> Result<(Snapshot, Lsn)> {
        // A statement's snapshot is taken before it runs.
        let text =
            "SELECT pg_catalog.pg_current_snapshot(), pg_catalog.pg_current_wal_insert_lsn()";
        let answer = self.connection.query(text).await?;
        let mut values = answer.rows.into_iter().flatten().flatten();
        let (Some(snapshot), Some(position)) = (values.next(), values.next()) else {
            return Err(Error::Protocol("no snapshot".to_owned()));
        };
        let not_such = || Error::Protocol(format!("not a snapshot: {snapshot:?}"));
        let position = position.parse().map_err(|error| Error::Protocol(format!("{error}")))?;
        Ok((Snapshot::parse(&snapshot).ok_or_else(not_such)?, self.wal.without_header(position)))
    }

    /// Makes the primary flush its log up to `lsn` if it has not (`synchronous_commit = off`).
    ///
    /// # Errors
    /// If the server can't be asked.
    pub async fn ensure_flushed(&mut self, lsn: Lsn) -> Result<()> {
        if self.ask("SELECT pg_catalog.pg_current_wal_flush_lsn()").await? < lsn {
            self.mark().await?;
        }
        Ok(())
    }

    /// Commits a transaction and makes the primary flush its log up to that; the transaction's id. All that have a commit
    /// record by now have lower ones.
    ///
    /// # Errors
    /// If the server can't be asked.
    pub async fn mark(&mut self) -> Result<u64> {
        // A synchronous standby that lags must not hold us up: the local disk is enough.
        let text = format!(
            "BEGIN; SET LOCAL synchronous_commit = local;
             SELECT pg_catalog.pg_logical_emit_message(true, '{FLUSH_PREFIX}', '');
             SELECT pg_catalog.pg_current_xact_id();
             COMMIT"
        );
        let done = self.connection.simple(&text).await;
        if matches!(done, Err(Error::Server(_))) {
            self.connection.simple("ROLLBACK").await?;
        }
        let answers = done?;
        let xid = answers.iter().rev().find_map(Answer::value).and_then(|xid| xid.parse().ok());
        xid.ok_or_else(|| Error::Protocol("no transaction id".to_owned()))
    }

    async fn ask(&mut self, text: &str) -> Result<Lsn> {
        let answer = self.connection.query(text).await?;
        let value = answer.value().unwrap_or_default();
        value.parse().map_err(|error| Error::Protocol(format!("{error}")))
    }

    /// Ends the connection in good order.
    pub async fn close(self) {
        self.connection.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An insert LSN at a page boundary is never reached by an idle stream.
    #[test]
    fn page_headers_are_taken_off() {
        let wal = WalShape { block: 8192, segment: 1 << 24 };
        let without = |lsn| wal.without_header(Lsn(lsn)).0;
        assert_eq!(without(0x300_2018), 0x300_2000);
        assert_eq!(without(0x300_0028), 0x300_0000);
        assert_eq!(without(0x300_2020), 0x300_2020);
        assert_eq!(without(0x300_2028), 0x300_2028);
        assert_eq!(without(0x300_0018), 0x300_0018);
        assert_eq!(without(0x300_2000), 0x300_2000);
    }
}
