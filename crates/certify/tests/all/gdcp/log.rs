//! GDCP over a total-order log against the centralized twin.

use std::collections::VecDeque;

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};
use hihooi_certify::gdcp::log::{Event, LogManager};
use hihooi_certify::gdcp::message::Record;
use hihooi_certify::gdcp::view::View;
use hihooi_certify::gdcp::{Decided, Effect, Limits};

use super::oracle::{Dice, Judge, Mix, small_limits};
use super::ring::HOT;

/// Sites that follow a log, records on their way to it, and the log.
pub struct Cluster {
    pub managers: Vec<LogManager>,
    pub sending: VecDeque<Record>,
    pub log: Vec<Record>,
    pub read: Vec<usize>,
    pub decided: Vec<Timestamp>,
    pub open: Vec<Vec<(TxnId, Timestamp)>>,
    pub judge: Judge,
    pub incarnations: Vec<u64>,
    pub view: View,
    limits: Limits,
    pub forgets: bool,
    /// In percent: how often a record is lost, doubled or overtaken on its way to the log.
    pub trouble: u64,
    now_ms: u64,
    next: u64,
}

impl Cluster {
    pub fn new(size: u32, limits: Limits, forgets: bool, trouble: u64) -> Cluster {
        let view = View::first((0..size).map(SiteId));
        let manager = |site| LogManager::new(SiteId(site), 0, view.clone(), limits);
        let count = size as usize;
        Cluster {
            managers: (0..size).map(manager).collect(),
            sending: VecDeque::new(),
            log: Vec::new(),
            read: vec![0; count],
            decided: vec![Timestamp(0); count],
            open: vec![Vec::new(); count],
            judge: Judge::new(forgets, limits.by_the_letter),
            incarnations: vec![0; count],
            view,
            limits,
            forgets,
            trouble,
            now_ms: 0,
            next: 0,
        }
    }

    pub fn step(&mut self, site: usize, event: Event) {
        let effects = self.managers[site].step(event);
        self.carry_out(site, effects);
        if self.forgets {
            let effects = self.managers[site].step(Event::Applied(self.decided[site]));
            self.carry_out(site, effects);
        }
    }

    fn carry_out(&mut self, site: usize, effects: Vec<Effect<Record>>) {
        for effect in effects {
            match effect {
                Effect::Transmit(record) => self.sending.push_back(record),
                Effect::Refused { id, refusal } => {
                    // Who is still in an older view would only end it otherwise.
                    if *self.managers[site].view() == self.view {
                        self.judge.refused(id, refusal);
                    }
                    self.judge.tell(id, None);
                    self.open[site].retain(|(open, _)| *open != id);
                }
                Effect::Decided(decided) => {
                    self.decided[site].0 += 1;
                    assert_eq!(decided.at, self.decided[site]);
                    self.judge.decided(&decided);
                    if decided.id.site.0 as usize == site && !self.is_replay(&decided) {
                        self.judge.tell(decided.id, Some(decided.outcome));
                    }
                }
                Effect::Viewed(view) => {
                    assert_eq!(self.decided[site], view.start);
                    self.open[site].clear();
                    self.view_started(view);
                }
                other => panic!("not on a log: {other:?}"),
            }
        }
    }

    /// The first site to come to a new view: the twin forgets with it.
    fn view_started(&mut self, view: View) {
        if view.number > self.view.number {
            assert_eq!(self.judge.decisions.len() as u64, view.start.0);
            self.judge.view_changed(view.start);
            self.view = view;
        }
    }

    /// A restarted manager reads the log anew; its clients of before are gone.
    fn is_replay(&self, decided: &Decided) -> bool {
        let site = decided.id.site.0 as usize;
        decided.id.number >> 32 != self.incarnations[site]
    }

    pub fn restart(&mut self, site: usize) {
        self.incarnations[site] += 1;
        self.read[site] = 0;
        self.decided[site] = Timestamp(0);
        self.open[site].clear();
        let sites = (0..self.managers.len()).map(|site| SiteId(site as u32));
        let (me, view) = (SiteId(site as u32), View::first(sites));
        self.managers[site] = LogManager::new(me, self.incarnations[site], view, self.limits);
    }

    /// A record arrives at the log, unless something happens to it.
    fn append(&mut self, dice: &mut Dice) {
        let troubled = dice.below(100) < self.trouble;
        if troubled && dice.one_in(3) {
            self.sending.rotate_left(1.min(self.sending.len()));
        }
        let Some(record) = self.sending.pop_front() else { return };
        if troubled && dice.one_in(2) {
            self.sending.push_back(record.clone());
        } else if troubled {
            return;
        }
        self.log.push(record);
    }

    pub fn read_next(&mut self, site: usize) -> bool {
        let Some(record) = self.log.get(self.read[site]).cloned() else { return false };
        self.read[site] += 1;
        self.step(site, Event::Logged(record));
        true
    }

    pub fn tick(&mut self) {
        self.now_ms += 50;
        for site in 0..self.managers.len() {
            let effects = self.managers[site].tick(self.now_ms);
            self.carry_out(site, effects);
        }
    }

    pub fn happen(&mut self, mix: Mix, load: u64, alive: &[usize], dice: &mut Dice) {
        let site = alive[dice.index(alive.len())];
        if dice.below(100) >= load {
            match dice.below(100) {
                0 => self.tick(),
                1..=40 => self.append(dice),
                _ => drop(self.read_next(site)),
            }
        } else if self.open[site].len() < 3 {
            self.next += 1;
            let number = self.incarnations[site] << 32 | self.next;
            let id = TxnId { site: SiteId(site as u32), number };
            self.open[site].push((id, self.decided[site]));
            self.step(site, Event::Begin { id, begin: self.decided[site] });
        } else {
            let choice = dice.index(3);
            let (id, begin) = self.open[site].remove(choice);
            let transaction = mix.transaction(id, begin, dice);
            let transaction = self.judge.submit(transaction, dice);
            self.step(site, Event::Submit(transaction));
        }
    }

    /// Everything on its way arrives, nothing is lost any more.
    pub fn drain(&mut self, alive: &[usize]) {
        self.trouble = 0;
        for _ in 0..40 {
            self.tick();
            loop {
                for &site in alive {
                    while self.read_next(site) {}
                }
                if self.sending.is_empty() {
                    break;
                }
                self.append(&mut Dice(0));
            }
        }
    }

    pub fn finish(&mut self, alive: &[usize]) {
        self.drain(alive);
        let last = Timestamp(self.judge.decisions.len() as u64);
        assert!(alive.iter().all(|&site| self.decided[site] == last), "liveness, convergence");
        let incarnations = &self.incarnations;
        self.judge.check_told(|id| {
            let site = id.site.0 as usize;
            alive.contains(&site) && id.number >> 32 == incarnations[site]
        });
        assert!(self.judge.oracle.is_serializable());
    }
}

fn everyone(size: u32) -> Vec<usize> {
    (0..size as usize).collect()
}

/// The decisions of two rounds over a log are those of a centralized certifier that is fed the
/// same order, with records lost, doubled and reordered on their way to the log.
#[test]
fn verdicts_are_those_of_the_centralized_certifier() {
    let mut by = std::collections::BTreeMap::new();
    for seed in 0..200_u64 {
        let mut dice = Dice(seed);
        let size = 1 + u32::try_from(seed % 8).expect("small");
        let trouble = if seed % 3 == 0 { 30 } else { 0 };
        let limits = Limits { by_the_letter: seed % 5 == 4, ..Limits::default() };
        let mut cluster = Cluster::new(size, limits, false, trouble);
        let load = 5 + dice.below(40);
        for _ in 0..100 + 600 * u64::from(size) / load {
            cluster.happen(HOT, load, &everyone(size), &mut dice);
        }
        cluster.finish(&everyone(size));
        for (name, count) in &cluster.judge.by {
            *by.entry(*name).or_insert(0) += count;
        }
    }
    println!("{by:?}");
    assert!(by["committed"] > 1000 && by["structure"] > 50 && by["ww"] > 100);
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
        let mut cluster = Cluster::new(size, limits, true, 0);
        let mut most = (0, 0);
        while cluster.judge.decisions.len() < 250 {
            cluster.happen(HOT, 20, &everyone(size), &mut dice);
            let (committed, readsets) = cluster.managers[0].remembered();
            most = (committed.max(most.0), readsets.max(most.1));
        }
        cluster.finish(&everyone(size));
        aborted_more += cluster.judge.aborted_more;
        decisions += cluster.judge.decisions.len();
        floor += cluster.judge.decisions.last().map_or(0, |last| last.floor.0);
        assert!(most.0 <= 24 && most.1 < 64, "{most:?} remembered with {size} sites");
    }
    println!("log: {aborted_more} of {decisions} aborted more than the twin would");
    assert!(floor > 0);
}

/// One record for many transactions: under load, the records a transaction needs are few, however
/// many sites there are.
#[test]
fn records_per_transaction() {
    for size in [1, 2, 4, 8_u32] {
        for (name, load) in [("idle", 1), ("loaded", 60)] {
            let mut cluster = Cluster::new(size, Limits::default(), true, 0);
            cluster.judge.only_records = true;
            let mut dice = Dice(7);
            let mix = Mix { keys: 1000, wide_one_in: 100, ..HOT };
            for _ in 0..4000 {
                cluster.happen(mix, load, &everyone(size), &mut dice);
            }
            cluster.finish(&everyone(size));
            let (records, decisions) = (cluster.log.len(), cluster.judge.decisions.len());
            println!("{size} sites, {name}: {records} records for {decisions} transactions");
            assert!(records <= decisions * (size as usize + 1) + 8);
        }
    }
}
