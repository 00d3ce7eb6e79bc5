//! Simulated time: it moves only when the next event is due.

use std::fmt;
use std::ops::{Add, Sub};

/// An instant: microseconds since the run began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Add<u64> for Time {
    type Output = Time;

    /// So many microseconds later.
    fn add(self, us: u64) -> Time {
        Time(self.0 + us)
    }
}

impl Sub for Time {
    type Output = u64;

    /// Microseconds from the other instant to this one; 0 if it is later.
    fn sub(self, other: Time) -> u64 {
        self.0.saturating_sub(other.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}
