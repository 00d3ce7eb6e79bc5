//! Copies of a stopped server: all of its files except replication slots, which belong to the original, and
//! `postmaster.*`, which belong to its process. When an existing replica is copied again, it keeps its own
//! configuration files.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::os_user::OsUser;
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

/// What to do with a path of the original.
#[derive(PartialEq, Eq, Debug)]
enum Part {
    Copy,
    /// Copied as an empty directory.
    EmptyDirectory,
    LeaveOut,
}

fn part(relative: &Path) -> Part {
    let mut steps = relative.iter().filter_map(|step| step.to_str());
    match (steps.next(), steps.next()) {
        (Some("pg_replslot" | "pg_stat_tmp"), None) => Part::EmptyDirectory,
        (Some("pg_replslot" | "pg_stat_tmp"), Some(_)) => Part::LeaveOut,
        (Some(name), None) if name.starts_with("postmaster.") => Part::LeaveOut,
        _ => Part::Copy,
    }
}

/// Copies the data directory of `original`, which is stopped, for `copy`, in place of what that has, and
/// gives the copy its own settings. Nothing is flushed to disk.
///
/// # Errors
/// A running server, or what the operating system says.
pub fn copy(original: &Server, copy: &Server, tell: &mut dyn FnMut(Progress)) -> Result<()> {
    for server in [original, copy] {
        if matches!(pidfile::occupant(&server.data), Occupant::Server { .. }) {
            return Err(Error::Refused(format!("{} is still running: stop it first", server.name)));
        }
    }
    match copy.data.exists() {
        true => clear(&copy.data)?,
        false => copy.make_directory()?,
    }
    let total = bytes(&original.data)?;
    let mut copying =
        Copying { from: &original.data, to: &copy.data, owner: &copy.os_user, done: 0, total };
    copying.directory(Path::new(""), tell)?;
    copy.configure()
}

/// Empties a data directory but for its [`OWN_FILES`].
fn clear(directory: &Path) -> Result<()> {
    for name in names(directory)? {
        if OWN_FILES.iter().any(|own| name == Path::new(own)) {
            continue;
        }
        let path = directory.join(name);
        let kind = fs::symlink_metadata(&path).map_err(|e| file_error("read", &path, &e))?;
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
    size(directory, Path::new(""))
}

struct Copying<'a> {
    from: &'a Path,
    to: &'a Path,
    owner: &'a OsUser,
    done: u64,
    total: u64,
}

impl Copying<'_> {
    fn directory(&mut self, relative: &Path, tell: &mut dyn FnMut(Progress)) -> Result<()> {
        for name in names(&self.from.join(relative))? {
            let relative = relative.join(name);
            let from = self.from.join(&relative);
            let kind = fs::symlink_metadata(&from).map_err(|e| file_error("read", &from, &e))?;
            match part(&relative) {
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
                    tell(Progress { done: self.done, total: self.total });
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
        made.map_err(|error| file_error("create", &path, &error))?;
        self.owner.own(&path)
    }

    fn file(&self, relative: &Path) -> Result<()> {
        let path = self.to.join(relative);
        fs::copy(self.from.join(relative), &path)
            .map_err(|error| file_error("write", &path, &error))?;
        self.owner.own(&path)
    }
}

fn size(root: &Path, relative: &Path) -> Result<u64> {
    let mut total = 0;
    for name in names(&root.join(relative))? {
        let relative = relative.join(name);
        let path = root.join(&relative);
        if part(&relative) == Part::Copy {
            let meta =
                fs::symlink_metadata(&path).map_err(|error| file_error("read", &path, &error))?;
            total += if meta.is_dir() { size(root, &relative)? } else { meta.len() };
        }
    }
    Ok(total)
}

fn names(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(directory)?.map(|entry| Ok(PathBuf::from(entry?.file_name()))).collect()
    };
    read().map_err(|error| file_error("read", directory, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_the_process_stay_with_the_original() {
        assert_eq!(part(Path::new("pg_replslot")), Part::EmptyDirectory);
        assert_eq!(part(Path::new("pg_replslot/hihooi")), Part::LeaveOut);
        assert_eq!(part(Path::new("postmaster.pid")), Part::LeaveOut);
        assert_eq!(part(Path::new("base/5/postmaster.pid")), Part::Copy);
        assert_eq!(part(Path::new("pg_logical/replorigin_checkpoint")), Part::Copy);
    }
}
