//! The admin database over a Unix socket of our own: whoever may connect may use it, as the file's permissions say, and
//! nothing else is served there.

use std::rc::Rc;
use std::time::Duration;

use hihooi_wire::backend::Report;
use hihooi_wire::startup::{self, Packet, Startup};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_local;
use tracing::warn;

use crate::admin::Admin;
use crate::client::Client;
use crate::listener::ACCEPT_PAUSE;
use crate::relay::Relay;
use crate::settings::Access;
use crate::startup_key::ADMIN_DATABASE;

/// How long the start-up packet may take.
const STARTUP_LIMIT: Duration = Duration::from_secs(10);

/// The socket, for this event loop.
pub fn listener(socket: std::os::unix::net::UnixListener) -> std::io::Result<UnixListener> {
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket)
}

/// Accepts connections for ever.
pub async fn serve(listener: UnixListener, relay: Rc<Relay>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(spawn_local(session(stream, relay.clone()))),
            Err(error) => {
                warn!(%error, "can't accept a connection to the admin socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn session(stream: UnixStream, relay: Rc<Relay>) {
    let mut client = Client::new(stream);
    let packet = tokio::time::timeout(STARTUP_LIMIT, startup_packet(&mut client)).await;
    let Ok(Some(packet)) = packet else { return };
    if packet.get("database") == Some(ADMIN_DATABASE) {
        return Box::pin(Admin::new(relay, client, Access::Full).run()).await;
    }
    let refusal = "only the database \"hihooi\" is served at this socket";
    Report::fatal("0A000", refusal).write(&mut client.down.output);
    client.flush().await;
}

/// `None` if the client has gone, or asks for something else.
async fn startup_packet(client: &mut Client<UnixStream>) -> Option<Startup> {
    loop {
        match startup::parse(&mut client.down.input).ok()? {
            Some(Packet::Startup(packet)) => return Some(packet),
            Some(Packet::Cancel { .. }) => return None,
            Some(Packet::Ssl | Packet::Gss) => {
                client.down.output.extend_from_slice(b"N");
                client.flush().await;
            }
            None if client.down.gone => return None,
            None => client.read().await,
        }
    }
}
