//! Where reads and writes can meet, as an index: by row, by table, or anywhere. It finds only candidates,
//! possibly too many, never too few (I6); the exact test follows. The paper's tuple lookup table (RSSI paper,
//! appendix C.1.1), with predicates.

use std::collections::{BTreeMap, BTreeSet};

use hihooi_replication::items::RelId;

use crate::certification::TxnId;
use crate::certification::items::{Read, RowKey, Write};

/// A place where a read and a write can meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A row.
    Row(RelId, RowKey),
    /// Some row of the table.
    Table(RelId),
    /// Anything.
    Anywhere,
}

impl Place {
    /// The place that every write which touches this read has among its own.
    #[must_use]
    pub fn of_read(read: &Read) -> Place {
        match read {
            Read::Everything => Place::Anywhere,
            Read::Table { table, .. } | Read::Rows { table, .. } => Place::Table(*table),
            Read::Row { table, key, .. } => Place::Row(*table, *key),
        }
    }

    /// The places of a write: one for each kind of read.
    #[must_use]
    pub fn of_write(write: &Write) -> [Place; 3] {
        [Place::Row(write.table, write.key), Place::Table(write.table), Place::Anywhere]
    }
}

/// Which transactions are at a place. Bounded by what its owner keeps.
#[derive(Clone, Debug, Default)]
pub struct Places {
    at: BTreeMap<Place, BTreeSet<TxnId>>,
}

impl Places {
    /// Puts a transaction at a place.
    pub fn insert(&mut self, place: Place, id: TxnId) {
        self.at.entry(place).or_default().insert(id);
    }

    /// Takes it away from there.
    pub fn remove(&mut self, place: Place, id: TxnId) {
        if let Some(ids) = self.at.get_mut(&place) {
            ids.remove(&id);
            if ids.is_empty() {
                self.at.remove(&place);
            }
        }
    }

    /// Who is there, in the order of ids.
    pub fn at(&self, place: Place) -> impl Iterator<Item = TxnId> + '_ {
        self.at.get(&place).into_iter().flatten().copied()
    }
}
