//! Appliers write the log's entries to a replica over several connections: in parallel where rows differ,
//! committing strictly in the log's order (I2), exactly once (I5).
//!
//! - [`start`] runs one applier; [`ApplierHandle`] controls it.
//! - `round`: applying from connecting to a replica until the connection is lost; `worker` and `session`: one
//!   connection.
//! - `restricted`: how statements that may run functions of ordinary roles are executed without a
//!   superuser's rights.
//! - `follow`: schema changes; `replay` and `shared_objects` determine which commands to execute, and `unseen`
//!   which differences come from other transactions.
//! - `set_aside`: how a replica goes on without a table whose rows it can't write.
//! - `items`, `net`, `statements`, `replay`, `privileges`, `shared_objects`, `work`, `words`: pure parts; the schedule is
//!   `hihooi_replication::schedule`.
//! - [`progress`]: the applied position, stored in the replica. [`visibility`]: which transactions the
//!   primary shows.

mod catalog;
mod follow;
mod handle;
mod items;
mod net;
mod privileges;
pub mod progress;
mod replay;
mod restricted;
mod round;
mod running;
mod session;
mod set_aside;
mod shared_objects;
mod standstill;
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
use hihooi_replication::schedule::Method;
use tokio::sync::watch;

pub(crate) use follow::differing_lines;
pub use handle::{ApplierHandle, HoldError, StillCommitting};
pub use stats::ApplyStats;
pub use visibility::Visibility;

use crate::site::{Replica, State};
use handle::{ApplierStatus, HoldState, Repaired, Requested};
use round::{End, Round};
use set_aside::Blame;
use work::{Again, Refusal};

/// Connections that write to a replica, unless told otherwise.
pub const CONNECTIONS: usize = 4;
/// How long anybody may hold up applying, unless told otherwise.
pub const MAX_DELAY: Duration = Duration::from_secs(30);
/// Prefix of the replication origins' names, unless told otherwise.
pub const ORIGIN: &str = "hihooi";
/// Pauses before an entry that couldn't be applied is tried again: what was in its way, such as a lock, may be gone.
const TRY_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The same if the server's condition seems to be in its way, such as a full disk. (A function that DDL runs can raise such
/// an error, too. So the replica counts as one that doesn't go on by itself then.)
const TRY_PASSING: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
];
/// An entry at which so many rounds in a row lose their connections is refused.
const LOSSES_MAX: u32 = 10;
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
    /// How it is found out which entries may execute at once.
    pub method: Method,
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
    let requested = Arc::new(watch::Sender::new(Requested::default()));
    let (hold_sender, hold_state) = watch::channel(HoldState::Applying);
    let (ended_sender, ended) = watch::channel(false);
    let status = Arc::new(ApplierStatus::default());
    let repaired = Repaired::new(&config.log, &config.replica.site.name);
    let requests = requested.subscribe();
    let handle = ApplierHandle {
        requested,
        hold_state,
        status: Arc::clone(&status),
        ended,
        repaired: repaired.clone(),
    };
    tokio::spawn(async move {
        run(&config, &status, &repaired, &hold_sender, requests).await;
        hold_sender.send_replace(HoldState::Stopped);
        // Nobody may be waiting for the end.
        let _ = ended_sender.send(true);
    });
    handle
}

/// Round after round, until it is requested to stop.
async fn run(
    config: &Config,
    status: &Arc<ApplierStatus>,
    repaired: &Repaired,
    hold_state: &watch::Sender<HoldState>,
    mut requests: watch::Receiver<Requested>,
) {
    let mut pause_ms = RETRY_MS_MIN;
    // How often in a row the entry that was refused last couldn't be applied.
    let mut times = 0;
    let mut losses = Losses::default();
    let recent = Arc::default();
    loop {
        // Connections to a site that doesn't answer would only pile up there.
        tokio::select! {
            () = config.replica.answering() => {}
            _ = requests.wait_for(|requested| requested.stop) => {}
        }
        let nobody_holds_it = requests.has_changed().is_err();
        let requested = requests.borrow_and_update().clone();
        if requested.stop || nobody_holds_it {
            return;
        }
        let refused = status.refused();
        let before = (repaired.read(), refused, times >= TRY_AGAIN.len());
        let started = Round::start(config, status, hold_state, before, &recent);
        let end = match unless_silent(&config.replica, started).await {
            Ok(mut round) => {
                pause_ms = RETRY_MS_MIN;
                let running = async {
                    let end = round.run(&mut requests).await;
                    Err(losses.count(end, round.next()))
                };
                let Err(end) = unless_silent::<Infallible>(&config.replica, running).await;
                round.end().await;
                end
            }
            Err(end) => end,
        };
        let is_requested = matches!(end, End::Requested);
        hold_state.send_replace(if is_requested {
            HoldState::Applying
        } else {
            HoldState::Stopped
        });
        match end {
            End::Requested => {}
            End::Lost(reason) => {
                tracing::debug!(site = config.replica.site.name, reason, "not applying");
                config.replica.set_state(State::Failed, reason);
                wait_for_attempt(&mut requests, &requested, Some(pause_ms)).await;
                pause_ms = (pause_ms * 2).min(RETRY_MS_MAX);
            }
            End::Diverged(reason, refusal) => {
                let at = refusal.as_ref().map_or(Tsid::ZERO, |refusal| refusal.tsid);
                let mut before = requested;
                if at == refused {
                    times += 1;
                } else {
                    times = 1;
                    // A RESUME during the round, such as that of a pause, is no word on what was
                    // not known yet.
                    before.attempt = requests.borrow().attempt;
                }
                status.set_refused(at);
                // Without an entry it isn't one that is refused: another attempt would find the same.
                let again = refusal.as_ref().map_or(Again::Never, |refusal| refusal.again);
                let pauses = match again {
                    Again::Soon => &TRY_AGAIN[..],
                    Again::AtAnyTime => &TRY_PASSING,
                    Again::Never => &[],
                };
                let pause = pauses.get(times - 1);
                let blame = refusal.as_ref().and_then(|refusal| refusal.blame.as_ref());
                if let Some(blame) = blame
                    && blame.is_to_go(&config.replica, pause.is_none())
                {
                    config.replica.set_state(State::Failed, reason.clone());
                    if goes_on_without(config, blame, at, &reason).await {
                        continue;
                    }
                }
                match pause {
                    Some(_) => config.replica.set_state(State::Failed, reason),
                    None => tell_diverged(&config.replica, reason),
                }
                // The server's condition may change at any time.
                let pause = pause.or(pauses.last().filter(|_| again == Again::AtAnyTime));
                let pause_ms = pause.map(|pause| pause.as_millis() as u64);
                wait_for_attempt(&mut requests, &before, pause_ms).await;
            }
        }
    }
}

/// Connections that were lost at one entry, though the server answers: something in the entry ends them, such as a function
/// of rows that lets a timeout strike.
#[derive(Default)]
struct Losses {
    at: Tsid,
    times: u32,
}

impl Losses {
    /// How a round ended, at this entry: whoever lost the connection there often enough in a row gives the entry up.
    fn count(&mut self, end: End, next: Option<(Tsid, Option<Refusal>)>) -> End {
        let (End::Lost(reason), Some((at, awaited))) = (&end, next) else { return end };
        self.times = if at == self.at { self.times + 1 } else { 1 };
        self.at = at;
        if self.times < LOSSES_MAX {
            return end;
        }
        let reason = format!("the connection is lost whenever it is applied: {reason}");
        let blame = awaited.and_then(|refusal| refusal.blame);
        let again = Again::AtAnyTime;
        let told = format!("entry {at}: {reason}");
        End::Diverged(told, Some(Refusal { tsid: at, reason, again, blame }))
    }
}

/// Lets the replica go on without the rows of the table that is to blame; whether it can.
async fn goes_on_without(config: &Config, blame: &Blame, at: Tsid, reason: &str) -> bool {
    let Config { replica, .. } = config;
    let name = format!("{}.{}", blame.relation.schema, blame.relation.name);
    // (A materialized view's rows are written to hihooi.contents.)
    if blame.relation.schema == "hihooi" {
        return false;
    }
    let set_aside = async {
        set_aside::set_aside(config, &blame.relation, at, reason).await.map_err(End::from)
    };
    let site = &replica.site.name;
    match unless_silent(replica, set_aside).await {
        Ok(false) => false,
        Ok(true) => {
            tracing::warn!(
                site,
                table = name,
                reason,
                "the table is set aside at the replica, and read elsewhere"
            );
            true
        }
        Err(end) => {
            tracing::warn!(site, table = name, ?end, "the table can't be set aside at the replica");
            false
        }
    }
}

/// Publishes that only an operator can help. A replica that had failed for another reason is told of
/// once more.
fn tell_diverged(replica: &Replica, reason: String) {
    if replica.apply_state() == State::Failed {
        tracing::warn!(site = replica.site.name, reason, "the replica waits for an operator");
    }
    replica.set_stopped(reason);
}

/// Works with a replica for as long as it answers and isn't being replaced: one that doesn't counts as lost, since
/// the connections to it may never say so by themselves.
async fn unless_silent<T>(
    replica: &Replica,
    work: impl Future<Output = Result<T, End>>,
) -> Result<T, End> {
    tokio::select! {
        done = work => done,
        why = replica.silenced() => Err(End::Lost(why)),
    }
}

/// Waits until someone requests a new attempt or the end, or for the pause.
async fn wait_for_attempt(
    requests: &mut watch::Receiver<Requested>,
    before: &Requested,
    pause_ms: Option<u64>,
) {
    let requested = requests.wait_for(|requested| requested.is_new_attempt(before));
    match pause_ms {
        Some(pause_ms) => {
            // Time being up and a request are both reasons to go on.
            let _ = tokio::time::timeout(Duration::from_millis(pause_ms), requested).await;
        }
        None => {
            if requested.await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_lost_at_one_entry_over_and_over_give_it_up() {
        let mut losses = Losses::default();
        let mut lost = |at: Option<u64>| {
            let next = at.map(|at| (Tsid(at), None));
            matches!(losses.count(End::Lost("why".to_owned()), next), End::Diverged(_, Some(_)))
        };
        assert!(!(1..LOSSES_MAX).any(|_| lost(Some(7))));
        assert!(!lost(Some(8)) && !lost(None), "another one, or none, is its turn");
        assert!(!(2..LOSSES_MAX).any(|_| lost(Some(8))));
        assert!(lost(Some(8)) && lost(Some(8)));
        assert!(!lost(Some(9)));
    }
}
