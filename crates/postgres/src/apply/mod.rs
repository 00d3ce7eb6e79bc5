//! Appliers: our connections that write the log's entries to a replica, in parallel where rows
//! differ, committing strictly in the log's order (I2), exactly once (I5).
//!
//! - [`start`] runs one applier; [`ApplierHandle`] is what the rest of the process holds of it.
//! - `round`: from connecting to losing the connection; `worker` and `session`: one connection.
//! - `restricted`: how what may run code of others is carried out without a superuser's rights.
//! - `follow`: what the primary did to its schema; `replay` and `shared` say what to run for it,
//!   `unseen` which differences are other transactions' doing.
//! - `statements`, `replay`, `shared`, `work`, `words`: pure parts; the schedule is `hihooi_replication::schedule`.
//! - [`progress`]: where a replica stands, kept in the replica. [`visibility`]: what the primary
//!   shows.

mod catalog;
mod follow;
mod handle;
pub mod progress;
mod replay;
mod restricted;
mod round;
mod session;
mod shared;
mod statements;
pub mod stats;
mod unseen;
pub mod visibility;
mod words;
mod work;
mod worker;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hihooi_log::Log;
use hihooi_replication::ids::Tsid;
use tokio::sync::watch;

pub(crate) use follow::differing_lines;
pub use handle::{ApplierHandle, HoldError};
pub use stats::ApplyStats;
pub use visibility::Visibility;

use crate::site::{Replica, State};
use handle::{Repaired, Standing, Told, Wish};
use round::{End, Round};

/// Connections that write to a replica, unless told otherwise.
pub const CONNECTIONS: usize = 4;
/// How long anybody may hold up applying, unless told otherwise.
pub const MAX_DELAY: Duration = Duration::from_secs(30);
/// Prefix of the replication origins' names, unless told otherwise.
pub const ORIGIN: &str = "hihooi";
/// Pauses between attempts to reach a replica.
const RETRY_MS_MIN: u64 = 100;
const RETRY_MS_MAX: u64 = 2_000;

/// What an applier is started with.
#[derive(Clone)]
pub struct Config {
    /// The replica; its state and applied prefix are written by the applier.
    pub replica: Arc<Replica>,
    /// The database that is replicated.
    pub database: String,
    /// Connections that write, at least 1; [`CONNECTIONS`] is usual.
    pub connections: usize,
    /// Replication origins are called `{origin}_0`, `{origin}_1` …; [`ORIGIN`] is usual.
    pub origin: String,
    /// The log.
    pub log: Log,
    /// Who holds up an entry for so long, by a lock, is ended.
    pub max_delay: Duration,
    /// What the primary shows.
    pub visibility: Arc<Visibility>,
}

/// Starts an applier on the current runtime. It connects by itself, again and again if need be,
/// and publishes the replica's state.
#[must_use]
pub fn start(config: Config) -> ApplierHandle {
    let wish = Arc::new(watch::Sender::new(Wish::default()));
    let (standing_sender, standing) = watch::channel(Standing::Moving);
    let (ended_sender, ended) = watch::channel(false);
    let told = Arc::new(Told::default());
    let repaired = Repaired::new(&config.log, &config.replica.site.name);
    let wishes = wish.subscribe();
    let handle = ApplierHandle {
        wish,
        standing,
        told: Arc::clone(&told),
        ended,
        repaired: repaired.clone(),
    };
    tokio::spawn(async move {
        run(&config, &told, &repaired, &standing_sender, wishes).await;
        standing_sender.send_replace(Standing::Away);
        // Nobody may be waiting for the end.
        let _ = ended_sender.send(true);
    });
    handle
}

/// Round after round, until the wish to stop.
async fn run(
    config: &Config,
    told: &Arc<Told>,
    repaired: &Repaired,
    standing: &watch::Sender<Standing>,
    mut wishes: watch::Receiver<Wish>,
) {
    let mut pause_ms = RETRY_MS_MIN;
    let recent = Arc::default();
    loop {
        // Connections to a site that doesn't answer would only pile up there.
        tokio::select! {
            () = config.replica.answering() => {}
            _ = wishes.wait_for(|wish| wish.stop) => {}
        }
        let nobody_holds_it = wishes.has_changed().is_err();
        let wish = wishes.borrow_and_update().clone();
        if wish.stop || nobody_holds_it {
            return;
        }
        let mut refused = None;
        let started = Round::start(config, told, standing, repaired.read(), &recent);
        let end = match unless_silent(&config.replica, started).await {
            Ok(mut round) => {
                pause_ms = RETRY_MS_MIN;
                let running = async { Err(round.run(&mut wishes).await) };
                let Err(end) = unless_silent::<Infallible>(&config.replica, running).await;
                refused = round.refused_at();
                round.end().await;
                end
            }
            Err(end) => end,
        };
        let is_wished = matches!(end, End::Wished);
        standing.send_replace(if is_wished { Standing::Moving } else { Standing::Away });
        match end {
            End::Wished => {}
            End::Lost(reason) => {
                tracing::debug!(site = config.replica.site.name, reason, "not applying");
                config.replica.set_state(State::Failed, reason);
                wait_for_attempt(&mut wishes, &wish, Some(pause_ms)).await;
                pause_ms = (pause_ms * 2).min(RETRY_MS_MAX);
            }
            End::Diverged(reason) => {
                // A RESUME during the round, such as that of a pause, is no word on what was
                // not known yet.
                let before = Wish { attempt: wishes.borrow().attempt, ..wish };
                told.set_refused(refused.unwrap_or_default());
                tell_diverged(&config.replica, reason);
                wait_for_attempt(&mut wishes, &before, None).await;
                told.set_refused(Tsid::ZERO);
            }
        }
    }
}

/// Publishes that only an operator can help. A replica that had failed for another reason is told of
/// once more.
fn tell_diverged(replica: &Replica, reason: String) {
    if replica.apply_state() == State::Failed {
        tracing::warn!(site = replica.site.name, reason, "the replica waits for an operator");
    }
    replica.set_state(State::Failed, reason);
}

/// Works with a replica for as long as it answers: one that doesn't counts as lost, since the
/// connections to it may never say so by themselves.
async fn unless_silent<T>(
    replica: &Replica,
    work: impl Future<Output = Result<T, End>>,
) -> Result<T, End> {
    tokio::select! {
        done = work => done,
        why = replica.silenced() => Err(End::Lost(why)),
    }
}

/// Waits until someone wishes a new attempt or the end, or for the pause.
async fn wait_for_attempt(
    wishes: &mut watch::Receiver<Wish>,
    before: &Wish,
    pause_ms: Option<u64>,
) {
    let wished = wishes.wait_for(|wish| wish.is_new_attempt(before));
    match pause_ms {
        Some(pause_ms) => {
            // Time being up and a wish are both reasons to go on.
            let _ = tokio::time::timeout(Duration::from_millis(pause_ms), wished).await;
        }
        None => {
            if wished.await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
