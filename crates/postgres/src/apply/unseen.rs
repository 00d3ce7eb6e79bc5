//! Changes that a note's transaction did not see. A note describes an object as its transaction saw it. Another
//! transaction can change the same object concurrently and commit first: two CREATE INDEX can run at the same
//! time, GRANT can run at the same time as any other command, and at REPEATABLE READ later commits are not
//! visible. When a replica comes to the note, it already has the other transaction's change, but the note's
//! description lacks it. So an object is not compared if a recent note was about it and comes from a
//! transaction that this note's snapshot does not contain. A DROP doesn't tell what the object belonged to: behind one,
//! an object may lack parts, but has no others.
//!
//! Kept in memory, separately for each replica, since replicas have applied different prefixes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hihooi_replication::note::Object;

use super::visibility::Snapshot;

/// Objects that are remembered; the oldest go first (I8).
const OBJECTS_MAX: usize = 4096;

/// What the last notes were about, oldest first.
#[derive(Default)]
pub(super) struct Recent(Mutex<VecDeque<(u32, About)>>);

#[derive(PartialEq, Eq)]
enum About {
    /// An object, by kind, names and arguments.
    Object(String, Vec<String>, Vec<String>),
    /// What was dropped doesn't tell what it belonged to.
    Dropped,
}

impl About {
    fn object(object: &Object) -> About {
        About::Object(object.kind.clone(), object.names.clone(), object.args.clone())
    }
}

impl Recent {
    /// Remembers that a transaction's note told of an object.
    pub(super) fn changed(&self, xid: u32, object: &Object) {
        self.add(xid, About::object(object));
    }

    /// Remembers that a transaction dropped something.
    pub(super) fn dropped(&self, xid: u32) {
        self.add(xid, About::Dropped);
    }

    fn add(&self, xid: u32, about: About) {
        let mut known = self.lock();
        if known.back().is_some_and(|(last, other)| *last == xid && *other == about) {
            return;
        }
        if known.len() == OBJECTS_MAX {
            known.pop_front();
        }
        known.push_back((xid, about));
    }

    /// Whether a transaction changed an object that the note of this one describes without having
    /// seen that.
    pub(super) fn hides(&self, xid: u32, object: &Object) -> bool {
        let about = About::object(object);
        self.any(xid, object, |known| *known == about)
    }

    /// Whether a transaction dropped something that this one's note of an object may still describe as a part of it.
    pub(super) fn takes(&self, xid: u32, object: &Object) -> bool {
        self.any(xid, object, |known| *known == About::Dropped)
    }

    fn any(&self, xid: u32, object: &Object, is_asked: impl Fn(&About) -> bool) -> bool {
        let snapshot = object.snapshot.as_deref().and_then(Snapshot::parse);
        let Some(snapshot) = snapshot else { return false };
        self.lock().iter().any(|(other, known)| {
            *other != xid && is_asked(known) && !snapshot.sees(snapshot.widen(*other))
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u32, About)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, snapshot: &str) -> Object {
        Object {
            kind: "table".to_owned(),
            names: vec!["s".to_owned(), name.to_owned()],
            snapshot: Some(snapshot.to_owned()),
            ..Object::default()
        }
    }

    #[test]
    fn what_an_unseen_transaction_changed_is_not_compared() {
        let recent = Recent::default();
        recent.changed(7, &object("t", "7:7:"));
        assert!(recent.hides(6, &object("t", "6:9:6,7")));
        assert!(recent.hides(6, &object("t", "6:7:6")), "it began later");
        assert!(!recent.hides(6, &object("t", "6:9:6")), "it was seen");
        assert!(!recent.hides(6, &object("u", "6:9:6,7")), "another table");
        assert!(!recent.hides(7, &object("t", "6:9:6,7")), "its own");
        recent.dropped(8);
        assert!(!recent.hides(6, &object("u", "6:9:6,8")), "not the table itself");
        assert!(recent.takes(6, &object("u", "6:9:6,8")), "perhaps an index of it");
        assert!(!recent.takes(6, &object("u", "6:9:6")), "it was seen");
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let recent = Recent::default();
        recent.changed(7, &object("t", "7:7:"));
        (0..OBJECTS_MAX).for_each(|n| recent.changed(8, &object(&n.to_string(), "8:8:")));
        assert!(!recent.hides(6, &object("t", "6:9:6,7,8")));
    }
}
