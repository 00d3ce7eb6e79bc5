//! RSI: of concurrent transactions that write the same row only the first to commit does. With
//! sites that run snapshot isolation this gives 1-copy-SI, not serializability (RSSI paper,
//! sections 3.2 and 6.1: first committer wins).
//!
//! Read-only transactions always commit; they need not be certified.
//!
//! # Departures
//!
//! None.

use ahash::AHashMap;
use hihooi_replication::items::RelId;

use crate::certification::items::RowKey;
use crate::certification::memory::{Memory, Seq};
use crate::certification::{Cause, Certifier, Decision, Limits, Timestamp, Transaction, TxnId};

/// Write-write certification. Bounded by its limits.
#[derive(Clone, Debug)]
pub struct Rsi {
    memory: Memory<Record>,
    /// The last to write each row, of those remembered.
    rows: AHashMap<(RelId, RowKey), Seq>,
}

#[derive(Clone, Debug)]
struct Record {
    id: TxnId,
    rows: Box<[(RelId, RowKey)]>,
}

impl Rsi {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(limits: Limits) -> Rsi {
        Rsi { memory: Memory::new(limits), rows: AHashMap::new() }
    }

    fn judge(&self, transaction: &Transaction) -> Result<(), Cause> {
        if transaction.writes.is_empty() {
            return Ok(());
        }
        if transaction.begin < self.memory.floor() {
            return Err(Cause::SnapshotTooOld);
        }
        let since = self.memory.after(transaction.begin);
        let writer = |write: &crate::certification::items::Write| {
            self.rows.get(&(write.table, write.key)).filter(|seq| **seq >= since)
        };
        match transaction.writes.iter().find_map(writer) {
            Some(seq) => Err(Cause::WriteConflict { with: self.memory.get(*seq).id }),
            None => Ok(()),
        }
    }

    fn commit(&mut self, transaction: &Transaction) {
        let seq = self.memory.next();
        let rows: Box<[_]> = transaction.writes.iter().map(|one| (one.table, one.key)).collect();
        for row in &rows {
            self.rows.insert(*row, seq);
        }
        let items = rows.len();
        self.memory.push(Record { id: transaction.id, rows }, items);
        while self.memory.full() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let seq = self.memory.first();
        for row in self.memory.forget().iter().flat_map(|record| &record.rows) {
            if self.rows.get(row) == Some(&seq) {
                self.rows.remove(row);
            }
        }
    }
}

impl Certifier for Rsi {
    fn certify(&mut self, transaction: &Transaction) -> Decision {
        let verdict = self.judge(transaction);
        let at = self.memory.tick();
        if verdict.is_ok() && !transaction.writes.is_empty() {
            self.commit(transaction);
        }
        Decision { at, verdict }
    }

    fn collect(&mut self, staleness: Timestamp) {
        self.memory.settle(staleness);
        while self.memory.oldest_is_stale() {
            self.forget();
        }
    }

    fn reset(&mut self, at: Timestamp) {
        if self.memory.reset(at) {
            self.rows.clear();
        }
    }

    fn clock(&self) -> Timestamp {
        self.memory.clock()
    }
}
