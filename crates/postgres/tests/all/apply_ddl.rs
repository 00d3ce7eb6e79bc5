//! DDL at replicas: in order, as the role it was run by, under its settings, whoever ran it; a
//! replica where it makes something else stops.

use hihooi_postgres::connection::Connection;

use crate::apply_support::{Cluster, through};

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

/// Never silently different: what DDL touches is compared before it is committed.
#[tokio::test]
async fn a_difference_is_named_at_the_next_command_that_touches_it() {
    for (difference, told) in [
        ("ALTER TABLE before ALTER d SET DEFAULT '2026-01-01'", "column 2 d"),
        ("GRANT SELECT ON before TO joe", "privileges"),
        ("CREATE INDEX extra ON before (d)", "index extra"),
        ("COMMENT ON COLUMN before.d IS 'x'", "comment"),
        ("ALTER TABLE before OWNER TO joe", "owner"),
    ] {
        let cluster = start().await;
        let settled = cluster.settle().await;
        cluster.run_behind(difference).await;
        cluster.run("ALTER TABLE before ADD COLUMN extra int").await;
        let reason = cluster.followers[0].failed("differs from the primary's").await;
        assert!(reason.contains("table public.before") && reason.contains(told), "{reason}");
        assert_eq!(cluster.followers[0].replica.applied(), settled, "nothing of it is committed");
    }
}

/// An operator who repeated what a replica could not do says so by RESUME.
#[tokio::test]
async fn what_an_operator_repeated_is_not_run_again() {
    let cluster = start().await;
    cluster.settle().await;
    cluster.run_behind("CREATE INDEX extra ON before (d)").await;
    cluster.run("ALTER TABLE before ADD COLUMN extra int").await;
    cluster.followers[0].failed("index extra").await;
    cluster.run_behind("DROP INDEX extra; ALTER TABLE before ADD COLUMN extra int").await;
    cluster.followers[0].applier.resume().await.expect("resumes");
    cluster.assert_equal().await;
}

/// … also if he says so while the applier tries again by itself, which nobody can see.
#[tokio::test]
async fn an_operators_word_counts_during_another_attempt() {
    let cluster = start().await;
    cluster.settle().await;
    let follower = &cluster.followers[0];
    let by_hand = "UPDATE pg_constraint SET conname = 'k' WHERE conname = 'before_pkey'";
    through(&cluster, "postgres", "public", &[by_hand]).await;
    follower.failed("changed rows of pg_constraint itself").await;
    // Each attempt begins with what was left unchecked.
    let mut holder = follower.connect().await;
    holder.simple("BEGIN; LOCK TABLE hihooi.unchecked").await.expect("locks");
    let waits = "SELECT pid FROM pg_stat_activity
                 WHERE wait_event_type = 'Lock' AND query ~ 'hihooi.unchecked'";
    follower.server.shows(waits).await.expect("the next attempt waits");
    cluster.run_behind(by_hand).await;
    follower.applier.resume().await.expect("resumes");
    holder.simple("COMMIT").await.expect("lets it go on");
    cluster.assert_equal().await;
}

/// A table or column that only the replica lacks.
#[tokio::test]
async fn an_unknown_table_or_column_stops_the_replica() {
    let cluster = start().await;
    cluster.settle().await;
    cluster.run_behind("ALTER TABLE before DROP COLUMN d").await;
    cluster.followers[0].applier.restart();
    cluster.run("INSERT INTO before VALUES (1, '2026-01-01')").await;
    let reason = cluster.followers[0].failed("column d").await;
    assert!(reason.contains("public.before: column d does not exist"), "{reason}");
    cluster.run_behind("DROP TABLE before").await;
    cluster.followers[0].applier.resume().await.expect("resumes");
    let reason = cluster.followers[0].failed("the table does not exist").await;
    assert!(reason.contains("public.before"), "{reason}");
    let script = "CREATE TABLE before (id int PRIMARY KEY, d date)";
    cluster.run_behind(script).await;
    cluster.followers[0].applier.resume().await.expect("resumes");
    cluster.assert_equal().await;
}

/// No event trigger is told of roles, so that they travel as a state, in front of what needs them.
#[tokio::test]
async fn roles_are_followed() {
    let cluster = start().await;
    for script in [
        "CREATE ROLE ghost LOGIN PASSWORD 'x' CONNECTION LIMIT 3; GRANT joe TO ghost;
         ALTER ROLE ghost SET search_path = mine, \"$user\"; COMMENT ON ROLE ghost IS 'it''s'",
        "GRANT SELECT ON before TO ghost",
        "ALTER ROLE ghost RENAME TO spirit; ALTER ROLE spirit NOLOGIN",
        "REVOKE joe FROM spirit; ALTER ROLE spirit RESET ALL",
        "DO $$BEGIN CREATE ROLE nested; CREATE TABLE n (a int); ALTER TABLE n OWNER TO nested; END$$",
        "DROP TABLE n; REVOKE ALL ON before FROM spirit; DROP ROLE spirit, nested",
        "CREATE TABLE afterwards (a int)",
    ] {
        cluster.run(script).await;
        cluster.run("COMMENT ON TABLE before IS 'told again'").await;
        cluster.assert_equal().await;
    }
}

/// Rows at a replica pass over CHECK constraints that may ask for more than the row.
#[tokio::test]
async fn checks_that_were_passed_over_are_there_for_ddl() {
    let script = "CREATE FUNCTION asks(int) RETURNS bool LANGUAGE plpgsql STABLE AS
            $$ BEGIN RETURN current_setting('application_name') IS NOT NULL; END $$;
        CREATE TABLE t (id int PRIMARY KEY, CONSTRAINT asked CHECK (asks(id)));
        CREATE TABLE u (id int PRIMARY KEY, CONSTRAINT asked CHECK (asks(id)))";
    let cluster = Cluster::start(script, 1).await;
    cluster.run("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)").await;
    cluster.settle().await;
    let mut replica: Connection = cluster.followers[0].connect().await;
    let query = "SELECT count(*) FROM hihooi.unchecked";
    let passed_over = replica.query(query).await.expect("counts");
    assert_eq!(passed_over.value(), Some("2"));
    cluster.run("ALTER TABLE t DROP CONSTRAINT asked").await;
    cluster.assert_equal().await;
    assert_eq!(replica.query(query).await.expect("counts").value(), Some("0"));
    cluster.run("INSERT INTO u VALUES (2)").await;
    cluster.assert_equal().await;
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
