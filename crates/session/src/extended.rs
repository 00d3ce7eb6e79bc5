//! The extended protocol: makes a unit of work of the messages up to a Sync (manual, "Extended Query").

use std::sync::Arc;

use bytes::Bytes;
use hihooi_sql::ddl_text::names_moment;
use hihooi_sql::{Analysis, HihooiCommand, Kind, Statement};
use hihooi_wire::backend::{self, Report, Status, tag as server_tag};
use hihooi_wire::frontend::{self, Bind, Parse, Target, tag};

use crate::answers::Audience;
use crate::block::names_a_day;
use crate::downstream::Message;
use crate::events::{Actions, Env, Prepared, protocol_report};
use crate::mistakes::{Mistake, makes};
use crate::passwords::Held;
use crate::read::is_routable;
use crate::route::{Reason, Route};
use crate::session::{End, Open, Phase, Session};
use crate::settings_in_block::Setting;
use crate::unit::{Ends, Op, Unit};
use crate::upstream::NamesDone;
use crate::work::{Query, What, Work};

impl Session {
    /// Runs what was gathered.
    pub(crate) fn run_gathered(&mut self, env: &dyn Env, out: &mut Actions) {
        let mut messages = std::mem::take(&mut self.gathered);
        if self.may_become_read(&messages, env) {
            self.gathered = messages;
            self.phase = Phase::AwaitingCatalog;
            return;
        }
        self.gathered_len = 0;
        self.may_take = false;
        let last = messages.last().map(|message| message.tag);
        if self.open == Open::Skipping {
            if last == Some(tag::SYNC) && !makes(Mistake::SyncSkipped) {
                self.open = Open::No;
                self.write_ready();
            }
            return;
        }
        if matches!(last, Some(tag::SYNC | tag::FLUSH)) {
            messages.pop();
        }
        let ends = if last == Some(tag::SYNC) { Ends::Sync(Audience::Client) } else { Ends::Flush };
        self.run_messages(messages, 0, ends, env, out);
    }

    /// Runs the messages of a unit; from this one on they may hold passwords in clear text.
    pub(crate) fn run_messages(
        &mut self,
        messages: Vec<Message>,
        from: usize,
        ends: Ends,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let holds_password = |message: &Message| {
            message.tag == tag::PARSE
                && Parse::read(message.body())
                    .is_ok_and(|parse| self.may_have_clear_password(parse.query))
        };
        if let Some(at) = messages[from..].iter().position(holds_password) {
            return self.ask_storing(Held::Unit { messages, at: from + at, ends }, env, out);
        }
        let mut ops = Vec::with_capacity(messages.len());
        let mut has_changed = false;
        for message in messages {
            match self.op(message, has_changed, env) {
                Ok(op) => {
                    has_changed |= op.statement().is_some_and(|one| self.changes_meanings(one));
                    ops.push(op);
                }
                Err(error) => return self.end(End::Fatal(protocol_report(&error)), out),
            }
        }
        if ops.iter().filter_map(Op::statement).any(|one| self.may_change_path_here(one)) {
            self.forget_path(&mut ops, env);
        }
        self.dispatch(Unit { ops, audience: Audience::Client, ends }, env, out);
    }

    /// Whether texts may mean other things behind a statement than in front of it.
    fn changes_meanings(&self, statement: &Statement) -> bool {
        self.may_change_path_here(statement) || matches!(statement.kind, Kind::Ddl(_))
    }

    /// Names in a unit that changes what names mean could mean anything.
    fn forget_path(&self, ops: &mut [Op], env: &dyn Env) {
        for op in ops {
            if let Op::Bind { prepared: Some((prepared, facts)), .. } = op {
                *facts = self.analyse_anywhere(&prepared.query, env);
            }
        }
    }

    fn dispatch(&mut self, mut unit: Unit, env: &dyn Env, out: &mut Actions) {
        let goes_on = unit.ends == Ends::Flush;
        let has_failed = self.status() == Status::Failed;
        let is_plain = |op: &Op| needs_no_server(op, has_failed) || self.may_parse_later(op, env);
        if self.up.is_none() && unit.ops.iter().all(is_plain) {
            return self.answer_names(&unit);
        }
        self.note_portals(&mut unit);
        let Some(unit) = self.cross_in_unit(unit, env) else { return };
        if let Some(commands) = self.own_unit(&unit) {
            return self.run_own_unit(&unit, &commands, env);
        }
        if let Some(setting) = self.setting_of_unit(&unit, env) {
            return self.set_in_unit(setting, unit, env, out);
        }
        if let Err(report) = self.check(&unit) {
            self.names.undo_after(NamesDone::default());
            return self.refuse_extended(&report, goes_on);
        }
        let first = unit.ops.iter().find_map(Op::statement);
        let (ends, work) = match self.ends_as_whole(&unit) {
            None => (unit.ends, Err(self.reason_for(first))),
            Some(ends) => {
                let wanted = self.routable_unit(&unit, env);
                (ends, wanted.map_err(|reason| self.why_at_primary(reason, first, env)))
            }
        };
        let what = What::Unit(Unit { ends, ..unit });
        let work = match work {
            Ok(wanted) => Work::new(what, Route::primary(Reason::NoReplica)).wanting(wanted),
            Err(reason) => Work::new(what, Route::primary(reason)),
        };
        self.begin(work.going_on(goes_on), env, out);
    }

    /// Runs a unit that makes a setting in a block that no server has begun: all in front of its Execute is answered here.
    fn set_in_unit(&mut self, setting: Setting, unit: Unit, env: &dyn Env, out: &mut Actions) {
        let Some(query) = Query::of_unit(&unit) else { return };
        let before = &unit.ops[..unit.ops.len() - 1];
        self.answer_crossed(before, "");
        self.names.keep_first(before.iter().filter(|op| matches!(op, Op::Parse { .. })).count());
        self.down.settle();
        self.begin(Work::that_sets(setting, query, env), env, out);
    }

    /// Why a unit that begins with this statement runs on the primary, if it isn't routed for this reason.
    fn why_at_primary(&self, reason: Reason, first: Option<&Statement>, env: &dyn Env) -> Reason {
        if self.up.is_some() {
            return self.why_not_beside(reason);
        }
        // Nothing is written where no connection is held, but what this writes.
        let reason = match first.filter(|first| first.is_write()) {
            Some(first) => is_routable(first, b"").err().unwrap_or(Reason::Write),
            None => reason,
        };
        // A relation that the catalog lacks may be one that it doesn't know yet.
        match reason {
            Reason::Unsafe if env.is_catalog_stale() => Reason::NotFresh,
            reason => reason,
        }
    }

    fn answer_names(&mut self, unit: &Unit) {
        for op in &unit.ops {
            let tag = match op {
                Op::CloseStatement(_) => server_tag::CLOSE_COMPLETE,
                _ => server_tag::PARSE_COMPLETE,
            };
            backend::empty(tag, self.output());
        }
        self.names.keep_changes();
        if unit.ends != Ends::Flush {
            self.write_ready();
        }
    }

    /// How a unit ends that can run as a whole at any site: one that ends with Sync, or one that so far
    /// only looks at statements and leaves nothing behind at the server.
    fn ends_as_whole(&self, unit: &Unit) -> Option<Ends> {
        if self.is_unit_open() {
            return None;
        }
        match unit.ends {
            Ends::Flush
                if (self.up.is_none() || self.is_in_block())
                    && !unit.ops.iter().any(Op::uses_portal) =>
            {
                Some(Ends::Sync(Audience::Us))
            }
            Ends::Flush => None,
            ends => Some(ends),
        }
    }

    /// What a message asks for, behind what may have changed settings or the schema in its unit, if that has.
    fn op(
        &mut self,
        message: Message,
        has_changed: bool,
        env: &dyn Env,
    ) -> hihooi_wire::Result<Op> {
        Ok(match message.tag {
            tag::PARSE => self.parse_op(message, has_changed, env)?,
            tag::BIND => {
                let bind = Bind::read(message.body())?;
                let prepared = self.named(bind.statement, env);
                Op::Bind { message, prepared }
            }
            tag::DESCRIBE | tag::CLOSE => {
                let (target, name) = frontend::read_target(message.tag, message.body())?;
                match (target, message.tag) {
                    (Target::Statement, tag::DESCRIBE) => {
                        let prepared = self.named(name, env);
                        Op::DescribeStatement { message, prepared }
                    }
                    (Target::Statement, _) => {
                        let name = message.bytes.slice_ref(name);
                        self.names.set(name, None);
                        Op::CloseStatement(message)
                    }
                    (Target::Portal, _) => Op::Portal(message),
                }
            }
            _ => {
                frontend::read_execute(message.body())?;
                Op::Portal(message)
            }
        })
    }

    fn parse_op(
        &mut self,
        message: Message,
        has_changed: bool,
        env: &dyn Env,
    ) -> hihooi_wire::Result<Op> {
        let parse = Parse::read(message.body())?;
        let name = Bytes::copy_from_slice(parse.statement);
        let query = message.bytes.slice_ref(parse.query);
        // (When it is prepared, PostgreSQL computes what 'today' is.)
        let is_timeless = !names_a_day(parse.query)
            || std::str::from_utf8(parse.query).is_ok_and(|text| !names_moment(text));
        let settings = self.shared_settings().filter(|_| !has_changed && is_timeless);
        let prepared = env.prepared(query, message.bytes.slice_ref(parse.types), settings);
        let is_taken = !name.is_empty() && self.names.get(&name).is_some();
        let facts = if is_taken {
            self.analyse(&prepared.query, env)
        } else {
            self.names.set(name.clone(), Some(prepared.clone()));
            self.facts_of(&name, &prepared, env)
        };
        Ok(Op::Parse { message, prepared, facts, is_taken })
    }

    /// The statement that the client prepared under this name, and its facts.
    pub(crate) fn named(
        &mut self,
        name: &[u8],
        env: &dyn Env,
    ) -> Option<(Arc<Prepared>, Arc<Analysis>)> {
        let prepared = self.names.get(name)?.clone();
        let facts = self.facts_of(name, &prepared, env);
        Some((prepared, facts))
    }

    /// The facts of a prepared statement: remembered with its name.
    fn facts_of(&mut self, name: &[u8], prepared: &Prepared, env: &dyn Env) -> Arc<Analysis> {
        if !self.has_plain_strings || self.is_path_unknown {
            return self.analyse(&prepared.query, env);
        }
        let found = (env.catalog_version(), self.path.clone());
        if let Some(facts) = self.names.facts(name, &found) {
            return facts;
        }
        let facts = self.analyse(&prepared.query, env);
        self.names.know(name, found, facts.clone());
        facts
    }

    /// The facts of every statement of a unit that is all about hihooi.
    pub(crate) fn own_unit(&self, unit: &Unit) -> Option<Vec<Arc<Analysis>>> {
        if self.is_unit_open() || self.status() == Status::Failed {
            return None;
        }
        let mut commands = Vec::new();
        for op in &unit.ops {
            match (op.prepared(), op) {
                (Some((_, facts)), _) => {
                    command_of(facts)?;
                    commands.push(facts.clone());
                }
                (None, Op::Portal(_) | Op::CloseStatement(_)) => {}
                (None, _) => return None,
            }
        }
        (!commands.is_empty()).then_some(commands)
    }

    /// What must be refused before the server sees it. In a failed block the server refuses it.
    fn check(&self, unit: &Unit) -> Result<(), Report> {
        for op in unit.ops.iter().filter(|_| self.status() != Status::Failed) {
            let Op::Bind { prepared: Some((_, facts)), .. } = op else {
                continue;
            };
            if facts.statements.iter().any(|statement| matches!(statement.kind, Kind::Hihooi(_))) {
                let what = "statements about hihooi.* can't share a pipeline with others";
                return Err(Report::error("0A000", what).hint("Send a Sync between them."));
            }
        }
        Ok(())
    }

    fn run_own_unit(&mut self, unit: &Unit, commands: &[Arc<Analysis>], env: &dyn Env) {
        let command = commands.last().and_then(|facts| command_of(facts).cloned());
        for op in &unit.ops {
            if let Err(report) = self.run_own_op(op, command.as_ref(), env) {
                self.names.undo_after(NamesDone::default());
                return self.refuse_extended(&report, unit.ends == Ends::Flush);
            }
        }
        self.names.keep_changes();
        if unit.ends != Ends::Flush {
            self.write_ready();
        }
    }

    fn run_own_op(
        &mut self,
        op: &Op,
        command: Option<&HihooiCommand>,
        env: &dyn Env,
    ) -> Result<(), Report> {
        let shows = match command {
            Some(HihooiCommand::Show(name)) => Some(format!("hihooi.{name}")),
            _ => None,
        };
        let describe = |out: &mut bytes::BytesMut| match &shows {
            Some(name) => backend::row_description(&[name], out),
            None => backend::empty(server_tag::NO_DATA, out),
        };
        match op {
            Op::Parse { .. } => backend::empty(server_tag::PARSE_COMPLETE, self.output()),
            Op::Bind { .. } => backend::empty(server_tag::BIND_COMPLETE, self.output()),
            Op::CloseStatement(_) => backend::empty(server_tag::CLOSE_COMPLETE, self.output()),
            Op::DescribeStatement { .. } => {
                frontend::message(server_tag::PARAMETER_DESCRIPTION, self.output(), |out| {
                    out.extend_from_slice(&[0, 0]);
                });
                describe(self.output());
            }
            Op::Portal(message) if message.tag == tag::EXECUTE => {
                let Some(command) = command else { return Ok(()) };
                self.own_command(command, env)?.write(self.output());
            }
            Op::Portal(message) if message.tag == tag::CLOSE => {
                backend::empty(server_tag::CLOSE_COMPLETE, self.output());
            }
            Op::Portal(_) => describe(self.output()),
            Op::Statement { .. } | Op::Changed(..) => {}
        }
        Ok(())
    }
}

/// Whether a message only changes the session's names. Preparing transaction control is such
/// a message, because a client that prepares BEGIN for one connection while it keeps the
/// whole pool busy with others must not wait for itself. (The server parses it at Bind.) In a block that has failed only
/// what ends it can be prepared.
fn needs_no_server(op: &Op, has_failed: bool) -> bool {
    match op {
        Op::CloseStatement(_) => true,
        Op::Parse { facts, is_taken: false, .. } => {
            matches!(&*facts.statements, [only] if only.kind.is_bound_of_transaction()
                && !(has_failed && matches!(only.kind, Kind::Begin(_))))
        }
        _ => false,
    }
}

fn command_of(facts: &Analysis) -> Option<&HihooiCommand> {
    match &*facts.statements {
        [statement] => match &statement.kind {
            Kind::Hihooi(command) => Some(command),
            _ => None,
        },
        _ => None,
    }
}
