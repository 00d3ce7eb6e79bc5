//! Whether a replica's answer may show two transactions in a different order than the primary did (I3,
//! *primary-equivalent*).
//!
//! The log has transactions in the order of their commit records. At the primary they may become visible in a
//! different order: a commit that waits for a synchronous standby is in the log but not visible yet, while a
//! later one that doesn't wait is visible. So a read of several rows at a replica can see the first and not the
//! second, and a read at the primary the second and not the first. This is a *long fork*. (The versions of a
//! single row have only one order, that of its locks.)
//!
//! A read sees every transaction whose COMMIT had been sent when the read was dispatched, and a replica commits
//! nothing that isn't visible at the primary. So a fork needs two transactions that touch what is read: one
//! whose COMMIT was sent to that replica between the read's dispatch and its snapshot, and another whose COMMIT
//! was sent to the primary in that time. This file records the last of each, by hashes of rows and tables, in
//! fixed memory (I8). If hashes collide, a read is repeated unnecessarily.

use crate::ids::Tsid;
use crate::items::{Item, Items, Rows, Span};

/// Hashes that are told apart.
const SLOTS: usize = 4_096;

/// When a read was dispatched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatched {
    /// So many COMMITs had been sent to the primary.
    pub commits: u64,
    /// Up to here, COMMITs had been sent to the replica that it goes to.
    pub sent: Tsid,
}

/// The last commits, by what they touched.
#[derive(Debug)]
pub struct LastCommits {
    /// COMMITs sent to the primary so far.
    commits: u64,
    of_everything: Last,
    slots: Box<[Last]>,
    hasher: ahash::RandomState,
}

/// The last COMMIT that was sent to the primary, by its number, and the last entry.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    commit: u64,
    entry: Tsid,
}

impl Default for LastCommits {
    fn default() -> LastCommits {
        LastCommits {
            commits: 0,
            of_everything: Last::default(),
            slots: vec![Last::default(); SLOTS].into_boxed_slice(),
            hasher: ahash::RandomState::default(),
        }
    }
}

impl LastCommits {
    /// A COMMIT is about to be sent to the primary.
    pub fn commit(&mut self, items: &Items) {
        self.commits += 1;
        let commit = self.commits;
        self.touch(items, |last| last.commit = commit);
    }

    /// An entry came out of the stream.
    pub fn entry(&mut self, tsid: Tsid, items: &Items) {
        self.touch(items, |last| last.entry = last.entry.max(tsid));
    }

    /// COMMITs that were sent to the primary so far.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Whether the answer to a read of these items could show others' commits in an order in which the primary
    /// didn't: up to `sent`, COMMITs have been sent to its replica by now.
    #[must_use]
    pub fn may_be_forked(&self, items: &Items, dispatched: Dispatched, sent: Tsid) -> bool {
        if sent <= dispatched.sent || self.commits <= dispatched.commits {
            return false;
        }
        let mut last = self.of_everything;
        let mut see = |slot: Last| {
            last = Last { commit: last.commit.max(slot.commit), entry: last.entry.max(slot.entry) };
        };
        match items {
            Items::Nothing => {}
            Items::Everything => return true,
            Items::Tables(items) => {
                for item in items {
                    match rows(item) {
                        Some(spans) => {
                            spans.iter().for_each(|span| see(self.slots[self.row(item, span)]))
                        }
                        None => see(self.slots[self.table(item, Part::Any)]),
                    }
                    see(self.slots[self.table(item, Part::Whole)]);
                }
            }
        }
        last.commit > dispatched.commits && last.entry > dispatched.sent
    }

    fn touch(&mut self, items: &Items, note: impl Fn(&mut Last)) {
        match items {
            Items::Nothing => {}
            Items::Everything => note(&mut self.of_everything),
            Items::Tables(items) => {
                for item in items {
                    let any = self.table(item, Part::Any);
                    note(&mut self.slots[any]);
                    let Some(spans) = rows(item) else {
                        let whole = self.table(item, Part::Whole);
                        note(&mut self.slots[whole]);
                        continue;
                    };
                    for span in spans {
                        let row = self.row(item, span);
                        note(&mut self.slots[row]);
                    }
                }
            }
        }
    }

    fn row(&self, item: &Item, span: &Span) -> usize {
        self.slot(&(item.table, span.from()))
    }

    fn table(&self, item: &Item, part: Part) -> usize {
        self.slot(&(item.table, part))
    }

    fn slot(&self, key: &impl std::hash::Hash) -> usize {
        self.hasher.hash_one(key) as usize % SLOTS
    }
}

/// A part of a table that isn't named by rows.
#[derive(Clone, Copy, Hash)]
enum Part {
    /// Something was written in it.
    Any,
    /// It was written without saying which rows.
    Whole,
}

/// The rows of an item that names rows.
fn rows(item: &Item) -> Option<&[Span]> {
    match &item.rows {
        Rows::In(spans) if !spans.iter().any(Span::is_range) => Some(spans),
        _ => None,
    }
}

/// How many rows a read names; `None` if it reads any others.
#[must_use]
pub fn named_rows(items: &Items) -> Option<usize> {
    match items {
        Items::Nothing => Some(0),
        Items::Tables(items) => items.iter().map(|item| Some(rows(item)?.len())).sum(),
        Items::Everything => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::{Columns, RelId};

    fn row(table: u32, key: u8) -> Item {
        let rows = Rows::of(vec![Span::row([key])]);
        Item { table: RelId(table), rows, columns: Columns::All }
    }

    fn rows_of(keys: &[u8]) -> Items {
        Items::of([Item {
            rows: Rows::of(keys.iter().map(|&key| Span::row([key])).collect()),
            ..row(1, 0)
        }])
    }

    #[test]
    fn only_reads_of_several_named_rows_are_looked_at() {
        assert_eq!(named_rows(&rows_of(&[1, 2])), Some(2));
        assert_eq!(named_rows(&Items::of([row(1, 1), row(2, 1)])), Some(2));
        assert_eq!(named_rows(&rows_of(&[1])), Some(1));
        assert_eq!(named_rows(&Items::Nothing), Some(0));
        assert_eq!(named_rows(&Items::tables([RelId(1), RelId(2)])), None);
        assert_eq!(named_rows(&Items::Everything), None);
        let wide = Item { rows: Rows::All, ..row(2, 1) };
        assert_eq!(named_rows(&Items::of([row(1, 1), wide])), None);
    }

    #[test]
    fn a_fork_needs_a_commit_at_each_side_that_touches_what_is_read() {
        let read = rows_of(&[1, 2]);
        let dispatched = |last: &LastCommits| Dispatched { commits: last.commits(), sent: Tsid(5) };
        // What was sent before, and what touches other rows, doesn't count.
        let mut last = LastCommits::default();
        last.commit(&read);
        last.entry(Tsid(5), &read);
        let at = dispatched(&last);
        last.commit(&rows_of(&[3]));
        last.entry(Tsid(6), &rows_of(&[4]));
        assert!(!last.may_be_forked(&read, at, Tsid(6)));
        // One at each side.
        last.commit(&rows_of(&[1]));
        assert!(!last.may_be_forked(&read, at, Tsid(6)));
        last.entry(Tsid(7), &rows_of(&[2]));
        assert!(!last.may_be_forked(&read, at, Tsid(5)), "it wasn't sent to the replica");
        assert!(last.may_be_forked(&read, at, Tsid(7)));
        assert!(!last.may_be_forked(&read, dispatched(&last), Tsid(7)));
    }

    #[test]
    fn what_does_not_name_its_rows_touches_all_of_its_table() {
        let mut last = LastCommits::default();
        let at = Dispatched { commits: 0, sent: Tsid(0) };
        last.commit(&Items::tables([RelId(1)]));
        last.entry(Tsid(1), &Items::Everything);
        assert!(last.may_be_forked(&rows_of(&[1, 2]), at, Tsid(1)));
        assert!(!last.may_be_forked(&Items::of([row(2, 1), row(2, 2)]), at, Tsid(1)));
        let mut last = LastCommits::default();
        last.commit(&rows_of(&[1]));
        last.entry(Tsid(1), &rows_of(&[9]));
        assert!(
            last.may_be_forked(&Items::tables([RelId(1)]), at, Tsid(1)),
            "a wide read (strict)"
        );
    }
}
