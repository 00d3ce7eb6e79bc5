//! Moves bytes between a client and the server that works for it, until something happens that
//! the session must act on. Results are relayed by looking at frame headers only.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hihooi_wire::backend::{ErrorFields, Report, Status, tag};
use hihooi_wire::frame;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::answers::Event;
use crate::backend::{Backend, Deferred, commits_answer};
use crate::client::{Client, INPUT_AHEAD_MAX, OUTPUT_MAX, written};
use crate::own_types;
use crate::route::PRIMARY;
use crate::scratch;

/// Frames above this length are passed through in pieces.
const WHOLE_FRAME_LEN_MAX: usize = 64 * 1024;

/// What the session must act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A unit or query is answered.
    Ready(Status),
    /// All that was sent is answered, though no Sync was sent.
    Answered,
    /// The server waits for COPY data.
    CopyIn,
    /// A statement failed in the middle of a COPY or of a unit whose Sync was not sent.
    Failed,
    /// The client has gone; told once, if asked for (see [`Client::tells_leaving`]).
    Left,
    /// A held answer began with this error, which another site may not have (see [`Hold`]).
    Refused(Box<ErrorFields>),
    /// A held answer describes something by a type that has another OID at the primary.
    OwnTypes,
}

/// Whether the answer's beginning is held back from the client, so that another site can be
/// asked instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Relay at once.
    No,
    /// Hold back until a row, a command's end, or an error that is the statement's own.
    UntilRows,
}

/// Why a server can't go on.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What it sent is not the protocol.
    #[error("{0}")]
    Protocol(#[from] hihooi_wire::ProtocolError),
    /// Its site does not answer (see [`crate::silence`]).
    #[error("the server does not answer")]
    Silent,
}

/// Moves bytes both ways until the next [`Step`]. `client.output` may still hold the end of the
/// answer: the caller flushes it.
///
/// # Errors
/// The server is lost. A client that is gone is no error: the server's answer is thrown away.
pub async fn pump(
    client: &mut Client,
    server: &mut Backend,
    hold: &mut Hold,
) -> Result<Step, Lost> {
    poll_fn(|cx| poll_pump(cx, client, server, hold)).await
}

fn poll_pump(
    cx: &mut Context<'_>,
    client: &mut Client,
    server: &mut Backend,
    hold: &mut Hold,
) -> Poll<Result<Step, Lost>> {
    loop {
        if let Some(step) = look_at_leftover(client, server, hold)? {
            return Poll::Ready(Ok(step));
        }
        send(cx, server)?; // as much as the socket takes
        if server.answers.is_empty() && server.output.is_empty() && server.input.is_empty() {
            return Poll::Ready(Ok(Step::Answered));
        }
        let mut progress = false;
        if client.gone {
            client.output.clear();
            if std::mem::take(&mut client.tells_leaving) {
                return Poll::Ready(Ok(Step::Left));
            }
        } else if *hold == Hold::No && !client.output.is_empty() {
            progress |= client.poll_write(cx).is_ready();
        }
        if client.output.len() < OUTPUT_MAX {
            match poll_receive(cx, client, server, hold) {
                Poll::Ready(Ok(Some(step))) => return Poll::Ready(Ok(step)),
                Poll::Ready(Ok(None)) => progress = true,
                Poll::Ready(Err(lost)) => return Poll::Ready(Err(lost)),
                Poll::Pending => {}
            }
        }
        if client.input.len() < INPUT_AHEAD_MAX {
            progress |= client.poll_read(cx).is_ready();
        }
        if !progress && server.pool.is_silent() {
            return Poll::Ready(Err(Lost::Silent));
        }
        if !progress {
            return Poll::Pending;
        }
    }
}

/// Sends COPY data on until the client has sent more, or the server has something to say.
///
/// # Errors
/// The server is lost.
pub async fn copy(client: &mut Client, server: &mut Backend) -> Result<Option<Step>, Lost> {
    let mut hold = Hold::No;
    poll_fn(|cx| {
        loop {
            if let Some(step) = look_at_leftover(client, server, &mut hold)? {
                return Poll::Ready(Ok(Some(step)));
            }
            let mut progress = send(cx, server)?;
            if client.gone {
                return Poll::Ready(Ok(None));
            }
            if server.output.is_empty() && client.poll_read(cx).is_ready() {
                return Poll::Ready(Ok(None));
            }
            match poll_receive(cx, client, server, &mut hold) {
                Poll::Ready(Ok(Some(step))) => return Poll::Ready(Ok(Some(step))),
                Poll::Ready(Ok(None)) => progress = true,
                Poll::Ready(Err(lost)) => return Poll::Ready(Err(lost)),
                Poll::Pending => {}
            }
            if !progress {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Waits for the answer to the session's own messages while no client listens.
///
/// # Errors
/// The server is lost.
pub async fn pump_own(server: &mut Backend) -> Result<Step, Lost> {
    let mut nobody = Client::nobody();
    let mut hold = Hold::No;
    poll_fn(|cx| poll_pump(cx, &mut nobody, server, &mut hold)).await
}

/// Waits for the client's next bytes while a server stays attached (in a transaction block, or
/// because of the session's state). What the server tells meanwhile (notifications, the end of
/// the session) goes to the client.
///
/// # Errors
/// The server is lost.
pub async fn idle(client: &mut Client, server: &mut Backend) -> Result<(), Lost> {
    let mut hold = Hold::No;
    poll_fn(|cx| {
        loop {
            look_at_leftover(client, server, &mut hold)?;
            if client.gone {
                return Poll::Ready(Ok(()));
            }
            let mut progress = false;
            if !client.output.is_empty() {
                progress |= client.poll_write(cx).is_ready();
            }
            if client.poll_read(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if client.output.len() < OUTPUT_MAX
                && let Poll::Ready(received) = poll_receive(cx, client, server, &mut hold)
            {
                received?;
                progress = true;
            }
            if !progress {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Waits until the server has closed the connection in good order; false if it broke.
pub async fn wait_for_end(server: &mut Backend) -> bool {
    poll_fn(|cx| {
        scratch::with(|buffer| {
            loop {
                let mut buffer = ReadBuf::new(buffer);
                match Pin::new(&mut server.stream).poll_read(cx, &mut buffer) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(true),
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                }
            }
        })
    })
    .await
}

/// Sends without waiting for an answer, as far as the socket takes it; waits for the rest.
///
/// # Errors
/// The server is lost.
pub async fn send_all(server: &mut Backend) -> Result<(), Lost> {
    poll_fn(|cx| {
        loop {
            if server.output.is_empty() {
                return Poll::Ready(Ok(()));
            }
            match send(cx, server) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(lost) => return Poll::Ready(Err(lost)),
            }
        }
    })
    .await
}

fn send(cx: &mut Context<'_>, server: &mut Backend) -> Result<bool, Lost> {
    let mut progress = false;
    while !server.output.is_empty() {
        match Pin::new(&mut server.stream).poll_write(cx, &server.output) {
            Poll::Ready(Ok(0)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Poll::Ready(Ok(count)) => written(&mut server.output, count),
            Poll::Ready(Err(error)) => return Err(error.into()),
            Poll::Pending => return Ok(progress),
        }
        progress = true;
    }
    Ok(progress)
}

fn poll_receive(
    cx: &mut Context<'_>,
    client: &mut Client,
    server: &mut Backend,
    hold: &mut Hold,
) -> Poll<Result<Option<Step>, Lost>> {
    scratch::with(|buffer| {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut server.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(())) => {}
        }
        let bytes = buffer.filled();
        if bytes.is_empty() {
            let end = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Poll::Ready(Err(end.into()));
        }
        if !server.input.is_empty() {
            server.input.extend_from_slice(bytes);
            return Poll::Ready(Ok(None)); // looked at on the next round
        }
        let (used, step) = look_at(bytes, client, server, hold)?;
        server.input.extend_from_slice(&bytes[used..]);
        Poll::Ready(Ok(step))
    })
}

fn look_at_leftover(
    client: &mut Client,
    server: &mut Backend,
    hold: &mut Hold,
) -> Result<Option<Step>, Lost> {
    if server.input.is_empty() {
        return Ok(None);
    }
    let mut input = std::mem::take(&mut server.input);
    let looked = look_at(&input, client, server, hold);
    if let Ok((used, _)) = looked {
        input.advance(used);
        if !input.is_empty() {
            server.input = input;
        }
    }
    looked.map(|(_, step)| step).map_err(Into::into)
}

/// Looks at frames up to the first that the session must act on: how many bytes are done with,
/// and the step.
fn look_at(
    bytes: &[u8],
    client: &mut Client,
    server: &mut Backend,
    hold: &mut Hold,
) -> Result<(usize, Option<Step>), hihooi_wire::ProtocolError> {
    let mut used = 0;
    while used < bytes.len() {
        let rest = &bytes[used..];
        if server.passing.rest > 0 {
            used += pass(rest, client, server);
            continue;
        }
        let Some(head) = frame::peek(rest)? else { break };
        if rest.len() < head.len {
            if head.len > WHOLE_FRAME_LEN_MAX && is_data(head.tag) {
                begin_passing(head, client, server, hold);
                continue;
            }
            break;
        }
        used += head.len;
        let message = &rest[..head.len];
        if let Some(step) = take(head.tag, message, client, server, hold)? {
            return Ok((used, Some(step)));
        }
    }
    Ok((used, None))
}

fn is_data(tag: u8) -> bool {
    matches!(tag, tag::DATA_ROW | tag::COPY_DATA)
}

fn begin_passing(head: frame::Frame, client: &mut Client, server: &mut Backend, hold: &mut Hold) {
    undefer(client, server);
    let verdict = server.answers.received(head.tag, &[]);
    *hold = Hold::No;
    server.passing.rest = head.len;
    server.passing.relay = verdict.relay && !client.gone;
}

fn pass(bytes: &[u8], client: &mut Client, server: &mut Backend) -> usize {
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
    client: &mut Client,
    server: &mut Backend,
    hold: &mut Hold,
) -> Result<Option<Step>, hihooi_wire::ProtocolError> {
    let body = frame::body(message);
    let mut was_in_the_way = false;
    if tag == tag::ERROR && server.site != PRIMARY {
        let fields = ErrorFields::read(body)?;
        was_in_the_way = fields.code() == QUERY_CANCELED && server.was_in_the_way();
        if *hold == Hold::UntilRows && (was_in_the_way || elsewhere(fields.code())) {
            return Ok(Some(Step::Refused(Box::new(fields))));
        }
        *hold = Hold::No;
    }
    if *hold == Hold::UntilRows && own_types::describes_own(tag, body, !server.answers.is_hidden())?
    {
        return Ok(Some(Step::OwnTypes));
    }
    let at_commit = server.answers.is_at_commit();
    let is_simple = server.answers.is_simple();
    let verdict = server.answers.received(tag, body);
    let refused = server.answers.take_refusal(tag).filter(|_| verdict.relay);
    if let Some(error) = refused {
        undefer(client, server);
        error.write(&mut client.output);
    } else if tag == tag::PARAMETER_STATUS && server.answers.is_part() {
        server.changed_parameters.extend_from_slice(message);
    } else if verdict.relay && is_deferred(tag, is_simple, server) {
        undefer(client, server);
        server.deferred = Some(Deferred { tag, message: Bytes::copy_from_slice(message) });
    } else if was_in_the_way && verdict.relay {
        undefer(client, server);
        in_the_way().write(&mut client.output);
    } else if verdict.relay {
        settle_deferred(tag, at_commit, client, server);
        client.output.extend_from_slice(message);
        if tag == tag::ROW_DESCRIPTION && server.site != PRIMARY {
            let at = client.output.len() - body.len();
            own_types::forget_tables(&mut client.output[at..])?;
        }
        if tag == tag::NOTIFICATION && body.starts_with(&server.identity.record.pid.to_be_bytes()) {
            // Its own: clients know them by the number that they were told.
            let at = client.output.len() - body.len();
            client.output[at..at + 4].copy_from_slice(&client.process.to_be_bytes());
        }
        server.said_goodbye |= tag == tag::ERROR && is_fatal(body);
        if matches!(tag, tag::PARSE_COMPLETE | tag::CLOSE_COMPLETE) {
            server.names_done += 1;
        }
        if commits_answer(tag) {
            *hold = Hold::No;
        }
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
            server.unit_failed();
            server.answers.is_skipping().then_some(Step::Failed)
        }
        Event::Ready(status) => {
            server.status = status;
            Some(Step::Ready(status))
        }
    })
}

/// Whether a simple query's answer would have this message only later: the end of a command
/// comes after the commit, the description of rows that a write returns after the write.
fn is_deferred(tag: u8, is_simple: bool, server: &Backend) -> bool {
    is_simple
        && (tag == tag::COMMAND_COMPLETE || (tag == tag::ROW_DESCRIPTION && server.defers_rows))
}

fn undefer(client: &mut Client, server: &mut Backend) {
    if let Some(deferred) = server.deferred.take() {
        client.output.extend_from_slice(&deferred.message);
    }
}

/// What is held back goes out in front of this message, or never: a description whose rows
/// could not be made, a command that could not be committed.
fn settle_deferred(tag: u8, at_commit: bool, client: &mut Client, server: &mut Backend) {
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
const QUERY_CANCELED: &str = "57014";

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
    matches!(code, "25006" | "57P01" | "57P02" | "57P03")
}
