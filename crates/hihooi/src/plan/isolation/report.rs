//! The results as a table and as JSON.

use std::fmt::Write;

use hihooi_sim::isolation::report::{Class, Report};
use serde_json::{Value, json};

use crate::plan::isolation::runs::{Run, Runs, Workload, may_cross, overtaken_at, rw_over_ds};

/// What the columns are.
const HEAD: &str = "
                                         | queries | writing transactions                       \
  | queries, ms     | writers, ms
read-only   certifier commits/s  aborted |      DS |     WW     RW     DS  (peak follow trailing) \
|    mean     p99 |    mean     p99
";

/// For people.
pub fn text(runs: &Runs, results: &[Run]) -> String {
    let lines: String = results.iter().map(line).collect();
    heading(runs) + HEAD + &lines + &findings(runs, results)
}

fn heading(runs: &Runs) -> String {
    let setup = &runs.setup;
    let workload = match &runs.workload {
        Workload::Ssibench(it) => {
            let phantoms = if it.phantoms { ", as phantoms" } else { "" };
            format!(
                "ssibench: 3 tables of {} rows, {} read, {} written ({:.0} % insert{phantoms})",
                it.rows,
                it.reads,
                it.writes,
                100.0 * it.inserts
            )
        }
        Workload::Tpccpp(warehouses) => format!("tpcc++: {warehouses} warehouses"),
    };
    let retry = if setup.retry { "repeating what aborts" } else { "giving up what aborts" };
    let managers = if setup.own_managers { "managers have processors of their own; " } else { "" };
    format!(
        "{workload}\n{} sites, {} clients {retry}; {managers}{} s simulated after {} s of ramp-up, \
         seed {}\n",
        setup.sites,
        setup.clients,
        setup.seconds,
        setup.seconds / 2.0,
        setup.seed
    )
}

fn line(run: &Run) -> String {
    let report = &run.report;
    let (queries, writers) = (&report.read_only, &report.write);
    let aborts = &writers.aborts;
    let roles = [aborts.descending_peak, aborts.descending_follow, aborts.descending_trailing];
    format!(
        "{:>9} {:>11} {:>9.1} {:>8} | {:>7} | {:>6} {:>6} {:>6}  {:<22} | {} | {}{}\n",
        share(run.share),
        run.protocol.name(),
        report.throughput,
        percent(report.abort_share),
        part(queries.aborts.descending(), queries),
        part(aborts.write_conflict, writers),
        part(aborts.read_impact, writers),
        part(aborts.descending(), writers),
        format!("({})", roles.map(|count| count.to_string()).join(" ")),
        times(queries),
        times(writers),
        too_old(report)
    )
}

/// A part of the transactions, as it was asked for.
fn share(part: Option<f64>) -> String {
    part.map_or("own mix".to_owned(), |part| format!("{} %", (1e8 * part).round() / 1e6))
}

fn percent(part: f64) -> String {
    if part > 0.0 && part < 5e-4 { "<0.1 %".to_owned() } else { format!("{:.1} %", 100.0 * part) }
}

fn part(count: u64, class: &Class) -> String {
    match class.attempts() {
        0 => "-".to_owned(),
        attempts => percent(count as f64 / attempts as f64),
    }
}

/// Mean and 99th percentile.
fn times(class: &Class) -> String {
    if class.commits == 0 {
        return format!("{:>7} {:>7}", "-", "-");
    }
    format!("{:>7.1} {:>7.0}", class.response_mean_ms, class.response_p99_ms)
}

/// Only at the certifiers' bounds.
fn too_old(report: &Report) -> String {
    match report.aborts().too_old {
        0 => String::new(),
        count => format!("  {count} too old"),
    }
}

fn findings(runs: &Runs, results: &[Run]) -> String {
    let mut text = String::from("\n");
    if let (Some(ratio), Some(first)) = (rw_over_ds(results), results.first()) {
        let mix = match first.share {
            Some(_) => share(first.share) + " read-only",
            None => "the workload's own mix".to_owned(),
        };
        let _ = writeln!(
            text,
            "rw-conflicts: at {mix}, cp-roo aborts {ratio:.1} times as often for them as rssi \
             for descending structures"
        );
    }
    if may_cross(runs) {
        let _ = match overtaken_at(results) {
            Some(at) => {
                let at = 100.0 * at;
                writeln!(text, "crossover: cp-roo overtakes rssi at {at:.0} % read-only")
            }
            None => writeln!(text, "crossover: none between these shares"),
        };
    }
    text
}

/// For programs: one object.
pub fn json(runs: &Runs, results: &[Run]) -> String {
    let setup = &runs.setup;
    let result = |run: &Run| {
        let mut value = json!(run.report);
        value["read_only_percent"] = json!(run.share.map(|share| 100.0 * share));
        value["certifier"] = json!(run.protocol);
        value
    };
    let value = json!({
        "workload": workload(&runs.workload),
        "sites": setup.sites,
        "clients": setup.clients,
        "retry": setup.retry,
        "own_managers": setup.own_managers,
        "seconds": setup.seconds,
        "seed": setup.seed,
        "costs": setup.costs,
        "runs": results.iter().map(result).collect::<Vec<Value>>(),
        "rw_over_descending": rw_over_ds(results),
        "crossover_read_only_percent": overtaken_at(results).map(|share| 100.0 * share),
    });
    format!("{value:#}\n")
}

fn workload(workload: &Workload) -> Value {
    match workload {
        Workload::Ssibench(it) => json!({
            "name": "ssibench",
            "rows": it.rows,
            "reads": it.reads,
            "writes": it.writes,
            "inserts_percent": 100.0 * it.inserts,
            "phantoms": it.phantoms,
        }),
        Workload::Tpccpp(warehouses) => json!({ "name": "tpcc++", "warehouses": warehouses }),
    }
}
