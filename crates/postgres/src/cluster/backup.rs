//! Replaces a replica by a copy of the primary, which goes on serving (manual, "Making a Base Backup Using the Low
//! Level API"). The copy recovers up to a restore point, so it is known exactly which transactions it contains: those
//! that were committed before that position of the WAL. Entries of the log from there on are applied to it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hihooi_replication::ids::{Lsn, Tsid};
use nix::sys::statvfs::statvfs;

use super::clone::{self, Original, Progress};
use super::postmaster::Stop;
use super::server::{STOP_LIMIT, SUPERUSER, Server};
use super::{Error, Result, file_error};
use crate::connection::{self, Connection, Login};
use crate::identity;

/// Prefix of restore points, which have at most 63 characters.
const POINT: &str = "hihooi";
/// How often it is told how much is copied.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Tells how far the copy is.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// Where the primary's WAL is copied from and to, and up to where the copy recovers.
struct Backup {
    /// What `backup_label` is to contain.
    label: String,
    /// The first and the last file of the WAL.
    wal: (String, String),
    /// The restore point's name and position.
    point: (String, Lsn),
    /// How many transactions may be prepared there.
    prepared_max: String,
}

/// Stops `copy` and replaces its data by those of `original`, which runs, but for its own configuration files. When
/// this returns, `copy` runs, has ended its recovery, and takes connections: it contains what was committed before the
/// position that is returned. Between `is_begun` and the end its data are incomplete. Cancel-safe, except that a
/// server may run in the directory then.
///
/// # Errors
/// Before `is_begun` nothing was changed: the original can't be copied, or there is no room.
pub async fn copy_running(
    (original, copy): (&Server, &Server),
    database: &str,
    is_begun: impl FnOnce() -> Result<()>,
    tell: Tell,
) -> Result<Lsn> {
    let login = Login::new(original.address(), SUPERUSER, database, "hihooi copying");
    let mut connection =
        Connection::open(&login).await.map_err(|error| failed(original, &error))?;
    check(original, copy, &mut connection).await?;
    copy.give_up(Stop::Immediate).await;
    is_begun()?;
    tell(format!("a checkpoint of {} is written", original.name));
    let backup = take(original, copy, &mut connection, &tell).await;
    let Backup { label, wal, point, prepared_max } = backup?;
    copy_wal(original, copy, wal).await?;
    connection.close().await;
    for (name, text) in [("backup_label", label.as_str()), ("recovery.signal", "")] {
        let path = copy.data.join(name);
        fs::write(&path, text).map_err(|error| file_error("write", &path, &error))?;
        copy.os_user.own(&path)?;
    }
    tell("it recovers".to_owned());
    let (name, lsn) = point;
    let settings = [
        // All that is needed is in pg_wal.
        "restore_command=false".to_owned(),
        "recovery_target_timeline=current".to_owned(),
        "recovery_target_action=promote".to_owned(),
        format!("recovery_target_name={name}"),
        // The primary may allow more connections than it does.
        "hot_standby=off".to_owned(),
        format!("max_prepared_transactions={prepared_max}"),
    ];
    copy.start_new(&settings).await?;
    Ok(lsn)
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
        let needed = clone::bytes(&original.data)?;
        let removed = if copy.data.exists() { clone::bytes(&copy.data)? } else { 0 };
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

/// Copies everything but the WAL while the original is in backup mode. Its WAL is kept from the beginning of the
/// backup until `connection` ends.
async fn take(
    original: &Server,
    copy: &Server,
    connection: &mut Connection,
    tell: &Tell,
) -> Result<Backup> {
    let failed = |error: connection::Error| failed(original, &error);
    let is_old = connection.major_version() < 15;
    let (start, stop) = match is_old {
        true => ("pg_start_backup('hihooi', true, false)", "pg_stop_backup(false, false)"),
        false => ("pg_backup_start('hihooi', true)", "pg_backup_stop(false)"),
    };
    let keep = "SELECT pg_catalog.pg_create_physical_replication_slot(
                    'hihooi_copying_' || pg_catalog.pg_backend_pid(), true, true)";
    connection.query(keep).await.map_err(failed)?;
    let begin = format!("SELECT pg_catalog.pg_walfile_name(pg_catalog.{start})");
    let first = single(connection.query(&begin).await.map_err(failed)?)?;
    copy_files(original, copy, tell).await?;
    let end = format!("SELECT labelfile FROM pg_catalog.{stop}");
    let label = single(connection.query(&end).await.map_err(failed)?)?;
    let name = format!("SELECT '{POINT} ' || pg_catalog.gen_random_uuid()");
    let name = single(connection.query(&name).await.map_err(failed)?)?;
    let point = "SELECT lsn, pg_catalog.pg_walfile_name(lsn) FROM pg_catalog.pg_create_restore_point($1) lsn";
    let mut row = connection
        .query_with(point, &[Some(&name)])
        .await
        .map_err(failed)?
        .rows
        .pop()
        .unwrap_or_default();
    let last = row.pop().flatten().ok_or_else(no_answer)?;
    let lsn = row.pop().flatten().and_then(|lsn| lsn.parse().ok()).ok_or_else(no_answer)?;
    let prepared_max = "SELECT pg_catalog.current_setting('max_prepared_transactions')";
    let prepared_max = single(connection.query(prepared_max).await.map_err(failed)?)?;
    // So that the WAL is on disk up to the restore point.
    connection.query("SELECT pg_catalog.pg_switch_wal()").await.map_err(failed)?;
    Ok(Backup { label, wal: (first, last), point: (name, lsn), prepared_max })
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
    let owner = copy.os_user.clone();
    blocking(move || {
        let (first, last) = wal;
        for name in clone::names(&from, Original::Running)? {
            if !name.to_str().is_some_and(|name| is_between(name, &first, &last)) {
                continue;
            }
            let path = to.join(&name);
            fs::copy(from.join(&name), &path)
                .map_err(|error| file_error("write", &path, &error))?;
            owner.own(&path)?;
        }
        Ok(())
    })
    .await
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
        Login::new(copy.address(), SUPERUSER, database, "hihooi copying")
            .with("session_replication_role", "replica")
            .with("default_transaction_read_only", "off")
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
    identity::rename(&mut connection, &copy.name).await.map_err(failed)?;
    let forget = "SELECT pg_catalog.pg_replication_origin_drop(roname)
                  FROM pg_catalog.pg_replication_origin WHERE roname ~ $1";
    let ours = format!("^{origin}_[0-9]+$");
    connection.query_with(forget, &[Some(&ours)]).await.map_err(failed)?;
    let name = format!("{origin}_0");
    let create = "SELECT pg_catalog.pg_replication_origin_create($1)";
    connection.query_with(create, &[Some(&name)]).await.map_err(failed)?;
    let position = Lsn(applied.0).to_string();
    let advance = "SELECT pg_catalog.pg_replication_origin_advance($1, $2::pg_lsn)";
    connection.query_with(advance, &[Some(&name), Some(&position)]).await.map_err(failed)?;
    connection.close().await;
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
