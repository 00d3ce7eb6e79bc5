//! The balancer against a stupid twin that keeps every running transaction and works out the
//! sets of the vDBSM paper's sections 4.1 and 4.2 from their definitions at every step.

use std::collections::BTreeSet;

use hihooi_balance::assign::{Order, assign};
use hihooi_balance::index::{ClassIndex, ConflictIndex, Item, ItemIndex, Items};
use hihooi_balance::online::{Balancer, Effect, Event, Refusal, Running};
use hihooi_balance::policy::{Factor, Policy};
use hihooi_balance::relation::{ClassId, Relation};
use hihooi_balance::workload::{Transaction, Workload};
use hihooi_balance::{ServerId, Weight};
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

const SERVERS: usize = 5;

/// A running transaction.
#[derive(Clone, Debug)]
struct T<A> {
    name: u64,
    weight: u64,
    update: Option<A>,
    server: usize,
}

/// The definitions. `conflicting(a, b)` is the weight that b adds to a's conflicts, per unit of
/// b's own: 0 or 1 in the paper.
struct Twin<A, F: Fn(&A, &A) -> u64> {
    factor: Factor,
    conflicting: F,
    running: Vec<T<A>>,
    waiting: [u64; SERVERS],
    up: BTreeSet<usize>,
    ties: usize,
}

impl<A: Clone, F: Fn(&A, &A) -> u64> Twin<A, F> {
    fn new(factor: Factor, conflicting: F) -> Self {
        let up = (0..SERVERS).collect();
        Twin { factor, conflicting, running: Vec::new(), waiting: [0; SERVERS], up, ties: 0 }
    }

    /// w(S_k, t), and the remote updates that wait there.
    fn w(&self, server: usize) -> u64 {
        let here = self.running.iter().filter(|t| t.server == server);
        here.map(|t| t.weight).sum::<u64>() + self.waiting[server]
    }

    /// w(C_T(S_k^t)).
    fn c(&self, server: usize, access: &A) -> u64 {
        let here = self.running.iter().filter(|t| t.server == server);
        let each = here.map(|t| match &t.update {
            Some(other) => t.weight * (self.conflicting)(access, other),
            None => 0,
        });
        each.sum()
    }

    fn lightest(&self, among: &BTreeSet<usize>) -> usize {
        let lowest = among.iter().map(|&s| self.w(s)).min().expect("not empty");
        among.iter().copied().find(|&s| self.w(s) == lowest).expect("attained")
    }

    fn submit(&mut self, name: u64, weight: u64, update: Option<A>) -> Option<usize> {
        if self.up.is_empty() {
            return None;
        }
        let server = match &update {
            None => self.lightest(&self.up),
            Some(access) => {
                let access = access.clone();
                self.for_update(&access)
            }
        };
        self.running.push(T { name, weight, update, server });
        Some(server)
    }

    fn for_update(&mut self, access: &A) -> usize {
        let lowest = self.up.iter().map(|&s| self.w(s)).min().expect("not empty");
        let similar = |s: usize| self.w(s) as f64 * self.factor.get() <= lowest as f64 + 1e-7;
        let w: BTreeSet<usize> = self.up.iter().copied().filter(|&s| similar(s)).collect();
        if w.len() == 1 {
            return *w.first().expect("one");
        }
        let c: BTreeSet<usize> = w.iter().copied().filter(|&s| self.c(s, access) > 0).collect();
        match c.len() {
            0 => self.lightest(&w),
            1 => *c.first().expect("one"),
            _ => {
                let most = c.iter().map(|&s| self.c(s, access)).max().expect("not empty");
                let tied: Vec<usize> =
                    c.into_iter().filter(|&s| self.c(s, access) == most).collect();
                let turn = self.ties;
                self.ties += usize::from(tied.len() > 1);
                tied[turn % tied.len()]
            }
        }
    }
}

/// What may happen; places are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step<A> {
    Submit(u64, Option<A>),
    Finish(usize),
    Waiting(usize, u64),
    Down(usize),
    Up(usize),
}

fn steps<A: Clone + std::fmt::Debug + 'static>(
    access: impl Strategy<Value = A> + Clone + 'static,
) -> impl Strategy<Value = Vec<Step<A>>> {
    let step = prop_oneof![
        12 => (1u64..9, proptest::option::weighted(0.8, access))
            .prop_map(|(weight, update)| Step::Submit(weight, update)),
        7 => any::<usize>().prop_map(Step::Finish),
        1 => (0..SERVERS, 0u64..20).prop_map(|(server, weight)| Step::Waiting(server, weight)),
        1 => (0..SERVERS).prop_map(Step::Down),
        2 => (0..SERVERS).prop_map(Step::Up),
    ];
    proptest::collection::vec(step, 1..150)
}

fn factors() -> impl Strategy<Value = Factor> {
    prop_oneof![Just(0.0), Just(1.0), Just(0.5), Just(0.8), 0.001..1.0]
        .prop_map(|factor| Factor::new(factor).expect("a factor"))
}

fn id(server: usize) -> ServerId {
    ServerId(u16::try_from(server).expect("few"))
}

/// Runs both and compares every choice and every load.
fn compare<A: Clone, I: ConflictIndex>(
    mut twin: Twin<A, impl Fn(&A, &A) -> u64>,
    index: I,
    steps: &[Step<A>],
    with: impl for<'a> Fn(&'a A) -> I::Access<'a>,
) -> Balancer<I> {
    let mut balancer = Balancer::new(Policy::Mpf(twin.factor), index, SERVERS, 1_000);
    for (name, step) in (0u64..).zip(steps) {
        match step {
            Step::Submit(weight, update) => {
                let event = Event::Submit {
                    name: Running(name),
                    weight: Weight::new(*weight).expect("a weight"),
                    update: update.as_ref().map(&with),
                    random: 0,
                };
                let chosen = match balancer.step(event) {
                    Ok(Effect::Assigned(choice)) => Some(choice.server.index()),
                    Err(Refusal::NoServer) => None,
                    other => panic!("{other:?}"),
                };
                assert_eq!(chosen, twin.submit(name, *weight, update.clone()), "T{name}");
            }
            Step::Finish(place) if twin.running.is_empty() => {
                let name = Running(*place as u64);
                assert_eq!(balancer.step(Event::Finish(name)), Err(Refusal::NotRunning(name)));
            }
            Step::Finish(place) => {
                let ended = twin.running.swap_remove(place % twin.running.len());
                balancer.step(Event::Finish(Running(ended.name))).expect("it runs");
            }
            Step::Waiting(server, weight) => {
                let event = Event::Waiting { server: id(*server), weight: *weight };
                balancer.step(event).expect("known");
                twin.waiting[*server] = *weight;
            }
            Step::Down(server) => {
                balancer.step(Event::Down(id(*server))).expect("known");
                twin.waiting[*server] = 0;
                twin.up.remove(server);
            }
            Step::Up(server) => {
                balancer.step(Event::Up(id(*server))).expect("known");
                twin.up.insert(*server);
            }
        }
        let loads: Vec<u64> = (0..SERVERS).map(|server| twin.w(server)).collect();
        assert_eq!(balancer.load(), loads);
        assert_eq!(balancer.running(), twin.running.len());
    }
    for t in &twin.running {
        balancer.step(Event::Finish(Running(t.name))).expect("it runs");
    }
    balancer
}

/// Items of a transaction: distinct, split into read and written ones.
type Sets = (Vec<Item>, Vec<Item>);

fn sets(among: u64) -> impl Strategy<Value = Sets> + Clone {
    let items = proptest::collection::btree_set(0..among, 0..6);
    (items, 0usize..6).prop_map(|(items, split)| {
        let items: Vec<Item> = items.into_iter().map(Item).collect();
        let (reads, writes) = items.split_at(split.min(items.len()));
        (reads.to_vec(), writes.to_vec())
    })
}

fn as_items((reads, writes): &Sets) -> Items<'_> {
    Items { reads, writes }
}

/// On how many items two transactions conflict.
fn shared(a: &Sets, b: &Sets) -> u64 {
    let meets = |x: &[Item], y: &[Item]| x.iter().filter(|&item| y.contains(item)).count() as u64;
    meets(&a.1, &b.1) + meets(&a.1, &b.0) + meets(&a.0, &b.1)
}

/// Whether they conflict: the paper's section 3.
fn conflict(a: &Sets, b: &Sets) -> u64 {
    shared(a, b).min(1)
}

/// Item sets of which no two share more than one item: a hot one, written or read, and some that
/// nobody else has (they are made of the hot one's number and a nonce).
fn one_hot() -> impl Strategy<Value = Sets> + Clone {
    (0u64..6, any::<bool>(), any::<u32>()).prop_map(|(hot, write, nonce)| {
        let own = vec![Item((1 << 40) + u64::from(nonce))];
        if write { (own, vec![Item(hot)]) } else { (vec![Item(hot)], own) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// By class: the paper's definitions to the letter.
    #[test]
    fn by_class_it_is_the_paper(
        factor in factors(),
        pairs in proptest::collection::btree_set((0usize..8, 0usize..8), 0..20),
        steps in steps(0u32..8),
    ) {
        let relation = Relation::from_fn(8, |a, b| pairs.contains(&(a, b)));
        let related = |a: &u32, b: &u32| {
            let pair = |a: u32, b: u32| pairs.contains(&(a as usize, b as usize));
            u64::from(pair(*a, *b) || pair(*b, *a))
        };
        let index = ClassIndex::new(&relation, SERVERS);
        let balancer = compare(Twin::new(factor, related), index, &steps, |&class| ClassId(class));
        for class in 0..8 {
            prop_assert_eq!(balancer.index().conflicting(ClassId(class)), &[0; SERVERS]);
        }
    }

    /// By items: weights count once per shared item; nothing is left when all has ended (I8).
    #[test]
    fn by_items_weights_count_per_shared_item(factor in factors(), steps in steps(sets(12))) {
        let balancer = compare(Twin::new(factor, shared), ItemIndex::new(SERVERS), &steps, as_items);
        prop_assert_eq!(balancer.index().items(), 0);
        prop_assert_eq!(balancer.load().iter().filter(|&&load| load >= 20).count(), 0);
    }

    /// By items, no two shared: the paper's definitions to the letter.
    #[test]
    fn by_items_it_is_the_paper_where_one_item_is_shared(
        factor in factors(),
        steps in steps(one_hot()),
    ) {
        compare(Twin::new(factor, conflict), ItemIndex::new(SERVERS), &steps, as_items);
    }

    /// The static assignment is the on-line one in which nothing ends.
    #[test]
    fn a_static_assignment_is_submission_without_end(
        factor in factors(),
        types in proptest::collection::vec((1u64..9, proptest::option::of(0u32..6)), 1..40),
        modulus in 1usize..6,
    ) {
        let relation = Relation::from_fn(6, |a, b| a % modulus == b % modulus);
        let transactions = types.iter().map(|&(weight, class)| Transaction {
            name: String::new(),
            weight: Weight::new(weight).expect("a weight"),
            update: class.map(ClassId),
        });
        let workload = Workload { transactions: transactions.collect(), relation };
        let mut generator = Pcg64Mcg::seed_from_u64(1);
        let assigned =
            assign(&workload, Policy::Mpf(factor), SERVERS, Order::Given, &mut generator);
        let related = |a: &u32, b: &u32| u64::from(*a as usize % modulus == *b as usize % modulus);
        let mut twin = Twin::new(factor, related);
        for (place, &(weight, class)) in types.iter().enumerate() {
            let chosen = twin.submit(place as u64, weight, class);
            prop_assert_eq!(chosen, Some(assigned[place].index()));
        }
    }
}

fn submit(balancer: &mut Balancer<ItemIndex>, name: u64, weight: u64, items: &Sets) -> usize {
    let event = Event::Submit {
        name: Running(name),
        weight: Weight::new(weight).expect("a weight"),
        update: Some(as_items(items)),
        random: 0,
    };
    match balancer.step(event) {
        Ok(Effect::Assigned(choice)) => choice.server.index(),
        other => panic!("{other:?}"),
    }
}

/// The departure of the item index, by its smallest example: a transaction of weight 3 that
/// shares two items counts 6 against one of weight 5 that shares one. The paper prefers the 5.
#[test]
fn two_shared_items_count_twice() {
    let writes = |items: &[u64]| (Vec::new(), items.iter().map(|&item| Item(item)).collect());
    let mut balancer = Balancer::new(Policy::MCF, ItemIndex::new(2), 2, 10);
    assert_eq!(submit(&mut balancer, 0, 3, &writes(&[1, 2])), 0);
    assert_eq!(submit(&mut balancer, 1, 5, &writes(&[3])), 1);
    assert_eq!(submit(&mut balancer, 2, 1, &writes(&[1, 2, 3])), 0);
}

/// Section 6: only what executes counts. When the transaction that it would join has ended, one
/// that conflicts with it goes by load.
#[test]
fn what_has_ended_attracts_nobody() {
    let hot: Sets = (Vec::new(), vec![Item(7)]);
    let mut balancer = Balancer::new(Policy::MCF, ItemIndex::new(2), 2, 10);
    assert_eq!(submit(&mut balancer, 0, 5, &hot), 0);
    assert_eq!(submit(&mut balancer, 1, 5, &hot), 0);
    balancer.step(Event::Finish(Running(0))).expect("runs");
    balancer.step(Event::Finish(Running(1))).expect("runs");
    balancer.step(Event::Waiting { server: ServerId(0), weight: 1 }).expect("known");
    assert_eq!(submit(&mut balancer, 2, 5, &hot), 1);
}

/// I8: the bound is kept, and what it refuses changes nothing.
#[test]
fn refusals_change_nothing() {
    let hot: Sets = (Vec::new(), vec![Item(7)]);
    let mut balancer = Balancer::new(Policy::MCF, ItemIndex::new(2), 2, 1);
    submit(&mut balancer, 0, 5, &hot);
    let again = |name| Event::Submit {
        name: Running(name),
        weight: Weight::new(1).expect("a weight"),
        update: Some(as_items(&hot)),
        random: 0,
    };
    assert_eq!(balancer.step(again(1)), Err(Refusal::Full(1)));
    assert_eq!(balancer.step(again(0)), Err(Refusal::Duplicate(Running(0))));
    let nowhere = ServerId(2);
    assert_eq!(balancer.step(Event::Down(nowhere)), Err(Refusal::UnknownServer(nowhere)));
    let waiting = Event::Waiting { server: ServerId(0), weight: u64::MAX };
    assert_eq!(balancer.step(waiting), Err(Refusal::Waiting(u64::MAX)));
    assert_eq!((balancer.load(), balancer.running()), (&[5, 0][..], 1));
    balancer.step(Event::Finish(Running(0))).expect("runs");
    balancer.step(Event::Down(ServerId(0))).expect("known");
    balancer.step(Event::Down(ServerId(1))).expect("known");
    assert_eq!(balancer.step(again(3)), Err(Refusal::NoServer));
    assert_eq!((balancer.load(), balancer.running()), (&[0, 0][..], 0));
}
