//! A recorded history, the parts of it that can be judged, and the file that holds it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use hihooi_check::{Atom, BadHistory, History, Op, Outcome, Seen, Transaction};
use hihooi_postgres::cluster::file_error;
use serde_json::{Value, json};

use crate::failure::Result;

/// A transaction, and where it ran.
#[derive(Clone, Debug)]
pub struct Record {
    /// What its client saw.
    pub transaction: Transaction,
    /// The site that answered its reads; `primary` if it has none, or if nobody tells.
    pub site: String,
    /// Whether it reads without naming its rows.
    pub is_wide: bool,
}

impl Record {
    fn is_at_replica(&self) -> bool {
        self.site != PRIMARY
    }
}

/// The name of the primary.
pub const PRIMARY: &str = "primary";

/// A part of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// Without wide reads at replicas.
    ByKey,
    /// Of all reads only those at replicas, and all writes. Every replica follows the order of the log, so that each
    /// of these reads shows a snapshot in one order of commits (I2).
    AtReplicas,
    /// A replica's read of several rows is taken for as many reads of one row, by as many clients at once: there was
    /// a moment at which the primary had each of these rows, but not always one at which it had them all, since it
    /// may show two commits in another order than the log has them.
    RowByRow,
    /// Each row by itself: every transaction is taken for as many transactions of one row, each client for one client
    /// of each row. All sites have the same order of one row's versions.
    EachRow,
}

impl Part {
    /// Its name in file names.
    pub fn name(self) -> &'static str {
        match self {
            Part::Whole => "whole",
            Part::ByKey => "by-key",
            Part::AtReplicas => "at-replicas",
            Part::RowByRow => "row-by-row",
            Part::EachRow => "each-row",
        }
    }

    /// What it is.
    pub fn description(self) -> &'static str {
        match self {
            Part::Whole => "all reads and writes",
            Part::ByKey => "all writes, and reads that name their rows or ran at the primary",
            Part::AtReplicas => "all writes, and reads that ran at replicas",
            Part::RowByRow => "all reads and writes, replicas' reads row by row",
            Part::EachRow => "all reads and writes of each row by itself",
        }
    }

    /// The part of a history, in its order.
    pub fn of(self, records: &[Record]) -> Vec<Record> {
        match self {
            Part::Whole => records.to_vec(),
            Part::ByKey => {
                let is_in =
                    |r: &&Record| !(r.is_wide && r.is_at_replica()) || r.transaction.is_final;
                records.iter().filter(is_in).cloned().collect()
            }
            Part::AtReplicas => records.iter().filter_map(at_replicas).collect(),
            Part::RowByRow => row_by_row(records),
            Part::EachRow => each_row(records),
        }
    }
}

fn at_replicas(record: &Record) -> Option<Record> {
    let mut part = record.clone();
    if !(record.is_at_replica() || record.transaction.is_final) {
        part.transaction.ops.retain(|op| !matches!(op, Op::Read(..)));
    }
    (!part.transaction.ops.is_empty()).then_some(part)
}

fn with(record: &Record, process: i64, ops: Vec<Op>) -> Record {
    let mut part = record.clone();
    part.transaction.process = process;
    part.transaction.ops = ops;
    part
}

fn row_by_row(records: &[Record]) -> Vec<Record> {
    let mut next = 1 + records.iter().map(|r| r.transaction.process).max().unwrap_or(0);
    let mut parts = Vec::new();
    for record in records {
        if !record.is_at_replica() || record.transaction.is_final {
            parts.push(record.clone());
            continue;
        }
        for op in &record.transaction.ops {
            parts.push(with(record, next, vec![op.clone()]));
            next += 1;
        }
    }
    parts
}

fn each_row(records: &[Record]) -> Vec<Record> {
    let mut processes: HashMap<(i64, Atom), i64> = HashMap::new();
    let mut parts = Vec::new();
    for record in records {
        let mut of_keys: Vec<(Atom, Vec<Op>)> = Vec::new();
        for op in &record.transaction.ops {
            let key = key_of(op);
            match of_keys.iter_mut().find(|(known, _)| known == key) {
                Some((_, ops)) => ops.push(op.clone()),
                None => of_keys.push((key.clone(), vec![op.clone()])),
            }
        }
        for (key, ops) in of_keys {
            let fresh = processes.len() as i64;
            let process = processes.entry((record.transaction.process, key)).or_insert(fresh);
            parts.push(with(record, *process, ops));
        }
    }
    parts
}

fn key_of(op: &Op) -> &Atom {
    match op {
        Op::Append(key, _) | Op::Write(key, _) | Op::Read(key, _) => key,
    }
}

/// A history for the checker.
///
/// # Errors
/// A value was written twice.
pub fn history(records: &[Record]) -> std::result::Result<History, BadHistory> {
    let mut history = History::new();
    records.iter().try_for_each(|record| history.push(record.transaction.clone()))?;
    Ok(history)
}

/// Writes a history in Jepsen's form, as `check-history` reads it: two lines for each transaction, in the order of
/// time. The second one also has the site of its reads.
///
/// # Errors
/// What the operating system says.
pub fn write(records: &[Record], path: &Path) -> Result<()> {
    let mut lines: Vec<(i64, Value)> = records.iter().flat_map(lines).collect();
    lines.sort_by_key(|(time, _)| *time);
    let mut write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for (index, (_, line)) in lines.iter_mut().enumerate() {
            line["index"] = json!(index);
            writeln!(file, "{line}")?;
        }
        file.flush()
    };
    write().map_err(|error| file_error("write", path, &error).into())
}

fn lines(record: &Record) -> [(i64, Value); 2] {
    let transaction = &record.transaction;
    let is_committed = transaction.outcome == Outcome::Committed;
    let line = |time: i64, kind: &str, sees: bool| {
        let steps: Vec<Value> = transaction.ops.iter().map(|op| step(op, sees)).collect();
        let mut line = json!({
            "time": time, "process": transaction.process, "type": kind, "f": "txn", "value": steps,
        });
        if transaction.is_final {
            line["final"] = json!(true);
        }
        (time, line)
    };
    let kind = match transaction.outcome {
        Outcome::Committed => "ok",
        Outcome::Aborted => "fail",
        Outcome::Unknown => "info",
    };
    let mut end = line(transaction.completed.unwrap_or(transaction.invoked), kind, is_committed);
    end.1["site"] = json!(record.site);
    [line(transaction.invoked, "invoke", false), end]
}

fn step(op: &Op, sees: bool) -> Value {
    let atom = |atom: &Atom| match atom {
        Atom::Int(number) => json!(number),
        Atom::Text(text) => json!(text),
    };
    match op {
        Op::Append(key, value) => json!(["append", atom(key), atom(value)]),
        Op::Write(key, value) => json!(["w", atom(key), atom(value)]),
        Op::Read(key, Seen::List(values)) if sees => {
            json!(["r", atom(key), values.iter().map(atom).collect::<Vec<_>>()])
        }
        Op::Read(key, Seen::Value(value)) if sees => json!(["r", atom(key), atom(value)]),
        Op::Read(key, _) => json!(["r", atom(key), null]),
    }
}
