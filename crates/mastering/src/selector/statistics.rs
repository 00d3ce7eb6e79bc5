//! What clients write, and which partitions they write together (DynaMast paper, section V-B): sampled write
//! sets in a history, counts by partition and pair, and expiry of old samples.
//!
//! Keeps I8: the history has a bound, and every count comes from a sample in it, so the counts
//! are exactly those of the history (tested against a recount).
//!
//! Departures: the sampling rate adapts so that a full history spans `history_ms`, so that the counts represent
//! the whole window. A transaction that follows a sample is counted once for each partition, so that equation 7
//! has a probability.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{ClientId, PartitionId, SiteId};
use crate::selector::config::Sampling;

/// Most partitions of one write set that a sample keeps, and most that follow it.
pub const SAMPLE_MAX: usize = 16;
/// Most samples of one client that its next transactions can follow.
pub const OPEN_MAX: usize = 4;
/// The sampled share adapts so many times in the life of a sample.
const ADAPTATIONS: u64 = 64;

/// How often each partition was written with this one, sorted by partition.
type Partners = Vec<(PartitionId, u32)>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Intra,
    Inter,
}

#[derive(Debug)]
struct Sample {
    client: ClientId,
    at_ms: u64,
    writes: Vec<PartitionId>,
    followers: Vec<PartitionId>,
    /// Pairs that found no room; expiry must not take them back.
    uncounted: Vec<(Kind, PartitionId, PartitionId)>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    accesses: u32,
    intra: Partners,
    inter: Partners,
}

/// The counts and the history behind them.
#[derive(Debug)]
pub struct Statistics {
    config: Sampling,
    counts: Vec<Counts>,
    /// Accesses of the partitions that each site masters.
    per_site: Vec<u64>,
    history: VecDeque<Sample>,
    /// The number of the first sample in the history.
    first: u64,
    /// Samples that may still be followed, by client.
    open: BTreeMap<ClientId, Vec<u64>>,
    share: Share,
}

/// The share of transactions that is sampled.
#[derive(Debug)]
struct Share {
    /// Sampled are those whose random bits are not above it.
    threshold: u64,
    since_ms: u64,
    offered: u64,
}

impl Share {
    fn adapt(&mut self, now_ms: u64, config: &Sampling) {
        let period_ms = (config.history_ms / ADAPTATIONS).max(1);
        if now_ms < self.since_ms + period_ms {
            return;
        }
        let elapsed = (now_ms - self.since_ms) as f64;
        let wanted = config.history_max as f64 * elapsed / config.history_ms.max(1) as f64;
        let share = (wanted / self.offered.max(1) as f64).min(1.0);
        // The cast saturates: a share of 1 samples everything.
        self.threshold = (share * u64::MAX as f64) as u64;
        (self.since_ms, self.offered) = (now_ms, 0);
    }
}

impl Statistics {
    /// Nothing known yet.
    #[must_use]
    pub fn new(config: Sampling, sites: usize, partitions: u32) -> Statistics {
        Statistics {
            config,
            counts: vec![Counts::default(); partitions as usize],
            per_site: vec![0; sites],
            history: VecDeque::new(),
            first: 0,
            open: BTreeMap::new(),
            share: Share { threshold: u64::MAX, since_ms: 0, offered: 0 },
        }
    }

    /// A client writes these partitions (sorted, no doubles), mastered where `master` says.
    /// `random` decides whether it becomes a sample.
    pub fn offer(
        &mut self,
        client: ClientId,
        writes: &[PartitionId],
        random: u64,
        now_ms: u64,
        master: impl Fn(PartitionId) -> SiteId,
    ) {
        self.share.adapt(now_ms, &self.config);
        self.share.offered += 1;
        let kept = &writes[..writes.len().min(SAMPLE_MAX)];
        self.follow(client, kept, now_ms);
        if random <= self.share.threshold {
            self.record(client, kept, now_ms, &master);
        }
        self.expire(now_ms, &master);
    }

    /// Takes back the counts of samples that are too old or too many.
    pub fn expire(&mut self, now_ms: u64, master: impl Fn(PartitionId) -> SiteId) {
        let oldest_ms = now_ms.saturating_sub(self.config.history_ms);
        while let Some(front) = self.history.front()
            && (front.at_ms < oldest_ms || self.history.len() > self.config.history_max)
        {
            self.forget_first(&master);
        }
    }

    /// The mastership of a partition moved.
    pub fn moved(&mut self, partition: PartitionId, from: SiteId, to: SiteId) {
        let accesses = u64::from(self.accesses(partition));
        self.per_site[from.index()] -= accesses;
        self.per_site[to.index()] += accesses;
    }

    /// How many transactions of the history wrote the partition.
    #[must_use]
    pub fn accesses(&self, partition: PartitionId) -> u32 {
        self.counts[partition.index()].accesses
    }

    /// The accesses of all partitions that each site masters.
    #[must_use]
    pub fn per_site(&self) -> &[u64] {
        &self.per_site
    }

    /// What was written with the partition in one transaction, with counts, sorted.
    #[must_use]
    pub fn intra(&self, partition: PartitionId) -> &[(PartitionId, u32)] {
        &self.counts[partition.index()].intra
    }

    /// What the same client wrote soon after the partition, with counts, sorted.
    #[must_use]
    pub fn inter(&self, partition: PartitionId) -> &[(PartitionId, u32)] {
        &self.counts[partition.index()].inter
    }

    /// How many samples the history holds.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.history.len()
    }

    fn record(
        &mut self,
        client: ClientId,
        writes: &[PartitionId],
        at_ms: u64,
        master: &impl Fn(PartitionId) -> SiteId,
    ) {
        let mut uncounted = Vec::new();
        for d1 in writes {
            self.counts[d1.index()].accesses += 1;
            self.per_site[master(*d1).index()] += 1;
            for d2 in writes.iter().filter(|d2| *d2 != d1) {
                if !self.count(Kind::Intra, *d1, *d2) {
                    uncounted.push((Kind::Intra, *d1, *d2));
                }
            }
        }
        let open = self.open.entry(client).or_default();
        if open.len() == OPEN_MAX {
            open.remove(0);
        }
        open.push(self.first + self.history.len() as u64);
        let (writes, followers) = (writes.to_vec(), Vec::new());
        self.history.push_back(Sample { client, at_ms, writes, followers, uncounted });
    }

    /// Counts these writes as following the client's open samples.
    fn follow(&mut self, client: ClientId, writes: &[PartitionId], now_ms: u64) {
        let Some(open) = self.open.get_mut(&client) else { return };
        let oldest_ms = now_ms.saturating_sub(self.config.follow_ms);
        let (history, first) = (&self.history, self.first);
        open.retain(|n| history[(n - first) as usize].at_ms >= oldest_ms);
        let open = open.clone();
        if open.is_empty() {
            self.open.remove(&client);
        }
        for number in open {
            for d2 in writes {
                self.follow_one((number - self.first) as usize, *d2);
            }
        }
    }

    fn follow_one(&mut self, index: usize, d2: PartitionId) {
        let sample = &mut self.history[index];
        if sample.followers.len() == SAMPLE_MAX || sample.followers.contains(&d2) {
            return;
        }
        sample.followers.push(d2);
        let writes = std::mem::take(&mut sample.writes);
        for d1 in writes.iter().filter(|d1| **d1 != d2) {
            if !self.count(Kind::Inter, *d1, d2) {
                self.history[index].uncounted.push((Kind::Inter, *d1, d2));
            }
        }
        self.history[index].writes = writes;
    }

    fn forget_first(&mut self, master: &impl Fn(PartitionId) -> SiteId) {
        let Some(sample) = self.history.pop_front() else { return };
        if let Some(open) = self.open.get_mut(&sample.client) {
            open.retain(|n| *n != self.first);
            if open.is_empty() {
                self.open.remove(&sample.client);
            }
        }
        self.first += 1;
        for d1 in &sample.writes {
            self.counts[d1.index()].accesses -= 1;
            self.per_site[master(*d1).index()] -= 1;
            for d2 in sample.writes.iter().filter(|d2| *d2 != d1) {
                self.uncount(&sample, Kind::Intra, *d1, *d2);
            }
            for d2 in sample.followers.iter().filter(|d2| *d2 != d1) {
                self.uncount(&sample, Kind::Inter, *d1, *d2);
            }
        }
    }

    fn partners(&mut self, kind: Kind, d1: PartitionId) -> &mut Partners {
        let counts = &mut self.counts[d1.index()];
        match kind {
            Kind::Intra => &mut counts.intra,
            Kind::Inter => &mut counts.inter,
        }
    }

    /// Counts a pair; false when there is no room for it.
    fn count(&mut self, kind: Kind, d1: PartitionId, d2: PartitionId) -> bool {
        let partners_max = self.config.partners_max;
        let partners = self.partners(kind, d1);
        match partners.binary_search_by_key(&d2, |(p, _)| *p) {
            Ok(at) => partners[at].1 += 1,
            Err(_) if partners.len() >= partners_max => return false,
            Err(at) => partners.insert(at, (d2, 1)),
        }
        true
    }

    fn uncount(&mut self, sample: &Sample, kind: Kind, d1: PartitionId, d2: PartitionId) {
        if sample.uncounted.contains(&(kind, d1, d2)) {
            return;
        }
        let partners = self.partners(kind, d1);
        let at = partners.binary_search_by_key(&d2, |(p, _)| *p);
        let at = at.expect("a pair that was counted is there until it is taken back");
        partners[at].1 -= 1;
        if partners[at].1 == 0 {
            partners.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn small() -> Sampling {
        Sampling { history_max: 6, history_ms: 50, follow_ms: 10, partners_max: 64 }
    }

    fn home(partition: PartitionId) -> SiteId {
        SiteId((partition.0 % 2) as u16)
    }

    /// Counts the history anew, in the most obvious way.
    fn recount(statistics: &Statistics, partitions: u32) -> Vec<Counts> {
        let mut all = vec![Counts::default(); partitions as usize];
        let add = |list: &mut Partners, d2: PartitionId| match list.iter_mut().find(|p| p.0 == d2) {
            Some(pair) => pair.1 += 1,
            None => list.push((d2, 1)),
        };
        for sample in &statistics.history {
            for d1 in &sample.writes {
                let counts = &mut all[d1.index()];
                counts.accesses += 1;
                sample.writes.iter().filter(|d| *d != d1).for_each(|d| add(&mut counts.intra, *d));
                let followers = sample.followers.iter().filter(|d| *d != d1);
                followers.for_each(|d| add(&mut counts.inter, *d));
            }
        }
        for counts in &mut all {
            counts.intra.sort_unstable();
            counts.inter.sort_unstable();
        }
        all
    }

    fn check(statistics: &Statistics, partitions: u32) {
        for (p, expected) in recount(statistics, partitions).iter().enumerate() {
            let p = PartitionId(p as u32);
            assert_eq!(statistics.accesses(p), expected.accesses);
            assert_eq!(statistics.intra(p), expected.intra);
            assert_eq!(statistics.inter(p), expected.inter);
        }
        let mut per_site = vec![0; 2];
        for p in (0..partitions).map(PartitionId) {
            per_site[home(p).index()] += u64::from(statistics.accesses(p));
        }
        assert_eq!(statistics.per_site(), per_site);
        assert!(statistics.history.len() <= statistics.config.history_max);
        assert!(statistics.open.len() <= statistics.history.len());
    }

    proptest! {
        /// DynaMast V-B: expired samples take their counts with them, and nothing else.
        #[test]
        fn counts_are_exactly_those_of_the_history(
            offers in prop::collection::vec(
                (0..3_u64, prop::collection::btree_set(0..8_u32, 1..4), any::<u64>(), 0..15_u64),
                1..60,
            ),
        ) {
            let mut statistics = Statistics::new(small(), 2, 8);
            let mut now_ms = 0;
            for (client, writes, random, later_ms) in offers {
                now_ms += later_ms;
                let writes: Vec<_> = writes.into_iter().map(PartitionId).collect();
                statistics.offer(ClientId(client), &writes, random, now_ms, home);
                check(&statistics, 8);
            }
            statistics.expire(now_ms + 1_000, home);
            prop_assert_eq!(statistics.samples(), 0);
            prop_assert!(statistics.open.is_empty());
            check(&statistics, 8);
        }

        /// At the bound of partners, what was not counted is not taken back either.
        #[test]
        fn a_bound_on_partners_loses_no_count(
            offers in prop::collection::vec(
                (0..2_u64, prop::collection::btree_set(0..8_u32, 1..5)), 1..60,
            ),
        ) {
            let mut statistics = Statistics::new(Sampling { partners_max: 2, ..small() }, 2, 8);
            for (client, writes) in offers {
                let writes: Vec<_> = writes.into_iter().map(PartitionId).collect();
                statistics.offer(ClientId(client), &writes, 0, 0, home);
                let longest = statistics.counts.iter().map(|c| c.intra.len().max(c.inter.len()));
                prop_assert!(longest.max() <= Some(2));
            }
            statistics.expire(1_000, home);
            prop_assert!(statistics.counts.iter().all(|c| c.intra.is_empty() && c.inter.is_empty()));
        }
    }

    #[test]
    fn the_sampled_share_adapts_to_the_rate() {
        // DynaMast V-B: adaptive sampling. 64 times more transactions than the history can hold
        // for its time: after a while about one in 64 is sampled, and samples reach back far.
        let config =
            Sampling { history_max: 100, history_ms: 6_400, follow_ms: 0, partners_max: 8 };
        let mut statistics = Statistics::new(config, 2, 8);
        let mut random = 1_u64;
        for now_ms in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            statistics.offer(ClientId(0), &[PartitionId(0)], random, now_ms, home);
        }
        let span_ms = 20_000 - statistics.history[0].at_ms;
        assert!((4_000..=6_400).contains(&span_ms), "{span_ms}");
        assert!((60..=100).contains(&statistics.samples()), "{}", statistics.samples());
    }

    #[test]
    fn moved_partitions_take_their_accesses_along() {
        let mut statistics = Statistics::new(small(), 2, 8);
        statistics.offer(ClientId(0), &[PartitionId(0), PartitionId(2)], 0, 0, home);
        assert_eq!(statistics.per_site(), [2, 0]);
        statistics.moved(PartitionId(2), SiteId(0), SiteId(1));
        assert_eq!(statistics.per_site(), [1, 1]);
    }
}
