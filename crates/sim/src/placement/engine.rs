//! A site's database under snapshot isolation, first updater wins. Rows are lists that grow; a
//! change carries the whole row, as a row of PostgreSQL's stream does, so that applying one that
//! was made from an old version loses what came between.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hihooi_certify::certification::{Timestamp, TxnId};
use hihooi_placement::protocol::{Change, Changes, Content, Done, Failure, Item};

/// A value of a list, unique in the run.
pub type Element = i64;

/// What the protocol carries here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lists;

impl Content for Lists {
    type Statement = Vec<Step>;
    type Answer = Vec<Vec<Element>>;
    type Value = Rc<Vec<Element>>;
}

/// What a statement does, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Answers the list of a row.
    Read(Item),
    /// Puts a value behind it.
    Append(Item, Element),
}

impl Step {
    /// Its row.
    #[must_use]
    pub fn item(self) -> Item {
        let (Step::Read(item) | Step::Append(item, _)) = self;
        item
    }
}

/// A row as of a position.
type Version = (Timestamp, Rc<Vec<Element>>);

/// A transaction in the database.
#[derive(Clone, Debug, Default)]
struct Open {
    snapshot: Timestamp,
    writes: BTreeMap<Item, Rc<Vec<Element>>>,
}

/// The database. What [`Engine::commit`] did is durable with it; all else ends with a crash.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    rows: BTreeMap<Item, Vec<Version>>,
    durable: Timestamp,
    snapshots: BTreeSet<Timestamp>,
    open: BTreeMap<TxnId, Open>,
}

impl Engine {
    /// The position of the last commit.
    #[must_use]
    pub fn durable(&self) -> Timestamp {
        self.durable
    }

    /// Keeps the newest state.
    pub fn open_snapshot(&mut self, at: Timestamp) {
        self.snapshots.insert(at);
    }

    /// Keeps it no more.
    pub fn close_snapshot(&mut self, at: Timestamp) {
        self.snapshots.remove(&at);
    }

    /// Begins a transaction; whether the snapshot was there.
    pub fn begin(&mut self, txn: TxnId, snapshot: Timestamp) -> bool {
        self.open.insert(txn, Open { snapshot, ..Open::default() });
        self.snapshots.contains(&snapshot)
    }

    /// Undoes a transaction.
    pub fn rollback(&mut self, txn: TxnId) {
        self.open.remove(&txn);
    }

    /// Runs a statement after changes that were made elsewhere; nothing if the transaction is
    /// gone.
    pub fn execute(
        &mut self,
        txn: TxnId,
        changes: &Changes<Lists>,
        statement: &[Step],
    ) -> Option<Result<Done<Lists>, Failure<Lists>>> {
        let open = self.open.get(&txn)?;
        let mut writes = open.writes.clone();
        writes.extend(changes.iter().map(|change| (change.item, change.value.clone())));
        let mut done: Done<Lists> = Done { answer: Vec::new(), changes: Vec::new() };
        for &step in statement {
            let own = writes.get(&step.item()).cloned();
            let list = own.unwrap_or_else(|| self.list(step.item(), open.snapshot));
            match step {
                Step::Read(_) => done.answer.push(list.to_vec()),
                Step::Append(item, element) => {
                    let mut list = list.to_vec();
                    list.push(element);
                    let value = Rc::new(list);
                    writes.insert(item, value.clone());
                    done.changes.push(Change { item, value });
                }
            }
        }
        if writes.keys().any(|&item| self.is_newer(item, open.snapshot)) {
            return Some(Err(Failure::Conflict));
        }
        self.open.get_mut(&txn)?.writes = writes;
        Some(Ok(done))
    }

    /// Commits; returns all the changes, which are to be journaled.
    pub fn commit(
        &mut self,
        txn: TxnId,
        at: Timestamp,
        changes: &[Change<Lists>],
    ) -> Changes<Lists> {
        let mut writes = self.open.remove(&txn).map(|open| open.writes).unwrap_or_default();
        writes.extend(changes.iter().map(|change| (change.item, change.value.clone())));
        let all = writes.into_iter().map(|(item, value)| Change { item, value }).collect();
        self.apply(at, &all);
        all
    }

    /// Applies what was journaled.
    pub fn apply(&mut self, at: Timestamp, changes: &Changes<Lists>) {
        for change in changes {
            self.rows.entry(change.item).or_default().push((at, change.value.clone()));
        }
        self.durable = at;
    }

    /// The newest state of all rows.
    pub fn newest(&self) -> impl Iterator<Item = (Item, &[Element])> {
        self.rows.iter().map(|(&item, versions)| {
            (item, versions.last().map_or(&[][..], |(_, list)| list.as_slice()))
        })
    }

    fn list(&self, item: Item, snapshot: Timestamp) -> Rc<Vec<Element>> {
        let versions = self.rows.get(&item).map_or(&[][..], Vec::as_slice);
        let seen = versions.partition_point(|(at, _)| *at <= snapshot);
        seen.checked_sub(1).map(|last| versions[last].1.clone()).unwrap_or_default()
    }

    fn is_newer(&self, item: Item, snapshot: Timestamp) -> bool {
        let last = self.rows.get(&item).and_then(|versions| versions.last());
        last.is_some_and(|(at, _)| *at > snapshot)
    }
}
