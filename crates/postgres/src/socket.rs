//! A connection's bytes, encrypted or not: to a server as well as from a client.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::ProtocolVersion;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The protocol's name in a TLS handshake (manual, "SSL Session Encryption").
pub const ALPN: &[u8] = b"postgresql";

/// What carries a connection's bytes.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Plain(TcpStream),
    /// A socket of this machine.
    Unix(UnixStream),
    /// TLS over TCP. (Boxed: it is large, and most are plain.)
    Tls(Box<Encrypted>),
}

/// An encrypted connection.
#[derive(Debug)]
pub struct Encrypted {
    /// What carries its bytes.
    pub stream: TlsStream<TcpStream>,
    /// The hash of the server's certificate, by which both sides of a SCRAM exchange can make sure that nobody
    /// stands between (`tls-server-end-point`, RFC 5929), if it is known.
    pub end_point: Option<Arc<[u8]>>,
}

impl Encrypted {
    /// Whether the other side said that it wants to speak PostgreSQL's protocol, as a client must that begins with
    /// TLS.
    #[must_use]
    pub fn names_protocol(&self) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(ALPN)
    }

    /// The version of TLS, in the words of `pg_stat_ssl`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self.stream.get_ref().1.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        }
    }

    /// The other side's certificate, if it has one.
    #[must_use]
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.stream.get_ref().1.peer_certificates()?.first()
    }
}

impl Socket {
    /// The version of TLS, if it is encrypted.
    #[must_use]
    pub fn tls_version(&self) -> Option<&'static str> {
        match self {
            Socket::Plain(_) | Socket::Unix(_) => None,
            Socket::Tls(encrypted) => Some(encrypted.version()),
        }
    }

    /// The other side's certificate, if it has one. (A client's was certified by one of the authorities then; of a
    /// server's this is sure only with `verify-full`.)
    #[must_use]
    pub fn certificate(&self) -> Option<&[u8]> {
        match self {
            Socket::Plain(_) | Socket::Unix(_) => None,
            Socket::Tls(encrypted) => encrypted.certificate().map(AsRef::as_ref),
        }
    }

    /// The hash of the server's certificate, to which a SCRAM exchange can be bound, if it is encrypted.
    #[must_use]
    pub fn end_point(&self) -> Option<Arc<[u8]>> {
        match self {
            Socket::Plain(_) | Socket::Unix(_) => None,
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
        let encrypted = match self.get_mut() {
            Socket::Plain(stream) => return Pin::new(stream).poll_read(cx, buffer),
            Socket::Unix(stream) => return Pin::new(stream).poll_read(cx, buffer),
            Socket::Tls(encrypted) => encrypted,
        };
        match ready!(Pin::new(&mut encrypted.stream).poll_read(cx, buffer)) {
            // A process that was killed can't say that it ends. As without TLS, this is the end; PostgreSQL's
            // messages show whether something is missing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
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
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_shutdown(cx),
        }
    }
}
