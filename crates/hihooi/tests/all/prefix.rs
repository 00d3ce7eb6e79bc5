//! I2: what any client can see on a replica is the state after some prefix of the log: no gap,
//! no half transaction, nothing that the primary doesn't show yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::harness::client::Session;
use crate::harness::{Cluster, Options, alone, eventually, ms, shared, target_is_plain};

/// Sessions at work until told to stop.
struct Noise {
    stop: Arc<AtomicBool>,
    /// Rounds of all sessions together.
    rounds: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Noise {
    fn start(sessions: usize, work: fn(&mut Session, usize, usize)) -> Noise {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let worker = |number| {
            let (stop, rounds, mut session) = (stop.clone(), rounds.clone(), shared().connect());
            std::thread::spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::SeqCst) {
                    work(&mut session, number, round);
                    round += 1;
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let threads = (0..sessions).map(worker).collect();
        Noise { stop, rounds, threads }
    }

    /// Waits until the sessions have done that many rounds.
    fn until(&self, rounds: usize) {
        eventually("the noise goes on", || self.rounds.load(Ordering::SeqCst) >= rounds);
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a worker"));
    }
}

/// Looks at every site, past hihooi, while work goes on.
fn watch(times: usize, mut look: impl FnMut(&str, &mut Session)) {
    let sites = shared().sites();
    let mut sessions: Vec<(String, Session)> =
        sites.iter().map(|site| (site.name.clone(), shared().direct(&site.name))).collect();
    for _ in 0..times {
        for (site, session) in &mut sessions {
            look(site, session);
        }
        std::thread::sleep(ms(5));
    }
}

/// Each link is committed after the one before it was acknowledged, on another session: a
/// replica that shows a link shows all before it.
#[test]
fn a_chain_of_commits_has_no_gap_anywhere() {
    let _alone = alone();
    shared().connect().run(
        "DROP TABLE IF EXISTS chain, noise; CREATE TABLE chain (i int PRIMARY KEY); \
         CREATE TABLE noise (id int PRIMARY KEY, n int); \
         INSERT INTO noise SELECT g, 0 FROM generate_series(1, 100) g",
    );
    shared().caught_up();
    let noise = Noise::start(4, |session, number, round| {
        let id = (round * 7 + number * 25) % 100 + 1;
        session.run(&format!("UPDATE noise SET n = n + 1 WHERE id = {id}"));
    });
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let chaining = std::thread::spawn(move || {
        let mut sessions: Vec<Session> = (0..5).map(|_| shared().connect()).collect();
        let mut link = 0;
        while !stopped.load(Ordering::SeqCst) {
            link += 1;
            let len = sessions.len();
            let text = format!("INSERT INTO chain VALUES ({link})");
            if link % 2 == 0 {
                sessions[link % len].run(&text);
            } else {
                sessions[link % len].extended(&text, &[]).expect("a link");
            }
        }
    });
    watch(150, |site, session| {
        let row = session.run("SELECT count(*), coalesce(max(i), 0) FROM chain").rows.remove(0);
        assert_eq!(row[0], row[1], "{site} shows a gap (I2)");
    });
    stop.store(true, Ordering::SeqCst);
    chaining.join().expect("the chain");
    noise.stop();
    shared().assert_equal("SELECT count(*), max(i) FROM chain");
    shared().assert_table_equal("noise");
}

/// Money moves between rows of two tables; no site ever shows a transaction in part.
#[test]
fn transactions_are_never_seen_in_part() {
    let _alone = alone();
    shared().connect().run(
        "DROP TABLE IF EXISTS purse, safe; CREATE TABLE purse (id int PRIMARY KEY, n int); \
         CREATE TABLE safe (id int, n int); \
         INSERT INTO purse SELECT g, 1000 FROM generate_series(1, 20) g; \
         INSERT INTO safe SELECT g, 1000 FROM generate_series(1, 20) g",
    );
    shared().caught_up();
    let noise = Noise::start(6, |session, number, round| {
        let (from, to) = ((round * 3 + number) % 20 + 1, (round * 5 + number * 2) % 20 + 1);
        let moved = round % 9 + 1;
        let take = format!("UPDATE purse SET n = n - {moved} WHERE id = {from}");
        let put = format!("UPDATE safe SET n = n + {moved} WHERE id = {to}");
        let done = match round % 3 {
            0 => session.simple(&format!("WITH w AS ({take}) {put}")),
            1 => session.simple(&format!("BEGIN; {take}; {put}; COMMIT")),
            _ => session.simple(&format!("{take}; {put}")),
        };
        if let Err(failure) = done {
            assert_eq!(failure.code(), "40P01", "{failure}");
            session.run("ROLLBACK");
        }
    });
    watch(120, |site, session| {
        let sum = "SELECT (SELECT sum(n) FROM purse) + (SELECT sum(n) FROM safe)";
        assert_eq!(session.number(sum), 40_000, "{site} shows half a transaction (I2)");
    });
    let mut reader = shared().connect();
    for _ in 0..50 {
        let sum = "SELECT (SELECT sum(n) FROM purse) + (SELECT sum(n) FROM safe)";
        assert_eq!(reader.number(sum), 40_000, "half a transaction (I2): {}", reader.route().text);
    }
    noise.stop();
    shared().assert_table_equal("purse");
    shared().assert_table_equal("safe");
}

/// Entries larger than a chunk arrive whole, and at once.
#[test]
fn large_transactions_arrive_whole() {
    let _alone = alone();
    let mut session = shared().connect();
    session.run("DROP TABLE IF EXISTS huge; CREATE TABLE huge (id int PRIMARY KEY, v text)");
    shared().caught_up();
    let loading = std::thread::spawn(move || {
        session.run(
            "BEGIN; INSERT INTO huge SELECT g, repeat('v', 100) FROM generate_series(1, 100000) g; \
             UPDATE huge SET v = 'w' WHERE id % 10 = 0; DELETE FROM huge WHERE id % 10 = 1; COMMIT",
        );
        assert_eq!(session.number("SELECT count(*) FROM huge"), 90_000, "own write (I4)");
        session.run("DELETE FROM huge");
        assert_eq!(session.number("SELECT count(*) FROM huge"), 0, "own write (I4)");
        session.run("INSERT INTO huge SELECT g, repeat('x', 3000000) FROM generate_series(1, 4) g");
    });
    while !loading.is_finished() {
        watch(1, |site, session| {
            let count = session.number("SELECT count(*) FROM huge");
            assert!([0, 4, 90_000].contains(&count), "{site} shows {count} rows (I2)");
        });
    }
    loading.join().expect("the load");
    shared().assert_equal("SELECT count(*), sum(length(v)) FROM huge");
    shared().connect().run("DROP TABLE huge");
}

/// Conflicts that only unique keys, exclusion constraints and full identities show: whatever
/// runs in parallel at a replica ends in the primary's order.
#[test]
fn parallel_apply_keeps_every_order_that_matters() {
    let _alone = alone();
    shared().connect().run(
        "DROP SCHEMA IF EXISTS conflict CASCADE; CREATE SCHEMA conflict; \
         CREATE TABLE conflict.uniq (id int PRIMARY KEY, v int UNIQUE); \
         CREATE TABLE conflict.keyless (v int, w int); \
         CREATE TABLE conflict.parent (id int PRIMARY KEY, n int); \
         CREATE TABLE conflict.child (id int PRIMARY KEY, \
             parent int REFERENCES conflict.parent ON DELETE CASCADE); \
         CREATE TABLE conflict.ranges (r int4range, EXCLUDE USING gist (r WITH &&)); \
         INSERT INTO conflict.parent SELECT g, 0 FROM generate_series(1, 5) g",
    );
    let noise = Noise::start(6, |session, number, round| {
        let (a, b) = ((round + number) % 8, (round * 3 + number) % 8);
        let text = match (round + number) % 8 {
            0 => format!("INSERT INTO conflict.uniq VALUES ({a}, {b}) ON CONFLICT DO NOTHING"),
            1 => format!("DELETE FROM conflict.uniq WHERE v = {b}"),
            2 => format!("UPDATE conflict.uniq SET v = v + 100 WHERE id = {a} AND v < 100"),
            3 => format!("INSERT INTO conflict.keyless VALUES ({a}, {b}), ({a}, {b})"),
            4 => format!("UPDATE conflict.keyless SET w = w + 1 WHERE v = {a} AND w < 12"),
            5 => format!("DELETE FROM conflict.keyless WHERE v = {b}"),
            6 => format!(
                "WITH p AS (INSERT INTO conflict.parent VALUES ({a}, 0) \
                 ON CONFLICT (id) DO UPDATE SET n = conflict.parent.n + 1 RETURNING id) \
                 SELECT * FROM p; INSERT INTO conflict.child VALUES ({b}, {a}) \
                 ON CONFLICT (id) DO UPDATE SET parent = {a}"
            ),
            _ => format!(
                "DELETE FROM conflict.ranges WHERE r && int4range({a}, {a} + 2); \
                 INSERT INTO conflict.ranges VALUES (int4range({a}, {a} + 2)); \
                 DELETE FROM conflict.parent WHERE id = {b}"
            ),
        };
        if let Err(failure) = session.simple(&text) {
            let code = failure.code();
            assert!(["40P01", "23505", "23P01", "23503"].contains(&code), "{text}: {failure}");
        }
    });
    noise.until(3_000);
    noise.stop();
    shared().assert_schema_equal("conflict");
    shared().assert_verified();
}

/// A replica shows nothing before the primary does: a commit that waits for a synchronous standby is in the
/// stream, but the primary doesn't show it; nor may a replica, and nobody else waits for it.
#[test]
fn a_commit_that_the_primary_hides_is_seen_nowhere() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    let mut session = cluster.connect();
    session.run(
        "CREATE TABLE hidden (id int PRIMARY KEY, n int); INSERT INTO hidden VALUES (1, 0), (2, 0)",
    );
    session.run("CREATE TABLE apart (id int PRIMARY KEY); INSERT INTO apart VALUES (1)");
    cluster.caught_up();
    let mut direct = cluster.require_standby();
    let waiting = cluster.hide_commit("UPDATE hidden SET n = n + 1 WHERE id = 1"); // T1
    let n = direct.number("SELECT n FROM hidden WHERE id = 1");
    let behind = |replica: &BTreeMap<String, String>| replica["lag_entries"] == "1";
    eventually("T1 is in the log", || cluster.show_replicas().values().all(behind));
    let look = "SELECT string_agg(n::text, ',' ORDER BY id) FROM hidden";
    let seen = |first: i64, second: i64| format!("{first},{second}");
    for replica in cluster.replicas() {
        assert_eq!(cluster.direct(&replica).value(look), seen(n, 0), "{replica} runs ahead");
    }
    let mut reader = cluster.connect();
    assert_eq!(reader.value(look), seen(n, 0), "{}", reader.route().text);
    // T2 doesn't wait for the standby; it overtakes T1 for readers.
    let mut second = cluster.connect();
    second.run("SET synchronous_commit = local");
    second.run("UPDATE hidden SET n = 2 WHERE id = 2");
    for _ in 0..20 {
        assert_eq!(
            reader.value(look),
            seen(n, 2),
            "a long fork or stale (I3): {}",
            reader.route().text
        );
    }
    assert_eq!(reader.number("SELECT count(*) FROM apart"), 1);
    cluster.require_no_standby();
    waiting.join().expect("T1");
    assert_eq!(reader.value(look), seen(n + 1, 2), "stale (I3): {}", reader.route().text);
    cluster.assert_equal(look);
    cluster.assert_verified();
}
