//! Applies logged records in an order that is valid at every site: the update application rule (DynaMast paper,
//! section III-A, equation 1), for the commits of other sites and for a site's own, which become visible when
//! they are durable in the log.
//!
//! Keeps I2: what is visible at a site includes everything on which it depends, with no gap in any slot.
//!
//! Departures: the paper promises snapshot isolation, but its rule orders only commits that
//! depend on each other. Two sites may commit unrelated updates at once; a reader at each sees
//! its own site's and not the other's (a long fork), which no order of commits explains.
//! [`Order::Causal`] is the paper's rule and gives that weaker level (parallel snapshot
//! isolation). [`Order::Total`] applies the records of all sites, one's own included, in the
//! order of one shared log: every snapshot is a prefix of it, so it is snapshot isolation. A
//! commit then waits until the site has applied what precedes it in the log.

use std::collections::VecDeque;

use crate::ids::SiteId;
use crate::record::Record;
use crate::vector::{SiteVector, TransactionVector};

/// Most records received ahead of being applicable, for each stream. More are dropped; the shell
/// fetches them again, because [`Refresh::wanted`] stays where it was.
pub const INBOX_MAX: usize = 4096;

/// In which order records become visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// One log for each site, and equation 1 between them: parallel snapshot isolation.
    Causal,
    /// One log for all sites, applied in its order: snapshot isolation.
    #[default]
    Total,
}

/// The update application rule (equation 1): all that the transaction depends on is here, and
/// it is the very next of its own site.
#[must_use]
pub fn may_apply(svv: &SiteVector, tvv: &TransactionVector) -> bool {
    let origin = tvv.origin();
    (0..tvv.sites())
        .map(|k| SiteId(k as u16))
        .all(|k| if k == origin { svv.get(k) + 1 == tvv.get(k) } else { svv.get(k) >= tvv.get(k) })
}

/// Records received in the order of one log.
#[derive(Debug)]
struct Inbox<W> {
    /// The position that must come next, from 1.
    next: u64,
    records: VecDeque<Record<W>>,
}

/// Records received and not yet applied.
#[derive(Debug)]
pub struct Refresh<W> {
    order: Order,
    sites: usize,
    inboxes: Vec<Inbox<W>>,
}

impl<W> Refresh<W> {
    /// Of a site that has applied `applied`, which is `position` of the shared log when there is
    /// one ([`Order::Total`]).
    #[must_use]
    pub fn new(order: Order, applied: &SiteVector, position: u64) -> Refresh<W> {
        let inbox = |done: u64| Inbox { next: done + 1, records: VecDeque::new() };
        let inboxes = match order {
            Order::Causal => {
                (0..applied.sites()).map(|k| inbox(applied.get(SiteId(k as u16)))).collect()
            }
            Order::Total => vec![inbox(position)],
        };
        Refresh { order, sites: applied.sites(), inboxes }
    }

    /// The next position that is wanted of the log that `origin` writes to, from 1.
    #[must_use]
    pub fn wanted(&self, origin: SiteId) -> u64 {
        self.inboxes[self.stream(origin)].next
    }

    /// Takes the record at `position` of the log that its origin writes to. Doubled records,
    /// records behind a gap, and records beyond [`INBOX_MAX`] are dropped.
    pub fn receive(&mut self, position: u64, record: Record<W>) {
        let origin = record.vector.origin();
        if record.vector.sites() != self.sites {
            return;
        }
        let stream = self.stream(origin);
        let inbox = &mut self.inboxes[stream];
        if position == inbox.next && inbox.records.len() < INBOX_MAX {
            inbox.next += 1;
            inbox.records.push_back(record);
        }
    }

    /// Takes out a record that may be applied to `svv` now, of the lowest site first.
    pub fn next(&mut self, svv: &SiteVector) -> Option<Record<W>> {
        let ready = |inbox: &&mut Inbox<W>| {
            inbox.records.front().is_some_and(|head| may_apply(svv, &head.vector))
        };
        self.inboxes.iter_mut().find(ready)?.records.pop_front()
    }

    /// How many records wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inboxes.iter().map(|inbox| inbox.records.len()).sum()
    }

    fn stream(&self, origin: SiteId) -> usize {
        match self.order {
            Order::Causal => origin.index(),
            Order::Total => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TxnId;
    use crate::record::Body;

    fn tvv(begin: &[u64], origin: u16, number: u64) -> TransactionVector {
        TransactionVector::commit(&SiteVector::of(begin), SiteId(origin), number)
    }

    fn record(begin: &[u64], origin: u16, number: u64) -> Record<()> {
        Record {
            vector: tvv(begin, origin, number),
            body: Body::Commit { txn: TxnId(number), writes: () },
        }
    }

    #[test]
    fn equation_1_by_hand() {
        // T2 of the paper's Figure 2: begun at [1, 0, 0] at S3, its first commit.
        let t2 = tvv(&[1, 0, 0], 2, 1);
        assert!(!may_apply(&SiteVector::of(&[0, 0, 0]), &t2), "its dependency T1 is missing");
        assert!(may_apply(&SiteVector::of(&[1, 0, 0]), &t2));
        assert!(may_apply(&SiteVector::of(&[5, 3, 0]), &t2), "more than it needs is fine");
        assert!(!may_apply(&SiteVector::of(&[1, 0, 1]), &t2), "never twice");
        let t3 = tvv(&[1, 0, 1], 2, 2);
        assert!(!may_apply(&SiteVector::of(&[1, 0, 0]), &t3), "no gap in its own site's slot");
    }

    #[test]
    fn a_gap_in_a_stream_is_not_jumped() {
        let mut refresh = Refresh::new(Order::Causal, &SiteVector::zero(2), 0);
        refresh.receive(2, record(&[1, 0], 0, 2));
        assert_eq!((refresh.waiting(), refresh.wanted(SiteId(0))), (0, 1));
        refresh.receive(1, record(&[0, 0], 0, 1));
        refresh.receive(1, record(&[0, 0], 0, 1));
        assert_eq!((refresh.waiting(), refresh.wanted(SiteId(0))), (1, 2));
    }

    #[test]
    fn the_inbox_is_bounded_and_wants_again_what_it_dropped() {
        let mut refresh = Refresh::new(Order::Total, &SiteVector::zero(2), 0);
        for n in 1..=INBOX_MAX as u64 + 5 {
            refresh.receive(n, record(&[0, 0], 0, n));
        }
        assert_eq!(refresh.waiting(), INBOX_MAX);
        assert_eq!(refresh.wanted(SiteId(1)), INBOX_MAX as u64 + 1);
    }

    #[test]
    fn in_total_order_an_unrelated_commit_does_not_overtake() {
        // Both commits are independent. In the shared log S2's is first; whoever gets S1's
        // first must wait, or readers at two sites see a long fork.
        let zero = SiteVector::zero(2);
        let mut total = Refresh::new(Order::Total, &zero, 0);
        total.receive(2, record(&[0, 0], 0, 1));
        assert!(total.next(&zero).is_none());
        let mut causal = Refresh::new(Order::Causal, &zero, 0);
        causal.receive(1, record(&[0, 0], 0, 1));
        assert!(causal.next(&zero).is_some());
    }
}
