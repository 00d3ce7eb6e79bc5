//! A site of the SIPRe protocol: its state and its two entry points, for events and for time. What it does as
//! coordinator of clients' transactions is in `coordinator.rs`, what it runs in its own database in `part.rs`,
//! what is delivered in total order in `delivery.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};

use super::catalog::Catalog;
use super::certification::{Certifier, Checkpoint};
use super::coordinator::Coordinated;
use super::limits::Limits;
use super::message::{Content, Effect, Event, Message, ObjectId, Run};
use super::part::{Part, Request};
use super::snapshot::Snapshots;

/// What a site knows of another.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    is_down: bool,
    /// When it said something last.
    heard_ms: u64,
    /// The oldest start timestamp that it reported.
    oldest: Timestamp,
}

/// A site.
#[derive(Clone, Debug)]
pub struct Site<C: Content> {
    pub(super) id: SiteId,
    pub(super) catalog: Catalog,
    pub(super) limits: Limits,
    pub(super) now_ms: u64,
    /// The last position that was delivered.
    pub(super) delivered: Timestamp,
    /// The last position whose changes the database had when the site started.
    pub(super) durable: Timestamp,
    pub(super) certifier: Certifier,
    pub(super) snapshots: Snapshots,
    /// Transactions of clients of this site: `transactions_max`.
    pub(super) coordinated: BTreeMap<TxnId, Coordinated<C>>,
    /// Transactions of any coordinator in this site's database: `parts_max`.
    pub(super) parts: BTreeMap<TxnId, Part<C>>,
    /// What the database is running: one a part at most.
    pub(super) running: BTreeMap<Run, TxnId>,
    /// Operations whose snapshot is not delivered yet: `waiting_max`.
    pub(super) waiting: VecDeque<Request<C>>,
    pub(super) runs: u64,
    /// The other sites.
    peers: BTreeMap<SiteId, Peer>,
    reported_ms: Option<u64>,
    pub(super) effects: Vec<Effect<C>>,
}

impl<C: Content> Site<C> {
    /// A site that never ran, with an empty database; all sites of the catalog are taken for living.
    #[must_use]
    pub fn new(id: SiteId, catalog: Catalog, limits: Limits) -> Site<C> {
        Site::recover(id, catalog, limits, Checkpoint::default(), Timestamp(0))
    }

    /// A site after a crash. Its database has every change up to `durable` (the `at` of its last
    /// [`Effect::Commit`]); the checkpoint is its own or any other site's, not after `durable`. The
    /// total order is to be delivered again from the position behind the checkpoint. Transactions
    /// that were open before are gone; those proposed before may still commit.
    ///
    /// # Panics
    /// A checkpoint after `durable`.
    #[must_use]
    pub fn recover(
        id: SiteId,
        catalog: Catalog,
        limits: Limits,
        checkpoint: Checkpoint,
        durable: Timestamp,
    ) -> Site<C> {
        assert!(checkpoint.at <= durable, "the checkpoint is ahead of the database");
        let others = catalog.holders(&[]).into_iter().filter(|&site| site != id);
        let mut site = Site {
            id,
            peers: others.map(|site| (site, Peer::default())).collect(),
            catalog,
            limits,
            now_ms: 0,
            delivered: checkpoint.at,
            durable,
            certifier: Certifier::new(checkpoint),
            snapshots: Snapshots::default(),
            coordinated: BTreeMap::new(),
            parts: BTreeMap::new(),
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            runs: 0,
            reported_ms: None,
            effects: Vec::new(),
        };
        if !site.is_recovering() {
            site.open_snapshot();
        }
        site
    }

    /// Something happened; returns what is to be done about it, in order.
    pub fn step(&mut self, event: Event<C>) -> Vec<Effect<C>> {
        match event {
            Event::Operation { txn, is_first, operation } => {
                self.operation(txn, is_first, operation);
            }
            Event::Commit { txn } => self.commit(txn),
            Event::Abort { txn } => self.abort(txn),
            Event::Message { from, message } => self.message(from, message),
            Event::Delivered { at, proposal } => self.deliver(at, &proposal),
            Event::Executed { run, outcome } => self.executed(run, outcome),
            Event::Down(site) => self.down(site),
        }
        std::mem::take(&mut self.effects)
    }

    /// Time has passed: `now_ms` never goes back.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Effect<C>> {
        self.now_ms = now_ms;
        self.expire_peers();
        self.propose_again();
        self.expire_operations();
        self.expire_parts();
        let due = self.reported_ms.is_none_or(|at| now_ms >= at + self.limits.report_ms);
        if due {
            self.reported_ms = Some(now_ms);
            self.report();
            self.collect();
        }
        std::mem::take(&mut self.effects)
    }

    /// What its certifier remembers, to be kept for [`Site::recover`].
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        self.certifier.checkpoint(self.delivered)
    }

    /// The last position that was delivered here.
    #[must_use]
    pub fn delivered(&self) -> Timestamp {
        self.delivered
    }

    /// Snapshots that are open, for monitoring.
    #[must_use]
    pub fn snapshots(&self) -> usize {
        self.snapshots.len()
    }

    /// Transactions that this site coordinates, and parts of any in its database.
    #[must_use]
    pub fn open(&self) -> (usize, usize) {
        (self.coordinated.len(), self.parts.len())
    }

    /// Whether the database may be ahead of what was delivered.
    pub(super) fn is_recovering(&self) -> bool {
        self.delivered < self.durable
    }

    pub(super) fn holds(&self, object: ObjectId) -> bool {
        self.catalog.holds(self.id, object)
    }

    pub(super) fn is_up(&self, site: SiteId) -> bool {
        site == self.id || self.peers.get(&site).is_some_and(|peer| !peer.is_down)
    }

    pub(super) fn send(&mut self, to: SiteId, message: Message<C>) {
        self.effects.push(Effect::Send { to, message });
    }

    pub(super) fn open_snapshot(&mut self) {
        let at = self.delivered;
        self.effects.push(Effect::OpenSnapshot { at });
        let surplus = self.snapshots.open(at, self.limits.snapshots_max);
        self.close_snapshots(surplus);
    }

    fn close_snapshots(&mut self, surplus: Vec<Timestamp>) {
        self.effects.extend(surplus.into_iter().map(|at| Effect::CloseSnapshot { at }));
    }

    fn message(&mut self, from: SiteId, message: Message<C>) {
        if let Some(peer) = self.peers.get_mut(&from) {
            (peer.is_down, peer.heard_ms) = (false, self.now_ms);
        }
        match message {
            Message::Redirect { txn, step, begin, changes, operation } => {
                self.request(Request { txn, step, begin, changes, operation });
            }
            Message::Redirected { txn, step, outcome } => self.answered(txn, step, outcome),
            Message::Release { txn } => self.end_part(txn),
            Message::Doomed { txn } => self.doomed(txn),
            Message::Oldest { at } => self.reported(from, at),
        }
    }

    fn reported(&mut self, from: SiteId, at: Timestamp) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.oldest = at.max(peer.oldest);
        }
    }

    fn report(&mut self) {
        let at = self.oldest_begin();
        let peers: BTreeSet<SiteId> = self.peers.keys().copied().collect();
        for to in peers {
            self.send(to, Message::Oldest { at });
        }
    }

    /// Closes the snapshots that no transaction of any living site can ask for.
    fn collect(&mut self) {
        let living = self.peers.values().filter(|peer| !peer.is_down);
        let oldest = living.map(|peer| peer.oldest).fold(self.oldest_begin(), Timestamp::min);
        let surplus = self.snapshots.collect(oldest);
        self.close_snapshots(surplus);
    }

    fn expire_peers(&mut self) {
        let (now_ms, max) = (self.now_ms, self.limits.silence_ms_max);
        let silent: Vec<SiteId> = (self.peers.iter())
            .filter(|(_, peer)| !peer.is_down && now_ms >= peer.heard_ms + max)
            .map(|(&site, _)| site)
            .collect();
        for site in silent {
            self.down(site);
        }
    }

    fn down(&mut self, site: SiteId) {
        let Some(peer) = self.peers.get_mut(&site) else { return };
        peer.is_down = true;
        self.forget_parts_of(site);
        self.fail_operations_at(site);
    }
}
