//! `hihooi check-history`: judges a recorded history.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hihooi_check::{History, Judge, Level, Summary, Verdict};
use hihooi_postgres::cluster::plain;
use serde::Serialize;

pub const EXAMPLES: &str = "Examples:
  hihooi check-history history.jsonl --level strong-si
  hihooi check-history history.jsonl --level serializable --json
  recorder | hihooi check-history - --level strict-serializable

A history has one JSON object a line, as Jepsen writes them for its list-append and register
workloads: a transaction is invoked, and ends ok, fail or info (nobody knows how):
  {\"time\": 10, \"process\": 1, \"type\": \"invoke\", \"f\": \"txn\", \"value\": [[\"append\", \"x\", 1]]}
  {\"time\": 20, \"process\": 1, \"type\": \"ok\", \"f\": \"txn\", \"value\": [[\"append\", \"x\", 1]]}
  {\"time\": 30, \"process\": 2, \"type\": \"invoke\", \"f\": \"txn\", \"value\": [[\"r\", \"x\", null]]}
  {\"time\": 40, \"process\": 2, \"type\": \"ok\", \"f\": \"txn\", \"value\": [[\"r\", \"x\", [1]]]}
Time is in nanoseconds. Steps: append to a list, r(ead), w(rite) a register; no value is written
twice to one key, unless it failed. \"final\": true marks a read made after all clients ended, which
must show every acknowledged append. Other lines (whose f is not txn) are left out.

Levels: read-committed, si, 1-copy-si, session-si, strong-si, serializable, strict-serializable.

Exit status: 0 the level holds, 1 it is violated, 2 the history can't be read.";

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

/// Runs the command.
pub fn run(args: &CheckHistoryArgs) -> ExitCode {
    let history = match read(args) {
        Ok(history) => history,
        Err(why) => {
            eprintln!("hihooi: {}: {why}", args.file.display());
            return ExitCode::from(2);
        }
    };
    let report = Report::of(&history, args.level);
    let text = if args.json { report.json() } else { report.text() };
    // A reader that has seen enough may close the pipe; the exit status still tells.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(u8::from(!report.verdict.holds()))
}

fn read(args: &CheckHistoryArgs) -> Result<History, String> {
    if args.file.as_os_str() == "-" {
        return History::read(std::io::stdin().lock()).map_err(|bad| bad.to_string());
    }
    let file = File::open(&args.file).map_err(|error| plain(&error))?;
    History::read(BufReader::with_capacity(1 << 20, file)).map_err(|bad| bad.to_string())
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
}

impl Report {
    fn of(history: &History, level: Level) -> Report {
        let mut judge = Judge::new(history);
        let strongest = judge.strongest();
        let denied: Vec<Level> =
            Level::ALL.into_iter().filter(|level| !judge.verdict(*level).holds()).collect();
        // Of the levels that don't hold, those that imply no other of them.
        let weakest = |level: &&Level| {
            !denied.iter().any(|other| level.implies(*other) && !other.implies(**level))
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
    if seen.transactions == 0 {
        notes.push("there are no transactions, so nothing could be violated".to_owned());
    }
    if seen.registers > 0 {
        notes.push(
            "registers show the order of their values only where a transaction read one and \
             wrote the next; anomalies that depend on another order can't be seen"
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
