//! Whether a write touches what was read: the test that all certifiers use, and the reference implementation
//! for the indexes (RSSI paper, section 3.1: rw-edges; its footnote 2 asks for more than the records read, so
//! that phantoms are seen). Unknown means "may touch" (I6).

use std::ops::Bound;

use crate::certification::items::{Column, Columns, Condition, Datum, Image, Read, Write};

/// Whether a row is among those that a predicate asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Membership {
    No,
    Unknown,
    Yes,
}

impl Read {
    /// Whether the write may have changed what this read shows: the values of the columns looked
    /// at, or which rows there are.
    #[must_use]
    pub fn touched_by(&self, write: &Write) -> bool {
        match self {
            Read::Everything => true,
            Read::Table { table, columns } => *table == write.table && write.shows_in(*columns),
            Read::Row { table, key, columns } => {
                *table == write.table && *key == write.key && write.shows_in(*columns)
            }
            Read::Rows { table, conditions, columns } => {
                *table == write.table && rows_touched(conditions, *columns, write)
            }
        }
    }
}

impl Write {
    /// Whether both write the same row, so that of two concurrent ones only the first may commit
    /// (RSSI paper, theorem 3.1, first committer wins).
    #[must_use]
    pub fn same_row(&self, other: &Write) -> bool {
        self.table == other.table && self.key == other.key
    }

    /// Whether the row was there before and is there after.
    #[must_use]
    pub fn is_update(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// Whether who looks at these columns of the row sees the write; whether the row exists is
    /// always looked at.
    fn shows_in(&self, columns: Columns) -> bool {
        !self.is_update() || self.columns.overlaps(columns)
    }
}

impl Image {
    /// The value of a column, if it is known.
    #[must_use]
    pub fn value(&self, column: Column) -> Option<&Datum> {
        self.0.iter().find(|(known, _)| *known == column).map(|(_, value)| value)
    }
}

impl Condition {
    /// Whether the value fulfils it.
    #[must_use]
    pub fn admits(&self, value: &Datum) -> bool {
        let above = match &self.low {
            Bound::Included(low) => low <= value,
            Bound::Excluded(low) => low < value,
            Bound::Unbounded => true,
        };
        let below = match &self.high {
            Bound::Included(high) => value <= high,
            Bound::Excluded(high) => value < high,
            Bound::Unbounded => true,
        };
        above && below
    }
}

/// Whether a predicate's rows, or the columns looked at in them, may be changed by the write.
fn rows_touched(conditions: &[Condition], columns: Columns, write: &Write) -> bool {
    let before = membership(conditions, write.before.as_ref());
    let after = membership(conditions, write.after.as_ref());
    let asked = Columns::of(conditions.iter().map(|condition| condition.column));
    if write.is_update() && !write.columns.overlaps(asked) {
        // The row stays in or stays out; one of the images may know which.
        let out = before == Membership::No || after == Membership::No;
        return !out && write.columns.overlaps(columns);
    }
    before != Membership::No || after != Membership::No
}

fn membership(conditions: &[Condition], image: Option<&Image>) -> Membership {
    let Some(image) = image else { return Membership::No };
    let mut all = Membership::Yes;
    for condition in conditions {
        match image.value(condition.column) {
            Some(value) if !condition.admits(value) => return Membership::No,
            Some(_) => {}
            None => all = Membership::Unknown,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use hihooi_replication::items::RelId;

    use super::*;
    use crate::certification::items::RowKey;

    const ACCOUNTS: RelId = RelId(1);
    const ID: Column = Column(0);
    const BRANCH: Column = Column(1);
    const BALANCE: Column = Column(2);

    fn image(branch: i64, balance: i64) -> Option<Image> {
        Some(Image([(BRANCH, Datum::Int(branch)), (BALANCE, Datum::Int(balance))].into()))
    }

    fn write(columns: Columns, before: Option<Image>, after: Option<Image>) -> Write {
        Write { table: ACCOUNTS, key: RowKey(7), columns, before, after }
    }

    fn branches(low: i64, high: i64, columns: Columns) -> Read {
        let condition = Condition {
            column: BRANCH,
            low: Bound::Included(Datum::Int(low)),
            high: Bound::Excluded(Datum::Int(high)),
        };
        Read::Rows { table: ACCOUNTS, conditions: [condition].into(), columns }
    }

    fn row(key: u128, columns: Columns) -> Read {
        Read::Row { table: ACCOUNTS, key: RowKey(key), columns }
    }

    #[test]
    fn rows_and_tables_are_told_apart() {
        let update = write(Columns::of([BALANCE]), image(3, 10), image(3, 11));
        assert!(row(7, Columns::ALL).touched_by(&update));
        assert!(!row(8, Columns::ALL).touched_by(&update));
        assert!(Read::Table { table: ACCOUNTS, columns: Columns::ALL }.touched_by(&update));
        assert!(!Read::Table { table: RelId(2), columns: Columns::ALL }.touched_by(&update));
        assert!(Read::Everything.touched_by(&update));
    }

    #[test]
    fn who_looks_at_other_columns_is_not_touched_by_an_update() {
        let update = write(Columns::of([BALANCE]), image(3, 10), image(3, 11));
        assert!(!row(7, Columns::of([ID, BRANCH])).touched_by(&update));
        assert!(row(7, Columns::of([ID, BALANCE])).touched_by(&update));
        let table = Read::Table { table: ACCOUNTS, columns: Columns::of([BRANCH]) };
        assert!(!table.touched_by(&update));
    }

    #[test]
    fn whether_a_row_exists_is_always_looked_at() {
        for (before, after) in [(None, image(3, 10)), (image(3, 10), None)] {
            let write = write(Columns::ALL, before, after);
            assert!(row(7, Columns::NONE).touched_by(&write));
            assert!(Read::Table { table: ACCOUNTS, columns: Columns::NONE }.touched_by(&write));
            assert!(branches(0, 9, Columns::NONE).touched_by(&write));
        }
    }

    /// RSSI paper, section 3.3, footnote 2: phantoms.
    #[test]
    fn a_predicate_sees_what_enters_leaves_or_changes_in_it() {
        let all = Columns::ALL;
        let moved = Columns::of([BRANCH]);
        let paid = Columns::of([BALANCE]);
        let cases = [
            ("insert inside", write(all, None, image(3, 1)), true),
            ("insert outside", write(all, None, image(10, 1)), false),
            ("insert at the excluded end", write(all, None, image(5, 1)), false),
            ("insert at the included end", write(all, None, image(2, 1)), true),
            ("delete inside", write(all, image(4, 1), None), true),
            ("delete outside", write(all, image(1, 1), None), false),
            ("enters", write(moved, image(9, 1), image(3, 1)), true),
            ("leaves", write(moved, image(3, 1), image(9, 1)), true),
            ("passes by", write(moved, image(0, 1), image(9, 1)), false),
            ("moves inside", write(moved, image(3, 1), image(4, 1)), true),
            ("other column inside", write(paid, image(3, 1), image(3, 2)), false),
        ];
        for (name, write, touched) in cases {
            assert_eq!(branches(2, 5, Columns::of([ID])).touched_by(&write), touched, "{name}");
        }
        let update = write(paid, image(3, 1), image(3, 2));
        assert!(branches(2, 5, Columns::of([BALANCE])).touched_by(&update));
    }

    /// I6: what is not known counts as touching.
    #[test]
    fn unknown_values_may_be_anything() {
        let unknown = Some(Image::default());
        let paid = Columns::of([BALANCE]);
        let looked = Columns::of([BALANCE]);
        assert!(branches(2, 5, looked).touched_by(&write(Columns::ALL, None, unknown.clone())));
        let updates = |before, after, columns| write(columns, before, after);
        // PostgreSQL sends no old row under the default replica identity, but a column that did
        // not change had its new value before.
        let after = updates(unknown.clone(), image(9, 2), paid);
        assert!(!branches(2, 5, looked).touched_by(&after));
        let after = updates(unknown.clone(), image(9, 2), Columns::ALL);
        assert!(branches(2, 5, looked).touched_by(&after));
        let after = updates(unknown.clone(), unknown, paid);
        assert!(branches(2, 5, looked).touched_by(&after));
        assert!(!branches(2, 5, Columns::of([ID])).touched_by(&after));
    }

    #[test]
    fn all_conditions_must_hold() {
        let condition = |column, low| Condition {
            column,
            low: Bound::Excluded(Datum::Int(low)),
            high: Bound::Unbounded,
        };
        let read = Read::Rows {
            table: ACCOUNTS,
            conditions: [condition(BRANCH, 2), condition(BALANCE, 100)].into(),
            columns: Columns::NONE,
        };
        assert!(read.touched_by(&write(Columns::ALL, None, image(3, 101))));
        assert!(!read.touched_by(&write(Columns::ALL, None, image(3, 100))));
        assert!(!read.touched_by(&write(Columns::ALL, None, image(2, 101))));
    }
}
