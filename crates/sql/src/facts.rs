//! The facts about a statement. Plain data, which the rest of this crate computes.
//!
//! Tables and columns are the same for every execution of a statement. Rows depend on its values, so the facts
//! contain templates for them ([`NamedRows`]).

use std::fmt;
use std::ops::Range;

use hihooi_replication::items::{Granularity, Items};

use crate::named_rows::{NamedRows, Values, narrow};

/// The facts about a text, which in the simple protocol may hold several statements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Analysis {
    /// In the order of the text; never empty. A text that can't be parsed is one statement of
    /// kind [`Kind::Unparsable`], a text without a statement one of kind [`Kind::Empty`].
    pub statements: Box<[Statement]>,
    /// Which of all that a [`crate::Cache`] has made it is, from 1; 0 if no cache has made it. (An address doesn't tell
    /// them apart: it is used again.)
    pub number: u64,
}

/// The facts about one statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Where it stands in the text: bytes, without the semicolon and the space around it. From
    /// [`crate::Cache`], the only statement of a text may have a range that goes beyond its end;
    /// see [`Statement::text`].
    pub range: Range<usize>,
    /// What sort of statement it is.
    pub kind: Kind,
    /// What its answer or its effect depends on.
    pub reads: Items,
    /// What it may change visibly in the database.
    pub writes: Items,
    /// Of the tables in `reads`, those of which it reads certain rows only.
    pub read_rows: Box<[NamedRows]>,
    /// Of the tables in `writes`, those in which it changes certain rows only.
    pub written_rows: Box<[NamedRows]>,
    /// Whether a replica that is fresh enough gives the same answer.
    pub replica: Replica,
    /// What it may leave in the session.
    pub session: SessionEffect,
    /// It takes row locks, so it may wait for others and must not run twice.
    pub row_locks: bool,
    /// It may commit by itself (CALL, DO, VACUUM, … CONCURRENTLY, CREATE DATABASE), so its
    /// items are in flight from its sending, and it can't be wrapped in a transaction.
    pub may_commit_inside: bool,
    /// A rule may add rows to its answer, which PostgreSQL sends to simple queries only (manual,
    /// "Rules Versus Triggers").
    pub answers_more: bool,
    /// It lists the session's prepared statements or cursors, among which a proxy's own would be seen.
    pub lists_prepared: bool,
    /// It may depend on when its transaction began (`now()`).
    pub reads_clock: bool,
    /// All reasons why a replica may not run it, a bit each; `replica` tells the first.
    pub(crate) reasons: u32,
    /// It asks the system catalogs, and nothing else, not even the time.
    pub only_catalogs: bool,
}

impl Analysis {
    /// The same, but of tables as a whole.
    #[must_use]
    pub fn by_tables(&self) -> Analysis {
        let coarse = |statement: &Statement| Statement {
            reads: statement.reads.clone().at(Granularity::Table),
            writes: statement.writes.clone().at(Granularity::Table),
            read_rows: Box::default(),
            written_rows: Box::default(),
            ..statement.clone()
        };
        Analysis { statements: self.statements.iter().map(coarse).collect(), number: self.number }
    }
}

impl Statement {
    /// Whether a replica may not run it, for no other reasons than these.
    #[must_use]
    pub fn is_unsafe_only_for(&self, reasons: &[Unsafe]) -> bool {
        let all = reasons.iter().fold(0, |all, reason| all | reason.bit());
        self.replica != Replica::Safe && self.reasons & !all == 0
    }

    /// Its part of the text that was analysed.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> &'a str {
        text.get(self.range.start..self.range.end.min(text.len())).unwrap_or(text)
    }

    /// What a run with these values reads.
    #[must_use]
    pub fn reads_with(&self, values: &dyn Values) -> Items {
        narrow(&self.reads, &self.read_rows, values)
    }

    /// What a run with these values may write.
    #[must_use]
    pub fn writes_with(&self, values: &dyn Values) -> Items {
        narrow(&self.writes, &self.written_rows, values)
    }

    /// Whether it may change something that is replicated.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !self.writes.is_empty()
    }
}

/// What sort of statement it is: what the session must do with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No statement at all: white space, comments, semicolons.
    Empty,
    /// The parser refuses it; the primary will say why. It touches everything.
    Unparsable,
    /// A query that can't change tables: SELECT, VALUES, TABLE, EXPLAIN without ANALYZE, COPY
    /// TO a server's file. It may still be unsafe on a replica (row locks, sequences, …).
    Read,
    /// It may change tables: INSERT, UPDATE, DELETE, MERGE, TRUNCATE, a data-modifying WITH, a
    /// query that calls a volatile function of a user, COPY FROM a server's file.
    Write,
    /// COPY … FROM STDIN.
    CopyIn,
    /// COPY … TO STDOUT. If `writes` isn't empty, the copied query changes tables.
    CopyOut,
    /// CALL and DO: may change anything, and commit inside.
    Call,
    /// BEGIN, START TRANSACTION.
    Begin(TransactionModes),
    /// COMMIT, END.
    Commit {
        /// AND CHAIN: the next transaction begins at once.
        chain: bool,
    },
    /// ROLLBACK, ABORT.
    Rollback {
        /// AND CHAIN: the next transaction begins at once.
        chain: bool,
    },
    /// SAVEPOINT name.
    Savepoint(Box<str>),
    /// ROLLBACK TO SAVEPOINT name.
    RollbackTo(Box<str>),
    /// RELEASE SAVEPOINT name.
    Release(Box<str>),
    /// PREPARE TRANSACTION gid.
    PrepareTransaction(Box<str>),
    /// COMMIT PREPARED gid: touches what the prepared transaction touched.
    CommitPrepared(Box<str>),
    /// ROLLBACK PREPARED gid.
    RollbackPrepared(Box<str>),
    /// It acts on the session more than on the database.
    Session(SessionCommand),
    /// It is meant for hihooi itself, which answers it.
    Hihooi(HihooiCommand),
    /// It changes the schema, or maintains the server.
    Ddl(Ddl),
}

impl Kind {
    /// Whether it begins or ends a transaction, and does nothing else.
    #[must_use]
    pub fn is_bound_of_transaction(&self) -> bool {
        matches!(self, Kind::Begin(_) | Kind::Commit { .. } | Kind::Rollback { .. })
    }
}

/// The modes of BEGIN, SET TRANSACTION and SET SESSION CHARACTERISTICS. `None`: not mentioned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionModes {
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
    /// READ ONLY (true) or READ WRITE (false).
    pub read_only: Option<bool>,
    /// DEFERRABLE (true) or NOT DEFERRABLE (false).
    pub deferrable: Option<bool>,
}

/// PostgreSQL's isolation levels; READ UNCOMMITTED is READ COMMITTED (manual, section 13.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Each statement has its own snapshot.
    #[default]
    ReadCommitted,
    /// One snapshot per transaction.
    RepeatableRead,
    /// Serializable snapshot isolation.
    Serializable,
}

/// A statement that acts on the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionCommand {
    /// SET name TO values. `values` is `None` for TO DEFAULT and FROM CURRENT. Numbers and words
    /// are given as their text.
    Set {
        /// In lower case. `role`, `session_authorization` and `timezone` for the long spellings.
        name: Box<str>,
        /// What it is set to.
        values: Option<Box<[Box<str>]>>,
        /// SET LOCAL: until the transaction ends.
        local: bool,
    },
    /// SET TRANSACTION.
    SetTransaction(TransactionModes),
    /// SET TRANSACTION SNAPSHOT.
    SetSnapshot,
    /// SET SESSION CHARACTERISTICS AS TRANSACTION.
    SetCharacteristics(TransactionModes),
    /// SET CONSTRAINTS.
    SetConstraints,
    /// RESET name; `None` is RESET ALL.
    Reset(Option<Box<str>>),
    /// SHOW name (`all` for SHOW ALL).
    Show(Box<str>),
    /// DISCARD.
    Discard(Discard),
    /// LISTEN channel.
    Listen(Box<str>),
    /// UNLISTEN channel; `None` is UNLISTEN *.
    Unlisten(Option<Box<str>>),
    /// NOTIFY.
    Notify,
    /// PREPARE name AS statement.
    Prepare {
        /// The statement's name.
        name: Box<str>,
        /// The facts of what EXECUTE will do; its range covers the whole PREPARE.
        statement: Box<Statement>,
    },
    /// EXECUTE name: touches what the prepared statement touches, here everything.
    Execute(Box<str>),
    /// DEALLOCATE name; `None` is DEALLOCATE ALL.
    Deallocate(Option<Box<str>>),
    /// DECLARE name CURSOR. What the cursor's query touches is in this statement's facts.
    Declare {
        /// The cursor's name.
        name: Box<str>,
        /// WITH HOLD: it outlives the transaction.
        hold: bool,
    },
    /// FETCH from a cursor.
    Fetch(Box<str>),
    /// MOVE in a cursor.
    Move(Box<str>),
    /// CLOSE name; `None` is CLOSE ALL.
    Close(Option<Box<str>>),
    /// LOCK TABLE.
    Lock,
    /// LOAD a shared library.
    Load,
}

/// What DISCARD throws away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// Everything, also the prepared statements.
    All,
    /// Cached plans.
    Plans,
    /// What currval and lastval remember.
    Sequences,
    /// Temporary tables.
    Temp,
}

/// SHOW, SET and RESET of `hihooi.*`. Names come without the prefix, in lower case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HihooiCommand {
    /// SHOW hihooi.name.
    Show(Box<str>),
    /// SET hihooi.name TO values; `None` is TO DEFAULT.
    Set {
        /// The setting.
        name: Box<str>,
        /// What it is set to.
        values: Option<Box<[Box<str>]>>,
        /// SET LOCAL: until the transaction ends.
        local: bool,
    },
    /// RESET hihooi.name.
    Reset(Box<str>),
}

/// How a change of the schema, or a maintenance command, travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ddl {
    /// It may run in a transaction block. False: … CONCURRENTLY, CREATE DATABASE, VACUUM,
    /// ALTER SYSTEM and the like.
    pub in_transaction: bool,
    /// It changes what replicas have as well. False for maintenance (VACUUM, ANALYZE, CLUSTER,
    /// REINDEX, CHECKPOINT), for what belongs to one server (ALTER SYSTEM, tablespaces,
    /// publications, subscriptions), for databases, and for temporary objects.
    pub replicate: bool,
    /// Whether it is about objects that only its session sees.
    pub temporary: Temporary,
    /// It is about objects that all databases share: roles, databases, tablespaces.
    pub shared: bool,
    /// No event trigger fires for it: whoever runs it must have it noted.
    pub hidden: bool,
}

/// Whether objects are temporary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Temporary {
    /// Certainly not.
    No,
    /// Certainly: it says so.
    Yes,
    /// Possibly: no relation it names is in the catalog, and a session's temporary relations
    /// aren't either. In a session that made temporary objects, they may be meant.
    Perhaps,
}

/// Whether a replica that is fresh enough may run a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replica {
    /// It gives the answer that the primary would give.
    Safe,
    /// It would not, or might not.
    Unsafe(Unsafe),
}

/// Why a statement isn't safe on a replica. A closed list: users see the names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Unsafe {
    /// It changes tables.
    Writes,
    /// FOR UPDATE, FOR SHARE and their kin.
    RowLock,
    /// nextval, currval, lastval, setval, or a sequence as a table.
    Sequence,
    /// Advisory locks.
    AdvisoryLock,
    /// NOTIFY, LISTEN, pg_notify.
    Notify,
    /// Temporary tables exist in one session of one server.
    Temporary,
    /// Unlogged tables are not in the stream.
    Unlogged,
    /// Foreign tables.
    Foreign,
    /// Materialized views are refreshed at other moments.
    MaterializedView,
    /// A volatile function that isn't known to be harmless.
    VolatileFunction,
    /// ctid, xmin, xmax, cmin, cmax, tableoid.
    SystemColumn,
    /// It asks about the server, the session's backend, the WAL or storage.
    ServerState,
    /// TABLESAMPLE: depends on where rows lie.
    TableSample,
    /// EXPLAIN: the plan of this server.
    Explain,
    /// Large objects are not in the stream.
    LargeObject,
    /// System catalogs and object identifiers: OIDs differ between sites.
    SystemCatalog,
    /// It uses a cursor.
    Cursor,
    /// It names a relation that isn't in the catalog.
    UnknownRelation,
    /// It calls a function that isn't in the catalog.
    UnknownFunction,
    /// The parser refuses it, or it is nested too deep to look at.
    Unparsable,
    /// It reads or changes what lives in the session.
    SessionState,
    /// It is no query: DDL, maintenance, transaction control and the like.
    Utility,
}

impl Unsafe {
    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The word that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Unsafe::Writes => "writes",
            Unsafe::RowLock => "row_lock",
            Unsafe::Sequence => "sequence",
            Unsafe::AdvisoryLock => "advisory_lock",
            Unsafe::Notify => "notify",
            Unsafe::Temporary => "temporary",
            Unsafe::Unlogged => "unlogged",
            Unsafe::Foreign => "foreign",
            Unsafe::MaterializedView => "materialized_view",
            Unsafe::VolatileFunction => "volatile_function",
            Unsafe::SystemColumn => "system_column",
            Unsafe::ServerState => "server_state",
            Unsafe::TableSample => "table_sample",
            Unsafe::Explain => "explain",
            Unsafe::LargeObject => "large_object",
            Unsafe::SystemCatalog => "system_catalog",
            Unsafe::Cursor => "cursor",
            Unsafe::UnknownRelation => "unknown_relation",
            Unsafe::UnknownFunction => "unknown_function",
            Unsafe::Unparsable => "unparsable",
            Unsafe::SessionState => "session_state",
            Unsafe::Utility => "utility",
        }
    }
}

impl fmt::Display for Unsafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a statement may leave in its session, so that the session can carry it along or pin the
/// client to its connection. "May": also what an opaque function could do (I6). It counts only if
/// the statement succeeds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionEffect {
    /// Settings that outlive the transaction: SET, RESET, set_config, DISCARD ALL, setseed.
    pub settings: bool,
    /// Settings until the end of the transaction: SET LOCAL, set_config(…, true).
    pub local_settings: bool,
    /// search_path may change to what isn't known from the text: afterwards it is unknown, or as
    /// a RESET makes it. (SET search_path says the new value in its [`SessionCommand::Set`] and
    /// isn't marked here.)
    pub search_path: bool,
    /// Names with a dot that SET or set_config gave a value, in lower case: nothing but this value changes
    /// with them, so they aren't marked as [`settings`](Self::settings). (Those that code in the catalog
    /// names are in [`Catalog::custom_settings`](crate::Catalog::custom_settings).)
    pub custom_settings: Vec<Box<str>>,
    /// A setting may have got a value whose name isn't known, so that it can't be read back.
    pub any_setting: bool,
    /// Code ran of which a part came from elsewhere: the words that were seen may not be all.
    pub unseen_code: bool,
    /// Temporary objects.
    pub temp: bool,
    /// PREPARE, EXECUTE, DEALLOCATE.
    pub prepared: bool,
    /// LISTEN, UNLISTEN.
    pub listen: bool,
    /// Advisory locks that outlive the transaction.
    pub advisory: bool,
    /// A cursor WITH HOLD.
    pub cursor_hold: bool,
    /// DISCARD ALL.
    pub discard_all: bool,
    /// The current user may change: SET ROLE, SET SESSION AUTHORIZATION.
    pub role: bool,
    /// A library was loaded, or code ran that may keep what no question tells: compiled, or in a
    /// language that isn't understood.
    pub load: bool,
    /// SQL-level prepared statements that were executed.
    pub executed: Vec<Box<str>>,
}

impl SessionEffect {
    /// Whether it leaves nothing at all.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == SessionEffect::default()
    }

    /// What an opaque piece of code could leave.
    #[must_use]
    pub fn anything() -> SessionEffect {
        SessionEffect {
            settings: true,
            local_settings: true,
            search_path: true,
            custom_settings: Vec::new(),
            any_setting: true,
            unseen_code: true,
            temp: true,
            prepared: true,
            listen: true,
            advisory: true,
            cursor_hold: true,
            discard_all: false,
            role: true,
            load: false,
            executed: Vec::new(),
        }
    }

    /// What compiled code could leave.
    #[must_use]
    pub(crate) fn of_compiled_code() -> SessionEffect {
        SessionEffect { load: true, ..SessionEffect::anything() }
    }

    /// Adds what another part of the statement may leave.
    pub fn merge(&mut self, other: &SessionEffect) {
        self.settings |= other.settings;
        self.local_settings |= other.local_settings;
        self.search_path |= other.search_path;
        add_names(&mut self.custom_settings, &other.custom_settings);
        add_names(&mut self.executed, &other.executed);
        self.any_setting |= other.any_setting;
        self.unseen_code |= other.unseen_code;
        self.temp |= other.temp;
        self.prepared |= other.prepared;
        self.listen |= other.listen;
        self.advisory |= other.advisory;
        self.cursor_hold |= other.cursor_hold;
        self.discard_all |= other.discard_all;
        self.role |= other.role;
        self.load |= other.load;
    }
}

/// Adds names that aren't there yet.
fn add_names(names: &mut Vec<Box<str>>, others: &[Box<str>]) {
    for name in others {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
}
