//! Consistency levels: what a read must see, and how long it waits for that (Hihooi section 5.3;
//! `docs/consistency.md`).

use std::fmt;
use std::str::FromStr;

use hihooi_replication::items::Items;
use hihooi_replication::primary_equivalent::named_rows;

/// The level of a session, or of one statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Consistency {
    /// As `strict`, and a commit is answered when every replica that serves shows it: so do all reads from then on, whatever
    /// their level (the paper's 1SR).
    Sync,
    /// Global strong snapshot isolation: a read sees every commit that was sent before it came, as far as it touches
    /// what is read. A read of rows that it names is as one at the primary.
    #[default]
    Gssi,
    /// As `gssi`, and any read is as one at the primary.
    Strict,
    /// A read sees every commit that was sent before it came, whatever it touches: it waits for a replica that has
    /// them all (the paper's RSI-PC).
    RsiPc,
    /// A read sees what its session wrote and has seen before.
    Session,
    /// Any replica serves, however far behind.
    WeakSi,
}

impl Consistency {
    /// All of them, the strongest first.
    pub const ALL: [Consistency; 6] = [
        Consistency::Sync,
        Consistency::Strict,
        Consistency::Gssi,
        Consistency::RsiPc,
        Consistency::Session,
        Consistency::WeakSi,
    ];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Consistency::Sync => "sync",
            Consistency::Gssi => "gssi",
            Consistency::Strict => "strict",
            Consistency::RsiPc => "rsi-pc",
            Consistency::Session => "session",
            Consistency::WeakSi => "weak-si",
        }
    }

    /// Of which items a read must see all commits that were sent before it came, if the level tells that.
    #[must_use]
    pub fn must_see(self, read: &Items) -> &Items {
        match self {
            // Of a session's own writes it is enough to know that they have come.
            Consistency::RsiPc | Consistency::Session => &Items::Everything,
            _ => read,
        }
    }

    /// Whether a read waits for a replica however cheap it is.
    #[must_use]
    pub fn always_waits(self) -> bool {
        matches!(self, Consistency::RsiPc | Consistency::Session)
    }

    /// Whether the answer of a replica must be looked at: it may show two transactions in another order than the
    /// primary did (rule (3) of I3). A single row has one order.
    #[must_use]
    pub fn is_checked(self, read: &Items) -> bool {
        match (self, named_rows(read)) {
            (Consistency::Gssi, Some(rows)) => rows > 1,
            (Consistency::Strict | Consistency::Sync, rows) => rows.is_none_or(|rows| rows > 1),
            _ => false,
        }
    }

    /// The same for a snapshot from which a transaction will read whatever it likes.
    #[must_use]
    pub fn is_checked_snapshot(self) -> bool {
        matches!(self, Consistency::Gssi | Consistency::Strict | Consistency::Sync)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Consistency {
    type Err = String;

    fn from_str(name: &str) -> Result<Consistency, String> {
        let is_meant = |level: &Consistency| name.eq_ignore_ascii_case(level.as_str());
        Consistency::ALL.into_iter().find(is_meant).ok_or_else(|| {
            let known: Vec<&str> = Consistency::ALL.iter().map(|level| level.as_str()).collect();
            format!("Available values: {}.", known.join(", "))
        })
    }
}
