//! Verification finds what differs, and compares at one position under load (I2, I5); and a
//! replica never shows what the primary doesn't show yet (I3, rule (2)).

use hihooi_replication::schedule::Method;

use crate::apply_support::{Cluster, Load};
use crate::support::{Server, bin_of};

const SCRIPT: &str = "CREATE TABLE t (id int PRIMARY KEY, v text);
    INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 500) n;
    CREATE TABLE nokey (a int);
    INSERT INTO nokey VALUES (1), (1), (2);
    CREATE TABLE gone (a int PRIMARY KEY);
    CREATE INDEX named ON t (v);
    CREATE MATERIALIZED VIEW total AS SELECT count(*) FROM t";

/// Planted differences, each found and named.
#[tokio::test]
async fn finds_planted_differences() {
    let cluster = Cluster::start(SCRIPT, 2).await;
    cluster.run("INSERT INTO t VALUES (1000, 'x')").await;
    cluster.settle().await;
    cluster
        .run_behind(
            "UPDATE t SET v = 'planted' WHERE id = 7; DELETE FROM t WHERE id = 8;
             INSERT INTO t VALUES (9999, 'extra'); DROP TABLE gone; DROP INDEX named;
             CREATE TABLE other (a int); ALTER TABLE nokey ADD b int",
        )
        .await;
    let report = cluster.verify().await;
    let text = report.to_string();
    assert!(text.ends_with("DIFFERENT") && !report.is_equal(), "{text}");
    assert!(!text.contains("replica2"), "the other one is equal: {text}");
    let lines = [
        "replica1: table public.gone: is missing",
        "replica1: table public.t: on the primary \"index named CREATE INDEX named ON public.t USING \
         btree (v)\", not here",
        "replica1: table public.other: does not exist on the primary",
        "replica1: table public.nokey: here \"column 2 b integer storage p\", not on the primary",
        "replica1: public.t (id)=(7)\n    primary (7,v7)\n    replica1 (7,planted)",
        "replica1: public.t (id)=(8)\n    primary (8,v8)\n    replica1 (none)",
        "replica1: public.t (id)=(9999)\n    primary (none)\n    replica1 (9999,extra)",
    ];
    for line in lines {
        assert!(text.contains(line), "{line} is not in: {text}");
    }
}

/// Rows without key, one too many; a materialized view that wasn't refreshed.
#[tokio::test]
async fn finds_duplicates_and_stale_views() {
    let cluster = Cluster::start(SCRIPT, 1).await;
    cluster.run("INSERT INTO t VALUES (1000, 'x')").await;
    cluster.settle().await;
    cluster.run_behind("INSERT INTO nokey VALUES (1); REFRESH MATERIALIZED VIEW total").await;
    let text = cluster.verify().await.to_string();
    assert!(text.contains("primary (1) x 2\n    replica1 (1) x 3"), "{text}");
    assert!(text.contains("primary (500)\n") && text.contains("replica1 (501)"), "{text}");
}

/// Objects of all kinds that versions print differently, or of which one knows more.
const VERSIONED: &str = "
    ALTER SCHEMA public OWNER TO postgres; REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO PUBLIC;
    CREATE ROLE app; CREATE ROLE reader LOGIN VALID UNTIL '2030-01-01'; GRANT app TO reader WITH ADMIN OPTION;
    ALTER ROLE reader SET work_mem = '1MB'; GRANT CREATE ON SCHEMA public TO app;
    ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app;
    CREATE DOMAIN code AS text NOT NULL DEFAULT 'x' CHECK (length(VALUE) < 9);
    CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TYPE pair AS (a int, b text);
    CREATE TYPE span AS RANGE (SUBTYPE = float8);
    CREATE COLLATION german (provider = icu, locale = 'de');
    CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v code, m mood NOT NULL DEFAULT 'glad', n numeric,
        twice int GENERATED ALWAYS AS (n * 2) STORED, UNIQUE (v, m), CHECK (n > 0 OR n IS NULL),
        CONSTRAINT sure CHECK (n IS NOT NULL), EXCLUDE USING btree (id WITH =) WHERE (n IS NOT NULL));
    ALTER TABLE t OWNER TO app; GRANT ALL ON t TO reader WITH GRANT OPTION; GRANT SELECT (v) ON t TO PUBLIC;
    CREATE TABLE child (more text COLLATE german NOT NULL) INHERITS (t);
    CREATE TABLE parts (id int NOT NULL, t int REFERENCES t, at date) PARTITION BY RANGE (id);
    CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (10);
    CREATE UNIQUE INDEX ON parts (id); CREATE INDEX partial ON t (lower(v)) INCLUDE (n) WHERE n > 3;
    CREATE VIEW simple AS SELECT id, v, n + 1 AS next FROM t WHERE n > 1;
    CREATE VIEW joined AS SELECT a.id, count(*) FROM t a JOIN parts p ON p.t = a.id GROUP BY a.id;
    CREATE MATERIALIZED VIEW kept AS SELECT id FROM t;
    CREATE FUNCTION plain(int) RETURNS int LANGUAGE sql AS 'SELECT n::int FROM t WHERE id = $1';
    CREATE FUNCTION atomic(a int) RETURNS int LANGUAGE sql STABLE BEGIN ATOMIC SELECT n FROM t WHERE t.id = a; END;
    CREATE PROCEDURE made() LANGUAGE plpgsql AS $$ BEGIN PERFORM 1; END $$;
    CREATE FUNCTION trig() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
    CREATE AGGREGATE total(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
    CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
    CREATE OPERATOR CLASS mine FOR TYPE int USING hash AS OPERATOR 1 ===, FUNCTION 1 hashint4(int);
    CREATE CAST (mood AS int) WITH INOUT;
    CREATE TRIGGER tr BEFORE UPDATE OF n ON t FOR EACH ROW WHEN (NEW.n > 3) EXECUTE FUNCTION trig();
    CREATE TRIGGER tr AFTER INSERT ON parts FOR EACH ROW EXECUTE FUNCTION trig();
    CREATE RULE r AS ON DELETE TO simple DO INSTEAD DELETE FROM t WHERE t.id = old.id;
    ALTER TABLE t ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON t TO reader USING (n > 0 AND EXISTS (SELECT FROM parts WHERE t = t.id)) WITH CHECK (n > 1);
    CREATE STATISTICS st (ndistinct) ON id, n FROM t; CREATE SEQUENCE s INCREMENT 3; ALTER SEQUENCE s OWNER TO app; ALTER SEQUENCE s OWNED BY t.n;
    CREATE TEXT SEARCH CONFIGURATION ts (COPY = simple);
    CREATE FOREIGN DATA WRAPPER fdw; CREATE SERVER far FOREIGN DATA WRAPPER fdw OPTIONS (a 'b');
    CREATE USER MAPPING FOR reader SERVER far; CREATE FOREIGN TABLE away (a int NOT NULL) SERVER far;
    CREATE FUNCTION told() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN END $$;
    CREATE EVENT TRIGGER told ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION told();
    COMMENT ON TABLE t IS 'SELECT'; COMMENT ON COLUMN t.v IS 'v'; COMMENT ON ROLE app IS 'r'";

/// With replicas of the oldest and the newest version, all is equal that both know; what is planted is named.
#[tokio::test]
async fn definitions_are_compared_across_major_versions() {
    let bins: Vec<_> = [14, 18].into_iter().filter_map(bin_of).collect();
    if bins.is_empty() {
        return eprintln!("PostgreSQL 14 and 18 are not there: not tested");
    }
    let servers =
        bins.into_iter().map(|bin| (Server::start_of(bin, "fsync = off"), Method::default()));
    let cluster = Cluster::start_on(VERSIONED, servers.collect()).await;
    cluster
        .run(
            "ALTER TABLE t ADD said text NOT NULL DEFAULT 'SELECT'; GRANT ALL ON parts TO reader;
             CREATE OR REPLACE VIEW simple AS SELECT id, v, n + 2 AS next, m FROM t WHERE n > 1;
             CREATE TABLE later (id int PRIMARY KEY, v code); INSERT INTO later VALUES (1, 'a');
             ALTER TABLE later OWNER TO app",
        )
        .await;
    cluster.assert_equal().await;
    for (number, (planted, undo, named)) in [
        ("GRANT DELETE ON t TO PUBLIC", "REVOKE DELETE ON t FROM PUBLIC", "table public.t: "),
        (
            "REVOKE UPDATE ON parts FROM app",
            "GRANT UPDATE ON parts TO app",
            "table public.parts: on the primary",
        ),
        (
            "ALTER POLICY own ON t TO app",
            "ALTER POLICY own ON t TO reader",
            "policy own for * permissive to app",
        ),
        ("ALTER ROLE app CREATEDB", "ALTER ROLE app NOCREATEDB", "role app: "),
        (
            "REVOKE ADMIN OPTION FOR app FROM reader",
            "GRANT app TO reader WITH ADMIN OPTION",
            "membership of reader in app",
        ),
        (
            "ALTER ROLE reader SET work_mem = '2MB'",
            "ALTER ROLE reader SET work_mem = '1MB'",
            "settings of role reader",
        ),
        ("ALTER TABLE later OWNER TO postgres", "ALTER TABLE later OWNER TO app", "owner app"),
        (
            "ALTER TABLE t ALTER m DROP NOT NULL",
            "ALTER TABLE t ALTER m SET NOT NULL",
            "column 3 m public.mood not null",
        ),
        (
            "DROP VIEW joined",
            "CREATE VIEW joined AS SELECT a.id, count(*) FROM t a JOIN parts p ON p.t = a.id GROUP BY a.id",
            "view public.joined: is missing",
        ),
        (
            "ALTER FUNCTION atomic(int) VOLATILE",
            "ALTER FUNCTION atomic(int) STABLE",
            "function public.atomic(integer)",
        ),
        (
            "CREATE OR REPLACE FUNCTION plain(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE OR REPLACE FUNCTION plain(int) RETURNS int LANGUAGE sql AS 'SELECT n::int FROM t WHERE id = $1'",
            "function public.plain(integer)",
        ),
        ("COMMENT ON TABLE t IS 'x'", "COMMENT ON TABLE t IS 'SELECT'", "comment 'x'"),
        (
            "DROP RULE r ON simple",
            "CREATE RULE r AS ON DELETE TO simple DO INSTEAD DELETE FROM t WHERE t.id = old.id",
            "rule r",
        ),
        (
            "ALTER TABLE t ALTER said SET DEFAULT 'y'",
            "ALTER TABLE t ALTER said SET DEFAULT 'SELECT'",
            "here",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let at = number % cluster.followers.len();
        cluster.run_behind_at(at, planted).await;
        let text = cluster.verify().await.to_string();
        assert!(text.contains(named), "{planted}: {text}");
        cluster.run_behind_at(at, undo).await;
        let report = cluster.verify().await;
        assert!(report.is_equal(), "behind {undo}: {report}");
    }
}

/// One table for each way in which rows can differ; the counts are the same everywhere.
const SUBTLE: &str = "CREATE TABLE swapped (v text, id int PRIMARY KEY);
    INSERT INTO swapped VALUES ('a', 1), ('b', 2), ('c', 3);
    CREATE TABLE copies (v text);
    INSERT INTO copies VALUES ('a'), ('a'), ('b');
    CREATE TABLE nothing (id int PRIMARY KEY, v text);
    INSERT INTO nothing VALUES (1, NULL), (2, '\\N'), (3, NULL), (4, '\"\"');
    CREATE TABLE commas (a text, b text, PRIMARY KEY (b, a));
    INSERT INTO commas VALUES ('x,y', 'z'), (E'\n', E'\t');
    CREATE TABLE wide (id int PRIMARY KEY, v text);
    ALTER TABLE wide ALTER v SET STORAGE EXTERNAL;
    INSERT INTO wide VALUES (1, repeat('x', 100000) || 'y');
    CREATE TABLE floats (id int PRIMARY KEY, v float8, n numeric);
    INSERT INTO floats VALUES (1, '-0', 1.0), (2, 'NaN', 'NaN'), (3, 0.1, 1.0);
    CREATE TABLE whole (id int);
    CREATE TABLE child () INHERITS (whole);
    INSERT INTO child VALUES (1);
    CREATE TABLE parts (id int) PARTITION BY RANGE (id);
    CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (10);
    INSERT INTO parts VALUES (1);
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TYPE pair AS (a positive, b text);
    CREATE TABLE pairs (id int PRIMARY KEY, p pair, r int4range, s pair[]);
    INSERT INTO pairs VALUES (1, ROW(1, NULL), '[1,3)', ARRAY[ROW(1, 'x')::pair]);
    CREATE FUNCTION twice(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * $1';
    CREATE TABLE generated (id int PRIMARY KEY, v text,
        two int GENERATED ALWAYS AS (twice(id)) STORED);
    INSERT INTO generated VALUES (1, 'a'), (2, NULL);
    CREATE TABLE nothing_at_all ();
    INSERT INTO nothing_at_all DEFAULT VALUES;
    CREATE MATERIALIZED VIEW \"odd'name\" AS SELECT id, v FROM nothing;
    CREATE TABLE secret (id int PRIMARY KEY);
    INSERT INTO secret VALUES (1);
    ALTER TABLE secret ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY";

/// Each change is found, named by its row, and nothing else is; undone, all is equal.
#[tokio::test]
async fn finds_every_kind_of_difference() {
    let cluster = Cluster::start(SUBTLE, 1).await;
    cluster.run("INSERT INTO whole VALUES (2)").await;
    let report = cluster.assert_equal().await;
    assert_eq!((report.tables, report.rows), (14, 28), "{report}");
    let again = format!(
        "DROP SCHEMA public CASCADE; CREATE SCHEMA public AUTHORIZATION pg_database_owner;
        GRANT USAGE ON SCHEMA public TO PUBLIC; COMMENT ON SCHEMA public IS 'standard public schema';
        {SUBTLE}; INSERT INTO whole VALUES (2); {}",
        cluster.identities().await
    );
    let changes = [
        (
            "UPDATE swapped SET v = CASE v WHEN 'a' THEN 'b' WHEN 'b' THEN 'a' ELSE v END",
            "swapped (id)=(1)\n    primary (a,1)\n    replica1 (b,1)",
        ),
        (
            "UPDATE copies SET v = 'b' WHERE ctid = '(0,1)'",
            "copies (row)=(a)\n    primary (a) x 2\n    replica1 (a)\n",
        ),
        ("UPDATE nothing SET v = '' WHERE id = 1", "primary (1,)\n    replica1 (1,\"\")"),
        ("UPDATE nothing SET v = NULL WHERE id = 2", "primary (2,\\N)\n    replica1 (2,)"),
        ("UPDATE nothing SET v = '\\N' WHERE id = 3", "primary (3,)\n    replica1 (3,\\N)"),
        ("UPDATE nothing SET v = '' WHERE id = 4", "(4,\"\"\"\"\"\")\n    replica1 (4,\"\")"),
        (
            "UPDATE commas SET a = 'x', b = 'y,z' WHERE b = 'z'",
            "commas (a, b)=(\"x,y\",z)\n    primary (\"x,y\",z)\n    replica1 (none)",
        ),
        ("UPDATE wide SET v = repeat('x', 100000) || 'z'", "wide (id)=(1)\n"),
        ("UPDATE floats SET v = 0 WHERE id = 1", "primary (1,-0,1.0)\n    replica1 (1,0,1.0)"),
        ("UPDATE floats SET v = 'Infinity' WHERE id = 2", "replica1 (2,Infinity,NaN)"),
        ("UPDATE floats SET v = 0.1::float8 + 1e-18 WHERE id = 3", ""),
        ("UPDATE floats SET v = 0.1::float8 + 2e-17 WHERE id = 3", "0.10000000000000002"),
        ("UPDATE floats SET n = 1.00 WHERE id = 3", "replica1 (3,0.1,1.00)"),
        ("UPDATE child SET id = 3", "public.child (row)=(3)"),
        ("UPDATE ONLY whole SET id = 3", "public.whole (row)=(3)"),
        ("UPDATE part SET id = 3", "public.part (row)=(3)"),
        ("UPDATE pairs SET p = ROW(1, '')", "replica1 (1,\"(1,\"\"\"\")\""),
        ("UPDATE pairs SET r = 'empty'", "empty"),
        ("UPDATE pairs SET s[1].b = 'y'", "(1,y)"),
        ("UPDATE generated SET v = 'b' WHERE id = 1", "primary (1,a,2)\n    replica1 (1,b,2)"),
        (
            "CREATE OR REPLACE FUNCTION twice(int) RETURNS int IMMUTABLE LANGUAGE sql
                 AS 'SELECT 3 * $1';
             UPDATE generated SET id = id WHERE id = 2;
             CREATE OR REPLACE FUNCTION twice(int) RETURNS int IMMUTABLE LANGUAGE sql
                 AS 'SELECT 2 * $1'",
            "generated (id)=(2)\n    primary (2,,4)\n    replica1 (2,,6)",
        ),
        (
            "INSERT INTO nothing_at_all DEFAULT VALUES",
            "(row)=()\n    primary ()\n    replica1 () x 2",
        ),
        (
            "INSERT INTO nothing VALUES (9, 'x'); REFRESH MATERIALIZED VIEW \"odd'name\";
             DELETE FROM nothing WHERE id = 9",
            "public.\"odd'name\" (row)=(9,x)\n    primary (none)\n    replica1 (9,x)",
        ),
        (
            "REFRESH MATERIALIZED VIEW \"odd'name\" WITH NO DATA",
            "view public.\"odd'name\": here \"not populated\"",
        ),
        ("UPDATE secret SET id = 2", "public.secret (id)=(2)"),
    ];
    for (change, told) in changes {
        cluster.run_behind(change).await;
        let report = cluster.verify().await;
        assert_eq!(report.is_equal(), told.is_empty(), "{change}: {report}");
        let objects = report.differences.iter().map(|found| &found.object);
        assert!(objects.count() <= 1 && report.to_string().contains(told), "{change}: {report}");
        cluster.run_behind(&again).await;
    }
    assert!(cluster.verify().await.is_equal());
}

/// A table with generated columns is read as its owner. If he may not read it, that is told, and
/// the others are compared nevertheless.
#[tokio::test]
async fn a_table_that_its_owner_may_not_read_is_named() {
    let script = "CREATE ROLE nobody; REVOKE ALL ON SCHEMA public FROM PUBLIC;
        CREATE TABLE hidden (id int PRIMARY KEY, two int GENERATED ALWAYS AS (id * 2) STORED);
        ALTER TABLE hidden OWNER TO nobody;
        CREATE TABLE open (id int PRIMARY KEY); INSERT INTO open VALUES (1)";
    let cluster = Cluster::start(script, 1).await;
    cluster.settle().await;
    let text = cluster.verify().await.to_string();
    let why = "primary: not compared: public.hidden: permission denied for schema public";
    assert!(text.contains(why) && text.ends_with("INCOMPLETE"), "{text}");
    cluster.run_behind("INSERT INTO open VALUES (2)").await;
    let text = cluster.verify().await.to_string();
    assert!(text.contains("public.open (id)=(2)") && text.ends_with("DIFFERENT"), "{text}");
}

/// What a table held before it was truncated can't be read any more, in whatever snapshot: no word on
/// the replicas.
#[tokio::test]
async fn a_table_truncated_meanwhile_is_not_compared() {
    let cluster = Cluster::start(SCRIPT, 1).await;
    cluster.settle().await;
    let mut client = cluster.primary.server.connect().await;
    client.query("BEGIN").await.expect("begins");
    client.query("TRUNCATE t").await.expect("truncates");
    let commit = async {
        let waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'hihooi verify' \
                     AND wait_event_type = 'Lock'";
        cluster.primary.server.shows(waits).await;
        client.query("COMMIT").await.expect("commits");
    };
    let (report, ()) = tokio::join!(cluster.verify(), commit);
    let text = report.to_string();
    assert!(text.contains("public.t: rewritten or truncated meanwhile"), "{text}");
    assert_eq!(report.verdict(), "INCOMPLETE", "{text}");
    cluster.assert_equal().await;
}

/// Under load, at one position, with a replica that is behind.
#[tokio::test]
async fn compares_at_one_position_under_load() {
    let cluster = Cluster::start(SCRIPT, 2).await;
    cluster.settle().await;
    let load = Load::start(&cluster, 1, |_, n| {
        format!("UPDATE t SET v = '{n}' WHERE id = {}", 1 + n % 500)
    });
    for _ in 0..5 {
        cluster.written(100).await;
        let report = cluster.verify().await;
        assert!(report.is_equal() && report.tsid.0 > 0, "{report}");
    }
    load.end().await;
    cluster.assert_equal().await;
}

/// The log says T1, T2, but T1 waits for a synchronous standby that does not answer, so
/// the primary shows T2 without T1. No replica may show T1 before, and by order nothing behind it.
#[tokio::test]
async fn no_replica_shows_what_the_primary_hides() {
    let cluster = Cluster::start(SCRIPT, 1).await;
    let before = cluster.settle().await;
    let server = &cluster.primary.server;
    server.hide_commits().await;
    let mut first = server.connect().await;
    let pid = first.key().process;
    let first =
        tokio::spawn(
            async move { first.query("UPDATE t SET v = 'T1' WHERE id = 1").await.map(drop) },
        );
    let waits =
        format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'SyncRep'");
    server.shows(&waits).await;
    cluster.run("SET synchronous_commit = local; UPDATE t SET v = 'T2' WHERE id = 2").await;
    let end = cluster.logged().await;
    assert_eq!(end.0, before.0 + 2);
    cluster.followers[0].executed().await;
    let query = "SELECT string_agg(v, ',' ORDER BY id) FROM t WHERE id < 3";
    let mut primary = cluster.primary.server.connect().await;
    let mut replica = cluster.followers[0].connect().await;
    let shown = primary.query(query).await.expect("reads");
    assert_eq!(shown.value(), Some("v1,T2"), "the long fork is set up");
    assert_eq!(replica.query(query).await.expect("reads").value(), Some("v1,v2"));
    assert_eq!(cluster.followers[0].replica.applied(), before);
    let none =
        cluster.try_verify().await.expect_err("no snapshot is a prefix while the fork lasts");
    assert!(none.to_string().contains("no snapshot of the primary"), "{none}");
    // An acknowledgement that reached a client proves that the primary shows it.
    let entries = cluster.collector.log.read(before.next(), 1, usize::MAX).await.expect("reads");
    let xid = u64::from(entries[0].header.xid);
    cluster.visibility.acknowledgements().send(xid).await.expect("someone listens");
    cluster.followers[0].reached(end).await;
    server.show_commits().await;
    first.await.expect("no panic").expect("commits");
    cluster.assert_equal().await;
    assert_eq!(replica.query(query).await.expect("reads").value(), Some("T1,T2"));
}
