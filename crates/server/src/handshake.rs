//! From an accepted socket to a session: refuses TLS and GSS encryption (for now), carries out cancel requests,
//! checks the start-up parameters at the primary, and sends the start-up answer.
//!
//! Authentication is `trust` so far; SCRAM and TLS belong in [`greet`].

use std::rc::Rc;

use hihooi_sql::SearchPath;
use hihooi_wire::ProtocolError;
use hihooi_wire::backend::{self, Report, Status};
use hihooi_wire::startup::{self, Packet, Startup};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::pool::Refusal;
use crate::relay::{Relay, RunningOn};
use crate::socket::Stream;
use crate::startup_key::{StartupKey, Welcome};
use hihooi_session::sites::SiteId;
use hihooi_session::state;

/// Start-up parameters that are remembered with their welcome; all are forgotten beyond (I8).
const WELCOMES_MAX: usize = 4_096;
/// How long a client may take to send its start-up packet.
const STARTUP_S_MAX: u64 = 60;

/// PostgreSQL's words.
const BAD_LAYOUT: &str = "invalid startup packet layout: expected terminator as last byte";

/// What a first packet led to.
pub enum Greeting {
    /// A session may begin.
    Session(Startup, StartupKey),
    /// Nothing more to do.
    Done,
}

/// Reads first packets until one opens a session.
pub async fn greet<S: Stream>(client: &mut Client<S>, relay: &Rc<Relay>) -> Greeting {
    let limit = std::time::Duration::from_secs(STARTUP_S_MAX);
    match tokio::time::timeout(limit, first_packet(client, relay)).await {
        Ok(Ok(Some(packet))) => admit(client, packet).await,
        Ok(Ok(None) | Err(ProtocolError::Stranger)) | Err(_) => Greeting::Done,
        Ok(Err(error)) => {
            let out = &mut client.down.output;
            match error {
                // As these versions had their errors.
                ProtocolError::Version(..=2, _) => {
                    out.extend_from_slice(format!("EFATAL:  {error}\n\0").as_bytes());
                }
                ProtocolError::Version(..) => Report::fatal("0A000", error.to_string()).write(out),
                _ => Report::fatal("08P01", BAD_LAYOUT).write(out),
            }
            client.flush().await;
            Greeting::Done
        }
    }
}

async fn first_packet<S: Stream>(
    client: &mut Client<S>,
    relay: &Rc<Relay>,
) -> Result<Option<Startup>, ProtocolError> {
    loop {
        match startup::parse(&mut client.down.input)? {
            Some(Packet::Ssl | Packet::Gss) => {
                client.down.output.extend_from_slice(b"N");
                client.flush().await;
            }
            Some(Packet::Cancel { process, secret }) => {
                cancel(relay, process, &secret).await;
                return Ok(None);
            }
            Some(Packet::Startup(packet)) => return Ok(Some(packet)),
            None if client.down.gone => return Ok(None),
            None => client.read().await,
        }
    }
}

async fn admit<S: Stream>(client: &mut Client<S>, packet: Startup) -> Greeting {
    let unknown: Vec<&str> = packet
        .parameters
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| name.starts_with("_pq_."))
        .collect();
    if packet.minor > 0 || !unknown.is_empty() {
        backend::negotiate_protocol_version(&unknown, &mut client.down.output);
    }
    let refusal = match StartupKey::of(&packet) {
        None => Report::fatal("28000", "no PostgreSQL user name specified in startup packet"),
        Some(key) if key.is_replication() => {
            Report::fatal("0A000", "replication connections can't go through hihooi")
                .hint("Connect to the primary itself; SHOW SERVERS in database hihooi names it.")
        }
        Some(key) => return Greeting::Session(packet, key),
    };
    refusal.write(&mut client.down.output);
    client.flush().await;
    Greeting::Done
}

/// Carries a cancel request to the server that works for the session, if any, and keeps its
/// connection out of other hands until it has arrived.
async fn cancel(relay: &Rc<Relay>, process: i32, secret: &[u8]) {
    let session = relay.sessions.borrow().get(&process).cloned();
    let Some(session) = session.filter(|session| session.secret == secret) else { return };
    let Some(running) = session.running.borrow().clone() else { return };
    Cancel::of(running).send(relay).await;
}

/// A cancel request on its way: while it lives, nobody else gets the connection.
pub struct Cancel(RunningOn);

impl Cancel {
    /// A request to cancel what runs there.
    #[must_use]
    pub fn of(running: RunningOn) -> Cancel {
        running.cancels.set(running.cancels.get() + 1);
        Cancel(running)
    }

    /// Sends it and waits until it has arrived.
    pub async fn send(self, relay: &Relay) {
        // Nobody waits for the outcome of a cancel request; PostgreSQL tells none either.
        let _ = send_cancel(relay, &self.0).await;
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.cancels.set(self.0.cancels.get() - 1);
    }
}

async fn send_cancel(relay: &Relay, running: &RunningOn) -> std::io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = relay.address(running.site);
    let mut stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    let mut packet = bytes::BytesMut::new();
    let key = &running.identity.key;
    startup::cancel(key.process, &key.secret, &mut packet);
    stream.write_all(&packet).await?;
    let limit = std::time::Duration::from_secs(2);
    // The server closes the connection when it has sent the signal.
    let _ = tokio::time::timeout(limit, stream.read(&mut [0])).await;
    Ok(())
}

/// Tries the start-up parameters at the primary, once for all clients that use the same.
///
/// # Errors
/// The server's own error, or that it can't be reached.
pub async fn welcome(relay: &Rc<Relay>, key: &Rc<StartupKey>) -> Result<Rc<Welcome>, Refusal> {
    if let Some(welcome) = relay.welcomes.borrow().get(key) {
        return Ok(welcome.clone());
    }
    let pool = relay.pools.pool(SiteId::Primary, key);
    let mut server = relay.pools.acquire(&pool, key, &Rc::default(), 0).await?;
    let lost = |error: std::io::Error| Refusal::Unreachable(error.to_string());
    // It may have served others that began alike.
    server.ask(&state::CarriedSettings::default().statements(true)).await.map_err(lost)?;
    if let Some(up) = &mut server.up {
        (up.settings, up.unseen_code_of) = (std::sync::Arc::default(), None);
    }
    let rows = server.ask(&state::query(std::iter::empty())).await.map_err(lost)?;
    let found = state::read(&rows);
    let welcome = Rc::new(Welcome {
        parameters: server.parameters.clone(),
        path: SearchPath::new(&found.path),
        isolation: found.isolation,
        idle_limit: found.idle_limit,
    });
    relay.pools.release(server);
    let mut welcomes = relay.welcomes.borrow_mut();
    welcomes.retain(|known, _| !known.is_like(key)); // the role starts with something else now
    if welcomes.len() >= WELCOMES_MAX {
        welcomes.clear();
    }
    welcomes.insert(key.clone(), welcome.clone());
    Ok(welcome)
}

/// Writes what ends a successful start-up.
pub fn write_welcome(welcome: &Welcome, process: i32, secret: &[u8], out: &mut bytes::BytesMut) {
    backend::authentication_ok(out);
    for (name, value) in &welcome.parameters {
        backend::parameter_status(name, value, out);
    }
    backend::backend_key_data(process, secret, out);
    backend::ready_for_query(Status::Idle, out);
}
