//! A site that is frozen (SIGSTOP) or out of reach is found within `sites.timeout_ms`: reads go on
//! elsewhere, `SHOW REPLICAS` and the log say why, and it comes back by itself. One that is only busy
//! is left alone.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hihooi_wire::backend::{ErrorFields, tag};
use hihooi_wire::frontend;

use crate::harness::{Cluster, Options, Session, alone, eventually, ms, target_is_plain};

const TIMEOUT_MS_DEFAULT: u64 = 2_000;
/// What a loaded machine may add to a bound.
const SLACK: Duration = Duration::from_secs(3);
const READ: &str = "SELECT n FROM kept WHERE id = 1";

/// A cluster with a table that replicas are read for.
fn cluster(options: Options) -> Cluster {
    let cluster = Cluster::start(options);
    let mut session = cluster.connect();
    session.run("CREATE TABLE kept (id int PRIMARY KEY, n int); INSERT INTO kept VALUES (1, 1)");
    cluster.caught_up();
    eventually("it is read at a replica", || {
        session.run(READ);
        session.route().site().starts_with("replica")
    });
    cluster
}

fn timeout_ms(ms: u64) -> Options {
    Options::default().env("HIHOOI_SITES_TIMEOUT_MS", &ms.to_string())
}

/// What `SHOW REPLICAS` says of a replica, if it failed.
fn failure(cluster: &Cluster, site: &str) -> Option<String> {
    let mut row = cluster.show_replicas().remove(site).expect("a replica");
    (row["state"] == "failed").then(|| row.remove("reason").expect("a reason"))
}

/// Asserts that the log tells so many silences of a replica, and of each failure its beginning and its
/// end. (While its server starts, a replica may fail for another reason.)
fn assert_told(cluster: &Cluster, site: &str, times: usize) {
    let site = format!("site=\"{site}\"");
    let told = |words: &str| cluster.logged(&[&site, words]);
    assert_eq!(told("frozen or out of reach"), times, "{}", cluster.log_tail());
    let (begun, ended) = (told("the replica has failed"), told("the replica is back"));
    assert_eq!(begun, ended, "{}", cluster.log_tail());
}

/// Readers that go on until they are stopped, each on a session of its own.
struct Readers {
    stop: Arc<AtomicBool>,
    slowest_ms: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Readers {
    fn start(cluster: &Cluster, count: usize) -> Readers {
        let (stop, slowest_ms) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let reader = |number: usize| {
            let (stop, slowest_ms) = (stop.clone(), slowest_ms.clone());
            let mut session = cluster.connect();
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    read(&mut session, number.is_multiple_of(2));
                    let took_ms = u64::try_from(began.elapsed().as_millis()).expect("not years");
                    slowest_ms.fetch_max(took_ms, Ordering::SeqCst);
                    std::thread::sleep(ms(2)); // so that the machine has time for others
                }
            })
        };
        let threads = (0..count).map(reader).collect();
        Readers { stop, slowest_ms, threads }
    }

    /// The longest that a read took.
    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|reader| reader.join().expect("a reader"));
        ms(self.slowest_ms.load(Ordering::SeqCst))
    }
}

fn read(session: &mut Session, is_simple: bool) {
    let answer = match is_simple {
        true => session.simple(READ).map(|mut answers| answers.remove(0)),
        false => session.extended(READ, &[]),
    };
    match answer {
        Ok(answer) => assert_eq!(answer.rows.len(), 1),
        Err(failure) => panic!("a reader noticed that a replica was frozen: {failure}"),
    }
}

/// Every read is answered, none later than the bound; new sessions as well; and the replica is
/// used again when it goes on.
#[test]
fn readers_notice_nothing_of_a_frozen_replica() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(Options::default());
    let bound = ms(TIMEOUT_MS_DEFAULT) + SLACK;
    let readers = Readers::start(&cluster, 8);
    let before = cluster.stat("replica1", "reads");
    eventually("it serves readers", || cluster.stat("replica1", "reads") >= before + 100);

    let began = Instant::now();
    let frozen = cluster.freeze("replica1");
    while began.elapsed() < bound {
        let opened = Instant::now();
        let mut session = cluster.connect();
        read(&mut session, true);
        let took = opened.elapsed();
        assert!(took < bound, "a new session had its first answer after {took:?}");
        std::thread::sleep(ms(20));
    }
    let why = failure(&cluster, "replica1").expect("out of routing");
    assert!(why.contains("frozen or out of reach"), "{why}");
    let mut writer = cluster.connect();
    for n in 2..20 {
        writer.run(&format!("UPDATE kept SET n = {n}"));
        assert_eq!(writer.number(READ), n, "I4");
    }
    drop(frozen);
    eventually("it serves again", || cluster.state("replica1") == "serving");
    let before = cluster.stat("replica1", "reads");
    eventually("it is read again", || cluster.stat("replica1", "reads") >= before + 100);

    let slowest = readers.stop();
    eprintln!("the slowest read took {slowest:?}");
    assert!(slowest < bound, "a read took {slowest:?}");
    assert_told(&cluster, "replica1", 1);
    assert_told(&cluster, "replica2", 0);
    cluster.assert_verified();
}

/// It is found although nobody reads there, so that the first who does doesn't wait.
#[test]
fn an_idle_replica_that_freezes_is_found_too() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(500));
    for site in ["replica1", "replica2"] {
        let frozen = cluster.freeze(site);
        eventually("it is told", || failure(&cluster, site).is_some());
        let servers = cluster.admin().run("SHOW SERVERS").records();
        let states = |name: &str| servers.iter().find(|server| server["site"] == name).cloned();
        assert_eq!(states(site).expect("its row")["state"], "failed");
        for _ in 0..20 {
            let began = Instant::now();
            read(&mut cluster.connect(), true);
            assert!(began.elapsed() < ms(1_500), "a read took {:?}", began.elapsed());
        }
        drop(frozen);
        eventually("it serves again", || cluster.state(site) == "serving");
        assert_told(&cluster, site, 1);
    }
}

/// All replicas at once: the primary reads.
#[test]
fn reads_fall_to_the_primary_when_all_replicas_are_frozen() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(500));
    let readers = Readers::start(&cluster, 4);
    let frozen = [cluster.freeze("replica1"), cluster.freeze("replica2")];
    eventually("both are told", || {
        ["replica1", "replica2"].iter().all(|site| failure(&cluster, site).is_some())
    });
    let mut session = cluster.connect();
    session.run(READ);
    assert_eq!(session.route().reason(), "no_replica");
    drop(frozen);
    cluster.caught_up();
    let slowest = readers.stop();
    assert!(slowest < ms(500) + SLACK, "a read took {slowest:?}");
    cluster.assert_verified();
}

/// Who waits for a connection there doesn't try it in turn.
#[test]
fn who_waits_for_a_connection_to_a_frozen_replica_goes_elsewhere() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(500).env("HIHOOI_POOL_SIZE", "1"));
    let readers = Readers::start(&cluster, 12);
    eventually("it serves readers", || cluster.stat("replica1", "reads") >= 100);
    let frozen = cluster.freeze("replica1");
    eventually("it is told", || failure(&cluster, "replica1").is_some());
    std::thread::sleep(SLACK);
    let slowest = readers.stop();
    drop(frozen);
    assert!(slowest < ms(500) + SLACK, "a read took {slowest:?}");
}

/// Rows can't be taken back, so their reader is told as by a server whose connection broke.
#[test]
fn a_read_that_has_sent_rows_ends_with_an_error() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(500));
    let mut session = cluster.connect();
    let mut query = BytesMut::new();
    let rows = "SELECT g, repeat('x', 10000) FROM kept, generate_series(1, 50000) g";
    frontend::query(rows.as_bytes(), &mut query);
    session.send(&query).expect("sent");
    while session.next().expect("an answer").tag != tag::DATA_ROW {}
    let mut active = cluster.admin().run("SHOW SERVERS").records();
    active.retain(|server| server["role"] == "replica" && server["active"] == "1");
    let site = active.pop().expect("it runs at a replica")["site"].clone();

    let frozen = cluster.freeze(&site);
    eventually("it is told", || failure(&cluster, &site).is_some());
    let began = Instant::now();
    let error = loop {
        let message = session.next().expect("an error before the end");
        match message.tag {
            tag::DATA_ROW => {}
            tag::ERROR => break ErrorFields::read(&message.body).expect("its fields"),
            other => panic!("unexpected {}", char::from(other)),
        }
    };
    assert_eq!((error.code(), error.get(b'V')), ("08006", Some("FATAL")), "{error}");
    assert!(session.next().is_err(), "the session has ended");
    assert!(began.elapsed() < SLACK, "it was told after {:?}", began.elapsed());
    drop(frozen);
    cluster.caught_up();
}

/// What takes long is no silence: the site answers when it is asked.
#[test]
fn a_busy_replica_is_left_alone() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(1_000));
    let sleepers = ["SELECT pg_sleep(5)", "SELECT n, pg_sleep(5) FROM kept"].map(|text| {
        let mut session = cluster.connect();
        std::thread::spawn(move || {
            let began = Instant::now();
            session.run(text);
            assert!(began.elapsed() >= ms(5_000), "it was not slept to the end");
            assert!(session.route().site().starts_with("replica"), "{:?}", session.route());
        })
    });
    // Servers that have more to do than processors.
    let count = "SELECT count(*) FROM kept, generate_series(1, 2000000) a WHERE a % 7 = n";
    let counters: Vec<_> = (0..4)
        .map(|_| {
            let mut session = cluster.connect();
            std::thread::spawn(move || session.number(count))
        })
        .collect();
    sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("a sleeper"));
    for counter in counters {
        assert!(counter.join().expect("a counter") > 0);
    }
    for site in ["replica1", "replica2"] {
        assert_eq!(cluster.stat(site, "errors"), 0, "{site}");
        assert_told(&cluster, site, 0);
    }
}

/// A write waits for a frozen primary: cut off, its outcome would be in doubt.
#[test]
fn a_write_waits_for_a_frozen_primary() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(300));
    let mut writer = cluster.connect();
    writer.run("UPDATE kept SET n = 2");
    let frozen = cluster.freeze("primary");
    let writing = std::thread::spawn(move || writer.simple("UPDATE kept SET n = 3").map(drop));
    let told = |words: &str| cluster.logged(&["site=\"primary\"", words]);
    eventually("it is told", || told("the primary does not answer") == 1);
    let opened = Instant::now();
    cluster.connect();
    assert!(opened.elapsed() < ms(1_500), "a login took {:?}", opened.elapsed());
    std::thread::sleep(ms(1_000));
    assert!(!writing.is_finished(), "the write was not waited for");
    drop(frozen);
    assert!(matches!(writing.join().expect("the writer"), Ok(())));
    eventually("its end is told", || told("the primary answers again") == 1);
    assert_eq!(told("the primary does not answer"), 1);
    assert_eq!(cluster.connect().number(READ), 3);
}

/// A way to a server that can be cut without a word. A connection that was open then never carries
/// anything again.
struct Way {
    port: u16,
    /// How often it was cut and mended; odd while it is cut.
    changes: Arc<AtomicU64>,
}

impl Way {
    fn to(server: u16) -> Way {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let changes = Arc::<AtomicU64>::default();
        let seen = changes.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let opened_at = seen.load(Ordering::SeqCst);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (from, to) = (from.expect("a socket"), to.expect("a socket"));
                    let seen = seen.clone();
                    let carries = move || {
                        let now = seen.load(Ordering::SeqCst);
                        now == opened_at && now.is_multiple_of(2)
                    };
                    std::thread::spawn(move || carry(from, to, carries));
                }
            }
        });
        Way { port, changes }
    }

    /// Cuts it, or mends it.
    fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

/// Carries bytes until an end; none, and no end either, once the way was cut.
fn carry(mut from: TcpStream, mut to: TcpStream, carries: impl Fn() -> bool) {
    let mut chunk = [0; 16 * 1024];
    loop {
        let len = from.read(&mut chunk).unwrap_or(0);
        if carries() && (len == 0 || to.write_all(&chunk[..len]).is_err()) {
            let _ = to.shutdown(std::net::Shutdown::Both); // it may have ended as well
        }
        if len == 0 {
            return;
        }
    }
}

/// Leaves more idle connections to replicas than the readers use.
fn fill_pools(cluster: &Cluster) {
    let sleepers: Vec<_> = (0..16)
        .map(|_| {
            let mut session = cluster.connect();
            std::thread::spawn(move || session.run("SELECT pg_sleep(1)"))
        })
        .collect();
    for sleeper in sleepers {
        sleeper.join().expect("a sleeper");
    }
}

/// The network to a replica fails and comes back, but not for connections that were open.
#[test]
fn a_replica_out_of_reach_comes_back() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(500));
    cluster.kill_manager();
    let own = cluster.site("replica1").port;
    let way = Way::to(own);
    let file = cluster.data().join("hihooi.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let (own, ways) = (format!("port = {own}"), format!("port = {}", way.port));
    assert!(text.contains(&own), "{text}");
    std::fs::write(&file, text.replace(&own, &ways)).expect("the configuration");
    cluster.serve();
    fill_pools(&cluster);
    let readers = Readers::start(&cluster, 4);
    eventually("it serves readers", || cluster.stat("replica1", "reads") >= 100);

    way.change();
    eventually("it is told", || failure(&cluster, "replica1").is_some());
    cluster.connect().run("UPDATE kept SET n = 2");
    way.change();
    eventually("it serves again", || cluster.state("replica1") == "serving");
    let before = cluster.stat("replica1", "reads");
    eventually("it is read again", || cluster.stat("replica1", "reads") >= before + 100);

    let slowest = readers.stop();
    assert!(slowest < ms(500) + SLACK, "a read took {slowest:?}");
    cluster.caught_up();
    assert_eq!(cluster.direct("replica2").number(READ), 2);
}
