//! A database with snapshot isolation, row locks and first updater wins, as small as it can be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hihooi_certify::certification::{Timestamp, TxnId};
use hihooi_placement::protocol::{Change, Changes, Content, Done, Failure, Item, Run};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows;

impl Content for Rows {
    type Statement = Vec<Action>;
    type Answer = Vec<i64>;
    type Value = i64;
}

/// A statement is a list of these; rows that were never written are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Read(Item),
    Write(Item, i64),
    /// Reads and writes what it read plus this.
    Add(Item, i64),
    /// Writes another value at each execution, and answers it.
    Draw(Item),
    /// Fails.
    Wrong,
}

#[derive(Clone, Debug)]
struct Execution {
    txn: TxnId,
    run: Run,
    changes: Changes<Rows>,
    statement: Vec<Action>,
}

#[derive(Clone, Debug, Default)]
struct Open {
    snapshot: Timestamp,
    writes: BTreeMap<Item, i64>,
}

pub type Outcome = Result<Done<Rows>, Failure<Rows>>;

#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// Survives a crash: the versions of each row, and the position of the last commit.
    versions: BTreeMap<Item, Vec<(Timestamp, i64)>>,
    pub durable: Timestamp,
    snapshots: BTreeSet<Timestamp>,
    open: BTreeMap<TxnId, Open>,
    waiting: VecDeque<Execution>,
    /// Values drawn so far, also before crashes.
    draws: u64,
    /// Executions that a commit ended.
    ended: VecDeque<(Run, Outcome)>,
}

impl Engine {
    pub fn crash(&mut self) {
        self.snapshots.clear();
        self.open.clear();
        self.waiting.clear();
        self.ended.clear();
    }

    pub fn open_snapshot(&mut self, at: Timestamp) {
        assert!(at >= self.durable, "a snapshot is opened when it is the newest state");
        self.snapshots.insert(at);
    }

    pub fn close_snapshot(&mut self, at: Timestamp) {
        assert!(self.snapshots.remove(&at), "snapshot {at:?} is not open");
    }

    pub fn begin(&mut self, txn: TxnId, snapshot: Timestamp) {
        assert!(self.snapshots.contains(&snapshot), "snapshot {snapshot:?} is not open");
        let begun = self.open.insert(txn, Open { snapshot, ..Open::default() });
        assert!(begun.is_none(), "{txn:?} has begun already");
    }

    pub fn execute(
        &mut self,
        txn: TxnId,
        run: Run,
        changes: Changes<Rows>,
        statement: Vec<Action>,
    ) {
        self.waiting.push_back(Execution { txn, run, changes, statement });
    }

    pub fn rollback(&mut self, txn: TxnId) {
        assert!(self.open.remove(&txn).is_some(), "{txn:?} is not open");
        self.waiting.retain(|execution| execution.txn != txn);
    }

    /// Runs one execution that needs no lock of another, the `choice`-th that waits, if any can.
    pub fn run(&mut self, choice: usize) -> Option<(Run, Outcome)> {
        if let Some(ended) = self.ended.pop_front() {
            return Some(ended);
        }
        for turn in 0..self.waiting.len() {
            let index = (choice + turn) % self.waiting.len();
            if let Some(outcome) = self.attempt(&self.waiting[index].clone()) {
                let done = self.waiting.remove(index)?;
                if outcome.is_err() {
                    // As in PostgreSQL the transaction is dead; the protocol rolls it back.
                    self.open.entry(done.txn).or_default().writes.clear();
                }
                return Some((done.run, outcome));
            }
        }
        None
    }

    /// Commits, and ends the executions whose locks are in its way.
    pub fn commit(&mut self, txn: TxnId, at: Timestamp, begun: bool, changes: &[Change<Rows>]) {
        assert!(at > self.durable, "commits come in order, once");
        assert_eq!(self.open.contains_key(&txn), begun, "{txn:?}");
        let mut writes = self.open.remove(&txn).map(|open| open.writes).unwrap_or_default();
        writes.extend(changes.iter().map(|change| (change.item, change.value)));
        self.end_holders(&writes);
        for (item, value) in writes {
            self.versions.entry(item).or_default().push((at, value));
        }
        self.durable = at;
    }

    /// The newest state.
    pub fn rows(&self) -> BTreeMap<Item, i64> {
        let newest =
            |(&item, versions): (&Item, &Vec<(Timestamp, i64)>)| Some((item, versions.last()?.1));
        self.versions.iter().filter_map(newest).collect()
    }

    fn end_holders(&mut self, writes: &BTreeMap<Item, i64>) {
        for (txn, open) in &mut self.open {
            if open.writes.keys().all(|item| !writes.contains_key(item)) {
                continue;
            }
            let running = self.waiting.iter().position(|execution| execution.txn == *txn);
            let running = running.unwrap_or_else(|| panic!("idle {txn:?} stands in the way"));
            let run = self.waiting.remove(running).expect("it is there").run;
            open.writes.clear();
            self.ended.push_back((run, Err(Failure::Conflict)));
        }
    }

    /// Nothing if it has to wait for a lock.
    fn attempt(&mut self, execution: &Execution) -> Option<Outcome> {
        let open = self.open.get(&execution.txn)?;
        let mut writes = open.writes.clone();
        let mut done: Done<Rows> = Done { answer: Vec::new(), changes: Vec::new() };
        for change in &execution.changes {
            match self.lock(execution.txn, open.snapshot, change.item)? {
                true => drop(writes.insert(change.item, change.value)),
                false => return Some(Err(Failure::Conflict)),
            }
        }
        for action in &execution.statement {
            let (item, value) = match *action {
                Action::Wrong => return Some(Err(Failure::Statement(vec![-1]))),
                Action::Read(item) => {
                    done.answer.push(self.read(&writes, open.snapshot, item));
                    continue;
                }
                Action::Write(item, value) => (item, value),
                Action::Draw(item) => {
                    let drawn = 1000 + i64::try_from(self.draws).unwrap_or(0);
                    self.draws += 1;
                    done.answer.push(drawn);
                    (item, drawn)
                }
                Action::Add(item, value) => {
                    let sum = self.read(&writes, open.snapshot, item) + value;
                    done.answer.push(sum);
                    (item, sum)
                }
            };
            if !self.lock(execution.txn, open.snapshot, item)? {
                return Some(Err(Failure::Conflict));
            }
            writes.insert(item, value);
            done.changes.push(Change { item, value });
        }
        self.open.get_mut(&execution.txn)?.writes = writes;
        Some(Ok(done))
    }

    fn read(&self, writes: &BTreeMap<Item, i64>, snapshot: Timestamp, item: Item) -> i64 {
        let committed = || {
            let versions = self.versions.get(&item)?;
            versions.iter().rev().find(|(at, _)| *at <= snapshot).map(|version| version.1)
        };
        writes.get(&item).copied().or_else(committed).unwrap_or(0)
    }

    /// Whether the row may be written; nothing if another holds its lock.
    fn lock(&self, txn: TxnId, snapshot: Timestamp, item: Item) -> Option<bool> {
        let newest = self.versions.get(&item).and_then(|versions| versions.last());
        if newest.is_some_and(|(at, _)| *at > snapshot) {
            return Some(false);
        }
        let held =
            |(other, open): (&TxnId, &Open)| *other != txn && open.writes.contains_key(&item);
        if self.open.iter().any(held) { None } else { Some(true) }
    }
}
