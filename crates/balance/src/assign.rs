//! Assigns a whole workload at once (vDBSM paper, sections 4 and 5.2), as if all transactions were submitted
//! one after another in some order, and none ended.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use crate::index::{ClassIndex, ConflictIndex};
use crate::policy::{Chooser, Policy, View};
use crate::workload::Workload;
use crate::{SERVERS_MAX, ServerId};

/// In which order transactions are assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The heaviest first (the example of section 4.3); equal ones as given.
    Weight,
    /// As given.
    Given,
    /// Shuffled (the analysis of section 5.2).
    Random,
}

/// Assigns every transaction of a workload; the answer has its server for each. The generator
/// serves the order and `Policy::Random`, so that the same seed gives the same assignment.
///
/// # Panics
/// When `servers` is 0 or above `SERVERS_MAX`.
pub fn assign(
    workload: &Workload,
    policy: Policy,
    servers: usize,
    order: Order,
    generator: &mut impl Rng,
) -> Vec<ServerId> {
    assert!((1..=SERVERS_MAX).contains(&servers), "{servers} servers");
    let mut chooser = Chooser::new(policy);
    let mut index = ClassIndex::new(&workload.relation, servers);
    let (mut load, up) = (vec![0; servers], vec![true; servers]);
    let none = vec![0; servers];
    let mut assigned = vec![ServerId(0); workload.transactions.len()];
    for place in ordered(workload, order, generator) {
        let transaction = &workload.transactions[place];
        let conflicting = transaction.update.map_or(&none[..], |class| index.conflicting(class));
        let view = View { load: &load, conflicting, up: &up };
        let update = transaction.update.is_some();
        let choice = chooser.choose(&view, update, generator.random());
        let server = choice.expect("all servers are up").server;
        load[server.index()] += transaction.weight.get();
        if let Some(class) = transaction.update {
            index.enter(class, server, transaction.weight);
        }
        assigned[place] = server;
    }
    assigned
}

fn ordered(workload: &Workload, order: Order, generator: &mut impl Rng) -> Vec<usize> {
    let mut places: Vec<usize> = (0..workload.transactions.len()).collect();
    match order {
        Order::Given => {}
        Order::Weight => {
            places.sort_by_key(|&place| std::cmp::Reverse(workload.transactions[place].weight));
        }
        Order::Random => places.shuffle(generator),
    }
    places
}
