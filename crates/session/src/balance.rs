//! Chooses among the replicas that are fresh enough for a read (docs/decisions/0012-balancing.md).
//!
//! The replica with about the shortest wait is chosen. A replica's *wait* is its slowdown (see `performance`)
//! times (one plus the number of reads outstanding there, divided by its weight relative to the mean weight).
//! Reads are counted, and their expected times are not considered: a server executes all of them concurrently,
//! so a new read is delayed by the number of the others. Replicas whose waits differ little count as equal,
//! since a wait is an estimate. Among them, reads are shared in proportion to weight divided by slowdown, in
//! turn (stride scheduling: Waldspurger and Weihl, 1995). So weights are respected with one client as well as
//! with many (until a replica becomes slower by the load that its weight brings). A slow replica gets fewer
//! reads, and none when its slowdown exceeds the others' load.
//!
//! Before that, replicas are excluded: one whose pool has no free connection, unless this is so at all of them;
//! one of weight 0, unless no other can be read; an outlier, except for a probe.

use std::time::Duration;

use hihooi_replication::freshness::Need;
use hihooi_replication::ids::Tsid;

use crate::consistency::Consistency;
use crate::performance::{Admission, Performance};

/// Waits count as equal up to this factor.
const ALIKE: f64 = 2.5;

/// A replica as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Its number.
    pub number: usize,
    /// Its applied prefix.
    pub applied: Tsid,
    /// How often it has set tables aside, or brought them back.
    pub set_aside_changes: u64,
    /// Its state lets it be read, freshness aside.
    pub is_readable: bool,
    /// This read can't run there: it was tried, the role can't connect there, or the replica doesn't follow all that
    /// it reads.
    pub is_barred: bool,
    /// All connections that the read could get there are used.
    pub is_full: bool,
}

/// What came of a choice.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// A replica that has all the read must see.
    Replica(Candidate),
    /// None has, but one could be read.
    NotFresh,
    /// None can be read.
    NoReplica,
}

/// What `SHOW REPLICAS` tells of a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// The operator's weight.
    pub weight: u32,
    /// How many times as long as usual its reads take.
    pub slowdown: f64,
    /// The part of its weight that it gets; 0 while it is only probed.
    pub share: f64,
}

/// A candidate that could be chosen.
#[derive(Clone, Copy, Debug)]
struct Rated {
    candidate: Candidate,
    weight: f64,
    slowdown: f64,
    is_starting: bool,
    is_probe: bool,
    wait: f64,
}

/// The replicas' performances, and whose turn it is.
#[derive(Debug)]
pub struct Balance {
    performances: Vec<Performance>,
    /// By replica, when its next turn is, in reads of weight 1; and when the last turn was.
    turns: Vec<f64>,
    turn: f64,
    random: u64,
    /// A replica that has stopped to answer, since the last choice.
    suspect: Option<usize>,
    /// Kept for its memory: no choice allocates.
    rated: Vec<Rated>,
}

impl Balance {
    /// Of replicas with these weights. (`seed` makes the jitter of probes.)
    #[must_use]
    pub fn new(weights: impl IntoIterator<Item = u32>, seed: u64) -> Balance {
        let performances: Vec<_> = weights.into_iter().map(Performance::new).collect();
        let turns = vec![0.0; performances.len()];
        Balance {
            performances,
            turns,
            turn: 0.0,
            random: seed | 1,
            suspect: None,
            rated: Vec::new(),
        }
    }

    /// Other weights from now on, in the same order.
    pub fn set_weights(&mut self, weights: &[u32]) {
        for (performance, weight) in self.performances.iter_mut().zip(weights) {
            performance.weight = *weight;
        }
    }

    /// Chooses a replica for a read.
    pub fn choose(
        &mut self,
        candidates: impl Iterator<Item = Candidate>,
        need: &Need,
        consistency: Consistency,
        now: Duration,
    ) -> Choice {
        self.rated.clear();
        for candidate in candidates {
            let jitter = self.jitter();
            let performance = &mut self.performances[candidate.number];
            if performance.seen(candidate.is_readable, now, jitter) {
                self.suspect = Some(candidate.number);
            }
            let admission = performance.admission(now);
            if candidate.is_readable && !candidate.is_barred && admission != Admission::Nothing {
                self.rated.push(rated(candidate, performance, admission, now));
            }
        }
        self.leave_spares_out();
        if self.rated.is_empty() {
            return Choice::NoReplica;
        }
        self.rated.retain(|rated| match consistency {
            Consistency::WeakSi => true,
            _ => need.unresolved.is_empty() && rated.candidate.applied >= need.tsid,
        });
        let is_probe = |rated: &&Rated| rated.is_probe && !rated.candidate.is_full;
        let probe = self.rated.iter().find(is_probe).copied();
        let Some(chosen) = probe.or_else(|| self.least_wait()) else { return Choice::NotFresh };
        self.take_turn(&chosen, now);
        Choice::Replica(chosen.candidate)
    }

    /// Without those of weight 0, if any other can be read; else their weights are alike.
    fn leave_spares_out(&mut self) {
        if self.rated.iter().any(|rated| rated.weight > 0.0) {
            self.rated.retain(|rated| rated.weight > 0.0);
        } else {
            self.rated.iter_mut().for_each(|rated| rated.weight = 1.0);
        }
    }

    /// The one whose turn it is among those with the least wait.
    fn least_wait(&mut self) -> Option<Rated> {
        self.rated.retain(|rated| !rated.is_probe);
        if self.rated.iter().any(|rated| !rated.candidate.is_full) {
            self.rated.retain(|rated| !rated.candidate.is_full);
        }
        self.give_starters_no_lead();
        let count = self.rated.len() as f64;
        let mean = self.rated.iter().map(|rated| rated.weight).sum::<f64>() / count;
        for rated in &mut self.rated {
            let outstanding = self.performances[rated.candidate.number].outstanding();
            rated.wait = rated.slowdown * (1.0 + f64::from(outstanding) * mean / rated.weight);
        }
        // The share of what starts slowly is a bound: however idle it is, it waits for its turn.
        if self.rated.iter().any(|rated| !rated.is_starting) {
            let (turns, turn) = (&self.turns, self.turn);
            self.rated.retain(|rated| !rated.is_starting || turns[rated.candidate.number] <= turn);
        }
        let least = self.rated.iter().map(|rated| rated.wait).fold(f64::INFINITY, f64::min);
        let alike = self.rated.iter().filter(|rated| rated.wait <= least * ALIKE);
        alike.min_by(|a, b| self.turn_of(a).total_cmp(&self.turn_of(b))).copied()
    }

    /// What starts slowly is quick because it has little to do: for now, it counts as no quicker than the others.
    fn give_starters_no_lead(&mut self) {
        let others = self.rated.iter().filter(|rated| !rated.is_starting);
        let quickest = others.map(|rated| rated.slowdown).fold(f64::INFINITY, f64::min);
        if quickest.is_finite() {
            let starting = self.rated.iter_mut().filter(|rated| rated.is_starting);
            starting.for_each(|rated| rated.slowdown = rated.slowdown.max(quickest));
        }
    }

    /// When its next turn is. Who got no reads for a while has not saved up turns.
    fn turn_of(&self, rated: &Rated) -> f64 {
        self.turns[rated.candidate.number].max(self.turn - stride(rated))
    }

    fn take_turn(&mut self, chosen: &Rated, now: Duration) {
        let turn = self.turn_of(chosen);
        self.turn = self.turn.max(turn);
        self.turns[chosen.candidate.number] = turn + stride(chosen);
        let jitter = self.jitter();
        self.performances[chosen.candidate.number].chosen(now, jitter);
    }

    /// A number between 0.75 and 1.25 (xorshift: Marsaglia, 2003), so that what failed at once isn't tried at once.
    pub fn jitter(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        0.75 + f64::from((self.random >> 48) as u16) / f64::from(u16::MAX) / 2.0
    }

    /// A replica that by the last choice seems to have stopped to answer: it should be asked whether it is
    /// [alive](Balance::is_alive).
    pub fn take_suspect(&mut self) -> Option<usize> {
        self.suspect.take()
    }

    /// The server of a replica has answered a question of our own.
    pub fn is_alive(&mut self, replica: usize, now: Duration) {
        self.performances[replica].is_alive(now);
    }

    /// A read was given to a replica. It is outstanding until it [ends](Balance::ended).
    pub fn began(&mut self, replica: usize) {
        self.performances[replica].began();
    }

    /// A read has ended, or is given to another site.
    pub fn ended(&mut self, replica: usize) {
        self.performances[replica].ended();
    }

    /// A read was sent to a replica; what it takes until the first byte of its answer, if that is known. The answers a
    /// second that are due for it, to be given back by [`Balance::done`].
    pub fn sent(&mut self, replica: usize, now: Duration, expected: Option<Duration>) -> f64 {
        let due = expected.map_or(0.0, |expected| 1.0 / expected.as_secs_f64().max(1e-6));
        self.performances[replica].sent(now, due);
        due
    }

    /// The first byte of its answer is no longer awaited, whatever came.
    pub fn done(&mut self, replica: usize, due: f64) {
        self.performances[replica].done(due);
    }

    /// The first byte of an answer came after so long, where so much was expected, if anything was.
    pub fn answered(
        &mut self,
        replica: usize,
        now: Duration,
        after: Duration,
        expected: Option<Duration>,
    ) {
        let ratio = expected.map(|expected| after.as_secs_f64() / expected.as_secs_f64().max(1e-6));
        self.performances[replica].answered(now, ratio);
    }

    /// The connection of a read failed, or there was none to be had.
    pub fn failed(&mut self, replica: usize, now: Duration) {
        let jitter = self.jitter();
        self.performances[replica].failed(now, jitter);
    }

    /// What is known of a replica.
    #[must_use]
    pub fn shown(&self, replica: usize, now: Duration) -> Shown {
        let performance = &self.performances[replica];
        let is_in = performance.admission(now) == Admission::Full;
        let share = if is_in { performance.share(now) } else { 0.0 };
        Shown { weight: performance.weight, slowdown: performance.slowdown(now), share }
    }
}

fn rated(
    candidate: Candidate,
    performance: &Performance,
    admission: Admission,
    now: Duration,
) -> Rated {
    Rated {
        candidate,
        weight: f64::from(performance.weight) * performance.share(now),
        slowdown: performance.slowdown(now),
        is_starting: performance.share(now) < 1.0,
        is_probe: admission == Admission::Probe,
        wait: 0.0,
    }
}

/// How far a replica's turns are apart.
fn stride(rated: &Rated) -> f64 {
    rated.slowdown / rated.weight
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn need(tsid: u64) -> Need {
        Need { tsid: Tsid(tsid), unresolved: vec![] }
    }

    fn at(number: usize) -> Candidate {
        let applied = Tsid(10);
        Candidate {
            number,
            applied,
            set_aside_changes: 0,
            is_readable: true,
            is_barred: false,
            is_full: false,
        }
    }

    /// Replicas, with clients that do their reads one after the other.
    struct Cluster {
        balance: Balance,
        now: Duration,
        candidates: Vec<Candidate>,
        /// By replica, what a read takes there, microseconds, if there is no other.
        us: Vec<u64>,
        /// When what runs ends, and where.
        running: Vec<(Duration, usize, Duration)>,
        reads: Vec<usize>,
        primary: usize,
    }

    const USUAL: Duration = Duration::from_micros(1_000);

    impl Cluster {
        fn new(weights: &[u32]) -> Cluster {
            Cluster {
                balance: Balance::new(weights.iter().copied(), 7),
                now: ms(1),
                candidates: (0..weights.len()).map(at).collect(),
                us: vec![1_000; weights.len()],
                running: Vec::new(),
                reads: vec![0; weights.len()],
                primary: 0,
            }
        }

        fn choose(&mut self, tsid: u64) -> Option<usize> {
            let candidates = self.candidates.iter().copied();
            match self.balance.choose(candidates, &need(tsid), Consistency::Gssi, self.now) {
                Choice::Replica(candidate) => Some(candidate.number),
                _ => None,
            }
        }

        /// A read begins; a replica that doesn't answer ends it in a century.
        fn begin(&mut self) {
            let Some(number) = self.choose(0) else {
                self.primary += 1;
                self.running.push((self.now + USUAL, usize::MAX, self.now));
                return;
            };
            self.reads[number] += 1;
            self.balance.began(number);
            self.balance.sent(number, self.now, Some(USUAL));
            let beside = self.running.iter().filter(|running| running.1 == number).count() as u64;
            let us = self.us[number] * (1 + beside).max(4) / 4; // four processors
            self.running.push((self.now + Duration::from_micros(us), number, self.now));
        }

        /// The next read ends, if any does by then.
        fn end(&mut self, until: Duration) -> bool {
            let next = (0..self.running.len()).min_by_key(|&index| self.running[index].0);
            let Some(index) = next.filter(|&index| self.running[index].0 <= until) else {
                self.now = until;
                return false;
            };
            let (end, number, began) = self.running.swap_remove(index);
            self.now = end;
            if number != usize::MAX {
                let due = 1.0 / USUAL.as_secs_f64();
                self.balance.done(number, due);
                self.balance.answered(number, end, end - began, Some(USUAL));
                self.balance.ended(number);
            }
            true
        }

        /// So many clients read for so long; how many reads each replica got.
        fn run(&mut self, clients: usize, time: Duration) -> Vec<usize> {
            let (until, before) = (self.now + time, self.reads.clone());
            while self.running.len() < clients {
                self.begin();
            }
            while self.end(until) {
                self.begin();
            }
            self.reads.iter().zip(before).map(|(after, before)| after - before).collect()
        }
    }

    #[test]
    fn i3_only_a_replica_that_applied_what_is_needed_is_chosen() {
        let mut cluster = Cluster::new(&[1, 1]);
        cluster.candidates[1].applied = Tsid(12);
        (0..100).for_each(|_| cluster.balance.began(1)); // however busy it is
        assert_eq!(cluster.choose(10), Some(0));
        assert_eq!(cluster.choose(11), Some(1));
        assert_eq!(cluster.choose(13), None);
        let unresolved =
            Need { unresolved: vec![hihooi_replication::freshness::WriteId::of(1, 1)], ..need(0) };
        let now = cluster.now;
        let choice = |cluster: &mut Cluster, consistency| {
            let candidates = cluster.candidates.clone().into_iter();
            cluster.balance.choose(candidates, &unresolved, consistency, now)
        };
        assert!(matches!(choice(&mut cluster, Consistency::Gssi), Choice::NotFresh));
        assert!(matches!(choice(&mut cluster, Consistency::WeakSi), Choice::Replica(_)));
    }

    #[test]
    fn weights_are_shares_with_one_client_and_with_many() {
        for clients in [1, 2, 3, 5] {
            let mut cluster = Cluster::new(&[3, 1]);
            let reads = cluster.run(clients, ms(5_000));
            let ratio = reads[0] as f64 / reads[1] as f64;
            assert!((2.0..4.5).contains(&ratio), "{clients} clients: {reads:?}");
            let reads = Cluster::new(&[500, 500, 500]).run(clients, ms(5_000));
            assert!(reads.iter().all(|&n| n * 4 > reads.iter().sum::<usize>()), "{reads:?}");
        }
    }

    #[test]
    fn weight_0_is_for_when_no_other_can_be_read() {
        let mut cluster = Cluster::new(&[1, 0, 0]);
        assert_eq!(cluster.run(8, ms(100))[1..], [0, 0]);
        cluster.candidates[0].applied = Tsid(0);
        assert_eq!(cluster.choose(5), None, "it could be waited for");
        cluster.candidates[0].is_readable = false;
        let reads = cluster.run(8, ms(100));
        assert!(reads[0] == 0 && reads[1] > 50 && reads[2] > 50, "{reads:?}");
    }

    #[test]
    fn a_slow_replica_gets_less_then_nothing_and_is_tried_again() {
        let reads = |us| {
            let mut cluster = Cluster::new(&[1, 1]);
            cluster.us[1] = us;
            cluster.run(2, ms(500));
            let reads = cluster.run(2, ms(10_000));
            (reads[1] as f64 / (reads[0] + reads[1]) as f64, cluster)
        };
        let shares = [1_000, 1_500, 3_000, 20_000].map(|us| reads(us).0);
        assert!(shares[0] > 0.4, "{shares:?}");
        assert!(shares.windows(2).all(|two| two[1] < two[0]), "{shares:?}");
        assert!(shares[1] > 0.2 && shares[3] < 0.01, "{shares:?}");
        let (_, mut cluster) = reads(20_000);
        let tried = cluster.run(2, ms(60_000))[1];
        assert!((1..100).contains(&tried), "{tried}");
        cluster.us[1] = 1_000;
        cluster.run(2, ms(30_000));
        let reads = cluster.run(2, ms(1_000));
        assert!(reads[1] * 3 > reads[0], "{reads:?}");
    }

    #[test]
    fn a_replica_that_runs_reports_is_not_slow() {
        let mut cluster = Cluster::new(&[1, 1]);
        let report = Duration::from_secs(10);
        for n in 0..20 {
            cluster.now += report;
            cluster.balance.answered(n % 2, cluster.now, report, Some(report));
            cluster.balance.answered(1, cluster.now, report, Some(report));
        }
        cluster.balance.began(1);
        cluster.balance.sent(1, cluster.now, Some(report));
        let reads = cluster.run(4, ms(5_000));
        assert!(reads[1] * 2 > reads[0], "{reads:?}");
    }

    #[test]
    fn a_frozen_replica_gets_nothing_but_probes() {
        let mut cluster = Cluster::new(&[1, 1]);
        cluster.run(8, ms(1_000));
        cluster.us[1] = u64::from(u32::MAX) * 1_000;
        let reads = cluster.run(8, ms(1_000));
        assert!(reads[1] < 8, "some clients go on: {reads:?}");
        assert!(reads[0] > 1_000, "{reads:?}");
        // Its reads are failed over; probes come, ever more seldom.
        while let Some(index) = cluster.running.iter().position(|running| running.1 == 1) {
            cluster.running.swap_remove(index);
            cluster.balance.done(1, 1.0 / USUAL.as_secs_f64());
            cluster.balance.ended(1);
            cluster.balance.failed(1, cluster.now);
        }
        let reads = cluster.run(8, ms(60_000));
        assert!((1..=2).contains(&reads[1]), "no read is risked while one is awaited: {reads:?}");
        // It answers a question, but has failed reads: that has to be seen by a read.
        cluster.balance.is_alive(1, cluster.now);
        assert_eq!(cluster.balance.shown(1, cluster.now).share, 0.0);
    }

    #[test]
    fn one_that_refuses_connections_gets_nothing_but_probes_and_starts_slowly() {
        let mut cluster = Cluster::new(&[1, 1]);
        let mut refused = 0;
        for _ in 0..10_000 {
            cluster.now += ms(1);
            if cluster.choose(0) == Some(1) {
                refused += 1;
                cluster.balance.failed(1, cluster.now);
            }
        }
        assert!((3..15).contains(&refused), "{refused}");
        assert_eq!(cluster.balance.shown(1, cluster.now).share, 0.0);
        cluster.now += ms(30_000);
        let reads = cluster.run(8, ms(1_000));
        assert!(reads[1] > 0 && reads[1] * 5 < reads[0], "no herd: {reads:?}");
        let later = cluster.run(8, ms(10_000));
        let after = cluster.run(8, ms(1_000));
        assert!(reads[1] * 10 < later[1], "{later:?}");
        assert!(after[1] * 3 > after[0] * 2, "{after:?}");
    }

    #[test]
    fn no_herd_at_one_that_was_away() {
        let mut cluster = Cluster::new(&[1, 1, 1]);
        cluster.run(30, ms(100));
        cluster.candidates[2].is_readable = false;
        let reads = cluster.run(30, ms(10_000));
        assert_eq!(reads[2], 0);
        cluster.candidates[2].is_readable = true;
        let reads = cluster.run(30, ms(500));
        assert!(reads[2] > 0 && reads[2] * 5 < reads[0], "{reads:?}");
        cluster.run(30, ms(10_000));
        let reads = cluster.run(30, ms(500));
        assert!(reads[2] * 5 > reads[0] * 4, "{reads:?}");
    }

    #[test]
    fn a_full_pool_is_avoided_if_any_is_not() {
        let mut cluster = Cluster::new(&[100, 1]);
        cluster.candidates[0].is_full = true;
        (0..50).for_each(|_| cluster.balance.began(1));
        assert!((0..20).all(|_| cluster.choose(0) == Some(1)));
        cluster.candidates[1].is_full = true;
        assert_eq!(cluster.choose(0), Some(0));
        cluster.candidates[0].is_full = false;
        cluster.candidates[0].is_barred = true;
        assert_eq!(cluster.choose(0), Some(1));
        // A probe that waits for a connection tells nothing.
        let now = cluster.now;
        (0..3).for_each(|_| cluster.balance.failed(1, now));
        cluster.now += ms(1_000);
        assert_eq!(cluster.choose(0), None);
        cluster.candidates[1].is_full = false;
        assert_eq!(cluster.choose(0), Some(1));
    }

    proptest! {
        /// Whatever has happened: a replica is chosen only if the read may run there, and if one may, one is chosen,
        /// or all are left for a probe. Nothing is starved for ever.
        #[test]
        fn it_never_chooses_what_it_must_not(
            weights in prop::collection::vec(0..5_u32, 1..5),
            events in prop::collection::vec((0..6_u8, any::<prop::sample::Index>(), 1..20_000_u64), 0..200),
            flags in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 0..3_u64), 5),
        ) {
            let mut cluster = Cluster::new(&weights);
            for (event, replica, number) in events {
                let replica = replica.index(weights.len());
                cluster.now += Duration::from_micros(number);
                match event {
                    0 => { cluster.balance.sent(replica, cluster.now, Some(Duration::from_micros(number))); }
                    1 => cluster.balance.done(replica, 1e6 / number as f64),
                    2 => cluster.balance.answered(replica, cluster.now, ms(number), Some(USUAL)),
                    3 => cluster.balance.failed(replica, cluster.now),
                    4 => cluster.balance.began(replica),
                    _ => { cluster.choose(0); }
                }
            }
            for (candidate, (is_readable, is_barred, is_full, applied)) in cluster.candidates.iter_mut().zip(flags) {
                *candidate = Candidate { is_readable, is_barred, is_full, applied: Tsid(applied), ..*candidate };
            }
            let may = |candidate: &Candidate| candidate.is_readable && !candidate.is_barred && candidate.applied >= Tsid(1);
            let could = |cluster: &Cluster, candidate: &Candidate| {
                may(candidate) && cluster.balance.shown(candidate.number, cluster.now).share > 0.0
            };
            let chosen = cluster.choose(1);
            if let Some(chosen) = chosen {
                prop_assert!(may(&cluster.candidates[chosen]));
            }
            let spare = |candidate: &&Candidate| weights[candidate.number] > 0;
            if cluster.candidates.iter().filter(spare).any(|candidate| could(&cluster, candidate)) {
                prop_assert!(chosen.is_some());
            }
        }
    }
}
