//! GDCP (RSSI paper, section 4, appendices B and C) under faults: all sites decide alike, what
//! commits is serializable, all sites converge, and clients end once faults are over.

use hihooi_sim::database::tally::Tally;
use hihooi_sim::explore::number_from_environment;
use hihooi_sim::gdcp::log_site::LogSite;
use hihooi_sim::gdcp::replica::Planted;
use hihooi_sim::gdcp::ring_site::RingSite;
use hihooi_sim::gdcp::trial::trial;
use hihooi_sim::{Run, Transport, explore, hunt};

/// Of about 260 transactions each; `HIHOOI_SIM_SEEDS` asks for another number.
fn seeds() -> u64 {
    number_from_environment("HIHOOI_SIM_SEEDS").unwrap_or(250)
}

fn on_the_log(planted: Planted) -> impl Fn(Run) -> Result<Tally, String> {
    move |run| trial::<LogSite>(run, Transport::Datagram, planted)
}

fn on_the_ring(planted: Planted) -> impl Fn(Run) -> Result<Tally, String> {
    move |run| trial::<RingSite>(run, Transport::Stream, planted)
}

fn is_found(seeds: u64, property: impl Fn(Run) -> Result<Tally, String>, what: &str) {
    let (seed, found) = hunt(0..seeds, property).expect("the planted mistake is found");
    assert!(found.contains(what), "seed {seed}: {found}");
}

#[test]
fn what_gdcp_admits_over_the_log_is_serializable() {
    let name = "gdcp::what_gdcp_admits_over_the_log_is_serializable";
    let tally = Tally::sum(explore(name, 0..seeds(), on_the_log(Planted::Nothing)));
    println!("{tally:?}");
    assert!(tally.read_conflicts > tally.transactions / 50, "too little conflict: {tally:?}");
    assert!(tally.committed > tally.transactions / 4, "too little commits: {tally:?}");
}

#[test]
fn what_gdcp_admits_over_the_ring_is_serializable() {
    let name = "gdcp::what_gdcp_admits_over_the_ring_is_serializable";
    let tally = Tally::sum(explore(name, 0..seeds(), on_the_ring(Planted::Nothing)));
    println!("{tally:?}");
    assert!(tally.read_conflicts > tally.transactions / 50, "too little conflict: {tally:?}");
    assert!(tally.committed > tally.transactions / 4, "too little commits: {tally:?}");
}

#[test]
fn a_swapped_certification_order_is_found() {
    is_found(5, on_the_log(Planted::OrderSwapped), "decision");
}

#[test]
fn a_read_set_ignored_at_one_site_is_found() {
    is_found(20, on_the_log(Planted::ReadSetIgnored), "write skew");
    is_found(20, on_the_ring(Planted::ReadSetIgnored), "write skew");
}

#[test]
fn a_decision_released_early_is_found() {
    is_found(100, on_the_ring(Planted::ReleasedEarly), "the sites end apart");
}
