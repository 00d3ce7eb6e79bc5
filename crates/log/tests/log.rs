//! The embedded log keeps I5: dense order, nothing twice, and after a crash a prefix without gap
//! that holds everything it called durable.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hihooi_log::{BackendRecord, Error, Log};
use hihooi_replication::entry::{Entry, Header};
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_replication::items::{Items, RelId};

/// A bound for hangs, no measure of speed.
const PATIENCE: Duration = Duration::from_secs(120);

fn header(tsid: u64, chunks: u32) -> Header {
    Header {
        tsid: Tsid(tsid),
        incarnation: 1,
        commit_lsn: Lsn(1000 + tsid * 10),
        end_lsn: Lsn(1000 + tsid * 10 + 8),
        xid: 700,
        commit_time_us: 5,
        items: Items::tables([RelId(1), RelId(2)]),
        has_ddl: false,
        chunks,
        changes: 3,
    }
}

fn content(tsid: u64, n: u32) -> Bytes {
    format!("{tsid} {n} ").repeat(1 + (tsid as usize * 7) % 40).into()
}

fn entry(tsid: u64) -> Entry {
    Entry { header: header(tsid, 1), chunks: vec![content(tsid, 0)] }
}

fn backend(epoch: u64, pid: i32) -> BackendRecord {
    BackendRecord {
        epoch,
        site: "replica1".to_owned(),
        pid,
        backend_start: "2026-01-01 00:00:00.123456+00".to_owned(),
    }
}

async fn fill(log: &Log, tsids: std::ops::RangeInclusive<u64>) {
    for tsid in tsids {
        assert!(log.append(entry(tsid)).await.expect("appends"));
    }
}

/// Opens it, as soon as no child of another test has its lock: a child has it between its fork and its exec.
fn try_open(dir: &Path) -> Result<Log, Error> {
    let began = Instant::now();
    loop {
        match Log::open(dir) {
            Err(Error::Locked(_)) if began.elapsed() < PATIENCE => {} // it has waited
            opened => return opened,
        }
    }
}

fn open(dir: &Path) -> Log {
    try_open(dir).expect("opens")
}

#[tokio::test]
async fn entries_come_back_in_order_from_memory_and_from_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    assert_eq!((log.last(), log.first()), (None, Tsid(1)));
    fill(&log, 1..=100).await;
    assert_eq!(*log.durable().borrow(), Tsid::ZERO, "nobody asked for durability yet");
    assert_eq!(log.persist().await.expect("persists"), Tsid(100));
    let read = log.read(Tsid(40), 10, usize::MAX).await.expect("reads");
    let expected: Vec<Entry> = (40..50).map(entry).collect();
    assert_eq!(read.iter().map(|entry| (**entry).clone()).collect::<Vec<_>>(), expected);
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.last(), Some(header(100, 1)));
    let read = log.read(Tsid(95), 100, usize::MAX).await.expect("reads from disk");
    assert_eq!(read.len(), 6);
    assert_eq!(*read[5], entry(100));
    fill(&log, 101..=102).await;
    let read = log.read(Tsid(99), 100, usize::MAX).await.expect("reads up to the tail");
    assert_eq!(read.first().expect("some").header.tsid, Tsid(99));
    let read = log.read(Tsid(101), 100, 1).await.expect("reads");
    assert_eq!(read.len(), 1, "one entry is returned even if it is larger than the limit");
    assert!(log.read(Tsid(103), 9, 9).await.expect("reads").is_empty());
}

#[tokio::test]
async fn appending_is_idempotent_and_refuses_gaps() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    assert!(matches!(log.append(entry(2)).await, Err(Error::Gap { .. })));
    fill(&log, 1..=3).await;
    assert!(!log.append(entry(2)).await.expect("is skipped"));
    assert!(!log.append(entry(3)).await.expect("is skipped"));
    assert!(matches!(log.append(entry(5)).await, Err(Error::Gap { .. })));
    // An older transaction can't come under a new number.
    let twice = Entry { header: Header { tsid: Tsid(4), ..header(3, 1) }, ..entry(4) };
    assert!(matches!(log.append(twice).await, Err(Error::Gap { .. })));
    // A new incarnation counts LSNs anew.
    let promoted = Header { incarnation: 2, commit_lsn: Lsn(1), ..header(4, 1) };
    assert!(log.append(Entry { header: promoted, ..entry(4) }).await.expect("appends"));
}

#[tokio::test]
async fn large_entries_are_read_by_chunk_and_orphans_vanish() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    fill(&log, 1..=1).await;
    for n in 0..3 {
        log.append_chunk(Tsid(2), n, content(2, n)).await.expect("appends");
    }
    let large = Entry { header: header(2, 3), chunks: Vec::new() };
    assert!(log.append(large.clone()).await.expect("appends"));
    log.append_chunk(Tsid(3), 0, content(9, 9)).await.expect("appends");
    log.persist().await.expect("persists");
    assert_eq!(*log.read(Tsid(2), 1, 1).await.expect("reads")[0], large);
    for n in 0..3 {
        assert_eq!(log.chunk(Tsid(2), n).await.expect("reads"), content(2, n));
    }
    assert_eq!(log.chunk(Tsid(1), 0).await.expect("reads"), content(1, 0));
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.last().expect("two entries").tsid, Tsid(2));
    assert!(log.chunk(Tsid(3), 0).await.is_err(), "the orphan chunk is gone");
}

/// Whoever reads an entry can read its chunks (I2: never half a transaction), durable or not, also
/// where segments end and begin between them.
#[tokio::test]
async fn an_entry_that_is_shown_has_its_chunks() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    let large = |tsid: u64, n: u32| Bytes::from(vec![(tsid * 16) as u8 + n as u8; 1 << 20]);
    for tsid in 1..=16 {
        let chunks = [1, 5, 9][tsid as usize % 3];
        for n in 0..chunks {
            log.append_chunk(Tsid(tsid), n, large(tsid, n)).await.expect("appends");
        }
        let shown = Entry { header: header(tsid, chunks), chunks: Vec::new() };
        assert!(log.append(shown.clone()).await.expect("appends"));
        assert_eq!(*log.read(Tsid(tsid), 1, 1).await.expect("reads")[0], shown);
        for n in 0..chunks {
            let read = log.chunk(Tsid(tsid), n).await;
            assert_eq!(read.unwrap_or_else(|error| panic!("{error}")), large(tsid, n));
        }
        assert!(*log.durable().borrow() >= Tsid(tsid));
    }
    assert!(log.chunk(Tsid(17), 0).await.is_err(), "nobody waits for what was never appended");
    let read = log.chunk(Tsid(2), 8).await.expect("reads in older segments");
    assert_eq!(read, large(2, 8));
}

#[tokio::test]
async fn trimming_keeps_the_last_entry_and_says_what_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    fill(&log, 1..=50).await;
    log.persist().await.expect("persists");
    log.trim(Tsid(20)).await.expect("trims");
    for log in [&log, &log.clone()] {
        assert_eq!(log.first(), Tsid(20));
        assert!(matches!(
            log.read(Tsid(19), 1, 1).await,
            Err(Error::Trimmed { wanted: Tsid(19), first: Tsid(20) })
        ));
        assert_eq!(*log.read(Tsid(20), 1, 1).await.expect("reads")[0], entry(20));
    }
    log.trim(Tsid(1000)).await.expect("trims");
    drop(log);
    let log = open(dir.path());
    assert_eq!((log.first(), log.last()), (Tsid(50), Some(header(50, 1))));
    assert!(matches!(log.read(Tsid(20), 1, 1).await, Err(Error::Trimmed { .. })));
    fill(&log, 51..=51).await;
}

#[tokio::test]
async fn epochs_backends_and_meta_survive() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    assert_eq!(log.take_epoch().await.expect("an epoch"), 1);
    let (one, two) = (backend(1, 10), backend(1, 11));
    tokio::try_join!(log.record_backend(&one), log.record_backend(&two)).expect("records");
    log.forget_backend(&one);
    log.set_meta("incarnation", b"7").await.expect("keeps");
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.take_epoch().await.expect("an epoch"), 2);
    log.record_backend(&backend(2, 12)).await.expect("records");
    assert_eq!(log.backends_before(2).await.expect("reads"), [two]);
    assert_eq!(log.meta("incarnation").expect("reads").as_deref(), Some(&b"7"[..]));
    assert_eq!(log.meta("other").expect("reads"), None);
}

#[tokio::test]
async fn a_second_process_and_a_newer_format_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    assert!(matches!(Log::open(dir.path()), Err(Error::Locked(_))));
    drop(log);
    rewrite_version(dir.path(), 99);
    let error = try_open(dir.path()).err().expect("is refused");
    assert!(error.to_string().contains("version 99"), "{error}");
}

/// Segments are closed, read across, and removed whole; an entry's chunks may lie in an older one.
#[tokio::test]
async fn many_segments_are_one_log_and_go_when_trimmed() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open(dir.path());
    let chunk = |tsid: u64, n: u32| Bytes::from(vec![(tsid * 7 + u64::from(n)) as u8; 400_000]);
    let large = |tsid: u64| tsid.is_multiple_of(10);
    log.record_backend(&backend(1, 5)).await.expect("records");
    for tsid in 1..=200 {
        let count = if large(tsid) { 5 } else { 1 };
        let mut entry = Entry { header: header(tsid, count), chunks: Vec::new() };
        if large(tsid) {
            for n in 0..count {
                log.append_chunk(Tsid(tsid), n, chunk(tsid, n)).await.expect("appends");
            }
        } else {
            entry.chunks.push(chunk(tsid, 0));
        }
        log.append(entry).await.expect("appends");
    }
    let segments = || {
        let files = std::fs::read_dir(dir.path()).expect("a directory");
        files.filter(|file| file.as_ref().is_ok_and(|f| f.path().extension().is_some())).count()
    };
    log.persist().await.expect("persists");
    assert!(segments() >= 3, "{} segments", segments());
    let check = async |log: &Log, from: u64| {
        let mut next = from;
        while next <= 200 {
            for entry in log.read(Tsid(next), 7, usize::MAX).await.expect("reads") {
                assert_eq!(entry.header.tsid, Tsid(next));
                for n in 0..entry.header.chunks {
                    let found = log.chunk(Tsid(next), n).await.expect("reads");
                    assert_eq!(found, chunk(next, n));
                }
                next += 1;
            }
        }
    };
    check(&log, 1).await;
    drop(log);
    let log = open(dir.path());
    check(&log, 1).await;
    let before = segments();
    for below in [20, 60, 100, 150, 195] {
        log.trim(Tsid(below)).await.expect("trims");
        check(&log, below).await;
    }
    assert!(segments() < before && segments() <= 2, "{} of {before} are left", segments());
    drop(log);
    let log = open(dir.path());
    check(&log, 195).await;
    assert_eq!(log.first(), Tsid(195));
    assert_eq!(log.backends_before(2).await.expect("reads"), [backend(1, 5)]);
    assert!(matches!(log.chunk(Tsid(100), 0).await, Err(Error::Trimmed { .. })));
}

/// A power cut can leave any part of the last, unfinished write on the disk.
#[tokio::test]
async fn a_torn_last_write_is_dropped() {
    let whole = tempfile::tempdir().expect("a directory");
    let log = open(whole.path());
    fill(&log, 1..=10).await;
    log.persist().await.expect("persists");
    let journal = segment(whole.path());
    let durable = written(&journal);
    fill(&log, 11..=60).await;
    log.persist().await.expect("persists");
    let end = written(&journal);
    assert!(durable + 4096 < end, "{durable} {end}");
    for damaged in [durable + 1, durable + 200, (durable + end) / 2, end - 30, end - 2] {
        for len in [1, 30, 512, 4096] {
            let torn = tempfile::tempdir().expect("a directory");
            let copied = std::process::Command::new("cp")
                .args(["-r", "--sparse=always"])
                .arg(whole.path().join("."))
                .arg(torn.path())
                .status();
            assert!(copied.expect("cp runs").success());
            tear(&segment(torn.path()), damaged, len.min(end - damaged));
            let log = Log::open(torn.path()).unwrap_or_else(|error| {
                panic!("torn at {damaged} of {durable}..{end}, {len} bytes: {error}")
            });
            // What is left behind the end must never come back as an entry.
            let last = log.last().expect("entries").tsid.0;
            assert!((10..=60).contains(&last), "{last}");
            fill(&log, last + 1..=last + 1).await;
            drop(log);
            let log = open(torn.path());
            assert_eq!(log.last().expect("entries").tsid, Tsid(last + 1));
            let entries = log.read(Tsid(1), usize::MAX, usize::MAX).await.expect("reads");
            let expected: Vec<Entry> = (1..=last + 1).map(entry).collect();
            assert!(entries.iter().map(|entry| &**entry).eq(expected.iter()));
        }
    }
}

/// Length of what is not zero.
fn written(file: &Path) -> usize {
    let bytes = std::fs::read(file).expect("is readable");
    bytes.iter().rposition(|byte| *byte != 0).expect("something was written") + 1
}

fn tear(file: &Path, at: usize, len: usize) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(file).expect("opens");
    file.write_all_at(&vec![0; len], at as u64).expect("writes");
}

/// Makes the first record of the segment one of another format version.
fn rewrite_version(dir: &Path, version: u8) {
    let file = segment(dir);
    let mut bytes = std::fs::read(&file).expect("is readable");
    let len = u32::from_be_bytes(bytes[..4].try_into().expect("4 bytes")) as usize;
    bytes[13] = version;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[12..12 + len]);
    bytes[4..12].copy_from_slice(&sum.to_be_bytes());
    std::fs::write(file, bytes).expect("is writable");
}

/// The newest segment.
fn segment(dir: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(dir).expect("a directory");
    let files = files.map(|file| file.expect("a file").path());
    files.filter(|file| file.extension().is_some_and(|e| e == "log")).max().expect("a segment")
}

const CHILD_DIR: &str = "HIHOOI_LOG_TEST_DIR";
const ROUNDS: u64 = 4;

/// Not a test by itself: what [`kill_9_loses_nothing_durable`] runs and kills.
#[tokio::test]
#[ignore = "run by kill_9_loses_nothing_durable in a process of its own"]
async fn child_appends() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let log = open(Path::new(&dir));
    let start = log.last().map_or(1, |header| header.tsid.0 + 1);
    for tsid in start.. {
        if tsid % 5 == 0 {
            for n in 0..3 {
                log.append_chunk(Tsid(tsid), n, content(tsid, n)).await.expect("appends");
            }
            let large = Entry { header: header(tsid, 3), chunks: Vec::new() };
            log.append(large).await.expect("appends");
        } else {
            log.append(entry(tsid)).await.expect("appends");
        }
        if tsid % 3 == 0 {
            println!("durable {}", log.persist().await.expect("persists"));
        }
    }
}

/// I5: after kill -9 everything that was called durable is there, as a prefix.
#[tokio::test]
async fn kill_9_loses_nothing_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    for round in 1..=ROUNDS {
        let durable = kill_after(dir.path(), 40 * round);
        let log = open(dir.path());
        let last = log.last().expect("entries").tsid;
        assert!(last >= Tsid(durable), "{last} is there, {durable} was durable");
        let entries = log.read(Tsid(1), usize::MAX, usize::MAX).await.expect("reads");
        assert_eq!(entries.len() as u64, last.0, "no gap");
        for (tsid, found) in (1..).zip(entries) {
            if tsid % 5 == 0 {
                assert_eq!(found.header, header(tsid, 3));
                for n in 0..3 {
                    assert_eq!(log.chunk(Tsid(tsid), n).await.expect("reads"), content(tsid, n));
                }
            } else {
                assert_eq!(*found, entry(tsid));
            }
        }
    }
}

/// Lets a child append until it has called `durable_min` durable, kills it, and returns the last
/// entry it called durable.
fn kill_after(dir: &Path, durable_min: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "child_appends", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let mut durable = 0;
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut killed = false;
    for line in stdout.lines() {
        let line = line.expect("a line");
        if let Some((_, number)) = line.split_once("durable ") {
            durable = number.parse().expect("a number");
        }
        if durable >= durable_min && !killed {
            child.kill().expect("kill -9");
            killed = true;
        }
    }
    child.wait().expect("the child ends");
    durable
}
