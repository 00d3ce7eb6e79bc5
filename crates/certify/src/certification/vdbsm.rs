//! vDBSM: an update transaction commits only if the versions of everything that it read are still the current
//! ones (vDBSM paper, section 3, step 3). 1-copy serializable in the order of commits. Read-only transactions
//! are local to their site and always commit (step 2).
//!
//! The version of an item is the commit timestamp of the last that wrote there. It need not be
//! stored for each item: `begin` bounds all reads of a transaction from below, so the version that
//! it saw of a read is the current one unless a remembered write after both `begin` and that
//! version touches the read.
//!
//! # Departures
//!
//! - Written rows count as read: the paper executes the update statements of a certified transaction at every
//!   replica, whereas our entries contain the new rows, which one site computed from the versions that it saw.
//!   In the paper, two writers of a row that did not read it would both commit. If a read gives the version of
//!   such a row, this version is used, otherwise the snapshot.
//! - Versions may be timestamps of any write up to the one that was seen; the paper counts writes per item,
//!   which is not possible for a range.

use crate::certification::items::{Read, Write};
use crate::certification::writers::Writers;
use crate::certification::{Cause, Certifier, Decision, Limits, Timestamp, Transaction};

/// Certification by item versions. Bounded by its limits.
#[derive(Clone, Debug)]
pub struct Vdbsm {
    writers: Writers,
}

impl Vdbsm {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(limits: Limits) -> Vdbsm {
        Vdbsm { writers: Writers::new(limits) }
    }

    fn judge(&mut self, transaction: &Transaction) -> Result<(), Cause> {
        if transaction.writes.is_empty() {
            return Ok(());
        }
        if transaction.begin < self.writers.floor() {
            return Err(Cause::SnapshotTooOld);
        }
        let stale_write = |write| self.writers.writer(write, seen(transaction, write)).is_some();
        if transaction.writes.iter().any(stale_write) {
            return Err(Cause::StaleRead);
        }
        let mut reads = transaction.reads.iter().enumerate();
        match reads.any(|(i, read)| self.writers.toucher(read, version(transaction, i)).is_some()) {
            true => Err(Cause::StaleRead),
            false => Ok(()),
        }
    }
}

/// Up to where writes were seen by the transaction's i-th read.
fn version(transaction: &Transaction, i: usize) -> Timestamp {
    transaction.versions.get(i).map_or(transaction.begin, |one| transaction.begin.max(*one))
}

/// Up to where writes of the row were seen.
fn seen(transaction: &Transaction, write: &Write) -> Timestamp {
    let of_row = |read: &Read| match read {
        Read::Row { table, key, .. } => (*table, *key) == (write.table, write.key),
        _ => false,
    };
    let place = transaction.reads.iter().position(of_row);
    place.map_or(transaction.begin, |i| version(transaction, i))
}

impl Certifier for Vdbsm {
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
