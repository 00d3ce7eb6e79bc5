//! Metrics and health checks, over HTTP for whoever watches the manager (`docs/metrics.md`).
//!
//! The relay's thread counts, in cells of its own (`Meters`): no lock, no atomic operation and no look-up for a
//! statement. When it is asked, it adds what it can read at that moment (`gather`), and hands plain values over to
//! another thread, which speaks HTTP (`http`) and writes the text (`text`). So requests, however many and
//! whatever they contain, cost the relay's thread no more than a few looks a second.
//!
//! `table` defines all metrics; the documentation is made from it. Values of labels are from closed lists or from
//! the configuration: what clients choose (roles, databases, application names) is no label (I8).

mod gather;
mod histogram;
mod http;
mod process;
mod table;
mod text;

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::gather::not_ready;
use self::histogram::{Histogram, Spread};
pub use self::http::serve;
pub(crate) use self::process::resident_bytes;
use self::table::Metric;
use crate::relay::{Relay, count};
use hihooi_session::consistency::Consistency;
use hihooi_session::route::Reason;
use hihooi_session::sites::PerSite;

/// Questions that wait for the relay's thread; whoever asks more waits to ask.
const ASKED_MAX: usize = 4;

/// What the relay's thread counts as it works.
#[derive(Debug)]
pub(crate) struct Meters {
    /// When the relay was started.
    started: SystemTime,
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
    took: Histogram,
    /// How long sessions waited for connections.
    waited: Histogram,
    /// Sessions that wait for a connection now.
    waiting: Cell<usize>,
}

/// Numbers of statements by reason and level.
type Statements = [[Cell<u64>; Consistency::ALL.len()]; Reason::ALL.len()];

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
    fn statements(&self, is_replicated: bool) -> &Statements {
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

/// What the relay's thread tells when it is asked.
#[derive(Debug)]
struct Seen {
    /// All metrics that are the relay's.
    families: Vec<Family>,
    /// Why clients can't be served as they should, if so.
    not_ready: Option<&'static str>,
}

/// A metric with its values.
#[derive(Debug)]
struct Family {
    metric: &'static Metric,
    samples: Vec<Sample>,
}

/// A value.
#[derive(Debug)]
struct Sample {
    /// Values of the metric's labels, in their order.
    labels: Vec<Cow<'static, str>>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    /// A gauge, or a counter of seconds; NaN if it isn't known.
    Number(f64),
    /// A counter.
    Count(u64),
    /// A histogram.
    Spread(Spread),
}

/// Asks the relay's thread.
#[derive(Debug)]
pub struct Asks(mpsc::Sender<oneshot::Sender<Seen>>);

/// Where the relay's thread is asked.
#[derive(Debug)]
pub struct Asked(mpsc::Receiver<oneshot::Sender<Seen>>);

/// Connects the thread that speaks HTTP with the relay's.
#[must_use]
pub fn channel() -> (Asks, Asked) {
    let (asks, asked) = mpsc::channel(ASKED_MAX);
    (Asks(asks), Asked(asked))
}

/// Answers what is asked until nobody can ask any more.
pub(crate) async fn answer(relay: Rc<Relay>, mut asked: Asked) {
    while let Some(reply) = asked.0.recv().await {
        // Whoever asked may have given up.
        let _ = reply.send(gather::look(&relay).await);
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
