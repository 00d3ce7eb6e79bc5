//! Reads that any fresh replica may serve. If a replica fails, the read is sent to another site, as long as the
//! client has received nothing of the result (I3).

use std::sync::Arc;

use hihooi_replication::items::{Granularity, Items};
use hihooi_sql::{Analysis, Hint, Isolation, Kind, Replica, Statement, Unsafe};
use hihooi_wire::frontend::{self, Bind, Target, tag};

use crate::answers::{Audience, Sent};
use crate::block::Block;
use crate::consistency::Consistency;
use crate::downstream::Message;
use crate::events::Env;
use crate::own_types::{self, Objects};
use crate::route::Reason;
use crate::session::Session;
use crate::unit::{Ends, Op, Unit, write_op};
use crate::upstream::Upstream;
use crate::values::RunValues;
use crate::work::What;

/// Numbers of statements of simple queries have this bit, those of prepared statements have not.
const SIMPLE: u64 = 1 << 63;

/// What a unit wants of a replica.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// What it reads.
    items: Reads,
    /// The level that a hint asks for.
    pub(crate) consistency: Option<Consistency>,
    /// By what its duration is remembered.
    pub(crate) statement: u64,
    /// Version of the catalog by which it was analysed.
    pub(crate) catalog_version: u64,
    /// It names types of users, as far as is known.
    pub(crate) own_types: bool,
    /// It takes the snapshot of a transaction.
    pub(crate) takes_snapshot: bool,
}

/// What is read.
#[derive(Debug)]
enum Reads {
    /// What a text with one statement reads.
    Of(Arc<Analysis>),
    /// All of these.
    All(Items),
}

impl Default for Reads {
    fn default() -> Reads {
        Reads::All(Items::Nothing)
    }
}

impl Wanted {
    /// What a simple query of one statement wants.
    pub(crate) fn of_query(
        facts: Arc<Analysis>,
        text: &[u8],
        granularity: Granularity,
        consistency: Option<Consistency>,
        catalog_version: u64,
    ) -> Wanted {
        // Texts of one shape share their facts.
        let statement = SIMPLE | facts.number;
        let items = match facts.statements.first() {
            Some(only) if granularity < Granularity::Range || !only.read_rows.is_empty() => {
                Reads::All(only.reads_with(&RunValues::of_text(text)).at(granularity))
            }
            _ => Reads::Of(facts),
        };
        Wanted { items, consistency, statement, catalog_version, ..Wanted::default() }
    }

    /// What a statement wants that reads nothing.
    pub(crate) fn of_nothing(facts: &Analysis, catalog_version: u64) -> Wanted {
        Wanted { statement: SIMPLE | facts.number, catalog_version, ..Wanted::default() }
    }

    /// It takes the snapshot of a transaction, of which nobody knows yet what it will read.
    pub(crate) fn taking_snapshot(self) -> Wanted {
        let items = Reads::All(Items::Everything);
        Wanted { items, own_types: true, takes_snapshot: true, ..self }
    }

    pub(crate) fn items(&self) -> &Items {
        match &self.items {
            Reads::Of(facts) => facts.statements.first().map_or(&Items::Everything, |s| &s.reads),
            Reads::All(items) => items,
        }
    }
}

impl Session {
    /// Whether this session, now, may have statements routed at all.
    pub(crate) fn may_route(&self, env: &dyn Env) -> Result<(), Reason> {
        if self.up.is_some() && !self.may_read_beside() {
            return Err(if self.pin.is_some() && !self.is_in_block() {
                Reason::SessionState
            } else {
                self.reason_for(None)
            });
        }
        if !self.opened.is_replicated || !env.has_replicas() {
            return Err(Reason::NoReplica);
        }
        if self.block.is_none() && !self.effects.is_none() {
            return Err(Reason::SessionState); // the primary is to be asked first what it is
        }
        if self.block.is_none() && self.isolation == Isolation::Serializable {
            return Err(Reason::Isolation);
        }
        if self.block.as_deref().is_some_and(Block::has_failed) {
            return Err(Reason::ExplicitBlock); // a server says so
        }
        if env.is_catalog_stale() {
            return Err(Reason::NotFresh);
        }
        Ok(())
    }

    /// Whether what a Close names exists under this name at the session's connection.
    fn is_known_there(&self, close: &Message) -> bool {
        let named = frontend::read_target(close.tag, close.body());
        named.is_ok_and(|(_, name)| self.up.as_ref().is_some_and(|up| up.knows_name(name)))
    }

    /// What a unit reads, if every statement of it may be routed.
    pub(crate) fn routable_unit(&self, unit: &Unit, env: &dyn Env) -> Result<Wanted, Reason> {
        self.may_route(env)?;
        let mut wanted = Wanted { catalog_version: env.catalog_version(), ..Wanted::default() };
        if !self.leaves_no_portal(unit) {
            return Err(Reason::ExplicitBlock);
        }
        let mut items = Items::Nothing;
        let mut has_run = false;
        for op in &unit.ops {
            // Behind rows the client can't be told to forget what a replica described.
            if has_run && (op.describes() || binds_binary(op)) {
                return Err(Reason::Unsafe);
            }
            has_run |= op.executes();
            let Some((prepared, facts)) = op.prepared() else {
                match op {
                    Op::CloseStatement(message) if self.is_known_there(message) => {
                        return Err(Reason::ExplicitBlock);
                    }
                    Op::CloseStatement(_) | Op::Portal(_) => continue,
                    _ => return Err(Reason::Unsafe),
                }
            };
            for statement in &facts.statements {
                let hint = self.is_routable_here(statement, &prepared.query)?;
                wanted.consistency = wanted.consistency.or(hint);
                // To be parsed and described, a statement needs nothing but the schema.
                if let Op::Bind { message, .. } = op {
                    self.fits_block(statement, message.body())?;
                    items.extend(statement.reads_with(&RunValues::of(op)));
                }
            }
            if own_types::any_naming(prepared.types()) {
                return Err(Reason::Unsafe);
            }
            wanted.own_types |= own_types::any_own(prepared.types());
            wanted.statement = prepared.id;
        }
        if self.has_written(&items, env) {
            return Err(Reason::InWriteTransaction);
        }
        wanted.items = Reads::All(items.at(self.own.granularity));
        Ok(if self.takes_snapshot() { wanted.taking_snapshot() } else { wanted })
    }
}

/// Whether a replica may run a statement, as far as the statement goes; the level that a hint asks for.
pub(crate) fn is_routable(
    statement: &Statement,
    text: &[u8],
) -> Result<Option<Consistency>, Reason> {
    if statement.is_write() {
        let is_known = !matches!(
            statement.replica,
            Replica::Unsafe(Unsafe::UnknownRelation | Unsafe::UnknownFunction)
        );
        return Err(if is_known { Reason::Write } else { Reason::Unsafe });
    }
    let reads = matches!(statement.kind, Kind::Read | Kind::CopyOut | Kind::Empty);
    let stays = statement.row_locks || statement.may_commit_inside;
    if !reads || stays || !statement.session.is_none() || statement.replica != Replica::Safe {
        return Err(Reason::Unsafe);
    }
    match hint(text) {
        Some(Hint::Primary) => Err(Reason::Hint),
        Some(Hint::Consistency(name)) => Ok(name.parse().ok()),
        None => Ok(None),
    }
}

/// The level that a hint asks for.
pub(crate) fn hinted_level(text: &[u8]) -> Option<Consistency> {
    match hint(text) {
        Some(Hint::Consistency(name)) => name.parse().ok(),
        _ => None,
    }
}

/// Looked for only in texts that begin with a comment: the common case pays nothing.
fn hint(text: &[u8]) -> Option<Hint<'_>> {
    if !text.starts_with(b"/*") {
        return None;
    }
    std::str::from_utf8(text).ok().and_then(hihooi_sql::hint)
}

/// Writes a read to a replica.
pub(crate) fn write_read(up: &mut Upstream, what: &What) {
    match what {
        What::Query(query) => {
            up.unnamed = None;
            up.output.extend_from_slice(&query.message.bytes);
            up.answers.sent(Sent::Query, Audience::Client);
        }
        What::Unit(unit) => {
            for op in &unit.ops {
                write_op(up, op, unit.audience);
                describe_binary(up, unit, op);
            }
            if let Ends::Sync(audience) = unit.ends {
                up.write_sync(audience);
            }
        }
        What::Storing(_) => {} // no read
    }
}

/// Whether a message describes the portal of this name.
fn describes_portal(op: &Op, portal: &[u8]) -> bool {
    let Op::Portal(message) = op else { return false };
    message.tag == tag::DESCRIBE
        && frontend::read_target(message.tag, message.body()).is_ok_and(|(_, name)| name == portal)
}

/// Whether a replica can be sent it: it knows all types that the client names.
pub(crate) fn can_be_sent(what: &What, objects: Option<&Objects>) -> bool {
    let What::Unit(unit) = what else { return true };
    let mut prepared = unit.ops.iter().filter_map(Op::prepared);
    prepared.all(|(prepared, _)| own_types::to_replica(prepared.types(), objects).is_some())
}

/// Whether rows are asked for in binary.
pub(crate) fn is_binary(what: &What) -> bool {
    matches!(what, What::Unit(unit) if unit.ops.iter().any(binds_binary))
}

fn binds_binary(op: &Op) -> bool {
    let Op::Bind { message, .. } = op else { return false };
    Bind::read(message.body()).is_ok_and(|bind| wants_binary(&bind))
}

fn wants_binary(bind: &Bind<'_>) -> bool {
    own_types::wants_binary(bind.rest).unwrap_or(true)
}

/// Has a replica describe what the client knows already and asks for in binary: inside of arrays and
/// composites there are OIDs of types.
pub(crate) fn describe_binary(up: &mut Upstream, unit: &Unit, op: &Op) {
    let Op::Bind { message, .. } = op else { return };
    let Ok(bind) = Bind::read(message.body()) else { return };
    let is_described = |op: &Op| describes_portal(op, bind.portal);
    if wants_binary(&bind) && !unit.ops.iter().any(is_described) {
        frontend::describe(Target::Portal, bind.portal, &mut up.output);
        up.answers.sent(Sent::DescribePortal, Audience::Hidden);
    }
}
