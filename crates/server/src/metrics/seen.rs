//! What the thread that speaks HTTP asks the relay's, and what it is told.

use tokio::sync::{mpsc, oneshot};

use super::sample::Sample;
use super::table::Metric;

/// Questions that wait for the relay's thread; whoever asks more waits to ask.
const ASKED_MAX: usize = 4;

/// What the relay's thread tells when it is asked.
#[derive(Debug)]
pub(super) struct Seen {
    /// All metrics that are the relay's.
    pub(super) families: Vec<Family>,
    /// Why clients can't be served as they should, if so.
    pub(super) not_ready: Option<&'static str>,
}

/// A metric with its values.
#[derive(Debug)]
pub(super) struct Family {
    /// Which.
    pub(super) metric: &'static Metric,
    /// They.
    pub(super) samples: Vec<Sample>,
}

/// Asks the relay's thread.
#[derive(Debug)]
pub struct Asks(pub(super) mpsc::Sender<oneshot::Sender<Seen>>);

/// Where the relay's thread is asked.
#[derive(Debug)]
pub struct Asked(pub(super) mpsc::Receiver<oneshot::Sender<Seen>>);

/// Connects the thread that speaks HTTP with the relay's.
#[must_use]
pub fn channel() -> (Asks, Asked) {
    let (asks, asked) = mpsc::channel(ASKED_MAX);
    (Asks(asks), Asked(asked))
}
