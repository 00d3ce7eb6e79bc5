//! The data directory: its files and its lock.
//!
//! | path | what |
//! |---|---|
//! | `hihooi.toml` | configuration; written last, so that it marks a finished cluster |
//! | `hihooi.lock` | locked while a manager runs; its process id and command |
//! | `admin.sock` | where a running manager serves the admin database to its own user |
//! | `hihooi.log` | what `up` logs |
//! | `creating` | there while the first `up` creates the cluster |
//! | `rebuilding` | there while `rebuild` replaces the replicas |
//! | `NAME.copying` | there while the data of site NAME are replaced by a copy of the primary |
//! | `log/` | the log |
//! | `primary/`, `replica1/` … | the servers' data, `primary.log` … their logs |
//! | `sockets/` | the servers' Unix sockets |

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hihooi_postgres::cluster::file_error;
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};

use crate::failure::{Failure, Result};

/// A data directory, by its absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir(PathBuf);

/// A write lock of a whole file (fcntl, "Advisory record locking").
#[allow(
    clippy::cast_possible_truncation,
    reason = "the constants are larger types than the fields"
)]
pub const WHOLE_FILE: nix::libc::flock = nix::libc::flock {
    l_type: nix::libc::F_WRLCK as nix::libc::c_short,
    l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
    l_start: 0,
    l_len: 0,
    l_pid: 0,
};

/// Held while a manager runs on a data directory.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held for its drop")] Flock<File>);

impl DataDir {
    /// The directory at `path`, which need not exist.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new(path: &Path) -> Result<DataDir> {
        let absolute = std::path::absolute(path).map_err(|e| file_error("find", path, &e))?;
        Ok(DataDir(absolute.canonicalize().unwrap_or(absolute)))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file or directory in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.file("hihooi.toml")
    }

    /// Marks a cluster that is being made.
    #[must_use]
    pub fn creating(&self) -> PathBuf {
        self.file("creating")
    }

    /// Marks a cluster whose replicas are being made anew.
    #[must_use]
    pub fn rebuilding(&self) -> PathBuf {
        self.file("rebuilding")
    }

    /// Marks a replica that is being replaced while the others serve.
    #[must_use]
    pub fn copying(&self, site: &str) -> PathBuf {
        self.file(&format!("{site}.copying"))
    }

    /// Whether its replicas can be used.
    ///
    /// # Errors
    /// A rebuild was interrupted: they are half made.
    pub fn check_whole(&self) -> Result<()> {
        match self.rebuilding().exists() {
            true => Err(Failure::new(format!(
                "the replicas in {} are incomplete, because a rebuild was interrupted: finish it with `hihooi rebuild --yes`",
                self.0.display()
            ))),
            false => Ok(()),
        }
    }

    /// Whether it is a directory already.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.0.is_dir()
    }

    /// Makes it where missing, and checks that we can write there. `others_enter`: another user
    /// must be able to go through.
    ///
    /// # Errors
    /// One line that says what to do.
    pub fn make(&self, others_enter: bool) -> Result<()> {
        let mode = if others_enter { 0o755 } else { 0o700 };
        let made = fs::DirBuilder::new().recursive(true).mode(mode).create(&self.0);
        made.map_err(|error| self.unusable("create", &error))
    }

    fn unusable(&self, what: &str, error: &std::io::Error) -> Failure {
        let error = file_error(what, &self.0, error);
        Failure::new(format!("{error}; pass another directory with --data"))
    }

    /// The file whose lock a running manager holds.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.file("hihooi.lock")
    }

    /// Takes the lock of the directory, which exists, for a command.
    ///
    /// # Errors
    /// Another manager runs here, or the directory can't be written.
    pub fn lock(&self, command: &str) -> Result<Lock> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(self.lock_file());
        let file = opened.map_err(|error| self.unusable("write to", &error))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // The text only helps whoever reads the message below.
                let _ =
                    lock.set_len(0).and_then(|()| write!(lock, "{} {command}", std::process::id()));
                // This lock excludes nobody, it tells who we are (`holder.rs`), until this process closes the file, or
                // opens it again and closes it. Where a file system can't have it, only `hihooi stop` doesn't know us.
                let _ = fcntl(&*lock, FcntlArg::F_SETLK(&WHOLE_FILE));
                Ok(Lock(lock))
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut who = String::new();
                let _ = file.rewind().and_then(|()| file.read_to_string(&mut who));
                let pid = who.split(' ').next().unwrap_or_default();
                let here = self.0.display();
                Err(Failure::new(format!(
                    "another hihooi (process {pid}) runs on {here}: stop it first (`hihooi stop --data \
                     {here}`), or pass another directory with --data"
                )))
            }
            Err((_, error)) => {
                Err(Failure::new(format!("cannot lock {}: {error}", self.0.display())))
            }
        }
    }
}

/// Writes a file so that after a crash it is there whole or not at all.
///
/// # Errors
/// What the operating system says.
pub fn write_durably(path: &Path, text: &str, mode: u32) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let draft = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|error| file_error("write", path, &error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_manager_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = DataDir::new(folder.path()).expect("it exists");
        let held = data.lock("up").expect("free");
        let error = data.lock("up").expect_err("held").to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(held);
        data.lock("up").expect("free again");
    }
}
