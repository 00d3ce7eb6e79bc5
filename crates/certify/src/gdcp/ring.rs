//! The order of messages on a ring of sites, after LCR (Guerraoui, Levy, Pochon, Quéma,
//! "Throughput optimal total order broadcast for cluster environments", which RSSI's section 4
//! builds on): every message carries the vector clock of its sender, and a message that has been
//! round the ring is preceded only by messages that everyone has received by then.
//!
//! # Departures
//!
//! LCR orders messages as the last site of the ring receives them. Three messages sent at once by
//! sites 1, 2, 3 of the ring 1 -> 2 -> 3 -> 1 would then be ordered 3, 2, 1 or a rotation of it,
//! and figure 2 of the RSSI paper, which orders them 1, 2, 3, could not happen. Breaking ties of
//! concurrent clocks by position alone is no order at all: it has cycles (test
//! `concurrent_clocks_ordered_by_position_alone_make_a_cycle`). Here messages are ordered by the
//! sum of their clock, then by the sender's position: total, never against causality, and 1, 2, 3
//! in figure 2. What LCR needs of its order holds: who sends after receiving a message sends a
//! larger sum.

use crate::certification::SiteId;

/// A message's place in the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Order {
    /// The sum of its clock.
    pub weight: u64,
    /// Where its sender is on the ring, from 0.
    pub position: usize,
}

/// How many messages of each site the sender had sent or received, its own included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp(pub Box<[u64]>);

/// A site's place on the ring, and its vector clock.
#[derive(Clone, Debug)]
pub struct Ring {
    members: Box<[SiteId]>,
    position: usize,
    clock: Box<[u64]>,
}

impl Ring {
    /// The ring through these sites, each one's successor the next of them. None if `me` is not
    /// one.
    pub fn new(members: impl IntoIterator<Item = SiteId>, me: SiteId) -> Option<Ring> {
        let members: Box<[SiteId]> = members.into_iter().collect();
        let position = members.iter().position(|&site| site == me)?;
        let clock = vec![0; members.len()].into();
        Some(Ring { members, position, clock })
    }

    /// The clock for a message that this site sends now.
    pub fn stamp(&mut self) -> (Order, Stamp) {
        self.clock[self.position] += 1;
        (self.now(), Stamp(self.clock.clone()))
    }

    /// A message of this place and clock has arrived. Whether it is the next one of its sender.
    pub fn receive(&mut self, order: Order, stamp: &Stamp) -> bool {
        let sent = stamp.0.get(order.position).copied();
        match self.clock.get_mut(order.position) {
            Some(known) if Some(*known + 1) == sent => {
                *known += 1;
                true
            }
            _ => false,
        }
    }

    fn now(&self) -> Order {
        Order { weight: self.clock.iter().sum(), position: self.position }
    }

    /// This site.
    #[must_use]
    pub fn site(&self) -> SiteId {
        self.members[self.position]
    }

    /// Whether this site sent the message of this place.
    #[must_use]
    pub fn is_home(&self, order: Order) -> bool {
        order.position == self.position
    }

    /// Whether this site is the last before the home of the message of this place.
    #[must_use]
    pub fn is_before_home(&self, order: Order) -> bool {
        self.next(self.position) == order.position
    }

    /// Whether this site is the one before the one before that home: the last of a circulation
    /// that starts before home.
    #[must_use]
    pub fn is_last_but_one(&self, order: Order) -> bool {
        self.next(self.next(self.position)) == order.position
    }

    /// The next site on the ring.
    #[must_use]
    pub fn successor(&self) -> SiteId {
        self.members[self.next(self.position)]
    }

    /// Whether the ring is of this site alone.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.members.len() == 1
    }

    fn next(&self, position: usize) -> usize {
        (position + 1) % self.members.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(count: u32) -> Vec<SiteId> {
        (0..count).map(SiteId).collect()
    }

    fn ring(count: u32, me: u32) -> Ring {
        Ring::new(sites(count), SiteId(me)).expect("a member")
    }

    #[test]
    fn what_is_sent_after_receiving_comes_later() {
        let (mut a, mut b) = (ring(3, 0), ring(3, 1));
        let (first, stamp) = a.stamp();
        assert!(b.receive(first, &stamp));
        assert!(!b.receive(first, &stamp), "twice");
        assert!(b.stamp().0 > first);
    }

    /// RSSI paper, appendix B.1: three concurrent messages are ordered as their sites.
    #[test]
    fn messages_sent_at_once_are_ordered_by_position() {
        let orders: Vec<Order> = (0..3).map(|me| ring(3, me).stamp().0).collect();
        assert!(orders.is_sorted());
    }

    /// Ring 1 -> 2 -> 3 -> 1: site 3 sends z, site 1 receives it and sends x, site 2 sends y before
    /// it receives anything. z causes x; x and y, y and z are concurrent. By position x before y and
    /// y before z, but z before x.
    #[test]
    fn concurrent_clocks_ordered_by_position_alone_make_a_cycle() {
        let (mut one, mut two, mut three) = (ring(3, 0), ring(3, 1), ring(3, 2));
        let (z, stamp_of_z) = three.stamp();
        assert!(one.receive(z, &stamp_of_z));
        let ((x, stamp_of_x), (y, stamp_of_y)) = (one.stamp(), two.stamp());
        let at_most = |a: &Stamp, b: &Stamp| a.0.iter().zip(&b.0).all(|(a, b)| a <= b);
        let concurrent = |a, b| !at_most(a, b) && !at_most(b, a);
        assert!(at_most(&stamp_of_z, &stamp_of_x));
        assert!(concurrent(&stamp_of_x, &stamp_of_y) && concurrent(&stamp_of_y, &stamp_of_z));
        assert!(x.position < y.position && y.position < z.position);
        assert!(y < z && z < x, "by weight first there is an order");
    }
}
