//! Bytes between sockets and buffers, through one read buffer for all sockets of the relay's thread: an idle
//! connection holds none.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::Encrypted;

/// A client's socket.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<Encrypted>),
}

impl Socket {
    /// The version of TLS, if it is encrypted.
    #[must_use]
    pub fn tls_version(&self) -> Option<&'static str> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(encrypted) => Some(encrypted.version()),
        }
    }

    /// The client's certificate, if it has one that was certified by one of the authorities.
    #[must_use]
    pub fn certificate(&self) -> Option<&[u8]> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(encrypted) => encrypted.certificate().map(AsRef::as_ref),
        }
    }

    /// The hash of our certificate, to which a SCRAM exchange can be bound, if it is encrypted.
    #[must_use]
    pub fn end_point(&self) -> Option<Arc<[u8]>> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(encrypted) => encrypted.end_point.clone(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_shutdown(cx),
        }
    }
}

/// So long after its last packet, a client's machine is asked for a sign of life, and then at these intervals: one that
/// is gone is noticed, and a network that forgets idle connections keeps ours.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(10));

/// Sets the options of a client's socket.
///
/// # Errors
/// Its connection is gone.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(&KEEPALIVE)
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
