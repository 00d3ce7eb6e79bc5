//! Transactions that only read, from one snapshot (REPEATABLE READ, READ ONLY), at replicas.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::client::Session;
use crate::harness::cluster::{Cluster, Options};
use crate::harness::eventually;

/// Sessions whose transaction is open, but those that export snapshots.
const IDLE: &str = "state LIKE 'idle in transaction%' AND application_name NOT LIKE 'hihooi %'";
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A cluster with a table of two rows that always add up to 100, read at replicas.
fn cluster(arguments: Options) -> Cluster {
    let cluster = Cluster::start(arguments);
    let mut session = cluster.connect();
    session.run("CREATE TABLE accounts (id int PRIMARY KEY, n int)");
    session.run("CREATE TYPE mood AS ENUM ('sad', 'happy')");
    session.run("CREATE TABLE moods (id int PRIMARY KEY, all_of mood[])");
    session.run("INSERT INTO accounts VALUES (1, 50), (2, 50)");
    session.run("INSERT INTO moods VALUES (1, '{sad,happy}')");
    session.run("CREATE TABLE ticks (id int PRIMARY KEY, n int)");
    session.run("INSERT INTO ticks VALUES (1, 0)");
    cluster.caught_up();
    eventually("a snapshot is taken at a replica", || {
        session.run(BEGIN);
        session.number("SELECT sum(n) FROM accounts");
        let route = session.route();
        session.run("COMMIT");
        route.site().starts_with("replica")
    });
    cluster
}

fn at(session: &mut Session) -> String {
    let route = session.route();
    format!("{} {}", route.site().trim_end_matches(char::is_numeric), route.reason())
}

/// Ends the sessions that export snapshots.
fn end_exports(cluster: &Cluster) {
    for site in cluster.replicas() {
        cluster.direct(&site).run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'hihooi snapshots'",
        );
    }
}

/// Ends a writer, whatever happens.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A session whose transaction has its snapshot at a replica; the replica.
fn with_snapshot(cluster: &Cluster) -> (Session, String) {
    let mut found = None;
    eventually("a snapshot is taken at a replica", || {
        let mut session = cluster.connect();
        session.run(BEGIN);
        assert_eq!(session.number("SELECT sum(n) FROM accounts"), 100);
        let site = session.route().site().to_owned();
        let is_there = site.starts_with("replica");
        found = is_there.then_some((session, site));
        is_there
    });
    found.expect("one")
}

#[test]
fn i3_all_statements_of_a_transaction_read_one_snapshot_that_has_all_that_came_before() {
    let cluster = cluster(Options::replicas(2));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // There is no moment at which nothing is on its way.
        for commit in ["local", "on", "off"] {
            let (cluster, stop) = (&cluster, &stop);
            scope.spawn(move || {
                let mut writer = cluster.connect();
                writer.run(&format!("SET synchronous_commit = {commit}"));
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let n = n % 50;
                    writer.run("BEGIN");
                    writer.run(&format!("UPDATE accounts SET n = 50 - {n} WHERE id = 1"));
                    writer.run(&format!("UPDATE accounts SET n = 50 + {n} WHERE id = 2"));
                    writer.run("COMMIT");
                }
            });
        }
        let _stops = Stops(&stop);
        let mut at_replicas = 0;
        let mut session = cluster.connect();
        session.run("SET hihooi.wait_ms = 60000");
        let mut other = cluster.connect();
        for n in 1..=100 {
            other.run(&format!("UPDATE ticks SET n = {n}"));
            if n % 10 == 0 {
                end_exports(&cluster);
            }
            session.run(BEGIN);
            let first = session.number("SELECT n FROM accounts WHERE id = 1");
            at_replicas += i64::from(session.route().site().starts_with("replica"));
            let second = session.number("SELECT n FROM accounts WHERE id = 2");
            assert_eq!(first + second, 100, "two snapshots (I3)");
            assert_eq!(
                session.extended("SELECT n FROM ticks", &[]).expect("an answer").rows[0][0]
                    .as_deref(),
                Some(&*n.to_string()),
                "the snapshot lacks what came before it (I3)"
            );
            let now = session.value("SELECT now()");
            assert_eq!(session.value("SELECT transaction_timestamp()"), now);
            other.run("UPDATE ticks SET n = -1");
            assert_eq!(session.number("SELECT n FROM ticks"), n, "not its snapshot (I3)");
            session.run("COMMIT");
        }
        assert!(at_replicas >= 50, "only {at_replicas} ran at replicas");
    });
    cluster.assert_verified();
}

#[test]
fn what_such_a_transaction_needs_is_there() {
    let cluster = cluster(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("SET hihooi.snapshot_routing = off");
    session.run(BEGIN);
    session.number("SELECT sum(n) FROM accounts");
    assert_eq!(at(&mut session), "primary explicit_block");
    session.run("COMMIT");
    let (mut session, _) = with_snapshot(&cluster);
    session.number("SELECT n FROM accounts WHERE id = 1");
    assert_eq!(at(&mut session), "replica snapshot");
    assert_eq!(session.value("SHOW transaction_isolation"), "repeatable read");
    session.run("DECLARE c CURSOR FOR SELECT n FROM accounts ORDER BY id");
    assert_eq!(session.run("FETCH 1 FROM c").rows.len(), 1);
    assert_eq!(session.run("FETCH ALL FROM c").rows.len(), 1);
    session.run("CLOSE c");
    session.run("SAVEPOINT s");
    assert_eq!(session.error("SELECT 1 / (n - n) FROM accounts").code(), "22012");
    assert_eq!(session.error("SELECT 1").code(), "25P02");
    session.run("ROLLBACK TO s");
    assert_eq!(session.number("SELECT sum(n) FROM accounts"), 100);
    assert_eq!(at(&mut session), "replica snapshot");
    // Types have the primary's OIDs.
    let types = "SELECT id, all_of FROM moods";
    let answer = session.run(types);
    assert_eq!(answer.rows[0][1].as_deref(), Some("{sad,happy}"));
    assert_eq!(session.run("COMMIT").command, "COMMIT");
    // A cursor may come first.
    session.run(BEGIN);
    session.run("DECLARE c CURSOR FOR SELECT n FROM accounts");
    assert!(at(&mut session).starts_with("replica"));
    assert_eq!(session.run("FETCH ALL FROM c").rows.len(), 2);
    session.run("ROLLBACK");
    // A server's own default doesn't count: it is the primary's that the client meant.
    let mut session =
        cluster.connect_with(&[("options", "-c default_transaction_isolation=repeatable\\ read")]);
    let mut replica = cluster.repair("replica1");
    replica.run("ALTER SYSTEM SET default_transaction_isolation = 'read committed'");
    session.run("BEGIN READ ONLY");
    session.number("SELECT sum(n) FROM accounts");
    assert!(at(&mut session).starts_with("replica"));
    assert_eq!(session.value("SHOW transaction_isolation"), "repeatable read");
    session.run("COMMIT");
    // The next transaction is another.
    session.run("UPDATE accounts SET n = 60 WHERE id = 1");
    session.run(BEGIN);
    assert_eq!(session.number("SELECT n FROM accounts WHERE id = 1"), 60, "I3");
    session.run("COMMIT");
    assert_eq!(cluster.activity(IDLE), 0);
}

#[test]
fn what_a_replica_cant_do_fails_the_transaction_and_the_next_runs_on_the_primary() {
    let cluster = cluster(Options::replicas(1));
    for statement in [
        "SELECT pg_advisory_lock(1)",
        "SELECT count(*) FROM accounts, pg_class",
        "SELECT oid FROM pg_class LIMIT 1; SELECT n FROM accounts",
        "SET search_path = pg_catalog",
        "SELECT setseed(0.5)",
        // What else one does counts, too.
        "SELECT set_config('jit', 'off', false), oid FROM pg_class LIMIT 1",
        "SELECT set_config('jit', 'off', false), pg_notify('a', 'b')",
        "SELECT set_config('jit', 'off', false), lo_create(0)",
        "SELECT lo_create(0) FROM accounts, (SELECT 1) s FOR UPDATE OF s",
        "SELECT 1; COMMIT; SELECT 2",
        "/* hihooi: primary */ SELECT 1",
    ] {
        let (mut session, _) = with_snapshot(&cluster);
        let error = session.error(statement);
        assert_eq!(error.code(), "40001", "{statement}: {error}");
        assert_eq!(session.status, 'E');
        assert_eq!(session.error("SELECT n FROM accounts").code(), "40001");
        assert_eq!(session.error("ROLLBACK TO none").code(), "40001");
        assert_eq!(session.run("ROLLBACK").command, "ROLLBACK");
        session.run(BEGIN);
        session.number("SELECT sum(n) FROM accounts");
        assert_eq!(at(&mut session), "primary explicit_block", "{statement}");
        session.run("ROLLBACK");
        session.run("DISCARD ALL");
        session.run(BEGIN);
        session.number("SELECT sum(n) FROM accounts");
        assert!(at(&mut session).starts_with("replica"), "{statement}");
        session.run("ROLLBACK; SELECT 1");
    }
}

/// Where no replica comes to what the primary shows in time, the primary takes the transaction.
#[test]
fn without_a_snapshot_in_time_the_transaction_runs_on_the_primary() {
    let cluster = cluster(Options::replicas(1));
    let (mut writer, mut session) = (cluster.connect(), cluster.connect());
    session.run("SET hihooi.wait_ms = 200");
    let mut holder = cluster.repair("replica1");
    holder.run("BEGIN");
    holder.run("LOCK TABLE ticks IN SHARE MODE");
    writer.run("UPDATE ticks SET n = 1");
    writer.run("UPDATE accounts SET n = 60 - n");
    session.run(BEGIN);
    assert_eq!(session.number("SELECT n FROM accounts WHERE id = 1"), 10, "stale (I3)");
    assert_eq!(at(&mut session), "primary not_fresh");
    writer.run("UPDATE accounts SET n = 0");
    assert_eq!(session.number("SELECT sum(n) FROM accounts"), 20, "another snapshot");
    assert_eq!(at(&mut session), "primary explicit_block");
    session.run("COMMIT");
    holder.run("ROLLBACK");
    cluster.caught_up();
    session.run(BEGIN);
    assert_eq!(session.number("SELECT sum(n) FROM accounts"), 0);
    assert!(at(&mut session).starts_with("replica"));
    session.run("COMMIT");
}

/// As asyncpg and pgjdbc look types up in the middle of transactions.
#[test]
fn the_primary_answers_what_such_a_transaction_asks_the_catalogs() {
    let cluster = cluster(Options::replicas(1));
    let mut direct = cluster.direct("primary");
    let oid = direct.value("SELECT 'mood'::regtype::oid");
    let (mut session, _) = with_snapshot(&cluster);
    let types = "SELECT t.oid, n.nspname = ANY (current_schemas(true)), format_type(t.oid, NULL) \
        FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE t.typname = $1";
    for _ in 0..3 {
        let answer = session.extended(types, &["mood"]).expect("an answer");
        assert_eq!(answer.rows[0][0].as_deref(), Some(&*oid));
        assert_eq!(at(&mut session), "primary unsafe");
        assert_eq!(session.value("SELECT 'mood'::regtype::oid"), oid);
        assert_eq!(session.number("SELECT sum(n) FROM accounts"), 100);
        assert_eq!(at(&mut session), "replica snapshot");
    }
    // It holds nothing at the primary.
    assert_eq!(cluster.activity(IDLE), 1);
    // An error there is the transaction's.
    session.run("SAVEPOINT s");
    assert_eq!(session.error("SELECT 'nobody'::regtype").code(), "42704");
    assert_eq!(session.status, 'E');
    assert_eq!(session.error("SELECT 'mood'::regtype").code(), "25P02");
    assert_eq!(session.error("SELECT n FROM accounts").code(), "25P02");
    session.run("ROLLBACK TO s");
    assert_eq!(session.value("SELECT 'mood'::regtype::oid"), oid);
    assert_eq!(session.number("SELECT sum(n) FROM accounts"), 100);
    assert_eq!(at(&mut session), "replica snapshot");
    assert_eq!(session.run("COMMIT").command, "COMMIT");
    // Settings are the session's when it commits, and only then.
    let (mut session, _) = with_snapshot(&cluster);
    session.run("SET work_mem = '1111kB'");
    session
        .extended("SELECT current_setting('jit'), set_config('jit', 'off', false)", &[])
        .expect("an answer");
    session.run("SET LOCAL statement_timeout = '59s'");
    assert_eq!(session.value("SHOW statement_timeout"), "59s");
    assert_eq!(session.number("SELECT sum(n) FROM accounts"), 100);
    assert_eq!(at(&mut session), "replica snapshot");
    session.run("COMMIT");
    session.run("UPDATE accounts SET n = n");
    for (name, value) in [("work_mem", "1111kB"), ("jit", "off"), ("statement_timeout", "0")] {
        assert_eq!(session.value(&format!("SHOW {name}")), value);
    }
    let isolation = "SHOW default_transaction_isolation";
    assert_eq!(session.value(isolation), direct.value(isolation));
    session.run(BEGIN);
    session.number("SELECT sum(n) FROM accounts");
    assert_eq!(session.value("SHOW work_mem"), "1111kB");
    session.run("SET work_mem = '2222kB'; ROLLBACK");
    assert_eq!(session.value("SHOW work_mem"), "1111kB");
    // What it may not do is refused as on the primary.
    for statement in [
        "INSERT INTO accounts VALUES (3, 0)",
        "UPDATE accounts SET n = 0",
        "SELECT n FROM accounts FOR UPDATE",
        "WITH gone AS (DELETE FROM accounts RETURNING n) SELECT sum(n) FROM gone",
    ] {
        let (mut session, _) = with_snapshot(&cluster);
        let error = session.error(statement);
        assert_eq!(error.code(), "25006", "{statement}: {error}");
        assert_eq!(session.run("ROLLBACK").command, "ROLLBACK");
    }
    let (mut session, _) = with_snapshot(&cluster);
    let asks =
        std::thread::spawn(move || session.error("SELECT count(oid), pg_sleep(60) FROM pg_type"));
    cluster.until_active("wait_event = 'PgSleep'");
    direct
        .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    assert_eq!(asks.join().expect("an error").code(), "57P01");
    eventually("no transaction is left", || cluster.activity(IDLE) == 0);
}

#[test]
fn the_loss_of_the_replica_is_a_serialization_failure() {
    let cluster = cluster(Options::replicas(1));
    let (mut idle, site) = with_snapshot(&cluster);
    let (mut commits, _) = with_snapshot(&cluster);
    let (mut busy, _) = with_snapshot(&cluster);
    let waiting = std::thread::spawn(move || {
        let error = busy.error("SELECT n, pg_sleep(60) FROM accounts");
        (error, busy)
    });
    eventually("it sleeps", || {
        let mut direct = cluster.direct(&site);
        direct.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") > 0
    });
    let mut direct = cluster.repair(&site);
    direct.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE pid <> pg_backend_pid() AND (state LIKE 'idle in transaction%' OR wait_event = 'PgSleep')",
    );
    let (error, mut busy) = waiting.join().expect("a session");
    assert_eq!(error.code(), "40001", "{error}");
    assert_eq!(busy.error("SELECT 1").code(), "40001");
    assert_eq!(busy.run("COMMIT").command, "ROLLBACK");
    assert_eq!(busy.number("SELECT sum(n) FROM accounts"), 100);
    // It has read what it wanted.
    assert_eq!(commits.run("COMMIT").command, "COMMIT");
    assert_eq!(idle.error("SELECT n FROM accounts").code(), "40001");
    assert_eq!(idle.run("ROLLBACK").command, "ROLLBACK");
    // Whatever becomes of its end, the transaction is over.
    for end in ["ROLLBACK", "COMMIT"] {
        let (mut session, site) = with_snapshot(&cluster);
        let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND application_name ~ 'applier|snapshots'";
        cluster.repair(&site).run(all);
        let _ = session.simple(end);
        assert_eq!(session.status, 'I', "{end}");
        session.run("BEGIN");
        session.run("UPDATE accounts SET n = n");
        session.run("COMMIT");
    }
    let (mut killed, site) = with_snapshot(&cluster);
    cluster.kill_site(&site);
    eventually("it is lost", || match killed.simple("SELECT n FROM accounts") {
        Ok(_) => false,
        Err(failure) => {
            assert_eq!(failure.code(), "40001", "{failure}");
            true
        }
    });
    killed.run("ROLLBACK");
    assert_eq!(killed.number("SELECT sum(n) FROM accounts"), 100);
}
