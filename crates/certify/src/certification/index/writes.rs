//! The committed writes that are remembered, by row, by table and by the values of the columns that predicates
//! use.

use std::collections::{BTreeSet, VecDeque};

use ahash::AHashMap;
use hihooi_replication::items::RelId;

use crate::certification::index::keys::Key;
use crate::certification::index::{COLUMNS_MAX, keys};
use crate::certification::items::{Column, Condition, Read, RowKey, Write};
use crate::certification::memory::Seq;

/// The number of an entry, from 1; those before `first` are forgotten.
type Number = u64;

/// Before all entries: the end of every chain.
const NONE: Number = 0;

/// The committed writes. Bounded by its owner, who forgets the oldest.
#[derive(Clone, Debug)]
pub struct WriteIndex {
    first: Number,
    entries: VecDeque<Entry>,
    rows: AHashMap<(RelId, RowKey), Number>,
    tables: AHashMap<RelId, Table>,
}

/// A write, and the ones before it of the same row and of the same table.
#[derive(Clone, Debug)]
struct Entry {
    owner: Seq,
    row_before: Number,
    table_before: Number,
    write: Write,
}

#[derive(Clone, Debug, Default)]
struct Table {
    latest: Number,
    entries: usize,
    columns: Vec<(Column, Values)>,
}

/// The values that rows had before and after their writes.
#[derive(Clone, Debug, Default)]
struct Values {
    known: BTreeSet<(Key, Number)>,
    unknown: VecDeque<Number>,
}

impl Default for WriteIndex {
    fn default() -> WriteIndex {
        WriteIndex {
            first: NONE + 1,
            entries: VecDeque::new(),
            rows: AHashMap::new(),
            tables: AHashMap::new(),
        }
    }
}

impl WriteIndex {
    /// Adds a write of the latest transaction to commit.
    pub fn add(&mut self, owner: Seq, write: &Write) {
        let number = self.first + self.entries.len() as u64;
        let table = self.tables.entry(write.table).or_default();
        for (column, values) in &mut table.columns {
            values.add(number, write, *column);
        }
        table.entries += 1;
        let table_before = std::mem::replace(&mut table.latest, number);
        let row_before = self.rows.insert((write.table, write.key), number).unwrap_or(NONE);
        self.entries.push_back(Entry { owner, row_before, table_before, write: write.clone() });
    }

    /// Forgets the oldest write.
    pub fn forget(&mut self) {
        let Some(Entry { write, .. }) = self.entries.pop_front() else { return };
        let number = self.first;
        self.first += 1;
        if let Some(table) = self.tables.get_mut(&write.table) {
            for (column, values) in &mut table.columns {
                values.remove(number, &write, *column);
            }
            table.entries -= 1;
            if table.entries == 0 {
                self.tables.remove(&write.table);
            }
        }
        let row = (write.table, write.key);
        if self.rows.get(&row) == Some(&number) {
            self.rows.remove(&row);
        }
    }

    /// The last to write the row, if it is `since` or later.
    #[must_use]
    pub fn writer(&self, write: &Write, since: Seq) -> Option<Seq> {
        let number = self.rows.get(&(write.table, write.key))?;
        self.entry(*number).map(|entry| entry.owner).filter(|owner| *owner >= since)
    }

    /// Visits all that wrote the row.
    pub fn of_row(&self, write: &Write, mut visit: impl FnMut(Seq)) {
        let mut next = self.rows.get(&(write.table, write.key)).and_then(|one| self.entry(*one));
        while let Some(entry) = next {
            visit(entry.owner);
            next = self.entry(entry.row_before);
        }
    }

    /// Visits those from `since` on of whom a write touches the read.
    pub fn touching(&mut self, read: &Read, since: Seq, mut visit: impl FnMut(Seq)) {
        match read {
            Read::Everything => self.visit_all(since, visit),
            Read::Row { table, key, .. } => {
                let latest = self.rows.get(&(*table, *key)).copied();
                let before = |entry: &Entry| entry.row_before;
                self.visit_chain(latest, before, read, since, &mut visit);
            }
            Read::Table { table, .. } => self.visit_table(*table, read, since, &mut visit),
            Read::Rows { table, conditions, .. } => {
                if !self.visit_range(*table, conditions, read, since, &mut visit) {
                    self.visit_table(*table, read, since, &mut visit);
                }
            }
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

    fn visit_all(&self, since: Seq, mut visit: impl FnMut(Seq)) {
        let recent = self.entries.iter().rev().take_while(|entry| entry.owner >= since);
        recent.for_each(|entry| visit(entry.owner));
    }

    fn visit_table(&self, table: RelId, read: &Read, since: Seq, visit: &mut impl FnMut(Seq)) {
        let latest = self.tables.get(&table).map(|table| table.latest);
        self.visit_chain(latest, |entry| entry.table_before, read, since, visit);
    }

    /// Visits from the latest backwards.
    fn visit_chain(
        &self,
        latest: Option<Number>,
        before: impl Fn(&Entry) -> Number,
        read: &Read,
        since: Seq,
        visit: &mut impl FnMut(Seq),
    ) {
        let mut next = latest.and_then(|number| self.entry(number));
        while let Some(entry) = next.filter(|entry| entry.owner >= since) {
            if read.touched_by(&entry.write) {
                visit(entry.owner);
            }
            next = self.entry(before(entry));
        }
    }

    /// Visits by the values of a column; false if that is not possible, or no faster than looking
    /// at all recent writes.
    fn visit_range(
        &mut self,
        table: RelId,
        conditions: &[Condition],
        read: &Read,
        since: Seq,
        visit: &mut impl FnMut(Seq),
    ) -> bool {
        let Some(condition) = keys::narrowest(conditions) else { return false };
        let Some((low, high)) = keys::range(condition) else { return false };
        self.index(table, condition.column);
        let Some(table) = self.tables.get(&table) else { return true };
        let Some(values) = table.values(condition.column) else { return false };
        let recent = self.entries.len() - self.entries.partition_point(|one| one.owner < since);
        let known = values.known.range((low, NONE)..=(high, Number::MAX));
        for (seen, (_, number)) in known.enumerate() {
            if seen > recent {
                return false;
            }
            self.visit_if_touching(*number, read, since, visit);
        }
        for number in values.unknown.iter().rev() {
            if !self.visit_if_touching(*number, read, since, visit) {
                break;
            }
        }
        true
    }

    /// False if it is older than `since`.
    fn visit_if_touching(
        &self,
        number: Number,
        read: &Read,
        since: Seq,
        visit: &mut impl FnMut(Seq),
    ) -> bool {
        let Some(entry) = self.entry(number).filter(|one| one.owner >= since) else { return false };
        if read.touched_by(&entry.write) {
            visit(entry.owner);
        }
        true
    }

    /// Gives the column an ordered structure, at the first predicate that asks for it.
    fn index(&mut self, id: RelId, column: Column) {
        let Some(table) = self.tables.get(&id) else { return };
        if table.values(column).is_some() || table.columns.len() == COLUMNS_MAX {
            return;
        }
        let mut values = Values::default();
        for (number, entry) in (self.first..).zip(&self.entries) {
            if entry.write.table == id {
                values.add(number, &entry.write, column);
            }
        }
        if let Some(table) = self.tables.get_mut(&id) {
            table.columns.push((column, values));
        }
    }
}

impl Table {
    fn values(&self, column: Column) -> Option<&Values> {
        self.columns.iter().find(|(indexed, _)| *indexed == column).map(|(_, values)| values)
    }
}

impl Values {
    fn add(&mut self, number: Number, write: &Write, column: Column) {
        for image in write.before.iter().chain(&write.after) {
            match image.value(column) {
                Some(value) => {
                    self.known.insert((keys::of(value), number));
                }
                None if self.unknown.back() == Some(&number) => {}
                None => self.unknown.push_back(number),
            }
        }
    }

    fn remove(&mut self, number: Number, write: &Write, column: Column) {
        for value in write.before.iter().chain(&write.after).filter_map(|one| one.value(column)) {
            self.known.remove(&(keys::of(value), number));
        }
        if self.unknown.front() == Some(&number) {
            self.unknown.pop_front();
        }
    }
}
