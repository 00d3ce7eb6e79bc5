//! Ways to change what a name means, or when a transaction commits, that a reader of statements
//! could overlook (I1, I3, I6). Replicas are paused while a case runs, so that a read which goes
//! to one although it must not is stale every time and not only by bad luck.

use bytes::BytesMut;
use hihooi_wire::backend::tag;
use hihooi_wire::frontend::{self, Parse};

use crate::harness::client::Session;
use crate::harness::{self, Cluster, Options, alone, eventually, shared, target_is_plain};

/// All replicas stand still as long as this lives.
struct Still;

impl Still {
    fn now() -> Still {
        shared().caught_up();
        command("PAUSE");
        Still
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        command("RESUME");
    }
}

fn command(verb: &str) {
    if shared().is_hihooi() {
        for site in shared().replicas() {
            shared().command(&format!("{verb} REPLICA {site}"));
        }
    }
}

/// A schema with a table `t` of one row, n = 0.
fn schema(name: &str) {
    let mut session = shared().connect();
    session.run(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"));
    session.run(&format!("CREATE TABLE {name}.t (id int PRIMARY KEY, n int NOT NULL, home text)"));
    session.run(&format!("INSERT INTO {name}.t VALUES (1, 0, '{name}')"));
}

/// What `t` is for a session and what it holds.
fn seen(session: &mut Session) -> (String, i64) {
    let row = session.run("SELECT home, n FROM t WHERE id = 1").rows.remove(0);
    let field = |place: usize| row[place].clone().expect("not null");
    (field(0), field(1).parse().expect("a number"))
}

/// Statements of one session, one after another, then a write by another one: what `t` is now.
fn after(path: &str, statements: &[&str], written: &str, n: i64) -> (String, i64) {
    let (mut session, mut writer) = (shared().connect(), shared().connect());
    session.run(&format!("SET search_path = {path}"));
    assert_eq!(session.number("SELECT count(*) FROM t"), 1, "t is known under the old path");
    statements.iter().for_each(|statement| {
        session.run(statement);
    });
    writer.run(&format!("UPDATE {written}.t SET n = {n}"));
    let seen = seen(&mut session);
    assert_eq!(session.number("SELECT sum(n) FROM t"), n, "stale: {}", session.route().text);
    seen
}

/// A path that was set in a block holds after its COMMIT and not after its ROLLBACK, by whichever
/// statement it was set; reads that follow know the table that is meant and are fresh (I3).
#[test]
fn a_path_set_in_a_block_holds_after_it() {
    let _alone = alone();
    ["review_a", "review_b"].into_iter().for_each(schema);
    let mut session = shared().connect();
    session.run(
        "CREATE OR REPLACE FUNCTION review_a.move() RETURNS void LANGUAGE plpgsql AS \
         $$ BEGIN SET search_path = review_b; END $$",
    );
    let _still = Still::now();
    let ways = [
        "SET search_path = review_b",
        "SELECT set_config('search_path', 'review_b', false)",
        "UPDATE pg_settings SET setting = 'review_b' WHERE name = 'search_path'",
        "DO $$ BEGIN PERFORM set_config('search_path', 'review_b', false); END $$",
        "SELECT review_a.move()",
    ];
    for (n, way) in (1..).step_by(5).zip(ways) {
        let committed = after("review_a", &["BEGIN", way, "COMMIT"], "review_b", n);
        assert_eq!(committed, ("review_b".to_owned(), n), "{way} in a block");
        let text = format!("BEGIN; {way}; COMMIT");
        let at_once = after("review_a", &[&text], "review_b", n + 1);
        assert_eq!(at_once, ("review_b".to_owned(), n + 1), "{text}");
        let alone = after("review_a", &[way], "review_b", n + 2);
        assert_eq!(alone, ("review_b".to_owned(), n + 2), "{way} by itself");
        let undone = after("review_a", &["BEGIN", way, "ROLLBACK"], "review_a", n + 3);
        assert_eq!(undone, ("review_a".to_owned(), n + 3), "{way} rolled back");
        let saved = ["BEGIN", "SAVEPOINT s", way, "ROLLBACK TO s", "COMMIT"];
        let released = after("review_a", &saved, "review_a", n + 4);
        assert_eq!(released, ("review_a".to_owned(), n + 4), "{way} rolled back to a savepoint");
    }
}

/// `UPDATE pg_settings` is SET: for the session, and with what other settings do to answers.
#[test]
fn an_update_of_pg_settings_is_a_set() {
    let _alone = alone();
    schema("review_set");
    let _still = Still::now();
    let mut session = shared().connect();
    session.run("SET search_path = review_set");
    session.run("UPDATE pg_settings SET setting = '-3' WHERE name = 'extra_float_digits'");
    session.run("UPDATE pg_settings SET setting = 'German' WHERE name = 'DateStyle'");
    assert_eq!(session.value("SELECT 1.0::float8 / 3 FROM t"), "0.333333333333");
    assert_eq!(session.value("SELECT DATE '2024-02-29' FROM t"), "29.02.2024");
    assert_eq!(session.value("SHOW extra_float_digits"), "-3");
    session.run("RESET ALL");
    assert_eq!(session.value("SELECT 1.0::float8 / 3 FROM review_set.t"), "0.3333333333333333");
}

/// A schema that is named in a path before it exists hides later ones when it comes, and no
/// longer when it goes; so does a table in a schema that is there.
#[test]
fn what_is_made_later_shadows_what_was_meant() {
    let _alone = alone();
    schema("review_base");
    let mut writer = shared().connect();
    writer.run("DROP SCHEMA IF EXISTS review_late CASCADE");
    let mut reader = shared().connect();
    reader.run("SET search_path = review_late, review_base");
    assert_eq!(seen(&mut reader), ("review_base".to_owned(), 0));
    let _still = Still::now();
    assert_eq!(seen(&mut reader), ("review_base".to_owned(), 0));
    writer.run("CREATE SCHEMA review_late");
    writer.run("CREATE TABLE review_late.t AS SELECT 1 AS id, 1 AS n, 'late'::text AS home");
    assert_eq!(seen(&mut reader), ("late".to_owned(), 1), "{}", reader.route().text);
    writer.run("UPDATE review_late.t SET n = 2");
    assert_eq!(seen(&mut reader), ("late".to_owned(), 2), "{}", reader.route().text);
    writer.run("ALTER TABLE review_late.t RENAME TO was_t; UPDATE review_base.t SET n = 3");
    assert_eq!(seen(&mut reader), ("review_base".to_owned(), 3), "{}", reader.route().text);
    writer.run("BEGIN; ALTER TABLE review_late.was_t RENAME TO t; UPDATE review_late.t SET n = 4");
    assert_eq!(seen_without_waiting(), 3, "what is not committed is not seen");
    writer.run("COMMIT");
    assert_eq!(seen(&mut reader), ("late".to_owned(), 4), "{}", reader.route().text);
    writer.run("DROP SCHEMA review_late CASCADE; UPDATE review_base.t SET n = 5");
    assert_eq!(seen(&mut reader), ("review_base".to_owned(), 5), "{}", reader.route().text);
}

/// The base table by its full name, which no lock of the writer stands before.
fn seen_without_waiting() -> i64 {
    shared().connect().number("SELECT n FROM review_base.t")
}

/// A domain's default is its columns' default; a volatile one gives replicas the primary's values
/// (I2).
#[test]
fn a_domain_with_a_volatile_default() {
    let _alone = alone();
    let cluster = shared();
    schema("review_domain");
    let mut session = cluster.connect();
    session.run("SET search_path = review_domain");
    session.run("CREATE DOMAIN dice AS float8 DEFAULT random()");
    session.run("CREATE DOMAIN loaded AS dice");
    session.run("CREATE TABLE made (id int PRIMARY KEY, d dice, l loaded)");
    session.run("INSERT INTO made SELECT generate_series(1, 5)");
    cluster.assert_schema_equal("review_domain");
    for text in [
        "ALTER TABLE t ADD d dice",
        "ALTER TABLE t ADD l loaded NOT NULL",
        "ALTER TABLE made ADD a dice, ADD b loaded",
    ] {
        session.run(text);
        cluster.assert_schema_equal("review_domain");
    }
}

/// Catalog queries see definitions that were acknowledged, and nothing that was undone.
#[test]
fn catalogs_show_what_was_just_defined() {
    let _alone = alone();
    schema("review_catalog");
    let (mut definer, mut reader) = (shared().connect(), shared().connect());
    let _still = Still::now();
    let counts = |table: &str| {
        [
            format!("SELECT count(to_regclass('review_catalog.{table}'))"),
            format!("SELECT count(*) FROM pg_class WHERE relname = '{table}'"),
            format!("SELECT count(*) FROM pg_catalog.pg_tables WHERE tablename = '{table}'"),
            format!("SELECT count(*) FROM information_schema.tables WHERE table_name = '{table}'"),
            format!(
                "SELECT count(*) FROM review_catalog.t, pg_class c WHERE c.relname = '{table}'"
            ),
            format!("SELECT count(*) FROM (SELECT 1 FROM pg_class WHERE relname = '{table}') s"),
        ]
    };
    for round in 0..5 {
        let table = format!("review_just_{round}");
        definer.run(&format!("CREATE TABLE review_catalog.{table} (id int)"));
        for query in counts(&table) {
            assert_eq!(reader.number(&query), 1, "{query}: {}", reader.route().text);
        }
        definer.run(&format!("ALTER TABLE review_catalog.{table} ADD late int"));
        let columns = format!(
            "SELECT count(*) FROM pg_attribute WHERE attname = 'late' \
             AND attrelid = 'review_catalog.{table}'::regclass"
        );
        assert_eq!(reader.number(&columns), 1, "{}", reader.route().text);
        assert_eq!(reader.number(&format!("SELECT count(late) FROM review_catalog.{table}")), 0);
        definer.run(&format!("BEGIN; DROP TABLE review_catalog.{table}; ROLLBACK"));
        assert_eq!(reader.number(&counts(&table)[1]), 1);
        definer.run(&format!("DROP TABLE review_catalog.{table}"));
        for query in counts(&table) {
            assert_eq!(reader.number(&query), 0, "{query}: {}", reader.route().text);
        }
    }
}

/// Sends what was composed and reads up to a message of some kind.
fn exchange(session: &mut Session, compose: impl Fn(&mut BytesMut), until: u8) {
    let mut out = BytesMut::new();
    compose(&mut out);
    session.send(&out).expect("sent");
    loop {
        let message = session.next().expect("answered");
        assert_ne!(message.tag, tag::ERROR, "{:?}", message.body);
        if message.tag == until {
            return;
        }
    }
}

/// Parse and Bind of a statement without values.
fn bound(text: &str, out: &mut BytesMut) {
    frontend::parse(b"review", text.as_bytes(), out);
    frontend::bind(b"review_portal", b"review", std::iter::empty(), out);
}

/// A COMMIT that was bound earlier commits when it is executed, and from then on its writes are
/// seen by all (I3), whatever lies between: a Flush or a Sync.
#[test]
fn a_commit_bound_earlier_commits_when_executed() {
    let _alone = alone();
    schema("review_portal");
    let _still = Still::now();
    let mut reader = shared().connect();
    for (n, (text, by_sync)) in
        (1..).zip([("COMMIT", false), ("COMMIT", true), ("END", false), ("end work", true)])
    {
        let mut session = shared().connect();
        session.run(&format!("BEGIN; UPDATE review_portal.t SET n = {n}"));
        if by_sync {
            exchange(
                &mut session,
                |out| {
                    bound(text, out);
                    frontend::sync(out);
                },
                tag::READY_FOR_QUERY,
            );
            session.extended("SELECT 1", &[]).expect("between");
        } else {
            exchange(
                &mut session,
                |out| {
                    bound(text, out);
                    frontend::flush(out);
                },
                tag::BIND_COMPLETE,
            );
        }
        assert_eq!(reader.number("SELECT n FROM review_portal.t"), n - 1, "not committed yet");
        exchange(
            &mut session,
            |out| {
                frontend::execute(b"review_portal", 0, out);
                frontend::sync(out);
            },
            tag::READY_FOR_QUERY,
        );
        let got = reader.number("SELECT n FROM review_portal.t");
        assert_eq!(got, n, "{text}, {by_sync}: stale (I3): {}", reader.route().text);
        assert_eq!(session.number("SELECT n FROM review_portal.t WHERE id = 1"), n, "I4");
        assert_eq!(session.status, 'I');
    }
}

/// The binary form of a composite tells its columns' types by their OIDs, which are the primary's (I1)
/// for a client that never asks for a description, too.
#[test]
fn values_in_binary_have_the_primarys_oids() {
    let _alone = alone();
    let cluster = shared();
    if cluster.is_hihooi() {
        // So that OIDs differ.
        let text = "CREATE TYPE moved AS (a int); DROP TYPE moved";
        cluster.replicas().iter().for_each(|site| drop(cluster.repair(site).run(text)));
    }
    schema("review_binary");
    let mut session = cluster.connect();
    session.run("SET search_path = review_binary");
    session.run("CREATE TYPE mood AS ENUM ('abc'); CREATE TYPE pair AS (a int, m mood)");
    session.run("CREATE TABLE p (id int, p pair, m mood[])");
    session.run("INSERT INTO p VALUES (1, (1, 'abc'), '{abc}')");
    let oid = session.number("SELECT 'mood'::regtype::oid::int8") as u32;
    cluster.caught_up();
    for text in ["SELECT row(1, 'abc'::mood)::pair", "SELECT p FROM p", "SELECT m FROM p"] {
        let mut out = BytesMut::new();
        frontend::parse(b"", text.as_bytes(), &mut out);
        let binary = &[0, 0, 0, 0, 0, 1, 0, 1];
        frontend::Bind { portal: b"", statement: b"", rest: binary }.write(&mut out);
        frontend::execute(b"", 0, &mut out);
        frontend::sync(&mut out);
        session.send(&out).expect("sent");
        let answer = session.until_ready(1).expect("answered");
        let tags: String = answer.iter().map(|message| char::from(message.tag)).collect();
        assert_eq!(tags, "12DCZ", "{text}");
        let has_oid = answer[2].body.windows(4).any(|bytes| bytes == oid.to_be_bytes());
        assert!(has_oid, "{text}: {:?}, {oid}: {}", answer[2].body, session.route().text);
    }
}

/// What we ask in front of a COMMIT may fail, and with it the transaction: that is the COMMIT's error.
#[test]
fn a_question_that_fails_is_the_commits_error() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    let mut session = cluster.connect();
    for extended in [false, true] {
        session.run("BEGIN");
        session.run("DO $$ BEGIN CREATE ROLE not_committed; END $$");
        session.run("SET LOCAL statement_timeout = '1s'");
        // What this role is must be told to the replicas, which nobody can do now.
        let mut direct = cluster.direct("primary");
        direct.run("BEGIN; LOCK TABLE hihooi.told IN ACCESS EXCLUSIVE MODE");
        let failed = match extended {
            false => session.simple("COMMIT").map(drop),
            true => session.extended("COMMIT", &[]).map(drop),
        };
        assert_eq!(failed.expect_err("a commit that did nothing").code(), "57014");
        direct.run("ROLLBACK");
        if extended {
            session.run("ROLLBACK");
        }
        assert_eq!(session.value("SHOW statement_timeout"), "0", "the session goes on");
        let made = "SELECT count(*) FROM pg_roles WHERE rolname = 'not_committed'";
        assert_eq!(session.number(made), 0);
    }
    // In a block that has failed already, COMMIT is a ROLLBACK, as ever.
    session.run("BEGIN; CREATE ROLE not_committed");
    session.error("SELECT 1 / 0");
    assert_eq!(session.run("COMMIT").command, "ROLLBACK");
}

/// A cursor WITH HOLD keeps what it saw in its block; reads beside it are fresh. One whose query
/// writes does so at COMMIT, which all see (I3).
#[test]
fn cursors_with_hold_outlive_their_block() {
    let _alone = alone();
    schema("review_hold");
    let (mut session, mut reader) = (shared().connect(), shared().connect());
    session.run(
        "CREATE FUNCTION review_hold.next() RETURNS int LANGUAGE sql AS \
         $$ UPDATE review_hold.t SET n = n + 1 RETURNING n $$",
    );
    let _still = Still::now();
    session.run("BEGIN");
    session.run("DECLARE kept SCROLL CURSOR WITH HOLD FOR SELECT n FROM review_hold.t");
    session.run("UPDATE review_hold.t SET n = 1");
    session.run("COMMIT");
    reader.run("UPDATE review_hold.t SET n = 2");
    assert_eq!(session.number("FETCH kept"), 0, "as of its declaration");
    assert_eq!(session.number("SELECT n FROM review_hold.t"), 2, "{}", session.route().text);
    assert_eq!(session.number("FETCH ABSOLUTE 1 kept"), 0);
    session.run("BEGIN");
    assert_eq!(session.number("FETCH ABSOLUTE 1 kept"), 0);
    session.run("ROLLBACK");
    session.run("CLOSE kept");
    assert_eq!(session.error("FETCH kept").code(), "34000");

    session.run("BEGIN");
    session.run("DECLARE writes CURSOR WITH HOLD FOR SELECT review_hold.next()");
    assert_eq!(reader.number("SELECT n FROM review_hold.t"), 2, "not run yet");
    session.run("COMMIT");
    let got = reader.number("SELECT n FROM review_hold.t");
    assert_eq!(got, 3, "written at COMMIT (I3): {}", reader.route().text);
    assert_eq!(session.number("FETCH writes"), 3);
    session.run("BEGIN; DECLARE again CURSOR WITH HOLD FOR SELECT review_hold.next(); COMMIT");
    let got = reader.number("SELECT sum(n) FROM review_hold.t");
    assert_eq!(got, 4, "written at COMMIT (I3): {}", reader.route().text);
    session.run("CLOSE ALL");
}

/// DDL that a replica can't follow stops it until the operator, who has repeated it there, says
/// RESUME. A RESUME from before, of a pause, doesn't count as that word (I2).
#[test]
fn a_resume_of_a_pause_is_no_word_on_later_ddl() {
    if harness::target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.command("PAUSE REPLICA replica1");
    cluster.command("RESUME REPLICA replica1");
    cluster.caught_up();
    let mut replica = cluster.repair("replica1");
    replica.run("ALTER TABLE t ADD x text");
    session.run("DO $$ BEGIN ALTER TABLE t ADD x float8; END $$");
    let applied = || {
        let replica = cluster.show_replicas().remove("replica1").expect("shown");
        replica["state"] == "serving" && replica["lag_entries"] == "0"
    };
    eventually("the replica stops", || {
        assert!(!applied(), "DDL was skipped silently:\n{}", cluster.log_tail());
        let replica = cluster.show_replicas().remove("replica1").expect("shown");
        replica["state"] == "failed" && !replica["reason"].contains("no answer")
    });
    assert_eq!(session.run("SELECT x FROM t").columns, ["x"], "the primary serves");
    // Nor does it go on by itself, when more comes.
    session.run("INSERT INTO t (id) VALUES (2)");
    eventually("the replica stays behind", || {
        let replica = cluster.show_replicas().remove("replica1").expect("shown");
        assert_eq!(replica["state"], "failed");
        replica["lag_entries"].parse::<u64>().is_ok_and(|entries| entries >= 2)
    });
    replica.run("ALTER TABLE t DROP x; ALTER TABLE t ADD x float8");
    cluster.command("RESUME REPLICA replica1");
    cluster.caught_up();
    session.run("UPDATE t SET x = 2");
    cluster.assert_equal("SELECT * FROM t");
}

/// Whoever prepares a statement behind DDL gets it as it is then, though others have the same one from before, and
/// servers' connections have theirs.
#[test]
fn a_statement_prepared_behind_ddl_is_new() {
    let _alone = alone();
    let mut session = shared().connect();
    session.run("DROP TABLE IF EXISTS review_new");
    session.run("CREATE TABLE review_new (id int PRIMARY KEY); INSERT INTO review_new VALUES (1)");
    shared().caught_up();
    let text = "UPDATE review_new SET id = id RETURNING *";
    let named = |session: &mut Session| {
        let mut out = BytesMut::new();
        Parse { statement: b"review_new", query: text.as_bytes(), types: &[0, 0] }.write(&mut out);
        frontend::sync(&mut out);
        session.send(&out).expect("sent");
        session.answers().expect("prepared");
    };
    let run = |session: &mut Session| {
        let mut out = BytesMut::new();
        frontend::bind(b"", b"review_new", std::iter::empty(), &mut out);
        frontend::describe(frontend::Target::Portal, b"", &mut out);
        frontend::execute(b"", 0, &mut out);
        frontend::sync(&mut out);
        session.send(&out).expect("sent");
        session.answers().map(|mut answers| answers.remove(0).columns.len())
    };
    // Two connections to the primary have it.
    let (mut a, mut b) = (shared().connect(), shared().connect());
    named(&mut a);
    named(&mut b);
    a.run("BEGIN; SAVEPOINT s");
    assert_eq!(run(&mut b).expect("one column"), 1);
    assert_eq!(run(&mut a).expect("one column"), 1);
    a.run("COMMIT");
    session.run("ALTER TABLE review_new ADD z int");
    let mut c = shared().connect();
    named(&mut c);
    for _ in 0..2 {
        a.run("BEGIN; SAVEPOINT s");
        for _ in 0..3 {
            assert_eq!(run(&mut c).expect("it was prepared behind the DDL"), 2);
        }
        a.run("COMMIT");
        assert_eq!(run(&mut c).expect("it was prepared behind the DDL"), 2);
    }
}

/// Statements that write another row than they seem to, or read by other means than it seems: at paused replicas
/// nobody reads what they wrote.
#[test]
fn i3_what_is_written_in_a_way_that_does_not_show() {
    if harness::target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    let is_before_16 =
        session.number("SELECT current_setting('server_version_num')::int") < 160_000;
    session.run(
        "CREATE TYPE ct AS (a int, b int); CREATE TABLE x (v int, id int PRIMARY KEY, w int); \
         INSERT INTO x SELECT 0, g, 0 FROM generate_series(10, 20) g; \
         CREATE TABLE k (k text PRIMARY KEY, v int); INSERT INTO k VALUES ('a', 1), ('NULL', 2); \
         CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)",
    );
    if is_before_16 {
        // Keywords of later versions, which the parser is of.
        session.run("CREATE FUNCTION json_value(jsonb, text) RETURNS int STABLE LANGUAGE sql AS 'SELECT v FROM t WHERE id = 1'");
        session.run("CREATE TABLE before_16 (id int PRIMARY KEY, system_user text); INSERT INTO before_16 VALUES (1, 'x')");
    }
    cluster.caught_up();
    let mut session = cluster.connect(); // what can't be parsed may have left anything in the old one
    eventually("the replica is read", || {
        session.run("SELECT count(*) FROM x");
        session.route().site() == "replica1"
    });
    cluster.command("PAUSE REPLICA replica1");
    let write = |text: &str| drop(cluster.connect().run(text));
    let mut reader = cluster.connect();
    let array = |reader: &mut Session, value: &str| {
        let answer = reader.extended("SELECT v FROM k WHERE k = ANY ($1)", &[value]);
        answer.expect("read").rows[0][0].clone().expect("a value")
    };
    write("INSERT INTO x VALUES ((ROW(1, 2)::ct).*, 7)");
    assert_eq!(reader.number("SELECT count(*) FROM x WHERE id = 2"), 1, "{}", reader.route().text);
    write("UPDATE k SET v = 100 WHERE k = 'a'");
    assert_eq!(array(&mut reader, "{a\u{b}}"), "100", "{}", reader.route().text);
    write("UPDATE k SET v = 200 WHERE k = 'NULL'");
    reader.run("SET array_nulls = off");
    assert_eq!(array(&mut reader, "{NULL}"), "200", "{}", reader.route().text);
    if is_before_16 {
        write("UPDATE t SET v = 100 WHERE id = 1");
        let value = reader.number("SELECT json_value('{}'::jsonb, '$')");
        assert_eq!(value, 100, "{}", reader.route().text);
    }
    cluster.command("RESUME REPLICA replica1");
    cluster.caught_up();
    assert_eq!(
        reader.number("SELECT t.pg_typeof::oid FROM t WHERE id = 1"),
        reader.number("/* hihooi: primary */ SELECT 't'::regtype::oid")
    );
    cluster.assert_verified();
}

/// Functions that are called without being named as such; and names of objects, which have other OIDs at each server.
#[test]
fn i3_what_is_read_in_a_way_that_does_not_show() {
    let _alone = alone();
    // Objects that come behind have other OIDs there.
    shared().connect().run("CREATE TEMPORARY TABLE takes_an_oid ()");
    schema("read_so");
    let mut session = shared().connect();
    session.run("SET search_path = read_so");
    session.run(
        "CREATE TABLE other (id int PRIMARY KEY, n int); INSERT INTO other VALUES (1, 1);
         CREATE FUNCTION rf(int) RETURNS int STABLE LANGUAGE sql AS 'SELECT n FROM read_so.t WHERE id = $1';
         CREATE FUNCTION af(int[]) RETURNS int STABLE LANGUAGE sql AS 'SELECT n FROM read_so.t WHERE id = 1';
         CREATE FUNCTION vf(VARIADIC other[]) RETURNS int STABLE LANGUAGE sql AS 'SELECT n FROM read_so.t WHERE id = 1';
         CREATE TYPE c AS (n int);
         CREATE FUNCTION mkc(int) RETURNS c STABLE LANGUAGE sql AS 'SELECT row(n)::read_so.c FROM read_so.t WHERE id = $1';
         CREATE CAST (int AS c) WITH FUNCTION mkc(int);
         CREATE TYPE w AS (a c); CREATE DOMAIN d AS c;
         CREATE TABLE named (id int PRIMARY KEY, c regclass, o oid);
         INSERT INTO named VALUES (1, 'other', 'other'::regclass);
         CREATE TABLE named_too (id int PRIMARY KEY, c regclass[]); INSERT INTO named_too VALUES (1, '{other}');
         CREATE DOMAIN object AS regclass;
         CREATE FUNCTION oid_of(regclass) RETURNS oid IMMUTABLE LANGUAGE sql AS 'SELECT $1::oid'",
    );
    let still = Still::now();
    session.run("UPDATE t SET n = 7 WHERE id = 1");
    for read in [
        "SELECT rf(1)",
        "SELECT (1).rf",
        "SELECT (id).rf FROM other WHERE id = 1",
        "SELECT (array[1]).af",
        "SELECT other.vf FROM other WHERE id = 1",
        "SELECT ((array[1]::_c)[1]).n",
        "SELECT ((array[1]::_d)[1]).n",
        "SELECT ((row(1)::w).a).n",
        "SELECT (((array[row(1)]::w[])[1]).a).n",
    ] {
        assert_eq!(session.value(read), "7", "{read}: {}", session.route().text);
    }
    drop(still);
    shared().caught_up();
    let oid = shared().direct("primary").value("SELECT 'read_so.other'::regclass::oid");
    let xmin = shared().direct("primary").value("SELECT xmin FROM read_so.t WHERE id = 1");
    for _ in 0..3 {
        for (read, value) in [
            ("SELECT id FROM named WHERE c = o", "1"),
            ("SELECT c::oid FROM named", &oid),
            ("SELECT max(c::oid) FROM named", &oid),
            ("SELECT c::oid[] FROM named_too", &format!("{{{oid}}}")),
            ("SELECT '{other}'::_regclass::oid[]", &format!("{{{oid}}}")),
            ("SELECT 'other'::object::oid", &oid),
            ("SELECT oid_of('other')", &oid),
            ("SELECT (t).xmin FROM t WHERE id = 1", &xmin),
            ("SELECT (t.*).xmin FROM t WHERE id = 1", &xmin),
        ] {
            assert_eq!(session.value(read), value, "{read}: {}", session.route().text);
        }
    }
    session.run("SET search_path = read_so");
    let mut out = BytesMut::new();
    let types = [&[0, 1][..], &2205u32.to_be_bytes()].concat();
    Parse { statement: b"", query: b"SELECT $1::oid", types: &types }.write(&mut out);
    frontend::bind(b"", b"", [Some(&b"other"[..])].into_iter(), &mut out);
    frontend::execute(b"", 0, &mut out);
    frontend::sync(&mut out);
    session.send(&out).expect("sent");
    let answers = session.answers().expect("an oid");
    assert_eq!(answers[0].rows, [[Some(oid)]]);
}

/// While replicas stand still, reads show what was written last, though no text shows that they read it: code of these
/// definitions reads `cfg`. Each read is given with what it answers when `v` is 0 and when it is 1.
fn assert_hidden_reads_are_fresh(definitions: &str, reads: &[(&str, [&str; 2])]) {
    let _alone = alone();
    let mut session = shared().connect();
    session.run(
        "DROP SCHEMA IF EXISTS hidden CASCADE; CREATE SCHEMA hidden; SET search_path = hidden; \
         CREATE TABLE cfg (id int PRIMARY KEY, v int); INSERT INTO cfg VALUES (1, 0)",
    );
    session.run(definitions);
    let still = Still::now();
    for v in [1, 0] {
        shared().connect().run(&format!("UPDATE hidden.cfg SET v = {v} WHERE id = 1"));
        for (read, answers) in reads {
            assert_eq!(session.value(read), answers[v], "{read}: {}", session.route().text);
        }
    }
    drop(still);
    session.run("DROP SCHEMA hidden CASCADE");
}

/// Functions of PostgreSQL's own cast values to `json` and `text`.
#[test]
fn casts_within_functions_of_postgresql_are_seen() {
    assert_hidden_reads_are_fresh(
        r#"CREATE TYPE e AS ENUM ('a', 'b');
        CREATE TABLE t (id int PRIMARY KEY, e e); INSERT INTO t VALUES (1, 'a');
        CREATE FUNCTION as_json(e) RETURNS json LANGUAGE plpgsql STABLE SET search_path = hidden AS
            $$ BEGIN RETURN (SELECT to_json(v) FROM cfg WHERE id = 1); END $$;
        CREATE FUNCTION as_text(e) RETURNS text LANGUAGE plpgsql STABLE SET search_path = hidden AS
            $$ BEGIN RETURN (SELECT v::text FROM cfg WHERE id = 1); END $$;
        CREATE CAST (e AS json) WITH FUNCTION as_json(e); CREATE CAST (e AS text) WITH FUNCTION as_text(e)"#,
        &[
            ("SELECT to_json(e) FROM t WHERE id = 1", ["0", "1"]),
            ("SELECT row_to_json(t)->>'e' FROM t WHERE id = 1", ["0", "1"]),
            ("SELECT json_agg(e) FROM t WHERE id = 1", ["[0]", "[1]"]),
            ("SELECT e || 'x' FROM t WHERE id = 1", ["0x", "1x"]),
            ("SELECT quote_literal(e) FROM t WHERE id = 1", ["'0'", "'1'"]),
        ],
    );
}

/// Sorting calls functions of operator classes.
#[test]
fn what_compares_values_is_seen() {
    assert_hidden_reads_are_fresh(
        r#"CREATE TYPE r AS (n int);
        CREATE TABLE t (id int PRIMARY KEY, r r); INSERT INTO t VALUES (1, ROW(1)), (2, ROW(2));
        CREATE FUNCTION compare(a r, b r) RETURNS int LANGUAGE plpgsql STABLE SET search_path = hidden AS
            $$ BEGIN RETURN (a.n - b.n) * (SELECT 1 - 2 * v FROM cfg WHERE id = 1); END $$;
        CREATE FUNCTION less(a r, b r) RETURNS bool LANGUAGE sql AS 'SELECT hidden.compare(a, b) < 0';
        CREATE FUNCTION equal(a r, b r) RETURNS bool LANGUAGE sql AS 'SELECT hidden.compare(a, b) = 0';
        CREATE FUNCTION more(a r, b r) RETURNS bool LANGUAGE sql AS 'SELECT hidden.compare(a, b) > 0';
        CREATE OPERATOR < (LEFTARG = r, RIGHTARG = r, FUNCTION = less);
        CREATE OPERATOR = (LEFTARG = r, RIGHTARG = r, FUNCTION = equal);
        CREATE OPERATOR > (LEFTARG = r, RIGHTARG = r, FUNCTION = more);
        CREATE OPERATOR CLASS by_cfg DEFAULT FOR TYPE r USING btree AS
            OPERATOR 1 <, OPERATOR 3 =, OPERATOR 5 >, FUNCTION 1 compare(r, r)"#,
        &[
            ("SELECT id FROM t ORDER BY r LIMIT 1", ["1", "2"]),
            ("SELECT array_agg(id ORDER BY r) FROM t", ["{1,2}", "{2,1}"]),
            (
                "SELECT id FROM (SELECT id, rank() OVER (ORDER BY r) AS n FROM t) s WHERE n < 2",
                ["1", "2"],
            ),
        ],
    );
}

/// Objects that hang on something temporary are not at replicas: what they show or hide is read on the primary as long as they
/// are there, in all sessions, and at replicas again when their session has ended, of which no event tells.
#[test]
fn what_hangs_on_something_temporary_is_seen_by_all() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut owner = cluster.connect();
    owner.run(
        "CREATE ROLE reader LOGIN; CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x'), (2, 'y'); \
         ALTER TABLE t ENABLE ROW LEVEL SECURITY; GRANT SELECT ON t TO reader; CREATE POLICY p ON t USING (true)",
    );
    cluster.caught_up();
    let mut reader = cluster.connect_with(&[("user", "reader")]);
    let mut read = |query: &str| {
        let rows = reader.run(query).rows;
        (rows.len(), reader.route().site().to_owned())
    };
    let whole = "SELECT * FROM t";
    let at_replica = |rows: usize| (rows, "replica1".to_owned());
    eventually("a replica answers", || read(whole) == at_replica(2));
    // Nothing in its text says so but the collation, which code may use.
    owner.run(
        "CREATE COLLATION pg_temp.own FROM \"C\"; \
         CREATE POLICY hides ON t AS RESTRICTIVE USING (v COLLATE pg_temp.own = 'x')",
    );
    for _ in 0..50 {
        assert_eq!(read(whole).0, 1, "a policy that replicas don't have");
    }
    owner.run(
        "CREATE VIEW v AS SELECT v COLLATE pg_temp.own AS v FROM t; GRANT SELECT ON v TO reader; \
         CREATE FUNCTION f(a text DEFAULT 'x' COLLATE pg_temp.own) RETURNS text STABLE LANGUAGE sql AS 'SELECT a'",
    );
    cluster.caught_up();
    for _ in 0..50 {
        assert_eq!((read("SELECT * FROM v").0, read("SELECT f()").0), (2, 1), "others see them");
    }

    drop(owner);
    eventually("the policy is gone", || read(whole) == at_replica(2));
    cluster.assert_verified();
}

/// So are casts, operators and types that hang on something temporary, of which a name in a text needn't tell: while they are
/// there, everything is read on the primary.
#[test]
fn casts_and_types_that_hang_on_something_temporary_are_seen_by_all() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run(
        "CREATE TYPE mood AS ENUM ('a'); CREATE TABLE t (id int PRIMARY KEY, m mood); INSERT INTO t VALUES (1, 'a'); \
         CREATE FUNCTION to_t(mood) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'real' $$; \
         CREATE FUNCTION eq(int, int) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1 = $2'; \
         CREATE SCHEMA behind; CREATE DOMAIN behind.dom AS int",
    );
    cluster.caught_up();
    let mut reader = cluster.connect();
    reader.run("SET search_path = public, behind");
    let mut read = |query: &str| match reader.simple(query) {
        Ok(answers) => answers[0].rows.first().and_then(|row| row[0].clone()).unwrap_or_default(),
        Err(failure) => failure.code().to_owned(),
    };
    // What is created, a query, its answer, and the one when the session has ended.
    let ways = [
        (
            "CREATE FUNCTION pg_temp.to_t(mood) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'own' $$; \
             CREATE CAST (mood AS text) WITH FUNCTION pg_temp.to_t(mood)",
            ["SELECT m::text FROM t", "own", "a"],
        ),
        (
            "CREATE DOMAIN pg_temp.dd AS int CHECK (VALUE < 7); CREATE DOMAIN public.dom AS pg_temp.dd",
            ["SELECT (id + 9)::dom FROM t", "23514", "10"],
        ),
        (
            "CREATE FUNCTION pg_temp.eq(int, int) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true'; \
             CREATE OPERATOR public.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = pg_temp.eq)",
            ["SELECT id FROM t WHERE id === 2", "1", "42883"],
        ),
        (
            "CREATE FUNCTION pg_temp.diff(int, int) RETURNS float8 IMMUTABLE LANGUAGE sql AS 'SELECT 1.0::float8'; \
             CREATE TYPE rng AS RANGE (subtype = int, subtype_diff = pg_temp.diff)",
            ["SELECT 1 + id FROM t", "2", "2"],
        ),
    ];
    for (create, [query, there, gone]) in ways {
        let mut owner = cluster.connect();
        owner.run(create);
        cluster.caught_up();
        for _ in 0..100 {
            assert_eq!(read(query), there, "{create}");
        }
        drop(owner);
        eventually(create, || read(query) == gone);
        let mut other = cluster.connect();
        eventually("replicas are read again", || {
            other.run("SELECT id FROM t");
            other.route().site() == "replica1"
        });
    }
    cluster.assert_verified();
}
