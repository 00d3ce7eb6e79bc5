//! The synthetic benchmark of the RSSI paper (appendix D.1.1): three tables of 100,000 rows; a
//! transaction reads consecutive rows of one and updates random rows of the next. Clients that
//! never rest share one clock of commits, so that figures are of certification alone.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;

use hihooi_certify::certification::cp_roo::CpRoo;
use hihooi_certify::certification::items::{
    Column, Columns, Condition, Datum, Image, Read, RowKey, Write,
};
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::{
    Cause, Certifier, Limits, Lsv, SiteId, Timestamp, Transaction, TxnId,
};
use hihooi_replication::items::RelId;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

const TABLES: u32 = 3;
const ROWS: i64 = 100_000;
const READS: i64 = 10;
const WRITES: usize = 5;

/// Attempts that are not counted; before them no row has a version.
const WARM_UP: u32 = 10_000;

type Place = (u32, i64);

/// Rows of a transaction.
#[derive(Clone)]
struct Rows {
    begin: u64,
    reads: Vec<Place>,
    writes: Vec<Place>,
}

/// What is known of a row: who wrote it when, and who read it in which snapshot.
#[derive(Default)]
struct History {
    writers: Vec<(u64, usize)>,
    readers: Vec<(u64, usize)>,
}

/// All that committed, to tell needed aborts from others.
#[derive(Default)]
struct Past {
    committed: Vec<Rows>,
    rows: HashMap<Place, History>,
}

/// Attempts and aborts.
#[derive(Default, Debug)]
struct Count {
    attempts: u32,
    ww: u32,
    rw: u32,
    /// Of those for rw reasons, the ones without which there were a cycle.
    needed: u32,
}

/// What a client tells of its lsv.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    Exactly,
    Nothing,
}

fn run(
    mut certifier: impl Certifier,
    clients: usize,
    read_only: u32,
    attempts: u32,
    told: Told,
) -> Count {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut past = Past::default();
    let mut count = Count::default();
    let mut pending: VecDeque<Rows> = VecDeque::new();
    for attempt in 0..WARM_UP + attempts {
        if attempt == WARM_UP {
            count = Count::default();
        }
        while pending.len() < clients {
            pending.push_back(rows(certifier.clock().0, read_only, &mut random));
        }
        // Most end in the order in which they began, but not all.
        let which = random.random_range(0..clients.div_ceil(2));
        let Some(rows) = pending.remove(which) else { continue };
        let lsv = match told {
            Told::Exactly => past.lsv(&rows),
            Told::Nothing => rows.begin,
        };
        count.attempts += 1;
        let decision = certifier.certify(&transaction(&rows, lsv));
        match decision.verdict {
            Ok(()) => past.commit(rows, decision.at.0),
            Err(Cause::WriteConflict { .. }) => count.ww += 1,
            Err(_) => {
                count.rw += 1;
                count.needed += u32::from(past.closes_a_cycle(&rows));
            }
        }
        if count.attempts.is_multiple_of(16) {
            let oldest = pending.iter().map(|rows| rows.begin).min();
            certifier.collect(Timestamp(oldest.unwrap_or(certifier.clock().0)));
        }
    }
    count
}

fn rows(begin: u64, read_only: u32, random: &mut Pcg64Mcg) -> Rows {
    let table = random.random_range(0..TABLES);
    let first = random.random_range(0..=ROWS - READS);
    let writes = if random.random_range(0..100) < read_only { 0 } else { WRITES };
    let written: BTreeSet<Place> =
        (0..writes).map(|_| ((table + 1) % TABLES, random.random_range(0..ROWS))).collect();
    Rows {
        begin,
        reads: (first..first + READS).map(|id| (table, id)).collect(),
        writes: written.into_iter().collect(),
    }
}

fn transaction(rows: &Rows, lsv: u64) -> Transaction {
    let (table, first) = rows.reads[0];
    let condition = Condition {
        column: Column(0),
        low: Bound::Included(Datum::Int(first)),
        high: Bound::Excluded(Datum::Int(first + READS)),
    };
    let columns = Columns::ALL;
    let write = |(table, id): &Place| {
        let image = Some(Image([(Column(0), Datum::Int(*id))].into()));
        let key = RowKey(id.unsigned_abs().into());
        let (before, after) = (image.clone(), image);
        Write { table: RelId(*table), key, columns: Columns::of([Column(1)]), before, after }
    };
    Transaction {
        id: TxnId { site: SiteId(0), number: 0 },
        begin: Timestamp(rows.begin),
        lsv: Lsv { low: Timestamp(lsv), high: Timestamp(lsv) },
        reads: vec![Read::Rows { table: RelId(table), conditions: [condition].into(), columns }],
        versions: Vec::new(),
        writes: rows.writes.iter().map(write).collect(),
    }
}

impl Past {
    fn lsv(&self, rows: &Rows) -> u64 {
        let places = rows.reads.iter().chain(&rows.writes);
        places.filter_map(|place| self.writer_up_to(place, rows.begin)).max().map_or(0, |one| one.0)
    }

    fn writer_up_to(&self, place: &Place, at: u64) -> Option<(u64, usize)> {
        let writers = &self.rows.get(place)?.writers;
        writers[..writers.partition_point(|one| one.0 <= at)].last().copied()
    }

    fn writer_after(&self, place: &Place, at: u64) -> Option<(u64, usize)> {
        let writers = &self.rows.get(place)?.writers;
        writers.get(writers.partition_point(|one| one.0 <= at)).copied()
    }

    fn commit(&mut self, rows: Rows, at: u64) {
        let number = self.committed.len();
        for place in &rows.reads {
            self.rows.entry(*place).or_default().readers.push((rows.begin, number));
        }
        for place in &rows.writes {
            self.rows.entry(*place).or_default().writers.push((at, number));
        }
        self.committed.push(rows);
    }

    /// Whether the serialization graph had a cycle if this one committed.
    fn closes_a_cycle(&self, rows: &Rows) -> bool {
        let mut before: BTreeSet<usize> = BTreeSet::new();
        for place in rows.reads.iter().chain(&rows.writes) {
            before.extend(self.writer_up_to(place, rows.begin).map(|one| one.1));
        }
        for place in &rows.writes {
            let overwritten = self.writer_up_to(place, u64::MAX).map_or(0, |one| one.0);
            let readers = self.rows.get(place).into_iter().flat_map(|row| &row.readers);
            before.extend(readers.filter(|one| one.0 >= overwritten).map(|one| one.1));
        }
        let mut seen = BTreeSet::new();
        let mut next: Vec<usize> = Vec::new();
        let overwrites = |place: &Place| self.writer_after(place, rows.begin);
        next.extend(rows.reads.iter().filter_map(overwrites).map(|one| one.1));
        while let Some(one) = next.pop() {
            if before.contains(&one) {
                return true;
            }
            if seen.insert(one) {
                self.successors(one, &mut next);
            }
        }
        false
    }

    fn successors(&self, number: usize, next: &mut Vec<usize>) {
        let rows = &self.committed[number];
        let overwrites = |place: &Place| self.writer_after(place, rows.begin);
        next.extend(rows.reads.iter().filter_map(overwrites).map(|one| one.1));
        for place in &rows.writes {
            let History { writers, readers } = &self.rows[place];
            let Some(own) = writers.iter().position(|one| one.1 == number) else { continue };
            let at = writers[own].0;
            let until = writers.get(own + 1).map_or(u64::MAX, |one| one.0);
            next.extend(writers.get(own + 1).map(|one| one.1));
            next.extend(readers.iter().filter(|one| (at..until).contains(&one.0)).map(|one| one.1));
        }
    }
}

fn limits(spare_max: usize) -> Limits {
    Limits { spare_max, ..Limits::default() }
}

fn run_roo(clients: usize, read_only: u32, attempts: u32) -> Count {
    run(CpRoo::new(limits(0)), clients, read_only, attempts, Told::Nothing)
}

/// RSSI paper, section 6.3 and figure 1a: with updates only, CP-ROO aborts at least three times as
/// often for rw reasons.
#[test]
fn cp_roo_aborts_three_times_as_often() {
    let roo = run_roo(640, 0, 5_000);
    let letter = run(Rssi::by_the_letter(limits(0)), 640, 0, 5_000, Told::Exactly);
    let rssi = run(Rssi::new(limits(0)), 640, 0, 5_000, Told::Exactly);
    assert!(roo.rw >= 3 * letter.rw && letter.rw >= 2 * rssi.rw, "{roo:?} {letter:?} {rssi:?}");
}

/// The oracle that tells needed aborts from others is right about write skew.
#[test]
fn cycles_are_told() {
    let rows = |reads: i64, writes: i64| Rows {
        begin: 0,
        reads: vec![(0, reads)],
        writes: vec![(0, writes)],
    };
    let mut past = Past::default();
    past.commit(rows(1, 2), 1);
    past.commit(rows(3, 4), 2);
    assert!(past.closes_a_cycle(&rows(2, 1)));
    assert!(!past.closes_a_cycle(&rows(2, 3)));
    past.commit(rows(2, 3), 3);
    assert!(past.closes_a_cycle(&rows(4, 1)));
}

/// Prints the shares of aborts: `cargo test --release -p hihooi-certify certification -- --ignored
/// --nocapture shares`.
#[test]
#[ignore = "measures"]
fn shares_of_aborts() {
    for clients in [80, 640, 2560] {
        for read_only in [0, 25, 50, 75] {
            let show = |name: &str, count: Count| {
                let share = |part: u32| 100.0 * f64::from(part) / f64::from(count.attempts);
                println!(
                    "{clients:5} clients {read_only:3} % read-only {name:22} \
                     ww {:6.3} %  rw {:6.3} %  of it needed {:6.3} %",
                    share(count.ww),
                    share(count.rw),
                    share(count.needed)
                );
            };
            let run = |rssi, told| run(rssi, clients, read_only, 20_000, told);
            show("rssi", run(Rssi::new(limits(0)), Told::Exactly));
            show("rssi, spare 10000", run(Rssi::new(limits(10_000)), Told::Exactly));
            show("rssi, lsv not told", run(Rssi::new(limits(0)), Told::Nothing));
            show("letter", run(Rssi::by_the_letter(limits(0)), Told::Exactly));
            show("letter, spare 10000", run(Rssi::by_the_letter(limits(10_000)), Told::Exactly));
            show("cp-roo", run_roo(clients, read_only, 20_000));
        }
    }
}
