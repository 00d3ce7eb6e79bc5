//! DDL at the primary: whoever runs it, however deeply nested, is noted where it ran, and nobody
//! can forge a note (I2, I6). And that publishing every table makes no statement fail (I1).

use std::time::Duration;

use hihooi_postgres::connection::Connection;
use hihooi_postgres::setup;
use hihooi_replication::entry::Change;
use hihooi_replication::items::Items;
use hihooi_replication::note::Note;

use crate::support::{self, Primary, changes, entries, entries_of};

/// What is noted, in words.
fn noted(changes: &[Change]) -> Vec<String> {
    let words = |note: &Note| match note {
        Note::Command(command) => {
            let text = command.query.as_ref().or(command.context.as_ref());
            let first = text.map_or("", |text| text.lines().next().unwrap_or_default());
            format!("{} as {}: {first}", command.tag, command.role)
        }
        Note::Drop(gone) => {
            let objects = gone.objects.iter();
            let objects: Vec<String> =
                objects.map(|object| format!("{} {}", object.kind, object.identity)).collect();
            format!("drop as {}: {}", gone.role, objects.join(", "))
        }
        Note::Shared(_) => "shared".to_owned(),
        Note::Owners(_) => "owners".to_owned(),
        Note::Contents(contents) => format!("contents of {}", contents.view),
        Note::Refresh(contents) => format!("refresh of {}", contents.view),
        Note::Unknown(what) | Note::Undecoded(what) => what.clone(),
    };
    let notes = changes.iter().filter_map(|change| match change {
        Change::Note(note) => Some(words(note)),
        _ => None,
    });
    // Identities that we set ourselves, roles that were told with the first note.
    let ours = |words: &String| words.contains("REPLICA IDENTITY FULL") || words == "shared";
    notes.filter(|words| !ours(words)).collect()
}

/// Each innermost command, as the role in force, and nothing that is temporary or a server's own.
#[tokio::test]
async fn the_innermost_commands_are_noted() {
    let primary = Primary::start(
        "CREATE ROLE joe LOGIN; GRANT CREATE ON SCHEMA public TO joe; CREATE TABLE t (a int);
         INSERT INTO t VALUES (1);
         CREATE FUNCTION super() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS
            $$BEGIN EXECUTE 'COMMENT ON TABLE t IS ''x'''; END$$",
    )
    .await;
    let mut collector = primary.collect();
    let mut joe = primary.server.connect_as("joe", "postgres").await;
    let mut root = primary.server.connect().await;
    for local in [
        "CREATE TEMP TABLE t (a serial PRIMARY KEY, b text)",
        "CREATE INDEX ON t (b)",
        "COMMENT ON TABLE t IS 'x'",
        "GRANT SELECT ON t TO PUBLIC",
        "ALTER TABLE t ADD COLUMN c int DEFAULT random()",
        "CREATE TEMP VIEW v AS SELECT * FROM t",
        "DROP TABLE t CASCADE",
        "DROP TABLE IF EXISTS missing",
    ] {
        joe.query(local).await.expect(local);
    }
    root.query("CREATE DATABASE beside").await.expect("creates");
    for local in [
        "CREATE TABLE IF NOT EXISTS t (a int)",
        "CREATE PUBLICATION other FOR TABLE t",
        "COMMENT ON PUBLICATION other IS 'x'",
        "ALTER PUBLICATION other OWNER TO joe",
        "DROP PUBLICATION other",
        "CREATE SUBSCRIPTION other CONNECTION 'host=nowhere' PUBLICATION other WITH (connect = false)",
        "COMMENT ON SUBSCRIPTION other IS 'x'",
        "ALTER SUBSCRIPTION other SET (slot_name = NONE)",
        "DROP SUBSCRIPTION other",
        "SELECT lo_create(16999)",
        "COMMENT ON LARGE OBJECT 16999 IS 'x'",
        "GRANT SELECT ON LARGE OBJECT 16999 TO joe",
        "ALTER LARGE OBJECT 16999 OWNER TO joe",
        "DO $$BEGIN PERFORM lo_put(16999, 0, 'x'); PERFORM lo_unlink(16999); END$$",
        "ALTER DATABASE beside SET work_mem = '1MB'",
        "COMMENT ON DATABASE beside IS 'x'",
        "ALTER ROLE joe IN DATABASE beside SET work_mem = '1MB'",
    ] {
        root.query(local).await.expect(local);
    }
    if root.query("SHOW server_version_num").await.expect("a number").value() >= Some("150000") {
        for local in [
            "SET allow_in_place_tablespaces = on",
            "CREATE TABLESPACE other LOCATION ''",
            "COMMENT ON TABLESPACE other IS 'x'",
            "GRANT CREATE ON TABLESPACE other TO joe",
            "ALTER TABLESPACE other SET (seq_page_cost = 2)",
            "ALTER TABLESPACE other RENAME TO another",
            "DROP TABLESPACE another",
        ] {
            root.query(local).await.expect(local);
        }
    }
    let told = collector.until(primary.lsn_after().await).await;
    assert!(entries_of(&told).is_empty(), "{told:?}");
    for command in [
        "CREATE TABLE n (a int primary key)",
        "DO $$BEGIN EXECUTE 'CREATE TABLE \"d\" (a int primary key)'; END$$",
        "SELECT super()",
        "BEGIN; SAVEPOINT s; DROP TABLE d; ROLLBACK TO s; DROP TABLE n, d; COMMIT",
    ] {
        joe.simple(command).await.expect(command);
    }
    root.simple("SET session_replication_role = replica; CREATE SCHEMA s").await.expect("runs");
    collector.until(primary.lsn_after().await).await;
    let log = collector.stop().await;
    assert_eq!(
        noted(&changes(&log).await),
        [
            "CREATE TABLE as joe: CREATE TABLE n (a int primary key)",
            "CREATE TABLE as joe: SQL statement \"CREATE TABLE \"d\" (a int primary key)\"",
            "COMMENT as postgres: SQL statement \"COMMENT ON TABLE t IS 'x'\"",
            "drop as joe: table public.d, table public.n",
            "CREATE SCHEMA as postgres: SET session_replication_role = replica; CREATE SCHEMA s",
        ]
    );
    for entry in entries(&log).await {
        assert_eq!((&entry.header.items, entry.header.has_ddl), (&Items::Everything, true));
    }
    let left = root.query("SELECT count(*) FROM hihooi.note").await.expect("answers");
    assert_eq!(left.value(), Some("0"), "the table doesn't grow (I8)");
}

/// What an event told of is not told again in front of the commit, also if something else is that no event told of.
#[tokio::test]
async fn commands_are_noted_once() {
    let primary = Primary::start("").await;
    let mut collector = primary.collect();
    let mut root = primary.server.connect().await;
    for statement in [
        "BEGIN",
        "DO $$BEGIN CREATE TABLE a (a int PRIMARY KEY); CREATE TABLE b (a int); END$$",
        "SELECT hihooi.follow(true)",
        "COMMIT",
        "BEGIN",
        "CREATE TABLE c (a int PRIMARY KEY)",
        "EXPLAIN ANALYZE CREATE TABLE d AS SELECT 1 AS a",
        "SELECT hihooi.follow(true)",
        "COMMIT",
    ] {
        root.query(statement).await.expect(statement);
    }
    collector.until(primary.lsn_after().await).await;
    assert_eq!(
        noted(&changes(&collector.stop().await).await),
        [
            "CREATE TABLE as postgres: SQL statement \"CREATE TABLE a (a int PRIMARY KEY)\"",
            "CREATE TABLE as postgres: SQL statement \"CREATE TABLE b (a int)\"",
            "CREATE TABLE as postgres: CREATE TABLE c (a int PRIMARY KEY)",
            "CREATE TABLE AS as postgres: ",
            "owners",
        ]
    );
}

/// Whoever looks every two seconds may be noting an index that REINDEX made valid: its session waits for that, and the notes of
/// its next commands come behind.
#[tokio::test]
async fn an_index_is_noted_in_front_of_what_its_session_does_next() {
    let primary = Primary::start("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let mut collector = primary.collect();
    let mut root = primary.server.connect().await;
    let mut looks = primary.server.connect().await;
    root.query("INSERT INTO t VALUES (1, 1), (2, 1)").await.expect("inserts");
    root.query("CREATE UNIQUE INDEX CONCURRENTLY i ON t (v)").await.expect_err("not unique");
    root.query("SELECT hihooi.follow(false)").await.expect("an index that is not valid is noted");
    for statement in ["DELETE FROM t WHERE id = 2", "REINDEX INDEX i"] {
        root.query(statement).await.expect(statement);
    }
    for statement in ["BEGIN", "SELECT hihooi.follow_indexes(false)"] {
        looks.query(statement).await.expect(statement);
    }
    {
        let mut follows = std::pin::pin!(root.query("SELECT hihooi.follow(false)"));
        let early = tokio::time::timeout(Duration::from_millis(500), &mut follows).await;
        assert!(early.is_err(), "it didn't wait: {early:?}");
        looks.query("COMMIT").await.expect("commits");
        follows.await.expect("goes on");
    }
    root.query("COMMENT ON INDEX i IS 'x'").await.expect("comments");
    collector.until(primary.lsn_after().await).await;
    let words = noted(&changes(&collector.stop().await).await);
    let made = words.iter().position(|word| word.starts_with("CREATE INDEX as postgres"));
    let commented = words.iter().position(|word| word.starts_with("COMMENT as postgres"));
    assert!(made.is_some() && made < commented, "{words:?}");
    let count = words.iter().filter(|word| word.starts_with("CREATE INDEX")).count();
    // That it isn't valid; that it is, and the table.
    assert!(count <= 3, "it was noted twice: {words:?}");
}

/// Open transactions create tables whose columns are generated by the same function.
#[tokio::test]
async fn what_generates_columns_is_no_reason_to_wait() {
    let primary =
        Primary::start("CREATE FUNCTION f(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1'")
            .await;
    let mut sessions = Vec::new();
    for table in ["a", "b"] {
        let mut session = primary.server.connect().await;
        let create = format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, g int GENERATED ALWAYS AS (f(id)) STORED)"
        );
        for statement in ["SET lock_timeout = '20s'", "BEGIN", &create] {
            session.query(statement).await.expect(statement);
        }
        sessions.push(session);
    }
    for session in &mut sessions {
        session.query("COMMIT").await.expect("commits");
    }
}

/// I6: whatever an ordinary role does, what is noted is what happened.
#[tokio::test]
async fn nobody_can_forge_a_note() {
    let primary =
        Primary::start("CREATE ROLE joe LOGIN; GRANT CREATE ON SCHEMA public TO joe").await;
    let mut collector = primary.collect();
    let mut joe = primary.server.connect_as("joe", "postgres").await;
    for forbidden in [
        "INSERT INTO hihooi.note (event, body) VALUES ('command', '{}')",
        "SELECT hihooi.write_note('command', '{}')",
        "SELECT hihooi.note_end('ALTER ROLE', '', '{}')",
        "SELECT hihooi.send_rows('pg_authid'::regclass, 'public', 'mine')",
        "SELECT hihooi.send_contents('pg_authid'::regclass, 'joe')",
        "SELECT hihooi.follow_shared()",
        // From within a command, where event triggers' functions have something to tell.
        "CREATE TABLE forged AS SELECT hihooi.write_note('command', '{}')",
    ] {
        let error = joe.query(forbidden).await.expect_err(forbidden);
        assert_eq!(error.code(), Some("42501"), "{forbidden}: {error}");
    }
    for harmless in [
        "SELECT pg_logical_emit_message(true, 'hihooi', 'alter role joe superuser')",
        "SELECT pg_logical_emit_message(true, 'hihooi_rows', '{1}')",
        "SELECT hihooi.follow(true)",
        "SET hihooi.caller = 'postgres'",
        "CREATE TABLE mine AS SELECT set_config('hihooi.caller', 'postgres', false) AS a",
    ] {
        joe.query(harmless).await.expect(harmless);
    }
    collector.until(primary.lsn_after().await).await;
    let changes = changes(&collector.stop().await).await;
    let found = noted(&changes);
    assert!(found[0].starts_with("CREATE TABLE AS as joe: "), "{found:?}");
    assert_eq!(found.len(), 1, "{found:?}");
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
    // It comes back when it can.
    joe.query("CREATE UNIQUE INDEX again ON ix (a)").await.expect("creates");
    joe.query("ALTER TABLE ix REPLICA IDENTITY USING INDEX again").await.expect("chooses");
    assert_eq!(identity(&mut joe, "ix").await, "i");
}

/// Users' event triggers don't notice that hihooi gives a table its identity, and later commands are as before.
#[tokio::test]
async fn event_triggers_of_users_do_not_notice_identities() {
    let primary = Primary::start(
        "CREATE TABLE told (tag text);
         CREATE FUNCTION tell() RETURNS event_trigger LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO told VALUES (tg_tag); END$$;
         CREATE EVENT TRIGGER tell ON ddl_command_end EXECUTE FUNCTION tell()",
    )
    .await;
    let mut root = primary.server.connect().await;
    root.query("TRUNCATE told").await.expect("it has the set-up's");
    for table in ["a", "b"] {
        root.query(&format!("CREATE TABLE {table} (a int)")).await.expect("creates");
        assert_eq!(identity(&mut root, table).await, "f");
    }
    let told = "SELECT string_agg(tag, ', ') FROM told";
    assert_eq!(root.query(told).await.expect("tags").value(), Some("CREATE TABLE, CREATE TABLE"));
    let role = root.query("SHOW session_replication_role").await.expect("a setting");
    assert_eq!(role.value(), Some("origin"));
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
        "DELETE FROM hihooi.identity",
        "SELECT hihooi.set_identity(1)",
        "ALTER EVENT TRIGGER \"!hihooi_2_end\" DISABLE",
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
    connection.query("DROP EVENT TRIGGER \"!hihooi_2_drop\"").await.expect("drops");
    setup::install(&mut connection).await.expect("repairs");
    let triggers = "SELECT count(*) FROM pg_event_trigger WHERE evtname ~ '^[!~]hihooi'";
    assert_eq!(connection.query(triggers).await.expect("answers").value(), Some("7"));
    // Next to the command, closer than any others, and for every command, since a tag says little of what runs within.
    let first = "SELECT string_agg(evttags::text, '') IS NULL AND bool_and(evtenabled = 'A') AND
        bool_and(CASE evtevent WHEN 'ddl_command_start' THEN evtname COLLATE \"C\" > ALL (others)
            ELSE evtname COLLATE \"C\" < ALL (others[2:]) END)
        FROM pg_event_trigger, (SELECT array_agg(chr(n) COLLATE \"C\" ORDER BY n) FROM generate_series(33, 126) n) o(others)
        WHERE evtname ~ '^[!~]hihooi'";
    assert_eq!(connection.query(first).await.expect("answers").value(), Some("t"));
    // What replicas follow isn't changed by accident.
    connection.query("CREATE PUBLICATION other").await.expect("creates");
    for ours in [
        "DROP PUBLICATION other, hihooi",
        "ALTER PUBLICATION hihooi SET (publish = 'insert')",
        "ALTER PUBLICATION hihooi RENAME TO others",
    ] {
        let error = connection.query(ours).await.expect_err(ours).to_string();
        assert!(error.contains("publication hihooi has to publish everything"), "{ours}: {error}");
    }
    connection.query("ALTER PUBLICATION other RENAME TO others").await.expect("another's");
    connection.query("DROP PUBLICATION others").await.expect("another's");
    connection.query("SET hihooi.removing = on").await.expect("sets");
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
