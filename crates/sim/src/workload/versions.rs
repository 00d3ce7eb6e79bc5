//! Which transaction wrote each row last, as every snapshot sees it: the source of exact lsv
//! timestamps (RSSI paper, section 3.1).
//!
//! A cell is a row, or a gap between rows that insertions fall into, by a number that the workload chooses.
//! Bounded: cells by the database's size, versions of a cell by those since the oldest snapshot plus one;
//! versions that no snapshot can see any more are dropped when the cell is written.

use ahash::AHashMap;
use hihooi_certify::certification::Timestamp;

/// A row or a gap, by the workload's own numbering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cell(pub u64);

/// The commit timestamps of each cell's versions.
#[derive(Default)]
pub struct Versions {
    // Only looked up, never iterated: the hash's order is not seen.
    cells: AHashMap<Cell, History>,
}

struct History {
    latest: Timestamp,
    /// Older ones, ascending.
    older: Vec<Timestamp>,
}

impl Versions {
    /// The cells were written by the transaction that committed at `at`, later than all before.
    /// No snapshot ends before `staleness`.
    pub fn write(&mut self, cells: &[Cell], at: Timestamp, staleness: Timestamp) {
        for cell in cells {
            self.cells
                .entry(*cell)
                .and_modify(|history| history.push(at, staleness))
                .or_insert(History { latest: at, older: Vec::new() });
        }
    }

    /// The highest commit timestamp among the versions of the cells in the snapshot that ends with
    /// `snapshot`: the lsv of a transaction that accessed them. 0 if none was ever written.
    pub fn latest(&self, cells: &[Cell], snapshot: Timestamp) -> Timestamp {
        let version = |cell| self.cells.get(cell).map(|history| history.at(snapshot));
        cells.iter().filter_map(version).max().unwrap_or_default()
    }
}

impl History {
    fn push(&mut self, at: Timestamp, staleness: Timestamp) {
        if self.latest > staleness {
            let unseen = self.older.partition_point(|version| *version <= staleness);
            self.older.drain(..unseen.saturating_sub(1));
            self.older.push(self.latest);
        } else {
            self.older.clear();
            self.older.push(self.latest);
        }
        self.latest = at;
    }

    fn at(&self, snapshot: Timestamp) -> Timestamp {
        if self.latest <= snapshot {
            return self.latest;
        }
        let visible = self.older.iter().rev().find(|version| **version <= snapshot);
        visible.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_the_last_version_up_to_its_end() {
        let mut versions = Versions::default();
        let (row, other) = (Cell(1), Cell(2));
        for at in [3, 7, 9] {
            versions.write(&[row], Timestamp(at), Timestamp(0));
        }
        versions.write(&[other], Timestamp(10), Timestamp(0));
        let seen = |cells: &[Cell], at| versions.latest(cells, Timestamp(at)).0;
        assert_eq!([2, 3, 8, 9, 10].map(|at| seen(&[row], at)), [0, 3, 7, 9, 9]);
        assert_eq!([9, 10].map(|at| seen(&[row, other], at)), [9, 10]);
    }

    #[test]
    fn versions_that_no_snapshot_sees_are_dropped() {
        let mut versions = Versions::default();
        for at in 1..1000 {
            versions.write(&[Cell(1)], Timestamp(at), Timestamp(at.saturating_sub(5)));
        }
        let history = &versions.cells[&Cell(1)];
        assert!(history.older.len() <= 6, "{} versions kept", history.older.len());
        assert_eq!(versions.latest(&[Cell(1)], Timestamp(995)), Timestamp(995));
    }
}
