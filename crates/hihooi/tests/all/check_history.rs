//! `hihooi check-history`: its command line, and histories recorded against PostgreSQL servers. (Those of hihooi are
//! recorded by `hihooi bench history`: `live_history.rs`.) What PostgreSQL promises (manual, chapter 13.2) the checker must find kept, and what an isolation
//! level allows it must show.
//!
//! Environment: `HIHOOI_TEST_TRANSACTIONS` (of each client in a recording, at least; default 120)
//! and `HIHOOI_TEST_SEED` make other and longer recordings. A history that fails a test is kept.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::{Reference, alone, eventually, program, reference};
use crate::recorder::{self, Kept, Plan, Progress, Recording, Shape};

const REPEATABLE_READ: &[Shape] = &[
    Shape::Block("BEGIN ISOLATION LEVEL REPEATABLE READ"),
    Shape::Block("BEGIN ISOLATION LEVEL REPEATABLE READ"),
    Shape::ReadPauseWrite("BEGIN ISOLATION LEVEL REPEATABLE READ"),
    Shape::ReadStatement,
    Shape::WriteStatement,
];
const SERIALIZABLE: &[Shape] = &[
    Shape::Block("BEGIN ISOLATION LEVEL SERIALIZABLE"),
    Shape::ReadPauseWrite("BEGIN ISOLATION LEVEL SERIALIZABLE"),
    Shape::Reads("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY"),
];
const READ_COMMITTED: &[Shape] =
    &[Shape::ReadPauseWrite("BEGIN"), Shape::Block("BEGIN"), Shape::Reads("BEGIN")];
/// A folder that goes with the test.
struct Histories(tempfile::TempDir);

impl Histories {
    fn new() -> Histories {
        Histories(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn keep(&self, recording: &Recording) -> PathBuf {
        let file = self.file("history.jsonl");
        recording.write(&file);
        file
    }
}

/// Runs the program on a file; its status, and what it printed.
fn check(file: &PathBuf, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(program());
    command.arg("check-history").arg(file).args(arguments).stdin(Stdio::null());
    told(command.output().expect("hihooi"))
}

fn told(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit"), text(output.stdout), text(output.stderr))
}

fn holds(recording: &Recording, level: &str) {
    let histories = Histories::new();
    let file = histories.keep(recording);
    let (status, said, errors) = check(&file, &["--level", level]);
    if status != 0 {
        let kept = histories.0.keep();
        panic!("{level} must hold: {said}{errors}\nThe history is kept in {}", kept.display());
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn plan(port: u16, shapes: &'static [Shape]) -> Plan {
    Plan {
        port,
        kept: Kept::Lists,
        clients: 12,
        transactions: from_environment("HIHOOI_TEST_TRANSACTIONS", 120) as usize,
        keys: 5,
        shapes,
        seed: from_environment("HIHOOI_TEST_SEED", 1),
    }
}

/// Goes on until two transactions met, of which one failed for it: else nothing is tested.
fn until_two_meet(progress: &Progress) {
    eventually("two transactions meet", || progress.failed() > 0);
}

/// Manual, chapter 13.2.2: Repeatable Read sees one snapshot, and refuses to update what others
/// updated since: snapshot isolation, on one server a strong one.
#[test]
fn repeatable_read_of_one_server_is_strong_snapshot_isolation() {
    let _alone = alone();
    let recording = Recording::make(plan(reference().port, REPEATABLE_READ), until_two_meet);
    holds(&recording, "strong-si");
}

/// The same over registers, whose versions the checker has to put in order.
#[test]
fn registers_of_one_server_are_strong_snapshots() {
    let _alone = alone();
    let plan = Plan { kept: Kept::Registers, ..plan(reference().port, REPEATABLE_READ) };
    holds(&Recording::make(plan, until_two_meet), "strong-si");
}

/// Manual, chapter 13.2.3.
#[test]
fn serializable_of_one_server_is_strict() {
    let _alone = alone();
    let recording = Recording::make(plan(reference().port, SERIALIZABLE), until_two_meet);
    holds(&recording, "strict-serializable");
}

/// Manual, chapter 13.2.1: every statement sees another snapshot, and an update goes on from the
/// newest version. So updates are lost, which Read Committed allows; nothing else is.
#[test]
fn read_committed_of_one_server_shows_what_it_allows() {
    let _alone = alone();
    const ROUNDS_MAX: u64 = 200;
    let histories = Histories::new();
    let mut missing = vec!["lost update", "read skew"];
    for seed in 0..ROUNDS_MAX {
        let plan =
            Plan { keys: 2, transactions: 40, seed, ..plan(reference().port, READ_COMMITTED) };
        let file = histories.keep(&Recording::make(plan, |_| {}));
        let (status, said, errors) = check(&file, &["--level", "read-committed"]);
        assert_eq!(status, 0, "{said}{errors}");
        let (status, said, _) = check(&file, &["--level", "si"]);
        let before = missing.len();
        missing.retain(|anomaly| !said.contains(anomaly));
        assert!(status == 1 || missing.len() == before, "{said}");
        if missing.is_empty() {
            return;
        }
    }
    panic!("no {missing:?} in {ROUNDS_MAX} recordings");
}

/// A server that crashes leaves transactions of unknown outcome; what it acknowledged stays.
#[test]
fn transactions_of_unknown_outcome_are_judged_by_what_others_saw() {
    const CRASHES_MAX: usize = 100;
    let _alone = alone();
    let server = Reference::start();
    let recording = Recording::make(plan(server.port, REPEATABLE_READ), |progress| {
        for _ in 0..CRASHES_MAX {
            progress.more(100);
            if progress.unknown() > 0 {
                return;
            }
            // The end of one backend by SIGKILL makes the server end all others and recover.
            let victim = recorder::connect(server.port).expect("a session");
            // A crash that isn't over yet may have ended it.
            let _ = kill(Pid::from_raw(victim.key.0), Signal::SIGKILL);
        }
        panic!("{CRASHES_MAX} crashes met no transaction whose end is unknown");
    });
    holds(&recording, "strong-si");
}

const STALE: &str = r#"{"time":1,"process":1,"type":"invoke","f":"txn","value":[["append","x",1]]}
{"time":2,"process":1,"type":"ok","f":"txn","value":[["append","x",1]]}
{"time":3,"process":2,"type":"invoke","f":"txn","value":[["r","x",null]]}
{"time":4,"process":2,"type":"ok","f":"txn","value":[["r","x",null]]}
"#;

/// What is said about its append.
const NOTE: &str = "1 appends were never read, so that their order is not known; final reads would \
                    tell whether they are lost";

#[test]
fn the_exit_status_says_whether_the_level_holds() {
    let histories = Histories::new();
    let file = histories.file("stale.jsonl");
    std::fs::write(&file, STALE).expect("own folder");
    let (status, said, errors) = check(&file, &["--level", "session-si"]);
    assert_eq!((status, errors.as_str()), (0, ""), "{said}");
    assert!(said.starts_with("session-si holds\n"), "{said}");
    assert!(said.contains("strongest levels that hold: session-si, serializable"), "{said}");
    assert!(said.contains("not strong-si: lost commit (T1, T2)"), "{said}");
    let (status, said, errors) = check(&file, &["--level", "strong-si"]);
    assert_eq!((status, errors.as_str()), (1, ""), "{said}");
    assert!(said.contains("T2 before T1: it read x without what T1 wrote (1)"), "{said}");
}

#[test]
fn json_says_the_same_to_machines() {
    let histories = Histories::new();
    let file = histories.file("stale.jsonl");
    std::fs::write(&file, STALE).expect("own folder");
    let (status, said, _) = check(&file, &["--level", "strict-serializable", "--json"]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (status, &said["holds"], &said["level"]),
        (1, &false.into(), &"strict-serializable".into())
    );
    assert_eq!(said["anomalies"][0]["transactions"], serde_json::json!([1, 2]));
    assert_eq!(said["strongest"], serde_json::json!(["session-si", "serializable"]));
    assert_eq!(said["seen"]["committed"], 2);
    assert_eq!(said["notes"], serde_json::json!([NOTE]));
}

/// A gate that recorded nothing must not pass.
#[test]
fn what_has_no_transaction_does_not_pass() {
    let histories = Histories::new();
    let file = histories.file("none.jsonl");
    for (text, expected) in [
        ("", "no transactions in it"),
        ("{\"f\":\"write\",\"process\":1}\n", "no transactions in it"),
        ("[]\n", "line 1: an array"),
        ("5\n", "line 1: no JSON object"),
    ] {
        std::fs::write(&file, text).expect("own folder");
        let (status, said, errors) = check(&file, &["--level", "read-committed"]);
        assert_eq!((status, said.as_str(), errors.lines().count()), (2, "", 1), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    }
    let (status, _, errors) = check(&histories.0.path().into(), &["--level", "si"]);
    assert_eq!((status, errors.lines().count()), (2, 1), "{errors}");
    assert!(errors.contains("a directory"), "{errors}");
}

/// A script must not take a verdict that nobody could read for one that was printed.
#[test]
fn results_that_cant_be_written_are_a_failure() {
    let histories = Histories::new();
    let file = histories.file("stale.jsonl");
    std::fs::write(&file, STALE).expect("own folder");
    let mut command = Command::new(program());
    command.arg("check-history").arg(&file).args(["--level", "si"]).stdin(Stdio::null());
    command.stdout(std::fs::File::create("/dev/full").expect("/dev/full")).stderr(Stdio::piped());
    let (status, _, errors) = told(command.output().expect("hihooi"));
    assert_eq!((status, errors.lines().count()), (2, 1), "{errors}");
}

#[test]
fn of_levels_that_ask_for_the_same_one_is_told() {
    let histories = Histories::new();
    let file = histories.file("lost.jsonl");
    let lost = |process| {
        let steps = format!("[[\"r\",\"x\",null],[\"w\",\"x\",{process}]]");
        let line = |kind| {
            format!(
                "{{\"process\":{process},\"type\":\"{kind}\",\"f\":\"txn\",\"value\":{steps}}}\n"
            )
        };
        [line("invoke"), line("ok")].concat()
    };
    std::fs::write(&file, [lost(1), lost(2)].concat()).expect("own folder");
    let (status, said, _) = check(&file, &["--level", "read-committed"]);
    assert_eq!(status, 0, "{said}");
    assert!(
        said.contains("\nnot si: lost update (T1, T2)\n") && !said.contains("not 1-copy"),
        "{said}"
    );
}

#[test]
fn a_history_can_come_from_standard_input() {
    let mut command = Command::new(program());
    command.args(["check-history", "-", "--level", "strong-si"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("hihooi");
    child.stdin.take().expect("piped").write_all(STALE.as_bytes()).expect("it reads");
    let (status, said, _) = told(child.wait_with_output().expect("hihooi"));
    assert_eq!(status, 1, "{said}");
}

#[test]
fn what_cant_be_read_is_named_in_one_line() {
    let histories = Histories::new();
    let file = histories.file("bad.jsonl");
    for (tail, expected) in [
        ("{\"time\":5,", "line 5: "),
        (
            "{\"time\":5,\"process\":2,\"type\":\"ok\",\"f\":\"txn\",\"value\":[]}",
            "line 5: process 2 ends",
        ),
        (
            "{\"time\":5,\"process\":2,\"type\":\"invoke\",\"f\":\"txn\",\"value\":[[\"cas\",1,2]]}",
            "line 5: \"cas\"",
        ),
    ] {
        std::fs::write(&file, format!("{STALE}{tail}\n")).expect("own folder");
        let (status, said, errors) = check(&file, &["--level", "si"]);
        assert_eq!((status, said.as_str()), (2, ""), "{errors}");
        assert!(errors.contains(expected) && errors.lines().count() == 1, "{errors}");
    }
    let (status, _, errors) = check(&histories.file("none.jsonl"), &["--level", "si"]);
    assert_eq!((status, errors.lines().count()), (2, 1), "{errors}");
    let (status, _, errors) = check(&file, &["--level", "perfect"]);
    assert_eq!(status, 2, "{errors}");
    assert!(errors.contains("strict-serializable"), "the levels are named: {errors}");
}
