//! Sites: the PostgreSQL servers of a cluster, and the state of each replica, which all parts of the process
//! can read.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hihooi_replication::ids::Tsid;
use hihooi_replication::items::{Items, RelId};
use tokio::sync::watch;

use crate::connection::Address;

/// What a site is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes the writes.
    Primary,
    /// Serves reads.
    Replica,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Primary => "primary",
            Role::Replica => "replica",
        })
    }
}

/// A PostgreSQL server that we manage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Its name in every SHOW, config and route: `primary`, `replica1` …
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Where it listens.
    pub address: Address,
    /// The superuser that we use there.
    pub user: String,
}

/// State of a replica (`SHOW REPLICAS`, column state).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// It is being replaced by a copy of the primary.
    Cloning = 0,
    /// It applies what it missed; reads whose items are fresh there may be served already.
    CatchingUp = 1,
    /// Close behind the primary.
    Serving = 2,
    /// Applies nothing, by PAUSE REPLICA; serves reads of tables that have not changed since.
    Paused = 3,
    /// Not read; `SHOW REPLICAS` gives the reason.
    Failed = 5,
    /// Known to differ from the primary, in what it holds or how it sorts: out of routing, although it
    /// applies.
    Different = 6,
}

impl State {
    /// Whether reads may be routed there, freshness aside.
    #[must_use]
    pub fn is_readable(self) -> bool {
        matches!(self, State::CatchingUp | State::Serving | State::Paused)
    }

    /// Whether entries are being applied there.
    #[must_use]
    pub fn applies(self) -> bool {
        matches!(self, State::CatchingUp | State::Serving)
    }

    fn from_u8(value: u8) -> State {
        match value {
            0 => State::Cloning,
            1 => State::CatchingUp,
            2 => State::Serving,
            3 => State::Paused,
            6 => State::Different,
            _ => State::Failed,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Cloning => "cloning",
            State::CatchingUp => "catching_up",
            State::Serving => "serving",
            State::Paused => "paused",
            State::Failed => "failed",
            State::Different => "different",
        })
    }
}

/// Processes that are remembered as ended.
const ENDED_MAX: usize = 64;

/// What is known of a replica, read by the router without a lock. Its applier reports its state;
/// while it doesn't answer at all ([`Replica::set_silence`]) it counts as failed, whatever that was, while it
/// is replaced by a copy of the primary it is none of these, and while it is known to differ from the primary,
/// nothing is read there.
#[derive(Debug)]
pub struct Replica {
    /// The server.
    pub site: Site,
    applied: AtomicU64,
    /// Up to here, COMMITs have been sent to it.
    sent: AtomicU64,
    /// How often an applier has begun there.
    rounds: AtomicU64,
    /// The state in force, a [`State`].
    state: AtomicU8,
    is_silent: AtomicBool,
    reported: Mutex<Reported>,
    absence: watch::Sender<Absence>,
    /// What it holds, or will hold when it has been copied, reaches up to here at least.
    copied_from: AtomicU64,
    /// How often it was replaced by a copy of the primary since this manager began.
    rebuilds: AtomicU64,
    /// When last.
    rebuilt_at: Mutex<Option<Instant>>,
    progress: watch::Sender<Tsid>,
    /// Tables whose rows it doesn't follow.
    set_aside: Mutex<Arc<TablesSetAside>>,
    /// How often these became others.
    set_aside_changes: AtomicU64,
    /// Up to where it may commit at this moment.
    limit: watch::Sender<Tsid>,
    /// Server processes whose statements the applier ended, the newest last.
    ended: Mutex<VecDeque<i32>>,
    /// Set if hihooi keeps the server running.
    trouble: OnceLock<Trouble>,
}

/// Why a server that hihooi keeps running doesn't run, as its supervision reports it; empty while it does.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<String>>);

impl Trouble {
    /// Why the server doesn't run at the moment; empty if it does.
    #[must_use]
    pub fn reason(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports why it doesn't, or, if empty, that it does.
    pub fn set(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

/// Tables whose rows a replica doesn't follow, by their OIDs at the primary, since writing them fails there: their
/// names and why, for the operator. They are read elsewhere.
pub type TablesSetAside = BTreeMap<RelId, (String, String)>;

/// Why nobody may use a replica, if so.
#[derive(Debug, Default)]
struct Absence {
    /// Why it counts as silent, while it does.
    silence: Option<String>,
    /// How far it is copied, while it is.
    cloning: Option<String>,
}

impl Absence {
    fn why(&self) -> Option<&String> {
        self.cloning.as_ref().or(self.silence.as_ref())
    }
}

/// What was reported last.
#[derive(Debug)]
struct Reported {
    /// By the applier.
    state: State,
    reason: String,
    /// The applier doesn't try again by itself.
    is_stopped: bool,
    /// How it differs from the primary; empty if it isn't known to.
    difference: String,
    /// Why it would answer otherwise than the primary from the same rows, if it would.
    unfit: Option<String>,
    /// The state that the operator's log was last told.
    logged: Option<State>,
    /// When that began.
    since: SystemTime,
}

impl Replica {
    /// A replica of which nothing is known yet.
    #[must_use]
    pub fn new(site: Site) -> Replica {
        let reason = "not connected yet".to_owned();
        Replica {
            site,
            applied: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            state: AtomicU8::new(State::Failed as u8),
            is_silent: AtomicBool::new(false),
            reported: Mutex::new(Reported {
                state: State::Failed,
                reason,
                is_stopped: false,
                difference: String::new(),
                unfit: None,
                logged: None,
                since: SystemTime::now(),
            }),
            absence: watch::Sender::default(),
            copied_from: AtomicU64::new(0),
            rebuilds: AtomicU64::new(0),
            rebuilt_at: Mutex::default(),
            progress: watch::Sender::new(Tsid::ZERO),
            set_aside: Mutex::default(),
            set_aside_changes: AtomicU64::new(0),
            limit: watch::Sender::new(Tsid::MAX),
            ended: Mutex::default(),
            trouble: OnceLock::new(),
        }
    }

    /// From now on, its reason is why the server doesn't run, while it doesn't.
    pub fn explain(&self, trouble: Trouble) {
        // Once is enough: one supervision keeps a server for as long as there is a manager.
        let _ = self.trouble.set(trouble);
    }

    /// The applied prefix: every entry up to here is visible at the replica (I2).
    #[must_use]
    pub fn applied(&self) -> Tsid {
        Tsid(self.applied.load(Ordering::Acquire))
    }

    /// Up to here, COMMITs have been sent to it: nothing beyond is visible there.
    pub fn sent(&self) -> Tsid {
        Tsid(self.sent.load(Ordering::Acquire))
    }

    /// A COMMIT of the entries up to here is about to be sent to it.
    pub fn set_sent(&self, tsid: Tsid) {
        self.sent.store(tsid.0, Ordering::Release);
    }

    /// For a moment it commits nothing beyond this position; what it has been sent already may be beyond.
    /// [`Tsid::MAX`] lifts that.
    pub fn set_limit(&self, tsid: Tsid) {
        self.limit.send_replace(tsid);
    }

    /// Up to where it may commit.
    #[must_use]
    pub fn limit(&self) -> watch::Receiver<Tsid> {
        self.limit.subscribe()
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_u8(self.state.load(Ordering::Acquire))
    }

    /// The state that its applier reported, whatever else is known.
    #[must_use]
    pub fn apply_state(&self) -> State {
        self.lock().state
    }

    /// Why it is in that state; empty while it serves and gets on.
    #[must_use]
    pub fn reason(&self) -> String {
        let reported = self.lock();
        let (state, reason) = self.in_force(&reported);
        let is_lost = state == State::Failed && !reported.is_stopped;
        let trouble = self.trouble.get().filter(|_| is_lost).map(Trouble::reason);
        trouble.filter(|trouble| !trouble.is_empty()).unwrap_or(reason)
    }

    /// When its state began.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.lock().since
    }

    /// Whether it does not answer: it is frozen or out of reach, and what waits for it waits in vain.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Acquire)
    }

    /// Waits until it does not answer, or is being replaced; why.
    pub async fn silenced(&self) -> String {
        let mut absence = self.absence.subscribe();
        let absence = absence.wait_for(|absence| absence.why().is_some()).await;
        let why = absence.ok().and_then(|absence| absence.why().cloned());
        why.expect("the replica itself keeps the channel open")
    }

    /// Waits until it answers, and isn't being replaced.
    pub async fn answering(&self) {
        let mut absence = self.absence.subscribe();
        let answers = absence.wait_for(|absence| absence.why().is_none()).await.is_ok();
        assert!(answers, "the replica itself keeps the channel open");
    }

    /// Whether it is being replaced by a copy of the primary.
    #[must_use]
    pub fn is_cloning(&self) -> bool {
        self.absence.borrow().cloning.is_some()
    }

    /// Publishes how far it is being replaced by a copy of the primary, or that it isn't (any more).
    pub fn set_cloning(&self, progress: Option<String>) {
        let mut reported = self.lock();
        self.absence.send_modify(|absence| absence.cloning = progress);
        self.publish(&mut reported);
    }

    /// A copy of the primary holds everything up to here at least.
    pub fn set_copied_from(&self, tsid: Tsid) {
        self.copied_from.store(tsid.0, Ordering::Release);
    }

    /// Up to here it holds everything at least, or will when it has been copied.
    #[must_use]
    pub fn copied_from(&self) -> Tsid {
        Tsid(self.copied_from.load(Ordering::Acquire))
    }

    /// It was replaced by a copy of the primary.
    pub fn count_rebuild(&self) {
        *self.rebuilt_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.rebuilds.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether it was replaced by a copy of the primary so long ago or less.
    #[must_use]
    pub fn was_rebuilt_within(&self, time: Duration) -> bool {
        let rebuilt_at = self.rebuilt_at.lock().unwrap_or_else(PoisonError::into_inner);
        rebuilt_at.is_some_and(|at| at.elapsed() <= time)
    }

    /// How often it was replaced by a copy of the primary since this manager began.
    #[must_use]
    pub fn rebuilds(&self) -> u64 {
        self.rebuilds.load(Ordering::Acquire)
    }

    /// Wakes tasks that wait for the applied prefix or the state to change.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Tsid> {
        self.progress.subscribe()
    }

    /// Publishes the applied prefix. After a crash of the replica it may go back.
    pub fn set_applied(&self, tsid: Tsid) {
        self.applied.store(tsid.0, Ordering::Release);
        self.progress.send_replace(tsid);
    }

    /// An applier begins there, behind this applied prefix.
    pub fn begin_round(&self, applied: Tsid) {
        self.rounds.fetch_add(1, Ordering::AcqRel);
        self.set_sent(applied);
        self.set_applied(applied);
    }

    /// Tables whose rows it doesn't follow.
    #[must_use]
    pub fn set_aside(&self) -> Arc<TablesSetAside> {
        Arc::clone(&self.set_aside.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes which tables it doesn't follow: before it goes on without their rows, and after it has them again.
    pub fn set_tables_aside(&self, tables: TablesSetAside) {
        let mut reported = self.lock();
        let mut set_aside = self.set_aside.lock().unwrap_or_else(PoisonError::into_inner);
        if **set_aside == tables {
            return;
        }
        *set_aside = Arc::new(tables);
        drop(set_aside);
        self.set_aside_changes.fetch_add(1, Ordering::AcqRel);
        self.publish(&mut reported);
    }

    /// How often these tables became others. A read is to be run elsewhere if they did since it was [found](Replica::lacks)
    /// that it can run there: the answer may show some tables as they are, and one as it was.
    #[must_use]
    pub fn set_aside_changes(&self) -> u64 {
        self.set_aside_changes.load(Ordering::Acquire)
    }

    /// Whether it doesn't follow all that a read reads.
    #[must_use]
    pub fn lacks(&self, items: &Items) -> bool {
        if self.set_aside_changes() == 0 {
            return false;
        }
        let set_aside = self.set_aside();
        match items {
            Items::Nothing => false,
            Items::Everything => !set_aside.is_empty(),
            Items::Tables(items) => items.iter().any(|item| set_aside.contains_key(&item.table)),
        }
    }

    /// How often an applier has begun there. Before, the replica may have gone back and made its objects
    /// anew, or have been repaired by hand: they may have other OIDs now.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Remembers that a server process is ended there because it delays the applier.
    pub fn ends_session(&self, process: i32) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|other| *other != process);
        if ended.len() == ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(process);
    }

    /// Whether the applier ended that server process; asked once, by the session that got its error.
    #[must_use]
    pub fn has_ended_session(&self, process: i32) -> bool {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let before = ended.len();
        ended.retain(|other| *other != process);
        ended.len() < before
    }

    /// Publishes a new state and its reason.
    pub fn set_state(&self, state: State, reason: impl Into<String>) {
        let mut reported = self.lock();
        (reported.state, reported.reason) = (state, reason.into());
        reported.is_stopped = false;
        self.publish(&mut reported);
    }

    /// Publishes that changes can't be applied, and that this isn't tried again without an operator.
    pub fn set_stopped(&self, reason: impl Into<String>) {
        let mut reported = self.lock();
        (reported.state, reported.reason) = (State::Failed, reason.into());
        reported.is_stopped = true;
        self.publish(&mut reported);
    }

    /// Why changes can't be applied, if this isn't tried again without an operator.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        let reported = self.lock();
        reported.is_stopped.then(|| reported.reason.clone())
    }

    /// Publishes that it does not answer and why that is thought, or that it answers again.
    pub fn set_silence(&self, why: Option<String>) {
        let mut reported = self.lock();
        self.is_silent.store(why.is_some(), Ordering::Release);
        self.absence.send_modify(|absence| absence.silence = why);
        self.publish(&mut reported);
    }

    /// Publishes how the replica differs from the primary, or, if empty, that it isn't known to.
    pub fn set_difference(&self, difference: impl Into<String>) {
        let (mut reported, difference) = (self.lock(), difference.into());
        if reported.difference != difference {
            reported.difference = difference;
            self.publish(&mut reported);
        }
    }

    /// Publishes why it would answer otherwise than the primary from the same rows, or that it would not.
    pub fn set_unfit(&self, why: Option<String>) {
        let mut reported = self.lock();
        if reported.unfit != why {
            reported.unfit = why;
            self.publish(&mut reported);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state that others see, and its reason.
    fn in_force(&self, reported: &Reported) -> (State, String) {
        let absence = self.absence.borrow();
        if let Some(progress) = &absence.cloning {
            return (State::Cloning, progress.clone());
        }
        if let Some(why) = &absence.silence {
            return (State::Failed, why.clone());
        }
        let known = (!reported.difference.is_empty()).then_some(&reported.difference);
        match known.or(reported.unfit.as_ref()) {
            Some(why) if reported.state.is_readable() => (State::Different, why.clone()),
            _ if reported.reason.is_empty() => (reported.state, self.why_set_aside()),
            _ => (reported.state, reported.reason.clone()),
        }
    }

    /// Which tables are set aside and why; empty if none is.
    fn why_set_aside(&self) -> String {
        let set_aside = self.set_aside();
        let Some((name, reason)) = set_aside.values().next() else { return String::new() };
        let others = match set_aside.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        format!(
            "table {name}{others} is set aside: not kept here, and read on the primary, until the replica is rebuilt or the \
             table is emptied by TRUNCATE: {reason}"
        )
    }

    /// Brings what others see up to date.
    fn publish(&self, reported: &mut Reported) {
        let (state, reason) = self.in_force(reported);
        self.state.store(state as u8, Ordering::Release);
        self.progress.send_replace(self.applied());
        let before = reported.logged;
        if before != Some(state) {
            self.log(before, state, &reason);
            (reported.logged, reported.since) = (Some(state), SystemTime::now());
        }
    }

    /// Tells the operator of a new state: of each failure its beginning and its end, once.
    fn log(&self, before: Option<State>, state: State, reason: &str) {
        let site = &self.site.name;
        match (before, state) {
            (_, State::Failed) => tracing::warn!(site, reason, "the replica has failed"),
            (_, State::Different) => tracing::error!(site, reason, "the replica is not read"),
            // At the same level as the beginning, so that a log with one has the other.
            (Some(State::Failed | State::Different | State::Cloning), _)
                if state != State::Cloning =>
            {
                tracing::warn!(site, %state, "the replica is back")
            }
            _ if reason.is_empty() => tracing::info!(site, "the replica is {state}"),
            _ => tracing::info!(site, reason, "the replica is {state}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        let address = Address::plain("127.0.0.1", 1);
        let (name, user) = ("replica1".to_owned(), "postgres".to_owned());
        Replica::new(Site { name, role: Role::Replica, address, user })
    }

    #[test]
    fn silence_counts_more_than_what_the_applier_reported() {
        let replica = replica();
        replica.set_state(State::Serving, "");
        replica.set_silence(Some("no answer".to_owned()));
        // An applier that has not noticed yet.
        replica.set_state(State::CatchingUp, "behind");
        assert_eq!((replica.state(), replica.reason().as_str()), (State::Failed, "no answer"));
        replica.set_silence(None);
        assert_eq!((replica.state(), replica.reason().as_str()), (State::CatchingUp, "behind"));
        assert!(!replica.is_silent());
    }

    #[test]
    fn why_a_server_does_not_run_explains_a_lost_connection_only() {
        let (replica, trouble) = (replica(), Trouble::default());
        replica.explain(trouble.clone());
        trouble.set("its configuration is wrong".to_owned());
        replica.set_state(State::Failed, "connection refused");
        assert_eq!(replica.reason(), "its configuration is wrong");
        replica.set_stopped("entry 7: refused");
        assert_eq!(replica.reason(), "entry 7: refused");
        trouble.set(String::new());
        replica.set_state(State::Failed, "connection refused");
        assert_eq!(replica.reason(), "connection refused");
    }

    #[test]
    fn what_is_copied_is_neither_silent_nor_failed() {
        let replica = replica();
        replica.set_stopped("entry 7: refused");
        assert_eq!(replica.stopped().as_deref(), Some("entry 7: refused"));
        replica.set_cloning(Some("12 %".to_owned()));
        replica.set_silence(Some("no answer".to_owned()));
        replica.set_state(State::Failed, "connection lost");
        assert_eq!((replica.state(), replica.reason().as_str()), (State::Cloning, "12 %"));
        assert!(!replica.state().is_readable() && replica.is_cloning());
        replica.set_cloning(None);
        assert_eq!((replica.state(), replica.reason().as_str()), (State::Failed, "no answer"));
        assert_eq!(replica.stopped(), None);
    }

    #[test]
    fn reads_of_tables_that_are_set_aside_run_elsewhere() {
        let replica = replica();
        replica.set_state(State::Serving, "");
        let reads = |tables: &[u32]| Items::tables(tables.iter().copied().map(RelId));
        assert!(!replica.lacks(&Items::Everything));
        let why = ("app.t".to_owned(), "INSERT app.t (id)=(1): no".to_owned());
        replica.set_tables_aside([(RelId(7), why)].into());
        assert!(replica.lacks(&reads(&[6, 7])) && replica.lacks(&Items::Everything));
        assert!(!replica.lacks(&reads(&[6, 8])) && !replica.lacks(&Items::Nothing));
        assert_eq!(replica.state(), State::Serving);
        assert!(replica.reason().contains("app.t is set aside"), "{}", replica.reason());
        replica.set_tables_aside(replica.set_aside().as_ref().clone());
        assert_eq!(replica.set_aside_changes(), 1, "nothing new");
        replica.set_tables_aside(TablesSetAside::new());
        assert!(!replica.lacks(&Items::Everything) && replica.reason().is_empty());
        assert_eq!(replica.set_aside_changes(), 2);
    }

    #[test]
    fn an_applier_that_begins_is_counted_before_its_position_shows() {
        let replica = replica();
        replica.begin_round(Tsid(8));
        replica.set_applied(Tsid(9));
        assert_eq!((replica.applied(), replica.rounds()), (Tsid(9), 1));
        replica.begin_round(Tsid(7));
        assert_eq!((replica.applied(), replica.rounds()), (Tsid(7), 2));
    }
}
