//! The network between nodes, logs and clients: delay, loss, duplication, reordering and partitions, also in
//! one direction. It decides what becomes of a message; the kernel queues it.

use std::collections::BTreeSet;

use rand::RngExt;

use crate::node::{ClientId, NodeId};
use crate::random::Random;

/// Who sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// A node.
    Node(NodeId),
    /// The service that keeps the total-order logs.
    Logs,
    /// A client.
    Client(ClientId),
}

/// How messages between nodes travel. Appends to logs are always datagrams; what clients ask and
/// are answered gets lost but not doubled; a log is told to its followers reliably, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Each by itself: may be lost, doubled, reordered.
    Datagram,
    /// As over TCP: in order and once; what meets a cut waits for its end, a crash of either
    /// end loses what is on its way.
    Stream,
}

/// What the network does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkConfig {
    /// The least delay of a message, in microseconds.
    pub delay_us_min: u64,
    /// The usual greatest delay.
    pub delay_us_max: u64,
    /// The share of messages that take up to ten times as long.
    pub slow: f64,
    /// The share of datagrams that get lost.
    pub loss: f64,
    /// The share of datagrams that arrive twice.
    pub duplication: f64,
    /// Between nodes.
    pub transport: Transport,
}

impl Default for NetworkConfig {
    /// A local network that behaves badly now and then.
    fn default() -> Self {
        NetworkConfig {
            delay_us_min: 50,
            delay_us_max: 500,
            slow: 0.03,
            loss: 0.01,
            duplication: 0.01,
            transport: Transport::Datagram,
        }
    }
}

/// The network's state.
#[derive(Debug)]
pub(crate) struct Network {
    config: NetworkConfig,
    random: Random,
    cuts: BTreeSet<(Address, Address)>,
}

/// When copies of a datagram arrive, in microseconds from now.
pub(crate) struct Fate {
    pub first: Option<u64>,
    pub second: Option<u64>,
}

impl Network {
    pub fn new(config: NetworkConfig, random: Random) -> Network {
        Network { config, random, cuts: BTreeSet::new() }
    }

    pub fn transport(&self) -> Transport {
        self.config.transport
    }

    pub fn delay_us(&mut self) -> u64 {
        let NetworkConfig { delay_us_min, delay_us_max, slow, .. } = self.config;
        let usual = self.random.random_range(delay_us_min..=delay_us_max);
        if self.random.random_bool(slow) { usual * self.random.random_range(2..=10) } else { usual }
    }

    pub fn datagram(&mut self) -> Fate {
        let first = (!self.random.random_bool(self.config.loss)).then(|| self.delay_us());
        let second = self.random.random_bool(self.config.duplication).then(|| self.delay_us());
        Fate { first, second }
    }

    /// When something arrives that is sent over a connection of its own: once, or never.
    pub fn once(&mut self) -> Option<u64> {
        (!self.random.random_bool(self.config.loss)).then(|| self.delay_us())
    }

    pub fn is_cut(&self, from: Address, to: Address) -> bool {
        !self.cuts.is_empty() && self.cuts.contains(&(from, to))
    }

    pub fn cut(&mut self, from: Address, to: Address) {
        self.cuts.insert((from, to));
    }

    pub fn join(&mut self, from: Address, to: Address) {
        self.cuts.remove(&(from, to));
    }

    /// From here on no cuts, losses or duplicates.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.config.loss = 0.0;
        self.config.duplication = 0.0;
    }
}
