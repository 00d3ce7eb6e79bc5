//! The balancer of a running system (vDBSM paper, sections 4 and 6): when a transaction is submitted, a server
//! is chosen, and the transaction counts there until it ends.
//!
//! Load of a server: the weight of the transactions that were sent there and have not ended, read-only ones
//! too, and the weight of remote updates that it last reported as waiting to be applied. Transactions that have
//! ended don't count. Remote updates count as load, not as conflicts. The balancer needs no clock: it is told
//! when transactions begin and end, and a report is valid until the server's next one.
//!
//! Departures.
//! - In the paper's section 4 assignments are permanent; in its section 6 only running transactions count. This
//!   file implements the latter, and `assign` the former.
//! - A server that goes down is not chosen until it is up again and its report is forgotten. Its transactions
//!   count until the caller ends each of them.

use std::collections::HashMap;

use crate::index::ConflictIndex;
use crate::policy::{Choice, Chooser, Policy, View};
use crate::{SERVERS_MAX, ServerId, Weight};

/// The caller's name of a running transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Running(pub u64);

/// What happens to a balancer; `A` is what a transaction accesses.
#[derive(Clone, Copy, Debug)]
pub enum Event<A> {
    /// A transaction wants a server.
    Submit {
        /// Its name, not in use.
        name: Running,
        /// Its cost.
        weight: Weight,
        /// What it accesses; None if it is read-only.
        update: Option<A>,
        /// Random bits for `Policy::Random`; others ignore them.
        random: u64,
    },
    /// A transaction committed, aborted or was lost.
    Finish(Running),
    /// A server's remote updates that wait to be applied, by weight.
    Waiting {
        /// Who reports.
        server: ServerId,
        /// Replaces its last report.
        weight: u64,
    },
    /// A server can't be used.
    Down(ServerId),
    /// It can again. At the beginning all are up.
    Up(ServerId),
}

/// What an event led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The submitted transaction runs there.
    Assigned(Choice),
    /// Noted.
    Noted,
}

/// Why an event changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Every server is down: try again when one is up.
    #[error("no server is up")]
    NoServer,
    /// The bound of running transactions is reached: wait for one to end.
    #[error("{0} transactions are running, which is the bound")]
    Full(usize),
    /// The name is in use.
    #[error("transaction {} is running already", .0.0)]
    Duplicate(Running),
    /// No such transaction runs.
    #[error("transaction {} is not running", .0.0)]
    NotRunning(Running),
    /// No such server.
    #[error("there is no server {}", .0.0)]
    UnknownServer(ServerId),
    /// More than `WAITING_MAX`.
    #[error("a waiting weight of {0} is above the bound")]
    Waiting(u64),
}

/// The highest bound of running transactions: no sum of their weights overflows, not even when
/// each counts for every item.
pub const RUNNING_MAX: usize = 1 << 16;

/// The highest weight of waiting remote updates that a server may report.
pub const WAITING_MAX: u64 = 1 << 62;

struct Placed<E> {
    server: ServerId,
    weight: Weight,
    entry: Option<E>,
}

/// The state of a balancer.
pub struct Balancer<I: ConflictIndex> {
    chooser: Chooser,
    index: I,
    load: Vec<u64>,
    waiting: Vec<u64>,
    up: Vec<bool>,
    /// Never iterated. Bound: `running_max`.
    running: HashMap<Running, Placed<I::Entry>, ahash::RandomState>,
    running_max: usize,
    /// Room for a decision's weights.
    conflicting: Vec<u64>,
}

impl<I: ConflictIndex> Balancer<I> {
    /// A balancer over so many servers, all up and idle, with at most `running_max` transactions
    /// at a time. The index is one for as many servers, and empty.
    ///
    /// # Panics
    /// When `servers` is 0 or above `SERVERS_MAX`, or `running_max` above `RUNNING_MAX`.
    #[must_use]
    pub fn new(policy: Policy, index: I, servers: usize, running_max: usize) -> Balancer<I> {
        assert!((1..=SERVERS_MAX).contains(&servers), "{servers} servers");
        assert!(running_max <= RUNNING_MAX, "running_max is {running_max}");
        Balancer {
            chooser: Chooser::new(policy),
            index,
            load: vec![0; servers],
            waiting: vec![0; servers],
            up: vec![true; servers],
            running: HashMap::default(),
            running_max,
            conflicting: vec![0; servers],
        }
    }

    /// Load per server, waiting remote updates included.
    #[must_use]
    pub fn load(&self) -> &[u64] {
        &self.load
    }

    /// Number of running transactions.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The index.
    #[must_use]
    pub fn index(&self) -> &I {
        &self.index
    }

    /// Takes an event.
    ///
    /// # Errors
    /// What is wrong with it; nothing has changed then.
    pub fn step(&mut self, event: Event<I::Access<'_>>) -> Result<Effect, Refusal> {
        match event {
            Event::Submit { name, weight, update, random } => {
                self.check_room(name)?;
                let choice = self.choose(update, random)?;
                self.place(name, choice.server, weight, update);
                return Ok(Effect::Assigned(choice));
            }
            Event::Finish(name) => self.finish(name)?,
            Event::Waiting { server, weight } => self.report(server, weight)?,
            Event::Down(server) => {
                self.report(server, 0)?;
                self.up[server.index()] = false;
            }
            Event::Up(server) => {
                let server = self.known(server)?;
                self.up[server] = true;
            }
        }
        Ok(Effect::Noted)
    }

    fn check_room(&self, name: Running) -> Result<(), Refusal> {
        if self.running.contains_key(&name) {
            return Err(Refusal::Duplicate(name));
        }
        if self.running.len() >= self.running_max {
            return Err(Refusal::Full(self.running_max));
        }
        Ok(())
    }

    fn choose(&mut self, update: Option<I::Access<'_>>, random: u64) -> Result<Choice, Refusal> {
        if let Some(access) = update {
            self.index.weigh(access, &mut self.conflicting);
        }
        let view = View { load: &self.load, conflicting: &self.conflicting, up: &self.up };
        self.chooser.choose(&view, update.is_some(), random).ok_or(Refusal::NoServer)
    }

    fn place(
        &mut self,
        name: Running,
        server: ServerId,
        weight: Weight,
        update: Option<I::Access<'_>>,
    ) {
        self.load[server.index()] += weight.get();
        let entry = update.map(|access| self.index.enter(access, server, weight));
        self.running.insert(name, Placed { server, weight, entry });
    }

    fn finish(&mut self, name: Running) -> Result<(), Refusal> {
        let placed = self.running.remove(&name).ok_or(Refusal::NotRunning(name))?;
        self.load[placed.server.index()] -= placed.weight.get();
        if let Some(entry) = placed.entry {
            self.index.leave(entry, placed.server, placed.weight);
        }
        Ok(())
    }

    fn report(&mut self, server: ServerId, weight: u64) -> Result<(), Refusal> {
        let server = self.known(server)?;
        if weight > WAITING_MAX {
            return Err(Refusal::Waiting(weight));
        }
        self.load[server] -= self.waiting[server];
        self.load[server] += weight;
        self.waiting[server] = weight;
        Ok(())
    }

    fn known(&self, server: ServerId) -> Result<usize, Refusal> {
        let index = server.index();
        (index < self.up.len()).then_some(index).ok_or(Refusal::UnknownServer(server))
    }
}
