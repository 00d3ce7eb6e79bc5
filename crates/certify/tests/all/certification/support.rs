//! Short names for hand-written histories.

use hihooi_certify::certification::items::{
    Column, Columns, Condition, Datum, Image, Read, RowKey, Write,
};
use hihooi_certify::certification::{
    Certifier, Limits, Lsv, SiteId, Timestamp, Transaction, TxnId,
};
use hihooi_replication::items::RelId;
use std::ops::Bound;

/// The table of all items that are a letter.
pub const TABLE: RelId = RelId(1);
/// Their column that predicates ask for.
pub const A: Column = Column(1);
/// Another column.
pub const B: Column = Column(2);

/// Keeps nothing that it need not keep.
pub fn forgetful() -> Limits {
    Limits { spare_max: 0, ..Limits::default() }
}

/// A transaction with this lsv that reads and updates rows named by a letter each.
pub fn txn(begin: u64, lsv: u64, reads: &str, writes: &str) -> Transaction {
    let lsv = Timestamp(lsv);
    Transaction {
        id: TxnId { site: SiteId(0), number: begin * 100 },
        begin: Timestamp(begin),
        lsv: Lsv { low: lsv, high: lsv },
        reads: reads.chars().map(row).collect(),
        versions: Vec::new(),
        writes: writes.chars().map(update).collect(),
    }
}

/// All of a row.
pub fn row(name: char) -> Read {
    Read::Row { table: TABLE, key: key(name), columns: Columns::ALL }
}

/// The rows with `low <= a < high`.
pub fn range(low: i64, high: i64) -> Read {
    let condition = Condition {
        column: A,
        low: Bound::Included(Datum::Int(low)),
        high: Bound::Excluded(Datum::Int(high)),
    };
    Read::Rows { table: TABLE, conditions: [condition].into(), columns: Columns::NONE }
}

/// A new row.
pub fn insert(name: char, a: i64) -> Write {
    Write {
        table: TABLE,
        key: key(name),
        columns: Columns::ALL,
        before: None,
        after: Some(Image([(A, Datum::Int(a))].into())),
    }
}

/// An update of column B with unknown values.
pub fn update(name: char) -> Write {
    Write {
        table: TABLE,
        key: key(name),
        columns: Columns::of([B]),
        before: Some(Image::default()),
        after: Some(Image::default()),
    }
}

fn key(name: char) -> RowKey {
    RowKey(u128::from(u32::from(name)))
}

/// Certifies writers of rows that nobody else touches, up to this timestamp.
pub fn pass(certifier: &mut (impl Certifier + ?Sized), until: u64) {
    while certifier.clock().0 < until {
        let clock = certifier.clock().0;
        let mut filler = txn(clock, clock, "", "?");
        filler.writes[0].key = RowKey(1 << 64 | u128::from(clock));
        assert!(certifier.certify(&filler).verdict.is_ok());
    }
}
