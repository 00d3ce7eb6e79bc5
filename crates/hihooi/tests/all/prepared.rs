//! Prepared statements mean what they meant when their client prepared them (I1), though servers have them for many
//! clients, and get those that they lack when they are needed.

use bytes::BytesMut;
use hihooi_wire::backend::tag;
use hihooi_wire::frontend::{self, Parse, Target};

use crate::harness::{
    Answer, Cluster, Failure, Options, Session, alone, beside, eventually, shared,
};

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

/// In a pipeline the statement fails where it stands, also behind a Flush: what is in front of it is answered, and its
/// transaction rolled back.
#[test]
fn i1_a_statement_of_a_pipeline_fails_where_it_stands() {
    let _alone = alone();
    let cluster = small_pools();
    let make = "CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE log (id int PRIMARY KEY)";
    cluster.connect().run(make);
    cluster.caught_up();
    let mut clients: Vec<_> = (0..6).map(|_| cluster.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        prepare(client, b"all", "SELECT * FROM t");
        prepare(client, b"log", &format!("INSERT INTO log VALUES ({number})"));
        run(client, b"all").expect("rows");
    }
    cluster.connect().run("ALTER TABLE t ADD m int");
    for (number, client) in clients.iter_mut().enumerate() {
        let waits = number % 2 == 1;
        let mut out = BytesMut::new();
        frontend::bind(b"", b"log", std::iter::empty(), &mut out);
        frontend::execute(b"", 0, &mut out);
        if waits {
            frontend::flush(&mut out);
            client.send(&out.split()).expect("sent");
            let told: Vec<u8> = (0..2).map(|_| client.next().expect("a message").tag).collect();
            assert_eq!(told, [b'2', b'C'], "what came before the Flush is answered");
        }
        frontend::bind(b"", b"all", std::iter::empty(), &mut out);
        frontend::execute(b"", 0, &mut out);
        frontend::sync(&mut out);
        client.send(&out).expect("sent");
        let error = client.answers().expect_err("other columns").server();
        assert_eq!(error.code(), "0A000", "{error}");
        assert_eq!(client.value("SELECT count(*) FROM log"), "0", "it was one transaction");
        run(client, b"log").expect("it is there");
        client.run("DELETE FROM log");
    }
    cluster.assert_verified();
}

/// A statement that returns users' types, which have other numbers at each site, goes on at replicas behind DDL that has
/// nothing to do with it.
#[test]
fn i1_statements_with_users_types_go_on_behind_ddl() {
    let _alone = alone();
    let cluster = small_pools();
    cluster.connect().run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE e (id int PRIMARY KEY, m mood);
         INSERT INTO e VALUES (1, 'ok')",
    );
    cluster.caught_up();
    let mut clients: Vec<_> = (0..6).map(|_| cluster.connect()).collect();
    for client in &mut clients {
        prepare(client, b"mood", "SELECT m FROM e WHERE id = 1");
        assert_eq!(value(client, b"mood"), "ok");
    }
    for change in ["CREATE TABLE other (id int)", "ALTER TYPE mood ADD VALUE 'happy'"] {
        cluster.connect().run(change);
        cluster.caught_up();
        // Others have the connections that know it. (While the catalog is late, they would have the primary's.)
        let mut others: Vec<_> = (0..2).map(|_| cluster.connect()).collect();
        for other in &mut others {
            eventually("they have replicas' connections", || {
                other.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
                other.run("SELECT id FROM e");
                let is_there = other.route().site() != "primary";
                if !is_there {
                    other.run("COMMIT");
                }
                is_there
            });
        }
        for client in &mut clients {
            assert_eq!(value(client, b"mood"), "ok", "behind {change}");
        }
        if cluster.is_hihooi() {
            eventually("they run at replicas again", || {
                assert_eq!(value(&mut clients[0], b"mood"), "ok");
                clients[0].route().site() != "primary"
            });
        }
    }
    let change = "ALTER TABLE e ALTER m TYPE text";
    cluster.connect().run(change);
    for client in &mut clients {
        let error = run(client, b"mood").expect_err("another type").server();
        assert_eq!(error.code(), "0A000", "behind {change}: {error}");
    }
    cluster.assert_verified();
}

/// DEALLOCATE and DISCARD ALL take a client's statements when they are carried out, not when they fail.
#[test]
fn i1_a_deallocate_that_fails_takes_nothing() {
    let _alone = alone();
    let cluster = small_pools();
    cluster
        .connect()
        .run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 7)");
    cluster.caught_up();
    let mut client = cluster.connect();
    prepare(&mut client, b"n", "SELECT n FROM t");
    for (fails, code) in [
        ("DISCARD ALL", "25001"),
        ("SELECT 1/0; DEALLOCATE n", "22012"),
        ("SELECT 1/0; DISCARD ALL", "22012"),
        ("DEALLOCATE other", "26000"),
    ] {
        client.run("BEGIN");
        assert_eq!(client.error(fails).code(), code, "{fails}");
        for too_late in ["DEALLOCATE n", "DEALLOCATE ALL", "DISCARD ALL"] {
            assert_eq!(client.error(too_late).code(), "25P02", "{too_late}");
        }
        client.run("ROLLBACK");
        assert_eq!(value(&mut client, b"n"), "7", "behind {fails}");
    }
    client.run("BEGIN; DEALLOCATE n; ROLLBACK");
    let error = run(&mut client, b"n").expect_err("it is gone, whatever became of the transaction");
    assert_eq!(error.server().code(), "26000");
    prepare(&mut client, b"n", "SELECT n FROM t");
    assert_eq!(value(&mut client, b"n"), "7");
    client.run("DROP TABLE t");
    client.run("DEALLOCATE n");
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
    // The same, made at a replica and repeated where the block begins.
    let mut late = cluster.connect();
    late.run("BEGIN");
    late.run("SET LOCAL TimeZone = 'America/New_York'");
    late.run("LOCK TABLE a.t IN ACCESS SHARE MODE");
    prepare(&mut late, b"time", &at_primary);
    assert_eq!(value(&mut late, b"time"), "1767243600");
    late.run("COMMIT");
    // Behind what changes settings in the same pipeline.
    let mut moved = client("SET TimeZone = 'UTC'");
    let mut out = BytesMut::new();
    frontend::parse(b"", b"SELECT set_config('TimeZone', 'Asia/Tokyo', false)", &mut out);
    frontend::bind(b"", b"", std::iter::empty(), &mut out);
    frontend::execute(b"", 0, &mut out);
    frontend::parse(b"there", at_primary.as_bytes(), &mut out);
    frontend::sync(&mut out);
    moved.send(&out).expect("sent");
    moved.answers().expect("prepared");
    prepare(&mut utc, b"there", &at_primary);
    for _ in 0..12 {
        assert_eq!(value(&mut moved, b"there"), "1767193200");
        assert_eq!(value(&mut utc, b"there"), "1767225600");
        assert_eq!(value(&mut utc, b"time"), "1767225600");
        assert_eq!(value(&mut tokyo, b"time"), "1767193200");
        assert_eq!(value(&mut in_a, b"all"), "1");
        assert_eq!(value(&mut in_b, b"all"), "one");
        assert_ne!(value(&mut plain, b"time"), "1767243600", "that of another's transaction");
    }
}

/// PostgreSQL computes what `'now'` is when it prepares a statement: nobody gets another client's, and no row does.
#[test]
fn i1_a_moment_is_that_of_the_clients_own_parse() {
    const HOLD: &str = "BEGIN; LOCK TABLE moments IN ACCESS SHARE MODE";
    let _alone = alone();
    let cluster = small_pools();
    let mut session = cluster.connect();
    session.run("CREATE TABLE moments (n serial PRIMARY KEY, at timestamptz)");
    let read = "/* hihooi: primary */ SELECT extract(epoch FROM 'now'::timestamptz)";
    let write = "INSERT INTO moments (at) VALUES (' Now') RETURNING extract(epoch FROM at)";
    let statements: [(&[u8], &str); 3] = [(b"read", read), (b"write", write), (b"", read)];
    let seconds = |text: String| text.parse::<f64>().expect("seconds");
    let mut holders = [cluster.connect(), cluster.connect()];
    // On each of the two connections to the primary.
    let mut on_both = |run: &mut dyn FnMut()| {
        let [one, other] = &mut holders;
        one.run(HOLD);
        run();
        other.run(HOLD);
        one.run("COMMIT");
        run();
        other.run("COMMIT");
    };
    let mut first = cluster.connect();
    for (name, text) in statements {
        prepare(&mut first, name, text);
        on_both(&mut || drop(value(&mut first, name)));
    }
    let mut second = cluster.connect();
    for (name, text) in statements {
        let before = seconds(session.value("SELECT extract(epoch FROM clock_timestamp())"));
        prepare(&mut second, name, text);
        on_both(&mut || assert!(seconds(value(&mut second, name)) >= before, "{text}"));
    }
}

/// What fails in front of a Parse leaves the statement that it would have replaced; one error is all that a unit gets.
#[test]
fn i1_what_a_failed_unit_did_not_reach_stays_as_it_was() {
    let _alone = alone();
    let mut session = shared().connect();
    let send = |session: &mut Session, write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        frontend::sync(&mut out);
        session.send(&out).expect("sent");
        let messages = session.until_ready(1).expect("answers");
        messages.iter().filter(|message| message.tag == tag::ERROR).count()
    };
    let parse = |name: &'static [u8], text: &'static str| {
        move |out: &mut BytesMut| frontend::parse(name, text.as_bytes(), out)
    };
    assert_eq!(send(&mut session, &parse(b"a", "SELECT 2")), 0);
    assert_eq!(send(&mut session, &parse(b"", "SELECT 1")), 0);
    let fails = |out: &mut BytesMut| {
        parse(b"a", "SELECT 3")(out);
        parse(b"", "SELECT 4")(out);
    };
    assert_eq!(send(&mut session, &fails), 1);
    assert_eq!(value(&mut session, b""), "1");
    for (begin, then) in [
        ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "SET ROLE postgres"),
        ("BEGIN", "CREATE TABLE never (id int)"),
    ] {
        session.run(begin);
        session.run("VALUES (1)");
        let fails = |out: &mut BytesMut| {
            for (text, flushes) in [("SELECT 1 / 0", true), (then, false)] {
                frontend::parse(b"", text.as_bytes(), out);
                frontend::bind(b"", b"", std::iter::empty(), out);
                frontend::execute(b"", 0, out);
                if flushes {
                    frontend::flush(out);
                }
            }
        };
        assert_eq!(send(&mut session, &fails), 1, "{begin}");
        session.run("ROLLBACK");
    }
}

/// Descriptions that fill what may wait for the client are held back no longer: the primary answers (I8).
#[test]
fn a_batch_of_wide_statements_is_described() {
    let _beside = beside();
    let cluster = shared();
    let mut session = cluster.connect();
    let columns: Vec<String> =
        (0..1_500).map(|n| format!("a_column_with_a_long_name_{n:032} int")).collect();
    session.run("DROP TABLE IF EXISTS wide");
    session.run(&format!("CREATE TABLE wide ({})", columns.join(", ")));
    cluster.caught_up();
    let mut out = BytesMut::new();
    for n in 0..4 {
        let name = format!("wide{n}");
        frontend::parse(name.as_bytes(), format!("SELECT *, {n} FROM wide").as_bytes(), &mut out);
        frontend::describe(Target::Statement, name.as_bytes(), &mut out);
    }
    frontend::sync(&mut out);
    session.send(&out).expect("sent");
    let told = session.until_ready(1).expect("an answer");
    let tags: String = told.iter().map(|message| char::from(message.tag)).collect();
    assert_eq!(tags, "1tT".repeat(4) + "Z");
    assert_eq!(session.route().site(), "primary");
    session.run("DROP TABLE wide");
}

/// So do its parameters' types: its client binds what it was told, in binary, whatever becomes of the table.
#[test]
fn i1_a_statement_whose_parameters_were_described_keeps_their_types() {
    let _alone = alone();
    let cluster = small_pools();
    cluster.connect().run("CREATE TABLE p (id int PRIMARY KEY, v int)");
    cluster.connect().run("INSERT INTO p SELECT n, 3 FROM generate_series(0, 7) n");
    cluster.caught_up();
    let mut clients: Vec<_> = (0..8).map(|_| cluster.connect()).collect();
    for client in &mut clients {
        prepare(client, b"set", "UPDATE p SET v = $2 WHERE id = $1");
        prepare(client, b"get", "SELECT count(*) FROM p WHERE id = $1 AND v = $2");
    }
    let bind = |name: &[u8], values: [i32; 2]| {
        let mut out = BytesMut::new();
        frontend::message(frontend::tag::BIND, &mut out, |out| {
            out.extend_from_slice(b"\0");
            out.extend_from_slice(name);
            out.extend_from_slice(b"\0\0\x01\0\x01\0\x02");
            for value in values {
                out.extend_from_slice(&4i32.to_be_bytes());
                out.extend_from_slice(&value.to_be_bytes());
            }
            out.extend_from_slice(&[0, 0]);
        });
        frontend::execute(b"", 0, &mut out);
        frontend::sync(&mut out);
        out
    };
    let run = |client: &mut Session, name: &[u8], values| {
        client.send(&bind(name, values)).expect("sent");
        client.answers().expect("an answer").pop().expect("one")
    };
    run(&mut clients[0], b"set", [0, 7]);
    cluster.connect().run("ALTER TABLE p ALTER v TYPE real, ALTER id TYPE bigint");
    cluster.caught_up();
    let connections = std::thread::scope(|scope| {
        let runs = clients.iter_mut().zip(0..).map(|(client, id)| {
            scope.spawn(move || {
                let set = run(client, b"set", [id, 42]).command;
                (set, run(client, b"get", [id, 42]).rows)
            })
        });
        runs.collect::<Vec<_>>()
            .into_iter()
            .map(|run| run.join().expect("it runs"))
            .collect::<Vec<_>>()
    });
    for (set, found) in connections {
        assert_eq!(set, "UPDATE 1");
        assert_eq!(found, [[Some("1".to_owned())]]);
    }
    assert_eq!(
        cluster.connect().value("SELECT string_agg(v::text, ',') FROM p"),
        ["42"; 8].join(",")
    );
}
