//! From messages to entries: dense TSIDs, chunks that stand alone, exact items, DDL told from
//! what bypassed us (I5, I6).

use bytes::Bytes;
use hihooi_replication::assemble::{AssembleError, Assembler, ITEMS_TABLES_MAX, Output};
use hihooi_replication::codec::decode_chunk;
use hihooi_replication::ddl::{self, Announced, ClusterKey, Refused};
use hihooi_replication::entry::{
    CHUNK_LEN_MAX, Change, Column, Ddl, Entry, Header, Identity, Relation, Tuple, Value,
};
use hihooi_replication::ids::{Lsn, Tsid, Xid};
use hihooi_replication::items::{Items, RelId};
use hihooi_replication::pgoutput::Message;
use proptest::prelude::*;

const KEY: ClusterKey = ClusterKey([3; 32]);
const DDL_TABLE: RelId = RelId(9000);
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

fn announce(commit: u64, sequence: u32, statement: &str) -> Message {
    let sealed = ddl::seal(&KEY, Xid(u64::from(xid(commit))), sequence, &ddl_of(statement));
    Message::Logical { transactional: true, prefix: "hihooi".into(), content: sealed.into() }
}

fn ddl_of(statement: &str) -> Ddl {
    Ddl {
        text: statement.to_owned(),
        role: "joe".to_owned(),
        settings: vec![],
        outside_transaction: false,
    }
}

fn detect(event: &str, statement: &str) -> Message {
    let new: Tuple = vec![text(event), text("ALTER TABLE"), text(statement)];
    Message::Insert { relation: DDL_TABLE, new }
}

fn describe_ours() -> [Message; 2] {
    [
        Message::Relation(named(DDL_TABLE, "hihooi", "ddl", &["event", "tag", "text"])),
        Message::Relation(named(OUR_OTHER, "hihooi", "identity", &["relation"])),
    ]
}

fn assembler() -> Assembler {
    Assembler::new(1, KEY, None)
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
        Output::Entry(entry) => Some(entry),
        _ => None,
    });
    let entries: Vec<&Entry> = entries.collect();
    assert_eq!(entries.len(), 1, "{outputs:?}");
    entries[0]
}

fn changes(outputs: &[Output]) -> Vec<Change> {
    decode_chunk(&entry(outputs).chunks[0]).expect("decodes")
}

/// Hihooi 4.2: the next TSID, known at the beginning; none for what changes nothing.
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
    let expected =
        [Change::Relation(relation(1, &["id"])), Change::Insert { relation: RelId(1), new }];
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
    let mut assembler = Assembler::new(1, KEY, Some(&last));
    let described = Message::Relation(relation(1, &["id"]));
    let known = [begin(20), described, insert(1, &["a"]), announce(20, 1, "x"), commit(20)];
    assert_eq!(feed(&mut assembler, known), [Output::Passed(Lsn(25))]);
    let next = feed(&mut assembler, [begin(30), insert(1, &["a"]), commit(30)]);
    assert_eq!(entry(&next).header.tsid, Tsid(8));
    // A promoted primary counts LSNs anew.
    let mut promoted = Assembler::new(2, KEY, Some(&last));
    let described = Message::Relation(relation(1, &["id"]));
    let next = feed(&mut promoted, [begin(3), described, insert(1, &["a"]), commit(3)]);
    assert_eq!((entry(&next).header.tsid, entry(&next).header.incarnation), (Tsid(8), 2));
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
            let changes = decode_chunk(bytes).expect("decodes");
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

/// Event triggers check the parser's reading.
#[test]
fn detected_ddl_counts_as_bypassed_unless_announced_before() {
    let bypassed = |statement: &str| Change::Bypassed {
        command: "ALTER TABLE".to_owned(),
        text: statement.to_owned(),
    };
    let run = |messages: Vec<Message>| {
        let mut assembler = assembler();
        feed(&mut assembler, describe_ours());
        let inside = [vec![begin(10)], messages, vec![commit(10)]].concat();
        let outputs = feed(&mut assembler, inside);
        assert_eq!(entry(&outputs).header.items, Items::Everything);
        assert!(entry(&outputs).header.has_ddl);
        changes(&outputs)
    };
    let ddl = |statement| Change::Ddl(ddl_of(statement));
    assert_eq!(run(vec![announce(10, 1, " a\n"), detect("end", "a")]), [ddl(" a\n")]);
    let two = vec![announce(10, 1, "a"), detect("end", "a"), detect("drop", "a")];
    assert_eq!(run(two), [ddl("a")]);
    assert_eq!(run(vec![detect("end", "a")]), [bypassed("a")]);
    assert_eq!(run(vec![detect("end", "a"), announce(10, 1, "a")]), [bypassed("a"), ddl("a")]);
    assert_eq!(run(vec![announce(10, 1, "a"), detect("end", "b")]), [ddl("a"), bypassed("b")]);
    let rewritten = run(vec![announce(10, 1, "a"), detect("rewrite", "a")]);
    assert!(matches!(rewritten[1], Change::Bypassed { .. }), "nobody says that it is settled");
    // Event triggers tell of the statement that the primary ran, replicas run the other.
    let announced = Announced { ddl: ddl_of("b"), sent: Some("a".to_owned()), is_settled: true };
    let sealed = ddl::seal(&KEY, Xid(u64::from(xid(10))), 1, announced);
    let message =
        Message::Logical { transactional: true, prefix: "hihooi".into(), content: sealed.into() };
    let detected = [detect("rewrite", "a"), detect("end", "a"), detect("end", "b")];
    let rewritten = run([message].into_iter().chain(detected).collect());
    assert_eq!(rewritten, [ddl("b"), bypassed("b")]);
}

/// A message counts once, in its transaction, in its order, if the key made it.
#[test]
fn announcements_that_do_not_count_are_reported() {
    let mut assembler = assembler();
    let refused = |why| Output::Refused { xid: xid(10), why };
    let other = Message::Logical {
        transactional: true,
        prefix: "hihooi_flush".into(),
        content: "alter role joe superuser".into(),
    };
    let forged = Message::Logical {
        transactional: true,
        prefix: "hihooi".into(),
        content: "alter role joe superuser".into(),
    };
    let outside = Message::Logical {
        transactional: false,
        prefix: "hihooi".into(),
        content: "alter role joe superuser".into(),
    };
    let outputs = feed(
        &mut assembler,
        [outside.clone(), begin(10), outside, other, forged, announce(9, 1, "a"), commit(10)],
    );
    let expected =
        [refused(Refused::Forged), refused(Refused::OtherTransaction), Output::Passed(Lsn(15))];
    assert_eq!(outputs, expected);
    let copied = [announce(20, 2, "a"), announce(20, 2, "a"), announce(20, 1, "b")];
    let outputs = feed(&mut assembler, [begin(20)].into_iter().chain(copied).chain([commit(20)]));
    let replayed = Output::Refused { xid: xid(20), why: Refused::Replayed };
    assert_eq!(outputs[..2], [replayed.clone(), replayed]);
    assert_eq!(entry(&outputs).header.changes, 1);
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
                Output::Entry(entry) => Some(entry),
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
        let mut second = Assembler::new(1, KEY, last.as_ref());
        resumed.extend(entries(feed(&mut second, messages(usize::try_from(from).expect("small")))));
        prop_assert_eq!(resumed, whole);
    }
}
