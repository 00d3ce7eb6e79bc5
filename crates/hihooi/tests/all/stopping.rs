//! The manager's end, as clients see it: a word before the socket closes (manual, "Shutting Down
//! the Server"), whatever they were doing, in a time that is bounded.

use hihooi_wire::backend::{ErrorFields, tag};
use nix::sys::signal::Signal;

use crate::harness::{self, Cluster, Failure, Options, Session, alone, eventually};

/// The next message must be an error, and the connection closed behind it; an error here if the
/// connection was closed without a word.
fn last_word(session: &mut Session) -> Result<ErrorFields, String> {
    let message = session.next().map_err(|_| "closed without a word")?;
    assert_eq!(message.tag, tag::ERROR, "{:?}", message.body);
    let fields = ErrorFields::read(&message.body).expect("an error's fields");
    assert!(session.next().is_err(), "the connection is closed behind it");
    Ok(fields)
}

fn assert_told(fields: &ErrorFields, who: &str) {
    assert_eq!(fields.code(), "57P01", "{who}: {fields}");
    assert_eq!(fields.get(b'V'), Some("FATAL"), "{who}");
    let words = "terminating connection due to administrator command";
    assert_eq!(fields.get(b'M'), Some(words), "{who}");
}

/// What a statement that doesn't end is told when it is cut off.
fn cut_off(session: &mut Session, text: &str) -> Result<ErrorFields, String> {
    match session.simple(text).expect_err("cut off") {
        Failure::Server(fields) => Ok(fields),
        Failure::Lost(_) => Err(format!("{text}: closed without a word")),
    }
}

/// SIGHUP ends nothing; a log file that was moved away is made anew.
#[test]
fn sighup_opens_the_log_anew() {
    if harness::target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    let (log, moved) = (cluster.data().join("hihooi.log"), cluster.data().join("hihooi.log.1"));
    std::fs::rename(&log, &moved).expect("moved");
    cluster.signal_manager(Signal::SIGHUP);
    eventually("a new log", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("SIGHUP"))
    });
    session.run("SELECT 1");
    assert!(cluster.manager_runs());
    assert!(!std::fs::read_to_string(&moved).expect("the old log").contains("SIGHUP"));
}

/// Idle clients, those in a block, those of the admin database and those whose query runs
/// are told; the manager ends; what was acknowledged is there, what wasn't is not.
#[test]
fn clients_are_told_of_the_end() {
    // The end waits for clients only so long that a busy machine may be late for it.
    const ENDS_MAX: usize = 10;
    if harness::target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY, n int)");
    session.run("CREATE TABLE u (id int PRIMARY KEY)");
    session.run("INSERT INTO t VALUES (1, 0), (2, 0)");
    session.close();
    for _ in 0..ENDS_MAX {
        let ended = end_in_the_middle(&cluster);
        cluster.up();
        let text = "SELECT string_agg(id || ':' || n, ' ' ORDER BY id) FROM t";
        let rows = cluster.connect().value(text);
        match ended {
            Ok(()) => return assert_eq!(rows, "1:0 2:3"),
            Err(late) => eprintln!("the machine was late for the end: {late}"),
        }
    }
    panic!("late for {ENDS_MAX} ends");
}

/// Stops the manager while clients are at work; who was not told, if it was late for somebody.
fn end_in_the_middle(cluster: &Cluster) -> Result<(), String> {
    cluster.caught_up();
    let mut idle = cluster.connect();
    // A write is in flight while it runs only if the relay knows the table.
    eventually("the relay knows the tables", || {
        idle.run("SELECT FROM u");
        idle.route().site() == "replica1"
    });
    let (mut block, mut admin) = (cluster.connect(), cluster.admin());
    let (mut waiting, mut late, mut quick) =
        (cluster.connect(), cluster.connect(), cluster.connect());
    let mut holder = cluster.direct("primary");
    block.run("BEGIN; UPDATE t SET n = 1 WHERE id = 1");
    holder.run("BEGIN; UPDATE t SET n = 2 WHERE id = 2");
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || cut_off(&mut waiting, "SELECT pg_sleep(600)"));
        let commits =
            scope.spawn(move || cut_off(&mut late, "INSERT INTO u SELECT 1 FROM pg_sleep(600)"));
        let ends = scope.spawn(move || {
            quick.simple("UPDATE t SET n = 3 WHERE id = 2").map(|_| last_word(&mut quick))
        });
        eventually("two statements sleep", || cluster.activity("wait_event = 'PgSleep'") == 2);
        cluster.until_locked_out("UPDATE t SET n = 3 WHERE id = 2");
        let stops = scope.spawn(|| cluster.stop_manager(Signal::SIGTERM));
        let told = last_word(&mut idle);
        // What ends in the time that is left to what runs is answered.
        holder.run("ROLLBACK");
        assert!(stops.join().expect("it stops").success());
        assert_told(&told?, "idle");
        assert_told(&last_word(&mut block)?, "in a block");
        assert_told(&last_word(&mut admin)?, "admin");
        assert_told(&waits.join().expect("no panic")?, "runs a query");
        let unknown = commits.join().expect("no panic")?;
        assert_eq!(unknown.code(), "08007", "commits by itself, when nobody listens: {unknown}");
        match ends.join().expect("no panic") {
            Ok(told) => assert_told(&told?, "was at work"),
            Err(Failure::Lost(_)) => return Err("a write, without a word".to_owned()),
            Err(Failure::Server(cut)) => {
                assert_eq!(cut.code(), "08007", "its end is unknown, or told: {cut}");
                return Err("a write".to_owned());
            }
        }
        Ok(())
    })
}
