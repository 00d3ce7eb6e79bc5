//! The protocol core as a node: its database runs statements after a delay. Its journal has what was committed
//! and, from time to time, what the certifier remembers. A client that sends nothing for a long time has given
//! up.

use std::collections::BTreeMap;
use std::rc::Rc;

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};
use hihooi_placement::protocol::{
    self as sipre, Catalog, Changes, Checkpoint, Limits, Operation, Planted, PlantedSite, Proposal,
    Reply, Run,
};
use rand::RngExt;

use crate::placement::engine::{Engine, Lists, Step};
use crate::{Boot, CallId, Effects, Event, LogId, Node, NodeId, Position, Random, Time};

/// The total order.
pub const LOG: LogId = LogId(0);
const TICK_US: u64 = 1_000;
/// A client that is silent for so long is gone.
const CLIENT_SILENT_US: u64 = 150_000;
/// A checkpoint is journaled every so many commits.
const CHECKPOINT_COMMITS: u64 = 8;

/// The configuration of all sites.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// Which site holds what; [`NodeId`] n is [`SiteId`] n.
    pub catalog: Catalog,
    /// The core's bounds.
    pub limits: Limits,
    /// A mistake.
    pub planted: Planted,
    /// A statement takes so many microseconds at most.
    pub statement_us_max: u64,
}

/// A request of a client about its transaction of this number, unique in the run.
#[derive(Clone, Debug)]
pub struct Request {
    /// The transaction.
    pub number: u64,
    /// What to do.
    pub what: What,
}

/// What a client wants.
#[derive(Clone, Debug)]
pub enum What {
    /// Run this, the transaction's first operation.
    Begin(Rc<Operation<Lists>>),
    /// Run this, another one.
    Run(Rc<Operation<Lists>>),
    /// Commit.
    Commit,
}

/// A record of the journal.
#[derive(Clone, Debug)]
pub enum Record {
    /// A commit.
    Commit(Timestamp, Rc<Changes<Lists>>),
    /// What the certifier remembered behind the commit before.
    Checkpoint(Rc<Checkpoint>),
}

/// What a timer carries.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    /// The core's time.
    Tick,
    /// A statement is due.
    Statement(Run),
}

#[derive(Debug)]
struct Client {
    call: Option<CallId>,
    heard: Time,
}

#[derive(Debug)]
struct Statement {
    txn: TxnId,
    changes: Changes<Lists>,
    steps: Vec<Step>,
}

/// A site.
#[derive(Debug)]
pub struct Site {
    id: SiteId,
    core: PlantedSite<Lists>,
    engine: Engine,
    config: SiteConfig,
    random: Random,
    /// Whom to answer.
    clients: BTreeMap<TxnId, Client>,
    running: BTreeMap<Run, Statement>,
    commits: u64,
}

impl Node for Site {
    type Message = Rc<sipre::Message<Lists>>;
    type Request = Request;
    type Response = Rc<Reply<Lists>>;
    type Entry = Rc<Proposal<Lists>>;
    type Record = Record;
    type Timer = Timer;
    type Config = SiteConfig;

    fn start(config: &SiteConfig, boot: Boot<'_, Self>, out: &mut Effects<Self>) -> Site {
        let id = SiteId(u32::from(boot.id.0));
        let (mut engine, mut checkpoint) = (Engine::default(), Checkpoint::default());
        for record in boot.disk {
            match record {
                Record::Commit(at, changes) => engine.apply(*at, changes),
                Record::Checkpoint(newer) => checkpoint = (**newer).clone(),
            }
        }
        out.follow(LOG, Position(checkpoint.at.0));
        let (catalog, durable) = (config.catalog.clone(), engine.durable());
        let core = sipre::Site::recover(id, catalog, config.limits, checkpoint, durable);
        let mut site = Site {
            id,
            core: PlantedSite::new(core, config.planted),
            engine,
            config: config.clone(),
            random: crate::generator(boot.seed, crate::Purpose::Setup),
            clients: BTreeMap::new(),
            running: BTreeMap::new(),
            commits: 0,
        };
        site.tick(boot.now, out);
        site
    }

    fn step(&mut self, now: Time, event: Event<Self>, out: &mut Effects<Self>) {
        match event {
            Event::Message { from, message } => {
                let (from, message) = (SiteId(u32::from(from.0)), (*message).clone());
                self.tell(sipre::Event::Message { from, message }, out);
            }
            Event::Request { call, request, .. } => self.request(now, call, request, out),
            Event::Entry { position, entry, .. } => {
                let (at, proposal) = (Timestamp(position.0 + 1), (*entry).clone());
                self.tell(sipre::Event::Delivered { at, proposal }, out);
            }
            Event::Timer(Timer::Tick) => self.tick(now, out),
            Event::Timer(Timer::Statement(run)) => self.statement(run, out),
            Event::Appended { .. } | Event::Persisted { .. } => {}
        }
    }
}

impl Site {
    /// The database.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The core.
    #[must_use]
    pub fn core(&self) -> &sipre::Site<Lists> {
        &self.core
    }

    fn request(&mut self, now: Time, call: CallId, request: Request, out: &mut Effects<Self>) {
        let txn = TxnId { site: self.id, number: request.number };
        let client = Client { call: Some(call), heard: now };
        let before = self.clients.insert(txn, client);
        if before.is_some_and(|before| before.call.is_some()) {
            return; // It gave up on a call, and what it asks now came before the answer.
        }
        let event = match request.what {
            What::Begin(ref operation) | What::Run(ref operation) => {
                let is_first = matches!(request.what, What::Begin(_));
                sipre::Event::Operation { txn, is_first, operation: (**operation).clone() }
            }
            What::Commit => sipre::Event::Commit { txn },
        };
        self.tell(event, out);
    }

    fn statement(&mut self, run: Run, out: &mut Effects<Self>) {
        let Some(Statement { txn, changes, steps }) = self.running.remove(&run) else { return };
        if let Some(outcome) = self.engine.execute(txn, &changes, &steps) {
            self.tell(sipre::Event::Executed { run, outcome }, out);
        }
    }

    fn tick(&mut self, now: Time, out: &mut Effects<Self>) {
        let effects = self.core.tick(now.0 / 1_000);
        self.perform(effects, out);
        self.abandon_silent(now, out);
        out.timer(TICK_US, Timer::Tick);
    }

    /// Aborts for clients that have given up.
    fn abandon_silent(&mut self, now: Time, out: &mut Effects<Self>) {
        let silent = |client: &Client| now - client.heard > CLIENT_SILENT_US;
        let gone: Vec<TxnId> =
            self.clients.iter().filter(|(_, c)| silent(c)).map(|(&txn, _)| txn).collect();
        for txn in gone {
            self.clients.remove(&txn);
            self.tell(sipre::Event::Abort { txn }, out);
        }
    }

    fn tell(&mut self, event: sipre::Event<Lists>, out: &mut Effects<Self>) {
        let effects = self.core.step(event);
        self.perform(effects, out);
    }

    fn perform(&mut self, effects: Vec<sipre::Effect<Lists>>, out: &mut Effects<Self>) {
        for effect in effects {
            self.perform_one(effect, out);
        }
    }

    fn perform_one(&mut self, effect: sipre::Effect<Lists>, out: &mut Effects<Self>) {
        match effect {
            sipre::Effect::Send { to, message } => {
                let to = u16::try_from(to.0).map(NodeId);
                to.into_iter().for_each(|to| out.send(to, Rc::new(message.clone())));
            }
            sipre::Effect::Broadcast(proposal) => out.append(LOG, Rc::new(proposal)),
            sipre::Effect::OpenSnapshot { at } => self.engine.open_snapshot(at),
            sipre::Effect::CloseSnapshot { at } => self.engine.close_snapshot(at),
            sipre::Effect::Begin { txn, snapshot } => {
                if !self.engine.begin(txn, snapshot) {
                    out.violated(format!("snapshot {snapshot:?} is not open for {txn:?}"));
                }
            }
            sipre::Effect::Execute { txn, run, changes, statement } => {
                self.running.insert(run, Statement { txn, changes, steps: statement });
                let takes_us = self.random.random_range(1..=self.config.statement_us_max);
                out.timer(takes_us, Timer::Statement(run));
            }
            sipre::Effect::Rollback { txn } => self.engine.rollback(txn),
            sipre::Effect::Commit { txn, at, changes, .. } => self.commit(txn, at, &changes, out),
            sipre::Effect::Reply { txn, reply } => self.reply(txn, reply, out),
        }
    }

    fn commit(
        &mut self,
        txn: TxnId,
        at: Timestamp,
        changes: &Changes<Lists>,
        out: &mut Effects<Self>,
    ) {
        let all = self.engine.commit(txn, at, changes);
        out.persist(Record::Commit(at, Rc::new(all)));
        self.commits += 1;
        if self.commits.is_multiple_of(CHECKPOINT_COMMITS) {
            out.persist(Record::Checkpoint(Rc::new(self.core.checkpoint())));
        }
    }

    fn reply(&mut self, txn: TxnId, reply: Reply<Lists>, out: &mut Effects<Self>) {
        let Some(client) = self.clients.get_mut(&txn) else { return };
        let call = client.call.take();
        if !matches!(reply, Reply::Answered(_)) {
            self.clients.remove(&txn);
        }
        if let Some(call) = call {
            out.reply(call, Rc::new(reply));
        }
    }
}
