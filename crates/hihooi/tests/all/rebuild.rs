//! `hihooi rebuild`: whatever became of replicas, slot or log, the primary's data are enough.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;

use crate::harness::{
    self, Cluster, Options, alone, assert_names, eventually, finish, target_is_plain,
};

fn rebuild(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = Command::new(harness::program());
    command.arg("rebuild").arg("--data").arg(cluster.data()).args(arguments);
    command.stdin(Stdio::null());
    command
}

/// What a command said, and whether it succeeded.
fn said(command: &mut Command) -> (bool, String) {
    let Output { status, stdout, stderr } = finish(command);
    let text = [stdout, stderr].concat();
    (status.success(), String::from_utf8(text).expect("text"))
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("own folder");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a file of the log");
    }
}

/// Everything the primary has is at its replicas afterwards, and only that; servers keep settings of
/// their own; whoever belonged to the cluster before is a stranger (docs/decisions/0007).
#[test]
fn replicas_are_made_anew() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    let mut session = cluster.connect();
    session.run(
        "CREATE TABLE t (id serial PRIMARY KEY, v text); INSERT INTO t (v) VALUES ('a'), ('b');
         CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY); INSERT INTO unlogged VALUES (1), (2);
         CREATE TABLE keyless (v text); INSERT INTO keyless VALUES ('x'), ('x');
         CREATE MATERIALIZED VIEW seen AS SELECT count(*) FROM t",
    );
    cluster.caught_up();
    let settings = "SELECT current_setting('work_mem') || ' ' || current_setting('cluster_name')";
    cluster.direct("primary").run("ALTER SYSTEM SET work_mem = '7MB'");
    cluster.direct("replica2").run("ALTER SYSTEM SET work_mem = '9MB'");

    let (is_done, text) = said(&mut rebuild(&cluster, &["--yes"]));
    assert!(!is_done, "{text}");
    assert_names(&text, &[&format!("process {}", cluster.manager_pid()), "stop it"]);

    // A slot that is gone, and a replica with rows and tables of its own:
    cluster.kill_manager();
    let mut replica = cluster.repair("replica1");
    replica.run("DELETE FROM t; CREATE TABLE own (id int); INSERT INTO keyless VALUES ('y')");
    let mut primary = cluster.direct("primary");
    primary.run("INSERT INTO t (v) VALUES ('c')");
    eventually("the slot is free", || {
        primary.simple("SELECT pg_drop_replication_slot('hihooi')").is_ok()
    });
    let (is_up, text) = said(&mut cluster.up_command());
    assert!(!is_up, "{text}");
    assert_names(&text, &["slot", "hihooi rebuild"]);

    let old = cluster.data().join("old");
    copy_directory(&cluster.data().join("log"), &old.join("log"));
    let (is_done, text) = said(&mut rebuild(&cluster, &[]));
    assert!(is_done, "{text}");
    assert_names(&text, &["would remove", "replica1, replica2", "MB", "--yes"]);
    for kept in ["log", "replica1/PG_VERSION", "replica2/PG_VERSION"] {
        assert!(cluster.data().join(kept).exists(), "{kept}");
    }

    let (is_done, text) = said(&mut rebuild(&cluster, &["--yes"]));
    assert!(is_done, "{text}");
    assert_names(&text, &["copying primary to replica2", "`hihooi up`"]);
    cluster.up();
    cluster.assert_verified();
    let mut session = cluster.connect();
    session.run("INSERT INTO t (v) VALUES ('d'); ALTER TABLE unlogged SET LOGGED");
    session.run("DELETE FROM keyless; REFRESH MATERIALIZED VIEW seen");
    let rows = cluster.assert_equal("SELECT v FROM t ORDER BY id").rows;
    assert_eq!(rows.len(), 4);
    cluster.assert_equal("SELECT * FROM unlogged ORDER BY id");
    cluster.assert_equal("SELECT * FROM seen");
    cluster.assert_verified();
    assert!(cluster.direct("replica1").simple("SELECT FROM own").is_err());
    for (site, expected) in
        [("primary", "7MB primary"), ("replica1", "4MB replica1"), ("replica2", "9MB replica2")]
    {
        assert_eq!(cluster.direct(site).value(settings), expected);
    }

    // The old log is no log of this cluster.
    cluster.kill_manager();
    let mut serve = Command::new(harness::program());
    serve.args(["serve", "--config"]).arg(cluster.data().join("hihooi.toml"));
    let (is_served, text) = said(serve.arg("--data").arg(&old).stdin(Stdio::null()));
    assert!(!is_served, "{text}");
    assert_names(&text, &["primary at 127.0.0.1", "it belongs to cluster"]);
    cluster.up();
    cluster.assert_verified();
}

/// At any moment: nothing runs on half-made replicas, and the next one finishes.
#[test]
fn it_may_be_killed_at_any_moment() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.caught_up();
    cluster.kill_manager(); // its servers stay
    let mark = cluster.data().join("rebuilding");
    let control = cluster.data().join("replica1/global/pg_control");
    let start = || rebuild(&cluster, &["--yes"]).stdout(Stdio::null()).spawn().expect("starts");
    let kill_at = |moment: &dyn Fn() -> bool| {
        let mut child = start();
        eventually("a moment of it", || {
            // One that has come to its end was too quick.
            if child.try_wait().expect("a child of ours").is_some() {
                child = start();
            }
            moment()
        });
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");
        if mark.exists() {
            let (is_up, text) = said(&mut cluster.up_command());
            assert!(!is_up, "{text}");
            assert_names(&text, &["incomplete", "hihooi rebuild --yes"]);
        }
        mark.exists()
    };
    // Before the primary is changed, while the slot is made, and while files are copied.
    kill_at(&|| true);
    kill_at(&|| mark.exists());
    eventually("it was killed in the middle", || kill_at(&|| mark.exists() && !control.exists()));
    let (is_done, text) = said(&mut rebuild(&cluster, &["--yes"]));
    assert!(is_done, "{text}");
    assert!(!mark.exists());
    cluster.up();
    cluster.connect().run("INSERT INTO t VALUES (2)");
    cluster.assert_equal("SELECT * FROM t ORDER BY id");
    cluster.assert_verified();
}

/// What can't be copied is said before anything is changed.
#[test]
fn what_cannot_be_copied_is_refused() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY)");
    session.run("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'open'");
    cluster.stop_manager(Signal::SIGTERM);
    let (is_done, text) = said(&mut rebuild(&cluster, &["--yes"]));
    assert!(!is_done, "{text}");
    assert_names(&text, &["\"open\"", "COMMIT PREPARED"]);
    cluster.up();
    cluster.connect().run("COMMIT PREPARED 'open'");
    cluster.assert_equal("SELECT * FROM t");
    let mut primary = cluster.direct("primary");
    if primary.number("SHOW server_version_num") >= 150_000 {
        primary.run("SET allow_in_place_tablespaces = on");
        primary.run("CREATE TABLESPACE far LOCATION ''");
        cluster.stop_manager(Signal::SIGTERM);
        let (is_done, text) = said(&mut rebuild(&cluster, &["--yes"]));
        assert!(!is_done, "{text}");
        assert_names(&text, &["\"far\"", "pg_default"]);
        cluster.up();
        cluster.direct("primary").run("DROP TABLESPACE far");
    }
    cluster.stop_manager(Signal::SIGTERM);
    let (is_done, text) = said(&mut rebuild(&cluster, &["--yes"]));
    assert!(is_done, "{text}");
    cluster.up();
    cluster.assert_equal("SELECT * FROM t");
}

/// A directory without a cluster isn't touched.
#[test]
fn only_a_cluster_is_rebuilt() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(harness::program());
    command.arg("rebuild").arg("--yes").arg("--data").arg(folder.path()).stdin(Stdio::null());
    let (is_done, text) = said(&mut command);
    assert!(!is_done, "{text}");
    assert_names(&text, &["holds no cluster", "--data"]);
}
