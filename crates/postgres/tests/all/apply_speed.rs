//! How far replicas are behind under pgbench's TPC-B-like load, and how fast they catch up; run by hand:
//! `cargo test --release -p hihooi-postgres --test all -- --ignored --nocapture apply_speed::`.

use std::time::{Duration, Instant};

use hihooi_replication::schedule::Method;

use crate::apply_support::Cluster;
use crate::support::{self, Server};

fn tables(scale: u32) -> String {
    format!(
        "CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp,
             filler char(22));
         CREATE TABLE pgbench_tellers (tid int NOT NULL, bid int, tbalance int, filler char(84));
         CREATE TABLE pgbench_accounts (aid int NOT NULL, bid int, abalance int, filler char(84));
         CREATE TABLE pgbench_branches (bid int NOT NULL, bbalance int, filler char(88));
         INSERT INTO pgbench_branches SELECT n, 0 FROM generate_series(1, {scale}) n;
         INSERT INTO pgbench_tellers SELECT n, 1 + (n - 1) / 10, 0 FROM generate_series(1, {scale} * 10) n;
         INSERT INTO pgbench_accounts SELECT n, 1 + (n - 1) / 100000, 0, ''
             FROM generate_series(1, {scale} * 100000) n;
         ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid);
         ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid);
         ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid);
         ANALYZE"
    )
}

async fn measure(scale: u32, seconds: u32) {
    let settings = "shared_buffers = 256MB";
    let cluster = Cluster::start_with(&tables(scale), settings, 2).await;
    cluster.run("ALTER SYSTEM SET fsync = on").await;
    cluster.run("SELECT pg_reload_conf()").await;
    cluster.settle().await;
    let port = cluster.primary.server.port.to_string();
    let started = Instant::now();
    let bench = tokio::task::spawn_blocking(move || {
        let time = seconds.to_string();
        support::as_postgres(&support::bin().join("pgbench"))
            .args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-n", "-c", "8", "-j", "1"])
            .args(["-M", "prepared", "-T", &time, "postgres"])
            .output()
            .expect("pgbench runs")
    });
    let mut lags = Vec::new();
    while !bench.is_finished() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let end = cluster.collector.log.last().map_or(0, |header| header.tsid.0);
        lags.push(end - cluster.followers[0].replica.applied().0);
    }
    let output = bench.await.expect("no panic");
    let written = started.elapsed();
    cluster.settle().await;
    let drained = started.elapsed() - written;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let tps = said.lines().find(|line| line.starts_with("tps")).unwrap_or_default();
    println!("scale {scale}: {tps}; lag in entries {lags:?}; drained in {drained:?}");
    for follower in &cluster.followers {
        let stats = follower.applier.stats();
        println!(
            "  {}: {} entries in {} transactions, {} retries; commit to visible p50 {:?} p90 {:?} p99 {:?} max {:?} us",
            follower.replica.site.name,
            stats.entries,
            stats.transactions,
            stats.retries,
            stats.percentile_us(50),
            stats.percentile_us(90),
            stats.percentile_us(99),
            stats.percentile_us(100)
        );
    }
    let report = cluster.verify().await;
    assert!(report.is_equal(), "{report}");
}

#[tokio::test]
#[ignore = "a measurement"]
async fn scale_1() {
    measure(1, 8).await;
}

#[tokio::test]
#[ignore = "a measurement"]
async fn scale_10() {
    measure(10, 8).await;
}

/// Catches up with so many transactions of TPC-B (`HIHOOI_TRANSACTIONS`), by each method, one after the other, and by
/// a subscription of PostgreSQL.
async fn catch_up(scale: u32) {
    let transactions: u64 = std::env::var("HIHOOI_TRANSACTIONS")
        .map_or(20_000, |text| text.parse().expect("HIHOOI_TRANSACTIONS is a number"));
    let methods = [Method::Serial, Method::Algorithm2, Method::Graph];
    let cluster = Cluster::start_by(&tables(scale), "shared_buffers = 256MB", &methods).await;
    cluster.settle().await;
    let subscriber = Server::start_with("shared_buffers = 256MB");
    let mut subscriber_connection = subscriber.connect().await;
    subscriber_connection.simple(&tables(scale)).await.expect("the script runs");
    let publish = "CREATE PUBLICATION pgbench FOR TABLE pgbench_accounts, pgbench_branches,
        pgbench_history, pgbench_tellers";
    cluster.run(publish).await;
    let subscribe = format!(
        "CREATE SUBSCRIPTION pgbench CONNECTION 'host=127.0.0.1 port={} user=postgres dbname=postgres'
         PUBLICATION pgbench WITH (copy_data = false, enabled = false, synchronous_commit = off)",
        cluster.primary.server.port
    );
    subscriber_connection.simple(&subscribe).await.expect("subscribes");
    for follower in &cluster.followers {
        follower.applier.hold(support::PATIENCE).await.expect("stops");
    }
    let port = cluster.primary.server.port.to_string();
    let bench = tokio::task::spawn_blocking(move || {
        let each = (transactions / 8).to_string();
        support::as_postgres(&support::bin().join("pgbench"))
            .args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-n", "-c", "8", "-j", "1"])
            .args(["-M", "prepared", "-t", &each, "postgres"])
            .output()
            .expect("pgbench runs")
    });
    assert!(bench.await.expect("no panic").status.success());
    let end = cluster.logged().await;
    for (follower, method) in cluster.followers.iter().zip(methods) {
        let process_before = cpu_seconds();
        let started = Instant::now();
        follower.applier.release();
        follower.reached(end).await;
        let seconds = started.elapsed().as_secs_f64();
        let stats = follower.applier.stats();
        println!(
            "scale {scale}, {method}: {:.0} transactions/s ({seconds:.2} s, of this process {:.2} s CPU); \
             {} entries in {} transactions, {} retries",
            transactions as f64 / seconds,
            cpu_seconds() - process_before,
            stats.entries,
            stats.transactions,
            stats.retries
        );
    }
    let started = Instant::now();
    subscriber_connection.simple("ALTER SUBSCRIPTION pgbench ENABLE").await.expect("enables");
    loop {
        let count = subscriber_connection.query("SELECT count(*) FROM pgbench_history").await;
        if count.expect("counts").value() == Some(&(transactions / 8 * 8).to_string()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "scale {scale}, a subscription of PostgreSQL: {:.0} transactions/s ({seconds:.2} s)",
        transactions as f64 / seconds
    );
    subscriber_connection.simple("DROP SUBSCRIPTION pgbench").await.expect("drops");
    let report = cluster.verify().await;
    assert!(report.is_equal(), "{report}");
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    // utime and stime, in hundredths of a second (manual, proc(5)).
    [11, 12].iter().map(|&at: &usize| fields[at].parse::<f64>().expect("a number")).sum::<f64>()
        / 100.0
}

#[tokio::test]
#[ignore = "a measurement"]
async fn catch_up_scale_10() {
    catch_up(10).await;
}
