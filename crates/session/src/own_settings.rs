//! `SET`, `SHOW` and `RESET` of `hihooi.*`, which are never sent to a server.

use bytes::BytesMut;
use hihooi_replication::freshness::Decider;
use hihooi_replication::items::Granularity;
use hihooi_sql::{HihooiCommand, Kind};
use hihooi_wire::backend::{self, Report, Severity};

use crate::consistency::Consistency;
use crate::events::Env;
use crate::session::Session;

/// Of so many savepoints, the newest, it is known what was set there (I8). Going back to an older one undoes everything.
const SAVEPOINTS_MAX: usize = 64;

/// What is set of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnSettings {
    /// The level of reads.
    pub consistency: Consistency,
    /// How long a read waits for a replica, milliseconds.
    pub wait_ms: u64,
    /// How finely reads are told from writes.
    pub granularity: Granularity,
    /// Each read of a transaction block is routed on its own, as long as the block has not begun at the primary.
    pub statement_routing: bool,
    /// Transactions that only read, from one snapshot, run at a replica.
    pub snapshot_routing: bool,
}

/// What a transaction block has changed of them (manual, "SET").
#[derive(Clone, Debug)]
pub(crate) struct ChangedOwn {
    /// What they were before: they are again if it is rolled back.
    at_begin: OwnSettings,
    /// What they will be when it commits: without what SET LOCAL set.
    kept: OwnSettings,
    /// The savepoints since the first change, the newest last, with what was set and would have been kept there.
    savepoints: Vec<(Box<str>, [OwnSettings; 2])>,
}

impl ChangedOwn {
    /// The newest savepoint of this name, if it was set after the first change.
    fn savepoint(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|(known, _)| **known == *name)
    }
}

/// What the client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// One row of one column: name and value.
    Row(String, String),
    /// A command tag.
    Done(&'static str),
    /// A warning and a command tag.
    Warned(Report, &'static str),
}

impl Answer {
    /// Its rows, if it has some, and the end of the command; not how rows are described.
    pub(crate) fn write(self, out: &mut BytesMut) {
        let command = match self {
            Answer::Row(_, value) => {
                backend::data_row([Some(value.as_str())].into_iter(), out);
                "SHOW"
            }
            Answer::Warned(warning, command) => {
                warning.write(out);
                command
            }
            Answer::Done(command) => command,
        };
        backend::command_complete(command, out);
    }
}

impl Session {
    /// Runs a command.
    ///
    /// # Errors
    /// An unknown setting or a bad value, in PostgreSQL's words.
    pub(crate) fn own_command(
        &mut self,
        command: &HihooiCommand,
        env: &dyn Env,
    ) -> Result<Answer, Report> {
        match command {
            HihooiCommand::Show(name) => {
                let value = self.show_own(name, env)?;
                Ok(Answer::Row(format!("hihooi.{name}"), value))
            }
            HihooiCommand::Set { name, values, local } => {
                let value = values.as_ref().and_then(|values| values.first());
                let value = value.map(|value| &**value);
                if *local && !self.is_in_block() {
                    self.own.clone().set(name, value, &self.opened.own)?; // it is checked
                    return Ok(self.warned("SET LOCAL", "SET"));
                }
                self.change_own(name, value, *local)?;
                Ok(Answer::Done("SET"))
            }
            HihooiCommand::Reset(name) => {
                self.change_own(name, None, false)?;
                Ok(Answer::Done("RESET"))
            }
        }
    }

    /// The answer to what has no effect outside of a transaction block, with a warning if the client wants warnings.
    fn warned(&self, what: &str, command: &'static str) -> Answer {
        if self.settings.get("client_min_messages") == Some("error") {
            return Answer::Done(command);
        }
        let what = format!("{what} can only be used in transaction blocks");
        let severity = Severity::Warning;
        Answer::Warned(Report { severity, ..Report::error("25P01", what) }, command)
    }

    /// Sets one of them; `None` is its default.
    fn change_own(
        &mut self,
        name: &str,
        value: Option<&str>,
        is_local: bool,
    ) -> Result<(), Report> {
        let (before, defaults) = (self.own, self.opened.own);
        self.own.set(name, value, &defaults)?;
        let changed = self.changed_own_in_block(before, self.is_in_block());
        if let Some(changed) = changed.filter(|_| !is_local) {
            changed.kept.set(name, value, &defaults)?;
        }
        Ok(())
    }

    /// All of them have their defaults: RESET ALL, in a block or not.
    pub(crate) fn reset_own(&mut self, in_block: bool) {
        let before = std::mem::replace(&mut self.own, self.opened.own);
        let defaults = self.own;
        if let Some(changed) = self.changed_own_in_block(before, in_block) {
            changed.kept = defaults;
        }
    }

    /// What the block that is open, if one is, has changed of them; this is its first change if they were so before.
    fn changed_own_in_block(
        &mut self,
        before: OwnSettings,
        in_block: bool,
    ) -> Option<&mut ChangedOwn> {
        let first = || ChangedOwn { at_begin: before, kept: before, savepoints: Vec::new() };
        in_block.then(|| &mut **self.changed_own.get_or_insert_with(|| Box::new(first())))
    }

    /// A transaction block begins, ends or goes back to a savepoint, or may do so.
    pub(crate) fn cross_own(&mut self, kind: &Kind) {
        let Some(changed) = &mut self.changed_own else { return };
        match kind {
            Kind::Savepoint(name) => {
                if changed.savepoints.len() == SAVEPOINTS_MAX {
                    changed.savepoints.remove(0);
                }
                changed.savepoints.push((name.clone(), [self.own, changed.kept]));
            }
            Kind::Release(name) => {
                let at = changed.savepoint(name).unwrap_or(0); // those before aren't known
                changed.savepoints.truncate(at);
            }
            Kind::RollbackTo(name) => match changed.savepoint(name) {
                Some(at) => {
                    [self.own, changed.kept] = changed.savepoints[at].1;
                    changed.savepoints.truncate(at + 1);
                }
                None => self.ends_own_changes(false),
            },
            _ => {}
        }
    }

    /// The transaction has ended, and with it what SET LOCAL set, or everything that was set in it.
    pub(crate) fn ends_own_changes(&mut self, commits: bool) {
        if let Some(changed) = self.changed_own.take() {
            self.own = if commits { changed.kept } else { changed.at_begin };
        }
    }

    fn show_own(&self, name: &str, env: &dyn Env) -> Result<String, Report> {
        match name {
            "consistency" => Ok(self.own.consistency.as_str().to_owned()),
            "wait_ms" => Ok(self.own.wait_ms.to_string()),
            "granularity" => Ok(self.own.granularity.as_str().to_owned()),
            "statement_routing" => Ok(on_off(self.own.statement_routing).to_owned()),
            "snapshot_routing" => Ok(on_off(self.own.snapshot_routing).to_owned()),
            "last_route" => Ok(self.last_route.0.describe(env.site_name(self.last_route.0.site))),
            "last_route_detail" => Ok(self.last_route_detail(env)),
            _ => Err(unknown(name)),
        }
    }

    /// The write for which the last read waited, or because of which no replica was fresh.
    fn last_route_detail(&self, env: &dyn Env) -> String {
        let Some(Decider { part, entry }) = self.last_route.1 else { return "-".to_owned() };
        let part = env.describe(part);
        match entry {
            Some(tsid) => format!("{part}: last written by transaction {tsid} of the log"),
            None => format!("{part}: a write is in flight or pending"),
        }
    }

    /// Sets one of hihooi's settings as the session begins.
    ///
    /// # Errors
    /// An unknown setting or a bad value, in PostgreSQL's words.
    pub fn set_own(&mut self, name: &str, value: &str) -> Result<(), Report> {
        self.own.set(name, Some(value), &self.opened.own)
    }
}

impl OwnSettings {
    /// Sets one of them; `None` is its default.
    fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        defaults: &OwnSettings,
    ) -> Result<(), Report> {
        match (name, value) {
            ("consistency", None) => self.consistency = defaults.consistency,
            ("consistency", Some(value)) => {
                let level = value.parse::<Consistency>();
                self.consistency = level.map_err(|known| bad(name, value).hint(known))?;
            }
            ("wait_ms", None) => self.wait_ms = defaults.wait_ms,
            ("wait_ms", Some(value)) => {
                self.wait_ms = value.parse().map_err(|_| {
                    bad(name, value).hint("The value is in milliseconds, 0 or more.")
                })?;
            }
            ("granularity", None) => self.granularity = defaults.granularity,
            ("granularity", Some(value)) => {
                self.granularity = Granularity::parse(value).ok_or_else(|| {
                    bad(name, value).hint("Available values: table, column, row, range.")
                })?;
            }
            ("statement_routing", None) => self.statement_routing = defaults.statement_routing,
            ("statement_routing", Some(value)) => self.statement_routing = switch(name, value)?,
            ("snapshot_routing", None) => self.snapshot_routing = defaults.snapshot_routing,
            ("snapshot_routing", Some(value)) => self.snapshot_routing = switch(name, value)?,
            ("last_route" | "last_route_detail", _) => {
                let what = format!("parameter \"hihooi.{name}\" cannot be changed");
                return Err(Report::error("55P02", what));
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

fn switch(name: &str, value: &str) -> Result<bool, Report> {
    match value {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(bad(name, value).hint("Available values: on, off.")),
    }
}

fn bad(name: &str, value: &str) -> Report {
    Report::error("22023", format!("invalid value for parameter \"hihooi.{name}\": \"{value}\""))
}

fn unknown(name: &str) -> Report {
    Report::error("42704", format!("unrecognized configuration parameter \"hihooi.{name}\"")).hint(
        "Available settings: hihooi.consistency, granularity, statement_routing, snapshot_routing, wait_ms, last_route and last_route_detail.",
    )
}
