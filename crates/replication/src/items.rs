//! What a statement or a transaction touches (Hihooi section 4.1). Tables for now; columns and
//! rows narrow it later. Wrong only towards "touches more" (I6).

/// A relation by its OID on the primary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RelId(pub u32);

/// A set of items.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Items {
    /// Touches nothing that is replicated.
    #[default]
    Nothing,
    /// Touches these tables: sorted, without duplicates, not empty.
    Tables(Box<[RelId]>),
    /// Could touch anything.
    Everything,
}

impl Items {
    /// The set of these tables; [`Items::Nothing`] if there is none.
    pub fn tables(tables: impl IntoIterator<Item = RelId>) -> Items {
        let mut tables: Vec<RelId> = tables.into_iter().collect();
        tables.sort_unstable();
        tables.dedup();
        if tables.is_empty() { Items::Nothing } else { Items::Tables(tables.into()) }
    }

    /// What is in either set.
    #[must_use]
    pub fn union(&self, other: &Items) -> Items {
        match (self, other) {
            (Items::Everything, _) | (_, Items::Everything) => Items::Everything,
            (Items::Nothing, set) | (set, Items::Nothing) => set.clone(),
            (Items::Tables(a), Items::Tables(b)) => {
                Items::tables(a.iter().chain(b.iter()).copied())
            }
        }
    }

    /// Whether some item is in both sets.
    #[must_use]
    pub fn overlaps(&self, other: &Items) -> bool {
        match (self, other) {
            (Items::Nothing, _) | (_, Items::Nothing) => false,
            (Items::Everything, _) | (_, Items::Everything) => true,
            (Items::Tables(a), Items::Tables(b)) => a.iter().any(|t| b.binary_search(t).is_ok()),
        }
    }

    /// Whether nothing is touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Items::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(oids: &[u32]) -> Items {
        Items::tables(oids.iter().map(|&oid| RelId(oid)))
    }

    #[test]
    fn union_and_overlap_follow_set_algebra() {
        assert_eq!(tables(&[]), Items::Nothing);
        assert_eq!(tables(&[3, 1]).union(&tables(&[2, 3])), tables(&[1, 2, 3]));
        assert_eq!(tables(&[1]).union(&Items::Everything), Items::Everything);
        assert!(tables(&[1, 5]).overlaps(&tables(&[5, 9])));
        assert!(!tables(&[1, 5]).overlaps(&tables(&[2, 9])));
        assert!(Items::Everything.overlaps(&tables(&[2])));
        assert!(!Items::Everything.overlaps(&Items::Nothing));
    }
}
