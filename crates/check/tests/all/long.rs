//! Long histories, sound ones and ones full of anomalies, are judged right, and at all: without
//! its bounds the search for witnesses would not end. How long it takes is measured by `make
//! bench-cores`.

#[path = "../../examples/long_history.rs"]
mod long_history;

use std::collections::BTreeMap;

use hihooi_check::{History, Judge, Level};
use long_history::Kept;

const TRANSACTIONS: usize = 50_000;

fn text(kept: Kept) -> String {
    let mut bytes = Vec::new();
    long_history::write(TRANSACTIONS as u64, kept, &mut bytes).expect("memory");
    String::from_utf8(bytes).expect("JSON")
}

/// Whether the strictest level holds.
fn judged(text: &str) -> bool {
    let history = History::read(text.as_bytes()).expect("a history");
    assert_eq!(history.len(), TRANSACTIONS);
    let mut judge = Judge::new(&history);
    let strongest = judge.strongest();
    strongest == [Level::StrictSerializable]
}

#[test]
fn a_long_sound_history_holds() {
    assert!(judged(&text(Kept::Lists)));
    assert!(judged(&text(Kept::Registers)));
}

/// With many violations graphs have large components, in which the search must stay bounded.
#[test]
fn a_long_history_full_of_anomalies_is_judged() {
    let lines = text(Kept::Lists);
    let stale = lines.lines().enumerate().map(|(number, line)| {
        // Every seventh answer that ends with a read lacks the last value of that list.
        let (before, last) = line.rsplit_once(',').expect("a JSON object");
        let is_read = line.contains("\"ok\"") && last.ends_with("]]]}") && !last.contains('[');
        if number % 7 == 0 && is_read { format!("{before}]]]}}") } else { line.to_owned() }
    });
    let text: Vec<String> = stale.collect();
    assert!(!judged(&text.join("\n")));
}

/// The same over registers: every seventh answer that begins with a read of one shows the value
/// that was read there long before.
#[test]
fn a_long_history_full_of_old_registers_is_judged() {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let text = text(Kept::Registers);
    let stale = text.lines().enumerate().map(|(number, line)| {
        let Some((before, steps)) = line.split_once("\"value\":[[\"r\",") else {
            return line.to_owned();
        };
        let (step, rest) = steps.split_once(']').expect("a step");
        let (key, value) = step.split_once(',').expect("key and value");
        if value == "null" || !line.contains("\"ok\"") {
            return line.to_owned();
        }
        let old = first.entry(key.to_owned()).or_insert(value.to_owned());
        let value = if number % 7 == 0 { old } else { value };
        format!("{before}\"value\":[[\"r\",{key},{value}]{rest}")
    });
    let stale: Vec<String> = stale.collect();
    assert!(!judged(&stale.join("\n")));
}
