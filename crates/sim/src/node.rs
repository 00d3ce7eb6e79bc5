//! The interface between the kernel and a protocol: a node gets events and returns effects. Everything that a
//! protocol can see of the simulated world comes through here.

use std::fmt::{self, Debug};

use crate::time::Time;

/// A node (a site, a selector, a sequencer …) by its number, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// A client by its number, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u16);

/// One of the run's total-order logs, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u16);

/// The position of an entry in its log, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// A client's call, unique in the run; an answer names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Short names, since traces are full of them.
macro_rules! short {
    ($($id:ident as $format:literal),*) => {$(
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    )*};
}

short!(
    NodeId as "node{}",
    ClientId as "client{}",
    LogId as "log{}",
    Position as "@{}",
    CallId as "call{}"
);

/// A protocol as it runs at one node. All state but what was persisted is gone after a crash.
pub trait Node: Debug + Sized {
    /// What nodes send each other.
    type Message: Clone + Debug;
    /// What clients ask.
    type Request: Clone + Debug;
    /// What clients are answered.
    type Response: Clone + Debug;
    /// What stands in the total-order logs.
    type Entry: Clone + Debug;
    /// A record of the node's disk, which is a journal of them.
    type Record: Clone + Debug;
    /// What a timer carries.
    type Timer: Clone + Debug;
    /// The configuration, the same at every start.
    type Config: Clone;

    /// Starts for the first time (the disk is empty) or again after a crash.
    fn start(config: &Self::Config, boot: Boot<'_, Self>, out: &mut Effects<Self>) -> Self;

    /// Reacts to one event. `now` is the node's own clock.
    fn step(&mut self, now: Time, event: Event<Self>, out: &mut Effects<Self>);
}

/// What a node finds when it starts.
#[derive(Debug)]
pub struct Boot<'a, N: Node> {
    /// Its name.
    pub id: NodeId,
    /// How many nodes there are.
    pub nodes: u16,
    /// How often it was started before: 0 at first. Never the same twice.
    pub incarnation: u32,
    /// Its clock.
    pub now: Time,
    /// The records that survived, oldest first.
    pub disk: &'a [N::Record],
    /// A seed for choices of its own, another at each start.
    pub seed: u64,
}

/// What happens to a node.
#[derive(Clone, Debug)]
pub enum Event<N: Node> {
    /// A message arrived.
    Message {
        /// Who sent it.
        from: NodeId,
        /// What it says.
        message: N::Message,
    },
    /// A client asks.
    Request {
        /// To be named in the reply.
        call: CallId,
        /// Who asks.
        client: ClientId,
        /// What for.
        request: N::Request,
    },
    /// The next entry of a log that the node follows.
    Entry {
        /// The log.
        log: LogId,
        /// Its position: one after that of the entry before.
        position: Position,
        /// The entry.
        entry: N::Entry,
    },
    /// The log acknowledges an append of this node. May be lost, or come after the entry itself.
    Appended {
        /// The log.
        log: LogId,
        /// Where the entry stands.
        position: Position,
        /// The entry.
        entry: N::Entry,
    },
    /// So many records of the journal are durable now.
    Persisted {
        /// Their count since the node was first started.
        records: u64,
    },
    /// A timer that this incarnation set.
    Timer(N::Timer),
}

/// What a node wants done.
#[derive(Clone, Debug)]
pub enum Effect<N: Node> {
    /// Send a message.
    Send {
        /// To whom; to itself is allowed and takes no network.
        to: NodeId,
        /// What.
        message: N::Message,
    },
    /// Answer a client.
    Reply {
        /// Its call.
        call: CallId,
        /// The answer.
        response: N::Response,
    },
    /// Append to a log. It may get lost on the way or be ordered twice; no one else's does.
    Append {
        /// The log.
        log: LogId,
        /// The entry.
        entry: N::Entry,
    },
    /// Be told the log's entries from a position on; replaces what was followed of it before.
    Follow {
        /// The log.
        log: LogId,
        /// The first entry wanted.
        from: Position,
    },
    /// Add a record to the journal; durable once [`Event::Persisted`] counts it. A crash keeps
    /// some first part of the records that were on their way.
    Persist(N::Record),
    /// Be woken.
    Timer {
        /// After so many microseconds.
        after_us: u64,
        /// With this.
        timer: N::Timer,
    },
    /// State a fact about which no two nodes may differ, and no node from what it said before a
    /// crash. The run fails at the first contradiction.
    Agree {
        /// What it is about.
        topic: &'static str,
        /// Its number: a log position, a timestamp.
        at: u64,
        /// The fact, or a hash of it.
        value: u64,
    },
    /// Fail the run: an invariant is broken.
    Violated(String),
}

/// The effects of one step, in order.
#[derive(Debug)]
pub struct Effects<N: Node>(pub(crate) Vec<Effect<N>>);

impl<N: Node> Default for Effects<N> {
    fn default() -> Self {
        Effects(Vec::new())
    }
}

impl<N: Node> Effects<N> {
    /// Adds an effect.
    pub fn push(&mut self, effect: Effect<N>) {
        self.0.push(effect);
    }

    /// Sends a message.
    pub fn send(&mut self, to: NodeId, message: N::Message) {
        self.push(Effect::Send { to, message });
    }

    /// Answers a client.
    pub fn reply(&mut self, call: CallId, response: N::Response) {
        self.push(Effect::Reply { call, response });
    }

    /// Appends to a log.
    pub fn append(&mut self, log: LogId, entry: N::Entry) {
        self.push(Effect::Append { log, entry });
    }

    /// Follows a log from a position on.
    pub fn follow(&mut self, log: LogId, from: Position) {
        self.push(Effect::Follow { log, from });
    }

    /// Writes a record to the journal.
    pub fn persist(&mut self, record: N::Record) {
        self.push(Effect::Persist(record));
    }

    /// Sets a timer.
    pub fn timer(&mut self, after_us: u64, timer: N::Timer) {
        self.push(Effect::Timer { after_us, timer });
    }

    /// States a fact that all nodes must agree on.
    pub fn agree(&mut self, topic: &'static str, at: u64, value: u64) {
        self.push(Effect::Agree { topic, at, value });
    }

    /// Fails the run.
    pub fn violated(&mut self, what: impl Into<String>) {
        self.push(Effect::Violated(what.into()));
    }
}
