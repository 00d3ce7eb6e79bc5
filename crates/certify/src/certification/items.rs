//! What a transaction read and wrote, at the level of rows, columns, tables and predicates, and when a read and
//! a write conflict. A predicate is tested against the rows as they were before and after the write, so that
//! phantoms are detected and other rows of the table don't conflict. Unknown always means "may conflict" (I6).

use std::ops::Bound;

use hihooi_replication::items::RelId;

/// The primary key of a row within its table: the value itself, or a hash of it that is wide
/// enough not to collide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowKey(pub u128);

/// A column by its position in the table, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Column(pub u16);

/// A set of columns. Columns from 63 on share one bit, which can only make sets look larger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Columns(pub u64);

impl Columns {
    /// No column: only whether the row exists.
    pub const NONE: Columns = Columns(0);
    /// Every column.
    pub const ALL: Columns = Columns(u64::MAX);

    /// The set of these.
    pub fn of(columns: impl IntoIterator<Item = Column>) -> Columns {
        Columns(columns.into_iter().fold(0, |set, column| set | 1 << column.0.min(63)))
    }

    /// Whether a column is in both.
    #[must_use]
    pub fn overlaps(self, other: Columns) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the column is in it.
    #[must_use]
    pub fn has(self, column: Column) -> bool {
        self.overlaps(Columns::of([column]))
    }
}

/// A value of a column whose order we know: the order of the variants, then of the values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Datum {
    /// An integer.
    Int(i64),
    /// A text under byte order (collation "C").
    Text(Box<str>),
}

/// The values of a row's columns that are known, sorted by column. A column that is not in it
/// could have any value, NULL too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Image(pub Box<[(Column, Datum)]>);

/// A row that was inserted (no `before`), deleted (no `after`) or updated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The table.
    pub table: RelId,
    /// The row; an update of the key is a deletion and an insertion.
    pub key: RowKey,
    /// The columns whose value changed; all of them for insertions and deletions.
    pub columns: Columns,
    /// The row as it was.
    pub before: Option<Image>,
    /// The row as it is now.
    pub after: Option<Image>,
}

/// A range of a column's values that a predicate asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The column.
    pub column: Column,
    /// From where.
    pub low: Bound<Datum>,
    /// To where.
    pub high: Bound<Datum>,
}

/// Something that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// Could be anything.
    Everything,
    /// Any row of the table, but of these columns only (and which rows there are).
    Table {
        /// The table.
        table: RelId,
        /// The columns looked at.
        columns: Columns,
    },
    /// One row, there or not.
    Row {
        /// The table.
        table: RelId,
        /// Its key.
        key: RowKey,
        /// The columns looked at.
        columns: Columns,
    },
    /// The rows that fulfil all conditions: `a <= x AND x < b AND …`.
    Rows {
        /// The table.
        table: RelId,
        /// What must hold of them; a column that is NULL fulfils none.
        conditions: Box<[Condition]>,
        /// The columns looked at besides those of the conditions.
        columns: Columns,
    },
}
