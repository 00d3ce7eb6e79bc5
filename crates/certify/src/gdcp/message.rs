//! The messages between sites: writesets and rw-edges, never readsets (RSSI paper, section 4).
//!
//! An edge `reader -rw-> writer` is known at the site where the reader ran. It is sent once: in the reader's
//! proposal (`out`) if the writer was known there when the reader was proposed, otherwise with the writer's
//! proposal (`readers`) when it passes this site.
//!
//! # Departures
//!
//! Algorithm 1 carries edges to `T_i` from committed readers as the one pair with the highest lsv (`D_t,c`),
//! and from pending readers only those of a higher lsv than that (`D_t,p`) that come before `T_i` in the order.
//! Three structures are not detected then (tests `departures`):
//! - A reader that comes later in the order than `T_i` but did not know of it when it was proposed: neither
//!   message has the edge. Here edges from readers are sent whatever their place in the order.
//! - A reader of a low lsv that follows a peak of a high one, with `T_i` trailing: the pair of another reader
//!   replaces it, and no site can detect the structure. Here every reader that committed after the lsv of `T_i`
//!   is sent by name; no other matters ([`crate::gdcp::ledger`]).
//! - A pending reader filtered out by a committed one: the same.
//!
//! The lsv of `out` and `readers` is not sent again: it was in their own proposals.

use std::sync::Arc;

use crate::certification::items::Write;
use crate::certification::{Cause, SiteId, Timestamp, TxnId};
use crate::gdcp::ring::{Order, Stamp};

/// A transaction that wants to commit, as the other sites see it.
#[derive(Clone, PartialEq, Debug)]
pub struct Proposal {
    /// Its name.
    pub id: TxnId,
    /// The last commit in its snapshot.
    pub begin: Timestamp,
    /// The upper bound of its latest snapshot version.
    pub lsv: Timestamp,
    /// What it wrote.
    pub writes: Arc<[Write]>,
    /// Those known at home that wrote what it read, after its snapshot, committed or pending
    /// (`D_f,c` and `D_f,p`).
    pub out: Vec<TxnId>,
}

/// The edges that lead to a proposal (`D_t,c` and `D_t,p`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Incoming {
    /// Those that read what it writes.
    pub readers: Vec<TxnId>,
    /// It conflicts with what has committed already (the paper's mark of two bottoms).
    pub doomed: Option<Cause>,
}

impl Incoming {
    /// Adds what another site knows.
    pub fn merge(&mut self, other: Incoming) {
        self.readers.extend(other.readers);
        self.doomed = self.doomed.or(other.doomed);
    }
}

/// A message between neighbours on the ring. Links keep their order and lose nothing while both
/// ends are in the view.
#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    /// The view it belongs to; ignored in any other.
    pub view: u64,
    /// Whose transaction it is about.
    pub order: Order,
    /// What it says.
    pub body: Body,
}

/// What a message on the ring says.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// First circulation: from home through all sites back home, collecting edges.
    Gather {
        /// The transaction.
        proposal: Proposal,
        /// The clock of its home when it was sent.
        stamp: Stamp,
        /// The edges found so far.
        incoming: Incoming,
        /// The staleness values of the sites it passed.
        staleness: Vec<(SiteId, Timestamp)>,
    },
    /// Second circulation: from home to its predecessor.
    Decide {
        /// All edges.
        incoming: Incoming,
        /// The staleness values of all sites.
        staleness: Vec<(SiteId, Timestamp)>,
    },
    /// Third circulation: every site has the second.
    Safe,
}

/// A record of the log.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// What a site has to say.
    Batch(Batch),
    /// A change of the membership.
    Change(Change),
}

/// What a site has to say: everything since its batch before.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// The view it belongs to; ignored in any other.
    pub view: u64,
    /// Whose it is.
    pub site: SiteId,
    /// Counts the site's batches in the view, from 0; only the next one counts, so that a batch
    /// may be appended again when it may be lost.
    pub sequence: u64,
    /// Round 2: the site has told all edges to proposals up to this place.
    pub upto: Timestamp,
    /// The edges to those of them to which there are any.
    pub answers: Vec<(Timestamp, Incoming)>,
    /// Round 1: new proposals.
    pub proposals: Vec<Proposal>,
    /// The staleness value: no pending or later transaction of the site begins before (appendix
    /// C.2.3).
    pub staleness: Timestamp,
}

/// A new membership, if it is the first to follow its view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The number of the view that it ends.
    pub after: u64,
    /// The members of the next, each with the incarnation of its manager.
    pub members: Vec<(SiteId, u64)>,
}
