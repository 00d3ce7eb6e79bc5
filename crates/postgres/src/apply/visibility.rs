//! Whether a transaction is visible at the primary yet (I3, rule (2): an entry becomes visible at replicas only
//! after it is visible at the primary; otherwise two readers could see two transactions in different orders).
//!
//! A commit's acknowledgement proves it. Otherwise a snapshot taken on the primary does; at most one per
//! millisecond is taken for all entries that wait. While the primary is down, entries wait unless they were
//! acknowledged. After its restart, everything that was committed before is visible at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::connection::{Connection, Error, Login, Result};

/// Acknowledged transactions that no snapshot has covered yet; further ones wait for a snapshot.
const ACKNOWLEDGED_MAX: usize = 65_536;
/// Acknowledgements on their way from the relay; when full they may be dropped.
const CHANNEL_LEN: usize = 8_192;
/// At most one snapshot in this time.
const SNAPSHOT_MS_MIN: u64 = 1;
/// Pause before the primary is asked again after it could not answer.
const RETRY_MS: u64 = 200;

/// `pg_current_snapshot()`: everything below `xmax` that isn't in progress is visible.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Everything below is over.
    pub xmin: u64,
    /// Everything from here on is in progress or has not begun.
    pub xmax: u64,
    /// In progress between the two, sorted.
    pub in_progress: Vec<u64>,
}

impl Snapshot {
    /// Reads the text form `xmin:xmax:xid,xid`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Snapshot> {
        let mut parts = text.trim().splitn(3, ':');
        let xmin = parts.next()?.parse().ok()?;
        let xmax = parts.next()?.parse().ok()?;
        let listed = parts.next()?;
        let listed = listed.split(',').filter(|xid| !xid.is_empty());
        let mut in_progress = listed.map(|xid| xid.parse().ok()).collect::<Option<Vec<u64>>>()?;
        in_progress.sort_unstable();
        Some(Snapshot { xmin, xmax, in_progress })
    }

    /// Whether a transaction that has ended is seen.
    #[must_use]
    pub fn sees(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && self.in_progress.binary_search(&xid).is_err())
    }

    /// The full id of a transaction that is known by its low 32 bits: the one closest to `xmax`.
    #[must_use]
    pub fn widen(&self, xid: u32) -> u64 {
        widen(xid, self.xmax)
    }
}

fn widen(xid: u32, near: u64) -> u64 {
    let epoch = near & !0xFFFF_FFFF;
    let same = epoch | u64::from(xid);
    let half = 1 << 31;
    if same > near.saturating_add(half) {
        same.saturating_sub(1 << 32)
    } else if near > same.saturating_add(half) {
        same + (1 << 32)
    } else {
        same
    }
}

#[derive(Default)]
struct Known {
    snapshot: Snapshot,
    /// Acknowledged, and not seen by `snapshot`.
    acknowledged: BTreeSet<u64>,
}

impl Known {
    fn shows(&self, xid: u32) -> bool {
        // Before the first snapshot what was acknowledged tells the epoch.
        let newest = self.acknowledged.last().copied().unwrap_or_default();
        let full = widen(xid, newest.max(self.snapshot.xmax));
        self.snapshot.sees(full) || self.acknowledged.contains(&full)
    }

    fn acknowledge(&mut self, xid: u64) {
        if !self.snapshot.sees(xid) && self.acknowledged.len() < ACKNOWLEDGED_MAX {
            self.acknowledged.insert(xid);
        }
    }

    fn learn(&mut self, snapshot: Snapshot) {
        self.acknowledged.retain(|&xid| !snapshot.sees(xid));
        self.snapshot = snapshot;
    }
}

/// What is known of the primary's visibility, shared by the appliers of all replicas.
pub struct Visibility {
    known: Mutex<Known>,
    changed: watch::Sender<()>,
    wanted: Notify,
    acknowledgements: mpsc::Sender<u64>,
}

impl Visibility {
    /// Starts to follow a primary on the current runtime, until `Visibility` is dropped.
    /// `login` opens the connection that takes the snapshots.
    #[must_use]
    pub fn start(login: Login) -> Arc<Visibility> {
        let (acknowledgements, received) = mpsc::channel(CHANNEL_LEN);
        let visibility = Arc::new(Visibility {
            known: Mutex::default(),
            changed: watch::Sender::new(()),
            wanted: Notify::new(),
            acknowledgements,
        });
        tokio::spawn(take_acknowledgements(Arc::downgrade(&visibility), received));
        tokio::spawn(take_snapshots(Arc::downgrade(&visibility), login));
        visibility
    }

    /// Where the relay reports full transaction ids whose acknowledgement arrived. It may drop
    /// some when the channel is full.
    #[must_use]
    pub fn acknowledgements(&self) -> mpsc::Sender<u64> {
        self.acknowledgements.clone()
    }

    /// Whether the primary is known to show a committed transaction, given the low 32 bits of its
    /// id.
    #[must_use]
    pub fn shows(&self, xid: u32) -> bool {
        self.lock().shows(xid)
    }

    /// Asks for a snapshot soon.
    pub fn want(&self) {
        self.wanted.notify_one();
    }

    /// Wakes when something more may have become visible.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn take_acknowledgements(
    visibility: std::sync::Weak<Visibility>,
    mut received: mpsc::Receiver<u64>,
) {
    let mut batch = Vec::with_capacity(256);
    while received.recv_many(&mut batch, 256).await > 0 {
        let Some(visibility) = visibility.upgrade() else { return };
        {
            let mut known = visibility.lock();
            batch.drain(..).for_each(|xid| known.acknowledge(xid));
        }
        visibility.changed.send_replace(());
    }
}

async fn take_snapshots(visibility: std::sync::Weak<Visibility>, login: Login) {
    let mut connection = None;
    loop {
        if !wait_until_wanted(&visibility).await {
            return;
        }
        let taken = take_one(&mut connection, &login).await;
        let Some(visibility) = visibility.upgrade() else { return };
        let pause_ms = match taken {
            Ok(snapshot) => {
                visibility.lock().learn(snapshot);
                visibility.changed.send_replace(());
                SNAPSHOT_MS_MIN
            }
            Err(error) => {
                tracing::debug!(%error, "can't take a snapshot at the primary");
                connection = None;
                visibility.want();
                RETRY_MS
            }
        };
        drop(visibility);
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(pause_ms)).await;
    }
}

/// Looks now and then whether anybody still holds the visibility; false when nobody does.
async fn wait_until_wanted(visibility: &std::sync::Weak<Visibility>) -> bool {
    loop {
        let Some(held) = visibility.upgrade() else { return false };
        let wanted = held.wanted.notified();
        if tokio::time::timeout(Duration::from_secs(1), wanted).await.is_ok() {
            return true;
        }
    }
}

async fn take_one(connection: &mut Option<Connection>, login: &Login) -> Result<Snapshot> {
    let open = match connection {
        Some(open) => open,
        None => connection.insert(Connection::open(login).await?),
    };
    snapshot(open).await
}

/// What the server shows now.
///
/// # Errors
/// Those of the connection.
pub async fn snapshot(connection: &mut Connection) -> Result<Snapshot> {
    let answer = connection.query("select pg_catalog.pg_current_snapshot()").await?;
    let text = answer.value().unwrap_or_default();
    Snapshot::parse(text).ok_or_else(|| Error::Protocol(format!("not a snapshot: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_is_over() {
        let snapshot = Snapshot::parse("10:20:12,15").expect("PostgreSQL's own form");
        let seen: Vec<u64> = (9..=20).filter(|&xid| snapshot.sees(xid)).collect();
        assert_eq!(seen, [9, 10, 11, 13, 14, 16, 17, 18, 19]);
        assert!(Snapshot::parse("5:5:").is_some_and(|snapshot| snapshot.in_progress.is_empty()));
        assert_eq!(Snapshot::parse("5:"), None);
    }

    #[test]
    fn short_ids_are_widened_next_to_the_snapshot() {
        assert_eq!(widen(7, 9), 7);
        assert_eq!(widen(7, (3 << 32) | 9), (3 << 32) | 7);
        assert_eq!(widen(u32::MAX, (3 << 32) | 9), (2 << 32) | u64::from(u32::MAX));
        assert_eq!(widen(3, (2 << 32) | u64::from(u32::MAX)), (3 << 32) | 3);
    }

    #[test]
    fn an_acknowledgement_counts_until_a_snapshot_covers_it() {
        let mut known = Known::default();
        known.learn(Snapshot { xmin: 10, xmax: 12, in_progress: vec![10] });
        assert!(!known.shows(10), "in progress: the long fork's first transaction");
        known.acknowledge(10);
        assert!(known.shows(10) && known.shows(11) && !known.shows(12));
        known.learn(Snapshot { xmin: 12, xmax: 12, in_progress: vec![] });
        assert!(known.acknowledged.is_empty() && known.shows(10));
        // Without a snapshot the epoch is that of what was acknowledged.
        let (mut known, epoch) = (Known::default(), 3 << 32);
        assert!(!known.shows(5));
        known.acknowledge(epoch + 5);
        known.acknowledge(epoch - 1);
        assert!(known.shows(5) && known.shows(u32::MAX) && !known.shows(4));
    }
}
