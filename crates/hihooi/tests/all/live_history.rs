//! `hihooi bench history`: each consistency level keeps what docs/consistency.md promises, as many sessions see it
//! while faults are injected; and the command finds what a level doesn't promise.
//!
//! `HIHOOI_TEST_TRANSACTIONS` (of each recording, at least) makes longer recordings. What a recording saw is kept if it
//! breaks a promise.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{
    Cluster, Options, alone, assert_names, eventually, finish, free_port, program, reference,
    shared, target_is_plain,
};

/// What is tried with each level: what may break its promise, and what its readers get most of their answers by.
const LEVELS: [(&str, &str, u64); 6] = [
    ("sync", "walsender,commit,appliers,slow-log", 1_000),
    ("strict", "standby,commit,pause", 1_000),
    ("gssi", "standby,commit,appliers,backends,slow-log", 1_000),
    ("rsi-pc", "freeze,commit", 1_000),
    ("session", "pause,walsender,backends", 1_000),
    ("weak-si", "pause,kill-replica,standby", 1_000),
];

/// `bench history` at a port.
fn history(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["bench", "history", "--listen", &format!("127.0.0.1:{port}")]).args(arguments);
    command
}

/// Runs it; its status, and what it printed.
fn told(command: &mut Command) -> (i32, String, String) {
    let output = finish(command);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit"), text(output.stdout), text(output.stderr))
}

fn transactions(default: u64) -> String {
    let asked = std::env::var("HIHOOI_TEST_TRANSACTIONS").ok().and_then(|text| text.parse().ok());
    default.max(asked.unwrap_or(0)).to_string()
}

#[test]
fn each_level_keeps_its_promise_under_faults() {
    const SEEDS_MAX: u64 = 5;
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    // What is frozen for long counts as silent.
    let cluster = Cluster::start(Options::default().noticing_silence());
    let folder = tempfile::tempdir().expect("a folder");
    for (level, faults, count) in LEVELS {
        // (Where other work slows replicas down, they may lag through a whole recording.)
        for seed in 1.. {
            assert!(seed <= SEEDS_MAX, "{level}, {faults}: no replica was read");
            let out = folder.path().join(format!("{level}.jsonl"));
            let mut command = history(cluster.port, &["--level", level, "--faults", faults]);
            command.args(["--seed", &seed.to_string(), "--transactions", &transactions(count)]);
            command.arg("--data").arg(cluster.data()).arg("--out").arg(&out);
            let (status, said, errors) = told(&mut command);
            if status != 0 {
                let kept = folder.keep().display().to_string();
                panic!("{level}, {faults}: {said}{errors}\nThe history is kept in {kept}");
            }
            assert!(said.starts_with(&format!("{level} holds\n")), "{said}");
            for fault in faults.split(',').filter(|fault| *fault != "commit") {
                assert!(said.contains(&format!("{fault}: ")), "{fault} was not injected: {said}");
            }
            cluster.caught_up();
            if said.contains("\nreads at replica") {
                break;
            }
        }
    }
    assert_eq!(cluster.psql("SELECT to_regclass('hihooi_history_lists') IS NULL"), "t\n");
    cluster.assert_verified();
}

/// What READ COMMITTED and REPEATABLE READ of one server give is what `strict` promises: else the judge was wrong.
#[test]
fn a_plain_server_keeps_the_strictest_promise() {
    let _alone = alone();
    let count = transactions(3_000);
    let arguments = ["--level", "strict", "--faults", "commit", "--transactions", &count];
    let (status, said, errors) = told(&mut history(reference().port, &arguments));
    assert_eq!(status, 0, "{said}{errors}");
    assert!(said.contains("only the primary was judged"), "{said}");
}

/// A replica that is paused is stale, which `weak-si` allows and `gssi` doesn't.
#[test]
fn stale_reads_break_the_promise_of_gssi() {
    const ROUNDS_MAX: u64 = 20;
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("history.jsonl");
    for seed in 1..=ROUNDS_MAX {
        let seed = seed.to_string();
        let arguments = ["--level", "weak-si", "--judge", "gssi", "--faults", "pause"];
        let mut command = history(shared().port, &arguments);
        command.args(["--seed", &seed, "--transactions", "1500", "--out"]).arg(&out);
        let (status, said, errors) = told(&mut command);
        if status == 0 {
            continue;
        }
        assert_eq!(status, 1, "{said}{errors}");
        assert!(said.starts_with("gssi is violated\n"), "{said}");
        assert!(said.contains(" it read "), "the witness is told: {said}");
        // The parts that break it are beside the history, and are judged alike.
        let again: Vec<&str> =
            said.lines().filter_map(|l| l.split_once("judge it again: ")).map(|l| l.1).collect();
        assert!(!again.is_empty(), "{said}");
        for line in again {
            let arguments: Vec<&str> = line.split(' ').skip(1).collect();
            assert_eq!(told(Command::new(program()).args(arguments)).0, 1, "{line}");
        }
        return;
    }
    panic!("no stale read in {ROUNDS_MAX} recordings");
}

fn refused(command: &mut Command, words: &[&str]) {
    let (status, said, errors) = told(command);
    assert_eq!((status, said.as_str()), (2, ""), "{command:?}: {errors}");
    assert_names(&errors, words);
}

#[test]
fn what_cant_be_done_is_refused_before_anything_is_changed() {
    let _alone = alone();
    let port = reference().port;
    refused(
        &mut history(port, &["--level", "gssi", "--faults", "pause,flood"]),
        &[
            "flood",
            "pause",
            "freeze",
            "kill-replica",
            "kill-hihooi",
            "slow-log",
            "walsender",
            "commit",
        ],
    );
    refused(
        &mut history(port, &["--level", "perfect"]),
        &["perfect", "strict", "gssi", "rsi-pc", "session", "weak-si"],
    );
    refused(&mut history(port, &["--level", "gssi", "--sessions", "41"]), &["41", "40"]);
    refused(
        &mut history(port, &["--level", "gssi", "--faults", "pause"]),
        &["pause", "not hihooi"],
    );
    refused(&mut history(free_port(), &["--level", "gssi"]), &["127.0.0.1", "refused"]);
    if target_is_plain() {
        return;
    }
    let port = shared().port;
    refused(&mut history(port, &["--level", "gssi", "--faults", "freeze"]), &["freeze", "--data"]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = history(port, &["--level", "gssi", "--faults", "kill-replica", "--data"]);
    refused(command.arg(folder.path()), &["kill-replica", "primary", "--data"]);
}

#[test]
fn somebody_elses_table_is_left_alone() {
    let _alone = alone();
    shared().psql("CREATE TABLE hihooi_history_registers AS SELECT 1 AS mine");
    refused(&mut history(shared().port, &["--level", "gssi"]), &["hihooi_history_registers"]);
    assert_eq!(shared().psql("SELECT mine FROM hihooi_history_registers"), "1\n");
    shared().psql("DROP TABLE hihooi_history_registers");
}

/// The state of a process: `T` if it is stopped.
fn state_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Runs it until a replica is stopped, and ends it by a signal then.
fn end_while_stopped(cluster: &Cluster, signal: Signal) -> (Option<i32>, String) {
    let postmasters: Vec<i32> =
        ["replica1", "replica2"].iter().filter_map(|site| cluster.postmaster(site)).collect();
    let arguments = ["--level", "gssi", "--faults", "freeze", "--transactions", "1000000"];
    let mut command = history(cluster.port, &arguments);
    command.arg("--data").arg(cluster.data());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().expect("hihooi");
    let is_stopped = || postmasters.iter().any(|&pid| state_of(pid) == Some('T'));
    eventually("a replica is stopped", is_stopped);
    kill(Pid::from_raw(child.id() as i32), signal).expect("a child of ours");
    let output = child.wait_with_output().expect("a child of ours");
    eventually("it goes on", || !is_stopped());
    (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn a_stopped_replica_goes_on_when_the_command_is_interrupted() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let (status, said) = end_while_stopped(shared(), Signal::SIGINT);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with("gssi holds\n"), "what was recorded is judged: {said}");
    let (status, _) = end_while_stopped(shared(), Signal::SIGKILL);
    assert_eq!(status, None);
    // The tables that it left are replaced.
    let (status, said, errors) =
        told(&mut history(shared().port, &["--level", "gssi", "--transactions", "100"]));
    assert_eq!(status, 0, "{said}{errors}");
}
