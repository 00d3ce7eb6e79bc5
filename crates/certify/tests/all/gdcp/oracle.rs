//! The stupid twin: a centralized certifier that keeps everything and looks at all triples, as
//! definition 3.1 and theorem 3.1 of the RSSI paper read; random transactions for it; and a check
//! that what has committed is serializable.

use std::collections::BTreeMap;
use std::ops::Bound;

use hihooi_certify::certification::items::{
    Column, Columns, Condition, Datum, Image, Read, RowKey, Write,
};
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::{
    Cause, Certifier, Limits as CertifierLimits, Lsv, SiteId, Timestamp, Transaction, TxnId,
};
use hihooi_certify::gdcp::{Decided, Limits, Outcome, Refusal};
use hihooi_replication::items::RelId;

/// A small generator of random numbers (SplitMix64), so that a seed replays a run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ bits >> 31) % bound
    }

    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index")
    }
}

/// What the twin says of a transaction.
///
/// Only whether it commits is compared: a transaction that is marked keeps the cause of its mark,
/// although by its turn it may have got another one as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Commit,
    WriteConflict,
    DescendingStructure,
    SnapshotTooOld,
}

/// What a decision comes to, for comparison; none for those that only GDCP makes.
pub fn verdict(outcome: Outcome) -> Option<Verdict> {
    match outcome {
        Outcome::Committed => Some(Verdict::Commit),
        Outcome::Aborted(Cause::WriteConflict { .. }) => Some(Verdict::WriteConflict),
        Outcome::Aborted(Cause::DescendingStructure { .. }) => Some(Verdict::DescendingStructure),
        Outcome::Aborted(Cause::SnapshotTooOld) => Some(Verdict::SnapshotTooOld),
        Outcome::Aborted(_) | Outcome::Ended => None,
    }
}

/// The centralized certifier.
#[derive(Default)]
pub struct Oracle {
    pub committed: Vec<(Timestamp, Transaction)>,
    /// `[a][b]`: whether there is an rw-edge from a to b.
    rw: Vec<Vec<bool>>,
    /// The lsv of each as it counted when it was decided.
    lsv: Vec<Timestamp>,
    /// How many of them committed in earlier views: no cycle leads from them to later ones.
    pub before_view: usize,
    /// Whether lsv is taken as it is.
    by_the_letter: bool,
}

fn reads_what(reader: &Transaction, writer: &Transaction) -> bool {
    reader.reads.iter().any(|read| writer.writes.iter().any(|write| read.touched_by(write)))
}

fn same_row(a: &Transaction, b: &Transaction) -> bool {
    a.writes.iter().any(|one| b.writes.iter().any(|other| one.same_row(other)))
}

/// reader -rw-> writer, which commits at `at`.
fn rw(reader: &Transaction, at: Timestamp, writer: &Transaction) -> bool {
    reader.id != writer.id && at > reader.begin && reads_what(reader, writer)
}

impl Oracle {
    /// With the lsv that it counts with, if that matters.
    pub fn commit(&mut self, at: Timestamp, new: Transaction, lsv: Option<Timestamp>) {
        self.lsv.push(lsv.unwrap_or(new.begin));
        for (place, (_, other)) in self.committed.iter().enumerate() {
            self.rw[place].push(rw(other, at, &new));
        }
        self.rw.push(self.committed.iter().map(|(at, other)| rw(&new, *at, other)).collect());
        self.rw.last_mut().expect("just added").push(false);
        self.committed.push((at, new));
    }

    pub fn forget_after(&mut self, start: Timestamp) {
        let kept = self.committed.iter().filter(|(at, _)| *at <= start).count();
        self.committed.truncate(kept);
        self.rw.truncate(kept);
        self.lsv.truncate(kept);
        self.rw.iter_mut().for_each(|row| row.truncate(kept));
    }

    /// Remembers all, but nobody's lsv counts as less than `floor`.
    pub fn judge(&self, new: &Transaction, floor: Timestamp, at: Timestamp) -> Verdict {
        if new.begin < floor {
            return Verdict::SnapshotTooOld;
        }
        let unseen = |at: &Timestamp| *at > new.begin;
        if self.committed.iter().any(|(at, other)| unseen(at) && same_row(new, other)) {
            return Verdict::WriteConflict;
        }
        match self.choose(new, floor, at) {
            Some(_) => Verdict::Commit,
            None => Verdict::DescendingStructure,
        }
    }

    /// The highest number of those that it may take with which it is no peak, if it then is in no
    /// descending structure at all (decision 0003).
    fn choose(&self, new: &Transaction, floor: Timestamp, at: Timestamp) -> Option<Timestamp> {
        let triples = self.triples(new);
        let count = self.committed.len();
        let lowest = new.lsv.high.max(floor).0;
        let highest = self.highest(new, Timestamp(lowest), at).0;
        let is_in = |own: u64, only_as_peak: bool| {
            let lsv = |place: usize| self.lsv.get(place).map_or(own, |lsv| lsv.0);
            triples.iter().any(|&(peak, follow, trailing)| {
                (peak == count || !only_as_peak)
                    && lsv(follow) <= lsv(peak)
                    && lsv(trailing) <= lsv(peak)
            })
        };
        let own = (lowest..=highest).rev().find(|&own| !is_in(own, true))?;
        (!is_in(own, false)).then_some(Timestamp(own))
    }

    fn highest(&self, new: &Transaction, lowest: Timestamp, at: Timestamp) -> Timestamp {
        let others = || self.committed.iter();
        if self.by_the_letter || new.writes.is_empty() {
            lowest
        } else if !others().any(|(at, other)| *at > lowest && rw(other, Timestamp(u64::MAX), new)) {
            new.begin
        } else {
            let overwriting = others().filter(|(at, other)| rw(new, *at, other));
            Timestamp(overwriting.map(|(at, _)| at.0).min().unwrap_or(at.0) - 1)
        }
    }

    /// All peak, follow and trailing with edges between them of which it is one; its own place is
    /// behind the committed ones.
    fn triples(&self, new: &Transaction) -> Vec<(usize, usize, usize)> {
        let count = self.committed.len();
        let to: Vec<bool> =
            self.committed.iter().map(|(_, other)| rw(other, Timestamp(u64::MAX), new)).collect();
        let from: Vec<bool> =
            self.committed.iter().map(|(at, other)| rw(new, *at, other)).collect();
        let edge = |a: usize, b: usize| match (a == count, b == count) {
            (true, true) => false,
            (true, false) => from[b],
            (false, true) => to[a],
            (false, false) => self.rw[a][b],
        };
        let mut triples = Vec::new();
        for a in self.before_view..=count {
            for b in self.before_view..=count {
                let candidates = [(count, a, b), (a, count, b), (a, b, count)];
                triples.extend(candidates.iter().filter(|(p, f, t)| edge(*p, *f) && edge(*f, *t)));
            }
        }
        triples
    }

    /// The highest commit timestamp among the versions that the transaction accessed.
    pub fn lsv(&self, transaction: &Transaction) -> Timestamp {
        let accessed = self.committed.iter().filter(|(at, writer)| {
            *at <= transaction.begin
                && (reads_what(transaction, writer) || same_row(transaction, writer))
        });
        accessed.map(|(at, _)| *at).max().unwrap_or_default()
    }

    /// Whether the graph of ww-, wr- and rw-edges among those that committed has no cycle.
    pub fn is_serializable(&self) -> bool {
        let edge = |a: usize, b: usize| {
            let ((at_a, one), (at_b, other)) = (&self.committed[a], &self.committed[b]);
            let ww = at_a < at_b && same_row(one, other);
            let wr = *at_a <= other.begin && reads_what(other, one);
            a != b && (ww || wr || self.rw[a][b])
        };
        let count = self.committed.len();
        let mut into: Vec<usize> =
            (0..count).map(|b| (0..count).filter(|&a| edge(a, b)).count()).collect();
        let mut free: Vec<usize> = (0..count).filter(|&b| into[b] == 0).collect();
        let mut done = 0;
        while let Some(a) = free.pop() {
            done += 1;
            for b in (0..count).filter(|&b| edge(a, b)) {
                into[b] -= 1;
                if into[b] == 0 {
                    free.push(b);
                }
            }
        }
        done == count
    }
}

pub const BALANCE: Column = Column(1);
const TABLES: u64 = 2;

pub fn id(site: u32, number: u64) -> TxnId {
    TxnId { site: SiteId(site), number }
}

pub fn row(key: u64) -> Read {
    Read::Row { table: RelId(1), key: RowKey(key.into()), columns: Columns::ALL }
}

pub fn update(key: u64) -> Write {
    Write {
        table: RelId(1),
        key: RowKey(key.into()),
        columns: Columns::ALL,
        before: Some(Image::default()),
        after: Some(Image::default()),
    }
}

/// How random transactions look.
#[derive(Clone, Copy)]
pub struct Mix {
    pub keys: u64,
    pub reads: u64,
    pub writes: u64,
    pub wide_one_in: u64,
}

impl Mix {
    fn read(self, dice: &mut Dice) -> Read {
        let table = RelId(u32::try_from(dice.below(TABLES)).expect("small"));
        let columns = Columns::of([Column(u16::try_from(dice.below(3)).expect("small"))]);
        if !dice.one_in(self.wide_one_in) {
            return Read::Row { table, key: RowKey(dice.below(self.keys).into()), columns };
        }
        let low = i64::try_from(dice.below(20)).expect("small");
        let between = (Bound::Included(Datum::Int(low)), Bound::Excluded(Datum::Int(low + 2)));
        let condition = Condition { column: BALANCE, low: between.0, high: between.1 };
        match dice.below(8) {
            0 => Read::Everything,
            1 => Read::Table { table, columns },
            _ => Read::Rows { table, conditions: Box::new([condition]), columns },
        }
    }

    fn write(self, dice: &mut Dice) -> Write {
        let table = RelId(u32::try_from(dice.below(TABLES)).expect("small"));
        let image = |dice: &mut Dice| {
            let value = i64::try_from(dice.below(20)).expect("small");
            Some(Image(Box::new([(BALANCE, Datum::Int(value))])))
        };
        let columns = Columns::of([BALANCE]);
        let key = RowKey(dice.below(self.keys).into());
        Write { table, key, columns, before: image(dice), after: image(dice) }
    }

    pub fn transaction(self, id: TxnId, begin: Timestamp, dice: &mut Dice) -> Transaction {
        let reads = (0..1 + dice.below(self.reads)).map(|_| self.read(dice)).collect();
        let count = if dice.one_in(5) { 0 } else { 1 + dice.below(self.writes) };
        let writes = (0..count).map(|_| self.write(dice)).collect();
        Transaction { id, begin, lsv: Lsv::default(), reads, versions: Vec::new(), writes }
    }
}

fn centralized(by_the_letter: bool) -> Rssi {
    let max = usize::MAX;
    let limits = CertifierLimits { transactions_max: max, items_max: max, spare_max: 0 };
    if by_the_letter { Rssi::by_the_letter(limits) } else { Rssi::new(limits) }
}

/// What was submitted, what the sites decided, and the twin that checks it.
pub struct Judge {
    pub oracle: Oracle,
    pub submitted: BTreeMap<TxnId, Transaction>,
    pub decisions: Vec<Decided>,
    /// Where the view starts.
    pub start: Timestamp,
    /// The same transactions in the same order.
    pub rssi: Rssi,
    /// Whether GDCP may abort early what the twin would commit, because much is forgotten.
    pub may_abort_more: bool,
    /// Whether decisions are only noted, not judged.
    pub only_records: bool,
    pub aborted_more: u64,
    pub early: u64,
    pub by: BTreeMap<&'static str, u64>,
    /// What the clients were told: at most once each.
    pub told: BTreeMap<TxnId, Option<Outcome>>,
}

impl Judge {
    pub fn new(may_abort_more: bool, by_the_letter: bool) -> Judge {
        Judge {
            oracle: Oracle { by_the_letter, ..Oracle::default() },
            submitted: BTreeMap::new(),
            decisions: Vec::new(),
            start: Timestamp(0),
            rssi: centralized(by_the_letter),
            may_abort_more,
            only_records: false,
            aborted_more: 0,
            early: 0,
            by: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Fills in the lsv, sometimes only as bounds, and notes it.
    pub fn submit(&mut self, mut transaction: Transaction, dice: &mut Dice) -> Transaction {
        let lsv = self.oracle.lsv(&transaction);
        let wider = if dice.one_in(4) { dice.below(3) } else { 0 };
        let low = Timestamp(lsv.0.saturating_sub(wider));
        let high = Timestamp((lsv.0 + wider).min(transaction.begin.0));
        transaction.lsv = Lsv { low, high };
        self.submitted.insert(transaction.id, transaction.clone());
        transaction
    }

    /// A site decided: the first time it is judged, afterwards it must be the same.
    pub fn decided(&mut self, decided: &Decided) {
        let place = usize::try_from(decided.at.0 - 1).expect("small");
        if let Some(same) = self.decisions.get(place) {
            assert_eq!(same, decided, "sites decided differently");
            return;
        }
        assert_eq!(place, self.decisions.len(), "a gap");
        self.decisions.push(decided.clone());
        let transaction = self.submitted[&decided.id].clone();
        let found = verdict(decided.outcome);
        *self.by.entry(name(found)).or_default() += 1;
        if !self.only_records && decided.outcome != Outcome::Ended {
            let expected = self.oracle.judge(&transaction, decided.floor, decided.at);
            self.compare(decided, &transaction, expected);
        }
        if found == Some(Verdict::Commit) {
            let chosen = || self.oracle.choose(&transaction, decided.floor, decided.at);
            let lsv = if self.only_records { None } else { chosen() };
            self.oracle.commit(decided.at, transaction, lsv);
        }
    }

    /// With what definition 3.1 says, and with the centralized certifier of this crate.
    fn compare(&mut self, decided: &Decided, transaction: &Transaction, expected: Verdict) {
        let commits = decided.outcome == Outcome::Committed;
        self.rssi.collect(decided.floor);
        if expected == Verdict::Commit && !commits {
            assert!(self.may_abort_more, "{:?} for nothing: {transaction:?}", decided.outcome);
            self.aborted_more += 1;
            self.rssi.certify(&Transaction { begin: Timestamp(0), ..transaction.clone() });
            return;
        }
        assert_eq!(commits, expected == Verdict::Commit, "{transaction:?}");
        let centralized = self.rssi.certify(transaction);
        assert_eq!((centralized.at, centralized.verdict.is_ok()), (decided.at, commits));
    }

    /// A client is told what became of its transaction; none: it was not proposed.
    pub fn tell(&mut self, id: TxnId, outcome: Option<Outcome>) {
        assert_eq!(self.told.insert(id, outcome), None, "{id:?} is told twice");
    }

    /// Every client was told, the truth.
    pub fn check_told(&self, is_alive: impl Fn(TxnId) -> bool) {
        let decided: BTreeMap<TxnId, Outcome> =
            self.decisions.iter().map(|decided| (decided.id, decided.outcome)).collect();
        for id in self.submitted.keys().filter(|id| is_alive(**id) || self.told.contains_key(id)) {
            match self.told.get(id).expect("an outcome") {
                None => assert_eq!(decided.get(id), None, "{id:?} was decided all the same"),
                Some(outcome) => assert_eq!(decided.get(id), Some(outcome), "{id:?}"),
            }
        }
    }

    /// A new view: what was decided after `start` is void.
    pub fn view_changed(&mut self, start: Timestamp) {
        self.decisions.truncate(usize::try_from(start.0).expect("small"));
        self.oracle.forget_after(start);
        self.oracle.before_view = self.oracle.committed.len();
        self.start = start;
        self.rssi = centralized(self.oracle.by_the_letter);
        self.rssi.reset(start);
    }

    /// What is aborted early would have been aborted in its turn.
    pub fn refused(&mut self, id: TxnId, refusal: Refusal) {
        if let Refusal::Doomed(cause) = refusal
            && let Some(transaction) = self.submitted.get(&id)
        {
            self.early += 1;
            let next = Timestamp(self.decisions.len() as u64 + 1);
            let spared = || self.oracle.judge(transaction, self.start, next) == Verdict::Commit;
            let is_wrong = !self.may_abort_more && !self.only_records && spared();
            assert!(!is_wrong, "{cause:?}: {transaction:?}");
        }
    }
}

fn name(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Commit) => "committed",
        Some(Verdict::WriteConflict) => "ww",
        Some(Verdict::DescendingStructure) => "structure",
        Some(Verdict::SnapshotTooOld) => "too old",
        None => "other",
    }
}

/// Small enough that every bound is met.
pub fn small_limits() -> Limits {
    Limits { committed_max: 24, spare_max: 4, report_every: 8, ..Limits::default() }
}
