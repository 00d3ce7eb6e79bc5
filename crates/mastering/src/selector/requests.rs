//! Requests of update transactions: routed to one site at once, or after mastership was moved there, in the
//! order of their arrival (DynaMast paper, section V-B).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{PartitionId, SiteId};
use crate::selector::{Effect, Move, Refusal, Selector, Stage, message};
use crate::vector::{ClientVector, SiteVector};

/// Most requests that wait for mastership; more are refused as busy.
pub const REQUESTS_MAX: usize = 4096;
/// Most routed requests whose partitions are pinned; further ones are not, and may have to ask
/// again.
pub const PINS_MAX: usize = 65_536;

/// A request to route a transaction, named by the shell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RequestId(pub u64);

/// An update transaction that wants a site.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: RequestId,
    seen: ClientVector,
    /// Sorted, without doubles.
    writes: Vec<PartitionId>,
    pub(super) floor: SiteVector,
    deadline_ms: u64,
    moved: u32,
}

impl Request {
    pub(super) fn new(
        id: RequestId,
        seen: ClientVector,
        writes: Vec<PartitionId>,
        deadline_ms: u64,
        sites: usize,
    ) -> Request {
        Request { id, seen, writes, floor: SiteVector::zero(sites), deadline_ms, moved: 0 }
    }

    pub(super) fn wants(&self, partition: PartitionId) -> bool {
        self.writes.binary_search(&partition).is_ok()
    }
}

/// Partitions that stay where they are because a client was told so.
#[derive(Debug, Default)]
pub(super) struct Pins {
    held: BTreeMap<RequestId, Vec<PartitionId>>,
    /// When each ends, in order; those that ended before are still in it until then.
    ends: VecDeque<(u64, RequestId)>,
}

impl Pins {
    fn add(&mut self, request: RequestId, partitions: Vec<PartitionId>, end_ms: u64) {
        self.held.insert(request, partitions);
        self.ends.push_back((end_ms, request));
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= PINS_MAX
    }

    pub(super) fn expired(&mut self, now_ms: u64) -> Vec<RequestId> {
        let count = self.ends.partition_point(|(end_ms, _)| *end_ms <= now_ms);
        self.ends.drain(..count).map(|(_, request)| request).collect()
    }
}

impl Selector {
    /// Considers all waiting requests again, in their order.
    pub(super) fn reconsider(&mut self, out: &mut Vec<Effect>) {
        if self.recovering || self.waiting.is_empty() {
            return;
        }
        let mut claimed = BTreeSet::new();
        for mut request in std::mem::take(&mut self.waiting) {
            let is_claimed = request.writes.iter().any(|p| claimed.contains(p));
            if self.advance(&mut request, is_claimed, out) {
                self.table.claim(&request.writes, false);
            } else {
                claimed.extend(request.writes.iter().copied());
                self.waiting.push_back(request);
            }
        }
    }

    /// Tries a request that has just come; it waits if it must.
    pub(super) fn arrive(&mut self, mut request: Request, out: &mut Vec<Effect>) {
        let claimed = request.writes.iter().any(|p| self.table.is_claimed(*p));
        if self.waiting.len() >= REQUESTS_MAX {
            return out.push(Effect::Refused { request: request.id, why: Refusal::Busy });
        }
        if !self.advance(&mut request, claimed, out) {
            self.table.claim(&request.writes, true);
            self.waiting.push_back(request);
        }
    }

    /// Takes a request as far as it goes now. True when it is done with: routed or refused.
    pub(super) fn advance(
        &mut self,
        request: &mut Request,
        claimed: bool,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.recovering || request.writes.iter().any(|p| self.table.is_moving(*p)) {
            return false;
        }
        if request.writes.iter().any(|p| !self.up[self.table.master(*p).index()]) {
            out.push(Effect::Refused { request: request.id, why: Refusal::SiteDown });
            return true;
        }
        if let Some(site) = self.single_master(&request.writes) {
            self.send_there(request, site, claimed, out);
            return true;
        }
        if !claimed && !request.writes.iter().any(|p| self.table.is_pinned(*p)) {
            self.bring_together(request, out);
        }
        false
    }

    /// The site that masters all of it.
    fn single_master(&self, writes: &[PartitionId]) -> Option<SiteId> {
        let mut masters = writes.iter().map(|p| self.table.master(*p));
        let first = masters.next()?;
        masters.all(|master| master == first).then_some(first)
    }

    /// Pins nothing that an earlier request waits for, or it might wait for ever.
    fn send_there(
        &mut self,
        request: &Request,
        site: SiteId,
        claimed: bool,
        out: &mut Vec<Effect>,
    ) {
        if !claimed && !self.pins.is_full() {
            self.table.pin(&request.writes, true);
            let end_ms = self.now_ms + self.config.pin_ms;
            self.pins.add(request.id, request.writes.clone(), end_ms);
        }
        let (floor, moved) = (request.floor.clone(), request.moved);
        out.push(Effect::Routed { request: request.id, site, floor, moved });
    }

    /// Algorithm 1: chooses the site and asks, in parallel, for all that is mastered elsewhere.
    fn bring_together(&mut self, request: &mut Request, out: &mut Vec<Effect>) {
        let Some(to) = self.best_site(&request.writes, &request.seen) else { return };
        for partition in &request.writes {
            let from = self.table.master(*partition);
            if from != to {
                let stage = Stage::Releasing { from, term: self.table.term(*partition) };
                let step = Move { to, stage, sent_ms: self.now_ms };
                out.push(message(*partition, &step));
                self.moves.insert(*partition, step);
                self.table.start(*partition);
                request.moved += 1;
            }
        }
    }

    /// Lets the request's partitions move again. True when another request waits for one.
    pub(super) fn unpin(&mut self, request: RequestId) -> bool {
        let Some(partitions) = self.pins.held.remove(&request) else { return false };
        self.table.pin(&partitions, false);
        partitions.iter().any(|p| self.table.is_claimed(*p))
    }

    pub(super) fn expire_requests(&mut self, out: &mut Vec<Effect>) {
        let (now_ms, table) = (self.now_ms, &mut self.table);
        self.waiting.retain(|request| {
            let in_time = now_ms < request.deadline_ms;
            if !in_time {
                table.claim(&request.writes, false);
                out.push(Effect::Refused { request: request.id, why: Refusal::TooLong });
            }
            in_time
        });
    }
}
