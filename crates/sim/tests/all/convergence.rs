//! Convergence: when all have decided the same attempts, all sites hold the same versions: those
//! that one certifier makes of the log, however often they crashed (I2, I5). On the way no two
//! sites ever give different verdicts at the same position.

use ahash::AHashSet;
use hihooi_certify::certification::{Limits, Timestamp};
use hihooi_sim::database::engine::Engine;
use hihooi_sim::database::site::{Entry, LOG, Planted};
use hihooi_sim::database::trial::{Database, Protocol, build};
use hihooi_sim::{Run, explore};

use crate::common::{CP_ROO, RSI, RSSI, VDBSM, is_found};

/// The rows that the log alone makes, in the simplest way.
fn replay(world: &Database, protocol: &Protocol, limits: Limits) -> Engine {
    let keys = world.running().next().expect("all sites run").1.engine().keys();
    let mut engine = Engine::new(keys);
    let mut certifier = (protocol.certifier)(limits);
    let mut decided = AHashSet::new();
    let mut oldest = vec![Timestamp(0); world.running().count()];
    for entry in world.log(LOG) {
        match entry {
            Entry::Oldest(site, begin) => {
                let told = &mut oldest[usize::from(site.0)];
                *told = begin.max(told).to_owned();
                certifier.collect(*oldest.iter().min().expect("there are sites"));
            }
            Entry::Attempt(attempt) if decided.insert(attempt.transaction.id) => {
                let decision = certifier.certify(&attempt.transaction);
                if decision.verdict.is_ok() {
                    engine.apply(decision.at, &attempt.changes);
                }
            }
            Entry::Attempt(_) => {}
        }
    }
    engine
}

fn converges(run: Run, protocol: &Protocol) -> Result<(), String> {
    let mut world = build(run, protocol, Planted::Nothing);
    let limits = world.setup().limits;
    world.run()?;
    let wanted = replay(&world, protocol, limits);
    match world.running().find(|(_, site)| *site.engine() != wanted) {
        Some((id, _)) => Err(format!("{id:?} is not what the log makes")),
        None => Ok(()),
    }
}

#[test]
fn all_sites_are_what_the_log_makes() {
    for protocol in [RSI, CP_ROO, RSSI, VDBSM] {
        let name = "convergence::all_sites_are_what_the_log_makes";
        explore(name, 2_000..2_100, |run| converges(run, &protocol));
    }
}

#[test]
fn a_site_that_certifies_in_another_order_is_found() {
    let found = is_found(5, &RSSI, &RSSI, Planted::OrderSwapped);
    assert!(found.contains("verdict"), "{found}");
}

#[test]
fn an_apply_that_is_lost_at_a_restart_is_found() {
    is_found(20, &RSI, &RSI, Planted::TornApply);
}
