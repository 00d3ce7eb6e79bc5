//! The ids of sites, and collections with one element for each site.

use std::iter;
use std::ops::{Index, IndexMut};

/// A site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SiteId {
    /// The primary.
    Primary,
    /// A replica, by its place in the configuration, from 0 on.
    Replica(usize),
}

/// One for each site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PerSite<T> {
    /// The primary's.
    pub primary: T,
    /// The replicas', in the order of the configuration.
    pub replicas: Vec<T>,
}

impl<T> PerSite<T> {
    /// What `make` makes of each of these.
    pub fn map<U>(&self, mut make: impl FnMut(&T) -> U) -> PerSite<U> {
        PerSite { primary: make(&self.primary), replicas: self.replicas.iter().map(make).collect() }
    }

    /// The sites, the primary first.
    pub fn ids(&self) -> impl Iterator<Item = SiteId> + use<T> {
        iter::once(SiteId::Primary).chain((0..self.replicas.len()).map(SiteId::Replica))
    }

    /// All of them, the primary's first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        iter::once(&self.primary).chain(&self.replicas)
    }
}

impl<T> Index<SiteId> for PerSite<T> {
    type Output = T;

    fn index(&self, site: SiteId) -> &T {
        match site {
            SiteId::Primary => &self.primary,
            SiteId::Replica(number) => &self.replicas[number],
        }
    }
}

impl<T> IndexMut<SiteId> for PerSite<T> {
    fn index_mut(&mut self, site: SiteId) -> &mut T {
        match site {
            SiteId::Primary => &mut self.primary,
            SiteId::Replica(number) => &mut self.replicas[number],
        }
    }
}
