//! One PostgreSQL server on this machine: creates its data directory, writes its settings, starts it.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use std::os::unix::process::CommandExt;

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

use super::binaries::Binaries;
use super::os_user::OsUser;
use super::pidfile::{self, Occupant};
use super::postmaster::{Postmaster, Stop, halt};
use super::{Error, Result, file_error, plain};
use crate::connection::{Address, Connection, Login};
use crate::site::Role;

/// The superuser of the servers that we make, and the database they start with.
pub const SUPERUSER: &str = "postgres";
/// Locales to make servers with: the first that the machine has.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];
/// Our settings, included from `postgresql.conf`.
const SETTINGS_FILE: &str = "hihooi.conf";
/// A Unix socket's path has at most 107 bytes; `/.s.PGSQL.65535` follows the directory.
const SOCKET_DIR_LEN_MAX: usize = 107 - 15;
/// How long a start is retried while processes of a killed server end.
const LEFTOVERS_MS_MAX: u64 = 30_000;
/// After this time, backends that outlived their postmaster are ended.
const ORPHANS_GRACE: Duration = Duration::from_millis(500);
/// Between two looks at a starting server.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a server may take to stop cleanly.
pub const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The end of a server's log file that is searched for why it didn't start, in bytes.
const LOG_TAIL_LEN: u64 = 16 * 1024;

/// What is needed to make and run a server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Name of the site; also `cluster_name`.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Data directory, absolute.
    pub data: PathBuf,
    /// File that it logs to.
    pub log_file: PathBuf,
    /// Directory for Unix sockets.
    pub socket_dir: PathBuf,
    /// TCP port on 127.0.0.1.
    pub port: u16,
    /// The installation that runs it.
    pub binaries: Binaries,
    /// Who runs it.
    pub os_user: OsUser,
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::plain(Ipv4Addr::LOCALHOST.to_string(), self.port)
    }

    /// Creates the empty data directory, owned by the user that runs the server.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn make_directory(&self) -> Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder
            .mode(0o700)
            .create(&self.data)
            .map_err(|error| file_error("create", &self.data, &error))?;
        self.os_user.own(&self.data)
    }

    /// Makes the data directory with `initdb`. Nothing is flushed to disk. As long as `initdb`
    /// runs the directory is locked, also if we are killed: it holds the lock as its input, which
    /// it doesn't read.
    ///
    /// # Errors
    /// What initdb says.
    pub fn init(&self) -> Result<()> {
        self.make_directory()?;
        let lock = fs::File::open(&self.data)
            .and_then(|directory| directory.lock().map(|()| directory))
            .map_err(|error| file_error("lock", &self.data, &error))?;
        let mut said = String::new();
        for locale in LOCALES {
            let answer = self
                .command("initdb")
                .arg("--pgdata")
                .arg(&self.data)
                .args(["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8"])
                .args(["--locale", locale, "--no-sync", "--no-instructions"])
                .stdin(lock.try_clone().map_err(|error| self.cannot_run("initdb", &error))?)
                .output()
                .map_err(|error| self.cannot_run("initdb", &error))?;
            if answer.status.success() {
                return self.include_settings();
            }
            said = String::from_utf8_lossy(&answer.stderr).into_owned();
            if !said.contains("locale") {
                break;
            }
        }
        let line = said.lines().find(|line| line.contains("error")).unwrap_or("no reason told");
        Err(Error::Refused(format!("initdb failed for {}: {line}", self.name)))
    }

    /// A program of the installation, to be run as the server's user.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.program(program));
        // Not the caller's locale or PGDATA; the directory is one that the user can enter.
        command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.current_dir(&self.data).stdin(Stdio::null());
        // Its own process group: Ctrl-C in our terminal is for us alone to act on.
        command.process_group(0);
        self.os_user.apply(&mut command);
        command
    }

    fn cannot_run(&self, program: &str, error: &std::io::Error) -> Error {
        let program = self.binaries.program(program);
        let who = match &self.os_user {
            OsUser::Same => String::new(),
            OsUser::Other { name, .. } => format!(" as user {name}"),
        };
        Error::Refused(format!("cannot run {}{who}: {}", program.display(), plain(error)))
    }

    fn include_settings(&self) -> Result<()> {
        let path = self.data.join("postgresql.conf");
        let read = fs::read_to_string(&path).map_err(|error| file_error("read", &path, &error))?;
        let line = format!("include '{SETTINGS_FILE}'");
        if read.lines().any(|l| l.trim() == line) {
            return Ok(());
        }
        let text = format!("{read}\n# Settings of hihooi; ALTER SYSTEM overrides them.\n{line}\n");
        self.os_user
            .run(|| fs::write(&path, text).map_err(|error| file_error("write", &path, &error)))
    }

    /// Writes our settings for this server, before every start.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn configure(&self) -> Result<()> {
        let path = self.data.join(SETTINGS_FILE);
        let settings = self.settings();
        self.os_user
            .run(|| fs::write(&path, settings).map_err(|error| file_error("write", &path, &error)))
    }

    fn settings(&self) -> String {
        let mut settings = vec![
            ("listen_addresses", quoted("127.0.0.1")),
            ("port", self.port.to_string()),
            ("unix_socket_directories", quoted(&self.socket_directories())),
            ("cluster_name", quoted(&self.name)),
            ("wal_level", "logical".to_owned()),
            ("fsync", "on".to_owned()),
            ("synchronous_commit", "on".to_owned()),
            ("max_connections", "300".to_owned()),
            ("max_prepared_transactions", "100".to_owned()),
            ("max_wal_senders", "32".to_owned()),
            ("max_replication_slots", "32".to_owned()),
            ("max_worker_processes", "16".to_owned()),
            ("logging_collector", "off".to_owned()),
            ("log_line_prefix", quoted("%m [%p] %q%u@%d %a ")),
        ];
        if self.binaries.major >= 18 {
            // Older versions take the number of origins from max_replication_slots.
            settings.push(("max_active_replication_origins", "32".to_owned()));
        }
        if self.role != Role::Primary {
            // A copy must neither archive nor subscribe in the primary's place.
            settings.push(("archive_mode", "off".to_owned()));
            settings.push(("max_logical_replication_workers", "0".to_owned()));
            // Who writes at its own port makes it differ.
            settings.push(("default_transaction_read_only", "on".to_owned()));
        }
        let mut text = "# Written by hihooi at every start: change postgresql.auto.conf instead \
                        (ALTER SYSTEM).\n"
            .to_owned();
        for (name, value) in settings {
            writeln!(text, "{name} = {value}").expect("writing to a string cannot fail");
        }
        text
    }

    /// The directory for Unix sockets, or nothing if the path would be too long for one.
    fn socket_directories(&self) -> String {
        match self.socket_dir.to_str() {
            Some(path) if path.len() <= SOCKET_DIR_LEN_MAX && !path.contains([',', '"']) => {
                path.to_owned()
            }
            _ => String::new(),
        }
    }

    /// A server of this directory that runs already, left by an `up` that was killed.
    #[must_use]
    pub fn running(&self) -> Option<Postmaster> {
        match pidfile::occupant(&self.data) {
            Occupant::Server { pid, .. } => Some(Postmaster::adopted(pid)),
            Occupant::Nobody | Occupant::Gone => None,
        }
    }

    /// Stops whatever runs of a server whose start was given up in the middle.
    pub async fn give_up(&self, how: Stop) {
        match self.running() {
            Some(mut postmaster) => postmaster.stop(how, STOP_LIMIT).await,
            None => halt(&self.data).await,
        }
    }

    /// Starts the server, or adopts one that is still running, and waits until it takes connections,
    /// through crash recovery of any length.
    ///
    /// # Errors
    /// [`Error::Retry`] with the reason from its log when it ended or its port is taken.
    pub async fn start(&self) -> Result<Postmaster> {
        if let Some(postmaster) = self.adopt().await {
            match self.until_ready(postmaster, 0).await {
                // It was ending when we looked, as a killed process does for a moment.
                Err(Error::Retry(_)) => {
                    tracing::info!(site = self.name, "the adopted server has ended");
                }
                ready => return ready,
            }
        }
        self.start_new(&[]).await
    }

    /// Starts the server, which doesn't run, with these settings on top of its own (`name=value`), and waits until it
    /// takes connections.
    ///
    /// # Errors
    /// As of [`Server::start`].
    pub(super) async fn start_new(&self, settings: &[String]) -> Result<Postmaster> {
        self.configure()?;
        let deadline = Instant::now() + Duration::from_millis(LEFTOVERS_MS_MAX);
        loop {
            match self.start_once(settings).await {
                Err(Error::Retry(reason)) if is_leftover(&reason) && Instant::now() < deadline => {
                    tracing::info!(site = self.name, reason, "waiting for what is left behind");
                    self.end_orphans().await;
                }
                other => return other,
            }
        }
    }

    /// A running server; one that listens elsewhere (the port was changed) is stopped first.
    async fn adopt(&self) -> Option<Postmaster> {
        let Occupant::Server { pid, port } = pidfile::occupant(&self.data) else { return None };
        let mut postmaster = Postmaster::adopted(pid);
        if port != 0 && port != self.port {
            postmaster.stop(Stop::Fast, STOP_LIMIT).await;
            return None;
        }
        tracing::info!(site = self.name, pid, "adopting a server that is still running");
        Some(postmaster)
    }

    async fn start_once(&self, settings: &[String]) -> Result<Postmaster> {
        pidfile::remove_stale(&self.data)?;
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)) {
            return Err(Error::Retry(format!(
                "cannot listen on port {} of 127.0.0.1 for {}: {}",
                self.port,
                self.name,
                plain(&error)
            )));
        }
        pidfile::remove_stale_socket(&self.data, &self.socket_dir, self.port)?;
        let log = self.open_log()?;
        let from = log.metadata().map(|meta| meta.len()).unwrap_or(0);
        let child = self.spawn(log, settings)?;
        self.until_ready(Postmaster::child(child), from).await
    }

    fn open_log(&self) -> Result<File> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.log_file)
            .map_err(|error| file_error("write", &self.log_file, &error))
    }

    fn spawn(&self, log: File, settings: &[String]) -> Result<tokio::process::Child> {
        let copy = log.try_clone().map_err(|e| file_error("write", &self.log_file, &e))?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).stdout(copy).stderr(log);
        for setting in settings {
            command.arg("-c").arg(setting);
        }
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(false);
        command.spawn().map_err(|error| self.cannot_run("postgres", &error))
    }

    async fn until_ready(&self, mut postmaster: Postmaster, from: u64) -> Result<Postmaster> {
        let login = Login::new(self.address(), SUPERUSER, "postgres", "hihooi");
        let login = match self.role {
            Role::Primary => login,
            Role::Replica => self.without_event_triggers(login),
        };
        loop {
            if let Ok(connection) = Connection::open(&login).await {
                connection.close().await;
                return Ok(postmaster);
            }
            if postmaster.has_ended() {
                return Err(Error::Retry(self.why_ended(from)));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// A superuser's login at which no event trigger fires, where the server's version has some on login.
    pub(super) fn without_event_triggers(&self, login: Login) -> Login {
        match self.binaries.major >= 17 {
            true => login.with("event_triggers", "off"),
            false => login,
        }
    }

    /// Why the server ended, from what it logged since byte `from`.
    fn why_ended(&self, from: u64) -> String {
        let reason = fatal_line(&self.log_file, from)
            .unwrap_or_else(|| format!("see {}", self.log_file.display()));
        format!("{} did not start: {reason}", self.name)
    }

    /// Ends backends that outlived their postmaster and hold its shared memory.
    async fn end_orphans(&self) {
        sleep(ORPHANS_GRACE).await;
        if !matches!(pidfile::occupant(&self.data), Occupant::Server { .. }) {
            for pid in pidfile::processes(&self.data) {
                tracing::warn!(site = self.name, pid, "ending a backend without postmaster");
                pidfile::signal(pid, Signal::SIGQUIT);
            }
        }
    }
}

/// What a killed server leaves for a moment (manual, "Starting the Database Server").
fn is_leftover(reason: &str) -> bool {
    ["pre-existing shared memory block", "lock file", "cannot listen on port"]
        .iter()
        .any(|sign| reason.contains(sign))
}

/// What was logged since byte `from` as FATAL or PANIC first, and the hint that follows it.
fn fatal_line(log: &Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(from.max(len.saturating_sub(LOG_TAIL_LEN)))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    fatal_in(&String::from_utf8_lossy(&bytes))
}

/// The server's own, not its answer to a session that came too early: `user@database` stands in
/// front of those ([`Server::settings`]).
fn fatal_in(text: &str) -> Option<String> {
    let after = |line: &str, word: &str| {
        let (prefix, rest) = line.split_once(word)?;
        (!prefix.contains('@')).then(|| rest.trim().to_owned())
    };
    let mut lines = text.lines();
    let fatal = lines.find_map(|line| after(line, "FATAL:").or_else(|| after(line, "PANIC:")))?;
    match lines.next().and_then(|line| after(line, "HINT:")) {
        Some(hint) => Some(format!("{fatal}; {hint}")),
        None => Some(fatal),
    }
}

/// A value for `postgresql.conf`.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(role: Role, major: u32, socket_dir: &str) -> Server {
        Server {
            name: "replica1".to_owned(),
            role,
            data: "/data/replica1".into(),
            log_file: "/data/replica1.log".into(),
            socket_dir: socket_dir.into(),
            port: 6534,
            binaries: Binaries { dir: "/bin".into(), major },
            os_user: OsUser::Same,
        }
    }

    #[test]
    fn a_copy_neither_archives_nor_subscribes() {
        let replica = server(Role::Replica, 15, "/data/sockets").settings();
        assert!(replica.contains("archive_mode = off\n"));
        assert!(replica.contains("max_logical_replication_workers = 0\n"));
        assert!(!server(Role::Primary, 15, "/s").settings().contains("archive_mode"));
    }

    #[test]
    fn why_a_server_ended_is_read_from_its_log() {
        let log = "2026-01-01 [7] LOG:  starting\n\
                   2026-01-01 [8] postgres@postgres FATAL:  the database system is starting up\n\
                   2026-01-01 [7] FATAL:  slot \"hihooi\" exists, but wal_level < logical\n\
                   2026-01-01 [7] HINT:  Change wal_level to be logical or higher.\n";
        let why = "slot \"hihooi\" exists, but wal_level < logical; \
                   Change wal_level to be logical or higher.";
        assert_eq!(fatal_in(log).as_deref(), Some(why));
        assert_eq!(fatal_in("LOG:  shut down\n"), None);
    }

    #[test]
    fn a_long_directory_gets_no_unix_socket() {
        let long = format!("/{}", "x".repeat(SOCKET_DIR_LEN_MAX));
        let text = server(Role::Primary, 15, &long).settings();
        assert!(text.contains("unix_socket_directories = ''\n"), "{text}");
        let text = server(Role::Primary, 15, "/it's").settings();
        assert!(text.contains("unix_socket_directories = '/it''s'\n"), "{text}");
    }

    #[test]
    fn the_setting_of_version_18_is_not_given_to_older_servers() {
        let name = "max_active_replication_origins";
        assert!(server(Role::Primary, 18, "/s").settings().contains(name));
        assert!(!server(Role::Primary, 17, "/s").settings().contains(name));
    }
}
