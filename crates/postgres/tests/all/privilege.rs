//! What runs code of a role without rights, at a replica that a superuser writes to, gives the role
//! nothing; and rows that such code checks arrive like all others (I2, I5).

use std::time::{Duration, Instant};

use hihooi_postgres::connection::Connection;

use crate::apply_support::{Cluster, through};

/// Where every attack has its own table to attack with, and some to win with.
///
/// `win` makes its role a superuser if it runs with such rights. `attack` runs only at replicas,
/// where `plan` says what; a refusal is what has to happen, and makes no difference.
const GREEDY: &str = "
    CREATE ROLE greedy LOGIN; CREATE ROLE honest LOGIN;
    CREATE SCHEMA greedy AUTHORIZATION greedy; GRANT ALL ON SCHEMA greedy TO honest;
    CREATE TABLE victim (k text PRIMARY KEY, v int);
    CREATE TABLE full_victim (k text, v int); ALTER TABLE full_victim REPLICA IDENTITY FULL;
    SET SESSION AUTHORIZATION greedy;
    CREATE FUNCTION greedy.win() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        ALTER ROLE greedy SUPERUSER; RETURN true;
    EXCEPTION WHEN OTHERS THEN RETURN true; END $$;
    CREATE FUNCTION greedy.take() RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE way text; BEGIN
        PERFORM greedy.win();
        FOREACH way IN ARRAY ARRAY['RESET SESSION AUTHORIZATION', 'RESET ROLE',
            'SET SESSION AUTHORIZATION postgres', 'SET ROLE postgres', 'RESET ALL',
            'SELECT set_config(''session_authorization'', ''postgres'', false)']
        LOOP
            BEGIN EXECUTE way; EXCEPTION WHEN OTHERS THEN CONTINUE; END;
            PERFORM greedy.win();
        END LOOP;
        RETURN true;
    END $$;
    CREATE FUNCTION greedy.at_replica() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        RETURN current_setting('session_replication_role') = 'replica'; END $$;
    CREATE FUNCTION greedy.yes(anyelement) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
        RETURN NOT greedy.at_replica() OR greedy.take();
    END $$;
    CREATE FUNCTION greedy.trap() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM greedy.take(); RETURN NEW; END $$;
    CREATE TABLE greedy.other (id int PRIMARY KEY, v text);
    CREATE FUNCTION greedy.plan() RETURNS text[] LANGUAGE sql AS $$ SELECT '{}'::text[] $$;
    CREATE FUNCTION greedy.attack(int) RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE way text; BEGIN
        IF current_setting('session_replication_role') = 'replica' THEN
            FOREACH way IN ARRAY greedy.plan() LOOP
                BEGIN EXECUTE way; EXCEPTION WHEN OTHERS THEN NULL; END;
            END LOOP;
        END IF;
        RETURN true;
    END $$;
    CREATE TABLE greedy.g (id int PRIMARY KEY CHECK (greedy.attack(id)));
    CREATE TABLE greedy.t (id int PRIMARY KEY); INSERT INTO greedy.t VALUES (1);
    RESET SESSION AUTHORIZATION";

async fn is_nobody(cluster: &Cluster) -> bool {
    let mut replica = cluster.followers[0].connect().await;
    let query = "SELECT rolsuper FROM pg_roles WHERE rolname = 'greedy'";
    replica.query(query).await.expect("reads").value() == Some("f")
}

/// Everything that PostgreSQL computes with a role's functions when a row comes, or when a
/// statement about it is planned.
#[tokio::test]
async fn rows_run_functions_as_the_owner() {
    let tables = [
        "check_ (id int PRIMARY KEY, v int, CHECK (greedy.yes(v)))",
        "generated (id int PRIMARY KEY, v int,
             g boolean GENERATED ALWAYS AS (greedy.yes(v)) STORED)",
        "domained (id int PRIMARY KEY, v greedy.number)",
        "domained_twice (id int PRIMARY KEY, v greedy.number2)",
        "element (id int PRIMARY KEY, v int, w greedy.number[] DEFAULT '{1}')",
        "attribute (id int PRIMARY KEY, v int, w greedy.pair DEFAULT '(1,2)')",
        "subtype (id int PRIMARY KEY, v int, w greedy.numbers DEFAULT '[1,2]')",
        "built_in (id int PRIMARY KEY, v int,
             CHECK (query_to_xml('SELECT greedy.take()', true, true, '') IS NOT NULL))",
        "operated (id int PRIMARY KEY, v int, CHECK (v OPERATOR(greedy.===) id))",
        "converted (id int PRIMARY KEY, v int, CHECK (v::greedy.number > 0))",
    ];
    let others = "
        SET SESSION AUTHORIZATION greedy;
        CREATE DOMAIN greedy.number AS int CHECK (greedy.yes(VALUE));
        CREATE DOMAIN greedy.number2 AS greedy.number;
        CREATE TYPE greedy.pair AS (a int, b greedy.number);
        CREATE TYPE greedy.numbers AS RANGE (subtype = greedy.number);
        CREATE FUNCTION greedy.same(int, int) RETURNS boolean IMMUTABLE LANGUAGE sql
            AS 'SELECT greedy.yes($1)';
        CREATE OPERATOR greedy.=== (leftarg = int, rightarg = int, function = greedy.same);
        CREATE TABLE greedy.index_ (id int PRIMARY KEY, v int);
        CREATE INDEX ON greedy.index_ (greedy.yes(v));
        CREATE TABLE greedy.predicate (id int PRIMARY KEY, v int);
        CREATE INDEX ON greedy.predicate (v) WHERE greedy.yes(2);
        CREATE TABLE greedy.statistic (id int PRIMARY KEY, v int);
        CREATE STATISTICS greedy.s ON (greedy.yes(2)), v FROM greedy.statistic;
        CREATE TABLE greedy.partitioned (id int, v int) PARTITION BY LIST ((greedy.yes(id)));
        CREATE TABLE greedy.part PARTITION OF greedy.partitioned FOR VALUES IN (true);
        CREATE TYPE greedy.mood AS ENUM ('a', 'b');
        CREATE FUNCTION greedy.told(greedy.mood) RETURNS text IMMUTABLE LANGUAGE sql
            AS 'SELECT greedy.yes(1)::text';
        CREATE CAST (greedy.mood AS text) WITH FUNCTION greedy.told(greedy.mood);
        CREATE TABLE greedy.cast_ (id int, v int, m greedy.mood[], n greedy.mood DEFAULT 'a');
        CREATE FUNCTION greedy.apart(int4, int4) RETURNS float8 IMMUTABLE LANGUAGE sql
            AS 'SELECT CASE WHEN greedy.yes($1) THEN 1 END::float8';
        CREATE TYPE greedy.range_ AS RANGE (subtype = int4, subtype_diff = greedy.apart);
        CREATE TABLE greedy.difference (id int PRIMARY KEY, v int, r greedy.range_ DEFAULT '[1,9)');
        CREATE INDEX ON greedy.difference USING gist (r)";
    let tables = tables.map(|table| format!("CREATE TABLE greedy.{table};")).join("\n");
    let (last, others) = ("; RESET SESSION AUTHORIZATION", format!("{others};"));
    let script = format!("{GREEDY}; {others} {}{last}", tables.trim_end_matches(';'));
    let cluster = Cluster::start(&script, 1).await;
    let names = [
        "check_",
        "generated",
        "domained",
        "domained_twice",
        "element",
        "attribute",
        "subtype",
        "built_in",
        "operated",
        "converted",
        "index_",
        "predicate",
        "statistic",
        "partitioned",
        "cast_",
        "difference",
    ];
    for name in names {
        let table = format!("greedy.{name}");
        for change in [
            format!("INSERT INTO {table} (id, v) VALUES (1, 1), (2, 2), (3, 3)"),
            format!("UPDATE {table} SET v = 7 WHERE id = 1"),
            format!("DELETE FROM {table} WHERE id = 2"),
            format!("INSERT INTO {table} (id, v) SELECT n, n FROM generate_series(10, 600) n"),
            format!("TRUNCATE {table}; INSERT INTO {table} (id, v) VALUES (4, 4)"),
        ] {
            cluster.run(&change).await;
            cluster.settle().await;
            assert!(is_nobody(&cluster).await, "{change}");
        }
    }
    // Not by `verify`, which a superuser runs.
    for name in names {
        let query = format!("SELECT id, v FROM greedy.{name}");
        let mut primary = cluster.primary.server.connect().await;
        let mut replica = cluster.followers[0].connect().await;
        let rows = primary.query(&query).await.expect("reads").rows;
        assert_eq!(rows.len(), 1);
        assert_eq!(replica.query(&query).await.expect("reads").rows, rows, "{name}");
    }
}

/// What a function could leave behind in the superuser's session or in its own tables, for a
/// superuser's later statement to run.
#[tokio::test]
async fn nothing_is_left_behind_for_a_superuser_to_run() {
    let cluster = Cluster::start(GREEDY, 1).await;
    let plans: &[&[&str]] = &[
        &["SELECT greedy.take()"],
        &["DECLARE c CURSOR WITH HOLD FOR SELECT greedy.win()"],
        &[
            "DEALLOCATE ALL",
            "PREPARE begin AS SELECT greedy.win()",
            "PREPARE commit AS SELECT greedy.win()",
            "PREPARE origin AS SELECT greedy.win()",
            "PREPARE h1 AS SELECT greedy.win()",
            "PREPARE h2 AS SELECT greedy.win()",
        ],
        &["CLOSE ALL", "DISCARD ALL", "DISCARD TEMP", "LISTEN hihooi", "UNLISTEN *"],
        &[
            "CREATE TRIGGER trap BEFORE INSERT ON greedy.other FOR EACH ROW \
             EXECUTE FUNCTION greedy.trap()",
            "ALTER TABLE greedy.other ENABLE ALWAYS TRIGGER trap",
        ],
        &[
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON greedy.other DEFERRABLE INITIALLY \
             DEFERRED FOR EACH ROW EXECUTE FUNCTION greedy.trap()",
            "ALTER TABLE greedy.other ENABLE ALWAYS TRIGGER late",
            "INSERT INTO greedy.other VALUES (-1)",
        ],
        &[
            "CREATE RULE also AS ON INSERT TO greedy.other DO ALSO SELECT greedy.take()",
            "ALTER TABLE greedy.other ENABLE ALWAYS RULE also",
        ],
        &["ALTER TABLE greedy.other ADD COLUMN extra boolean DEFAULT greedy.yes(1)"],
        &["ALTER TABLE greedy.other ADD CHECK (greedy.yes(id)) NOT VALID"],
        &["CREATE EVENT TRIGGER mine ON ddl_command_start EXECUTE FUNCTION greedy.trap()"],
        &[
            "SELECT set_config('hihooi.work', '{{NULL,\"SELECT greedy.take()\"}}', false)",
            "SELECT set_config('search_path', 'greedy, pg_catalog', false)",
            "SELECT set_config('session_replication_role', 'origin', false)",
            "SELECT set_config('event_triggers', 'off', false)",
        ],
        &[
            "DROP EVENT TRIGGER hihooi_rows",
            "CREATE OR REPLACE FUNCTION hihooi.carry_out() RETURNS int LANGUAGE sql \
             AS 'SELECT 1 FROM greedy.take()'",
            "CREATE FUNCTION hihooi.win() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "SELECT pg_replication_origin_advance('hihooi_0', '0/FFFF')",
            "SELECT pg_replication_origin_session_reset()",
            "SELECT pg_replication_origin_xact_setup('0/FFFF', now())",
            "DO $x$ BEGIN EXECUTE (SELECT 'DROP MATERIALIZED VIEW ' || c.oid::regclass FROM \
             pg_class c WHERE relkind = 'm' LIMIT 1); END $x$",
            "DO $x$ BEGIN EXECUTE (SELECT 'CREATE INDEX ON ' || c.oid::regclass || \
             ' (greedy.yes(done))' FROM pg_class c WHERE relkind = 'm' LIMIT 1); END $x$",
        ],
    ];
    for (number, plan) in (1..).zip(plans) {
        let ways: Vec<String> = plan.iter().map(|way| format!("$w${way}$w$")).collect();
        let prepare = format!(
            "CREATE OR REPLACE FUNCTION greedy.plan() RETURNS text[] LANGUAGE sql \
             AS $p$ SELECT ARRAY[{}] $p$",
            ways.join(", ")
        );
        // The DDL's transaction first: the row's function runs in one that is no DDL.
        let constraint = format!("c{number}");
        let add =
            format!("ALTER TABLE greedy.t ADD CONSTRAINT {constraint} CHECK (greedy.attack(id))");
        let drop = format!("ALTER TABLE greedy.t DROP CONSTRAINT {constraint}");
        for attack in ["row", "ddl"] {
            through(&cluster, "greedy", "greedy", &[&prepare]).await;
            let id = number * 10 + i32::from(attack == "ddl");
            if attack == "row" {
                cluster.run(&format!("INSERT INTO greedy.g VALUES ({id})")).await;
            } else {
                through(&cluster, "greedy", "greedy", &[&add]).await;
                through(&cluster, "greedy", "greedy", &[&drop]).await;
            }
            cluster
                .run(&format!(
                    "INSERT INTO greedy.other VALUES ({id}, 'x');
                     INSERT INTO victim VALUES ('k{id}', 1);
                     INSERT INTO full_victim VALUES ('k{id}', 1);
                     UPDATE victim SET v = 2 WHERE k = 'k{id}';
                     UPDATE full_victim SET v = 2 WHERE k = 'k{id}'"
                ))
                .await;
            cluster.settle().await;
            assert!(is_nobody(&cluster).await, "{attack}: {plan:?}");
        }
    }
    let mut replica = cluster.followers[0].connect().await;
    let count = replica.query("SELECT count(*) FROM greedy.g").await.expect("counts");
    assert_eq!(count.value(), Some(plans.len().to_string().as_str()));
}

/// Types and functions of a session's temporary schema come before all others.
#[tokio::test]
async fn what_is_temporary_is_refused() {
    let script = GREEDY.replace(
        "SELECT '{}'::text[]",
        "SELECT ARRAY['CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (greedy.yes(VALUE))']",
    );
    let cluster = Cluster::start(&script, 1).await;
    cluster.run("INSERT INTO victim VALUES ('k', 1)").await;
    cluster.run("INSERT INTO greedy.g VALUES (1)").await;
    cluster.run("UPDATE victim SET v = 2 WHERE k = 'k'").await;
    cluster.settle().await;
    assert!(is_nobody(&cluster).await);
    // The replica does without what a CHECK says; it can't do without what an index does.
    let add = "ALTER TABLE greedy.t ADD CHECK (greedy.attack(id))";
    through(&cluster, "greedy", "greedy", &[add]).await;
    cluster.run("UPDATE victim SET v = 3 WHERE k = 'k'").await;
    cluster.settle().await;
    assert!(is_nobody(&cluster).await);
    let index = "CREATE INDEX ON greedy.t (greedy.immutable(id))";
    let function = "CREATE FUNCTION greedy.immutable(int) RETURNS boolean LANGUAGE plpgsql \
                    IMMUTABLE AS 'BEGIN RETURN greedy.attack($1); END'";
    through(&cluster, "greedy", "greedy", &[function, index]).await;
    cluster.run("UPDATE victim SET v = 4 WHERE k = 'k'").await;
    let reason = cluster.followers[0].failed("temporary").await;
    assert!(reason.contains(index), "{reason}");
    assert!(is_nobody(&cluster).await);
}

/// What is known of a table is forgotten when DDL may have changed it, also in between the rows of
/// one transaction, and also what other tables take from a domain or a function.
#[tokio::test]
async fn a_table_may_turn_dangerous_at_any_time() {
    let script = format!(
        "{GREEDY}; SET SESSION AUTHORIZATION greedy;
         CREATE DOMAIN greedy.number AS int; CREATE TABLE greedy.d (id int PRIMARY KEY, n greedy.number);
         CREATE TABLE greedy.d2 (id int PRIMARY KEY, n greedy.number[]);
         CREATE TABLE greedy.parts (id int) PARTITION BY RANGE (id);
         CREATE TABLE greedy.odd (id int) PARTITION BY RANGE (greedy.yes(id));
         CREATE TABLE greedy.part (id int PRIMARY KEY);
         RESET SESSION AUTHORIZATION"
    );
    let cluster = Cluster::start(&script, 1).await;
    through(
        &cluster,
        "greedy",
        "greedy",
        &[
            "INSERT INTO greedy.d VALUES (1, 1)",
            "INSERT INTO greedy.d2 VALUES (1, '{1}')",
            "INSERT INTO greedy.part VALUES (1)",
            "INSERT INTO greedy.t VALUES (2)",
            "ALTER TABLE greedy.t ADD CHECK (greedy.yes(id)) NOT VALID",
            "INSERT INTO greedy.t VALUES (3)",
            "ALTER DOMAIN greedy.number ADD CHECK (greedy.yes(VALUE)) NOT VALID",
            "INSERT INTO greedy.d VALUES (2, 2)",
            "INSERT INTO greedy.d2 VALUES (2, '{2}')",
            "ALTER TABLE greedy.odd ATTACH PARTITION greedy.part FOR VALUES FROM (true) TO (MAXVALUE)",
            "INSERT INTO greedy.part VALUES (2)",
        ],
    )
    .await;
    for id in 3..20 {
        cluster
            .run(&format!(
                "INSERT INTO greedy.d VALUES ({id}, 1); INSERT INTO greedy.t VALUES (1{id});
                 INSERT INTO greedy.d2 VALUES ({id}, '{{1}}'); INSERT INTO greedy.part VALUES ({id})"
            ))
            .await;
    }
    cluster.settle().await;
    assert!(is_nobody(&cluster).await);
}

/// Tables whose rows run functions, by their indexes (CHECK constraints are not evaluated), beside some
/// that don't, of two owners; every kind of value.
const GUARDED: &str = "
    CREATE ROLE ann; CREATE ROLE bob; CREATE SCHEMA ann AUTHORIZATION ann;
    CREATE SCHEMA bob AUTHORIZATION bob; CREATE TABLE plain (id int PRIMARY KEY, v text);
    SET SESSION AUTHORIZATION ann;
    CREATE FUNCTION ann.ok(anyelement) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
        AS 'BEGIN RETURN true; END';
    CREATE TYPE ann.pair AS (a int, b text);
    CREATE TABLE ann.\"t $1 \"\"x\" (id int PRIMARY KEY CHECK (ann.ok(id)), \"c $2\" text, b bytea,
        f float8, n numeric, a text[], p ann.pair, j jsonb, t timestamptz, c char(5), v varchar(9),
        g int GENERATED ALWAYS AS (id + 1) STORED, i int GENERATED ALWAYS AS IDENTITY, x xml,
        bits bit(3));
    CREATE TABLE ann.whole (a int, b text, n numeric, p ann.pair, CHECK (ann.ok(a)));
    ALTER TABLE ann.whole REPLICA IDENTITY FULL;
    CREATE TABLE ann.forced (id int PRIMARY KEY CHECK (ann.ok(id)), v text);
    ALTER TABLE ann.forced ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
    CREATE TABLE ann.parts (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
    CREATE TABLE ann.low PARTITION OF ann.parts (CHECK (ann.ok(v))) FOR VALUES FROM (0) TO (50);
    CREATE TABLE ann.high PARTITION OF ann.parts FOR VALUES FROM (50) TO (5000);
    CREATE INDEX ON ann.\"t $1 \"\"x\" (ann.ok(id));
    CREATE INDEX ON ann.whole (ann.ok(a));
    CREATE INDEX ON ann.forced (ann.ok(id));
    CREATE INDEX ON ann.low (ann.ok(v));
    SET SESSION AUTHORIZATION bob;
    CREATE TABLE bob.t (id int PRIMARY KEY, v text CHECK (v IS NULL OR now() > '2000-01-01'));
    CREATE TABLE bob.child (id int PRIMARY KEY REFERENCES bob.t CHECK (now() > '2000-01-01'));
    CREATE FUNCTION bob.ok(anyelement) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
        AS 'BEGIN RETURN true; END';
    CREATE INDEX ON bob.t (bob.ok(id));
    CREATE INDEX ON bob.child (bob.ok(id));
    RESET SESSION AUTHORIZATION";

#[tokio::test]
async fn guarded_rows_arrive_like_all_others() {
    let cluster = Cluster::start(GUARDED, 1).await;
    let table = "ann.\"t $1 \"\"x\"";
    let long = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 4000) n)";
    for script in [
        format!(
            r#"INSERT INTO {table} VALUES
               (1, 'it''s $1 "quoted" \ {{a,b}}', '\x00ff5c27', 'NaN', 'NaN', '{{"a\"b",NULL,"\\"}}',
                   '(1,"x, ""y""")', '{{"a": "\\ ''"}}', '2026-01-02 03:04:05.678+09', 'ab', 'v'),
               (2, '', '', '-Infinity', 1.50, '{{}}', NULL, 'null', 'infinity', '', ''),
               (3, NULL, NULL, 0.1, -0.0, NULL, '(,)', NULL, NULL, NULL, NULL)"#
        ),
        format!("INSERT INTO {table} (id, x, bits, \"c $2\") VALUES (4, '<a>ü</a>', '101', E'n\\nt\\t')"),
        format!("INSERT INTO {table} (id, \"c $2\", b) SELECT 5, l, l::bytea FROM {long} l(l)"),
        // The long values stay where they are.
        format!("UPDATE {table} SET v = 'u' WHERE id = 5; UPDATE {table} SET id = 6 WHERE id = 1"),
        format!("UPDATE {table} SET b = NULL, i = DEFAULT WHERE id = 2; DELETE FROM {table} WHERE id = 3"),
        "INSERT INTO ann.whole VALUES (1, 'a', 1.0, '(1,a)'), (1, 'a', 1.0, '(1,a)'),
             (1, 'a', 1.00, '(,)'), (NULL, NULL, NULL, NULL), (2, 'c', 3, NULL);
         UPDATE ann.whole SET b = 'z' WHERE n::text = '1.00'; DELETE FROM ann.whole WHERE a = 2;
         UPDATE ann.whole SET b = 'null' WHERE a IS NULL"
            .to_owned(),
        "INSERT INTO ann.forced VALUES (1, 'a'), (2, 'b'); UPDATE ann.forced SET v = 'c' WHERE id = 1;
         DELETE FROM ann.forced WHERE id = 2"
            .to_owned(),
        "INSERT INTO ann.parts SELECT n, 'p' FROM generate_series(1, 99) n;
         UPDATE ann.parts SET id = id + 100 WHERE id < 10"
            .to_owned(),
        // Owners take turns in one transaction, with others in between.
        "BEGIN; INSERT INTO plain VALUES (1, 'a'); INSERT INTO bob.t VALUES (1, 'b');
         INSERT INTO ann.forced VALUES (3, 'c'); INSERT INTO bob.child VALUES (1);
         UPDATE plain SET v = 'd' WHERE id = 1; UPDATE bob.t SET v = 'e' WHERE id = 1;
         DELETE FROM ann.forced WHERE id = 3; UPDATE bob.t SET v = 'f' WHERE id = 1; COMMIT"
            .to_owned(),
        "BEGIN; INSERT INTO bob.t SELECT n, 'many' FROM generate_series(10, 2500) n;
         UPDATE bob.t SET v = 'more' WHERE id % 2 = 0; COMMIT"
            .to_owned(),
        "TRUNCATE bob.t, bob.child; INSERT INTO bob.t VALUES (7, 'after')".to_owned(),
    ] {
        cluster.run(&script).await;
        cluster.assert_equal().await;
    }
    let mut replica = cluster.followers[0].connect().await;
    let query = "SELECT relforcerowsecurity FROM pg_class WHERE oid = 'ann.forced'::regclass";
    assert_eq!(replica.query(query).await.expect("reads").value(), Some("t"));
    let left = "SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class
                WHERE relnamespace = 'hihooi'::regnamespace AND relkind <> 'i'";
    assert_eq!(replica.query(left).await.expect("reads").value(), Some("set_aside, unchecked"));
}

/// What doesn't fit is told of a guarded row in the words that every other row has. Its table is set aside, and what else
/// its transaction wrote is there.
#[tokio::test]
async fn divergence_is_told_in_the_same_words() {
    let cluster = Cluster::start(GUARDED, 1).await;
    cluster.run("INSERT INTO bob.t SELECT n, 'a' FROM generate_series(1, 5) n").await;
    cluster.settle().await;
    for (number, (behind, change, repair, words)) in [
        (
            "DELETE FROM bob.t WHERE id = 4",
            "UPDATE bob.t SET v = 'b' WHERE id > 1",
            "SELECT",
            "UPDATE bob.t (id)=(4) changed 0 rows, expected 1",
        ),
        (
            "INSERT INTO bob.t VALUES (6)",
            "INSERT INTO bob.t VALUES (6, 'c')",
            "SELECT",
            "INSERT bob.t (id)=(6): duplicate key value violates unique constraint \"t_pkey\" \
             (SQLSTATE 23505); Key (id)=(6) already exists.",
        ),
        (
            "REVOKE INSERT ON bob.t FROM bob",
            "INSERT INTO bob.t VALUES (7, 'd')",
            "GRANT INSERT ON bob.t TO bob",
            "GRANT them to bob",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        cluster.run_behind(behind).await;
        cluster.run(&format!("BEGIN; INSERT INTO plain VALUES ({number}); {change}; COMMIT")).await;
        cluster.settle().await;
        let replica = &cluster.followers[0].replica;
        let set_aside = replica.set_aside();
        let (name, reason) = set_aside.values().next().expect("it is set aside");
        assert!(name == "bob.t" && reason.ends_with(words), "{name}: {reason}");
        let mut direct = cluster.followers[0].connect().await;
        let plain = direct.query("SELECT count(*) FROM plain").await.expect("reads");
        assert_eq!(plain.value(), Some(&*(number + 1).to_string()));
        cluster.run_behind(repair).await;
        cluster
            .run("TRUNCATE bob.t, bob.child; INSERT INTO bob.t VALUES (1), (2), (3), (4), (5)")
            .await;
        cluster.assert_equal().await;
        assert!(replica.set_aside().is_empty() && replica.reason().is_empty());
    }
}

/// I5: guarded rows too are applied exactly once, whenever the replica's server dies.
#[tokio::test]
async fn exactly_once_through_kill_9() {
    let cluster = Cluster::start_with(GUARDED, "fsync = on", 1).await;
    let port = &cluster.primary.server;
    let mut writer = port.connect().await;
    let load = tokio::spawn(async move {
        for id in 1..=600 {
            let text = format!(
                "BEGIN; INSERT INTO bob.t VALUES ({id}, 'a'); INSERT INTO plain VALUES ({id}, 'b');
                 INSERT INTO ann.whole VALUES (1, 'same'); COMMIT"
            );
            writer.simple(&text).await.expect("writes");
        }
    });
    for step in 1..=3_u64 {
        let follower = &cluster.followers[0];
        let mut progress = follower.replica.progress();
        let far = |at: &hihooi_replication::ids::Tsid| at.0 >= step * 60;
        progress.wait_for(far).await.expect("applies");
        follower.server.kill_9();
        follower.failed("").await;
        follower.server.launch();
    }
    load.await.expect("no panic");
    let report = cluster.assert_equal().await;
    assert_eq!(report.rows, 3 * 600, "{report}");
}

/// DDL whose subject is the role itself, or what it owns.
#[tokio::test]
async fn a_role_gives_away_and_drops_what_it_owns() {
    let script = format!(
        "{GREEDY}; GRANT honest TO greedy; GRANT SELECT ON victim TO greedy;
         GRANT CREATE ON DATABASE postgres TO honest"
    );
    let cluster = Cluster::start(&script, 1).await;
    through(&cluster, "greedy", "greedy, public", &["REASSIGN OWNED BY greedy TO honest"]).await;
    through(
        &cluster,
        "greedy",
        "greedy, public",
        &[
            "CREATE TABLE mine (id int CHECK (greedy.yes(id)))",
            "INSERT INTO mine VALUES (1)",
            "DROP OWNED BY CURRENT_USER",
            "ALTER TABLE greedy.other RENAME TO others",
        ],
    )
    .await;
    cluster.assert_equal().await;
    let mut replica = cluster.followers[0].connect().await;
    let query = "SELECT to_regclass('greedy.mine') IS NULL AND to_regclass('greedy.others') IS NOT NULL \
                 AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname LIKE 'hihooi%')";
    assert_eq!(replica.query(query).await.expect("reads").value(), Some("t"));
}

/// How long it takes; run by hand.
#[tokio::test]
#[ignore = "a measurement"]
async fn the_time_it_takes() {
    let cluster = Cluster::start(GUARDED, 1).await;
    let mut primary: Connection = cluster.primary.server.connect().await;
    for (table, what) in [("plain", "unguarded"), ("bob.t", "guarded")] {
        for rows in [1, 1000] {
            let mut took = Vec::new();
            for turn in 0..100 {
                let from = turn * 1000;
                let text = format!(
                    "INSERT INTO {table} SELECT n, 'a' FROM generate_series({from}, {from} + {rows} - 1) n"
                );
                primary.simple(&text).await.expect("writes");
                let started = Instant::now();
                cluster.settle().await;
                took.push(started.elapsed());
            }
            took.sort();
            println!("{what}, {rows} rows: commit to applied, median {:?}", took[took.len() / 2]);
            cluster.run(&format!("TRUNCATE {table} CASCADE")).await;
            cluster.settle().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
