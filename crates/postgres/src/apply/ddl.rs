//! DDL at replicas: as the role, under the settings and at the place in the order that it had on
//! the primary. Never as superuser for someone who is none, nor in reach of a superuser's rights:
//! that of ordinary roles is carried out in a security-restricted operation.

use hihooi_replication::entry::Ddl;
use hihooi_sql::lexer::{Token, TokenKind, tokens};

use super::progress::disable_own_actions;
use super::replay::replayed;
use super::restricted::{self, SET_WORK, View, Work, told};
use super::statements::{quote, quote_value};
use crate::connection::{Connection, Result};

/// Settings of an applier that DDL must not change.
const KEPT: [&str; 4] =
    ["session_replication_role", "synchronous_commit", "session_authorization", "role"];
/// What a statement outside a transaction answers when it ran before a crash already: duplicate
/// or missing database, object, tablespace.
const DONE: [&str; 5] = ["42P04", "42710", "3D000", "42704", "42P07"];

/// Runs DDL inside the transaction that is open.
pub(super) async fn run(connection: &mut Connection, ddl: &Ddl) -> Result<()> {
    let is_ordinary = is_ordinary(connection, &ddl.role).await?;
    if is_ordinary {
        run_restricted(connection, ddl).await?;
    } else {
        enter(connection, ddl, true).await?;
        connection.query_with(&replayed(&ddl.text), &[]).await?;
        leave(connection, ddl, true).await?;
    }
    // What a function defined isn't in the text.
    if is_ordinary || may_enable(&ddl.text) {
        disable_own_actions(connection).await?;
    }
    Ok(())
}

/// Whether the role is there and no superuser.
async fn is_ordinary(connection: &mut Connection, role: &str) -> Result<bool> {
    let query = "select rolsuper from pg_catalog.pg_roles where rolname = $1";
    Ok(connection.query_with(query, &[Some(role)]).await?.value() == Some("f"))
}

/// As the role in a security-restricted operation. DROP OWNED would drop the operation's own view,
/// so a member of the role, who owns nothing else, does it in its place.
async fn run_restricted(connection: &mut Connection, ddl: &Ddl) -> Result<()> {
    let Some(text) = drop_owned_by_name(&ddl.text, &ddl.role) else {
        return carry_out(connection, ddl).await;
    };
    let role = format!("hihooi_{}", connection.key().process);
    connection.query(&format!("CREATE ROLE {role} IN ROLE {}", quote(&ddl.role))).await?;
    carry_out(connection, &Ddl { text, role: role.clone(), ..ddl.clone() }).await?;
    connection.query(&format!("DROP ROLE {role}")).await.map(drop)
}

/// A DROP OWNED with that role's name in place of the words for whoever runs it; `None` of other
/// statements.
fn drop_owned_by_name(text: &str, role: &str) -> Option<String> {
    const RUNNER: [&str; 4] = ["CURRENT_USER", "CURRENT_ROLE", "SESSION_USER", "USER"];
    let mut words = tokens(text).filter(|token| token.kind != TokenKind::Space);
    let mut is_next = |word: &str| words.next().is_some_and(|w| w.text.eq_ignore_ascii_case(word));
    let named = |token: Token<'_>| match token.kind {
        TokenKind::Word if RUNNER.contains(&token.text.to_ascii_uppercase().as_str()) => {
            quote(role)
        }
        _ => token.text.to_owned(),
    };
    (is_next("DROP") && is_next("OWNED")).then(|| tokens(text).map(named).collect())
}

/// The session's user is the role too, as at the primary.
async fn carry_out(connection: &mut Connection, ddl: &Ddl) -> Result<()> {
    let view = View::ddl(connection);
    for text in view.create(&ddl.role) {
        connection.query(&text).await?;
    }
    connection.query_with(SET_WORK, &[Some(&work(ddl))]).await?;
    enter(connection, ddl, true).await?;
    connection.query(&view.refresh()).await.map_err(|error| told(error).1)?;
    leave(connection, ddl, true).await?;
    connection.query(restricted::CLOSE).await?;
    connection.query(&view.drop()).await?;
    restricted::assert_nothing_temporary(connection).await
}

fn work(ddl: &Ddl) -> String {
    let mut work = Work::default();
    // From PostgreSQL 17 on, REFRESH MATERIALIZED VIEW sets another one.
    for (_, path) in settings(ddl).filter(|(name, _)| name.eq_ignore_ascii_case("search_path")) {
        let mut set = b"select pg_catalog.set_config('search_path', ".to_vec();
        quote_value(Some(path.as_bytes()), &mut set);
        set.extend_from_slice(b", true)");
        work.push(None, &set);
    }
    work.push(None, replayed(&ddl.text).as_bytes());
    String::from_utf8_lossy(&work.text()).into_owned()
}

/// Whether DDL may make a trigger or rule that fires for an applier: ENABLE ALWAYS, ENABLE
/// REPLICA, or an extension's script that says so.
fn may_enable(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("enable") || text.contains("extension")
}

/// Runs DDL that can't be in a transaction. After a crash it may run a second time, and then
/// finds its work done.
///
/// Only that of superusers: outside of a transaction there is no operation to restrict it to.
pub(super) async fn run_outside(connection: &mut Connection, ddl: &Ddl) -> Result<()> {
    if is_ordinary(connection, &ddl.role).await? {
        return Err(restricted::refused("what can't run in a transaction is a superuser's to run"));
    }
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

#[cfg(test)]
mod tests {
    use super::drop_owned_by_name;

    #[test]
    fn who_drops_what_it_owns_is_named() {
        let text = "drop /* all */ OWNED by Current_User, session_user, \"user\", u CASCADE";
        let named = "drop /* all */ OWNED by \"a b\", \"a b\", \"user\", u CASCADE";
        assert_eq!(drop_owned_by_name(text, "a b").as_deref(), Some(named));
        assert_eq!(drop_owned_by_name("drop table current_user", "a"), None);
    }
}
