//! Who may be here at once (I8). Clients that have proved who they are have the bounds that the operator set: in all,
//! by role, and by database. Strangers, who have not, have a bound of their own, so that they keep no client out.
//! Where it is reached, the stranger that has been silent for the longest time gives way to the next: a client that
//! wants to log in says something all the time, as fast as the network carries it. If all of them wait for an answer of
//! ours, no further one is accepted until one of them has it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ahash::AHashMap;
use hihooi_wire::backend::Report;
use tokio::sync::Notify;
use tracing::warn;

use crate::settings::Limits;

/// Connections that have not proved yet who they are.
const STRANGERS_MAX: usize = 1_000;
/// Sessions with the admin database.
const ADMINS_MAX: usize = 100;
/// The log tells so often that strangers had to give way.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// All who are here.
#[derive(Debug, Default)]
pub struct Clients {
    strangers: RefCell<BTreeMap<u64, Rc<Silence>>>,
    strangers_so_far: Cell<u64>,
    /// A stranger has left, or has got what it waited for.
    moved: Notify,
    told: Cell<Option<Instant>>,
    clients: Cell<usize>,
    /// The last client is awaited, and no further one is let in.
    is_closed: Cell<bool>,
    all_left: Notify,
    admins: Cell<usize>,
    by_user: RefCell<AHashMap<Rc<str>, usize>>,
    by_database: RefCell<AHashMap<Rc<str>, usize>>,
}

/// Whose turn it is to say something.
#[derive(Debug)]
struct Silence {
    /// Since when it is the stranger's; it is ours if there is nothing.
    since: Cell<Option<Instant>>,
    gives_way: Notify,
}

/// A connection that has not proved who it is.
#[derive(Debug)]
pub struct Stranger {
    clients: Rc<Clients>,
    number: u64,
    silence: Rc<Silence>,
}

/// A client that has; it is counted as long as this lives.
#[derive(Debug)]
pub struct Entered {
    clients: Rc<Clients>,
    /// Its role and its database, if that isn't the admin database.
    names: Option<(Rc<str>, Rc<str>)>,
}

impl Clients {
    /// Waits until there is a place for one more stranger.
    pub async fn place_for_stranger(&self) {
        while self.strangers.borrow().len() >= STRANGERS_MAX && !self.give_way() {
            self.moved.notified().await;
        }
    }

    /// A stranger has come.
    pub fn stranger(self: &Rc<Self>) -> Stranger {
        let number = self.strangers_so_far.get() + 1;
        self.strangers_so_far.set(number);
        let since = Cell::new(Some(Instant::now()));
        let silence = Rc::new(Silence { since, gives_way: Notify::new() });
        self.strangers.borrow_mut().insert(number, silence.clone());
        Stranger { clients: self.clone(), number, silence }
    }

    /// How many strangers there are.
    #[must_use]
    pub fn strangers(&self) -> usize {
        self.strangers.borrow().len()
    }

    /// Whether nobody is let in any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Has the stranger that was silent for the longest time give way; whether there is one.
    pub fn give_way(&self) -> bool {
        let mut strangers = self.strangers.borrow_mut();
        let silent = strangers.iter().filter_map(|(at, who)| Some((who.since.get()?, *at)));
        let Some((_, longest)) = silent.min() else { return false };
        // Its place is free at once, though it learns that only at its next turn.
        let silence = strangers.remove(&longest).expect("just seen");
        silence.gives_way.notify_one();
        if self.told.get().is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
            self.told.set(Some(Instant::now()));
            warn!(
                "too many connections don't log in: those that are silent the longest are closed"
            );
        }
        true
    }

    /// Whether a client that proves who it is would be refused: then it need not.
    ///
    /// # Errors
    /// PostgreSQL's, of class 53; 57P03 if the manager stops when all have left.
    pub fn check(&self, limits: &Limits) -> Result<(), Report> {
        if self.is_closed.get() {
            return Err(Report::fatal("57P03", "the database system is shutting down"));
        }
        if is_reached(limits.clients_max, self.clients.get()) {
            return Err(too_many(
                "sorry, too many clients already".to_owned(),
                "limits.clients_max",
                limits.clients_max,
            ));
        }
        Ok(())
    }

    /// A client of a role and a database has proved who it is.
    ///
    /// # Errors
    /// PostgreSQL's, of class 53: there are too many.
    pub fn enter(
        self: &Rc<Self>,
        user: &str,
        database: &str,
        limits: &Limits,
    ) -> Result<Entered, Report> {
        self.check(limits)?;
        let count = |counts: &RefCell<AHashMap<Rc<str>, usize>>, name: &str| {
            counts.borrow().get(name).copied().unwrap_or(0)
        };
        let max = limits.clients_per_user_max;
        if is_reached(max, count(&self.by_user, user)) {
            let told = format!("too many connections for role \"{user}\"");
            return Err(too_many(told, "limits.clients_per_user_max", max));
        }
        let max = limits.clients_per_database_max;
        if is_reached(max, count(&self.by_database, database)) {
            let told = format!("too many connections for database \"{database}\"");
            return Err(too_many(told, "limits.clients_per_database_max", max));
        }
        self.clients.set(self.clients.get() + 1);
        let names = (add(&self.by_user, user), add(&self.by_database, database));
        Ok(Entered { clients: self.clone(), names: Some(names) })
    }

    /// Lets nobody in from now on, but into the admin database, and returns when the last client has left.
    pub async fn until_left(&self) {
        self.is_closed.set(true);
        while self.clients.get() > 0 {
            self.all_left.notified().await;
        }
    }

    /// A client of the admin database has proved who it is. It has a place also when there are too many others.
    ///
    /// # Errors
    /// There are too many of these.
    pub fn enter_as_admin(self: &Rc<Self>) -> Result<Entered, Report> {
        if self.admins.get() >= ADMINS_MAX {
            let told = format!("there are {ADMINS_MAX} sessions with the admin database already");
            return Err(Report::fatal("53300", told).hint("Close some of them."));
        }
        self.admins.set(self.admins.get() + 1);
        Ok(Entered { clients: self.clone(), names: None })
    }
}

fn is_reached(max: usize, count: usize) -> bool {
    max > 0 && count >= max
}

fn too_many(told: String, key: &str, max: usize) -> Report {
    Report::fatal("53300", told).detail(format!("{key} is {max}."))
}

fn add(counts: &RefCell<AHashMap<Rc<str>, usize>>, name: &str) -> Rc<str> {
    let mut counts = counts.borrow_mut();
    if let Some((name, _)) = counts.get_key_value(name) {
        let name = name.clone();
        *counts.get_mut(&name).expect("just seen") += 1;
        return name;
    }
    let name: Rc<str> = name.into();
    counts.insert(name.clone(), 1);
    name
}

fn subtract(counts: &RefCell<AHashMap<Rc<str>, usize>>, name: &str) {
    let mut counts = counts.borrow_mut();
    match counts.get_mut(name) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(name)),
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Entered { clients, names } = self;
        let Some((user, database)) = names else {
            return clients.admins.set(clients.admins.get() - 1);
        };
        clients.clients.set(clients.clients.get() - 1);
        if clients.clients.get() == 0 {
            clients.all_left.notify_waiters();
        }
        subtract(&clients.by_user, user);
        subtract(&clients.by_database, database);
    }
}

impl Stranger {
    /// Its number, which no other has; from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns when it has to give way to others.
    pub async fn gives_way(&self) {
        self.silence.gives_way.notified().await;
    }

    /// It has said something.
    pub fn spoke(&self) {
        self.silence.since.set(Some(Instant::now()));
    }

    /// It waits for us while this is done.
    pub async fn waits<T>(&self, work: impl Future<Output = T>) -> T {
        self.silence.since.set(None);
        let done = work.await;
        self.spoke();
        self.clients.moved.notify_one(); // it can give way now
        done
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.clients.strangers.borrow_mut().remove(&self.number);
        self.clients.moved.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn clients_are_bounded_in_all_by_role_and_by_database() {
        let clients = Rc::new(Clients::default());
        let limits = Limits {
            clients_max: 4,
            clients_per_user_max: 2,
            clients_per_database_max: 3,
            ..Limits::default()
        };
        let enter = |user: &str, database: &str| clients.enter(user, database, &limits);
        let told = |refused: Result<Entered, Report>| refused.expect_err("too many").message;
        let first = enter("a", "x").expect("a place");
        let _second = enter("a", "x").expect("a place");
        assert_eq!(told(enter("a", "y")), "too many connections for role \"a\"");
        let _third = enter("b", "x").expect("a place");
        assert_eq!(told(enter("b", "x")), "too many connections for database \"x\"");
        let _fourth = enter("c", "y").expect("a place");
        assert_eq!(told(enter("d", "z")), "sorry, too many clients already");
        assert!(clients.check(&limits).is_err());
        let _admin = clients.enter_as_admin().expect("a place of its own");
        drop(first);
        assert!(clients.check(&limits).is_ok());
        let _again = enter("a", "x").expect("there is a place again");
        let none = Limits { clients_max: 0, ..Limits::default() };
        assert!(clients.enter("a", "x", &none).is_ok(), "0 is no bound");
    }

    /// Who is silent gives way to who comes, the longest first; who waits for us doesn't.
    #[tokio::test]
    async fn silent_strangers_give_way() {
        let clients = Rc::new(Clients::default());
        let mut strangers: Vec<_> = (0..STRANGERS_MAX).map(|_| clients.stranger()).collect();
        strangers[0].spoke();
        clients.place_for_stranger().await;
        let leaves = |who: &Stranger| who.gives_way().now_or_never().is_some();
        assert_eq!((leaves(&strangers[0]), leaves(&strangers[1])), (false, true));
        strangers.push(clients.stranger());
        // All of them wait for us: nobody gives way, and nobody comes in until one leaves, or has its answer.
        let last = strangers.pop().expect("just come");
        let mut waiting: Vec<_> =
            strangers.iter().map(|who| Box::pin(who.waits(pending::<()>()))).collect();
        waiting.iter_mut().for_each(|waits| assert!(waits.now_or_never().is_none()));
        let (answers, answer) = oneshot::channel::<()>();
        {
            let mut waits = pin!(last.waits(answer));
            assert!(waits.as_mut().now_or_never().is_none());
            let mut place = pin!(clients.place_for_stranger());
            assert!(place.as_mut().now_or_never().is_none());
            drop(answers);
            assert!(waits.now_or_never().is_some());
            assert!(place.now_or_never().is_some(), "it was silent for the longest time");
        }
        assert!(leaves(&last));
        let another = clients.stranger();
        let mut place = pin!(clients.place_for_stranger());
        another.silence.since.set(None);
        assert!(place.as_mut().now_or_never().is_none());
        drop(another);
        assert!(place.now_or_never().is_some());
        drop((waiting, last));
        drop(strangers);
        assert!(clients.strangers.borrow().is_empty());
    }
}
