//! DDL in log order, exactly as the primary did it, as the role that did it (I2, I5, I6).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::harness::{Cluster, Options, alone, eventually, ms, shared, target_is_plain};

/// Runs a script of statements, a line each, in a schema of its own, after each checks that it
/// worked, at the end that definitions and rows are the same at every site.
fn replicated(schema: &str, lines: &str) {
    let _alone = alone();
    let cluster = shared();
    let mut session = cluster.connect();
    session.run(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"));
    session.run(&format!("SET search_path = {schema}"));
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // `!` in front: it must fail, and leave no trace.
        match line.strip_prefix('!') {
            Some(text) => drop(session.error(text)),
            None => drop(session.run(line)),
        }
        if session.status == 'I' && cluster.is_hihooi() {
            unfailed(cluster, line);
        }
    }
    cluster.assert_schema_equal(schema);
}

/// No replica stopped at a statement: asked at once, so that the statement can be named.
fn unfailed(cluster: &Cluster, line: &str) {
    for (site, row) in cluster.show_replicas() {
        assert_ne!(row["state"], "failed", "{site} failed at or before {line}: {}", row["reason"]);
    }
}

#[test]
fn tables_columns_and_constraints() {
    replicated(
        "ddl_tables",
        "CREATE TABLE t (id int PRIMARY KEY, v text DEFAULT 'x', n numeric(8,2) CHECK (n > 0))
        INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)
        ALTER TABLE t ADD COLUMN c int DEFAULT 7 NOT NULL
        INSERT INTO t (id) VALUES (3)
        ALTER TABLE t RENAME COLUMN c TO d
        UPDATE t SET d = 8 WHERE id = 1
        ALTER TABLE t DROP COLUMN n
        ALTER TABLE t ALTER v TYPE varchar(10), ALTER v SET DEFAULT 'y'
        INSERT INTO t (id) VALUES (4)
        ALTER TABLE t ALTER d TYPE bigint USING d * 10
        UPDATE t SET d = d + 1
        ALTER TABLE t ADD CONSTRAINT u UNIQUE (v, id)
        CREATE TABLE c (id int PRIMARY KEY, t int REFERENCES t ON DELETE SET NULL)
        INSERT INTO c VALUES (1, 1), (2, 2)
        DELETE FROM t WHERE id = 1
        ALTER TABLE c DROP CONSTRAINT c_t_fkey
        ALTER TABLE t DROP CONSTRAINT t_pkey
        INSERT INTO t VALUES (5, 'keyless', 5)
        UPDATE t SET v = 'updated' WHERE id = 5
        DELETE FROM t WHERE id = 4
        ALTER TABLE t ADD PRIMARY KEY (id)
        UPDATE t SET v = 'again' WHERE id = 5
        CREATE INDEX i ON t (v) WHERE d > 0
        CREATE UNIQUE INDEX CONCURRENTLY iu ON t (d, v)
        DROP INDEX CONCURRENTLY i
        REINDEX TABLE t
        ALTER TABLE t RENAME TO tt
        UPDATE tt SET v = 'renamed' WHERE id = 2
        CREATE TABLE like_tt (LIKE tt INCLUDING ALL)
        INSERT INTO like_tt SELECT * FROM tt
        CREATE TABLE gen (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a * 2) STORED)
        INSERT INTO gen (a) SELECT g FROM generate_series(1, 5) g
        UPDATE gen SET a = a + 1 WHERE id < 3
        CREATE TABLE s (id serial PRIMARY KEY, big bigserial)
        INSERT INTO s DEFAULT VALUES
        INSERT INTO s DEFAULT VALUES
        VACUUM FULL tt
        ANALYZE tt
        ALTER TABLE tt SET (fillfactor = 70)
        TRUNCATE c, gen RESTART IDENTITY
        ALTER TABLE c SET UNLOGGED
        INSERT INTO c VALUES (9)
        DROP TABLE c
        !DROP TABLE nosuch
        DROP TABLE IF EXISTS nosuch
        COMMENT ON TABLE tt IS 'a ''quoted'' comment'
        COMMENT ON COLUMN tt.v IS 'col'",
    );
}

#[test]
fn blocks_savepoints_and_failures() {
    replicated(
        "ddl_blocks",
        "BEGIN; CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1); ALTER TABLE a ADD b int; UPDATE a SET b = 2; COMMIT
        BEGIN; CREATE TABLE gone (id int); INSERT INTO gone VALUES (1); ROLLBACK
        !SELECT * FROM gone
        BEGIN
        CREATE TABLE kept (id int PRIMARY KEY)
        SAVEPOINT s
        CREATE TABLE undone (id int)
        INSERT INTO undone VALUES (1)
        ALTER TABLE kept ADD nope int
        ROLLBACK TO s
        INSERT INTO kept VALUES (1)
        SAVEPOINT s2
        ALTER TABLE kept ADD yes int DEFAULT 3
        RELEASE s2
        INSERT INTO kept VALUES (2, 5)
        COMMIT
        INSERT INTO kept VALUES (3)
        BEGIN
        ALTER TABLE kept ADD lost int
        !SELECT 1/0
        COMMIT
        INSERT INTO kept VALUES (4, 4)
        CREATE TABLE m1 (id int); CREATE TABLE m2 (id int); INSERT INTO m1 VALUES (1); INSERT INTO m2 SELECT * FROM m1
        !CREATE TABLE m3 (id int); INSERT INTO m3 VALUES (1); SELECT 1/0
        !SELECT * FROM m3
        !CREATE TABLE m1 (id int)
        CREATE TABLE IF NOT EXISTS m1 (other text)
        BEGIN; DROP TABLE m1; CREATE TABLE m1 (v text); INSERT INTO m1 VALUES ('new'); COMMIT
        BEGIN; SET LOCAL search_path = ddl_blocks, pg_catalog; CREATE TABLE local_path (id int); COMMIT
        BEGIN; CREATE TABLE two_phase (id int PRIMARY KEY); INSERT INTO two_phase VALUES (1); PREPARE TRANSACTION 'ddl'
        COMMIT PREPARED 'ddl'
        UPDATE two_phase SET id = 2",
    );
}

#[test]
fn rows_that_come_with_definitions() {
    replicated(
        "ddl_ctas",
        "CREATE TABLE src AS SELECT g AS id, g * 2 AS n FROM generate_series(1, 100) g
        CREATE TABLE c1 AS SELECT * FROM src WHERE id < 10
        CREATE TABLE c2 AS TABLE src WITH NO DATA
        INSERT INTO c2 SELECT * FROM src LIMIT 3
        SELECT * INTO c3 FROM src WHERE id > 90
        CREATE TABLE c4 (a, b) AS VALUES (1, 'x'), (2, 'y')
        BEGIN; CREATE TABLE c6 AS SELECT random() AS r FROM src; UPDATE c6 SET r = 1 - r; COMMIT
        CREATE TABLE c7 AS SELECT now() AS at, gen_random_uuid() AS u FROM src
        ALTER TABLE c1 ADD COLUMN fixed int DEFAULT 5
        UPDATE c1 SET fixed = 6 WHERE id = 1
        CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM src
        INSERT INTO src VALUES (1000, 1)
        REFRESH MATERIALIZED VIEW mv
        CREATE UNIQUE INDEX ON mv (n)
        REFRESH MATERIALIZED VIEW CONCURRENTLY mv
        DROP MATERIALIZED VIEW mv",
    );
}

#[test]
fn views_functions_triggers_types() {
    replicated(
        "ddl_objects",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')
        CREATE TABLE t (id int PRIMARY KEY, m mood)
        INSERT INTO t VALUES (1, 'sad')
        ALTER TYPE mood ADD VALUE 'happy' AFTER 'ok'
        INSERT INTO t VALUES (2, 'happy')
        ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'
        UPDATE t SET m = 'blue' WHERE id = 2
        CREATE TYPE pair AS (a int, b text)
        ALTER TYPE pair ADD ATTRIBUTE c int
        CREATE TABLE pairs (id int PRIMARY KEY, p pair, ps pair[])
        INSERT INTO pairs VALUES (1, ROW(1, 'x', 2), ARRAY[ROW(3, 'y', 4)::pair])
        CREATE DOMAIN positive AS int CHECK (VALUE > 0)
        CREATE TABLE d (id positive PRIMARY KEY)
        INSERT INTO d VALUES (3)
        !INSERT INTO d VALUES (-3)
        CREATE VIEW v AS SELECT id, m FROM t WHERE id > 0
        INSERT INTO v VALUES (3, 'ok')
        CREATE OR REPLACE VIEW v AS SELECT id, m, 1 AS one FROM t
        CREATE RECURSIVE VIEW nums (n) AS VALUES (1) UNION ALL SELECT n + 1 FROM nums WHERE n < 5
        CREATE FUNCTION f(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i + 1'
        CREATE OR REPLACE FUNCTION f(i int) RETURNS int LANGUAGE sql IMMUTABLE AS $body$ SELECT i + 2; $body$
        CREATE INDEX fi ON t (f(id))
        CREATE TABLE audit (id int, op text)
        CREATE FUNCTION aud() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES (NEW.id, TG_OP); NEW.m := 'happy'; RETURN NEW; END $$
        CREATE TRIGGER tr BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION aud()
        INSERT INTO t VALUES (4, 'ok')
        UPDATE t SET m = 'ok' WHERE id = 1
        ALTER TABLE t ENABLE ALWAYS TRIGGER tr
        INSERT INTO t VALUES (5, 'ok')
        ALTER TABLE t ENABLE REPLICA TRIGGER tr
        INSERT INTO t VALUES (7, 'ok')
        CREATE FUNCTION noticed() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES (0, TG_TAG); END $$
        CREATE EVENT TRIGGER noticed ON ddl_command_end EXECUTE FUNCTION noticed()
        CREATE TABLE keyless_noticed (id int)
        ALTER EVENT TRIGGER noticed ENABLE ALWAYS
        CREATE TABLE noticed (id int PRIMARY KEY)
        DROP EVENT TRIGGER noticed
        ALTER TABLE t DISABLE TRIGGER tr
        INSERT INTO t VALUES (6, 'ok')
        CREATE RULE ru AS ON DELETE TO t DO ALSO INSERT INTO audit VALUES (OLD.id, 'RULE')
        DELETE FROM t WHERE id = 6
        CREATE PROCEDURE pr(i int) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES (i, 'CALL'); COMMIT; INSERT INTO audit VALUES (i + 1, 'CALL'); END $$
        CALL pr(100)
        DO $$ BEGIN INSERT INTO audit VALUES (200, 'DO'); END $$
        CREATE AGGREGATE agg(text) (SFUNC = textcat, STYPE = text)
        CREATE OPERATOR ||| (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl)
        CREATE CAST (pair AS text) WITH INOUT
        CREATE COLLATION co FROM \"C\"
        CREATE TABLE coll (v text COLLATE co)
        INSERT INTO coll VALUES ('b'), ('A')
        CREATE STATISTICS st ON id, m FROM t
        CREATE SEQUENCE sq START 5 INCREMENT 5 OWNED BY t.id
        ALTER SEQUENCE sq INCREMENT 7
        SELECT nextval('sq')
        CREATE TEXT SEARCH CONFIGURATION ts (COPY = simple)
        ALTER TABLE t ENABLE ROW LEVEL SECURITY
        CREATE POLICY po ON t USING (id > 0)
        DROP VIEW v
        DROP TRIGGER tr ON t
        DROP FUNCTION aud()
        DROP TYPE pair CASCADE
        ALTER FUNCTION f(int) RENAME TO g",
    );
}

#[test]
fn partitions_and_inheritance() {
    replicated(
        "ddl_parts",
        "CREATE TABLE p (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY RANGE (k)
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)
        CREATE TABLE p2 (LIKE p INCLUDING ALL)
        INSERT INTO p2 VALUES (1, 15, 'attached')
        ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)
        INSERT INTO p SELECT g, g, 'x' FROM generate_series(2, 19) g
        UPDATE p SET k = k + 10 WHERE k < 5
        UPDATE p SET v = 'y' WHERE id = 12
        DELETE FROM p WHERE id = 13
        ALTER TABLE p DETACH PARTITION p1
        INSERT INTO p1 VALUES (50, 50, 'alone')
        CREATE TABLE pd PARTITION OF p DEFAULT
        INSERT INTO p VALUES (99, 99, 'default')
        CREATE TABLE sub PARTITION OF p FOR VALUES FROM (100) TO (200) PARTITION BY HASH (id)
        CREATE TABLE sub0 PARTITION OF sub FOR VALUES WITH (MODULUS 2, REMAINDER 0)
        CREATE TABLE sub1 PARTITION OF sub FOR VALUES WITH (MODULUS 2, REMAINDER 1)
        INSERT INTO p SELECT g, 100 + g, 's' FROM generate_series(1, 20) g
        ALTER TABLE p ADD COLUMN extra int DEFAULT 1
        CREATE INDEX ON p (v)
        TRUNCATE p2
        DROP TABLE pd
        CREATE TABLE keyless (k int, v text) PARTITION BY LIST (k)
        CREATE TABLE keyless1 PARTITION OF keyless FOR VALUES IN (1, 2)
        INSERT INTO keyless VALUES (1, 'a'), (2, 'b'), (1, 'a')
        UPDATE keyless SET v = 'c' WHERE k = 1
        DELETE FROM keyless WHERE k = 2
        CREATE TABLE parent (id int PRIMARY KEY, v text)
        CREATE TABLE child (w int) INHERITS (parent)
        INSERT INTO parent VALUES (1, 'p')
        INSERT INTO child VALUES (2, 'c', 3)
        UPDATE parent SET v = 'both'
        TRUNCATE parent
        ALTER TABLE parent ADD COLUMN z int",
    );
}

#[test]
fn roles_and_privileges() {
    let mut session = shared().connect();
    for role in ["ddl_plain", "ddl_group", "ddl_renamed", "ddl_owner"] {
        let _ = session.simple(&format!("DROP OWNED BY {role} CASCADE"));
        let _ = session.simple(&format!("DROP ROLE {role}"));
    }
    replicated(
        "ddl_roles",
        "CREATE ROLE ddl_owner; CREATE TABLE owned (id int PRIMARY KEY); ALTER TABLE owned OWNER TO ddl_owner
        CREATE ROLE ddl_group
        CREATE USER ddl_plain PASSWORD 'secret' IN ROLE ddl_group
        ALTER ROLE ddl_plain SET work_mem = '9MB'
        ALTER ROLE ddl_plain CONNECTION LIMIT 17 VALID UNTIL '2040-01-01'
        GRANT USAGE, CREATE ON SCHEMA ddl_roles TO ddl_plain
        CREATE TABLE t (id int PRIMARY KEY, v text)
        GRANT SELECT, INSERT (id) ON t TO ddl_group
        GRANT ddl_owner TO ddl_plain WITH ADMIN OPTION
        REVOKE INSERT (id) ON t FROM ddl_group
        ALTER DEFAULT PRIVILEGES IN SCHEMA ddl_roles GRANT SELECT ON TABLES TO ddl_group
        CREATE TABLE later (id int)
        SET ROLE ddl_plain
        CREATE TABLE mine (id int PRIMARY KEY)
        INSERT INTO mine VALUES (1)
        CREATE FUNCTION mine_f() RETURNS text LANGUAGE sql AS 'SELECT current_user::text'
        RESET ROLE
        BEGIN; SET LOCAL ROLE ddl_plain; CREATE TABLE mine2 (id int); INSERT INTO mine2 VALUES (1); COMMIT
        CREATE SCHEMA AUTHORIZATION ddl_plain
        DROP SCHEMA ddl_plain
        CREATE ROLE ddl_temp
        ALTER ROLE ddl_temp RENAME TO ddl_renamed
        DROP ROLE ddl_renamed
        REASSIGN OWNED BY ddl_owner TO ddl_group",
    );
    // (Other tests have roles, too.)
    let ours = "rolname IN ('ddl_plain', 'ddl_group', 'ddl_renamed', 'ddl_owner', 'ddl_temp')";
    let roles = format!(
        "SELECT rolname, rolsuper, rolcanlogin, rolconnlimit, rolconfig, \
        rolvaliduntil AT TIME ZONE 'UTC', rolpassword IS NULL FROM pg_authid \
        LEFT JOIN (SELECT setrole, setconfig AS rolconfig FROM pg_db_role_setting WHERE setdatabase = 0) s \
        ON setrole = pg_authid.oid WHERE {ours} ORDER BY 1"
    );
    let cluster = shared();
    if cluster.is_hihooi() {
        // Passwords are salted where they are set, so a replica must get the stored one.
        cluster.assert_equal(&roles);
        cluster.assert_equal(&format!(
            "SELECT g.rolname, m.rolname, admin_option FROM pg_auth_members \
             JOIN pg_roles g ON g.oid = roleid JOIN pg_roles m ON m.oid = member \
             WHERE g.{ours} ORDER BY 1, 2"
        ));
    }
}

/// What an ordinary role does is done at replicas as that role; what it may not do here, it
/// may not do there.
#[test]
fn an_ordinary_role_defines_as_itself() {
    let _alone = alone();
    let cluster = shared();
    let mut admin = cluster.connect();
    let _ = admin.simple("DROP OWNED BY ddl_joe CASCADE");
    let _ = admin.simple("DROP ROLE ddl_joe");
    admin.run("CREATE ROLE ddl_joe LOGIN; DROP SCHEMA IF EXISTS ddl_joe CASCADE");
    admin.run("CREATE SCHEMA ddl_joe AUTHORIZATION ddl_joe");
    let mut joe = cluster.connect_with(&[("user", "ddl_joe")]);
    for text in [
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a')",
        "CREATE TABLE keyless AS SELECT * FROM t",
        "UPDATE keyless SET v = 'b'",
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
        "ALTER TABLE t ADD COLUMN c int",
        "GRANT SELECT ON t TO PUBLIC",
        "CREATE INDEX ON t (v)",
        "TRUNCATE keyless",
    ] {
        joe.run(text);
    }
    assert_eq!(joe.error("CREATE ROLE ddl_evil SUPERUSER").code(), "42501");
    assert_eq!(joe.error("ALTER ROLE ddl_joe SUPERUSER").code(), "42501");
    cluster.assert_schema_equal("ddl_joe");
    if cluster.is_hihooi() {
        cluster.assert_equal(
            "SELECT relname, pg_get_userbyid(relowner), relacl::text FROM pg_class \
             WHERE relnamespace = 'ddl_joe'::regnamespace ORDER BY 1",
        );
    }
}

/// Any role can emit a message; only authentic ones are executed.
#[test]
fn forged_messages_are_not_executed() {
    let _alone = alone();
    let cluster = shared();
    let mut admin = cluster.connect();
    let _ = admin.simple("CREATE ROLE ddl_forger LOGIN");
    admin
        .run("DROP TABLE IF EXISTS forged_target; CREATE TABLE forged_target (id int PRIMARY KEY)");
    let mut forger = cluster.connect_with(&[("user", "ddl_forger")]);
    let mut authentic = Vec::new();
    if cluster.is_hihooi() {
        cluster.caught_up();
        // A replay of bytes that were authentic once must not count either, nor garbage.
        let mut direct = cluster.direct("primary");
        direct.run("SELECT pg_create_logical_replication_slot('forge', 'test_decoding')");
        admin.run("CREATE TABLE forged_once (id int); INSERT INTO forged_once VALUES (1)");
        admin.run("ALTER TABLE forged_once ADD r float8 DEFAULT random()");
        admin.run("DROP TABLE forged_once");
        let seen = direct.run(
            "SELECT encode(convert_to(data, 'UTF8'), 'hex') FROM \
             pg_logical_slot_get_changes('forge', NULL, NULL) WHERE data LIKE '%prefix: hihooi%'",
        );
        authentic = seen.rows.into_iter().filter_map(|mut row| row[0].take()).collect();
        direct.run("SELECT pg_drop_replication_slot('forge')");
    }
    for transactional in ["true", "false"] {
        for body in [
            "alter role ddl_forger superuser",
            "{\"sql\": \"alter role ddl_forger superuser\", \"role\": \"postgres\"}",
            "",
            "\u{1}\u{2}\u{3}",
        ] {
            forger.run(&format!(
                "SELECT pg_logical_emit_message({transactional}, 'hihooi_rows', '{body}')"
            ));
            let hex = hex::encode(body);
            forger.run(&format!(
                "SELECT pg_logical_emit_message({transactional}, 'hihooi_rows', decode('{hex}', 'hex'))"
            ));
        }
    }
    for hex in authentic {
        forger.run(&format!(
            "SELECT pg_logical_emit_message(true, 'hihooi_rows', \
             substring(decode('{hex}', 'hex') from position('content:'::bytea in decode('{hex}', 'hex')) + 8))"
        ));
    }
    admin.run("INSERT INTO forged_target VALUES (1)");
    if cluster.is_hihooi() {
        cluster.assert_equal("SELECT * FROM forged_target");
        cluster.assert_equal("SELECT rolsuper FROM pg_roles WHERE rolname = 'ddl_forger'");
        cluster.assert_equal("SELECT to_regclass('forged_once')");
        let asked = "SELECT rolsuper FROM pg_roles WHERE rolname = 'ddl_forger'";
        let told = cluster.direct("replica1").value(asked);
        assert_eq!(told, "f", "a forged message was executed");
    }
}

/// By the extended protocol, prepared, pipelined.
#[test]
fn definitions_by_the_extended_protocol() {
    let _alone = alone();
    let cluster = shared();
    let mut session = cluster.connect();
    session.run("DROP SCHEMA IF EXISTS ddl_extended CASCADE; CREATE SCHEMA ddl_extended");
    session.run("SET search_path = ddl_extended");
    for text in [
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD v text",
        "BEGIN",
        "CREATE TABLE u AS SELECT * FROM t",
        "INSERT INTO u VALUES (2, 'x')",
        "COMMIT",
        "CREATE INDEX CONCURRENTLY i ON t (v)",
        "REINDEX INDEX CONCURRENTLY i",
        "DROP INDEX CONCURRENTLY i",
        "ALTER TABLE t ADD at timestamptz NOT NULL DEFAULT now()",
        "BEGIN",
        "ALTER TABLE t ADD at2 timestamptz DEFAULT now() + interval '1 day'",
        "COMMIT",
        "ALTER TABLE t ADD s serial",
        "DROP TABLE u",
    ] {
        session.extended(text, &[]).unwrap_or_else(|failure| panic!("{text}: {failure}"));
        if session.status == 'I' && cluster.is_hihooi() {
            unfailed(cluster, text);
        }
    }
    cluster.assert_schema_equal("ddl_extended");
}

/// What a migration adds gets the primary's values for the rows that are there, whatever the
/// session's settings, and the default that was asked for (I2).
#[test]
fn columns_are_added_with_the_values_of_the_primary() {
    replicated(
        "ddl_added",
        "CREATE TABLE t (id int PRIMARY KEY)
        INSERT INTO t SELECT generate_series(1, 20)
        ALTER TABLE t ADD COLUMN at timestamptz NOT NULL DEFAULT now()
        INSERT INTO t (id) VALUES (21)
        SET datestyle = 'German'; SET timezone = 'Asia/Kolkata'; SET extra_float_digits = -5; SET intervalstyle = 'sql_standard'
        ALTER TABLE t ADD a timestamptz DEFAULT current_timestamp, ADD b date NOT NULL DEFAULT current_date, ADD c text DEFAULT now()::text, ADD e interval DEFAULT now() - '2020-01-01'
        ALTER TABLE t ADD f float8 DEFAULT extract(epoch FROM now()) / 3::float8, ADD g timestamptz[] DEFAULT ARRAY[now()]
        ALTER TABLE t ADD w timestamptz DEFAULT 'now', ADD x text DEFAULT current_user || 'ü\\'
        ALTER TABLE t ADD IF NOT EXISTS at timestamptz DEFAULT now() + '1 day', ADD IF NOT EXISTS y time DEFAULT localtime
        ALTER TABLE t ADD z timestamptz DEFAULT now(), ALTER z SET DEFAULT '2020-01-01'
        BEGIN; ALTER TABLE t ADD h timestamptz DEFAULT now(); UPDATE t SET h = h + '1 day' WHERE id = 1; ALTER TABLE t ADD i timestamptz DEFAULT now(); COMMIT
        ALTER TABLE t ALTER b TYPE timestamptz, ALTER f TYPE text
        ALTER TABLE t ALTER a TYPE text USING to_char(a + interval '1 day', 'Day')
        CREATE DOMAIN word AS text CHECK (VALUE <> '')
        ALTER TABLE t ADD j word DEFAULT 'x', ADD k word DEFAULT current_user
        CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9); INSERT INTO p VALUES (1)
        ALTER TABLE p ADD at timestamptz DEFAULT now()
        CREATE TABLE empty (id int); ALTER TABLE empty ADD s serial, ADD u uuid DEFAULT gen_random_uuid(); INSERT INTO empty (id) VALUES (1), (2)
        INSERT INTO t (id, b) VALUES (22, now())",
    );
}

/// What has another value in each row, or at each site, arrives as the primary computed it (I2).
/// I3: nobody sees the column without its values, or its table without rows, at a replica.
#[test]
fn computed_columns_appear_with_their_values() {
    const ROWS: i64 = 100_000;
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = shared();
    let mut session = cluster.connect();
    session.run("DROP TABLE IF EXISTS computed; CREATE TABLE computed (id int PRIMARY KEY)");
    session.run(&format!("INSERT INTO computed SELECT generate_series(1, {ROWS})"));
    cluster.caught_up();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut replica = cluster.direct("replica1");
            let (mut without, mut with) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                match replica.simple("SELECT count(u) FROM computed") {
                    Ok(answers) => {
                        let count = answers[0].rows[0][0].clone().expect("a number");
                        assert_eq!(count, ROWS.to_string());
                        with += 1;
                    }
                    Err(failure) => {
                        assert_eq!(failure.code(), "42703", "{failure}");
                        without += 1;
                    }
                }
            }
            (without, with)
        });
        session.run("ALTER TABLE computed ADD u uuid NOT NULL DEFAULT gen_random_uuid() CHECK (u IS NOT NULL)");
        cluster.caught_up();
        is_over.store(true, Ordering::Relaxed);
        let (without, _) = looks.join().expect("it saw all rows or no column");
        assert!(without > 0, "nobody looked before");
    });
    cluster.assert_equal("SELECT md5(string_agg(c::text, ',' ORDER BY id)) FROM computed c");
    session.run("DROP TABLE computed");
}

#[test]
fn rows_that_are_rewritten_arrive_as_the_primary_computed_them() {
    replicated(
        "ddl_rewritten",
        "CREATE TABLE t (id int PRIMARY KEY, n float8); INSERT INTO t SELECT g, g FROM generate_series(1, 20) g
        CREATE FUNCTION f() RETURNS int STABLE LANGUAGE sql AS 'SELECT 1'
        CREATE DOMAIN moment AS timestamptz DEFAULT now()
        ALTER TABLE t ADD s serial
        ALTER TABLE t ADD i int GENERATED ALWAYS AS IDENTITY
        ALTER TABLE t ADD u uuid UNIQUE DEFAULT gen_random_uuid()
        ALTER TABLE t ADD r float8 NOT NULL DEFAULT 1 + random()
        ALTER TABLE t ADD at timestamptz DEFAULT statement_timestamp()
        ALTER TABLE t ADD at2 moment
        ALTER TABLE t ADD v int DEFAULT f()
        ALTER TABLE t ALTER n TYPE float8 USING random()
        ALTER TABLE t ALTER n TYPE timestamptz USING now()
        ALTER TABLE t ALTER id TYPE uuid USING gen_random_uuid()
        UPDATE t SET v = 7
        SELECT 1; ALTER TABLE t ADD s2 serial; SELECT 2
        CREATE UNLOGGED TABLE un (id int PRIMARY KEY, v text); INSERT INTO un VALUES (1, NULL), (2, 'a ''b'' {\"c\",\\d}')
        ALTER TABLE un SET LOGGED
        UPDATE un SET v = 'x' WHERE id = 1
        CREATE TABLE k (v text); INSERT INTO k VALUES ('a'), ('a'), (NULL)
        ALTER TABLE k ADD r float8 DEFAULT random()
        UPDATE k SET v = 'b'
        ALTER TABLE k SET UNLOGGED
        INSERT INTO k VALUES ('unlogged')
        ALTER TABLE k SET LOGGED
        CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); INSERT INTO p SELECT g, g FROM generate_series(0, 19) g
        ALTER TABLE p ADD u uuid DEFAULT gen_random_uuid()
        ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY
        PREPARE rest AS SELECT id, v FROM p; CREATE TABLE executed AS EXECUTE rest",
    );
}

/// Statements while definitions change under them: every session goes on with the new ones.
#[test]
fn cached_statements_survive_definitions() {
    let _alone = alone();
    let cluster = shared();
    let (mut definer, mut reader) = (cluster.connect(), cluster.connect());
    definer.run("DROP TABLE IF EXISTS ddl_cached; CREATE TABLE ddl_cached (id int, a int)");
    for round in 0..10 {
        definer.run(&format!("INSERT INTO ddl_cached VALUES ({round}, {round})"));
        let count = reader.run("SELECT * FROM ddl_cached").rows;
        assert_eq!((count.len(), count[0].len()), (round + 1, 2 + round), "I3");
        definer.run(&format!("ALTER TABLE ddl_cached ADD COLUMN c{round} int"));
        let columns = reader.run("SELECT * FROM ddl_cached").columns;
        assert_eq!(columns.len(), 3 + round, "an old definition was seen (I3)");
        let number = reader.number(&format!("SELECT count(*) - count(c{round}) FROM ddl_cached"));
        assert_eq!(number, round as i64 + 1);
    }
    cluster.caught_up();
}

/// With nothing but a DDL load, what is created, filled and dropped stays in order.
#[test]
fn concurrent_definitions_keep_their_order() {
    let _alone = alone();
    let cluster = shared();
    cluster.connect().run("DROP SCHEMA IF EXISTS ddl_many CASCADE; CREATE SCHEMA ddl_many");
    let worker = |number: usize| {
        std::thread::spawn(move || {
            let mut session = shared().connect();
            session.run("SET search_path = ddl_many");
            for round in 0..12 {
                let name = format!("t{number}_{round}");
                session.run(&format!("CREATE TABLE {name} (id int PRIMARY KEY, v text)"));
                session
                    .run(&format!("INSERT INTO {name} SELECT g, 'v' FROM generate_series(1, 5) g"));
                assert_eq!(session.number(&format!("SELECT count(*) FROM {name}")), 5, "I4");
                session.run(&format!("ALTER TABLE {name} ADD w int DEFAULT 1"));
                session.run(&format!("UPDATE {name} SET w = id"));
                if round % 2 == 0 {
                    session.run(&format!("DROP TABLE {name}"));
                }
            }
        })
    };
    let workers: Vec<_> = (0..4).map(worker).collect();
    workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
    cluster.assert_schema_equal("ddl_many");
    cluster.assert_verified();
}

/// A keyless table can be updated through hihooi though it is published.
#[test]
fn tables_without_a_key_can_be_updated() {
    replicated(
        "ddl_keyless",
        "CREATE TABLE k (id int, v text)
        INSERT INTO k SELECT g, 'v' || g % 3 FROM generate_series(1, 30) g
        INSERT INTO k SELECT g, 'v' || g % 3 FROM generate_series(1, 30) g
        UPDATE k SET v = 'w' WHERE id = 5
        DELETE FROM k WHERE id = 6
        UPDATE k SET v = NULL WHERE id = 7
        UPDATE k SET v = 'x' WHERE v IS NULL
        CREATE TABLE f (r float8, n numeric, j json, p point, x xml)
        INSERT INTO f VALUES (0.1, 1.10, '{\"a\":  1}', '(1,2)', '<a/>'), ('NaN', 'NaN', NULL, NULL, NULL)
        UPDATE f SET r = 0.2
        UPDATE f SET n = 2.20 WHERE j IS NULL
        DELETE FROM f WHERE j IS NOT NULL
        CREATE TABLE big (id int, v text)
        INSERT INTO big SELECT 1, string_agg(md5(g::text), '') FROM generate_series(1, 2000) g
        UPDATE big SET id = 2
        ALTER TABLE big ADD PRIMARY KEY (id)
        UPDATE big SET id = 3
        CREATE TABLE toast (id int PRIMARY KEY, v text, n int)
        INSERT INTO toast SELECT 1, string_agg(md5(g::text), ''), 0 FROM generate_series(1, 2000) g
        UPDATE toast SET n = 1",
    );
}

#[test]
fn values_of_every_type_arrive() {
    replicated(
        "ddl_types",
        "SET datestyle = 'German'; SET intervalstyle = 'sql_standard'; SET timezone = 'Asia/Tokyo'; SET extra_float_digits = -3; SET bytea_output = 'escape'
        CREATE TABLE v (id int PRIMARY KEY, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric, m money, t text, c char(5), vc varchar(9), by bytea, d date, ti time, tz timetz, ts timestamp, tstz timestamptz, iv interval, u uuid, j json, jb jsonb, x xml, ip inet, mac macaddr, bits bit(3), vb varbit, pt point, bx box, r int4range, mr int4multirange, tr tstzrange, arr int[], arr2 text[][], tsv tsvector, tsq tsquery, lsn pg_lsn, o oid, rc regclass, nm name)
        INSERT INTO v VALUES (1, true, -2, 9223372036854775807, 0.1, 0.30000000000000004, 12345678901234567890.123456789, 12.34, E'tab\\t nl\\n back\\\\ quote'' ä€', 'ab', 'vc', '\\x00ff5c27', '13.02.2020', '10:11:12.123456', '10:11:12+03', '13.02.2020 10:11:12.5', '13.02.2020 10:11:12.5+00', '1-2 3 4:05:06.7', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\" :1}', '{\"a\":[1,null]}', '<a>x</a>', '10.0.0.1/8', '08:00:2b:01:02:03', B'101', B'1', '(1.5,2)', '(3,4),(1,2)', '[1,5)', '{[1,2),[4,5)}', '[2020-01-01,2020-02-01)', '{1,NULL,3}', '{{a,b},{\"c,d\",\"e\\\"f\"}}', 'a b:2', 'a & b', '16/B374D848', 12345, 'pg_class', 'nm')
        INSERT INTO v (id, d, ts, tstz, f8, n, t, by) VALUES (2, 'infinity', '-infinity', '0044-03-15 12:00:00 BC', 'Infinity', 'NaN', '', '')
        INSERT INTO v (id) VALUES (3)
        UPDATE v SET f8 = f8 * 1.1, iv = iv * 2, t = t || t
        UPDATE v SET id = id + 10",
    );
}

/// Definitions whose effect could differ from server to server don't (I2, I6).
#[test]
fn what_could_differ_does_not() {
    replicated(
        "ddl_differ",
        "CREATE TABLE diff (id int PRIMARY KEY, n float8); INSERT INTO diff SELECT g, g FROM generate_series(1, 50) g
        ALTER TABLE diff ADD at timestamptz DEFAULT clock_timestamp()
        CREATE TABLE diff2 (id int PRIMARY KEY, u uuid DEFAULT gen_random_uuid(), at timestamptz DEFAULT now()); INSERT INTO diff2 (id) VALUES (1)
        CREATE FUNCTION diff_f() RETURNS int LANGUAGE plpgsql AS 'BEGIN EXECUTE ''CREATE TABLE diff3 AS SELECT random() AS r''; RETURN 1; END'; SELECT diff_f()
        DO $$ BEGIN ALTER TABLE diff ADD extra int DEFAULT 3; UPDATE diff SET extra = id; END $$
        ALTER TABLE diff ALTER n SET DEFAULT 7; INSERT INTO diff VALUES (1000)
        CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public
        CREATE SCHEMA diff_s CREATE TABLE inside (id int) CREATE VIEW inside_v AS SELECT 1 AS x
        DROP SCHEMA diff_s CASCADE
        CREATE FUNCTION diff_et() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'
        CREATE EVENT TRIGGER diff_e ON ddl_command_end EXECUTE FUNCTION diff_et()
        DROP EVENT TRIGGER diff_e
        UPDATE diff SET id = id + 100 WHERE id > 40",
    );
}

/// CREATE INDEX CONCURRENTLY releases its table before it commits that the index is valid, and event triggers run in
/// between: who looks for invalid indexes then must leave it alone, or replicas would drop it.
#[test]
fn i5_an_index_that_is_about_to_be_valid_is_not_taken_for_one_that_failed() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run(
        "CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS \
         'BEGIN IF tg_tag = ''CREATE INDEX'' THEN PERFORM pg_advisory_xact_lock(5); END IF; END'",
    );
    let mut direct = cluster.direct("primary");
    direct.run("SELECT pg_advisory_lock(5)");
    session.run("CREATE EVENT TRIGGER slow ON ddl_command_end EXECUTE FUNCTION slow()");
    session.run("CREATE TABLE indexed (id int)");
    let making =
        std::thread::spawn(move || session.run("CREATE INDEX CONCURRENTLY i ON indexed (id)"));
    let locks =
        "SELECT count(*) FROM pg_locks WHERE relation = 'indexed'::regclass AND mode ~ '^Share'";
    let index =
        "SELECT count(*) FROM pg_index WHERE indrelid = 'indexed'::regclass AND NOT indisvalid";
    eventually("it has released the table", || {
        direct.number(index) == 1 && direct.number(locks) == 0
    });
    std::thread::sleep(ms(2_500)); // the primary is looked at every 2 s
    assert_eq!(direct.number(index), 1, "not valid yet");
    assert_eq!(direct.number("SELECT count(*) FROM hihooi.invalid"), 0);
    direct.run("SELECT pg_advisory_unlock(5)");
    making.join().expect("CREATE INDEX");
    cluster.caught_up();
    cluster.assert_verified();
}
