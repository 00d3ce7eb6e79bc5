//! The paper's Algorithm 2 (Hihooi section 4.2): a transaction is executed at once if it shares no items with
//! transactions that are running or waiting; otherwise it waits in a single queue.
//!
//! The items of running and of waiting transactions are counted hash sets, as in the paper: of tables, and for
//! each table of rows and of columns. So shared items are looked up; transactions are not compared one by one.
//!
//! Departure: Algorithm 1 compares what is written with what is read or written. Entries contain rows, and
//! applying a row reads nothing else, so only writes are compared.

use std::collections::VecDeque;
use std::hash::Hash;

use ahash::AHashMap;

use crate::ids::Tsid;
use crate::items::{ColumnId, Columns, Item, Items, Key, RelId, Rows, Span};

/// The two states and the queue.
#[derive(Debug, Default)]
pub(super) struct Algorithm2 {
    running: State,
    waiting: State,
    queue: VecDeque<(Tsid, Items)>,
    /// What runs.
    executing: AHashMap<Tsid, Items>,
}

impl Algorithm2 {
    /// A new transaction: whether it may execute now (the paper's `onNewTransaction`).
    pub(super) fn arrived(&mut self, tsid: Tsid, items: Items) -> bool {
        let may = self.running.is_independent_of(&items) && self.waiting.is_independent_of(&items);
        if may {
            self.execute(tsid, items);
        } else {
            self.waiting.merge(&items);
            self.queue.push_back((tsid, items));
        }
        may
    }

    /// A transaction is applied: those that may execute now (`onTransactionComplete`).
    pub(super) fn completed(&mut self, tsid: Tsid) -> Vec<Tsid> {
        if let Some(items) = self.executing.remove(&tsid) {
            self.running.remove(&items);
        }
        let mut released = Vec::new();
        while let Some((tsid, items)) =
            self.queue.pop_front_if(|(_, items)| self.running.is_independent_of(items))
        {
            self.waiting.remove(&items);
            self.execute(tsid, items);
            released.push(tsid);
        }
        released
    }

    fn execute(&mut self, tsid: Tsid, items: Items) {
        self.running.merge(&items);
        self.executing.insert(tsid, items);
    }
}

/// What some transactions write, combined.
#[derive(Debug, Default)]
struct State {
    transactions: usize,
    everything: usize,
    tables: AHashMap<RelId, Table>,
}

/// How many of the transactions write what of a table.
#[derive(Debug, Default)]
struct Table {
    transactions: usize,
    all_rows: usize,
    rows: AHashMap<Key, usize>,
    all_columns: usize,
    columns: AHashMap<ColumnId, usize>,
}

impl State {
    fn merge(&mut self, items: &Items) {
        self.transactions += 1;
        match items {
            Items::Nothing => {}
            Items::Everything => self.everything += 1,
            Items::Tables(items) => {
                for item in items {
                    self.tables.entry(item.table).or_default().merge(item);
                }
            }
        }
    }

    /// Takes back a merge.
    fn remove(&mut self, items: &Items) {
        self.transactions -= 1;
        match items {
            Items::Nothing => {}
            Items::Everything => self.everything -= 1,
            Items::Tables(items) => {
                for item in items {
                    let Some(table) = self.tables.get_mut(&item.table) else { continue };
                    table.remove(item);
                    if table.transactions == 0 {
                        self.tables.remove(&item.table);
                    }
                }
            }
        }
    }

    fn is_independent_of(&self, items: &Items) -> bool {
        let shares = match items {
            Items::Everything => self.transactions > 0,
            Items::Nothing => self.everything > 0,
            Items::Tables(items) => {
                let shares = |item: &Item| {
                    self.tables.get(&item.table).is_some_and(|table| table.shares(item))
                };
                self.everything > 0 || items.iter().any(shares)
            }
        };
        !shares
    }
}

impl Table {
    fn merge(&mut self, item: &Item) {
        self.transactions += 1;
        match keys(&item.rows) {
            Some(keys) => keys.for_each(|key| *self.rows.entry(key.into()).or_default() += 1),
            None => self.all_rows += 1,
        }
        match &item.columns {
            Columns::All => self.all_columns += 1,
            Columns::In(columns) => {
                columns.iter().for_each(|column| *self.columns.entry(*column).or_default() += 1);
            }
        }
    }

    fn remove(&mut self, item: &Item) {
        self.transactions -= 1;
        match keys(&item.rows) {
            Some(keys) => keys.for_each(|key| count_down(&mut self.rows, &key.into())),
            None => self.all_rows -= 1,
        }
        match &item.columns {
            Columns::All => self.all_columns -= 1,
            Columns::In(columns) => {
                columns.iter().for_each(|column| count_down(&mut self.columns, column));
            }
        }
    }

    /// Whether both rows and columns meet. (Of which rows these were the columns is not kept.)
    fn shares(&self, item: &Item) -> bool {
        let rows = match keys(&item.rows) {
            Some(mut keys) => self.all_rows > 0 || keys.any(|key| self.rows.contains_key(key)),
            None => true,
        };
        let columns = match &item.columns {
            Columns::All => true,
            Columns::In(columns) => {
                self.all_columns > 0
                    || columns.iter().any(|column| self.columns.contains_key(column))
            }
        };
        rows && columns
    }
}

/// The keys of the rows, if each is told.
fn keys(rows: &Rows) -> Option<impl Iterator<Item = &[u8]>> {
    match rows {
        Rows::In(spans) if !spans.iter().any(Span::is_range) => Some(spans.iter().map(Span::from)),
        _ => None,
    }
}

fn count_down<K: Eq + Hash>(counts: &mut AHashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const R: RelId = RelId(1);
    const S: RelId = RelId(2);

    fn of(table: RelId, key: Option<u8>, columns: Option<u16>) -> Items {
        let rows = key.map_or(Rows::All, |key| Rows::of(vec![Span::row([key])]));
        let columns = columns.map_or(Columns::All, |c| Columns::of(vec![ColumnId(c)]));
        Items::of([Item { table, rows, columns }])
    }

    /// The paper's running example: what W1 to W5 of its Table 1 write.
    #[test]
    fn the_papers_w1_to_w5() {
        let w1 = of(R, Some(100), Some(2)); // UPDATE R SET A2 = … WHERE A1 = 100
        let w2 = of(S, None, Some(2)); // UPDATE S SET B2 = … WHERE B5 > …
        let w3 = of(R, None, None); // takes the whole of R
        let w4 = of(R, Some(120), None); // DELETE FROM R WHERE A1 = 120
        let w5 = of(S, None, Some(4)); // UPDATE S SET B4 = …
        let mut both = Algorithm2::default();
        assert!(both.arrived(Tsid(1), w1));
        assert!(both.arrived(Tsid(2), w2), "another table than W1");
        assert!(!both.arrived(Tsid(3), w3), "it conflicts with W1");
        assert!(!both.arrived(Tsid(4), w4), "with W3, which waits, though not with W1");
        assert!(both.arrived(Tsid(5), w5), "another column than W2");
        assert_eq!(both.completed(Tsid(1)), [Tsid(3)]);
        assert_eq!(both.completed(Tsid(2)), []);
        assert_eq!(both.completed(Tsid(3)), [Tsid(4)]);
        assert_eq!(both.completed(Tsid(4)), []);
        assert_eq!(both.completed(Tsid(5)), []);
        let State { transactions, everything, tables } = &both.running;
        assert_eq!(
            (*transactions, *everything, tables.len()),
            (0, 0, 0),
            "counted down to nothing"
        );
    }

    fn some_items() -> impl Strategy<Value = Items> {
        let item = (1u32..4, prop::option::of(0u8..5), prop::option::of(0u16..3));
        let tables = prop::collection::vec(item, 0..3).prop_map(|items| {
            let items = items.into_iter().map(|(table, key, column)| of(RelId(table), key, column));
            items.fold(Items::Nothing, |all, items| all.union(&items))
        });
        prop_oneof![20 => tables, 1 => Just(Items::Everything)]
    }

    proptest! {
        /// What runs together shares nothing, each waits for those before that it shares something with, and
        /// all run in the end.
        #[test]
        fn runs_together_what_is_independent(
            all in prop::collection::vec(some_items(), 1..30),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 30),
        ) {
            let mut machine = Algorithm2::default();
            let (mut running, mut done) = (Vec::new(), Vec::new());
            let meets = |a: &Items, b: &Items| {
                a.overlaps(b) || matches!(a, Items::Everything) || matches!(b, Items::Everything)
            };
            let check = |running: &[usize], done: &[usize], next: usize| {
                for other in 0..all.len() {
                    if running.contains(&other) || (other < next && !done.contains(&other)) {
                        assert!(!meets(&all[other], &all[next]), "{next} beside or before {other}");
                    }
                }
            };
            for (at, items) in all.iter().enumerate() {
                if machine.arrived(Tsid(at as u64), items.clone()) {
                    check(&running, &done, at);
                    running.push(at);
                }
            }
            for choice in choices {
                if running.is_empty() {
                    break;
                }
                let at = running.remove(choice.index(running.len()));
                done.push(at);
                for released in machine.completed(Tsid(at as u64)) {
                    check(&running, &done, released.0 as usize);
                    running.push(released.0 as usize);
                }
            }
            prop_assert_eq!(done.len(), all.len());
        }
    }
}
