//! The same binary on the oldest and the newest PostgreSQL: up, load, verify, restart (I5).
//!
//! The server programs are those of `HIHOOI_TEST_PG14` and `HIHOOI_TEST_PG18` (their `bin`
//! folders), else those that `scripts/fetch-postgres` left under `.tools/`. Without them the
//! tests say so and pass. And PostgreSQL 15 built with another ICU, if `scripts/fetch-postgres` left it there.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::load::{self, Load};
use crate::harness::{
    self, Cluster, Options, alone, bin_dir, eventually, succeed, target_is_plain, tool,
};

fn programs(version: u32) -> Option<PathBuf> {
    if let Some(given) = std::env::var_os(format!("HIHOOI_TEST_PG{version}")) {
        return Some(PathBuf::from(given));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let places = [
        format!(".tools/postgresql-{version}/bin"),
        format!(".tools/postgres-{version}/bin"),
        format!(".tools/postgresql/{version}/bin"),
        format!(".tools/pg{version}/bin"),
    ];
    let installed = PathBuf::from(format!("/usr/lib/postgresql/{version}/bin"));
    let found = places.iter().map(|place| root.join(place)).chain([installed]);
    found.into_iter().find(|bin| bin.join("postgres").exists())
}

fn smoke(version: u32) {
    if target_is_plain() {
        return;
    }
    let Some(bin) = programs(version) else {
        eprintln!("PostgreSQL {version} is not there; set HIHOOI_TEST_PG{version}: not tested");
        return;
    };
    let _alone = alone();
    let bin = bin.to_str().expect("a path in UTF-8");
    let cluster = Cluster::start(Options::replicas(2).env("HIHOOI_PG_BIN", bin));
    let mut session = cluster.connect();
    let number = session.number("SELECT current_setting('server_version_num')::int / 10000");
    assert_eq!(number, i64::from(version));
    let bench =
        |arguments: &str| succeed(tool("pgbench", cluster.port).args(arguments.split_whitespace()));
    bench("-i -s 1 -q");
    bench("-n -c 4 -t 50 -M simple");
    bench("-n -c 4 -t 50 -M prepared");
    bench("-n -S -c 4 -t 100");
    session.run(
        "CREATE TYPE mood AS ENUM ('sad', 'happy'); \
         CREATE TABLE p (id int, m mood, PRIMARY KEY (id)) PARTITION BY RANGE (id); \
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100); \
         CREATE TABLE g (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, \
             b int GENERATED ALWAYS AS (a * 2) STORED)",
    );
    session.run("CREATE TABLE again (id int); CREATE FUNCTION again() RETURNS int LANGUAGE sql AS 'SELECT 1'");
    session.run(
        "DROP TABLE again; DROP FUNCTION again(); ALTER TABLE g ADD c text; ALTER TABLE g DROP c",
    );
    session.run(
        "CREATE TABLE again (id int PRIMARY KEY, v text); INSERT INTO again VALUES (1, 'new')",
    );
    session.run("INSERT INTO p SELECT g, 'sad' FROM generate_series(1, 50) g");
    session.run("INSERT INTO g (a) SELECT g FROM generate_series(1, 50) g");
    session.run("UPDATE g SET a = a + 1; UPDATE p SET m = 'happy' WHERE id < 10");
    if version >= 15 {
        session.run(
            "MERGE INTO p USING (VALUES (1), (60)) s(i) ON id = i \
             WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (i, 'sad')",
        );
    }
    if version >= 18 {
        session.run("CREATE TABLE vg (id int PRIMARY KEY, v int GENERATED ALWAYS AS (id + 1))");
        session.run("INSERT INTO vg VALUES (1), (2); UPDATE vg SET id = 5 WHERE id = 2");
        session.run("INSERT INTO vg VALUES (9) RETURNING old.id, new.v");
    }
    cluster.assert_verified();
    cluster.assert_equal("SELECT * FROM g ORDER BY id");
    load::prepare(&cluster);
    let load = Load::start(&cluster, 0, 4);
    load.progress(100);
    cluster.kill_everything();
    cluster.up();
    load.progress(100);
    load::check(&cluster, &load.stop());
    cluster.assert_verified();
}

#[test]
fn postgresql_14() {
    smoke(14);
}

#[test]
fn postgresql_18() {
    smoke(18);
}

/// Has a server of `serve` end, and starts it with these programs.
fn restart(cluster: &Cluster, site: &str, bin: &Path) {
    let data = cluster.data().join(site);
    let owner = std::fs::metadata(&data).expect("its data");
    let pg_ctl = |words: &[&str]| {
        let mut command = Command::new(bin.join("pg_ctl"));
        command.arg("-D").arg(&data).args(words).current_dir("/");
        command.uid(owner.uid()).gid(owner.gid());
        command
    };
    succeed(&mut pg_ctl(&["stop", "-w", "-m", "fast"]));
    succeed(&mut pg_ctl(&["start", "-w", "-l", "/dev/null"]));
}

/// I3: a read's answer doesn't depend on who sorts it.
#[test]
fn who_sorts_otherwise_is_not_read() {
    if target_is_plain() {
        return;
    }
    let Some(other) = programs(15).filter(|bin| *bin != bin_dir()) else {
        eprintln!(
            "no other build of PostgreSQL 15 is there (scripts/fetch-postgres 15): not tested"
        );
        return;
    };
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1));
    cluster.kill_manager();
    cluster.serve();
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (a text COLLATE \"de-x-icu\"); INSERT INTO t VALUES ('a'), ('B')");
    cluster.caught_up();
    let mut reads_at = |site: &str| {
        eventually("it reads there", || {
            session = cluster.connect();
            session.run("SELECT a FROM t ORDER BY a");
            session.route().site() == site
        });
    };
    let sorts_otherwise = || {
        let replica = &cluster.show_replicas()["replica1"];
        replica["state"] == "different" && replica["reason"].contains("sorts text otherwise")
    };
    reads_at("replica1");
    restart(&cluster, "replica1", &other);
    let version = "SELECT pg_collation_actual_version('\"de-x-icu\"'::regcollation)";
    if ["primary", "replica1"]
        .map(|site| cluster.direct(site).value(version))
        .windows(2)
        .all(|v| v[0] == v[1])
    {
        eprintln!("both builds have the same ICU: not tested");
        return;
    }
    for site in ["replica1", "primary"] {
        if site == "primary" {
            restart(&cluster, site, &other);
        }
        eventually("it is not read", sorts_otherwise);
        reads_at("primary");
        cluster.connect().run("INSERT INTO t VALUES ('c')");
        let rows = |site: &str| cluster.direct(site).value("SELECT count(*) FROM t");
        eventually("rows reach it", || rows("replica1") == rows("primary"));
        let mut check = Command::new(harness::program());
        check.args(["check", "--config"]).arg(cluster.data().join("hihooi.toml"));
        // (Not fit is the primary, whose slot is in use.)
        let told = String::from_utf8(check.output().expect("runs").stdout).expect("text");
        assert!(told.contains("replica1: warning: it sorts text otherwise"), "{told}");
        restart(&cluster, site, &bin_dir());
        eventually("it serves", || cluster.state("replica1") == "serving");
        reads_at("replica1");
    }
}
