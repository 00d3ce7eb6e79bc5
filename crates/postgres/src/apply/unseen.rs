//! What a note could not see. A note describes an object as its transaction sees it; another
//! transaction may change the same object meanwhile (CREATE INDEX runs beside CREATE INDEX, GRANT
//! beside anything) and commit first. A replica then has its change in front of the note that doesn't
//! tell of it. The note's snapshot says which transactions it saw, and what the others' own notes
//! told is remembered here, so that the rest can still be compared.
//!
//! Kept in memory while hihooi runs, and per replica, since replicas differ in how far they are.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hihooi_replication::note::Object;

use super::visibility::Snapshot;

/// Descriptions that are remembered, in bytes together; the oldest go first (I8).
const BYTES_MAX: usize = 4 << 20;

/// Objects as the last notes described them, oldest first.
#[derive(Default)]
pub(super) struct Recent(Mutex<Known>);

#[derive(Default)]
struct Known {
    objects: VecDeque<(u32, Object)>,
    bytes: usize,
}

impl Recent {
    /// Remembers what a transaction's note told.
    pub(super) fn add(&self, xid: u32, object: &Object) {
        let mut known = self.lock();
        known.bytes += len(object);
        known.objects.push_back((xid, object.clone()));
        while known.bytes > BYTES_MAX {
            let Some((_, oldest)) = known.objects.pop_front() else { return };
            known.bytes -= len(&oldest);
        }
    }

    /// Whether all that an object is here, other than a transaction's note describes it, is what
    /// transactions told that the note did not see.
    pub(super) fn explain(&self, xid: u32, object: &Object, here: &str) -> bool {
        let Some(snapshot) = object.snapshot.as_deref().and_then(Snapshot::parse) else {
            return false;
        };
        let is_same = |other: &Object| {
            (&other.kind, &other.names, &other.args) == (&object.kind, &object.names, &object.args)
        };
        let known = self.lock();
        let unseen = known.objects.iter().filter(|(other, known)| {
            *other != xid && is_same(known) && !snapshot.sees(snapshot.widen(*other))
        });
        let descriptions = unseen.filter_map(|(_, known)| known.description.as_deref());
        let primary = object.description.as_deref().unwrap_or_default();
        is_explained(primary, here, &descriptions.collect::<Vec<_>>())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn len(object: &Object) -> usize {
    size_of::<Object>() + object.description.as_ref().map_or(0, String::len)
}

/// Each line that the primary doesn't tell stands in another description, and each that it alone
/// tells is about a property of which one of those lines tells otherwise.
fn is_explained(primary: &str, here: &str, others: &[&str]) -> bool {
    let has = |text: &str, line: &str| text.lines().any(|other| other == line);
    let extra: Vec<&str> = here.lines().filter(|line| !has(primary, line)).collect();
    let is_told = |line: &&str| others.iter().any(|other| has(other, line));
    let is_replaced = |line: &str| extra.iter().any(|other| property(other) == property(line));
    !extra.is_empty()
        && extra.iter().all(is_told)
        && primary.lines().all(|line| has(here, line) || is_replaced(line))
}

/// What a description's line is about: an object's only privileges, or one of its indexes by name.
fn property(line: &str) -> (&str, Option<&str>) {
    let mut words = line.split(' ');
    let kind = words.next().unwrap_or_default();
    let name = words.next().filter(|_| !["privileges", "options", "owner"].contains(&kind));
    (kind, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(description: &str, snapshot: &str) -> Object {
        Object {
            kind: "table".to_owned(),
            names: vec!["s".to_owned(), "t".to_owned()],
            description: Some(description.to_owned()),
            snapshot: Some(snapshot.to_owned()),
            ..Object::default()
        }
    }

    #[test]
    fn what_unseen_transactions_told_is_no_difference() {
        let recent = Recent::default();
        recent.add(7, &object("table\nindex b\nprivileges y", "7:7:"));
        let note = |snapshot| object("table\nindex a\nprivileges x", snapshot);
        let here = "table\nindex a\nindex b\nprivileges y";
        let unseen = note("6:9:6,7");
        assert!(recent.explain(6, &unseen, here));
        assert!(!recent.explain(6, &unseen, "table\nindex a\nindex c\nprivileges y"), "c?");
        assert!(!recent.explain(6, &unseen, "table\nindex b\nprivileges y"), "a is missing");
        assert!(!recent.explain(6, &note("6:9:6"), here), "it was seen");
        assert!(!recent.explain(7, &unseen, here), "it is its own");
        assert!(!recent.explain(6, &object("table\nindex b", "6:9:6,7"), "table"), "b is missing");
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let recent = Recent::default();
        recent.add(7, &object("table\nindex b", "7:7:"));
        recent.add(8, &object(&"x".repeat(BYTES_MAX), "8:8:"));
        assert!(!recent.explain(6, &object("table", "6:9:6,7,8"), "table\nindex b"));
        assert_eq!(recent.lock().bytes, 0);
    }
}
