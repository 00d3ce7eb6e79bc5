//! `SET`, `SHOW` and `RESET` of `hihooi.*`, which never reach a server.

use hihooi_sql::HihooiCommand;
use hihooi_wire::backend::Report;

use crate::session::Session;
use hihooi_session::route::Consistency;

/// What the client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// One row of one column: name and value.
    Row(String, String),
    /// A command tag.
    Done(&'static str),
}

/// Runs a command.
///
/// # Errors
/// An unknown setting or a bad value, in PostgreSQL's words.
pub fn run(session: &mut Session, command: &HihooiCommand) -> Result<Answer, Report> {
    match command {
        HihooiCommand::Show(name) => {
            let value = show(session, name)?;
            Ok(Answer::Row(format!("hihooi.{name}"), value))
        }
        HihooiCommand::Set { name, values, local } => {
            let before = (session.consistency, session.wait_ms);
            let value = values.as_ref().and_then(|values| values.first());
            set(session, name, value.map(|value| &**value))?;
            if *local {
                // A transaction block runs on the primary as a whole, so that there is nothing
                // to choose in it: the value is only checked.
                (session.consistency, session.wait_ms) = before;
            }
            Ok(Answer::Done("SET"))
        }
        HihooiCommand::Reset(name) => {
            set(session, name, None)?;
            Ok(Answer::Done("RESET"))
        }
    }
}

fn show(session: &Session, name: &str) -> Result<String, Report> {
    match name {
        "consistency" => Ok(session.consistency.as_str().to_owned()),
        "wait_ms" => Ok(session.wait_ms.to_string()),
        "last_route" => {
            let route = session.info.last_route.get();
            Ok(route.describe(&session.relay.sites[route.site].name))
        }
        _ => Err(unknown(name)),
    }
}

/// Sets one of hihooi's settings; `None` is its default.
///
/// # Errors
/// As [`run`].
pub fn set(session: &mut Session, name: &str, value: Option<&str>) -> Result<(), Report> {
    let defaults = &session.relay.settings;
    match (name, value) {
        ("consistency", None) => session.consistency = defaults.consistency,
        ("consistency", Some(value)) => {
            session.consistency = Consistency::parse(value)
                .ok_or_else(|| bad(name, value).hint("Available values: gssi, weak-si."))?;
        }
        ("wait_ms", None) => session.wait_ms = defaults.wait_ms,
        ("wait_ms", Some(value)) => {
            session.wait_ms = value
                .parse()
                .map_err(|_| bad(name, value).hint("Milliseconds, a number from 0 on."))?;
        }
        ("last_route", _) => {
            let what = "parameter \"hihooi.last_route\" cannot be changed";
            return Err(Report::error("55P02", what));
        }
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn bad(name: &str, value: &str) -> Report {
    Report::error("22023", format!("invalid value for parameter \"hihooi.{name}\": \"{value}\""))
}

fn unknown(name: &str) -> Report {
    Report::error("42704", format!("unrecognized configuration parameter \"hihooi.{name}\""))
        .hint("Known are hihooi.consistency, hihooi.wait_ms and hihooi.last_route.")
}
