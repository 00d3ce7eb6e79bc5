//! A processor-sharing server: all jobs in it advance at the same pace, each at the n-th part of
//! the server's when there are n. That is how a PostgreSQL server's backends share its processor.
//!
//! Kept in virtual time, which passes at the pace of one job: a job's end in virtual time is known
//! when it arrives, so arrivals and ends cost the logarithm of the jobs. Bounded by the caller:
//! one job a client and one a writeset on its way.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A processor-sharing server. Times are nanoseconds.
pub struct Engine<J> {
    /// Virtual time at `at`.
    pace: f64,
    at: u64,
    arrivals: u64,
    jobs: BinaryHeap<Reverse<Entry<J>>>,
}

struct Entry<J> {
    end: f64,
    arrival: u64,
    job: J,
}

impl<J> Default for Engine<J> {
    fn default() -> Engine<J> {
        Engine { pace: 0.0, at: 0, arrivals: 0, jobs: BinaryHeap::new() }
    }
}

impl<J> Engine<J> {
    /// A job arrives that alone would take `demand` nanoseconds.
    pub fn push(&mut self, now: u64, demand: u64, job: J) {
        self.advance(now);
        let end = self.pace + demand as f64;
        self.jobs.push(Reverse(Entry { end, arrival: self.arrivals, job }));
        self.arrivals += 1;
    }

    /// When the next job ends if none arrives before.
    pub fn next_end(&self) -> Option<u64> {
        let Reverse(first) = self.jobs.peek()?;
        let left = (first.end - self.pace).max(0.0) * self.jobs.len() as f64;
        Some(self.at + left.ceil() as u64)
    }

    /// Takes the job that ends now: at [`Engine::next_end`].
    pub fn pop(&mut self, now: u64) -> Option<J> {
        self.advance(now);
        let Reverse(first) = self.jobs.pop()?;
        // Rounding must not leave virtual time behind the job that ended.
        self.pace = self.pace.max(first.end);
        Some(first.job)
    }

    fn advance(&mut self, now: u64) {
        if !self.jobs.is_empty() {
            self.pace += (now - self.at) as f64 / self.jobs.len() as f64;
        }
        self.at = now;
    }
}

impl<J> Ord for Entry<J> {
    fn cmp(&self, other: &Entry<J>) -> Ordering {
        self.end.total_cmp(&other.end).then(self.arrival.cmp(&other.arrival))
    }
}

impl<J> PartialOrd for Entry<J> {
    fn partial_cmp(&self, other: &Entry<J>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<J> PartialEq for Entry<J> {
    fn eq(&self, other: &Entry<J>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<J> Eq for Entry<J> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jobs with the times at which they end.
    fn ends(arrivals: &[(u64, u64, char)]) -> Vec<(u64, char)> {
        let mut engine = Engine::default();
        let mut ended = Vec::new();
        let mut arrivals = arrivals.iter().peekable();
        loop {
            let end = engine.next_end();
            match arrivals.peek() {
                Some((at, demand, job)) if end.is_none_or(|end| *at < end) => {
                    engine.push(*at, *demand, *job);
                    arrivals.next();
                }
                _ => match end {
                    Some(end) => ended.push((end, engine.pop(end).expect("a job"))),
                    None => return ended,
                },
            }
        }
    }

    #[test]
    fn a_job_alone_takes_its_demand() {
        assert_eq!(ends(&[(5, 10, 'a'), (100, 1, 'b')]), [(15, 'a'), (101, 'b')]);
    }

    #[test]
    fn jobs_share_the_server_evenly() {
        // a runs alone until 10, then both at half pace: b, with less left, ends first.
        assert_eq!(ends(&[(0, 40, 'a'), (10, 10, 'b')]), [(30, 'b'), (50, 'a')]);
    }

    #[test]
    fn equal_jobs_end_in_the_order_of_their_arrival() {
        assert_eq!(ends(&[(0, 10, 'a'), (0, 10, 'b'), (0, 10, 'c')]).len(), 3);
        let order: Vec<char> =
            ends(&[(0, 10, 'a'), (0, 10, 'b'), (0, 10, 'c')]).iter().map(|(_, job)| *job).collect();
        assert_eq!(order, ['a', 'b', 'c']);
    }
}
