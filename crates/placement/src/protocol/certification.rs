//! `validate(T)` of the SIPRe paper's Figure 3: the first committer wins. At every site it gets the same
//! writesets in the same order and returns the same verdicts. Nothing here may depend on which objects a site
//! stores.
//!
//! It differs from the `rsi` certifier of `hihooi-certify` in how it handles restarts: a site that restarts
//! continues from a [`Checkpoint`], its own or another site's. What is forgotten depends only on the order, so
//! that all sites refuse the same transactions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hihooi_certify::certification::Timestamp;

use super::message::Item;

/// Why a transaction may not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A concurrent one committed a write of the same row.
    Conflict,
    /// It began before what is remembered.
    TooOld,
}

/// What a certifier remembers after a position: equal at all sites.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// The position.
    pub at: Timestamp,
    /// Transactions that began before it can't be judged.
    pub floor: Timestamp,
    /// The rows of each committed transaction that is remembered, by position.
    pub committed: Vec<(Timestamp, Vec<Item>)>,
}

/// What a site remembers of committed writesets.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Certifier {
    floor: Timestamp,
    committed: VecDeque<(Timestamp, Vec<Item>)>,
    last: BTreeMap<Item, Timestamp>,
    remembered: usize,
}

impl Certifier {
    pub(super) fn new(checkpoint: Checkpoint) -> Certifier {
        let mut certifier = Certifier { floor: checkpoint.floor, ..Certifier::default() };
        for (at, items) in checkpoint.committed {
            certifier.remember(at, items, usize::MAX);
        }
        certifier
    }

    pub(super) fn checkpoint(&self, at: Timestamp) -> Checkpoint {
        Checkpoint { at, floor: self.floor, committed: self.committed.iter().cloned().collect() }
    }

    /// Whether a transaction that began then may commit these rows now.
    pub(super) fn validate(
        &self,
        begin: Timestamp,
        items: impl IntoIterator<Item = Item>,
    ) -> Result<(), Refusal> {
        if begin < self.floor {
            return Err(Refusal::TooOld);
        }
        match items.into_iter().any(|item| self.last.get(&item).is_some_and(|&at| at > begin)) {
            true => Err(Refusal::Conflict),
            false => Ok(()),
        }
    }

    /// These rows were committed at this position. Remembers `changes_max` rows at most, each as
    /// often as it was committed, and forgets whole transactions, the oldest first.
    pub(super) fn remember(
        &mut self,
        at: Timestamp,
        items: impl IntoIterator<Item = Item>,
        changes_max: usize,
    ) {
        let items: Vec<Item> = items.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        self.remembered += items.len();
        self.last.extend(items.iter().map(|&item| (item, at)));
        self.committed.push_back((at, items));
        while self.remembered > changes_max {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((at, items)) = self.committed.pop_front() else { return };
        self.floor = at;
        self.remembered -= items.len();
        for item in items {
            if self.last.get(&item) == Some(&at) {
                self.last.remove(&item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::ObjectId;
    use super::*;
    use hihooi_certify::certification::items::RowKey;

    fn item(row: u128) -> Item {
        Item { object: ObjectId(1), row: RowKey(row) }
    }

    #[test]
    fn only_commits_after_the_snapshot_conflict() {
        let mut certifier = Certifier::default();
        certifier.remember(Timestamp(3), [item(1)], 10);
        assert_eq!(certifier.validate(Timestamp(2), [item(2), item(1)]), Err(Refusal::Conflict));
        assert_eq!(certifier.validate(Timestamp(3), [item(1)]), Ok(()), "it is in the snapshot");
        assert_eq!(certifier.validate(Timestamp(0), [item(2)]), Ok(()));
    }

    #[test]
    fn what_is_forgotten_refuses_all_that_it_could_have_refused() {
        let mut certifier = Certifier::default();
        certifier.remember(Timestamp(3), [item(1), item(2)], 3);
        certifier.remember(Timestamp(5), [item(2), item(3)], 3);
        assert_eq!(certifier.validate(Timestamp(2), [item(9)]), Err(Refusal::TooOld));
        assert_eq!(certifier.validate(Timestamp(3), [item(1)]), Ok(()));
        assert_eq!(certifier.validate(Timestamp(4), [item(2)]), Err(Refusal::Conflict));
        assert_eq!(Certifier::new(certifier.checkpoint(Timestamp(5))), certifier);
    }
}
