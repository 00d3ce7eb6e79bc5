//! What a server is sent for a client's messages: a statement that this connection lacks comes first, names are
//! those that servers know, and what hihooi adds is answered to nobody (I1).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hihooi_session::answers::{Audience, Event};
use hihooi_session::downstream::{Downstream, Message};
use hihooi_session::events::{Meaning, Prepared};
use hihooi_session::upstream::{Named, STATEMENTS_MAX, Upstream, server_name};
use hihooi_wire::backend::tag;
use hihooi_wire::frontend::{self, Bind, Parse, Target};
use hihooi_wire::{Fields, frame};

const INSERT: Named<'_> =
    Named { id: 5, server_name: b"hihooi_5", query: b"insert", types: b"\0\0" };

/// A message as it came from a client.
fn message(write: impl FnOnce(&mut BytesMut)) -> Message {
    let mut client = Downstream::default();
    write(&mut client.input);
    client.buffered().expect("the protocol").expect("a whole message")
}

fn parse(name: &[u8]) -> Message {
    message(|out| Parse { statement: name, query: INSERT.query, types: INSERT.types }.write(out))
}

fn bind(name: &[u8]) -> Message {
    message(|out| frontend::bind(b"", name, std::iter::empty(), out))
}

/// What was sent, a word a message, taken out.
fn sent(server: &mut Upstream) -> String {
    let bytes = std::mem::take(&mut server.output);
    let (mut rest, mut words) = (&bytes[..], Vec::new());
    while let Some((tag, whole)) = frame::whole(rest).expect("the protocol") {
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let body = frame::body(whole);
        words.push(match tag {
            frontend::tag::PARSE => {
                format!("P:{}", name(Parse::read(body).expect("one").statement))
            }
            frontend::tag::BIND => format!("B:{}", name(Bind::read(body).expect("one").statement)),
            frontend::tag::CLOSE | frontend::tag::DESCRIBE => {
                let name = name(Fields::new(tag, &body[1..]).cstr().expect("a name"));
                format!("{}{}:{name}", char::from(tag), char::from(body[0]))
            }
            _ => char::from(tag).to_string(),
        });
        rest = &rest[whole.len()..];
    }
    words.join(" ")
}

/// Whether the client gets these answers.
fn relayed(server: &mut Upstream, tags: &[u8]) -> String {
    let relays = |tag: &&u8| {
        let verdict = server.answers.received(**tag, b"");
        if let Event::Parsed(id) = verdict.event {
            server.parsed(id);
        }
        verdict.relay
    };
    tags.iter().filter(relays).map(|&tag| char::from(tag)).collect()
}

#[test]
fn i1_a_statement_that_the_server_lacks_is_made_in_front() {
    let mut server = Upstream::default();
    server.write_bind(&bind(b"s"), Some(INSERT), Audience::Client);
    assert_eq!(sent(&mut server), "CS:hihooi_5 P:hihooi_5 B:hihooi_5");
    let answers = [tag::CLOSE_COMPLETE, tag::PARSE_COMPLETE, tag::BIND_COMPLETE];
    assert_eq!(relayed(&mut server, &answers), "2");
    server.write_bind(&bind(b"s"), Some(INSERT), Audience::Client);
    assert_eq!(sent(&mut server), "B:hihooi_5", "it is there now");
    server.forget_statements();
    server.write_bind(&bind(b"s"), Some(INSERT), Audience::Client);
    assert_eq!(sent(&mut server), "CS:hihooi_5 P:hihooi_5 B:hihooi_5");
}

#[test]
fn i1_a_parse_on_its_way_is_not_repeated() {
    let mut server = Upstream::default();
    server.write_parse(&parse(b"s"), INSERT, false, Audience::Client);
    server.write_bind(&bind(b"s"), Some(INSERT), Audience::Client);
    assert_eq!(sent(&mut server), "CS:hihooi_5 P:hihooi_5 B:hihooi_5");
    let answers = [tag::CLOSE_COMPLETE, tag::PARSE_COMPLETE, tag::BIND_COMPLETE];
    assert_eq!(relayed(&mut server, &answers), "12");
}

#[test]
fn i1_the_unnamed_statement_is_the_clients_own() {
    let mut server = Upstream::default();
    server.write_parse(&parse(b""), INSERT, false, Audience::Client);
    server.write_bind(&bind(b""), Some(INSERT), Audience::Client);
    assert_eq!(sent(&mut server), "P: B:");
    // A question of ours takes its place.
    server.write_own("select", &[]);
    assert_eq!(sent(&mut server), "P: B: E CP:hihooi_own");
    server.write_bind(&bind(b""), Some(INSERT), Audience::Client);
    assert_eq!(sent(&mut server), "P: B:", "made again");
    // A client that has none doesn't get somebody else's.
    server.write_bind(&bind(b""), None, Audience::Client);
    assert_eq!(sent(&mut server), "CS: B:");
}

#[test]
fn i1_a_taken_name_is_refused_by_the_server_itself() {
    let mut server = Upstream::default();
    server.write_parse(&parse(b"s"), INSERT, true, Audience::Client);
    assert_eq!(sent(&mut server), "P:s P:s");
    assert!(server.write_cleanup(), "the name is free again behind the unit");
    assert_eq!(sent(&mut server), "CS:s S");
}

#[test]
fn i1_a_described_statement_is_there() {
    let mut server = Upstream::default();
    let describe = message(|out| frontend::describe(Target::Statement, b"s", out));
    let (query, types) = (Bytes::from_static(INSERT.query), Bytes::from_static(INSERT.types));
    let insert = Prepared::new(INSERT.id, query, types, Meaning::default());
    server.write_describe(&describe, Some(&Arc::new(insert)), Audience::Client);
    assert_eq!(sent(&mut server), "CS:hihooi_5 P:hihooi_5 DS:hihooi_5");
    server.write_describe(&describe, None, Audience::Client);
    assert_eq!(sent(&mut server), "DS:s", "the server says that there is none");
}

#[test]
fn i8_a_connection_keeps_so_many_statements() {
    let mut server = Upstream::default();
    let max = STATEMENTS_MAX as u64;
    (1..=max + 2).for_each(|id| server.parsed(id));
    server.close_surplus();
    let first = [1, 2].map(|id| String::from_utf8(server_name(id)).expect("text"));
    assert_eq!(sent(&mut server), format!("CS:{} CS:{}", first[0], first[1]));
    assert!(!server.has_statement(1) && server.has_statement(max + 2));
}

#[test]
fn a_connection_with_anything_under_way_is_not_clean() {
    let clean = Upstream::default;
    assert!(clean().is_clean());
    let mut unsynced = clean();
    unsynced.write_own("select", &[]);
    unsynced.output.clear();
    let answers =
        [tag::PARSE_COMPLETE, tag::BIND_COMPLETE, tag::COMMAND_COMPLETE, tag::CLOSE_COMPLETE];
    relayed(&mut unsynced, &answers);
    assert!(unsynced.answers.is_empty() && !unsynced.is_clean(), "its transaction is open");
    let mut asked = clean();
    asked.write_sync(Audience::Us);
    assert!(!asked.is_clean());
    let mut in_block = clean();
    in_block.status = hihooi_wire::backend::Status::Block;
    assert!(!in_block.is_clean());
}
