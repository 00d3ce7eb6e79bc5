//! The last writer of each item, among the entries that are not applied yet. An entry waits for the last
//! writers of its items.
//!
//! This applies the rule for routing reads (Hihooi section 5.1, Algorithm 4) to writers: an entry may be
//! executed at a replica that has applied the last entry which wrote one of its items.

use ahash::AHashMap;

use crate::ids::Tsid;
use crate::items::{Item, Items, Key, RelId, Rows, Span};

/// Rows are looked through for those that are applied when there are at least so many more of them.
const SWEEP_ROWS_MIN: usize = 1_024;

/// The last writers.
#[derive(Debug, Default)]
pub(super) struct LastWriters {
    /// Of everything.
    everything: Tsid,
    tables: AHashMap<RelId, Table>,
    rows: usize,
    /// More rows than this are looked through.
    sweep_at: usize,
}

/// The last writers of a table.
#[derive(Debug, Default)]
struct Table {
    whole: Tsid,
    rows: AHashMap<Key, Tsid>,
}

impl LastWriters {
    /// Takes in the next entry; tells which it has to wait for, in the order of the log, each once. (Those that
    /// these wait for themselves may be missing.)
    pub(super) fn add(&mut self, tsid: Tsid, items: &Items, applied: Tsid) -> Vec<Tsid> {
        let mut needs = vec![self.everything];
        match items {
            Items::Nothing => {}
            // All that came before: since commits come in order, it is enough to wait for the last.
            Items::Everything => {
                needs.push(Tsid(tsid.0 - 1));
                *self = LastWriters { everything: tsid, ..LastWriters::default() };
            }
            Items::Tables(items) => {
                self.sweep(applied);
                items.iter().for_each(|item| self.write(tsid, item, &mut needs));
            }
        }
        needs.retain(|needed| *needed > applied);
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    fn write(&mut self, tsid: Tsid, item: &Item, needs: &mut Vec<Tsid>) {
        let table = self.tables.entry(item.table).or_default();
        needs.push(table.whole);
        match &item.rows {
            Rows::In(spans) if !spans.iter().any(Span::is_range) => {
                for span in spans {
                    match table.rows.get_mut(span.from()) {
                        Some(last) => needs.push(std::mem::replace(last, tsid)),
                        None => {
                            table.rows.insert(span.from().into(), tsid);
                            self.rows += 1;
                        }
                    }
                }
            }
            _ => {
                needs.extend(table.rows.values());
                self.rows -= table.rows.len();
                *table = Table { whole: tsid, rows: AHashMap::new() };
            }
        }
    }

    /// Forgets rows that are applied, when half of them may be.
    fn sweep(&mut self, applied: Tsid) {
        if self.rows < self.sweep_at.max(SWEEP_ROWS_MIN) {
            return;
        }
        for table in self.tables.values_mut() {
            table.rows.retain(|_, last| *last > applied);
        }
        self.tables.retain(|_, table| table.whole > applied || !table.rows.is_empty());
        self.rows = self.tables.values().map(|table| table.rows.len()).sum();
        self.sweep_at = 2 * self.rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::{Columns, SPANS_MAX};

    fn rows(table: u32, keys: &[u64]) -> Items {
        let spans = keys.iter().map(|key| Span::row(key.to_be_bytes())).collect();
        Items::of([Item { table: RelId(table), rows: Rows::of(spans), columns: Columns::All }])
    }

    #[test]
    fn an_entry_waits_for_the_last_writers_of_its_rows() {
        let mut last = LastWriters::default();
        let mut add = |tsid, items| last.add(Tsid(tsid), &items, Tsid(0));
        assert_eq!(add(1, rows(1, &[1])), []);
        assert_eq!(add(2, rows(1, &[2])), []);
        assert_eq!(add(3, rows(1, &[1, 2, 3])), [Tsid(1), Tsid(2)]);
        assert_eq!(add(4, rows(2, &[1])), []);
        assert_eq!(add(5, rows(1, &[1])), [Tsid(3)]);
        assert_eq!(add(6, Items::tables([RelId(1)])), [Tsid(3), Tsid(5)]);
        assert_eq!(add(7, rows(1, &[9])), [Tsid(6)]);
        assert_eq!(add(8, Items::Everything), [Tsid(7)]);
        assert_eq!(add(9, rows(2, &[1])), [Tsid(8)]);
        assert_eq!(add(10, Items::Nothing), [Tsid(8)], "it may read the schema");
    }

    #[test]
    fn what_is_applied_is_waited_for_no_more_and_forgotten_i8() {
        let mut last = LastWriters::default();
        let keys = |n: u64| (0..SPANS_MAX as u64).map(|key| n * 1000 + key).collect::<Vec<_>>();
        for n in 1..1_000 {
            let needs = last.add(Tsid(n), &rows(n as u32 % 7, &keys(n)), Tsid(n.saturating_sub(4)));
            assert_eq!(needs, []);
        }
        assert!(last.rows <= 2 * SWEEP_ROWS_MIN + SPANS_MAX, "{}", last.rows);
        assert_eq!(last.add(Tsid(1_000), &rows(999 % 7, &keys(999)), Tsid(998)), [Tsid(999)]);
        assert_eq!(last.add(Tsid(1_001), &rows(1_000 % 7, &keys(1_000)), Tsid(1_000)), []);
    }
}
