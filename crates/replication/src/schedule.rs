//! Which entries a replica may execute now, and which it may commit now (Hihooi section 4.2,
//! Algorithm 2). Pure: events in, effects out.
//!
//! Keeps I2: groups, each consisting of consecutive entries, commit strictly in the log's order. Two groups are
//! executed in parallel only if nothing that either writes is written by the other or by an entry between them.
//! The [`Method`] determines how this is found out.
//!
//! Departures: the paper's Extractors commit in any order and report prefixes without gaps, so a reader at a
//! replica can see a transaction without an earlier one. As in the paper, items may miss a dependency, such as
//! a second unique index. Then execution fails, and the entries of the group are executed again one by one,
//! each only when all entries before it are committed. If one fails even then, the replica has diverged.

mod algorithm2;
mod last_writers;

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use algorithm2::Algorithm2;
use last_writers::LastWriters;
use serde::{Deserialize, Serialize};

use crate::ids::Tsid;
use crate::items::Items;

/// How it is found out which entries may execute at once (`apply.method`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// They don't: one after the other, each in a transaction of its own.
    Serial,
    /// The paper's Algorithm 2, each in a transaction of its own.
    Algorithm2,
    /// Each waits for the last that wrote something of what it writes; when many wait, runs of them become one
    /// transaction.
    #[default]
    Graph,
}

impl Method {
    const ALL: [(Method, &str); 3] =
        [(Method::Serial, "serial"), (Method::Algorithm2, "algorithm2"), (Method::Graph, "graph")];
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = Method::ALL.iter().find(|(method, _)| method == self);
        f.write_str(own.map_or("", |(_, name)| name))
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Method, String> {
        let named = Method::ALL.iter().find(|(_, own)| *own == name);
        named.map(|(method, _)| *method).ok_or("it is graph, algorithm2 or serial".to_owned())
    }
}

/// The sizes that bound a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections that execute, at least 1.
    pub workers: usize,
    /// Entries that are held at once.
    pub window: usize,
    /// More entries waiting than this are taken together in groups.
    pub crowd: usize,
    /// Entries of a group.
    pub group_entries: usize,
    /// Bytes of a group; a single larger entry is a group by itself.
    pub group_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { workers: 4, window: 1024, crowd: 4, group_entries: 128, group_bytes: 1 << 18 }
    }
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The next entry of the log; only while [`Schedule::room`] is not 0.
    Arrived {
        /// What it writes.
        items: Items,
        /// Its size.
        bytes: usize,
    },
    /// Everything up to here may be committed: durable in the log and shown by the primary.
    Gate(Tsid),
    /// A worker executed its group and awaits the commit.
    Executed(usize),
    /// A worker's group is committed.
    Committed(usize),
    /// A worker's group failed and is rolled back.
    Failed(usize),
    /// A worker's group is rolled back as [`Effect::Abort`] asked.
    Aborted(usize),
    /// A worker holds a lock for which the oldest group waits: it must be rolled back.
    InTheWay(usize),
    /// Commit nothing beyond this position, or nothing at all if it lies behind; `None` lifts it.
    Hold(Option<Tsid>),
    /// The same for a moment: what is executed beyond stays so. [`Tsid::MAX`] lifts it.
    Limit(Tsid),
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Get ready to execute these consecutive entries, which will be asked for when what they wait for is committed.
    Prepare {
        /// The worker.
        worker: usize,
        /// The first entry.
        first: Tsid,
        /// The last entry.
        last: Tsid,
    },
    /// Execute these consecutive entries in one transaction, without committing.
    Execute {
        /// The worker.
        worker: usize,
        /// The first entry.
        first: Tsid,
        /// The last entry.
        last: Tsid,
    },
    /// Commit what the worker executed.
    Commit {
        /// The worker.
        worker: usize,
        /// The last of the entries.
        last: Tsid,
    },
    /// Roll back what the worker executed.
    Abort {
        /// The worker.
        worker: usize,
    },
    /// The entry failed alone and as the oldest, after it had failed before.
    Diverged(Tsid),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The worker gets ready for it; it may be executed once everything up to there is committed.
    Preparing {
        needs: Tsid,
    },
    Executing,
    /// Executing, to be rolled back afterwards.
    Doomed,
    Executed,
    Committing,
    Aborting,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Group {
    first: Tsid,
    last: Tsid,
    phase: Phase,
    /// It runs alone and as the oldest, because it failed before.
    alone: bool,
}

struct Waiting {
    bytes: usize,
    /// It could write anything.
    is_everything: bool,
    /// Those that it waits for, in the log's order. (Of [`Method::Graph`].)
    needs: Vec<Tsid>,
    /// It waits for none. (Of [`Method::Algorithm2`].)
    is_released: bool,
    /// A worker has it.
    taken: bool,
}

/// What a [`Method`] knows.
enum Dependencies {
    Serial,
    Algorithm2(Algorithm2),
    Graph(LastWriters),
}

/// The schedule of one replica.
pub struct Schedule {
    limits: Limits,
    dependencies: Dependencies,
    /// Everything up to here is committed.
    applied: Tsid,
    /// The entries behind `applied`, in order.
    entries: VecDeque<Waiting>,
    groups: Vec<Option<Group>>,
    gate: Tsid,
    hold: Option<Tsid>,
    limit: Tsid,
    /// Up to here entries run one by one, because one of them failed.
    careful: Tsid,
    diverged: bool,
}

impl Schedule {
    /// A schedule for a replica that has applied everything up to `applied`.
    #[must_use]
    pub fn new(method: Method, limits: Limits, applied: Tsid) -> Schedule {
        Schedule {
            limits,
            dependencies: match method {
                Method::Serial => Dependencies::Serial,
                Method::Algorithm2 => Dependencies::Algorithm2(Algorithm2::default()),
                Method::Graph => Dependencies::Graph(LastWriters::default()),
            },
            applied,
            entries: VecDeque::new(),
            groups: vec![None; limits.workers],
            gate: Tsid::ZERO,
            hold: None,
            limit: Tsid::MAX,
            careful: Tsid::ZERO,
            diverged: false,
        }
    }

    /// The committed prefix.
    #[must_use]
    pub fn applied(&self) -> Tsid {
        self.applied
    }

    /// How many more entries may arrive.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limits.window.saturating_sub(self.entries.len())
    }

    /// The newest entry that arrived.
    #[must_use]
    pub fn newest(&self) -> Tsid {
        Tsid(self.applied.0 + self.entries.len() as u64)
    }

    /// Entries that arrived and aren't committed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.entries.len()
    }

    /// Everything up to here may be committed as far as is known.
    #[must_use]
    pub fn gate(&self) -> Tsid {
        self.gate
    }

    /// Whether a commit is on its way.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.groups.iter().flatten().any(|group| group.phase == Phase::Committing)
    }

    /// Whether the oldest group is executed and waits for its gate.
    #[must_use]
    pub fn awaits_gate(&self) -> bool {
        let head = self.applied.next();
        let waits = |group: &Group| group.phase == Phase::Executed && group.last > self.gate;
        self.groups.iter().flatten().any(|group| group.first == head && waits(group))
    }

    /// The worker that executes the oldest entry at this moment.
    #[must_use]
    pub fn oldest_executing(&self) -> Option<usize> {
        let head = self.applied.next();
        self.worker_of(|group| {
            group.first == head && matches!(group.phase, Phase::Executing | Phase::Doomed)
        })
    }

    /// Takes in what happened; tells what is to be done now.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        let has_arrived = matches!(event, Event::Arrived { .. });
        // Neither frees a worker or an entry.
        let frees_nothing = matches!(event, Event::Gate(_) | Event::Executed(_));
        self.take(event, &mut effects);
        if !self.diverged {
            self.commit_oldest(&mut effects);
            self.execute_prepared(&mut effects);
            // Of those that waited before it came, all wait still.
            let waits = has_arrived && !self.may_start(self.entries.len() - 1);
            if !frees_nothing && !waits {
                self.dispatch(&mut effects);
            }
            self.prepare(&mut effects);
        }
        effects
    }

    fn take(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Arrived { items, bytes } => self.arrived(items, bytes),
            Event::Gate(tsid) => self.gate = self.gate.max(tsid),
            Event::Executed(worker) => self.executed(worker, effects),
            Event::Committed(worker) => self.committed(worker),
            Event::Failed(worker) => self.failed(worker, effects),
            Event::Aborted(worker) => {
                self.give_back(worker);
            }
            Event::InTheWay(worker) => self.doom(worker, effects),
            Event::Hold(limit) => self.set_hold(limit, effects),
            Event::Limit(limit) => {
                self.limit = limit;
                self.doom_where(effects, |group| group.first <= limit && limit < group.last);
            }
        }
    }

    fn arrived(&mut self, items: Items, bytes: usize) {
        let (tsid, applied) = (self.newest().next(), self.applied);
        let is_everything = matches!(items, Items::Everything);
        let (needs, is_released) = match &mut self.dependencies {
            Dependencies::Serial => (Vec::new(), false),
            Dependencies::Algorithm2(states) => (Vec::new(), states.arrived(tsid, items)),
            Dependencies::Graph(last) => (last.add(tsid, &items, applied), false),
        };
        let waiting = Waiting { bytes, is_everything, needs, is_released, taken: false };
        self.entries.push_back(waiting);
    }

    fn executed(&mut self, worker: usize, effects: &mut Vec<Effect>) {
        let group = self.groups[worker].as_mut().expect("a worker that executed has a group");
        group.phase = match group.phase {
            Phase::Doomed => {
                effects.push(Effect::Abort { worker });
                Phase::Aborting
            }
            _ => Phase::Executed,
        };
    }

    fn committed(&mut self, worker: usize) {
        let group = self.groups[worker].take().expect("a worker that committed has a group");
        assert_eq!(group.first, self.applied.next(), "commits come in the log's order (I2)");
        self.entries.drain(..self.index(group.last) + 1);
        self.applied = group.last;
        if let Dependencies::Algorithm2(states) = &mut self.dependencies {
            let done = (group.first.0..=group.last.0).map(Tsid);
            let released: Vec<Tsid> = done.flat_map(|tsid| states.completed(tsid)).collect();
            for tsid in released {
                let index = self.index(tsid);
                self.entries[index].is_released = true;
            }
        }
    }

    fn failed(&mut self, worker: usize, effects: &mut Vec<Effect>) {
        let group = self.give_back(worker);
        if group.phase == Phase::Doomed {
            return;
        }
        if group.alone {
            self.diverged = true;
            effects.push(Effect::Diverged(group.first));
            return;
        }
        self.careful = self.careful.max(group.last);
        self.doom_where(effects, |other| other.first > group.first);
    }

    fn set_hold(&mut self, limit: Option<Tsid>, effects: &mut Vec<Effect>) {
        self.hold = limit;
        if let Some(limit) = limit {
            self.doom_where(effects, |group| group.last > limit);
        }
    }

    fn doom_where(&mut self, effects: &mut Vec<Effect>, which: impl Fn(&Group) -> bool) {
        for worker in 0..self.groups.len() {
            if self.groups[worker].as_ref().is_some_and(&which) {
                self.doom(worker, effects);
            }
        }
    }

    fn doom(&mut self, worker: usize, effects: &mut Vec<Effect>) {
        let Some(group) = self.groups[worker].as_mut() else { return };
        match group.phase {
            Phase::Executing => group.phase = Phase::Doomed,
            Phase::Preparing { .. } | Phase::Executed => {
                group.phase = Phase::Aborting;
                effects.push(Effect::Abort { worker });
            }
            Phase::Doomed | Phase::Committing | Phase::Aborting => {}
        }
    }

    fn give_back(&mut self, worker: usize) -> Group {
        let group = self.groups[worker].take().expect("a worker that ended a group has one");
        self.mark(&group, false);
        group
    }

    fn commit_oldest(&mut self, effects: &mut Vec<Effect>) {
        let head = self.applied.next();
        let limit = self.hold.unwrap_or(Tsid::MAX).min(self.gate).min(self.limit);
        let ready = self.worker_of(|group| {
            group.first == head && group.phase == Phase::Executed && group.last <= limit
        });
        if let Some(worker) = ready {
            let group = self.groups[worker].as_mut().expect("just found");
            group.phase = Phase::Committing;
            effects.push(Effect::Commit { worker, last: group.last });
        }
    }

    fn dispatch(&mut self, effects: &mut Vec<Effect>) {
        while let Some(worker) = self.groups.iter().position(Option::is_none) {
            let Some((first, last)) = self.next_unit() else { return };
            let alone = first <= self.careful;
            let group = Group { first, last, phase: Phase::Executing, alone };
            self.mark(&group, true);
            self.groups[worker] = Some(group);
            effects.push(Effect::Execute { worker, first, last });
        }
    }

    /// Lets the group begin that was prepared, if what it waits for is committed.
    fn execute_prepared(&mut self, effects: &mut Vec<Effect>) {
        let applied = self.applied;
        let may_start =
            |group: &Group| matches!(group.phase, Phase::Preparing { needs } if needs <= applied);
        let Some(worker) = self.worker_of(may_start) else { return };
        let Some(group) = &mut self.groups[worker] else { return };
        group.phase = Phase::Executing;
        effects.push(Effect::Execute { worker, first: group.first, last: group.last });
    }

    /// Has a worker that has nothing to do get ready for the next group, if it waits for such as are on their way
    /// only, and more entries wouldn't fit.
    fn prepare(&mut self, effects: &mut Vec<Effect>) {
        let is_preparing = |group: &Group| matches!(group.phase, Phase::Preparing { .. });
        let is_graph = matches!(self.dependencies, Dependencies::Graph(_));
        let is_careful = self.applied.next() <= self.careful;
        if !is_graph || is_careful || self.worker_of(is_preparing).is_some() {
            return;
        }
        let Some(worker) = self.groups.iter().position(Option::is_none) else { return };
        let end = self.end_of_dispatch();
        let Some(first) = (0..end).find(|index| !self.entries[*index].taken) else { return };
        // All before the first are on their way.
        let last = self.extend(first, end, self.tsid(first));
        let is_full = last + 1 < end && self.tsid(last + 1) <= self.gate;
        if self.entries[first].is_everything || !is_full {
            return;
        }
        let begin = self.tsid(first);
        let needs = self.entries.range(first..=last).flat_map(|entry| &entry.needs);
        let needs = needs.filter(|needed| **needed < begin).max().copied().unwrap_or_default();
        let phase = Phase::Preparing { needs };
        let group = Group { first: begin, last: self.tsid(last), phase, alone: false };
        self.mark(&group, true);
        self.groups[worker] = Some(group);
        effects.push(Effect::Prepare { worker, first: group.first, last: group.last });
    }

    fn next_unit(&self) -> Option<(Tsid, Tsid)> {
        if self.applied.next() <= self.careful {
            return self.next_careful();
        }
        let end = self.end_of_dispatch();
        let is_next = |index: &usize| !self.entries[*index].taken && self.may_start(*index);
        let first = (0..end).find(is_next)?;
        let last = self.extend(first, end, self.applied.next());
        Some((self.tsid(first), self.tsid(last)))
    }

    /// Whether an entry need not wait for others.
    fn may_start(&self, index: usize) -> bool {
        let entry = &self.entries[index];
        match self.dependencies {
            Dependencies::Serial => index == 0,
            Dependencies::Algorithm2(_) => entry.is_released,
            Dependencies::Graph(_) => entry.needs.last().is_none_or(|last| *last <= self.applied),
        }
    }

    /// The oldest entry, once nothing else is on its way.
    fn next_careful(&self) -> Option<(Tsid, Tsid)> {
        let head = self.applied.next();
        let idle = self.groups.iter().all(Option::is_none);
        (idle && self.end_of_dispatch() > 0).then_some((head, head))
    }

    /// How many of the entries lie under the hold.
    fn end_of_dispatch(&self) -> usize {
        let held = self.hold.map_or(u64::MAX, |hold| hold.0.saturating_sub(self.applied.0));
        self.entries.len().min(usize::try_from(held).unwrap_or(usize::MAX))
    }

    /// The last entry of the group that starts at `first`. Entries that may be committed already
    /// are taken together when many wait, or when they would wait for this group anyway; one that
    /// the primary may not show for long never holds back those before it. It waits for none from `open` on, but for
    /// those of the group.
    fn extend(&self, first: usize, end: usize, open: Tsid) -> usize {
        if !matches!(self.dependencies, Dependencies::Graph(_)) {
            return first;
        }
        let crowded = self.untaken() > self.limits.crowd;
        let begin = self.tsid(first);
        let mut bytes = self.entries[first].bytes;
        let mut last = first;
        while !self.entries[last].is_everything && last + 1 < end {
            let next = &self.entries[last + 1];
            bytes += next.bytes;
            let fits = last + 1 - first < self.limits.group_entries
                && bytes <= self.limits.group_bytes
                && self.tsid(last + 1) <= self.gate
                && !(begin..=self.tsid(last)).contains(&self.limit);
            let alone = next.taken || next.is_everything;
            let waits_for_group = next.needs.last().is_some_and(|last| *last >= begin);
            let waits_for_others = next.needs.iter().any(|needed| (open..begin).contains(needed));
            if !fits || alone || waits_for_others || !(crowded || waits_for_group) {
                break;
            }
            last += 1;
        }
        last
    }

    /// Entries that no worker has.
    fn untaken(&self) -> usize {
        let taken = |group: &Group| group.last.0 - group.first.0 + 1;
        let taken: u64 = self.groups.iter().flatten().map(taken).sum();
        self.entries.len() - usize::try_from(taken).expect("the window fits into memory")
    }

    fn worker_of(&self, which: impl Fn(&Group) -> bool) -> Option<usize> {
        self.groups.iter().position(|group| group.as_ref().is_some_and(&which))
    }

    fn mark(&mut self, group: &Group, taken: bool) {
        let range = self.index(group.first)..=self.index(group.last);
        self.entries.range_mut(range).for_each(|entry| entry.taken = taken);
    }

    fn index(&self, tsid: Tsid) -> usize {
        usize::try_from(tsid.0 - self.applied.0 - 1).expect("the window fits into memory")
    }

    fn tsid(&self, index: usize) -> Tsid {
        Tsid(self.applied.0 + 1 + index as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::items::{Columns, Item, RelId, Rows, Span};

    fn items(keys: &[u8]) -> Items {
        let spans: Vec<Span> = keys.iter().map(|&key| Span::row([key])).collect();
        let item = Item { table: RelId(1), rows: Rows::of(spans), columns: Columns::All };
        Items::of((!keys.is_empty()).then_some(item))
    }

    fn arrived(keys: &[u8]) -> Event {
        Event::Arrived { items: items(keys), bytes: 100 }
    }

    fn schedule(applied: u64) -> Schedule {
        Schedule::new(Method::Graph, small(), Tsid(applied))
    }

    fn execute(worker: usize, first: u64, last: u64) -> Effect {
        Effect::Execute { worker, first: Tsid(first), last: Tsid(last) }
    }

    fn commit(worker: usize, last: u64) -> Effect {
        Effect::Commit { worker, last: Tsid(last) }
    }

    fn small() -> Limits {
        Limits { workers: 3, window: 64, crowd: 4, group_entries: 4, group_bytes: 1000 }
    }

    #[test]
    fn independent_entries_run_at_once_and_commit_in_order() {
        let mut schedule = schedule(10);
        assert_eq!(schedule.step(arrived(&[1])), [execute(0, 11, 11)]);
        assert_eq!(schedule.step(arrived(&[2])), [execute(1, 12, 12)]);
        assert_eq!(schedule.step(arrived(&[1])), []);
        assert_eq!(schedule.step(arrived(&[3])), [execute(2, 14, 14)]);
        assert_eq!(schedule.step(Event::Gate(Tsid(14))), []);
        assert_eq!(schedule.step(Event::Executed(1)), [], "12 waits for 11 (I2)");
        assert_eq!(schedule.step(Event::Executed(0)), [commit(0, 11)]);
        let then = schedule.step(Event::Committed(0));
        assert_eq!(then, [commit(1, 12), execute(0, 13, 13)]);
    }

    #[test]
    fn nothing_commits_before_its_gate_opens() {
        let mut schedule = schedule(0);
        schedule.step(arrived(&[1]));
        assert_eq!(schedule.step(Event::Executed(0)), []);
        assert_eq!(schedule.step(Event::Gate(Tsid(1))), [commit(0, 1)]);
    }

    #[test]
    fn what_waits_for_a_conflict_is_taken_together() {
        let mut schedule = schedule(0);
        for _ in 0..4 {
            schedule.step(arrived(&[1]));
        }
        schedule.step(Event::Gate(Tsid(3)));
        schedule.step(Event::Executed(0));
        assert_eq!(schedule.step(Event::Committed(0)), [execute(0, 2, 3)], "4 isn't shown yet");
    }

    #[test]
    fn who_fails_alone_after_a_failure_has_diverged() {
        let mut schedule = schedule(0);
        schedule.step(arrived(&[1]));
        schedule.step(arrived(&[2]));
        schedule.step(Event::Executed(1));
        assert_eq!(schedule.step(Event::Failed(0)), [Effect::Abort { worker: 1 }]);
        assert_eq!(schedule.step(Event::Aborted(1)), [execute(0, 1, 1)]);
        assert_eq!(schedule.step(Event::Failed(0)), [Effect::Diverged(Tsid(1))]);
    }

    #[test]
    fn a_first_failure_is_never_divergence() {
        let mut schedule = schedule(0);
        schedule.step(arrived(&[1]));
        schedule.step(arrived(&[2]));
        assert_eq!(schedule.step(Event::Failed(1)), [], "2 waits for 1");
        assert_eq!(schedule.step(Event::Failed(0)), [execute(0, 1, 1)]);
    }

    #[test]
    fn a_hold_takes_back_what_lies_beyond() {
        let mut schedule = schedule(0);
        (1..=3).for_each(|key| drop(schedule.step(arrived(&[key]))));
        schedule.step(Event::Executed(1));
        schedule.step(Event::Gate(Tsid(3)));
        assert_eq!(schedule.step(Event::Hold(Some(Tsid(1)))), [Effect::Abort { worker: 1 }]);
        assert_eq!(schedule.step(Event::Executed(0)), [commit(0, 1)]);
        schedule.step(Event::Aborted(1));
        schedule.step(Event::Committed(0));
        assert_eq!(schedule.step(Event::Executed(2)), [Effect::Abort { worker: 2 }]);
        assert_eq!(schedule.step(Event::Aborted(2)), []);
        assert_eq!(schedule.applied(), Tsid(1));
        let released = schedule.step(Event::Hold(None));
        assert_eq!(released, [execute(0, 2, 2), execute(1, 3, 3)]);
    }

    /// A replica stands at exactly this position for a moment, whatever was taken together.
    #[test]
    fn a_limit_takes_back_only_a_group_that_it_cuts() {
        let mut schedule = schedule(0);
        schedule.step(arrived(&[9]));
        schedule.step(arrived(&[1]));
        (3..=6).for_each(|_| drop(schedule.step(arrived(&[9]))));
        schedule.step(Event::Gate(Tsid(6)));
        schedule.step(Event::Executed(1));
        schedule.step(Event::Executed(0));
        assert_eq!(schedule.step(Event::Committed(0)), [commit(1, 2), execute(0, 3, 6)]);
        assert_eq!(schedule.step(Event::Committed(1)), []);
        schedule.step(arrived(&[2]));
        schedule.step(Event::Gate(Tsid(7)));
        schedule.step(Event::Executed(1));
        assert_eq!(schedule.step(Event::Limit(Tsid(4))), [], "3 to 6 is executing, 7 may stay");
        assert_eq!(schedule.step(Event::Executed(0)), [Effect::Abort { worker: 0 }]);
        assert_eq!(schedule.step(Event::Aborted(0))[0], execute(0, 3, 4));
        assert_eq!(schedule.step(Event::Executed(0)), [commit(0, 4)]);
        assert_eq!(schedule.step(Event::Committed(0)), [execute(2, 5, 6)]);
        assert_eq!(schedule.step(Event::Executed(2)), []);
        assert_eq!(schedule.step(Event::Limit(Tsid::MAX)), [commit(2, 6)]);
        assert_eq!(schedule.step(Event::Committed(2)), [commit(1, 7)]);
    }

    #[test]
    fn the_next_group_is_prepared_while_what_it_waits_for_is_on_its_way() {
        let mut schedule = schedule(0);
        for _ in 0..10 {
            schedule.step(arrived(&[1]));
        }
        let prepare =
            |worker, first, last| Effect::Prepare { worker, first: Tsid(first), last: Tsid(last) };
        assert_eq!(schedule.step(Event::Gate(Tsid(10))), [prepare(1, 2, 5)]);
        assert_eq!(schedule.step(Event::Executed(0)), [commit(0, 1)]);
        let then = schedule.step(Event::Committed(0));
        assert_eq!(then, [execute(1, 2, 5), prepare(0, 6, 9)]);
        assert_eq!(schedule.step(Event::Failed(1)), [Effect::Abort { worker: 0 }]);
        assert_eq!(schedule.step(Event::Aborted(0)), [execute(0, 2, 2)], "one by one");
    }

    /// The stupid twin: knows every entry's keys and every worker's group, compares all with all.
    struct Twin {
        keys: Vec<Vec<u8>>,
        groups: Vec<Option<(u64, u64, bool)>>,
        committed: u64,
        gate: u64,
        limit: Tsid,
        failures: usize,
        prepared: Option<(usize, Tsid, Tsid)>,
    }

    impl Twin {
        fn is_prepared(&self, worker: usize) -> bool {
            self.prepared.is_some_and(|prepared| prepared.0 == worker)
        }

        fn obey(&mut self, effects: &[Effect]) {
            for effect in effects {
                match *effect {
                    Effect::Prepare { worker, first, last } => {
                        assert_eq!((self.groups[worker], self.prepared), (None, None));
                        assert!(last.0 - first.0 < 4 && first.0 > self.committed);
                        self.prepared = Some((worker, first, last));
                    }
                    Effect::Execute { worker, first, last } => self.execute(worker, first, last),
                    Effect::Abort { worker } if self.is_prepared(worker) => self.prepared = None,
                    Effect::Commit { worker, last: told } => {
                        let (first, last, executed) = self.groups[worker].expect("a group");
                        assert!(executed && first == self.committed + 1 && last <= self.gate);
                        assert!(last <= self.limit.0);
                        assert_eq!(told.0, last);
                    }
                    Effect::Abort { worker } => assert!(self.groups[worker].expect("a group").2),
                    Effect::Diverged(tsid) => panic!("{tsid} failed but once"),
                }
            }
        }

        fn execute(&mut self, worker: usize, first: Tsid, last: Tsid) {
            if self.is_prepared(worker) {
                assert_eq!(self.prepared.take(), Some((worker, first, last)));
            }
            assert_eq!(self.groups[worker], None);
            assert!(last.0 - first.0 < 4 && first.0 > self.committed);
            let running: Vec<u64> =
                self.groups.iter().flatten().flat_map(|group| group.0..=group.1).collect();
            for tsid in first.0..=last.0 {
                let older = self.committed + 1..first.0;
                for other in older.chain(running.iter().copied()) {
                    let keys = &self.keys[other as usize - 1];
                    let mine = &self.keys[tsid as usize - 1];
                    assert!(!mine.iter().any(|key| keys.contains(key)), "{tsid} beside {other}");
                }
            }
            self.groups[worker] = Some((first.0, last.0, false));
        }
    }

    proptest! {
        // Hihooi section 4.2: independent transaction states run in parallel, dependent ones in
        // order; ours also commit in order, and every one of them in the end.
        #[test]
        fn obeys_the_serial_order(
            keys in prop::collection::vec(prop::collection::vec(0u8..12, 0..4), 1..60),
            choices in prop::collection::vec((0u8..9, 0usize..3), 3000),
            method in prop::sample::select(vec![Method::Serial, Method::Algorithm2, Method::Graph]),
        ) {
            let mut schedule = Schedule::new(method, small(), Tsid::ZERO);
            let mut twin = Twin {
                keys,
                groups: vec![None; 3],
                committed: 0,
                gate: 0,
                limit: Tsid::MAX,
                failures: 0,
                prepared: None,
            };
            let mut arrived_count = 0;
            let mut committing = None;
            let mut aborting = [false; 3];
            for (what, worker) in choices {
                let event = match (what, twin.groups[worker]) {
                    (0, _) if arrived_count < twin.keys.len() && schedule.room() > 0 => {
                        arrived_count += 1;
                        arrived(&twin.keys[arrived_count - 1])
                    }
                    (1, _) if (twin.gate as usize) < arrived_count => {
                        twin.gate += 1;
                        Event::Gate(Tsid(twin.gate))
                    }
                    (2 | 3, Some((first, last, false))) => {
                        twin.groups[worker] = Some((first, last, true));
                        Event::Executed(worker)
                    }
                    (4, Some((.., false))) if twin.failures < 3 && schedule.careful.0 == 0 => {
                        twin.failures += 1;
                        twin.groups[worker] = None;
                        Event::Failed(worker)
                    }
                    (5, group)
                        if (group.is_some() || twin.is_prepared(worker))
                            && committing != Some(worker)
                            && !aborting[worker] =>
                    {
                        Event::InTheWay(worker)
                    }
                    (6 | 7, _) if aborting[worker] => {
                        aborting[worker] = false;
                        twin.groups[worker] = None;
                        Event::Aborted(worker)
                    }
                    (6 | 7, Some((_, last, _))) if committing == Some(worker) => {
                        committing = None;
                        twin.groups[worker] = None;
                        twin.committed = last;
                        Event::Committed(worker)
                    }
                    (8, _) => {
                        let near = Tsid(twin.committed + worker as u64);
                        twin.limit = if worker == 0 { Tsid::MAX } else { near };
                        Event::Limit(twin.limit)
                    }
                    _ => continue,
                };
                let effects = schedule.step(event);
                twin.obey(&effects);
                for effect in &effects {
                    match *effect {
                        Effect::Commit { worker, .. } => committing = Some(worker),
                        Effect::Abort { worker } => aborting[worker] = true,
                        _ => {}
                    }
                }
            }
            // It comes to stand wherever it is to, and then goes on.
            let sent = committing.map_or(0, |worker| twin.groups[worker].expect("a group").1);
            let here = sent.max(twin.committed + 2);
            for limit in [here, u64::MAX] {
                twin.limit = Tsid(limit);
                let effects = schedule.step(Event::Limit(twin.limit));
                finish(&mut schedule, &mut twin, effects, &mut committing, &mut aborting);
                prop_assert_eq!(schedule.applied().0, limit.min(arrived_count as u64));
            }
        }
    }

    /// Lets everything that is on its way go well until nothing moves.
    fn finish(
        schedule: &mut Schedule,
        twin: &mut Twin,
        mut pending: Vec<Effect>,
        committing: &mut Option<usize>,
        aborting: &mut [bool; 3],
    ) {
        twin.gate = schedule.newest().0;
        pending.extend(schedule.step(Event::Gate(Tsid(twin.gate))));
        for _ in 0..10_000 {
            twin.obey(&pending);
            for effect in pending.drain(..) {
                match effect {
                    Effect::Commit { worker, .. } => *committing = Some(worker),
                    Effect::Abort { worker } => aborting[worker] = true,
                    _ => {}
                }
            }
            let Some(event) = (0..3).find_map(|worker| {
                if aborting[worker] {
                    aborting[worker] = false;
                    twin.groups[worker] = None;
                    return Some(Event::Aborted(worker));
                }
                let (first, last, executed) = twin.groups[worker]?;
                if *committing == Some(worker) {
                    *committing = None;
                    twin.groups[worker] = None;
                    twin.committed = last;
                    Some(Event::Committed(worker))
                } else if !executed {
                    twin.groups[worker] = Some((first, last, true));
                    Some(Event::Executed(worker))
                } else {
                    None
                }
            }) else {
                return;
            };
            pending = schedule.step(event);
        }
    }
}
