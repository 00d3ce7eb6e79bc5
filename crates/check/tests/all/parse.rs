//! Reading histories: what Jepsen writes is understood, and what is no history is named by its
//! line.

use hihooi_check::{History, Judge, Level, judge};

fn read(lines: &[&str]) -> Result<History, String> {
    History::read(lines.join("\n").as_bytes()).map_err(|bad| bad.to_string())
}

fn txn(process: i64, kind: &str, value: &str) -> String {
    format!(r#"{{"process":{process},"type":"{kind}","f":"txn","value":{value}}}"#)
}

fn timed(time: i64, process: i64, kind: &str, value: &str) -> String {
    let line = txn(process, kind, value);
    format!("{{\"time\":{time},{}", &line[1..])
}

/// Invocation and answer of some transactions, one after another.
fn one_by_one(values: &[&str]) -> Vec<String> {
    values.iter().flat_map(|value| [txn(0, "invoke", value), txn(0, "ok", value)]).collect()
}

#[test]
fn each_mistake_is_named_with_its_line() {
    let good = txn(0, "invoke", "[]");
    let twice = one_by_one(&[r#"[["append","x",1]]"#, r#"[["append","x",1]]"#]);
    let mixed = one_by_one(&[r#"[["append","x",1]]"#, r#"[["w","x",2]]"#]);
    let mixed_read = one_by_one(&[r#"[["append","x",1]]"#, r#"[["r","x",1]]"#]);
    let cases: Vec<(Vec<String>, &str)> = vec![
        (vec!["{".into()], "line 1: EOF while parsing an object"),
        (vec!["{} {}".into()], "line 1: trailing characters"),
        (vec!["[]".into()], "line 1: an array: one JSON object a line is expected"),
        (vec![format!("[{good}]")], "line 1: an array: one JSON object a line is expected"),
        (vec!["5".into()], "line 1: no JSON object"),
        (vec!["null".into()], "line 1: no JSON object"),
        (vec![good.clone(), good.clone()], "line 2: process 0 begins a transaction inside another"),
        (vec![txn(0, "ok", "[]")], "line 1: process 0 ends a transaction that it didn't begin"),
        (vec![r#"{"type":"invoke","f":"txn","value":[]}"#.into()], "line 1: no process"),
        (
            vec![r#"{"process":"a","type":"invoke","f":"txn","value":[]}"#.into()],
            "line 1: process \"a\" is no number",
        ),
        (vec![txn(0, "begin", "[]")], "line 1: type is none of invoke, ok, fail, info"),
        (vec![r#"{"process":0,"f":"txn","value":[]}"#.into()], "line 1: type is none of"),
        (
            vec![r#"{"process":0,"type":"invoke","f":"txn"}"#.into()],
            "line 1: a transaction without",
        ),
        (vec![txn(0, "invoke", r#"[["cas","x",1]]"#)], "line 1: \"cas\" is none of append, r, w"),
        (vec![txn(0, "invoke", r#"[["append","x",[1]]]"#)], "line 1: a write needs one number"),
        (vec![txn(0, "invoke", r#"[["append","x"]]"#)], "line 1: a write needs one number"),
        (vec![txn(0, "invoke", r#"[["r"]]"#)], "line 1: a step of fewer than two parts"),
        (vec![txn(0, "invoke", r#"[["r",[1],null]]"#)], "line 1: a key or a value of a list"),
        (vec![txn(0, "invoke", r#"[["r",1,[null]]]"#)], "line 1: a key or a value of a list"),
        (vec![txn(0, "invoke", r#"[["r",1,1.5]]"#)], "line 1: invalid type: floating point"),
        (vec![txn(0, "invoke", r#"[["r",18446744073709551615]]"#)], "line 1: a number beyond"),
        (
            vec![r#"{"time":1.5,"process":0,"type":"invoke","f":"txn","value":[]}"#.into()],
            "line 1: time 1.5 is no whole number of nanoseconds",
        ),
        (twice, "line 4: value 1 is written to key x a second time (first by T1)"),
        (mixed, "line 4: key x is used as a list and as a register"),
        (mixed_read, "line 4: key x is used as a list and as a register"),
        (
            vec![timed(5, 0, "invoke", "[]"), timed(4, 0, "ok", "[]")],
            "line 2: process 0 ends a transaction before it began",
        ),
    ];
    for (lines, expected) in cases {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let error = read(&lines).expect_err(expected);
        assert!(error.starts_with(expected), "{error} instead of {expected}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let bad = History::read(&b"{}\n\xff\n"[..]).expect_err("bytes");
    assert_eq!((bad.line, bad.why.as_str()), (2, "no UTF-8"));
}

#[test]
fn what_is_no_transaction_is_left_out() {
    let history = read(&[
        r#"{"process":"nemesis","type":"info","f":"kill","value":{"a":[1.5,null]},"time":1.5,"final":"no"}"#,
        "",
        r#"{"anything":"goes"}"#,
        r#"{"process":1,"type":"ok","f":"read","value":"not a list"}"#,
    ]);
    assert!(history.expect("no transactions").is_empty());
}

/// A text may be written with escapes anywhere.
#[test]
fn escapes_mean_what_they_stand_for() {
    let escaped = [
        &*txn(1, "in\\u0076oke", r#"[["a\u0070pend","x",1]]"#).replace("\"f\"", "\"\\u0066\""),
        &txn(1, "o\\u006b", r#"[["append","\u0078",1]]"#).replace("txn", "\\u0074xn"),
        &txn(2, "invoke", r#"[["r","x",null]]"#),
        &txn(2, "ok", r#"[["r","x",[]]]"#),
    ];
    let history = read(&escaped).expect("a history");
    assert_eq!(history.len(), 2);
    assert!(!judge(&history, Level::StrongSi).holds());
}

/// A number and a text that looks like it are two keys, and two values.
#[test]
fn numbers_and_texts_are_kept_apart() {
    let lines = one_by_one(&[
        r#"[["append",1,1],["append","1",1],["append",1,"1"]]"#,
        r#"[["r",1,[1,"1"]],["r","1",[1]]]"#,
    ]);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert!(judge(&read(&lines).expect("a history"), Level::StrictSerializable).holds());
}

/// Without times the order of the lines is the order in time.
#[test]
fn lines_without_time_are_ordered_as_they_stand() {
    let lines = [
        txn(1, "invoke", r#"[["append","x",1]]"#),
        txn(1, "ok", r#"[["append","x",1]]"#),
        txn(2, "invoke", r#"[["r","x",null]]"#),
        txn(2, "ok", r#"[["r","x",null]]"#),
    ];
    let stale = read(&lines.each_ref().map(String::as_str)).expect("a history");
    assert!(!judge(&stale, Level::StrongSi).holds());
    let mut beside = lines.clone();
    beside.swap(1, 2);
    let beside = read(&beside.each_ref().map(String::as_str)).expect("a history");
    assert!(judge(&beside, Level::StrongSi).holds());
    // One line without a time makes the times of the others useless.
    let mut mixed = lines.clone();
    mixed[0] = timed(100, 1, "invoke", r#"[["append","x",1]]"#);
    mixed[1] = timed(200, 1, "ok", r#"[["append","x",1]]"#);
    let mixed = read(&mixed.each_ref().map(String::as_str)).expect("a history");
    assert!(!judge(&mixed, Level::StrongSi).holds());
}

/// A process may be numbered anew only after ok or fail; one that goes on after info is taken for
/// a session whose lost transaction may take effect at any later time.
#[test]
fn a_lost_transaction_may_take_effect_later() {
    let lines = [
        txn(1, "invoke", r#"[["append","x",1]]"#),
        txn(1, "info", r#"[["append","x",1]]"#),
        txn(1, "invoke", r#"[["r","x",null]]"#),
        txn(1, "ok", r#"[["r","x",[]]]"#),
        txn(1, "invoke", r#"[["r","x",null]]"#),
        txn(1, "ok", r#"[["r","x",[1]]]"#),
    ];
    let history = read(&lines.each_ref().map(String::as_str)).expect("a history");
    assert!(judge(&history, Level::StrictSerializable).holds());
    let summary = Judge::new(&history).summary();
    assert_eq!((summary.unknown, summary.unknown_but_seen), (1, 1));
}

/// A final mark counts on the invocation or on the answer.
#[test]
fn a_final_read_is_marked_on_either_line() {
    for marked in [2, 3] {
        let mut lines = [
            txn(1, "invoke", r#"[["append","x",1]]"#),
            txn(1, "ok", r#"[["append","x",1]]"#),
            txn(2, "invoke", r#"[["r","x",null]]"#),
            txn(2, "ok", r#"[["r","x",[]]]"#),
        ];
        lines[marked] = lines[marked].replace("\"f\"", "\"final\":true,\"f\"");
        let history = read(&lines.each_ref().map(String::as_str)).expect("a history");
        assert!(!judge(&history, Level::ReadCommitted).holds());
    }
}

/// What is marked final and writes may run beside a final read, which then needn't show it.
#[test]
fn a_final_write_beside_a_final_read_is_not_lost() {
    let lines = |begun: i64| {
        let mut lines = vec![
            timed(5, 2, "invoke", r#"[["append","x",1]]"#),
            timed(9, 2, "ok", r#"[["append","x",1]]"#),
            timed(begun, 3, "invoke", r#"[["r","x",null]]"#),
            timed(begun + 1, 3, "ok", r#"[["r","x",[]]]"#),
        ];
        lines.iter_mut().for_each(|line| *line = line.replace("\"f\"", "\"final\":true,\"f\""));
        lines
    };
    let holds = |begun| {
        let lines = lines(begun);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        judge(&read(&lines).expect("a history"), Level::ReadCommitted).holds()
    };
    assert!(holds(8));
    assert!(!holds(10));
}

/// What is known to have failed may be tried again with the same value; what has an unknown
/// outcome may not, since nobody could tell whose value is seen.
#[test]
fn a_failed_write_may_be_tried_again() {
    let append = r#"[["append","x",1]]"#;
    let again = |kind| {
        let mut lines = vec![txn(1, "invoke", append), txn(1, kind, append)];
        lines.extend([txn(2, "invoke", append), txn(2, "ok", append)]);
        lines.extend(one_by_one(&[r#"[["r","x",[1]]]"#]));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        read(&lines)
    };
    let history = again("fail").expect("a history");
    assert!(judge(&history, Level::StrictSerializable).holds());
    assert!(again("info").expect_err("twice").contains("a second time"));
}
