//! I1: much that comes at once: a dump of a large schema, pgbench's tables in all the ways that pgbench makes them; it
//! is the same at every site (I2, I5).

use crate::harness::{alone, reference, shared, succeed, tool};
use crate::tools::{check_tpcb_if_hihooi, dump, make_owner, pgbench, processed};

/// Some 1,900 objects, in four schemas that refer to each other, restored by several connections at a time.
#[test]
fn a_large_schema_is_restored_by_parallel_connections() {
    let _alone = alone();
    let source = reference();
    let generator = include_str!("scripts/large.sql");
    make_owner(source.port);
    succeed(tool("psql", source.port).args(["-Xq", "-v", "ON_ERROR_STOP=1", "-c", generator]));
    let expected = dump(source.port, "large*");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("large");
    let mut command = tool("pg_dump", source.port);
    succeed(command.args(["--schema", "large*", "--format", "directory", "-f"]).arg(&file));
    let contents = succeed(tool("pg_restore", source.port).arg("--list").arg(&file));
    let objects = contents.lines().filter(|line| !line.starts_with(';')).count();
    assert!(objects > 1_800, "only {objects} objects");
    let cluster = shared();
    make_owner(cluster.port);
    let mut command = tool("pg_restore", cluster.port);
    succeed(command.args(["--exit-on-error", "-d", "postgres", "-j", "4"]).arg(&file));
    assert_eq!(expected, dump(cluster.port, "large*"), "restored, dumped again (I1)");
    cluster.assert_verified();
    let drop = "DO $$ BEGIN FOR i IN 1..4 LOOP \
        EXECUTE format('DROP SCHEMA large_%s CASCADE', i); END LOOP; END $$";
    for port in [source.port, cluster.port] {
        succeed(tool("psql", port).args(["-Xqc", "SET client_min_messages = error", "-c", drop]));
    }
    cluster.assert_verified();
}

#[test]
fn pgbench_initialises_in_every_order_of_its_steps() {
    let _alone = alone();
    let cluster = shared();
    for arguments in [
        "-i -s 1 -q --foreign-keys",
        "-i -s 1 -q -I dtGvp",
        "-i -s 1 -q --partitions=3",
        "-i -s 1 -q --partitions=3 --partition-method=hash",
        "-i -s 1 -q --unlogged-tables",
        "-i -s 1 -q -F 90",
    ] {
        pgbench(cluster, arguments);
        let report = pgbench(cluster, "-n -c 4 -t 20");
        assert_eq!(processed(&report), 80, "{arguments}");
        if !arguments.contains("unlogged") {
            check_tpcb_if_hihooi(cluster, 80);
        }
    }
    pgbench(cluster, "-i -s 1 -q");
    cluster.assert_verified();
}
