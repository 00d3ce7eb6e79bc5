//! A site's rows with versions under snapshot isolation, where a snapshot is a version vector. A row is a list
//! that only grows; a write carries what the list becomes, so that overwriting a version without having seen it
//! loses that version's value.

use std::rc::Rc;

use hihooi_mastering::vector::{SiteVector, TransactionVector};

/// A row's key, from 0 and dense.
pub type Key = u32;
/// A value, unique in the run.
pub type Element = u64;
/// What a row becomes, for each row that a transaction wrote.
pub type Writes = Rc<Vec<(Key, Rc<Vec<Element>>)>>;

#[derive(Clone, Debug)]
struct Version {
    at: TransactionVector,
    list: Rc<Vec<Element>>,
}

/// A site's rows; a row's versions in the order in which they were applied.
#[derive(Clone, Debug)]
pub struct Rows(Vec<Vec<Version>>);

impl Rows {
    /// Empty rows.
    #[must_use]
    pub fn new(keys: u32) -> Rows {
        Rows(vec![Vec::new(); keys as usize])
    }

    /// How many rows there are.
    #[must_use]
    pub fn keys(&self) -> u32 {
        self.0.len() as u32
    }

    /// The row in a snapshot.
    #[must_use]
    pub fn list(&self, key: Key, snapshot: &SiteVector) -> &[Element] {
        let versions = self.0[key as usize].iter().rev();
        let seen = versions.into_iter().find(|version| snapshot.shows(&version.at));
        seen.map_or(&[], |version| &version.list)
    }

    /// Nothing newer than the snapshot is there: the first committer wins.
    #[must_use]
    pub fn may_write(&self, key: Key, snapshot: &SiteVector) -> bool {
        self.0[key as usize].last().is_none_or(|version| snapshot.shows(&version.at))
    }

    /// Makes a commit's writes visible.
    pub fn apply(&mut self, at: &TransactionVector, writes: &Writes) {
        for (key, list) in writes.iter() {
            self.0[*key as usize].push(Version { at: at.clone(), list: list.clone() });
        }
    }
}
