//! A client's socket and what is on its way in and out.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use hihooi_wire::{ProtocolError, frame, frontend};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::scratch;

/// While a server works, at most this much of what the client sends ahead is read (I8).
pub const INPUT_AHEAD_MAX: usize = 256 * 1024;
/// Nothing more is read from a server while this much waits for the client (I8).
pub const OUTPUT_MAX: usize = 256 * 1024;
/// Buffers that grew beyond this are given back when the client idles.
const IDLE_CAPACITY_MAX: usize = 1_024;

/// A client's connection.
#[derive(Debug)]
pub struct Client {
    stream: Option<TcpStream>,
    /// What the client sent and was not looked at yet.
    pub input: BytesMut,
    /// What the client gets.
    pub output: BytesMut,
    /// The client has gone: nothing can be read or written any more.
    pub gone: bool,
    /// Its process number, as it knows it.
    pub process: i32,
    /// `output` ends within a message, the rest of which the server has yet to send.
    pub is_amid_message: bool,
    /// Whoever waits for a server wants to know when the client goes.
    pub tells_leaving: bool,
}

/// One message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its type (see [`hihooi_wire::frontend::tag`]).
    pub tag: u8,
    /// The whole message, tag and length included.
    pub bytes: Bytes,
}

impl Message {
    /// The message's body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        frame::body(&self.bytes)
    }
}

impl Client {
    /// Takes over an accepted socket.
    #[must_use]
    pub fn new(stream: TcpStream) -> Client {
        Client { stream: Some(stream), gone: false, ..Client::nobody() }
    }

    /// A client that is not there.
    #[must_use]
    pub fn nobody() -> Client {
        Client {
            stream: None,
            input: BytesMut::new(),
            output: BytesMut::new(),
            gone: true,
            process: 0,
            is_amid_message: false,
            tells_leaving: false,
        }
    }

    /// The next message if it has arrived whole.
    ///
    /// # Errors
    /// Bytes that are no message of a client.
    pub fn buffered(&mut self) -> Result<Option<Message>, ProtocolError> {
        let Some(head) = frame::peek(&self.input)? else { return Ok(None) };
        if !frontend::is_known(head.tag) {
            return Err(ProtocolError::Tag(head.tag));
        }
        if self.input.len() < head.len {
            return Ok(None);
        }
        Ok(Some(Message { tag: head.tag, bytes: self.input.split_to(head.len).freeze() }))
    }

    /// Reads what has come into `input`; waits for nothing. `Ready` when something was read or
    /// the client turned out to be gone.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.gone) else {
            return Poll::Pending;
        };
        let read = scratch::with(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
            self.input.extend_from_slice(buffer.filled());
            Poll::Ready(io::Result::Ok(buffer.filled().len()))
        });
        if !matches!(ready!(read), Ok(count) if count > 0) {
            self.gone = true;
        }
        Poll::Ready(())
    }

    /// Writes as much of `output` as the socket takes. `Ready` when progress was made.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.stream else {
            self.output.clear();
            return Poll::Ready(());
        };
        match ready!(Pin::new(stream).poll_write(cx, &self.output)) {
            Ok(count) if count > 0 => written(&mut self.output, count),
            _ => {
                self.gone = true;
                self.output.clear();
            }
        }
        Poll::Ready(())
    }

    /// Sends all of `output`.
    pub async fn flush(&mut self) {
        poll_fn(|cx| {
            while !self.output.is_empty() && !self.gone {
                ready!(self.poll_write(cx));
            }
            Poll::Ready(())
        })
        .await;
        if self.output.capacity() > IDLE_CAPACITY_MAX {
            self.output = BytesMut::new();
        }
    }

    /// Waits for more input.
    pub async fn read(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = BytesMut::new();
        }
        poll_fn(|cx| if self.gone { Poll::Ready(()) } else { self.poll_read(cx) }).await;
    }

    /// The next message; `None` when the client has gone.
    ///
    /// # Errors
    /// Bytes that are no message of a client.
    pub async fn next(&mut self) -> Result<Option<Message>, ProtocolError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(Some(message));
            }
            if self.gone {
                return Ok(None);
            }
            self.read().await;
        }
    }
}

/// Takes from a buffer what its socket took. A buffer that is empty is written from its
/// beginning again.
pub fn written(buffer: &mut BytesMut, count: usize) {
    if count == buffer.len() { buffer.clear() } else { buffer.advance(count) }
}
