//! One-copy snapshot isolation: each transaction reads one state that the one copy could have
//! had, and the first committer wins (RSSI paper, section 3.2, the first two conditions of
//! theorem 3.1). `rsi` promises it; the checker judges what clients saw under faults.

use hihooi_sim::database::site::Planted;
use hihooi_sim::database::tally::Tally;
use hihooi_sim::database::trial::{Protocol, trial};
use hihooi_sim::explore;

use crate::common::naive::Naive;
use crate::common::{RSI, holds, is_found};

#[test]
fn what_rsi_admits_is_one_copy_si() {
    let tally = holds("one_copy_si::what_rsi_admits_is_one_copy_si", &RSI);
    assert!(tally.write_conflicts > tally.transactions / 50, "too little conflict: {tally:?}");
    assert!(tally.unknown > tally.transactions / 200, "too few faults: {tally:?}");
    assert!(tally.too_old > 0, "its memory was never too small: {tally:?}");
}

/// The simulation is right where the certifier can't be wrong.
#[test]
fn what_a_naive_certifier_admits_is_one_copy_si() {
    let naive = Protocol { certifier: Naive::rsi, ..RSI };
    let name = "one_copy_si::what_a_naive_certifier_admits_is_one_copy_si";
    let sum = Tally::sum(explore(name, 0..100, |run| trial(run, &naive, Planted::Nothing)));
    assert_eq!(sum.too_old, 0);
}

#[test]
fn a_write_set_that_is_ignored_is_found() {
    let found = is_found(5, &RSI, &RSI, Planted::WriteSetIgnored);
    assert!(found.contains("lost"), "{found}");
}

#[test]
fn a_snapshot_that_is_no_prefix_is_found() {
    let found = is_found(5, &RSI, &RSI, Planted::NotAPrefix);
    assert!(found.contains("read skew") || found.contains("non-repeatable"), "{found}");
}
