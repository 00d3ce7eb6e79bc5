//! The names of prepared statements. A name belongs to a session; at servers the statements have ids instead.

use std::collections::VecDeque;
use std::sync::Arc;

use ahash::{AHashMap, AHashSet};
use bytes::Bytes;
use hihooi_sql::{Analysis, SearchPath, SessionEffect};

use crate::events::Prepared;
use crate::upstream::NamesDone;

/// The session's prepared statements. (Most sessions idle without any.)
#[derive(Debug, Default)]
pub(crate) struct Names(Option<Box<Known>>);

#[derive(Debug, Default)]
struct Known {
    by_protocol: AHashMap<Bytes, Name>,
    /// Under what the facts of these were found.
    found: Option<Found>,
    /// Names that SQL gave.
    by_sql: AHashSet<Box<str>>,
    /// What statements that SQL prepared may leave.
    sql_effects: SessionEffect,
    /// Changes in the unit so far.
    changes: Vec<Change>,
    /// What was sent that takes names away, if it is carried out.
    going: VecDeque<NamesGone>,
    /// How many names the client has given.
    given: u64,
    /// One of these may have been of a DEALLOCATE.
    any_may_take: bool,
}

/// Names of the protocol that are gone.
#[derive(Debug, Clone)]
pub(crate) enum NamesGone {
    All,
    One(Bytes),
}

#[derive(Debug)]
struct Name {
    prepared: Arc<Prepared>,
    /// Its place among the names that the client has given.
    place: u64,
    facts: Option<Arc<Analysis>>,
}

/// Under what facts were found: the catalog's version, and the path that names were looked up in.
pub(crate) type Found = (u64, Option<SearchPath>);

/// A change, to be taken back if the server did not come to it.
#[derive(Debug)]
struct Change {
    name: Bytes,
    before: Option<Name>,
}

impl Names {
    fn known(&self) -> Option<&Known> {
        self.0.as_deref()
    }

    fn known_mut(&mut self) -> &mut Known {
        self.0.get_or_insert_default()
    }

    /// The statement that the client prepared by the protocol under this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Prepared>> {
        self.known()?.by_protocol.get(name).map(|name| &name.prepared)
    }

    /// A name that the client gave to the statement that servers know by this id.
    pub(crate) fn name_of(&self, id: u64) -> Option<Bytes> {
        let mut all = self.known()?.by_protocol.iter();
        all.find(|(_, known)| known.prepared.id == id).map(|(name, _)| name.clone())
    }

    /// What [`Names::get`] gave in front of the last so many changes of the unit.
    pub(crate) fn get_before(&self, name: &[u8], changes: usize) -> Option<&Arc<Prepared>> {
        let all = &self.known()?.changes;
        let last = &all[all.len().saturating_sub(changes)..];
        match last.iter().find(|change| *change.name == *name) {
            Some(Change { before, .. }) => before.as_ref().map(|name| &name.prepared),
            None => self.get(name),
        }
    }

    /// Whether any statement that the client prepared by the protocol may be a DEALLOCATE.
    pub(crate) fn any_may_take(&self) -> bool {
        self.known().is_some_and(|known| known.any_may_take)
    }

    /// All statements that the client prepared by the protocol, in the order in which it did, and
    /// their names.
    pub(crate) fn all(&self) -> Vec<(&Bytes, &Arc<Prepared>)> {
        let mut all: Vec<_> = self.known().iter().flat_map(|known| &known.by_protocol).collect();
        all.sort_unstable_by_key(|(_, of)| of.place);
        all.into_iter().map(|(name, of)| (name, &of.prepared)).collect()
    }

    /// Its facts if they are known and still so.
    pub(crate) fn facts(&self, name: &[u8], found: &Found) -> Option<Arc<Analysis>> {
        let known = self.known().filter(|known| known.found.as_ref() == Some(found))?;
        known.by_protocol.get(name)?.facts.clone()
    }

    /// Remembers the facts of a statement.
    pub(crate) fn know(&mut self, name: &[u8], found: Found, facts: Arc<Analysis>) {
        let known = self.known_mut();
        if known.found.as_ref() != Some(&found) {
            known.by_protocol.values_mut().for_each(|name| name.facts = None);
            known.found = Some(found);
        }
        if let Some(name) = known.by_protocol.get_mut(name) {
            name.facts = Some(facts);
        }
    }

    /// A name of the protocol means this from now on, as far as the unit succeeds.
    pub(crate) fn set(&mut self, name: Bytes, prepared: Option<Arc<Prepared>>) {
        let known = self.known_mut();
        let before = match prepared {
            Some(prepared) => {
                known.given += 1;
                known.any_may_take |= prepared.may_take;
                let given = Name { prepared, place: known.given, facts: None };
                known.by_protocol.insert(name.clone(), given)
            }
            None => known.by_protocol.remove(&name),
        };
        known.changes.push(Change { name, before });
    }

    /// The unit has succeeded.
    pub(crate) fn keep_changes(&mut self) {
        if let Some(known) = &mut self.0 {
            known.changes.clear();
        }
    }

    /// The first part of the unit has succeeded, with so many changes.
    pub(crate) fn keep_first(&mut self, count: usize) {
        if let Some(known) = &mut self.0 {
            known.changes.drain(..count.min(known.changes.len()));
        }
    }

    /// The unit has failed behind so many changes. (A Parse that fails takes the unnamed statement away.)
    pub(crate) fn undo_after(&mut self, done: NamesDone) {
        let Some(known) = &mut self.0 else { return };
        let done_count = done.count.min(known.changes.len());
        let failed = known.changes.get(done_count).filter(|_| done.parse_failed);
        let takes_unnamed = failed.is_some_and(|change| change.name.is_empty());
        for change in known.changes.drain(done_count..).rev() {
            match change.before {
                Some(before) => known.by_protocol.insert(change.name, before),
                None => known.by_protocol.remove(&change.name),
            };
        }
        known.changes.clear();
        if takes_unnamed {
            known.by_protocol.remove(&b""[..]);
        }
    }

    /// A name of the protocol is gone, whatever becomes of the unit.
    pub(crate) fn forget(&mut self, name: &[u8]) {
        if let Some(known) = &mut self.0
            && !known.by_protocol.is_empty()
        {
            known.by_protocol.remove(name);
        }
    }

    /// Names will be gone if the server comes to it.
    pub(crate) fn go(&mut self, names: NamesGone) {
        self.known_mut().going.push_back(names);
    }

    /// Whether something was sent that takes names away, and wasn't carried out.
    pub(crate) fn may_go(&self) -> bool {
        self.known().is_some_and(|known| !known.going.is_empty())
    }

    /// The first of what was to take names away was carried out, whatever becomes of the unit.
    pub(crate) fn gone(&mut self) -> Option<NamesGone> {
        let known = self.0.as_mut()?;
        let gone = known.going.pop_front()?;
        match &gone {
            NamesGone::All => known.by_protocol.retain(|name, _| name.is_empty()),
            NamesGone::One(name) => self.forget(name),
        }
        Some(gone)
    }

    /// The server won't come to the rest of what was to take names away.
    pub(crate) fn stay(&mut self) {
        if let Some(known) = &mut self.0 {
            known.going.clear();
        }
    }

    /// SQL has prepared a statement that may leave this.
    pub(crate) fn prepared_by_sql(&mut self, name: &str, effect: &SessionEffect) {
        let known = self.known_mut();
        known.by_sql.insert(name.into());
        known.sql_effects.merge(effect);
    }

    /// Whether SQL has prepared a statement of this name.
    pub(crate) fn has_by_sql(&self, name: &str) -> bool {
        self.known().is_some_and(|known| known.by_sql.contains(name))
    }

    /// What statements that SQL prepared may leave.
    pub(crate) fn sql_effects(&self) -> SessionEffect {
        self.known().map(|known| known.sql_effects.clone()).unwrap_or_default()
    }

    /// What SQL has prepared is gone.
    pub(crate) fn forget_sql(&mut self) {
        if let Some(known) = &mut self.0 {
            known.by_sql.clear();
            known.sql_effects = SessionEffect::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(id: u64) -> Arc<Prepared> {
        Arc::new(Prepared::new(id, Bytes::new(), Bytes::new(), Default::default()))
    }

    fn ids(names: &Names) -> Vec<Option<u64>> {
        [&b"a"[..], b"b"].iter().map(|name| names.get(name).map(|known| known.id)).collect()
    }

    #[test]
    fn a_failed_unit_takes_back_what_the_server_did_not_come_to() {
        let mut names = Names::default();
        names.set(Bytes::from_static(b"a"), Some(prepared(1)));
        names.keep_changes();
        names.set(Bytes::from_static(b"b"), Some(prepared(2)));
        names.set(Bytes::from_static(b"a"), None);
        names.set(Bytes::from_static(b"a"), Some(prepared(3)));
        names.set(Bytes::from_static(b"b"), None);
        assert_eq!(ids(&names), [Some(3), None]);
        let before = |changes| names.get_before(b"a", changes).map(|known| known.id);
        assert_eq!([0, 1, 2, 3, 4].map(before), [Some(3), Some(3), None, Some(1), Some(1)]);
        names.undo_after(NamesDone { count: 1, parse_failed: false });
        assert_eq!(ids(&names), [Some(1), Some(2)]);
        names.undo_after(NamesDone::default());
        assert_eq!(ids(&names), [Some(1), Some(2)], "what succeeded stays");
    }
}
