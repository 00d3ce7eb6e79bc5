//! What the relay's thread counts as it works, in cells of its own: no lock, no atomic operation and no look-up for a
//! statement.

pub(crate) mod histogram;

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use hihooi_session::consistency::Consistency;
use hihooi_session::route::Reason;
use hihooi_session::sites::PerSite;

use self::histogram::Histogram;

/// Counters of a site, for SHOW STATS.
#[derive(Debug, Default)]
pub struct Counters {
    /// Statements that run there now.
    pub active: Cell<usize>,
    /// Units that read.
    pub reads: Cell<u64>,
    /// Units that may write.
    pub writes: Cell<u64>,
    /// Commits with something written.
    pub commits: Cell<u64>,
    /// Units that failed.
    pub errors: Cell<u64>,
    /// Writes that were taken for reads and refused by a replica.
    pub misjudged: Cell<u64>,
    /// Answers of replicas that were discarded.
    pub discarded: Cell<u64>,
}

/// Adds one.
pub fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// What is counted for metrics only.
#[derive(Debug)]
pub(crate) struct Meters {
    /// When the relay was started.
    pub(crate) started: SystemTime,
    /// Sessions that were opened.
    pub(crate) sessions: Cell<u64>,
    /// What is counted by site.
    pub(crate) sites: PerSite<SiteMeters>,
}

/// What is counted of a site.
#[derive(Debug, Default)]
pub(crate) struct SiteMeters {
    /// Statements of the replicated database, and of all others.
    statements: [Statements; 2],
    /// How long statements took.
    pub(crate) took: Histogram,
    /// How long sessions waited for connections.
    pub(crate) waited: Histogram,
    /// Sessions that wait for a connection now.
    pub(crate) waiting: Cell<usize>,
}

/// Numbers of statements by reason and level.
pub(crate) type Statements = [[Cell<u64>; Consistency::ALL.len()]; Reason::ALL.len()];

impl Meters {
    /// Meters at zero, for these sites.
    pub(crate) fn new<T>(sites: &PerSite<T>) -> Meters {
        Meters {
            started: SystemTime::now(),
            sessions: Cell::default(),
            sites: sites.map(|_| SiteMeters::default()),
        }
    }
}

impl SiteMeters {
    /// A statement has run.
    pub(crate) fn ran(
        &self,
        is_replicated: bool,
        reason: Reason,
        level: Consistency,
        took: Duration,
    ) {
        count(&self.statements(is_replicated)[reason as usize][level as usize]);
        self.took.add(took);
    }

    /// The statements of the replicated database, or of all others.
    pub(crate) fn statements(&self, is_replicated: bool) -> &Statements {
        &self.statements[usize::from(!is_replicated)]
    }

    /// A session got a connection after so long.
    pub(crate) fn leased(&self, waited: Duration) {
        self.waited.add(waited);
    }

    /// A session waits for a connection as long as this lives.
    pub(crate) fn waits(&self) -> Waits<'_> {
        self.waiting.set(self.waiting.get() + 1);
        Waits(&self.waiting)
    }
}

/// Counts a session as waiting.
#[derive(Debug)]
pub(crate) struct Waits<'a>(&'a Cell<usize>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use hihooi_session::sites::SiteId;

    use super::*;

    /// Each has a place of its own.
    #[test]
    fn statements_are_counted_by_database_site_reason_and_level() {
        let meters = Meters::new(&PerSite { primary: (), replicas: vec![(), ()] });
        let combinations = || {
            let levels = |reason| Consistency::ALL.into_iter().map(move |level| (reason, level));
            Reason::ALL.into_iter().flat_map(levels)
        };
        let site = &meters.sites[SiteId::Replica(1)];
        for (times, (reason, level)) in combinations().enumerate() {
            (0..times).for_each(|_| site.ran(true, reason, level, Duration::ZERO));
        }
        let count = |site: &SiteMeters, is_replicated, (reason, level)| {
            site.statements(is_replicated)[reason as usize][level as usize].get()
        };
        for (times, combination) in combinations().enumerate() {
            assert_eq!(count(site, true, combination), times as u64, "{combination:?}");
            assert_eq!(count(site, false, combination), 0);
            assert_eq!(count(&meters.sites.primary, true, combination), 0);
        }
    }

    #[test]
    fn who_gives_up_waiting_waits_no_more() {
        let meters = SiteMeters::default();
        let (first, second) = (meters.waits(), meters.waits());
        assert_eq!(meters.waiting.get(), 2);
        drop(first);
        assert_eq!(meters.waiting.get(), 1);
        drop(second);
        assert_eq!(meters.waiting.get(), 0);
    }
}
