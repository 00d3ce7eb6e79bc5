//! A client's session as a state machine: [`Session::step`] takes an event and returns actions. It has no
//! socket, clock or task, and never blocks.
//!
//! A unit is a simple query, or what the client sent up to a Sync. Units are processed one after another:
//! `simple` and `extended` make a unit of what the client sent, `work` takes it through the steps that all
//! units have in common, and [`mod@crate::unit`] writes it. (These files import each other: they are parts of
//! the `impl` of one machine.)

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use hihooi_replication::freshness::Decider;
use hihooi_replication::items::Items;
use hihooi_sql::{
    Analysis, Discard, Isolation, Kind, Replica, SearchPath, SessionCommand, SessionEffect,
    Statement,
};
use hihooi_wire::backend::{self, Report, Status};
use hihooi_wire::frontend::{Bind, Parse, tag};

use crate::answers::Audience;
use crate::block::Block;
use crate::consistency::Consistency;
use crate::downstream::{Downstream, Message, OUTPUT_MAX};
use crate::effects::Doubts;
use crate::events::{Action, Actions, AwaitedCatalog, Env, Event, protocol_report};
use crate::mistakes::{Mistake, makes};
use crate::names::Names;
use crate::own_settings::{ChangedOwn, OwnSettings};
use crate::passwords::{Held, Storing};
use crate::portals::Fetching;
use crate::relaying::Hold;
use crate::route::{Placed, Reason, Route};
use crate::sites::SiteId;
use crate::snapshot::Snapshot;
use crate::state::{CarriedSettings, Pin};
use crate::unit::{Flight, Transaction};
use crate::upstream::Upstream;
use crate::values::RunValues;
use crate::work::{Then, Work};

/// Beyond this a unit of the extended protocol is sent on in parts, as if the client had sent
/// Flush (I8).
const UNIT_LEN_MAX: usize = 1 << 20;
/// A client that has sent a part of a unit and then nothing for so long waits for something: an error, or a
/// timeout's end. Until then the rest may be on its way, and the unit a read that a replica can run.
const PAUSE: Duration = Duration::from_millis(2);
/// While a server works, at most this much of what the client sends ahead is read (I8).
const INPUT_AHEAD_MAX: usize = 256 * 1024;

/// Why a session ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The client has gone, or said goodbye.
    Client,
    /// The client is told a fatal error.
    Fatal(Report),
    /// The server ended it and the client has the server's words.
    Server,
}

/// What a session is opened with.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Its number, which no other session has; from 1 on.
    pub id: u64,
    /// Its database is replicated.
    pub is_replicated: bool,
    /// hihooi's own settings if it asks for none.
    pub own: OwnSettings,
    /// What its connections begin with of which `pg_settings` doesn't tell: settings with a dot in their names, the role.
    pub untold: Vec<(String, String)>,
    /// Where unqualified names are looked up.
    pub path: SearchPath,
    /// The isolation level of transactions, unless they say otherwise.
    pub isolation: Isolation,
    /// `standard_conforming_strings` is on.
    pub has_plain_strings: bool,
    /// Its connections may begin with event triggers switched off.
    pub may_lack_events: bool,
    /// How long it may wait for its client outside of a transaction.
    pub idle_limit: Option<Duration>,
    /// The version of the primary's configuration of which all this was learnt.
    pub configuration_version: u64,
}

/// What a session is about.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Between units: the client's next message is waited for.
    Idle,
    /// The client's COPY data is thrown away; then it gets these tags' answers.
    Swallowing(Vec<&'static str>),
    /// A block's next statement may be a read, which the catalog will tell.
    AwaitingCatalog,
    /// A route was asked for.
    Routing,
    /// A connection was asked for.
    Leasing,
    /// A server has something to answer; then the work goes on.
    Answering(Then),
    /// Passwords are being hashed.
    Hashing(Held, Option<Storing>),
    /// Over.
    Ended,
}

/// Where the client is in a unit that it sends in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Open {
    /// Between units.
    #[default]
    No,
    /// The unit began to run and its Sync has not come yet.
    Running,
    /// The unit failed before a server had it: everything up to Sync is ignored.
    Skipping,
}

/// What a session does, as SHOW CLIENTS tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// It waits for its client, outside of a transaction.
    Idle,
    /// Something runs for it.
    Active,
    /// It waits for its client in a transaction.
    InTransaction,
}

impl Activity {
    /// The words that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Activity::Idle => "idle",
            Activity::Active => "active",
            Activity::InTransaction => "in transaction",
        }
    }
}

/// How long the operator lets clients be idle; as long as they like if nothing is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdleLimits {
    /// Outside of a transaction.
    pub outside: Option<Duration>,
    /// In one.
    pub in_transaction: Option<Duration>,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    pub(crate) opened: Opened,
    /// The client's side.
    pub down: Downstream,
    /// The side of the server that works for the session.
    pub(crate) up: Option<Box<Upstream>>,
    pub(crate) phase: Phase,
    /// (Boxed: it is large, and taken out and put back at each step.)
    pub(crate) work: Option<Box<Work>>,
    /// A message that comes after the work, or belongs to its COPY.
    pub(crate) next: Option<Message>,
    pub(crate) hold: Hold,
    pub(crate) names: Names,
    pub(crate) settings: Arc<CarriedSettings>,
    /// Settings with a dot in their names that its texts named.
    pub(crate) custom_settings: BTreeSet<Box<str>>,
    pub(crate) path: Option<SearchPath>,
    pub(crate) isolation: Isolation,
    pub(crate) idle_limit: Option<Duration>,
    /// What was run since the last look at the session's state may have changed the path.
    pub(crate) is_path_unknown: bool,
    /// `standard_conforming_strings` is on: texts with backslashes mean what the analysis takes them
    /// for.
    pub(crate) has_plain_strings: bool,
    /// The connection with the client's transaction, while a read of it runs at a replica.
    pub(crate) parked: Option<Box<Upstream>>,
    /// What the session does with portals that have more rows.
    pub(crate) fetching: Fetching,
    /// The unnamed portal was opened elsewhere than where the transaction is: it is gone.
    pub(crate) portal_elsewhere: bool,
    /// A block that no server has begun. (Boxed, as what comes next: most sessions idle without one.)
    pub(crate) block: Option<Box<Block>>,
    /// A transaction that only reads is open at a replica.
    pub(crate) snapshot: Option<Box<Snapshot>>,
    /// Such transactions run on the primary: one of them failed at a replica.
    pub(crate) snapshots_at_primary: bool,
    pub(crate) pin: Option<Pin>,
    /// Why the session must keep its connection until DISCARD ALL.
    pub(crate) lasting_pin: Option<Pin>,
    pub(crate) transaction: Transaction,
    /// What transactions did whose end is on its way in the unit.
    pub(crate) ended: Option<Transaction>,
    pub(crate) effects: SessionEffect,
    pub(crate) own: OwnSettings,
    /// What the transaction block that is open has changed of them.
    pub(crate) changed_own: Option<Box<ChangedOwn>>,
    /// Where the last statement ran, and what decided that.
    pub(crate) last_route: (Placed, Option<Decider>),
    /// What begins or ends a transaction was bound to a portal, which may yet be executed.
    pub(crate) has_bound_control: bool,
    /// A COPY of the client's data was bound to a portal, which may yet be executed.
    pub(crate) has_bound_copy: bool,
    /// Writes whose COMMIT was sent.
    pub(crate) flight: Flight,
    pub(crate) writes_begun: u64,
    /// The backend where the session may have taken a sequence's number last.
    numbers_at: Option<i32>,
    /// What the catalog may not know of what ran.
    pub(crate) doubts: Doubts,
    /// Names of custom settings that were asked for.
    pub(crate) asked_names: Vec<Box<str>>,
    /// Messages of the unit that the client is sending.
    pub(crate) gathered: Vec<Message>,
    /// Their length, bytes.
    pub(crate) gathered_len: usize,
    /// One of these messages may be about a DEALLOCATE.
    pub(crate) may_take: bool,
    pub(crate) open: Open,
}

impl Session {
    /// The session of a client that was just welcomed.
    #[must_use]
    pub fn new(opened: Opened, down: Downstream) -> Session {
        Session {
            down,
            up: None,
            phase: Phase::Idle,
            work: None,
            next: None,
            hold: Hold::No,
            names: Names::default(),
            settings: Arc::default(),
            custom_settings: BTreeSet::new(),
            path: Some(opened.path.clone()),
            isolation: opened.isolation,
            idle_limit: opened.idle_limit,
            is_path_unknown: false,
            has_plain_strings: opened.has_plain_strings,
            parked: None,
            fetching: Fetching::Unknown,
            portal_elsewhere: false,
            block: None,
            snapshot: None,
            snapshots_at_primary: false,
            pin: None,
            lasting_pin: None,
            transaction: Transaction::default(),
            ended: None,
            effects: SessionEffect::default(),
            own: opened.own,
            changed_own: None,
            last_route: (Route::primary(Reason::NoReplica).placed(), None),
            has_bound_control: false,
            has_bound_copy: false,
            flight: Flight::default(),
            writes_begun: 0,
            numbers_at: None,
            doubts: Doubts::default(),
            asked_names: Vec::new(),
            gathered: Vec::new(),
            gathered_len: 0,
            may_take: false,
            open: Open::No,
            opened,
        }
    }

    /// Goes on with what happened, up to where something else has to happen. What is to be done is put behind
    /// `out`, what is to be sent into the sides' outputs.
    pub fn step(&mut self, event: Event<'_>, env: &dyn Env, out: &mut Actions) {
        match event {
            _ if self.has_ended() => {
                if let Event::Leased(up) = event {
                    out.push_back(Action::Discard(up));
                }
            }
            Event::Client => self.client_sent(env, out),
            Event::Server(bytes) => self.server_sent(bytes, env, out),
            Event::Sent => {
                self.tell_leaving(out);
                self.go_on_if_answered(env, out);
            }
            Event::Lost(why) => self.lost(&why, env, out),
            Event::Leased(up) => self.leased(up, env, out),
            Event::Refused(report) => self.refused(report, env, out),
            Event::Routed(route) => self.routed(route, env, out),
            Event::Hashed(verifiers) => self.hashed(verifiers, env, out),
            Event::Deadline | Event::Known if matches!(self.phase, Phase::AwaitingCatalog) => {
                self.phase = Phase::Idle;
                if !self.gathered.is_empty() {
                    self.run_gathered(env, out);
                }
            }
            Event::Deadline | Event::Known if !matches!(self.phase, Phase::Idle) => {}
            Event::Deadline if self.gathered.is_empty() => {
                self.end(End::Fatal(idle_too_long(self.is_in_block())), out);
            }
            Event::Deadline => self.run_gathered(env, out),
            Event::Known => self.settle(env, out),
            Event::Stopped => self.stopped(out),
        }
        self.take_messages(env, out);
        if self.down.gone {
            self.down.settled.clear();
            self.down.output.clear();
        }
    }

    /// What stands to be sent to the server that works for the session.
    pub fn to_server(&mut self) -> Option<&mut BytesMut> {
        self.up.as_mut().map(|up| &mut up.output)
    }

    /// Whether all that is written for the client may be sent: an answer that may yet come from another site is
    /// held back, but not what is settled.
    #[must_use]
    pub fn tells_client(&self) -> bool {
        self.hold == Hold::No
    }

    /// Whether more is to be read from the client: back-pressure (I8).
    #[must_use]
    pub fn wants_client(&self) -> bool {
        match &self.phase {
            Phase::Ended => false,
            _ if self.down.gone => false,
            _ if self.feeds_copy() => self.up.as_ref().is_none_or(|up| up.output.is_empty()),
            Phase::Idle | Phase::Swallowing(_) => true,
            _ => self.down.input.len() < INPUT_AHEAD_MAX,
        }
    }

    /// Whether nobody waits for the read that the session is about to send. (What may write is carried out all the
    /// same, as by a server that has received it.)
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.down.gone && self.wanted().is_some()
    }

    /// Whether more is to be read from the server that works for the session: back-pressure (I8).
    #[must_use]
    pub fn wants_server(&self) -> bool {
        self.up.is_some() && self.down.untold() < OUTPUT_MAX
    }

    /// Whether something follows when all that stands for the server is sent ([`Event::Sent`]): nothing is to be
    /// answered, or nobody waits for the answer.
    #[must_use]
    pub fn wants_sent(&self) -> bool {
        self.down.gone || self.up.as_ref().is_some_and(|up| up.answers.is_empty())
    }

    /// How long the client may be silent from now on; then comes [`Event::Deadline`].
    #[must_use]
    pub fn deadline(&self, operators: IdleLimits) -> Option<Duration> {
        match self.phase {
            // In the middle of a unit: servers run its messages as they come, though nothing has to be
            // answered before Sync or Flush but an error.
            Phase::Idle if !self.gathered.is_empty() => {
                (self.open != Open::Skipping).then_some(PAUSE)
            }
            // What came of its next message says that it isn't idle.
            Phase::Idle if self.open != Open::No || !self.down.input.is_empty() => None,
            Phase::Idle if self.is_in_block() => operators.in_transaction,
            // A server that is held knows its own.
            Phase::Idle => {
                let own = self.idle_limit.filter(|_| self.up.is_none());
                own.into_iter().chain(operators.outside).min()
            }
            Phase::AwaitingCatalog => Some(Duration::from_millis(self.own.wait_ms)),
            _ => None,
        }
    }

    /// What the session waits for the catalog to know: it keeps its connection so long if what ran there isn't known, and
    /// a block's read waits, but up to its deadline. Then comes [`Event::Known`].
    #[must_use]
    pub fn waits_for_catalog(&self) -> Option<AwaitedCatalog> {
        if let Phase::AwaitingCatalog = self.phase {
            return Some(AwaitedCatalog { write: None, all_code: false });
        }
        let waits = matches!(self.phase, Phase::Idle)
            && self.pin == Some(Pin::Catalog)
            && self.up.is_some()
            && !self.is_in_block()
            && (self.open == Open::No || makes(Mistake::SettledAmidUnit))
            && self.gathered.is_empty();
        waits.then(|| self.awaited_catalog())
    }

    /// What is set of hihooi's own settings is what RESET returns to.
    pub fn starts(&mut self) {
        self.opened.own = self.own;
    }

    /// The level of its reads.
    #[must_use]
    pub fn consistency(&self) -> Consistency {
        self.own.consistency
    }

    /// Whether nothing can happen before the client sends something.
    #[must_use]
    pub fn waits_for_client(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Swallowing(_))
    }

    /// What it does.
    #[must_use]
    pub fn activity(&self) -> Activity {
        match self.phase {
            Phase::Idle if self.is_in_block() => Activity::InTransaction,
            Phase::Idle => Activity::Idle,
            _ => Activity::Active,
        }
    }

    /// The site where something runs for it.
    #[must_use]
    pub fn runs_at(&self) -> Option<SiteId> {
        let work = self.work.as_ref()?;
        matches!(self.phase, Phase::Answering(_)).then_some(work.route.site)
    }

    /// Settings that its next connection shall have, if that can be chosen.
    #[must_use]
    pub fn settings(&self) -> &Arc<CarriedSettings> {
        &self.settings
    }

    /// The session has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Works with the server's side, which is the session's own meanwhile.
    pub(crate) fn with_server<T>(
        &mut self,
        work: impl FnOnce(&mut Session, &mut Upstream) -> T,
    ) -> Option<T> {
        let mut up = self.up.take()?;
        let done = work(self, &mut up);
        self.up = Some(up);
        Some(done)
    }

    fn client_sent(&mut self, env: &dyn Env, out: &mut Actions) {
        if !matches!(self.phase, Phase::Answering(_)) {
            return; // it is looked at when it is its turn
        }
        if self.feeds_copy() {
            self.feed_copy();
            self.go_on_if_answered(env, out);
        } else {
            self.tell_leaving(out);
        }
    }

    /// If the client has left, nobody waits for the answer any more: a server that only reads may stop. What
    /// writes goes on, as it does at a server whose client has left.
    fn tell_leaving(&mut self, out: &mut Actions) {
        let is_told = self.down.gone && self.down.tells_leaving;
        // What isn't sent yet can't be cancelled: once more when it is.
        self.down.tells_leaving &=
            !is_told || self.up.as_ref().is_some_and(|up| !up.output.is_empty());
        if is_told && self.flight.is_empty() && self.transaction.writes.is_empty() {
            out.push_back(Action::Cancel);
        }
    }

    /// Takes the client's messages as long as they are waited for.
    fn take_messages(&mut self, env: &dyn Env, out: &mut Actions) {
        while self.waits_for_client() {
            let next = match self.next.take() {
                Some(message) => Ok(Some(message)),
                None => self.down.buffered(),
            };
            match next {
                Ok(Some(message)) if matches!(self.phase, Phase::Idle) => {
                    self.turn(message, env, out);
                }
                Ok(Some(message)) => self.swallow(&message),
                Ok(None) if self.down.gone => self.end(End::Client, out),
                Ok(None) => return,
                Err(error) => self.end(End::Fatal(protocol_report(&error)), out),
            }
        }
    }

    fn turn(&mut self, message: Message, env: &dyn Env, out: &mut Actions) {
        self.doubts.was_ahead = self.is_ahead_of_catalog(env);
        self.doubts.was_unread = env.is_catalog_unread();
        self.doubt_configuration(env);
        match message.tag {
            // In a failed unit, up to its Sync.
            tag::QUERY | tag::FUNCTION_CALL if self.is_skipping() => {}
            tag::QUERY | tag::FUNCTION_CALL | tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL
                if !self.gathered.is_empty() && !self.is_skipping() =>
            {
                // What the client sent without Sync runs first: it may be a COPY.
                self.next = Some(message);
                self.run_gathered(env, out);
            }
            tag::QUERY if self.may_become_read(std::slice::from_ref(&message), env) => {
                self.next = Some(message);
                self.phase = Phase::AwaitingCatalog;
            }
            tag::QUERY => {
                self.names.keep_changes(); // of a unit without Sync in front of it
                self.simple(message, env, out);
            }
            tag::FUNCTION_CALL => {
                self.names.keep_changes();
                self.function_call(message, env, out);
            }
            tag::TERMINATE => self.end(End::Client, out),
            // Left over from a COPY that failed (manual, "COPY Operations").
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => {}
            tag::PASSWORD => {
                self.end(End::Fatal(Report::fatal("08P01", "unexpected password message")), out);
            }
            _ => self.gather(message, env, out),
        }
    }

    /// Whether messages are ignored until the next Sync, by the session or by the server.
    pub(crate) fn is_skipping(&self) -> bool {
        let server_skips = || self.up.as_ref().is_some_and(|up| up.answers.is_skipping());
        self.open == Open::Skipping || server_skips()
    }

    fn gather(&mut self, message: Message, env: &dyn Env, out: &mut Actions) {
        let ends = match message.tag {
            tag::SYNC | tag::FLUSH => true,
            tag::EXECUTE => self.names.may_go() || self.may_take && self.takes_statements(env),
            tag::PARSE => {
                let parse = Parse::read(message.body());
                self.may_take |= parse.is_ok_and(|parse| may_take(parse.query));
                false
            }
            tag::BIND if self.names.any_may_take() => {
                let bind = Bind::read(message.body()).ok();
                let prepared = bind.and_then(|bind| self.names.get(bind.statement));
                self.may_take |= prepared.is_some_and(|prepared| prepared.may_take);
                false
            }
            _ => false,
        };
        self.gathered_len += message.bytes.len();
        self.gathered.push(message);
        if ends || self.gathered_len > UNIT_LEN_MAX {
            self.run_gathered(env, out);
        }
    }

    /// Whether what was bound is a DEALLOCATE, or DISCARD ALL: what its names mean then is known when it has run.
    fn takes_statements(&mut self, env: &dyn Env) -> bool {
        let bound = self.gathered.iter().rev().find(|message| message.tag == tag::BIND);
        let Some(Ok(bind)) = bound.map(|message| Bind::read(message.body())) else { return false };
        let parsed = self.gathered.iter().rev().filter(|message| message.tag == tag::PARSE);
        let parsed = parsed
            .filter_map(|message| Some((message, Parse::read(message.body()).ok()?)))
            .find(|(_, parse)| parse.statement == bind.statement);
        let query = match parsed {
            Some((message, parse)) => message.bytes.slice_ref(parse.query),
            None => match self.names.get(bind.statement) {
                Some(prepared) => prepared.query.clone(),
                None => return false,
            },
        };
        let takes = |statement: &Statement| {
            let Kind::Session(command) = &statement.kind else { return false };
            matches!(command, SessionCommand::Deallocate(_) | SessionCommand::Discard(Discard::All))
        };
        may_take(&query) && self.analyse(&query, env).statements.iter().any(takes)
    }

    /// The manager stops while the session goes on.
    fn stopped(&mut self, out: &mut Actions) {
        let report = if self.is_outcome_unknown() { unknown_outcome() } else { going_away() };
        self.end(End::Fatal(report), out);
    }

    /// The session is over. A connection with a transaction or other state is closed, which rolls back and
    /// removes it all.
    pub(crate) fn end(&mut self, end: End, out: &mut Actions) {
        if let Phase::Ended = self.phase {
            return;
        }
        if self.hold != Hold::No {
            // What is held back of an answer is nobody's.
            self.down.output.clear();
            self.hold = Hold::No;
        }
        if let End::Fatal(report) = &end
            && !self.down.is_amid_message
        {
            report.write(&mut self.down.output);
        }
        self.doubt_flight(out);
        if let Some(up) = self.up.take() {
            let is_idle = matches!(self.phase, Phase::Idle) && self.effects.is_none();
            let is_clean = is_idle && self.pin.is_none() && up.is_clean();
            let is_free = is_clean || makes(Mistake::DirtyReleased);
            out.push_back(if is_free { Action::Release(up) } else { Action::Discard(up) });
        }
        self.resume(out);
        self.discard(out);
        self.phase = Phase::Ended;
        out.push_back(Action::Close);
    }

    /// Closes the connection that the session has.
    pub(crate) fn discard(&mut self, out: &mut Actions) {
        out.extend(self.up.take().map(Action::Discard));
    }

    /// The transaction status that the client knows of.
    pub(crate) fn status(&self) -> Status {
        match (&self.block, self.parked.as_ref().or(self.up.as_ref())) {
            (Some(block), _) => block.status(),
            (None, Some(up)) => up.status,
            (None, None) => Status::Idle,
        }
    }

    /// Whether a transaction block is open.
    pub(crate) fn is_in_block(&self) -> bool {
        self.status() != Status::Idle
    }

    pub(crate) fn is_unit_open(&self) -> bool {
        self.open == Open::Running
    }

    pub(crate) fn unit_is_open(&mut self) {
        self.open = Open::Running;
    }

    /// The facts of a text as this session would run it.
    pub(crate) fn analyse(&self, text: &[u8], env: &dyn Env) -> Arc<Analysis> {
        self.analyse_with(text, self.path.as_ref().filter(|_| !self.is_path_unknown), env)
    }

    /// The facts of a text when names could mean any schema's.
    pub(crate) fn analyse_anywhere(&self, text: &[u8], env: &dyn Env) -> Arc<Analysis> {
        self.analyse_with(text, None, env)
    }

    fn analyse_with(&self, text: &[u8], path: Option<&SearchPath>, env: &dyn Env) -> Arc<Analysis> {
        match std::str::from_utf8(text) {
            _ if !self.has_plain_strings && text.contains(&b'\\') => {
                Arc::new(Analysis::unparsable(text.len()))
            }
            Ok(text) => env.analyse(text, path),
            // Names and values come out wrong: of what is found, whole tables count.
            Err(_) => Arc::new(env.analyse(&shadow(text), path).by_tables()),
        }
    }

    /// What a statement may write, static analysis and what it can't know (I6).
    pub(crate) fn writes_of(
        &self,
        statement: &Statement,
        values: &RunValues<'_>,
        env: &dyn Env,
    ) -> Items {
        if !self.opened.is_replicated || self.snapshot.is_some() {
            return Items::Nothing;
        }
        let is_blind = self.transaction.has_ddl || env.is_catalog_stale();
        if statement.writes.is_empty() {
            if is_blind && matches!(statement.kind, Kind::Read | Kind::CopyOut) {
                return Items::Everything; // what it calls may have become something that writes
            }
            // An opaque function that claims not to write may call one that does.
            return match (&statement.kind, &statement.reads) {
                (Kind::Read | Kind::CopyOut, Items::Everything)
                    if statement.replica == Replica::Safe =>
                {
                    Items::Everything
                }
                _ => Items::Nothing,
            };
        }
        if is_blind {
            return Items::Everything;
        }
        statement.writes_with(values)
    }

    /// Makes a statement that the client prepared by the protocol known under the client's name,
    /// for SQL that names it (EXECUTE, DEALLOCATE), as it is in front of what comes behind it in its unit.
    pub(crate) fn write_named(
        &self,
        up: &mut Upstream,
        statement: &Statement,
        audience: Audience,
    ) -> bool {
        let Kind::Session(command) = &statement.kind else { return false };
        let (SessionCommand::Execute(name) | SessionCommand::Deallocate(Some(name))) = command
        else {
            return false;
        };
        let prepared = self.names.get_before(name.as_bytes(), self.flight.names_left);
        let Some(prepared) = prepared else { return false };
        match command {
            SessionCommand::Execute(_) => up.write_named(name.as_bytes(), prepared, audience),
            _ => up.write_taken(name.as_bytes(), audience), // it may not make sense any more
        }
    }

    /// Leaves what the session has prepared at its connection, by the names that the client gave, and nothing
    /// else: in front of a statement that lists that. What can't be parsed any more ends no transaction.
    pub(crate) fn show_prepared(&self, up: &mut Upstream) {
        const MARK: &str = "SAVEPOINT hihooi";
        const BACK: &str = "ROLLBACK TO SAVEPOINT hihooi; RELEASE SAVEPOINT hihooi";
        if up.status == Status::Failed {
            return; // nothing will be listed
        }
        up.close_statements();
        up.lists_prepared = true;
        let names = self.names.all().into_iter();
        let names = names.filter(|(name, of)| !name.is_empty() && !up.has_named(name, of.id));
        let names: Vec<_> = names.collect();
        let in_block = up.status == Status::Block && !names.is_empty();
        if in_block {
            up.write_own_query(MARK);
        }
        for (name, prepared) in names {
            up.write_named(name, prepared, Audience::Us);
            up.write_sync(Audience::Us); // one that fails doesn't matter to those before
        }
        if in_block {
            up.write_own_query(BACK);
        }
    }

    /// Notes that `currval` and `lastval` may know a number on this connection from now on: a trigger, a
    /// default, any function may take one. A read that could run at a replica can't; nor can a COMMIT but
    /// for what was written before it.
    pub(crate) fn may_take_numbers(&mut self, up: &mut Upstream, statement: &Statement) {
        let takes_none = match statement.kind {
            Kind::Read => statement.replica == Replica::Safe,
            _ => statement.kind.is_bound_of_transaction(),
        };
        if !takes_none {
            up.numbers_of = Some(self.opened.id);
            self.numbers_at = Some(up.pid);
        }
    }

    /// Has a connection forget the numbers of other sessions; also the session's own if it has taken
    /// some elsewhere since, for those would be the last ones.
    pub(crate) fn forget_foreign_numbers(&self, up: &mut Upstream) {
        let Some(owner) = up.numbers_of else { return };
        if owner != self.opened.id || self.numbers_at != Some(up.pid) {
            up.write_forget_numbers();
        }
    }

    /// Tells the client an error in place of a simple query's answer.
    pub(crate) fn refuse_simple(&mut self, report: &Report) {
        report.write(&mut self.down.output);
        self.write_ready();
    }

    /// Tells the client an error in place of what it sent by the extended protocol.
    pub(crate) fn refuse_extended(&mut self, report: &Report, goes_on: bool) {
        report.write(&mut self.down.output);
        self.skip_extended(goes_on);
    }

    /// What the client sent by the extended protocol is not answered, but for its Sync.
    pub(crate) fn skip_extended(&mut self, goes_on: bool) {
        if goes_on {
            self.open = Open::Skipping;
        } else {
            self.write_ready();
        }
    }

    /// Tells the client that the next unit can come.
    pub(crate) fn write_ready(&mut self) {
        backend::ready_for_query(self.status(), &mut self.down.output);
    }

    /// Notes where a unit runs.
    pub(crate) fn note_route(&mut self, route: Route, out: &mut Actions) {
        self.last_route = (route.placed(), route.decider);
        out.push_back(Action::Note(route.placed()));
    }

    /// Why a unit that isn't routed runs on the primary.
    pub(crate) fn reason_for(&self, statement: Option<&Statement>) -> Reason {
        if self.is_in_block() && self.block.as_ref().is_none_or(|block| block.has_failed()) {
            return if self.transaction.writes.is_empty() {
                Reason::ExplicitBlock
            } else {
                Reason::InWriteTransaction
            };
        }
        match statement {
            _ if self.pin.is_some() => Reason::SessionState,
            Some(statement) if statement.is_write() => Reason::Write,
            _ if self.isolation == Isolation::Serializable => Reason::Isolation,
            _ => Reason::Unsafe,
        }
    }

    /// Where the answer to the client is written.
    pub(crate) fn output(&mut self) -> &mut BytesMut {
        &mut self.down.output
    }
}

/// A session may work on any thread.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Session>();
};

/// The end of a session whose client says nothing for too long, in PostgreSQL's words.
fn idle_too_long(in_transaction: bool) -> Report {
    match in_transaction {
        true => Report::fatal("25P03", "terminating connection due to idle-in-transaction timeout"),
        false => Report::fatal("57P05", "terminating connection due to idle-session timeout"),
    }
}

/// The end of all sessions, in PostgreSQL's words.
#[must_use]
pub fn going_away() -> Report {
    Report::fatal("57P01", "terminating connection due to administrator command")
}

/// The end of a session that waits for the answer to a COMMIT in vain.
pub(crate) fn unknown_outcome() -> Report {
    Report::fatal("08007", "the connection to the primary was lost during a commit")
        .detail("Whether the transaction was committed is not known.")
        .hint("Connect again, and check for its changes before you repeat it.")
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

/// Whether a text may be a DEALLOCATE, or DISCARD ALL; at first sight, since most are not.
pub(crate) fn may_take(text: &[u8]) -> bool {
    let first = text.trim_ascii_start().first();
    matches!(first, Some(b'd' | b'D' | b'-' | b'/' | b';'))
        && (mentions(text, b"deallocate") || mentions(text, b"discard"))
}

/// Whether a text holds a word, in any case.
pub(crate) fn mentions(text: &[u8], word: &[u8]) -> bool {
    let Some(first) = word.first() else { return true };
    memchr::memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), text)
        .any(|at| text[at..].get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word)))
}
