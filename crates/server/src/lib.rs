//! The client side: the listening port, sessions, pools, routing, the admin database.
//!
//! Everything runs on one thread (docs/decisions/0001-event-loop.md), with one task for each client and a few
//! tasks that process the stream. They share `relay::Relay`.
//!
//! What this crate must NOT know: how entries are made, stored and applied.

mod admin;
mod age;
pub mod authentication;
mod backend;
mod catalog;
mod client;
mod clients;
mod configuration;
mod costs;
mod defaults;
mod exports;
mod handshake;
mod idle;
mod listener;
mod local;
mod login;
mod meters;
pub mod metrics;
mod objects;
pub mod operator;
mod origin;
mod outcomes;
mod permits;
mod pool;
mod proof;
mod relay;
mod reload;
mod replica_objects;
mod room;
mod session;
pub mod settings;
mod silence;
mod socket;
mod startup_key;
mod statements;
mod stopping;
pub mod tls;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use hihooi_postgres::socket::Socket;
use hihooi_wire::backend::Report;
use hihooi_wire::startup::Startup;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_local};
use tracing::{info, warn};

use crate::client::Client;
use crate::clients::{Entered, Stranger};
use crate::defaults::{Defaults, Shared};
use crate::handshake::{Greeted, greet, welcome, write_welcome};
pub use crate::listener::Listener;
use crate::listener::{Door, accept};
use crate::operator::Operator;
use crate::origin::Origin;
pub use crate::relay::{ApplyStatsOf, Replication};
use crate::relay::{Peer, Relay, SessionInfo};
use crate::session::Served;
pub use crate::settings::Settings;
use crate::startup_key::StartupKey;
pub use hihooi_session::consistency::Consistency;
use hihooi_session::route::{Reason, Route};
use hihooi_session::sites::SiteId;

/// Where clients come from.
#[derive(Debug)]
pub struct Listeners {
    /// All clients.
    pub clients: Vec<Listener>,
    /// The operator, for the admin database alone: whoever may connect here may do anything there.
    pub admin: Option<std::os::unix::net::UnixListener>,
}

/// Serves clients until `shutdown` turns true, and tells how they are served where it is `asked`. To be run on a
/// [`tokio::runtime::LocalRuntime`], with which all that it began ends.
///
/// # Errors
/// The listening socket can't be used.
pub async fn run(
    listeners: Listeners,
    settings: Settings,
    operator: Operator,
    replication: Replication,
    asked: metrics::Asked,
    mut shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let doors: io::Result<Vec<Door>> = listeners.clients.into_iter().map(Door::new).collect();
    let doors = doors?;
    let (relay, events) = Relay::new(settings, operator, replication);
    let relay = Rc::new(relay);
    let reload = Rc::new(Notify::new());
    spawn_local(outcomes::follow(relay.clone(), events, reload.clone()));
    spawn_local(catalog::keep(relay.clone(), reload));
    spawn_local(outcomes::resolve(relay.clone()));
    spawn_local(outcomes::keep_lag(relay.clone()));
    spawn_local(idle::keep_idle(relay.clone()));
    spawn_local(metrics::answer(relay.clone(), asked));
    spawn_local(reload::on_hangup(relay.clone()));
    for number in 0..relay.replicas.len() {
        spawn_local(replica_objects::keep(relay.clone(), number));
        spawn_local(exports::keep(relay.clone(), number));
    }
    for site in relay.sites.ids() {
        spawn_local(silence::watch(relay.clone(), site));
    }
    if let Some(admin) = listeners.admin {
        spawn_local(local::serve(local::listener(admin)?, relay.clone()));
    }
    let accepting = doors.into_iter().map(|door| spawn_local(accept(door, relay.clone(), serve)));
    let accepting: Vec<JoinHandle<()>> = accepting.collect();
    // A manager that is gone without a word stops the relay as well.
    let _ = shutdown.wait_for(|&stop| stop).await;
    accepting.iter().for_each(JoinHandle::abort);
    relay.stopping.stop().await;
    info!("no more clients are served");
    Ok(())
}

/// Serves a client that has come.
async fn serve(relay: Rc<Relay>, stream: Socket, origin: Origin, stranger: Stranger) {
    // Boxed: what opening takes is free again while the client is served. Most clients are idle, so that this task must
    // be small.
    let begun = Box::pin(begin(relay, stream, origin, stranger)).await;
    if let Some((mut session, _place)) = begun {
        Box::pin(session.run()).await;
    }
}

/// Greets a client and opens its session, with its place among all; or serves it with the admin database.
async fn begin(
    relay: Rc<Relay>,
    stream: Socket,
    origin: Origin,
    stranger: Stranger,
) -> Option<(Box<Served<Socket>>, Entered)> {
    let id = stranger.number();
    let mut greeted = greet(stream, &relay, origin, stranger).await?;
    let key = &greeted.key;
    let is_admin = key.wants_admin();
    let entered = match is_admin {
        true => relay.clients.enter_as_admin(),
        false => relay.clients.enter(&key.user, &key.database, &relay.settings().limits),
    };
    let place = match entered {
        Ok(place) => place,
        Err(refusal) => {
            tell(&mut greeted.client, &refusal).await;
            return None;
        }
    };
    if is_admin {
        Box::pin(serve_admin(relay, greeted.client, &greeted.key)).await;
        return None;
    }
    Some((open(&relay, greeted, id).await?, place))
}

async fn serve_admin(relay: Rc<Relay>, mut client: Client<Socket>, key: &StartupKey) {
    let access = relay.settings().admins.get(&key.user).copied();
    if let Some(access) = access {
        return admin::Admin::new(relay, client, access).run().await;
    }
    let told = format!("user \"{}\" may not use the admin database", key.user);
    let hint = "List the user in admin_users, or in [[user]] with admin = \"read\".";
    tell(&mut client, &Report::fatal("42501", told).hint(hint)).await;
}

/// The last that a client is told.
async fn tell(client: &mut Client<Socket>, report: &Report) {
    report.write(&mut client.down.output);
    client.close().await;
}

/// Opens the session of a client, unless the primary or hihooi refuse it.
async fn open(relay: &Rc<Relay>, greeted: Greeted, id: u64) -> Option<Box<Served<Socket>>> {
    let Greeted { mut client, packet, key, defaults, peer } = greeted;
    let key = match startup_key(relay, &key, defaults).await {
        Ok(key) => key,
        Err(error) => {
            let refusal = pool::Refusal::Unreachable(error.to_string());
            refuse(relay, &mut client, &refusal, &key).await;
            return None;
        }
    };
    let welcomed = match welcome(relay, &key).await {
        Ok(welcomed) => welcomed,
        Err(refusal) => {
            refuse(relay, &mut client, &refusal, &key).await;
            return None;
        }
    };
    let Some(info) = register(relay, key, peer) else {
        tell(&mut client, &Report::fatal("53000", "no random numbers to be had")).await;
        return None;
    };
    client.down.process = info.process;
    write_welcome(&welcomed, info.process, &info.secret, &mut client.down.output);
    client.flush().await;
    let startup = info.startup.clone();
    let mut session = Box::new(Served::new(relay.clone(), info, id, client, &welcomed));
    apply_own_settings(&mut session, &startup, &packet);
    Some(session)
}

/// What the session of a client is opened with, by the primary's word, which may be known already. While the primary is
/// away, whoever opens like others before may read at replicas.
async fn startup_key(
    relay: &Relay,
    key: &StartupKey,
    defaults: Option<Defaults>,
) -> Shared<Rc<StartupKey>> {
    let known = || relay.welcomes.borrow().keys().find(|known| known.is_like(key)).cloned();
    if relay.pools.is_primary_silent.get()
        && let Some(known) = known()
    {
        return Ok(known);
    }
    // One key for all who open alike: compared by address most of the time.
    let with = |defaults| relay.known_key(StartupKey { defaults, ..key.clone() });
    if let Some(defaults) = defaults {
        return Ok(with(defaults));
    }
    match relay.pools.asked(SiteId::Primary).account(&key.user, &key.database, None).await {
        Ok(account) => Ok(with(account.defaults)),
        Err(error) if relay.is_primary_away(&error) => known().ok_or(error),
        Err(error) => Err(error),
    }
}

async fn refuse(
    relay: &Relay,
    client: &mut Client<Socket>,
    refusal: &pool::Refusal,
    key: &StartupKey,
) {
    match refusal {
        pool::Refusal::Server(fields) => fields.write(&mut client.down.output),
        _ => {
            let report = refusal.report(&relay.sites.primary.name, key);
            Report::fatal(report.code, report.message)
                .detail(report.detail.unwrap_or_default())
                .write(&mut client.down.output);
        }
    }
    client.close().await;
}

/// Settings `hihooi.*` of the role and the database, then start-up parameters, also in `options`; bad ones count as
/// not given.
fn apply_own_settings(session: &mut Served<Socket>, startup: &StartupKey, packet: &Startup) {
    let options = packet.get("options").unwrap_or_default();
    let from_options = options
        .split_whitespace()
        .filter_map(|word| word.trim_start_matches("-c").trim_start_matches("--").split_once('='));
    let given = startup.defaults.settings.iter().chain(&packet.parameters);
    let given = given.map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in given.chain(from_options) {
        if let Some(name) = name.strip_prefix("hihooi.")
            && let Err(report) = session.set_own(name, value)
        {
            warn!(why = report.message, "a setting of a session that starts is ignored");
        }
    }
    session.starts();
}

fn register(relay: &Rc<Relay>, startup: Rc<StartupKey>, peer: Peer) -> Option<Rc<SessionInfo>> {
    let mut sessions = relay.sessions.borrow_mut();
    let (process, secret) = loop {
        let mut random = [[0; 4]; 2];
        getrandom::fill(random.as_flattened_mut()).ok()?;
        let [secret, number] = random;
        let process = i32::from_be_bytes(number) & 0x3FFF_FFFF;
        if process != 0 && !sessions.contains_key(&process) {
            break (process, secret);
        }
    };
    let info = Rc::new(SessionInfo {
        process,
        secret,
        startup,
        peer,
        since: Instant::now(),
        is_killed: Cell::new(false),
        running: RefCell::default(),
        is_waiting: Cell::new(false),
        state: Cell::new("idle"),
        waits: Cell::new(None),
        last_route: Cell::new(Route::primary(Reason::NoReplica).placed()),
    });
    sessions.insert(process, info.clone());
    Some(info)
}
