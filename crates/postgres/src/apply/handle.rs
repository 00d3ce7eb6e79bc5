//! The handle on an applier: requests go to the applier, and its status comes back. A request is a state, not a
//! queue of commands, so nothing accumulates while a replica can't be reached (I8).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hihooi_log::Log;
use hihooi_replication::ids::Tsid;
use tokio::sync::watch;

use super::stats::ApplyStats;

/// What the operator and `verify` request of an applier.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Requested {
    /// Apply nothing (`PAUSE REPLICA`).
    pub paused: bool,
    /// Apply up to exactly here and stay.
    pub limit: Option<Tsid>,
    /// Counted up to make an applier that failed try again.
    pub attempt: u64,
    /// Counted up to make the applier connect anew, failed or not.
    pub restart: u64,
    /// End.
    pub stop: bool,
}

impl Requested {
    /// Whether an applier that failed under `before` is to try again.
    pub(super) fn is_new_attempt(&self, before: &Requested) -> bool {
        self.stop || self.attempt != before.attempt || self.restart != before.restart
    }
}

/// What an applier reports.
#[derive(Debug, Default)]
pub(super) struct ApplierStatus {
    /// Applied and flushed at the replica: the log is needed from the next one on.
    pub flushed: AtomicU64,
    /// The entry that couldn't be applied last, at which the applier tries again or waits for an operator; 0 before there is one.
    pub refused: AtomicU64,
    /// Latencies of the last entries.
    pub stats: Mutex<ApplyStats>,
}

impl ApplierStatus {
    pub(super) fn refused(&self) -> Tsid {
        Tsid(self.refused.load(Ordering::Acquire))
    }

    pub(super) fn set_refused(&self, tsid: Tsid) {
        self.refused.store(tsid.0, Ordering::Release);
    }

    pub(super) fn lock_stats(&self) -> MutexGuard<'_, ApplyStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an applier obeys a hold: the request to apply up to a position and stay there. It is `Applying`
/// before the applier takes a request, so whoever sends a request and sees another state afterwards sees that the
/// request is obeyed, or will be before anything is committed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HoldState {
    /// Applying, or not there yet.
    Applying,
    /// Nothing is being committed, and nothing will be until the hold ends.
    Held {
        /// The applied prefix.
        applied: Tsid,
        /// The position up to which it was to apply.
        limit: Tsid,
    },
    /// Not applying at all (connection lost, diverged, paused, stopped).
    Stopped,
}

/// A paused applier is committing something still.
#[derive(Debug, thiserror::Error)]
#[error("what it is committing now takes longer")]
pub struct StillCommitting;

/// Why a hold was not reached.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The applier is not applying; the replica's reason says why.
    #[error("the replica is not applying")]
    Away,
    /// It did not get there in time.
    #[error("the replica did not reach entry {wanted} in time; it has applied {applied}")]
    Late {
        /// Where it was to stop.
        wanted: Tsid,
        /// Where it was when time was up.
        applied: Tsid,
    },
}

/// The last entry up to which the operator has done at a replica what it could not do by itself, and said
/// so by RESUME; kept in the log.
#[derive(Clone)]
pub(super) struct Repaired {
    log: Log,
    /// Of the value in the log.
    name: String,
}

impl Repaired {
    pub(super) fn new(log: &Log, site: &str) -> Repaired {
        Repaired { log: log.clone(), name: format!("repaired {site}") }
    }

    /// Zero if nothing readable is kept: then the replica stops at the same entry again.
    pub(super) fn read(&self) -> Tsid {
        let kept = self.log.meta(&self.name).ok().flatten();
        let number = kept.and_then(|kept| Some(u64::from_be_bytes(kept[..].try_into().ok()?)));
        number.map_or(Tsid::ZERO, Tsid)
    }

    async fn raise(&self, tsid: Tsid) -> hihooi_log::Result<()> {
        if tsid <= self.read() {
            return Ok(());
        }
        self.log.set_meta(&self.name, &tsid.0.to_be_bytes()).await
    }
}

impl fmt::Debug for Repaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Repaired").field(&self.read()).finish()
    }
}

/// A handle on a running applier; clones speak to the same one.
#[derive(Clone, Debug)]
pub struct ApplierHandle {
    pub(super) requested: Arc<watch::Sender<Requested>>,
    pub(super) hold_state: watch::Receiver<HoldState>,
    pub(super) status: Arc<ApplierStatus>,
    pub(super) ended: watch::Receiver<bool>,
    pub(super) repaired: Repaired,
}

impl ApplierHandle {
    /// Stops applying; the replica still serves reads of tables that have not changed since. Returns when nothing
    /// is committed there any more.
    ///
    /// # Errors
    /// [`StillCommitting`]: a commit lasts longer than `limit`; it is the last one.
    pub async fn pause(&self, limit: Duration) -> Result<(), StillCommitting> {
        self.requested.send_modify(|requested| requested.paused = true);
        let mut hold_state = self.hold_state.clone();
        let stands = hold_state.wait_for(|hold_state| *hold_state != HoldState::Applying);
        match tokio::time::timeout(limit, stands).await {
            // Without a sender the applier has ended.
            Ok(_) => Ok(()),
            Err(_) => Err(StillCommitting),
        }
    }

    /// Applies again, also after a failure that stopped it: what the replica could not do was
    /// repeated there by the operator. The log keeps this before anything is done, so that the next
    /// manager knows it too.
    ///
    /// # Errors
    /// [`hihooi_log::Error`]: the log can't be written; nothing is resumed.
    pub async fn resume(&self) -> hihooi_log::Result<()> {
        self.repaired.raise(self.status.refused()).await?;
        self.requested.send_modify(|requested| {
            requested.paused = false;
            requested.attempt += 1;
        });
        Ok(())
    }

    /// Connects anew and goes on from the replica's own position.
    pub fn restart(&self) {
        self.requested.send_modify(|requested| requested.restart += 1);
    }

    /// Lets the applier commit nothing more, and tells the prefix at which it stands then.
    ///
    /// # Errors
    /// [`HoldError`] when it isn't applying or doesn't answer within `limit`.
    pub async fn hold(&self, limit: Duration) -> Result<Tsid, HoldError> {
        self.hold_until(Tsid::ZERO, limit).await
    }

    /// Applies up to exactly `tsid` and stays there until [`ApplierHandle::release`].
    ///
    /// # Errors
    /// [`HoldError`] when it isn't applying, is beyond `tsid`, or isn't there within `limit`.
    pub async fn hold_at(&self, tsid: Tsid, limit: Duration) -> Result<(), HoldError> {
        let applied = self.hold_until(tsid, limit).await?;
        if applied == tsid { Ok(()) } else { Err(HoldError::Late { wanted: tsid, applied }) }
    }

    async fn hold_until(&self, tsid: Tsid, limit: Duration) -> Result<Tsid, HoldError> {
        self.requested.send_modify(|requested| requested.limit = Some(tsid));
        let mut hold_state = self.hold_state.clone();
        let reached = |hold_state: &HoldState| match *hold_state {
            HoldState::Held { applied, limit } => limit == tsid && applied >= tsid,
            HoldState::Stopped => true,
            HoldState::Applying => false,
        };
        let waited = tokio::time::timeout(limit, hold_state.wait_for(reached)).await;
        match waited {
            Ok(Ok(hold_state)) => match *hold_state {
                HoldState::Held { applied, .. } => Ok(applied),
                _ => Err(HoldError::Away),
            },
            Ok(Err(_)) => Err(HoldError::Away),
            Err(_) => match *self.hold_state.borrow() {
                HoldState::Held { applied, .. } => Err(HoldError::Late { wanted: tsid, applied }),
                _ => Err(HoldError::Late { wanted: tsid, applied: Tsid::ZERO }),
            },
        }
    }

    /// Ends a hold.
    pub fn release(&self) {
        self.requested.send_modify(|requested| requested.limit = None);
    }

    /// Ends the applier; returns when its connections are closed.
    pub async fn stop(&self) {
        self.requested.send_modify(|requested| requested.stop = true);
        // An applier that is gone already has ended.
        let _ = self.ended.clone().wait_for(|&ended| ended).await;
    }

    /// The prefix that is on the replica's disk: what retention of the log goes by (I5).
    #[must_use]
    pub fn flushed(&self) -> Tsid {
        Tsid(self.status.flushed.load(Ordering::Acquire))
    }

    /// Latencies of the last entries applied.
    #[must_use]
    pub fn stats(&self) -> ApplyStats {
        self.status.lock_stats().clone()
    }
}
