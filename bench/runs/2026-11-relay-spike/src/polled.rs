//! One task owns both sockets and polls both directions at each wake-up. `poll_read` takes a
//! short read for "drained" and clears readiness, so no read ends in EAGAIN. Bytes pass through
//! one scratch buffer per thread; only what the receiver doesn't take is copied to the session.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

const SCRATCH_BYTES: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
}

/// What one direction has read and could not write yet: at most one scratch buffer.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
}

pub async fn relay(mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
    let (mut up, mut down) = (Unsent::default(), Unsent::default());
    poll_fn(|cx| {
        if let Poll::Ready(end) = pump(cx, &mut client, &mut server, &mut up) {
            return Poll::Ready(end);
        }
        pump(cx, &mut server, &mut client, &mut down)
    })
    .await
}

/// Moves bytes until one side must be waited for. Ready means the session is over.
fn pump(
    cx: &mut Context<'_>,
    from: &mut TcpStream,
    to: &mut TcpStream,
    unsent: &mut Unsent,
) -> Poll<io::Result<()>> {
    loop {
        ready!(flush(cx, to, unsent))?;
        let open = SCRATCH.with_borrow_mut(|scratch| pass(cx, from, to, unsent, scratch));
        if !ready!(open)? {
            return Poll::Ready(Ok(()));
        }
    }
}

fn flush(cx: &mut Context<'_>, to: &mut TcpStream, unsent: &mut Unsent) -> Poll<io::Result<()>> {
    while unsent.sent < unsent.bytes.len() {
        let n = ready!(Pin::new(&mut *to).poll_write(cx, &unsent.bytes[unsent.sent..]))?;
        unsent.sent += n;
    }
    unsent.bytes.clear();
    unsent.sent = 0;
    Poll::Ready(Ok(()))
}

/// One read and one write; false at end of file.
fn pass(
    cx: &mut Context<'_>,
    from: &mut TcpStream,
    to: &mut TcpStream,
    unsent: &mut Unsent,
    scratch: &mut [u8],
) -> Poll<io::Result<bool>> {
    let mut read = ReadBuf::new(scratch);
    ready!(Pin::new(from).poll_read(cx, &mut read))?;
    let bytes = read.filled();
    let written = match Pin::new(to).poll_write(cx, bytes) {
        Poll::Ready(n) => n?,
        Poll::Pending => 0,
    };
    unsent.bytes.extend_from_slice(&bytes[written..]);
    Poll::Ready(Ok(!bytes.is_empty()))
}
