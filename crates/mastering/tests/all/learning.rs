//! What the site selector learns (DynaMast paper, section VI): under 3 % of transactions move
//! mastership after learning, and updates are spread evenly over the sites under skew as long as
//! the balance weight is not 0.
//!
//! The workload is the paper's YCSB: read-modify-write transactions of three keys near each other
//! and scans. Sites are stood in for by answers that come at once, so that the numbers are the
//! selector's own.

use hihooi_mastering::ids::{ClientId, PartitionId, SiteId};
use hihooi_mastering::mastership::Homes;
use hihooi_mastering::record::{Change, ChangeKind};
use hihooi_mastering::selector::config::{SelectorConfig, Weights};
use hihooi_mastering::selector::{Effect, Event, RequestId, Selector};
use hihooi_mastering::vector::{ClientVector, SiteVector, TransactionVector};
use rand::{RngExt, SeedableRng};
use rand_distr::{Binomial, Distribution, Zipf};
use rand_pcg::Pcg64Mcg;

const SITES: usize = 4;

/// A selector whose sites answer at once.
struct Cluster {
    selector: Selector,
    present: SiteVector,
    numbers: [u64; SITES],
    requests: u64,
    now_us: u64,
}

/// What one transaction came to.
struct Ran {
    site: SiteId,
    remastered: bool,
}

impl Cluster {
    fn new(config: SelectorConfig) -> Cluster {
        let present = SiteVector::zero(SITES);
        let numbers = [0; SITES];
        Cluster { selector: Selector::new(config), present, numbers, requests: 0, now_us: 0 }
    }

    fn run(&mut self, client: u64, writes: Vec<PartitionId>, random: u64) -> Ran {
        self.now_us += 100;
        if self.now_us.is_multiple_of(10_000) {
            self.selector.tick(self.now_us / 1000);
        }
        self.requests += 1;
        let request = RequestId(self.requests);
        let (client, seen) = (ClientId(client), ClientVector::zero(SITES));
        let mut effects =
            self.selector.step(Event::Route { request, client, seen, writes, random });
        loop {
            let mut next = Vec::new();
            for effect in effects {
                if let Effect::Routed { site, moved, .. } = effect {
                    self.selector.step(Event::Began { request });
                    return Ran { site, remastered: moved > 0 };
                }
                let change = self.answer(effect);
                next.extend(self.selector.step(Event::Changed(change)));
            }
            effects = next;
        }
    }

    fn answer(&mut self, effect: Effect) -> Change {
        match effect {
            Effect::Release { site, partition, term, to } => {
                let vector = self.commit(site);
                Change { partition, term, kind: ChangeKind::Released { to }, vector }
            }
            Effect::Grant { site, release } => {
                let (partition, term) = (release.partition, release.term.next());
                Change { partition, term, kind: ChangeKind::Granted, vector: self.commit(site) }
            }
            other => panic!("no answer to {other:?}"),
        }
    }

    fn commit(&mut self, site: SiteId) -> TransactionVector {
        self.numbers[site.index()] += 1;
        let number = self.numbers[site.index()];
        let commit = TransactionVector::commit(&self.present, site, number);
        self.present.raise_to_commit(&commit);
        commit
    }
}

/// Where the first key of a transaction is.
enum Skew {
    Uniform,
    /// Of this exponent over partitions, whose ranks are scattered as YCSB scatters them.
    Zipf(f64),
}

struct Workload {
    partitions: u32,
    skew: Skew,
    /// Share of scans.
    scans: f64,
    random: Pcg64Mcg,
    /// Partition n is called n times this, or its own name when 1.
    renumber: u64,
}

impl Workload {
    fn new(partitions: u32, skew: Skew, scans: f64, seed: u64) -> Workload {
        Workload { partitions, skew, scans, random: Pcg64Mcg::seed_from_u64(seed), renumber: 1 }
    }

    fn base(&mut self) -> u32 {
        match self.skew {
            Skew::Uniform => self.random.random_range(0..self.partitions),
            Skew::Zipf(exponent) => {
                let zipf = Zipf::new(f64::from(self.partitions), exponent).unwrap();
                let rank = zipf.sample(&mut self.random) as u64;
                (rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % u64::from(self.partitions)) as u32
            }
        }
    }

    /// Three keys: the first anywhere, the others in its partition or up to two away, the nearer
    /// the likelier (binomially). Empty for a scan.
    fn writes(&mut self) -> Vec<PartitionId> {
        if self.random.random_bool(self.scans) {
            return Vec::new();
        }
        let base = i64::from(self.base());
        let near = Binomial::new(4, 0.5).unwrap();
        let last = i64::from(self.partitions) - 1;
        let offsets =
            [0, near.sample(&mut self.random) as i64 - 2, near.sample(&mut self.random) as i64 - 2];
        let name = |n: i64| (n as u64 * self.renumber % u64::from(self.partitions)) as u32;
        offsets.iter().map(|o| PartitionId(name((base + o).clamp(0, last)))).collect()
    }
}

/// What a stretch of transactions came to.
#[derive(Debug)]
struct Outcome {
    /// Share of all transactions that moved mastership.
    remastering: f64,
    /// Each site's share of update transactions.
    updates: [f64; SITES],
    /// Each site's share of all transactions.
    routed: [f64; SITES],
}

fn stretch(cluster: &mut Cluster, workload: &mut Workload, transactions: u64) -> Outcome {
    let mut clients = Pcg64Mcg::seed_from_u64(workload.random.random());
    stretch_of(cluster, &mut clients, &mut || workload.writes(), transactions)
}

/// `writes` says what the next transaction writes; empty for a read-only one.
fn stretch_of(
    cluster: &mut Cluster,
    clients: &mut Pcg64Mcg,
    writes: &mut dyn FnMut() -> Vec<PartitionId>,
    transactions: u64,
) -> Outcome {
    let (mut remastered, mut updates, mut routed) = (0_u64, [0_u64; SITES], [0_u64; SITES]);
    for _ in 0..transactions {
        let writes = writes();
        let client = clients.random_range(0..100);
        let is_update = !writes.is_empty();
        let ran = cluster.run(client, writes, clients.random());
        remastered += u64::from(ran.remastered);
        routed[ran.site.index()] += 1;
        updates[ran.site.index()] += u64::from(is_update);
    }
    let shares = |counts: [u64; SITES]| {
        let total = counts.iter().sum::<u64>() as f64;
        counts.map(|count| count as f64 / total)
    };
    Outcome {
        remastering: remastered as f64 / transactions as f64,
        updates: shares(updates),
        routed: shares(routed),
    }
}

/// Equal and simple: 10,000 partitions, first masters in turn, which is the worst start, for no
/// two neighbours are together.
fn cluster(weights: Weights) -> Cluster {
    let mut config = SelectorConfig::new(SITES, 10_000, Homes::RoundRobin);
    config.weights = weights;
    Cluster::new(config)
}

/// What the selector is given to learn from before anything is measured: without skew, partitions
/// that are written rarely take the longest to come together with their neighbours.
const WARM_UP: u64 = 1_500_000;
/// With skew, where most transactions are on few partitions.
const WARM_UP_SKEWED: u64 = 750_000;
/// What is then measured.
const MEASURED: u64 = 500_000;

fn learn_and_measure(weights: Weights, mut workload: Workload) -> Outcome {
    let mut cluster = cluster(weights);
    let warm_up = if let Skew::Uniform = workload.skew { WARM_UP } else { WARM_UP_SKEWED };
    stretch(&mut cluster, &mut workload, warm_up);
    let outcome = stretch(&mut cluster, &mut workload, MEASURED);
    println!("{outcome:.4?}");
    outcome
}

/// The distance of the worst site's share from a quarter, as a part of that quarter.
fn unevenness(shares: &[f64; SITES]) -> f64 {
    shares.iter().map(|share| (share / 0.25 - 1.0).abs()).fold(0.0, f64::max)
}

#[test]
fn under_3_percent_of_transactions_remaster_uniform_half_scans() {
    // DynaMast VI-B7 and VI-A2: less than 3 % of transactions; here of all, scans included.
    let outcome = learn_and_measure(Weights::ycsb(), Workload::new(10_000, Skew::Uniform, 0.5, 1));
    assert!(outcome.remastering < 0.03, "{outcome:?}");
    assert!(unevenness(&outcome.updates) < 0.02, "{outcome:?}");
    assert!(unevenness(&outcome.routed) < 0.02, "{outcome:?}");
}

#[test]
fn under_3_percent_remaster_and_load_is_even_within_2_percent_under_zipf_skew() {
    // DynaMast VI-B4: 90 % updates with zipf skew. "Even" is strict here: each site's share of
    // the update transactions, and of all, is 25 % give or take 2 % of that: 24.5 to 25.5 %.
    for seed in 1..=2 {
        let workload = Workload::new(10_000, Skew::Zipf(0.99), 0.1, seed);
        let outcome = learn_and_measure(Weights::ycsb(), workload);
        assert!(outcome.remastering < 0.03, "seed {seed}: {outcome:?}");
        assert!(unevenness(&outcome.updates) < 0.02, "seed {seed}: {outcome:?}");
        assert!(unevenness(&outcome.routed) < 0.02, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn without_the_balance_weight_one_site_gets_it_all() {
    // DynaMast VI-B6: with a balance weight of 0 nothing else encourages balance.
    let weights = Weights { balance: 0.0, ..Weights::ycsb() };
    let workload = Workload::new(10_000, Skew::Zipf(0.99), 0.1, 1);
    let outcome = learn_and_measure(weights, workload);
    assert!(unevenness(&outcome.updates) > 0.5, "{outcome:?}");
}

#[test]
fn a_changed_workload_is_learnt_anew() {
    // DynaMast VI-B5: after the correlations changed, remastering rises and falls again. The
    // change: what was near by is now elsewhere, as partitions are renumbered.
    let mut cluster = cluster(Weights::ycsb());
    let mut workload = Workload::new(10_000, Skew::Zipf(0.99), 0.0, 1);
    stretch(&mut cluster, &mut workload, WARM_UP_SKEWED);
    workload.renumber = 7_919;
    let first = stretch(&mut cluster, &mut workload, 50_000);
    stretch(&mut cluster, &mut workload, WARM_UP_SKEWED);
    let later = stretch(&mut cluster, &mut workload, 50_000);
    println!("{first:.4?}\n{later:.4?}");
    assert!(first.remastering > 0.03, "{first:?}");
    assert!(later.remastering < 0.03, "{later:?}");
}

/// TPC-C's updates by warehouse: New-Order, of which a tenth takes a line from another warehouse,
/// and Payment, of which 15 in 100 are by customers of another warehouse; a tenth only reads.
fn tpcc(random: &mut Pcg64Mcg, warehouses: u32) -> Vec<PartitionId> {
    let own = random.random_range(0..warehouses);
    let remote = match random.random_range(0..100) {
        0..45 => random.random_bool(0.1),
        45..90 => random.random_bool(0.15),
        _ => return Vec::new(),
    };
    let other = random.random_range(0..warehouses);
    if remote { vec![PartitionId(own), PartitionId(other)] } else { vec![PartitionId(own)] }
}

fn run_tpcc(weights: Weights) -> Outcome {
    let mut config = SelectorConfig::new(SITES, 40, Homes::RoundRobin);
    config.weights = weights;
    let mut cluster = Cluster::new(config);
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut writes = || tpcc(&mut random, 40);
    let mut clients = Pcg64Mcg::seed_from_u64(2);
    stretch_of(&mut cluster, &mut clients, &mut writes, 100_000);
    stretch_of(&mut cluster, &mut clients, &mut writes, 100_000)
}

#[test]
fn tpcc_by_warehouse_is_spread_evenly_and_moves_only_for_remote_warehouses() {
    // DynaMast VI-B3: which other warehouse a transaction takes from is random, so nothing can be
    // learnt of it: about 11 % of transactions write two warehouses, of which three quarters are
    // apart on four evenly loaded sites. The way out of that is one site for all, which the
    // weights must not take; with a hundredth of the balance weight they do.
    let outcome = run_tpcc(Weights::tpcc());
    assert!(outcome.remastering < 0.09, "{outcome:?}");
    assert!(unevenness(&outcome.updates) < 0.05, "{outcome:?}");
    let outcome = run_tpcc(Weights { balance: Weights::tpcc().balance / 100.0, ..Weights::tpcc() });
    assert!(outcome.remastering < 0.01 && unevenness(&outcome.updates) > 2.0, "{outcome:?}");
}

#[test]
fn what_starts_at_one_site_stays_there() {
    // A limit of the paper's approach, as it stands: mastership moves only when a transaction
    // needs it to, so an unbalanced start in which nothing is split is never balanced.
    let mut config = SelectorConfig::new(SITES, 1_000, Homes::All(SiteId(0)));
    config.weights = Weights::ycsb();
    let mut cluster = Cluster::new(config);
    let mut workload = Workload::new(1_000, Skew::Uniform, 0.0, 1);
    let outcome = stretch(&mut cluster, &mut workload, 20_000);
    assert_eq!((outcome.remastering, outcome.updates), (0.0, [1.0, 0.0, 0.0, 0.0]));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut cluster = cluster(Weights::ycsb());
        let mut workload = Workload::new(10_000, Skew::Zipf(0.99), 0.1, 9);
        format!("{:?}", stretch(&mut cluster, &mut workload, 20_000))
    };
    assert_eq!(run(), run());
}
