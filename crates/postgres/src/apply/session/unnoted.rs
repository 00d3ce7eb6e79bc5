//! Tables that no event told of: EXPLAIN ANALYZE of CREATE TABLE AS made them, at the primary itself or in code that
//! commits. hihooi looks for such tables every two seconds and has the primary note them
//! (`hihooi.follow_unnoted`), so their notes are in the log behind their rows.

use std::time::Duration;

use hihooi_replication::codec::{KnownRelations, decode_chunk};
use hihooi_replication::entry::{Change, Entry};
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::RelId;
use hihooi_replication::note::{Command, Note};
use tokio::time::{Instant, timeout_at};

use super::{Result, Session};
use crate::apply::work::is_in_log;
use crate::connection::Error;

/// For so long a note is waited for: a few looks.
const NOTE_WAIT: Duration = Duration::from_secs(10);
/// Read from the log at once.
const READ_ENTRIES: usize = 128;
const READ_BYTES: usize = 1 << 20;

impl Session {
    /// Creates a table whose rows come and that the replica lacks, if a later entry has a note that tells how; whether
    /// one has.
    pub(super) async fn create_unnoted(&mut self, tsid: Tsid, relation: RelId) -> Result<bool> {
        // The answers before it are to be read.
        self.use_path(tsid, None);
        self.settle().await?;
        if self.failed.is_some() {
            return Ok(false);
        }
        let Some(command) = self.note_behind(tsid, relation).await? else { return Ok(false) };
        self.followed.expect(command);
        self.forget();
        let done = self.followed.create(&mut self.connection, relation.0).await;
        self.note_followed(tsid, done)?;
        Ok(self.failed.is_none())
    }

    /// The first note behind an entry that creates a table, as soon as it is there.
    async fn note_behind(&self, tsid: Tsid, relation: RelId) -> Result<Option<Box<Command>>> {
        let deadline = Instant::now() + NOTE_WAIT;
        let mut durable = self.log.durable();
        let mut known = KnownRelations::default();
        let (mut next, mut end) = (tsid.next(), None);
        loop {
            let last = *durable.borrow_and_update();
            let read = self.log.read(next, READ_ENTRIES, READ_BYTES).await.map_err(unreadable)?;
            for entry in read.iter().filter(|entry| entry.header.tsid <= last) {
                if let Some(command) = self.creation(entry, relation, &mut known).await? {
                    return Ok(Some(command));
                }
                next = entry.header.tsid.next();
            }
            if Instant::now() >= deadline {
                // What is written meanwhile doesn't count.
                if next > *end.get_or_insert(last) {
                    return Ok(None);
                }
            } else if next > last
                && let Ok(Err(closed)) = timeout_at(deadline, durable.changed()).await
            {
                return Err(unreadable(closed));
            }
        }
    }

    /// The note of an entry that creates a table.
    async fn creation(
        &self,
        entry: &Entry,
        relation: RelId,
        known: &mut KnownRelations,
    ) -> Result<Option<Box<Command>>> {
        let header = &entry.header;
        for number in (0..header.chunks).filter(|_| header.has_ddl) {
            let chunk = match entry.chunks.get(number as usize) {
                Some(chunk) if !is_in_log(entry) => chunk.clone(),
                _ => self.log.chunk(header.tsid, number).await.map_err(unreadable)?,
            };
            for change in decode_chunk(&chunk, known).map_err(unreadable)? {
                if let Change::Note(Note::Command(command)) = change
                    && command.relation == Some(relation.0)
                    && command.create.is_some()
                {
                    return Ok(Some(command));
                }
            }
        }
        Ok(None)
    }
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Protocol(format!("the log: {error}"))
}
