//! Where a statement runs, decided once, with its reason (Hihooi section 5; I3).

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
}

impl Reason {
    /// All of them, as they are declared.
    pub const ALL: [Reason; 13] = [
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
        }
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
    /// How finely what it reads was told from what others write, if it could run on a replica.
    pub class: Option<Class>,
    /// What it waited for, or was not there, if that was looked for.
    pub decider: Option<Decider>,
    /// When that was decided, if the answer is to be discarded when it may show two transactions in another order
    /// than the primary did.
    pub dispatched: Option<Dispatched>,
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
            class: None,
            decider: None,
            dispatched: None,
            reason,
        }
    }

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
