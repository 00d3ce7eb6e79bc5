//! The isolation levels against which a history can be checked.

use std::fmt;
use std::str::FromStr;

/// An isolation level.
///
/// The levels are no chain. Serializable implies [`Level::Si`], since transactions that run one
/// after another read snapshots; it says nothing about sessions or real time, and so doesn't
/// imply the other two snapshot levels, nor do they imply it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Adya's PL-2: no dirty writes, no dirty or intermediate reads, no circular information flow.
    ReadCommitted,
    /// Snapshot isolation: each transaction reads one snapshot, some time before it commits, and
    /// of two that write the same thing one has the other in its snapshot. Snapshots may be old.
    Si,
    /// Snapshot isolation of the cluster as a whole, whichever site a transaction ran at. A
    /// history doesn't say where its transactions ran, so this asks for what [`Level::Si`] asks.
    OneCopySi,
    /// Snapshot isolation, and a snapshot holds all that its session did or saw before.
    SessionSi,
    /// Snapshot isolation, and a snapshot holds all that was acknowledged before the transaction
    /// began, and all that any transaction saw that had ended by then.
    StrongSi,
    /// Some serial order explains all that was read.
    Serializable,
    /// Some serial order explains all that was read, and keeps the order of real time.
    StrictSerializable,
}

impl Level {
    /// All levels, each behind those it implies.
    pub const ALL: [Level; 7] = [
        Level::ReadCommitted,
        Level::Si,
        Level::OneCopySi,
        Level::SessionSi,
        Level::StrongSi,
        Level::Serializable,
        Level::StrictSerializable,
    ];

    /// Its name, as the command line has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::ReadCommitted => "read-committed",
            Level::Si => "si",
            Level::OneCopySi => "1-copy-si",
            Level::SessionSi => "session-si",
            Level::StrongSi => "strong-si",
            Level::Serializable => "serializable",
            Level::StrictSerializable => "strict-serializable",
        }
    }

    /// Whether a history that keeps this level must keep the other, too.
    #[must_use]
    pub fn implies(self, other: Level) -> bool {
        use Level::{OneCopySi, ReadCommitted, Serializable, SessionSi, Si, StrictSerializable};
        self == other
            || match self {
                ReadCommitted => false,
                Si | OneCopySi => matches!(other, ReadCommitted | Si | OneCopySi),
                SessionSi | Serializable => Si.implies(other),
                Level::StrongSi => SessionSi.implies(other),
                StrictSerializable => true,
            }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no level's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no level: {names}", names = Level::ALL.map(Level::name).join(", "))]
pub struct UnknownLevel(String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Level, UnknownLevel> {
        let found = Level::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}
