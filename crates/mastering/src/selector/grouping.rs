//! Which partition group a data item belongs to (DynaMast paper, section V-B): by default ranges
//! of equally many keys; others can be given, as all tables of TPC-C by warehouse.

use std::collections::BTreeMap;

use crate::ids::PartitionId;

/// Most partition groups in all.
pub const PARTITIONS_MAX: u32 = 1 << 24;

/// A table of the database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u32);

/// How one table's keys fall into partitions.
#[derive(Clone, Debug)]
enum Rule {
    /// Equally many keys each; keys beyond the last range are of the last partition.
    Ranges { first: PartitionId, keys_each: u64, partitions: u32 },
    /// From each key on, the partition beside it; sorted by key.
    Given(Vec<(u64, PartitionId)>),
}

/// Why a grouping can't be so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadGrouping {
    /// A range must have keys, and a table partitions.
    Empty,
    /// More than [`PARTITIONS_MAX`].
    TooMany,
    /// No such table, or it has no ranges to stand beside.
    NoSuchTable,
}

/// The partition groups of a database, numbered densely from 0.
#[derive(Clone, Debug, Default)]
pub struct Grouping {
    rules: BTreeMap<TableId, Rule>,
    partitions: u32,
}

impl Grouping {
    /// Of one table, in ranges of `keys_each` keys.
    ///
    /// # Errors
    /// When there is no key or partition, or too many partitions.
    pub fn ranges(
        &mut self,
        table: TableId,
        keys_each: u64,
        partitions: u32,
    ) -> Result<(), BadGrouping> {
        if keys_each == 0 || partitions == 0 {
            return Err(BadGrouping::Empty);
        }
        let end = self.partitions.checked_add(partitions).filter(|end| *end <= PARTITIONS_MAX);
        let first = PartitionId(self.partitions);
        self.partitions = end.ok_or(BadGrouping::TooMany)?;
        self.rules.insert(table, Rule::Ranges { first, keys_each, partitions });
        Ok(())
    }

    /// A table whose keys belong to the partitions of another one, `keys_each` keys to each: the
    /// stock of a warehouse beside the warehouse.
    ///
    /// # Errors
    /// When `other` has no ranges.
    pub fn beside(
        &mut self,
        table: TableId,
        keys_each: u64,
        other: TableId,
    ) -> Result<(), BadGrouping> {
        if keys_each == 0 {
            return Err(BadGrouping::Empty);
        }
        let Some(Rule::Ranges { first, partitions, .. }) = self.rules.get(&other) else {
            return Err(BadGrouping::NoSuchTable);
        };
        let rule = Rule::Ranges { first: *first, keys_each, partitions: *partitions };
        self.rules.insert(table, rule);
        Ok(())
    }

    /// A table with a grouping of the user's own: from each key on, the partition beside it. Keys
    /// before the first are of its partition too.
    ///
    /// # Errors
    /// When the list is empty, or a partition's number is too high.
    pub fn given(
        &mut self,
        table: TableId,
        mut starts: Vec<(u64, PartitionId)>,
    ) -> Result<(), BadGrouping> {
        starts.sort_unstable();
        let highest = starts.iter().map(|(_, p)| p.0).max().ok_or(BadGrouping::Empty)?;
        if highest >= PARTITIONS_MAX {
            return Err(BadGrouping::TooMany);
        }
        self.partitions = self.partitions.max(highest + 1);
        self.rules.insert(table, Rule::Given(starts));
        Ok(())
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The partition of a key; none for an unknown table.
    #[must_use]
    pub fn partition(&self, table: TableId, key: u64) -> Option<PartitionId> {
        Some(match self.rules.get(&table)? {
            Rule::Ranges { first, keys_each, partitions } => {
                let nth = (key / keys_each).min(u64::from(*partitions) - 1);
                PartitionId(first.0 + nth as u32)
            }
            Rule::Given(starts) => {
                let after = starts.partition_point(|(start, _)| *start <= key);
                starts[after.saturating_sub(1)].1
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TableId = TableId(1);
    const B: TableId = TableId(2);

    #[test]
    fn ranges_hold_equally_many_sequential_keys() {
        // DynaMast V-B, footnote: sequential items in partitions of equal size.
        let mut groups = Grouping::default();
        groups.ranges(A, 100, 3).unwrap();
        groups.ranges(B, 10, 2).unwrap();
        let of = |table, key| groups.partition(table, key).unwrap().0;
        assert_eq!([of(A, 0), of(A, 99), of(A, 100), of(A, 299)], [0, 0, 1, 2]);
        assert_eq!(of(A, 1_000_000), 2, "keys beyond the last range");
        assert_eq!([of(B, 9), of(B, 10)], [3, 4]);
        assert_eq!(groups.partitions(), 5);
        assert_eq!(groups.partition(TableId(9), 0), None);
    }

    #[test]
    fn tpcc_by_warehouse() {
        let (mut groups, warehouse, district, stock) = (Grouping::default(), A, B, TableId(3));
        groups.ranges(warehouse, 1, 10).unwrap();
        groups.beside(district, 10, warehouse).unwrap();
        groups.beside(stock, 100_000, warehouse).unwrap();
        let of = |table, key| groups.partition(table, key).unwrap().0;
        assert_eq!([of(warehouse, 3), of(district, 39), of(stock, 399_999)], [3, 3, 3]);
        assert_eq!(groups.partitions(), 10);
        assert_eq!(groups.beside(stock, 5, TableId(9)), Err(BadGrouping::NoSuchTable));
    }

    #[test]
    fn given_groups() {
        let mut groups = Grouping::default();
        groups.given(A, vec![(50, PartitionId(1)), (10, PartitionId(4))]).unwrap();
        let of = |key| groups.partition(A, key).unwrap().0;
        assert_eq!([of(0), of(10), of(49), of(50), of(99)], [4, 4, 4, 1, 1]);
        assert_eq!(groups.partitions(), 5);
        assert_eq!(groups.given(A, vec![]), Err(BadGrouping::Empty));
        assert_eq!(groups.ranges(B, 1, PARTITIONS_MAX), Err(BadGrouping::TooMany));
    }
}
