//! What a site keeps, whichever way its messages travel: its open transactions, its readsets, all
//! writesets, the decisions and what may be forgotten.

use std::collections::{BTreeMap, BTreeSet};

use crate::certification::{Cause, SiteId, Timestamp, Transaction, TxnId};
use crate::gdcp::edges::{Readsets, Writesets};
use crate::gdcp::ledger::Ledger;
use crate::gdcp::message::{Incoming, Proposal};
use crate::gdcp::view::View;
use crate::gdcp::{Decided, Limits, Outcome, Refusal};

/// A site in one view.
#[derive(Clone, Debug)]
pub struct Site {
    me: SiteId,
    limits: Limits,
    ledger: Ledger,
    /// The staleness value of each member.
    staleness: BTreeMap<SiteId, Timestamp>,
    readsets: Readsets,
    writesets: Writesets,
    /// Own transactions that are not decided, with their begin.
    open: BTreeMap<TxnId, Timestamp>,
    /// Those of them that are proposed.
    pending: BTreeSet<TxnId>,
    /// What the local database shows.
    applied: Timestamp,
}

impl Site {
    /// As the view starts.
    #[must_use]
    pub fn new(me: SiteId, view: &View, limits: Limits) -> Site {
        Site {
            me,
            limits,
            ledger: Ledger::new(view.start, limits),
            staleness: view.sites().map(|site| (site, view.start)).collect(),
            readsets: Readsets::new(limits.reads_max),
            writesets: Writesets::default(),
            open: BTreeMap::new(),
            pending: BTreeSet::new(),
            applied: view.start,
        }
    }

    /// The last decision.
    #[must_use]
    pub fn clock(&self) -> Timestamp {
        self.ledger.clock()
    }

    /// What committed up to here is forgotten.
    #[must_use]
    pub fn floor(&self) -> Timestamp {
        self.ledger.floor()
    }

    /// How many committed transactions and readsets are remembered.
    #[must_use]
    pub fn remembered(&self) -> (usize, usize) {
        (self.ledger.len(), self.readsets.len())
    }

    /// The local database shows the decisions up to here.
    pub fn applied(&mut self, at: Timestamp) {
        self.applied = self.applied.max(at.min(self.ledger.clock()));
    }

    /// A transaction begins here; its begin holds the staleness value back until it ends.
    ///
    /// # Errors
    /// Its snapshot is too old for it to commit ever, or there are too many.
    pub fn begin(&mut self, id: TxnId, begin: Timestamp) -> Result<(), Refusal> {
        if id.site != self.me || begin > self.ledger.clock() {
            return Err(Refusal::Invalid);
        }
        if begin < self.ledger.floor() {
            return Err(Refusal::Doomed(Cause::SnapshotTooOld));
        }
        if self.open.len() >= self.limits.open_max {
            return Err(Refusal::Busy);
        }
        self.open.insert(id, begin);
        Ok(())
    }

    /// It will not be proposed.
    pub fn abandon(&mut self, id: TxnId) {
        if !self.pending.contains(&id) {
            self.open.remove(&id);
        }
    }

    /// All own transactions that are not decided.
    pub fn undecided(&self) -> impl Iterator<Item = TxnId> + '_ {
        self.open.keys().copied()
    }

    /// A transaction of this site wants to commit: its proposal and the local edges to it, unless
    /// they show already that it cannot (`gdcpBroadcast` of Algorithm 1).
    ///
    /// # Errors
    /// Why it is not to be proposed; it is over then.
    pub fn submit(&mut self, transaction: Transaction) -> Result<(Proposal, Incoming), Refusal> {
        let id = transaction.id;
        let checked = self.check(transaction);
        if checked.is_err() {
            self.abandon(id);
        }
        checked
    }

    fn check(&mut self, transaction: Transaction) -> Result<(Proposal, Incoming), Refusal> {
        let Transaction { id, begin, lsv, reads, writes, .. } = transaction;
        let lsv = lsv.high.min(begin);
        if self.pending.contains(&id) || self.open.get(&id).is_some_and(|&open| open != begin) {
            return Err(Refusal::Invalid);
        }
        if self.pending.len() >= self.limits.pending_max {
            return Err(Refusal::Busy);
        }
        if !self.open.contains_key(&id) {
            self.begin(id, begin)?;
        }
        let out = self.writesets.unseen_by(id, begin, &reads);
        let proposal = Proposal { id, begin, lsv, writes: writes.into(), out };
        let incoming = self.answer(&proposal);
        if let Some(cause) = incoming.doomed {
            return Err(Refusal::Doomed(cause));
        }
        self.readsets.add(id, reads);
        self.pending.insert(id);
        Ok((proposal, incoming))
    }

    /// From now on, local transactions tell their edges to it in their own proposals.
    pub fn learn(&mut self, proposal: &Proposal) {
        self.writesets.add(proposal.id, proposal.writes.clone());
    }

    /// The edges to it from readers of this site that are proposed already, and whether they doom
    /// it.
    #[must_use]
    pub fn answer(&self, proposal: &Proposal) -> Incoming {
        let since = proposal.lsv.max(self.ledger.floor());
        let readers = self.readsets.readers_of(proposal.id, &proposal.writes, since);
        let mut incoming = Incoming { readers, doomed: None };
        incoming.doomed = self.judge(proposal, &incoming);
        incoming
    }

    /// Why the proposal cannot commit, if that is known.
    #[must_use]
    pub fn judge(&self, proposal: &Proposal, incoming: &Incoming) -> Option<Cause> {
        self.ledger.judge(proposal, incoming).err()
    }

    /// Decides the next one in the order; all edges to it are known.
    pub fn decide(&mut self, proposal: &Proposal, incoming: &Incoming) -> Decided {
        let floor = self.ledger.floor();
        let (at, verdict) = self.ledger.decide(proposal, incoming);
        let id = proposal.id;
        self.pending.remove(&id);
        self.open.remove(&id);
        match verdict {
            Ok(()) => self.committed(id, at),
            Err(_) => self.forget(&[id]),
        }
        let outcome = verdict.map_or_else(Outcome::Aborted, |()| Outcome::Committed);
        Decided { id, at, outcome, writes: proposal.writes.clone(), floor }
    }

    fn committed(&mut self, id: TxnId, at: Timestamp) {
        self.writesets.commit(id, at);
        self.readsets.commit(id, at);
        self.collect();
    }

    /// The staleness value of this site (RSSI paper, appendix C.2.3): no pending or later
    /// transaction begins before.
    #[must_use]
    pub fn staleness(&self) -> Timestamp {
        self.open.values().copied().min().map_or(self.applied, |begin| begin.min(self.applied))
    }

    /// The staleness values of sites have their turn in the order.
    pub fn heard(&mut self, values: impl IntoIterator<Item = (SiteId, Timestamp)>) {
        for (site, value) in values {
            self.staleness.entry(site).and_modify(|known| *known = value.max(*known));
        }
        self.collect();
    }

    /// The paper takes the oldest of all values.
    fn collect(&mut self) {
        let oldest = self.staleness.values().min().copied().unwrap_or_default();
        let forgotten = self.ledger.collect(oldest);
        self.forget(&forgotten);
    }

    fn forget(&mut self, ids: &[TxnId]) {
        for id in ids {
            self.readsets.remove(*id);
            self.writesets.remove(*id);
        }
    }
}
