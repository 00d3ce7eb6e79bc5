//! RSSI paper, appendix C.2.3 forgets a transaction once no pending one began before its commit.
//! That is unsound: its readers can be peaks of descending structures whose follow begins later.

use super::support::{forgetful, pass, txn};
use hihooi_certify::certification::planted::{Planted, PlantedRssi};
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::{Cause, Certifier, Limits, Timestamp};

/// Peak -rw-> follow on x, follow -rw-> trailing on y, trailing -rw-> peak on z: a cycle. Of its
/// pairs of rw-edges only that at the peak descends by lsv (4, 2, 2), and its first edge joins
/// transactions that were not concurrent. Returns what becomes of the follow, the last to commit.
fn cycle(mut certifier: impl Certifier) -> Result<(), Cause> {
    pass(&mut certifier, 3);
    let commits = |certifier: &mut dyn Certifier, transaction| {
        assert_eq!(certifier.certify(&transaction).verdict, Ok(()));
    };
    commits(&mut certifier, txn(3, 0, "", "w"));
    commits(&mut certifier, txn(4, 4, "xw", "z"));
    pass(&mut certifier, 6);
    // The follow begins at 6, the trailing one at 4 and is pending until 7.
    certifier.collect(Timestamp(4));
    commits(&mut certifier, txn(4, 2, "z", "y"));
    certifier.collect(Timestamp(6));
    certifier.certify(&txn(6, 2, "yx", "x")).verdict
}

#[test]
fn the_cycle_is_broken() {
    let remembers = Limits { spare_max: 100, ..Limits::default() };
    for limits in [remembers, forgetful()] {
        for rssi in [Rssi::new(limits), Rssi::by_the_letter(limits)] {
            let verdict = cycle(rssi);
            assert!(matches!(verdict, Err(Cause::DescendingStructure { .. })), "{verdict:?}");
        }
    }
}

#[test]
fn the_papers_garbage_collection_admits_it() {
    let planted = |limits| PlantedRssi::new(limits, Planted::PaperGarbageCollection);
    assert_eq!(cycle(planted(forgetful())), Ok(()));
    let remembers = Limits { spare_max: 100, ..Limits::default() };
    assert!(cycle(planted(remembers)).is_err(), "nothing was forgotten");
}
