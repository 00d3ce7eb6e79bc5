//! Who gets which frame of a server (I1), as scripts: `golden/relaying.txt`. Each is played whole, byte by
//! byte, and cut once at every byte; what the client gets and what the session learns must always be the
//! same. `UPDATE_GOLDEN=1 cargo test` rewrites the lines of results; read the diff before you commit it.
//!
//! ```text
//! == name
//! replica, held, defers      a replica answers; the answer is held back; a write's rows come behind it
//! mapped                     its type 20480, the array 20481 of it, and its table 20482 are the primary's
//!                            30000, 30001 and 30002
//! sent Client: P B E         what was sent for whom: P, B, D (of a portal), d (of a statement), E, C, S, Q
//! < 1 2 D:a C:INSERT Z:I     what the server says
//! > 1 2 D:a C:INSERT Z:I     what the client gets of it
//! ! Ready(Idle)              what the session learns
//! ```
//! Messages: `T` describes a column (`T:table.number.type` of a table and type of users', `/b` in binary),
//! `t` parameters (`t:type`), `D:text` is a row (`D:*99` of 99 bytes),
//! `E:code` and `F:code` are an error and a fatal one, `N` a notice, `A:pid` a notification, `S:value` a
//! parameter, `C:tag`, `Z:status`; others are empty.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use hihooi_session::answers::{Audience, Sent};
use hihooi_session::downstream::Downstream;
use hihooi_session::own_types::Objects;
use hihooi_session::relaying::{Hold, Lent, Step, look_at};
use hihooi_session::upstream::Upstream;
use hihooi_wire::backend::{self, ErrorFields, Status, tag};
use hihooi_wire::{frame, frontend};

/// OID of the columns of `T`.
const TEXT: u32 = 25;
/// The number by which the client knows itself.
const PROCESS: i32 = 7;
/// That of its backend.
const BACKEND: i32 = 99;

/// Which of the replica's objects are which of the primary's, where that is known.
fn objects() -> Objects {
    let mut objects = Objects::default();
    objects.add_type(20_480, 30_000, false);
    objects.add_parameter(20_480, 30_000);
    objects.add_type(20_481, 30_001, true);
    objects.add_parameter(20_481, 30_001);
    objects.add_table(20_482, 30_002);
    objects
}

/// One script.
#[derive(Clone, Default)]
struct Script {
    is_replica: bool,
    is_held: bool,
    is_mapped: bool,
    defers_rows: bool,
    /// The applier of the replica ended it.
    was_ended: bool,
    sent: Vec<(Sent, Audience)>,
    frames: BytesMut,
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    client: Vec<u8>,
    steps: Vec<Step>,
    is_held: bool,
}

/// A server's message from its short form.
fn write(token: &str, out: &mut BytesMut) {
    let (name, value) = token.split_once(':').unwrap_or((token, ""));
    let name = name.as_bytes()[0];
    match (name, value) {
        (b'T', column) if !column.is_empty() => {
            frontend::message(tag::ROW_DESCRIPTION, out, |out| {
                let (column, is_binary) = column.strip_suffix("/b").map_or((column, 0), |c| (c, 1));
                let numbers: Vec<u32> =
                    column.split('.').map(|n| n.parse().expect("one")).collect();
                out.extend_from_slice(b"\0\x01a\0");
                out.extend_from_slice(&numbers[0].to_be_bytes());
                out.extend_from_slice(&(numbers[1] as u16).to_be_bytes());
                out.extend_from_slice(&numbers[2].to_be_bytes());
                out.extend_from_slice(&[0, 4, 255, 255, 255, 255, 0, is_binary]);
            })
        }
        (b't', oid) if !oid.is_empty() => frontend::message(name, out, |out| {
            out.extend_from_slice(&[0, 1]);
            out.extend_from_slice(&oid.parse::<u32>().expect("an OID").to_be_bytes());
        }),
        (b'T', _) => backend::row_description(&["a"], out),
        (b'D', value) => {
            let long =
                value.strip_prefix('*').map(|len| "x".repeat(len.parse().expect("a number")));
            backend::data_row([Some(long.as_deref().unwrap_or(value))].into_iter(), out);
        }
        (b'C', command) => backend::command_complete(command, out),
        (b'E', code) => error("ERROR", code, out),
        (b'F', code) => error("FATAL", code, out),
        (b'A', pid) => frontend::message(tag::NOTIFICATION, out, |out| {
            out.extend_from_slice(&pid.parse::<i32>().expect("a number").to_be_bytes());
            out.extend_from_slice(b"channel\0\0");
        }),
        (b'S', value) => frontend::message(tag::PARAMETER_STATUS, out, |out| {
            out.extend_from_slice(format!("name\0{value}\0").as_bytes());
        }),
        (b'Z', status) => {
            let status = Status::from_byte(status.as_bytes()[0]).expect("a status");
            backend::ready_for_query(status, out);
        }
        (b't' | b'G' | b'H', _) => {
            frontend::message(name, out, |out| out.extend_from_slice(&[0; 3]))
        }
        _ => backend::empty(name, out),
    }
}

fn error(severity: &str, code: &str, out: &mut BytesMut) {
    let field = |(name, value): (u8, &str)| (name, value.to_owned());
    let fields = [(b'V', severity), (b'C', code), (b'M', "why")].map(field).to_vec();
    ErrorFields { fields }.write(out);
}

/// A message's short form.
fn read(message: &[u8]) -> String {
    let body = frame::body(message);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    let value = match message[0] {
        tag::DATA_ROW if body.len() > 40 => format!("*{}", body.len() - 6),
        tag::DATA_ROW => text(&body[6..]),
        tag::COMMAND_COMPLETE | tag::READY_FOR_QUERY => text(body),
        tag::ERROR => {
            let fields = ErrorFields::read(body).expect("an error");
            let code = fields.code().to_owned();
            return match fields.get(b'V') {
                Some("FATAL") => format!("F:{code}"),
                _ => format!("E:{code}"),
            };
        }
        tag::NOTIFICATION => i32::from_be_bytes([body[0], body[1], body[2], body[3]]).to_string(),
        tag::ROW_DESCRIPTION if body[10..14] != TEXT.to_be_bytes() => {
            let number = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().expect("four"));
            let format = if body[body.len() - 1] == 1 { "/b" } else { "" };
            format!("{}.{}.{}{format}", number(4), number(6) & 0xffff, number(10))
        }
        tag::PARAMETER_DESCRIPTION if body.len() > 4 => {
            u32::from_be_bytes(body[2..6].try_into().expect("four")).to_string()
        }
        tag::PARAMETER_STATUS => text(body).split_once('\0').expect("two").1.to_owned(),
        _ => String::new(),
    };
    let name = char::from(message[0]);
    if value.is_empty() { name.to_string() } else { format!("{name}:{value}") }
}

impl Script {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("sent ") {
            let (audience, messages) = rest.split_once(": ").expect("for whom");
            let audience = audience_of(audience);
            let sent = messages.split(' ').map(|message| (sent_of(message), audience));
            self.sent.extend(sent);
        } else if let Some(frames) = line.strip_prefix("< ") {
            frames.split(' ').for_each(|token| write(token, &mut self.frames));
        } else {
            for word in line.split(", ") {
                match word {
                    "replica" => self.is_replica = true,
                    "held" => self.is_held = true,
                    "mapped" => self.is_mapped = true,
                    "defers" => self.defers_rows = true,
                    "ended" => self.was_ended = true,
                    other => panic!("script: {other:?} in {line:?}"),
                }
            }
        }
    }

    /// Plays it with the server's bytes in these pieces.
    fn play<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
        let mut client = Downstream { process: PROCESS, ..Downstream::default() };
        let mut server = Upstream::new(self.is_replica, BACKEND, BytesMut::new());
        server.defers_rows = self.defers_rows;
        server.objects = self.is_mapped.then(|| Arc::new(objects()));
        for (sent, audience) in &self.sent {
            server.answers.sent(sent.clone(), *audience);
        }
        let mut hold = if self.is_held { Hold::UntilRows } else { Hold::No };
        let (mut steps, mut waiting) = (Vec::new(), Vec::new());
        for piece in pieces {
            waiting.extend_from_slice(piece);
            loop {
                let lent = Lent { was_ended: &|| self.was_ended, ..Lent::default() };
                let looked = look_at(&waiting, &mut client, &mut server, &mut hold, lent);
                let (used, step) = looked.expect("the protocol");
                waiting.drain(..used);
                match step {
                    Some(step) => {
                        let ends = matches!(step, Step::Refused(_) | Step::OwnTypes(_));
                        steps.push(step);
                        if ends {
                            waiting.clear(); // the session asks somebody else
                            let is_held = hold == Hold::UntilRows;
                            return Outcome { client: client.output.to_vec(), steps, is_held };
                        }
                    }
                    None => break,
                }
            }
        }
        assert!(waiting.is_empty(), "bytes are left");
        Outcome { client: client.output.to_vec(), steps, is_held: hold == Hold::UntilRows }
    }

    /// What comes of it, however its bytes come.
    fn outcome(&self, name: &str) -> Outcome {
        let whole = self.play(std::iter::once(&self.frames[..]));
        assert_eq!(self.play(self.frames.chunks(1)), whole, "{name}: byte by byte");
        for cut in 0..self.frames.len().min(2_000) {
            let (head, tail) = self.frames.split_at(cut);
            assert_eq!(self.play([head, tail].into_iter()), whole, "{name}: cut at {cut}");
        }
        whole
    }
}

fn audience_of(name: &str) -> Audience {
    match name {
        "Client" => Audience::Client,
        "Simple" => Audience::Simple,
        "Hidden" => Audience::Hidden,
        "Us" => Audience::Us,
        "Question" => Audience::Question,
        other => panic!("script: nobody is called {other:?}"),
    }
}

fn sent_of(message: &str) -> Sent {
    match message {
        "P" => Sent::Parse(Some(1)),
        "B" => Sent::Bind,
        "D" => Sent::DescribePortal,
        "d" => Sent::DescribeStatement(None),
        "E" => Sent::Execute,
        "C" => Sent::Close(None),
        "S" => Sent::Sync,
        "Q" => Sent::Query,
        other => panic!("script: nothing sent is called {other:?}"),
    }
}

fn shown(step: &Step) -> String {
    match step {
        Step::Refused(fields) => format!("Refused({})", fields.code()),
        other => format!("{other:?}"),
    }
}

fn render(outcome: &Outcome, out: &mut String) {
    let mut rest = &outcome.client[..];
    let mut line = String::from(">");
    while let Some((_, message)) = frame::whole(rest).expect("the protocol") {
        let _ = write!(line, " {}", read(message));
        rest = &rest[message.len()..];
    }
    assert!(rest.is_empty(), "the client has half a message");
    let steps: Vec<String> = outcome.steps.iter().map(shown).collect();
    let held = if outcome.is_held { " held" } else { "" };
    let _ = writeln!(out, "{line}\n! {}{held}", steps.join(" "));
}

#[test]
fn i1_frames_reach_whom_they_are_for() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden/relaying.txt");
    let before = std::fs::read_to_string(&file).expect("a golden file");
    let mut after = String::new();
    for (number, part) in before.split("== ").enumerate() {
        if number == 0 {
            after.push_str(part);
            continue;
        }
        let (name, lines) = part.split_once('\n').expect("a name");
        let _ = writeln!(after, "== {name}");
        let mut script = Script::default();
        let given = lines.lines().filter(|line| !line.starts_with(['>', '!']) && !line.is_empty());
        for line in given {
            let _ = writeln!(after, "{line}");
            if !line.starts_with('#') {
                script.line(line);
            }
        }
        render(&script.outcome(name), &mut after);
        after.push('\n');
    }
    let after = format!("{}\n", after.trim_end());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, after).expect("writing the golden file");
    } else {
        for (line, (after, before)) in after.lines().zip(before.lines()).enumerate() {
            assert_eq!(after, before, "relaying.txt:{}", line + 1);
        }
        assert_eq!(after.len(), before.len());
    }
}

/// The bound of what is held whole (I8): a row above 64 KB passes in pieces.
#[test]
fn i8_a_large_row_is_passed_in_pieces() {
    let mut script = Script::default();
    script.line("sent Client: Q");
    script.line("< D:*200000 C:SELECT Z:I");
    let mut client = Downstream::default();
    let mut server = Upstream::new(false, BACKEND, BytesMut::new());
    server.answers.sent(Sent::Query, Audience::Client);
    let head = &script.frames[..1_000];
    let looked = look_at(head, &mut client, &mut server, &mut Hold::No, Lent::default());
    assert_eq!(looked, Ok((1_000, None)));
    assert_eq!(client.output, head, "nothing is kept back");
    assert!(client.is_amid_message);
    assert_eq!(script.outcome("large").client, script.frames);
}
