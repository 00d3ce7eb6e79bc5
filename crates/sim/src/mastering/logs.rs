//! Which records of a raw log are valid. The kernel's logs accept every append, also one that was ordered twice
//! or comes late from a site's incarnation before its crash. All readers apply these rules to the same entries
//! in the same order and so see the same log:
//!
//! - a record is valid if it is the next of its site;
//! - and if no later incarnation of its site has opened the log before it.

use std::rc::Rc;

use hihooi_mastering::ids::SiteId;
use hihooi_mastering::record::Record;
use hihooi_mastering::refresh::Order;

use crate::mastering::rows::Writes;
use crate::{LogId, NodeId, Position};

/// An entry of a raw log.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A record, with the incarnation of its site.
    Record(u32, Rc<Record<Writes>>),
    /// From here on only this incarnation of the site counts.
    Opened(SiteId, u32),
    /// A selector's incarnation has come to here.
    Mark(NodeId, u32),
}

/// What a reader is told of an entry.
#[derive(Clone, Debug)]
pub enum Read {
    /// A record that counts, and its position in the log of those that do, from 1.
    Record(u64, Rc<Record<Writes>>),
    /// The site's incarnation has opened the log, which holds so many of its records.
    Opened(SiteId, u32, u64),
    /// See [`Entry::Mark`].
    Mark(NodeId, u32),
    /// It does not count.
    Nothing,
}

/// The log that a site writes to.
#[must_use]
pub fn log_of(order: Order, site: SiteId) -> LogId {
    match order {
        Order::Causal => LogId(site.0),
        Order::Total => LogId(0),
    }
}

/// How many logs there are.
#[must_use]
pub fn logs(order: Order, sites: u16) -> u16 {
    if order == Order::Total { 1 } else { sites }
}

/// A reader of all logs.
#[derive(Clone, Debug)]
pub struct Reader {
    order: Order,
    /// Of each log: the raw position that comes next.
    next: Vec<Position>,
    /// Of each site: its incarnation, and how many records of it counted.
    sites: Vec<(u32, u64)>,
}

impl Reader {
    /// From the beginning.
    #[must_use]
    pub fn new(order: Order, sites: u16) -> Reader {
        let next = vec![Position(0); usize::from(logs(order, sites))];
        Reader { order, next, sites: vec![(0, 0); usize::from(sites)] }
    }

    /// How many records of a site counted so far.
    #[must_use]
    pub fn records(&self, site: SiteId) -> u64 {
        self.sites[site.index()].1
    }

    /// Reads the next raw entry of a log; one that was read before says nothing.
    pub fn read(&mut self, log: LogId, position: Position, entry: &Entry) -> Read {
        let next = &mut self.next[usize::from(log.0)];
        if position != *next {
            return Read::Nothing;
        }
        next.0 += 1;
        match entry {
            Entry::Mark(node, incarnation) => Read::Mark(*node, *incarnation),
            Entry::Opened(site, incarnation) => {
                let known = &mut self.sites[site.index()];
                known.0 = known.0.max(*incarnation);
                Read::Opened(*site, *incarnation, known.1)
            }
            Entry::Record(incarnation, record) => self.record(*incarnation, record),
        }
    }

    fn record(&mut self, incarnation: u32, record: &Rc<Record<Writes>>) -> Read {
        let known = &mut self.sites[record.vector.origin().index()];
        if incarnation < known.0 || record.vector.number() != known.1 + 1 {
            return Read::Nothing;
        }
        known.1 += 1;
        let position = match self.order {
            Order::Causal => known.1,
            Order::Total => self.sites.iter().map(|site| site.1).sum(),
        };
        Read::Record(position, record.clone())
    }
}
