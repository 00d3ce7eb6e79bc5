//! Which site stores what: the directory that section 4 of the SIPRe paper mentions. The same at all sites, and
//! fixed while a site runs.

use std::collections::{BTreeMap, BTreeSet};

use hihooi_certify::certification::SiteId;

use super::message::ObjectId;

/// Which sites hold which objects.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Catalog {
    holders: BTreeMap<ObjectId, BTreeSet<SiteId>>,
}

impl Catalog {
    /// Of objects and the sites that hold them.
    pub fn new(holders: impl IntoIterator<Item = (ObjectId, Vec<SiteId>)>) -> Catalog {
        let holders =
            holders.into_iter().map(|(object, sites)| (object, sites.into_iter().collect()));
        Catalog { holders: holders.collect() }
    }

    /// Whether a site holds an object.
    #[must_use]
    pub fn holds(&self, site: SiteId, object: ObjectId) -> bool {
        self.holders.get(&object).is_some_and(|sites| sites.contains(&site))
    }

    /// The sites that hold all of these objects, ascending; all sites that hold anything, for none.
    #[must_use]
    pub fn holders(&self, objects: &[ObjectId]) -> Vec<SiteId> {
        let everyone: BTreeSet<SiteId> = self.holders.values().flatten().copied().collect();
        everyone.into_iter().filter(|&site| objects.iter().all(|&o| self.holds(site, o))).collect()
    }
}
