//! Encodes and decodes the log's records: headers and chunks. Each begins with its format version, so that a
//! process never misreads what another version wrote (I5).
//!
//! Integers are big-endian. Decoding checks all lengths: damaged bytes are an error, not a panic.

use std::sync::Arc;

use ahash::{AHashMap, AHashSet};
use bytes::{BufMut, Bytes, BytesMut};

use crate::entry::{CHUNK_LEN_MAX, Change, Column, Header, Identity, Relation, Tuple, Value};
use crate::ids::{Lsn, Tsid};
use crate::items::{Items, RelId};
use crate::note::Note;

/// The format that this version writes, and the only one it reads.
pub const FORMAT_VERSION: u8 = 1;

/// How many relations a reader of chunks remembers.
const RELATIONS_MAX: usize = 1_024;

/// Chunks up to this length are copied out of their writer, so that they take no more memory than they need.
const COPIED_MAX: usize = 32 << 10;

/// In place of a value's length.
const NULL: u32 = u32::MAX;
/// In place of a value's length.
const UNCHANGED: u32 = u32::MAX - 1;

/// Why a record can't be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// Another version of hihooi wrote it.
    #[error("record of format version {0}; this version of hihooi reads {FORMAT_VERSION}")]
    Version(u8),
    /// It ends too early.
    #[error("record ends too early")]
    Short,
    /// Something stands in it that never should.
    #[error("damaged record: {0}")]
    Damaged(&'static str),
}

type Result<T> = std::result::Result<T, CodecError>;

/// The bytes of a header.
#[must_use]
pub fn encode_header(header: &Header) -> Bytes {
    let mut out = BytesMut::with_capacity(96);
    out.put_u8(FORMAT_VERSION);
    out.put_u64(header.tsid.0);
    out.put_u32(header.incarnation);
    out.put_u64(header.commit_lsn.0);
    out.put_u64(header.end_lsn.0);
    out.put_u32(header.xid);
    out.put_i64(header.commit_time_us);
    out.put_u8(u8::from(header.has_ddl));
    out.put_u32(header.chunks);
    out.put_u64(header.changes);
    put_items(&header.items, &mut out);
    out.freeze()
}

/// The header that these bytes stand for.
///
/// # Errors
/// [`CodecError`] for another format version or damaged bytes.
pub fn decode_header(bytes: &Bytes) -> Result<Header> {
    let mut reader = Reader::versioned(bytes)?;
    let header = Header {
        tsid: Tsid(reader.u64()?),
        incarnation: reader.u32()?,
        commit_lsn: Lsn(reader.u64()?),
        end_lsn: Lsn(reader.u64()?),
        xid: reader.u32()?,
        commit_time_us: reader.u64()?.cast_signed(),
        has_ddl: reader.bool()?,
        chunks: reader.u32()?,
        changes: reader.u64()?,
        items: reader.items()?,
    };
    reader.end()?;
    Ok(header)
}

/// Relations by the bytes that describe them, for a reader of chunks: each chunk describes the relations it uses,
/// nearly always as the one before it did. Bounded (I8).
#[derive(Debug, Default)]
pub struct KnownRelations(AHashMap<RelId, (Box<[u8]>, Arc<Relation>)>);

impl KnownRelations {
    /// The relation that is described here as it was last, and how many bytes describe it.
    fn find(&self, id: RelId, bytes: &[u8]) -> Option<(&Arc<Relation>, usize)> {
        let (known, relation) = self.0.get(&id)?;
        // A description tells where it ends, so none is the beginning of another.
        bytes.starts_with(known).then_some((relation, known.len()))
    }

    fn insert(&mut self, bytes: &[u8], relation: &Arc<Relation>) {
        if self.0.len() >= RELATIONS_MAX {
            self.0.clear();
        }
        self.0.insert(relation.id, (bytes.into(), Arc::clone(relation)));
    }
}

/// The changes of a chunk, relations included; values are slices of `chunk`, not copies.
///
/// # Errors
/// [`CodecError`] for another format version or damaged bytes.
pub fn decode_chunk(chunk: &Bytes, known: &mut KnownRelations) -> Result<Vec<Change>> {
    let mut reader = Reader::versioned(chunk)?;
    let mut changes = Vec::new();
    while !reader.is_empty() {
        changes.push(reader.change(known)?);
    }
    Ok(changes)
}

/// How a chunk describes a relation.
#[must_use]
pub fn encode_relation(relation: &Relation) -> Bytes {
    let mut out = BytesMut::new();
    put_relation(relation, &mut out);
    out.freeze()
}

/// Writes the changes of one chunk.
#[derive(Debug, Default)]
pub struct ChunkWriter {
    out: BytesMut,
    described: AHashSet<RelId>,
}

impl ChunkWriter {
    /// An empty chunk.
    #[must_use]
    pub fn new() -> ChunkWriter {
        ChunkWriter::default()
    }

    /// Whether it holds no change yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether it has reached [`CHUNK_LEN_MAX`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.out.len() >= CHUNK_LEN_MAX
    }

    /// Appends what [`encode_relation`] says of a relation, unless it stands there already: before the changes that
    /// use it.
    pub fn describe(&mut self, relation: RelId, description: &[u8]) {
        if self.described.insert(relation) {
            self.begun().put_slice(description);
        }
    }

    /// Appends a change.
    pub fn push(&mut self, change: &Change) {
        put_change(change, self.begun());
    }

    fn begun(&mut self) -> &mut BytesMut {
        if self.out.is_empty() {
            self.out.put_u8(FORMAT_VERSION);
        }
        &mut self.out
    }

    /// Forgets that a relation was described: it has a new shape from here on.
    pub fn redefine(&mut self, relation: RelId) {
        self.described.remove(&relation);
    }

    /// The chunk's bytes; the writer is empty afterwards.
    pub fn finish(&mut self) -> Bytes {
        self.described.clear();
        let out = self.begun();
        if out.len() > COPIED_MAX {
            return std::mem::take(out).freeze();
        }
        let chunk = Bytes::copy_from_slice(out);
        out.clear();
        chunk
    }
}

mod kind {
    pub const RELATION: u8 = b'R';
    pub const INSERT: u8 = b'I';
    pub const UPDATE: u8 = b'U';
    pub const UPDATE_OLD: u8 = b'O';
    pub const DELETE: u8 = b'D';
    pub const TRUNCATE: u8 = b'T';
    pub const NOTE: u8 = b'N';
    /// A statement to run, of the first versions.
    pub const DDL: u8 = b'L';
    /// DDL that the first versions could not follow.
    pub const BYPASSED: u8 = b'B';
}

fn put_change(change: &Change, out: &mut BytesMut) {
    match change {
        Change::Relation(relation) => put_relation(relation, out),
        Change::Insert { relation, new } => put_row(kind::INSERT, *relation, &[new], out),
        Change::Update { relation, old: None, new } => {
            put_row(kind::UPDATE, *relation, &[new], out);
        }
        Change::Update { relation, old: Some(old), new } => {
            put_row(kind::UPDATE_OLD, *relation, &[old, new], out);
        }
        Change::Delete { relation, old } => put_row(kind::DELETE, *relation, &[old], out),
        Change::Truncate { relations, restart_identity } => {
            out.put_u8(kind::TRUNCATE);
            out.put_u8(u8::from(*restart_identity));
            put_len(relations.len(), out);
            relations.iter().for_each(|relation| out.put_u32(relation.0));
        }
        Change::Note(note) => {
            out.put_u8(kind::NOTE);
            let json = serde_json::to_vec(note).expect("a note is text and lists of it");
            put_bytes(&json, out);
        }
    }
}

fn put_row(kind: u8, relation: RelId, tuples: &[&Tuple], out: &mut BytesMut) {
    out.put_u8(kind);
    out.put_u32(relation.0);
    for tuple in tuples {
        put_len(tuple.len(), out);
        for value in *tuple {
            match value {
                Value::Null => out.put_u32(NULL),
                Value::Unchanged => out.put_u32(UNCHANGED),
                Value::Text(text) => put_bytes(text, out),
            }
        }
    }
}

fn put_relation(relation: &Relation, out: &mut BytesMut) {
    out.put_u8(kind::RELATION);
    out.put_u32(relation.id.0);
    put_text(&relation.schema, out);
    put_text(&relation.name, out);
    out.put_u8(match relation.identity {
        Identity::Default => b'd',
        Identity::Index => b'i',
        Identity::Full => b'f',
        Identity::Nothing => b'n',
    });
    put_len(relation.columns.len(), out);
    for column in &relation.columns {
        put_text(&column.name, out);
        out.put_u32(column.type_oid);
        out.put_u8(u8::from(column.key));
    }
}

/// The log holds tables only: a manager that starts anew takes all that is in it as needed by every read.
fn put_items(items: &Items, out: &mut BytesMut) {
    match items {
        Items::Nothing => out.put_u8(0),
        Items::Tables(tables) => {
            out.put_u8(1);
            put_len(tables.len(), out);
            tables.iter().for_each(|item| out.put_u32(item.table.0));
        }
        Items::Everything => out.put_u8(2),
    }
}

fn put_text(text: &str, out: &mut BytesMut) {
    put_bytes(text.as_bytes(), out);
}

fn put_bytes(bytes: &[u8], out: &mut BytesMut) {
    put_len(bytes.len(), out);
    out.put_slice(bytes);
}

/// PostgreSQL's largest value has 1 GB, so every length fits.
fn put_len(len: usize, out: &mut BytesMut) {
    out.put_u32(u32::try_from(len).expect("lengths of PostgreSQL values fit into 32 bits"));
}

/// Reads the fields of a record in order.
struct Reader<'a> {
    whole: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    fn versioned(bytes: &'a Bytes) -> Result<Reader<'a>> {
        let mut reader = Reader { whole: bytes, at: 0 };
        match reader.u8()? {
            FORMAT_VERSION => Ok(reader),
            other => Err(CodecError::Version(other)),
        }
    }

    fn is_empty(&self) -> bool {
        self.at == self.whole.len()
    }

    fn end(&self) -> Result<()> {
        if self.is_empty() { Ok(()) } else { Err(CodecError::Damaged("bytes behind its end")) }
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len).ok_or(CodecError::Short)?;
        let bytes = self.whole.get(self.at..end).ok_or(CodecError::Short)?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::Damaged("a flag that is neither 0 nor 1")),
        }
    }

    /// A number of elements that each take at least `size` bytes: never larger than what is
    /// left, so that damaged bytes can't ask for much memory.
    fn count(&mut self, size: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        let left = self.whole.len() - self.at;
        if count > left / size { Err(CodecError::Short) } else { Ok(count) }
    }

    fn text(&mut self) -> Result<String> {
        let len = self.u32()? as usize;
        let text = std::str::from_utf8(self.bytes(len)?);
        Ok(text.map_err(|_| CodecError::Damaged("a text that is not UTF-8"))?.to_owned())
    }

    fn value(&mut self) -> Result<Value> {
        match self.u32()? {
            NULL => Ok(Value::Null),
            UNCHANGED => Ok(Value::Unchanged),
            len => {
                let start = self.at;
                self.bytes(len as usize)?;
                Ok(Value::Text(self.whole.slice(start..self.at)))
            }
        }
    }

    fn list<T>(&mut self, size: usize, one: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.count(size)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn tuple(&mut self) -> Result<Tuple> {
        self.list(4, Reader::value)
    }

    fn rel_id(&mut self) -> Result<RelId> {
        self.u32().map(RelId)
    }

    fn items(&mut self) -> Result<Items> {
        match self.u8()? {
            0 => Ok(Items::Nothing),
            1 => Ok(Items::tables(self.list(4, Reader::rel_id)?)),
            2 => Ok(Items::Everything),
            _ => Err(CodecError::Damaged("an unknown kind of items")),
        }
    }

    fn change(&mut self, known: &mut KnownRelations) -> Result<Change> {
        Ok(match self.u8()? {
            kind::RELATION => Change::Relation(self.relation(known)?),
            kind::INSERT => Change::Insert { relation: self.rel_id()?, new: self.tuple()? },
            kind::UPDATE => {
                Change::Update { relation: self.rel_id()?, old: None, new: self.tuple()? }
            }
            kind::UPDATE_OLD => Change::Update {
                relation: self.rel_id()?,
                old: Some(self.tuple()?),
                new: self.tuple()?,
            },
            kind::DELETE => Change::Delete { relation: self.rel_id()?, old: self.tuple()? },
            kind::TRUNCATE => Change::Truncate {
                restart_identity: self.bool()?,
                relations: self.list(4, Reader::rel_id)?,
            },
            kind::NOTE => {
                let len = self.u32()? as usize;
                let note = serde_json::from_slice(self.bytes(len)?);
                Change::Note(note.map_err(|_| CodecError::Damaged("a note that can't be read"))?)
            }
            kind::DDL => {
                let (query, _role) = (self.text()?, self.text()?);
                self.list(8, |reader| Ok((reader.text()?, reader.text()?)))?;
                self.bool()?;
                Change::Note(Note::Unknown(format!("DDL noted by an earlier version: {query}")))
            }
            kind::BYPASSED => {
                let (command, text) = (self.text()?, self.text()?);
                Change::Note(Note::Unknown(format!("{command}: {text}")))
            }
            _ => return Err(CodecError::Damaged("an unknown kind of change")),
        })
    }

    fn relation(&mut self, known: &mut KnownRelations) -> Result<Arc<Relation>> {
        let start = self.at;
        let id = self.rel_id()?;
        if let Some((relation, len)) = known.find(id, &self.whole[start..]) {
            self.at = start + len;
            return Ok(Arc::clone(relation));
        }
        let relation = Arc::new(Relation {
            id,
            schema: self.text()?,
            name: self.text()?,
            identity: match self.u8()? {
                b'd' => Identity::Default,
                b'i' => Identity::Index,
                b'f' => Identity::Full,
                b'n' => Identity::Nothing,
                _ => return Err(CodecError::Damaged("an unknown replica identity")),
            },
            columns: self.list(9, |reader| {
                Ok(Column { name: reader.text()?, type_oid: reader.u32()?, key: reader.bool()? })
            })?,
        });
        known.insert(&self.whole[start..self.at], &relation);
        Ok(relation)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::note::Command;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            Just(Value::Unchanged),
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(|v| Value::Text(v.into())),
        ]
    }

    fn tuple() -> impl Strategy<Value = Tuple> {
        proptest::collection::vec(value(), 0..5)
    }

    fn relation() -> impl Strategy<Value = Relation> {
        let column = (".*", any::<u32>(), any::<bool>()).prop_map(|(name, type_oid, key)| Column {
            name,
            type_oid,
            key,
        });
        let identity = prop_oneof![
            Just(Identity::Default),
            Just(Identity::Index),
            Just(Identity::Full),
            Just(Identity::Nothing)
        ];
        // Few relations, so that one is described anew.
        (0..3u32, ".*", ".*", identity, proptest::collection::vec(column, 0..4)).prop_map(
            |(id, schema, name, identity, columns)| Relation {
                id: RelId(id),
                schema,
                name,
                identity,
                columns,
            },
        )
    }

    fn change() -> impl Strategy<Value = Change> {
        let id = || any::<u32>().prop_map(RelId);
        prop_oneof![
            relation().prop_map(|relation| Change::Relation(Arc::new(relation))),
            (id(), tuple()).prop_map(|(relation, new)| Change::Insert { relation, new }),
            (id(), proptest::option::of(tuple()), tuple())
                .prop_map(|(relation, old, new)| Change::Update { relation, old, new }),
            (id(), tuple()).prop_map(|(relation, old)| Change::Delete { relation, old }),
            (proptest::collection::vec(id(), 0..4), any::<bool>()).prop_map(
                |(relations, restart_identity)| Change::Truncate { relations, restart_identity }
            ),
            (".*", ".*", proptest::option::of(".*"), any::<u32>()).prop_map(
                |(tag, role, query, relation)| Change::Note(Note::Command(Box::new(Command {
                    tag,
                    role,
                    query,
                    relation: Some(relation),
                    ..Command::default()
                })))
            ),
            ".*".prop_map(|text| Change::Note(Note::Unknown(text))),
            ".*".prop_map(|text| Change::Note(Note::Undecoded(text))),
        ]
    }

    fn header() -> impl Strategy<Value = Header> {
        let items = prop_oneof![
            Just(Items::Nothing),
            Just(Items::Everything),
            proptest::collection::vec(any::<u32>().prop_map(RelId), 1..9).prop_map(Items::tables),
        ];
        let numbers = any::<(u64, u32, u64, u64, u32, i64, bool, u32, u64)>();
        (numbers, items).prop_map(|(n, items)| Header {
            tsid: Tsid(n.0),
            incarnation: n.1,
            commit_lsn: Lsn(n.2),
            end_lsn: Lsn(n.3),
            xid: n.4,
            commit_time_us: n.5,
            has_ddl: n.6,
            chunks: n.7,
            changes: n.8,
            items,
        })
    }

    fn chunk(changes: &[Change]) -> Bytes {
        let mut writer = ChunkWriter::new();
        changes.iter().for_each(|change| writer.push(change));
        let chunk = writer.finish();
        assert!(writer.is_empty());
        chunk
    }

    proptest! {
        /// I5: what was logged is what is applied.
        #[test]
        fn chunks_go_round(changes in proptest::collection::vec(change(), 0..12)) {
            let (chunk, mut known) = (chunk(&changes), KnownRelations::default());
            prop_assert_eq!(decode_chunk(&chunk, &mut known), Ok(changes.clone()));
            prop_assert_eq!(decode_chunk(&chunk, &mut known), Ok(changes), "with what is known");
        }

        /// I5, I8.
        #[test]
        fn relations_in_any_number_are_told_apart(
            relations in proptest::collection::vec(relation(), 1..4), count in 1..RELATIONS_MAX as u32 + 9,
        ) {
            let mut known = KnownRelations::default();
            for id in 0..count {
                let mut relation = relations[id as usize % relations.len()].clone();
                relation.id = RelId(id % 7 + id / 2);
                let changes = vec![Change::Relation(Arc::new(relation))];
                prop_assert_eq!(decode_chunk(&chunk(&changes), &mut known), Ok(changes));
            }
            prop_assert!(known.0.len() <= RELATIONS_MAX);
        }

        #[test]
        fn headers_go_round(header in header()) {
            prop_assert_eq!(decode_header(&encode_header(&header)), Ok(header));
        }

        /// Damaged bytes are an error or other changes, never a panic; what is known changes nothing.
        #[test]
        fn damaged_chunks_do_not_panic(
            changes in proptest::collection::vec(change(), 1..6), at: usize, byte: u8, cut: usize,
        ) {
            let (chunk, mut known) = (chunk(&changes), KnownRelations::default());
            decode_chunk(&chunk, &mut known).expect("whole");
            let mut bytes = chunk.to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(1 + cut % bytes.len());
            let damaged = Bytes::from(bytes);
            let anew = decode_chunk(&damaged, &mut KnownRelations::default());
            prop_assert_eq!(decode_chunk(&damaged, &mut known), anew);
        }

        #[test]
        fn short_headers_are_refused(header in header(), cut: usize) {
            let bytes = encode_header(&header);
            prop_assert!(decode_header(&bytes.slice(..cut % bytes.len())).is_err());
        }
    }

    #[test]
    fn other_format_versions_are_refused() {
        let bytes = Bytes::from_static(&[FORMAT_VERSION + 1, 0, 0]);
        let decoded = decode_chunk(&bytes, &mut KnownRelations::default());
        assert_eq!(decoded, Err(CodecError::Version(FORMAT_VERSION + 1)));
        assert_eq!(decode_header(&bytes), Err(CodecError::Version(FORMAT_VERSION + 1)));
    }
}
