//! Pools of server connections: at most so many per user, database and site (I8). A session
//! holds one for a transaction, or for as long as its state needs it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use hihooi_postgres::cluster::fence::Fence;
use hihooi_postgres::connection::{self, Connection, Login};
use hihooi_postgres::site::{Role, Site};
use hihooi_wire::backend::{ErrorFields, Report};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;

use crate::backend::Backend;
use crate::startup_key::StartupKey;
use crate::state::CarriedSettings;

/// After a cancel request, so long at most a connection waits for it to arrive.
const CANCEL_MS_MAX: u64 = 2_000;

/// Why no connection could be had.
#[derive(Debug)]
pub enum Refusal {
    /// The server's own error at start-up.
    Server(Box<ErrorFields>),
    /// The site can't be reached.
    Unreachable(String),
    /// Defaults of roles or databases changed since the session began: a new connection would
    /// not be the same session.
    Outdated,
    /// All connections were busy for as long as a client may wait.
    Full {
        /// Connections in the pool.
        size: usize,
        /// How long the client waited.
        waited: Duration,
    },
}

impl Refusal {
    /// What a client is told, given the site's name.
    #[must_use]
    pub fn report(&self, site: &str, key: &StartupKey) -> Report {
        match self {
            Refusal::Server(fields) => {
                Report::error("08006", format!("{site} refused a connection: {fields}"))
            }
            Refusal::Unreachable(why) => Report::error("57P03", format!("{site} is not available"))
                .detail(why.clone())
                .hint("Retry later; SHOW SERVERS in database hihooi tells the state."),
            Refusal::Outdated => Report::error(
                "57P01",
                "settings of the role or the database were changed since this session began",
            )
            .hint("Connect again to use the new ones."),
            Refusal::Full { size, waited } => Report::error(
                "53300",
                format!(
                    "all {size} connections of user \"{}\" to database \"{}\" at {site} are busy",
                    key.user, key.database
                ),
            )
            .detail(format!("Waited {} ms for one.", waited.as_millis()))
            .hint("Raise pool.size or pool.wait_ms_max, or end idle transactions."),
        }
    }
}

#[derive(PartialEq, Eq, Hash, Clone, Debug)]
struct PoolKey {
    site: usize,
    user: String,
    database: String,
}

#[derive(Debug)]
struct Pool {
    permits: Arc<Semaphore>,
    idle: Vec<Backend>,
}

/// Bounds of the pools.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections per user, database and site.
    pub size: usize,
    /// How long a client waits for one.
    pub wait: Duration,
}

/// What `SHOW POOLS` tells of one.
#[derive(Debug, Clone)]
pub struct PoolInfo {
    /// Index of the site.
    pub site: usize,
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// Connections that nobody uses now.
    pub idle: usize,
    /// Connections that a session uses or opens now.
    pub used: usize,
}

/// All pools of the relay.
pub struct Pools {
    sites: Vec<Site>,
    limits: Limits,
    fence: Fence,
    defaults: Cell<u64>,
    pools: RefCell<AHashMap<PoolKey, Pool>>,
}

impl Pools {
    /// Empty pools for these sites.
    #[must_use]
    pub fn new(sites: Vec<Site>, limits: Limits, fence: Fence) -> Pools {
        Pools { sites, limits, fence, defaults: Cell::new(0), pools: RefCell::default() }
    }

    /// A connection to the site, opened like the client's session, preferably one with the same
    /// settings and last used by the same session.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn acquire(
        &self,
        site: usize,
        startup: &Rc<StartupKey>,
        settings: &Rc<CarriedSettings>,
        session: u64,
    ) -> Result<Backend, Refusal> {
        let key =
            PoolKey { site, user: startup.user.clone(), database: startup.database.clone() };
        let permit = self.permit(&key).await?;
        while let Some(mut backend) = self.take_idle(&key, startup, settings, session) {
            if is_alive(&backend) {
                backend.permit = Some(permit);
                return Ok(backend);
            }
            self.forget(&backend);
        }
        let opened = self.open(&key, startup, permit).await;
        if opened.is_err() {
            self.forget_unused(&key);
        }
        opened
    }

    /// A pool that nobody uses is no pool: names that no server knows must not pile up (I8).
    fn forget_unused(&self, key: &PoolKey) {
        let mut pools = self.pools.borrow_mut();
        let is_unused = |pool: &Pool| {
            pool.idle.is_empty() && pool.permits.available_permits() == self.limits.size
        };
        if pools.get(key).is_some_and(is_unused) {
            pools.remove(key);
        }
    }

    async fn permit(&self, key: &PoolKey) -> Result<OwnedSemaphorePermit, Refusal> {
        let permits = self.permits(key);
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        match tokio::time::timeout(self.limits.wait, permits.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Refusal::Full { size: self.limits.size, waited: self.limits.wait }),
        }
    }

    fn permits(&self, key: &PoolKey) -> Arc<Semaphore> {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.entry(key.clone()).or_insert_with(|| Pool {
            permits: Arc::new(Semaphore::new(self.limits.size)),
            idle: Vec::new(),
        });
        pool.permits.clone()
    }

    fn take_idle(
        &self,
        key: &PoolKey,
        startup: &Rc<StartupKey>,
        settings: &Rc<CarriedSettings>,
        session: u64,
    ) -> Option<Backend> {
        let mut pools = self.pools.borrow_mut();
        let idle = &mut pools.get_mut(key)?.idle;
        let fit = |backend: &Backend| {
            if backend.startup != *startup {
                return None;
            }
            match (backend.settings == *settings, backend.last_session == session) {
                (true, true) => Some(3),
                (true, false) => Some(2),
                (false, _) => backend.settings.can_be_reset().then_some(1),
            }
        };
        let best = (0..idle.len()).rev().max_by_key(|&index| fit(&idle[index]))?;
        fit(&idle[best]).map(|_| idle.swap_remove(best))
    }

    async fn open(
        &self,
        key: &PoolKey,
        startup: &Rc<StartupKey>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Backend, Refusal> {
        if startup.defaults != self.defaults.get() {
            return Err(Refusal::Outdated);
        }
        self.make_room(key);
        let login = self.login(key.site, startup);
        let mut connection = Connection::open(&login).await.map_err(refusal)?;
        let site = &self.sites[key.site].name;
        let recorded = self.fence.record(site, &mut connection).await;
        let record = recorded.map_err(|error| Refusal::Unreachable(error.to_string()))?;
        debug!(%site, pid = record.pid, "server connection opened");
        Ok(Backend::new(key.site, startup.clone(), connection.into_parts(), record, permit))
    }

    /// Closes an idle connection that was opened otherwise if the pool is at its bound.
    fn make_room(&self, key: &PoolKey) {
        let mut pools = self.pools.borrow_mut();
        let Some(pool) = pools.get_mut(key) else { return };
        let used = self.limits.size - pool.permits.available_permits();
        if used + pool.idle.len() > self.limits.size && !pool.idle.is_empty() {
            let surplus = pool.idle.remove(0);
            self.forget(&surplus);
        }
    }

    fn login(&self, site: usize, startup: &StartupKey) -> Login {
        let at = &self.sites[site];
        let mut parameters = startup.parameters.clone();
        if at.role != Role::Primary {
            add_option(&mut parameters, "-c default_transaction_read_only=on");
        }
        Login {
            address: at.address.clone(),
            user: startup.user.clone(),
            database: startup.database.clone(),
            parameters,
        }
    }

    /// Gives a connection back; it must be clean. It is closed if it is not.
    pub fn release(self: &Rc<Self>, mut backend: Backend) {
        if !backend.is_clean() {
            self.discard(backend);
        } else if backend.cancels.get() > 0 {
            let pools = self.clone();
            tokio::task::spawn_local(async move { pools.release_after_cancel(backend).await });
        } else {
            let permit = backend.permit.take();
            let key = PoolKey {
                site: backend.site,
                user: backend.startup.user.clone(),
                database: backend.startup.database.clone(),
            };
            if let Some(pool) = self.pools.borrow_mut().get_mut(&key) {
                pool.idle.push(backend);
            }
            drop(permit); // after the connection is there for whoever waits
        }
    }

    async fn release_after_cancel(self: Rc<Self>, backend: Backend) {
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
    pub fn discard(&self, mut backend: Backend) {
        backend.permit = None;
        let fence = self.fence.clone();
        tokio::task::spawn_local(async move {
            backend.output.clear();
            hihooi_wire::frontend::terminate(&mut backend.output);
            // Its record stays in the log until the backend is known to be gone: it may still
            // wait for a lock and then commit.
            if crate::pump::send_all(&mut backend).await.is_ok()
                && crate::pump::wait_for_end(&mut backend).await
            {
                fence.forget(&backend.identity.record);
            }
        });
    }

    fn forget(&self, backend: &Backend) {
        self.fence.forget(&backend.identity.record);
    }

    /// Closes idle connections to other databases than this one, so that DROP DATABASE can
    /// succeed.
    pub fn close_other_databases(&self, database: &str) {
        let mut closing = Vec::new();
        for (key, pool) in self.pools.borrow_mut().iter_mut() {
            if key.database != database {
                closing.append(&mut pool.idle);
            }
        }
        closing.into_iter().for_each(|backend| self.discard(backend));
    }

    /// Closes all idle connections: the defaults that they started with may have changed.
    pub fn close_idle(&self) {
        let mut closing = Vec::new();
        for pool in self.pools.borrow_mut().values_mut() {
            closing.append(&mut pool.idle);
        }
        closing.into_iter().for_each(|backend| self.discard(backend));
    }

    /// How often defaults of roles and databases have changed.
    #[must_use]
    pub fn defaults(&self) -> u64 {
        self.defaults.get()
    }

    /// Defaults of roles or databases have changed: sessions from now on start with others than
    /// those before.
    pub fn defaults_changed(&self) {
        self.defaults.set(self.defaults.get() + 1);
    }

    /// What the pools hold now.
    #[must_use]
    pub fn info(&self) -> Vec<PoolInfo> {
        let pools = self.pools.borrow();
        let info = |(key, pool): (&PoolKey, &Pool)| PoolInfo {
            site: key.site,
            user: key.user.clone(),
            database: key.database.clone(),
            idle: pool.idle.len(),
            used: self.limits.size - pool.permits.available_permits(),
        };
        pools.iter().map(info).collect()
    }
}

/// Adds to the command-line options that the client itself may have sent.
fn add_option(parameters: &mut Vec<(String, String)>, option: &str) {
    match parameters.iter_mut().find(|(name, _)| name == "options") {
        Some((_, options)) => {
            options.push(' ');
            options.push_str(option);
        }
        None => parameters.push(("options".to_owned(), option.to_owned())),
    }
}

fn refusal(error: connection::Error) -> Refusal {
    match error {
        connection::Error::Server(fields) => Refusal::Server(fields),
        other => Refusal::Unreachable(other.to_string()),
    }
}

/// Whether the server kept the idle connection open: a closed one is readable.
fn is_alive(backend: &Backend) -> bool {
    let mut byte = [0];
    matches!(backend.stream.try_read(&mut byte), Err(error)
        if error.kind() == std::io::ErrorKind::WouldBlock)
}
