//! The section `[[user]]`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hihooi_postgres::tls::Identity;
use hihooi_server::settings::Access;
use serde::{Deserialize, Serialize};

use super::{BadConfig, Config};

/// A role that the operator has something to say about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Its name.
    pub name: String,
    /// What it may do in the admin database, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<AdminAccess>,
    /// The certificate with which hihooi logs in for it at servers that ask for one, followed by those that certify it,
    /// in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The private key of `cert_file`, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
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

impl User {
    /// One of whom nothing is said yet.
    #[must_use]
    pub fn named(name: String) -> User {
        User { name, admin: None, cert_file: None, key_file: None }
    }

    fn identity(&self) -> Result<Option<Identity>, String> {
        Identity::of(self.cert_file.as_ref(), self.key_file.as_ref())
    }
}

impl Config {
    /// Who may use the admin database, and for what. What `[[user]]` says of a role counts more than `admin_users`.
    #[must_use]
    pub fn admins(&self) -> BTreeMap<String, Access> {
        let listed = self.admin_users.iter().map(|name| (name.clone(), Access::Full));
        let users = self.users.iter();
        let users = users.filter_map(|user| Some((user.name.clone(), user.admin?.into())));
        listed.chain(users).collect()
    }

    /// The certificates with which hihooi logs in for single roles.
    #[must_use]
    pub fn identities(&self) -> BTreeMap<String, Identity> {
        let users = self.users.iter();
        let identity = |user: &User| Some((user.name.clone(), user.identity().ok().flatten()?));
        users.filter_map(identity).collect()
    }

    pub(super) fn check_users(&self) -> Result<(), BadConfig> {
        for (at, user) in self.users.iter().enumerate() {
            let bad = |what: &str| BadConfig(format!("user {:?}: {what}", user.name));
            let identity = user.identity().map_err(|what| bad(&what))?;
            if identity.is_none() && user.admin.is_none() {
                return Err(bad("nothing is said of it: set admin, or cert_file and key_file"));
            }
            if self.users[..at].iter().any(|other| other.name == user.name) {
                return Err(bad("it is there twice"));
            }
        }
        Ok(())
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
        write!(f, "name={}", self.name)?;
        match self.admin {
            Some(AdminAccess::Read) => f.write_str(",admin=read")?,
            Some(AdminAccess::Full) => f.write_str(",admin=full")?,
            None => {}
        }
        for (key, file) in [("cert_file", &self.cert_file), ("key_file", &self.key_file)] {
            if let Some(file) = file {
                write!(f, ",{key}={}", file.display())?;
            }
        }
        Ok(())
    }
}

/// `name=monitor,admin=read`, as `--user` takes it.
impl FromStr for User {
    type Err = BadConfig;

    fn from_str(text: &str) -> Result<User, BadConfig> {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                BadConfig(format!("{pair:?} is not key=value (name, admin, cert_file, key_file)"))
            })?;
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
        assert_eq!((monitor.name.as_str(), monitor.admin), ("monitor", Some(AdminAccess::Read)));
        let all = "name=app,admin=full,cert_file=/c,key_file=/k";
        assert_eq!(all.parse::<User>().expect("valid").to_string(), all);
        for wrong in ["monitor", "name=monitor,admin=some", "name=a,colour=red"] {
            let error = wrong.parse::<User>().expect_err(wrong).to_string();
            assert!(!error.contains('\n'), "{error}");
        }
        for (wrong, words) in [
            ("", "nothing is said of it"),
            ("cert_file = 'c'", "set key_file"),
            ("key_file = 'k'", "set cert_file"),
            ("admin = 'read'\n[[user]]\nname = 'b'\nadmin = 'full'", "twice"),
        ] {
            let config = Config::parse(&format!("[[user]]\nname = 'b'\n{wrong}")).expect("valid");
            let error = config.check_users().expect_err(wrong).to_string();
            assert!(error.starts_with("user \"b\": ") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn roles_have_certificates_of_their_own() {
        let config = Config::parse(
            "[[user]]\nname = 'app'\ncert_file = 'c'\nkey_file = 'k'\n[[user]]\nname = 'b'\nadmin = 'read'",
        );
        let config = config.expect("valid");
        assert_eq!(config.check_users(), Ok(()));
        let identity = Identity { cert_file: "c".into(), key_file: "k".into() };
        assert_eq!(config.identities(), BTreeMap::from([("app".to_owned(), identity)]));
        assert!(!config.admins().contains_key("app"));
    }
}
