//! DDL: what our sessions announce counts, what anybody forges doesn't, and what came another way
//! is noticed (I6). And that publishing every table makes no statement fail (I1).

mod support;

use hihooi_postgres::connection::Connection;
use hihooi_postgres::setup;
use hihooi_replication::ddl::{self, Announced, ClusterKey};
use hihooi_replication::entry::{Change, Ddl};
use hihooi_replication::ids::{Tsid, Xid};
use hihooi_replication::items::Items;
use support::{KEY, Primary, changes, entries, entries_of};

fn ddl(text: &str) -> Ddl {
    Ddl {
        text: text.to_owned(),
        role: "postgres".to_owned(),
        settings: vec![("search_path".to_owned(), "public".to_owned())],
        outside_transaction: false,
    }
}

/// Runs DDL as a session of ours does: announced with its transaction's xid, then as it is.
async fn announced(connection: &mut Connection, key: &ClusterKey, statements: &[&str]) {
    announced_as(connection, key, statements, true).await;
}

async fn announced_as(
    connection: &mut Connection,
    key: &ClusterKey,
    statements: &[&str],
    is_settled: bool,
) {
    connection.query("BEGIN").await.expect("begins");
    let xid = connection.query("SELECT pg_current_xact_id()").await.expect("an xid");
    let xid = Xid(xid.value().expect("a number").parse().expect("a number"));
    for (sequence, statement) in (1..).zip(statements) {
        let announced = Announced { is_settled, ..Announced::from(&ddl(statement)) };
        let sealed = ddl::seal(key, xid, sequence, announced);
        let emit = "SELECT pg_logical_emit_message(true, 'hihooi', $1)";
        connection.query_with(emit, &[Some(&sealed)]).await.expect("emits");
        connection.query_with(statement, &[]).await.expect("runs");
    }
    connection.query("COMMIT").await.expect("commits");
}

fn bypassed(changes: &[Change]) -> Vec<String> {
    let texts = changes.iter().filter_map(|change| match change {
        Change::Bypassed { command, text } => Some(format!("{command}: {text}")),
        _ => None,
    });
    texts.collect()
}

/// DDL in order and authenticated.
#[tokio::test]
async fn announced_ddl_counts_and_is_not_bypassed() {
    let primary = Primary::start("SELECT").await;
    let mut collector = primary.collect();
    let statements = [
        "CREATE TABLE \"Straße\" (id serial PRIMARY KEY, t text)",
        "CREATE INDEX ON \"Straße\" (t)",
        "  ALTER TABLE \"Straße\" ADD COLUMN b int DEFAULT 5  ",
        "CREATE TABLE copy AS SELECT 1 AS a",
        "COMMENT ON TABLE copy IS 'it''s a copy'",
        "ALTER TABLE copy DROP COLUMN a",
        "DROP TABLE copy",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "GRANT SELECT ON \"Straße\" TO PUBLIC",
    ];
    announced(&mut primary.server.connect().await, &KEY, &statements).await;
    let told = collector.until(primary.lsn_after().await).await;
    assert_eq!(entries_of(&told), [Tsid(1)]);
    let log = collector.stop().await;
    let mut changes = changes(&log).await;
    changes.retain(|change| !matches!(change, Change::Insert { .. }));
    let expected: Vec<Change> = statements.iter().map(|text| Change::Ddl(ddl(text))).collect();
    assert_eq!(changes, expected);
    let header = &entries(&log).await[0].header;
    assert_eq!((&header.items, header.has_ddl), (&Items::Everything, true));
}

/// Any role can emit a message under our prefix, or copy one it saw.
#[tokio::test]
async fn forged_and_copied_announcements_do_not_count() {
    let primary =
        Primary::start("CREATE ROLE joe LOGIN; GRANT CREATE ON SCHEMA public TO joe").await;
    let mut collector = primary.collect();
    let mut joe = primary.server.connect_as("joe", "postgres").await;
    let seen = ddl::seal(&KEY, Xid(3), 1, &ddl("ALTER ROLE joe SUPERUSER"));
    for text in ["alter role joe superuser", &seen] {
        let emit = "SELECT pg_logical_emit_message(true, 'hihooi', $1)";
        joe.query_with(emit, &[Some(text)]).await.expect("emits");
    }
    collector.until(primary.lsn_after().await).await;
    announced(&mut joe, &ClusterKey([1; 32]), &["CREATE TABLE mine (a int)"]).await;
    collector.until(primary.lsn_after().await).await;
    assert_eq!(collector.status.refused.load(std::sync::atomic::Ordering::Relaxed), 3);
    let changes = changes(&collector.stop().await).await;
    assert_eq!(bypassed(&changes), ["CREATE TABLE: CREATE TABLE mine (a int)"]);
    assert_eq!(changes.len(), 1, "{changes:?}");
}

/// DDL that came another way is named; what is local to the primary is not.
#[tokio::test]
async fn what_bypassed_us_is_named_and_temporary_things_are_left_alone() {
    let primary = Primary::start(
        "CREATE ROLE joe LOGIN; GRANT CREATE ON SCHEMA public TO joe; CREATE TABLE t (a int);
         INSERT INTO t VALUES (1)",
    )
    .await;
    let mut collector = primary.collect();
    let mut joe = primary.server.connect_as("joe", "postgres").await;
    let mut root = primary.server.connect().await;
    for local in [
        "CREATE TEMP TABLE mine (a serial PRIMARY KEY, b text)",
        "CREATE INDEX ON mine (b)",
        "COMMENT ON TABLE mine IS 'x'",
        "ALTER TABLE mine ADD COLUMN c int DEFAULT random()",
        "ALTER TABLE mine DROP COLUMN b",
        "CREATE TEMP VIEW v AS SELECT * FROM mine",
        "DROP TABLE mine CASCADE",
        "CREATE TEMP TABLE brief ON COMMIT DROP AS SELECT 1 AS a",
        "DROP TABLE IF EXISTS missing",
    ] {
        joe.query(local).await.expect(local);
    }
    for local in [
        "CREATE ROLE ann",
        "CREATE PUBLICATION other FOR TABLE t",
        "DROP PUBLICATION other",
        "CREATE TABLE IF NOT EXISTS t (a int)",
        "CREATE INDEX CONCURRENTLY i ON t (a)",
        "DROP INDEX CONCURRENTLY i",
        "ALTER TABLE t ADD COLUMN g int GENERATED ALWAYS AS (a + 1) STORED",
    ] {
        root.query(local).await.expect(local);
    }
    let generated = collector.until(primary.lsn_after().await).await;
    assert_eq!(entries_of(&generated).len(), 1, "only the last one is DDL for replicas");
    for noticed in [
        "CREATE TABLE n (a int)",
        "DO $$BEGIN CREATE TABLE d (a int); END$$",
        "GRANT SELECT ON n TO PUBLIC",
        "COMMENT ON COLUMN n.a IS 'x'",
    ] {
        joe.query(noticed).await.expect(noticed);
    }
    for noticed in ["DROP OWNED BY joe", "CREATE SCHEMA s", "DROP SCHEMA s"] {
        root.query(noticed).await.expect(noticed);
    }
    // A role of the database's own can't hide either.
    joe.query("SET session_replication_role = replica").await.expect_err("needs a superuser");
    collector.until(primary.lsn_after().await).await;
    let log = collector.stop().await;
    let found = bypassed(&changes(&log).await);
    assert_eq!(
        found,
        [
            "ALTER TABLE that computes values which replicas can't know: \
             ALTER TABLE t ADD COLUMN g int GENERATED ALWAYS AS (a + 1) STORED",
            "ALTER TABLE: ALTER TABLE t ADD COLUMN g int GENERATED ALWAYS AS (a + 1) STORED",
            "CREATE TABLE: CREATE TABLE n (a int)",
            "CREATE TABLE: DO $$BEGIN CREATE TABLE d (a int); END$$",
            "GRANT: GRANT SELECT ON n TO PUBLIC",
            "COMMENT: COMMENT ON COLUMN n.a IS 'x'",
            "DROP OWNED: DROP OWNED BY joe",
            "DROP OWNED: DROP OWNED BY joe",
            "CREATE SCHEMA: CREATE SCHEMA s",
            "DROP SCHEMA: DROP SCHEMA s",
        ]
    );
    for entry in entries(&log).await {
        assert!(entry.header.has_ddl);
    }
    let left = root.query("SELECT count(*) FROM hihooi.ddl").await.expect("answers");
    assert_eq!(left.value(), Some("0"), "the table doesn't grow (I8)");
}

/// A volatile default rewrites rows that the stream doesn't show: noticed, unless the session
/// says that what it computes is the same everywhere.
#[tokio::test]
async fn rewrites_with_values_of_their_own_are_noticed() {
    let primary = Primary::start(
        "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1);
         CREATE TABLE nothing (a int PRIMARY KEY)",
    )
    .await;
    let mut collector = primary.collect();
    let mut connection = primary.server.connect().await;
    let harmless = [
        "ALTER TABLE t ADD COLUMN b int DEFAULT 5",
        "ALTER TABLE t ALTER COLUMN a TYPE bigint",
        "ALTER TABLE nothing ADD COLUMN u uuid DEFAULT gen_random_uuid()",
    ];
    announced(&mut connection, &KEY, &harmless).await;
    let volatile = "ALTER TABLE t ADD COLUMN u uuid DEFAULT gen_random_uuid()";
    announced_as(&mut connection, &KEY, &[volatile], false).await;
    collector.until(primary.lsn_after().await).await;
    let found = bypassed(&changes(&collector.stop().await).await);
    let why = "ALTER TABLE that computes values which replicas can't know";
    assert_eq!(found, [format!("{why}: {volatile}")]);
}

async fn identity(connection: &mut Connection, table: &str) -> String {
    let ask = format!("SELECT relreplident FROM pg_class WHERE oid = '{table}'::regclass");
    let answer = connection.query(&ask).await.expect("answers");
    answer.value().expect("a letter").to_owned()
}

/// Published tables without identity refuse UPDATE and DELETE; pgbench -i adds its keys
/// last.
#[tokio::test]
async fn tables_without_key_get_full_identity_and_lose_it_with_a_key() {
    let primary = Primary::start(
        "CREATE ROLE joe LOGIN; GRANT CREATE ON SCHEMA public TO joe;
         CREATE TABLE old (a int); INSERT INTO old VALUES (1);
         CREATE TABLE chosen (a int PRIMARY KEY, b int); ALTER TABLE chosen REPLICA IDENTITY FULL;
         CREATE TABLE none (a int); ALTER TABLE none REPLICA IDENTITY NOTHING",
    )
    .await;
    let mut root = primary.server.connect().await;
    let mut joe = primary.server.connect_as("joe", "postgres").await;
    root.simple("UPDATE old SET a = 2; UPDATE none SET a = 2").await.expect("can be changed");
    assert_eq!(identity(&mut root, "old").await, "f");
    // As pgbench does it.
    joe.query("CREATE TABLE acc (aid int NOT NULL, bal int) WITH (fillfactor = 100)")
        .await
        .expect("creates");
    assert_eq!(identity(&mut joe, "acc").await, "f");
    joe.simple(
        "INSERT INTO acc VALUES (1, 1); UPDATE acc SET bal = 2; DELETE FROM acc WHERE bal = 9",
    )
    .await
    .expect("can be changed");
    joe.query("ALTER TABLE acc ADD PRIMARY KEY (aid)").await.expect("adds a key");
    assert_eq!(identity(&mut joe, "acc").await, "d");
    // And when the key goes again.
    joe.query("ALTER TABLE acc DROP CONSTRAINT acc_pkey").await.expect("drops it");
    assert_eq!(identity(&mut joe, "acc").await, "f");
    joe.query("UPDATE acc SET bal = 3").await.expect("can be changed");
    for (statement, table, expected) in [
        ("ALTER TABLE acc ADD PRIMARY KEY (aid)", "acc", "d"),
        ("ALTER TABLE acc DROP COLUMN aid", "acc", "f"),
        ("CREATE TABLE late (a int PRIMARY KEY DEFERRABLE)", "late", "f"),
        (
            "CREATE TABLE calc (a int, b int GENERATED ALWAYS AS (a) STORED PRIMARY KEY)",
            "calc",
            "f",
        ),
        ("CREATE TABLE parts (a int) PARTITION BY LIST (a)", "parts", "f"),
        ("CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1)", "part1", "f"),
        ("ALTER TABLE parts ADD PRIMARY KEY (a)", "parts", "d"),
        ("ALTER TABLE parts ADD COLUMN b int", "part1", "d"),
        ("CREATE TABLE part2 (a int NOT NULL, b int)", "part2", "f"),
        ("ALTER TABLE parts ATTACH PARTITION part2 FOR VALUES IN (2)", "part2", "d"),
        ("CREATE TABLE made AS SELECT 1 AS a", "made", "f"),
        ("SELECT 1 AS a INTO into_this", "into_this", "f"),
        ("ALTER TABLE made REPLICA IDENTITY DEFAULT", "made", "f"),
        ("CREATE TYPE tt AS (a int)", "made", "f"),
        ("CREATE TABLE typed (a tt PRIMARY KEY, b int)", "typed", "d"),
        ("DROP TYPE tt CASCADE", "typed", "f"),
        ("CREATE UNLOGGED TABLE un (a int)", "un", "d"),
        ("ALTER TABLE un SET LOGGED", "un", "f"),
        ("CREATE TABLE ix (a int NOT NULL UNIQUE)", "ix", "f"),
        ("ALTER TABLE ix REPLICA IDENTITY USING INDEX ix_a_key", "ix", "i"),
        ("ALTER TABLE ix DROP CONSTRAINT ix_a_key", "ix", "f"),
    ] {
        joe.query(statement).await.expect(statement);
        assert_eq!(identity(&mut joe, table).await, expected, "{statement}");
    }
    // What the user chose stays.
    root.query("ALTER TABLE chosen ADD COLUMN c int").await.expect("alters");
    assert_eq!(identity(&mut root, "chosen").await, "f");
    let busy =
        root.query("SELECT count(*) FROM hihooi.identity WHERE busy").await.expect("answers");
    assert_eq!(busy.value(), Some("0"));
}

/// I1: what we created is in nobody's way, and nobody can use or undo it.
#[tokio::test]
async fn ordinary_roles_can_dump_and_cannot_meddle() {
    let primary = Primary::start(
        "CREATE ROLE joe LOGIN CREATEROLE; CREATE SCHEMA joe AUTHORIZATION joe;
         CREATE TABLE public.t (a int); GRANT SELECT ON t TO joe",
    )
    .await;
    let mut joe = primary.server.connect_as("joe", "postgres").await;
    joe.query("CREATE ROLE other").await.expect("roles can be made");
    joe.simple("SET search_path = joe; CREATE FUNCTION count() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TABLE pg_class (a int)")
        .await
        .expect("shadowing names disturb nothing");
    for forbidden in [
        "INSERT INTO hihooi.ddl (event, tag, text) VALUES ('end', 'x', 'y')",
        "DELETE FROM hihooi.identity",
        "SELECT hihooi.set_identity(1)",
        "SELECT hihooi.note('end', 'x', 'y')",
        "ALTER EVENT TRIGGER hihooi_ddl_end DISABLE",
        "DROP SCHEMA hihooi CASCADE",
        "DROP PUBLICATION hihooi",
    ] {
        joe.query(forbidden).await.expect_err(forbidden);
    }
    let dump = primary.server.program("pg_dump", "joe", &["postgres"]);
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
}

/// Idempotent, complete, and wise about what it finds.
#[tokio::test]
async fn set_up_twice_and_by_pieces() {
    let server = support::Server::start();
    let mut connection = server.connect().await;
    assert_eq!(setup::check(&mut connection).await.expect("answers").len(), 1, "fsync is off");
    let first = setup::install(&mut connection).await.expect("sets up");
    assert!(first.created);
    let again = setup::install(&mut connection).await.expect("sets up");
    assert_eq!((again.created, again.slot_lsn), (false, first.slot_lsn));
    connection.query("DROP EVENT TRIGGER hihooi_drop").await.expect("drops");
    setup::install(&mut connection).await.expect("repairs");
    let triggers = "SELECT count(*) FROM pg_event_trigger WHERE evtname LIKE 'hihooi%'";
    assert_eq!(connection.query(triggers).await.expect("answers").value(), Some("3"));
    connection.query("DROP PUBLICATION hihooi").await.expect("drops");
    let error = setup::install(&mut connection).await.expect_err("changes were lost");
    assert!(error.to_string().contains("publication hihooi does not"), "{error}");
}

/// Wal_level wrong: one clear line that says what to do.
#[tokio::test]
async fn unfit_servers_are_told_what_to_change() {
    let server = support::Server::start_with(
        "fsync = off\nwal_level = replica\nsynchronous_commit = off\nmax_replication_slots = 0",
    );
    server.connect().await.query("CREATE ROLE joe LOGIN").await.expect("creates");
    let mut joe = server.connect_as("joe", "postgres").await;
    let problems = setup::check(&mut joe).await.expect("answers");
    for expected in
        ["ALTER SYSTEM SET wal_level", "wal_writer_delay", "superuser", "no replication slot"]
    {
        assert!(problems.iter().any(|p| p.text.contains(expected)), "{expected}: {problems:?}");
    }
}

/// Making the slot waits for open writers, and goes on when they end.
#[tokio::test]
async fn set_up_waits_for_an_open_writer() {
    let server = support::Server::start();
    let mut writer = server.connect().await;
    // With a key, so that nothing waits for its lock before the slot is made.
    writer.simple("CREATE TABLE w (a int PRIMARY KEY)").await.expect("creates");
    writer
        .simple("BEGIN; INSERT INTO w VALUES (1); CREATE TABLE w2 (a int)")
        .await
        .expect("writes");
    let mut connection = server.connect().await;
    let install = tokio::spawn(async move { setup::install(&mut connection).await });
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                 AND query LIKE '%pg_create_logical_replication_slot%'";
    server.shows(waits).await;
    assert!(!install.is_finished());
    writer.simple("COMMIT").await.expect("commits");
    assert!(install.await.expect("no panic").expect("sets up").created);
    writer.simple("UPDATE w SET a = 2; UPDATE w2 SET a = 2").await.expect("can be changed");
}
