//! A client's socket and what is on its way in and out.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hihooi_session::downstream::{Downstream, Message};
use hihooi_wire::ProtocolError;
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
    /// What was said on it.
    pub down: Downstream,
}

impl Client {
    /// Takes over an accepted socket.
    #[must_use]
    pub fn new(stream: TcpStream) -> Client {
        Client { stream: Some(stream), down: Downstream::default() }
    }

    /// A client that is not there.
    #[must_use]
    pub fn nobody() -> Client {
        Client { stream: None, down: Downstream { gone: true, ..Downstream::default() } }
    }

    /// Reads what has come into `input`; waits for nothing. `Ready` when something was read or
    /// the client turned out to be gone.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.down.gone) else {
            return Poll::Pending;
        };
        let read = scratch::with(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
            self.down.input.extend_from_slice(buffer.filled());
            Poll::Ready(io::Result::Ok(buffer.filled().len()))
        });
        if !matches!(ready!(read), Ok(count) if count > 0) {
            self.down.gone = true;
        }
        Poll::Ready(())
    }

    /// Writes as much of `output` as the socket takes. `Ready` when progress was made.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.stream else {
            self.down.output.clear();
            return Poll::Ready(());
        };
        match ready!(Pin::new(stream).poll_write(cx, &self.down.output)) {
            Ok(count) if count > 0 => written(&mut self.down.output, count),
            _ => {
                self.down.gone = true;
                self.down.output.clear();
            }
        }
        Poll::Ready(())
    }

    /// Sends all of `output`.
    pub async fn flush(&mut self) {
        poll_fn(|cx| {
            while !self.down.output.is_empty() && !self.down.gone {
                ready!(self.poll_write(cx));
            }
            Poll::Ready(())
        })
        .await;
        if self.down.output.capacity() > IDLE_CAPACITY_MAX {
            self.down.output = BytesMut::new();
        }
    }

    /// Waits for more input.
    pub async fn read(&mut self) {
        if self.down.input.is_empty() && self.down.input.capacity() > 0 {
            self.down.input = BytesMut::new();
        }
        poll_fn(|cx| if self.down.gone { Poll::Ready(()) } else { self.poll_read(cx) }).await;
    }

    /// The next message; `None` when the client has gone.
    ///
    /// # Errors
    /// Bytes that are no message of a client.
    pub async fn next(&mut self) -> Result<Option<Message>, ProtocolError> {
        loop {
            if let Some(message) = self.down.buffered()? {
                return Ok(Some(message));
            }
            if self.down.gone {
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
