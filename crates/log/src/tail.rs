//! Keeps the newest entries in memory, so that appliers that keep up never read from disk (I8: bounded in
//! bytes). Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use hihooi_replication::entry::Entry;
use hihooi_replication::ids::Tsid;

/// What an entry takes besides its chunks: header, items, pointers.
const ENTRY_OVERHEAD: usize = 256;

/// Entries without a gap, up to the last one appended.
#[derive(Debug)]
pub(crate) struct Tail {
    entries: VecDeque<Arc<Entry>>,
    len: usize,
    len_max: usize,
}

impl Tail {
    pub(crate) fn new(len_max: usize) -> Tail {
        Tail { entries: VecDeque::new(), len: 0, len_max }
    }

    /// Appends the next entry and drops the oldest ones beyond the bound; those behind `durable`
    /// must stay, since they can't be read from disk yet (their number is bounded by the log's
    /// pending bytes).
    pub(crate) fn push(&mut self, entry: Arc<Entry>, durable: Tsid) {
        self.len += len_of(&entry);
        self.entries.push_back(entry);
        while self.len > self.len_max {
            match self.entries.front() {
                Some(oldest) if oldest.header.tsid <= durable => self.drop_oldest(),
                _ => break,
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.len -= len_of(&oldest);
        }
    }

    /// Drops what is below `below`.
    pub(crate) fn trim(&mut self, below: Tsid) {
        while self.entries.front().is_some_and(|oldest| oldest.header.tsid < below) {
            self.drop_oldest();
        }
    }

    /// Entries from `from` on within the limits, or `None` if `from` is older than the tail.
    pub(crate) fn read(
        &self,
        from: Tsid,
        entries_max: usize,
        bytes_max: usize,
    ) -> Option<Vec<Arc<Entry>>> {
        let first = self.entries.front()?.header.tsid;
        let skip = usize::try_from(from.0.checked_sub(first.0)?).ok()?;
        let mut budget = Budget::new(entries_max, bytes_max);
        let found = self.entries.iter().skip(skip).take_while(|entry| budget.takes(entry));
        Some(found.cloned().collect())
    }
}

/// The limits of one read: the first entry always fits.
pub(crate) struct Budget {
    entries: usize,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

impl Budget {
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Budget {
        Budget { entries: 0, bytes: 0, entries_max, bytes_max }
    }

    /// Whether this entry still fits; counts it if so.
    pub(crate) fn takes(&mut self, entry: &Entry) -> bool {
        let bytes = self.bytes + chunks_len(entry);
        let fits = self.entries == 0 || bytes <= self.bytes_max;
        if self.entries == self.entries_max || !fits {
            return false;
        }
        self.entries += 1;
        self.bytes = bytes;
        true
    }
}

fn chunks_len(entry: &Entry) -> usize {
    entry.chunks.iter().map(bytes::Bytes::len).sum()
}

fn len_of(entry: &Entry) -> usize {
    ENTRY_OVERHEAD + chunks_len(entry)
}
