//! Reads that any fresh replica may serve: routed, and retried elsewhere as long as the client
//! has seen nothing of the answer (I3).

use std::borrow::Cow;
use std::time::Instant;

use hihooi_replication::items::Items;
use hihooi_sql::{Hint, Kind, Replica, Statement, Unsafe};
use hihooi_wire::backend::Status;
use hihooi_wire::frontend::{self, Bind, Target, tag};
use tracing::warn;

use crate::backend::Backend;
use crate::pool::Refusal;
use crate::pump::{self, Lost};
use crate::relay::{ReadRequest, count};
use crate::session::{Session, Work};
use crate::unit::{Ends, Op, Unit, executes};
use hihooi_session::answers::{Audience, Sent};
use hihooi_session::downstream::Message;
use hihooi_session::own_types;
use hihooi_session::relaying::{Hold, Step};
use hihooi_session::route::{Consistency, PRIMARY, Reason, Route};

/// What a routed unit sends.
pub enum Sends<'a> {
    /// A simple query, as it came.
    Query(&'a Message),
    /// A unit of the extended protocol.
    Unit(&'a Unit),
}

/// What a unit wants of a replica.
#[derive(Debug, Default)]
pub struct Wanted<'a> {
    /// What it reads.
    pub items: Cow<'a, Items>,
    /// The level that a hint asks for.
    pub consistency: Option<Consistency>,
    /// By what its duration is remembered.
    pub statement: u64,
}

/// How a try at a replica ended.
enum Tried {
    /// The client has its answer.
    Answered,
    /// Nothing was relayed; another site may do better.
    Elsewhere,
    /// Nothing was relayed; only the primary can answer.
    OnPrimary,
}

impl Session {
    /// Whether this session, now, may have statements routed at all.
    pub(crate) fn may_route(&self) -> Result<(), Reason> {
        if self.server.is_some() {
            return Err(if self.pin.is_some() && !self.is_in_block() {
                Reason::SessionState
            } else {
                self.reason_for(None)
            });
        }
        if !self.is_replicated || self.relay.replicas.is_empty() {
            return Err(Reason::NoReplica);
        }
        if self.is_serializable {
            return Err(Reason::Isolation);
        }
        if self.relay.is_catalog_stale() {
            return Err(Reason::NotFresh);
        }
        Ok(())
    }

    /// Whether a replica may run a statement, as far as the statement goes.
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
        // Looked for only in texts that begin with a comment: the common case pays nothing.
        if !text.starts_with(b"/*") {
            return Ok(None);
        }
        match std::str::from_utf8(text).ok().and_then(hihooi_sql::hint) {
            Some(Hint::Primary) => Err(Reason::Hint),
            Some(Hint::Consistency(name)) => Ok(Consistency::parse(name)),
            None => Ok(None),
        }
    }

    /// Runs a read at a replica that is fresh enough for its items. Answers the route by which
    /// it must run on the primary if no replica could serve it.
    pub(crate) async fn run_at_replica(
        &mut self,
        sends: &Sends<'_>,
        read: &Wanted<'_>,
    ) -> Work<Option<Route>> {
        let mut not = Vec::new();
        loop {
            let relay = self.relay.clone();
            if relay.own_types.borrow().has(read.statement) {
                return Ok(Some(Route::primary(Reason::Unsafe)));
            }
            let cost_us = relay.costs.borrow().expected_us(read.statement);
            let route = relay
                .route_read(ReadRequest {
                    items: &read.items,
                    consistency: read.consistency.unwrap_or(self.consistency),
                    wait_ms: self.wait_ms,
                    cost_us,
                    not: &not,
                })
                .await;
            if route.site == PRIMARY {
                return Ok(Some(route));
            }
            self.routed(route);
            let began = relay.is_measured_turn().then(Instant::now);
            match self.try_at(route, sends).await? {
                Tried::Answered => {
                    if let Some(began) = began {
                        relay.costs.borrow_mut().took(read.statement, began.elapsed());
                    }
                    return Ok(None);
                }
                Tried::Elsewhere => not.push(route.site),
                Tried::OnPrimary => {
                    relay.own_types.borrow_mut().seen(read.statement);
                    return Ok(Some(Route::primary(Reason::Unsafe)));
                }
            }
        }
    }

    /// Remembers what a read took on the primary that a replica could have run.
    pub(crate) fn learn_cost(&self, route: &Route, statement: u64, began: Instant) {
        if route.reason == Reason::NotFresh {
            self.relay.costs.borrow_mut().took(statement, began.elapsed());
        }
    }

    async fn try_at(&mut self, route: Route, sends: &Sends<'_>) -> Work<Tried> {
        let site = route.site;
        let mut server = match self.take_server(site).await {
            Ok(server) => server,
            Err(refusal) => {
                self.warn_refused(site, &refusal);
                return Ok(Tried::Elsewhere);
            }
        };
        let relay = self.relay.clone();
        if !relay.still_serves(&route) {
            relay.pools.release(server); // it went back or failed while we waited
            return Ok(Tried::Elsewhere);
        }
        let _running = relay.running(site);
        server.up.begin_unit();
        self.write_read(&mut server, sends);
        let mark = self.client.down.output.len();
        match self.relay_held(&mut server).await {
            Ok(Tried::Answered) => {
                count(&relay.counters[site].reads);
                self.settle(server).await?;
                Ok(Tried::Answered)
            }
            outcome => {
                relay.pools.discard(server);
                let tried = match outcome {
                    Ok(Tried::OnPrimary) => Tried::OnPrimary,
                    outcome => {
                        count(&relay.counters[site].errors);
                        if let Err((lost, false)) = outcome {
                            return Err(self.lost(&lost));
                        }
                        Tried::Elsewhere
                    }
                };
                self.client.down.output.truncate(mark);
                Ok(tried)
            }
        }
    }

    fn write_read(&self, server: &mut Backend, sends: &Sends<'_>) {
        match sends {
            Sends::Query(message) => {
                server.up.unnamed = None;
                server.up.output.extend_from_slice(&message.bytes);
                server.up.answers.sent(Sent::Query, Audience::Client);
            }
            Sends::Unit(unit) => {
                let is_described = unit.ops.iter().any(describes_portal);
                for op in &unit.ops {
                    self.write_op(server, op, unit.audience);
                    if !is_described {
                        describe_binary(server, op);
                    }
                }
                let Ends::Sync(audience) = unit.ends else {
                    unreachable!("only whole units are routed")
                };
                frontend::sync(&mut server.up.output);
                server.up.answers.sent(Sent::Sync, audience);
            }
        }
    }

    /// Relays the answer to its end, if that is the client's. When the server is lost: whether
    /// another site may still be asked.
    async fn relay_held(&mut self, server: &mut Backend) -> Result<Tried, (Lost, bool)> {
        let mut hold = Hold::UntilRows;
        self.client.down.tells_leaving = true;
        loop {
            match pump::pump(&mut self.client, server, &mut hold).await {
                Ok(Step::Ready(Status::Idle)) => return Ok(Tried::Answered),
                Ok(Step::Refused(fields)) => {
                    if fields.code() == "25006" {
                        count(&self.relay.counters[server.site].misjudged);
                        warn!(error = %fields, "a write was taken for a read; the primary runs it");
                    }
                    return Ok(Tried::Elsewhere);
                }
                Ok(Step::OwnTypes) => return Ok(Tried::OnPrimary),
                Ok(Step::Left) => self.cancel_own(),
                Ok(_) => {}
                Err(lost) => return Err((lost, hold == Hold::UntilRows)),
            }
        }
    }

    fn warn_refused(&self, site: usize, refusal: &Refusal) {
        if self.relay.replica(site).is_some_and(|replica| replica.is_silent()) {
            return; // told once, when it was found
        }
        let report = refusal.report(&self.relay.sites[site].name, &self.startup);
        self.relay.pools.tell_refusal(site, &report.message);
    }

    /// What a unit reads, if every statement of it may be routed.
    pub(crate) fn routable_unit(&self, unit: &Unit) -> Result<Wanted<'static>, Reason> {
        self.may_route()?;
        let mut wanted = Wanted::default();
        let mut has_run = false;
        for op in &unit.ops {
            // Behind rows the client can't be told to forget what a replica described.
            if has_run && (op.describes() || binds_binary(op)) {
                return Err(Reason::Unsafe);
            }
            has_run |= executes(op);
            let (facts, text) = match op {
                Op::Bind { facts: Some(facts), prepared: Some(prepared), .. } => {
                    (facts.clone(), &prepared.query)
                }
                Op::Parse { prepared, .. } => (self.analyse_prepared(prepared), &prepared.query),
                Op::DescribeStatement { prepared: Some(prepared), .. } => {
                    (self.analyse_prepared(prepared), &prepared.query)
                }
                Op::Bind { .. } | Op::DescribeStatement { .. } => return Err(Reason::Unsafe),
                Op::CloseStatement | Op::Portal(_) => continue,
                Op::Statement { .. } => return Err(Reason::Unsafe),
            };
            for statement in &facts.statements {
                let hint = Session::is_routable(statement, text)?;
                wanted.consistency = wanted.consistency.or(hint);
                wanted.items = Cow::Owned(wanted.items.union(&statement.reads));
            }
            if let Some(prepared) = op.prepared() {
                if own_types::any_own(&prepared.types) {
                    return Err(Reason::Unsafe);
                }
                wanted.statement = prepared.id;
            }
        }
        Ok(wanted)
    }
}

fn describes_portal(op: &Op) -> bool {
    matches!(op, Op::Portal(message) if message.tag == tag::DESCRIBE)
}

fn binds_binary(op: &Op) -> bool {
    let Op::Bind { message, .. } = op else { return false };
    let bind = Bind::read(message.body());
    bind.is_ok_and(|bind| own_types::wants_binary(bind.rest).unwrap_or(true))
}

/// Has a replica describe what the client knows already and asks for in binary: inside of arrays and
/// composites there are OIDs of types.
fn describe_binary(server: &mut Backend, op: &Op) {
    let Op::Bind { message, .. } = op else { return };
    let Ok(bind) = Bind::read(message.body()) else { return };
    if binds_binary(op) {
        frontend::describe(Target::Portal, bind.portal, &mut server.up.output);
        server.up.answers.sent(Sent::DescribePortal, Audience::Hidden);
    }
}
