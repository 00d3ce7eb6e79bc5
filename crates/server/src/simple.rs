//! Simple queries. A read goes as it came, to a replica or the primary. One writing statement
//! is sent by the extended protocol, so that the question for the transaction id fits into its
//! implicit transaction; several statements go as they came, or one by one if there is DDL
//! among them (manual, "Multiple Statements in a Simple Query").

use std::sync::Arc;

use bytes::Bytes;
use hihooi_replication::items::Items;
use hihooi_sql::{Analysis, Kind, Statement};
use hihooi_wire::backend::{self, Report, Status};
use hihooi_wire::frontend;

use crate::answers::{Audience, Sent};
use crate::backend::Backend;
use crate::client::Message;
use crate::hihooi_settings::Answer;
use crate::pump::{self, Hold, Lost, Step};
use crate::read::Sends;
use crate::relay::{Outcome, count};
use crate::route::{PRIMARY, Route};
use crate::session::{End, Session, Work};
use crate::unit::{Ends, Op, Unit};

/// How a simple query is run.
enum How {
    /// As it came, on the primary.
    Raw,
    /// By the extended protocol, statement by statement, in one transaction.
    Extended,
    /// Not at all.
    Refused(Report),
}

impl Session {
    /// Runs a simple query.
    pub(crate) async fn simple(&mut self, message: Message) -> Work<()> {
        let Ok(text) = frontend::read_query(message.body()) else {
            return Err(End::Fatal(Report::fatal("08P01", "invalid string in message")));
        };
        // "A simple Query message also destroys the unnamed statement."
        self.statements.remove(&b""[..]);
        let text = message.bytes.slice_ref(text);
        let facts = self.analyse(&text);
        if let [statement] = &*facts.statements {
            if let Kind::Hihooi(command) = &statement.kind
                && self.status() != Status::Failed
            {
                let answer = self.hihooi_command(command);
                self.answer_simple(answer);
                self.client.flush().await;
                return Ok(());
            }
            if let Some(route) = self.simple_read(&message, &text, statement).await? {
                return self.simple_on_primary(message, text, facts, route).await;
            }
            return Ok(());
        }
        let route = Route::primary(self.reason_for(facts.statements.first()));
        self.simple_on_primary(message, text, facts, route).await
    }

    /// Tries a replica; the route to the primary if it must run there.
    async fn simple_read(
        &mut self,
        message: &Message,
        text: &[u8],
        statement: &Statement,
    ) -> Work<Option<Route>> {
        match self.may_route().and_then(|()| Session::is_routable(statement, text)) {
            Ok(()) => self.run_at_replica(&Sends::Query(message), &statement.reads).await,
            Err(reason) if self.is_in_block() || self.pin.is_some() => {
                Ok(Some(Route::primary(reason)))
            }
            Err(reason) => Ok(Some(Route::primary(
                if statement.is_write() { crate::route::Reason::Write } else { reason },
            ))),
        }
    }

    async fn simple_on_primary(
        &mut self,
        message: Message,
        text: Bytes,
        facts: Arc<Analysis>,
        route: Route,
    ) -> Work<()> {
        match self.how(&text, &facts) {
            How::Raw => self.raw(message, &text, &facts, route).await,
            How::Extended => {
                let ops = statements_of(&text, &facts);
                let ends = Ends::Sync(Audience::Simple);
                let unit = Unit { ops, audience: Audience::Simple, ends };
                self.run_on_primary(&unit, route).await
            }
            How::Refused(report) => self.refuse_and_fail(&report).await,
        }
    }

    fn how(&self, text: &[u8], facts: &Analysis) -> How {
        let statements = &facts.statements;
        let carried = |statement: &Statement| matches!(&statement.kind, Kind::Ddl(ddl) if self.is_carried(ddl));
        if statements.iter().any(carried) {
            if std::str::from_utf8(text).is_err() {
                return How::Refused(
                    Report::error("0A000", "DDL must be sent in UTF-8 to be replicated")
                        .hint("SET client_encoding = 'UTF8' first."),
                );
            }
            if statements.len() > 1 && statements.iter().any(|s| !fits_in_unit(s)) {
                return How::Refused(
                    Report::error(
                        "0A000",
                        "DDL in one query with transaction control, or with a statement that \
                         can't run in a transaction, can't be replicated",
                    )
                    .hint("Send the statements one by one."),
                );
            }
            return How::Extended;
        }
        match &**statements {
            [statement] if self.asks_for_xid(statement) && !has_parameter(text) => How::Extended,
            _ => How::Raw,
        }
    }

    /// Whether a lone statement commits something whose transaction id can be asked for.
    fn asks_for_xid(&self, statement: &Statement) -> bool {
        let in_block = self.is_in_block();
        match statement.kind {
            _ if statement.may_commit_inside => false,
            Kind::Commit { .. } => in_block && !self.transaction.writes.is_empty(),
            Kind::Read | Kind::Write | Kind::CopyIn | Kind::CopyOut => {
                !in_block && !self.writes_of(statement).is_empty()
            }
            _ => false,
        }
    }

    /// Sends a query as it came. What it commits gets no name, so only an LSN resolves it.
    async fn raw(
        &mut self,
        message: Message,
        text: &[u8],
        facts: &Analysis,
        route: Route,
    ) -> Work<()> {
        self.routed(route);
        if facts.statements.iter().any(drops_database) {
            self.relay.pools.close_other_databases(&self.startup.database);
        }
        let mut server = match self.take_server(PRIMARY).await {
            Ok(server) => server,
            Err(refusal) => return self.refuse_unit(&refusal, Audience::Simple),
        };
        let relay = self.relay.clone();
        let _running = relay.running(PRIMARY);
        let writes = self.writes_of_all(facts);
        let may_commit = !self.is_block_open(&server)
            || facts.statements.len() > 1
            || facts.statements.iter().any(|s| s.may_commit_inside);
        let commits = may_commit.then(|| self.transaction.writes.union(&writes));
        let write = commits.filter(|w| !w.is_empty()).map(|w| relay.begin_write(w));
        server.begin_unit();
        for statement in &facts.statements {
            if self.write_named(&mut server, statement, Audience::Us) {
                server.write_sync(Audience::Us);
            }
            self.note_raw(statement);
        }
        server.unnamed = None;
        server.output.extend_from_slice(&message.bytes);
        server.answers.sent(Sent::Query, Audience::Client);
        match self.pump_query(&mut server).await {
            Ok(()) => {}
            Err(lost) => {
                self.flight.opaque.extend(write);
                return self.lost_in_unit(server, &lost);
            }
        }
        if let Some(write) = write {
            relay.end_write(write, Outcome::Unidentified);
        }
        self.count_raw(&server, facts);
        self.after_raw(&mut server, text, facts).await?;
        self.settle(server).await
    }

    fn is_block_open(&self, server: &Backend) -> bool {
        server.status != Status::Idle
    }

    fn writes_of_all(&self, facts: &Analysis) -> Items {
        let writes = facts.statements.iter().map(|statement| self.writes_of(statement));
        writes.fold(Items::Nothing, |all, writes| all.union(&writes))
    }

    fn note_raw(&mut self, statement: &Statement) {
        self.note_effects(statement);
        if matches!(statement.kind, Kind::Commit { .. } | Kind::Rollback { .. }) {
            self.transaction = Default::default();
        } else {
            let writes = self.writes_of(statement);
            self.transaction.writes = self.transaction.writes.union(&writes);
        }
    }

    async fn pump_query(&mut self, server: &mut Backend) -> Result<(), Lost> {
        while !server.answers.is_empty() {
            let step = pump::pump(&mut self.client, server, &mut Hold::No).await?;
            if step == Step::CopyIn {
                self.feed_copy(server).await?;
            }
        }
        Ok(())
    }

    fn count_raw(&self, server: &Backend, facts: &Analysis) {
        let counters = &self.relay.counters[PRIMARY];
        let writes = facts.statements.iter().any(Statement::is_write);
        count(if writes { &counters.writes } else { &counters.reads });
        if server.failed {
            count(&counters.errors);
        }
    }

    /// DDL that can't run in a transaction is logged when it has succeeded.
    async fn after_raw(
        &mut self,
        server: &mut Backend,
        text: &[u8],
        facts: &Analysis,
    ) -> Work<()> {
        let [Statement { kind: Kind::Ddl(ddl), .. }] = &*facts.statements else { return Ok(()) };
        if ddl.shared && server.status == Status::Idle {
            self.forget_welcomes();
        }
        let logs = self.is_replicated && ddl.replicate && !ddl.in_transaction;
        if logs && !server.failed && server.status == Status::Idle {
            self.client.flush().await;
            self.log_ddl_afterwards(server, text, ddl).await?;
        }
        Ok(())
    }

    fn answer_simple(&mut self, answer: Result<Answer, Report>) {
        let status = self.status();
        let out = self.output();
        match answer {
            Ok(Answer::Row(name, value)) => {
                backend::row_description(&[&name], out);
                backend::data_row([Some(value.as_str())].into_iter(), out);
                backend::command_complete("SHOW", out);
            }
            Ok(Answer::Done(command)) => backend::command_complete(command, out),
            Err(report) => report.write(out),
        }
        backend::ready_for_query(status, self.output());
    }

    /// Refuses a query; an open transaction fails, as it would at a server.
    pub(crate) async fn refuse_and_fail(&mut self, report: &Report) -> Work<()> {
        if let Some(mut server) = self.server.take() {
            if server.status == Status::Block {
                server.write_own_query("SELECT 1/0");
                self.own(&mut server).await?;
                server.answers.take_error();
            }
            self.server = Some(server);
        }
        self.refuse_simple(report);
        self.client.flush().await;
        Ok(())
    }

    /// FunctionCall: the server knows what it does; we don't.
    pub(crate) async fn function_call(&mut self, message: Message) -> Work<()> {
        let route = Route::primary(self.reason_for(None));
        let facts = self.analyse(b"CALL hihooi.function_call()");
        self.raw(message, b"", &facts, route).await
    }
}

/// Each statement of a query as its own text, with spaces in place of what stands before it, so
/// that positions in errors are those of the whole query.
fn statements_of(text: &Bytes, facts: &Arc<Analysis>) -> Vec<Op> {
    if facts.statements.len() == 1 {
        return vec![Op::Statement { text: text.clone(), facts: (facts.clone(), 0) }];
    }
    let all = String::from_utf8_lossy(text);
    let text_of = |statement: &Statement| {
        let before = all.get(..statement.range.start).unwrap_or_default().chars().count();
        let own = all.get(statement.range.clone()).unwrap_or(&all);
        Bytes::from(format!("{}{own}", " ".repeat(before)))
    };
    let op = |(index, statement)| Op::Statement {
        text: text_of(statement),
        facts: (facts.clone(), index),
    };
    facts.statements.iter().enumerate().map(op).collect()
}

/// Whether a statement may run as one of several in an implicit transaction of the extended
/// protocol.
fn fits_in_unit(statement: &Statement) -> bool {
    let control = matches!(
        statement.kind,
        Kind::Begin(_)
            | Kind::Commit { .. }
            | Kind::Rollback { .. }
            | Kind::Savepoint(_)
            | Kind::RollbackTo(_)
            | Kind::Release(_)
            | Kind::PrepareTransaction(_)
            | Kind::CommitPrepared(_)
            | Kind::RollbackPrepared(_)
            | Kind::Hihooi(_)
            | Kind::Unparsable
    );
    !control && !statement.may_commit_inside
}

fn drops_database(statement: &Statement) -> bool {
    matches!(&statement.kind, Kind::Ddl(ddl) if ddl.shared && !ddl.in_transaction)
}

/// Whether the text may hold `$1`, which means something in the extended protocol only.
fn has_parameter(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair[0] == b'$' && pair[1].is_ascii_digit())
}
