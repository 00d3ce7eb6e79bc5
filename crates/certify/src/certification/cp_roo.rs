//! CP-ROO, "conflict prevention with read-only optimisation": an update transaction commits only if no
//! concurrent one committed a write of a row that it writes or of something that it read (RSSI paper, sections
//! 1, 3.2 "no read impact" and 6.1). 1-copy serializable in the order of commits: at its commit, everything
//! that an update transaction read is unchanged. Read-only transactions see a prefix of that order and always
//! commit.
//!
//! # Departures
//!
//! None. If there are several causes, a write of the same row is reported first; otherwise the latest writer of
//! the first read that was touched.

use crate::certification::writers::Writers;
use crate::certification::{Cause, Certifier, Decision, Limits, Timestamp, Transaction};

/// Certification against every single rw-edge. Bounded by its limits.
#[derive(Clone, Debug)]
pub struct CpRoo {
    writers: Writers,
}

impl CpRoo {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(limits: Limits) -> CpRoo {
        CpRoo { writers: Writers::new(limits) }
    }

    fn judge(
        &mut self,
        Transaction { begin, reads, writes, .. }: &Transaction,
    ) -> Result<(), Cause> {
        if writes.is_empty() {
            return Ok(());
        }
        if *begin < self.writers.floor() {
            return Err(Cause::SnapshotTooOld);
        }
        if let Some(with) = writes.iter().find_map(|write| self.writers.writer(write, *begin)) {
            return Err(Cause::WriteConflict { with });
        }
        match reads.iter().find_map(|read| self.writers.toucher(read, *begin)) {
            Some(with) => Err(Cause::ReadImpact { with }),
            None => Ok(()),
        }
    }
}

impl Certifier for CpRoo {
    fn certify(&mut self, transaction: &Transaction) -> Decision {
        let verdict = self.judge(transaction);
        self.writers.decide(transaction, verdict)
    }

    fn collect(&mut self, staleness: Timestamp) {
        self.writers.collect(staleness);
    }

    fn reset(&mut self, at: Timestamp) {
        self.writers.reset(at);
    }

    fn clock(&self) -> Timestamp {
        self.writers.clock()
    }
}
