//! Describes witnesses in sentences.

use crate::facts::Facts;
use crate::history::{Atom, Key, Outcome, Record, Step, Txn, Value};
use crate::registers::{self, By, Evidence};

/// Of longer lists only the end is shown.
const LIST_SHOWN_MAX: usize = 8;
/// Of longer transactions only so many steps are shown.
const STEPS_SHOWN_MAX: usize = 12;

/// A relation between two transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The second wrote the later version.
    Ww(Key, By),
    /// The second read what the first wrote.
    Wr(Key),
    /// The second overwrote what the first read.
    Rw(Key, By),
    /// The second began after the first in one process.
    Process,
    /// The second began when the first had ended.
    Time,
}

impl Why {
    pub fn is_rw(self) -> bool {
        matches!(self, Why::Rw(..))
    }

    pub fn key(self) -> Option<Key> {
        match self {
            Why::Ww(key, _) | Why::Wr(key) | Why::Rw(key, _) => Some(key),
            Why::Process | Why::Time => None,
        }
    }

    /// By what it holds.
    pub fn by(self) -> By {
        match self {
            Why::Ww(_, by) | Why::Rw(_, by) => by,
            Why::Wr(_) => By::Data,
            Why::Process => By::Process,
            Why::Time => By::Time,
        }
    }
}

/// One side of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub from: Txn,
    pub why: Why,
    pub to: Txn,
}

/// `T5`.
pub(crate) fn number(txn: Txn) -> String {
    format!("T{}", txn + 1)
}

/// What a transaction did with some keys.
pub(crate) fn transaction(facts: &Facts, txn: Txn, keys: &[Key]) -> String {
    let record = facts.history.record(txn);
    let of_keys = |step: &&Step| keys.contains(&key_of(step));
    let all = facts.history.steps(txn);
    let shown: Vec<&Step> = all.iter().filter(of_keys).collect();
    let mut text: Vec<String> =
        shown.iter().take(STEPS_SHOWN_MAX).map(|step| self::step(facts, record, step)).collect();
    let left_out = all.len() - text.len();
    if left_out > 0 {
        text.push(format!("({left_out} more)"));
    }
    let lines = match record.lines {
        (0, _) => String::new(),
        (begin, 0) => format!(", line {begin}"),
        (begin, end) => format!(", lines {begin} and {end}"),
    };
    format!(
        "{} (process {}, {}{lines}): {}",
        number(txn),
        record.process,
        outcome(record),
        text.join("; ")
    )
}

fn outcome(record: &Record) -> String {
    let begun = ms(record.invoked);
    let ended = || if record.completed == i64::MAX { "?".to_owned() } else { ms(record.completed) };
    match record.outcome {
        Outcome::Committed => format!("committed, {begun} to {} ms", ended()),
        Outcome::Aborted => format!("aborted, {begun} to {} ms", ended()),
        Outcome::Unknown => format!("unknown outcome, from {begun} ms"),
    }
}

fn ms(ns: i64) -> String {
    let (ms, rest) = (ns.div_euclid(1_000_000), ns.rem_euclid(1_000_000));
    let text = format!("{ms}.{rest:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn key_of(step: &Step) -> Key {
    match *step {
        Step::Append(key, _)
        | Step::Write(key, _)
        | Step::List { key, .. }
        | Step::Register(key, _)
        | Step::Nothing(key) => key,
    }
}

fn step(facts: &Facts, record: &Record, step: &Step) -> String {
    let name = |key| quoted(facts.history.key_name(key));
    let value = |value| quoted(facts.history.value_name(value));
    match *step {
        Step::Append(key, v) => format!("append {} to {}", value(v), name(key)),
        Step::Write(key, v) => format!("write {} = {}", name(key), value(v)),
        _ if record.outcome != Outcome::Committed => format!("read {}", name(key_of(step))),
        Step::List { key, start, len } => {
            format!("read {} = {}", name(key), list(facts, facts.history.elements(start, len)))
        }
        Step::Register(key, v) => format!("read {} = {}", name(key), value(v)),
        Step::Nothing(key) => format!("read {} = nothing", name(key)),
    }
}

/// A list, or its end.
pub(crate) fn list(facts: &Facts, values: &[Value]) -> String {
    let shown = &values[values.len().saturating_sub(LIST_SHOWN_MAX)..];
    let mut text: Vec<String> =
        shown.iter().map(|&value| quoted(facts.history.value_name(value))).collect();
    if shown.len() < values.len() {
        text.insert(0, format!("({} before)", values.len() - shown.len()));
    }
    format!("[{}]", text.join(" "))
}

/// A name; a text that looks like a number or has spaces gets quotes.
pub(crate) fn quoted(atom: &Atom) -> String {
    let plain = |text: &str| {
        text.parse::<f64>().is_err()
            && !text.is_empty()
            && !text.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    match atom {
        Atom::Text(text) if !plain(text) => format!("{text:?}"),
        atom => atom.to_string(),
    }
}

/// A link in words.
pub(crate) struct Explanation {
    pub because: String,
    /// The transactions that it needs: the two of the link, and those that tell the order of their
    /// versions.
    pub of: Vec<Txn>,
}

/// Why one transaction comes before another, in a sentence.
pub(crate) fn link(facts: &Facts, link: &Link) -> Explanation {
    let (from, to) = (number(link.from), number(link.to));
    let name = |key| quoted(facts.history.key_name(key));
    let wrote = |txn, key| join(facts, &written(facts, txn, key));
    let mut why = match link.why {
        Why::Process => "it ended earlier in the same process".to_owned(),
        Why::Time => format!("it had ended {}", when(facts, link.from, &to, link.to)),
        Why::Ww(key, _) => {
            format!(
                "in {} what {to} wrote ({}) is behind what it wrote",
                name(key),
                wrote(link.to, key)
            )
        }
        Why::Wr(key) => {
            format!("{to} saw what it wrote to {} ({})", name(key), wrote(link.from, key))
        }
        Why::Rw(key, _) => {
            format!("it read {} without what {to} wrote ({})", name(key), wrote(link.to, key))
        }
    };
    let mut of = vec![link.from, link.to];
    if let Some(evidence) = registers::evidence(facts, link) {
        let later = if link.why.is_rw() { ", which is later" } else { "" };
        why = format!("{why}{later}: {}", order(facts, &evidence));
        of.extend([evidence.known_to, evidence.later_known_to]);
    }
    Explanation { because: format!("{from} before {to}: {why}"), of }
}

/// What tells the order of two versions.
fn order(facts: &Facts, evidence: &Evidence) -> String {
    let Evidence { by, key, known_to, later_known_to, .. } = *evidence;
    let knew = |txn: Txn, writer: Txn| {
        let verb = if txn == writer { "wrote" } else { "saw" };
        format!("{verb} {}", join(facts, &written(facts, writer, key)))
    };
    let (one, knew_one) = (number(known_to), knew(known_to, evidence.earlier));
    let (other, knew_other) = (number(later_known_to), knew(later_known_to, evidence.later));
    match by {
        By::Time => {
            let other = format!("{other}, which {knew_other},");
            let when = when(facts, known_to, &other, later_known_to);
            format!("{one}, which {knew_one}, had ended {when}")
        }
        By::Seen => {
            let through = registers::saw(facts, later_known_to, known_to, key);
            let through = through.map_or(String::new(), |key| {
                let values = join(facts, &written(facts, known_to, key));
                format!(" to {} ({values})", quoted(facts.history.key_name(key)))
            });
            format!("{other}, which {knew_other}, saw what {one} wrote{through}")
        }
        _ => format!("{one} {knew_one}, and {other}, later in the same process, {knew_other}"),
    }
}

/// That one had ended when another began.
fn when(facts: &Facts, ended: Txn, who: &str, begun: Txn) -> String {
    format!(
        "at {} ms when {who} began at {} ms",
        ms(facts.history.record(ended).completed),
        ms(facts.history.record(begun).invoked)
    )
}

/// What a transaction wrote to a key, in order.
pub(crate) fn written(facts: &Facts, txn: Txn, key: Key) -> Vec<Value> {
    let of_key = |step: &Step| match *step {
        Step::Append(k, value) | Step::Write(k, value) if k == key => Some(value),
        _ => None,
    };
    facts.history.steps(txn).iter().filter_map(of_key).collect()
}

fn join(facts: &Facts, values: &[Value]) -> String {
    let text: Vec<String> =
        values.iter().map(|&value| quoted(facts.history.value_name(value))).collect();
    text.join(", ")
}
