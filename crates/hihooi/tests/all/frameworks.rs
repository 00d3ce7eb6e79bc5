//! What drivers and frameworks send by default reads at replicas, and finds what it finds on a plain server (I1):
//! their scripts (`tests/frameworks`) do the same requests on both, and the reads at each site are counted.
//!
//! `scripts/fetch-frameworks` gets what they need into `.tools/frameworks`. What isn't there is said, and left out.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use crate::harness::client::Session;
use crate::harness::{
    Cluster, DATABASE, Options, USER, alone, eventually, reference, succeed, target_is_plain,
};

/// Debian's own, for which its packages are compiled.
const PYTHON: &str = "/usr/bin/python3";

/// A phase, how many reads it makes at least, and how many of these at the primary at most.
type Phase = (&'static str, i64, i64);
const READING: Phase = ("read", 90, 0);
/// Ten read a row that their own transaction has written. For a few others no replica may be fresh enough in time.
const REREADING: Phase = ("write", 40, 10 + 5);
const WRITING: Phase = ("write", 30, 5);

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("a workspace").join(".tools/frameworks")
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frameworks")
}

/// A cluster where what waits for a replica or the catalog waits as long as that takes.
fn patient() -> &'static Cluster {
    static PATIENT: OnceLock<Cluster> = OnceLock::new();
    PATIENT.get_or_init(|| {
        Cluster::start(Options::default().env("HIHOOI_CONSISTENCY_WAIT_MS", "60000"))
    })
}

/// A framework's script, at a server.
struct Running {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command, port: u16) -> Running {
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", port.to_string())
            .env("PGUSER", USER)
            .env("PGDATABASE", DATABASE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("an interpreter");
        let (to, from) =
            (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut running = Running { child, to, from: BufReader::new(from) };
        running.until("ready");
        running
    }

    /// What a phase finds.
    fn run(&mut self, phase: &str) -> String {
        writeln!(self.to, "{phase}").expect("a script that runs");
        self.until("done")
    }

    fn until(&mut self, end: &str) -> String {
        let mut found = String::new();
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).expect("a pipe") > 0, "it ended after: {found}");
            if line.trim_end() == end {
                return found;
            }
            found.push_str(&line);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn prepare(session: &mut Session) {
    session.run("DROP TABLE IF EXISTS notes; DROP TYPE IF EXISTS mood");
    session.run("CREATE TYPE mood AS ENUM ('sad', 'happy')");
    session.run("CREATE TABLE notes (id int PRIMARY KEY, text text NOT NULL, mood mood)");
    session.run("INSERT INTO notes SELECT n, 'note ' || n, 'happy' FROM generate_series(1, 100) n");
}

/// Reads at the primary, and at replicas, so far.
fn reads(cluster: &Cluster) -> (i64, i64) {
    let stats = cluster.admin().run("SHOW STATS");
    let of = |row: &[Option<String>]| {
        row[1].as_deref().and_then(|n| n.parse::<i64>().ok()).expect("a number")
    };
    let is_primary = |row: &&Vec<Option<String>>| row[0].as_deref() == Some("primary");
    let (primary, replicas): (Vec<_>, Vec<_>) = stats.rows.iter().partition(is_primary);
    let sum = |rows: Vec<&Vec<Option<String>>>| rows.iter().map(|row| of(row)).sum();
    (sum(primary), sum(replicas))
}

/// Runs a framework's phases on a plain server and on a cluster.
fn check(command: &dyn Fn() -> Command, phases: &[Phase]) {
    let _alone = alone();
    let mut plain = Session::open(reference().port, &[("user", USER), ("database", DATABASE)])
        .expect("a session");
    prepare(&mut plain);
    let cluster = patient();
    let mut session = cluster.connect();
    prepare(&mut session);
    let mut expected = Running::start(command(), reference().port);
    let mut running = Running::start(command(), cluster.port);
    for (phase, all, at_primary_max) in phases {
        cluster.caught_up();
        eventually("the table and its type are known", || {
            session.run("SELECT text, mood FROM notes WHERE id = 1");
            session.route().site() != "primary"
        });
        let before = reads(cluster);
        assert_eq!(
            running.run(phase),
            expected.run(phase),
            "another answer than PostgreSQL's (I1)"
        );
        let after = reads(cluster);
        let (at_primary, at_replicas) = (after.0 - before.0, after.1 - before.1);
        println!("{phase}: {at_primary} reads at the primary, {at_replicas} at replicas");
        assert!(at_primary + at_replicas >= *all, "{phase}: {at_primary} and {at_replicas} reads");
        assert!(
            at_primary <= *at_primary_max,
            "{phase}: {at_primary} reads at the primary, {at_replicas} at replicas"
        );
    }
    cluster.assert_verified();
}

fn python(script: &str, phases: &[Phase]) {
    let packages = root().join("python");
    if target_is_plain() || !packages.exists() || !Path::new(PYTHON).exists() {
        eprintln!("{script}: Debian's Python or {} is not there: not tested", packages.display());
        return;
    }
    let command = || {
        let mut command = Command::new(PYTHON);
        command.current_dir(scripts()).args(script.split(' ')).env("PYTHONPATH", &packages);
        command
    };
    check(&command, phases);
}

fn java(class: &str, phases: &[Phase]) {
    let libraries = root().join("java");
    let has_compiler = Command::new("javac").arg("-version").output().is_ok();
    if target_is_plain() || !libraries.exists() || !has_compiler {
        eprintln!("{class}: javac or {} is not there: not tested", libraries.display());
        return;
    }
    let made = tempfile::tempdir().expect("a folder");
    let path = format!("{}/*:{}", libraries.display(), made.path().display());
    let sources = ["Phases", class].map(|name| scripts().join(format!("{name}.java")));
    succeed(Command::new("javac").args(["-cp", &path, "-d"]).arg(made.path()).args(sources));
    let command = || {
        let mut command = Command::new("java");
        command.args(["-cp", &path, class]).stderr(Stdio::null());
        command
    };
    check(&command, phases);
}

#[test]
fn psycopg_reads_at_replicas() {
    python("use_psycopg.py psycopg", &[READING, REREADING]);
}

#[test]
fn psycopg2_reads_at_replicas() {
    python("use_psycopg.py psycopg2", &[READING, REREADING]);
}

#[test]
fn sqlalchemy_reads_at_replicas() {
    python("use_sqlalchemy.py", &[READING, REREADING]);
}

#[test]
fn django_reads_at_replicas() {
    python("use_django.py", &[READING, REREADING]);
}

/// It asks for one row and leaves the portal, which a session learns from its first. In a transaction of one snapshot it
/// asks the catalogs for types.
#[test]
fn asyncpg_reads_at_replicas() {
    python("use_asyncpg.py", &[("read", 90, 1), REREADING, ("snapshot", 5, 2)]);
}

#[test]
fn jdbc_reads_at_replicas() {
    java("UseJdbc", &[READING, REREADING]);
}

#[test]
fn hibernate_reads_at_replicas() {
    java("UseHibernate", &[READING, WRITING]);
}
