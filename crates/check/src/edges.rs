//! The dependencies between transactions, as edges of a graph.
//!
//! Each transaction has two nodes: s, where it takes its snapshot, and c, where it commits, with s before c.
//! Under snapshot isolation each dependency is one statement about these two (Adya's start-ordered graph, in
//! which the order of s and c is open where it isn't known):
//!
//! - wr, "i read what j wrote": c(j) before s(i);
//! - ww, "i's version follows j's": c(j) before s(i), since of two concurrent transactions that write the same
//!   thing only one commits;
//! - rw, "j overwrote what i read": s(i) before c(j);
//! - process order and real time, "j had ended when i began": c(j) before s(i). Since s(j) is
//!   before c(j), i's snapshot is then no older than j's either.
//!
//! A history satisfies the level if and only if these can be put in one order, that is, if the graph has no
//! cycle. If the two nodes of each transaction are merged, it is Adya's serialization graph.
//!
//! The versions of registers are in `registers`.
//!
//! Real time, and versions that nobody saw and that therefore come later, relate many transactions to many;
//! barrier nodes keep the number of edges linear.

use ahash::AHashSet;

use crate::facts::{Facts, ListRead};
use crate::history::{Key, Outcome, Txn, Value};

/// A set of kinds of edges.
pub(crate) type Kinds = u16;
pub(crate) const WW: Kinds = 1;
pub(crate) const WR: Kinds = 2;
pub(crate) const RW: Kinds = 4;
pub(crate) const PROCESS: Kinds = 8;
pub(crate) const TIME: Kinds = 16;
/// From a transaction's snapshot to its commit.
pub(crate) const INNER: Kinds = 32;
/// These hold because the order of a process tells the order of two versions of a register.
pub(crate) const WW_PROCESS: Kinds = 64;
pub(crate) const RW_PROCESS: Kinds = 128;
/// These hold because real time tells the order of two versions of a register.
pub(crate) const WW_TIME: Kinds = 256;
pub(crate) const RW_TIME: Kinds = 512;
/// These hold because what was seen in one snapshot tells the order of two versions of a register.
pub(crate) const WW_SEEN: Kinds = 1024;
pub(crate) const RW_SEEN: Kinds = 2048;
/// All rw edges.
pub(crate) const ANY_RW: Kinds = RW | RW_PROCESS | RW_TIME | RW_SEEN;

/// Transactions that read a key and overwrote it unseen get edges of their own to at most so many
/// others; two of them are a lost update, which is found without edges.
const UNSEEN_UPDATERS_MAX: usize = 4;
/// An edge. Of those that pass through barriers, the first part says what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub from: u32,
    pub to: u32,
    pub key: Key,
    pub kind: Kinds,
}

/// All edges of a history.
pub(crate) struct Edges {
    pub all: Vec<Edge>,
    /// Nodes of transactions come first, two each.
    pub txn_nodes: u32,
    /// Number of nodes, with barriers.
    pub nodes: u32,
}

/// The node of a transaction's snapshot.
pub(crate) fn s(txn: Txn) -> u32 {
    2 * txn
}

/// The node of a transaction's commit.
pub(crate) fn c(txn: Txn) -> u32 {
    2 * txn + 1
}

const NO_KEY: Key = Key::MAX;

impl Edges {
    pub fn of(facts: &Facts) -> Edges {
        let txn_nodes = 2 * facts.history.len() as u32;
        let mut edges = Edges { all: Vec::new(), txn_nodes, nodes: txn_nodes };
        for txn in committed(facts) {
            edges.add(s(txn), c(txn), INNER, NO_KEY);
        }
        for key in 0..facts.keys.len() as Key {
            edges.list(facts, key);
        }
        edges.registers(facts);
        edges.process_order(facts);
        edges.real_time(facts);
        edges
    }

    pub fn add(&mut self, from: u32, to: u32, kind: Kinds, key: Key) {
        self.all.push(Edge { from, to, key, kind });
    }

    pub fn barrier(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes - 1
    }

    pub fn ww(&mut self, first: Txn, second: Txn, kind: Kinds, key: Key) {
        if first != second {
            self.add(c(first), s(second), kind, key);
        }
    }

    pub fn wr(&mut self, writer: Txn, reader: Txn, key: Key) {
        if writer != reader {
            self.add(c(writer), s(reader), WR, key);
        }
    }

    pub fn rw(&mut self, reader: Txn, writer: Txn, kind: Kinds, key: Key) {
        if reader != writer {
            self.add(s(reader), c(writer), kind, key);
        }
    }

    /// Versions of a list in the order that its longest read shows.
    fn list(&mut self, facts: &Facts, key: Key) {
        let known = &facts.keys[key as usize];
        let owners = owners(facts, key);
        let mut previous = None;
        for &owner in owners.iter().flatten() {
            if let Some(previous) = previous {
                self.ww(previous, owner, WW, key);
            }
            previous = Some(owner);
        }
        let odd: AHashSet<usize> = known.incompatible.iter().copied().collect();
        let mut at_end = Vec::new();
        for (_, read) in known.list_reads.iter().enumerate().filter(|(at, _)| !odd.contains(at)) {
            if self.list_read(read, &owners, key) {
                at_end.push(read.txn);
            }
        }
        let order = facts.order(key);
        // Where reads contradict each other nothing tells what comes later.
        if odd.is_empty() && known.writes.len() > distinct_last(facts, key, order) {
            let unread: Vec<Txn> = known.unread(order).map(|write| write.txn).collect();
            for &writer in &unread {
                if let Some(previous) = previous {
                    self.ww(previous, writer, WW, key);
                }
            }
            self.overwritten_by_all(&at_end, &unread, RW, key);
        }
    }

    /// Edges of one read; whether it saw the last version that anybody saw.
    fn list_read(&mut self, read: &ListRead, owners: &[Option<Txn>], key: Key) -> bool {
        let (before, after) = owners.split_at(read.external as usize);
        let last = before.iter().rev().flatten().next().copied();
        if let Some(last) = last {
            self.wr(last, read.txn, key);
        }
        let next = after.iter().flatten().next();
        if let Some(&next) = next {
            self.rw(read.txn, next, RW, key);
        }
        next.is_none()
    }

    /// Each writer overwrote what each reader saw, save its own.
    pub fn overwritten_by_all(&mut self, readers: &[Txn], writers: &[Txn], kind: Kinds, key: Key) {
        if let [writer] = writers {
            readers.iter().for_each(|&reader| self.rw(reader, *writer, kind, key));
            return;
        }
        if readers.is_empty() || writers.is_empty() {
            return;
        }
        let barrier = self.barrier();
        for &writer in writers {
            self.add(barrier, c(writer), kind, key);
        }
        let writing: AHashSet<Txn> = writers.iter().copied().collect();
        let mut updaters = 0;
        for &reader in readers {
            if !writing.contains(&reader) {
                self.add(s(reader), barrier, kind, key);
            } else if updaters < UNSEEN_UPDATERS_MAX {
                updaters += 1;
                writers.iter().for_each(|&writer| self.rw(reader, writer, kind, key));
            }
        }
    }

    /// From each acknowledged transaction of a process to the next one. Behind one of unknown
    /// outcome a process may go on before that one takes effect.
    fn process_order(&mut self, facts: &Facts) {
        let record = |txn: &Txn| facts.history.record(*txn);
        let mut all: Vec<Txn> = committed(facts).collect();
        all.sort_by_key(|txn| (record(txn).process, record(txn).invoked, *txn));
        let mut previous: Option<Txn> = None;
        for txn in all {
            previous = previous.filter(|p| record(p).process == record(&txn).process);
            if let Some(previous) = previous {
                self.add(c(previous), s(txn), PROCESS, NO_KEY);
            }
            if record(&txn).outcome == Outcome::Committed {
                previous = Some(txn);
            }
        }
    }

    /// From each end to a barrier, from barrier to barrier, and from there to what begins later.
    /// What begins at the very moment of an end counts as beside it.
    fn real_time(&mut self, facts: &Facts) {
        let mut events = Vec::new();
        for txn in committed(facts) {
            let record = facts.history.record(txn);
            events.push((record.invoked, false, txn));
            if record.completed != i64::MAX {
                events.push((record.completed, true, txn));
            }
        }
        events.sort_unstable();
        let (mut barrier, mut used) = (None, true);
        for (_, is_end, txn) in events {
            if is_end {
                if used {
                    let next = self.barrier();
                    if let Some(barrier) = barrier {
                        self.add(barrier, next, TIME, NO_KEY);
                    }
                    (barrier, used) = (Some(next), false);
                }
                let barrier = barrier.expect("made for the first end");
                self.add(c(txn), barrier, TIME, NO_KEY);
            } else if let Some(barrier) = barrier {
                self.add(barrier, s(txn), TIME, NO_KEY);
                used = true;
            }
        }
    }
}

fn committed<'a>(facts: &'a Facts) -> impl Iterator<Item = Txn> + use<'a> {
    facts.history.txns().filter(|&txn| facts.committed[txn as usize])
}

/// Who appended each value of a list, if it committed, at the value's first place.
fn owners(facts: &Facts, key: Key) -> Vec<Option<Txn>> {
    let mut seen = AHashSet::new();
    let owner = |&value: &Value| {
        let writer = facts.history.writer(key, value)?;
        (facts.committed[writer.txn as usize] && seen.insert(value)).then_some(writer.txn)
    };
    facts.order(key).iter().map(owner).collect()
}

/// How many of the values seen are the last that a committed transaction appended.
fn distinct_last(facts: &Facts, key: Key, order: &[Value]) -> usize {
    let last = |&&value: &&Value| {
        let writer = facts.history.writer(key, value);
        writer.is_some_and(|writer| writer.last && facts.committed[writer.txn as usize])
    };
    order.iter().filter(last).count()
}
