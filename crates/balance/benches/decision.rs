//! How long a decision takes: MPF 0.5, 16 servers, 1,000 running transactions, 8 items each (4
//! read, 4 written). A round is a submission and an end, so that 1,000 stay running; the
//! requirement is 2 microseconds for the submission.
//!
//! `cargo bench -p hihooi-balance`

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use hihooi_balance::Weight;
use hihooi_balance::index::{ClassIndex, ConflictIndex, Item, ItemIndex, Items};
use hihooi_balance::online::{Balancer, Event, Running};
use hihooi_balance::policy::{Factor, Policy};
use hihooi_balance::relation::{ClassId, Relation};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

const SERVERS: usize = 16;
const RUNNING: u64 = 1_000;
const ITEMS: usize = 8;

fn half() -> Policy {
    Policy::Mpf(Factor::new(0.5).expect("a factor"))
}

fn submit<A>(name: u64, access: A) -> Event<A> {
    let weight = Weight::new(1 + name % 7).expect("a weight");
    Event::Submit { name: Running(name), weight, update: Some(access), random: 0 }
}

/// Items of transaction after transaction: from so many, the fewer the more conflicts.
fn accesses(among: u64) -> Vec<[Item; ITEMS]> {
    let mut generator = Pcg64Mcg::seed_from_u64(1);
    (0..65_536).map(|_| std::array::from_fn(|_| Item(generator.random_range(0..among)))).collect()
}

fn items(items: &[Item; ITEMS]) -> Items<'_> {
    Items { reads: &items[..ITEMS / 2], writes: &items[ITEMS / 2..] }
}

/// A balancer with 1,000 running, and the name of the next.
fn busy<I: ConflictIndex>(index: I, access: impl Fn(u64) -> I::Access<'static>) -> Balancer<I> {
    let mut balancer = Balancer::new(half(), index, SERVERS, 2 * RUNNING as usize);
    for name in 0..RUNNING {
        balancer.step(submit(name, access(name))).expect("room");
    }
    balancer
}

fn decide<I: ConflictIndex>(
    criterion: &mut Criterion,
    label: &str,
    index: I,
    access: impl Fn(u64) -> I::Access<'static>,
) {
    let mut balancer = busy(index, &access);
    let mut next = RUNNING;
    criterion.bench_function(&format!("{label}: submission and end"), |bencher| {
        bencher.iter(|| {
            let effect = balancer.step(submit(next, access(next)));
            black_box(effect).expect("room");
            balancer.step(Event::Finish(Running(next - RUNNING))).expect("it runs");
            next += 1;
        });
    });
    let balancer = std::cell::RefCell::new(balancer);
    criterion.bench_function(&format!("{label}: submission"), |bencher| {
        bencher.iter_batched(
            || {
                let name = next;
                next += 1;
                let finish = Event::Finish(Running(name - RUNNING));
                balancer.borrow_mut().step(finish).expect("it runs");
                submit(name, access(name))
            },
            |event| balancer.borrow_mut().step(event),
            BatchSize::PerIteration,
        );
    });
}

fn decisions(criterion: &mut Criterion) {
    for (label, among) in [("items, few conflicts", 100_000), ("items, hot", 50)] {
        let accesses: &'static [_] = accesses(among).leak();
        let access = |name: u64| items(&accesses[name as usize % accesses.len()]);
        decide(criterion, label, ItemIndex::new(SERVERS), access);
    }
    let relation: &'static Relation =
        Box::leak(Box::new(Relation::from_fn(64, |a, b| a % 8 == b % 8)));
    let class = |name: u64| ClassId((name * 7 % 64) as u32);
    decide(criterion, "64 classes", ClassIndex::new(relation, SERVERS), class);
}

criterion_group!(benches, decisions);
criterion_main!(benches);
