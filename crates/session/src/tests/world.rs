//! A session with a client, a primary and two replicas: the messages between them, and the conditions that must
//! hold.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hihooi_replication::freshness::WriteId;
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::{Granularity, Items, RelId};
use hihooi_replication::primary_equivalent::Dispatched;
use hihooi_sql::catalog_builder::{FunctionRow, RelationRow, Volatility};
use hihooi_sql::{Analysis, Builder, Cache, Catalog, Isolation, SearchPath};
use hihooi_wire::backend::{ErrorFields, Report, read_data_row, tag};
use hihooi_wire::frame;
use hihooi_wire::frontend::{self, Bind, Parse, tag as sent};

use crate::consistency::Consistency;
use crate::downstream::Downstream;
use crate::events::{
    Action, Actions, AwaitedCatalog, Counter, Env, Event, Meaning, Outcome, Prepared, SchemaVersion,
};
use crate::own_settings::OwnSettings;
use crate::own_types::{Needs, Objects};
use crate::route::{Reason, Route, SnapshotName};
use crate::session::{IdleLimits, Opened, Session};
use crate::sites::SiteId;
use crate::state::MeaningfulSettings;
use crate::upstream::Upstream;
use hihooi_sim::postgres::{Cluster, Connection, FIRST_XID};

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The connection to the server breaks.
    ServerLost,
    /// The server says that it ends the connection, and does.
    ServerShutDown,
    /// It answers all that it was sent, says so right behind it, and does.
    ShutDownBehind,
    /// The next connection that is asked for can't be had.
    Refused,
    /// The next statement that a server runs is cancelled.
    Cancelled,
    /// The client is gone.
    ClientGone,
    /// The manager stops.
    Stopped,
    /// The client has been silent for long.
    Deadline,
}

/// An operator who lets no client be idle for long.
const IMPATIENT: IdleLimits = IdleLimits {
    outside: Some(Duration::from_secs(1)),
    in_transaction: Some(Duration::from_secs(1)),
};

impl Fault {
    pub(super) const ALL: [Fault; 8] = [
        Fault::ServerLost,
        Fault::ServerShutDown,
        Fault::ShutDownBehind,
        Fault::Refused,
        Fault::Cancelled,
        Fault::ClientGone,
        Fault::Stopped,
        Fault::Deadline,
    ];
}

/// How bytes come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pieces {
    /// A frame at a time.
    Frames,
    /// So many bytes at a time.
    Bytes(usize),
    /// All that there are.
    All,
}

/// What a test's relay lends.
struct Lent {
    /// Without the function f, and with it.
    catalogs: [Catalog; 2],
    cache: RefCell<Cache>,
    statements: RefCell<HashMap<(Bytes, Bytes, Meaning), Arc<Prepared>>>,
    /// Of all replicas.
    objects: Arc<Objects>,
    now: Cell<u64>,
    /// The catalog lacks what the stream brought.
    is_behind: Cell<bool>,
    /// So many transactions changed the schema.
    definitions: Cell<u64>,
    /// So many answers of replicas may show another order than the primary did.
    forked: Cell<u32>,
    /// So many answers of replicas lack rows of a table.
    voided: Cell<u32>,
    /// So many that had to be discarded were not yet.
    undiscarded: Cell<u32>,
}

thread_local! {
    /// One for all tests of a thread: texts are analysed once.
    static LENT: Rc<Lent> = Rc::new(Lent::new());
}

impl Lent {
    fn catalog(version: u64) -> Catalog {
        let mut builder = Builder::default();
        for (id, name) in [(1, "t"), (2, "u")] {
            builder.relation(RelationRow {
                id: RelId(id),
                schema: "public",
                name,
                kind: "r",
                persistence: "p",
                code: "",
                has_rules: false,
            });
        }
        for name in ["set_config", "nextval"] {
            builder.builtin(name, Volatility::Volatile);
        }
        builder.builtin("format_type", Volatility::Stable);
        if version > 1 {
            builder.function(FunctionRow {
                schema: "public",
                name: "f",
                volatility: Volatility::Immutable,
                language: "sql",
                takes_row: false,
                returns: "int4",
                body: "select $1",
                types: "",
            });
        }
        builder.build(version)
    }

    fn new() -> Lent {
        Lent {
            catalogs: [Lent::catalog(1), Lent::catalog(2)],
            cache: RefCell::default(),
            statements: RefCell::default(),
            objects: {
                let mut objects = Objects::default();
                objects.add_type(20_000, 30_000, false);
                objects.add_parameter(20_000, 30_000);
                Arc::new(objects)
            },
            now: Cell::new(0),
            is_behind: Cell::new(false),
            definitions: Cell::new(0),
            forked: Cell::new(0),
            voided: Cell::new(0),
            undiscarded: Cell::new(0),
        }
    }
}

impl Lent {
    fn catalog_now(&self) -> &Catalog {
        &self.catalogs[usize::from(!self.is_behind.get())]
    }
}

impl Env for Lent {
    fn now(&self) -> Duration {
        self.now.set(self.now.get() + 1);
        Duration::from_millis(self.now.get())
    }
    fn analyse(&self, text: &str, path: Option<&SearchPath>) -> Arc<Analysis> {
        self.cache.borrow_mut().get(text, self.catalog_now(), path)
    }
    fn schema(&self) -> SchemaVersion {
        (self.catalog_now().version(), self.definitions.get())
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
        self.catalog_now().version()
    }
    fn is_catalog_stale(&self) -> bool {
        self.is_behind.get()
    }
    fn has_catalog(&self, AwaitedCatalog { write, .. }: AwaitedCatalog) -> bool {
        !self.is_catalog_stale() && write.is_none_or(|write| self.knows(write))
    }
    fn is_catalog_unread(&self) -> bool {
        self.is_behind.get()
    }

    fn configuration_version(&self) -> u64 {
        0
    }
    fn knows(&self, _: WriteId) -> bool {
        !self.is_behind.get()
    }
    fn custom_settings(&self) -> Vec<Box<str>> {
        vec!["app.tenant".into()]
    }
    fn is_in_flight(&self, items: &Items) -> bool {
        // Others write u all the time.
        items.overlaps(&Items::tables([RelId(2)]))
    }
    fn has_replicas(&self) -> bool {
        true
    }
    fn needs(&self, _: u64) -> Option<Needs> {
        None
    }
    fn objects(&self, site: SiteId) -> Option<Arc<Objects>> {
        let is_replica = site != SiteId::Primary;
        is_replica.then(|| self.objects.clone())
    }
    fn still_serves(&self, _: &Route) -> bool {
        true
    }
    fn may_be_forked(&self, _: &Route, _: &Items) -> bool {
        let left = self.forked.get();
        self.forked.set(left.saturating_sub(1));
        self.undiscarded.set(self.undiscarded.get() + u32::from(left > 0));
        left > 0
    }
    fn is_void(&self, _: &Route) -> bool {
        let left = self.voided.get();
        self.voided.set(left.saturating_sub(1));
        self.undiscarded.set(self.undiscarded.get() + u32::from(left > 0));
        left > 0
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
        match site {
            SiteId::Primary => "primary",
            SiteId::Replica(0) => "replica1",
            SiteId::Replica(_) => "replica2",
        }
    }
}

struct Leased {
    site: SiteId,
    connection: Connection,
}

/// All of it.
pub(super) struct World {
    env: Rc<Lent>,
    session: Session,
    actions: Actions,
    cluster: Rc<RefCell<Cluster>>,
    /// Commits that replicas show: all, at once.
    applied: Rc<Cell<usize>>,
    leased: Option<Leased>,
    parked: Option<Leased>,
    idle: Vec<(Leased, Box<Upstream>)>,
    next_pid: i32,
    refuses_next: bool,
    /// The server that speaks next shuts down behind it.
    shuts_down: bool,
    /// Connections that are leased have sequence numbers of other sessions.
    pub(super) numbers_are_foreign: bool,
    /// The next exported snapshot can't be imported.
    pub(super) expires_next: bool,
    pieces: Pieces,
    /// What the client has sent and nobody has read.
    from_client: BytesMut,
    /// What the client has.
    pub(super) client: Vec<u8>,
    client_is_gone: bool,
    fault: Option<(usize, Fault)>,
    /// Events so far.
    pub(super) events: usize,
    /// What happened, a line each, unless nobody will read it: it takes longer than all else.
    pub(super) trace: Vec<String>,
    is_traced: bool,
    begun: Vec<WriteId>,
    outcomes: Vec<(WriteId, Option<Outcome>)>,
    /// Transactions that committed, and the writes that had begun then.
    committed: Vec<(u64, Vec<WriteId>)>,
    /// What must not be.
    pub(super) wrong: Vec<String>,
}

impl World {
    pub(super) fn new(pieces: Pieces, fault: Option<(usize, Fault)>) -> World {
        let opened = Opened {
            id: 1,
            is_replicated: true,
            own: OwnSettings {
                consistency: Consistency::Gssi,
                wait_ms: 100,
                granularity: Granularity::Range,
                statement_routing: true,
                snapshot_routing: true,
            },
            untold: vec![("role".to_owned(), "none".to_owned())],
            path: SearchPath::new(["public"]),
            isolation: Isolation::ReadCommitted,
            has_plain_strings: true,
            may_lack_events: false,
            idle_limit: None,
            configuration_version: 0,
        };
        LENT.with(|lent| {
            lent.is_behind.set(false);
            lent.definitions.set(0);
            lent.statements.borrow_mut().clear(); // what clients of other worlds were told is nothing to these
            lent.forked.set(0);
            lent.voided.set(0);
            lent.undiscarded.set(0);
        });
        World {
            env: LENT.with(Rc::clone),
            session: Session::new(opened, Downstream::default()),
            actions: Actions::default(),
            cluster: Rc::default(),
            applied: Rc::default(),
            leased: None,
            parked: None,
            idle: Vec::new(),
            next_pid: 1,
            refuses_next: false,
            shuts_down: false,
            numbers_are_foreign: false,
            expires_next: false,
            pieces,
            from_client: BytesMut::new(),
            client: Vec::new(),
            client_is_gone: false,
            fault,
            events: 0,
            trace: Vec::new(),
            is_traced: true,
            begun: Vec::new(),
            outcomes: Vec::new(),
            committed: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Without a trace.
    pub(super) fn untold(self) -> World {
        World { is_traced: false, ..self }
    }

    fn tell(&mut self, line: impl FnOnce(&World) -> String) {
        if self.is_traced {
            let line = line(self);
            self.trace.push(line);
        }
    }

    fn show(&self, action: &Action) -> String {
        match action {
            Action::Lease(site) => format!("Lease({})", self.env.site_name(*site)),
            Action::Release(_) => "Release".to_owned(),
            Action::Discard(_) => "Discard".to_owned(),
            Action::Begin { items, .. } => format!("Begin({items:?})"),
            Action::End { outcome, everywhere, .. } => {
                let waits = if *everywhere { ", everywhere" } else { "" };
                format!("End({outcome:?}{waits})")
            }
            Action::Doubt(_) => "Doubt".to_owned(),
            Action::Note(route) => format!("Note({})", route.reason.as_str()),
            Action::Took(..) => "Took".to_owned(),
            Action::Hash(passwords) => format!("Hash({passwords:?})"),
            other => format!("{other:?}"),
        }
    }

    /// The client sends this, and all goes on as far as it can.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if self.client_is_gone || self.session.has_ended() {
            return;
        }
        self.from_client.extend_from_slice(bytes);
        self.run();
    }

    /// The client says nothing for long.
    pub(super) fn wait(&mut self) {
        if self.session.deadline(IdleLimits::default()).is_some() {
            self.event(Event::Deadline);
            self.run();
        }
    }

    /// One more answer of a replica may show another order than the primary did.
    pub(super) fn voided(&mut self) {
        self.env.voided.set(self.env.voided.get() + 1);
    }

    pub(super) fn forked(&mut self) {
        self.env.forked.set(self.env.forked.get() + 1);
    }

    /// Pools have no connections left.
    pub(super) fn close_idle(&mut self) {
        self.idle.clear();
    }

    /// The catalog falls behind, or catches up.
    pub(super) fn set_behind(&mut self, is_behind: bool) {
        self.env.is_behind.set(is_behind);
        if !is_behind && self.session.waits_for_catalog().is_some() {
            self.event(Event::Known);
            self.run();
        }
    }

    /// Nobody has ended the session: the client, alive, must get an answer to what it asks now. (If it was in the
    /// middle of a COPY, the question ends that, and is asked again.)
    pub(super) fn probe(&mut self) {
        let mut bytes = BytesMut::new();
        frontend::sync(&mut bytes);
        frontend::query(b"select probe", &mut bytes);
        let mut got = Vec::new();
        for _ in 0..2 {
            if self.client_is_gone || self.session.has_ended() {
                return;
            }
            let before = self.client.len();
            self.send(&bytes);
            got = frames(&self.client[before..]);
            if got.len() >= 3 && got.last().is_some_and(|last| last[0] == b'Z') {
                return;
            }
        }
        if !self.session.has_ended() {
            self.wrong.push(format!("the client waits in vain: {}", show_all(&got)));
        }
    }

    /// Whoever was told a fatal error isn't served any more.
    pub(super) fn judge_end(&mut self) {
        let is_fatal = |frame: &Vec<u8>| show_answer(frame).starts_with("E:FATAL");
        if frames(&self.client).iter().any(is_fatal) && !self.session.has_ended() {
            self.wrong.push("I1: a fatal error is told, and the session goes on".to_owned());
        }
        if self.env.undiscarded.get() > 0 {
            self.wrong
                .push("I3: an answer stands that may show another order, or lack rows".to_owned());
        }
    }

    /// The client says goodbye; then all must be in order.
    pub(super) fn end(&mut self) {
        let mut bytes = BytesMut::new();
        frontend::terminate(&mut bytes);
        self.send(&bytes);
        self.judge_left();
    }

    /// Snapshots at replicas end with 40001 where they can't go on; without them, the client sees no difference.
    pub(super) fn without_snapshots(&mut self) {
        let set = self.session.set_own("snapshot_routing", "off");
        assert!(set.is_ok());
        self.session.starts(); // RESET ALL leaves it so
    }

    /// The client may send what no script does.
    pub(super) fn takes_anything(&mut self) {
        self.cluster.borrow_mut().takes_anything = true;
    }

    /// The client goes without a word; then all must be in order.
    pub(super) fn client_leaves(&mut self) {
        if !self.session.has_ended() {
            self.strike(Fault::ClientGone);
            self.run();
        }
        self.judge_left();
    }

    fn judge_left(&mut self) {
        if !self.session.has_ended() {
            self.wrong.push("the session doesn't end".to_owned());
        }
        if self.leased.is_some() {
            self.wrong.push("a connection is kept for ever".to_owned());
        }
        for write in &self.begun {
            self.wrong.push(format!("a write is forgotten: {write:?}"));
        }
        for (xid, begun) in &self.committed {
            let tells = |(write, outcome): &&(WriteId, Option<Outcome>)| {
                begun.contains(write)
                    && match outcome {
                        Some(Outcome::Committed(told)) => told.0 == *xid,
                        Some(Outcome::Unidentified) | None => true,
                        Some(Outcome::Nothing) => false,
                    }
            };
            if !self.outcomes.iter().any(|outcome| tells(&outcome)) {
                self.wrong
                    .push(format!("I3: transaction {xid} committed, and no read waits for it"));
            }
        }
        for frame in frames(&self.client) {
            let shown = show_answer(&frame);
            if shown.starts_with(&format!("D:{}", FIRST_XID / 100_000)) {
                self.wrong.push(format!("I1: the client sees {shown}"));
            }
        }
    }

    /// Something happens; not if something else comes first.
    fn event(&mut self, event: Event<'_>) -> bool {
        let at = self.events;
        self.events += 1;
        if let Some((when, fault)) = self.fault
            && when == at
        {
            self.fault = None;
            if self.strike(fault) {
                return false; // what would have come next doesn't
            }
        }
        self.session.step(event, &*self.env, &mut self.actions);
        true
    }

    /// Whether what was about to happen can't any more.
    fn strike(&mut self, fault: Fault) -> bool {
        self.tell(|_| format!("    {fault:?}"));
        let event = match fault {
            Fault::ServerLost | Fault::ServerShutDown => {
                let Some(leased) = &mut self.leased else { return false };
                leased.connection.frames.clear();
                if fault == Fault::ServerShutDown {
                    leased.connection.shut_down();
                    let frame = leased.connection.frames.pop_front().expect("its words");
                    self.session.step(Event::Server(&frame), &*self.env, &mut self.actions);
                } else {
                    leased.connection.roll_back();
                }
                Event::Lost("it is gone".to_owned())
            }
            Fault::ShutDownBehind => {
                self.shuts_down = true;
                return false;
            }
            Fault::Refused => {
                self.refuses_next = true;
                return false;
            }
            Fault::Cancelled => {
                self.cluster.borrow_mut().cancels_next = true;
                return false;
            }
            Fault::ClientGone => {
                self.client_is_gone = true;
                self.from_client.clear();
                self.session.down.gone = true;
                self.session.step(Event::Client, &*self.env, &mut self.actions);
                return false;
            }
            Fault::Stopped => Event::Stopped,
            Fault::Deadline if self.session.deadline(IMPATIENT).is_some() => {
                self.session.step(Event::Deadline, &*self.env, &mut self.actions);
                return false;
            }
            Fault::Deadline => return false,
        };
        self.session.step(event, &*self.env, &mut self.actions);
        true
    }

    fn run(&mut self) {
        loop {
            while let Some(action) = self.actions.pop_front() {
                self.carry_out(action);
            }
            self.tell_client();
            if self.session.has_ended() || !self.exchange() {
                return;
            }
        }
    }

    fn tell_client(&mut self) {
        let tells = self.session.has_ended() || self.session.tells_client();
        let mut output = std::mem::take(&mut self.session.down.settled);
        if tells {
            output.unsplit(std::mem::take(&mut self.session.down.output));
        }
        if !output.is_empty() && !self.client_is_gone {
            self.client.extend_from_slice(&output);
            self.tell(|_| format!("  client < {}", show_all(&frames(&output))));
        }
    }

    /// Moves something; whether there was anything to move.
    fn exchange(&mut self) -> bool {
        let output = self.session.to_server().filter(|output| !output.is_empty());
        if let Some(output) = output.map(std::mem::take)
            && let Some(leased) = &mut self.leased
        {
            let before = self.cluster.borrow().commits.len();
            leased.connection.receive(&output);
            let cluster = self.cluster.borrow();
            self.applied.set(cluster.commits.len());
            let new = &cluster.commits[before..];
            self.committed.extend(new.iter().map(|commit| (commit.xid, self.begun.clone())));
            let definitions = new.iter().filter(|commit| !commit.ddl.is_empty()).count() as u64;
            self.env.definitions.set(self.env.definitions.get() + definitions);
            drop(cluster);
            let site = leased.site;
            self.tell(|world| format!("  {} < {}", world.env.site_name(site), show_sent(&output)));
            if self.session.wants_sent() {
                self.event(Event::Sent);
            }
            return true;
        }
        if let Some(bytes) = self.last_of_server() {
            self.event(Event::Server(&bytes));
            // Whoever has the connection by now finds it closed.
            while let Some(action) = self.actions.pop_front() {
                self.carry_out(action);
            }
            if self.leased.is_some() && !self.session.has_ended() {
                self.event(Event::Lost("it is gone".to_owned()));
            }
            return true;
        }
        if let Some(bytes) = self.next_of_server() {
            self.event(Event::Server(&bytes));
            return true;
        }
        if self.session.wants_client() && !self.from_client.is_empty() {
            let len = self.from_client.len();
            let count = match self.pieces {
                Pieces::Bytes(count) => count.min(len),
                Pieces::Frames => {
                    frame::peek(&self.from_client).expect("a frame").map_or(len, |head| head.len)
                }
                Pieces::All => len,
            };
            let bytes = self.from_client.split_to(count);
            self.session.down.input.extend_from_slice(&bytes);
            self.event(Event::Client);
            return true;
        }
        false
    }

    /// All that a server has to say which shuts down.
    fn last_of_server(&mut self) -> Option<Bytes> {
        let leased = self.leased.as_mut().filter(|_| self.shuts_down)?;
        if leased.connection.frames.is_empty() {
            return None;
        }
        self.shuts_down = false;
        leased.connection.shut_down();
        Some(leased.connection.frames.drain(..).flatten().collect::<Vec<u8>>().into())
    }

    fn next_of_server(&mut self) -> Option<Bytes> {
        let leased = self.leased.as_mut().filter(|_| self.session.wants_server())?;
        let frames = &mut leased.connection.frames;
        match self.pieces {
            Pieces::Frames => frames.pop_front(),
            Pieces::Bytes(count) => {
                let mut first = frames.pop_front()?;
                let piece = first.split_to(count.min(first.len()));
                if !first.is_empty() {
                    frames.push_front(first);
                }
                Some(piece)
            }
            Pieces::All if frames.is_empty() => None,
            Pieces::All => Some(frames.drain(..).flatten().collect::<Vec<u8>>().into()),
        }
    }

    fn carry_out(&mut self, action: Action) {
        // (How soon a replica answers changes nothing for the session.)
        if !matches!(action, Action::Answered(..)) {
            self.tell(|world| format!("  do {}", world.show(&action)));
        }
        match action {
            Action::Lease(site) => self.lease(site),
            Action::Release(up) => self.release(up),
            Action::Park => self.parked = self.leased.take(),
            Action::Resume => self.leased = self.parked.take(),
            Action::Discard(_) => {
                if let Some(leased) = &mut self.leased {
                    leased.connection.roll_back();
                }
                self.leased = None;
            }
            Action::Route => {
                let read = self.session.wanted().expect("a read");
                let site =
                    [0, 1].map(SiteId::Replica).into_iter().find(|site| !read.not.contains(site));
                let route = match site {
                    // A transaction's snapshot is exported for it, if an answer was discarded.
                    Some(site) if read.takes_snapshot && read.is_again => {
                        let expired = std::mem::take(&mut self.expires_next);
                        let commits = if expired { 99 } else { self.applied.get() };
                        let snapshot = SnapshotName::new(&commits.to_string());
                        Route { site, snapshot, ..Route::primary(Reason::Waited) }
                    }
                    // Every read is looked at, as if it named several rows.
                    Some(site) => {
                        let dispatched = Some(Dispatched { commits: 0, sent: Tsid::ZERO });
                        Route { site, dispatched, ..Route::primary(Reason::Fresh) }
                    }
                    None => Route::primary(Reason::NoReplica),
                };
                self.event(Event::Routed(route));
            }
            Action::Hash(passwords) => {
                let verifiers = passwords.iter().map(|password| format!("scram({password})"));
                self.event(Event::Hashed(Some(verifiers.collect())));
            }
            Action::Count(_, Counter::Discarded) => {
                let left = self.env.undiscarded.get();
                self.env.undiscarded.set(left.saturating_sub(1));
            }
            Action::Begin { write, .. } => self.begun.push(write),
            Action::End { write, outcome, .. } => self.ended(write, Some(outcome)),
            Action::Doubt(write) => self.ended(write, None),
            _ => {}
        }
    }

    fn ended(&mut self, write: WriteId, outcome: Option<Outcome>) {
        match self.begun.iter().position(|begun| *begun == write) {
            Some(at) => {
                self.begun.remove(at);
            }
            None => self.wrong.push(format!("I3: {write:?} ends and has not begun")),
        }
        self.outcomes.push((write, outcome));
    }

    fn lease(&mut self, site: SiteId) {
        if std::mem::take(&mut self.refuses_next) {
            self.event(Event::Refused(Report::error("57P03", "not available")));
            return;
        }
        let (leased, mut up) = match self.idle.iter().position(|(idle, _)| idle.site == site) {
            Some(at) => self.idle.remove(at),
            None => {
                let applied = (site != SiteId::Primary).then(|| self.applied.clone());
                let connection = Connection::new(self.cluster.clone(), applied);
                self.next_pid += 1;
                let up = Upstream::new(site != SiteId::Primary, self.next_pid, BytesMut::new());
                (Leased { site, connection }, Box::new(up))
            }
        };
        if self.numbers_are_foreign && site == SiteId::Primary {
            up.numbers_of = Some(99);
        }
        if self.event(Event::Leased(up)) {
            self.leased = Some(leased);
        }
    }

    fn release(&mut self, up: Box<Upstream>) {
        let Some(leased) = self.leased.take() else {
            return self.wrong.push("what isn't leased is released".to_owned());
        };
        if !up.input.is_empty() {
            return; // the server has said something more: the pool closes it
        }
        if let Some(why) = leased.connection.dirt(&up.settings.shown()) {
            self.wrong.push(format!("I1: a connection is released though {why}"));
        }
        if !up.is_clean() {
            self.wrong.push("a connection is released though something is under way".to_owned());
        }
        self.idle.push((leased, up));
    }
}

/// What a client gets that talks to a server directly, a frame each.
pub(super) fn direct(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut connection = Connection::new(Rc::default(), None);
    packets.iter().for_each(|packet| connection.receive(packet));
    connection.frames.iter().map(|frame| frame.to_vec()).collect()
}

/// The messages of some bytes; what is left of the last counts as one.
pub(super) fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let whole = frame::whole(bytes).expect("the protocol").map_or(bytes, |(_, whole)| whole);
        frames.push(whole.to_vec());
        bytes = &bytes[whole.len()..];
    }
    frames
}

pub(super) fn show_all(frames: &[Vec<u8>]) -> String {
    frames.iter().map(|frame| show_answer(frame)).collect::<Vec<_>>().join(" ")
}

/// A server's message as a word.
pub(super) fn show_answer(message: &[u8]) -> String {
    let body = frame::body(message);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    let value = match message[0] {
        tag::DATA_ROW => {
            let row = read_data_row(body).expect("a row");
            row.iter().map(|v| v.map_or("NULL".to_owned(), text)).collect::<Vec<_>>().join("|")
        }
        tag::COMMAND_COMPLETE | tag::READY_FOR_QUERY => text(body),
        tag::ERROR | tag::NOTICE => {
            let fields = ErrorFields::read(body).expect("an error");
            format!("{}{}", fields.get(b'V').unwrap_or_default(), fields.code())
        }
        _ => String::new(),
    };
    let name = char::from(message[0]);
    if value.is_empty() { name.to_string() } else { format!("{name}:{}", value.replace(' ', "_")) }
}

/// What a server is sent, a word a message.
pub(super) fn show_sent(bytes: &[u8]) -> String {
    let shown = |message: &Vec<u8>| {
        let shown = show_message(message[0], frame::body(message));
        shown.unwrap_or_else(|_| format!("{}:malformed", char::from(message[0])))
    };
    frames(bytes).iter().map(shown).collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn show_message(tag: u8, body: &[u8]) -> hihooi_wire::Result<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\n', " ");
    let name = char::from(tag);
    Ok(match tag {
        sent::QUERY => format!("Q:{:.160}", text(frontend::read_query(body)?)),
        sent::PARSE => {
            let parse = Parse::read(body)?;
            let oids = parse.types[2..].chunks_exact(4);
            let oids = oids.map(|oid| u32::from_be_bytes(oid.try_into().expect("four")));
            let types: String = oids.map(|oid| format!("/{oid}")).collect();
            format!("P:{}:{:.60}{types}", text(parse.statement), text(parse.query))
        }
        sent::BIND => {
            let bind = Bind::read(body)?;
            format!("B:{}:{}", text(bind.portal), text(bind.statement))
        }
        sent::EXECUTE => format!("E:{}", text(frontend::read_execute(body)?.0)),
        sent::DESCRIBE | sent::CLOSE => {
            let named = frontend::read_target(tag, body)?.1;
            format!("{name}{}:{}", char::from(body[0]), text(named))
        }
        _ => name.to_string(),
    })
}
