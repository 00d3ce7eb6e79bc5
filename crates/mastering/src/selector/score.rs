//! Where a transaction's partitions should be mastered: equations 2 to 8 (DynaMast paper, section
//! IV-A), for all sites at once.
//!
//! Departures:
//! - Equation 8 adds the refresh delay with its weight and then takes the highest score, which would prefer the
//!   site that lags most. Here the delay reduces a site's score.
//! - The norm of equation 5 includes only what a site lacks: being ahead in other slots has no effect.
//! - In equations 6 and 7, pairs within the write set are together at every candidate, so they contribute the
//!   same to all; they are computed only once.

use crate::ids::{PartitionId, SITES_MAX, SiteId};
use crate::selector::config::Weights;
use crate::selector::statistics::Statistics;
use crate::vector::{ClientVector, SiteVector};

/// The factors of one candidate site.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Factors {
    /// Equation 4.
    pub balance: f64,
    /// Equation 5: transactions to apply before this one may run there.
    pub refresh_delay: f64,
    /// Equation 6.
    pub intra: f64,
    /// Equation 7.
    pub inter: f64,
}

/// How far a distribution of writes over sites is from perfect balance; `shares` sum to 1.
#[must_use]
pub fn balance_distance(shares: &[f64]) -> f64 {
    let even = 1.0 / shares.len() as f64;
    shares.iter().map(|share| (even - share).powi(2)).sum::<f64>().sqrt()
}

/// Equation 2: how much nearer to balance it gets; distances before and after.
#[must_use]
pub fn balance_change(before: f64, after: f64) -> f64 {
    before - after
}

/// Equation 3: how much balance matters, by the worse of both distances.
#[must_use]
pub fn balance_rate(before: f64, after: f64) -> f64 {
    before.max(after)
}

/// Equation 4.
#[must_use]
pub fn balance(before: f64, after: f64) -> f64 {
    balance_change(before, after) * balance_rate(before, after).exp()
}

/// Equation 5: transactions that a site at `here` lacks of what the client has `seen` and of what
/// the sites have (`sources`) that would give partitions away.
#[must_use]
pub fn refresh_delay<'a>(
    here: &SiteVector,
    seen: &ClientVector,
    sources: impl Iterator<Item = &'a SiteVector>,
) -> f64 {
    here.missing(&needed(here.sites(), seen, sources)) as f64
}

fn needed<'a>(
    sites: usize,
    seen: &ClientVector,
    sources: impl Iterator<Item = &'a SiteVector>,
) -> SiteVector {
    let mut needed = SiteVector::zero(sites);
    needed.raise_to_client(seen);
    sources.for_each(|source| needed.raise(source));
    needed
}

/// Equation 8.
#[must_use]
pub fn benefit(weights: &Weights, factors: &Factors) -> f64 {
    weights.balance * factors.balance - weights.delay * factors.refresh_delay
        + weights.intra * factors.intra
        + weights.inter * factors.inter
}

/// What a decision is made from.
pub struct Scene<'a, M: Fn(PartitionId) -> SiteId> {
    /// The write set, sorted, without doubles.
    pub writes: &'a [PartitionId],
    /// What the client has seen.
    pub seen: &'a ClientVector,
    /// Each site's vector, as far as known.
    pub vectors: &'a [SiteVector],
    /// Counts of the past.
    pub statistics: &'a Statistics,
    /// Who masters a partition.
    pub master: M,
}

impl<M: Fn(PartitionId) -> SiteId> Scene<'_, M> {
    /// The factors of every site.
    #[must_use]
    pub fn factors(&self) -> Vec<Factors> {
        let sites = self.vectors.len();
        let mut all = vec![Factors::default(); sites];
        self.balances(&mut all);
        self.delays(&mut all);
        let intra = self.localization(|statistics, d1| statistics.intra(d1));
        let inter = self.localization(|statistics, d1| statistics.inter(d1));
        for (site, factors) in all.iter_mut().enumerate() {
            (factors.intra, factors.inter) = (intra[site], inter[site]);
        }
        all
    }

    fn balances(&self, all: &mut [Factors]) {
        let per_site = self.statistics.per_site();
        let total = per_site.iter().sum::<u64>().max(1) as f64;
        let mut shares = [0.0; SITES_MAX];
        let shares = &mut shares[..all.len()];
        for (share, accesses) in shares.iter_mut().zip(per_site) {
            *share = *accesses as f64 / total;
        }
        let before = balance_distance(shares);
        let mut moving = 0.0;
        for partition in self.writes {
            let weight = f64::from(self.statistics.accesses(*partition)) / total;
            shares[(self.master)(*partition).index()] -= weight;
            moving += weight;
        }
        for site in 0..all.len() {
            shares[site] += moving;
            all[site].balance = balance(before, balance_distance(shares));
            shares[site] -= moving;
        }
    }

    /// Equation 5 for every candidate. A candidate gives nothing away to itself, but it lacks
    /// nothing of its own vector either, so it need not be left out of the sources.
    fn delays(&self, all: &mut [Factors]) {
        let sources = self.writes.iter().map(|p| &self.vectors[(self.master)(*p).index()]);
        let needed = needed(self.vectors.len(), self.seen, sources);
        for (factors, vector) in all.iter_mut().zip(self.vectors) {
            factors.refresh_delay = vector.missing(&needed) as f64;
        }
    }

    /// Equation 6 or 7 for every candidate: the expected gain in pairs that are mastered
    /// together. A pair whose second is outside the write set gains where the second is, and is
    /// split everywhere else if it was together.
    fn localization<'s>(
        &'s self,
        partners: impl Fn(&'s Statistics, PartitionId) -> &'s [(PartitionId, u32)],
    ) -> [f64; SITES_MAX] {
        let mut gains = [0.0; SITES_MAX];
        let mut everywhere = 0.0;
        for d1 in self.writes {
            let accesses = f64::from(self.statistics.accesses(*d1).max(1));
            let home = (self.master)(*d1);
            for (d2, count) in partners(self.statistics, *d1) {
                let probability = f64::from(*count) / accesses;
                let other = (self.master)(*d2);
                if self.writes.binary_search(d2).is_ok() {
                    everywhere += if other == home { 0.0 } else { probability };
                } else if other == home {
                    everywhere -= probability;
                    gains[home.index()] += probability;
                } else {
                    gains[other.index()] += probability;
                }
            }
        }
        gains.iter_mut().for_each(|gain| *gain += everywhere);
        gains
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ClientId;
    use crate::selector::config::Sampling;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    const P: [PartitionId; 5] =
        [PartitionId(0), PartitionId(1), PartitionId(2), PartitionId(3), PartitionId(4)];

    /// p0, p1 and p2 at S1; p3 at S2; p4 at S3.
    fn master(partition: PartitionId) -> SiteId {
        SiteId([0, 0, 0, 1, 2][partition.index()])
    }

    fn statistics(transactions: &[(u64, u64, &[PartitionId])]) -> Statistics {
        let mut statistics = Statistics::new(Sampling::default(), 3, 5);
        for (client, at_ms, writes) in transactions {
            statistics.offer(ClientId(*client), writes, 0, *at_ms, master);
        }
        statistics
    }

    fn factors(statistics: &Statistics, writes: &[PartitionId]) -> Vec<Factors> {
        let vectors = vec![SiteVector::zero(3); 3];
        let seen = ClientVector::zero(3);
        Scene { writes, seen: &seen, vectors: &vectors, statistics, master }.factors()
    }

    #[test]
    fn distance_from_balance_by_hand() {
        close(balance_distance(&[0.25; 4]), 0.0);
        // sqrt((1/4 - 1)^2 + 3 (1/4)^2) = sqrt(0.75)
        close(balance_distance(&[1.0, 0.0, 0.0, 0.0]), 0.75_f64.sqrt());
        close(balance_distance(&[0.75, 0.25]), 0.125_f64.sqrt());
    }

    #[test]
    fn equations_2_to_4_by_hand() {
        close(balance_change(0.5, 0.2), 0.3);
        close(balance_change(0.2, 0.5), -0.3);
        close(balance_rate(0.5, 0.2), 0.5);
        close(balance(0.5, 0.2), 0.3 * 0.5_f64.exp());
        close(balance(0.2, 0.5), -0.3 * 0.5_f64.exp());
        close(balance(0.4, 0.4), 0.0);
    }

    #[test]
    fn the_balance_of_each_candidate_by_hand() {
        // Four accesses at S1 (p0 twice, p1, p2), two at S2 (p3), none at S3. Moving p0 and p3
        // (4 of 6) leaves S1 with 2: shares 2/6 at S1 and 4/6 where they go.
        let past: Vec<(u64, u64, &[PartitionId])> = vec![
            (1, 0, &P[0..1]),
            (2, 0, &P[0..1]),
            (3, 0, &P[1..2]),
            (4, 0, &P[2..3]),
            (5, 0, &P[3..4]),
            (6, 0, &P[3..4]),
        ];
        let found = factors(&statistics(&past), &[P[0], P[3]]);
        let before = balance_distance(&[4.0 / 6.0, 2.0 / 6.0, 0.0]);
        close(found[0].balance, balance(before, balance_distance(&[1.0, 0.0, 0.0])));
        close(found[1].balance, balance(before, balance_distance(&[2.0 / 6.0, 4.0 / 6.0, 0.0])));
        close(found[2].balance, balance(before, balance_distance(&[2.0 / 6.0, 0.0, 4.0 / 6.0])));
        close(before, ((1.0_f64 / 3.0).powi(2) * 2.0).sqrt());
    }

    #[test]
    fn equation_5_by_hand() {
        // The client needs [2, 0, 5]; sources at [3, 1, 0] and [0, 4, 4]: the maximum is
        // [3, 4, 5]. A site at [1, 9, 5] lacks 2 of S1's; its lead in S2's slot counts nothing.
        let mut seen = ClientVector::zero(3);
        seen.saw(&SiteVector::of(&[2, 0, 5]));
        let sources = [SiteVector::of(&[3, 1, 0]), SiteVector::of(&[0, 4, 4])];
        close(refresh_delay(&SiteVector::of(&[1, 9, 5]), &seen, sources.iter()), 2.0);
        close(refresh_delay(&SiteVector::of(&[3, 4, 5]), &seen, sources.iter()), 0.0);
        close(refresh_delay(&SiteVector::zero(3), &seen, sources.iter()), 12.0);
    }

    #[test]
    fn equation_6_by_hand() {
        // p0 was written three times: twice with p1 (with it at S1), once with p4 (at S3).
        let past: Vec<(u64, u64, &[PartitionId])> =
            vec![(1, 0, &[P[0], P[1]]), (2, 0, &[P[0], P[1]]), (3, 0, &[P[0], P[4]])];
        let found = factors(&statistics(&past), &P[0..1]);
        // At S1 nothing changes. At S2 p0 leaves p1. At S3 it leaves p1 and joins p4.
        close(found[0].intra, 0.0);
        close(found[1].intra, -2.0 / 3.0);
        close(found[2].intra, 1.0 / 3.0 - 2.0 / 3.0);
    }

    #[test]
    fn pairs_within_the_write_set_come_together_everywhere() {
        // p0 and p3 are apart and always written together: P(p3|p0) = P(p0|p3) = 1.
        let past: Vec<(u64, u64, &[PartitionId])> = vec![(1, 0, &[P[0], P[3]])];
        for site in factors(&statistics(&past), &[P[0], P[3]]) {
            close(site.intra, 2.0);
        }
    }

    #[test]
    fn equation_7_by_hand() {
        // The client of p0 writes p3 within 100 ms in one of two cases, and p4 too late.
        let past: Vec<(u64, u64, &[PartitionId])> =
            vec![(1, 0, &P[0..1]), (1, 90, &P[3..4]), (2, 90, &P[0..1]), (2, 300, &P[4..5])];
        let found = factors(&statistics(&past), &P[0..1]);
        close(found[0].inter, 0.0);
        close(found[1].inter, 0.5);
        close(found[2].inter, 0.0);
        close(found[1].intra, 0.0);
    }

    #[test]
    fn equation_8_by_hand_and_delay_counts_against_a_site() {
        let weights = Weights { balance: 10.0, delay: 0.5, intra: 3.0, inter: 2.0 };
        let factors = Factors { balance: 0.2, refresh_delay: 4.0, intra: 1.0, inter: -0.5 };
        close(benefit(&weights, &factors), 2.0 - 2.0 + 3.0 - 1.0);
        // As printed, equation 8 would have the site that lags more win.
        let lagging = Factors { refresh_delay: 9.0, ..factors };
        assert!(benefit(&weights, &lagging) < benefit(&weights, &factors));
    }
}
