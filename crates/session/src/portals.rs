//! Portals of transaction blocks. A portal exists until its transaction ends, on the connection where it was
//! opened. So a unit that leaves a portal open, or uses one that is open, can't run at just any replica.
//!
//! Some drivers fetch one row from the unnamed portal and abandon it (asyncpg's `fetchval`, sqlx's
//! `fetch_one`); others fetch the rest later. The first such portal of a session is opened at the primary, and
//! shows which of the two the session does.

use bytes::BytesMut;
use hihooi_wire::backend::Status;
use hihooi_wire::frontend::{self, Bind, Target, tag};

use crate::downstream::Message;
use crate::session::Session;
use crate::unit::{Op, Unit};
use crate::upstream::Upstream;
use crate::work::What;

/// What the session does with an unnamed portal that has more rows than it asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fetching {
    #[default]
    Unknown,
    /// It asks one, at the primary, for some rows.
    Asking,
    /// That portal has more rows.
    Open,
    /// It left it: another was bound, or the transaction ended.
    Never,
    /// It fetched more.
    Later,
}

impl Session {
    /// A unit comes. In a block it may go on with the portal of an earlier one, or leave one itself.
    pub(crate) fn note_portals(&mut self, unit: &mut Unit) {
        if !self.is_in_block() {
            return;
        }
        let is_limited = unit.ops.iter().any(is_limited);
        let fetching = self.fetching;
        self.fetching = match unit.ops.iter_mut().find(|op| op.uses_portal()) {
            Some(Op::Portal(message)) if self.portal_elsewhere && goes_on(message) => {
                *message = elsewhere();
                Fetching::Later
            }
            Some(Op::Portal(message)) if limit(message).is_some() => Fetching::Later,
            Some(Op::Bind { .. }) if fetching == Fetching::Open => Fetching::Never,
            _ if fetching == Fetching::Unknown && is_limited => Fetching::Asking,
            _ => fetching,
        };
    }

    /// Work is written to a server: the one that has the session's transaction, or would have, or another.
    pub(crate) fn note_portal_at(&mut self, what: &What, is_home: bool) {
        let binds = match what {
            What::Query(_) => true,
            What::Unit(unit) => unit.ops.iter().any(binds_unnamed),
            What::Storing(_) => false,
        };
        if binds {
            self.portal_elsewhere = !is_home;
        }
    }

    /// A unit has run where the session's transaction is.
    pub(crate) fn note_suspended(&mut self, up: &Upstream) {
        self.fetching = match (self.fetching, up.status) {
            (Fetching::Asking, Status::Block) if up.suspended => Fetching::Open,
            (Fetching::Asking, _) => Fetching::Unknown,
            (Fetching::Open, Status::Idle) => Fetching::Never,
            (fetching, _) => fetching,
        };
    }

    /// Whether a unit neither needs a portal of an earlier one nor has to leave one in its block: outside of one there are
    /// none.
    pub(crate) fn leaves_no_portal(&self, unit: &Unit) -> bool {
        if !self.is_in_block() {
            return true;
        }
        let unnamed = |message: &Message| {
            frontend::read_target(message.tag, message.body())
                .is_ok_and(|(_, name)| name.is_empty())
        };
        let is_plain = |op: &Op| match op {
            Op::Bind { message, .. } => {
                Bind::read(message.body()).is_ok_and(|bind| bind.portal.is_empty())
            }
            Op::Portal(message) if message.tag == tag::EXECUTE => {
                frontend::read_execute(message.body()).is_ok_and(|(portal, rows)| {
                    portal.is_empty() && (rows == 0 || self.fetching == Fetching::Never)
                })
            }
            Op::Portal(message) => unnamed(message),
            _ => true,
        };
        let count = |is_such: fn(&Op) -> bool| unit.ops.iter().filter(|op| is_such(op)).count();
        let binds = count(|op| matches!(op, Op::Bind { .. }));
        let first = unit.ops.iter().find(|op| matches!(op, Op::Bind { .. } | Op::Portal(_)));
        !matches!(first, Some(Op::Portal(_)))
            && binds <= count(Op::executes)
            && unit.ops.iter().all(is_plain)
    }
}

/// Whether it runs or describes the unnamed portal.
fn goes_on(message: &Message) -> bool {
    let target = || frontend::read_target(message.tag, message.body()).ok();
    let is_described = || matches!(target(), Some((Target::Portal, name)) if name.is_empty());
    limit(message).is_some() || message.tag == tag::DESCRIBE && is_described()
}

/// What is sent in place of what runs or describes the unnamed portal that was opened elsewhere, and is gone. At the
/// transaction's place there may be an older one.
fn elsewhere() -> Message {
    let mut bytes = BytesMut::new();
    frontend::execute(b"of a read at a replica", 0, &mut bytes);
    Message { tag: tag::EXECUTE, bytes: bytes.freeze() }
}

/// How many rows an Execute of the unnamed portal asks for; 0: all.
fn limit(message: &Message) -> Option<i32> {
    let execute =
        (message.tag == tag::EXECUTE).then(|| frontend::read_execute(message.body()).ok())??;
    execute.0.is_empty().then_some(execute.1)
}

fn binds_unnamed(op: &Op) -> bool {
    let Op::Bind { message, .. } = op else { return false };
    Bind::read(message.body()).is_ok_and(|bind| bind.portal.is_empty())
}

fn is_limited(op: &Op) -> bool {
    matches!(op, Op::Portal(message) if limit(message).is_some_and(|rows| rows > 0))
}
