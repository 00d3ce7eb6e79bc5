//! Bytes between sockets and buffers, through one read buffer for all sockets of the relay's thread: an idle
//! connection holds none.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;

/// So long after its last packet, a client's machine is asked for a sign of life, and then at these intervals: one that
/// is gone is noticed, and a network that forgets idle connections keeps ours.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(10));

/// Sets the options of a socket that listens, which all that it accepts begin with (tcp(7), on Linux).
///
/// # Errors
/// Those of the operating system.
pub fn prepare(listener: &TcpListener) -> io::Result<()> {
    let socket = SockRef::from(listener);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)
}

/// What carries a client's or a server's bytes.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + fmt::Debug + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + fmt::Debug + 'static> Stream for T {}

/// So much is read from a socket at once.
const LEN: usize = 64 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; LEN].into_boxed_slice());
}

/// Gives away what has come; nothing is the end. Waits for nothing.
pub fn poll_read<T>(
    stream: &mut impl Stream,
    cx: &mut Context<'_>,
    take: impl FnOnce(io::Result<&[u8]>) -> T,
) -> Poll<T> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut buffer = ReadBuf::new(buffer);
        let read = ready!(Pin::new(stream).poll_read(cx, &mut buffer));
        Poll::Ready(take(read.map(|()| buffer.filled())))
    })
}

/// Writes as much as the socket takes and removes it. `Ready` when it took something.
///
/// # Errors
/// The connection broke.
pub fn poll_write(
    stream: &mut impl Stream,
    cx: &mut Context<'_>,
    buffer: &mut BytesMut,
) -> Poll<io::Result<()>> {
    match ready!(Pin::new(stream).poll_write(cx, buffer))? {
        0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        // A buffer that is empty is written from its beginning again.
        count if count == buffer.len() => buffer.clear(),
        count => buffer.advance(count),
    }
    Poll::Ready(Ok(()))
}

/// Sends what the stream itself holds back: TLS encrypts more at once than the socket may take. Only with TLS is
/// this ever `Pending`.
///
/// # Errors
/// The connection broke.
pub fn poll_flush(stream: &mut impl Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    Pin::new(stream).poll_flush(cx)
}
