//! Certification: whether a transaction may commit, given those that committed since its
//! snapshot (RSSI paper, section 3; vDBSM paper, section 3).
//!
//! At every site a certifier of the same kind gets the same transactions in the same total order, so all sites
//! make the same decisions. The commit timestamp is the position in that order. It advances with every attempt,
//! committed or not (RSSI paper, section 3.1).

mod conflicts;
pub mod cp_roo;
mod index;
pub mod items;
mod memory;
pub mod planted;
pub mod rsi;
pub mod rssi;
pub mod vdbsm;
mod writers;

use crate::certification::items::{Read, Write};

/// A commit timestamp: the position of an attempt to commit in the total order, from 1; 0 is
/// before all of them (RSSI paper, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The one right after.
    #[must_use]
    pub(crate) fn next(self) -> Timestamp {
        Timestamp(self.0 + 1)
    }

    /// The one right before; that of 0 is 0.
    #[must_use]
    pub(crate) fn before(self) -> Timestamp {
        Timestamp(self.0.saturating_sub(1))
    }
}

/// A site of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SiteId(pub u32);

/// A transaction: the site where it ran and that site's count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId {
    /// Where it ran.
    pub site: SiteId,
    /// The site's own number for it.
    pub number: u64,
}

/// Bounds of the latest-snapshot-version timestamp: the highest commit timestamp among the
/// versions that a transaction accessed, whether it read or overwrote them (RSSI paper, section
/// 3.1). A deletion leaves a version too, and a predicate accesses all rows that it could have
/// found. `low == high` when it is known exactly. A peak may be judged by `high` and a follow or
/// trailing transaction by `low`; [`rssi`] shows that `high` alone does for all roles, and with
/// fewer aborts. Who knows nothing tells `begin` as both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lsv {
    /// Not higher than the true one.
    pub low: Timestamp,
    /// Not lower than the true one; at most the begin timestamp.
    pub high: Timestamp,
}

/// What certification needs to know of a transaction that wants to commit.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its name.
    pub id: TxnId,
    /// The commit timestamp of the last transaction in its snapshot.
    pub begin: Timestamp,
    /// Its latest snapshot version.
    pub lsv: Lsv,
    /// What it read.
    pub reads: Vec<Read>,
    /// The version that it saw of each read, in the order of `reads`: the commit timestamp of the
    /// last transaction that had written there. Empty when all reads are of the snapshot `begin`.
    pub versions: Vec<Timestamp>,
    /// What it wrote; empty for a read-only transaction.
    pub writes: Vec<Write>,
}

/// Decides over the attempts to commit, one after another in their total order.
pub trait Certifier {
    /// Decides the next one. The clock ticks whatever the decision.
    fn certify(&mut self, transaction: &Transaction) -> Decision;

    /// No pending or later transaction at any site has a `begin` before `staleness`: what only
    /// such transactions could conflict with may be forgotten (RSSI paper, appendix C.2.3).
    /// Decisions may depend on what is forgotten, so every site must collect at the same place
    /// between the same attempts.
    fn collect(&mut self, staleness: Timestamp);

    /// All that was attempted up to `at` has ended at all sites, and what comes has a `begin` of
    /// at least `at`: everything before is forgotten. For a new view after failures. Nothing
    /// happens if `at` is before the clock.
    fn reset(&mut self, at: Timestamp);

    /// The timestamp of the last attempt.
    fn clock(&self) -> Timestamp;
}

/// How much a certifier remembers. Equal at all sites, since decisions depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Committed transactions, at most. At the bound the oldest is forgotten even if a pending
    /// one began before it committed: that one is then aborted as [`Cause::SnapshotTooOld`].
    pub transactions_max: usize,
    /// Reads and writes of all of them, at most; long texts count as several. Same behaviour.
    pub items_max: usize,
    /// Committed transactions that [`rssi`] keeps although [`Certifier::collect`] lets it forget
    /// them, at most: lsv is raised less. With ν chosen that gains next to nothing, and by the
    /// letter it even costs, so 0 is best. Other certifiers keep none.
    pub spare_max: usize,
}

impl Default for Limits {
    /// At most some 300 MB; 10,000 transactions of 8 items take about 15 MB.
    fn default() -> Limits {
        Limits { transactions_max: 100_000, items_max: 1_000_000, spare_max: 0 }
    }
}

/// What was decided, and at which position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The commit timestamp of the attempt.
    pub at: Timestamp,
    /// Committed, or why not.
    pub verdict: Result<(), Cause>,
}

/// Why a transaction may not commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A concurrent transaction committed a write of the same row: the first committer wins.
    WriteConflict {
        /// The one that committed.
        with: TxnId,
    },
    /// A concurrent transaction committed a write of something that was read (CP-ROO).
    ReadImpact {
        /// The one that committed.
        with: TxnId,
    },
    /// It would complete a descending structure (RSSI paper, definition 3.1), whatever number took
    /// the place of its lsv ([`rssi`]).
    DescendingStructure {
        /// Its place in the structure.
        role: Role,
    },
    /// Something that was read has a newer version (vDBSM).
    StaleRead,
    /// Its snapshot is older than what the certifier remembers.
    SnapshotTooOld,
}

/// A place in a descending structure peak -rw-> follow -rw-> trailing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The first, of the highest lsv.
    Peak,
    /// The one between.
    Follow,
    /// The last.
    Trailing,
}
