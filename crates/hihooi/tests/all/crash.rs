//! I5: after kill -9 of the manager, a replica, the primary, or all at once, in the middle of a
//! write load, and `up` again: every acknowledged transaction is on every site exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::client::Session;
use crate::harness::load::{self, Known, Load};
use crate::harness::{Cluster, Options, alone, eventually, s, target_is_plain};

/// A cluster under load, and all that its writers ever knew.
struct Battered {
    cluster: Cluster,
    known: Vec<Known>,
    writers: usize,
}

const WRITERS: usize = 6;

impl Battered {
    fn start() -> Battered {
        let cluster = Cluster::start(Options::default());
        load::prepare(&cluster);
        Battered { cluster, known: Vec::new(), writers: 0 }
    }

    /// Does harm in the middle of a load, then checks everything.
    fn under_load(&mut self, what: &str, harm: impl FnOnce(&Cluster)) {
        eprintln!("under load: {what}");
        let load = Load::start(&self.cluster, self.writers, WRITERS);
        self.writers += WRITERS;
        load.progress(150);
        harm(&self.cluster);
        load.progress(150);
        self.known.extend(load.stop());
        self.check();
    }

    fn check(&self) {
        load::check(&self.cluster, &self.known);
        self.cluster.assert_verified();
        // Slot and log go on: what is written now arrives too.
        self.cluster.connect().run("UPDATE load.hot SET n = n");
        self.cluster.caught_up();
    }
}

/// The check itself can fail: it finds a lost, a doubled and a halved transaction.
#[test]
fn the_check_finds_what_was_planted() {
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    load::prepare(&cluster);
    let load = Load::start(&cluster, 0, 3);
    load.progress(50);
    let known = load.stop();
    load::check(&cluster, &known);
    for plant in [
        "DELETE FROM load.keyed WHERE token = '0-1'",
        "INSERT INTO load.keyless SELECT * FROM load.keyless WHERE token = '0-2'",
        "UPDATE load.counters SET n = n - 1 WHERE writer = 1",
        "UPDATE load.hot SET n = n + 1 WHERE id = 3",
        "INSERT INTO load.keyed VALUES ('never sent', 1)",
    ] {
        let mut session = cluster.connect();
        session.run(&format!(
            "CREATE SCHEMA kept; CREATE TABLE kept.a AS TABLE load.keyed; \
            CREATE TABLE kept.b AS TABLE load.keyless; CREATE TABLE kept.c AS TABLE load.counters; \
            CREATE TABLE kept.d AS TABLE load.hot; {plant}"
        ));
        let checked = std::panic::catch_unwind(|| load::check(&cluster, &known));
        assert!(checked.is_err(), "the check missed: {plant}");
        session.run(
            "TRUNCATE load.keyed, load.keyless, load.counters, load.hot; \
             INSERT INTO load.keyed TABLE kept.a; INSERT INTO load.keyless TABLE kept.b; \
             INSERT INTO load.counters TABLE kept.c; INSERT INTO load.hot TABLE kept.d; \
             DROP SCHEMA kept CASCADE",
        );
        load::check(&cluster, &known);
    }
}

/// Whatever of the cluster is killed, alone or with others, in the middle of a load.
#[test]
fn whatever_is_killed_loses_nothing() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let mut battered = Battered::start();
    // `up` keeps its servers: a dead one is started again.
    let killed = |cluster: &Cluster, site: &str| {
        let old = cluster.postmaster(site);
        cluster.kill_site(site);
        eventually("the server runs again", || {
            let now = cluster.postmaster(site);
            now.is_some() && now != old
        });
    };
    for site in ["replica1", "replica2"] {
        battered.under_load(site, |cluster| {
            killed(cluster, site);
            eventually("the replica serves again", || cluster.state(site) == "serving");
        });
    }
    battered.under_load("primary", |cluster| killed(cluster, "primary"));
    assert!(battered.cluster.manager_runs());
    battered.under_load("manager", |cluster| {
        cluster.kill_manager();
        cluster.up();
    });
    battered.under_load("everything", |cluster| {
        cluster.kill_everything();
        cluster.up();
    });
    battered.under_load("manager and primary", |cluster| {
        cluster.kill_manager();
        cluster.kill_site("primary");
        cluster.up();
    });
    battered.under_load("manager and a replica", |cluster| {
        cluster.kill_manager();
        cluster.kill_site("replica2");
        cluster.up();
    });
}

/// A crash while a replica is paused and behind: the log keeps what it needs.
#[test]
fn a_lagging_replica_survives_the_managers_death() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let mut battered = Battered::start();
    battered.cluster.command("PAUSE REPLICA replica2");
    battered.under_load_paused("manager, while replica2 is paused");
}

impl Battered {
    fn under_load_paused(&mut self, what: &str) {
        eprintln!("under load: {what}");
        let load = Load::start(&self.cluster, self.writers, WRITERS);
        self.writers += WRITERS;
        load.progress(300);
        self.cluster.kill_manager();
        self.cluster.up();
        load.progress(100);
        self.known.extend(load.stop());
        if self.cluster.state("replica2") == "paused" {
            self.cluster.command("RESUME REPLICA replica2");
        }
        self.check();
    }
}

/// SIGTERM and SIGINT stop everything cleanly; the next `up` goes on.
#[test]
fn a_clean_stop_loses_nothing() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let mut battered = Battered::start();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let load = Load::start(&battered.cluster, battered.writers, WRITERS);
        battered.writers += WRITERS;
        load.progress(100);
        let status = battered.cluster.stop_manager(signal);
        assert!(status.success(), "a clean stop is no failure: {status}");
        for site in battered.cluster.sites() {
            let running = battered.cluster.postmaster(&site.name);
            assert_eq!(running, None, "{} was left running", site.name);
        }
        battered.cluster.up();
        load.progress(50);
        battered.known.extend(load.stop());
        battered.check();
    }
}

/// A routed read whose replica dies is retried elsewhere; its client notices nothing.
#[test]
fn readers_notice_nothing_of_a_replicas_death() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::default());
    let mut session = cluster.connect();
    session
        .run("CREATE TABLE read_on (id int PRIMARY KEY, n int); INSERT INTO read_on VALUES (1, 0)");
    cluster.caught_up();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = |number: usize| {
        let (stop, mut session) = (stop.clone(), cluster.connect());
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let text = "SELECT n FROM read_on WHERE id = 1";
                let answer = if number.is_multiple_of(2) {
                    session.simple(text).map(|mut answers| answers.remove(0))
                } else {
                    session.extended(text, &[])
                };
                match answer {
                    Ok(answer) => assert_eq!(answer.rows.len(), 1),
                    Err(failure) => panic!("a reader noticed a replica's death: {failure}"),
                }
            }
        })
    };
    let readers: Vec<_> = (0..8).map(reader).collect();
    for site in ["replica1", "replica2"] {
        let before = cluster.stat(site, "reads");
        eventually("it serves the readers", || cluster.stat(site, "reads") >= before + 100);
        let old = cluster.postmaster(site);
        cluster.kill_site(site);
        for n in 0..50 {
            session.run(&format!("UPDATE read_on SET n = {n}"));
            assert_eq!(session.number("SELECT n FROM read_on WHERE id = 1"), n, "I4");
        }
        eventually("the replica is back", || {
            cluster.postmaster(site) != old && cluster.state(site) == "serving"
        });
    }
    stop.store(true, Ordering::SeqCst);
    readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
}

/// `hihooi serve` runs the cluster that `up` made.
#[test]
fn serve_goes_on_with_what_up_made() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let mut battered = Battered::start();
    battered.under_load("up is killed, serve takes over", |cluster| {
        cluster.kill_manager();
        cluster.serve();
    });
    battered.under_load("serve is killed, up takes over", |cluster| {
        cluster.kill_manager();
        cluster.up();
    });
}

/// Servers that still run from a killed `up` are adopted, not started anew.
#[test]
fn running_servers_are_adopted() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let pids = || ["primary", "replica1"].map(|site| cluster.postmaster(site));
    let before = pids();
    cluster.kill_manager();
    cluster.up();
    assert_eq!(before, pids());
    cluster.connect().run("CREATE TABLE adopted (id int); INSERT INTO adopted VALUES (1)");
    cluster.assert_equal("SELECT * FROM adopted");
    // A write that still runs when the manager dies is ended by the next one.
    let mut writer = cluster.connect();
    let writing = std::thread::spawn(move || {
        let _ = writer.simple("INSERT INTO adopted SELECT 2 FROM pg_sleep(600)");
    });
    let write = "query LIKE 'INSERT INTO adopted%' AND wait_event = 'PgSleep'";
    cluster.until_active(write);
    cluster.kill_manager();
    cluster.up();
    writing.join().expect("the writer");
    assert_eq!(cluster.activity(write), 0, "an old manager's backend still works");
    assert_eq!(cluster.assert_equal("SELECT * FROM adopted").rows.len(), 1);
}

/// A killed process lives for a moment, and `up` may take it for one that runs.
#[test]
fn a_server_that_ends_while_it_is_adopted_is_started() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    cluster.kill_manager();
    let pid = Pid::from_raw(cluster.postmaster("primary").expect("it runs on"));
    kill(pid, Signal::SIGSTOP).expect("a server of ours");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("up takes it for one that runs", || {
                cluster.log_tail().contains("adopting a server that is still running")
            });
            kill(pid, Signal::SIGKILL).expect("a server of ours");
        });
        cluster.up();
    });
    assert_eq!(cluster.connect().number("SELECT a FROM t"), 1);
}

/// Who logged in before, and who logs in anew, reads at replicas while the primary doesn't answer.
#[test]
fn logins_and_reads_go_on_while_the_primary_is_frozen() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = &Cluster::start(Options::replicas(1).noticing_silence());
    let mut before: Vec<Session> = (0..20).map(|_| cluster.connect()).collect();
    before[0].run("CREATE TABLE frozen (a int); INSERT INTO frozen VALUES (1)");
    cluster.caught_up();
    eventually("the row is read at the replica", || {
        before[0].run("SELECT a FROM frozen");
        before[0].route().site() == "replica1"
    });
    std::thread::scope(|scope| {
        let _frozen = cluster.freeze("primary");
        let (answers, answered) = channel();
        for is_new in [false, true] {
            // One that comes while the replica is out of routing, too, waits for the primary: another is tried.
            eventually("a row is read", || {
                let old = (!is_new).then(|| before.pop().expect("another one"));
                let answers = answers.clone();
                scope.spawn(move || {
                    let session = old.map_or_else(|| cluster.try_connect(&[]), Ok);
                    let read = session.and_then(|mut open| open.simple("SELECT a FROM frozen"));
                    if read.is_ok() {
                        let _ = answers.send(is_new); // nobody may wait for it any more
                    }
                });
                answered.recv_timeout(s(10)) == Ok(is_new)
            });
        }
    });
    cluster.connect().run("INSERT INTO frozen VALUES (2)");
    cluster.caught_up();
    cluster.assert_verified();
}
