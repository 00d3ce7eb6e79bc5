//! I3, primary-equivalent: reads that name their rows by key see no two transactions in another order than reads at
//! the primary do, though a replica has them in the order of the log.

use crate::harness::{Cluster, Options, alone, eventually, target_is_plain};

const LOOK: &str = "SELECT string_agg(n::text, ',' ORDER BY id) FROM forked WHERE id IN (1, 2)";

/// Reads of all rows: at level `gssi` such a read sees a prefix of the log, which is another order here.
const WIDE: &str = "SELECT string_agg(n::text, ',' ORDER BY id) FROM forked";
const STRICT: &str =
    "/*hihooi:consistency=strict*/ SELECT string_agg(n::text, ',' ORDER BY id) FROM forked";

/// T1 is first in the log, but waits for a standby; T2 is seen before it. Reads that were dispatched before both
/// get their connection when the replica has committed T1 and not T2. A reader at the primary has seen T2 and not T1.
#[test]
fn i3_reads_of_several_rows_by_key_show_no_long_fork() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = Options::replicas(1)
        .env("HIHOOI_POOL_SIZE", "2")
        .env("HIHOOI_REPLICA_MAX_APPLY_DELAY_MS", "60000");
    let cluster = Cluster::start(options);
    let mut session = cluster.connect();
    session.run(
        "CREATE TABLE forked (id int PRIMARY KEY, n int); INSERT INTO forked VALUES (1, 0), (2, 0)",
    );
    cluster.caught_up();
    let mut direct = cluster.require_standby();

    // The replica's connections are used; reads wait for one.
    let occupied = [(); 2].map(|()| {
        let mut occupant = cluster.connect();
        eventually("it runs at the replica", || {
            occupant.run("SELECT 1");
            occupant.route().site() == "replica1"
        });
        std::thread::spawn(move || {
            occupant.simple("SELECT pg_sleep(300)").expect_err("is cancelled");
        })
    });
    let mut replica = cluster.direct("replica1");
    let sleeping =
        "FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(300)' AND state = 'active'";
    eventually("they sleep", || replica.number(&format!("SELECT count(*) {sleeping}")) == 2);
    let read = |extended: bool, text: &'static str| {
        let mut reader = cluster.connect();
        std::thread::spawn(move || match extended {
            true => reader.extended(text, &[]).expect("read").rows[0][0].clone().expect("a value"),
            false => reader.value(text),
        })
    };
    let readers = [read(false, LOOK), read(true, LOOK), read(false, STRICT), read(true, STRICT)];
    let wide = read(false, WIDE);
    let of_one_row = read(false, "SELECT n FROM forked WHERE id = 1");
    eventually("all are dispatched, and wait for a connection there", || {
        let pools = cluster.admin().run("SHOW POOLS").records();
        pools.iter().any(|pool| pool["site"] == "replica1" && pool["waiting"] == "6")
    });

    // T2 will not be committed at the replica.
    let mut blocker = cluster.repair("replica1");
    blocker.run("BEGIN");
    blocker.run("SELECT * FROM forked WHERE id = 2 FOR UPDATE");
    let waiting = cluster.hide_commit("UPDATE forked SET n = n + 1 WHERE id = 1"); // T1
    let n = direct.number("SELECT n FROM forked WHERE id = 1");
    let mut second = cluster.connect();
    second.run("SET synchronous_commit = local");
    second.run("UPDATE forked SET n = 2 WHERE id = 2");
    assert_eq!(direct.value(LOOK), format!("{n},2"), "T2 is seen before T1");

    cluster.require_no_standby();
    waiting.join().expect("T1");
    eventually("T1 is at the replica", || replica.value(LOOK) == format!("{},0", n + 1));
    let discarded = || cluster.stat("replica1", "discarded");
    assert_eq!(discarded(), 0);
    replica.run(&format!("SELECT pg_cancel_backend(pid) {sleeping}"));
    occupied.into_iter().for_each(|occupant| occupant.join().expect("an occupant"));
    for reader in readers {
        assert_eq!(reader.join().expect("a reader"), format!("{},2", n + 1), "a long fork (I3)");
    }
    assert_eq!(of_one_row.join().expect("a reader"), (n + 1).to_string());
    assert_eq!(wide.join().expect("a reader"), format!("{},0", n + 1));
    assert_eq!(discarded(), 4, "one row has one order");

    blocker.run("ROLLBACK");
    cluster.caught_up();
    cluster.assert_verified();
}
