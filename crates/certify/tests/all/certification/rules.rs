//! The rules of the papers, one by one.

use super::support::{A, B, TABLE, insert, pass, range, row, txn, update};
use hihooi_certify::certification::cp_roo::CpRoo;
use hihooi_certify::certification::items::{Columns, Read};
use hihooi_certify::certification::rsi::Rsi;
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::vdbsm::Vdbsm;
use hihooi_certify::certification::{Cause, Certifier, Limits, Lsv, Role, Timestamp, Transaction};

type Verdict = Result<(), Cause>;

const PEAK: Verdict = Err(Cause::DescendingStructure { role: Role::Peak });
const FOLLOW: Verdict = Err(Cause::DescendingStructure { role: Role::Follow });
const TRAILING: Verdict = Err(Cause::DescendingStructure { role: Role::Trailing });

fn all(limits: Limits) -> [(&'static str, Box<dyn Certifier>); 4] {
    [
        ("rsi", Box::new(Rsi::new(limits))),
        ("cp-roo", Box::new(CpRoo::new(limits))),
        ("rssi", Box::new(Rssi::new(limits))),
        ("vdbsm", Box::new(Vdbsm::new(limits))),
    ]
}

/// The verdict over the last one; all before it must commit.
fn last(mut certifier: impl Certifier, history: &[Transaction]) -> Verdict {
    let (last, before) = history.split_last().expect("a history");
    for transaction in before {
        assert_eq!(certifier.certify(transaction).verdict, Ok(()));
    }
    certifier.certify(last).verdict
}

fn rssi(history: &[Transaction]) -> Verdict {
    last(Rssi::new(Limits::default()), history)
}

/// RSSI paper, section 3.1: the clock ticks at every attempt.
#[test]
fn the_clock_ticks_at_aborts_too() {
    for (name, mut certifier) in all(Limits::default()) {
        let attempts = [txn(0, 0, "x", "x"), txn(0, 0, "x", "x"), txn(0, 0, "x", "")];
        let at: Vec<u64> = attempts.iter().map(|attempt| certifier.certify(attempt).at.0).collect();
        assert_eq!(at, [1, 2, 3], "{name}");
        assert_eq!(certifier.clock(), Timestamp(3), "{name}");
    }
}

/// RSSI paper, theorem 3.1: the first committer wins, and only among concurrent ones.
#[test]
fn of_concurrent_writers_of_a_row_the_first_wins() {
    for (name, mut certifier) in all(Limits::default()) {
        assert!(certifier.certify(&txn(0, 0, "", "x")).verdict.is_ok());
        let second = certifier.certify(&txn(0, 0, "", "x")).verdict;
        match name {
            "vdbsm" => assert_eq!(second, Err(Cause::StaleRead)),
            _ => assert_eq!(second, Err(Cause::WriteConflict { with: txn(0, 0, "", "").id })),
        }
        assert!(certifier.certify(&txn(1, 1, "", "x")).verdict.is_ok(), "{name}");
    }
}

/// RSSI paper, section 1: 1-copy-SI lets write skew pass; serializable levels do not.
#[test]
fn write_skew() {
    let skew = [txn(0, 0, "xy", "x"), txn(0, 0, "xy", "y")];
    assert_eq!(last(Rsi::new(Limits::default()), &skew), Ok(()));
    let with = skew[0].id;
    assert_eq!(last(CpRoo::new(Limits::default()), &skew), Err(Cause::ReadImpact { with }));
    assert_eq!(last(Vdbsm::new(Limits::default()), &skew), Err(Cause::StaleRead));
    assert_eq!(rssi(&skew), PEAK);
    // Whichever of the two has the higher lsv.
    let filler = || txn(0, 0, "", "w");
    assert_eq!(rssi(&[filler(), txn(1, 0, "y", "x"), txn(1, 1, "xw", "y")]), PEAK);
    assert_eq!(rssi(&[filler(), txn(1, 1, "yw", "x"), txn(1, 0, "x", "y")]), FOLLOW);
}

/// RSSI paper, section 3.2: a single rw-edge is no danger, but CP-ROO aborts for it.
#[test]
fn a_single_edge() {
    let history = [txn(0, 0, "", "x"), txn(0, 0, "x", "y")];
    assert_eq!(rssi(&history), Ok(()));
    assert!(last(CpRoo::new(Limits::default()), &history).is_err());
    assert_eq!(rssi(&[txn(0, 0, "x", "y"), txn(0, 0, "", "x")]), Ok(()));
}

/// RSSI paper, section 3.3, footnote 1: whoever completes the structure last aborts.
#[test]
fn each_role_may_come_last() {
    let by_the_letter =
        |history: &[Transaction]| last(Rssi::by_the_letter(Limits::default()), history);
    let peak = || txn(0, 0, "x", "p");
    let follow = || txn(0, 0, "y", "x");
    let trailing = || txn(0, 0, "", "y");
    for (first, second) in [(peak(), follow()), (follow(), peak())] {
        assert_eq!(by_the_letter(&[first, second, trailing()]), TRAILING);
    }
    for (first, second) in [(peak(), trailing()), (trailing(), peak())] {
        assert_eq!(by_the_letter(&[first, second, follow()]), FOLLOW);
    }
    for (first, second) in [(follow(), trailing()), (trailing(), follow())] {
        assert_eq!(by_the_letter(&[first, second, peak()]), PEAK);
    }
}

/// Decision 0003: with ν chosen, one that leads nowhere commits, since it can't close a cycle; one
/// that closes it doesn't, whichever of the three it is.
#[test]
fn who_leads_nowhere_commits_and_who_closes_a_cycle_does_not() {
    let ring = || [txn(0, 0, "x", "p"), txn(0, 0, "y", "x"), txn(0, 0, "p", "y")];
    for (first, second, third) in [(0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 0, 2), (2, 1, 0), (0, 2, 1)]
    {
        let history = [first, second, third].map(|place| ring()[place].clone());
        assert!(rssi(&history).is_err(), "{first} {second} {third}");
    }
    let open = [txn(0, 0, "x", "p"), txn(0, 0, "y", "x"), txn(0, 0, "", "y")];
    assert_eq!(rssi(&open), Ok(()));
}

/// RSSI paper, definition 3.1: only if the peak's lsv is not below the others'.
#[test]
fn structures_that_do_not_descend_are_admitted() {
    let orders = |lsvs: [u64; 3]| {
        let one = [txn(2, lsvs[0], "x", "p"), txn(2, lsvs[1], "y", "x"), txn(2, lsvs[2], "", "y")];
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        orders.map(|order| {
            let mut certifier = Rssi::by_the_letter(Limits::default());
            pass(&mut certifier, 2);
            last(certifier, &order.map(|i| one[i].clone()))
        })
    };
    assert!(orders([1, 2, 0]).iter().all(Result::is_ok), "the follow is above");
    assert!(orders([1, 0, 2]).iter().all(Result::is_ok), "the trailing one is above");
    assert!(orders([1, 1, 1]).iter().all(Result::is_err), "all are equal");
    assert!(orders([2, 1, 0]).iter().all(Result::is_err));
    assert!(orders([2, 0, 1]).iter().all(Result::is_err));
}

/// What ended before the follow began seldom matters, if ν may be chosen.
#[test]
fn a_structure_over_transactions_that_were_not_concurrent() {
    let verdict = |mut certifier: Rssi| {
        pass(&mut certifier, 2);
        let peak = txn(2, 2, "x", "p");
        let follow = txn(4, 0, "y", "x");
        let trailing = txn(4, 0, "", "y");
        assert!(certifier.certify(&peak).verdict.is_ok());
        pass(&mut certifier, 4);
        last(certifier, &[follow, trailing])
    };
    assert_eq!(
        verdict(Rssi::by_the_letter(Limits { spare_max: 9, ..Limits::default() })),
        TRAILING
    );
    assert_eq!(verdict(Rssi::new(Limits::default())), Ok(()));
}

/// RSSI paper, section 6.3: read-only transactions are certified by RSSI, not by the others.
#[test]
fn a_read_only_transaction_can_be_the_peak() {
    // The read-only anomaly: the reader sees y's new value, but x's old one.
    let history = [
        txn(0, 0, "xy", "x"), // pending until the reader has committed
        txn(0, 0, "", "y"),
        txn(1, 1, "xy", ""),
    ];
    let [late, early, reader] = history.clone();
    assert_eq!(rssi(&[early.clone(), reader.clone(), late.clone()]), FOLLOW);
    assert_eq!(rssi(&[early, late, reader]), PEAK);
    for (name, mut certifier) in all(Limits::default()) {
        pass(&mut *certifier, 2);
        assert!(certifier.certify(&txn(0, 0, "x", "")).verdict.is_ok(), "{name}");
    }
}

/// RSSI paper, section 3.3, footnote 2: phantoms.
#[test]
fn an_insert_into_a_range_that_was_read_counts() {
    let reader = |low, high| {
        let mut reader = txn(0, 0, "", "p");
        reader.reads.push(range(low, high));
        reader
    };
    let inserter = || {
        let mut inserter = txn(0, 0, "p", "");
        inserter.writes.push(insert('n', 5));
        inserter
    };
    for (touched, low, high) in [(true, 0, 10), (true, 5, 6), (false, 6, 10), (false, 0, 5)] {
        assert_eq!(rssi(&[reader(low, high), inserter()]).is_err(), touched, "{low} {high}");
        assert_eq!(rssi(&[inserter(), reader(low, high)]).is_err(), touched, "{low} {high}");
        let history = [inserter(), reader(low, high)];
        assert_eq!(last(CpRoo::new(Limits::default()), &history).is_err(), touched);
        assert_eq!(last(Vdbsm::new(Limits::default()), &history).is_err(), touched);
    }
}

#[test]
fn columns_that_were_not_read_do_not_count() {
    let reads = |columns| {
        let mut reader = txn(0, 0, "", "p");
        reader.reads.push(Read::Table { table: TABLE, columns });
        reader
    };
    let writer = || Transaction { writes: vec![update('x')], ..txn(0, 0, "p", "") };
    assert!(rssi(&[writer(), reads(Columns::of([B]))]).is_err());
    assert_eq!(rssi(&[writer(), reads(Columns::of([A]))]), Ok(()));
    let of_row = |columns| {
        let Read::Row { table, key, .. } = row('x') else { unreachable!() };
        Transaction { reads: vec![Read::Row { table, key, columns }], ..txn(0, 0, "", "p") }
    };
    assert!(rssi(&[writer(), of_row(Columns::of([B]))]).is_err());
    assert_eq!(rssi(&[writer(), of_row(Columns::of([A]))]), Ok(()));
    let everything = Transaction { reads: vec![Read::Everything], ..txn(0, 0, "", "p") };
    assert!(rssi(&[writer(), everything]).is_err());
}

/// vDBSM paper, section 3, step 3: versions that were seen must still be the current ones.
#[test]
fn vdbsm_compares_versions() {
    let reader =
        |version| Transaction { versions: vec![Timestamp(version)], ..txn(1, 0, "x", "y") };
    let history = |version| [txn(0, 0, "", "w"), txn(1, 0, "", "x"), reader(version)];
    assert_eq!(last(Vdbsm::new(Limits::default()), &history(0)), Err(Cause::StaleRead));
    // At its site it read after the other had committed.
    assert_eq!(last(Vdbsm::new(Limits::default()), &history(2)), Ok(()));
}

/// I8: what began before memory does is aborted.
#[test]
fn memory_is_bounded() {
    let few = Limits { transactions_max: 10, ..Limits::default() };
    let items = Limits { items_max: 10, ..Limits::default() };
    for (name, mut certifier) in all(few).into_iter().chain(all(items)) {
        pass(&mut *certifier, 30);
        let attempt = |begin| txn(begin, begin, "x", "y");
        assert_eq!(certifier.certify(&attempt(19)).verdict, Err(Cause::SnapshotTooOld), "{name}");
        assert_eq!(certifier.certify(&attempt(20)).verdict, Ok(()), "{name}");
    }
    let mut huge = Rssi::new(items);
    let mut big = txn(0, 0, "", "abcdefghijklmnop");
    assert_eq!(huge.certify(&big).verdict, Ok(()));
    assert_eq!(huge.remembered(), 0);
    big.begin = Timestamp(1);
    assert_eq!(huge.certify(&big).verdict, Ok(()));
}

/// RSSI paper, appendix C.2.3: a staleness value is the begin of the oldest pending transaction,
/// which can still commit, and conflicts with what committed after it.
#[test]
fn what_is_not_stale_is_kept() {
    for (name, mut certifier) in all(Limits::default()) {
        pass(&mut *certifier, 20);
        assert!(certifier.certify(&txn(20, 20, "", "x")).verdict.is_ok());
        pass(&mut *certifier, 30);
        certifier.collect(Timestamp(20));
        assert!(certifier.certify(&txn(20, 20, "", "x")).verdict.is_err(), "{name}");
        assert_eq!(certifier.certify(&txn(20, 20, "y", "y")).verdict, Ok(()), "{name}");
        let older = certifier.certify(&txn(18, 18, "z", "z")).verdict;
        assert_eq!(older, Err(Cause::SnapshotTooOld), "{name}");
    }
}

/// A new view starts after everything before has ended.
#[test]
fn a_reset_forgets() {
    for (name, mut certifier) in all(Limits::default()) {
        certifier.certify(&txn(0, 0, "", "x"));
        certifier.reset(Timestamp(7));
        assert_eq!(certifier.clock(), Timestamp(7), "{name}");
        let old = certifier.certify(&txn(6, 0, "x", "x"));
        assert_eq!(old.verdict, Err(Cause::SnapshotTooOld), "{name}");
        assert_eq!(certifier.certify(&txn(7, 0, "x", "x")).verdict, Ok(()), "{name}");
        certifier.reset(Timestamp(3));
        assert_eq!(certifier.clock(), Timestamp(9), "{name}: time does not run backwards");
    }
}

/// The certifier can tell the lsv of what it remembers.
#[test]
fn lsv_from_memory() {
    let mut certifier = Rssi::new(Limits { spare_max: 3, ..Limits::default() });
    for writes in ["x", "y", "z", "x"] {
        let clock = certifier.clock().0;
        assert!(certifier.certify(&txn(clock, clock, "", writes)).verdict.is_ok());
    }
    let exact = |at| Lsv { low: Timestamp(at), high: Timestamp(at) };
    let mut lsv = |begin, reads: &str, writes: &str| {
        let transaction = txn(begin, 0, reads, writes);
        certifier.lsv(Timestamp(begin), &transaction.reads, &transaction.writes)
    };
    assert_eq!(lsv(4, "x", ""), exact(4));
    assert_eq!(lsv(3, "x", ""), exact(1));
    assert_eq!(lsv(3, "x", "z"), exact(3));
    assert_eq!(lsv(4, "a", "b").high, Timestamp(0), "nothing was forgotten");
    certifier.collect(Timestamp(4));
    let read = [row('a')];
    assert_eq!(certifier.lsv(Timestamp(4), &read, &[]).high, Timestamp(1));
}
