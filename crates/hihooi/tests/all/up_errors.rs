//! What `up` and `serve` say when they can't: one line that says what to do, exit status not
//! zero, nothing damaged (issue "one command, one consistent cluster", last point of "must
//! hold"); and that an interrupted first `up` leaves nothing that the next one can't use (I5).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::reaper::Folder;
use crate::harness::{
    self, Cluster, Options, alone, assert_names, eventually, finish, free_port, target_is_plain,
};

fn hihooi(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hihooi"));
    command.args(arguments);
    command
}

fn up(data: &Path, port: u16) -> Command {
    let mut command = hihooi(&["up", "--listen", &format!("127.0.0.1:{port}"), "--data"]);
    command.arg(data);
    command
}

/// Runs a command that must be refused; the line that it says.
fn refused(command: &mut Command) -> String {
    let output = finish(command);
    assert!(!output.status.success(), "{command:?} succeeded");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 1, "{command:?} said {said:?}");
    assert!(lines[0].starts_with("hihooi: "), "{said}");
    lines[0].to_owned()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn a_taken_port_is_named_and_nothing_is_made() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    let port = free_port();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let line = refused(&mut up(&data, port));
    assert_names(&line, &[&format!("127.0.0.1:{port}"), "--listen"]);
    assert!(!data.exists());
}

/// Whoever reaches the port may do anything, programs included: nobody opens it without a word.
#[test]
fn the_network_is_let_in_only_with_a_word() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    let config = folder.path().join("hihooi.toml");
    fs::write(
        &config,
        "listen = \"0.0.0.0:0\"\n[[site]]\nname = \"primary\"\nrole = \"primary\"\nhost = \"127.0.0.1\"\n\
         port = 1\n[[database]]\nname = \"postgres\"\n",
    )
    .expect("own folder");
    let data = data.to_str().expect("a name");
    let config = config.to_str().expect("a name");
    let up = ["up", "--data", data, "--listen", "0.0.0.0:0"];
    let serve = ["serve", "--data", data, "--config", config];
    for command in [&up[..], &serve] {
        let line = refused(&mut hihooi(command));
        assert_names(&line, &["0.0.0.0", "--insecure", "127.0.0.1", "password"]);
        assert!(!Path::new(data).exists(), "{command:?}");
    }
    let line = refused(hihooi(&serve).arg("--insecure"));
    assert!(!line.contains("--insecure"), "{line}");
}

#[test]
fn missing_programs_say_what_to_pass() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    let line = refused(up(&data, free_port()).arg("--pg-bin").arg(folder.path()));
    assert_names(&line, &["initdb", "postgres", "--pg-bin"]);
    assert!(!data.exists());
}

#[test]
fn a_too_old_server_says_what_to_install() {
    let folder = Folder::new();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).expect("own folder");
    for program in ["initdb", "postgres"] {
        let text = "#!/bin/sh\necho 'postgres (PostgreSQL) 13.9'\n";
        fs::write(bin.join(program), text).expect("own folder");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(bin.join(program), mode).expect("own file");
    }
    let data = folder.path().join("data");
    let line = refused(up(&data, free_port()).arg("--pg-bin").arg(&bin));
    assert_names(&line, &["PostgreSQL 13", "14 to 18"]);
    assert!(!data.exists());
}

#[test]
fn an_unwritable_directory_is_named() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    fs::write(&file, "").expect("own folder");
    let line = refused(&mut up(&file.join("data"), free_port()));
    assert_names(&line, &["file/data", "--data"]);
    if !is_root() {
        let closed = folder.path().join("closed");
        fs::create_dir(&closed).expect("own folder");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).expect("own folder");
        let line = refused(&mut up(&closed.join("data"), free_port()));
        assert_names(&line, &["closed/data", "Permission denied", "--data"]);
    }
}

#[test]
fn a_directory_that_the_servers_user_cannot_enter_is_named() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).expect("own folder");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("own folder");
    let line = refused(&mut up(&closed.join("data"), free_port()));
    assert_names(&line, &["cannot enter", closed.to_str().expect("UTF-8"), "chmod"]);
}

#[test]
fn a_directory_of_others_is_not_touched() {
    let folder = Folder::new();
    fs::write(folder.path().join("thesis.tex"), "years of work").expect("own folder");
    let line = refused(&mut up(folder.path(), free_port()));
    assert_names(&line, &["thesis.tex", "--data"]);
    let left: Vec<_> = fs::read_dir(folder.path()).expect("own folder").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let folder = Folder::new();
    let file = folder.path().join("hihooi.toml");
    fs::write(&file, "listen = \"127.0.0.1:1\"\n[pool]\nsiez = 20\n").expect("own folder");
    let line = refused(hihooi(&["serve", "--config"]).arg(&file));
    assert_names(&line, &["hihooi.toml", "line 3", "siez"]);
}

#[test]
fn a_primary_that_is_not_there_is_named() {
    let folder = Folder::new();
    let (port, listen) = (free_port(), format!("127.0.0.1:{}", free_port()));
    let site = format!("name=primary,role=primary,host=127.0.0.1,port={port}");
    let arguments = ["serve", "--site", &site, "--listen", &listen, "--data"];
    let line = refused(hihooi(&arguments).arg(folder.path().join("data")));
    assert_names(&line, &["primary", &format!("127.0.0.1:{port}")]);
}

/// A second `up`, a foreign manager, fewer replicas, a changed `wal_level`: all are
/// refused, and the cluster works as before.
#[test]
fn a_running_cluster_is_not_disturbed() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.psql("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)");

    let line = refused(&mut up(&cluster.data(), free_port()));
    assert_names(&line, &["another hihooi", &cluster.manager_pid().to_string(), "--data"]);
    let line = refused(up(&cluster.data(), cluster.port).args(["--replicas", "0"]));
    assert_names(&line, &["1 replicas", "--replicas"]);

    // A manager with another log must not take the slot of this one away.
    let folder = Folder::new();
    let reader = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'hihooi'";
    let before = cluster.direct("primary").number(reader);
    let port = cluster.site("primary").port;
    let site = format!("name=primary,role=primary,host=127.0.0.1,port={port}");
    let listen = format!("127.0.0.1:{}", free_port());
    let mut foreign = hihooi(&["serve", "--site", &site, "--listen", &listen, "--data"]);
    let line = refused(foreign.arg(folder.path().join("data")));
    assert_names(&line, &["primary at", "belongs to cluster", "log", "--data"]);
    assert_eq!(cluster.direct("primary").number(reader), before, "its collector was ended");

    cluster.psql("INSERT INTO t VALUES (2)");
    cluster.assert_verified();

    cluster.stop_manager(Signal::SIGTERM);
    let settings = cluster.data().join("primary/postgresql.auto.conf");
    let before = fs::read_to_string(&settings).expect("own file");
    fs::write(&settings, format!("{before}wal_level = 'replica'\n")).expect("own file");
    let line = refused(&mut up(&cluster.data(), cluster.port));
    assert_names(&line, &["wal_level", "logical"]);
    assert!(cluster.postmaster("replica1").is_none(), "nothing is left running");
    fs::write(&settings, before).expect("own file");

    cluster.up();
    cluster.psql("INSERT INTO t VALUES (3)");
    cluster.assert_verified();
}

/// The primary serves whatever becomes of a replica: who doesn't serve is named, and told of when it does.
#[test]
fn a_late_replica_is_named_and_told_of() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.stop_manager(Signal::SIGTERM);
    let settings = cluster.data().join("replica1/postgresql.auto.conf");
    let before = fs::read_to_string(&settings).expect("settings");
    fs::write(&settings, format!("{before}nonsense = 1\n")).expect("own file");
    let out = cluster.data().join("out");
    let said = || fs::read_to_string(&out).unwrap_or_default();
    let mut command = cluster.up_command();
    command.stdout(fs::File::create(&out).expect("own folder"));
    let mut manager = command.spawn().expect("hihooi up");
    fs::write(cluster.data().join("../manager.pid"), manager.id().to_string()).expect("own folder");
    eventually("ready", || said().contains("ready at postgres://"));
    let lines = said();
    let (late, ready) = (lines.find("replica1 does not serve yet: "), lines.find("ready at"));
    assert!(late.is_some() && late < ready, "{lines}");
    assert!(lines.contains("postgresql.auto.conf"), "{lines}");
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY)");
    assert!(!said().contains("serves now"), "{}", said());
    let reason = cluster.show_replicas()["replica1"]["reason"].clone();
    assert!(reason.contains("postgresql.auto.conf"), "SHOW REPLICAS says it too: {reason}");
    fs::write(&settings, before).expect("own file");
    eventually("the replica", || said().contains("replica1 serves now"));
    assert_eq!(cluster.show_replicas()["replica1"]["reason"], "");
    cluster.assert_verified();
    kill(Pid::from_raw(manager.id() as i32), Signal::SIGTERM).expect("own child");
    assert!(manager.wait().expect("own child").success());
}

/// I5, and never silently destroyed: whatever moment the first `up` is killed at, the next one
/// makes the cluster, and says that it makes it again.
#[test]
fn an_interrupted_first_up_is_made_again() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    // What `up` says, or a file that it makes.
    for moment in [
        "creating primary",
        "primary/postmaster.pid",
        "copying primary to replica1",
        "copying primary to replica2",
    ] {
        let cluster_folder = Folder::new();
        let data = cluster_folder.path().join("data");
        let out = cluster_folder.path().join("out");
        let said = || fs::read_to_string(&out).unwrap_or_default();
        let port = free_port();
        let mut command = up(&data, port);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(fs::File::create(&out).expect("own folder"));
        let mut first = command.spawn().expect("hihooi up");
        eventually(moment, || said().contains(moment) || data.join(moment).exists());
        first.kill().expect("own child");
        first.wait().expect("own child");

        let mut command = up(&data, port);
        command.stdin(Stdio::null()).stdout(fs::File::create(&out).expect("own folder"));
        let mut second = command.spawn().expect("hihooi up");
        let pid = second.id();
        fs::write(cluster_folder.path().join("manager.pid"), pid.to_string()).expect("own folder");
        eventually("ready", || said().contains("ready at postgres://"));
        let tables = harness::succeed(harness::tool("psql", port).args(["-Atc", "SELECT 7"]));
        assert_eq!(tables.trim(), "7");
        kill(Pid::from_raw(pid as i32), Signal::SIGTERM).expect("own child");
        assert!(second.wait().expect("own child").success());
    }
}
