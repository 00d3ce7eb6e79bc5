//! What all sessions of the relay's thread share: sites, pools, the freshness index, the catalog, the cancel
//! keys. One thread owns it, so there are no locks.

pub(crate) mod routing;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::AHashMap;
use bytes::Bytes;
use hihooi_log::Log;
use hihooi_postgres::apply::ApplyStats;
use hihooi_postgres::cluster::fence::Fence;
use hihooi_postgres::collector::{CollectorStatus, StreamEvent};
use hihooi_postgres::connection::{self, Address, Login};
use hihooi_postgres::control::ControlRequest;
use hihooi_postgres::site::{Replica, Site};
use hihooi_postgres::wal_positions::WalPositions;
use hihooi_replication::freshness::{Freshness, Part, WriteId};
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::{Granularity, Items};
use hihooi_replication::watermark::Watermark;
use hihooi_replication::written::Written;
use hihooi_session::events::{AwaitedCatalog, Meaning, Outcome, Prepared, SchemaVersion};
use hihooi_sql::{Analysis, Cache, Catalog, SearchPath};
use tokio::sync::{Notify, mpsc};
use tracing::{info, warn};

use crate::authentication::{How, Passwords};
use crate::backend::Identity;
use crate::clients::Clients;
use crate::costs::Costs;
use crate::exports::Exports;
use crate::meters::{Counters, Meters, count};
use crate::objects::{NamedObjects, ObjectsAt};
use crate::operator::Operator;
use crate::origin::Origin;
use crate::pool::{Pool, Pools};
use crate::settings::Settings;
use crate::startup_key::{StartupKey, Welcome};
use crate::statements::Statements;
use crate::stopping::Stopping;
use hihooi_session::balance::Balance;
use hihooi_session::own_types::{Objects, OwnTypes};
use hihooi_session::route::Placed;
use hihooi_session::session::IdleLimits;
use hihooi_session::sites::{PerSite, SiteId};
use hihooi_session::state::MeaningfulSettings;

/// The duration of one read in so many is measured.
const MEASURED_EVERY: usize = 16;
/// The usual lag, microseconds, until it was measured. A cheaper read doesn't wait for a replica.
const LAG_US_AT_FIRST: u32 = 5_000;

/// What the relay shares with replication.
pub struct Replication {
    /// The replicated database.
    pub database: String,
    /// A site that answers nothing for so long is out of routing, milliseconds.
    pub site_timeout_ms: u64,
    /// The primary.
    pub primary: Site,
    /// The replicas.
    pub replicas: Vec<Arc<Replica>>,
    /// The log.
    pub log: Log,
    /// This manager's epoch, for the record of server connections.
    pub fence: Fence,
    /// What the stream tells.
    pub events: mpsc::Receiver<StreamEvent>,
    /// Makes the collector ask the primary for its position at once.
    pub poke: Arc<Notify>,
    /// Where acknowledged transaction ids go (a replica commits only what the
    /// primary shows). A full channel drops them; a snapshot tells then.
    pub acknowledged: mpsc::Sender<u64>,
    /// The collector's state.
    pub collector: Arc<CollectorStatus>,
    /// Where the operator's requests go.
    pub control: mpsc::Sender<ControlRequest>,
    /// How long entries take to a replica of this name.
    pub apply_stats: ApplyStatsOf,
}

/// Tells how long entries take to a replica, by its name.
pub type ApplyStatsOf = Arc<dyn Fn(&str) -> Option<ApplyStats> + Send + Sync>;

/// The pools that a session has used, by site.
pub type OwnPools = PerSite<Option<Rc<Pool>>>;

/// Counts a statement as running at a site for as long as it lives.
pub struct RunsAt {
    relay: Rc<Relay>,
    site: SiteId,
}

impl RunsAt {
    /// A statement runs at a site.
    #[must_use]
    pub fn new(relay: Rc<Relay>, site: SiteId) -> RunsAt {
        let active = &relay.counters[site].active;
        active.set(active.get() + 1);
        RunsAt { relay, site }
    }

    /// The site.
    #[must_use]
    pub fn site(&self) -> SiteId {
        self.site
    }
}

impl Drop for RunsAt {
    fn drop(&mut self) {
        let active = &self.relay.counters[self.site].active;
        active.set(active.get() - 1);
    }
}

/// Counts a read as outstanding at a replica for as long as it lives.
pub struct Reading {
    relay: Rc<Relay>,
    replica: usize,
    /// The answers a second that are due for it while its answer is awaited.
    due: Option<f64>,
}

impl Reading {
    /// A read of this statement was given to a replica; whether it was sent already.
    #[must_use]
    pub fn new(
        relay: Rc<Relay>,
        (replica, is_sent): (usize, bool),
        statement: u64,
        now: Duration,
    ) -> Reading {
        let mut balance = relay.balance.borrow_mut();
        balance.began(replica);
        let expected = || relay.first_bytes.borrow_mut().expected(statement);
        let due = is_sent.then(|| balance.sent(replica, now, expected()));
        drop(balance);
        Reading { relay, replica, due }
    }

    /// Where it is, and whether its answer is awaited.
    #[must_use]
    pub fn at(&self) -> (usize, bool) {
        (self.replica, self.due.is_some())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut balance = self.relay.balance.borrow_mut();
        if let Some(due) = self.due {
            balance.done(self.replica, due);
        }
        balance.ended(self.replica);
    }
}

/// A session as cancel requests and SHOW CLIENTS see it.
#[derive(Debug)]
pub struct SessionInfo {
    /// Its process number, as its client knows it.
    pub process: i32,
    /// The secret of its cancel key.
    pub secret: [u8; 4],
    /// What it was opened with.
    pub startup: Rc<StartupKey>,
    /// Its client.
    pub peer: Peer,
    /// When it was opened.
    pub since: Instant,
    /// An operator ends it.
    pub is_killed: Cell<bool>,
    /// What it runs on now.
    pub running: RefCell<Option<RunningOn>>,
    /// It waits for its client to send something.
    pub is_waiting: Cell<bool>,
    /// `idle`, `active`, `in transaction` …
    pub state: Cell<&'static str>,
    /// Since when it waits for a server connection at this site, or for a replica; if it does.
    pub waits: Cell<Option<(Instant, Option<SiteId>)>>,
    /// Where its last statement ran.
    pub last_route: Cell<Placed>,
}

/// What a relay holds in memory.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Distinct prepared statements.
    pub statements: usize,
    /// Texts that were analysed.
    pub analyses: usize,
    /// Start-up parameters.
    pub welcomes: usize,
}

/// How a client came.
#[derive(Clone, Debug)]
pub struct Peer {
    /// From where.
    pub origin: Origin,
    /// The version of TLS that its connection uses, if it does.
    pub tls: Option<&'static str>,
    /// How it proved who it is.
    pub how: How,
}

/// The server that works for a session.
#[derive(Clone, Debug)]
pub struct RunningOn {
    /// The site.
    pub site: SiteId,
    /// Its backend.
    pub identity: Rc<Identity>,
    /// Cancel requests on their way to it.
    pub cancels: Rc<Cell<u32>>,
}

/// A write whose connection broke after its COMMIT was sent.
#[derive(Debug)]
pub struct InDoubt {
    /// The write.
    pub write: WriteId,
    /// The backend that may still commit it.
    pub identity: Rc<Identity>,
}

/// The relay.
pub struct Relay {
    /// What the operator set.
    settings: RefCell<Rc<Settings>>,
    /// How long clients may be idle, of what is set.
    pub idle_limits: Cell<IdleLimits>,
    /// What the operator does while it runs.
    pub operator: Operator,
    /// The replicated database.
    pub database: String,
    /// A site that answers nothing for so long is out of routing, milliseconds.
    pub site_timeout_ms: u64,
    /// Who is here.
    pub clients: Rc<Clients>,
    /// All sites.
    pub sites: PerSite<Site>,
    /// The replicas.
    pub replicas: Vec<Arc<Replica>>,
    /// Whether a site answered the last probe without an error; true before the first.
    pub answers: PerSite<Cell<bool>>,
    /// The version of TLS that our connections to a site have, if they are encrypted.
    pub tls_of_sites: PerSite<Cell<Option<&'static str>>>,
    /// Counters per site.
    pub counters: PerSite<Counters>,
    /// What is counted for metrics only.
    pub(crate) meters: Meters,
    /// Pools of server connections.
    pub pools: Rc<Pools>,
    /// What statements usually take.
    pub costs: RefCell<Costs>,
    /// What they take at replicas until the first byte of the answer.
    pub first_bytes: RefCell<Costs>,
    /// Which replica gets a read.
    pub balance: RefCell<Balance>,
    /// A site should be asked at once whether it answers.
    pub suspected: PerSite<Notify>,
    /// Statements that replicas describe by types of their own.
    pub own_types: RefCell<OwnTypes>,
    /// Which of a replica's objects are which of the primary's, in the replicas' order.
    pub objects: Vec<RefCell<Option<ObjectsAt>>>,
    /// What the primary said of roles that logged in.
    pub passwords: RefCell<Passwords>,
    /// Snapshots of the replicas, in their order, for transactions that read from one.
    pub exports: Vec<Exports>,
    /// A connection to the primary that tells its WAL position, for the admin console.
    pub positions: Cell<Option<WalPositions>>,
    /// Another catalog is in use.
    pub catalog_set: Notify,
    /// Somebody waits for the catalog.
    pub catalog_wanted: Notify,
    /// Why it can't be read, if that is so for a while.
    pub catalog_failure: RefCell<Option<String>>,
    /// Who must see what.
    pub freshness: RefCell<Freshness>,
    /// Commits that every read shows from now on, whatever its level.
    pub everywhere: RefCell<Watermark>,
    /// Somebody should look at the index again.
    pub changed: Notify,
    /// There are writes to resolve.
    pub unresolved: Notify,
    /// Writes in doubt, until the primary was asked.
    pub in_doubt: RefCell<Vec<InDoubt>>,
    /// Sessions by process number.
    pub sessions: RefCell<AHashMap<i32, Rc<SessionInfo>>>,
    /// Who serves clients until when.
    pub stopping: Stopping,
    /// What a client of this start-up key is welcomed with.
    pub welcomes: RefCell<AHashMap<Rc<StartupKey>, Rc<Welcome>>>,
    /// The log.
    pub log: Log,
    /// The collector's state.
    pub collector: Arc<CollectorStatus>,
    /// Where the operator's requests go.
    pub control: mpsc::Sender<ControlRequest>,
    /// See [`Replication::poke`].
    pub poke: Arc<Notify>,
    /// See [`Replication::apply_stats`].
    pub apply_stats: ApplyStatsOf,
    acknowledged: mpsc::Sender<u64>,
    analyser: RefCell<Analyser>,
    statements: RefCell<Statements>,
    /// Changes of the schema that may have been committed since the catalog was read.
    definitions: Cell<u64>,
    turn: Cell<usize>,
    lag_us: Cell<u32>,
    started: Instant,
}

struct Analyser {
    cache: Cache,
    catalog: Rc<Catalog>,
    /// The primary's objects, read with it.
    named: Rc<NamedObjects>,
    /// The last entry that may have changed the schema.
    changed_at: Tsid,
    /// How often the stream brought DDL, and the xid of the last that did.
    changes: u64,
    changed_by: Option<u32>,
    /// How often it had when the catalog was read.
    read_at: Option<u64>,
    /// It has the code of all objects.
    is_whole: bool,
}

/// How often a session asks whether the catalog knows of its definitions.
const KNOWN_EVERY: Duration = Duration::from_millis(50);

impl Relay {
    /// A relay over these sites; the stream's events go to whoever runs
    /// [`crate::outcomes::follow`].
    #[must_use]
    pub fn new(
        settings: Settings,
        operator: Operator,
        replication: Replication,
    ) -> (Relay, mpsc::Receiver<StreamEvent>) {
        let replicas = replication.replicas.iter().map(|replica| replica.site.clone()).collect();
        let sites = PerSite { primary: replication.primary, replicas };
        let objects = replication.replicas.iter().map(|_| RefCell::default()).collect();
        let exports = replication.replicas.iter().map(|_| Exports::default()).collect();
        let newest = replication.log.last().map_or(Tsid::ZERO, |header| header.tsid);
        let relay = Relay {
            answers: sites.map(|_| Cell::new(true)),
            tls_of_sites: sites.map(|_| Cell::new(None)),
            counters: sites.map(|_| Counters::default()),
            meters: Meters::new(&sites),
            suspected: sites.map(|_| Notify::new()),
            pools: Rc::new(Pools::new(
                sites.clone(),
                &replication.replicas,
                &replication.database,
                settings.bounds(),
                Duration::from_millis(replication.site_timeout_ms),
                replication.fence,
            )),
            sites,
            replicas: replication.replicas,
            passwords: RefCell::default(),
            positions: Cell::new(None),
            costs: RefCell::default(),
            first_bytes: RefCell::default(),
            balance: RefCell::new(Balance::new(settings.weights.iter().copied(), seed())),
            own_types: RefCell::default(),
            objects,
            exports,
            catalog_set: Notify::new(),
            catalog_wanted: Notify::new(),
            catalog_failure: RefCell::default(),
            freshness: RefCell::new(Freshness::new(newest)),
            everywhere: RefCell::default(),
            changed: Notify::new(),
            unresolved: Notify::new(),
            in_doubt: RefCell::default(),
            sessions: RefCell::default(),
            stopping: Stopping::default(),
            welcomes: RefCell::default(),
            log: replication.log,
            collector: replication.collector,
            control: replication.control,
            poke: replication.poke,
            apply_stats: replication.apply_stats,
            acknowledged: replication.acknowledged,
            analyser: RefCell::new(Analyser {
                cache: Cache::default(),
                catalog: Rc::new(Catalog::default()),
                named: Rc::default(),
                changes: 0,
                changed_at: newest,
                changed_by: None,
                read_at: None,
                is_whole: false,
            }),
            statements: RefCell::default(),
            definitions: Cell::new(0),
            turn: Cell::new(0),
            lag_us: Cell::new(LAG_US_AT_FIRST),
            started: Instant::now(),
            idle_limits: Cell::new(settings.limits.idle()),
            settings: RefCell::new(Rc::new(settings)),
            operator,
            database: replication.database,
            site_timeout_ms: replication.site_timeout_ms,
            clients: Rc::default(),
        };
        (relay, replication.events)
    }

    /// What the operator set, as it is in force now.
    #[must_use]
    pub fn settings(&self) -> Rc<Settings> {
        self.settings.borrow().clone()
    }

    /// Other settings are in force from now on.
    pub(crate) fn set_settings(&self, settings: Settings) {
        self.idle_limits.set(settings.limits.idle());
        *self.settings.borrow_mut() = Rc::new(settings);
        self.stopping.wake_all(); // to look at them
    }

    /// How much it holds.
    #[must_use]
    pub fn held(&self) -> Held {
        Held {
            statements: self.statements.borrow().len(),
            analyses: self.analyser.borrow().cache.size().0,
            welcomes: self.welcomes.borrow().len(),
        }
    }

    /// Time since the relay started.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Milliseconds since the relay started.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    /// The key that others who open alike have, if any.
    #[must_use]
    pub fn known_key(&self, key: StartupKey) -> Rc<StartupKey> {
        let known = self.welcomes.borrow().get_key_value(&key).map(|(known, _)| known.clone());
        known.unwrap_or_else(|| Rc::new(key))
    }

    /// The replica at a site; `None` for the primary.
    #[must_use]
    pub fn replica(&self, site: SiteId) -> Option<&Arc<Replica>> {
        match site {
            SiteId::Primary => None,
            SiteId::Replica(number) => self.replicas.get(number),
        }
    }

    /// Whether the database is replicated.
    #[must_use]
    pub fn is_replicated(&self, database: &str) -> bool {
        database == self.database
    }

    /// The facts of a text.
    #[must_use]
    pub fn analyse(&self, text: &str, path: Option<&SearchPath>) -> Arc<Analysis> {
        let mut analyser = self.analyser.borrow_mut();
        let catalog = analyser.catalog.clone();
        analyser.cache.get(text, &catalog, path)
    }

    /// Whether the catalog may lag behind a change of the schema: then static analysis is not to
    /// be trusted (I6).
    #[must_use]
    pub fn is_catalog_stale(&self) -> bool {
        self.is_catalog_unread() || self.freshness.borrow().is_schema_in_doubt()
    }

    /// Whether the stream brought DDL that the catalog lacks.
    #[must_use]
    pub fn is_catalog_unread(&self) -> bool {
        let analyser = self.analyser.borrow();
        analyser.read_at != Some(analyser.changes)
    }

    /// Somebody waits for the catalog: it is read now, if it is behind.
    pub fn want_catalog(&self) {
        if self.is_catalog_unread() {
            self.catalog_wanted.notify_one();
        }
    }

    /// Whether the catalog has what a write changed.
    #[must_use]
    pub fn knows(&self, write: WriteId) -> bool {
        !self.is_catalog_unread() && !self.freshness.borrow().is_unresolved(write)
    }

    /// Whether the catalog is as a session waits for it to be.
    #[must_use]
    pub fn has_catalog(&self, AwaitedCatalog { write, all_code }: AwaitedCatalog) -> bool {
        !self.is_catalog_stale()
            && write.is_none_or(|write| self.knows(write))
            && (!all_code || self.analyser.borrow().is_whole)
    }

    /// Waits until it is.
    pub async fn until_catalog(&self, awaited: AwaitedCatalog) {
        while !self.has_catalog(awaited) {
            self.want_catalog();
            // Writes that change nothing are resolved without a word.
            let _ = tokio::time::timeout(KNOWN_EVERY, self.changed.notified()).await;
        }
    }

    /// The settings with a dot in their names that code in the catalog gives a value or asks for.
    #[must_use]
    pub fn custom_settings(&self) -> Vec<Box<str>> {
        self.analyser.borrow().catalog.custom_settings().to_vec()
    }

    /// The stream brought DDL of this transaction.
    pub fn catalog_changed(&self, tsid: Tsid, xid: u32) {
        let mut analyser = self.analyser.borrow_mut();
        analyser.changes += 1;
        analyser.changed_at = tsid;
        analyser.changed_by = Some(xid);
    }

    /// How often the stream brought DDL so far, and which transaction's came last.
    #[must_use]
    pub fn catalog_changes(&self) -> (u64, Option<u32>) {
        let analyser = self.analyser.borrow();
        (analyser.changes, analyser.changed_by)
    }

    /// A catalog was read at the primary when it showed the first so many changes, with all code or only what wasn't
    /// locked. Gives back the one before it, if nobody uses that any more.
    pub fn set_catalog(
        &self,
        catalog: Catalog,
        named: NamedObjects,
        changes: u64,
        is_whole: bool,
    ) -> Option<Catalog> {
        let mut analyser = self.analyser.borrow_mut();
        let former = std::mem::replace(&mut analyser.catalog, Rc::new(catalog));
        analyser.named = Rc::new(named);
        (analyser.read_at, analyser.is_whole) = (Some(changes), is_whole);
        self.catalog_set.notify_waiters();
        Rc::into_inner(former)
    }

    /// The schema as the catalog has it, if that has all DDL that the stream brought: how often that was, the
    /// last entry that did, and the primary's objects.
    #[must_use]
    pub fn schema(&self) -> Option<(u64, Tsid, Rc<NamedObjects>)> {
        let analyser = self.analyser.borrow();
        let Analyser { changes, changed_at, named, .. } = &*analyser;
        (analyser.read_at == Some(*changes)).then(|| (*changes, *changed_at, named.clone()))
    }

    /// Which objects of a replica are which of the primary's, if that is known for the schema as it is now.
    #[must_use]
    pub fn objects_at(&self, site: SiteId) -> Option<Arc<Objects>> {
        let SiteId::Replica(number) = site else { return None };
        let known = self.objects[number].borrow();
        let known = known.as_ref()?;
        let is_current = self.analyser.borrow().changes == known.changes
            && self.replicas[number].rounds() == known.round;
        is_current.then(|| known.objects.clone())
    }

    /// Version of the catalog in use.
    #[must_use]
    pub fn catalog_version(&self) -> u64 {
        self.analyser.borrow().catalog.version()
    }

    /// The one statement of this text and these parameter types, for those who prepare it while the schema is as it
    /// is, with these settings: servers keep what a statement meant when they prepared it. Without these it
    /// is one that nobody shares.
    pub fn prepared(
        &self,
        query: Bytes,
        types: Bytes,
        settings: Option<MeaningfulSettings>,
    ) -> Arc<Prepared> {
        let meaning = Meaning { schema: self.schema_version(), settings };
        self.statements.borrow_mut().get(query, types, meaning)
    }

    /// Which schema it is now, as far as is known.
    #[must_use]
    pub fn schema_version(&self) -> SchemaVersion {
        (self.catalog_version(), self.definitions.get())
    }

    /// The stream brought an entry. Its rows have names in the catalog unless that may be older than the
    /// entry: then whole tables count as written.
    pub fn entry_came(&self, tsid: Tsid, xid: u32, written: &Written) {
        let is_known = !self.is_catalog_unread();
        let items = self.analyser.borrow().catalog.items_of(written);
        let items = if is_known { items } else { items.at(Granularity::Table) };
        self.freshness.borrow_mut().entry(tsid, xid, &items);
    }

    /// Forgets rows of entries that all replicas have applied.
    pub fn raise_floor(&self) {
        if let Some(applied) = self.replicas.iter().map(|replica| replica.applied()).min() {
            self.freshness.borrow_mut().raise_floor(applied);
        }
    }

    /// A replica has begun now to answer a read of this statement, so long after it was sent.
    pub fn answered(&self, replica: usize, statement: u64, after: Duration, now: Duration) {
        let mut first_bytes = self.first_bytes.borrow_mut();
        let expected = first_bytes.expected(statement);
        first_bytes.took(statement, after);
        self.balance.borrow_mut().answered(replica, now, after, expected);
    }

    /// A part of what a read reads, in words.
    #[must_use]
    pub fn describe(&self, part: Part) -> String {
        self.analyser.borrow().catalog.describe(part)
    }

    /// Whether this read's duration is measured: one in so many is, and the first ones.
    #[must_use]
    pub fn is_measured_turn(&self) -> bool {
        let turn = self.turn.get();
        turn < MEASURED_EVERY || turn.is_multiple_of(MEASURED_EVERY)
    }

    /// Sets the usual lag of the quickest replica, microseconds.
    pub fn set_lag_us(&self, us: u32) {
        self.lag_us.set(us);
    }

    /// A write's COMMIT is about to be sent.
    pub fn begin_write(&self, items: Items) -> WriteId {
        self.freshness.borrow_mut().begin(items)
    }

    /// What became of a write after a unit was answered without an error of the connection.
    pub fn end_write(&self, write: WriteId, outcome: Outcome) {
        let mut freshness = self.freshness.borrow_mut();
        if freshness.defines(write) {
            self.definitions.set(self.definitions.get() + 1);
        }
        match outcome {
            Outcome::Nothing => freshness.nothing(write),
            Outcome::Committed(xid) => {
                freshness.acknowledged(write, xid, self.now_ms());
                count(&self.counters.primary.commits);
                // Full: replicas learn it from a snapshot instead.
                let _ = self.acknowledged.try_send(xid.0);
            }
            Outcome::Unidentified => freshness.unidentified(write, self.now_ms()),
        }
        drop(freshness);
        match outcome {
            Outcome::Nothing => self.changed.notify_waiters(),
            _ => self.unresolved.notify_one(),
        }
    }

    /// The session ended while the write was in flight: the client left, or the connection to the primary broke.
    pub fn doubt(&self, write: WriteId, identity: Rc<Identity>) {
        warn!(
            pid = identity.record.pid,
            "a session ended before its commit was answered; the primary is asked what became of it"
        );
        self.in_doubt.borrow_mut().push(InDoubt { write, identity });
        self.unresolved.notify_one();
    }

    /// Whether a question to the primary failed because it is away, not because it has much to do.
    #[must_use]
    pub fn is_primary_away(&self, error: &connection::Error) -> bool {
        self.pools.is_primary_silent.get() || matches!(error, connection::Error::Lost { .. })
    }

    /// Ends a session, whatever it does, as `pg_terminate_backend` does on a server; whether it is there.
    #[must_use]
    pub fn kill(&self, process: i32) -> bool {
        let Some(session) = self.sessions.borrow().get(&process).cloned() else { return false };
        info!(process, role = session.startup.user, "an operator ends the session");
        session.is_killed.set(true);
        self.stopping.wake_all();
        true
    }

    /// How the relay's own connections log in at a site.
    #[must_use]
    pub fn login(&self, site: SiteId, application: &str) -> Login {
        let at = &self.sites[site];
        Login::new(at.address.clone(), &at.user, &self.database, application)
    }

    /// The address and name of a site.
    #[must_use]
    pub fn address(&self, site: SiteId) -> &Address {
        &self.sites[site].address
    }
}

/// A seed for what need not be a secret.
fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without random numbers probes come at regular intervals, no more.
    let _ = getrandom::fill(&mut seed);
    u64::from_ne_bytes(seed)
}
