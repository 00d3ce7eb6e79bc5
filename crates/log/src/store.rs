//! The directory of segments. One thread appends ([`Appender`]); any thread reads ([`Store`]).
//!
//! A segment begins with everything in the log that is not an entry. So a process that opens the log needs only
//! the newest segment for this, and older segments can be removed as a whole.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hihooi_replication::entry::Entry;
use hihooi_replication::ids::Tsid;

use crate::record::{self, Kept, Operation, Place, kind};
use crate::segment::{Scanner, Segment};
use crate::tail::Budget;
use crate::{Error, Result};

/// A segment is closed when it has this length.
const SEGMENT_LEN: u64 = 32 << 20;
/// An entry that lies this far behind the last noted one is noted in a segment's index.
const INDEX_STEP: u64 = 64 << 10;
/// How often the lock is tried: a child process of the last owner holds it for the moment between
/// its fork and its exec.
const LOCK_TRIES: u32 = 10;
/// Pause between tries.
const LOCK_PAUSE: Duration = Duration::from_millis(30);
/// Chunks of the entry that is coming in: 16 TB of changes. Beyond, the log refuses.
const CHUNKS_MAX: usize = 16 << 20;

/// What readers and the appender share.
pub(crate) struct Store {
    dir: PathBuf,
    /// Held as long as the log is open.
    _lock: File,
    segments: Mutex<BTreeMap<u64, Readable>>,
}

/// A segment as readers see it.
#[derive(Clone)]
struct Readable {
    segment: Segment,
    /// Length that is durable; of closed segments all of it.
    end: u64,
    /// Where some of its entries are, in order; `None` until a reader needs it.
    index: Option<Arc<Vec<(Tsid, u64)>>>,
}

/// Writes at the end of the newest segment.
pub(crate) struct Appender {
    store: Arc<Store>,
    segment: Segment,
    file: File,
    end: u64,
    next: Tsid,
    index: Vec<(Tsid, u64)>,
    /// The index as readers have it.
    shown: Arc<Vec<(Tsid, u64)>>,
    kept: Kept,
    /// Places of the chunks of the entry that is coming in.
    chunks: BTreeMap<(Tsid, u32), Place>,
    /// Records not written yet; they belong at `end`.
    buffer: Vec<u8>,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Readable>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads entries from `from` on, without gap, within the budget.
    pub(crate) fn read(&self, from: Tsid, budget: &mut Budget) -> Result<Vec<Arc<Entry>>> {
        let mut entries = Vec::new();
        let mut expected = from;
        for number in self.numbers_from(from) {
            let Some((file, readable)) = self.open_segment(number)? else { break };
            let index = self.index(&file, &readable)?;
            let at = match index.partition_point(|(tsid, _)| *tsid <= expected) {
                0 => 0,
                after => index[after - 1].1,
            };
            let mut scanner = Scanner::new(&file, at, readable.end, true);
            while let Some(found) = scanner.next()? {
                let Some((entry, _)) = entry_of(&found.body, expected)? else { continue };
                if entry.header.tsid != expected || !budget.takes(&entry) {
                    return Ok(entries);
                }
                expected = expected.next();
                entries.push(Arc::new(entry));
            }
            check_end(&scanner, &readable, &self.dir)?;
        }
        Ok(entries)
    }

    /// Chunk `n` of an entry; `None` if the entry is not there.
    pub(crate) fn chunk(&self, tsid: Tsid, n: u32) -> Result<Option<Bytes>> {
        let Some(&number) = self.numbers_from(tsid).first() else { return Ok(None) };
        let Some((file, readable)) = self.open_segment(number)? else { return Ok(None) };
        let index = self.index(&file, &readable)?;
        let at = match index.partition_point(|(noted, _)| *noted <= tsid) {
            0 => 0,
            after => index[after - 1].1,
        };
        let mut scanner = Scanner::new(&file, at, readable.end, true);
        while let Some(found) = scanner.next()? {
            let Some((entry, places)) = entry_of(&found.body, tsid)? else { continue };
            if entry.header.tsid != tsid {
                return Ok(None);
            }
            return match places.get(n as usize) {
                Some(place) => self.chunk_at(*place, tsid, n).map(Some),
                None => Ok(entry.chunks.get(n as usize).cloned()),
            };
        }
        Ok(None)
    }

    fn chunk_at(&self, place: Place, tsid: Tsid, n: u32) -> Result<Bytes> {
        let missing = || Error::Format(format!("chunk {n} of entry {tsid} is missing"));
        let (file, readable) = self.open_segment(place.segment)?.ok_or_else(missing)?;
        let mut scanner = Scanner::new(&file, place.offset, readable.end, false);
        let found = scanner.next()?.ok_or_else(missing)?;
        match record::open_body(&found.body)? {
            (kind::CHUNK, fields) => {
                let (found, number, bytes) = record::read_chunk(&fields)?;
                if (found, number) == (tsid, n) { Ok(bytes) } else { Err(missing()) }
            }
            _ => Err(missing()),
        }
    }

    /// Length of all segments as far as they are durable, bytes.
    pub(crate) fn durable_len(&self) -> u64 {
        self.lock().values().map(|readable| readable.end).sum()
    }

    /// Length of the segments that can hold `from` and what follows, as far as they are durable, bytes.
    pub(crate) fn len_from(&self, from: Tsid) -> u64 {
        let numbers = self.numbers_from(from);
        let segments = self.lock();
        numbers.iter().filter_map(|number| Some(segments.get(number)?.end)).sum()
    }

    /// Segments that can hold `from` and what follows, oldest first.
    fn numbers_from(&self, from: Tsid) -> Vec<u64> {
        let segments = self.lock();
        let holds = segments.values().rev().find(|readable| readable.segment.first <= from);
        let Some(start) = holds.map(|readable| readable.segment.number) else { return Vec::new() };
        segments.range(start..).map(|(number, _)| *number).collect()
    }

    /// A segment opened for reading; `None` if it was trimmed meanwhile.
    fn open_segment(&self, number: u64) -> Result<Option<(File, Readable)>> {
        let Some(readable) = self.lock().get(&number).cloned() else { return Ok(None) };
        match File::open(readable.segment.path(&self.dir)) {
            Ok(file) => Ok(Some((file, readable))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    fn index(&self, file: &File, readable: &Readable) -> Result<Arc<Vec<(Tsid, u64)>>> {
        if let Some(index) = &readable.index {
            return Ok(Arc::clone(index));
        }
        let mut index = Vec::new();
        let mut scanner = Scanner::new(file, 0, readable.end, true);
        while let Some(found) = scanner.next()? {
            note(&mut index, &found.body, found.offset)?;
        }
        let index = Arc::new(index);
        if let Some(readable) = self.lock().get_mut(&readable.segment.number) {
            readable.index = Some(Arc::clone(&index));
        }
        Ok(index)
    }

    /// Removes segments that hold nothing from `below` on. Chunks of an entry can lie in the
    /// segment before it, so that one goes only with the entry.
    pub(crate) fn trim(&self, below: Tsid) -> Result<()> {
        let gone: Vec<Segment> = {
            let segments = self.lock();
            let pairs = segments.values().zip(segments.values().skip(1));
            let gone = pairs.take_while(|(_, next)| next.segment.first < below);
            gone.map(|(readable, _)| readable.segment.clone()).collect()
        };
        for segment in gone {
            self.lock().remove(&segment.number);
            fs::remove_file(segment.path(&self.dir)).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

/// The entry in a body, if it is one and not before `from`.
fn entry_of(body: &Bytes, from: Tsid) -> Result<Option<(Entry, Vec<Place>)>> {
    if body.first() != Some(&kind::ENTRY) {
        return Ok(None);
    }
    let (_, fields) = record::open_body(body)?;
    if record::tsid_of(&fields)? < from { Ok(None) } else { record::read_entry(&fields).map(Some) }
}

/// Notes where an entry is, now and then.
fn note(index: &mut Vec<(Tsid, u64)>, body: &Bytes, offset: u64) -> Result<()> {
    let far = index.last().is_none_or(|(_, last)| offset - last >= INDEX_STEP);
    if far && body.first() == Some(&kind::ENTRY) {
        let (_, fields) = record::open_body(body)?;
        index.push((record::tsid_of(&fields)?, offset));
    }
    Ok(())
}

/// Everything up to the durable end must be readable.
fn check_end(scanner: &Scanner<'_>, readable: &Readable, dir: &Path) -> Result<()> {
    if scanner.at() == readable.end {
        return Ok(());
    }
    let path = readable.segment.path(dir);
    Err(Error::Format(format!("{} is damaged at byte {}", path.display(), scanner.at())))
}

impl Appender {
    /// Opens the directory, drops what a crash left unfinished at the end, and makes the rest
    /// durable.
    pub(crate) fn open(dir: &Path) -> Result<Appender> {
        // What is in it is for nobody else: rows, and what is stored of passwords.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o700)))
            .map_err(|error| at(dir, &error))?;
        let lock = lock(dir)?;
        let mut segments = find_segments(dir)?;
        let newest = loop {
            let Some(segment) = segments.pop() else { break None };
            match Recovered::scan(dir, &segment)? {
                Some(recovered) => break Some((segment, recovered)),
                None => set_aside(dir, &segment)?,
            }
        };
        let store = Store { dir: dir.to_owned(), _lock: lock, segments: Mutex::default() };
        for segment in segments {
            let path = segment.path(dir);
            let end = fs::metadata(&path).map_err(|error| at(&path, &error))?.len();
            store.lock().insert(segment.number, Readable { segment, end, index: None });
        }
        match newest {
            Some((segment, recovered)) => recovered.resume(Arc::new(store), segment),
            None => Appender::begin(Arc::new(store)),
        }
    }

    fn begin(store: Arc<Store>) -> Result<Appender> {
        let segment = Segment { number: 1, first: Tsid(1) };
        let file = create(&store.dir, &segment)?;
        let mut appender = Appender {
            store,
            segment,
            file,
            end: 0,
            next: Tsid(1),
            index: Vec::new(),
            shown: Arc::default(),
            kept: Kept::default(),
            chunks: BTreeMap::new(),
            buffer: Vec::new(),
        };
        appender.put_kept();
        appender.sync()?;
        Ok(appender)
    }

    pub(crate) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Writes all of it, durably, in order. After [`Error::Disk`] what is left of it is to be written
    /// again.
    pub(crate) fn write(&mut self, operations: &mut VecDeque<Operation>) -> Result<()> {
        while !operations.is_empty() {
            if self.end + self.buffer.len() as u64 >= SEGMENT_LEN {
                self.rotate()?;
            }
            if let Some(operation) = operations.pop_front() {
                self.put(operation)?;
            }
        }
        self.sync()
    }

    fn put(&mut self, operation: Operation) -> Result<()> {
        let offset = self.end + self.buffer.len() as u64;
        match operation {
            Operation::Chunk { tsid, n, bytes } => {
                if self.chunks.len() >= CHUNKS_MAX {
                    return Err(Error::Failed("a transaction has too many chunks".to_owned()));
                }
                let place = Place { segment: self.segment.number, offset };
                self.chunks.insert((tsid, n), place);
                record::put_chunk(tsid, n, &bytes, &mut self.buffer);
            }
            Operation::Entry(entry) => self.put_entry(&entry, offset),
            Operation::Meta { name, value } => {
                record::put_json(kind::META, &(&name, &value), &mut self.buffer);
                self.kept.meta.insert(name, value);
            }
            Operation::Backend(backend) => {
                record::put_json(kind::BACKEND, &backend, &mut self.buffer);
                self.kept.backends.insert(backend);
            }
            Operation::Forget(backend) => {
                record::put_json(kind::FORGET, &backend, &mut self.buffer);
                self.kept.backends.remove(&backend);
            }
        }
        Ok(())
    }

    fn put_entry(&mut self, entry: &Entry, offset: u64) {
        let tsid = entry.header.tsid;
        let own = (tsid, 0)..(tsid, entry.header.chunks);
        let places: Vec<Place> = self.chunks.range(own).map(|(_, place)| *place).collect();
        self.chunks.clear();
        record::put_entry(entry, &places, &mut self.buffer);
        if self.index.last().is_none_or(|(_, last)| offset - last >= INDEX_STEP) {
            self.index.push((tsid, offset));
        }
        self.kept.set_last(&entry.header);
        self.next = tsid.next();
    }

    fn put_kept(&mut self) {
        record::put_json(kind::KEPT, &self.kept, &mut self.buffer);
    }

    /// Makes the buffer durable and shows it to readers.
    fn sync(&mut self) -> Result<()> {
        // Written whole after a failure: nobody knows what of it the disk has.
        self.file.write_all_at(&self.buffer, self.end).map_err(|error| disk(&error))?;
        self.file.sync_data().map_err(|error| disk(&error))?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        if self.shown.len() != self.index.len() {
            self.shown = Arc::new(self.index.clone());
        }
        let index = Some(Arc::clone(&self.shown));
        let readable = Readable { segment: self.segment.clone(), end: self.end, index };
        self.store.lock().insert(self.segment.number, readable);
        Ok(())
    }

    /// Closes the segment and begins the next.
    fn rotate(&mut self) -> Result<()> {
        self.sync()?;
        self.file.set_len(self.end).map_err(|error| disk(&error))?;
        self.file.sync_all().map_err(|error| disk(&error))?;
        let segment = Segment { number: self.segment.number + 1, first: self.next };
        self.file = create(&self.store.dir, &segment)?;
        self.segment = segment;
        self.end = 0;
        self.index.clear();
        self.put_kept();
        self.sync()
    }
}

/// What the newest segment tells an opening process.
struct Recovered {
    file: File,
    end: u64,
    kept: Kept,
    index: Vec<(Tsid, u64)>,
}

impl Recovered {
    /// Reads a segment up to its last intact record; `None` if not even its first one is.
    fn scan(dir: &Path, segment: &Segment) -> Result<Option<Recovered>> {
        let path = segment.path(dir);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.map_err(|error| at(&path, &error))?;
        let len = file.metadata().map_err(|error| at(&path, &error))?.len();
        let mut scanner = Scanner::new(&file, 0, len, false);
        let Some(first) = scanner.next()? else { return Ok(None) };
        let (kind::KEPT, fields) = record::open_body(&first.body)? else {
            return Err(Error::Format(format!("{} has no beginning", path.display())));
        };
        let mut kept: Kept = record::read_json(&fields)?;
        let mut index = Vec::new();
        while let Some(found) = scanner.next()? {
            note(&mut index, &found.body, found.offset)?;
            take(&mut kept, &found.body)?;
        }
        let end = scanner.at();
        Ok(Some(Recovered { file, end, kept, index }))
    }

    /// Clears what lies after the last intact record, and goes on there.
    fn resume(self, store: Arc<Store>, segment: Segment) -> Result<Appender> {
        self.file.set_len(self.end).map_err(|error| disk(&error))?;
        self.file.set_len(self.end.max(SEGMENT_LEN)).map_err(|error| disk(&error))?;
        self.file.sync_all().map_err(|error| disk(&error))?;
        let next = self.kept.last()?.map_or(Tsid(1), |header| header.tsid.next());
        let mut appender = Appender {
            store,
            segment,
            file: self.file,
            end: self.end,
            next,
            index: self.index,
            shown: Arc::default(),
            kept: self.kept,
            chunks: BTreeMap::new(),
            buffer: Vec::new(),
        };
        appender.sync()?;
        Ok(appender)
    }
}

/// Adds what a record tells to what is kept.
fn take(kept: &mut Kept, body: &Bytes) -> Result<()> {
    let (kind, fields) = record::open_body(body)?;
    match kind {
        kind::ENTRY => kept.set_last(&record::read_entry(&fields)?.0.header),
        kind::META => {
            let (name, value) = record::read_json(&fields)?;
            kept.meta.insert(name, value);
        }
        kind::BACKEND => {
            kept.backends.insert(record::read_json(&fields)?);
        }
        kind::FORGET => {
            kept.backends.remove(&record::read_json(&fields)?);
        }
        _ => {}
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = opened.map_err(|error| at(&path, &error))?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::Error(error)) => return Err(at(&path, &error)),
        }
    }
    Err(Error::Locked(dir.to_owned()))
}

/// The directory's segments, oldest first.
fn find_segments(dir: &Path) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for file in fs::read_dir(dir).map_err(|error| at(dir, &error))? {
        let name = file.map_err(|error| at(dir, &error))?.file_name();
        segments.extend(name.to_str().and_then(Segment::from_name));
    }
    segments.sort();
    Ok(segments)
}

/// A crash between the creation of a segment and its first record.
fn set_aside(dir: &Path, segment: &Segment) -> Result<()> {
    let path = segment.path(dir);
    tracing::warn!("{} contains no records and is set aside", path.display());
    fs::rename(&path, path.with_extension("unfinished")).map_err(|error| at(&path, &error))
}

/// Makes a segment's file, at its full length, so that appending changes no metadata.
fn create(dir: &Path, segment: &Segment) -> Result<File> {
    let path = segment.path(dir);
    // It may be there: of an attempt that failed. Nobody reads it yet.
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
    let file = opened.map_err(|error| at(&path, &error))?;
    file.set_len(SEGMENT_LEN).map_err(|error| at(&path, &error))?;
    file.sync_all().map_err(|error| at(&path, &error))?;
    let folder = File::open(dir).map_err(|error| at(dir, &error))?;
    folder.sync_all().map_err(|error| at(dir, &error))?;
    Ok(file)
}

fn failed(error: &std::io::Error) -> Error {
    Error::Failed(error.to_string())
}

fn disk(error: &std::io::Error) -> Error {
    Error::Disk(error.to_string())
}

fn at(path: &Path, error: &std::io::Error) -> Error {
    Error::Disk(format!("{}: {error}", path.display()))
}
