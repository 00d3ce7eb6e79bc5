//! The section `[[user]]`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use hihooi_server::settings::Access;
use serde::{Deserialize, Serialize};

use super::{BadConfig, Config};

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
}
