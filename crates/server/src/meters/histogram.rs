//! Durations by buckets, as Prometheus' histograms have them: fixed bounds, so that those of several managers can
//! be added.

use std::cell::Cell;
use std::time::Duration;

/// Upper bounds of the buckets, microseconds: from a statement that finds everything in memory to a report. What takes
/// longer is in a bucket without a bound.
pub(crate) const BOUNDS_US: [u64; 17] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000, 60_000_000,
];

/// How many durations were in which bucket.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [Cell<u64>; BOUNDS_US.len() + 1],
    sum_us: Cell<u64>,
}

/// A histogram at one moment.
#[derive(Debug)]
pub(crate) struct Spread {
    /// Number of durations in each bucket alone; the last has no bound.
    pub(crate) counts: [u64; BOUNDS_US.len() + 1],
    /// Sum of all durations, seconds.
    pub(crate) sum_s: f64,
}

impl Histogram {
    /// Something took so long.
    pub(crate) fn add(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = &self.counts[BOUNDS_US.partition_point(|bound| *bound < us)];
        bucket.set(bucket.get() + 1);
        self.sum_us.set(self.sum_us.get().saturating_add(us));
    }

    /// What was added so far.
    pub(crate) fn spread(&self) -> Spread {
        Spread {
            counts: std::array::from_fn(|bucket| self.counts[bucket].get()),
            sum_s: Duration::from_micros(self.sum_us.get()).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let bounds = BOUNDS_US.map(Duration::from_micros);
        for (bucket, bound) in bounds.iter().enumerate() {
            let histogram = Histogram::default();
            histogram.add(*bound);
            histogram.add(*bound + Duration::from_micros(1));
            let counts = histogram.spread().counts;
            assert_eq!((counts[bucket], counts[bucket + 1]), (1, 1), "{bound:?}");
        }
        let histogram = Histogram::default();
        histogram.add(Duration::ZERO);
        histogram.add(Duration::from_millis(1_500));
        assert_eq!(histogram.spread().counts[0], 1);
        assert!((histogram.spread().sum_s - 1.5).abs() < 1e-9);
        histogram.add(Duration::MAX);
        assert_eq!(histogram.spread().counts.iter().sum::<u64>(), 3);
    }
}
