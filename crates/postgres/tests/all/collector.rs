//! The order of the log is the order of the primary's commits, complete, nothing twice (I2, I5),
//! through restarts of either side; and what never appears in the stream is passed (I3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hihooi_postgres::collector::{CollectorError, StreamEvent};
use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::setup::{self, COLLECTOR_NAME, SLOT};
use hihooi_postgres::wal_positions::WalPositions;
use hihooi_replication::entry::Change;
use hihooi_replication::ids::Tsid;
use hihooi_replication::written::Written;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::JoinSet;

use crate::support::{
    Collector, PATIENCE, Primary, changes, changes_of, entries, entries_of, open_log, text,
};

const COUNTER: &str = "CREATE TABLE counter (id int PRIMARY KEY, n int);
    INSERT INTO counter VALUES (1, 0)";

/// Many sessions add 1 to one row, so that the values tell the order of commits.
async fn count(primary: &Primary, writers: usize, rounds: usize) {
    count_while(primary, writers, move |n| n < rounds).await;
}

/// They go on as long as `more` says so; how often all of them added.
async fn count_while(
    primary: &Primary,
    writers: usize,
    more: impl Fn(usize) -> bool + Clone + Send + 'static,
) -> usize {
    let mut tasks = JoinSet::new();
    for _ in 0..writers {
        let login = primary.server.login("postgres", "postgres");
        let more = more.clone();
        tasks.spawn(async move {
            let mut connection = Connection::open(&login).await.expect("connects");
            let mut added = 0;
            while more(added) {
                let add = "UPDATE counter SET n = n + 1 WHERE id = 1";
                connection.query(add).await.expect("adds");
                added += 1;
            }
            connection.close().await;
            added
        });
    }
    tasks.join_all().await.into_iter().sum()
}

/// Counts until `disturb` is done, so that it meets writers at work on any machine.
async fn count_during(primary: &Primary, disturb: impl Future<Output = ()>) -> usize {
    let over = Arc::new(AtomicBool::new(false));
    let disturbed = async {
        disturb.await;
        over.store(true, Ordering::Relaxed);
    };
    let goes_on = Arc::clone(&over);
    let writers = count_while(primary, 4, move |_| !goes_on.load(Ordering::Relaxed));
    tokio::join!(writers, disturbed).0
}

/// The values of the counter in the order of the log, which must be 1, 2, 3 …
async fn check_count(log: &hihooi_log::Log, expected: usize) {
    let mut values = Vec::new();
    for change in changes(log).await {
        match change {
            Change::Update { new, .. } => values.push(text(&new[1]).parse::<usize>().expect("n")),
            other => panic!("{other:?}"),
        }
    }
    let wanted: Vec<usize> = (1..=expected).collect();
    assert_eq!(values, wanted);
    let entries = entries(log).await;
    for (tsid, entry) in (1..).zip(&entries) {
        assert_eq!(entry.header.tsid, Tsid(tsid), "TSIDs are dense");
    }
    let lsns = entries.windows(2).all(|pair| {
        pair[0].header.commit_lsn < pair[1].header.commit_lsn
            && pair[0].header.end_lsn <= pair[1].header.commit_lsn
    });
    assert!(lsns, "commit LSNs rise");
}

/// The WAL is the order; I5: complete.
#[tokio::test]
async fn concurrent_writers_get_tsids_in_commit_order() {
    let primary = Primary::start(COUNTER).await;
    let mut collector = primary.collect();
    count(&primary, 4, 50).await;
    let told = collector.until(primary.lsn_after().await).await;
    assert_eq!(entries_of(&told), (1..=200).map(Tsid).collect::<Vec<_>>());
    let mut passed = None;
    for event in &told {
        match event {
            StreamEvent::Entry(entry) => {
                assert!(passed < Some(entry.end_lsn), "Passed never overtakes an entry");
                assert!(matches!(entry.written, Written::Tables(ref tables) if tables.len() == 1));
            }
            StreamEvent::Passed(lsn) => passed = Some(*lsn),
        }
    }
    check_count(&collector.stop().await, 200).await;
}

/// I5: through restarts of the collector, clean or not, nothing is lost and nothing comes twice.
#[tokio::test]
async fn restarts_of_the_collector_lose_nothing() {
    let primary = Primary::start(COUNTER).await;
    let restarts = async {
        for round in 0..6 {
            let mut collector = primary.collect();
            for _ in 0..50 + 7 * round {
                collector.events.recv().await.expect("the collector lives");
            }
            drop(collector.stop().await);
        }
    };
    let counted = count_during(&primary, restarts).await;
    let mut collector = primary.collect();
    collector.until(primary.lsn_after().await).await;
    check_count(&collector.stop().await, counted).await;
}

const CHILD_PORT: &str = "HIHOOI_TEST_PORT";
const CHILD_DIR: &str = "HIHOOI_TEST_DIR";

/// Not a test by itself: what [`kill_9_of_the_collector_loses_nothing`] runs and kills.
#[tokio::test]
#[ignore = "run by kill_9_of_the_collector_loses_nothing in a process of its own"]
async fn child_collects() {
    let (Ok(port), Ok(dir)) = (std::env::var(CHILD_PORT), std::env::var(CHILD_DIR)) else { return };
    let log = open_log(std::path::Path::new(&dir));
    let mut collector = Collector::start_at(port.parse().expect("a port"), log);
    while collector.events.recv().await.is_some() {}
}

/// I5: the slot is confirmed only up to what is durable, so a collector that dies at any moment
/// finds the rest again.
#[tokio::test]
async fn kill_9_of_the_collector_loses_nothing() {
    let primary = Primary::start(COUNTER).await;
    let kills = async {
        for round in 0..6 {
            let at = "SELECT pg_current_wal_lsn()";
            let at = primary.server.shows(at).await.expect("a position");
            let mut child = tokio::process::Command::new(std::env::current_exe().expect("us"))
                .args(["--ignored", "--exact", "collector::child_collects", "--nocapture"])
                .env(CHILD_PORT, primary.server.port.to_string())
                .env(CHILD_DIR, primary.dir.path())
                .stdout(std::process::Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .expect("the child starts");
            let reads = format!(
                "SELECT 1 FROM pg_replication_slots
                 WHERE slot_name = '{SLOT}' AND confirmed_flush_lsn > '{at}'"
            );
            primary.server.shows(&reads).await;
            // Anywhere between two confirmations.
            tokio::time::sleep(Duration::from_millis(31 * round)).await;
            child.kill().await.expect("kill -9");
        }
    };
    let counted = count_during(&primary, kills).await;
    let mut collector = primary.collect();
    collector.until(primary.lsn_after().await).await;
    check_count(&collector.stop().await, counted).await;
}

/// I5: the server may forget only what is durable here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_confirmed_before_it_is_durable() {
    let primary = Primary::start(COUNTER).await;
    let mut collector = primary.collect();
    let durable = collector.log.durable();
    let writers = count(&primary, 4, 400);
    let watch = async {
        let mut told: Vec<(Tsid, hihooi_replication::ids::Lsn)> = Vec::new();
        while told.len() < 1600 {
            let event = collector.events.recv().await.expect("the collector lives");
            if let StreamEvent::Entry(entry) = event {
                told.push((entry.tsid, entry.end_lsn));
            }
            for _ in 0..20 {
                let confirmed = collector.status.confirmed();
                let durable = *durable.borrow();
                let until = told.partition_point(|(_, end_lsn)| *end_lsn <= confirmed);
                let last = told[..until].last().map_or(Tsid::ZERO, |(tsid, _)| *tsid);
                assert!(last <= durable, "{last} is confirmed, only {durable} durable");
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::join!(writers, watch);
    collector.stop().await;
}

/// The text format is fixed, whatever the database and the role prefer.
#[tokio::test]
async fn values_come_in_the_fixed_text_format() {
    let primary = Primary::start(
        "CREATE SCHEMA s; CREATE TABLE s.v (id int PRIMARY KEY, at timestamptz, i interval,
             f float8, b bytea, c regclass);
         ALTER DATABASE postgres SET datestyle = 'German';
         ALTER DATABASE postgres SET intervalstyle = 'iso_8601';
         ALTER DATABASE postgres SET timezone = 'Asia/Tokyo';
         ALTER DATABASE postgres SET bytea_output = 'escape';
         ALTER DATABASE postgres SET search_path = s;
         ALTER ROLE postgres SET extra_float_digits = -10",
    )
    .await;
    let mut collector = primary.collect();
    primary
        .run(
            "INSERT INTO s.v VALUES (1, '2026-01-02 03:04:05+00', '1 day 2 hours', 0.1::float8 + 0.2,
                 'a\\000b'::bytea, 's.v'::regclass)",
        )
        .await;
    collector.until(primary.lsn_after().await).await;
    let changes = changes(&collector.stop().await).await;
    let [Change::Insert { new, .. }] = changes.as_slice() else { panic!("{changes:?}") };
    let values: Vec<&str> = new.iter().map(text).collect();
    let expected = [
        "1",
        "2026-01-02 03:04:05+00",
        "1 day 02:00:00",
        "0.30000000000000004",
        "\\x610062",
        "s.v",
    ];
    assert_eq!(values, expected);
}

async fn write_through(primary: &Primary, break_it: impl FnOnce(&Primary)) {
    let mut collector = primary.collect();
    count(primary, 2, 20).await;
    break_it(primary);
    count(primary, 2, 20).await;
    let mut told = collector.until(primary.lsn_after().await).await;
    told.retain(|event| matches!(event, StreamEvent::Entry(_)));
    assert_eq!(told.len(), 80, "each was told once");
    assert_eq!(collector.status.error(), "");
    check_count(&collector.stop().await, 80).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_of_postgresql() {
    let primary = Primary::start(COUNTER).await;
    write_through(&primary, |primary| primary.server.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_postgresql() {
    let primary = Primary::start(COUNTER).await;
    write_through(&primary, |primary| {
        primary.server.kill_9();
        primary.server.launch();
    })
    .await;
}

/// An xid but no entry; resolution needs that the stream still passes it.
#[tokio::test]
async fn what_changes_nothing_gives_no_entry_but_is_passed() {
    let primary = Primary::start(&format!("{COUNTER}; CREATE UNLOGGED TABLE u (a int)")).await;
    let mut collector = primary.collect();
    for script in [
        "BEGIN; SELECT * FROM counter FOR UPDATE; COMMIT",
        "BEGIN; CREATE TEMP TABLE mine (a int PRIMARY KEY); INSERT INTO mine VALUES (1); COMMIT",
        "INSERT INTO u VALUES (1)",
        "SELECT pg_current_xact_id()",
        "BEGIN; SAVEPOINT a; UPDATE counter SET n = 7; ROLLBACK TO a; COMMIT",
        "SELECT pg_logical_emit_message(true, 'other', 'x')",
        "SELECT pg_logical_emit_message(false, 'hihooi', 'x')",
    ] {
        primary.run(script).await;
        let told = collector.until(primary.lsn_after().await).await;
        assert_eq!(entries_of(&told), [], "{script}");
    }
    assert_eq!(collector.log.last(), None);
    primary.run("UPDATE counter SET n = 1").await;
    let told = collector.until(primary.lsn_after().await).await;
    assert_eq!(entries_of(&told), [Tsid(1)]);
    collector.stop().await;
}

/// Commits with synchronous_commit=off lie beyond the flush position, until the WAL writer comes:
/// here it doesn't.
#[tokio::test]
async fn an_unflushed_commit_is_flushed_and_passed() {
    let primary = Primary::start(COUNTER).await;
    let writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'";
    let writer = Paused::new(&primary.server.shows(writer).await.expect("a pid"));
    let mut collector = primary.collect();
    for _ in 0..3 {
        primary.run("SET synchronous_commit = off; UPDATE counter SET n = n + 1").await;
        let lsn = primary.lsn_after().await;
        assert_eq!(entries_of(&collector.until(lsn).await).len(), 1);
    }
    collector.stop().await;
    drop(writer);
}

/// A process that stands still.
struct Paused(Pid);

impl Paused {
    fn new(pid: &str) -> Paused {
        let pid = Pid::from_raw(pid.parse().expect("a number"));
        kill(pid, Signal::SIGSTOP).expect("it lives");
        Paused(pid)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// At a page boundary the insert position lies behind a header that an idle stream
/// never passes.
#[tokio::test]
async fn a_position_at_a_page_boundary_is_passed() {
    let primary = Primary::start("SELECT").await;
    // So full pages are flushed soon though nothing commits.
    primary.run("ALTER SYSTEM SET wal_writer_delay = '10ms'").await;
    primary.run("SELECT pg_reload_conf()").await;
    let collector = primary.collect();
    let mut connection = primary.server.connect().await;
    let mut positions =
        WalPositions::new(primary.server.connect().await).await.expect("its WAL positions");
    let mut boundaries = 0;
    for round in 0..400 {
        let boundary = at_boundary(&mut connection, round % 10 == 0).await;
        let lsn = positions.lsn_after().await.expect("an LSN");
        if boundary {
            boundaries += 1;
        } else {
            positions.ensure_flushed(lsn).await.expect("flushes");
        }
        let passed = async {
            while collector.status.received() < lsn {
                collector.poke.notify_one();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let passed = tokio::time::timeout(PATIENCE, passed).await;
        assert!(passed.is_ok(), "{lsn} was not passed, boundary: {boundary}");
        if boundaries == 6 {
            break;
        }
    }
    assert_eq!(boundaries, 6, "page boundaries were met");
    collector.stop().await;
}

/// Fills the WAL's page exactly, or nearly; whether a page header was just written.
async fn at_boundary(connection: &mut Connection, switch: bool) -> bool {
    let position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let ask = async |connection: &mut Connection| -> i64 {
        let answer = connection.query(position).await.expect("a position");
        answer.value().expect("a number").parse().expect("a number")
    };
    if switch {
        connection.query("SELECT pg_switch_wal()").await.expect("switches");
    }
    // A message that is not transactional is one record: its header and its content.
    let emit = async |connection: &mut Connection, len: i64| {
        let text = format!(
            "SET synchronous_commit = off;
             SELECT pg_logical_emit_message(false, 'x', repeat('a', {len}))"
        );
        connection.simple(&text).await.expect("emits");
    };
    emit(connection, 300).await;
    let before = ask(connection).await;
    emit(connection, 300).await;
    let overhead = ask(connection).await - before - 300;
    let left = 8192 - ask(connection).await % 8192;
    if left - overhead <= 260 {
        return false;
    }
    emit(connection, left - overhead).await;
    let at = ask(connection).await;
    at % 8192 == 24 || at % (16 << 20) == 40
}

/// Entries of any size pass in chunks, and chunks stand alone.
#[tokio::test]
async fn a_large_transaction_comes_in_chunks() {
    let primary = Primary::start("CREATE TABLE big (id int PRIMARY KEY, t text)").await;
    let mut collector = primary.collect();
    primary
        .run("INSERT INTO big SELECT g, repeat('x', 30) FROM generate_series(1, 100000) g")
        .await;
    let told = collector.until(primary.lsn_after().await).await;
    assert_eq!(entries_of(&told), [Tsid(1)]);
    let log = collector.stop().await;
    let entry = entries(&log).await.remove(0);
    assert!(entry.header.chunks > 3 && entry.chunks.is_empty(), "{:?}", entry.header);
    assert_eq!(entry.header.changes, 100_000);
    let mut next = 1;
    let mut described = 0;
    for change in changes_of(&log, &entry).await {
        match change {
            Change::Relation(relation) => {
                described += 1;
                assert_eq!((relation.schema.as_str(), relation.name.as_str()), ("public", "big"));
            }
            Change::Insert { new, .. } => {
                assert_eq!(text(&new[0]).parse::<u32>().expect("an id"), next);
                next += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((next, described), (100_001, entry.header.chunks));
}

/// An orphaned walsender holds the slot; it is ended if it is one of ours.
#[tokio::test]
async fn an_orphan_on_the_slot_is_ended_a_stranger_is_named() {
    let primary = Primary::start(COUNTER).await;
    let occupy = async |name: &str| {
        let login = Login::new(primary.server.address(), "postgres", "postgres", name)
            .with("replication", "database");
        let mut connection = Connection::open(&login).await.expect("connects");
        let start = format!(
            "START_REPLICATION SLOT {SLOT} LOGICAL 0/0 (proto_version '1', \
             publication_names 'hihooi')"
        );
        hihooi_wire::frontend::query(start.as_bytes(), connection.buffer());
        connection.flush().await.expect("sends");
        connection.next().await.expect("starts");
        connection
    };
    let orphan = occupy(COLLECTOR_NAME).await;
    let mut collector = primary.collect();
    count(&primary, 1, 3).await;
    collector.until(primary.lsn_after().await).await;
    let log = collector.stop().await;
    drop(orphan);

    // A process that died takes a moment to leave the slot.
    setup::free_slot(&mut primary.server.connect().await).await.expect("is freed");
    let stranger = occupy("somebody else").await;
    let pid = stranger.key().process;
    let problems = setup::check(&mut primary.server.connect().await).await.expect("answers");
    let named = |text: &str| text.contains(&format!("pid {pid} (somebody else)"));
    assert!(problems.iter().any(|problem| problem.fatal && named(&problem.text)), "{problems:?}");
    let error = Collector::start(&primary.server, log).failure().await;
    assert!(matches!(error, CollectorError::SlotInUse(ref text) if named(text)), "{error}");
    let freed = setup::free_slot(&mut primary.server.connect().await).await.expect("is freed");
    assert_eq!(freed, Some(pid));
}
