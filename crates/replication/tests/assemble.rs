//! From messages to entries: dense TSIDs, chunks that stand alone, exact items, notes of DDL in
//! their place (I5, I6).

use std::sync::Arc;

use bytes::Bytes;
use hihooi_replication::assemble::{AssembleError, Assembler, ITEMS_TABLES_MAX, Output};
use hihooi_replication::codec::{self, KnownRelations};
use hihooi_replication::entry::{
    CHUNK_LEN_MAX, Change, Column, Entry, Header, Identity, Relation, Value,
};
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_replication::items::{Items, RelId};
use hihooi_replication::note::Note;
use hihooi_replication::pgoutput::Message;
use hihooi_replication::written::Written;
use proptest::prelude::*;

const NOTE_TABLE: RelId = RelId(9000);
const OUR_OTHER: RelId = RelId(9001);

fn relation(id: u32, columns: &[&str]) -> Relation {
    named(RelId(id), "public", &format!("t{id}"), columns)
}

fn named(id: RelId, schema: &str, name: &str, columns: &[&str]) -> Relation {
    let column =
        |name: &&str| Column { name: (*name).to_owned(), type_oid: 25, key: *name == "id" };
    Relation {
        id,
        schema: schema.to_owned(),
        name: name.to_owned(),
        identity: Identity::Default,
        columns: columns.iter().map(column).collect(),
    }
}

fn text(text: &str) -> Value {
    Value::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn begin(commit: u64) -> Message {
    Message::Begin { commit_lsn: Lsn(commit), commit_time_us: 7, xid: xid(commit) }
}

fn xid(commit: u64) -> u32 {
    u32::try_from(commit).expect("small") + 1000
}

fn commit(commit: u64) -> Message {
    Message::Commit { commit_lsn: Lsn(commit), end_lsn: Lsn(commit + 5) }
}

fn insert(id: u32, values: &[&str]) -> Message {
    Message::Insert { relation: RelId(id), new: values.iter().map(|value| text(value)).collect() }
}

/// A row that an event trigger writes.
fn note(event: &str, body: &str) -> Message {
    Message::Insert { relation: NOTE_TABLE, new: vec![text("an id"), text(event), text(body)] }
}

fn command(tag: &str) -> Message {
    note("command", &format!(r#"{{"tag": "{tag}", "role": "joe", "query": "{tag} x"}}"#))
}

fn describe_ours() -> [Message; 2] {
    [
        Message::Relation(named(NOTE_TABLE, "hihooi", "note", &["id", "event", "body"])),
        Message::Relation(named(OUR_OTHER, "hihooi", "identity", &["relation"])),
    ]
}

/// A message that holds a row.
fn message(prefix: &'static str, content: &'static str) -> Message {
    Message::Logical { transactional: true, prefix: prefix.into(), content: content.into() }
}

fn assembler() -> Assembler {
    Assembler::new(1, None)
}

fn feed(assembler: &mut Assembler, messages: impl IntoIterator<Item = Message>) -> Vec<Output> {
    let mut out = Vec::new();
    for message in messages {
        assembler.step(message, &mut out).expect("a sensible stream");
    }
    out
}

fn entry(outputs: &[Output]) -> &Entry {
    let entries = outputs.iter().filter_map(|output| match output {
        Output::Entry(entry, _) => Some(entry),
        _ => None,
    });
    let entries: Vec<&Entry> = entries.collect();
    assert_eq!(entries.len(), 1, "{outputs:?}");
    entries[0]
}

fn changes(outputs: &[Output]) -> Vec<Change> {
    decode_chunk(&entry(outputs).chunks[0])
}

fn decode_chunk(chunk: &Bytes) -> Vec<Change> {
    codec::decode_chunk(chunk, &mut KnownRelations::default()).expect("decodes")
}

/// Hihooi section 4.2: the next TSID, known at the beginning; none for what changes nothing.
#[test]
fn transactions_without_changes_get_no_tsid() {
    let mut assembler = assembler();
    let described = Message::Relation(relation(1, &["id"]));
    let first = feed(&mut assembler, [begin(10), described, insert(1, &["a"]), commit(10)]);
    let header = Header {
        tsid: Tsid(1),
        incarnation: 1,
        commit_lsn: Lsn(10),
        end_lsn: Lsn(15),
        xid: xid(10),
        commit_time_us: 7,
        items: Items::tables([RelId(1)]),
        has_ddl: false,
        chunks: 1,
        changes: 1,
    };
    assert_eq!(entry(&first).header, header);
    assert_eq!(first.last(), Some(&Output::Passed(Lsn(15))));
    let empty = feed(&mut assembler, [begin(20), Message::Origin, Message::Type, commit(20)]);
    assert_eq!(empty, [Output::Passed(Lsn(25))]);
    let second = feed(&mut assembler, [begin(30), insert(1, &["b"]), commit(30)]);
    assert_eq!(entry(&second).header.tsid, Tsid(2));
    let new = vec![text("b")];
    let expected = [
        Change::Relation(Arc::new(relation(1, &["id"]))),
        Change::Insert { relation: RelId(1), new },
    ];
    assert_eq!(changes(&second), expected, "relations are repeated in each chunk");
}

/// I5: what the log holds already is not taken twice, and the numbers go on behind it.
#[test]
fn known_transactions_are_skipped() {
    let last = Header {
        tsid: Tsid(7),
        incarnation: 1,
        commit_lsn: Lsn(20),
        end_lsn: Lsn(25),
        xid: 1,
        commit_time_us: 0,
        items: Items::Everything,
        has_ddl: false,
        chunks: 1,
        changes: 1,
    };
    let mut assembler = Assembler::new(1, Some(&last));
    feed(&mut assembler, describe_ours());
    let described = Message::Relation(relation(1, &["id"]));
    let known = [begin(20), described, insert(1, &["a"]), command("ALTER TABLE"), commit(20)];
    assert_eq!(feed(&mut assembler, known), [Output::Passed(Lsn(25))]);
    let next = feed(&mut assembler, [begin(30), insert(1, &["a"]), commit(30)]);
    assert_eq!(entry(&next).header.tsid, Tsid(8));
    // A promoted primary counts LSNs anew.
    let mut promoted = Assembler::new(2, Some(&last));
    let described = Message::Relation(relation(1, &["id"]));
    let next = feed(&mut promoted, [begin(3), described, insert(1, &["a"]), commit(3)]);
    assert_eq!((entry(&next).header.tsid, entry(&next).header.incarnation), (Tsid(8), 2));
}

/// I5, I6: what the server can't decode is one entry, which may have written anything; its end, and everything behind it,
/// is told as ever.
#[test]
fn what_is_passed_over_is_an_entry() {
    let mut assembler = assembler();
    let described = Message::Relation(relation(1, &["id"]));
    feed(&mut assembler, [begin(10), described, insert(1, &["a"]), commit(10)]);
    let mut outputs = Vec::new();
    let passed = assembler.pass_over(Lsn(96), 77, 7, "why".to_owned(), &mut outputs);
    assert_eq!(passed, Ok(()));
    let header = Header {
        tsid: Tsid(2),
        incarnation: 1,
        commit_lsn: Lsn(95),
        end_lsn: Lsn(96),
        xid: 77,
        commit_time_us: 7,
        items: Items::Everything,
        has_ddl: true,
        chunks: 1,
        changes: 1,
    };
    let [
        Output::Chunk { tsid: Tsid(2), n: 0, bytes },
        Output::Entry(entry, Written::Everything),
        Output::Passed(Lsn(96)),
    ] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    // The log may have chunks of a transaction that broke off: this one comes in their place.
    assert_eq!((&entry.header, entry.chunks.len()), (&header, 0));
    assert!(header.is_passed_over());
    assert_eq!(decode_chunk(bytes), [Change::Note(Note::Undecoded("why".to_owned()))]);
    let next = feed(&mut assembler, [begin(96), insert(1, &["b"]), commit(96)]);
    assert_eq!(self::entry(&next).header.tsid, Tsid(3));
    feed(&mut assembler, [begin(110)]);
    let inside = assembler.pass_over(Lsn(120), 77, 7, "why".to_owned(), &mut outputs);
    assert_eq!(inside, Err(AssembleError::Unbalanced));
}

/// A relation that changes its shape between two rows of one transaction.
#[test]
fn redefined_relations_are_described_again() {
    let mut assembler = assembler();
    let outputs = feed(
        &mut assembler,
        [
            begin(10),
            Message::Relation(relation(1, &["id"])),
            insert(1, &["a"]),
            insert(1, &["b"]),
            Message::Relation(relation(1, &["id", "more"])),
            insert(1, &["c", "d"]),
            commit(10),
        ],
    );
    let described: Vec<usize> = changes(&outputs)
        .iter()
        .enumerate()
        .filter_map(|(at, change)| matches!(change, Change::Relation(_)).then_some(at))
        .collect();
    assert_eq!(described, [0, 3]);
    assert_eq!(entry(&outputs).header.changes, 3);
}

/// An entry is a header and chunks of at most 1 MB; each can be read by itself.
#[test]
fn chunks_close_at_their_limit_and_stand_alone() {
    let mut assembler = assembler();
    let row = "x".repeat(CHUNK_LEN_MAX / 4);
    let mut messages = vec![begin(10), Message::Relation(relation(1, &["id"]))];
    messages.extend((0..10).map(|_| insert(1, &[&row])));
    messages.push(commit(10));
    let outputs = feed(&mut assembler, messages);
    let mut rows = 0;
    let mut count = 0;
    for output in &outputs {
        if let Output::Chunk { tsid, n, bytes } = output {
            assert_eq!((*tsid, *n), (Tsid(1), count));
            count += 1;
            let changes = decode_chunk(bytes);
            assert!(matches!(changes[0], Change::Relation(_)));
            rows += changes.len() - 1;
            assert!(bytes.len() < CHUNK_LEN_MAX + 2 * row.len());
        }
    }
    let entry = entry(&outputs);
    assert_eq!((rows, count, entry.header.chunks, entry.header.changes), (10, 3, 3, 10));
    assert!(entry.chunks.is_empty());
}

/// I6: exact tables, or everything.
#[test]
fn items_are_exact_up_to_a_limit() {
    let tables = u32::try_from(ITEMS_TABLES_MAX).expect("small");
    for (count, exact) in [(tables, true), (tables + 1, false)] {
        let mut messages = vec![begin(10)];
        for id in 1..=count {
            messages.push(Message::Relation(relation(id, &["id"])));
            messages.push(insert(id, &["a"]));
        }
        messages.push(commit(10));
        let outputs = feed(&mut assembler(), messages);
        let wanted = if exact { Items::tables((1..=count).map(RelId)) } else { Items::Everything };
        assert_eq!(entry(&outputs).header.items, wanted);
    }
}

#[test]
fn truncate_leaves_out_what_is_ours() {
    let mut assembler = assembler();
    let described = [Message::Relation(relation(1, &["id"]))].into_iter().chain(describe_ours());
    feed(&mut assembler, described);
    let truncate = |relations: &[RelId]| Message::Truncate {
        relations: relations.to_vec(),
        restart_identity: true,
    };
    let both = [begin(10), truncate(&[OUR_OTHER, RelId(1)]), commit(10)];
    let outputs = feed(&mut assembler, both);
    let expected = Change::Truncate { relations: vec![RelId(1)], restart_identity: true };
    assert_eq!(changes(&outputs)[1..], [expected]);
    assert_eq!(entry(&outputs).header.items, Items::tables([RelId(1)]));
    let ours = feed(&mut assembler, [begin(20), truncate(&[OUR_OTHER]), commit(20)]);
    assert_eq!(ours, [Output::Passed(Lsn(25))]);
}

fn tags(changes: &[Change]) -> Vec<String> {
    let words = |change: &Change| match change {
        Change::Note(Note::Command(command)) => command.tag.clone(),
        Change::Note(Note::Unknown(what)) => format!("unknown: {what}"),
        Change::Insert { relation, new } => format!("row of {}: {new:?}", relation.0),
        Change::Relation(relation) => format!("relation {}", relation.name),
        other => format!("{other:?}"),
    };
    changes.iter().map(words).collect()
}

fn run(messages: Vec<Message>) -> Vec<Output> {
    let mut assembler = assembler();
    feed(&mut assembler, describe_ours());
    feed(&mut assembler, [Message::Relation(relation(1, &["id"]))]);
    feed(&mut assembler, [vec![begin(10)], messages, vec![commit(10)]].concat())
}

/// I2: what the primary did to its schema stands between the rows where it did it.
#[test]
fn notes_stand_in_their_place() {
    let outputs =
        run(vec![insert(1, &["a"]), command("ALTER TABLE"), insert(1, &["b"]), command("GRANT")]);
    assert_eq!(entry(&outputs).header.items, Items::Everything);
    assert!(entry(&outputs).header.has_ddl);
    let found = tags(&changes(&outputs));
    assert_eq!(found.len(), 5, "{found:?}");
    assert_eq!([&found[2], &found[4]], ["ALTER TABLE", "GRANT"]);
    let unknown = tags(&changes(&run(vec![note("other", "{}"), note("command", "[]")])));
    assert!(unknown.iter().all(|words| words.starts_with("unknown: ")), "{unknown:?}");
}

/// A table whose rows travel whole: only messages that a note vouches for are rows.
#[test]
fn messages_are_rows_only_behind_their_note() {
    let rows =
        r#"{"token": "T", "relation": 7, "schema": "s", "name": "t", "columns": ["a", "b"]}"#;
    let outputs = run(vec![
        message("hihooi_rows", "T{1,2}"),
        note("rows", rows),
        message("hihooi_rows", "T{1,NULL}"),
        message("hihooi_rows", "X{3,4}"),
        message("other", "T{3,4}"),
        note("rows_end", r#"{"token": "T"}"#),
        message("hihooi_rows", "T{5,6}"),
        command("ALTER TABLE"),
    ]);
    let new = vec![text("1"), Value::Null];
    let row = Change::Insert { relation: RelId(7), new };
    let found = changes(&outputs);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[1], row);
    assert_eq!(tags(&found[2..]), ["ALTER TABLE"]);
    let outside = Message::Logical {
        transactional: false,
        prefix: "hihooi_rows".into(),
        content: "T{1,2}".into(),
    };
    assert_eq!(feed(&mut assembler(), [outside]), []);
}

#[test]
fn senseless_streams_are_refused() {
    let run = |messages: Vec<Message>| {
        let mut assembler = assembler();
        let mut out = Vec::new();
        messages.into_iter().find_map(|message| assembler.step(message, &mut out).err())
    };
    let described = Message::Relation(relation(1, &["id"]));
    assert_eq!(run(vec![commit(1)]), Some(AssembleError::Unbalanced));
    assert_eq!(run(vec![begin(1), begin(2)]), Some(AssembleError::Unbalanced));
    assert_eq!(run(vec![described.clone(), insert(1, &["a"])]), Some(AssembleError::Unbalanced));
    assert_eq!(run(vec![begin(1), insert(1, &["a"])]), Some(AssembleError::Relation(1)));
    assert_eq!(
        run(vec![begin(1), described, insert(1, &["a", "b"])]),
        Some(AssembleError::Relation(1))
    );
}

/// I3: a keepalive inside a transaction may lie beyond its commit.
#[test]
fn keepalives_pass_only_between_transactions() {
    let mut assembler = assembler();
    let mut out = Vec::new();
    assembler.keepalive(Lsn(5), &mut out);
    assembler.step(begin(10), &mut out).expect("begins");
    assembler.keepalive(Lsn(50), &mut out);
    assert_eq!(out, [Output::Passed(Lsn(5))]);
}

proptest! {
    /// I5: whatever was read before the stream broke, a new one behind the log's last entry
    /// gives the same entries.
    #[test]
    fn a_broken_stream_goes_on_where_it_was(rows in proptest::collection::vec(0..4_u64, 1..30), cut: usize) {
        let described = || Message::Relation(relation(1, &["id"]));
        let messages = |from: usize| {
            let rows = rows.iter().enumerate().skip(from);
            let transactions = rows.flat_map(|(at, count)| {
                let lsn = 10 * (at as u64 + 1);
                let inserts = (0..*count).map(move |n| insert(1, &[&n.to_string()]));
                [begin(lsn)].into_iter().chain(inserts).chain([commit(lsn)])
            });
            [described()].into_iter().chain(transactions).collect::<Vec<_>>()
        };
        let entries = |outputs: Vec<Output>| {
            let entries = outputs.into_iter().filter_map(|output| match output {
                Output::Entry(entry, _) => Some(entry),
                _ => None,
            });
            entries.collect::<Vec<_>>()
        };
        let whole = entries(feed(&mut assembler(), messages(0)));
        let all = messages(0);
        let before = all[..cut % all.len()].to_vec();
        let mut resumed = entries(feed(&mut assembler(), before));
        let last = resumed.last().map(|entry| entry.header.clone());
        // The server may go back further than the log needs.
        let from = last.as_ref().map_or(0, |last| (last.commit_lsn.0 / 10).saturating_sub(2));
        let mut second = Assembler::new(1, last.as_ref());
        resumed.extend(entries(feed(&mut second, messages(usize::try_from(from).expect("small")))));
        prop_assert_eq!(resumed, whole);
    }
}
