//! What the configuration of each server says: `postgresql.conf`, `ALTER SYSTEM`, command lines. Servers
//! whose TimeZone or search_path differ would answer differently, and which one answers is nobody's
//! business but ours. So a replica's connections are given the primary's values as command-line options.
//! When a server reads its configuration anew, they are compared again, and connections that began with
//! others are closed when they are free. (The primary's own take over what it reads by themselves.)

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::route::PRIMARY;

/// Settings that answers depend on, and their values; none for what only superusers may change there.
pub type Configuration = BTreeMap<String, Option<String>>;

/// Settings that connections to a site begin with, in place of the site's own.
pub type Given = Rc<Vec<(String, String)>>;

/// The configurations of all sites.
pub struct Configurations {
    /// As far as they are known.
    sites: RefCell<Vec<Option<Configuration>>>,
    given: RefCell<Vec<Given>>,
}

impl Configurations {
    /// Of so many sites, none of which is known.
    #[must_use]
    pub fn new(sites: usize) -> Configurations {
        Configurations {
            sites: RefCell::new(vec![None; sites]),
            given: RefCell::new(vec![Given::default(); sites]),
        }
    }

    /// Whether a site's is known.
    #[must_use]
    pub fn knows(&self, site: usize) -> bool {
        self.sites.borrow()[site].is_some()
    }

    /// Takes note of a site's; the sites whose connections begin with something else from now on.
    pub fn set(&self, site: usize, configuration: Configuration) -> Vec<usize> {
        self.sites.borrow_mut()[site] = Some(configuration);
        let sites = self.sites.borrow();
        let mut changed = Vec::new();
        for (site, given) in self.given.borrow_mut().iter_mut().enumerate() {
            let differing = differing(sites[PRIMARY].as_ref(), sites[site].as_ref());
            if **given != differing {
                *given = Rc::new(differing);
                changed.push(site);
            }
        }
        changed
    }

    /// Whether connections to a site still begin with this.
    #[must_use]
    pub fn is_current(&self, site: usize, given: &Given) -> bool {
        Rc::ptr_eq(&self.given.borrow()[site], given)
    }

    /// What connections to a site begin with.
    #[must_use]
    pub fn given(&self, site: usize) -> Given {
        self.given.borrow()[site].clone()
    }
}

/// What the primary has and a site has not. (What only the site has, it keeps: nothing can unset it.)
fn differing(
    primary: Option<&Configuration>,
    site: Option<&Configuration>,
) -> Vec<(String, String)> {
    let (Some(primary), Some(site)) = (primary, site) else { return Vec::new() };
    let given = primary.iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        let is_as_it_is =
            site.get(name).is_some_and(|there| there.as_ref().is_none_or(|v| v == value));
        (!is_as_it_is).then(|| (name.clone(), value.clone()))
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
    fn a_replica_is_given_what_differs() {
        let configurations = Configurations::new(3);
        let changed = configurations.set(1, configuration(&[("TimeZone", "UTC"), ("x.own", "1")]));
        assert!(changed.is_empty() && !configurations.knows(PRIMARY), "nothing to compare with");
        let primary = configuration(&[("DateStyle", "ISO, DMY"), ("TimeZone", "Asia/Tokyo")]);
        assert_eq!(configurations.set(PRIMARY, primary.clone()), [1]);
        let all = [("DateStyle", "ISO, DMY"), ("TimeZone", "Asia/Tokyo")];
        let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(configurations.given(1)[..], all);
        assert!(configurations.given(2).is_empty(), "it isn't known yet");
        assert!(configurations.set(2, primary).is_empty(), "it is like the primary");
        let mut guarded = configuration(&[("DateStyle", "ISO, DMY")]);
        guarded.insert("TimeZone".to_owned(), None);
        assert_eq!(configurations.set(1, guarded), [1]);
        assert!(configurations.given(1).is_empty(), "what a client may not set isn't given");
    }
}
