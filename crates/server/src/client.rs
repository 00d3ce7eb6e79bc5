//! A client's socket.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use hihooi_session::downstream::{Downstream, Message};
use hihooi_wire::ProtocolError;

use crate::socket::{self, Stream};

/// Buffers of clients that idle are kept for those that don't, so many, unless they grew beyond this.
const SPARES_MAX: usize = 64;
const SPARE_CAPACITY_MAX: usize = 16 * 1_024;

/// Bytes of a client that are kept while it is only watched for its end.
const AHEAD_MAX: usize = 64 * 1_024;

thread_local! {
    /// Buffers that no client needs: an idle one holds none.
    static SPARES: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// A client's connection.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    /// What was said on it, until its session has that.
    pub down: Downstream,
}

impl<S: Stream> Client<S> {
    /// Takes over an accepted socket.
    #[must_use]
    pub fn new(stream: S) -> Client<S> {
        Client { stream, down: Downstream::default() }
    }

    /// The socket.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The socket, of a client with which nothing else was begun.
    #[must_use]
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Sends all of the output.
    pub async fn flush(&mut self) {
        flush(&mut self.stream, &mut self.down).await;
    }

    /// Sends all of the output, and that it is all (which TLS does with a message of its own).
    pub async fn close(&mut self) {
        close(&mut self.stream, &mut self.down).await;
    }

    /// Waits for more input.
    pub async fn read(&mut self) {
        let Client { stream, down } = self;
        poll_fn(|cx| if down.gone { Poll::Ready(()) } else { poll_read(stream, down, cx) }).await;
    }

    /// Waits until the client has gone, and keeps what it says meanwhile, up to a bound.
    pub async fn left(&mut self) {
        while !self.down.gone {
            if self.down.input.len() >= AHEAD_MAX {
                return std::future::pending().await;
            }
            self.read().await;
        }
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

async fn flush(stream: &mut impl Stream, down: &mut Downstream) {
    poll_fn(|cx| {
        while down.untold() > 0 && !down.gone {
            ready!(poll_write(stream, down, true, cx));
        }
        if !down.gone && ready!(socket::poll_flush(stream, cx)).is_err() {
            down.gone = true;
        }
        Poll::Ready(())
    })
    .await;
    shrink(&mut down.settled);
    shrink(&mut down.output);
}

/// Sends a client all of the output, and that it is all (which TLS does with a message of its own).
pub async fn close(stream: &mut impl Stream, down: &mut Downstream) {
    flush(stream, down).await;
    if !down.gone {
        // A client that doesn't hear it has all that it was sent.
        let _ = poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await;
    }
}

/// Reads what has come from a client into its input; waits for nothing. `Ready` when something was read or the
/// client turned out to be gone.
pub fn poll_read(
    stream: &mut impl Stream,
    down: &mut Downstream,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if down.input.is_empty() && down.input.capacity() > 0 {
        down.input = BytesMut::new();
    }
    socket::poll_read(stream, cx, |read| match read {
        Ok(bytes) if !bytes.is_empty() => {
            down.input.extend_from_slice(bytes);
            if down.output.capacity() == 0 {
                down.output = SPARES.with_borrow_mut(Vec::pop).unwrap_or_default();
            }
        }
        _ => down.gone = true,
    })
}

/// Writes as much of what is settled for a client, and then of its output if it `tells` that, as the socket
/// takes. `Ready` when progress was made.
pub fn poll_write(
    stream: &mut impl Stream,
    down: &mut Downstream,
    tells: bool,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let buffer = match (down.settled.is_empty(), down.output.is_empty()) {
        (false, _) => &mut down.settled,
        (true, false) if tells => &mut down.output,
        _ => {
            // A connection that broke is noticed by whoever reads from it.
            let _ = socket::poll_flush(stream, cx);
            return Poll::Pending;
        }
    };
    if ready!(socket::poll_write(stream, cx, buffer)).is_err() {
        down.gone = true;
        down.settled.clear();
        down.output.clear();
    }
    Poll::Ready(())
}

/// Gives back what an idle client doesn't need.
pub fn shrink(buffer: &mut BytesMut) {
    if !buffer.is_empty() || buffer.capacity() == 0 {
        return;
    }
    let buffer = std::mem::take(buffer);
    if buffer.capacity() <= SPARE_CAPACITY_MAX {
        SPARES.with_borrow_mut(|spares| {
            if spares.len() < SPARES_MAX {
                spares.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use hihooi_wire::frontend;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// What an idle client gives back is used by the next one that says something.
    #[tokio::test]
    async fn buffers_go_round() {
        let (ours, mut theirs) = duplex(64);
        let mut client = Client::new(ours);
        client.down.output.extend_from_slice(&[0; 2_000]);
        let capacity = client.down.output.capacity();
        client.down.output.clear();
        shrink(&mut client.down.output);
        assert_eq!(client.down.output.capacity(), 0);
        theirs.write_all(b"a word").await.expect("it is read");
        client.read().await;
        assert_eq!((client.down.output.capacity(), client.down.output.len()), (capacity, 0));
        client.down.output.extend_from_slice(b"untold");
        shrink(&mut client.down.output);
        assert_eq!(&client.down.output[..], b"untold", "only what is empty is given back");
    }

    /// A client is served over anything that carries bytes, however few at once.
    #[tokio::test]
    async fn any_stream_carries_messages() {
        let (ours, mut theirs) = duplex(1);
        let peer = tokio::spawn(async move {
            let mut said = BytesMut::new();
            frontend::query(b"SELECT 1", &mut said);
            frontend::terminate(&mut said);
            theirs.write_all(&said).await.expect("it is read");
            let mut heard = [0; 6];
            theirs.read_exact(&mut heard).await.expect("it is written");
            heard
        });
        let mut client = Client::new(ours);
        let mut tags = Vec::new();
        while tags.len() < 2 {
            tags.push(client.next().await.expect("messages of a client").expect("two").tag);
        }
        assert_eq!(tags, b"QX");
        client.down.output.extend_from_slice(b"answer");
        client.flush().await;
        assert_eq!(&peer.await.expect("it ran"), b"answer");
        assert_eq!(client.next().await, Ok(None));
        assert!(client.down.gone);
    }
}
