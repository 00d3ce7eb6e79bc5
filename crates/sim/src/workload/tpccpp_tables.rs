//! The tables of TPC-C as far as its conflicts go: which columns matter, how keys are numbered,
//! and rows as reads and writes of certification.

use std::ops::{Bound, Range};

use hihooi_certify::certification::items::{
    Column, Columns, Condition, Datum, Image, Read, RowKey, Write,
};
use hihooi_replication::items::RelId;

use crate::workload::versions::Cell;
use crate::workload::{Footprint, Work};

/// A table with the columns that matter, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Table {
    Warehouse,
    District,
    Customer,
    Stock,
    Orders,
    NewOrder,
    OrderLine,
    History,
}

pub mod columns {
    use super::Column;

    pub const TAX: Column = Column(1);
    pub const YTD: Column = Column(2);
    pub const NEXT_ORDER: Column = Column(3);

    pub const CUSTOMER_INFO: Column = Column(1);
    pub const CREDIT: Column = Column(2);
    pub const CREDIT_LIMIT: Column = Column(3);
    pub const BALANCE: Column = Column(4);

    pub const QUANTITY: Column = Column(1);
    pub const STOCK_INFO: Column = Column(2);

    /// Of orders, new orders and order lines.
    pub const DISTRICT: Column = Column(0);
    pub const ORDER: Column = Column(1);
    pub const ORDER_CUSTOMER: Column = Column(2);
    pub const CARRIER: Column = Column(3);
    pub const ITEM: Column = Column(2);
    pub const AMOUNT: Column = Column(3);
    pub const DELIVERY: Column = Column(4);
}

/// Where a row is: (part, number within the part, line), each less than 2^20.
pub type Place = (u32, u32, u32);

impl Table {
    fn rel(self) -> RelId {
        RelId(self as u32)
    }

    fn cell(self, (part, number, line): Place) -> Cell {
        let place = u64::from(part) << 40 | u64::from(number) << 20 | u64::from(line);
        Cell((self as u64) << 60 | place)
    }

    fn key(self, place: Place) -> RowKey {
        RowKey(u128::from(self.cell(place).0))
    }
}

impl Footprint {
    /// Columns of one row are read.
    pub(super) fn read(&mut self, table: Table, place: Place, columns: &[Column]) {
        let columns = Columns::of(columns.iter().copied());
        self.reads.push(Read::Row { table: table.rel(), key: table.key(place), columns });
        self.seen.push(table.cell(place));
        self.work.read += 1;
    }

    /// The rows of a district's orders with `low <= column < high` are looked for; those that are
    /// there have to be named by [`Footprint::find`].
    pub(super) fn look_for(
        &mut self,
        table: Table,
        district: u32,
        (column, range): (Column, Range<u32>),
        columns: &[Column],
    ) {
        let whole = Datum::Int(i64::from(district));
        let of_district = Condition {
            column: columns::DISTRICT,
            low: Bound::Included(whole.clone()),
            high: Bound::Included(whole),
        };
        let of_range = Condition {
            column,
            low: Bound::Included(Datum::Int(i64::from(range.start))),
            high: Bound::Excluded(Datum::Int(i64::from(range.end))),
        };
        let columns = Columns::of(columns.iter().copied());
        let conditions = Box::new([of_district, of_range]);
        self.reads.push(Read::Rows { table: table.rel(), conditions, columns });
    }

    /// A row was found by [`Footprint::look_for`].
    pub(super) fn find(&mut self, table: Table, place: Place) {
        self.seen.push(table.cell(place));
        self.work.read += 1;
    }

    /// A row that [`Footprint::look_for`] asks for was deleted: its absence is a version too. The
    /// one deleted last stands for all.
    pub(super) fn miss(&mut self, table: Table, place: Place) {
        self.seen.push(table.cell(place));
    }

    /// Columns of one row are updated; it is read for that.
    pub(super) fn update(&mut self, table: Table, place: Place, columns: &[Column], image: &Image) {
        self.read(table, place, columns);
        let columns = Columns::of(columns.iter().copied());
        self.write(table, place, columns, [Some(image.clone()), Some(image.clone())]);
        self.work = Work { read: self.work.read - 1, updated: self.work.updated + 1, ..self.work };
    }

    /// One row is inserted.
    pub(super) fn insert(&mut self, table: Table, place: Place, image: Image) {
        self.write(table, place, Columns::ALL, [None, Some(image)]);
        self.work.inserted += 1;
    }

    /// One row is deleted.
    pub(super) fn delete(&mut self, table: Table, place: Place, image: Image) {
        self.seen.push(table.cell(place));
        self.write(table, place, Columns::ALL, [Some(image), None]);
        self.work.updated += 1;
    }

    fn write(
        &mut self,
        table: Table,
        place: Place,
        columns: Columns,
        [before, after]: [Option<Image>; 2],
    ) {
        let (key, table_id) = (table.key(place), table.rel());
        self.writes.push(Write { table: table_id, key, columns, before, after });
        self.touched.push(table.cell(place));
    }
}

/// A row of which no predicate knows a column.
pub fn no_image() -> Image {
    Image::default()
}

/// A row of a district's orders, with its customer or item.
pub fn order_image(district: u32, order: u32, other: u32) -> Image {
    let columns = [columns::DISTRICT, columns::ORDER, columns::ORDER_CUSTOMER];
    let values = [district, order, other].map(|value| Datum::Int(i64::from(value)));
    Image(columns.into_iter().zip(values).collect())
}
