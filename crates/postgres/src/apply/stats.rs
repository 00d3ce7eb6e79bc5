//! How long entries take from the primary's commit to being visible at a replica.

/// Samples that are kept.
pub const SAMPLES_MAX: usize = 4096;

/// Latencies of the last [`SAMPLES_MAX`] entries, and counters since the applier started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ApplyStats {
    /// Entries applied.
    pub entries: u64,
    /// Transactions at the replica that they took (fewer, when entries are grouped).
    pub transactions: u64,
    /// Transactions that had to be run again because a predecessor was needed.
    pub retries: u64,
    samples_us: Vec<u64>,
    next: usize,
}

impl ApplyStats {
    /// Keeps the latency of one more entry, in microseconds from its commit time.
    pub fn add(&mut self, latency_us: u64) {
        if self.samples_us.len() < SAMPLES_MAX {
            self.samples_us.push(latency_us);
        } else {
            self.samples_us[self.next] = latency_us;
        }
        self.next = (self.next + 1) % SAMPLES_MAX;
        self.entries += 1;
    }

    /// The latency, in microseconds, that `percent` of the samples don't exceed; `None` without
    /// samples.
    #[must_use]
    pub fn percentile_us(&self, percent: usize) -> Option<u64> {
        let mut sorted = self.samples_us.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        Some(sorted[last * percent.min(100) / 100])
    }

    /// The samples, in no particular order, in microseconds.
    #[must_use]
    pub fn samples_us(&self) -> &[u64] {
        &self.samples_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_samples_only() {
        let mut stats = ApplyStats::default();
        assert_eq!(stats.percentile_us(50), None);
        (0..SAMPLES_MAX as u64 + 10).for_each(|n| stats.add(n));
        assert_eq!(stats.samples_us().len(), SAMPLES_MAX);
        assert_eq!(stats.percentile_us(0), Some(10));
        assert_eq!(stats.percentile_us(100), Some(SAMPLES_MAX as u64 + 9));
        assert_eq!(stats.entries, SAMPLES_MAX as u64 + 10);
    }
}
