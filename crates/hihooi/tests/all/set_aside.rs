//! Tables whose rows can't be written at a replica: it goes on without them, and reads of them run on the primary.

use crate::harness::{
    Cluster, Options, Session, alone, assert_names, eventually, ms, target_is_plain,
};

/// Rows of `t` run a function that asks for a setting of the client's, in another function, so that nobody notices
/// before the first row.
const ASKING: &str = "
    CREATE SCHEMA app; CREATE TABLE app.u (id int PRIMARY KEY, v int);
    CREATE TABLE app.t (id int PRIMARY KEY, v int);
    CREATE FUNCTION app.asks() RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN current_setting(''app.x''); END';
    CREATE FUNCTION app.f(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
        'BEGIN PERFORM app.asks(); RETURN v; END';
    CREATE INDEX t_f ON app.t (app.f(v));
    INSERT INTO app.u VALUES (1, 0)";

fn start(replicas: usize) -> (Cluster, Session) {
    let cluster = Cluster::start(Options::replicas(replicas));
    let mut session = cluster.connect();
    session.run(ASKING);
    session.run("SET app.x = 'here'");
    cluster.caught_up();
    (cluster, session)
}

/// The site and reason of a read.
fn read(session: &mut Session, text: &str) -> (String, String, String) {
    let value = session.value(text);
    let route = session.route();
    (value, route.site().to_owned(), route.reason().to_owned())
}

fn set_aside(cluster: &Cluster, replica: &str) -> String {
    cluster.show_replicas()[replica]["tables_set_aside"].clone()
}

fn runs_at_replica(session: &mut Session, text: &str, value: &str) -> bool {
    let (found, site, _) = read(session, text);
    assert_eq!(found, value, "{text}");
    site.starts_with("replica")
}

/// I3: no read shows such a table as it was, neither alone nor beside what was written with it. All else goes on.
#[test]
fn a_replica_goes_on_without_rows_that_cannot_be_written_there() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let (cluster, mut session) = start(2);
    session.run("BEGIN; INSERT INTO app.t VALUES (1, 1); UPDATE app.u SET v = 1; COMMIT");
    cluster.caught_up();
    for replica in ["replica1", "replica2"] {
        assert_eq!(
            (cluster.state(replica), set_aside(&cluster, replica)),
            ("serving".into(), "1".into())
        );
        let reason = &cluster.show_replicas()[replica]["reason"];
        assert_names(reason, &["app.t", "set aside", "app.x", "INSERT app.t (id)=(1)"]);
    }
    for number in 2..5 {
        session.run(&format!(
            "BEGIN; INSERT INTO app.t VALUES ({number}, 1); UPDATE app.u SET v = {number}; COMMIT"
        ));
        let of_both = "SELECT count(*) + max(u.v) FROM app.t, app.u";
        let (value, site, _) = read(&mut session, of_both);
        assert_eq!((value, &*site), ((2 * number).to_string(), "primary"));
        // A function reads it, a view, and whoever doesn't care how old it is.
        session.run("SET hihooi.consistency = 'weak-si'");
        let (value, site, _) = read(&mut session, "SELECT count(*) FROM app.t");
        assert_eq!((value, &*site), (number.to_string(), "primary"));
        session.run("SET hihooi.consistency = 'gssi'");
    }
    cluster.caught_up();
    eventually("other tables are read there", || {
        runs_at_replica(&mut session, "SELECT v FROM app.u WHERE id = 1", "4")
    });
    assert_eq!(read(&mut session, "SELECT count(*) FROM app.t").2, "set_aside");
    // A snapshot from which anything may be read.
    eventually("that is why", || {
        session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let (value, site, reason) = read(&mut session, "SELECT v FROM app.u");
        assert_eq!((value, &*site), ("4".to_owned(), "primary"));
        assert_eq!(session.value("SELECT count(*) FROM app.t"), "4");
        session.run("COMMIT");
        reason == "set_aside"
    });
    let (is_equal, told) = cluster.run_verify();
    assert!(!is_equal && told.contains("INCOMPLETE") && !told.contains("DIFFERENT"), "{told}");
    assert_names(
        &told,
        &["app.t: 4 rows: not compared", "replica1 was not compared: app.t: set aside"],
    );

    // The next manager knows.
    cluster.kill_everything();
    cluster.up();
    let mut session = cluster.connect();
    assert_eq!(set_aside(&cluster, "replica1"), "1");
    let (value, site, _) = read(&mut session, "SELECT count(*) FROM app.t");
    assert_eq!((value, &*site), ("4".to_owned(), "primary"));
}

/// What empties it for all brings it back, with what its transaction writes behind that; so does a copy of the primary.
#[test]
fn a_table_that_was_set_aside_comes_back() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let (cluster, mut session) = start(1);
    session.run("INSERT INTO app.t VALUES (1, 1)");
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "1");
    session.run("DROP INDEX app.t_f");
    session.run("BEGIN; INSERT INTO app.t VALUES (2, 2); TRUNCATE app.t; INSERT INTO app.t VALUES (3, 3); COMMIT");
    session.run("INSERT INTO app.t VALUES (4, 4)");
    cluster.caught_up();
    eventually("none is set aside", || set_aside(&cluster, "replica1") == "0");
    cluster.assert_equal("SELECT * FROM app.t ORDER BY id");
    cluster.assert_verified();
    eventually("it is read there", || {
        runs_at_replica(&mut session, "SELECT count(*) FROM app.t", "2")
    });

    // Where it can't be written again, it is gone again.
    session.run(
        "TRUNCATE app.t; CREATE INDEX t_f ON app.t (app.f(v)); INSERT INTO app.t VALUES (5, 5)",
    );
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "1");
    session.run("BEGIN; TRUNCATE app.t; INSERT INTO app.t VALUES (6, 6); COMMIT");
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "1");
    let (value, site, _) = read(&mut session, "SELECT max(id) FROM app.t");
    assert_eq!((value, &*site), ("6".to_owned(), "primary"));

    // Renamed, it is the same; dropped, it is forgotten.
    session.run("ALTER TABLE app.t RENAME TO t2; INSERT INTO app.t2 VALUES (7, 7)");
    cluster.caught_up();
    assert_names(&cluster.show_replicas()["replica1"]["reason"], &["app.t2"]);
    session.run("DROP TABLE app.t2; CREATE TABLE app.t2 (id int); INSERT INTO app.t2 VALUES (1)");
    cluster.caught_up();
    eventually("it is forgotten", || set_aside(&cluster, "replica1") == "0");
    cluster.assert_verified();

    // Made and filled by one transaction.
    session.run(
        "BEGIN; CREATE TABLE app.t (id int, v int); CREATE INDEX ON app.t (app.f(v)); INSERT INTO app.t VALUES (1, 1);
         COMMIT",
    );
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "1");
    session.run("DROP INDEX app.t_f_idx");
    cluster.admin().run("REBUILD REPLICA replica1 FORCE");
    eventually("it serves", || cluster.state("replica1") == "serving");
    eventually("none is set aside", || set_aside(&cluster, "replica1") == "0");
    cluster.assert_verified();
}

/// Whatever a role's functions raise at replicas only, others' rows go on.
#[test]
fn what_functions_raise_stops_nobody_else() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE ROLE mallory; CREATE SCHEMA m AUTHORIZATION mallory; CREATE TABLE u (id int PRIMARY KEY)");
    session.run("SET ROLE mallory");
    session.run(
        "CREATE FUNCTION m.is_replica() RETURNS bool LANGUAGE plpgsql AS
             $$BEGIN RETURN current_setting('session_replication_role') = 'replica'; END$$",
    );
    for (number, code) in ["P0001", "40001", "53100", "57014"].iter().enumerate() {
        session.run(&format!(
            "CREATE FUNCTION m.f{number}(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
                 IF m.is_replica() THEN RAISE 'no' USING ERRCODE = '{code}'; END IF; RETURN v; END$$;
             CREATE TABLE m.t{number} (v int); CREATE INDEX ON m.t{number} (m.f{number}(v))"
        ));
        session.run(&format!("INSERT INTO m.t{number} VALUES (1)"));
        cluster.connect().run(&format!("INSERT INTO u VALUES ({number})"));
        eventually("it is set aside", || {
            set_aside(&cluster, "replica1") == (number + 1).to_string()
        });
        cluster.caught_up();
        assert_eq!(cluster.state("replica1"), "serving");
    }
    cluster.assert_equal("SELECT * FROM u ORDER BY id");
    // Nor does one that never ends, whatever is done to it, or keeps a lock beyond its transaction.
    session.run(
        "CREATE FUNCTION m.sleeps(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
             WHILE m.is_replica() LOOP
                 BEGIN PERFORM pg_sleep(1); EXCEPTION WHEN query_canceled THEN NULL; END;
             END LOOP;
             RETURN v; END$$;
         CREATE TABLE m.s (v int); CREATE INDEX ON m.s (m.sleeps(v));
         CREATE FUNCTION m.locks(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
             $$BEGIN IF m.is_replica() THEN PERFORM pg_advisory_lock(42); END IF; RETURN v; END$$;
         CREATE TABLE m.l (id int PRIMARY KEY, v int); CREATE INDEX ON m.l (m.locks(v))",
    );
    session.run("INSERT INTO m.s VALUES (1)");
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "5");
    std::thread::scope(|scope| {
        for number in 0..3 {
            let mut writer = cluster.connect();
            scope.spawn(move || {
                for id in 0..30 {
                    writer.run(&format!("INSERT INTO m.l VALUES ({}, 1)", 100 * number + id));
                }
            });
        }
    });
    cluster.caught_up();
    cluster.assert_equal("SELECT * FROM m.l ORDER BY id");
    // A temporary object is one that an applier must not find.
    session.run(
        "CREATE FUNCTION m.g(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
             IF m.is_replica() THEN
                 CREATE TEMPORARY TABLE left_behind (); END IF; RETURN v; END$$;
         CREATE TABLE m.g (v int); CREATE INDEX ON m.g (m.g(v))",
    );
    session.run("INSERT INTO m.g VALUES (1)");
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "6");
}

/// The mark is the table's, whatever names change hands in the transaction that fails.
#[test]
fn names_that_change_hands_hide_nothing() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let (cluster, mut session) = start(1);
    session.run(
        "CREATE TABLE app.b (id int PRIMARY KEY, v int); CREATE TABLE app.live (id int PRIMARY KEY, v int);
         CREATE TABLE app.fresh (id int PRIMARY KEY, v int); CREATE INDEX ON app.fresh (app.f(v));
         INSERT INTO app.b VALUES (1, 1); INSERT INTO app.live VALUES (1, 1)",
    );
    session.run(
        "BEGIN; DROP TABLE app.t; CREATE TABLE app.t (id int PRIMARY KEY, v int); CREATE INDEX ON app.t (app.f(v));
         INSERT INTO app.t VALUES (5, 5), (6, 6); COMMIT",
    );
    session.run(
        "BEGIN; ALTER TABLE app.b RENAME TO b_old; CREATE TABLE app.b (id int PRIMARY KEY, v int);
         CREATE INDEX ON app.b (app.f(v)); INSERT INTO app.b VALUES (5, 5), (6, 6); COMMIT",
    );
    session.run(
        "BEGIN; ALTER TABLE app.live RENAME TO dead; ALTER TABLE app.fresh RENAME TO live;
         INSERT INTO app.live VALUES (7, 7), (8, 8); COMMIT",
    );
    let check = |session: &mut Session| {
        cluster.caught_up();
        assert_eq!(set_aside(&cluster, "replica1"), "3");
        let (is_equal, told) = cluster.run_verify();
        assert!(!is_equal && !told.contains("DIFFERENT"), "{told}");
        for table in ["app.t", "app.b", "app.live"] {
            let (value, site, _) = read(session, &format!("SELECT count(*) FROM {table}"));
            assert_eq!((value, &*site), ("2".to_owned(), "primary"), "{table}");
        }
    };
    check(&mut session);
    session.run("DROP TABLE app.b_old, app.dead; INSERT INTO app.u VALUES (2, 2)");
    check(&mut session);
    // Made, filled, and dropped or renamed by one transaction.
    session.run(
        "BEGIN; CREATE TABLE app.x (v int); CREATE INDEX ON app.x (app.f(v)); INSERT INTO app.x VALUES (1);
         DROP TABLE app.x; CREATE TABLE app.y (v int); CREATE INDEX ON app.y (app.f(v)); INSERT INTO app.y VALUES (1);
         ALTER TABLE app.y RENAME TO z; CREATE TABLE app.y (v int); INSERT INTO app.y VALUES (1); COMMIT",
    );
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "4");
    cluster.assert_equal("SELECT * FROM app.y");
    let (value, site, _) = read(&mut session, "SELECT count(*) FROM app.z");
    assert_eq!((value, &*site), ("1".to_owned(), "primary"));
}

/// What the table's rows at the primary fulfil is not asked of rows that the replica no longer follows.
#[test]
fn a_table_that_is_set_aside_can_be_altered() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let (cluster, mut session) = start(1);
    session.run(
        "ALTER TABLE app.t ADD w int; CREATE TABLE app.parts (id int, v int, w int) PARTITION BY RANGE (id);
         CREATE FUNCTION app.slow() RETURNS int STABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.4); RETURN 1; END';
         CREATE FUNCTION app.rows() RETURNS int STABLE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM app.t); END'",
    );
    session.run("INSERT INTO app.u SELECT n FROM generate_series(2, 20) n");
    session
        .run("DROP INDEX app.t_f; INSERT INTO app.t SELECT n, 1, 1 FROM generate_series(1, 9) n");
    cluster.caught_up();
    session.run("CREATE INDEX t_f ON app.t (app.f(v)) WHERE v > 1");
    cluster.caught_up();
    let mut reader = cluster.connect();
    eventually("it is read there", || {
        runs_at_replica(&mut reader, "SELECT count(*) FROM app.t", "9")
    });
    std::thread::scope(|scope| {
        // It opens the table long after its answer has begun, and the table is no longer followed by then.
        let reads = scope.spawn(move || {
            reader.run(
                "SELECT CASE WHEN g = 12 THEN app.rows() ELSE app.slow() END, repeat('x', 9000)
                 FROM generate_series(1, 12) g",
            )
        });
        std::thread::sleep(ms(1000));
        session.run("INSERT INTO app.t VALUES (10, 2, NULL); UPDATE app.t SET w = id + 5");
        for change in [
            "ADD UNIQUE (w)",
            "ALTER w SET NOT NULL",
            "ADD CHECK (w > 5)",
            "ALTER w TYPE bigint USING w * 2",
        ] {
            session.run(&format!("ALTER TABLE app.t {change}"));
        }
        let rows = reads.join().expect("it reads").rows;
        assert_eq!(rows.last().expect("a row")[0].as_deref(), Some("9"), "nobody truncated it");
    });
    session.run("ALTER TABLE app.t ALTER w TYPE int, ADD FOREIGN KEY (id) REFERENCES app.u");
    session.run("DELETE FROM app.t WHERE id < 3");
    session.run("ALTER TABLE app.parts ATTACH PARTITION app.t FOR VALUES FROM (3) TO (99)");
    let serves = || {
        let replica = &cluster.show_replicas()["replica1"];
        (&*replica["state"], &*replica["lag_entries"], &*replica["tables_set_aside"])
            == ("serving", "0", "1")
    };
    eventually("the replica goes on", serves);
    let (value, site, _) = read(&mut session, "SELECT count(*) FROM app.parts");
    assert_eq!((value, &*site), ("8".to_owned(), "primary"));
}

/// A read that doesn't end keeps the rows that it may see, and thereby DDL from being applied. Ending it is less than replacing
/// the replica.
#[test]
fn an_old_read_of_a_table_that_is_set_aside_makes_way() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let (cluster, mut session) = start(1);
    session.run(
        "INSERT INTO app.u SELECT n, n / 9 FROM generate_series(2, 9) n; ALTER TABLE app.t ADD w int;
         CREATE FUNCTION app.slow(v int) RETURNS int STABLE LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_sleep(30 * v); RETURN 1; END'",
    );
    session
        .run("DROP INDEX app.t_f; INSERT INTO app.t SELECT n, 1, 1 FROM generate_series(1, 9) n");
    session.run("CREATE INDEX t_f ON app.t (app.f(v)) WHERE v > 1");
    cluster.caught_up();
    let mut reader = cluster.connect();
    eventually("it is read there", || {
        runs_at_replica(&mut reader, "SELECT count(*) FROM app.u", "9")
    });
    std::thread::scope(|scope| {
        let reads = scope.spawn(move || {
            reader
                .simple("SELECT app.slow(v), repeat('x', 9000) FROM app.u ORDER BY id")
                .map(|_| ())
        });
        std::thread::sleep(ms(1000));
        session.run("INSERT INTO app.t VALUES (10, 2, NULL); UPDATE app.t SET w = id");
        session.run("CREATE UNIQUE INDEX ON app.t (w)");
        let serves = || {
            let replica = &cluster.show_replicas()["replica1"];
            (&*replica["state"], &*replica["lag_entries"], &*replica["tables_set_aside"])
                == ("serving", "0", "1")
        };
        eventually("the replica goes on", serves);
        assert_eq!(cluster.show_replicas()["replica1"]["rebuilds"], "0");
        let error = reads.join().expect("it reads").expect_err("it had rows");
        assert_eq!(error.code(), "40001");
    });
}

/// No statement of ours runs functions of a table's owner with a superuser's rights.
#[test]
fn nobody_gets_rights_by_a_table_that_is_set_aside() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE ROLE eve; CREATE SCHEMA e AUTHORIZATION eve; SET ROLE eve");
    session.run(
        "CREATE FUNCTION e.up() RETURNS bool LANGUAGE plpgsql AS $$BEGIN
             IF current_setting('session_replication_role') = 'replica' THEN
                 BEGIN ALTER ROLE eve SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END;
                 RETURN true;
             END IF; RETURN false; END$$;
         CREATE FUNCTION e.f(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
             $$BEGIN IF e.up() AND v < 0 THEN RAISE 'no'; END IF; RETURN v; END$$",
    );
    for table in ["e.t", "e.referenced"] {
        session.run(&format!(
            "CREATE TABLE {table} (k int PRIMARY KEY, v int); CREATE INDEX ON {table} (e.f(v));
             CREATE INDEX ON {table} ((v + e.f(1))); CREATE INDEX ON {table} (k) WHERE e.f(2) > 1"
        ));
    }
    session.run("CREATE TABLE e.refers (k int REFERENCES e.referenced)");
    session.run("INSERT INTO e.t VALUES (1, 1), (2, 2); INSERT INTO e.referenced TABLE e.t");
    session.run("INSERT INTO e.t VALUES (9, -1); INSERT INTO e.referenced VALUES (9, -1)");
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "2");
    session.run("ALTER TABLE e.t ADD w int; ALTER TABLE e.referenced ADD w int");
    session.run("TRUNCATE e.t, e.referenced, e.refers");
    cluster.caught_up();
    eventually("none is set aside", || set_aside(&cluster, "replica1") == "0");
    let is_super = "SELECT rolsuper FROM pg_roles WHERE rolname = 'eve'";
    assert_eq!(cluster.direct("replica1").value(is_super), "f");
    cluster.assert_verified();
}

/// A value may be one that only the primary can read: a name of what exists there only.
#[test]
fn a_value_that_a_replica_cannot_read_sets_its_table_aside() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE r (id int PRIMARY KEY, r regclass); CREATE TABLE u (id int)");
    cluster.caught_up();
    session.run("CREATE TEMPORARY TABLE mine (a int); INSERT INTO r VALUES (1, 'mine'); INSERT INTO u VALUES (1)");
    cluster.caught_up();
    assert_eq!(
        (cluster.state("replica1"), set_aside(&cluster, "replica1")),
        ("serving".into(), "1".into())
    );
    cluster.assert_equal("SELECT * FROM u");
}

/// A table that is emptied runs functions of constants, which may fail; and a superuser's path may be empty.
#[test]
fn whatever_emptying_a_table_runs_stops_nobody() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE ROLE mallory; CREATE SCHEMA m AUTHORIZATION mallory; SET ROLE mallory");
    session.run(
        "CREATE FUNCTION m.is_replica() RETURNS bool LANGUAGE plpgsql AS
             $$BEGIN RETURN current_setting('session_replication_role') = 'replica'; END$$;
         CREATE TABLE m.flag (a int);
         CREATE FUNCTION m.f(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
             IF m.is_replica() AND EXISTS (SELECT FROM m.flag) THEN RAISE '%', repeat('no', 5000); END IF;
             RETURN v; END$$;
         CREATE TABLE m.t (a int, b int); CREATE INDEX ON m.t ((a + m.f(1))); INSERT INTO m.t VALUES (1, 1)",
    );
    cluster.caught_up();
    session.run("INSERT INTO m.flag VALUES (1); INSERT INTO m.t VALUES (2, 2)");
    cluster.caught_up();
    assert_eq!(set_aside(&cluster, "replica1"), "1");
    assert!(cluster.show_replicas()["replica1"]["reason"].len() < 3_000);
    session.run("CREATE TABLE m.u (a int); INSERT INTO m.u VALUES (1)");
    cluster.caught_up();
    cluster.assert_equal("SELECT * FROM m.u");

    session.run("RESET ROLE; CREATE ROLE admin SUPERUSER; ALTER ROLE admin SET search_path = ''");
    session.run("SET ROLE admin; CREATE FUNCTION public.f(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN v; END'");
    session.run("CREATE TABLE public.s (v int); CREATE INDEX ON public.s (public.f(v)); INSERT INTO public.s VALUES (1)");
    session.run("SELECT set_config('search_path', '\"A b\",pg_catalog , \"\"', false); ALTER ROLE admin SET search_path FROM CURRENT");
    session.run("SET search_path = public");
    session.run("CREATE TABLE public.s2 (v int); CREATE INDEX ON public.s2 (public.f(v)); INSERT INTO public.s2 VALUES (1)");
    cluster.caught_up();
    cluster.assert_equal("SELECT * FROM s, s2");
    assert_eq!(
        (cluster.state("replica1"), set_aside(&cluster, "replica1")),
        ("serving".into(), "1".into())
    );
}
