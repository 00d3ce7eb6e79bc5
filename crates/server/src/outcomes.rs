//! What became of writes. Entries and positions of the stream are reported to the freshness index. A write that
//! never appears in the stream is resolved by an LSN taken after its acknowledgement. Writes in doubt are
//! resolved by querying the primary.

use std::rc::Rc;
use std::time::Duration;

use hihooi_log::BackendRecord;
use hihooi_postgres::collector::StreamEvent;
use hihooi_postgres::connection::{Connection, Result};
use hihooi_postgres::wal_positions::WalPositions;
use hihooi_replication::items::Items;
use tokio::sync::{Notify, mpsc};
use tracing::debug;

use hihooi_session::events::Outcome;
use hihooi_session::sites::SiteId;

use crate::relay::{InDoubt, Relay};

/// A pending write gets so long to be resolved by its entry before the primary is asked.
const PATIENCE_MS: u64 = 5;
/// After a failure at the primary.
const RETRY: Duration = Duration::from_millis(200);
/// How often the usual lag is looked at.
const LAG_EVERY: Duration = Duration::from_secs(1);
/// Events taken from the stream at once.
const BATCH: usize = 256;

/// Feeds the stream's events to the index until the collector ends.
pub async fn follow(relay: Rc<Relay>, mut events: mpsc::Receiver<StreamEvent>, reload: Rc<Notify>) {
    let mut batch = Vec::with_capacity(BATCH);
    while events.recv_many(&mut batch, BATCH).await > 0 {
        let mut has_ddl = false;
        for event in batch.drain(..) {
            match event {
                StreamEvent::Entry(entry) => {
                    relay.entry_came(entry.tsid, entry.xid, &entry.written);
                    if entry.has_ddl {
                        has_ddl = true;
                        relay.catalog_changed(entry.tsid, entry.xid);
                    }
                }
                StreamEvent::Passed(lsn) => relay.freshness.borrow_mut().passed(lsn),
            }
        }
        relay.raise_floor();
        if has_ddl {
            reload.notify_one();
        }
        relay.changed.notify_waiters();
    }
}

/// Resolves pending writes, for ever. The first is what happened before this manager: until
/// the stream has passed the primary's position at the start, every read is the primary's.
pub async fn resolve(relay: Rc<Relay>) {
    let before_us = relay.begin_write(Items::Everything);
    relay.end_write(before_us, Outcome::Unidentified);
    loop {
        match resolve_while_connected(&relay).await {
            Ok(never) => match never {},
            Err(error) => {
                debug!(%error, "can't resolve writes while the primary is away");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn resolve_while_connected(relay: &Rc<Relay>) -> Result<std::convert::Infallible> {
    let connection = Connection::open(&relay.login(SiteId::Primary, "hihooi outcomes")).await?;
    let mut positions = WalPositions::new(connection).await?;
    let mut looks = Connection::open(&relay.login(SiteId::Primary, "hihooi doubts")).await?;
    loop {
        if relay.freshness.borrow().unresolved() == 0 {
            relay.unresolved.notified().await;
        }
        settle_doubts(relay, &mut looks).await?;
        let until = relay.now_ms().saturating_sub(PATIENCE_MS);
        let pending = relay.freshness.borrow().want_lsn(until);
        if !pending.is_empty() {
            let lsn = positions.lsn_after().await?;
            if relay.collector.received() < lsn {
                positions.ensure_flushed(lsn).await?;
            }
            relay.freshness.borrow_mut().nothing_after(&pending, lsn);
            relay.poke.notify_one();
            relay.changed.notify_waiters();
        }
        tokio::time::sleep(Duration::from_millis(PATIENCE_MS)).await;
    }
}

/// Writes whose backend is gone from the primary have ended, one way or the other.
async fn settle_doubts(relay: &Rc<Relay>, looks: &mut Connection) -> Result<()> {
    let doubts = std::mem::take(&mut *relay.in_doubt.borrow_mut());
    let mut open = Vec::new();
    let outcome = settle_each(relay, looks, doubts, &mut open).await;
    relay.in_doubt.borrow_mut().append(&mut open);
    outcome
}

async fn settle_each(
    relay: &Rc<Relay>,
    looks: &mut Connection,
    doubts: Vec<InDoubt>,
    open: &mut Vec<InDoubt>,
) -> Result<()> {
    let mut failure = Ok(());
    for doubt in doubts {
        if failure.is_err() {
            open.push(doubt);
            continue;
        }
        match is_there(looks, &doubt.identity.record).await {
            Ok(false) => relay.end_write(doubt.write, Outcome::Unidentified),
            Ok(true) => open.push(doubt),
            Err(error) => {
                open.push(doubt);
                failure = Err(error);
            }
        }
    }
    failure
}

/// Whether a backend still lives.
async fn is_there(looks: &mut Connection, record: &BackendRecord) -> Result<bool> {
    let (pid, start) = (record.pid.to_string(), record.backend_start.as_str());
    let answer = looks
        .query_with(
            "SELECT 1 FROM pg_catalog.pg_stat_activity WHERE pid = $1::int \
             AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2::bigint",
            &[Some(pid.as_str()), Some(start)],
        )
        .await?;
    Ok(!answer.rows.is_empty())
}

/// Keeps the usual lag of the quickest replica, by which reads decide whether to wait.
pub async fn keep_lag(relay: Rc<Relay>) {
    loop {
        tokio::time::sleep(LAG_EVERY).await;
        let medians = relay
            .replicas
            .iter()
            .filter_map(|replica| (relay.apply_stats)(&replica.site.name)?.percentile_us(50));
        if let Some(us) = medians.min() {
            relay.set_lag_us(u32::try_from(us).unwrap_or(u32::MAX));
        }
    }
}
