//! DDL at replicas: in order, as the role it was run by, under its settings; what came another
//! way stops them.

mod apply_support;
mod support;

use apply_support::{Cluster, through};
use hihooi_postgres::connection::Connection;
use hihooi_replication::ddl::seal;
use hihooi_replication::entry::Ddl;
use hihooi_replication::ids::Xid;
use support::KEY;

const ROLES: &str = "CREATE SCHEMA mine; CREATE TABLE before (id int PRIMARY KEY, d date)";

async fn start() -> Cluster {
    let cluster = Cluster::start(ROLES, 1).await;
    through(
        &cluster,
        "postgres",
        "public",
        &["CREATE ROLE joe LOGIN", "GRANT CREATE, USAGE ON SCHEMA mine TO joe"],
    )
    .await;
    cluster
}

/// DDL and rows of one transaction, as an ordinary role, in its search path; rows before, between
/// and after, under the applier's own settings again.
#[tokio::test]
async fn ddl_runs_in_order_as_its_role() {
    let cluster = start().await;
    through(
        &cluster,
        "joe",
        "mine",
        &[
            "CREATE TABLE t (id int PRIMARY KEY, d date)",
            "INSERT INTO t VALUES (1, '2026-03-04')",
            "ALTER TABLE t ADD COLUMN v text DEFAULT 'x'",
            "INSERT INTO t SELECT n, '2026-03-04', 'many' FROM generate_series(10, 60) n",
            "UPDATE t SET v = 'y' WHERE id = 1",
            "CREATE INDEX ON t (v)",
        ],
    )
    .await;
    cluster.run("INSERT INTO mine.t VALUES (2, '2026-05-06', 'z')").await;
    through(&cluster, "joe", "mine", &["ALTER TABLE t ALTER COLUMN v TYPE varchar(20)"]).await;
    cluster.run("UPDATE mine.t SET v = 'after' WHERE id = 2").await;
    cluster.assert_equal().await;
    let mut replica = cluster.followers[0].connect().await;
    let query = "SELECT tableowner FROM pg_tables WHERE tablename = 't'";
    assert_eq!(replica.query(query).await.expect("reads").value(), Some("joe"));
}

/// `CREATE TABLE AS` and `SELECT INTO` send their rows too; a materialized view does not.
#[tokio::test]
async fn tables_made_from_queries_are_filled_once() {
    let cluster = start().await;
    cluster.run("INSERT INTO before SELECT n, '2026-01-01' FROM generate_series(1, 5) n").await;
    through(
        &cluster,
        "postgres",
        "public",
        &[
            "CREATE TABLE copied AS SELECT *, random() AS r FROM before;",
            "SELECT id, random() AS r INTO also FROM before WHERE id > 1",
            "CREATE MATERIALIZED VIEW summed AS SELECT sum(id) FROM before",
        ],
    )
    .await;
    cluster.run("DELETE FROM copied WHERE id = 1").await;
    cluster.assert_equal().await;
    cluster.run("INSERT INTO before VALUES (100, '2026-01-01')").await;
    through(&cluster, "postgres", "public", &["REFRESH MATERIALIZED VIEW summed"]).await;
    let report = cluster.assert_equal().await;
    assert_eq!(report.rows, 6 + 4 + 4 + 1, "{report}");
}

/// Never as superuser for someone who is none.
#[tokio::test]
async fn what_a_role_may_not_do_it_does_not_do_at_replicas() {
    let cluster = start().await;
    cluster.settle().await;
    cluster.run_behind("REVOKE CREATE ON SCHEMA mine FROM joe").await;
    through(&cluster, "joe", "mine", &["CREATE TABLE t (id int PRIMARY KEY)"]).await;
    let reason = cluster.followers[0].failed("permission denied").await;
    assert!(reason.contains("CREATE TABLE t"), "{reason}");
}

/// Event triggers detect what came another way; replicas stop with the statement named.
#[tokio::test]
async fn ddl_that_bypassed_hihooi_stops_replicas() {
    let cluster = start().await;
    let before = cluster.settle().await;
    cluster.run("ALTER TABLE before ADD COLUMN extra int").await;
    cluster.run("INSERT INTO before VALUES (7, '2026-01-01', 8)").await;
    let reason = cluster.followers[0].failed("bypassed").await;
    assert!(reason.contains("ALTER TABLE before ADD COLUMN extra int"), "{reason}");
    assert_eq!(cluster.followers[0].replica.applied(), before);
}

/// A table or column that only the replica lacks.
#[tokio::test]
async fn an_unknown_table_or_column_stops_the_replica() {
    let cluster = start().await;
    cluster.settle().await;
    cluster.run_behind("ALTER TABLE before DROP COLUMN d").await;
    cluster.followers[0].applier.restart();
    cluster.run("INSERT INTO before VALUES (1, '2026-01-01')").await;
    let reason = cluster.followers[0].failed("bypassed").await;
    assert!(reason.contains("public.before: column d does not exist"), "{reason}");
    cluster.run_behind("DROP TABLE before").await;
    cluster.followers[0].applier.resume();
    let reason = cluster.followers[0].failed("the table does not exist").await;
    assert!(reason.contains("public.before"), "{reason}");
    let script = "CREATE TABLE before (id int PRIMARY KEY, d date)";
    cluster.run_behind(script).await;
    cluster.followers[0].applier.resume();
    cluster.assert_equal().await;
}

/// What can't run in a transaction is logged after it succeeded, runs alone, and once more after
/// a crash in the wrong moment, which must do no harm.
#[tokio::test]
async fn ddl_outside_transactions_is_replayed() {
    let cluster = start().await;
    let ddl = Ddl {
        text: "CREATE DATABASE other".to_owned(),
        role: "postgres".to_owned(),
        settings: Vec::new(),
        outside_transaction: true,
    };
    cluster.run("CREATE DATABASE other").await;
    for _ in 0..2 {
        let mut connection = cluster.primary.server.connect().await;
        connection.query("BEGIN").await.expect("begins");
        let xid = connection.query("SELECT pg_current_xact_id()").await.expect("an xid");
        let xid = Xid(xid.value().expect("an xid").parse().expect("a number"));
        let message = seal(&KEY, xid, 1, &ddl);
        let emit = "SELECT pg_logical_emit_message(true, 'hihooi', $1)";
        connection.query_with(emit, &[Some(&message)]).await.expect("emits");
        connection.query("COMMIT").await.expect("commits");
        connection.close().await;
    }
    cluster.run("INSERT INTO before VALUES (1, '2026-01-01')").await;
    cluster.assert_equal().await;
    let mut replica = cluster.followers[0].connect().await;
    let query = "SELECT count(*) FROM pg_database WHERE datname = 'other'";
    assert_eq!(replica.query(query).await.expect("reads").value(), Some("1"));
}

/// Roles raise no event: a replica that lacks one says what to do, and goes on when it is done.
#[tokio::test]
async fn a_missing_role_is_explained() {
    let cluster = start().await;
    cluster.run("CREATE ROLE ghost").await;
    through(&cluster, "postgres", "public", &["GRANT SELECT ON before TO ghost"]).await;
    let reason = cluster.followers[0].failed("role \"ghost\" does not exist").await;
    assert!(reason.contains("CREATE ROLE on the replica as well"), "{reason}");
    let mut replica = cluster.followers[0].connect().await;
    replica.query("CREATE ROLE ghost").await.expect("mended by the operator");
    cluster.followers[0].applier.resume();
    cluster.settle().await;
}

/// ENABLE ALWAYS triggers, publications and event triggers of a copied server don't act there.
#[tokio::test]
async fn what_a_copy_would_do_on_its_own_is_disabled() {
    let script = "CREATE TABLE t (id int PRIMARY KEY, n int);
        CREATE TABLE audit (id int);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NEW; END $$;
        CREATE TRIGGER always AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
        ALTER TABLE t ENABLE ALWAYS TRIGGER always";
    let cluster = Cluster::start(script, 1).await;
    cluster.run("INSERT INTO t VALUES (1, 1)").await;
    cluster.settle().await;
    let mut replica: Connection = cluster.followers[0].connect().await;
    let count = replica.query("SELECT count(*) FROM audit").await.expect("counts");
    assert_eq!(count.value(), Some("1"), "the trigger's row came once, in the stream");
    cluster.assert_equal().await;
}
