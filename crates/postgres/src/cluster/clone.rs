//! Copies of a server's files, except replication slots, which belong to the original, and what belongs to its
//! processes. When an existing replica is copied again, it keeps its own configuration files. [`copy`] copies a
//! stopped server; `backup` copies one that runs.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::pidfile::{self, Occupant};
use super::server::Server;
use super::{Error, Result, file_error};

/// A server's configuration files.
const OWN_FILES: [&str; 4] =
    ["postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"];

/// How far a copy is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Copied so far.
    pub done: u64,
    /// To be copied in all.
    pub total: u64,
}

/// Whether the original changes its files meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Original {
    /// It is stopped.
    Stopped,
    /// It runs, in backup mode.
    Running,
}

/// What to do with a path of the original.
#[derive(PartialEq, Eq, Debug)]
enum Part {
    Copy,
    /// Copied as an empty directory.
    EmptyDirectory,
    LeaveOut,
}

/// Directories whose contents a server makes anew when it starts.
const MADE_ANEW: [&str; 6] =
    ["pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans"];

/// As the manual says for a running server ("Backing Up the Data Directory"); its WAL is copied when the rest is
/// there.
fn part(relative: &Path, original: Original) -> Part {
    let mut steps = relative.iter().filter_map(|step| step.to_str());
    let (first, second) = (steps.next().unwrap_or_default(), steps.next());
    let is_running = original == Original::Running;
    let is_left_out = match first {
        "pg_replslot" | "pg_stat_tmp" => true,
        "pg_wal" => is_running,
        _ => is_running && MADE_ANEW.contains(&first),
    };
    let name = relative.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_of_processes = ["pg_internal.init", "pgsql_tmp"].iter().any(|of| name.starts_with(of));
    let marks = ["backup_label", "tablespace_map", "standby.signal", "recovery.signal"];
    match second {
        None if is_left_out => Part::EmptyDirectory,
        Some(_) if is_left_out => Part::LeaveOut,
        None if first.starts_with("postmaster.") => Part::LeaveOut,
        None if is_running && marks.contains(&first) => Part::LeaveOut,
        _ if is_running && is_of_processes => Part::LeaveOut,
        _ => Part::Copy,
    }
}

/// Copies the data directory of `original`, which is stopped, for `copy`, in place of what that has, and
/// gives the copy its own settings. Nothing is flushed to disk.
///
/// # Errors
/// A running server, or what the operating system says.
pub fn copy(
    original: &Server,
    copy: &Server,
    tell: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    for server in [original, copy] {
        if matches!(pidfile::occupant(&server.data), Occupant::Server { .. }) {
            return Err(Error::Refused(format!("{} is still running: stop it first", server.name)));
        }
    }
    copy_files(original, copy, Original::Stopped, &mut |progress| {
        tell(progress);
        true
    })?;
    copy.configure()
}

/// Copies the files of `original` in place of what `copy` has. `tell` returns whether to go on.
///
/// # Errors
/// What the operating system says; it was not to go on.
pub(super) fn copy_files(
    original: &Server,
    copy: &Server,
    how: Original,
    tell: &mut (dyn FnMut(Progress) -> bool + Send),
) -> Result<()> {
    if !copy.data.exists() {
        copy.make_directory()?;
    }
    copy.os_user.run(|| {
        clear(&copy.data)?;
        let total = size(&original.data, Path::new(""), how)?;
        let (from, to) = (&*original.data, &*copy.data);
        let mut copying = Copying { from, to, original: how, done: 0, total };
        copying.directory(Path::new(""), tell)
    })
}

/// Removes the files of a copy that failed, but for its own: they fill the disk and are of no use.
pub(super) fn discard(copy: &Server) -> Result<()> {
    copy.os_user.run(|| clear(&copy.data))
}

/// Empties a data directory but for its [`OWN_FILES`].
fn clear(directory: &Path) -> Result<()> {
    for name in names(directory, Original::Stopped)? {
        let path = directory.join(&name);
        let kind = fs::symlink_metadata(&path).map_err(|e| file_error("read", &path, &e))?;
        if OWN_FILES.iter().any(|own| name == Path::new(own)) && kind.is_file() {
            continue;
        }
        let removed =
            if kind.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| file_error("remove", &path, &error))?;
    }
    Ok(())
}

/// Bytes of a data directory, but for what a copy leaves out.
///
/// # Errors
/// What the operating system says.
pub fn bytes(directory: &Path) -> Result<u64> {
    size(directory, Path::new(""), Original::Stopped)
}

/// The same of a server that runs.
pub(super) fn bytes_of_running(directory: &Path) -> Result<u64> {
    size(directory, Path::new(""), Original::Running)
}

struct Copying<'a> {
    from: &'a Path,
    to: &'a Path,
    original: Original,
    done: u64,
    total: u64,
}

impl Copying<'_> {
    fn directory(&mut self, relative: &Path, tell: &mut dyn FnMut(Progress) -> bool) -> Result<()> {
        for name in names(&self.from.join(relative), self.original)? {
            let relative = relative.join(name);
            let from = self.from.join(&relative);
            let Some(kind) = kind_of(&from, self.original)? else { continue };
            match part(&relative, self.original) {
                Part::LeaveOut => {}
                Part::EmptyDirectory => self.make(&relative, kind.mode())?,
                Part::Copy if kind.is_dir() => {
                    self.make(&relative, kind.mode())?;
                    self.directory(&relative, tell)?;
                }
                // An own file of the copy.
                Part::Copy if self.to.join(&relative).exists() => {}
                Part::Copy if kind.is_file() => {
                    self.file(&relative)?;
                    self.done += kind.len();
                    if !tell(Progress { done: self.done, total: self.total }) {
                        return Err(Error::Retry("it was interrupted".to_owned()));
                    }
                }
                Part::Copy => {
                    return Err(Error::Refused(format!(
                        "{} is a link: servers with tablespaces can't be copied",
                        from.display()
                    )));
                }
            }
        }
        Ok(())
    }

    fn make(&self, relative: &Path, mode: u32) -> Result<()> {
        let path = self.to.join(relative);
        let made = fs::DirBuilder::new().mode(mode & 0o777).create(&path);
        made.map_err(|error| file_error("create", &path, &error))
    }

    fn file(&self, relative: &Path) -> Result<()> {
        let (from, path) = (self.from.join(relative), self.to.join(relative));
        let copied = match relative == Path::new(CONTROL_FILE) {
            true => steady(&from).and_then(|bytes| fs::write(&path, bytes)),
            false => fs::copy(&from, &path).map(|_| ()),
        };
        match copied {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error, self.original) && !from.exists() => Ok(()),
            Err(error) => Err(file_error("write", &path, &error)),
        }
    }
}

/// What a running server rewrites in place, and must be copied as it was at one moment.
const CONTROL_FILE: &str = "global/pg_control";

/// The contents of a small file that were the same twice.
fn steady(path: &Path) -> io::Result<Vec<u8>> {
    let mut before = fs::read(path)?;
    loop {
        let now = fs::read(path)?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
}

/// Whether a file isn't there any more because the running original has removed it.
fn is_gone(error: &io::Error, original: Original) -> bool {
    error.kind() == io::ErrorKind::NotFound && original == Original::Running
}

/// What a path is; `None` if the running original has removed it.
fn kind_of(path: &Path, original: Original) -> Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(kind) => Ok(Some(kind)),
        Err(error) if is_gone(&error, original) => Ok(None),
        Err(error) => Err(file_error("read", path, &error)),
    }
}

fn size(root: &Path, relative: &Path, original: Original) -> Result<u64> {
    let mut total = 0;
    for name in names(&root.join(relative), original)? {
        let relative = relative.join(name);
        if part(&relative, original) == Part::Copy
            && let Some(kind) = kind_of(&root.join(&relative), original)?
        {
            total += if kind.is_dir() { size(root, &relative, original)? } else { kind.len() };
        }
    }
    Ok(total)
}

/// The names in a directory; none if the running original has removed it, as DROP DATABASE does.
pub(super) fn names(directory: &Path, original: Original) -> Result<Vec<PathBuf>> {
    let read = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(directory)?.map(|entry| Ok(PathBuf::from(entry?.file_name()))).collect()
    };
    match read() {
        Err(error) if is_gone(&error, original) => Ok(Vec::new()),
        names => names.map_err(|error| file_error("read", directory, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_the_process_stay_with_the_original() {
        let part = |path: &str, original| part(Path::new(path), original);
        for original in [Original::Stopped, Original::Running] {
            assert_eq!(part("pg_replslot", original), Part::EmptyDirectory);
            assert_eq!(part("pg_replslot/hihooi", original), Part::LeaveOut);
            assert_eq!(part("postmaster.pid", original), Part::LeaveOut);
            assert_eq!(part("base/5/postmaster.pid", original), Part::Copy);
            assert_eq!(part("pg_logical/replorigin_checkpoint", original), Part::Copy);
        }
        assert_eq!(part("pg_wal/000000010000000000000001", Original::Stopped), Part::Copy);
        assert_eq!(part("pg_wal/000000010000000000000001", Original::Running), Part::LeaveOut);
        assert_eq!(part("pg_subtrans/0000", Original::Running), Part::LeaveOut);
        assert_eq!(part("base/pgsql_tmp/pgsql_tmp7.0", Original::Running), Part::LeaveOut);
        assert_eq!(part("base/5/pg_internal.init.99", Original::Running), Part::LeaveOut);
        assert_eq!(part("backup_label", Original::Running), Part::LeaveOut);
        assert_eq!(part("base/5/1259", Original::Running), Part::Copy);
    }
}
