//! The coordinator's side of the SIPRe protocol: clients' requests, which site runs them, and the
//! end of a transaction (Figure 3, "from client" and "result(op)").

use std::collections::BTreeSet;

use hihooi_certify::certification::{SiteId, Timestamp, TxnId};

use super::message::{
    Cause, Changes, Content, Done, Effect, Message, ObjectId, Operation, Proposal, Reply,
};
use super::part::Request;
use super::site::Site;

/// A transaction of a client of this site.
#[derive(Clone, Debug)]
pub(super) struct Coordinated<C: Content> {
    /// `T.ST`.
    pub(super) begin: Timestamp,
    /// `changes(T)`.
    changes: Changes<C>,
    /// Other sites where it ran something.
    participants: BTreeSet<SiteId>,
    /// Operations so far.
    steps: u32,
    phase: Phase<C>,
}

#[derive(Clone, Debug)]
enum Phase<C: Content> {
    /// The client's turn.
    Idle,
    /// A site runs its operation.
    Running { site: SiteId, since_ms: u64 },
    /// In the total order, or on its way there: only a delivery decides.
    Proposed { since_ms: u64 },
    /// It is over; the client learns it with its next request.
    Failed(Cause<C>),
}

impl<C: Content> Site<C> {
    pub(super) fn operation(&mut self, txn: TxnId, is_first: bool, operation: Operation<C>) {
        assert_eq!(txn.site, self.id, "a transaction is named after its coordinator");
        if let Err(cause) = self.admit(txn, is_first) {
            return self.reply(txn, Reply::Aborted(cause));
        }
        match self.choose(txn, &operation.objects) {
            Some(site) => self.run_at(site, txn, operation),
            None => self.fail(txn, Cause::NoHolder),
        }
    }

    /// Makes sure that the transaction is there and it is the client's turn.
    fn admit(&mut self, txn: TxnId, is_first: bool) -> Result<(), Cause<C>> {
        match self.coordinated.get(&txn).map(|known| &known.phase) {
            None if !is_first => Err(Cause::Unknown),
            None if self.is_recovering() => Err(Cause::Recovering),
            None if self.coordinated.len() >= self.limits.transactions_max => {
                Err(Cause::Overloaded)
            }
            None => {
                self.coordinated.insert(txn, Coordinated::new(self.delivered));
                Ok(())
            }
            Some(Phase::Idle) => Ok(()),
            Some(Phase::Failed(cause)) => {
                let cause = cause.clone();
                self.coordinated.remove(&txn);
                Err(cause)
            }
            Some(Phase::Running { .. } | Phase::Proposed { .. }) => {
                panic!("{txn:?}: a client has one request outstanding at a time")
            }
        }
    }

    /// Where an operation runs: here if the data is here, else where the transaction has been, else
    /// at any living holder, spread by the transaction's number.
    fn choose(&self, txn: TxnId, objects: &[ObjectId]) -> Option<SiteId> {
        let mut holders = self.catalog.holders(objects);
        holders.retain(|&site| self.is_up(site));
        let been = &self.coordinated.get(&txn)?.participants;
        let known = [self.id].into_iter().chain(been.iter().copied());
        let spread = || {
            let turn = txn.number.checked_rem(holders.len() as u64)?;
            holders.get(usize::try_from(turn).ok()?).copied()
        };
        known.into_iter().find(|site| holders.contains(site)).or_else(spread)
    }

    fn run_at(&mut self, site: SiteId, txn: TxnId, operation: Operation<C>) {
        let since_ms = self.now_ms;
        let Some(known) = self.coordinated.get_mut(&txn) else { return };
        known.steps += 1;
        known.phase = Phase::Running { site, since_ms };
        let (step, begin) = (known.steps, known.begin);
        let changes = known.changes.clone();
        if site == self.id {
            return self.request(Request { txn, step, begin, changes, operation });
        }
        known.participants.insert(site);
        self.send(site, Message::Redirect { txn, step, begin, changes, operation });
    }

    /// `result(op)` and `newChanges`, from another site or from this one.
    pub(super) fn answered(&mut self, txn: TxnId, step: u32, outcome: Result<Done<C>, Cause<C>>) {
        let Some(known) = self.coordinated.get_mut(&txn) else { return };
        if known.steps != step || !matches!(known.phase, Phase::Running { .. }) {
            return;
        }
        match outcome {
            Err(cause) => self.fail(txn, cause),
            Ok(done) if known.changes.len() + done.changes.len() > self.limits.changes_max => {
                self.fail(txn, Cause::TooManyChanges);
            }
            Ok(done) => {
                known.changes.extend(done.changes);
                known.phase = Phase::Idle;
                self.reply(txn, Reply::Answered(done.answer));
            }
        }
    }

    pub(super) fn commit(&mut self, txn: TxnId) {
        let Some(known) = self.coordinated.get_mut(&txn) else {
            return self.reply(txn, Reply::Aborted(Cause::Unknown));
        };
        if let Phase::Failed(cause) = &known.phase {
            let cause = cause.clone();
            return self.finish(txn, Reply::Aborted(cause));
        }
        let begin = known.begin;
        if known.changes.is_empty() {
            self.release(txn);
            return self.finish(txn, Reply::Committed { at: begin });
        }
        known.phase = Phase::Proposed { since_ms: self.now_ms };
        let changes = known.changes.clone();
        self.effects.push(Effect::Broadcast(Proposal { txn, begin, changes }));
    }

    /// Sends proposals that may have been lost again.
    pub(super) fn propose_again(&mut self) {
        let (now_ms, max) = (self.now_ms, self.limits.proposal_ms_max);
        for (&txn, known) in &mut self.coordinated {
            if let Phase::Proposed { since_ms } = &mut known.phase
                && now_ms >= *since_ms + max
            {
                *since_ms = now_ms;
                let (begin, changes) = (known.begin, known.changes.clone());
                self.effects.push(Effect::Broadcast(Proposal { txn, begin, changes }));
            }
        }
    }

    /// The client gives up, also while its request is outstanding; only what is proposed goes on,
    /// and is answered when it is delivered.
    pub(super) fn abort(&mut self, txn: TxnId) {
        match self.coordinated.get(&txn).map(|known| &known.phase) {
            Some(Phase::Proposed { .. }) => {}
            Some(Phase::Failed(_)) => self.finish(txn, Reply::Aborted(Cause::Client)),
            Some(Phase::Idle | Phase::Running { .. }) => {
                self.release(txn);
                self.finish(txn, Reply::Aborted(Cause::Client));
            }
            None => self.reply(txn, Reply::Aborted(Cause::Unknown)),
        }
    }

    /// The total order has decided about a transaction of this site.
    pub(super) fn decided(&mut self, txn: TxnId, reply: Reply<C>) {
        if self.coordinated.contains_key(&txn) {
            self.finish(txn, reply);
        }
    }

    /// It can't commit any more.
    pub(super) fn doomed(&mut self, txn: TxnId) {
        self.fail(txn, Cause::WriteConflict);
    }

    /// Ends a transaction that was not proposed, for this cause.
    fn fail(&mut self, txn: TxnId, cause: Cause<C>) {
        let Some(known) = self.coordinated.get_mut(&txn) else { return };
        match known.phase {
            Phase::Proposed { .. } | Phase::Failed(_) => {}
            // Only an operation's first steps fail while it is still the client's turn.
            Phase::Idle if cause != Cause::WriteConflict => {
                self.release(txn);
                self.finish(txn, Reply::Aborted(cause));
            }
            Phase::Idle => {
                known.phase = Phase::Failed(cause);
                self.release(txn);
            }
            Phase::Running { .. } => {
                self.release(txn);
                self.finish(txn, Reply::Aborted(cause));
            }
        }
    }

    /// Undoes the transaction at all sites where it ran.
    fn release(&mut self, txn: TxnId) {
        self.end_part(txn);
        let Some(known) = self.coordinated.get_mut(&txn) else { return };
        for to in std::mem::take(&mut known.participants) {
            self.send(to, Message::Release { txn });
        }
    }

    fn finish(&mut self, txn: TxnId, reply: Reply<C>) {
        self.coordinated.remove(&txn);
        self.reply(txn, reply);
    }

    fn reply(&mut self, txn: TxnId, reply: Reply<C>) {
        self.effects.push(Effect::Reply { txn, reply });
    }

    /// No transaction that this site coordinates, or will, starts before this.
    pub(super) fn oldest_begin(&self) -> Timestamp {
        let undecided = self.coordinated.values().filter(|known| known.needs_snapshot());
        undecided.map(|known| known.begin).fold(self.delivered, Timestamp::min)
    }

    /// Ends the transactions whose operation a dead site was running. Those that only ran
    /// something there before go on: their changes are here.
    pub(super) fn fail_operations_at(&mut self, dead: SiteId) {
        self.fail_running(Cause::HolderFailed(dead), |_, site, _| site == dead);
    }

    /// Ends the transactions whose operation takes too long. One that is at this site alone may
    /// take as long as it likes: the database sees what it waits for.
    pub(super) fn expire_operations(&mut self) {
        let (id, now_ms, max) = (self.id, self.now_ms, self.limits.operation_ms_max);
        let overdue: Vec<SiteId> = self.catalog.holders(&[]);
        for silent in overdue {
            self.fail_running(Cause::HolderSilent(silent), |known, site, since_ms| {
                let spans = site != id || !known.participants.is_empty();
                site == silent && spans && now_ms >= since_ms + max
            });
        }
    }

    fn fail_running(
        &mut self,
        cause: Cause<C>,
        hit: impl Fn(&Coordinated<C>, SiteId, u64) -> bool,
    ) {
        let txns: Vec<TxnId> = (self.coordinated.iter())
            .filter(|(_, known)| match known.phase {
                Phase::Running { site, since_ms } => hit(known, site, since_ms),
                _ => false,
            })
            .map(|(&txn, _)| txn)
            .collect();
        for txn in txns {
            self.fail(txn, cause.clone());
        }
    }
}

impl<C: Content> Coordinated<C> {
    fn new(begin: Timestamp) -> Coordinated<C> {
        Coordinated {
            begin,
            changes: Vec::new(),
            participants: BTreeSet::new(),
            steps: 0,
            phase: Phase::Idle,
        }
    }

    fn needs_snapshot(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Running { .. })
    }
}
