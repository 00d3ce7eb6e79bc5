//! The level `sync`: a commit is answered when every replica that serves shows it (Hihooi section 5.3, 1SR).

use crate::harness::client::Session;
use crate::harness::cluster::{Cluster, Options};
use crate::harness::eventually;

const SYNC: &[(&str, &str)] = &[("options", "-c hihooi.consistency=sync")];
const WEAK: &[(&str, &str)] = &[("options", "-c hihooi.consistency=weak-si")];

/// An hour: replicas that serve are waited for, however slow they are.
const PATIENT: &[&str] = &["--consistency-sync-timeout-ms", "3600000"];

/// A cluster with a table of one row.
fn cluster(arguments: &[&str]) -> Cluster {
    let mut options = Options::replicas(2);
    options.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let cluster = Cluster::start(options);
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY, n int)");
    session.run("INSERT INTO t VALUES (1, 0)");
    cluster.caught_up();
    eventually("the table is known", || {
        session.number("SELECT n FROM t");
        session.route().site().starts_with("replica")
    });
    cluster
}

/// What each replica shows, asked past hihooi.
fn shown(replicas: &mut [Session]) -> Vec<i64> {
    replicas.iter_mut().map(|replica| replica.number("SELECT n FROM t WHERE id = 1")).collect()
}

#[test]
fn a_commit_is_answered_when_all_replicas_show_it() {
    let cluster = cluster(PATIENT);
    let mut replicas: Vec<Session> =
        cluster.replicas().iter().map(|site| cluster.direct(site)).collect();
    let mut session = cluster.connect_with(SYNC);
    let mut n = 0;
    for _ in 0..30 {
        let ways: [fn(&mut Session, i64); 5] = [
            |session, n| drop(session.run(&format!("UPDATE t SET n = {n}"))),
            |session, n| {
                session.extended(&format!("UPDATE t SET n = {n}"), &[]).expect("an answer");
            },
            |session, n| {
                session.run("BEGIN");
                session.number("SELECT n FROM t");
                session.run(&format!("UPDATE t SET n = {n}"));
                session.run("COMMIT");
            },
            |session, n| drop(session.run(&format!("BEGIN; UPDATE t SET n = {n}; COMMIT"))),
            |session, n| drop(session.run(&format!("DO $$ BEGIN UPDATE t SET n = {n}; END $$"))),
        ];
        for (index, way) in ways.iter().enumerate() {
            n += 1;
            way(&mut session, n);
            assert_eq!(shown(&mut replicas), [n, n], "way {index}");
        }
    }
    for n in 0..10 {
        session.run(&format!("CREATE TABLE made_{n} (id int)"));
        for replica in &mut replicas {
            replica.run(&format!("SELECT id FROM made_{n}"));
        }
    }
}

#[test]
fn a_statement_and_a_transaction_can_ask_for_it() {
    let cluster = cluster(PATIENT);
    let mut replicas: Vec<Session> =
        cluster.replicas().iter().map(|site| cluster.direct(site)).collect();
    let mut session = cluster.connect();
    for n in 1..=30 {
        let n = 3 * n;
        session.run(&format!("/*hihooi:consistency=sync*/ UPDATE t SET n = {n}"));
        assert_eq!(shown(&mut replicas), [n, n], "a hint");
        let n = n + 1;
        session.run("BEGIN");
        session.run("SET LOCAL hihooi.consistency = 'sync'");
        session.run(&format!("UPDATE t SET n = {n}"));
        session.run("COMMIT");
        assert_eq!(shown(&mut replicas), [n, n], "SET LOCAL in front of the first write");
        let n = n + 1;
        session.run("BEGIN");
        session.run(&format!("UPDATE t SET n = {n}"));
        session.run("SET LOCAL hihooi.consistency = 'sync'");
        assert_eq!(session.value("SHOW hihooi.consistency"), "sync");
        session.run("COMMIT");
        assert_eq!(shown(&mut replicas), [n, n], "SET LOCAL behind it");
        assert_eq!(session.value("SHOW hihooi.consistency"), "gssi");
    }
}

#[test]
fn a_late_replica_serves_no_level_until_it_shows_the_commit() {
    let cluster = cluster(&["--consistency-sync-timeout-ms", "300"]);
    let mut locker = cluster.direct("replica1");
    let mut session = cluster.connect_with(SYNC);
    let mut weak = cluster.connect_with(WEAK);
    for n in 1..=3 {
        locker.run("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
        session.run(&format!("UPDATE t SET n = {n}"));
        for _ in 0..50 {
            assert_eq!(weak.number("SELECT n FROM t WHERE id = 1"), n);
            assert_ne!(weak.route().site(), "replica1");
        }
        let row = &cluster.show_replicas()["replica1"];
        assert!(row["reason"].contains("sync"), "{row:?}");
        assert_eq!(row["share_percent"], "0", "{row:?}");
        // It isn't waited for again: this would take more than all the rest of the test.
        for n in 0..50 {
            session.run(&format!("INSERT INTO t VALUES ({n} + 1000, 0) ON CONFLICT DO NOTHING"));
        }
        locker.run("ROLLBACK");
        eventually("it serves again", || {
            assert_eq!(weak.number("SELECT n FROM t WHERE id = 1"), n);
            weak.route().site() == "replica1"
        });
    }
}

#[test]
fn a_paused_replica_is_not_waited_for_and_serves_nothing_older() {
    let cluster = cluster(PATIENT);
    cluster.command("PAUSE REPLICA replica1");
    let mut session = cluster.connect_with(SYNC);
    let mut weak = cluster.connect_with(WEAK);
    session.run("UPDATE t SET n = 1");
    for _ in 0..50 {
        assert_eq!(weak.number("SELECT n FROM t WHERE id = 1"), 1);
    }
    cluster.command("PAUSE REPLICA replica2");
    session.run("UPDATE t SET n = 2");
    assert_eq!(weak.number("SELECT n FROM t WHERE id = 1"), 2);
    assert_eq!(weak.route().site(), "primary");
    // What wrote nothing, or nothing that replicas have, waits for nothing, either.
    session.run("UPDATE t SET n = 3 WHERE id = 99");
    session.run("BEGIN; UPDATE t SET n = 3; ROLLBACK");
    session.run("CREATE TEMPORARY TABLE mine (id int)");
    session.run("INSERT INTO mine VALUES (1)");
    cluster.command("RESUME REPLICA replica1");
    cluster.command("RESUME REPLICA replica2");
    cluster.caught_up();
    session.run("INSERT INTO mine VALUES (2)");
    session.run("UPDATE t SET n = 4");
    cluster.assert_equal("SELECT * FROM t");
    eventually("a replica serves again", || {
        assert_eq!(weak.number("SELECT n FROM t WHERE id = 1"), 4);
        weak.route().site().starts_with("replica")
    });
}
