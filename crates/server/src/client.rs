//! A client's socket.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use hihooi_session::downstream::{Downstream, Message};
use hihooi_wire::ProtocolError;
use tokio::net::TcpStream;

use crate::socket;

/// Buffers that grew beyond this are given back when the client idles.
const IDLE_CAPACITY_MAX: usize = 1_024;

/// A client's connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// What was said on it, until its session has that.
    pub down: Downstream,
}

impl Client {
    /// Takes over an accepted socket.
    #[must_use]
    pub fn new(stream: TcpStream) -> Client {
        Client { stream, down: Downstream::default() }
    }

    /// The socket.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends all of the output.
    pub async fn flush(&mut self) {
        let Client { stream, down } = self;
        poll_fn(|cx| {
            while !down.output.is_empty() && !down.gone {
                ready!(poll_write(stream, down, cx));
            }
            Poll::Ready(())
        })
        .await;
        shrink(&mut down.output);
    }

    /// Waits for more input.
    pub async fn read(&mut self) {
        let Client { stream, down } = self;
        poll_fn(|cx| if down.gone { Poll::Ready(()) } else { poll_read(stream, down, cx) }).await;
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

/// Reads what has come from a client into its input; waits for nothing. `Ready` when something was read or the
/// client turned out to be gone.
pub fn poll_read(stream: &mut TcpStream, down: &mut Downstream, cx: &mut Context<'_>) -> Poll<()> {
    if down.input.is_empty() && down.input.capacity() > 0 {
        down.input = BytesMut::new();
    }
    socket::poll_read(stream, cx, |read| match read {
        Ok(bytes) if !bytes.is_empty() => down.input.extend_from_slice(bytes),
        _ => down.gone = true,
    })
}

/// Writes as much of a client's output as the socket takes. `Ready` when progress was made.
pub fn poll_write(stream: &mut TcpStream, down: &mut Downstream, cx: &mut Context<'_>) -> Poll<()> {
    if ready!(socket::poll_write(stream, cx, &mut down.output)).is_err() {
        down.gone = true;
        down.output.clear();
    }
    Poll::Ready(())
}

/// Gives back what an idle client doesn't need.
pub fn shrink(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > IDLE_CAPACITY_MAX {
        *buffer = BytesMut::new();
    }
}
