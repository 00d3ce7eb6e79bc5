//! The thread that writes the log: it takes everything that is pending, writes it with one fsync, wakes the
//! tasks that wait for it, and begins again. So many appends share an fsync, no event loop waits for the disk,
//! and entries can be appended while the disk is busy.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hihooi_replication::entry::Header;
use hihooi_replication::ids::Tsid;
use tokio::sync::watch;

use crate::record::{Kept, Operation};
use crate::store::Appender;
use crate::tail::Tail;
use crate::{Error, Result};

/// Pause before what the disk didn't take is written again.
const RETRY: Duration = Duration::from_millis(500);

/// Operations on their way to the disk, and what appenders, readers and the writing thread know of
/// the log meanwhile.
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
    /// Number of operations that are durable; `u64::MAX` once nothing is accepted any more.
    written: watch::Sender<u64>,
    pub(crate) durable: watch::Sender<Tsid>,
    /// The last entry that was appended, durable or not.
    pub(crate) appended: watch::Sender<Tsid>,
}

pub(crate) struct QueueState {
    pub(crate) tail: Tail,
    pub(crate) last: Option<Header>,
    pub(crate) first: Tsid,
    /// As pushed, hence a little ahead of the disk.
    pub(crate) kept: Kept,
    /// Why nothing is accepted any more.
    pub(crate) failed: Option<String>,
    /// Why nothing can be written for now.
    pub(crate) stalled: Option<String>,
    pending: Vec<Operation>,
    /// Bytes pending and being written.
    pending_len: usize,
    /// Operations ever pushed.
    pushed: u64,
    kicked: bool,
    closing: bool,
}

impl QueueState {
    pub(crate) fn push(&mut self, operation: Operation) {
        self.pending_len += operation.len();
        self.pushed += 1;
        self.pending.push(operation);
    }

    pub(crate) fn put_meta(&mut self, name: &str, value: &[u8]) {
        self.kept.meta.insert(name.to_owned(), value.to_vec());
        self.push(Operation::Meta { name: name.to_owned(), value: value.to_vec() });
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |why| Err(Error::Failed(why.clone())))
    }
}

impl WriteQueue {
    pub(crate) fn new(tail: Tail, last: Option<Header>, first: Tsid, kept: Kept) -> WriteQueue {
        let durable = last.as_ref().map_or(Tsid::ZERO, |header| header.tsid);
        let state = QueueState {
            tail,
            last,
            first,
            kept,
            failed: None,
            stalled: None,
            pending: Vec::new(),
            pending_len: 0,
            pushed: 0,
            kicked: false,
            closing: false,
        };
        WriteQueue {
            state: Mutex::new(state),
            wake: Condvar::new(),
            written: watch::Sender::new(0),
            durable: watch::Sender::new(durable),
            appended: watch::Sender::new(durable),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread write what is pending now; not what comes later.
    pub(crate) fn kick(&self) {
        let mut state = self.lock();
        if !state.pending.is_empty() {
            state.kicked = true;
            self.wake.notify_one();
        }
    }

    /// Makes the thread write the rest and end.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.wake.notify_one();
    }

    /// Waits until less than `len_max` bytes are pending.
    pub(crate) async fn room(&self, len_max: usize) -> Result<()> {
        if self.has_room(len_max)? {
            return Ok(());
        }
        let mut written = self.written.subscribe();
        loop {
            written.mark_unchanged();
            if self.has_room(len_max)? {
                return Ok(());
            }
            self.kick();
            // The sender lives as long as `self`, so an error can't come.
            let _ = written.changed().await;
        }
    }

    fn has_room(&self, len_max: usize) -> Result<bool> {
        let state = self.lock();
        state.check()?;
        Ok(state.pending_len < len_max)
    }

    /// Waits until everything pushed so far is durable. While the disk takes nothing it doesn't wait:
    /// it will be durable, but nobody knows when.
    pub(crate) async fn persist(&self) -> Result<()> {
        let pushed = self.lock().pushed;
        let mut written = self.written.subscribe();
        if *written.borrow() < pushed {
            self.kick();
        }
        loop {
            {
                let state = self.lock();
                state.check()?;
                if *written.borrow_and_update() >= pushed {
                    return Ok(());
                }
                if let Some(why) = &state.stalled {
                    return Err(Error::Disk(why.clone()));
                }
            }
            let _ = written.changed().await;
        }
    }

    /// Waits until everything pushed so far is durable, however long the disk takes nothing.
    pub(crate) async fn until_durable(&self) -> Result<()> {
        let pushed = self.lock().pushed;
        let mut written = self.written.subscribe();
        if *written.borrow() < pushed {
            self.kick();
        }
        let _ = written.wait_for(|&written| written >= pushed).await;
        self.lock().check()
    }

    /// What the thread does until [`WriteQueue::close`], or until it can't go on.
    pub(crate) fn run(self: &Arc<WriteQueue>, appender: &mut Appender) {
        while let Some(mut work) = self.next() {
            let written = loop {
                match appender.write(&mut work.operations) {
                    Err(Error::Disk(why)) if self.stall(&why) => {}
                    other => break other,
                }
            };
            match written {
                Ok(()) => self.done(work.len, work.pushed, work.last),
                Err(error) => return self.fail(&error.to_string()),
            }
        }
    }

    /// The disk took nothing: waits a while before the next attempt. False if the log closes.
    fn stall(&self, why: &str) -> bool {
        let mut state = self.lock();
        if state.stalled.is_none() {
            tracing::error!("the log can't be written: {why}; it is tried again until it can");
        }
        state.stalled = Some(why.to_owned());
        self.written.send_modify(|_| {}); // wakes those who wait: they see why
        let retry = self.wake.wait_timeout_while(state, RETRY, |state| !state.closing);
        !retry.unwrap_or_else(PoisonError::into_inner).0.closing
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if !state.pending.is_empty() && (state.kicked || state.closing) {
                break;
            }
            if state.closing {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.kicked = false;
        let operations = VecDeque::from(std::mem::take(&mut state.pending));
        Some(Work {
            len: operations.iter().map(Operation::len).sum(),
            operations,
            pushed: state.pushed,
            last: state.last.as_ref().map_or(Tsid::ZERO, |header| header.tsid),
        })
    }

    fn done(&self, len: usize, pushed: u64, last: Tsid) {
        {
            let mut state = self.lock();
            state.pending_len -= len;
            if state.stalled.take().is_some() {
                tracing::info!("the log is written again");
            }
        }
        self.durable.send_if_modified(|durable| std::mem::replace(durable, last) != last);
        self.written.send_replace(pushed);
    }

    fn fail(&self, why: &str) {
        tracing::error!("the log failed: {why}");
        self.lock().failed = Some(why.to_owned());
        self.written.send_replace(u64::MAX);
    }
}

/// What the thread writes next.
struct Work {
    operations: VecDeque<Operation>,
    len: usize,
    pushed: u64,
    last: Tsid,
}
