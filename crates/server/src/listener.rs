//! Where clients come in: a TCP or a Unix socket.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use hihooi_postgres::socket::Socket;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::spawn_local;
use tracing::warn;

use crate::clients::Stranger;
use crate::origin::Origin;
use crate::relay::Relay;
use crate::socket;

/// After a failure to accept (no file descriptors left, say).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens for clients.
#[derive(Debug)]
pub enum Listener {
    /// For those of other machines, too, as its address says.
    Tcp(std::net::TcpListener),
    /// For those of this machine.
    Unix(std::os::unix::net::UnixListener),
}

/// The same, for this event loop.
pub enum Door {
    /// TCP.
    Tcp(TcpListener),
    /// Unix.
    Unix(UnixListener),
}

impl Door {
    /// Begins to listen on this event loop.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn new(listener: Listener) -> io::Result<Door> {
        Ok(match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                let listener = TcpListener::from_std(listener)?;
                socket::prepare(&listener)?;
                Door::Tcp(listener)
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Door::Unix(UnixListener::from_std(listener)?)
            }
        })
    }

    /// The next connection.
    async fn accept(&self) -> io::Result<(Socket, Origin)> {
        Ok(match self {
            Door::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                (Socket::Plain(stream), Origin::Address(address))
            }
            Door::Unix(listener) => (Socket::Unix(listener.accept().await?.0), Origin::Local),
        })
    }
}

/// Lets clients in for ever; `serve` serves each.
pub async fn accept<Served: Future<Output = ()> + 'static>(
    door: Door,
    relay: Rc<Relay>,
    serve: impl Fn(Rc<Relay>, Socket, Origin, Stranger) -> Served,
) {
    loop {
        match door.accept().await {
            Ok((stream, origin)) => {
                relay.clients.place_for_stranger().await;
                let stranger = relay.clients.stranger();
                drop(spawn_local(serve(relay.clone(), stream, origin, stranger)));
            }
            Err(error) => {
                warn!(%error, "can't accept a client");
                relay.clients.give_way(); // there may be no file descriptor left
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
