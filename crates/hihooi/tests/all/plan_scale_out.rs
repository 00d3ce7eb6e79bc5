//! `hihooi plan scale-out` as a user sees it: the closed form of full replication and the
//! saturation example of the SIPRe paper's section 3, its figures, and what is said to bad input.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const LOAD: &str = "--updates 0.2 --write-overhead 0.15";

const SATURATION: &str = r#"
write_overhead = 0.75
[[site]]
name = "s1"
[[site]]
name = "s2"
[[site]]
name = "s3"
[[object]]
name = "O1"
updates = 1.0
sites = ["s1", "s3"]
[[object]]
name = "O2"
updates = 1.0
sites = ["s2", "s3"]
"#;

fn scale_out(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hihooi"))
        .args(["plan", "scale-out"])
        .args(arguments.split_whitespace())
        .output()
        .expect("the program runs")
}

fn answer(arguments: &str) -> String {
    let output = scale_out(arguments);
    assert!(output.status.success(), "{arguments}: {output:?}");
    assert!(output.stderr.is_empty(), "results alone: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What is said to bad input: exit status 2, nothing on standard output.
fn refused(arguments: &str) -> String {
    let output = scale_out(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
    assert!(output.stdout.is_empty(), "{arguments}: {output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("a file");
    path
}

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|found| found == line)
}

#[test]
fn full_replication_prints_the_closed_form() {
    for (sites, line) in [(1, "1.0"), (40, "18.4"), (100, "25.2")] {
        let text = answer(&format!("--sites {sites} --copies full {LOAD}"));
        assert!(has_line(&text, &format!("scale-out: {line}")), "{text}");
    }
    let text = answer(&format!("--sites 100 --copies half {LOAD}"));
    assert!(has_line(&text, "scale-out: 40.5"), "{text}");
    let text = answer(&format!("--sites 100 --copies 5 {LOAD}"));
    assert!(has_line(&text, "scale-out: 89.3"), "{text}");
}

#[test]
fn equal_sites_are_told_together_and_the_limit_is_named() {
    let text = answer(&format!("--sites 100 --copies 5 --full-sites 1 {LOAD}"));
    assert_eq!(
        text,
        "scale-out: 33.3

sites                  local work  applied writes    used
site1                        0.0%          100.0%  100.0%
site2 to site100 (99)       33.7%            4.0%   37.7%

limit: site1 is full, with 100.0% of the capacity applying other sites' writes; more capacity at \
the other sites adds nothing
"
    );
}

/// SIPRe paper, section 3.2: s1 and s2 can use two thirds of their capacity.
#[test]
fn a_model_file_gives_the_saturation_example() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, "model.toml", SATURATION);
    let text = answer(&format!("--model {}", path.display()));
    assert!(has_line(&text, "scale-out: 1.3"), "{text}");
    assert!(has_line(&text, "s1, s2       66.7%            0.0%   66.7%"), "{text}");
    let json = answer(&format!("--json --model {}", path.display()));
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    assert!((number(&value["scale_out"]) - 4.0 / 3.0).abs() < 1e-6, "{json}");
    assert!((number(&value["sites"][2]["used"]) - 1.0).abs() < 1e-6, "{json}");
    assert_eq!(value["sites"][2]["bottleneck"], true, "{json}");
    assert_eq!(value["sites"][0]["bottleneck"], false, "{json}");
    let full = SATURATION.replace(r#"["s1", "s3"]"#, r#""all""#);
    let path = file(&folder, "all.toml", &full.replace("updates = 1.0", "updates = 0.0"));
    assert!(has_line(&answer(&format!("--model {}", path.display())), "scale-out: 3.0"));
}

#[test]
fn the_figures_are_drawn_with_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scale.svg");
    let text = answer(&format!("--sites 30 --copies full {LOAD} --plot {}", path.display()));
    assert!(has_line(&text, "scale-out: 16.0"), "{text}");
    let svg = fs::read_to_string(&path).expect("the picture");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for words in ["full replication (16.0)", "hybrid: 1 full site, 5 copies", "N/2 copies", "sites"]
    {
        assert!(svg.contains(words), "{words}");
    }
    assert!(svg.matches("<polyline").count() >= 8, "three and five curves");
    refused(&format!("--sites 3 --copies full {LOAD} --plot /no/such/folder/scale.svg"));
}

#[test]
fn bad_input_is_one_clear_line() {
    let one_line = |arguments: &str, words: &str| {
        let said = refused(arguments);
        assert_eq!(said.lines().count(), 1, "{said:?}");
        assert!(said.contains(words), "{words:?} is not in {said:?}");
    };
    one_line(&format!("--sites 4 --copies 9 {LOAD}"), "there are 9 copies, there must be 1 to 4");
    one_line(&format!("--sites 0 --copies full {LOAD}"), "0 sites");
    one_line(&format!("--sites 10000000000 --objects 1 --copies 2 {LOAD}"), "1 to 1000");
    one_line(&format!("--sites 3 --full-sites 10000000000 --copies full {LOAD}"), "1 to 3");
    one_line(&format!("--sites 1000 --objects 100000 --copies full {LOAD}"), "1 to 2000000");
    one_line("--model /dev/zero", "too large");
    one_line("--model /no/such/file", "/no/such/file");
    let folder = tempfile::tempdir().expect("a folder");
    let model = |from: &str, to: &str, words: &str| {
        let path = file(&folder, "bad.toml", &SATURATION.replace(from, to));
        one_line(&format!("--model {}", path.display()), words);
    };
    model("updates = 1.0", "updates = 1.5", "the update share of object O1 is 1.5");
    model("name = \"s2\"", "name = \"s1\"", "two sites are called s1");
    model("name = \"O2\"", "name = \"O1\"", "two objects are called O1");
    model("\"s2\", \"s3\"", "\"s2\", \"s4\"", "object O2 names unknown site s4");
    model("\"s2\", \"s3\"", "\"s2\", \"s2\"", "object O2 names a site twice");
    model("[\"s2\", \"s3\"]", "[]", "no site holds object O2");
    model("[\"s2\", \"s3\"]", "\"some\"", "or \"all\"");
    model("write_overhead", "overhead", "line 2: unknown field `overhead`");
    model("name = \"s1\"", "name = \"s1\"\nsize = 3", "unknown field `size`");
    model("name = \"s1\"", "name = \"s1\"\ncapacity = 0", "the capacity of site s1 is 0");
    model("[[site]]", "[[site]", "line 3");
    for arguments in ["", "--sites 4", "--sites 4 --copies some --updates 0.2 --write-overhead 0.1"]
    {
        refused(arguments);
    }
    for (arguments, words) in [
        ("--sites 4 --copies full --updates -0.2 --write-overhead 0.1", "'-0.2' for '--updates"),
        ("--sites -1 --copies full --updates 0.2 --write-overhead 0.1", "a whole number from 0 on"),
        ("--sites 4 --copies -1 --updates 0.2 --write-overhead 0.1", "nor a number from 1 on"),
        ("--model shop.toml --plot b.svg", "'--model <FILE>' cannot be used with '--plot"),
    ] {
        let said = refused(arguments);
        assert!(said.contains(words), "{words:?} is not in {said:?}");
    }
    let said = refused("--sites 4 --copies full --updates 2 --write-overhead 0.1");
    assert!(said.contains("'2' for '--updates <U>': it is not a number from 0 to 1"), "{said}");
}

/// A reader that has seen enough closes the pipe: no panic.
#[test]
fn a_closed_pipe_is_no_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hihooi"));
    command.args(["plan", "scale-out", "--copies", "full", "--sites", "9"]);
    command.args(LOAD.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("hihooi runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("hihooi ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn help_has_examples() {
    let text = answer("--help");
    assert!(text.contains("Examples:") && text.contains("[[object]]"), "{text}");
}
