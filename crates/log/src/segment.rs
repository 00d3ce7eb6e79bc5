//! A segment: a file of records, to which records are appended until it is full. Its name contains its number
//! and the first TSID that can be in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use hihooi_replication::ids::Tsid;

use crate::record::{HEAD_LEN, body_len, is_intact, kind};
use crate::{Error, Result};

/// Read this much at once.
const BLOCK_LEN: usize = 256 << 10;
/// No record is longer: the largest value of PostgreSQL in a chunk of its own, with room.
const RECORD_LEN_MAX: usize = 2 << 30;

/// A segment of the directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// Every entry of it and of later segments has at least this TSID.
    pub(crate) first: Tsid,
}

impl Segment {
    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{:010}-{:020}.log", self.number, self.first.0))
    }

    /// The segment that a file's name stands for, if it is one.
    pub(crate) fn from_name(name: &str) -> Option<Segment> {
        let (number, first) = name.strip_suffix(".log")?.split_once('-')?;
        Some(Segment { number: number.parse().ok()?, first: Tsid(first.parse().ok()?) })
    }
}

/// A record as it lies in a segment.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) offset: u64,
    /// Empty for a chunk that was skipped.
    pub(crate) body: Bytes,
}

/// Reads the records of a segment in order.
pub(crate) struct Scanner<'a> {
    file: &'a File,
    at: u64,
    /// Nothing is read from here on.
    end: u64,
    /// Whether chunks are left out, unread.
    skip_chunks: bool,
    block: Vec<u8>,
    block_at: u64,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(file: &'a File, at: u64, end: u64, skip_chunks: bool) -> Scanner<'a> {
        Scanner { file, at, end, skip_chunks, block: Vec::new(), block_at: 0 }
    }

    /// Where the next record begins, or what was written ends.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next record; `None` where nothing intact follows.
    pub(crate) fn next(&mut self) -> Result<Option<Record>> {
        let Some(head) = self.bytes(self.at, HEAD_LEN + 1)? else { return Ok(None) };
        let Some(len) = body_len(&head).filter(|len| *len <= RECORD_LEN_MAX) else {
            return Ok(None);
        };
        let offset = self.at;
        let next = offset + (HEAD_LEN + len) as u64;
        if next > self.end {
            return Ok(None);
        }
        let mut body = Bytes::new();
        if !(self.skip_chunks && head[HEAD_LEN] == kind::CHUNK) {
            let Some(bytes) = self.bytes(offset + HEAD_LEN as u64, len)? else { return Ok(None) };
            if !is_intact(&head, &bytes) {
                return Ok(None);
            }
            body = bytes;
        }
        self.at = next;
        Ok(Some(Record { offset, body }))
    }

    /// Bytes at a place, by way of the block; `None` beyond the end.
    fn bytes(&mut self, at: u64, len: usize) -> Result<Option<Bytes>> {
        if at + len as u64 > self.end {
            return Ok(None);
        }
        if len > BLOCK_LEN {
            let mut bytes = vec![0; len];
            let whole = read_at(self.file, &mut bytes, at)? == len;
            return Ok(whole.then(|| bytes.into()));
        }
        if at < self.block_at || at + len as u64 > self.block_at + self.block.len() as u64 {
            let want = usize::try_from(self.end - at).unwrap_or(BLOCK_LEN).min(BLOCK_LEN);
            self.block.resize(want, 0);
            let got = read_at(self.file, &mut self.block, at)?;
            self.block.truncate(got);
            self.block_at = at;
        }
        let start = usize::try_from(at - self.block_at).map_err(|_| crate::record::damaged())?;
        Ok(self.block.get(start..start + len).map(Bytes::copy_from_slice))
    }
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(len) => got += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Failed(error.to_string())),
        }
    }
    Ok(got)
}
