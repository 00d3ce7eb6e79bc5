//! Settings that code makes (`set_config` in a function, trigger, default …) belong to their session alone,
//! however few server connections all share (I8, docs/decisions/0006).

use bytes::BytesMut;
use hihooi_wire::frontend;

use crate::harness::client::Session;
use crate::harness::{Cluster, Options, alone, eventually, target_is_plain};

/// Ways to set `app.tenant` by code (scripts/tenants.sql).
const TENANT_WAYS: &[&str] = &[
    "SELECT set_config('app.tenant', '{v}', false)",
    "SELECT tn_f('{v}')",
    "SELECT tn_sql('{v}')",
    "SELECT tn_outer('{v}')",
    "SELECT tn_stable('{v}')",
    "SELECT tn_defaulted()",
    "CALL tn_proc('{v}')",
    "CALL tn_commits('{v}')",
    "DO $$ BEGIN PERFORM set_config('app.tenant', '{v}', false); END $$",
    "DO $$ BEGIN SET app.tenant = '{v}'; END $$",
    "DO $$ BEGIN EXECUTE 'SET app.tenant = ' || quote_literal('{v}'); END $$",
    "DO $$ BEGIN PERFORM tn_f('{v}'); END $$",
    "INSERT INTO tn_trigger VALUES ('{v}')",
    "INSERT INTO tn_when VALUES ('{v}')",
    "INSERT INTO tn_default (n) VALUES (1)",
    "INSERT INTO tn_check VALUES ('{v}')",
    "INSERT INTO tn_rule VALUES ('{v}')",
    "INSERT INTO tn_domains VALUES ('{v}')",
    "DELETE FROM tn_parent",
    "TRUNCATE tn_truncated",
    "SELECT * FROM tn_view",
    "SELECT tn_agg(v) FROM (VALUES ('{v}')) x(v)",
    "SELECT '{v}'::text ### ''",
    "SELECT '{v}'::tn_domain",
    "CREATE TABLE tn_made AS SELECT tn_f('{v}')",
    "COPY (SELECT tn_f('{v}')) TO STDOUT",
    "EXPLAIN ANALYZE SELECT tn_f('{v}')",
    "EXPLAIN SELECT tn_immutable('{v}')",
    "PREPARE tn_p AS SELECT tn_f('{v}'); EXECUTE tn_p; DEALLOCATE tn_p",
    "SELECT query_to_xml('SELECT tn_f(''{v}'')', true, false, '')",
    "BEGIN; SELECT tn_f('{v}'); SAVEPOINT s; SELECT tn_f('no'); ROLLBACK TO s; COMMIT",
    "CREATE FUNCTION tn_new() RETURNS text LANGUAGE sql AS \
         $$ SELECT set_config('app.tenant', '{v}', false) $$; SELECT tn_new()",
    "BEGIN; CREATE OR REPLACE FUNCTION tn_late() RETURNS text LANGUAGE sql AS \
         $$ SELECT set_config('app.late', '{v}', false) $$; \
         SELECT tn_late(), set_config('app.tenant', current_setting('app.late'), false); COMMIT",
];
const TENANT: &str = "SELECT current_setting('app.tenant', true)";

/// What a session has as its tenant; the error if it can't be asked.
/// Waits until hihooi has read the catalog after DDL which decides whether a replica may read anything at all.
fn until_read_at_replica(cluster: &Cluster, is_allowed: bool) {
    let mut reader = cluster.connect();
    eventually("the catalog is read", || {
        reader.run("SELECT 1 FROM plain");
        let reason = reader.route().get("reason").to_owned();
        reason != "not_fresh" && ["fresh", "waited"].contains(&&*reason) == is_allowed
    });
}

fn tenant(session: &mut Session) -> String {
    match session.simple(TENANT) {
        Ok(answers) => answers[0].rows[0][0].clone().unwrap_or_default(),
        Err(failure) => failure.to_string(),
    }
}

/// What code sets is its session's alone, whatever way it ran (I8): nobody else has it, the session has
/// it on every connection, and none is kept for that.
#[test]
fn settings_made_by_code_are_their_sessions() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = Options::replicas(1).env("HIHOOI_POOL_SIZE", "1");
    let cluster = Cluster::start(options.env("HIHOOI_POOL_WAIT_MS_MAX", "5000"));
    cluster.connect().run(include_str!("scripts/tenants.sql"));
    let (mut owners, mut problems) = (Vec::new(), Vec::new());
    for (number, way) in TENANT_WAYS.iter().enumerate() {
        let value = format!("t{number}");
        let mut owner = cluster.connect();
        for text in way.replace("{v}", &value).split("; SELECT tn_new") {
            let text = if text == "()" { "SELECT tn_new()" } else { text };
            if let Err(failure) = owner.simple(text) {
                problems.push(format!("{text}: {failure}"));
            }
        }
        let told = tenant(&mut cluster.connect());
        if !told.is_empty() {
            problems.push(format!("after {way} another session has {told:?}"));
        }
        let set = tenant(&mut owner);
        if set != value && (way.contains("{v}") || set.is_empty()) {
            problems.push(format!("after {way} its session has {set:?}"));
        }
        owners.push((owner, set, way));
        for (owner, set, way) in &mut owners {
            let now = tenant(owner);
            if now != *set {
                problems.push(format!("{way}: {set:?} became {now:?}"));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    cluster.assert_verified();
}

/// So is what a function sets that PostgreSQL calls though no text shows it. (One way at a time: each counts for every
/// query while it is there.)
#[test]
fn settings_made_by_code_that_no_text_shows_are_their_sessions() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = Options::replicas(1).env("HIHOOI_POOL_SIZE", "1");
    let cluster = Cluster::start(options.env("HIHOOI_POOL_WAIT_MS_MAX", "5000"));
    cluster.connect().run(
        "CREATE TYPE own AS ENUM ('a', 'b'); CREATE TABLE t (own own); CREATE TABLE plain (); INSERT INTO t VALUES ('a'), ('b'); \
         CREATE FUNCTION sets(own) RETURNS text LANGUAGE plpgsql AS \
             $$ BEGIN RETURN set_config('app.tenant', format('%s', $1), false); END $$; \
         CREATE FUNCTION as_json(own) RETURNS json LANGUAGE sql AS 'SELECT to_json(sets($1))'; \
         CREATE FUNCTION compare(own, own) RETURNS int LANGUAGE sql AS \
             'SELECT length(sets($1) || sets($2))'; \
         CREATE FUNCTION holds(own, own) RETURNS bool LANGUAGE sql AS 'SELECT compare($1, $2) > 0'; \
         CREATE OPERATOR <<< (LEFTARG = own, RIGHTARG = own, FUNCTION = holds); \
         CREATE OPERATOR === (LEFTARG = own, RIGHTARG = own, FUNCTION = holds); \
         CREATE OPERATOR >>> (LEFTARG = own, RIGHTARG = own, FUNCTION = holds)",
    );
    let ways = [
        ("CAST (own AS json)", "WITH FUNCTION as_json(own)", "SELECT json_agg(own) FROM t"),
        ("CAST (own AS text)", "WITH FUNCTION sets(own)", "SELECT own || '' FROM t"),
        (
            "OPERATOR CLASS by_tenant",
            "DEFAULT FOR TYPE own USING btree AS \
             OPERATOR 1 <<<, OPERATOR 3 ===, OPERATOR 5 >>>, FUNCTION 1 compare(own, own)",
            "SELECT own FROM t ORDER BY own",
        ),
    ];
    for (object, definition, way) in ways {
        cluster.connect().run(&format!("CREATE {object} {definition}"));
        until_read_at_replica(&cluster, false);
        let mut owner = cluster.connect();
        owner.run(way);
        assert_eq!(tenant(&mut cluster.connect()), "", "another session, after {way}");
        assert_ne!(tenant(&mut owner), "", "its session, after {way}");
        let index = if object.starts_with("OPERATOR") { " USING btree" } else { "" };
        cluster.connect().run(&format!("DROP {object}{index}"));
        until_read_at_replica(&cluster, true);
    }
    cluster.assert_verified();
}

/// Sessions that are open at once, and short ones, far more than connections, each with a tenant of its
/// own: none has another's, none loses its own, errors and disconnects in between (I8).
#[test]
fn a_crowd_keeps_its_settings_apart() {
    const OPEN: usize = 200;
    // (A thousand, with state of every kind, are in crowd.rs.)
    const SHORT: usize = 200;
    const THREADS: usize = 20;
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = Options::replicas(1).env("HIHOOI_POOL_SIZE", "10");
    let cluster = Cluster::start(options.env("HIHOOI_POOL_WAIT_MS_MAX", "60000"));
    cluster.connect().run(include_str!("scripts/tenants.sql"));
    // Two sessions can't make the same object at once.
    let ways: Vec<_> =
        TENANT_WAYS.iter().filter(|way| way.contains("{v}") && !way.contains("CREATE")).collect();
    let set = |session: &mut Session, number: usize| {
        let way = ways[number % ways.len()];
        assert_eq!(tenant(session), "", "at its start, before {way}");
        session.run(&way.replace("{v}", &format!("t{number}")));
        way
    };
    let mut open: Vec<_> = (0..OPEN)
        .map(|number| {
            let mut session = cluster.connect();
            let way = set(&mut session, number);
            (session, way)
        })
        .collect();
    let mut assert_kept = || {
        for (number, (session, way)) in open.iter_mut().enumerate() {
            assert_eq!(tenant(session), format!("t{number}"), "{way}");
        }
    };
    assert_kept();
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let (cluster, set) = (&cluster, &set);
            scope.spawn(move || {
                for number in (OPEN + first..OPEN + SHORT).step_by(THREADS) {
                    let mut session = cluster.connect();
                    let way = set(&mut session, number);
                    let own = format!("t{number}");
                    if number.is_multiple_of(3) {
                        assert_eq!(session.error("SELECT 1/0").code(), "22012");
                    }
                    assert_eq!(tenant(&mut session), own, "{way}");
                    session.run("BEGIN; SET LOCAL app.tenant = 'no'");
                    match number % 5 {
                        0 => continue, // gone in the middle of a transaction
                        1 => drop(session.error("SELECT 1/0")),
                        _ => {}
                    }
                    session.run("ROLLBACK");
                    assert_eq!(tenant(&mut session), own, "{way}");
                    session.close();
                }
            });
        }
    });
    assert_kept();
}

/// What comes sooner or later.
fn eventually_some<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually("an answer", || {
        found = ask();
        found.is_some()
    });
    found.expect("just found")
}

/// Settings whose names can't be seen in any code: the session keeps its connection if it sets them by
/// design, nobody else has them in any case, and what failed leaves nothing (I8).
#[test]
fn settings_that_nobody_can_see_reach_nobody_else() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = Options::replicas(1).env("HIHOOI_POOL_SIZE", "1");
    let cluster = Cluster::start(options.env("HIHOOI_POOL_WAIT_MS_MAX", "2000"));
    let mut session = cluster.connect();
    session.run(include_str!("scripts/tenants.sql"));
    eventually("the schema is known", || {
        cluster.connect().simple("SELECT tn_f('x')").is_ok()
            && cluster.connect().simple("SELECT tn_f('x')").is_ok()
    });
    let others = |ask: &str| cluster.connect().simple(ask).map(|answers| answers[0].rows.clone());
    // What is kept stays so as long as its session.
    let gets_free = |behind: &str| {
        eventually(&format!("the connection is free behind {behind}"), || {
            others("UPDATE tn_when SET v = ''").is_ok()
        });
    };
    let told = |ask: &str| {
        let rows = eventually_some(|| others(ask).ok());
        rows[0][0].clone().unwrap_or_default()
    };
    let ask_hidden = "SELECT current_setting('app.hidden', true), pg_backend_pid()";
    let hidden = "set_config('app.' || 'hidden', 'v', false)";
    for failing in [
        "SELEC 1".to_owned(),
        "SELECT no_such_function(1)".to_owned(),
        "SELECT tn_any('app.hidden', 'v') / 0".to_owned(),
        format!("SELECT {hidden}::int"),
        "EXECUTE nothing".to_owned(),
    ] {
        session.error(&failing);
        gets_free(&failing);
    }
    session.run("UPDATE tn_stamped SET v = 'x'");
    gets_free("a compiled trigger");
    session.run(&format!("SELECT tn_run($${hidden}$$)"));
    assert_eq!(told(ask_hidden), "", "leaked");
    // Harmless as the catalog knows it when it runs.
    let replace = |body: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION tn_replaced(part text) RETURNS text LANGUAGE plpgsql \
             AS 'DECLARE told text; BEGIN {body} RETURN told; END'"
        )
    };
    session.run(&replace("told := 1;"));
    eventually("the function is known", || others("SELECT tn_replaced('')").is_ok());
    session.run(&replace("EXECUTE ''SELECT '' || part INTO told;"));
    session.run(&format!("SELECT tn_replaced($${hidden}$$)"));
    assert_eq!(told(ask_hidden), "", "leaked");
    for keeping in [format!("SELECT {hidden}"), "SELECT tn_any('app.hidden', 'v')".to_owned()] {
        session.run(&keeping);
        session.run("BEGIN");
        assert_eq!(session.error("DISCARD ALL").code(), "25001");
        session.run("ROLLBACK");
        assert_eq!(others("UPDATE tn_when SET v = ''").expect_err("kept").code(), "53300");
        assert_eq!(session.value("SELECT current_setting('app.hidden', true)"), "v");
        session.run("DISCARD ALL");
        assert_eq!(told(ask_hidden), "", "leaked");
    }
    // Planning at Bind runs what claims to be IMMUTABLE.
    let mut out = BytesMut::new();
    frontend::parse(b"", b"SELECT tn_immutable('bound')", &mut out);
    frontend::bind(b"", b"", std::iter::empty(), &mut out);
    frontend::sync(&mut out);
    session.send(&out).expect("sent");
    session.until_ready(1).expect("bound");
    assert_eq!(told("SELECT current_setting('app.tenant', true)"), "", "leaked");
    assert_eq!(session.value("SELECT current_setting('app.tenant', true)"), "bound");
}

/// DISCARD ALL takes the value of a custom setting, not its name: nobody else gets a connection that has it.
#[test]
fn i1_nobody_finds_the_name_of_anothers_setting() {
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE locked (id int)");
    let ask = "SELECT current_setting('app.gone', true) IS NULL";
    for end in ["DISCARD ALL", "RESET ALL", "SELECT 1"] {
        let mut session = cluster.connect();
        session.run("SET app.gone = 1");
        session.run(end);
        session.run(&format!("BEGIN; LOCK TABLE locked; {ask}; COMMIT"));
        drop(session);
        let mut other = cluster.connect();
        other.run("BEGIN; LOCK TABLE locked");
        assert_eq!(other.value(ask), "t", "{end}");
        other.run("COMMIT");
        eventually("a replica answers", || {
            let is_null = other.value(ask);
            assert_eq!(is_null, "t", "{end}");
            other.route().site().starts_with("replica")
        });
    }
}

/// A cluster with a role that begins as another one (ALTER ROLE … SET role).
fn with_acting_role() -> Cluster {
    let cluster = Cluster::start(Options::replicas(1).env("HIHOOI_POOL_SIZE", "1"));
    cluster.connect().run(
        "CREATE ROLE acting; CREATE ROLE toni LOGIN IN ROLE acting; ALTER ROLE toni SET role = 'acting'",
    );
    cluster
}

const WHO: &str = "/* hihooi: primary */ SELECT current_user";

/// What a role begins as can be given up, by one session only: its rights are at stake.
#[test]
fn i1_a_role_that_is_given_up_is_given_up_by_one_session() {
    if target_is_plain() {
        return;
    }
    let cluster = with_acting_role();
    let mut given_up = cluster.connect_with(&[("user", "toni")]);
    let mut acting = cluster.connect_with(&[("user", "toni")]);
    for end in ["SET ROLE NONE", "SELECT set_config('role', 'none', false)"] {
        given_up.run(end);
        for ask in [WHO, "SELECT current_user"] {
            for _ in 0..3 {
                assert_eq!(given_up.value(ask), "toni", "{end}");
                assert_eq!(acting.value(ask), "acting", "{end}");
            }
        }
        given_up.run("RESET ROLE");
        assert_eq!(given_up.value(WHO), "acting");
    }
}

/// A role that can't be set any more can be left.
#[test]
fn a_role_that_was_revoked_can_be_left() {
    if target_is_plain() {
        return;
    }
    let cluster = with_acting_role();
    let mut admin = cluster.connect();
    let mut session = cluster.connect_with(&[("user", "toni")]);
    let mut other = cluster.connect_with(&[("user", "toni")]);
    admin.run("CREATE ROLE lost");
    for end in ["RESET ROLE", "DISCARD ALL", "SET ROLE NONE"] {
        admin.run("GRANT lost TO toni");
        session.run("SET ROLE lost");
        other.run(WHO);
        admin.run("REVOKE lost FROM toni");
        assert_eq!(session.error(WHO).code(), "08006");
        session.run(end);
        let expected = if end == "SET ROLE NONE" { "toni" } else { "acting" };
        assert_eq!(session.value(WHO), expected, "{end}");
        session.run("RESET ROLE");
    }
}

/// An open session stays what it began as, on new server connections, too.
#[test]
fn i1_alter_role_leaves_open_sessions_their_role() {
    if target_is_plain() {
        return;
    }
    let cluster = with_acting_role();
    let mut admin = cluster.connect();
    admin.run("CREATE ROLE wim LOGIN IN ROLE acting");
    let mut open = cluster.connect_with(&[("user", "wim")]);
    assert_eq!(open.value(WHO), "wim");
    admin.run("ALTER ROLE wim SET role = 'acting'");
    let mut new = cluster.connect_with(&[("user", "wim")]);
    eventually("new sessions begin as the other role", || {
        new = cluster.connect_with(&[("user", "wim")]);
        new.value(WHO) == "acting"
    });
    for _ in 0..3 {
        assert_eq!(open.value(WHO), "wim");
        assert_eq!(new.value(WHO), "acting");
    }
}

/// In whose schema a name is looked up is the role's that was set, also when the session is looked at in a block that a
/// replica runs.
#[test]
fn i1_the_own_schema_is_that_of_the_role_that_was_set() {
    if target_is_plain() {
        return;
    }
    let cluster = with_acting_role();
    let (mut session, mut writes) = (cluster.connect(), cluster.connect());
    writes.run(
        "CREATE SCHEMA acting; CREATE TABLE acting.t (n int); CREATE TABLE public.t (n int); \
         INSERT INTO acting.t VALUES (1); GRANT ALL ON SCHEMA acting TO acting; \
         GRANT SELECT ON acting.t, public.t TO acting",
    );
    cluster.caught_up();
    session.run("SET role = 'acting'");
    session.run("BEGIN");
    session.run("SET TimeZone = 'Asia/Kolkata'");
    assert_eq!(session.value("SELECT count(*) FROM t"), "1");
    assert_eq!(session.route().site(), "replica1");
    // The replica can show what the table had, but not write what it gets.
    let mut replica = cluster.direct("replica1");
    replica.run("BEGIN; LOCK TABLE acting.t IN SHARE MODE");
    writes.run("INSERT INTO acting.t VALUES (2)");
    assert_eq!(session.value("SELECT count(*) FROM t"), "2");
    session.run("COMMIT");
    replica.run("COMMIT");
}

/// A cluster in which two sessions share two connections, and a table to write.
fn with_two_connections() -> Cluster {
    let cluster = Cluster::start(Options::replicas(1).env("HIHOOI_POOL_SIZE", "2"));
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    cluster.caught_up();
    cluster
}

/// What another session is answered while it holds a connection, perhaps that of the first one, which goes on.
fn beside(other: &mut Session, one: &mut Session, ask: &str) -> String {
    let own = one.value(ask);
    other.run("BEGIN; UPDATE public.t SET id = id");
    let others = other.value(ask);
    assert_eq!(one.value(ask), own, "{ask}");
    other.run("COMMIT");
    others
}

/// What hihooi asks a session for means the same with operators of users in the session's search path.
#[test]
fn i1_operators_of_users_hide_no_setting() {
    if target_is_plain() {
        return;
    }
    let cluster = with_two_connections();
    let (mut one, mut other) = (cluster.connect(), cluster.connect());
    one.run(
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.no(text, text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR evil.= (leftarg = text, rightarg = text, function = evil.no);
         CREATE OPERATOR evil.<> (leftarg = text, rightarg = text, function = evil.no)",
    );
    cluster.caught_up();
    one.run("SET search_path = evil, pg_catalog");
    assert_eq!(beside(&mut other, &mut one, "SHOW search_path"), "\"$user\", public");
}

/// A custom setting can be set where a replica has the transaction's snapshot.
#[test]
fn i1_a_custom_setting_is_set_in_the_middle_of_a_snapshot() {
    if target_is_plain() {
        return;
    }
    let cluster = with_two_connections();
    let mut session = cluster.connect();
    let ask = "SELECT current_setting('app.tenant') FROM t";
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    session.run("SELECT * FROM t");
    session.run("SET LOCAL app.tenant = 'local'");
    assert_eq!(session.value(ask), "local");
    session.run("SET app.tenant = 'mine'; COMMIT");
    assert_eq!(session.value(ask), "mine");
    assert_eq!(session.value(&format!("/* hihooi: primary */ {ask}")), "mine");
}

/// A setting in another encoding than UTF-8 keeps its bytes.
#[test]
fn i1_a_setting_keeps_its_value_in_any_encoding() {
    if target_is_plain() {
        return;
    }
    let cluster = with_two_connections();
    let mut latin = cluster.connect_with(&[("client_encoding", "LATIN1")]);
    latin.run("SELECT set_config('app.name', U&'caf\\00e9', false)");
    for _ in 0..3 {
        assert_eq!(latin.value("SELECT current_setting('app.name') = U&'caf\\00e9' FROM t"), "t");
    }
}

/// A limit that no statement keeps is the client's own affair: what hihooi asks for a client that connects has none.
#[test]
fn a_role_whose_statements_time_out_at_once_logs_in() {
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(Options::replicas(1));
    cluster
        .connect()
        .run("CREATE ROLE hasty LOGIN; ALTER ROLE hasty SET statement_timeout = '1ms'");
    for _ in 0..30 {
        let mut session =
            Session::open(cluster.port, &[("user", "hasty"), ("database", "postgres")])
                .unwrap_or_else(|failure| panic!("hasty logs in: {failure}"));
        assert_eq!(session.error("SELECT pg_sleep(1)").code(), "57014");
    }
}
