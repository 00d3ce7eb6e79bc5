//! What a client opened its session with. Server connections are opened with the same, so that
//! `RESET`, role and database defaults and everything else that PostgreSQL derives from it are
//! the server's own doing.

use hihooi_wire::startup::Startup;

/// A client's start-up parameters, in a form that can be compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StartupKey {
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// All further parameters but hihooi's own, sorted by name.
    pub parameters: Vec<(String, String)>,
    /// How often defaults of roles and databases had changed when the session began: what a
    /// server connection starts with depends on them as well.
    pub defaults: u64,
}

impl StartupKey {
    /// The key of a start-up packet; `None` if it names no user.
    #[must_use]
    pub fn of(packet: &Startup, defaults: u64) -> Option<StartupKey> {
        let user = packet.get("user").filter(|user| !user.is_empty())?.to_owned();
        let database = packet.get("database").filter(|name| !name.is_empty()).unwrap_or(&user);
        let ours = |name: &str| name.starts_with("hihooi.") || name.starts_with("_pq_.");
        let mut parameters: Vec<_> = packet
            .parameters
            .iter()
            .filter(|(name, _)| name != "user" && name != "database" && !ours(name))
            .cloned()
            .collect();
        parameters.sort();
        Some(StartupKey { database: database.to_owned(), user, parameters, defaults })
    }

    /// Whether the client asks to be a replication client.
    #[must_use]
    pub fn is_replication(&self) -> bool {
        let off = |value: &str| matches!(value, "false" | "off" | "no" | "0");
        self.parameters.iter().any(|(name, value)| name == "replication" && !off(value))
    }
}
