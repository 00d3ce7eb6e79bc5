//! Trims the log: removes what no replica needs any more (I5, I8).

use std::sync::Arc;
use std::time::Duration;

use hihooi_log::Log;
use hihooi_postgres::site::{Replica, State};
use hihooi_replication::ids::Tsid;
use hihooi_replication::retention::{self, Decision, Follower, Position};
use tokio::time::{Instant, sleep};

use crate::replication::Appliers;

/// How often the log is trimmed.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Forgets what nobody needs any more (I5, I8).
pub async fn keep_trimming(log: Log, appliers: Appliers, replicas: Vec<Arc<Replica>>) {
    let mut stopped = vec![None; replicas.len()];
    let mut told = Vec::new();
    loop {
        sleep(TRIM_EVERY).await;
        let each = replicas.iter().zip(&mut stopped);
        let positions: Vec<Position> =
            each.map(|(replica, since)| position(replica, &appliers, since)).collect();
        let durable = *log.durable().borrow();
        let Decision { below, abandoned } = retention::decide(durable, &positions, None);
        if abandoned != told {
            for &place in &abandoned {
                let site = &replicas[place].site.name;
                tracing::error!(site, "stopped for too long: the log no longer waits for it");
            }
            told = abandoned;
        }
        if let Err(error) = log.trim(below).await {
            tracing::warn!(%error, "cannot trim the log");
        }
    }
}

/// What a replica is to the log; `since` keeps when it stopped applying.
fn position(replica: &Replica, appliers: &Appliers, since: &mut Option<Instant>) -> Position {
    let applies = matches!(replica.apply_state(), State::CatchingUp | State::Serving);
    // A replica that was never reached may need everything.
    let flushed = appliers.get(&replica.site.name).map_or(Tsid::ZERO, |a| a.flushed());
    // What is copied from the primary starts behind this, whatever was there before.
    let is_copied = replica.copied_from() > flushed;
    let flushed = flushed.max(replica.copied_from());
    let follower = if applies || is_copied {
        *since = None;
        Follower::Applying
    } else {
        let for_ms = since.get_or_insert_with(Instant::now).elapsed().as_millis();
        Follower::Stopped { for_ms: u64::try_from(for_ms).unwrap_or(u64::MAX) }
    };
    Position { flushed, follower }
}
