//! Real sessions ([`hihooi_session`]) with simulated clients, servers, pools and time: appends to lists and
//! reads of them, alone and in blocks, in both protocols, pipelined or not, with DDL between them; the
//! freshness index and the choice of replicas are the real ones. Connections are lost, statements are
//! cancelled, replicas lag or restart, clients disconnect, sessions are stopped, and messages arrive in pieces.
//! The checker checks what clients saw against strong snapshot isolation.
//!
//! A scheduler chooses at random what happens next, from the seed; there is no clock.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hihooi_check::{History, Level, Op, Outcome, Transaction, judge};
use hihooi_replication::freshness::{Freshness, WriteId};
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_replication::items::{Granularity, Items, RelId};
use hihooi_replication::primary_equivalent::Dispatched;
use hihooi_session::balance::{Balance, Candidate, Choice};
use hihooi_session::consistency::Consistency;
use hihooi_session::downstream::Downstream;
use hihooi_session::events::{
    self, Action, Actions, AwaitedCatalog, Env, Event, Meaning, Prepared, SchemaVersion,
};
use hihooi_session::own_settings::OwnSettings;
use hihooi_session::own_types::{Needs, Objects};
use hihooi_session::route::{Reason, Route};
use hihooi_session::session::{Activity, IdleLimits, Opened, Session};
use hihooi_session::upstream::Upstream;
use hihooi_sql::catalog_builder::RelationRow;
use hihooi_sql::{Analysis, Builder, Cache, Catalog, Isolation, SearchPath};
use hihooi_wire::backend::{ErrorFields, Report, read_data_row, tag};
use hihooi_wire::frame;
use hihooi_wire::frontend::{self, Parse, Target};
use rand::RngExt;

use crate::postgres::{Cluster, Connection};
use crate::random::{Purpose, Random, generator};
use hihooi_session::sites::SiteId;
use hihooi_session::state::MeaningfulSettings;

/// Replicas.
const REPLICAS: usize = 2;
/// Each step hits something with one chance in so many.
const FAULT_EVERY: u32 = 60;
/// Nothing takes so many steps that ends.
const STEPS_MAX: usize = 200_000;

/// A mistake that the checker must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// Reads go to any replica.
    StaleReads,
    /// The index isn't told of writes.
    WritesUntold,
    /// Reads in front of a write's end are routed without it.
    EndsForgotten,
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Clients at a time.
    pub clients: usize,
    /// Lists.
    pub tables: u32,
    /// Transactions a client.
    pub transactions: usize,
    /// Whether anything fails.
    pub has_faults: bool,
    /// A mistake.
    pub planted: Option<Planted>,
}

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ran {
    /// Events.
    pub steps: usize,
    /// Transactions whose clients were told that they committed.
    pub committed: usize,
    /// Whose clients were told that they did not.
    pub aborted: usize,
    /// Whose clients were told nothing.
    pub unknown: usize,
    /// Units that a replica answered.
    pub at_replicas: u64,
    /// Faults that struck.
    pub faults: usize,
}

/// Runs a cluster to its end.
///
/// # Errors
/// A client waits in vain, a connection with somebody's state is given to others, or clients saw what strong
/// snapshot isolation forbids.
pub fn run(seed: u64, setup: &Setup) -> Result<Ran, String> {
    let mut world = World::new(seed, *setup);
    world.run()?;
    let verdict = judge(&world.history, Level::StrongSi);
    if verdict.holds() { Ok(world.ran) } else { Err(format!("{verdict}")) }
}

/// What sessions share.
struct Relay {
    planted: Option<Planted>,
    now: Cell<u64>,
    catalog: RefCell<Catalog>,
    cache: RefCell<Cache>,
    /// How often the stream brought DDL, and how often it had when the catalog was read.
    changes: Cell<u64>,
    read_at: Cell<u64>,
    freshness: RefCell<Freshness>,
    statements: RefCell<HashMap<(Bytes, Bytes, Meaning), Arc<Prepared>>>,
    /// How many commits each replica shows.
    applied: Vec<Rc<Cell<usize>>>,
    balance: RefCell<Balance>,
}

fn catalog(version: u64, tables: u32) -> Catalog {
    let mut builder = Builder::default();
    for id in 1..=tables {
        builder.relation(RelationRow {
            id: RelId(id),
            schema: "public",
            name: &format!("t{id}"),
            kind: "r",
            persistence: "p",
            code: "",
            has_rules: false,
        });
    }
    builder.build(version)
}

impl Relay {
    fn is_unread(&self) -> bool {
        self.changes.get() != self.read_at.get()
    }

    fn applied(&self, number: usize) -> usize {
        self.applied[number].get()
    }

    fn route(&self, items: &Items, not: &[SiteId]) -> Route {
        let need = self.freshness.borrow().need(items);
        let consistency = match self.planted {
            Some(Planted::StaleReads) => Consistency::WeakSi,
            _ => Consistency::Gssi,
        };
        let may_serve = |number: &usize| !not.contains(&SiteId::Replica(*number));
        let candidates = (0..REPLICAS).filter(may_serve).map(|number| Candidate {
            number,
            applied: Tsid(self.applied(number) as u64),
            set_aside_changes: 0,
            is_readable: true,
            is_barred: false,
            is_full: false,
        });
        match self.balance.borrow_mut().choose(candidates, &need, consistency, self.now()) {
            Choice::Replica(Candidate { number, applied, .. }) => Route {
                site: SiteId::Replica(number),
                needed: Some(need.tsid),
                applied: Some(applied),
                set_aside_changes: 0,
                class: items.class(),
                decider: None,
                dispatched: Consistency::Gssi.is_checked(items).then(|| Dispatched {
                    commits: self.freshness.borrow().last_commits().commits(),
                    sent: applied,
                }),
                snapshot: None,
                reason: Reason::Fresh,
            },
            _ => Route::primary(Reason::NotFresh),
        }
    }
}

impl Env for Relay {
    fn now(&self) -> Duration {
        Duration::from_millis(self.now.get())
    }
    fn analyse(&self, text: &str, path: Option<&SearchPath>) -> Arc<Analysis> {
        self.cache.borrow_mut().get(text, &self.catalog.borrow(), path)
    }
    fn schema(&self) -> SchemaVersion {
        (self.catalog.borrow().version(), 0)
    }
    fn prepared(
        &self,
        query: Bytes,
        types: Bytes,
        settings: Option<MeaningfulSettings>,
    ) -> Arc<Prepared> {
        let mut statements = self.statements.borrow_mut();
        let id = statements.len() as u64 + 1;
        let meaning = Meaning { schema: self.schema(), settings };
        let new = || {
            let (query, types, meaning) = (query.clone(), types.clone(), meaning.clone());
            Arc::new(Prepared::new(id, query, types, meaning))
        };
        statements
            .entry((query.clone(), types.clone(), meaning.clone()))
            .or_insert_with(new)
            .clone()
    }
    fn catalog_version(&self) -> u64 {
        self.catalog.borrow().version()
    }
    fn is_catalog_stale(&self) -> bool {
        self.is_unread() || self.freshness.borrow().is_schema_in_doubt()
    }
    fn has_catalog(&self, AwaitedCatalog { write, .. }: AwaitedCatalog) -> bool {
        !self.is_catalog_stale() && write.is_none_or(|write| self.knows(write))
    }
    fn is_catalog_unread(&self) -> bool {
        self.is_unread()
    }

    fn configuration_version(&self) -> u64 {
        0
    }
    fn knows(&self, write: WriteId) -> bool {
        !self.is_unread() && !self.freshness.borrow().is_unresolved(write)
    }
    fn custom_settings(&self) -> Vec<Box<str>> {
        Vec::new()
    }
    fn is_in_flight(&self, items: &Items) -> bool {
        self.freshness.borrow().is_in_flight(items)
    }
    fn has_replicas(&self) -> bool {
        true
    }
    fn needs(&self, _: u64) -> Option<Needs> {
        None
    }
    fn objects(&self, _: SiteId) -> Option<Arc<Objects>> {
        None
    }
    fn still_serves(&self, route: &Route) -> bool {
        let SiteId::Replica(number) = route.site else { return false };
        route.applied.is_none_or(|applied| Tsid(self.applied(number) as u64) >= applied)
    }
    fn may_be_forked(&self, route: &Route, items: &Items) -> bool {
        let SiteId::Replica(number) = route.site else { return false };
        let sent = Tsid(self.applied(number) as u64);
        let freshness = self.freshness.borrow();
        let is_forked = |at| freshness.last_commits().may_be_forked(items, at, sent);
        route.dispatched.is_some_and(is_forked)
    }
    fn is_void(&self, _: &Route) -> bool {
        false
    }
    fn was_ended(&self, _: SiteId, _: i32) -> bool {
        false
    }
    fn measures(&self) -> bool {
        false
    }
    fn describe(&self, part: hihooi_replication::freshness::Part) -> String {
        format!("{part:?}")
    }

    fn site_name(&self, site: SiteId) -> &str {
        if site == SiteId::Primary { "primary" } else { "replica" }
    }
}

struct Leased {
    site: SiteId,
    connection: Connection,
}

/// What a session has asked for and not got yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Lease(SiteId),
    Route,
}

struct Client {
    session: Session,
    actions: Actions,
    leased: Option<Leased>,
    parked: Option<Leased>,
    asked: Option<Asked>,
    from_client: BytesMut,
    got: BytesMut,
    random: Random,
    /// Transactions still to come.
    left: usize,
    plan: Option<Plan>,
    is_final: bool,
}

/// A transaction and how far it has come.
#[derive(Debug, Default)]
struct Plan {
    invoked: u64,
    packets: Vec<Packet>,
    steps: Vec<Step>,
    rows: Vec<String>,
    failed: bool,
    ends: Vec<String>,
    /// ReadyForQuery still to come for what was sent.
    awaits: usize,
    /// In a block whose end was not asked for.
    status: u8,
}

#[derive(Debug)]
struct Packet {
    bytes: Vec<u8>,
    answers: usize,
}

#[derive(Debug, Clone)]
enum Step {
    Read(u32),
    Append(u32, i64),
}

struct World {
    setup: Setup,
    random: Random,
    relay: Rc<Relay>,
    cluster: Rc<RefCell<Cluster>>,
    /// So many commits came by the stream.
    streamed: usize,
    clients: Vec<Client>,
    idle: Vec<(Leased, Box<Upstream>)>,
    next_session: u64,
    next_pid: i32,
    next_value: i64,
    history: History,
    ran: Ran,
    wrong: Option<String>,
}

impl World {
    fn new(seed: u64, setup: Setup) -> World {
        let relay = Relay {
            planted: setup.planted,
            now: Cell::new(0),
            catalog: RefCell::new(catalog(1, setup.tables)),
            cache: RefCell::default(),
            changes: Cell::new(0),
            read_at: Cell::new(0),
            freshness: RefCell::new(Freshness::new(Tsid::ZERO)),
            statements: RefCell::default(),
            applied: (0..REPLICAS).map(|_| Rc::default()).collect(),
            balance: RefCell::new(Balance::new([1; REPLICAS], seed)),
        };
        let mut world = World {
            setup,
            random: generator(seed, Purpose::Faults),
            relay: Rc::new(relay),
            cluster: Rc::default(),
            streamed: 0,
            clients: Vec::new(),
            idle: Vec::new(),
            next_session: 1,
            next_pid: 1,
            next_value: 1,
            history: History::new(),
            ran: Ran::default(),
            wrong: None,
        };
        for number in 0..setup.clients {
            let random = generator(seed, Purpose::Client(number as u16));
            let client = world.client(random, setup.transactions);
            world.clients.push(client);
        }
        world
    }

    fn client(&mut self, random: Random, left: usize) -> Client {
        let id = self.next_session;
        self.next_session += 1;
        let opened = Opened {
            id,
            is_replicated: true,
            own: OwnSettings {
                consistency: Consistency::Gssi,
                wait_ms: 0,
                granularity: Granularity::Range,
                statement_routing: true,
                snapshot_routing: false,
            },
            untold: vec![("role".to_owned(), "none".to_owned())],
            path: SearchPath::new(["public"]),
            isolation: Isolation::ReadCommitted,
            has_plain_strings: true,
            may_lack_events: false,
            idle_limit: None,
            configuration_version: 0,
        };
        Client {
            session: Session::new(opened, Downstream::default()),
            actions: Actions::default(),
            leased: None,
            parked: None,
            asked: None,
            from_client: BytesMut::new(),
            got: BytesMut::new(),
            random,
            left,
            plan: None,
            is_final: false,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.run_to_end(self.setup.has_faults)?;
        // All have ended: a last look at every list.
        let random = generator(0, Purpose::Setup);
        let mut last = self.client(random, 0);
        last.is_final = true;
        self.clients = vec![last];
        for table in 1..=self.setup.tables {
            let now = self.relay.now.get();
            let mut plan = Plan { invoked: now, ..Plan::default() };
            plan.steps.push(Step::Read(table));
            plan.packets.push(query(&format!("select v from t{table}")));
            self.clients[0].plan = Some(plan);
            self.run_to_end(false)?;
        }
        Ok(())
    }

    fn run_to_end(&mut self, has_faults: bool) -> Result<(), String> {
        while self.clients.iter().any(|client| client.left > 0 || client.plan.is_some()) {
            self.relay.now.set(self.relay.now.get() + 1);
            self.ran.steps += 1;
            if self.ran.steps > STEPS_MAX {
                return Err("it never ends".to_owned());
            }
            if has_faults && self.random.random_ratio(1, FAULT_EVERY) {
                self.strike();
            } else if !self.something_happens() {
                return Err(self.stuck());
            }
            if let Some(wrong) = self.wrong.take() {
                return Err(wrong);
            }
        }
        Ok(())
    }

    fn stuck(&self) -> String {
        let waits = |client: &&Client| client.plan.is_some();
        let client = self.clients.iter().find(waits);
        format!(
            "a client waits in vain: {:?}",
            client.map(|client| (&client.plan, &client.session))
        )
    }

    /// One thing of those that can happen, drawn.
    fn something_happens(&mut self) -> bool {
        let kinds = self.clients.len() + 3;
        let first = self.random.random_range(0..kinds);
        (0..kinds).any(|turn| match (first + turn) % kinds {
            0 => self.stream_brings(),
            1 => self.replica_applies(),
            2 => self.relay_looks(),
            number => self.client_goes_on(number - 3),
        })
    }

    fn stream_brings(&mut self) -> bool {
        let cluster = self.cluster.borrow();
        let Some(commit) = cluster.commits.get(self.streamed) else { return false };
        self.streamed += 1;
        let tables = commit.appends.iter().filter_map(|(table, _)| table[1..].parse().ok());
        let has_ddl = !commit.ddl.is_empty();
        let items = match has_ddl {
            true => Items::Everything,
            false => Items::tables(tables.map(RelId)),
        };
        let mut freshness = self.relay.freshness.borrow_mut();
        freshness.entry(Tsid(self.streamed as u64), commit.xid as u32, &items);
        freshness.passed(Lsn(self.streamed as u64));
        if has_ddl {
            self.relay.changes.set(self.relay.changes.get() + 1);
        }
        true
    }

    fn replica_applies(&mut self) -> bool {
        let first = self.random.random_range(0..REPLICAS);
        let applied = &self.relay.applied;
        let behind = |at: &usize| applied[*at].get() < self.streamed;
        let at = (0..REPLICAS).map(|turn| (first + turn) % REPLICAS).find(behind);
        at.is_some_and(|at| {
            applied[at].set(applied[at].get() + 1);
            true
        })
    }

    /// The catalog is read, or the primary asked for its position.
    fn relay_looks(&mut self) -> bool {
        if self.relay.is_unread() {
            let version = self.relay.catalog_version() + 1;
            *self.relay.catalog.borrow_mut() = catalog(version, self.setup.tables);
            self.relay.read_at.set(self.relay.changes.get());
            return true;
        }
        let mut freshness = self.relay.freshness.borrow_mut();
        let pending = freshness.want_lsn(self.relay.now.get());
        if pending.is_empty() {
            return false;
        }
        freshness.nothing_after(&pending, Lsn(self.cluster.borrow().commits.len() as u64));
        true
    }

    fn client_goes_on(&mut self, number: usize) -> bool {
        if let Some(asked) = self.clients[number].asked.take() {
            self.answer(number, asked);
        } else if !self.moves_bytes(number) && !self.begins(number) {
            return false;
        }
        self.carry_out(number);
        self.tell(number);
        true
    }

    fn event(&mut self, number: usize, event: Event<'_>) {
        let client = &mut self.clients[number];
        client.session.step(event, &*self.relay, &mut client.actions);
    }

    fn answer(&mut self, number: usize, asked: Asked) {
        match asked {
            Asked::Route => {
                let read = self.clients[number].session.wanted();
                let route = read.map(|read| self.relay.route(read.items, read.not));
                if let Some(route) = route {
                    self.ran.at_replicas += u64::from(route.site != SiteId::Primary);
                    self.event(number, Event::Routed(route));
                }
            }
            Asked::Lease(_) if self.setup.has_faults && self.random.random_ratio(1, 200) => {
                self.ran.faults += 1;
                self.event(number, Event::Refused(Report::error("57P03", "not available")));
            }
            Asked::Lease(site) => {
                let (leased, up) = self.lease(site);
                self.clients[number].leased = Some(leased);
                self.event(number, Event::Leased(up));
            }
        }
    }

    fn lease(&mut self, site: SiteId) -> (Leased, Box<Upstream>) {
        if let Some(at) = self.idle.iter().position(|(idle, _)| idle.site == site) {
            return self.idle.swap_remove(at);
        }
        let applied = match site {
            SiteId::Primary => None,
            SiteId::Replica(number) => Some(self.relay.applied[number].clone()),
        };
        let connection = Connection::new(self.cluster.clone(), applied);
        self.next_pid += 1;
        let up = Upstream::new(site != SiteId::Primary, self.next_pid, BytesMut::new());
        (Leased { site, connection }, Box::new(up))
    }

    /// Something of what is on its way arrives.
    fn moves_bytes(&mut self, number: usize) -> bool {
        let first = self.random.random_range(0..4);
        (0..4).any(|turn| match (first + turn) % 4 {
            0 => self.server_receives(number),
            1 => self.server_answers(number),
            2 => self.client_arrives(number),
            _ => self.time_passes(number),
        })
    }

    fn server_receives(&mut self, number: usize) -> bool {
        let client = &mut self.clients[number];
        let output = client.session.to_server().filter(|output| !output.is_empty());
        let (Some(output), Some(leased)) = (output, &mut client.leased) else { return false };
        // A part of it, now and then.
        let count = match self.random.random_ratio(1, 3) {
            true => self.random.random_range(1..=output.len()),
            false => output.len(),
        };
        leased.connection.receive(&output.split_to(count));
        if output.is_empty() && client.session.wants_sent() {
            self.event(number, Event::Sent);
        }
        true
    }

    fn server_answers(&mut self, number: usize) -> bool {
        let client = &mut self.clients[number];
        let Some(leased) = client.leased.as_mut().filter(|_| client.session.wants_server()) else {
            return false;
        };
        let Some(frame) = leased.connection.frames.pop_front() else { return false };
        self.event(number, Event::Server(&frame));
        true
    }

    fn client_arrives(&mut self, number: usize) -> bool {
        let client = &mut self.clients[number];
        if client.from_client.is_empty() || !client.session.wants_client() {
            return false;
        }
        let count = match self.random.random_ratio(1, 3) {
            true => self.random.random_range(1..=client.from_client.len()),
            false => client.from_client.len(),
        };
        let bytes = client.from_client.split_to(count);
        client.session.down.input.extend_from_slice(&bytes);
        self.event(number, Event::Client);
        true
    }

    fn time_passes(&mut self, number: usize) -> bool {
        let session = &self.clients[number].session;
        if session.waits_for_catalog().is_some_and(|awaited| self.relay.has_catalog(awaited)) {
            self.event(number, Event::Known);
            return true;
        }
        // Only where something is on its way, or waits: else it would pass for ever.
        let is_due =
            !self.clients[number].from_client.is_empty() || session.activity() == Activity::Active;
        if session.deadline(IdleLimits::default()).is_some() && is_due {
            self.event(number, Event::Deadline);
            return true;
        }
        false
    }

    fn carry_out(&mut self, number: usize) {
        while let Some(action) = self.clients[number].actions.pop_front() {
            let client = &mut self.clients[number];
            let now = self.relay.now.get();
            let untold = self.setup.planted == Some(Planted::WritesUntold);
            let mut freshness = self.relay.freshness.borrow_mut();
            match action {
                Action::Lease(site) => client.asked = Some(Asked::Lease(site)),
                Action::Route => client.asked = Some(Asked::Route),
                Action::Release(up) => {
                    let Some(leased) = client.leased.take() else { continue };
                    if let Some(why) = leased.connection.dirt(&up.settings.shown()) {
                        self.wrong = Some(format!("a connection is released though {why}"));
                    }
                    self.idle.push((leased, up));
                }
                Action::Park => client.parked = client.leased.take(),
                Action::Resume => client.leased = client.parked.take(),
                Action::Discard(_) => {
                    if let Some(mut leased) = client.leased.take() {
                        leased.connection.roll_back();
                    }
                }
                Action::Begin { .. } | Action::End { .. } | Action::Doubt(_) if untold => {}
                Action::Begin { write, items, may_define } => {
                    freshness.begin_as(write, items, may_define);
                }
                Action::End { write, .. } if self.setup.planted == Some(Planted::EndsForgotten) => {
                    freshness.nothing(write);
                }
                Action::End { write, outcome: events::Outcome::Nothing, .. } => {
                    freshness.nothing(write)
                }
                Action::End { write, outcome: events::Outcome::Committed(xid), .. } => {
                    freshness.acknowledged(write, xid, now);
                }
                Action::End { write, outcome: events::Outcome::Unidentified, .. }
                | Action::Doubt(write) => {
                    freshness.unidentified(write, now);
                }
                _ => {}
            }
        }
    }

    /// The client takes what there is for it.
    fn tell(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.got.unsplit(client.session.down.settled.split());
        if client.session.tells_client() || client.session.has_ended() {
            client.got.extend_from_slice(&client.session.down.output);
            client.session.down.output.clear();
        }
        while let Some((tag, whole)) = frame::whole(&client.got).ok().flatten() {
            let message = whole.to_vec();
            let _ = client.got.split_to(message.len());
            if let Some(plan) = &mut client.plan {
                plan.take(tag, frame::body(&message));
            }
        }
        if self.clients[number].session.has_ended() {
            self.client_ended(number);
        } else if self.clients[number].plan.as_ref().is_some_and(Plan::is_done) {
            self.transaction_ended(number, None);
        }
    }

    /// The next packet of the client's transaction is sent, or the next transaction begins.
    fn begins(&mut self, number: usize) -> bool {
        let now = self.relay.now.get();
        let client = &mut self.clients[number];
        if client.plan.is_none() {
            if client.left == 0 {
                return false;
            }
            client.left -= 1;
            let mut plan = Plan::draw(&mut client.random, self.setup.tables, &mut self.next_value);
            plan.invoked = now;
            client.plan = Some(plan);
        }
        let Some(plan) = client.plan.as_mut().filter(|plan| plan.awaits == 0) else { return false };
        if plan.failed && plan.status != b'I' {
            // What comes next is given up.
            plan.packets = vec![query("rollback")];
        }
        if plan.packets.is_empty() {
            return false;
        }
        let packet = plan.packets.remove(0);
        plan.awaits = packet.answers;
        client.from_client.extend_from_slice(&packet.bytes);
        true
    }

    /// A transaction's end is known, or won't be.
    fn transaction_ended(&mut self, number: usize, outcome: Option<Outcome>) {
        let client = &mut self.clients[number];
        let Some(plan) = client.plan.take() else { return };
        let outcome = outcome.unwrap_or(if plan.has_committed() {
            Outcome::Committed
        } else {
            Outcome::Aborted
        });
        *match outcome {
            Outcome::Committed => &mut self.ran.committed,
            Outcome::Aborted => &mut self.ran.aborted,
            Outcome::Unknown => &mut self.ran.unknown,
        } += 1;
        let mut rows = plan.rows.iter();
        let mut ops = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Append(table, value) => ops.push(Op::append(format!("t{table}"), *value)),
                Step::Read(table) => {
                    let Some(row) = rows.next() else { continue };
                    let seen = row.split(',').filter_map(|value| value.parse::<i64>().ok());
                    ops.push(Op::list(format!("t{table}"), seen));
                }
            }
        }
        let pushed = self.history.push(Transaction {
            process: number as i64 + if client.is_final { 1_000 } else { 0 },
            invoked: plan.invoked as i64,
            completed: (outcome != Outcome::Unknown).then(|| self.relay.now.get() as i64),
            outcome,
            is_final: client.is_final,
            ops,
        });
        if let Err(bad) = pushed {
            self.wrong = Some(bad.to_string());
        }
    }

    /// A client's session has ended; it opens another.
    fn client_ended(&mut self, number: usize) {
        let plan = self.clients[number].plan.as_ref();
        let outcome = match plan {
            Some(plan) if plan.is_done() => None,
            // It closed the connection without a word, or said that it doesn't know.
            Some(plan) if !plan.failed || plan.ends.last().is_none_or(|end| end == "08007") => {
                Some(Outcome::Unknown)
            }
            _ => Some(Outcome::Aborted),
        };
        self.transaction_ended(number, outcome);
        let (left, random) = (self.clients[number].left, self.clients[number].random.clone());
        if self.clients[number].leased.is_some() {
            self.wrong = Some("a session has ended and keeps its connection".to_owned());
        }
        self.clients[number] = self.client(random, left);
    }

    fn strike(&mut self) {
        self.ran.faults += 1;
        let number = self.random.random_range(0..self.clients.len());
        match self.random.random_range(0..5) {
            0 => self.lose_server(number),
            1 => self.cluster.borrow_mut().cancels_next = true,
            2 => {
                let client = &mut self.clients[number];
                if client.plan.is_none() {
                    return;
                }
                // Nobody hears what comes of it.
                client.session.down.gone = true;
                client.from_client.clear();
                if let Some(plan) = &mut client.plan {
                    plan.ends.clear();
                }
                self.event(number, Event::Client);
            }
            3 => self.event(number, Event::Stopped),
            _ => self.restart_replica(),
        }
        self.carry_out(number);
        self.tell(number);
    }

    fn lose_server(&mut self, number: usize) {
        if let Some(leased) = &mut self.clients[number].leased {
            leased.connection.roll_back();
            leased.connection.frames.clear();
            self.event(number, Event::Lost("it is gone".to_owned()));
        }
    }

    /// A replica restarts with what it had made durable.
    fn restart_replica(&mut self) {
        let number = self.random.random_range(0..REPLICAS);
        let (site, applied) = (SiteId::Replica(number), &self.relay.applied[number]);
        let durable = self.random.random_range(0..=applied.get().min(3));
        applied.set(applied.get() - durable);
        self.idle.retain(|(idle, _)| idle.site != site);
        for number in 0..self.clients.len() {
            if self.clients[number].leased.as_ref().is_some_and(|leased| leased.site == site) {
                self.lose_server(number);
                self.carry_out(number);
                self.tell(number);
            }
        }
    }
}

impl Plan {
    fn draw(random: &mut Random, tables: u32, next_value: &mut i64) -> Plan {
        let mut step = |random: &mut Random| {
            let table = random.random_range(1..=tables);
            if random.random_ratio(1, 2) {
                return Step::Read(table);
            }
            *next_value += 1;
            Step::Append(table, *next_value)
        };
        let count = if random.random_ratio(1, 2) { 1 } else { random.random_range(2..5) };
        let steps: Vec<Step> = (0..count).map(|_| step(random)).collect();
        let mut texts: Vec<String> = steps.iter().map(Step::text).collect();
        let is_block = count > 1;
        let rolls_back = is_block && random.random_ratio(1, 8);
        let has_ddl = random.random_ratio(1, 12);
        if has_ddl {
            texts.push(format!("create table x{} (c int)", random.random_range(0..1_000_000)));
        }
        let mut plan = Plan { steps, ..Plan::default() };
        // DDL alone behind one step would be another transaction.
        if is_block || has_ddl {
            texts.insert(0, "begin isolation level repeatable read".to_owned());
            texts.push(if rolls_back { "rollback" } else { "commit" }.to_owned());
        }
        plan.packets = match random.random_range(0..5) {
            // One after another.
            0 | 1 => texts.iter().map(|text| query(text)).collect(),
            2 => texts.iter().map(|text| unit(std::slice::from_ref(text))).collect(),
            // All at once.
            3 => vec![unit(&texts)],
            _ => vec![query(&texts.join("; "))],
        };
        plan
    }

    fn take(&mut self, tag: u8, body: &[u8]) {
        match tag {
            tag::DATA_ROW => {
                let row = read_data_row(body).unwrap_or_default();
                let first = row.first().copied().flatten().unwrap_or_default();
                self.rows.push(String::from_utf8_lossy(first).into_owned());
            }
            tag::COMMAND_COMPLETE => {
                let command = String::from_utf8_lossy(body);
                self.ends.push(command.trim_end_matches('\0').to_owned());
            }
            tag::ERROR => {
                self.failed = true;
                let fields = ErrorFields::read(body).unwrap_or_default();
                self.ends.push(fields.code().to_owned());
            }
            tag::READY_FOR_QUERY => {
                self.awaits = self.awaits.saturating_sub(1);
                self.status = body[0];
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        let gives_up = self.failed && self.status == b'I';
        self.awaits == 0
            && !self.ends.is_empty()
            && (self.packets.is_empty() || gives_up)
            && self.status == b'I'
    }

    fn has_committed(&self) -> bool {
        !self.failed && self.ends.last().is_some_and(|end| end != "ROLLBACK")
    }
}

impl Step {
    fn text(&self) -> String {
        match self {
            Step::Read(table) => format!("select v from t{table}"),
            Step::Append(table, value) => format!("update t{table} set v = v || {value}"),
        }
    }
}

fn query(text: &str) -> Packet {
    let mut out = BytesMut::new();
    frontend::query(text.as_bytes(), &mut out);
    Packet { bytes: out.to_vec(), answers: 1 }
}

/// Statements by the extended protocol, with one Sync.
fn unit(texts: &[String]) -> Packet {
    let mut out = BytesMut::new();
    for text in texts {
        Parse { statement: b"", query: text.as_bytes(), types: &[0, 0] }.write(&mut out);
        frontend::bind(b"", b"", std::iter::empty(), &mut out);
        frontend::describe(Target::Portal, b"", &mut out);
        frontend::execute(b"", 0, &mut out);
    }
    frontend::sync(&mut out);
    Packet { bytes: out.to_vec(), answers: 1 }
}
