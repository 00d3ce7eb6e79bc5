//! From an accepted socket to a session: agrees on TLS, refuses GSS encryption, carries out cancel requests,
//! has the client [prove who it is](crate::login), checks the start-up parameters at the primary, and
//! sends the start-up answer.

use std::rc::Rc;

use hihooi_postgres::connection;
use hihooi_postgres::socket::{Encrypted, Socket};
use hihooi_sql::SearchPath;
use hihooi_wire::ProtocolError;
use hihooi_wire::backend::{self, Report, Status};
use hihooi_wire::startup::{self, Packet, Startup};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::clients::Stranger;
use crate::defaults::Defaults;
use crate::login::authenticate;
use crate::origin::Origin;
use crate::pool::Refusal;
use crate::relay::{Peer, Relay, RunningOn};
use crate::startup_key::{StartupKey, Welcome};
use hihooi_session::sites::SiteId;
use hihooi_session::state;

/// Start-up parameters that are remembered with their welcome; all are forgotten beyond (I8).
const WELCOMES_MAX: usize = 4_096;

/// The first byte of TLS, and of no packet of PostgreSQL's.
const TLS_HANDSHAKE: [u8; 1] = [0x16];

/// PostgreSQL's words.
const BAD_LAYOUT: &str = "invalid startup packet layout: expected terminator as last byte";

/// What a first packet led to.
enum First {
    /// A session may begin.
    Startup(Startup),
    /// The client waits for TLS.
    Tls,
    /// Nothing more to do.
    Done,
}

/// A client that may have a session.
pub struct Greeted {
    /// Its connection, encrypted if it wanted that.
    pub client: Client<Socket>,
    /// What it asked for.
    pub packet: Startup,
    /// The same, to be compared.
    pub key: StartupKey,
    /// What its session starts with, if the primary has said so already.
    pub defaults: Option<Defaults>,
    /// How it came.
    pub peer: Peer,
}

/// Greets a client, up to the proof of who it is. `None` if it opens no session.
/// Neither if it takes too long, or has to give way to others.
pub async fn greet(
    stream: Socket,
    relay: &Rc<Relay>,
    origin: Origin,
    stranger: Stranger,
) -> Option<Greeted> {
    let limit = relay.settings().limits.login_max();
    let greeted = async {
        let (mut client, packet) = open(stream, relay, &stranger).await?;
        stranger.spoke();
        let key = admit(&mut client, &packet, relay).await?;
        let proved = authenticate(&mut client, relay, &key, origin, &stranger).await?;
        let peer = Peer { origin, tls: client.stream().tls_version(), how: proved.how };
        Some(Greeted { client, packet, key, defaults: proved.defaults(), peer })
    };
    tokio::select! {
        greeted = tokio::time::timeout(limit, greeted) => greeted.ok().flatten(),
        () = stranger.gives_way() => None,
    }
}

/// Reads up to the start-up packet.
async fn open(
    stream: Socket,
    relay: &Rc<Relay>,
    stranger: &Stranger,
) -> Option<(Client<Socket>, Startup)> {
    let settings = relay.settings();
    // A Unix socket is not encrypted, as in PostgreSQL.
    let tls = settings.tls.as_ref().filter(|_| matches!(stream, Socket::Plain(_)));
    let stream = match (tls, stream) {
        // TLS without asking for it (manual, "SSL Session Encryption").
        (Some(tls), Socket::Plain(stream)) if is_tls(&stream).await => {
            let encrypted = tls.accept(stream).await.ok()?;
            return match encrypted.names_protocol() {
                true => startup_over_tls(encrypted, relay, stranger).await,
                false => None,
            };
        }
        (_, stream) => stream,
    };
    let mut client = Client::new(stream);
    match first_packet(&mut client, relay, stranger, tls.is_some()).await {
        First::Startup(packet) if tls.is_some_and(|tls| tls.is_required) => {
            let text = format!(
                "no encryption, but hihooi requires TLS: user \"{}\"",
                packet.get("user").unwrap_or_default()
            );
            let refusal = Report::fatal("28000", text).hint("Connect with sslmode=require.");
            refusal.write(&mut client.down.output);
            client.flush().await;
            None
        }
        First::Startup(packet) => Some((client, packet)),
        First::Tls => match client.into_stream() {
            Socket::Plain(stream) => {
                let encrypted = tls?.accept(stream).await.ok()?;
                startup_over_tls(encrypted, relay, stranger).await
            }
            Socket::Unix(_) | Socket::Tls(_) => None,
        },
        First::Done => None,
    }
}

async fn startup_over_tls(
    encrypted: Encrypted,
    relay: &Rc<Relay>,
    stranger: &Stranger,
) -> Option<(Client<Socket>, Startup)> {
    let mut client = Client::new(Socket::Tls(Box::new(encrypted)));
    stranger.spoke();
    match first_packet(&mut client, relay, stranger, false).await {
        First::Startup(packet) => Some((client, packet)),
        First::Tls | First::Done => None,
    }
}

/// Whether a client begins with TLS; takes nothing of what it sent.
async fn is_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first == TLS_HANDSHAKE
}

/// Reads first packets until one opens a session, or TLS, if that is offered.
async fn first_packet(
    client: &mut Client<Socket>,
    relay: &Rc<Relay>,
    stranger: &Stranger,
    offers_tls: bool,
) -> First {
    let error = match requests(client, relay, stranger, offers_tls).await {
        Ok(first) => return first,
        Err(error) => error,
    };
    let out = &mut client.down.output;
    match error {
        ProtocolError::Stranger => return First::Done,
        // As these versions had their errors.
        ProtocolError::Version(..=2, _) => {
            out.extend_from_slice(format!("EFATAL:  {error}\n\0").as_bytes());
        }
        ProtocolError::Version(..) => Report::fatal("0A000", error.to_string()).write(out),
        _ => Report::fatal("08P01", BAD_LAYOUT).write(out),
    }
    client.close().await;
    First::Done
}

async fn requests(
    client: &mut Client<Socket>,
    relay: &Rc<Relay>,
    stranger: &Stranger,
    offers_tls: bool,
) -> Result<First, ProtocolError> {
    let is_encrypted = matches!(client.stream(), Socket::Tls(_));
    loop {
        match startup::parse(&mut client.down.input)? {
            // As PostgreSQL, which takes the request for a version then.
            Some(packet @ (Packet::Ssl | Packet::Gss)) if is_encrypted => {
                return Err(ProtocolError::Version(1234, 5680 - u16::from(packet == Packet::Ssl)));
            }
            Some(Packet::Ssl) if offers_tls => {
                // What came behind the request isn't encrypted: somebody else may have put it there.
                if !client.down.input.is_empty() {
                    let what = "received unencrypted data after SSL request";
                    Report::fatal("08P01", what).write(&mut client.down.output);
                    client.flush().await;
                    return Ok(First::Done);
                }
                client.down.output.extend_from_slice(b"S");
                client.flush().await;
                return Ok(First::Tls);
            }
            Some(Packet::Ssl | Packet::Gss) => {
                client.down.output.extend_from_slice(b"N");
                client.flush().await;
            }
            Some(Packet::Cancel { process, secret }) => {
                stranger.waits(cancel(relay, process, &secret)).await;
                // libpq (from 17 on) takes an end of TCP without one of TLS for a failure.
                client.close().await;
                return Ok(First::Done);
            }
            Some(Packet::Startup(packet)) => return Ok(First::Startup(packet)),
            None if client.down.gone => return Ok(First::Done),
            None => client.read().await,
        }
    }
}

/// The key of the session that a start-up packet opens, unless it is refused.
async fn admit(client: &mut Client<Socket>, packet: &Startup, relay: &Relay) -> Option<StartupKey> {
    let unknown: Vec<&str> = packet
        .parameters
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| name.starts_with("_pq_."))
        .collect();
    if packet.minor > 0 || !unknown.is_empty() {
        backend::negotiate_protocol_version(&unknown, &mut client.down.output);
    }
    let refusal = match StartupKey::of(packet) {
        None => Report::fatal("28000", "no PostgreSQL user name specified in startup packet"),
        Some(key) if key.is_replication() => {
            Report::fatal("0A000", "replication connections can't go through hihooi")
                .hint("Connect to the primary itself; SHOW SERVERS in database hihooi names it.")
        }
        // It need not prove who it is if there is no place for it.
        Some(key) => match relay.clients.check(&relay.settings().limits) {
            Err(refusal) if !key.wants_admin() => refusal,
            _ => return Some(key),
        },
    };
    refusal.write(&mut client.down.output);
    client.close().await;
    None
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
        let RunningOn { site, identity, .. } = &self.0;
        // Boxed: it is rare, and every session would keep room for it.
        let _ = Box::pin(connection::cancel(relay.address(*site), &identity.key)).await;
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.cancels.set(self.0.cancels.get() - 1);
    }
}

/// Tries the start-up parameters at the primary, once for all clients that use the same.
///
/// # Errors
/// The server's own error, or that it can't be reached.
pub async fn welcome(relay: &Rc<Relay>, key: &Rc<StartupKey>) -> Result<Rc<Welcome>, Refusal> {
    let version = relay.pools.configuration_version();
    let known = relay.welcomes.borrow().get(key).cloned();
    if let Some(welcome) = known.filter(|known| known.configuration_version == version) {
        return Ok(welcome);
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
        role: found.settings.get("role").unwrap_or("none").to_owned(),
        path: SearchPath::new(&found.path),
        isolation: found.isolation,
        idle_limit: found.idle_limit,
        configuration_version: version,
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
