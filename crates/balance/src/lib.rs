//! Conflict-aware load balancing (vDBSM paper, sections 4 and 5): transactions that conflict go to one server,
//! whose own scheduler orders them, instead of aborting each other at certification. The load is balanced, too,
//! as far as the policy gives weight to this.
//!
//! Pure: no sockets, files, clocks or threads; random bits come from the caller. A choice is only a preference:
//! any transaction may run at any server, and no guarantee depends on it.
//!
//! - `policy`: MCF, MPF with its factor, least loaded, round robin, random: from loads and
//!   conflicting weights to a server.
//! - `relation`, `index`: which transactions conflict, and the conflicting weight per server kept
//!   up to date, so that no decision looks at the running transactions.
//! - `online`: the balancer of a running system; `assign`: a whole workload at once.
//! - `overlap`: measures the quality of an assignment. `tpcc`: the workload that the paper analyses.

pub mod assign;
pub mod index;
pub mod online;
pub mod overlap;
pub mod policy;
pub mod relation;
pub mod tpcc;
pub mod workload;

/// The most servers that one balancer chooses among.
pub const SERVERS_MAX: usize = 256;

/// The highest weight of one transaction.
pub const WEIGHT_MAX: u64 = 1 << 40;

/// A server, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub u16);

impl ServerId {
    /// As an index into what is kept per server.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The server at an index below `SERVERS_MAX`.
    #[must_use]
    pub(crate) fn at(index: usize) -> ServerId {
        ServerId(u16::try_from(index).expect("a server's index is below SERVERS_MAX"))
    }
}

/// What executing a transaction costs, in the caller's unit: 1 to `WEIGHT_MAX` (vDBSM paper,
/// section 2.2). Whole numbers, so that sums don't drift and equal loads are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Weight(u64);

impl Weight {
    /// A weight, if it is within 1 and `WEIGHT_MAX`.
    #[must_use]
    pub fn new(weight: u64) -> Option<Weight> {
        (1..=WEIGHT_MAX).contains(&weight).then_some(Weight(weight))
    }

    /// As a number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}
