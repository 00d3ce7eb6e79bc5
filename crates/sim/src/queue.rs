//! The kernel's queue: all future events, ordered by time.

use std::cmp::Ordering;

use crate::faults::Fault;
use crate::logs::Delivery;
use crate::node::{CallId, ClientId, LogId, Node, NodeId, Position};
use crate::time::Time;

/// The incarnations of sender and receiver: a message of another connection is lost.
pub(crate) type Connection = (u32, u32);

/// What is due.
#[derive(Debug)]
pub(crate) enum What<N: Node> {
    Message { from: NodeId, to: NodeId, message: N::Message, connection: Option<Connection> },
    Request { client: ClientId, to: NodeId, call: CallId },
    Reply { from: NodeId, call: CallId, response: N::Response },
    Append { from: NodeId, log: LogId, entry: N::Entry },
    Appended { to: NodeId, log: LogId, position: Position, entry: N::Entry },
    Deliver(Delivery),
    Persisted { node: NodeId, incarnation: u32 },
    Timer { node: NodeId, incarnation: u32, timer: N::Timer },
    ClientWakes { client: ClientId, call: Option<CallId> },
    Fault(Fault),
}

/// When it is due.
#[derive(Debug)]
pub(crate) struct Scheduled<N: Node> {
    pub at: Time,
    pub number: u64,
    pub what: What<N>,
}

impl<N: Node> PartialEq for Scheduled<N> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<N: Node> Eq for Scheduled<N> {}

impl<N: Node> PartialOrd for Scheduled<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<N: Node> Ord for Scheduled<N> {
    /// The earliest is the greatest; of the same instant, what was queued first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
