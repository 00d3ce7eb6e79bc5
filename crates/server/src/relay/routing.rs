//! Where a read runs: at a replica that has what the read must see, or on the primary (Hihooi section 5; I3). A read
//! waits for a replica if that pays.

use std::sync::Arc;
use std::time::Duration;

use hihooi_postgres::site::Replica;
use hihooi_replication::freshness::{Need, WriteId};
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::Items;
use hihooi_replication::primary_equivalent::Dispatched;
use hihooi_replication::watermark::Watermark;
use hihooi_session::balance::{Candidate, Choice};
use hihooi_session::consistency::Consistency;
use hihooi_session::events::ReadRequest;
use hihooi_session::performance::Admission;
use hihooi_session::route::{Reason, Route};
use hihooi_session::sites::SiteId;
use tracing::warn;

use super::{OwnPools, Relay};
use crate::exports::Exported;

/// No snapshot is asked for at a replica that is more entries behind another: it would take too long to come there.
const NEAR_ENTRIES: u64 = 256;

/// What was known when no replica was fresh enough for a read.
pub struct Undecided {
    need: Need,
    commits: u64,
}

impl Relay {
    /// A route for a read that any fresh replica may serve, asked for at `now`, unless it may have to wait for one. The
    /// watermark is the session's.
    ///
    /// # Errors
    /// No replica is fresh enough: see [`Relay::route_later`].
    pub fn route_at_once(
        &self,
        read: &ReadRequest<'_>,
        watermark: &mut Option<Watermark>,
        pools: &OwnPools,
        now: Duration,
    ) -> Result<Route, Undecided> {
        let must_see = read.consistency.must_see(read.items);
        let (need, commits) = {
            let freshness = self.freshness.borrow();
            let need = match read.consistency {
                Consistency::Session => {
                    watermark.get_or_insert_with(|| Watermark::of_all(&freshness)).need(&freshness)
                }
                _ => freshness.need(must_see),
            };
            (need, freshness.last_commits().commits())
        };
        let route = match self.choose(&need, read, pools, now) {
            // What commits now may show itself before the snapshot is taken, as it did.
            Choice::Replica(_) if is_checked_snapshot(read) && read.is_again => None,
            Choice::Replica(candidate) => {
                let sent = self.replicas[candidate.number].sent();
                Some(found(candidate, &need, dispatched(read, commits, sent), Reason::Fresh))
            }
            Choice::NoReplica => Some(Route::primary(self.why_none(read))),
            Choice::NotFresh => None,
        };
        let route = route.map(|route| Route { class: read.items.class(), ..route });
        route.ok_or(Undecided { need, commits })
    }

    /// The same when no replica was fresh enough: waits for one if that pays.
    pub async fn route_later(
        &self,
        read: ReadRequest<'_>,
        undecided: Undecided,
        pools: &OwnPools,
    ) -> Route {
        Route { class: read.items.class(), ..self.wait_if_it_pays(read, undecided, pools).await }
    }

    async fn wait_if_it_pays(
        &self,
        read: ReadRequest<'_>,
        Undecided { mut need, commits }: Undecided,
        pools: &OwnPools,
    ) -> Route {
        let must_see = read.consistency.must_see(read.items);
        let decider = Some(self.freshness.borrow().decider(must_see));
        if is_checked_snapshot(&read) {
            let limit = Duration::from_millis(read.wait_ms);
            let exported = self.route_to_exported(&read, pools);
            if let Ok(Some(route)) = tokio::time::timeout(limit, exported).await {
                return Route { decider, ..route };
            }
            return Route { decider, ..Route::primary(Reason::NotFresh) };
        }
        let pays = read.takes_snapshot
            || read.consistency.always_waits()
            || self.costs.borrow_mut().expected_us(read.statement) > self.lag_us.get();
        if pays {
            // Whichever it will be.
            let sent = self.replicas.iter().map(|replica| replica.sent()).min().unwrap_or_default();
            if let Some(candidate) = self.wait_for_replica(&mut need, &read, pools).await {
                let dispatched = dispatched(&read, commits, sent);
                let found = found(candidate, &need, dispatched, Reason::Waited);
                return Route { decider, ..found };
            }
        }
        let needed = need.unresolved.is_empty().then_some(need.tsid);
        Route { needed, decider, ..Route::primary(Reason::NotFresh) }
    }

    /// At a replica, with a snapshot that shows what the primary showed at one moment since the read came.
    async fn route_to_exported(&self, read: &ReadRequest<'_>, pools: &OwnPools) -> Option<Route> {
        let catalog_version = self.catalog_version();
        let ahead = self.replicas.iter().filter(|replica| replica.state().is_readable());
        let ahead = ahead.map(|replica| replica.applied()).max()?;
        let near = Tsid(ahead.0.saturating_sub(NEAR_ENTRIES));
        let near = Need { tsid: near, unresolved: Vec::new() };
        let (candidate, Exported { prefix, name }) = loop {
            let Choice::Replica(candidate) = self.choose(&near, read, pools, self.now()) else {
                return None;
            };
            if let Some(exported) = self.exports[candidate.number].take().await {
                break (candidate, exported);
            }
        };
        // What came meanwhile may name types otherwise than the read does.
        if self.catalog_version() != catalog_version {
            return None;
        }
        let candidate = Candidate { applied: prefix, ..candidate };
        let need = Need { tsid: prefix, unresolved: Vec::new() };
        Some(Route { snapshot: Some(name), ..found(candidate, &need, None, Reason::Waited) })
    }

    fn choose(
        &self,
        need: &Need,
        read: &ReadRequest<'_>,
        pools: &OwnPools,
        now: Duration,
    ) -> Choice {
        let everywhere = self.shown_everywhere();
        // It may have to come to where the primary is.
        let must_apply = read.takes_snapshot && read.consistency.is_checked_snapshot();
        let reads = to_follow(read);
        let candidates = self.replicas.iter().enumerate().map(|(number, replica)| {
            let site = SiteId::Replica(number);
            let pool = pools[site].as_deref();
            let admission =
                pool.map_or(Admission::Full, |pool| pool.refusals.borrow().admission(now));
            let is_full = pool.is_some_and(|pool| self.pools.is_full(pool));
            Candidate {
                number,
                applied: replica.applied(),
                // Before it is asked what it lacks: what is set aside then is noticed later.
                set_aside_changes: replica.set_aside_changes(),
                is_readable: serves(replica, &everywhere),
                is_barred: read.not.contains(&site)
                    || replica.lacks(reads)
                    || must_apply && !replica.state().applies()
                    || admission == Admission::Nothing
                    || read.is_beside && is_full
                    || read.own_types && self.objects_at(site).is_none(),
                is_full,
            }
        });
        self.turn.set(self.turn.get().wrapping_add(1));
        let mut balance = self.balance.borrow_mut();
        let choice = balance.choose(candidates, need, read.consistency, now);
        if let Some(number) = balance.take_suspect() {
            self.suspected.replicas[number].notify_one();
        }
        if let Choice::Replica(candidate) = choice
            && let Some(pool) = &pools[SiteId::Replica(candidate.number)]
        {
            pool.refusals.borrow_mut().tried(now, balance.jitter());
        }
        choice
    }

    /// Why no replica can be chosen for a read.
    fn why_none(&self, read: &ReadRequest<'_>) -> Reason {
        let lacks = |replica: &Arc<Replica>| {
            replica.state().is_readable() && replica.lacks(to_follow(read))
        };
        match self.replicas.iter().any(lacks) {
            true => Reason::SetAside,
            // There may be some whose objects aren't known.
            false if read.own_types => Reason::Unsafe,
            false => Reason::NoReplica,
        }
    }

    /// Whether the answer of a replica may show two transactions in another order than the primary did.
    pub fn may_be_forked(&self, route: &Route, items: &Items) -> bool {
        let Some((dispatched, replica)) = route.dispatched.zip(self.replica(route.site)) else {
            return false;
        };
        self.freshness.borrow().last_commits().may_be_forked(items, dispatched, replica.sent())
    }

    /// Whether a replica still has what a route to it was chosen for.
    #[must_use]
    pub fn still_serves(&self, route: &Route) -> bool {
        let Some(replica) = self.replica(route.site) else { return false };
        let went_back = |applied: Tsid| replica.applied() < applied;
        serves(replica, &self.shown_everywhere())
            && !route.applied.is_some_and(went_back)
            && !self.is_void(route)
    }

    /// Whether a replica set tables aside since a route to it was found: it may show one as it was, beside others as they
    /// are.
    #[must_use]
    pub fn is_void(&self, route: &Route) -> bool {
        let set_aside_changes =
            self.replica(route.site).map_or(0, |replica| replica.set_aside_changes());
        set_aside_changes != route.set_aside_changes
    }

    /// What every read must show, whatever its level.
    fn shown_everywhere(&self) -> Need {
        self.everywhere.borrow_mut().need(&self.freshness.borrow())
    }

    /// Whether a replica that could be read is not, since it doesn't show a commit at the level `sync` yet.
    #[must_use]
    pub fn is_late(&self, replica: &Replica) -> bool {
        replica.state().is_readable() && !serves(replica, &self.shown_everywhere())
    }

    /// Waits until every replica that serves shows a commit, at most for `sync_timeout_ms`. From then on every read shows
    /// it: a replica that is late serves none until it does.
    pub async fn show_everywhere(&self, write: WriteId) {
        let mut written = Watermark::default();
        written.wrote(write, &self.freshness.borrow());
        let before = self.shown_everywhere();
        let limit = Duration::from_millis(self.settings().sync_timeout_ms);
        let shown = self.until_shown(&mut written, &before);
        if let Ok(shown) = tokio::time::timeout(limit, shown).await {
            return self.everywhere.borrow_mut().saw(shown);
        }
        self.everywhere.borrow_mut().wrote(write, &self.freshness.borrow());
        let late = self.replicas.iter().filter(|replica| serves(replica, &before));
        for replica in late.filter(|replica| self.is_late(replica)) {
            let site = &replica.site.name;
            warn!(site, "it doesn't show a commit at level sync in time: not read until it does");
        }
    }

    /// Waits until the replicas that show what they had to before show this, too; up to where that is.
    async fn until_shown(&self, written: &mut Watermark, before: &Need) -> Tsid {
        loop {
            let index_changed = self.changed.notified();
            let mut progress: Vec<_> =
                self.replicas.iter().map(|replica| replica.progress()).collect();
            let need = written.need(&self.freshness.borrow());
            let awaited = self.replicas.iter().filter(|replica| {
                replica.state().applies() && serves(replica, before) && !serves(replica, &need)
            });
            if need.unresolved.is_empty() && awaited.count() == 0 {
                return need.tsid;
            }
            let any = progress.iter_mut().map(|receiver| Box::pin(receiver.changed()));
            tokio::select! {
                () = index_changed => {}
                _ = futures_util::future::select_all(any) => {}
            }
        }
    }

    /// Whether any replica's prefix may grow.
    fn any_applies(&self) -> bool {
        self.replicas.iter().any(|replica| replica.state().applies())
    }

    async fn wait_for_replica(
        &self,
        need: &mut Need,
        read: &ReadRequest<'_>,
        pools: &OwnPools,
    ) -> Option<Candidate> {
        let until = tokio::time::Instant::now() + Duration::from_millis(read.wait_ms);
        let must_see = read.consistency.must_see(read.items);
        let catalog_version = self.catalog_version();
        loop {
            let index_changed = self.changed.notified();
            let mut progress: Vec<_> =
                self.replicas.iter().map(|replica| replica.progress()).collect();
            // What comes now may name rows otherwise than the read does.
            if self.catalog_version() != catalog_version {
                return None;
            }
            self.freshness.borrow().refresh(need, must_see);
            match self.choose(need, read, pools, self.now()) {
                Choice::Replica(candidate) => return Some(candidate),
                Choice::NoReplica => return None,
                Choice::NotFresh if need.unresolved.is_empty() && !self.any_applies() => {
                    return None;
                }
                Choice::NotFresh => {}
            }
            let any = progress.iter_mut().map(|receiver| Box::pin(receiver.changed()));
            tokio::select! {
                () = index_changed => {}
                _ = futures_util::future::select_all(any) => {}
                () = tokio::time::sleep_until(until) => return None,
            }
        }
    }
}

/// Of what a replica must have all rows to serve a read: what a transaction will read from its snapshot isn't known yet.
fn to_follow<'a>(read: &ReadRequest<'a>) -> &'a Items {
    if read.takes_snapshot { &Items::Everything } else { read.items }
}

/// Whether a snapshot is only taken if it shows no two transactions in another order than the primary did.
fn is_checked_snapshot(read: &ReadRequest<'_>) -> bool {
    read.takes_snapshot && read.consistency.is_checked_snapshot()
}

/// What tells later whether a read's answer shows two transactions in another order, if that is to be told.
fn dispatched(read: &ReadRequest<'_>, commits: u64, sent: Tsid) -> Option<Dispatched> {
    let is_checked = is_checked_snapshot(read) || read.consistency.is_checked(read.items);
    is_checked.then_some(Dispatched { commits, sent })
}

/// Whether a replica shows what every read must show, and may be read.
fn serves(replica: &Replica, everywhere: &Need) -> bool {
    let shows = everywhere.unresolved.is_empty() && replica.applied() >= everywhere.tsid;
    shows && replica.state().is_readable()
}

fn found(
    candidate: Candidate,
    need: &Need,
    dispatched: Option<Dispatched>,
    reason: Reason,
) -> Route {
    Route {
        site: SiteId::Replica(candidate.number),
        needed: Some(need.tsid),
        applied: Some(candidate.applied),
        set_aside_changes: candidate.set_aside_changes,
        class: None,
        decider: None,
        dispatched,
        snapshot: None,
        reason,
    }
}
