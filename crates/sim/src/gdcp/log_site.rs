//! A site under GDCP over the log. Sites send each other heartbeats; a site from which none has arrived for too
//! long is suspected, rightly or not. After a crash the site passes the log from its beginning through a new
//! manager and applies what its journal lacks.

use std::collections::BTreeMap;
use std::rc::Rc;

use hihooi_certify::certification::{SiteId, TxnId};
use hihooi_certify::gdcp::log::{Event as Input, LogManager};
use hihooi_certify::gdcp::message::Record as Entry;
use hihooi_certify::gdcp::view::View;
use hihooi_certify::gdcp::{Effect, Limits};

use crate::database::transaction::{Answer, Work};
use crate::gdcp::replica::{Applied, GdcpNode, Planted, Replica};
use crate::gdcp::trial::{SiteConfig, fingerprint};
use crate::{Boot, Effects, Event, LogId, Node, NodeId, Position, Time};

/// The one log.
pub const LOG: LogId = LogId(0);
/// How often a site looks around.
const TICK_US: u64 = 2_000;
/// A site that was silent for so long is suspected.
const SUSPECT_US: u64 = 15_000;

/// "I am alive."
#[derive(Clone, Copy, Debug)]
pub struct Alive;

/// What a site waits for.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    /// The local transaction comes to its end.
    Finish(TxnId),
    /// Time to look around.
    Tick,
}

/// A site.
#[derive(Debug)]
pub struct LogSite {
    replica: Replica,
    manager: LogManager,
    /// When each site was last heard.
    heard: BTreeMap<NodeId, Time>,
    planted: Planted,
    held: Option<Entry>,
}

impl GdcpNode for LogSite {
    fn replica(&self) -> &Replica {
        &self.replica
    }
}

impl Node for LogSite {
    type Message = Alive;
    type Request = Rc<Work>;
    type Response = Rc<Answer>;
    type Entry = Rc<Entry>;
    type Record = Applied;
    type Timer = Timer;
    type Config = SiteConfig;

    fn start(config: &SiteConfig, boot: Boot<'_, Self>, out: &mut Effects<Self>) -> LogSite {
        let planted = config.planted;
        let replica = Replica::new(boot.id, boot.incarnation, config.keys, boot.disk, planted);
        let nodes: Vec<NodeId> = (0..boot.nodes).map(NodeId).collect();
        let first = View::first(nodes.iter().copied().map(site));
        let incarnation = u64::from(boot.incarnation);
        let limits = Limits { retry_ms: 8, ..config.limits };
        let manager = LogManager::new(replica.site(), incarnation, first, limits);
        let others = nodes.into_iter().filter(|id| *id != boot.id);
        out.follow(LOG, Position(0));
        out.timer(TICK_US, Timer::Tick);
        LogSite {
            replica,
            manager,
            heard: others.map(|id| (id, boot.now)).collect(),
            planted,
            held: None,
        }
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
            Event::Entry { position, entry, .. } => self.logged(position, (*entry).clone(), out),
            Event::Message { from, message: Alive } => {
                self.heard.insert(from, now);
                self.feed(Input::Trust(site(from)), out);
            }
            Event::Appended { .. } | Event::Persisted { .. } => {}
        }
        self.begin(out);
    }
}

fn site(id: NodeId) -> SiteId {
    SiteId(u32::from(id.0))
}

impl LogSite {
    /// Its manager.
    #[must_use]
    pub fn manager(&self) -> &LogManager {
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

    fn carry_out(&mut self, effects: Vec<Effect<Entry>>, out: &mut Effects<Self>) {
        for effect in effects {
            match effect {
                Effect::Transmit(entry) => out.append(LOG, Rc::new(entry)),
                Effect::Refused { id, refusal } => self.replica.refused(id, refusal, out),
                Effect::Decided(decided) => {
                    out.agree("decision", decided.at.0, fingerprint(&decided));
                    self.replica.decided(&decided, out);
                }
                Effect::Viewed(view) => out.agree("view", view.number, view.start.0),
                Effect::Void(_) | Effect::NeedsCopy(_) | Effect::Released(_) => {
                    out.violated("only on a ring");
                }
            }
        }
    }

    fn logged(&mut self, position: Position, entry: Entry, out: &mut Effects<Self>) {
        let swaps = self.planted == Planted::OrderSwapped && self.replica.id == NodeId(1);
        if swaps && self.held.is_none() && position.0 % 8 == 7 {
            self.held = Some(entry);
            return;
        }
        self.feed(Input::Logged(entry), out);
        if let Some(held) = self.held.take() {
            self.feed(Input::Logged(held), out);
        }
    }

    /// Begins what waits, if the site takes part and its snapshot is of the view.
    fn begin(&mut self, out: &mut Effects<Self>) {
        let start = self.manager.view().start;
        while self.manager.is_member() && self.replica.applied() >= start {
            let Some((id, begin, lasts_us)) = self.replica.begin() else { break };
            out.timer(lasts_us, Timer::Finish(id));
            self.feed(Input::Begin { id, begin }, out);
        }
    }

    fn look_around(&mut self, now: Time, out: &mut Effects<Self>) {
        out.timer(TICK_US, Timer::Tick);
        let silent = self.heard.iter().filter(|(_, at)| now.0.saturating_sub(at.0) > SUSPECT_US);
        let silent: Vec<NodeId> = silent.map(|(id, _)| *id).collect();
        for id in self.heard.keys() {
            out.send(*id, Alive);
        }
        for id in silent {
            self.feed(Input::Suspect(site(id)), out);
        }
        let effects = self.manager.tick(now.0 / 1_000);
        self.carry_out(effects, out);
    }
}
