//! Replaces a replica by a copy of the primary, which goes on serving (manual, "Making a Base Backup Using the Low
//! Level API"). The copy recovers up to a restore point, so it is known exactly which transactions it contains: those
//! that were committed before that position of the WAL. Entries of the log from there on are applied to it.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hihooi_replication::ids::{Lsn, Tsid};
use nix::sys::statvfs::statvfs;

use super::clone::{self, Original, Progress};
use super::postmaster::{Stop, halt};
use super::server::{STOP_LIMIT, SUPERUSER, Server};
use super::{Error, Result, file_error};
use crate::apply::progress;
use crate::connection::{self, Connection, Login};
use crate::identity;

/// `application_name` of our connections.
const APPLICATION: &str = "hihooi copying";
/// Prefix of restore points, which have at most 63 characters.
const POINT: &str = "hihooi";
/// So much must be free beside the copy, for the WAL that is written meanwhile.
const MARGIN: u64 = 128 << 20;
/// How often it is told how much is copied.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Tells how far the copy is.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// A backup that has been taken.
struct Backup {
    /// What `backup_label` is to contain.
    label: String,
    /// The first and the last file of the WAL.
    wal: (String, String),
    /// The restore point's name and position.
    point: (String, Lsn),
}

/// Stops `copy` and replaces its data by those of `original`, which runs, but for its own configuration files.
/// Returns the copy as it runs now, on a port that nobody knows, and a position: it has ended its recovery, and contains
/// what was committed before that position. Between `begin` and the end its data are incomplete. Cancel-safe, except
/// that a server may run in the directory then.
///
/// # Errors
/// Before `begin` nothing was changed: the original can't be copied, or there is no room.
pub async fn copy_running(
    (original, copy): (&Server, &Server),
    database: &str,
    begin: impl Future<Output = Result<()>>,
    tell: Tell,
) -> Result<(Server, Lsn)> {
    let login = Login::new(original.address(), SUPERUSER, database, APPLICATION);
    let login = original.without_event_triggers(login);
    let mut connection =
        Connection::open(&login).await.map_err(|error| failed(original, &error))?;
    check(original, copy, &mut connection).await?;
    let mut settings = recovery_settings(original, &mut connection).await?;
    tell(format!("{} writes a checkpoint", original.name));
    let first = start(original, &mut connection).await?;
    tell("its server is stopped".to_owned());
    copy.give_up(Stop::Immediate).await;
    halt(&copy.data).await;
    begin.await?;
    let taken = take((original, copy), &mut connection, first, &tell).await;
    connection.close().await;
    let (name, lsn) = match taken {
        Ok(point) => point,
        Err(error) => {
            let copy = copy.clone();
            // (That it failed says more than that this did.)
            let _ = blocking(move || clone::discard(&copy)).await;
            return Err(error);
        }
    };
    tell("it recovers".to_owned());
    settings.push(format!("recovery_target_name={name}"));
    let hidden = Server { port: free_port()?, ..copy.clone() };
    hidden.start_new(&settings).await?;
    Ok((hidden, lsn))
}

/// A port that nobody listens on. Nobody may use the copy before it has its name and position.
fn free_port() -> Result<u16> {
    let port =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    port.map(|address| address.port()).map_err(|error| Error::Retry(error.to_string()))
}

/// What the copy recovers with, whatever its own configuration says, but for the restore point's name.
async fn recovery_settings(original: &Server, connection: &mut Connection) -> Result<Vec<String>> {
    let fixed = [
        // All that is needed is in pg_wal.
        "restore_command=false",
        "recovery_end_command=",
        "archive_cleanup_command=",
        "recovery_min_apply_delay=0",
        "recovery_target=",
        "recovery_target_lsn=",
        "recovery_target_time=",
        "recovery_target_xid=",
        "recovery_target_timeline=current",
        "recovery_target_action=promote",
        // The primary may allow more connections than it does.
        "hot_standby=off",
    ];
    // What the primary has of these, the copy has, too.
    let rooms = "SELECT name || '=' || setting FROM pg_catalog.pg_settings WHERE name IN
        ('max_prepared_transactions', 'max_replication_slots', 'max_active_replication_origins')";
    let rooms = connection.query(rooms).await.map_err(|error| failed(original, &error))?;
    let fixed = fixed.into_iter().map(str::to_owned);
    Ok(fixed.chain(rooms.rows.into_iter().flatten().flatten()).collect())
}

/// Whether the original can be copied, and the copy has room.
async fn check(original: &Server, copy: &Server, connection: &mut Connection) -> Result<()> {
    let asked = "SELECT spcname FROM pg_catalog.pg_tablespace WHERE spcname !~ '^pg_'";
    let found = connection.query(asked).await.map_err(|error| failed(original, &error))?;
    if let Some(name) = found.value() {
        return Err(Error::Refused(format!(
            "{} has tablespaces ({name:?}), which can't be copied: move what is there to pg_default and drop them",
            original.name
        )));
    }
    let (original, copy) = (original.clone(), copy.clone());
    blocking(move || {
        let needed = clone::bytes_of_running(&original.data)? + MARGIN;
        // It runs, too, as long as nothing is removed.
        let removed = if copy.data.exists() { clone::bytes_of_running(&copy.data)? } else { 0 };
        check_room(&original.data, needed, removed)
    })
    .await
}

/// Works with files on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Retry(error.to_string()))?
}

fn check_room(directory: &Path, needed: u64, removed: u64) -> Result<()> {
    let space = statvfs(directory).map_err(|error| Error::Retry(error.to_string()))?;
    let free = (space.blocks_available() * space.fragment_size()).saturating_add(removed);
    if free >= needed {
        return Ok(());
    }
    Err(Error::Retry(format!(
        "{} MB are needed for the copy, but only {} MB would be free",
        needed >> 20,
        free >> 20
    )))
}

/// Puts the original into backup mode, and has its WAL kept, until `connection` ends; the first file of the WAL that
/// the backup needs.
async fn start(original: &Server, connection: &mut Connection) -> Result<String> {
    let failed = |error: connection::Error| failed(original, &error);
    let keep = "SELECT pg_catalog.pg_create_physical_replication_slot(
                    'hihooi_copying_' || pg_catalog.pg_backend_pid(), true, true)";
    connection.query(keep).await.map_err(failed)?;
    let start = match connection.major_version() < 15 {
        true => "pg_start_backup('hihooi', true, false)",
        false => "pg_backup_start('hihooi', true)",
    };
    let start = format!("SELECT pg_catalog.pg_walfile_name(pg_catalog.{start})");
    single(connection.query(&start).await.map_err(failed)?)
}

/// Copies everything, the WAL last; returns the restore point's name and position.
async fn take(
    (original, copy): (&Server, &Server),
    connection: &mut Connection,
    first: String,
    tell: &Tell,
) -> Result<(String, Lsn)> {
    copy_files(original, copy, tell).await?;
    let Backup { label, wal, point } = stop(original, connection, first).await?;
    copy_wal(original, copy, wal).await?;
    let copy = copy.clone();
    blocking(move || {
        copy.os_user.run(|| {
            for (name, text) in [("backup_label", label.as_str()), ("recovery.signal", "")] {
                let path = copy.data.join(name);
                fs::write(&path, text).map_err(|error| file_error("write", &path, &error))?;
            }
            Ok(())
        })
    })
    .await?;
    Ok(point)
}

/// Ends backup mode and writes a restore point.
async fn stop(original: &Server, connection: &mut Connection, first: String) -> Result<Backup> {
    let failed = |error: connection::Error| failed(original, &error);
    let stop = match connection.major_version() < 15 {
        true => "pg_stop_backup(false, false)",
        false => "pg_backup_stop(false)",
    };
    let stop = format!("SELECT labelfile FROM pg_catalog.{stop}");
    let label = single(connection.query(&stop).await.map_err(failed)?)?;
    let name = format!("SELECT '{POINT} ' || pg_catalog.gen_random_uuid()");
    let name = single(connection.query(&name).await.map_err(failed)?)?;
    let point = "SELECT lsn, pg_catalog.pg_walfile_name(lsn)
                 FROM pg_catalog.pg_create_restore_point($1) lsn";
    let found = connection.query_with(point, &[Some(&name)]).await.map_err(failed)?;
    let mut row = found.rows.into_iter().next().unwrap_or_default();
    let last = row.pop().flatten().ok_or_else(no_answer)?;
    let lsn = row.pop().flatten().and_then(|lsn| lsn.parse().ok()).ok_or_else(no_answer)?;
    // So that the WAL is on disk up to the restore point.
    connection.query("SELECT pg_catalog.pg_switch_wal()").await.map_err(failed)?;
    Ok(Backup { label, wal: (first, last), point: (name, lsn) })
}

/// Copies files; ends soon when nobody waits for it any more.
async fn copy_files(original: &Server, copy: &Server, tell: &Tell) -> Result<()> {
    struct Cancel(Arc<AtomicBool>);
    impl Drop for Cancel {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = Cancel(Arc::clone(&is_cancelled));
    let (original, copy, tell) = (original.clone(), copy.clone(), Arc::clone(tell));
    let name = original.name.clone();
    let mut told = None;
    let mut progress = move |Progress { done, total }: Progress| {
        if told.is_none_or(|at: Instant| at.elapsed() > TELL_EVERY) {
            told = Some(Instant::now());
            // Files may have grown.
            let percent = (done * 100 / total.max(1)).min(99);
            tell(format!("{percent} % of {} MB are copied from {name}", total >> 20));
        }
        !is_cancelled.load(Ordering::Acquire)
    };
    blocking(move || clone::copy_files(&original, &copy, Original::Running, &mut progress)).await
}

/// Copies the files of the WAL from the first to the last.
async fn copy_wal(original: &Server, copy: &Server, wal: (String, String)) -> Result<()> {
    let (from, to) = (original.data.join("pg_wal"), copy.data.join("pg_wal"));
    let user = copy.os_user.clone();
    let work = move || {
        let (first, last) = wal;
        for name in clone::names(&from, Original::Running)? {
            if !name.to_str().is_some_and(|name| is_between(name, &first, &last)) {
                continue;
            }
            let path = to.join(&name);
            fs::copy(from.join(&name), &path)
                .map_err(|error| file_error("write", &path, &error))?;
        }
        Ok(())
    };
    blocking(move || user.run(work)).await
}

/// Whether a file of `pg_wal` is one of the WAL's files from the first to the last, or tells of a timeline.
fn is_between(name: &str, first: &str, last: &str) -> bool {
    let is_wal = name.len() == first.len() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.ends_with(".history") || is_wal && (first..=last).contains(&name)
}

/// Makes a copy the replica of that name, behind `applied`: until then nobody may use it. Transactions that were
/// prepared at the original come with the log.
///
/// # Errors
/// What the copy says.
pub async fn sign(copy: &Server, database: &str, origin: &str, applied: Tsid) -> Result<()> {
    let failed = |error: connection::Error| failed(copy, &error);
    let login = |database: &str| {
        let login = Login::new(copy.address(), SUPERUSER, database, APPLICATION);
        let login = login.with("session_replication_role", "replica");
        // It has no standby, whatever it was configured for.
        let login = login.with("synchronous_commit", "local");
        copy.without_event_triggers(login)
    };
    let mut connection = Connection::open(&login(database)).await.map_err(failed)?;
    let prepared = "SELECT database, 'ROLLBACK PREPARED ' || pg_catalog.quote_literal(gid)
                    FROM pg_catalog.pg_prepared_xacts";
    for row in connection.query(prepared).await.map_err(failed)?.rows {
        let [Some(database), Some(rollback)] = &row[..] else { continue };
        let mut there = Connection::open(&login(database)).await.map_err(failed)?;
        there.query(rollback).await.map_err(failed)?;
        there.close().await;
    }
    // This disables event triggers, those on login among them, so that the next logins fire none.
    progress::prepare_replica(&mut connection).await.map_err(failed)?;
    drop_invalid_indexes(&mut connection).await.map_err(failed)?;
    let forget = "SELECT pg_catalog.pg_replication_origin_drop(roname)
                  FROM pg_catalog.pg_replication_origin";
    connection.query(forget).await.map_err(failed)?;
    let name = format!("{origin}_0");
    let create = "SELECT pg_catalog.pg_replication_origin_create($1)";
    connection.query_with(create, &[Some(&name)]).await.map_err(failed)?;
    let position = Lsn(applied.0).to_string();
    let advance = "SELECT pg_catalog.pg_replication_origin_advance($1, $2::pg_lsn)";
    connection.query_with(advance, &[Some(&name), Some(&position)]).await.map_err(failed)?;
    // From now on it is what it says.
    identity::rename(&mut connection, &copy.name).await.map_err(failed)?;
    connection.close().await;
    Ok(())
}

/// CREATE and REINDEX CONCURRENTLY come with the log when they have succeeded; what they have made before is on the
/// primary only.
async fn drop_invalid_indexes(connection: &mut Connection) -> connection::Result<()> {
    let invalid = "SELECT pg_catalog.format('DROP INDEX %s', i.indexrelid::pg_catalog.regclass)
        FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
        WHERE NOT i.indisvalid AND c.relkind = 'i'
          AND c.relnamespace <> 'pg_toast'::pg_catalog.regnamespace";
    for drop in connection.query(invalid).await?.rows.into_iter().flatten().flatten() {
        connection.query(&drop).await?;
    }
    Ok(())
}

/// Stops a copy that is complete, so that it can be started as any other server; everything of it is on disk then.
///
/// # Errors
/// What the operating system says.
pub async fn finish(copy: &Server) -> Result<()> {
    if let Some(mut postmaster) = copy.running() {
        postmaster.stop(Stop::Fast, STOP_LIMIT).await;
    }
    let path = copy.data.clone();
    blocking(move || {
        let directory = fs::File::open(&path).map_err(|error| file_error("read", &path, &error))?;
        nix::unistd::syncfs(directory)
            .map_err(|error| Error::Retry(format!("cannot flush {}: {error}", path.display())))
    })
    .await
}

fn single(answer: connection::Answer) -> Result<String> {
    answer.value().map(str::to_owned).ok_or_else(no_answer)
}

fn no_answer() -> Error {
    Error::Retry("the primary gave no answer".to_owned())
}

fn failed(server: &Server, error: &connection::Error) -> Error {
    Error::Retry(format!("{}: {error}", server.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wal_in_between_is_copied() {
        let (first, last) = ("00000001000000000000000E", "000000010000000000000010");
        let is_between = |name| is_between(name, first, last);
        assert!(is_between(first) && is_between(last) && is_between("00000001000000000000000F"));
        assert!(!is_between("00000001000000000000000D") && !is_between("000000010000000000000011"));
        assert!(!is_between("00000001000000000000000F.partial") && !is_between("archive_status"));
        assert!(is_between("00000002.history"));
    }

    #[test]
    fn a_copy_that_does_not_fit_is_refused() {
        let here = Path::new(".");
        assert_eq!(check_room(here, 0, 0).ok(), Some(()));
        let error = check_room(here, u64::MAX / 2, 7).expect_err("too large").to_string();
        assert!(error.contains("MB are needed"), "{error}");
        // What is removed makes room.
        assert_eq!(check_room(here, u64::MAX / 2, u64::MAX).ok(), Some(()));
    }
}
