//! Partial replication under faults (SIPRe paper, section 4): 1-copy-SI over sites that hold only
//! some objects, copies that converge, liveness after faults heal; and the planted mistakes.

use hihooi_placement::protocol::Planted;
use hihooi_sim::explore::number_from_environment;
use hihooi_sim::placement::trial::{Tally, trial};
use hihooi_sim::{explore, hunt};

#[test]
fn partial_copies_are_one_copy_under_snapshot_isolation() {
    let name = "placement::partial_copies_are_one_copy_under_snapshot_isolation";
    let seeds = number_from_environment("HIHOOI_SIM_SEEDS").unwrap_or(300);
    let tallies = explore(name, 0..seeds, |run| trial(run, Planted::Nothing));
    let sum = Tally::sum(tallies);
    println!("{sum:?}");
    assert!(sum.committed > sum.transactions / 2, "too few commits: {sum:?}");
    assert!(sum.unanswered > sum.transactions / 200, "too few faults: {sum:?}");
    for cause in ["write conflict", "holder failed", "holder silent", "snapshot too old"] {
        assert!(sum.aborted.contains_key(cause), "never {cause}: {sum:?}");
    }
}

/// Within so many seeds; section 4 of the paper describes the first, its Figure 3 prints the first
/// and the second.
#[test]
fn planted_mistakes_are_found() {
    for (planted, seeds) in [
        (Planted::HoldersOnly, 10),
        (Planted::PrintedInterval, 10),
        (Planted::NewestSnapshot, 10),
        (Planted::WithoutChanges, 10),
    ] {
        let found = hunt(0..seeds, |run| trial(run, planted));
        let (seed, what) = found.unwrap_or_else(|| panic!("{planted:?} is not found"));
        println!("{planted:?}: seed {seed}: {}", what.lines().next().unwrap_or_default());
    }
}
