//! The embedded log: a directory of segment files, written by this process. Keeps I5: all entries up to
//! [`Log::durable`] exist after any crash, in order and without gaps.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use hihooi_replication::entry::{Entry, Header};
use hihooi_replication::ids::Tsid;
use tokio::sync::watch;

use crate::record::Operation;
use crate::store::{Appender, Store};
use crate::tail::{Budget, Tail};
use crate::writer::WriteQueue;
use crate::{BackendRecord, Error, Log, PENDING_LEN_MAX, Result, TAIL_LEN_MAX, WRITER};

/// A chunk this large is written without waiting for [`Log::flush`].
const EAGER_LEN: usize = 512 << 10;

const META_FIRST: &str = "log.first";
const META_EPOCH: &str = "log.epoch";

/// What the clones of a [`Log`] share. The last one that goes makes everything durable.
pub(crate) struct Inner {
    queue: Arc<WriteQueue>,
    store: Arc<Store>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
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
    /// wrote it; [`Error::Disk`] if the disk refuses.
    pub fn open(dir: &Path) -> Result<Log> {
        let mut appender = Appender::open(dir)?;
        let kept = appender.kept().clone();
        let last = kept.last()?;
        let first = Tsid(number(&kept.meta, META_FIRST)?.unwrap_or(1));
        let store = appender.store();
        let queue = Arc::new(WriteQueue::new(Tail::new(TAIL_LEN_MAX), last, first, kept));
        let writer = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name(WRITER.to_owned())
            .spawn(move || writer.run(&mut appender))
            .map_err(|error| Error::Failed(error.to_string()))?;
        let inner = Inner { queue, store, thread: Mutex::new(Some(thread)) };
        Ok(Log { inner: Arc::new(inner) })
    }

    /// Stores chunk `n` of the entry that will get `tsid`. Waits at [`PENDING_LEN_MAX`].
    /// The entry does not exist before [`Log::append`] of its header. Storing a chunk again
    /// (after a broken stream) replaces it.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn append_chunk(&self, tsid: Tsid, n: u32, bytes: Bytes) -> Result<()> {
        self.inner.queue.room(PENDING_LEN_MAX).await?;
        let mut state = self.inner.queue.lock();
        state.check()?;
        let len = bytes.len();
        state.push(Operation::Chunk { tsid, n, bytes });
        drop(state);
        if len >= EAGER_LEN {
            self.inner.queue.kick();
        }
        Ok(())
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
        self.inner.queue.room(PENDING_LEN_MAX).await?;
        let durable = *self.inner.queue.durable.borrow();
        let mut state = self.inner.queue.lock();
        state.check()?;
        if !follows(state.last.as_ref(), &entry.header)? {
            return Ok(false);
        }
        let header = entry.header.clone();
        let appended = header.tsid;
        let mut entry = entry;
        if header.chunks > 1 {
            for (n, bytes) in (0..).zip(entry.chunks.drain(..)) {
                state.push(Operation::Chunk { tsid: header.tsid, n, bytes });
            }
        }
        let entry = Arc::new(entry);
        state.push(Operation::Entry(Arc::clone(&entry)));
        state.tail.push(entry, durable);
        state.last = Some(header);
        drop(state);
        self.inner.queue.appended.send_replace(appended);
        Ok(true)
    }

    /// Starts making durable what was appended; never waits.
    pub fn flush(&self) {
        self.inner.queue.kick();
    }

    /// Makes durable what was appended so far; returns the last durable entry.
    ///
    /// # Errors
    /// [`Error::Disk`]: it will be durable when the disk takes it; [`Error::Failed`].
    pub async fn persist(&self) -> Result<Tsid> {
        self.inner.queue.persist().await?;
        Ok(*self.inner.queue.durable.borrow())
    }

    /// The last entry that is durable. Replicas commit nothing beyond (log before apply).
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<Tsid> {
        self.inner.queue.durable.subscribe()
    }

    /// The last entry that was appended, durable or not: it may be executed, not committed.
    #[must_use]
    pub fn appended(&self) -> watch::Receiver<Tsid> {
        self.inner.queue.appended.subscribe()
    }

    /// Why the log takes nothing more, if it doesn't.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.inner.queue.lock().failed.clone()
    }

    /// Why nothing can be written for now, while that is so. It is tried again and again.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        self.inner.queue.lock().stalled.clone()
    }

    /// Header of the last appended entry: where the collector goes on.
    #[must_use]
    pub fn last(&self) -> Option<Header> {
        self.inner.queue.lock().last.clone()
    }

    /// The oldest entry still there; 1 while the log is empty.
    #[must_use]
    pub fn first(&self) -> Tsid {
        self.inner.queue.lock().first
    }

    /// Length of everything in the log that is durable, bytes. (The files are longer: one is made at its full length.)
    #[must_use]
    pub fn durable_len(&self) -> u64 {
        self.inner.store.durable_len()
    }

    /// Length of what is durable from an entry on, bytes, in whole segments; nothing if that entry isn't there yet.
    #[must_use]
    pub fn len_from(&self, from: Tsid) -> u64 {
        match *self.inner.queue.durable.borrow() >= from {
            true => self.inner.store.len_from(from),
            false => 0,
        }
    }

    /// Entries from `from` on, in order without gap: at most `entries_max`, and no more than
    /// `bytes_max` bytes of chunks unless the first one alone is larger. Empty if `from` was not
    /// appended yet. Includes entries that are not durable yet: look at [`Log::durable`].
    /// Of an entry whose chunks were stored by [`Log::append_chunk`], be it only one, `chunks` is
    /// empty: use [`Log::chunk`].
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
            let state = self.inner.queue.lock();
            if from < state.first {
                return Err(Error::Trimmed { wanted: from, first: state.first });
            }
            if entries_max == 0 || state.last.as_ref().is_none_or(|last| last.tsid < from) {
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
        let entries = self.inner.store.read(from, &mut budget)?;
        let first = self.first();
        if !entries.is_empty() {
            return Ok(entries);
        }
        if from < first {
            return Err(Error::Trimmed { wanted: from, first });
        }
        Err(Error::Format(format!("entry {from} is missing")))
    }

    /// Chunk `n` of an entry. It comes from the disk, so of an entry that was appended just now
    /// it is there when the entry is durable, which this waits for.
    ///
    /// # Errors
    /// [`Error::Trimmed`] if it is gone; [`Error::Format`]; [`Error::Failed`].
    pub async fn chunk(&self, tsid: Tsid, n: u32) -> Result<Bytes> {
        let is_appended = tsid <= *self.inner.queue.appended.borrow();
        if is_appended && tsid > *self.inner.queue.durable.borrow() {
            self.inner.queue.until_durable().await?;
        }
        let log = self.clone();
        blocking(move || log.chunk_disk(tsid, n)).await
    }

    fn chunk_disk(&self, tsid: Tsid, n: u32) -> Result<Bytes> {
        let found = self.inner.store.chunk(tsid, n);
        let first = self.first();
        if tsid < first {
            return Err(Error::Trimmed { wanted: tsid, first });
        }
        found?.ok_or_else(|| Error::Format(format!("chunk {n} of entry {tsid} is missing")))
    }

    /// Forgets every entry below `below`, except the last one of the log.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn trim(&self, below: Tsid) -> Result<()> {
        let below = {
            let mut state = self.inner.queue.lock();
            let last = state.last.as_ref().map_or(Tsid(1), |header| header.tsid);
            let durable = *self.inner.queue.durable.borrow();
            let below = below.min(last).min(durable);
            if below <= state.first {
                return Ok(());
            }
            state.first = below;
            state.tail.trim(below);
            below
        };
        self.put_meta(META_FIRST, &below.0.to_be_bytes()).await?;
        let store = Arc::clone(&self.inner.store);
        blocking(move || store.trim(below)).await
    }

    /// Takes the next epoch, durably: a number greater than any manager before had.
    ///
    /// # Errors
    /// As [`Log::persist`].
    pub async fn take_epoch(&self) -> Result<u64> {
        let epoch = {
            let mut state = self.inner.queue.lock();
            state.check()?;
            let epoch = number(&state.kept.meta, META_EPOCH)?.unwrap_or(0) + 1;
            state.put_meta(META_EPOCH, &epoch.to_be_bytes());
            epoch
        };
        self.inner.queue.persist().await?;
        Ok(epoch)
    }

    /// Notes a server connection, durably before it returns.
    ///
    /// # Errors
    /// As [`Log::persist`].
    pub async fn record_backend(&self, backend: &BackendRecord) -> Result<()> {
        {
            let mut state = self.inner.queue.lock();
            state.check()?;
            state.kept.backends.insert(backend.clone());
            state.push(Operation::Backend(backend.clone()));
        }
        self.inner.queue.persist().await
    }

    /// Forgets a server connection that is closed. Lazy: may come back after a crash.
    pub fn forget_backend(&self, backend: &BackendRecord) {
        let mut state = self.inner.queue.lock();
        if state.failed.is_none() && state.kept.backends.remove(backend) {
            state.push(Operation::Forget(backend.clone()));
        }
    }

    /// Connections noted by managers of epochs below `epoch`.
    ///
    /// # Errors
    /// [`Error::Format`]; [`Error::Failed`].
    pub async fn backends_before(&self, epoch: u64) -> Result<Vec<BackendRecord>> {
        let state = self.inner.queue.lock();
        let older = state.kept.backends.iter().filter(|backend| backend.epoch < epoch);
        Ok(older.cloned().collect())
    }

    /// A small value kept under a name, such as the incarnation.
    ///
    /// # Errors
    /// [`Error::Format`]; [`Error::Failed`].
    pub fn meta(&self, name: &str) -> Result<Option<Bytes>> {
        let state = self.inner.queue.lock();
        Ok(state.kept.meta.get(name).map(|value| Bytes::copy_from_slice(value)))
    }

    /// Keeps a small value, durably before it returns. Names beginning with `log.` are ours.
    ///
    /// # Errors
    /// As [`Log::persist`].
    pub async fn set_meta(&self, name: &str, value: &[u8]) -> Result<()> {
        assert!(!name.starts_with("log."), "names beginning with log. belong to the log itself");
        self.put_meta(name, value).await
    }

    async fn put_meta(&self, name: &str, value: &[u8]) -> Result<()> {
        {
            let mut state = self.inner.queue.lock();
            state.check()?;
            state.put_meta(name, value);
        }
        self.inner.queue.persist().await
    }
}

/// Whether the entry comes right after the last one; `false` if it is there already.
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

fn number(meta: &BTreeMap<String, Vec<u8>>, name: &str) -> Result<Option<u64>> {
    let Some(bytes) = meta.get(name) else { return Ok(None) };
    let word = bytes.as_slice().try_into();
    let word = word.map_err(|_| Error::Format(format!("a damaged value of {name}")))?;
    Ok(Some(u64::from_be_bytes(word)))
}
