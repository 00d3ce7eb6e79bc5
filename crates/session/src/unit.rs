//! One unit of work: what runs between two ReadyForQuery messages. This file writes a unit to the primary, with
//! what hihooi adds to it: the query for the transaction id before a commit, and Parse messages for statements
//! that are not prepared on the connection yet.
//!
//! Keeps I3: a write counts as made from the moment its COMMIT (autocommit: its Sync) is sent.

use std::sync::Arc;

use bytes::Bytes;
use hihooi_replication::freshness::WriteId;
use hihooi_replication::ids::Xid;
use hihooi_replication::items::Items;
use hihooi_sql::{Analysis, Ddl, Isolation, Kind, SessionCommand, Statement, TransactionModes};
use hihooi_wire::backend::Status;
use hihooi_wire::frontend::{self, Bind, tag};

use crate::answers::Audience;
use crate::consistency::Consistency;
use crate::downstream::Message;
use crate::events::{Action, Actions, Env, Outcome, Prepared};
use crate::mistakes::{Mistake, makes};
use crate::read::{describe_binary, hinted_level};
use crate::session::Session;
use crate::upstream::Upstream;
use crate::values::RunValues;

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
        prepared: Arc<Prepared>,
        /// Its facts.
        facts: Arc<Analysis>,
        /// The client has a statement of this name already: the server shall say so.
        is_taken: bool,
    },
    /// Bind.
    Bind {
        /// The message.
        message: Message,
        /// The statement and its facts, if the client has one of this name.
        prepared: Option<(Arc<Prepared>, Arc<Analysis>)>,
    },
    /// Describe of a statement.
    DescribeStatement {
        /// The message.
        message: Message,
        /// The statement and its facts, if the client has one of this name.
        prepared: Option<(Arc<Prepared>, Arc<Analysis>)>,
    },
    /// Bind or Describe of a statement that returns other columns than its client was told: it fails. If it is Describe, which
    /// statement that is.
    Changed(Message, Option<Arc<Prepared>>),
    /// Close of a statement. Servers keep theirs for other clients.
    CloseStatement(Message),
    /// A message about a portal.
    Portal(Message),
}

impl Op {
    /// The prepared statement that it is about, if the client has one of this name, and its facts.
    #[must_use]
    pub fn prepared(&self) -> Option<(&Arc<Prepared>, &Arc<Analysis>)> {
        match self {
            Op::Parse { prepared, facts, .. }
            | Op::Bind { prepared: Some((prepared, facts)), .. }
            | Op::DescribeStatement { prepared: Some((prepared, facts)), .. } => {
                Some((prepared, facts))
            }
            _ => None,
        }
    }

    /// It fails if its statement is one of these, whose columns have changed.
    pub(crate) fn fails_if(&mut self, changed: &[u64]) {
        if let Op::Bind { message, prepared: Some((prepared, _)) }
        | Op::DescribeStatement { message, prepared: Some((prepared, _)) } = self
            && changed.contains(&prepared.id)
        {
            let described = (message.tag == tag::DESCRIBE).then(|| Arc::clone(prepared));
            *self = Op::Changed(message.clone(), described);
        }
    }

    /// Whether a name is given or taken away.
    fn changes_names(&self) -> bool {
        matches!(self, Op::CloseStatement(_) | Op::Parse { is_taken: false, .. })
    }

    /// Whether it is a Describe.
    #[must_use]
    pub fn describes(&self) -> bool {
        match self {
            Op::DescribeStatement { .. } => true,
            Op::Portal(message) | Op::Changed(message, _) => message.tag == tag::DESCRIBE,
            _ => false,
        }
    }

    /// Whether it opens, describes, runs or closes a portal.
    pub fn uses_portal(&self) -> bool {
        matches!(self, Op::Bind { .. } | Op::Portal(_))
    }

    /// Whether it is an Execute.
    #[must_use]
    pub fn executes(&self) -> bool {
        matches!(self, Op::Portal(message) if message.tag == tag::EXECUTE)
    }

    /// The facts of the statement that it runs.
    #[must_use]
    pub fn statement(&self) -> Option<&Statement> {
        match self {
            Op::Statement { facts: (analysis, index), .. } => analysis.statements.get(*index),
            Op::Bind { prepared: Some((_, analysis)), .. } => analysis.statements.first(),
            _ => None,
        }
    }

    /// Whether what it runs, or makes ready to run, lists what is prepared.
    fn lists_prepared(&self) -> bool {
        let statement = match self {
            Op::Parse { facts, .. } => facts.statements.first(),
            _ => self.statement(),
        };
        statement.is_some_and(|statement| statement.lists_prepared)
    }

    /// The text of the statement that it runs.
    pub(crate) fn text(&self) -> &[u8] {
        match self {
            Op::Statement { text, .. } => text,
            Op::Bind { prepared: Some((prepared, _)), .. } => &prepared.query,
            _ => &[],
        }
    }

    /// Whether it makes ready what begins or ends a transaction, but for COMMIT.
    fn binds_control(&self) -> bool {
        let is_control = |kind: &Kind| {
            matches!(kind, Kind::Begin(_) | Kind::Rollback { .. } | Kind::PrepareTransaction(_))
        };
        matches!(self, Op::Bind { .. }) && self.statement().is_some_and(|one| is_control(&one.kind))
    }

    fn binds_commit(&self) -> bool {
        matches!(self, Op::Bind { .. })
            && matches!(self.statement(), Some(Statement { kind: Kind::Commit { .. }, .. }))
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

/// What the open transaction has done so far.
#[derive(Debug, Default, Clone)]
pub struct Transaction {
    /// What it may have written.
    pub writes: Items,
    /// Its commit itself may write: a cursor WITH HOLD is run then.
    pub commit_writes: bool,
    /// It began at READ COMMITTED: each of its statements has a snapshot of its own.
    pub is_read_committed: bool,
    /// It has had a snapshot: its modes can't be changed any more.
    pub has_read: bool,
    /// It ran DDL: the catalog doesn't describe what it sees.
    pub has_ddl: bool,
    /// A COMMIT was bound whose portal has not been executed.
    pub has_bound_commit: bool,
    /// It may have changed what replicas have without an event trigger being told.
    pub may_hide: bool,
    /// A text in it names the setting by which event triggers are switched off (`event_triggers`, PostgreSQL 17).
    pub may_lack_events: bool,
    /// It may have changed the schema.
    pub may_define: bool,
    /// A hint says that its commit is to be shown everywhere before it is answered.
    pub everywhere: bool,
    /// The version of the catalog by which its first writes were found.
    pub catalog_version: Option<u64>,
}

impl Transaction {
    /// With what another one has done.
    fn and(self, other: Transaction) -> Transaction {
        let mut writes = self.writes;
        writes.extend(other.writes);
        Transaction {
            writes,
            commit_writes: self.commit_writes || other.commit_writes,
            is_read_committed: self.is_read_committed && other.is_read_committed,
            has_read: self.has_read || other.has_read,
            has_ddl: self.has_ddl || other.has_ddl,
            has_bound_commit: self.has_bound_commit || other.has_bound_commit,
            may_hide: self.may_hide || other.may_hide,
            may_lack_events: self.may_lack_events || other.may_lack_events,
            may_define: self.may_define || other.may_define,
            everywhere: self.everywhere || other.everywhere,
            catalog_version: self.catalog_version.or(other.catalog_version),
        }
    }
}

/// Writes whose COMMIT is on its way or whose end isn't known yet.
#[derive(Debug, Default)]
pub struct Flight {
    /// One for each question for a transaction id, in order.
    pub asked: Vec<WriteId>,
    /// Those that may commit by themselves, under ids that nobody tells.
    pub opaque: Vec<WriteId>,
    /// They are answered when every replica shows them.
    pub everywhere: bool,
    /// Whether the unit is in a block, as far as its messages were written.
    pub is_in_block: bool,
    /// So many of the unit's messages that change names aren't written yet.
    pub names_left: usize,
    /// Rows of the unit's own questions so far.
    xids: Vec<Option<Bytes>>,
}

impl Flight {
    /// Whether nothing is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.opaque.is_empty()
    }

    /// Keeps answers to questions for transaction ids.
    pub(crate) fn keep(&mut self, rows: Vec<Vec<Option<Bytes>>>) {
        self.xids.extend(rows.into_iter().map(first_value));
    }
}

/// Whether what begins or ends a transaction is made ready, but not run right behind that.
fn leaves_control(ops: &[Op]) -> bool {
    (0..ops.len()).any(|at| ops[at].binds_control() && is_left(ops, at))
}

/// Whether a COPY of the client's data may be made ready, but not run right behind that.
fn leaves_copy(ops: &[Op]) -> bool {
    let may_copy = |op: &Op| {
        op.statement().is_some_and(|one| matches!(one.kind, Kind::CopyIn | Kind::Unparsable))
    };
    (0..ops.len()).any(|at| may_copy(&ops[at]) && is_left(ops, at))
}

/// Whether the portal of a Bind isn't executed right behind it.
fn is_left(ops: &[Op], at: usize) -> bool {
    let Op::Bind { message, .. } = &ops[at] else { return false };
    let portal = frontend::Bind::read(message.body()).map(|bind| bind.portal).ok();
    let runs = match ops[at + 1..].iter().find(|op| !op.describes()) {
        Some(Op::Portal(message)) if message.tag == tag::EXECUTE => {
            frontend::read_execute(message.body()).map(|(portal, _)| portal).ok()
        }
        _ => None,
    };
    runs.is_none() || runs != portal
}

/// What a unit waits for when a part of it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// A COPY in front of more statements of a simple query.
    Part,
    /// All but its Sync, if there is one.
    Flushed,
    /// All but what commits it: it may wait for locks until then.
    Uncommitted,
    /// All.
    Whole,
}

/// Whether a portal is executed that was bound in an earlier piece of the unit, or in an earlier unit: it may be a COPY's.
fn executes_earlier_portal(ops: &[Op]) -> bool {
    let binds = |op: &Op, name: &[u8]| match op {
        Op::Bind { message, .. } => Bind::read(message.body()).is_ok_and(|it| it.portal == name),
        _ => false,
    };
    ops.iter().enumerate().any(|(at, op)| match op {
        Op::Portal(message) if message.tag == tag::EXECUTE => {
            frontend::read_execute(message.body())
                .is_ok_and(|(name, _)| !ops[..at].iter().any(|op| binds(op, name)))
        }
        _ => false,
    })
}

impl Session {
    /// Writes a unit from the message `next` on, up to where its answers have to be waited for.
    pub(crate) fn write_unit(
        &mut self,
        up: &mut Upstream,
        unit: &Unit,
        next: &mut usize,
        env: &dyn Env,
        out: &mut Actions,
    ) -> Written {
        let is_first = !self.is_unit_open();
        if is_first && *next == 0 {
            up.begin_unit();
            self.flight.is_in_block = up.status != Status::Idle;
            if unit.ops.iter().any(Op::lists_prepared) {
                self.show_prepared(up);
            }
        }
        self.has_bound_control |= *next == 0 && leaves_control(&unit.ops);
        self.has_bound_copy |= *next == 0 && leaves_copy(&unit.ops);
        if self.has_bound_control && *next == 0 {
            // Where transactions begin and end isn't known before the answers say so.
            let write = self.begin_write(Items::Everything, true, out);
            self.flight.opaque.push(write);
        }
        let is_copy = |op: &Op| matches!(op.statement(), Some(s) if s.kind == Kind::CopyIn);
        let left = unit.ops[*next..].iter();
        self.flight.names_left = left.filter(|op| op.changes_names()).count();
        while let Some(op) = unit.ops.get(*next) {
            let is_lone = *next == 0 && is_first && unit.ends != Ends::Flush && runs_one(unit);
            self.write_at_primary(up, unit, *next, is_lone, env, out);
            self.flight.names_left -= usize::from(op.changes_names());
            *next += 1;
            if is_copy(op) && unit.audience == Audience::Simple {
                up.write_flush();
                return Written::Part;
            }
        }
        if unit.audience == Audience::Simple && self.flight.is_in_block {
            up.write_close_unnamed_portal(); // a simple query leaves none in its transaction
        }
        self.unit_is_open();
        let copies = unit.audience == Audience::Client
            && (unit.ops.iter().any(is_copy)
                || self.has_bound_copy && executes_earlier_portal(&unit.ops));
        if unit.ends == Ends::Flush || copies {
            up.write_flush();
            return Written::Flushed;
        }
        self.write_end(up, unit, env, out)
    }

    fn write_at_primary(
        &mut self,
        up: &mut Upstream,
        unit: &Unit,
        index: usize,
        is_lone: bool,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let op = &unit.ops[index];
        if op.binds_commit() && is_left(&unit.ops, index) {
            self.transaction.has_bound_commit = true;
        } else if op.statement().is_some() {
            self.prepare_for(up, op, is_lone, env, out);
        } else if op.executes() && self.transaction.has_bound_commit {
            // It may be the COMMIT; if not, the transaction's writes still count.
            let before = self.transaction.clone();
            self.ask_before_commit(up, is_lone, env, out);
            self.transaction = before;
        }
        if let Op::Parse { facts, .. } | Op::DescribeStatement { prepared: Some((_, facts)), .. } =
            op
        {
            // EXECUTE is described by what it names, which must be there.
            for statement in &facts.statements {
                if matches!(statement.kind, Kind::Session(SessionCommand::Execute(_))) {
                    self.write_named(up, statement, Audience::Hidden);
                }
            }
        }
        write_op(up, op, unit.audience);
        if up.is_replica {
            describe_binary(up, unit, op);
        }
    }

    /// What must be sent in front of a statement.
    fn prepare_for(
        &mut self,
        up: &mut Upstream,
        op: &Op,
        is_lone: bool,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let Some(statement) = op.statement() else { return };
        self.write_named(up, statement, Audience::Hidden);
        if self.switches_events_amid(statement, op.text()) {
            up.write_follow(&self.transaction, Audience::Hidden); // while it is certain what events told
        }
        self.note_effects(up, statement, op.text(), hinted_level(op.text()), env);
        match &statement.kind {
            Kind::Begin(modes) => {
                self.transaction.is_read_committed = self.begins_read_committed(up, modes, op);
                self.flight.is_in_block = true;
            }
            Kind::Commit { .. } => {
                self.ask_before_commit(up, is_lone, env, out);
                self.flight.is_in_block = matches!(statement.kind, Kind::Commit { chain: true });
            }
            Kind::Rollback { chain } => {
                self.transaction_ends();
                self.doubts.unit.leaves_failure = true;
                self.flight.is_in_block = *chain;
            }
            Kind::RollbackTo(_) => self.doubts.unit.leaves_failure = true,
            // What it wrote becomes visible with COMMIT PREPARED, which touches everything.
            Kind::PrepareTransaction(_) => {
                self.transaction_ends();
                self.flight.is_in_block = false;
            }
            Kind::Ddl(ddl) if self.is_carried(ddl) => {
                self.transaction.has_ddl = true;
                self.transaction.may_define = true;
                self.transaction.writes = Items::Everything;
                self.transaction.may_hide |= self.may_hide(statement, &statement.writes);
            }
            _ => {
                let writes = self.writes_of(statement, &RunValues::of(op), env);
                if statement.may_commit_inside {
                    let write = self.begin_write(writes.clone(), may_define(statement), out);
                    self.flight.opaque.push(write);
                }
                self.note_writes(statement, writes, env);
            }
        }
    }

    /// Notes what a statement that commits nothing may have written in its transaction.
    pub(crate) fn note_writes(&mut self, statement: &Statement, writes: Items, env: &dyn Env) {
        if !writes.is_empty() {
            self.transaction.catalog_version.get_or_insert(env.catalog_version());
            self.transaction.may_define |= may_define(statement);
        }
        self.transaction.may_hide |= self.may_hide(statement, &writes);
        self.transaction.writes.extend(writes);
        self.transaction.commit_writes |= holds_cursor(statement);
    }

    /// Whether DDL goes to the replicas, in the transaction that runs it.
    pub(crate) fn is_carried(&self, ddl: &Ddl) -> bool {
        self.opened.is_replicated && ddl.replicate && ddl.in_transaction
    }

    /// Whether a statement may change what replicas have without an event trigger being told
    /// (docs/decisions/0005): DDL on roles, event triggers, the database, any while event triggers may be switched off, and
    /// whatever code does that nobody analysed, or that may have become other code since. For these the session asks the primary, in front of the commit, to
    /// note what is so now. `writes` is what the statement counts as writing.
    pub(crate) fn may_hide(&self, statement: &Statement, writes: &Items) -> bool {
        let hides = match &statement.kind {
            Kind::Ddl(ddl) => ddl.hidden || self.transaction.may_lack_events || self.has_set_any(),
            _ => *writes == Items::Everything,
        };
        hides && self.opened.is_replicated
    }

    /// Whether a statement that commits by itself may have left something that no event trigger was
    /// told of. One that failed may leave an index that isn't valid.
    pub(crate) fn leaves(&self, statement: &Statement, failed: bool) -> bool {
        let concurrently =
            matches!(&statement.kind, Kind::Ddl(ddl) if ddl.replicate && !ddl.in_transaction);
        if failed {
            concurrently && self.opened.is_replicated
        } else {
            self.may_hide(statement, &statement.writes)
        }
    }

    /// A statement that ends the transaction was sent. It may be skipped, behind an error in front of it.
    pub(crate) fn transaction_ends(&mut self) {
        let ended = std::mem::take(&mut self.transaction);
        self.ended = Some(match self.ended.take() {
            Some(before) => before.and(ended),
            None => ended,
        });
    }

    /// The unit has run: in a block that goes on, what its transaction wrote still counts.
    pub(crate) fn transaction_goes_on(&mut self, status: Status, commits: bool) {
        if let Some(ended) = self.ended.take()
            && status != Status::Idle
        {
            self.transaction = ended.and(std::mem::take(&mut self.transaction));
        }
        if status == Status::Idle {
            self.ends_own_changes(commits);
        }
    }

    /// Whether a BEGIN that was sent begins a transaction at READ COMMITTED: nothing ran in front of it in its unit. With a
    /// hint, all of the transaction is the primary's.
    fn begins_read_committed(&self, up: &Upstream, modes: &TransactionModes, op: &Op) -> bool {
        up.status == Status::Idle
            && self.doubts.unit.statements == 1
            && self.effects.is_none()
            && modes.isolation.unwrap_or(self.isolation) == Isolation::ReadCommitted
            && !op.text().trim_ascii_start().starts_with(b"/*")
    }

    /// What the transaction counts as having written now. A change of the schema that came after it was
    /// analysed may have set off more, or given its rows other keys.
    pub(crate) fn writes_now(&self, env: &dyn Env) -> Items {
        let Transaction { writes, catalog_version, .. } = &self.transaction;
        let is_known = catalog_version.is_none_or(|version| version == env.catalog_version());
        match writes {
            Items::Tables(_) if !is_known || env.is_catalog_stale() => Items::Everything,
            writes => writes.clone(),
        }
    }

    /// Whether the transaction may have done what no event trigger was told of, if it counts as having written this now.
    fn may_have_hidden(&self, writes: &Items) -> bool {
        let Transaction { may_hide, writes: analysed, .. } = &self.transaction;
        *may_hide || *writes == Items::Everything && *analysed != Items::Everything
    }

    /// Puts the question for the transaction id in front of an explicit COMMIT. As a unit of its
    /// own if the COMMIT is alone in its unit: should the question fail, the COMMIT isn't skipped,
    /// and the block ends.
    fn ask_before_commit(
        &mut self,
        up: &mut Upstream,
        is_lone: bool,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let writes = self.writes_now(env);
        let may_hide = self.may_have_hidden(&writes);
        let transaction = self.transaction.clone();
        let Transaction { commit_writes, may_define, everywhere, .. } = transaction;
        self.flight.everywhere |= everywhere;
        self.transaction_ends();
        let has_failed = up.status == Status::Failed && !self.doubts.unit.leaves_failure;
        self.doubts.unit.leaves_failure = true;
        if writes.is_empty() || has_failed {
            return;
        }
        let audience = if is_lone { Audience::Question } else { Audience::Hidden };
        if may_hide {
            up.write_follow_at_end(&transaction, audience);
        }
        let write = self.begin_write(writes, may_define, out);
        if commit_writes {
            self.flight.opaque.push(write); // under an id that may not be assigned yet
        } else {
            up.write_xid_question(audience);
            self.flight.asked.push(write);
        }
        if is_lone && (may_hide || !commit_writes) {
            up.write_sync(audience);
        }
    }

    /// Writes the unit's Sync, which commits what it did outside of a block, or has it wait in front of that.
    pub(crate) fn write_end(
        &mut self,
        up: &mut Upstream,
        unit: &Unit,
        env: &dyn Env,
        out: &mut Actions,
    ) -> Written {
        if self.commits(up) && self.is_contested(env) {
            // It may wait for a lock: in flight only from its Sync, not while it waits.
            up.write_flush();
            return Written::Uncommitted;
        }
        self.write_commit(up, unit, env, out);
        Written::Whole
    }

    /// Writes the unit's Sync.
    pub(crate) fn write_commit(
        &mut self,
        up: &mut Upstream,
        unit: &Unit,
        env: &dyn Env,
        out: &mut Actions,
    ) {
        let Ends::Sync(audience) = unit.ends else { return };
        if self.commits(up) {
            let (writes, may_define) = (self.writes_now(env), self.transaction.may_define);
            if self.may_have_hidden(&writes) && !up.failed {
                up.write_follow_at_end(&self.transaction, Audience::Hidden);
            }
            if self.transaction.commit_writes {
                let write = self.begin_write(writes, may_define, out);
                self.flight.opaque.push(write);
            } else if !up.failed {
                let write = self.begin_write(writes, may_define, out);
                self.flight.asked.push(write);
                let theirs = makes(Mistake::WrongAudience);
                up.write_xid_question(if theirs { Audience::Client } else { Audience::Hidden });
            }
        }
        up.write_sync(audience);
    }

    /// Whether the unit's Sync commits something.
    fn commits(&self, up: &Upstream) -> bool {
        !self.flight.is_in_block && !self.transaction.writes.is_empty() && !up.answers.is_skipping()
    }

    /// Whether others may hold locks that the transaction's writes wait for.
    fn is_contested(&self, env: &dyn Env) -> bool {
        let writes = &self.transaction.writes;
        *writes == Items::Everything || env.is_in_flight(writes)
    }

    /// A write's COMMIT is about to be sent.
    pub(crate) fn begin_write(
        &mut self,
        items: Items,
        may_define: bool,
        out: &mut Actions,
    ) -> WriteId {
        self.flight.everywhere |=
            self.own.consistency == Consistency::Sync || self.transaction.everywhere;
        self.writes_begun += 1;
        let write = WriteId::of(self.opened.id, self.writes_begun);
        if !makes(Mistake::NotBegun) {
            out.push_back(Action::Begin { write, items, may_define });
        }
        if self.doubts.is_defining {
            self.doubts.defined = Some(write);
        }
        write
    }

    /// Tells the index what became of the unit's writes.
    pub(crate) fn land(&mut self, up: &mut Upstream, out: &mut Actions) {
        let flight = std::mem::take(&mut self.flight);
        let everywhere = flight.everywhere;
        let rows = up.answers.take_rows();
        up.answers.take_error();
        let mut xids = flight.xids.into_iter().chain(rows.into_iter().map(first_value));
        for write in flight.asked {
            let outcome = match xids.next() {
                Some(Some(xid)) => {
                    parse_xid(&xid).map_or(Outcome::Unidentified, Outcome::Committed)
                }
                // No id was assigned, or an error came first: nothing was written.
                Some(None) | None => Outcome::Nothing,
            };
            out.push_back(Action::End { write, outcome, everywhere });
        }
        for write in flight.opaque {
            out.push_back(Action::End { write, outcome: Outcome::Unidentified, everywhere });
        }
    }

    /// Nobody will hear what became of the writes in flight.
    pub(crate) fn doubt_flight(&mut self, out: &mut Actions) {
        let flight = std::mem::take(&mut self.flight);
        out.extend(flight.asked.into_iter().chain(flight.opaque).map(Action::Doubt));
    }
}

/// Whether a statement may change the schema, as far as analysis can tell.
pub(crate) fn may_define(statement: &Statement) -> bool {
    match &statement.writes {
        Items::Everything => true,
        // An opaque function that claims not to write may call one that does.
        Items::Nothing => statement.reads == Items::Everything,
        Items::Tables(_) => false,
    }
}

/// Writes a unit's message as this server must see it.
pub(crate) fn write_op(up: &mut Upstream, op: &Op, audience: Audience) {
    let named = op.prepared().map(|(prepared, _)| prepared.named());
    match op {
        Op::Statement { text, .. } => {
            up.defers_rows = op.statement().is_some_and(writes_first) && !is_select(text);
            up.write_statement(text, audience);
        }
        Op::Parse { message, prepared, is_taken, .. } => {
            up.write_parse(message, prepared.named(), *is_taken, audience);
        }
        Op::Bind { message, .. } => up.write_bind(message, named, audience),
        Op::DescribeStatement { message, prepared } => {
            let prepared = prepared.as_ref().map(|(prepared, _)| prepared);
            up.write_describe(message, prepared, audience);
        }
        Op::Changed(message, described) => up.write_changed(message, described.clone(), audience),
        Op::CloseStatement(message) => up.write_close(message, audience),
        Op::Portal(message) => up.write_portal(message, audience),
    }
    up.close_surplus();
}

/// Whether at most one statement of the client's runs by this.
fn runs_one(unit: &Unit) -> bool {
    let runs = |op: &&Op| matches!(op, Op::Statement { .. }) || op.executes();
    unit.ops.iter().filter(runs).count() <= 1
}

/// Whether a statement's query is run when the transaction commits.
fn holds_cursor(statement: &Statement) -> bool {
    matches!(statement.kind, Kind::Session(SessionCommand::Declare { hold: true, .. }))
        && statement.is_write()
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
