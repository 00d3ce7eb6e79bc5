//! A site's database: rows with versions under snapshot isolation, as at PostgreSQL's REPEATABLE READ. One
//! table; a row has a key, a list of values that only grows, and a group that follows from the last value, so
//! that a row enters and leaves ranges of groups.
//!
//! Rows are created by their first append. Besides the rows the engine keeps, per row and group, the list of
//! the row's writes that found or made it a member: reading those of all rows is what a predicate over groups
//! reads, in a form that the checker can judge. (One list per group would order writes of different rows, which
//! nothing in the database does.)

use std::ops::Range;

use hihooi_certify::certification::Timestamp;

/// A row's key, from 0 and dense.
pub type Key = u32;
/// A value, unique in the run.
pub type Element = u64;

/// The number of groups that rows fall into.
pub const GROUPS: u64 = 6;

/// The group of a row whose last value is this.
#[must_use]
pub fn group_of(element: Element) -> u64 {
    element % GROUPS
}

/// A write of a row: the list that its transaction saw, and one value more. Like a row of the
/// stream it carries what the row becomes, so that to apply it over a version that its transaction
/// did not see loses that version's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The row.
    pub key: Key,
    /// The version it was made from: its commit timestamp, 0 if the row was not there. For a
    /// transaction's second write of a row still that of the first.
    pub base: Timestamp,
    /// The value put behind the list.
    pub element: Element,
    /// The last value before it.
    pub before: Option<Element>,
}

impl Change {
    /// The groups that the row was in or is in now.
    pub fn groups(&self) -> impl Iterator<Item = u64> + use<> {
        let after = group_of(self.element);
        let before = self.before.map(group_of).filter(|group| *group != after);
        [Some(after), before].into_iter().flatten()
    }
}

/// Nothing comes before this version.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    at: Timestamp,
    element: Element,
    /// Index of the version whose list this one continues.
    parent: u32,
    /// Length of the list.
    length: u32,
}

/// The versions of a row, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Row(Vec<Version>);

/// A site's database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Engine {
    rows: Vec<Row>,
    /// Of each group those of each row.
    members: Vec<Vec<(Timestamp, Element)>>,
}

impl Row {
    /// Index of the version that a snapshot shows.
    fn seen_by(&self, snapshot: Timestamp) -> Option<usize> {
        self.0.partition_point(|version| version.at <= snapshot).checked_sub(1)
    }

    fn list(&self, last: usize, into: &mut Vec<Element>) {
        let start = into.len();
        into.resize(start + self.0[last].length as usize, 0);
        let mut index = last as u32;
        for slot in into[start..].iter_mut().rev() {
            let version = self.0[index as usize];
            *slot = version.element;
            index = version.parent;
        }
    }
}

impl Engine {
    /// An empty table with room for so many rows.
    #[must_use]
    pub fn new(keys: u32) -> Engine {
        Engine {
            rows: vec![Row::default(); keys as usize],
            members: vec![Vec::new(); (GROUPS * u64::from(keys)) as usize],
        }
    }

    /// The list of a row in a snapshot, empty if it isn't there, put behind `into`.
    pub fn list(&self, key: Key, snapshot: Timestamp, into: &mut Vec<Element>) {
        let row = &self.rows[key as usize];
        if let Some(last) = row.seen_by(snapshot) {
            row.list(last, into);
        }
    }

    /// When the version of a row that a snapshot shows was committed, and its last value.
    #[must_use]
    pub fn version(&self, key: Key, snapshot: Timestamp) -> Option<(Timestamp, Element)> {
        let row = &self.rows[key as usize];
        row.seen_by(snapshot).map(|last| (row.0[last].at, row.0[last].element))
    }

    /// The latest version of any row in a range of keys that a snapshot shows.
    #[must_use]
    pub fn version_of_keys(&self, keys: Range<Key>, snapshot: Timestamp) -> Timestamp {
        keys.filter_map(|key| self.version(key, snapshot)).map(|v| v.0).max().unwrap_or_default()
    }

    /// The writes of a row that found or made it a member of a group, up to a snapshot, put
    /// behind `into`.
    pub fn membership(&self, group: u64, key: Key, at: Timestamp, into: &mut Vec<Element>) {
        into.extend(self.member(group, key, at).iter().map(|(_, element)| *element));
    }

    /// The last write of any row that touched one of these groups, up to a snapshot: of rows that
    /// left them, too.
    #[must_use]
    pub fn version_of_groups(&self, groups: Range<u64>, snapshot: Timestamp) -> Timestamp {
        let each = groups.flat_map(|group| (0..self.keys()).map(move |key| (group, key)));
        let lasts = each.filter_map(|(group, key)| self.member(group, key, snapshot).last());
        lasts.map(|(at, _)| *at).max().unwrap_or_default()
    }

    fn member(&self, group: u64, key: Key, snapshot: Timestamp) -> &[(Timestamp, Element)] {
        let writes = &self.members[self.member_index(group, key)];
        &writes[..writes.partition_point(|(at, _)| *at <= snapshot)]
    }

    fn member_index(&self, group: u64, key: Key) -> usize {
        group as usize * self.rows.len() + key as usize
    }

    /// Whether a transaction of this snapshot may still commit its writes: the first committer
    /// wins, so none of the rows may have a later version.
    #[must_use]
    pub fn may_commit(&self, snapshot: Timestamp, changes: &[Change]) -> bool {
        changes.iter().all(|change| {
            self.rows[change.key as usize].0.last().is_none_or(|version| version.at <= snapshot)
        })
    }

    /// Makes the writes of a committed transaction visible from `at` on, which is later than
    /// all before.
    pub fn apply(&mut self, at: Timestamp, changes: &[Change]) {
        for change in changes {
            self.apply_one(at, change);
        }
    }

    fn apply_one(&mut self, at: Timestamp, change: &Change) {
        let row = &mut self.rows[change.key as usize];
        let last = row.0.last().filter(|version| version.at == at).map(|_| row.0.len() - 1);
        let parent = last.or_else(|| row.seen_by(change.base));
        let length = parent.map_or(1, |index| row.0[index].length + 1);
        row.0.push(Version {
            at,
            element: change.element,
            parent: parent.map_or(NONE, |index| index as u32),
            length,
        });
        for group in change.groups() {
            let index = self.member_index(group, change.key);
            self.members[index].push((at, change.element));
        }
    }

    /// How many rows there can be.
    #[must_use]
    pub fn keys(&self) -> u32 {
        self.rows.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: Key, base: u64, element: Element) -> Change {
        Change { key, base: Timestamp(base), element, before: None }
    }

    fn list(engine: &Engine, key: Key, snapshot: u64) -> Vec<Element> {
        let mut list = Vec::new();
        engine.list(key, Timestamp(snapshot), &mut list);
        list
    }

    #[test]
    fn a_snapshot_shows_what_was_committed_up_to_it() {
        let mut engine = Engine::new(2);
        engine.apply(Timestamp(1), &[change(0, 0, 10)]);
        engine.apply(Timestamp(3), &[change(0, 1, 11), change(0, 1, 12), change(1, 0, 13)]);
        assert!(list(&engine, 0, 0).is_empty());
        assert_eq!(list(&engine, 0, 2), [10]);
        assert_eq!(list(&engine, 0, 3), [10, 11, 12]);
        assert_eq!(engine.version(0, Timestamp(9)), Some((Timestamp(3), 12)));
        assert_eq!(engine.version_of_keys(0..2, Timestamp(2)), Timestamp(1));
    }

    #[test]
    fn the_first_committer_wins_and_a_later_one_would_overwrite() {
        let mut engine = Engine::new(1);
        engine.apply(Timestamp(1), &[change(0, 0, 10)]);
        engine.apply(Timestamp(2), &[change(0, 1, 11)]);
        let late = [change(0, 1, 12)];
        assert!(!engine.may_commit(Timestamp(1), &late));
        assert!(engine.may_commit(Timestamp(2), &late));
        engine.apply(Timestamp(3), &late);
        assert_eq!(list(&engine, 0, 3), [10, 12]);
    }

    #[test]
    fn a_group_lists_the_writes_of_rows_that_were_or_became_members() {
        let mut engine = Engine::new(1);
        engine.apply(Timestamp(1), &[change(0, 0, GROUPS)]);
        let moves = Change { before: Some(GROUPS), ..change(0, 1, GROUPS + 1) };
        engine.apply(Timestamp(2), &[moves]);
        let mut seen = Vec::new();
        engine.membership(0, 0, Timestamp(2), &mut seen);
        assert_eq!(seen, [GROUPS, GROUPS + 1]);
        assert_eq!(engine.version_of_groups(1..3, Timestamp(1)), Timestamp(0));
        assert_eq!(engine.version_of_groups(1..3, Timestamp(2)), Timestamp(2));
    }
}
