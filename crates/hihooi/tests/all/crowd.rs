//! Many sessions over few server connections, each with state of its own: none has another's, none loses
//! its own, whatever way it ends (I8, docs/decisions/0006).

use bytes::BytesMut;
use hihooi_wire::frontend;

use crate::harness::client::Session;
use crate::harness::{Answer, Cluster, Options, alone, eventually, target_is_plain};

const CONNECTIONS: &str = "10";
const THREADS: usize = 20;

/// A cluster whose sessions share a few server connections.
fn crowded() -> Cluster {
    let options = Options::replicas(1).env("HIHOOI_POOL_SIZE", CONNECTIONS);
    let cluster = Cluster::start(options.env("HIHOOI_POOL_WAIT_MS_MAX", "60000"));
    cluster.connect().run(include_str!("scripts/crowd.sql"));
    cluster.caught_up();
    cluster
}

/// Waits until no session has a server connection at the primary, by `SHOW POOLS`: what idle sessions
/// keep, they keep for good. (A session gives its connection back when its client has the answer.)
fn assert_none_kept(cluster: &Cluster, after: &str) {
    eventually(&format!("no connection is kept after {after}"), || {
        let pools = cluster.admin().run("SHOW POOLS").records();
        pools.iter().filter(|pool| pool["site"] == "primary").all(|pool| pool["used"] == "0")
    });
}

/// Ways to set all of [`SETTINGS`]; `{v}` stands for their values, as the arguments of a function.
const SETTING_WAYS: &[&str] = &[
    "SET work_mem = '{mem}'; SET TimeZone = '{zone}'; SET search_path = {path}; SET ROLE {role}",
    "SET ROLE {role}; SET SESSION search_path TO {path}; SET TIME ZONE '{zone}'; SET work_mem TO '{mem}'",
    "SELECT set_config('work_mem', '{mem}', false), set_config('TimeZone', '{zone}', false), \
         set_config('search_path', '{path}', false), set_config('role', '{role}', false)",
    "SELECT cr_set({v})",
    "SELECT cr_sql({v})",
    "CALL cr_proc({v})",
    "INSERT INTO cr_trigger VALUES ({v})",
    "INSERT INTO cr_rule VALUES ({v})",
    "DO $$ BEGIN PERFORM set_config('work_mem', '{mem}', false), set_config('role', '{role}', false); \
         SET search_path = {path}; SET TimeZone = '{zone}'; END $$",
    "DO $$ BEGIN EXECUTE 'SET work_mem = ''{mem}'''; EXECUTE 'SET TIME ZONE ''{zone}'''; \
         EXECUTE 'SET search_path = {path}'; EXECUTE 'SET ROLE {role}'; END $$",
    "DO $$ BEGIN PERFORM cr_set({v}); END $$",
    "COPY (SELECT cr_set({v})) TO STDOUT",
    "EXPLAIN ANALYZE SELECT cr_set({v})",
    "PREPARE cr_p AS SELECT public.cr_set({v}); EXECUTE cr_p; DEALLOCATE cr_p",
    "BEGIN; SELECT cr_set({v}); SAVEPOINT s; SELECT public.cr_set('1MB', 'UTC', 'no', 'none'); ROLLBACK TO s; COMMIT",
    "BEGIN; SET LOCAL work_mem = '1MB'; COMMIT; SELECT cr_set({v})",
];
const SETTINGS: &str = "SELECT current_setting('work_mem'), current_setting('TimeZone'), \
    current_setting('search_path'), current_setting('role'), current_user";

/// What depends on them and replicas may serve.
const SERVED: &str = "SELECT timestamptz '2024-01-01 12:00Z'::text, current_user \
    FROM public.cr_read WHERE id = $1";

/// How far behind Greenwich a session of that number is.
fn hours(number: usize) -> usize {
    1 + number % 11
}

/// What a session of that number sets.
fn settings(number: usize) -> [String; 4] {
    // Numbers of kB that PostgreSQL doesn't show as MB.
    let mem = format!("{}kB", 2_049 + number % 1_000);
    let zone = format!("Etc/GMT+{}", hours(number));
    [mem, zone, format!("path_{number}"), format!("crowd_{}", number % 10)]
}

/// A way with the values in it.
fn setting_text(way: &str, values: &[String; 4]) -> String {
    let arguments = values.clone().map(|value| format!("'{value}'")).join(", ");
    let mut text = way.replace("{v}", &arguments);
    for (name, value) in ["{mem}", "{zone}", "{path}", "{role}"].into_iter().zip(values) {
        text = text.replace(name, value);
    }
    text
}

/// Asserts that a session has what its number says, at the primary and in what replicas may serve.
fn assert_settings(session: &mut Session, number: usize, way: &str) {
    let [mem, zone, path, role] = settings(number);
    let shown = session.run(SETTINGS).rows.remove(0);
    let expected = [mem, zone, path, role.clone(), role.clone()].map(Some);
    assert_eq!(shown, expected, "session {number} after {way}");
    let served = session.extended(SERVED, &["1"]).expect("a row").rows.remove(0);
    let hours = hours(number);
    let noon = format!("2024-01-01 {:02}:00:00-{hours:02}", 12 - hours);
    assert_eq!(served, [noon, role].map(Some), "session {number} after {way}");
}

/// Settings and roles of sessions that are open at once, far more of them than connections, set by
/// statements and by code: all are served, each has its own, and none keeps a connection for that.
#[test]
fn open_sessions_keep_their_settings_and_roles() {
    const OPEN: usize = 200;
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = crowded();
    let defaults = cluster.connect().run(SETTINGS).rows;
    let mut open: Vec<(Session, &str)> = Vec::new();
    for number in 0..OPEN {
        let (mut session, way) = (cluster.connect(), SETTING_WAYS[number % SETTING_WAYS.len()]);
        assert_eq!(session.run(SETTINGS).rows, defaults, "session {number} at its start");
        session.run(&setting_text(way, &settings(number)));
        assert_none_kept(&cluster, way);
        open.push((session, way));
    }
    let before = cluster.replica_reads();
    for (number, (session, way)) in open.iter_mut().enumerate() {
        assert_settings(session, number, way);
    }
    assert!(cluster.replica_reads() > before, "replicas serve: {}", open[0].0.route().text);
    // All at once, so that each connection passes from one to the other all the time.
    std::thread::scope(|scope| {
        for (thread, sessions) in open.chunks_mut(OPEN.div_ceil(THREADS)).enumerate() {
            let first = thread * OPEN.div_ceil(THREADS);
            scope.spawn(move || {
                for _ in 0..3 {
                    for (at, (session, way)) in sessions.iter_mut().enumerate() {
                        assert_settings(session, first + at, way);
                    }
                }
            });
        }
    });
    assert_none_kept(&cluster, "all of them");
    for (session, way) in &mut open {
        session.run("RESET ROLE; RESET ALL");
        assert_eq!(session.run(SETTINGS).rows, defaults, "reset after {way}");
    }
}

/// State that a short session makes, what shows it, and whether that may be unknown (55000) as soon as
/// another session had the connection. `{n}` is the session's number.
struct State {
    make: &'static str,
    show: &'static str,
    may_be_unknown: bool,
}

const fn lasting(make: &'static str, show: &'static str) -> State {
    State { make, show, may_be_unknown: false }
}

/// Numbers are a sequence's own, so those made are what `make` answers.
const fn of_sequence(make: &'static str, show: &'static str) -> State {
    State { make, show, may_be_unknown: true }
}

const STATES: &[State] = &[
    of_sequence("SELECT nextval('cr_sequence')", "SELECT currval('cr_sequence')"),
    of_sequence("SELECT nextval('cr_sequence')", "SELECT lastval()"),
    of_sequence("INSERT INTO cr_serial (n) VALUES ({n}) RETURNING id", "SELECT lastval()"),
    lasting(
        "CREATE DOMAIN pg_temp.cr_domain AS int DEFAULT {n}",
        "SELECT typdefault FROM pg_type WHERE oid = to_regtype('pg_temp.cr_domain')",
    ),
    lasting(
        "CREATE TYPE pg_temp.cr_type AS ENUM ('{n}')",
        "SELECT enum_first(NULL::pg_temp.cr_type)",
    ),
    lasting("CREATE TEMP TABLE cr_table AS SELECT {n} AS n", "SELECT n FROM cr_table"),
    lasting(
        "CREATE FUNCTION pg_temp.cr_function() RETURNS int LANGUAGE sql AS 'SELECT {n}'",
        "SELECT pg_temp.cr_function()",
    ),
    lasting("PREPARE cr_prepared AS SELECT {n}", "EXECUTE cr_prepared"),
    lasting("LISTEN cr_{n}", "SELECT substr(pg_listening_channels(), 4)"),
    lasting(
        "BEGIN; DECLARE cr_cursor SCROLL CURSOR WITH HOLD FOR SELECT {n}; COMMIT",
        "FETCH ABSOLUTE 1 FROM cr_cursor",
    ),
    lasting(
        "SELECT pg_advisory_lock({n})",
        "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    lasting("SET ROLE crowd_{d}", "SELECT substr(current_user, 7)"),
    lasting("SET work_mem = '{k}kB'", "SELECT rtrim(current_setting('work_mem'), 'kB')"),
    lasting(
        "SELECT set_config('app.tenant', '{n}', false)",
        "SELECT current_setting('app.tenant', true)",
    ),
];

/// What a session without state of its own is told.
const NOTHING: &str = "SELECT current_setting('work_mem') = '4MB', current_user = 'postgres', \
    coalesce(current_setting('app.tenant', true), '') = '', \
    to_regtype('pg_temp.cr_domain') IS NULL, to_regtype('pg_temp.cr_type') IS NULL, \
    to_regclass('cr_table') IS NULL, to_regclass('pg_temp.cr_table') IS NULL, \
    to_regproc('pg_temp.cr_function') IS NULL, \
    NOT EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql), \
    NOT EXISTS (SELECT FROM pg_listening_channels()), \
    NOT EXISTS (SELECT FROM pg_cursors WHERE is_holdable), \
    NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())";

/// Asserts that a new session has nothing of any other.
fn assert_nothing(session: &mut Session) {
    let row = session.run(NOTHING).rows.remove(0);
    let is_clean = row.iter().all(|value| value.as_deref() == Some("t"));
    assert!(is_clean, "a new session has another's state: {row:?} of {NOTHING}");
    for ask in ["SELECT currval('cr_sequence')", "SELECT lastval()"] {
        assert_eq!(session.error(ask).code(), "55000", "{ask}");
    }
}

/// One session: what it is, made and shown.
struct Short {
    session: Session,
    number: usize,
    state: &'static State,
    /// What shows it, made.
    own: String,
}

impl Short {
    fn begin(cluster: &Cluster, number: usize) -> Short {
        let mut session = cluster.connect();
        assert_nothing(&mut session);
        let state = &STATES[number % STATES.len()];
        let made = session.run(&filled(state.make, number));
        let own = match state.make {
            _ if state.may_be_unknown => first_value(&made),
            make if make.contains("{d}") => (number % 10).to_string(),
            make if make.contains("{k}") => (2_049 + number).to_string(),
            _ => number.to_string(),
        };
        Short { session, number, state, own }
    }

    /// It has what it made, and nothing else's.
    fn assert_kept(&mut self) {
        match self.session.simple(self.state.show) {
            Ok(shown) => assert_eq!(first_value(&shown[0]), self.own, "{}", self.state.show),
            Err(failure) => {
                let may_be = self.state.may_be_unknown && failure.code() == "55000";
                assert!(may_be, "{}: {failure}", self.state.show);
            }
        }
    }

    /// Ends it in one of the ways in which clients end.
    fn end(mut self, way: usize) {
        let more = filled(
            "BEGIN; SET work_mem = '1MB'; SET ROLE crowd_1; CREATE TEMP TABLE cr_table ()",
            0,
        );
        match way {
            0 => self.session.close(),
            1 => {
                assert_eq!(self.session.error("SELECT 1/0").code(), "22012");
                self.assert_kept();
                self.session.close();
            }
            2 => drop(self.session), // without Terminate
            3 => drop(
                self.session
                    .error(&format!("BEGIN; SELECT pg_advisory_lock({}), 1/0", self.number)),
            ),
            4 => drop(self.session.simple(&more)), // in the middle of a transaction
            _ => self.vanish(),
        }
    }

    /// Makes all kinds of state and doesn't wait for the answers.
    fn vanish(mut self) {
        let mut out = BytesMut::new();
        for state in STATES.iter().filter(|state| !state.make.contains("{d}")) {
            frontend::query(filled(state.make, self.number).as_bytes(), &mut out);
        }
        self.session.send(&out).expect("sent");
    }
}

fn filled(text: &str, number: usize) -> String {
    let text = text.replace("{n}", &number.to_string());
    text.replace("{d}", &(number % 10).to_string()).replace("{k}", &(2_049 + number).to_string())
}

fn first_value(answer: &Answer) -> String {
    answer.rows[0][0].clone().unwrap_or_default()
}

/// Short sessions with state of every kind, which end in every way: whoever comes next has nothing of
/// it, and at the end nothing of it is left anywhere.
#[test]
fn short_sessions_leave_nothing_behind() {
    const SHORT: usize = 1_000;
    const ENDS: usize = 6;
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = crowded();
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let cluster = &cluster;
            scope.spawn(move || {
                for number in (first..SHORT).step_by(THREADS) {
                    let mut short = Short::begin(cluster, number);
                    short.assert_kept();
                    short.end(number / STATES.len() % ENDS);
                    assert_nothing(&mut cluster.connect());
                }
            });
        }
    });
    let mut primary = cluster.direct("primary");
    eventually("no lock and no temporary object is left", || {
        primary.value(
            "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') \
                 + (SELECT count(*) FROM pg_class WHERE relname LIKE 'cr\\_table') \
                 + (SELECT count(*) FROM pg_type WHERE typname IN ('cr_domain', 'cr_type'))",
        ) == "0"
    });
    assert_none_kept(&cluster, "all of them");
    cluster.assert_verified();
}
