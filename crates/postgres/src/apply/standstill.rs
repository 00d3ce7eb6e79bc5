//! Finds out why a replica's applied position does not advance, to tell the operator. (A large transaction is no standstill
//! while its changes are being made.)

use std::time::Duration;

use hihooi_replication::ids::Tsid;
use tokio::time::Instant;

/// When the next transaction has been the next for so long, the operator is told why.
const LONG: Duration = Duration::from_secs(5);

/// Since when the next entry is the next.
#[derive(Debug)]
pub(super) struct Standstill {
    next: Option<Tsid>,
    since: Instant,
    /// How many of its changes were made, and when there were fewer.
    made: u64,
    moved: Instant,
    told: Told,
}

/// What the operator was told of last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// A transaction that takes long.
    Progress,
    Standstill,
}

impl Standstill {
    pub(super) fn new() -> Standstill {
        let now = Instant::now();
        Standstill { next: None, since: now, made: 0, moved: now, told: Told::Nothing }
    }

    /// Takes note of the next entry, if one waits; how long it has been the next, if that is too long.
    pub(super) fn look(&mut self, next: Option<Tsid>) -> Option<Duration> {
        if next != self.next {
            *self = Standstill { next, told: self.told, ..Standstill::new() };
        }
        let elapsed = self.since.elapsed();
        (next.is_some() && elapsed >= LONG).then_some(elapsed)
    }

    /// Takes note of how many of its changes were made; whether that was another number a short time ago.
    pub(super) fn moves(&mut self, made: u64) -> bool {
        if made != self.made {
            (self.made, self.moved) = (made, Instant::now());
        }
        self.made > 0 && self.moved.elapsed() < LONG
    }

    /// What the operator is told of now; whether that is new.
    pub(super) fn tell(&mut self, told: Told) -> bool {
        std::mem::replace(&mut self.told, told) != told
    }
}
