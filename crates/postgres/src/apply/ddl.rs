//! DDL at replicas: as the role, under the settings and at the place in the order that it had on
//! the primary. Never as superuser for someone who is none.

use hihooi_replication::entry::Ddl;

use super::progress::disable_own_actions;
use super::replay::replayed;
use super::statements::quote;
use crate::connection::{Connection, Result};

/// Settings of an applier that DDL must not change.
const KEPT: [&str; 4] =
    ["session_replication_role", "synchronous_commit", "session_authorization", "role"];
/// What a statement outside a transaction answers when it ran before a crash already: duplicate
/// or missing database, object, tablespace.
const DONE: [&str; 5] = ["42P04", "42710", "3D000", "42704", "42P07"];

/// Runs DDL inside the transaction that is open.
pub(super) async fn run(connection: &mut Connection, ddl: &Ddl) -> Result<()> {
    enter(connection, ddl, true).await?;
    connection.query_with(&replayed(&ddl.text), &[]).await?;
    leave(connection, ddl, true).await?;
    if may_enable(&ddl.text) {
        disable_own_actions(connection).await?;
    }
    Ok(())
}

/// Whether DDL may make a trigger or rule that fires for an applier: ENABLE ALWAYS, ENABLE
/// REPLICA, or an extension's script that says so.
fn may_enable(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("enable") || text.contains("extension")
}

/// Runs DDL that can't be in a transaction. After a crash it may run a second time, and then
/// finds its work done.
pub(super) async fn run_outside(connection: &mut Connection, ddl: &Ddl) -> Result<()> {
    let ran = match enter(connection, ddl, false).await {
        Ok(()) => connection.query_with(&ddl.text, &[]).await.map(drop),
        Err(error) => Err(error),
    };
    leave(connection, ddl, false).await?;
    match ran {
        Err(error) if error.code().is_some_and(|code| DONE.contains(&code)) => {
            tracing::warn!(%error, statement = ddl.text, "taken for done before a crash");
            Ok(())
        }
        ran => ran,
    }
}

fn settings(ddl: &Ddl) -> impl Iterator<Item = (&str, &str)> {
    let settings = ddl.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    settings.filter(|(name, _)| !KEPT.contains(&name.to_ascii_lowercase().as_str()))
}

async fn enter(connection: &mut Connection, ddl: &Ddl, local: bool) -> Result<()> {
    let scope = if local { "true" } else { "false" };
    for (name, value) in settings(ddl) {
        let set = "select pg_catalog.set_config($1, $2, $3)";
        connection.query_with(set, &[Some(name), Some(value), Some(scope)]).await?;
    }
    let word = if local { "LOCAL" } else { "SESSION" };
    let role = quote(&ddl.role);
    connection.query(&format!("SET {word} SESSION AUTHORIZATION {role}")).await.map(drop)
}

/// Back to the applier's own role and settings, those of its start-up packet.
async fn leave(connection: &mut Connection, ddl: &Ddl, local: bool) -> Result<()> {
    let word = if local { "LOCAL" } else { "SESSION" };
    connection.query(&format!("SET {word} SESSION AUTHORIZATION DEFAULT")).await?;
    for (name, _) in settings(ddl) {
        let name = name.split('.').map(quote).collect::<Vec<_>>().join(".");
        connection.query(&format!("SET {word} {name} TO DEFAULT")).await?;
    }
    Ok(())
}
