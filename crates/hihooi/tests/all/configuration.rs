//! Servers whose own configurations differ (`postgresql.conf`, `ALTER SYSTEM`) answer alike: like the
//! primary, whichever is asked (I1).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;

use crate::harness::client::{Message, Session};
use crate::harness::{Cluster, Options, eventually, ms, target_is_plain};

/// It shows TimeZone, DateStyle, extra_float_digits, bytea_output and a custom setting.
const ASK: &str =
    "SELECT concat_ws(' ', at, at::date, f, b, current_setting('app.region', true)) FROM shown";
/// The same, so slow that those who ask together have a connection each.
const SLOW: &str = "SELECT max(concat_ws(' ', at, at::date, f, b, current_setting('app.region', true))) \
    FROM shown, generate_series(1, 200000)";
/// A session reads at least so often, and until every replica has answered.
const READS: usize = 12;

/// What a session is answered, at all replicas.
fn answers(cluster: &Cluster, session: &mut Session) -> BTreeSet<String> {
    let (mut answers, mut missing) = (BTreeSet::new(), cluster.replicas());
    eventually("every replica answers", || {
        for _ in 0..READS {
            answers.insert(session.value(ASK));
            let route = session.route();
            missing.retain(|site| site != route.site());
        }
        missing.is_empty()
    });
    answers
}

/// What sessions are answered that ask together.
fn answers_together(crowd: &mut [Session]) -> BTreeSet<String> {
    std::thread::scope(|scope| {
        let asking: Vec<_> =
            crowd.iter_mut().map(|session| scope.spawn(|| session.value(SLOW))).collect();
        asking.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    })
}

fn alter(cluster: &Cluster, site: &str, settings: &[&str]) {
    let mut session = cluster.direct(site);
    for setting in settings {
        session.run(&format!("ALTER SYSTEM {setting}"));
    }
    session.run("SELECT pg_reload_conf()");
}

#[test]
fn whose_configuration_it_is_makes_no_difference() {
    if target_is_plain() {
        return;
    }
    // Who looks for silent servers sees their configurations change.
    let cluster = Cluster::start(Options::replicas(2).noticing_silence());
    let mut session = cluster.connect();
    session.run(
        "CREATE TABLE shown (at timestamptz, f float8, b bytea); \
         INSERT INTO shown VALUES ('2026-02-03 04:05:06Z', 1.0 / 3, 'x'); \
         CREATE ROLE config_joe LOGIN; GRANT SELECT ON shown TO config_joe",
    );
    cluster.caught_up();
    let expect = |session: &mut Session, at: &str| {
        let mut are_such = || {
            let answers = answers(&cluster, session);
            (answers.len() == 1 && answers.iter().all(|text| text.starts_with(at)), answers)
        };
        eventually(&format!("all answer {at}"), || are_such().0);
        for _ in 0..3 {
            let (stays_so, answers) = are_such();
            assert!(stays_so, "{answers:?} instead of {at}");
        }
    };
    let wanted = session.value(ASK);
    let mut crowd: Vec<Session> = (0..6).map(|_| cluster.connect()).collect();
    let wanted = BTreeSet::from([wanted]);
    assert_eq!(answers_together(&mut crowd), wanted);

    // A replica's own configuration counts for nothing, for sessions of before and of now.
    alter(
        &cluster,
        "replica1",
        &["SET TimeZone = 'Asia/Tokyo'", "SET DateStyle = 'German'", "SET extra_float_digits = -9"],
    );
    alter(&cluster, "replica2", &["SET search_path = 'nowhere'", "SET bytea_output = 'escape'"]);
    std::thread::sleep(ms(500)); // for the servers to have read it
    for _ in 0..3 {
        assert_eq!(answers(&cluster, &mut session), wanted);
        assert_eq!(answers(&cluster, &mut cluster.connect()), wanted);
    }
    assert_eq!(answers_together(&mut crowd), wanted);

    // The primary's counts everywhere.
    let path = cluster.data().join("primary/postgresql.conf");
    let mut file = File::options().append(true).open(path).expect("the primary's configuration");
    writeln!(file, "app.region = 'a b\\\\c'").expect("is writable");
    alter(&cluster, "primary", &["SET TimeZone = 'Asia/Kolkata'", "SET DateStyle = 'SQL, DMY'"]);
    let mut wanted = String::new();
    eventually("the primary has read it", || {
        wanted = cluster.direct("primary").value(ASK);
        wanted.starts_with("03/02/2026 09:35:06") && wanted.ends_with("a b\\c")
    });
    expect(&mut session, &wanted);
    expect(&mut cluster.connect(), &wanted);

    // Whichever connections were idle meanwhile.
    assert_eq!(answers_together(&mut crowd), BTreeSet::from([wanted]));

    // What the role has counts more, and what the client asks for at its start most.
    session.run("ALTER ROLE config_joe SET TimeZone = 'America/New_York'");
    cluster.caught_up();
    let open = |parameters: &[(&str, &str)]| cluster.try_connect(parameters).expect("a session");
    expect(&mut open(&[("user", "config_joe")]), "02/02/2026 23:05:06 EST");
    expect(&mut open(&[("user", "config_joe"), ("TimeZone", "UTC")]), "03/02/2026 04:05:06 UTC");
    expect(&mut open(&[("options", "-c DateStyle=ISO")]), "2026-02-03 09:35:06+05:30");

    // A server that starts anew reads its configuration, too.
    alter(&cluster, "primary", &["RESET ALL"]);
    alter(&cluster, "replica1", &["RESET ALL"]);
    alter(&cluster, "replica2", &["RESET ALL", "SET TimeZone = 'Asia/Tokyo'"]);
    let since = || cluster.show_replicas()["replica2"]["since"].clone();
    let before = since();
    cluster.kill_site("replica2");
    // Its processes answer for a moment more.
    eventually("replica2 is known to have died", || since() != before);
    let wanted = cluster.direct("primary").value(ASK);
    expect(&mut session, &wanted);
}

/// What the primary's configuration says of names, blocks and what clients are told is so for sessions that are open,
/// too (I1): their reads are as fresh as the rows that the names mean now require.
#[test]
fn i1_open_sessions_take_on_the_primarys_configuration() {
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(Options::replicas(1).noticing_silence());
    let (mut before, mut writes) = (cluster.connect(), cluster.connect());
    writes.run(
        "CREATE SCHEMA other; CREATE TABLE other.t (n int); CREATE TABLE t (n int); \
         INSERT INTO other.t VALUES (1)",
    );
    cluster.caught_up();
    assert_eq!(before.value("SELECT count(*) FROM t"), "0");
    let settings = [
        "SET search_path = other, public",
        "SET default_transaction_isolation = 'serializable'",
        "SET TimeZone = 'Asia/Kolkata'",
    ];
    alter(&cluster, "primary", &settings);
    eventually("a new session is told", || {
        let new = cluster.connect();
        let is_zone = |message: &&Message| message.body.starts_with(b"TimeZone\0Asia/Kolkata\0");
        new.greeting.iter().filter(is_zone).count() == 1
    });
    let mut new = cluster.connect();
    for session in [&mut before, &mut new] {
        session.run("BEGIN");
        assert_eq!(session.value("SELECT count(*) FROM t"), "1");
        assert_eq!(session.value("SHOW transaction_isolation"), "serializable");
        session.run("COMMIT; SET default_transaction_isolation = 'read committed'");
        session.value("SELECT count(*) FROM t");
        assert_eq!(session.route().site(), "replica1");
    }
    // The replica can show what the table had, but not write what it gets.
    let mut replica = cluster.direct("replica1");
    replica.run("BEGIN; LOCK TABLE other.t IN SHARE MODE");
    writes.run("INSERT INTO t VALUES (2)");
    for session in [&mut before, &mut new] {
        assert_eq!(session.value("SELECT count(*) FROM t"), "2");
        assert_eq!(session.route().site(), "primary");
    }
    replica.run("COMMIT");
    cluster.assert_verified();
}

/// Settings of the database reach hihooi's own connections, too: rows are the same at all sites, whatever they are, and no
/// limit on time ends what hihooi does (I2). (Of each setting that has a few values one is taken that it hasn't.)
#[test]
fn i2_what_the_database_sets_changes_no_row() {
    if target_is_plain() {
        return;
    }
    // What no session can write or answer with; `exit_on_error` ends it at the first error.
    const NOT: &str =
        "^(transaction_.*|default_transaction_read_only|exit_on_error|(log|debug|trace)_.*)$";
    const LIMITS: [&str; 4] = [
        "statement_timeout",
        "lock_timeout",
        "idle_session_timeout",
        "idle_in_transaction_session_timeout",
    ];
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run(&format!(
        "DO $$ DECLARE s record; BEGIN
            FOR s IN SELECT name, CASE vartype WHEN 'bool' THEN CASE setting WHEN 'on' THEN 'off' ELSE 'on' END
                     ELSE (SELECT max(v) FROM unnest(enumvals) v WHERE v <> setting) END AS value
                FROM pg_settings WHERE context = 'user' AND vartype IN ('bool', 'enum') AND name !~ '{NOT}'
            LOOP EXECUTE format('ALTER DATABASE postgres SET %I = %L', s.name, s.value); END LOOP;
        END $$"
    ));
    let more = LIMITS.map(|limit| (limit, "200ms"));
    let others = [
        ("DateStyle", "German"),
        ("TimeZone", "Asia/Kolkata"),
        ("extra_float_digits", "-9"),
        ("search_path", "no"),
    ];
    for (name, value) in others.into_iter().chain(more) {
        session.run(&format!("ALTER DATABASE postgres SET {name} = '{value}'"));
    }
    cluster.caught_up();
    drop(session);
    cluster.kill_everything();
    cluster.up();
    let unlimited = LIMITS.map(|limit| format!("-c {limit}=0")).join(" ");
    let mut session =
        cluster.connect_with(&[("options", &format!("{unlimited} -c search_path=public"))]);
    assert_eq!(session.value("SHOW array_nulls"), "off");
    session.run(
        "CREATE TABLE t (id int PRIMARY KEY, a text[], i int[], f float8, g float4, at timestamptz, d date, v interval, \
             b bytea, x xml, n numeric, j jsonb, s text CHECK (s <> 'a'), gen text[] GENERATED ALWAYS AS (a) STORED)",
    );
    session.run(
        "INSERT INTO t SELECT n, ARRAY[NULL, 'NULL', 'a'], ARRAY[n, NULL], n / 3.0, n / 7.0, \
             timestamptz '2026-02-03 04:05:06.789Z' + n * interval '1 month', date '2026-03-02' + n, \
             interval '-1 month 2 days 03:04:05' * n, decode('00ff27', 'hex'), '<a>b</a>', n / 11.0, \
             '{\"a\": null}', E'b\\\\c' FROM generate_series(1, 20) n",
    );
    session.run("UPDATE t SET a = ARRAY[a[2], NULL], f = -f WHERE id < 10");
    session.run("DELETE FROM t WHERE id = 20");
    session.run("ALTER TABLE t ADD k text[] DEFAULT ARRAY[NULL, clock_timestamp()::text]");
    session.run("CREATE TABLE u AS SELECT id, a, x FROM t");
    cluster.caught_up();
    std::thread::sleep(ms(500)); // longer than the limits
    session.run("INSERT INTO u VALUES (0, ARRAY[NULL]::text[], '<b/>')");
    cluster.assert_verified();
    assert_eq!(session.value("SELECT count(*) FROM t WHERE a[2] IS NULL OR a[1] IS NULL"), "19");

    // The test's own sessions at the primary may take longer.
    for limit in LIMITS {
        session.run(&format!("ALTER DATABASE postgres RESET {limit}"));
    }
    // (As long as this transaction is open, PostgreSQL keeps what others have read beside it.)
    session.run("BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO u VALUES (-1)");
    let began = cluster.direct("primary").value("SELECT extract(epoch FROM clock_timestamp())");
    let ours = "application_name LIKE 'hihooi%'";
    cluster.until_active(&format!(
        "{ours} AND query LIKE '%hihooi.tidy%' AND query_start > to_timestamp({began})"
    ));
    let serializable = format!(
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE mode = 'SIReadLock' AND {ours}"
    );
    assert_eq!(cluster.direct("primary").number(&serializable), 0, "no client fails because of it");
    session.run("ROLLBACK");
}
