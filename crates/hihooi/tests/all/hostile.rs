//! I8: clients that vanish, lie or flood get a PostgreSQL error or a clean close; never a hang,
//! never a panic of the manager, and never another client's session state.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, BytesMut};
use hihooi_wire::backend::{ErrorFields, tag};
use hihooi_wire::{frontend, startup};

use crate::harness::client::Session;
use crate::harness::{
    self, Cluster, DATABASE, Options, USER, alone, beside, eventually, ms, reference, s, script,
    shared, target_is_plain,
};

/// The manager lives and serves.
fn alive(cluster: &Cluster) {
    if cluster.is_hihooi() {
        assert!(cluster.manager_runs(), "the manager died:\n{}", cluster.log_tail());
        let log = cluster.log_tail();
        assert!(!log.contains("panicked"), "a panic (I8):\n{log}");
    }
    assert_eq!(cluster.connect().value("SELECT 1"), "1");
}

/// A client that vanishes in a block must not keep its locks.
#[test]
fn a_vanished_clients_locks_are_released() {
    let _beside = beside();
    let cluster = shared();
    let mut other = cluster.connect();
    other.run("DROP TABLE IF EXISTS vanish; CREATE TABLE vanish (id int PRIMARY KEY, n int)");
    other.run("INSERT INTO vanish VALUES (1, 0)");
    type Vanish = fn(&mut Session);
    let ways: [(&str, Vanish); 5] = [
        ("in a block", |s| {
            s.run("BEGIN; UPDATE vanish SET n = 7");
        }),
        ("in a failed block", |s| {
            s.run("BEGIN; UPDATE vanish SET n = 7");
            s.error("SELECT 1/0");
        }),
        ("in a pipeline without Sync", |s| {
            let mut out = BytesMut::new();
            frontend::parse(b"", b"UPDATE vanish SET n = 7", &mut out);
            frontend::bind(b"", b"", std::iter::empty(), &mut out);
            frontend::execute(b"", 0, &mut out);
            frontend::flush(&mut out);
            s.send(&out).expect("sent");
            while s.next().expect("a message").tag != tag::COMMAND_COMPLETE {}
        }),
        ("in a COPY", |s| {
            s.run("BEGIN; UPDATE vanish SET n = 7");
            let mut out = BytesMut::new();
            frontend::query(b"COPY vanish FROM STDIN", &mut out);
            s.send(&out).expect("sent");
            while s.next().expect("a message").tag != tag::COPY_IN {}
        }),
        ("in half a message", |s| {
            s.run("BEGIN; UPDATE vanish SET n = 7");
            s.send(b"Q\0\0\0\x20UPDATE vani").expect("sent");
        }),
    ];
    for (how, vanish) in ways {
        let mut victim = cluster.connect();
        vanish(&mut victim);
        drop(victim);
        eprintln!("vanished {how}: a lock that is still held is a hang (I8)");
        other.run("UPDATE vanish SET n = n + 1");
    }
    assert_eq!(other.value("SELECT n FROM vanish"), "5", "no vanished write may stay");
    alive(cluster);
}

/// An autocommit write whose client vanishes while it waits for a lock holds up nobody for long.
#[test]
fn a_client_that_vanishes_while_it_waits_leaves_no_trace() {
    let _beside = beside();
    let cluster = shared();
    let mut holder = cluster.connect();
    holder.run("DROP TABLE IF EXISTS vanish2; CREATE TABLE vanish2 (id int PRIMARY KEY, n int)");
    holder.run("INSERT INTO vanish2 VALUES (1, 0)");
    holder.run("BEGIN; UPDATE vanish2 SET n = 1");
    for number in 101..=105 {
        let mut waiter = cluster.connect();
        let text = format!("BEGIN; UPDATE vanish2 SET n = n + {number}");
        let mut out = BytesMut::new();
        frontend::query(text.as_bytes(), &mut out);
        waiter.send(&out).expect("sent");
        cluster.until_locked_out(&text);
    }
    holder.run("COMMIT");
    let mut other = cluster.connect();
    other.run("UPDATE vanish2 SET n = n + 1");
    assert_eq!(other.value("SELECT n FROM vanish2"), "2");
}

/// Who writes an answer is the first to find that its client is gone, if both were there to be read at once.
#[test]
fn a_client_that_goes_while_its_answer_comes_leaves_no_session() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = shared();
    // It runs until it gets a lock.
    let mut holder = cluster.direct("primary");
    holder.run("SELECT pg_advisory_lock(4321)");
    let mut victim = cluster.connect_with(&[("application_name", "gone")]);
    let mut out = BytesMut::new();
    frontend::query(b"SELECT pg_advisory_xact_lock(4321)", &mut out);
    victim.send(&out).expect("sent");
    // (It may yet wait to be committed.)
    let runs = "query LIKE 'SELECT pg_advisory_xact_lock%' AND state = 'active' \
        AND wait_event IS DISTINCT FROM 'ClientRead'";
    cluster.until_active(runs);
    let frozen = cluster.freeze_process(cluster.manager_pid().cast_signed());
    holder.run("SELECT pg_advisory_unlock(4321)");
    eventually("it has run", || cluster.activity(runs) == 0);
    victim.reset();
    drop(frozen);
    eventually("its session has ended", || {
        let clients = cluster.admin().run("SHOW CLIENTS").records();
        clients.iter().all(|row| row["application_name"] != "gone")
    });
    alive(cluster);
}

/// First packets that are no PostgreSQL start-up.
#[test]
fn garbage_instead_of_a_startup_packet_is_closed() {
    let _beside = beside();
    let unterminated = b"\0\0\0\x14\0\x03\0\0user\0postgre";
    let old: &[u8] = b"\0\0\0\x08\0\x02\0\0";
    let cases: [(&str, &[u8]); 9] = [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("zero length", b"\0\0\0\0\0\0\0\0"),
        ("negative length", b"\xff\xff\xff\xff\0\x03\0\0"),
        ("huge length", b"\x7f\xff\xff\xff\0\x03\0\0"),
        ("unterminated name", unterminated),
        ("old protocol", old),
        ("new protocol", b"\0\0\0\x08\0\x04\0\0"),
        ("short cancel", b"\0\0\0\x08\x04\xd2\x16\x2e"),
        ("TLS hello", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"),
    ];
    for (what, bytes) in cases {
        let [expected, told] = [reference().port, shared().port].map(|port| {
            let mut session = Session::bare(port).expect("connected");
            session.send(bytes).expect("sent");
            // An error (of an old protocol perhaps) or nothing, then the end; a half packet is given
            // up when the client closes.
            session.finish_sending();
            let told = session.until_closed();
            let told = told.unwrap_or_else(|| panic!("{what}: the connection stays open (I8)"));
            let fields = told.get(5..).and_then(|body| ErrorFields::read(body).ok());
            let text = match fields {
                Some(fields) => {
                    format!("{} {}", fields.code(), fields.get(b'M').unwrap_or_default())
                }
                None => String::from_utf8_lossy(&told).into_owned(),
            };
            text.split("server supports").next().map(str::to_owned)
        });
        assert_eq!(told, expected, "{what}");
    }
    alive(shared());
}

/// A client knows its own notifications by its process number.
#[test]
fn notifications_tell_who_notifies() {
    let _beside = beside();
    let [mut own, mut other] = [shared().connect(), shared().connect()];
    own.run("LISTEN notified");
    own.run("NOTIFY notified, 'mine'");
    other.run("NOTIFY notified, 'yours'");
    eventually("both", || {
        own.run("SELECT 1");
        own.notifications.len() == 2
    });
    let payloads: Vec<&str> = own.notifications.iter().map(|(_, payload)| &**payload).collect();
    assert_eq!(payloads, ["mine", "yours"]);
    assert_eq!(own.notifiers[0], own.key.0);
    assert_ne!(own.notifiers[1], own.key.0);
}

/// Messages that break the protocol in an open session: an error and, if need be, a clean close.
#[test]
fn broken_messages_get_an_error_or_a_clean_close() {
    let _beside = beside();
    let mut parse_count = BytesMut::new();
    frontend::message(b'P', &mut parse_count, |out| {
        out.put_slice(b"s\0select 1\0");
        out.put_i16(5);
    });
    parse_count.extend_from_slice(b"S\0\0\0\x04");
    let cases: [(&str, &[u8]); 7] = [
        ("unknown tag", b"y\0\0\0\x04"),
        ("length below 4", b"Q\0\0\0\x02"),
        ("length above the limit", b"Q\x7f\xff\xff\xffabc"),
        ("query without end", b"Q\0\0\0\x0cselect 1"),
        ("Parse with too few types", &parse_count),
        ("Describe of a strange kind", b"D\0\0\0\x07Xa\0S\0\0\0\x04"),
        ("Bind without end", b"B\0\0\0\x06abS\0\0\0\x04"),
    ];
    let mut wrong = Vec::new();
    for (what, bytes) in cases {
        let told = [reference().port, shared().port].map(|port| {
            let base = [("user", USER), ("database", DATABASE)];
            let mut session = Session::open(port, &base).expect("a session");
            session.status = '?';
            session.send(bytes).expect("sent");
            let mut messages = Vec::new();
            while session.status != 'I' {
                let Ok(message) = session.next() else {
                    messages.push("closed".to_owned());
                    break;
                };
                messages.push(strip_source(&script::render(&message)));
            }
            messages
        });
        // Where PostgreSQL closes without a word or lets the session go on, hihooi may say why
        // and close: clean either way.
        let closed = told[1].last().is_some_and(|line| line == "closed");
        let explained = told[1].iter().any(|line| line.contains("C=\"08P01\""));
        if told[0] != told[1] && !(closed && explained) {
            wrong.push(format!("{what}:\n  PostgreSQL {:?}\n  hihooi     {:?}", told[0], told[1]));
        }
    }
    assert!(wrong.is_empty(), "I1, I8:\n{}", wrong.join("\n"));
    alive(shared());
}

/// Leaves the place in PostgreSQL's source out, which hihooi's own errors don't have.
fn strip_source(line: &str) -> String {
    line.split(" F=").next().unwrap_or(line).to_owned()
}

#[test]
fn unknown_roles_and_databases_are_refused_in_postgresqls_words() {
    let _beside = beside();
    for (parameters, code) in [
        ([("user", "nosuch"), ("database", DATABASE)], "28000"),
        ([("user", USER), ("database", "nosuch")], "3D000"),
    ] {
        let told = [reference().port, shared().port].map(|port| {
            let failed = Session::open(port, &parameters).err().expect("refused").server();
            assert_eq!(failed.code(), code);
            failed.fields
        });
        assert_eq!(told[0], told[1], "I1");
    }
    // The role may not connect.
    let mut session = shared().connect();
    let _ = session.simple("CREATE ROLE hostile_nologin NOLOGIN");
    let refused = shared().try_connect(&[("user", "hostile_nologin")]).err().expect("refused");
    assert_eq!(refused.code(), "28000");
    // A role that was there when a pool was made and is dropped later.
    session.run("DROP ROLE IF EXISTS hostile_gone");
    session.run("CREATE ROLE hostile_gone LOGIN");
    shared().connect_with(&[("user", "hostile_gone")]).run("SELECT 1");
    eventually("the role can be dropped", || session.simple("DROP ROLE hostile_gone").is_ok());
    let refused = shared().try_connect(&[("user", "hostile_gone")]).err().expect("refused");
    assert_eq!(refused.code(), "28000");
    alive(shared());
}

/// Who may have no connection gets none, though others of the same name have left theirs.
#[test]
fn a_limit_of_no_connections_keeps_everybody_out() {
    let _beside = beside();
    let mut session = shared().connect();
    session.run("CREATE ROLE limited LOGIN");
    session.run("CREATE DATABASE limited");
    let others = [("user", "limited"), ("database", "limited")];
    let connect = || shared().try_connect(&others).map(|mut other| other.run("SELECT 1"));
    for whose in ["ROLE", "DATABASE"] {
        connect().expect("no limit");
        session.run(&format!("ALTER {whose} limited CONNECTION LIMIT 0"));
        let refused = connect().expect_err(whose);
        assert_eq!(refused.code(), "53300", "{refused}");
        session.run(&format!("ALTER {whose} limited CONNECTION LIMIT -1"));
    }
    connect().expect("no limit");
    eventually("nobody is left", || session.simple("DROP DATABASE limited").is_ok());
    session.run("DROP ROLE limited");
}

/// Databases that are not replicated go wholly to the primary.
#[test]
fn another_database_goes_to_the_primary() {
    let _beside = beside();
    let cluster = shared();
    let mut session = cluster.connect();
    let _ = session.simple("DROP DATABASE hostile_other");
    session.run("CREATE DATABASE hostile_other");
    let mut other = cluster.connect_with(&[("database", "hostile_other")]);
    other.run("CREATE TABLE t (id int); INSERT INTO t VALUES (1)");
    assert_eq!(other.value("SELECT count(*) FROM t"), "1");
    if cluster.is_hihooi() {
        assert_eq!(other.route().site(), "primary", "{}", other.route().text);
    }
    let used = session.simple("DROP DATABASE hostile_other").expect_err("a client uses it");
    assert_eq!(used.code(), "55006", "{used}");
    other.run("SELECT 1");
    other.close();
    eventually("the database can be dropped", || {
        session.simple("DROP DATABASE hostile_other").is_ok()
    });
}

/// One client's state is never another's, whatever connection they share.
#[test]
fn session_state_never_leaks() {
    let _beside = beside();
    let cluster = shared();
    let mut session = cluster.connect();
    session.run("DROP TABLE IF EXISTS leak; CREATE TABLE leak (id int)");
    let _ = session.simple("CREATE ROLE hostile_role");
    cluster.caught_up();
    for round in 0..5 {
        let mut dirty = cluster.connect();
        dirty.run("SET work_mem = '77MB'; SET search_path = pg_catalog; SET datestyle = 'German'");
        dirty.run("SET my.secret = 'mine'; SET statement_timeout = 99999");
        dirty.run("CREATE TEMP TABLE leak_temp (id int); PREPARE leak_p AS SELECT 1");
        dirty.run("SELECT pg_advisory_lock(4242); LISTEN leak_channel");
        dirty.run("CREATE TEMP SEQUENCE leak_seq; SELECT nextval('leak_seq')");
        dirty.run("BEGIN; DECLARE leak_c CURSOR WITH HOLD FOR SELECT 1; COMMIT");
        let mut out = BytesMut::new();
        frontend::parse(b"leak_n", b"SELECT 2", &mut out);
        frontend::sync(&mut out);
        dirty.send(&out).expect("sent");
        dirty.until_ready(1).expect("prepared");
        dirty.run("SET default_transaction_read_only = on; SET ROLE hostile_role");
        // Once in good order, once by vanishing, once in the middle of a block.
        match round % 3 {
            0 => dirty.close(),
            1 => drop(dirty),
            _ => {
                dirty.run("RESET ROLE; BEGIN");
                drop(dirty);
            }
        }
        let mut clean = cluster.connect();
        for (text, expected) in [
            ("SHOW work_mem", "4MB"),
            ("SHOW search_path", "\"$user\", public"),
            ("SHOW datestyle", "ISO, MDY"),
            ("SELECT current_setting('my.secret', true) IS NOT DISTINCT FROM 'mine'", "f"),
            ("SHOW statement_timeout", "0"),
            ("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'leak%'", "0"),
            ("SELECT count(*) FROM pg_cursors WHERE name LIKE 'leak%'", "0"),
            ("SELECT count(*) FROM pg_listening_channels()", "0"),
            ("SELECT current_user", "postgres"),
            ("SHOW default_transaction_read_only", "off"),
            ("SELECT to_regclass('pg_temp.leak_temp') IS NULL", "t"),
        ] {
            assert_eq!(clean.value(text), expected, "leaked in round {round} (I8): {text}");
        }
        assert_eq!(clean.error("SELECT lastval()").code(), "55000", "round {round}");
        assert_eq!(clean.error("EXECUTE leak_p").code(), "26000", "round {round}");
        clean.run("INSERT INTO leak VALUES (1)");
        eventually("the advisory lock is free", || {
            clean.value("SELECT pg_try_advisory_lock(4242)") == "t"
        });
        clean.run("SELECT pg_advisory_unlock_all()");
        clean.run("NOTIFY leak_channel");
        assert!(clean.notifications.is_empty());
    }
}

/// Many clients take turns on few server connections, each with settings of its own.
#[test]
fn interleaved_clients_keep_their_own_settings() {
    let _beside = beside();
    let mut sessions: Vec<Session> = (0..60).map(|_| shared().connect()).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        session.run(&format!("SET my.number = '{number}'; SET work_mem = '{}kB'", 1024 + number));
        let mut out = BytesMut::new();
        frontend::parse(b"same", format!("SELECT {number} AS n").as_bytes(), &mut out);
        frontend::sync(&mut out);
        session.send(&out).expect("sent");
        session.until_ready(1).expect("prepared");
    }
    for _ in 0..3 {
        for (number, session) in sessions.iter_mut().enumerate() {
            assert_eq!(session.value("SHOW my.number"), number.to_string(), "I8");
            let shown = session.value("SELECT current_setting('work_mem')");
            assert_eq!(shown, shared_work_mem(number), "I8");
            let mut out = BytesMut::new();
            frontend::bind(b"", b"same", std::iter::empty(), &mut out);
            frontend::execute(b"", 0, &mut out);
            frontend::sync(&mut out);
            session.send(&out).expect("sent");
            let messages = session.until_ready(1).expect("executed");
            let row = messages.iter().find(|m| m.tag == tag::DATA_ROW).expect("a row");
            assert_eq!(script::render(row), format!("D {number}"), "another's statement (I8)");
        }
    }
}

/// `currval` and `lastval` never tell another session's numbers (I8), however those were taken and
/// however they are asked for; and nobody keeps a connection because of them.
#[test]
fn numbers_of_sequences_are_nobody_elses() {
    const TAKES: &[&str] = &[
        "SELECT nextval('seq_s')",
        "INSERT INTO seq_t DEFAULT VALUES",
        "INSERT INTO seq_plain VALUES (1)",
        "DO $$ BEGIN PERFORM nextval('seq_s'); END $$",
        "CALL seq_proc()",
        "SELECT seq_f()",
        "SELECT setval('seq_s', 1000)",
        "BEGIN; SAVEPOINT a; SELECT nextval('seq_s'); ROLLBACK TO a; COMMIT",
        "COPY (SELECT nextval('seq_s')) TO STDOUT",
        "EXPLAIN ANALYZE SELECT nextval('seq_s')",
    ];
    const ASKS: &[&str] = &[
        "SELECT lastval()",
        "SELECT currval('seq_s')",
        "INSERT INTO seq_asked VALUES (currval('seq_s'))",
        "INSERT INTO seq_asked SELECT lastval()",
        "UPDATE seq_asked SET n = lastval()",
        "UPDATE seq_asked SET n = 1 RETURNING lastval()",
        "INSERT INTO seq_default DEFAULT VALUES",
        "SELECT seq_last()",
        "SELECT 1 + seq_last() FROM seq_asked",
        "DO $$ BEGIN PERFORM lastval(); END $$",
        "CALL seq_last_proc()",
        "CREATE TABLE seq_ctas AS SELECT lastval()",
        "COPY (SELECT lastval()) TO STDOUT",
        "BEGIN; SELECT lastval()",
        "PREPARE seq_q AS SELECT lastval(); EXECUTE seq_q",
        "SELECT 1; SELECT lastval()",
        "EXPLAIN ANALYZE SELECT lastval()",
    ];
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1).env("HIHOOI_POOL_SIZE", "1"));
    cluster.connect().run(
        "CREATE SEQUENCE seq_s; CREATE TABLE seq_t (id serial); CREATE TABLE seq_plain (id int); \
         CREATE TABLE seq_asked (n bigint); INSERT INTO seq_asked VALUES (0); \
         CREATE FUNCTION seq_f() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN \
             RETURN nextval('seq_s'); END $$; \
         CREATE FUNCTION seq_last() RETURNS bigint LANGUAGE plpgsql STABLE AS \
             $$ BEGIN RETURN lastval(); END $$; \
         CREATE FUNCTION seq_tr() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM nextval('seq_s'); RETURN NEW; END $$; \
         CREATE TRIGGER tr BEFORE INSERT ON seq_plain FOR EACH ROW EXECUTE FUNCTION seq_tr(); \
         CREATE TABLE seq_default (n bigint DEFAULT lastval()); \
         CREATE PROCEDURE seq_proc() LANGUAGE sql AS $$ SELECT nextval('seq_s') $$; \
         CREATE PROCEDURE seq_last_proc() LANGUAGE sql AS $$ SELECT lastval() $$; \
         CREATE CAST (text AS bigint) WITH INOUT AS IMPLICIT",
    );
    for (take, ask) in TAKES.iter().flat_map(|take| ASKS.iter().map(move |ask| (take, ask))) {
        for is_extended in [false, true] {
            if is_extended && ask.contains("; ") {
                continue;
            }
            let mut owner = cluster.connect();
            owner.run(take);
            let mut other = cluster.connect();
            let asked = if is_extended {
                other.extended(ask, &[]).map(drop)
            } else {
                other.simple(ask).map(drop)
            };
            let code = asked.err().map_or(String::new(), |failure| failure.code().to_owned());
            assert_eq!(code, "55000", "{take}, then another session's {ask}");
        }
    }
    for take in TAKES.iter().filter(|take| !take.contains("setval")) {
        // The connection is free for others, and the session's own number is known while no other
        // session had it.
        let mut owner = cluster.connect();
        owner.run(take);
        owner.run("SELECT lastval(), seq_last()");
        cluster.connect().run("INSERT INTO seq_asked VALUES (1)");
        assert_eq!(owner.error("SELECT lastval()").code(), "55000", "{take}");
    }
}

/// Whoever logs in has the role's settings and rights of now, whatever way they changed, also with
/// connections in the pool that began with others; sessions that are open keep theirs, and each goes on.
#[test]
fn a_login_has_what_the_role_has_now() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = Options::replicas(1).env("HIHOOI_POOL_SIZE", "2");
    let cluster = Cluster::start(options);
    let mut session = cluster.connect();
    session.run(
        "CREATE ROLE changed LOGIN; CREATE TABLE read (id int); INSERT INTO read VALUES (1); \
         CREATE FUNCTION change(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
             EXECUTE 'ALTER ROLE changed SET work_mem = ' || quote_literal($1); END $$; \
         GRANT SELECT ON read TO changed",
    );
    let login = || cluster.try_connect(&[("user", "changed"), ("database", DATABASE)]);
    let mut opened = Vec::new();
    let mut now = |shown: &str, direct: bool, texts: &[&str]| {
        login().expect("may log in").run("SELECT 1"); // a connection of before is in the pool
        let mut at_primary = direct.then(|| cluster.direct("primary"));
        for text in texts {
            at_primary.as_mut().unwrap_or(&mut session).run(text);
        }
        let mut new = login().expect("may log in");
        assert_eq!(new.value("SHOW work_mem"), shown, "{texts:?}");
        cluster.caught_up();
        assert_eq!(new.value("SELECT current_setting('work_mem') FROM read"), shown, "{texts:?}");
        opened.push((new, shown.to_owned()));
        for (session, shown) in &mut opened {
            assert_eq!(session.value("SHOW work_mem"), *shown, "open before {texts:?}");
            session.run("SET work_mem = '1MB'");
            session.run("RESET work_mem");
            assert_eq!(session.value("SHOW work_mem"), *shown, "open before {texts:?}");
            let routed = "SELECT current_setting('work_mem') FROM read";
            assert_eq!(session.value(routed), *shown, "open before {texts:?}");
        }
    };
    now("4MB", false, &["SELECT 1"]);
    now("70kB", false, &["ALTER ROLE changed SET work_mem = '70kB'"]);
    now("71kB", false, &["BEGIN", "ALTER ROLE changed SET work_mem = '71kB'", "COMMIT"]);
    now("72kB", false, &["BEGIN; ALTER ROLE changed SET work_mem = '72kB'; COMMIT"]);
    now("73kB", false, &["BEGIN; ALTER ROLE changed SET work_mem = '73kB'", "SELECT 1; COMMIT"]);
    now("73kB", false, &["BEGIN", "ALTER ROLE changed SET work_mem = '1MB'", "ROLLBACK"]);
    now("74kB", false, &["SELECT change('74kB')"]);
    now("75kB", false, &["DO $$ BEGIN PERFORM change('75kB'); END $$"]);
    now("76kB", true, &["ALTER ROLE changed SET work_mem = '76kB'"]);
    now("76kB", false, &["ALTER DATABASE postgres SET work_mem = '77kB'"]);
    now("77kB", false, &["ALTER ROLE changed RESET work_mem"]);
    now("78kB", false, &["ALTER ROLE changed IN DATABASE postgres SET work_mem = '78kB'"]);
    now(
        "4MB",
        false,
        &["ALTER ROLE changed RESET ALL; ALTER DATABASE postgres RESET ALL; \
         ALTER ROLE changed IN DATABASE postgres RESET ALL"],
    );
    now("4MB", false, &["ALTER ROLE changed SET app.x = 'a b\\c'"]);
    let mut new = login().expect("may log in");
    assert_eq!(new.value("SHOW app.x"), "a b\\c");
    for (no, yes) in [
        ("ALTER ROLE changed NOLOGIN", "ALTER ROLE changed LOGIN"),
        ("ALTER ROLE changed VALID UNTIL 'yesterday'", "ALTER ROLE changed VALID UNTIL 'infinity'"),
        (
            "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC",
            "GRANT CONNECT ON DATABASE postgres TO PUBLIC",
        ),
        ("DROP OWNED BY changed; DROP ROLE changed", "CREATE ROLE changed LOGIN"),
    ] {
        login().expect("may log in").run("SELECT 1");
        session.run(&format!("BEGIN; {no}; COMMIT"));
        // Without a password to check, PostgreSQL looks at no date.
        if !no.contains("VALID") {
            let code = login().err().map(|failure| failure.code().to_owned());
            assert!(matches!(code.as_deref(), Some("28000" | "42501")), "{no}: {code:?}");
        }
        session.run(yes);
        login().expect("may log in again").run("SELECT 1");
    }
    cluster.assert_verified();
}

/// Whoever logs in is told whether the role is a superuser now, whatever way it ceased to be one.
#[test]
fn a_login_is_told_whether_it_is_a_superuser_now() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1).env("HIHOOI_POOL_SIZE", "2"));
    let mut session = cluster.connect();
    session
        .run("CREATE ROLE lowered LOGIN; CREATE TABLE read (id int); INSERT INTO read VALUES (1)");
    let assert_told = |shown: &str, way: &[&str]| {
        let mut new = cluster.connect_with(&[("user", "lowered")]);
        assert_eq!(told_at_login(&new, "is_superuser"), shown, "{way:?}");
        assert_eq!(new.value("SHOW is_superuser"), shown, "{way:?}");
        let is_superuser = shown == "on";
        assert_eq!(new.simple("SET log_statement = 'none'").is_ok(), is_superuser, "{way:?}");
        cluster.caught_up();
        assert_eq!(new.simple("SELECT id FROM read").is_ok(), is_superuser, "{way:?}");
    };
    const LOWER: &str = "ALTER ROLE lowered NOSUPERUSER";
    for (is_pipeline, way) in [
        (false, &["BEGIN", LOWER, "COMMIT"][..]),
        (false, &["BEGIN; ALTER ROLE lowered NOSUPERUSER; COMMIT"]),
        (false, &[LOWER]),
        (true, &[LOWER]),
        (true, &["BEGIN", LOWER, "COMMIT"]),
        (true, &["INSERT INTO read VALUES (1)", LOWER, "SELECT count(*) FROM read"]),
    ] {
        session.run("ALTER ROLE lowered SUPERUSER");
        assert_told("on", &["ALTER ROLE lowered SUPERUSER"]);
        if is_pipeline {
            pipeline(&mut session, way);
        } else {
            way.iter().for_each(|text| drop(session.run(text)));
        }
        assert_told("off", way);
    }
    cluster.assert_verified();
}

/// What start-up said of a setting.
fn told_at_login(session: &Session, name: &str) -> String {
    let told = session.greeting.iter().filter(|message| message.tag == tag::PARAMETER_STATUS);
    let mut values = told.filter_map(|message| {
        let text = String::from_utf8_lossy(&message.body);
        Some(text.strip_prefix(name)?.trim_matches('\0').to_owned())
    });
    values.next().expect("a setting that start-up tells")
}

/// Runs statements by the extended protocol, all of them in front of one Sync.
fn pipeline(session: &mut Session, texts: &[&str]) {
    if let Err(failure) = session.pipeline(texts) {
        panic!("{texts:?}: {failure}");
    }
}

/// As PostgreSQL prints it.
fn shared_work_mem(number: usize) -> String {
    match number {
        0 => "1MB".to_owned(),
        n => format!("{}kB", 1024 + n),
    }
}

#[test]
fn a_full_pool_makes_clients_wait_and_then_says_so() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options =
        Options::replicas(1).env("HIHOOI_POOL_SIZE", "3").env("HIHOOI_POOL_WAIT_MS_MAX", "1500");
    let cluster = Cluster::start(options);
    cluster.connect().run("CREATE TABLE pooled (id int PRIMARY KEY)");
    let mut holders: Vec<Session> = (0..3).map(|_| cluster.connect()).collect();
    holders.iter_mut().for_each(|session| {
        session.run("BEGIN; INSERT INTO pooled SELECT 1 WHERE false");
    });
    let mut late = cluster.connect();
    let began = std::time::Instant::now();
    let full = late.error("INSERT INTO pooled VALUES (1)");
    assert_eq!(full.code(), "53300", "{full}");
    assert!(began.elapsed() >= ms(1500), "it didn't wait");
    // It is served when a slot becomes free while it waits, and the session goes on after errors.
    let refused = Arc::new(AtomicUsize::new(0));
    let refusals = refused.clone();
    let waiting = std::thread::spawn(move || {
        insert_patiently(&mut late, 2, &refusals);
        late
    });
    eventually("it waits again", || refused.load(Ordering::SeqCst) > 0);
    holders.pop().expect("a holder").run("COMMIT");
    let mut late = waiting.join().expect("served");
    assert_eq!(late.value("SELECT count(*) FROM pooled"), "1");
    // A vanished holder gives its slot back; a waiter that vanishes takes none.
    drop(holders);
    for _ in 0..10 {
        let mut gone = cluster.connect();
        let mut out = BytesMut::new();
        frontend::query(b"SELECT pg_sleep(0.2)", &mut out);
        gone.send(&out).expect("sent");
    }
    eventually("the pool recovers (I8)", || {
        late.simple("INSERT INTO pooled VALUES (3) ON CONFLICT DO NOTHING").is_ok()
    });
    // Twenty clients, three connections: everybody gets a turn.
    let clients: Vec<_> = (0..20)
        .map(|client| {
            let mut session = cluster.connect();
            std::thread::spawn(move || {
                for round in 0..20 {
                    insert_patiently(&mut session, 100 + client * 20 + round, &AtomicUsize::new(0));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("a turn"));
    assert_eq!(late.value("SELECT count(*) FROM pooled WHERE id >= 100"), "400");
    alive(&cluster);
}

/// Asks again when the pool was full for too long; counts that.
fn insert_patiently(session: &mut Session, id: usize, refused: &AtomicUsize) {
    while let Err(failure) = session.simple(&format!("INSERT INTO pooled VALUES ({id})")) {
        assert_eq!(failure.code(), "53300", "{failure}");
        refused.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn thousands_of_idle_clients_are_kept() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = shared();
    let memory = || resident_kb(cluster.manager_pid());
    let before = memory();
    let open = || {
        cluster
            .try_connect(&[])
            .unwrap_or_else(|failure| panic!("{failure}\n{}", cluster.log_tail()))
    };
    let limit = open_files_max().min(2_300);
    let count = limit - 300;
    let mut sessions: Vec<Session> = (0..count).map(|_| open()).collect();
    let each = memory().saturating_sub(before) as f64 / count as f64;
    eprintln!("{count} idle clients: {each:.1} KB each, {before} KB at rest");
    assert!(each <= 40.0, "an idle client takes {each:.1} KB (target 20)");
    for session in sessions.iter_mut().step_by(50) {
        assert_eq!(session.value("SELECT 1"), "1");
    }
    let last = sessions.last_mut().expect("one");
    assert_eq!(last.value("SELECT count(*) FROM (VALUES (1)) v"), "1");
    drop(sessions);
    alive(cluster);
}

/// What replicas are sent is held in pieces, however large transactions and values are (I8).
#[test]
fn large_rows_are_not_gathered() {
    const ROWS: u64 = 150;
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE large (id int PRIMARY KEY, v text); ALTER TABLE large ALTER v SET STORAGE EXTERNAL");
    session.run("INSERT INTO large VALUES (0, 'small')");
    cluster.caught_up();
    let before = memory_kb(cluster.manager_pid(), "VmHWM:");
    session.run(&format!(
        "INSERT INTO large SELECT n, repeat('x', 1000000) FROM generate_series(1, {ROWS}) n"
    ));
    cluster.caught_up();
    session.run("UPDATE large SET v = v || 'y'");
    cluster.caught_up();
    let most = memory_kb(cluster.manager_pid(), "VmHWM:") - before;
    assert!(most < ROWS * 1000 / 2, "{most} KB were taken for {ROWS} MB");
    cluster.assert_equal("SELECT id, md5(v) FROM large ORDER BY id");
}

fn resident_kb(pid: u32) -> u64 {
    memory_kb(pid, "VmRSS:")
}

/// A process's memory, by its name in `/proc/PID/status`.
fn memory_kb(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with(name)).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
}

/// Both ends of each connection are files of some process on this machine.
fn open_files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    line.split_whitespace().nth(3).and_then(|n| n.parse().ok()).unwrap_or(1024)
}

/// A client that doesn't read its large result must not fill the manager's memory, nor stop
/// others.
#[test]
fn a_slow_reader_is_not_buffered_without_bound() {
    if target_is_plain() {
        return;
    }
    const STUCK_LOOKS: usize = 20;
    let _alone = alone();
    let cluster = shared();
    let before = resident_kb(cluster.manager_pid());
    let mut slow: Vec<Session> = (0..4).map(|_| cluster.connect()).collect();
    let big = "SELECT repeat('x', 10000) FROM generate_series(1, 30000)";
    for session in &mut slow {
        let mut out = BytesMut::new();
        frontend::query(big.as_bytes(), &mut out);
        session.send(&out).expect("sent");
    }
    // Others are served meanwhile, until all servers wait for those who don't read.
    let (mut other, mut stuck) = (cluster.connect(), 0);
    let condition = format!("query = '{}' AND wait_event = 'ClientWrite'", big.replace('\'', "''"));
    eventually("the servers stand still", || {
        other.value("SELECT 1");
        stuck = if cluster.activity(&condition) == 4 { stuck + 1 } else { 0 };
        stuck == STUCK_LOOKS
    });
    let grown = resident_kb(cluster.manager_pid()).saturating_sub(before);
    assert!(grown < 64 * 1024, "four results of 300 MB took {grown} KB of memory (I8)");
    // Cancel reaches a query whose result is stuck.
    slow.iter().for_each(Session::cancel);
    for mut session in slow {
        let messages = session.until_ready(1).expect("an end");
        assert!(messages.iter().any(|m| m.tag == tag::ERROR || m.tag == tag::COMMAND_COMPLETE));
        assert_eq!(session.value("SELECT 2"), "2");
    }
}

/// A client that pours in more than it takes out.
#[test]
fn a_flood_of_pipelined_statements_is_bounded() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = shared();
    let before = resident_kb(cluster.manager_pid());
    let mut flooder = cluster.connect();
    let mut out = BytesMut::new();
    for _ in 0..2000 {
        frontend::query(b"SELECT repeat('y', 2000)", &mut out);
    }
    // Sends until TCP pushes back, never reads.
    for _ in 0..2_000 {
        if flooder.try_send(&out, s(1)).is_err() {
            break;
        }
    }
    let grown = resident_kb(cluster.manager_pid()).saturating_sub(before);
    assert!(grown < 64 * 1024, "a flood took {grown} KB of memory (I8)");
    drop(flooder);
    alive(cluster);
}

/// A large message that arrives slowly, and one whose rest never comes.
#[test]
fn half_messages_hold_up_nobody() {
    let _beside = beside();
    let cluster = shared();
    let mut half: Vec<Session> = (0..30).map(|_| cluster.connect()).collect();
    for session in &mut half {
        let mut out = BytesMut::new();
        frontend::query(&[b'x'; 100_000], &mut out);
        session.send(&out[..50_000]).expect("sent");
    }
    for _ in 0..20 {
        assert_eq!(cluster.connect().value("SELECT 1"), "1", "half messages stop others (I8)");
    }
    drop(half);
    let mut silent: Vec<Session> =
        (0..50).map(|_| Session::bare(cluster.port).expect("connected")).collect();
    let mut out = BytesMut::new();
    startup::startup([("user", USER)], &mut out);
    silent.iter_mut().for_each(|session| session.send(&out[..7]).expect("sent"));
    alive(cluster);
}

/// Errors of servers in the middle: a terminated backend ends the block of its client only.
#[test]
fn a_terminated_backend_is_reported_and_replaced() {
    let _beside = beside();
    let cluster = shared();
    let mut victim = cluster.connect();
    victim.run("DROP TABLE IF EXISTS terminated; CREATE TABLE terminated (id int)");
    let mut killer = cluster.connect();
    victim.run("BEGIN; INSERT INTO terminated VALUES (1)");
    let pid = victim.value("SELECT pg_backend_pid()");
    killer.run(&format!("SELECT pg_terminate_backend({pid})"));
    eventually("it has ended", || cluster.activity(&format!("pid = {pid}")) == 0);
    match victim.simple("INSERT INTO terminated VALUES (2)") {
        Ok(_) => panic!("a terminated block went on (I5)"),
        Err(harness::Failure::Server(fields)) => assert_eq!(fields.code(), "57P01", "{fields}"),
        Err(harness::Failure::Lost(_)) => {}
    }
    assert_eq!(killer.value("SELECT count(*) FROM terminated"), "0");
    for _ in 0..30 {
        cluster.connect().run("INSERT INTO terminated VALUES (3)");
    }
    alive(cluster);
}

/// Names of roles and settings that were given in a database with another encoding are no text in the replicated one:
/// nobody is locked out for them, and replicas keep them apart.
#[test]
fn names_of_other_encodings_lock_nobody_out() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut owner = cluster.connect();
    owner.run(
        "CREATE ROLE other LOGIN; CREATE ROLE mallory LOGIN; CREATE SCHEMA AUTHORIZATION mallory",
    );
    owner.run(
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    );
    let latin = |user: &str, sql: &str| {
        let encoding = ("client_encoding", "UTF8");
        cluster.connect_with(&[("user", user), ("database", "latin"), encoding]).run(sql);
    };
    latin("mallory", "ALTER ROLE CURRENT_USER SET search_path = 'é', mallory");
    latin("postgres", "ALTER DATABASE postgres SET app.tenant = 'é'");
    latin(
        "postgres",
        r#"CREATE ROLE "é"; CREATE ROLE "è" SUPERUSER; COMMENT ON ROLE "è" IS 'è'; GRANT "é" TO other"#,
    );
    cluster.caught_up();
    for user in ["mallory", "other", "postgres"] {
        cluster.connect_with(&[("user", user)]).run("SELECT 1");
    }
    // A role that can't be named here can own something.
    cluster.connect_with(&[("user", "mallory")]).run(
        "CREATE FUNCTION doubled(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 2 * $1; END'; \
         CREATE TABLE t (id int PRIMARY KEY, v int); CREATE INDEX ON t (doubled(v)); INSERT INTO t VALUES (1, 2)",
    );
    owner.run("CREATE TABLE given (id int PRIMARY KEY)");
    owner.run(
        "DO $$ DECLARE r name; BEGIN FOR r IN SELECT rolname FROM pg_roles WHERE oid > 16384 \
         AND rolname NOT IN ('mallory', 'other') LOOP \
         EXECUTE format('GRANT SELECT ON given TO %I', r); EXECUTE format('ALTER TABLE given OWNER TO %I', r); \
         END LOOP; END $$",
    );
    owner.run("INSERT INTO given VALUES (1)");
    cluster.assert_verified();
    latin("postgres", r#"ALTER ROLE "é" RENAME TO "ö""#);
    // (What is done to roles in other databases is found by comparing from time to time.)
    eventually("the roles are equal", || cluster.run_verify().0);
}

/// A query of very many statements is looked at in a moment: sessions share one thread.
#[test]
fn a_query_of_many_statements_holds_up_nobody() {
    let _beside = beside();
    let cluster = shared();
    let (mut many, mut other) = (cluster.connect(), cluster.connect());
    let busy = std::thread::spawn(move || {
        many.run(&"SET work_mem = '4MB'; SELECT 1; ".repeat(15_000));
    });
    eventually("it is answered", || {
        assert_eq!(other.value("SELECT 1"), "1");
        busy.is_finished()
    });
    busy.join().expect("all of them");
}
