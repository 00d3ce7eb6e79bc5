//! DDL travels to the replicas as a message that stands in the primary's WAL in front of the
//! statement, in the same transaction, authenticated with the cluster's key, with the role and
//! the settings that it ran under.

use bytes::Bytes;
use hihooi_replication::ddl::{Announced, seal};
use hihooi_replication::entry;
use hihooi_replication::items::Items;
use hihooi_sql::{Ddl, lexer};
use hihooi_wire::backend::{Report, Status};

use crate::answers::Audience;
use crate::backend::Backend;
use crate::ddl_values::Replayed;
use crate::pump::Lost;
use crate::relay::Outcome;
use crate::session::{Session, Work};
use crate::unit::parse_xid;

/// Settings that decide what a DDL statement means; those that a version lacks are left out.
const SETTINGS: &[&str] = &[
    "search_path",
    "default_tablespace",
    "default_table_access_method",
    "default_toast_compression",
    "check_function_bodies",
    "xmloption",
    "standard_conforming_strings",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "timezone_abbreviations",
    "extra_float_digits",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "xmlbinary",
    "bytea_output",
    "transform_null_equals",
    "default_text_search_config",
    "array_nulls",
    "createrole_self_grant",
    "password_encryption",
    "scram_iterations",
    "allow_in_place_tablespaces",
];

const EMIT: &str = "SELECT pg_catalog.pg_logical_emit_message(true, 'hihooi', $1::text)";

/// Asks for the text in UTF-8, whatever the client's encoding.
const IN_UTF8: &str = "SELECT pg_catalog.encode(pg_catalog.convert_to($1::text, 'UTF8'), 'hex')";

/// Asks for the transaction's id (assigning one), the role and the settings.
fn question() -> String {
    let mut text = String::from("SELECT pg_catalog.pg_current_xact_id()::text, current_user::text");
    for name in SETTINGS {
        text.push_str(", pg_catalog.current_setting('");
        text.push_str(name);
        text.push_str("', true)");
    }
    text
}

impl Session {
    /// Whether DDL can be carried to replicas at all.
    ///
    /// # Errors
    /// What to do instead.
    pub(crate) fn check_ddl(&self, ddl: &Ddl, text: &[u8]) -> Result<(), Report> {
        if !self.is_replicated {
            if ddl.shared && ddl.replicate {
                let database = &self.relay.settings.database;
                let what = "roles can only be changed in the replicated database";
                let hint = format!("Connect to database \"{database}\" for it.");
                return Err(Report::error("0A000", what).hint(hint));
            }
            return Ok(());
        }
        let text = String::from_utf8_lossy(text);
        let mut words = lexer::tokens(&text).filter(|token| token.kind != lexer::TokenKind::Space);
        if ddl.concurrently && words.next().is_some_and(|w| w.text.eq_ignore_ascii_case("alter")) {
            // Its event comes before it can be logged, and can't be told from a foreign one.
            let what = "DETACH PARTITION CONCURRENTLY can't be replicated";
            return Err(Report::error("0A000", what).hint("Use it without CONCURRENTLY."));
        }
        let runs_prepared = |token: lexer::Token<'_>| token.text.eq_ignore_ascii_case("execute");
        if ddl.carries_rows && lexer::tokens(&text).any(runs_prepared) {
            let what = "CREATE TABLE AS EXECUTE can't be replicated";
            return Err(Report::error("0A000", what).hint("Use CREATE TABLE AS with the query."));
        }
        Ok(())
    }

    /// Puts the message into the stream in front of a statement that is about to be sent.
    pub(crate) async fn announce_ddl(
        &mut self,
        server: &mut Backend,
        text: &[u8],
        ddl: &Ddl,
        is_first: bool,
    ) -> Result<(), Lost> {
        let doomed = is_first && server.status == Status::Failed;
        if doomed || server.answers.is_skipping() {
            return Ok(()); // the server will refuse the statement
        }
        let text = match text.is_ascii() {
            true => String::from_utf8_lossy(text).into_owned(),
            false => {
                let row = self.ask(server, IN_UTF8, &[Some(text)]).await?;
                let Some(text) = row.and_then(|row| decode_hex(row.first()?.as_ref()?)) else {
                    return Ok(()); // the server has refused the text
                };
                text
            }
        };
        // Boxed: it is rare, and every idle session would keep room for it.
        let replayed = Box::pin(self.replayed(server, &text)).await?;
        let Replayed::Text { other, is_settled } = replayed else {
            return Ok(()); // the client has an error
        };
        let plain = ddl.concurrently.then(|| lexer::without_concurrently(&text)).flatten();
        let replayed = (other.or(plain), is_settled);
        let row = self.ask(server, &question(), &[]).await?;
        if let Some(message) = row.and_then(|row| self.message(&row, text, replayed)) {
            self.ask(server, EMIT, &[Some(message.as_bytes())]).await?;
        }
        Ok(())
    }

    /// Runs a query of our own inside the client's unit; its row, unless the unit failed.
    pub(crate) async fn ask(
        &mut self,
        server: &mut Backend,
        query: &str,
        values: &[Option<&[u8]>],
    ) -> Result<Option<Vec<Option<Bytes>>>, Lost> {
        server.write_own(query, values);
        server.write_flush();
        self.drain(server).await?;
        let mut rows = server.answers.take_rows();
        let row = if server.failed { None } else { rows.pop() };
        // What came before it answers questions for transaction ids.
        self.flight.keep(rows);
        Ok(row)
    }

    /// The message for a statement: what replicas run in its place, if it isn't the statement
    /// itself, and whether what that computes is settled.
    fn message(
        &mut self,
        row: &[Option<Bytes>],
        text: String,
        (other, is_settled): (Option<String>, bool),
    ) -> Option<String> {
        let value = |index: usize| {
            let value: &Option<Bytes> = row.get(index)?;
            value.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        let xid = parse_xid(row.first()?.as_ref()?)?;
        let settings = SETTINGS
            .iter()
            .enumerate()
            .filter_map(|(index, name)| value(index + 2).map(|value| ((*name).to_owned(), value)));
        let carried = entry::Ddl {
            text: other.as_deref().unwrap_or(&text).trim().to_owned(),
            role: value(1)?,
            settings: settings.collect(),
            outside_transaction: false,
        };
        let sent = other.is_some().then_some(text);
        let announced = Announced { ddl: carried, sent, is_settled };
        self.transaction.ddl_messages += 1;
        Some(seal(&self.relay.key, xid, self.transaction.ddl_messages, announced))
    }

    /// Logs DDL that could not run in a transaction, after it succeeded.
    pub(crate) async fn log_ddl_afterwards(
        &mut self,
        server: &mut Backend,
        text: &[u8],
        ddl: &Ddl,
    ) -> Work<()> {
        let write = self.relay.begin_write(Items::Everything);
        let logged = self.log_ddl(server, text, ddl).await;
        match logged {
            Ok(()) => {
                self.relay.end_write(write, Outcome::Unidentified);
                Ok(())
            }
            Err(lost) => {
                self.relay.doubt(write, server.identity.clone());
                Err(self.lost(&lost))
            }
        }
    }

    async fn log_ddl(&mut self, server: &mut Backend, text: &[u8], ddl: &Ddl) -> Result<(), Lost> {
        server.write_own_query("BEGIN");
        self.drain(server).await?;
        self.transaction.ddl_messages = 0;
        self.announce_ddl(server, text, ddl, false).await?;
        server.write_sync(Audience::Us);
        self.drain(server).await?;
        server.write_own_query("COMMIT");
        self.drain(server).await?;
        Ok(())
    }

    /// Whether the statement changes roles, databases or their defaults: what clients of the
    /// same start-up parameters were welcomed with may no longer hold.
    pub(crate) fn forget_welcomes(&self, changes_defaults: bool) {
        self.relay.forgotten.set(self.relay.forgotten.get() + 1);
        self.relay.welcomes.borrow_mut().clear();
        if changes_defaults {
            // Sessions of before go on with connections of before, as long as there are any.
            self.relay.pools.defaults_changed();
        } else {
            self.relay.pools.close_idle();
        }
    }
}

/// The text whose bytes in UTF-8 these digits are.
pub(crate) fn decode_hex(hex: &[u8]) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let bytes: Option<Vec<u8>> = hex.chunks_exact(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// Whether DDL about a role or a database changes settings that sessions start with.
pub fn changes_defaults(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut words = lexer::tokens(&text).map(|token| token.text.to_ascii_lowercase());
    words.find(|word| !word.trim().is_empty()).is_some_and(|word| word == "alter")
        && words.any(|word| word == "set" || word == "reset")
}
