//! Recovery of a site: mastership and version vector from its redo log (DynaMast paper, section V-C).
//!
//! Keeps I5: the data starts from a copy (its own last one, or another replica's); records that the copy
//! contains are used only for mastership, and the others are applied in the usual way. The site accepts updates
//! when its own log has been applied to its end.
//!
//! Departures: the paper reads mastership from the order of releases and grants in the logs, but
//! several logs have no common order; terms ([`crate::ids::Term`]) give it. And a recovered site
//! must not take updates on a partition before it has applied what its grant waited for; since a
//! grant is a record under equation 1, having applied one's own log to its end implies that.

use crate::mastership::Mastership;
use crate::record::Record;
use crate::site::{Site, SiteConfig};
use crate::vector::SiteVector;

/// A site on its way back.
#[derive(Debug)]
pub struct Recovery {
    config: SiteConfig,
    mastership: Mastership,
    copy: SiteVector,
    position: u64,
}

impl Recovery {
    /// From data that stand at `copy`, which is `position` of the shared log if there is one.
    /// [`SiteVector::zero`] and 0 for empty data, as of an in-memory database.
    #[must_use]
    pub fn from_copy(config: SiteConfig, copy: SiteVector, position: u64) -> Recovery {
        let mastership =
            Mastership::at_homes(config.me, config.sites, config.partitions, &config.homes);
        Recovery { config, mastership, copy, position }
    }

    /// A record of any site's log that the copy shows already, each log in its order. Records
    /// that the copy does not show are ignored: they come as events later.
    pub fn past<W>(&mut self, record: &Record<W>) {
        if let Some(change) = record.change().filter(|_| self.copy.shows(&record.vector)) {
            self.mastership.observe(&change);
        }
    }

    /// All of the past is read; the log holds `own_records` records of this site, and nothing of
    /// its earlier incarnation can be added any more.
    #[must_use]
    pub fn finish<W: Clone>(self, own_records: u64) -> Site<W> {
        Site::resume(self.config, self.mastership, self.copy, self.position, own_records)
    }
}
