//! I3, I4: a read that starts after a commit was acknowledged in another session sees it, while
//! replicas do serve reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::harness::client::Session;
use crate::harness::{Cluster, alone, eventually, ms, shared};

/// A table with one counter row a writer.
fn counters(table: &str, writers: usize) {
    let mut session = shared().connect();
    session.run(&format!("DROP TABLE IF EXISTS {table}"));
    session.run(&format!("CREATE TABLE {table} (id int PRIMARY KEY, n bigint NOT NULL)"));
    let last = writers.saturating_sub(1);
    session.run(&format!("INSERT INTO {table} SELECT g, 0 FROM generate_series(0, {last}) g"));
    shared().caught_up();
}

/// The ways to write a counter.
#[derive(Clone, Copy, Debug)]
enum Way {
    Simple,
    Extended,
    Block,
    Several,
}

fn increment(session: &mut Session, table: &str, id: usize, way: Way) {
    let text = format!("UPDATE {table} SET n = n + 1 WHERE id = {id}");
    match way {
        Way::Simple => {
            session.run(&text);
        }
        Way::Extended => {
            session.extended(&text, &[]).expect("written");
        }
        Way::Block => {
            session.run("BEGIN");
            session.run(&text);
            session.run("COMMIT");
        }
        Way::Several => {
            session.run(&format!("SELECT 1; {text}; SELECT 2"));
        }
    }
}

const WRITERS: usize = 4;

/// Writers publish what was acknowledged; readers on other sessions take it first, then read:
/// they must never see less (I3). The table has a row for each writer. They go on until there were
/// that many reads, and until what is asked beside them is so.
fn writers_and_readers(
    table: &'static str,
    set_up: &'static str,
    enough: i64,
    mut and: impl FnMut() -> bool,
) {
    const READERS: usize = 4;
    let acknowledged: Arc<Vec<AtomicI64>> =
        Arc::new((0..WRITERS).map(|_| AtomicI64::new(0)).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicI64::new(0));
    let ways = [Way::Simple, Way::Extended, Way::Block, Way::Several];
    let writer = |id: usize| {
        let (acknowledged, stop) = (acknowledged.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut session = shared().connect();
            session.run(set_up);
            while !stop.load(Ordering::SeqCst) {
                increment(&mut session, table, id, ways[id % ways.len()]);
                acknowledged[id].fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(ms(1));
            }
        })
    };
    let reader = |number: usize| {
        let (acknowledged, stop, reads) = (acknowledged.clone(), stop.clone(), reads.clone());
        std::thread::spawn(move || {
            let mut session = shared().connect();
            let mut round = number;
            while !stop.load(Ordering::SeqCst) {
                round += 1;
                let id = round % WRITERS;
                let expected = acknowledged[id].load(Ordering::SeqCst);
                let got = read(&mut session, table, id, round);
                assert!(got >= expected, "stale: {got} < {expected}: {}", session.route().text);
                reads.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let threads: Vec<_> = (0..WRITERS).map(writer).chain((0..READERS).map(reader)).collect();
    eventually("enough was read", || reads.load(Ordering::SeqCst) >= enough && and());
    stop.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("I3"));
}

/// Reads a counter in one of several ways.
fn read(session: &mut Session, table: &str, id: usize, round: usize) -> i64 {
    let text = match round % 3 {
        // One that takes longer than replicas lag, hence waits for one rather than go to the
        // primary at once.
        _ if round.is_multiple_of(10) => {
            format!("SELECT max(n) FROM {table}, pg_sleep(0.1) WHERE id = {id}")
        }
        0 => format!("SELECT n FROM {table} WHERE id = {id}"),
        1 => format!("SELECT max(n) FROM {table} WHERE id IN ({id})"),
        _ => format!("WITH w AS (SELECT * FROM {table}) SELECT n FROM w WHERE id = {id}"),
    };
    if round.is_multiple_of(2) {
        session.number(&text)
    } else {
        let answer = session.extended(&text, &[]).expect("read");
        answer.rows[0][0].as_deref().and_then(|n| n.parse().ok()).expect("a number")
    }
}

#[test]
fn reads_see_what_was_acknowledged_under_load() {
    let _alone = alone();
    counters("fresh_load", WRITERS);
    let before = shared().replica_reads();
    // Replicas serve some of them: else nothing is tested.
    let and = || !shared().is_hihooi() || shared().replica_reads() > before;
    writers_and_readers("fresh_load", "SELECT 1", 2_000, and);
    shared().assert_equal("SELECT * FROM fresh_load ORDER BY id");
}

#[test]
fn reads_see_commits_with_synchronous_commit_off() {
    let _alone = alone();
    counters("fresh_async", WRITERS);
    writers_and_readers("fresh_async", "SET synchronous_commit = off", 1_000, || true);
    let mut admin = shared().connect();
    admin.run("CREATE ROLE hasty LOGIN SUPERUSER");
    admin.run("ALTER ROLE hasty SET synchronous_commit = off");
    // The setting comes with the role, so no SET tells of it.
    counters("fresh_role", 1);
    let mut writer = shared().connect_with(&[("user", "hasty")]);
    assert_eq!(writer.value("SHOW synchronous_commit"), "off");
    let mut reader = shared().connect();
    for n in 1..=100 {
        increment(&mut writer, "fresh_role", 0, if n % 2 == 0 { Way::Simple } else { Way::Block });
        let got = reader.number("SELECT n FROM fresh_role WHERE id = 0");
        assert_eq!(got, n, "stale (I3): {}", reader.route().text);
    }
}

#[test]
fn reads_stay_fresh_with_one_and_with_all_replicas_paused() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    counters("fresh_paused", WRITERS);
    for paused in [vec!["replica1"], vec!["replica1", "replica2"]] {
        paused.iter().for_each(|site| cluster.command(&format!("PAUSE REPLICA {site}")));
        for site in &paused {
            assert_eq!(cluster.state(site), "paused");
        }
        let _resume = Resume(cluster, paused.clone());
        cluster.connect().run("UPDATE fresh_paused SET n = 0");
        writers_and_readers("fresh_paused", "SELECT 1", 500, || true);
        let mut session = cluster.connect();
        session.run("UPDATE fresh_paused SET n = n + 1");
        for _ in 0..20 {
            session.number("SELECT sum(n) FROM fresh_paused");
            assert!(!paused.contains(&session.route().site()), "{}", session.route().text);
        }
        if paused.len() == cluster.replicas().len() {
            // A read that costs more than the lag would wait for a replica, if any came nearer.
            session.run("SET hihooi.wait_ms = 600000");
            session.number("SELECT sum(n) FROM fresh_paused, pg_sleep(0.1)");
            assert_eq!(session.route().site(), "primary", "{}", session.route().text);
        }
    }
    cluster.caught_up();
    cluster.assert_equal("SELECT * FROM fresh_paused ORDER BY id");
}

struct Resume<'a>(&'a Cluster, Vec<&'a str>);

impl Drop for Resume<'_> {
    fn drop(&mut self) {
        self.1.iter().for_each(|site| self.0.command(&format!("RESUME REPLICA {site}")));
    }
}

/// Pauses all replicas until it is dropped.
fn paused(cluster: &Cluster) -> Option<Resume<'_>> {
    let sites = cluster.is_hihooi().then_some(vec!["replica1", "replica2"])?;
    sites.iter().for_each(|site| cluster.command(&format!("PAUSE REPLICA {site}")));
    Some(Resume(cluster, sites))
}

/// A paused replica serves what nothing touched since (and only that).
#[test]
fn a_paused_replica_serves_untouched_tables() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    counters("touched", 2);
    counters("untouched", 2);
    let _resume = paused(cluster);
    let mut session = cluster.connect();
    increment(&mut session, "touched", 0, Way::Simple);
    eventually("the tables are known", || {
        session.number("SELECT sum(n) FROM untouched");
        session.route().site().starts_with("replica")
    });
    session.number("SELECT sum(n) FROM untouched");
    let route = session.route();
    assert!(route.site().starts_with("replica"), "{}", route.text);
    assert_eq!(route.reason(), "fresh", "{}", route.text);
    session.number("SELECT sum(n) FROM touched");
    let route = session.route();
    assert_eq!(route.site(), "primary", "stale (I3): {}", route.text);
    assert_eq!(route.reason(), "not_fresh", "{}", route.text);
}

/// Locks are released before the acknowledgement arrives.
#[test]
fn a_lock_granted_by_a_commit_means_its_writes_are_seen() {
    let _alone = alone();
    counters("lock_parent", 1);
    counters("lock_child", 1);
    for round in 1..=60 {
        let mut writer = shared().connect();
        writer.run("BEGIN");
        writer.run("UPDATE lock_child SET n = n + 1");
        writer.run("UPDATE lock_parent SET n = n + 1");
        let locker = std::thread::spawn(|| {
            let mut locker = shared().connect();
            locker.run("BEGIN");
            locker.run("SELECT * FROM lock_parent FOR UPDATE");
            // Granted by the commit; another session of this program reads now.
            let child = shared().connect().number("SELECT n FROM lock_child");
            let own = locker.number("SELECT n FROM lock_child");
            locker.run("COMMIT");
            (child, own)
        });
        shared().until_locked_out("SELECT * FROM lock_parent FOR UPDATE");
        writer.run("COMMIT");
        let (child, own) = locker.join().expect("the locker");
        assert_eq!((child, own), (round, round), "stale under a lock (I3)");
    }
}

/// The same with sessions that are open already, so that nothing slows the reader down.
#[test]
fn an_autocommit_update_granted_by_a_commit_means_its_writes_are_seen() {
    let _alone = alone();
    counters("grant_parent", 1);
    counters("grant_child", 1);
    let mut writer = shared().connect();
    let (mut locker, mut reader) = (shared().connect(), shared().connect());
    for round in 1..=100 {
        writer.run("BEGIN; UPDATE grant_child SET n = n + 1; UPDATE grant_parent SET n = n + 1");
        let locking = std::thread::spawn(move || {
            locker.run("UPDATE grant_parent SET n = n");
            let child = reader.number("SELECT n FROM grant_child");
            (locker, reader, child)
        });
        shared().until_locked_out("UPDATE grant_parent SET n = n");
        writer.run("COMMIT");
        let (l, r, child) = locking.join().expect("the locker");
        (locker, reader) = (l, r);
        assert_eq!(child, round, "stale under a lock (I3): {}", reader.route().text);
    }
}

#[test]
fn a_session_sees_its_own_writes() {
    let _alone = alone();
    counters("own", 1);
    let mut session = shared().connect();
    for n in 1..=200 {
        let way = [Way::Simple, Way::Extended, Way::Block, Way::Several][n % 4];
        increment(&mut session, "own", 0, way);
        assert_eq!(session.number("SELECT n FROM own"), n as i64, "{way:?} (I4)");
    }
    session.run("BEGIN");
    session.run("UPDATE own SET n = -1");
    assert_eq!(session.number("SELECT n FROM own"), -1, "own uncommitted write (I4)");
    assert_eq!(shared().connect().number("SELECT n FROM own"), 200, "uncommitted write seen (I2)");
    session.run("ROLLBACK");
    assert_eq!(session.number("SELECT n FROM own"), 200);
}

/// Writes that reach tables by other ways than naming them (I6).
#[test]
fn writes_by_cascades_triggers_functions_views_and_rules_are_seen() {
    let _alone = alone();
    let mut session = shared().connect();
    let mut reader = shared().connect();
    let cases: &[(&str, &str)] = &[
        (
            "UPDATE indirect.parent SET id = id + 1000 WHERE id < 1000",
            "SELECT max(parent) FROM indirect.child",
        ),
        ("INSERT INTO indirect.triggering VALUES (1)", "SELECT count(*) FROM indirect.audit"),
        ("SELECT indirect.writer()", "SELECT n FROM indirect.target"),
        ("SELECT indirect.defaulted_writer()", "SELECT n FROM indirect.target"),
        ("CALL indirect.write_and_commit()", "SELECT n FROM indirect.target"),
        ("DO $$ BEGIN PERFORM indirect.writer(); END $$", "SELECT n FROM indirect.target"),
        ("INSERT INTO indirect.door VALUES (1)", "SELECT count(*) FROM indirect.behind"),
        ("INSERT INTO indirect.simple_view VALUES (2)", "SELECT count(*) FROM indirect.behind"),
        ("INSERT INTO indirect.parted SELECT 1", "SELECT count(*) FROM indirect.parted_1"),
        ("INSERT INTO indirect.parted_1 VALUES (1)", "SELECT count(*) FROM indirect.parted"),
        ("INSERT INTO indirect.heir VALUES (1)", "SELECT count(*) FROM indirect.ancestor"),
        (
            "WITH w AS (UPDATE indirect.target SET n = n + 1 RETURNING n) SELECT * FROM w",
            "SELECT n FROM indirect.target",
        ),
        (
            "PREPARE w AS UPDATE indirect.target SET n = n + 1; EXECUTE w; DEALLOCATE w",
            "SELECT n FROM indirect.target",
        ),
        ("UPDATE indirect.target SET n = n + 1", "SELECT indirect.reader()"),
        ("UPDATE indirect.target SET n = n + 1", "SELECT indirect.defaulted()"),
        ("UPDATE indirect.target SET n = n + 1", "SELECT * FROM indirect.over_function"),
        (
            "UPDATE indirect.target SET n = n + 1",
            "SELECT 1 WHERE EXISTS (SELECT n FROM indirect.over_target)",
        ),
        ("TRUNCATE indirect.audit", "SELECT count(*) FROM indirect.audit"),
        ("DELETE FROM indirect.parent", "SELECT count(*) FROM indirect.child"),
        (
            "ALTER TABLE indirect.target ADD extra int DEFAULT 5; UPDATE indirect.target SET n = 0",
            "SELECT extra + n FROM indirect.target",
        ),
    ];
    for is_paused in [false, true] {
        session.run(include_str!("scripts/indirect.sql"));
        shared().caught_up();
        eventually("the schema is known", || {
            reader.run("SELECT n FROM indirect.target");
            !shared().is_hihooi() || reader.route().site().starts_with("replica")
        });
        let _resume = is_paused.then(|| paused(shared()));
        for (write, query) in cases {
            session.run(write);
            let got = reader.run(query).rows;
            let route = reader.route().text;
            let truth = shared().direct("primary").run(query).rows;
            assert_eq!(got, truth, "stale after {write} (I3, I6), paused {is_paused}: {route}");
        }
    }
}

#[test]
fn prepared_transactions_are_seen_when_they_commit() {
    let _alone = alone();
    counters("two_phase", 1);
    let (mut writer, mut committer, mut reader) =
        (shared().connect(), shared().connect(), shared().connect());
    for n in 1..=20 {
        writer.run("BEGIN; UPDATE two_phase SET n = n + 1; PREPARE TRANSACTION 'fresh'");
        assert_eq!(reader.number("SELECT n FROM two_phase"), n - 1);
        committer.run("COMMIT PREPARED 'fresh'");
        let got = reader.number("SELECT n FROM two_phase");
        assert_eq!(got, n, "stale after COMMIT PREPARED (I3): {}", reader.route().text);
    }
}

/// COPY, TRUNCATE, CREATE TABLE AS: everything that brings rows is seen.
#[test]
fn bulk_writes_are_seen() {
    let _alone = alone();
    let (mut writer, mut reader) = (shared().connect(), shared().connect());
    writer.run("DROP TABLE IF EXISTS bulk; CREATE TABLE bulk (id int, v text)");
    for round in 1..=10_i64 {
        writer.run("INSERT INTO bulk SELECT g, 'x' FROM generate_series(1, 2000) g");
        assert_eq!(reader.number("SELECT count(*) FROM bulk"), 2000, "round {round} (I3)");
        writer.run("TRUNCATE bulk");
        assert_eq!(reader.number("SELECT count(*) FROM bulk"), 0, "round {round} (I3)");
        writer
            .run(&format!("CREATE TABLE bulk_{round} AS SELECT g FROM generate_series(1, 500) g"));
        let count = format!("SELECT count(*) FROM bulk_{round}");
        assert_eq!(reader.number(&count), 500, "round {round} (I3)");
        writer.run(&format!("DROP TABLE bulk_{round}"));
        assert_eq!(reader.error(&count).code(), "42P01");
    }
}

/// What replicas may not answer goes to the primary.
#[test]
fn what_is_not_safe_on_a_replica_goes_to_the_primary() {
    let _alone = alone(); // DDL of others would send reads to the primary for a moment
    if !shared().is_hihooi() {
        return;
    }
    counters("unsafe_reads", 2);
    let mut session = shared().connect();
    session.run("CREATE SEQUENCE IF NOT EXISTS unsafe_seq");
    session.run("DROP MATERIALIZED VIEW IF EXISTS unsafe_mv");
    session.run("CREATE UNLOGGED TABLE IF NOT EXISTS unsafe_unlogged (id int)");
    shared().caught_up();
    for text in [
        "SELECT * FROM unsafe_reads FOR UPDATE",
        "SELECT * FROM unsafe_reads FOR KEY SHARE",
        "SELECT nextval('unsafe_seq')",
        "SELECT last_value FROM unsafe_seq",
        "SELECT pg_current_wal_lsn()",
        "SELECT pg_is_in_recovery()",
        "SELECT txid_current_if_assigned()",
        "SELECT count(*) FROM pg_stat_activity",
        "SELECT count(*) FROM pg_class",
        "SELECT count(*) FROM information_schema.tables",
        "SELECT 'unsafe_reads'::regclass::oid",
        "SELECT pg_relation_size('unsafe_reads')",
        "SELECT ctid FROM unsafe_reads",
        "SELECT xmin FROM unsafe_reads",
        "SELECT tableoid FROM unsafe_reads",
        "SELECT * FROM unsafe_reads TABLESAMPLE SYSTEM (50)",
        "EXPLAIN SELECT * FROM unsafe_reads",
        "SELECT * FROM unsafe_unlogged",
        "SELECT pg_try_advisory_xact_lock(4711)",
        "SELECT inet_server_port()",
        "SELECT setval('unsafe_seq', 5)",
        "SELECT pg_notify('x', 'y')",
        "SELECT lo_creat(-1)",
        "SELECT current_setting('port')",
    ] {
        session.run(text);
        let route = session.route();
        assert_eq!(route.site(), "primary", "{text}: {}", route.text);
    }
    // And what is safe does go to replicas.
    eventually("what touched everything is resolved", || {
        session.run("SELECT * FROM unsafe_reads");
        session.route().site().starts_with("replica")
    });
    for text in [
        "SELECT * FROM unsafe_reads",
        "SELECT count(*), max(n) FROM unsafe_reads WHERE id > 0",
        "SELECT a.id FROM unsafe_reads a JOIN unsafe_reads b USING (id) ORDER BY 1",
        "WITH w AS (SELECT 1 AS x) SELECT * FROM w, unsafe_reads",
        "SELECT lower('X'), length('abc'), 1 + 1 FROM unsafe_reads",
        "SELECT now() IS NOT NULL FROM unsafe_reads",
        "TABLE unsafe_reads",
        "SELECT upper(md5(n::text)) FROM unsafe_reads GROUP BY n",
    ] {
        eventually(text, || {
            session.run(text);
            session.route().site().starts_with("replica")
        });
    }
}

/// I6: what a function reads that replicas lack, or have in their own way, is read at the primary, however the function gets there.
#[test]
fn i6_functions_read_what_only_the_primary_has_there() {
    let _alone = alone();
    if !shared().is_hihooi() {
        return;
    }
    let mut session = shared().connect();
    session.run(
        "CREATE SCHEMA fr; SET search_path = fr;
         CREATE TABLE par (id int PRIMARY KEY); CREATE UNLOGGED TABLE child () INHERITS (par);
         CREATE TABLE parts (id int) PARTITION BY LIST (id);
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1);
         CREATE UNLOGGED TABLE part_2 PARTITION OF parts FOR VALUES IN (2);
         INSERT INTO par VALUES (1); INSERT INTO child VALUES (2); INSERT INTO parts VALUES (1), (2);
         CREATE TABLE guarded (id int PRIMARY KEY, x xid); INSERT INTO guarded VALUES (1, '100'), (2, '100');
         CREATE TABLE plain (id int PRIMARY KEY);
         CREATE FUNCTION pars() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM fr.par';
         CREATE FUNCTION partitions() RETURNS bigint STABLE LANGUAGE plpgsql
            AS 'BEGIN RETURN (SELECT count(*) FROM fr.parts); END';
         CREATE POLICY many ON guarded USING (fr.pars() > 1); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
         CREATE FUNCTION setting(text) RETURNS text STABLE LANGUAGE sql AS 'SELECT current_setting($1)';
         CREATE FUNCTION modes() RETURNS text STABLE LANGUAGE plpgsql
            AS $$ BEGIN RETURN current_setting('transaction_read_only') || current_setting('default_transaction_read_only'); END $$;
         CREATE VIEW shown AS SELECT fr.setting('port') AS port;
         CREATE OPERATOR @@# (rightarg = text, function = current_setting);
         CREATE OPERATOR @@% (rightarg = regclass, function = pg_relation_filenode);
         CREATE FUNCTION by_operator() RETURNS text STABLE LANGUAGE sql AS $$ SELECT OPERATOR(fr.@@#) 'port' $$;
         CREATE FUNCTION tables_of() RETURNS bigint STABLE LANGUAGE sql SET search_path = information_schema
            AS 'SELECT count(*) FROM tables';
         CREATE FUNCTION seen() RETURNS bigint STABLE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM tables); END';
         CREATE FUNCTION ages() RETURNS int STABLE LANGUAGE sql AS 'SELECT max(age(x)) FROM fr.guarded'",
    );
    let long = "n".repeat(70);
    session.run(&format!(
        "CREATE UNLOGGED TABLE {long} (id int); INSERT INTO {long} VALUES (1);
         CREATE FUNCTION longs() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM fr.{long}'"
    ));
    shared().caught_up();
    let mut primary = shared().direct("primary");
    let path = "SET search_path = fr, information_schema";
    session.run(path);
    primary.run(path);
    for text in [
        "SELECT pars()",
        "SELECT partitions()",
        "SELECT count(*) FROM guarded",
        "SELECT setting('port')",
        "SELECT modes()",
        "SELECT port FROM shown",
        "SELECT @@# 'port'",
        "SELECT @@% 'par'",
        "SELECT by_operator()",
        "SELECT tables_of()",
        "SELECT seen()",
        "SELECT ages()",
        "SELECT age('100'::xid)",
        "SELECT longs()",
    ] {
        let expected = primary.value(text);
        for _ in 0..3 {
            assert_eq!(session.value(text), expected, "{text}");
            assert_eq!(session.route().site(), "primary", "{text}");
        }
    }
    session.run("SET search_path = fr");
    eventually("reads go to replicas", || {
        session.run("SELECT * FROM plain");
        session.route().site().starts_with("replica")
    });
    session.run("RESET search_path; DROP SCHEMA fr CASCADE");
}

/// As any setting, the level comes with the role or the database, unless the client says otherwise; that is what RESET
/// returns to.
#[test]
fn roles_and_databases_bring_their_level() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    let mut admin = cluster.connect();
    admin.run("CREATE ROLE lenient LOGIN SUPERUSER");
    admin.run("ALTER DATABASE postgres SET hihooi.wait_ms = 7");
    admin.run("ALTER ROLE lenient SET hihooi.consistency = 'weak-si'");
    let shown = |session: &mut Session, name| session.value(&format!("SHOW hihooi.{name}"));
    let mut session = cluster.connect_with(&[("user", "lenient")]);
    assert_eq!(shown(&mut session, "consistency"), "weak-si");
    assert_eq!(shown(&mut session, "wait_ms"), "7");
    for reset in ["RESET hihooi.consistency", "RESET ALL", "DISCARD ALL"] {
        session.run("SET hihooi.consistency = 'strict'");
        session.run(reset);
        assert_eq!(shown(&mut session, "consistency"), "weak-si", "{reset}");
    }
    let options = ("options", "-c hihooi.consistency=rsi-pc");
    let mut session = cluster.connect_with(&[("user", "lenient"), options]);
    assert_eq!(shown(&mut session, "consistency"), "rsi-pc");
    session.run("SET hihooi.consistency = 'strict'");
    session.run("RESET hihooi.consistency");
    assert_eq!(shown(&mut session, "consistency"), "rsi-pc");
    admin.run("ALTER DATABASE postgres RESET hihooi.wait_ms");
    for level in ["sync", "strict", "gssi", "rsi-pc", "session", "weak-si"] {
        admin.run(&format!("ALTER DATABASE postgres SET hihooi.consistency = '{level}'"));
        assert_eq!(shown(&mut cluster.connect(), "consistency"), level);
    }
    admin.run("ALTER DATABASE postgres RESET hihooi.consistency");
    admin.run("ALTER ROLE lenient SET hihooi.consistency = 'nonsense'");
    let mut session = cluster.connect_with(&[("user", "lenient")]);
    assert_eq!(shown(&mut session, "consistency"), "gssi", "it is ignored, with a line in the log");
    admin.run("DROP ROLE lenient");
}

/// `rsi-pc` waits for all that was committed, whatever it touches.
#[test]
fn rsi_pc_reads_what_has_everything() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    counters("rsi_pc", 1);
    counters("rsi_pc_other", 1);
    let mut session = cluster.connect_with(&[("options", "-c hihooi.wait_ms=50")]);
    eventually("the table is known", || {
        session.run("SELECT n FROM rsi_pc");
        session.route().site().starts_with("replica")
    });
    let resume = paused(cluster);
    cluster.connect().run("UPDATE rsi_pc_other SET n = 1");
    session.run("SELECT n FROM rsi_pc");
    assert_eq!(session.route().reason(), "fresh", "nothing touched it");
    session.run("SET hihooi.consistency = 'RSI-PC'");
    session.run("SELECT n FROM rsi_pc");
    assert_eq!(session.route().reason(), "not_fresh", "{}", session.route().text);
    drop(resume);
    eventually("a replica has everything", || {
        session.run("SELECT n FROM rsi_pc");
        session.route().site().starts_with("replica")
    });
}

/// `session`: what others write may be missing; what the session wrote or saw is not.
#[test]
fn at_level_session_reads_follow_what_it_wrote_and_saw() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    counters("followed", 1);
    let options = "-c hihooi.consistency=session -c hihooi.wait_ms=50";
    let session = || cluster.connect_with(&[("options", options)]);
    let read = |session: &mut Session| {
        let n = session.number("SELECT n FROM followed");
        format!("{n} {}", session.route().site().trim_end_matches(char::is_numeric))
    };
    eventually("the table is known", || read(&mut session()) == "0 replica");
    let resume = paused(cluster);
    let (mut writer, mut reader, mut other) = (session(), session(), session());
    writer.run("UPDATE followed SET n = 1");
    assert_eq!(read(&mut writer), "1 primary", "own writes");
    assert_eq!(read(&mut reader), "0 replica", "others' writes may be missing");
    assert_eq!(reader.number("/* hihooi: primary */ SELECT n FROM followed"), 1);
    assert_eq!(read(&mut reader), "1 primary", "monotonic reads");
    // Who begins later may have seen anything.
    let mut late = cluster.connect_with(&[("options", "-c hihooi.wait_ms=50")]);
    assert_eq!(read(&mut late), "1 primary");
    late.run("SET hihooi.consistency = 'session'");
    assert_eq!(read(&mut late), "1 primary");
    // An open transaction and one that is rolled back have written nothing.
    for text in ["BEGIN", "UPDATE followed SET n = 2", "ROLLBACK"] {
        other.run(text);
    }
    assert_eq!(read(&mut other), "0 replica");
    drop(resume);
    for session in [&mut writer, &mut reader, &mut late, &mut other] {
        eventually("replicas have it", || read(session) == "1 replica");
    }
}

/// `weak-si` may be stale; it must say so, and serve from a replica even then.
#[test]
fn weak_si_reads_from_any_replica() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    counters("weak", 1);
    let _resume = paused(cluster);
    cluster.connect().run("UPDATE weak SET n = 1");
    let mut session = cluster.connect();
    session.run("SET hihooi.consistency = 'weak-si'");
    assert_eq!(session.value("SHOW hihooi.consistency"), "weak-si");
    // Right after DDL the catalog is read anew, and the primary serves until it is known.
    eventually("the table is known", || {
        session.run("SELECT n FROM weak");
        session.route().site().starts_with("replica")
    });
    assert_eq!(session.number("SELECT n FROM weak"), 0, "paused replicas haven't seen it");
    let route = session.route();
    assert!(route.site().starts_with("replica"), "{}", route.text);
    session.run("SET hihooi.consistency = 'gssi'");
    assert_eq!(session.number("SELECT n FROM weak"), 1, "{}", session.route().text);
    let mut optional = cluster.connect_with(&[("options", "-c hihooi.consistency=weak-si")]);
    assert_eq!(optional.number("SELECT n FROM weak"), 0);
    let nonsense = session.error("SET hihooi.consistency = 'nonsense'");
    assert_eq!(nonsense.code(), "22023");
    // Not replicas alone decide: a block, and so a write's own read, stays on the primary.
    session.run("SET hihooi.consistency = 'weak-si'; BEGIN; UPDATE weak SET n = 7");
    assert_eq!(session.number("SELECT n FROM weak"), 7, "own write (I4)");
    session.run("ROLLBACK");
}
