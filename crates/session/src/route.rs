//! Where a statement runs, decided once, with its reason (Hihooi section 5; I3).

use std::fmt;

use hihooi_replication::freshness::Decider;
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::Class;
use hihooi_replication::primary_equivalent::Dispatched;

use crate::sites::SiteId;

/// Why a statement ran where it ran: a closed list, told in docs/routes.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A replica had all that the read must see.
    Fresh,
    /// So it had after the read waited for it.
    Waited,
    /// Its transaction's snapshot is at a replica.
    Snapshot,
    /// It may write.
    Write,
    /// It reads inside a transaction that wrote.
    InWriteTransaction,
    /// It is in an explicit transaction block.
    ExplicitBlock,
    /// No replica was fresh enough in time.
    NotFresh,
    /// Replicas' answers may have shown two transactions in another order than the primary did.
    Discarded,
    /// A replica can't be trusted to give the primary's answer.
    Unsafe,
    /// The session's state lives on one connection.
    SessionState,
    /// Its isolation level needs the primary.
    Isolation,
    /// A hint said so.
    Hint,
    /// No replica serves.
    NoReplica,
    /// The replicas that serve have set aside a table that it reads.
    SetAside,
}

impl Reason {
    /// All of them, as they are declared.
    pub const ALL: [Reason; 14] = [
        Reason::Fresh,
        Reason::Waited,
        Reason::Snapshot,
        Reason::Write,
        Reason::InWriteTransaction,
        Reason::ExplicitBlock,
        Reason::NotFresh,
        Reason::Discarded,
        Reason::Unsafe,
        Reason::SessionState,
        Reason::Isolation,
        Reason::Hint,
        Reason::NoReplica,
        Reason::SetAside,
    ];

    /// Whether it is a reason to run at a replica; the others are reasons to run on the primary.
    #[must_use]
    pub fn is_for_replicas(self) -> bool {
        matches!(self, Reason::Fresh | Reason::Waited | Reason::Snapshot)
    }

    /// The word that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Fresh => "fresh",
            Reason::Waited => "waited",
            Reason::Snapshot => "snapshot",
            Reason::Write => "write",
            Reason::InWriteTransaction => "in_write_transaction",
            Reason::ExplicitBlock => "explicit_block",
            Reason::NotFresh => "not_fresh",
            Reason::Discarded => "discarded",
            Reason::Unsafe => "unsafe",
            Reason::SessionState => "session_state",
            Reason::Isolation => "isolation",
            Reason::Hint => "hint",
            Reason::NoReplica => "no_replica",
            Reason::SetAside => "set_aside",
        }
    }
}

/// The name of an exported snapshot, as `pg_export_snapshot()` gives it (manual, "Snapshot Synchronization
/// Functions").
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SnapshotName {
    text: [u8; SnapshotName::LEN_MAX],
    len: u8,
}

impl SnapshotName {
    /// Two numbers of 8 hexadecimal digits each, and a decimal one, with hyphens between them.
    const LEN_MAX: usize = 32;

    /// A name, if it looks like one.
    #[must_use]
    pub fn new(name: &str) -> Option<SnapshotName> {
        let is_part = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
        if name.is_empty() || !name.as_bytes().iter().all(is_part) {
            return None;
        }
        let mut text = [0; SnapshotName::LEN_MAX];
        text.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(SnapshotName { text, len: u8::try_from(name.len()).ok()? })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Debug for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The site.
    pub site: SiteId,
    /// The TSID that the read needed, if it could run on a replica.
    pub needed: Option<Tsid>,
    /// What the chosen replica had applied then.
    pub applied: Option<Tsid>,
    /// How often it had set tables aside, or brought them back, then.
    pub set_aside_changes: u64,
    /// How finely what it reads was told from what others write, if it could run on a replica.
    pub class: Option<Class>,
    /// What it waited for, or was not there, if that was looked for.
    pub decider: Option<Decider>,
    /// When that was decided, if the answer is to be discarded when it may show two transactions in another order
    /// than the primary did.
    pub dispatched: Option<Dispatched>,
    /// What the transaction imports there before it reads.
    pub snapshot: Option<SnapshotName>,
    /// Why.
    pub reason: Reason,
}

impl Route {
    /// To the primary.
    #[must_use]
    pub fn primary(reason: Reason) -> Route {
        Route {
            site: SiteId::Primary,
            needed: None,
            applied: None,
            set_aside_changes: 0,
            class: None,
            decider: None,
            dispatched: None,
            snapshot: None,
            reason,
        }
    }

    /// What users see of it.
    #[must_use]
    pub fn placed(&self) -> Placed {
        let Route { site, needed, applied, class, reason, .. } = *self;
        Placed { site, needed, applied, class, reason }
    }
}

/// Where a statement ran, as users see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// See [`Route`].
    pub site: SiteId,
    needed: Option<Tsid>,
    applied: Option<Tsid>,
    class: Option<Class>,
    /// Why.
    pub reason: Reason,
}

impl Placed {
    /// As `SHOW hihooi.last_route` tells it.
    #[must_use]
    pub fn describe(&self, site: &str) -> String {
        let number = |tsid: Option<Tsid>| tsid.map_or("-".to_owned(), |tsid| tsid.to_string());
        let class = self.class.map_or("-".to_owned(), |class| class.to_string());
        format!(
            "site={site} needed={} applied={} class={class} reason={}",
            number(self.needed),
            number(self.applied),
            self.reason.as_str()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_snapshots_are_taken_for_such() {
        for name in ["00000003-0000001B-1", "7FFFFFFF-FFFFFFFF-2147483647"] {
            assert_eq!(SnapshotName::new(name).expect("a name").as_str(), name);
        }
        for text in ["", "'; DROP TABLE t; --", "00000003-0000001B-1'", &"0".repeat(33)] {
            assert_eq!(SnapshotName::new(text), None, "{text}");
        }
    }
}
