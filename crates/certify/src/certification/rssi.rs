//! RSSI: a transaction commits unless a concurrent one committed a write of a row that it writes, or it would
//! complete a descending structure with committed ones: peak -rw-> follow -rw-> trailing, where the peak's lsv
//! is not below that of the other two (RSSI paper, definition 3.1, theorem 3.1). 1-copy serializable, read-only
//! transactions included, which are certified too. The last of the three to be certified aborts, whichever role
//! it has. Peak and trailing may be the same transaction (write skew).
//!
//! # Why it is sound
//!
//! Instead of lsv(T) take any ν(T) from lsv(T) up to, but not including, both the commit of T and
//! that of the first other transaction that overwrites something which T read: any point at which
//! what T read was current. Fix it when T is certified. The paper's proof goes through for ν:
//! consider a cycle and in it the T of the highest ν. A ww- or wr-edge from T to U means ν(T) <
//! commit(T) <= lsv(U) <= ν(U), so T -rw-> U, and ν(T) < commit(U). Were U -> V a ww- or wr-edge,
//! then ν(T) < commit(U) <= lsv(V) <= ν(V), so U -rw-> V: a structure that descends by ν. Four
//! things follow.
//!
//! 1. *An upper bound of lsv is enough*: ν(T) >= `lsv.high` serves all three roles.
//! 2. *ν can be chosen so that T need not abort.* As peak T wants a low one, as follow or trailing
//!    a high one; it aborts only if no ν is low and high enough. See `choose` for which one it
//!    takes of those. High also means that what committed before T began seldom counts: an rw-edge
//!    between transactions that were not concurrent descends only if the later one's ν is that old.
//! 3. *An edge R -rw-> T matters only if commit(R) > ν(T)*. With R as peak ν(R) < commit(R) <=
//!    ν(T), so T is no follow. With R as follow of a peak P the edge from P to R means ν(P) <
//!    commit(R), so ν(P) < ν(T) and T is not trailing. So readers that committed up to the lowest ν
//!    that T may take are not looked at.
//! 4. *Anything may be forgotten*, from the oldest on: if all that is forgotten committed up to F,
//!    certify with ν(T) >= F and abort T if begin(T) < F. By 3 no edge from a forgotten
//!    transaction matters, and a new edge to one would mean begin(T) < F. Of a remembered follow
//!    it is known how low its trailing ones are, also of those forgotten.
//!
//! Of each committed transaction it is enough to remember ν, the highest ν of those with an edge
//! to it and the lowest ν of those it has an edge to.
//!
//! # Departures
//!
//! - ν instead of lsv. [`Rssi::by_the_letter`] takes the lowest ν, which is lsv as long as that is known
//!   exactly and nothing was forgotten: definition 3.1 to the letter. If many past transactions are remembered,
//!   it aborts more than CP-ROO does, because rw-edges connect more and more transactions that were not
//!   concurrent; `docs/decisions/0003` has figures.
//! - The paper forgets a transaction once no pending one began before its commit (appendix C.2.3)
//!   and keeps lsv as it is. That is unsound: an edge to a later writer that was not concurrent
//!   with the forgotten reader can be the first of a descending structure, the only one of a
//!   cycle. The test `forgotten_readers` has the schedule. Point 4 makes it sound.
//! - Read sets contain columns, tables and predicates besides rows, so that phantoms are detected; the paper
//!   leaves that to next-key tracking (its footnote 2).

use crate::certification::index::reads::ReadIndex;
use crate::certification::index::writes::WriteIndex;
use crate::certification::items::{Read, Write};
use crate::certification::memory::{Memory, Seq, weight};
use crate::certification::{
    Cause, Certifier, Decision, Limits, Lsv, Role, Timestamp, Transaction, TxnId,
};

/// Certification by descending structures. Bounded by its limits.
#[derive(Clone, Debug)]
pub struct Rssi {
    rule: Rule,
    memory: Memory<Record>,
    writes: WriteIndex,
    reads: ReadIndex,
}

/// How ν is chosen and compared: where being wrong by a little goes unnoticed for long. Tests plant
/// such bugs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The lowest ν for an lsv with this upper bound, when all up to the floor is forgotten.
    pub(super) lowest: fn(high: Timestamp, floor: Timestamp) -> Timestamp,
    /// How ν is chosen; if not at all, it is the lowest.
    pub(super) choose: Option<fn(&Choice) -> Timestamp>,
    /// Whether a structure whose peak has the first ν descends to the second.
    pub(super) descends: fn(peak: Timestamp, other: Timestamp) -> bool,
}

impl Rule {
    pub(super) const CHOICE: Rule = Rule { choose: Some(choose), ..Rule::LETTER };

    pub(super) const LETTER: Rule = Rule {
        lowest: |high, floor| high.max(floor),
        choose: None,
        descends: |peak, other| other <= peak,
    };
}

/// A committed transaction.
#[derive(Clone, Debug)]
struct Record {
    id: TxnId,
    /// Its ν.
    lsv: Timestamp,
    /// The highest ν of those with an edge to it.
    peak: Option<Timestamp>,
    /// The lowest ν of those it has an edge to.
    trailing: Option<Timestamp>,
    reads: usize,
    writes: usize,
}

/// The edges of a transaction with committed ones, sorted.
struct Edges {
    lsv: Timestamp,
    /// To those that overwrote what it read.
    out: Vec<Seq>,
    /// From those that read what it overwrites, as far as they matter.
    into: Vec<Seq>,
}

/// What ν of a transaction may be, and what hangs on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// The lowest allowed.
    pub(crate) lowest: Timestamp,
    /// Its begin.
    pub(crate) begin: Timestamp,
    /// The first commit that overwrote what it read; if there is none, its own.
    pub(crate) overwritten: Timestamp,
    /// From where on it is a peak, if anywhere.
    pub(crate) peaks_from: Option<Timestamp>,
    /// Whether it writes anything.
    pub(crate) writes: bool,
    /// Whether a committed transaction leads to it.
    pub(crate) is_led_to: bool,
}

/// The ν that a transaction takes. Nothing will ever lead to one that writes nothing: it can only be
/// a peak, now or later, and takes the lowest. One that others lead to takes the highest, so as
/// not to be follow or trailing, and any other its begin; but with which it is no peak, if there is
/// such a ν. So if there is one with which it has no role at all, it takes such a one.
pub(crate) fn choose(choice: &Choice) -> Timestamp {
    let wanted = match (choice.writes, choice.is_led_to) {
        (false, _) => choice.lowest,
        (true, false) => choice.begin,
        (true, true) => choice.overwritten.before(),
    };
    let below = choice.peaks_from.map_or(wanted, Timestamp::before);
    wanted.min(below).max(choice.lowest)
}

impl Rssi {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(limits: Limits) -> Rssi {
        Rssi::with_rule(limits, Rule::CHOICE)
    }

    /// Nothing happened yet. Takes the lowest ν, as definition 3.1 does.
    #[must_use]
    pub fn by_the_letter(limits: Limits) -> Rssi {
        Rssi::with_rule(limits, Rule::LETTER)
    }

    pub(super) fn with_rule(limits: Limits, rule: Rule) -> Rssi {
        Rssi {
            rule,
            memory: Memory::new(limits),
            writes: WriteIndex::default(),
            reads: ReadIndex::default(),
        }
    }

    /// How many committed transactions are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.memory.len()
    }

    /// All that committed up to this is forgotten; what began before is aborted, and lsv counts as
    /// at least this.
    #[must_use]
    pub fn floor(&self) -> Timestamp {
        self.memory.floor()
    }

    /// The lsv of a transaction with this snapshot: exact if one of its versions is remembered.
    /// Of predicates and tables all remembered writes in them are looked at.
    #[must_use]
    pub fn lsv(&mut self, begin: Timestamp, reads: &[Read], writes: &[Write]) -> Lsv {
        let after = self.memory.after(begin);
        let (first, mut last) = (self.memory.first(), None);
        let mut see = |seq: Seq| last = last.max(Some(seq).filter(|seq| *seq < after));
        reads.iter().for_each(|read| self.writes.touching(read, first, &mut see));
        writes.iter().for_each(|write| self.writes.of_row(write, &mut see));
        match last.map(|seq| self.memory.at(seq)) {
            Some(exact) => Lsv { low: exact, high: exact },
            None => Lsv { low: Timestamp(0), high: begin.min(self.memory.floor()) },
        }
    }

    fn judge(&mut self, transaction: &Transaction) -> Result<Edges, Cause> {
        if transaction.begin < self.memory.floor() {
            return Err(Cause::SnapshotTooOld);
        }
        let since = self.memory.after(transaction.begin);
        let mut writes = transaction.writes.iter();
        if let Some(seq) = writes.find_map(|write| self.writes.writer(write, since)) {
            return Err(Cause::WriteConflict { with: self.memory.get(seq).id });
        }
        let edges = self.edges(transaction, since);
        match self.role(&edges) {
            Some(role) => Err(Cause::DescendingStructure { role }),
            None => Ok(edges),
        }
    }

    fn edges(&mut self, transaction: &Transaction, since: Seq) -> Edges {
        let high = transaction.lsv.high.min(transaction.begin);
        let lowest = (self.rule.lowest)(high, self.memory.floor());
        let (mut out, mut into) = (Vec::new(), Vec::new());
        for read in &transaction.reads {
            self.writes.touching(read, since, |seq| out.push(seq));
        }
        let since = self.memory.after(lowest);
        for write in &transaction.writes {
            self.reads.touched_by(write, since, |seq| into.push(seq));
        }
        for edges in [&mut out, &mut into] {
            edges.sort_unstable();
            edges.dedup();
        }
        let lsv = match self.rule.choose {
            Some(choose) => choose(&Choice {
                lowest,
                begin: transaction.begin,
                overwritten: out
                    .first()
                    .map_or(self.memory.clock().next(), |seq| self.memory.at(*seq)),
                peaks_from: self.peaks_from(&out, &into),
                writes: !transaction.writes.is_empty(),
                is_led_to: !into.is_empty(),
            }),
            None => lowest,
        };
        Edges { lsv, out, into }
    }

    /// From which ν on one with these edges is a peak.
    fn peaks_from(&self, out: &[Seq], into: &[Seq]) -> Option<Timestamp> {
        let with = |seq: &Seq| {
            let follow = self.memory.get(*seq);
            match into.binary_search(seq) {
                Ok(_) => Some(follow.lsv),
                Err(_) => follow.trailing.map(|trailing| trailing.max(follow.lsv)),
            }
        };
        out.iter().filter_map(with).min()
    }

    /// The place that a transaction with these edges would take in a descending structure.
    fn role(&self, edges: &Edges) -> Option<Role> {
        if self.is_peak(edges) {
            Some(Role::Peak)
        } else if self.is_follow(edges) {
            Some(Role::Follow)
        } else if self.is_trailing(edges) {
            Some(Role::Trailing)
        } else {
            None
        }
    }

    /// One that it leads to leads on, to a third or back to it.
    fn is_peak(&self, Edges { lsv, out, into }: &Edges) -> bool {
        let descends = |other| (self.rule.descends)(*lsv, other);
        out.iter().any(|seq| {
            let follow = self.memory.get(*seq);
            let back = || into.binary_search(seq).is_ok();
            descends(follow.lsv) && (follow.trailing.is_some_and(descends) || back())
        })
    }

    fn is_follow(&self, edges: &Edges) -> bool {
        let (Some(peak), Some(trailing)) = (self.peak(edges), self.trailing(edges)) else {
            return false;
        };
        (self.rule.descends)(peak, edges.lsv) && (self.rule.descends)(peak, trailing)
    }

    fn is_trailing(&self, Edges { lsv, into, .. }: &Edges) -> bool {
        into.iter().map(|seq| self.memory.get(*seq)).any(|follow| {
            let descends = |peak: &Timestamp| {
                (self.rule.descends)(*peak, follow.lsv) && (self.rule.descends)(*peak, *lsv)
            };
            follow.peak.as_ref().is_some_and(descends)
        })
    }

    /// The highest ν of those with an edge to it.
    fn peak(&self, edges: &Edges) -> Option<Timestamp> {
        edges.into.iter().map(|seq| self.memory.get(*seq).lsv).max()
    }

    /// The lowest ν of those it has an edge to.
    fn trailing(&self, edges: &Edges) -> Option<Timestamp> {
        edges.out.iter().map(|seq| self.memory.get(*seq).lsv).min()
    }

    fn commit(&mut self, transaction: &Transaction, edges: &Edges) {
        let Transaction { id, reads, writes, .. } = transaction;
        let (peak, trailing) = (self.peak(edges), self.trailing(edges));
        for seq in &edges.out {
            let follow = self.memory.get_mut(*seq);
            follow.peak = follow.peak.max(Some(edges.lsv));
        }
        for seq in &edges.into {
            let follow = self.memory.get_mut(*seq);
            let lowest = follow.trailing.map_or(edges.lsv, |lowest| lowest.min(edges.lsv));
            follow.trailing = Some(lowest);
        }
        let seq = self.memory.next();
        reads.iter().for_each(|read| self.reads.add(seq, read));
        writes.iter().for_each(|write| self.writes.add(seq, write));
        let (lsv, counts) = (edges.lsv, (reads.len(), writes.len()));
        let record = Record { id: *id, lsv, peak, trailing, reads: counts.0, writes: counts.1 };
        self.memory.push(record, weight(reads, writes));
        while self.memory.full() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let Some(Record { reads, writes, .. }) = self.memory.forget() else { return };
        (0..reads).for_each(|_| self.reads.forget());
        (0..writes).for_each(|_| self.writes.forget());
    }
}

impl Certifier for Rssi {
    fn certify(&mut self, transaction: &Transaction) -> Decision {
        let judged = self.judge(transaction);
        let at = self.memory.tick();
        let verdict = judged.map(|edges| self.commit(transaction, &edges));
        Decision { at, verdict }
    }

    fn collect(&mut self, staleness: Timestamp) {
        self.memory.settle(staleness);
        while self.memory.spare() {
            self.forget();
        }
    }

    fn reset(&mut self, at: Timestamp) {
        if self.memory.reset(at) {
            self.writes = WriteIndex::default();
            self.reads = ReadIndex::default();
        }
    }

    fn clock(&self) -> Timestamp {
        self.memory.clock()
    }
}
