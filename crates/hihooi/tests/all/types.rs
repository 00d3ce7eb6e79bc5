//! I1: types and tables that users created are told to clients by the primary's OIDs, also by replicas, where
//! they have others (docs/decisions/0010-own-types.md).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::BytesMut;
use hihooi_wire::backend::{read_row_description, tag};
use hihooi_wire::frontend::{self, Bind, Parse, Target};

use crate::harness::client::{Message, Session};
use crate::harness::{self, alone, eventually, shared};

/// A schema of this name, in which the replicas' next objects get other OIDs than the primary's, and a session
/// in it.
fn schema(name: &str) -> Session {
    let mut session = shared().connect();
    session.run(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"));
    session.run(&format!("SET search_path = {name}"));
    if shared().is_hihooi() {
        shared().caught_up();
        for (number, site) in shared().replicas().iter().enumerate() {
            let mut replica = shared().repair(site);
            for _ in 0..=number {
                replica.run("CREATE TYPE moved AS (a int); DROP TYPE moved");
            }
        }
    }
    session
}

/// A session at the primary itself.
fn primary(schema: &str) -> Session {
    let mut session = match shared().is_hihooi() {
        true => shared().direct("primary"),
        false => shared().connect(),
    };
    session.run(&format!("SET search_path = {schema}"));
    session
}

fn oid(session: &mut Session, name: &str) -> u32 {
    u32::try_from(session.number(&format!("SELECT '{name}'::regtype::oid::int8"))).expect("an OID")
}

fn query(text: &str) -> BytesMut {
    let mut out = BytesMut::new();
    frontend::query(text.as_bytes(), &mut out);
    out
}

/// How values go in the extended protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Text = 0,
    Binary = 1,
}

/// A statement described, bound to a value or none, described again and executed.
fn extended(
    text: &str,
    types: &[u32],
    value: Option<(&[u8], Format)>,
    rows: Format,
    describes: bool,
) -> BytesMut {
    let count = |n: usize| (n as u16).to_be_bytes();
    let oids: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    let types = [&count(types.len())[..], &oids].concat();
    let mut rest = match value {
        Some((value, format)) => {
            let len = (value.len() as u32).to_be_bytes();
            [&[0, 1, 0, format as u8, 0, 1][..], &len, value].concat()
        }
        None => vec![0, 0, 0, 0],
    };
    rest.extend([0, 1, 0, rows as u8]);
    let mut out = BytesMut::new();
    Parse { statement: b"", query: text.as_bytes(), types: &types }.write(&mut out);
    if describes {
        frontend::describe(Target::Statement, b"", &mut out);
    }
    Bind { portal: b"", statement: b"", rest: &rest }.write(&mut out);
    if describes {
        frontend::describe(Target::Portal, b"", &mut out);
    }
    frontend::execute(b"", 0, &mut out);
    frontend::sync(&mut out);
    out
}

fn ask(session: &mut Session, packet: &[u8]) -> Vec<Message> {
    session.send(packet).expect("sent");
    session.until_ready(1).expect("answered")
}

/// The types of an answer's columns and parameters.
fn types(answer: &[Message]) -> Vec<u32> {
    let mut types = Vec::new();
    for message in answer {
        match message.tag {
            tag::ROW_DESCRIPTION => {
                let columns = read_row_description(&message.body).expect("columns");
                types.extend(columns.into_iter().map(|(_, oid)| oid));
            }
            tag::PARAMETER_DESCRIPTION => {
                let oids = message.body[2..].chunks_exact(4);
                types.extend(oids.map(|oid| u32::from_be_bytes(oid.try_into().expect("four"))));
            }
            _ => {}
        }
    }
    types
}

/// All replicas answer like the primary, in every byte; until they know their objects, others have the right
/// types.
fn runs_at_replicas(session: &mut Session, primary: &mut Session, what: &str, packet: &[u8]) {
    let expected = ask(primary, packet);
    let tags: String = expected.iter().map(|message| char::from(message.tag)).collect();
    assert!(!tags.contains('E') && tags.contains('D'), "{what}: {expected:?}");
    if !shared().is_hihooi() {
        return;
    }
    let mut missing: BTreeSet<String> = shared().replicas().into_iter().collect();
    let mut last = String::new();
    let sites = missing.len();
    eventually(&format!("{what} runs at {sites} replicas"), || {
        let answer = ask(session, packet);
        assert_eq!(types(&answer), types(&expected), "{what}, {}", session.route().text);
        let route = session.route();
        if answer == expected {
            missing.remove(route.site());
        }
        if last != route.text {
            println!("{what}: {}", route.text);
            last = route.text;
        }
        missing.is_empty()
    });
}

/// The primary answers, however well replicas know their objects.
fn runs_at_the_primary(session: &mut Session, primary: &mut Session, what: &str, packet: &[u8]) {
    let expected = ask(primary, packet);
    for _ in 0..4 {
        assert_eq!(ask(session, packet), expected, "{what}");
        if shared().is_hihooi() {
            let route = session.route();
            assert_eq!(
                (route.site(), route.reason()),
                ("primary", "unsafe"),
                "{what}: {}",
                route.text
            );
        }
    }
}

/// Types of all kinds, and a table of them.
const OBJECTS: &str = "
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE DOMAIN whim AS mood;
    CREATE TYPE pair AS (a int, m mood);
    CREATE TYPE moods AS RANGE (subtype = mood);
    CREATE TYPE texts AS RANGE (subtype = text[]);
    CREATE TABLE x (gone int, id int PRIMARY KEY, m mood, w whim, ms mood[], p pair, r moods);
    ALTER TABLE x DROP COLUMN gone;
    CREATE VIEW v AS SELECT id, m FROM x;
    INSERT INTO x VALUES (1, 'ok', 'sad', '{sad,ok}', (1, 'ok'), '[sad,ok]')";

#[test]
fn i1_replicas_tell_types_and_tables_as_the_primary_does() {
    let _alone = alone();
    let mut session = schema("types_told");
    session.run(OBJECTS);
    let mut primary = primary("types_told");
    let mood = oid(&mut primary, "types_told.mood");
    if shared().is_hihooi() {
        shared().caught_up();
        for site in shared().replicas() {
            let there = oid(&mut shared().direct(&site), "types_told.mood");
            assert_ne!(there, mood, "the test needs other OIDs at {site}");
        }
    }
    let (text, binary) = (Format::Text, Format::Binary);
    let by_mood = "SELECT id, m, w FROM x WHERE m = $1";
    let (many, moods) = (mood_array(mood), oid(&mut primary, "types_told.mood[]"));
    let (pair, by_pair) = (mood_pair(mood), "SELECT id FROM x WHERE p = $1::pair");
    let any = "SELECT id FROM x WHERE m = ANY ($1)";
    let at_replicas: [(&str, BytesMut); 13] = [
        ("simple", query("SELECT id, m, w, ms, p, r, x FROM x")),
        ("a view", query("SELECT * FROM v")),
        ("a table with a dropped column", query("SELECT id FROM x")),
        ("no types", query("SELECT 1 AS one, v.id FROM v")),
        ("extended text", extended(by_mood, &[], Some((b"ok", text)), text, true)),
        ("a type in Parse", extended(by_mood, &[mood], Some((b"ok", text)), text, true)),
        ("extended binary", extended(by_mood, &[mood], Some((b"ok", binary)), binary, true)),
        ("not described", extended(by_mood, &[mood], Some((b"ok", binary)), binary, false)),
        ("a range in binary", extended("SELECT m, r FROM x", &[], None, binary, true)),
        // Servers don't look at OIDs of users' types in what comes in binary.
        ("an array as a parameter", extended(any, &[], Some((&many, binary)), text, true)),
        ("an array of a type in Parse", extended(any, &[moods], Some((&many, binary)), text, true)),
        ("a record as a parameter", extended(by_pair, &[], Some((&pair, binary)), text, true)),
        ("arrays and records in text", extended("SELECT ms, p, x FROM x", &[], None, text, true)),
    ];
    for (what, packet) in &at_replicas {
        runs_at_replicas(&mut session, &mut primary, what, packet);
    }
    let at_primary = [
        ("an array in binary", extended("SELECT ms FROM x", &[], None, binary, true)),
        ("one that isn't described", extended("SELECT ms FROM x", &[], None, binary, false)),
        ("a record in binary", extended("SELECT p FROM x", &[], None, binary, true)),
        ("a row in binary", extended("SELECT row(m) FROM x", &[], None, binary, true)),
        // They hash OIDs.
        ("a hash", query("SELECT hashenum(m), hash_array(ms), hash_record(p) FROM x")),
    ];
    for (what, packet) in &at_primary {
        // The first may find out only when a replica has described it.
        ask(&mut session, packet);
        runs_at_the_primary(&mut session, &mut primary, what, packet);
    }
    let in_text = extended(any, &[], Some((b"{ok}", text)), text, true);
    runs_at_replicas(&mut session, &mut primary, "an array as a parameter in text", &in_text);
    let in_text = extended("SELECT ms FROM x", &[], None, text, true);
    runs_at_replicas(&mut session, &mut primary, "what was asked for in binary", &in_text);
}

/// `{ok}` in binary.
fn mood_array(mood: u32) -> Vec<u8> {
    let head: Vec<u8> = [1, 0, mood, 1, 1, 2].iter().flat_map(|n: &u32| n.to_be_bytes()).collect();
    [&head[..], b"ok"].concat()
}

/// `(1,ok)` in binary, of type `pair`.
fn mood_pair(mood: u32) -> Vec<u8> {
    let head: Vec<u8> = [2, 23, 4, 1, mood, 2].iter().flat_map(|n: &u32| n.to_be_bytes()).collect();
    [&head[..], b"ok"].concat()
}

/// Drops and creates types and tables, renames them and uses their names again: what comes then has other OIDs,
/// and what there was keeps its own.
#[test]
fn i1_types_are_told_apart_when_their_names_change() {
    let _alone = alone();
    let mut session = schema("types_renamed");
    let mut primary = primary("types_renamed");
    let packets = [
        query("SELECT * FROM x"),
        extended(
            "SELECT m, w FROM x WHERE w = $1",
            &[],
            Some((b"b", Format::Text)),
            Format::Binary,
            true,
        ),
    ];
    let changes = [
        "CREATE TYPE mood AS ENUM ('a'); CREATE TYPE whim AS ENUM ('b');
         CREATE TABLE x (m mood, w whim); INSERT INTO x VALUES ('a', 'b')",
        "DROP TABLE x; DROP TYPE mood; CREATE TYPE mood AS ENUM ('a');
         CREATE TABLE x (m mood, w whim); INSERT INTO x VALUES ('a', 'b')",
        "ALTER TYPE mood RENAME TO old; CREATE TYPE mood AS ENUM ('c')",
        "ALTER TABLE x ALTER w TYPE mood USING 'c'; ALTER TABLE x ALTER w TYPE whim USING 'b'",
        "ALTER TYPE mood RENAME TO tmp; ALTER TYPE whim RENAME TO mood; ALTER TYPE tmp RENAME TO whim",
        "ALTER TABLE x RENAME TO y; CREATE TABLE x AS SELECT * FROM y",
        "ALTER SCHEMA types_renamed RENAME TO types_other; CREATE SCHEMA types_renamed;
         CREATE TYPE mood AS ENUM ('a'); CREATE TYPE whim AS ENUM ('b');
         CREATE TABLE x (m mood, w whim); INSERT INTO x VALUES ('a', 'b')",
    ];
    for change in changes {
        session.run(change);
        for packet in &packets {
            runs_at_replicas(&mut session, &mut primary, change, packet);
        }
    }
    primary.run("DROP SCHEMA types_other CASCADE");
}

/// How often types swap their names, at least.
const SWAPS: usize = 60;

/// Types swap their names all the time, by hihooi and at the primary itself; a column's type stays.
#[test]
fn i1_a_change_of_names_never_shows_another_type() {
    let _alone = alone();
    let mut session = schema("types_swapped");
    session.run(
        "CREATE TYPE one AS ENUM ('a'); CREATE TYPE two AS ENUM ('b');
         CREATE TABLE x (m one, w two); INSERT INTO x VALUES ('a', 'b')",
    );
    shared().caught_up(); // at the level weak-si, a replica may not have the table yet
    let expected = types(&ask(&mut session, &query("SELECT m, w FROM x")));
    let (ends, swap) = (
        AtomicBool::new(false),
        "BEGIN; ALTER TYPE one RENAME TO tmp; ALTER TYPE two RENAME TO one; ALTER TYPE tmp RENAME TO two; COMMIT",
    );
    let at_replicas = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writers = [shared().connect(), primary("types_swapped")];
            writers[0].run("SET search_path = types_swapped");
            let deadline = Instant::now() + harness::s(harness::HANG_S_MAX);
            let is_over = || {
                let is_read_there = at_replicas.load(Ordering::Acquire) > 0;
                is_read_there || !shared().is_hihooi() || Instant::now() > deadline
            };
            for round in 0.. {
                if round >= SWAPS && is_over() {
                    break;
                }
                writers[round % 2].run(swap);
                // Sometimes long enough for the replicas' objects to be read, sometimes not; that takes longer where
                // other work keeps the processors busy.
                let slowness = 1 + (round / SWAPS) as u64;
                std::thread::sleep(harness::ms([1, 15, 40, 90, 200][round % 5] * slowness));
            }
            ends.store(true, Ordering::Release);
        });
        let mut readers = [session, shared().connect()];
        readers[1].run("SET search_path = types_swapped");
        readers[1].run("SET hihooi.consistency = 'weak-si'");
        while !ends.load(Ordering::Acquire) {
            for reader in &mut readers {
                let answer = ask(reader, &query("SELECT m, w FROM x"));
                let route = reader.route();
                assert_eq!(types(&answer), expected, "{}", route.text);
                let is_at_replica = route.site().starts_with("replica");
                at_replicas.fetch_add(usize::from(is_at_replica), Ordering::AcqRel);
            }
        }
    });
    let at_replicas = at_replicas.into_inner();
    println!("{at_replicas} reads at replicas");
    assert!(at_replicas > 0 || !shared().is_hihooi());
}

/// Names change at the primary between its reading and the replicas', and the stream is late with it.
#[test]
fn i1_names_that_the_stream_has_not_told_yet_are_not_taken_for_the_replicas() {
    let _alone = alone();
    let mut session = schema("types_late");
    if !shared().is_hihooi() {
        return;
    }
    session.run(
        "CREATE TYPE one AS ENUM ('a'); CREATE TYPE two AS ENUM ('b');
         CREATE TABLE x (m one, w two); INSERT INTO x VALUES ('a', 'b');
         CREATE TABLE held (id int); CREATE VIEW holding AS SELECT id FROM held",
    );
    let (mut first, mut locker) = (primary("types_late"), primary("types_late"));
    let packet = query("SELECT m, w FROM x");
    runs_at_replicas(&mut session, &mut first, "at first", &packet);
    let expected = types(&ask(&mut first, &packet));
    let walsender = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'hihooi'";
    let pid = i32::try_from(first.number(walsender)).expect("a process id");
    // The catalog can't be read before the names have changed: printing the view would lock its table.
    locker.run("BEGIN; LOCK TABLE held");
    session.run("CREATE TABLE other (id int)");
    shared().caught_up();
    let late = shared().freeze_process(pid);
    first.run("BEGIN; ALTER TYPE one RENAME TO tmp; ALTER TYPE two RENAME TO one; ALTER TYPE tmp RENAME TO two; COMMIT");
    locker.run("COMMIT");
    eventually("the catalog is read", || {
        session.run("SELECT 1");
        session.route().site().starts_with("replica")
    });
    for _ in 0..100 {
        let answer = ask(&mut session, &packet);
        assert_eq!(types(&answer), expected, "{}", session.route().text);
        std::thread::sleep(harness::ms(5));
    }
    drop(late);
    runs_at_replicas(&mut session, &mut first, "at last", &packet);
}

/// A replica that crashed may have lost objects, and made them again.
#[test]
fn i1_a_replica_that_crashed_tells_types_as_before() {
    let _alone = alone();
    let mut session = schema("types_crashed");
    if !shared().is_hihooi() {
        return;
    }
    session.run("CREATE TYPE mood AS ENUM ('a'); CREATE TABLE x (m mood)");
    session.run("INSERT INTO x VALUES ('a')");
    let mut primary = primary("types_crashed");
    let packet = query("SELECT m FROM x");
    runs_at_replicas(&mut session, &mut primary, "at first", &packet);
    shared().kill_site("replica1");
    shared().caught_up();
    runs_at_replicas(&mut session, &mut primary, "after a crash", &packet);
}

/// What a paused replica calls by some name may be another type at the primary by now.
#[test]
fn i1_a_paused_replica_is_not_asked_about_types_that_changed() {
    let _alone = alone();
    let mut session = schema("types_paused");
    if !shared().is_hihooi() {
        return;
    }
    session.run(
        "CREATE TYPE one AS ENUM ('a'); CREATE TYPE two AS ENUM ('b');
         CREATE TABLE x (m one, w two); INSERT INTO x VALUES ('a', 'b')",
    );
    let mut primary = primary("types_paused");
    let packet = query("SELECT m, w FROM x");
    runs_at_replicas(&mut session, &mut primary, "at first", &packet);
    let sites = shared().replicas();
    sites.iter().for_each(|site| shared().command(&format!("PAUSE REPLICA {site}")));
    // Nothing has changed: they still serve.
    runs_at_replicas(&mut session, &mut primary, "paused", &packet);
    let mut weak = shared().connect();
    weak.run("SET search_path = types_paused");
    weak.run("SET hihooi.consistency = 'weak-si'");
    for change in [
        "ALTER TYPE one RENAME TO tmp; ALTER TYPE two RENAME TO one; ALTER TYPE tmp RENAME TO two",
        "DROP TABLE x; DROP TYPE one; DROP TYPE two; CREATE TYPE one AS ENUM ('a');
         CREATE TYPE two AS ENUM ('b'); CREATE TABLE x (m one, w two); INSERT INTO x VALUES ('a', 'b')",
    ] {
        session.run(change);
        eventually("the catalog is read", || {
            weak.run("SELECT 1");
            weak.route().site().starts_with("replica")
        });
        let expected = ask(&mut primary, &packet);
        for _ in 0..20 {
            for reader in [&mut weak, &mut session] {
                assert_eq!(ask(reader, &packet), expected, "{change}");
                assert_eq!(reader.route().site(), "primary", "{change}");
            }
        }
    }
    sites.iter().for_each(|site| shared().command(&format!("RESUME REPLICA {site}")));
    runs_at_replicas(&mut session, &mut primary, "resumed", &packet);
}

/// Extensions' types are like those of users.
#[test]
fn i1_types_of_extensions_are_told_as_the_primary_does() {
    let _alone = alone();
    let mut session = schema("types_extension");
    if session.number("SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'") == 0 {
        return; // not installed with this PostgreSQL
    }
    session.run("DROP EXTENSION IF EXISTS citext; CREATE EXTENSION citext SCHEMA types_extension");
    session.run("CREATE TABLE x (c citext, cs citext[]); INSERT INTO x VALUES ('A', '{B}')");
    let mut primary = primary("types_extension");
    let citext = oid(&mut primary, "types_extension.citext");
    let (text, binary) = (Format::Text, Format::Binary);
    let by_text = "SELECT c FROM x WHERE c = $1";
    for (what, packet) in [
        ("simple", query("SELECT * FROM x")),
        ("text", extended(by_text, &[], Some((b"a", text)), text, true)),
        ("binary", extended(by_text, &[citext], Some((b"a", binary)), binary, true)),
    ] {
        runs_at_replicas(&mut session, &mut primary, what, &packet);
    }
    let array = extended("SELECT cs FROM x", &[], None, binary, true);
    ask(&mut session, &array);
    runs_at_the_primary(&mut session, &mut primary, "an array in binary", &array);
    session.run("DROP EXTENSION citext CASCADE");
}
