//! The master of each partition, as far as the selector knows, and what prevents mastership from moving
//! (DynaMast paper, section V-B: the partition information and its lock).
//!
//! Keeps: older information never replaces newer. The information may be outdated; then a client must try
//! again, but there are never two masters, since sites decide by [`crate::mastership`].

use crate::ids::{PartitionId, SiteId, Term};
use crate::mastership::Homes;
use crate::record::{Change, ChangeKind};

#[derive(Clone, Copy, Debug)]
struct Slot {
    master: SiteId,
    term: Term,
    /// A release is asked for, or done and not yet granted.
    moving: bool,
    released: bool,
    pins: u32,
    claims: u32,
}

/// What the selector knows of all partitions.
#[derive(Debug)]
pub struct Table {
    slots: Vec<Slot>,
}

impl Table {
    /// All at their homes.
    #[must_use]
    pub fn at_homes(sites: usize, partitions: u32, homes: &Homes) -> Table {
        let slot = |p| Slot {
            master: homes.of(PartitionId(p), sites),
            term: Term(0),
            moving: false,
            released: false,
            pins: 0,
            claims: 0,
        };
        Table { slots: (0..partitions).map(slot).collect() }
    }

    /// Speaks of the partition.
    #[must_use]
    pub fn has(&self, partition: PartitionId) -> bool {
        partition.index() < self.slots.len()
    }

    /// Its master, or its last one while it is in between.
    #[must_use]
    pub fn master(&self, partition: PartitionId) -> SiteId {
        self.slots[partition.index()].master
    }

    /// The newest term that is known.
    #[must_use]
    pub fn term(&self, partition: PartitionId) -> Term {
        self.slots[partition.index()].term
    }

    /// It is on its way from one site to another.
    #[must_use]
    pub fn is_moving(&self, partition: PartitionId) -> bool {
        self.slots[partition.index()].moving
    }

    /// A transaction was told to begin where it is.
    #[must_use]
    pub fn is_pinned(&self, partition: PartitionId) -> bool {
        self.slots[partition.index()].pins > 0
    }

    /// One more, or one less, transaction on its way to where they are.
    pub fn pin(&mut self, partitions: &[PartitionId], up: bool) {
        for partition in partitions {
            let pins = &mut self.slots[partition.index()].pins;
            *pins = if up { *pins + 1 } else { pins.saturating_sub(1) };
        }
    }

    /// A request waits for it.
    #[must_use]
    pub fn is_claimed(&self, partition: PartitionId) -> bool {
        self.slots[partition.index()].claims > 0
    }

    /// One more, or one less, request waits for them.
    pub fn claim(&mut self, partitions: &[PartitionId], up: bool) {
        for partition in partitions {
            let claims = &mut self.slots[partition.index()].claims;
            *claims = if up { *claims + 1 } else { claims.saturating_sub(1) };
        }
    }

    /// It starts to move.
    pub fn start(&mut self, partition: PartitionId) {
        self.slots[partition.index()].moving = true;
    }

    /// Takes in a change from the logs or from a site's answer. False when it is not news.
    pub fn observe(&mut self, change: &Change) -> bool {
        let Some(slot) = self.slots.get_mut(change.partition.index()) else { return false };
        if change.order() <= (slot.term, slot.released) {
            return false;
        }
        slot.term = change.term;
        slot.master = change.vector.origin();
        slot.released = matches!(change.kind, ChangeKind::Released { .. });
        slot.moving = slot.released;
        true
    }
}
