//! The collector: turns the primary's logical replication stream into entries of the log (I5), and reports at
//! once what was written (I3).
//!
//! It continues to read while the log's own thread makes the previous batch durable. The slot is confirmed only
//! up to what is durable, so the server keeps the rest. When the stream breaks, it is started again after the
//! last entry of the log. A transaction that arrives twice is recognised by its commit LSN. What the server can't
//! decode is passed over (`pass_over`).

mod pass_over;
mod stream;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hihooi_log::Log;
use hihooi_replication::entry::Header;
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_replication::written::Written;
use tokio::sync::{Notify, mpsc, watch};

pub use stream::TEXT_SETTINGS;

use crate::connection::{self, Address};
use crate::identity;
use crate::setup::SetupError;

/// Pause before a broken stream is begun again, doubled each time.
const BACKOFF_MS_MIN: u64 = 20;
/// Longest pause.
const BACKOFF_MS_MAX: u64 = 1_000;
/// What breaks the stream with the same error of decoding so often, and for so long, does so for ever.
const STUCK_TIMES: u32 = 5;
/// See [`STUCK_TIMES`].
const STUCK_FOR: Duration = Duration::from_secs(5);

/// What is said of an entry as soon as its commit was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntrySummary {
    /// Position in the log.
    pub tsid: Tsid,
    /// Low 32 bits of the transaction's id.
    pub xid: u32,
    /// LSN of the commit record.
    pub commit_lsn: Lsn,
    /// LSN right after it.
    pub end_lsn: Lsn,
    /// What the transaction wrote.
    pub written: Written,
    /// Whether it holds DDL.
    pub has_ddl: bool,
    /// Commit time, microseconds since 2000-01-01 UTC.
    pub commit_time_us: i64,
}

impl EntrySummary {
    /// Of an entry that wrote this.
    #[must_use]
    pub fn new(header: &Header, written: Written) -> EntrySummary {
        EntrySummary {
            tsid: header.tsid,
            xid: header.xid,
            commit_lsn: header.commit_lsn,
            end_lsn: header.end_lsn,
            written,
            has_ddl: header.has_ddl,
            commit_time_us: header.commit_time_us,
        }
    }
}

/// News from the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamEvent {
    /// A transaction that committed. Sent when received, before it is durable in the log: it
    /// tells what was written; appliers wait for [`Log::durable`].
    Entry(EntrySummary),
    /// Every transaction whose commit record begins before this LSN has been sent as an event. Never
    /// overtakes an entry.
    Passed(Lsn),
}

/// What others may know of the collector at any moment.
#[derive(Debug, Default)]
pub struct CollectorStatus {
    /// Whether the stream runs. While it does not, lag is unknown.
    pub connected: AtomicBool,
    received: AtomicU64,
    confirmed: AtomicU64,
    slot_retained_bytes: Mutex<Option<u64>>,
    error: Mutex<String>,
}

impl CollectorStatus {
    /// Everything before this LSN was received.
    #[must_use]
    pub fn received(&self) -> Lsn {
        Lsn(self.received.load(Ordering::Acquire))
    }

    /// What was last confirmed to the slot.
    #[must_use]
    pub fn confirmed(&self) -> Lsn {
        Lsn(self.confirmed.load(Ordering::Acquire))
    }

    /// How much WAL the primary keeps for the slot, bytes, as last seen; `None` if that is not known, or nothing is
    /// kept since the slot is lost.
    #[must_use]
    pub fn slot_retained_bytes(&self) -> Option<u64> {
        *self.slot_retained_bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes how much that is.
    pub fn set_slot_retained_bytes(&self, bytes: Option<u64>) {
        *self.slot_retained_bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = bytes;
    }

    /// Why the stream last broke; empty while it runs.
    #[must_use]
    pub fn error(&self) -> String {
        self.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn set_error(&self, error: String) {
        *self.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = error;
    }
}

/// Where the collector reads, and what it needs to know for it.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// The primary's name.
    pub name: String,
    /// Where it is.
    pub address: Address,
    /// A superuser there.
    pub user: String,
    /// The replicated database.
    pub database: String,
    /// Incarnation of the primary.
    pub incarnation: u32,
}

/// Why the collector gave up; what can mend itself is retried instead.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The log can't take entries.
    #[error(transparent)]
    Log(#[from] hihooi_log::Error),
    /// Someone else reads the slot.
    #[error("{0}")]
    SlotInUse(String),
    /// The server isn't the log's primary, or someone else has read the slot.
    #[error("{0}")]
    Stranger(String),
    /// The slot can't be read any more, or the stream can't be understood.
    #[error("{0}")]
    Broken(String),
}

/// What the stream and its tasks share.
#[derive(Clone)]
pub(crate) struct StreamContext {
    pub(crate) config: CollectorConfig,
    pub(crate) log: Log,
    pub(crate) events: mpsc::Sender<StreamEvent>,
    pub(crate) poke: Arc<Notify>,
    pub(crate) status: Arc<CollectorStatus>,
}

/// Reads the stream into the log until `shutdown` turns true (or its sender is gone), over
/// restarts of the primary. `poke` makes the server report its position at once. A full `events`
/// holds the stream back; when its receiver is gone, the collector ends.
///
/// # Errors
/// What needs an operator, see [`CollectorError`].
pub async fn run(
    config: CollectorConfig,
    log: Log,
    events: mpsc::Sender<StreamEvent>,
    poke: Arc<Notify>,
    status: Arc<CollectorStatus>,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), CollectorError> {
    let context = StreamContext { config, log, events, poke, status };
    let stopped = async { shutdown.wait_for(|stop| *stop).await.map(|_| ()) };
    let ended = tokio::select! {
        ended = read_for_ever(&context) => ended,
        // An error means that whoever could stop us is gone.
        _ = stopped => Ok(()),
    };
    context.status.connected.store(false, Ordering::Release);
    if let Err(error) = &ended {
        context.status.set_error(error.to_string());
    }
    ended
}

async fn read_for_ever(context: &StreamContext) -> Result<(), CollectorError> {
    let mut backoff_ms = BACKOFF_MS_MIN;
    // The last error that was logged: each is logged once, and so is that the stream is back.
    let mut told = String::new();
    let mut stuck = Stuck::default();
    loop {
        let started = Instant::now();
        let ended = {
            let mut reading = pin!(stream::read(context, stuck.for_ever()));
            let settled = tokio::time::timeout(Duration::from_millis(BACKOFF_MS_MAX), &mut reading);
            match settled.await {
                Ok(ended) => ended,
                Err(_) => {
                    if !told.is_empty() && context.status.connected.load(Ordering::Acquire) {
                        tracing::info!("the stream of the primary is back");
                        told.clear();
                    }
                    reading.await
                }
            }
        };
        context.status.connected.store(false, Ordering::Release);
        let why = match ended {
            Ok(()) => return Ok(()),
            Err(Interrupted::GiveUp(error)) => return Err(error),
            Err(Interrupted::Retry(why)) => {
                stuck = Stuck::default();
                why
            }
            Err(Interrupted::Undecoded(why)) => {
                stuck.again(&why, context.log.last().map(|last| last.tsid));
                format!("{why}; if it stays so, that is passed over, and replicas are replaced")
            }
        };
        if told != why {
            tracing::warn!("the stream of the primary broke: {why}");
            told.clone_from(&why);
        }
        context.status.set_error(why);
        if started.elapsed() > Duration::from_millis(BACKOFF_MS_MAX) {
            backoff_ms = BACKOFF_MS_MIN;
        }
        tokio::time::sleep(Duration::from_millis(backoff_ms)).await;
        backoff_ms = (backoff_ms * 2).min(BACKOFF_MS_MAX);
    }
}

/// How often the stream has broken at one place.
#[derive(Default)]
struct Stuck {
    why: String,
    last: Option<Tsid>,
    times: u32,
    since: Option<Instant>,
}

impl Stuck {
    fn again(&mut self, why: &str, last: Option<Tsid>) {
        if self.why != why || self.last != last {
            *self = Stuck { why: why.to_owned(), last, times: 0, since: Some(Instant::now()) };
        }
        self.times += 1;
    }

    /// The error, once it is clear that it stays.
    fn for_ever(&self) -> Option<&str> {
        let is_long = self.since.is_some_and(|since| since.elapsed() >= STUCK_FOR);
        (is_long && self.times >= STUCK_TIMES).then_some(self.why.as_str())
    }
}

/// Why one stream ended.
#[derive(Debug)]
pub(crate) enum Interrupted {
    /// Try again.
    Retry(String),
    /// Decoding has failed: so it may each time at the same place of the WAL.
    Undecoded(String),
    /// Trying again can't help.
    GiveUp(CollectorError),
}

impl From<connection::Error> for Interrupted {
    fn from(error: connection::Error) -> Interrupted {
        Interrupted::Retry(error.to_string())
    }
}

impl From<hihooi_log::Error> for Interrupted {
    fn from(error: hihooi_log::Error) -> Interrupted {
        Interrupted::GiveUp(error.into())
    }
}

impl From<identity::Error> for Interrupted {
    fn from(error: identity::Error) -> Interrupted {
        match error {
            identity::Error::Connection(error) => error.into(),
            identity::Error::Log(error) => error.into(),
            identity::Error::Stranger(text) => CollectorError::Stranger(text).into(),
        }
    }
}

impl From<SetupError> for Interrupted {
    fn from(error: SetupError) -> Interrupted {
        Interrupted::Retry(error.to_string())
    }
}
