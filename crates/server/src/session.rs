//! A client's session with its sockets: passes bytes to and from [`hihooi_session`], and carries out the
//! actions that it requests. Only that crate decides what a message means.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hihooi_replication::freshness::{Part, WriteId};
use hihooi_replication::items::{Granularity, Items};
use hihooi_replication::watermark::Watermark;
use hihooi_session::consistency::Consistency;
use hihooi_session::events::{
    Action, Actions, AwaitedCatalog, Counter, Env, Event, Outcome, Prepared, SchemaVersion,
};
use hihooi_session::own_settings::OwnSettings;
use hihooi_session::own_types::{Needs, Objects};
use hihooi_session::route::{Reason, Route};
use hihooi_session::session::{IdleLimits, Opened, Session};
use hihooi_session::state::MeaningfulSettings;
use hihooi_session::upstream::Upstream;
use hihooi_sql::{Analysis, SearchPath};
use hihooi_wire::backend::Report;
use postgres_protocol::password::scram_sha_256;
use tracing::{debug, warn};

use crate::backend::Backend;
use crate::client::{self, Client};
use crate::handshake::Cancel;
use crate::meters::count;
use crate::pool::{Pool, Refusal};
use crate::relay::routing::Undecided;
use crate::relay::{OwnPools, Reading, Relay, RunningOn, RunsAt, SessionInfo};
use crate::socket::{self, Stream};
use crate::startup_key::{StartupKey, Welcome};
use hihooi_session::sites::SiteId;

/// What the relay lends a session.
struct Lent<'a>(&'a Relay, &'a Clock);

impl Env for Lent<'_> {
    fn now(&self) -> Duration {
        self.1.now(self.0)
    }

    fn analyse(&self, text: &str, path: Option<&SearchPath>) -> Arc<Analysis> {
        self.0.analyse(text, path)
    }

    fn prepared(
        &self,
        query: Bytes,
        types: Bytes,
        settings: Option<MeaningfulSettings>,
    ) -> Arc<Prepared> {
        self.0.prepared(query, types, settings)
    }

    fn schema(&self) -> SchemaVersion {
        self.0.schema_version()
    }

    fn catalog_version(&self) -> u64 {
        self.0.catalog_version()
    }

    fn is_catalog_stale(&self) -> bool {
        self.0.is_catalog_stale()
    }

    fn is_catalog_unread(&self) -> bool {
        self.0.is_catalog_unread()
    }

    fn has_catalog(&self, awaited: AwaitedCatalog) -> bool {
        self.0.has_catalog(awaited)
    }

    fn configuration_version(&self) -> u64 {
        self.0.pools.configuration_version()
    }

    fn knows(&self, write: WriteId) -> bool {
        self.0.knows(write)
    }

    fn custom_settings(&self) -> Vec<Box<str>> {
        self.0.custom_settings()
    }

    fn is_in_flight(&self, items: &Items) -> bool {
        self.0.freshness.borrow().is_in_flight(items)
    }

    fn has_replicas(&self) -> bool {
        !self.0.replicas.is_empty()
    }

    fn needs(&self, statement: u64) -> Option<Needs> {
        self.0.own_types.borrow_mut().needs(statement)
    }

    fn objects(&self, site: SiteId) -> Option<Arc<Objects>> {
        self.0.objects_at(site)
    }

    fn still_serves(&self, route: &Route) -> bool {
        self.0.still_serves(route)
    }

    fn may_be_forked(&self, route: &Route, items: &Items) -> bool {
        self.0.may_be_forked(route, items)
    }

    fn is_void(&self, route: &Route) -> bool {
        self.0.is_void(route)
    }

    fn was_ended(&self, site: SiteId, pid: i32) -> bool {
        self.0.replica(site).is_some_and(|replica| replica.has_ended_session(pid))
    }

    fn measures(&self) -> bool {
        self.0.is_measured_turn()
    }

    fn describe(&self, part: Part) -> String {
        self.0.describe(part)
    }

    fn site_name(&self, site: SiteId) -> &str {
        &self.0.sites[site].name
    }
}

/// The time of what a session does without waiting: read once, when it is asked for first.
#[derive(Debug, Default)]
struct Clock(Cell<Option<Duration>>);

impl Clock {
    /// Since the relay started.
    fn now(&self, relay: &Relay) -> Duration {
        let now = self.0.get().unwrap_or_else(|| relay.now());
        self.0.set(Some(now));
        now
    }

    /// Time has passed.
    fn passes(&self) {
        self.0.set(None);
    }
}

/// A session and its sockets.
pub struct Served<S> {
    relay: Rc<Relay>,
    info: Rc<SessionInfo>,
    id: u64,
    stream: S,
    startup: Rc<StartupKey>,
    session: Session,
    actions: Actions,
    /// The connection that is parked.
    parked: Option<Box<Backend>>,
    /// The connection that was leased; its side of the session is there meanwhile.
    server: Option<Box<Backend>>,
    /// Its pools, by site, as far as it has looked for them.
    pools: OwnPools,
    runs_at: Option<RunsAt>,
    reading: Option<Reading>,
    /// What it has written and seen, if a read of it was at the level `session`.
    watermark: Option<Watermark>,
    /// What is known of a read for which no replica was fresh enough.
    undecided: Option<Box<Undecided>>,
    /// Whether its database is the replicated one.
    is_replicated: bool,
    /// The level of its last statement.
    level: Consistency,
    /// When a server got its statement, or had answered the one before.
    began: Duration,
    clock: Clock,
}

impl<S: Stream> Served<S> {
    /// The session of a client that was just welcomed.
    #[must_use]
    pub fn new(
        relay: Rc<Relay>,
        info: Rc<SessionInfo>,
        id: u64,
        mut client: Client<S>,
        welcome: &Welcome,
    ) -> Served<S> {
        let startup = info.startup.clone();
        let custom = startup.defaults.settings.iter().filter(|(name, _)| name.contains('.'));
        let role = ("role".to_owned(), welcome.role.clone());
        let off = ("standard_conforming_strings".to_owned(), "off".to_owned());
        let is_replicated = relay.is_replicated(&startup.database);
        let level = relay.settings().consistency;
        count(&relay.meters.sessions);
        let opened = Opened {
            id,
            is_replicated,
            own: OwnSettings {
                consistency: level,
                wait_ms: relay.settings().wait_ms,
                granularity: Granularity::default(),
                statement_routing: true,
                snapshot_routing: true,
            },
            untold: custom.cloned().chain([role]).collect(),
            path: welcome.path.clone(),
            isolation: welcome.isolation,
            has_plain_strings: !welcome.parameters.contains(&off),
            may_lack_events: startup.may_set("event_triggers"),
            idle_limit: welcome.idle_limit,
            configuration_version: welcome.configuration_version,
        };
        Served {
            pools: relay.sites.map(|_| None),
            session: Session::new(opened, std::mem::take(&mut client.down)),
            actions: Actions::default(),
            parked: None,
            server: None,
            runs_at: None,
            reading: None,
            watermark: None,
            undecided: None,
            is_replicated,
            level,
            began: Duration::ZERO,
            clock: Clock::default(),
            relay,
            info,
            id,
            stream: client.into_stream(),
            startup,
        }
    }

    /// Sets one of hihooi's own settings.
    ///
    /// # Errors
    /// It is unknown, or the value is bad.
    pub fn set_own(&mut self, name: &str, value: &str) -> Result<(), Report> {
        self.session.set_own(name, value)
    }

    /// What is set now is what RESET returns to.
    pub fn starts(&mut self) {
        self.session.starts();
    }

    /// Serves the client until it leaves.
    pub async fn run(&mut self) {
        let (relay, info) = (self.relay.clone(), self.info.clone());
        let place = relay.stopping.enter();
        let (is_waiting, is_killed) = (&info.is_waiting, &info.is_killed);
        if place.unless_stopped(is_waiting, is_killed, pin!(self.serve())).await.is_none() {
            if info.is_killed.get() {
                self.cancel(); // what runs is to end as well
            }
            self.step(Event::Stopped);
            self.act().await;
        }
        client::close(&mut self.stream, &mut self.session.down).await;
        debug!(session = self.id, "session ended");
        self.relay.sessions.borrow_mut().remove(&self.info.process);
    }

    async fn serve(&mut self) {
        // It has written and seen nothing yet.
        let follows = self.session.consistency() == Consistency::Session;
        self.watermark = follows.then(Watermark::default);
        self.step(Event::Client); // what came behind the start-up packet
        loop {
            self.act().await;
            if self.session.has_ended() {
                return;
            }
            self.exchange().await;
        }
    }

    /// Carries out what was asked for.
    async fn act(&mut self) {
        while let Some(action) = self.actions.pop_front() {
            if let Some(action) = self.carry_out(action) {
                // Boxed: it is rare, and every idle session would keep room for it.
                Box::pin(self.wait_for(action)).await;
            }
        }
    }

    fn now(&self) -> Duration {
        self.clock.now(&self.relay)
    }

    fn step(&mut self, event: Event<'_>) {
        self.session.step(event, &Lent(&self.relay, &self.clock), &mut self.actions);
        self.info.is_waiting.set(self.session.waits_for_client());
        self.info.state.set(self.session.activity().as_str());
        let site = self.session.runs_at();
        if site != self.runs_at.as_ref().map(RunsAt::site) {
            self.runs_at = site.map(|site| RunsAt::new(self.relay.clone(), site));
            if site.is_some() {
                self.began = self.now();
            }
        }
        self.note_reading();
    }

    /// Keeps count of what is outstanding at replicas.
    fn note_reading(&mut self) {
        let at = self.session.reads_at();
        if at == self.reading.as_ref().map(Reading::at) {
            return;
        }
        self.reading = None;
        if let Some((at, read)) = at.zip(self.session.wanted()) {
            self.reading = Some(Reading::new(self.relay.clone(), at, read.statement, self.now()));
        }
    }

    /// Moves bytes until the session has made something of them.
    async fn exchange(&mut self) {
        let idle = self.relay.idle_limits.get();
        let (limit, known) = (self.session.deadline(idle), self.session.waits_for_catalog());
        if limit.is_none() && known.is_none() {
            return poll_fn(|cx| self.poll_exchange(idle, cx)).await;
        }
        let relay = self.relay.clone();
        // Boxed: it is rare, and every idle session would keep room for it.
        let event = Box::pin(async {
            let over = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            let is_known = async {
                match known {
                    Some(awaited) => relay.until_catalog(awaited).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = poll_fn(|cx| self.poll_exchange(idle, cx)) => None,
                () = over => Some(Event::Deadline),
                () = is_known => Some(Event::Known),
            }
        });
        if let Some(event) = event.await {
            self.step(event);
        }
    }

    /// `Ready` also if other limits than `idle` are in force.
    fn poll_exchange(&mut self, idle: IdleLimits, cx: &mut Context<'_>) -> Poll<()> {
        if self.relay.idle_limits.get() != idle {
            return Poll::Ready(());
        }
        self.clock.passes();
        if self.poll_to_client(cx) {
            self.step(Event::Client);
            return Poll::Ready(());
        }
        let steps = self.poll_to_server(cx) || self.poll_from_server(cx) || self.poll_silence();
        if steps || self.poll_from_client(cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Writes what the client is to be told, as far as its socket takes it. Whether the client turned out to be gone.
    fn poll_to_client(&mut self, cx: &mut Context<'_>) -> bool {
        let (tells, waits) = (self.session.tells_client(), self.session.waits_for_client());
        let down = &mut self.session.down;
        if down.gone {
            return false;
        }
        while client::poll_write(&mut self.stream, down, tells, cx).is_ready() {}
        if waits {
            client::shrink(&mut down.settled);
            client::shrink(&mut down.output);
        }
        down.gone
    }

    /// Writes what the server is to be sent, as far as its socket takes it. Whether there was a step.
    fn poll_to_server(&mut self, cx: &mut Context<'_>) -> bool {
        let (Some(server), Some(output)) = (&mut self.server, self.session.to_server()) else {
            return false;
        };
        let is_news = !output.is_empty();
        while !output.is_empty() {
            match socket::poll_write(&mut server.stream, cx, output) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.step(Event::Lost(error.to_string()));
                    return true;
                }
                Poll::Pending => return false,
            }
        }
        // A connection that broke is noticed by whoever reads from it.
        let _ = socket::poll_flush(&mut server.stream, cx);
        let wants_sent = is_news && self.session.wants_sent();
        if wants_sent {
            self.step(Event::Sent);
        }
        wants_sent
    }

    /// Whether there was a step.
    fn poll_from_server(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.session.wants_server() {
            return false;
        }
        let Some(mut server) = self.server.take() else { return false };
        let stepped = socket::poll_read(&mut server.stream, cx, |read| {
            self.step(match read {
                Ok([]) => Event::Lost(io::Error::from(io::ErrorKind::UnexpectedEof).to_string()),
                Ok(bytes) => Event::Server(bytes),
                Err(error) => Event::Lost(error.to_string()),
            });
        });
        self.server = Some(server);
        stepped.is_ready()
    }

    /// Gives up a server from which nothing comes, if its site is known to be silent. Whether it was.
    fn poll_silence(&mut self) -> bool {
        let is_silent = self.server.as_ref().is_some_and(|server| server.pool.is_silent());
        if is_silent {
            self.step(Event::Lost("the server does not answer".to_owned()));
        }
        is_silent
    }

    /// Whether there was a step.
    fn poll_from_client(&mut self, cx: &mut Context<'_>) -> bool {
        let came = self.session.wants_client()
            && client::poll_read(&mut self.stream, &mut self.session.down, cx).is_ready();
        if came {
            self.step(Event::Client);
        }
        came
    }

    /// Whether the client of a read that waits for a connection has left. Keeps what it sends meanwhile.
    fn poll_leaving(&mut self, cx: &mut Context<'_>) -> bool {
        let Served { session, stream, .. } = self;
        while session.wants_client() && client::poll_read(stream, &mut session.down, cx).is_ready()
        {
        }
        session.is_abandoned()
    }

    /// Carries out what has to be waited for.
    async fn wait_for(&mut self, action: Action) {
        if !matches!(action, Action::End { .. }) {
            // What was answered before is not to wait, too.
            poll_fn(|cx| Poll::Ready(self.poll_to_client(cx))).await;
        }
        match action {
            Action::Lease(site) => {
                let leased = self.lease(site).await;
                self.step(leased);
            }
            Action::Route => {
                let undecided = self.undecided.take();
                if let Some((read, undecided)) = self.session.wanted().zip(undecided) {
                    let waits = Waits::new(&self.info, Instant::now(), None);
                    let route = self.relay.route_later(read, *undecided, &self.pools).await;
                    self.clock.passes();
                    drop(waits);
                    self.step(Event::Routed(route));
                }
            }
            Action::Hash(passwords) => {
                // It takes milliseconds by design: not on the thread that serves everybody.
                let hash = move || {
                    passwords.iter().map(|password| scram_sha_256(password.as_bytes())).collect()
                };
                let verifiers = tokio::task::spawn_blocking(hash).await;
                self.clock.passes();
                self.step(Event::Hashed(verifiers.ok()));
            }
            // It stands in front of the answer.
            Action::End { write, .. } => {
                self.relay.show_everywhere(write).await;
                self.clock.passes();
            }
            _ => {}
        }
    }

    /// Carries an action out. Gives back one that has to be [waited for](Served::wait_for), if need be its rest.
    fn carry_out(&mut self, action: Action) -> Option<Action> {
        match action {
            Action::Release(up) => {
                if let Some(server) = self.take_back(up) {
                    self.relay.pools.release(server);
                }
            }
            Action::Discard(up) => {
                if let Some(server) = self.take_back(up) {
                    self.relay.pools.discard(server);
                }
            }
            Action::Park => {
                self.parked = self.server.take();
                *self.info.running.borrow_mut() = None;
            }
            Action::Resume => {
                self.server = self.parked.take();
                if let Some(server) = &self.server {
                    self.runs_on(server);
                }
            }
            Action::Begin { write, items, may_define } => {
                self.relay.freshness.borrow_mut().begin_as(write, items, may_define);
            }
            Action::Lease(site) => match self.lease_at_once(site) {
                Some(leased) => self.step(leased),
                None => return Some(action),
            },
            Action::Route => match self.route_at_once() {
                Some(route) => self.step(Event::Routed(route)),
                None => return Some(action),
            },
            Action::Hash(_) => return Some(action),
            Action::End { write, outcome, everywhere } => {
                if outcome != Outcome::Nothing {
                    self.wrote(write);
                }
                self.relay.end_write(write, outcome);
                let shows = everywhere && outcome != Outcome::Nothing;
                return (shows && !self.relay.replicas.is_empty()).then_some(action);
            }
            Action::Doubt(write) => {
                self.wrote(write);
                if let Some(server) = &self.server {
                    self.relay.doubt(write, server.identity.clone());
                }
            }
            Action::Cancel => self.cancel(),
            Action::CloseUnusedDatabases => {
                let sessions = self.relay.sessions.borrow();
                let used = sessions.values().map(|info| info.startup.database.as_str()).collect();
                self.relay.pools.close_unused_databases(&used);
            }
            Action::Note(placed) => {
                if placed.reason == Reason::NotFresh {
                    self.relay.want_catalog();
                }
                let wanted = self.session.wanted().map(|read| read.consistency);
                self.level = wanted.unwrap_or(self.session.consistency());
                self.info.last_route.set(placed);
            }
            Action::Count(site, counter) => {
                self.count(site, counter);
                if counter == Counter::Read {
                    self.saw(site);
                }
            }
            Action::Took(statement, duration) => {
                self.relay.costs.borrow_mut().took(statement, duration);
            }
            Action::OwnTypes(statement, needs) => {
                self.relay.own_types.borrow_mut().seen(statement, needs);
            }
            Action::Answered(SiteId::Replica(number), statement, after) => {
                self.relay.answered(number, statement, after, self.now());
            }
            Action::Failed(SiteId::Replica(number)) => {
                self.relay.balance.borrow_mut().failed(number, self.relay.now());
            }
            Action::Answered(SiteId::Primary, ..) | Action::Failed(SiteId::Primary) => {}
            Action::Close => {}
        }
        None
    }

    fn wrote(&mut self, write: WriteId) {
        if let Some(watermark) = &mut self.watermark {
            watermark.wrote(write, &self.relay.freshness.borrow());
        }
    }

    /// A read was answered there: what it showed is no more than what may be seen there by now.
    fn saw(&mut self, site: SiteId) {
        let Some(watermark) = &mut self.watermark else { return };
        match self.relay.replica(site) {
            Some(replica) => watermark.saw(replica.sent()),
            None => watermark.saw_primary(&self.relay.freshness.borrow()),
        }
    }

    fn pool(&mut self, site: SiteId) -> &Rc<Pool> {
        let (relay, startup) = (&self.relay, &self.startup);
        self.pools[site].get_or_insert_with(|| relay.pools.pool(site, startup))
    }

    /// A route for the session's read, unless it may have to wait.
    fn route_at_once(&mut self) -> Option<Route> {
        // A session's first read already avoids full pools.
        for number in 0..self.pools.replicas.len() {
            self.pool(SiteId::Replica(number));
        }
        let (read, now) = (self.session.wanted()?, self.clock.now(&self.relay));
        let route = self.relay.route_at_once(&read, &mut self.watermark, &self.pools, now);
        route.map_err(|undecided| self.undecided = Some(Box::new(undecided))).ok()
    }

    /// A connection, if one is idle that fits.
    fn lease_at_once(&mut self, site: SiteId) -> Option<Event<'static>> {
        let pool = self.pool(site).clone();
        let (relay, settings) = (&self.relay, self.session.settings());
        let server = relay.pools.take_at_once(&pool, &self.startup, settings, self.id)?;
        relay.meters.sites[site].leased(Duration::ZERO);
        Some(self.leased(&pool, server))
    }

    fn leased(&mut self, pool: &Pool, mut server: Box<Backend>) -> Event<'static> {
        pool.refusals.borrow_mut().worked(self.now());
        let up = server.lend();
        self.runs_on(&server);
        self.server = Some(server);
        Event::Leased(up)
    }

    async fn lease(&mut self, site: SiteId) -> Event<'static> {
        let pool = self.pool(site).clone();
        let (relay, info, startup) = (self.relay.clone(), self.info.clone(), self.startup.clone());
        let settings = self.session.settings().clone();
        let meters = &relay.meters.sites[site];
        let began = Instant::now();
        let waits = (meters.waits(), Waits::new(&info, began, Some(site)));
        let mut acquired = pin!(relay.pools.acquire(&pool, &startup, &settings, self.id));
        let acquired = poll_fn(|cx| match acquired.as_mut().poll(cx) {
            Poll::Pending if self.poll_leaving(cx) => Poll::Ready(Err(Refusal::Left)),
            polled => polled,
        })
        .await;
        drop(waits);
        self.clock.passes();
        meters.leased(began.elapsed());
        match acquired {
            Ok(server) => self.leased(&pool, server),
            Err(refusal) => {
                if let SiteId::Replica(number) = site {
                    self.note_refused(number, &pool, &refusal);
                    self.warn_refused(site, &refusal);
                }
                Event::Refused(refusal.report(&self.relay.sites[site].name, &self.startup))
            }
        }
    }

    /// A server that refuses a role may take others; one that can't be reached takes none.
    fn note_refused(&self, number: usize, pool: &Pool, refusal: &Refusal) {
        let (mut balance, now) = (self.relay.balance.borrow_mut(), self.relay.now());
        match refusal {
            Refusal::Server(_) => pool.refusals.borrow_mut().failed(now, balance.jitter()),
            Refusal::Unreachable(_) => balance.failed(number, now),
            Refusal::Full { .. } | Refusal::NoRoom { .. } | Refusal::Left => {}
        }
    }

    fn take_back(&mut self, up: Box<Upstream>) -> Option<Box<Backend>> {
        let mut server = self.server.take()?;
        server.up = Some(up);
        server.last_session = self.id;
        *self.info.running.borrow_mut() = None;
        Some(server)
    }

    fn runs_on(&self, server: &Backend) {
        *self.info.running.borrow_mut() = Some(RunningOn {
            site: server.site,
            identity: server.identity.clone(),
            cancels: server.cancels.clone(),
        });
    }

    fn cancel(&self) {
        if let Some(running) = self.info.running.borrow().clone() {
            let relay = self.relay.clone();
            let cancel = Cancel::of(running);
            tokio::task::spawn_local(async move { cancel.send(&relay).await });
        }
    }

    fn count(&mut self, site: SiteId, counter: Counter) {
        if matches!(counter, Counter::Read | Counter::Write) {
            let now = self.now();
            let reason = self.info.last_route.get().reason;
            let took = now.saturating_sub(self.began);
            self.relay.meters.sites[site].ran(self.is_replicated, reason, self.level, took);
            self.began = now; // of the next one of a pipeline
        }
        let counters = &self.relay.counters[site];
        count(match counter {
            Counter::Read => &counters.reads,
            Counter::Write => &counters.writes,
            Counter::Error => &counters.errors,
            Counter::Discarded => &counters.discarded,
            Counter::Misjudged => {
                warn!("a write was taken for a read; the primary runs it");
                &counters.misjudged
            }
        });
    }

    fn warn_refused(&self, site: SiteId, refusal: &Refusal) {
        let is_silent = self.relay.replica(site).is_some_and(|replica| replica.is_silent());
        if is_silent || matches!(refusal, Refusal::Left) {
            return; // told once, when it was found; or nothing to tell
        }
        let report = refusal.report(&self.relay.sites[site].name, &self.startup);
        self.relay.pools.tell_refusal(site, &report.message);
    }
}

/// Shows a session as waiting.
struct Waits<'a>(&'a SessionInfo);

impl Waits<'_> {
    /// It waits for a connection to that site, if one is chosen, else for a replica.
    fn new(info: &SessionInfo, since: Instant, site: Option<SiteId>) -> Waits<'_> {
        info.waits.set(Some((since, site)));
        Waits(info)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waits.set(None);
    }
}
