//! Algorithm 1 (RSSI paper, section 4.1, appendices B and C): a site's replication manager on a ring. There are
//! no timers: links and the failure detector are outside, so [`RingManager::step`] is the only entry point.
//!
//! A proposal goes round the ring and collects rw-edges from the readsets of the sites that it passes
//! ([`Body::Gather`]), then a second time with all of them ([`Body::Decide`]). A site that has the edges of all
//! proposals up to this one decides it. n sites need n + (n - 1) hops, as in the paper.
//!
//! # Departures
//!
//! - A decision is *released* (applied, and reported to the client) only when every site can make it: a third
//!   circulation of n - 1 hops ([`Body::Safe`]), as LCR has its acknowledgements. In the paper the home of the
//!   first proposal in the order answers its client right after the first circulation. If this site fails then,
//!   no other site has the edges, and the others abort a transaction that was acknowledged (test
//!   `a_decision_that_is_not_released_can_be_lost_with_its_site`).
//! - The second circulation does not carry the writeset again: every site has it by then.
//! - Early aborts. At home a transaction is refused before it is sent if it conflicts with what has committed
//!   there; on its way it is marked (`doomed`), keeps its place in the order and is aborted there. Committed
//!   transactions and the edges among them remain, so exactly those transactions are aborted early that would
//!   be aborted at their turn, with one exception: if so much was forgotten meanwhile that a transaction's lsv
//!   counts as higher ([`crate::gdcp::ledger`]), it might have committed at its turn. Transactions refused at
//!   home have no place in the order.
//! - Stop-failures: a site that suspects another stops the view; [`crate::gdcp::view::succeed`] makes the next
//!   one. Messages of older views are ignored, and messages of views that a site has not entered yet wait. It
//!   is assumed that views are numbered by one service, and that the new view has a report of at least one site
//!   of the old one. A suspicion may be wrong: whatever the suspected site releases afterwards, every other
//!   site could decide before it stopped.

use std::collections::{BTreeMap, VecDeque};

use crate::certification::{SiteId, Timestamp, Transaction, TxnId};
use crate::gdcp::message::{Body, Incoming, Message, Proposal};
use crate::gdcp::ring::{Order, Ring, Stamp};
use crate::gdcp::site::Site;
use crate::gdcp::view::{StopReport, Succession, View};
use crate::gdcp::{Decided, Effect, Limits, Refusal};

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
    /// From the predecessor.
    Receive(Message),
    /// A site of the group may have stopped: stop the group.
    Suspect,
    /// The next view.
    NewView(Succession),
}

type Effects = Vec<Effect<Message>>;

/// A replication manager on a ring.
#[derive(Clone, Debug)]
pub struct RingManager {
    me: SiteId,
    incarnation: u64,
    limits: Limits,
    /// The last decision.
    clock: Timestamp,
    /// The last decision that was released: what a restarted site's database shows.
    released: Timestamp,
    /// The last decisions: those that were not released at another member are among them. At most
    /// twice [`Limits::pending_max`] for each member.
    recent: VecDeque<Decided>,
    group: Option<Group>,
    /// Messages of views that this site has not entered yet. None of their transactions gets round
    /// without this site, so they are at most [`Limits::pending_max`] from each member; beyond
    /// that many from [`MEMBERS_MAX`] sites they are dropped.
    early: VecDeque<Message>,
}

/// More sites than any ring has.
const MEMBERS_MAX: usize = 64;

/// What happens at a site whose group has stopped, or that is in none.
fn turn_away(event: Event, site: Option<&mut Site>, effects: &mut Effects) {
    let (id, is_abandoned) = match event {
        Event::Abandon(id) => (id, true),
        Event::Submit(Transaction { id, .. }) | Event::Begin { id, .. } => (id, false),
        _ => return,
    };
    if let Some(site) = site {
        site.abandon(id);
    }
    if !is_abandoned {
        effects.push(Effect::Refused { id, refusal: Refusal::NotMember });
    }
}

/// The view that the site is in.
#[derive(Clone, Debug)]
struct Group {
    limits: Limits,
    view: View,
    stopped: bool,
    site: Site,
    ring: Ring,
    /// Not decided. At most [`Limits::pending_max`] for each member.
    pending: BTreeMap<Order, Slot>,
    /// Decided, not released: when, and whether every site can decide it. Bounded likewise.
    unreleased: BTreeMap<Order, (Timestamp, bool)>,
}

/// A proposal that is not decided.
#[derive(Clone, Debug)]
struct Slot {
    proposal: Proposal,
    /// The edges to it: as far as they were known when it passed, or all of them.
    incoming: Incoming,
    /// The staleness values that came with it, once all edges are known ("Decide").
    staleness: Option<Vec<(SiteId, Timestamp)>>,
    /// Whether every site knows all edges.
    safe: bool,
}

impl RingManager {
    /// Of a site whose database shows the decisions up to `applied`; in no view yet.
    #[must_use]
    pub fn new(me: SiteId, incarnation: u64, applied: Timestamp, limits: Limits) -> RingManager {
        let (clock, released, recent) = (applied, applied, VecDeque::new());
        let early = VecDeque::new();
        RingManager { me, incarnation, limits, clock, released, recent, group: None, early }
    }

    /// In which view it is.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.group.as_ref().map(|group| &group.view)
    }

    /// To whom [`Effect::Transmit`] sends.
    #[must_use]
    pub fn successor(&self) -> Option<SiteId> {
        self.group.as_ref().map(|group| group.ring.successor())
    }

    /// How far it came in a group that has stopped.
    #[must_use]
    pub fn stop_report(&self) -> Option<StopReport> {
        let group = self.group.as_ref().filter(|group| group.stopped)?;
        let recent = self.recent.iter().cloned().collect();
        Some(StopReport { site: self.me, view: group.view.number, decided: self.clock, recent })
    }

    /// How many committed transactions and readsets it remembers.
    #[must_use]
    pub fn remembered(&self) -> (usize, usize) {
        self.group.as_ref().map_or((0, 0), |group| group.site.remembered())
    }

    /// Takes an event; returns what is to be done.
    pub fn step(&mut self, event: Event) -> Effects {
        let mut effects = Vec::new();
        match event {
            Event::NewView(succession) => {
                self.enter(succession, &mut effects);
                self.receive_early(&mut effects);
            }
            Event::Receive(message) if self.is_early(&message) => self.keep_early(message),
            event => self.step_in_group(event, &mut effects),
        }
        for effect in &effects {
            self.remember(effect);
        }
        effects
    }

    fn is_early(&self, message: &Message) -> bool {
        self.view().is_none_or(|view| view.number < message.view)
    }

    fn keep_early(&mut self, message: Message) {
        if self.early.len() < self.limits.pending_max.saturating_mul(MEMBERS_MAX) {
            self.early.push_back(message);
        }
    }

    /// Takes up what arrived before the site entered the view.
    fn receive_early(&mut self, effects: &mut Effects) {
        for message in std::mem::take(&mut self.early) {
            if self.is_early(&message) {
                self.early.push_back(message);
            } else {
                self.step_in_group(Event::Receive(message), effects);
            }
        }
    }

    fn step_in_group(&mut self, event: Event, effects: &mut Effects) {
        match self.group.as_mut() {
            Some(group) if !group.stopped => group.step(event, effects),
            group => {
                let site = group.map(|group| &mut group.site);
                turn_away(event, site, effects);
            }
        }
    }

    fn remember(&mut self, effect: &Effect<Message>) {
        match effect {
            Effect::Decided(decided) => {
                self.clock = decided.at;
                self.recent.push_back(decided.clone());
            }
            Effect::Released(at) => self.released = *at,
            _ => {}
        }
        let members = self.group.as_ref().map_or(1, |group| group.view.members.len());
        let max = members.saturating_mul(self.limits.pending_max).saturating_mul(2);
        while self.recent.len() > max {
            self.recent.pop_front();
        }
    }

    /// All that is undecided ends. What was decided and not released is void: the master copy has
    /// decided it as well and says so again, or it ends.
    fn enter(&mut self, Succession { view, decisions }: Succession, effects: &mut Effects) {
        let is_old = |group: &Group| group.view.number >= view.number;
        if self.group.as_ref().is_some_and(is_old) || view.start < self.released {
            return;
        }
        effects.push(Effect::Void(self.released));
        let void: Vec<TxnId> = self.unreleased().map(|decided| decided.id).collect();
        self.recent.retain(|decided| decided.at <= self.released);
        let made: Vec<Decided> =
            decisions.into_iter().filter(|decided| decided.at > self.released).collect();
        self.end_undecided(void, &made, effects);
        if made.first().map_or(view.start.0 + 1, |decided| decided.at.0) > self.released.0 + 1 {
            effects.push(Effect::NeedsCopy(view.start));
        } else {
            effects.extend(made.into_iter().map(Effect::Decided));
        }
        self.clock = view.start;
        effects.push(Effect::Released(view.start));
        self.group = Group::new(self.me, self.incarnation, &view, self.limits);
        effects.push(Effect::Viewed(view));
    }

    fn unreleased(&self) -> impl Iterator<Item = &Decided> {
        self.recent.iter().filter(|decided| decided.at > self.released)
    }

    /// Tells the clients of this site whose transactions nobody has decided.
    fn end_undecided(&self, void: Vec<TxnId>, made: &[Decided], effects: &mut Effects) {
        let undecided = self.group.iter().flat_map(|group| group.site.undecided());
        let local = undecided.chain(void.into_iter().filter(|id| id.site == self.me));
        for id in local.filter(|id| made.iter().all(|decided| decided.id != *id)) {
            effects.push(Effect::Refused { id, refusal: Refusal::Ended });
        }
    }
}

impl Group {
    fn new(me: SiteId, incarnation: u64, view: &View, limits: Limits) -> Option<Group> {
        if !view.members.contains(&(me, incarnation)) {
            return None;
        }
        Some(Group {
            limits,
            view: view.clone(),
            stopped: false,
            site: Site::new(me, view, limits),
            ring: Ring::new(view.sites(), me)?,
            pending: BTreeMap::new(),
            unreleased: BTreeMap::new(),
        })
    }

    fn step(&mut self, event: Event, effects: &mut Effects) {
        match event {
            Event::Begin { id, begin } => {
                if let Err(refusal) = self.site.begin(id, begin) {
                    effects.push(Effect::Refused { id, refusal });
                }
            }
            Event::Abandon(id) => self.site.abandon(id),
            Event::Applied(at) => self.site.applied(at),
            Event::Submit(transaction) => self.submit(transaction, effects),
            Event::Receive(message) if message.view == self.view.number => {
                self.receive(message, effects);
            }
            Event::Receive(_) | Event::NewView(_) => {}
            Event::Suspect => self.stopped = true,
        }
    }

    fn send(&self, order: Order, body: Body, effects: &mut Effects) {
        effects.push(Effect::Transmit(Message { view: self.view.number, order, body }));
    }

    /// `gdcpBroadcast`.
    fn submit(&mut self, transaction: Transaction, effects: &mut Effects) {
        let id = transaction.id;
        let mine = self.unreleased.keys().filter(|order| self.ring.is_home(**order)).count();
        if mine >= self.limits.pending_max {
            self.site.abandon(id);
            return effects.push(Effect::Refused { id, refusal: Refusal::Busy });
        }
        let (proposal, incoming) = match self.site.submit(transaction) {
            Ok(proposed) => proposed,
            Err(refusal) => return effects.push(Effect::Refused { id, refusal }),
        };
        self.site.learn(&proposal);
        let (order, stamp) = self.ring.stamp();
        self.keep(order, &proposal, &incoming);
        let staleness = vec![self.staleness()];
        if self.ring.is_alone() {
            return self.learn_all_edges(order, incoming, staleness, effects);
        }
        self.send(order, Body::Gather { proposal, stamp, incoming, staleness }, effects);
    }

    fn staleness(&self) -> (SiteId, Timestamp) {
        (self.ring.site(), self.site.staleness())
    }

    fn keep(&mut self, order: Order, proposal: &Proposal, incoming: &Incoming) {
        let (proposal, incoming) = (proposal.clone(), incoming.clone());
        self.pending.insert(order, Slot { proposal, incoming, staleness: None, safe: false });
    }

    /// `upon Rreceive`.
    fn receive(&mut self, Message { order, body, .. }: Message, effects: &mut Effects) {
        match body {
            Body::Gather { incoming, staleness, .. } if self.ring.is_home(order) => {
                self.learn_all_edges(order, incoming, staleness, effects);
            }
            Body::Gather { proposal, stamp, incoming, staleness } => {
                if self.ring.receive(order, &stamp) {
                    self.pass(order, (proposal, stamp, incoming, staleness), effects);
                }
            }
            Body::Decide { incoming, staleness } => {
                self.learn_all_edges(order, incoming, staleness, effects);
            }
            Body::Safe => {
                if !self.ring.is_last_but_one(order) {
                    self.send(order, Body::Safe, effects);
                }
                self.mark_safe(order);
            }
        }
        self.deliver(effects);
    }

    /// A remote writeset passes on its first circulation.
    fn pass(
        &mut self,
        order: Order,
        gather: (Proposal, Stamp, Incoming, Vec<(SiteId, Timestamp)>),
        effects: &mut Effects,
    ) {
        let (proposal, stamp, mut incoming, mut staleness) = gather;
        if incoming.doomed.is_none() {
            incoming.merge(self.site.answer(&proposal));
            incoming.doomed = self.site.judge(&proposal, &incoming);
        }
        self.site.learn(&proposal);
        self.keep(order, &proposal, &incoming);
        staleness.push(self.staleness());
        self.send(order, Body::Gather { proposal, stamp, incoming, staleness }, effects);
    }

    /// A local writeset has been round, and the second circulation begins; or that has come here.
    fn learn_all_edges(
        &mut self,
        order: Order,
        incoming: Incoming,
        staleness: Vec<(SiteId, Timestamp)>,
        effects: &mut Effects,
    ) {
        self.complete(order, incoming.clone(), staleness.clone());
        if self.ring.is_alone() {
            self.mark_safe(order);
            self.deliver(effects);
        } else if self.ring.is_before_home(order) {
            self.mark_safe(order);
            self.send(order, Body::Safe, effects);
        } else {
            self.send(order, Body::Decide { incoming, staleness }, effects);
        }
    }

    fn complete(&mut self, order: Order, incoming: Incoming, staleness: Vec<(SiteId, Timestamp)>) {
        if let Some(slot) = self.pending.get_mut(&order) {
            slot.incoming = incoming;
            slot.staleness = Some(staleness);
        }
    }

    fn mark_safe(&mut self, order: Order) {
        if let Some(slot) = self.pending.get_mut(&order) {
            slot.safe = true;
        }
        if let Some((_, safe)) = self.unreleased.get_mut(&order) {
            *safe = true;
        }
    }

    /// `gdcpDeliver`: decides from the first in the order on, as long as all edges are known.
    fn deliver(&mut self, effects: &mut Effects) {
        while let Some(first) = self.pending.first_entry()
            && first.get().staleness.is_some()
        {
            let (order, slot) = first.remove_entry();
            let decided = self.site.decide(&slot.proposal, &slot.incoming);
            self.unreleased.insert(order, (decided.at, slot.safe));
            effects.push(Effect::Decided(decided));
            self.site.heard(slot.staleness.unwrap_or_default());
        }
        self.release(effects);
    }

    fn release(&mut self, effects: &mut Effects) {
        let mut last = None;
        while let Some(first) = self.unreleased.first_entry()
            && first.get().1
        {
            last = Some(first.remove().0);
        }
        effects.extend(last.map(Effect::Released));
    }
}
