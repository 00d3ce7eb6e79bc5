//! How long the site selector takes to decide: 16 sites, 100,000 partition groups, a history of
//! correlated write sets. To be under 20 microseconds.
//!
//! "Sampled": every transaction goes into the history, as on a cluster with few of them. Otherwise
//! 20,000 arrive in a second, of which the history keeps every sixth.

use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use hihooi_mastering::ids::{ClientId, PartitionId, SiteId};
use hihooi_mastering::mastership::Homes;
use hihooi_mastering::record::{Change, ChangeKind};
use hihooi_mastering::selector::config::SelectorConfig;
use hihooi_mastering::selector::{Effect, Event, RequestId, Selector};
use hihooi_mastering::vector::{ClientVector, SiteVector, TransactionVector};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SITES: usize = 16;
const PARTITIONS: u32 = 100_000;

struct Bench {
    selector: Selector,
    random: Pcg64Mcg,
    requests: u64,
    numbers: [u64; SITES],
    seen: ClientVector,
    /// How many partitions a transaction writes.
    width: u32,
    /// Whether time stands still, so that everything is sampled.
    sampled: bool,
    now_us: u64,
}

impl Bench {
    /// With homes in runs of `run` partitions a site, and a past of 200,000 transactions.
    fn new(run: u32, width: u32, sampled: bool) -> Bench {
        let homes = (0..PARTITIONS).map(|p| SiteId((p / run % SITES as u32) as u16)).collect();
        let config = SelectorConfig::new(SITES, PARTITIONS, Homes::Given(homes));
        let selector = Selector::new(config);
        let random = Pcg64Mcg::seed_from_u64(1);
        let seen = ClientVector::zero(SITES);
        let mut bench = Bench {
            selector,
            random,
            requests: 0,
            numbers: [0; SITES],
            seen,
            width,
            sampled,
            now_us: 0,
        };
        for _ in 0..200_000 {
            bench.transaction();
        }
        bench
    }

    /// Neighbours of a hot tenth of the partitions, so that each has a past.
    fn writes(&mut self) -> Vec<PartitionId> {
        let base = self.random.random_range(0..PARTITIONS / 10);
        (0..self.width).map(|_| PartitionId(base + self.random.random_range(0..20))).collect()
    }

    /// One transaction from its request until mastership has moved.
    fn transaction(&mut self) {
        let writes = self.writes();
        let event = self.request(writes);
        let effects = self.selector.step(event);
        self.finish(effects);
    }

    fn request(&mut self, writes: Vec<PartitionId>) -> Event {
        self.requests += 1;
        if !self.sampled {
            self.now_us += 50;
            if self.now_us.is_multiple_of(1_000) {
                self.selector.tick(self.now_us / 1_000);
            }
        }
        let client = ClientId(self.random.random_range(0..1000));
        let (seen, random) = (self.seen.clone(), self.random.next_u64());
        Event::Route { request: RequestId(self.requests), client, seen, writes, random }
    }

    fn finish(&mut self, mut effects: Vec<Effect>) {
        while !effects.is_empty() {
            let mut next = Vec::new();
            for effect in effects {
                let event = match effect {
                    Effect::Release { site, partition, term, to } => {
                        let kind = ChangeKind::Released { to };
                        Event::Changed(Change { partition, term, kind, vector: self.commit(site) })
                    }
                    Effect::Grant { site, release } => Event::Changed(Change {
                        partition: release.partition,
                        term: release.term.next(),
                        kind: ChangeKind::Granted,
                        vector: self.commit(site),
                    }),
                    Effect::Routed { request, .. } => Event::Began { request },
                    Effect::Refused { .. } => continue,
                };
                next.extend(self.selector.step(event));
            }
            effects = next;
        }
    }

    fn commit(&mut self, site: SiteId) -> TransactionVector {
        self.numbers[site.index()] += 1;
        let present = SiteVector::of(&self.numbers);
        TransactionVector::commit(&present, site, self.numbers[site.index()])
    }

    /// A write set that needs no move, or one that needs some.
    fn writes_that(&mut self, split: bool) -> Vec<PartitionId> {
        loop {
            let writes = self.writes();
            let first = self.selector.master(writes[0]);
            if writes.iter().any(|p| self.selector.master(*p) != first) == split {
                return writes;
            }
        }
    }
}

/// Times only the step that takes the request.
fn time_requests(c: &mut Criterion, name: &str, bench: &mut Bench, split: bool) {
    c.bench_function(name, |b| {
        b.iter_custom(|count| {
            let one = |_| {
                let writes = bench.writes_that(split);
                let event = bench.request(writes);
                let start = Instant::now();
                let effects = bench.selector.step(event);
                let took = start.elapsed();
                bench.finish(effects);
                took
            };
            (0..count).map(one).sum()
        });
    });
}

fn decisions(c: &mut Criterion) {
    for (width, sampled) in [(3, false), (3, true), (10, false)] {
        let how = if sampled { ", sampled" } else { "" };
        let mut bench = Bench::new(1000, width, sampled);
        let name = format!("{width} partitions at one site{how}: route");
        time_requests(c, &name, &mut bench, false);
        let mut bench = Bench::new(1, width, sampled);
        let name = format!("{width} partitions apart{how}: decide and ask for releases");
        time_requests(c, &name, &mut bench, true);
        let mut writes = bench.writes();
        writes.sort_unstable();
        writes.dedup();
        c.bench_function(&format!("{width} partitions apart{how}: equations 2 to 8"), |b| {
            b.iter(|| bench.selector.best_site(&writes, &bench.seen));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = decisions
}
criterion_main!(benches);
