//! Who a client is (manual, chapter "Client Authentication"): the first rule of `auth.hba_file` that matches says how
//! it proves that. Passwords are checked with what the primary stores of them, which is asked for at every login: a
//! changed or expired password counts at once. No password is kept here: what a client's SCRAM exchange shows is
//! enough to log in for it at all servers that store the same verifier.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use hihooi_auth::hba::{Attempt, ClientCert, ClientName, Found, Method, Rule};
use hihooi_auth::ident::Maps;
use hihooi_auth::scram;
use hihooi_auth::stored::{Exchange, Mock, Stored};
use hihooi_postgres::socket::Socket;
use hihooi_wire::backend::Report;
use tracing::info;

use crate::authentication::{Authentication, How};
use crate::client::Client;
use crate::clients::Stranger;
use crate::defaults::{About, Account, Defaults, StoredPassword};
use crate::origin::{self, Origin};
use crate::proof::{Wrong, by_md5, by_scram, in_clear};
use crate::relay::Relay;
use crate::startup_key::StartupKey;
use crate::tls;
use hihooi_session::sites::SiteId;

/// What the primary said when a client began to log in, of what its session starts with and whether it may, counts so
/// long: whatever was changed before is seen. Who takes longer to prove who he is asks again.
const TOLD_AGE_MAX: Duration = Duration::from_secs(1);
/// A client that has proved who it is.
pub struct Proved {
    /// How.
    pub how: How,
    told: Option<Told>,
}

/// What the primary says of what a client's session starts with.
struct Told {
    defaults: Defaults,
    /// Not before.
    at: Instant,
}

impl Proved {
    /// What the session starts with, if the primary said so just now.
    #[must_use]
    pub fn defaults(self) -> Option<Defaults> {
        Some(self.told.filter(|told| told.at.elapsed() < TOLD_AGE_MAX)?.defaults)
    }
}

/// Why a client isn't let in: what it is told, and what only the log says.
struct Refused {
    told: Report,
    why: String,
}

/// Has a client prove who it is; `None` if it was refused or has gone. Without rules, nobody proves
/// anything.
pub async fn authenticate(
    client: &mut Client<Socket>,
    relay: &Relay,
    key: &StartupKey,
    origin: Origin,
    stranger: &Stranger,
) -> Option<Proved> {
    let settings = relay.settings();
    let Some(authentication) = &settings.authentication else {
        return Some(Proved { how: "trust", told: None });
    };
    match authentication.check(client, relay, key, origin, stranger).await {
        Ok(proved) => proved,
        Err(Refused { told, why }) => {
            info!(role = key.user, database = key.database, address = %origin, why, "a client is refused");
            told.write(&mut client.down.output);
            client.close().await;
            None
        }
    }
}

impl Authentication {
    /// `None` if the client has gone.
    async fn check(
        &self,
        client: &mut Client<Socket>,
        relay: &Relay,
        key: &StartupKey,
        origin: Origin,
        stranger: &Stranger,
    ) -> Result<Option<Proved>, Refused> {
        let (rules, maps) = &*self.rules.get();
        let groups: Vec<&str> =
            rules.groups(&key.database).into_iter().chain(maps.groups()).collect();
        // No server looks at who uses the admin database.
        let is_admin = key.wants_admin();
        let needs = |method| matches!(method, Method::Scram | Method::Md5 | Method::Password);
        let asks = is_admin || !groups.is_empty() || rules.iter().any(|rule| needs(rule.method));
        let ((stored, told), unknown) = match asks {
            true => match stranger.waits(self.stored_password(relay, key, &groups)).await {
                Ok(found) => (found, None),
                Err(refused) => ((StoredPassword::default(), None), Some(refused)),
            },
            false => ((StoredPassword::default(), None), None),
        };
        let matters = Cell::new(false);
        let is_member = |role: &str| {
            matters.set(true);
            stored.memberships.iter().any(|group| group == role)
        };
        let networks = if rules.need_networks() { origin::own_networks() } else { Vec::new() };
        let attempt = Attempt {
            user: &key.user,
            database: &key.database,
            address: origin.ip(),
            tls: client.stream().tls_version().is_some(),
            replication: false,
            networks: &networks,
            host_name: None,
        };
        let host_name = match origin.ip() {
            Some(address) if rules.need_host_name(&attempt, &is_member) => {
                self.host_name(address).await
            }
            _ => None,
        };
        let attempt = Attempt { host_name: host_name.as_deref(), ..attempt };
        let found = rules.find(&attempt, &is_member);
        // While the primary is away, a rule that doesn't need it still lets operators see what is wrong.
        let is_unknown = unknown.is_some();
        let needs_primary = matches!(found, Found::Allowed(rule) if needs(rule.method));
        if let Some(refused) = unknown.filter(|_| needs_primary || matters.get()) {
            return Err(refused);
        }
        let Found::Allowed(rule) = found else {
            let told = found.refusal(&attempt).unwrap_or_default();
            return Err(Refused { why: told.clone(), told: Report::fatal("28000", told) });
        };
        check_certificate(rule, maps, client, key, &is_member)?;
        if rule.method == Method::Peer {
            check_peer(rule, maps, client, key, stranger, &is_member).await?;
        }
        let exchange = {
            let parsed = stored.password.as_deref().and_then(Stored::parse);
            let secret = stored.mock.as_ref().map_or(&self.mock[..], |mock| mock.as_bytes());
            let mock = Mock { secret, role: &key.user, iterations: scram::ITERATIONS_DEFAULT };
            Exchange::of(rule.method, parsed, mock)
        };
        // Who has proved nothing isn't told which roles there are.
        let check = || if is_admin && !is_unknown { check_role(key, &stored) } else { Ok(()) };
        let Some(exchange) = exchange else {
            check()?;
            return Ok(Some(Proved { how: name_of(rule.method), told }));
        };
        let how = match &exchange {
            Exchange::Scram(_) => "scram-sha-256",
            Exchange::Md5(_) => "md5",
            Exchange::Clear(_) => "password",
        };
        let shown = match exchange {
            Exchange::Scram(verifier) => by_scram(client, verifier).await,
            Exchange::Md5(verifier) => by_md5(client, verifier).await,
            Exchange::Clear(stored) => {
                in_clear(client, stored, &key.user, &self.checks, stranger).await
            }
        };
        match shown {
            Ok(Some(secret)) => {
                check()?;
                relay.pools.know(&key.user, secret);
                relay.passwords.borrow_mut().know(key, stored);
                Ok(Some(Proved { how, told }))
            }
            Ok(None) => Ok(None),
            Err(Wrong::Protocol(told)) => Err(Refused { why: told.message.clone(), told }),
            Err(Wrong::Proof) => Err(failed(rule, key, &stored)),
        }
    }
}

impl Authentication {
    /// What the primary stores of a role, and with it what the session starts with. While the primary is away, it is what
    /// it said at the role's last login: a replica may not know yet that a password was changed or a role dropped.
    async fn stored_password(
        &self,
        relay: &Relay,
        key: &StartupKey,
        groups: &[&str],
    ) -> Result<(StoredPassword, Option<Told>), Refused> {
        let about = About::new(groups, self.query.clone());
        let why = match relay.pools.is_primary_silent.get() {
            true => "the primary does not answer".to_owned(),
            false => {
                let (primary, at) = (relay.pools.asked(SiteId::Primary), Instant::now());
                match primary.account(&key.user, &key.database, Some(about.clone())).await {
                    Ok(Account { stored, defaults }) => {
                        relay.passwords.borrow_mut().renew(key, &stored);
                        return Ok((stored, Some(Told { defaults, at })));
                    }
                    Err(error) if relay.is_primary_away(&error) => error.to_string(),
                    Err(error) => return Err(unavailable(error.to_string())),
                }
            }
        };
        let known = relay.passwords.borrow().get(key, &about);
        known.map(|stored| (stored, None)).ok_or_else(|| unavailable(why))
    }

    /// The stranger does not wait for us, but for a name server, which may be his: he gives way to others.
    async fn host_name(&self, address: IpAddr) -> Option<String> {
        let place = self.lookups.clone().acquire_owned().await.ok()?;
        origin::host_name(address, place).await
    }
}

/// As the server does it for its databases.
fn check_role(key: &StartupKey, stored: &StoredPassword) -> Result<(), Refused> {
    let what = match stored {
        StoredPassword { exists: false, .. } => "does not exist",
        StoredPassword { may_log_in: false, .. } => "is not permitted to log in",
        _ => return Ok(()),
    };
    let told = format!("role \"{}\" {what}", key.user);
    Err(Refused { why: told.clone(), told: Report::fatal("28000", told) })
}

fn name_of(method: Method) -> How {
    match method {
        Method::Trust => "trust",
        Method::Reject => "reject",
        Method::Scram => "scram-sha-256",
        Method::Md5 => "md5",
        Method::Password => "password",
        Method::Cert => "cert",
        Method::Peer => "peer",
    }
}

/// The client learns only that it failed, whatever the reason, as from PostgreSQL.
fn failed(rule: &Rule, key: &StartupKey, stored: &StoredPassword) -> Refused {
    let reason = match &stored.password {
        _ if !stored.exists => "the role does not exist",
        None if stored.is_expired => "its password has expired (VALID UNTIL)",
        None => "the role has no password",
        Some(text) if rule.method == Method::Scram && text.starts_with("md5") => {
            "its password is stored for md5, and the rule says scram-sha-256"
        }
        Some(_) => "wrong password",
    };
    let told = format!("password authentication failed for user \"{}\"", key.user);
    let why = format!("{reason} ({}, line {})", rule.file.display(), rule.line);
    Refused { told: Report::fatal("28P01", told), why }
}

fn unavailable(why: String) -> Refused {
    let told = Report::fatal("57P03", "the primary can't be asked for the role's password")
        .hint("Retry later; SHOW SERVERS in database hihooi shows the state.");
    Refused { told, why }
}

/// Checks what the rule asks of the client's certificate.
fn check_certificate(
    rule: &Rule,
    maps: &Maps,
    client: &mut Client<Socket>,
    key: &StartupKey,
    is_member: &dyn Fn(&str) -> bool,
) -> Result<(), Refused> {
    if rule.client_cert == ClientCert::Optional {
        return Ok(());
    }
    let Some(certificate) = client.stream().certificate() else {
        let what = "connection requires a valid client certificate";
        return Err(Refused { told: Report::fatal("28000", what), why: what.to_owned() });
    };
    if rule.client_cert == ClientCert::VerifyCa {
        return Ok(());
    }
    let (name, of) = match rule.client_name {
        ClientName::Cn => (tls::common_name(certificate), "common name"),
        ClientName::Dn => (tls::subject(certificate), "subject"),
    };
    let not_mapped = match &name {
        Some(name) => maps
            .check(rule.map.as_deref(), name, &key.user, is_member)
            .err()
            .map(|error| error.to_string()),
        None => Some(format!("the client's certificate has no {of}")),
    };
    let Some(why) = not_mapped else { return Ok(()) };
    let told = format!("certificate authentication failed for user \"{}\"", key.user);
    Err(Refused { told: Report::fatal("28000", told), why })
}

/// Checks that the system user who has connected may be the role.
async fn check_peer(
    rule: &Rule,
    maps: &Maps,
    client: &mut Client<Socket>,
    key: &StartupKey,
    stranger: &Stranger,
    is_member: &dyn Fn(&str) -> bool,
) -> Result<(), Refused> {
    let user = match client.stream() {
        Socket::Unix(stream) => stranger.waits(origin::system_user(stream)).await,
        Socket::Plain(_) | Socket::Tls(_) => Err("it has come by TCP".to_owned()),
    };
    let allowed = user.and_then(|user| {
        let checked = maps.check(rule.map.as_deref(), &user, &key.user, is_member);
        checked.map_err(|error| error.to_string())
    });
    allowed.map_err(|why| {
        let told = format!("Peer authentication failed for user \"{}\"", key.user);
        Refused { told: Report::fatal("28000", told), why }
    })
}
