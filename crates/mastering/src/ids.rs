//! Ids as types, so that a site is never mistaken for a partition.

use std::fmt;

/// Most sites of one cluster; vectors have a slot for each.
pub const SITES_MAX: usize = 64;

/// A data site, counted from 0: the index of its slot in every version vector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SiteId(pub u16);

impl SiteId {
    /// Its slot in vectors.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for SiteId {
    /// Counted from 1, as in the paper: `S1` has the first slot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S{}", self.0 + 1)
    }
}

/// A partition group: the unit of mastership (DynaMast paper, section V-B), counted densely
/// from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PartitionId(pub u32);

impl PartitionId {
    /// Its place in dense tables.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// A client session: the scope of the freshness guarantee (DynaMast paper, section III-A).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClientId(pub u64);

/// A transaction, named by the shell; no two of a cluster's life are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TxnId(pub u64);

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

/// How often the mastership of a partition has been granted: 0 for its first home. A release
/// ends a term and a grant begins the next, so that late and doubled messages are recognised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u64);

impl Term {
    /// The term that a grant begins.
    #[must_use]
    pub fn next(self) -> Term {
        Term(self.0 + 1)
    }
}
