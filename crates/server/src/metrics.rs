//! Metrics and health checks, over HTTP for whoever watches the manager (`docs/metrics.md`).
//!
//! The relay's thread counts, in cells of its own (`crate::meters`): no lock, no atomic operation and no look-up for a
//! statement. When it is asked, it adds what it can read at that moment (`gather`), and hands plain values over to
//! another thread, which speaks HTTP (`http`) and writes the text (`text`). So requests, however many and
//! whatever they contain, cost the relay's thread no more than a few looks a second.
//!
//! `table` defines all metrics; the documentation is made from it. Values of labels are from closed lists or from
//! the configuration: what clients choose (roles, databases, application names) is no label (I8).

mod gather;
mod http;
mod process;
mod sample;
mod seen;
mod table;
mod text;

use std::rc::Rc;

use self::gather::Moment;
pub(crate) use self::gather::not_ready;
pub use self::http::serve;
pub(crate) use self::process::resident_bytes;
pub use self::seen::{Asked, Asks, channel};
use self::seen::{Family, Seen};
use self::table::{From, METRICS, Metric};
use crate::relay::Relay;

/// Answers what is asked until nobody can ask any more.
pub(crate) async fn answer(relay: Rc<Relay>, mut asked: Asked) {
    while let Some(reply) = asked.0.recv().await {
        // Whoever asked may have given up.
        let _ = reply.send(look(&relay).await);
    }
}

/// Looks at the relay.
async fn look(relay: &Relay) -> Seen {
    let moment = Moment::of(relay).await;
    let family = |metric: &'static Metric| match metric.from {
        From::Relay(samples) => Some(Family { metric, samples: samples(&moment) }),
        From::Process(_) => None,
    };
    Seen { families: METRICS.iter().filter_map(family).collect(), not_ready: not_ready(relay) }
}
