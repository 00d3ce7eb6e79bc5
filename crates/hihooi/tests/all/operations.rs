//! What administrators and service managers do with a running hihooi: `status`, `stop`, `verify --data`, systemd's
//! notifications, logs as JSON.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::reaper::Folder;
use crate::harness::{
    self, Cluster, Options, alone, assert_names, eventually, finish, s, target_is_plain,
};

/// How often the service must say that it isn't stuck, in microseconds: it does so twice as often.
const WATCHDOG_USEC: &str = "1000000";

/// What a command says, and its exit status.
fn said(command: &str, data: &Path, arguments: &[&str]) -> (String, i32) {
    let mut hihooi = Command::new(harness::program());
    let output = finish(hihooi.arg(command).arg("--data").arg(data).args(arguments));
    let text = [&output.stdout[..], &output.stderr].concat();
    (String::from_utf8(text).expect("UTF-8"), output.status.code().expect("no signal"))
}

/// Where a service manager would listen.
struct Listener {
    socket: UnixDatagram,
    /// All that has come so far.
    heard: Vec<String>,
}

impl Listener {
    fn new(path: &Path) -> Listener {
        let socket = UnixDatagram::bind(path).expect("own folder");
        socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a time limit");
        Listener { socket, heard: Vec::new() }
    }

    /// How often a line came so far.
    fn count(&mut self, line: &str) -> usize {
        let mut bytes = [0; 4096];
        while let Ok(len) = self.socket.recv(&mut bytes) {
            let text = std::str::from_utf8(&bytes[..len]).expect("UTF-8");
            self.heard.extend(text.lines().map(str::to_owned));
        }
        self.heard.iter().filter(|heard| heard.starts_with(line)).count()
    }
}

/// A cluster whose clients are all refused by rules that can be changed.
struct Refusing {
    cluster: Cluster,
    hba: PathBuf,
    _folder: Folder,
}

impl Refusing {
    fn start(notify: &Path) -> Refusing {
        let folder = Folder::new();
        let hba = folder.path().join("hba.conf");
        fs::write(&hba, "host all all 127.0.0.1/32 trust\n").expect("own folder");
        let options = Options::replicas(1)
            .env("HIHOOI_HBA_FILE", hba.to_str().expect("UTF-8"))
            .env("HIHOOI_LOG_FORMAT", "json")
            .env("NOTIFY_SOCKET", notify.to_str().expect("UTF-8"))
            .env("WATCHDOG_USEC", WATCHDOG_USEC);
        Refusing { cluster: Cluster::start(options), hba, _folder: folder }
    }

    /// Does something while the rules refuse everybody who comes over the network.
    fn meanwhile(&self, act: impl FnOnce()) {
        fs::write(&self.hba, "host all all 127.0.0.1/32 reject\n").expect("own folder");
        eventually("clients are refused", || self.cluster.try_connect(&[]).is_err());
        act();
        fs::write(&self.hba, "host all all 127.0.0.1/32 trust\n").expect("own folder");
        eventually("clients are let in", || self.cluster.try_connect(&[]).is_ok());
    }
}

/// The whole life of a cluster, as whoever operates it sees it.
#[test]
fn a_cluster_is_operated() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let folder = Folder::new();
    let mut notified = Listener::new(&folder.path().join("notify"));
    let refusing = Refusing::start(&folder.path().join("notify"));
    let cluster = &refusing.cluster;
    let data = cluster.data();
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)");
    cluster.caught_up();

    is_notified(&mut notified);
    cluster.command("RELOAD");
    assert_eq!((notified.count("RELOADING=1"), notified.count("READY=1")), (1, 2));
    assert_eq!(notified.count("MONOTONIC_USEC="), 1, "which reload it is");
    refusing.meanwhile(|| needs_no_password(cluster));
    shows_what_is_degraded(cluster);
    logs_objects(&data);

    let (text, status) = said("stop", &data, &[]);
    assert_eq!(status, 0, "{text}");
    assert!(!cluster.manager_runs(), "stop waits for the end");
    assert!(cluster.postmaster("primary").is_none() && cluster.postmaster("replica1").is_none());
    assert_eq!(notified.count("STOPPING=1"), 1);
    assert_eq!(notified.count("READY=1"), 2, "PostgreSQL's servers tell nothing");
    assert_eq!(said("stop", &data, &[]).1, 3);
    let (text, status) = said("status", &data, &[]);
    assert!(text.starts_with("not running\n") && status == 3, "{text}");

    is_found_after_a_crash(cluster);
}

/// systemd hears that clients are served, how many replicas do that, and that the relay isn't stuck.
fn is_notified(notified: &mut Listener) {
    eventually("it is ready", || notified.count("READY=1") == 1);
    eventually("replicas are counted", || notified.count("STATUS=1 of 1 replicas serve reads") > 0);
    let (began, before) = (Instant::now(), notified.count("WATCHDOG=1"));
    eventually("it isn't stuck", || notified.count("WATCHDOG=1") >= before + 4);
    // Not at once: each half a time limit.
    assert!(began.elapsed() > s(1), "{:?}", began.elapsed());
}

/// Whoever owns the data directory asks without a password, others not at all.
fn needs_no_password(cluster: &Cluster) {
    let data = cluster.data();
    let listen = format!("127.0.0.1:{}", cluster.port);
    let refused = finish(Command::new(harness::program()).args(["verify", "--listen", &listen]));
    assert_eq!(refused.status.code(), Some(2));
    assert_names(&String::from_utf8_lossy(&refused.stderr), &["rejects connection"]);
    let (text, status) = said("verify", &data, &[]);
    assert_eq!(status, 0, "{text}");
    assert_names(&text, &["replica1", "equal"]);

    eventually("all is well", || said("status", &data, &[]).1 == 0);
    let (text, status) = said("status", &data, &[]);
    assert!(text.starts_with("1 of 1 replicas serve reads\n"), "{text}");
    assert_names(&text, &[&cluster.manager_pid().to_string(), &listen, "replica1", "serving"]);
    assert_eq!(status, 0, "{text}");
    let (text, status) = said("status", &data, &["--json"]);
    let told: Value = serde_json::from_str(&text).expect("an object");
    assert_eq!(status, 0, "{text}");
    assert_eq!((&told["is_running"], &told["is_well"]), (&true.into(), &true.into()));
    assert_eq!(told["process"], cluster.manager_pid());
    assert_eq!(told["sites"][1]["lag_entries"], 0);
    let mode = fs::metadata(data.join("admin.sock")).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// A replica that serves nothing new is no replica that serves.
fn shows_what_is_degraded(cluster: &Cluster) {
    let data = cluster.data();
    cluster.admin().run("PAUSE REPLICA replica1");
    let (text, status) = said("status", &data, &[]);
    assert!(text.starts_with("0 of 1 replicas serve reads\n") && status == 1, "{text}");
    assert_names(&text, &["paused"]);
    cluster.admin().run("RESUME REPLICA replica1");
    eventually("it serves again", || said("status", &data, &[]).1 == 0);
}

/// Every line of the log is an object with the same names.
fn logs_objects(data: &Path) {
    let log = fs::read_to_string(data.join("hihooi.log")).expect("a log");
    assert!(!log.is_empty());
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        for name in ["timestamp", "level", "target", "message"] {
            assert!(event[name].is_string(), "{name}: {line}");
        }
    }
}

/// After `kill -9` nothing is taken for the process that is gone; a manager of servers that are still running is
/// stopped alone.
fn is_found_after_a_crash(cluster: &Cluster) {
    let data = cluster.data();
    cluster.up();
    cluster.kill_manager();
    assert!(data.join("admin.sock").exists());
    assert_eq!(said("status", &data, &[]).1, 3);
    cluster.serve();
    eventually("all is well", || said("status", &data, &[]).1 == 0);
    // One that doesn't end in time is not called stopped.
    cluster.signal_manager(Signal::SIGSTOP);
    let (text, status) = said("stop", &data, &["--timeout", "1"]);
    assert_eq!(status, 1, "{text}");
    assert_names(&text, &["has not ended after 1 s", "primary, replica1 still running"]);
    assert!(cluster.manager_runs());
    cluster.signal_manager(Signal::SIGCONT);
    eventually("it ends", || !cluster.manager_runs());
    assert!(cluster.postmaster("primary").is_some(), "serve leaves servers alone");

    cluster.up();
    assert_eq!(said("stop", &data, &["--immediate"]).1, 0);
    assert!(!cluster.manager_runs());
    let log = fs::read_to_string(data.join("primary.log")).expect("its log");
    let last = log.rsplit_once("received ").expect("it was stopped").1;
    assert!(last.starts_with("immediate shutdown request"), "{last}");
}

/// A number that was left behind may be another program's by now: it is never signalled.
#[test]
fn only_who_holds_the_lock_is_stopped() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("own folder");
    let mut other = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().expect("sleep");
    fs::write(data.join("hihooi.lock"), format!("{} up", other.id())).expect("own folder");
    let (text, status) = said("stop", &data, &[]);
    assert_eq!(status, 3, "{text}");
    assert_names(&text, &["not running"]);
    assert_eq!(said("status", &data, &[]).1, 3);
    let is_alive = matches!(other.try_wait(), Ok(None));
    kill(Pid::from_raw(other.id() as i32), Signal::SIGKILL).expect("a child of ours");
    other.wait().expect("a child of ours");
    assert!(is_alive);
}

/// The unit that is shipped is one.
#[test]
fn the_unit_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unit = fs::read_to_string(root.join("contrib/hihooi.service")).expect("the unit");
    let folder = Folder::new();
    let path = folder.path().join("hihooi.service");
    let program = harness::program();
    let unit = unit.replace("/usr/local/bin/hihooi", program.to_str().expect("UTF-8"));
    fs::write(&path, unit).expect("own folder");
    let mut command = Command::new("systemd-analyze");
    let Ok(output) = command.args(["verify", "--man=no"]).arg(&path).output() else {
        eprintln!("no systemd-analyze here: not verified");
        return;
    };
    // Other units of this machine may have faults.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("hihooi.service"), "{said}");
}

/// Pages and completions are made of all commands.
#[test]
fn pages_and_completions_name_all_commands() {
    let folder = Folder::new();
    let mut hihooi = Command::new(harness::program());
    harness::succeed(hihooi.args(["man", "--dir"]).arg(folder.path()));
    let script = harness::succeed(Command::new(harness::program()).args(["completions", "bash"]));
    for command in ["up", "serve", "stop", "status", "verify", "rebuild", "check", "plan"] {
        let page = fs::read_to_string(folder.path().join(format!("hihooi-{command}.1")));
        assert_names(&page.expect("a page"), &[".TH", ".SH NAME", ".SH OPTIONS"]);
        assert!(script.contains(&format!("hihooi,{command})")), "{command}");
    }
}
