//! What is delivered in total order (SIPRe paper, Figure 3, "in total order"): every site certifies every
//! writeset, in order; the sites that store the objects apply it; then there is a new snapshot.

use hihooi_certify::certification::Timestamp;

use super::certification::Refusal;
use super::message::{Cause, Content, Effect, Proposal, Reply};
use super::part::local;
use super::site::Site;

impl<C: Content> Site<C> {
    pub(super) fn deliver(&mut self, at: Timestamp, proposal: &Proposal<C>) {
        if at <= self.delivered {
            return;
        }
        assert_eq!(at.0, self.delivered.0 + 1, "the total order has no gaps");
        self.delivered = at;
        let verdict = self.certify(at, proposal);
        if at <= self.durable {
            return self.recovered(at);
        }
        match verdict {
            Ok(()) => self.apply(at, proposal),
            Err(_) => self.end_part(proposal.txn),
        }
        self.decided(proposal.txn, reply(at, verdict));
        self.wake();
    }

    /// The same verdict at all sites, whatever they hold.
    fn certify(&mut self, at: Timestamp, proposal: &Proposal<C>) -> Result<(), Refusal> {
        let items = || proposal.changes.iter().map(|change| change.item);
        self.certifier.validate(proposal.begin, items())?;
        self.certifier.remember(at, items(), self.limits.certified_changes_max);
        Ok(())
    }

    fn apply(&mut self, at: Timestamp, proposal: &Proposal<C>) {
        let txn = proposal.txn;
        self.end_rivals(txn, &proposal.changes);
        if !proposal.changes.iter().any(|change| self.holds(change.item.object)) {
            return self.end_part(txn);
        }
        let known = self.begun(proposal);
        let changes = local(&self.catalog, self.id, &proposal.changes[known.unwrap_or(0)..]);
        self.effects.push(Effect::Commit { txn, at, begun: known.is_some(), changes });
        self.open_snapshot();
    }

    /// How many of the changes were "previously executed" here, if the transaction was here and did
    /// nothing else; what a doubled message made it do is undone.
    fn begun(&mut self, proposal: &Proposal<C>) -> Option<usize> {
        let part = self.parts.get(&proposal.txn)?;
        if part.is_running() || !proposal.changes.starts_with(part.changes()) {
            self.end_part(proposal.txn);
            return None;
        }
        self.take_part(proposal.txn).map(|changes| changes.len())
    }

    /// One more position that the database had before the crash; behind the last, work begins.
    fn recovered(&mut self, at: Timestamp) {
        if at == self.durable {
            self.open_snapshot();
            self.wake();
        }
    }
}

fn reply<C: Content>(at: Timestamp, verdict: Result<(), Refusal>) -> Reply<C> {
    match verdict {
        Ok(()) => Reply::Committed { at },
        Err(Refusal::Conflict) => Reply::Aborted(Cause::WriteConflict),
        Err(Refusal::TooOld) => Reply::Aborted(Cause::SnapshotTooOld),
    }
}
