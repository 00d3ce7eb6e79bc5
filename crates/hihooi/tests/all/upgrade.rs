//! Clusters that earlier versions made go on with this one: what those left behind is replaced, at all sites,
//! and nobody but hihooi writes what replicas believe (I2, I5).

use nix::sys::signal::Signal;

use crate::harness::{Cluster, Options, alone, eventually, target_is_plain};

/// Runs SQL at a replica, as an operator may.
fn at_replica(cluster: &Cluster, sql: &str) {
    cluster.repair("replica1").run(sql);
}

/// Makes the set-up that of another version, for the next manager.
const OTHER: &str = "COMMENT ON SCHEMA hihooi IS 'hihooi set-up of another version'";

#[test]
fn what_earlier_versions_left_is_in_nobodys_way() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run(
        "CREATE TABLE keyless (a int); INSERT INTO keyless VALUES (1);
         CREATE TABLE log (tag text);
         CREATE FUNCTION log_ddl() RETURNS event_trigger LANGUAGE plpgsql
             AS 'BEGIN INSERT INTO public.log VALUES (tg_tag); END';
         CREATE EVENT TRIGGER log_ddl ON ddl_command_end EXECUTE FUNCTION log_ddl();
         CREATE EVENT TRIGGER log_always ON ddl_command_end EXECUTE FUNCTION log_ddl();
         ALTER EVENT TRIGGER log_always ENABLE ALWAYS;
         CREATE EVENT TRIGGER log_never ON ddl_command_end EXECUTE FUNCTION log_ddl();
         ALTER EVENT TRIGGER log_never DISABLE",
    );
    cluster.caught_up();
    session.close();
    cluster.stop_manager(Signal::SIGTERM);
    cluster.up();
    // The first version told replicas of no identities, another kept a table of a name that is in use now,
    // and functions change.
    let before = cluster.connect().value("SELECT count(*) FROM log");
    cluster.kill_manager();
    let mut primary = cluster.direct("primary");
    primary.run("SET session_replication_role = replica; ALTER EVENT TRIGGER log_always DISABLE");
    primary.run(
        "BEGIN; ALTER EVENT TRIGGER \"!hihooi_2_end\" DISABLE; CREATE TABLE hihooi.query (a int)",
    );
    primary.run(&format!("CREATE TABLE hihooi.ddl (a int); {OTHER}; COMMIT"));
    primary.run("ALTER EVENT TRIGGER log_always ENABLE ALWAYS");
    at_replica(
        &cluster,
        "CREATE TABLE hihooi.query (a int); ALTER TABLE keyless REPLICA IDENTITY DEFAULT;
         DROP FUNCTION hihooi.describe_all(); CREATE FUNCTION hihooi.describe_all() RETURNS int
             LANGUAGE sql AS 'SELECT 1'",
    );
    cluster.up();
    let mut session = cluster.connect();
    assert_eq!(session.value("SELECT count(*) FROM log"), before, "users' triggers saw our DDL");
    let states = "SELECT string_agg(format('%s %s', evtname, evtenabled), ', ' ORDER BY evtname)
        FROM pg_event_trigger WHERE evtname !~ 'hihooi'";
    assert_eq!(session.value(states), "log_always A, log_ddl O, log_never D");
    session.run("ALTER TABLE keyless ADD b int DEFAULT 7; UPDATE keyless SET a = 2");
    session.run("CREATE MATERIALIZED VIEW m AS SELECT * FROM keyless; REFRESH MATERIALIZED VIEW m");
    cluster.assert_equal("SELECT * FROM m");
    cluster.assert_verified();
}

/// The first version made its own objects in another way, and followed no DDL that it wasn't told of.
#[test]
fn the_set_up_of_the_first_version_is_replaced() {
    const FIRST: &str = include_str!("scripts/first_setup.sql");
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    cluster.connect().run(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text); INSERT INTO keyed VALUES (1, 'a');
         CREATE TABLE keyless (a int); INSERT INTO keyless VALUES (1), (1), (2)",
    );
    cluster.caught_up();
    cluster.kill_manager();
    for site in ["primary", "replica1", "replica2"] {
        let mut server = cluster.repair(site);
        server.run("DROP SCHEMA hihooi CASCADE");
        server.run(FIRST);
        server.run("COMMENT ON SCHEMA hihooi IS 'hihooi set-up 1'");
    }
    let mut primary = cluster.direct("primary");
    primary.run("CREATE TABLE announced (id int PRIMARY KEY)");
    primary.run("UPDATE keyless SET a = 3");
    cluster.up_without_waiting_for_all();
    // What was announced to replicas is in no log any more.
    for site in ["replica1", "replica2"] {
        eventually("it says what to do", || {
            let reason = &cluster.show_replicas()[site]["reason"];
            reason.contains("noted by an earlier version: CREATE TABLE announced")
                && reason.contains("RESUME REPLICA")
        });
        cluster.repair(site).run("CREATE TABLE announced (id int PRIMARY KEY)");
        cluster.command(&format!("RESUME REPLICA {site}"));
    }
    eventually("replicas are known to lack nothing", || {
        cluster.run_verify().0
            && ["replica1", "replica2"].iter().all(|site| cluster.state(site) == "serving")
    });

    let mut session = cluster.connect();
    session.run("DO $$ BEGIN EXECUTE 'CREATE TABLE hidden AS SELECT random() AS r'; END $$");
    session.run("ALTER TABLE keyless ADD u uuid DEFAULT gen_random_uuid(); DELETE FROM keyless WHERE ctid = '(0,1)'");
    session.run("CREATE TABLE later (a int); INSERT INTO later VALUES (1); UPDATE later SET a = 2; DROP TABLE announced");
    cluster.caught_up();
    for table in ["keyed", "keyless", "hidden", "later"] {
        cluster.assert_equal(&format!("SELECT t::text FROM {table} t ORDER BY 1"));
    }
    cluster.assert_verified();
    for site in ["primary", "replica1", "replica2"] {
        let left = "SELECT count(*) FROM pg_event_trigger WHERE evtname ~ '^hihooi_(ddl_end|drop|rewrite)$'";
        assert_eq!(cluster.direct(site).number(left), 0, "{site}");
    }
}

/// Descriptions are compared where one version wrote and reads them.
#[test]
fn notes_of_another_version_are_followed_without_comparing() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE t (a int PRIMARY KEY)");
    cluster.caught_up();
    at_replica(&cluster, "COMMENT ON TABLE t IS 'only here'");
    cluster.direct("primary").run(
        "DO $$ BEGIN EXECUTE regexp_replace(pg_get_functiondef('hihooi.write_note'::regproc),
             '\"format\": \"[0-9a-f]*\"', '\"format\": \"0\"'); END $$",
    );
    cluster.connect().run("ALTER TABLE t ADD b int DEFAULT 7; INSERT INTO t VALUES (1)");
    assert_eq!(cluster.assert_equal("SELECT * FROM t").rows.len(), 1);
    let (equal, text) = cluster.run_verify();
    assert!(!equal && text.contains("only here"), "{text}");
}

/// A note is believed: whoever could write one would be a superuser at the replicas.
#[test]
fn default_privileges_give_nobody_our_objects() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run(
        "CREATE ROLE app LOGIN; CREATE TABLE victim (a int PRIMARY KEY);
         ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app;
         ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO app;
         ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app",
    );
    cluster.caught_up();
    let given = |site: &str| {
        cluster.direct(site).value(
            "SELECT count(*) FROM (
                 SELECT relacl FROM pg_class WHERE relnamespace = 'hihooi'::regnamespace
                 UNION ALL SELECT proacl FROM pg_proc WHERE pronamespace = 'hihooi'::regnamespace
                 UNION ALL SELECT nspacl FROM pg_namespace WHERE nspname = 'hihooi') a(acl),
                 aclexplode(acl) WHERE grantee = 'app'::regrole",
        )
    };
    let forge = |message: &str| {
        let mut app = cluster.connect_with(&[("user", "app")]);
        let refused = app.error(
            "INSERT INTO hihooi.note (event, body) VALUES ('drop', '{\"tag\": \"DROP TABLE\", \
             \"role\": \"postgres\", \"objects\": [{\"kind\": \"table\", \"identity\": \
             \"public.victim\"}], \"cascades\": false}')",
        );
        assert_eq!(refused.code(), "42501", "{message}");
    };
    // Made anew while default privileges are there.
    cluster.direct("primary").run("DROP SCHEMA hihooi CASCADE");
    eventually("our objects are there again", || {
        let there = "SELECT count(*) FROM pg_event_trigger WHERE evtname ~ '^[!~]hihooi'";
        cluster.direct("primary").value(there) == "7"
    });
    forge("made anew");
    assert_eq!(given("primary"), "0");
    eventually("the replica is trusted again", || {
        assert!(cluster.run_verify().0);
        cluster.state("replica1") == "serving"
    });

    // What an earlier version let happen.
    for site in ["primary", "replica1"] {
        cluster.repair(site).run(
            "GRANT ALL ON hihooi.cluster TO app WITH GRANT OPTION; GRANT ALL ON SCHEMA hihooi TO app;
             GRANT ALL ON ALL FUNCTIONS IN SCHEMA hihooi TO app",
        );
    }
    cluster.direct("primary").run("GRANT ALL ON ALL TABLES IN SCHEMA hihooi TO app");
    cluster.kill_everything();
    cluster.up();
    forge("what was given is taken back");
    assert_eq!(["primary", "replica1"].map(given), ["0", "0"]);
    cluster.assert_verified();
}
