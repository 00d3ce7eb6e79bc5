//! Who a client is (manual, chapter "Client Authentication"): the first rule of `auth.hba_file` that matches says how
//! it proves that. Passwords are checked with what the primary stores of them, which is asked for at every login: a
//! changed or expired password counts at once. No password is kept here: what a client's SCRAM exchange shows is
//! enough to log in for it at all servers that store the same verifier.

use std::cell::Cell;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::AHashMap;
use bytes::{Buf, Bytes};
use hihooi_auth::hba::{Attempt, ClientCert, ClientName, Found, Method, Rule, Rules};
use hihooi_auth::ident::Maps;
use hihooi_auth::scram::{self, Nonce};
use hihooi_auth::stored::{Clear, Exchange, Mock, Stored};
use hihooi_auth::{md5, scram::server::challenge};
use hihooi_postgres::login::Secret;
use hihooi_postgres::reloaded::Reloaded;
use hihooi_postgres::socket::Socket;
use hihooi_wire::authentication::{self, Request};
use hihooi_wire::backend::Report;
use hihooi_wire::frontend::tag;
use tokio::sync::Semaphore;
use tracing::info;
use zeroize::Zeroizing;

use crate::admin;
use crate::client::Client;
use crate::clients::Stranger;
use crate::defaults::{About, Account, Defaults, StoredPassword};
use crate::origin::{self, Origin};
use crate::relay::Relay;
use crate::startup_key::StartupKey;
use crate::tls;
use hihooi_session::sites::SiteId;

/// Roles, by database, of which it is remembered what the primary said; all are forgotten beyond (I8).
const PASSWORDS_MAX: usize = 10_000;
/// Passwords in clear text that are checked at once: each takes a processor.
const CHECKS_MAX: usize = 2;
/// Names of hosts that are looked up at once: each may wait for a name server.
const LOOKUPS_MAX: usize = 100;
/// What the primary said when a client began to log in, of what its session starts with and whether it may, counts so
/// long: whatever was changed before is seen. Who takes longer to prove who he is asks again.
const TOLD_AGE_MAX: Duration = Duration::from_secs(1);
/// The longest proof that a client may send, as in PostgreSQL.
const ANSWER_LEN_MAX: usize = 10_000;

/// How clients prove who they are.
#[derive(Debug)]
pub struct Authentication {
    rules: Reloaded<Rc<(Rules, Maps)>>,
    /// What the primary is asked for a role's password, if it isn't `pg_authid`.
    query: Option<Rc<str>>,
    /// For answers about roles that don't exist if the cluster has no secret of its own.
    mock: [u8; 32],
    /// Places for checks of passwords in clear text.
    checks: Arc<Semaphore>,
    /// Places for questions about names of hosts.
    lookups: Arc<Semaphore>,
}

/// How a client proved who it is, in the words of the rules.
pub type How = &'static str;

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

impl Authentication {
    /// Reads the rules, and the maps to which they refer.
    ///
    /// # Errors
    /// All that is wrong with them, with file and line.
    pub fn load(
        hba: PathBuf,
        ident: Option<PathBuf>,
        query: Option<String>,
    ) -> Result<Authentication, String> {
        let rules = Reloaded::new("auth.hba_file", move |files| {
            let rules = Rules::read(&hba, files).map_err(|error| error.to_string())?;
            let maps = match &ident {
                Some(ident) => Maps::read(ident, files).map_err(|error| error.to_string())?,
                None => Maps::default(),
            };
            Ok(Rc::new((rules, maps)))
        })?;
        let mut mock = [0; 32];
        getrandom::fill(&mut mock).map_err(|error| format!("no random numbers: {error}"))?;
        let places = |count| Arc::new(Semaphore::new(count));
        let (checks, lookups) = (places(CHECKS_MAX), places(LOOKUPS_MAX));
        Ok(Authentication { rules, query: query.map(Rc::from), mock, checks, lookups })
    }
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
        let is_admin = key.database == admin::DATABASE;
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
        if is_admin && !is_unknown {
            check_role(key, &stored)?;
        }
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
        let Some(exchange) = exchange else {
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
        let why = match relay.is_primary_silent.get() {
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

/// What is wrong with a client's proof.
enum Wrong {
    /// Its form.
    Protocol(Report),
    /// The password.
    Proof,
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

/// What the primary said of roles whose clients it let in, by role and database.
#[derive(Default)]
pub struct Passwords(AHashMap<(String, String), StoredPassword>);

impl Passwords {
    fn of(key: &StartupKey) -> (String, String) {
        (key.user.clone(), key.database.clone())
    }

    /// A client has proved who it is with this.
    fn know(&mut self, key: &StartupKey, stored: StoredPassword) {
        if self.0.len() >= PASSWORDS_MAX {
            self.0.clear();
        }
        self.0.insert(Passwords::of(key), stored);
    }

    /// The primary says this now.
    fn renew(&mut self, key: &StartupKey, stored: &StoredPassword) {
        if let Some(known) = self.0.get_mut(&Passwords::of(key)) {
            known.clone_from(stored);
        }
    }

    /// What it said last, if it was asked for the same.
    fn get(&self, key: &StartupKey, asked: &About) -> Option<StoredPassword> {
        self.0.get(&Passwords::of(key)).filter(|known| known.asked == *asked).cloned()
    }
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

/// The client's next message, which must be a proof; its body. `None` if the client has gone.
async fn answer(client: &mut Client<Socket>) -> Result<Option<Bytes>, Wrong> {
    let wrong = |text: String| Wrong::Protocol(Report::fatal("08P01", text));
    loop {
        let input = &mut client.down.input;
        if let Some(&[tag, ref length @ ..]) = input.first_chunk::<5>() {
            if tag != tag::PASSWORD {
                return Err(wrong(format!("expected password response, got message type {tag}")));
            }
            let len = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
            if !(4..=ANSWER_LEN_MAX).contains(&len) {
                return Err(wrong("invalid password packet size".to_owned()));
            }
            if input.len() > len {
                let mut message = input.split_to(1 + len).freeze();
                message.advance(5);
                return Ok(Some(message));
            }
        }
        if client.down.gone {
            return Ok(None);
        }
        client.read().await;
    }
}

async fn ask(client: &mut Client<Socket>, request: &Request<'_>) -> Result<Option<Bytes>, Wrong> {
    request.write(&mut client.down.output);
    client.flush().await;
    answer(client).await
}

async fn by_scram(
    client: &mut Client<Socket>,
    verifier: scram::Verifier,
) -> Result<Option<Secret>, Wrong> {
    let malformed =
        |error: &dyn std::fmt::Display| Wrong::Protocol(Report::fatal("08P01", error.to_string()));
    let wrong = |error: scram::server::Error| match error {
        scram::server::Error::Proof => Wrong::Proof,
        error => {
            let report = Report::fatal(error.sqlstate(), error.to_string());
            Wrong::Protocol(report.detail(error.detail().unwrap_or_default()))
        }
    };
    let end_point = client.stream().end_point();
    let offered = scram::server::mechanisms(end_point.is_some());
    let offered = offered.iter().map(|mechanism| mechanism.as_bytes()).collect();
    let Some(first) = ask(client, &Request::Sasl(offered)).await? else { return Ok(None) };
    let (mechanism, data) =
        authentication::read_sasl_initial(&first).map_err(|error| malformed(&error))?;
    let mechanism = String::from_utf8_lossy(mechanism);
    // A client that sends nothing with the mechanism's name waits for us to begin.
    let data = match data {
        Some(data) => Bytes::copy_from_slice(data),
        None => match ask(client, &Request::SaslContinue(b"")).await? {
            Some(data) => data,
            None => return Ok(None),
        },
    };
    let mut random = [0; 18];
    getrandom::fill(&mut random).map_err(|error| malformed(&error))?;
    let nonce = Nonce::new(&random);
    let (server_first, exchange) =
        challenge(verifier, end_point.as_deref(), &mechanism, &data, &nonce).map_err(wrong)?;
    let Some(last) = ask(client, &Request::SaslContinue(server_first.as_bytes())).await? else {
        return Ok(None);
    };
    let (server_final, keys) = exchange.finish(&last).map_err(wrong)?;
    Request::SaslFinal(server_final.as_bytes()).write(&mut client.down.output);
    Ok(Some(Secret::Keys(keys)))
}

async fn by_md5(
    client: &mut Client<Socket>,
    verifier: md5::Verifier,
) -> Result<Option<Secret>, Wrong> {
    let mut salt = [0; 4];
    getrandom::fill(&mut salt)
        .map_err(|error| Wrong::Protocol(Report::fatal("53000", error.to_string())))?;
    let Some(body) = ask(client, &Request::Md5(salt)).await? else { return Ok(None) };
    let response = authentication::read_password(&body).map_err(|_| Wrong::Proof)?;
    match verifier.check(salt, response) {
        true => Ok(Some(Secret::Md5(verifier))),
        false => Err(Wrong::Proof),
    }
}

async fn in_clear(
    client: &mut Client<Socket>,
    stored: Stored,
    role: &str,
    checks: &Arc<Semaphore>,
    stranger: &Stranger,
) -> Result<Option<Secret>, Wrong> {
    let Some(body) = ask(client, &Request::Cleartext).await? else { return Ok(None) };
    let password = authentication::read_password(&body).map_err(|_| Wrong::Proof)?;
    if password.is_empty() {
        return Err(Wrong::Proof);
    }
    let (password, role) = (Zeroizing::new(password.to_vec()), role.to_owned());
    let place = stranger.waits(checks.clone().acquire_owned()).await.ok();
    let check = move || match (stored.check_password(&password, &role)?, stored) {
        (Clear::Keys(keys), _) => Some(Secret::Keys(keys)),
        (Clear::Md5, Stored::Md5(verifier)) => Some(Secret::Md5(verifier)),
        (Clear::Md5, Stored::Scram(_)) => None,
    };
    // It keeps its place until it has ended, also if its client leaves.
    let check = move || {
        let shown = check();
        drop(place);
        shown
    };
    // It takes milliseconds by design: not on the thread that serves everybody.
    match stranger.waits(tokio::task::spawn_blocking(check)).await {
        Ok(Some(secret)) => Ok(Some(secret)),
        _ => Err(Wrong::Proof),
    }
}
