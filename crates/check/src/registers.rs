//! Registers: the versions of each, and the evidence that one version came before another.
//!
//! A read of a list shows all versions up to one; a read of a register shows one, so that the order of versions
//! must be inferred (Elle, section 4.2). At every level the unset version is the first, and a transaction that
//! wrote after reading wrote a later version. What else is known follows from one inference: if version a was
//! committed before the snapshot of a transaction that saw or wrote version b, then b is the later one. It was
//!
//! - if that transaction saw something else that a's writer wrote: true wherever transactions read
//!   snapshots;
//! - if one that wrote or saw a had ended before that transaction began, in the same process or by
//!   the clock: true at levels that promise this order, and only there.
//!
//! Each edge records on what it is based. Longer chains, through other keys, would show even more (deciding
//! whether a register history is serializable is NP-complete: Papadimitriou, The serializability of concurrent
//! database updates, 1979).

use std::collections::{BTreeMap, BTreeSet};

use ahash::AHashMap;

use crate::edges::{
    Edges, Kinds, RW, RW_PROCESS, RW_SEEN, RW_TIME, WR, WW_PROCESS, WW_SEEN, WW_TIME, c, s,
};
use crate::facts::{Base, Facts};
use crate::history::{Key, Outcome, Step, Txn};
use crate::tell::{Link, Why};

/// A version's reader gets edges of its own to at most so many versions that may be beside its
/// own in time; in a sound history there are as many of them as clients.
const BESIDE_MAX: usize = 64;

/// Of those whom a transaction saw so many are looked at.
const SEEN_MAX: usize = 64;

/// Writers of later versions, by version.
type Later = BTreeMap<usize, BTreeSet<Txn>>;

/// What one transaction left in a register.
pub(crate) struct Version {
    pub writer: Txn,
    /// Others that saw it, by their numbers.
    pub seen_by: Vec<Txn>,
}

impl Version {
    fn known_to(&self) -> impl Iterator<Item = Txn> {
        std::iter::once(self.writer).chain(self.seen_by.iter().copied())
    }

    /// When the first of those who wrote or saw it ended: by then it was there.
    fn there(&self, facts: &Facts) -> (i64, Txn) {
        let ended = |txn| (facts.history.record(txn).completed, txn);
        self.known_to().map(ended).min().expect("its writer")
    }

    /// When the last of those who wrote or saw it began: what was there by then isn't later.
    fn latest(&self, facts: &Facts) -> (i64, Txn) {
        let begun = |txn| (facts.history.record(txn).invoked, txn);
        self.known_to().map(begun).max().expect("its writer")
    }
}

/// A register's versions.
pub(crate) struct Versions {
    pub all: Vec<Version>,
    /// Those who saw that it was never set.
    pub unset: Vec<Txn>,
    of_writer: AHashMap<Txn, usize>,
}

impl Versions {
    pub fn of(facts: &Facts, key: Key) -> Versions {
        let known = &facts.keys[key as usize];
        let version = |writer| Version { writer, seen_by: Vec::new() };
        let all: Vec<Version> = known.writes.iter().map(|write| version(write.txn)).collect();
        let of_writer = all.iter().enumerate().map(|(at, version)| (version.writer, at)).collect();
        let mut versions = Versions { all, unset: Vec::new(), of_writer };
        for read in &known.register_reads {
            let seen_by = match read.seen {
                None => &mut versions.unset,
                Some(value) => {
                    let writer = facts.history.writer(key, value).map(|writer| writer.txn);
                    let Some(at) = writer.and_then(|writer| versions.at(writer)) else { continue };
                    if versions.all[at].writer == read.txn {
                        continue;
                    }
                    &mut versions.all[at].seen_by
                }
            };
            // One that reads twice does so in succession.
            if seen_by.last() != Some(&read.txn) {
                seen_by.push(read.txn);
            }
        }
        versions
    }

    fn at(&self, writer: Txn) -> Option<usize> {
        self.of_writer.get(&writer).copied()
    }

    fn writers(&self) -> Vec<Txn> {
        self.all.iter().map(|version| version.writer).collect()
    }

    /// Those who read a version and wrote the next one.
    fn updaters(&self, facts: &Facts, key: Key) -> BTreeMap<usize, Vec<Txn>> {
        let mut updaters: BTreeMap<usize, Vec<Txn>> = BTreeMap::new();
        for write in &facts.keys[key as usize].writes {
            let Base::Register(Some(value)) = write.base else { continue };
            let read = facts.history.writer(key, value).and_then(|read| self.at(read.txn));
            if let Some(read) = read {
                updaters.entry(read).or_default().push(write.txn);
            }
        }
        updaters
    }

    /// Which version a process wrote or saw, and which one, in a later transaction, next. Behind
    /// one of unknown outcome a process may go on before that one takes effect.
    fn in_processes(&self, facts: &Facts) -> Vec<[Known; 2]> {
        let record = |txn| facts.history.record(txn);
        let known =
            |version: usize| self.all[version].known_to().map(move |by| Known { version, by });
        let mut all: Vec<Known> = (0..self.all.len()).flat_map(known).collect();
        // In one transaction what it wrote is the last.
        let is_own = |known: &Known| self.all[known.version].writer == known.by;
        all.sort_by_key(|known| {
            let record = record(known.by);
            (record.process, record.invoked, known.by, is_own(known), known.version)
        });
        let (mut pairs, mut last): (Vec<[Known; 2]>, Option<Known>) = (Vec::new(), None);
        for next in all {
            last = last.filter(|last| record(last.by).process == record(next.by).process);
            pairs.extend(
                last.filter(|last| last.by != next.by && last.version != next.version)
                    .map(|last| [last, next]),
            );
            if record(next.by).outcome == Outcome::Committed {
                last = Some(next);
            }
        }
        pairs
    }

    /// Versions in the order in which the last of those who wrote or saw them began.
    fn in_time(&self, facts: &Facts) -> Vec<(i64, Txn)> {
        let mut all: Vec<(i64, Txn)> =
            self.all.iter().map(|version| (version.latest(facts).0, version.writer)).collect();
        all.sort_unstable();
        all
    }
}

/// A version, and one who wrote or saw it.
#[derive(Clone, Copy, Debug)]
struct Known {
    version: usize,
    by: Txn,
}

/// What tells the order of two versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// What was read of the key, and written: true at every level.
    Data,
    /// What was seen beside it, in one snapshot.
    Seen,
    /// The order of a process.
    Process,
    /// Real time.
    Time,
}

/// Two transactions that wrote or saw two versions, given by their writers, and tell that the
/// second one is later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Evidence {
    pub by: By,
    pub key: Key,
    pub earlier: Txn,
    pub known_to: Txn,
    pub later: Txn,
    pub later_known_to: Txn,
}

/// What tells the order of the versions that a link is about.
pub(crate) fn evidence(facts: &Facts, link: &Link) -> Option<Evidence> {
    let (Why::Ww(key, by) | Why::Rw(key, by)) = link.why else { return None };
    if by == By::Data {
        return None;
    }
    let versions = Versions::of(facts, key);
    let later = versions.at(link.to)?;
    let is_earlier = |at: &usize| match link.why {
        Why::Ww(..) => versions.all[*at].writer == link.from,
        _ => versions.all[*at].seen_by.contains(&link.from),
    };
    let earlier = (0..versions.all.len()).filter(|&at| at != later).filter(is_earlier);
    let mut pairs = earlier.filter_map(|earlier| versions.pair(facts, key, by, earlier, later));
    let [a, b] = pairs.next()?;
    let writer = |known: Known| versions.all[known.version].writer;
    Some(Evidence {
        by,
        key,
        earlier: writer(a),
        known_to: a.by,
        later: writer(b),
        later_known_to: b.by,
    })
}

/// The other key at which a transaction saw something of a writer.
pub(crate) fn saw(facts: &Facts, txn: Txn, writer: Txn, key: Key) -> Option<Key> {
    let of_writer = |key, value| facts.history.writer(key, value).is_some_and(|w| w.txn == writer);
    facts.history.steps(txn).iter().find_map(|step| match *step {
        Step::Register(other, value) if other != key && of_writer(other, value) => Some(other),
        Step::List { key: other, start, len } if other != key => {
            let mut values = facts.history.elements(start, len).iter();
            values.any(|&value| of_writer(other, value)).then_some(other)
        }
        _ => None,
    })
}

impl Versions {
    /// Who tells that one version is later than another.
    fn pair(
        &self,
        facts: &Facts,
        key: Key,
        by: By,
        earlier: usize,
        later: usize,
    ) -> Option<[Known; 2]> {
        let (first, second) = (&self.all[earlier], &self.all[later]);
        let known = |version, by| Known { version, by };
        match by {
            By::Data => None,
            By::Seen => second
                .known_to()
                .find(|&txn| saw(facts, txn, first.writer, key).is_some())
                .map(|txn| [known(earlier, first.writer), known(later, txn)]),
            By::Process => self
                .in_processes(facts)
                .into_iter()
                .find(|[a, b]| (a.version, b.version) == (earlier, later)),
            By::Time => {
                let ((ended, one), (begun, other)) = (first.there(facts), second.latest(facts));
                (ended < begun).then(|| [known(earlier, one), known(later, other)])
            }
        }
    }
}

/// Versions in time, with a barrier before each of them, which leads to it and to the next one.
struct Chain<'a> {
    versions: &'a [(i64, Txn)],
    barriers: Vec<u32>,
    kind: Kinds,
    node: fn(Txn) -> u32,
}

impl Edges {
    /// Versions of all registers, in the order that can be known.
    pub fn registers(&mut self, facts: &Facts) {
        let keys = 0..facts.keys.len() as Key;
        let read = keys.filter(|&key| !facts.keys[key as usize].register_reads.is_empty());
        let all: Vec<(Key, Versions)> = read.map(|key| (key, Versions::of(facts, key))).collect();
        for (key, versions) in &all {
            for version in &versions.all {
                version.seen_by.iter().for_each(|&reader| self.wr(version.writer, reader, *key));
            }
        }
        let seen = self.seen();
        for (key, versions) in &all {
            self.register(facts, versions, *key);
            self.seen_together(versions, &seen, *key);
            self.versions_in_processes(facts, versions, *key);
            self.versions_in_time(facts, versions, *key);
        }
    }

    /// What holds at every level. (The ww edge of who read a version and wrote the next one is its
    /// wr edge.)
    fn register(&mut self, facts: &Facts, versions: &Versions, key: Key) {
        self.overwritten_by_all(&versions.unset, &versions.writers(), RW, key);
        for (version, updaters) in versions.updaters(facts, key) {
            self.overwritten_by_all(&versions.all[version].seen_by, &updaters, RW, key);
        }
    }

    /// Whom each transaction saw, and at which keys.
    fn seen(&self) -> AHashMap<Txn, Vec<(Txn, Key)>> {
        let mut seen: AHashMap<Txn, Vec<(Txn, Key)>> = AHashMap::new();
        for edge in self.all.iter().filter(|edge| edge.kind == WR) {
            let seen = seen.entry(edge.to / 2).or_default();
            if seen.len() < SEEN_MAX {
                seen.push((edge.from / 2, edge.key));
            }
        }
        seen
    }

    fn seen_together(
        &mut self,
        versions: &Versions,
        seen: &AHashMap<Txn, Vec<(Txn, Key)>>,
        key: Key,
    ) {
        let mut later = Later::new();
        for (at, version) in versions.all.iter().enumerate() {
            let all = version.known_to().filter_map(|txn| seen.get(&txn)).flatten();
            for &(writer, _) in all.filter(|(_, other)| *other != key) {
                if let Some(earlier) = versions.at(writer).filter(|&earlier| earlier != at) {
                    later.entry(earlier).or_default().insert(version.writer);
                }
            }
        }
        self.follow(versions, later, [WW_SEEN, RW_SEEN], key);
    }

    fn versions_in_processes(&mut self, facts: &Facts, versions: &Versions, key: Key) {
        let mut later = Later::new();
        for [a, b] in versions.in_processes(facts) {
            later.entry(a.version).or_default().insert(versions.all[b.version].writer);
        }
        self.follow(versions, later, [WW_PROCESS, RW_PROCESS], key);
    }

    fn follow(&mut self, versions: &Versions, later: Later, [ww, rw]: [Kinds; 2], key: Key) {
        for (version, later) in later {
            let Version { writer, seen_by } = &versions.all[version];
            let later: Vec<Txn> = later.into_iter().collect();
            later.iter().for_each(|&later| self.ww(*writer, later, ww, key));
            self.overwritten_by_all(seen_by, &later, rw, key);
        }
    }

    fn versions_in_time(&mut self, facts: &Facts, versions: &Versions, key: Key) {
        let in_time = versions.in_time(facts);
        let place: AHashMap<Txn, usize> =
            in_time.iter().enumerate().map(|(at, &(_, writer))| (writer, at)).collect();
        let written = self.chain(&in_time, WW_TIME, s, key);
        let overwritten = self.chain(&in_time, RW_TIME, c, key);
        for version in &versions.all {
            let (there, _) = version.there(facts);
            let from = in_time.partition_point(|&(begun, _)| begun <= there);
            let own = place[&version.writer];
            self.behind(c(version.writer), &written, from, &[own], key);
            let is_updater = |reader: &&Txn| place.contains_key(*reader);
            let (updaters, readers): (Vec<&Txn>, Vec<&Txn>) =
                version.seen_by.iter().partition(is_updater);
            if !readers.is_empty() {
                let all = self.barrier();
                readers.iter().for_each(|&&reader| self.add(s(reader), all, RW_TIME, key));
                self.behind(all, &overwritten, from, &[own], key);
            }
            for &updater in updaters {
                let mut without = [own, place[&updater]];
                without.sort_unstable();
                self.behind(s(updater), &overwritten, from, &without, key);
            }
        }
    }

    fn chain<'a>(
        &mut self,
        versions: &'a [(i64, Txn)],
        kind: Kinds,
        node: fn(Txn) -> u32,
        key: Key,
    ) -> Chain<'a> {
        let barriers: Vec<u32> = versions.iter().map(|_| self.barrier()).collect();
        for (at, &(_, writer)) in versions.iter().enumerate() {
            self.add(barriers[at], node(writer), kind, key);
            if let Some(&next) = barriers.get(at + 1) {
                self.add(barriers[at], next, kind, key);
            }
        }
        Chain { versions, barriers, kind, node }
    }

    /// To all versions of a chain from a place on, without some.
    fn behind(&mut self, node: u32, chain: &Chain, from: usize, without: &[usize], key: Key) {
        let mut from = from;
        for &at in without {
            if at < from {
                continue;
            }
            for &(_, writer) in chain.versions[from..at].iter().take(BESIDE_MAX) {
                self.add(node, (chain.node)(writer), chain.kind, key);
            }
            from = at + 1;
        }
        if let Some(&barrier) = chain.barriers.get(from) {
            self.add(node, barrier, chain.kind, key);
        }
    }
}
