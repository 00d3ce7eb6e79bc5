//! What an entry writes: whether two entries are independent, so that a replica may execute them at
//! the same time (Hihooi section 4.2, Algorithm 1).
//!
//! Rows count by their identity key. Wrong only towards "writes more" (I6): hashes may collide,
//! and an entry with many rows counts as its whole tables.
//!
//! Departures: the paper compares what statements read and write. Entries hold rows, and applying a row
//! reads nothing else, so only what is written counts. Columns are not told apart.

use std::hash::{BuildHasher, Hash, Hasher};

use ahash::{AHashSet, RandomState};

use crate::entry::{Change, Column, Identity, Relation, Tuple, Value};
use crate::items::RelId;

/// An entry with more rows counts as writing its tables as a whole.
pub const ROWS_MAX: usize = 256;

/// What an entry writes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Hashes of (table, key).
    rows: Vec<u64>,
    /// The tables of these rows.
    tables: Vec<RelId>,
    /// Tables written as a whole.
    whole: Vec<RelId>,
    everything: bool,
}

impl Footprint {
    /// The footprint of what could write anything: DDL, and entries too large to look at.
    #[must_use]
    pub fn everything() -> Footprint {
        Footprint { everything: true, ..Footprint::default() }
    }

    /// The footprint of an entry's changes. `coarse` tells the tables in which two rows with
    /// different keys can still conflict: those with another unique index or an
    /// exclusion constraint.
    #[must_use]
    pub fn of(changes: &[Change], coarse: impl Fn(RelId) -> bool) -> Footprint {
        let mut builder = Builder { relations: Vec::new(), built: Footprint::default(), coarse };
        changes.iter().for_each(|change| builder.add(change));
        builder.finish()
    }

    /// Whether it stands for everything.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.everything
    }
}

struct Builder<'a, F> {
    relations: Vec<&'a Relation>,
    built: Footprint,
    coarse: F,
}

impl<'a, F: Fn(RelId) -> bool> Builder<'a, F> {
    fn add(&mut self, change: &'a Change) {
        match change {
            Change::Relation(relation) => {
                self.relations.retain(|known| known.id != relation.id);
                self.relations.push(relation);
            }
            Change::Insert { relation, new } => self.row(*relation, new),
            Change::Update { relation, old, new } => {
                if let Some(old) = old {
                    self.row(*relation, old);
                }
                self.row(*relation, new);
            }
            Change::Delete { relation, old } => self.row(*relation, old),
            Change::Truncate { relations, .. } => self.built.whole.extend(relations),
            Change::Note(_) => self.built.everything = true,
        }
    }

    fn row(&mut self, id: RelId, row: &Tuple) {
        let relation = self.relations.iter().rev().find(|relation| relation.id == id);
        match relation.and_then(|relation| key_hash(relation, row)) {
            Some(hash) if !(self.coarse)(id) => {
                self.built.rows.push(hash);
                self.built.tables.push(id);
            }
            _ => self.built.whole.push(id),
        }
    }

    fn finish(self) -> Footprint {
        let mut built = self.built;
        built.rows.sort_unstable();
        built.rows.dedup();
        sort(&mut built.tables);
        if built.rows.len() > ROWS_MAX {
            built.rows = Vec::new();
            built.whole.append(&mut built.tables);
        }
        sort(&mut built.whole);
        built
    }
}

fn sort(tables: &mut Vec<RelId>) {
    tables.sort_unstable();
    tables.dedup();
}

/// The hash of a row's table and key; `None` if the row has no key of its own.
fn key_hash(relation: &Relation, row: &Tuple) -> Option<u64> {
    if !matches!(relation.identity, Identity::Default | Identity::Index) {
        return None;
    }
    let mut hasher = RandomState::with_seeds(1, 2, 3, 4).build_hasher();
    relation.id.hash(&mut hasher);
    let mut found = false;
    let keys = relation.columns.iter().zip(row).filter(|(column, _): &(&Column, _)| column.key);
    for (_, value) in keys {
        let Value::Text(text) = value else { return None };
        text.hash(&mut hasher);
        found = true;
    }
    found.then(|| hasher.finish())
}

/// The union of footprints, asked whether another one conflicts with it.
#[derive(Default)]
pub(crate) struct Union {
    rows: AHashSet<u64>,
    tables: AHashSet<RelId>,
    whole: AHashSet<RelId>,
    any: bool,
    everything: bool,
}

impl Union {
    pub(crate) fn add(&mut self, footprint: &Footprint) {
        self.any = true;
        self.everything |= footprint.everything;
        self.rows.extend(&footprint.rows);
        self.tables.extend(&footprint.tables);
        self.whole.extend(&footprint.whole);
    }

    pub(crate) fn conflicts(&self, footprint: &Footprint) -> bool {
        let whole = |table: &RelId| self.whole.contains(table);
        self.everything
            || (self.any && footprint.everything)
            || footprint.rows.iter().any(|row| self.rows.contains(row))
            || footprint.tables.iter().any(whole)
            || footprint.whole.iter().any(|table| whole(table) || self.tables.contains(table))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn relation(identity: Identity) -> Change {
        let column = |name: &str, key| Column { name: name.to_owned(), type_oid: 23, key };
        Change::Relation(Relation {
            id: RelId(7),
            schema: "public".to_owned(),
            name: "t".to_owned(),
            identity,
            columns: vec![column("id", true), column("v", identity == Identity::Full)],
        })
    }

    fn row(id: &str, v: &str) -> Tuple {
        [id, v].map(|text| Value::Text(Bytes::copy_from_slice(text.as_bytes()))).to_vec()
    }

    fn conflict(a: &[Change], b: &[Change], coarse: bool) -> bool {
        let mut union = Union::default();
        union.add(&Footprint::of(a, |_| coarse));
        union.conflicts(&Footprint::of(b, |_| coarse))
    }

    fn insert(id: &str) -> Vec<Change> {
        vec![relation(Identity::Default), Change::Insert { relation: RelId(7), new: row(id, "x") }]
    }

    #[test]
    fn entries_conflict_on_the_same_key_only() {
        assert!(conflict(&insert("1"), &insert("1"), false));
        assert!(!conflict(&insert("1"), &insert("2"), false));
    }

    #[test]
    fn a_changed_key_counts_twice() {
        let change =
            Change::Update { relation: RelId(7), old: Some(row("1", "")), new: row("2", "x") };
        let update = [relation(Identity::Default), change];
        assert!(conflict(&update, &insert("1"), false) && conflict(&update, &insert("2"), false));
        assert!(!conflict(&update, &insert("3"), false));
    }

    #[test]
    fn tables_conflict_as_a_whole_under_full_identity_truncate_and_other_unique_indexes() {
        assert!(conflict(&insert("1"), &insert("2"), true));
        let full = |id| {
            [relation(Identity::Full), Change::Delete { relation: RelId(7), old: row(id, "x") }]
        };
        assert!(conflict(&full("1"), &full("2"), false));
        let truncate = [Change::Truncate { relations: vec![RelId(7)], restart_identity: false }];
        assert!(
            conflict(&truncate, &insert("2"), false) && conflict(&insert("2"), &truncate, false)
        );
        let other = [Change::Truncate { relations: vec![RelId(8)], restart_identity: false }];
        assert!(!conflict(&other, &insert("2"), false));
    }

    #[test]
    fn many_rows_count_as_their_table() {
        let mut many = vec![relation(Identity::Default)];
        let rows = (0..=ROWS_MAX).map(|id| row(&id.to_string(), "x"));
        many.extend(rows.map(|new| Change::Insert { relation: RelId(7), new }));
        assert!(conflict(&many, &insert("-5"), false));
    }

    #[test]
    fn ddl_conflicts_with_everything() {
        let noted = [Change::Note(crate::note::Note::Unknown("x".to_owned()))];
        assert!(conflict(&noted, &insert("1"), false) && conflict(&insert("1"), &noted, false));
    }
}
