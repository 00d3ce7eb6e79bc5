//! The interface between a session and the relay: [`Event`]s come in, [`Action`]s are requested, and [`Env`]
//! gives access to what only the relay knows. Bytes are not passed in these: they are in the buffers of the
//! client's and the server's sides.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hihooi_replication::freshness::{Part, WriteId};
use hihooi_replication::ids::Xid;
use hihooi_replication::items::Items;
use hihooi_sql::{Analysis, SearchPath};
use hihooi_wire::ProtocolError;
use hihooi_wire::backend::Report;

use crate::consistency::Consistency;
use crate::described::Columns;
use crate::own_types::{Needs, Objects};
use crate::route::{Placed, Route};
use crate::session::may_take;
use crate::sites::SiteId;
use crate::state::MeaningfulSettings;
use crate::upstream::{Named, Upstream, server_name};

/// What a session waits for: that the catalog knows all that the servers show, and more.
#[derive(Debug, Clone, Copy)]
pub struct AwaitedCatalog {
    /// It must know what this write changed.
    pub write: Option<WriteId>,
    /// It must have all code: what others locked when it was read, too.
    pub all_code: bool,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The client sent something, which stands in its input now, or it has gone.
    Client,
    /// The server that works for the session sent these bytes.
    Server(&'a [u8]),
    /// All that was written to the server is on its way.
    Sent,
    /// The connection to the server is lost, and why.
    Lost(String),
    /// The connection that was asked for.
    Leased(Box<Upstream>),
    /// There is none, and what a client is told.
    Refused(Report),
    /// Where a read shall run.
    Routed(Route),
    /// SCRAM verifiers of the passwords that were to be hashed, in their order; `None` if it failed.
    Hashed(Option<Vec<String>>),
    /// What [`deadline`](crate::session::Session::deadline) said is over.
    Deadline,
    /// The catalog has what the session waits for (see
    /// [`waits_for_catalog`](crate::session::Session::waits_for_catalog)).
    Known,
    /// The manager stops.
    Stopped,
}

/// What a session asks for. They are carried out in their order, all of them before any byte is sent that was
/// written in the same step: so a write has begun before its COMMIT is on its way (I3).
#[derive(Debug)]
pub enum Action {
    /// A connection to this site, with the session's settings if there is one; answered by
    /// [`Event::Leased`] or [`Event::Refused`].
    Lease(SiteId),
    /// The connection is free for others.
    Release(Box<Upstream>),
    /// The connection is to be closed: what is left in it ends with it.
    Discard(Box<Upstream>),
    /// The connection that was leased stays the session's, but is not used until [`Action::Resume`].
    Park,
    /// The connection that was parked is used again.
    Resume,
    /// A route for the session's [`wanted`](crate::session::Session::wanted) read; answered by
    /// [`Event::Routed`].
    Route,
    /// SCRAM verifiers of these passwords; answered by [`Event::Hashed`].
    Hash(Vec<String>),
    /// A write's COMMIT may be sent from now on.
    Begin {
        /// Its id.
        write: WriteId,
        /// What it may have written.
        items: Items,
        /// It may have changed the schema.
        may_define: bool,
    },
    /// What became of a write.
    End {
        /// Its id.
        write: WriteId,
        /// That.
        outcome: Outcome,
        /// The client gets the answer when every replica that serves shows it.
        everywhere: bool,
    },
    /// Nobody will hear what became of a write on the connection that the session has.
    Doubt(WriteId),
    /// What runs for the session is to be cancelled.
    Cancel,
    /// Idle connections to databases without sessions are to be closed: one may be about to be dropped.
    CloseUnusedDatabases,
    /// Where the session's statements run from now on.
    Note(Placed),
    /// One more of these at a site.
    Count(SiteId, Counter),
    /// A read took so long.
    Took(u64, Duration),
    /// A replica has begun to answer a read of this statement, so long after it was sent.
    Answered(SiteId, u64, Duration),
    /// A read's connection to a replica failed; it may run elsewhere.
    Failed(SiteId),
    /// What this statement needs, since a replica described it by types of its own.
    OwnTypes(u64, Needs),
    /// The session has ended: the client gets what is written, then its connection is closed.
    Close,
}

/// The actions that a step asked for.
pub type Actions = VecDeque<Action>;

/// What is counted (see SHOW STATS).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// A unit that reads.
    Read,
    /// A unit that may write.
    Write,
    /// A unit that failed.
    Error,
    /// A write that was taken for a read and refused by a replica.
    Misjudged,
    /// An answer of a replica that was discarded, since it may have shown two transactions in another order than the
    /// primary did.
    Discarded,
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was rolled back, or wrote nothing.
    Nothing,
    /// It was committed under this id.
    Committed(Xid),
    /// It ended; what it committed isn't known.
    Unidentified,
}

/// A read that looks for a replica.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    /// What it reads.
    pub items: &'a Items,
    /// Its session's level.
    pub consistency: Consistency,
    /// How long it may wait, milliseconds.
    pub wait_ms: u64,
    /// By what its duration is remembered.
    pub statement: u64,
    /// It names types of users: only a replica whose objects are known may serve it.
    pub own_types: bool,
    /// It takes the snapshot of a transaction: it waits for a replica however cheap it is.
    pub takes_snapshot: bool,
    /// An answer of a replica was discarded, since it may have shown two transactions in another order than the primary
    /// did.
    pub is_again: bool,
    /// Its session has a connection already, with a transaction: it waits for no other.
    pub is_beside: bool,
    /// Sites that failed it already.
    pub not: &'a [SiteId],
}

/// Which schema it is: another one after every change that may have been made.
pub type SchemaVersion = (u64, u64);

/// Under what a statement was prepared. Servers keep what it meant then: which tables its names are, and which values
/// its literals (`timestamptz '2026-01-01'` depends on `TimeZone`).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Meaning {
    /// The schema.
    pub schema: SchemaVersion,
    /// The session's settings; `None` if it means what only its session knows.
    pub settings: Option<MeaningfulSettings>,
}

/// A statement that clients prepared: the same text, types and meaning have one id at all servers.
#[derive(Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Its id at servers.
    pub id: u64,
    /// Its name there.
    pub server_name: Box<[u8]>,
    /// Its text.
    pub query: Bytes,
    /// Its parameter types as its client declared them, as on the wire.
    declared: Bytes,
    /// All of them, as servers found them out, if a client was told.
    pub told_types: OnceLock<Bytes>,
    /// Under what it was prepared.
    pub meaning: Meaning,
    /// It may be a DEALLOCATE: looked for once, since it matters at every Bind.
    pub may_take: bool,
    /// What it returns, if a client was told.
    pub columns: OnceLock<Columns>,
}

impl Prepared {
    /// A statement of which no client was told what it returns.
    #[must_use]
    pub fn new(id: u64, query: Bytes, types: Bytes, meaning: Meaning) -> Prepared {
        let may_take = may_take(&query);
        let server_name = server_name(id).into();
        Prepared {
            id,
            server_name,
            query,
            declared: types,
            told_types: OnceLock::new(),
            meaning,
            may_take,
            columns: OnceLock::new(),
        }
    }

    /// As servers know it.
    #[must_use]
    pub fn named(&self) -> Named<'_> {
        let Prepared { id, server_name, query, .. } = self;
        Named { id: *id, server_name, query, types: self.types() }
    }

    /// Its parameter types, as on the wire. What a client was told stays so, whatever becomes of the schema: it binds
    /// values of these types, perhaps in binary. What it was not told, the next server finds out anew.
    #[must_use]
    pub fn types(&self) -> &Bytes {
        self.told_types.get().unwrap_or(&self.declared)
    }
}

/// What only the relay knows. Every answer is about this moment and is not kept.
pub trait Env {
    /// Time since some moment in the past.
    fn now(&self) -> Duration;
    /// The facts of a text; `None` for a path when names could mean any schema's.
    fn analyse(&self, text: &str, path: Option<&SearchPath>) -> Arc<Analysis>;
    /// The one statement of this text and these parameter types for those who prepare it now with these settings; without
    /// them, one that nobody shares.
    fn prepared(
        &self,
        query: Bytes,
        types: Bytes,
        settings: Option<MeaningfulSettings>,
    ) -> Arc<Prepared>;
    /// Which schema it is now, as far as is known.
    fn schema(&self) -> SchemaVersion;
    /// Version of the catalog in use.
    fn catalog_version(&self) -> u64;
    /// Whether the catalog may lag behind a change of the schema.
    fn is_catalog_stale(&self) -> bool;
    /// Whether the stream brought DDL that the catalog lacks.
    fn is_catalog_unread(&self) -> bool;
    /// Whether the catalog is as a session waits for it to be.
    fn has_catalog(&self, awaited: AwaitedCatalog) -> bool;
    /// How often the primary's configuration was found changed.
    fn configuration_version(&self) -> u64;
    /// Whether the catalog has what a write changed.
    fn knows(&self, write: WriteId) -> bool;
    /// Settings with a dot in their names that code in the catalog gives a value or asks for.
    fn custom_settings(&self) -> Vec<Box<str>>;
    /// Whether somebody else's write of these items is in flight.
    fn is_in_flight(&self, items: &Items) -> bool;
    /// Whether there is any replica.
    fn has_replicas(&self) -> bool;
    /// What this statement needs because replicas describe it by types of their own.
    fn needs(&self, statement: u64) -> Option<Needs>;
    /// Which objects of this site are which of the primary's; `None` for the primary, and while it isn't known
    /// for the schema as it is now.
    fn objects(&self, site: SiteId) -> Option<Arc<Objects>>;
    /// Whether a replica still has what a route to it was chosen for.
    fn still_serves(&self, route: &Route) -> bool;
    /// Whether the answer of a replica may show two transactions in another order than the primary did.
    fn may_be_forked(&self, route: &Route, items: &Items) -> bool;
    /// Whether a replica went on without the rows of a table, or has them again, since a route to it was found.
    fn is_void(&self, route: &Route) -> bool;
    /// Whether the applier of a replica has ended what this backend ran.
    fn was_ended(&self, site: SiteId, pid: i32) -> bool;
    /// Whether the next read's duration is to be told.
    fn measures(&self) -> bool;
    /// A part of what a read reads, in words.
    fn describe(&self, part: Part) -> String;
    /// The name of a site.
    fn site_name(&self, site: SiteId) -> &str;
}

/// A message that a client sent when none of this kind may come.
#[must_use]
pub fn protocol_report(error: &ProtocolError) -> Report {
    Report::fatal("08P01", error.to_string())
}
