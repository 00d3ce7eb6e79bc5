//! GDCP over the ring against the centralized twin: random transactions, delays and ring sizes.

use std::collections::{BTreeMap, VecDeque};

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};
use hihooi_certify::gdcp::manager::{Event, RingManager};
use hihooi_certify::gdcp::message::{Body, Message};
use hihooi_certify::gdcp::ring::Order;
use hihooi_certify::gdcp::view::{Succession, View, succeed};
use hihooi_certify::gdcp::{Decided, Effect, Limits};

use super::oracle::{Dice, Judge, Mix, small_limits};

/// What a test that meddles with messages knows.
pub struct Meddling<'a> {
    /// Where transactions are in the order.
    pub orders: &'a BTreeMap<TxnId, Order>,
    /// The lsv of transactions.
    pub lsv: &'a dyn Fn(TxnId) -> Timestamp,
    /// When they committed.
    pub committed: &'a dyn Fn(TxnId) -> Option<Timestamp>,
}

/// Sites on a ring, the links between them, and what their databases show.
pub struct Cluster {
    pub managers: Vec<RingManager>,
    pub links: Vec<VecDeque<Message>>,
    pub released: Vec<Timestamp>,
    pub decided: Vec<Timestamp>,
    pub open: Vec<Vec<(TxnId, Timestamp)>>,
    /// Decisions that were not released.
    pub prepared: Vec<VecDeque<Decided>>,
    /// Views that sites have not learnt of yet.
    pub entering: Vec<Option<Succession>>,
    /// What is done to messages on their way.
    pub meddle: fn(&mut Message, &Meddling<'_>),
    pub orders: BTreeMap<TxnId, Order>,
    pub judge: Judge,
    pub messages: u64,
    /// Whether sites tell their managers what is applied, so that readers are forgotten.
    pub forgets: bool,
    pub incarnations: Vec<u64>,
    limits: Limits,
    next: u64,
}

impl Cluster {
    pub fn new(size: u32, limits: Limits, forgets: bool) -> Cluster {
        let first = View::first((0..size).map(SiteId));
        let manager = |site| RingManager::new(SiteId(site), 0, Timestamp(0), limits);
        let count = size as usize;
        let mut cluster = Cluster {
            managers: (0..size).map(manager).collect(),
            links: vec![VecDeque::new(); count],
            released: vec![Timestamp(0); count],
            decided: vec![Timestamp(0); count],
            open: vec![Vec::new(); count],
            prepared: vec![VecDeque::new(); count],
            entering: vec![None; count],
            meddle: |_, _| {},
            orders: BTreeMap::new(),
            judge: Judge::new(forgets, limits.by_the_letter),
            messages: 0,
            forgets,
            incarnations: vec![0; count],
            limits,
            next: 0,
        };
        let view = Succession { view: first, decisions: Vec::new() };
        for site in 0..count {
            cluster.step(site, Event::NewView(view.clone()));
        }
        cluster
    }

    pub fn step(&mut self, site: usize, event: Event) {
        for effect in self.managers[site].step(event) {
            match effect {
                Effect::Transmit(message) => self.transmit(site, message),
                Effect::Refused { id, refusal } => {
                    self.judge.refused(id, refusal);
                    self.judge.tell(id, None);
                    self.open[site].retain(|(open, _)| *open != id);
                }
                Effect::Decided(decided) => {
                    self.decided[site].0 += 1;
                    assert_eq!(decided.at, self.decided[site]);
                    self.judge.decided(&decided);
                    self.prepared[site].push_back(decided);
                }
                Effect::Void(after) => {
                    self.decided[site] = after;
                    self.prepared[site].retain(|decided| decided.at <= after);
                }
                Effect::Released(at) => self.release(site, at),
                Effect::NeedsCopy(at) => {
                    assert!(self.incarnations[site] > 0, "no survivor lags that far");
                    self.decided[site] = at;
                }
                Effect::Viewed(view) => {
                    assert_eq!(self.decided[site], view.start);
                    self.open[site].clear();
                }
            }
        }
        if self.forgets {
            let applied = Event::Applied(self.released[site]);
            assert_eq!(self.managers[site].step(applied), Vec::new());
        }
    }

    fn transmit(&mut self, site: usize, mut message: Message) {
        if let Body::Gather { proposal, .. } = &message.body {
            self.orders.insert(proposal.id, message.order);
        }
        let judge = &self.judge;
        let committed = |id: TxnId| {
            judge.oracle.committed.iter().find(|(_, other)| other.id == id).map(|(at, _)| *at)
        };
        let lsv = |id: TxnId| judge.submitted[&id].lsv.high;
        let known = Meddling { orders: &self.orders, lsv: &lsv, committed: &committed };
        (self.meddle)(&mut message, &known);
        let to = self.managers[site].successor().expect("in a view");
        self.messages += 1;
        self.links[to.0 as usize].push_back(message);
    }

    fn release(&mut self, site: usize, at: Timestamp) {
        self.released[site] = at;
        while let Some(decided) = self.prepared[site].pop_front_if(|decided| decided.at <= at) {
            if decided.id.site.0 as usize == site {
                self.judge.tell(decided.id, Some(decided.outcome));
            }
        }
    }

    /// One random thing happens.
    pub fn happen(&mut self, mix: Mix, load: u64, dice: &mut Dice) {
        let alive: Vec<usize> = (0..self.managers.len()).collect();
        self.happen_at(&alive, mix, load, dice);
    }

    pub fn happen_at(&mut self, alive: &[usize], mix: Mix, load: u64, dice: &mut Dice) {
        let site = alive[dice.index(alive.len())];
        if self.entering[site].is_some() && dice.one_in(20) {
            self.enter(site);
        } else if dice.below(100) >= load {
            if let Some(message) = self.links[site].pop_front() {
                self.step(site, Event::Receive(message));
            }
        } else if self.open[site].len() < 3 {
            self.next += 1;
            let number = self.incarnations[site] << 32 | self.next;
            let id = TxnId { site: SiteId(site as u32), number };
            self.open[site].push((id, self.released[site]));
            self.step(site, Event::Begin { id, begin: self.released[site] });
        } else {
            let (id, begin) = {
                let choice = dice.index(3);
                self.open[site].remove(choice)
            };
            let transaction = mix.transaction(id, begin, dice);
            let transaction = self.judge.submit(transaction, dice);
            self.step(site, Event::Submit(transaction));
        }
    }

    /// Delivers all that is on its way.
    pub fn drain(&mut self) {
        self.enter_all();
        while self.links.iter().any(|link| !link.is_empty()) {
            for site in 0..self.managers.len() {
                if let Some(message) = self.links[site].pop_front() {
                    self.step(site, Event::Receive(message));
                }
            }
        }
    }

    /// The group stops; a new one starts with these sites, of which `back` had restarted.
    pub fn change_view(&mut self, stayed: &[usize], back: &[usize]) {
        self.enter_all();
        for &site in stayed {
            self.step(site, Event::Suspect);
        }
        for &site in back {
            self.incarnations[site] += 1;
            self.decided[site] = self.released[site];
            self.prepared[site].clear();
            self.open[site].clear();
            let id = SiteId(site as u32);
            let (incarnation, applied) = (self.incarnations[site], self.released[site]);
            self.managers[site] = RingManager::new(id, incarnation, applied, self.limits);
        }
        let reports: Vec<_> =
            stayed.iter().filter_map(|&site| self.managers[site].stop_report()).collect();
        let mut sites = [stayed, back].concat();
        sites.sort_unstable();
        let members = sites.iter().map(|&site| (SiteId(site as u32), self.incarnations[site]));
        let succession = succeed(&reports, members.collect()).expect("a survivor");
        let start = succession.view.start;
        let released = self.released.iter().max().expect("a site");
        assert!(*released <= start, "what was released is lost");
        self.judge.view_changed(start);
        self.links.iter_mut().for_each(VecDeque::clear);
        for &site in &sites {
            self.entering[site] = Some(succession.clone());
        }
        self.enter(sites[0]);
    }

    /// The site learns of the view, maybe after messages of it.
    fn enter(&mut self, site: usize) {
        if let Some(succession) = self.entering[site].take() {
            self.step(site, Event::NewView(succession));
        }
    }

    fn enter_all(&mut self) {
        (0..self.managers.len()).for_each(|site| self.enter(site));
    }

    pub fn finish(&mut self) {
        let all: Vec<usize> = (0..self.managers.len()).collect();
        self.finish_at(&all);
    }

    pub fn finish_at(&mut self, alive: &[usize]) {
        self.drain();
        let last = Timestamp(self.judge.decisions.len() as u64);
        for &site in alive {
            assert_eq!(self.decided[site], last, "convergence");
            assert_eq!(self.released[site], last, "all is released in the end");
        }
        let incarnations = &self.incarnations;
        self.judge.check_told(|id| {
            let site = id.site.0 as usize;
            alive.contains(&site) && id.number >> 32 == incarnations[site]
        });
        assert!(self.judge.oracle.is_serializable());
    }
}

pub const HOT: Mix = Mix { keys: 8, reads: 3, writes: 2, wide_one_in: 16 };

/// RSSI paper, section 4.1, invariant of GDCP: at its turn, all edges to and from earlier
/// transactions are known. So the verdicts are those of a centralized certifier.
#[test]
fn verdicts_are_those_of_the_centralized_certifier() {
    let mut by = BTreeMap::new();
    let mut early = 0;
    for seed in 0..200_u64 {
        let mut dice = Dice(seed);
        let size = 1 + u32::try_from(seed % 8).expect("small");
        let limits = Limits { by_the_letter: seed % 5 == 4, ..Limits::default() };
        let mut cluster = Cluster::new(size, limits, false);
        let load = 5 + dice.below(40);
        for _ in 0..600 * u64::from(size) / load {
            cluster.happen(HOT, load, &mut dice);
        }
        for _ in 0..100 {
            cluster.happen(HOT, load, &mut dice);
        }
        cluster.finish();
        early += cluster.judge.early;
        for (name, count) in &cluster.judge.by {
            *by.entry(*name).or_insert(0) += count;
        }
    }
    println!("{by:?}, early {early}");
    assert!(by["committed"] > 1000 && by["structure"] > 50 && by["ww"] > 100 && early > 100);
}

/// RSSI paper, appendix C.2.3: log entries are forgotten. What commits is serializable all the
/// same, and memory stays within its bounds however long it runs.
#[test]
fn forgetting_keeps_it_serializable_and_small() {
    let (mut aborted_more, mut decisions, mut floor) = (0, 0, 0);
    for seed in 0..24_u64 {
        let mut dice = Dice(seed);
        let size = 1 + u32::try_from(seed % 8).expect("small");
        let limits = Limits { by_the_letter: seed % 3 == 2, ..small_limits() };
        let mut cluster = Cluster::new(size, limits, true);
        let mut most = (0, 0);
        while cluster.judge.decisions.len() < 250 {
            cluster.happen(HOT, 10, &mut dice);
            let (committed, readsets) = cluster.managers[0].remembered();
            most = (committed.max(most.0), readsets.max(most.1));
        }
        cluster.finish();
        aborted_more += cluster.judge.aborted_more;
        decisions += cluster.judge.decisions.len();
        floor += cluster.judge.decisions.last().map_or(0, |last| last.floor.0);
        assert!(most.0 <= 24 && most.1 < 64, "{most:?} remembered with {size} sites");
    }
    println!("ring: {aborted_more} of {decisions} aborted more than the twin would");
    assert!(floor > 0);
}

/// RSSI paper, appendix C.2.3: what is forgotten by staleness values, no pending transaction needs.
#[test]
fn staleness_values_make_nobody_too_old() {
    for seed in 0..16 {
        let mut dice = Dice(seed);
        let limits = Limits { spare_max: 0, ..Limits::default() };
        let mut cluster = Cluster::new(4, limits, true);
        while cluster.judge.decisions.len() < 200 {
            cluster.happen(HOT, 10, &mut dice);
        }
        cluster.finish();
        assert!(cluster.judge.decisions.last().is_some_and(|last| last.floor.0 > 100));
        assert_eq!(cluster.judge.by.get("too old"), None);
    }
}

/// RSSI paper, section 4.1 and appendix B.1: n hops and n - 1 hops a transaction, and here n - 1
/// more for the release.
#[test]
fn messages_per_transaction() {
    for size in 2..=8_u32 {
        let mut cluster = Cluster::new(size, Limits::default(), false);
        cluster.judge.only_records = true;
        let mut dice = Dice(7);
        for _ in 0..2000 {
            cluster.happen(Mix { keys: 1000, ..HOT }, 10, &mut dice);
        }
        cluster.finish();
        let decisions = cluster.judge.decisions.len() as u64;
        assert_eq!(cluster.messages, decisions * u64::from(3 * size - 2));
    }
}
