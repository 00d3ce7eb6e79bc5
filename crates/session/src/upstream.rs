//! A server's side of a session: what was sent to it, what it has not answered yet, and what must be known
//! about the connection before another client may use it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hihooi_wire::backend::{Status, tag};
use hihooi_wire::frontend::{self, Bind, Parse, Target};
use schnellru::{LruMap, UnlimitedCompact};

use crate::answers::{Answers, Audience, Sent};
use crate::downstream::Message;
use crate::events::Prepared;
use crate::names::NamesGone;
use crate::own_types::{self, Objects};
use crate::settings_in_block::Reports;
use crate::state::CarriedSettings;
use crate::unit::Transaction;

/// Prepared statements kept on one server connection; beyond that, those are closed that were not used for the longest
/// time (I8).
pub const STATEMENTS_MAX: usize = 1_000;
/// The statement that asks for the transaction id.
const XID_STATEMENT: &[u8] = b"hihooi_xid";
const XID_QUERY: &[u8] = b"SELECT pg_catalog.pg_current_xact_id_if_assigned()";
/// Has the primary note what no event trigger was told of, behind what committed by itself.
pub const FOLLOW: &str = "SELECT hihooi.follow(false)";
/// Has the primary note what no event trigger was told of, in front of a commit.
pub const FOLLOW_OWN: &str = "SELECT hihooi.follow(true)";
/// The same, where event triggers may have been switched off: what they then missed is refused.
const FOLLOW_WITHOUT_EVENTS: &str = "SELECT hihooi.follow(true, true)";

/// An unnamed statement that is no client's; numbers of sequences that are no session's.
pub const NOBODYS: u64 = 0;

/// How names of prepared statements at servers begin. Their ids follow.
pub(crate) const SERVER_NAME: &[u8] = b"hihooi_";

/// The name at servers of the prepared statement with this id.
#[must_use]
pub fn server_name(id: u64) -> Vec<u8> {
    [SERVER_NAME, id.to_string().as_bytes()].concat()
}

/// A server's side of a session.
#[derive(Debug, Default)]
pub struct Upstream {
    /// A replica answers: what it says of its own objects is not the primary's.
    pub is_replica: bool,
    /// Which of its objects are which of the primary's, for the read that it answers, if that is known.
    pub objects: Option<Arc<Objects>>,
    /// The process number of its backend.
    pub pid: i32,
    /// Bytes to send.
    pub output: BytesMut,
    /// Bytes that came and were not looked at yet.
    pub input: BytesMut,
    /// What the server still has to answer.
    pub answers: Answers,
    /// Transaction status.
    pub status: Status,
    /// Settings in force that differ from those after start-up.
    pub settings: Arc<CarriedSettings>,
    /// The session whose numbers `currval` and `lastval` may know here.
    pub numbers_of: Option<u64>,
    /// The session whose code may have changed settings here that nobody knows of.
    pub unseen_code_of: Option<u64>,
    /// Server-side id of the unnamed statement; [`NOBODYS`] if there may be one of ours.
    pub unnamed: Option<u64>,
    statements: Statements,
    xid_prepared: bool,
    /// Rest of a large frame that is passed through in pieces.
    pub passing: Passing,
    /// What was answered of the client's Parse and Close since the unit began.
    pub names_done: NamesDone,
    /// Whether a statement failed since the unit began.
    pub failed: bool,
    /// Clients' own names that mean something at the server, up to the end of the unit or block.
    literal_names: BTreeMap<Bytes, Literal>,
    /// The unit lists prepared statements: it uses clients' own names where these exist, so that no others are listed.
    pub lists_prepared: bool,
    /// The end of the reply to a simple query that runs by the extended protocol, held back until it is
    /// known to be final.
    pub deferred: Option<Deferred>,
    /// Whether row descriptions of such a reply are held back: a server runs what writes to its end before it
    /// describes the rows.
    pub defers_rows: bool,
    /// It runs a statement of a block that is open for the client only: what the client is to be told of settings
    /// if it fails.
    pub in_block: Option<Reports>,
    /// A portal of the unit has more rows than were asked for.
    pub suspended: bool,
    /// It was sent a setting whose value isn't known yet.
    pub is_setting: bool,
    /// It is a replica that has the snapshot of the session's transaction.
    pub has_snapshot: bool,
    /// The server has said why it closes the connection.
    pub said_goodbye: bool,
}

/// What a client's own name means at the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Literal {
    /// The client's statement with this id.
    Whole(u64),
    /// An empty one: the name is taken.
    Taken,
    /// Whether it is there depends on what was skipped behind an error.
    Unsure,
}

/// Prepared statements that sessions share, by their ids: whether each is known to be there, or only may be.
#[derive(Debug)]
struct Statements(LruMap<u64, bool, UnlimitedCompact>);

impl Default for Statements {
    fn default() -> Statements {
        Statements(LruMap::new(UnlimitedCompact))
    }
}

/// A statement that a client prepared, as servers know it.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its id at servers.
    pub id: u64,
    /// Its name there.
    pub server_name: &'a [u8],
    /// Its text.
    pub query: &'a [u8],
    /// Its parameter types as on the wire.
    pub types: &'a [u8],
}

/// A message that the client gets when what follows shows that it stands.
#[derive(Debug)]
pub struct Deferred {
    /// Its type.
    pub tag: u8,
    /// The whole message.
    pub message: Bytes,
}

/// A large frame that is passed through without ever being held whole.
#[derive(Debug, Default, Clone, Copy)]
pub struct Passing {
    /// Bytes still to come.
    pub rest: usize,
    /// Whether the client gets them.
    pub relay: bool,
}

/// What was answered of the messages that change the names of prepared statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NamesDone {
    /// How many succeeded.
    pub count: usize,
    /// The next one is a Parse, and failed.
    pub parse_failed: bool,
}

impl Upstream {
    /// The side of a connection that was just opened; `input` came behind the server's welcome.
    #[must_use]
    pub fn new(is_replica: bool, pid: i32, input: BytesMut) -> Upstream {
        Upstream { is_replica, pid, input, ..Upstream::default() }
    }

    /// A unit of the client begins.
    pub fn begin_unit(&mut self) {
        self.names_done = NamesDone::default();
        self.failed = false;
        self.defers_rows = false;
        self.in_block = None;
        self.suspended = false;
        self.lists_prepared = false;
    }

    /// Whether nothing is under way and another client could use it after its settings are
    /// changed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.status == Status::Idle
            && self.answers.is_empty()
            && !self.answers.is_unsynced()
            && !self.answers.is_skipping()
            && !self.is_setting
            && self.input.is_empty()
            && self.output.is_empty()
    }

    /// Whether the server has the prepared statement.
    #[must_use]
    pub fn has_statement(&self, id: u64) -> bool {
        self.statements.0.peek(&id) == Some(&true)
    }

    /// The server created a prepared statement.
    pub fn parsed(&mut self, id: u64) {
        self.statements.0.insert(id, true);
    }

    /// A prepared statement of the server may not be what clients have.
    pub fn doubt_statement(&mut self, id: u64) {
        self.statements.0.insert(id, false);
    }

    /// The server closed a prepared statement.
    pub fn closed(&mut self, id: u64) {
        self.statements.0.remove(&id);
    }

    /// All prepared statements of the session are gone, ours too (DISCARD ALL), or may be: they are prepared
    /// again before use, and closed with the others.
    pub fn forget_statements(&mut self) {
        self.statements.0.iter_mut().for_each(|(_, is_known)| *is_known = false);
        self.unnamed = None;
        self.xid_prepared = false;
    }

    /// The question for the transaction's id may be gone.
    pub fn forget_xid_question(&mut self) {
        self.xid_prepared = false;
    }

    /// Writes Close for the statements that were not used for the longest time while there are too many.
    pub fn close_surplus(&mut self) {
        while self.statements.0.len() > STATEMENTS_MAX
            && let Some((id, _)) = self.statements.0.pop_oldest()
        {
            frontend::close(Target::Statement, &server_name(id), &mut self.output);
            self.answers.sent(Sent::Close(None), Audience::Us);
        }
    }

    /// Writes Close for all prepared statements that sessions share, and for ours, as a unit of the session's own.
    pub fn close_statements(&mut self) {
        while let Some((id, _)) = self.statements.0.pop_oldest() {
            frontend::close(Target::Statement, &server_name(id), &mut self.output);
            self.answers.sent(Sent::Close(None), Audience::Us);
        }
        frontend::close(Target::Statement, XID_STATEMENT, &mut self.output);
        self.answers.sent(Sent::Close(None), Audience::Us);
        self.xid_prepared = false;
        self.write_sync(Audience::Us);
    }

    /// Writes Parse of a statement that a client prepared elsewhere.
    fn write_missing_statement(
        &mut self,
        Named { id, server_name: name, query, types }: Named<'_>,
    ) {
        let types = &*self.types_here(types);
        // Closed first: it may be there although we forgot it.
        frontend::close(Target::Statement, name, &mut self.output);
        self.answers.sent(Sent::Close(None), Audience::Hidden);
        Parse { statement: name, query, types }.write(&mut self.output);
        self.answers.sent(Sent::Parse(Some(id)), Audience::Hidden);
    }

    /// Asks what a statement that a client prepared elsewhere returns here, before it is used.
    pub fn write_description(&mut self, prepared: &Arc<Prepared>) {
        let name = &*prepared.server_name;
        let types = &*self.types_here(prepared.types());
        // Closed first: it may be there although we forgot it.
        frontend::close(Target::Statement, name, &mut self.output);
        self.answers.sent(Sent::Close(None), Audience::Us);
        Parse { statement: name, query: &prepared.query, types }.write(&mut self.output);
        self.answers.sent(Sent::Parse(Some(prepared.id)), Audience::Us);
        frontend::describe(Target::Statement, name, &mut self.output);
        self.answers.sent(Sent::DescribeStatement(Some(prepared.clone())), Audience::Us);
    }

    /// Writes Parse of a statement under a client's own name, which is closed after the unit, if it isn't there; whether
    /// there was anything to write.
    pub fn write_named(&mut self, name: &[u8], prepared: &Prepared, audience: Audience) -> bool {
        let Named { id, query, types, .. } = prepared.named();
        let is_there = self.has_named(name, id);
        if !is_there {
            let parse = Parse { statement: name, query, types };
            self.write_literal(parse, Literal::Whole(id), audience);
        }
        !is_there
    }

    fn write_literal(&mut self, parse: Parse<'_>, literal: Literal, audience: Audience) {
        let name = Bytes::copy_from_slice(parse.statement);
        if self.literal_names.insert(name, literal).is_some() {
            frontend::close(Target::Statement, parse.statement, &mut self.output);
            self.answers.sent(Sent::Close(None), audience);
        }
        parse.write(&mut self.output);
        self.answers.sent(Sent::Parse(None), audience);
    }

    /// Has a client's own name be taken, by a statement that can't fail; whether there was anything to write.
    pub fn write_taken(&mut self, name: &[u8], audience: Audience) -> bool {
        let is_free =
            !matches!(self.literal_names.get(name), Some(Literal::Whole(_) | Literal::Taken));
        if is_free {
            let empty = Parse { statement: name, query: b"", types: &[0, 0] };
            self.write_literal(empty, Literal::Taken, audience);
        }
        is_free
    }

    /// Statements under clients' own names are gone.
    pub(crate) fn forget_named(&mut self, gone: &NamesGone) {
        match gone {
            NamesGone::All => self.literal_names.clear(),
            NamesGone::One(name) => drop(self.literal_names.remove(name)),
        }
    }

    /// Whether a client's statement, with this id, exists under its own name.
    pub(crate) fn has_named(&self, name: &[u8], id: u64) -> bool {
        self.literal_names.get(name) == Some(&Literal::Whole(id))
    }

    /// Whether a client's own name means, or may mean, something here.
    pub(crate) fn knows_name(&self, name: &[u8]) -> bool {
        self.literal_names.contains_key(name)
    }

    /// Writes the question for the transaction's id; its answer is a row of the session's own.
    /// It runs in whatever transaction is open and is no unit of its own.
    pub fn write_xid_question(&mut self, audience: Audience) {
        if !self.xid_prepared {
            // Closed first: the name may be taken if somebody's DEALLOCATE missed it.
            frontend::close(Target::Statement, XID_STATEMENT, &mut self.output);
            self.answers.sent(Sent::Close(None), audience);
            frontend::parse(XID_STATEMENT, XID_QUERY, &mut self.output);
            self.answers.sent(Sent::Parse(None), audience);
            self.xid_prepared = true;
        }
        // A portal of its own: the client's unnamed portal must live on.
        let portal = b"hihooi_xid";
        frontend::bind(portal, XID_STATEMENT, std::iter::empty(), &mut self.output);
        self.answers.sent(Sent::Bind, audience);
        frontend::execute(portal, 0, &mut self.output);
        self.answers.sent(Sent::Execute, audience);
        frontend::close(Target::Portal, portal, &mut self.output);
        self.answers.sent(Sent::ClosePortal, audience);
    }

    /// Has the primary note what no event trigger was told of, in front of the commit. The client's unnamed portal, which
    /// ends with the transaction anyway, may still have open what is to be noted; unless it is the COMMIT, it is closed.
    pub(crate) fn write_follow_at_end(&mut self, transaction: &Transaction, audience: Audience) {
        if !transaction.has_bound_commit {
            frontend::close(Target::Portal, b"", &mut self.output);
            self.answers.sent(Sent::ClosePortal, audience);
        }
        self.write_follow(transaction, audience);
    }

    /// Has the primary note what no event trigger was told of so far in the transaction. (Its row isn't anybody's.)
    pub(crate) fn write_follow(&mut self, transaction: &Transaction, audience: Audience) {
        let query = if transaction.may_lack_events { FOLLOW_WITHOUT_EVENTS } else { FOLLOW_OWN };
        frontend::parse(b"", query.as_bytes(), &mut self.output);
        self.answers.sent(Sent::Parse(None), audience);
        self.unnamed = Some(NOBODYS);
        let portal = b"hihooi_follow";
        frontend::bind(portal, b"", std::iter::empty(), &mut self.output);
        self.answers.sent(Sent::Bind, audience);
        frontend::execute(portal, 0, &mut self.output);
        self.answers.sent(Sent::Execute, audience);
        frontend::close(Target::Portal, portal, &mut self.output);
        self.answers.sent(Sent::ClosePortal, audience);
    }

    /// A unit failed: what it should have prepared may have been skipped.
    pub fn unit_failed(&mut self) {
        self.failed = true;
        self.xid_prepared = false;
        self.unnamed = Some(NOBODYS);
        self.literal_names.values_mut().for_each(|literal| *literal = Literal::Unsure);
    }

    /// A query of the session's own failed, which says nothing about the client's unit. If it was to have the
    /// server forget numbers of sequences, they are there still.
    pub fn own_failed(&mut self) {
        self.numbers_of = Some(NOBODYS);
    }

    /// Writes a query of the session's own into a unit of the client's.
    pub fn write_own(&mut self, query: &str, values: &[Option<&[u8]>]) {
        self.unnamed = Some(NOBODYS);
        frontend::parse(b"", query.as_bytes(), &mut self.output);
        self.answers.sent(Sent::Parse(None), Audience::Hidden);
        // A portal of its own: the client's unnamed portal must live on.
        frontend::bind(b"hihooi_own", b"", values.iter().copied(), &mut self.output);
        self.answers.sent(Sent::Bind, Audience::Hidden);
        frontend::execute(b"hihooi_own", 0, &mut self.output);
        self.answers.sent(Sent::Execute, Audience::Hidden);
        frontend::close(Target::Portal, b"hihooi_own", &mut self.output);
        self.answers.sent(Sent::ClosePortal, Audience::Hidden);
    }

    /// Writes Close for what exists under clients' own names, as a unit of the session's own.
    /// Whether there was anything to close.
    pub fn write_cleanup(&mut self) -> bool {
        let any = !self.literal_names.is_empty();
        for name in std::mem::take(&mut self.literal_names).into_keys() {
            frontend::close(Target::Statement, &name, &mut self.output);
            self.answers.sent(Sent::Close(None), Audience::Us);
        }
        if any {
            self.write_sync(Audience::Us);
        }
        any
    }

    /// Writes a simple query of the session's own, which destroys the unnamed statement (manual, "Extended
    /// Query").
    pub fn write_own_query(&mut self, query: &str) {
        self.unnamed = None;
        frontend::query(query.as_bytes(), &mut self.output);
        self.answers.sent(Sent::Query, Audience::Us);
    }

    /// Has the server forget what sequences gave, in front of another session's unit.
    pub fn write_forget_numbers(&mut self) {
        self.write_own_query("DISCARD SEQUENCES");
        self.numbers_of = None;
    }

    /// Writes a statement of a simple query by the extended protocol.
    pub fn write_statement(&mut self, text: &[u8], audience: Audience) {
        self.unnamed = Some(NOBODYS);
        frontend::parse(b"", text, &mut self.output);
        self.answers.sent(Sent::Parse(None), audience);
        frontend::bind(b"", b"", std::iter::empty(), &mut self.output);
        self.answers.sent(Sent::Bind, audience);
        frontend::describe(Target::Portal, b"", &mut self.output);
        self.answers.sent(Sent::DescribePortal, audience);
        frontend::execute(b"", 0, &mut self.output);
        self.answers.sent(Sent::Execute, audience);
    }

    /// Writes a client's Parse of `prepared`; `is_taken` if the client has another statement of this name.
    pub fn write_parse(
        &mut self,
        message: &Message,
        prepared: Named<'_>,
        is_taken: bool,
        audience: Audience,
    ) {
        let Ok(parse) = Parse::read(message.body()) else { return };
        let types = self.types_here(parse.types);
        if is_taken {
            // The server says "already exists" itself, in its own words and language.
            self.write_taken(parse.statement, Audience::Hidden);
            Parse { types: &types, ..parse }.write(&mut self.output);
            self.answers.sent(Sent::Parse(Some(NOBODYS)), audience);
        } else if parse.statement.is_empty() {
            self.unnamed = Some(prepared.id);
            Parse { types: &types, ..parse }.write(&mut self.output);
            self.answers.sent(Sent::Parse(None), audience);
        } else if self.is_listed(parse.statement) {
            frontend::close(Target::Statement, parse.statement, &mut self.output);
            self.answers.sent(Sent::Close(None), Audience::Hidden);
            Parse { types: &types, ..parse }.write(&mut self.output);
            self.answers.sent(Sent::Parse(None), audience);
            let name = Bytes::copy_from_slice(parse.statement);
            self.literal_names.insert(name, Literal::Whole(prepared.id));
        } else {
            let name = prepared.server_name;
            // Parsed anew if it is there: the answer tells whether it still makes sense.
            frontend::close(Target::Statement, name, &mut self.output);
            self.answers.sent(Sent::Close(Some(prepared.id)), Audience::Hidden);
            Parse { statement: name, types: &types, ..parse }.write(&mut self.output);
            self.answers.sent(Sent::Parse(Some(prepared.id)), audience);
        }
    }

    /// Writes a client's Bind, of `prepared` if it has a statement of this name.
    pub fn write_bind(
        &mut self,
        message: &Message,
        prepared: Option<Named<'_>>,
        audience: Audience,
    ) {
        let Ok(bind) = Bind::read(message.body()) else { return };
        let name = self.ensure(bind.statement, prepared);
        if name == bind.statement {
            self.output.extend_from_slice(&message.bytes);
        } else {
            Bind { statement: name, ..bind }.write(&mut self.output);
        }
        self.answers.sent(Sent::Bind, audience);
    }

    /// Writes a client's Describe of a statement, of `prepared` if it has one of this name.
    pub fn write_describe(
        &mut self,
        message: &Message,
        prepared: Option<&Arc<Prepared>>,
        audience: Audience,
    ) {
        let Ok((target, name)) = frontend::read_target(message.tag, message.body()) else { return };
        let name = self.ensure(name, prepared.map(|prepared| prepared.named()));
        frontend::describe(target, name, &mut self.output);
        self.answers.sent(Sent::DescribeStatement(prepared.cloned()), audience);
    }

    /// Writes a client's Bind or Describe of a statement whose columns have changed, so that it fails.
    pub fn write_changed(
        &mut self,
        message: &Message,
        described: Option<Arc<Prepared>>,
        audience: Audience,
    ) {
        let name = b"hihooi_changed"; // no statement is called that, at least now
        frontend::close(Target::Statement, name, &mut self.output);
        self.answers.sent(Sent::Close(None), Audience::Hidden);
        match Bind::read(message.body()) {
            Ok(bind) if message.tag == frontend::tag::BIND => {
                Bind { statement: name, ..bind }.write(&mut self.output);
            }
            _ => frontend::describe(Target::Statement, name, &mut self.output),
        }
        self.answers.sent(Sent::Changed(described), audience);
    }

    /// Writes a client's message about a portal as it came.
    pub fn write_portal(&mut self, message: &Message, audience: Audience) {
        self.output.extend_from_slice(&message.bytes);
        let sent = match message.tag {
            frontend::tag::EXECUTE => Sent::Execute,
            frontend::tag::CLOSE => Sent::ClosePortal,
            _ => Sent::DescribePortal,
        };
        self.answers.sent(sent, audience);
    }

    /// Writes a Close of the unnamed portal, in which a statement of a simple query ran.
    pub(crate) fn write_close_unnamed_portal(&mut self) {
        frontend::close(Target::Portal, b"", &mut self.output);
        self.answers.sent(Sent::ClosePortal, Audience::Hidden);
    }

    /// Writes a client's Close of a statement: of what exists under its own name. (What servers keep for others stays.)
    pub fn write_close(&mut self, message: &Message, audience: Audience) {
        let Ok((target, name)) = frontend::read_target(message.tag, message.body()) else { return };
        let there = self.literal_names.get_mut(name).map(|literal| *literal = Literal::Unsure);
        frontend::close(target, there.map_or(b"hihooi_none", |()| name), &mut self.output);
        self.answers.sent(Sent::Close(None), audience);
    }

    /// Parameter types of the client's as this server knows them. (What a replica lacks isn't sent there.)
    fn types_here<'a>(&self, types: &'a [u8]) -> Cow<'a, [u8]> {
        let objects = self.objects.as_deref().filter(|_| self.is_replica);
        own_types::to_replica(types, objects).unwrap_or(Cow::Borrowed(types))
    }

    /// Makes sure that the server knows a statement; its name there. `name` is the client's.
    fn ensure<'a>(&mut self, name: &'a [u8], prepared: Option<Named<'a>>) -> &'a [u8] {
        match prepared {
            None => {
                if name.is_empty() && self.unnamed.take().is_some() {
                    // Somebody else's: the client has none.
                    frontend::close(Target::Statement, b"", &mut self.output);
                    self.answers.sent(Sent::Close(None), Audience::Hidden);
                }
                name
            }
            Some(Named { id, query, types, .. }) if name.is_empty() => {
                if self.unnamed != Some(id) {
                    let types = &*self.types_here(types);
                    Parse { statement: b"", query, types }.write(&mut self.output);
                    self.answers.sent(Sent::Parse(None), Audience::Hidden);
                    self.unnamed = Some(id);
                }
                name
            }
            Some(_) if self.is_listed(name) => name,
            Some(named) => {
                let is_known = self.statements.0.get(&named.id).is_some_and(|is_known| *is_known);
                if !is_known && !self.answers.will_parse(named.id) {
                    self.write_missing_statement(named);
                }
                named.server_name
            }
        }
    }

    /// Whether the unit lists prepared statements, and this is one under the client's own name.
    fn is_listed(&self, name: &[u8]) -> bool {
        self.lists_prepared && self.knows_name(name)
    }

    /// Writes Sync.
    pub fn write_sync(&mut self, audience: Audience) {
        frontend::sync(&mut self.output);
        self.answers.sent(Sent::Sync, audience);
    }

    /// Writes Flush, which has no answer of its own.
    pub fn write_flush(&mut self) {
        frontend::flush(&mut self.output);
    }
}

/// Whether a frame is the first part of an answer that can't be taken back once the client has
/// it.
#[must_use]
pub fn commits_answer(tag: u8) -> bool {
    matches!(
        tag,
        tag::DATA_ROW
            | tag::COMMAND_COMPLETE
            | tag::EMPTY_QUERY
            | tag::COPY_OUT
            | tag::COPY_IN
            | tag::PORTAL_SUSPENDED
            | tag::READY_FOR_QUERY
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is used stays; what was forgotten is closed with the others (I8).
    #[test]
    fn statements_that_are_not_used_are_closed() {
        let mut server = Upstream::default();
        let last = STATEMENTS_MAX as u64 + 1;
        (1..=last).for_each(|id| server.parsed(id));
        let used = Named { id: 1, server_name: &server_name(1), query: b"", types: b"" };
        assert_eq!(server.ensure(b"a", Some(used)), server_name(1));
        assert!(server.output.is_empty(), "it is there");
        server.close_surplus();
        let mut closed = BytesMut::new();
        frontend::close(Target::Statement, &server_name(2), &mut closed);
        assert_eq!(server.output, closed);
        assert!(server.has_statement(1) && !server.has_statement(2) && server.has_statement(3));

        server.closed(3);
        server.forget_statements();
        assert!((1..=last).all(|id| !server.has_statement(id)));
        server.output.clear();
        server.close_statements();
        let closes = server.output.windows(8).filter(|bytes| bytes.starts_with(b"hihooi_")).count();
        assert_eq!(closes, STATEMENTS_MAX - 1 + 1, "all but the one that was closed, and ours");
    }
}
