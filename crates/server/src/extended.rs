//! The extended protocol: from the messages up to a Sync to a unit of work (manual, "Extended
//! Query"). Names of prepared statements are the session's; servers know them by ids.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hihooi_sql::{Analysis, HihooiCommand, Kind};
use hihooi_wire::backend::{self, Report, tag as server_tag};
use hihooi_wire::frontend::{self, Bind, Parse, Target, tag};

use crate::hihooi_settings::Answer;
use crate::read::Sends;
use crate::relay::Prepared;
use crate::session::{End, Session, Work, may_change_path};
use crate::unit::{Ends, Op, Unit};
use hihooi_session::answers::Audience;
use hihooi_session::downstream::Message;
use hihooi_session::route::Route;

/// A change of the session's names, to be taken back if the server did not come to it.
#[derive(Debug)]
pub struct Renamed {
    /// How many Parse and Close come before it in the unit.
    ordinal: usize,
    name: Bytes,
    before: Option<Rc<Prepared>>,
}

impl Session {
    /// Runs what was gathered.
    pub(crate) async fn extended(&mut self) -> Work<()> {
        let mut messages = std::mem::take(&mut self.gathered);
        self.gathered_len = 0;
        let ends_with_sync = messages.last().is_some_and(|message| message.tag == tag::SYNC);
        if self.is_skipping {
            if ends_with_sync {
                self.is_skipping = false;
                self.is_unit_open = false;
                backend::ready_for_query(self.status(), &mut self.client.down.output);
                self.client.flush().await;
            }
            return Ok(());
        }
        if messages.last().is_some_and(|m| matches!(m.tag, tag::SYNC | tag::FLUSH)) {
            messages.pop();
        }
        let ends = if ends_with_sync { Ends::Sync(Audience::Client) } else { Ends::Flush };
        let mut ops = Vec::with_capacity(messages.len());
        for message in &mut messages {
            if let Err(report) = self.hash_passwords(message).await? {
                return self.refuse_extended(&report, ends).await;
            }
        }
        for message in messages {
            match self.op(message) {
                Ok(op) => ops.push(op),
                Err(error) => {
                    return Err(End::Fatal(crate::handshake::protocol_report(&error)));
                }
            }
        }
        if ops.iter().filter_map(Op::statement).any(may_change_path) {
            self.forget_path(&mut ops);
        }
        let unit = Unit { ops, audience: Audience::Client, ends };
        self.dispatch(unit).await
    }

    /// Names in a unit that changes what names mean could mean anything.
    fn forget_path(&self, ops: &mut [Op]) {
        for op in ops {
            if let Op::Bind { facts: Some(facts), prepared: Some(prepared), .. } = op {
                *facts = self.analyse_anywhere(&prepared.query);
            }
        }
    }

    async fn dispatch(&mut self, unit: Unit) -> Work<()> {
        if unit.ops.is_empty() && self.server.is_none() {
            if unit.ends != Ends::Flush {
                backend::ready_for_query(self.status(), &mut self.client.down.output);
                self.client.flush().await;
            }
            return Ok(());
        }
        if unit.ops.iter().all(|op| self.needs_no_server(op)) && self.server.is_none() {
            return self.answer_names(&unit).await;
        }
        if let Some(commands) = self.hihooi_unit(&unit) {
            return self.run_hihooi_unit(&unit, &commands).await;
        }
        if let Err(report) = self.check(&unit) {
            self.undo(0);
            return self.refuse_extended(&report, unit.ends).await;
        }
        let goes_on = unit.ends == Ends::Flush;
        let whole = self.whole(&unit);
        self.run_unit(whole.as_ref(), &unit).await?;
        self.after_unit(goes_on);
        Ok(())
    }

    async fn run_unit(&mut self, whole: Option<&Unit>, unit: &Unit) -> Work<()> {
        let first = || unit.ops.iter().find_map(Op::statement);
        let route = match whole.map(|whole| (whole, self.routable_unit(whole))) {
            Some((whole, Ok(wanted))) => {
                let Some(route) = self.run_at_replica(&Sends::Unit(whole), &wanted).await? else {
                    return Ok(());
                };
                let began = Instant::now();
                self.run_on_primary(whole, route).await?;
                self.learn_cost(&route, wanted.statement, began);
                return Ok(());
            }
            Some((_, Err(reason))) => Route::primary(self.reason_of(unit, reason)),
            None => Route::primary(self.reason_for(first())),
        };
        self.run_on_primary(whole.unwrap_or(unit), route).await
    }

    /// Whether a message only changes the session's names. Preparing transaction control is such
    /// a message, because a client that prepares BEGIN for one connection while it keeps the
    /// whole pool busy with others must not wait for itself. (The server parses it at Bind.)
    fn needs_no_server(&self, op: &Op) -> bool {
        match op {
            Op::CloseStatement => true,
            Op::Parse { prepared, is_taken: false, .. } => {
                matches!(
                    &*self.analyse_prepared(prepared).statements,
                    [only] if matches!(
                        only.kind,
                        Kind::Begin(_) | Kind::Commit { .. } | Kind::Rollback { .. }
                    )
                )
            }
            _ => false,
        }
    }

    async fn answer_names(&mut self, unit: &Unit) -> Work<()> {
        for op in &unit.ops {
            let tag = match op {
                Op::CloseStatement => server_tag::CLOSE_COMPLETE,
                _ => server_tag::PARSE_COMPLETE,
            };
            backend::empty(tag, self.output());
        }
        if unit.ends != Ends::Flush {
            backend::ready_for_query(self.status(), &mut self.client.down.output);
        }
        self.renamed.clear();
        self.client.flush().await;
        Ok(())
    }

    /// Takes back the names that a failed unit did not come to; ends it for the client unless
    /// its Sync has yet to come.
    fn after_unit(&mut self, goes_on: bool) {
        if self.is_unit_open {
            return;
        }
        match self.failed_after.take() {
            Some(done) => {
                self.undo(done);
                self.is_skipping |= goes_on;
            }
            None => self.renamed.clear(),
        }
    }

    fn reason_of(
        &self,
        unit: &Unit,
        reason: hihooi_session::route::Reason,
    ) -> hihooi_session::route::Reason {
        let statement = unit.ops.iter().find_map(Op::statement);
        match statement {
            Some(statement) if statement.is_write() && self.server.is_none() => {
                hihooi_session::route::Reason::Write
            }
            _ => reason,
        }
    }

    /// A unit that can run as a whole at any site: one that ends with Sync, or one that so far
    /// only looks at statements and leaves nothing behind at the server.
    fn whole(&self, unit: &Unit) -> Option<Unit> {
        if self.is_unit_open {
            return None;
        }
        match unit.ends {
            Ends::Sync(_) => Some(unit.clone()),
            Ends::Flush if self.server.is_none() && !unit.ops.iter().any(uses_portal) => {
                Some(Unit { ends: Ends::Sync(Audience::Us), ..unit.clone() })
            }
            Ends::Flush => None,
        }
    }

    fn op(&mut self, message: Message) -> hihooi_wire::Result<Op> {
        Ok(match message.tag {
            tag::PARSE => self.parse_op(message)?,
            tag::BIND => {
                let bind = Bind::read(message.body())?;
                let prepared = self.statements.get(bind.statement).cloned();
                let facts = prepared.as_ref().map(|prepared| self.analyse_prepared(prepared));
                Op::Bind { message, prepared, facts }
            }
            tag::DESCRIBE | tag::CLOSE => {
                let (target, name) = frontend::read_target(message.tag, message.body())?;
                match (target, message.tag) {
                    (Target::Statement, tag::DESCRIBE) => {
                        let prepared = self.statements.get(name).cloned();
                        Op::DescribeStatement { message, prepared }
                    }
                    (Target::Statement, _) => {
                        let name = message.bytes.slice_ref(name);
                        self.rename(name, None);
                        Op::CloseStatement
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

    fn parse_op(&mut self, message: Message) -> hihooi_wire::Result<Op> {
        let parse = Parse::read(message.body())?;
        let name = Bytes::copy_from_slice(parse.statement);
        let query = message.bytes.slice_ref(parse.query);
        let prepared = self.relay.prepared(query, message.bytes.slice_ref(parse.types));
        let is_taken = !name.is_empty() && self.statements.contains_key(&name);
        if !is_taken {
            self.rename(name, Some(prepared.clone()));
        }
        Ok(Op::Parse { message, prepared, is_taken })
    }

    fn rename(&mut self, name: Bytes, to: Option<Rc<Prepared>>) {
        let before = match to {
            Some(prepared) => self.statements.insert(name.clone(), prepared),
            None => self.statements.remove(&name),
        };
        self.renamed.push(Renamed { ordinal: self.renamed.len(), name, before });
    }

    fn undo(&mut self, done: usize) {
        let renamed = std::mem::take(&mut self.renamed);
        for change in renamed.into_iter().rev().filter(|change| change.ordinal >= done) {
            match change.before {
                Some(prepared) => self.statements.insert(change.name, prepared),
                None => self.statements.remove(&change.name),
            };
        }
    }

    /// What must be refused before the server sees it.
    fn check(&self, unit: &Unit) -> Result<(), Report> {
        for op in &unit.ops {
            let Op::Bind { facts: Some(facts), .. } = op else {
                continue;
            };
            for statement in &facts.statements {
                if matches!(statement.kind, Kind::Hihooi(_)) {
                    let what = "statements about hihooi.* can't share a pipeline with others";
                    return Err(Report::error("0A000", what).hint("Send a Sync between them."));
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn refuse_extended(&mut self, report: &Report, ends: Ends) -> Work<()> {
        report.write(self.output());
        if ends == Ends::Flush {
            self.is_skipping = true;
        } else {
            backend::ready_for_query(self.status(), &mut self.client.down.output);
        }
        self.client.flush().await;
        Ok(())
    }

    /// The facts of every statement of a unit that is all about hihooi.
    fn hihooi_unit(&self, unit: &Unit) -> Option<Vec<Arc<Analysis>>> {
        if self.is_unit_open || self.is_in_block() {
            return None;
        }
        let mut commands = Vec::new();
        for op in &unit.ops {
            let facts = match op {
                Op::Parse { prepared, .. } => self.analyse_prepared(prepared),
                Op::Bind { facts: Some(facts), .. } => facts.clone(),
                Op::DescribeStatement { prepared: Some(prepared), .. } => {
                    self.analyse_prepared(prepared)
                }
                Op::Portal(_) | Op::CloseStatement => continue,
                _ => return None,
            };
            command_of(&facts)?;
            commands.push(facts);
        }
        (!commands.is_empty()).then_some(commands)
    }

    async fn run_hihooi_unit(&mut self, unit: &Unit, commands: &[Arc<Analysis>]) -> Work<()> {
        let command = commands.last().and_then(|facts| command_of(facts).cloned());
        for op in &unit.ops {
            if let Err(report) = self.run_hihooi_op(op, command.as_ref()) {
                return self.refuse_extended(&report, unit.ends).await;
            }
        }
        if unit.ends != Ends::Flush {
            backend::ready_for_query(self.status(), &mut self.client.down.output);
        }
        self.client.flush().await;
        Ok(())
    }

    fn run_hihooi_op(&mut self, op: &Op, command: Option<&HihooiCommand>) -> Result<(), Report> {
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
            Op::CloseStatement => backend::empty(server_tag::CLOSE_COMPLETE, self.output()),
            Op::DescribeStatement { .. } => {
                frontend::message(server_tag::PARAMETER_DESCRIPTION, self.output(), |out| {
                    out.extend_from_slice(&[0, 0]);
                });
                describe(self.output());
            }
            Op::Portal(message) if message.tag == tag::EXECUTE => {
                let Some(command) = command else { return Ok(()) };
                match self.hihooi_command(command)? {
                    Answer::Row(_, value) => {
                        backend::data_row([Some(value.as_str())].into_iter(), self.output());
                        backend::command_complete("SHOW", self.output());
                    }
                    Answer::Done(command) => backend::command_complete(command, self.output()),
                }
            }
            Op::Portal(message) if message.tag == tag::CLOSE => {
                backend::empty(server_tag::CLOSE_COMPLETE, self.output());
            }
            Op::Portal(_) => describe(self.output()),
            Op::Statement { .. } => {}
        }
        Ok(())
    }
}

fn uses_portal(op: &Op) -> bool {
    matches!(op, Op::Bind { .. } | Op::Portal(_))
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
