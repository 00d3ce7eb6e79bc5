//! The verification's interface to the log.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use hihooi_log::Log;
use hihooi_postgres::apply::visibility;
use hihooi_postgres::collector::CollectorStatus;
use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::verify::LogView;
use hihooi_postgres::wal_positions::WalPositions;
use hihooi_replication::entry::Header;
use hihooi_replication::ids::{Lsn, Tsid};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Failure;

/// How long the collector may make no progress while it catches up with the primary.
const CAUGHT_UP_LIMIT: Duration = Duration::from_secs(60);
/// How long its stream may be interrupted; it is tried again sooner.
const FOLLOWING_LIMIT: Duration = Duration::from_secs(15);
/// Between two looks at how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Entries that are read at once for their headers.
const ENTRIES_AT_ONCE: usize = 1_000;
/// Bytes of them.
const BYTES_AT_ONCE: usize = 8 << 20;

/// The log, and what it takes to know that it is complete.
#[derive(Clone)]
pub struct View {
    /// The log.
    pub log: Log,
    /// To the replicated database of the primary.
    pub primary: Login,
    /// What the collector tells.
    pub collector: Arc<CollectorStatus>,
    /// Makes the primary tell its position at once.
    pub poke: Arc<Notify>,
}

impl LogView for View {
    fn last(&self) -> Tsid {
        self.log.last().map_or(Tsid::ZERO, |header| header.tsid)
    }

    fn headers_after(&self, after: Tsid) -> Result<Vec<Header>, String> {
        let mut headers = Vec::new();
        let mut next = after.next();
        loop {
            let entries = block_on(self.log.read(next, ENTRIES_AT_ONCE, BYTES_AT_ONCE))
                .map_err(|error| error.to_string())?;
            let Some(last) = entries.last() else { return Ok(headers) };
            next = last.header.tsid.next();
            headers.extend(entries.iter().map(|entry| entry.header.clone()));
        }
    }

    fn caught_up(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(self.wait_until_caught_up())
    }
}

impl View {
    /// The last entry that was committed before a position of the primary's WAL that has been reached. When this
    /// returns, that entry is on the log's disk, and the primary shows it and all before, of which it is known that it
    /// shows those up to `shown`.
    ///
    /// # Errors
    /// A sentence for the operator: the collector doesn't get there, or the log or the primary can't be read.
    pub async fn entry_before(&self, lsn: Lsn, shown: Tsid) -> Result<Tsid, String> {
        self.wait_until_received(lsn).await?;
        let before = last_before(&self.log, lsn).await?;
        let durable = self.log.durable().wait_for(|durable| *durable >= before).await.is_ok();
        if !durable {
            return Err("the log is closed".to_owned());
        }
        self.wait_until_shown(shown, before).await.map_err(|error| error.to_string())?;
        Ok(before)
    }

    /// A commit that waits for a standby is in the WAL, but the primary doesn't show it yet (I3).
    async fn wait_until_shown(&self, shown: Tsid, last: Tsid) -> Result<(), Failure> {
        let mut primary = Connection::open(&self.primary).await.map_err(Failure::new)?;
        let mut next = shown.next().max(self.log.first());
        while next <= last {
            let entries = self.log.read(next, ENTRIES_AT_ONCE, BYTES_AT_ONCE).await?;
            let snapshot = visibility::snapshot(&mut primary).await.map_err(Failure::new)?;
            let before = next;
            for Header { tsid, xid, .. } in entries.iter().map(|entry| &entry.header) {
                if !snapshot.sees(snapshot.widen(*xid)) {
                    break;
                }
                next = tsid.next();
            }
            if next == before {
                sleep(LOOK_EVERY).await;
            }
        }
        primary.close().await;
        Ok(())
    }

    /// Waits until the log has all that was committed on the primary before the call, and will have what comes.
    ///
    /// # Errors
    /// A sentence for the operator: the collector doesn't get there, or the primary can't be asked.
    pub async fn wait_until_following(&self) -> Result<(), String> {
        self.wait_until_caught_up().await?;
        let connected = async {
            while !self.collector.connected.load(Ordering::Acquire) {
                sleep(LOOK_EVERY).await;
            }
        };
        let why =
            || format!("the collector does not follow the primary: {}", self.collector.error());
        timeout(FOLLOWING_LIMIT, connected).await.map_err(|_| why())
    }

    async fn wait_until_caught_up(&self) -> Result<(), String> {
        let asked = async {
            let mut positions = WalPositions::new(Connection::open(&self.primary).await?).await?;
            let lsn = positions.lsn_after().await?;
            positions.ensure_flushed(lsn).await?;
            Ok(lsn)
        };
        let lsn = asked.await.map_err(|error: hihooi_postgres::connection::Error| {
            format!("the primary's position can't be read: {error}")
        })?;
        self.wait_until_received(lsn).await
    }

    async fn wait_until_received(&self, lsn: Lsn) -> Result<(), String> {
        let mut reached = (self.collector.received(), Instant::now());
        while self.collector.received() < lsn {
            if self.collector.received() > reached.0 {
                reached = (self.collector.received(), Instant::now());
            }
            if reached.1.elapsed() > CAUGHT_UP_LIMIT {
                let connected = self.collector.connected.load(Ordering::Acquire);
                let why = if connected { String::new() } else { self.collector.error() };
                return Err(format!("the collector does not catch up with the primary {why}"));
            }
            self.poke.notify_one();
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// The last entry of a log that was committed before a position, which the log has come to.
async fn last_before(log: &Log, lsn: Lsn) -> Result<Tsid, String> {
    let Some(last) = log.last() else { return Ok(Tsid(log.first().0 - 1)) };
    // The first entry that was committed later is between these.
    let (mut from, mut to) = (log.first().0, last.tsid.0 + 1);
    while from < to {
        let middle = Tsid(from + (to - from) / 2);
        let is_before = match log.read(middle, 1, 1).await {
            Ok(read) => {
                let entry = read.first().ok_or_else(|| format!("entry {middle} is missing"))?;
                entry.header.end_lsn <= lsn
            }
            // The log keeps all that the copy lacks.
            Err(hihooi_log::Error::Trimmed { .. }) => true,
            Err(error) => return Err(error.to_string()),
        };
        match is_before {
            true => from = middle.0 + 1,
            false => to = middle.0,
        }
    }
    let next = log.read(Tsid(from), 1, 1).await.map_err(|error| error.to_string())?;
    if next.first().is_some_and(|entry| entry.header.is_passed_over()) {
        return Err(format!(
            "it was copied between transactions that the primary can't decode (entry {from}): copy it again"
        ));
    }
    Ok(Tsid(from - 1))
}

/// Waits for the log on this thread. It answers from memory, or from the local disk by a thread
/// of its own, so this neither takes long nor needs this thread's event loop.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hihooi_replication::entry::Entry;
    use hihooi_replication::items::Items;

    use super::*;

    /// An entry that ends at this position.
    fn entry(tsid: u64, end: u64, is_passed_over: bool) -> Entry {
        let header = Header {
            tsid: Tsid(tsid),
            incarnation: 1,
            commit_lsn: Lsn(end - if is_passed_over { 1 } else { 48 }),
            end_lsn: Lsn(end),
            xid: 700,
            commit_time_us: 0,
            items: Items::default(),
            has_ddl: is_passed_over,
            chunks: 1,
            changes: 1,
        };
        Entry { header, chunks: vec![b"chunk".as_slice().into()] }
    }

    /// A copy belongs behind all that it contains (I5), and to no entry if it contains a part of what one stands for.
    #[tokio::test]
    async fn a_copy_belongs_behind_what_it_contains() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = Log::open(dir.path()).expect("opens");
        assert_eq!(last_before(&log, Lsn(100)).await, Ok(Tsid(0)));
        for (tsid, end) in [(1, 100), (2, 200), (3, 300), (4, 400)] {
            log.append(entry(tsid, end, tsid == 3)).await.expect("appends");
        }
        for (lsn, expected) in [(99, 0), (100, 1), (199, 1), (300, 3), (399, 3), (400, 4), (500, 4)]
        {
            assert_eq!(last_before(&log, Lsn(lsn)).await, Ok(Tsid(expected)), "{lsn}");
        }
        for lsn in [200, 250, 299] {
            let refused =
                last_before(&log, Lsn(lsn)).await.expect_err("it contains an unknown part");
            assert!(refused.contains("copy it again"), "{refused}");
        }
        log.persist().await.expect("persists");
        log.trim(Tsid(3)).await.expect("trims");
        assert_eq!(last_before(&log, Lsn(500)).await, Ok(Tsid(4)));
    }
}
