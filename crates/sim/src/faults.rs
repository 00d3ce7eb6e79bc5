//! Which faults happen in a run, and when: drawn from the seed within named bounds, with a time after which
//! there are no faults, so that liveness can be checked.

use rand::RngExt;

use crate::network::Address;
use crate::node::NodeId;
use crate::random::{Purpose, Random, generator};
use crate::time::Time;

/// Something that goes wrong, or right again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The node stops at once; what it had not persisted is gone.
    Crash(NodeId),
    /// The node starts again from its disk.
    Restart(NodeId),
    /// Nothing gets from one of the first to one of the second any more.
    Cut(Vec<Address>, Vec<Address>),
    /// It does again.
    Join(Vec<Address>, Vec<Address>),
    /// No cut, loss or duplicate from here on, and every node runs.
    Heal,
}

/// How bad it may get.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FaultBounds {
    /// From here on all is well.
    pub heal_at: Time,
    /// At most so many crashes.
    pub crashes_max: u32,
    /// A node is down for at most so long.
    pub down_us_max: u64,
    /// At most so many cuts.
    pub cuts_max: u32,
    /// A cut lasts at most so long.
    pub cut_us_max: u64,
}

impl FaultBounds {
    /// What most trials have, for [`FaultPlan::of_trial`].
    pub const USUAL: FaultBounds = FaultBounds {
        heal_at: Time(0),
        crashes_max: 5,
        down_us_max: 40_000,
        cuts_max: 4,
        cut_us_max: 30_000,
    };

    /// Nothing goes wrong but what the network does by itself until then.
    #[must_use]
    pub fn none(heal_at: Time) -> FaultBounds {
        FaultBounds { heal_at, crashes_max: 0, down_us_max: 0, cuts_max: 0, cut_us_max: 0 }
    }
}

/// The faults of a run, in any order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlan(pub Vec<(Time, Fault)>);

impl FaultPlan {
    /// The faults of a trial: all heals after 30 to 250 ms, whatever the bounds say about that, and
    /// one trial in five has none but what the network does by itself.
    pub fn of_trial(seed: u64, bounds: FaultBounds, nodes: u16, random: &mut Random) -> FaultPlan {
        let heal_at = Time(random.random_range(30_000..250_000));
        let calm = random.random_bool(0.2);
        let bounds =
            if calm { FaultBounds::none(heal_at) } else { FaultBounds { heal_at, ..bounds } };
        FaultPlan::random(bounds, nodes, &mut generator(seed, Purpose::Faults))
    }

    /// A plan within the bounds. Several nodes may be down at once, all of them too.
    pub fn random(bounds: FaultBounds, nodes: u16, random: &mut Random) -> FaultPlan {
        let mut plan = vec![(bounds.heal_at, Fault::Heal)];
        for _ in 0..up_to(bounds.crashes_max, random) {
            let node = NodeId(random.random_range(0..nodes));
            let (from, to) = span(bounds.heal_at, bounds.down_us_max, random);
            plan.extend([(from, Fault::Crash(node)), (to, Fault::Restart(node))]);
        }
        for _ in 0..up_to(bounds.cuts_max, random) {
            let (a, b) = sides(nodes, random);
            let (from, to) = span(bounds.heal_at, bounds.cut_us_max, random);
            if random.random_bool(0.5) {
                plan.push((from, Fault::Cut(b.clone(), a.clone())));
                plan.push((to, Fault::Join(b.clone(), a.clone())));
            }
            plan.extend([(from, Fault::Cut(a.clone(), b.clone())), (to, Fault::Join(a, b))]);
        }
        FaultPlan(plan)
    }
}

fn up_to(max: u32, random: &mut Random) -> u32 {
    random.random_range(0..=max)
}

fn span(before: Time, us_max: u64, random: &mut Random) -> (Time, Time) {
    let from = random.random_range(0..before.0.max(1));
    let us = random.random_range(0..=us_max);
    (Time(from), Time((from + us).min(before.0)))
}

/// Some nodes on one side; the others, the logs, or both on the other.
fn sides(nodes: u16, random: &mut Random) -> (Vec<Address>, Vec<Address>) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for node in (0..nodes).map(|n| Address::Node(NodeId(n))) {
        if random.random_bool(0.5) { a.push(node) } else { b.push(node) }
    }
    match random.random_range(0..3) {
        0 => b = vec![Address::Logs],
        1 => b.push(Address::Logs),
        _ => {}
    }
    (a, b)
}
