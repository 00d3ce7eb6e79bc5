//! Finds out why a replica's applied position does not advance, to tell the operator.

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
    is_told: bool,
}

impl Standstill {
    pub(super) fn new() -> Standstill {
        Standstill { next: None, since: Instant::now(), is_told: false }
    }

    /// Takes note of the next entry, if one waits; how long it has been the next, if that is too long.
    pub(super) fn look(&mut self, next: Option<Tsid>) -> Option<Duration> {
        if next != self.next {
            *self = Standstill { next, since: Instant::now(), is_told: self.is_told };
        }
        let elapsed = self.since.elapsed();
        (next.is_some() && elapsed >= LONG).then_some(elapsed)
    }

    /// It is told of, or over. Whether that is new.
    pub(super) fn tell(&mut self, is_told: bool) -> bool {
        std::mem::replace(&mut self.is_told, is_told) != is_told
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
