//! I1: a client can't tell hihooi from PostgreSQL. Scripts of protocol exchanges
//! (`scripts/*.txt`) run against a plain server and against hihooi, and every message of the
//! answers must be the same, except process ids, cancel keys and OIDs of users' objects, and that
//! what a replica describes right after DDL may belong to no table (docs/differences.md; `types.rs` compares the
//! OIDs themselves).

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use hihooi_wire::backend::{ErrorFields, tag};
use hihooi_wire::{frontend, startup};

use crate::harness::client::{Session, cancel};
use crate::harness::script::{self, Script};
use crate::harness::{DATABASE, USER, activity, alone, beside, eventually, reference, shared};

/// Who answers a script's reads of tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readers {
    /// The primary: replicas are paused, so that they know none of a script's tables.
    Primary,
    /// Replicas as far as they may: nothing is sent before they have caught up.
    Replicas,
}

/// Plays all scripts of a text on both servers and shows every difference.
fn compare(text: &str) {
    let _alone = alone();
    let mut differences = Vec::new();
    for readers in [Readers::Replicas, Readers::Primary] {
        let _paused = (readers == Readers::Primary).then(Paused::all);
        let scripts = script::scripts(text);
        let scripts =
            scripts.iter().filter(|script| readers == Readers::Primary || !script.is_for_primary());
        differences.extend(scripts.filter_map(|script| difference(*script, readers)));
    }
    assert!(
        differences.is_empty(),
        "hihooi shows itself (I1) in {} scripts:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Plays a script on both servers; the first difference.
pub fn difference(script: Script<'_>, readers: Readers) -> Option<String> {
    let expected = play(script, reference().port, || {});
    if std::env::var_os("HIHOOI_TEST_SHOW").is_some() {
        println!("== {}\n{expected}", script.name);
    }
    let before: fn() = match readers {
        _ if script.needs_catalog() => until_known,
        Readers::Primary => || {},
        Readers::Replicas => || shared().caught_up(),
    };
    let mut got = play(script, shared().port, before);
    if readers == Readers::Replicas {
        got = with_tables(&expected, &got);
    }
    let difference = script::difference(&script.compared(&expected), &script.compared(&got))?;
    Some(format!("== {} ({readers:?}){difference}", script.name))
}

/// Waits until hihooi's catalog has all DDL: until then it routes nothing to replicas. (At this level it
/// does, although they are paused.)
fn until_known() {
    if !shared().is_hihooi() {
        return;
    }
    let mut session = shared().connect();
    session.run("SET hihooi.consistency = 'weak-si'");
    eventually("the catalog has all DDL", || {
        session.run("SELECT 1");
        session.route().site().starts_with("replica")
    });
}

/// Replicas that are paused until it is dropped.
pub struct Paused(Vec<String>);

impl Paused {
    pub fn all() -> Paused {
        let replicas = if shared().is_hihooi() { shared().replicas() } else { Vec::new() };
        replicas.iter().for_each(|site| shared().command(&format!("PAUSE REPLICA {site}")));
        Paused(replicas)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.iter().for_each(|site| shared().command(&format!("RESUME REPLICA {site}")));
    }
}

/// A transcript in which descriptions that differ from what is expected in nothing but that all
/// columns of users' tables are said to belong to none, as replicas do whose objects aren't known yet, are as
/// expected.
fn with_tables(expected: &str, got: &str) -> String {
    let mut expected = expected.lines();
    let as_expected = |line| match expected.next() {
        Some(expected) if without_tables(expected) == line => expected,
        _ => line,
    };
    got.lines().map(as_expected).map(|line| format!("{line}\n")).collect()
}

/// A line of a transcript, of columns of users' tables as a replica describes them.
fn without_tables(line: &str) -> String {
    const USERS: &str = "(user's.";
    let mut parts = line.split(USERS);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| {
        line + "(0.0" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn only_the_tables_of_a_replicas_columns_are_left_out() {
    let expected = "D 1\n    T a(user's.1 type=23 4) b(user's.12 type=25 -1) c(0.0 type=25 -1)\n";
    let replica = "D 1\n    T a(0.0 type=23 4) b(0.0 type=25 -1) c(0.0 type=25 -1)\n";
    assert_eq!(with_tables(expected, replica), expected);
    for other in [
        &replica.replace("type=23", "type=20"),
        &replica.replace("b(0.0", "b(user's.12"),
        &replica.replace("c(0.0", "c(0.1"),
        "D 1\n",
    ] {
        assert_ne!(with_tables(expected, other), expected);
    }
}

/// Plays a script in a schema of its own; `before` runs before anything is sent. A panic on the
/// way, such as a hang, becomes part of the transcript so that the other scripts still run.
fn play(script: Script<'_>, port: u16, before: fn()) -> String {
    let name: String = script.name.chars().filter(char::is_ascii_alphanumeric).collect();
    let schema = format!("golden_{}", name.to_lowercase());
    let base = [("user", USER), ("database", DATABASE)];
    let fresh = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}");
    let options = format!("-c search_path={schema}");
    let played = std::panic::catch_unwind(|| {
        Session::open(port, &base).expect("a session").run(&fresh);
        let with_path = [base[0], base[1], ("options", options.as_str())];
        let open = |_: &str| match Session::open(port, &with_path) {
            Ok(session) => session,
            Err(failure) => panic!("no session: {failure}"),
        };
        script::play(script, open, before)
    });
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        format!("the script broke off: {text}\n")
    })
}

#[test]
fn simple_queries_answer_alike() {
    compare(include_str!("scripts/simple.txt"));
}

#[test]
fn extended_queries_answer_alike() {
    compare(include_str!("scripts/extended.txt"));
}

#[test]
fn transactions_answer_alike() {
    compare(include_str!("scripts/transactions.txt"));
}

#[test]
fn session_state_answers_alike() {
    compare(include_str!("scripts/session.txt"));
}

#[test]
fn copy_answers_alike() {
    compare(include_str!("scripts/copy.txt"));
}

/// What start-up answers, one line a message, parameters in the order of their names.
fn greeting(port: u16, first: &[u8]) -> Vec<String> {
    let session = match Session::open_with(port, first) {
        Ok(session) => session,
        Err(failure) => {
            // hihooi's own refusals don't name a place in PostgreSQL's source.
            let fields = failure.server().fields;
            let kept = fields.iter().filter(|(code, _)| !b"FLR".contains(code));
            return vec![kept.map(field).collect()];
        }
    };
    let mut lines: Vec<String> = session.greeting.iter().map(script::render).collect();
    lines.sort();
    lines
}

fn field((code, text): &(u8, String)) -> String {
    format!("{}={text:?} ", char::from(*code))
}

/// `idle_session_timeout` ends a session though its server connection serves others, whatever set it; not
/// one that works, or is in a transaction.
#[test]
fn idle_sessions_end_as_they_are_told() {
    let _alone = alone();
    let mut admin = shared().connect();
    let _ = admin.simple("CREATE ROLE idler LOGIN");
    admin.run("ALTER ROLE idler SET idle_session_timeout = '300ms'");
    let mut by_role = shared().connect_with(&[("user", "idler")]);
    let mut by_option = shared().connect_with(&[("options", "-c idle_session_timeout=300")]);
    let mut by_set = shared().connect();
    by_set.run("SET idle_session_timeout = 300");
    let begun = |text: &str| {
        let mut begun = None;
        // One that comes too late was idle for too long.
        eventually(text, || {
            let mut session = shared().connect_with(&[("user", "idler")]);
            let is_in_time = session.simple(text).is_ok();
            begun = Some(session);
            is_in_time
        });
        begun.expect("just opened")
    };
    let mut in_block = begun("BEGIN");
    let mut unset = begun("SET idle_session_timeout = 0");
    begun("SELECT pg_sleep(1)");
    for (how, session) in [("role", &mut by_role), ("option", &mut by_option), ("SET", &mut by_set)]
    {
        let told = session.next().expect("a last word");
        assert_eq!(told.tag, tag::ERROR, "{how}");
        let fields = ErrorFields::read(&told.body).expect("an error's fields");
        assert_eq!((fields.code(), fields.get(b'V')), ("57P05", Some("FATAL")), "{how}");
        assert!(session.next().is_err(), "{how}: closed behind it");
    }
    in_block.run("COMMIT");
    unset.run("SELECT 1");
    eventually("the role can be dropped", || admin.simple("DROP ROLE idler").is_ok());
}

#[test]
fn startup_answers_alike() {
    let _beside = beside();
    let with = |parameters: &[(&str, &str)]| {
        let mut out = BytesMut::new();
        startup::startup(parameters.iter().copied(), &mut out);
        out
    };
    let base = [("user", USER), ("database", DATABASE)];
    let and = |name, value| with(&[base[0], base[1], (name, value)]);
    for first in [
        with(&base),
        with(&[("user", USER)]),
        and("application_name", "golden"),
        and("client_encoding", "LATIN1"),
        and("client_encoding", "nonsense"),
        and("DateStyle", "German"),
        and("TimeZone", "Asia/Tokyo"),
        and("nosuch", "1"),
        and("my.own", "1"),
        and("options", "-c work_mem=5MB -c geqo=off"),
        and("options", "-c work_mem=nonsense"),
        and("options", "--search_path=a,b"),
        and("_pq_.nosuch", "1"),
        with(&[("user", "nosuch"), ("database", DATABASE)]),
        with(&[("user", USER), ("database", "nosuch")]),
        with(&[("database", DATABASE)]),
    ] {
        let (expected, got) = (greeting(reference().port, &first), greeting(shared().port, &first));
        let sent = first.escape_ascii();
        assert_eq!(expected, got, "hihooi's start-up differs (I1); sent: {sent}");
    }
}

#[test]
fn a_newer_minor_version_is_negotiated() {
    let _beside = beside();
    let mut first = BytesMut::new();
    startup::startup([("user", USER), ("database", DATABASE)], &mut first);
    first[7] = 2;
    assert_eq!(greeting(reference().port, &first), greeting(shared().port, &first));
}

#[test]
fn encryption_requests_are_declined_with_one_byte() {
    let _beside = beside();
    const GSS_REQUEST: i32 = 80_877_104;
    const SSL_REQUEST: i32 = 80_877_103;
    for code in [SSL_REQUEST, GSS_REQUEST] {
        if code == GSS_REQUEST && !shared().is_hihooi() {
            continue; // PostgreSQL may be built with it.
        }
        let mut session = Session::bare(shared().port).expect("connected");
        let mut out = BytesMut::new();
        out.put_i32(8);
        out.put_i32(code);
        session.send(&out).expect("sent");
        let told = session.raw_byte();
        assert_eq!(told, b'N', "I1");
        let mut out = BytesMut::new();
        startup::startup([("user", USER), ("database", DATABASE)], &mut out);
        session.send(&out).expect("sent");
        let last = session.until_ready(1).expect("a session");
        assert_eq!(last.last().map(|m| m.tag), Some(tag::READY_FOR_QUERY));
    }
}

/// Settings given at start-up hold for every statement, wherever it runs.
#[test]
fn startup_settings_carry_over_to_reads_and_writes() {
    let _beside = beside();
    let options = "-c search_path=carried -c work_mem=5MB -c extra_float_digits=0";
    let mut session = shared().connect_with(&[
        ("options", options),
        ("DateStyle", "German"),
        ("TimeZone", "Asia/Tokyo"),
        ("application_name", "carried"),
    ]);
    session.run("DROP SCHEMA IF EXISTS carried CASCADE; CREATE SCHEMA carried");
    session.run("CREATE TABLE t (at timestamptz)");
    session.run("INSERT INTO t VALUES ('2020-01-01 00:00:00+00')");
    shared().caught_up();
    for _ in 0..20 {
        assert_eq!(session.value("SELECT at FROM t"), "01.01.2020 09:00:00 JST");
        let insert = "INSERT INTO t VALUES ('2020-01-01 00:00:00+00') RETURNING at";
        assert_eq!(session.value(insert), "01.01.2020 09:00:00 JST");
        assert_eq!(session.value("SHOW work_mem"), "5MB");
        assert_eq!(session.value("SHOW application_name"), "carried");
    }
}

/// Role and database defaults (ALTER ROLE … SET, ALTER DATABASE … SET) hold on replicas too.
#[test]
fn role_defaults_hold_for_reads_and_writes() {
    let _alone = alone();
    let mut admin = shared().connect();
    admin.run("DROP SCHEMA IF EXISTS defaults CASCADE; CREATE SCHEMA defaults");
    let _ = admin.simple("CREATE ROLE golden_defaults LOGIN");
    admin.run("ALTER ROLE golden_defaults SET search_path = defaults");
    admin.run("ALTER ROLE golden_defaults SET datestyle = 'German'");
    admin.run("GRANT ALL ON SCHEMA defaults TO golden_defaults");
    let mut session = shared().connect_with(&[("user", "golden_defaults")]);
    session.run("CREATE TABLE t (d date); INSERT INTO t VALUES ('2020-02-01')");
    shared().caught_up();
    for _ in 0..10 {
        assert_eq!(session.value("SELECT d FROM t"), "01.02.2020");
    }
}

/// Waits until one of these servers works on a statement that sleeps or waits for a lock.
fn until_held_up(ports: &[u16], statement: &str) {
    let held_up = "wait_event IN ('PgSleep', 'advisory', 'transactionid')";
    eventually(statement, || activity(ports, &format!("query = '{statement}' AND {held_up}")) > 0);
}

/// The ports of the servers behind a port.
fn servers_of(port: u16) -> Vec<u16> {
    let sites: Vec<u16> = shared().sites().iter().map(|site| site.port).collect();
    if port == shared().port { sites } else { vec![port] }
}

/// Somebody who holds an advisory lock at the server that takes writes.
fn holder(port: u16, key: i32) -> Session {
    let port = if port == shared().port { shared().site("primary").port } else { port };
    let mut holder = Session::open(port, &[("user", USER), ("database", DATABASE)]).expect("c");
    holder.run(&format!("SELECT pg_advisory_lock({key})"));
    holder
}

#[test]
fn a_statement_timeout_holds_for_every_statement_of_the_session() {
    let _beside = beside();
    for port in [reference().port, shared().port] {
        let base = [("user", USER), ("database", DATABASE)];
        let mut session = Session::open(port, &base).expect("a session");
        session.run("SET statement_timeout = 100");
        let text = "SELECT pg_sleep(600)";
        for failed in [session.error(text), session.extended(text, &[]).expect_err("late").server()]
        {
            assert_eq!(failed.code(), "57014");
            assert_eq!(failed.message(), "canceling statement due to statement timeout");
        }
    }
}

#[test]
fn cancel_stops_the_running_query_and_no_other() {
    let _beside = beside();
    for port in [reference().port, shared().port] {
        let mut other = Session::open(port, &[("user", USER), ("database", DATABASE)]).expect("b");
        let mut victim = Session::open(port, &[("user", USER), ("database", DATABASE)]).expect("a");
        let key = victim.key.clone();
        let sleeper = std::thread::spawn(move || {
            let failed = victim.error("SELECT pg_sleep(600)");
            assert_eq!(failed.code(), "57014");
            assert_eq!(failed.message(), "canceling statement due to user request");
            // The session goes on.
            assert_eq!(victim.value("SELECT 7"), "7");
            victim
        });
        let holder = holder(port, 9301);
        let quiet = std::thread::spawn(move || {
            other.run("SELECT pg_advisory_xact_lock(9301)");
            other
        });
        until_held_up(&servers_of(port), "SELECT pg_sleep(600)");
        until_held_up(&servers_of(port), "SELECT pg_advisory_xact_lock(9301)");
        cancel(port, &key);
        let mut victim = sleeper.join().expect("the cancelled session");
        // With nothing running, a cancel does nothing, also not to the next one on that server
        // connection.
        cancel(port, &key);
        assert_eq!(victim.value("SELECT 8 FROM pg_sleep(0.3)"), "8");
        holder.close();
        quiet.join().expect("the other session: the wrong query was cancelled (I1)");
    }
}

#[test]
fn a_cancel_with_a_wrong_secret_does_nothing() {
    let _beside = beside();
    let mut session = shared().connect();
    let mut wrong = session.key.clone();
    wrong.1[0] ^= 0xff;
    let port = shared().port;
    let holder = holder(port, 9302);
    let running = std::thread::spawn(move || session.run("SELECT pg_advisory_xact_lock(9302)"));
    until_held_up(&servers_of(port), "SELECT pg_advisory_xact_lock(9302)");
    cancel(port, &wrong);
    holder.close();
    running.join().expect("I1: cancel needs the secret");
}

#[test]
fn a_cancel_reaches_a_write_that_waits_for_a_lock() {
    let _beside = beside();
    let mut holder = shared().connect();
    holder.run("DROP TABLE IF EXISTS cancel_lock; CREATE TABLE cancel_lock (id int PRIMARY KEY)");
    holder.run("INSERT INTO cancel_lock VALUES (1)");
    for extended in [false, true] {
        holder.run("BEGIN; UPDATE cancel_lock SET id = 1");
        let mut waiter = shared().connect();
        let key = waiter.key.clone();
        let waiting = std::thread::spawn(move || {
            let text = "UPDATE cancel_lock SET id = 2";
            let failed = if extended {
                waiter.extended(text, &[]).expect_err("cancelled")
            } else {
                waiter.simple(text).expect_err("cancelled")
            };
            assert_eq!(failed.code(), "57014");
            waiter.value("SELECT 1")
        });
        shared().until_locked_out("UPDATE cancel_lock SET id = 2");
        cancel(shared().port, &key);
        assert_eq!(waiting.join().expect("the waiter"), "1");
        holder.run("ROLLBACK");
    }
}

/// TCP may split and join messages anywhere.
#[test]
fn messages_may_arrive_byte_by_byte() {
    let _beside = beside();
    let mut out = BytesMut::new();
    frontend::query(b"CREATE TEMP TABLE bytewise (id int)", &mut out);
    frontend::parse(b"s", b"INSERT INTO bytewise VALUES ($1) RETURNING id", &mut out);
    frontend::bind(b"", b"s", [Some(&b"7"[..])].into_iter(), &mut out);
    frontend::execute(b"", 0, &mut out);
    frontend::sync(&mut out);
    frontend::query(b"SELECT * FROM bytewise", &mut out);
    let transcripts = [reference().port, shared().port].map(|port| {
        let mut first = BytesMut::new();
        startup::startup([("user", USER), ("database", DATABASE)], &mut first);
        let mut session = Session::bare(port).expect("connected");
        for byte in first.iter() {
            session.send(&[*byte]).expect("sent");
        }
        session.until_ready(1).expect("a session");
        for byte in out.iter() {
            session.send(&[*byte]).expect("sent");
            std::thread::sleep(Duration::from_micros(300));
        }
        let messages = session.until_ready(3).expect("three answers");
        messages.iter().map(script::render).collect::<Vec<_>>()
    });
    assert_eq!(transcripts[0], transcripts[1], "I1");
}

#[test]
fn a_thousand_statements_in_one_packet_are_answered_in_order() {
    let _beside = beside();
    let mut out = BytesMut::new();
    for n in 0..1000 {
        let value = n.to_string();
        let text = if n % 3 == 0 {
            "WITH w AS (INSERT INTO pipelined VALUES ($1) RETURNING n) SELECT n::text FROM w"
        } else {
            "SELECT $1::text"
        };
        frontend::parse(b"", text.as_bytes(), &mut out);
        frontend::bind(b"", b"", [Some(value.as_bytes())].into_iter(), &mut out);
        frontend::execute(b"", 0, &mut out);
        frontend::sync(&mut out);
    }
    let mut session = shared().connect();
    session.run("DROP TABLE IF EXISTS pipelined; CREATE TABLE pipelined (n int PRIMARY KEY)");
    session.send(&out).expect("sent");
    let messages = session.until_ready(1000).expect("all answers");
    let rows = messages.iter().filter(|m| m.tag == tag::DATA_ROW);
    let values: Vec<String> = rows.map(|m| script::render(m)[2..].to_owned()).collect();
    assert_eq!(values, (0..1000).map(|n| n.to_string()).collect::<Vec<_>>(), "I1");
    assert_eq!(session.number("SELECT count(*) FROM pipelined"), 334);
}

/// A pipelined read behind an unanswered write of its own client sees it (I4).
#[test]
fn a_pipelined_read_sees_the_write_in_front_of_it() {
    let _beside = beside();
    let mut session = shared().connect();
    session.run("DROP TABLE IF EXISTS behind; CREATE TABLE behind (n int)");
    session.run("INSERT INTO behind VALUES (0)");
    for n in 1..=100 {
        let mut out = BytesMut::new();
        for text in ["UPDATE behind SET n = n + 1", "SELECT n FROM behind"] {
            frontend::parse(b"", text.as_bytes(), &mut out);
            frontend::bind(b"", b"", std::iter::empty(), &mut out);
            frontend::execute(b"", 0, &mut out);
            frontend::sync(&mut out);
        }
        session.send(&out).expect("sent");
        let messages = session.until_ready(2).expect("answers");
        let row = messages.iter().find(|m| m.tag == tag::DATA_ROW).expect("a row");
        assert_eq!(script::render(row), format!("D {n}"), "own write unseen (I4)");
    }
}

#[test]
fn texts_and_values_of_many_megabytes_pass() {
    let _beside = beside();
    let mut session = shared().connect();
    session.run("DROP TABLE IF EXISTS big; CREATE TABLE big (id int PRIMARY KEY, v text)");
    let long = "x".repeat(8 * 1024 * 1024);
    session.run(&format!("INSERT INTO big VALUES (1, '{long}')"));
    session.extended("INSERT INTO big VALUES (2, $1)", &[&long]).expect("inserted");
    shared().caught_up();
    for _ in 0..4 {
        assert_eq!(session.number("SELECT sum(length(v)) FROM big"), 16 * 1024 * 1024);
        assert_eq!(session.value("SELECT v FROM big WHERE id = 2").len(), long.len());
    }
    session.run("DROP TABLE big");
}

/// A driver that real programs use: it prepares everything, by name, and asks for types.
#[test]
fn a_real_driver_works() {
    let _beside = beside();
    // Takes OIDs at the primary only, so that what is made next has others at replicas.
    shared().connect().run("CREATE TEMPORARY TABLE takes_oids (a int, b text)");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("rt");
    runtime.block_on(async {
        let config = format!("host=127.0.0.1 port={} user={USER} dbname={DATABASE}", shared().port);
        let (mut client, connection) =
            tokio_postgres::connect(&config, tokio_postgres::NoTls).await.expect("connected");
        let connection = tokio::spawn(connection);
        client
            .batch_execute(
                "DROP SCHEMA IF EXISTS driver CASCADE; CREATE SCHEMA driver; \
                 CREATE TYPE driver.mood AS ENUM ('sad', 'happy'); \
                 CREATE TABLE driver.t (id bigint PRIMARY KEY, v text, m driver.mood)",
            )
            .await
            .expect("definitions");
        let insert = client
            .prepare("INSERT INTO driver.t VALUES ($1, $2, $3::text::driver.mood)")
            .await
            .expect("prepared");
        for id in 0..50_i64 {
            let v = format!("v{id}");
            let done = client.execute(&insert, &[&id, &v, &"happy"]).await.expect("inserted");
            assert_eq!(done, 1);
        }
        let select =
            client.prepare("SELECT v FROM driver.t WHERE id = $1").await.expect("prepared");
        for id in 0..50_i64 {
            let row = client.query_one(&select, &[&id]).await.expect("a row");
            assert_eq!(row.get::<_, String>(0), format!("v{id}"));
        }
        let transaction = client.transaction().await.expect("a block");
        transaction.execute("DELETE FROM driver.t WHERE id < $1", &[&10_i64]).await.expect("gone");
        let portal = transaction.bind("SELECT id FROM driver.t ORDER BY id", &[]).await;
        let portal = portal.expect("a portal");
        let first = transaction.query_portal(&portal, 3).await.expect("rows");
        assert_eq!(first.iter().map(|r| r.get::<_, i64>(0)).collect::<Vec<_>>(), [10, 11, 12]);
        transaction.rollback().await.expect("rolled back");
        let duplicate = client.execute(&insert, &[&1_i64, &"x", &"sad"]).await.expect_err("twice");
        assert_eq!(duplicate.code().map(|code| code.code()), Some("23505"));
        let moods = client.query("SELECT m::text, m FROM driver.t LIMIT 1", &[]).await;
        moods.expect("a user's type");
        // Pipelined by polling together.
        let reads = (0..20_i64).map(|id| {
            let (client, select) = (&client, &select);
            async move { client.query_one(select, &[&id]).await.map(|r| r.get::<_, String>(0)) }
        });
        for (id, read) in futures(reads).await.into_iter().enumerate() {
            assert_eq!(read.expect("a row"), format!("v{id}"));
        }
        let token = client.cancel_token();
        let sleeping = client.batch_execute("SELECT pg_sleep(601)");
        let cancelling = async {
            let runs = || until_held_up(&servers_of(shared().port), "SELECT pg_sleep(601)");
            tokio::task::spawn_blocking(runs).await.expect("it runs");
            token.cancel_query(tokio_postgres::NoTls).await.expect("asked");
        };
        let (slept, ()) = tokio::join!(sleeping, cancelling);
        let slept = slept.expect_err("cancelled");
        assert_eq!(slept.code().map(|code| code.code()), Some("57014"));
        drop(client);
        connection.await.expect("no panic").expect("a clean end");
    });
}

/// Polls futures together, which makes the driver pipeline them.
async fn futures<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pinned: Vec<_> = futures.map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(move |context| {
        for (future, output) in &mut pinned {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if pinned.iter().any(|(_, output)| output.is_none()) {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(pinned.iter_mut().filter_map(|(_, o)| o.take()).collect())
    })
    .await
}

/// What was answered doesn't wait for what comes behind it, wherever that runs (I1).
#[test]
fn answers_don_t_wait_for_the_next_statement() {
    let _alone = alone();
    let admin = &mut shared().connect();
    admin.run("DROP TABLE IF EXISTS answered; CREATE TABLE answered (id int PRIMARY KEY)");
    shared().caught_up();
    for port in [reference().port, shared().port] {
        let mut session =
            Session::open(port, &[("user", USER), ("database", DATABASE)]).expect("a session");
        session.run("CREATE TABLE IF NOT EXISTS answered (id int PRIMARY KEY)");
        shared().caught_up();
        for first in [
            "INSERT INTO answered VALUES (1)",
            "SELECT 1",
            "SELECT 1 / 0",
            "BEGIN; DELETE FROM answered; COMMIT",
        ] {
            let mut queries = BytesMut::new();
            frontend::query(first.as_bytes(), &mut queries);
            frontend::query(b"SELECT pg_sleep(600)", &mut queries);
            session.send(&queries).expect("both are taken");
            session.until_ready(1).expect("an answer");
            eventually("the second runs", || {
                activity(&servers_of(port), "state = 'active' AND query ~ '^SELECT pg_sleep'") == 1
            });
            cancel(port, &session.key);
            session.until_ready(1).expect("an answer");
        }
    }
}
