//! Remembers the facts of texts, so that the hot path doesn't parse.
//!
//! The key is the text without its numbers (see `crate::template`) and the search path. A text
//! of several statements is remembered as it stands, since ranges depend on lengths. All is
//! forgotten when the catalog's version changes.
//!
//! Keeps I8: bounded in entries and in bytes. At a bound, what wasn't asked for since the last
//! time goes; if that isn't half of it, some of the rest goes too.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::size_of;
use std::sync::Arc;

use ahash::RandomState;
use hihooi_replication::items::Items;

use crate::analysis::analyse;
use crate::catalog::{Catalog, SearchPath};
use crate::facts::{Analysis, Statement};
use crate::template;

/// How many texts are remembered.
pub const ENTRIES_MAX: usize = 10_000;

/// How many bytes keys and facts may take, about.
pub const BYTES_MAX: usize = 16 << 20;

/// Longer texts are not remembered.
pub const TEXT_BYTES_MAX: usize = 32 << 10;

/// Remembers the facts of texts.
pub struct Cache {
    version: u64,
    entries: HashMap<u64, Entry, BuildHasherDefault<Passing>>,
    bytes: usize,
    hasher: RandomState,
    /// The key of the text at hand; kept to be reused.
    key: Vec<u8>,
    hits: u64,
    misses: u64,
}

struct Entry {
    key: Box<[u8]>,
    path: Option<SearchPath>,
    analysis: Arc<Analysis>,
    bytes: usize,
    asked_for: bool,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            version: 0,
            entries: HashMap::default(),
            bytes: 0,
            hasher: RandomState::new(),
            key: Vec::new(),
            hits: 0,
            misses: 0,
        }
    }
}

impl Cache {
    /// The facts about a text, as [`analyse`] finds them, except that the range of an only
    /// statement may be the whole text and more; [`Statement::text`] cuts it.
    pub fn get(
        &mut self,
        text: &str,
        catalog: &Catalog,
        path: Option<&SearchPath>,
    ) -> Arc<Analysis> {
        if text.len() > TEXT_BYTES_MAX {
            self.misses += 1;
            return Arc::new(analyse(text, catalog, path));
        }
        if self.version != catalog.version() {
            self.forget();
            self.version = catalog.version();
        }
        let is_template = template::write_key(text, &mut self.key);
        let hash = self.hasher.hash_one((&*self.key, path.map(SearchPath::fingerprint)));
        if let Some(entry) = self.entries.get_mut(&hash)
            && *entry.key == *self.key
            && entry.path.as_ref() == path
        {
            entry.asked_for = true;
            self.hits += 1;
            return Arc::clone(&entry.analysis);
        }
        self.misses += 1;
        let mut analysis = analyse(text, catalog, path);
        if is_template && let [only] = &mut *analysis.statements {
            only.range = 0..usize::MAX;
        }
        let analysis = Arc::new(analysis);
        self.remember(hash, path, &analysis);
        analysis
    }

    /// How many texts are remembered, and how many bytes they take, about.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    /// How many texts were found, and how many had to be analysed.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    fn remember(&mut self, hash: u64, path: Option<&SearchPath>, analysis: &Arc<Analysis>) {
        let bytes = size_of::<Entry>() + self.key.len() + bytes_of(analysis);
        if self.entries.len() >= ENTRIES_MAX || self.bytes + bytes > BYTES_MAX {
            self.forget_half();
        }
        let entry = Entry {
            key: self.key.as_slice().into(),
            path: path.cloned(),
            analysis: Arc::clone(analysis),
            bytes,
            asked_for: false,
        };
        self.bytes += bytes;
        if let Some(before) = self.entries.insert(hash, entry) {
            self.bytes -= before.bytes;
        }
    }

    fn forget_half(&mut self) {
        let mut bytes = 0;
        let mut entries = 0;
        self.entries.retain(|_, entry| {
            let keep = entry.asked_for
                && entries < ENTRIES_MAX / 2
                && bytes + entry.bytes <= BYTES_MAX / 2;
            if keep {
                entries += 1;
                bytes += entry.bytes;
                entry.asked_for = false;
            }
            keep
        });
        self.bytes = bytes;
    }
}

fn bytes_of(analysis: &Analysis) -> usize {
    let items = |items: &Items| match items {
        Items::Tables(tables) => size_of_val(&**tables),
        Items::Nothing | Items::Everything => 0,
    };
    let statement = |s: &Statement| {
        let names: usize = s.session.custom_settings.iter().map(|name| name.len() + 16).sum();
        size_of::<Statement>() + items(&s.reads) + items(&s.writes) + names
    };
    analysis.statements.iter().map(statement).sum()
}

/// Takes a hash as it is: the keys of the map are hashes already.
#[derive(Default)]
struct Passing(u64);

impl Hasher for Passing {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I8: the bounds hold whatever is asked.
    #[test]
    fn it_stays_within_its_bounds() {
        let catalog = Catalog::builder().build(1);
        let mut cache = Cache::default();
        for n in 0..ENTRIES_MAX * 2 {
            cache.get(&format!("SELECT a{n}"), &catalog, None);
            cache.get("SELECT 1", &catalog, None);
            assert!(cache.size().0 <= ENTRIES_MAX);
        }
        assert_eq!(cache.hits_and_misses().1 as usize, ENTRIES_MAX * 2 + 1, "the used one stays");
        let long = "x".repeat(TEXT_BYTES_MAX - 100);
        for n in 0..2 * BYTES_MAX / TEXT_BYTES_MAX {
            cache.get(&format!("SELECT '{n}{long}'"), &catalog, None);
            assert!(cache.size().1 <= BYTES_MAX);
        }
        let size = cache.size();
        cache.get(&format!("SELECT '{long}{long}'"), &catalog, None);
        assert_eq!(cache.size(), size, "too long to be remembered");
    }

    /// A hit gives what a new analysis would give: other path, other version, other text.
    #[test]
    fn keys_tell_apart_what_differs() {
        let mut builder = Catalog::builder();
        for (id, schema) in [(1, "a"), (2, "b")] {
            builder.relation(crate::catalog_builder::RelationRow {
                id: hihooi_replication::items::RelId(id),
                schema,
                name: "t",
                kind: "r",
                persistence: "p",
                code: "",
                has_rules: false,
            });
        }
        let catalog = builder.build(1);
        let (a, b) = (SearchPath::new(["a"]), SearchPath::new(["b"]));
        let mut cache = Cache::default();
        for path in [Some(&a), Some(&b), None] {
            for text in ["SELECT * FROM t WHERE x = 1", "SELECT * FROM t WHERE x = 23;"] {
                let found = cache.get(text, &catalog, path);
                let fresh = analyse(text, &catalog, path);
                assert_eq!(found.statements[0].reads, fresh.statements[0].reads);
                assert_eq!(found.statements[0].text(text), text);
            }
        }
        let same = SearchPath::new(["a"]);
        let hits = cache.hits;
        cache.get("SELECT * FROM t WHERE x = 9", &catalog, Some(&same));
        assert_eq!(cache.hits, hits + 1, "an equal path");
        let empty = Catalog::builder().build(2);
        let found = cache.get("SELECT * FROM t WHERE x = 1", &empty, Some(&a));
        assert_eq!(found.statements[0].reads, Items::Everything, "another catalog");
    }
}
