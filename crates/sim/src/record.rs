//! Makes histories for the checker from the record of calls; used by all trials.

use hihooi_check::{Op, Outcome, Transaction};

use crate::{Call, Node, NodeId, Time};

/// Processes of final reads are numbered from here.
const FINAL_READERS: i64 = 1 << 40;

/// Names for the sessions of a history. One whose call ended unknown may still be at work: it goes
/// on under a new name.
pub(crate) struct Processes {
    clients: i64,
    /// Calls of unknown end, by client.
    unknown: Vec<i64>,
}

impl Processes {
    /// For these calls.
    pub(crate) fn of<N: Node>(calls: &[Call<N>]) -> Processes {
        let clients = calls.iter().map(|call| call.client.0 + 1).max().unwrap_or(1);
        Processes { clients: clients.into(), unknown: vec![0; clients.into()] }
    }

    /// The name under which this call was made; calls must come in their order.
    pub(crate) fn of_call<N: Node>(&mut self, call: &Call<N>) -> i64 {
        let unknown = &mut self.unknown[usize::from(call.client.0)];
        let process = i64::from(call.client.0) + self.clients * *unknown;
        *unknown += i64::from(call.response.is_none());
        process
    }
}

/// A transaction that is one call.
pub(crate) fn of_call<N: Node>(
    call: &Call<N>,
    process: i64,
    outcome: Outcome,
    ops: Vec<Op>,
) -> Transaction {
    Transaction {
        process,
        invoked: ns(call.invoked),
        completed: call.response.as_ref().and(call.ended).map(ns),
        outcome,
        is_final: false,
        ops,
    }
}

/// All that a site holds when the run is over.
pub(crate) fn final_read(site: NodeId, at: Time, ops: Vec<Op>) -> Transaction {
    Transaction {
        process: FINAL_READERS + i64::from(site.0),
        invoked: ns(at),
        completed: Some(ns(at + 1)),
        outcome: Outcome::Committed,
        is_final: true,
        ops,
    }
}

/// Histories count nanoseconds.
pub(crate) fn ns(time: Time) -> i64 {
    (time.0 * 1_000) as i64
}
