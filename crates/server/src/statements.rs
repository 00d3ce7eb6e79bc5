//! The statements that clients have prepared: the same text, parameter types and meaning are one statement, with one
//! id, at all servers.

use std::sync::{Arc, Weak};

use ahash::AHashMap;
use bytes::Bytes;
use hihooi_session::events::{Meaning, Prepared};

/// Beyond that many statements, those that nobody uses are forgotten (I8). What sessions keep is their own.
const COUNT_MAX: usize = 100_000;
/// The same for the bytes of their texts and settings.
const BYTES_MAX: usize = 64 << 20;

/// Finds them.
pub struct Statements {
    known: AHashMap<Key, Weak<Prepared>>,
    bytes: usize,
    /// Count and bytes at which unused ones are looked for: then at least half may be.
    bounds: (usize, usize),
    last_id: u64,
}

/// Text, parameter types, and under what a statement was prepared.
type Key = (Bytes, Bytes, Meaning);

impl Default for Statements {
    fn default() -> Statements {
        let (known, bytes, last_id) = Default::default();
        Statements { known, bytes, bounds: (COUNT_MAX, BYTES_MAX), last_id }
    }
}

impl Statements {
    /// The one of this text, types and meaning. Without settings in its meaning it is one that nobody shares.
    pub fn get(&mut self, query: Bytes, types: Bytes, meaning: Meaning) -> Arc<Prepared> {
        let is_shared = meaning.settings.is_some();
        let key = (query, types, meaning);
        if is_shared && let Some(prepared) = self.known.get(&key).and_then(Weak::upgrade) {
            return prepared;
        }
        self.last_id += 1;
        // Own memory: the message it came in is larger.
        let key = (Bytes::copy_from_slice(&key.0), Bytes::copy_from_slice(&key.1), key.2);
        let (query, types, meaning) = key.clone();
        let prepared = Arc::new(Prepared::new(self.last_id, query, types, meaning));
        if is_shared {
            self.insert(key, &prepared);
        }
        prepared
    }

    /// So many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    fn insert(&mut self, key: Key, prepared: &Arc<Prepared>) {
        let bytes = bytes_of(&key);
        if self.known.insert(key, Arc::downgrade(prepared)).is_none() {
            self.bytes += bytes;
        }
        if self.known.len() > self.bounds.0 || self.bytes > self.bounds.1 {
            self.known.retain(|_, prepared| prepared.strong_count() > 0);
            self.known.shrink_to_fit();
            self.bytes = self.known.keys().map(bytes_of).sum();
            self.bounds = (COUNT_MAX.max(2 * self.known.len()), BYTES_MAX.max(2 * self.bytes));
        }
    }
}

fn bytes_of((query, types, meaning): &Key) -> usize {
    let settings = meaning.settings.iter().flat_map(|settings| &settings.0.values);
    let settings: usize = settings.map(|(name, value)| name.len() + value.len()).sum();
    query.len() + types.len() + settings
}

#[cfg(test)]
mod tests {
    use hihooi_session::state::MeaningfulSettings;

    use super::*;

    fn get(statements: &mut Statements, text: String) -> Arc<Prepared> {
        let settings = Some(MeaningfulSettings(Arc::default()));
        let meaning = Meaning { settings, ..Meaning::default() };
        statements.get(text.into(), Bytes::new(), meaning)
    }

    #[test]
    fn what_is_in_use_has_one_id() {
        let mut statements = Statements::default();
        let first = get(&mut statements, "SELECT 1".to_owned());
        assert_eq!(get(&mut statements, "SELECT 1".to_owned()).id, first.id);
        assert_ne!(get(&mut statements, "SELECT 2".to_owned()).id, first.id);
        let own = statements.get("SELECT 1".into(), Bytes::new(), Meaning::default());
        assert_ne!(own.id, first.id);
        assert_eq!(statements.len(), 2);
    }

    #[test]
    fn i8_unused_ones_are_forgotten() {
        let mut statements = Statements::default();
        let used = get(&mut statements, "SELECT 1".to_owned());
        for number in 0..5_000 {
            get(&mut statements, format!("SELECT {number} /* {} */", "x".repeat(100_000)));
            assert!(statements.bytes <= BYTES_MAX);
        }
        for number in 0..3 * COUNT_MAX {
            get(&mut statements, number.to_string());
            assert!(statements.len() <= COUNT_MAX);
        }
        assert_eq!(get(&mut statements, "SELECT 1".to_owned()).id, used.id);
    }

    #[test]
    fn used_ones_are_kept_and_not_looked_through_each_time() {
        let mut statements = Statements::default();
        let used: Vec<_> =
            (0..COUNT_MAX + 1).map(|number| get(&mut statements, number.to_string())).collect();
        assert_eq!(statements.len(), used.len());
        assert_eq!(statements.bounds.0, 2 * used.len());
    }
}
