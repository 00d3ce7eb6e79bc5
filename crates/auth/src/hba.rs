//! `pg_hba.conf`: by which method a connection must authenticate (manual, "The pg_hba.conf File"), as
//! PostgreSQL 18 reads it. The first rule that matches a connection decides; without any it is refused.
//!
//! Departures: the methods that ask another service are refused (gss, sspi, ident, ldap, radius, pam, bsd, oauth);
//! addresses must be written in full. `hostgssenc` never matches. An IPv4 client at an
//! IPv6 socket is matched by its IPv4 address; PostgreSQL's own sockets never see one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{FileErrors, Files, Token, Wrong, read};
use crate::names::Role;
use crate::pattern::Pattern;

mod address;
mod line;

use address::Addresses;
pub use address::Network;

/// A connection that asks to be let in.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The role it wants to be.
    pub user: &'a str,
    /// The database it wants; PostgreSQL takes the role's name if the client names none.
    pub database: &'a str,
    /// Where it comes from; `None` is a Unix socket.
    pub address: Option<IpAddr>,
    /// It is encrypted by TLS.
    pub tls: bool,
    /// It is for physical replication (`replication=true`), which only the keyword `replication` matches.
    pub replication: bool,
    /// This host's own addresses and netmasks, which `samehost` and `samenet` mean; needed if
    /// [`Rules::need_networks`].
    pub networks: &'a [Network],
    /// The name of its host: that to which the address leads, and which leads back to the address. It may be left out
    /// unless [`Rules::need_host_name`].
    pub host_name: Option<&'a str>,
}

/// Which connections a rule is for, by how they arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// `local`: over a Unix socket.
    Local,
    /// `host`: over TCP.
    Host,
    /// `hostssl`: over TCP with TLS.
    HostSsl,
    /// `hostnossl`: over TCP without TLS.
    HostNoSsl,
    /// `hostgssenc`: over TCP with GSSAPI encryption, which hihooi doesn't offer: none.
    HostGssEnc,
    /// `hostnogssenc`: over TCP without GSSAPI encryption: all.
    HostNoGssEnc,
}

/// How a client proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Trust,
    /// It is refused.
    Reject,
    /// By a password, with SCRAM-SHA-256.
    Scram,
    /// By a password, with SCRAM-SHA-256 or md5, whichever the stored one is for.
    Md5,
    /// By a password in clear text.
    Password,
    /// By the certificate of its TLS connection.
    Cert,
    /// By the system user at the other end of a Unix socket.
    Peer,
}

/// What is asked of a client's certificate, whatever the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCert {
    /// There need not be one.
    Optional,
    /// `clientcert=verify-ca`: one of a trusted authority.
    VerifyCa,
    /// `clientcert=verify-full`, and the method `cert`: one of a trusted authority, whose name is the role's or is
    /// mapped to it.
    VerifyFull,
}

/// Which name of a certificate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientName {
    /// `clientname=CN`: the subject's common name.
    Cn,
    /// `clientname=DN`: the whole subject, as RFC 2253 writes it.
    Dn,
}

/// One line of the file.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The file in which it stands.
    pub file: Arc<Path>,
    /// Its number there, from 1.
    pub line: usize,
    /// Which connections it is for.
    pub connection: Connection,
    /// How they authenticate.
    pub method: Method,
    /// The map of `pg_ident.conf` from system users or certificates to roles; without one, the names must be
    /// equal.
    pub map: Option<String>,
    /// What is asked of the certificate.
    pub client_cert: ClientCert,
    /// Which of its names counts.
    pub client_name: ClientName,
    databases: Vec<Database>,
    roles: Vec<Role>,
    addresses: Addresses,
}

/// The rules in their order.
#[derive(Debug, Clone)]
pub struct Rules(Vec<Rule>);

/// What decides about a connection.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// It may try by this rule's method.
    Allowed(&'a Rule),
    /// This rule rejects it.
    Rejected(&'a Rule),
    /// No rule matches: it is refused as well.
    Nothing,
}

#[derive(Debug, Clone)]
enum Database {
    All,
    SameUser,
    /// `samerole` and `samegroup`.
    SameRole,
    Replication,
    Matches(Pattern),
    Is(String),
}

const TRUST_ALL: &str = "local all all trust\nhost all all all trust\n";
const TRUST_LOOPBACK: &str =
    "local all all trust\nhost all all 127.0.0.0/8 trust\nhost all all ::1/128 trust\n";

impl Rules {
    /// Reads a file and those that it includes.
    ///
    /// # Errors
    /// All that is wrong with them; a file without any rule is wrong, too.
    pub fn read(path: &Path, files: &dyn Files) -> Result<Rules, FileErrors> {
        let rules = read(path, files, line::parse)?;
        if rules.is_empty() {
            let wrong = Wrong::new("it contains no entries", "without any, nobody may connect");
            return Err(FileErrors(vec![wrong.of(path.into())]));
        }
        Ok(Rules(rules))
    }

    /// Reads a text that includes no others; `path` is for its errors.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<Rules, FileErrors> {
        Rules::read(path, &BTreeMap::from([(PathBuf::from(path), text.to_owned())]))
    }

    /// Everyone from anywhere may be any role.
    #[must_use]
    pub fn trust_everyone() -> Rules {
        Rules::own(TRUST_ALL)
    }

    /// Everyone on this host may be any role; nobody else may connect.
    #[must_use]
    pub fn trust_loopback() -> Rules {
        Rules::own(TRUST_LOOPBACK)
    }

    fn own(text: &str) -> Rules {
        Rules::parse(Path::new("default"), text).expect("our own rules are right")
    }

    /// The rule that decides about a connection: the first that matches. `is_member` says whether the
    /// connection's role is a member of another, directly or not, or is that role; being superuser isn't
    /// enough. No if either doesn't exist.
    #[must_use]
    pub fn find(&self, attempt: &Attempt<'_>, is_member: &dyn Fn(&str) -> bool) -> Found<'_> {
        match self.0.iter().find(|rule| rule.matches(attempt, is_member)) {
            Some(rule) if rule.method == Method::Reject => Found::Rejected(rule),
            Some(rule) => Found::Allowed(rule),
            None => Found::Nothing,
        }
    }

    /// The roles whose membership [`Rules::find`] may ask for when a connection wants this database:
    /// those with a `+`, and the database's own name for `samerole`.
    #[must_use]
    pub fn groups<'a>(&'a self, database: &'a str) -> BTreeSet<&'a str> {
        let same_role =
            |rule: &Rule| rule.databases.iter().any(|d| matches!(d, Database::SameRole));
        let of_database = self.0.iter().any(same_role).then_some(database);
        self.0
            .iter()
            .flat_map(|rule| &rule.roles)
            .filter_map(Role::group)
            .chain(of_database)
            .collect()
    }

    /// Whether a rule says `samehost` or `samenet`.
    #[must_use]
    pub fn need_networks(&self) -> bool {
        self.0.iter().any(|rule| rule.addresses.need_networks())
    }

    /// Whether the name of the client's host could decide: a rule that has such a name fits otherwise, and none before
    /// it decides.
    #[must_use]
    pub fn need_host_name(&self, attempt: &Attempt<'_>, is_member: &dyn Fn(&str) -> bool) -> bool {
        let deciding = self.0.iter().find(|rule| {
            (rule.addresses.need_name() && rule.matches_otherwise(attempt, is_member))
                || rule.matches(attempt, is_member)
        });
        attempt.address.is_some() && deciding.is_some_and(|rule| rule.addresses.need_name())
    }

    /// The rules in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }
}

impl Rule {
    fn matches(&self, attempt: &Attempt<'_>, is_member: &dyn Fn(&str) -> bool) -> bool {
        self.matches_address(attempt) && self.matches_otherwise(attempt, is_member)
    }

    fn matches_address(&self, attempt: &Attempt<'_>) -> bool {
        let Attempt { host_name, networks, .. } = *attempt;
        attempt.address.is_none_or(|address| {
            self.addresses.contain(address.to_canonical(), host_name, networks)
        })
    }

    /// Whether a connection is one that the rule is for, if its address is.
    fn matches_otherwise(&self, attempt: &Attempt<'_>, is_member: &dyn Fn(&str) -> bool) -> bool {
        self.is_for(attempt)
            && self.databases.iter().any(|database| database.matches(attempt, is_member))
            && self.roles.iter().any(|role| role.matches(attempt.user, is_member))
    }

    fn is_for(&self, attempt: &Attempt<'_>) -> bool {
        let is_local = attempt.address.is_none();
        match self.connection {
            Connection::Local => is_local,
            Connection::HostGssEnc => false,
            Connection::Host | Connection::HostNoGssEnc => !is_local,
            Connection::HostSsl => !is_local && attempt.tls,
            Connection::HostNoSsl => !is_local && !attempt.tls,
        }
    }
}

impl Database {
    fn read(token: &Token) -> Result<Database, Wrong> {
        let text = token.text.as_str();
        Ok(match text {
            "all" if !token.quoted => Database::All,
            "sameuser" if !token.quoted => Database::SameUser,
            "samerole" | "samegroup" if !token.quoted => Database::SameRole,
            "replication" if !token.quoted => Database::Replication,
            _ => match text.strip_prefix('/') {
                Some(regex) => Database::Matches(Pattern::compile(regex)?),
                None => Database::Is(text.to_owned()),
            },
        })
    }

    fn matches(&self, attempt: &Attempt<'_>, is_member: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Database::Replication => attempt.replication,
            _ if attempt.replication => false,
            Database::All => true,
            Database::SameUser => attempt.user == attempt.database,
            Database::SameRole => is_member(attempt.database),
            Database::Matches(pattern) => pattern.matches(attempt.database),
            Database::Is(name) => name == attempt.database,
        }
    }
}

impl Found<'_> {
    /// What PostgreSQL tells a client that it refuses (SQLSTATE 28000); `None` if this one may try.
    #[must_use]
    pub fn refusal(&self, attempt: &Attempt<'_>) -> Option<String> {
        let host = attempt.address.map_or("[local]".to_owned(), |a| a.to_canonical().to_string());
        let encryption = if attempt.tls { "SSL encryption" } else { "no encryption" };
        let (user, database) = (attempt.user, attempt.database);
        let of_whom = match attempt.replication {
            true => format!("host \"{host}\", user \"{user}\", {encryption}"),
            false => {
                format!("host \"{host}\", user \"{user}\", database \"{database}\", {encryption}")
            }
        };
        Some(match (self, attempt.replication) {
            (Found::Allowed(_), _) => return None,
            (Found::Rejected(_), false) => format!("pg_hba.conf rejects connection for {of_whom}"),
            (Found::Rejected(_), true) => {
                format!("pg_hba.conf rejects replication connection for {of_whom}")
            }
            (Found::Nothing, false) => format!("no pg_hba.conf entry for {of_whom}"),
            (Found::Nothing, true) => {
                format!("no pg_hba.conf entry for replication connection from {of_whom}")
            }
        })
    }
}

#[cfg(test)]
mod tests;
