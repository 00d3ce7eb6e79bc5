//! Replicas follow what the primary did, whatever it was (I2, I5): some hundred cases, as data in
//! `follow/*.sql` (their form is described in `follow/cases.rs`). After each case every
//! replica serves without lag, and a comparison of the catalogs and rows says equal (`follow/fingerprint.sql`). After
//! every twelfth so does `VERIFY`, which shares nothing with it (`HIHOOI_VERIFY_EVERY=1`: after each).
//!
//! A file is a test; it tells all of its cases that fail. `HIHOOI_CASE=part of a name` chooses.
//! Beside them, `random` runs cases that nobody thought of, beside a plain server whose errors are the same,
//! and prints those that fail:
//! `HIHOOI_RUNS=1000 HIHOOI_SEED=1` says how many from which seed, `HIHOOI_SHRINK=1` makes them short.
//! `HIHOOI_TEST_TARGET=postgres` shows whether the cases themselves are right.

mod cases;
mod random;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use bytes::BytesMut;
use cases::{Case, Refusal, Statement, Step};
use hihooi_wire::frontend;

use crate::harness::grammar::Grammar;
use crate::harness::{
    Answer, Cluster, DATABASE, Failure, Options, Session, USER, activity, eventually, ms, s,
};

/// Cases of a file that run one after the other.
const CASES_MAX: usize = 40;
/// `VERIFY` is asked at one of so many comparisons, unless told otherwise: it takes long.
const VERIFY_EVERY: u32 = 12;
/// Replicas apply a case within so long, or it has failed.
const LAG_S_MAX: u64 = 180;
/// Random cases, unless told otherwise.
const RUNS: u64 = 5;
/// Temporary objects are gone so long after their session.
const SESSION_S_MAX: u64 = 20;
/// A random statement in the background runs alone for so long.
const BESIDE_MS: u64 = 50;
/// A replica that is shown as failed for so long doesn't recover by itself.
const FAILED_MS: u64 = 30_000;
/// What is said of a transaction that PostgreSQL can't decode, by a defect of its own
/// (`docs/decisions/0024-passing-over.md`). Clusters of tests don't replace their replicas.
const UNDECODABLE: &str = "can't decode a transaction that it has committed";
/// A case that PostgreSQL can't decode is tried so often. It needs pruning at the right moment, so
/// that it is rare.
const ATTEMPTS_MAX: u32 = 3;
/// Differences that are told.
const TOLD_MAX: usize = 8;
/// Errors of statements that met others at another moment.
const OF_THE_MOMENT: [&str; 4] = ["40001", "40P01", "55P03", "57014"];

macro_rules! files {
    ($($file:ident)*) => {
        const FILES: &[&str] = &[$(stringify!($file)),*];
        $(#[test]
        fn $file() {
            play(stringify!($file));
        })*
    };
}

files! {
    attacks checks concurrently create_as direct event_triggers extensions functions identity
    local_objects migrations nested partitions pipelines privileges rewrites roles savepoints
    strings temporary
}

#[test]
fn random() {
    let given = |name| std::env::var(name).ok().map(|n| n.parse().expect("a number"));
    let (first, runs) = (given("HIHOOI_SEED").unwrap_or(1), given("HIHOOI_RUNS").unwrap_or(RUNS));
    let grammar = std::fs::read_to_string(folder().join("grammar.txt")).expect("the grammar");
    let grammar = Grammar::read(&grammar);
    let (mut failed, mut plain) = (Vec::new(), None);
    for seed in first..first + runs {
        let text = random::case(&grammar, seed);
        let problems = played(&text, &format!("r_{seed}"), &mut plain);
        if problems.is_empty() {
            continue;
        }
        let mut count = 0;
        let text = match given("HIHOOI_SHRINK") {
            Some(_) => random::shrunk(&text, |fewer| {
                count += 1;
                !played(fewer, &format!("r_{seed}_{count}"), &mut plain).is_empty()
            }),
            None => text,
        };
        eprintln!("{text}\n{}", problems.join("\n"));
        failed.push(seed);
    }
    assert!(failed.is_empty(), "{} of {runs} failed: HIHOOI_SEED={failed:?}", failed.len());
}

/// Plays the only case of a text, also at a plain server; what was wrong.
fn played(text: &str, schema: &str, plain: &mut Option<Watched>) -> Vec<String> {
    let clusters = || CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let case = cases::parse(text).remove(0);
    let mut cluster = clusters().pop();
    let mut here = tried(&mut cluster, &case, schema);
    clusters().extend(cluster);
    let there = attempt(plain.get_or_insert_with(Watched::plain), &case, schema);
    here.problems.extend(answered_otherwise(&here.outcomes, &there.outcomes));
    if !there.problems.is_empty() {
        *plain = None;
        here.problems
            .extend(there.problems.into_iter().map(|told| format!("plain server: {told}")));
    }
    here.problems
}

/// The first statement that failed here and not at a plain server, or the other way round, or with another error. What follows
/// a statement that hihooi refuses, or one whose outcome depends on the moment, meets another state; only errors that are
/// PostgreSQL's or hihooi's own defects are told there.
fn answered_otherwise(here: &[Outcome], plain: &[Outcome]) -> Option<String> {
    let mut is_alike = true;
    here.iter().zip(plain).find_map(|(here, plain)| {
        is_alike &= !here.has_company;
        if here.code == plain.code {
            return None;
        }
        let codes = [here.code.as_str(), plain.code.as_str()];
        let is_meant = match codes {
            ["0A000", _] => true,
            // A table without a key can be updated through hihooi.
            ["", "55000"] => true,
            // The server's session has had another client, who made something temporary.
            ["42P01", "3F000"] => true,
            _ => {
                here.text.contains("random()")
                    || codes.iter().any(|code| OF_THE_MOMENT.contains(code))
            }
        };
        let is_told = here.is_defect() || is_alike && !is_meant;
        is_alike = false;
        is_told.then(|| format!("{}: {} (plain server: {})", here.text, here.told, plain.told))
    })
}

#[test]
fn every_file_is_a_test() {
    let files = std::fs::read_dir(folder()).expect("the folder of cases");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
    let mut names: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".sql").map(str::to_owned))
        .filter(|name| name != "fingerprint")
        .collect();
    names.sort();
    assert_eq!(names, FILES);
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/all/follow")
}

fn read(file: &str) -> Vec<Case> {
    cases::read(&folder().join(format!("{file}.sql")))
}

/// Clusters that wait for the next file. A case that failed ends its cluster, since the replicas
/// may have stopped, or differ in silence.
static CLUSTERS: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

/// A cluster and sessions at its sites, which stay from case to case.
struct Watched {
    cluster: Cluster,
    sessions: RefCell<BTreeMap<String, Session>>,
    /// So many comparisons were made.
    compared: Cell<u32>,
    /// The schema of the case before.
    left: RefCell<Option<String>>,
}

impl Watched {
    fn start() -> Watched {
        let cluster = Cluster::start(Options::replicas(1));
        cluster.connect().run("CREATE TABLE public.follow_marks (n serial PRIMARY KEY, v text)");
        Watched::new(cluster)
    }

    fn plain() -> Watched {
        Watched::new(Cluster::plain())
    }

    fn new(cluster: Cluster) -> Watched {
        let (sessions, compared, left) = Default::default();
        Watched { cluster, sessions, compared, left }
    }

    /// Drops the schema of the case before, and makes the next case's: in one transaction, since each time
    /// hihooi reads the catalog, and all servers plan all their queries anew.
    fn next_schema(&self, next: Option<&str>) {
        let dropped = self.left.take().map(|left| format!("DROP SCHEMA {left} CASCADE"));
        let made = next.map(|next| format!("CREATE SCHEMA {next}"));
        let text: Vec<String> = dropped.into_iter().chain(made).collect();
        if text.is_empty() {
            return;
        }
        // A new session, since the case may have changed settings that sessions begin with.
        self.cluster.connect().run(&text.join("; "));
        *self.left.borrow_mut() = next.map(str::to_owned);
    }

    /// Asks a site past hihooi.
    fn ask<T>(&self, site: &str, ask: impl FnOnce(&mut Session) -> T) -> T {
        let mut sessions = self.sessions.borrow_mut();
        let kept = sessions.remove(site);
        let kept =
            kept.and_then(|mut session| session.simple("SELECT 1").is_ok().then_some(session));
        let mut session = kept.unwrap_or_else(|| self.cluster.direct(site));
        let answer = ask(&mut session);
        sessions.insert(site.to_owned(), session);
        answer
    }

    /// The primary's major version.
    fn version(&self) -> u32 {
        (self.ask("primary", |session| session.number("SHOW server_version_num")) / 10_000) as u32
    }
}

/// Runs a file's cases and tells all that failed. Those of a long file run in several clusters at a
/// time, so that none goes on when all others have ended.
fn play(file: &str) {
    let chosen = std::env::var("HIHOOI_CASE").unwrap_or_default();
    let cases = read(file);
    let run: Vec<_> = cases.iter().enumerate().filter(|(_, c)| c.name.contains(&chosen)).collect();
    let parts = run.len().div_ceil(CASES_MAX).max(1);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let part = |part| scope.spawn(move || play_part(file, part));
        let parts: Vec<_> = run.chunks(run.len().div_ceil(parts).max(1)).map(part).collect();
        let ended = parts.into_iter().map(|part| part.join());
        ended.flat_map(|failed| failed.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let count = (failed.len(), cases.len());
    assert!(failed.is_empty(), "{} of {} cases failed\n{}", count.0, count.1, failed.join("\n"));
}

/// Runs cases of a file, with their numbers, one after the other; what failed.
fn play_part(file: &str, cases: &[(usize, &Case)]) -> Vec<String> {
    let clusters = || CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cluster = clusters().pop();
    let mut failed = Vec::new();
    for (number, case) in cases {
        let running = cluster.get_or_insert_with(Watched::start);
        if !case.versions.contains(running.version()) {
            eprintln!("left out on this version: {file}: {}", case.name);
            continue;
        }
        let begun = Instant::now();
        let problems = tried(&mut cluster, case, &format!("f_{file}_{number}")).problems;
        eprintln!("{:5} ms  {file}: {}", begun.elapsed().as_millis(), case.name);
        if !problems.is_empty() {
            let told = format!("{file}: {}\n    {}", case.name, problems.join("\n    "));
            eprintln!("failed: {told}");
            failed.push(told);
        }
    }
    if let Some(cluster) = &cluster {
        cluster.next_schema(None);
        failed.extend(
            settled(&cluster.cluster).err().map(|why| format!("{file}: at its end: {why}")),
        );
    }
    clusters().extend(cluster);
    failed
}

/// What came of a case.
struct Attempt {
    /// What was wrong.
    problems: Vec<String>,
    /// A replica has stopped.
    stopped: bool,
    /// What came of statements that may fail.
    outcomes: Vec<Outcome>,
}

/// What came of a statement.
struct Outcome {
    text: String,
    /// SQLSTATE of its error, or none.
    code: String,
    told: String,
    /// Another statement ran at the same time.
    has_company: bool,
}

impl Outcome {
    /// Whether it failed by a defect. (Two sessions may change one object at a time, at which PostgreSQL fails so.)
    fn is_defect(&self) -> bool {
        self.code.starts_with("XX") && !self.told.contains("concurrently")
    }
}

/// Runs a case. Leaves no cluster behind a failure. Runs the case again, in a new
/// cluster, where the primary couldn't decode its own WAL, which says nothing about hihooi.
fn tried(cluster: &mut Option<Watched>, case: &Case, schema: &str) -> Attempt {
    for attempts_left in (0..ATTEMPTS_MAX).rev() {
        let attempt = attempt(cluster.get_or_insert_with(Watched::start), case, schema);
        if attempt.stopped || !attempt.problems.is_empty() {
            *cluster = None;
        }
        if attempts_left == 0 || !attempt.problems.iter().any(|told| told.contains(UNDECODABLE)) {
            return attempt;
        }
        eprintln!("again, since PostgreSQL can't decode it: {}", attempt.problems.join("; "));
    }
    unreachable!("the last attempt returns")
}

/// Runs a case. A session that hangs or can't be had panics in the harness.
fn attempt(watched: &Watched, case: &Case, schema: &str) -> Attempt {
    let mut run = Run::new(watched, schema);
    match catch_unwind(AssertUnwindSafe(|| run.play(case))) {
        Ok(Ok(())) => {}
        // (What it lacks it may not have reached; rights that it alone has were never given.)
        Ok(Err(_)) if run.stopped && case.stoppable => {
            run.problems
                .extend(compared(watched).into_iter().filter(|told| told.contains(" has role ")));
        }
        Ok(Err(reason)) => run.problems.push(reason),
        Err(panic) => {
            let told = catch_unwind(AssertUnwindSafe(|| why_behind(&watched.cluster)));
            let told = told.unwrap_or_else(|panic| panic_text(&*panic));
            run.problems.push(format!("{}\n{told}", panic_text(&*panic)));
        }
    }
    Attempt { problems: run.problems, stopped: run.stopped, outcomes: run.outcomes }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// Which session a statement runs in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    role: String,
    session: String,
    database: String,
    /// At the primary's own port.
    direct: bool,
}

/// Whether a case goes on behind a statement.
#[derive(PartialEq, Eq)]
enum Next {
    On,
    Refused,
}

/// A case that runs. `Err` of its functions is why it can't go on.
struct Run<'a> {
    watched: &'a Watched,
    cluster: &'a Cluster,
    schema: &'a str,
    place: Place,
    sessions: BTreeMap<Place, Session>,
    /// Statements that were sent and not waited for.
    pending: BTreeMap<Place, Statement>,
    problems: Vec<String>,
    outcomes: Vec<Outcome>,
    /// A replica doesn't follow any more.
    stopped: bool,
    /// Statements may fail.
    fallible: bool,
}

impl Run<'_> {
    fn new<'a>(watched: &'a Watched, schema: &'a str) -> Run<'a> {
        let place = Place {
            role: USER.to_owned(),
            session: "1".to_owned(),
            database: DATABASE.to_owned(),
            direct: false,
        };
        let (sessions, pending) = (BTreeMap::new(), BTreeMap::new());
        Run {
            watched,
            cluster: &watched.cluster,
            schema,
            place,
            sessions,
            pending,
            problems: Vec::new(),
            outcomes: Vec::new(),
            stopped: false,
            fallible: false,
        }
    }

    /// The whole case, its comparisons and its cleaning up. (The next case drops the schema.)
    fn play(&mut self, case: &Case) -> Result<(), String> {
        self.fallible = case.fallible;
        self.watched.next_schema(Some(self.schema));
        self.steps(&case.body)?;
        self.end_sessions()?;
        self.compare("at the end")?;
        self.steps(&case.finally)?;
        self.end_sessions()
    }

    /// Runs steps in their order, to the end or to a refusal; then nothing is pending.
    fn steps(&mut self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            if self.step(step)? == Next::Refused {
                break;
            }
        }
        let places: Vec<Place> = self.pending.keys().cloned().collect();
        places.iter().try_for_each(|place| self.finish(place).map(drop))
    }

    fn step(&mut self, step: &Step) -> Result<Next, String> {
        match step {
            Step::Run(statement) => return self.run(statement),
            Step::As(role) => self.place.role.clone_from(role),
            Step::Session(session) => self.place.session.clone_from(session),
            Step::Database(database) => self.place.database.clone_from(database),
            Step::Direct(direct) => self.place.direct = *direct,
            Step::Reconnect => self.end_session(&self.place.clone())?,
            Step::Check => self.compare("at a check")?,
            Step::Sleep(seconds) => std::thread::sleep(s(*seconds)),
        }
        Ok(Next::On)
    }

    /// Ends a session, and waits for the end of its temporary objects, which PostgreSQL doesn't.
    fn end_session(&mut self, place: &Place) -> Result<(), String> {
        self.finish(place)?;
        let Some(mut session) = self.sessions.remove(place) else { return Ok(()) };
        if session.status != 'I' {
            session.close();
            return Ok(());
        }
        // In a block, so that the session's own server connection answers.
        session.run("BEGIN");
        let schema = session.value("SELECT pg_my_temp_schema()");
        session.run("ROLLBACK");
        session.close();
        let left = format!(
            "SELECT count(*) FROM pg_depend \
             WHERE refclassid = 'pg_namespace'::regclass AND refobjid = {schema}"
        );
        let deadline = Instant::now() + s(SESSION_S_MAX);
        while self.watched.ask("primary", |primary| primary.number(&left)) > 0 {
            if Instant::now() > deadline {
                self.problems.push("temporary objects are still there behind a session".to_owned());
                break;
            }
            std::thread::sleep(ms(20));
        }
        Ok(())
    }

    /// Ends all sessions, so that nothing hangs on what is temporary any more.
    fn end_sessions(&mut self) -> Result<(), String> {
        let places: Vec<Place> = self.sessions.keys().cloned().collect();
        places.iter().try_for_each(|place| self.end_session(place))
    }

    fn run(&mut self, statement: &Statement) -> Result<Next, String> {
        if !statement.versions.contains(self.watched.version()) {
            return Ok(Next::On);
        }
        let place = self.place.clone();
        if self.finish(&place)? == Next::Refused {
            return Ok(Next::Refused);
        }
        let mut session = match self.sessions.remove(&place) {
            Some(session) => session,
            None => self.open()?,
        };
        let text = statement.text.replace(":schema", self.schema);
        if statement.background {
            send(&mut session, &text)?;
            self.sessions.insert(place.clone(), session);
            self.pending.insert(place, statement.clone());
            self.until_locked_out();
            return Ok(Next::On);
        }
        let mut answer = self.answer(&mut session, statement, &text);
        let deadline = Instant::now() + s(LAG_S_MAX);
        while statement.repeats
            && answer.as_ref().is_ok_and(|answers| wrong_value(statement, answers).is_some())
            && Instant::now() < deadline
        {
            std::thread::sleep(ms(20));
            answer = self.answer(&mut session, statement, &text);
        }
        self.sessions.insert(place, session);
        self.judge(statement, answer)
    }

    /// Waits until every statement in the background waits for a lock. Random ones need not: they get
    /// a moment to begin.
    fn until_locked_out(&self) {
        if self.fallible {
            std::thread::sleep(ms(BESIDE_MS));
            return;
        }
        let (port, count) = (self.cluster.site("primary").port, self.pending.len() as i64);
        eventually("a statement in the background waits for a lock", || {
            activity(&[port], "wait_event_type = 'Lock'") >= count
        });
    }

    /// Waits for what a session still runs.
    fn finish(&mut self, place: &Place) -> Result<Next, String> {
        let Some(statement) = self.pending.remove(place) else { return Ok(Next::On) };
        let session = self.sessions.get_mut(place).expect("the session that runs it");
        let answer = session.answers();
        self.judge(&statement, answer)
    }

    fn answer(
        &self,
        session: &mut Session,
        statement: &Statement,
        text: &str,
    ) -> Result<Vec<Answer>, Failure> {
        if !statement.pipeline.is_empty() {
            let parts = statement.pipeline.iter().map(|part| part.replace(":schema", self.schema));
            return session.pipeline(&parts.collect::<Vec<_>>());
        }
        if !statement.extended {
            return session.simple(text);
        }
        let values: Vec<&str> = statement.parameters.iter().map(String::as_str).collect();
        Ok(vec![session.extended(text, &values)?])
    }

    fn open(&self) -> Result<Session, String> {
        let Place { role, database, direct, .. } = &self.place;
        let parameters = [("user", role.as_str()), ("database", database.as_str())];
        let opened = if *direct {
            Session::open(self.cluster.site("primary").port, &parameters)
        } else {
            self.cluster.try_connect(&parameters)
        };
        let mut session = opened.map_err(|failure| format!("no session of {role}: {failure}"))?;
        if database == DATABASE {
            session.run(&format!("SET search_path = {}, public", self.schema));
        }
        if self.fallible {
            session.run("SET lock_timeout = '2s'");
        }
        Ok(session)
    }

    /// Notes what isn't as the case says.
    fn judge(
        &mut self,
        statement: &Statement,
        answer: Result<Vec<Answer>, Failure>,
    ) -> Result<Next, String> {
        if let Err(Failure::Lost(error)) = &answer {
            return Err(format!("{}: connection lost: {error}", statement.text));
        }
        if self.fallible {
            let failure = answer.as_ref().err();
            let told = failure.map_or("ok".to_owned(), Failure::to_string);
            if self.cluster.is_hihooi() {
                eprintln!("    {} -- {told}", statement.text);
            }
            let code = failure.map_or("", Failure::code).to_owned();
            let (text, has_company) =
                (statement.text.clone(), statement.background || !self.pending.is_empty());
            self.outcomes.push(Outcome { text, code, told, has_company });
            return Ok(Next::On);
        }
        let code = answer.as_ref().err().map_or("", Failure::code);
        let wanted: &str = match statement.refusal {
            Refusal::Must if self.cluster.is_hihooi() => "0A000",
            // What follows proves that nothing is left behind, which it is here.
            Refusal::Must if code.is_empty() => return Ok(Next::Refused),
            Refusal::May if code == "0A000" => return Ok(Next::Refused),
            _ => &statement.error,
        };
        let told = match &answer {
            Err(failure) if code != wanted => Some(format!("{failure} (expected: {wanted:?})")),
            Ok(_) if code != wanted => Some(format!("succeeded instead of {wanted}")),
            Ok(answers) => wrong_value(statement, answers),
            Err(_) => None,
        };
        let told = told.map(|told| format!("{}: {told}", statement.text));
        self.problems.extend(told);
        Ok(Next::On)
    }

    /// Waits for the replicas.
    fn settle(&mut self, place: &str) -> Result<(), String> {
        let settled = settled(self.cluster);
        self.stopped |= settled.is_err();
        settled.map_err(|reason| format!("{place}: {reason}"))
    }

    /// Waits for the replicas; whatever differs then is a problem.
    fn compare(&mut self, place: &str) -> Result<(), String> {
        if !self.cluster.is_hihooi() {
            return Ok(());
        }
        self.settle(place)?;
        let every = std::env::var("HIHOOI_VERIFY_EVERY")
            .map_or(VERIFY_EVERY, |n| n.parse().expect("a number"));
        let count = self.watched.compared.replace(self.watched.compared.get() + 1);
        let verified =
            if count.is_multiple_of(every) { verified(self.cluster) } else { Vec::new() };
        let told = verified.into_iter().chain(compared(self.watched).into_iter().take(TOLD_MAX));
        self.problems.extend(told.map(|told| format!("{place}: {told}")));
        Ok(())
    }
}

fn send(session: &mut Session, text: &str) -> Result<(), String> {
    let mut out = BytesMut::new();
    frontend::query(text.as_bytes(), &mut out);
    session.send(&out).map_err(|error| format!("{text}: {error}"))
}

fn wrong_value(statement: &Statement, answers: &[Answer]) -> Option<String> {
    let expected = statement.expect.as_ref()?;
    let row = answers.last().and_then(|answer| answer.rows.first());
    let got = row.and_then(|row| row.first()).and_then(Option::as_ref);
    (got != Some(expected)).then(|| format!("answered {got:?} instead of {expected}"))
}

/// Waits until every replica serves and has applied all that the primary committed, which a write
/// at the end makes certain, and all of it: no table is set aside; why not.
fn settled(cluster: &Cluster) -> Result<(), String> {
    if !cluster.is_hihooi() {
        return Ok(());
    }
    cluster.connect().run("INSERT INTO public.follow_marks (v) VALUES ('x')");
    let begun = Instant::now();
    let mut failed_since = None;
    loop {
        let replicas = cluster.show_replicas();
        let behind =
            replicas.values().filter(|r| r["state"] != "serving" || r["lag_entries"] != "0");
        let behind: Vec<_> = behind.collect();
        if behind.is_empty() {
            let without = replicas.values().find(|replica| replica["tables_set_aside"] != "0");
            return without.map_or(Ok(()), |replica| Err(replica["reason"].clone()));
        }
        if behind.iter().any(|replica| replica["state"] == "failed") {
            failed_since.get_or_insert_with(Instant::now);
        } else {
            failed_since = None;
        }
        let undecodable = behind.iter().any(|replica| replica["reason"].contains(UNDECODABLE));
        let failed =
            undecodable || failed_since.is_some_and(|since| since.elapsed() > ms(FAILED_MS));
        if failed || begun.elapsed() > s(LAG_S_MAX) {
            let told = behind.iter().map(|replica| replica_text(replica));
            let told = told.collect::<Vec<_>>().join("; ");
            return Err(if failed { told } else { format!("{told}\n{}", why_behind(cluster)) });
        }
        std::thread::sleep(ms(30));
    }
}

/// What the primary's backends do, and what the manager said last.
fn why_behind(cluster: &Cluster) -> String {
    const ASK: &str = "SELECT concat_ws(' | ', pid, backend_type, application_name, state, \
        wait_event_type, wait_event, pg_blocking_pids(pid), left(query, 200)) \
        FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
        UNION ALL SELECT concat_ws(' | ', slot_name, active_pid, restart_lsn, confirmed_flush_lsn, \
        pg_current_wal_lsn()) FROM pg_replication_slots";
    let rows = cluster.direct("primary").run(ASK).rows;
    let rows: Vec<String> = rows.into_iter().flatten().flatten().collect();
    format!("{}\n{}", rows.join("\n"), cluster.log_tail())
}

fn replica_text(replica: &BTreeMap<String, String>) -> String {
    let [name, state, lag, reason] =
        ["replica", "state", "lag_entries", "reason"].map(|column| &replica[column]);
    format!("{name} {state}, {lag} entries behind: {reason}")
}

/// What `VERIFY` finds.
fn verified(cluster: &Cluster) -> Vec<String> {
    let answers = match cluster.admin().simple("VERIFY") {
        Ok(answers) => answers,
        Err(failure) => return vec![format!("VERIFY: {failure}")],
    };
    let rows = answers.last().map(Answer::records).unwrap_or_default();
    let different = rows.into_iter().filter(|row| row["result"] != "equal");
    let told = different.map(|row| {
        format!("VERIFY: {} {}: {} {}", row["replica"], row["result"], row["object"], row["detail"])
    });
    told.collect()
}

/// What a comparison of the catalogs and rows finds.
fn compared(watched: &Watched) -> Vec<String> {
    let primary = fingerprint(watched, "primary");
    let mut told = Vec::new();
    for replica in watched.cluster.replicas() {
        let there = fingerprint(watched, &replica);
        let lacks = missing(&primary, &there).into_iter().map(|l| format!("{replica} lacks {l}"));
        let has = missing(&there, &primary).into_iter().map(|l| format!("{replica} has {l}"));
        told.extend(lacks.chain(has));
    }
    told
}

fn missing<'a>(expected: &'a [String], got: &[String]) -> Vec<&'a String> {
    let got: std::collections::BTreeSet<&String> = got.iter().collect();
    expected.iter().filter(|line| !got.contains(line)).collect()
}

/// A site's definitions and rows, a line each.
fn fingerprint(watched: &Watched, site: &str) -> Vec<String> {
    static QUESTIONS: LazyLock<Vec<Case>> = LazyLock::new(|| read("fingerprint"));
    let version = watched.version();
    let statements = QUESTIONS[0].body.iter().filter_map(|step| match step {
        Step::Run(statement) if statement.versions.contains(version) => Some(&statement.text),
        _ => None,
    });
    watched.ask(site, |session| {
        session.run(
            "SET search_path = pg_catalog; SET timezone = 'UTC'; SET datestyle = 'ISO'; \
             SET intervalstyle = 'postgres'; SET extra_float_digits = 1; SET bytea_output = 'hex'; \
             SET statement_timeout = 0; SET lock_timeout = 0",
        );
        let mut lines = Vec::new();
        for text in statements {
            let rows = session.run(text).rows;
            lines.extend(rows.into_iter().map(|mut row| row[0].take().unwrap_or_default()));
        }
        lines
    })
}
