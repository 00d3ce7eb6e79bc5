//! The members of a group, and how the next view starts when a site has stopped (RSSI paper, appendix C.1.2).
//!
//! A new view is a barrier: all undecided transactions are aborted, and transactions that began before it
//! cannot commit. So no cycle of dependencies crosses it: a later transaction sees everything that earlier ones
//! wrote, hence there is no edge from a later one to an earlier one. Readsets from before the barrier may be
//! forgotten, even those of a site that lost them.

use std::collections::BTreeMap;

use crate::certification::{SiteId, Timestamp};
use crate::gdcp::Decided;

/// A membership and from where on it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Counts views; messages of another are ignored.
    pub number: u64,
    /// The members, in the order of the ring, each with the incarnation of its manager: one that
    /// restarted has lost its readsets and is another.
    pub members: Vec<(SiteId, u64)>,
    /// The last decision before it. Transactions of the view begin here or later.
    pub start: Timestamp,
}

impl View {
    /// The first view of these sites, all in incarnation 0.
    pub fn first(sites: impl IntoIterator<Item = SiteId>) -> View {
        let members = sites.into_iter().map(|site| (site, 0)).collect();
        View { number: 0, members, start: Timestamp(0) }
    }

    /// The members' sites, in the order of the ring.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.members.iter().map(|(site, _)| *site)
    }
}

/// How far a site of a ring had come when its group stopped.
#[derive(Clone, PartialEq, Debug)]
pub struct StopReport {
    /// The site.
    pub site: SiteId,
    /// The view that stopped.
    pub view: u64,
    /// Its last decision.
    pub decided: Timestamp,
    /// Its last decisions: at least those that another site of the view may lack.
    pub recent: Vec<Decided>,
}

/// A new view of a ring, and the decisions that some of its members lack.
#[derive(Clone, PartialEq, Debug)]
pub struct Succession {
    /// The view.
    pub view: View,
    /// The last decisions, up to its start.
    pub decisions: Vec<Decided>,
}

/// The next view of a ring: the site that decided most is the master copy. `reports` must come
/// from sites of the last view that have stopped in it, at least one; a site gives one only
/// once, and whoever calls this numbers views without ever giving a number twice. Every decision
/// that was released anywhere is among those of any one of the reports.
#[must_use]
pub fn succeed(reports: &[StopReport], members: Vec<(SiteId, u64)>) -> Option<Succession> {
    let last = reports.iter().map(|report| report.view).max()?;
    let of_last = reports.iter().filter(|report| report.view == last);
    let start = of_last.clone().map(|report| report.decided).max()?;
    // Whoever has decided at a place has decided the same; who joined late remembers less.
    let all = of_last.flat_map(|report| &report.recent);
    let decisions: BTreeMap<Timestamp, Decided> =
        all.map(|decided| (decided.at, decided.clone())).collect();
    let view = View { number: last + 1, members, start };
    Some(Succession { view, decisions: decisions.into_values().collect() })
}
