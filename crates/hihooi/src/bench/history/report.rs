//! Prints the results for a recording.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use hihooi_check::Summary;

use super::client::Counts;
use super::promise::Judged;
use super::recording::{PRIMARY, Part};
use super::{Injected, Recorded};
use crate::config::Level;

/// The whole report. `files` hold the parts that break the promise.
pub fn text(
    level: Level,
    judged: &[Judged],
    summary: &Summary,
    recorded: &Recorded,
    files: &[(Part, PathBuf)],
) -> String {
    let kept = judged.iter().all(|judged| judged.verdict.holds());
    let mut text = format!("{level} {}\n", if kept { "holds" } else { "is violated" });
    for judged in judged {
        let (part, verdict) = (judged.part, &judged.verdict);
        // Its first line tells the level and whether it holds.
        let _ = write!(text, "\n{}: {verdict}", part.description());
        for (_, file) in files.iter().filter(|(of, _)| *of == part) {
            let _ = writeln!(
                text,
                "judge it again: hihooi check-history {} --level {}",
                file.display(),
                verdict.level
            );
        }
    }
    let _ = write!(text, "\n{}", figures(summary, recorded));
    text
}

fn figures(summary: &Summary, recorded: &Recorded) -> String {
    let counts = &recorded.counts;
    let mut text = format!(
        "sessions ran {} transactions in {:.1} s: {} committed, {}, {} of unknown outcome\n\
         the checker saw {summary}\n",
        counts.committed + counts.all_failed() + counts.unknown,
        recorded.elapsed.as_secs_f64(),
        counts.committed,
        failures(counts),
        counts.unknown
    );
    for ((site, reason), reads) in &counts.reads {
        let _ = writeln!(text, "reads at {site}, {reason}: {reads}");
    }
    if let Some(discarded) = recorded.discarded {
        let _ = writeln!(text, "answers of replicas that were discarded: {discarded}");
    }
    text + &faults(&recorded.injected) + note(counts)
}

fn note(counts: &Counts) -> &'static str {
    match counts.reads.keys().any(|(site, _)| site != PRIMARY) {
        true => "",
        false => "note: no read ran at a replica, so that only the primary was judged\n",
    }
}

/// Which transactions failed.
pub fn failures(counts: &Counts) -> String {
    let all = counts.all_failed();
    match all {
        0 => "0 failed".to_owned(),
        _ => format!("{all} failed ({})", listed(&counts.failed)),
    }
}

fn faults(injected: &Injected) -> String {
    let mut text = String::new();
    if !injected.done.is_empty() {
        let _ = writeln!(text, "faults: {}", listed(&injected.done));
    }
    if let Some(why) = &injected.why {
        let _ =
            writeln!(text, "faults that were refused: {} (last: {why})", listed(&injected.failed));
    }
    text
}

/// `40001: 12, lost: 3`.
fn listed(counts: &BTreeMap<String, u64>) -> String {
    let one = |(name, count): (&String, &u64)| format!("{name}: {count}");
    counts.iter().map(one).collect::<Vec<_>>().join(", ")
}
