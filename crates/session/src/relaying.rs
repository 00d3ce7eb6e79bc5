//! Processes a server's frames: passes the client's on, and tells the session what it must act on. Of results
//! only the frame headers are examined.

use std::borrow::Cow;

use bytes::Bytes;
use hihooi_wire::ProtocolError;
use hihooi_wire::backend::{self, ErrorFields, Report, Status, tag};
use hihooi_wire::{frame, frontend};

use crate::answers::Event;
use crate::described::Columns;
use crate::downstream::{Downstream, OUTPUT_MAX};
use crate::events::Prepared;
use crate::mistakes::{Mistake, makes};
use crate::own_types::{self, Needs};
use crate::settings_in_block::write_reports;
use crate::upstream::{Deferred, SERVER_NAME, Upstream, commits_answer};

/// Frames above this length are passed through in pieces.
const WHOLE_FRAME_LEN_MAX: usize = 64 * 1024;

/// What the session must act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A unit or query is answered.
    Ready(Status),
    /// The server waits for COPY data.
    CopyIn,
    /// A statement failed in the middle of a COPY or of a unit whose Sync was not sent.
    Failed,
    /// A held answer began with this error, which another site may not have (see [`Hold`]).
    Refused(Box<ErrorFields>),
    /// A held answer describes something by a type that has another OID at the primary, and this is needed to
    /// answer nevertheless.
    OwnTypes(Needs),
    /// What is held back shows the moments that it will show, or as much as can be held back.
    Bound {
        /// It shows all of them.
        all: bool,
    },
}

/// Whether the answer's beginning is held back from the client, so that another site can be
/// asked instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Relay at once.
    No,
    /// Hold back until a row, a command's end, or an error that is the statement's own.
    UntilRows,
    /// Hold back until so many portals are bound, whose rows are those of one moment each; then it is looked at
    /// whether the answer may stand ([`Step::Bound`]).
    UntilBound(usize),
    /// Hold back until it is known what the statement has set, or an error that is its own.
    UntilLooked,
    /// The answer may not stand: nothing of it is relayed.
    Drop,
}

/// What the session lends to those who look at an answer.
#[derive(Clone, Copy)]
pub struct Lent<'a> {
    /// Whether the applier ended the server's session, because it held up applying.
    pub was_ended: &'a dyn Fn() -> bool,
    /// A name that the client gave to the prepared statement with this id.
    pub name_of: &'a dyn Fn(u64) -> Option<Bytes>,
}

impl Default for Lent<'_> {
    fn default() -> Self {
        Lent { was_ended: &|| false, name_of: &|_| None }
    }
}

/// SQLSTATE of a Bind with a wrong number of values.
const PROTOCOL_VIOLATION: &str = "08P01";
/// SQLSTATE of a text that isn't valid in its encoding.
const INVALID_TEXT: &str = "22021";
/// So much of an answer is held back for portals that are bound behind it.
const HELD_LEN_MAX: usize = 64 * 1024;

/// Looks at frames up to the first that the session must act on: how many bytes are done with,
/// and the step.
///
/// # Errors
/// What came is not the protocol.
pub fn look_at(
    bytes: &[u8],
    client: &mut Downstream,
    server: &mut Upstream,
    hold: &mut Hold,
    lent: Lent<'_>,
) -> Result<(usize, Option<Step>), ProtocolError> {
    let mut used = 0;
    while used < bytes.len() {
        let rest = &bytes[used..];
        if server.passing.rest > 0 {
            used += pass(rest, client, server);
            continue;
        }
        let Some(head) = frame::peek(rest)? else { break };
        if let Some(step) = bound(head, client, server, hold) {
            return Ok((used, Some(step)));
        }
        if rest.len() < head.len {
            if head.len > WHOLE_FRAME_LEN_MAX && is_data(head.tag) {
                begin_passing(head, client, server, hold);
                continue;
            }
            break;
        }
        if head.tag == tag::DATA_ROW && is_plain(server, *hold) {
            let len = rows_len(rest)?;
            client.output.extend_from_slice(&rest[..len]);
            used += len;
            continue;
        }
        used += head.len;
        let message = &rest[..head.len];
        if let Some(step) = take(head.tag, message, client, server, hold, lent)? {
            return Ok((used, Some(step)));
        }
    }
    Ok((used, None))
}

/// Whether, before this message, an answer shows all moments that it will show, of which it has to be looked at, or is
/// as long as can be held back.
fn bound(
    head: frame::Frame,
    client: &Downstream,
    server: &Upstream,
    hold: &mut Hold,
) -> Option<Step> {
    let left = match *hold {
        Hold::UntilBound(left) => left,
        // Of as much as may wait for the client nothing more is read, and nothing would end this.
        Hold::UntilRows if client.output.len() + head.len >= OUTPUT_MAX && !ends_hold(head.tag) => {
            return Some(Step::Bound { all: false });
        }
        _ => return None,
    };
    if server.answers.is_us() {
        return None; // the answer to a BEGIN in front
    }
    let is_next = match server.answers.is_query() {
        true => head.tag == tag::ROW_DESCRIPTION || commits_answer(head.tag),
        false => head.tag == tag::BIND_COMPLETE,
    };
    if is_next && left > 1 {
        *hold = Hold::UntilBound(left - 1);
    }
    let is_too_much = client.output.len() + head.len > HELD_LEN_MAX;
    match is_next && left == 1 {
        true => Some(Step::Bound { all: true }),
        false => is_too_much.then_some(Step::Bound { all: false }),
    }
}

/// Whether an answer that is held back until rows isn't any more with this message, or can't be used.
fn ends_hold(tag: u8) -> bool {
    commits_answer(tag) || tag == tag::ERROR
}

/// Whether rows go to the client as they come: most of a long result.
fn is_plain(server: &Upstream, hold: Hold) -> bool {
    hold == Hold::No && server.deferred.is_none() && server.answers.has_rows_for_client()
}

/// The length of the rows that stand in front, as far as they came whole.
fn rows_len(bytes: &[u8]) -> Result<usize, ProtocolError> {
    let mut len = 0;
    while let Some(head) = frame::peek(&bytes[len..])?
        && head.tag == tag::DATA_ROW
        && head.len <= bytes.len() - len
    {
        len += head.len;
    }
    Ok(len)
}

fn is_data(tag: u8) -> bool {
    matches!(tag, tag::DATA_ROW | tag::COPY_DATA)
}

fn begin_passing(
    head: frame::Frame,
    client: &mut Downstream,
    server: &mut Upstream,
    hold: &mut Hold,
) {
    undefer(client, server);
    let verdict = server.answers.received(head.tag, &[]);
    let is_dropped = *hold == Hold::Drop;
    if !is_dropped {
        *hold = Hold::No;
    }
    server.passing.rest = head.len;
    server.passing.relay = verdict.relay && !client.gone && !is_dropped;
}

fn pass(bytes: &[u8], client: &mut Downstream, server: &mut Upstream) -> usize {
    let count = bytes.len().min(server.passing.rest);
    if server.passing.relay {
        client.output.extend_from_slice(&bytes[..count]);
    }
    server.passing.rest -= count;
    client.is_amid_message = server.passing.relay && server.passing.rest > 0;
    count
}

fn take(
    tag: u8,
    message: &[u8],
    client: &mut Downstream,
    server: &mut Upstream,
    hold: &mut Hold,
    lent: Lent<'_>,
) -> Result<Option<Step>, ProtocolError> {
    let body = frame::body(message);
    let mut was_in_the_way = false;
    if tag == tag::ERROR && server.is_replica {
        let fields = ErrorFields::read(body)?;
        was_in_the_way = fields.code() == QUERY_CANCELED && (lent.was_ended)();
        match *hold {
            Hold::No if server.has_snapshot && is_fatal(body) => {
                return Ok(Some(Step::Refused(Box::new(fields))));
            }
            Hold::UntilRows | Hold::UntilBound(_) | Hold::UntilLooked
                if was_in_the_way || elsewhere(fields.code()) || server.answers.is_us() =>
            {
                return Ok(Some(Step::Refused(Box::new(fields))));
            }
            // What a replica refuses the primary may not; it is asked when this one is done.
            Hold::UntilLooked if fields.code() != QUERY_CANCELED => {}
            // Who cancelled the read cancelled it however often it runs.
            Hold::Drop if was_in_the_way || fields.code() != QUERY_CANCELED => {}
            _ => *hold = Hold::No,
        }
    }
    if matches!(*hold, Hold::UntilRows | Hold::UntilBound(_)) || server.has_snapshot {
        let sees = !server.answers.is_hidden() && !server.answers.is_us();
        if let Some(needs) = own_types::needs(tag, body, sees, server.objects.as_deref())? {
            return Ok(Some(Step::OwnTypes(needs)));
        }
    }
    let at_commit = server.answers.is_at_commit();
    let is_us = server.answers.is_us();
    let is_simple = server.answers.is_simple();
    let changes_names = server.answers.changes_names(tag);
    let fails_parse = server.answers.fails_parse(tag);
    let described = server.answers.describes(tag);
    // They stay as they were told first.
    let described = described.filter(|one| is_us || one.columns.get().is_none()).cloned();
    let mut verdict = server.answers.received(tag, body);
    verdict.relay &= *hold != Hold::Drop;
    if let Some(error) = verdict.instead.take().filter(|_| verdict.relay) {
        undefer(client, server);
        if let Some(types) = verdict.described.as_ref().and_then(|one| one.told_types.get()) {
            frontend::message(tag::PARAMETER_DESCRIPTION, &mut client.output, |out| {
                out.extend_from_slice(types);
            });
        }
        error.write(&mut client.output);
    } else if verdict.relay && is_deferred(tag, is_simple, server) {
        undefer(client, server);
        server.deferred = Some(Deferred { tag, message: Bytes::copy_from_slice(message) });
    } else if was_in_the_way && verdict.relay {
        undefer(client, server);
        in_the_way().write(&mut client.output);
    } else if verdict.relay {
        settle_deferred(tag, at_commit, client, server);
        let own = if tag == tag::ERROR { with_own_name(message, lent) } else { None };
        let at = client.output.len() + message.len() - body.len();
        client.output.extend_from_slice(own.as_deref().unwrap_or(message));
        if server.is_replica {
            own_types::to_primary(tag, &mut client.output[at..], server.objects.as_deref())?;
        }
        if tag == tag::READY_FOR_QUERY
            && let Some(undone) = server.in_block.take()
        {
            client.output.truncate(client.output.len() - message.len());
            if server.failed {
                write_reports(&undone, &mut client.output);
            }
            let status = if server.failed { Status::Failed } else { Status::Block };
            backend::ready_for_query(status, &mut client.output);
        }
        if tag == tag::NOTIFICATION && body.starts_with(&server.pid.to_be_bytes()) {
            // Its own: clients know them by the number that they were told.
            let at = client.output.len() - body.len();
            client.output[at..at + 4].copy_from_slice(&client.process.to_be_bytes());
        }
        server.said_goodbye |= tag == tag::ERROR && is_fatal(body);
        server.suspended |= tag == tag::PORTAL_SUSPENDED;
        server.names_done.count += usize::from(changes_names);
        // (A text in another encoding is refused before the Parse begins.)
        server.names_done.parse_failed |=
            fails_parse && ErrorFields::read(body)?.code() != INVALID_TEXT;
        if commits_answer(tag) && *hold == Hold::UntilRows {
            *hold = Hold::No;
        }
    }
    if let Some(prepared) = described {
        note_described(tag, body, &prepared, is_us, verdict.relay, server)?;
    }
    Ok(match verdict.event {
        Event::Nothing | Event::Complete | Event::Row => None,
        Event::Parsed(id) => {
            server.parsed(id);
            None
        }
        Event::Closed(id) => {
            server.closed(id);
            None
        }
        Event::CopyIn => Some(Step::CopyIn),
        Event::Failed => {
            if is_us && !makes(Mistake::OwnFailureIsTheirs) {
                server.own_failed()
            } else {
                server.unit_failed()
            }
            server.answers.is_skipping().then_some(Step::Failed)
        }
        Event::Ready(status) => {
            server.status = status;
            if server.failed {
                server.unit_failed(); // more may have been written, and skipped, behind the error
            }
            Some(Step::Ready(status))
        }
    })
}

/// An error about a prepared statement, by the name that the client gave it; `None` of other errors.
fn with_own_name(message: &[u8], lent: Lent<'_>) -> Option<Vec<u8>> {
    let fields = ErrorFields::read(frame::body(message)).ok()?;
    if fields.code() != PROTOCOL_VIOLATION {
        return None;
    }
    let at = message.windows(SERVER_NAME.len()).position(|bytes| bytes == SERVER_NAME)?;
    let digits = &message[at + SERVER_NAME.len()..];
    let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let id = std::str::from_utf8(&digits[..len]).ok()?.parse().ok()?;
    let mut own = [&message[..at], &(lent.name_of)(id)?, &digits[len..]].concat();
    let len = u32::try_from(own.len() - 1).ok()?; // without its tag
    own[1..5].copy_from_slice(&len.to_be_bytes());
    Some(own)
}

/// What a statement takes and returns was told: to its client, or to the session, which asked whether it still returns that.
fn note_described(
    tag: u8,
    body: &[u8],
    prepared: &Prepared,
    is_us: bool,
    is_told: bool,
    server: &mut Upstream,
) -> Result<(), ProtocolError> {
    let mut body = Cow::Borrowed(body);
    let objects = server.objects.as_deref();
    let is_known = !server.is_replica || own_types::needs(tag, &body, true, objects)?.is_none();
    if server.is_replica && is_known {
        own_types::to_primary(tag, body.to_mut(), objects)?;
    }
    if tag == tag::PARAMETER_DESCRIPTION {
        if is_told && is_known {
            let _ = prepared.told_types.set(Bytes::copy_from_slice(&body));
        }
        return Ok(());
    }
    let columns = if is_known { Some(Columns::read(tag, &body)?) } else { None };
    match columns {
        columns if is_us => server.answers.compare(prepared, columns.as_ref()),
        Some(columns) if is_told => drop(prepared.columns.set(columns)),
        _ => {}
    }
    Ok(())
}

/// Whether a simple query's answer would have this message only later: the end of a command
/// comes after the commit, the description of rows that a write returns after the write.
fn is_deferred(tag: u8, is_simple: bool, server: &Upstream) -> bool {
    is_simple
        && (tag == tag::COMMAND_COMPLETE || (tag == tag::ROW_DESCRIPTION && server.defers_rows))
}

fn undefer(client: &mut Downstream, server: &mut Upstream) {
    if let Some(deferred) = server.deferred.take() {
        client.output.extend_from_slice(&deferred.message);
    }
}

/// What is held back goes out in front of this message, or never: a description whose rows
/// could not be made, a command that could not be committed.
fn settle_deferred(tag: u8, at_commit: bool, client: &mut Downstream, server: &mut Upstream) {
    match (&server.deferred, tag) {
        // Notices come while a command runs; notifications and parameters after its end.
        (None, _) | (_, tag::NOTICE) => {}
        (Some(deferred), tag::ERROR) if at_commit || deferred.tag == tag::ROW_DESCRIPTION => {
            server.deferred = None;
        }
        _ => undefer(client, server),
    }
}

/// SQLSTATE of what was cancelled: by its client, a timeout, or a replica's applier.
pub(crate) const QUERY_CANCELED: &str = "57014";

/// For a read that a replica's applier ended, behind rows that the client has.
fn in_the_way() -> Report {
    let why = "the read held up the replica for longer than replica.max_apply_delay_ms";
    Report::error("40001", why).hint("Run it again, or on the primary: /* hihooi: primary */.")
}

fn is_fatal(body: &[u8]) -> bool {
    ErrorFields::read(body).is_ok_and(|fields| fields.get(b'V') == Some("FATAL"))
}

/// Whether an error is about the site rather than the statement: a misjudged write (25006), a
/// server that shuts down, starts or crashed (57P01 to 57P03), a role or database that isn't
/// there.
fn elsewhere(code: &str) -> bool {
    code == "25006" || is_going_away(code)
}

/// Whether an error tells of a server that shuts down, starts or crashed.
pub(crate) fn is_going_away(code: &str) -> bool {
    matches!(code, "57P01" | "57P02" | "57P03")
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::answers::{Audience, Sent};

    /// What is held back is bounded (I8): then the primary is asked, which nobody has to wait for.
    #[test]
    fn i8_descriptions_are_not_held_back_for_ever() {
        let description = |columns: usize| {
            let mut out = BytesMut::new();
            let names: Vec<String> = (0..columns).map(|n| format!("column_{n}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            backend::row_description(&names, &mut out);
            out
        };
        let (mut client, mut server) = (Downstream::default(), Upstream::default());
        let mut hold = Hold::UntilRows;
        for _ in 0..100 {
            server.answers.sent(Sent::DescribeStatement(None), Audience::Client);
        }
        let mut look = |bytes: &[u8], client: &mut Downstream| {
            look_at(bytes, client, &mut server, &mut hold, Lent::default()).expect("frames")
        };
        let one = description(1_000);
        let fit = OUTPUT_MAX / one.len();
        for _ in 0..fit {
            assert_eq!(look(&one, &mut client), (one.len(), None));
        }
        assert!(client.untold() < OUTPUT_MAX, "more is read");
        assert_eq!(look(&one, &mut client), (0, Some(Step::Bound { all: false })));
    }

    /// At a replica, too, where what names types is changed behind it; and only where the server means the statement.
    #[test]
    fn i1_an_error_names_the_statement_as_the_client_did() {
        let told = |code: &str, name: &'static [u8]| {
            let message = "statement \"hihooi_123456\" requires 1".to_owned();
            let fields = vec![(b'C', code.to_owned()), (b'M', message)];
            let mut error = BytesMut::new();
            ErrorFields { fields }.write(&mut error);
            let (mut client, mut server) = (Downstream::default(), Upstream::default());
            server.is_replica = true;
            server.answers.sent(Sent::Query, Audience::Client);
            let name_of = |id| (id == 123_456).then(|| Bytes::from_static(name));
            let lent = Lent { name_of: &name_of, ..Lent::default() };
            look_at(&error, &mut client, &mut server, &mut Hold::No, lent).expect("frames");
            let head = frame::peek(&client.output).expect("a frame").expect("a whole one");
            assert_eq!(head.len, client.output.len());
            ErrorFields::read(frame::body(&client.output)).expect("fields").message().to_owned()
        };
        assert_eq!(told("08P01", b"a"), "statement \"a\" requires 1");
        assert_eq!(told("08P01", b""), "statement \"\" requires 1");
        let long = b"a name that is longer than the server's";
        assert!(told("08P01", long).contains("longer than"));
        assert!(told("22P02", b"a").contains("hihooi_123456"));
    }

    /// Rows of a long result are copied together, as far as they came whole.
    #[test]
    fn i1_rows_arrive_wherever_they_are_cut() {
        let mut answer = BytesMut::new();
        for row in [&b"\0\0"[..], b"\0\x01\0\0\0\x02ab", b"\0\x01\xff\xff\xff\xff"] {
            frontend::message(tag::DATA_ROW, &mut answer, |out| out.extend_from_slice(row));
        }
        backend::command_complete("SELECT 3", &mut answer);
        backend::ready_for_query(Status::Idle, &mut answer);
        for cut in 0..answer.len() {
            let (mut client, mut server, mut hold) =
                (Downstream::default(), Upstream::default(), Hold::No);
            server.answers.sent(Sent::Query, Audience::Client);
            let mut look = |bytes: &[u8]| {
                look_at(bytes, &mut client, &mut server, &mut hold, Lent::default())
                    .expect("frames")
            };
            let (used, step) = look(&answer[..cut]);
            assert!(step.is_none() && used <= cut);
            let left = answer.len() - used;
            assert_eq!(look(&answer[used..]), (left, Some(Step::Ready(Status::Idle))));
            assert_eq!(client.output, answer, "cut at {cut}");
        }
    }
}
