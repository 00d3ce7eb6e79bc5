//! What a simulated run measured: the curves of the RSSI paper's Figure 1.

use hihooi_certify::certification::{Cause, Role};
use serde::Serialize;

/// What a run measured after its ramp-up.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Simulated seconds measured.
    pub seconds: f64,
    /// Committed transactions a second.
    pub throughput: f64,
    /// Aborted attempts of all attempts, 0 to 1.
    pub abort_share: f64,
    /// Of the transactions that only read.
    pub read_only: Class,
    /// Of the others.
    pub write: Class,
}

/// What became of the attempts of one class of transactions.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Class {
    /// Attempts that committed.
    pub commits: u64,
    /// Attempts that didn't.
    pub aborts: Aborts,
    /// Mean response time of those that committed, ms.
    pub response_mean_ms: f64,
    /// 99th percentile of it, ms.
    pub response_p99_ms: f64,
    /// Part of the mean from the end of execution until the site knew the decision, ms: what the
    /// paper calls GDCP time.
    pub ordering_mean_ms: f64,
}

/// Aborted attempts by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Aborts {
    /// A concurrent transaction wrote the same row (the paper's WW).
    pub write_conflict: u64,
    /// A concurrent transaction wrote what was read (RW, "read impact").
    pub read_impact: u64,
    /// Descending structures (DS) with the aborted one as peak.
    pub descending_peak: u64,
    /// As follow transaction.
    pub descending_follow: u64,
    /// As trailing transaction.
    pub descending_trailing: u64,
    /// What was read has a newer version.
    pub stale_read: u64,
    /// The certifier no longer remembers everything since the snapshot.
    pub too_old: u64,
}

impl Report {
    /// Attempts of both classes.
    pub fn attempts(&self) -> u64 {
        self.read_only.attempts() + self.write.attempts()
    }

    /// Aborts of both classes.
    pub fn aborts(&self) -> Aborts {
        self.read_only.aborts.plus(self.write.aborts)
    }
}

impl Class {
    /// All attempts.
    pub fn attempts(&self) -> u64 {
        self.commits + self.aborts.total()
    }
}

impl Aborts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.write_conflict + self.read_impact + self.descending() + self.stale_read + self.too_old
    }

    /// Descending structures, whatever the role.
    pub fn descending(&self) -> u64 {
        self.descending_peak + self.descending_follow + self.descending_trailing
    }

    /// Counts one.
    pub fn count(&mut self, cause: Cause) {
        *match cause {
            Cause::WriteConflict { .. } => &mut self.write_conflict,
            Cause::ReadImpact { .. } => &mut self.read_impact,
            Cause::DescendingStructure { role: Role::Peak } => &mut self.descending_peak,
            Cause::DescendingStructure { role: Role::Follow } => &mut self.descending_follow,
            Cause::DescendingStructure { role: Role::Trailing } => &mut self.descending_trailing,
            Cause::StaleRead => &mut self.stale_read,
            Cause::SnapshotTooOld => &mut self.too_old,
        } += 1;
    }

    fn plus(self, other: Aborts) -> Aborts {
        Aborts {
            write_conflict: self.write_conflict + other.write_conflict,
            read_impact: self.read_impact + other.read_impact,
            descending_peak: self.descending_peak + other.descending_peak,
            descending_follow: self.descending_follow + other.descending_follow,
            descending_trailing: self.descending_trailing + other.descending_trailing,
            stale_read: self.stale_read + other.stale_read,
            too_old: self.too_old + other.too_old,
        }
    }
}

/// Most response times that are kept for a percentile; the mean counts later ones too.
const SAMPLES_MAX: usize = 1 << 22;

/// Counts one class's attempts while the run goes on.
#[derive(Default)]
pub struct Tally {
    class: Class,
    samples_ns: Vec<u64>,
    sum_ns: u64,
    ordering_sum_ns: u64,
}

impl Tally {
    /// An attempt committed, `response_ns` after its client had sent the transaction; ordering
    /// and certification took `ordering_ns` of it.
    pub fn committed(&mut self, response_ns: u64, ordering_ns: u64) {
        self.class.commits += 1;
        self.sum_ns += response_ns;
        self.ordering_sum_ns += ordering_ns;
        if self.samples_ns.len() < SAMPLES_MAX {
            self.samples_ns.push(response_ns);
        }
    }

    /// An attempt aborted.
    pub fn aborted(&mut self, cause: Cause) {
        self.class.aborts.count(cause);
    }

    /// The class with its response times.
    pub fn finish(mut self) -> Class {
        self.samples_ns.sort_unstable();
        let rank = (self.samples_ns.len() * 99).div_ceil(100).saturating_sub(1);
        let p99_ns = self.samples_ns.get(rank).copied().unwrap_or(0);
        let mean_ms = |sum_ns: u64| sum_ns as f64 / self.class.commits.max(1) as f64 / 1e6;
        Class {
            response_mean_ms: mean_ms(self.sum_ns),
            ordering_mean_ms: mean_ms(self.ordering_sum_ns),
            response_p99_ms: p99_ns as f64 / 1e6,
            ..self.class
        }
    }
}
