//! REPEATABLE READ, READ ONLY transactions, which read from one snapshot. Their first read takes the snapshot
//! at a replica that has applied everything that the transaction must see. All later statements run in the same
//! transaction, at that replica. If a statement can't run there, or the replica is lost, the transaction fails
//! with 40001 (serialization_failure), because no other site has this snapshot.

use hihooi_sql::{
    Isolation, Kind, Replica, SessionCommand, SessionEffect, Statement, TransactionModes, Unsafe,
};
use hihooi_wire::backend::{Report, Severity, Status};

use crate::answers::Audience;
use crate::block::{Block, names_a_day};
use crate::consistency::Consistency;
use crate::events::{Action, Actions, Counter, Env};
use crate::read::is_routable;
use crate::relaying::Hold;
use crate::route::{Reason, Route};
use crate::session::{End, Open, Phase, Session, mentions};
use crate::sites::SiteId;
use crate::unit::{Ends, Op, Unit};
use crate::work::{Query, Then, What, Work};

/// SQLSTATE of what may succeed if it is run again.
const SERIALIZATION_FAILURE: &str = "40001";

/// A transaction that is open at a replica, which has its snapshot.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// As the client opened it.
    block: Box<Block>,
    /// Where it is.
    route: Route,
    /// What ends it was sent: what comes behind that in its unit is another transaction's.
    ends: bool,
}

impl Snapshot {
    /// Whether all of it can run where the snapshot is.
    fn fits(&mut self, what: &What) -> bool {
        match what {
            What::Query(query) => {
                let mut statements = query.facts.statements.iter();
                statements.all(|statement| self.runs(statement, &query.text, true))
            }
            What::Unit(Unit { ops, .. }) => ops.iter().all(|op| {
                let Some((prepared, facts)) = op.prepared() else { return true };
                let is_bound = matches!(op, Op::Bind { .. });
                facts.statements.iter().all(|one| self.runs(one, &prepared.query, is_bound))
            }),
            What::Storing(_) => false,
        }
    }

    /// Whether a statement can run there, or be prepared.
    fn runs(&mut self, statement: &Statement, text: &[u8], is_bound: bool) -> bool {
        let fits = runs_at_snapshot(statement, text) && !self.ends;
        self.ends |= is_bound && ends_transaction(&statement.kind);
        fits
    }
}

impl Session {
    /// Whether a transaction of these modes only reads, from one snapshot, and may do so at a replica.
    pub(crate) fn may_take_snapshot(&self, modes: &TransactionModes) -> bool {
        modes.isolation.unwrap_or(self.isolation) == Isolation::RepeatableRead
            && modes.read_only == Some(true)
            && self.own.snapshot_routing
            && !self.snapshots_at_primary
    }

    /// Whether the client's block has been begun nowhere, and its first read is to take a snapshot.
    pub(crate) fn takes_snapshot(&self) -> bool {
        self.block.as_deref().is_some_and(Block::is_of_one_snapshot)
    }

    /// Whether a replica may run a statement, as far as the statement goes, as the first of a block or outside of one; the
    /// level that a hint asks for.
    pub(crate) fn is_routable_here(
        &self,
        statement: &Statement,
        text: &[u8],
    ) -> Result<Option<Consistency>, Reason> {
        if self.takes_snapshot() && declares_safely(statement) {
            return Ok(None);
        }
        is_routable(statement, text)
    }

    /// A replica has answered the first read of such a block.
    pub(crate) fn took_snapshot(&mut self) {
        let Some(work) = &self.work else { return };
        let route = Route { dispatched: None, reason: Reason::Snapshot, ..work.route };
        let block = self.block.take();
        self.snapshot = block.map(|block| Box::new(Snapshot { block, route, ends: false }));
        if let Some(up) = &mut self.up {
            up.has_snapshot = true;
        }
    }

    /// Sends work to where the session's snapshot is, if it has one; whether it may begin.
    pub(crate) fn goes_to_snapshot(
        &mut self,
        work: &mut Work,
        env: &dyn Env,
        out: &mut Actions,
    ) -> Result<(), Report> {
        let ends = work.ends();
        if let Some(block) = &mut self.block {
            return match ends {
                true => Ok(()),
                false => block.tell_loss().map_or(Ok(()), Err),
            };
        }
        let has_failed = self.status() == Status::Failed || self.is_skipping();
        let Some(snapshot) = &mut self.snapshot else { return Ok(()) };
        if !ends && !env.still_serves(&snapshot.route) {
            return Err(lost("the replica that had the transaction's snapshot serves no more"));
        }
        (work.route, work.wanted) = (snapshot.route, None);
        // What failed there can only be rolled back, as the server will say.
        if snapshot.fits(&work.what) || has_failed && !snapshot.ends {
            return Ok(());
        }
        if self.asks_catalogs(&work.what) {
            work.route = Route::primary(Reason::Unsafe);
            if let What::Unit(unit) = &mut work.what
                && unit.ends == Ends::Flush
            {
                unit.ends = Ends::Sync(Audience::Us);
            }
            return Ok(());
        }
        if ends && !self.is_unit_open() {
            self.end_at_primary(has_failed, work, out);
            return Ok(());
        }
        Err(self.cannot_run_there())
    }

    /// Whether it only asks the system catalogs, and leaves nothing: the primary answers that beside the transaction,
    /// since their OIDs are its own.
    fn asks_catalogs(&self, what: &What) -> bool {
        let asks = |statement: &Statement, values: &[u8]| {
            statement.kind == Kind::Read
                && statement.only_catalogs
                && !statement.is_write()
                && !statement.row_locks
                && !statement.may_commit_inside
                && !statement.lists_prepared
                && statement.session.is_none()
                && !names_a_day(values)
        };
        match what {
            What::Query(Query { text, facts, .. }) => {
                !self.is_unit_open()
                    && facts.statements.iter().all(|statement| asks(statement, text))
            }
            What::Unit(unit) => {
                let mut ops = unit.ops.iter().filter_map(|op| Some((op, op.prepared()?)));
                !self.is_unit_open()
                    && (unit.ends != Ends::Flush || !unit.ops.iter().any(Op::uses_portal))
                    && self.leaves_no_portal(unit)
                    && ops.all(|(op, (_, facts))| {
                        let values =
                            if let Op::Bind { message, .. } = op { message.body() } else { b"" };
                        facts.statements.iter().all(|statement| asks(statement, values))
                    })
            }
            What::Storing(_) => false,
        }
    }

    /// Where the transaction is that the session has, or would have.
    pub(crate) fn home(&self) -> SiteId {
        self.snapshot.as_ref().map_or(SiteId::Primary, |snapshot| snapshot.route.site)
    }

    /// What ends the transaction comes with more, which is another transaction's: the primary runs it all, in a transaction
    /// as this one.
    fn end_at_primary(&mut self, has_failed: bool, work: &mut Work, out: &mut Actions) {
        let Some(snapshot) = self.snapshot.take() else { return };
        let mut block = snapshot.block;
        block.has_run(has_failed);
        self.block = Some(block);
        self.discard(out);
        work.route = Route::primary(Reason::ExplicitBlock);
    }

    /// Such transactions of the session run on the primary from now on, which the client is told.
    fn cannot_run_there(&mut self) -> Report {
        self.snapshots_at_primary = true;
        let what = "a replica has the transaction's snapshot, and can't run this";
        lost(what).hint("Run the transaction again: the session's later READ ONLY transactions run on the primary.")
    }

    /// What a replica says of its own types can't be told in those of the primary.
    pub(crate) fn cannot_be_told(&mut self, out: &mut Actions) {
        let report = self.cannot_run_there();
        self.lose_snapshot(report, out);
    }

    /// The replica with the session's snapshot is lost, or the transaction can't go on there: the block has failed.
    pub(crate) fn lose_snapshot(&mut self, report: Report, out: &mut Actions) {
        let waits = match self.phase {
            Phase::Idle => self.work.is_some(),
            Phase::Answering(then) => matches!(then, Then::Written(_) | Then::Described),
            _ => false,
        };
        let runs = self.is_unit_open() || matches!(self.phase, Phase::Answering(Then::Written(_)));
        let answered = self.up.as_ref().filter(|_| runs).map(|up| up.names_done);
        // In the middle of a unit the client is told at once, and what is left of the unit is skipped.
        let was_open = std::mem::replace(&mut self.open, Open::No) == Open::Running;
        // Whatever becomes of its end, the transaction is over then.
        let ends = waits && self.work.as_deref().is_some_and(Work::ends);
        if let Some(snapshot) = self.snapshot.take().filter(|_| !ends) {
            let block = snapshot.block.lost(report.clone(), waits || was_open);
            self.block = Some(Box::new(block));
        }
        if ends {
            self.ends_own_changes(false);
        }
        self.discard(out);
        (self.hold, self.transaction) = (Hold::No, Default::default());
        if self.down.is_amid_message {
            return self.end(End::Fatal(Report { severity: Severity::Fatal, ..report }), out);
        }
        if waits {
            return self.refuse_after(&report, answered.unwrap_or_default());
        }
        self.phase = Phase::Idle;
        self.work = None;
        if was_open {
            self.open = Open::Skipping;
            report.write(&mut self.down.output);
        }
    }

    /// The connection to the replica with the session's snapshot is lost.
    pub(crate) fn snapshot_is_lost(&mut self, why: &str, out: &mut Actions) {
        if let Some(snapshot) = &self.snapshot {
            out.push_back(Action::Count(snapshot.route.site, Counter::Error));
        }
        let what = "the connection to the replica that had the transaction's snapshot was lost";
        self.lose_snapshot(lost(what).detail(why), out);
    }
}

fn lost(what: &str) -> Report {
    Report::error(SERIALIZATION_FAILURE, what).hint("Run the transaction again.")
}

impl Work {
    /// Whether its first statement ends a transaction.
    fn ends(&self) -> bool {
        self.first().is_some_and(|first| ends_transaction(&first.kind))
    }
}

fn ends_transaction(kind: &Kind) -> bool {
    matches!(kind, Kind::Commit { .. } | Kind::Rollback { .. })
}

fn runs_at_snapshot(statement: &Statement, text: &[u8]) -> bool {
    match &statement.kind {
        _ if is_refused_read_only(statement) || only_sets(statement, text) => true,
        Kind::Read | Kind::CopyOut | Kind::Empty => is_routable(statement, text).is_ok(),
        Kind::Commit { chain } | Kind::Rollback { chain } => !chain,
        Kind::Begin(_) | Kind::Savepoint(_) | Kind::RollbackTo(_) | Kind::Release(_) => true,
        Kind::Session(command) => match command {
            SessionCommand::Show(_) => true,
            SessionCommand::Fetch(_) | SessionCommand::Move(_) | SessionCommand::Close(_) => true,
            _ => declares_safely(statement),
        },
        _ => false,
    }
}

/// Whether servers refuse it in a READ ONLY transaction, before any of it runs (25006).
fn is_refused_read_only(statement: &Statement) -> bool {
    matches!(statement.kind, Kind::Write | Kind::Read)
        && statement.is_unsafe_only_for(&[Unsafe::Writes, Unsafe::RowLock])
        && statement.session.is_none()
}

/// Whether it changes settings and nothing else, and the session's state will tell which; not the path, by which names
/// are looked up elsewhere.
fn only_sets(statement: &Statement, text: &[u8]) -> bool {
    let SessionEffect { settings, local_settings, ref custom_settings, .. } = statement.session;
    let custom_settings = custom_settings.clone();
    let only =
        SessionEffect { settings, local_settings, custom_settings, ..SessionEffect::default() };
    let is_such = match &statement.kind {
        Kind::Session(SessionCommand::Set { name, .. }) => &**name != "search_path",
        kind => *kind == Kind::Read && !mentions(text, b"setseed"),
    };
    is_such
        && statement.session == only
        && !statement.session.is_none()
        && statement.is_unsafe_only_for(&[Unsafe::SessionState])
        && !statement.is_write()
        && !statement.row_locks
}

/// Whether it declares a cursor of which a replica could run the query.
fn declares_safely(statement: &Statement) -> bool {
    matches!(statement.kind, Kind::Session(SessionCommand::Declare { hold: false, .. }))
        && statement.replica == Replica::Unsafe(Unsafe::Cursor)
        && !statement.is_write()
        && !statement.row_locks
        && statement.session.is_none()
}
