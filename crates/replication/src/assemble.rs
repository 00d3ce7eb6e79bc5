//! Makes entries of the log from the messages of the stream (Hihooi section 4.2; the TSID is the transaction's
//! place in the write-ahead log). Pure.
//!
//! Keeps I5: transactions arrive in commit order, one after the other, so each gets the next TSID when it
//! begins. A transaction that is in the log already is recognised by its commit LSN and skipped. A transaction
//! that changes nothing that is replicated gets neither an entry nor a TSID. Keeps I6: items are either exact,
//! or everything.
//!
//! Schema changes are in the stream as rows of `hihooi.note`, which event triggers insert ([`crate::note`]).
//! When a whole table is sent, its rows arrive as logical decoding messages. These are used only if a note of
//! the same transaction contains their token.

use ahash::AHashMap;
use bytes::Bytes;

use crate::codec::{ChunkWriter, encode_relation};
use crate::entry::{Change, Column, Entry, Header, Identity, Relation, Tuple, Value};
use crate::ids::{Lsn, Tsid};
use crate::items::{Items, RelId};
use crate::note::{self, Note, Row};
use crate::pgoutput::Message;
use crate::text::text_of;
use crate::written::{self, KeyColumns, Written, WrittenTable};

/// Schema of everything that we create on the primary; its changes are not replicated.
pub const OUR_SCHEMA: &str = "hihooi";
/// Table in it into which the event triggers write.
pub const NOTE_TABLE: &str = "note";
/// Prefix of the messages that hold rows which travel whole.
pub const ROWS_PREFIX: &str = "hihooi_rows";
/// Prefix of messages that only make the primary flush its log; their content means nothing.
pub const FLUSH_PREFIX: &str = "hihooi_flush";
/// An entry that writes more tables counts as touching everything.
pub const ITEMS_TABLES_MAX: usize = 256;
/// Relations that one stream may describe. Beyond, the stream begins anew, which forgets those
/// that are gone.
pub const RELATIONS_MAX: usize = 1 << 20;
/// What the messages amount to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A full chunk of the transaction that is coming in.
    Chunk {
        /// TSID that its entry will have.
        tsid: Tsid,
        /// Its number, from 0.
        n: u32,
        /// Its content.
        bytes: Bytes,
    },
    /// A whole entry, and what it wrote; its only chunk is inside, several were told before.
    Entry(Entry, Written),
    /// Every transaction whose commit record begins before this LSN was told.
    Passed(Lsn),
}

/// Messages in an order that makes no sense: the stream must begin anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssembleError {
    /// A change, or an end, without a beginning, or two beginnings.
    #[error("the stream's transactions don't begin and end in turn")]
    Unbalanced,
    /// A change of a relation that was not described, or with another number of columns.
    #[error("the stream did not describe relation {0}")]
    Relation(u32),
    /// More than [`RELATIONS_MAX`] relations.
    #[error("the stream described more than {RELATIONS_MAX} relations")]
    TooManyRelations,
}

type Result<T> = std::result::Result<T, AssembleError>;

/// Turns messages into entries.
#[derive(Debug)]
pub struct Assembler {
    incarnation: u32,
    next: Tsid,
    /// Transactions up to this commit LSN are in the log.
    resume: Lsn,
    relations: AHashMap<RelId, Described>,
    open: Option<Transaction>,
    /// The next transaction's; its memory is used again.
    chunk: ChunkWriter,
}

/// A relation as the stream described it last, and what each transaction needs of that.
#[derive(Debug)]
struct Described {
    relation: Relation,
    /// Its description in a chunk.
    bytes: Bytes,
    /// The columns of its replica identity.
    key: KeyColumns,
}

impl Described {
    fn new(relation: Relation) -> Described {
        let (bytes, key) = (encode_relation(&relation), written::key_columns(&relation));
        Described { relation, bytes, key }
    }
}

/// The transaction that is coming in.
#[derive(Debug)]
struct Transaction {
    commit_lsn: Lsn,
    commit_time_us: i64,
    xid: u32,
    /// The log holds it already.
    known: bool,
    chunk: ChunkWriter,
    chunks: u32,
    changes: u64,
    tables: AHashMap<RelId, WrittenTable>,
    has_ddl: bool,
    /// The table whose rows come in messages, and what stands in front of each.
    whole: Option<(Described, Vec<u8>)>,
}

impl Assembler {
    /// An assembler for a stream that goes on behind `last`, the last entry of the log, and
    /// belongs to this incarnation of the primary.
    #[must_use]
    pub fn new(incarnation: u32, last: Option<&Header>) -> Assembler {
        let known = last.filter(|last| last.incarnation == incarnation);
        Assembler {
            incarnation,
            next: last.map_or(Tsid(1), |last| last.tsid.next()),
            resume: known.map_or(Lsn(0), |last| last.commit_lsn),
            relations: AHashMap::new(),
            open: None,
            chunk: ChunkWriter::new(),
        }
    }

    /// Whether a transaction has come in partly.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.open.is_some()
    }

    /// Takes the position of a keepalive.
    pub fn keepalive(&mut self, end: Lsn, out: &mut Vec<Output>) {
        if self.open.is_none() {
            out.push(Output::Passed(end));
        }
    }

    /// Makes one entry, which replicas can't follow, of all transactions that have not come in and whose commit records begin
    /// before `end`: the server can't decode one of them. Who sees `xid` (low 32 bits) sees all of them; `why` is for people.
    ///
    /// # Errors
    /// [`AssembleError::Unbalanced`] if a transaction has come in partly.
    pub fn pass_over(
        &mut self,
        end: Lsn,
        xid: u32,
        time_us: i64,
        why: String,
        out: &mut Vec<Output>,
    ) -> Result<()> {
        // (No record begins a byte before the end.)
        self.begin(Lsn(end.0.saturating_sub(1)), time_us, xid)?;
        let transaction = self.open.as_mut().ok_or(AssembleError::Unbalanced)?;
        transaction.has_ddl = true;
        transaction.push(&Change::Note(Note::Undecoded(why)), self.next, out);
        // By itself, in place of what the log may have of a transaction that came in partly.
        let chunk = transaction.close_chunk(self.next);
        out.push(chunk);
        self.commit(end, out)
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// [`AssembleError`]: the stream must begin anew with another assembler.
    pub fn step(&mut self, message: Message, out: &mut Vec<Output>) -> Result<()> {
        match message {
            Message::Begin { commit_lsn, commit_time_us, xid } => {
                self.begin(commit_lsn, commit_time_us, xid)
            }
            Message::Commit { end_lsn, .. } => self.commit(end_lsn, out),
            Message::Relation(relation) => self.describe(relation),
            Message::Insert { relation, new } => self.insert(relation, new, out),
            Message::Update { relation, old, new } => {
                self.check(relation, old.iter().chain([&new]))?;
                self.change(&[relation], Change::Update { relation, old, new }, out)
            }
            Message::Delete { relation, old } => {
                self.check(relation, [&old])?;
                self.change(&[relation], Change::Delete { relation, old }, out)
            }
            Message::Truncate { relations, restart_identity } => {
                self.truncate(relations, restart_identity, out)
            }
            Message::Logical { transactional, prefix, content } => {
                if transactional && prefix == ROWS_PREFIX.as_bytes() {
                    self.whole_row(&content, out)?;
                }
                Ok(())
            }
            Message::Origin | Message::Type => Ok(()),
        }
    }

    fn begin(&mut self, commit_lsn: Lsn, commit_time_us: i64, xid: u32) -> Result<()> {
        if self.open.is_some() {
            return Err(AssembleError::Unbalanced);
        }
        self.open = Some(Transaction {
            commit_lsn,
            commit_time_us,
            xid,
            known: commit_lsn <= self.resume,
            chunk: std::mem::take(&mut self.chunk),
            chunks: 0,
            changes: 0,
            tables: AHashMap::new(),
            has_ddl: false,
            whole: None,
        });
        Ok(())
    }

    fn commit(&mut self, end_lsn: Lsn, out: &mut Vec<Output>) -> Result<()> {
        let transaction = self.open.take().ok_or(AssembleError::Unbalanced)?;
        if !transaction.known && transaction.changes > 0 {
            let (entry, written) = self.entry(transaction, end_lsn, out);
            self.resume = entry.header.commit_lsn;
            self.next = self.next.next();
            out.push(Output::Entry(entry, written));
        }
        out.push(Output::Passed(end_lsn));
        Ok(())
    }

    fn entry(
        &mut self,
        mut transaction: Transaction,
        end_lsn: Lsn,
        out: &mut Vec<Output>,
    ) -> (Entry, Written) {
        let mut chunks = Vec::new();
        if transaction.chunks == 0 {
            chunks.push(transaction.chunk.finish());
            transaction.chunks = 1;
        } else if !transaction.chunk.is_empty() {
            out.push(transaction.close_chunk(self.next));
        }
        let entry = Entry {
            header: Header {
                tsid: self.next,
                incarnation: self.incarnation,
                commit_lsn: transaction.commit_lsn,
                end_lsn,
                xid: transaction.xid,
                commit_time_us: transaction.commit_time_us,
                items: transaction.items(),
                has_ddl: transaction.has_ddl,
                chunks: transaction.chunks,
                changes: transaction.changes,
            },
            chunks,
        };
        self.chunk = std::mem::take(&mut transaction.chunk);
        (entry, transaction.into_written())
    }

    fn describe(&mut self, relation: Relation) -> Result<()> {
        if let Some(transaction) = &mut self.open {
            transaction.chunk.redefine(relation.id);
        }
        self.relations.insert(relation.id, Described::new(relation));
        let fits = self.relations.len() <= RELATIONS_MAX;
        if fits { Ok(()) } else { Err(AssembleError::TooManyRelations) }
    }

    fn relation(&self, id: RelId) -> Result<&Relation> {
        let described = self.relations.get(&id).ok_or(AssembleError::Relation(id.0))?;
        Ok(&described.relation)
    }

    fn check<'a>(&self, id: RelId, tuples: impl IntoIterator<Item = &'a Tuple>) -> Result<()> {
        let columns = self.relation(id)?.columns.len();
        let fits = tuples.into_iter().all(|tuple| tuple.len() == columns);
        if fits { Ok(()) } else { Err(AssembleError::Relation(id.0)) }
    }

    fn is_ours(&self, id: RelId) -> Result<bool> {
        Ok(self.relation(id)?.schema == OUR_SCHEMA)
    }

    fn insert(&mut self, relation: RelId, new: Tuple, out: &mut Vec<Output>) -> Result<()> {
        self.check(relation, [&new])?;
        if self.is_ours(relation)? {
            return self.note(relation, &new, out);
        }
        self.change(&[relation], Change::Insert { relation, new }, out)
    }

    fn truncate(
        &mut self,
        mut relations: Vec<RelId>,
        restart_identity: bool,
        out: &mut Vec<Output>,
    ) -> Result<()> {
        for &relation in &relations {
            self.relation(relation)?;
        }
        relations.retain(|relation| !self.is_ours(*relation).unwrap_or(true));
        let change = Change::Truncate { relations: relations.clone(), restart_identity };
        self.change(&relations, change, out)
    }

    /// Adds a change of these relations, described in front of it where its chunk has not yet.
    fn change(&mut self, relations: &[RelId], change: Change, out: &mut Vec<Output>) -> Result<()> {
        let Some(&first) = relations.first() else { return Ok(()) };
        if self.is_ours(first)? {
            return Ok(());
        }
        let transaction = self.open.as_mut().ok_or(AssembleError::Unbalanced)?;
        if transaction.known {
            return Ok(());
        }
        for id in relations {
            let described = self.relations.get(id).ok_or(AssembleError::Relation(id.0))?;
            transaction.chunk.describe(*id, &described.bytes);
            transaction.touch(described, &change);
        }
        transaction.push(&change, self.next, out);
        Ok(())
    }

    /// Takes a row that an event trigger wrote into one of our tables.
    fn note(&mut self, id: RelId, row: &Tuple, out: &mut Vec<Output>) -> Result<()> {
        let relation = self.relation(id)?;
        let read = match relation.name.as_str() {
            NOTE_TABLE => {
                Row::read(&value_of(relation, row, "event"), &value_of(relation, row, "body"))
            }
            // The first versions' table: what they announced is not understood any more.
            "ddl" => {
                let text = value_of(relation, row, "text");
                Row::Note(Note::Unknown(format!("DDL noted by an earlier version: {text}")))
            }
            _ => return Ok(()),
        };
        let transaction = self.open.as_mut().ok_or(AssembleError::Unbalanced)?;
        if transaction.known {
            return Ok(());
        }
        match read {
            Row::Rows(rows) => transaction.begin_rows(rows),
            Row::RowsEnd => transaction.end_rows(),
            Row::Note(note) => {
                transaction.has_ddl = true;
                transaction.push(&Change::Note(note), self.next, out);
            }
        }
        Ok(())
    }

    /// Takes a row of a table whose rows travel whole. A message that isn't one means nothing: any
    /// role may emit messages.
    fn whole_row(&mut self, content: &[u8], out: &mut Vec<Output>) -> Result<()> {
        let transaction = self.open.as_mut().ok_or(AssembleError::Unbalanced)?;
        let Some((described, token)) = &transaction.whole else { return Ok(()) };
        let Some(row) = content.strip_prefix(&token[..]) else { return Ok(()) };
        let relation = &described.relation;
        let id = relation.id;
        let values = note::elements(row).filter(|values| values.len() == relation.columns.len());
        let values = values.ok_or(AssembleError::Relation(id.0))?;
        let value = |value: Option<Vec<u8>>| value.map_or(Value::Null, |v| Value::Text(v.into()));
        let new = values.into_iter().map(value).collect();
        transaction.chunk.describe(id, &described.bytes);
        transaction.push(&Change::Insert { relation: id, new }, self.next, out);
        Ok(())
    }
}

impl Transaction {
    fn push(&mut self, change: &Change, tsid: Tsid, out: &mut Vec<Output>) {
        self.chunk.push(change);
        self.changes += 1;
        if self.chunk.is_full() {
            out.push(self.close_chunk(tsid));
        }
    }

    fn close_chunk(&mut self, tsid: Tsid) -> Output {
        let n = self.chunks;
        self.chunks += 1;
        Output::Chunk { tsid, n, bytes: self.chunk.finish() }
    }

    /// Remembers at most one table more than makes the entry touch everything.
    fn touch(&mut self, described: &Described, change: &Change) {
        if self.tables.len() <= ITEMS_TABLES_MAX {
            let Described { relation, key, .. } = described;
            let table = self.tables.entry(relation.id);
            table.or_insert_with(|| WrittenTable::new(relation, key)).add(relation, change);
        }
    }

    fn is_anything(&self) -> bool {
        self.has_ddl || self.tables.len() > ITEMS_TABLES_MAX
    }

    fn items(&self) -> Items {
        if self.is_anything() {
            Items::Everything
        } else {
            Items::tables(self.tables.keys().copied())
        }
    }

    fn into_written(self) -> Written {
        if self.is_anything() {
            return Written::Everything;
        }
        Written::Tables(self.tables.into_values().collect())
    }

    /// The stream describes the table as it was, or not at all, when its rows come as messages.
    fn begin_rows(&mut self, rows: note::Rows) {
        let id = RelId(rows.relation);
        let columns = rows.columns.unwrap_or_default().into_iter();
        let column = |name| Column { name, type_oid: 0, key: false };
        let relation = Relation {
            id,
            schema: rows.schema,
            name: rows.name,
            identity: Identity::Nothing,
            columns: columns.map(column).collect(),
        };
        self.chunk.redefine(id);
        self.whole = Some((Described::new(relation), rows.token.into_bytes()));
    }

    /// From here on the stream's own description counts.
    fn end_rows(&mut self) {
        if let Some((described, _)) = self.whole.take() {
            self.chunk.redefine(described.relation.id);
        }
    }
}

fn value_of(relation: &Relation, row: &Tuple, name: &str) -> String {
    let at = relation.columns.iter().position(|column| column.name == name);
    match at.and_then(|at| row.get(at)) {
        Some(Value::Text(text)) => text_of(text),
        _ => String::new(),
    }
}
