//! REBUILD REPLICA: a replica is replaced by a copy of the primary while clients are served, and one that can't apply
//! changes is replaced by itself.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;

use crate::harness::load::{self, Load};
use crate::harness::{
    Cluster, Options, Session, alone, assert_names, eventually, finish, ms, target_is_plain,
};

/// Whether replicas are replaced without being asked to.
fn auto_rebuild(replicas: usize, is_on: bool) -> Options {
    Options::replicas(replicas).env("HIHOOI_REPLICA_AUTO_REBUILD", &is_on.to_string())
}

fn rebuilds(cluster: &Cluster, replica: &str) -> String {
    cluster.show_replicas()[replica]["rebuilds"].clone()
}

fn until_serving(cluster: &Cluster, replica: &str) {
    eventually("the replica serves", || cluster.state(replica) == "serving");
}

/// Ends what goes on beside a test, also when that fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rows there are others than at the primary, so that an UPDATE of them can't be applied.
fn diverge(cluster: &Cluster, replica: &str) {
    cluster.repair(replica).run("DELETE FROM t");
}

/// The copy contains exactly what was committed before its position in the log (I2, I5): nothing of a write load is
/// lost or doubled there, whether it was open, prepared, or DDL when the copy was taken.
#[test]
fn a_replica_is_replaced_while_clients_read_and_write() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    load::prepare(&cluster);
    let (mut session, mut open) = (cluster.connect(), cluster.connect());
    session.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a');
         CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY); INSERT INTO unlogged VALUES (1)",
    );
    cluster.caught_up();
    cluster.direct("replica1").run("ALTER SYSTEM SET work_mem = '9MB'");
    open.run("BEGIN");
    open.run("INSERT INTO t VALUES (2, 'open')");
    session.run("BEGIN; INSERT INTO t VALUES (3, 'prepared'); PREPARE TRANSACTION 'later'");
    let load = Load::start(&cluster, 0, 1);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&is_done);
        scope.spawn(|| {
            let mut ddl = cluster.connect();
            for number in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
                ddl.run(&format!(
                    "CREATE TABLE made_{number} (id int PRIMARY KEY); INSERT INTO made_{number} VALUES ({number})"
                ));
                ddl.run(&format!("ALTER TABLE made_{number} ADD v float DEFAULT random()"));
                std::thread::sleep(ms(500));
            }
        });
        for replica in ["replica1", "replica2", "replica1"] {
            load.progress(100);
            let refused = cluster.admin().error(&format!("REBUILD REPLICA {replica}"));
            assert_names(refused.message(), &["serv", "FORCE"]);
            cluster.admin().run(&format!("REBUILD REPLICA {replica} FORCE"));
            load.progress(100);
            // The load may outrun it.
            let is_back = || ["serving", "catching_up"].contains(&&*cluster.state(replica));
            eventually("the replica is back", is_back);
        }
    });
    open.run("UPDATE t SET v = v || ' no more'");
    open.run("COMMIT");
    session.run("COMMIT PREPARED 'later'");
    let known = load.stop();
    load::check(&cluster, &known);
    cluster.assert_equal("SELECT * FROM t ORDER BY id");
    cluster.assert_verified();
    assert_eq!(rebuilds(&cluster, "replica1"), "2");
    assert_eq!(rebuilds(&cluster, "replica2"), "1");
    assert_eq!(cluster.direct("replica1").value("SHOW work_mem"), "9MB");
    assert_eq!(cluster.direct("primary").value("SELECT count(*) FROM pg_replication_slots"), "1");
    // It is a replica for good.
    cluster.kill_everything();
    cluster.up();
    cluster.connect().run("INSERT INTO t VALUES (4, 'later'); ALTER TABLE unlogged SET LOGGED");
    cluster.assert_equal("SELECT * FROM unlogged");
    cluster.assert_verified();
}

/// Both stop at the same entry, and both go on. What makes a replica stop again at once isn't fought by copying the
/// primary over and over.
#[test]
fn what_cannot_be_applied_replaces_the_replica_by_itself() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(auto_rebuild(2, true));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    cluster.caught_up();
    for replica in ["replica1", "replica2"] {
        diverge(&cluster, replica);
    }
    session.run("UPDATE t SET v = 2");
    for replica in ["replica1", "replica2"] {
        eventually("it is replaced", || rebuilds(&cluster, replica) == "1");
        until_serving(&cluster, replica);
    }
    assert_eq!(cluster.logged(&["the replica is replaced", "UPDATE"]), 2);
    cluster.assert_equal("SELECT * FROM t");
    cluster.assert_verified();

    cluster.repair("replica1").run("DROP TABLE t");
    session.run("ALTER TABLE t ADD w int");
    eventually("nobody tries again", || cluster.logged(&["waits for an operator"]) == 3);
    std::thread::sleep(ms(1500));
    assert_eq!(
        (cluster.state("replica1"), rebuilds(&cluster, "replica1")),
        ("failed".into(), "1".into())
    );
    // The operator needn't wait, nor force anything.
    cluster.admin().run("REBUILD REPLICA replica1");
    until_serving(&cluster, "replica1");
    cluster.assert_verified();

    // Rows that a new copy can't write either aren't its fault: it goes on without their table.
    diverge(&cluster, "replica1");
    session.run("UPDATE t SET v = 3");
    cluster.caught_up();
    let set_aside = || cluster.show_replicas()["replica1"]["tables_set_aside"].clone();
    assert_eq!((set_aside(), rebuilds(&cluster, "replica1")), ("1".into(), "2".into()));
    assert_eq!(session.value("SELECT v FROM t"), "3");
    cluster.admin().run("REBUILD REPLICA replica1 FORCE");
    until_serving(&cluster, "replica1");
    assert_eq!(set_aside(), "0");
    cluster.assert_verified();
}

/// Commits a transaction that PostgreSQL can't decode: all rows of t have 1 as v, and one is new.
fn commit_undecodable(cluster: &Cluster, session: &mut Session) {
    let rewrite = "ALTER TABLE t ADD a float8 DEFAULT random()";
    session.run(&format!("BEGIN; SAVEPOINT s; {rewrite}; ROLLBACK TO s"));
    for catalog in ["pg_class", "pg_attribute", "pg_attrdef", "pg_type"] {
        cluster.direct("primary").run(&format!("VACUUM {catalog}"));
    }
    let again = format!("{rewrite}; ALTER TABLE t DROP a; {rewrite}");
    session.run(&format!("INSERT INTO t VALUES (50); {again}; UPDATE t SET v = 1; COMMIT"));
}

/// Both replicas are replaced, once, and have what was committed meanwhile: rows with 2 as v.
fn replaced_once(cluster: &Cluster) {
    for replica in ["replica1", "replica2"] {
        eventually("it is replaced", || rebuilds(cluster, replica) == "1");
        until_serving(cluster, replica);
    }
    let mut session = cluster.connect();
    session.run("INSERT INTO t VALUES (0, 0)");
    cluster.caught_up();
    assert_ne!(session.value("SELECT count(*) FROM t WHERE v = 2"), "0");
    cluster.assert_equal("SELECT * FROM t ORDER BY id");
    cluster.assert_verified();
    assert_eq!(
        ["replica1", "replica2"].map(|replica| rebuilds(cluster, replica)),
        ["1", "1"].map(str::to_owned)
    );
}

/// PostgreSQL can write a transaction that it can't decode: a row of a catalog stands where one of an undone
/// subtransaction stood, and is taken to be as old as that. What the primary committed goes on reaching the replicas, as a
/// copy, and nobody reads what it lacks before.
#[test]
fn a_transaction_that_cannot_be_decoded_is_passed_over() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(auto_rebuild(2, true));
    let mut session = cluster.connect();
    session.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT generate_series(1, 20), 0",
    );
    cluster.caught_up();
    commit_undecodable(&cluster, &mut session);
    // A commit that waits for a standby is passed over as well, and is in a copy: it mustn't be seen there before.
    cluster.require_standby();
    let hidden = cluster.hide_commit("INSERT INTO t SELECT max(id) + 1, 2 FROM t");
    let stuck = || cluster.show_replicas()["replica1"]["reason"].contains("XX000");
    eventually("the stream is stuck", stuck);
    assert_eq!(session.value("SELECT count(*) FROM t WHERE v = 1"), "21");
    let passed = || cluster.logged(&["is passed over, since it can't decode it"]);
    eventually("the end is known", || {
        cluster.show_replicas()["replica1"]["reason"].contains("have ended")
    });
    std::thread::sleep(ms(1500));
    let too_early = passed();
    cluster.require_no_standby();
    assert_eq!(too_early, 0, "a commit is hidden");
    hidden.join().expect("it is committed");
    replaced_once(&cluster);
    assert_eq!(passed(), 1);
}

/// Where the primary's own definitions are damaged, replicas may be the better copies: they stay, and an operator is needed. What is
/// passed over then is so once, also if hihooi is killed before it comes to the end.
#[test]
fn only_what_a_sound_primary_cannot_decode_is_passed_over() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(auto_rebuild(2, true));
    let mut session = cluster.connect();
    session.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT generate_series(1, 20), 0;
         CREATE TABLE u (id int PRIMARY KEY)",
    );
    cluster.caught_up();
    let damage = |columns: i32| {
        cluster.direct("primary").run(&format!(
            "SET synchronous_commit = local; UPDATE pg_class SET relnatts = relnatts + {columns} WHERE relname = 'u'"
        ));
    };
    damage(1);
    commit_undecodable(&cluster, &mut session);
    let reason = |what: &str| cluster.show_replicas()["replica1"]["reason"].contains(what);
    eventually("the damage is seen", || reason("the primary's catalog is damaged"));
    std::thread::sleep(ms(1500));
    assert_eq!(
        (rebuilds(&cluster, "replica1"), cluster.logged(&["is passed over, since"])),
        ("0".into(), 0)
    );

    cluster.require_standby();
    let hidden = cluster.hide_commit("INSERT INTO t SELECT max(id) + 1, 2 FROM t");
    damage(-1);
    eventually("the end is known", || reason("have ended"));
    cluster.kill_manager();
    cluster.require_no_standby();
    drop(hidden.join()); // its session is lost
    cluster.up();
    replaced_once(&cluster);
}

/// A function in DDL that ends at the primary only, whatever is done to it.
#[test]
fn ddl_that_does_not_end_replaces_the_replica() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = auto_rebuild(1, true).env("HIHOOI_REPLICA_MAX_APPLY_DELAY_MS", "300");
    let cluster = Cluster::start(options);
    let mut session = cluster.connect();
    session.run("CREATE ROLE mallory; CREATE SCHEMA m AUTHORIZATION mallory; SET ROLE mallory");
    session.run(
        "CREATE FUNCTION m.is_replica() RETURNS bool LANGUAGE plpgsql AS
             $$BEGIN RETURN current_setting('session_replication_role') = 'replica'; END$$;
         CREATE FUNCTION m.sleeps(v int, s float) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
             IF m.is_replica() AND s > 0 THEN PERFORM pg_sleep(s); END IF;
             WHILE m.is_replica() AND s < 0 LOOP
                 BEGIN PERFORM pg_sleep(1); EXCEPTION WHEN query_canceled THEN NULL; END;
             END LOOP;
             RETURN v; END$$;
         CREATE TABLE m.t (v int); INSERT INTO m.t VALUES (1)",
    );
    // As long as the primary is allowed to take.
    session.run("CREATE INDEX lasts ON m.t (m.sleeps(v, 2))");
    cluster.caught_up();
    assert_eq!(rebuilds(&cluster, "replica1"), "0");
    session.run(
        "BEGIN; EXPLAIN ANALYZE CREATE TABLE m.u AS SELECT 1 AS a; CREATE INDEX ends ON m.t (m.sleeps(v, -1)); COMMIT",
    );
    eventually("the replica is replaced", || rebuilds(&cluster, "replica1") == "1");
    until_serving(&cluster, "replica1");
    cluster.caught_up();
    cluster.assert_verified();
    assert_eq!(
        cluster.logged(&["the replica is replaced", "its DDL takes longer than 10 s here"]),
        1
    );
}

/// An entry that couldn't be applied is tried again for some seconds, in case what was in its way is gone.
#[test]
fn what_was_in_the_way_may_be_gone() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(auto_rebuild(1, false));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    cluster.caught_up();
    diverge(&cluster, "replica1");
    session.run("UPDATE t SET v = 2");
    eventually("it has failed", || cluster.state("replica1") == "failed");
    cluster.repair("replica1").run("INSERT INTO t VALUES (1, 1)");
    until_serving(&cluster, "replica1");
    cluster.assert_verified();

    // It doesn't come back before the entry is applied, and isn't replaced where that isn't wanted.
    diverge(&cluster, "replica1");
    session.run("UPDATE t SET v = 3");
    eventually("it has failed", || cluster.state("replica1") == "failed");
    eventually("nobody tries again", || cluster.logged(&["waits for an operator"]) == 1);
    assert_eq!(cluster.logged(&["the replica has failed"]), 2);
    std::thread::sleep(ms(1500));
    assert_eq!(
        (cluster.state("replica1"), rebuilds(&cluster, "replica1")),
        ("failed".into(), "0".into())
    );
}

/// At any moment: nothing runs on a half-made copy, and the next `up` makes it again, also where replicas aren't
/// replaced without being asked to.
#[test]
fn an_interrupted_copy_is_made_again() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session
        .run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 50000)");
    cluster.caught_up();
    let (mark, data) = (cluster.data().join("replica1.copying"), cluster.data().join("replica1"));
    let moments: [(&str, &dyn Fn() -> bool); 3] = [
        ("it has begun", &|| mark.exists()),
        ("files are copied", &|| data.join("base").exists() && !data.join("backup_label").exists()),
        ("it recovers", &|| data.join("recovery.signal").exists()),
    ];
    for (number, (what, is_now)) in moments.into_iter().enumerate() {
        for ends in [Signal::SIGKILL, Signal::SIGTERM] {
            let mut admin = cluster.admin();
            std::thread::scope(|scope| {
                scope.spawn(move || drop(admin.simple("REBUILD REPLICA replica1 FORCE")));
                eventually(what, || mark.exists() && is_now());
                match ends {
                    Signal::SIGTERM => drop(cluster.stop_manager(ends)),
                    _ => cluster.kill_manager(),
                }
            });
            if mark.exists() && ends == Signal::SIGTERM {
                assert_eq!(cluster.postmaster("replica1"), None, "{what}");
            }
            cluster.up();
            assert!(!mark.exists(), "{what}");
            let mut session = cluster.connect();
            session.run(&format!(
                "INSERT INTO t VALUES (-{number}), (-1{number}) ON CONFLICT DO NOTHING"
            ));
            cluster.assert_verified();
        }
    }
}

/// A commit that waits for a standby is in the copy, but the primary doesn't show it: nobody may read it there (I3).
#[test]
fn a_copy_shows_nothing_before_the_primary() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.caught_up();
    cluster.require_standby();
    let hidden = cluster.hide_commit("INSERT INTO t SELECT max(id) + 1 FROM t");
    let mut admin = cluster.admin();
    std::thread::scope(|scope| {
        let rebuilt = scope.spawn(move || admin.run("REBUILD REPLICA replica1 FORCE"));
        let waits = || cluster.show_replicas()["replica1"]["reason"].contains("the log is read");
        eventually("the copy waits", waits);
        std::thread::sleep(ms(1500));
        let waits = waits() && cluster.state("replica1") == "cloning";
        cluster.require_no_standby();
        assert!(waits, "it was used while the primary did not show the row");
        rebuilt.join().expect("it is replaced");
    });
    hidden.join().expect("it is committed");
    until_serving(&cluster, "replica1");
    cluster.assert_equal("SELECT * FROM t ORDER BY id");
    cluster.assert_verified();
}

/// Who may write in servers' directories, as superusers may by COPY TO PROGRAM, doesn't get what `up` may read and
/// write, if that runs as root.
#[test]
fn links_in_servers_directories_lead_nowhere() {
    if target_is_plain() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY)");
    let (primary, replica) = (cluster.data().join("primary"), cluster.data().join("replica1"));
    // Of the directory above, which is ours.
    let (target, secret) = (cluster.data().join("target"), cluster.data().join("secret"));
    let bait = |name: &str| {
        let path = replica.join(name);
        fs::remove_file(&path).expect("it is there");
        symlink(&target, &path).expect("own folder");
    };
    bait("pg_ident.conf");
    cluster.admin().run("REBUILD REPLICA replica1 FORCE");
    assert!(!target.exists(), "root followed a link");
    until_serving(&cluster, "replica1");

    fs::write(&secret, "secret").expect("own folder");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("own file");
    let link = primary.join("pg_wal/0000000F.history");
    symlink(&secret, &link).expect("own folder");
    drop(cluster.admin().simple("REBUILD REPLICA replica1 FORCE"));
    assert!(!replica.join("pg_wal/0000000F.history").exists(), "root read a file for the server");
    fs::remove_file(&link).expect("own file");
    until_serving(&cluster, "replica1");
    cluster.stop_manager(Signal::SIGTERM);
    bait("hihooi.conf");
    cluster.up_without_waiting_for_all();
    assert!(!target.exists(), "root followed a link");
    fs::remove_file(replica.join("hihooi.conf")).expect("own file");
    until_serving(&cluster, "replica1");
    cluster.assert_verified();
}

/// A replica whose files are damaged is replaced; one that can't be replaced stays as it is.
#[test]
fn a_damaged_replica_is_replaced_and_what_cannot_be_copied_is_refused() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.caught_up();
    let mut primary = cluster.direct("primary");
    if primary.number("SHOW server_version_num") >= 150_000 {
        primary.run("SET allow_in_place_tablespaces = on");
        primary.run("CREATE TABLESPACE far LOCATION ''");
        let refused = cluster.admin().error("REBUILD REPLICA replica1 FORCE");
        assert_names(refused.message(), &["can't rebuild replica1", "\"far\"", "pg_default"]);
        until_serving(&cluster, "replica1");
        session.run("INSERT INTO t VALUES (2)");
        cluster.assert_verified();
        primary.run("DROP TABLESPACE far");
    }
    let unknown = cluster.admin().error("REBUILD REPLICA nobody");
    assert_names(unknown.message(), &["there is no replica", "nobody"]);

    cluster.stop_manager(Signal::SIGTERM);
    fs::remove_file(cluster.data().join("replica1/global/pg_control")).expect("it is there");
    cluster.up_without_waiting_for_all();
    let mut session = cluster.connect();
    session.run("INSERT INTO t VALUES (3)");
    cluster.admin().run("REBUILD REPLICA replica1");
    until_serving(&cluster, "replica1");
    cluster.assert_verified();

    // Who doesn't run the servers can't replace them.
    cluster.kill_manager();
    cluster.serve();
    let refused = cluster.admin().error("REBUILD REPLICA replica1 FORCE");
    assert_names(refused.message(), &["`hihooi up`"]);
    until_serving(&cluster, "replica1");
    cluster.assert_verified();
}

/// A new replica needs no stopped primary, and the configuration file stays the administrator's.
#[test]
fn replicas_are_added() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.stop_manager(Signal::SIGTERM);
    let file = cluster.data().join("hihooi.toml");
    let text = fs::read_to_string(&file).expect("its configuration");
    fs::write(&file, format!("{text}# a comment\n")).expect("its configuration");
    fs::create_dir(cluster.data().join("replica2")).expect("own folder");
    let refused = finish(&mut cluster.up_command_for(3));
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_names(&refused, &["replica2", "exists", "remove it"]);
    fs::remove_dir(cluster.data().join("replica2")).expect("own folder");

    cluster.up_with(cluster.up_command_for(3));
    until_serving(&cluster, "replica2");
    until_serving(&cluster, "replica3");
    cluster.connect().run("INSERT INTO t VALUES (2)");
    cluster.assert_verified();
    assert_eq!(cluster.direct("replica3").number("SELECT count(*) FROM t"), 2);
    assert!(fs::read_to_string(&file).expect("its configuration").contains("# a comment"));

    cluster.stop_manager(Signal::SIGTERM);
    let refused = finish(&mut cluster.up_command_for(2));
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_names(&refused, &["has 3 replicas", "[[site]]", "hihooi.toml"]);
    cluster.up_with(cluster.up_command_for(3));
    cluster.assert_verified();
}

/// A copy that nothing could be applied to isn't begun: the replica still answers as far as its rows have not changed.
#[test]
fn a_copy_that_could_not_be_followed_is_not_begun() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.caught_up();
    let mut direct = cluster.direct("primary");
    let take = "SELECT pg_terminate_backend(active_pid), pg_drop_replication_slot('hihooi') \
        FROM pg_replication_slots WHERE slot_name = 'hihooi'";
    eventually("the slot is gone", || {
        let _ = direct.simple(take); // it may be in use again
        direct.number("SELECT count(*) FROM pg_replication_slots") == 0
    });
    let refused = cluster.admin().error("REBUILD REPLICA replica1 FORCE");
    assert!(refused.to_string().contains("rebuild the replicas"), "{refused}");
    assert!(refused.to_string().contains("the replica stays as it is"), "{refused}");
    assert_eq!(cluster.direct("replica1").value("SELECT id FROM t"), "1");
    assert_eq!(rebuilds(&cluster, "replica1"), "0");
}
