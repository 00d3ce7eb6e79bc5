//! Simple queries. A read goes as it came, to a replica or the primary. One writing statement
//! is sent by the extended protocol, so that the question for the transaction id fits into its
//! implicit transaction; several statements go as they came, or one by one if there is DDL
//! among them that no event trigger is told of (manual, "Multiple Statements in a Simple Query").

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use hihooi_replication::items::Items;
use hihooi_sql::lexer::{TokenKind, tokens};
use hihooi_sql::{Analysis, Kind, Statement};
use hihooi_wire::backend::{self, Report, Severity, Status};
use hihooi_wire::frontend;

use crate::backend::Backend;
use crate::hihooi_settings::Answer;
use crate::read::{Sends, Wanted};
use crate::relay::count;
use crate::session::{End, Session, Work, may_change_path};
use crate::unit::{Ends, Op, Unit};
use hihooi_session::answers::{Audience, Sent};
use hihooi_session::downstream::Message;
use hihooi_session::route::{PRIMARY, Reason, Route};

/// How a simple query is run.
enum How {
    /// As it came, on the primary.
    Raw,
    /// By the extended protocol, statement by statement, in one transaction.
    Extended,
}

impl Session {
    /// Runs a simple query.
    pub(crate) async fn simple(&mut self, message: Message) -> Work<()> {
        if !self.gathered.is_empty() && !self.is_skipping {
            self.extended().await?; // what the client sent without Sync runs first
        }
        let skips = |server: &Backend| server.up.answers.is_skipping();
        if self.is_skipping || self.server.as_deref().is_some_and(skips) {
            return Ok(()); // in a failed unit, up to its Sync
        }
        let Ok(text) = frontend::read_query(message.body()) else {
            return Err(End::Fatal(Report::fatal("08P01", "invalid string in message")));
        };
        // "A simple Query message also destroys the unnamed statement."
        if !self.statements.is_empty() {
            self.statements.remove(&b""[..]);
        }
        let mut facts = self.analyse(text);
        if facts.statements.iter().any(may_be_about_roles) {
            match self.without_clear_passwords(text).await? {
                Ok(None) => {}
                Ok(Some(text)) => {
                    let mut bytes = BytesMut::new();
                    frontend::query(&text, &mut bytes);
                    let message = Message { bytes: bytes.freeze(), ..message };
                    return Box::pin(self.simple(message)).await;
                }
                Err(report) => return self.refuse_simple(&report).await,
            }
        }
        if facts.statements.len() > 1 && facts.statements.iter().any(may_change_path) {
            facts = self.analyse_anywhere(text);
        }
        if self.is_replicated && self.status() != Status::Failed {
            let tags = own_tags(text, &facts);
            if !tags.is_empty() {
                return self.keep_own_objects(&tags).await;
            }
        }
        if let [statement] = &*facts.statements {
            if let Kind::Hihooi(command) = &statement.kind
                && self.status() != Status::Failed
            {
                let answer = self.hihooi_command(command);
                self.answer_simple(answer);
                self.client.flush().await;
                return Ok(());
            }
            // Texts of one shape share their facts; another shape at the address does no harm.
            let statement_id = Arc::as_ptr(&facts).addr() as u64;
            if let Some(route) = self.simple_read(&message, text, statement, statement_id).await? {
                let began = Instant::now();
                self.simple_on_primary(&message, text, &facts, route).await?;
                self.learn_cost(&route, statement_id, began);
            }
            return Ok(());
        }
        let route = Route::primary(self.reason_for(facts.statements.first()));
        self.simple_on_primary(&message, text, &facts, route).await
    }

    /// Tries a replica; the route to the primary if it must run there.
    async fn simple_read(
        &mut self,
        message: &Message,
        text: &[u8],
        facts: &Statement,
        statement: u64,
    ) -> Work<Option<Route>> {
        let routable = match self.server {
            Some(_) => self.may_route().and_then(|()| Session::is_routable(facts, text)),
            None => {
                Session::is_routable(facts, text).and_then(|hint| self.may_route().map(|()| hint))
            }
        };
        match routable {
            Ok(consistency) => {
                let items = Cow::Borrowed(&facts.reads);
                let wanted = Wanted { items, consistency, statement };
                self.run_at_replica(&Sends::Query(message), &wanted).await
            }
            // A relation that the catalog lacks may be one that it doesn't know yet.
            Err(Reason::Unsafe) if self.server.is_none() && self.relay.is_catalog_stale() => {
                Ok(Some(Route::primary(Reason::NotFresh)))
            }
            Err(reason) => Ok(Some(Route::primary(reason))),
        }
    }

    async fn simple_on_primary(
        &mut self,
        message: &Message,
        text: &[u8],
        facts: &Arc<Analysis>,
        route: Route,
    ) -> Work<()> {
        match self.how(text, facts) {
            How::Raw => self.raw(message, text, facts, route).await,
            How::Extended => {
                let whole = message.bytes.slice_ref(text);
                let op = |(index, statement): (usize, &Statement)| Op::Statement {
                    text: match facts.statements.len() {
                        1 => whole.clone(),
                        _ => message.bytes.slice_ref(own_text(text, statement)),
                    },
                    facts: (facts.clone(), index),
                };
                let ops = facts.statements.iter().enumerate().map(op).collect();
                let ends = Ends::Sync(Audience::Simple);
                let unit = Unit { ops, audience: Audience::Simple, ends };
                self.run_on_primary(&unit, route).await
            }
        }
    }

    fn how(&self, text: &[u8], facts: &Analysis) -> How {
        let statements = &facts.statements;
        let carried = |statement: &Statement| matches!(&statement.kind, Kind::Ddl(ddl) if self.is_carried(ddl));
        match &**statements {
            [statement @ Statement { kind: Kind::Commit { .. }, .. }]
                if self.asks_for_xid(statement) =>
            {
                How::Extended // a parameter can only stand in a comment
            }
            [statement] if carried(statement) => How::Extended,
            // Its own transaction is asked what it did, in front of the commit.
            [statement]
                if statement.kind == Kind::Call
                    && self.may_hide(statement)
                    && !has_parameter(text) =>
            {
                How::Extended
            }
            [statement] if self.asks_for_xid(statement) && !has_parameter(text) => How::Extended,
            [_, _, ..] if self.hides_among_others(statements) && !has_parameter(text) => {
                How::Extended
            }
            _ => How::Raw,
        }
    }

    /// Whether one of several statements is DDL that nobody is told of, and all of them can run
    /// one by one: their implicit transaction is asked what it did, in front of its commit.
    fn hides_among_others(&self, statements: &[Statement]) -> bool {
        let runs_alone = |statement: &Statement| match &statement.kind {
            Kind::Ddl(ddl) => ddl.in_transaction,
            Kind::Read | Kind::Write => !statement.may_commit_inside,
            _ => false,
        };
        let hides = |statement: &Statement| matches!(&statement.kind, Kind::Ddl(ddl) if ddl.hidden);
        self.is_replicated && statements.iter().any(hides) && statements.iter().all(runs_alone)
    }

    /// Whether a lone statement commits something whose transaction id can be asked for.
    fn asks_for_xid(&self, statement: &Statement) -> bool {
        let in_block = self.is_in_block();
        match statement.kind {
            _ if statement.may_commit_inside || statement.answers_more => false,
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
        message: &Message,
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
            Err(refusal) => {
                let report = self.refusal_report(&refusal)?;
                return self.refuse_simple(&report).await;
            }
        };
        let relay = self.relay.clone();
        let _running = relay.running(PRIMARY);
        let writes = self.writes_of_all(facts);
        let may_commit = !self.is_block_open(&server)
            || facts.statements.len() > 1
            || facts.statements.iter().any(|s| s.may_commit_inside || ends_transaction(s));
        let commits = may_commit.then(|| self.transaction.writes.union(&writes));
        let write = commits.filter(|w| !w.is_empty()).map(|w| self.begin_write(w));
        server.up.begin_unit();
        for statement in &facts.statements {
            if self.write_named(&mut server, statement, Audience::Us) {
                server.up.write_sync(Audience::Us);
            }
            self.note_raw(&mut server, statement, text);
        }
        server.up.unnamed = None;
        server.up.output.extend_from_slice(&message.bytes);
        server.up.answers.sent(Sent::Query, Audience::Client);
        self.flight.opaque.extend(write);
        if let Err(lost) = self.drain(&mut server).await {
            return self.lost_in_unit(server, &lost);
        }
        self.land(&mut server);
        self.is_unit_open = false;
        self.count_raw(&server, facts);
        self.after_raw(&mut server, facts).await?;
        self.settle(server).await
    }

    fn is_block_open(&self, server: &Backend) -> bool {
        server.up.status != Status::Idle
    }

    fn writes_of_all(&self, facts: &Analysis) -> Items {
        let writes = facts.statements.iter().map(|statement| self.writes_of(statement));
        writes.fold(Items::Nothing, |all, writes| all.union(&writes))
    }

    fn note_raw(&mut self, server: &mut Backend, statement: &Statement, text: &[u8]) {
        self.note_effects(server, statement, text);
        if matches!(statement.kind, Kind::Commit { .. } | Kind::Rollback { .. }) {
            self.transaction = Default::default();
        } else {
            let writes = self.writes_of(statement);
            self.transaction.writes = self.transaction.writes.union(&writes);
            self.transaction.commit_writes |= crate::unit::holds_cursor(statement);
            self.transaction.may_hide |= self.may_hide(statement);
        }
    }

    fn count_raw(&self, server: &Backend, facts: &Analysis) {
        let counters = &self.relay.counters[PRIMARY];
        let writes = facts.statements.iter().any(Statement::is_write);
        count(if writes { &counters.writes } else { &counters.reads });
        if server.up.failed {
            count(&counters.errors);
        }
    }

    /// What has committed by itself is asked about when it has succeeded.
    async fn after_raw(&mut self, server: &mut Backend, facts: &Analysis) -> Work<()> {
        if server.up.status != Status::Idle {
            return Ok(());
        }
        if facts.statements.iter().any(|statement| self.leaves(statement, server.up.failed)) {
            self.client.flush().await;
            self.follow_afterwards(server).await?;
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

    /// hihooi's own objects are as they must be: what a dump says of them is not run, so that
    /// restoring it succeeds.
    async fn keep_own_objects(&mut self, tags: &[&str]) -> Work<()> {
        for tag in tags {
            if *tag == "COPY 0" {
                self.swallow_copy().await?;
            }
            Report {
                severity: Severity::Notice,
                ..Report::error("00000", "this object belongs to hihooi and is left as it is")
            }
            .write(self.output());
            backend::command_complete(tag, self.output());
        }
        backend::ready_for_query(self.status(), &mut self.client.down.output);
        self.client.flush().await;
        Ok(())
    }

    /// Takes COPY data from the client and throws it away.
    async fn swallow_copy(&mut self) -> Work<()> {
        frontend::message(backend::tag::COPY_IN, self.output(), |out| {
            out.extend_from_slice(&[0, 0, 0]); // text, no column described
        });
        self.client.flush().await;
        loop {
            let message = self.next_message().await?;
            if matches!(message.tag, frontend::tag::COPY_DONE | frontend::tag::COPY_FAIL) {
                return Ok(());
            }
        }
    }

    /// FunctionCall: the server knows what it does; we don't.
    pub(crate) async fn function_call(&mut self, message: Message) -> Work<()> {
        let route = Route::primary(self.reason_for(None));
        let facts = Arc::new(Analysis::function_call());
        self.raw(&message, b"", &facts, route).await
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
pub(crate) fn own_text<'a>(text: &'a [u8], statement: &Statement) -> &'a [u8] {
    let end = statement.range.end.min(text.len());
    text.get(statement.range.start..end).unwrap_or(text)
}

fn ends_transaction(statement: &Statement) -> bool {
    matches!(statement.kind, Kind::Commit { .. } | Kind::CommitPrepared(_))
}

fn may_be_about_roles(statement: &Statement) -> bool {
    matches!(&statement.kind, Kind::Ddl(ddl) if ddl.shared && ddl.in_transaction)
}

fn drops_database(statement: &Statement) -> bool {
    matches!(&statement.kind, Kind::Ddl(ddl) if ddl.shared && !ddl.in_transaction)
}

/// Whether the text may hold `$1` outside of strings, which means something in the extended
/// protocol only.
fn has_parameter(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair[0] == b'$' && pair[1].is_ascii_digit())
        && std::str::from_utf8(text)
            .map_or(true, |text| tokens(text).any(|token| token.kind == TokenKind::Parameter))
}
