//! "An LSN taken after X": a position that the stream is sure to pass once everything that
//! happened before X was told.

use hihooi_replication::ids::Lsn;

use crate::connection::{Connection, Result};

/// Takes LSNs on the primary over one connection.
pub struct Resolver {
    connection: Connection,
}

impl Resolver {
    /// Uses `connection`, a superuser's to the replicated database of the primary.
    pub async fn new(connection: Connection) -> Result<Resolver> {
        Ok(Resolver { connection })
    }

    /// A position behind every commit record that exists now. The stream passes it even when
    /// nothing more happens, given [`Resolver::ensure_flushed`].
    pub async fn lsn_after(&mut self) -> Result<Lsn> {
        let _ = &self.connection;
        unimplemented!("skeleton")
    }

    /// Makes the primary flush its log up to `lsn` if it has not (`synchronous_commit = off`).
    pub async fn ensure_flushed(&mut self, lsn: Lsn) -> Result<()> {
        let _ = lsn;
        unimplemented!("skeleton")
    }
}
