//! Each replica stores its own applied position, in replication origins (manual, chapter "Replication
//! Progress Tracking"). The origin's LSN holds a TSID. PostgreSQL writes it with the commit record, so
//! each entry is applied exactly once through any crash (I5).
//!
//! Each connection has an origin of its own. Since commits are in the log's order, the largest of these
//! positions is the applied prefix, even if a crash has lost the last commits.

use std::time::Duration;

use hihooi_replication::ids::{Lsn, Tsid};

use super::catalog::resume_all_checks;
use super::restricted;
use crate::collector::TEXT_SETTINGS;
use crate::connection::{Connection, Error, Login, Result};
use crate::site::Site;

/// `application_name` of connections that write. Others must not use it: they are ended.
pub const APPLICATION: &str = "hihooi applier";
/// `application_name` of the connections beside them.
const BESIDE: &str = "hihooi applier control";
/// How long a connection beside them waits for a lock.
const LOCK_TIMEOUT: &str = "5s";
/// How long orphaned connections may take to end.
const ORPHANS_MS_MAX: u64 = 10_000;
/// How long connections whose client is gone may take to finish what they were sent and end by
/// themselves.
const ORPHANS_GRACE_MS: u64 = 60;
/// How often it is looked whether they are gone.
const ORPHANS_LOOK_MS: u64 = 5;

/// What an applier must not be disturbed by, beside the text format of values.
const SETTINGS: [(&str, &str); 6] = [
    ("xmloption", "content"),
    ("standard_conforming_strings", "on"),
    ("session_replication_role", "replica"),
    ("synchronous_commit", "off"),
    ("check_function_bodies", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// The login of a connection that writes.
pub(super) fn applier_login(site: &Site, database: &str) -> Login {
    let login = Login::new(site.address.clone(), &site.user, database, APPLICATION);
    login.with_all(&TEXT_SETTINGS).with_all(&SETTINGS).with("jit", "off")
}

/// The login of a connection beside those that write.
pub(super) fn control_login(site: &Site, database: &str) -> Login {
    Login::new(site.address.clone(), &site.user, database, BESIDE)
        .with("session_replication_role", "replica")
        .with("jit", "off")
        // Only system catalogs are looked at, and nobody should lock these: if so, it is told.
        .with("lock_timeout", LOCK_TIMEOUT)
        // By the indexes of the catalogs: plans are kept from when there were few tables.
        .with("plan_cache_mode", "force_generic_plan")
        .with("enable_seqscan", "off")
}

/// Ends connections that an earlier round or manager left behind, since they hold the origins
/// (error 55006) and may still commit; returns when they are gone. A backend leaves
/// `pg_stat_activity` only after its transaction has ended. One in a lock wait doesn't notice that
/// its client is gone, so those that stay are ended.
///
/// # Errors
/// Those of the connection, or a timeout when some don't end.
pub async fn end_orphans(control: &mut Connection) -> Result<()> {
    let end = "select case when $2::bool then pg_catalog.pg_terminate_backend(pid) end
               from pg_catalog.pg_stat_activity
               where application_name = $1 and datname = pg_catalog.current_database()
                 and usename = current_user and pid <> pg_catalog.pg_backend_pid()";
    let mut waited_ms = 0;
    loop {
        let at_once = if waited_ms < ORPHANS_GRACE_MS { "false" } else { "true" };
        let left = control.query_with(end, &[Some(APPLICATION), Some(at_once)]).await?;
        if left.rows.is_empty() {
            return Ok(());
        }
        if waited_ms >= ORPHANS_MS_MAX {
            let text = "connections of an earlier applier can't be ended".to_owned();
            return Err(Error::Protocol(text));
        }
        tokio::time::sleep(Duration::from_millis(ORPHANS_LOOK_MS)).await;
        waited_ms += ORPHANS_LOOK_MS;
    }
}

/// Creates the origins `{prefix}_0` … that are missing.
pub(super) async fn create_origins(
    control: &mut Connection,
    prefix: &str,
    count: usize,
) -> Result<()> {
    let create = "select pg_catalog.pg_replication_origin_create($1)
                  where pg_catalog.pg_replication_origin_oid($1) is null";
    for number in 0..count {
        control.query_with(create, &[Some(&format!("{prefix}_{number}"))]).await?;
    }
    Ok(())
}

/// The applied prefix: the largest position of our origins. With `flushed`, what was applied is
/// on the replica's disk when this returns.
///
/// # Errors
/// Those of the connection.
pub async fn position(control: &mut Connection, prefix: &str, flushed: bool) -> Result<Tsid> {
    let query = "select pg_catalog.max(pg_catalog.pg_replication_origin_progress(roname, $2))
                 from pg_catalog.pg_replication_origin where roname ~ $1";
    let pattern = format!("^{prefix}_[0-9]+$");
    let flushed = if flushed { "true" } else { "false" };
    let answer = control.query_with(query, &[Some(&pattern), Some(flushed)]).await?;
    let Some(text) = answer.value() else { return Ok(Tsid::ZERO) };
    let lsn: Lsn = text.parse().map_err(|_| Error::Protocol(format!("not a position: {text}")))?;
    Ok(Tsid(lsn.0))
}

/// Makes a replica safe to apply to: what a copy of the primary carries along and would act on
/// its own is dropped or disabled, and its own port takes no ordinary writes. Idempotent. Returns a line for
/// each thing changed.
///
/// # Errors
/// Those of the connection.
pub async fn prepare_replica(control: &mut Connection) -> Result<Vec<String>> {
    let commands = "
        select pg_catalog.format('alter event trigger %I disable', evtname)
        from pg_catalog.pg_event_trigger
        where evtname ~ '^[!~]hihooi_' and evtenabled <> 'D'
        union all
        select 'drop publication ' || pg_catalog.quote_ident(pubname)
        from pg_catalog.pg_publication where pubname = 'hihooi'
        union all
        select pg_catalog.format('drop event trigger %I', evtname)
        from pg_catalog.pg_event_trigger
        where evtname like 'hihooi\\_%' and evtname not in ('hihooi_rows', 'hihooi_guard')
        union all
        select 'alter subscription ' || pg_catalog.quote_ident(subname) || ' disable'
        from pg_catalog.pg_subscription s, pg_catalog.pg_database d
        where subenabled and s.subdbid = d.oid and d.datname = pg_catalog.current_database()";
    let mut done = run_all(control, commands).await?;
    done.extend(close_own_port(control).await?);
    done.extend(disable_own_actions(control).await?);
    restricted::prepare(control).await?;
    // What an earlier version set aside in another way.
    resume_all_checks(control).await?;
    Ok(done)
}

/// Makes a replica refuse ordinary writes at its own port. Where its configuration is somebody else's (ALTER SYSTEM is
/// not allowed, or its files can't be written), only DDL is refused there, by restricted.sql.
async fn close_own_port(control: &mut Connection) -> Result<Vec<String>> {
    let commands = "
        select pg_catalog.unnest(array['alter system set default_transaction_read_only = on',
                                       'select pg_catalog.pg_reload_conf()'])
        where not exists (
            select from pg_catalog.pg_file_settings
            where name = 'default_transaction_read_only' and applied
              and setting in ('on', 'true', 'yes', '1'))";
    match run_all(control, commands).await {
        Err(Error::Server(error)) => {
            tracing::warn!(%error, "a replica's own port takes writes: set default_transaction_read_only = on");
            Ok(Vec::new())
        }
        done => done,
    }
}

/// Disables the triggers and rules that fire for an applier too: what they did on the primary
/// comes in the stream. Returns a line for each.
///
/// # Errors
/// Those of the connection.
pub(super) async fn disable_own_actions(control: &mut Connection) -> Result<Vec<String>> {
    let commands = "
        select pg_catalog.format('alter table %s disable trigger %I',
                                 tgrelid::pg_catalog.regclass, tgname)
        from pg_catalog.pg_trigger where tgenabled in ('A', 'R')
        union all
        select pg_catalog.format('alter table %s disable rule %I',
                                 ev_class::pg_catalog.regclass, rulename)
        from pg_catalog.pg_rewrite where ev_enabled in ('A', 'R')
        union all
        select pg_catalog.format('alter event trigger %I disable', evtname)
        from pg_catalog.pg_event_trigger
        where (evtenabled in ('A', 'R') or evtevent = 'login' and evtenabled <> 'D') and evtname <> 'hihooi_rows'";
    run_all(control, commands).await
}

/// Runs the commands that a query gives.
async fn run_all(control: &mut Connection, commands: &str) -> Result<Vec<String>> {
    let found = control.query(commands).await?;
    let commands: Vec<String> = found.rows.into_iter().flatten().flatten().collect();
    for command in &commands {
        control.query(command).await?;
    }
    Ok(commands)
}
