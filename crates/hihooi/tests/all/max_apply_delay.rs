//! Who reads a table at a replica while DDL on it has to be applied holds up everything behind it: for
//! `replica.max_apply_delay_ms` at most. The read runs elsewhere, or fails with 40001 if the client has
//! rows of it; the replica goes on.

use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hihooi_wire::backend::tag;
use hihooi_wire::frontend;

use crate::harness::client::{Answer, Failure, Session};
use crate::harness::{Cluster, Options, eventually, ms, target_is_plain};

const DELAY_MS: u64 = 1_000;
/// What looking, cancelling and a loaded machine may add.
const SLACK: Duration = Duration::from_secs(8);
/// Hours.
const LONG: &str = "SELECT count(*) FROM held a, held b, held c, held d";
/// Hours, with a row now and then that is sent at once.
const ROWS: &str = "SELECT a.id, repeat('x', 20000), \
    (SELECT count(*) FROM held b, held c WHERE b.id + c.id > a.id) FROM held a, held";

fn cluster() -> Cluster {
    let options =
        Options::replicas(1).env("HIHOOI_REPLICA_MAX_APPLY_DELAY_MS", &DELAY_MS.to_string());
    let cluster = Cluster::start(options);
    let mut session = cluster.connect();
    session.run(
        "CREATE TABLE held (id int PRIMARY KEY); INSERT INTO held SELECT generate_series(1, 1000)",
    );
    cluster.caught_up();
    eventually("it is read at the replica", || {
        session.run("SELECT count(*) FROM held");
        session.route().site() == "replica1"
    });
    cluster
}

/// Runs a read in another thread, once the replica runs it.
fn reading(
    cluster: &Cluster,
    text: &'static str,
) -> JoinHandle<(Session, Result<Vec<Answer>, Failure>)> {
    let mut session = cluster.connect();
    let reading = std::thread::spawn(move || {
        let answers = session.simple(text);
        (session, answers)
    });
    runs(cluster, "replica1", text);
    reading
}

fn runs(cluster: &Cluster, site: &str, text: &str) {
    let mut observer = cluster.direct(site);
    let query = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = $${text}$$"
    );
    eventually(&format!("{site} runs {text}"), || observer.number(&query) > 0);
}

/// DDL on the table that is being read arrives at the replica in time, and what is behind it.
fn assert_applies(cluster: &Cluster, name: &str) {
    let began = Instant::now();
    cluster.connect().run(&format!("ALTER TABLE held ADD {name} int; CREATE TABLE {name} ()"));
    cluster.caught_up();
    let took = began.elapsed();
    assert!(took >= ms(DELAY_MS), "the reader was in the way for {took:?} only");
    assert!(took < ms(DELAY_MS) + SLACK, "applying was held up for {took:?}");
    assert!(cluster.logged(&["a session held up applying", "site=\"replica1\""]) > 0);
}

#[test]
fn a_read_without_rows_runs_elsewhere() {
    if target_is_plain() {
        return;
    }
    let cluster = cluster();
    let reading = reading(&cluster, LONG);
    assert_applies(&cluster, "one");
    runs(&cluster, "primary", LONG);
    // And the client's own cancel is still told as such.
    cluster.direct("primary").run(&format!(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = $${LONG}$$"
    ));
    let (mut session, answers) = reading.join().expect("reads");
    assert_eq!(answers.expect_err("cancelled").code(), "57014");
    session.run("SELECT 1");
}

#[test]
fn a_read_with_rows_is_to_be_repeated() {
    if target_is_plain() {
        return;
    }
    let cluster = cluster();
    let mut session = cluster.connect();
    let mut out = BytesMut::new();
    frontend::query(ROWS.as_bytes(), &mut out);
    session.send(&out).expect("sent");
    while session.next().expect("an answer").tag != tag::DATA_ROW {}
    runs(&cluster, "replica1", ROWS);
    assert_applies(&cluster, "one");
    let failure = session.answers().expect_err("ended");
    assert_eq!(failure.code(), "40001", "{failure}");
    assert!(failure.to_string().contains("replica.max_apply_delay_ms"), "{failure}");
    // The session goes on, and the connection serves others.
    assert_eq!(session.number("SELECT count(*) FROM held"), 1000);
}

#[test]
fn whoever_does_not_listen_loses_the_connection() {
    if target_is_plain() {
        return;
    }
    let cluster = cluster();
    // A client that doesn't read its answer, and an administrator who went to lunch.
    let mut deaf = cluster.connect();
    let mut out = BytesMut::new();
    let text = "SELECT repeat('x', 1000) FROM held a, held b";
    frontend::query(text.as_bytes(), &mut out);
    deaf.send(&out).expect("sent");
    let mut observer = cluster.direct("replica1");
    eventually("nobody reads", || {
        observer.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'")
            > 0
    });
    let mut idle = cluster.direct("replica1");
    idle.run("BEGIN; SELECT count(*) FROM held");
    assert_applies(&cluster, "one");
    assert!(idle.simple("SELECT 1").is_err(), "it was in the way");
    drop(deaf);
    let mut session = cluster.connect();
    eventually("the replica is read", || {
        session.run("SELECT count(*) FROM held");
        session.route().site() == "replica1"
    });
}

/// Whoever sees a replica stand still is told what it waits for.
#[test]
fn a_standstill_is_explained() {
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE held (id int PRIMARY KEY)");
    cluster.caught_up();
    let mut holder = cluster.direct("replica1");
    holder.run("BEGIN; LOCK TABLE held IN SHARE MODE");
    let process = holder.number("SELECT pg_backend_pid()");
    cluster.connect().run("INSERT INTO held VALUES (1)");
    let reason = || cluster.show_replicas()["replica1"]["reason"].clone();
    let told = format!("waits for Lock relation, behind process {process}, with INSERT INTO");
    eventually("it is explained", || reason().contains(&told));
    holder.run("COMMIT");
    eventually("nothing is left to explain", || reason().is_empty());
    cluster.caught_up();
}

/// A transaction that takes long at a replica is no standstill while it goes on: whoever looks is told how far it is.
#[test]
fn progress_of_a_long_transaction_is_told() {
    if target_is_plain() {
        return;
    }
    const ROWS: usize = 8_000;
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    // Each row that is changed takes a millisecond more.
    session.run(&format!(
        "CREATE TABLE slow (id int PRIMARY KEY, v text);
         INSERT INTO slow SELECT n, repeat('x', 500) FROM generate_series(1, {ROWS}) n;
         CREATE FUNCTION length_later(v text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
             IF v LIKE '%y' THEN PERFORM pg_sleep(0.001); END IF;
             RETURN length(v);
         END $$;
         CREATE INDEX ON slow (length_later(v))"
    ));
    cluster.caught_up();
    session.run("UPDATE slow SET v = v || 'y'");
    let mut made = BTreeSet::new();
    eventually("it is applied", || {
        let shown = cluster.show_replicas();
        let (reason, lag) = (&shown["replica1"]["reason"], &shown["replica1"]["lag_entries"]);
        if let Some((before, rest)) = reason.split_once(" of its ") {
            assert_eq!(rest, format!("{ROWS} changes are made"), "{reason}");
            made.insert(before.rsplit(' ').next().and_then(|made| made.parse::<u64>().ok()));
        }
        lag == "0"
    });
    assert!(made.len() > 1 && !made.contains(&None), "{made:?}");
    cluster.caught_up();
    assert_eq!(cluster.logged(&["applying makes no progress"]), 0);
}
