//! Systems of equal sites and equal objects, as the SIPRe paper's section 3.3 compares them: full replication,
//! pure partial replication, and hybrid (some sites store everything).

use super::{COPIES_MAX, Invalid, OBJECTS_MAX, Object, SITES_MAX, Site, System, Writes, count};

/// An even system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Even {
    /// Sites: `n`.
    pub sites: usize,
    /// Of these, sites that hold everything.
    pub full_sites: usize,
    /// Copies of each object at the other sites.
    pub copies: usize,
    /// Objects, all with the same share of the load.
    pub objects: usize,
    /// The part of the accesses that write: `u`.
    pub updates: f64,
    /// The write overhead: `wo`.
    pub write_overhead: f64,
    /// Where writes may run.
    pub writes: Writes,
}

impl Even {
    /// Its description. The copies are dealt out in turn, so that two partial sites' numbers of
    /// copies differ by one at most, and by none when sites divide `objects * copies`.
    ///
    /// # Errors
    /// More copies than sites to hold them, or what [`System::check`] finds.
    pub fn system(&self) -> Result<System, Invalid> {
        let partial = self.bounded()?;
        let system = System {
            write_overhead: self.write_overhead,
            writes: self.writes,
            sites: (0..self.sites).map(site).collect(),
            objects: (0..self.objects).map(|k| self.object(k, partial)).collect(),
        };
        system.check()?;
        Ok(system)
    }

    /// The number of sites that are not full, if the description is of a size that can be written
    /// out.
    fn bounded(&self) -> Result<usize, Invalid> {
        let at_most = |what, given, max| match given <= max {
            true => Ok(()),
            false => Err(Invalid::Count { what, count: given, max }),
        };
        count("sites", self.sites, SITES_MAX)?;
        count("objects", self.objects, OBJECTS_MAX)?;
        at_most("full sites", self.full_sites, self.sites)?;
        let partial = self.sites - self.full_sites;
        at_most("copies", self.copies, partial)?;
        at_most("copies", self.objects * (self.full_sites + self.copies), COPIES_MAX)?;
        Ok(partial)
    }

    fn object(&self, k: usize, partial: usize) -> Object {
        let dealt =
            (0..self.copies).map(|copy| self.full_sites + (k * self.copies + copy) % partial);
        Object {
            name: format!("object{}", k + 1),
            share: 1.0,
            updates: self.updates,
            sites: (0..self.full_sites).chain(dealt).collect(),
        }
    }
}

fn site(index: usize) -> Site {
    Site { name: format!("site{}", index + 1), capacity: 1.0 }
}

/// The scale-out of an even system whose sites all hold equally much, from equation (5) with
/// equal `a_ik`: every site spends `1 + wo u (copies - 1)` on each access that it runs. With
/// `copies = sites` it is that of full replication.
#[must_use]
pub fn closed_form(sites: usize, copies: usize, updates: f64, write_overhead: f64) -> f64 {
    sites as f64 / (1.0 + write_overhead * updates * (copies as f64 - 1.0))
}
