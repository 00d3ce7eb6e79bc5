//! What a role without rights may do at the primary is all that it may do at replicas, although
//! replicas are written by a superuser.

use crate::harness::{alone, eventually, shared, target_is_plain};

/// Tries by all ways to become the superuser who carries out its owner's DDL, and if that works
/// makes its owner one. A refusal is what happens at the primary, and makes no difference.
const GREEDY: &str = "CREATE FUNCTION greedy.g() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE way text;
BEGIN
    FOREACH way IN ARRAY ARRAY[
        'SELECT 1',
        'RESET SESSION AUTHORIZATION',
        'SET SESSION AUTHORIZATION DEFAULT',
        'SET SESSION AUTHORIZATION postgres',
        'RESET ROLE',
        'SET ROLE postgres',
        'SELECT set_config(''session_authorization'', ''postgres'', false)',
        'SELECT set_config(''role'', ''postgres'', true)',
        'UPDATE pg_settings SET setting = ''postgres'' WHERE name = ''session_authorization''',
        'RESET ALL',
        'DISCARD ALL']
    LOOP
        BEGIN
            EXECUTE way;
            ALTER ROLE greedy SUPERUSER;
            RETURN true;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
    RETURN true;
END $$";

/// The same where only what calls itself immutable may stand.
const INNOCENT: &str = "CREATE FUNCTION greedy.f(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql \
     AS $$ BEGIN RETURN greedy.g(); END $$";

/// DDL that runs functions of its role at a replica, where it is carried out in a superuser's
/// connection, gives the role nothing (manual, SET SESSION AUTHORIZATION: who logged in as a
/// superuser may take back what it gave up, also within a function).
#[test]
fn ddl_runs_functions_as_their_role_and_nobody_else() {
    let _alone = alone();
    let cluster = shared();
    let mut root = cluster.connect();
    root.run("CREATE ROLE greedy LOGIN; CREATE SCHEMA greedy AUTHORIZATION greedy");
    root.run("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC");
    let mut greedy = cluster.connect_with(&[("user", "greedy")]);
    greedy.run("CREATE TABLE greedy.t (id int PRIMARY KEY); INSERT INTO greedy.t VALUES (1)");
    greedy.run("CREATE DOMAIN greedy.number AS int");
    greedy.run("CREATE TABLE greedy.d (id int PRIMARY KEY, n greedy.number)");
    greedy.run("INSERT INTO greedy.d VALUES (1, 1)");
    greedy.run(GREEDY);
    greedy.run(INNOCENT);
    for ddl in [
        "ALTER TABLE greedy.t ADD CHECK (greedy.f(id))",
        "ALTER TABLE greedy.t ADD COLUMN g boolean GENERATED ALWAYS AS (greedy.f(id)) STORED",
        "ALTER DOMAIN greedy.number ADD CHECK (greedy.f(VALUE))",
        "CREATE TABLE greedy.parts (id int) PARTITION BY LIST (greedy.f(id))",
        "CREATE TABLE greedy.part PARTITION OF greedy.parts FOR VALUES IN (greedy.f(1))",
        "CREATE INDEX ON greedy.t (id) WHERE greedy.f(2)",
        "CREATE MATERIALIZED VIEW greedy.v AS SELECT greedy.f(id) FROM greedy.t",
        "CREATE TABLE greedy.c AS SELECT greedy.f(1) AS f",
        "SELECT greedy.f(1) AS f INTO greedy.i",
    ] {
        greedy.run(ddl);
        assert_nobody("greedy", ddl);
    }
    cluster.assert_schema_equal("greedy");
}

/// The same for rows: what tables compute and check when a row comes.
#[test]
fn rows_run_functions_as_the_owner_and_nobody_else() {
    let _alone = alone();
    let cluster = shared();
    let mut root = cluster.connect();
    root.run("CREATE ROLE greedy2 LOGIN; CREATE SCHEMA greedy2 AUTHORIZATION greedy2");
    let mut greedy = cluster.connect_with(&[("user", "greedy2")]);
    greedy.run("CREATE TABLE greedy2.t (id int PRIMARY KEY)");
    greedy.run(&GREEDY.replace("greedy", "greedy2"));
    greedy.run(&INNOCENT.replace("greedy", "greedy2"));
    greedy.run("ALTER TABLE greedy2.t ADD CHECK (greedy2.f(id))");
    greedy.run("INSERT INTO greedy2.t VALUES (1)");
    assert_nobody("greedy2", "INSERT");
    // The planner puts an operator's negator in place of NOT.
    greedy.run(
        "CREATE FUNCTION greedy2.h(int, int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql \
         AS $$ BEGIN RETURN greedy2.g(); END $$",
    );
    greedy.run(
        "CREATE OPERATOR greedy2.=== (leftarg = int, rightarg = int, function = int4eq, \
         negator = OPERATOR(greedy2.!===))",
    );
    greedy.run(
        "CREATE OPERATOR greedy2.!=== (leftarg = int, rightarg = int, function = greedy2.h, \
         negator = OPERATOR(greedy2.===))",
    );
    greedy.run(
        "CREATE TABLE greedy2.n (id int PRIMARY KEY, v int, \
         CHECK (NOT (v OPERATOR(greedy2.===) id)))",
    );
    greedy.run("INSERT INTO greedy2.n VALUES (1, 2)");
    assert_nobody("greedy2", "INSERT with a negator");
    // A rule that isn't a view's, but is called so.
    greedy.run("CREATE TABLE greedy2.r (id int PRIMARY KEY)");
    greedy.run("CREATE RULE x AS ON INSERT TO greedy2.r DO ALSO SELECT greedy2.g()");
    greedy.run("ALTER RULE x ON greedy2.r RENAME TO \"_RETURN\"");
    greedy.run("ALTER TABLE greedy2.r ENABLE ALWAYS RULE \"_RETURN\"");
    greedy.run("INSERT INTO greedy2.r VALUES (1)");
    assert_nobody("greedy2", "INSERT with a rule");
    greedy.run("UPDATE greedy2.t SET id = 2");
    greedy.run("INSERT INTO greedy2.t SELECT generate_series(3, 100)");
    assert_nobody("greedy2", "COPY");
    greedy.run("DELETE FROM greedy2.t WHERE id < 50");
    greedy.run("TRUNCATE greedy2.t");
    assert_nobody("greedy2", "TRUNCATE");
    cluster.assert_equal("SELECT * FROM greedy2.t");
}

/// What a role can have its functions run by: planning a query on a table or materialized view runs
/// immutable ones with constant arguments, also for a transaction that only reads.
const TRAPS: &str = "CREATE TABLE greedy3.t (id int PRIMARY KEY, v int);
    CREATE TABLE greedy3.g (id int PRIMARY KEY, v int GENERATED ALWAYS AS (greedy3.n(id)) STORED);
    INSERT INTO greedy3.t VALUES (1, 1);
    INSERT INTO greedy3.g VALUES (1);
    CREATE MATERIALIZED VIEW greedy3.m AS SELECT id FROM greedy3.t;
    CREATE INDEX ON greedy3.t (id) WHERE greedy3.f(2);
    CREATE INDEX ON greedy3.t ((greedy3.n(3)));
    CREATE INDEX ON greedy3.g (id) WHERE greedy3.f(4);
    CREATE INDEX ON greedy3.m (id) WHERE greedy3.f(5);
    CREATE STATISTICS greedy3.s ON (greedy3.n(6) + id), id FROM greedy3.t;
    ALTER TABLE greedy3.t ADD CHECK (greedy3.f(7));
    CREATE POLICY p ON greedy3.t USING (greedy3.f(8));
    ALTER TABLE greedy3.t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY";

/// Fails for everybody but its owner, and for its owner too if that can become somebody else.
const SPRUNG: &str =
    "CREATE OR REPLACE FUNCTION greedy3.spring() RETURNS void LANGUAGE plpgsql AS $$
DECLARE way text;
BEGIN
    FOREACH way IN ARRAY ARRAY['SELECT 1', 'RESET SESSION AUTHORIZATION',
        'SET SESSION AUTHORIZATION DEFAULT', 'RESET ROLE', 'SET ROLE NONE', 'SET ROLE postgres']
    LOOP
        BEGIN
            EXECUTE way;
        EXCEPTION WHEN insufficient_privilege OR invalid_parameter_value THEN
            NULL;
        END;
        IF current_user <> 'greedy3' THEN
            RAISE '% ran a function of greedy3', current_user;
        END IF;
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION greedy3.f(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
    'BEGIN PERFORM greedy3.spring(); RETURN true; END'";

/// `hihooi verify` reads what roles made, and runs nothing of theirs but as themselves, at the
/// primary least of all.
#[test]
fn verifying_runs_no_functions_as_superuser() {
    let _alone = alone();
    let cluster = shared();
    let mut root = cluster.connect();
    root.run("CREATE ROLE greedy3 LOGIN; CREATE SCHEMA greedy3 AUTHORIZATION greedy3");
    let mut greedy = cluster.connect_with(&[("user", "greedy3")]);
    // (A generated column's function can't be changed while there are rows. Nobody sees that this one calls another.)
    greedy.run(
        "CREATE FUNCTION greedy3.spring() RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
         CREATE FUNCTION greedy3.f(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN true; END';
         CREATE FUNCTION greedy3.n(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
             $$ BEGIN EXECUTE 'SELECT greedy3.spr' || 'ing()'; RETURN $1; END $$",
    );
    for ddl in TRAPS.split(';') {
        greedy.run(ddl);
    }

    greedy.run(SPRUNG);
    cluster.caught_up();
    let sprung = root.error("SELECT FROM greedy3.t");
    assert!(sprung.message().contains("postgres ran a function"), "{sprung}");
    let (equal, text) = cluster.run_verify();
    assert!(equal, "{text}");
    assert!(
        ["t", "g", "m"].iter().all(|t| text.contains(&format!("greedy3.{t}: 1 rows: equal"))),
        "{text}"
    );
    root.run("DROP SCHEMA greedy3 CASCADE; DROP ROLE greedy3");
}

/// A login may become another role at once, as groups that own a schema have it; even the superuser that hihooi is.
#[test]
fn roles_that_become_others_at_login_can_log_in() {
    let _alone = alone();
    let mut root = shared().connect();
    root.run("CREATE ROLE group_owner; CREATE ROLE member LOGIN IN ROLE group_owner");
    root.run(
        "ALTER ROLE member SET role = 'group_owner'; ALTER ROLE postgres SET role = 'group_owner'",
    );
    shared().caught_up();
    let mut member = shared().connect_with(&[("user", "member")]);
    assert_eq!(member.value("SELECT current_user || ' ' || session_user"), "group_owner member");
    let mut owner = shared().connect();
    assert_eq!(owner.value("SELECT current_user"), "group_owner");
    owner.run("RESET ROLE; SET ROLE postgres; CREATE TABLE made_as_postgres (id int)");
    owner.run("DROP TABLE made_as_postgres; ALTER ROLE postgres RESET role");
    root.run("ALTER ROLE member RESET role; DROP ROLE member; DROP ROLE group_owner");
    shared().caught_up();
}

/// The objects of an extension have the default privileges that were in force when its transaction committed.
#[test]
fn extensions_objects_get_no_other_privileges_at_replicas() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let (mut maker, mut other) = (shared().connect(), shared().connect());
    let available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'hstore'";
    if maker.number(available) == 0 {
        return;
    }
    maker
        .run("DROP EXTENSION IF EXISTS hstore; DROP ROLE IF EXISTS favoured; CREATE ROLE favoured");
    maker.run("BEGIN; CREATE EXTENSION hstore");
    let waits = std::thread::spawn(move || {
        other.run("ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO favoured");
        other.run("CREATE FUNCTION behind_it() RETURNS int LANGUAGE sql AS 'SELECT 1'");
    });
    eventually("it waits, or has not", || {
        waits.is_finished() || shared().direct("primary").number(WAITS) > 0
    });
    maker.run("COMMIT");
    waits.join().expect("it goes on");
    shared().caught_up();
    shared().assert_equal(
        "SELECT proname, proacl::text FROM pg_proc WHERE proname IN ('akeys', 'behind_it') ORDER BY 1",
    );
    maker.run("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM favoured");
    maker.run("DROP FUNCTION behind_it; DROP EXTENSION hstore; DROP ROLE favoured");
}

/// Who owns something is noted by the name that replicas have for the role by then, though it gets another one
/// meanwhile: two roles swap theirs.
#[test]
fn owners_are_noted_by_the_names_that_replicas_know() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let mut session = shared().connect();
    session.run("CREATE ROLE swaps_a; CREATE ROLE swaps_b; CREATE ROLE swaps_before");
    session.run("CREATE TABLE swapped (id int); ALTER TABLE swapped OWNER TO swaps_before");
    // No event tells of this, and nobody asks before two seconds are over.
    let mut direct = shared().direct("primary");
    direct.run("BEGIN; REASSIGN OWNED BY swaps_before TO swaps_a");
    direct.run("COMMIT; BEGIN; SELECT hihooi.follow_owners()");
    let renaming = std::thread::spawn(move || {
        session.run(
            "DO $$ BEGIN
                ALTER ROLE swaps_a RENAME TO swaps_x;
                ALTER ROLE swaps_b RENAME TO swaps_a;
                ALTER ROLE swaps_x RENAME TO swaps_b;
            END $$",
        );
        session
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
    eventually("it waits, or has not", || {
        renaming.is_finished() || shared().direct("primary").number(waits) > 0
    });
    direct.run("COMMIT");
    let mut session = renaming.join().expect("it goes on");
    shared().caught_up();
    let owner = "SELECT relowner::regrole::text FROM pg_class WHERE relname = 'swapped'";
    assert_eq!(shared().assert_equal(owner).rows[0][0].as_deref(), Some("swaps_b"));
    session.run("DROP TABLE swapped; DROP ROLE swaps_a, swaps_b, swaps_before");
}

/// How many sessions wait for a lock of ours.
const WAITS: &str =
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'hihooi.owners'::regclass";

fn assert_nobody(role: &str, after: &str) {
    let is_super = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'");
    let answer = shared().assert_equal(&is_super);
    assert_eq!(answer.rows[0][0].as_deref(), Some("f"), "{after}");
}
