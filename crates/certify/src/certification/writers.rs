//! The committed update transactions, for certifiers that need only writes: shared by
//! [`cp_roo`](crate::certification::cp_roo) and [`vdbsm`](crate::certification::vdbsm).

use crate::certification::index::writes::WriteIndex;
use crate::certification::items::{Read, Write};
use crate::certification::memory::{Memory, Seq, weight};
use crate::certification::{Cause, Decision, Limits, Timestamp, Transaction, TxnId};

/// Bounded by its limits.
#[derive(Clone, Debug)]
pub struct Writers {
    memory: Memory<Record>,
    index: WriteIndex,
}

#[derive(Clone, Debug)]
struct Record {
    id: TxnId,
    writes: usize,
}

impl Writers {
    pub fn new(limits: Limits) -> Writers {
        Writers { memory: Memory::new(limits), index: WriteIndex::default() }
    }

    pub fn clock(&self) -> Timestamp {
        self.memory.clock()
    }

    /// Where memory begins: what began before can't be judged.
    pub fn floor(&self) -> Timestamp {
        self.memory.floor()
    }

    /// The last to write the row, if it committed after `at`.
    pub fn writer(&self, write: &Write, at: Timestamp) -> Option<TxnId> {
        let seq = self.index.writer(write, self.memory.after(at))?;
        Some(self.memory.get(seq).id)
    }

    /// The last to touch the read, if it committed after `at`.
    pub fn toucher(&mut self, read: &Read, at: Timestamp) -> Option<TxnId> {
        let mut last: Option<Seq> = None;
        self.index.touching(read, self.memory.after(at), |seq| last = last.max(Some(seq)));
        last.map(|seq| self.memory.get(seq).id)
    }

    /// The clock ticks; what was admitted is remembered if it writes.
    pub fn decide(&mut self, transaction: &Transaction, verdict: Result<(), Cause>) -> Decision {
        let at = self.memory.tick();
        if verdict.is_ok() && !transaction.writes.is_empty() {
            self.commit(transaction);
        }
        Decision { at, verdict }
    }

    /// The attempt at the clock has committed.
    fn commit(&mut self, transaction: &Transaction) {
        let seq = self.memory.next();
        for write in &transaction.writes {
            self.index.add(seq, write);
        }
        let record = Record { id: transaction.id, writes: transaction.writes.len() };
        self.memory.push(record, weight(&[], &transaction.writes));
        while self.memory.full() {
            self.forget();
        }
    }

    pub fn collect(&mut self, staleness: Timestamp) {
        self.memory.settle(staleness);
        while self.memory.oldest_is_stale() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let writes = self.memory.forget().map_or(0, |record| record.writes);
        (0..writes).for_each(|_| self.index.forget());
    }

    pub fn reset(&mut self, at: Timestamp) {
        if self.memory.reset(at) {
            self.index = WriteIndex::default();
        }
    }
}
