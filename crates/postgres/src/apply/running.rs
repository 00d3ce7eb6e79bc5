//! What a connection that writes is doing: how far it has come, and limits for functions that rows and DDL run at a
//! replica. A function that ended at the primary may never end here, where it sees other settings or another role. When its
//! time is over, the replica sets the table aside or refuses the entry, so that nobody who may create a function can stop a
//! replica for good.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hihooi_replication::ids::Tsid;
use tokio::time::Instant;

use super::set_aside::{Blame, Cause};
use super::words::What;
use super::work::{Again, Refusal};

/// How long functions that rows run may take in one operation, if nothing else can be done meanwhile.
const ROWS_LIMIT: Duration = Duration::from_secs(30);
/// A command of DDL may take so many times as long as its transaction did at the primary, and as anybody may hold up
/// applying. (It may build indexes, on a slower server.)
const DDL_TIMES: u32 = 10;
/// But not less than this, however little anybody may hold up applying.
const DDL_LIMIT_MIN: Duration = Duration::from_secs(10);

/// How many changes a connection has made, and what functions it waits for: of rows, or of a command.
#[derive(Debug)]
pub(super) struct Running {
    made: AtomicU64,
    max_delay: Duration,
    awaited: Mutex<Option<Limited>>,
}

#[derive(Debug)]
struct Limited {
    since: Instant,
    limit: Duration,
    refusal: Refusal,
}

impl Running {
    /// None yet. Others may hold up applying for `max_delay`.
    pub(super) fn new(max_delay: Duration) -> Running {
        Running { made: AtomicU64::new(0), max_delay, awaited: Mutex::default() }
    }

    /// Another transaction begins.
    pub(super) fn begins(&self) {
        self.made.store(0, Ordering::Relaxed);
    }

    /// So many more changes were made.
    pub(super) fn have_made(&self, changes: u64) {
        self.made.fetch_add(changes, Ordering::Relaxed);
    }

    /// Changes that were made in the transaction. (Not all of them are counted.)
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// A change is sent that runs functions of a table.
    pub(super) fn are_to_run(&self, tsid: Tsid, what: &What) {
        let Some(relation) = what.relation().cloned() else { return };
        let blame = Some(Blame { relation, cause: Cause::Code });
        let limit = ROWS_LIMIT;
        let reason = format!(
            "{}: the table runs functions, which take longer than {} s here",
            what.words(),
            limit.as_secs()
        );
        self.set(limit, Refusal { tsid, reason, again: Again::Never, blame });
    }

    /// A command is executed, whose transaction took so long at the primary.
    pub(super) fn is_to_follow(&self, tsid: Tsid, took: Duration) {
        let limit = took.saturating_add(self.max_delay).saturating_mul(DDL_TIMES);
        let limit = limit.max(DDL_LIMIT_MIN);
        let reason = format!(
            "its DDL takes longer than {} s here, and took {} ms at most at the primary",
            limit.as_secs(),
            took.as_millis()
        );
        self.set(limit, Refusal { tsid, reason, again: Again::Never, blame: None });
    }

    /// All answers are there.
    pub(super) fn have_run(&self) {
        *self.lock() = None;
    }

    /// Why the oldest entry, which has been that for so long, is to be given up.
    pub(super) fn overdue(&self, waited: Duration) -> Option<Refusal> {
        let is_overdue = |it: &&Limited| it.since.elapsed().min(waited) >= it.limit;
        self.lock().as_ref().filter(is_overdue).map(|it| it.refusal.clone())
    }

    /// What is waited for, as if it were overdue.
    pub(super) fn awaited(&self) -> Option<Refusal> {
        self.lock().as_ref().map(|it| it.refusal.clone())
    }

    /// (The first counts: what is sent behind it waits for it.)
    fn set(&self, limit: Duration, refusal: Refusal) {
        self.lock().get_or_insert(Limited { since: Instant::now(), limit, refusal });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Limited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
