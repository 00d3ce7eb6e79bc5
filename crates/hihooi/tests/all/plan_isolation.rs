//! `hihooi plan isolation` as a user sees it: the table, the crossover and the ratio of aborts of
//! the RSSI paper's Figure 1, JSON, the figure, and what is said to bad input.

use std::process::{Command, Output};

use serde_json::Value;

fn isolation(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hihooi"))
        .args(["plan", "isolation"])
        .args(arguments.split_whitespace())
        .output()
        .expect("the program runs")
}

fn answer(arguments: &str) -> String {
    let output = isolation(arguments);
    assert!(output.status.success(), "{arguments}: {output:?}");
    assert!(output.stderr.is_empty(), "results alone: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&answer(&format!("{arguments} --json"))).expect("JSON")
}

/// What is said to bad input: exit status 2, nothing on standard output.
fn refused(arguments: &str) -> String {
    let output = isolation(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
    assert!(output.stdout.is_empty(), "{arguments}: {output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// The lines of the table that begin with these words.
fn rows<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let begins =
        |line: &&str| line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(start);
    text.lines().filter(begins).collect()
}

/// RSSI paper, section 6.3: three times as many aborts on updates alone, and about equal throughput
/// with half queries.
#[test]
fn a_sweep_prints_every_protocol_the_ratio_and_the_crossover() {
    let text = answer("");
    for share in ["0 %", "25 %", "50 %", "75 %", "100 %"] {
        for certifier in ["rsi", "cp-roo", "rssi"] {
            assert_eq!(rows(&text, &format!("{share} {certifier} ")).len(), 1, "{text}");
        }
    }
    let number = |start: &str, before: &str| -> f64 {
        let line = rows(&text, start)[0];
        let words: Vec<&str> = line.split_whitespace().collect();
        let place = words.iter().position(|word| *word == before).expect("a word");
        words[place - 1].parse().expect("a number")
    };
    assert!(number("rw-conflicts:", "times") >= 3.0, "{text}");
    assert!((35.0..65.0).contains(&number("crossover:", "%")), "{text}");
}

#[test]
fn json_has_what_the_table_has() {
    let value = json("--read-only 0,100 --certifier cp-roo,rssi --mpl 40 --seconds 5 --seed 7");
    assert_eq!(value["clients"], 40);
    assert_eq!(value["workload"]["rows"], 100_000);
    let runs = value["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 4);
    assert_eq!(
        (&runs[1]["certifier"], &runs[1]["read_only_percent"]),
        (&"rssi".into(), &0.0.into())
    );
    assert!(runs[0]["write"]["aborts"]["read_impact"].as_u64() > Some(0), "{value}");
    assert!(value["crossover_read_only_percent"].as_f64().is_some(), "{value}");
}

#[test]
fn a_seed_gives_the_same_answer_whatever_the_processors_do() {
    let arguments = "--read-only 0,50 --seconds 3 --phantoms --no-retry --own-managers --seed";
    assert_eq!(answer(&format!("{arguments} 5")), answer(&format!("{arguments} 5")));
    assert_ne!(answer(&format!("{arguments} 5")), answer(&format!("{arguments} 6")));
}

/// RSSI paper, section 6.2: TPC-C++ shows no difference worth speaking of.
#[test]
fn tpccpp_runs_with_its_own_mix() {
    let value = json("--workload tpcc++ --warehouses 100 --seconds 10");
    let runs = value["runs"].as_array().expect("runs");
    let throughput = |place: usize| runs[place]["throughput"].as_f64().expect("a number");
    assert_eq!(runs.len(), 3);
    assert!(runs[0]["read_only_percent"].is_null());
    assert!((throughput(2) / throughput(0) - 1.0).abs() < 0.05, "{value}");
}

#[test]
fn costs_can_be_given() {
    let value = json("--read-only 100 --certifier rsi --seconds 4 --costs read=0.1,certify=9");
    let throughput = value["runs"][0]["throughput"].as_f64().expect("a number");
    assert!((780.0..805.0).contains(&throughput), "8 sites do 800 a second: {value}");
    assert_eq!(value["costs"]["certify_ms"], 9.0);
}

#[test]
fn the_figure_is_drawn_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shares.svg");
    answer(&format!("--read-only 0,100 --seconds 1 --plot {}", path.display()));
    let svg = std::fs::read_to_string(path).expect("the figure");
    assert!(svg.contains("</svg>") && svg.contains("cp-roo"), "{svg}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    for (arguments, named) in [
        ("--reads 50 --rows 20", "--rows 20"),
        ("--workload tpcc++ --phantoms", "--phantoms"),
        ("--warehouses 3", "--warehouses"),
        ("--read-only 0 --seconds 1 --plot x.svg", "--plot"),
        ("--seconds 1 --plot /nowhere/x.svg", "/nowhere/x.svg"),
    ] {
        let said = refused(arguments);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("hihooi: ") && said.contains(named), "{arguments}: {said}");
    }
    for (arguments, named) in [
        ("--sites 0", "1..=64"),
        ("--read-only 101", "percentage"),
        ("--read-only -5", "percentage"),
        ("--mpl -1", "1..=10000"),
        ("--rows -1", "1..=4294967296"),
        ("--certifier foo", "rsi, cp-roo, rssi"),
        ("--costs read=0", "not a number from"),
        ("--costs speed=1", "no cost speed"),
    ] {
        assert!(refused(arguments).contains(named), "{arguments}");
    }
}

/// A handful of aborts is no ratio.
#[test]
fn aborts_that_are_too_few_make_no_ratio() {
    let few = "--workload tpcc++ --warehouses 5 --seconds 5 --certifier cp-roo,rssi";
    assert!(!answer(few).contains("rw-conflicts:"));
    assert!(json(few)["rw_over_descending"].is_null());
}
