//! A trial: one seeded run of the replicated database under a protocol, with random set-up, transactions and
//! faults, checked against the levels that the protocol guarantees.

use hihooi_certify::certification::Limits;
use hihooi_check::{Judge, Level};
use rand::RngExt;

use crate::database::history::history;
use crate::database::session::{Mix, Session};
use crate::database::site::{LsvKnown, Planted, Site, SiteCertifier, SiteConfig};
use crate::database::tally::Tally;
use crate::{
    Call, FaultBounds, FaultPlan, Purpose, Random, Run, Time, World, WorldConfig, generator,
};

/// From so long after the last fault on every call must be answered.
const RECOVERY_US: u64 = 40_000;

/// A protocol, and what it promises.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Makes the certifier.
    pub certifier: fn(Limits) -> Box<dyn SiteCertifier>,
    /// See [`SiteConfig::certifies_read_only`].
    pub certifies_read_only: bool,
    /// Whether rows that were written must count as read.
    pub tells_overwritten: bool,
    /// The levels.
    pub levels: &'static [Level],
    /// Under what it is tried.
    pub circumstances: Circumstances,
}

/// What a trial is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Circumstances {
    /// Anything, with faults.
    Any,
    /// Anything, with faults; lsv is told exactly, and no write implies a read.
    Blind,
    /// Long transactions among short ones in few sessions, staleness values told often, all else
    /// in order: a certifier forgets as much as it may.
    Forgetful,
}

/// A world after its run.
pub type Database = World<Site, Session>;

/// Runs and judges.
///
/// # Errors
/// What was violated: agreement of the sites, liveness, convergence, or a level with the
/// checker's witnesses.
pub fn trial(run: Run, protocol: &Protocol, planted: Planted) -> Result<Tally, String> {
    let mut world = build(run, protocol, planted);
    world.run()?;
    converged(&world)?;
    live(&world)?;
    judged(&world, protocol.levels)?;
    Ok(Tally::of(world.calls().iter().map(|call| call.response.as_deref())))
}

/// The world of a trial, ready to run.
#[must_use]
pub fn build(run: Run, protocol: &Protocol, planted: Planted) -> Database {
    let random = &mut generator(run.seed, Purpose::Setup);
    let forgetful = protocol.circumstances == Circumstances::Forgetful;
    let blind = protocol.circumstances == Circumstances::Blind;
    let sites = random.random_range(2..=4);
    let mix = if forgetful { Mix::forgetful() } else { Mix::random(random) };
    let site = SiteConfig {
        certifier: protocol.certifier,
        certifies_read_only: protocol.certifies_read_only,
        limits: limits(forgetful, random),
        lsv: if forgetful || blind { LsvKnown::Exactly } else { lsv_known(random) },
        tells_versions: random.random_bool(0.5),
        tells_overwritten: protocol.tells_overwritten || !blind && random.random_bool(0.5),
        keys: mix.keys,
        announce_us: if forgetful { 300 } else { announce_us(random) },
        planted,
    };
    let (clients, each) = if forgetful {
        (3, 20)
    } else {
        (random.random_range(3..=12), random.random_range(25..=75))
    };
    let sessions = (0..clients).map(|client| Session::new(mix, client, sites, each)).collect();
    let calm = FaultPlan(Vec::new());
    let config = WorldConfig {
        faults: if forgetful {
            calm
        } else {
            FaultPlan::of_trial(run.seed, FaultBounds::USUAL, sites, random)
        },
        settle_us: if forgetful { 5_000 } else { 40_000 },
        trace: run.trace,
        ..WorldConfig::new(run.seed, sites)
    };
    World::new(config, site, sessions)
}

/// From nearly nothing to more than a trial needs.
fn limits(forgetful: bool, random: &mut Random) -> Limits {
    let scarce = !forgetful && random.random_bool(0.3);
    Limits {
        transactions_max: if scarce { random.random_range(10..60) } else { 10_000 },
        items_max: if scarce { random.random_range(60..600) } else { 100_000 },
        spare_max: if forgetful { 0 } else { random.random_range(0..40) },
    }
}

fn announce_us(random: &mut Random) -> u64 {
    if random.random_bool(0.2) { 0 } else { random.random_range(300..5_000) }
}

fn lsv_known(random: &mut Random) -> LsvKnown {
    match random.random_range(0..3) {
        0 => LsvKnown::Exactly,
        1 => LsvKnown::Bounds,
        _ => LsvKnown::FromCertifier,
    }
}

/// All sites run, and have decided the same attempts.
fn converged(world: &Database) -> Result<(), String> {
    let applied: Vec<_> = world.running().map(|(_, site)| site.applied()).collect();
    if applied.windows(2).all(|pair| pair[0] == pair[1]) {
        Ok(())
    } else {
        Err(format!("after the run the sites have applied {applied:?}"))
    }
}

/// Whoever asked when all had been well for a while got an answer.
fn live(world: &Database) -> Result<(), String> {
    let from = world.faults_over() + RECOVERY_US;
    let unanswered = |call: &&Call<Site>| call.invoked >= from && call.response.is_none();
    match world.calls().iter().find(unanswered) {
        Some(call) if world.faults_over() > Time(0) => Err(format!("unanswered: {call:?}")),
        _ => Ok(()),
    }
}

fn judged(world: &Database, levels: &[Level]) -> Result<(), String> {
    let history = history(world).map_err(|error| error.to_string())?;
    let mut judge = Judge::new(&history);
    for level in levels {
        let verdict = judge.verdict(*level);
        if !verdict.holds() {
            return Err(format!("{verdict}"));
        }
    }
    Ok(())
}
