//! Sites with their logs, moved by hand: nothing reaches a site's inbox until the test says so.

use hihooi_mastering::ids::{PartitionId, SiteId, Term, TxnId};
use hihooi_mastering::mastership::Homes;
use hihooi_mastering::record::{Change, ChangeKind, Record};
use hihooi_mastering::recovery::Recovery;
use hihooi_mastering::refresh::Order;
use hihooi_mastering::site::{Effect, Event, Refusal, Site, SiteConfig};
use hihooi_mastering::vector::{ClientVector, SiteVector, TransactionVector};

pub type Writes = &'static str;

pub struct Sites {
    pub sites: Vec<Site<Writes>>,
    /// One log a site, or one in all.
    pub logs: Vec<Vec<Record<Writes>>>,
    configs: Vec<SiteConfig>,
}

impl Sites {
    /// Partition n is at home at site n.
    pub fn new(count: u16, order: Order) -> Sites {
        let homes = Homes::Given((0..count).map(SiteId).collect());
        let config = |me| {
            let mut config =
                SiteConfig::new(SiteId(me), usize::from(count), count.into(), homes.clone());
            config.order = order;
            config
        };
        let configs: Vec<_> = (0..count).map(config).collect();
        let logs = vec![Vec::new(); if order == Order::Total { 1 } else { configs.len() }];
        Sites { sites: configs.iter().cloned().map(Site::new).collect(), logs, configs }
    }

    fn log_of(&self, origin: usize) -> usize {
        origin.min(self.logs.len() - 1)
    }

    /// A step; appends go to the log at once. Gives the other effects.
    pub fn step(&mut self, site: usize, event: Event<Writes>) -> Vec<Effect<Writes>> {
        let effects = self.sites[site].step(event);
        self.keep(site, effects)
    }

    fn keep(&mut self, site: usize, effects: Vec<Effect<Writes>>) -> Vec<Effect<Writes>> {
        let log = self.log_of(site);
        let mut others = Vec::new();
        for effect in effects {
            match effect {
                Effect::Append(record) => self.logs[log].push(record),
                other => others.push(other),
            }
        }
        others
    }

    pub fn tick(&mut self, site: usize, now_ms: u64) -> Vec<Effect<Writes>> {
        let effects = self.sites[site].tick(now_ms);
        effects.into_iter().filter(|e| !matches!(e, Effect::Append(_))).collect()
    }

    /// Brings all that a site lacks of the log of `origin` to it.
    pub fn pull(&mut self, site: usize, origin: usize) -> Vec<Effect<Writes>> {
        let log = self.log_of(origin);
        let mut all = Vec::new();
        loop {
            let position = self.sites[site].wanted(SiteId(origin as u16));
            let Some(record) = self.logs[log].get(position as usize - 1).cloned() else {
                return all;
            };
            all.extend(self.step(site, Event::Logged { position, record }));
        }
    }

    /// Brings everything everywhere.
    pub fn settle(&mut self) -> Vec<Effect<Writes>> {
        let mut all = Vec::new();
        for _ in 0..4 {
            for site in 0..self.sites.len() {
                for origin in 0..self.sites.len() {
                    all.extend(self.pull(site, origin));
                }
            }
        }
        all
    }

    pub fn begin(&mut self, site: usize, txn: u64, partitions: &[u32]) -> Vec<Effect<Writes>> {
        let nothing = ClientVector::zero(self.sites.len());
        self.begin_after(site, txn, partitions, &nothing)
    }

    pub fn begin_after(
        &mut self,
        site: usize,
        txn: u64,
        partitions: &[u32],
        seen: &ClientVector,
    ) -> Vec<Effect<Writes>> {
        let floor = SiteVector::zero(self.sites.len());
        let partitions = partitions.iter().copied().map(PartitionId).collect();
        self.step(site, Event::Begin { txn: TxnId(txn), seen: seen.clone(), floor, partitions })
    }

    /// Commits with the one write, which is of the given partition.
    pub fn commit(
        &mut self,
        site: usize,
        txn: u64,
        writes: Writes,
        partition: u32,
    ) -> Vec<Effect<Writes>> {
        let touched = vec![PartitionId(partition)];
        self.step(site, Event::Commit { txn: TxnId(txn), writes: Some(writes), touched })
    }

    /// A whole update that is durable and visible at its site.
    pub fn update(
        &mut self,
        site: usize,
        txn: u64,
        writes: Writes,
        partition: u32,
    ) -> TransactionVector {
        self.begin(site, txn, &[partition]);
        self.commit(site, txn, writes, partition);
        let effects = self.pull(site, site);
        committed(&effects, txn).expect("it commits")
    }

    pub fn release(
        &mut self,
        site: usize,
        partition: u32,
        term: u64,
        to: u16,
    ) -> Vec<Effect<Writes>> {
        let (partition, term, to) = (PartitionId(partition), Term(term), SiteId(to));
        self.step(site, Event::Release { partition, term, to })
    }

    /// Gives a partition from a site to another and settles everything.
    pub fn hand_over(&mut self, partition: u32, term: u64, from: usize, to: u16) {
        self.release(from, partition, term, to);
        let release = released(&self.settle()).expect("it is released");
        self.step(usize::from(to), Event::Grant { release });
        self.settle();
    }

    pub fn masters(&self, partition: u32) -> Vec<usize> {
        let is = |site: &usize| self.sites[*site].mastership().is_master(PartitionId(partition));
        (0..self.sites.len()).filter(is).collect()
    }

    /// The site forgets everything and is started with data as of `copy`.
    pub fn restart(&mut self, site: usize, copy: &SiteVector, position: u64) {
        let mut recovery = Recovery::from_copy(self.configs[site].clone(), copy.clone(), position);
        self.logs.iter().flatten().for_each(|record| recovery.past(record));
        let own = self.logs.iter().flatten();
        let own = own.filter(|r| r.vector.origin() == SiteId(site as u16)).count() as u64;
        self.sites[site] = recovery.finish(own);
    }
}

pub fn committed(effects: &[Effect<Writes>], txn: u64) -> Option<TransactionVector> {
    effects.iter().find_map(|effect| match effect {
        Effect::Committed { txn: t, vector: Some(vector) } if t.0 == txn => Some(vector.clone()),
        _ => None,
    })
}

pub fn begun(effects: &[Effect<Writes>], txn: u64) -> Option<SiteVector> {
    effects.iter().find_map(|effect| match effect {
        Effect::Begun { txn: t, snapshot } if t.0 == txn => Some(snapshot.clone()),
        _ => None,
    })
}

pub fn refused(effects: &[Effect<Writes>], txn: u64) -> Option<Refusal> {
    effects.iter().find_map(|effect| match effect {
        Effect::Refused { txn: t, why } if t.0 == txn => Some(*why),
        _ => None,
    })
}

pub fn released(effects: &[Effect<Writes>]) -> Option<Change> {
    changes(effects).into_iter().find(|c| matches!(c.kind, ChangeKind::Released { .. }))
}

pub fn changes(effects: &[Effect<Writes>]) -> Vec<Change> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Changed(change) => Some(change.clone()),
            _ => None,
        })
        .collect()
}

pub fn applied(effects: &[Effect<Writes>]) -> Vec<Writes> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Apply { writes, .. } => Some(*writes),
            _ => None,
        })
        .collect()
}
