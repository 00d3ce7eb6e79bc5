//! Transaction blocks: what they read before their first write, or have not written, is read at replicas, and nothing of
//! that shows.

use crate::harness::client::Session;
use crate::harness::{self, alone, eventually, ms, shared};
use crate::transparency::Paused;

fn table(name: &str) -> Session {
    let mut session = shared().connect();
    session.run(&format!("DROP TABLE IF EXISTS {name}"));
    session.run(&format!("CREATE TABLE {name} (id int PRIMARY KEY, n int)"));
    session.run(&format!("INSERT INTO {name} SELECT g, 0 FROM generate_series(1, 10) g"));
    shared().caught_up();
    if shared().is_hihooi() {
        eventually("it is read at replicas", || {
            session.number(&format!("SELECT count(*) FROM {name}"));
            session.route().site().starts_with("replica")
        });
    }
    session
}

fn at(session: &mut Session) -> String {
    if !shared().is_hihooi() {
        return String::new();
    }
    let route = session.route();
    format!("{} {}", route.site().trim_end_matches(char::is_numeric), route.reason())
}

#[track_caller]
fn expect_at(session: &mut Session, wanted: &str) {
    if shared().is_hihooi() {
        assert_eq!(at(session), wanted);
    }
}

#[test]
fn reads_in_front_of_the_first_write_run_at_replicas() {
    let _alone = alone();
    let mut session = table("blocks_first");
    session.run("BEGIN");
    for id in 1..5 {
        session.number(&format!("SELECT n FROM blocks_first WHERE id = {id}"));
        expect_at(&mut session, "replica fresh");
    }
    session.run("UPDATE blocks_first SET n = 7 WHERE id = 1");
    expect_at(&mut session, "primary write");
    assert_eq!(session.number("SELECT n FROM blocks_first WHERE id = 1"), 7, "I4");
    expect_at(&mut session, "primary in_write_transaction");
    let mut other = shared().connect();
    assert_eq!(other.number("SELECT n FROM blocks_first WHERE id = 1"), 0);
    session.run("COMMIT");
    assert_eq!(other.number("SELECT n FROM blocks_first WHERE id = 1"), 7);

    // What others commit meanwhile is seen (READ COMMITTED), and nothing of a block that is rolled back.
    session.run("START TRANSACTION READ WRITE, ISOLATION LEVEL READ COMMITTED");
    assert_eq!(session.number("SELECT n FROM blocks_first WHERE id = 2"), 0);
    for n in 1..20 {
        other.run(&format!("UPDATE blocks_first SET n = {n} WHERE id = 2"));
        if n % 2 == 0 {
            continue;
        }
        let mut third = shared().connect();
        third.run("BEGIN");
        assert_eq!(third.number("SELECT n FROM blocks_first WHERE id = 2"), n, "stale (I3)");
        third.run("END");
    }
    assert_eq!(session.number("SELECT n FROM blocks_first WHERE id = 2"), 19, "stale (I3)");
    session.run("DELETE FROM blocks_first");
    session.run("ABORT");
    assert_eq!(session.number("SELECT count(*) FROM blocks_first"), 10);
}

#[test]
fn a_block_that_fails_at_a_replica_has_failed() {
    let _alone = alone();
    let mut session = table("blocks_failed");
    session.run("BEGIN");
    assert_eq!(session.error("SELECT 1 / n FROM blocks_failed WHERE id = 1").code(), "22012");
    assert_eq!(session.error("SELECT n FROM blocks_failed").code(), "25P02");
    assert_eq!(session.error("UPDATE blocks_failed SET n = 1").code(), "25P02");
    assert_eq!(session.error("ROLLBACK TO SAVEPOINT none").code(), "3B001");
    assert_eq!(session.run("COMMIT").command, "ROLLBACK");
    session.run("BEGIN");
    assert_eq!(session.error("SELECT 1 / n FROM blocks_failed WHERE id = 1").code(), "22012");
    assert_eq!(session.run("COMMIT").command, "ROLLBACK");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_failed"), 0);

    session.run("BEGIN");
    session.number("SELECT n FROM blocks_failed WHERE id = 2");
    session.run("SAVEPOINT s");
    session.run("UPDATE blocks_failed SET n = 2 WHERE id = 2");
    assert_eq!(session.error("SELECT 1 / n FROM blocks_failed WHERE id = 3").code(), "22012");
    session.run("ROLLBACK TO SAVEPOINT s");
    session.run("UPDATE blocks_failed SET n = 3 WHERE id = 3");
    session.run("COMMIT");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_failed"), 3);
}

/// Frameworks nest their transactions as savepoints (Django's `atomic`, SQLAlchemy's `begin_nested`).
#[test]
fn savepoints_need_no_server_in_front_of_the_first_write() {
    let _alone = alone();
    let mut session = table("blocks_nested");
    session.run("BEGIN");
    assert_eq!(session.run("SAVEPOINT a").command, "SAVEPOINT");
    session.number("SELECT n FROM blocks_nested WHERE id = 1");
    expect_at(&mut session, "replica fresh");
    session.run("SAVEPOINT \"B \"\" b\"");
    assert_eq!(session.error("SELECT 1 / n FROM blocks_nested WHERE id = 1").code(), "22012");
    assert_eq!(session.run("ROLLBACK TO \"B \"\" b\"").command, "ROLLBACK");
    session.number("SELECT n FROM blocks_nested WHERE id = 1");
    expect_at(&mut session, "replica fresh");
    assert_eq!(session.run("RELEASE \"B \"\" b\"").command, "RELEASE");
    session.run("SAVEPOINT c; UPDATE blocks_nested SET n = 1 WHERE id = 1");
    session.run("SAVEPOINT d");
    session.run("UPDATE blocks_nested SET n = 2 WHERE id = 1");
    session.run("ROLLBACK TO d");
    assert_eq!(session.number("SELECT n FROM blocks_nested WHERE id = 1"), 1);
    session.run("ROLLBACK TO c");
    session.run("UPDATE blocks_nested SET n = n + 5 WHERE id = 2");
    session.run("RELEASE a");
    assert_eq!(session.error("ROLLBACK TO c").code(), "3B001");
    session.run("ROLLBACK");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_nested"), 0);

    // As at a server: of two of one name the newer counts, and what comes behind goes with it.
    session.run("BEGIN");
    for savepoint in ["a", "b", "a", "c"] {
        session.run(&format!("SAVEPOINT {savepoint}"));
    }
    session.run("RELEASE A");
    session.run("UPDATE blocks_nested SET n = 3 WHERE id = 3");
    assert_eq!(session.error("RELEASE c").code(), "3B001");
    session.run("ROLLBACK TO b");
    session.run("UPDATE blocks_nested SET n = 4 WHERE id = 3");
    session.run("ROLLBACK TO SAVEPOINT a");
    session.run("COMMIT");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_nested"), 0);
    session.run("BEGIN");
    for n in 0..100 {
        session.run(&format!("SAVEPOINT s{n}"));
    }
    session.run("RELEASE s0");
    session.run("COMMIT");
}

#[test]
fn what_needs_the_transaction_itself_begins_it() {
    let _alone = alone();
    let mut session = table("blocks_needs");
    session.run("CREATE OR REPLACE FUNCTION blocks_began() RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT now()'");
    session.run("CREATE OR REPLACE VIEW blocks_clock AS SELECT id, current_timestamp AS at FROM blocks_needs");
    shared().caught_up();
    // One start, whichever way it is asked for.
    let starts = [
        "SELECT now()::text",
        "SELECT blocks_began()::text",
        "SELECT at::text FROM blocks_clock WHERE id = 1",
        "SELECT 'now'::timestamptz::text",
        "SELECT current_timestamp::text FROM blocks_needs WHERE id = 1",
    ];
    for first in starts {
        session.run("BEGIN");
        session.number("SELECT n FROM blocks_needs WHERE id = 1");
        let began = session.value(first);
        std::thread::sleep(ms(2));
        for again in starts {
            assert_eq!(session.value(again), began, "{first}, then {again}");
        }
        session.run("COMMIT");
    }
    session.run("BEGIN");
    session.number("SELECT n FROM blocks_needs WHERE id = 1");
    assert_eq!(session.error("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").code(), "25001");
    session.run("ROLLBACK");
    session.run("BEGIN");
    session.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(session.value("SHOW transaction_isolation"), "serializable");
    session.run("COMMIT");
    session.run("BEGIN READ ONLY");
    session.number("SELECT n FROM blocks_needs WHERE id = 1");
    assert_eq!(session.error("UPDATE blocks_needs SET n = 1").code(), "25006");
    session.run("ROLLBACK");
    for text in ["VACUUM blocks_needs", "CREATE DATABASE blocks_never", "DISCARD ALL"] {
        session.run("BEGIN");
        session.number("SELECT n FROM blocks_needs WHERE id = 1");
        assert_eq!(session.error(text).code(), "25001", "{text}");
        session.run("ROLLBACK");
    }
    session.run("BEGIN");
    session.run("DECLARE c CURSOR FOR SELECT id FROM blocks_needs ORDER BY id");
    session.number("SELECT n FROM blocks_needs WHERE id = 1");
    assert_eq!(session.number("FETCH 1 FROM c"), 1);
    session.run("COMMIT");
}

/// One of each kind in docs/blocks.md's table: it runs on the primary, and so does what depends on it.
#[test]
fn what_is_not_known_to_be_the_same_elsewhere_begins_the_block() {
    let _alone = alone();
    let mut session = table("blocks_begins");
    let read = "SELECT n FROM blocks_begins WHERE id = 1";
    for statement in [
        "SELECT current_date",
        "SELECT age(timestamp '2024-01-01')",
        "SELECT 'today'::date",
        "SELECT current_schema()",
        "SELECT pg_current_xact_id()",
        "SELECT pg_export_snapshot()",
        "SELECT pg_try_advisory_xact_lock(4712)",
        "LOCK TABLE blocks_begins IN SHARE MODE",
        "LISTEN blocks_begins",
        "SET CONSTRAINTS ALL DEFERRED",
        "SET LOCAL ROLE NONE",
        "SET LOCAL statement_timeout = '100ms'",
        "SET LOCAL idle_in_transaction_session_timeout = '60s'",
        "SET LOCAL session_replication_role = origin",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SHOW work_mem",
        "RESET ALL",
        "CREATE TEMPORARY TABLE blocks_temporary (id int)",
        "DECLARE c CURSOR FOR SELECT 1",
        "PREPARE blocks_prepared AS SELECT 1",
        "COMMIT AND CHAIN",
        "ROLLBACK AND CHAIN",
        "SAVEPOINT \"ä\"",
        "SELECT n FROM blocks_begins WHERE id = 1 FOR UPDATE",
    ] {
        let mut session = shared().connect();
        session.run("BEGIN");
        session.number(read);
        expect_at(&mut session, "replica fresh");
        session.run(statement);
        if shared().is_hihooi() {
            assert_eq!(session.route().site(), "primary", "{statement}");
        }
        session.run("ROLLBACK");
        session.run(read);
    }
    session.run("BEGIN");
    session.number(read);
    for n in 0..64 {
        session.run(&format!("SAVEPOINT s{n}"));
        session.number(read);
        expect_at(&mut session, "replica fresh");
    }
    session.run("SAVEPOINT s64");
    expect_at(&mut session, "primary unsafe");
    for n in (0..=64).rev() {
        session.run(&format!("ROLLBACK TO s{n}"));
    }
    session.run("COMMIT");
    // What changes nothing in a block.
    session.run("BEGIN");
    session.number(read);
    session.run("");
    session.number(read);
    expect_at(&mut session, "replica fresh");
    session.run("ROLLBACK");
}

#[test]
fn settings_in_a_block_are_the_replicas_too() {
    let _alone = alone();
    let mut session = table("blocks_settings");
    session.run("DROP ROLE IF EXISTS blocks_tenant");
    session.run(
        "CREATE ROLE blocks_tenant LOGIN; GRANT SELECT, UPDATE ON blocks_settings TO blocks_tenant",
    );
    session.run(
        "ALTER TABLE blocks_settings ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY own ON blocks_settings TO blocks_tenant USING (id = current_setting('blocks.tenant')::int)",
    );
    shared().caught_up();
    let mut tenant = shared().connect_with(&[("user", "blocks_tenant")]);
    tenant.run("SET blocks.tenant = '1'");
    eventually("it is read at replicas", || {
        tenant.number("SELECT count(*) FROM blocks_settings");
        !shared().is_hihooi() || tenant.route().site().starts_with("replica")
    });
    tenant.run("RESET blocks.tenant");
    let read = "SELECT coalesce(sum(id), 0) FROM blocks_settings";
    for (id, ends) in [(3, "COMMIT"), (4, "ROLLBACK")] {
        tenant.run("BEGIN");
        tenant.run(&format!("SET LOCAL blocks.tenant = '{id}'"));
        assert_eq!(tenant.number(read), id);
        expect_at(&mut tenant, "replica fresh");
        tenant.run("SAVEPOINT a");
        tenant.run("SET LOCAL blocks.tenant = '5'");
        assert_eq!(tenant.number(read), 5);
        expect_at(&mut tenant, "replica fresh");
        tenant.run("ROLLBACK TO a");
        assert_eq!(tenant.number(read), id);
        expect_at(&mut tenant, "replica fresh");
        // It begins at the primary with the same.
        tenant.run("UPDATE blocks_settings SET n = n + 1");
        assert_eq!(tenant.number("SELECT current_setting('blocks.tenant')"), id);
        tenant.run(ends);
        assert_eq!(tenant.error(read).code(), "22P02", "the tenant is nobody's again");
        shared().caught_up();
    }
    let changed = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM blocks_settings WHERE n > 0";
    assert_eq!(session.value(changed), "3");
    for (text, name, value) in [
        ("SET LOCAL work_mem = '77MB'", "work_mem", "77MB"),
        ("SET SESSION work_mem TO '78MB'", "work_mem", "78MB"),
        ("SET LOCAL enable_seqscan = off", "enable_seqscan", "off"),
        ("SET LOCAL statement_timeout = '50s'", "statement_timeout", "50s"),
        ("SET LOCAL TIME ZONE 'Asia/Tokyo'", "TimeZone", "Asia/Tokyo"),
        ("SET LOCAL search_path = pg_catalog, public", "search_path", "pg_catalog, public"),
    ] {
        let before = session.value(&format!("SHOW {name}"));
        session.run("BEGIN");
        session.run(text);
        session.number("SELECT n FROM blocks_settings WHERE id = 1");
        expect_at(&mut session, "replica fresh");
        assert_eq!(session.value(&format!("SHOW {name}")), value, "{text}");
        session.run("ROLLBACK");
        assert_eq!(session.value(&format!("SHOW {name}")), before, "{text}");
    }
    assert_eq!(session.error("SELECT nosuch").code(), "42703");
    session.run("BEGIN");
    assert_eq!(session.error("SET LOCAL work_mem = 'much'").code(), "22023");
    assert_eq!(session.error("SELECT 1").code(), "25P02");
    session.run("ROLLBACK");
    session.run("DROP TABLE blocks_settings; DROP ROLE blocks_tenant");
}

/// Behind the block's end, names mean what they did before.
#[test]
fn what_comes_behind_a_block_with_a_path_of_its_own_is_known_as_what_it_is() {
    let _alone = alone();
    let mut session = table("blocks_behind");
    session.run("DROP SCHEMA IF EXISTS blocks_path CASCADE; CREATE SCHEMA blocks_path");
    session.run("CREATE TABLE blocks_path.blocks_behind (id int PRIMARY KEY, n int)");
    shared().caught_up();
    // Replicas that stand show what they lack of another table than it is taken for.
    let paused = Paused::all();
    for n in 1..=6 {
        session.run("BEGIN");
        session.run("SET LOCAL search_path = blocks_path");
        assert_eq!(session.number("SELECT count(*) FROM blocks_behind"), 0);
        let end = if n % 2 == 0 { "COMMIT" } else { "ROLLBACK" };
        let write = format!("UPDATE blocks_behind SET n = {n} WHERE id = 1");
        match n % 3 {
            0 => drop(session.run(&format!("{end}; {write}"))),
            1 => drop(session.pipeline(&[end, &write]).expect("no error")),
            _ => {
                let read = "SELECT n FROM blocks_behind WHERE id = 1";
                let answers = session.pipeline(&[end, read]).expect("no error");
                assert_eq!(answers[1].rows, [[Some((n - 1).to_string())]], "I3");
                session.run(&write);
            }
        }
        assert_eq!(session.number("SELECT n FROM blocks_behind WHERE id = 1"), n, "I3");
    }
    drop(paused);
    session.run("DROP SCHEMA blocks_path CASCADE");
}

/// Drivers that send BEGIN with a block's first write, as pgjdbc does, read beside it as others do.
#[test]
fn a_block_that_begins_with_its_first_write_reads_at_replicas() {
    let _alone = alone();
    let mut session = table("blocks_one");
    let write = "UPDATE blocks_one SET n = n + 1 WHERE id = 1";
    session.pipeline(&["BEGIN", write]).expect("no error");
    assert_eq!(session.number("SELECT n FROM blocks_one WHERE id = 2"), 0);
    expect_at(&mut session, "replica fresh");
    assert_eq!(session.number("SELECT n FROM blocks_one WHERE id = 1"), 1);
    expect_at(&mut session, "primary in_write_transaction");
    session.run("COMMIT");
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    session.pipeline(&[begin, write]).expect("no error");
    session.number("SELECT n FROM blocks_one WHERE id = 2");
    expect_at(&mut session, "primary in_write_transaction");
    session.run("COMMIT");
}

#[test]
fn levels_above_read_committed_and_statement_routing_off_are_the_primarys() {
    let _alone = alone();
    if !shared().is_hihooi() {
        return;
    }
    let mut session = table("blocks_levels");
    let read = |session: &mut Session, begin: &str| {
        session.run(begin);
        session.number("SELECT n FROM blocks_levels WHERE id = 1");
        let at = at(session);
        session.run("COMMIT");
        at
    };
    assert_eq!(read(&mut session, "BEGIN"), "replica fresh");
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        assert_eq!(read(&mut session, &begin), "primary explicit_block");
        session.run(&format!("SET default_transaction_isolation = '{level}'"));
        assert_eq!(read(&mut session, "BEGIN"), "primary explicit_block", "by default {level}");
        assert_eq!(read(&mut session, "BEGIN ISOLATION LEVEL READ UNCOMMITTED"), "replica fresh");
        session.run("RESET default_transaction_isolation");
    }
    assert_eq!(read(&mut session, "/* hihooi: primary */ BEGIN"), "primary explicit_block");
    session.run("SET hihooi.statement_routing = off");
    assert_eq!(session.value("SHOW hihooi.statement_routing"), "off");
    assert_eq!(read(&mut session, "BEGIN"), "primary explicit_block");
    session.run("RESET hihooi.statement_routing");
    assert_eq!(session.value("SHOW hihooi.statement_routing"), "on");
    assert_eq!(read(&mut session, "BEGIN"), "replica fresh");
    // Until the end of the block.
    session.run("BEGIN");
    session.run("SET LOCAL hihooi.consistency = 'weak-si'");
    assert_eq!(session.value("SHOW hihooi.consistency"), "weak-si");
    session.number("SELECT n FROM blocks_levels WHERE id = 1");
    session.run("COMMIT");
    assert_eq!(session.value("SHOW hihooi.consistency"), "gssi");
    session.run("CREATE TEMP TABLE blocks_temp (a int)");
    assert_eq!(read(&mut session, "BEGIN"), "primary explicit_block");
}

/// Modes that a role has by default hold in a block that hihooi has begun, wherever its statements run.
#[test]
fn default_modes_of_a_role_hold_in_a_block_that_begins_late() {
    let _alone = alone();
    let mut owner = table("blocks_modes");
    owner.run("DROP ROLE IF EXISTS blocks_reader");
    owner.run("CREATE ROLE blocks_reader LOGIN");
    owner.run("GRANT ALL ON blocks_modes TO blocks_reader");
    owner.run("ALTER ROLE blocks_reader SET default_transaction_read_only = on");
    owner.run("ALTER ROLE blocks_reader SET default_transaction_deferrable = on");
    shared().settled();
    let mut session = shared().connect_with(&[("user", "blocks_reader")]);
    let begun = |session: &mut Session, begin: &str| {
        session.run(begin);
        session.number("SELECT n FROM blocks_modes WHERE id = 1");
        expect_at(session, "replica fresh");
    };
    begun(&mut session, "BEGIN");
    let error = session.error("INSERT INTO blocks_modes VALUES (11, 0)");
    assert_eq!((error.code(), session.status), ("25006", 'E'));
    session.run("ROLLBACK");
    begun(&mut session, "BEGIN");
    assert_eq!(session.value("SHOW transaction_read_only"), "on");
    assert_eq!(session.value("SHOW transaction_deferrable"), "on");
    session.run("COMMIT");
    begun(&mut session, "START TRANSACTION READ WRITE, NOT DEFERRABLE");
    session.run("INSERT INTO blocks_modes VALUES (11, 0)");
    assert_eq!(session.value("SHOW transaction_read_only"), "off");
    assert_eq!(session.value("SHOW transaction_deferrable"), "off");
    session.run("COMMIT");
    assert_eq!(session.number("SELECT count(*) FROM blocks_modes"), 11);
    owner.run("DROP OWNED BY blocks_reader; DROP ROLE blocks_reader");
}

/// A transaction that has written waits for a replica as any other read does.
#[test]
fn a_read_beside_a_transaction_waits_for_a_replica() {
    let _alone = alone();
    if !shared().is_hihooi() {
        return;
    }
    let (mut session, mut other) = (table("blocks_waits"), table("blocks_late"));
    session.run("SET hihooi.wait_ms = 60000");
    session.run("SET hihooi.consistency = 'rsi-pc'");
    session.run("BEGIN");
    session.run("UPDATE blocks_waits SET n = 7 WHERE id = 1");
    let holders = shared().replicas().into_iter().map(|replica| {
        let mut holder = shared().repair(&replica);
        holder.run("BEGIN");
        holder.run("LOCK TABLE blocks_late IN SHARE MODE");
        holder
    });
    let holders: Vec<Session> = holders.collect();
    other.run("UPDATE blocks_late SET n = 3 WHERE id = 2");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(ms(300));
            drop(holders);
        });
        assert_eq!(session.number("SELECT n FROM blocks_late WHERE id = 2"), 3, "stale (I3)");
    });
    assert_eq!(at(&mut session), "replica waited");
    assert_eq!(session.number("SELECT n FROM blocks_waits WHERE id = 1"), 7, "I4");
    session.run("COMMIT");
}

/// A block of reads that never writes costs no round trip to the primary: it runs though the primary has no
/// connection left.
#[test]
fn a_block_that_only_reads_needs_no_connection_to_the_primary() {
    if !shared().is_hihooi() {
        return;
    }
    let _alone = alone();
    let cluster =
        harness::Cluster::start(harness::Options::replicas(1).env("HIHOOI_POOL_SIZE", "1"));
    let mut writer = cluster.connect();
    writer.run("CREATE TABLE blocks_only (id int PRIMARY KEY); INSERT INTO blocks_only VALUES (1)");
    cluster.caught_up();
    let mut reader = cluster.connect();
    eventually("it is read at the replica", || {
        reader.run("SELECT * FROM blocks_only");
        reader.route().site() == "replica1"
    });
    writer.run("BEGIN");
    writer.run("INSERT INTO blocks_only VALUES (2)");
    reader.run("BEGIN");
    assert_eq!(reader.number("SELECT id FROM blocks_only WHERE id = 1"), 1);
    assert_eq!(reader.route().site(), "replica1");
    reader.run("COMMIT");
    writer.run("COMMIT");
}

/// Statement-level routing (Hihooi section 5.2, Algorithm 1).
#[test]
fn what_a_transaction_has_not_written_it_reads_at_replicas() {
    let _alone = alone();
    let mut session = table("blocks_written");
    let mut other = table("blocks_other");
    session.run("BEGIN");
    session.run("UPDATE blocks_written SET n = 7 WHERE id = 1");
    for n in 1..10 {
        other.run(&format!("UPDATE blocks_other SET n = {n} WHERE id = 2"));
        assert_eq!(session.number("SELECT n FROM blocks_other WHERE id = 2"), n, "stale (I3)");
        assert_eq!(session.number("SELECT n FROM blocks_written WHERE id = 1"), 7, "I4");
        expect_at(&mut session, "primary in_write_transaction");
    }
    shared().caught_up();
    assert_eq!(session.number("SELECT sum(n) FROM blocks_other"), 9);
    expect_at(&mut session, "replica fresh");
    assert_eq!(session.number("SELECT n FROM blocks_written WHERE id = 2"), 0);
    expect_at(&mut session, "replica fresh");
    let rows = session.extended("SELECT id FROM blocks_other WHERE n = $1", &["9"]);
    assert_eq!(rows.expect("a row").rows, [[Some("2".to_owned())]]);
    expect_at(&mut session, "replica fresh");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_written"), 7, "I4");
    expect_at(&mut session, "primary in_write_transaction");
    session.run("INSERT INTO blocks_other VALUES (11, 1)");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_other"), 10, "I4");
    assert_eq!(session.number("SELECT n FROM blocks_other WHERE id = 11"), 1, "I4");
    session.run("SAVEPOINT a");
    session.run("DELETE FROM blocks_written");
    assert_eq!(session.number("SELECT count(*) FROM blocks_written WHERE id = 2"), 0, "I4");
    session.run("ROLLBACK TO a");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_written"), 7, "I4");
    session.run("COMMIT");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_written"), 7);

    session.run("SET hihooi.statement_routing = off");
    session.run("BEGIN");
    session.run("UPDATE blocks_written SET n = 7 WHERE id = 1");
    session.number("SELECT sum(n) FROM blocks_other");
    expect_at(&mut session, "primary in_write_transaction");
    session.run("ROLLBACK");
}

#[test]
fn i4_what_a_write_sets_off_is_its_transactions_too() {
    let _alone = alone();
    let mut session = table("blocks_parent");
    for statement in [
        "DROP TABLE IF EXISTS blocks_child, blocks_audit, blocks_late CASCADE",
        "CREATE TABLE blocks_child (id int PRIMARY KEY, parent int REFERENCES blocks_parent \
         ON UPDATE CASCADE ON DELETE CASCADE)",
        "INSERT INTO blocks_child SELECT g, g FROM generate_series(1, 10) g",
        "CREATE TABLE blocks_audit (id int PRIMARY KEY)",
        "CREATE TABLE blocks_late (id int PRIMARY KEY)",
        "CREATE OR REPLACE FUNCTION blocks_audited() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN INSERT INTO blocks_audit VALUES (new.n); RETURN new; END$$",
        "CREATE OR REPLACE FUNCTION blocks_lated() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN INSERT INTO blocks_late VALUES (new.n); RETURN new; END$$",
        "CREATE TRIGGER audit AFTER UPDATE ON blocks_parent FOR EACH ROW \
         EXECUTE FUNCTION blocks_audited()",
        "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON blocks_parent DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION blocks_lated()",
        "CREATE OR REPLACE VIEW blocks_view AS SELECT p.id, p.n, c.id AS child \
         FROM blocks_parent p JOIN blocks_child c ON c.parent = p.id",
    ] {
        session.run(statement);
    }
    shared().caught_up();
    if shared().is_hihooi() {
        eventually("the tables are known", || {
            session.number("SELECT count(*) FROM blocks_view, blocks_audit, blocks_late");
            session.route().site().starts_with("replica")
        });
    }
    session.run("BEGIN");
    session.run("UPDATE blocks_parent SET id = 100, n = 5 WHERE id = 1");
    assert_eq!(session.number("SELECT parent FROM blocks_child WHERE id = 1"), 100);
    assert_eq!(session.number("SELECT count(*) FROM blocks_audit WHERE id = 5"), 1);
    assert_eq!(session.number("SELECT n FROM blocks_view WHERE child = 1"), 5);
    assert_eq!(session.number("SELECT count(*) FROM blocks_late"), 0);
    session.run("SET CONSTRAINTS ALL IMMEDIATE");
    assert_eq!(session.number("SELECT count(*) FROM blocks_late WHERE id = 5"), 1);
    session.run("DELETE FROM blocks_parent WHERE id = 2");
    assert_eq!(session.number("SELECT count(*) FROM blocks_child WHERE id = 2"), 0);
    session.run("ROLLBACK");
    assert_eq!(session.number("SELECT count(*) FROM blocks_child WHERE id = 2"), 1);
}

#[test]
fn a_read_beside_a_transaction_that_fails_has_it_fail() {
    let _alone = alone();
    table("blocks_besides");
    let mut session = table("blocks_beside");
    for is_extended in [false, true] {
        let fails = |session: &mut Session| {
            let text = "SELECT 1 / n FROM blocks_beside WHERE id = 1";
            let failure = match is_extended {
                true => session.extended(text, &[]).expect_err("an error"),
                false => session.simple(text).expect_err("an error"),
            };
            assert_eq!(failure.code(), "22012");
        };
        session.run("BEGIN");
        session.run("DELETE FROM blocks_besides WHERE id > 1");
        session.number("SELECT n FROM blocks_beside WHERE id = 1");
        expect_at(&mut session, "replica fresh");
        session.run("SAVEPOINT a");
        fails(&mut session);
        assert_eq!(session.error("SELECT 1").code(), "25P02");
        session.run("ROLLBACK TO a");
        assert_eq!(session.number("SELECT count(*) FROM blocks_besides"), 1, "I4");
        assert_eq!(session.number("SELECT n FROM blocks_beside WHERE id = 1"), 0);
        fails(&mut session);
        assert_eq!(session.error("DELETE FROM blocks_besides").code(), "25P02");
        assert_eq!(session.run("COMMIT").command, "ROLLBACK");
        assert_eq!(session.number("SELECT count(*) FROM blocks_besides"), 10);
    }
}

#[test]
fn what_only_the_transactions_connection_has_is_read_there() {
    let _alone = alone();
    let mut session = table("blocks_own");
    let read = "SELECT n FROM blocks_own WHERE id = 2";
    for (statement, is_seen) in [
        ("SET LOCAL search_path = pg_catalog, public", "SHOW search_path"),
        ("SET work_mem = '1MB'", "SHOW work_mem"),
        ("CREATE TEMPORARY TABLE own_temporary (id int)", "SELECT count(*) FROM own_temporary"),
        ("CREATE TEMPORARY TABLE blocks_own (id int, n int)", "SELECT count(*) FROM blocks_own"),
        (
            "ALTER TABLE blocks_own ADD COLUMN IF NOT EXISTS m int DEFAULT 3",
            "SELECT m FROM blocks_own",
        ),
        ("DO $$BEGIN PERFORM set_config('work_mem', '2MB', true); END$$", "SHOW work_mem"),
        ("SELECT set_config('work_mem', '2MB', true)", "SHOW work_mem"),
        ("SET CONSTRAINTS ALL DEFERRED", "SELECT 1"),
        ("LOCK TABLE blocks_own", "SELECT 1"),
    ] {
        session.run("BEGIN");
        session.run("UPDATE blocks_own SET n = 0 WHERE id = 1");
        session.run(statement);
        session.run(is_seen);
        session.run(read);
        expect_at(&mut session, "primary in_write_transaction");
        session.run("ROLLBACK");
    }
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        for begin in [
            format!("BEGIN ISOLATION LEVEL {isolation}"),
            format!("BEGIN; SET TRANSACTION ISOLATION LEVEL {isolation}"),
            format!("START TRANSACTION;SET LOCAL transaction_isolation = '{isolation}'"),
        ] {
            for statement in begin.split_inclusive(';') {
                session.run(statement);
            }
            if begin.starts_with("BEGIN ") {
                // It begins behind another one, in one query.
                session.run("COMMIT");
                session.run("BEGIN");
                session.run("UPDATE blocks_own SET n = 0 WHERE id = 1");
                session.run(&format!("COMMIT; {begin}"));
            }
            assert_eq!(session.number(read), 0);
            let mut other = shared().connect();
            other.run("UPDATE blocks_own SET n = 1 WHERE id = 2");
            assert_eq!(session.number(read), 0, "{begin}: another snapshot");
            session.run("COMMIT");
            other.run("UPDATE blocks_own SET n = 0 WHERE id = 2");
        }
    }
}

/// Waits until a read of this table sleeps.
fn until_asleep(table: &str) {
    shared().until_active(&format!("wait_event = 'PgSleep' AND query LIKE '%{table} %'"));
}

/// The connection with the transaction is not used while a replica is: what happens to it shows afterwards.
#[test]
fn a_transaction_that_is_lost_meanwhile_is_lost() {
    let _alone = alone();
    let mut session = table("blocks_lost");
    let mut other = table("blocks_slow");
    session.run("BEGIN");
    session.run("UPDATE blocks_lost SET n = 1 WHERE id = 1");
    let pid = session.number("SELECT pg_backend_pid()");
    let reader = std::thread::spawn(move || {
        let read = session.simple("SELECT count(*), pg_sleep(10) FROM blocks_slow WHERE id = 1");
        (session, read)
    });
    until_asleep("blocks_slow");
    other.run(&format!("SELECT pg_terminate_backend({pid})"));
    let (mut session, read) = reader.join().expect("a reader");
    if shared().is_hihooi() {
        read.expect("the read was elsewhere");
        assert!(session.simple("UPDATE blocks_lost SET n = 2 WHERE id = 2").is_err());
        assert!(session.simple("COMMIT").is_err());
    } else {
        read.expect_err("it is gone");
    }
    assert_eq!(other.number("SELECT sum(n) FROM blocks_lost"), 0);
}

#[test]
fn a_cancelled_read_beside_a_transaction_has_it_fail() {
    let _alone = alone();
    let mut session = table("blocks_cancelled");
    table("blocks_slower");
    session.run("BEGIN");
    session.run("UPDATE blocks_cancelled SET n = 1 WHERE id = 1");
    let (port, key) = (shared().port, session.key.clone());
    let canceller = std::thread::spawn(move || {
        until_asleep("blocks_slower");
        harness::client::cancel(port, &key);
    });
    let read = "SELECT count(*), pg_sleep(60) FROM blocks_slower WHERE id = 1";
    assert_eq!(session.error(read).code(), "57014");
    canceller.join().expect("a canceller");
    assert_eq!(session.error("SELECT 1").code(), "25P02");
    assert_eq!(session.run("COMMIT").command, "ROLLBACK");
    assert_eq!(session.number("SELECT sum(n) FROM blocks_cancelled"), 0);
}
