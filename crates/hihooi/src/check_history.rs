//! `hihooi check-history`: checks a recorded history against an isolation level.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::Args;
use hihooi_check::{History, Judge, Level, Summary, Verdict};
use hihooi_postgres::cluster::plain;
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::print;

pub const EXAMPLES: &str = "Examples:
  hihooi check-history history.jsonl --level strong-si
  hihooi check-history history.jsonl --level serializable --json
  recorder | hihooi check-history - --level strict-serializable

A history has one JSON object per line, in the format of Jepsen's list-append and register
workloads. A transaction is invoked, and ends with ok, fail or info (the outcome is unknown):
  {\"time\": 10, \"process\": 1, \"type\": \"invoke\", \"f\": \"txn\", \"value\": [[\"append\", \"x\", 1]]}
  {\"time\": 20, \"process\": 1, \"type\": \"ok\", \"f\": \"txn\", \"value\": [[\"append\", \"x\", 1]]}
  {\"time\": 30, \"process\": 2, \"type\": \"invoke\", \"f\": \"txn\", \"value\": [[\"r\", \"x\", null]]}
  {\"time\": 40, \"process\": 2, \"type\": \"ok\", \"f\": \"txn\", \"value\": [[\"r\", \"x\", [1]]]}
Time is in nanoseconds. Steps are: append to a list, r(ead), w(rite) a register. No value may be
written twice to one key, unless the first write failed. \"final\": true marks a read made after all
clients ended, which must show every acknowledged append. Lines whose f is not txn are ignored.

Levels, and what each requires:
  read-committed       no dirty writes, no reads of aborted or intermediate values
  si                   read-committed; each transaction reads one snapshot, of any age; of two that
                       write the same object one has seen the other
  1-copy-si            the same of a cluster as a whole; since a history doesn't say what ran where,
                       this is checked as si
  session-si           si; a snapshot contains what its process wrote or saw before
  strong-si            session-si; a snapshot contains what any process wrote or saw in transactions
                       that had ended when this transaction began
  serializable         si; one serial order explains everything that was read, even if it contradicts
                       the order in time
  strict-serializable  strong-si and serializable; the serial order agrees with the order in time

Exit status: 0 the level holds, 1 it is violated, 2 the history can't be read or has
no transactions, or the results can't be written.";

/// Arguments of `check-history`.
#[derive(Args, Debug)]
pub struct CheckHistoryArgs {
    /// The history; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The level that must hold
    #[arg(long, value_name = "LEVEL")]
    pub level: Level,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command: 0 the level holds, 1 it is violated, 2 this could not be determined or not be printed.
pub fn run(args: &CheckHistoryArgs) -> Exit {
    judged(args).unwrap_or_else(|why| {
        eprintln!("hihooi: {why}");
        Exit::Unknown
    })
}

fn judged(args: &CheckHistoryArgs) -> Result<Exit> {
    let history =
        read(args).map_err(|why| Failure::new(format!("{}: {why}", args.file.display())))?;
    let report = Report::of(&history, args.level);
    print::results(&if args.json { report.json() } else { report.text() })?;
    Ok(Exit::answer(report.verdict.holds()))
}

fn read(args: &CheckHistoryArgs) -> std::result::Result<History, String> {
    let history = if args.file.as_os_str() == "-" {
        History::read(std::io::stdin().lock())
    } else {
        let file = File::open(&args.file).map_err(|error| plain(&error))?;
        if file.metadata().is_ok_and(|file| file.is_dir()) {
            return Err("a directory, not a file".to_owned());
        }
        History::read(BufReader::with_capacity(1 << 20, file))
    };
    match history {
        // Who recorded nothing has tested nothing.
        Ok(history) if history.is_empty() => {
            Err("no transactions in it: no line has \"f\": \"txn\"".to_owned())
        }
        history => history.map_err(|bad| bad.to_string()),
    }
}

/// What is said about a history.
struct Report {
    verdict: Verdict,
    strongest: Vec<Level>,
    /// Why each of the next stronger levels doesn't hold.
    stronger: Vec<(Level, String)>,
}

#[derive(Serialize)]
struct Json<'a> {
    level: &'static str,
    holds: bool,
    strongest: Vec<&'static str>,
    seen: Summary,
    anomalies: &'a [hihooi_check::Anomaly],
    notes: Vec<String>,
}

impl Report {
    fn of(history: &History, level: Level) -> Report {
        let mut judge = Judge::new(history);
        let strongest = judge.strongest();
        let denied: Vec<Level> =
            Level::ALL.into_iter().filter(|level| !judge.verdict(*level).holds()).collect();
        // Of the levels that don't hold, those that imply no other of them; of two that ask for
        // the same, the first.
        let weakest = |level: &&Level| {
            let before = |other: Level| !other.implies(**level) || other < **level;
            !denied.iter().any(|&other| level.implies(other) && before(other))
        };
        let why = |level: &Level| (*level, in_short(&judge.verdict(*level)));
        let stronger = denied.iter().filter(weakest).map(why).collect();
        Report { verdict: judge.verdict(level), strongest, stronger }
    }

    fn json(&self) -> String {
        let json = Json {
            level: self.verdict.level.name(),
            holds: self.verdict.holds(),
            strongest: self.strongest.iter().map(|level| level.name()).collect(),
            seen: self.verdict.summary,
            anomalies: &self.verdict.anomalies,
            notes: notes(&self.verdict.summary),
        };
        format!("{}\n", serde_json::to_string_pretty(&json).expect("plain data"))
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.verdict);
        let mut line = |line: &str| {
            text.push_str(line);
            text.push('\n');
        };
        line(&format!("seen: {}", self.verdict.summary));
        let names: Vec<&str> = self.strongest.iter().map(|level| level.name()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        line(&format!("strongest levels that hold: {names}"));
        for (level, why) in &self.stronger {
            line(&format!("not {level}: {why}"));
        }
        for note in notes(&self.verdict.summary) {
            line(&format!("note: {note}"));
        }
        text
    }
}

/// The first anomaly, in one line.
fn in_short(verdict: &Verdict) -> String {
    let Some(first) = verdict.anomalies.first() else { return String::new() };
    let who: Vec<String> = first.transactions.iter().map(|number| format!("T{number}")).collect();
    format!("{} ({})", first.kind, who.join(", "))
}

/// What couldn't be judged.
fn notes(seen: &Summary) -> Vec<String> {
    let mut notes = Vec::new();
    if seen.registers > 0 {
        notes.push(
            "a read of a register shows one version: the order of two is known where a \
             transaction read one and wrote the other or saw something else that the one's \
             writer wrote, and, for the levels that know of these, where the order of a process \
             or of time tells it; an anomaly that depends on another order can't be seen"
                .to_owned(),
        );
    }
    if seen.appends_unread > 0 {
        notes.push(format!(
            "{} appends were never read, so that their order is not known; final reads would \
             tell whether they are lost",
            seen.appends_unread
        ));
    }
    notes
}
