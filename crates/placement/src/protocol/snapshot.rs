//! The snapshots that a site keeps open, by start timestamp: the SIPRe paper's dummy transactions
//! (section 4.1) and their garbage collection, which the paper leaves out.

use std::collections::VecDeque;

use hihooi_certify::certification::Timestamp;

/// Open snapshots, ascending. One serves the timestamps from its own up to the next one's, since
/// nothing was applied here in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshots {
    open: VecDeque<Timestamp>,
}

impl Snapshots {
    /// Keeps one more; returns those to close because there are more than `max`.
    pub(super) fn open(&mut self, at: Timestamp, max: usize) -> Vec<Timestamp> {
        self.open.push_back(at);
        let surplus = self.open.len().saturating_sub(max.max(1));
        self.open.drain(..surplus).collect()
    }

    /// The snapshot that a transaction of this start timestamp reads, if it is still open. The site
    /// must have delivered that far.
    pub(super) fn serving(&self, begin: Timestamp) -> Option<Timestamp> {
        let next = self.open.partition_point(|&at| at <= begin);
        next.checked_sub(1).map(|index| self.open[index])
    }

    /// No transaction starts before `oldest`; returns those to close.
    pub(super) fn collect(&mut self, oldest: Timestamp) -> Vec<Timestamp> {
        let next = self.open.partition_point(|&at| at <= oldest);
        self.open.drain(..next.saturating_sub(1)).collect()
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(positions: &[u64]) -> Snapshots {
        Snapshots { open: positions.iter().map(|&at| Timestamp(at)).collect() }
    }

    #[test]
    fn a_snapshot_serves_up_to_the_next() {
        let snapshots = opened(&[2, 5]);
        let serving = |begin| snapshots.serving(Timestamp(begin)).map(|at| at.0);
        assert_eq!([1, 2, 4, 5, 9].map(serving), [None, Some(2), Some(2), Some(5), Some(5)]);
    }

    #[test]
    fn collection_keeps_what_the_oldest_reads() {
        let mut snapshots = opened(&[2, 5, 7]);
        assert_eq!(snapshots.collect(Timestamp(4)), []);
        assert_eq!(snapshots.collect(Timestamp(6)), [Timestamp(2)]);
        assert_eq!(snapshots.collect(Timestamp(99)), [Timestamp(5)], "the newest stays");
        assert_eq!(snapshots, opened(&[7]));
    }

    #[test]
    fn at_the_bound_the_oldest_goes() {
        let mut snapshots = opened(&[2, 5]);
        assert_eq!(snapshots.open(Timestamp(6), 2), [Timestamp(2)]);
        assert_eq!(snapshots.serving(Timestamp(4)), None);
    }
}
