//! 1-copy snapshot isolation under random schedules: messages lost, doubled, late and out of order,
//! sites that crash and restart, and one stupid database that does the same as all of them together
//! (SIPRe paper, section 4: the definition of SI, and that all sites "produce the same outcome").

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};
use hihooi_placement::protocol::{Event, Item, Limits, Planted, Proposal, Reply};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::world::engine::{Action, Rows};
use crate::world::{World, item};

/// The single site: the state after each position, and which proposals committed.
struct Twin {
    states: Vec<BTreeMap<Item, i64>>,
    committed: Vec<bool>,
}

impl Twin {
    fn new(world: &World) -> Twin {
        let mut twin = Twin { states: vec![BTreeMap::new()], committed: Vec::new() };
        for (index, proposal) in world.log.iter().enumerate() {
            let begin = usize::try_from(proposal.begin.0).expect("a small log");
            let rows = rows(proposal);
            let overlaps = |k: usize| !rows.is_disjoint(&self::rows(&world.log[k]));
            let is_first = (begin..index).all(|k| !twin.committed[k] || !overlaps(k));
            let is_known = begin >= twin.forgotten(world);
            let mut state = twin.states[index].clone();
            if is_first && is_known {
                state.extend(proposal.changes.iter().map(|change| (change.item, change.value)));
            }
            twin.committed.push(is_first && is_known);
            twin.states.push(state);
        }
        twin
    }

    /// The position of the newest commit that certifiers have forgotten.
    fn forgotten(&self, world: &World) -> usize {
        let mut remembered = 0;
        for (k, _) in self.committed.iter().enumerate().rev().filter(|(_, committed)| **committed) {
            remembered += rows(&world.log[k]).len();
            if remembered > world.limits.certified_changes_max {
                return k + 1;
            }
        }
        0
    }

    /// Whether a transaction's statements answer this on a snapshot.
    fn answers(&self, begin: usize, seen: &Seen) -> bool {
        let mut rows = self.states[begin].clone();
        seen.statements.iter().zip(&seen.answers).all(|(statement, answer)| {
            let mut shown = answer.iter();
            statement.iter().all(|action| {
                let (item, add) = match *action {
                    Action::Read(item) => (item, None),
                    Action::Add(item, value) => (item, Some(value)),
                    Action::Write(item, value) => {
                        rows.insert(item, value);
                        return true;
                    }
                    Action::Draw(item) => {
                        let drawn = shown.next().copied();
                        rows.extend(drawn.map(|value| (item, value)));
                        return drawn.is_some();
                    }
                    Action::Wrong => return false,
                };
                let value = rows.get(&item).copied().unwrap_or(0) + add.unwrap_or(0);
                if add.is_some() {
                    rows.insert(item, value);
                }
                shown.next() == Some(&value)
            })
        })
    }
}

fn rows(proposal: &Proposal<Rows>) -> BTreeSet<Item> {
    proposal.changes.iter().map(|change| change.item).collect()
}

/// A client's transaction as the client saw it.
#[derive(Debug)]
struct Seen {
    txn: TxnId,
    statements: Vec<Vec<Action>>,
    answers: Vec<Vec<i64>>,
    is_waiting: bool,
    end: Option<Reply<Rows>>,
}

struct Run {
    random: Pcg64Mcg,
    world: World,
    holdings: Vec<Vec<u32>>,
    /// Crashes in a thousand steps.
    crashes: u32,
    clients: Vec<Seen>,
    history: Vec<Seen>,
}

const CLIENTS: usize = 6;
const STEPS: usize = 1500;
const SITE_COUNT: u32 = 3;

fn random_holdings(random: &mut Pcg64Mcg) -> Vec<Vec<u32>> {
    if random.random_bool(0.4) {
        return vec![vec![2, 3], vec![1, 2], vec![1, 3]];
    }
    let mut sites = vec![Vec::new(); SITE_COUNT as usize];
    for object in 1..=3 {
        let first = random.random_range(0..sites.len());
        for (index, site) in sites.iter_mut().enumerate() {
            if index == first || random.random_bool(0.5) {
                site.push(object);
            }
        }
    }
    sites
}

impl Run {
    fn new(seed: u64, planted: Planted) -> Run {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let holdings = random_holdings(&mut random);
        let limits = Limits {
            certified_changes_max: if random.random_bool(0.2) { 12 } else { 1000 },
            snapshots_max: if random.random_bool(0.2) { 3 } else { 100 },
            changes_max: 12,
            operation_ms_max: 3000,
            part_idle_ms_max: 5000,
            ..Limits::default()
        };
        let crashes = [0, 1, 5][random.random_range(0..3)];
        let sites: Vec<&[u32]> = holdings.iter().map(Vec::as_slice).collect();
        let world = World::new(&sites, limits, planted);
        Run { random, world, holdings, crashes, clients: Vec::new(), history: Vec::new() }
    }

    fn any_site(&mut self) -> SiteId {
        SiteId(self.random.random_range(1..=SITE_COUNT))
    }

    /// A statement on objects that some site holds together.
    fn statement(&mut self) -> Vec<Action> {
        let site = self.random.random_range(0..self.holdings.len());
        let objects = self.holdings[site].clone();
        let mut statement = Vec::new();
        for _ in 0..self.random.random_range(1..=3) {
            let Some(&object) = objects.get(self.random.random_range(0..objects.len().max(1)))
            else {
                continue;
            };
            let item = item(object, self.random.random_range(0..3));
            let value = self.random.random_range(1..100);
            statement.push(match self.random.random_range(0..10) {
                0..5 => Action::Read(item),
                5 => Action::Write(item, value),
                6 => Action::Draw(item),
                _ => Action::Add(item, value),
            });
        }
        statement
    }

    fn step(&mut self) {
        let site = self.any_site();
        if self.random.random_range(0..1000) < self.crashes {
            self.crash(site);
        }
        match self.random.random_range(0..100) {
            0..30 => self.client(),
            30..50 => self.message(),
            50..68 => {
                let choice = self.random.random_range(0..8);
                self.world.run(site, choice);
            }
            68..76 => self.order(),
            76..92 => drop(self.world.deliver(site)),
            92..99 => {
                let ms = self.random.random_range(0..120);
                self.world.pass(ms);
            }
            _ => self.restart(site),
        }
        self.collect_replies();
    }

    fn client(&mut self) {
        if self.clients.len() < CLIENTS {
            let site = self.any_site();
            if !self.world.sites.contains_key(&site) {
                return;
            }
            let txn = self.world.txn(site.0);
            let statements = Vec::new();
            let answers = Vec::new();
            self.clients.push(Seen { txn, statements, answers, is_waiting: false, end: None });
        }
        let index = self.random.random_range(0..self.clients.len());
        if self.clients[index].is_waiting {
            return;
        }
        let (txn, so_far) = (self.clients[index].txn, self.clients[index].answers.len());
        self.clients[index].is_waiting = true;
        if so_far > 0 && self.random.random_bool(0.25 * so_far as f64) {
            return self.world.step(txn.site, Event::Commit { txn });
        }
        let statement = self.statement();
        self.clients[index].statements.push(statement.clone());
        self.world.operation(txn, statement);
    }

    fn message(&mut self) {
        if self.world.network.is_empty() {
            return;
        }
        let index = self.random.random_range(0..self.world.network.len());
        match self.random.random_range(0..30) {
            0 => drop(self.world.network.remove(index)),
            1 => {
                let doubled = self.world.network[index].clone();
                self.world.network.push_back(doubled);
            }
            _ => self.world.receive(index),
        }
    }

    fn order(&mut self) {
        if self.world.proposed.is_empty() {
            return;
        }
        let index = self.random.random_range(0..self.world.proposed.len());
        let Some(proposal) = self.world.proposed.remove(index) else { return };
        match self.random.random_range(0..20) {
            0 => {}
            1 => self.world.proposed.push_back(proposal.clone()),
            _ => self.world.log.push(proposal),
        }
    }

    fn crash(&mut self, site: SiteId) {
        if !self.world.sites.contains_key(&site) {
            return;
        }
        self.world.crash(site);
        let (gone, left) =
            std::mem::take(&mut self.clients).into_iter().partition(|seen| seen.txn.site == site);
        self.clients = left;
        self.history.extend::<Vec<Seen>>(gone);
        for other in (1..=SITE_COUNT).map(SiteId) {
            if self.random.random_bool(0.5) {
                self.world.step(other, Event::Down(site));
            }
        }
    }

    /// From a checkpoint of any site.
    fn restart(&mut self, site: SiteId) {
        if self.world.sites.contains_key(&site) {
            return;
        }
        let durable = self.world.engine(site).durable;
        let usable: Vec<Timestamp> =
            self.world.checkpoints.range(..=durable).map(|(&at, _)| at).collect();
        let at = usable[self.random.random_range(0..usable.len())];
        let checkpoint = self.world.checkpoints[&at].clone();
        self.world.start(site, checkpoint);
    }

    fn collect_replies(&mut self) {
        for (txn, reply) in std::mem::take(&mut self.world.replies) {
            let index = self.clients.iter().position(|seen| seen.txn == txn);
            let index = index.unwrap_or_else(|| panic!("a reply too many: {txn:?} {reply:?}"));
            let seen = &mut self.clients[index];
            assert!(seen.is_waiting, "nobody asked: {txn:?} {reply:?}");
            seen.is_waiting = false;
            match reply {
                Reply::Answered(answer) => seen.answers.push(answer),
                end => {
                    seen.end = Some(end);
                    let seen = self.clients.remove(index);
                    self.history.push(seen);
                }
            }
        }
    }

    /// All sites run, nothing gets lost any more, clients abort what they have open.
    fn heal(&mut self) {
        for site in (1..=SITE_COUNT).map(SiteId) {
            self.restart(site);
        }
        for round in 0..40 {
            self.world.settle();
            self.collect_replies();
            let open: Vec<TxnId> = self.clients.iter().map(|seen| seen.txn).collect();
            for txn in open {
                let index = self.clients.iter().position(|seen| seen.txn == txn).expect("a client");
                if round > 5 || !self.clients[index].is_waiting {
                    self.clients[index].is_waiting = true;
                    self.world.step(txn.site, Event::Abort { txn });
                }
            }
            self.world.pass(1000);
        }
        self.world.settle();
        self.collect_replies();
    }

    fn judge(&self) -> Result<(), String> {
        if let Some(stuck) = self.clients.first() {
            return Err(format!("never answered: {stuck:?}"));
        }
        let twin = Twin::new(&self.world);
        self.history.iter().try_for_each(|seen| self.judge_one(&twin, seen))?;
        let last = twin.states.last().expect("a state");
        for (id, site) in &self.world.sites {
            if site.open() != (0, 0) {
                return Err(format!("{id:?} still has something open: {:?}", site.open()));
            }
            let holds = |item: &Item| self.holdings[id.0 as usize - 1].contains(&item.object.0);
            let expected: BTreeMap<Item, i64> =
                last.iter().filter(|(item, _)| holds(item)).map(|(&i, &v)| (i, v)).collect();
            if self.world.engines[id].rows() != expected {
                return Err(format!("{id:?} differs from one copy"));
            }
        }
        Ok(())
    }

    fn judge_one(&self, twin: &Twin, seen: &Seen) -> Result<(), String> {
        let proposed = self.world.log.iter().position(|proposal| proposal.txn == seen.txn);
        let reads = |begin: usize| twin.answers(begin, seen);
        let commits = proposed.is_some_and(|index| twin.committed[index]);
        let begin = match (proposed, &seen.end) {
            (Some(index), _) => Some(self.world.log[index].begin),
            (None, Some(Reply::Committed { at })) => Some(*at),
            _ => None,
        };
        let fair = match begin {
            Some(begin) => reads(usize::try_from(begin.0).expect("a small log")),
            None => (0..twin.states.len()).any(reads),
        };
        if !fair {
            return Err(format!("no snapshot shows this at {begin:?}: {seen:?}"));
        }
        let told = match &seen.end {
            None => return Ok(()), // its coordinator died: nobody was told
            Some(Reply::Committed { at }) => match proposed {
                Some(index) => commits && at.0 == index as u64 + 1,
                None => true,
            },
            Some(_) => !commits,
        };
        if told { Ok(()) } else { Err(format!("told wrong, one copy says {commits}: {seen:?}")) }
    }
}

fn run(seed: u64, planted: Planted) -> Result<usize, String> {
    let mut run = Run::new(seed, planted);
    for _ in 0..STEPS {
        run.step();
    }
    run.heal();
    run.judge()?;
    let committed = |seen: &&Seen| matches!(seen.end, Some(Reply::Committed { .. }));
    Ok(run.history.iter().filter(committed).count())
}

#[test]
fn random_schedules_equal_one_copy_under_snapshot_isolation() {
    let mut committed = 0;
    for seed in 0..1500 {
        committed +=
            run(seed, Planted::Nothing).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(committed > 15_000, "{committed} commits show little");
}

/// Each mistake shows within so many seeds.
#[test]
fn planted_mistakes_are_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = |planted| {
        (0..60).find(|&seed| {
            !matches!(catch_unwind(AssertUnwindSafe(|| run(seed, planted))), Ok(Ok(_)))
        })
    };
    let mistakes = [
        Planted::HoldersOnly,
        Planted::PrintedInterval,
        Planted::NewestSnapshot,
        Planted::WithoutChanges,
    ];
    let seeds = mistakes.map(|planted| (planted, found(planted)));
    std::panic::set_hook(hook);
    assert!(seeds.iter().all(|(_, seed)| seed.is_some()), "{seeds:?}");
    println!("{seeds:?}");
}
