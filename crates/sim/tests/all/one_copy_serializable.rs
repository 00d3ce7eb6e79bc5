//! One-copy serializability: some serial order on one copy explains all that was read, predicates
//! included. `rssi` (RSSI paper, theorem 3.1), `cp-roo` and `vdbsm` (vDBSM paper, section 3)
//! promise it, and snapshot isolation of sessions besides.

use hihooi_certify::certification::planted::Planted as Bug;
use hihooi_check::Level;
use hihooi_sim::database::site::Planted;
use hihooi_sim::database::trial::{Circumstances, Protocol, trial};
use hihooi_sim::{explore, hunt};

use crate::common::naive::Naive;
use crate::common::{
    CP_ROO, RSI, RSSI, RSSI_BY_THE_LETTER, VDBSM, holds, is_found, planted, rssi_with,
};

#[test]
fn what_rssi_admits_is_serializable() {
    let tally = holds("one_copy_serializable::what_rssi_admits_is_serializable", &RSSI);
    assert!(tally.read_conflicts > tally.transactions / 100, "too little conflict: {tally:?}");
    assert!(tally.too_old > 0, "its memory was never too small: {tally:?}");
}

#[test]
fn what_cp_roo_admits_is_serializable() {
    let tally = holds("one_copy_serializable::what_cp_roo_admits_is_serializable", &CP_ROO);
    assert!(tally.read_conflicts > tally.transactions / 50, "too little conflict: {tally:?}");
}

#[test]
fn what_vdbsm_admits_is_serializable() {
    let tally = holds("one_copy_serializable::what_vdbsm_admits_is_serializable", &VDBSM);
    assert!(tally.read_conflicts > tally.transactions / 50, "too little conflict: {tally:?}");
}

/// RSSI paper, definition 3.1 and theorem 3.1 to the letter, with nothing ever forgotten: the
/// theorem holds, and the simulation's workload does not break it by itself.
#[test]
fn no_descending_structures_means_serializable() {
    let naive = Protocol { certifier: Naive::rssi, ..RSSI };
    let name = "one_copy_serializable::no_descending_structures_means_serializable";
    explore(name, 0..100, |run| trial(run, &naive, Planted::Nothing));
}

#[test]
fn no_read_impact_means_serializable() {
    let naive = Protocol { certifier: Naive::cp_roo, ..CP_ROO };
    let name = "one_copy_serializable::no_read_impact_means_serializable";
    explore(name, 0..100, |run| trial(run, &naive, Planted::Nothing));
}

/// Snapshot isolation alone is not enough (RSSI paper, section 1): what `rsi` admits is not
/// serializable.
#[test]
fn what_rsi_admits_is_not_serializable() {
    let wanted = Protocol { levels: &[Level::Serializable], ..RSI };
    let (_, found) = hunt(0..5, |run| trial(run, &wanted, Planted::Nothing)).expect("write skew");
    assert!(found.contains("write skew"), "{found}");
}

#[test]
fn a_read_set_that_is_ignored_is_found() {
    for protocol in [RSSI, CP_ROO, Protocol { tells_overwritten: false, ..VDBSM }] {
        is_found(5, &protocol, &protocol, Planted::ReadSetIgnored);
    }
    let inside = rssi_with(|limits| planted(limits, Bug::ReadsetIgnored));
    is_found(5, &RSSI_BY_THE_LETTER, &inside, Planted::Nothing);
}

/// RSSI paper, footnote 2: the records that were read are not enough.
#[test]
fn phantoms_that_are_ignored_are_found() {
    for protocol in [RSSI, CP_ROO, VDBSM] {
        is_found(20, &protocol, &protocol, Planted::PhantomsIgnored);
    }
}

/// Definition 3.1 says "not after", not "before".
#[test]
fn an_lsv_off_by_one_is_found() {
    let wrong = rssi_with(|limits| planted(limits, Bug::LsvOffByOne));
    is_found(10, &RSSI_BY_THE_LETTER, &wrong, Planted::Nothing);
}

/// `docs/decisions/0003`: the number in place of lsv may be any at which what was read was current,
/// but no later one.
#[test]
fn an_lsv_at_which_reads_are_outdated_is_found() {
    let wrong = rssi_with(|limits| planted(limits, Bug::ReadsOutdated));
    is_found(20, &RSSI, &wrong, Planted::Nothing);
}

/// RSSI paper, section 3.1: lsv is over the versions accessed; the paper's simplification to those
/// read holds only without blind writes.
#[test]
fn an_lsv_without_overwritten_versions_is_found() {
    let blind = Protocol { circumstances: Circumstances::Blind, ..RSSI };
    is_found(500, &blind, &blind, Planted::LsvOfReadsOnly);
}

/// RSSI paper, appendix C.2.3: what no pending transaction is concurrent with may still be the
/// first of a descending structure (`docs/decisions/0003`).
#[test]
fn the_papers_garbage_collection_is_found() {
    let sound = Protocol { circumstances: Circumstances::Forgetful, ..RSSI_BY_THE_LETTER };
    let wrong = Protocol {
        circumstances: Circumstances::Forgetful,
        ..rssi_with(|limits| planted(limits, Bug::PaperGarbageCollection))
    };
    let found = is_found(1_000, &sound, &wrong, Planted::Nothing);
    assert!(found.contains("no serial order"), "{found}");
}
