//! Version vectors of sites, transactions and clients, one slot a site (DynaMast paper, section III-A). They
//! are three types, so that comparing the wrong two doesn't compile.
//!
//! Departures: a client's vector is raised to what its transaction saw (the begin vector, and the commit vector
//! of its own update) instead of being set to the site's vector at the end. This is enough for the freshness
//! rules, and clients wait less. Raising instead of setting keeps the guarantee when a session has several
//! transactions in flight.

use std::fmt;

use crate::ids::{SITES_MAX, SiteId};

/// One count for each site.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Counts(Vec<u64>);

impl Counts {
    fn zero(sites: usize) -> Counts {
        assert!(sites <= SITES_MAX, "a cluster has at most {SITES_MAX} sites");
        Counts(vec![0; sites])
    }

    fn covers(&self, other: &Counts) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| a >= b)
    }

    fn raise(&mut self, other: &Counts) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        write!(f, "[{}]", texts.join(", "))
    }
}

/// How many transactions of each site a site has applied (`svv`), at some moment. Also the begin
/// vector of a transaction, and the least version a transaction must see: both are, or are
/// maxima of, site vectors.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SiteVector(Counts);

impl SiteVector {
    /// Nothing applied, in a cluster of `sites` sites.
    #[must_use]
    pub fn zero(sites: usize) -> SiteVector {
        SiteVector(Counts::zero(sites))
    }

    /// Of given counts, one a site.
    #[must_use]
    pub fn of(counts: &[u64]) -> SiteVector {
        SiteVector(Counts(counts.to_vec()))
    }

    /// How many sites it speaks of.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.0.0.len()
    }

    /// The count of one site's transactions; 0 for a site that it does not know.
    #[must_use]
    pub fn get(&self, site: SiteId) -> u64 {
        self.0.0.get(site.index()).copied().unwrap_or(0)
    }

    /// One more transaction of `origin` is applied.
    pub(crate) fn advance(&mut self, origin: SiteId) {
        self.0.0[origin.index()] += 1;
    }

    /// At least as far as `other` in every slot.
    #[must_use]
    pub fn covers(&self, other: &SiteVector) -> bool {
        self.0.covers(&other.0)
    }

    /// Shows the transaction's updates.
    #[must_use]
    pub fn shows(&self, commit: &TransactionVector) -> bool {
        self.get(commit.origin) >= commit.number()
    }

    /// The freshness rule: a client that has seen `seen` may run here.
    #[must_use]
    pub fn is_fresh_for(&self, seen: &ClientVector) -> bool {
        self.0.covers(&seen.0)
    }

    /// The maximum of both, slot by slot.
    pub fn raise(&mut self, other: &SiteVector) {
        self.0.raise(&other.0);
    }

    /// The maximum with what a client has seen, slot by slot.
    pub fn raise_to_client(&mut self, seen: &ClientVector) {
        self.0.raise(&seen.0);
    }

    /// The maximum with a commit vector: the least version that shows this commit and all that
    /// it depends on.
    pub fn raise_to_commit(&mut self, commit: &TransactionVector) {
        self.0.raise(&commit.counts);
    }

    /// How many transactions are missing here that `target` has (the sum over slots; what this
    /// vector has beyond `target` counts nothing).
    #[must_use]
    pub fn missing(&self, target: &SiteVector) -> u64 {
        self.0.0.iter().zip(&target.0.0).map(|(have, want)| want.saturating_sub(*have)).sum()
    }
}

impl fmt::Display for SiteVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The commit timestamp of an update transaction (`tvv`): its begin vector, with the slot of the
/// site where it ran replaced by its number among that site's commits, from 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TransactionVector {
    origin: SiteId,
    counts: Counts,
}

impl TransactionVector {
    /// Of the transaction that began at `begin` and is the `number`-th commit of `origin`.
    ///
    /// # Panics
    /// When `origin` is no site that `begin` speaks of.
    #[must_use]
    pub fn commit(begin: &SiteVector, origin: SiteId, number: u64) -> TransactionVector {
        let mut counts = begin.0.clone();
        counts.0[origin.index()] = number;
        TransactionVector { origin, counts }
    }

    /// Where it ran.
    #[must_use]
    pub fn origin(&self) -> SiteId {
        self.origin
    }

    /// Its number among its site's commits, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.counts.0[self.origin.index()]
    }

    /// How many commits of `site` it depends on; for its own site, its own number.
    #[must_use]
    pub fn get(&self, site: SiteId) -> u64 {
        self.counts.0.get(site.index()).copied().unwrap_or(0)
    }

    /// How many sites it speaks of.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.counts.0.len()
    }
}

impl fmt::Display for TransactionVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.fmt(f)
    }
}

/// What a client session has seen (`cvv`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientVector(Counts);

impl ClientVector {
    /// Of a new session, in a cluster of `sites` sites.
    #[must_use]
    pub fn zero(sites: usize) -> ClientVector {
        ClientVector(Counts::zero(sites))
    }

    /// The session ran a transaction on this snapshot.
    pub fn saw(&mut self, snapshot: &SiteVector) {
        self.0.raise(&snapshot.0);
    }

    /// The session's update committed.
    pub fn committed(&mut self, commit: &TransactionVector) {
        self.0.raise(&commit.counts);
    }
}

impl fmt::Display for ClientVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_takes_its_begin_vector_and_its_own_number() {
        // DynaMast III-A: tvv is the begin vector with the own slot incremented.
        let begin = SiteVector::of(&[3, 7, 2]);
        let commit = TransactionVector::commit(&begin, SiteId(1), 8);
        assert_eq!(commit.to_string(), "[3, 8, 2]");
        assert_eq!((commit.origin(), commit.number()), (SiteId(1), 8));
        assert!(!begin.shows(&commit));
        assert!(SiteVector::of(&[0, 8, 0]).shows(&commit));
    }

    #[test]
    fn a_session_needs_all_slots_of_what_it_saw() {
        // DynaMast III-A, freshness rules: svv[k] >= cvv[k] for all k.
        let mut client = ClientVector::zero(2);
        client.saw(&SiteVector::of(&[1, 4]));
        assert!(SiteVector::of(&[1, 4]).is_fresh_for(&client));
        assert!(!SiteVector::of(&[9, 3]).is_fresh_for(&client));
        client.saw(&SiteVector::of(&[2, 1]));
        assert_eq!(client.to_string(), "[2, 4]", "an older snapshot lowers nothing");
    }

    #[test]
    fn being_ahead_elsewhere_makes_up_for_nothing() {
        let here = SiteVector::of(&[10, 0]);
        assert_eq!(here.missing(&SiteVector::of(&[4, 3])), 3);
    }

    #[test]
    fn vectors_of_other_clusters_are_never_covered() {
        assert!(!SiteVector::of(&[5]).covers(&SiteVector::of(&[1, 1])));
        assert_eq!(SiteVector::of(&[5]).get(SiteId(3)), 0);
    }
}
