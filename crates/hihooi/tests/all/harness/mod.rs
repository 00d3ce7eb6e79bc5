//! What all black-box tests share: clusters made by the real `hihooi up` with real PostgreSQL
//! servers, a plain PostgreSQL server to compare with, and clients.
//!
//! Environment:
//! - `HIHOOI_TEST_TARGET=postgres`: the tests run against one plain PostgreSQL server instead,
//!   which shows whether a test asks for something that PostgreSQL itself doesn't do.
//! - `HIHOOI_TEST_KEEP=1`: keeps the data folders of a run.
//! - `HIHOOI_TEST_BIN`: another hihooi than the one just built.
//! - `HIHOOI_TEST_PGBIN`: folder of the PostgreSQL programs (default: `pg_config --bindir`).

pub mod client;
pub mod cluster;
pub mod grammar;
pub mod load;
pub mod reaper;
pub mod reference;
pub mod script;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

pub use client::{Answer, Failure, Session};
pub use cluster::{Cluster, Options};
pub use reference::Reference;

/// Superuser and database that `hihooi up` makes.
pub const USER: &str = "postgres";
/// The replicated database.
pub const DATABASE: &str = "postgres";

/// Metrics are served so far above clients' port.
pub const METRICS_DISTANCE: u16 = 3_000;

/// Longer than this is a hang. No test asks for more of the machine's speed.
pub const HANG_S_MAX: u64 = 180;

/// The cluster that the tests of one process share: a primary and two replicas.
pub fn shared() -> &'static Cluster {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    current.get_or_insert_with(started)
}

static CURRENT: Mutex<Option<&'static Cluster>> = Mutex::new(None);

/// It lives as long as the test process, whose end stops its servers.
fn started() -> &'static Cluster {
    Box::leak(Box::new(Cluster::start(Options::default())))
}

/// Replaces the shared cluster if an earlier test broke a replica, so that one bug fails one
/// test. To be called at the beginning of tests that don't run beside others.
pub fn renew_shared() {
    let broken = shared().is_hihooi()
        && shared().show_replicas().values().any(|replica| replica["state"] == "failed");
    if broken {
        shared().kill_everything();
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(started());
    }
}

/// The plain server that the tests of one process compare with.
pub fn reference() -> &'static Reference {
    static SHARED: OnceLock<Reference> = OnceLock::new();
    SHARED.get_or_init(Reference::start)
}

/// Whether the tests run against plain PostgreSQL.
pub fn target_is_plain() -> bool {
    std::env::var("HIHOOI_TEST_TARGET").is_ok_and(|target| target == "postgres")
}

static ALONE: RwLock<()> = RwLock::new(());

/// Keeps a test that pauses, kills, measures or changes what all sessions see (roles' settings)
/// apart from those that hold this or [`beside`] in the same process, and gives it a shared cluster
/// whose replicas serve.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    // A failed test poisons the lock; the next one is no worse for it.
    let guard = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let shared = *CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.is_some() {
        renew_shared();
    }
    guard
}

/// Lets a test run beside others that hold this, but beside none that is [`alone`].
pub fn beside() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

/// The program under test.
pub fn program() -> PathBuf {
    match std::env::var_os("HIHOOI_TEST_BIN") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env!("CARGO_BIN_EXE_hihooi")),
    }
}

/// Folder of the PostgreSQL programs.
pub fn bin_dir() -> PathBuf {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| match std::env::var_os("HIHOOI_TEST_PGBIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let told = Command::new("pg_config").arg("--bindir").output().expect("pg_config");
            PathBuf::from(String::from_utf8_lossy(&told.stdout).trim())
        }
    })
    .clone()
}

/// A client program of PostgreSQL, pointed at a port.
pub fn tool(name: &str, port: u16) -> Command {
    let mut command = Command::new(bin_dir().join(name));
    command
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", port.to_string())
        .env("PGUSER", USER)
        .env("PGDATABASE", DATABASE)
        .env("PGCONNECT_TIMEOUT", HANG_S_MAX.to_string())
        .env("LC_ALL", "C.UTF-8");
    command
}

/// Runs a program that must succeed; what it printed.
pub fn succeed(command: &mut Command) -> String {
    let output = finish(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}\n{text}", output.status);
    text
}

/// Runs a program to its end, whatever that is; one that hangs fails the test.
pub fn finish(command: &mut Command) -> Output {
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let (done, waited) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let output = child.wait_with_output().expect("a child of ours");
        let _ = done.send(());
        output
    });
    if waited.recv_timeout(s(HANG_S_MAX)).is_err() {
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        let output = reader.join().expect("reader");
        panic!("{command:?} hangs; it said {}", String::from_utf8_lossy(&output.stderr));
    }
    reader.join().expect("reader")
}

/// Asserts that a message has these words.
pub fn assert_names(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "{word:?} is not in {line:?}");
    }
}

/// Asks again and again until the answer is yes.
pub fn eventually(what: &str, mut asked: impl FnMut() -> bool) {
    let deadline = Instant::now() + s(HANG_S_MAX);
    while !asked() {
        assert!(Instant::now() < deadline, "not within {HANG_S_MAX} s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sessions at the servers on these ports that fulfil a condition on `pg_stat_activity`.
pub fn activity(ports: &[u16], condition: &str) -> i64 {
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE {condition}");
    let at = |port: &u16| {
        let opened = Session::open(*port, &[("user", USER), ("database", DATABASE)]);
        opened.unwrap_or_else(|failure| panic!("port {port}: {failure}")).number(&count)
    };
    ports.iter().map(at).sum()
}

/// Milliseconds as a duration.
pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Seconds as a duration.
pub fn s(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A port that nothing listens on, nor on those that a cluster takes with it. It stays this
/// process's own, whatever other test runs there are on this machine.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the ephemeral ports, and apart from those of other test processes; servers of a
    // cluster listen from 100 above its own port on.
    let base = 10_000 + (std::process::id() % 19) as u16 * 1_000;
    loop {
        let port = base + NEXT.fetch_add(31, Ordering::Relaxed) % 800;
        let all = [0, 100, 101, 102, 103, METRICS_DISTANCE].map(|offset| port + offset);
        // (By connecting: a listener of ours would live on in a process that another test is just starting.)
        let is_free = |port: u16| std::net::TcpStream::connect(("127.0.0.1", port)).is_err();
        if all.into_iter().all(reserved) && all.into_iter().all(is_free) {
            return port;
        }
    }
}

/// Keeps a port from this user's other test processes until this one ends: a server listens only
/// a while after its port was found free.
fn reserved(port: u16) -> bool {
    static RESERVED: Mutex<Vec<std::fs::File>> = Mutex::new(Vec::new());
    // Not in TMPDIR: runs have directories of their own.
    let folder = format!("/tmp/hihooi-test-ports-{}", nix::unistd::getuid());
    let folder = std::path::Path::new(&folder);
    std::fs::create_dir_all(folder).expect("a folder for temporary files");
    let file = std::fs::File::create(folder.join(port.to_string())).expect("own folder");
    let is_ours = file.try_lock().is_ok();
    if is_ours {
        RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }
    is_ours
}
