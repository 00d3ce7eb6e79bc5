//! A client's session: its state between units of work, and its main loop.
//!
//! A unit is a simple query, or what the client sent up to a Sync. Units are worked through one
//! after another; [`crate::unit`] runs one, [`crate::simple`] and [`crate::extended`] make one
//! of what the client sent.

use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ahash::{AHashMap, AHashSet};
use bytes::{Bytes, BytesMut};
use hihooi_replication::freshness::WriteId;
use hihooi_replication::items::Items;
use hihooi_sql::{Analysis, Kind, Replica, SearchPath, SessionCommand, SessionEffect, Statement};
use hihooi_wire::backend::{self, Report, Status};
use hihooi_wire::frontend::tag;
use tracing::debug;

use crate::backend::{Backend, Identity};
use crate::client::Client;
use crate::effects::Doubts;
use crate::pool::{Pool, Refusal};
use crate::pump::{self, Lost};
use crate::relay::{Known, Prepared, Relay, RunningOn, SessionInfo};
use crate::startup_key::StartupKey;
use crate::stopping;
use hihooi_session::downstream::Message;
use hihooi_session::relaying::Hold;
use hihooi_session::route::{Consistency, Reason, Route};
use hihooi_session::state::{CarriedSettings, Pin};

/// Beyond this a unit of the extended protocol is sent on in parts, as if the client had sent
/// Flush (I8).
const UNIT_LEN_MAX: usize = 1 << 20;

/// A client that has sent a part of a unit and then nothing for so long waits for something: an error, or a
/// timeout's end. Until then the rest may be on its way, and the unit a read that a replica can run.
const PAUSE: Duration = Duration::from_millis(2);

/// Why a session ends.
#[derive(Debug)]
pub enum End {
    /// The client has gone, or said goodbye.
    Client,
    /// The client was told a fatal error; its connection is closed.
    Fatal(Report),
    /// The server ended it and the client has the server's words.
    Server,
}

/// The result of working on something for a client.
pub type Work<T> = Result<T, End>;

/// What the open transaction has done so far.
#[derive(Debug, Default)]
pub struct Transaction {
    /// What it may have written.
    pub writes: Items,
    /// Its commit itself may write: a cursor WITH HOLD is run then.
    pub commit_writes: bool,
    /// It ran DDL: the catalog doesn't describe what it sees.
    pub has_ddl: bool,
    /// A COMMIT was bound whose portal has not been executed.
    pub has_bound_commit: bool,
    /// It may have changed what replicas have without an event trigger being told.
    pub may_hide: bool,
}

/// A session.
pub struct Session {
    pub(crate) relay: Rc<Relay>,
    pub(crate) info: Rc<SessionInfo>,
    pub(crate) id: u64,
    pub(crate) client: Client,
    pub(crate) startup: Rc<StartupKey>,
    pub(crate) is_replicated: bool,
    /// Its pools, by site.
    pools: Box<[Option<Rc<Pool>>]>,
    pub(crate) statements: AHashMap<Bytes, Rc<Prepared>>,
    pub(crate) settings: Arc<CarriedSettings>,
    /// Settings with a dot in their names that its texts named.
    pub(crate) custom_settings: BTreeSet<Box<str>>,
    pub(crate) path: Option<SearchPath>,
    pub(crate) is_serializable: bool,
    pub(crate) idle_limit: Option<Duration>,
    /// What was run since the last look at the session's state may have changed the path.
    pub(crate) is_path_unknown: bool,
    /// `standard_conforming_strings` is on: texts with backslashes mean what the analysis takes them
    /// for.
    pub(crate) has_plain_strings: bool,
    pub(crate) pin: Option<Pin>,
    pub(crate) server: Option<Box<Backend>>,
    pub(crate) transaction: Transaction,
    pub(crate) effects: SessionEffect,
    pub(crate) consistency: Consistency,
    pub(crate) wait_ms: u64,
    /// Writes whose COMMIT was sent.
    pub(crate) flight: crate::unit::Flight,
    /// Why the session must keep its connection until DISCARD ALL.
    pub(crate) lasting_pin: Option<Pin>,
    /// The connection where the session may have taken a sequence's number last.
    numbers_at: Option<Rc<Identity>>,
    /// Names of SQL-level prepared statements, and what those may leave.
    pub(crate) prepared: AHashSet<Box<str>>,
    pub(crate) prepared_effects: SessionEffect,
    /// What the catalog may not know of what ran.
    pub(crate) doubts: Doubts,
    /// Messages of the unit that the client is sending.
    pub(crate) gathered: Vec<Message>,
    /// Their length, bytes.
    pub(crate) gathered_len: usize,
    /// Changes of names in the unit so far.
    pub(crate) renamed: Vec<crate::extended::Renamed>,
    /// The last unit failed after so many changes of names had been answered.
    pub(crate) failed_after: Option<usize>,
    /// The unit began to run and its Sync has not come yet.
    pub(crate) is_unit_open: bool,
    /// The unit failed before a server had it: everything up to Sync is ignored.
    pub(crate) is_skipping: bool,
}

impl Session {
    /// The session of a client that was just welcomed.
    #[must_use]
    pub fn new(
        relay: Rc<Relay>,
        info: Rc<SessionInfo>,
        id: u64,
        client: Client,
        welcome: &crate::handshake::Welcome,
    ) -> Session {
        let startup = info.startup.clone();
        Session {
            is_replicated: relay.is_replicated(&startup.database),
            consistency: relay.settings.consistency,
            wait_ms: relay.settings.wait_ms,
            path: Some(welcome.path.clone()),
            pools: relay.sites.iter().map(|_| None).collect(),
            is_serializable: welcome.is_serializable,
            idle_limit: welcome.idle_limit,
            is_path_unknown: false,
            has_plain_strings: !welcome
                .parameters
                .contains(&("standard_conforming_strings".to_owned(), "off".to_owned())),
            relay,
            info,
            id,
            client,
            startup,
            statements: AHashMap::new(),
            settings: Arc::default(),
            custom_settings: BTreeSet::new(),
            prepared: AHashSet::new(),
            prepared_effects: SessionEffect::default(),
            doubts: Doubts::default(),
            pin: None,
            server: None,
            transaction: Transaction::default(),
            effects: SessionEffect::default(),
            flight: crate::unit::Flight::default(),
            lasting_pin: None,
            numbers_at: None,
            gathered: Vec::new(),
            gathered_len: 0,
            renamed: Vec::new(),
            failed_after: None,
            is_unit_open: false,
            is_skipping: false,
        }
    }

    /// Serves the client until it leaves.
    pub async fn run(&mut self) {
        let (relay, info) = (self.relay.clone(), self.info.clone());
        let place = relay.stopping.enter();
        let served = place.unless_stopped(&info.is_waiting, pin!(self.turns())).await;
        let end = served.unwrap_or_else(|| self.stopped());
        if let End::Fatal(report) = &end
            && !self.client.down.is_amid_message
        {
            report.write(&mut self.client.down.output);
        }
        self.client.flush().await;
        debug!(session = self.id, ?end, "session ended");
        if let Some(server) = self.server.take() {
            self.doubt_flight(&server);
            self.leave(server);
        }
        self.relay.sessions.borrow_mut().remove(&self.info.process);
    }

    /// Gives back the connection of a session that ends. One with a transaction or other state
    /// is closed, which rolls back and removes it all.
    fn leave(&mut self, server: Box<Backend>) {
        if self.pin.is_none() && server.up.is_clean() {
            self.relay.pools.release(server);
        } else {
            self.relay.pools.discard(server);
        }
    }

    async fn turns(&mut self) -> End {
        loop {
            if let Err(end) = self.turn().await {
                return end;
            }
        }
    }

    /// The manager stops while the session goes on.
    fn stopped(&self) -> End {
        let in_flight = !self.flight.asked.is_empty() || !self.flight.opaque.is_empty();
        End::Fatal(if in_flight { crate::unit::unknown_outcome() } else { stopping::report() })
    }

    async fn turn(&mut self) -> Work<()> {
        let message = self.next_message().await?;
        self.doubts.was_ahead = self.is_ahead_of_catalog();
        self.doubts.was_unread = self.relay.is_catalog_unread();
        match message.tag {
            tag::QUERY => self.simple(message).await,
            tag::FUNCTION_CALL => self.function_call(message).await,
            tag::TERMINATE => Err(End::Client),
            // Left over from a COPY that failed (manual, "COPY Operations").
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => Ok(()),
            tag::PASSWORD => Err(End::Fatal(Report::fatal("08P01", "unexpected password message"))),
            _ => self.gather(message).await,
        }
    }

    async fn gather(&mut self, message: Message) -> Work<()> {
        let ends = matches!(message.tag, tag::SYNC | tag::FLUSH);
        self.gathered_len += message.bytes.len();
        self.gathered.push(message);
        if ends || self.gathered_len > UNIT_LEN_MAX { self.extended().await } else { Ok(()) }
    }

    pub(crate) async fn next_message(&mut self) -> Work<Message> {
        loop {
            let buffered = self.client.down.buffered();
            match buffered {
                Ok(Some(message)) => return Ok(message),
                Ok(None) if self.client.down.gone => return Err(End::Client),
                Ok(None) => {
                    self.info.is_waiting.set(true);
                    let came = self.input_came().await?;
                    self.info.is_waiting.set(false);
                    if !came {
                        self.extended().await?;
                    }
                }
                Err(error) => {
                    return Err(End::Fatal(crate::handshake::protocol_report(&error)));
                }
            }
        }
    }

    /// Waits for input. False if the client waits as well, in the middle of a unit: servers run its messages
    /// as they come, though nothing has to be answered before Sync or Flush but an error.
    async fn input_came(&mut self) -> Work<bool> {
        if self.gathered.is_empty() || self.is_skipping {
            return self.wait_for_input().await.map(|()| true);
        }
        match tokio::time::timeout(PAUSE, self.wait_for_input()).await {
            Ok(came) => came.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    async fn wait_for_input(&mut self) -> Work<()> {
        match &mut self.server {
            None => {
                // In the middle of a unit a server would not be idle.
                let is_idle = self.gathered.is_empty() && self.client.down.input.is_empty();
                match self.idle_limit.filter(|_| is_idle) {
                    None => self.client.read().await,
                    Some(limit) => {
                        let read = tokio::time::timeout(limit, self.client.read()).await;
                        read.map_err(|_| End::Fatal(idle_too_long()))?;
                    }
                }
            }
            Some(server) => {
                let (relay, defined) = (self.relay.clone(), self.doubts.defined);
                let waits = self.pin == Some(Pin::Catalog)
                    && server.up.status == Status::Idle
                    && self.gathered.is_empty();
                let known = async {
                    match waits {
                        true => relay.until_known(defined).await,
                        false => std::future::pending().await,
                    }
                };
                let idle = pump::idle(&mut self.client, server);
                let came = tokio::select! { came = idle => Some(came), () = known => None };
                match came {
                    Some(Ok(())) => {}
                    Some(Err(lost)) => return Err(self.lost_idle(&lost)),
                    None => {
                        let server = self.server.take();
                        self.settle(server.expect("the one that it keeps")).await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn lost_idle(&mut self, lost: &Lost) -> End {
        if let Some(server) = self.server.take() {
            debug!(session = self.id, %lost, "the session's server connection ended");
            self.doubt_flight(&server);
            self.relay.pools.discard(server);
        }
        End::Server
    }

    /// The transaction status that the client knows of.
    pub(crate) fn status(&self) -> Status {
        self.server.as_ref().map_or(Status::Idle, |server| server.up.status)
    }

    /// Whether a transaction block is open.
    pub(crate) fn is_in_block(&self) -> bool {
        self.status() != Status::Idle
    }

    /// The facts of a text as this session would run it.
    pub(crate) fn analyse(&self, text: &[u8]) -> Arc<Analysis> {
        self.analyse_with(text, self.path.as_ref().filter(|_| !self.is_path_unknown))
    }

    /// The facts of a prepared statement: remembered with it.
    pub(crate) fn analyse_prepared(&self, prepared: &Prepared) -> Arc<Analysis> {
        if !self.has_plain_strings || self.is_path_unknown {
            return self.analyse(&prepared.query);
        }
        let version = self.relay.catalog_version();
        if let Some(known) = &*prepared.facts.borrow()
            && known.version == version
            && known.path == self.path
        {
            return known.analysis.clone();
        }
        let analysis = self.analyse(&prepared.query);
        let known = Known { version, path: self.path.clone(), analysis: analysis.clone() };
        *prepared.facts.borrow_mut() = Some(known);
        analysis
    }

    /// The facts of a text when names could mean any schema's.
    pub(crate) fn analyse_anywhere(&self, text: &[u8]) -> Arc<Analysis> {
        self.analyse_with(text, None)
    }

    fn analyse_with(&self, text: &[u8], path: Option<&SearchPath>) -> Arc<Analysis> {
        match std::str::from_utf8(text) {
            _ if !self.has_plain_strings && text.contains(&b'\\') => {
                Arc::new(Analysis::unparsable(text.len()))
            }
            Ok(text) => self.relay.analyse(text, path),
            Err(_) => self.relay.analyse(&shadow(text), path),
        }
    }

    /// What a statement may write, static analysis and what it can't know (I6).
    pub(crate) fn writes_of(&self, statement: &Statement) -> Items {
        if !self.is_replicated {
            return Items::Nothing;
        }
        let is_blind = self.transaction.has_ddl || self.relay.is_catalog_stale();
        if statement.writes.is_empty() {
            if is_blind && matches!(statement.kind, Kind::Read | Kind::CopyOut) {
                return Items::Everything; // what it calls may have become something that writes
            }
            // An opaque function that claims not to write may call one that does.
            return match (&statement.kind, &statement.reads) {
                (Kind::Read | Kind::CopyOut, Items::Everything)
                    if statement.replica == hihooi_sql::Replica::Safe =>
                {
                    Items::Everything
                }
                _ => Items::Nothing,
            };
        }
        if is_blind {
            return Items::Everything;
        }
        statement.writes.clone()
    }

    /// A connection for the next unit: the one that the session holds, or one of the pool.
    pub(crate) async fn take_server(&mut self, site: usize) -> Result<Box<Backend>, Refusal> {
        let mut server = match self.server.take() {
            Some(server) => server,
            None => {
                let pool = self.pool(site);
                let pools = &self.relay.pools;
                let mut server =
                    pools.acquire(&pool, &self.startup, &self.settings, self.id).await?;
                self.forget_foreign_numbers(&mut server);
                server
            }
        };
        let is_foreign = server.up.unseen_code_of.is_some_and(|session| session != self.id);
        if is_foreign || server.up.settings != self.settings {
            self.carry_settings(&mut server).await?;
        }
        self.runs_on(&server);
        Ok(server)
    }

    /// A write's COMMIT is about to be sent.
    pub(crate) fn begin_write(&mut self, items: Items) -> WriteId {
        let write = self.relay.begin_write(items);
        if self.doubts.is_defining {
            self.doubts.defined = Some(write);
        }
        write
    }

    fn pool(&mut self, site: usize) -> Rc<Pool> {
        let (relay, startup) = (&self.relay, &self.startup);
        self.pools[site].get_or_insert_with(|| relay.pools.pool(site, startup)).clone()
    }

    async fn carry_settings(&mut self, server: &mut Backend) -> Result<(), Refusal> {
        let at_primary = server.site == hihooi_session::route::PRIMARY;
        server.up.write_own_query(&self.settings.statements(at_primary));
        let pumped = pump::pump_own(server).await;
        pumped.map_err(|lost| Refusal::Unreachable(lost.to_string()))?;
        server.up.answers.take_rows();
        if let Some(error) = server.up.answers.take_error() {
            let fields = backend::ErrorFields::read(&error).unwrap_or_default();
            return Err(Refusal::Server(Box::new(fields)));
        }
        server.up.settings = self.settings.clone();
        server.up.unseen_code_of = None;
        Ok(())
    }

    fn runs_on(&self, server: &Backend) {
        let same = matches!(&*self.info.running.borrow(), Some(running)
            if Rc::ptr_eq(&running.identity, &server.identity));
        if !same {
            *self.info.running.borrow_mut() = Some(RunningOn {
                site: server.site,
                identity: server.identity.clone(),
                cancels: server.cancels.clone(),
            });
        }
        self.info.state.set("active");
    }

    /// After a unit: keeps the connection if the session needs it, else gives it back. The
    /// client has its answer already.
    pub(crate) async fn settle(&mut self, mut server: Box<Backend>) -> Work<()> {
        self.client.flush().await;
        self.end_effects(&server);
        server.last_session = self.id;
        self.failed_after = server.up.failed.then_some(server.up.names_done);
        if server.up.status != Status::Idle {
            self.info.state.set("in transaction");
            self.server = Some(server);
            return Ok(());
        }
        self.pin = self.pin.filter(|pin| *pin != Pin::Catalog).or(self.lasting_pin);
        self.transaction = Default::default();
        self.look_again(&mut server);
        if !self.effects.is_none() {
            self.look_at_state(&mut server).await?;
        }
        if !self.doubts.unsure.is_empty() {
            self.pin = self.pin.or(Some(Pin::Catalog));
        }
        self.is_path_unknown = false;
        if server.up.write_cleanup() {
            self.own(&mut server).await?;
        }
        self.info.state.set("idle");
        if self.pin.is_some() {
            self.server = Some(server);
        } else {
            *self.info.running.borrow_mut() = None;
            self.relay.pools.release(server);
        }
        Ok(())
    }

    /// Makes a statement that the client prepared by the protocol known under the client's name,
    /// for SQL that names it (EXECUTE, DEALLOCATE).
    pub(crate) fn write_named(
        &self,
        server: &mut Backend,
        statement: &Statement,
        audience: hihooi_session::answers::Audience,
    ) -> bool {
        let Kind::Session(SessionCommand::Execute(name) | SessionCommand::Deallocate(Some(name))) =
            &statement.kind
        else {
            return false;
        };
        let Some(prepared) = self.statements.get(name.as_bytes()) else { return false };
        if server.up.literal_names.iter().any(|known| **known == *name.as_bytes()) {
            return false; // it is there already
        }
        server.up.write_named(name.as_bytes(), &prepared.query, &prepared.types, audience);
        true
    }

    /// Notes that `currval` and `lastval` may know a number on this connection from now on: a trigger, a
    /// default, any function may take one. A read that could run at a replica can't; nor can a COMMIT but
    /// for what was written before it.
    pub(crate) fn may_take_numbers(&mut self, server: &mut Backend, statement: &Statement) {
        let takes_none = match statement.kind {
            Kind::Read => statement.replica == Replica::Safe,
            Kind::Begin(_) | Kind::Commit { .. } | Kind::Rollback { .. } => true,
            _ => false,
        };
        if !takes_none {
            server.up.numbers_of = Some(self.id);
            self.numbers_at = Some(server.identity.clone());
        }
    }

    /// Has a connection forget the numbers of other sessions; also the session's own if it has taken
    /// some elsewhere since, for those would be the last ones.
    fn forget_foreign_numbers(&self, server: &mut Backend) {
        let Some(owner) = server.up.numbers_of else { return };
        let is_last =
            self.numbers_at.as_ref().is_some_and(|last| Rc::ptr_eq(last, &server.identity));
        if owner != self.id || !is_last {
            server.up.write_forget_numbers();
        }
    }

    /// Waits for the answer to messages of our own.
    pub(crate) async fn own(&mut self, server: &mut Backend) -> Work<()> {
        self.client.down.tells_leaving = false; // what we ask is never cancelled
        while !(server.up.answers.is_empty() && server.up.output.is_empty()) {
            let pumped = pump::pump(&mut self.client, server, &mut Hold::No).await;
            if let Err(lost) = pumped {
                return Err(self.lost(&lost));
            }
        }
        Ok(())
    }

    /// The end of a session whose server was lost while it held state.
    pub(crate) fn lost(&self, lost: &Lost) -> End {
        debug!(session = self.id, %lost, "server lost");
        End::Fatal(
            Report::fatal("08006", "the connection to the server was lost")
                .detail(lost.to_string())
                .hint("The transaction, if one was open, is rolled back. Connect again."),
        )
    }

    /// Tells the client an error in place of a unit's answer.
    pub(crate) async fn refuse_simple(&mut self, report: &Report) -> Work<()> {
        report.write(&mut self.client.down.output);
        backend::ready_for_query(self.status(), &mut self.client.down.output);
        self.client.flush().await;
        Ok(())
    }

    /// Notes where a unit runs.
    pub(crate) fn routed(&self, route: Route) {
        self.info.last_route.set(route);
    }

    /// Why a unit that isn't routed runs on the primary.
    pub(crate) fn reason_for(&self, statement: Option<&Statement>) -> Reason {
        if self.is_in_block() {
            return if self.transaction.writes.is_empty() {
                Reason::ExplicitBlock
            } else {
                Reason::InWriteTransaction
            };
        }
        match statement {
            _ if self.pin.is_some() => Reason::SessionState,
            Some(statement) if statement.is_write() => Reason::Write,
            _ if self.is_serializable => Reason::Isolation,
            _ => Reason::Unsafe,
        }
    }

    /// Answers a statement that is meant for hihooi; rows of one column, or a command tag.
    pub(crate) fn hihooi_command(
        &mut self,
        command: &hihooi_sql::HihooiCommand,
    ) -> Result<crate::hihooi_settings::Answer, Report> {
        crate::hihooi_settings::run(self, command)
    }

    /// Where the answer to the client is written.
    pub(crate) fn output(&mut self) -> &mut BytesMut {
        &mut self.client.down.output
    }
}

/// The end of a session whose client says nothing for too long, in PostgreSQL's words.
fn idle_too_long() -> Report {
    Report::fatal("57P05", "terminating connection due to idle-session timeout")
}

/// Whether names may mean other things after a statement than before.
pub(crate) fn may_change_path(statement: &Statement) -> bool {
    let effect = &statement.session;
    effect.settings
        || effect.local_settings
        || effect.search_path
        || effect.role
        || effect.discard_all
}

/// A text in another encoding as the analysis may see it: every byte that isn't ASCII stands for
/// one letter, so that positions are those of the text. Names come out wrong, hence unknown,
/// hence "touches everything" (I6).
pub(crate) fn shadow(text: &[u8]) -> String {
    text.iter().map(|&byte| if byte.is_ascii() { char::from(byte) } else { 'x' }).collect()
}

/// Whether a text holds a word, in any case.
pub(crate) fn mentions(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}
