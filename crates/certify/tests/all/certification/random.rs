//! Random histories: what a certifier admits is what it promises, and `rssi` decides as its
//! stupid twin does. A failing one names its seed.

use hihooi_certify::certification::cp_roo::CpRoo;
use hihooi_certify::certification::planted::{Planted, PlantedRssi};
use hihooi_certify::certification::rsi::Rsi;
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::vdbsm::Vdbsm;
use hihooi_certify::certification::{Cause, Certifier, Decision, Limits, Timestamp, Transaction};
use rand::RngExt;

use super::naive::{Naive, Verdict};
use super::oracle::{one_copy_si, serializable};
use super::support::forgetful;
use super::world::{Attempt, World};

/// Attempts of a history.
const ATTEMPTS: u64 = 80;

/// Lets a certifier decide a history, collecting now and then.
fn play(
    seed: u64,
    moments: bool,
    new: impl Fn(Limits) -> Box<dyn Certifier>,
    mut judge: impl FnMut(&Attempt, Decision),
) -> World {
    let mut world = World::new(seed);
    world.setting.moments = moments;
    let mut certifier = new(limits(&mut world));
    let collects = world.random.random_range(0..4);
    for _ in 0..ATTEMPTS {
        let attempt = world.attempt();
        let decision = certifier.certify(&attempt.transaction);
        judge(&attempt, decision);
        world.decided(&attempt, decision.verdict.is_ok());
        assert_eq!(decision.at, world.clock(), "seed {seed}");
        if world.random.random_range(0..4) < collects {
            let staleness = world.random.random_range(0..=world.staleness().0);
            certifier.collect(Timestamp(staleness));
        }
    }
    world
}

fn limits(world: &mut World) -> Limits {
    let random = &mut world.random;
    Limits {
        transactions_max: if random.random_ratio(1, 4) { random.random_range(3..20) } else { 1000 },
        items_max: if random.random_ratio(1, 4) { random.random_range(10..60) } else { 10_000 },
        spare_max: random.random_range(0..20),
    }
}

/// The first seed whose history does not keep the promise.
fn first_broken(
    seeds: std::ops::Range<u64>,
    moments: bool,
    new: impl Fn(Limits) -> Box<dyn Certifier>,
    promise: impl Fn(&World) -> Result<(), String>,
) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let world = play(seed, moments, &new, |_, _| {});
        promise(&world).err().map(|what| (seed, what))
    })
}

#[test]
fn rsi_admits_snapshot_isolation() {
    let new = |limits| -> Box<dyn Certifier> { Box::new(Rsi::new(limits)) };
    assert_eq!(first_broken(0..3000, false, new, one_copy_si), None);
    assert!(first_broken(0..100, false, new, serializable).is_some(), "more than it promises");
}

#[test]
fn cp_roo_admits_serializable_histories() {
    let new = |limits| -> Box<dyn Certifier> { Box::new(CpRoo::new(limits)) };
    assert_eq!(first_broken(0..2000, false, new, serializable), None);
}

#[test]
fn vdbsm_admits_serializable_histories() {
    let new = |limits| -> Box<dyn Certifier> { Box::new(Vdbsm::new(limits)) };
    assert_eq!(first_broken(0..1000, false, new, serializable), None);
    assert_eq!(first_broken(1000..3000, true, new, serializable), None);
}

#[test]
fn rssi_admits_serializable_histories() {
    let new = |limits| -> Box<dyn Certifier> { Box::new(Rssi::new(limits)) };
    assert_eq!(first_broken(0..3000, false, new, serializable), None);
    let new = |limits| -> Box<dyn Certifier> { Box::new(Rssi::by_the_letter(limits)) };
    assert_eq!(first_broken(3000..6000, false, new, serializable), None);
}

/// Rows are few, but most are old; everything is forgotten as soon as it is stale.
fn forgets_at_once(seed: u64, mut certifier: impl Certifier) -> Result<(), String> {
    let mut world = World::new(seed);
    let setting = &mut world.setting;
    (setting.rows, setting.items, setting.pending) = (8, 3, 5);
    (setting.wide, setting.inexact) = (0, 0);
    for _ in 0..ATTEMPTS {
        let attempt = world.attempt();
        let decision = certifier.certify(&attempt.transaction);
        world.decided(&attempt, decision.verdict.is_ok());
        certifier.collect(world.staleness());
    }
    serializable(&world)
}

#[test]
fn rssi_admits_serializable_histories_whatever_it_forgets() {
    for new in [Rssi::new, Rssi::by_the_letter] {
        for seed in 0..2000 {
            assert_eq!(forgets_at_once(seed, new(forgetful())), Ok(()), "seed {seed}");
        }
    }
}

/// The oracle finds each planted bug, with a seed that is all right without it.
#[test]
fn planted_bugs_are_found() {
    let letter: fn(Limits) -> Rssi = Rssi::by_the_letter;
    for (bug, sound) in [
        (Planted::PaperGarbageCollection, letter),
        (Planted::LsvOffByOne, letter),
        (Planted::ReadsetIgnored, letter),
        (Planted::ReadsOutdated, Rssi::new),
    ] {
        let broken = |seed| forgets_at_once(seed, PlantedRssi::new(forgetful(), bug)).is_err();
        let found = (0..4000).find(|seed| broken(*seed));
        println!("{bug:?} is found by seed {found:?}");
        let seed = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        assert_eq!(forgets_at_once(seed, sound(forgetful())), Ok(()), "without {bug:?}");
    }
}

/// RSSI paper, definition 3.1 over all of the history. By the letter the lsv is the exact one if
/// that is told and nothing was forgotten.
#[test]
fn rssi_decides_as_the_definition_does() {
    for by_the_letter in [true, false] {
        let mut decided = [0u64; 4];
        for seed in 0..1500 {
            compare(seed, by_the_letter, &mut decided);
        }
        println!("by the letter {by_the_letter}: commits, ww, descending, too old: {decided:?}");
        assert!(decided.iter().all(|count| *count > 1_000), "{decided:?}");
    }
}

fn compare(seed: u64, by_the_letter: bool, decided: &mut [u64; 4]) {
    let mut naive = Naive::default();
    let mut world = World::new(seed);
    let limits = limits(&mut world);
    let new = if by_the_letter { Rssi::by_the_letter } else { Rssi::new };
    let mut certifier = new(limits);
    for _ in 0..ATTEMPTS {
        let attempt = world.attempt();
        let floor = certifier.floor();
        let Transaction { begin, lsv, reads, writes, .. } = &attempt.transaction;
        let told = certifier.lsv(*begin, reads, writes);
        assert!(told.low <= attempt.lsv && attempt.lsv <= told.high, "seed {seed}: {told:?}");
        let decision = certifier.certify(&attempt.transaction);
        world.decided(&attempt, decision.verdict.is_ok());
        let lowest = lsv.high.max(floor);
        let verdict = match decision.verdict {
            Ok(()) => Verdict::Commits,
            Err(Cause::WriteConflict { .. }) => Verdict::WriteConflict,
            Err(Cause::DescendingStructure { .. }) => Verdict::Descending,
            Err(Cause::SnapshotTooOld) => {
                assert!(*begin < floor);
                decided[3] += 1;
                continue;
            }
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(
            verdict,
            naive.certify(&attempt, lowest, by_the_letter, decision.at),
            "seed {seed}"
        );
        decided[verdict as usize] += 1;
        if world.random.random_ratio(1, 3) {
            certifier.collect(Timestamp(world.random.random_range(0..=world.staleness().0)));
        }
    }
}
