//! A site selector on the simulator: its core, the log's reader, and its assumptions about sites, by how
//! recently a message of each arrived.

use std::rc::Rc;

use hihooi_mastering::ids::{ClientId, SiteId};
use hihooi_mastering::record::{Change, ChangeKind};
use hihooi_mastering::selector::config::SelectorConfig;
use hihooi_mastering::selector::{Effect, Event as Told, Refusal, RequestId, Selector};
use hihooi_mastering::vector::{SiteVector, TransactionVector};
use rand::{RngExt, SeedableRng};

use crate::mastering::logs::{Entry, Read, Reader, logs};
use crate::mastering::node::{Config, Member, Message, Planted, Request, Response, Timer};
use crate::{Boot, CallId, Effects, Event, LogId, NodeId, Position, Random, Time};

/// How often a selector looks at its clock.
const TICK_US: u64 = 1_000;
/// A site that was not heard for so long is down.
const SILENT_US_MAX: u64 = 20_000;

/// A site selector.
#[derive(Debug)]
pub struct SelectorNode {
    config: Rc<Config>,
    id: NodeId,
    incarnation: u32,
    core: Selector,
    reader: Reader,
    /// Which logs have been read to where they ended at the start.
    marked: Vec<bool>,
    heard: Vec<Option<Time>>,
    random: Random,
}

impl SelectorNode {
    pub(super) fn start(
        config: &Rc<Config>,
        boot: &Boot<'_, Member>,
        out: &mut Effects<Member>,
    ) -> SelectorNode {
        let count = logs(config.order, config.sites);
        (0..count).for_each(|log| out.follow(LogId(log), Position(0)));
        let sites = usize::from(config.sites);
        let mut core = SelectorConfig::new(sites, config.partitions(), config.homes.clone());
        core.weights = config.weights;
        (core.wait_ms_max, core.retry_ms, core.pin_ms) = (30, 5, 3);
        let node = SelectorNode {
            config: config.clone(),
            id: boot.id,
            incarnation: boot.incarnation,
            core: Selector::recovering(core),
            reader: Reader::new(config.order, config.sites),
            marked: vec![false; usize::from(count)],
            heard: vec![Some(boot.now); sites],
            random: Random::seed_from_u64(boot.seed),
        };
        node.mark(out);
        out.timer(TICK_US, Timer::Tick);
        node
    }

    pub(super) fn step(&mut self, now: Time, event: Event<Member>, out: &mut Effects<Member>) {
        match event {
            Event::Entry { log, position, entry } => self.read(log, position, &entry, out),
            Event::Message { from, message } => self.message(now, from, message, out),
            Event::Request { call, client, request: Request::Route { seen, writes } } => {
                let (request, random) = (RequestId(call.0), self.random.random());
                let client = ClientId(u64::from(client.0));
                self.tell(Told::Route { request, client, seen, writes, random }, out);
            }
            Event::Timer(Timer::Tick) => self.tick(now, out),
            Event::Timer(_) | Event::Request { .. } => {}
            Event::Appended { .. } | Event::Persisted { .. } => {}
        }
    }

    /// Says where in the logs it starts to know everything.
    fn mark(&self, out: &mut Effects<Member>) {
        for (log, marked) in (0..).map(LogId).zip(&self.marked) {
            if !marked {
                out.append(log, Entry::Mark(self.id, self.incarnation));
            }
        }
    }

    fn tick(&mut self, now: Time, out: &mut Effects<Member>) {
        self.mark(out);
        for site in 0..self.config.sites {
            let heard = &mut self.heard[usize::from(site)];
            if heard.is_some_and(|at| now - at > SILENT_US_MAX) {
                *heard = None;
                self.tell(Told::Down(SiteId(site)), out);
            }
        }
        let effects = self.core.tick(now.0 / 1_000);
        self.perform(effects, out);
        out.timer(TICK_US, Timer::Tick);
    }

    fn read(&mut self, log: LogId, position: Position, entry: &Entry, out: &mut Effects<Member>) {
        match self.reader.read(log, position, entry) {
            Read::Record(_, record) => {
                if let Some(change) = record.change() {
                    self.tell(Told::Changed(change), out);
                }
            }
            Read::Mark(id, incarnation) if (id, incarnation) == (self.id, self.incarnation) => {
                let known = self.marked.iter().all(|marked| *marked);
                self.marked[usize::from(log.0)] = true;
                if !known && self.marked.iter().all(|marked| *marked) {
                    self.tell(Told::Recovered, out);
                }
            }
            Read::Mark(..) | Read::Opened(..) | Read::Nothing => {}
        }
    }

    fn message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Effects<Member>) {
        match message {
            Message::Changed(change) => self.tell(Told::Changed(change), out),
            Message::Began(request) => self.tell(Told::Began { request }, out),
            Message::Vector(vector) => {
                let site = SiteId(from.0);
                let was_up = self.heard[site.index()].replace(now).is_some();
                let event =
                    if was_up { Told::Vector { site, vector } } else { Told::Up { site, vector } };
                self.tell(event, out);
            }
            Message::Release(..) | Message::Grant(_) => {}
        }
    }

    fn tell(&mut self, event: Told, out: &mut Effects<Member>) {
        let effects = self.core.step(event);
        self.perform(effects, out);
    }

    fn perform(&mut self, effects: Vec<Effect>, out: &mut Effects<Member>) {
        for effect in effects {
            match effect {
                Effect::Routed { request, site, floor, .. } => {
                    let answer = Response::Routed { site, request, floor };
                    out.reply(CallId(request.0), Rc::new(answer));
                }
                Effect::Refused { request, why } => {
                    out.reply(CallId(request.0), Rc::new(Response::No(words(why))));
                }
                Effect::Release { site, partition, term, to } => {
                    out.send(NodeId(site.0), Message::Release(partition, term, to));
                    if self.config.planted == Planted::GrantBeforeRelease {
                        // A release that has not happened, of before everything.
                        let none = SiteVector::zero(usize::from(self.config.sites));
                        let vector = TransactionVector::commit(&none, site, 0);
                        let kind = ChangeKind::Released { to };
                        let release = Change { partition, term, kind, vector };
                        out.send(NodeId(to.0), Message::Grant(release));
                    }
                }
                Effect::Grant { site, release } => {
                    out.send(NodeId(site.0), Message::Grant(release));
                }
            }
        }
    }
}

fn words(why: Refusal) -> &'static str {
    match why {
        Refusal::BadWriteSet => "bad write set",
        Refusal::SiteDown => "site down",
        Refusal::TooLong => "waited for mastership for too long",
        Refusal::Busy => "selector busy",
    }
}
