//! The anomalies of a history, with the names used in Adya's thesis, in Elle, and for session guarantees.

use std::fmt;

use serde::{Serialize, Serializer};

/// A kind of anomaly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A read of a value that nobody wrote.
    NeverWritten,
    /// A transaction doesn't see its own earlier writes as it made them.
    BrokenOwnWrites,
    /// Two reads of a list of which neither continues the other: it has two histories.
    IncompatibleOrders,
    /// One append is seen twice in a list: it was carried out twice.
    DuplicateAppend,
    /// An acknowledged append is gone: the final read, or every later read, lacks it.
    LostCommit,
    /// Of two transactions each wrote before the other.
    DirtyWrite,
    /// A read of what an aborted transaction wrote.
    AbortedRead,
    /// A read of what its writer went on to overwrite or to append to.
    IntermediateRead,
    /// Transactions that read from, or wrote behind, each other.
    CircularInformation,
    /// One transaction read a key twice and saw different versions.
    NonRepeatableRead,
    /// A write that replaced a version which its transaction hadn't seen, though it read the key.
    LostUpdate,
    /// A transaction saw some of another's effects, but not all.
    ReadSkew,
    /// Two readers saw two writes in opposite orders.
    LongFork,
    /// Another cycle that no order of snapshots and commits explains.
    NoSnapshotOrder,
    /// Two transactions each overwrote what the other had read.
    WriteSkew,
    /// Another cycle that no serial order explains, though snapshots do.
    NotSerializable,
    /// A process doesn't see what it wrote in an earlier transaction.
    ReadYourWrites,
    /// A process doesn't see what it saw in an earlier transaction.
    MonotonicReads,
    /// Two writes of one process took effect in the opposite order.
    MonotonicWrites,
    /// A process's write took effect before one that it had seen earlier.
    WritesFollowReads,
    /// Another cycle through the order of a process.
    SessionOrder,
    /// A read doesn't show what was acknowledged before it began.
    StaleRead,
    /// A read doesn't show what another client's read, which had ended, did show.
    OldAfterNew,
    /// A read shows what was written only after it had ended.
    FutureRead,
    /// Another cycle through real time.
    RealTimeOrder,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 25] = [
        Kind::NeverWritten,
        Kind::BrokenOwnWrites,
        Kind::IncompatibleOrders,
        Kind::DuplicateAppend,
        Kind::LostCommit,
        Kind::DirtyWrite,
        Kind::AbortedRead,
        Kind::IntermediateRead,
        Kind::CircularInformation,
        Kind::NonRepeatableRead,
        Kind::LostUpdate,
        Kind::ReadSkew,
        Kind::LongFork,
        Kind::NoSnapshotOrder,
        Kind::WriteSkew,
        Kind::NotSerializable,
        Kind::ReadYourWrites,
        Kind::MonotonicReads,
        Kind::MonotonicWrites,
        Kind::WritesFollowReads,
        Kind::SessionOrder,
        Kind::StaleRead,
        Kind::OldAfterNew,
        Kind::FutureRead,
        Kind::RealTimeOrder,
    ];

    /// Its name in words, with the letters of the literature where there are some.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::NeverWritten => "read of a value never written",
            Kind::BrokenOwnWrites => "broken own writes",
            Kind::IncompatibleOrders => "incompatible version orders",
            Kind::DuplicateAppend => "duplicate append",
            Kind::LostCommit => "lost commit",
            Kind::DirtyWrite => "dirty write (G0)",
            Kind::AbortedRead => "aborted read (G1a)",
            Kind::IntermediateRead => "intermediate read (G1b)",
            Kind::CircularInformation => "circular information flow (G1c)",
            Kind::NonRepeatableRead => "non-repeatable read",
            Kind::LostUpdate => "lost update",
            Kind::ReadSkew => "read skew (G-single)",
            Kind::LongFork => "long fork",
            Kind::NoSnapshotOrder => "no order of snapshots (G-nonadjacent)",
            Kind::WriteSkew => "write skew (G2-item)",
            Kind::NotSerializable => "no serial order (G2-item)",
            Kind::ReadYourWrites => "read-your-writes broken",
            Kind::MonotonicReads => "monotonic reads broken",
            Kind::MonotonicWrites => "monotonic writes broken",
            Kind::WritesFollowReads => "writes-follow-reads broken",
            Kind::SessionOrder => "session order broken",
            Kind::StaleRead => "stale read",
            Kind::OldAfterNew => "old after new",
            Kind::FutureRead => "read of the future",
            Kind::RealTimeOrder => "real-time order broken",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// An anomaly and its witness.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Anomaly {
    /// What it is.
    pub kind: Kind,
    /// Numbers of the transactions that show it, from 1.
    pub transactions: Vec<usize>,
    /// What these did, one line each; steps that have no part in it are left out.
    pub who: Vec<String>,
    /// Why that can't be, one line for each step of the argument.
    pub because: Vec<String>,
    /// How many more of the kind there are; of cycles, at least.
    pub more: usize,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.kind)?;
        self.who.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        self.because.iter().try_for_each(|line| writeln!(f, "  - {line}"))?;
        match self.more {
            0 => Ok(()),
            more => writeln!(f, "  ({more} more of this kind)"),
        }
    }
}
