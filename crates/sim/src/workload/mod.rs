//! Workloads as streams of conflict footprints: what transactions read and write, without SQL.
//! They drive the certifiers (RSSI paper, section 6) in [`crate::isolation`].
//!
//! A transaction is drawn in two steps, so that a retry repeats the same transaction on a newer snapshot: a
//! *plan* (its type and parameters) and the plan's *footprint* on a snapshot (the rows that it finds there).

pub mod ssibench;
pub mod tpccpp;
mod tpccpp_tables;
pub mod versions;

use hihooi_certify::certification::Timestamp;
use hihooi_certify::certification::items::{Read, Write};
use rand_pcg::Pcg64;

use crate::workload::versions::Cell;

/// A stream of transactions over a database of its own.
pub trait Workload {
    /// A transaction's type and parameters.
    type Plan;

    /// Draws the next transaction of a client: one that only reads with probability `read_only`,
    /// by the workload's own mix if that is `None`.
    fn draw(&mut self, read_only: Option<f64>, random: &mut Pcg64) -> Self::Plan;

    /// What the transaction touches on the snapshot that ends with `snapshot`.
    fn footprint(&self, plan: &Self::Plan, snapshot: Timestamp) -> Footprint;

    /// The transaction, whose snapshot ended with `snapshot`, committed at `at`. Calls come in the
    /// order of `at`.
    fn committed(&mut self, plan: &Self::Plan, snapshot: Timestamp, at: Timestamp);
}

/// What a transaction touches.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    /// Its read set.
    pub reads: Vec<Read>,
    /// Its write set; empty if it only reads.
    pub writes: Vec<Write>,
    /// The cells whose versions it accessed: from them its lsv is known exactly.
    pub seen: Vec<Cell>,
    /// The cells that get a version when it commits.
    pub touched: Vec<Cell>,
    /// How much there is to do.
    pub work: Work,
}

/// Rows by what is done to them: what execution costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Rows read only.
    pub read: u32,
    /// Rows updated or deleted.
    pub updated: u32,
    /// Rows inserted.
    pub inserted: u32,
}
