//! `SET`, `SHOW` and `RESET` of `hihooi.*`, which are never sent to a server.

use hihooi_replication::freshness::Decider;
use hihooi_replication::items::Granularity;
use hihooi_sql::HihooiCommand;
use hihooi_wire::backend::Report;

use crate::consistency::Consistency;
use crate::events::Env;
use crate::session::Session;

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

/// What the client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// One row of one column: name and value.
    Row(String, String),
    /// A command tag.
    Done(&'static str),
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
                let before = self.own;
                let value = values.as_ref().and_then(|values| values.first());
                self.set_own(name, value.map(|value| &**value))?;
                match local {
                    true if self.is_in_block() => {
                        self.own_before.get_or_insert(before);
                    }
                    // Its transaction ends with it: the value is only checked.
                    true => self.own = before,
                    false => {}
                }
                Ok(Answer::Done("SET"))
            }
            HihooiCommand::Reset(name) => {
                self.set_own(name, None)?;
                Ok(Answer::Done("RESET"))
            }
        }
    }

    /// The transaction has ended, and what SET LOCAL set in it.
    pub(crate) fn ends_local_settings(&mut self) {
        self.own = self.own_before.take().unwrap_or(self.own);
    }

    fn show_own(&self, name: &str, env: &dyn Env) -> Result<String, Report> {
        match name {
            "consistency" => Ok(self.own.consistency.as_str().to_owned()),
            "wait_ms" => Ok(self.own.wait_ms.to_string()),
            "granularity" => Ok(self.own.granularity.as_str().to_owned()),
            "statement_routing" => Ok(on_off(self.own.statement_routing).to_owned()),
            "snapshot_routing" => Ok(on_off(self.own.snapshot_routing).to_owned()),
            "last_route" => Ok(self.last_route.describe(env.site_name(self.last_route.site))),
            "last_route_detail" => Ok(self.last_route_detail(env)),
            _ => Err(unknown(name)),
        }
    }

    /// The write for which the last read waited, or because of which no replica was fresh.
    fn last_route_detail(&self, env: &dyn Env) -> String {
        let Some(Decider { part, entry }) = self.last_route.decider else { return "-".to_owned() };
        let part = env.describe(part);
        match entry {
            Some(tsid) => format!("{part}: last written by transaction {tsid} of the log"),
            None => format!("{part}: a write is in flight or pending"),
        }
    }

    /// Sets one of hihooi's settings; `None` is its default.
    ///
    /// # Errors
    /// An unknown setting or a bad value, in PostgreSQL's words.
    pub fn set_own(&mut self, name: &str, value: Option<&str>) -> Result<(), Report> {
        match (name, value) {
            ("consistency", None) => self.own.consistency = self.opened.own.consistency,
            ("consistency", Some(value)) => {
                let level = value.parse::<Consistency>();
                self.own.consistency = level.map_err(|known| bad(name, value).hint(known))?;
            }
            ("wait_ms", None) => self.own.wait_ms = self.opened.own.wait_ms,
            ("wait_ms", Some(value)) => {
                self.own.wait_ms = value.parse().map_err(|_| {
                    bad(name, value).hint("The value is in milliseconds, 0 or more.")
                })?;
            }
            ("granularity", None) => self.own.granularity = self.opened.own.granularity,
            ("granularity", Some(value)) => {
                self.own.granularity = Granularity::parse(value).ok_or_else(|| {
                    bad(name, value).hint("Available values: table, column, row, range.")
                })?;
            }
            ("statement_routing", None) => {
                self.own.statement_routing = self.opened.own.statement_routing;
            }
            ("statement_routing", Some(value)) => {
                self.own.statement_routing = switch(name, value)?;
            }
            ("snapshot_routing", None) => {
                self.own.snapshot_routing = self.opened.own.snapshot_routing;
            }
            ("snapshot_routing", Some(value)) => self.own.snapshot_routing = switch(name, value)?,
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
