//! How many connections all pools together have at a site: a pool is for one role and one database, but a
//! server limits the total (I8). A session that finds no place waits, first come, first served.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::pool::Pool;

/// Of a server's connections, so many are left to the manager's own and to whoever connects there directly,
/// but not more than half of them.
const LEFT_TO_OTHERS: usize = 20;

/// The places for connections at one site.
#[derive(Debug)]
pub(crate) struct Room {
    bound: Cell<usize>,
    taken: Cell<usize>,
    waiting: RefCell<VecDeque<Waiting>>,
}

/// Room for one connection, until it is dropped.
#[derive(Debug)]
pub struct Place(Rc<Room>);

/// What whoever waits for a place is given.
#[derive(Debug)]
pub(crate) enum Turn {
    Place(Place),
    /// A connection of its own pool is idle now.
    Idle,
}

#[derive(Debug)]
struct Waiting {
    pool: Rc<Pool>,
    gives: oneshot::Sender<Turn>,
}

impl Room {
    /// As long as nothing is known of the server there is room for any.
    pub(crate) fn new() -> Rc<Room> {
        let (bound, taken, waiting) = (Cell::new(usize::MAX), Cell::default(), RefCell::default());
        Rc::new(Room { bound, taken, waiting })
    }

    /// How many connections the pools may have together.
    pub(crate) fn bound(&self) -> usize {
        self.bound.get()
    }

    /// Notes how many connections the server takes from roles that are no superusers.
    pub(crate) fn set_server(self: &Rc<Self>, connections: usize) {
        self.bound.set(connections - LEFT_TO_OTHERS.min(connections / 2));
        self.serve();
    }

    /// A place, if one is free and nobody waits for it.
    pub(crate) fn take(self: &Rc<Self>) -> Option<Place> {
        self.has_place().then(|| self.occupy())
    }

    /// Whether a place is free and nobody waits for it.
    pub(crate) fn has_place(&self) -> bool {
        self.waiting.borrow().is_empty() && self.taken.get() < self.bound.get()
    }

    /// Queues up for a place. Who was given `Idle` and found nothing may queue up in front.
    pub(crate) fn wait(&self, pool: &Rc<Pool>, in_front: bool) -> oneshot::Receiver<Turn> {
        let (gives, given) = oneshot::channel();
        let (pool, mut queue) = (pool.clone(), self.waiting.borrow_mut());
        let index = if in_front { 0 } else { queue.len() };
        queue.insert(index, Waiting { pool, gives });
        given
    }

    /// Whether a connection that its session gave back may stay: not if somebody of another pool waits for
    /// its place.
    pub(crate) fn may_stay(&self, pool: &Rc<Pool>) -> bool {
        let mut queue = self.waiting.borrow_mut();
        queue.retain(|next| !next.gives.is_closed());
        queue.front().is_none_or(|next| Rc::ptr_eq(&next.pool, pool))
    }

    /// Tells whoever is next that its pool has an idle connection, if that `pool` is its own.
    pub(crate) fn tell_idle(&self, pool: &Rc<Pool>) {
        let mut queue = self.waiting.borrow_mut();
        if queue.front().is_some_and(|next| Rc::ptr_eq(&next.pool, pool)) {
            let next = queue.pop_front().expect("looked at");
            let _ = next.gives.send(Turn::Idle); // it gave up just now: the connection stays idle
        }
    }

    fn occupy(self: &Rc<Self>) -> Place {
        self.taken.set(self.taken.get() + 1);
        Place(self.clone())
    }

    /// Gives free places to those who wait.
    fn serve(self: &Rc<Self>) {
        while self.taken.get() < self.bound.get() {
            let Some(next) = self.waiting.borrow_mut().pop_front() else { return };
            // A place that nobody takes any more is free again, and is given to the next.
            let _ = next.gives.send(Turn::Place(self.occupy()));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - 1);
        self.0.serve();
    }
}
