//! Snapshots of replicas that show what the primary showed at one moment (I3), however much is written: for
//! transactions that only read, from one snapshot.
//!
//! That a replica shows the log up to some entry is not enough, since the primary may make transactions visible in
//! another order than it logs them. So the primary is asked what it shows, and for a position of its WAL behind all
//! of that. When the stream has passed the position, it is known up to which entry the log is what the primary
//! showed. A replica commits up to there, and exports its snapshot (manual, "Snapshot Synchronization Functions")
//! before it goes on. The transactions that came before the primary was asked import it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hihooi_postgres::apply::visibility::Snapshot;
use hihooi_postgres::connection::{Connection, Error, Result};
use hihooi_postgres::site::Replica;
use hihooi_postgres::wal_positions::WalPositions;
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_session::route::SnapshotName;
use hihooi_session::sites::SiteId;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tracing::debug;

use crate::relay::Relay;

/// How long a replica may be kept from committing, before it comes to where it is to export and again when it is there.
/// Then it has at least as long for committing.
const LIMITED_MAX: Duration = Duration::from_millis(25);
/// How long the stream and the replica may take to come there.
const WAY_MAX: Duration = Duration::from_secs(1);
/// How long opening connections may take.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// Before the primary is asked again, which showed something else than a prefix of the log.
const PAUSE: Duration = Duration::from_millis(1);
/// How long an exported snapshot can be imported at least.
const KEPT: Duration = Duration::from_secs(1);
/// How often the stream is asked how far it is.
const POKE_EVERY: Duration = Duration::from_millis(1);
/// What the stream hasn't passed after so long may not be flushed.
const FLUSH_AFTER: Duration = Duration::from_millis(5);
/// The `application_name` of those who export.
const APPLICATION: &str = "hihooi snapshots";
/// After a failure.
const RETRY: Duration = Duration::from_millis(200);

/// A snapshot that can be imported at a replica.
#[derive(Clone, Copy, Debug)]
pub struct Exported {
    /// It shows the log up to here.
    pub prefix: Tsid,
    /// Its name there.
    pub name: SnapshotName,
}

/// Who waits for a snapshot of a replica.
#[derive(Debug, Default)]
pub struct Exports {
    waiting: RefCell<Vec<oneshot::Sender<Exported>>>,
    wanted: Notify,
}

impl Exports {
    /// A snapshot that shows all that was committed before; waits for it as long as the caller does.
    pub async fn take(&self) -> Option<Exported> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().push(sender);
        self.wanted.notify_one();
        receiver.await.ok()
    }

    /// Those who wait still.
    fn waiting(&self) -> Vec<oneshot::Sender<Exported>> {
        let mut waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.retain(|waiter| !waiter.is_closed());
        waiting
    }
}

/// Exports snapshots of a replica when they are wanted.
pub async fn keep(relay: Rc<Relay>, number: usize) {
    let (exports, replica) = (&relay.exports[number], &relay.replicas[number]);
    let mut servers = Servers::new(relay.clone(), number);
    let mut is_ahead = false;
    loop {
        if timeout(2 * KEPT, exports.wanted.notified()).await.is_err() {
            servers.rest().await;
            exports.wanted.notified().await;
        }
        let mut waiting = exports.waiting();
        if waiting.is_empty() {
            continue;
        }
        let was_ahead = std::mem::take(&mut is_ahead);
        let found = async {
            timeout(OPEN_MAX, servers.ready()).await.map_err(|_| late())??;
            find(&relay, &mut servers, Limited { replica, is_set: false }, was_ahead).await
        };
        let found = tokio::select! {
            found = found => found,
            why = replica.silenced() => Err(Error::Protocol(why)),
        };
        match found {
            Ok(Found::Exported(exported)) => waiting.drain(..).for_each(|waiter| {
                // Who went away in between needs none.
                let _ = waiter.send(exported);
            }),
            Ok(Found::NoPrefix) => tokio::time::sleep(PAUSE).await,
            Ok(Found::Ahead) => is_ahead = true,
            Err(error) => {
                debug!(site = replica.site.name, %error, "no snapshot can be exported");
                // They may find another replica.
                waiting.clear();
                tokio::time::sleep(RETRY).await;
            }
        }
        if !waiting.is_empty() {
            exports.waiting.borrow_mut().append(&mut waiting);
            exports.wanted.notify_one();
        }
        if was_ahead {
            tokio::time::sleep(2 * LIMITED_MAX).await;
        }
    }
}

/// What came of a try.
enum Found {
    Exported(Exported),
    /// The primary didn't show a prefix of the log.
    NoPrefix,
    /// The replica had committed more.
    Ahead,
}

/// Keeps a replica from committing more, for as long as it lives.
struct Limited<'a> {
    replica: &'a Replica,
    is_set: bool,
}

impl Limited<'_> {
    fn set(&mut self, tsid: Tsid) {
        self.is_set = true;
        self.replica.set_limit(tsid);
    }
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        if self.is_set {
            self.replica.set_limit(Tsid::MAX);
        }
    }
}

/// Exports a snapshot of a replica when it has come to where the primary is at one moment from now on. If it was ahead
/// before, it waits from the beginning.
async fn find(
    relay: &Relay,
    servers: &mut Servers,
    mut limited: Limited<'_>,
    was_ahead: bool,
) -> Result<Found> {
    let replica = limited.replica;
    if was_ahead {
        limited.set(Tsid::ZERO);
    }
    // What it has applied was shown at the primary before.
    let known = replica.applied();
    let patience = if was_ahead { LIMITED_MAX } else { WAY_MAX };
    let shown = timeout(patience, servers.shown_in_log()).await.map_err(|_| late())??;
    let shows = |xid| shown.sees(shown.widen(xid));
    let Some(prefix) = relay.freshness.borrow().shown_prefix(known, shows) else {
        return Ok(Found::NoPrefix);
    };
    limited.set(prefix);
    let mut progress = replica.progress();
    let is_there = progress.wait_for(|_| replica.applied() >= prefix);
    timeout(WAY_MAX, is_there).await.map_err(|_| late())?.map_err(|_| closed())?;
    if replica.sent() != prefix {
        return Ok(Found::Ahead);
    }
    let name = timeout(LIMITED_MAX, servers.export()).await.map_err(|_| late())??;
    // If nothing more was sent meanwhile, the snapshot shows no more.
    if replica.sent() != prefix {
        return Ok(Found::Ahead);
    }
    drop(limited);
    // If the primary had crashed since it was asked, what it showed may be lost, and its numbers used again.
    timeout(WAY_MAX, servers.shown()).await.map_err(|_| late())??;
    Ok(Found::Exported(Exported { prefix, name }))
}

/// The connections of one replica's exports. One whose answer is not waited for is closed.
struct Servers {
    relay: Rc<Relay>,
    number: usize,
    primary: Option<WalPositions>,
    /// To the replica: while snapshots that one of them exports can still be imported, the other exports others.
    exporting: [Option<Connection>; 2],
    /// Which of them exports now.
    current: usize,
    /// Since when.
    since: Instant,
}

impl Servers {
    fn new(relay: Rc<Relay>, number: usize) -> Servers {
        let since = Instant::now();
        Servers { relay, number, primary: None, exporting: [None, None], current: 0, since }
    }

    /// Ends a transaction whose snapshots are old, and opens what is not open.
    async fn ready(&mut self) -> Result<()> {
        self.begin().await?;
        if self.relay.pools.is_primary_silent.get() {
            return Err(late());
        }
        if self.primary.is_none() {
            let login = self.relay.login(SiteId::Primary, APPLICATION);
            self.primary = Some(WalPositions::new(Connection::open(&login).await?).await?);
        }
        Ok(())
    }

    /// Begins a transaction that exports, if the one that does has done so for long.
    async fn begin(&mut self) -> Result<()> {
        let is_open = self.exporting[self.current].is_some();
        if is_open && self.since.elapsed() < KEPT {
            return Ok(());
        }
        if is_open {
            self.current = 1 - self.current;
        }
        let mut connection = match self.exporting[self.current].take() {
            Some(mut connection) => {
                connection.query("COMMIT").await?;
                connection
            }
            None => {
                let login = self.relay.login(SiteId::Replica(self.number), APPLICATION);
                Connection::open(&login).await?
            }
        };
        // At this level each statement exports a snapshot of its own.
        connection.query("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY").await?;
        self.exporting[self.current] = Some(connection);
        self.since = Instant::now();
        Ok(())
    }

    /// What the primary shows, and a position of its WAL behind that.
    async fn shown(&mut self) -> Result<(Snapshot, Lsn)> {
        let mut primary = self.primary.take().ok_or_else(closed)?;
        let shown = primary.shown().await?;
        self.primary = Some(primary);
        Ok(shown)
    }

    /// What the primary shows, when the stream has brought all of it.
    async fn shown_in_log(&mut self) -> Result<Snapshot> {
        let (shown, position) = self.shown().await?;
        let mut flush_at = Some(Instant::now() + FLUSH_AFTER);
        self.relay.poke.notify_one();
        loop {
            let changed = self.relay.changed.notified();
            if self.relay.freshness.borrow().has_passed(position) {
                break;
            }
            if timeout(POKE_EVERY, changed).await.is_err() {
                self.relay.poke.notify_one();
            }
            if flush_at.take_if(|at| *at <= Instant::now()).is_some() {
                let mut primary = self.primary.take().ok_or_else(closed)?;
                primary.ensure_flushed(position).await?;
                self.primary = Some(primary);
            }
        }
        Ok(shown)
    }

    async fn export(&mut self) -> Result<SnapshotName> {
        let mut connection = self.exporting[self.current].take().ok_or_else(closed)?;
        let answer = connection.query("SELECT pg_catalog.pg_export_snapshot()").await?;
        let name = answer.value().and_then(SnapshotName::new);
        self.exporting[self.current] = Some(connection);
        name.ok_or_else(|| Error::Protocol("not a snapshot's name".to_owned()))
    }

    /// Nobody wants snapshots any more.
    async fn rest(&mut self) {
        if let Some(primary) = self.primary.take() {
            primary.close().await;
        }
        for connection in self.exporting.iter_mut().filter_map(Option::take) {
            connection.close().await;
        }
    }
}

fn closed() -> Error {
    Error::Protocol("the connection is closed".to_owned())
}

fn late() -> Error {
    Error::Protocol("it takes too long".to_owned())
}
