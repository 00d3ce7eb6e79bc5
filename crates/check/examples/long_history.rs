//! Writes a long, sound history to standard output: what `hihooi check-history` is measured
//! with. Clients run transactions of one to four steps over lists that get a hundred appends
//! each, or registers that are set as often, at a store whose transactions happen in one moment
//! each.
//!
//! `cargo run --release -p hihooi-check --example long_history -- 1000000 lists > history.jsonl`

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// What keys hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// What was appended.
    Lists,
    /// What was set last.
    Registers,
}

const CLIENTS: usize = 50;
const KEYS_IN_USE: u64 = 20;
const APPENDS_A_KEY: usize = 100;

struct Store {
    kept: Kept,
    lists: BTreeMap<u64, Vec<u64>>,
    next_key: u64,
}

impl Store {
    /// Runs a transaction in one moment; its steps as asked and as answered.
    fn run(&mut self, rng: &mut Pcg64, value: &mut u64) -> (String, String) {
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        for _ in 0..rng.random_range(1..=4) {
            let open: Vec<u64> = self.lists.keys().copied().collect();
            let key = open[rng.random_range(0..open.len())];
            let list = self.lists.get_mut(&key).expect("an open key");
            if rng.random_bool(0.5) {
                *value += 1;
                list.push(*value);
                let what = if self.kept == Kept::Lists { "append" } else { "w" };
                let text = format!("[\"{what}\",{key},{value}]");
                asked.push(text.clone());
                answered.push(text);
                if list.len() >= APPENDS_A_KEY {
                    self.lists.remove(&key);
                    self.lists.insert(self.next_key, Vec::new());
                    self.next_key += 1;
                }
            } else {
                let seen: Vec<String> = list.iter().map(u64::to_string).collect();
                let seen = match (self.kept, seen.last()) {
                    (Kept::Lists, _) => format!("[{}]", seen.join(",")),
                    (Kept::Registers, last) => last.cloned().unwrap_or("null".to_owned()),
                };
                asked.push(format!("[\"r\",{key},null]"));
                answered.push(format!("[\"r\",{key},{seen}]"));
            }
        }
        (asked.join(","), answered.join(","))
    }
}

/// Writes a history of so many transactions.
pub fn write(count: u64, kept: Kept, mut out: impl Write) -> std::io::Result<()> {
    let mut rng = Pcg64::seed_from_u64(1);
    let lists = (0..KEYS_IN_USE).map(|key| (key, Vec::new())).collect();
    let mut store = Store { kept, lists, next_key: KEYS_IN_USE };
    let mut line = |time: u64, process: usize, kind: &str, steps: &str| {
        writeln!(
            out,
            "{{\"time\":{time},\"process\":{process},\"type\":\"{kind}\",\"f\":\"txn\",\
             \"value\":[{steps}]}}"
        )
    };
    let mut open: Vec<Option<String>> = vec![None; CLIENTS];
    let (mut time, mut begun, mut value) = (0, 0, 0);
    while begun < count || open.iter().any(Option::is_some) {
        time += rng.random_range(1..2_000);
        let client = rng.random_range(0..CLIENTS);
        match open[client].take() {
            Some(answered) => line(time, client, "ok", &answered)?,
            None if begun < count => {
                let (asked, answered) = store.run(&mut rng, &mut value);
                line(time, client, "invoke", &asked)?;
                open[client] = Some(answered);
                begun += 1;
            }
            None => {}
        }
    }
    Ok(())
}

#[allow(dead_code, reason = "a test takes the rest of this file")]
fn main() -> std::io::Result<()> {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000_u64);
    let registers = std::env::args().nth(2).is_some_and(|kept| kept == "registers");
    let kept = if registers { Kept::Registers } else { Kept::Lists };
    write(count, kept, BufWriter::new(std::io::stdout().lock()))
}
