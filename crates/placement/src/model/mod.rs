//! How far a partially replicated system scales: the analytical model of the SIPRe paper,
//! section 3, equations (1) to (9).
//!
//! A site of capacity 1 does one unit of work in a unit of time. Running an access to an object
//! costs one unit at the site that runs it; a write costs each other holder of the object the
//! write overhead `wo`. The scale-out is the greatest load, in units of one unreplicated site,
//! of the given mix that the sites can run, over all ways to spread the accesses among the
//! holders.
//!
//! Departures:
//! - Equation (7) divides an object's writes by all *writes*, which can't equal `A_k U_k` unless
//!   every access writes (with even `U_k = u` it asks for `u = 1`). What the text defines, and what
//!   is solved here, divides by all *accesses*, as equation (6) does. Test
//!   `equation_7_as_printed_admits_only_loads_that_always_write`.
//! - The problem is called non-linear for the products `a_ik u_ik` and made linear by fixing
//!   `u_ik = U_k`, as a simplification. The products taken as variables make it linear as it stands
//!   ([`Writes::Anywhere`]), and the greatest scale-out is the same: the bound that a set of sites
//!   sets (see `proof.rs`) doesn't depend on where its writes run. Test
//!   `spreading_writes_freely_gains_nothing`.
//! - Sites may differ in capacity; the unit is a site of capacity 1.
//! - Every answer is proved before it is given, see [`solve()`].

pub mod even;
mod program;
mod proof;
mod solve;

pub use solve::{Error, ScaleOut, Usage, solve};

/// Sites of a system at most.
pub const SITES_MAX: usize = 1000;
/// Objects of a system at most.
pub const OBJECTS_MAX: usize = 100_000;
/// Copies of all objects together at most.
pub const COPIES_MAX: usize = 2_000_000;

/// A replicated system and its load: the replication schema `r` and the load `(A, U)`.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// The cost of applying a write at another holder, as a part of running it: `wo`, 0 to 1.
    pub write_overhead: f64,
    /// Where an object's writes may run.
    pub writes: Writes,
    /// The sites.
    pub sites: Vec<Site>,
    /// The objects.
    pub objects: Vec<Object>,
}

/// Where an object's writes may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Writes {
    /// At every holder the same part of the accesses writes: `u_ik = U_k` (section 3.3).
    #[default]
    Proportional,
    /// Reads and writes are spread independently of each other.
    Anywhere,
}

/// A site.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// What it is called.
    pub name: String,
    /// Its capacity: `C_i`, above 0; 1 is the unreplicated system.
    pub capacity: f64,
}

/// An object: a table or a fragment of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// What it is called.
    pub name: String,
    /// Its share of all accesses, relative to the others': `A_k`, at least 0.
    pub share: f64,
    /// The part of its accesses that write: `U_k`, 0 to 1.
    pub updates: f64,
    /// The sites that hold a copy, by their index, at least one.
    pub sites: Vec<usize>,
}

/// What is wrong with the description of a system.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A number is outside its range.
    #[error("{what} is {value}, it must be {range}")]
    Range {
        /// Which number.
        what: String,
        /// What was given.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// There is none of something, or too many.
    #[error("there are {count} {what}, there must be 1 to {max}")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many at most.
        max: usize,
    },
    /// An object that nobody holds.
    #[error("no site holds object {0}")]
    NoCopy(String),
    /// A copy at a site that isn't there.
    #[error("object {0} names a site that does not exist")]
    NoSuchSite(String),
    /// Two copies at one site.
    #[error("object {0} names a site twice")]
    SiteTwice(String),
    /// No object is accessed.
    #[error("the shares of the objects add up to 0")]
    NoLoad,
}

impl System {
    /// Checks the description.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), Invalid> {
        count("sites", self.sites.len(), SITES_MAX)?;
        count("objects", self.objects.len(), OBJECTS_MAX)?;
        fraction("the write overhead", self.write_overhead)?;
        for site in &self.sites {
            capacity(site)?;
        }
        for object in &self.objects {
            object.check(self.sites.len())?;
        }
        count("copies", self.objects.iter().map(|o| o.sites.len()).sum(), COPIES_MAX)?;
        let total: f64 = self.objects.iter().map(|o| o.share).sum();
        if total > 0.0 { Ok(()) } else { Err(Invalid::NoLoad) }
    }
}

impl Object {
    fn check(&self, sites: usize) -> Result<(), Invalid> {
        if !(self.share.is_finite() && self.share >= 0.0) {
            let what = format!("the share of object {}", self.name);
            return Err(Invalid::Range { what, value: self.share, range: "at least 0" });
        }
        fraction(&format!("the update share of object {}", self.name), self.updates)?;
        if self.sites.is_empty() {
            return Err(Invalid::NoCopy(self.name.clone()));
        }
        let mut holders = self.sites.clone();
        holders.sort_unstable();
        if holders.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Invalid::SiteTwice(self.name.clone()));
        }
        match holders.last() {
            Some(&last) if last >= sites => Err(Invalid::NoSuchSite(self.name.clone())),
            _ => Ok(()),
        }
    }
}

/// Capacities further apart than this are a slip of the pen, and numerically delicate.
const CAPACITY_RANGE: std::ops::RangeInclusive<f64> = 1e-3..=1e3;

fn capacity(site: &Site) -> Result<(), Invalid> {
    if CAPACITY_RANGE.contains(&site.capacity) {
        return Ok(());
    }
    let what = format!("the capacity of site {}", site.name);
    Err(Invalid::Range { what, value: site.capacity, range: "0.001 to 1000" })
}

fn fraction(what: &str, value: f64) -> Result<(), Invalid> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(Invalid::Range { what: what.to_owned(), value, range: "0 to 1" })
}

fn count(what: &'static str, count: usize, max: usize) -> Result<(), Invalid> {
    if (1..=max).contains(&count) { Ok(()) } else { Err(Invalid::Count { what, count, max }) }
}
