//! Scripts of protocol exchanges, as text, and the transcript of what a server answers, message
//! by message. What may differ between two PostgreSQL servers (process ids, keys, OIDs of
//! users' objects) is masked; everything else must be the same (I1).
//!
//! One command a line; `\n`, `\t`, `\\` and `\xHH` are escapes; `-` is an empty name:
//! ```text
//! == name of the script
//! @b                 the following lines are session b's (it opens at first use; a is first)
//! Q text             Query
//! P name text        Parse; `P name [23,25] text` declares parameter types
//! B portal stmt v|v  Bind of text values, \N is NULL; `{1 0/1}` in front: formats of
//!                    parameters / of results (1: binary; a binary value is written in hex)
//! D S name, D P name, E portal rows, C S name, C P name, S, H    as in the manual
//! d text, c, f text  CopyData, CopyDone, CopyFail
//! F oid v|v          FunctionCall with text values and result
//! X                  Terminate
//! >                  send all that, then read to the ReadyForQuery of each Q, S and F in it
//! > 2                … to the second ReadyForQuery
//! > ?G               … to the first message G
//! > closed           … to the end of the connection
//! > later            send all that; it is read with what follows
//! ```
//! Lines that start with `#` are comments; `! primary` says that the script is only to be compared
//! while the primary answers all of it; `! known`, that nothing is sent before hihooi's catalog has all
//! DDL; `! anywhere`, that the place in PostgreSQL's source where an error arose isn't compared, since it depends on
//! which of a pool's connections is used (docs/differences.md tells what is otherwise). A line without `>` after it is sent with the next.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use hihooi_wire::Fields;
use hihooi_wire::backend::{ErrorFields, tag};
use hihooi_wire::frontend::{self, Target};

use super::client::{Message, Session};

/// A script: its name and its lines.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    pub name: &'a str,
    pub lines: &'a str,
}

impl Script<'_> {
    /// Whether only the primary answers it as the plain server does.
    pub fn is_for_primary(&self) -> bool {
        self.says("primary")
    }

    /// Whether hihooi must know all DDL before anything is sent.
    pub fn needs_catalog(&self) -> bool {
        self.says("known")
    }

    /// A transcript as it is compared.
    pub fn compared(&self, transcript: &str) -> String {
        if !self.says("anywhere") {
            return transcript.to_owned();
        }
        let without = |line: &str| line.split(" F=\"").next().unwrap_or_default().to_owned();
        transcript.lines().map(|line| without(line) + "\n").collect()
    }

    fn says(&self, word: &str) -> bool {
        self.lines.lines().any(|line| line.trim().strip_prefix("! ") == Some(word))
    }
}

/// Takes a text of scripts apart at its `==` lines.
pub fn scripts(text: &str) -> Vec<Script<'_>> {
    let part = |part| {
        let (name, lines) = str::split_once(part, '\n')?;
        Some(Script { name: name.trim(), lines })
    };
    text.split("\n== ").skip(1).filter_map(part).collect()
}

/// Plays a script; `open` opens a session by its name, `before` runs before anything is sent. The
/// transcript has a line a message.
pub fn play(
    script: Script<'_>,
    mut open: impl FnMut(&str) -> Session,
    before: impl Fn(),
) -> String {
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let mut transcript = String::new();
    let (mut current, mut out, mut expected) = ("a".to_owned(), BytesMut::new(), 0);
    for line in script.lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if line.starts_with(['#', '!']) {
            continue;
        }
        let _ = writeln!(transcript, "{line}");
        if let Some(name) = line.strip_prefix('@') {
            name.clone_into(&mut current);
            continue;
        }
        if !sessions.contains_key(&current) {
            sessions.insert(current.clone(), open(&current));
        }
        let session = sessions.get_mut(&current).expect("just opened");
        if let Some(until) = line.strip_prefix('>') {
            before();
            // A server may close while we still send; what it said before is what counts.
            let _ = session.send(&out);
            out.clear();
            if until.trim() == "later" {
                continue;
            }
            let expected = std::mem::take(&mut expected);
            if !receive(session, until.trim(), expected, &mut transcript) {
                break;
            }
        } else {
            expected += usize::from(line.starts_with(['Q', 'S', 'F']));
            compose(line, &mut out);
        }
    }
    transcript
}

/// Reads what the script expects; whether it came in time.
fn receive(session: &mut Session, until: &str, expected: usize, transcript: &mut String) -> bool {
    let mut ready = match until {
        "" => expected,
        "closed" => usize::MAX,
        count => count.parse().unwrap_or(usize::MAX),
    };
    while ready > 0 {
        let message = match session.next_unless_hang() {
            Some(Ok(message)) => message,
            Some(Err(_)) => {
                transcript.push_str("    closed\n");
                return true;
            }
            None => {
                transcript.push_str("    no answer: a hang (I8)\n");
                return false;
            }
        };
        let _ = writeln!(transcript, "    {}", render(&message));
        if until.strip_prefix('?').is_some_and(|t| t.as_bytes()[0] == message.tag) {
            return true;
        }
        ready -= usize::from(message.tag == tag::READY_FOR_QUERY);
    }
    true
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'x') => {
                let digits = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                out.extend(hex::decode(digits).expect("hex digits"));
            }
            Some(other) if other != b'\\' => out.extend([b'\\', other]),
            _ => out.push(b'\\'),
        }
    }
    out
}

fn name(word: &str) -> &[u8] {
    if word == "-" { b"" } else { word.as_bytes() }
}

fn target(word: &str) -> Target {
    if word == "S" { Target::Statement } else { Target::Portal }
}

fn compose(line: &str, out: &mut BytesMut) {
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
    match command {
        "Q" => frontend::query(&unescape(rest), out),
        "P" => compose_parse(first, second, out),
        "B" => compose_bind(first, second, out),
        "D" => frontend::describe(target(first), name(second), out),
        "C" => frontend::close(target(first), name(second), out),
        "E" => frontend::execute(name(first), second.parse().unwrap_or(0), out),
        "S" => frontend::sync(out),
        "H" => frontend::flush(out),
        "X" => frontend::terminate(out),
        "d" => frontend::copy_data(&unescape(rest), out),
        "c" => frontend::copy_done(out),
        "f" => frontend::copy_fail(rest, out),
        "F" => compose_call(first, second, out),
        other => panic!("script: unknown command {other:?} in {line:?}"),
    }
}

fn compose_parse(statement: &str, rest: &str, out: &mut BytesMut) {
    let (types, text) = match rest.strip_prefix('[').and_then(|r| r.split_once("] ")) {
        Some((types, text)) => (types, text),
        None => ("", rest),
    };
    let types: Vec<u32> = types.split(',').filter_map(|oid| oid.parse().ok()).collect();
    let mut wire = BytesMut::new();
    wire.put_u16(types.len() as u16);
    types.iter().for_each(|oid| wire.put_u32(*oid));
    let query = unescape(text);
    frontend::Parse { statement: name(statement), query: &query, types: &wire }.write(out);
}

fn compose_bind(portal: &str, rest: &str, out: &mut BytesMut) {
    let (statement, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let (formats, values) = match rest.strip_prefix('{').and_then(|r| r.split_once('}')) {
        Some((formats, values)) => (formats, values.trim_start()),
        None => ("/", rest),
    };
    let (parameters, results) = formats.split_once('/').unwrap_or((formats, ""));
    let mut wire = BytesMut::new();
    put_formats(parameters, &mut wire);
    put_values(values, parameters, &mut wire);
    put_formats(results, &mut wire);
    frontend::Bind { portal: name(portal), statement: name(statement), rest: &wire }.write(out);
}

fn compose_call(oid: &str, values: &str, out: &mut BytesMut) {
    frontend::message(frontend::tag::FUNCTION_CALL, out, |out| {
        out.put_u32(oid.parse().expect("an OID"));
        out.put_u16(0);
        put_values(values, "", out);
        out.put_u16(0);
    });
}

fn put_formats(text: &str, out: &mut BytesMut) {
    let formats: Vec<u16> = text.split_whitespace().map(|f| f.parse().expect("0 or 1")).collect();
    out.put_u16(formats.len() as u16);
    formats.iter().for_each(|format| out.put_u16(*format));
}

fn put_values(text: &str, formats: &str, out: &mut BytesMut) {
    let values: Vec<&str> = if text.is_empty() { vec![] } else { text.split('|').collect() };
    let formats: Vec<&str> = formats.split_whitespace().collect();
    out.put_u16(values.len() as u16);
    for (at, value) in values.iter().enumerate() {
        if *value == "\\N" {
            out.put_i32(-1);
            continue;
        }
        let format = formats.get(if formats.len() == 1 { 0 } else { at });
        let bytes = if format == Some(&"1") {
            hex::decode(value).expect("hex digits")
        } else {
            unescape(value)
        };
        out.put_i32(bytes.len() as i32);
        out.put_slice(&bytes);
    }
}

/// A message as one line of text.
pub fn render(message: &Message) -> String {
    let body = &message.body;
    let tag = char::from(message.tag);
    match message.tag {
        tag::BACKEND_KEY_DATA => "K".to_owned(),
        tag::ROW_DESCRIPTION => format!("T {}", render_columns(body)),
        tag::DATA_ROW => format!("D {}", render_row(body)),
        tag::ERROR | tag::NOTICE => format!("{tag} {}", render_fields(body)),
        tag::PARAMETER_DESCRIPTION => {
            let mut fields = Fields::new(message.tag, body);
            let count = fields.i16().expect("a count");
            let oids = (0..count).map(|_| oid(fields.i32().expect("an OID")));
            format!("t {}", oids.collect::<Vec<_>>().join(" "))
        }
        tag::NOTIFICATION => format!("A {}", printable(&body[4..])),
        _ if body.is_empty() => tag.to_string(),
        _ => format!("{tag} {}", printable(body)),
    }
}

/// OIDs from 16384 on are given to what users create.
fn oid(oid: i32) -> String {
    if oid >= 16384 { "user's".to_owned() } else { oid.to_string() }
}

fn render_columns(body: &[u8]) -> String {
    let mut fields = Fields::new(tag::ROW_DESCRIPTION, body);
    let count = fields.i16().expect("a count");
    let column = |_| -> Option<String> {
        let name = String::from_utf8_lossy(fields.cstr().ok()?).into_owned();
        let table = oid(fields.i32().ok()?);
        let number = fields.i16().ok()?;
        let kind = oid(fields.i32().ok()?);
        let (len, modifier, format) = (fields.i16().ok()?, fields.i32().ok()?, fields.i16().ok()?);
        Some(format!("{name}({table}.{number} type={kind} {len} {modifier} format={format})"))
    };
    (0..count).map(column).map(|c| c.expect("a column")).collect::<Vec<_>>().join(" ")
}

fn render_row(body: &[u8]) -> String {
    let values = hihooi_wire::backend::read_data_row(body).expect("a row");
    let texts = values.into_iter().map(|v| v.map_or("NULL".to_owned(), printable));
    texts.collect::<Vec<_>>().join(" | ")
}

fn render_fields(body: &[u8]) -> String {
    let fields = ErrorFields::read(body).expect("an error's fields").fields;
    let text = |(code, text): (u8, String)| {
        // Each backend has a number of its own in the name of its temporary schema.
        let temporary = code == b's' && text.starts_with("pg_temp_");
        let text = if temporary { "pg_temp".to_owned() } else { text };
        format!("{}={text:?}", char::from(code))
    };
    fields.into_iter().map(text).collect::<Vec<_>>().join(" ")
}

/// Long values as their length and a sum, so that a difference is seen but not printed.
fn printable(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 400;
    if bytes.len() > SHOWN_MAX {
        let sum = bytes.iter().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*byte))
        });
        return format!("({} bytes, sum {sum:x})", bytes.len());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// The lines that differ, with the lines around them; `None` if the transcripts are equal.
pub fn difference(expected: &str, got: &str) -> Option<String> {
    if expected == got {
        return None;
    }
    let (left, right): (Vec<_>, Vec<_>) = (expected.lines().collect(), got.lines().collect());
    let same = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
    let show = |lines: &[&str]| {
        let shown = lines.iter().skip(same).take(8);
        shown.map(|line| format!("\n      {line}")).collect::<String>()
    };
    let before = left[same.saturating_sub(4)..same].join("\n      ");
    Some(format!(
        "\n    after:\n      {before}\n    PostgreSQL:{}\n    hihooi:{}",
        show(&left),
        show(&right)
    ))
}
