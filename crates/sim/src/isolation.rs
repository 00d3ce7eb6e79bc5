//! Simulates the performance of certification protocols, as in the RSSI paper's section 6.
//!
//! Closed-loop clients without think time, spread evenly over sites that run snapshot isolation.
//! A transaction executes at its client's site on that site's snapshot, then takes its place in a
//! total order, and a message about it goes around the ring of the sites' managers twice (section
//! 4.1): after the first round its own site knows the decision, on the second the others. Each
//! site acts on decisions in the total order: it applies other sites' writesets, and shows commits
//! in that order too (I2). The client hears of a commit when it is visible at its own site (I4),
//! and of an abort when that is decided. Transactions that only read are ordered and certified
//! under `rssi` alone, elsewhere they commit at once.
//!
//! The transactions are certified by the real certifiers ([`Certifier`]); only time is modelled: everything at
//! a site shares its processor ([`engine`]), and costs are those of [`costs`]. Everything follows from the
//! seed; there is no clock.
//!
//! Departures and assumptions:
//! - A client repeats its transaction until it commits, as the PostgreSQL manual asks of applications that use
//!   serializable isolation (section 13.2.3); then the committed transactions have the requested mix. The paper
//!   doesn't say what its clients do. Without `retry` they go on with another transaction: an aborted update,
//!   which leaves other sites no work, makes room for queries, so protocols that abort much look better.
//! - No transaction waits for another's row lock, and none is aborted before certification: the paper's
//!   prototype does both (appendix C.2.2), alike under all protocols. Here a transaction that will abort runs
//!   to its end, so with more clients the throughput of all protocols falls; in the paper, that of protocols
//!   with few aborts rises.
//! - Writesets that overlap are applied in parallel, since only becoming visible is ordered.
//! - Managers share their sites' processors: the paper's machines had one each, and its Table 1 shows GDCP
//!   times that grow with the sites' load. With `own_managers` they don't. Then certifying queries costs little
//!   except time, and `rssi` has the highest throughput up to larger shares of queries.
//! - No faults: the other simulations have these.

pub mod costs;
pub mod engine;
pub mod protocol;
pub mod report;
pub mod sweep;

mod cluster;
mod site;

use hihooi_certify::certification::Certifier;

use serde::Serialize;

use crate::isolation::cluster::Cluster;
use crate::isolation::costs::Costs;
use crate::isolation::protocol::Protocol;
use crate::isolation::report::Report;
use crate::workload::Workload;

/// What is simulated, besides workload and certifier.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Setup {
    /// Sites, from 1.
    pub sites: usize,
    /// Clients of all sites together, from 1: the multiprogramming level.
    pub clients: usize,
    /// Part of the transactions that only read, 0 to 1; `None`: the workload's own mix.
    pub read_only: Option<f64>,
    /// Whether a client repeats its transaction until it commits.
    pub retry: bool,
    /// Whether managers have processors of their own instead of sharing their sites'.
    pub own_managers: bool,
    /// Simulated seconds that are measured, after a ramp-up of half as many.
    pub seconds: f64,
    /// Where randomness comes from; clients draw the same transactions under every certifier.
    pub seed: u64,
    /// What things cost.
    pub costs: Costs,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            sites: 8,
            clients: 80,
            read_only: None,
            retry: true,
            own_managers: false,
            seconds: 30.0,
            seed: 1,
            costs: Costs::default(),
        }
    }
}

impl Setup {
    fn ramp_up_ns(&self) -> u64 {
        (self.seconds * 0.5e9) as u64
    }

    fn end_ns(&self) -> u64 {
        (self.seconds * 1.5e9) as u64
    }
}

/// Simulates one run under the protocol.
///
/// # Panics
/// Without sites or clients.
pub fn run<W: Workload>(setup: &Setup, workload: W, protocol: Protocol) -> Report {
    run_with(setup, workload, &mut *protocol.certifier(), protocol.certifies_read_only())
}

/// Simulates one run under any certifier, which sees the transactions that only read too if
/// `certify_read_only`.
///
/// # Panics
/// Without sites or clients.
pub fn run_with<W: Workload>(
    setup: &Setup,
    workload: W,
    certifier: &mut dyn Certifier,
    certify_read_only: bool,
) -> Report {
    assert!(setup.sites > 0 && setup.clients > 0, "a cluster has sites and clients: {setup:?}");
    Cluster::new(setup, workload, certifier, certify_read_only).run()
}
