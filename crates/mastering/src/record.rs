//! The records in a site's log: commits, releases and grants (DynaMast paper, sections V-A2 and V-C). Each
//! takes the next number of its site, so a slot of a site vector is also a position in that site's log, and a
//! gap in one is a gap in the other.
//!
//! Departures: releases and grants carry the partition's term, and a release names the site it is for. Without
//! the term, a reader of the logs could not know the order of a release in one log and a grant in another.
//! Without the destination, two selectors (one of which was thought to have failed) could grant the same
//! release to two sites.

use crate::ids::{PartitionId, SiteId, Term, TxnId};
use crate::vector::TransactionVector;

/// One entry of a site's log. `W` is whatever the database calls a set of writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<W> {
    /// Its commit timestamp.
    pub vector: TransactionVector,
    /// What it says.
    pub body: Body<W>,
}

/// What an entry of a site's log says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<W> {
    /// An update transaction committed.
    Commit {
        /// Its name.
        txn: TxnId,
        /// What it wrote.
        writes: W,
    },
    /// The site gave away a partition's mastership.
    Release {
        /// Which.
        partition: PartitionId,
        /// The term that ends.
        term: Term,
        /// Who shall be its master next, and nobody else.
        to: SiteId,
    },
    /// The site took over a partition's mastership.
    Grant {
        /// Which.
        partition: PartitionId,
        /// The term that begins.
        term: Term,
    },
}

/// The last that is known of a partition's mastership. Of two, the one of the later term is
/// newer; a release is newer than the grant of the same term.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Whose mastership.
    pub partition: PartitionId,
    /// The term that began or ended.
    pub term: Term,
    /// What happened.
    pub kind: ChangeKind,
    /// The commit timestamp of the log entry, which covers every commit that must be seen by
    /// whoever writes the partition next.
    pub vector: TransactionVector,
}

/// What happened to a partition's mastership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// The origin of the vector became its master.
    Granted,
    /// The origin of the vector gave it away, for this site to take.
    Released {
        /// Who shall take it.
        to: SiteId,
    },
}

impl Change {
    /// Its place among all changes of the partition.
    #[must_use]
    pub fn order(&self) -> (Term, bool) {
        (self.term, matches!(self.kind, ChangeKind::Released { .. }))
    }
}

impl<W> Record<W> {
    /// What the record says of mastership; nothing when it is a commit.
    #[must_use]
    pub fn change(&self) -> Option<Change> {
        let (partition, term, kind) = match &self.body {
            Body::Commit { .. } => return None,
            Body::Release { partition, term, to } => {
                (*partition, *term, ChangeKind::Released { to: *to })
            }
            Body::Grant { partition, term } => (*partition, *term, ChangeKind::Granted),
        };
        Some(Change { partition, term, kind, vector: self.vector.clone() })
    }
}
