//! Verification finds what differs, and compares at one position under load (I2, I5); and a
//! replica never shows what the primary doesn't show yet (I3, rule (2)).

mod apply_support;
mod support;

use apply_support::{Cluster, Load};

const SCRIPT: &str = "CREATE TABLE t (id int PRIMARY KEY, v text);
    INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 500) n;
    CREATE TABLE nokey (a int);
    INSERT INTO nokey VALUES (1), (1), (2);
    CREATE TABLE gone (a int PRIMARY KEY);
    CREATE INDEX named ON t (v);
    CREATE MATERIALIZED VIEW total AS SELECT count(*) FROM t";

/// Planted differences, each found and named.
#[tokio::test]
async fn finds_planted_differences() {
    let cluster = Cluster::start(SCRIPT, 2).await;
    cluster.run("INSERT INTO t VALUES (1000, 'x')").await;
    cluster.settle().await;
    cluster
        .run_behind(
            "UPDATE t SET v = 'planted' WHERE id = 7; DELETE FROM t WHERE id = 8;
             INSERT INTO t VALUES (9999, 'extra'); DROP TABLE gone; DROP INDEX named;
             CREATE TABLE other (a int); ALTER TABLE nokey ADD b int",
        )
        .await;
    let report = cluster.verify().await;
    let text = report.to_string();
    assert!(text.ends_with("DIFFERENT") && !report.is_equal(), "{text}");
    assert!(!text.contains("replica2"), "the other one is equal: {text}");
    let lines = [
        "replica1: table public.gone: is missing",
        "replica1: index public.named: is missing",
        "replica1: table public.other: does not exist on the primary",
        "replica1: column public.nokey.b: does not exist on the primary",
        "replica1: public.t (id)=(7)\n    primary (7,v7)\n    replica1 (7,planted)",
        "replica1: public.t (id)=(8)\n    primary (8,v8)\n    replica1 (none)",
        "replica1: public.t (id)=(9999)\n    primary (none)\n    replica1 (9999,extra)",
    ];
    for line in lines {
        assert!(text.contains(line), "{line} is not in: {text}");
    }
}

/// Rows without key, one too many; a materialized view that wasn't refreshed.
#[tokio::test]
async fn finds_duplicates_and_stale_views() {
    let cluster = Cluster::start(SCRIPT, 1).await;
    cluster.run("INSERT INTO t VALUES (1000, 'x')").await;
    cluster.settle().await;
    cluster.run_behind("INSERT INTO nokey VALUES (1); REFRESH MATERIALIZED VIEW total").await;
    let text = cluster.verify().await.to_string();
    assert!(text.contains("primary (1) x 2\n    replica1 (1) x 3"), "{text}");
    assert!(text.contains("primary (500)\n") && text.contains("replica1 (501)"), "{text}");
}

/// Under load, at one position, with a replica that is behind.
#[tokio::test]
async fn compares_at_one_position_under_load() {
    let cluster = Cluster::start(SCRIPT, 2).await;
    cluster.settle().await;
    let load = Load::start(&cluster, 1, |_, n| {
        format!("UPDATE t SET v = '{n}' WHERE id = {}", 1 + n % 500)
    });
    for _ in 0..5 {
        cluster.written(100).await;
        let report = cluster.verify().await;
        assert!(report.is_equal() && report.tsid.0 > 0, "{report}");
    }
    load.end().await;
    cluster.assert_equal().await;
}

/// The log says T1, T2, but T1 waits for a synchronous standby that does not answer, so
/// the primary shows T2 without T1. No replica may show T1 before, and by order nothing behind it.
#[tokio::test]
async fn no_replica_shows_what_the_primary_hides() {
    let cluster = Cluster::start(SCRIPT, 1).await;
    let before = cluster.settle().await;
    let server = &cluster.primary.server;
    server.hide_commits().await;
    let mut first = server.connect().await;
    let pid = first.key().process;
    let first =
        tokio::spawn(
            async move { first.query("UPDATE t SET v = 'T1' WHERE id = 1").await.map(drop) },
        );
    let waits =
        format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'SyncRep'");
    server.shows(&waits).await;
    cluster.run("SET synchronous_commit = local; UPDATE t SET v = 'T2' WHERE id = 2").await;
    let end = cluster.logged().await;
    assert_eq!(end.0, before.0 + 2);
    cluster.followers[0].executed().await;
    let query = "SELECT string_agg(v, ',' ORDER BY id) FROM t WHERE id < 3";
    let mut primary = cluster.primary.server.connect().await;
    let mut replica = cluster.followers[0].connect().await;
    let shown = primary.query(query).await.expect("reads");
    assert_eq!(shown.value(), Some("v1,T2"), "the long fork is set up");
    assert_eq!(replica.query(query).await.expect("reads").value(), Some("v1,v2"));
    assert_eq!(cluster.followers[0].replica.applied(), before);
    let none =
        cluster.try_verify().await.expect_err("no snapshot is a prefix while the fork lasts");
    assert!(none.to_string().contains("no prefix"), "{none}");
    // An acknowledgement that reached a client proves that the primary shows it.
    let entries = cluster.collector.log.read(before.next(), 1, usize::MAX).await.expect("reads");
    let xid = u64::from(entries[0].header.xid);
    cluster.visibility.acknowledgements().send(xid).await.expect("someone listens");
    cluster.followers[0].reached(end).await;
    server.show_commits().await;
    first.await.expect("no panic").expect("commits");
    cluster.assert_equal().await;
    assert_eq!(replica.query(query).await.expect("reads").value(), Some("T1,T2"));
}
