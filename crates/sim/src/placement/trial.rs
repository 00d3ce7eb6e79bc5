//! A trial: one seeded run with random placement, transactions and faults, checked against 1-copy-SI.

use std::collections::BTreeMap;
use std::rc::Rc;

use hihooi_certify::certification::SiteId;
use hihooi_check::{Judge, Level};
use hihooi_placement::protocol::{Catalog, Cause, Limits, ObjectId, Planted, Reply};
use rand::RngExt;

use crate::placement::history::history;
use crate::placement::session::{Mix, Session};
use crate::placement::site::{Site, SiteConfig};
use crate::{Call, FaultBounds, FaultPlan, Purpose, Random, Run, World, WorldConfig, generator};

const OBJECTS: u32 = 3;
/// From so long after the last fault on every call must be answered.
const RECOVERY_US: u64 = 150_000;

/// How trials ended, summed up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Transactions that were begun.
    pub transactions: u64,
    /// Acknowledged.
    pub committed: u64,
    /// Ended with a cause, by cause.
    pub aborted: BTreeMap<&'static str, u64>,
    /// Calls without an answer.
    pub unanswered: u64,
}

impl Tally {
    /// The sum over trials.
    #[must_use]
    pub fn sum(tallies: impl IntoIterator<Item = Tally>) -> Tally {
        let mut sum = Tally::default();
        for tally in tallies {
            sum.transactions += tally.transactions;
            sum.committed += tally.committed;
            sum.unanswered += tally.unanswered;
            tally.aborted.iter().for_each(|(why, n)| *sum.aborted.entry(why).or_default() += n);
        }
        sum
    }

    fn of(world: &Database) -> Tally {
        let mut tally = Tally::default();
        let mut last = BTreeMap::new();
        for call in world.calls() {
            last.insert(call.request.number, ());
            match call.response.as_deref() {
                None => tally.unanswered += 1,
                Some(Reply::Answered(_)) => {}
                Some(Reply::Committed { .. }) => tally.committed += 1,
                Some(Reply::Aborted(cause)) => *tally.aborted.entry(name(cause)).or_default() += 1,
            }
        }
        tally.transactions = last.len() as u64;
        tally
    }
}

fn name(cause: &Cause<crate::placement::engine::Lists>) -> &'static str {
    match cause {
        Cause::WriteConflict => "write conflict",
        Cause::NoHolder => "no holder",
        Cause::SnapshotTooOld => "snapshot too old",
        Cause::HolderFailed(_) => "holder failed",
        Cause::HolderSilent(_) => "holder silent",
        Cause::Overloaded => "overloaded",
        Cause::TooManyChanges => "too many changes",
        Cause::Recovering => "recovering",
        Cause::Statement(_) => "statement",
        Cause::Client => "client",
        Cause::Unknown => "unknown transaction",
    }
}

/// A world of partial replication.
pub type Database = World<Site, Session>;

/// Runs and judges.
///
/// # Errors
/// What was violated: a snapshot that was needed and closed, liveness, convergence, or
/// 1-copy-SI with the checker's witnesses.
pub fn trial(run: Run, planted: Planted) -> Result<Tally, String> {
    let random = &mut generator(run.seed, Purpose::Setup);
    let holdings = Rc::new(holdings(random));
    let rows = random.random_range(1..=4);
    let mut world = build(run, planted, &holdings, rows, random);
    world.run()?;
    live(&world)?;
    judged(&world, &holdings, rows)?;
    converged(&world, &holdings)?;
    Ok(Tally::of(&world))
}

fn build(
    run: Run,
    planted: Planted,
    holdings: &Rc<Vec<Vec<u32>>>,
    rows: u32,
    random: &mut Random,
) -> Database {
    let mix = Mix {
        holdings: holdings.clone(),
        rows,
        operations_max: random.random_range(1..=4),
        writes: [0.2, 0.5, 0.8][random.random_range(0..3)],
        read_only: 0.2,
        think_us_max: random.random_range(100..5_000),
    };
    let site = SiteConfig {
        catalog: catalog(holdings),
        limits: limits(random),
        planted,
        statement_us_max: random.random_range(20..800),
    };
    let clients = random.random_range(3..=10);
    let each = random.random_range(10..=40);
    let sessions = (0..clients).map(|client| Session::new(mix.clone(), client, each)).collect();
    let sites = u16::try_from(holdings.len()).unwrap_or(1);
    let bounds = FaultBounds { down_us_max: 60_000, cut_us_max: 40_000, ..FaultBounds::USUAL };
    let config = WorldConfig {
        faults: FaultPlan::of_trial(run.seed, bounds, sites, random),
        settle_us: 400_000,
        trace: run.trace,
        ..WorldConfig::new(run.seed, sites)
    };
    World::new(config, site, sessions)
}

/// The paper's triangle, or each object at random sites.
fn holdings(random: &mut Random) -> Vec<Vec<u32>> {
    if random.random_bool(0.4) {
        return vec![vec![2, 3], vec![1, 2], vec![1, 3]];
    }
    let mut sites = vec![Vec::new(); random.random_range(2..=5)];
    for object in 1..=OBJECTS {
        let sure = random.random_range(0..sites.len());
        for (index, site) in sites.iter_mut().enumerate() {
            if index == sure || random.random_bool(0.5) {
                site.push(object);
            }
        }
    }
    sites
}

fn catalog(holdings: &[Vec<u32>]) -> Catalog {
    Catalog::new((1..=OBJECTS).map(|object| {
        let holders = (0_u32..).zip(holdings).filter(|(_, held)| held.contains(&object));
        (ObjectId(object), holders.map(|(site, _)| SiteId(site)).collect())
    }))
}

/// Times that fit the simulated network, where a message takes half a millisecond; bounds from
/// nearly nothing on.
fn limits(random: &mut Random) -> Limits {
    let scarce = random.random_bool(0.3);
    Limits {
        certified_changes_max: if scarce { random.random_range(20..60) } else { 100_000 },
        snapshots_max: if scarce { random.random_range(2..6) } else { 1_000 },
        changes_max: 20,
        operation_ms_max: 30,
        part_idle_ms_max: random.random_range(5..80),
        proposal_ms_max: 10,
        silence_ms_max: 15,
        report_ms: 3,
        ..Limits::default()
    }
}

/// Whoever asked when all had been well for a while got an answer, and nothing stays open.
fn live(world: &Database) -> Result<(), String> {
    let from = world.faults_over() + RECOVERY_US;
    let unanswered = |call: &&Call<Site>| call.invoked >= from && call.response.is_none();
    if let Some(call) = world.calls().iter().find(unanswered) {
        return Err(format!("unanswered: {call:?}"));
    }
    match world.running().find(|(_, site)| site.core().open() != (0, 0)) {
        Some((id, site)) => Err(format!("{id:?} keeps {:?} open", site.core().open())),
        None => Ok(()),
    }
}

fn judged(world: &Database, holdings: &[Vec<u32>], rows: u32) -> Result<(), String> {
    let history = history(world, holdings, rows).map_err(|error| error.to_string())?;
    let verdict = Judge::new(&history).verdict(Level::OneCopySi);
    if verdict.holds() { Ok(()) } else { Err(format!("{verdict}")) }
}

/// All sites have delivered the same, and holders of an object have the same rows of it.
fn converged(world: &Database, holdings: &[Vec<u32>]) -> Result<(), String> {
    let delivered: Vec<_> = world.running().map(|(_, site)| site.core().delivered()).collect();
    if delivered.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(format!("after the run the sites have delivered {delivered:?}"));
    }
    for object in (1..=OBJECTS).map(ObjectId) {
        let rows = |site: &Site| -> Vec<_> {
            let all = site.engine().newest().filter(|(item, _)| item.object == object);
            all.map(|(item, list)| (item, list.to_vec())).collect()
        };
        let holds = |id: usize| holdings[id].contains(&object.0);
        let copies: Vec<_> =
            world.running().filter(|(id, _)| holds(id.0.into())).map(|(_, s)| rows(s)).collect();
        if copies.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(format!("the copies of {object:?} differ"));
        }
    }
    Ok(())
}
