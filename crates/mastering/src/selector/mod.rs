//! The site selector: decides where each transaction runs, and which mastership moves for it (DynaMast paper,
//! sections III-B, IV and V-B).
//!
//! Keeps I8: waiting requests, pins and history have bounds. The sites ensure safety: a selector that lags, was
//! restarted or runs twice costs only time. Decisions depend only on events; randomness comes with each
//! request, and ties go to the lowest site.
//!
//! A shell must pass it the sites' answers and, to keep it up to date, the mastership records of all logs;
//! after a restart, the logs' records from the beginning, then [`Event::Recovered`].
//!
//! Departures:
//! - A request that needs a move waits for earlier ones that share partitions with it; a request that needs
//!   none doesn't wait. (With the paper's locks the order is not determined.)
//! - The paper holds shared locks until the transaction begins; here its partitions are pinned
//!   until the client says that it began, for at most `pin_ms`.
//! - Users can set the weights. The default is [`config::Weights::ycsb`], in which equation 7 (what a client's
//!   transactions need one after another) has the weight 0; the statistics for it are kept all the same.
//!   [`config::Weights::tpcc`] turns it on.
//! - Nothing moves unless a transaction needs it to, as in the paper. So data that starts at one
//!   site stays there ([`crate::mastership::Homes::All`]), however unbalanced that is.

pub mod config;
pub mod grouping;
mod requests;
pub mod score;
pub mod statistics;
mod table;

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{ClientId, PartitionId, SiteId, Term};
use crate::record::{Change, ChangeKind};
use crate::selector::config::SelectorConfig;
use crate::selector::requests::{Pins, Request};
use crate::selector::score::{Factors, Scene, benefit};
use crate::selector::statistics::Statistics;
use crate::selector::table::Table;
use crate::vector::{ClientVector, SiteVector};

pub use crate::selector::requests::{PINS_MAX, REQUESTS_MAX, RequestId};

/// What happens to a selector.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client wants to run a transaction.
    Route {
        /// The shell's name for the request.
        request: RequestId,
        /// Whose.
        client: ClientId,
        /// What its session has seen.
        seen: ClientVector,
        /// The partitions that it may write; empty for a read-only transaction.
        writes: Vec<PartitionId>,
        /// Random bits, for sampling and for choosing among equally good sites of reads.
        random: u64,
    },
    /// The transaction of a routed request began at its site.
    Began {
        /// Which.
        request: RequestId,
    },
    /// A site's answer to a release or grant, or a record of a log.
    Changed(Change),
    /// A site's version vector at some moment.
    Vector {
        /// Whose.
        site: SiteId,
        /// The vector.
        vector: SiteVector,
    },
    /// A site answers no more.
    Down(SiteId),
    /// A site is back; its vector may be behind what it was.
    Up {
        /// Which.
        site: SiteId,
        /// Where it stands.
        vector: SiteVector,
    },
    /// All logs have been read.
    Recovered,
}

/// What a selector wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Tell the client where to run.
    Routed {
        /// Which request.
        request: RequestId,
        /// Where.
        site: SiteId,
        /// The least version to run on.
        floor: SiteVector,
        /// How many partitions moved for it.
        moved: u32,
    },
    /// Tell the client that it can't run.
    Refused {
        /// Which request.
        request: RequestId,
        /// Why.
        why: Refusal,
    },
    /// Ask a site to give a partition away.
    Release {
        /// Whom.
        site: SiteId,
        /// Which.
        partition: PartitionId,
        /// The term that shall end.
        term: Term,
        /// Who shall have it.
        to: SiteId,
    },
    /// Ask a site to take a partition over.
    Grant {
        /// Whom.
        site: SiteId,
        /// The release that makes it free.
        release: Change,
    },
}

/// Why a request is not routed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// A partition that does not exist, or too many.
    BadWriteSet,
    /// A site that masters some of it is down, or every site is.
    SiteDown,
    /// Mastership could not be brought together in time.
    TooLong,
    /// A bound is reached.
    Busy,
}

/// A partition on its way.
#[derive(Clone, Debug)]
struct Move {
    to: SiteId,
    stage: Stage,
    sent_ms: u64,
}

#[derive(Clone, Debug)]
enum Stage {
    Releasing { from: SiteId, term: Term },
    Granting { release: Change },
}

/// The site selector.
#[derive(Debug)]
pub struct Selector {
    config: SelectorConfig,
    table: Table,
    statistics: Statistics,
    /// Two lists, so that vectors are a slice for the score.
    vectors: Vec<SiteVector>,
    up: Vec<bool>,
    /// At most one a partition.
    moves: BTreeMap<PartitionId, Move>,
    /// In order of arrival, at most [`REQUESTS_MAX`].
    waiting: VecDeque<Request>,
    pins: Pins,
    recovering: bool,
    now_ms: u64,
}

impl Selector {
    /// Of a new cluster.
    #[must_use]
    pub fn new(config: SelectorConfig) -> Selector {
        Selector {
            table: Table::at_homes(config.sites, config.partitions, &config.homes),
            statistics: Statistics::new(config.sampling.clone(), config.sites, config.partitions),
            vectors: vec![SiteVector::zero(config.sites); config.sites],
            up: vec![true; config.sites],
            moves: BTreeMap::new(),
            waiting: VecDeque::new(),
            pins: Pins::default(),
            recovering: false,
            now_ms: 0,
            config,
        }
    }

    /// Of a cluster that has a past: keeps requests waiting until [`Event::Recovered`].
    #[must_use]
    pub fn recovering(config: SelectorConfig) -> Selector {
        Selector { recovering: true, ..Selector::new(config) }
    }

    /// Who masters the partition, as far as is known here.
    #[must_use]
    pub fn master(&self, partition: PartitionId) -> SiteId {
        self.table.master(partition)
    }

    /// What is known of past transactions.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// How many requests wait and how many partitions move.
    #[must_use]
    pub fn pending(&self) -> (usize, usize) {
        (self.waiting.len(), self.moves.len())
    }

    /// Something happened.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        match event {
            Event::Route { request, client, seen, writes, random } => {
                self.route(request, client, seen, writes, random, &mut out);
            }
            Event::Began { request } => {
                if self.unpin(request) {
                    self.reconsider(&mut out);
                }
            }
            Event::Changed(change) => self.changed(&change, &mut out),
            Event::Vector { site, vector } => {
                if let Some(known) = self.vectors.get_mut(site.index()) {
                    known.raise(&vector);
                }
            }
            Event::Down(site) => self.set_up(site, false),
            Event::Up { site, vector } => {
                self.set_up(site, true);
                if let Some(known) = self.vectors.get_mut(site.index()) {
                    *known = vector;
                }
                self.reconsider(&mut out);
            }
            Event::Recovered => {
                self.recovering = false;
                self.resend(&mut out, |_| true);
                self.reconsider(&mut out);
            }
        }
        out
    }

    /// Time has passed: it is `now_ms` milliseconds. Sends again what was not answered, refuses
    /// what waited for too long, forgets old pins and samples.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Effect> {
        self.now_ms = now_ms;
        let mut out = Vec::new();
        self.statistics.expire(now_ms, |p| self.table.master(p));
        for request in self.pins.expired(now_ms) {
            self.unpin(request);
        }
        self.expire_requests(&mut out);
        if !self.recovering {
            let retry_ms = self.config.retry_ms;
            self.resend(&mut out, |sent_ms| sent_ms + retry_ms <= now_ms);
            self.reconsider(&mut out);
        }
        out
    }

    /// The site to which equations 2 to 8 would move these partitions (sorted, no doubles);
    /// none when every site is down.
    #[must_use]
    pub fn best_site(&self, writes: &[PartitionId], seen: &ClientVector) -> Option<SiteId> {
        let mut best: Option<(SiteId, f64)> = None;
        for (site, factors) in self.factors(writes, seen).iter().enumerate() {
            let score = benefit(&self.config.weights, factors);
            if self.up[site] && best.is_none_or(|(_, highest)| score > highest) {
                best = Some((SiteId(site as u16), score));
            }
        }
        best.map(|(site, _)| site)
    }

    /// The factors of each site for these partitions (sorted, no doubles).
    #[must_use]
    pub fn factors(&self, writes: &[PartitionId], seen: &ClientVector) -> Vec<Factors> {
        let scene = Scene {
            writes,
            seen,
            vectors: &self.vectors,
            statistics: &self.statistics,
            master: |p| self.table.master(p),
        };
        scene.factors()
    }

    fn set_up(&mut self, site: SiteId, up: bool) {
        if let Some(known) = self.up.get_mut(site.index()) {
            *known = up;
        }
    }

    fn route(
        &mut self,
        request: RequestId,
        client: ClientId,
        seen: ClientVector,
        mut writes: Vec<PartitionId>,
        random: u64,
        out: &mut Vec<Effect>,
    ) {
        if writes.is_empty() {
            return self.route_read(request, &seen, random, out);
        }
        writes.sort_unstable();
        writes.dedup();
        let wide = writes.len() > crate::site::WRITE_SET_MAX;
        if wide || !writes.iter().all(|p| self.table.has(*p)) {
            return out.push(Effect::Refused { request, why: Refusal::BadWriteSet });
        }
        self.statistics.offer(client, &writes, random, self.now_ms, |p| self.table.master(p));
        let deadline_ms = self.now_ms + self.config.wait_ms_max;
        let request = Request::new(request, seen, writes, deadline_ms, self.config.sites);
        self.arrive(request, out);
    }

    /// Reads run at any site that is fresh enough for the session, chosen at random (section
    /// IV-B); if none is known to be, at the one that lacks least.
    fn route_read(
        &mut self,
        request: RequestId,
        seen: &ClientVector,
        random: u64,
        out: &mut Vec<Effect>,
    ) {
        let site = self.random_fresh_site(seen, random).or_else(|| self.freshest_site(seen));
        out.push(match site {
            Some(site) => {
                let floor = SiteVector::zero(self.config.sites);
                Effect::Routed { request, site, floor, moved: 0 }
            }
            None => Effect::Refused { request, why: Refusal::SiteDown },
        });
    }

    fn random_fresh_site(&self, seen: &ClientVector, random: u64) -> Option<SiteId> {
        let fresh = |site: &usize| self.up[*site] && self.vectors[*site].is_fresh_for(seen);
        let count = (0..self.config.sites).filter(fresh).count() as u64;
        let nth = random.checked_rem(count)?;
        (0..self.config.sites).filter(fresh).nth(nth as usize).map(|site| SiteId(site as u16))
    }

    fn freshest_site(&self, seen: &ClientVector) -> Option<SiteId> {
        let mut needed = SiteVector::zero(self.config.sites);
        needed.raise_to_client(seen);
        let up = (0..self.config.sites).filter(|site| self.up[*site]);
        let least = up.min_by_key(|site| self.vectors[*site].missing(&needed));
        least.map(|site| SiteId(site as u16))
    }

    /// Takes in a change of mastership and goes on with what it makes possible.
    fn changed(&mut self, change: &Change, out: &mut Vec<Effect>) {
        let partition = change.partition;
        let origin = change.vector.origin();
        if origin.index() >= self.config.sites || !self.table.has(partition) {
            return;
        }
        let before = self.table.master(partition);
        if !self.table.observe(change) {
            return;
        }
        self.statistics.moved(partition, before, origin);
        self.vectors[origin.index()].raise_to_commit(&change.vector);
        match change.kind {
            ChangeKind::Released { to } => self.grant(change, to, out),
            ChangeKind::Granted => {
                self.moves.remove(&partition);
                for request in self.waiting.iter_mut().filter(|r| r.wants(partition)) {
                    request.floor.raise_to_commit(&change.vector);
                }
            }
        }
        if self.table.is_claimed(partition) {
            self.reconsider(out);
        }
    }

    /// The release names who takes it, whatever this selector would have liked.
    fn grant(&mut self, release: &Change, to: SiteId, out: &mut Vec<Effect>) {
        let stage = Stage::Granting { release: release.clone() };
        let step = Move { to, stage, sent_ms: self.now_ms };
        if !self.recovering {
            out.push(message(release.partition, &step));
        }
        self.moves.insert(release.partition, step);
    }

    /// Sends again the messages of moves that were last sent at a time that is `due`.
    fn resend(&mut self, out: &mut Vec<Effect>, due: impl Fn(u64) -> bool) {
        for (partition, step) in self.moves.iter_mut().filter(|(_, step)| due(step.sent_ms)) {
            step.sent_ms = self.now_ms;
            out.push(message(*partition, step));
        }
    }
}

/// What must be sent for a move in its present stage.
fn message(partition: PartitionId, step: &Move) -> Effect {
    match &step.stage {
        Stage::Releasing { from, term } => {
            Effect::Release { site: *from, partition, term: *term, to: step.to }
        }
        Stage::Granting { release } => Effect::Grant { site: step.to, release: release.clone() },
    }
}
