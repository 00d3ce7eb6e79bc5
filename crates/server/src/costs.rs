//! How long statements usually take, so that a read waits for a replica only if that is worth it.

use std::time::Duration;

use schnellru::{ByLength, LruMap};

/// Statements that are remembered; the least recently used are forgotten first (I8).
const STATEMENTS_MAX: u32 = 20_000;
/// A new measurement counts for one part in so many.
const SMOOTHING: u32 = 8;

/// Smoothed durations by statement, in microseconds.
pub struct Costs {
    us: LruMap<u64, u32>,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { us: LruMap::new(ByLength::new(STATEMENTS_MAX)) }
    }
}

impl Costs {
    /// What a statement usually takes, microseconds; 0 while nothing is known of it.
    pub fn expected_us(&mut self, statement: u64) -> u32 {
        self.us.get(&statement).copied().unwrap_or(0)
    }

    /// The same, if anything is known of it.
    pub fn expected(&mut self, statement: u64) -> Option<Duration> {
        let us = self.expected_us(statement);
        (us > 0).then(|| Duration::from_micros(us.into()))
    }

    /// A statement took so long.
    pub fn took(&mut self, statement: u64, duration: Duration) {
        let us = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        if let Some(known) = self.us.get_or_insert(statement, || us) {
            *known = smoothed(*known, us);
        }
    }
}

/// A moving average after one more measurement.
#[must_use]
pub fn smoothed(known: u32, new: u32) -> u32 {
    known - known / SMOOTHING + new / SMOOTHING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_what_is_measured() {
        let mut costs = Costs::default();
        assert_eq!(costs.expected_us(7), 0);
        costs.took(7, Duration::from_micros(800));
        assert_eq!(costs.expected_us(7), 800);
        (0..100).for_each(|_| costs.took(7, Duration::from_micros(80_000)));
        assert!(costs.expected_us(7) > 70_000);
        (0..100).for_each(|_| costs.took(7, Duration::MAX));
    }

    #[test]
    fn i8_the_memory_is_bounded() {
        let mut costs = Costs::default();
        (0..3 * u64::from(STATEMENTS_MAX)).for_each(|id| costs.took(id, Duration::ZERO));
        assert!(costs.us.len() <= STATEMENTS_MAX as usize);
    }
}
