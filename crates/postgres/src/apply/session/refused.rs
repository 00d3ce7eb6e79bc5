//! What doesn't fit: which entry it belongs to, in which words the operator is told, and whether it is the doing of a
//! table's rows (`set_aside`), of the server's condition, or of what the replica holds.

use std::sync::Arc;

use hihooi_replication::ids::Tsid;
use hihooi_wire::backend;

use super::{Expected, Session};
use crate::apply::follow::Failed;
use crate::apply::restricted;
use crate::apply::set_aside::{Blame, Cause};
use crate::apply::words::{What, advice, owner_advice};
use crate::apply::work::{Again, Failure, Refusal};
use crate::connection::{Error, Result};

/// SQLSTATEs that begin so are about a value, which the primary has stored.
const DATA_EXCEPTION: &str = "22";
/// So are these where a row is written: schemas, tables, functions and other objects that a value of type `regclass` or the
/// like names.
const UNKNOWN_NAMES: [&str; 4] = ["3F000", "42P01", "42883", "42704"];

impl Session {
    pub(super) fn note_followed(
        &mut self,
        tsid: Tsid,
        done: std::result::Result<(), Failed>,
    ) -> Result<()> {
        match done {
            Ok(()) => Ok(()),
            // Functions that DDL runs may raise anything.
            Err(Failed::Error(what, Error::Server(fields))) if !fields.ends_session() => {
                let again = if is_passing(fields.code()) { Again::AtAnyTime } else { Again::Soon };
                let advice = advice(&fields, self.path.is_some());
                let reason = format!("{what}: {fields}{advice}");
                let refusal = Refusal { tsid, reason, again, blame: None };
                self.failed.get_or_insert(Failure::Refused(refusal));
                Ok(())
            }
            Err(Failed::Error(what, error)) => self.note(tsid, &what, error),
            Err(Failed::Differs(what)) => {
                self.refuse(tsid, what);
                Ok(())
            }
        }
    }

    pub(super) fn check(&mut self, command: &str) {
        let Some(expected) = self.expected.pop_front() else { return };
        self.running.have_made(expected.changes());
        if matches!(expected.what, What::Housekeeping("COMMIT")) && command != "COMMIT" {
            // A block that had failed is only rolled back by its COMMIT.
            let reason = format!("COMMIT was answered with {command}");
            return self.refuse(expected.tsid, reason);
        }
        let Some(rows) = expected.rows else { return };
        let touched = backend::rows_of(command).unwrap_or(0);
        if touched != rows {
            let what = expected.what.words();
            if let What::Temporary(relation) = expected.what {
                let blame = relation.map(|relation| Blame { relation, cause: Cause::Code });
                return self.refuse_for(expected.tsid, what, blame);
            }
            let reason = format!("{what} changed {touched} rows, expected {rows}");
            let blame = self.blame(&expected.what, None);
            self.refuse_for(expected.tsid, reason, blame);
        }
    }

    pub(super) fn refuse(&mut self, tsid: Tsid, reason: String) {
        self.refuse_for(tsid, reason, None);
    }

    pub(super) fn refuse_for(&mut self, tsid: Tsid, reason: String, blame: Option<Blame>) {
        let refusal = Refusal { tsid, reason, again: Again::Soon, blame };
        self.failed.get_or_insert(Failure::Refused(refusal));
    }

    pub(super) fn note_expected(&mut self, expected: Option<Expected>, error: Error) -> Result<()> {
        match expected {
            Some(Expected { what: What::Gathered { owner, changes }, .. }) => {
                self.note_gathered(&owner, &changes, error)
            }
            Some(Expected { tsid, what, .. }) => {
                let blame = self.blame(&what, error.code());
                // No code of a plain table's raises what looks like the server's condition.
                let blame = blame.filter(|blame| {
                    blame.cause != Cause::Rows || !is_passing(error.code().unwrap_or_default())
                });
                match blame {
                    Some(blame) => self.note_about(tsid, &what.words(), error, blame),
                    None => self.note(tsid, &what.words(), error),
                }
            }
            None => self.note(Tsid::ZERO, "a statement", error),
        }
    }

    /// The error of a change that was executed together with others, as it would be if it were alone.
    fn note_gathered(&mut self, owner: &str, changes: &[(Tsid, What)], error: Error) -> Result<()> {
        let (at, error) = restricted::told(error);
        // The first statement sets the search path.
        let index = at.unwrap_or(0).saturating_sub(1);
        let (tsid, what) = changes.get(index).unwrap_or(&changes[0]);
        match &error {
            Error::Server(fields) if fields.code() == restricted::WRONG_COUNT => {
                let reason = format!("{} {}", what.words(), fields.message());
                self.refuse_for(*tsid, reason, self.blame(what, None));
                Ok(())
            }
            // What the table's code raises may look like the server's condition.
            Error::Server(fields) if !fields.ends_session() => {
                let reason = format!("{}: {fields}{}", what.words(), owner_advice(fields, owner));
                let cause = Cause::of_code(fields.code());
                let blame = what.relation().cloned().map(|relation| Blame { relation, cause });
                self.refuse_for(*tsid, reason, blame);
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Which table's rows didn't fit, and why that may be; with the SQLSTATE if the server refused them.
    fn blame(&self, what: &What, code: Option<&str>) -> Option<Blame> {
        let relation = Arc::clone(what.relation()?);
        let table = self.catalog.known(&relation)??;
        let is_about_value =
            |code: &str| code.starts_with(DATA_EXCEPTION) || UNKNOWN_NAMES.contains(&code);
        let cause = match code {
            _ if table.runs_code() => Cause::of_code(code.unwrap_or_default()),
            Some(code) if is_about_value(code) => Cause::Code,
            _ => Cause::Rows,
        };
        Some(Blame { relation, cause })
    }

    /// Notes the server's error about an entry; errors that aren't about it are passed on.
    fn note(&mut self, tsid: Tsid, what: &str, error: Error) -> Result<()> {
        match &error {
            Error::Server(fields) if !is_passing(fields.code()) => {
                let advice = advice(fields, self.path.is_some());
                self.refuse(tsid, format!("{what}: {fields}{advice}"));
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// The same for an error that code of the table's may have raised.
    fn note_about(&mut self, tsid: Tsid, what: &str, error: Error, blame: Blame) -> Result<()> {
        match &error {
            Error::Server(fields) if !fields.ends_session() => {
                let advice = advice(fields, self.path.is_some());
                self.refuse_for(tsid, format!("{what}: {fields}{advice}"), Some(blame));
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Errors that are about the server's condition and not about the entry: they are temporary.
fn is_passing(code: &str) -> bool {
    const CLASSES: [&str; 4] = ["08", "53", "57", "58"];
    CLASSES.iter().any(|class| code.starts_with(class)) || code == "55P03" || code == "40001"
}
