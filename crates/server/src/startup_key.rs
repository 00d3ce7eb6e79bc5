//! The start-up parameters of a client's session. Server connections are opened with the same parameters, so
//! that `RESET`, role and database defaults, and everything else that PostgreSQL derives from them work at the
//! server.

use std::time::Duration;

use hihooi_sql::{Isolation, SearchPath};
use hihooi_wire::startup::Startup;

use crate::defaults::Defaults;

/// Bytes of a role's or database's name (`NAMEDATALEN` of PostgreSQL, less one).
const NAME_LEN_MAX: usize = 63;
/// The admin database.
pub const ADMIN_DATABASE: &str = "hihooi";

/// A client's start-up parameters, in a form that can be compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StartupKey {
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// All further parameters but hihooi's own, sorted by name.
    pub parameters: Vec<(String, String)>,
    /// What the role's sessions in the database started with when this one did.
    pub defaults: Defaults,
}

impl StartupKey {
    /// Whether its sessions may begin with another value of a setting than the server's.
    #[must_use]
    pub fn may_set(&self, setting: &str) -> bool {
        let given = self.parameters.iter().chain(&self.defaults.settings);
        given
            .into_iter()
            .any(|(name, value)| name == setting || name == "options" && value.contains(setting))
    }

    /// The key of a start-up packet, before the primary was asked for the defaults; `None` if it names
    /// no user.
    #[must_use]
    pub fn of(packet: &Startup) -> Option<StartupKey> {
        let user = cut(packet.get("user").filter(|user| !user.is_empty())?).to_owned();
        let database = packet.get("database").filter(|name| !name.is_empty()).unwrap_or(&user);
        let database = cut(database);
        let ours = |name: &str| name.starts_with("hihooi.") || name.starts_with("_pq_.");
        let mut parameters: Vec<_> = packet
            .parameters
            .iter()
            .filter(|(name, _)| name != "user" && name != "database" && !ours(name))
            .cloned()
            .collect();
        parameters.sort();
        let (database, defaults) = (database.to_owned(), Defaults::default());
        Some(StartupKey { database, user, parameters, defaults })
    }

    /// Whether two clients opened alike, whatever their role started with.
    #[must_use]
    pub fn is_like(&self, other: &StartupKey) -> bool {
        (&self.user, &self.database, &self.parameters)
            == (&other.user, &other.database, &other.parameters)
    }

    /// Whether it wants the admin database.
    #[must_use]
    pub fn wants_admin(&self) -> bool {
        self.database == ADMIN_DATABASE
    }

    /// Whether the client asks to be a replication client.
    #[must_use]
    pub fn is_replication(&self) -> bool {
        let off = |value: &str| matches!(value, "false" | "off" | "no" | "0");
        self.parameters.iter().any(|(name, value)| name == "replication" && !off(value))
    }
}

/// A name as PostgreSQL knows it: what is behind its longest length doesn't count, also for rules.
fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_LEN_MAX)]
}

/// What a client is told at start-up, and what its session starts with.
#[derive(Debug)]
pub struct Welcome {
    /// Parameters that the primary reported, names and values.
    pub parameters: Vec<(String, String)>,
    /// The role that is set (`none`, unless ALTER ROLE … SET role or the start-up options say otherwise).
    pub role: String,
    /// Where unqualified names are looked up.
    pub path: SearchPath,
    /// The isolation level of transactions, unless they say otherwise.
    pub isolation: Isolation,
    /// How long the session may wait for its client outside of a transaction.
    pub idle_limit: Option<Duration>,
    /// The version of the primary's configuration, before it was asked.
    pub configuration_version: u64,
}
