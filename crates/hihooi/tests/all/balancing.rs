//! Which replica gets a read (docs/routes.md, docs/decisions/0012-balancing.md): shares by weight; less and then
//! nothing for one that is slow, frozen, or refuses connections; its share comes back little by little; one with a free
//! connection is preferred. Shares are compared with wide margins, since the machine has other work too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::harness::client::cancel;
use crate::harness::{
    Cluster, DATABASE, Options, Session, activity, alone, eventually, ms, s, target_is_plain,
};

const SITES: [&str; 3] = ["primary", "replica1", "replica2"];
const READ: &str = "SELECT n FROM kept WHERE id = 1";

/// A cluster with a table that replicas are read for.
fn cluster(options: Options) -> Cluster {
    let cluster = Cluster::start(options);
    cluster
        .connect()
        .run("CREATE TABLE kept (id int PRIMARY KEY, n int); INSERT INTO kept VALUES (1, 1)");
    cluster.caught_up();
    until_both_read(&cluster);
    cluster
}

/// Waits until both replicas are read and have their whole shares.
fn until_both_read(cluster: &Cluster) {
    let mut session = cluster.connect();
    eventually("the replicas are read", || {
        (0..20).for_each(|_| drop(session.run(READ)));
        cluster.show_replicas().values().all(|replica| replica["share_percent"] == "100")
    });
}

/// Gives the replicas weights by the configuration file.
fn set_weights(cluster: &Cluster, weights: &[(&str, u32)]) {
    cluster.kill_everything();
    let file = cluster.data().join("hihooi.toml");
    let mut text = std::fs::read_to_string(&file).expect("the configuration");
    text = text
        .lines()
        .filter(|line| !line.starts_with("weight"))
        .map(|line| format!("{line}\n"))
        .collect();
    for (site, weight) in weights {
        let name = format!("name = \"{site}\"\n");
        assert!(text.contains(&name), "{text}");
        text = text.replace(&name, &format!("{name}weight = {weight}\n"));
    }
    std::fs::write(&file, text).expect("the configuration");
    cluster.up();
    cluster.caught_up();
    let mut session = cluster.connect();
    eventually("a replica is read", || {
        session.run(READ);
        session.route().site().starts_with("replica")
    });
}

/// Readers that go on until they are stopped, each on a session of its own, and notice nothing.
struct Readers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    fn start(cluster: &Cluster, count: usize) -> Readers {
        let stop = Arc::<AtomicBool>::default();
        let reader = |number: usize| {
            let (stop, mut session) = (stop.clone(), cluster.connect());
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    read(&mut session, number.is_multiple_of(2));
                    std::thread::sleep(ms(2)); // so that the machine has time for others
                }
            })
        };
        let threads = (0..count).map(reader).collect();
        Readers { stop, threads }
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
        Err(failure) => panic!("a reader noticed: {failure}"),
    }
}

/// Reads at each of the sites so far.
fn reads(cluster: &Cluster) -> [i64; 3] {
    let answer = cluster.admin().run("SHOW STATS").records();
    SITES.map(|site| {
        let row = answer.iter().find(|row| row["site"] == site).expect("its row");
        row["reads"].parse().expect("a number")
    })
}

/// Reads at each site during something.
fn during(cluster: &Cluster, work: impl FnOnce()) -> [i64; 3] {
    let before = reads(cluster);
    work();
    let after = reads(cluster);
    [0, 1, 2].map(|site| after[site] - before[site])
}

/// Asserts that in one of ten windows the reads at the sites are such: other work on the machine makes a replica slow or
/// silent for a while.
fn assert_once(
    what: &str,
    cluster: &Cluster,
    mut window: impl FnMut(),
    are_such: impl Fn([i64; 3]) -> bool,
) {
    let mut seen = Vec::new();
    let is_once = (0..10).any(|_| {
        let reads = during(cluster, &mut window);
        seen.push(reads);
        are_such(reads)
    });
    assert!(is_once, "{what}: {seen:?}");
}

/// The part of reads that replica1 had; not a number if there are too few to tell.
fn share(reads: [i64; 3]) -> f64 {
    let all: i64 = reads.iter().sum();
    if all < 50 { f64::NAN } else { reads[1] as f64 / all as f64 }
}

fn percent(cluster: &Cluster, site: &str) -> f64 {
    cluster.show_replicas()[site]["share_percent"].parse().expect("a number")
}

#[test]
fn weights_show_in_reads_per_site() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(Options::default().env("HIHOOI_SITES_TIMEOUT_MS", "6000"));
    set_weights(&cluster, &[("replica1", 3)]);
    let shown = cluster.show_replicas();
    assert_eq!((&*shown["replica1"]["weight"], &*shown["replica2"]["weight"]), ("3", "1"));
    eventually("both have their shares", || {
        (0..20).for_each(|_| drop(cluster.connect().run(READ)));
        ["replica1", "replica2"].iter().all(|site| percent(&cluster, site) == 100.0)
    });
    let mut session = cluster.connect();
    let are_shared = |reads| (0.6..0.9).contains(&share(reads));
    let thousand = || (0..1_000).for_each(|n| read(&mut session, n % 2 == 0));
    assert_once("one client", &cluster, thousand, are_shared);
    let readers = Readers::start(&cluster, 6);
    assert_once("some clients", &cluster, || std::thread::sleep(s(4)), are_shared);
    readers.stop();

    set_weights(&cluster, &[("replica1", 0)]);
    let readers = Readers::start(&cluster, 4);
    let are_elsewhere = |[_, first, second]: [i64; 3]| first == 0 && second > 100;
    assert_once("weight 0", &cluster, || std::thread::sleep(s(2)), are_elsewhere);
    let frozen = cluster.freeze("replica2");
    eventually("the other is out", || cluster.state("replica2") == "failed");
    let are_there = |reads| share(reads) > 0.9;
    assert_once("no other replica", &cluster, || std::thread::sleep(s(1)), are_there);
    drop(frozen);
    readers.stop();
}

/// Stops a replica again and again for so long, far too shortly to count as frozen.
fn slow(cluster: &Cluster, stopped: Duration, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        let frozen = cluster.freeze("replica1");
        std::thread::sleep(stopped);
        drop(frozen);
        std::thread::sleep(stopped / 4);
    }
}

/// One reader, so that it isn't for what is outstanding there; and no read waits long enough to look lost.
#[test]
fn a_slow_replica_gets_little() {
    slow_replica(1, ms(40));
}

/// Many readers, whose reads wait.
#[test]
fn a_replica_that_stops_again_and_again_gets_little() {
    slow_replica(6, ms(200));
}

fn slow_replica(readers: usize, stopped: Duration) {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    // So long that it isn't failed, however seldom it can answer.
    let cluster = cluster(Options::default().env("HIHOOI_SITES_TIMEOUT_MS", "20000"));
    let readers = Readers::start(&cluster, readers);
    // (On a busy machine one may be slower for a while.)
    eventually("both are quick", || {
        let before = during(&cluster, || std::thread::sleep(s(3)));
        (0.2..0.8).contains(&share(before))
    });

    slow(&cluster, stopped, s(3)); // it is found to be slow
    let meanwhile = during(&cluster, || slow(&cluster, stopped, s(6)));
    assert!(share(meanwhile) < 0.15, "it is slow: {meanwhile:?}");
    assert_eq!(cluster.state("replica1"), "serving");

    eventually("it has its share again", || {
        let now = during(&cluster, || std::thread::sleep(s(1)));
        share(now) > 0.25
    });
    readers.stop();
    assert_eq!(cluster.stat("replica1", "errors"), 0);
}

/// Before it counts as failed, no more reads are risked there; then none at all; and after it goes on, its share
/// comes back little by little.
#[test]
fn a_frozen_replica_gets_nothing_and_then_its_share_little_by_little() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    // So long that the check of silence alone wouldn't find it in this test.
    let cluster = cluster(Options::default().env("HIHOOI_SITES_TIMEOUT_MS", "600000"));
    let readers = Readers::start(&cluster, 12);
    std::thread::sleep(s(2));
    let frozen = cluster.freeze("replica1");
    eventually("no more reads are risked there", || percent(&cluster, "replica1") == 0.0);
    eventually("readers go on", || {
        let meanwhile = during(&cluster, || std::thread::sleep(s(3)));
        meanwhile[1] == 0 && meanwhile[2] > 100
    });
    assert_eq!(percent(&cluster, "replica1"), 0.0);
    assert_eq!(cluster.state("replica1"), "serving", "it isn't known to be frozen");

    let began = Instant::now();
    drop(frozen);
    eventually("it answers", || percent(&cluster, "replica1") > 0.0);
    // (While the machine stands still, there is little to see.)
    let first = [(); 2].map(|()| during(&cluster, || std::thread::sleep(s(1))));
    let is_little = first.into_iter().any(|reads| share(reads) < 0.3);
    assert!(is_little || began.elapsed() > s(4), "a herd: {first:?}");
    eventually("it has its whole share", || percent(&cluster, "replica1") == 100.0);
    assert!(began.elapsed() > s(3), "not little by little: {:?}", began.elapsed());
    let are_shared = |reads| (0.25..0.75).contains(&share(reads));
    assert_once("later", &cluster, || std::thread::sleep(s(3)), are_shared);
    readers.stop();
    cluster.assert_verified();
}

/// One role can't connect to a replica: its reads go elsewhere, and it is tried there ever more seldom. Others go on.
#[test]
fn a_role_that_a_replica_refuses_reads_elsewhere() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(Options::default());
    cluster.connect().run("CREATE ROLE shut LOGIN; GRANT SELECT ON kept TO shut");
    cluster.caught_up();
    let hba = cluster.data().join("replica1").join("pg_hba.conf");
    let own = std::fs::read_to_string(&hba).expect("pg_hba.conf");
    let own_port = cluster.site("replica1").port;
    let login = [("user", "shut"), ("database", DATABASE)];
    let set_hba = |text: &str, lets_in: bool| {
        std::fs::write(&hba, text).expect("pg_hba.conf");
        cluster.direct("replica1").run("SELECT pg_reload_conf()");
        eventually("that is in force", || Session::open(own_port, &login).is_ok() == lets_in);
    };
    set_hba(&format!("host all shut all reject\n{own}"), false);
    let refused = || {
        let log = cluster.data().join("replica1.log");
        let log = std::fs::read_to_string(log).expect("the server's log");
        log.lines().filter(|line| line.contains("pg_hba.conf rejects connection")).count()
    };
    let ours = refused();

    let mut shut = cluster.connect_with(&[("user", "shut")]);
    eventually("the role reads elsewhere", || {
        read(&mut shut, true);
        shut.route().site() == "replica2"
    });
    let all = during(&cluster, || {
        for n in 0..1_000 {
            read(&mut shut, n % 2 == 0);
            std::thread::sleep(ms(2));
        }
    });
    assert!(all[1] == 0 && all[2] > 0, "{all:?}");
    let tried = refused() - ours;
    assert!((1..20).contains(&tried), "tried {tried} times");
    // However slow the replica has become for another reason.
    let reads_there = |who: &str, session: &mut Session| {
        let before = reads(&cluster)[1];
        eventually(&format!("{who} reads there"), || {
            (0..20).for_each(|n| read(session, n % 2 == 0));
            reads(&cluster)[1] > before + 20
        });
    };
    reads_there("another role", &mut cluster.connect());
    set_hba(&own, true);
    reads_there("the role", &mut shut);
}

/// No read waits for a connection at one replica while another has one.
#[test]
fn a_full_pool_is_avoided() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(Options::default().env("HIHOOI_POOL_SIZE", "1"));
    let mut sleeper = cluster.connect();
    let key = sleeper.key.clone();
    let sleeping = std::thread::spawn(move || drop(sleeper.error("SELECT pg_sleep(300)")));
    let sleeps = "query = 'SELECT pg_sleep(300)' AND state = 'active'";
    cluster.until_active(sleeps);
    let sleeps_at = |site: &str| activity(&[cluster.site(site).port], sleeps) > 0;
    let at = SITES.iter().position(|site| sleeps_at(site)).expect("it was seen");
    let mut session = cluster.connect();
    let meanwhile = during(&cluster, || (0..200).for_each(|n| read(&mut session, n % 2 == 0)));
    assert!(sleeps_at(SITES[at]), "they waited");
    assert!(at > 0 && meanwhile[at] == 0 && meanwhile[3 - at] > 0, "{}: {meanwhile:?}", SITES[at]);
    cancel(cluster.port, &key);
    sleeping.join().expect("the sleeper");
}

/// Reports take as long as reports do: they make no replica slow.
#[test]
fn reports_make_no_replica_slow() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = cluster(Options::default());
    let stop = Arc::<AtomicBool>::default();
    let mut reporter = cluster.connect();
    let stopped = stop.clone();
    let reports = std::thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            reporter.run("SELECT n, pg_sleep(0.5) FROM kept");
        }
    });
    std::thread::sleep(s(2));
    let readers = Readers::start(&cluster, 3);
    let are_shared = |reads| (0.2..0.8).contains(&share(reads));
    assert_once("beside reports", &cluster, || std::thread::sleep(s(5)), are_shared);
    let samples = [(); 20].map(|()| {
        std::thread::sleep(ms(100));
        cluster.show_replicas()
    });
    for site in cluster.replicas() {
        let shown = samples.iter().map(|replicas| &replicas[&site]["slowdown"]);
        let mut slowdowns: Vec<f64> = shown.map(|text| text.parse().expect("a number")).collect();
        slowdowns.sort_by(f64::total_cmp);
        // Reports take a thousand times as long; a busy machine is a few times slower than a quiet one.
        assert!(slowdowns[10] < 10.0, "{site}: {slowdowns:?}");
    }
    stop.store(true, Ordering::SeqCst);
    reports.join().expect("the reporter");
    readers.stop();
}
