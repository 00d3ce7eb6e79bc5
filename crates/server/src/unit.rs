//! One unit of work: what runs between two moments at which the server is ready. Here a unit is
//! driven through the primary, with what hihooi adds to it: the question for the transaction id
//! in front of a commit, DDL messages, statements that the connection doesn't know yet.
//!
//! Keeps I3: a write counts from the moment its COMMIT (autocommit: its Sync) is sent.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hihooi_replication::freshness::WriteId;
use hihooi_replication::ids::Xid;
use hihooi_replication::items::Items;
use hihooi_sql::{Analysis, Ddl, Kind, SessionCommand, Statement};
use hihooi_wire::backend::{Report, Status};
use hihooi_wire::frontend::{self, tag};

use crate::backend::Backend;
use crate::pool::Refusal;
use crate::pump::{self, Lost};
use crate::relay::{Outcome, Prepared, count};
use crate::session::{End, Session, Transaction, Work};
use hihooi_session::answers::Audience;
use hihooi_session::downstream::Message;
use hihooi_session::relaying::{Hold, Step};
use hihooi_session::route::{PRIMARY, Route};

/// One message of a unit, with what its names stand for.
#[derive(Debug, Clone)]
pub enum Op {
    /// A statement of a simple query, sent by the extended protocol.
    Statement {
        /// Its text.
        text: Bytes,
        /// The facts of the text it stands in, and which of them are its own.
        facts: (Arc<Analysis>, usize),
    },
    /// Parse.
    Parse {
        /// The message.
        message: Message,
        /// What it creates.
        prepared: Rc<Prepared>,
        /// The client has a statement of this name already: the server shall say so.
        is_taken: bool,
    },
    /// Bind.
    Bind {
        /// The message.
        message: Message,
        /// The statement, if the client has one of this name.
        prepared: Option<Rc<Prepared>>,
        /// Its facts.
        facts: Option<Arc<Analysis>>,
    },
    /// Describe of a statement.
    DescribeStatement {
        /// The message.
        message: Message,
        /// The statement, if the client has one of this name.
        prepared: Option<Rc<Prepared>>,
    },
    /// Close of a statement. Servers keep theirs for other clients.
    CloseStatement,
    /// A message about a portal.
    Portal(Message),
}

impl Op {
    /// The prepared statement that it is about, if the client has one of this name.
    #[must_use]
    pub fn prepared(&self) -> Option<&Prepared> {
        match self {
            Op::Parse { prepared, .. } => Some(prepared),
            Op::Bind { prepared, .. } | Op::DescribeStatement { prepared, .. } => {
                prepared.as_deref()
            }
            Op::Statement { .. } | Op::CloseStatement | Op::Portal(_) => None,
        }
    }

    /// Whether it is a Describe.
    #[must_use]
    pub fn describes(&self) -> bool {
        match self {
            Op::DescribeStatement { .. } => true,
            Op::Portal(message) => message.tag == tag::DESCRIBE,
            _ => false,
        }
    }

    /// The facts of the statement that it runs.
    #[must_use]
    pub fn statement(&self) -> Option<&Statement> {
        match self {
            Op::Statement { facts: (analysis, index), .. } => analysis.statements.get(*index),
            Op::Bind { facts: Some(analysis), .. } => analysis.statements.first(),
            _ => None,
        }
    }

    /// The text of the statement that it runs.
    fn text(&self) -> &[u8] {
        match self {
            Op::Statement { text, .. } => text,
            Op::Bind { prepared: Some(prepared), .. } => &prepared.query,
            _ => &[],
        }
    }
}

/// How a unit ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// With Sync, whose answer goes to this audience.
    Sync(Audience),
    /// It goes on: the client wants to see what there is so far.
    Flush,
}

/// A unit, or a part of one.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Its messages.
    pub ops: Vec<Op>,
    /// Who gets the answers.
    pub audience: Audience,
    /// How it ends.
    pub ends: Ends,
}

/// Writes whose COMMIT is on its way or whose end isn't known yet.
#[derive(Debug, Default)]
pub struct Flight {
    /// One for each question for a transaction id, in order.
    pub asked: Vec<WriteId>,
    /// Those that may commit by themselves, under ids that nobody tells.
    pub opaque: Vec<WriteId>,
    /// The block that the unit is in, as far as its messages were written.
    is_in_block: bool,
    /// Rows of the unit's own questions so far.
    xids: Vec<Option<Bytes>>,
}

enum Driven {
    /// The server is ready.
    Ready,
    /// The unit goes on with the client's next messages.
    Open,
}

impl Session {
    /// Runs a unit on the primary, in the session's transaction if one is open.
    pub(crate) async fn run_on_primary(&mut self, unit: &Unit, route: Route) -> Work<()> {
        self.routed(route);
        let mut server = match self.take_server(PRIMARY).await {
            Ok(server) => server,
            Err(refusal) => return self.refuse_unit(&refusal, unit).await,
        };
        let relay = self.relay.clone();
        let _running = relay.running(PRIMARY);
        let driven = self.drive(&mut server, unit).await;
        match driven {
            Ok(Driven::Ready) => {
                self.count_unit(unit, &server);
                self.land(&mut server);
                self.follow_unit(unit, &mut server).await?;
                self.settle(server).await
            }
            Ok(Driven::Open) => {
                self.server = Some(server);
                self.client.flush().await;
                Ok(())
            }
            Err(lost) => self.lost_in_unit(server, &lost),
        }
    }

    /// What may have committed by itself is asked about when it has succeeded.
    async fn follow_unit(&mut self, unit: &Unit, server: &mut Backend) -> Work<()> {
        let commits = |statement: &&Statement| statement.may_commit_inside;
        let mut statements = unit.ops.iter().filter_map(Op::statement).filter(commits);
        if server.up.status != Status::Idle || !statements.any(|s| self.leaves(s, server.up.failed))
        {
            return Ok(());
        }
        self.client.flush().await;
        self.follow_afterwards(server).await
    }

    fn count_unit(&self, unit: &Unit, server: &Backend) {
        let counters = &self.relay.counters[PRIMARY];
        let writes = unit.ops.iter().filter_map(Op::statement).any(Statement::is_write);
        count(if writes { &counters.writes } else { &counters.reads });
        if server.up.failed {
            count(&counters.errors);
        }
    }

    /// Tells the client that its unit can't run, in place of the unit's answer.
    async fn refuse_unit(&mut self, refusal: &Refusal, unit: &Unit) -> Work<()> {
        let report = self.refusal_report(refusal)?;
        match unit.audience {
            Audience::Client => self.refuse_extended(&report, unit.ends).await,
            _ => self.refuse_simple(&report).await,
        }
    }

    /// What a client is told that can't be served now; the end of one whose state is lost.
    pub(crate) fn refusal_report(&self, refusal: &Refusal) -> Work<Report> {
        let report = refusal.report(&self.relay.sites[PRIMARY].name, &self.startup);
        if self.is_in_block() || self.pin.is_some() {
            let severity = hihooi_wire::backend::Severity::Fatal;
            return Err(End::Fatal(Report { severity, ..report }));
        }
        Ok(report)
    }

    async fn drive(&mut self, server: &mut Backend, unit: &Unit) -> Result<Driven, Lost> {
        if !self.is_unit_open {
            server.up.begin_unit();
            self.flight.is_in_block = server.up.status != Status::Idle;
        }
        let mut awaits_copy = false;
        for (index, op) in unit.ops.iter().enumerate() {
            let is_lone = index == 0
                && !self.is_unit_open
                && unit.ends != Ends::Flush
                && unit.ops.iter().filter(|op| runs(op)).count() <= 1;
            if binds_commit(op) && !unit.ops[index..].iter().any(executes) {
                self.transaction.has_bound_commit = true;
            } else if op.statement().is_some() {
                self.prepare_for(server, op, is_lone).await?;
            } else if executes(op) && self.transaction.has_bound_commit {
                // It may be the COMMIT; if not, the transaction's writes still count.
                let writes = self.transaction.writes.clone();
                self.ask_before_commit(server, is_lone);
                self.transaction.writes = writes;
                self.transaction.has_bound_commit = true;
            }
            if let Op::Parse { prepared, .. }
            | Op::DescribeStatement { prepared: Some(prepared), .. } = op
            {
                // EXECUTE is described by what it names, which must be there.
                for statement in &self.analyse_prepared(prepared).statements {
                    self.write_named(server, statement, Audience::Hidden);
                }
            }
            self.write_op(server, op, unit.audience);
            let copies = matches!(op.statement(), Some(Statement { kind: Kind::CopyIn, .. }));
            if copies && unit.audience == Audience::Simple {
                server.up.write_flush();
                self.drain(server).await?;
            }
            awaits_copy |= copies;
        }
        self.is_unit_open = true;
        if unit.ends == Ends::Flush || (awaits_copy && unit.audience == Audience::Client) {
            server.up.write_flush();
            let copied = self.drain(server).await?;
            // A COPY swallows the Sync that came with it; the client sends another.
            if unit.ends == Ends::Flush || copied {
                return Ok(Driven::Open);
            }
        }
        let Ends::Sync(audience) = unit.ends else { return Ok(Driven::Open) };
        self.send_commit(server, audience).await?;
        self.drain(server).await?;
        self.is_unit_open = false;
        Ok(Driven::Ready)
    }

    /// Waits until all that was sent is answered, feeding a COPY if the server wants one.
    /// Whether it did.
    pub(crate) async fn drain(&mut self, server: &mut Backend) -> Result<bool, Lost> {
        let mut copied = false;
        self.client.down.tells_leaving = true;
        loop {
            match pump::pump(&mut self.client, server, &mut Hold::No).await? {
                Step::CopyIn => {
                    copied = true;
                    self.feed_copy(server).await?;
                    continue; // the end of the data has yet to be sent
                }
                Step::Left => self.cancel_own(),
                _ => {}
            }
            if server.up.answers.is_empty() && server.up.output.is_empty() {
                return Ok(copied);
            }
        }
    }

    /// Relays the client's COPY data up to its end (manual, "COPY Operations"). A server keeps
    /// the answer to itself until Sync or Flush.
    pub(crate) async fn feed_copy(&mut self, server: &mut Backend) -> Result<(), Lost> {
        self.client.flush().await;
        loop {
            while let Ok(Some(message)) = self.client.down.buffered() {
                match message.tag {
                    tag::SYNC | tag::FLUSH => continue, // ignored during COPY, as servers do
                    tag::TERMINATE => {
                        self.client.down.gone = true;
                        frontend::copy_fail("client left", &mut server.up.output);
                    }
                    _ => server.up.output.extend_from_slice(&message.bytes),
                }
                if message.tag != tag::COPY_DATA {
                    server.up.write_flush();
                    return Ok(());
                }
            }
            if self.client.down.gone {
                frontend::copy_fail("client left", &mut server.up.output);
                server.up.write_flush();
                return Ok(());
            }
            match pump::copy(&mut self.client, server).await? {
                None => {}
                Some(Step::Ready(status)) => {
                    // A simple query's COPY failed; what the client still sends is ignored.
                    server.up.status = status;
                    return Ok(());
                }
                Some(_) => return Ok(()),
            }
        }
    }

    /// What must be sent in front of a statement.
    pub(crate) async fn prepare_for(
        &mut self,
        server: &mut Backend,
        op: &Op,
        is_lone: bool,
    ) -> Result<(), Lost> {
        let Some(statement) = op.statement() else { return Ok(()) };
        self.write_named(server, statement, Audience::Hidden);
        self.note_effects(server, statement, op.text());
        match &statement.kind {
            Kind::Begin(_) => self.flight.is_in_block = true,
            Kind::Commit { .. } => {
                self.ask_before_commit(server, is_lone);
                self.flight.is_in_block = matches!(statement.kind, Kind::Commit { chain: true });
            }
            Kind::Rollback { chain } => {
                self.transaction = Default::default();
                self.flight.is_in_block = *chain;
            }
            // What it wrote becomes visible with COMMIT PREPARED, which touches everything.
            Kind::PrepareTransaction(_) => {
                self.transaction = Default::default();
                self.flight.is_in_block = false;
            }
            Kind::Ddl(ddl) if self.is_carried(ddl) => {
                self.transaction.has_ddl = true;
                self.transaction.writes = Items::Everything;
                self.transaction.may_hide |= self.may_hide(statement);
            }
            _ => {
                let writes = self.writes_of(statement);
                self.transaction.writes = self.transaction.writes.union(&writes);
                self.transaction.commit_writes |= holds_cursor(statement);
                self.transaction.may_hide |= self.may_hide(statement);
                if statement.may_commit_inside {
                    let write = self.begin_write(writes);
                    self.flight.opaque.push(write);
                }
            }
        }
        Ok(())
    }

    /// Whether DDL goes to the replicas, in the transaction that runs it.
    pub(crate) fn is_carried(&self, ddl: &Ddl) -> bool {
        self.is_replicated && ddl.replicate && ddl.in_transaction
    }

    /// Puts the question for the transaction id in front of an explicit COMMIT. As a unit of its
    /// own if the COMMIT is alone in its unit: should the question fail, the COMMIT isn't skipped,
    /// and the block ends.
    pub(crate) fn ask_before_commit(&mut self, server: &mut Backend, is_lone: bool) {
        let Transaction { writes, commit_writes, may_hide, .. } =
            std::mem::take(&mut self.transaction);
        if writes.is_empty() || server.up.status == Status::Failed {
            return;
        }
        let audience = if is_lone { Audience::Question } else { Audience::Hidden };
        if may_hide {
            server.up.write_follow(audience);
        }
        let write = self.begin_write(writes);
        if commit_writes {
            self.flight.opaque.push(write); // under an id that may not be assigned yet
        } else {
            server.up.write_xid_question(audience);
            self.flight.asked.push(write);
        }
        if is_lone && (may_hide || !commit_writes) {
            server.up.write_sync(audience);
        }
    }

    /// Sends the unit's Sync, which commits what it did outside of a block.
    async fn send_commit(&mut self, server: &mut Backend, audience: Audience) -> Result<(), Lost> {
        let commits = !self.flight.is_in_block && !self.transaction.writes.is_empty();
        if commits && !server.up.answers.is_skipping() {
            let writes = self.transaction.writes.clone();
            if self.is_contested(&writes) {
                // It may wait for a lock: in flight only from its Sync, not while it waits.
                server.up.write_flush();
                self.drain(server).await?;
            }
            if self.transaction.may_hide && !server.up.failed {
                server.up.write_follow(Audience::Hidden);
            }
            if self.transaction.commit_writes {
                let write = self.begin_write(writes);
                self.flight.opaque.push(write);
            } else if !server.up.failed {
                let write = self.begin_write(writes);
                self.flight.asked.push(write);
                server.up.write_xid_question(Audience::Hidden);
            }
        }
        server.up.write_sync(audience);
        Ok(())
    }

    /// Whether others may hold locks that the write waits for.
    fn is_contested(&self, writes: &Items) -> bool {
        *writes == Items::Everything || self.relay.freshness.borrow().is_in_flight(writes)
    }

    /// Nobody waits for the answer any more: a server that only reads may stop. What writes
    /// goes on, as it does at a server whose client has left.
    pub(crate) fn cancel_own(&self) {
        let flight = &self.flight;
        let reads = flight.asked.is_empty()
            && flight.opaque.is_empty()
            && self.transaction.writes.is_empty();
        if let Some(running) = self.info.running.borrow().clone().filter(|_| reads) {
            let relay = self.relay.clone();
            let cancel = crate::handshake::Cancel::of(running);
            tokio::task::spawn_local(async move { cancel.send(&relay).await });
        }
    }

    /// Tells the index what became of the unit's writes.
    pub(crate) fn land(&mut self, server: &mut Backend) {
        let flight = std::mem::take(&mut self.flight);
        let rows = server.up.answers.take_rows();
        server.up.answers.take_error();
        let mut xids = flight.xids.into_iter().chain(rows.into_iter().map(first_value));
        for write in flight.asked {
            let outcome = match xids.next() {
                Some(Some(xid)) => {
                    parse_xid(&xid).map_or(Outcome::Unidentified, Outcome::Committed)
                }
                // No id was assigned, or an error came first: nothing was written.
                Some(None) | None => Outcome::Nothing,
            };
            self.relay.end_write(write, outcome);
        }
        for write in flight.opaque {
            self.relay.end_write(write, Outcome::Unidentified);
        }
    }

    pub(crate) fn lost_in_unit(&mut self, server: Box<Backend>, lost: &Lost) -> Work<()> {
        let unknown = self.doubt_flight(&server);
        let said_goodbye = server.up.said_goodbye;
        self.relay.pools.discard(server);
        count(&self.relay.counters[PRIMARY].errors);
        if said_goodbye {
            return Err(End::Server); // the client has the server's own words
        }
        Err(match unknown {
            false => self.lost(lost),
            true => End::Fatal(unknown_outcome()),
        })
    }

    /// Nobody will hear what became of the writes in flight on a connection. Whether there are
    /// any.
    pub(crate) fn doubt_flight(&mut self, server: &Backend) -> bool {
        let flight = std::mem::take(&mut self.flight);
        let any = !flight.asked.is_empty() || !flight.opaque.is_empty();
        for write in flight.asked.into_iter().chain(flight.opaque) {
            self.relay.doubt(write, server.identity.clone());
        }
        any
    }

    /// Writes a unit's message as this server must see it.
    pub(crate) fn write_op(&self, server: &mut Backend, op: &Op, audience: Audience) {
        let up = &mut server.up;
        match op {
            Op::Statement { text, .. } => {
                up.defers_rows = op.statement().is_some_and(writes_first) && !is_select(text);
                up.write_statement(text, audience);
            }
            Op::Parse { message, prepared, is_taken } => {
                up.write_parse(message, prepared.named(), *is_taken, audience);
            }
            Op::Bind { message, prepared, .. } => {
                up.write_bind(message, prepared.as_deref().map(Prepared::named), audience);
            }
            Op::DescribeStatement { message, prepared } => {
                up.write_describe(message, prepared.as_deref().map(Prepared::named), audience);
            }
            Op::CloseStatement => up.write_close_nothing(audience),
            Op::Portal(message) => up.write_portal(message, audience),
        }
        server.up.close_surplus();
    }
}

impl Flight {
    /// Keeps answers to questions for transaction ids.
    pub(crate) fn keep(&mut self, rows: Vec<Vec<Option<Bytes>>>) {
        self.xids.extend(rows.into_iter().map(first_value));
    }
}

/// The end of a session that waits for the answer to a COMMIT in vain.
pub(crate) fn unknown_outcome() -> Report {
    Report::fatal("08007", "the connection to the primary was lost during a commit")
        .detail("Whether the transaction was committed is not known.")
        .hint("Connect again and look before you repeat it.")
}

/// Whether a statement's query is run when the transaction commits.
pub(crate) fn holds_cursor(statement: &Statement) -> bool {
    matches!(statement.kind, Kind::Session(SessionCommand::Declare { hold: true, .. }))
        && statement.is_write()
}

fn binds_commit(op: &Op) -> bool {
    matches!(op, Op::Bind { .. })
        && matches!(op.statement(), Some(Statement { kind: Kind::Commit { .. }, .. }))
}

pub(crate) fn executes(op: &Op) -> bool {
    matches!(op, Op::Portal(message) if message.tag == tag::EXECUTE)
}

/// Whether a statement of the client's runs by this.
fn runs(op: &Op) -> bool {
    matches!(op, Op::Statement { .. }) || executes(op)
}

/// Whether a server runs the statement to its end before it sends rows (its portal is stored).
fn writes_first(statement: &Statement) -> bool {
    matches!(statement.kind, Kind::Write)
}

fn is_select(text: &[u8]) -> bool {
    let start = text.trim_ascii_start();
    ["select", "values", "table", "("].iter().any(|word| {
        start.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word.as_bytes()))
    })
}

fn first_value(mut row: Vec<Option<Bytes>>) -> Option<Bytes> {
    if row.is_empty() { None } else { row.swap_remove(0) }
}

/// Reads a transaction id as PostgreSQL prints it.
#[must_use]
pub fn parse_xid(text: &[u8]) -> Option<Xid> {
    std::str::from_utf8(text).ok()?.parse().ok().map(Xid)
}
