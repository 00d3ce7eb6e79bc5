//! The manager's end, as clients see it: a word before the socket closes (manual, "Shutting Down
//! the Server"), whatever they were doing, in a time that is bounded.

mod harness;

use std::time::{Duration, Instant};

use harness::{Cluster, Failure, Options, Session, alone, ms, s};
use hihooi_wire::backend::{ErrorFields, tag};
use nix::sys::signal::Signal;

/// The next message must be an error; then the connection is closed.
fn last_word(session: &mut Session) -> ErrorFields {
    let message = session.next().expect("a last message");
    assert_eq!(message.tag, tag::ERROR, "{:?}", message.body);
    let fields = ErrorFields::read(&message.body).expect("an error's fields");
    assert!(session.next().is_err(), "the connection is closed behind it");
    fields
}

fn assert_told(fields: &ErrorFields, who: &str) {
    assert_eq!(fields.code(), "57P01", "{who}: {fields}");
    assert_eq!(fields.get(b'V'), Some("FATAL"), "{who}");
    let words = "terminating connection due to administrator command";
    assert_eq!(fields.get(b'M'), Some(words), "{who}");
}

/// Idle clients, those in a block, those of the admin database and those whose query runs
/// are told; the manager ends soon; what was acknowledged is there, what wasn't is not.
#[test]
fn clients_are_told_of_the_end() {
    if harness::target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut idle = cluster.connect();
    idle.run("CREATE TABLE t (id int PRIMARY KEY, n int)");
    idle.run("CREATE TABLE u (id int PRIMARY KEY)");
    idle.run("INSERT INTO t VALUES (1, 0), (2, 0)");
    cluster.caught_up();
    // A write is in flight while it runs only if the relay knows the table.
    harness::eventually("the relay knows the tables", s(10), || {
        idle.run("SELECT FROM u");
        idle.route().site() == "replica1"
    });
    let (mut block, mut waiting) = (cluster.connect(), cluster.connect());
    let mut admin = cluster.admin();
    block.run("BEGIN; UPDATE t SET n = 1 WHERE id = 1");
    let waits = std::thread::spawn(move || {
        let failure = waiting.simple("SELECT pg_sleep(60)").expect_err("cut off");
        let Failure::Server(fields) = failure else { panic!("{failure}") };
        fields
    });
    let mut late = cluster.connect();
    let commits = std::thread::spawn(move || {
        late.simple("INSERT INTO u SELECT 1 FROM pg_sleep(60)").expect_err("cut off")
    });
    // Ends within the time that is left to what runs.
    let mut quick = cluster.connect();
    let ends = std::thread::spawn(move || {
        quick.simple("INSERT INTO t SELECT 3, 0 FROM pg_sleep(0.6)").map(|_| last_word(&mut quick))
    });
    std::thread::sleep(ms(300));
    let began = Instant::now();
    cluster.stop_manager(Signal::SIGTERM, s(20));
    let took = began.elapsed();
    assert_told(&last_word(&mut idle), "idle");
    assert_told(&last_word(&mut block), "in a block");
    assert_told(&last_word(&mut admin), "admin");
    assert_told(&waits.join().expect("no panic"), "runs a query");
    let unknown = commits.join().expect("no panic");
    assert_eq!(unknown.code(), "08007", "commits by itself, when nobody listens: {unknown}");
    let ended = ends.join().expect("no panic").expect("its COMMIT is answered");
    assert_told(&ended, "was at work");
    assert!(took < Duration::from_secs(10), "took {took:?}");
    cluster.up();
    let rows = cluster.connect().value("SELECT string_agg(id || ':' || n, ' ' ORDER BY id) FROM t");
    assert_eq!(rows, "1:0 2:0 3:0");
}
