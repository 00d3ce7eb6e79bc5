//! The sections `[limits]`, which bounds clients, and `[[user]]`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use hihooi_server::settings::{self, Access};
use serde::{Deserialize, Serialize};

use super::{BadConfig, Config};

/// Longest time of `[limits]`, milliseconds: 24 days.
pub const LIMIT_MS_MAX: u64 = i32::MAX as u64;
/// Shortest `limits.login_ms_max`, as for PostgreSQL's `authentication_timeout`.
pub const LOGIN_MS_MIN: u64 = 1_000;

/// Bounds for clients; 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Clients at once.
    pub clients_max: usize,
    /// Clients of one role at once.
    pub clients_per_user_max: usize,
    /// Clients of one database at once.
    pub clients_per_database_max: usize,
    /// How long a client may take until it has proved who it is, milliseconds ([`LOGIN_MS_MIN`] to [`LIMIT_MS_MAX`]).
    pub login_ms_max: u64,
    /// How long a client may be idle outside of a transaction, milliseconds.
    pub idle_ms_max: u64,
    /// How long a client may be idle in a transaction, milliseconds.
    pub transaction_idle_ms_max: u64,
}

/// A role that the operator has something to say about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Its name.
    pub name: String,
    /// What it may do in the admin database.
    pub admin: AdminAccess,
}

/// What a role may do in the admin database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminAccess {
    /// See how the cluster is.
    Read,
    /// All.
    Full,
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
    pub fn check(&self) -> Result<(), BadConfig> {
        for (key, ms, min) in [
            ("login_ms_max", self.login_ms_max, LOGIN_MS_MIN),
            ("idle_ms_max", self.idle_ms_max, 0),
            ("transaction_idle_ms_max", self.transaction_idle_ms_max, 0),
        ] {
            if !(min..=LIMIT_MS_MAX).contains(&ms) {
                return Err(BadConfig(format!(
                    "limits.{key} must be between {min} and {LIMIT_MS_MAX}, not {ms}"
                )));
            }
        }
        Ok(())
    }

    /// As the relay takes them.
    #[must_use]
    pub fn settings(&self) -> settings::Limits {
        settings::Limits {
            clients_max: self.clients_max,
            clients_per_user_max: self.clients_per_user_max,
            clients_per_database_max: self.clients_per_database_max,
            login_ms_max: self.login_ms_max,
            idle_ms_max: self.idle_ms_max,
            transaction_idle_ms_max: self.transaction_idle_ms_max,
        }
    }
}

impl Config {
    /// Who may use the admin database, and for what. What `[[user]]` says of a role counts more than `admin_users`.
    #[must_use]
    pub fn admins(&self) -> BTreeMap<String, Access> {
        let listed = self.admin_users.iter().map(|name| (name.clone(), Access::Full));
        let users = self.users.iter().map(|user| (user.name.clone(), user.admin.into()));
        listed.chain(users).collect()
    }
}

impl From<AdminAccess> for Access {
    fn from(access: AdminAccess) -> Access {
        match access {
            AdminAccess::Read => Access::Read,
            AdminAccess::Full => Access::Full,
        }
    }
}

/// As `--user` takes it.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let admin = match self.admin {
            AdminAccess::Read => "read",
            AdminAccess::Full => "full",
        };
        write!(f, "name={},admin={admin}", self.name)
    }
}

/// `name=monitor,admin=read`, as `--user` takes it.
impl FromStr for User {
    type Err = BadConfig;

    fn from_str(text: &str) -> Result<User, BadConfig> {
        let pair = |pair: &str| {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| BadConfig(format!("{pair:?} is not key=value (name, admin)")))?;
            Ok((key.trim().to_owned(), toml::Value::String(value.trim().to_owned())))
        };
        let table = text.split(',').map(pair).collect::<Result<toml::Table, BadConfig>>()?;
        table.try_into().map_err(|error: toml::de::Error| {
            BadConfig(error.message().lines().collect::<Vec<_>>().join(" "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_access_to_the_admin_database() {
        let config = Config::parse(
            "admin_users = ['a', 'b']\n\
             [[user]]\nname = 'b'\nadmin = 'read'\n[[user]]\nname = 'c'\nadmin = 'full'",
        );
        let config = config.expect("valid");
        let admins: Vec<_> = config.admins().into_iter().collect();
        let expected = [("a", Access::Full), ("b", Access::Read), ("c", Access::Full)];
        assert_eq!(admins, expected.map(|(name, access)| (name.to_owned(), access)));
        assert_eq!(Config::parse(&config.to_text()), Ok(config.clone()));
        let monitor: User = "name=monitor, admin=read".parse().expect("valid");
        assert_eq!((monitor.name.as_str(), monitor.admin), ("monitor", AdminAccess::Read));
        for wrong in ["monitor", "name=monitor", "name=monitor,admin=some", "name=a,colour=red"] {
            let error = wrong.parse::<User>().expect_err(wrong).to_string();
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(Config::parse("[[user]]\nname = 'b'").is_err(), "nothing is said of it");
    }

    #[test]
    fn limits_out_of_bounds_are_refused_by_their_keys() {
        assert_eq!(Limits::default().check(), Ok(()));
        for text in
            ["login_ms_max = 0", "idle_ms_max = 2147483648", "transaction_idle_ms_max = 2147483648"]
        {
            let config = Config::parse(&format!("[limits]\n{text}")).expect("valid");
            let error = config.check_limits().expect_err(text).to_string();
            let key = text.split(' ').next().expect("a key");
            assert!(error.starts_with(&format!("limits.{key} ")), "{error}");
        }
    }
}
