//! The decision on a proposal whose edges are all known. It is the same at every site, because it depends only
//! on the decisions before it (RSSI paper, definition 3.1, theorem 3.1, and the end of `gdcpDeliver`).
//!
//! A descending structure is found without examining its three transactions together: for every committed
//! transaction the ledger keeps the highest lsv of those with an edge to it, and the lowest lsv of those it has
//! an edge to. This is enough, whichever of the three completes the structure.
//!
//! The rule, and why it is sound, are those of [`crate::certification::rssi`]. In place of the lsv there is a
//! number that is not below it, chosen at the decision (called lsv here, too). A reader matters to a writer
//! only if it committed after the writer's lsv. Transactions that committed up to a floor may be forgotten if
//! every later number is at least the floor and transactions that began before it are aborted. So an edge that
//! was sent by name before its reader was forgotten does not matter any more, and sites need not agree on when
//! each of them forgets, only on the floor at each decision.
//!
//! # Departures
//!
//! - Peak and trailing may be the same transaction: definition 3.1 speaks of three, its proof
//!   needs cycles of two as well. Algorithm 1 marks those.
//! - rw-edges from committed readers count even if reader and writer were not concurrent.
//! - The number in place of lsv (`docs/decisions/0003`), unless [`Limits::by_the_letter`].
//! - The paper forgets at each site as soon as staleness values arrive (appendix C.2.3), and keeps lsv as it
//!   is: unsound (test `a_committed_reader_that_is_not_concurrent_with_the_writer`), and sites that forget at
//!   different places in the order decide differently. Here the values are a part of the total order, and the
//!   floor is used as above.

use std::collections::{BTreeMap, VecDeque};

use hihooi_replication::items::RelId;

use crate::certification::items::RowKey;
use crate::certification::rssi::{Choice, choose};
use crate::certification::{Cause, Role, Timestamp, TxnId};
use crate::gdcp::Limits;
use crate::gdcp::message::{Incoming, Proposal};

/// Decisions in their order, and what later ones need of them: at most
/// [`Limits::committed_max`] committed transactions, and edges told of transactions that are not
/// decided.
#[derive(Clone, Debug)]
pub struct Ledger {
    limits: Limits,
    clock: Timestamp,
    floor: Timestamp,
    staleness: Timestamp,
    committed: BTreeMap<TxnId, Entry>,
    /// In the order of their commits: all since the floor.
    order: VecDeque<(Timestamp, TxnId, Box<[Row]>)>,
    /// The last that wrote a row.
    writers: BTreeMap<Row, (Timestamp, TxnId)>,
    /// Edges from transactions that are not decided to committed ones.
    late: BTreeMap<TxnId, Vec<TxnId>>,
}

type Row = (RelId, RowKey);

/// A committed transaction.
#[derive(Clone, Debug)]
struct Entry {
    at: Timestamp,
    lsv: Timestamp,
    /// The highest lsv of those with an edge to it.
    peak: Option<Timestamp>,
    /// The lowest lsv of those it has an edge to.
    trailing: Option<Timestamp>,
}

/// The committed transactions around a proposal.
struct Around {
    lsv: Timestamp,
    ins: Vec<TxnId>,
    outs: Vec<TxnId>,
}

impl Ledger {
    /// Nothing is remembered of what was decided up to `start`; what began before cannot commit.
    #[must_use]
    pub fn new(start: Timestamp, limits: Limits) -> Ledger {
        Ledger {
            limits,
            clock: start,
            floor: start,
            staleness: start,
            committed: BTreeMap::new(),
            order: VecDeque::new(),
            writers: BTreeMap::new(),
            late: BTreeMap::new(),
        }
    }

    /// The timestamp of the last decision.
    #[must_use]
    pub fn clock(&self) -> Timestamp {
        self.clock
    }

    /// What committed up to here is forgotten; what began before is aborted.
    #[must_use]
    pub fn floor(&self) -> Timestamp {
        self.floor
    }

    /// How many committed transactions are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.committed.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.committed.is_empty()
    }

    /// Decides the next one in the order. The clock ticks whatever the decision.
    pub fn decide(
        &mut self,
        proposal: &Proposal,
        incoming: &Incoming,
    ) -> (Timestamp, Result<(), Cause>) {
        let around = self.around(proposal, incoming);
        let verdict = self.judge_among(proposal, incoming, &around);
        self.clock = self.clock.next();
        if verdict.is_ok() {
            self.commit(proposal, incoming, &around);
        }
        self.late.remove(&proposal.id);
        (self.clock, verdict)
    }

    /// What the decision would be if it were the next. A refusal is for good unless the floor
    /// rises before its turn: what has committed stays, and so do its edges.
    ///
    /// # Errors
    /// Why it cannot commit.
    pub fn judge(&self, proposal: &Proposal, incoming: &Incoming) -> Result<(), Cause> {
        self.judge_among(proposal, incoming, &self.around(proposal, incoming))
    }

    fn judge_among(
        &self,
        proposal: &Proposal,
        incoming: &Incoming,
        around: &Around,
    ) -> Result<(), Cause> {
        if let Some(cause) = incoming.doomed {
            return Err(cause);
        }
        if proposal.begin < self.floor {
            return Err(Cause::SnapshotTooOld);
        }
        if let Some(with) = self.first_committer(proposal) {
            return Err(Cause::WriteConflict { with });
        }
        match self.role(around) {
            Some(role) => Err(Cause::DescendingStructure { role }),
            None => Ok(()),
        }
    }

    /// No pending or later transaction begins before. Returns who is forgotten.
    pub fn collect(&mut self, staleness: Timestamp) -> Vec<TxnId> {
        self.staleness = self.staleness.max(staleness);
        let mut forgotten = Vec::new();
        while self.is_full() {
            let Some((at, id, rows)) = self.order.pop_front() else { break };
            self.floor = at;
            self.committed.remove(&id);
            for row in rows {
                if self.writers.get(&row).is_some_and(|(last, _)| *last == at) {
                    self.writers.remove(&row);
                }
            }
            forgotten.push(id);
        }
        if !forgotten.is_empty() {
            self.forget_late();
        }
        forgotten
    }

    /// Whether the oldest is to be forgotten.
    fn is_full(&self) -> bool {
        let spare = self.order.get(self.limits.spare_max);
        self.order.len() > self.limits.committed_max
            || spare.is_some_and(|(at, _, _)| *at <= self.staleness)
    }

    fn forget_late(&mut self) {
        let committed = &self.committed;
        self.late.retain(|_, writers| {
            writers.retain(|writer| committed.contains_key(writer));
            !writers.is_empty()
        });
    }

    /// A concurrent transaction that committed a write of the same row.
    fn first_committer(&self, proposal: &Proposal) -> Option<TxnId> {
        proposal.writes.iter().find_map(|write| {
            let (at, with) = self.writers.get(&(write.table, write.key))?;
            (*at > proposal.begin).then_some(*with)
        })
    }

    fn around(&self, proposal: &Proposal, incoming: &Incoming) -> Around {
        let lowest = proposal.lsv.max(self.floor);
        let matters = |id: &&TxnId| self.committed.get(id).is_some_and(|reader| reader.at > lowest);
        let ins: Vec<TxnId> = incoming.readers.iter().filter(matters).copied().collect();
        let late = self.late.get(&proposal.id).into_iter().flatten();
        let is_known = |id: &&TxnId| self.committed.contains_key(id);
        let outs: Vec<TxnId> = proposal.out.iter().chain(late).filter(is_known).copied().collect();
        let first = outs.iter().map(|id| self.committed[id].at).min();
        let choice = || Choice {
            lowest,
            begin: proposal.begin,
            overwritten: first.unwrap_or(self.clock.next()),
            peaks_from: self.peaks_from(&ins, &outs),
            writes: !proposal.writes.is_empty(),
            is_led_to: !ins.is_empty(),
        };
        let lsv = if self.limits.by_the_letter { lowest } else { choose(&choice()) };
        Around { lsv, ins, outs }
    }

    /// From which lsv on a transaction with these edges is a peak.
    fn peaks_from(&self, ins: &[TxnId], outs: &[TxnId]) -> Option<Timestamp> {
        let with = |id: &TxnId| {
            let follow = &self.committed[id];
            let returns = ins.contains(id).then_some(follow.lsv);
            returns.or(follow.trailing.map(|trailing| trailing.max(follow.lsv)))
        };
        outs.iter().filter_map(with).min()
    }

    /// The place that it would take in a descending structure with committed ones.
    fn role(&self, around: &Around) -> Option<Role> {
        if self.is_peak(around) {
            Some(Role::Peak)
        } else if self.is_follow(around) {
            Some(Role::Follow)
        } else if self.is_trailing(around) {
            Some(Role::Trailing)
        } else {
            None
        }
    }

    /// One that it leads to leads on, to a third or back to it, whatever lsv it takes.
    fn is_peak(&self, Around { lsv, ins, outs }: &Around) -> bool {
        outs.iter().any(|id| {
            let follow = &self.committed[id];
            let leads_on = follow.trailing.is_some_and(|trailing| trailing <= *lsv);
            follow.lsv <= *lsv && (leads_on || ins.contains(id))
        })
    }

    fn is_follow(&self, around: &Around) -> bool {
        let (Some(peak), Some(trailing)) = (self.peak(around), self.trailing(around)) else {
            return false;
        };
        around.lsv <= peak && trailing <= peak
    }

    fn is_trailing(&self, Around { lsv, ins, .. }: &Around) -> bool {
        ins.iter().any(|id| {
            let follow = &self.committed[id];
            follow.peak.is_some_and(|peak| follow.lsv <= peak && *lsv <= peak)
        })
    }

    fn peak(&self, around: &Around) -> Option<Timestamp> {
        around.ins.iter().map(|id| self.committed[id].lsv).max()
    }

    fn trailing(&self, around: &Around) -> Option<Timestamp> {
        around.outs.iter().map(|id| self.committed[id].lsv).min()
    }

    fn commit(&mut self, proposal: &Proposal, incoming: &Incoming, around: &Around) {
        let lsv = around.lsv;
        let entry =
            Entry { at: self.clock, lsv, peak: self.peak(around), trailing: self.trailing(around) };
        for reader in &around.ins {
            self.committed.entry(*reader).and_modify(|reader| {
                reader.trailing = Some(reader.trailing.map_or(lsv, |lowest| lowest.min(lsv)));
            });
        }
        for writer in &around.outs {
            self.committed
                .entry(*writer)
                .and_modify(|writer| writer.peak = writer.peak.max(Some(lsv)));
        }
        for reader in incoming.readers.iter().filter(|id| !self.committed.contains_key(id)) {
            self.late.entry(*reader).or_default().push(proposal.id);
        }
        let rows: Box<[Row]> =
            proposal.writes.iter().map(|write| (write.table, write.key)).collect();
        self.writers.extend(rows.iter().map(|row| (*row, (self.clock, proposal.id))));
        self.committed.insert(proposal.id, entry);
        self.order.push_back((self.clock, proposal.id, rows));
    }
}
