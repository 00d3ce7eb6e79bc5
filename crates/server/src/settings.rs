//! What the operator sets, and may set anew while clients are served (RELOAD, SIGHUP): each client gets what is in
//! force when it connects. Bounds, and what counts for all, apply at once.

use std::collections::BTreeMap;
use std::time::Duration;

use hihooi_session::consistency::Consistency;
use hihooi_session::session::IdleLimits;
use serde::{Deserialize, Serialize};

use crate::authentication::Authentication;
use crate::pool::Bounds;
use crate::tls::Tls;

/// What the operator set.
#[derive(Debug)]
pub struct Settings {
    /// Encryption of clients' connections, if it is offered.
    pub tls: Option<Tls>,
    /// How clients prove who they are; without it, nobody does.
    pub authentication: Option<Authentication>,
    /// Roles that may use the admin database, and for what.
    pub admins: BTreeMap<String, Access>,
    /// Server connections per user, database and site.
    pub pool_size: usize,
    /// How long a client waits for a server connection, milliseconds.
    pub pool_wait_ms_max: u64,
    /// A server connection that nobody has used for so long is closed, milliseconds; 0 is never.
    pub pool_idle_ms_max: u64,
    /// Bounds for clients.
    pub limits: Limits,
    /// Level of a session that asks for none.
    pub consistency: Consistency,
    /// How long a read waits for a replica, milliseconds.
    pub wait_ms: u64,
    /// How long a commit at the level `sync` waits for replicas, milliseconds.
    pub sync_timeout_ms: u64,
    /// The replicas' shares of reads, in the order of the configuration.
    pub weights: Vec<u32>,
    /// The configuration as `SHOW CONFIG` tells it.
    pub shown: Vec<Shown>,
}

/// What a role may do in the admin database; more includes less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// See how the cluster is.
    Read,
    /// All.
    Full,
}

/// Longest time of `[limits]`, milliseconds: 24 days, as for PostgreSQL's time limits.
const LIMIT_MS_MAX: u64 = i32::MAX as u64;
/// Shortest `login_ms_max`, as for PostgreSQL's `authentication_timeout`.
const LOGIN_MS_MIN: u64 = 1_000;

/// Bounds for clients (I8), the section `[limits]` of the configuration; 0 is none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Clients at once.
    pub clients_max: usize,
    /// Clients of one role at once.
    pub clients_per_user_max: usize,
    /// Clients of one database at once.
    pub clients_per_database_max: usize,
    /// How long a client may take until it has proved who it is, milliseconds; at least a second.
    pub login_ms_max: u64,
    /// How long a client may be idle outside of a transaction, milliseconds.
    pub idle_ms_max: u64,
    /// How long a client may be idle in a transaction, milliseconds.
    pub transaction_idle_ms_max: u64,
}

/// A setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Its key in the configuration file.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The value that the file has, if that takes a restart.
    pub after_restart: Option<String>,
}

impl Settings {
    /// Bounds of the pools.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { size: self.pool_size, wait: Duration::from_millis(self.pool_wait_ms_max) }
    }

    /// How long a server connection may be unused.
    pub(crate) fn pool_idle_max(&self) -> Option<Duration> {
        bound(self.pool_idle_ms_max)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients_max: 10_000,
            clients_per_user_max: 0,
            clients_per_database_max: 0,
            login_ms_max: 60_000,
            idle_ms_max: 0,
            transaction_idle_ms_max: 0,
        }
    }
}

impl Limits {
    /// Checks the numbers.
    ///
    /// # Errors
    /// One line that says what to change.
    pub fn check(&self) -> Result<(), String> {
        for (key, ms, min) in [
            ("login_ms_max", self.login_ms_max, LOGIN_MS_MIN),
            ("idle_ms_max", self.idle_ms_max, 0),
            ("transaction_idle_ms_max", self.transaction_idle_ms_max, 0),
        ] {
            if !(min..=LIMIT_MS_MAX).contains(&ms) {
                return Err(format!(
                    "limits.{key} must be between {min} and {LIMIT_MS_MAX}, not {ms}"
                ));
            }
        }
        Ok(())
    }

    /// How long a client may take until it has proved who it is.
    pub(crate) fn login_max(&self) -> Duration {
        Duration::from_millis(self.login_ms_max)
    }

    /// How long clients may be idle.
    pub(crate) fn idle(&self) -> IdleLimits {
        IdleLimits {
            outside: bound(self.idle_ms_max),
            in_transaction: bound(self.transaction_idle_ms_max),
        }
    }
}

fn bound(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}
