//! What the SHOW commands of the admin database tell. Most of it is read at that moment from what the relay has in
//! memory; only SHOW REPLICAS asks the primary, for its position.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hihooi_postgres::connection::{Connection, Login, Result};
use hihooi_postgres::setup::SLOT;
use hihooi_postgres::site::{Replica, State};
use hihooi_postgres::wal_positions::WalPositions;
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_session::sites::SiteId;

use super::commands::COMMANDS;
use super::table::{Table, Value};
use crate::metrics;
use crate::relay::Relay;
use crate::settings::{Access, Shown};

/// How long `SHOW REPLICAS` waits for the primary to tell its position.
const POSITION_LIMIT: Duration = Duration::from_secs(2);

/// `SHOW REPLICAS`.
pub(super) async fn replicas(relay: &Relay, mut table: Table) -> Table {
    let newest = newest_now(relay).await;
    for (number, replica) in relay.replicas.iter().enumerate() {
        let lag = newest.map(|newest| newest.0.saturating_sub(replica.applied().0));
        let lag_ms = match lag {
            Some(0) => Some(0),
            Some(_) => relay.age_ms(replica.applied().next()).await,
            None => None,
        };
        let stats = (relay.apply_stats)(&replica.site.name).unwrap_or_default();
        let reason = reason(relay, replica, lag);
        let shown = relay.balance.borrow().shown(number, relay.now());
        let is_readable = replica.state().is_readable() && !relay.is_late(replica);
        let percent = if is_readable { (shown.share * 100.0).round() } else { 0.0 };
        table.row([
            replica.site.name.as_str().into(),
            replica.state().to_string().into(),
            replica.applied().0.into(),
            lag.into(),
            lag_ms.into(),
            stats.percentile_us(50).into(),
            stats.percentile_us(99).into(),
            (!reason.is_empty()).then_some(reason).into(),
            shown.weight.into(),
            Value::Int(percent as i64),
            shown.slowdown.into(),
            replica.since().into(),
            "applied".into(),
            relay.log.len_from(replica.applied().next()).into(),
            replica.rebuilds().into(),
            replica.set_aside().len().into(),
        ]);
    }
    table
}

/// Why a replica is in its state, or lags behind.
fn reason(relay: &Relay, replica: &Replica, lag: Option<u64>) -> String {
    if relay.is_late(replica) {
        return "serves no reads until a commit made at level sync is visible there".to_owned();
    }
    if matches!(replica.state(), State::Serving | State::CatchingUp) && lag != Some(0) {
        let others = why_behind(relay, lag.is_none());
        if !others.is_empty() {
            return others;
        }
    }
    replica.reason()
}

/// What keeps replicas from following, if it isn't their own fault.
fn why_behind(relay: &Relay, is_unknown: bool) -> String {
    let (log, collector) = (&relay.log, &relay.collector);
    match log.stalled().or_else(|| log.failed()) {
        Some(why) => format!("the log can't be written: {why}"),
        None if !collector.error().is_empty() => {
            format!("the primary's stream: {}", collector.error())
        }
        None if is_unknown => "the primary's position is not known".to_owned(),
        None => String::new(),
    }
}

/// The newest entry once the collector has passed the primary's position of now.
async fn newest_now(relay: &Relay) -> Option<Tsid> {
    if relay.pools.is_primary_silent.get() {
        return None;
    }
    let position = async {
        let (lsn, mut positions) = position_now(relay).await.ok()?;
        if relay.collector.received() < lsn {
            positions.ensure_flushed(lsn).await.ok()?;
        }
        relay.positions.set(Some(positions));
        while relay.collector.received() < lsn {
            relay.poke.notify_one();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Some(relay.log.last().map_or(Tsid::ZERO, |header| header.tsid))
    };
    tokio::time::timeout(POSITION_LIMIT, position).await.ok().flatten()
}

/// The primary's position, and the connection that told it, to be given back to
/// [`Relay::positions`] when nothing failed. One that was ended meanwhile is replaced.
async fn position_now(relay: &Relay) -> Result<(Lsn, WalPositions)> {
    if let Some(mut kept) = relay.positions.take()
        && let Ok(lsn) = kept.lsn_after().await
    {
        return Ok((lsn, kept));
    }
    let primary = &relay.sites.primary;
    let login = Login::new(primary.address.clone(), &primary.user, &relay.database, "hihooi admin");
    let mut opened = WalPositions::new(Connection::open(&login).await?).await?;
    Ok((opened.lsn_after().await?, opened))
}

/// `SHOW CLIENTS`.
pub(super) fn clients(relay: &Relay, mut table: Table) -> Table {
    for (process, session) in relay.sessions.borrow().iter() {
        let site = session.running.borrow().as_ref().map(|running| running.site);
        let parameters = &session.startup.parameters;
        let application = parameters.iter().find(|(name, _)| name == "application_name");
        let route = session.last_route.get();
        let waits = session.waits.get();
        table.row([
            (*process).into(),
            session.startup.user.as_str().into(),
            session.startup.database.as_str().into(),
            application.map(|(_, value)| value.as_str()).into(),
            session.peer.origin.to_string().into(),
            if waits.is_some() { "waiting" } else { session.state.get() }.into(),
            site.map(|site| relay.sites[site].name.as_str()).into(),
            route.describe(&relay.sites[route.site].name).into(),
            session.since.elapsed().as_secs().into(),
            session.peer.tls.into(),
            session.peer.how.into(),
            waits.map(|(since, _)| ms(since.elapsed())).into(),
        ]);
    }
    table
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `SHOW SERVERS`.
pub(super) fn servers(relay: &Relay, mut table: Table) -> Table {
    for (id, site) in relay.sites.ids().zip(relay.sites.iter()) {
        let state = match relay.replica(id) {
            Some(replica) => replica.state().to_string(),
            None if is_primary_heard(relay) => "serving".to_owned(),
            None => "unreachable".to_owned(),
        };
        table.row([
            site.name.as_str().into(),
            site.role.to_string().into(),
            site.address.host.as_str().into(),
            site.address.port.into(),
            state.into(),
            relay.counters[id].active.get().into(),
            relay.tls_of_sites[id].get().into(),
        ]);
    }
    table
}

fn is_primary_heard(relay: &Relay) -> bool {
    relay.collector.connected.load(Ordering::Relaxed) && !relay.pools.is_primary_silent.get()
}

/// `SHOW POOLS`.
pub(super) fn pools(relay: &Relay, mut table: Table) -> Table {
    let (pools, sessions) = (relay.pools.info(), relay.sessions.borrow());
    let mut waiting = BTreeMap::<(SiteId, &str, &str), Vec<Instant>>::new();
    for session in sessions.values() {
        if let Some((since, Some(site))) = session.waits.get() {
            let key = (site, session.startup.user.as_str(), session.startup.database.as_str());
            waiting.entry(key).or_default().push(since);
        }
    }
    for pool in &pools {
        let key = (pool.site, pool.user.as_str(), pool.database.as_str());
        let waits = waiting.remove(&key).unwrap_or_default();
        let longest = waits.iter().map(Instant::elapsed).max().unwrap_or_default();
        table.row([
            relay.sites[pool.site].name.as_str().into(),
            pool.user.as_str().into(),
            pool.database.as_str().into(),
            pool.used.into(),
            pool.idle.into(),
            pool.size.into(),
            waits.len().into(),
            ms(longest).into(),
        ]);
    }
    table
}

/// `SHOW STATS`.
pub(super) fn stats(relay: &Relay, mut table: Table) -> Table {
    for (site, counters) in relay.sites.iter().zip(relay.counters.iter()) {
        let number = |cell: &Cell<u64>| cell.get().into();
        table.row([
            site.name.as_str().into(),
            number(&counters.reads),
            number(&counters.writes),
            number(&counters.commits),
            number(&counters.errors),
            number(&counters.misjudged),
            number(&counters.discarded),
        ]);
    }
    table
}

/// `SHOW DATABASES`: the replicated one, and those that clients use now.
pub(super) fn databases(relay: &Relay, mut table: Table) -> Table {
    let clients = clients_by(relay, |session| session.startup.database.as_str().into());
    let replicated = relay.database.as_str();
    let count = |name: &str| clients.get(name).copied().unwrap_or(0);
    table.row([
        replicated.into(),
        "yes".into(),
        count(replicated).into(),
        SLOT.into(),
        relay.log.appended().borrow().0.into(),
        relay.collector.slot_retained_bytes().into(),
        relay.log.durable_len().into(),
    ]);
    for (name, count) in clients.iter().filter(|(name, _)| *name != replicated) {
        let none = || Value::Null;
        table.row([
            name.as_str().into(),
            "no".into(),
            (*count).into(),
            none(),
            none(),
            none(),
            none(),
        ]);
    }
    table
}

/// `SHOW USERS`: those that may use the admin database, and those that clients use now.
pub(super) fn users(relay: &Relay, mut table: Table) -> Table {
    let clients = clients_by(relay, |session| session.startup.user.as_str().into());
    let settings = relay.settings();
    let names: BTreeSet<&String> = settings.admins.keys().chain(clients.keys()).collect();
    for name in names {
        let access = match settings.admins.get(name) {
            Some(Access::Full) => "full",
            Some(Access::Read) => "read",
            None => "none",
        };
        let count = clients.get(name).copied().unwrap_or(0);
        table.row([name.as_str().into(), access.into(), count.into()]);
    }
    table
}

fn clients_by(
    relay: &Relay,
    name: impl Fn(&crate::relay::SessionInfo) -> String,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for session in relay.sessions.borrow().values() {
        *counts.entry(name(session)).or_default() += 1;
    }
    counts
}

/// `SHOW STATE`.
pub(super) fn state(relay: &Relay, mut table: Table) -> Table {
    let not_ready = metrics::not_ready(relay);
    let state = match relay.clients.is_closed() {
        true => "waits until the last client has left",
        false => not_ready.unwrap_or("serves clients"),
    };
    let readable = |replica: &Replica| replica.state().is_readable() && !relay.is_late(replica);
    let serving = relay.replicas.iter().filter(|replica| readable(replica)).count();
    let primary = &relay.sites.primary;
    let schema = match &*relay.catalog_failure.borrow() {
        Some(why) => format!("can't be read, so that reads run on the primary: {why}"),
        None if relay.is_catalog_unread() => "is being read after a change".to_owned(),
        None => "is known".to_owned(),
    };
    for (key, value) in [
        ("state", state.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("up_s", relay.now().as_secs().to_string()),
        ("primary", format!("{} at {}", primary.name, primary.address)),
        ("replicas_serving", format!("{serving} of {}", relay.replicas.len())),
        ("schema", schema),
    ] {
        table.row([key.into(), value.into()]);
    }
    table
}

/// `SHOW LISTS`.
pub(super) fn lists(relay: &Relay, mut table: Table) -> Table {
    let pools = relay.pools.info();
    let count = |count: fn(&crate::pool::PoolInfo) -> usize| pools.iter().map(count).sum::<usize>();
    let sessions = relay.sessions.borrow();
    let active = sessions.values().filter(|session| !session.is_waiting.get()).count();
    for (name, items) in [
        ("sites", relay.sites.iter().count()),
        ("pools", pools.len()),
        ("clients", sessions.len()),
        ("active_clients", active),
        ("unproved_clients", relay.clients.strangers()),
        ("used_servers", count(|pool| pool.used)),
        ("idle_servers", count(|pool| pool.idle)),
    ] {
        table.row([name.into(), items.into()]);
    }
    table
}

/// `SHOW LOG`.
pub(super) fn log(relay: &Relay, mut table: Table) -> Table {
    let log = &relay.log;
    table.row([
        log.first().0.into(),
        log.appended().borrow().0.into(),
        log.durable().borrow().0.into(),
        log.durable_len().into(),
        log.failed().or_else(|| log.stalled()).into(),
    ]);
    table
}

/// `SHOW MEM`.
pub(super) fn memory(relay: &Relay, mut table: Table) -> Table {
    let held = relay.held();
    let [statements, welcomes, analyses] = [held.statements, held.welcomes, held.analyses];
    let freshness = relay.freshness.borrow();
    for (name, items) in [
        ("resident_bytes", metrics::resident_bytes().into()),
        ("sessions", relay.sessions.borrow().len().into()),
        ("prepared_statements", statements.into()),
        ("analysed_statements", analyses.into()),
        ("startup_parameters", welcomes.into()),
        ("written_rows", freshness.rows().into()),
        ("writes_in_flight", freshness.unresolved().into()),
    ] {
        table.row([Value::from(name), items]);
    }
    table
}

/// `SHOW CONFIG`.
pub(super) fn config(relay: &Relay, mut table: Table) -> Table {
    for Shown { key, value, after_restart } in relay.settings().shown.iter().cloned() {
        table.row([key.into(), value.into(), after_restart.into()]);
    }
    table
}

/// `SHOW VERSION`.
pub(super) fn version(mut table: Table) -> Table {
    table.row([format!("hihooi {}", env!("CARGO_PKG_VERSION")).into()]);
    table
}

/// `SHOW HELP`.
pub(super) fn help(mut table: Table) -> Table {
    for command in COMMANDS {
        table.row([command.syntax.into(), command.help.into()]);
    }
    table
}
