//! What became of the transactions of trials.

use hihooi_certify::certification::Cause;

use crate::database::transaction::Answer;

/// How a trial ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Transactions that were asked for.
    pub transactions: u64,
    /// Acknowledged.
    pub committed: u64,
    /// Refused for a write conflict.
    pub write_conflicts: u64,
    /// Refused for any other cause but the next.
    pub read_conflicts: u64,
    /// Refused because the snapshot was too old, or ended by a view.
    pub too_old: u64,
    /// Of unknown outcome.
    pub unknown: u64,
}

impl Tally {
    /// The sum over trials.
    #[must_use]
    pub fn sum(tallies: impl IntoIterator<Item = Tally>) -> Tally {
        tallies.into_iter().fold(Tally::default(), |a, b| Tally {
            transactions: a.transactions + b.transactions,
            committed: a.committed + b.committed,
            write_conflicts: a.write_conflicts + b.write_conflicts,
            read_conflicts: a.read_conflicts + b.read_conflicts,
            too_old: a.too_old + b.too_old,
            unknown: a.unknown + b.unknown,
        })
    }

    /// How these calls ended.
    pub(crate) fn of<'a>(answers: impl Iterator<Item = Option<&'a Answer>>) -> Tally {
        let mut tally = Tally::default();
        answers.for_each(|answer| tally.count(answer));
        tally
    }

    fn count(&mut self, answer: Option<&Answer>) {
        self.transactions += 1;
        match answer {
            None => self.unknown += 1,
            Some(Answer::Committed { .. }) => self.committed += 1,
            Some(Answer::Aborted(Cause::WriteConflict { .. })) => self.write_conflicts += 1,
            Some(Answer::Aborted(Cause::SnapshotTooOld)) => self.too_old += 1,
            Some(Answer::Aborted(_)) => self.read_conflicts += 1,
        }
    }
}
