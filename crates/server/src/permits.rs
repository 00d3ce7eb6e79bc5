//! How many connections of a pool may be in use at once (I8). The operator may change this number meanwhile: what
//! is in use stays so, and while that is more than the new number, nobody gets another.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Semaphore;

/// The permits of one pool. Whoever waits for one gets it in turn.
#[derive(Debug)]
pub(crate) struct Permits {
    free: Semaphore,
    size: Cell<usize>,
    /// Of those in use, so many are beyond the number: they aren't free again when they are given back.
    surplus: Cell<usize>,
}

/// The permit to use a connection, until it is dropped.
#[derive(Debug)]
pub struct Permit(Rc<Permits>);

impl Permits {
    /// So many.
    pub(crate) fn new(size: usize) -> Rc<Permits> {
        Rc::new(Permits {
            free: Semaphore::new(size),
            size: Cell::new(size),
            surplus: Cell::default(),
        })
    }

    /// How many there are.
    pub(crate) fn size(&self) -> usize {
        self.size.get()
    }

    /// How many are in use.
    pub(crate) fn used(&self) -> usize {
        self.size.get() + self.surplus.get() - self.free.available_permits()
    }

    /// How many are free.
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// A free permit.
    pub(crate) fn take(self: &Rc<Self>) -> Option<Permit> {
        self.free.try_acquire().ok()?.forget();
        Some(Permit(self.clone()))
    }

    /// A permit, as soon as one is free.
    pub(crate) async fn wait(self: &Rc<Self>) -> Permit {
        let free = self.free.acquire().await;
        free.expect("it is never closed").forget();
        Permit(self.clone())
    }

    /// From now on there are so many.
    pub(crate) fn set_size(&self, size: usize) {
        let before = self.size.replace(size);
        let surplus = self.surplus.get();
        if size >= before {
            let stay = surplus.min(size - before);
            self.surplus.set(surplus - stay);
            self.free.add_permits(size - before - stay);
        } else {
            let taken = self.free.forget_permits(before - size);
            self.surplus.set(surplus + before - size - taken);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match self.0.surplus.get() {
            0 => self.0.free.add_permits(1),
            surplus => self.0.surplus.set(surplus - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(permits: &Permits) -> (usize, usize, usize) {
        (permits.size(), permits.used(), permits.free())
    }

    #[tokio::test]
    async fn the_number_changes_while_permits_are_in_use() {
        let permits = Permits::new(3);
        let mut held: Vec<Permit> = (0..3).filter_map(|_| permits.take()).collect();
        assert_eq!((counts(&permits), permits.take().is_none()), ((3, 3, 0), true));
        permits.set_size(1);
        assert_eq!(counts(&permits), (1, 3, 0), "what is in use stays so");
        held.pop();
        assert_eq!((counts(&permits), permits.take().is_none()), ((1, 2, 0), true));
        permits.set_size(4);
        assert_eq!(counts(&permits), (4, 2, 2));
        permits.set_size(2);
        assert_eq!((counts(&permits), permits.take().is_none()), ((2, 2, 0), true));
        held.pop();
        let waits = permits.wait();
        assert_eq!(counts(&permits), (2, 1, 1));
        drop(waits.await);
        held.clear();
        permits.set_size(0);
        assert_eq!((counts(&permits), permits.take().is_none()), ((0, 0, 0), true));
        permits.set_size(1);
        assert!(permits.take().is_some());
        assert_eq!(counts(&permits), (1, 0, 1));
    }
}
