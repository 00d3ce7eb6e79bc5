//! Simple queries. A read is sent as it was received, to a replica or the primary. A single writing statement
//! is sent by the extended protocol, so that the query for the transaction id can be in its implicit
//! transaction. Several statements are sent as they were received, or one by one if there is DDL among them for
//! which no event trigger fires (manual, "Multiple Statements in a Simple Query").

use std::sync::Arc;

use bytes::BytesMut;
use hihooi_sql::lexer::{TokenKind, tokens};
use hihooi_sql::{Analysis, Kind, SessionCommand, Statement};
use hihooi_wire::backend::{self, Report, Severity, Status};
use hihooi_wire::frontend;

use crate::answers::Audience;
use crate::block::Crossed;
use crate::consistency::Consistency;
use crate::downstream::Message;
use crate::effects::EVENT_TRIGGERS;
use crate::events::{Actions, Env};
use crate::own_settings::Answer;
use crate::passwords::Held;
use crate::read::Wanted;
use crate::route::{Reason, Route};
use crate::session::{End, Phase, Session};
use crate::settings_in_block::{is_for_reads, write_reports};
use crate::unit::{Ends, Op, Unit};
use crate::upstream::Upstream;
use crate::values::RunValues;
use crate::work::{Query, What, Work};

/// How a simple query is run.
pub(crate) enum How {
    /// As it came, on the primary.
    Raw,
    /// By the extended protocol, statement by statement, in one transaction.
    Extended,
}

impl Session {
    /// Runs a simple query.
    pub(crate) fn simple(&mut self, message: Message, env: &dyn Env, out: &mut Actions) {
        let Ok(text) = frontend::read_query(message.body()) else {
            let report = Report::fatal("08P01", "invalid string in message");
            return self.end(End::Fatal(report), out);
        };
        // "A simple Query message also destroys the unnamed statement."
        self.names.forget(b"");
        let facts = self.analyse(text, env);
        if facts.statements.iter().any(may_be_about_roles) && self.has_clear_password(text) {
            return self.ask_storing(Held::Query(message), env, out);
        }
        self.run_query(message, facts, env, out);
    }

    /// Runs a simple query that has no password in clear text.
    pub(crate) fn run_query(
        &mut self,
        message: Message,
        mut facts: Arc<Analysis>,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let Ok(text) = frontend::read_query(message.body()) else { return };
        if facts.statements.len() > 1
            && facts.statements.iter().any(|one| self.may_change_path_here(one))
        {
            facts = self.analyse_anywhere(text, env);
        }
        if self.opened.is_replicated && self.status() != Status::Failed {
            let tags = own_tags(text, &facts);
            if !tags.is_empty() {
                return self.keep_own_objects(tags);
            }
        }
        let text = message.bytes.slice_ref(text);
        let [statement] = &*facts.statements else {
            let route = Route::primary(self.reason_for(facts.statements.first()));
            let what = What::Query(Query { message, text, facts });
            return self.begin(Work::new(what, route), env, out);
        };
        if let Kind::Hihooi(command) = &statement.kind
            && self.status() != Status::Failed
        {
            let answer = self.own_command(command, env);
            return self.answer_simple(answer);
        }
        if let Some(bound) = self.bound(statement, &text, env) {
            let Crossed { command, reports } = self.cross(bound);
            backend::command_complete(command, self.output());
            write_reports(&reports, self.output());
            return self.write_ready();
        }
        if let Some(setting) = self.setting(statement, &text, env) {
            let work = Work::that_sets(setting, Query { message, text, facts }, env);
            return self.begin(work, env, out);
        }
        let routable = self
            .is_routable_here(statement, &text)
            .and_then(|hint| self.may_route(env).map(|()| hint))
            .and_then(|hint| self.fits_block(statement, &text).map(|()| hint));
        let query = Query { message, text: text.clone(), facts: facts.clone() };
        let work = |reason| Work::new(What::Query(query), Route::primary(reason));
        let work = match routable {
            Ok(consistency) => {
                let (granularity, version) = (self.own.granularity, env.catalog_version());
                let wanted = Wanted::of_query(facts, &text, granularity, consistency, version);
                let takes_snapshot = self.takes_snapshot();
                let wanted = if takes_snapshot { wanted.taking_snapshot() } else { wanted };
                match self.has_written(wanted.items(), env) {
                    true => work(Reason::InWriteTransaction),
                    false => work(Reason::NoReplica).wanting(wanted),
                }
            }
            // A relation that the catalog lacks may be one that it doesn't know yet.
            Err(Reason::Unsafe) if self.up.is_none() && env.is_catalog_stale() => {
                work(Reason::NotFresh)
            }
            Err(reason) if self.up.is_some() => work(self.why_not_beside(reason)),
            Err(reason) => work(reason),
        };
        self.begin(work, env, out);
    }

    /// How a query is run on the primary.
    pub(crate) fn how(&self, Query { message, text, facts }: &Query, env: &dyn Env) -> How {
        if message.tag == frontend::tag::FUNCTION_CALL {
            return How::Raw;
        }
        let statements = &facts.statements;
        let carried = |statement: &Statement| matches!(&statement.kind, Kind::Ddl(ddl) if self.is_carried(ddl));
        match &**statements {
            [statement @ Statement { kind: Kind::Commit { .. }, .. }]
                if self.asks_for_xid(statement, env) =>
            {
                How::Extended // a parameter can only stand in a comment
            }
            [statement] if carried(statement) => How::Extended,
            [statement] if self.switches_events_amid(statement, text) && !has_parameter(text) => {
                How::Extended
            }
            // Its own transaction is asked what it did, in front of the commit.
            [statement]
                if statement.kind == Kind::Call
                    && self.may_hide(statement, &statement.writes)
                    && !has_parameter(text) =>
            {
                How::Extended
            }
            [statement] if self.asks_for_xid(statement, env) && !has_parameter(text) => {
                How::Extended
            }
            [_, _, ..] if self.hides_among_others(statements, text) && !has_parameter(text) => {
                How::Extended
            }
            _ => How::Raw,
        }
    }

    /// Whether one of several statements is DDL that nobody is told of, and all of them can run
    /// one by one: their transaction is asked what it did, in front of its commit.
    fn hides_among_others(&self, statements: &[Statement], text: &[u8]) -> bool {
        let mut in_block = self.is_in_block();
        let mut is_first = true;
        let keeps_texts = |name: &str, values: Option<&[Box<str>]>| {
            name == EVENT_TRIGGERS || is_for_reads(name, values)
        };
        let mut runs_alone = |statement: &Statement| {
            let is_first = std::mem::take(&mut is_first);
            match &statement.kind {
                Kind::Ddl(ddl) => ddl.in_transaction,
                Kind::Read | Kind::Write => !statement.may_commit_inside,
                // (How the server reads the texts that follow may not change in between.)
                Kind::Session(SessionCommand::Set { name, values, local }) => {
                    (in_block || !local) && keeps_texts(name, values.as_deref())
                }
                Kind::Session(SessionCommand::Reset(Some(name))) => keeps_texts(name, None),
                Kind::Session(SessionCommand::Show(_)) => true,
                Kind::Savepoint(_) | Kind::RollbackTo(_) | Kind::Release(_) => in_block,
                // (Elsewhere the server makes a block of what ran in front, or warns.)
                Kind::Begin(_) => is_first && !std::mem::replace(&mut in_block, true),
                Kind::Commit { chain } | Kind::Rollback { chain } => {
                    std::mem::replace(&mut in_block, *chain)
                }
                _ => false,
            }
        };
        let may_lack_events =
            statements.iter().any(|one| self.may_lack_events(one, own_text(text, one)));
        let hides = |statement: &Statement| matches!(&statement.kind, Kind::Ddl(ddl) if ddl.hidden || may_lack_events);
        self.opened.is_replicated
            && statements.iter().any(hides)
            && statements.iter().all(&mut runs_alone)
    }

    /// Whether a lone statement commits something whose transaction id can be asked for.
    fn asks_for_xid(&self, statement: &Statement, env: &dyn Env) -> bool {
        let in_block = self.is_in_block();
        match statement.kind {
            _ if statement.may_commit_inside || statement.answers_more => false,
            // It would see the portal that the question needs.
            _ if statement.lists_prepared => false,
            Kind::Commit { .. } => in_block && !self.transaction.writes.is_empty(),
            Kind::Read | Kind::Write | Kind::CopyIn | Kind::CopyOut => {
                !in_block && !self.writes_of(statement, &RunValues::default(), env).is_empty()
            }
            _ => false,
        }
    }

    /// Notes what a statement does that is sent as it came, in a query with this level in its hint.
    pub(crate) fn note_query(
        &mut self,
        up: &mut Upstream,
        statement: &Statement,
        text: &[u8],
        level: Option<Consistency>,
        env: &dyn Env,
    ) {
        self.note_effects(up, statement, own_text(text, statement), level, env);
        if matches!(statement.kind, Kind::Commit { .. } | Kind::Rollback { .. }) {
            self.transaction_ends();
        } else {
            let writes = self.writes_of(statement, &RunValues::of_text(text), env);
            self.note_writes(statement, writes, env);
        }
    }

    fn answer_simple(&mut self, answer: Result<Answer, Report>) {
        let out = self.output();
        match answer {
            Ok(answer) => {
                if let Answer::Row(name, _) = &answer {
                    backend::row_description(&[name], out);
                }
                answer.write(out);
            }
            Err(report) => report.write(out),
        }
        self.write_ready();
    }

    /// hihooi's own objects are as they must be: what a dump says of them is not run, so that
    /// restoring it succeeds.
    fn keep_own_objects(&mut self, mut tags: Vec<&'static str>) {
        while !tags.is_empty() {
            if tags[0] == "COPY 0" {
                frontend::message(backend::tag::COPY_IN, self.output(), |out| {
                    out.extend_from_slice(&[0, 0, 0]); // text, no column described
                });
                self.phase = Phase::Swallowing(tags);
                return;
            }
            self.answer_own_object(tags.remove(0));
        }
        self.write_ready();
    }

    fn answer_own_object(&mut self, tag: &str) {
        Report {
            severity: Severity::Notice,
            ..Report::error("00000", "this object belongs to hihooi and is not changed")
        }
        .write(self.output());
        backend::command_complete(tag, self.output());
    }

    /// Takes COPY data from the client and throws it away.
    pub(crate) fn swallow(&mut self, message: &Message) {
        if !matches!(message.tag, frontend::tag::COPY_DONE | frontend::tag::COPY_FAIL) {
            return;
        }
        let Phase::Swallowing(tags) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let mut tags = tags.into_iter();
        tags.by_ref().take(1).for_each(|tag| self.answer_own_object(tag));
        self.keep_own_objects(tags.collect());
    }

    /// FunctionCall: the server knows what it does; we don't.
    pub(crate) fn function_call(&mut self, message: Message, env: &dyn Env, out: &mut Actions) {
        let route = Route::primary(self.reason_for(None));
        let (text, facts) = (message.bytes.slice(..0), Arc::new(Analysis::function_call()));
        self.begin(Work::new(What::Query(Query { message, text, facts }), route), env, out);
    }
}

impl Query {
    /// The statement that a unit runs, which has no parameters, as a query.
    pub(crate) fn of_unit(unit: &Unit) -> Option<Query> {
        let (prepared, facts) = unit.ops.iter().find(|op| op.statement().is_some())?.prepared()?;
        let mut bytes = BytesMut::new();
        frontend::query(&prepared.query, &mut bytes);
        let message = Message { tag: frontend::tag::QUERY, bytes: bytes.freeze() };
        Some(Query { message, text: prepared.query.clone(), facts: facts.clone() })
    }

    /// The same by the extended protocol, statement by statement.
    pub(crate) fn by_statements(self) -> Unit {
        let Query { text, facts, .. } = &self;
        let op = |(index, statement): (usize, &Statement)| Op::Statement {
            text: match facts.statements.len() {
                1 => text.clone(),
                _ => text.slice_ref(own_text(text, statement)),
            },
            facts: (facts.clone(), index),
        };
        let ops = facts.statements.iter().enumerate().map(op).collect();
        Unit { ops, audience: Audience::Simple, ends: Ends::Sync(Audience::Simple) }
    }
}

/// The command tags of a query that is all about hihooi's own objects; else none.
fn own_tags(text: &[u8], facts: &Analysis) -> Vec<&'static str> {
    let may_be_own = |statement: &Statement| matches!(statement.kind, Kind::Ddl(_) | Kind::CopyIn);
    if !facts.statements.iter().all(may_be_own) {
        return Vec::new();
    }
    let tag = |statement: &Statement| {
        let own = std::str::from_utf8(own_text(text, statement)).ok()?;
        hihooi_sql::own_object(own)
    };
    facts.statements.iter().map(tag).collect::<Option<_>>().unwrap_or_default()
}

/// A statement's own part of the query's text.
fn own_text<'a>(text: &'a [u8], statement: &Statement) -> &'a [u8] {
    let end = statement.range.end.min(text.len());
    text.get(statement.range.start..end).unwrap_or(text)
}

pub(crate) fn ends_transaction(statement: &Statement) -> bool {
    matches!(statement.kind, Kind::Commit { .. } | Kind::CommitPrepared(_))
}

fn may_be_about_roles(statement: &Statement) -> bool {
    matches!(&statement.kind, Kind::Ddl(ddl) if ddl.shared && ddl.in_transaction)
}

pub(crate) fn drops_database(statement: &Statement) -> bool {
    matches!(&statement.kind, Kind::Ddl(ddl) if ddl.shared && !ddl.in_transaction)
}

/// Whether the text may hold `$1` outside of strings, which means something in the extended
/// protocol only.
fn has_parameter(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair[0] == b'$' && pair[1].is_ascii_digit())
        && std::str::from_utf8(text)
            .map_or(true, |text| tokens(text).any(|token| token.kind == TokenKind::Parameter))
}
