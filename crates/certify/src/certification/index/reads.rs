//! The committed reads that are remembered: rows by key, predicates by the interval of one of
//! their columns, the rest by table.

use std::collections::VecDeque;

use ahash::AHashMap;
use hihooi_replication::items::RelId;
use iset::IntervalMap;

use crate::certification::index::keys::Key;
use crate::certification::index::{COLUMNS_MAX, keys};
use crate::certification::items::{Column, Read, RowKey, Write};
use crate::certification::memory::Seq;

/// The number of an entry, from 1; those before `first` are forgotten.
type Number = u64;

/// Before all entries: the end of every chain.
const NONE: Number = 0;

/// The committed reads. Bounded by its owner, who forgets the oldest.
#[derive(Clone, Debug)]
pub struct ReadIndex {
    first: Number,
    entries: VecDeque<Entry>,
    everything: Number,
    rows: AHashMap<(RelId, RowKey), Number>,
    tables: AHashMap<RelId, Table>,
}

/// A read, and the one before it in its chain: that of its row, of its column's intervals, of its
/// table or of those that read everything.
#[derive(Clone, Debug)]
struct Entry {
    owner: Seq,
    before: Number,
    read: Read,
}

#[derive(Clone, Debug, Default)]
struct Table {
    entries: usize,
    latest: Number,
    columns: Vec<(Column, Intervals)>,
}

/// The intervals that predicates ask for in a column; the number makes each start unique.
#[derive(Clone, Debug, Default)]
struct Intervals {
    latest: Number,
    by_value: IntervalMap<(Key, Number), Number>,
}

/// Where a read is found.
enum Place {
    Everything,
    Row((RelId, RowKey)),
    Table(RelId),
    /// From the first key to the second, both included.
    Interval(RelId, Column, (Key, Key)),
}

impl Default for ReadIndex {
    fn default() -> ReadIndex {
        ReadIndex {
            first: NONE + 1,
            entries: VecDeque::new(),
            everything: NONE,
            rows: AHashMap::new(),
            tables: AHashMap::new(),
        }
    }
}

impl ReadIndex {
    /// Adds a read of the latest transaction to commit.
    pub fn add(&mut self, owner: Seq, read: &Read) {
        let number = self.first + self.entries.len() as u64;
        let before = match Place::of(read) {
            Place::Everything => std::mem::replace(&mut self.everything, number),
            Place::Row(row) => self.rows.insert(row, number).unwrap_or(NONE),
            Place::Table(table) => self.tables.entry(table).or_default().add(number),
            Place::Interval(table, column, range) => {
                self.tables.entry(table).or_default().add_interval(number, column, range)
            }
        };
        self.entries.push_back(Entry { owner, before, read: read.clone() });
    }

    /// Forgets the oldest read.
    pub fn forget(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        let number = self.first;
        self.first += 1;
        match Place::of(&entry.read) {
            Place::Row(row) => {
                if self.rows.get(&row) == Some(&number) {
                    self.rows.remove(&row);
                }
            }
            Place::Table(table) => self.forget_in_table(table, |_| {}),
            Place::Interval(table, column, range) => {
                self.forget_in_table(table, |table| table.remove_interval(number, column, range));
            }
            Place::Everything => {}
        }
    }

    fn forget_in_table(&mut self, id: RelId, remove: impl FnOnce(&mut Table)) {
        let Some(table) = self.tables.get_mut(&id) else { return };
        remove(table);
        table.entries -= 1;
        if table.entries == 0 {
            self.tables.remove(&id);
        }
    }

    /// Visits those from `since` on of whom a read is touched by the write.
    pub fn touched_by(&self, write: &Write, since: Seq, mut visit: impl FnMut(Seq)) {
        self.visit_chain(self.everything, write, since, &mut visit);
        if let Some(latest) = self.rows.get(&(write.table, write.key)) {
            self.visit_chain(*latest, write, since, &mut visit);
        }
        let Some(table) = self.tables.get(&write.table) else { return };
        self.visit_chain(table.latest, write, since, &mut visit);
        for (column, intervals) in &table.columns {
            self.visit_intervals(*column, intervals, write, since, &mut visit);
        }
    }

    /// Whether nothing is remembered, not even an empty place.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.rows.is_empty() && self.tables.is_empty()
    }

    fn entry(&self, number: Number) -> Option<&Entry> {
        self.entries.get(number.checked_sub(self.first)? as usize)
    }

    /// Visits from the latest backwards.
    fn visit_chain(&self, latest: Number, write: &Write, since: Seq, visit: &mut impl FnMut(Seq)) {
        let mut next = self.entry(latest);
        while let Some(entry) = next.filter(|entry| entry.owner >= since) {
            if entry.read.touched_by(write) {
                visit(entry.owner);
            }
            next = self.entry(entry.before);
        }
    }

    fn visit_intervals(
        &self,
        column: Column,
        intervals: &Intervals,
        write: &Write,
        since: Seq,
        visit: &mut impl FnMut(Seq),
    ) {
        let images = || write.before.iter().chain(&write.after);
        if images().any(|image| image.value(column).is_none()) {
            self.visit_chain(intervals.latest, write, since, visit);
            return;
        }
        let mut last = None;
        for key in images().filter_map(|image| image.value(column)).map(keys::of) {
            if last.replace(key) == Some(key) {
                continue;
            }
            for number in intervals.by_value.values_overlap((key, Number::MAX)) {
                let touched = |entry: &&Entry| entry.owner >= since && entry.read.touched_by(write);
                if let Some(entry) = self.entry(*number).filter(touched) {
                    visit(entry.owner);
                }
            }
        }
    }
}

impl Place {
    fn of(read: &Read) -> Place {
        match read {
            Read::Everything => Place::Everything,
            Read::Row { table, key, .. } => Place::Row((*table, *key)),
            Read::Table { table, .. } => Place::Table(*table),
            Read::Rows { table, conditions, .. } => {
                let interval = keys::narrowest(conditions).and_then(|condition| {
                    Some(Place::Interval(*table, condition.column, keys::range(condition)?))
                });
                interval.unwrap_or(Place::Table(*table))
            }
        }
    }
}

impl Table {
    /// Returns the one before in the chain.
    fn add(&mut self, number: Number) -> Number {
        self.entries += 1;
        std::mem::replace(&mut self.latest, number)
    }

    fn add_interval(&mut self, number: Number, column: Column, range: (Key, Key)) -> Number {
        if self.intervals(column).is_none() {
            if self.columns.len() == COLUMNS_MAX {
                return self.add(number);
            }
            self.columns.push((column, Intervals::default()));
        }
        self.entries += 1;
        let Some(intervals) = self.intervals(column) else { return NONE };
        intervals.by_value.force_insert(bounds(number, range), number);
        std::mem::replace(&mut intervals.latest, number)
    }

    fn remove_interval(&mut self, number: Number, column: Column, range: (Key, Key)) {
        if let Some(intervals) = self.intervals(column) {
            intervals.by_value.remove(bounds(number, range));
        }
    }

    fn intervals(&mut self, column: Column) -> Option<&mut Intervals> {
        self.columns.iter_mut().find(|(indexed, _)| *indexed == column).map(|(_, one)| one)
    }
}

/// An interval that holds `(key, Number::MAX)` for every key of the range.
fn bounds(number: Number, (low, high): (Key, Key)) -> std::ops::Range<(Key, Number)> {
    (low, number)..(high + 1, NONE)
}
