//! Configuration: the file `hihooi.toml`, its defaults, and the options and environment variables that override
//! it. An unknown key is an error that names the key and its line.

mod listen;
mod user;

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hihooi_postgres::connection::Address;
use hihooi_postgres::site::{Role, Site};
use hihooi_postgres::tls::{Connector, Mode, Settings};
use hihooi_replication::schedule::Method;
pub use hihooi_server::Consistency as Level;
use hihooi_server::settings::Limits;
use hihooi_server::tls::TlsFiles;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::listen::{Listen, Place};
pub use self::user::User;
use crate::logging::Logging;

/// Where clients connect unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:6432";
/// Most sites of one cluster.
pub const SITES_MAX: usize = 33;
/// Shortest `sites.timeout_ms`: servers are asked twice in it.
pub const TIMEOUT_MS_MIN: u64 = 100;
/// Longest `sites.timeout_ms`: a day.
pub const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Longest `replica.max_apply_delay_ms`: a day.
pub const MAX_APPLY_DELAY_MS_MAX: u64 = 86_400_000;

/// `up` serves metrics so far above the port that clients connect to, unless told otherwise.
pub const METRICS_DISTANCE: u16 = 3_000;

/// Largest `[[site]]` weight.
pub const WEIGHT_MAX: u32 = 1_000;

/// All settings of a manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where clients connect: `host:port`, or the directory of a Unix socket; several as a list.
    pub listen: Listen,
    /// Whether `listen` may be an address that other machines reach, although there is no `auth.hba_file`, so that
    /// nobody is asked for a password.
    pub insecure: bool,
    /// Directory of the log and what else the manager keeps.
    pub data: PathBuf,
    /// Roles that may use the admin database.
    pub admin_users: Vec<String>,
    /// Roles that the operator has something to say about.
    #[serde(rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// How clients prove who they are.
    pub auth: Auth,
    /// Encryption of clients' connections.
    pub tls: Tls,
    /// Bounds for clients.
    pub limits: Limits,
    /// Pooled server connections.
    pub pool: Pool,
    /// What reads see.
    pub consistency: Consistency,
    /// Metrics and health checks.
    #[serde(skip_serializing_if = "Metrics::is_default")]
    pub metrics: Metrics,
    /// The operator's log.
    #[serde(rename = "log", skip_serializing_if = "Logging::is_default")]
    pub logging: Logging,
    /// What holds for all servers.
    #[serde(rename = "sites")]
    pub all_sites: AllSites,
    /// What holds for all replicas.
    #[serde(rename = "replica")]
    pub all_replicas: AllReplicas,
    /// How replicas apply.
    pub apply: Apply,
    /// The servers.
    #[serde(rename = "site")]
    pub sites: Vec<SiteConfig>,
    /// The replicated databases.
    #[serde(rename = "database")]
    pub databases: Vec<Database>,
}

/// How clients prove who they are.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// Rules in the form of `pg_hba.conf`. Without it, nobody is asked for a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hba_file: Option<PathBuf>,
    /// Maps in the form of `pg_ident.conf`, for its rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ident_file: Option<PathBuf>,
    /// A query that returns a role's name and its stored password for the role `$1`, to be asked at the primary instead
    /// of `pg_authid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// Encryption of clients' connections.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Whether clients may or must use TLS, once there is a certificate.
    pub mode: TlsMode,
    /// The certificate, followed by those that certify it, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The authorities that clients' certificates may come from, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// Whether clients use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// None does.
    Disable,
    /// Those that ask for it do.
    #[default]
    Prefer,
    /// All do.
    Require,
}

/// Pooled server connections, per user, database and site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Most connections of one pool.
    pub size: usize,
    /// How long a statement waits for one before SQLSTATE 53300, milliseconds.
    pub wait_ms_max: u64,
    /// A server connection that nobody has used for so long is closed, milliseconds; 0 is never.
    pub idle_ms_max: u64,
}

/// What reads see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Consistency {
    /// Level of sessions that choose none, by its name.
    #[serde(serialize_with = "write_level", deserialize_with = "read_level")]
    pub default: Level,
    /// How long a read waits for a replica before it goes to the primary, milliseconds.
    pub wait_ms: u64,
    /// How long a commit at the level `sync` waits for replicas before those that are late serve no reads, milliseconds.
    pub sync_timeout_ms: u64,
}

/// Metrics and health checks.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Address that serves them over HTTP, `host:port`; nothing or `off` for none. If it isn't given, `up` serves them on
    /// loopback, [`METRICS_DISTANCE`] above the port of `listen`, and `serve` doesn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
}

/// What holds for all servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllSites {
    /// A server that answers nothing for so long is out of routing, milliseconds
    /// ([`TIMEOUT_MS_MIN`] to [`TIMEOUT_MS_MAX`]).
    pub timeout_ms: u64,
}

/// What holds for all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllReplicas {
    /// How long a read, or anything else that holds a lock, may delay changes at a replica, milliseconds
    /// (at most [`MAX_APPLY_DELAY_MS_MAX`]).
    pub max_apply_delay_ms: u64,
    /// A replica that can't apply changes is replaced by a copy of the primary, where `up` runs the servers.
    pub auto_rebuild: bool,
}

/// How replicas apply what the primary committed.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Apply {
    /// How it is found out which transactions may run at once.
    pub method: Method,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteConfig {
    /// Its name: `primary`, `replica1` …
    pub name: String,
    /// What it is for.
    pub role: RoleName,
    /// How a replica gets what the primary commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Host name, address, or the directory of a Unix socket.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Superuser to use there.
    #[serde(default = "default_user")]
    pub user: String,
    /// A replica's share of reads, compared with other replicas' (at most [`WEIGHT_MAX`]); 1 unless it is given.
    /// With 0 it is read only while no other replica can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// How connections to it are encrypted.
    #[serde(default)]
    pub tls: Mode,
    /// The authorities that its certificate may come from, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// hihooi's own certificate, if the server asks for one, followed by those that certify it, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The private key of `cert_file`, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

/// The role of a site that can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleName {
    /// Takes the writes; exactly one site.
    Primary,
    /// Serves reads.
    Replica,
}

impl From<RoleName> for Role {
    fn from(role: RoleName) -> Role {
        match role {
            RoleName::Primary => Role::Primary,
            RoleName::Replica => Role::Replica,
        }
    }
}

/// How a replica gets what the primary commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Our appliers write it.
    Applied,
}

/// One replicated database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Its name.
    pub name: String,
}

fn default_user() -> String {
    "postgres".to_owned()
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: Listen::default(),
            insecure: false,
            data: default_data(nix::unistd::geteuid().is_root()),
            admin_users: vec![default_user()],
            users: Vec::new(),
            auth: Auth::default(),
            tls: Tls::default(),
            limits: Limits::default(),
            pool: Pool::default(),
            consistency: Consistency::default(),
            metrics: Metrics::default(),
            logging: Logging::default(),
            all_sites: AllSites::default(),
            all_replicas: AllReplicas::default(),
            apply: Apply::default(),
            sites: Vec::new(),
            databases: vec![Database { name: "postgres".to_owned() }],
        }
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { size: 20, wait_ms_max: 30_000, idle_ms_max: 600_000 }
    }
}

impl Default for Consistency {
    fn default() -> Consistency {
        Consistency { default: Level::Gssi, wait_ms: 100, sync_timeout_ms: 1_000 }
    }
}

impl Default for AllSites {
    fn default() -> AllSites {
        AllSites { timeout_ms: 2_000 }
    }
}

impl Default for AllReplicas {
    fn default() -> AllReplicas {
        AllReplicas { max_apply_delay_ms: 30_000, auto_rebuild: true }
    }
}

impl Metrics {
    fn is_default(&self) -> bool {
        *self == Metrics::default()
    }

    /// The address that is given, if it isn't `off`.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.listen.as_deref().filter(|address| !address.is_empty() && *address != "off")
    }

    /// Checks the address.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn check(&self) -> Result<(), BadConfig> {
        let checked = self.address().map_or(Ok(()), |address| listen_address(address).map(drop));
        checked.map_err(|why| BadConfig(format!("metrics.listen: {why}, or off")))
    }
}

/// The data directory unless told otherwise.
fn default_data(root: bool) -> PathBuf {
    PathBuf::from(if root { "/var/lib/hihooi" } else { "hihooi-data" })
}

/// Why a configuration can't be used: one line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadConfig(String);

impl BadConfig {
    /// A reason, in one line.
    pub fn new(text: String) -> BadConfig {
        BadConfig(text)
    }
}

impl Config {
    /// Reads a configuration file. Relative paths in it count from its directory.
    ///
    /// # Errors
    /// One line with the file, the line and the key.
    pub fn read(path: &Path) -> Result<Config, BadConfig> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            BadConfig(format!(
                "cannot read {}: {}",
                path.display(),
                hihooi_postgres::cluster::plain(&error)
            ))
        })?;
        let mut config =
            Config::parse(&text).map_err(|e| BadConfig(format!("{}: {e}", path.display())))?;
        if let Some(directory) = path.parent() {
            let Config { auth, tls, data, sites, users, .. } = &mut config;
            let files = [
                &mut auth.hba_file,
                &mut auth.ident_file,
                &mut tls.cert_file,
                &mut tls.key_file,
                &mut tls.ca_file,
            ];
            let of_sites = sites.iter_mut().flat_map(SiteConfig::files_mut);
            let of_users =
                users.iter_mut().flat_map(|user| [&mut user.cert_file, &mut user.key_file]);
            for path in files.into_iter().chain(of_sites).chain(of_users).flatten().chain([data]) {
                *path = directory.join(&*path);
            }
        }
        Ok(config)
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// One line that names the line and the key.
    pub fn parse(text: &str) -> Result<Config, BadConfig> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| {
                let at = span.start.min(text.len());
                format!("line {}: ", text[..at].matches('\n').count() + 1)
            });
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            BadConfig(format!("{}{message}", line.unwrap_or_default()))
        })
    }

    /// The text of sites, to be added to a configuration file.
    #[must_use]
    pub fn text_of(sites: &[SiteConfig]) -> String {
        #[derive(Serialize)]
        struct Sites<'a> {
            site: &'a [SiteConfig],
        }
        toml::to_string(&Sites { site: sites }).expect("sites are always valid TOML")
    }

    /// The text of a configuration file that reads back as this.
    #[must_use]
    pub fn to_text(&self) -> String {
        let body = toml::to_string(self).expect("a configuration is always valid TOML");
        format!("# hihooi's configuration. Flags and HIHOOI_* variables override it.\n{body}")
    }

    /// Checks what the types don't.
    ///
    /// # Errors
    /// One line that says what to change.
    pub fn check(&self) -> Result<(), BadConfig> {
        let bad = |text: String| Err(BadConfig(text));
        self.check_listen()?;
        self.check_limits()?;
        self.tls.files()?;
        let Auth { hba_file, ident_file, query } = &self.auth;
        let ident = ident_file.as_ref().map(|file| format!("auth.ident_file {}", file.display()));
        let query = query.as_ref().map(|_| "auth.query".to_owned());
        if let (None, Some(what)) = (hba_file, ident.or(query)) {
            return bad(format!("{what} is for the rules of auth.hba_file, which is not set"));
        }
        self.check_users()?;
        self.metrics.check()?;
        if self.databases.len() != 1 || self.databases[0].name == "*" {
            return bad("exactly one [[database]] with its name is supported so far".to_owned());
        }
        let primaries = self.sites.iter().filter(|site| site.role == RoleName::Primary).count();
        if primaries != 1 {
            return bad(format!(
                "exactly one [[site]] must have role \"primary\", not {primaries}"
            ));
        }
        if self.sites.len() > SITES_MAX {
            return bad(format!("at most {SITES_MAX} sites are supported"));
        }
        for (at, site) in self.sites.iter().enumerate() {
            site.check_weight()?;
            site.check_tls()?;
            if self.sites[..at].iter().any(|other| other.name == site.name) {
                return bad(format!("two sites have the name {:?}", site.name));
            }
            let same_place = |o: &SiteConfig| o.host == site.host && o.port == site.port;
            if let Some(other) = self.sites[..at].iter().find(|other| same_place(other)) {
                return bad(format!(
                    "sites {:?} and {:?} are the same server",
                    other.name, site.name
                ));
            }
        }
        Ok(())
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// One line that says what to change.
    pub fn check_limits(&self) -> Result<(), BadConfig> {
        if self.pool.size == 0 {
            return Err(BadConfig("pool.size must be at least 1".to_owned()));
        }
        self.limits.check().map_err(BadConfig)?;
        self.logging.check()?;
        let timeout_ms = self.all_sites.timeout_ms;
        if !(TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX).contains(&timeout_ms) {
            return Err(BadConfig(format!(
                "sites.timeout_ms must be between {TIMEOUT_MS_MIN} and {TIMEOUT_MS_MAX}, not \
                 {timeout_ms}"
            )));
        }
        let delay_ms = self.all_replicas.max_apply_delay_ms;
        if delay_ms > MAX_APPLY_DELAY_MS_MAX {
            return Err(BadConfig(format!(
                "replica.max_apply_delay_ms must be at most {MAX_APPLY_DELAY_MS_MAX}, not {delay_ms}"
            )));
        }
        Ok(())
    }

    /// Refuses to be open to a network without being told so.
    ///
    /// # Errors
    /// One line that says what to do instead.
    pub fn check_listen(&self) -> Result<(), BadConfig> {
        if self.auth.hba_file.is_some() || self.insecure {
            return Ok(());
        }
        let others_reach = |place: &Place| match place {
            Place::Tcp(address) => Some(*address).filter(|address| !address.ip().is_loopback()),
            Place::Unix(..) => None,
        };
        let places = self.listen.places()?;
        let Some(address) = places.iter().find_map(others_reach) else { return Ok(()) };
        Err(BadConfig(format!(
            "whoever reaches {address} could log in as any role without a password, and run programs with \
             COPY … TO PROGRAM: write rules for that into a file and pass --hba-file, listen on 127.0.0.1, or pass \
             --insecure if nobody else reaches it"
        )))
    }

    /// The site that takes the writes, once [`Config::check`] passed.
    #[must_use]
    pub fn primary(&self) -> Site {
        let primary = self.sites.iter().find(|site| site.role == RoleName::Primary);
        self.site(primary.expect("a checked configuration has a primary"))
    }

    /// The sites that serve reads.
    #[must_use]
    pub fn replicas(&self) -> Vec<Site> {
        let replicas = self.sites.iter().filter(|site| site.role == RoleName::Replica);
        replicas.map(|site| self.site(site)).collect()
    }

    /// A site as the rest of the process knows it.
    #[must_use]
    pub fn site(&self, site: &SiteConfig) -> Site {
        let SiteConfig { name, host, port, user, .. } = site.clone();
        let tls = Settings { roles: self.identities(), ..site.tls_settings() };
        let address = Address { host, port, tls: Connector::new(tls) };
        Site { name, role: site.role.into(), address, user }
    }

    /// The weights of the sites that serve reads.
    #[must_use]
    pub fn weights(&self) -> Vec<u32> {
        let replicas = self.sites.iter().filter(|site| site.role == RoleName::Replica);
        replicas.map(|site| site.weight.unwrap_or(1)).collect()
    }

    /// The replicated database, once [`Config::check`] passed.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.databases[0].name
    }
}

impl Tls {
    /// The files, unless TLS is disabled or there is no certificate.
    ///
    /// # Errors
    /// One line that says which key is missing.
    pub fn files(&self) -> Result<Option<TlsFiles>, BadConfig> {
        let bad = |text: &str| Err(BadConfig(text.to_owned()));
        match (self.mode, &self.cert_file, &self.key_file) {
            (TlsMode::Disable, ..) => Ok(None),
            (_, Some(cert), Some(key)) => Ok(Some(TlsFiles {
                cert: cert.clone(),
                key: key.clone(),
                ca: self.ca_file.clone(),
            })),
            (_, Some(_), None) => bad("tls.cert_file needs its private key: set tls.key_file"),
            (_, None, Some(_)) => bad("tls.key_file needs its certificate: set tls.cert_file"),
            (TlsMode::Require, ..) => {
                bad("tls.mode \"require\" needs a certificate: set tls.cert_file and tls.key_file")
            }
            (_, None, None) if self.ca_file.is_some() => bad(
                "tls.ca_file is for clients' certificates, which need TLS: set tls.cert_file and tls.key_file",
            ),
            (_, None, None) => Ok(None),
        }
    }
}

/// As it is written.
impl std::fmt::Display for TlsMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TlsMode::Disable => "disable",
            TlsMode::Prefer => "prefer",
            TlsMode::Require => "require",
        })
    }
}

impl SiteConfig {
    fn check_weight(&self) -> Result<(), BadConfig> {
        match self.weight {
            Some(weight) if weight > WEIGHT_MAX => Err(BadConfig(format!(
                "the weight of site {:?} must be between 0 and {WEIGHT_MAX}, not {weight}",
                self.name
            ))),
            Some(_) if self.role == RoleName::Primary => Err(BadConfig(format!(
                "site {:?} is the primary, which has no weight: only replicas share reads",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    fn files_mut(&mut self) -> [&mut Option<PathBuf>; 3] {
        [&mut self.ca_file, &mut self.cert_file, &mut self.key_file]
    }

    fn check_tls(&self) -> Result<(), BadConfig> {
        let of_site = |why| BadConfig(format!("site {:?}: {why}", self.name));
        if self.host.starts_with('/') && matches!(self.tls, Mode::Require | Mode::VerifyFull) {
            let why = format!("{} is a Unix socket, which has no TLS: leave tls out", self.host);
            return Err(of_site(why));
        }
        self.tls_settings().check().map_err(of_site)
    }

    /// How connections to it are encrypted, but for the certificates of single roles.
    fn tls_settings(&self) -> Settings {
        Settings {
            mode: self.tls,
            ca_file: self.ca_file.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            roles: BTreeMap::new(),
        }
    }
}

/// `name=replica1,role=replica,host=127.0.0.1,port=7002`, as `--site` takes it.
impl FromStr for SiteConfig {
    type Err = BadConfig;

    fn from_str(text: &str) -> Result<SiteConfig, BadConfig> {
        let mut table = toml::Table::new();
        for pair in text.split(',') {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                BadConfig(format!(
                    "{pair:?} is not key=value (name, role, kind, host, port, user, weight, tls, ca_file, cert_file, key_file)"
                ))
            })?;
            let value = match (key.trim(), value.trim().parse::<i64>()) {
                ("port" | "weight", Ok(number)) => toml::Value::Integer(number),
                _ => toml::Value::String(value.trim().to_owned()),
            };
            table.insert(key.trim().to_owned(), value);
        }
        table.try_into().map_err(|error: toml::de::Error| {
            BadConfig(error.message().lines().collect::<Vec<_>>().join(" "))
        })
    }
}

fn write_level<S: Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(level)
}

fn read_level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Level, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(|known| de::Error::custom(format!("unknown level {name:?}. {known}")))
}

/// The host that `host:port`, `:port` or `port` names.
#[must_use]
fn host_of(text: &str) -> String {
    let full = in_full(text);
    let host = full.rsplit_once(':').map_or(full.as_str(), |(host, _)| host);
    host.trim_matches(['[', ']']).to_owned()
}

fn in_full(text: &str) -> String {
    match text.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.parse::<u16>().is_ok() => format!("127.0.0.1:{text}"),
        None => text.to_owned(),
    }
}

/// The address that `host:port`, `:port` or `port` stands for.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let mut found = in_full(text).to_socket_addrs().map_err(|_| {
        format!("{text:?} is not a valid listen address: write host:port, such as {DEFAULT_LISTEN}")
    })?;
    found.next().ok_or_else(|| format!("{text:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"
listen = "127.0.0.1:6432"
data = "/var/lib/hihooi"
admin_users = ["postgres"]
[auth]
hba_file = "/etc/hihooi/hba.conf"
ident_file = "ident.conf"
query = "SELECT name, verifier FROM users WHERE name = $1"
[tls]
mode = "require"
cert_file = "server.crt"
key_file = "/etc/hihooi/server.key"
[pool]
size = 20
wait_ms_max = 30000
idle_ms_max = 600000
[consistency]
default = "weak-si"
wait_ms = 100
sync_timeout_ms = 5000
[metrics]
listen = "127.0.0.1:9432"
[sites]
timeout_ms = 500
[replica]
max_apply_delay_ms = 0
auto_rebuild = false
[apply]
method = "algorithm2"
[[site]]
name = "primary"
role = "primary"
host = "127.0.0.1"
port = 7001
user = "postgres"
[[site]]
name = "replica1"
role = "replica"
kind = "applied"
host = "127.0.0.1"
port = 7002
weight = 3
tls = "verify-full"
ca_file = "ca.crt"
cert_file = "hihooi.crt"
key_file = "hihooi.key"
[[database]]
name = "postgres"
"#;

    #[test]
    fn a_full_file_is_read_and_round_trips() {
        let config = Config::parse(EXAMPLE).expect("valid");
        assert_eq!(config.check(), Ok(()));
        assert_eq!(config.consistency.default, Level::WeakSi);
        assert_eq!(config.consistency.sync_timeout_ms, 5_000);
        assert_eq!(config.metrics.address(), Some("127.0.0.1:9432"));
        assert_eq!(config.all_sites.timeout_ms, 500);
        assert_eq!(config.all_replicas.max_apply_delay_ms, 0);
        assert!(!config.all_replicas.auto_rebuild);
        assert_eq!(config.apply.method, Method::Algorithm2);
        assert_eq!(config.sites[1].user, "postgres");
        assert_eq!(config.weights(), [3]);
        assert_eq!((config.sites[0].tls, config.sites[1].tls), (Mode::Prefer, Mode::VerifyFull));
        assert_eq!(Config::parse(&config.to_text()), Ok(config));
    }

    #[test]
    fn every_key_has_a_default() {
        let config = Config::parse("").expect("valid");
        assert_eq!(config, Config::default());
        assert_eq!((config.pool.size, config.consistency.wait_ms), (20, 100));
        assert_eq!(config.consistency.sync_timeout_ms, 1_000);
        assert_eq!((config.metrics.listen.as_deref(), config.metrics.address()), (None, None));
        assert_eq!(config.all_sites.timeout_ms, 2_000);
        assert_eq!(config.all_replicas.max_apply_delay_ms, 30_000);
        assert!(config.all_replicas.auto_rebuild);
        assert_eq!(config.apply.method, Method::Graph);
    }

    #[test]
    fn numbers_out_of_bounds_are_refused_by_their_keys() {
        for (key, text) in [
            ("pool.size", "[pool]\nsize = 0"),
            ("sites.timeout_ms", "[sites]\ntimeout_ms = 0"),
            ("sites.timeout_ms", "[sites]\ntimeout_ms = 86400001"),
            ("replica.max_apply_delay_ms", "[replica]\nmax_apply_delay_ms = 86400001"),
            ("limits.login_ms_max", "[limits]\nlogin_ms_max = 0"),
            ("limits.idle_ms_max", "[limits]\nidle_ms_max = 2147483648"),
            ("limits.transaction_idle_ms_max", "[limits]\ntransaction_idle_ms_max = 2147483648"),
        ] {
            let config = Config::parse(text).expect("valid");
            let error = config.check_limits().expect_err(text).to_string();
            assert!(error.starts_with(key) && !error.contains('\n'), "{error}");
        }
        assert_eq!(Config::default().check_limits(), Ok(()));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = Config::parse("listen = \"x:1\"\n[pool]\nsiez = 3\n").expect_err("unknown");
        assert!(error.to_string().starts_with("line 3: unknown field `siez`"), "{error}");
        assert!(!error.to_string().contains('\n'));
    }

    #[test]
    fn what_is_not_supported_is_refused_in_one_line() {
        let streaming = EXAMPLE.replace("\"applied\"", "\"streaming\"");
        let error = Config::parse(&streaming).expect_err("not supported").to_string();
        assert!(error.contains("streaming") && !error.contains('\n'), "{error}");
        let all =
            EXAMPLE.replace("[[database]]\nname = \"postgres\"", "[[database]]\nname = \"*\"");
        assert!(Config::parse(&all).expect("valid").check().is_err());
    }

    #[test]
    fn a_cluster_has_one_primary_and_distinct_sites() {
        let two = EXAMPLE.replace("role = \"replica\"", "role = \"primary\"");
        assert!(Config::parse(&two).expect("valid").check().is_err());
        let same = EXAMPLE.replace("7002", "7001");
        assert!(Config::parse(&same).expect("valid").check().is_err());
    }

    #[test]
    fn a_site_can_be_given_as_a_flag() {
        let site: SiteConfig =
            "name=r1,role=replica,host=10.0.0.2,port=5432".parse().expect("valid");
        assert_eq!((site.port, site.user.as_str(), site.kind), (5432, "postgres", None));
        assert!("name=r1,colour=red".parse::<SiteConfig>().is_err());
        let weighted: SiteConfig =
            "name=r1,role=replica,host=10.0.0.2,port=5432,weight=0".parse().expect("valid");
        assert_eq!((site.weight, weighted.weight), (None, Some(0)));
    }

    #[test]
    fn encryption_of_a_site_is_what_its_keys_say() {
        let site =
            |more: &str| format!("name=r1,role=replica,host=h,port=1{more}").parse::<SiteConfig>();
        let full = site(",tls=verify-full,ca_file=/etc/ca.crt").expect("valid");
        assert_eq!((full.tls, full.check_tls()), (Mode::VerifyFull, Ok(())));
        assert_eq!(full.ca_file.as_deref(), Some(Path::new("/etc/ca.crt")));
        assert_eq!(site("").expect("valid").tls, Mode::Prefer);
        let unknown = site(",tls=verify-ca").expect_err("unknown").to_string();
        assert!(unknown.contains("verify-ca") && unknown.contains("verify-full"), "{unknown}");
        for (keys, words) in [
            // Nobody is to believe that a certificate is checked if it isn't.
            (",tls=require,ca_file=a", "say verify-full"),
            (",ca_file=a", "say verify-full"),
            (",tls=verify-full", "ca-certificates.crt"),
            (",cert_file=a", "key_file"),
            (",key_file=a", "cert_file"),
            (",tls=disable,cert_file=a,key_file=b", "without TLS"),
            (",tls=require,host=/run/postgresql", "leave tls out"),
        ] {
            let error = site(keys).expect("valid").check_tls().expect_err(keys).to_string();
            assert!(error.starts_with("site \"r1\": "), "{error}");
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
        assert_eq!(site(",tls=require,cert_file=a,key_file=b").expect("valid").check_tls(), Ok(()));
    }

    #[test]
    fn files_of_sites_count_from_the_files_directory() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("hihooi.toml");
        std::fs::write(&path, EXAMPLE).expect("own directory");
        let config = Config::read(&path).expect("valid");
        assert_eq!(config.sites[1].ca_file, Some(folder.path().join("ca.crt")));
        assert_eq!(config.sites[1].key_file, Some(folder.path().join("hihooi.key")));
    }

    #[test]
    fn a_weight_is_a_replicas_and_has_bounds() {
        let check = |from: &str, to: &str| {
            Config::parse(&EXAMPLE.replace(from, to)).and_then(|config| config.check())
        };
        assert_eq!(check("weight = 3", "weight = 0"), Ok(()));
        assert_eq!(check("weight = 3", "weight = 1000"), Ok(()));
        assert_eq!(check("weight = 3", ""), Ok(()));
        let line = EXAMPLE.lines().take_while(|line| *line != "weight = 3").count() + 1;
        let at = |what: &str| format!("line {line}: invalid {what}");
        for (from, to, says) in [
            ("weight = 3", "weight = 1001", "between 0 and 1000, not 1001".to_owned()),
            ("weight = 3", "weight = -1", at("value: integer `-1`")),
            ("weight = 3", "weight = 1.5", at("type: floating point `1.5`")),
            ("port = 7001", "port = 7001\nweight = 1", "only replicas share reads".to_owned()),
        ] {
            let error = check(from, to).expect_err(to).to_string();
            assert!(error.contains(&says) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn hosts_of_addresses() {
        for (text, host) in [
            ("7000", "127.0.0.1"),
            (":7000", "127.0.0.1"),
            ("db.example:7000", "db.example"),
            ("[::1]:7000", "::1"),
        ] {
            assert_eq!(host_of(text), host);
        }
    }

    #[test]
    fn addresses_to_listen_on() {
        let on = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(listen_address("127.0.0.1:6432"), Ok(on(6432)));
        assert_eq!(listen_address(":7000"), Ok(on(7000)));
        assert_eq!(listen_address("7000"), Ok(on(7000)));
        assert!(listen_address("nonsense").is_err());
    }

    #[test]
    fn metrics_have_an_address_or_are_off() {
        let metrics = |listen: &str| Metrics { listen: Some(listen.to_owned()) };
        for (listen, address) in [("", None), ("off", None), (":9000", Some(":9000"))] {
            assert_eq!(metrics(listen).address(), address, "{listen}");
            assert_eq!(metrics(listen).check(), Ok(()), "{listen}");
            let config = Config { metrics: metrics(listen), ..Config::default() };
            assert_eq!(Config::parse(&config.to_text()), Ok(config));
        }
        // Other machines may be let in: there are no secrets.
        assert_eq!(metrics("0.0.0.0:9000").check(), Ok(()));
        let error = metrics("nonsense").check().expect_err("no address").to_string();
        assert!(
            error.starts_with("metrics.listen: \"nonsense\"") && !error.contains('\n'),
            "{error}"
        );
        assert!(!Config::default().to_text().contains("[metrics]"));
    }

    #[test]
    fn other_machines_are_let_in_only_when_told_so() {
        for (listen, insecure, is_good) in [
            ("127.0.0.1:1", false, true),
            ("[::1]:1", false, true),
            ("0.0.0.0:1", false, false),
            ("[::]:1", false, false),
            ("10.0.0.1:1", false, false),
            ("0.0.0.0:1", true, true),
            ("/run/hihooi", false, true),
            ("127.0.0.1:1,/run/hihooi,10.0.0.1:1", false, false),
        ] {
            let config =
                Config { listen: listen.parse().expect("valid"), insecure, ..Config::default() };
            assert_eq!(config.check_listen().is_ok(), is_good, "{listen}");
        }
    }
}
