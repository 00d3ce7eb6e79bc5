//! The configuration of the site selector: weights, sampling, times.

use crate::mastership::Homes;

/// The weights of equation 8 (DynaMast paper, section IV-A4).
///
/// The paper gives its defaults only as "1" of a normalised scale. These were found by the
/// experiments in `tests/all/learning.rs`, on the factors as [`crate::selector::score`] computes
/// them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Weights {
    /// Of the balance factor (equation 4).
    pub balance: f64,
    /// Of the refresh delay (equation 5), which counts against a site.
    pub delay: f64,
    /// Of correlations within transactions (equation 6).
    pub intra: f64,
    /// Of correlations between transactions of a client (equation 7).
    pub inter: f64,
}

impl Weights {
    /// For short transactions on a few neighbouring partitions, with skew. Those of a client are
    /// independent of each other: equation 7 counts for nothing.
    #[must_use]
    pub fn ycsb() -> Weights {
        Weights { balance: 3000.0, delay: 0.01, intra: 1.0, inter: 0.0 }
    }

    /// For few, large, strongly correlated partitions, whose transactions often follow each
    /// other.
    #[must_use]
    pub fn tpcc() -> Weights {
        Weights { balance: 1000.0, delay: 0.01, intra: 1.0, inter: 1.0 }
    }
}

/// What the selector remembers of past transactions (DynaMast paper, section V-B).
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Most sampled transactions in the history; the oldest makes room. At some 200 bytes each.
    /// It bounds how well loads can be told apart: n samples know a site's share of 1/4 to about
    /// 43 / sqrt(n) percentage points.
    pub history_max: usize,
    /// How long a sample stays, in milliseconds.
    pub history_ms: u64,
    /// The interval of equation 7: how long after a sampled transaction its client's next ones
    /// count as following it, in milliseconds.
    pub follow_ms: u64,
    /// Most partners remembered for a partition and kind of correlation. Pairs beyond it are
    /// not counted. It bounds the time of a decision.
    pub partners_max: usize,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { history_max: 200_000, history_ms: 60_000, follow_ms: 100, partners_max: 64 }
    }
}

/// What a site selector must know to start.
#[derive(Clone, Debug)]
pub struct SelectorConfig {
    /// How many sites there are.
    pub sites: usize,
    /// How many partitions there are.
    pub partitions: u32,
    /// Where they are mastered at first, as the sites have it.
    pub homes: Homes,
    /// Equation 8.
    pub weights: Weights,
    /// Statistics.
    pub sampling: Sampling,
    /// How long a request waits for mastership, in milliseconds.
    pub wait_ms_max: u64,
    /// After how long a release or grant without an answer is sent again, in milliseconds.
    pub retry_ms: u64,
    /// How long the partitions of a routed transaction stay where they are unless the client
    /// says earlier that it began, in milliseconds.
    pub pin_ms: u64,
}

impl SelectorConfig {
    /// With the usual times (1 s, 50 ms, 20 ms) and the weights for YCSB, so without equation 7.
    #[must_use]
    pub fn new(sites: usize, partitions: u32, homes: Homes) -> SelectorConfig {
        SelectorConfig {
            sites,
            partitions,
            homes,
            weights: Weights::ycsb(),
            sampling: Sampling::default(),
            wait_ms_max: 1_000,
            retry_ms: 50,
            pin_ms: 20,
        }
    }
}
