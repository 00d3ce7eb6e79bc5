//! The format of records in a segment: length, checksum, body. A body has its kind, the format version, and its
//! fields. Pure. A record that a power failure left incomplete is recognised by its checksum, and space that
//! was never written by a length of zero (I5).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hihooi_replication::codec::{decode_header, encode_header};
use hihooi_replication::entry::{Entry, Header};
use hihooi_replication::ids::Tsid;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{BackendRecord, Error, Result};

/// The format of segments and records that this version writes, and the only one it reads.
pub(crate) const FORMAT_VERSION: u8 = 1;
/// Length and checksum.
pub(crate) const HEAD_LEN: usize = 12;

/// Kinds of records.
pub(crate) mod kind {
    /// What was kept when the segment was begun; each segment's first record.
    pub(crate) const KEPT: u8 = b'K';
    pub(crate) const ENTRY: u8 = b'E';
    pub(crate) const CHUNK: u8 = b'C';
    pub(crate) const META: u8 = b'M';
    pub(crate) const BACKEND: u8 = b'B';
    pub(crate) const FORGET: u8 = b'F';
}

/// Where a chunk lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Of the record's first byte.
    pub(crate) offset: u64,
}

/// The small things that a segment repeats, so that older segments can go.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) meta: BTreeMap<String, Vec<u8>>,
    pub(crate) backends: BTreeSet<BackendRecord>,
    /// Encoded header of the last entry.
    last: Option<Vec<u8>>,
}

impl Kept {
    pub(crate) fn last(&self) -> Result<Option<Header>> {
        let decode = |bytes: &Vec<u8>| decode_header(&Bytes::copy_from_slice(bytes));
        self.last.as_ref().map(decode).transpose().map_err(|error| Error::Format(error.to_string()))
    }

    pub(crate) fn set_last(&mut self, header: &Header) {
        self.last = Some(encode_header(header).to_vec());
    }
}

/// What the log is asked to write.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Chunk { tsid: Tsid, n: u32, bytes: Bytes },
    Entry(std::sync::Arc<Entry>),
    Meta { name: String, value: Vec<u8> },
    Backend(BackendRecord),
    Forget(BackendRecord),
}

impl Operation {
    /// About how many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        64 + match self {
            Operation::Chunk { bytes, .. } => bytes.len(),
            Operation::Entry(entry) => 128 + entry.chunks.iter().map(Bytes::len).sum::<usize>(),
            Operation::Meta { name, value } => name.len() + value.len(),
            Operation::Backend(_) | Operation::Forget(_) => 128,
        }
    }
}

/// Appends a record to `out`.
pub(crate) fn put_record(kind: u8, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; HEAD_LEN]);
    out.extend([kind, FORMAT_VERSION]);
    fill(out);
    let body = &out[start + HEAD_LEN..];
    let len = u32::try_from(body.len()).expect("a record has less than 4 GB");
    let sum = xxh3_64(body);
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    out[start + 4..start + HEAD_LEN].copy_from_slice(&sum.to_be_bytes());
}

/// Appends a record whose fields are JSON.
pub(crate) fn put_json(kind: u8, value: &impl Serialize, out: &mut Vec<u8>) {
    let json = serde_json::to_vec(value).expect("strings and numbers always serialise");
    put_record(kind, out, |out| out.extend(json));
}

/// Appends a chunk.
pub(crate) fn put_chunk(tsid: Tsid, n: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_record(kind::CHUNK, out, |out| {
        out.extend(tsid.0.to_be_bytes());
        out.extend(n.to_be_bytes());
        out.extend_from_slice(bytes);
    });
}

/// Appends an entry: its TSID, header, the places of its chunks, or its only chunk.
pub(crate) fn put_entry(entry: &Entry, places: &[Place], out: &mut Vec<u8>) {
    let header = encode_header(&entry.header);
    put_record(kind::ENTRY, out, |out| {
        out.extend(entry.header.tsid.0.to_be_bytes());
        out.extend(len32(header.len()));
        out.extend_from_slice(&header);
        out.extend(len32(places.len()));
        for place in places {
            out.extend(place.segment.to_be_bytes());
            out.extend(place.offset.to_be_bytes());
        }
        if let [chunk] = entry.chunks.as_slice() {
            out.extend_from_slice(chunk);
        }
    });
}

fn len32(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("an entry has fewer than 2^32 chunks").to_be_bytes()
}

/// Length of the body, from a record's head; `None` at the end of what was written.
pub(crate) fn body_len(head: &[u8]) -> Option<usize> {
    let len = u32::from_be_bytes(*head.first_chunk()?) as usize;
    if len < 2 { None } else { Some(len) }
}

/// Whether a body is what was written under this head.
pub(crate) fn is_intact(head: &[u8], body: &[u8]) -> bool {
    head.get(4..HEAD_LEN).is_some_and(|sum| sum == xxh3_64(body).to_be_bytes())
}

/// Kind and fields of an intact body.
pub(crate) fn open_body(body: &Bytes) -> Result<(u8, Bytes)> {
    match body.get(..2) {
        Some(&[kind, FORMAT_VERSION]) => Ok((kind, body.slice(2..))),
        Some(&[_, version]) => Err(Error::Format(format!(
            "it has format version {version}; this version of hihooi reads {FORMAT_VERSION}"
        ))),
        _ => Err(damaged()),
    }
}

/// TSID in front of the fields of an entry or a chunk.
pub(crate) fn tsid_of(fields: &[u8]) -> Result<Tsid> {
    let tsid = fields.first_chunk().ok_or_else(damaged)?;
    Ok(Tsid(u64::from_be_bytes(*tsid)))
}

/// TSID, number and bytes of a chunk.
pub(crate) fn read_chunk(fields: &Bytes) -> Result<(Tsid, u32, Bytes)> {
    let (n, _) = fields.get(8..).and_then(|rest| rest.split_first_chunk()).ok_or_else(damaged)?;
    Ok((tsid_of(fields)?, u32::from_be_bytes(*n), fields.slice(12..)))
}

/// An entry and the places of its chunks.
pub(crate) fn read_entry(fields: &Bytes) -> Result<(Entry, Vec<Place>)> {
    let mut at = 8;
    let mut take = |len: usize| {
        let end = usize::checked_add(at, len).filter(|end| *end <= fields.len());
        let range = at..end.ok_or_else(damaged)?;
        at = range.end;
        Ok::<Bytes, Error>(fields.slice(range))
    };
    let len = |take: &mut dyn FnMut(usize) -> Result<Bytes>| {
        let bytes = take(4)?;
        Ok::<usize, Error>(u32::from_be_bytes(*bytes.first_chunk().ok_or_else(damaged)?) as usize)
    };
    let header_len = len(&mut take)?;
    let header =
        decode_header(&take(header_len)?).map_err(|error| Error::Format(error.to_string()))?;
    let places_len = len(&mut take)?;
    let places = take(places_len.checked_mul(16).ok_or_else(damaged)?)?;
    let rest = fields.slice(at..);
    let chunks = if rest.is_empty() { Vec::new() } else { vec![rest] };
    Ok((Entry { header, chunks }, places.chunks_exact(16).map(place).collect()))
}

fn place(bytes: &[u8]) -> Place {
    let word = |bytes: &[u8]| u64::from_be_bytes(*bytes.first_chunk().expect("16 bytes"));
    Place { segment: word(bytes), offset: word(&bytes[8..]) }
}

/// Fields that are JSON.
pub(crate) fn read_json<T: for<'a> Deserialize<'a>>(fields: &[u8]) -> Result<T> {
    serde_json::from_slice(fields).map_err(|error| Error::Format(error.to_string()))
}

pub(crate) fn damaged() -> Error {
    Error::Format("a damaged record".to_owned())
}
