//! Prepared statements mean what they meant when their client prepared them (I1), though servers have them for many
//! clients, and get those that they lack when they are needed.

use bytes::BytesMut;
use hihooi_wire::frontend::{self, Parse, Target};

use crate::harness::{Answer, Cluster, Failure, Options, Session, alone, eventually};

/// Prepares a statement and has it described, as drivers do.
fn prepare(session: &mut Session, name: &[u8], text: &str) {
    let mut out = BytesMut::new();
    Parse { statement: name, query: text.as_bytes(), types: &[0, 0] }.write(&mut out);
    frontend::describe(Target::Statement, name, &mut out);
    frontend::sync(&mut out);
    session.send(&out).expect("sent");
    session.answers().expect("prepared");
}

/// Runs it, without asking what it returns: its client knows.
fn run(session: &mut Session, name: &[u8]) -> Result<Vec<Answer>, Failure> {
    let mut out = BytesMut::new();
    frontend::bind(b"", name, std::iter::empty(), &mut out);
    frontend::execute(b"", 0, &mut out);
    frontend::sync(&mut out);
    session.send(&out).expect("sent");
    session.answers()
}

fn value(session: &mut Session, name: &[u8]) -> String {
    let answers = run(session, name).expect("an answer");
    let rows = &answers.last().expect("an answer").rows;
    rows.first().and_then(|row| row.first().cloned().flatten()).expect("a value")
}

fn small_pools() -> Cluster {
    Cluster::start(Options::replicas(2).env("HIHOOI_POOL_SIZE", "2"))
}

/// Its client reads rows as they were described: other columns are an error wherever it runs, as from one server, and
/// nothing else is.
#[test]
fn i1_a_statement_whose_columns_have_changed_is_refused() {
    let _alone = alone();
    let cluster = small_pools();
    cluster.connect().run(
        "CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE log (id int PRIMARY KEY);
         INSERT INTO t VALUES (1, 7)",
    );
    cluster.caught_up();
    let mut clients: Vec<_> = (0..8).map(|_| cluster.connect()).collect();
    for client in &mut clients {
        prepare(client, b"all", "SELECT * FROM t");
        prepare(client, b"id", "SELECT id FROM t");
        prepare(client, b"write", "UPDATE t SET n = n RETURNING *");
        run(client, b"all").expect("rows");
        assert_eq!(value(client, b"id"), "1");
    }
    cluster.connect().run("ALTER TABLE t ALTER n TYPE text");
    let refused = |answer: Result<Vec<Answer>, Failure>| {
        let error = answer.expect_err("other columns").server();
        assert_eq!(error.code(), "0A000", "{error}");
        assert_eq!(error.message(), "cached plan must not change result type");
        assert_eq!(error.get(b'R'), Some("RevalidateCachedQuery"), "pgjdbc looks for it");
    };
    for (number, client) in clients.iter_mut().enumerate() {
        refused(run(client, b"all"));
        refused(run(client, b"write"));
        client.run("BEGIN");
        refused(run(client, b"all"));
        assert_eq!(client.error("SELECT 1").code(), "25P02", "the transaction has failed");
        client.run("ROLLBACK");
        client.run(&format!("BEGIN; INSERT INTO log VALUES ({number})"));
        refused(run(client, b"all"));
        assert_eq!(client.error("SELECT 1").code(), "25P02", "so has one that wrote");
        client.run("ROLLBACK");
        assert_eq!(value(client, b"id"), "1", "what returns the same goes on");
        prepare(client, b"again", "SELECT * FROM t");
        run(client, b"again").expect("what is prepared anew returns other columns");
    }
    assert_eq!(cluster.connect().value("SELECT count(*) FROM log"), "0");
    if cluster.is_hihooi() {
        eventually("old statements run at replicas again", || {
            value(&mut clients[0], b"id");
            clients[0].route().site() != "primary"
        });
    }
    cluster.assert_verified();
}

/// DDL of the client's own transaction counts, too, and a table that is gone is said to be gone.
#[test]
fn i1_a_transaction_sees_what_its_own_ddl_did_to_statements() {
    let _alone = alone();
    let cluster = small_pools();
    let make = "CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE log (id int PRIMARY KEY)";
    cluster.connect().run(make);
    cluster.caught_up();
    for _ in 0..4 {
        let mut client = cluster.connect();
        prepare(&mut client, b"all", "SELECT * FROM t");
        run(&mut client, b"all").expect("rows");
        // Others use its connections meanwhile.
        let mut others: Vec<_> = (0..2).map(|_| cluster.connect()).collect();
        for (id, other) in others.iter_mut().enumerate() {
            other.run(&format!("BEGIN; INSERT INTO log VALUES ({id})"));
        }
        others.iter_mut().for_each(|other| drop(other.run("ROLLBACK")));
        client.run("BEGIN; ALTER TABLE t ADD m int");
        let error = run(&mut client, b"all").expect_err("other columns").server();
        assert_eq!(error.code(), "0A000", "{error}");
        client.run("ROLLBACK; BEGIN; DROP TABLE t");
        let error = run(&mut client, b"all").expect_err("no table").server();
        assert_eq!(error.code(), "42P01", "{error}");
        assert_eq!(client.error("SELECT 1").code(), "25P02");
        client.run("ROLLBACK");
        run(&mut client, b"all").expect("as before");
    }
    cluster.assert_verified();
}

/// Literals and names mean what the client's settings made of them, whoever else prepares the same text.
#[test]
fn i1_statements_of_clients_with_other_settings_are_not_shared() {
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2).env("HIHOOI_POOL_SIZE", "1"));
    cluster.connect().run(
        "CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE a.t (x int); CREATE TABLE b.t (x text, y int);
         INSERT INTO a.t VALUES (1); INSERT INTO b.t VALUES ('one', 2)",
    );
    cluster.caught_up();
    let time = "SELECT extract(epoch FROM timestamptz '2026-01-01 00:00')::bigint";
    let client = |settings: &str| {
        let mut client = cluster.connect();
        client.run(settings);
        prepare(&mut client, b"time", time);
        client
    };
    let mut utc = client("SET TimeZone = 'UTC'");
    let mut tokyo = client("SET TimeZone = 'Asia/Tokyo'");
    let mut in_a = client("SET search_path = a");
    let mut in_b = client("SET search_path = b");
    for client in [&mut in_a, &mut in_b] {
        prepare(client, b"all", "SELECT * FROM t");
    }
    // For one transaction only, on the connection that another client will get.
    let at_primary = format!("/* hihooi: primary */ {time}");
    let (mut plain, mut local) = (cluster.connect(), cluster.connect());
    prepare(&mut plain, b"time", &at_primary);
    local.run("BEGIN; SET LOCAL TimeZone = 'America/New_York'");
    prepare(&mut local, b"time", &at_primary);
    assert_eq!(value(&mut local, b"time"), "1767243600");
    local.run("COMMIT");
    for _ in 0..12 {
        assert_eq!(value(&mut utc, b"time"), "1767225600");
        assert_eq!(value(&mut tokyo, b"time"), "1767193200");
        assert_eq!(value(&mut in_a, b"all"), "1");
        assert_eq!(value(&mut in_b, b"all"), "one");
        assert_ne!(value(&mut plain, b"time"), "1767243600", "that of another's transaction");
    }
}
