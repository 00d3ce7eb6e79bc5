//! How long it takes from an entry's commit at the primary until it is visible at a replica.

use std::mem;

use hdrhistogram::Histogram;

/// Percentiles are those of at least so many of the last entries, and of fewer than twice as many.
pub const RECENT_MIN: u64 = 2048;
/// Latencies are told apart to within 1 % (two significant digits) …
const DIGITS: u8 = 2;
/// … up to an hour, in microseconds; longer ones count as an hour. Bounds the memory (I8).
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// Latencies of recent entries, and counters since the applier started.
#[derive(Clone, PartialEq, Debug)]
pub struct ApplyStats {
    /// Entries applied.
    pub entries: u64,
    /// Transactions at the replica that they took (fewer, when entries are grouped).
    pub transactions: u64,
    /// Transactions that had to be run again because a predecessor was needed.
    pub retries: u64,
    /// Transactions whose changes were made as they came because what they change in the end was refused.
    pub nets_refused: u64,
    /// Latencies of the newest entries, fewer than [`RECENT_MIN`].
    newest_us: Histogram<u32>,
    /// Latencies of the [`RECENT_MIN`] entries before them.
    before_us: Histogram<u32>,
}

impl Default for ApplyStats {
    fn default() -> ApplyStats {
        let none = Histogram::new_with_max(LATENCY_US_MAX, DIGITS).expect("valid bounds");
        ApplyStats {
            entries: 0,
            transactions: 0,
            retries: 0,
            nets_refused: 0,
            newest_us: none.clone(),
            before_us: none,
        }
    }
}

impl ApplyStats {
    /// Counts one more entry, whose latency is given in microseconds from its commit time.
    pub fn add(&mut self, latency_us: u64) {
        self.newest_us.saturating_record(latency_us);
        if self.newest_us.len() == RECENT_MIN {
            mem::swap(&mut self.newest_us, &mut self.before_us);
            self.newest_us.reset();
        }
        self.entries += 1;
    }

    /// The latency, in microseconds, that `percent` of the recent entries don't exceed; `None`
    /// before the first entry.
    #[must_use]
    pub fn percentile_us(&self, percent: u8) -> Option<u64> {
        let mut recent = self.before_us.clone();
        recent.add(&self.newest_us).expect("the same bounds");
        (!recent.is_empty()).then(|| recent.value_at_percentile(f64::from(percent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within 1 % of the exact value.
    fn assert_about(found: Option<u64>, exact: u64) {
        let found = found.expect("there are latencies");
        assert!(found.abs_diff(exact) * 100 <= exact, "{found} instead of {exact}");
    }

    #[test]
    fn percentiles_are_those_of_recent_entries() {
        let mut stats = ApplyStats::default();
        assert_eq!(stats.percentile_us(50), None);
        (1..=100).for_each(|n| stats.add(n * 1_000));
        assert_about(stats.percentile_us(0), 1_000);
        assert_about(stats.percentile_us(50), 50_000);
        assert_about(stats.percentile_us(99), 99_000);
        assert_about(stats.percentile_us(100), 100_000);
        (0..2 * RECENT_MIN).for_each(|_| stats.add(500));
        assert_about(stats.percentile_us(100), 500);
        assert_eq!(stats.entries, 100 + 2 * RECENT_MIN);
    }

    /// I8: an outlier takes no memory of its own.
    #[test]
    fn more_than_an_hour_counts_as_an_hour() {
        let mut stats = ApplyStats::default();
        stats.add(u64::MAX);
        assert_about(stats.percentile_us(50), LATENCY_US_MAX);
    }
}
