//! How far back the log is kept: to the oldest entry that some replica still needs, within a bound (I8). In the
//! Hihooi paper (section 6.1) the Archiver decides this, without a bound. Pure.

use crate::ids::Tsid;

/// A replica that does not apply holds the log back by at most this many entries; beyond, it
/// must be cloned anew.
pub const HELD_ENTRIES_MAX: u64 = 10_000_000;
/// A replica that does not apply holds the log back for at most this long.
pub const HELD_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// The log keeps this many entries behind everybody, for readers that look back a little.
pub const SLACK_ENTRIES: u64 = 1_000;

/// What a replica is to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follower {
    /// It applies, however slowly: the log waits for it without limit.
    Applying,
    /// It is paused, failed or being cloned since so many milliseconds: the log waits for it
    /// within the limits.
    Stopped {
        /// Milliseconds since it stopped.
        for_ms: u64,
    },
}

/// A replica as far as retention is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The last entry that would survive a crash of the replica.
    pub flushed: Tsid,
    /// Whether it moves.
    pub follower: Follower,
}

/// What retention decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Entries below this one may go.
    pub below: Tsid,
    /// Replicas, by their place in the input, that will find their next entry gone.
    pub abandoned: Vec<usize>,
}

/// Where the log may be cut, given its last durable entry, all replicas and the position of the
/// newest seed. Without replica and seed the whole log stays: the first replica needs it.
#[must_use]
pub fn decide(durable: Tsid, replicas: &[Position], seed: Option<Tsid>) -> Decision {
    let mut oldest = seed;
    let mut abandoned = Vec::new();
    for (place, replica) in replicas.iter().enumerate() {
        if is_abandoned(durable, replica) {
            abandoned.push(place);
        } else {
            oldest = Some(oldest.map_or(replica.flushed, |oldest| oldest.min(replica.flushed)));
        }
    }
    if replicas.is_empty() && seed.is_none() {
        return Decision { below: Tsid::ZERO, abandoned };
    }
    let needed = oldest.unwrap_or(durable).min(durable);
    Decision { below: Tsid(needed.0.saturating_sub(SLACK_ENTRIES)), abandoned }
}

fn is_abandoned(durable: Tsid, replica: &Position) -> bool {
    match replica.follower {
        Follower::Applying => false,
        Follower::Stopped { for_ms } => {
            let held = durable.0.saturating_sub(replica.flushed.0);
            for_ms > HELD_MS_MAX || held > HELD_ENTRIES_MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(flushed: u64, follower: Follower) -> Position {
        Position { flushed: Tsid(flushed), follower }
    }

    const APPLYING: Follower = Follower::Applying;
    const PAUSED: Follower = Follower::Stopped { for_ms: 5 };
    const LONG_PAUSED: Follower = Follower::Stopped { for_ms: HELD_MS_MAX + 1 };
    const DURABLE: Tsid = Tsid(20_000_000);

    fn below(replicas: &[Position], seed: Option<u64>) -> (u64, Vec<usize>) {
        let decision = decide(DURABLE, replicas, seed.map(Tsid));
        (decision.below.0, decision.abandoned)
    }

    /// I5: nothing is cut that a replica within its limits still needs.
    #[test]
    fn the_slowest_follower_and_the_seed_decide() {
        let fast = at(19_999_000, APPLYING);
        assert_eq!(below(&[fast, at(5000, APPLYING)], None), (4000, vec![]));
        assert_eq!(below(&[fast, at(15_000_000, PAUSED)], None), (14_999_000, vec![]));
        assert_eq!(below(&[fast], Some(7000)), (6000, vec![]));
        assert_eq!(below(&[], Some(7000)), (6000, vec![]));
        assert_eq!(below(&[at(20_000_009, APPLYING)], None), (DURABLE.0 - SLACK_ENTRIES, vec![]));
    }

    /// I8: a replica that stopped can't hold the log for ever.
    #[test]
    fn stopped_replicas_are_given_up_at_the_limits() {
        let fast = at(19_999_000, APPLYING);
        assert_eq!(below(&[fast, at(5000, PAUSED)], None), (19_998_000, vec![1]));
        assert_eq!(below(&[at(19_000_000, LONG_PAUSED), fast], None), (19_998_000, vec![0]));
        assert_eq!(below(&[at(1, LONG_PAUSED)], None), (DURABLE.0 - SLACK_ENTRIES, vec![0]));
    }

    #[test]
    fn nothing_goes_while_nobody_follows() {
        assert_eq!(below(&[], None), (0, vec![]));
    }
}
