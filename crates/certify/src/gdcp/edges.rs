//! What a site knows about reads and writes: the readsets of its own transactions, which are not sent to other
//! sites, and the writesets of all transactions (RSSI paper, section 4.1: `T_l,c`, `T_l,p`, `T_c`, `T_p`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::certification::items::{Read, Write};
use crate::certification::{Timestamp, TxnId};
use crate::gdcp::places::{Place, Places};

/// The readsets of a site's own transactions that are pending, or committed and not forgotten.
/// Bounded by `pending_max` and `committed_max` times `reads_max` of [`crate::gdcp::Limits`].
#[derive(Clone, Debug)]
pub struct Readsets {
    of: BTreeMap<TxnId, (Option<Timestamp>, Box<[Read]>)>,
    places: Places,
    reads_max: usize,
}

impl Readsets {
    /// None yet; of a transaction with more reads than `reads_max` it is only known that it read.
    #[must_use]
    pub fn new(reads_max: usize) -> Readsets {
        Readsets { of: BTreeMap::new(), places: Places::default(), reads_max }
    }

    /// Keeps the readset of a transaction that is proposed.
    pub fn add(&mut self, id: TxnId, reads: Vec<Read>) {
        let reads = if reads.len() > self.reads_max { vec![Read::Everything] } else { reads };
        for read in &reads {
            self.places.insert(Place::of_read(read), id);
        }
        self.of.insert(id, (None, reads.into()));
    }

    /// The transaction committed.
    pub fn commit(&mut self, id: TxnId, at: Timestamp) {
        if let Some((committed, _)) = self.of.get_mut(&id) {
            *committed = Some(at);
        }
    }

    /// The transaction didn't, or may be forgotten.
    pub fn remove(&mut self, id: TxnId) {
        let Some((_, reads)) = self.of.remove(&id) else { return };
        for read in &reads {
            self.places.remove(Place::of_read(read), id);
        }
    }

    /// Who of this site read what is written and is pending or committed after `since`.
    #[must_use]
    pub fn readers_of(&self, writer: TxnId, writes: &[Write], since: Timestamp) -> Vec<TxnId> {
        let mut readers = BTreeSet::new();
        for write in writes {
            for place in Place::of_write(write) {
                readers.extend(self.places.at(place).filter(|&reader| {
                    let (committed, reads) = &self.of[&reader];
                    reader != writer
                        && committed.is_none_or(|at| at > since)
                        && reads.iter().any(|read| read.touched_by(write))
                }));
            }
        }
        readers.into_iter().collect()
    }

    /// How many readsets are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

/// The writesets of all transactions that are pending or committed and not forgotten. Bounded by
/// `committed_max` and every site's `pending_max` of [`crate::gdcp::Limits`].
#[derive(Clone, Debug, Default)]
pub struct Writesets {
    of: BTreeMap<TxnId, (Option<Timestamp>, Arc<[Write]>)>,
    places: Places,
}

impl Writesets {
    /// Learns the writeset of a proposal.
    pub fn add(&mut self, id: TxnId, writes: Arc<[Write]>) {
        for place in writes.iter().flat_map(Place::of_write) {
            self.places.insert(place, id);
        }
        self.of.insert(id, (None, writes));
    }

    /// It committed.
    pub fn commit(&mut self, id: TxnId, at: Timestamp) {
        if let Some((committed, _)) = self.of.get_mut(&id) {
            *committed = Some(at);
        }
    }

    /// It didn't, or may be forgotten.
    pub fn remove(&mut self, id: TxnId) {
        let Some((_, writes)) = self.of.remove(&id) else { return };
        for place in writes.iter().flat_map(Place::of_write) {
            self.places.remove(place, id);
        }
    }

    /// Who wrote what is read, unseen by a snapshot of `begin`.
    #[must_use]
    pub fn unseen_by(&self, reader: TxnId, begin: Timestamp, reads: &[Read]) -> Vec<TxnId> {
        let mut writers = BTreeSet::new();
        for read in reads {
            writers.extend(self.places.at(Place::of_read(read)).filter(|&writer| {
                let (committed, writes) = &self.of[&writer];
                writer != reader
                    && committed.is_none_or(|at| at > begin)
                    && writes.iter().any(|write| read.touched_by(write))
            }));
        }
        writers.into_iter().collect()
    }
}
