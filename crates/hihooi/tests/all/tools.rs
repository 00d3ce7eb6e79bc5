//! I1: PostgreSQL's own programs run unchanged through the port: pgbench, psql, pg_dump,
//! pg_restore; and what they did is the same at every site (I2, I5).

use std::process::Command;

use crate::harness::{
    Cluster, Options, alone, eventually, finish, reference, shared, succeed, tool,
};

pub fn pgbench(cluster: &Cluster, arguments: &str) -> String {
    succeed(tool("pgbench", cluster.port).args(arguments.split_whitespace()))
}

/// Transactions that a run of pgbench says it made; none may have failed.
pub fn processed(report: &str) -> u64 {
    let line = |start: &str| report.lines().find_map(|line| line.strip_prefix(start));
    let failed = line("number of failed transactions: ").unwrap_or("0");
    assert!(failed.starts_with("0"), "{report}");
    let done = line("number of transactions actually processed: ").expect("a report");
    done.split('/').next().and_then(|n| n.parse().ok()).expect("a number")
}

/// TPC-B's own invariant: balances of branches, tellers, accounts and the history agree; the
/// same at every site, and one history row a transaction.
fn check_tpcb(cluster: &Cluster, transactions: u64) {
    let sums = "SELECT (SELECT sum(bbalance) FROM pgbench_branches), \
        (SELECT sum(tbalance) FROM pgbench_tellers), \
        (SELECT sum(abalance) FROM pgbench_accounts), \
        (SELECT coalesce(sum(delta), 0) FROM pgbench_history), \
        (SELECT count(*) FROM pgbench_history)";
    let answer = cluster.assert_equal(sums);
    let row = &answer.rows[0];
    assert!(row[..4].iter().all(|sum| *sum == row[0]), "TPC-B's balances disagree: {row:?}");
    assert_eq!(row[4].as_deref(), Some(transactions.to_string().as_str()), "lost or doubled (I5)");
}

#[test]
fn pgbench_runs_unchanged_in_all_its_modes() {
    let _alone = alone();
    let cluster = shared();
    pgbench(cluster, "-i -s 1 -q");
    for (protocol, clients) in [("simple", 1), ("simple", 8), ("extended", 4), ("prepared", 32)] {
        let jobs = clients.min(2);
        let count = 400 / clients;
        let run = |script: &str, count: u64| {
            let modes = format!("-n -M {protocol} -c {clients} -j {jobs} -t {count} {script}");
            let report = pgbench(cluster, &modes);
            assert_eq!(processed(&report), clients * count, "{report}");
        };
        run("-S", count);
        // -N leaves branches and tellers out; reset, so that the balances agree afterwards.
        run("-N", 5);
        cluster.psql(
            "BEGIN; \
             UPDATE pgbench_branches SET bbalance = 0; UPDATE pgbench_tellers SET tbalance = 0; \
             UPDATE pgbench_accounts SET abalance = 0 WHERE abalance <> 0; \
             TRUNCATE pgbench_history; COMMIT",
        );
        run("", count);
        check_tpcb_if_hihooi(cluster, clients * count);
    }
    cluster.assert_verified();
}

pub fn check_tpcb_if_hihooi(cluster: &Cluster, transactions: u64) {
    if cluster.is_hihooi() {
        check_tpcb(cluster, transactions);
    }
}

#[test]
fn pgbench_reads_are_spread_over_the_replicas() {
    let _alone = alone();
    let cluster = shared();
    if !cluster.is_hihooi() {
        return;
    }
    pgbench(cluster, "-i -s 1 -q");
    cluster.caught_up();
    let reads = || cluster.replicas().iter().map(|r| cluster.stat(r, "reads")).collect::<Vec<_>>();
    let before = reads();
    eventually("each replica serves some", || {
        processed(&pgbench(cluster, "-n -S -c 8 -j 2 -t 200"));
        reads().iter().zip(&before).all(|(now, before)| now - before > 200)
    });
}

fn psql(port: u16, text: &str) -> Command {
    let mut command = tool("psql", port);
    command.args(["-X", "-v", "VERBOSITY=verbose", "-c", text]);
    command
}

/// The owner of some of the shop, if it isn't there already.
pub fn make_owner(port: u16) {
    let _ = finish(tool("psql", port).args(["-Xqc", "CREATE ROLE shop_owner"]));
}

fn make_shop(port: u16) {
    make_owner(port);
    let schema = include_str!("scripts/shop.sql");
    succeed(tool("psql", port).args(["-Xq", "-v", "ON_ERROR_STOP=1", "-c", schema]));
}

/// Meta commands query the system catalogs; scripts end as they should.
#[test]
fn psql_shows_the_same_through_hihooi() {
    let _alone = alone();
    for port in [reference().port, shared().port] {
        make_shop(port);
    }
    shared().caught_up();
    for text in [
        r"\d shop.*",
        r"\dt shop.",
        r"\di shop.",
        r"\dv shop.",
        r"\ds shop.",
        r"\dT shop.",
        r"\df shop.",
        r"\d+ shop.orders",
        r"\dn shop",
        r"\dp shop.*",
        r"\dd shop.*",
        r"\dx",
        r"\conninfo",
        r"\encoding",
        r"\sf shop.total",
        r"\crosstabview",
        r"\copy (SELECT * FROM shop.customers ORDER BY id) TO stdout",
        r"SELECT * FROM shop.customers ORDER BY id \gdesc",
        r"SELECT nosuch",
        r"\echo :SERVER_VERSION_NAME",
    ] {
        let told = |port: u16| {
            let output = finish(&mut psql(port, text));
            let text = [output.stdout, b"--\n".to_vec(), output.stderr].concat();
            // The publication and the identity that it needs are on the list of differences.
            String::from_utf8_lossy(&text)
                .replace(&format!("port \"{port}\""), "port")
                .replace("Publications:\n    \"hihooi\"\n", "")
                .replace("Replica Identity: FULL\n", "")
        };
        assert_eq!(told(reference().port), told(shared().port), "psql {text} differs (I1)");
    }
}

#[test]
fn psql_scripts_with_variables_blocks_and_errors_run() {
    let _alone = alone();
    let script = "\\set ON_ERROR_ROLLBACK on\n\
        DROP SCHEMA IF EXISTS scripted CASCADE; CREATE SCHEMA scripted;\n\
        CREATE TABLE scripted.t (id int PRIMARY KEY, v text);\n\
        BEGIN;\n\
        INSERT INTO scripted.t VALUES (1, 'a');\n\
        INSERT INTO scripted.t VALUES (1, 'again');\n\
        INSERT INTO scripted.t VALUES (2, 'b');\n\
        COMMIT;\n\
        SELECT count(*) AS n FROM scripted.t \\gset\n\
        \\echo rows :n\n\
        COPY scripted.t FROM stdin;\n3\tc\n4\td\n\\.\n\
        \\copy scripted.t to stdout\n\
        INSERT INTO scripted.t SELECT g, g::text FROM generate_series(5, 8) g \\; SELECT 1;\n\
        SELECT 'INSERT INTO scripted.t VALUES (' || g || ')' FROM generate_series(10, 12) g \\gexec\n\
        SELECT sum(id) FROM scripted.t;\n";
    let told = [reference().port, shared().port].map(|port| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("script.sql");
        std::fs::write(&file, script).expect("own folder");
        let output = finish(tool("psql", port).args(["-X", "-f"]).arg(&file));
        let path = file.display().to_string();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).replace(&path, "FILE")
    });
    assert_eq!(told[0], told[1], "I1");
    assert!(told[1].contains("rows 2"), "{}", told[1]);
    shared().assert_schema_equal("scripted");
}

/// What pg_dump prints of a schema, without the lines that hihooi may add (it
/// sets REPLICA IDENTITY FULL on keyless tables).
pub fn dump(port: u16, schema: &str) -> String {
    let text = succeed(tool("pg_dump", port).args(["--schema", schema]));
    let kept = text.lines().filter(|line| !line.contains("REPLICA IDENTITY FULL"));
    kept.filter(|line| !line.is_empty() && !line.starts_with('\\')).collect::<Vec<_>>().join("\n")
}

#[test]
fn pg_dump_and_pg_restore_bring_a_schema_through() {
    let _alone = alone();
    let source = reference();
    make_shop(source.port);
    let expected = dump(source.port, "shop");
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = shared();
    for (format, jobs) in [("plain", 0), ("custom", 1), ("directory", 4)] {
        let file = folder.path().join(format);
        let mut command = tool("pg_dump", source.port);
        command.args(["--schema", "shop", "--format", format, "-f"]).arg(&file);
        succeed(&mut command);
        cluster.psql("DROP SCHEMA IF EXISTS shop CASCADE");
        make_owner(cluster.port);
        let mut command = if jobs == 0 {
            let mut command = tool("psql", cluster.port);
            command.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-f"]);
            command
        } else {
            let mut command = tool("pg_restore", cluster.port);
            command.args(["--exit-on-error", "-d", "postgres", "-j", &jobs.to_string()]);
            command
        };
        succeed(command.arg(&file));
        assert_eq!(
            expected,
            dump(cluster.port, "shop"),
            "restored from {format}, dumped again (I1)"
        );
        cluster.assert_schema_equal("shop");
    }
    cluster.assert_verified();
    // A dump taken through hihooi restores on a plain server.
    let file = folder.path().join("through");
    let mut command = tool("pg_dump", cluster.port);
    succeed(command.args(["--schema", "shop", "--format", "custom", "-f"]).arg(&file));
    succeed(tool("psql", source.port).args(["-Xqc", "DROP SCHEMA shop CASCADE"]));
    let mut command = tool("pg_restore", source.port);
    succeed(command.args(["--exit-on-error", "-d", "postgres"]).arg(&file));
    assert_eq!(expected, dump(source.port, "shop"));
}

/// A dump of the whole database contains what hihooi made; restoring it through another hihooi
/// works all the same.
#[test]
fn a_dump_of_everything_restores_through_hihooi() {
    let _alone = alone();
    let source = Cluster::start(Options::replicas(1));
    make_shop(source.port);
    source.caught_up();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("all");
    succeed(tool("pg_dump", source.port).arg("-f").arg(&file));
    let expected = dump(source.port, "shop");
    drop(source);
    let target = Cluster::start(Options::replicas(1));
    make_owner(target.port);
    let mut command = tool("psql", target.port);
    succeed(command.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&file));
    assert_eq!(expected, dump(target.port, "shop"));
    target.assert_schema_equal("shop");
    target.assert_verified();
}
