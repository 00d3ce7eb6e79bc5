//! A simulated site: its processors, what has been decided there, and which prefix of the total
//! order its snapshots show (I2).

use std::collections::VecDeque;

use hihooi_certify::certification::Timestamp;

use crate::isolation::engine::Engine;

/// What a site works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// The client's transaction.
    Execute(usize),
    /// A message about the transaction at this position, on that visit of its way around the ring.
    Visit(Timestamp, usize),
    /// The writeset of another site's transaction at this position.
    Apply(Timestamp),
}

/// A site.
#[derive(Default)]
pub struct Site {
    /// Its processor.
    pub engine: Engine<Job>,
    /// Its manager's processor, if that has one of its own.
    pub manager: Engine<Job>,
    /// The positions whose decision it knows; it acts on them in their order.
    pub decided: Gapless,
    /// The positions that it is done with: a snapshot includes what lies before the first gap.
    pub applied: Gapless,
    /// Its clients that wait for their commit to become visible, by position.
    waiting: VecDeque<(Timestamp, usize)>,
}

impl Site {
    /// When the next of its jobs ends if none arrives before.
    pub fn next_end(&self) -> Option<u64> {
        self.engine.next_end().into_iter().chain(self.manager.next_end()).min()
    }

    /// Takes a job that ends now.
    pub fn pop(&mut self, now: u64) -> Option<Job> {
        if self.engine.next_end() == Some(now) {
            self.engine.pop(now)
        } else {
            self.manager.pop(now)
        }
    }

    /// The client of this position, the last that was decided, waits until it is visible.
    pub fn wait(&mut self, at: Timestamp, client: usize) {
        self.waiting.push_back((at, client));
    }

    /// Shows what can be shown; the clients whose commits became visible.
    pub fn show(&mut self) -> Vec<usize> {
        self.applied.advance();
        let end = self.applied.end();
        let visible = self.waiting.partition_point(|(at, _)| *at <= end);
        self.waiting.drain(..visible).map(|(_, client)| client).collect()
    }
}

/// Positions that are marked in any order and count without gaps. Bounded by the transactions
/// that are on their way.
#[derive(Default)]
pub struct Gapless {
    /// All up to here are marked.
    end: u64,
    /// Whether those behind are.
    marked: VecDeque<bool>,
}

impl Gapless {
    /// The last position before the first gap, as of the last [`Gapless::advance`].
    pub fn end(&self) -> Timestamp {
        Timestamp(self.end)
    }

    /// Marks a position behind the end.
    pub fn mark(&mut self, at: Timestamp) {
        let place = (at.0 - self.end - 1) as usize;
        if self.marked.len() <= place {
            self.marked.resize(place + 1, false);
        }
        self.marked[place] = true;
    }

    /// Moves the end to the first gap; the positions that it passed.
    pub fn advance(&mut self) -> std::ops::RangeInclusive<u64> {
        let start = self.end + 1;
        while self.marked.front() == Some(&true) {
            self.marked.pop_front();
            self.end += 1;
        }
        start..=self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I2: a writeset that is applied early isn't visible before all earlier ones are.
    #[test]
    fn snapshots_end_before_the_first_gap() {
        let mut site = Site::default();
        let mut apply = |at| {
            site.applied.mark(Timestamp(at));
            if at == 4 {
                site.wait(Timestamp(4), 17);
            }
            (site.show(), site.applied.end().0)
        };
        assert_eq!(apply(1), (vec![], 1));
        assert_eq!(apply(4), (vec![], 1));
        assert_eq!(apply(3), (vec![], 1));
        assert_eq!(apply(2), (vec![17], 4));
    }

    #[test]
    fn positions_are_passed_once_and_in_order() {
        let mut gapless = Gapless::default();
        gapless.mark(Timestamp(2));
        assert_eq!(gapless.advance().count(), 0);
        gapless.mark(Timestamp(1));
        assert_eq!(gapless.advance(), 1..=2);
        assert_eq!(gapless.advance().count(), 0);
    }
}
