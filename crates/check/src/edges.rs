//! The dependencies between transactions, as edges of a graph.
//!
//! Each transaction has two nodes: s, where it takes its snapshot, and c, where it commits, with
//! s before c. Under snapshot isolation each dependency is one statement about these two
//! (Adya's start-ordered graph, with the order of s and c left open where nothing tells it):
//!
//! - wr, "i read what j wrote": c(j) before s(i);
//! - ww, "i's version is behind j's": c(j) before s(i), since of two concurrent transactions
//!   that write the same thing only one commits;
//! - rw, "j overwrote what i read": s(i) before c(j);
//! - process order and real time, "j had ended when i began": c(j) before s(i). Since s(j) is
//!   before c(j), i's snapshot is then no older than j's either.
//!
//! A history keeps the level exactly if these can be put in one order, which is if the graph has
//! no cycle. With both nodes of each transaction made one it is Adya's serialization graph.
//!
//! Real time and "nobody saw it, so it comes later" relate many to many; barrier nodes between
//! keep the number of edges linear.

use ahash::{AHashMap, AHashSet};

use crate::facts::{Base, Facts, ListRead, Write};
use crate::history::{Key, Outcome, Txn, Value};

/// A set of kinds of edges.
pub(crate) type Kinds = u8;
pub(crate) const WW: Kinds = 1;
pub(crate) const WR: Kinds = 2;
pub(crate) const RW: Kinds = 4;
pub(crate) const PROCESS: Kinds = 8;
pub(crate) const TIME: Kinds = 16;
/// An rw edge that holds because the order of a process tells the order of two register writes.
pub(crate) const RW_PROCESS: Kinds = 32;
/// An rw edge that holds because real time tells the order of two register writes.
pub(crate) const RW_TIME: Kinds = 64;
/// From a transaction's snapshot to its commit.
pub(crate) const INNER: Kinds = 128;
/// All rw edges.
pub(crate) const ANY_RW: Kinds = RW | RW_PROCESS | RW_TIME;

/// Transactions that read a key and overwrote it unseen get edges of their own to at most so many
/// others; two of them are a lost update, which is found without edges.
const UNSEEN_UPDATERS_MAX: usize = 4;
/// A register's reader that also writes it gets edges of its own to at most so many writers that
/// began between the one it read from and itself: in a sound history, those running beside it.
const BETWEEN_MAX: usize = 64;

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
fn s(txn: Txn) -> u32 {
    2 * txn
}

/// The node of a transaction's commit.
fn c(txn: Txn) -> u32 {
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
            edges.register(facts, key);
        }
        edges.process_order(facts);
        edges.real_time(facts);
        edges
    }

    fn add(&mut self, from: u32, to: u32, kind: Kinds, key: Key) {
        self.all.push(Edge { from, to, key, kind });
    }

    fn barrier(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes - 1
    }

    fn ww(&mut self, first: Txn, second: Txn, key: Key) {
        if first != second {
            self.add(c(first), s(second), WW, key);
        }
    }

    fn wr(&mut self, writer: Txn, reader: Txn, key: Key) {
        if writer != reader {
            self.add(c(writer), s(reader), WR, key);
        }
    }

    fn rw(&mut self, reader: Txn, writer: Txn, kind: Kinds, key: Key) {
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
                self.ww(previous, owner, key);
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
                    self.ww(previous, writer, key);
                }
            }
            self.overwritten_by_all(&at_end, &unread, key);
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
    fn overwritten_by_all(&mut self, readers: &[Txn], writers: &[Txn], key: Key) {
        if readers.is_empty() || writers.is_empty() {
            return;
        }
        let barrier = self.barrier();
        for &writer in writers {
            self.add(barrier, c(writer), RW, key);
        }
        let writing: AHashSet<Txn> = writers.iter().copied().collect();
        let mut updaters = 0;
        for &reader in readers {
            if !writing.contains(&reader) {
                self.add(s(reader), barrier, RW, key);
            } else if updaters < UNSEEN_UPDATERS_MAX {
                updaters += 1;
                writers.iter().for_each(|&writer| self.rw(reader, writer, RW, key));
            }
        }
    }

    /// Versions of a register: the unset one is the first, and who wrote after reading wrote a
    /// later version than it read (its ww edge would be its wr edge). Where process order or real time tell more, they give edges for the
    /// levels that know them.
    fn register(&mut self, facts: &Facts, key: Key) {
        let known = &facts.keys[key as usize];
        if known.register_reads.is_empty() {
            return;
        }
        let next = next_versions(&known.writes);
        let by_time = WritesInTime::of(facts, key);
        let chain = self.chain(&by_time, key);
        let mut unset = Vec::new();
        for read in &known.register_reads {
            let Some(value) = read.seen else {
                unset.push(read.txn);
                continue;
            };
            let Some(writer) = facts.history.writer(key, value) else { continue };
            if !facts.committed[writer.txn as usize] || writer.txn == read.txn {
                continue;
            }
            self.wr(writer.txn, read.txn, key);
            for &later in next.get(&value).into_iter().flatten().take(UNSEEN_UPDATERS_MAX) {
                self.rw(read.txn, later, RW, key);
            }
            if facts.history.record(writer.txn).outcome == Outcome::Committed {
                if let Some(&later) = by_time.same_process.get(&writer.txn) {
                    self.rw(read.txn, later, RW_PROCESS, key);
                }
                let ended = facts.history.record(writer.txn).completed;
                self.overwritten_later(read.txn, ended, &by_time, &chain, key);
            }
        }
        let writers: Vec<Txn> = known.writes.iter().map(|write| write.txn).collect();
        self.overwritten_by_all(&unset, &writers, key);
    }

    /// A barrier before each writer in time; each leads to its writer and to the next barrier.
    fn chain(&mut self, writes: &WritesInTime, key: Key) -> Vec<u32> {
        let barriers: Vec<u32> = writes.begun.iter().map(|_| self.barrier()).collect();
        for (at, &(_, writer)) in writes.begun.iter().enumerate() {
            self.add(barriers[at], c(writer), RW_TIME, key);
            if let Some(&next) = barriers.get(at + 1) {
                self.add(barriers[at], next, RW_TIME, key);
            }
        }
        barriers
    }

    /// What was read was overwritten by all who began after its writer's end.
    fn overwritten_later(
        &mut self,
        reader: Txn,
        ended: i64,
        writes: &WritesInTime,
        chain: &[u32],
        key: Key,
    ) {
        let mut from = writes.begun.partition_point(|&(begun, _)| begun <= ended);
        if let Some(&own) = writes.position.get(&reader)
            && own >= from
        {
            for &(_, writer) in writes.begun[from..own].iter().take(BETWEEN_MAX) {
                self.rw(reader, writer, RW_TIME, key);
            }
            from = own + 1;
        }
        if let Some(&barrier) = chain.get(from) {
            self.add(s(reader), barrier, RW_TIME, key);
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

/// Who appended each value of a list, if it committed.
fn owners(facts: &Facts, key: Key) -> Vec<Option<Txn>> {
    let owner = |&value: &Value| {
        let writer = facts.history.writer(key, value)?;
        facts.committed[writer.txn as usize].then_some(writer.txn)
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

/// Who overwrote each version that it had read.
fn next_versions(writes: &[Write]) -> AHashMap<Value, Vec<Txn>> {
    let mut next: AHashMap<Value, Vec<Txn>> = AHashMap::new();
    for write in writes {
        if let Base::Register(Some(value)) = write.base {
            next.entry(value).or_default().push(write.txn);
        }
    }
    next
}

/// The writers of a register by the times of their invocations.
struct WritesInTime {
    begun: Vec<(i64, Txn)>,
    position: AHashMap<Txn, usize>,
    /// The next writer of the same process.
    same_process: AHashMap<Txn, Txn>,
}

impl WritesInTime {
    fn of(facts: &Facts, key: Key) -> WritesInTime {
        let writes = &facts.keys[key as usize].writes;
        let invoked = |write: &Write| (facts.history.record(write.txn).invoked, write.txn);
        let mut begun: Vec<(i64, Txn)> = writes.iter().map(invoked).collect();
        begun.sort_unstable();
        let position = begun.iter().enumerate().map(|(at, &(_, txn))| (txn, at)).collect();
        let (mut same_process, mut last) = (AHashMap::new(), AHashMap::new());
        for &(_, txn) in &begun {
            if let Some(previous) = last.insert(facts.history.record(txn).process, txn) {
                same_process.insert(previous, txn);
            }
        }
        WritesInTime { begun, position, same_process }
    }
}
