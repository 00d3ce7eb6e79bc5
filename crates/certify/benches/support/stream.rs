//! An endless stream of transactions of 8 items that wish to commit while 10,000 others are
//! concurrent with each.

use std::ops::Bound;

use hihooi_certify::certification::cp_roo::CpRoo;
use hihooi_certify::certification::items::{
    Column, Columns, Condition, Datum, Image, Read, RowKey, Write,
};
use hihooi_certify::certification::rsi::Rsi;
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::vdbsm::Vdbsm;
use hihooi_certify::certification::{
    Certifier, Decision, Limits, Lsv, SiteId, Timestamp, Transaction, TxnId,
};
use hihooi_replication::items::RelId;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

/// Each is concurrent with the attempts of so many positions.
pub const CONCURRENT: u64 = 10_000;

const TABLE: RelId = RelId(1);
const ROWS: i64 = 4_000_000;
const ID: Column = Column(0);
const VALUE: Column = Column(1);
/// Transactions made beforehand; they come again and again.
const MADE: usize = 1 << 15;
/// How often what is stale is collected.
const COLLECT_EVERY: usize = 64;

/// A certifier of this name.
pub fn certifier(name: &str) -> Box<dyn Certifier> {
    let limits = Limits::default();
    match name {
        "rsi" => Box::new(Rsi::new(limits)),
        "cp-roo" => Box::new(CpRoo::new(limits)),
        "vdbsm" => Box::new(Vdbsm::new(limits)),
        _ => Box::new(Rssi::new(limits)),
    }
}

/// The transactions and who certifies them.
pub struct Stream {
    certifier: Box<dyn Certifier>,
    transactions: Vec<Transaction>,
    next: usize,
    /// How many committed.
    pub committed: u64,
}

impl Stream {
    /// 4 rows are read and 4 written; or 3 rows and a range of 100 are read. The window is full.
    pub fn new(certifier: Box<dyn Certifier>, range: bool) -> Stream {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let transactions = (0..MADE as u64).map(|i| transaction(i, range, &mut random)).collect();
        let mut stream = Stream { certifier, transactions, next: 0, committed: 0 };
        for _ in 0..3 * CONCURRENT {
            stream.step();
        }
        stream.committed = 0;
        stream
    }

    /// The next one is certified.
    pub fn step(&mut self) -> Decision {
        let place = self.next % MADE;
        self.next += 1;
        let begin = self.certifier.clock().0.saturating_sub(CONCURRENT);
        let transaction = &mut self.transactions[place];
        transaction.begin = Timestamp(begin);
        let lsv = Timestamp(begin.saturating_sub(transaction.id.number % 5_000));
        transaction.lsv = Lsv { low: lsv, high: lsv };
        let decision = self.certifier.certify(transaction);
        self.committed += u64::from(decision.verdict.is_ok());
        if place.is_multiple_of(COLLECT_EVERY) {
            self.certifier.collect(Timestamp(begin));
        }
        decision
    }
}

fn transaction(number: u64, range: bool, random: &mut Pcg64Mcg) -> Transaction {
    let mut ids = || random.random_range(0..ROWS);
    let mut reads: Vec<Read> = (0..4).map(|_| row(ids())).collect();
    if range {
        reads[0] = rows(ids());
    }
    Transaction {
        id: TxnId { site: SiteId(0), number },
        begin: Timestamp(0),
        lsv: Lsv::default(),
        reads,
        versions: Vec::new(),
        writes: (0..4).map(|_| update(ids())).collect(),
    }
}

fn key(id: i64) -> RowKey {
    RowKey(u128::from(id.cast_unsigned()))
}

fn row(id: i64) -> Read {
    Read::Row { table: TABLE, key: key(id), columns: Columns::ALL }
}

fn rows(id: i64) -> Read {
    let condition = Condition {
        column: ID,
        low: Bound::Included(Datum::Int(id)),
        high: Bound::Excluded(Datum::Int(id + 100)),
    };
    Read::Rows { table: TABLE, conditions: [condition].into(), columns: Columns::ALL }
}

fn update(id: i64) -> Write {
    let image = |value| Image([(ID, Datum::Int(id)), (VALUE, Datum::Int(value))].into());
    let (before, after) = (Some(image(1)), Some(image(2)));
    Write { table: TABLE, key: key(id), columns: Columns::of([VALUE]), before, after }
}
