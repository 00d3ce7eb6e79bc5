//! Pools of server connections, with a maximum per user, database and site (I8). A session holds a connection
//! for a transaction, or for as long as its state requires it.
//!
//! (This file, `backend` and `room` import each other: a pool holds connections, a connection knows the pool to
//! which it returns, and pools that wait for a place at a site are in the site's queue.)

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ahash::AHashMap;
use hihooi_postgres::cluster::fence::Fence;
use hihooi_postgres::connection::{self, Connection, Login};
use hihooi_postgres::login::Secret;
use hihooi_postgres::site::{Replica, Role, Site};
use hihooi_wire::backend::{ErrorFields, Report};
use tracing::{debug, warn};

use crate::backend::Backend;
use crate::configuration::{Configurations, Given};
use crate::defaults::{Asked, Defaults};
use crate::permits::{Permit, Permits};
use crate::room::{self, Room};
use crate::socket;
use crate::startup_key::StartupKey;
use hihooi_session::performance::Outlier;
use hihooi_session::sites::{PerSite, SiteId};
use hihooi_session::state::CarriedSettings;

/// Connections that are opened until what the role starts with has stayed the same meanwhile.
const TRIES: usize = 5;
/// SQLSTATE of a server, a role or a database that takes no more connections.
const TOO_MANY: &str = "53300";
/// Then so many idle connections are closed, and it is tried again after this pause until the client has
/// waited for long enough.
const CLOSED_MAX: usize = 3;
const ROOM_PAUSE: Duration = Duration::from_millis(50);
/// After a cancel request, so long at most a connection waits for it to arrive.
const CANCEL_MS_MAX: u64 = 2_000;
/// Reads may meet the same refusal thousands of times a second; the log tells it this often.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Why there is no connection to a site that doesn't answer.
const SILENT: &str = "it does not answer";

/// Why no connection could be had.
#[derive(Debug)]
pub enum Refusal {
    /// The server's own error at start-up.
    Server(Box<ErrorFields>),
    /// The site can't be reached.
    Unreachable(String),
    /// All connections were busy for as long as a client may wait.
    Full {
        /// Connections in the pool.
        size: usize,
        /// How long the client waited.
        waited: Duration,
    },
    /// So were all that the pools together may have at the site.
    NoRoom {
        /// How many they may have.
        bound: usize,
        /// How long the client waited.
        waited: Duration,
    },
    /// The client has left meanwhile.
    Left,
}

impl Refusal {
    /// What a client is told, given the site's name.
    #[must_use]
    pub fn report(&self, site: &str, key: &StartupKey) -> Report {
        match self {
            Refusal::Server(fields) => {
                let code = if fields.code() == TOO_MANY { TOO_MANY } else { "08006" };
                Report::error(code, format!("{site} refused a connection: {fields}"))
            }
            Refusal::Unreachable(why) => Report::error("57P03", format!("{site} is not available"))
                .detail(why.clone())
                .hint("Retry later; SHOW SERVERS in database hihooi shows the state."),
            Refusal::Full { size, waited } => Report::error(
                "53300",
                format!(
                    "all {size} connections of user \"{}\" to database \"{}\" at {site} are busy",
                    key.user, key.database
                ),
            )
            .detail(format!("Waited {} ms for one.", waited.as_millis()))
            .hint("Raise pool.size or pool.wait_ms_max, or end idle transactions."),
            Refusal::NoRoom { bound, waited } => Report::error(
                "53300",
                format!("all {bound} connections that hihooi may have at {site} are busy"),
            )
            .detail(format!("Waited {} ms for one.", waited.as_millis()))
            .hint("Raise max_connections there or pool.wait_ms_max, or end idle transactions."),
            Refusal::Left => Report::error("08006", "the client has left"),
        }
    }
}

#[derive(PartialEq, Eq, Hash, Clone, Debug)]
pub(crate) struct PoolKey {
    pub(crate) site: SiteId,
    pub(crate) user: String,
    pub(crate) database: String,
}

/// The connections of one user to one database at one site.
#[derive(Debug)]
pub struct Pool {
    pub(crate) key: PoolKey,
    /// The site, if it is a replica.
    replica: Option<Arc<Replica>>,
    /// To use one of its connections.
    pub(crate) permits: Rc<Permits>,
    #[expect(clippy::vec_box, reason = "it changes hands with every transaction and is large")]
    pub(crate) idle: RefCell<Vec<Box<Backend>>>,
    /// Whether the server refuses the role's connections.
    pub(crate) refusals: RefCell<Outlier>,
}

impl Pool {
    fn take_idle(
        &self,
        startup: &Rc<StartupKey>,
        settings: &Arc<CarriedSettings>,
        session: u64,
    ) -> Option<Box<Backend>> {
        let mut idle = self.idle.borrow_mut();
        let mut best: Option<(usize, u8)> = None;
        for (index, backend) in idle.iter().enumerate().rev() {
            let fit = fit(backend, startup, settings, session);
            if fit > best.map_or(0, |(_, fit)| fit) {
                best = Some((index, fit));
            }
            if fit == FIT_BEST {
                break;
            }
        }
        best.map(|(index, _)| idle.swap_remove(index))
    }

    /// The site.
    #[must_use]
    pub fn site(&self) -> SiteId {
        self.key.site
    }

    /// Whether the site is a replica that doesn't answer. Sessions that wait for it are woken then
    /// to look here.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.is_silent())
    }

    /// Works with the site unless it is silent. The caller drops the work when it becomes so. (Pinned
    /// by the caller: by value, every session would keep room for it twice.)
    async fn unless_silent<T>(
        &self,
        mut work: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
    ) -> Result<T, Refusal> {
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Pending if self.is_silent() => {
                Poll::Ready(Err(Refusal::Unreachable(SILENT.to_owned())))
            }
            polled => polled,
        })
        .await
    }
}

/// The session itself used it last, and it has its settings.
const FIT_BEST: u8 = 3;

/// How well a connection fits a session; 0 is not at all.
fn fit(
    backend: &Backend,
    startup: &Rc<StartupKey>,
    settings: &Arc<CarriedSettings>,
    session: u64,
) -> u8 {
    if !Rc::ptr_eq(&backend.startup, startup) && backend.startup != *startup {
        return 0;
    }
    let Some(up) = &backend.up else { return 0 };
    if Arc::ptr_eq(&up.settings, settings) || up.settings == *settings {
        return if backend.last_session == session { FIT_BEST } else { 2 };
    }
    u8::from(up.settings.can_become(settings))
}

/// Bounds of the pools.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections per user, database and site.
    pub size: usize,
    /// How long a client waits for one.
    pub wait: Duration,
}

/// What `SHOW POOLS` tells of one.
#[derive(Debug, Clone)]
pub struct PoolInfo {
    /// The site.
    pub site: SiteId,
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// Connections that nobody uses now.
    pub idle: usize,
    /// Connections that a session uses or opens now.
    pub used: usize,
    /// Connections that it may have.
    pub size: usize,
}

/// All pools of the relay.
pub struct Pools {
    sites: PerSite<Site>,
    replicas: Vec<Arc<Replica>>,
    bounds: Cell<Bounds>,
    fence: Fence,
    asked: PerSite<Asked>,
    configurations: Configurations,
    pub(crate) pools: RefCell<AHashMap<PoolKey, Rc<Pool>>>,
    /// By site, the places for the connections of all pools.
    pub(crate) rooms: PerSite<Rc<Room>>,
    /// By role. Only roles that exist are here: each has shown its password.
    secrets: RefCell<AHashMap<String, Arc<Secret>>>,
    /// By site, which refusal the log told last, and when.
    told: RefCell<PerSite<Option<(String, Instant)>>>,
    /// Whether the primary doesn't answer.
    pub is_primary_silent: Cell<bool>,
}

impl Pools {
    /// Empty pools for these sites, which have the database; all but the first are the replicas. A site that answers
    /// nothing for as long as `silence` is silent.
    #[must_use]
    pub fn new(
        sites: PerSite<Site>,
        replicas: &[Arc<Replica>],
        database: &str,
        bounds: Bounds,
        silence: Duration,
        fence: Fence,
    ) -> Pools {
        let asked = |site: &Site| {
            let login = Login::new(site.address.clone(), &site.user, database, "hihooi defaults");
            Asked::new(login, silence)
        };
        let asked = sites.map(asked);
        let replicas = replicas.to_vec();
        let configurations = Configurations::new(&sites);
        let rooms = sites.map(|_| Room::new());
        let told = RefCell::new(sites.map(|_| None));
        let (pools, secrets) = Default::default();
        let bounds = Cell::new(bounds);
        let is_primary_silent = Cell::new(false);
        Pools {
            sites,
            replicas,
            bounds,
            fence,
            asked,
            configurations,
            pools,
            rooms,
            secrets,
            told,
            is_primary_silent,
        }
    }

    /// A site, to be asked what sessions start with.
    #[must_use]
    pub fn asked(&self, site: SiteId) -> &Asked {
        &self.asked[site]
    }

    /// Asks a site for its configuration, and closes connections that are to begin otherwise now.
    ///
    /// # Errors
    /// The site can't be asked.
    pub async fn read_configuration(&self, site: SiteId) -> connection::Result<()> {
        self.rooms[site].set_server(self.asked(site).connections().await?);
        for site in self.configurations.set(site, self.asked(site).configuration().await?) {
            debug!(site = self.sites[site].name, "its connections begin with other settings");
            self.close_idle(site);
        }
        Ok(())
    }

    /// How often the primary's configuration was found changed.
    #[must_use]
    pub fn configuration_version(&self) -> u64 {
        self.configurations.version()
    }

    /// Tells the log why a read can't run at a replica, unless it has just said so.
    pub fn tell_refusal(&self, site: SiteId, why: &str) {
        let told = &mut self.told.borrow_mut()[site];
        if told.as_ref().is_some_and(|(last, at)| last == why && at.elapsed() < TELL_AGAIN) {
            return;
        }
        *told = Some((why.to_owned(), Instant::now()));
        warn!(why, "reads go elsewhere");
    }

    /// The pool of a session at a site. A session keeps it, so that leasing looks nothing up.
    #[must_use]
    pub fn pool(&self, site: SiteId, startup: &StartupKey) -> Rc<Pool> {
        let key = PoolKey { site, user: startup.user.clone(), database: startup.database.clone() };
        let new = || {
            let permits = Permits::new(self.bounds.get().size);
            let replica = match site {
                SiteId::Primary => None,
                SiteId::Replica(number) => Some(self.replicas[number].clone()),
            };
            let (idle, refusals) = Default::default();
            Rc::new(Pool { key: key.clone(), replica, permits, idle, refusals })
        };
        self.pools.borrow_mut().entry(key.clone()).or_insert_with(new).clone()
    }

    /// A connection of the pool, opened like the client's session, preferably one with the same
    /// settings and last used by the same session.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn acquire(
        &self,
        pool: &Rc<Pool>,
        startup: &Rc<StartupKey>,
        settings: &Arc<CarriedSettings>,
        session: u64,
    ) -> Result<Box<Backend>, Refusal> {
        let taken = pin!(self.take_or_open(pool, startup, settings, session));
        pool.unless_silent(taken).await
    }

    /// The same if one is idle that fits, so that nothing has to be waited for.
    pub fn take_at_once(
        &self,
        pool: &Pool,
        startup: &Rc<StartupKey>,
        settings: &Arc<CarriedSettings>,
        session: u64,
    ) -> Option<Box<Backend>> {
        let permit = pool.permits.take()?;
        let mut backend = self.take_idle(pool, startup, settings, session)?;
        backend.permit = Some(permit);
        Some(backend)
    }

    async fn take_or_open(
        &self,
        pool: &Rc<Pool>,
        startup: &Rc<StartupKey>,
        settings: &Arc<CarriedSettings>,
        session: u64,
    ) -> Result<Box<Backend>, Refusal> {
        let free = pool.permits.take();
        let began = free.is_none().then(Instant::now);
        let permit = match free {
            Some(permit) => permit,
            None => self.wait_for_permit(pool).await?,
        };
        if let Some(mut backend) = self.take_idle(pool, startup, settings, session) {
            backend.permit = Some(permit);
            return Ok(backend);
        }
        let began = began.unwrap_or_else(Instant::now);
        // Boxed: it is rare, and every idle session would keep room for it.
        let opened = Box::pin(self.open(pool, startup, settings, session, began)).await;
        match opened {
            Ok(mut backend) => {
                backend.permit = Some(permit);
                Ok(backend)
            }
            Err(refusal) => {
                drop(permit);
                self.forget_unused(pool);
                Err(refusal)
            }
        }
    }

    fn take_idle(
        &self,
        pool: &Pool,
        startup: &Rc<StartupKey>,
        settings: &Arc<CarriedSettings>,
        session: u64,
    ) -> Option<Box<Backend>> {
        while let Some(mut backend) = pool.take_idle(startup, settings, session) {
            if is_alive(&mut backend) {
                return Some(backend);
            }
            self.forget(&backend);
        }
        None
    }

    /// A pool that nobody uses is no pool: names that no server knows must not pile up (I8).
    fn forget_unused(&self, pool: &Rc<Pool>) {
        // Ours, the map's, and at most the session's that is being refused.
        let others = Rc::strong_count(pool) > 3;
        if !others && pool.permits.used() == 0 && pool.idle.borrow().is_empty() {
            self.pools.borrow_mut().remove(&pool.key);
        }
    }

    async fn wait_for_permit(&self, pool: &Pool) -> Result<Permit, Refusal> {
        let waited = self.bounds.get().wait;
        let permit = tokio::time::timeout(waited, pool.permits.wait()).await;
        permit.map_err(|_| Refusal::Full { size: pool.permits.size(), waited })
    }

    /// Opens a connection, if need be after waiting for a place at the site until the client has waited since
    /// `began` for long enough. The pool may have one for it by then.
    async fn open(
        &self,
        pool: &Rc<Pool>,
        startup: &Rc<StartupKey>,
        settings: &Arc<CarriedSettings>,
        session: u64,
        began: Instant,
    ) -> Result<Box<Backend>, Refusal> {
        self.make_room(pool);
        let wait = self.bounds.get().wait;
        let site = pool.key.site;
        for known in [SiteId::Primary, site] {
            if !self.configurations.knows(known) {
                self.read_configuration(known).await.map_err(refusal)?;
            }
        }
        let (room, mut is_again) = (&self.rooms[site], false);
        let place = loop {
            if let Some(place) = room.take() {
                break place;
            }
            self.close_longest_idle(pool);
            let given = room.wait(pool, is_again);
            match tokio::time::timeout(wait.saturating_sub(began.elapsed()), given).await {
                Ok(Ok(room::Turn::Place(place))) => break place,
                Ok(_) => match self.take_idle(pool, startup, settings, session) {
                    Some(backend) => return Ok(backend),
                    None => is_again = true,
                },
                Err(_) => {
                    return Err(Refusal::NoRoom { bound: room.bound(), waited: began.elapsed() });
                }
            }
        };
        let given = self.configurations.given(site);
        let mut closed = 0;
        let mut connection = loop {
            match self.open_as(site, startup, &given).await {
                // Others took what the server, the role or the database has.
                Err(error)
                    if error.code() == Some(TOO_MANY)
                        && began.elapsed() < wait
                        && !startup.defaults.keeps_out() =>
                {
                    closed += usize::from(closed < CLOSED_MAX && self.close_longest_idle(pool));
                    tokio::time::sleep(ROOM_PAUSE).await;
                }
                opened => break opened.map_err(refusal)?,
            }
        };
        let site = &self.sites[site].name;
        let recorded = self.fence.record(site, &mut connection).await;
        let record = recorded.map_err(|error| Refusal::Unreachable(error.to_string()))?;
        debug!(%site, pid = record.pid, "server connection opened");
        let parts = connection.into_parts();
        Ok(Box::new(Backend::new(pool.clone(), startup.clone(), given, parts, record, place)))
    }

    /// Closes idle connections that were opened otherwise as far as the pool is beyond its bound.
    fn make_room(&self, pool: &Pool) {
        let mut idle = pool.idle.borrow_mut();
        let (held, size) = (pool.permits.used() + idle.len(), pool.permits.size());
        let surplus = held.saturating_sub(size).min(idle.len());
        let surplus: Vec<_> = idle.drain(..surplus).collect();
        drop(idle);
        surplus.into_iter().for_each(|backend| self.discard(backend));
    }

    /// Other bounds from now on, also for those who use or wait for connections.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.bounds.set(bounds);
        let pools: Vec<_> = self.pools.borrow().values().cloned().collect();
        for pool in pools {
            pool.permits.set_size(bounds.size);
            self.make_room(&pool);
        }
    }

    /// A connection that begins like the client's session did, whatever role and database have by now.
    async fn open_as(
        &self,
        site: SiteId,
        startup: &StartupKey,
        given: &Given,
    ) -> connection::Result<Connection> {
        let (asked, StartupKey { user, database, defaults, .. }) = (self.asked(site), startup);
        let mut found = asked.defaults(user, database).await?;
        for _ in 0..TRIES {
            // What the role or the database has counts more than what the server has.
            let of_role = |name: &String| defaults.settings.iter().any(|(own, _)| own == name);
            let mut given: Vec<_> =
                given.iter().filter(|(name, _)| !of_role(name)).cloned().collect();
            given.extend(asked.differing(defaults, &found).await?);
            let login = self.login(site, startup, &given);
            let connection = Connection::open(&login).await?;
            let found_then = std::mem::replace(&mut found, asked.defaults(user, database).await?);
            if found == found_then {
                if self.is_gone(site, startup, found).await? {
                    connection.close().await;
                    return Err(no_longer(user));
                }
                return Ok(connection);
            }
            connection.close().await; // nobody knows what it began with
        }
        Err(connection::Error::Protocol(format!("what \"{user}\" starts with keeps changing")))
    }

    /// Whether the session's role or database is another one by now, of the same name, whose rights the session must not get.
    /// Replicas have OIDs of their own: what counts there are those of the primary, which they follow. (While it can't be
    /// asked, nobody changes roles.)
    async fn is_gone(
        &self,
        site: SiteId,
        startup: &StartupKey,
        found: Defaults,
    ) -> connection::Result<bool> {
        let StartupKey { user, database, defaults, .. } = startup;
        let now = match site {
            SiteId::Primary => found,
            _ if self.is_primary_silent.get() => return Ok(false),
            _ => match self.asked(SiteId::Primary).defaults(user, database).await {
                Ok(now) => now,
                Err(connection::Error::Lost { .. }) => return Ok(false),
                Err(error) => return Err(error),
            },
        };
        Ok(defaults.is_gone(&now))
    }

    fn login(&self, site: SiteId, startup: &StartupKey, given: &[(String, String)]) -> Login {
        let at = &self.sites[site];
        let mut parameters = startup.parameters.clone();
        for (name, value) in given {
            // In front of the client's own, which count more.
            add_option(&mut parameters, &option(name, value), true);
        }
        if at.role != Role::Primary {
            add_option(&mut parameters, "-c default_transaction_read_only=on", false);
        }
        Login {
            address: at.address.clone(),
            user: startup.user.clone(),
            database: startup.database.clone(),
            parameters,
            secret: self.secrets.borrow().get(&startup.user).cloned(),
            is_own: false,
        }
    }

    /// Remembers what proves a role at servers that ask for a password: what its last client showed.
    pub fn know(&self, role: &str, secret: Secret) {
        self.secrets.borrow_mut().insert(role.to_owned(), Arc::new(secret));
    }

    /// Gives a connection back; it must be clean. It is closed if it is not.
    pub fn release(self: &Rc<Self>, mut backend: Box<Backend>) {
        let is_current = self.configurations.is_current(backend.site, &backend.given);
        let may_stay = self.rooms[backend.site].may_stay(&backend.pool);
        let is_clean = backend.up.as_ref().is_some_and(|up| up.is_clean());
        if !is_clean || !is_current || !may_stay {
            self.discard(backend);
        } else if backend.cancels.get() > 0 {
            let pools = self.clone();
            tokio::task::spawn_local(async move { pools.release_after_cancel(backend).await });
        } else {
            let permit = backend.permit.take();
            backend.idle_since = tokio::time::Instant::now();
            let pool = backend.pool.clone();
            pool.idle.borrow_mut().push(backend);
            drop(permit); // after the connection is there for whoever waits
            self.rooms[pool.site()].tell_idle(&pool);
        }
    }

    async fn release_after_cancel(self: Rc<Self>, backend: Box<Backend>) {
        let limit = tokio::time::Instant::now() + Duration::from_millis(CANCEL_MS_MAX);
        while backend.cancels.get() > 0 && tokio::time::Instant::now() < limit {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if backend.cancels.get() > 0 {
            self.discard(backend);
        } else {
            self.release(backend);
        }
    }

    /// Closes a connection.
    pub fn discard(&self, mut backend: Box<Backend>) {
        backend.permit = None;
        if backend.pool.is_silent() {
            backend.place = None; // else its place is free when the server has ended it
        }
        let fence = self.fence.clone();
        tokio::task::spawn_local(async move {
            // Its record stays in the log until the backend is known to be gone: it may still
            // wait for a lock and then commit.
            let record = backend.identity.record.clone();
            if backend.end().await {
                fence.forget(&record);
            }
        });
    }

    fn forget(&self, backend: &Backend) {
        self.fence.forget(&backend.identity.record);
    }

    /// Whether a read would have to wait until another gives its connection back.
    #[must_use]
    pub fn is_full(&self, pool: &Pool) -> bool {
        let has_room = || !pool.idle.borrow().is_empty() || self.rooms[pool.site()].has_place();
        pool.permits.free() == 0 || !has_room()
    }

    /// Closes idle connections to databases in which there are no sessions, so that DROP DATABASE can succeed.
    pub fn close_unused_databases(&self, used: &HashSet<&str>) {
        self.close_idle_of(|key| !used.contains(&*key.database));
    }

    /// Closes idle connections to a site that doesn't answer: they may never work again.
    pub fn close_idle(&self, site: SiteId) {
        self.close_idle_of(|key| key.site == site);
    }

    fn close_idle_of(&self, closes: impl Fn(&PoolKey) -> bool) {
        let mut closing = Vec::new();
        for pool in self.pools.borrow().values().filter(|pool| closes(&pool.key)) {
            closing.append(&mut pool.idle.borrow_mut());
        }
        closing.into_iter().for_each(|backend| self.discard(backend));
    }

    /// What the pools hold now.
    #[must_use]
    pub fn info(&self) -> Vec<PoolInfo> {
        let pools = self.pools.borrow();
        let info = |pool: &Rc<Pool>| PoolInfo {
            site: pool.key.site,
            user: pool.key.user.clone(),
            database: pool.key.database.clone(),
            idle: pool.idle.borrow().len(),
            used: pool.permits.used(),
            size: pool.permits.size(),
        };
        pools.values().map(info).collect()
    }
}

/// Adds to the command-line options that the client itself may have sent, in front or behind.
fn add_option(parameters: &mut Vec<(String, String)>, option: &str, in_front: bool) {
    match parameters.iter_mut().find(|(name, _)| name == "options") {
        Some((_, options)) if in_front => *options = format!("{option} {options}"),
        Some((_, options)) => *options = format!("{options} {option}"),
        None => parameters.push(("options".to_owned(), option.to_owned())),
    }
}

/// A setting as a command-line option, in which a backslash makes spaces a part of a word (manual,
/// protocol, "Message Formats", StartupMessage).
fn option(name: &str, value: &str) -> String {
    let mut option = String::from("-c ");
    for letter in name.chars().chain(['=']).chain(value.chars()) {
        if letter.is_ascii_whitespace() || matches!(letter, '\\' | '\u{b}') {
            option.push('\\');
        }
        option.push(letter);
    }
    option
}

/// As a server answers who logs in as a role that is no more.
fn no_longer(user: &str) -> connection::Error {
    let message = format!(
        "the role \"{user}\" of this session, or its database, has been dropped or renamed"
    );
    let fields = [(b'S', "FATAL"), (b'V', "FATAL"), (b'C', "28000"), (b'M', &message)];
    let fields = fields.map(|(code, text)| (code, text.to_owned())).into();
    connection::Error::Server(Box::new(ErrorFields { fields }))
}

fn refusal(error: connection::Error) -> Refusal {
    match error {
        connection::Error::Server(fields) => Refusal::Server(fields),
        other => Refusal::Unreachable(other.to_string()),
    }
}

/// Whether the server kept the idle connection open: a closed one is readable.
fn is_alive(backend: &mut Backend) -> bool {
    // Whoever uses it polls again, with a waker that wakes.
    let mut cx = Context::from_waker(Waker::noop());
    socket::poll_read(&mut backend.stream, &mut cx, |_| ()).is_pending()
}
