//! Caches the facts of query texts, so that the hot path doesn't parse.
//!
//! The key is the text without its numbers and some strings (see `crate::template`), and the search path. A
//! text of several statements is cached unchanged, since positions in it depend on lengths. The cache is
//! emptied when the catalog's version changes.
//!
//! Keeps I8: bounded in entries and in bytes. At a bound, the least recently used texts are removed.

use std::hash::{Hash, Hasher};
use std::mem::size_of;
use std::sync::Arc;

use ahash::RandomState;
use hihooi_replication::items::{Columns, Items};
use schnellru::{Limiter, LruMap};

use crate::analysis::{analyse, analyse_template};
use crate::catalog::{Catalog, SearchPath};
use crate::facts::{Analysis, Statement};
use crate::named_rows::NamedRows;
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
    entries: LruMap<Key, Entry, Bounds, RandomState>,
    /// The key of the text at hand; kept to be reused.
    key: Vec<u8>,
    hits: u64,
    misses: u64,
}

/// What the facts of a text depend on at one version of the catalog.
struct Key {
    text: Box<[u8]>,
    path: Option<SearchPath>,
}

impl Key {
    fn parts(&self) -> KeyParts<'_> {
        KeyParts { text: &self.text, path: self.path.as_ref() }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.parts() == other.parts()
    }
}

/// A [`Key`] that is only looked up.
#[derive(PartialEq)]
struct KeyParts<'a> {
    text: &'a [u8],
    path: Option<&'a SearchPath>,
}

impl Hash for KeyParts<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.text, self.path.map(SearchPath::fingerprint)).hash(state);
    }
}

impl PartialEq<Key> for KeyParts<'_> {
    fn eq(&self, other: &Key) -> bool {
        *self == other.parts()
    }
}

struct Entry {
    analysis: Arc<Analysis>,
    bytes: usize,
}

/// The bounds of the map, and the bytes that its entries take.
#[derive(Default)]
struct Bounds {
    bytes: usize,
}

impl Limiter<Key, Entry> for Bounds {
    type KeyToInsert<'a> = Key;
    type LinkType = u32;

    fn is_over_the_limit(&self, entries: usize) -> bool {
        entries > ENTRIES_MAX || self.bytes > BYTES_MAX
    }

    fn on_insert(&mut self, _: usize, key: Key, entry: Entry) -> Option<(Key, Entry)> {
        if entry.bytes > BYTES_MAX {
            return None;
        }
        self.bytes += entry.bytes;
        Some((key, entry))
    }

    fn on_replace(
        &mut self,
        _: usize,
        _: &mut Key,
        _: Key,
        old: &mut Entry,
        new: &mut Entry,
    ) -> bool {
        self.bytes = self.bytes - old.bytes + new.bytes;
        true
    }

    fn on_removed(&mut self, _: &mut Key, entry: &mut Entry) {
        self.bytes -= entry.bytes;
    }

    fn on_cleared(&mut self) {
        self.bytes = 0;
    }

    fn on_grow(&mut self, _: usize) -> bool {
        true
    }
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            version: 0,
            entries: LruMap::with_hasher(Bounds::default(), RandomState::new()),
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
            let number = self.misses;
            return Arc::new(Analysis { number, ..analyse(text, catalog, path) });
        }
        if self.version != catalog.version() {
            self.forget();
            self.version = catalog.version();
        }
        let is_template = template::write_key(text, &mut self.key);
        if let Some(entry) = self.entries.get(&KeyParts { text: &self.key, path }) {
            self.hits += 1;
            return Arc::clone(&entry.analysis);
        }
        self.misses += 1;
        let mut analysis = match is_template {
            true => analyse_template(text, catalog, path),
            false => analyse(text, catalog, path),
        };
        if is_template && let [only] = &mut *analysis.statements {
            only.range = 0..usize::MAX;
        }
        analysis.number = self.misses;
        let analysis = Arc::new(analysis);
        self.remember(path, &analysis);
        analysis
    }

    /// How many texts are remembered, and how many bytes they take, about.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.entries.limiter().bytes)
    }

    /// How many texts were found, and how many had to be analysed.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.entries.clear();
    }

    fn remember(&mut self, path: Option<&SearchPath>, analysis: &Arc<Analysis>) {
        let bytes = size_of::<(Key, Entry)>() + self.key.len() + bytes_of(analysis);
        let key = Key { text: self.key.as_slice().into(), path: path.cloned() };
        self.entries.insert(key, Entry { analysis: Arc::clone(analysis), bytes });
    }
}

fn bytes_of(analysis: &Analysis) -> usize {
    let columns = |columns: &Columns| match columns {
        Columns::All => 0,
        Columns::In(columns) => size_of_val(&**columns),
    };
    let items = |items: &Items| match items {
        Items::Tables(items) => {
            size_of_val(&**items) + items.iter().map(|item| columns(&item.columns)).sum::<usize>()
        }
        Items::Nothing | Items::Everything => 0,
    };
    let named = |rows: &[NamedRows]| rows.iter().map(NamedRows::bytes).sum::<usize>();
    let statement = |s: &Statement| {
        let names: usize = s.session.custom_settings.iter().map(|name| name.len() + 16).sum();
        let named = named(&s.read_rows) + named(&s.written_rows);
        size_of::<Statement>() + items(&s.reads) + items(&s.writes) + named + names
    };
    analysis.statements.iter().map(statement).sum()
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

    /// What is known of a statement by its number isn't known of another one: no number is used again, also when the
    /// first has been forgotten and its memory holds the second.
    #[test]
    fn numbers_are_not_used_again() {
        let mut cache = Cache::default();
        let mut numbers = std::collections::BTreeSet::new();
        for version in 0..50 {
            let catalog = Catalog::builder().build(version);
            for text in ["SELECT 1", "SELECT a FROM x", "SELECT a, b FROM x; SELECT 2"] {
                let number = cache.get(text, &catalog, None).number;
                assert!(number > 0 && numbers.insert(number), "{text}: {number}");
                assert_eq!(cache.get(text, &catalog, None).number, number);
            }
        }
        let long = format!("SELECT '{}'", "x".repeat(TEXT_BYTES_MAX));
        let catalog = Catalog::builder().build(50);
        assert!((0..2).all(|_| numbers.insert(cache.get(&long, &catalog, None).number)));
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
