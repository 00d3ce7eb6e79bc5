//! A site under GDCP over the ring. Links are streams. The membership service is the log: it
//! orders who stops a view, what sites had decided when they stopped, who wants to join, and that
//! the next view starts, so that every site computes the same one. What the protocol assumes of
//! failures holds because site 0 never stops and no view starts without its report.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};
use hihooi_certify::gdcp::manager::{Event as Input, RingManager};
use hihooi_certify::gdcp::message::Message;
use hihooi_certify::gdcp::view::{StopReport, Succession, View, succeed};
use hihooi_certify::gdcp::{Decided, Effect};

use crate::database::transaction::{Answer, Work};
use crate::gdcp::log_site::LOG;
use crate::gdcp::replica::{Applied, GdcpNode, Planted, Replica};
use crate::gdcp::trial::{SiteConfig, fingerprint};
use crate::{Boot, Effects, Event, Node, NodeId, Position, Time};

/// How often a site looks around.
const TICK_US: u64 = 2_000;
/// A site that was silent for so long is suspected.
const SUSPECT_US: u64 = 15_000;
/// So many ticks after a view has stopped the next may start.
const STANDING_TICKS: u32 = 4;

/// What sites send each other.
#[derive(Clone, Debug)]
pub enum Letter {
    /// "I am alive."
    Alive,
    /// To the successor.
    Ring(Rc<Message>),
}

/// An entry of the membership log.
#[derive(Clone, Debug)]
pub enum Entry {
    /// The view of this number stops.
    Stop(u64),
    /// What a site had decided when it stopped.
    Report(Rc<StopReport>),
    /// This incarnation of a site wants to be in the next view.
    Join(SiteId, u64),
    /// The view after this one starts.
    Start(u64),
}

/// What a site waits for.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    /// The local transaction comes to its end.
    Finish(TxnId),
    /// Time to look around.
    Tick,
}

/// The membership as the log has it.
#[derive(Debug)]
struct Membership {
    view: View,
    reports: Option<BTreeMap<SiteId, Rc<StopReport>>>,
    joins: BTreeMap<SiteId, u64>,
}

impl Membership {
    /// The next view, if it can start.
    fn succession(&mut self, after: u64) -> Option<Succession> {
        let reports = self
            .reports
            .as_ref()
            .filter(|reports| after == self.view.number && reports.contains_key(&SiteId(0)))?;
        let stayed = self.view.members.iter().filter(|(site, _)| reports.contains_key(site));
        let mut members: BTreeMap<SiteId, u64> = stayed.copied().collect();
        members.append(&mut self.joins);
        let reports: Vec<StopReport> = reports.values().map(|report| (**report).clone()).collect();
        let succession = succeed(&reports, members.into_iter().collect())?;
        self.view = succession.view.clone();
        self.reports = None;
        Some(succession)
    }
}

/// A site.
#[derive(Debug)]
pub struct RingSite {
    replica: Replica,
    manager: RingManager,
    incarnation: u64,
    membership: Membership,
    /// Decided and not released.
    prepared: VecDeque<Decided>,
    heard: BTreeMap<NodeId, Time>,
    stopped_ticks: u32,
    planted: Planted,
}

impl GdcpNode for RingSite {
    fn replica(&self) -> &Replica {
        &self.replica
    }
}

impl Node for RingSite {
    type Message = Letter;
    type Request = Rc<Work>;
    type Response = Rc<Answer>;
    type Entry = Entry;
    type Record = Applied;
    type Timer = Timer;
    type Config = SiteConfig;

    fn start(config: &SiteConfig, boot: Boot<'_, Self>, out: &mut Effects<Self>) -> RingSite {
        let planted = config.planted;
        let replica = Replica::new(boot.id, boot.incarnation, config.keys, boot.disk, planted);
        let nodes: Vec<NodeId> = (0..boot.nodes).map(NodeId).collect();
        let first = View::first(nodes.iter().map(|id| SiteId(u32::from(id.0))));
        let incarnation = u64::from(boot.incarnation);
        let applied = replica.applied();
        let mut site = RingSite {
            manager: RingManager::new(replica.site(), incarnation, applied, config.limits),
            replica,
            incarnation,
            membership: Membership { view: first.clone(), reports: None, joins: BTreeMap::new() },
            prepared: VecDeque::new(),
            heard: nodes.into_iter().map(|id| (id, boot.now)).collect(),
            stopped_ticks: 0,
            planted,
        };
        site.heard.remove(&boot.id);
        out.follow(LOG, Position(0));
        out.timer(TICK_US, Timer::Tick);
        site.feed(Input::NewView(Succession { view: first, decisions: Vec::new() }), out);
        site
    }

    fn step(&mut self, now: Time, event: Event<Self>, out: &mut Effects<Self>) {
        match event {
            Event::Request { call, request, .. } => self.replica.park(call, request),
            Event::Timer(Timer::Finish(id)) => {
                if let Some(transaction) = self.replica.finish(id) {
                    self.feed(Input::Submit(transaction), out);
                }
            }
            Event::Timer(Timer::Tick) => self.look_around(now, out),
            Event::Entry { entry, .. } => self.logged(entry, out),
            Event::Message { from, message } => {
                self.heard.insert(from, now);
                if let Letter::Ring(message) = message {
                    self.feed(Input::Receive((*message).clone()), out);
                }
            }
            Event::Appended { .. } | Event::Persisted { .. } => {}
        }
        self.begin(out);
    }
}

impl RingSite {
    /// Its manager.
    #[must_use]
    pub fn manager(&self) -> &RingManager {
        &self.manager
    }

    fn feed(&mut self, input: Input, out: &mut Effects<Self>) {
        let before = self.replica.applied();
        let effects = self.manager.step(input);
        self.carry_out(effects, out);
        if self.replica.applied() > before {
            let effects = self.manager.step(Input::Applied(self.replica.applied()));
            self.carry_out(effects, out);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect<Message>>, out: &mut Effects<Self>) {
        for effect in effects {
            match effect {
                Effect::Transmit(message) => {
                    if let Some(to) = self.manager.successor() {
                        out.send(NodeId(to.0 as u16), Letter::Ring(Rc::new(message)));
                    }
                }
                Effect::Refused { id, refusal } => self.replica.refused(id, refusal, out),
                Effect::Decided(decided) => {
                    let at = decided.at;
                    self.prepared.push_back(decided);
                    if self.planted == Planted::ReleasedEarly {
                        self.release(at, out);
                    }
                }
                Effect::Void(after) => self.prepared.retain(|decided| decided.at <= after),
                Effect::Released(at) => self.release(at, out),
                Effect::NeedsCopy(at) => {
                    out.violated(format!("nobody tells what came before {at:?}"))
                }
                Effect::Viewed(view) => out.agree("view", view.number, view.start.0),
            }
        }
    }

    fn release(&mut self, at: Timestamp, out: &mut Effects<Self>) {
        while let Some(decided) = self.prepared.pop_front_if(|decided| decided.at <= at) {
            out.agree("decision", decided.at.0, fingerprint(&decided));
            self.replica.decided(&decided, out);
        }
    }

    fn is_member(&self) -> bool {
        let me = (self.replica.site(), self.incarnation);
        self.membership.view.members.contains(&me)
    }

    /// Begins what waits, if the site takes part and its snapshot is of the view.
    fn begin(&mut self, out: &mut Effects<Self>) {
        let start = self.membership.view.start;
        let runs = self.is_member() && self.membership.reports.is_none();
        while runs && self.replica.applied() >= start {
            let Some((id, begin, lasts_us)) = self.replica.begin() else { break };
            out.timer(lasts_us, Timer::Finish(id));
            self.feed(Input::Begin { id, begin }, out);
        }
    }

    // Membership

    fn logged(&mut self, entry: Entry, out: &mut Effects<Self>) {
        let (view, reports) = (&self.membership.view, &mut self.membership.reports);
        match entry {
            Entry::Stop(number) if number == view.number && reports.is_none() => {
                *reports = Some(BTreeMap::new());
                self.stopped_ticks = 0;
                self.feed(Input::Suspect, out);
                self.stand(out);
            }
            Entry::Report(report) if report.view == view.number => {
                if let Some(reports) = reports {
                    reports.insert(report.site, report);
                }
            }
            Entry::Join(site, incarnation) => {
                let known = self.membership.joins.entry(site).or_default();
                *known = incarnation.max(*known);
            }
            Entry::Start(after) => {
                if let Some(succession) = self.membership.succession(after) {
                    self.feed(Input::NewView(succession), out);
                }
            }
            Entry::Stop(_) | Entry::Report(_) => {}
        }
    }

    fn stand(&self, out: &mut Effects<Self>) {
        if let Some(report) = self.manager.stop_report() {
            out.append(LOG, Entry::Report(Rc::new(report)));
        }
    }

    fn look_around(&mut self, now: Time, out: &mut Effects<Self>) {
        out.timer(TICK_US, Timer::Tick);
        self.heard.keys().for_each(|id| out.send(*id, Letter::Alive));
        let number = self.membership.view.number;
        if !self.is_member() {
            out.append(LOG, Entry::Join(self.replica.site(), self.incarnation));
        }
        if let Some(reports) = &self.membership.reports {
            self.stopped_ticks += 1;
            if !reports.contains_key(&self.replica.site()) {
                self.stand(out);
            }
            if self.stopped_ticks >= STANDING_TICKS {
                out.append(LOG, Entry::Start(number));
            }
        } else if !self.is_member() || self.suspects(now) {
            out.append(LOG, Entry::Stop(number));
        }
    }

    fn suspects(&self, now: Time) -> bool {
        self.membership.view.sites().any(|site| {
            let heard = self.heard.get(&NodeId(site.0 as u16));
            heard.is_some_and(|at| now.0.saturating_sub(at.0) > SUSPECT_US)
        })
    }
}
