//! A trial: one seeded run with random set-up, transactions and faults, and its checks.

use std::collections::BTreeMap;
use std::rc::Rc;

use hihooi_check::{Judge, Kind, Level};
use hihooi_mastering::ids::{PartitionId, SiteId};
use hihooi_mastering::mastership::Homes;
use hihooi_mastering::record::Body;
use hihooi_mastering::refresh::Order;
use hihooi_mastering::selector::config::Weights;
use rand::RngExt;

use crate::mastering::history::history;
use crate::mastering::logs::{Entry, logs};
use crate::mastering::node::{Config, Member, Planted, Request, Response};
use crate::mastering::session::{Mix, Session};
use crate::{
    FaultBounds, FaultPlan, LogId, NetworkConfig, Purpose, Run, World, WorldConfig, generator,
};

/// How trials ended, summed up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Transactions that a site was asked to run.
    pub transactions: u64,
    /// Acknowledged.
    pub committed: u64,
    /// Of unknown outcome.
    pub unknown: u64,
    /// Not run, or ended, by reason.
    pub no: BTreeMap<&'static str, u64>,
    /// Changes of mastership.
    pub grants: u64,
    /// Long forks in the wide sense, where the paper's rule allows them.
    pub forks: u64,
}

impl Tally {
    /// The sum over trials.
    #[must_use]
    pub fn sum(tallies: impl IntoIterator<Item = Tally>) -> Tally {
        let mut all = Tally::default();
        for tally in tallies {
            all.transactions += tally.transactions;
            all.committed += tally.committed;
            all.unknown += tally.unknown;
            all.grants += tally.grants;
            all.forks += tally.forks;
            tally.no.iter().for_each(|(why, n)| *all.no.entry(why).or_default() += n);
        }
        all
    }
}

/// A world of dynamic mastering.
pub type Database = World<Member, Session>;

/// Runs and judges. With [`Order::Total`] the history must be strong-session SI. With
/// [`Order::Causal`], the paper's own rule, it must be that but for what comes of snapshots that no
/// one order explains; those are counted.
///
/// # Errors
/// What was violated: agreement of the sites, one master a partition, liveness, convergence, or
/// the level, with the checker's witnesses.
pub fn trial(run: Run, order: Order, planted: Planted) -> Result<Tally, String> {
    let mut world = build(run, order, planted);
    world.run()?;
    converged(&world)?;
    let forks = judged(&world, order)?;
    let mut tally = Tally { forks, ..Tally::default() };
    count(&world, order, &mut tally);
    Ok(tally)
}

/// Runs the right protocol and judges at one level alone.
///
/// # Errors
/// The checker's witnesses, or what else was violated.
pub fn judged_at(run: Run, order: Order, level: Level) -> Result<(), String> {
    let mut world = build(run, order, Planted::Nothing);
    world.run()?;
    let history = history(&world).map_err(|error| error.to_string())?;
    let verdict = Judge::new(&history).verdict(level);
    if verdict.holds() { Ok(()) } else { Err(verdict.to_string()) }
}

/// The world of a trial, ready to run.
#[must_use]
pub fn build(run: Run, order: Order, planted: Planted) -> Database {
    let random = &mut generator(run.seed, Purpose::Setup);
    let sites = random.random_range(2..=4);
    let nodes = sites + random.random_range(1..=2);
    let config = Rc::new(Config {
        sites,
        keys: random.random_range(4..16),
        keys_each: random.random_range(1..4),
        homes: if random.random_bool(0.5) { Homes::RoundRobin } else { Homes::All(SiteId(0)) },
        order,
        weights: if random.random_bool(0.5) { Weights::ycsb() } else { Weights::tpcc() },
        planted,
    });
    let mix = Mix::random(random);
    let clients = random.random_range(4..=10);
    let each = random.random_range(20..=60);
    let sessions = (0..clients).map(|n| Session::new(&config, mix, n, nodes, each)).collect();
    let network =
        NetworkConfig { delay_us_max: random.random_range(200..1_500), ..NetworkConfig::default() };
    let bounds = FaultBounds { crashes_max: 6, ..FaultBounds::USUAL };
    let world = WorldConfig {
        network,
        logs: logs(order, sites),
        faults: FaultPlan::of_trial(run.seed, bounds, nodes, random),
        settle_us: 100_000,
        live_us_max: 10_000_000,
        trace: run.trace,
        ..WorldConfig::new(run.seed, nodes)
    };
    World::new(world, config, sessions)
}

/// All sites have applied the same, and every partition has one master, or is between two.
fn converged(world: &Database) -> Result<(), String> {
    let sites: Vec<_> = world.running().filter_map(|(_, member)| member.site()).collect();
    let vectors: Vec<String> = sites
        .iter()
        .map(|site| site.vector().map_or("none".to_owned(), |v| v.to_string()))
        .collect();
    if vectors.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(format!("after the run the sites stand at {vectors:?}"));
    }
    for partition in (0..sites[0].rows().keys()).map(PartitionId) {
        let masters = sites.iter().filter(|site| site.is_master(partition)).count();
        if masters > 1 {
            return Err(format!("after the run {partition} has {masters} masters"));
        }
    }
    Ok(())
}

/// The number of long forks, in the wide sense: cycles of several readers (and sessions) that saw
/// unrelated commits in opposite orders, while each reader's own snapshot is in order. 0 where they
/// are not allowed.
fn judged(world: &Database, order: Order) -> Result<u64, String> {
    let history = history(world).map_err(|error| error.to_string())?;
    let verdict = Judge::new(&history).verdict(Level::SessionSi);
    let forked = [Kind::LongFork, Kind::NoSnapshotOrder, Kind::SessionOrder];
    let allowed = |kind| order == Order::Causal && forked.contains(&kind);
    let forks = verdict.anomalies.iter().filter(|anomaly| allowed(anomaly.kind)).count();
    if forks == verdict.anomalies.len() { Ok(forks as u64) } else { Err(verdict.to_string()) }
}

fn count(world: &Database, order: Order, tally: &mut Tally) {
    for call in world.calls() {
        if let Request::Run(_) = call.request {
            tally.transactions += 1;
            match call.response.as_deref() {
                None => tally.unknown += 1,
                Some(Response::Committed { .. }) => tally.committed += 1,
                _ => {}
            }
        }
        if let Some(Response::No(why)) = call.response.as_deref() {
            *tally.no.entry(why).or_default() += 1;
        }
    }
    let sites = world.running().filter(|(_, member)| member.site().is_some()).count() as u16;
    for log in 0..logs(order, sites) {
        tally.grants += grants(world, log);
    }
}

fn grants(world: &Database, log: u16) -> u64 {
    let entries = world.log(LogId(log)).iter();
    let granted = entries.filter(|entry| match entry {
        Entry::Record(_, record) => {
            matches!(record.body, Body::Grant { .. })
        }
        Entry::Opened(..) | Entry::Mark(..) => false,
    });
    granted.count() as u64
}
