//! No stranger is believed (I5, docs/decisions/0007): a server or a log that doesn't belong to the cluster
//! is named, with the remedy, and neither read from nor written to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;

use crate::harness::{
    self, Cluster, Options, alone, assert_names, eventually, finish, reference, target_is_plain,
};

/// A configuration file beside the cluster's own, changed.
fn changed(cluster: &Cluster, name: &str, change: impl Fn(&str) -> String) -> PathBuf {
    let own = fs::read_to_string(cluster.data().join("hihooi.toml")).expect("its configuration");
    let path = cluster.data().join(name);
    fs::write(&path, change(&own)).expect("own folder");
    path
}

/// The configuration with another port for a site.
fn with_port(cluster: &Cluster, site: &str, port: u16) -> impl Fn(&str) -> String {
    let own = format!("port = {}\n", cluster.site(site).port);
    move |config| {
        assert!(config.contains(&own), "{config}");
        config.replace(&own, &format!("port = {port}\n"))
    }
}

fn hihooi(subcommand: &str, config: &Path, data: &Path) -> Command {
    let mut command = Command::new(harness::program());
    command.arg(subcommand).arg("--config").arg(config).stdin(Stdio::null());
    if subcommand == "serve" {
        command.arg("--data").arg(data);
    }
    command
}

/// What a command that ends by itself said, one line of it to the user as an error.
fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = finish(command);
    assert_eq!(status.code(), Some(1), "{command:?}");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    let line = said.lines().find(|line| line.starts_with("hihooi: "));
    line.unwrap_or_else(|| panic!("{command:?} said {said:?}")).to_owned()
}

/// A cluster with a replica and a table.
fn with_a_row() -> Cluster {
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.caught_up();
    cluster
}

/// It takes writes, and the replica follows.
fn assert_works(cluster: &Cluster) {
    cluster.connect().run("INSERT INTO t SELECT max(id) + 1 FROM t");
    cluster.assert_equal("SELECT * FROM t ORDER BY id");
}

fn id(cluster: &Cluster) -> String {
    cluster.direct("primary").value("SELECT id FROM hihooi.cluster")
}

/// Sites that are not what the configuration says, and the log of another cluster.
#[test]
fn strangers_are_named_and_not_touched() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let (ours, other) =
        (Cluster::start(Options::replicas(2)), Cluster::start(Options::replicas(1)));
    for (cluster, row) in [(&ours, 1), (&other, 2)] {
        cluster.connect().run(&format!("CREATE TABLE t (id int); INSERT INTO t VALUES ({row})"));
        cluster.caught_up();
        for site in cluster.sites() {
            let asked = "SELECT id || ' ' || site FROM hihooi.cluster";
            let told = cluster.direct(&site.name).value(asked);
            assert_eq!(told, format!("{} {}", id(cluster), site.name));
        }
    }
    let (our_id, other_id) = (id(&ours), id(&other));
    assert_ne!(our_id, other_id);
    ours.kill_manager();

    // The primary of another cluster, which serves: nothing is ended there.
    let mut session = other.connect();
    let stranger =
        changed(&ours, "primary.toml", with_port(&ours, "primary", other.site("primary").port));
    let line = refused(&mut hihooi("serve", &stranger, &ours.data()));
    assert_names(&line, &["primary at 127.0.0.1", &our_id, &other_id, "--data"]);
    // The same with an empty log.
    let empty = ours.data().join("empty");
    let own = ours.data().join("hihooi.toml");
    let line = refused(&mut hihooi("serve", &own, &empty));
    assert_names(&line, &["primary at 127.0.0.1", &our_id, "--data"]);
    session.run("INSERT INTO t VALUES (3)");
    other.caught_up();

    // Replicas of another cluster, and exchanged ones, don't serve.
    let taken = other.site("replica1").port;
    let stranger = changed(&ours, "replica.toml", with_port(&ours, "replica2", taken));
    let told =
        String::from_utf8(finish(&mut hihooi("check", &stranger, &empty)).stdout).expect("text");
    assert_names(
        &told,
        &["primary: fit", "replica1: fit", "replica2: not fit: it belongs to cluster"],
    );
    let serving = serve(&ours, &stranger);
    eventually("replica2 is known to be a stranger", || {
        ours.show_replicas()["replica2"]["reason"].contains(&other_id)
    });
    assert_eq!(ours.state("replica2"), "failed");
    let mut reader = ours.connect();
    for _ in 0..20 {
        assert_eq!(reader.value("SELECT id FROM t"), "1");
    }
    serving.stop();
    assert_eq!(other.connect().value("SELECT count(*) FROM t"), "2");
    other.caught_up();
    other.assert_verified();

    // A server that belongs to nobody, though one of its roles would like us to run his code.
    let plain = reference();
    let user = [("user", harness::USER), ("database", harness::DATABASE)];
    let mut anybody = harness::Session::open(plain.port, &user).expect("a session");
    anybody.run(
        "CREATE ROLE anybody; CREATE SCHEMA hihooi AUTHORIZATION anybody; SET ROLE anybody; \
         CREATE FUNCTION hihooi.trap() RETURNS text LANGUAGE plpgsql AS $$ BEGIN \
             RAISE 'it ran'; END $$; \
         CREATE VIEW hihooi.cluster AS SELECT hihooi.trap() AS id, hihooi.trap() AS site; RESET ROLE",
    );
    let stranger = changed(&ours, "plain.toml", with_port(&ours, "replica2", plain.port));
    let told =
        String::from_utf8(finish(&mut hihooi("check", &stranger, &empty)).stdout).expect("text");
    assert_names(&told, &["replica2: not fit: it belongs to no cluster and is no copy"]);
    let serving = serve(&ours, &stranger);
    eventually("replica2 is known to be nobody's", || {
        ours.show_replicas()["replica2"]["reason"].contains("it belongs to no cluster")
    });
    serving.stop();
    anybody.run("DROP SCHEMA hihooi CASCADE; DROP ROLE anybody");

    let (one, two) = (ours.site("replica1").port, ours.site("replica2").port);
    let exchanged = changed(&ours, "exchanged.toml", |config| {
        let [one, two] = [one, two].map(|port| format!("port = {port}\n"));
        config.replace(&one, "port = x\n").replace(&two, &one).replace("port = x\n", &two)
    });
    let told =
        String::from_utf8(finish(&mut hihooi("check", &exchanged, &empty)).stdout).expect("text");
    assert_names(&told, &["replica1: not fit: it is replica2 of its cluster"]);
    let serving = serve(&ours, &exchanged);
    eventually("both are known", || {
        let shown = ours.show_replicas();
        shown["replica1"]["reason"].contains("it is replica2")
            && shown["replica2"]["reason"].contains("it is replica1")
    });
    serving.stop();

    // All is as it was.
    ours.serve();
    ours.connect().run("INSERT INTO t VALUES (4)");
    ours.caught_up();
    ours.assert_verified();
}

/// A manager that serves with a changed configuration.
struct Serving(std::process::Child);

fn serve(cluster: &Cluster, config: &Path) -> Serving {
    let mut command = hihooi("serve", config, &cluster.data());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("hihooi serve");
    eventually("it serves", || cluster.try_connect(&[]).is_ok());
    Serving(child)
}

impl Serving {
    fn stop(mut self) {
        self.0.kill().expect("it ran");
        self.0.wait().expect("ours");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What another manager with a copy of the log has read from the slot is missing in this log: that is
/// noticed, and replicas aren't served with a hole.
#[test]
fn a_log_with_a_hole_is_noticed() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = with_a_row();
    cluster.kill_manager();
    let second = cluster.data().join("second");
    fs::create_dir(&second).expect("own folder");
    let copied = Command::new("cp").arg("-r").arg(cluster.data().join("log")).arg(&second).status();
    assert!(copied.expect("cp").success());
    let own = cluster.data().join("hihooi.toml");
    let mut other = hihooi("serve", &own, &second);
    let mut other =
        other.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("hihooi serve");
    eventually("it serves", || cluster.try_connect(&[]).is_ok());
    cluster.connect().run("INSERT INTO t VALUES (2)");
    cluster.caught_up();
    let mut primary = cluster.direct("primary");
    let written = primary.value("SELECT pg_current_wal_lsn()");
    eventually("the slot is confirmed behind it", || {
        let asked = format!("SELECT confirmed_flush_lsn >= '{written}' FROM pg_replication_slots");
        primary.value(&asked) == "t"
    });
    other.kill().expect("it ran");
    other.wait().expect("ours");
    let line = refused(&mut hihooi("serve", &own, &cluster.data()));
    assert_names(
        &line,
        &["primary at 127.0.0.1", "slot \"hihooi\" was read up to", "reaches only to"],
    );
    // The other one goes on.
    let mut other = hihooi("serve", &own, &second);
    let other = Serving(other.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("serve"));
    eventually("it serves", || cluster.try_connect(&[]).is_ok());
    assert_works(&cluster);
    other.stop();
}

/// An idle cluster's slot follows what concerns nobody, and the log knows how far: a restart finds no
/// hole.
#[test]
fn an_idle_slot_makes_no_hole() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = with_a_row();
    let mut primary = cluster.direct("primary");
    // In another database, and in none.
    primary.run("CREATE DATABASE elsewhere");
    primary.run("CHECKPOINT");
    let position = primary.value("SELECT pg_current_wal_lsn()");
    eventually("the slot follows", || {
        let asked = format!("SELECT confirmed_flush_lsn >= '{position}' FROM pg_replication_slots");
        primary.value(&asked) == "t"
    });
    for _ in 0..2 {
        cluster.kill_manager();
        cluster.up();
    }
    assert_works(&cluster);
}

/// Another server in a site's place, while the manager runs: it is looked at when it is connected to.
#[test]
fn who_comes_back_is_looked_at() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = with_a_row();
    let own = id(&cluster);
    // The servers outlive this manager.
    cluster.kill_manager();
    cluster.serve();
    let become_other = |site: &str, id: &str| {
        let mut session = cluster.repair(site);
        session.run(&format!("UPDATE hihooi.cluster SET id = {id}"));
        session.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name LIKE 'hihooi %' AND application_name <> 'hihooi probe'",
        );
    };
    become_other("replica1", "gen_random_uuid()");
    eventually("the replica is another cluster's", || {
        let replica = cluster.show_replicas().remove("replica1").expect("shown");
        replica["state"] == "failed" && replica["reason"].contains(&own)
    });
    become_other("replica1", &format!("'{own}'"));
    assert_works(&cluster);
    become_other("primary", "gen_random_uuid()");
    eventually("the manager ends", || !cluster.manager_runs());
    assert_names(&cluster.log_tail(), &["hihooi: primary at 127.0.0.1", &own, "--data"]);
    cluster.direct("primary").run(&format!("UPDATE hihooi.cluster SET id = '{own}'"));
    cluster.up();
    assert_works(&cluster);
}

/// Clusters of earlier versions have no ids: they get them at the next start.
#[test]
fn earlier_clusters_get_an_id() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = with_a_row();
    let before = id(&cluster);
    cluster.stop_manager(Signal::SIGKILL);
    for site in ["primary", "replica1"] {
        let mut session = cluster.repair(site);
        session.run(
            "DO $$ DECLARE n name; BEGIN FOR n IN SELECT evtname FROM pg_event_trigger LOOP
             EXECUTE format('DROP EVENT TRIGGER %I', n); END LOOP; END $$; DROP TABLE hihooi.cluster",
        );
        session.run("COMMENT ON SCHEMA hihooi IS 'hihooi set-up 1'");
    }
    cluster.up();
    // The log still knows it.
    for site in ["primary", "replica1"] {
        let asked = "SELECT id || ' ' || site FROM hihooi.cluster";
        assert_eq!(cluster.direct(site).value(asked), format!("{before} {site}"));
    }
    assert_works(&cluster);
}

/// RESUME is a word for good, also when the manager ends before the replica could act on it (I2).
#[test]
fn a_resume_outlives_the_manager() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = with_a_row();
    // What no replica can know how to follow.
    cluster.direct("primary").run(
        "BEGIN; INSERT INTO hihooi.note (event, body) VALUES ('of a later version', '{}'); \
         DELETE FROM hihooi.note; COMMIT",
    );
    eventually("the replica stops", || {
        cluster.show_replicas()["replica1"]["reason"].contains("RESUME REPLICA")
    });
    let mut replica = cluster.direct("replica1");
    replica.run("SET default_transaction_read_only = off; BEGIN; LOCK TABLE pg_class");
    cluster.command("RESUME REPLICA replica1");
    cluster.kill_manager();
    cluster.up_without_waiting_for_all();
    replica.run("ROLLBACK");
    cluster.caught_up();
    assert_works(&cluster);
}
