//! Liveness: some time after the last fault every call is answered, every session comes to its
//! end, and every site runs and has decided all (RSSI paper, appendix C.1.2, goes no further than
//! to copy a master; here sites come back from journal and log).

use hihooi_sim::database::site::Planted;
use hihooi_sim::database::trial::build;
use hihooi_sim::explore;

use crate::common::{RSSI, is_found};

#[test]
fn after_the_last_fault_all_is_answered() {
    let name = "liveness::after_the_last_fault_all_is_answered";
    let late: usize = explore(name, 4_000..4_200, |run| {
        let mut world = build(run, &RSSI, Planted::Nothing);
        world.run()?;
        let late = world.calls().iter().filter(|call| call.invoked > world.faults_over() + 40_000);
        if late.clone().any(|call| call.response.is_none()) {
            return Err("a call was not answered".to_owned());
        }
        Ok(late.count())
    })
    .iter()
    .sum();
    assert!(late > 1_000, "only {late} calls came after the faults");
}

#[test]
fn a_site_that_does_not_come_back_is_found() {
    is_found(5, &RSSI, &RSSI, Planted::DoesNotFollow);
}
