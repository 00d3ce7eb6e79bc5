//! Server connections are bounded, whatever roles come and go (I8): nobody is locked out by connections that
//! nobody uses.

use std::time::Instant;

use bytes::BytesMut;
use hihooi_wire::frontend;

use crate::harness::{
    Answer, Cluster, Options, Session, alone, eventually, ms, s, target_is_plain,
};

/// What each server takes; three of them only from superusers.
const CONNECTIONS_MAX: i64 = 45;
const ROLES: usize = 60;

/// A cluster whose servers take few connections, with many roles.
fn small(options: Options) -> Cluster {
    let cluster = Cluster::start(options);
    for site in cluster.sites() {
        let set = format!("ALTER SYSTEM SET max_connections = {CONNECTIONS_MAX}");
        cluster.direct(&site.name).run(&set);
    }
    cluster.connect().run(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0);
         DO $$ BEGIN FOR n IN 1..{ROLES} LOOP
             EXECUTE format('CREATE ROLE r%s LOGIN IN ROLE pg_read_all_data, pg_write_all_data', n);
         END LOOP; END $$"
    ));
    cluster.caught_up();
    cluster.kill_everything();
    cluster.up();
    cluster
}

fn as_role(cluster: &Cluster, number: usize) -> Session {
    cluster.connect_with(&[("user", &format!("r{number}"))])
}

/// Connections of the pools at a site, by `SHOW POOLS`.
fn held(cluster: &Cluster, site: &str) -> i64 {
    let answers = cluster.admin().simple("SHOW POOLS").expect("answers");
    let rows = answers.last().map(Answer::records).expect("rows");
    let here = rows.iter().filter(|row| row["site"] == site);
    here.map(|row| {
        row["used"].parse::<i64>().expect("used") + row["idle"].parse::<i64>().expect("idle")
    })
    .sum()
}

/// One role after the other, more of them than a server takes connections.
#[test]
fn roles_that_are_gone_lock_nobody_out() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = small(Options::replicas(1));
    for number in 1..=ROLES {
        let mut session = as_role(&cluster, number);
        session.run("UPDATE t SET n = n + 1");
        session.run("SELECT n FROM t WHERE id = 1");
        session.run("SELECT n FROM t WHERE id = 1");
    }
    assert_eq!(cluster.connect().value("SELECT n FROM t"), ROLES.to_string());
    cluster.caught_up();
    let mut last = as_role(&cluster, ROLES);
    eventually("the replica is read", || {
        last.run("SELECT n FROM t WHERE id = 1");
        last.route().site() == "replica1"
    });
    for site in ["primary", "replica1"] {
        let held = held(&cluster, site);
        assert!((1..=CONNECTIONS_MAX - 20).contains(&held), "{held} at {site}");
        cluster.direct(site).run("SELECT 1");
    }
    cluster.assert_verified();
}

/// Somebody else takes what a server has: what nobody uses makes room.
#[test]
fn what_nobody_uses_makes_room() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = small(Options::replicas(1));
    for number in 1..=10 {
        as_role(&cluster, number).run("UPDATE t SET n = n + 1");
    }
    let port = cluster.site("primary").port;
    let mut others = Vec::new();
    let full = loop {
        match Session::open(port, &[("user", "r60"), ("database", "postgres")]) {
            Ok(session) => others.push(session),
            Err(failure) => break failure,
        }
    };
    assert_eq!(full.code(), "53300", "{full}");
    for number in 11..=20 {
        as_role(&cluster, number).run("UPDATE t SET n = n + 1");
    }
    // A role's own bound is kept by its own.
    cluster.connect().run("ALTER ROLE r21 CONNECTION LIMIT 1");
    for text in ["one", "two", "three"] {
        let parameters = [("user", "r21"), ("application_name", text), ("options", "-c geqo=off")];
        cluster
            .connect_with(&parameters[..2 + usize::from(text == "two")])
            .run("UPDATE t SET n = n + 1");
    }
    assert_eq!(cluster.connect().value("SELECT n FROM t"), "23");
}

/// Connections end when nobody uses them, and so do pools.
#[test]
fn what_is_unused_ends() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(1).env("HIHOOI_POOL_IDLE_MS_MAX", "400"));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (id int PRIMARY KEY)");
    session.run("SELECT * FROM t");
    let mut pinned = cluster.connect();
    pinned.run("CREATE TEMP TABLE mine (id int); INSERT INTO mine VALUES (7)");
    eventually("only the connection with temporary objects is left", || {
        held(&cluster, "primary") == 1 && held(&cluster, "replica1") == 0
    });
    assert_eq!(pinned.value("SELECT id FROM mine"), "7");
    session.run("INSERT INTO t VALUES (1)");
    assert_eq!(session.value("SELECT id FROM t"), "1");
    pinned.close();
    session.close();
    eventually("no pool is left", || {
        let answers = cluster.admin().simple("SHOW POOLS").expect("answers");
        answers.last().is_some_and(|answer| answer.rows.is_empty())
    });
}

/// More roles work at once than a server has room for: they wait for each other, and nobody gets an error.
#[test]
fn who_finds_no_room_waits_for_it() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = small(Options::replicas(1).env("HIHOOI_POOL_WAIT_MS_MAX", "180000"));
    let room = (CONNECTIONS_MAX - 3 - 20) as usize;
    let mut blocks: Vec<_> = (1..=room).map(|number| as_role(&cluster, number)).collect();
    for block in &mut blocks {
        block.run("BEGIN; SELECT pg_current_xact_id()");
    }
    let (ends, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for number in 1..=ROLES {
            let (ends, cluster) = (ends.clone(), &cluster);
            scope.spawn(move || {
                as_role(cluster, number).run("UPDATE t SET n = n + 1");
                ends.send(number).expect("heard");
            });
        }
        eventually("all of them wait, and count as used", || {
            held(&cluster, "primary") == (room + ROLES) as i64
        });
        assert!(ended.recv_timeout(s(1)).is_err(), "there was room");
        let others = cluster.activity("usename LIKE 'r%' AND backend_type = 'client backend'");
        assert_eq!(others, room as i64);
        for mut block in blocks.drain(..) {
            block.run("COMMIT");
        }
    });
    assert_eq!(cluster.connect().value("SELECT n FROM t"), ROLES.to_string());
    cluster.assert_verified();
}

/// Whoever has waited for long enough is told what to do; what others took is waited for, too.
#[test]
fn who_waits_for_too_long_is_told() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = small(Options::replicas(1).env("HIHOOI_POOL_WAIT_MS_MAX", "10000"));
    let room = (CONNECTIONS_MAX - 3 - 20) as usize;
    let mut blocks: Vec<_> = (1..=room).map(|number| as_role(&cluster, number)).collect();
    for block in &mut blocks {
        block.run("BEGIN; SELECT pg_current_xact_id()");
    }
    let began = Instant::now();
    let refused = cluster.try_connect(&[("user", "r60")]).err().expect("no room");
    assert_eq!(refused.code(), "53300", "{refused}");
    assert!(refused.to_string().contains("all 22 connections that hihooi may have"), "{refused}");
    assert!((s(10)..s(60)).contains(&began.elapsed()), "{:?}", began.elapsed());
    drop(blocks);

    // The server's own bound: somebody else has all of them, and leaves in time for the second.
    let port = cluster.site("primary").port;
    let open = || Session::open(port, &[("user", "r59"), ("database", "postgres")]);
    let mut others: Vec<_> = std::iter::from_fn(|| open().ok()).collect();
    eventually("all are taken", || match open() {
        Ok(another) => {
            others.push(another);
            false
        }
        Err(full) => full.code() == "53300",
    });
    // (Idle connections make room once.)
    let mut blocks = Vec::new();
    let refused = loop {
        match cluster.try_connect(&[("user", "r58"), ("application_name", "x")]) {
            Ok(mut block) => match block.simple("BEGIN; SELECT pg_current_xact_id()") {
                Ok(_) => blocks.push(block),
                Err(refused) => break refused,
            },
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), "53300", "{refused}");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| as_role(&cluster, 57).run("UPDATE t SET n = n + 1"));
        std::thread::sleep(ms(500));
        assert!(!waits.is_finished());
        others.truncate(others.len() - 3);
        waits.join().expect("served");
    });
}

/// A read whose client has left gives up its place to those who still wait; a write is carried out, as it is by a
/// server that has received it.
#[test]
fn who_has_left_keeps_no_place_in_the_queue() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = Options::replicas(1).env("HIHOOI_POOL_SIZE", "1");
    let cluster = Cluster::start(options.env("HIHOOI_POOL_WAIT_MS_MAX", "600000"));
    let mut at_primary = cluster.connect();
    at_primary.run("CREATE TABLE t (n int)");
    cluster.caught_up();
    let open = |name: &str| cluster.connect_with(&[("application_name", name)]);
    let send = |mut session: Session, text: &str| {
        let mut out = BytesMut::new();
        frontend::query(text.as_bytes(), &mut out);
        session.send(&out).expect("sent");
        session
    };
    let waiting = |name: &str| {
        let clients = cluster.admin().run("SHOW CLIENTS").records();
        let here = clients.iter().filter(|row| row["application_name"] == name);
        here.filter(|row| row["state"] == "waiting").count()
    };
    // (To log in takes a connection, too.)
    let (at_replica, writes, stays) = (cluster.connect(), open("writes"), open("stays"));
    let reads: Vec<_> = (1..=3).map(|_| open("reads")).collect();
    let at_replica = send(at_replica, "SELECT count(*) FROM t, (SELECT pg_sleep(600)) s");
    eventually("it runs at the replica", || {
        let running = "SELECT count(*) FROM pg_stat_activity \
            WHERE state = 'active' AND query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()";
        cluster.direct("replica1").number(running) == 1
    });
    at_primary.run("BEGIN; INSERT INTO t VALUES (1)");

    let mut leave: Vec<_> =
        reads.into_iter().map(|session| send(session, "SELECT count(*) FROM t")).collect();
    leave.push(send(writes, "INSERT INTO t VALUES (2)"));
    let mut stays = send(stays, "SELECT count(*) FROM t");
    let all = || (waiting("reads"), waiting("writes"), waiting("stays"));
    eventually("all of them wait", || all() == (3, 1, 1));
    drop(leave);
    eventually("those that left with reads are gone", || all() == (0, 1, 1));
    at_primary.run("COMMIT");
    let mut other = cluster.direct("primary");
    eventually("the write was carried out", || other.number("SELECT count(*) FROM t") == 2);
    drop(at_replica);
    stays.answers().expect("its turn came");
}
