//! A write load that knows what was acknowledged, and the check that it is everywhere exactly
//! once (I5).
//!
//! Each writer inserts unique tokens into a keyed and a keyless table and counts them in a row
//! of its own, in one transaction: a lost, doubled or half-applied transaction shows in one of
//! the three.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::{Cluster, Failure, Session, ms};

/// The tables of the load.
const SCHEMA: &str = "\
    CREATE SCHEMA IF NOT EXISTS load; \
    CREATE TABLE load.keyed (token text PRIMARY KEY, writer int); \
    CREATE TABLE load.keyless (token text, writer int); \
    CREATE TABLE load.counters (writer int PRIMARY KEY, n bigint NOT NULL); \
    CREATE TABLE load.hot (id int PRIMARY KEY, n bigint NOT NULL); \
    INSERT INTO load.hot SELECT i, 0 FROM generate_series(1, 10) i";

/// What one writer knows.
#[derive(Default, Debug)]
pub struct Known {
    pub acknowledged: BTreeSet<String>,
    /// Sent, but the connection was lost before the answer.
    pub in_doubt: BTreeSet<String>,
    /// Transactions the server refused.
    pub refused: u64,
}

/// Writers at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Known>>,
}

/// Makes the tables.
pub fn prepare(cluster: &Cluster) {
    cluster.connect().run(SCHEMA);
}

impl Load {
    /// Starts writers, numbered from `first` on, each on a connection of its own which it opens
    /// anew whenever it is lost.
    pub fn start(cluster: &Cluster, first: usize, writers: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        let spawn = |writer| {
            let (stop, count, port) = (stop.clone(), count.clone(), cluster.port);
            std::thread::spawn(move || write(port, writer, &stop, &count))
        };
        let writers = (first..first + writers).map(spawn).collect();
        Load { stop, count, writers }
    }

    /// Transactions acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until that many more transactions were acknowledged.
    pub fn progress(&self, transactions: u64) {
        let goal = self.acknowledged() + transactions;
        super::eventually("the load makes progress", || self.acknowledged() >= goal);
    }

    /// Stops all writers.
    pub fn stop(self) -> Vec<Known> {
        self.stop.store(true, Ordering::Relaxed);
        self.writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    }
}

fn write(port: u16, writer: usize, stop: &AtomicBool, count: &AtomicU64) -> Known {
    let (mut known, mut session, mut number) = (Known::default(), None, 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let Some(open) = session.as_mut() else {
            session = open_writer(port, writer);
            continue;
        };
        number += 1;
        let token = format!("{writer}-{number}");
        match write_one(open, writer, &token, number) {
            Ok(()) => {
                count.fetch_add(1, Ordering::Relaxed);
                known.acknowledged.insert(token);
            }
            Err(Failure::Server(fields)) if ends_session(fields.code()) => {
                known.in_doubt.insert(token);
                session = None;
            }
            Err(Failure::Server(_)) => {
                known.refused += 1;
                // Leaves a block that failed; a lost connection shows at the next statement.
                let _ = open.simple("ROLLBACK");
            }
            Err(Failure::Lost(_)) => {
                known.in_doubt.insert(token);
                session = None;
            }
        }
    }
    known
}

/// Errors behind which the transaction's fate is unknown: connection exceptions and shutdowns,
/// and 40003 (statement completion unknown).
fn ends_session(code: &str) -> bool {
    code.starts_with("08") || code.starts_with("57P") || code == "40003"
}

fn open_writer(port: u16, writer: usize) -> Option<Session> {
    let parameters = [("user", super::USER), ("database", super::DATABASE)];
    let opened = Session::open(port, &parameters).ok().and_then(|mut session| {
        let row = format!("INSERT INTO load.counters VALUES ({writer}, 0) ON CONFLICT DO NOTHING");
        session.simple(&row).ok().map(|_| session)
    });
    if opened.is_none() {
        std::thread::sleep(ms(20));
    }
    opened
}

/// One transaction, each time in another of the ways that clients have.
fn write_one(
    session: &mut Session,
    writer: usize,
    token: &str,
    number: u64,
) -> Result<(), Failure> {
    let keyed = format!("INSERT INTO load.keyed VALUES ('{token}', {writer})");
    let keyless = format!("INSERT INTO load.keyless VALUES ('{token}', {writer})");
    let counter = format!("UPDATE load.counters SET n = n + 1 WHERE writer = {writer}");
    let hot = format!("UPDATE load.hot SET n = n + 1 WHERE id = {}", number % 10 + 1);
    match number % 3 {
        0 => {
            // One autocommit statement.
            let text = format!("WITH a AS ({keyed}), b AS ({keyless}), c AS ({hot}) {counter}");
            session.simple(&text)?;
        }
        1 => {
            session.simple("BEGIN")?;
            for text in [&keyed, &keyless, &counter, &hot] {
                session.extended(text, &[])?;
            }
            session.simple("COMMIT")?;
        }
        _ => {
            // Several statements, one implicit transaction.
            session.simple(&[keyed, keyless, counter, hot].join("; "))?;
        }
    }
    Ok(())
}

/// Asserts that every site holds each acknowledged transaction exactly once and whole, and of
/// those in doubt the same ones, at most once (I5).
pub fn check(cluster: &Cluster, known: &[Known]) {
    cluster.caught_up();
    let mut expected = None;
    for site in cluster.sites() {
        let mut session = cluster.direct(&site.name);
        let tokens = tokens(&mut session, "keyed");
        let keyless = tokens_sorted(&mut session, "keyless");
        for known in known {
            let lost: Vec<_> = known.acknowledged.difference(&tokens).collect();
            assert!(lost.is_empty(), "{}: acknowledged but lost: {lost:?}", site.name);
        }
        let all: BTreeSet<&String> =
            known.iter().flat_map(|k| k.acknowledged.iter().chain(&k.in_doubt)).collect();
        let never: Vec<_> = tokens.iter().filter(|token| !all.contains(token)).collect();
        assert!(never.is_empty(), "{}: never sent or refused: {never:?}", site.name);
        let once: Vec<String> = tokens.iter().cloned().collect();
        assert_eq!(once, keyless, "{}: half or doubled transactions", site.name);
        let wrong = session.run(
            "SELECT c.writer, c.n, count(k.token) FROM load.counters c \
             LEFT JOIN load.keyed k USING (writer) GROUP BY 1, 2 HAVING c.n <> count(k.token)",
        );
        assert!(wrong.rows.is_empty(), "{}: counters are off: {:?}", site.name, wrong.rows);
        let hot = session.number("SELECT sum(n) FROM load.hot");
        assert_eq!(hot, tokens.len() as i64, "{}: hot rows are off", site.name);
        let first = expected.get_or_insert_with(|| tokens.clone());
        assert_eq!(*first, tokens, "{} differs from the first site", site.name);
    }
}

fn tokens_sorted(session: &mut Session, table: &str) -> Vec<String> {
    let rows = session.run(&format!("SELECT token FROM load.{table}")).rows;
    let mut tokens: Vec<String> = rows.into_iter().filter_map(|mut row| row[0].take()).collect();
    tokens.sort();
    tokens
}

fn tokens(session: &mut Session, table: &str) -> BTreeSet<String> {
    tokens_sorted(session, table).into_iter().collect()
}
