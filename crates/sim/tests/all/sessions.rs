//! Real sessions against simulated servers under faults: what clients see is strong snapshot isolation (I2, I3).

use hihooi_sim::sessions::{Planted, Ran, Setup, run};
use hihooi_sim::{Run, explore, hunt};

const SEEDS: u64 = 300;

fn setup(seed: u64) -> Setup {
    Setup {
        clients: 2 + (seed % 5) as usize,
        tables: 1 + (seed % 4) as u32,
        transactions: 25,
        has_faults: true,
        planted: None,
    }
}

#[test]
fn i3_what_clients_see_is_strong_snapshot_isolation() {
    let ran: Vec<Ran> = explore(
        "sessions::i3_what_clients_see_is_strong_snapshot_isolation",
        0..SEEDS,
        |Run { seed, .. }| run(seed, &setup(seed)),
    );
    let sum = |part: fn(&Ran) -> usize| ran.iter().map(part).sum::<usize>();
    let all = (sum(|r| r.committed), sum(|r| r.aborted), sum(|r| r.unknown), sum(|r| r.faults));
    println!("committed, aborted, unknown, faults: {all:?}");
    println!("units routed to replicas: {}", ran.iter().map(|r| r.at_replicas).sum::<u64>());
    // It is about something.
    assert!(all.0 > 10 * SEEDS as usize && all.2 > 0 && all.3 > SEEDS as usize, "{all:?}");
    assert!(ran.iter().map(|r| r.at_replicas).sum::<u64>() > SEEDS);
}

#[test]
fn without_faults_every_outcome_is_known() {
    let calm = |seed| run(seed, &Setup { has_faults: false, ..setup(seed) });
    let ran = explore(
        "sessions::without_faults_every_outcome_is_known",
        0..SEEDS / 5,
        |Run { seed, .. }| calm(seed),
    );
    assert!(ran.iter().all(|ran| ran.unknown == 0 && ran.committed > 0));
}

#[test]
fn planted_mistakes_are_found() {
    for planted in [Planted::StaleReads, Planted::WritesUntold, Planted::EndsForgotten] {
        let broken = |seed| Setup { planted: Some(planted), ..setup(seed) };
        let found = hunt(0..SEEDS, |Run { seed, .. }| run(seed, &broken(seed)));
        let (seed, what) = found.unwrap_or_else(|| panic!("{planted:?} is not found"));
        println!("{planted:?} with seed {seed}: {what}");
    }
}
