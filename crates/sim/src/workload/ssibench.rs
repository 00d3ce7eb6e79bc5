//! ssibench (RSSI paper, appendix D.1.1): three tables; every transaction reads consecutive rows
//! of table i from a random one on; a writing one updates random rows of table i + 1 mod 3, or
//! inserts rows there, so that rw-edges between tables close cycles (the paper's Figure 5).
//!
//! From the paper: three tables of 100,000 rows, the access rule, uniform distributions. It doesn't print how
//! many rows are read and written; the defaults, 100 rows in a range of the key and 20, are those of the
//! authors' group for the same benchmark elsewhere (University of Sydney, technical report 693). How many
//! transactions conflict, and therefore abort, depends on these numbers: `docs/protocols.md` has figures.
//!
//! Assumptions: as many inserting as updating transactions (the paper has both and no shares);
//! inserted keys come after all that are read, as from a sequence, so that only updates conflict
//! with reads, as in the paper's prototype (its footnote 2). With `phantoms` they fall uniformly
//! between the rows instead, conflict with the ranges that are read, and are part of later reads;
//! a range stays the same part of the table although insertions make it grow.

use std::ops::Bound;

use hihooi_certify::certification::Timestamp;
use hihooi_certify::certification::items::{
    Column, Columns, Condition, Datum, Image, Read, RowKey, Write,
};
use hihooi_replication::items::RelId;
use rand::RngExt;
use rand_pcg::Pcg64;

use crate::workload::versions::Cell;
use crate::workload::{Footprint, Work, Workload};

/// Tables of the benchmark.
pub const TABLES: u32 = 3;
/// Room for inserted keys between two populated ones.
const GAP: u64 = 1 << 20;
const KEY: Column = Column(0);
const VALUE: Column = Column(1);

/// The benchmark's parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parameters {
    /// Rows that a table is populated with; at most 2^32.
    pub rows: u64,
    /// Consecutive rows that each transaction reads; at most `rows`.
    pub reads: u32,
    /// Rows that a writing transaction writes; at most `rows`.
    pub writes: u32,
    /// Which part of the writing transactions inserts instead of updating, 0 to 1.
    pub inserts: f64,
    /// Whether inserted rows fall between those that others read.
    pub phantoms: bool,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { rows: 100_000, reads: 100, writes: 20, inserts: 0.5, phantoms: false }
    }
}

/// The benchmark.
pub struct Ssibench {
    parameters: Parameters,
}

/// A transaction of the benchmark.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The table that is read.
    table: u32,
    /// The first row that is read.
    first: u64,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Query,
    Update(Vec<u64>),
    /// Keys, none a multiple of [`GAP`].
    Insert(Vec<u64>),
}

impl Ssibench {
    /// The benchmark with these parameters.
    ///
    /// # Panics
    /// If a transaction reads or writes more rows than a table has.
    pub fn new(parameters: Parameters) -> Ssibench {
        let most = u64::from(parameters.reads.max(parameters.writes));
        assert!((most..=1 << 32).contains(&parameters.rows), "{parameters:?}");
        Ssibench { parameters }
    }

    fn draw_action(&self, read_only: f64, random: &mut Pcg64) -> Action {
        if random.random_bool(read_only) {
            Action::Query
        } else if random.random_bool(self.parameters.inserts) {
            let rows = self.draw_rows(random);
            let end = if self.parameters.phantoms { 0 } else { self.parameters.rows };
            let key = |row| (end + row) * GAP + random.random_range(1..GAP);
            Action::Insert(rows.into_iter().map(key).collect())
        } else {
            Action::Update(self.draw_rows(random))
        }
    }

    /// Different rows, sorted.
    fn draw_rows(&self, random: &mut Pcg64) -> Vec<u64> {
        let mut rows = Vec::with_capacity(self.parameters.writes as usize);
        while rows.len() < self.parameters.writes as usize {
            let row = random.random_range(0..self.parameters.rows);
            if let Err(place) = rows.binary_search(&row) {
                rows.insert(place, row);
            }
        }
        rows
    }
}

impl Workload for Ssibench {
    type Plan = Plan;

    /// The mix of its own has no read-only transactions.
    fn draw(&mut self, read_only: Option<f64>, random: &mut Pcg64) -> Plan {
        let table = random.random_range(0..TABLES);
        let last_start = self.parameters.rows - u64::from(self.parameters.reads);
        let first = random.random_range(0..=last_start);
        Plan { table, first, action: self.draw_action(read_only.unwrap_or(0.0), random) }
    }

    fn footprint(&self, plan: &Plan, _snapshot: Timestamp) -> Footprint {
        let mut footprint = Footprint::default();
        let end = plan.first + u64::from(self.parameters.reads);
        footprint.reads.push(range(plan.table, plan.first, end));
        let cells = |row| [row_cell(plan.table, row), gap_cell(plan.table, row)];
        footprint.seen.extend((plan.first..end).flat_map(cells));
        footprint.work.read = self.parameters.reads;
        add_writes(&mut footprint, (plan.table + 1) % TABLES, &plan.action);
        footprint
    }

    fn committed(&mut self, _plan: &Plan, _snapshot: Timestamp, _at: Timestamp) {}
}

fn add_writes(footprint: &mut Footprint, table: u32, action: &Action) {
    match action {
        Action::Query => {}
        Action::Update(rows) => {
            let cells = rows.iter().map(|row| row_cell(table, *row));
            footprint.touched.extend(cells.clone());
            // The engine looks for the row that it updates, and so sees its version.
            footprint.seen.extend(cells);
            footprint.writes.extend(rows.iter().map(|row| update(table, row * GAP)));
            footprint.work = Work { updated: rows.len() as u32, ..footprint.work };
        }
        Action::Insert(keys) => {
            footprint.touched.extend(keys.iter().map(|key| gap_cell(table, key / GAP)));
            footprint.writes.extend(keys.iter().map(|key| insert(table, *key)));
            footprint.work = Work { inserted: keys.len() as u32, ..footprint.work };
        }
    }
}

fn row_cell(table: u32, row: u64) -> Cell {
    Cell(u64::from(table) << 48 | row)
}

/// Where the rows inserted between `row` and the next populated one are.
fn gap_cell(table: u32, row: u64) -> Cell {
    Cell(u64::from(TABLES + table) << 48 | row)
}

fn range(table: u32, first: u64, end: u64) -> Read {
    let condition = Condition {
        column: KEY,
        low: Bound::Included(Datum::Int((first * GAP) as i64)),
        high: Bound::Excluded(Datum::Int((end * GAP) as i64)),
    };
    let conditions = Box::new([condition]);
    Read::Rows { table: RelId(table), conditions, columns: Columns::of([VALUE]) }
}

fn image(key: u64) -> Option<Image> {
    Some(Image(Box::new([(KEY, Datum::Int(key as i64))])))
}

fn update(table: u32, key: u64) -> Write {
    Write {
        table: RelId(table),
        key: RowKey(u128::from(key)),
        columns: Columns::of([VALUE]),
        before: image(key),
        after: image(key),
    }
}

fn insert(table: u32, key: u64) -> Write {
    Write { columns: Columns::ALL, before: None, ..update(table, key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(inserts: f64, read_only: f64) -> Footprint {
        let mut bench = Ssibench::new(Parameters { inserts, ..Parameters::default() });
        let plan = bench.draw(Some(read_only), &mut Pcg64::new(7, 7));
        bench.footprint(&plan, Timestamp(0))
    }

    fn table_of(read: &Read) -> u32 {
        let Read::Rows { table, .. } = read else { panic!("{read:?}") };
        table.0
    }

    #[test]
    fn writers_write_the_table_after_the_one_they_read() {
        for inserts in [0.0, 1.0] {
            let footprint = draw(inserts, 0.0);
            let target = (table_of(&footprint.reads[0]) + 1) % TABLES;
            assert_eq!((footprint.writes.len(), footprint.touched.len()), (20, 20));
            assert!(footprint.writes.iter().all(|write| write.table.0 == target));
        }
    }

    #[test]
    fn inserted_rows_are_new_and_updated_ones_populated() {
        let populated = |write: &Write| write.key.0.is_multiple_of(u128::from(GAP));
        assert!(draw(0.0, 0.0).writes.iter().all(populated));
        assert!(!draw(1.0, 0.0).writes.iter().any(populated));
        assert!(draw(1.0, 0.0).writes.iter().all(|write| write.before.is_none()));
    }

    #[test]
    fn inserted_rows_fall_into_ranges_only_as_phantoms() {
        let end = u128::from(100_000 * GAP);
        let keys = |phantoms| {
            let parameters = Parameters { inserts: 1.0, phantoms, ..Parameters::default() };
            let mut bench = Ssibench::new(parameters);
            let plan = bench.draw(Some(0.0), &mut Pcg64::new(7, 7));
            bench.footprint(&plan, Timestamp(0)).writes
        };
        assert!(keys(false).iter().all(|write| write.key.0 > end));
        assert!(keys(true).iter().all(|write| write.key.0 < end));
    }

    #[test]
    fn queries_write_nothing() {
        let footprint = draw(0.5, 1.0);
        assert!(footprint.writes.is_empty() && footprint.touched.is_empty());
        assert_eq!(footprint.work, Work { read: 100, updated: 0, inserted: 0 });
    }
}
