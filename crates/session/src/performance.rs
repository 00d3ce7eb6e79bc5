//! How fast and how reliably a replica has answered its reads so far: its slowdown, whether it fails or has
//! stopped answering, and since when it is back. Time comes in as an argument; all times are measured from the
//! same moment.
//!
//! *Slowdown.* A read's time until the first byte of its result is divided by the time that this statement
//! usually takes at any site: 2 means twice as long. So a replica that runs reports does not count as slower
//! than one that runs reads by key, and neither the size of a result nor a client that reads slowly has an
//! influence. The slowdown is a moving average of the logarithm, so that one read that takes a thousand times
//! as long as usual (other parameters, a checkpoint) doesn't outweigh all others. It rises faster than it
//! falls, as in the "peak EWMA" of Finagle's load balancer. It averages over time, but over at least a few
//! reads. It decays when there are no reads, so that a replica which gets none is tried again.
//!
//! *Outliers* (Envoy's term) get no reads. A replica becomes an outlier after a few connection failures in a
//! row: then it gets an ordinary read as a probe from time to time, at growing intervals. It also becomes an
//! outlier when reads wait for it and none has been answered for so long that many answers were due. Then it
//! gets no further read until one of these is answered, or the server answers a query of our own
//! (`server/src/silence.rs`).
//!
//! *Slow start.* A replica that comes back gets its share of reads back gradually: its caches are cold, it may
//! fail again, and all sessions would use it at the same time.

use std::time::Duration;

/// A read counts as this many times slower or quicker than usual at most.
const RATIO_MAX: f64 = 1_000.0;
/// The average is over this time while replicas answer more slowly than before, and over this one while they answer
/// more quickly.
const RISE: Duration = Duration::from_millis(250);
const FALL: Duration = Duration::from_secs(1);
/// A single read counts for no more than these parts of the average.
const RISE_PART_MAX: f64 = 0.5;
const FALL_PART_MAX: f64 = 0.25;
/// Without reads, half of the average's logarithm is forgotten in this time.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// So many failures in a row make an outlier.
const FAILURES: u32 = 3;
/// An outlier gets its first probe after this, and each further one after twice the time, up to the bound.
const PROBE_AFTER: Duration = Duration::from_millis(100);
const PROBE_AFTER_MAX: Duration = Duration::from_secs(30);
/// A replica that reads wait for is an outlier if it answered none for this time, and in it so many were due.
const QUIET_MIN: Duration = Duration::from_millis(100);
const ANSWERS_DUE: f64 = 30.0;
/// Slow start lasts so many times as long as the replica was away, up to the bound.
const START_TIMES: u32 = 10;
const START_MAX: Duration = Duration::from_secs(10);
/// The share that it begins with.
const START_SHARE: f64 = 0.05;

/// How many times as long as usual reads take.
#[derive(Clone, Copy, Debug, Default)]
struct Slowdown {
    log: f64,
    at: Duration,
}

impl Slowdown {
    fn log_at(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.at).as_secs_f64();
        self.log * (-age / HALF_LIFE.as_secs_f64()).exp2()
    }

    fn measured(&mut self, now: Duration, ratio: f64) {
        let (known, new) = (self.log_at(now), ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX).ln());
        let (over, part_max) =
            if new > known { (RISE, RISE_PART_MAX) } else { (FALL, FALL_PART_MAX) };
        let age = now.saturating_sub(self.at).as_secs_f64();
        let part = (1.0 - (-age / over.as_secs_f64()).exp()).min(part_max);
        *self = Slowdown { log: known + part * (new - known), at: now };
    }
}

/// Whether what fails gets work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It does.
    Full,
    /// A probe is due.
    Probe,
    /// Nothing.
    Nothing,
}

/// Counts failures in a row, and says when to try again what fails. (Of a replica, or of one role's connections
/// there.)
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlier {
    failures: u32,
    out: Option<Out>,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    since: Duration,
    probes: u32,
    next: Duration,
}

impl Outlier {
    /// It failed. (`jitter`, about 1, lengthens the time until a probe.)
    pub fn failed(&mut self, now: Duration, jitter: f64) {
        self.failures = self.failures.saturating_add(1);
        if self.is_failing() {
            self.exclude(now, jitter);
        }
    }

    /// From now on it gets probes only.
    fn exclude(&mut self, now: Duration, jitter: f64) {
        let new = || Out { since: now, probes: 0, next: now + PROBE_AFTER.mul_f64(jitter) };
        self.out.get_or_insert_with(new);
    }

    /// It worked. How long it was excluded, if it was.
    pub fn worked(&mut self, now: Duration) -> Option<Duration> {
        self.failures = 0;
        self.out.take().map(|out| now.saturating_sub(out.since))
    }

    /// Whether it failed often enough in a row.
    fn is_failing(&self) -> bool {
        self.failures >= FAILURES
    }

    /// What it gets.
    #[must_use]
    pub fn admission(&self, now: Duration) -> Admission {
        match self.out {
            None => Admission::Full,
            Some(out) if out.next <= now => Admission::Probe,
            Some(_) => Admission::Nothing,
        }
    }

    /// It is tried: if it is excluded, the next time is later.
    pub fn tried(&mut self, now: Duration, jitter: f64) {
        if let Some(out) = &mut self.out {
            out.probes = (out.probes + 1).min(31);
            let after = PROBE_AFTER.saturating_mul(1 << out.probes).min(PROBE_AFTER_MAX);
            out.next = now + after.mul_f64(jitter);
        }
    }
}

/// Whether a replica was there when somebody looked.
#[derive(Clone, Copy, Debug)]
enum Presence {
    /// Nobody has seen it yet.
    New,
    Here,
    Away(Duration),
}

/// What is known of a replica's reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Performance {
    /// The operator's wish.
    pub(crate) weight: u32,
    /// Reads that run there or wait for a connection there.
    outstanding: u32,
    /// Those of which nothing has been answered, and the answers a second that are due for them.
    awaited: u32,
    due: f64,
    /// The last answer, or, if nothing was awaited then, when something was again.
    quiet_since: Duration,
    slowdown: Slowdown,
    outlier: Outlier,
    presence: Presence,
    /// Slow start: its beginning and length.
    start: (Duration, Duration),
}

impl Performance {
    pub(crate) fn new(weight: u32) -> Performance {
        Performance {
            weight,
            outstanding: 0,
            awaited: 0,
            due: 0.0,
            quiet_since: Duration::ZERO,
            slowdown: Slowdown::default(),
            outlier: Outlier::default(),
            presence: Presence::New,
            start: (Duration::ZERO, Duration::ZERO),
        }
    }

    /// Somebody looks whether it may be read. Whether it is excluded from now on since it has stopped to answer.
    pub(crate) fn seen(&mut self, is_readable: bool, now: Duration, jitter: f64) -> bool {
        match self.presence {
            Presence::Here if !is_readable => self.presence = Presence::Away(now),
            Presence::New if is_readable => self.presence = Presence::Here,
            Presence::Away(since) if is_readable => {
                self.presence = Presence::Here;
                self.outlier = Outlier::default();
                self.slowdown = Slowdown::default();
                self.starts(now, now.saturating_sub(since));
            }
            _ => {}
        }
        let is_suspect =
            is_readable && self.outlier.admission(now) == Admission::Full && self.is_quiet(now);
        if is_suspect {
            self.outlier.exclude(now, jitter);
        }
        is_suspect
    }

    fn starts(&mut self, now: Duration, away: Duration) {
        let (from, before) = self.start;
        let length = away.saturating_mul(START_TIMES).min(START_MAX);
        // One that goes on for longer is not cut short.
        if from + before < now + length {
            self.start = (now, length);
        }
    }

    /// Whether it has stopped to answer, by what is awaited.
    fn is_quiet(&self, now: Duration) -> bool {
        let quiet = now.saturating_sub(self.quiet_since);
        self.awaited > 0
            && quiet >= QUIET_MIN
            && quiet.as_secs_f64() * self.due / self.slowdown(now).max(1.0) >= ANSWERS_DUE
    }

    /// What it gets. While reads are awaited there, their answers are as good as a probe's.
    pub(crate) fn admission(&self, now: Duration) -> Admission {
        match self.outlier.admission(now) {
            Admission::Probe if self.awaited > 0 => Admission::Nothing,
            admission => admission,
        }
    }

    /// The server has answered a question of our own. That ends no failures of reads.
    pub(crate) fn is_alive(&mut self, now: Duration) {
        self.quiet_since = now;
        if !self.outlier.is_failing()
            && let Some(away) = self.outlier.worked(now)
        {
            self.starts(now, away);
        }
    }

    /// It was chosen for a read.
    pub(crate) fn chosen(&mut self, now: Duration, jitter: f64) {
        self.outlier.tried(now, jitter);
    }

    /// How many times as long as usual its reads take.
    pub(crate) fn slowdown(&self, now: Duration) -> f64 {
        self.slowdown.log_at(now).exp()
    }

    /// The part of its weight that it gets, from slow start.
    pub(crate) fn share(&self, now: Duration) -> f64 {
        let (from, length) = self.start;
        if length.is_zero() {
            return 1.0;
        }
        let part = now.saturating_sub(from).as_secs_f64() / length.as_secs_f64();
        part.clamp(START_SHARE, 1.0)
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    pub(crate) fn began(&mut self) {
        self.outstanding += 1;
    }

    pub(crate) fn ended(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// A read was sent, for which so many answers a second are due.
    pub(crate) fn sent(&mut self, now: Duration, due: f64) {
        if self.awaited == 0 {
            (self.due, self.quiet_since) = (0.0, now);
        }
        self.awaited += 1;
        self.due += due;
    }

    /// It is no longer awaited.
    pub(crate) fn done(&mut self, due: f64) {
        self.awaited = self.awaited.saturating_sub(1);
        self.due = (self.due - due).max(0.0);
    }

    /// A read was answered, which took so many times as long as usual, if that is known.
    pub(crate) fn answered(&mut self, now: Duration, ratio: Option<f64>) {
        self.quiet_since = now;
        if let Some(ratio) = ratio {
            self.slowdown.measured(now, ratio);
        }
        if let Some(away) = self.outlier.worked(now) {
            self.starts(now, away);
        }
    }

    /// Its connection failed a read.
    pub(crate) fn failed(&mut self, now: Duration, jitter: f64) {
        self.outlier.failed(now, jitter);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// What its slowdown is after reads at these times and of these ratios.
    fn slowdown(reads: impl IntoIterator<Item = (u64, f64)>) -> (Performance, f64) {
        let mut performance = Performance::new(1);
        let mut last = Duration::ZERO;
        for (at, ratio) in reads {
            last = ms(at);
            performance.answered(last, Some(ratio));
        }
        (performance, performance.slowdown(last))
    }

    #[test]
    fn it_follows_what_is_measured_and_rises_faster_than_it_falls() {
        let usual = || (0..100).map(|n| (n * 10, 1.0));
        assert!((slowdown(usual()).1 - 1.0).abs() < 1e-9);
        let slow = |until| usual().chain((100..until).map(|n| (n * 10, 10.0)));
        let risen = slowdown(slow(200)).1;
        assert!(risen > 8.0, "{risen}");
        let half_a_second = slowdown(slow(150)).1;
        assert!(half_a_second > 5.0, "{half_a_second}");
        let quick_again = |n| slow(200).chain((200..n).map(|n| (n * 10, 1.0)));
        let still = slowdown(quick_again(250)).1;
        assert!(still > 3.0, "{still}");
        let fallen = slowdown(quick_again(600)).1;
        assert!(fallen < 1.1, "{fallen}");
    }

    #[test]
    fn a_single_slow_read_makes_nothing_slow() {
        let busy = (0..1_000).map(|n| (n, if n == 900 { 1_000.0 } else { 1.0 }));
        let (_, busy) = slowdown(busy);
        assert!(busy < 1.05, "{busy}");
    }

    #[test]
    fn it_is_forgotten() {
        let (performance, slow) = slowdown((0..20).map(|n| (n * 1_000, 50.0)));
        assert!(slow > 25.0, "{slow}");
        assert!(performance.slowdown(ms(20_000) + HALF_LIFE) < 10.0);
        assert!(performance.slowdown(ms(20_000) + 10 * HALF_LIFE) < 1.01);
    }

    #[test]
    fn a_few_failures_in_a_row_exclude_and_one_answer_ends_that() {
        let mut outlier = Outlier::default();
        for _ in 0..10 {
            (1..FAILURES).for_each(|_| outlier.failed(ms(0), 1.0));
            assert_eq!(outlier.admission(ms(0)), Admission::Full);
            assert_eq!(outlier.worked(ms(0)), None);
        }
        (0..FAILURES).for_each(|_| outlier.failed(ms(5), 1.0));
        assert_eq!(outlier.admission(ms(5)), Admission::Nothing);
        assert_eq!(outlier.worked(ms(35)), Some(ms(30)));
        assert_eq!(outlier.admission(ms(35)), Admission::Full);
    }

    #[test]
    fn probes_come_at_growing_intervals_up_to_a_bound() {
        let mut outlier = Outlier::default();
        (0..FAILURES).for_each(|_| outlier.failed(Duration::ZERO, 1.0));
        let (mut now, mut last, mut intervals) = (ms(0), ms(0), Vec::new());
        while intervals.len() < 12 {
            if outlier.admission(now) == Admission::Probe {
                outlier.tried(now, 1.0);
                assert_eq!(outlier.admission(now), Admission::Nothing, "one at a time");
                outlier.failed(now, 1.0);
                intervals.push(now - last);
                last = now;
            }
            now += ms(10);
        }
        assert_eq!(intervals[0], PROBE_AFTER);
        assert!(intervals.windows(2).all(|two| two[1] >= two[0]), "{intervals:?}");
        assert_eq!((intervals[3], intervals[11]), (8 * PROBE_AFTER, PROBE_AFTER_MAX));
    }

    #[test]
    fn what_answers_nothing_while_answers_are_due_gets_nothing() {
        let mut performance = Performance::new(1);
        performance.seen(true, ms(0), 1.0);
        performance.sent(ms(0), 1_000.0); // a read of a millisecond
        performance.seen(true, QUIET_MIN - ms(1), 1.0);
        assert_eq!(performance.admission(QUIET_MIN), Admission::Full);
        performance.seen(true, QUIET_MIN, 1.0);
        assert_eq!(performance.admission(QUIET_MIN), Admission::Nothing);
        // What comes in the end brings it back, little by little.
        performance.answered(ms(600), None);
        performance.done(1_000.0);
        assert_eq!(performance.admission(ms(600)), Admission::Full);
        assert_eq!(performance.share(ms(600)), START_SHARE);
        assert!(performance.share(ms(600) + 5 * (ms(500))) > 0.4);
        assert_eq!(performance.share(ms(10_000)), 1.0);
    }

    #[test]
    fn a_report_may_take_as_long_as_reports_do() {
        let mut performance = Performance::new(1);
        performance.sent(ms(0), 0.1); // one of ten seconds
        performance.seen(true, ms(60_000), 1.0);
        assert_eq!(performance.admission(ms(60_000)), Admission::Full);
        // Nor is one whose duration is not known yet awaited for any time.
        performance.sent(ms(0), 0.0);
        performance.seen(true, ms(60_000), 1.0);
        assert_eq!(performance.admission(ms(60_000)), Admission::Full);
        // Whatever else is answered meanwhile shows that it works.
        performance.sent(ms(60_000), 10_000.0);
        performance.answered(ms(60_050), Some(1.0));
        performance.seen(true, ms(60_120), 1.0);
        assert_eq!(performance.admission(ms(60_120)), Admission::Full);
    }

    #[test]
    fn what_was_away_starts_slowly_and_with_a_clean_slate() {
        let mut performance = Performance::new(1);
        performance.seen(false, ms(0), 1.0);
        performance.seen(true, ms(10), 1.0);
        assert_eq!(performance.share(ms(10)), 1.0, "nothing was there before");
        (0..50).for_each(|n| performance.answered(ms(20 + n), Some(100.0)));
        (0..FAILURES).for_each(|_| performance.failed(ms(100), 1.0));
        performance.seen(false, ms(100), 1.0);
        performance.seen(true, ms(60_000), 1.0);
        assert_eq!(performance.admission(ms(60_000)), Admission::Full);
        assert_eq!(
            (performance.share(ms(60_000)), performance.slowdown(ms(60_000))),
            (START_SHARE, 1.0)
        );
        let shares: Vec<f64> = (60..72).map(|s| performance.share(ms(s * 1_000))).collect();
        assert!(shares.windows(2).all(|two| two[0] <= two[1]), "{shares:?}");
        assert_eq!(shares[11], 1.0);
    }

    #[test]
    fn a_short_absence_does_not_cut_a_slow_start_short() {
        let mut performance = Performance::new(1);
        performance.seen(true, ms(0), 1.0);
        performance.seen(false, ms(0), 1.0);
        performance.seen(true, ms(60_000), 1.0);
        performance.seen(false, ms(61_000), 1.0);
        performance.seen(true, ms(61_100), 1.0);
        assert!((performance.share(ms(62_200)) - 0.22).abs() < 1e-9);
        assert_eq!(performance.share(ms(70_000)), 1.0);
    }

    proptest! {
        /// Whatever comes in whatever order, time may even stand still: numbers stay numbers, within bounds.
        #[test]
        fn it_stays_within_bounds(events in prop::collection::vec((0..7_u8, 0..3_000_u64, 0.0..1e9_f64), 1..200)) {
            let mut performance = Performance::new(1);
            let mut now = Duration::ZERO;
            for (event, after, number) in events {
                now += ms(after);
                match event {
                    0 => { performance.seen(after % 2 == 0, now, 1.0); }
                    1 => performance.sent(now, number),
                    2 => performance.done(number),
                    3 => performance.answered(now, Some(number)),
                    4 => performance.failed(now, 1.0),
                    5 => performance.chosen(now, 1.0),
                    _ => { performance.began(); performance.ended(); performance.ended(); }
                }
                let slowdown = performance.slowdown(now);
                prop_assert!((0.99 / RATIO_MAX..=1.01 * RATIO_MAX).contains(&slowdown), "{slowdown}");
                prop_assert!((START_SHARE..=1.0).contains(&performance.share(now)));
                prop_assert!(performance.due >= 0.0 && performance.due.is_finite());
                if performance.awaited == 0 {
                    prop_assert_ne!(performance.admission(now + 2 * PROBE_AFTER_MAX), Admission::Nothing);
                }
            }
        }
    }
}
