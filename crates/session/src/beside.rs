//! Reads at replicas in a transaction that is open at the primary: those that don't read what the transaction
//! has written (Hihooi section 5.2, statement-level routing, by Algorithm 1). The transaction's connection is
//! parked meanwhile; it and the connection to the replica are never used at the same time.
//!
//! At READ COMMITTED each statement has its own snapshot. So it makes no difference at which site the snapshot
//! is taken, if it contains what the statement must see: what other transactions have committed
//! ([`crate::route`]), and what its own transaction wrote. Reads of the latter run on the primary. So do all
//! reads after the transaction has run something that can change the result of later statements: DDL, settings,
//! temporary tables.

use hihooi_replication::items::Items;
use hihooi_sql::{Kind, SessionCommand};
use hihooi_wire::backend::{Report, Severity, Status};

use crate::block::FAIL;
use crate::events::{Action, Actions, Env};
use crate::mistakes::{Mistake, makes};
use crate::route::Reason;
use crate::session::{End, Open, Session};
use crate::work::Then;

impl Session {
    /// Whether the session's connection has a transaction beside which reads may run.
    pub(crate) fn may_read_beside(&self) -> bool {
        let has_one = self.up.as_ref().is_some_and(|up| up.status == Status::Block);
        has_one
            && self.transaction.is_read_committed
            // Behind a query SET TRANSACTION is an error, which the primary has to know.
            && self.transaction.has_read
            && self.own.statement_routing
            && self.open == Open::No
            && self.snapshot.is_none()
            && !self.transaction.has_ddl
            && self.pin.is_none()
            && self.effects.is_none()
            && self.doubts.unsure.is_empty()
    }

    /// Why a statement runs where the transaction is, if it could not run beside it for this reason.
    pub(crate) fn why_not_beside(&self, reason: Reason) -> Reason {
        match reason {
            Reason::NotFresh | Reason::Hint => reason,
            _ => self.reason_for(None),
        }
    }

    /// Whether the transaction that is open may have written what is read.
    pub(crate) fn has_written(&self, items: &Items, env: &dyn Env) -> bool {
        self.writes_now(env).overlaps(items) && !makes(Mistake::OwnWriteMissed)
    }

    /// Leaves the connection with the transaction for one to a replica.
    pub(crate) fn park(&mut self, out: &mut Actions) {
        if let Some(up) = self.up.take() {
            self.parked = Some(up);
            out.push_back(Action::Park);
        }
    }

    /// Returns to the connection with the transaction.
    pub(crate) fn resume(&mut self, out: &mut Actions) {
        if let Some(up) = self.parked.take() {
            self.up = Some(up);
            out.push_back(Action::Resume);
        }
    }

    /// A replica has answered a read: the transaction goes on where it is, and fails there if the read failed, of which
    /// the client has been told.
    pub(crate) fn has_read_beside(&mut self, env: &dyn Env, out: &mut Actions) {
        let failed = self.up.as_ref().is_some_and(|up| up.failed);
        if let (Some(work), Some(up)) = (&mut self.work, &self.up) {
            work.failed_after = failed.then_some(up.names_done);
        }
        self.let_go(out);
        self.resume(out);
        match &mut self.up {
            Some(up) if failed => {
                up.write_own_query(FAIL);
                self.await_own(Then::FailedToo);
            }
            _ => self.done(env, out),
        }
    }

    /// The transaction was to fail.
    pub(crate) fn failed_too(&mut self, env: &dyn Env, out: &mut Actions) {
        let status = self.with_server(|_, up| {
            up.answers.take_rows();
            up.answers.take_error();
            up.status
        });
        match status {
            Some(Status::Failed) => self.done(env, out),
            _ => self.goes_on_in_spite(out),
        }
    }

    /// A transaction that was to fail did not.
    pub(crate) fn goes_on_in_spite(&mut self, out: &mut Actions) {
        let report = Report::error(
            "XX000",
            "a transaction continued after an error in one of its statements",
        );
        self.end(End::Fatal(Report { severity: Severity::Fatal, ..report }), out);
    }
}

/// Whether statements mean the same in a transaction behind one of this kind, but for what its effects say. Whatever else it
/// is, it may change the isolation level, or what only this connection has; behind COMMIT and BEGIN it is another transaction.
pub(crate) fn keeps_meaning(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Empty
            | Kind::Read
            | Kind::Write
            | Kind::CopyIn
            | Kind::CopyOut
            | Kind::Savepoint(_)
            | Kind::RollbackTo(_)
            | Kind::Release(_)
            | Kind::Session(SessionCommand::Show(_))
    )
}
