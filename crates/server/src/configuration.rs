//! The configuration of each server: `postgresql.conf`, `ALTER SYSTEM`, command lines. If TimeZone or
//! search_path differed between servers, results would depend on where a statement runs. So connections to
//! replicas are opened with the primary's values as command-line options, even if the values are equal, so that
//! a later reload at the replica doesn't change them. When the primary reloads its configuration, connections
//! that were opened with other values are closed as soon as they are idle. (Connections to the primary take on
//! new values by themselves, as all sessions do, but what they told clients at their start is no longer true.) A
//! client's session has its next unit run on the primary, and asks there what applies to it now.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use hihooi_session::sites::{PerSite, SiteId};

/// Settings that answers depend on, and their values; none for what only superusers may change there.
pub type Configuration = BTreeMap<String, Option<String>>;

/// Settings that connections to a site begin with, in place of the site's own.
pub type Given = Rc<Vec<(String, String)>>;

/// The configurations of all sites.
pub struct Configurations {
    /// As far as they are known.
    sites: RefCell<PerSite<Option<Configuration>>>,
    given: RefCell<PerSite<Given>>,
    /// How often the primary's was found changed.
    version: Cell<u64>,
}

impl Configurations {
    /// Of so many sites, none of which is known.
    #[must_use]
    pub fn new<T>(sites: &PerSite<T>) -> Configurations {
        Configurations {
            sites: RefCell::new(sites.map(|_| None)),
            given: RefCell::new(sites.map(|_| Given::default())),
            version: Cell::default(),
        }
    }

    /// Whether a site's is known.
    #[must_use]
    pub fn knows(&self, site: SiteId) -> bool {
        self.sites.borrow()[site].is_some()
    }

    /// How often the primary's was found changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    /// Takes note of a site's; the sites whose connections begin with something else from now on.
    pub fn set(&self, site: SiteId, configuration: Configuration) -> Vec<SiteId> {
        let before = self.sites.borrow_mut()[site].replace(configuration);
        let sites = self.sites.borrow();
        let mut changed = Vec::new();
        let mut given = self.given.borrow_mut();
        if site == SiteId::Primary && before.is_some() && before != sites.primary {
            self.version.set(self.version.get() + 1);
            given.primary = Given::default(); // nothing, but not what those of before began with
            changed.push(SiteId::Primary);
        }
        for (number, replica) in sites.replicas.iter().enumerate() {
            let now = given_at(sites.primary.as_ref(), replica.as_ref());
            let given = &mut given.replicas[number];
            if **given != now {
                *given = Rc::new(now);
                changed.push(SiteId::Replica(number));
            }
        }
        changed
    }

    /// Whether connections to a site still begin with this.
    #[must_use]
    pub fn is_current(&self, site: SiteId, given: &Given) -> bool {
        Rc::ptr_eq(&self.given.borrow()[site], given)
    }

    /// What connections to a site begin with.
    #[must_use]
    pub fn given(&self, site: SiteId) -> Given {
        self.given.borrow()[site].clone()
    }
}

/// What the primary has, of what sessions at a replica may set. (Another major version may not have it.
/// What only the replica has, it keeps: nothing can unset it.)
fn given_at(
    primary: Option<&Configuration>,
    replica: Option<&Configuration>,
) -> Vec<(String, String)> {
    let (Some(primary), Some(replica)) = (primary, replica) else { return Vec::new() };
    let given = primary.iter().filter_map(|(name, value)| {
        let may_set = match replica.get(name) {
            Some(there) => there.is_some(),
            None => name.contains('.'),
        };
        let value = value.as_ref().filter(|_| may_set)?;
        Some((name.clone(), value.clone()))
    });
    given.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(settings: &[(&str, &str)]) -> Configuration {
        let setting =
            |(name, value): &(&str, &str)| ((*name).to_owned(), Some((*value).to_owned()));
        settings.iter().map(setting).collect()
    }

    #[test]
    fn a_replica_is_given_what_the_primary_has() {
        let configurations = Configurations::new(&PerSite { primary: (), replicas: vec![(), ()] });
        let own = configuration(&[("TimeZone", "UTC"), ("DateStyle", "ISO, DMY"), ("x.own", "1")]);
        assert!(
            configurations.set(SiteId::Replica(0), own.clone()).is_empty(),
            "nothing to give yet"
        );
        assert!(!configurations.knows(SiteId::Primary));
        let mut primary = configuration(&[
            ("DateStyle", "ISO, DMY"),
            ("TimeZone", "Asia/Tokyo"),
            ("of_a_newer_version", "on"),
            ("x.custom", "2"),
        ]);
        assert_eq!(configurations.set(SiteId::Primary, primary.clone()), [SiteId::Replica(0)]);
        let all = [("DateStyle", "ISO, DMY"), ("TimeZone", "Asia/Tokyo"), ("x.custom", "2")];
        let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(configurations.given(SiteId::Replica(0))[..], all);
        assert!(configurations.given(SiteId::Primary).is_empty());
        assert!(configurations.given(SiteId::Replica(1)).is_empty(), "it isn't known yet");
        let began_with = configurations.given(SiteId::Primary);
        assert!(configurations.is_current(SiteId::Primary, &began_with));
        assert!(configurations.set(SiteId::Primary, primary.clone()).is_empty());
        assert_eq!(configurations.version(), 0, "it is as it was");
        primary.insert("TimeZone".to_owned(), Some("UTC".to_owned()));
        let all_sites = [SiteId::Primary, SiteId::Replica(0)];
        assert_eq!(configurations.set(SiteId::Primary, primary), all_sites);
        assert!(!configurations.is_current(SiteId::Primary, &began_with));
        assert_eq!(configurations.version(), 1);
        let changed = configuration(&[("TimeZone", "Asia/Tokyo"), ("DateStyle", "German")]);
        assert!(
            configurations.set(SiteId::Replica(0), changed).is_empty(),
            "its own values make no difference"
        );
        let mut guarded = own;
        guarded.insert("TimeZone".to_owned(), None);
        assert_eq!(configurations.set(SiteId::Replica(0), guarded), [SiteId::Replica(0)]);
        assert!(
            configurations.given(SiteId::Replica(0)).iter().all(|(name, _)| name != "TimeZone")
        );
    }
}
