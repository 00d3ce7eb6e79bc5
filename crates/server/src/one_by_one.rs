//! Several statements in one simple query, with DDL among them: each runs by itself, in a
//! transaction block of ours that stands for PostgreSQL's implicit one (manual, "Multiple
//! Statements in a Simple Query"). The client sees one query's answer.

use std::sync::Arc;

use bytes::Bytes;
use hihooi_sql::{Analysis, Isolation, Kind, Statement, TransactionModes};
use hihooi_wire::backend::{self, Status};
use hihooi_wire::frontend;

use crate::answers::{Audience, Sent};
use crate::backend::Backend;
use crate::pump::Lost;
use crate::route::{PRIMARY, Route};
use crate::session::{Session, Work};
use crate::simple::own_text;
use crate::unit::Op;

impl Session {
    /// Runs a query's statements one by one.
    pub(crate) async fn run_one_by_one(
        &mut self,
        text: &Bytes,
        facts: &Arc<Analysis>,
        route: Route,
    ) -> Work<()> {
        self.routed(route);
        let mut server = match self.take_server(PRIMARY).await {
            Ok(server) => server,
            Err(refusal) => {
                let report = self.refusal_report(&refusal)?;
                return self.refuse_simple(&report).await;
            }
        };
        server.begin_unit();
        if let Err(lost) = self.each(&mut server, text, facts).await {
            return self.lost_in_unit(server, &lost);
        }
        self.land(&mut server);
        self.send_deferred(&mut server);
        let parameters = std::mem::take(&mut server.changed_parameters);
        self.output().extend_from_slice(&parameters);
        backend::ready_for_query(server.status, self.output());
        self.settle(server).await
    }

    async fn each(
        &mut self,
        server: &mut Backend,
        text: &Bytes,
        facts: &Arc<Analysis>,
    ) -> Result<(), Lost> {
        // Whether the open block is ours rather than the client's.
        let mut is_ours = false;
        for (index, statement) in facts.statements.iter().enumerate() {
            match &statement.kind {
                Kind::Begin(modes) if is_ours => {
                    // Our block becomes the client's, with all that was done in it.
                    is_ours = false;
                    self.begin_in_block(server, modes).await?;
                    continue;
                }
                Kind::Commit { .. } if is_ours => self.end_ours(server, true).await?,
                Kind::Rollback { .. } if is_ours => self.end_ours(server, false).await?,
                Kind::Begin(_) | Kind::Commit { .. } | Kind::Rollback { .. } => {}
                _ if server.status == Status::Idle => {
                    server.write_own_query("BEGIN");
                    is_ours = true;
                }
                _ => {}
            }
            is_ours &= !matches!(statement.kind, Kind::Commit { .. } | Kind::Rollback { .. });
            let op =
                Op::Statement { text: in_place(text, statement), facts: (facts.clone(), index) };
            self.run_part(server, &op).await?;
            if server.failed {
                break;
            }
        }
        if is_ours {
            self.end_ours(server, !server.failed).await?;
        }
        Ok(())
    }

    async fn run_part(&mut self, server: &mut Backend, op: &Op) -> Result<(), Lost> {
        self.send_deferred(server);
        self.prepare_for(server, op, true).await?;
        if matches!(op.statement().map(|s| &s.kind), Some(Kind::Ddl(_))) {
            server.write_sync(Audience::Us); // after the message for the replicas
        }
        if server.failed {
            return self.drain(server).await.map(drop); // the client has the error already
        }
        let Op::Statement { text, .. } = op else { return Ok(()) };
        server.unnamed = None;
        frontend::query(text, &mut server.output);
        server.answers.sent(Sent::Query, Audience::Part);
        self.drain(server).await.map(drop)
    }

    /// The end of the statement before stands, since another follows.
    fn send_deferred(&mut self, server: &mut Backend) {
        if let Some(deferred) = server.deferred.take() {
            self.output().extend_from_slice(&deferred.message);
        }
    }

    /// BEGIN inside of our block: nothing to do but its modes.
    async fn begin_in_block(
        &mut self,
        server: &mut Backend,
        modes: &TransactionModes,
    ) -> Result<(), Lost> {
        if let Some(set) = set_transaction(modes) {
            frontend::query(set.as_bytes(), &mut server.output);
            server.answers.sent(Sent::Query, Audience::Hidden);
            self.drain(server).await?;
        }
        self.send_deferred(server);
        if !server.failed {
            backend::command_complete("BEGIN", self.output());
        }
        Ok(())
    }

    async fn end_ours(&mut self, server: &mut Backend, commits: bool) -> Result<(), Lost> {
        self.drain(server).await?;
        if commits {
            self.ask_before_commit(server, true);
            frontend::query(b"COMMIT", &mut server.output);
            server.answers.sent(Sent::Query, Audience::Hidden);
        } else {
            self.transaction = Default::default();
            server.write_own_query("ROLLBACK");
        }
        self.drain(server).await.map(drop)
    }
}

/// A statement's text with spaces in place of what stands before it, so that positions in errors
/// are those of the whole query.
fn in_place(text: &Bytes, statement: &Statement) -> Bytes {
    let own = own_text(text, statement);
    let before = text.get(..statement.range.start).unwrap_or_default();
    // Positions count characters.
    let characters = match std::str::from_utf8(before) {
        Ok(before) => before.chars().count(),
        Err(_) => before.len(),
    };
    let mut padded = vec![b' '; characters];
    padded.extend_from_slice(own);
    padded.into()
}

fn set_transaction(modes: &TransactionModes) -> Option<String> {
    let isolation = modes.isolation.map(|level| match level {
        Isolation::ReadCommitted => "ISOLATION LEVEL READ COMMITTED",
        Isolation::RepeatableRead => "ISOLATION LEVEL REPEATABLE READ",
        Isolation::Serializable => "ISOLATION LEVEL SERIALIZABLE",
    });
    let access = modes.read_only.map(|only| if only { "READ ONLY" } else { "READ WRITE" });
    let deferrable = modes.deferrable.map(|d| if d { "DEFERRABLE" } else { "NOT DEFERRABLE" });
    let modes: Vec<&str> = [isolation, access, deferrable].into_iter().flatten().collect();
    (!modes.is_empty()).then(|| format!("SET TRANSACTION {}", modes.join(", ")))
}
