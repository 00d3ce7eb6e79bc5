//! Entries: what the log holds, one for each transaction that the primary committed (the
//! papers' TState and writeset message), in the WAL's order (I2, I5).
//!
//! An entry is a header and chunks of at most [`CHUNK_LEN_MAX`] bytes, so that a transaction of any size needs
//! only bounded memory (I8). In the log, the header comes after the chunks: chunks without a header are not an
//! entry.

use std::sync::Arc;

use bytes::Bytes;

use crate::ids::{Lsn, Tsid};
use crate::items::{Items, RelId};
use crate::note::Note;

/// A chunk is closed when it reaches this size. Only a single change that is larger by itself
/// (a row with a huge value) makes a larger one.
pub const CHUNK_LEN_MAX: usize = 1 << 20;

/// What is known of an entry without its changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Position in the log.
    pub tsid: Tsid,
    /// Incarnation of the primary that committed it; with `commit_lsn` the entry's identity.
    pub incarnation: u32,
    /// LSN of the commit record.
    pub commit_lsn: Lsn,
    /// LSN right after the commit record: what the slot is confirmed to.
    pub end_lsn: Lsn,
    /// Low 32 bits of the transaction's id.
    pub xid: u32,
    /// Commit time, microseconds since 2000-01-01 UTC.
    pub commit_time_us: i64,
    /// What the transaction wrote; everything if it holds DDL.
    pub items: Items,
    /// Whether it holds notes of DDL.
    pub has_ddl: bool,
    /// Number of chunks.
    pub chunks: u32,
    /// Number of changes in them.
    pub changes: u64,
}

impl Header {
    /// Whether this stands for transactions that the primary can't decode. (No commit record is a byte long.)
    #[must_use]
    pub fn is_passed_over(&self) -> bool {
        self.end_lsn.0 - self.commit_lsn.0 == 1
    }
}

/// An entry as it goes through the process. Small ones carry their chunks along; of large ones
/// (`chunks` empty while `header.chunks` is not 0) the log is asked chunk by chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What is known without the changes.
    pub header: Header,
    /// The encoded chunks, if the entry is small enough to be held in memory.
    pub chunks: Vec<Bytes>,
}

/// How a relation's rows are identified in the stream (`pg_class.relreplident`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Primary key (`d`).
    Default,
    /// An index (`i`).
    Index,
    /// The whole row (`f`).
    Full,
    /// None (`n`): only inserts can be replicated.
    Nothing,
}

/// A column as the stream describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Name.
    pub name: String,
    /// OID of its type on the primary.
    pub type_oid: u32,
    /// Whether it belongs to the replica identity.
    pub key: bool,
}

/// A relation as the stream describes it. Every chunk that uses one carries it, so that chunks
/// stand alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relation {
    /// OID on the primary.
    pub id: RelId,
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// How rows are identified.
    pub identity: Identity,
    /// The published columns (generated ones are absent).
    pub columns: Vec<Column>,
}

/// A column's value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// A TOASTed value that the change left alone, hence absent from the stream.
    Unchanged,
    /// The text form.
    Text(Bytes),
}

impl Value {
    /// Its length in bytes; 0 without a text.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Value::Null | Value::Unchanged => 0,
            Value::Text(text) => text.len(),
        }
    }
}

/// The values of a row, one for each column of its relation.
pub type Tuple = Vec<Value>;

/// One change of a transaction, in its order.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Describes a relation that later changes of the same chunk use.
    Relation(Arc<Relation>),
    /// A new row.
    Insert {
        /// The relation.
        relation: RelId,
        /// The row.
        new: Tuple,
    },
    /// A changed row.
    Update {
        /// The relation.
        relation: RelId,
        /// The old key columns (others NULL) when the key changed, or the old row under FULL
        /// identity; `None` when the key is the same as in `new`.
        old: Option<Tuple>,
        /// The new row.
        new: Tuple,
    },
    /// A row that is gone: its key columns, or the whole row under FULL identity.
    Delete {
        /// The relation.
        relation: RelId,
        /// The old key or row.
        old: Tuple,
    },
    /// Tables emptied.
    Truncate {
        /// All of them, cascades included.
        relations: Vec<RelId>,
        /// `RESTART IDENTITY`.
        restart_identity: bool,
    },
    /// What the primary did to the schema.
    Note(Note),
}
