//! Moves bytes between a client and the server that works for it, until something happens that
//! the session must act on. Results are relayed by looking at frame headers only.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use hihooi_session::relaying::{self, Hold, Step};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::backend::Backend;
use crate::client::{Client, INPUT_AHEAD_MAX, OUTPUT_MAX, written};
use crate::scratch;

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

/// Moves bytes both ways until the next [`Step`]. `client.down.output` may still hold the end of the
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
        if server.up.answers.is_empty() && server.up.output.is_empty() && server.up.input.is_empty()
        {
            return Poll::Ready(Ok(Step::Answered));
        }
        let mut progress = false;
        if client.down.gone {
            client.down.output.clear();
            if std::mem::take(&mut client.down.tells_leaving) {
                return Poll::Ready(Ok(Step::Left));
            }
        } else if *hold == Hold::No && !client.down.output.is_empty() {
            progress |= client.poll_write(cx).is_ready();
        }
        if client.down.output.len() < OUTPUT_MAX {
            match poll_receive(cx, client, server, hold) {
                Poll::Ready(Ok(Some(step))) => return Poll::Ready(Ok(step)),
                Poll::Ready(Ok(None)) => progress = true,
                Poll::Ready(Err(lost)) => return Poll::Ready(Err(lost)),
                Poll::Pending => {}
            }
        }
        if client.down.input.len() < INPUT_AHEAD_MAX {
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
            if client.down.gone {
                return Poll::Ready(Ok(None));
            }
            if server.up.output.is_empty() && client.poll_read(cx).is_ready() {
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
            if client.down.gone {
                return Poll::Ready(Ok(()));
            }
            let mut progress = false;
            if !client.down.output.is_empty() {
                progress |= client.poll_write(cx).is_ready();
            }
            if client.poll_read(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if client.down.output.len() < OUTPUT_MAX
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
            if server.up.output.is_empty() {
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
    while !server.up.output.is_empty() {
        match Pin::new(&mut server.stream).poll_write(cx, &server.up.output) {
            Poll::Ready(Ok(0)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Poll::Ready(Ok(count)) => written(&mut server.up.output, count),
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
        if !server.up.input.is_empty() {
            server.up.input.extend_from_slice(bytes);
            return Poll::Ready(Ok(None)); // looked at on the next round
        }
        let (used, step) = look_at_bytes(bytes, client, server, hold)?;
        server.up.input.extend_from_slice(&bytes[used..]);
        Poll::Ready(Ok(step))
    })
}

fn look_at_leftover(
    client: &mut Client,
    server: &mut Backend,
    hold: &mut Hold,
) -> Result<Option<Step>, Lost> {
    if server.up.input.is_empty() {
        return Ok(None);
    }
    let mut input = std::mem::take(&mut server.up.input);
    let looked = look_at_bytes(&input, client, server, hold);
    if let Ok((used, _)) = looked {
        input.advance(used);
        if !input.is_empty() {
            server.up.input = input;
        }
    }
    looked.map(|(_, step)| step).map_err(Into::into)
}

fn look_at_bytes(
    bytes: &[u8],
    client: &mut Client,
    server: &mut Backend,
    hold: &mut Hold,
) -> Result<(usize, Option<Step>), hihooi_wire::ProtocolError> {
    let Backend { up, pool, .. } = server;
    let pid = up.pid;
    let was_ended = || pool.replica().is_some_and(|replica| replica.has_ended_session(pid));
    relaying::look_at(bytes, &mut client.down, up, hold, &was_ended)
}
