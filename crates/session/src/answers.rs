//! Matches a server's answers to the messages that were sent to it, and decides who gets each answer (I1).
//!
//! A session sends its client's messages and, between them, messages of its own: a missing Parse, the query for
//! the transaction id, a DDL message. The server answers in order. So a queue of what was sent shows for every
//! frame whether the client gets it, and in which protocol, or the session itself (manual, "Extended Query").
//! After an error the server skips everything up to the next Sync; so does the queue.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use hihooi_wire::backend::{self, ErrorFields, Status, tag};

use crate::described::{self, Columns};
use crate::events::Prepared;
use crate::upstream::NOBODYS;

/// SQLSTATE of what is sent into a block that has failed.
const FAILED_BLOCK: &str = "25P02";

/// Who gets the answer to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// The client, as it comes.
    Client,
    /// The client, which sent a simple query that we turned into the extended protocol: answers
    /// that the simple protocol does not have are left out.
    Simple,
    /// The session, which put it into a unit of the client's; an error is the client's.
    Hidden,
    /// The session itself.
    Us,
    /// The session, which asks something in front of a COMMIT of the client's. If it fails, the
    /// COMMIT can only roll back, and this is why.
    Question,
}

/// What was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Parse of the statement with this server-side id, or of another (None).
    Parse(Option<u64>),
    /// Bind.
    Bind,
    /// Bind of a statement that returns other columns than its client was told, or Describe of this one: it fails.
    Changed(Option<Arc<Prepared>>),
    /// Describe of a statement, of one that a client prepared if it is told.
    DescribeStatement(Option<Arc<Prepared>>),
    /// Describe of a portal.
    DescribePortal,
    /// Execute.
    Execute,
    /// Close of a statement; of the server-side one with this id.
    Close(Option<u64>),
    /// Close of a portal.
    ClosePortal,
    /// Sync.
    Sync,
    /// A simple query or a function call.
    Query,
}

/// What a frame means for the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing to do.
    Nothing,
    /// A statement exists at the server now.
    Parsed(u64),
    /// A statement is gone at the server.
    Closed(u64),
    /// The server waits for COPY data.
    CopyIn,
    /// A statement failed. The unit is skipped up to its Sync.
    Failed,
    /// A query or Sync is answered: the transaction status.
    Ready(Status),
    /// A command ended.
    Complete,
    /// A row came.
    Row,
}

/// What to do with a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The client gets it.
    pub relay: bool,
    /// What it means.
    pub event: Event,
    /// The error that the client gets in its place.
    pub instead: Option<ErrorFields>,
    /// The statement whose parameters it gets in front of that error.
    pub described: Option<Arc<Prepared>>,
}

/// The queue, and what the session's own messages were answered.
#[derive(Debug, Default)]
pub struct Answers {
    queue: VecDeque<(Sent, Audience)>,
    rows: Vec<Vec<Option<Bytes>>>,
    error: Option<Bytes>,
    /// Statements that return something else than their clients were told.
    changed: Vec<u64>,
    /// How many DEALLOCATE and DISCARD ALL were carried out.
    gone: usize,
    /// The client's last command was ROLLBACK, or a COMMIT that became one.
    has_rolled_back: bool,
    /// Why the COMMIT that comes next can only roll back.
    refusal: Option<ErrorFields>,
    /// A unit failed whose Sync has not been sent yet: the server ignores what comes before it.
    skipping: bool,
    /// A unit was begun whose Sync has not been sent: its transaction is open.
    unsynced: bool,
}

impl Answers {
    /// A message was written.
    pub fn sent(&mut self, message: Sent, audience: Audience) {
        if self.skipping {
            if message != Sent::Sync {
                return;
            }
            self.skipping = false;
        }
        self.unsynced = !matches!(message, Sent::Sync | Sent::Query);
        self.queue.push_back((message, audience));
    }

    /// Whether a unit is open at the server: its Sync, which commits, has not been sent.
    #[must_use]
    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Whether a Parse of this statement is on its way.
    #[must_use]
    pub fn will_parse(&self, id: u64) -> bool {
        self.queue.iter().any(|(sent, _)| *sent == Sent::Parse(Some(id)))
    }

    /// Whether what the server does now is the commit of what it has done: nothing of the
    /// client's is left but the end of the unit.
    #[must_use]
    pub fn is_at_commit(&self) -> bool {
        matches!(self.queue.front(), Some((Sent::Sync, _) | (_, Audience::Hidden)))
    }

    /// Whether the client sent a simple query that was turned into something else.
    #[must_use]
    pub fn is_simple(&self) -> bool {
        matches!(self.queue.front(), Some((_, Audience::Simple)))
    }

    /// Whether what comes now answers a simple query, sent as such.
    #[must_use]
    pub fn is_query(&self) -> bool {
        matches!(self.queue.front(), Some((Sent::Query, _)))
    }

    /// Whether the client gets the rows that come now.
    #[must_use]
    pub fn has_rows_for_client(&self) -> bool {
        matches!(self.audience(), Audience::Client | Audience::Simple)
    }

    /// Whether this message says that a Parse, or a Close of a statement, was carried out.
    #[must_use]
    pub fn changes_names(&self, tag: u8) -> bool {
        match self.queue.front() {
            Some((Sent::Parse(_), _)) => tag == tag::PARSE_COMPLETE,
            Some((Sent::Close(_), _)) => tag == tag::CLOSE_COMPLETE,
            _ => false,
        }
    }

    /// Whether what comes now is the error of a Parse of the client's, of a name that was free.
    #[must_use]
    pub fn fails_parse(&self, tag: u8) -> bool {
        let is_parse = |front: &(Sent, Audience)| matches!(front, (Sent::Parse(id), Audience::Client) if *id != Some(NOBODYS));
        tag == tag::ERROR && self.queue.front().is_some_and(is_parse)
    }

    /// Whether what comes now answers a message that the session put into a unit of the client's.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.audience() == Audience::Hidden
    }

    /// Whether what comes now answers a query of the session's own, in front of the client's unit or behind it.
    #[must_use]
    pub fn is_us(&self) -> bool {
        !self.is_empty() && self.audience() == Audience::Us
    }

    /// Whether the server ignores everything up to the next Sync.
    #[must_use]
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Whether everything sent has been answered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Rows that the session's own messages brought, taken out.
    pub fn take_rows(&mut self) -> Vec<Vec<Option<Bytes>>> {
        std::mem::take(&mut self.rows)
    }

    /// The body of the error that one of the session's own messages met, taken out.
    pub fn take_error(&mut self) -> Option<Bytes> {
        self.error.take()
    }

    /// The prepared statement whose parameters or columns this message describes, if it does.
    #[must_use]
    pub fn describes(&self, tag: u8) -> Option<&Arc<Prepared>> {
        match self.queue.front() {
            Some((Sent::DescribeStatement(Some(prepared)), _))
                if matches!(
                    tag,
                    tag::PARAMETER_DESCRIPTION | tag::ROW_DESCRIPTION | tag::NO_DATA
                ) =>
            {
                Some(prepared)
            }
            _ => None,
        }
    }

    /// A statement that the session asked about returns these; `None` if clients can't be told.
    pub fn compare(&mut self, prepared: &Prepared, columns: Option<&Columns>) {
        if prepared.columns.get() != columns {
            self.changed.push(prepared.id);
        }
    }

    /// The ids of statements that return something else than their clients were told, taken out.
    pub fn take_changed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.changed)
    }

    /// Whether the last command of the client's that has ended was a ROLLBACK, or a COMMIT that became one.
    #[must_use]
    pub fn has_rolled_back(&self) -> bool {
        self.has_rolled_back
    }

    /// How many DEALLOCATE and DISCARD ALL were carried out since this was asked.
    pub fn take_gone(&mut self) -> usize {
        std::mem::take(&mut self.gone)
    }

    /// A frame came. Its body is only looked at for the session's own answers and ReadyForQuery.
    pub fn received(&mut self, tag: u8, body: &[u8]) -> Verdict {
        if matches!(tag, tag::NOTICE | tag::NOTIFICATION | tag::PARAMETER_STATUS) {
            // A notification may come at any time and is never an answer to what we asked.
            let is_ours = matches!(self.audience(), Audience::Us | Audience::Question);
            let relay = tag == tag::NOTIFICATION || !is_ours;
            return Verdict { relay, event: Event::Nothing, instead: None, described: None };
        }
        let audience = self.audience();
        let changed = match self.queue.front() {
            Some((Sent::Changed(described), _)) => Some(described.clone()),
            _ => None,
        };
        let event = self.step(tag, body);
        match audience {
            Audience::Question if tag == tag::ERROR => {
                // A block that had failed before rolls back as it should.
                let error = ErrorFields::read(body).unwrap_or_default();
                self.refusal = Some(error).filter(|error| error.code() != FAILED_BLOCK);
            }
            Audience::Us | Audience::Hidden | Audience::Question => self.keep(tag, body),
            _ if tag == tag::READY_FOR_QUERY => self.refusal = None,
            _ => {}
        }
        let relay = match audience {
            Audience::Client => true,
            Audience::Us | Audience::Question => false,
            Audience::Simple => simple_has(tag),
            Audience::Hidden => tag == tag::ERROR,
        };
        let instead = match tag {
            // Its COMMIT rolled back since a question of ours failed, which servers do without saying so.
            tag::COMMAND_COMPLETE if relay => {
                self.has_rolled_back = body.starts_with(b"ROLLBACK");
                self.gone += usize::from(takes_statements(body));
                self.refusal.take()
            }
            tag::ERROR if changed.is_some() => described::changed(body),
            _ => None,
        };
        let described = changed.flatten().filter(|_| instead.is_some());
        Verdict { relay, event, instead, described }
    }

    fn audience(&self) -> Audience {
        self.queue.front().map_or(Audience::Client, |(_, audience)| *audience)
    }

    fn keep(&mut self, tag: u8, body: &[u8]) {
        match tag {
            tag::DATA_ROW => {
                let row = backend::read_data_row(body).unwrap_or_default();
                self.rows.push(row.into_iter().map(|v| v.map(Bytes::copy_from_slice)).collect());
            }
            tag::ERROR => self.error = Some(Bytes::copy_from_slice(body)),
            _ => {}
        }
    }

    fn step(&mut self, tag: u8, body: &[u8]) -> Event {
        let in_query = matches!(self.queue.front(), Some((Sent::Query, _)));
        match tag {
            tag::READY_FOR_QUERY => {
                self.queue.pop_front();
                let status = body.first().and_then(|&byte| Status::from_byte(byte));
                Event::Ready(status.unwrap_or_default())
            }
            tag::ERROR => {
                if !in_query {
                    self.skip_to_sync();
                }
                Event::Failed
            }
            tag::COPY_IN => Event::CopyIn,
            tag::DATA_ROW => Event::Row,
            _ if in_query => self.in_query(tag),
            _ => self.in_unit(tag),
        }
    }

    fn in_query(&mut self, tag: u8) -> Event {
        if tag == tag::COMMAND_COMPLETE { Event::Complete } else { Event::Nothing }
    }

    fn in_unit(&mut self, tag: u8) -> Event {
        let ends = match (self.queue.front().map(|(sent, _)| sent), tag) {
            (Some(Sent::Parse(_)), tag::PARSE_COMPLETE)
            | (Some(Sent::Bind), tag::BIND_COMPLETE)
            | (Some(Sent::Close(_) | Sent::ClosePortal), tag::CLOSE_COMPLETE)
            | (
                Some(Sent::DescribeStatement(_) | Sent::DescribePortal),
                tag::ROW_DESCRIPTION | tag::NO_DATA,
            )
            | (
                Some(Sent::Execute),
                tag::COMMAND_COMPLETE | tag::EMPTY_QUERY | tag::PORTAL_SUSPENDED,
            ) => self.queue.pop_front(),
            _ => None,
        };
        match ends {
            Some((Sent::Parse(Some(id)), _)) => Event::Parsed(id),
            Some((Sent::Close(Some(id)), _)) => Event::Closed(id),
            Some((Sent::Execute, _)) => Event::Complete,
            _ => Event::Nothing,
        }
    }

    fn skip_to_sync(&mut self) {
        while self.queue.front().is_some_and(|(sent, _)| *sent != Sent::Sync) {
            self.queue.pop_front();
        }
        self.skipping = self.queue.is_empty();
    }
}

/// Whether a command that has ended took prepared statements away.
fn takes_statements(body: &[u8]) -> bool {
    body.starts_with(b"DEALLOCATE") || body.starts_with(b"DISCARD ALL")
}

/// Whether the answer to a simple query has this message.
fn simple_has(tag: u8) -> bool {
    !matches!(
        tag,
        tag::PARSE_COMPLETE
            | tag::BIND_COMPLETE
            | tag::CLOSE_COMPLETE
            | tag::NO_DATA
            | tag::PARAMETER_DESCRIPTION
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relayed(answers: &mut Answers, frames: &[(u8, &[u8])]) -> String {
        let shown = frames.iter().filter(|(tag, body)| answers.received(*tag, body).relay);
        shown.map(|(tag, _)| char::from(*tag)).collect()
    }

    #[test]
    fn i1_the_clients_answers_go_through_and_ours_do_not() {
        let mut answers = Answers::default();
        answers.sent(Sent::Parse(Some(1)), Audience::Us);
        answers.sent(Sent::Bind, Audience::Client);
        answers.sent(Sent::Execute, Audience::Client);
        answers.sent(Sent::Bind, Audience::Us);
        answers.sent(Sent::Execute, Audience::Us);
        answers.sent(Sent::Sync, Audience::Client);
        let xid = b"\0\x01\0\0\0\x0342\0";
        let frames: [(u8, &[u8]); 8] = [
            (b'1', b""),
            (b'2', b""),
            (b'D', b"\0\0"),
            (b'C', b"UPDATE 1\0"),
            (b'2', b""),
            (b'D', xid),
            (b'C', b"SELECT 1\0"),
            (b'Z', b"I"),
        ];
        assert_eq!(relayed(&mut answers, &frames), "2DCZ");
        assert_eq!(answers.take_rows(), [[Some(Bytes::from_static(b"42\0"))]]);
        assert!(answers.is_empty());
    }

    #[test]
    fn a_simple_query_that_runs_by_the_extended_protocol_is_answered_as_one() {
        let mut answers = Answers::default();
        for sent in [Sent::Parse(None), Sent::Bind, Sent::DescribePortal, Sent::Execute, Sent::Sync]
        {
            answers.sent(sent, Audience::Simple);
        }
        let frames: [(u8, &[u8]); 5] =
            [(b'1', b""), (b'2', b""), (b'n', b""), (b'C', b"UPDATE 1\0"), (b'Z', b"I")];
        assert_eq!(relayed(&mut answers, &frames), "CZ");
    }

    #[test]
    fn after_an_error_everything_up_to_sync_is_skipped() {
        let mut answers = Answers::default();
        answers.sent(Sent::Bind, Audience::Client);
        answers.sent(Sent::Execute, Audience::Client);
        answers.sent(Sent::Bind, Audience::Us);
        answers.sent(Sent::Sync, Audience::Client);
        let frames: [(u8, &[u8]); 3] = [(b'2', b""), (b'E', b"\0"), (b'Z', b"I")];
        assert_eq!(relayed(&mut answers, &frames), "2EZ");
        assert!(answers.is_empty());
    }

    #[test]
    fn i1_our_own_failed_unit_stays_with_us() {
        let mut answers = Answers::default();
        answers.sent(Sent::Bind, Audience::Us);
        answers.sent(Sent::Sync, Audience::Us);
        answers.sent(Sent::Query, Audience::Client);
        let frames: [(u8, &[u8]); 4] =
            [(b'E', b"C25P02\0\0"), (b'Z', b"E"), (b'C', b"ROLLBACK\0"), (b'Z', b"I")];
        assert_eq!(relayed(&mut answers, &frames), "CZ");
        assert!(answers.take_error().is_some());
    }

    #[test]
    fn i1_a_commit_says_why_it_could_not() {
        let refusal = |error: &[u8]| {
            let mut answers = Answers::default();
            answers.sent(Sent::Bind, Audience::Question);
            answers.sent(Sent::Sync, Audience::Question);
            answers.sent(Sent::Query, Audience::Client);
            assert_eq!(relayed(&mut answers, &[(b'E', error), (b'Z', b"E")]), "");
            let verdict = answers.received(b'C', b"ROLLBACK\0");
            assert!(verdict.relay);
            verdict.instead
        };
        assert!(refusal(b"C57014\0\0").is_some());
        assert_eq!(refusal(b"C25P02\0\0"), None, "the block had failed before");
    }

    #[test]
    fn i1_a_notification_reaches_the_client_although_we_ask_something() {
        let mut answers = Answers::default();
        answers.sent(Sent::Query, Audience::Us);
        let frames: [(u8, &[u8]); 3] = [(b'N', b"\0"), (b'A', b""), (b'Z', b"I")];
        assert_eq!(relayed(&mut answers, &frames), "A");
    }

    #[test]
    fn what_is_sent_into_a_failed_unit_has_no_answer() {
        let mut answers = Answers::default();
        answers.sent(Sent::Execute, Audience::Client);
        assert!(answers.received(b'E', b"\0").relay);
        answers.sent(Sent::Execute, Audience::Client);
        assert!(answers.is_empty());
        answers.sent(Sent::Sync, Audience::Client);
        assert_eq!(relayed(&mut answers, &[(b'Z', b"I")]), "Z");
    }

    #[test]
    fn a_described_statement_has_two_answers() {
        let mut answers = Answers::default();
        answers.sent(Sent::DescribeStatement(None), Audience::Client);
        answers.sent(Sent::Sync, Audience::Client);
        let frames: [(u8, &[u8]); 3] = [(b't', b"\0\0"), (b'T', b"\0\0"), (b'Z', b"I")];
        assert_eq!(relayed(&mut answers, &frames), "tTZ");
        assert!(answers.is_empty());
    }
}
