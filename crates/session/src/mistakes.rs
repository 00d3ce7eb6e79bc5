//! Bugs that a test can switch on in a session, to prove that tests find them.

/// A mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mistake {
    /// A write isn't begun before its Sync.
    NotBegun,
    /// A connection with a transaction is released.
    DirtyReleased,
    /// The client gets the answer to a question of the session's own.
    WrongAudience,
    /// A read is repeated elsewhere although the client has its first row.
    RetriedAfterRow,
    /// A connection with state is released.
    Unpinned,
    /// The Sync behind a failed unit is not answered.
    SyncSkipped,
    /// The failure of a query of the session's own counts as the client's unit's.
    OwnFailureIsTheirs,
    /// A block that no server has begun goes on though a statement failed in it.
    FailedGoesOn,
    /// Savepoints of such a block are set in another order when it begins.
    SavepointsReversed,
    /// A setting that was made in such a block is lost when it begins.
    SettingLost,
    /// A read of what its own transaction has written runs at a replica.
    OwnWriteMissed,
    /// A replica's answer stands though it may show two transactions in another order than the primary did.
    ForkStands,
    /// A replica's answer stands though it went on without the rows of a table meanwhile.
    VoidStands,
    /// The session's state is looked at in the middle of a unit, which commits it.
    SettledAmidUnit,
}

#[cfg(test)]
thread_local! {
    static MADE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// Has sessions of this thread make a mistake.
#[cfg(test)]
pub(crate) fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// Whether the mistake is to be made. Never outside of tests.
#[cfg(test)]
pub(crate) fn makes(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}

/// Whether the mistake is to be made. Never outside of tests.
#[cfg(not(test))]
pub(crate) const fn makes(_: Mistake) -> bool {
    false
}
