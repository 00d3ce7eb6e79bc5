//! The global dependency checking protocol (RSSI paper, section 4, Algorithm 1, appendices B and C): all sites
//! make the same decision on every transaction, although each keeps its readsets to itself and sends only the
//! rw-edges that they cause.
//!
//! - [`manager`]: over a ring of sites, as in the paper; [`ring`] has the order, [`view`] what
//!   happens when a site stops.
//! - [`log`]: over any total-order log, in two rounds: proposals, then the edges to them.
//! - [`site`]: what a site keeps in both; [`edges`] the readsets and writesets, [`ledger`] the
//!   decision and what is forgotten.
//!
//! Departures from the paper are described where they are made: the edges in [`message`], decision and
//! forgetting in [`ledger`], order in [`ring`], delivery and failures in [`manager`] and [`log`].

pub mod edges;
pub mod ledger;
pub mod log;
pub mod manager;
pub mod message;
pub mod places;
pub mod ring;
pub mod site;
pub mod view;

use std::sync::Arc;

use crate::certification::items::Write;
use crate::certification::{Cause, Timestamp, TxnId};
use crate::gdcp::view::View;

/// What happened to a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It committed.
    Committed,
    /// Certification refused it.
    Aborted(Cause),
    /// It was undecided when the view changed (RSSI paper, appendix C.1.2). It may be run again.
    Ended,
}

/// A decision. All sites emit the same ones in the same order, without gaps in `at`.
#[derive(Clone, PartialEq, Debug)]
pub struct Decided {
    /// The transaction.
    pub id: TxnId,
    /// Its commit timestamp: its place among all attempts.
    pub at: Timestamp,
    /// What happened to it.
    pub outcome: Outcome,
    /// What it wrote, to be applied if it committed.
    pub writes: Arc<[Write]>,
    /// What committed up to here was forgotten when it was decided: its lsv counted as at least
    /// this.
    pub floor: Timestamp,
}

/// Why a transaction was not even proposed. It has no place in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It conflicts with what has committed: aborted early, at home.
    Doomed(Cause),
    /// Too many of this site's are undecided: again later.
    Busy,
    /// The site is in no view, or its group has stopped.
    NotMember,
    /// It ran at another site, or its snapshot is of the future.
    Invalid,
    /// The view changed before it was proposed.
    Ended,
}

/// What a manager wants done; `M` is what it sends.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect<M> {
    /// On the ring: to the successor. On a log: append.
    Transmit(M),
    /// A local transaction ends without having been proposed; only its home knows.
    Refused {
        /// The transaction.
        id: TxnId,
        /// Why.
        refusal: Refusal,
    },
    /// The next decision: on a log for good, on the ring a commit may be prepared at the database.
    Decided(Decided),
    /// On the ring: decisions after this one were not released and are void; they are made anew.
    Void(Timestamp),
    /// Decisions up to this one survive any failure: apply them, answer the clients. On a log a
    /// decision needs no release.
    Released(Timestamp),
    /// On the ring: this site missed decisions that nobody repeats; before it begins anything its
    /// data must be copied from a site that has applied those up to here.
    NeedsCopy(Timestamp),
    /// A new view is in force: no transaction that began before its start can commit.
    Viewed(View),
}

/// The bounds of what a site keeps (I8). `committed_max`, `spare_max` and `by_the_letter` must be
/// equal at all sites, since decisions depend on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Own transactions begun and not decided; beyond: [`Refusal::Busy`].
    pub open_max: usize,
    /// Own transactions proposed and not decided; beyond: [`Refusal::Busy`].
    pub pending_max: usize,
    /// Committed transactions kept; beyond: the oldest is forgotten, and what began before its
    /// commit is aborted as [`Cause::SnapshotTooOld`].
    pub committed_max: usize,
    /// Of those that may be forgotten, so many are kept nevertheless. With lsv chosen that spares
    /// next to no aborts, and by the letter it costs some (`docs/decisions/0003`): 0 is best.
    pub spare_max: usize,
    /// Reads kept of one transaction; beyond: it counts as having read everything.
    pub reads_max: usize,
    /// On a log: batches sent and not seen in it yet; what comes later waits and is batched.
    pub batches_max: usize,
    /// On a log: after how many proposals a site that has nothing to say reports nevertheless.
    pub report_every: u64,
    /// On a log: after how long unseen batches are appended again, in milliseconds.
    pub retry_ms: u64,
    /// Whether lsv is taken as it is (RSSI paper, definition 3.1) instead of being chosen, which
    /// aborts less (`docs/decisions/0003`).
    pub by_the_letter: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            open_max: 4096,
            pending_max: 1024,
            committed_max: 65_536,
            reads_max: 16_384,
            spare_max: 0,
            batches_max: 2,
            report_every: 256,
            retry_ms: 200,
            by_the_letter: false,
        }
    }
}
