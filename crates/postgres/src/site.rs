//! Sites: the PostgreSQL servers of a cluster, and what the rest of the process may know of a
//! replica at any moment.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hihooi_replication::ids::Tsid;
use tokio::sync::watch;

use crate::connection::Address;

/// What a site is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes the writes.
    Primary,
    /// Serves reads.
    Replica,
    /// Serves nobody; others are cloned from it.
    Seed,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Primary => "primary",
            Role::Replica => "replica",
            Role::Seed => "seed",
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

/// Where a replica stands (`SHOW REPLICAS`, column state).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Its first copy is being made.
    Cloning = 0,
    /// It applies what it missed; reads whose items are fresh there may be served already.
    CatchingUp = 1,
    /// Close behind the primary.
    Serving = 2,
    /// Applies nothing on the operator's request; serves what is fresh.
    Paused = 3,
    /// Takes no new reads and will leave.
    Draining = 4,
    /// Out of routing; the reason is told.
    Failed = 5,
    /// Known to differ from the primary: out of routing, although it applies.
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
            4 => State::Draining,
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
            State::Draining => "draining",
            State::Failed => "failed",
            State::Different => "different",
        })
    }
}

/// What is known of a replica: written by its applier, read by the router without a lock.
#[derive(Debug)]
pub struct Replica {
    /// The server.
    pub site: Site,
    applied: AtomicU64,
    state: AtomicU8,
    reason: Mutex<String>,
    /// How it differs from the primary, if it is known to.
    difference: Mutex<String>,
    is_different: AtomicBool,
    progress: watch::Sender<Tsid>,
}

impl Replica {
    /// A replica of which nothing is known yet.
    #[must_use]
    pub fn new(site: Site) -> Replica {
        Replica {
            site,
            applied: AtomicU64::new(0),
            state: AtomicU8::new(State::Failed as u8),
            reason: Mutex::new("not connected yet".to_owned()),
            difference: Mutex::default(),
            is_different: AtomicBool::new(false),
            progress: watch::Sender::new(Tsid::ZERO),
        }
    }

    /// The applied prefix: every entry up to here is visible at the replica (I2).
    #[must_use]
    pub fn applied(&self) -> Tsid {
        Tsid(self.applied.load(Ordering::Acquire))
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        match self.apply_state() {
            state if state.is_readable() && self.is_different.load(Ordering::Acquire) => {
                State::Different
            }
            state => state,
        }
    }

    /// Where its applier stands, be it different or not.
    #[must_use]
    pub fn apply_state(&self) -> State {
        State::from_u8(self.state.load(Ordering::Acquire))
    }

    /// Why it stands there; empty while all is well.
    #[must_use]
    pub fn reason(&self) -> String {
        let lock = if self.state() == State::Different { &self.difference } else { &self.reason };
        lock.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes how the replica differs from the primary, or, if empty, that it isn't known to.
    pub fn set_difference(&self, difference: impl Into<String>) {
        let difference = difference.into();
        let is_different = !difference.is_empty();
        *self.difference.lock().unwrap_or_else(PoisonError::into_inner) = difference;
        self.is_different.store(is_different, Ordering::Release);
        self.progress.send_replace(self.applied());
    }

    /// Wakes whoever waits for the applied prefix or the state to change.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Tsid> {
        self.progress.subscribe()
    }

    /// Publishes the applied prefix. After a crash of the replica it may go back.
    pub fn set_applied(&self, tsid: Tsid) {
        self.applied.store(tsid.0, Ordering::Release);
        self.progress.send_replace(tsid);
    }

    /// Publishes a new state and its reason.
    pub fn set_state(&self, state: State, reason: impl Into<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason.into();
        self.state.store(state as u8, Ordering::Release);
        self.progress.send_replace(self.applied());
    }
}
