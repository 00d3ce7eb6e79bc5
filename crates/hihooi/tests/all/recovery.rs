//! What fails and comes back: work goes on meanwhile, the reason is told, and the end is as if nothing
//! had been.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::harness::{self, Cluster, Options, alone, eventually, target_is_plain};

/// A small file system in place of a folder, as long as this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where this user can't mount one.
    fn mount(folder: &Path) -> Option<SmallDisk> {
        let aside = folder.with_extension("aside");
        fs::rename(folder, &aside).expect("moved aside");
        fs::create_dir(folder).expect("a place to mount it");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "none"])
            .arg(folder)
            .status();
        let is_mounted = mount.is_ok_and(|status| status.success());
        for file in fs::read_dir(&aside).expect("its files") {
            let file = file.expect("a file");
            let copied =
                Command::new("cp").arg("--sparse=always").arg(file.path()).arg(folder).status();
            assert!(copied.expect("cp").success(), "copying {:?}", file.path());
        }
        is_mounted.then(|| SmallDisk(folder.to_owned()))
    }

    fn fill(&self) {
        let filled = Command::new("dd")
            .args(["if=/dev/zero", "bs=4k", "status=none"])
            .arg(self.filler())
            .output();
        let told = String::from_utf8_lossy(&filled.expect("dd").stderr).into_owned();
        assert!(told.contains("No space left"), "{told}");
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).expect("removed");
    }

    fn filler(&self) -> String {
        format!("of={}", self.0.join("filler").display())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// While the log's disk is full, writes are acknowledged and reads answered; replicas follow when there
/// is room again.
#[test]
fn a_full_disk_of_the_log_is_waited_out() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE ROLE newcomer LOGIN");
    session.close();
    cluster.stop_manager(Signal::SIGTERM);
    let Some(disk) = SmallDisk::mount(&cluster.data().join("log")) else {
        return eprintln!("left out: this user can't mount a small disk");
    };
    cluster.up();
    let mut session = cluster.connect();
    session.run("INSERT INTO t VALUES (0, 'before')");
    cluster.caught_up();
    disk.fill();
    // More than what fits behind the log's last page.
    for id in 1..=40 {
        session.run(&format!("INSERT INTO t VALUES ({id}, repeat('x', 1000))"));
        assert_eq!(session.number("SELECT count(*) FROM t"), id + 1);
    }
    eventually("the reason is told", || {
        cluster.show_replicas()["replica1"]["reason"].contains("No space left on device")
    });
    // Its server connection can't be noted.
    let refused = cluster.try_connect(&[("user", "newcomer")]).err().expect("refused at once");
    assert!(refused.to_string().contains("No space left on device"), "{refused}");
    disk.free();
    cluster.caught_up();
    eventually("nothing more is told", || cluster.show_replicas()["replica1"]["reason"].is_empty());
    cluster.connect_with(&[("user", "newcomer")]).run("SELECT 1");
    cluster.assert_verified();
    for told in ["it is tried again until it can", "the log is written again"] {
        assert_eq!(cluster.logged(&[told]), 1, "{told}: {}", cluster.log_tail());
    }
    drop(session);
    cluster.kill_everything();
}

/// A stream that is broken for good, since its publication is gone, and then its slot: reads are right,
/// the reason is told, and not again with every try.
#[test]
fn a_broken_stream_is_told_once() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY)");
    cluster.caught_up();
    let mut direct = cluster.direct("primary");
    assert!(direct.simple("DROP PUBLICATION hihooi").is_err(), "not by accident");
    direct.run("SET hihooi.removing = on");
    direct.run("DROP PUBLICATION hihooi");
    session.run("INSERT INTO t VALUES (1)");
    let why = "publication \"hihooi\" does not exist";
    eventually("the reason is told", || {
        cluster.show_replicas()["replica1"]["reason"].contains(why)
    });
    // For some tries more.
    std::thread::sleep(harness::s(4));
    assert_eq!(session.number("SELECT count(*) FROM t"), 1);
    // Again only behind another reason: the slot may be taken for a moment yet.
    let told = cluster.logged(&["the stream of the primary broke", why]);
    assert!((1..=3).contains(&told), "{told}: {}", cluster.log_tail());
    let drop = "SELECT pg_drop_replication_slot('hihooi')";
    eventually("the slot is free", || direct.simple(drop).is_ok());
    let why = "rebuild the replicas";
    eventually("the reason is told", || {
        cluster.show_replicas()["replica1"]["reason"].contains(why)
    });
    std::thread::sleep(harness::s(11)); // it is tried every 5 s
    assert_eq!(session.number("SELECT count(*) FROM t"), 1);
    assert_eq!(cluster.logged(&["the collector gave up", why]), 1, "{}", cluster.log_tail());
}
