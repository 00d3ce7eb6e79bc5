//! Compares protocols over the share of read-only transactions, and finds where one curve overtakes another
//! (RSSI paper, section 6.3).

/// A share of read-only transactions with the throughputs of two protocols.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Part of the transactions that only read, 0 to 1.
    pub read_only: f64,
    /// Throughput of the one that leads at first.
    pub leader: f64,
    /// Throughput of the one that may overtake.
    pub challenger: f64,
}

impl Point {
    fn lead(&self) -> f64 {
        self.leader - self.challenger
    }
}

/// The share at which the challenger overtakes the leader for good, between two points by straight
/// lines; `None` if it never does, or leads from the first point on. Points ascend by share.
pub fn crossover(points: &[Point]) -> Option<f64> {
    let last_lead = points.iter().rposition(|point| point.lead() > 0.0)?;
    let (before, after) = (points[last_lead], points.get(last_lead + 1)?);
    let part = before.lead() / (before.lead() - after.lead());
    Some(before.read_only + part * (after.read_only - before.read_only))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(leads: &[f64]) -> Vec<Point> {
        let step = 1.0 / (leads.len() - 1) as f64;
        let point = |(index, lead): (usize, &f64)| Point {
            read_only: index as f64 * step,
            leader: 100.0 + lead,
            challenger: 100.0,
        };
        leads.iter().enumerate().map(point).collect()
    }

    #[test]
    fn the_crossing_is_between_the_last_lead_and_the_next_point() {
        assert_eq!(crossover(&points(&[30.0, 20.0, -20.0, -30.0, -40.0])), Some(0.375));
        assert_eq!(crossover(&points(&[10.0, 0.0, -5.0])), Some(0.5));
        assert_eq!(crossover(&points(&[10.0, -1.0, 5.0, -5.0, -6.0])), Some(0.625));
    }

    #[test]
    fn curves_that_keep_their_order_do_not_cross() {
        assert_eq!(crossover(&points(&[3.0, 2.0, 1.0])), None);
        assert_eq!(crossover(&points(&[-3.0, -2.0, -1.0])), None);
        assert_eq!(crossover(&[]), None);
    }
}
