//! I2, I5: what happened behind our back is noticed when it matters, and said.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::harness::{self, Cluster, Options, Session, alone, eventually, ms, target_is_plain};

fn start(replicas: usize) -> Cluster {
    let cluster = Cluster::start(Options::replicas(replicas));
    cluster.connect().run(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text); \
         CREATE TABLE keyless (id int, v text); \
         INSERT INTO keyed SELECT g, 'v' FROM generate_series(1, 100) g; \
         INSERT INTO keyless SELECT g, 'v' FROM generate_series(1, 100) g",
    );
    cluster.caught_up();
    cluster
}

/// Changes a replica's data as only a superuser behind our back can.
fn tamper(cluster: &Cluster, site: &str, text: &str) {
    cluster.repair(site).run(text);
}

/// The replica stops, says why, serves no read any more; the others go on.
fn expect_failed(cluster: &Cluster, site: &str, named: &[&str]) {
    let stopped = || {
        let row = cluster.show_replicas().remove(site).expect("a failed replica is still shown");
        row["state"] == "failed" && named.iter().all(|word| row["reason"].contains(word))
    };
    eventually(&format!("{site} failed and says so, naming {named:?}"), stopped);
    let mut session = cluster.connect();
    session.run("UPDATE keyed SET v = 'after' WHERE id = 50");
    for _ in 0..20 {
        assert_eq!(session.value("SELECT v FROM keyed WHERE id = 50"), "after");
        assert_ne!(
            session.route().site(),
            site,
            "a failed replica serves: {}",
            session.route().text
        );
    }
    // Also what nothing has touched since.
    session.run("SELECT * FROM keyless");
    assert_ne!(session.route().site(), site, "a failed replica serves: {}", session.route().text);
}

fn until_serving(cluster: &Cluster, site: &str) {
    eventually(&format!("{site} serves"), || cluster.state(site) == "serving");
}

#[test]
fn a_row_missing_on_a_replica_is_noticed() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(2);
    tamper(&cluster, "replica1", "DELETE FROM keyed WHERE id = 7");
    let (equal, text) = cluster.run_verify();
    assert!(!equal, "verify missed a deleted row: {text}");
    assert!(text.contains("replica1") && text.contains("keyed"), "{text}");
    cluster.connect().run("UPDATE keyed SET v = 'x' WHERE id = 7");
    expect_failed(&cluster, "replica1", &["keyed"]);
    until_serving(&cluster, "replica2");
    // A restart doesn't make it forget.
    cluster.kill_manager();
    cluster.up_without_waiting_for_all();
    expect_failed(&cluster, "replica1", &["keyed"]);
}

#[test]
fn an_extra_row_on_a_replica_is_noticed() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(2);
    tamper(&cluster, "replica2", "INSERT INTO keyed VALUES (1000, 'mine')");
    cluster.connect().run("INSERT INTO keyed VALUES (1000, 'theirs')");
    expect_failed(&cluster, "replica2", &["keyed"]);
    until_serving(&cluster, "replica1");
}

#[test]
fn a_changed_row_of_a_keyless_table_is_noticed() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(1);
    tamper(&cluster, "replica1", "UPDATE keyless SET v = 'changed' WHERE id = 5");
    cluster.connect().run("DELETE FROM keyless WHERE id = 5");
    expect_failed(&cluster, "replica1", &["keyless"]);
}

/// A replica that `verify` found different isn't read, by later managers either, until it is equal again
/// or the operator says RESUME; it goes on applying meanwhile (I5).
#[test]
fn what_verify_found_different_is_not_read() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(2);
    let (change, undo) = ("DELETE FROM keyed WHERE id = 7", "INSERT INTO keyed VALUES (7, 'v')");
    let assert_unread = |when: &str| {
        let mut session = cluster.connect();
        eventually(&format!("{when}: it is said why it is not read"), || {
            let replica = cluster.show_replicas().remove("replica1").expect("shown");
            let mut named = ["verify", "keyed", "RESUME REPLICA replica1"].iter();
            replica["state"] == "different" && named.all(|word| replica["reason"].contains(word))
        });
        let served = cluster.stat("replica1", "reads");
        for _ in 0..20 {
            assert_eq!(session.number("SELECT count(*) FROM keyed WHERE id = 7"), 1, "{when}");
        }
        assert_eq!(cluster.stat("replica1", "reads"), served, "{when}");
    };
    tamper(&cluster, "replica1", change);
    assert!(!cluster.run_verify().0);
    assert_unread("found");
    cluster.connect().run("INSERT INTO keyless VALUES (700, 'applied')");
    eventually("it goes on applying", || {
        cluster.direct("replica1").number("SELECT count(*) FROM keyless WHERE id = 700") == 1
    });
    cluster.kill_manager();
    cluster.up_without_waiting_for_all();
    eventually("it is reached", || cluster.state("replica1") != "failed");
    assert_unread("after a restart");
    tamper(&cluster, "replica1", undo);
    assert_unread("repaired, but nobody has seen it");
    let (equal, text) = cluster.run_verify();
    assert!(equal, "{text}");
    until_serving(&cluster, "replica1");
    tamper(&cluster, "replica1", change);
    assert!(!cluster.run_verify().0);
    cluster.command("RESUME REPLICA replica1");
    until_serving(&cluster, "replica1"); // the operator's word
    tamper(&cluster, "replica1", undo);
    cluster.assert_verified();
}

#[test]
fn verify_finds_what_was_planted() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(1);
    let (equal, text) = cluster.run_verify();
    assert!(equal, "{text}");
    let plant = |change: &str, undo: &str, table: &str| {
        tamper(&cluster, "replica1", change);
        let (equal, text) = cluster.run_verify();
        assert!(!equal, "verify missed: {change}\n{text}");
        assert!(text.contains(table) && text.contains("replica1"), "{change}: {text}");
        tamper(&cluster, "replica1", undo);
        let (equal, text) = cluster.run_verify();
        assert!(equal, "verify still complains after {undo}: {text}");
    };
    plant(
        "UPDATE keyed SET v = 'w' WHERE id = 3",
        "UPDATE keyed SET v = 'v' WHERE id = 3",
        "keyed",
    );
    plant("DELETE FROM keyless WHERE id = 9", "INSERT INTO keyless VALUES (9, 'v')", "keyless");
    plant(
        "INSERT INTO keyless VALUES (9, 'v')",
        "DELETE FROM keyless WHERE ctid = (SELECT max(ctid) FROM keyless WHERE id = 9)",
        "keyless",
    );
    plant(
        "UPDATE keyed SET v = NULL WHERE id = 1",
        "UPDATE keyed SET v = 'v' WHERE id = 1",
        "keyed",
    );
    plant(
        "UPDATE keyed SET v = '' WHERE id = 2; UPDATE keyed SET id = -1 WHERE id = 2",
        "UPDATE keyed SET id = 2, v = 'v' WHERE id = -1",
        "keyed",
    );
    // Verification is right while writes go on.
    harness::load::prepare(&cluster);
    let load = harness::load::Load::start(&cluster, 0, 3);
    load.progress(50);
    for _ in 0..3 {
        let (equal, text) = cluster.run_verify();
        assert!(equal, "verify under load: {text}");
        load.progress(20);
    }
    load.stop();
}

#[test]
fn rows_changed_directly_on_the_primary_are_replicated() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(2);
    let mut direct = cluster.direct("primary");
    direct.run("UPDATE keyed SET v = 'direct' WHERE id <= 10");
    direct.run("INSERT INTO keyless VALUES (500, 'direct'), (500, 'direct')");
    direct.run("DELETE FROM keyless WHERE id = 1");
    direct.run("BEGIN; UPDATE keyed SET id = id + 1000 WHERE id > 90; TRUNCATE keyless; COMMIT");
    direct.run("BEGIN; DELETE FROM keyed; ROLLBACK");
    cluster.assert_equal("SELECT * FROM keyed ORDER BY id");
    cluster.assert_equal("SELECT * FROM keyless ORDER BY id");
    cluster.assert_verified();
    // As is what a direct function, trigger or COPY does.
    direct.run("INSERT INTO keyless SELECT g, g::text FROM generate_series(1, 5000) g");
    cluster.assert_equal("SELECT count(*), sum(id) FROM keyless");
}

/// A schema change typed at the primary itself is followed like any other.
#[test]
fn definitions_made_directly_on_the_primary_are_followed() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(2);
    cluster.direct("primary").run("ALTER TABLE keyed ADD COLUMN direct int");
    cluster.connect().run("UPDATE keyed SET v = 'x' WHERE id = 7");
    cluster.caught_up();
    cluster.assert_equal("SELECT * FROM keyed ORDER BY id");
    cluster.assert_verified();
}

/// A definition that differs at a replica stops it at the next command that touches it.
#[test]
fn a_definition_that_differs_stops_the_replica() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(2);
    tamper(&cluster, "replica1", "ALTER TABLE keyed ADD COLUMN planted int");
    cluster.connect().run("ALTER TABLE keyed ADD COLUMN extra int");
    expect_failed(&cluster, "replica1", &["public.keyed", "planted"]);
    // The primary and the other replica serve on.
    let mut session = cluster.connect();
    session.run("UPDATE keyed SET v = 'x' WHERE id = 7");
    assert_eq!(session.value("SELECT v FROM keyed WHERE id = 7"), "x");
    // Repaired by hand as the reason says, then RESUME.
    tamper(&cluster, "replica1", "ALTER TABLE keyed DROP COLUMN planted");
    cluster.command("RESUME REPLICA replica1");
    cluster.caught_up();
    cluster.assert_equal("SELECT * FROM keyed ORDER BY id");
}

/// Whatever it is that differs: the object is named, and what is different about it.
#[test]
fn every_kind_of_difference_stops_the_replica() {
    /// So many of them are shown to `verify`, too: up to a function's body.
    const VERIFIED: usize = 11;
    const PLANTED: &[(&str, &str, &str, &[&str])] = &[
        // What is done at the replica, what takes it back, what touches the object at the primary,
        // what is named.
        (
            "ALTER TABLE t ALTER v TYPE varchar(9)",
            "ALTER TABLE t ALTER v TYPE text",
            "COMMENT ON COLUMN t.n IS 'touched'",
            &["table public.t", "varying(9)"],
        ),
        (
            "ALTER TABLE t ALTER n SET DEFAULT 8",
            "ALTER TABLE t ALTER n SET DEFAULT 7",
            "ALTER TABLE t ALTER v SET STORAGE PLAIN",
            &["table public.t", "default 8"],
        ),
        (
            "ALTER TABLE t DROP CONSTRAINT positive",
            "ALTER TABLE t ADD CONSTRAINT positive CHECK (n > 0)",
            "ALTER TABLE t SET (fillfactor = 90)",
            &["table public.t", "positive"],
        ),
        (
            "GRANT DELETE ON t TO joe",
            "REVOKE DELETE ON t FROM joe",
            "GRANT INSERT ON t TO joe",
            &["table public.t", "DELETE"],
        ),
        (
            "ALTER TABLE t DISABLE TRIGGER tr",
            "ALTER TABLE t ENABLE TRIGGER tr",
            "CREATE INDEX ON t (n)",
            &["table public.t", "trigger tr", "tf() off"],
        ),
        (
            "CREATE POLICY other ON t USING (true)",
            "DROP POLICY other ON t",
            "ALTER POLICY mine ON t RENAME TO yours",
            &["table public.t", "other"],
        ),
        (
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
            "ALTER TABLE t RENAME v TO w",
            &["table public.t", "row security"],
        ),
        (
            "COMMENT ON TABLE t IS 'other'",
            "COMMENT ON TABLE t IS 'mine'",
            "ALTER TABLE t ALTER n SET NOT NULL",
            &["table public.t", "other"],
        ),
        (
            "DROP INDEX i; CREATE INDEX i ON t (n DESC)",
            "DROP INDEX i; CREATE INDEX i ON t (n)",
            "ALTER TABLE t ALTER n SET STATISTICS 50",
            &["table public.t", "DESC"],
        ),
        (
            "ALTER TABLE t OWNER TO joe",
            "ALTER TABLE t OWNER TO postgres; GRANT INSERT ON t TO joe",
            "ALTER INDEX i RENAME TO j",
            &["table public.t", "joe"],
        ),
        (
            "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 2'",
            "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "GRANT EXECUTE ON FUNCTION f() TO joe",
            &["function public.f()", "SELECT 2"],
        ),
        (
            "CREATE OR REPLACE VIEW w AS SELECT 2 AS one",
            "CREATE OR REPLACE VIEW w AS SELECT 1 AS one",
            "COMMENT ON VIEW w IS 'touched'",
            &["view public.w", "2"],
        ),
        (
            "ALTER SEQUENCE s INCREMENT 5",
            "ALTER SEQUENCE s INCREMENT 1",
            "ALTER SEQUENCE s MAXVALUE 100",
            &["sequence public.s"],
        ),
        (
            "ALTER TYPE e RENAME VALUE 'b' TO 'c'",
            "ALTER TYPE e RENAME VALUE 'c' TO 'b'",
            "ALTER TYPE e ADD VALUE 'd'",
            &["type public.e", "c"],
        ),
        (
            "ALTER DOMAIN d SET DEFAULT 3",
            "ALTER DOMAIN d DROP DEFAULT",
            "ALTER DOMAIN d ADD CONSTRAINT small CHECK (VALUE < 9)",
            &["public.d", "3"],
        ),
        (
            "ALTER SCHEMA other OWNER TO joe",
            "ALTER SCHEMA other OWNER TO postgres",
            "GRANT USAGE ON SCHEMA other TO joe",
            &["schema other", "joe"],
        ),
        (
            "ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO joe",
            "ALTER DEFAULT PRIVILEGES REVOKE DELETE ON TABLES FROM joe",
            "ALTER DEFAULT PRIVILEGES GRANT INSERT ON TABLES TO joe",
            &["default", "DELETE"],
        ),
        // What is revoked was all that there is at the primary, whose row goes.
        (
            "ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO joe",
            "ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM joe",
            "ALTER DEFAULT PRIVILEGES REVOKE INSERT ON TABLES FROM joe",
            &["default", "the primary has none"],
        ),
        (
            "ALTER DEFAULT PRIVILEGES IN SCHEMA other GRANT DELETE ON TABLES TO PUBLIC",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA other REVOKE ALL ON TABLES FROM PUBLIC",
            "DROP OWNED BY jim",
            &["default", "other", "the primary has none"],
        ),
        (
            "REVOKE DELETE ON TABLE t FROM postgres",
            "GRANT DELETE ON TABLE t TO postgres; REVOKE ALL ON TABLE t FROM joe",
            "DROP OWNED BY joe",
            &["table public.t", "DELETE"],
        ),
        // Rows that a CHECK finds, also beside one that only the primary can ask.
        (
            "INSERT INTO rows VALUES (1, 7)",
            "DELETE FROM rows",
            "ALTER TABLE rows ADD CONSTRAINT few CHECK (d < 7)",
            &["ALTER TABLE rows", "few"],
        ),
        (
            "INSERT INTO rows VALUES (1, 6)",
            "DELETE FROM rows",
            "ALTER TABLE rows ADD CHECK (current_setting('application_name') <> 'hihooi'), \
             ADD CONSTRAINT fewer CHECK (d < 6)",
            &["ALTER TABLE rows"],
        ),
        (
            "INSERT INTO rows VALUES (1, 5)",
            "DELETE FROM rows",
            "ALTER DOMAIN d ADD CONSTRAINT tiny CHECK (VALUE < 5)",
            &["ALTER DOMAIN d"],
        ),
    ];
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(1);
    let mut session = cluster.connect();
    session.run(
        "CREATE ROLE joe; CREATE TABLE t (id int PRIMARY KEY, v text, n int DEFAULT 7); \
         ALTER TABLE t ADD CONSTRAINT positive CHECK (n > 0); COMMENT ON TABLE t IS 'mine'; \
         CREATE INDEX i ON t (n); CREATE POLICY mine ON t USING (false); \
         CREATE FUNCTION tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; \
         CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tf(); \
         CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; \
         CREATE VIEW w AS SELECT 1 AS one; CREATE SEQUENCE s; CREATE TYPE e AS ENUM ('a', 'b'); \
         CREATE DOMAIN d AS int; CREATE SCHEMA other; CREATE TABLE rows (id int PRIMARY KEY, d d); \
         CREATE ROLE jim; ALTER DEFAULT PRIVILEGES IN SCHEMA other GRANT SELECT ON TABLES TO jim",
    );
    cluster.caught_up();
    for (number, (plant, undo, touch, named)) in PLANTED.iter().enumerate() {
        let mut replica = cluster.repair("replica1");
        replica.run(plant);
        if number < VERIFIED {
            let (is_equal, told) = cluster.run_verify();
            let is_told = named[1..].iter().all(|word| told.contains(word));
            assert!(!is_equal && is_told, "{plant}: verify says {told}");
        }
        session.run(touch);
        eventually(&format!("{plant}, then {touch}: failed, naming {named:?}"), || {
            let row =
                cluster.show_replicas().remove("replica1").expect("a failed replica is shown");
            row["state"] == "failed" && named.iter().all(|word| row["reason"].contains(word))
        });
        replica.run(undo);
        cluster.command("RESUME REPLICA replica1");
        cluster.caught_up();
    }
    cluster.assert_verified();
    // No command touches what belongs to the whole server at a replica.
    for (plant, undo, named) in [
        ("ALTER ROLE joe CREATEDB", "ALTER ROLE joe NOCREATEDB", "role joe"),
        ("GRANT joe TO jim", "REVOKE joe FROM jim", "joe"),
        ("ALTER ROLE joe SET work_mem = '1MB'", "ALTER ROLE joe RESET ALL", "settings of role joe"),
        (
            "ALTER DATABASE postgres SET work_mem = '1MB'",
            "ALTER DATABASE postgres RESET ALL",
            "settings of",
        ),
        (
            "GRANT CREATE ON DATABASE postgres TO joe",
            "REVOKE CREATE ON DATABASE postgres FROM joe",
            "database",
        ),
        ("CREATE ROLE third", "DROP ROLE third", "role third"),
    ] {
        cluster.repair("replica1").run(plant);
        let (is_equal, told) = cluster.run_verify();
        assert!(!is_equal && told.contains(named), "{plant}: verify says {told}");
        cluster.repair("replica1").run(undo);
        let (is_equal, told) = cluster.run_verify();
        assert!(is_equal, "behind {undo}: verify says {told}");
    }
}

/// So is one that is hidden in a DO block.
#[test]
fn definitions_hidden_in_a_block_are_followed() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(1);
    let mut session = cluster.connect();
    session.run("DO $$ BEGIN EXECUTE 'CREATE TABLE hidden (id int PRIMARY KEY)'; END $$");
    session.run("INSERT INTO hidden VALUES (1)");
    assert_eq!(session.value("SELECT id FROM hidden"), "1");
    cluster.caught_up();
    cluster.assert_equal("SELECT * FROM hidden");
}

/// What notes DDL is gone or disabled for a while: no replica is read until it is known to lack nothing,
/// and DDL is noted again (I2).
#[test]
fn ddl_that_nobody_noted_is_suspected() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(1);
    let suspected = || {
        let row = cluster.show_replicas().remove("replica1").expect("a replica");
        let ours = "SELECT count(*) FROM pg_event_trigger WHERE evtname ~ '^[!~]hihooi' AND evtenabled = 'A'";
        row["state"] == "different"
            && row["reason"].contains("run VERIFY")
            && cluster.direct("primary").number(ours) == 7
    };
    // (It may be suspected once more, right behind a verification.)
    let until_trusted = || {
        eventually("the replica is trusted again", || {
            let (equal, text) = cluster.run_verify();
            assert!(equal, "{text}");
            cluster.state("replica1") == "serving"
        });
    };
    let is_noted_again = |table: &str| {
        until_trusted();
        cluster.connect().run(&format!("CREATE TABLE {table} (id int PRIMARY KEY)"));
        until_trusted();
        cluster.direct("replica1").run(&format!("SELECT * FROM {table}"));
    };

    // Nothing of ours is left to notice it.
    cluster.direct("primary").run("DROP SCHEMA hihooi CASCADE");
    cluster.direct("primary").run("CREATE INDEX missed ON keyed (v)");
    eventually("the replica is suspected", suspected);
    let (equal, text) = cluster.run_verify();
    assert!(!equal && text.contains("missed"), "{text}");
    tamper(&cluster, "replica1", "CREATE INDEX missed ON keyed (v)");
    is_noted_again("noted1");

    let disable = "ALTER EVENT TRIGGER \"!hihooi_2_end\" DISABLE";
    cluster.direct("primary").run(disable);
    eventually("the replica is suspected", suspected);
    is_noted_again("noted2");

    // While nobody looks.
    cluster.kill_manager();
    cluster.direct("primary").run("DROP EVENT TRIGGER \"!hihooi_2_drop\"");
    cluster.up_without_waiting_for_all();
    eventually("the replica is suspected", suspected);
    is_noted_again("noted3");
    cluster.kill_manager();
    cluster.up();
    until_serving(&cluster, "replica1");
}

/// Who changes rows of a catalog itself goes behind the back of everything that notes commands (I2).
#[test]
fn catalogs_that_are_written_to_stop_the_replicas() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(1);
    let mut session = cluster.connect();
    session.run("CREATE FUNCTION answer() RETURNS int LANGUAGE sql AS 'SELECT 41'; CREATE TYPE mood AS ENUM ('sad')");
    cluster.caught_up();
    // (The third is noted in front of its first command.)
    let by_hand: [(&[&str], &str); 5] = [
        (&["UPDATE pg_proc SET prosrc = 'SELECT 42' WHERE proname = 'answer'"], "answer() differs"),
        (
            &["BEGIN", "UPDATE pg_enum SET enumlabel = 'glad' WHERE enumlabel = 'sad'", "COMMIT"],
            "mood differs",
        ),
        (
            &["BEGIN; UPDATE pg_constraint SET conname = 'k' WHERE conname = 'keyed_pkey'; \
               CREATE TEMPORARY TABLE behind (id int); COMMIT"],
            "changed rows of pg_constraint itself",
        ),
        (
            &["DO $$ BEGIN UPDATE pg_class SET reloptions = '{fillfactor=70}' \
               WHERE relname = 'keyed'; END $$"],
            "keyed differs",
        ),
        (&["DELETE FROM pg_enum WHERE enumlabel = 'glad'"], "changed rows of pg_enum itself"),
    ];
    for (texts, named) in by_hand {
        let newest = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
        let before = cluster.direct("primary").number(newest);
        for text in texts {
            session.run(text);
        }
        let after = cluster.direct("primary").number(newest);
        expect_failed(&cluster, "replica1", &[named, "RESUME REPLICA"]);
        let reason = cluster.show_replicas()["replica1"]["reason"].clone();
        if named.contains("itself") {
            let number =
                reason.split_once("transaction ").and_then(|(_, told)| told.split(' ').next());
            let number: i64 = number.and_then(|number| number.parse().ok()).expect("it is named");
            assert!((before..after).contains(&number), "{before} to {after}: {reason}");
        }
        tamper(&cluster, "replica1", &texts.join("; "));
        cluster.command("RESUME REPLICA replica1");
        until_serving(&cluster, "replica1");
    }
    session.run(
        "CREATE ROLE owner; CREATE FUNCTION owned() RETURNS int LANGUAGE sql AS 'SELECT 1'; \
         CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq); \
         ALTER FUNCTION owned() OWNER TO owner; ALTER OPERATOR === (int, int) OWNER TO owner",
    );
    session.run("REASSIGN OWNED BY owner TO postgres");
    session
        .run("UPDATE pg_class SET reltuples = 10 WHERE relname = 'keyed' OR relname = 'pg_depend'");
    session.run("UPDATE pg_class SET reltuples = 10 WHERE relname = 'nobody'");
    // Commands of all kinds write there as well, some of which keep a catalog locked, or tell no event.
    session
        .run("CREATE ROLE hand; COMMENT ON ROLE hand IS 'x'; ALTER ROLE hand SET work_mem = '1MB'");
    session.run("BEGIN; ALTER FUNCTION answer() STABLE; ALTER SCHEMA public RENAME TO p; ALTER SCHEMA p RENAME TO public; COMMIT");
    session.run("BEGIN; TRUNCATE keyed; ANALYZE keyed; SELECT lo_create(0); REASSIGN OWNED BY hand TO postgres; COMMIT");
    session.run("DO $$ BEGIN TRUNCATE keyed; EXECUTE 'DROP ROLE hand'; END $$");
    session.run("BEGIN; SAVEPOINT s; UPDATE pg_proc SET prosrc = '' WHERE proname = 'answer'; ROLLBACK TO s; \
        INSERT INTO keyed VALUES (1002, 'y'); SELECT answer(); COMMIT");
    session.run("BEGIN; UPDATE pg_proc SET prosrc = '' WHERE proname = 'answer'; ROLLBACK");
    cluster.caught_up();
    until_serving(&cluster, "replica1");
    cluster.assert_verified();
}

/// PostgreSQL prints definitions as they are now, not as they are in a snapshot.
#[test]
fn verify_tells_ddl_beside_it_from_differences() {
    const EACH: u32 = 12;
    const VERIFICATIONS: u32 = 4;
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(2);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = cluster.connect();
            while !is_over.load(Ordering::Relaxed) {
                for text in
                    ["CREATE SCHEMA s$; CREATE TABLE s$.t (id int)", "DROP SCHEMA s$ CASCADE"]
                {
                    for number in 0..EACH {
                        session.run(&text.replace('$', &number.to_string()));
                        thread::sleep(ms(10));
                    }
                    // On a busy machine a replica would fall back, and VERIFY wait for it.
                    while most_behind(&cluster) > u64::from(EACH)
                        && !is_over.load(Ordering::Relaxed)
                    {
                        thread::sleep(ms(50));
                    }
                }
            }
        });
        let _over = Over(&is_over);
        for _ in 0..VERIFICATIONS {
            let (equal, text) = cluster.run_verify();
            assert!(equal, "verify took DDL for a difference: {text}");
        }
        tamper(&cluster, "replica1", "ALTER TABLE keyed ALTER v SET DEFAULT 'mine'");
        let (equal, text) = cluster.run_verify();
        assert!(!equal && text.contains("keyed"), "verify missed a default: {text}");
    });
}

/// Entries that the last replica is behind.
fn most_behind(cluster: &Cluster) -> u64 {
    let replicas = cluster.show_replicas();
    let lags = replicas.values().map(|replica| replica["lag_entries"].parse().unwrap_or(u64::MAX));
    lags.max().expect("a replica")
}

/// Tells a thread that the test is over, also when it failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Nobody makes a replica differ by mistake at its own port: not a superuser, not in BEGIN READ WRITE as far
/// as definitions go. Who means it says so (docs/differences.md).
#[test]
fn a_replicas_own_port_takes_no_ordinary_writes() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = start(1);
    cluster.connect().run("CREATE ROLE app LOGIN; GRANT ALL ON keyed TO app");
    cluster.caught_up();
    let refuses = || {
        let site = cluster.site("replica1");
        for user in [harness::USER, "app"] {
            let mut session =
                Session::open(site.port, &[("user", user), ("database", harness::DATABASE)])
                    .expect("a session at the replica");
            for text in [
                "INSERT INTO keyed VALUES (7000, 'here')",
                "UPDATE keyed SET v = 'here'",
                "TRUNCATE keyed",
                "CREATE TABLE here (id int)",
                "DROP TABLE keyed",
                "DO $$ BEGIN DELETE FROM keyed; END $$",
                "BEGIN READ WRITE; CREATE TABLE here (id int)",
                "ROLLBACK; BEGIN READ WRITE; ALTER TABLE keyed ADD here int",
            ] {
                let code = session.error(text).code().to_owned();
                let is_owners = user == "app" && code == "42501";
                assert!(code == "25006" || is_owners, "{user}: {text}: {code}");
            }
        }
    };
    refuses();
    // A server that doesn't have the setting from `up`.
    let mut session = cluster.direct("replica1");
    session.run("ALTER SYSTEM SET default_transaction_read_only = off");
    session.run("SELECT pg_reload_conf()");
    session.close();
    cluster.kill_manager();
    cluster.serve();
    eventually("it is read-only again", || {
        cluster.direct("replica1").value("SHOW default_transaction_read_only") == "on"
    });
    refuses();
    let mut session = cluster.repair("replica1");
    session.run("CREATE TABLE here (id int); DROP TABLE here");
    session.close();
    cluster.assert_verified();
}
