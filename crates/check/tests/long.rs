//! Long histories, sound ones and ones full of anomalies, are judged right, and at all: without
//! its bounds the search for witnesses would not end. How long it takes is measured by `make
//! bench-cores`.

#[path = "../examples/long_history.rs"]
mod long_history;

use hihooi_check::{History, Judge, Level};

const TRANSACTIONS: usize = 50_000;

fn text() -> String {
    let mut bytes = Vec::new();
    long_history::write(TRANSACTIONS as u64, &mut bytes).expect("memory");
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
    assert!(judged(&text()));
}

/// With many violations graphs have large components, in which the search must stay bounded.
#[test]
fn a_long_history_full_of_anomalies_is_judged() {
    let lines = text();
    let stale = lines.lines().enumerate().map(|(number, line)| {
        // Every seventh answer that ends with a read lacks the last value of that list.
        let (before, last) = line.rsplit_once(',').expect("a JSON object");
        let is_read = line.contains("\"ok\"") && last.ends_with("]]]}") && !last.contains('[');
        if number % 7 == 0 && is_read { format!("{before}]]]}}") } else { line.to_owned() }
    });
    let text: Vec<String> = stale.collect();
    assert!(!judged(&text.join("\n")));
}
