//! The steps for everything that needs a server: choose a route if a replica may run it, take a connection and
//! set the session's settings on it, write the unit, relay its answer, report what became of its writes, query
//! the session state that it left behind, return the connection.
//!
//! ```text
//! begin ─▶ routed ─▶ leased ─▶ (carried) ─▶ (described) ─▶ written ─▶ answered
//!            ▲                                                            │
//!            └──── a replica failed; the client has seen nothing (I3) ────┤
//!               done ◀─ (cleaned) ◀─ (looked at) ◀─ (followed) ◀──────────┘
//! ```

mod answered;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hihooi_sql::{Analysis, Discard, Kind, SessionCommand, Statement};
use hihooi_wire::backend::{ErrorFields, Report, Severity, Status};

use crate::answers::{Audience, Sent};
use crate::downstream::Message;
use crate::effects::Look;
use crate::events::{Action, Actions, Env, ReadRequest};
use crate::own_types::Needs;
use crate::passwords::{Held, Storing};
use crate::read::{Wanted, can_be_sent, hinted_level, is_binary, write_read};
use crate::relaying::{Hold, QUERY_CANCELED};
use crate::route::{Reason, Route};
use crate::session::{End, Phase, Session};
use crate::settings_in_block::{HasSet, Reports, Setting, write_reports};
use crate::simple::{How, drops_database, ends_transaction};
use crate::sites::SiteId;
use crate::unit::{Ends, Op, Unit, Written, may_define};
use crate::upstream::{NamesDone, Upstream};
use crate::values::RunValues;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum What {
    /// A simple query or a function call, as it came.
    Query(Query),
    /// A unit of the extended protocol, or a simple query by it.
    Unit(Unit),
    /// The question how a password in what the client sent is stored.
    Storing(Held),
}

/// A simple query or a function call.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    /// The message.
    pub(crate) message: Message,
    /// Its text; empty for a function call.
    pub(crate) text: Bytes,
    /// The facts of the text.
    pub(crate) facts: Arc<Analysis>,
}

/// COPY of the client's data, in what was written last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyIn {
    /// The server has asked for none.
    No,
    /// What the client sends goes to the server.
    Fed,
    /// The client has sent its end, or the server an error.
    Over,
}

/// Something that is being done.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) what: What,
    pub(crate) route: Route,
    /// It reads what a replica may have.
    pub(crate) wanted: Option<Wanted>,
    /// The client goes on with the unit.
    goes_on: bool,
    /// Replicas that failed.
    not: Vec<SiteId>,
    /// So many answers were discarded, since they may have shown two transactions in another order than the
    /// primary did.
    discarded: u32,
    /// When it was sent on its way, if that is measured.
    began: Option<Duration>,
    /// When a replica got it, until that begins to answer.
    sent: Option<Duration>,
    /// So many messages of the unit are written.
    next: usize,
    pub(crate) copy: CopyIn,
    /// The session had its connection already.
    was_held: bool,
    /// The unit failed after these changes of names had been answered.
    pub(crate) failed_after: Option<NamesDone>,
    storing: Option<Storing>,
    /// It makes a setting in a block that no server has begun.
    pub(crate) setting: Option<Box<Setting>>,
}

impl Work {
    pub(crate) fn new(what: What, route: Route) -> Work {
        Work {
            what,
            route,
            wanted: None,
            goes_on: false,
            not: Vec::new(),
            discarded: 0,
            began: None,
            sent: None,
            next: 0,
            copy: CopyIn::No,
            was_held: false,
            failed_after: None,
            storing: None,
            setting: None,
        }
    }

    /// Makes a setting in a block that no server has begun: any replica may do it.
    pub(crate) fn that_sets(setting: Setting, query: Query, env: &dyn Env) -> Work {
        let wanted = Wanted::of_nothing(&query.facts, env.catalog_version());
        let work = Work::new(What::Query(query), Route::primary(Reason::NoReplica)).wanting(wanted);
        Work { setting: Some(Box::new(setting)), ..work }
    }

    /// A replica may do it.
    pub(crate) fn wanting(self, wanted: Wanted) -> Work {
        Work { wanted: Some(wanted), ..self }
    }

    /// The client goes on with the unit.
    pub(crate) fn going_on(self, goes_on: bool) -> Work {
        Work { goes_on, ..self }
    }

    fn is_at_primary(&self) -> bool {
        self.route.site == SiteId::Primary
    }

    /// Only the primary can answer it.
    pub(crate) fn needs_primary(&mut self) {
        (self.route, self.began) = (Route::primary(Reason::Unsafe), None);
    }

    /// The first of its statements.
    pub(crate) fn first(&self) -> Option<&Statement> {
        match &self.what {
            What::Query(query) => query.facts.statements.first(),
            What::Unit(unit) => unit.ops.iter().find_map(Op::statement),
            What::Storing(_) => None,
        }
    }

    /// Whether it is a query without a statement, for which a transaction takes no snapshot.
    pub(crate) fn is_empty_query(&self) -> bool {
        let What::Query(Query { message, .. }) = &self.what else { return false };
        message.tag == hihooi_wire::frontend::tag::QUERY
            && !self.runs_any(|one| one.kind != Kind::Empty)
    }

    /// Whether any of the statements that run is such a one.
    fn runs_any(&self, is_such: impl Fn(&Statement) -> bool) -> bool {
        match &self.what {
            What::Query(query) => query.facts.statements.iter().any(is_such),
            What::Unit(unit) => unit.ops.iter().filter_map(Op::statement).any(is_such),
            What::Storing(_) => false,
        }
    }
}

/// A read of which so many answers were discarded runs on the primary.
const DISCARDED_MAX: u32 = 2;

/// At how many moments a read looks at the data: when a portal is bound, or a simple query runs.
fn moments(what: &What) -> usize {
    match what {
        What::Unit(unit) => unit.ops.iter().filter(|op| matches!(op, Op::Bind { .. })).count(),
        What::Query(_) | What::Storing(_) => 1,
    }
}

/// What comes when the server has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The connection has the session's settings.
    Carried,
    /// It is known what statements return that the connection lacked.
    Described,
    /// The primary has begun the client's block.
    Begun,
    /// A part of the unit has run.
    Written(Written),
    /// A replica has answered.
    Read,
    /// The primary says how it stores passwords.
    Asked,
    /// The transaction fails at the primary as a read of it did elsewhere.
    FailedToo,
    /// What committed by itself has been noted.
    Followed,
    /// The session's state is known, after it was asked for so many times.
    Looked(Look, u32),
    /// Names that were needed for the unit are gone.
    Cleaned,
}

impl Session {
    /// Begins with something that needs a server.
    pub(crate) fn begin(&mut self, mut work: Work, env: &dyn Env, out: &mut Actions) {
        let fits = self.goes_to_snapshot(&mut work, env, out);
        let is_routed = work.wanted.is_some();
        self.work = Some(Box::new(work));
        if let Err(report) = fits {
            return self.lose_snapshot(report, out);
        }
        if is_routed { self.ask_route(env, out) } else { self.lease(env, out) }
    }

    /// What the session reads; to be asked behind [`Action::Route`].
    #[must_use]
    pub fn wanted(&self) -> Option<ReadRequest<'_>> {
        let Work { wanted: Some(wanted), not, discarded, .. } = self.work.as_deref()? else {
            return None;
        };
        Some(ReadRequest {
            items: wanted.items(),
            consistency: wanted.consistency.unwrap_or(self.own.consistency),
            wait_ms: self.own.wait_ms,
            statement: wanted.statement,
            own_types: wanted.own_types,
            takes_snapshot: wanted.takes_snapshot,
            is_again: *discarded > 0,
            is_beside: self.parked.is_some() || self.up.is_some(),
            not,
        })
    }

    /// The replica that has a read of the session's or is to get it, and whether its answer hasn't begun.
    #[must_use]
    pub fn reads_at(&self) -> Option<(usize, bool)> {
        let work = self.work.as_ref()?;
        let is_there = matches!(self.phase, Phase::Leasing | Phase::Answering(_));
        match work.route.site {
            SiteId::Replica(number) if is_there => Some((number, work.sent.is_some())),
            _ => None,
        }
    }

    fn ask_route(&mut self, env: &dyn Env, out: &mut Actions) {
        let Some(work) = &mut self.work else { return };
        if let Some(wanted) = &mut work.wanted {
            let needs = env.needs(wanted.statement);
            wanted.own_types |= needs == Some(Needs::Objects);
            if needs == Some(Needs::Primary) && is_binary(&work.what) {
                work.route = Route::primary(Reason::Unsafe);
                return self.lease(env, out);
            }
        }
        if work.discarded >= DISCARDED_MAX {
            work.route = Route::primary(Reason::Discarded);
            return self.lease(env, out);
        }
        // What came since may name rows otherwise than the read does.
        let version = env.catalog_version();
        if work.wanted.as_ref().is_some_and(|wanted| wanted.catalog_version != version) {
            work.route = Route::primary(Reason::NotFresh);
            return self.lease(env, out);
        }
        self.phase = Phase::Routing;
        out.push_back(Action::Route);
    }

    pub(crate) fn routed(&mut self, route: Route, env: &dyn Env, out: &mut Actions) {
        let Some(work) = &mut self.work else { return };
        work.route = route;
        // On the primary only what no replica was fresh enough for.
        let measures =
            if work.is_at_primary() { route.reason == Reason::NotFresh } else { env.measures() };
        work.began = measures.then(|| env.now());
        self.lease(env, out);
    }

    pub(crate) fn lease(&mut self, env: &dyn Env, out: &mut Actions) {
        let Some(work) = &mut self.work else { return };
        let route = work.route;
        work.was_held = self.up.is_some();
        if route.site == SiteId::Primary && self.block.is_some() {
            work.setting = None; // it runs as it came
            self.leave_settings(false);
        }
        let is_home = route.site == self.home();
        if is_home {
            self.resume(out)
        } else {
            self.park(out)
        }
        let Some(work) = &self.work else { return };
        match &work.what {
            What::Storing(_) => {}
            What::Query(query) if query.facts.statements.iter().any(drops_database) => {
                out.push_back(Action::CloseUnusedDatabases);
                self.note_route(route, out);
            }
            _ => self.note_route(route, out),
        }
        if self.snapshot.is_some() && is_home {
            self.describe(env, out);
        } else if self.up.is_some() {
            self.carry_settings(env, out);
        } else {
            self.phase = Phase::Leasing;
            out.push_back(Action::Lease(route.site));
        }
    }

    pub(crate) fn leased(&mut self, mut up: Box<Upstream>, env: &dyn Env, out: &mut Actions) {
        self.forget_foreign_numbers(&mut up);
        self.up = Some(up);
        self.carry_settings(env, out);
    }

    /// Gives the connection the session's settings if it has others.
    fn carry_settings(&mut self, env: &dyn Env, out: &mut Actions) {
        let Some(up) = &mut self.up else { return };
        let is_foreign = up.unseen_code_of.is_some_and(|session| session != self.opened.id);
        if is_foreign || up.settings != self.settings {
            up.answers.take_error(); // of what somebody prepared before
            up.write_own_query(&self.settings.statements(!up.is_replica));
            self.await_own(Then::Carried);
        } else {
            self.write(env, out);
        }
    }

    fn carried(&mut self, env: &dyn Env, out: &mut Actions) {
        let Some(up) = &mut self.up else { return };
        up.answers.take_rows();
        match up.answers.take_error() {
            None => {
                up.settings = self.settings.clone();
                up.unseen_code_of = None;
                self.write(env, out);
            }
            Some(error) => {
                if self.settings.get("role").is_some() && self.gives_up_role() {
                    let others = self.settings.values.iter().filter(|(name, _)| name != "role");
                    let others = self.settings.with_values(others.cloned().collect());
                    self.settings = Arc::new(others);
                    return self.carry_settings(env, out);
                }
                let site = self.work.as_ref().map_or(SiteId::Primary, |work| work.route.site);
                let fields = ErrorFields::read(&error).unwrap_or_default();
                let what = format!("{} refused a connection: {fields}", env.site_name(site));
                self.refused(Report::error("08006", what), env, out);
            }
        }
    }

    /// Whether the work does nothing but give up the role that was set. That needs no connection that has it: the role may be gone,
    /// or the right to it.
    fn gives_up_role(&self) -> bool {
        let facts: Vec<&Arc<Analysis>> = match self.work.as_ref().map(|work| &work.what) {
            Some(What::Query(query)) => vec![&query.facts],
            Some(What::Unit(unit)) => {
                unit.ops.iter().filter_map(|op| Some(op.prepared()?.1)).collect()
            }
            Some(What::Storing(_)) | None => Vec::new(),
        };
        let gives_up = |statement: &Statement| match &statement.kind {
            Kind::Session(SessionCommand::Discard(Discard::All)) => true,
            Kind::Session(SessionCommand::Reset(Some(name))) => &**name == "role",
            Kind::Session(SessionCommand::Set { name, values, .. }) => {
                let is_none = |values: &[Box<str>]| values.iter().any(|value| &**value == "none");
                &**name == "role" && values.as_ref().is_none_or(|values| is_none(values))
            }
            _ => false,
        };
        let mut statements = facts.into_iter().flat_map(|facts| &facts.statements).peekable();
        statements.peek().is_some() && statements.all(gives_up)
    }

    /// The primary is where the client's block is.
    fn begun(&mut self, env: &dyn Env, out: &mut Actions) {
        let (Some(block), Some(up)) = (&self.block, &mut self.up) else { return };
        up.answers.take_rows();
        let error = up.answers.take_error();
        if up.status == block.status() {
            for effect in block.sets().map(HasSet::effect) {
                self.is_path_unknown |= effect.settings || effect.search_path;
                self.effects.merge(&effect);
            }
            self.transaction.is_read_committed = !block.is_of_one_snapshot();
            self.block = None;
            return self.write_now(env, out);
        }
        let fields = ErrorFields::read(&error.unwrap_or_default()).unwrap_or_default();
        let report = match fields.code() {
            // It was meant for the client's statement, which was not sent yet.
            QUERY_CANCELED => Report::error(QUERY_CANCELED, fields.message()),
            _ => Report::error("08006", "the transaction could not be begun on the primary")
                .detail(fields.to_string()),
        };
        self.refused(report, env, out);
    }

    /// There is no connection to be had.
    pub(crate) fn refused(&mut self, report: Report, env: &dyn Env, out: &mut Actions) {
        let Some(work) = &mut self.work else { return };
        if !work.is_at_primary() {
            self.discard(out);
            return self.try_elsewhere(env, out);
        }
        // The transaction is lost if the primary can't be asked beside it.
        if self.snapshot.is_some() {
            self.discard(out);
            self.resume(out);
            self.phase = Phase::Idle;
            return self.lose_snapshot(report, out);
        }
        let has_begun = self.is_in_block() && self.block.is_none();
        let has_state = has_begun || self.pin.is_some();
        self.discard(out);
        if has_state {
            let report = Report { severity: Severity::Fatal, ..report };
            return self.end(End::Fatal(report), out);
        }
        report.write(&mut self.down.output);
        if let Some(block) = &mut self.block {
            write_reports(&block.reports_of_failure(), &mut self.down.output);
            block.has_run(true);
        }
        self.skip(NamesDone::default());
    }

    /// Tells the client an error in place of the rest of the answer to what it sent: these changes of names were
    /// answered.
    pub(crate) fn refuse_after(&mut self, report: &Report, answered: NamesDone) {
        if self.work.is_some() {
            report.write(&mut self.down.output);
            self.skip(answered);
        }
    }

    /// The client was told an error in place of the rest of the answer.
    pub(crate) fn skip(&mut self, answered: NamesDone) {
        let Some(work) = self.work.take() else { return };
        self.phase = Phase::Idle;
        self.names.undo_after(answered);
        match work.what {
            What::Unit(Unit { audience: Audience::Client, .. }) => {
                self.skip_extended(work.goes_on);
            }
            What::Query(_) | What::Unit(_) | What::Storing(Held::Query(_)) => self.write_ready(),
            What::Storing(Held::Unit { ends, .. }) => self.skip_extended(ends == Ends::Flush),
        }
    }

    /// Writes what is to be done, if the connection may still be used for it.
    fn write(&mut self, env: &dyn Env, out: &mut Actions) {
        let Some(work) = &self.work else { return };
        let at_primary = work.is_at_primary();
        if !at_primary && !env.still_serves(&work.route) {
            // It went back or failed while we waited.
            out.extend(self.up.take().map(Action::Release));
            return self.try_elsewhere(env, out);
        }
        self.describe(env, out);
    }

    /// Begins the client's block where that is needed, and writes what is to be done.
    pub(crate) fn write_described(&mut self, env: &dyn Env, out: &mut Actions) {
        let Some(work) = &self.work else { return };
        let at_primary = work.is_at_primary();
        if self.snapshot.is_some() && work.route.site == self.home() {
            return self.write_now(env, out);
        }
        match (&self.block, &mut self.up) {
            (Some(block), Some(up)) if at_primary => {
                up.write_own_query(&block.replay(None));
                self.await_own(Then::Begun);
            }
            (Some(block), Some(up)) if block.is_of_one_snapshot() => {
                // In one message: what commits in between may make the snapshot one that doesn't stand.
                up.write_own_query(&block.replay(work.route.snapshot.as_ref()));
                self.write_now(env, out);
            }
            _ => self.write_now(env, out),
        }
    }

    /// Writes what is to be done to the connection that is there for it.
    fn write_now(&mut self, env: &dyn Env, out: &mut Actions) {
        let Some(mut work) = self.work.take() else { return };
        // In a transaction that is open there, a replica is as the primary; beside it, the primary as a replica.
        let is_home = work.route.site == self.home();
        let objects = env.objects(work.route.site);
        let names_own = work.wanted.as_ref().is_some_and(|wanted| wanted.own_types);
        if !is_home && names_own && !can_be_sent(&work.what, objects.as_deref()) {
            work.needs_primary();
            self.work = Some(work);
            self.let_go(out);
            return self.lease(env, out);
        }
        self.note_portal_at(&work.what, is_home);
        if is_home {
            work.what = self.for_primary(work.what, env);
        }
        if !is_home && !self.down.output.is_empty() {
            self.down.settle();
        }
        let then = self.with_server(|session, up| match &work.what {
            _ if !is_home => {
                up.objects = objects;
                up.begin_unit();
                up.in_block = session.is_in_block().then(|| {
                    session
                        .block
                        .as_ref()
                        .map_or_else(Reports::new, |block| block.reports_of_failure())
                });
                match &work.setting {
                    Some(setting) => setting.write(up),
                    None => write_read(up, &work.what),
                }
                work.sent = Some(env.now());
                session.hold = match work.route {
                    _ if work.setting.is_some() => Hold::UntilLooked,
                    Route { site: SiteId::Primary, .. } => Hold::No,
                    Route { dispatched: Some(_), .. } => Hold::UntilBound(moments(&work.what)),
                    Route { dispatched: None, .. } => Hold::UntilRows,
                };
                Then::Read
            }
            What::Query(query) => {
                session.write_query(up, query, env, out);
                Then::Written(Written::Whole)
            }
            What::Unit(unit) => {
                Then::Written(session.write_unit(up, unit, &mut work.next, env, out))
            }
            What::Storing(_) => {
                session.write_question(up);
                Then::Asked
            }
        });
        self.work = Some(work);
        match then {
            Some(Then::Asked) => self.await_own(Then::Asked),
            Some(then) => {
                self.await_answer(then);
                self.go_on_if_answered(env, out);
            }
            None => {}
        }
    }

    /// A query as the primary gets it: by the extended protocol if something must be asked in its transaction.
    fn for_primary(&self, what: What, env: &dyn Env) -> What {
        match what {
            What::Query(query) => match self.how(&query, env) {
                How::Raw => What::Query(query),
                How::Extended => What::Unit(query.by_statements()),
            },
            what => what,
        }
    }

    /// Writes a query as it came. What it commits gets no name, so only an LSN resolves it.
    fn write_query(
        &mut self,
        up: &mut Upstream,
        Query { message, text, facts }: &Query,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let may_commit = up.status == Status::Idle
            || facts.statements.len() > 1
            || facts.statements.iter().any(|s| s.may_commit_inside || ends_transaction(s));
        let commits = may_commit.then(|| {
            let values = RunValues::of_text(text);
            let mut writes = self.writes_now(env);
            for statement in &facts.statements {
                writes.extend(self.writes_of(statement, &values, env));
            }
            writes
        });
        let defines = facts.statements.iter().any(may_define) || self.transaction.may_define;
        if let Some(writes) = commits.filter(|writes| !writes.is_empty()) {
            let write = self.begin_write(writes, defines, out);
            self.flight.opaque.push(write);
        }
        up.begin_unit();
        if facts.statements.iter().any(|statement| statement.lists_prepared) {
            self.show_prepared(up);
        }
        let level = hinted_level(text);
        for statement in &facts.statements {
            if self.write_named(up, statement, Audience::Us) {
                up.write_sync(Audience::Us);
            }
            self.note_query(up, statement, text, level, env);
        }
        up.unnamed = None;
        up.output.extend_from_slice(&message.bytes);
        up.answers.sent(Sent::Query, Audience::Client);
    }

    fn await_answer(&mut self, then: Then) {
        self.down.tells_leaving = true;
        if let Some(work) = &mut self.work {
            work.copy = CopyIn::No;
        }
        self.phase = Phase::Answering(then);
    }

    /// Waits for the answer to messages of our own.
    pub(crate) fn await_own(&mut self, then: Then) {
        self.down.tells_leaving = false; // what we ask is never cancelled
        self.phase = Phase::Answering(then);
    }
}
