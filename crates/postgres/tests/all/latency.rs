//! How long after a commit's acknowledgement the collector knows of it, and how long until it is
//! durable in the log. Not a test with a verdict: `cargo test --release -p hihooi-postgres --test
//! all -- --ignored --nocapture latency::` prints figures.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hihooi_log::Log;
use hihooi_postgres::collector::StreamEvent;
use hihooi_postgres::connection::Connection;
use hihooi_postgres::setup;
use tokio::task::JoinSet;

use crate::support::{Collector, Server};

const CLIENTS: usize = 8;
const SECONDS: u64 = 8;
const SCALE: u32 = 10;

#[test]
#[ignore = "measures"]
fn from_acknowledgement_to_event_and_to_durable() {
    let server = Server::start_with("fsync = on");
    let scale = SCALE.to_string();
    let made = server.program("pgbench", "postgres", &["-i", "-q", "-s", &scale, "postgres"]);
    assert!(made.status.success());
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let clients = runtime();
    clients.block_on(async {
        setup::install(&mut server.connect().await).await.expect("sets up");
    });
    let dir = tempfile::tempdir().expect("a directory");
    let log = Log::open(dir.path()).expect("opens");
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (watched, server_address) = (log.clone(), &server);
    let (acknowledged, (events, durables)) = std::thread::scope(|scope| {
        let watcher =
            scope.spawn(move || runtime().block_on(watch(server_address, watched, stopped)));
        std::thread::sleep(Duration::from_millis(300));
        let acknowledged = clients.block_on(write(&server));
        std::thread::sleep(Duration::from_millis(500));
        stop.send(()).expect("the watcher listens");
        (acknowledged, watcher.join().expect("no panic"))
    });
    println!(
        "{} transactions, {} a second",
        acknowledged.len(),
        acknowledged.len() as u64 / SECONDS
    );
    let durable_at = |tsid| {
        let place = durables.partition_point(|(durable, _)| *durable < tsid);
        durables[place].1
    };
    let of = |name, at: &dyn Fn(u32) -> Instant| {
        let mut waits: Vec<i64> = acknowledged
            .iter()
            .map(|(xid, acknowledged)| match at(*xid).checked_duration_since(*acknowledged) {
                Some(later) => later.as_micros() as i64,
                None => -(acknowledged.duration_since(at(*xid)).as_micros() as i64),
            })
            .collect();
        waits.sort_unstable();
        let at = |share: f64| waits[(waits.len() as f64 * share) as usize];
        println!("{name}: median {} us, p90 {} us, p99 {} us", at(0.5), at(0.9), at(0.99));
    };
    of("acknowledged to event", &|xid| events[&xid].1);
    of("acknowledged to durable", &|xid| durable_at(events[&xid].0));
    println!("{} groups made durable", durables.len());
    fsync_cost(dir.path());
}

type Told = (HashMap<u32, (u64, Instant)>, Vec<(u64, Instant)>);

async fn watch(server: &Server, log: Log, mut stop: tokio::sync::oneshot::Receiver<()>) -> Told {
    let mut durable = log.durable();
    let mut collector = Collector::start(server, log);
    let (mut events, mut durables) = (HashMap::new(), Vec::new());
    loop {
        tokio::select! {
            Some(event) = collector.events.recv() => if let StreamEvent::Entry(entry) = event {
                events.insert(entry.xid, (entry.tsid.0, Instant::now()));
            },
            Ok(()) = durable.changed() => {
                durables.push((durable.borrow_and_update().0, Instant::now()));
            }
            _ = &mut stop => return (events, durables),
        }
    }
}

async fn write(server: &Server) -> Vec<(u32, Instant)> {
    let mut tasks = JoinSet::new();
    let end = Instant::now() + Duration::from_secs(SECONDS);
    for client in 0..CLIENTS as u32 {
        let login = server.login("postgres", "postgres");
        tasks.spawn(async move {
            let mut connection = Connection::open(&login).await.expect("connects");
            let mut acknowledged = Vec::new();
            let mut random = client + 1;
            while Instant::now() < end {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (aid, tid, bid) = (
                    1 + random % (SCALE * 100_000),
                    1 + random % (SCALE * 10),
                    1 + (random >> 8) % SCALE,
                );
                let text = format!(
                    "BEGIN; UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = {aid};
                     SELECT abalance FROM pgbench_accounts WHERE aid = {aid};
                     UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = {tid};
                     UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = {bid};
                     INSERT INTO pgbench_history VALUES ({tid}, {bid}, {aid}, 1, now());
                     SELECT pg_current_xact_id()"
                );
                let answers = connection.simple(&text).await.expect("writes");
                let xid: u64 = answers
                    .last()
                    .expect("an answer")
                    .value()
                    .expect("an xid")
                    .parse()
                    .expect("a number");
                connection.query("COMMIT").await.expect("commits");
                acknowledged.push((xid as u32, Instant::now()));
            }
            acknowledged
        });
    }
    tasks.join_all().await.concat()
}

fn fsync_cost(dir: &std::path::Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(dir.join("fsync")).expect("creates");
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            file.write_all(&[7; 600]).expect("writes");
            let started = Instant::now();
            file.sync_data().expect("syncs");
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("fdatasync: median {:?}, p99 {:?}", times[100], times[198]);
}
