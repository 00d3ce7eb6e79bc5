//! Stopping the relay: every client gets an error message before its socket closes, as at PostgreSQL's fast
//! shutdown (manual, "Shutting Down the Server"). Sessions that wait for their client end at once. Others get a
//! short time to finish what they run, so that a COMMIT that was sent is answered.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// What runs when the manager stops has so long to end.
const END_MS_MAX: u64 = 1_000;
/// Clients have so long to take what they are told.
const TOLD_MS_MAX: u64 = 500;

/// How far the end has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug, Default)]
enum Phase {
    /// It has not.
    #[default]
    Serving,
    /// Nothing new is begun.
    Ending,
    /// What still runs is cut off.
    Cut,
}

/// Who serves clients, and whether they shall stop.
#[derive(Debug, Default)]
pub struct Stopping {
    phase: Cell<Phase>,
    /// One for each client that is served, at places that are used again.
    serving: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
    ended: Notify,
}

impl Stopping {
    /// A client is served from now on, and is told of the end.
    pub fn enter(&self) -> Place<'_> {
        let mut serving = self.serving.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or(serving.len());
        if index == serving.len() {
            serving.push(None);
        }
        Place { stopping: self, index }
    }

    /// Whether the end has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.phase.get() != Phase::Serving
    }

    fn stops(&self, is_waiting: &Cell<bool>) -> bool {
        match self.phase.get() {
            Phase::Serving => false,
            Phase::Ending => is_waiting.get(),
            Phase::Cut => true,
        }
    }

    /// Ends all; returns when the clients were told, within `END_MS_MAX` + `TOLD_MS_MAX`.
    pub async fn stop(&self) {
        for (phase, limit) in [(Phase::Ending, END_MS_MAX), (Phase::Cut, TOLD_MS_MAX)] {
            self.phase.set(phase);
            self.wake_all();
            // Those that are late are cut off, or have their sockets closed.
            let _ = timeout(Duration::from_millis(limit), self.all_ended()).await;
        }
    }

    /// Has everybody who is served look again at what they wait for.
    pub fn wake_all(&self) {
        self.serving.borrow().iter().flatten().for_each(Waker::wake_by_ref);
    }

    async fn all_ended(&self) {
        while self.serving.borrow().len() > self.free.borrow().len() {
            self.ended.notified().await;
        }
    }
}

/// A client's place among those that are served, until it has been told all.
#[derive(Debug)]
pub struct Place<'a> {
    stopping: &'a Stopping,
    index: usize,
}

impl Place<'_> {
    /// Serves a client until it leaves, or until the manager stops: at once while `is_waiting`,
    /// else when the time is over; or until it is killed. `None` then. Pinned by the caller: by value, every idle client
    /// would hold what serves it twice, as an argument and as a variable.
    pub async fn unless_stopped<T>(
        &self,
        is_waiting: &Cell<bool>,
        is_killed: &Cell<bool>,
        mut serve: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        poll_fn(|cx| {
            if self.stopping.stops(is_waiting) || is_killed.get() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(end) = serve.as_mut().poll(cx) {
                return Poll::Ready(Some(end));
            }
            if self.stopping.stops(is_waiting) {
                return Poll::Ready(None);
            }
            self.wakes(cx.waker());
            Poll::Pending
        })
        .await
    }

    fn wakes(&self, waker: &Waker) {
        let mut serving = self.stopping.serving.borrow_mut();
        let known = &mut serving[self.index];
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.stopping.serving.borrow_mut()[self.index] = None;
        self.stopping.free.borrow_mut().push(self.index);
        self.stopping.ended.notify_one();
    }
}
