//! Functions that don't end at a replica, though they did at the primary, where they saw other settings or another role:
//! what they hold up is given up, so that nobody who may create one can stop a replica for good.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hihooi_replication::ids::Tsid;
use tokio::time::Instant;

use super::set_aside::{Blame, Cause};
use super::words::What;
use super::work::{Again, Refusal};

/// How long functions that rows run may take in one operation, if nothing else can be done meanwhile.
const ROWS_LIMIT: Duration = Duration::from_secs(30);
/// So many times as long as at the primary, and as anybody may hold up applying, a transaction with DDL may take. (It may
/// build indexes, on a slower server.)
const DDL_TIMES: u32 = 10;

/// What functions a connection may wait for.
#[derive(Debug)]
pub(super) struct Running {
    max_delay: Duration,
    awaited: Mutex<Awaited>,
}

#[derive(Debug, Default)]
struct Awaited {
    /// Those of rows, whose answers have not all come.
    rows: Option<Limited>,
    /// Those of the entry's DDL.
    ddl: Option<Limited>,
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
        Running { max_delay, awaited: Mutex::default() }
    }

    /// A change of rows is sent that runs functions.
    pub(super) fn are_to_run(&self, tsid: Tsid, what: &What) {
        let Some(relation) = what.relation().cloned() else { return };
        let blame = Some(Blame { relation, cause: Cause::Code });
        let limit = ROWS_LIMIT;
        let reason = format!(
            "{}: the table runs functions, which take longer than {} s here",
            what.words(),
            limit.as_secs()
        );
        let refusal = Refusal { tsid, reason, again: Again::Never, blame };
        let since = Instant::now();
        self.lock().rows.get_or_insert(Limited { since, limit, refusal });
    }

    /// All answers about rows are there.
    pub(super) fn have_run(&self) {
        self.lock().rows = None;
    }

    /// An entry with DDL is executed, whose transaction took so long at the primary.
    pub(super) fn is_to_follow(&self, tsid: Tsid, took: Duration) {
        let limit = (took + self.max_delay) * DDL_TIMES;
        let reason = format!(
            "its DDL takes longer than {} s here, and took {} ms at most at the primary",
            limit.as_secs(),
            took.as_millis()
        );
        let refusal = Refusal { tsid, reason, again: Again::Never, blame: None };
        let since = Instant::now();
        self.lock().ddl.get_or_insert(Limited { since, limit, refusal });
    }

    /// The entry is executed.
    pub(super) fn is_done(&self) {
        *self.lock() = Awaited::default();
    }

    /// Why the oldest entry, which has been that for so long, is to be given up.
    pub(super) fn overdue(&self, waited: Duration) -> Option<Refusal> {
        let awaited = self.lock();
        let both = [&awaited.rows, &awaited.ddl].into_iter().flatten();
        let mut overdue = both.filter(|it| it.since.elapsed().min(waited) >= it.limit);
        overdue.next().map(|it| it.refusal.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Awaited> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
