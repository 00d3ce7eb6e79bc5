//! A trial: one seeded run of GDCP with random set-up, transactions and faults. It checks that all sites make
//! the same decisions, that all clients end once faults are over, that all sites end up with the same rows, and
//! that what clients saw is serializable.

use std::hash::{DefaultHasher, Hash, Hasher};

use hihooi_certify::gdcp::{Decided, Limits, Outcome};
use hihooi_check::{Judge, Level};
use rand::RngExt;

use crate::database::tally::Tally;
use crate::gdcp::history::{history, rows};
use crate::gdcp::replica::{GdcpNode, Planted};
use crate::gdcp::session::Session;
use crate::{
    Fault, FaultBounds, FaultPlan, NetworkConfig, NodeId, Purpose, Random, Run, Transport, World,
    WorldConfig, generator,
};

/// The configuration of all sites.
#[derive(Clone, Copy, Debug)]
pub struct SiteConfig {
    /// The bounds of the managers.
    pub limits: Limits,
    /// Room for so many rows.
    pub keys: u32,
    /// What is wrong.
    pub planted: Planted,
}

/// What a decision is, in a number that is the same in every run.
#[must_use]
pub fn fingerprint(decided: &Decided) -> u64 {
    let mut hasher = DefaultHasher::new();
    let kind = match decided.outcome {
        Outcome::Committed => 0,
        Outcome::Aborted(_) => 1,
        Outcome::Ended => 2,
    };
    (decided.id, kind).hash(&mut hasher);
    hasher.finish()
}

/// Runs and judges.
///
/// # Errors
/// What was violated: agreement, liveness, convergence, or serializability with the checker's
/// witnesses.
pub fn trial<N: GdcpNode<Config = SiteConfig>>(
    run: Run,
    transport: Transport,
    planted: Planted,
) -> Result<Tally, String> {
    let mut world = build::<N>(run, transport, planted);
    world.run()?;
    converged(&world)?;
    let history = history(&world).map_err(|error| error.to_string())?;
    let verdict = Judge::new(&history).verdict(Level::Serializable);
    if !verdict.holds() {
        return Err(format!("{verdict}"));
    }
    Ok(Tally::of(world.calls().iter().map(|call| call.response.as_deref())))
}

/// The world of a trial, ready to run.
#[must_use]
pub fn build<N: GdcpNode<Config = SiteConfig>>(
    run: Run,
    transport: Transport,
    planted: Planted,
) -> World<N, Session> {
    let random = &mut generator(run.seed, Purpose::Setup);
    let sites = random.random_range(2..=5);
    let keys = random.random_range(3..12);
    let site = SiteConfig { limits: limits(random), keys, planted };
    let each = random.random_range(20..60);
    let sessions = (0..random.random_range(3..=10)).map(|n| Session::new(n, sites, keys, each));
    let config = WorldConfig {
        faults: faults(run.seed, sites, transport, random),
        network: NetworkConfig { transport, ..NetworkConfig::default() },
        settle_us: 200_000,
        trace: run.trace,
        ..WorldConfig::new(run.seed, sites)
    };
    World::new(config, site, sessions.collect())
}

/// From nearly nothing to more than a trial needs.
fn limits(random: &mut Random) -> Limits {
    let scarce = random.random_bool(0.5);
    Limits {
        committed_max: if scarce { random.random_range(10..60) } else { 10_000 },
        spare_max: if scarce { random.random_range(0..10) } else { 1_000 },
        report_every: random.random_range(1..20),
        batches_max: random.random_range(1..4),
        ..Limits::default()
    }
}

/// On a ring site 0 never stops: one site of each view survives it, as the protocol assumes.
fn faults(seed: u64, sites: u16, transport: Transport, random: &mut Random) -> FaultPlan {
    let bounds = FaultBounds { down_us_max: 60_000, ..FaultBounds::USUAL };
    let mut plan = FaultPlan::of_trial(seed, bounds, sites, random);
    let spared = |fault: &Fault| matches!(fault, Fault::Crash(NodeId(0)));
    if transport == Transport::Stream {
        plan.0.retain(|(_, fault)| !spared(fault));
    }
    plan
}

/// All sites run, and show the same decisions and rows.
fn converged<N: GdcpNode>(world: &World<N, Session>) -> Result<(), String> {
    let applied: Vec<_> = world.running().map(|(_, site)| site.replica().applied()).collect();
    let rows: Vec<_> = world.running().map(|(_, site)| rows(site)).collect();
    let same = applied.windows(2).all(|pair| pair[0] == pair[1])
        && rows.windows(2).all(|pair| pair[0] == pair[1]);
    if same { Ok(()) } else { Err(format!("the sites end apart: {applied:?} {rows:?}")) }
}
