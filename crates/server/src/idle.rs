//! Which idle server connections are closed: those that were unused for `pool.idle_ms_max`, and, where a server
//! accepts no further connection, those unused for the longest time (I8).

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::pool::{Pool, Pools};
use crate::relay::Relay;

/// Between two looks for unused connections.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(10);

/// Closes what nobody uses, for ever.
pub async fn keep_idle(relay: Rc<Relay>) {
    loop {
        let limit = relay.settings().pool_idle_max();
        sleep(limit.map_or(LOOK_EVERY_MAX, |limit| LOOK_EVERY_MAX.min(limit / 4))).await;
        // It may have been set anew meanwhile.
        if let Some(limit) = relay.settings().pool_idle_max() {
            relay.pools.close_unused(limit);
        }
    }
}

impl Pools {
    /// Closes the idle connection at a pool's site that was unused for the longest, rather one of its own role
    /// or database, which may have bounds of their own; whether there is one.
    pub(crate) fn close_longest_idle(&self, pool: &Pool) -> bool {
        let pools = self.pools.borrow();
        let here = pools.values().filter(|other| other.site() == pool.site());
        let oldest =
            here.filter_map(|other| Some((other.distance(pool), other.idle_since()?, other)));
        let Some((_, _, other)) = oldest.min_by_key(|(distance, since, _)| (*distance, *since))
        else {
            return false;
        };
        let closed = other.take_longest_idle();
        drop(pools);
        closed.into_iter().for_each(|backend| self.discard(backend));
        true
    }

    /// Closes connections that nobody has used for so long, and forgets pools without any.
    fn close_unused(&self, limit: Duration) {
        let mut closing = Vec::new();
        for pool in self.pools.borrow().values() {
            while pool.idle_since().is_some_and(|since| since.elapsed() >= limit) {
                closing.extend(pool.take_longest_idle());
            }
        }
        closing.into_iter().for_each(|backend| self.discard(backend));
        self.pools.borrow_mut().retain(|_, pool| Rc::strong_count(pool) > 1 || pool.held() > 0);
    }
}

impl Pool {
    /// Connections that are idle, in use, or being opened.
    fn held(&self) -> usize {
        self.permits.used() + self.idle.borrow().len()
    }

    /// Since when its longest unused connection is idle.
    fn idle_since(&self) -> Option<Instant> {
        // (A session takes the best fitting one, not the first, so that they are in no order.)
        self.idle.borrow().iter().map(|backend| backend.idle_since).min()
    }

    fn take_longest_idle(&self) -> Option<Box<crate::backend::Backend>> {
        let mut idle = self.idle.borrow_mut();
        let oldest = (0..idle.len()).min_by_key(|&index| idle[index].idle_since)?;
        Some(idle.swap_remove(oldest))
    }

    /// 0 for one of the same role, 1 for one of the same database, 2 for others.
    fn distance(&self, other: &Pool) -> u8 {
        match (self.key.user == other.key.user, self.key.database == other.key.database) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 2,
        }
    }
}
