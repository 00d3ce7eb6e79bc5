//! Real PostgreSQL servers for tests: made in a temporary directory, gone with the value.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hihooi_log::Log;
use hihooi_postgres::collector::{
    self, CollectorConfig, CollectorError, CollectorStatus, StreamEvent,
};
use hihooi_postgres::connection::{Address, Connection, Login};
use hihooi_postgres::setup;
use hihooi_replication::codec::{KnownRelations, decode_chunk};
use hihooi_replication::entry::{Change, Entry, Value};
use hihooi_replication::ids::{Lsn, Tsid};
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

/// How long anything may take before a test fails: a bound for hangs, no measure of speed.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The programs of the server that most tests use.
pub fn bin() -> PathBuf {
    let dir = std::env::var("HIHOOI_TEST_PG_BIN")
        .unwrap_or_else(|_| "/usr/lib/postgresql/15/bin".to_owned());
    PathBuf::from(dir)
}

/// Those of another major version, where `scripts/fetch-postgres` leaves them, or `HIHOOI_TEST_PG<version>` says.
pub fn bin_of(version: u32) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let given = std::env::var_os(format!("HIHOOI_TEST_PG{version}")).map(PathBuf::from);
    let bin = given.unwrap_or_else(|| root.join(format!(".tools/postgresql-{version}/bin")));
    bin.join("postgres").exists().then_some(bin)
}

/// PostgreSQL refuses to run as root.
pub fn as_postgres(program: &Path) -> Command {
    if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program);
        command.current_dir("/");
        command
    } else {
        Command::new(program)
    }
}

pub fn must(command: &mut Command) -> Output {
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// A port that nobody listens on, below those that the system gives to clients' ends (32768 and
/// up), so that nobody takes it while its server is down.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 131 + TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (number % 20_000) as u16;
        // (By connecting: a listener of ours would live on in a process that another test is just starting.)
        if reserved(port) && TcpStream::connect(("127.0.0.1", port)).is_err() {
            return port;
        }
    }
}

/// Keeps a port from other test processes of this user, also those of the crate hihooi, until this one ends.
fn reserved(port: u16) -> bool {
    let folder = format!("/tmp/hihooi-test-ports-{}", nix::unistd::getuid());
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    let file = std::fs::File::create(format!("{folder}/{port}")).expect("own folder");
    let is_ours = file.try_lock().is_ok();
    std::mem::forget(file); // locked as long as the process runs
    is_ours
}

pub struct Server {
    dir: TempDir,
    bin: PathBuf,
    pub port: u16,
}

impl Server {
    /// A fresh server, fit to be a primary, without flushing (nobody pulls the plug here).
    pub fn start() -> Server {
        Server::start_with("fsync = off")
    }

    pub fn start_with(settings: &str) -> Server {
        Server::start_of(bin(), settings)
    }

    /// With the programs in `bin`.
    pub fn start_of(bin: PathBuf, settings: &str) -> Server {
        let dir = tempfile::Builder::new().prefix("hihooi-test-").tempdir().expect("a directory");
        if nix::unistd::geteuid().is_root() {
            must(Command::new("chown").arg("postgres").arg(dir.path()));
        }
        let port = free_port();
        let server = Server { dir, bin, port };
        must(
            as_postgres(&server.bin.join("initdb"))
                .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
                .arg("-D")
                .arg(server.data()),
        );
        let mut config = std::fs::read_to_string(server.data().join("postgresql.conf"))
            .expect("initdb wrote a configuration");
        config.push_str(&format!(
            "\nport = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n\
             wal_level = logical\nshared_buffers = 32MB\nmax_prepared_transactions = 10\n\
             max_connections = 50\nautovacuum = off\n{settings}\n"
        ));
        std::fs::write(server.data().join("postgresql.conf"), config).expect("is writable");
        server.launch();
        server
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn ctl(&self, action: &[&str]) -> Output {
        let log = self.dir.path().join("log");
        let mut command = as_postgres(&self.bin.join("pg_ctl"));
        command.arg("-D").arg(self.data()).arg("-l").arg(log).args(["-t", "120"]).args(action);
        command.output().expect("pg_ctl runs")
    }

    pub fn launch(&self) {
        let started = Instant::now();
        // After kill -9 the old children hold the shared memory for a moment.
        while !self.ctl(&["-w", "start"]).status.success() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(started.elapsed() < PATIENCE, "the server doesn't start: {log}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn restart(&self) {
        let restarted = self.ctl(&["-w", "-m", "fast", "restart"]);
        assert!(restarted.status.success(), "{restarted:?}");
    }

    pub fn kill_9(&self) {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("it runs");
        let pid = file.lines().next().expect("a pid").to_owned();
        must(Command::new("kill").args(["-9", &pid]));
    }

    pub fn address(&self) -> Address {
        Address::plain("127.0.0.1", self.port)
    }

    pub fn login(&self, user: &str, database: &str) -> Login {
        let login = Login::new(self.address(), user, database, "test");
        login.with("search_path", "\"$user\", public")
    }

    pub async fn connect(&self) -> Connection {
        self.connect_as("postgres", "postgres").await
    }

    pub async fn connect_as(&self, user: &str, database: &str) -> Connection {
        Connection::open(&self.login(user, database)).await.expect("the server accepts us")
    }

    /// Waits until a query gives a row; returns its first column.
    pub async fn shows(&self, query: &str) -> Option<String> {
        let mut observer = self.connect().await;
        let looks = async {
            loop {
                let found = observer.query(query).await.expect("looks");
                if let Some(row) = found.rows.into_iter().next() {
                    return row.into_iter().next().flatten();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("never: {query}"))
    }

    /// From now on commits wait for a standby that never comes, unless they are
    /// `synchronous_commit = local`: they are in the stream, and the server doesn't show them.
    pub async fn hide_commits(&self) {
        let mut session = self.connect().await;
        let standby = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'";
        session.query(standby).await.expect("is set");
        session.query("SELECT pg_reload_conf()").await.expect("reloads");
        // It is in force when the checkpointer has read it, which nothing tells but a commit that
        // waits. This one leaves no entry.
        let pid = session.key().process;
        let waits = format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
             WHERE pid = {pid} AND wait_event = 'SyncRep'"
        );
        let probes = async {
            loop {
                let probe = "SELECT pg_logical_emit_message(true, 'probe', '')";
                session.query(probe).await.expect("commits");
            }
        };
        tokio::select! {
            _ = self.shows(&waits) => {}
            () = probes => {}
        }
    }

    /// Shows what [`Server::hide_commits`] hid, a moment later.
    pub async fn show_commits(&self) {
        let mut session = self.connect().await;
        let standby = "ALTER SYSTEM RESET synchronous_standby_names";
        session.query(standby).await.expect("is set");
        session.query("SELECT pg_reload_conf()").await.expect("reloads");
    }

    /// Runs one of PostgreSQL's own programs against this server.
    pub fn program(&self, name: &str, user: &str, arguments: &[&str]) -> Output {
        let mut command = as_postgres(&bin().join(name));
        let port = self.port.to_string();
        command.args(["-h", "127.0.0.1", "-p", &port, "-U", user]).args(arguments);
        command.output().expect("the program runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ctl(&["-m", "immediate", "-w", "stop"]);
    }
}

/// A collector at work.
pub struct Collector {
    pub log: Log,
    pub events: mpsc::Receiver<StreamEvent>,
    pub poke: Arc<Notify>,
    pub status: Arc<CollectorStatus>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), CollectorError>>,
}

impl Collector {
    pub fn start(server: &Server, log: Log) -> Collector {
        Collector::start_at(server.port, log)
    }

    pub fn start_at(port: u16, log: Log) -> Collector {
        let config = CollectorConfig {
            name: "primary".to_owned(),
            address: Address::plain("127.0.0.1", port),
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            incarnation: 1,
        };
        let (sender, events) = mpsc::channel(1 << 16);
        let (stop, stopped) = watch::channel(false);
        let poke = Arc::new(Notify::new());
        let status = Arc::new(CollectorStatus::default());
        let run = collector::run(
            config,
            log.clone(),
            sender,
            Arc::clone(&poke),
            Arc::clone(&status),
            stopped,
        );
        Collector { log, events, poke, status, stop, task: tokio::spawn(run) }
    }

    /// Nobody will look at what it tells, which must not hold it back.
    pub fn ignore_events(&mut self) {
        let (_, none) = mpsc::channel(1);
        let mut events = std::mem::replace(&mut self.events, none);
        tokio::spawn(async move { while events.recv().await.is_some() {} });
    }

    pub async fn stop(self) -> Log {
        self.stop.send_replace(true);
        self.task.await.expect("no panic").expect("a clean end");
        self.log
    }

    /// The error with which it gives up.
    pub async fn failure(self) -> CollectorError {
        let ended = tokio::time::timeout(PATIENCE, self.task).await.expect("it gives up");
        ended.expect("no panic").expect_err("an error")
    }

    /// Waits until everything before `lsn` was told; returns what was told meanwhile.
    pub async fn until(&mut self, lsn: Lsn) -> Vec<StreamEvent> {
        let mut told = Vec::new();
        let wait = async {
            loop {
                let event = self.events.recv().await.expect("the collector lives");
                told.push(event.clone());
                if matches!(event, StreamEvent::Passed(passed) if passed >= lsn) {
                    return;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            panic!("{lsn} was not passed; told: {told:?}, error: {}", self.status.error());
        }
        told
    }
}

pub fn entries_of(events: &[StreamEvent]) -> Vec<Tsid> {
    let entries = events.iter().filter_map(|event| match event {
        StreamEvent::Entry(entry) => Some(entry.tsid),
        StreamEvent::Passed(_) => None,
    });
    entries.collect()
}

/// Opens a log, as soon as no child of another test has its lock: a child has it between its fork and its exec.
pub fn open_log(dir: &Path) -> Log {
    let began = Instant::now();
    loop {
        match Log::open(dir) {
            Err(hihooi_log::Error::Locked(_)) if began.elapsed() < PATIENCE => {} // it has waited
            opened => return opened.expect("the log opens"),
        }
    }
}

/// A set-up server with its log's directory.
pub struct Primary {
    pub server: Server,
    pub dir: TempDir,
}

impl Primary {
    /// Runs `script` before hihooi is set up.
    pub async fn start(script: &str) -> Primary {
        let server = Server::start();
        let mut connection = server.connect().await;
        connection.simple(script).await.expect("the script runs");
        setup::install(&mut connection).await.expect("can be set up");
        Primary { server, dir: tempfile::tempdir().expect("a directory") }
    }

    pub fn collect(&self) -> Collector {
        Collector::start(&self.server, self.open_log())
    }

    pub fn open_log(&self) -> Log {
        open_log(self.dir.path())
    }

    pub async fn run(&self, script: &str) {
        self.server.connect().await.simple(script).await.expect("the script runs");
    }

    /// An LSN behind everything that was committed, flushed.
    pub async fn lsn_after(&self) -> Lsn {
        let connection = self.server.connect().await;
        let mut positions = hihooi_postgres::wal_positions::WalPositions::new(connection)
            .await
            .expect("its WAL positions");
        let lsn = positions.lsn_after().await.expect("an LSN");
        positions.ensure_flushed(lsn).await.expect("flushes");
        positions.close().await;
        lsn
    }
}

pub async fn entries(log: &Log) -> Vec<Arc<Entry>> {
    log.persist().await.expect("persists");
    log.read(log.first(), usize::MAX, usize::MAX).await.expect("reads")
}

pub async fn changes_of(log: &Log, entry: &Entry) -> Vec<Change> {
    let (mut changes, mut known) = (Vec::new(), KnownRelations::default());
    if entry.chunks.is_empty() {
        for n in 0..entry.header.chunks {
            let chunk = log.chunk(entry.header.tsid, n).await.expect("reads");
            changes.extend(decode_chunk(&chunk, &mut known).expect("decodes"));
        }
    } else {
        for chunk in &entry.chunks {
            changes.extend(decode_chunk(chunk, &mut known).expect("decodes"));
        }
    }
    changes
}

/// All changes of the log, relations' descriptions left out.
pub async fn changes(log: &Log) -> Vec<Change> {
    let mut all = Vec::new();
    for entry in entries(log).await {
        let changes = changes_of(log, &entry).await;
        all.extend(changes.into_iter().filter(|change| !matches!(change, Change::Relation(_))));
    }
    all
}

pub fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => std::str::from_utf8(text).expect("UTF-8"),
        Value::Null => "NULL",
        Value::Unchanged => "UNCHANGED",
    }
}
