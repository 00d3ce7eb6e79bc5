//! The admin database and `SHOW hihooi.*`: commands, columns, permissions, by both protocols
//! (I1 for the protocol; the words are documented for operators and scripts).

use std::time::{Instant, SystemTime};

use bytes::BytesMut;
use hihooi_wire::backend::tag;
use hihooi_wire::frontend::{self, Target};

use crate::harness::client::Session;
use crate::harness::{
    self, Cluster, HANG_S_MAX, Options, alone, beside, eventually, finish, ms, s, shared, succeed,
    target_is_plain, tool,
};

const SHOWS: &[(&str, &[&str])] = &[
    (
        "SHOW REPLICAS",
        &["replica", "state", "lag_entries", "lag_ms", "reason", "since", "kind", "retained_bytes"],
    ),
    ("SHOW SERVERS", &["site", "role", "host", "port", "tls"]),
    ("SHOW POOLS", &["site", "user", "database", "used", "idle", "size", "waiting", "maxwait_ms"]),
    ("SHOW STATS", &["site", "reads", "writes", "commits", "errors"]),
    ("SHOW CLIENTS", &["user", "database", "tls", "auth", "wait_ms"]),
    ("SHOW DATABASES", &["name", "replicated", "slot", "tsid", "slot_retained_bytes", "log_bytes"]),
    ("SHOW USERS", &["name", "admin", "clients"]),
    ("SHOW STATE", &["key", "value"]),
    ("SHOW LISTS", &["list", "items"]),
    ("SHOW LOG", &["first_tsid", "last_tsid", "bytes"]),
    ("SHOW MEM", &["name", "items"]),
    ("SHOW CONFIG", &["key", "value"]),
    ("SHOW VERSION", &["version"]),
];

#[test]
fn every_show_has_its_columns_by_both_protocols() {
    let _beside = beside();
    if target_is_plain() {
        return;
    }
    let mut client = shared().connect();
    client.run("SELECT 1");
    let mut admin = shared().admin();
    for (text, columns) in SHOWS {
        let simple = admin.run(text);
        for column in *columns {
            assert!(
                simple.columns.iter().any(|c| c == column),
                "{text} lacks {column}: {simple:?}"
            );
        }
        assert!(!simple.rows.is_empty(), "{text} has no row");
        assert_eq!(simple.command, "SHOW", "{text}");
        let extended = admin.extended(text, &[]).expect("extended protocol");
        assert_eq!(simple.columns, extended.columns, "{text}");
        let lower = admin.run(&format!("  {} ;", text.to_lowercase()));
        assert_eq!(simple.columns, lower.columns, "{text} in lower case");
    }
}

/// Parse, Describe of the statement and of the portal, Bind and Execute in all usual orders.
#[test]
fn the_extended_protocol_is_complete() {
    let _beside = beside();
    if target_is_plain() {
        return;
    }
    let mut admin = shared().admin();
    let mut out = BytesMut::new();
    frontend::parse(b"s", b"SHOW SERVERS", &mut out);
    frontend::describe(Target::Statement, b"s", &mut out);
    frontend::sync(&mut out);
    frontend::bind(b"p", b"s", std::iter::empty(), &mut out);
    frontend::describe(Target::Portal, b"p", &mut out);
    frontend::execute(b"p", 0, &mut out);
    frontend::close(Target::Statement, b"s", &mut out);
    frontend::sync(&mut out);
    frontend::bind(b"", b"s", std::iter::empty(), &mut out);
    frontend::sync(&mut out);
    admin.send(&out).expect("sent");
    let tags = |session: &mut Session| {
        let messages = session.until_ready(1).expect("answers");
        String::from_utf8(messages.iter().map(|m| m.tag).collect()).expect("ASCII")
    };
    assert_eq!(tags(&mut admin), "1tTZ");
    let rows = "D".repeat(shared().sites().len());
    assert_eq!(tags(&mut admin), format!("2T{rows}C3Z"));
    assert_eq!(tags(&mut admin), "EZ", "a closed statement is gone");
    let mut prepare = BytesMut::new();
    frontend::parse(b"long", &[b' '; 40_000], &mut prepare);
    frontend::sync(&mut prepare);
    for (name, answer) in [("long", "1Z"), ("long", "1Z"), ("more", "EZ")] {
        prepare[5..9].copy_from_slice(name.as_bytes());
        admin.send(&prepare).expect("sent");
        assert_eq!(tags(&mut admin), answer, "there is a limit (I8)");
    }
    let wrong = admin.error("SHOW NONSENSE");
    assert!(wrong.code() == "42601" || wrong.code() == "42704", "{wrong}");
    let wrong = admin.extended("SELECT * FROM pg_class", &[]).expect_err("no SQL here");
    assert!(!wrong.code().is_empty());
    admin.run("SHOW VERSION");
    let mut empty = BytesMut::new();
    frontend::query(b"", &mut empty);
    admin.send(&empty).expect("sent");
    let messages = admin.until_ready(1).expect("an answer");
    assert_eq!(messages[0].tag, tag::EMPTY_QUERY);
}

#[test]
fn psql_and_a_driver_can_use_it() {
    let _beside = beside();
    if target_is_plain() {
        return;
    }
    let mut command = tool("psql", shared().port);
    command.args(["-X", "-d", "hihooi", "-At", "-c", "SHOW REPLICAS"]);
    let text = succeed(&mut command);
    assert_eq!(text.lines().count(), 2, "{text}");
    for listed in ["\\l", "\\d", "\\dt"] {
        let mut command = tool("psql", shared().port);
        command.args(["-X", "-d", "hihooi", "-c", listed]);
        let told = String::from_utf8_lossy(&finish(&mut command).stderr).into_owned();
        assert!(told.contains("commands instead of SQL") && told.contains("SHOW HELP"), "{told}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("rt");
    runtime.block_on(async {
        let config = format!("host=127.0.0.1 port={} user=postgres dbname=hihooi", shared().port);
        let (client, connection) =
            tokio_postgres::connect(&config, tokio_postgres::NoTls).await.expect("connected");
        let connection = tokio::spawn(connection);
        let rows = client.query("SHOW SERVERS", &[]).await.expect("prepared");
        assert_eq!(rows.len(), 3);
        let sites: Vec<String> = rows.iter().map(|row| row.get("site")).collect();
        assert!(sites.contains(&"replica2".to_owned()), "{sites:?}");
        // Numbers and times are what they are, in the binary format, too.
        let lag = |row: &tokio_postgres::Row| row.get::<_, Option<i64>>("lag_entries");
        let reason = |row: &tokio_postgres::Row| row.get::<_, Option<String>>("reason");
        let deadline = Instant::now() + s(HANG_S_MAX);
        let rows = loop {
            let rows = client.query("SHOW REPLICAS", &[]).await.expect("prepared");
            // Who catches up says why; the primary may not say in time where it is.
            if rows.iter().all(|row| lag(row).is_some() && reason(row).is_none()) {
                break rows;
            }
            assert!(Instant::now() < deadline, "{rows:?}");
            tokio::time::sleep(ms(20)).await;
        };
        for row in &rows {
            let (weight, slowdown): (i64, f64) = (row.get("weight"), row.get("slowdown"));
            assert!(weight == 1 && slowdown > 0.0, "{row:?}");
            let since: SystemTime = row.get("since");
            let age = since.elapsed().expect("it has begun");
            assert!(age < s(3_600), "{age:?}");
        }
        client.simple_query("SHOW STATS").await.expect("simple");
        drop(client);
        connection.await.expect("no panic").expect("a clean end");
    });
}

#[test]
fn only_admin_users_get_in() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let _ = shared().connect().simple("CREATE ROLE admin_nobody LOGIN SUPERUSER");
    let refused = shared().try_connect(&[("user", "admin_nobody"), ("database", "hihooi")]);
    let refused = refused.err().expect("refused").server();
    assert_eq!(refused.code(), "42501", "{refused}");
    let unknown = shared().try_connect(&[("user", "nosuch"), ("database", "hihooi")]);
    assert!(unknown.is_err());
}

#[test]
fn pause_stops_applying_and_resume_catches_up() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = shared();
    let mut session = cluster.connect();
    session.run("DROP TABLE IF EXISTS paused; CREATE TABLE paused (id int PRIMARY KEY)");
    cluster.caught_up();
    cluster.command("PAUSE REPLICA replica1");
    eventually("it is paused", || cluster.state("replica1") == "paused");
    for id in 0..10 {
        session.run(&format!("INSERT INTO paused VALUES ({id})"));
    }
    eventually("the lag is shown, and grows with time", || {
        let row = cluster.show_replicas().remove("replica1").expect("shown");
        // Nothing is shown if the primary can't be asked in time.
        assert!(["10", ""].contains(&row["lag_entries"].as_str()), "{row:?}");
        row["lag_ms"].parse::<f64>().is_ok_and(|ms| ms >= 200.0)
    });
    assert_eq!(cluster.direct("replica1").number("SELECT count(*) FROM paused"), 0);
    // Twice is once.
    cluster.command("PAUSE REPLICA replica1");
    cluster.command("RESUME REPLICA replica1");
    cluster.caught_up();
    assert_eq!(cluster.direct("replica1").number("SELECT count(*) FROM paused"), 10);
    cluster.command("RESUME REPLICA replica1");
    let mut admin = cluster.admin();
    for wrong in ["PAUSE REPLICA nosuch", "PAUSE REPLICA primary", "PAUSE REPLICA", "RESUME"] {
        let error = admin.error(wrong);
        assert!(!error.message().is_empty(), "{wrong}");
    }
}

#[test]
fn last_route_tells_where_and_why() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = shared();
    let mut session = cluster.connect();
    session.run("DROP TABLE IF EXISTS routed; CREATE TABLE routed (id int PRIMARY KEY)");
    cluster.caught_up();
    let mut route = |text: &str| {
        session.run(text);
        let route = session.route();
        // Asking doesn't change the answer.
        assert_eq!(session.route().text, route.text);
        (route.site().to_owned(), route.reason().to_owned(), route)
    };
    let (site, reason, told) = route("INSERT INTO routed VALUES (1)");
    assert_eq!((site.as_str(), reason.as_str()), ("primary", "write"), "{}", told.text);
    cluster.caught_up();
    // Until the relay knows that, and the catalog, the primary serves.
    eventually("a fresh replica serves", || {
        let (site, reason, _) = route("SELECT * FROM routed");
        site.starts_with("replica") && reason == "fresh"
    });
    let (site, reason, told) = route("SELECT * FROM routed");
    assert!(site.starts_with("replica"), "{}", told.text);
    assert_eq!(reason, "fresh", "{}", told.text);
    let number = |field: &str| told.get(field).parse::<u64>().expect("a TSID");
    assert!(number("applied") >= number("needed"), "{}", told.text);
    let (site, reason, told) = route("SELECT * FROM routed FOR UPDATE");
    assert_eq!((site.as_str(), reason.as_str()), ("primary", "unsafe"), "{}", told.text);
    route("BEGIN");
    let (site, reason, told) = route("SELECT * FROM routed");
    assert_eq!((site.starts_with("replica"), reason.as_str()), (true, "fresh"), "{}", told.text);
    route("LOCK TABLE routed IN ACCESS SHARE MODE");
    let (site, reason, told) = route("SELECT * FROM routed");
    assert_eq!((site.as_str(), reason.as_str()), ("primary", "explicit_block"), "{}", told.text);
    route("DELETE FROM routed");
    let (_, reason, told) = route("SELECT * FROM routed");
    assert_eq!(reason, "in_write_transaction", "{}", told.text);
    route("ROLLBACK");
    route("CREATE TEMP TABLE routed_temp (id int)");
    let (site, reason, told) = route("SELECT * FROM routed_temp");
    assert_eq!(site, "primary", "{}", told.text);
    assert!(["session_state", "unsafe"].contains(&reason.as_str()), "{}", told.text);
    // Setting it is refused; showing what doesn't exist too.
    assert!(session.simple("SET hihooi.last_route = 'x'").is_err());
    assert!(session.simple("SHOW hihooi.nosuch").is_err());
    let answer = session.extended("SHOW hihooi.last_route", &[]).expect("extended protocol");
    assert_eq!(answer.columns, ["hihooi.last_route"]);
}

/// With a replica that is only just behind, a read waits for it or goes to the primary; either
/// way it says so.
#[test]
fn routes_after_a_write_are_explained() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let mut session = shared().connect();
    session.run("DROP TABLE IF EXISTS explained; CREATE TABLE explained (id int)");
    shared().caught_up();
    for _ in 0..100 {
        session.run("INSERT INTO explained VALUES (1)");
        session.run("SELECT count(*) FROM explained");
        let route = session.route();
        let known = match route.site() {
            "primary" => ["not_fresh", "no_replica"].contains(&route.reason()),
            _ => ["fresh", "waited"].contains(&route.reason()),
        };
        assert!(known, "{}", route.text);
    }
}

#[test]
fn stats_count_what_happened() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = shared();
    let mut session = cluster.connect();
    session.run("DROP TABLE IF EXISTS counted; CREATE TABLE counted (id int PRIMARY KEY)");
    cluster.caught_up();
    let stats = || {
        let replicas: i64 = cluster.replicas().iter().map(|r| cluster.stat(r, "reads")).sum();
        let primary = ["reads", "writes", "commits", "errors"].map(|c| cluster.stat("primary", c));
        (replicas, primary)
    };
    let before = stats();
    for id in 0..20 {
        session.run(&format!("INSERT INTO counted VALUES ({id})"));
    }
    session.error("INSERT INTO counted VALUES (1)");
    cluster.caught_up();
    let (mut by_replicas, mut by_primary) = (0, 0);
    while by_replicas < 30 {
        session.run("SELECT * FROM counted");
        match session.route().site() {
            "primary" => by_primary += 1,
            _ => by_replicas += 1,
        }
    }
    session.run("BEGIN");
    session.run("ROLLBACK");
    let after = stats();
    assert_eq!(after.0 - before.0, by_replicas, "reads of replicas: {before:?} {after:?}");
    assert_eq!(after.1[0] - before.1[0], by_primary, "reads: {before:?} {after:?}");
    assert_eq!(after.1[1] - before.1[1], 21, "writes: {before:?} {after:?}");
    assert!(after.1[2] - before.1[2] >= 20, "commits: {before:?} {after:?}");
    assert_eq!(after.1[3] - before.1[3], 1, "errors: {before:?} {after:?}");
    let clients = cluster.admin().run("SHOW CLIENTS");
    assert!(clients.column("database").contains(&Some("postgres")), "{clients:?}");
}

/// The failures that `up` and `serve` explain in one line, and survive.
#[test]
fn start_up_failures_are_explained_in_one_line() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let said = |command: &mut std::process::Command, words: &[&str]| {
        let output = finish(command);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{command:?} succeeded: {text}");
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 1, "one clear line, not:\n{text}");
        let found = words.iter().any(|word| text.contains(word));
        assert!(found, "{text} should say one of {words:?}");
    };
    // A second `up` on the same data, also on another port.
    said(&mut cluster.up_command(), &["another hihooi"]);
    let mut other = cluster.up_command();
    other.args(["--pg-bin", "/nonexistent"]);
    said(&mut other, &["another hihooi", "/nonexistent"]);
    // A port that is taken, for new data.
    let folder = tempfile::tempdir().expect("a folder");
    let up = |arguments: &[&str]| {
        let mut command = std::process::Command::new(harness::program());
        command.arg("up").arg("--data").arg(folder.path().join("d")).args(arguments);
        command.current_dir("/");
        command
    };
    let taken = format!("127.0.0.1:{}", cluster.port);
    said(&mut up(&["--listen", &taken]), &["in use", "taken", "listen"]);
    let free = format!("127.0.0.1:{}", harness::free_port());
    said(&mut up(&["--listen", &free, "--pg-bin", "/nonexistent"]), &["/nonexistent"]);
    let mut unwritable = std::process::Command::new(harness::program());
    unwritable.args(["up", "--listen", &free, "--data", "/proc/nowhere"]).current_dir("/");
    said(&mut unwritable, &["/proc/nowhere"]);
    let mut missing = std::process::Command::new(harness::program());
    missing.args(["serve", "--config", "/nonexistent.toml"]).current_dir("/");
    said(&mut missing, &["/nonexistent.toml"]);
    // Nothing was damaged.
    cluster.connect().run("CREATE TABLE undamaged (id int)");
    cluster.assert_verified();
    assert!(cluster.manager_runs());
    cluster.kill_manager();
    cluster.up();
}
