//! Clients: closed loops that send one request after another, and the record of what they saw, from which
//! histories for the checker are made.

use crate::node::{ClientId, Node, NodeId};
use crate::random::Random;
use crate::time::Time;

/// A client: told how its last call ended, it says what it does next.
pub trait Client<N: Node> {
    /// What next? `last` is `None` at the beginning and after a wait.
    fn next(&mut self, now: Time, random: &mut Random, last: Option<&Call<N>>) -> Next<N>;
}

/// What a client does next.
#[derive(Clone, Debug)]
pub enum Next<N: Node> {
    /// Ask a node.
    Ask {
        /// Which.
        to: NodeId,
        /// What.
        request: N::Request,
        /// Give up after so many microseconds: the outcome is unknown then.
        timeout_us: u64,
    },
    /// Do nothing for so many microseconds.
    Wait(u64),
    /// Never ask again.
    End,
}

/// A call as its client saw it.
#[derive(Clone, Debug)]
pub struct Call<N: Node> {
    /// Who asked.
    pub client: ClientId,
    /// Whom.
    pub to: NodeId,
    /// What.
    pub request: N::Request,
    /// When.
    pub invoked: Time,
    /// When the answer came or the client gave up; `None` at a run's end if it still waits.
    pub ended: Option<Time>,
    /// The answer; `None` if the outcome is unknown.
    pub response: Option<N::Response>,
}
