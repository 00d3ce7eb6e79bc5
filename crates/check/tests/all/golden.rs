//! Planted anomalies: for each kind a history in `golden/`, what the checker says about it, and
//! which levels it must then deny (Adya's thesis, sections 4.2 to 4.4; Terry et al. for sessions;
//! Daudjee and Salem for strong and session SI). `HIHOOI_BLESS=1` rewrites what it says.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use hihooi_check::{History, Judge, Kind, Level};

/// All levels.
const ALL: &[Level] = &Level::ALL;
/// Snapshot isolation, and what is above.
const SNAPSHOTS: &[Level] = &[
    Level::Si,
    Level::OneCopySi,
    Level::SessionSi,
    Level::StrongSi,
    Level::Serializable,
    Level::StrictSerializable,
];
const SERIAL: &[Level] = &[Level::Serializable, Level::StrictSerializable];
const SESSIONS: &[Level] = &[Level::SessionSi, Level::StrongSi, Level::StrictSerializable];
const TIME: &[Level] = &[Level::StrongSi, Level::StrictSerializable];

/// The history, the anomaly that it shows, and the levels that deny it.
const PLANTED: &[(&str, Option<Kind>, &[Level])] = &[
    ("sound", None, &[]),
    ("as-jepsen-writes", None, &[]),
    ("never-written", Some(Kind::NeverWritten), ALL),
    ("never-written-register", Some(Kind::NeverWritten), ALL),
    ("own-writes", Some(Kind::BrokenOwnWrites), ALL),
    ("own-writes-register", Some(Kind::BrokenOwnWrites), ALL),
    ("incompatible-orders", Some(Kind::IncompatibleOrders), ALL),
    ("own-order", Some(Kind::IncompatibleOrders), ALL),
    ("sound-register", None, &[]),
    ("duplicate-append", Some(Kind::DuplicateAppend), ALL),
    ("duplicate-append-between", Some(Kind::DuplicateAppend), ALL),
    ("lost-commit-final", Some(Kind::LostCommit), ALL),
    ("lost-commit-unknown", Some(Kind::LostCommit), ALL),
    ("lost-commit", Some(Kind::LostCommit), TIME),
    ("dirty-write", Some(Kind::DirtyWrite), ALL),
    ("aborted-read", Some(Kind::AbortedRead), ALL),
    ("aborted-read-register", Some(Kind::AbortedRead), ALL),
    ("intermediate-read", Some(Kind::IntermediateRead), ALL),
    ("intermediate-read-register", Some(Kind::IntermediateRead), ALL),
    ("circular-information", Some(Kind::CircularInformation), ALL),
    ("non-repeatable-read", Some(Kind::NonRepeatableRead), SNAPSHOTS),
    ("lost-update", Some(Kind::LostUpdate), SNAPSHOTS),
    ("lost-update-register", Some(Kind::LostUpdate), SNAPSHOTS),
    ("lost-update-unread", Some(Kind::LostUpdate), SNAPSHOTS),
    ("read-skew", Some(Kind::ReadSkew), SNAPSHOTS),
    ("read-skew-register", Some(Kind::ReadSkew), SNAPSHOTS),
    ("long-fork", Some(Kind::LongFork), SNAPSHOTS),
    ("long-fork-register", Some(Kind::LongFork), SNAPSHOTS),
    ("no-snapshot-order", Some(Kind::NoSnapshotOrder), SNAPSHOTS),
    ("write-skew", Some(Kind::WriteSkew), SERIAL),
    ("not-serializable", Some(Kind::NotSerializable), SERIAL),
    ("read-your-writes", Some(Kind::ReadYourWrites), SESSIONS),
    ("monotonic-reads", Some(Kind::MonotonicReads), SESSIONS),
    ("monotonic-reads-register", Some(Kind::MonotonicReads), SESSIONS),
    ("monotonic-writes", Some(Kind::MonotonicWrites), SESSIONS),
    ("writes-follow-reads", Some(Kind::WritesFollowReads), SESSIONS),
    ("monotonic-writes-seen", Some(Kind::MonotonicWrites), SESSIONS),
    ("writes-follow-reads-seen", Some(Kind::WritesFollowReads), SESSIONS),
    ("session-order", Some(Kind::SessionOrder), SESSIONS),
    ("session-order-register", Some(Kind::MonotonicReads), SESSIONS),
    ("future-read-process", Some(Kind::FutureRead), SESSIONS),
    ("stale-read", Some(Kind::StaleRead), TIME),
    ("stale-read-register", Some(Kind::StaleRead), TIME),
    ("stale-read-crashed", Some(Kind::StaleRead), TIME),
    ("old-after-new", Some(Kind::OldAfterNew), TIME),
    ("old-after-new-register", Some(Kind::OldAfterNew), TIME),
    ("old-after-new-crashed", Some(Kind::StaleRead), TIME),
    ("future-read", Some(Kind::FutureRead), TIME),
    ("real-time-order", Some(Kind::RealTimeOrder), TIME),
    ("real-time-order-register", Some(Kind::RealTimeOrder), TIME),
    ("serial-time", Some(Kind::RealTimeOrder), &[Level::StrictSerializable]),
];

fn path(name: &str, ending: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/all/golden")
        .join(format!("{name}.{ending}"))
}

fn read(name: &str) -> History {
    let file = File::open(path(name, "jsonl")).unwrap_or_else(|error| panic!("{name}: {error}"));
    History::read(BufReader::new(file)).unwrap_or_else(|bad| panic!("{name}: {bad}"))
}

/// Which levels hold, and the strictest one's verdict.
fn said(history: &History) -> String {
    let mut judge = Judge::new(history);
    let mut text = format!("{}\n", judge.summary());
    for level in Level::ALL {
        let verdict = if judge.verdict(level).holds() { "holds" } else { "violated" };
        writeln!(text, "{level}: {verdict}").expect("a text");
    }
    format!("{text}\n{}", judge.verdict(Level::StrictSerializable))
}

#[test]
fn every_planted_anomaly_is_found_and_told() {
    let bless = std::env::var_os("HIHOOI_BLESS").is_some();
    for (name, ..) in PLANTED {
        let said = said(&read(name));
        if bless {
            std::fs::write(path(name, "txt"), &said).expect("a golden file");
        }
        let expected = std::fs::read_to_string(path(name, "txt")).unwrap_or_default();
        assert_eq!(said, expected, "{name}: rewrite with HIHOOI_BLESS=1 and read the difference");
    }
}

#[test]
fn each_anomaly_violates_its_levels_and_no_other() {
    for (name, kind, denied) in PLANTED {
        let history = read(name);
        let mut judge = Judge::new(&history);
        for level in Level::ALL {
            let verdict = judge.verdict(level);
            assert_eq!(!verdict.holds(), denied.contains(&level), "{name}, {level}: {verdict}");
            let kinds: Vec<Kind> = verdict.anomalies.iter().map(|found| found.kind).collect();
            // At stronger levels a shorter witness may be told in its stead.
            let weakest = denied.first() == Some(&level);
            let told = kind.is_none_or(|kind| kinds.contains(&kind));
            assert!(!weakest || told, "{name}, {level}: {verdict}");
        }
    }
}

/// The shortest witness is the first that is told.
#[test]
fn witnesses_are_told_by_their_length() {
    for (name, ..) in PLANTED {
        let history = read(name);
        let verdict = Judge::new(&history).verdict(Level::StrictSerializable);
        assert!(verdict.anomalies.is_sorted_by_key(|found| found.transactions.len()), "{name}");
    }
}

#[test]
fn every_kind_is_planted() {
    let planted: BTreeSet<Kind> = PLANTED.iter().filter_map(|(_, kind, _)| *kind).collect();
    let missing: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !planted.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_strongest_levels_are_those_that_no_other_implies() {
    let strongest = |name| Judge::new(&read(name)).strongest();
    assert_eq!(strongest("sound"), [Level::StrictSerializable]);
    assert_eq!(strongest("write-skew"), [Level::StrongSi]);
    assert_eq!(strongest("stale-read"), [Level::SessionSi, Level::Serializable]);
    assert_eq!(strongest("lost-update"), [Level::ReadCommitted]);
    assert_eq!(strongest("dirty-write"), []);
}
