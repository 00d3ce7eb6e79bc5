//! Sites with their databases, a network and a total order, driven step by step by a test.

pub mod engine;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hihooi_certify::certification::items::RowKey;
use hihooi_certify::certification::{SiteId, Timestamp, TxnId};
use hihooi_placement::protocol::{
    Catalog, Checkpoint, Effect, Event, Item, Limits, Message, ObjectId, Operation, Planted,
    PlantedSite, Proposal, Reply, Site,
};

use engine::{Action, Engine, Rows};

/// The row of an object.
pub fn item(object: u32, row: u128) -> Item {
    Item { object: ObjectId(object), row: RowKey(row) }
}

/// What a site holds, in the order of sites 1, 2, …
pub fn catalog(sites: &[&[u32]]) -> Catalog {
    let mut holders: BTreeMap<ObjectId, Vec<SiteId>> = BTreeMap::new();
    for (site, objects) in (1..).zip(sites) {
        for &object in *objects {
            holders.entry(ObjectId(object)).or_default().push(SiteId(site));
        }
    }
    Catalog::new(holders)
}

pub struct World {
    pub catalog: Catalog,
    pub limits: Limits,
    pub planted: Planted,
    pub sites: BTreeMap<SiteId, PlantedSite<Rows>>,
    pub engines: BTreeMap<SiteId, Engine>,
    /// Messages on their way.
    pub network: VecDeque<(SiteId, SiteId, Message<Rows>)>,
    /// Proposals on their way.
    pub proposed: VecDeque<Proposal<Rows>>,
    /// The total order; position 1 is first.
    pub log: Vec<Proposal<Rows>>,
    pub replies: Vec<(TxnId, Reply<Rows>)>,
    /// By position: what every certifier must remember after it.
    pub checkpoints: BTreeMap<Timestamp, Checkpoint>,
    pub now_ms: u64,
    numbers: u64,
    begun: BTreeSet<TxnId>,
}

impl World {
    pub fn new(sites: &[&[u32]], limits: Limits, planted: Planted) -> World {
        let mut world = World {
            catalog: catalog(sites),
            limits,
            planted,
            sites: BTreeMap::new(),
            engines: BTreeMap::new(),
            network: VecDeque::new(),
            proposed: VecDeque::new(),
            log: Vec::new(),
            replies: Vec::new(),
            checkpoints: [(Timestamp(0), Checkpoint::default())].into(),
            now_ms: 0,
            numbers: 0,
            begun: BTreeSet::new(),
        };
        for site in (1..).map(SiteId).take(sites.len()) {
            world.engines.insert(site, Engine::default());
            world.start(site, Checkpoint::default());
        }
        world
    }

    /// Starts a site, for the first time or after a crash.
    pub fn start(&mut self, id: SiteId, checkpoint: Checkpoint) {
        let durable = self.engine(id).durable;
        let site = Site::recover(id, self.catalog.clone(), self.limits, checkpoint, durable);
        self.sites.insert(id, PlantedSite::new(site, self.planted));
        self.tick(id);
    }

    pub fn crash(&mut self, id: SiteId) {
        self.sites.remove(&id);
        self.engine(id).crash();
    }

    pub fn engine(&mut self, id: SiteId) -> &mut Engine {
        self.engines.get_mut(&id).expect("a site")
    }

    pub fn txn(&mut self, site: u32) -> TxnId {
        self.numbers += 1;
        TxnId { site: SiteId(site), number: self.numbers }
    }

    pub fn step(&mut self, id: SiteId, event: Event<Rows>) {
        if let Some(site) = self.sites.get_mut(&id) {
            let effects = site.step(event);
            self.perform(id, effects);
        }
    }

    pub fn tick(&mut self, id: SiteId) {
        let now_ms = self.now_ms;
        if let Some(site) = self.sites.get_mut(&id) {
            let effects = site.tick(now_ms);
            self.perform(id, effects);
        }
    }

    fn perform(&mut self, id: SiteId, effects: Vec<Effect<Rows>>) {
        for effect in effects {
            self.perform_one(id, effect);
        }
    }

    fn perform_one(&mut self, id: SiteId, effect: Effect<Rows>) {
        let engine = self.engines.get_mut(&id).expect("a site");
        match effect {
            Effect::Send { to, message } => self.network.push_back((id, to, message)),
            Effect::Broadcast(proposal) => self.proposed.push_back(proposal),
            Effect::OpenSnapshot { at } => engine.open_snapshot(at),
            Effect::CloseSnapshot { at } => engine.close_snapshot(at),
            Effect::Begin { txn, snapshot } => engine.begin(txn, snapshot),
            Effect::Execute { txn, run, changes, statement } => {
                engine.execute(txn, run, changes, statement);
            }
            Effect::Rollback { txn } => engine.rollback(txn),
            Effect::Commit { txn, at, begun, changes } => {
                engine.commit(txn, at, begun, &changes);
            }
            Effect::Reply { txn, reply } => self.replies.push((txn, reply)),
        }
    }

    pub fn operation(&mut self, txn: TxnId, statement: Vec<Action>) {
        let object = |action: &Action| match action {
            Action::Read(item)
            | Action::Draw(item)
            | Action::Write(item, _)
            | Action::Add(item, _) => Some(item.object),
            Action::Wrong => None,
        };
        let mut objects: Vec<ObjectId> = statement.iter().filter_map(object).collect();
        objects.sort_unstable();
        objects.dedup();
        let operation = Operation { objects, statement };
        let is_first = self.begun.insert(txn);
        self.step(txn.site, Event::Operation { txn, is_first, operation });
    }

    /// Runs something in a site's database, if it can.
    pub fn run(&mut self, id: SiteId, choice: usize) -> bool {
        if !self.sites.contains_key(&id) {
            return false;
        }
        let Some((run, outcome)) = self.engine(id).run(choice) else { return false };
        self.step(id, Event::Executed { run, outcome });
        true
    }

    /// Delivers the next position to a site.
    pub fn deliver(&mut self, id: SiteId) -> bool {
        let Some(site) = self.sites.get(&id) else { return false };
        let at = Timestamp(site.delivered().0 + 1);
        let index = usize::try_from(at.0 - 1).expect("a small log");
        let Some(proposal) = self.log.get(index).cloned() else { return false };
        self.step(id, Event::Delivered { at, proposal });
        self.compare_checkpoints(id);
        true
    }

    /// All sites remember the same after the same position.
    fn compare_checkpoints(&mut self, id: SiteId) {
        if self.planted != Planted::Nothing {
            return;
        }
        let checkpoint = self.sites[&id].checkpoint();
        let known = self.checkpoints.entry(checkpoint.at).or_insert_with(|| checkpoint.clone());
        assert_eq!(*known, checkpoint, "certifiers differ");
    }

    /// Hands a message over.
    pub fn receive(&mut self, index: usize) {
        let (from, to, message) = self.network.remove(index).expect("a message");
        self.step(to, Event::Message { from, message });
    }

    /// Lets everything happen that can, in a fixed order: messages, executions, the total order.
    pub fn settle(&mut self) {
        loop {
            let ids: Vec<SiteId> = self.sites.keys().copied().collect();
            if !self.network.is_empty() {
                self.receive(0);
            } else if ids.iter().any(|&id| self.run(id, 0)) {
            } else if let Some(proposal) = self.proposed.pop_front() {
                self.log.push(proposal);
            } else if !ids.iter().any(|&id| self.deliver(id)) {
                break;
            }
        }
    }

    /// Time passes for all.
    pub fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let ids: Vec<SiteId> = self.sites.keys().copied().collect();
        for id in ids {
            self.tick(id);
        }
    }

    /// Runs an operation to its end and returns the reply.
    pub fn ask(&mut self, txn: TxnId, statement: Vec<Action>) -> Reply<Rows> {
        self.operation(txn, statement);
        self.settle();
        self.reply(txn)
    }

    /// Commits to the end and returns the reply.
    pub fn commit(&mut self, txn: TxnId) -> Reply<Rows> {
        self.step(txn.site, Event::Commit { txn });
        self.settle();
        self.reply(txn)
    }

    /// Takes the last reply to a transaction.
    pub fn reply(&mut self, txn: TxnId) -> Reply<Rows> {
        let index = self.replies.iter().rposition(|reply| reply.0 == txn);
        self.replies.remove(index.unwrap_or_else(|| panic!("no reply to {txn:?}"))).1
    }

    /// The newest value of a row at a site.
    pub fn value(&self, site: u32, item: Item) -> i64 {
        self.engines[&SiteId(site)].rows().get(&item).copied().unwrap_or(0)
    }
}
