//! Entries that are being processed by an applier.

use std::sync::Arc;

use hihooi_replication::codec::{KnownRelations, decode_chunk};
use hihooi_replication::entry::{Change, Entry, Header};
use hihooi_replication::ids::Tsid;

use super::set_aside::Blame;

/// An entry, decoded if it is small.
#[derive(Debug)]
pub(super) struct Work {
    pub entry: Arc<Entry>,
    /// Its changes; `None` when they must be read from the log chunk by chunk.
    pub changes: Option<Vec<Change>>,
    /// Bytes of its chunks.
    pub bytes: usize,
}

impl Work {
    /// Decodes an entry.
    ///
    /// # Errors
    /// A sentence for the operator when a chunk can't be read.
    pub(super) fn new(entry: Arc<Entry>, known: &mut KnownRelations) -> Result<Work, String> {
        let bytes = entry.chunks.iter().map(bytes::Bytes::len).sum();
        let changes = if is_in_log(&entry) { None } else { Some(decode(&entry, known)?) };
        Ok(Work { entry, changes, bytes })
    }

    pub(super) fn header(&self) -> &Header {
        &self.entry.header
    }
}

/// Whether an entry's chunks must be read from the log. A single one must, too, if it was full
/// before the transaction ended.
pub(super) fn is_in_log(entry: &Entry) -> bool {
    entry.header.chunks as usize > entry.chunks.len()
}

fn decode(entry: &Entry, known: &mut KnownRelations) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    for chunk in &entry.chunks {
        let decoded = decode_chunk(chunk, known)
            .map_err(|error| format!("entry {} of the log: {error}", entry.header.tsid))?;
        changes.extend(decoded);
    }
    Ok(changes)
}

/// Consecutive entries that become one transaction.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub works: Vec<Arc<Work>>,
    /// How often DDL was applied before: what was learnt under another number is void.
    pub generation: u64,
}

impl Group {
    /// The last entry: what the transaction's progress is (I5).
    pub(super) fn last(&self) -> &Header {
        self.works.last().expect("a group has entries").header()
    }
}

/// Why a group could not be executed or committed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection is gone, or the server can't work now: connect again and continue.
    Lost(String),
    /// The entry does not fit the replica's state; a predecessor may be missing.
    Refused(Refusal),
}

/// What did not fit.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// The entry.
    pub tsid: Tsid,
    /// In words.
    pub reason: String,
    /// Whether another attempt may succeed.
    pub again: Again,
    /// The table whose rows are the reason, whatever the replica holds.
    pub blame: Option<Blame>,
}

/// Whether another attempt to apply an entry may succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Again {
    /// It may, for a while: what was in its way, such as a lock, may be gone.
    Soon,
    /// It may at any time: the server's condition may be the reason, or functions that DDL runs have raised an error that
    /// looks so.
    AtAnyTime,
    /// It would only take as long.
    Never,
}

impl Refusal {
    /// Whether both are about rows of one table, or of none.
    pub(super) fn is_about_the_same_as(&self, other: &Refusal) -> bool {
        let table = |refusal: &Refusal| refusal.blame.as_ref().map(|blame| blame.relation.id);
        table(self) == table(other)
    }
}
