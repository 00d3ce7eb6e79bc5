//! I7: nothing waits in a way that PostgreSQL's deadlock detector can't see.
//! Every statement runs under timeouts that would show it.

use std::thread::JoinHandle;
use std::time::Duration;

use crate::harness::client::{Answer, Failure, Session};
use crate::harness::{Cluster, Options, alone, beside, eventually, shared, target_is_plain};

/// Longer than this in a wait that PostgreSQL would not have is a deadlock of our making.
const WAIT_MS_MAX: u64 = 60_000;

/// After so long a wait PostgreSQL looks for a deadlock, and some more.
const DEADLOCK_TIMEOUT: Duration = Duration::from_millis(1_200);

/// A session whose statements are cancelled when they wait too long.
fn session() -> Session {
    let mut session = shared().connect();
    session.run(&format!("SET statement_timeout = {WAIT_MS_MAX}"));
    session
}

/// How many statements on a table wait for a lock.
fn locked_out(table: &str) -> i64 {
    shared().activity(&format!("wait_event_type = 'Lock' AND query LIKE '%{table}%'"))
}

/// Until a connection of hihooi's own has waited for a lock for so long that PostgreSQL has looked for
/// a deadlock, which it does once; or has done without, so that replicas are read again.
fn until_locked_out(application: &str) {
    let waits = format!("wait_event_type = 'Lock' AND application_name = '{application}'");
    let mut reader = session();
    let mut is_read = || {
        reader.run("SELECT 1");
        reader.route().site() != "primary"
    };
    let reads_catalog = application == "hihooi catalog";
    eventually(application, || shared().activity(&waits) > 0 || reads_catalog && is_read());
    std::thread::sleep(DEADLOCK_TIMEOUT);
}

fn table(name: &str) {
    session().run(&format!(
        "DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (id int PRIMARY KEY, n int); \
         INSERT INTO {name} SELECT g, 0 FROM generate_series(1, 10) g"
    ));
    shared().caught_up();
}

type Later = JoinHandle<(Session, Result<Vec<Answer>, Failure>)>;

/// Runs a text in another thread.
fn later(mut session: Session, text: &str) -> Later {
    let text = text.to_owned();
    std::thread::spawn(move || {
        let result = session.simple(&text);
        (session, result)
    })
}

/// The later result, which must come soon and be good.
fn good(later: Later) -> (Session, Vec<Answer>) {
    let (session, result) = later.join().expect("a session");
    match result {
        Ok(answers) => (session, answers),
        Err(failure) => panic!("a wait that shouldn't be (I7): {failure}"),
    }
}

/// T2 updates; T1 locks the row and waits for T2; T2's COMMIT must not wait for T1.
#[test]
fn a_commit_never_waits_for_a_lock_queue_behind_it() {
    let _beside = beside();
    for locker in [
        "SELECT * FROM l1 WHERE id = 1 FOR UPDATE",
        "SELECT * FROM l1 FOR SHARE",
        "UPDATE l1 SET n = n + 10 WHERE id = 1",
        "DELETE FROM l1 WHERE id = 1",
        "TRUNCATE l1",
        "ALTER TABLE l1 ADD COLUMN x int; ALTER TABLE l1 DROP COLUMN x",
        "LOCK TABLE l1 IN ACCESS EXCLUSIVE MODE",
        "DROP TABLE l1; CREATE TABLE l1 (id int PRIMARY KEY, n int)",
        "CREATE INDEX ON l1 (n)",
        "VACUUM l1",
    ] {
        for wrapped in [false, true] {
            // A text of several statements can't run VACUUM, LOCK needs a block.
            let block = wrapped || locker.starts_with("LOCK");
            if block && locker.starts_with("VACUUM") {
                continue;
            }
            table("l1");
            let mut holder = session();
            holder.run("BEGIN");
            holder.run("UPDATE l1 SET n = n + 1");
            let text = if block { format!("BEGIN; {locker}; COMMIT") } else { locker.to_owned() };
            let waiting = later(session(), &text);
            eventually("it waits behind the holder, or needs not", || {
                waiting.is_finished() || locked_out("l1") > 0
            });
            holder.run("COMMIT");
            good(waiting);
        }
    }
}

/// The same with a plain read queued behind ALTER or TRUNCATE, which waits for the holder.
#[test]
fn reads_queued_behind_definitions_go_on_after_the_commit() {
    let _beside = beside();
    for definition in ["ALTER TABLE l2 ADD COLUMN x int", "TRUNCATE l2", "DROP TABLE l2"] {
        table("l2");
        let mut holder = session();
        holder.run("BEGIN; UPDATE l2 SET n = n + 1 WHERE id = 1");
        let defining = later(session(), definition);
        eventually("it waits for the holder", || locked_out("l2") == 1);
        let readers: Vec<_> = (0..4).map(|_| later(session(), "SELECT count(*) FROM l2")).collect();
        let writer = later(session(), "UPDATE l2 SET n = n + 1 WHERE id = 2");
        let queued: Vec<Later> = readers.into_iter().chain([writer]).collect();
        eventually("all others wait behind it, or have read at replicas", || {
            let done = queued.iter().filter(|later| later.is_finished()).count();
            locked_out("l2") + done as i64 > queued.len() as i64
        });
        holder.run("UPDATE l2 SET n = n + 1 WHERE id = 3");
        holder.run("COMMIT");
        good(defining);
        for later in queued {
            let (_, result) = later.join().expect("a session");
            let fine = result.as_ref().map_or_else(|e| e.code() == "42P01", |_| true);
            assert!(fine, "behind {definition} (I7): {:?}", result.map_err(|e| e.to_string()));
        }
    }
}

/// An autocommit write waits for T1's lock; T1's own next read, and its reads in other
/// sessions, must not wait for that write.
#[test]
fn a_write_that_waits_for_a_lock_makes_nobody_wait() {
    let _beside = beside();
    for write in [
        "UPDATE l3 SET n = n + 1 WHERE id = 1",
        "DELETE FROM l3 WHERE id = 1",
        "UPDATE l3 SET n = n + 1",
        "WITH w AS (UPDATE l3 SET n = 5 RETURNING id) SELECT count(*) FROM w",
        "DO $$ BEGIN UPDATE l3 SET n = n + 1; END $$",
        "UPDATE l3 SET n = 1; UPDATE l3 SET n = 2",
    ] {
        for extended in [false, true] {
            if extended && write.contains("; UPDATE") {
                continue;
            }
            table("l3");
            let mut holder = session();
            holder.run("BEGIN");
            holder.run("SELECT * FROM l3 WHERE id = 1 FOR UPDATE");
            let mut waiter = session();
            let text = write.to_owned();
            let waiting = std::thread::spawn(move || {
                let result = if extended {
                    waiter.extended(&text, &[]).map(|answer| vec![answer])
                } else {
                    waiter.simple(&text)
                };
                (waiter, result)
            });
            eventually("it waits for the holder", || locked_out("l3") > 0);
            holder.number("SELECT n FROM l3 WHERE id = 1");
            let mut other = session();
            assert_eq!(other.number("SELECT sum(n) FROM l3"), 0);
            other.number("SELECT count(*) FROM l3 WHERE id = 2");
            holder.number("SELECT count(*) FROM l3");
            assert!(!waiting.is_finished(), "reads waited for {write} (I7)");
            holder.run("COMMIT");
            good(waiting);
        }
    }
}

/// What PostgreSQL does see, it still resolves, in its own time and with its own error.
#[test]
fn an_ordinary_deadlock_is_resolved_by_postgresql() {
    let _beside = beside();
    table("l4");
    let (mut one, mut two) = (session(), session());
    one.run("BEGIN; UPDATE l4 SET n = 1 WHERE id = 1");
    two.run("BEGIN; UPDATE l4 SET n = 2 WHERE id = 2");
    let first = later(one, "UPDATE l4 SET n = 1 WHERE id = 2");
    eventually("one waits for the other", || locked_out("l4") > 0);
    let second = two.simple("UPDATE l4 SET n = 2 WHERE id = 1");
    let (mut one, first) = first.join().expect("a session");
    let codes = [first, second].map(|r| r.err().map_or(String::new(), |e| e.code().to_owned()));
    assert!(codes.contains(&"40P01".to_owned()) && codes.contains(&String::new()), "{codes:?}");
    one.run("ROLLBACK");
    two.run("ROLLBACK");
}

/// I7: printing definitions, as reading the catalog and `VERIFY` do, locks what they refer to. Where a
/// client locks the same in another order, it isn't the client that PostgreSQL ends.
#[test]
fn a_client_is_never_ended_for_our_locks() {
    const TRIES: usize = 3;
    let works: [(&str, fn()); 2] = [
        ("hihooi catalog", || drop(session().run("CREATE TABLE l9 (id int); DROP TABLE l9"))),
        ("hihooi verify", || shared().command("VERIFY")),
    ];
    let _alone = alone();
    if !shared().is_hihooi() {
        return;
    }
    table("l7");
    table("l8");
    session().run("CREATE VIEW v78 AS SELECT l7.n FROM l7, l8");
    shared().caught_up();
    let mut client = session();
    // In whichever order the definitions are printed.
    for (first, then) in [("l7", "l8"), ("l8", "l7")] {
        for (application, work) in works {
            let mut is_ended = || {
                client.run(&format!("BEGIN; LOCK {first}"));
                let working = std::thread::spawn(work);
                until_locked_out(application);
                let locked = client.simple(&format!("LOCK {then}; COMMIT"));
                working.join().expect("it works");
                let Err(failure) = locked else { return false };
                assert_eq!(failure.code(), "40P01", "{failure}");
                client.run("ROLLBACK");
                true
            };
            // (Our server process gives up in time, unless it gets no processor for a second.)
            assert!(!(0..TRIES).all(|_| is_ended()), "the client is ended for {application} (I7)");
        }
    }
    session().run("DROP VIEW v78; DROP TABLE l7, l8");
}

/// Writers, lockers, definitions and readers at random: no statement waits for what PostgreSQL's
/// own deadlock detection doesn't end.
#[test]
fn a_mix_of_locks_never_stalls() {
    let _beside = beside();
    table("l5");
    let workers: Vec<_> = (0..10).map(|worker| std::thread::spawn(move || mix(worker))).collect();
    workers.into_iter().for_each(|worker| worker.join().expect("I7"));
    shared().assert_table_equal("l5");
}

fn mix(worker: usize) {
    const ROUNDS: usize = 100;
    let texts = [
        "UPDATE l5 SET n = n + 1 WHERE id = 1",
        "SELECT sum(n) FROM l5",
        "BEGIN; SELECT * FROM l5 WHERE id = 1 FOR UPDATE; UPDATE l5 SET n = n + 1 WHERE id = 2; COMMIT",
        "SELECT n FROM l5 WHERE id = 2",
        "BEGIN; UPDATE l5 SET n = n + 1 WHERE id = 2; SELECT count(*) FROM l5; COMMIT",
        "TRUNCATE l5; INSERT INTO l5 SELECT g, 0 FROM generate_series(1, 10) g",
        "SELECT count(*) FROM l5 a JOIN l5 b USING (id)",
        "BEGIN; LOCK TABLE l5 IN SHARE ROW EXCLUSIVE MODE; UPDATE l5 SET n = 0; COMMIT",
        "ALTER TABLE l5 ALTER n SET DEFAULT 1",
        "INSERT INTO l5 VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = l5.n + 1",
    ];
    let mut session = session();
    for round in worker..worker + ROUNDS {
        let text = texts[(round * 7 + worker) % texts.len()];
        if let Err(failure) = session.simple(text) {
            let code = failure.code();
            // PostgreSQL's own deadlocks and races are no fault; 57014 is the timeout.
            assert!(matches!(code, "40P01" | "23505"), "{text}: {failure}");
            session.run("ROLLBACK");
        }
    }
}

/// I7: with every replica paused, commits, locks and definitions go on.
#[test]
fn the_primary_never_waits_for_paused_replicas() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    table("l6");
    for site in cluster.replicas() {
        cluster.command(&format!("PAUSE REPLICA {site}"));
    }
    let mut writer = session();
    for _ in 0..50 {
        writer.run("UPDATE l6 SET n = n + 1");
        writer.run("BEGIN; SELECT * FROM l6 FOR UPDATE; UPDATE l6 SET n = n + 1; COMMIT");
    }
    writer.run("ALTER TABLE l6 ADD COLUMN x int; TRUNCATE l6");
    for site in cluster.replicas() {
        cluster.command(&format!("RESUME REPLICA {site}"));
    }
    cluster.caught_up();
}

/// What somebody locks for long, a schema change for example, makes no other reads go to the primary after DDL: only
/// those need it whose code can't be read meanwhile.
#[test]
fn a_locked_table_holds_up_no_reads_of_others() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run(
        "CREATE TABLE locked (id int PRIMARY KEY, v text DEFAULT lower('X') CHECK (v <> '')); \
         CREATE INDEX ON locked (upper(v)) WHERE id > 0; \
         CREATE TABLE guarded (id int PRIMARY KEY); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY p ON guarded USING (id IN (SELECT id FROM locked)); \
         CREATE VIEW view AS SELECT * FROM locked; CREATE VIEW outer_view AS SELECT * FROM view; \
         CREATE FUNCTION counts() RETURNS bigint STABLE BEGIN ATOMIC SELECT count(*) FROM locked; END; \
         CREATE TABLE ruled (id int); CREATE RULE r AS ON DELETE TO ruled DO INSTEAD DELETE FROM locked; \
         CREATE TABLE plain (id int PRIMARY KEY); INSERT INTO locked VALUES (1); INSERT INTO plain VALUES (1)",
    );
    let mut locker = cluster.connect();
    locker.run("BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE");
    cluster.connect().run("CREATE TABLE other (id int)");
    cluster.caught_up();

    let mut reader = cluster.connect();
    reader.run("SET lock_timeout = '200ms'");
    let mut site_of = |read: &str| match reader.simple(read) {
        Ok(_) => reader.route().site().to_owned(),
        Err(failure) => failure.code().to_owned(),
    };
    eventually("a table that isn't locked", || site_of("SELECT * FROM plain") == "replica1");
    assert_eq!(site_of("SELECT * FROM other"), "replica1");
    assert_eq!(site_of("SELECT * FROM locked"), "replica1", "its code runs when it is written");
    let hidden = ["SELECT * FROM view", "SELECT * FROM outer_view", "SELECT counts()"];
    for read in hidden {
        assert_eq!(site_of(read), "55P03", "as at a server alone: {read}");
    }
    // What a write may leave is judged when its code can be read: nothing keeps its session's connection.
    let mut writer = cluster.connect();
    let waiting = later(cluster.connect(), "INSERT INTO locked VALUES (2)");
    cluster.until_active("wait_event_type = 'Lock' AND query LIKE 'INSERT INTO locked%'");
    writer.run("DELETE FROM plain");
    locker.run("COMMIT");
    for read in hidden {
        eventually(read, || site_of(read) == "replica1");
    }
    let (mut waited, _) = good(waiting);
    for session in [&mut writer, &mut waited] {
        session.run("INSERT INTO plain VALUES (7) ON CONFLICT DO NOTHING");
        cluster.caught_up();
        eventually("its connection is given back", || {
            session.run("SELECT * FROM plain");
            session.route().site() == "replica1"
        });
    }
    cluster.assert_verified();
}

/// Code that refers to what is no more can't be printed. (A temporary function goes with its session, whoever uses it.)
#[test]
fn broken_code_holds_up_no_reads_of_others() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE plain (id int PRIMARY KEY); INSERT INTO plain VALUES (1)");
    let mut creator = cluster.connect();
    creator.run("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'");
    creator.run(
        "BEGIN; CREATE VIEW broken AS SELECT pg_temp.f(); CREATE VIEW outer_view AS SELECT * FROM broken; \
         CREATE FUNCTION calls() RETURNS int STABLE BEGIN ATOMIC SELECT pg_temp.f(); END; \
         CREATE FUNCTION has_default(a int DEFAULT pg_temp.f()) RETURNS int STABLE LANGUAGE sql AS 'SELECT a'; \
         PREPARE TRANSACTION 'broken'",
    );
    drop(creator);
    let mut reader = cluster.connect();
    let gone = "SELECT count(*) FROM pg_proc WHERE proname = 'f'";
    eventually("the function is gone", || reader.number(gone) == 0);
    reader.run("COMMIT PREPARED 'broken'");
    reader.run("CREATE TABLE other (id int)");
    cluster.caught_up();

    let mut site_of = |read: &str| match reader.simple(read) {
        Ok(_) => reader.route().site().to_owned(),
        Err(failure) => failure.code().to_owned(),
    };
    for read in ["SELECT * FROM plain", "SELECT * FROM other"] {
        eventually(read, || site_of(read) == "replica1");
    }
    for read in [
        "SELECT * FROM broken",
        "SELECT * FROM outer_view",
        "SELECT calls()",
        "SELECT has_default()",
    ] {
        assert_eq!(site_of(read), "XX000", "as at a server alone: {read}");
    }
    cluster.connect().run("DROP VIEW broken CASCADE; CREATE VIEW broken AS SELECT 1 AS one");
    eventually("it is mended", || site_of("SELECT * FROM broken") == "replica1");
    cluster.connect().run("DROP FUNCTION calls(), has_default");
    cluster.assert_verified();
}

/// Whoever keeps hihooi from reading the primary's schema is found out: by SHOW STATE, too.
#[test]
fn a_schema_that_cant_be_read_is_told_of() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let (mut owner, mut admin) = (cluster.connect(), cluster.admin());
    let mut schema = || {
        let rows = admin.run("SHOW STATE").rows;
        let row = rows.into_iter().find(|row| row[0].as_deref() == Some("schema"));
        row.and_then(|row| row[1].clone()).expect("a row")
    };
    eventually("it is read", || schema() == "is known");
    // The command itself reads that catalog: the lock is had behind it, and in front of us.
    owner.run("BEGIN; CREATE FUNCTION changed() RETURNS int LANGUAGE sql AS 'SELECT 1'");
    let mut locker = cluster.direct("primary");
    let locking = std::thread::spawn(move || {
        locker.run("BEGIN; LOCK TABLE pg_partitioned_table IN ACCESS EXCLUSIVE MODE");
        locker
    });
    let waits = "wait_event_type = 'Lock' AND query LIKE '%pg_partitioned_table%'";
    eventually("it waits", || cluster.activity(waits) > 0);
    owner.run("COMMIT");
    let mut locker = locking.join().expect("locked");
    eventually("it is told", || {
        schema().starts_with("can't be read, so that reads run on the primary")
    });
    locker.run("ROLLBACK");
    eventually("it is read", || schema() == "is known");
}

/// A replica that gets no further since somebody has locked a system catalog there says so, and goes on afterwards.
#[test]
fn a_locked_catalog_of_a_replica_is_told_of() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut locker = cluster.direct("replica1");
    locker.run("BEGIN; LOCK TABLE pg_catalog.pg_type IN ACCESS EXCLUSIVE MODE");
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    eventually("the reason", || {
        cluster.show_replicas()["replica1"]["reason"].contains("locked a system catalog")
    });
    assert_eq!(cluster.connect().run("SELECT id FROM t").rows.len(), 1, "reads go elsewhere");
    locker.run("COMMIT");
    cluster.assert_verified();
}

/// A manager that can't begin, since somebody has locked a system catalog of the primary, says what it waits for, and begins when the
/// lock is gone.
#[test]
fn a_locked_catalog_of_the_primary_that_keeps_it_from_beginning_is_told_of() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.kill_manager();
    let mut locker = cluster.direct("primary");
    let process = locker.number("SELECT pg_backend_pid()");
    locker.run("BEGIN; LOCK TABLE pg_publication IN ACCESS EXCLUSIVE MODE");
    let why = format!("waits for Lock relation, behind process {process}, with SELECT");
    std::thread::scope(|scope| {
        let beginning = scope.spawn(|| cluster.serve());
        eventually("it is told of", || cluster.log_tail().contains(&why));
        locker.run("COMMIT");
        beginning.join().expect("it begins");
    });
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY)");
    cluster.assert_verified();
}
