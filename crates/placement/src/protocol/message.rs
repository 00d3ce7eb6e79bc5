//! The messages of the protocol: what comes into a site and what goes out of it, as data.

use std::fmt::Debug;

use hihooi_certify::certification::items::RowKey;
use hihooi_certify::certification::{SiteId, Timestamp, TxnId};

/// What statements, answers and rows are made of; the protocol only carries them.
pub trait Content: Clone + Debug + PartialEq + Eq {
    /// A statement that a site's database can run.
    type Statement: Clone + Debug + PartialEq + Eq;
    /// What the client is told: rows, or an error message.
    type Answer: Clone + Debug + PartialEq + Eq;
    /// The new state of a row, its absence included.
    type Value: Clone + Debug + PartialEq + Eq;
}

/// An object: a table or a fragment of one; sites hold it wholly or not at all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub u32);

/// A row of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Item {
    /// Its object.
    pub object: ObjectId,
    /// Its key.
    pub row: RowKey,
}

/// A row and what a transaction made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<C: Content> {
    /// The row.
    pub item: Item,
    /// Its new state.
    pub value: C::Value,
}

/// The changes of a transaction in the order it made them; a later one of a row replaces an
/// earlier.
pub type Changes<C> = Vec<Change<C>>;

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<C: Content> {
    /// All objects that it reads or writes.
    pub objects: Vec<ObjectId>,
    /// What to run.
    pub statement: C::Statement,
}

/// A transaction that wants to commit, as it goes through the total order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal<C: Content> {
    /// Which.
    pub txn: TxnId,
    /// Its start timestamp: `T.ST`.
    pub begin: Timestamp,
    /// Its writeset.
    pub changes: Changes<C>,
}

/// One execution of an operation at a site; never used twice by a site that isn't restarted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Run(pub u64);

/// What a site's database did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<C: Content> {
    /// For the client.
    pub answer: C::Answer,
    /// The rows that the statement changed; all of the operation's objects.
    pub changes: Changes<C>,
}

/// Why a site's database could not. Its transaction can only be rolled back then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure<C: Content> {
    /// Another transaction wrote the row first, or it was ended for one that is certified.
    Conflict,
    /// The statement is wrong; for the client.
    Statement(C::Answer),
}

/// What happens to a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<C: Content> {
    /// A client's operation. `txn.site` is this site and the number was never used before, also not
    /// before a crash. A client has one request outstanding at a time; each gets one
    /// [`Effect::Reply`].
    Operation {
        /// Of which transaction.
        txn: TxnId,
        /// Whether it is the transaction's first, which begins it. A site that restarted must not
        /// take a later one for the first, and commit half a transaction.
        is_first: bool,
        /// What it asks for.
        operation: Operation<C>,
    },
    /// A client commits.
    Commit {
        /// Which transaction.
        txn: TxnId,
    },
    /// A client aborts, or is gone.
    Abort {
        /// Which transaction.
        txn: TxnId,
    },
    /// Another site says something. Messages may be lost, doubled, late and out of order.
    Message {
        /// Who.
        from: SiteId,
        /// What.
        message: Message<C>,
    },
    /// The next position of the total order; positions have no gaps, repetition is harmless, and so
    /// is one proposal at two positions: it conflicts with itself.
    Delivered {
        /// Its position, from 1.
        at: Timestamp,
        /// What stands there.
        proposal: Proposal<C>,
    },
    /// The database has done, or failed, an [`Effect::Execute`].
    Executed {
        /// Which.
        run: Run,
        /// How it went.
        outcome: Result<Done<C>, Failure<C>>,
    },
    /// A site is taken for dead, also when it was silent for [`super::Limits::silence_ms_max`]: the
    /// transactions it coordinated end here, operations that wait for it fail. Taking a living site
    /// for dead is safe; its next message shows that it lives.
    Down(SiteId),
}

/// What sites say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<C: Content> {
    /// Coordinator to holder: run this operation.
    Redirect {
        /// Of which transaction.
        txn: TxnId,
        /// The number of the operation within it, from 1.
        step: u32,
        /// On which snapshot: `T.ST`.
        begin: Timestamp,
        /// All changes of the transaction so far: `changes(T)`.
        changes: Changes<C>,
        /// What to run.
        operation: Operation<C>,
    },
    /// Holder to coordinator: done, or why not (and then its part of the transaction is gone).
    Redirected {
        /// Of which transaction.
        txn: TxnId,
        /// Which operation.
        step: u32,
        /// `result(op)` and `newChanges`.
        outcome: Result<Done<C>, Cause<C>>,
    },
    /// Coordinator to participant: the transaction ended without changes.
    Release {
        /// Which.
        txn: TxnId,
    },
    /// Participant to coordinator: this transaction can't commit any more.
    Doomed {
        /// Which.
        txn: TxnId,
    },
    /// Every transaction that this site coordinates, now or later, starts at this timestamp or
    /// after it.
    Oldest {
        /// That timestamp.
        at: Timestamp,
    },
}

/// What a site wants done, in this order, and before what its next events make it want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<C: Content> {
    /// Send a message.
    Send {
        /// To whom.
        to: SiteId,
        /// What.
        message: Message<C>,
    },
    /// Put this into the total order; if it gets lost it comes again.
    Broadcast(Proposal<C>),
    /// Keep a snapshot of the database as it is now.
    OpenSnapshot {
        /// It is the state after this position.
        at: Timestamp,
    },
    /// A snapshot is needed no more.
    CloseSnapshot {
        /// Which.
        at: Timestamp,
    },
    /// Begin a transaction in the database on a snapshot that is open.
    Begin {
        /// For which transaction.
        txn: TxnId,
        /// On which snapshot.
        snapshot: Timestamp,
    },
    /// In the database's transaction for it, make these changes, then run the statement; answer
    /// with [`Event::Executed`]. May wait for row locks.
    Execute {
        /// For which transaction.
        txn: TxnId,
        /// To be named in the answer.
        run: Run,
        /// Changes made elsewhere that the statement must see.
        changes: Changes<C>,
        /// What to run.
        statement: C::Statement,
    },
    /// End the database's transaction, undoing it; if something runs in it, that fails.
    Rollback {
        /// Which.
        txn: TxnId,
    },
    /// Make these changes and commit, durably together with `at`. It must succeed: what holds
    /// locks in its way can't commit any more and is to be ended.
    Commit {
        /// Which.
        txn: TxnId,
        /// Its position.
        at: Timestamp,
        /// Whether the database has a transaction for it, which is to be continued; otherwise a new
        /// one on the newest state does.
        begun: bool,
        /// The changes that are not yet made there.
        changes: Changes<C>,
    },
    /// Answer the client's outstanding request.
    Reply {
        /// Of which transaction.
        txn: TxnId,
        /// With what.
        reply: Reply<C>,
    },
}

/// The answer to a client's request. After `Committed` and `Aborted` the transaction is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<C: Content> {
    /// The operation's result.
    Answered(C::Answer),
    /// It is committed.
    Committed {
        /// At this position; its start timestamp if it changed nothing.
        at: Timestamp,
    },
    /// It is not, and never will be.
    Aborted(Cause<C>),
}

/// Why a transaction ended without a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause<C: Content> {
    /// A concurrent transaction committed a write of the same row first.
    WriteConflict,
    /// No living site holds all objects of the operation.
    NoHolder,
    /// The snapshot is not kept any more, where it is needed or where it would be certified.
    SnapshotTooOld,
    /// The site that ran the operation died.
    HolderFailed(SiteId),
    /// The site that ran the operation did not answer in time: a lost message, or transactions
    /// that wait for each other at different sites.
    HolderSilent(SiteId),
    /// A bound of [`super::Limits`] on open work is reached.
    Overloaded,
    /// It changed more rows than [`super::Limits::changes_max`].
    TooManyChanges,
    /// The site has not caught up with its own state from before a crash.
    Recovering,
    /// The statement failed; for the client.
    Statement(C::Answer),
    /// The client asked for it.
    Client,
    /// The site doesn't know the transaction; it may have restarted.
    Unknown,
}

impl<C: Content> Cause<C> {
    /// Whether the same transaction, run again, may well commit.
    #[must_use]
    pub fn can_retry(&self) -> bool {
        match self {
            Cause::WriteConflict
            | Cause::SnapshotTooOld
            | Cause::HolderFailed(_)
            | Cause::HolderSilent(_)
            | Cause::Overloaded
            | Cause::Recovering
            | Cause::Unknown => true,
            Cause::NoHolder | Cause::TooManyChanges | Cause::Statement(_) | Cause::Client => false,
        }
    }
}
