//! Which partitions a site masters, and how mastership moves (DynaMast paper, section III-B, Algorithm 1).
//!
//! Keeps: at most one site may write a partition at any time. A term is released once, by its one master, for
//! one named site; only that site begins the next term, once. So there are never two masters, even if a message
//! is late, duplicated, or from a selector that was thought to have failed.
//!
//! Departures: a site refuses an update transaction whose partitions it does not master when it begins. In the
//! paper the selector's lock is all that keeps a client, told of a site, from arriving there after the next
//! release. From the moment a release is requested, new writers of the partition are refused; otherwise a busy
//! partition could never be released.

use std::collections::BTreeMap;

use crate::ids::{PartitionId, SiteId, Term};
use crate::record::{Change, ChangeKind};

/// Where partitions are mastered before anything moved. Sites and selector must have the same, and
/// name only sites that exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Homes {
    /// All at one site.
    All(SiteId),
    /// One after the other, over all sites in turn.
    RoundRobin,
    /// Given for each partition; those beyond the list are at the first site.
    Given(Vec<SiteId>),
}

impl Homes {
    /// The first master of a partition in a cluster of `sites` sites.
    #[must_use]
    pub fn of(&self, partition: PartitionId, sites: usize) -> SiteId {
        match self {
            Homes::All(site) => *site,
            Homes::RoundRobin => SiteId((partition.index() % sites) as u16),
            Homes::Given(list) => list.get(partition.index()).copied().unwrap_or_default(),
        }
    }
}

/// What a site has to do with a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    Elsewhere,
    Master,
    /// Asked to release it; running writers come first.
    Releasing {
        to: SiteId,
    },
    /// The release is on its way to the log.
    ReleaseLogging,
    /// The grant is on its way to the log.
    GrantLogging,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    term: Term,
    hold: Hold,
    writers: u32,
}

/// The answer to a request to release or take a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Write it to the log now.
    Log,
    /// In hand, or not to be answered yet: ask again later.
    Later,
    /// It is past: this is the newest that is known here.
    Known(Change),
}

/// One site's view of mastership.
#[derive(Debug)]
pub struct Mastership {
    me: SiteId,
    /// One for each partition: the bound of everything here.
    slots: Vec<Slot>,
    /// The newest change of each partition that ever changed.
    newest: BTreeMap<PartitionId, Change>,
}

impl Mastership {
    /// Before anything moved: `partitions` partitions at their homes.
    #[must_use]
    pub fn at_homes(me: SiteId, sites: usize, partitions: u32, homes: &Homes) -> Mastership {
        let slot = |p| {
            let home = homes.of(PartitionId(p), sites) == me;
            let hold = if home { Hold::Master } else { Hold::Elsewhere };
            Slot { term: Term(0), hold, writers: 0 }
        };
        Mastership { me, slots: (0..partitions).map(slot).collect(), newest: BTreeMap::new() }
    }

    /// New writers of the partition may begin here.
    #[must_use]
    pub fn may_write(&self, partition: PartitionId) -> bool {
        self.slots.get(partition.index()).is_some_and(|slot| slot.hold == Hold::Master)
    }

    /// Holds the right to write it, though perhaps no longer for new writers.
    #[must_use]
    pub fn is_master(&self, partition: PartitionId) -> bool {
        let held = |slot: &Slot| !matches!(slot.hold, Hold::Elsewhere | Hold::GrantLogging);
        self.slots.get(partition.index()).is_some_and(held)
    }

    /// The newest term of the partition that is known here.
    #[must_use]
    pub fn term(&self, partition: PartitionId) -> Option<Term> {
        self.slots.get(partition.index()).map(|slot| slot.term)
    }

    /// A writer of these partitions begins; all of them `may_write`.
    pub fn enter(&mut self, partitions: &[PartitionId]) {
        for partition in partitions {
            self.slots[partition.index()].writers += 1;
        }
    }

    /// A writer of these partitions ended. Gives those whose release is due now, and where to.
    pub fn leave(&mut self, partitions: &[PartitionId]) -> Vec<(PartitionId, Term, SiteId)> {
        let mut due = Vec::new();
        for partition in partitions {
            let slot = &mut self.slots[partition.index()];
            slot.writers = slot.writers.checked_sub(1).expect("a writer that left had entered");
            if let (Hold::Releasing { to }, 0) = (slot.hold, slot.writers) {
                slot.hold = Hold::ReleaseLogging;
                due.push((*partition, slot.term, to));
            }
        }
        due
    }

    /// The selector asks to give the partition to `to`, ending `term`.
    pub fn release(&mut self, partition: PartitionId, term: Term, to: SiteId) -> Answer {
        let Some(slot) = self.slots.get_mut(partition.index()) else { return Answer::Later };
        if slot.hold != Hold::Master || slot.term != term {
            return self.known_since(partition, (term, true));
        }
        if to == self.me {
            return Answer::Later;
        }
        if slot.writers > 0 {
            slot.hold = Hold::Releasing { to };
            return Answer::Later;
        }
        slot.hold = Hold::ReleaseLogging;
        Answer::Log
    }

    /// The selector asks to take the partition that was released here; the caller has applied
    /// that release.
    pub fn grant(&mut self, release: &Change) -> Answer {
        if release.kind != (ChangeKind::Released { to: self.me }) {
            return Answer::Later;
        }
        let Some(slot) = self.slots.get_mut(release.partition.index()) else {
            return Answer::Later;
        };
        if slot.hold != Hold::Elsewhere || slot.term != release.term {
            return self.known_since(release.partition, (release.term.next(), false));
        }
        slot.hold = Hold::GrantLogging;
        Answer::Log
    }

    /// A change that stands in some site's log has been applied here.
    pub fn observe(&mut self, change: &Change) {
        let Some(slot) = self.slots.get_mut(change.partition.index()) else { return };
        let newest = self.newest.get(&change.partition).map(Change::order);
        if newest.is_some_and(|newest| newest >= change.order()) {
            return;
        }
        slot.term = change.term;
        let mine = change.vector.origin() == self.me;
        let granted = change.kind == ChangeKind::Granted;
        slot.hold = if mine && granted { Hold::Master } else { Hold::Elsewhere };
        self.newest.insert(change.partition, change.clone());
    }

    /// The newest change of the partition, when it is of this order or newer.
    fn known_since(&self, partition: PartitionId, order: (Term, bool)) -> Answer {
        match self.newest.get(&partition) {
            Some(change) if change.order() >= order => Answer::Known(change.clone()),
            _ => Answer::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{SiteVector, TransactionVector};

    const P: PartitionId = PartitionId(0);

    fn mastership(me: u16) -> Mastership {
        Mastership::at_homes(SiteId(me), 2, 4, &Homes::All(SiteId(0)))
    }

    fn change(origin: u16, number: u64, term: u64, kind: ChangeKind) -> Change {
        let vector = TransactionVector::commit(&SiteVector::zero(2), SiteId(origin), number);
        Change { partition: P, term: Term(term), kind, vector }
    }

    fn released(term: u64, to: u16) -> Change {
        change(0, 1, term, ChangeKind::Released { to: SiteId(to) })
    }

    #[test]
    fn a_release_waits_for_running_writers_and_refuses_new_ones() {
        // DynaMast III-B: a release waits for ongoing transactions that write the data.
        let mut site = mastership(0);
        site.enter(&[P]);
        site.enter(&[P]);
        assert_eq!(site.release(P, Term(0), SiteId(1)), Answer::Later);
        assert!(!site.may_write(P));
        assert_eq!(site.leave(&[P]), []);
        assert!(site.is_master(P));
        assert_eq!(site.leave(&[P]), [(P, Term(0), SiteId(1))]);
    }

    #[test]
    fn a_term_is_released_once() {
        let mut site = mastership(0);
        assert_eq!(site.release(P, Term(0), SiteId(1)), Answer::Log);
        assert_eq!(site.release(P, Term(0), SiteId(1)), Answer::Later, "not durable yet");
        site.observe(&released(0, 1));
        assert!(!site.is_master(P));
        assert_eq!(site.release(P, Term(0), SiteId(1)), Answer::Known(released(0, 1)));
    }

    #[test]
    fn only_the_named_site_takes_it_and_only_once() {
        let mut other = mastership(1);
        other.observe(&released(0, 0));
        assert_eq!(other.grant(&released(0, 0)), Answer::Later, "not for this site");
        let mut site = mastership(1);
        site.observe(&released(0, 1));
        assert_eq!(site.grant(&released(0, 1)), Answer::Log);
        assert_eq!(site.grant(&released(0, 1)), Answer::Later);
        assert!(!site.is_master(P), "not before the grant is durable");
        let granted = change(1, 1, 1, ChangeKind::Granted);
        site.observe(&granted);
        assert!(site.may_write(P));
        assert_eq!(site.grant(&released(0, 1)), Answer::Known(granted), "asked again: answered");
    }

    #[test]
    fn a_late_grant_of_an_old_term_makes_no_second_master() {
        let mut site = mastership(1);
        site.observe(&released(0, 1));
        site.observe(&change(1, 1, 1, ChangeKind::Granted));
        let back = change(1, 2, 1, ChangeKind::Released { to: SiteId(0) });
        site.observe(&back);
        assert_eq!(site.grant(&released(0, 1)), Answer::Known(back));
        assert!(!site.is_master(P));
    }

    #[test]
    fn a_late_release_of_an_old_term_takes_nothing_away() {
        let mut site = mastership(0);
        site.observe(&released(0, 1));
        site.observe(&change(1, 1, 1, ChangeKind::Granted));
        site.observe(&change(1, 2, 1, ChangeKind::Released { to: SiteId(0) }));
        let granted = change(0, 2, 2, ChangeKind::Granted);
        site.observe(&granted);
        assert_eq!(site.release(P, Term(0), SiteId(1)), Answer::Known(granted));
        assert!(site.may_write(P));
    }

    #[test]
    fn what_is_asked_of_unknown_partitions_or_of_nobody_changes_nothing() {
        let mut site = mastership(0);
        assert_eq!(site.release(PartitionId(99), Term(0), SiteId(1)), Answer::Later);
        assert_eq!(site.release(P, Term(0), SiteId(0)), Answer::Later, "to itself");
        assert!(site.may_write(P) && !site.may_write(PartitionId(99)));
    }
}
