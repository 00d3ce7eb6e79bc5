//! A site that is frozen (SIGSTOP) or out of reach is found within `sites.timeout_ms`: reads go on
//! elsewhere, `SHOW REPLICAS` and the log say why, and it comes back by itself. One that is only busy
//! is left alone.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::BytesMut;
use hihooi_wire::backend::{ErrorFields, tag};
use hihooi_wire::frontend;

use crate::harness::{Cluster, Options, Session, alone, eventually, ms, s, target_is_plain};

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

/// How often the log tells that a site failed, and that this ended.
fn told(cluster: &Cluster, site: &str) -> [usize; 2] {
    let words = match site {
        "primary" => ["the primary does not answer", "the primary answers again"],
        _ => ["the replica has failed", "the replica is back"],
    };
    words.map(|words| cluster.logged(&[&format!("site=\"{site}\""), words]))
}

/// Waits until so many failures of a site are told that have not ended; what is told then. (Other work on
/// the machine may have made it silent before, or while its server started.)
fn until_told(cluster: &Cluster, site: &str, lasting: usize) -> [usize; 2] {
    let mut now = told(cluster, site);
    eventually("each beginning and end is told", || {
        now = told(cluster, site);
        now[0] == now[1] + lasting
    });
    now
}

/// Asserts that the log tells no more than before.
fn assert_told(cluster: &Cluster, site: &str, before: [usize; 2]) {
    assert_eq!(told(cluster, site), before, "{site}:\n{}", cluster.log_tail());
}

/// Readers that go on until they are stopped, each on a session of its own.
struct Readers {
    stop: Arc<AtomicBool>,
    /// How many reads each has finished.
    finished: Arc<[AtomicU64]>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Readers {
    fn start(cluster: &Cluster, count: usize) -> Readers {
        let stop = Arc::<AtomicBool>::default();
        let finished: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::default()).collect();
        let reader = |number: usize| {
            let (stop, finished) = (stop.clone(), finished.clone());
            let mut session = cluster.connect();
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    read(&mut session, number.is_multiple_of(2));
                    finished[number].fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(ms(2)); // so that the machine has time for others
                }
            })
        };
        let threads = (0..count).map(reader).collect();
        Readers { stop, finished, threads }
    }

    fn finished(&self) -> Vec<u64> {
        self.finished.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// Waits until each has finished a read that it began after now.
    fn go_on(&self) {
        let before = self.finished();
        eventually("each reader goes on", || {
            self.finished().iter().zip(&before).all(|(now, before)| *now >= before + 2)
        });
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|reader| reader.join().expect("a reader"));
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

/// Every read is answered while the replica is frozen; new sessions as well; and it is used again when it
/// goes on.
#[test]
fn readers_notice_nothing_of_a_frozen_replica() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    // So long that a busy machine makes no other site silent.
    let cluster = cluster(timeout_ms(10_000));
    let others = until_told(&cluster, "replica2", 0);
    let readers = Readers::start(&cluster, 8);
    let before = cluster.stat("replica1", "reads");
    eventually("it serves readers", || cluster.stat("replica1", "reads") >= before + 100);

    until_told(&cluster, "replica1", 0);
    let frozen = cluster.freeze("replica1");
    eventually("out of routing", || {
        read(&mut cluster.connect(), true);
        failure(&cluster, "replica1").is_some()
    });
    let once = until_told(&cluster, "replica1", 1);
    let why = failure(&cluster, "replica1").expect("out of routing");
    assert!(why.contains("frozen or out of reach"), "{why}");
    readers.go_on();
    read(&mut cluster.connect(), true);
    let mut writer = cluster.connect();
    for n in 2..20 {
        writer.run(&format!("UPDATE kept SET n = {n}"));
        assert_eq!(writer.number(READ), n, "I4");
    }
    assert_told(&cluster, "replica1", once);
    drop(frozen);
    eventually("it serves again", || cluster.state("replica1") == "serving");
    let before = cluster.stat("replica1", "reads");
    eventually("it is read again", || cluster.stat("replica1", "reads") >= before + 100);

    readers.stop();
    until_told(&cluster, "replica1", 0);
    assert_told(&cluster, "replica2", others);
    cluster.assert_verified();
}

/// VERIFY doesn't wait for one that freezes in the middle of it.
#[test]
fn verify_names_a_replica_that_freezes() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(2_000));
    let mut holder = cluster.repair("replica2");
    holder.run("BEGIN; LOCK TABLE kept IN ACCESS EXCLUSIVE MODE");
    std::thread::scope(|scope| {
        let verify = scope.spawn(|| cluster.run_verify());
        cluster.until_active("application_name = 'hihooi verify' AND wait_event_type = 'Lock'");
        let frozen = cluster.freeze("replica2");
        let (is_equal, told) = verify.join().expect("it ran");
        assert!(!is_equal && told.contains("replica2: "), "{told}");
        assert!(told.contains("frozen or out of reach"), "{told}");
        drop(frozen);
    });
    holder.run("COMMIT");
    eventually("it serves again", || cluster.state("replica2") == "serving");
    cluster.assert_verified();
}

/// It is found although nobody reads there, so that the first who does doesn't wait.
#[test]
fn an_idle_replica_that_freezes_is_found_too() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(2_000));
    for site in ["replica1", "replica2"] {
        until_told(&cluster, site, 0);
        let frozen = cluster.freeze(site);
        let once = until_told(&cluster, site, 1);
        let why = failure(&cluster, site).expect("out of routing");
        assert!(why.contains("frozen or out of reach"), "{why}");
        let servers = cluster.admin().run("SHOW SERVERS").records();
        let states = |name: &str| servers.iter().find(|server| server["site"] == name).cloned();
        assert_eq!(states(site).expect("its row")["state"], "failed");
        for _ in 0..20 {
            let mut session = cluster.connect();
            read(&mut session, true);
            assert_ne!(session.route().site(), site);
        }
        assert_told(&cluster, site, once);
        drop(frozen);
        eventually("it serves again", || cluster.state(site) == "serving");
        until_told(&cluster, site, 0);
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
    readers.go_on();
    drop(frozen);
    cluster.caught_up();
    readers.stop();
    cluster.assert_verified();
}

/// Who waits for a connection there doesn't try it in turn.
#[test]
fn who_waits_for_a_connection_to_a_frozen_replica_goes_elsewhere() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    // (Who waits for a place in the pool until the end hangs.)
    let options = timeout_ms(500).env("HIHOOI_POOL_WAIT_MS_MAX", "600000");
    let cluster = cluster(options.env("HIHOOI_POOL_SIZE", "1"));
    let readers = Readers::start(&cluster, 12);
    eventually("it serves readers", || cluster.stat("replica1", "reads") >= 100);
    let frozen = cluster.freeze("replica1");
    eventually("it is told", || failure(&cluster, "replica1").is_some());
    let told = Instant::now();
    readers.go_on();
    // Each would try for 10 s.
    assert!(told.elapsed() < s(9), "they went on after {:?}", told.elapsed());
    drop(frozen);
    readers.stop();
}

/// Rows can't be taken back, so their reader is told as by a server whose connection broke.
#[test]
fn a_read_that_has_sent_rows_ends_with_an_error() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(6_000));
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
    // (Shorter than the reads, and so long that a busy machine makes no site silent.)
    let cluster = cluster(timeout_ms(6_000));
    let before = ["replica1", "replica2"].map(|site| (site, until_told(&cluster, site, 0)));
    let sleepers = ["SELECT pg_sleep(15)", "SELECT n, pg_sleep(15) FROM kept"].map(|text| {
        let mut session = cluster.connect();
        std::thread::spawn(move || {
            let began = Instant::now();
            session.run(text);
            assert!(began.elapsed() >= s(15), "it was not slept to the end");
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
    for (site, told) in before {
        assert_eq!(cluster.stat(site, "errors"), 0, "{site}");
        assert_told(&cluster, site, told);
    }
}

/// A write waits for a frozen primary: cut off, its outcome would be in doubt.
#[test]
fn a_write_waits_for_a_frozen_primary() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(timeout_ms(2_000));
    let mut writer = cluster.connect();
    writer.run("UPDATE kept SET n = 2");
    until_told(&cluster, "primary", 0);
    let frozen = cluster.freeze("primary");
    let writing = std::thread::spawn(move || writer.simple("UPDATE kept SET n = 3").map(drop));
    let once = until_told(&cluster, "primary", 1);
    // Each that waited for the primary would take 4 s.
    let logins = (0..5).map(|_| {
        let opened = Instant::now();
        cluster.connect();
        opened.elapsed()
    });
    let quickest = logins.min().expect("five");
    assert!(quickest < ms(1_500), "the quickest login took {quickest:?}");
    std::thread::sleep(s(1));
    assert!(!writing.is_finished(), "the write was not waited for");
    assert_told(&cluster, "primary", once);
    drop(frozen);
    assert!(matches!(writing.join().expect("the writer"), Ok(())));
    until_told(&cluster, "primary", 0);
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
    readers.go_on();
    way.change();
    eventually("it serves again", || cluster.state("replica1") == "serving");
    let before = cluster.stat("replica1", "reads");
    eventually("it is read again", || cluster.stat("replica1", "reads") >= before + 100);

    readers.stop();
    cluster.caught_up();
    assert_eq!(cluster.direct("replica2").number(READ), 2);
}
