//! What a site runs in its own database for a transaction, its own clients' or another site's
//! (SIPRe paper, Figure 3, "redirect"). A part can be undone and forgotten at any time: the next
//! operation brings all changes again, and the delivery of the writeset needs no part at all.

use std::collections::BTreeSet;

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};

use super::message::{
    Cause, Change, Changes, Content, Done, Effect, Failure, Item, Message, Operation, Run,
};
use super::site::Site;

/// An operation that is to run here.
#[derive(Clone, Debug)]
pub(super) struct Request<C: Content> {
    pub(super) txn: TxnId,
    pub(super) step: u32,
    pub(super) begin: Timestamp,
    pub(super) changes: Changes<C>,
    pub(super) operation: Operation<C>,
}

/// A transaction in this site's database.
#[derive(Clone, Debug)]
pub(super) struct Part<C: Content> {
    begin: Timestamp,
    /// The operation it ran last.
    step: u32,
    /// The transaction's changes as it knows them, those of other sites' objects too; what it holds
    /// of them is made in its database.
    changes: Changes<C>,
    /// The rows it has written here.
    wrote: BTreeSet<Item>,
    run: Option<Run>,
    since_ms: u64,
}

impl<C: Content> Site<C> {
    /// Runs an operation, now or when the site has delivered its snapshot.
    pub(super) fn request(&mut self, request: Request<C>) {
        let (txn, step) = (request.txn, request.step);
        if self.parts.get(&txn).is_some_and(|part| part.step >= step || part.run.is_some()) {
            return; // a repeated message
        }
        if request.begin > self.delivered || self.is_recovering() {
            match self.waiting.len() < self.limits.waiting_max {
                true => self.waiting.push_back(request),
                false => self.refuse(txn, step, Cause::Overloaded),
            }
            return;
        }
        self.end_stray_part(txn, &request.changes);
        match self.begin_part(txn, request.begin) {
            Ok(()) => self.execute(request),
            Err(cause) => self.refuse(txn, step, cause),
        }
    }

    /// Runs what had to wait for a snapshot that is there now.
    pub(super) fn wake(&mut self) {
        let delivered = self.delivered;
        for request in std::mem::take(&mut self.waiting) {
            match request.begin <= delivered {
                true => self.request(request),
                false => self.waiting.push_back(request),
            }
        }
    }

    /// Ends a part that has done what its coordinator doesn't know of: a doubled or late message ran
    /// an operation again.
    fn end_stray_part(&mut self, txn: TxnId, changes: &[Change<C>]) {
        if self.parts.get(&txn).is_some_and(|part| !changes.starts_with(&part.changes)) {
            self.end_part(txn);
        }
    }

    /// `getDummyTransaction(T.ST)`, unless the transaction is here already.
    fn begin_part(&mut self, txn: TxnId, begin: Timestamp) -> Result<(), Cause<C>> {
        if self.parts.contains_key(&txn) {
            return Ok(());
        }
        if self.parts.len() >= self.limits.parts_max {
            return Err(Cause::Overloaded);
        }
        let snapshot = self.snapshots.serving(begin).ok_or(Cause::SnapshotTooOld)?;
        self.parts.insert(txn, Part::new(begin, self.now_ms));
        self.effects.push(Effect::Begin { txn, snapshot });
        Ok(())
    }

    fn execute(&mut self, request: Request<C>) {
        let Request { txn, step, changes, operation, .. } = request;
        let run = Run(self.runs);
        let Some(part) = self.parts.get_mut(&txn) else { return };
        let known = part.changes.len().min(changes.len());
        let missing = local(&self.catalog, self.id, &changes[known..]);
        part.changes = changes;
        part.step = step;
        part.run = Some(run);
        part.wrote.extend(missing.iter().map(|change| change.item));
        self.runs += 1;
        self.running.insert(run, txn);
        let statement = operation.statement;
        self.effects.push(Effect::Execute { txn, run, changes: missing, statement });
    }

    /// The database has answered.
    pub(super) fn executed(&mut self, run: Run, outcome: Result<Done<C>, Failure<C>>) {
        let Some(txn) = self.running.remove(&run) else { return };
        let Some(part) = self.parts.get_mut(&txn) else { return };
        part.run = None;
        part.since_ms = self.now_ms;
        let step = part.step;
        match outcome {
            Ok(done) if overtaken(&self.certifier, part.begin, &done.changes) => {
                self.lose(txn, step, Cause::WriteConflict);
            }
            Ok(done) => {
                part.changes.extend(done.changes.iter().cloned());
                part.wrote.extend(done.changes.iter().map(|change| change.item));
                self.respond(txn, step, Ok(done));
            }
            Err(Failure::Conflict) => self.lose(txn, step, Cause::WriteConflict),
            Err(Failure::Statement(answer)) => self.lose(txn, step, Cause::Statement(answer)),
        }
    }

    /// Ends the part and says why.
    fn lose(&mut self, txn: TxnId, step: u32, cause: Cause<C>) {
        self.end_part(txn);
        self.refuse(txn, step, cause);
    }

    fn refuse(&mut self, txn: TxnId, step: u32, cause: Cause<C>) {
        self.respond(txn, step, Err(cause));
    }

    fn respond(&mut self, txn: TxnId, step: u32, outcome: Result<Done<C>, Cause<C>>) {
        match txn.site == self.id {
            true => self.answered(txn, step, outcome),
            false => self.send(txn.site, Message::Redirected { txn, step, outcome }),
        }
    }

    /// Undoes what the transaction did here, if anything.
    pub(super) fn end_part(&mut self, txn: TxnId) {
        self.waiting.retain(|request| request.txn != txn);
        if self.take_part(txn).is_some() {
            self.effects.push(Effect::Rollback { txn });
        }
    }

    /// Forgets the part; returns the transaction's changes as it knows them.
    pub(super) fn take_part(&mut self, txn: TxnId) -> Option<Changes<C>> {
        let part = self.parts.remove(&txn)?;
        if let Some(run) = part.run {
            self.running.remove(&run);
        }
        Some(part.changes)
    }

    /// Ends every part that wrote a row of a writeset that is about to commit: it began before, so
    /// it would fail certification, and until then its row locks would be in the way.
    pub(super) fn end_rivals(&mut self, winner: TxnId, changes: &[Change<C>]) {
        let rivals: Vec<TxnId> = (self.parts.iter())
            .filter(|(txn, _)| **txn != winner)
            .filter(|(_, part)| changes.iter().any(|change| part.wrote.contains(&change.item)))
            .map(|(&txn, _)| txn)
            .collect();
        for txn in rivals {
            self.end_part(txn);
            match txn.site == self.id {
                true => self.doomed(txn),
                false => self.send(txn.site, Message::Doomed { txn }),
            }
        }
    }

    /// A coordinator is dead: what it left here ends. If it had proposed, the delivery will bring
    /// the writeset.
    pub(super) fn forget_parts_of(&mut self, dead: SiteId) {
        self.waiting.retain(|request| request.txn.site != dead);
        self.end_parts_where(|txn, _| txn.site == dead);
    }

    /// Ends the parts of other sites' transactions that wait too long for their coordinator.
    pub(super) fn expire_parts(&mut self) {
        let (id, now_ms, max) = (self.id, self.now_ms, self.limits.part_idle_ms_max);
        self.end_parts_where(|txn, part| {
            txn.site != id && part.run.is_none() && now_ms >= part.since_ms + max
        });
    }

    fn end_parts_where(&mut self, hit: impl Fn(TxnId, &Part<C>) -> bool) {
        let parts = self.parts.iter().filter(|(txn, part)| hit(**txn, part));
        let txns: Vec<TxnId> = parts.map(|(&txn, _)| txn).collect();
        for txn in txns {
            self.end_part(txn);
        }
    }
}

impl<C: Content> Part<C> {
    pub(super) fn changes(&self) -> &[Change<C>] {
        &self.changes
    }

    pub(super) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    fn new(begin: Timestamp, since_ms: u64) -> Part<C> {
        Part { begin, step: 0, changes: Vec::new(), wrote: BTreeSet::new(), run: None, since_ms }
    }
}

/// Those changes that a site holds.
pub(super) fn local<C: Content>(
    catalog: &super::Catalog,
    site: SiteId,
    changes: &[Change<C>],
) -> Changes<C> {
    changes.iter().filter(|change| catalog.holds(site, change.item.object)).cloned().collect()
}

/// Whether a row of these was committed by another since the transaction began: while the database
/// was running the statement, or its answer was on its way. Of earlier commits it knows itself.
fn overtaken<C: Content>(
    certifier: &super::certification::Certifier,
    begin: Timestamp,
    changes: &[Change<C>],
) -> bool {
    !changes.is_empty() && certifier.validate(begin, changes.iter().map(|c| c.item)).is_err()
}
