//! A password in clear text becomes its SCRAM verifier before any server or the log sees it, and
//! all sites get the same one (manual, "Password Authentication"; psql's \password does the same).
//!
//! What the server would not make a SCRAM verifier of stays as it was typed: `password_encryption`
//! is md5, `scram_iterations` isn't the default, or server and client write it in other bytes.

use bytes::{Bytes, BytesMut};
use hihooi_sql::{ClearPassword, clear_passwords};
use hihooi_wire::backend::Report;
use hihooi_wire::frontend::{Parse, tag};
use postgres_protocol::password::scram_sha_256;

use crate::backend::Backend;
use crate::pump::Lost;
use crate::session::{End, Session, Work, mentions, shadow};
use hihooi_session::downstream::Message;
use hihooi_session::route::PRIMARY;

/// What decides how a server would store a password.
const ASK: &str = "SELECT (pg_catalog.current_setting('password_encryption') = 'scram-sha-256'
        AND coalesce(pg_catalog.current_setting('scram_iterations', true), '4096') = '4096')::text,
    (pg_catalog.current_setting('client_encoding')
        = pg_catalog.current_setting('server_encoding'))::text";

/// How a server would store a password.
struct Storing {
    /// As the SCRAM verifier that we can make.
    scram: bool,
    /// Client and server write it in the same bytes.
    same_bytes: bool,
}

/// Whether a prepared text may hold a password in clear text. Quick, and wrong only by saying yes.
fn may_hold_password(text: &[u8]) -> bool {
    let first = text.trim_ascii_start().first().map(u8::to_ascii_lowercase);
    // CREATE, ALTER, or a comment in front.
    first.is_some_and(|first| b"ca-/;".contains(&first)) && mentions(text, b"password")
}

impl Session {
    /// Runs a query of our own inside the client's unit; its row, unless the unit failed.
    async fn ask(
        &mut self,
        server: &mut Backend,
        query: &str,
        values: &[Option<&[u8]>],
    ) -> Result<Option<Vec<Option<Bytes>>>, Lost> {
        server.up.write_own(query, values);
        server.up.write_flush();
        self.drain(server).await?;
        let mut rows = server.up.answers.take_rows();
        let row = if server.up.failed { None } else { rows.pop() };
        // What came before it answers questions for transaction ids.
        self.flight.keep(rows);
        Ok(row)
    }

    /// The same text with verifiers in place of passwords in clear text; `None` if there are none.
    /// Inner errors are for the client: there is no server that could be asked.
    pub(crate) async fn without_clear_passwords(
        &mut self,
        text: &[u8],
    ) -> Work<Result<Option<Vec<u8>>, Report>> {
        if !self.is_replicated || !self.has_plain_strings {
            return Ok(Ok(None));
        }
        let mut found = match std::str::from_utf8(text) {
            Ok(text) => clear_passwords(text),
            Err(_) => clear_passwords(&shadow(text)),
        };
        if found.is_empty() {
            return Ok(Ok(None));
        }
        let storing = match self.storing().await? {
            Ok(storing) => storing,
            Err(report) => return Ok(Err(report)),
        };
        found.retain(|found| storing.scram && (storing.same_bytes || is_ascii(text, found)));
        if found.is_empty() {
            return Ok(Ok(None));
        }
        // It takes milliseconds by design: not on the thread that serves everybody.
        let hashed = tokio::task::spawn_blocking(move || {
            let verifier = |found: ClearPassword| {
                (found.range, format!("'{}'", scram_sha_256(found.password.as_bytes())))
            };
            found.into_iter().map(verifier).collect::<Vec<_>>()
        });
        let Ok(hashed) = hashed.await else {
            return Ok(Err(Report::error("XX000", "the password can't be hashed")));
        };
        let (mut changed, mut at) = (Vec::with_capacity(text.len()), 0);
        for (range, verifier) in hashed {
            changed.extend_from_slice(&text[at..range.start]);
            changed.extend_from_slice(verifier.as_bytes());
            at = range.end;
        }
        changed.extend_from_slice(&text[at..]);
        Ok(Ok(Some(changed)))
    }

    /// Does the same to a Parse message; other messages stay as they are.
    pub(crate) async fn hash_passwords(
        &mut self,
        message: &mut Message,
    ) -> Work<Result<(), Report>> {
        if message.tag != tag::PARSE {
            return Ok(Ok(()));
        }
        let Ok(parse) = Parse::read(message.body()) else { return Ok(Ok(())) };
        if !may_hold_password(parse.query) {
            return Ok(Ok(()));
        }
        match self.without_clear_passwords(parse.query).await? {
            Ok(None) => Ok(Ok(())),
            Ok(Some(query)) => {
                let mut bytes = BytesMut::new();
                Parse { query: &query, ..parse }.write(&mut bytes);
                message.bytes = bytes.freeze();
                Ok(Ok(()))
            }
            Err(report) => Ok(Err(report)),
        }
    }

    /// Asks the primary as this session would use it, in front of what the client sent.
    async fn storing(&mut self) -> Work<Result<Storing, Report>> {
        let was_held = self.server.is_some();
        let mut server = match self.take_server(PRIMARY).await {
            Ok(server) => server,
            Err(refusal) => return self.refusal_report(&refusal).map(Err),
        };
        let row = if self.is_unit_open {
            match self.ask(&mut server, ASK, &[]).await {
                Ok(row) => row,
                Err(lost) => {
                    self.lost_in_unit(server, &lost)?;
                    return Err(End::Server);
                }
            }
        } else {
            server.up.begin_unit();
            server.up.write_own_query(ASK);
            self.own(&mut server).await?;
            server.up.answers.take_error();
            server.up.answers.take_rows().pop()
        };
        if was_held || self.is_unit_open {
            self.server = Some(server);
        } else {
            self.settle(server).await?;
        }
        let is_true = |at: usize| {
            // In a failed transaction there is no answer, and the statement will be refused.
            row.as_ref()
                .is_none_or(|row| row.get(at).is_some_and(|v| v.as_deref() == Some(b"true")))
        };
        Ok(Ok(Storing { scram: is_true(0), same_bytes: is_true(1) }))
    }
}

fn is_ascii(text: &[u8], found: &ClearPassword) -> bool {
    found.password.is_ascii() && text.get(found.range.clone()).is_some_and(<[u8]>::is_ascii)
}
