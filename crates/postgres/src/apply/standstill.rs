//! Finds out why a replica's applied position does not advance, to tell the operator. (A large transaction is no standstill
//! while its changes are being made.)

use std::time::Duration;

use hihooi_replication::ids::Tsid;
use tokio::time::Instant;

use crate::connection::{Connection, Result};

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

/// What a server process does or waits for, in a few words.
pub(super) async fn activity(control: &mut Connection, process: i32) -> Result<String> {
    let query = "select pg_catalog.concat_ws(', ', 'process ' || pid || ' is ' || state,
            'waits for ' || wait_event_type || ' ' || wait_event,
            'behind process ' || nullif(pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(pid), ', '), ''),
            'with ' || pg_catalog.left(query, 100))
        from pg_catalog.pg_stat_activity where pid = $1::int";
    let answer = control.query_with(query, &[Some(&process.to_string())]).await?;
    let found = answer.rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
    Ok(found.unwrap_or_else(|| format!("process {process} is gone")))
}
