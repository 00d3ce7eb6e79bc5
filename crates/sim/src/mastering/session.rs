//! Clients with sessions: each asks a selector where to run a transaction, and then sends the transaction to
//! that site. In the end each repeats an update until it commits, which is what liveness means here.

use std::rc::Rc;

use hihooi_mastering::ids::PartitionId;
use hihooi_mastering::vector::ClientVector;
use rand::RngExt;

use crate::mastering::node::{Config, Member, Op, Planted, Request, Response, Work};
use crate::mastering::rows::{Element, Key};
use crate::{Call, Client, Next, NodeId, Random, Time};

/// A client gives up after so long.
const TIMEOUT_US: u64 = 50_000;

/// What transactions are like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mix {
    /// Steps of a transaction, at most.
    pub ops_max: u64,
    /// The share of transactions that only read.
    pub read_only: f64,
    /// The share of transactions that only read that read every row.
    pub wide: f64,
    /// The share of steps that write, in transactions that may.
    pub writes: f64,
    /// How long a transaction lasts, at most.
    pub lasts_us_max: u64,
    /// How long a client thinks between two, at most.
    pub think_us_max: u64,
}

impl Mix {
    /// A random one.
    pub fn random(random: &mut Random) -> Mix {
        Mix {
            ops_max: random.random_range(2..6),
            read_only: random.random_range(0.1..0.6),
            wide: random.random_range(0.0..0.5),
            writes: random.random_range(0.3..0.8),
            lasts_us_max: random.random_range(100..2_000),
            think_us_max: random.random_range(1..1_500),
        }
    }
}

/// A client.
#[derive(Debug)]
pub struct Session {
    config: Rc<Config>,
    mix: Mix,
    number: u64,
    nodes: u16,
    left: u32,
    elements: u64,
    seen: ClientVector,
    /// What it asked a selector to route.
    planned: Option<Plan>,
    thinks: bool,
    done: bool,
}

#[derive(Clone, Debug)]
struct Plan {
    ops: Vec<Op>,
    partitions: Vec<PartitionId>,
}

impl Session {
    /// The client of this number, to do so many transactions and then one that must commit.
    #[must_use]
    pub fn new(config: &Rc<Config>, mix: Mix, number: u16, nodes: u16, left: u32) -> Session {
        Session {
            config: config.clone(),
            mix,
            number: u64::from(number),
            nodes,
            left,
            elements: 0,
            seen: ClientVector::zero(usize::from(config.sites)),
            planned: None,
            thinks: false,
            done: false,
        }
    }

    fn fresh(&mut self) -> Element {
        self.elements += 1;
        self.elements << 8 | self.number
    }

    fn ops(&mut self, random: &mut Random) -> Vec<Op> {
        let last = self.left == 0;
        let only_reads = !last && random.random_bool(self.mix.read_only);
        if only_reads && random.random_bool(self.mix.wide) {
            return (0..self.config.keys).map(Op::Read).collect();
        }
        let writes = if only_reads { 0.0 } else { self.mix.writes };
        let mut written: Vec<Key> = Vec::new();
        let count = random.random_range(1..=self.mix.ops_max);
        (0..count)
            .map(|n| {
                let key = random.random_range(0..self.config.keys);
                let write = (last && n == 0) || random.random_bool(writes);
                if write && !written.contains(&key) {
                    written.push(key);
                    Op::Append(key, self.fresh())
                } else {
                    Op::Read(key)
                }
            })
            .collect()
    }

    fn plan(&mut self, random: &mut Random) -> Next<Member> {
        let ops = self.ops(random);
        let written = ops.iter().filter_map(|op| match op {
            Op::Append(key, _) => Some(self.config.partition(*key)),
            Op::Read(_) => None,
        });
        let partitions: Vec<PartitionId> = written.collect();
        let request = Request::Route { seen: self.told(), writes: partitions.clone() };
        self.planned = Some(Plan { ops, partitions });
        let to = NodeId(random.random_range(self.config.sites..self.nodes));
        Next::Ask { to, request, timeout_us: TIMEOUT_US }
    }

    fn told(&self) -> ClientVector {
        if self.config.planted == Planted::SessionForgotten {
            return ClientVector::zero(usize::from(self.config.sites));
        }
        self.seen.clone()
    }

    /// Where to, if the last call was answered so.
    fn run(&mut self, random: &mut Random, last: &Call<Member>) -> Option<Next<Member>> {
        let Response::Routed { site, request, floor } = &**last.response.as_ref()? else {
            return None;
        };
        let Plan { ops, partitions } = self.planned.take()?;
        let work = Work {
            selector: last.to,
            request: *request,
            seen: self.told(),
            floor: floor.clone(),
            partitions,
            ops,
            lasts_us: random.random_range(1..=self.mix.lasts_us_max),
        };
        let (to, request) = (NodeId(site.0), Request::Run(Rc::new(work)));
        Some(Next::Ask { to, request, timeout_us: TIMEOUT_US })
    }

    fn learn(&mut self, last: &Call<Member>) {
        if let Some(Response::Committed { snapshot, vector, .. }) = last.response.as_deref() {
            self.seen.saw(snapshot);
            vector.iter().for_each(|vector| self.seen.committed(vector));
            self.done |= self.left == 0;
            self.left = self.left.saturating_sub(1);
        } else if self.left > 0 {
            self.left -= 1;
        }
    }
}

impl Client<Member> for Session {
    fn next(&mut self, _: Time, random: &mut Random, last: Option<&Call<Member>>) -> Next<Member> {
        if let Some(last) = last {
            if let Some(next) = self.run(random, last) {
                return next;
            }
            self.learn(last);
        }
        if self.done {
            return Next::End;
        }
        self.thinks = !self.thinks;
        if self.thinks {
            return Next::Wait(random.random_range(0..=self.mix.think_us_max));
        }
        self.plan(random)
    }
}
