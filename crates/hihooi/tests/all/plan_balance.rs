//! `hihooi plan balance` from outside: assignments, tables, JSON, and one clear line for what
//! can't be done (vDBSM paper, sections 4 and 5; issue "the protocol cores", planning tools).

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn balance(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hihooi"));
    command.args(["plan", "balance"]).args(arguments).output().expect("hihooi starts")
}

fn printed(arguments: &[&str]) -> String {
    let output = balance(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    let text = printed(&[arguments, &["--json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// The one line of a refusal with exit status 2.
fn refused(arguments: &[&str]) -> String {
    let output = balance(arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?} {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("hihooi: "), "{said}");
    said
}

struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    fn new(text: &str) -> File {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("workload.toml");
        std::fs::write(&path, text).expect("the file is written");
        File { _folder: folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("text")
    }
}

fn refused_file(text: &str) -> String {
    let file = File::new(text);
    let line = refused(&["--servers", "2", "--workload", file.path()]);
    assert!(line.contains("workload.toml: "), "{line}");
    line
}

/// The ten transactions of the vDBSM paper's section 4.3.
fn ten() -> File {
    let text: String = (1..=10)
        .map(|t| {
            let kind = if t % 2 == 0 { "even" } else { "odd" };
            format!("[[transaction]]\nname = \"T{t}\"\nweight = {t}\nwrites = [\"{kind}\"]\n\n")
        })
        .collect();
    File::new(&text)
}

fn assignment(policy: &[&str]) -> Vec<Vec<String>> {
    let file = ten();
    let arguments = ["--servers", "4", "--order", "weight", "--workload", file.path()];
    let value = json(&[policy, &arguments].concat());
    let mut servers = vec![Vec::new(); 4];
    for each in value["results"][0]["assignment"].as_array().expect("an assignment").iter().rev() {
        let server = each["server"].as_u64().expect("a number") as usize;
        servers[server - 1].push(each["transaction"].as_str().expect("a name").to_owned());
    }
    servers
}

/// Section 4.3, all three assignments.
#[test]
fn the_papers_example_from_a_file() {
    let none: [&str; 0] = [];
    assert_eq!(
        assignment(&["--policy", "mcf"]),
        [&["T10", "T8", "T6", "T4", "T2"][..], &["T9", "T7", "T5", "T3", "T1"], &none, &none]
    );
    assert_eq!(
        assignment(&["--policy", "mpf", "--factor", "1"]),
        [&["T10", "T3", "T2"][..], &["T9", "T4", "T1"], &["T8", "T5"], &["T7", "T6"]]
    );
    assert_eq!(
        assignment(&["--policy", "mpf", "--factor", "0.8"]),
        [&["T10", "T4", "T2"][..], &["T9", "T3"], &["T8", "T6"], &["T7", "T5", "T1"]]
    );
}

/// The same for a person: loads 16, 12, 14 and 13 of 55, even and odd ones on two servers each.
#[test]
fn text_for_a_person() {
    let file = ten();
    let mpf = ["--policy", "mpf", "--factor", "0.8", "--order", "weight"];
    let text = printed(&[&mpf[..], &["--servers", "4", "--workload", file.path()]].concat());
    let expected = "\
policy: mpf 0.8, servers: 4, transactions: 10, order: weight, seed: 1

server     load  updates  transactions
     1   29.1 %   29.1 %  T10 T4 T2
     2   21.8 %   21.8 %  T9 T3
     3   25.5 %   25.5 %  T8 T6
     4   23.6 %   23.6 %  T7 T5 T1

overlapping ratio: the row's update weight that conflicts with the column
             1       2       3       4
     1       -   0.0 % 100.0 %   0.0 %
     2   0.0 %       -   0.0 % 100.0 %
     3 100.0 %   0.0 %       -   0.0 %
     4   0.0 % 100.0 %   0.0 %       -

load: 21.8 % to 29.1 %
servers with updates: 4 of 4
overlapping ratio, mean: 33.3 %
conflicting weight across servers: 49.8 %
";
    assert_eq!(text, expected);
}

fn compared(arguments: &[&str]) -> (Vec<String>, impl Fn(&str) -> Vec<f64> + use<>, Value) {
    let value = json(&[&["--policy", "all", "--servers", "8", "--tpcc", "4"], arguments].concat());
    let results = value["results"].as_array().expect("results").clone();
    let names = results.iter().map(|each| each["policy"].as_str().expect("a name").to_owned());
    let names: Vec<String> = names.collect();
    let of_each =
        move |key: &str| results.iter().map(|each| each[key].as_f64().expect("a number")).collect();
    (names, of_each, value)
}

/// Section 5.2, as whoever types the README's example sees it: MCF keeps updates at 4 of 8
/// servers; the overlapping ratio of MPF 0.5 is much lower than those of Random and MPF 1.
#[test]
fn tpcc_policies_compared() {
    let (names, of_each, value) = compared(&[]);
    assert_eq!(names, ["mcf", "mpf 0.5", "mpf 1", "least-loaded", "round-robin", "random"]);
    assert_eq!(value["transactions"], 200);
    let (across, overlap) =
        (of_each("conflicting_weight_across_servers"), of_each("overlapping_ratio_mean"));
    assert!(across[0] < 0.1 && across[0] < across[1] && across[1] < 0.6 && across[5] > 0.8);
    assert!(overlap[0] < overlap[1] / 2.0 && overlap[1] < overlap[2] / 1.3, "{overlap:?}");
    assert!(overlap[1] < overlap[5] / 2.0 && overlap[5] > 0.95, "{overlap:?}");
    assert_eq!(of_each("servers_with_updates")[0], 4.0);
    let text = printed(&["--servers", "8", "--tpcc", "4"]);
    let row = text.lines().find(|line| line.starts_with("mcf")).expect("a row");
    assert!(row.contains(" 4 ") && row.trim_end().ends_with(" %"), "{text}");
    assert_eq!(text.lines().count(), 4 + 6, "{text}");
}

/// All types at once by the paper's relation: the setting of section 5.2.
#[test]
fn tpcc_as_the_paper_has_it() {
    let (_, of_each, value) = compared(&["--requests", "all", "--stock", "printed"]);
    assert_eq!(value["transactions"], 1644);
    let across = of_each("conflicting_weight_across_servers");
    assert!(across[0] < 0.05 && across[0] < across[1] && across[1] < 0.6 && across[5] > 0.8);
    assert_eq!(of_each("servers_with_updates")[0], 4.0);
}

/// What `--stock printed` leaves out are conflicts between orders.
#[test]
fn the_printed_relation_has_fewer_conflicts() {
    let overlap = |stock| {
        let (_, of_each, _) = compared(&["--requests", "200", "--stock", stock]);
        of_each("overlapping_ratio_mean")[1]
    };
    assert!(overlap("printed") < overlap("whole") / 1.2);
}

/// More warehouses than all types could be made of.
#[test]
fn tpcc_on_many_warehouses() {
    for warehouses in ["11", "100", "10000"] {
        let value = json(&["--policy", "mpf", "--servers", "4", "--tpcc", warehouses]);
        assert_eq!(value["transactions"], 200, "{warehouses}");
    }
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let run = |seed| {
        let random = ["--policy", "random", "--requests", "50"];
        printed(&[&random[..], &["--servers", "3", "--tpcc", "2", "--seed", seed]].concat())
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6").replace("seed: 6", "seed: 5"));
}

/// Types with parameters: one each, which share the weight; what writes nothing is read-only.
#[test]
fn types_repeat_over_their_parameters() {
    let file = File::new(
        r#"
[[transaction]]
name = "order"
weight = 40
repeat = { shop = 2, till = 2 }
reads = ["prices"]
writes = ["stock {shop}", "till {shop}/{till}"]

[[transaction]]
name = "report"
weight = 10
reads = ["stock 1", "stock 2"]
"#,
    );
    let arguments = ["--policy", "mcf", "--order", "given", "--servers", "3"];
    let value = json(&[&arguments[..], &["--workload", file.path()]].concat());
    let rows = value["results"][0]["assignment"].as_array().expect("an assignment");
    let row = |each: &Value| {
        let name = each["transaction"].as_str().expect("a name").to_owned();
        (name, each["weight"].as_f64(), each["server"].as_u64(), each["read_only"] == true)
    };
    let row_of =
        |name: &str, server, read_only| (name.to_owned(), Some(0.2), Some(server), read_only);
    assert_eq!(
        rows.iter().map(row).collect::<Vec<_>>(),
        [
            row_of("order(shop=1,till=1)", 1, false),
            row_of("order(shop=1,till=2)", 1, false),
            row_of("order(shop=2,till=1)", 2, false),
            row_of("order(shop=2,till=2)", 2, false),
            row_of("report", 3, true),
        ]
    );
}

/// The example of `--help` works as it stands there.
#[test]
fn the_example_in_help_is_valid() {
    let help = printed(&["--help"]);
    let example: String = help
        .lines()
        .skip_while(|line| line.trim() != "[[transaction]]")
        .take_while(|line| !line.starts_with("Two transactions conflict"))
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    let file = File::new(&example);
    let value = json(&["--servers", "2", "--workload", file.path()]);
    assert_eq!(value["transactions"], 5);
}

#[test]
fn bad_input_is_one_line() {
    let tpcc = ["--servers", "8", "--tpcc", "4"];
    for (arguments, words) in [
        (&["--servers", "0", "--tpcc", "4"][..], "--servers 0: must be 1 to 256"),
        (&["--servers", "-1", "--tpcc", "4"], "--servers -1: must be 1 to 256"),
        (&["--servers", "2", "--tpcc", "10001"], "--tpcc 10001: must be 1 to 10000"),
        (&["--servers", "2", "--tpcc", "0"], "--tpcc 0: must be 1 to 10000"),
        (&["--servers", "2", "--tpcc", "-1"], "--tpcc -1: must be 1 to 10000"),
        (&["--servers", "2", "--tpcc", "11", "--requests", "all"], "all is for 1 to 10 warehouses"),
        (&["--servers", "2"], "either --tpcc or --workload is needed"),
        (&[&tpcc[..], &["--policy", "mpf", "--factor", "1.5"]].concat(), "--factor 1.5"),
        (&[&tpcc[..], &["--policy", "mpf", "--factor", "NaN"]].concat(), "--factor NaN"),
        (&[&tpcc[..], &["--policy", "mcf", "--factor", "0.5"]].concat(), "--factor is for"),
        (&[&tpcc[..], &["--policy", "mpf", "--factor", "-1"]].concat(), "--factor -1: must be"),
        (&[&tpcc[..], &["--requests", "0"]].concat(), "--requests 0: must be 1 to 16384"),
        (&["--servers", "2", "--workload", "/nowhere.toml"], "/nowhere.toml: No such file"),
        (&["--servers", "2", "--workload", "/"], "/: Is a directory"),
    ] {
        let line = refused(arguments);
        assert!(line.contains(words), "{words:?} is not in {line:?}");
    }
}

/// What a workload file gets wrong is named with its line.
#[test]
fn a_bad_file_is_named_with_its_line() {
    for (text, words) in [
        ("[[transaction]]\nname = \"a\"\nwieght = 3\n", "line 3: unknown field `wieght`"),
        ("seed = 3\n", "line 1: unknown field `seed`"),
        ("[[transaction]]\nname = \"a\"\nweight = \"3\"\n", "line 3: invalid type"),
        ("[[transaction]]\nname = \n", "line 2: "),
        ("\n[[transaction]]\nweight = 1\n", "line 2: missing field `name`"),
        ("[[transaction]]\nname = \"a\"\n\n[[transaction]]\nname = \"a\"\n", "line 4: a second"),
        ("[[transaction]]\nname = \"a\"\nweight = 0\n", "line 1: weight must be above 0"),
        ("[[transaction]]\nname = \"a\"\nweight = nan\n", "line 1: weight must be above 0"),
        ("[[transaction]]\nname = \"a\"\nwrites = [\"x {y}\"]\n", "line 1: item \"x {y}\": \"y\""),
        ("[[transaction]]\nname = \"a\"\nwrites = [\"x {y\"]\n", "without }"),
        ("[[transaction]]\nname = \"a\"\nrepeat = { y = 0 }\n", "repeat.y must be at least 1"),
        (
            "[[transaction]]\nname = \"a\"\nrepeat = { x = 4000000000, y = 4000000000, z = 3 }\n",
            "line 1: more than 16384 transactions",
        ),
        ("", "no [[transaction]]"),
    ] {
        let line = refused_file(text);
        assert!(line.contains(words), "{words:?} is not in {line:?}");
    }
}

/// Only a closed pipe is forgiven.
#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hihooi"));
    command.args(["plan", "balance", "--servers", "2", "--tpcc", "1"]).stdout(full);
    let output = command.output().expect("hihooi starts");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("hihooi: the results can't be written: ") && said.lines().count() == 1,
        "{said}"
    );
}
