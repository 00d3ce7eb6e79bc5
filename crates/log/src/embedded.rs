//! The embedded log: a journalled storage engine in this process. Keeps I5: what
//! [`Log::durable`] has named is there after any crash, in order, without gap.
//!
//! Records: an entry with at most one chunk is one record (`TSID -> header, chunk`); larger ones
//! have their chunks under `(TSID, n)`, written before. Every value begins with a format version.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use fjall::{AbstractTree, CompressionType, Database, Guard, KeyspaceCreateOptions};
use hihooi_replication::codec::{decode_header, encode_header};
use hihooi_replication::entry::{Entry, Header};
use hihooi_replication::ids::Tsid;
use tokio::sync::watch;

use crate::tail::{Budget, Tail};
use crate::writer::{Operation, Shared, Space, Store};
use crate::{BackendRecord, Error, Log, PENDING_LEN_MAX, Result, TAIL_LEN_MAX};

/// Version of the whole directory and of each value of ours.
const FORMAT_VERSION: u8 = 1;
/// The engine's block cache: readers of old entries go through them once, so little helps.
const CACHE_LEN: u64 = 4 << 20;
/// The engine's memory for what is only in its journal yet, for entries and for chunks each.
const MEMTABLE_LEN: u64 = 4 << 20;
/// The engine's journals may take this much disk (its smallest).
const JOURNAL_LEN_MAX: u64 = 64 << 20;
/// Pending bytes that are written without waiting for [`Log::flush`].
const EAGER_LEN: usize = 4 << 20;

const META_FORMAT: &str = "log.format";
const META_FIRST: &str = "log.first";
const META_EPOCH: &str = "log.epoch";

/// What the clones of a [`Log`] share. The last one that goes makes everything durable.
pub(crate) struct Inner {
    shared: Arc<Shared>,
    store: Store,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was printed already; nothing can be done about it here.
            let _ = thread.join();
        }
    }
}

impl Log {
    /// Opens the log in `dir`, which is made if missing.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open; [`Error::Format`] if a newer version
    /// wrote it; [`Error::Failed`] if the disk refuses.
    pub fn open(dir: &Path) -> Result<Log> {
        let store = open_store(dir)?;
        check_format(&store)?;
        let last = match store.entries.last_key_value() {
            Some(record) => Some(decode_entry(record)?.0),
            None => None,
        };
        let next = last.as_ref().map_or(Tsid(1), |header| header.tsid.next());
        remove_orphans(&store, next)?;
        release_memory(&store)?;
        let first = Tsid(meta_u64(&store, META_FIRST)?.unwrap_or(1));
        let epoch = meta_u64(&store, META_EPOCH)?.unwrap_or(0);
        let shared = Arc::new(Shared::new(Tail::new(TAIL_LEN_MAX), last, first, epoch));
        let thread = spawn_writer(&shared, &store)?;
        let inner = Inner { shared, store, thread: Mutex::new(Some(thread)) };
        Ok(Log { inner: Arc::new(inner) })
    }

    /// Stores chunk `n` of the entry that will get `tsid`. Waits at [`PENDING_LEN_MAX`].
    /// The entry does not exist before [`Log::append`] of its header. Storing a chunk again
    /// (after a broken stream) replaces it.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn append_chunk(&self, tsid: Tsid, n: u32, bytes: Bytes) -> Result<()> {
        self.inner.shared.room(PENDING_LEN_MAX).await?;
        let mut state = self.inner.shared.lock();
        state.check()?;
        state.push(Operation::put(Space::Chunks, chunk_key(tsid, n), bytes.to_vec()));
        drop(state);
        self.kick_if_much(bytes.len());
        Ok(())
    }

    fn kick_if_much(&self, len: usize) {
        if len >= EAGER_LEN / 8 {
            self.inner.shared.kick();
        }
    }

    /// Appends an entry; its chunks travel inside, or were stored before by
    /// [`Log::append_chunk`]. Idempotent: an entry already there, by incarnation and commit LSN,
    /// is skipped and `false` returned. Waits at [`PENDING_LEN_MAX`], never for the disk
    /// otherwise; visible to [`Log::read`] at once, durable when [`Log::durable`] says so,
    /// which takes [`Log::flush`] or [`Log::persist`].
    ///
    /// # Errors
    /// [`Error::Gap`] if it does not follow the last entry; [`Error::Failed`].
    pub async fn append(&self, entry: Entry) -> Result<bool> {
        self.inner.shared.room(PENDING_LEN_MAX).await?;
        let durable = *self.inner.shared.durable.borrow();
        let mut state = self.inner.shared.lock();
        state.check()?;
        if !follows(state.last.as_ref(), &entry.header)? {
            return Ok(false);
        }
        let header = entry.header.clone();
        let key = header.tsid.0.to_be_bytes();
        let entry = if header.chunks <= 1 {
            entry
        } else {
            for (n, chunk) in (0..).zip(&entry.chunks) {
                let key = chunk_key(header.tsid, n);
                state.push(Operation::put(Space::Chunks, key, chunk.to_vec()));
            }
            Entry { header: entry.header, chunks: Vec::new() }
        };
        state.push(Operation::put(Space::Entries, key, encode_entry(&entry)));
        state.tail.push(Arc::new(entry), durable);
        let appended = header.tsid;
        state.last = Some(header);
        drop(state);
        self.inner.shared.appended.send_replace(appended);
        Ok(true)
    }

    /// Starts making durable what was appended; never waits.
    pub fn flush(&self) {
        self.inner.shared.kick();
    }

    /// Makes durable what was appended so far; returns the last durable entry.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn persist(&self) -> Result<Tsid> {
        self.inner.shared.persist().await?;
        Ok(*self.inner.shared.durable.borrow())
    }

    /// The last entry that is durable. Replicas commit nothing beyond (log before apply).
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<Tsid> {
        self.inner.shared.durable.subscribe()
    }

    /// The last entry that was appended, durable or not: it may be executed, not committed.
    #[must_use]
    pub fn appended(&self) -> watch::Receiver<Tsid> {
        self.inner.shared.appended.subscribe()
    }

    /// Why the log takes nothing more, once the disk failed.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.inner.shared.lock().failed.clone()
    }

    /// Header of the last appended entry: where the collector goes on.
    #[must_use]
    pub fn last(&self) -> Option<Header> {
        self.inner.shared.lock().last.clone()
    }

    /// The oldest entry still there; 1 while the log is empty.
    #[must_use]
    pub fn first(&self) -> Tsid {
        self.inner.shared.lock().first
    }

    /// Entries from `from` on, in order without gap: at most `entries_max`, and no more than
    /// `bytes_max` bytes of chunks unless the first one alone is larger. Empty if `from` was not
    /// appended yet. Includes entries that are not durable yet: look at [`Log::durable`].
    /// Of an entry with more than one chunk `chunks` is empty: use [`Log::chunk`].
    ///
    /// # Errors
    /// [`Error::Trimmed`] if `from` is gone; [`Error::Format`]; [`Error::Failed`].
    pub async fn read(
        &self,
        from: Tsid,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<Entry>>> {
        {
            let state = self.inner.shared.lock();
            if from < state.first {
                return Err(Error::Trimmed { wanted: from, first: state.first });
            }
            if state.last.as_ref().is_none_or(|last| last.tsid < from) {
                return Ok(Vec::new());
            }
            if let Some(entries) = state.tail.read(from, entries_max, bytes_max) {
                return Ok(entries);
            }
        }
        let log = self.clone();
        blocking(move || log.read_disk(from, Budget::new(entries_max, bytes_max))).await
    }

    fn read_disk(&self, from: Tsid, mut budget: Budget) -> Result<Vec<Arc<Entry>>> {
        let mut entries = Vec::new();
        let mut expected = from;
        for record in self.inner.store.entries.range(from.0.to_be_bytes()..) {
            let (header, chunk) = decode_entry(record)?;
            let entry = Entry { chunks: chunk.into_iter().collect(), header };
            if entry.header.tsid != expected || !budget.takes(&entry) {
                break;
            }
            expected = expected.next();
            entries.push(Arc::new(entry));
        }
        let first = self.first();
        if entries.is_empty() && from < first {
            return Err(Error::Trimmed { wanted: from, first });
        }
        Ok(entries)
    }

    /// Chunk `n` of a durable entry.
    ///
    /// # Errors
    /// [`Error::Trimmed`] if it is gone; [`Error::Format`]; [`Error::Failed`].
    pub async fn chunk(&self, tsid: Tsid, n: u32) -> Result<Bytes> {
        let log = self.clone();
        blocking(move || log.chunk_disk(tsid, n)).await
    }

    fn chunk_disk(&self, tsid: Tsid, n: u32) -> Result<Bytes> {
        let store = &self.inner.store;
        if let Some(bytes) = store.chunks.get(chunk_key(tsid, n)).map_err(failed)? {
            return Ok(Bytes::copy_from_slice(&bytes));
        }
        let first = self.first();
        if tsid < first {
            return Err(Error::Trimmed { wanted: tsid, first });
        }
        let missing = || Error::Format(format!("chunk {n} of entry {tsid} is missing"));
        let record =
            store.entries.get(tsid.0.to_be_bytes()).map_err(failed)?.ok_or_else(missing)?;
        let (_, chunk) = split_entry(&Bytes::copy_from_slice(&record))?;
        chunk.filter(|_| n == 0).ok_or_else(missing)
    }

    /// Forgets every entry below `below`, except the last one of the log.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn trim(&self, below: Tsid) -> Result<()> {
        let below = {
            let mut state = self.inner.shared.lock();
            let last = state.last.as_ref().map_or(Tsid(1), |header| header.tsid);
            let durable = *self.inner.shared.durable.borrow();
            let below = below.min(last).min(durable);
            if below <= state.first {
                return Ok(());
            }
            state.first = below;
            state.tail.trim(below);
            below
        };
        let first = sealed(&below.0.to_be_bytes());
        self.inner.shared.write(vec![Operation::put(Space::Meta, META_FIRST, first)]).await?;
        let log = self.clone();
        blocking(move || log.drop_tables(below)).await
    }

    /// Gives the disk back, in whole files. What shares a file with later entries stays until
    /// these go too; nobody reads it, since `first` is durable by now. (Removing record by record
    /// would write more and free nothing for long.)
    fn drop_tables(&self, below: Tsid) -> Result<()> {
        let store = &self.inner.store;
        for space in [&store.entries, &store.chunks] {
            let dropped = space.tree.drop_range(..below.0.to_be_bytes());
            dropped.map_err(|error| failed(error.into()))?;
        }
        Ok(())
    }

    /// Takes the next epoch, durably: a number greater than any manager before had.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn take_epoch(&self) -> Result<u64> {
        let epoch = {
            let mut state = self.inner.shared.lock();
            state.check()?;
            state.epoch += 1;
            state.epoch
        };
        self.put_meta(META_EPOCH, &epoch.to_be_bytes()).await?;
        Ok(epoch)
    }

    /// Notes a server connection, durably before it returns.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn record_backend(&self, backend: &BackendRecord) -> Result<()> {
        let json = serde_json::to_vec(backend).expect("strings and numbers always serialise");
        let operation = Operation::put(Space::Backends, backend_key(backend), sealed(&json));
        self.inner.shared.write(vec![operation]).await
    }

    /// Forgets a server connection that is closed. Lazy: may come back after a crash.
    pub fn forget_backend(&self, backend: &BackendRecord) {
        let operation = Operation::remove(Space::Backends, backend_key(backend));
        let mut state = self.inner.shared.lock();
        if state.failed.is_none() {
            state.push(operation);
        }
    }

    /// Connections noted by managers of epochs below `epoch`.
    ///
    /// # Errors
    /// [`Error::Format`]; [`Error::Failed`].
    pub async fn backends_before(&self, epoch: u64) -> Result<Vec<BackendRecord>> {
        let log = self.clone();
        blocking(move || {
            let records = log.inner.store.backends.range(..epoch.to_be_bytes());
            records
                .map(|record| {
                    let value = record.value().map_err(failed)?;
                    let json = unsealed(&value)?;
                    serde_json::from_slice(json).map_err(|error| Error::Format(error.to_string()))
                })
                .collect()
        })
        .await
    }

    /// A small value kept under a name, such as the incarnation.
    ///
    /// # Errors
    /// [`Error::Format`]; [`Error::Failed`].
    pub fn meta(&self, name: &str) -> Result<Option<Bytes>> {
        meta(&self.inner.store, name)
    }

    /// Keeps a small value, durably before it returns. Names beginning with `log.` are ours.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn set_meta(&self, name: &str, value: &[u8]) -> Result<()> {
        assert!(!name.starts_with("log."), "names beginning with log. belong to the log itself");
        self.put_meta(name, value).await
    }

    async fn put_meta(&self, name: &str, value: &[u8]) -> Result<()> {
        self.inner.shared.write(vec![Operation::put(Space::Meta, name, sealed(value))]).await
    }
}

fn open_store(dir: &Path) -> Result<Store> {
    let opened = Database::builder(dir)
        .cache_size(CACHE_LEN)
        .max_journaling_size(JOURNAL_LEN_MAX)
        .journal_compression(CompressionType::None)
        .worker_threads(1)
        .open();
    let database = opened.map_err(|error| match error {
        fjall::Error::Locked => Error::Locked(dir.to_owned()),
        fjall::Error::InvalidVersion(version) => {
            Error::Format(format!("the storage engine's version is {version:?}"))
        }
        other => Error::Failed(format!("{}: {other}", dir.display())),
    })?;
    let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_LEN);
    let space = |name| database.keyspace(name, options).map_err(failed);
    Ok(Store {
        entries: space("entries")?,
        chunks: space("chunks")?,
        backends: space("backends")?,
        meta: space("meta")?,
        database,
    })
}

fn check_format(store: &Store) -> Result<()> {
    let found = store.meta.get(META_FORMAT).map_err(failed)?;
    match found.as_deref() {
        Some([FORMAT_VERSION]) => Ok(()),
        Some(other) => Err(Error::Format(format!(
            "the directory has version {other:?}, this version of hihooi reads {FORMAT_VERSION}"
        ))),
        None => store.meta.insert(META_FORMAT, [FORMAT_VERSION]).map_err(failed),
    }
}

/// Chunks of an entry whose header never came: its transaction is streamed again.
fn remove_orphans(store: &Store, next: Tsid) -> Result<()> {
    for record in store.chunks.range(next.0.to_be_bytes()..) {
        store.chunks.remove(record.key().map_err(failed)?).map_err(failed)?;
    }
    Ok(())
}

/// What was replayed from the journals goes into tables: it would stay in memory until enough
/// new entries come.
fn release_memory(store: &Store) -> Result<()> {
    for space in [&store.entries, &store.chunks] {
        space.rotate_memtable_and_wait().map_err(failed)?;
    }
    Ok(())
}

fn spawn_writer(shared: &Arc<Shared>, store: &Store) -> Result<JoinHandle<()>> {
    let (shared, store) = (Arc::clone(shared), store.clone());
    std::thread::Builder::new()
        .name("log writer".to_owned())
        .spawn(move || shared.run(&store))
        .map_err(|error| Error::Failed(error.to_string()))
}

/// Whether the entry comes right behind the last one; `false` if it is there already.
fn follows(last: Option<&Header>, next: &Header) -> Result<bool> {
    let Some(last) = last else { return gap_unless(next.tsid == Tsid(1), Tsid::ZERO, next.tsid) };
    if (next.incarnation, next.commit_lsn) <= (last.incarnation, last.commit_lsn) {
        return gap_unless(next.tsid <= last.tsid, last.tsid, next.tsid).map(|_| false);
    }
    gap_unless(next.tsid == last.tsid.next(), last.tsid, next.tsid)
}

fn gap_unless(fits: bool, last: Tsid, got: Tsid) -> Result<bool> {
    if fits { Ok(true) } else { Err(Error::Gap { last, got }) }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Failed(error.to_string()))?
}

fn failed(error: fjall::Error) -> Error {
    Error::Failed(error.to_string())
}

fn chunk_key(tsid: Tsid, n: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&tsid.0.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn backend_key(backend: &BackendRecord) -> Vec<u8> {
    let mut key = backend.epoch.to_be_bytes().to_vec();
    key.extend(backend.pid.to_be_bytes());
    key.extend(backend.site.as_bytes());
    key.push(0);
    key.extend(backend.backend_start.as_bytes());
    key
}

/// Version, length of the header, header, chunk (if it travels inside; never empty then).
fn encode_entry(entry: &Entry) -> Vec<u8> {
    let header = encode_header(&entry.header);
    let chunk = entry.chunks.first().map_or(&[][..], |chunk| chunk);
    let mut value = Vec::with_capacity(5 + header.len() + chunk.len());
    value.push(FORMAT_VERSION);
    let len = u32::try_from(header.len()).expect("a header has at most 256 tables");
    value.extend(len.to_be_bytes());
    value.extend_from_slice(&header);
    value.extend_from_slice(chunk);
    value
}

fn decode_entry(record: Guard) -> Result<(Header, Option<Bytes>)> {
    split_entry(&Bytes::copy_from_slice(&record.value().map_err(failed)?))
}

fn split_entry(value: &Bytes) -> Result<(Header, Option<Bytes>)> {
    let damaged = || Error::Format("damaged entry".to_owned());
    let body_len = unsealed(value)?.len();
    let body = value.slice(value.len() - body_len..);
    let (len, _) = body.split_first_chunk::<4>().ok_or_else(damaged)?;
    let end = 4 + u32::from_be_bytes(*len) as usize;
    if end > body.len() {
        return Err(damaged());
    }
    let header = decode_header(&body.slice(4..end));
    let header = header.map_err(|error| Error::Format(error.to_string()))?;
    let chunk = (end < body.len()).then(|| body.slice(end..));
    Ok((header, chunk))
}

fn sealed(value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![FORMAT_VERSION];
    bytes.extend_from_slice(value);
    bytes
}

fn unsealed(bytes: &[u8]) -> Result<&[u8]> {
    match bytes.split_first() {
        Some((&FORMAT_VERSION, value)) => Ok(value),
        Some((version, _)) => Err(Error::Format(format!("record of version {version}"))),
        None => Err(Error::Format("empty record".to_owned())),
    }
}

fn meta(store: &Store, name: &str) -> Result<Option<Bytes>> {
    let found = store.meta.get(name).map_err(failed)?;
    found.map(|bytes| Ok(Bytes::copy_from_slice(unsealed(&bytes)?))).transpose()
}

fn meta_u64(store: &Store, name: &str) -> Result<Option<u64>> {
    let Some(bytes) = meta(store, name)? else { return Ok(None) };
    let word = bytes.as_ref().try_into().map_err(|_| Error::Format(format!("damaged {name}")))?;
    Ok(Some(u64::from_be_bytes(word)))
}
