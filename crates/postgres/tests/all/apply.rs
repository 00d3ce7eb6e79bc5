//! Everything the primary commits arrives at replicas, whatever its kind (I5), in order without a
//! gap (I2), never before the primary shows it (I3, rule (2)).

use std::time::Duration;

use hihooi_postgres::site::State;
use hihooi_replication::schedule::Method;

use crate::apply_support::{Cluster, Follower, Load};
use crate::support::{self, PATIENCE, Server};

const TYPES: &str = r#"
    CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy');
    CREATE TYPE pair AS (x int, "the y" text);
    CREATE DOMAIN positive AS int CHECK (value > 0);
    CREATE SCHEMA "Odd ""schema";
    CREATE TABLE "Odd ""schema"."T able" (
        "I d" int PRIMARY KEY, "select" text, m mood, ms mood[], p pair, ps pair[], d positive,
        b bytea, f float8, r float4, n numeric(20,5), n2 numeric, c char(5), v varchar(10),
        j json, jb jsonb, pt point, x xml, i interval, tz timestamptz, t time, u uuid, ip inet,
        bits varbit, ts tsvector, rng int4range, money money, arr int[][], bl bool, q "char",
        twice int GENERATED ALWAYS AS ("I d" * 2) STORED);
    CREATE TABLE ident (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
    CREATE TABLE ident2 (id int PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY, big text, v int);
    ALTER TABLE ident2 ALTER big SET STORAGE EXTERNAL;
    CREATE TABLE toast (id int PRIMARY KEY, a text, big text, b int);
    ALTER TABLE toast ALTER big SET STORAGE EXTERNAL;
    CREATE TABLE nokey (a int, b text, j json, p point, x xml, n numeric, c char(3), i inet,
        m mood, bl bool, pr pair);
    CREATE TABLE byindex (a int NOT NULL, b text NOT NULL, c int, UNIQUE (a, b));
    ALTER TABLE byindex REPLICA IDENTITY USING INDEX byindex_a_b_key;
    CREATE TABLE emailed (id int PRIMARY KEY, email text UNIQUE);
    CREATE TABLE keyed (m mood, a int[], p pair, c char(4), v varchar, PRIMARY KEY (m, a, p, c, v));
    CREATE TABLE parent (id int PRIMARY KEY);
    CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE);
    CREATE TABLE parts (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
    CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
    CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (100) TO (200);
    CREATE TABLE none_at_all ();
    CREATE UNLOGGED TABLE unlogged (a int);
    CREATE TABLE counted (id serial PRIMARY KEY);"#;

/// Every kind of change, identity and value; at the end all sites are equal.
#[tokio::test]
async fn every_kind_of_change_and_value_arrives() {
    let cluster = Cluster::start(TYPES, 1).await;
    cluster
        .run(
            r#"
    INSERT INTO "Odd ""schema"."T able" VALUES (1, E'tab\t nl\n back\\slash ''quoted'' "d"', 'it''s ok',
        '{sad,NULL,"it''s ok"}', '(1,"a ""b"", c")', array['(1,a)'::pair, '(,)'], 7,
        '\x00ff5c27', 0.1::float8 + 0.2, 1.1, 12.34500, 1.000, 'ab', 'x', '{"a" :  1}', '{"b": [1.00]}',
        '(1,2)', '<a>&amp;</a>', '1 mon 2 days 03:04:05.6', '2026-01-02 03:04:05.678+05', '23:59:59.5',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '10.0.0.1/8', '10101', 'a:1 b:2A', '[1,5)', '12.34',
        '[0:1][2:3]={{1,2},{NULL,4}}', true, 'z');
    INSERT INTO "Odd ""schema"."T able" ("I d") VALUES (2);
    INSERT INTO "Odd ""schema"."T able" ("I d", f, r, n2, "select") VALUES
        (3, 'NaN', '-Infinity', 'NaN', ''), (4, '-0', 1e-40, 1e100, '\N'), (5, 1e308, 0, -0.00, 'ü€😀');
    UPDATE "Odd ""schema"."T able" SET m = 'happy', "select" = NULL, p = NULL WHERE "I d" = 1;
    UPDATE "Odd ""schema"."T able" SET "I d" = 20 WHERE "I d" = 2;
    INSERT INTO ident (v) VALUES ('a'), ('b'), ('c');
    UPDATE ident SET v = 'B' WHERE id = 2;
    UPDATE ident SET id = DEFAULT WHERE id = 1;
    DELETE FROM ident WHERE id = 3;
    INSERT INTO ident2 (id, big, v) VALUES (1, repeat('z', 10000), 1), (2, 'x', 2);
    UPDATE ident2 SET v = 5 WHERE id = 1;
    UPDATE ident2 SET n = DEFAULT WHERE id = 1;
    INSERT INTO toast VALUES (1, 'a', repeat('0123456789', 5000), 1);
    UPDATE toast SET b = 2 WHERE id = 1;
    UPDATE toast SET a = repeat('x', 9000) WHERE id = 1;
    UPDATE toast SET id = 2 WHERE id = 1;
    UPDATE toast SET big = big;
    INSERT INTO nokey VALUES
        (1, NULL, '{"a":1}', '(1,1)', '<x/>', 1.0, 'a', '10.0.0.1', 'sad', true, '(1,a)'),
        (1, NULL, '{"a":1}', '(1,1)', '<x/>', 1.00, 'a', '10.0.0.1', 'sad', true, '(1,a)'),
        (1, NULL, '{"a":1}', '(1,1)', '<x/>', 1.00, 'a', '10.0.0.1', 'sad', true, '(1,a)'),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '(,)'),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    UPDATE nokey SET b = 'one of two' WHERE ctid = (SELECT max(ctid) FROM nokey WHERE n::text = '1.00');
    DELETE FROM nokey WHERE n::text = '1.00' AND b IS NULL;
    DELETE FROM nokey WHERE a IS NULL AND pr IS NOT DISTINCT FROM NULL::pair;
    INSERT INTO byindex VALUES (1, 'x', 1), (2, 'y', 2);
    UPDATE byindex SET c = NULL WHERE a = 1;
    UPDATE byindex SET b = 'z' WHERE a = 2;
    DELETE FROM byindex WHERE a = 1;
    INSERT INTO keyed VALUES ('sad', '{1,2}', '(1,a)', 'ab', 'v'), ('happy', '{}', '(2,b)', '', '');
    UPDATE keyed SET v = 'w' WHERE m = 'sad';
    DELETE FROM keyed WHERE m = 'happy';
    INSERT INTO parent SELECT generate_series(1, 100);
    INSERT INTO child SELECT n, 1 + n % 100 FROM generate_series(1, 1000) n;
    DELETE FROM parent WHERE id < 10;
    INSERT INTO parts SELECT n, 'p' || n FROM generate_series(50, 149) n;
    UPDATE parts SET id = id + 60 WHERE id BETWEEN 80 AND 85 AND id < 90;
    INSERT INTO none_at_all DEFAULT VALUES;
    INSERT INTO none_at_all DEFAULT VALUES;
    INSERT INTO unlogged VALUES (1);
    INSERT INTO counted SELECT FROM generate_series(1, 30);
    "#
            .replace("UPDATE parts SET id = id + 60", "UPDATE parts SET id = id + 70")
            .as_str(),
        )
        .await;
    let report = cluster.assert_equal().await;
    assert!(report.rows > 1000, "{report}");
    cluster.run("TRUNCATE parent CASCADE; TRUNCATE parts; TRUNCATE counted RESTART IDENTITY").await;
    let report = cluster.assert_equal().await;
    assert!(report.rows < 200, "{report}");
    let mut replica = cluster.followers[0].connect().await;
    let next = replica.query("SELECT nextval('counted_id_seq')").await.expect("a number");
    assert_eq!(next.value(), Some("1"), "RESTART IDENTITY");
    let stats = cluster.followers[0].applier.stats();
    assert!(stats.percentile_us(50).is_some() && stats.entries > 0);
}

const ACCOUNTS: &str = "CREATE TABLE account (id int PRIMARY KEY, v int, note text);
    INSERT INTO account SELECT n, 0, '' FROM generate_series(0, 99) n;
    CREATE TABLE history (id bigserial PRIMARY KEY, a int, b int)";

/// Transfers between accounts: the sum stays 0 in every state that any transaction left.
fn transfer(writer: u64, n: u64) -> String {
    let x = (writer * 7919 + n).wrapping_mul(6_364_136_223_846_793_005) >> 33;
    let (from, to) = (x % 100, (x / 100) % 100);
    let (from, to) = (from.min(to), from.max(to));
    format!(
        "BEGIN; UPDATE account SET v = v - 1 WHERE id = {from};
         UPDATE account SET v = v + 1 WHERE id = {to};
         INSERT INTO history (a, b) VALUES ({from}, {to}); COMMIT"
    )
}

/// I2: no reader of a replica ever sees half a transaction, nor a later one without an earlier, however it is
/// found out which may run at once.
#[tokio::test]
async fn readers_see_a_prefix_under_parallel_apply() {
    let methods = [Method::Graph, Method::Algorithm2, Method::Serial];
    let cluster = Cluster::start_by(ACCOUNTS, "fsync = off", &methods).await;
    let load = Load::start(&cluster, 6, transfer);
    let read = cluster.followers.iter().map(read_prefixes);
    futures_util::future::join_all(read).await;
    load.end().await;
    cluster.assert_equal().await;
}

async fn read_prefixes(follower: &Follower) {
    let mut reader = follower.connect().await;
    let (mut moves, mut last) = (0, 0);
    while moves < 30 || follower.replica.applied().0 < 600 {
        let query = "SELECT (SELECT sum(v) FROM account), (SELECT count(*) FROM history),
                     (SELECT 2 * count(*) FROM history WHERE a <> b),
                     (SELECT sum(abs(v)) FROM account)";
        let answer = reader.query(query).await.expect("reads");
        let value = |n: usize| answer.rows[0][n].as_deref().expect("a number").parse::<i64>();
        assert_eq!(value(0), Ok(0), "half a transaction");
        let count = value(1).expect("a number");
        assert!(count >= last, "went back");
        moves += u32::from(count > last);
        last = count;
    }
}

/// I5: exactly once, after the replica's server was killed again and again in the middle.
#[tokio::test]
async fn exactly_once_through_kill_9_of_the_replica() {
    let cluster = Cluster::start_with(ACCOUNTS, "fsync = on", 1).await;
    let load = Load::start(&cluster, 4, transfer);
    for _ in 0..3 {
        let follower = &cluster.followers[0];
        follower.advances(400).await;
        follower.server.kill_9();
        follower.failed("").await;
        follower.server.launch();
    }
    load.end().await;
    let report = cluster.assert_equal().await;
    assert!(report.rows > 1000, "{report}");
}

/// I5: exactly once when the applier itself goes away at any moment, as with kill -9 of the
/// manager, and a new one takes over.
#[tokio::test]
async fn exactly_once_through_new_appliers() {
    let mut cluster = Cluster::start(ACCOUNTS, 1).await;
    let load = Load::start(&cluster, 4, transfer);
    for count in [50, 80, 110, 70, 90, 60] {
        cluster.followers[0].advances(count).await;
        let held = backends(&cluster.followers[0]).await;
        let config = cluster.config(&cluster.followers[0].replica);
        // The old one still holds the origins: the new one ends its connections by pid.
        let old = std::mem::replace(
            &mut cluster.followers[0].applier,
            hihooi_postgres::apply::start(config),
        );
        let ended = format!(
            "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid IN ({held}))"
        );
        cluster.followers[0].server.shows(&ended).await;
        old.stop().await;
        cluster.followers[0].applier.restart();
    }
    load.end().await;
    cluster.assert_equal().await;
}

/// Divergence is detected when it matters, the replica leaves routing and says why.
#[tokio::test]
async fn a_row_deleted_behind_our_back_stops_the_replica() {
    let cluster = Cluster::start(ACCOUNTS, 1).await;
    cluster.run("UPDATE account SET v = 1 WHERE id = 1").await;
    let before = cluster.settle().await;
    cluster.run_behind("DELETE FROM account WHERE id = 5").await;
    cluster.run("UPDATE account SET v = 2 WHERE id = 1").await;
    cluster.settle().await;
    cluster.run("UPDATE account SET v = 2 WHERE id = 5").await;
    let at = cluster.logged().await;
    let follower = &cluster.followers[0];
    let reason = follower.failed("account").await;
    let expected = format!("entry {at}: UPDATE public.account (id)=(5) changed 0 rows, expected 1");
    assert_eq!(reason, expected);
    assert_eq!(follower.replica.applied().0, before.0 + 1, "the prefix before it stays");
    let report = cluster.verify().await;
    assert_eq!((report.verdict(), report.skipped.len()), ("INCOMPLETE", 1));
    // Mended by the operator, who resumes.
    cluster.run_behind("INSERT INTO account VALUES (5, 0, '')").await;
    cluster.followers[0].applier.resume().await.expect("resumes");
    cluster.assert_equal().await;
    assert_eq!(cluster.followers[0].replica.state(), State::Serving);
}

/// The same for a row that was put there, by its key and by another unique key.
#[tokio::test]
async fn a_row_added_behind_our_back_stops_the_replica() {
    let cluster = Cluster::start(TYPES, 1).await;
    cluster.run_behind("INSERT INTO emailed VALUES (7, 'a@b')").await;
    cluster.run("INSERT INTO emailed VALUES (8, 'a@b')").await;
    let reason = cluster.followers[0].failed("emailed").await;
    assert!(reason.contains("INSERT public.emailed (id)=(8)"), "{reason}");
    assert!(reason.contains("emailed_email_key") && reason.contains("23505"), "{reason}");
    cluster.run_behind("DELETE FROM emailed").await;
    cluster.followers[0].applier.resume().await.expect("resumes");
    cluster.settle().await;
    cluster.run_behind("INSERT INTO emailed VALUES (9, 'c@d')").await;
    cluster.run("INSERT INTO emailed VALUES (9, 'e@f')").await;
    let reason = cluster.followers[0].failed("emailed_pkey").await;
    assert!(reason.contains("(id)=(9)"), "{reason}");
}

/// A secondary unique key passed from row to row: entries that look independent by their key. Such a table
/// counts as a whole once that was found out.
#[tokio::test]
async fn secondary_unique_keys_keep_their_order() {
    let script = "CREATE TABLE emailed (id int PRIMARY KEY, email text UNIQUE);
         INSERT INTO emailed SELECT n, 'x' || n FROM generate_series(1, 10) n";
    let methods = [Method::Graph, Method::Algorithm2, Method::Serial];
    let cluster = Cluster::start_by(script, "fsync = off", &methods).await;
    for round in 0..60 {
        let (a, b) = (1 + round % 10, 1 + (round + 1) % 10);
        cluster
            .run(&format!(
                "UPDATE emailed SET email = NULL WHERE id = {b};
                 UPDATE emailed SET email = (SELECT 'y{round}') WHERE id = {a};
                 UPDATE emailed SET email = NULL WHERE id = {a};
                 UPDATE emailed SET email = 'y{round}' WHERE id = {b};"
            ))
            .await;
    }
    cluster.assert_equal().await;
    for (follower, method) in cluster.followers.iter().zip(methods) {
        let retries = follower.applier.stats().retries;
        assert!(retries < 40, "{method}: {retries} retries of 240 entries");
    }
}

/// Hihooi section 4.2's independence is an optimism here: an index that we don't know of makes
/// entries wait for each other, also over a third one, in ways that neither keys nor PostgreSQL's
/// deadlock detector show.
#[tokio::test]
async fn an_unknown_unique_index_only_costs_retries() {
    let script = "CREATE TABLE t (id int PRIMARY KEY, v text);
        CREATE TABLE other (id int PRIMARY KEY)";
    // Groups of entries would be made as what is left of them in the end: nothing.
    let cluster = Cluster::start_by(script, "fsync = off", &[Method::Algorithm2]).await;
    cluster.run("INSERT INTO t VALUES (0, 'first')").await;
    cluster.settle().await;
    cluster.run_behind("CREATE UNIQUE INDEX ON t (v)").await;
    let mut writer = cluster.primary.server.connect().await;
    let mut round = 0;
    // Until it was put to the test: which groups meet is up to the replica.
    while round < 3 || cluster.followers[0].applier.stats().retries == 0 {
        assert!(round < 100, "no entry ever met another");
        cluster.followers[0].applier.hold(PATIENCE).await.expect("stops");
        // Enough others around them that several groups run at once.
        for n in 0..100 {
            let (other, id) = (1000 * round + n, 3 * n + 1);
            for text in [
                format!("INSERT INTO other VALUES ({other})"),
                format!("INSERT INTO t VALUES ({id}, 'v')"),
                format!("DELETE FROM t WHERE id = {id}"),
            ] {
                writer.query(&text).await.expect("writes");
            }
        }
        cluster.logged().await;
        cluster.followers[0].applier.release();
        cluster.settle().await;
        round += 1;
    }
    cluster.run_behind("DROP INDEX t_v_idx").await;
    cluster.assert_equal().await;
}

/// A group is made as what it changes in the end, many rows by one statement: every way in which changes of a row
/// can follow each other, and values that are hard to write in an array.
#[tokio::test]
async fn groups_change_what_their_entries_change_in_the_end() {
    let script = r#"CREATE TYPE mood AS ENUM ('sad', 'it''s ok', '{"},');
        CREATE TABLE typed (id int, k varchar(9), PRIMARY KEY (id, k), m mood, b bytea, f float8,
            r float4, n numeric(20,5), c char(5), v varchar(9), jb jsonb, i interval, tz timestamptz,
            t time, u uuid, ip inet, bl bool, q "char", bits varbit(9), "odd ""name$1" text,
            big text, twice int GENERATED ALWAYS AS (id * 2) STORED, o oid, d date, mo money);
        ALTER TABLE typed ALTER big SET STORAGE EXTERNAL;
        CREATE TABLE other_types (id int PRIMARY KEY, j json, a int[], x xml, p point);
        CREATE TABLE ident (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int);
        CREATE TABLE unkeyed (a int, b text);
        CREATE TABLE only_key (id int PRIMARY KEY);
        CREATE TABLE emailed (id int PRIMARY KEY, email text UNIQUE);
        CREATE TABLE moved (id int PRIMARY KEY, v int)"#;
    let cluster = Cluster::start(script, 1).await;
    let follower = &cluster.followers[0];
    let mut writer = cluster.primary.server.connect().await;
    let mut x: u64 = 7;
    let mut random = |below: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 33) % below
    };
    for _ in 0..4 {
        follower.applier.hold(PATIENCE).await.expect("stops");
        for _ in 0..300 {
            let (id, v) = (random(12), random(1000));
            let text = match random(16) {
                0 | 1 => format!("DELETE FROM typed WHERE id = {id}"),
                2 => format!("UPDATE typed SET v = '{v}' WHERE id % 3 = {}", id % 3),
                3 => format!(
                    "UPDATE typed SET v = NULL, m = NULL, b = '', big = repeat('{v}', 2000) WHERE id = {id}"
                ),
                4 => format!(
                    "INSERT INTO other_types VALUES ({id}, '{{\"a\": {v}}}', '{{1,{v}}}', '<a/>', '(1,2)') ON CONFLICT (id) DO UPDATE SET j = EXCLUDED.j, a = EXCLUDED.a"
                ),
                5 => format!(
                    "INSERT INTO ident (v) VALUES ({v}); UPDATE ident SET v = v + 1 WHERE id % 4 = 1"
                ),
                6 => format!("INSERT INTO unkeyed VALUES ({v}, 'a,\"\\b'), ({v}, NULL)"),
                7 => format!(
                    "UPDATE unkeyed SET b = 'x' WHERE a < {v}; DELETE FROM unkeyed WHERE a > 900"
                ),
                8 => format!(
                    "INSERT INTO only_key VALUES ({v}) ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id"
                ),
                9 => format!(
                    "INSERT INTO emailed VALUES ({v}, '{id}') ON CONFLICT (email) DO UPDATE SET id = EXCLUDED.id + 1000"
                ),
                10 => format!("DELETE FROM only_key WHERE id % 7 = {}", v % 7),
                11 => format!(
                    "INSERT INTO moved VALUES ({v}, 0) ON CONFLICT (id) DO UPDATE SET id = moved.id + 1000, v = moved.v + 1"
                ),
                _ => format!(
                    r#"INSERT INTO typed VALUES ({id}, 'k"\,{{', CASE {v} % 3 WHEN 0 THEN '{{"}},' ELSE 'it''s ok' END::mood,
                        '\x00ff5c', 'NaN', 1e-30, {v}.50, 'a', E'\\"{{}},', '{{"a": ["\"", null]}}',
                        '1 mon -2 days', 'infinity', '24:00', gen_random_uuid(), '::1/128', true, '\',
                        B'101', 'NULL', repeat('{v}', 2000), DEFAULT, {v}, '4000-01-01 BC', '{v}.01')
                       ON CONFLICT (id, k) DO UPDATE SET v = EXCLUDED.v, "odd ""name$1" = '{v}', n = NULL"#
                ),
            };
            if let Err(error) = writer.simple(&text).await {
                assert!(error.to_string().contains("23505"), "{error}: {text}");
            }
        }
        cluster.logged().await;
        follower.applier.release();
        cluster.assert_equal().await;
    }
    // Sessions keep their last counts to themselves for up to ten seconds, unless they end.
    let writer_ended = format!("pid = {}", writer.key().process);
    drop(writer);
    follower.applier.stop().await;
    let updates = async |server: &Server, ended: &str| -> u64 {
        let ended =
            format!("SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE {ended})");
        server.shows(&ended).await;
        let updates = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'typed'";
        server.shows(updates).await.expect("a number").parse().expect("a number")
    };
    let made = updates(&follower.server, "application_name = 'hihooi applier'").await;
    let wished = updates(&cluster.primary.server, &writer_ended).await;
    assert!(0 < made && made < wished, "{made} updates for {wished}");
    // (One group may have to wait for another and be tried again.)
    assert_eq!(follower.applier.stats().nets_refused, 0);
}

/// Log before apply: what the log does not hold durably may be executed, never committed (I5).
#[tokio::test]
async fn nothing_is_committed_that_the_log_may_lose() {
    let cluster = Cluster::start(ACCOUNTS, 1).await;
    cluster.run("UPDATE account SET v = 1 WHERE id = 1").await;
    let stood = cluster.settle().await;
    // It would flush the log now and then.
    let log = cluster.collector.stop().await;
    let entry = log.read(stood, 1, usize::MAX).await.expect("reads").remove(0);
    let mut next = (*entry).clone();
    next.header.tsid = stood.next();
    next.header.commit_lsn.0 += 1;
    log.append(next).await.expect("appends");
    cluster.followers[0].executed().await;
    assert!(*log.durable().borrow() < stood.next(), "nobody flushed it yet");
    assert_eq!(cluster.followers[0].replica.applied(), stood);
    log.persist().await.expect("persists");
    cluster.followers[0].reached(stood.next()).await;
}

/// I5: exactly once when rounds end at any moment and the next one begins at once, while commits
/// of the last one are on their way.
#[tokio::test]
async fn exactly_once_through_many_restarts() {
    let cluster = Cluster::start(ACCOUNTS, 2).await;
    let load = Load::start(&cluster, 4, transfer);
    for restarts in 0..10 {
        cluster.followers[0].advances(1 + 17 * restarts % 60).await;
        for follower in &cluster.followers {
            let reason = follower.replica.reason();
            assert!(!reason.contains("entry"), "after {restarts} restarts: {reason}");
            follower.applier.restart();
        }
    }
    load.end().await;
    let report = cluster.assert_equal().await;
    assert!(report.rows > 300, "{report}");
}

/// I5: a COMMIT that waits in the socket of a backend, when the round that sent it ends, counts in
/// the next round's position.
#[tokio::test]
async fn a_commit_that_lingers_is_not_applied_again() {
    let cluster = Cluster::start(ACCOUNTS, 1).await;
    for id in 1000..1006 {
        cluster.settle().await;
        let (primary, follower) = (&cluster.primary.server, &cluster.followers[0]);
        primary.hide_commits().await;
        // In the stream, but hidden by the primary: replicas execute it without committing.
        let mut hidden = primary.connect().await;
        let row = format!("INSERT INTO account VALUES ({id}, 0, '')");
        let writer = tokio::spawn(async move { hidden.query(&row).await.map(drop) });
        let port = follower.executed().await;
        let pids = backends(follower).await;
        signal("-STOP", &pids);
        primary.show_commits().await;
        writer.await.expect("no panic").expect("commits");
        lingers(follower.server.port, port).await;
        let since = now(follower).await;
        follower.applier.restart();
        position_read(follower, &since).await;
        signal("-CONT", &pids);
        cluster.settle().await;
    }
    cluster.assert_equal().await;
}

/// The backends of the connections that write, with commas between them, once there are some.
async fn backends(follower: &Follower) -> String {
    let query = "SELECT string_agg(pid::text, ',') FROM pg_stat_activity
                 WHERE application_name = 'hihooi applier' HAVING count(*) > 0";
    follower.server.shows(query).await.expect("some")
}

/// Waits until something lies unread in the socket of the backend that serves this client's port.
async fn lingers(server: u16, client: u16) {
    let end = |port| format!("0100007F:{port:04X}");
    let unread = || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
        let mut sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        sockets.any(|socket| {
            socket[1] == end(server)
                && socket[2] == end(client)
                && !socket[4].ends_with(":00000000")
        })
    };
    let lingers = async {
        while !unread() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, lingers).await.expect("a COMMIT is sent");
}

fn signal(signal: &str, pids: &str) {
    support::must(std::process::Command::new("kill").arg(signal).args(pids.split(',')));
}

/// I5: what a connection that holds an origin commits after a new applier has begun to look is
/// never applied again, even if nobody knows whose connection it is.
#[tokio::test]
async fn the_position_is_read_when_nobody_else_can_commit() {
    let mut cluster = Cluster::start(ACCOUNTS, 1).await;
    for id in 1000..1008 {
        let stood = cluster.settle().await;
        cluster.followers[0].applier.stop().await;
        let row = format!("INSERT INTO account VALUES ({id}, 0, '')");
        let mut other = cluster.followers[0].connect().await;
        let take = "SELECT pg_replication_origin_session_setup('hihooi_0')";
        // The backend that held it goes a moment after its client.
        while other.query(take).await.is_err() {}
        for text in [
            "BEGIN",
            &row,
            &format!("SELECT pg_replication_origin_xact_setup('0/{:X}', now())", stood.0 + 1),
        ] {
            other.query(text).await.expect("an orphan's work");
        }
        cluster.run(&row).await;
        cluster.logged().await;
        let since = now(&cluster.followers[0]).await;
        let config = cluster.config(&cluster.followers[0].replica);
        cluster.followers[0].applier = hihooi_postgres::apply::start(config);
        position_read(&cluster.followers[0], &since).await;
        other.query("COMMIT").await.expect("commits late");
        other.close().await;
        cluster.settle().await;
    }
    cluster.assert_equal().await;
}

async fn now(follower: &Follower) -> String {
    let answer = follower.connect().await.query("SELECT clock_timestamp()").await;
    answer.expect("answers").value().expect("a time").to_owned()
}

/// Waits until an applier has connected since then, and a moment longer for it to ask where its
/// replica stands, which it must not do yet.
async fn position_read(follower: &Follower, since: &str) {
    let connected = format!(
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'hihooi applier control'
         AND backend_start > '{since}'"
    );
    let asked = format!("{connected} AND state = 'idle' AND query LIKE '%origin_progress%'");
    follower.server.shows(&connected).await;
    let moment = Duration::from_millis(400);
    let _ = tokio::time::timeout(moment, follower.server.shows(&asked)).await;
}

/// An applier ends whenever it is told to, also while it connects.
#[tokio::test]
async fn stopping_is_heard_at_any_moment() {
    let mut cluster = Cluster::start(ACCOUNTS, 1).await;
    cluster.settle().await;
    for pause_ms in 0..20 {
        cluster.followers[0].applier.stop().await;
        let config = cluster.config(&cluster.followers[0].replica);
        cluster.followers[0].applier = hihooi_postgres::apply::start(config);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let stopped = cluster.followers[0].applier.stop();
        tokio::time::timeout(PATIENCE, stopped).await.expect("it ends");
        let mut observer = cluster.followers[0].connect().await;
        let query = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'hihooi applier'
                     AND state = 'active'";
        assert!(observer.query(query).await.expect("looks").rows.is_empty());
    }
}

/// PAUSE stops applying, RESUME goes on; a paused replica stands at a prefix.
#[tokio::test]
async fn pause_and_resume() {
    let cluster = Cluster::start(ACCOUNTS, 2).await;
    cluster.run("UPDATE account SET v = 1 WHERE id = 1").await;
    let stood = cluster.settle().await;
    cluster.followers[0].applier.pause(PATIENCE).await.expect("paused");
    assert_eq!(cluster.followers[0].replica.state(), State::Paused);
    cluster.run("UPDATE account SET v = 2 WHERE id = 1").await;
    cluster.followers[1].reached(cluster.logged().await).await;
    assert_eq!(cluster.followers[0].replica.state(), State::Paused);
    assert_eq!(cluster.followers[0].replica.applied(), stood);
    cluster.followers[0].applier.resume().await.expect("resumes");
    cluster.assert_equal().await;
    let flushed = cluster.followers[0].applier.flushed();
    assert!(flushed <= cluster.followers[0].replica.applied());
}

/// PAUSE and RESUME in any order and however fast: what was paused stands, what was resumed last applies again.
#[tokio::test]
async fn a_paused_replica_stands_and_a_resumed_one_applies() {
    let cluster = Cluster::start(ACCOUNTS, 2).await;
    let first = cluster.followers[0].applier.clone();
    let second = cluster.followers[1].applier.clone();
    cluster.settle().await;
    let applied =
        || cluster.followers.iter().map(|each| each.replica.applied()).collect::<Vec<_>>();
    for round in 0..8 {
        first.pause(PATIENCE).await.expect("paused");
        let load = Load::start(&cluster, 3, transfer);
        cluster.written(100).await;
        first.resume().await.expect("resumes");
        tokio::time::sleep(Duration::from_millis(round % 4)).await;
        for _ in 0..10 {
            let (one, other) = tokio::join!(first.pause(PATIENCE), second.pause(PATIENCE));
            one.and(other).expect("paused");
            let stood = applied();
            cluster.written(round).await;
            assert_eq!(applied(), stood, "committed in a pause");
            first.resume().await.expect("resumes");
            second.resume().await.expect("resumes");
        }
        load.end().await;
        cluster.settle().await;
    }
    cluster.assert_equal().await;
}

/// A transaction of many chunks is one transaction at the replica.
#[tokio::test]
async fn a_huge_transaction_arrives_whole() {
    let cluster = Cluster::start(ACCOUNTS, 1).await;
    cluster
        .run(
            "BEGIN; INSERT INTO account SELECT n, 1, repeat('x', 100)
                 FROM generate_series(1000, 40000) n;
             UPDATE account SET v = 2 WHERE id > 30000; DELETE FROM account WHERE id > 39000; COMMIT",
        )
        .await;
    let end = cluster.logged().await;
    let entry = &cluster.collector.log.last().expect("an entry");
    assert!(entry.chunks > 1 && entry.tsid == end, "{entry:?}");
    cluster.assert_equal().await;
}

/// Large transactions one after the other, of one huge row or of many rows: no applier ever stops
/// because the log shows an entry before its chunks can be read (I2, I5).
#[tokio::test]
async fn large_transactions_disturb_no_applier() {
    let cluster = Cluster::start(ACCOUNTS, 2).await;
    cluster.settle().await;
    let replicas: Vec<_> =
        cluster.followers.iter().map(|follower| follower.replica.clone()).collect();
    let watch = tokio::spawn(async move {
        loop {
            for replica in &replicas {
                assert_ne!(replica.state(), State::Failed, "{}", replica.reason());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for n in 0..6 {
        let (id, small, many) = (1000 + 2 * n, 1001 + 2 * n, 10_000 * (n + 1));
        for text in [
            format!("INSERT INTO account SELECT {id}, 0, repeat(md5('{n}'), 160000)"),
            format!("INSERT INTO account VALUES ({small}, 0, 'small')"),
            format!(
                "INSERT INTO account SELECT {many} + n, 0, repeat('y', 1000)
                 FROM generate_series(1, 5000) n"
            ),
        ] {
            cluster.run(&text).await;
        }
    }
    cluster.settle().await;
    assert!(!watch.is_finished(), "{:?}", watch.await);
    watch.abort();
    cluster.assert_equal().await;
}
