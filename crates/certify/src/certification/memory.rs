//! The committed transactions that a certifier remembers, in their order, and when it forgets
//! (RSSI paper, appendix C.2.3; I8).
//!
//! Invariant: all transactions that committed after `floor` are here, and none that committed before.

use std::collections::VecDeque;
use std::ops::Bound;

use crate::certification::items::{Datum, Image, Read, Write};
use crate::certification::{Limits, Timestamp};

/// The number of a committed transaction, dense from 0 in the order of commits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seq(pub u64);

/// Texts count as one more item for each so many bytes.
const ITEM_BYTES: usize = 64;

/// What is remembered of each is a `T`. Bounded by `limits`: [`Memory::full`] says when its owner
/// has to forget.
#[derive(Clone, Debug)]
pub struct Memory<T> {
    limits: Limits,
    clock: Timestamp,
    floor: Timestamp,
    staleness: Timestamp,
    first: Seq,
    committed: VecDeque<Committed<T>>,
    items: usize,
}

#[derive(Clone, Debug)]
struct Committed<T> {
    at: Timestamp,
    items: usize,
    record: T,
}

impl<T> Memory<T> {
    /// Nothing happened yet.
    pub fn new(limits: Limits) -> Memory<T> {
        Memory {
            limits,
            clock: Timestamp(0),
            floor: Timestamp(0),
            staleness: Timestamp(0),
            first: Seq(0),
            committed: VecDeque::new(),
            items: 0,
        }
    }

    /// The timestamp of the last attempt.
    pub fn clock(&self) -> Timestamp {
        self.clock
    }

    /// The next attempt.
    pub fn tick(&mut self) -> Timestamp {
        self.clock.0 += 1;
        self.clock
    }

    /// Where memory begins: what began before can't be judged.
    pub fn floor(&self) -> Timestamp {
        self.floor
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.committed.len()
    }

    /// The first that committed after `at`; if there is none, the next that will.
    pub fn after(&self, at: Timestamp) -> Seq {
        Seq(self.first.0 + self.committed.partition_point(|one| one.at <= at) as u64)
    }

    /// A remembered one.
    pub fn get(&self, seq: Seq) -> &T {
        &self.committed[self.position(seq)].record
    }

    /// A remembered one.
    pub fn get_mut(&mut self, seq: Seq) -> &mut T {
        let position = self.position(seq);
        &mut self.committed[position].record
    }

    /// When it committed.
    pub fn at(&self, seq: Seq) -> Timestamp {
        self.committed[self.position(seq)].at
    }

    fn position(&self, seq: Seq) -> usize {
        (seq.0 - self.first.0) as usize
    }

    /// The number of the oldest.
    pub fn first(&self) -> Seq {
        self.first
    }

    /// The number that the next one gets.
    pub fn next(&self) -> Seq {
        Seq(self.first.0 + self.committed.len() as u64)
    }

    /// The attempt at the clock has committed.
    pub fn push(&mut self, record: T, items: usize) {
        self.items += items;
        self.committed.push_back(Committed { at: self.clock, items, record });
    }

    /// Whether the oldest must be forgotten.
    pub fn full(&self) -> bool {
        self.committed.len() > self.limits.transactions_max || self.items > self.limits.items_max
    }

    /// Nothing that comes began before this.
    pub fn settle(&mut self, staleness: Timestamp) {
        self.staleness = self.staleness.max(staleness);
    }

    /// Whether no pending transaction is concurrent with the oldest.
    pub fn oldest_is_stale(&self) -> bool {
        self.committed.front().is_some_and(|one| one.at <= self.staleness)
    }

    /// Whether so many are stale that the oldest should go.
    pub fn spare(&self) -> bool {
        self.committed.get(self.limits.spare_max).is_some_and(|one| one.at <= self.staleness)
    }

    /// Forgets the oldest.
    pub fn forget(&mut self) -> Option<T> {
        let oldest = self.committed.pop_front()?;
        self.first.0 += 1;
        self.items -= oldest.items;
        self.floor = oldest.at;
        Some(oldest.record)
    }

    /// Forgets all and goes on at `at`; whether it is not before the clock.
    pub fn reset(&mut self, at: Timestamp) -> bool {
        if at < self.clock {
            return false;
        }
        self.first = self.next();
        self.committed.clear();
        self.items = 0;
        (self.clock, self.floor, self.staleness) = (at, at, at);
        true
    }
}

/// How many items these count as.
pub fn weight(reads: &[Read], writes: &[Write]) -> usize {
    reads.iter().map(read_weight).sum::<usize>() + writes.iter().map(write_weight).sum::<usize>()
}

fn read_weight(read: &Read) -> usize {
    let Read::Rows { conditions, .. } = read else { return 1 };
    let bound = |bound: &Bound<Datum>| match bound {
        Bound::Included(value) | Bound::Excluded(value) => text_weight(value),
        Bound::Unbounded => 0,
    };
    conditions.iter().map(|one| 1 + bound(&one.low) + bound(&one.high)).sum::<usize>() + 1
}

fn write_weight(write: &Write) -> usize {
    let image = |image: &Option<Image>| -> usize {
        image.iter().flat_map(|image| image.0.iter()).map(|(_, value)| text_weight(value)).sum()
    };
    1 + image(&write.before) + image(&write.after)
}

fn text_weight(value: &Datum) -> usize {
    match value {
        Datum::Int(_) => 0,
        Datum::Text(text) => text.len() / ITEM_BYTES,
    }
}
