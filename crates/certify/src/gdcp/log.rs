//! GDCP over any total-order log, in two rounds, for a cluster with a log.
//!
//! Round 1: a proposal is appended. Round 2: every member that sees it at its place appends the edges to it
//! from its own readsets. A proposal is decided, in the order of proposals, at the place in the log where the
//! last member's edges are. Since all sites read the same log, all make the same decision at this place. If the
//! log is durable, a decision is safe without a further round.
//!
//! Everything that a site has to send between two of its appends is one batch: proposals, edges to any number
//! of proposals, its staleness value. At most [`Limits::batches_max`] batches of a site are outstanding, so
//! under load a site appends about that many per round trip, however many transactions there are. A batch may
//! be lost, duplicated or reordered before it is in the log: only the next one of its site counts, and
//! [`LogManager::tick`] appends again what has not appeared.
//!
//! # Departures
//!
//! - Edges are sent by name as on the ring ([`crate::gdcp::message`]); a local reader that is proposed but not
//!   yet in the log counts as proposed.
//! - A proposal that writes nothing needs no second round: it has no incoming edges.
//! - Early aborts: a transaction is aborted at its home before it is sent; by all sites at its place in the
//!   log, if what all sites know is enough to abort it; or by a mark among the edges. A marked proposal does
//!   not wait for other members' edges, but only for its turn. [`crate::gdcp::manager`] says which transactions
//!   are aborted early that might have committed at their turn.
//! - Stop-failures: a record changes the membership, if it is the first to follow the view that it names. At
//!   this record all undecided proposals of all sites are aborted, so it does not matter whether edges of the
//!   leaving site are in the log already. What was decided earlier in the log remains. The failure detector may
//!   be wrong at any time: a member that was excluded sees this in the log, and rejoins as a new incarnation.
//!   Nothing is decided while a member doesn't respond and isn't suspected.

use std::collections::{BTreeMap, VecDeque};

use crate::certification::{SiteId, Timestamp, Transaction, TxnId};
use crate::gdcp::message::{Batch, Change, Incoming, Proposal, Record};
use crate::gdcp::site::Site;
use crate::gdcp::view::View;
use crate::gdcp::{Decided, Effect, Limits, Outcome, Refusal};

/// What happens at a site.
#[derive(Clone, Debug)]
pub enum Event {
    /// A transaction begins with this snapshot. Without it, it may find itself too old later.
    Begin {
        /// The transaction.
        id: TxnId,
        /// The last decision that its snapshot shows.
        begin: Timestamp,
    },
    /// A transaction ends without asking to commit.
    Abandon(TxnId),
    /// A transaction wants to commit.
    Submit(Transaction),
    /// The local database shows the decisions up to here.
    Applied(Timestamp),
    /// The next record of the log, each once and in order.
    Logged(Record),
    /// A site may have stopped.
    Suspect(SiteId),
    /// It has not.
    Trust(SiteId),
}

type Effects = Vec<Effect<Record>>;

/// A replication manager that follows a log.
#[derive(Clone, Debug)]
pub struct LogManager {
    me: SiteId,
    incarnation: u64,
    limits: Limits,
    view: View,
    site: Site,
    /// The members: how many batches of each counted, and up to where it has told edges.
    members: BTreeMap<SiteId, (u64, Timestamp)>,
    /// The last proposal in the log.
    seen: Timestamp,
    /// Not decided, in order, without gaps up to `seen`. At most [`Limits::pending_max`] for each
    /// member.
    undecided: VecDeque<Slot>,
    outbox: Outbox,
    /// Sites to be put out of the view. At most one entry a member.
    suspects: Vec<SiteId>,
    now_ms: u64,
}

/// A proposal in the log.
#[derive(Clone, Debug)]
struct Slot {
    proposal: Proposal,
    incoming: Incoming,
}

/// What this site has to say, and what it has said and not seen in the log.
#[derive(Clone, Debug, Default)]
struct Outbox {
    /// At most [`Limits::pending_max`].
    proposals: Vec<Proposal>,
    /// At most one for each undecided proposal.
    answers: Vec<(Timestamp, Incoming)>,
    /// Up to where edges were told in batches.
    told: Timestamp,
    /// Whether somebody waits for what is not told.
    awaited: bool,
    /// At most [`Limits::batches_max`].
    sent: VecDeque<Batch>,
    next_sequence: u64,
    sent_at_ms: u64,
}

impl LogManager {
    /// Follows the log from where this view started. It takes part if the view lists its
    /// incarnation; else it decides with the others and asks to be in the next one. A manager
    /// that restarts must be of a new incarnation: it has lost its readsets.
    #[must_use]
    pub fn new(me: SiteId, incarnation: u64, view: View, limits: Limits) -> LogManager {
        LogManager {
            me,
            incarnation,
            limits,
            site: Site::new(me, &view, limits),
            members: view.sites().map(|site| (site, (0, view.start))).collect(),
            seen: view.start,
            undecided: VecDeque::new(),
            outbox: Outbox { told: view.start, ..Outbox::default() },
            suspects: Vec::new(),
            now_ms: 0,
            view,
        }
    }

    /// The view in force at its place in the log.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Whether it takes part.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.view.members.contains(&(self.me, self.incarnation))
    }

    /// The last decision.
    #[must_use]
    pub fn clock(&self) -> Timestamp {
        self.site.clock()
    }

    /// How many committed transactions and readsets it remembers.
    #[must_use]
    pub fn remembered(&self) -> (usize, usize) {
        self.site.remembered()
    }

    /// Takes an event; returns what is to be done.
    pub fn step(&mut self, event: Event) -> Effects {
        let mut effects = Vec::new();
        match event {
            Event::Begin { id, begin } => self.begin(id, begin, &mut effects),
            Event::Abandon(id) => self.site.abandon(id),
            Event::Submit(transaction) => self.submit(transaction, &mut effects),
            Event::Applied(at) => self.site.applied(at),
            Event::Logged(Record::Batch(batch)) => self.logged(batch, &mut effects),
            Event::Logged(Record::Change(change)) => self.change(&change, &mut effects),
            Event::Suspect(site) => self.suspect(site),
            Event::Trust(site) => self.suspects.retain(|&suspect| suspect != site),
        }
        self.flush(&mut effects);
        effects
    }

    /// Time passes, in milliseconds from any start: appends again what the log may have lost, and
    /// asks for another view if that is wanted.
    pub fn tick(&mut self, now_ms: u64) -> Effects {
        self.now_ms = now_ms;
        if now_ms.saturating_sub(self.outbox.sent_at_ms) < self.limits.retry_ms {
            return Vec::new();
        }
        self.outbox.sent_at_ms = now_ms;
        let batches = self.outbox.sent.iter().cloned().map(Record::Batch);
        let change = self.wanted().map(Record::Change);
        batches.chain(change).map(Effect::Transmit).collect()
    }

    fn begin(&mut self, id: TxnId, begin: Timestamp, effects: &mut Effects) {
        let begun =
            if self.is_member() { self.site.begin(id, begin) } else { Err(Refusal::NotMember) };
        if let Err(refusal) = begun {
            effects.push(Effect::Refused { id, refusal });
        }
    }

    fn submit(&mut self, transaction: Transaction, effects: &mut Effects) {
        let id = transaction.id;
        let proposed =
            if self.is_member() { self.site.submit(transaction) } else { Err(Refusal::NotMember) };
        match proposed {
            Ok((proposal, _)) => self.outbox.proposals.push(proposal),
            Err(refusal) => effects.push(Effect::Refused { id, refusal }),
        }
    }

    fn suspect(&mut self, site: SiteId) {
        if site != self.me && self.members.contains_key(&site) && !self.suspects.contains(&site) {
            self.suspects.push(site);
        }
    }

    /// The view that this site would rather be in.
    fn wanted(&self) -> Option<Change> {
        if self.is_member() && self.suspects.is_empty() {
            return None;
        }
        let mut members = self.view.members.clone();
        members.retain(|(site, _)| !self.suspects.contains(site) && *site != self.me);
        members.push((self.me, self.incarnation));
        members.sort_unstable();
        Some(Change { after: self.view.number, members })
    }

    /// A batch at its place in the log.
    fn logged(&mut self, batch: Batch, effects: &mut Effects) {
        if !self.counts(&batch) {
            return;
        }
        if batch.site == self.me {
            self.outbox.sent.pop_front();
        }
        self.hear(batch.site, batch.upto, batch.answers);
        for proposal in batch.proposals {
            self.receive(proposal);
        }
        self.site.heard([(batch.site, batch.staleness)]);
        self.deliver(effects);
    }

    fn counts(&mut self, batch: &Batch) -> bool {
        let Some((next, _)) = self.members.get_mut(&batch.site) else { return false };
        let counts = batch.view == self.view.number && batch.sequence == *next;
        *next += u64::from(counts);
        counts
    }

    /// Round 2 of a member.
    fn hear(&mut self, site: SiteId, upto: Timestamp, answers: Vec<(Timestamp, Incoming)>) {
        let first = self.seen.0 + 1 - self.undecided.len() as u64;
        for (at, incoming) in answers {
            let place = at.0.checked_sub(first).and_then(|place| usize::try_from(place).ok());
            if let Some(slot) = place.and_then(|place| self.undecided.get_mut(place)) {
                slot.incoming.merge(incoming);
            }
        }
        if let Some((_, told)) = self.members.get_mut(&site) {
            *told = upto.min(self.seen).max(*told);
        }
    }

    /// Round 1: a proposal gets its place.
    fn receive(&mut self, proposal: Proposal) {
        self.seen.0 += 1;
        let doomed = self.site.judge(&proposal, &Incoming::default());
        if self.is_member() {
            let answer = self.site.answer(&proposal);
            if answer != Incoming::default() && doomed.is_none() {
                self.outbox.answers.push((self.seen, answer));
            }
            self.outbox.awaited |= doomed.is_none() && !proposal.writes.is_empty();
        }
        self.site.learn(&proposal);
        let incoming = Incoming { doomed, ..Incoming::default() };
        self.undecided.push_back(Slot { proposal, incoming });
    }

    fn deliver(&mut self, effects: &mut Effects) {
        while let Some(slot) = self.undecided.front()
            && self.is_decidable(slot)
        {
            effects.push(Effect::Decided(self.site.decide(&slot.proposal, &slot.incoming)));
            self.undecided.pop_front();
        }
    }

    fn is_decidable(&self, slot: &Slot) -> bool {
        let at = Timestamp(self.site.clock().0 + 1);
        slot.incoming.doomed.is_some()
            || slot.proposal.writes.is_empty()
            || self.members.values().all(|&(_, told)| told >= at)
    }

    /// Sends what there is to say, in as few batches as keep nobody waiting.
    fn flush(&mut self, effects: &mut Effects) {
        let silent = self.seen.0 - self.outbox.told.0 >= self.limits.report_every;
        let urgent = self.outbox.awaited || !self.outbox.proposals.is_empty() || silent;
        if !self.is_member() || !urgent || self.outbox.sent.len() >= self.limits.batches_max {
            return;
        }
        let batch = Batch {
            view: self.view.number,
            site: self.me,
            sequence: self.outbox.next_sequence,
            upto: self.seen,
            answers: std::mem::take(&mut self.outbox.answers),
            proposals: std::mem::take(&mut self.outbox.proposals),
            staleness: self.site.staleness(),
        };
        self.outbox.told = self.seen;
        self.outbox.awaited = false;
        self.outbox.next_sequence += 1;
        if self.outbox.sent.is_empty() {
            self.outbox.sent_at_ms = self.now_ms;
        }
        self.outbox.sent.push_back(batch.clone());
        effects.push(Effect::Transmit(Record::Batch(batch)));
    }

    /// A new view at its place in the log: all that is undecided ends.
    fn change(&mut self, change: &Change, effects: &mut Effects) {
        if change.after != self.view.number || change.members.is_empty() {
            return;
        }
        self.end_undecided(effects);
        let members = change.members.clone();
        let view = View { number: self.view.number + 1, members, start: self.seen };
        let (now_ms, suspects) = (self.now_ms, std::mem::take(&mut self.suspects));
        *self = LogManager::new(self.me, self.incarnation, view.clone(), self.limits);
        self.now_ms = now_ms;
        self.outbox.sent_at_ms = now_ms;
        self.suspects = suspects;
        self.suspects.retain(|site| self.members.contains_key(site));
        effects.push(Effect::Viewed(view));
    }

    fn end_undecided(&mut self, effects: &mut Effects) {
        let (mut at, floor) = (self.site.clock(), self.site.floor());
        let mut ended = Vec::new();
        for Slot { proposal, .. } in self.undecided.drain(..) {
            at.0 += 1;
            ended.push(proposal.id);
            let Proposal { id, writes, .. } = proposal;
            effects.push(Effect::Decided(Decided {
                id,
                at,
                outcome: Outcome::Ended,
                writes,
                floor,
            }));
        }
        for id in self.site.undecided().filter(|id| !ended.contains(id)) {
            effects.push(Effect::Refused { id, refusal: Refusal::Ended });
        }
    }
}
