//! Transactions of the simulated database: what clients request, how it runs on a snapshot, and what is passed
//! to certification.

use std::ops::{Bound, Range};

use hihooi_certify::certification::items::{
    Column, Columns, Condition, Datum, Image, Read, RowKey, Write,
};
use hihooi_certify::certification::{Cause, Timestamp};
use hihooi_replication::items::RelId;

use crate::database::engine::{Change, Element, Engine, Key, group_of};

/// The one table.
pub const TABLE: RelId = RelId(1);
/// Its columns.
pub const KEY: Column = Column(0);
/// See [`KEY`].
pub const VALUES: Column = Column(1);
/// See [`KEY`].
pub const GROUP: Column = Column(2);

/// A step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Read a row by its key, there or not.
    Read(Key),
    /// Put a value behind a row's list; a row that isn't there is inserted.
    Append(Key, Element),
    /// Read the rows of a range of keys.
    ScanKeys(Range<Key>),
    /// Read the rows whose group lies in a range.
    ScanGroups(Range<u64>),
}

/// A transaction that a client asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Work {
    /// Its steps.
    pub ops: Vec<Op>,
    /// How long it takes from its snapshot to its attempt to commit.
    pub lasts_us: u64,
    /// Its snapshot must hold what was committed up to here: what its session saw last.
    pub after: Timestamp,
}

/// How a transaction ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It committed.
    Committed {
        /// Its commit timestamp; its snapshot's if it wrote nothing.
        at: Timestamp,
        /// What it read: a list per row read, the rows of scans one by one (for groups: of each
        /// group each row's membership).
        reads: Vec<Vec<Element>>,
    },
    /// It did not.
    Aborted(Cause),
}

/// What a transaction read and wrote.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// As in [`Answer::Committed`].
    pub reads: Vec<Vec<Element>>,
    /// Its writes.
    pub changes: Vec<Change>,
    /// What certification is told that it read.
    pub read_set: Vec<Read>,
    /// The version it saw of each.
    pub versions: Vec<Timestamp>,
    /// The latest version that it read or overwrote.
    pub lsv: Timestamp,
}

/// Runs the steps, each on the snapshot that `snapshot_of` its index names (under snapshot
/// isolation always the same). `tells_overwritten`: the rows that it writes stand in its read set,
/// too, as those of an UPDATE that computes from the old row.
pub fn execute(
    engine: &Engine,
    ops: &[Op],
    tells_overwritten: bool,
    snapshot_of: impl Fn(usize) -> Timestamp,
) -> Executed {
    let mut done = Executed::default();
    for (index, op) in ops.iter().enumerate() {
        let on = Snapshot { engine, at: snapshot_of(index) };
        match op {
            Op::Read(key) => done.read(on, *key),
            Op::Append(key, element) => {
                if tells_overwritten {
                    done.note_row(on, *key);
                }
                done.append(on, *key, *element);
            }
            Op::ScanKeys(keys) => done.scan_keys(on, keys.clone()),
            Op::ScanGroups(groups) => done.scan_groups(on, groups.clone()),
        }
    }
    done
}

#[derive(Clone, Copy)]
struct Snapshot<'a> {
    engine: &'a Engine,
    at: Timestamp,
}

impl Executed {
    fn read(&mut self, on: Snapshot<'_>, key: Key) {
        self.see(on, key);
        self.note_row(on, key);
    }

    fn note_row(&mut self, on: Snapshot<'_>, key: Key) {
        let version = on.engine.version(key, on.at).map(|v| v.0).unwrap_or_default();
        let read = Read::Row {
            table: TABLE,
            key: RowKey(u128::from(key)),
            columns: Columns::of([VALUES]),
        };
        self.note(read, version);
    }

    /// Adds what the snapshot shows of a row, and this transaction's own writes behind it.
    fn see(&mut self, on: Snapshot<'_>, key: Key) {
        let mut list = Vec::new();
        on.engine.list(key, on.at, &mut list);
        list.extend(self.changes.iter().filter(|c| c.key == key).map(|c| c.element));
        self.reads.push(list);
    }

    fn note(&mut self, read: Read, version: Timestamp) {
        self.read_set.push(read);
        self.versions.push(version);
        self.lsv = self.lsv.max(version);
    }

    fn append(&mut self, on: Snapshot<'_>, key: Key, element: Element) {
        let own = self.changes.iter().rfind(|change| change.key == key).copied();
        let seen = on.engine.version(key, on.at);
        let base = own.map_or(seen.map(|v| v.0).unwrap_or_default(), |change| change.base);
        let before = own.map(|change| change.element).or(seen.map(|v| v.1));
        self.changes.push(Change { key, base, element, before });
        self.lsv = self.lsv.max(base);
    }

    fn scan_keys(&mut self, on: Snapshot<'_>, keys: Range<Key>) {
        keys.clone().for_each(|key| self.see(on, key));
        let version = on.engine.version_of_keys(keys.clone(), on.at);
        self.note(rows_where(KEY, i64::from(keys.start)..i64::from(keys.end)), version);
    }

    fn scan_groups(&mut self, on: Snapshot<'_>, groups: Range<u64>) {
        for group in groups.clone() {
            for key in 0..on.engine.keys() {
                let mut list = Vec::new();
                on.engine.membership(group, key, on.at, &mut list);
                let own = self.changes.iter().filter(|c| c.key == key);
                list.extend(own.filter(|c| c.groups().any(|g| g == group)).map(|c| c.element));
                self.reads.push(list);
            }
        }
        let version = on.engine.version_of_groups(groups.clone(), on.at);
        self.note(rows_where(GROUP, groups.start as i64..groups.end as i64), version);
    }

    /// What certification is told of the writes: one per row, from its state in the snapshot to
    /// its last.
    #[must_use]
    pub fn write_set(&self) -> Vec<Write> {
        let is_first =
            |at: usize| !self.changes[..at].iter().any(|c| c.key == self.changes[at].key);
        (0..self.changes.len()).filter(|at| is_first(*at)).map(|at| self.write(at)).collect()
    }

    fn write(&self, first: usize) -> Write {
        let Change { key, before, .. } = self.changes[first];
        let last = self.changes.iter().rfind(|change| change.key == key);
        let after = last.map_or(before, |change| Some(change.element));
        let moved = before.map(group_of) != after.map(group_of);
        let columns = match before {
            None => Columns::ALL,
            Some(_) if moved => Columns::of([VALUES, GROUP]),
            Some(_) => Columns::of([VALUES]),
        };
        Write {
            table: TABLE,
            key: RowKey(u128::from(key)),
            columns,
            before: before.map(|element| image(key, element)),
            after: after.map(|element| image(key, element)),
        }
    }
}

fn image(key: Key, last: Element) -> Image {
    let (key, group) = (Datum::Int(i64::from(key)), Datum::Int(group_of(last) as i64));
    Image(Box::new([(KEY, key), (GROUP, group)]))
}

fn rows_where(column: Column, values: Range<i64>) -> Read {
    let low = Bound::Included(Datum::Int(values.start));
    let high = Bound::Excluded(Datum::Int(values.end));
    Read::Rows {
        table: TABLE,
        conditions: Box::new([Condition { column, low, high }]),
        columns: Columns::of([VALUES]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_sees_its_snapshot_and_its_own_writes() {
        let mut engine = Engine::new(3);
        let setup =
            execute(&engine, &[Op::Append(0, 10), Op::Append(1, 11)], false, |_| Timestamp(0));
        engine.apply(Timestamp(1), &setup.changes);
        let later = execute(&engine, &[Op::Append(0, 12)], false, |_| Timestamp(1));
        engine.apply(Timestamp(2), &later.changes);
        let ops = [Op::Append(0, 13), Op::Append(0, 14), Op::Read(0), Op::ScanKeys(1..3)];
        let done = execute(&engine, &ops, false, |_| Timestamp(1));
        assert_eq!(done.reads, [vec![10, 13, 14], vec![11], vec![]]);
        assert_eq!(done.lsv, Timestamp(1));
        assert_eq!(done.versions, [Timestamp(1), Timestamp(1)]);
        let [write] = &done.write_set()[..] else { panic!("one row was written") };
        assert_eq!(write.before, Some(image(0, 10)));
        assert_eq!(write.after, Some(image(0, 14)));
    }

    #[test]
    fn a_scan_by_group_has_the_version_of_a_row_that_left() {
        let mut engine = Engine::new(1);
        let enters = execute(&engine, &[Op::Append(0, 6)], false, |_| Timestamp(0));
        engine.apply(Timestamp(1), &enters.changes);
        let leaves = execute(&engine, &[Op::Append(0, 13)], false, |_| Timestamp(1));
        engine.apply(Timestamp(2), &leaves.changes);
        let scan = execute(&engine, &[Op::ScanGroups(0..1)], false, |_| Timestamp(2));
        assert_eq!(scan.reads, [vec![6, 13]]);
        assert_eq!(scan.lsv, Timestamp(2));
    }
}
