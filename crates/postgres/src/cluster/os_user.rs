//! The operating-system user that runs the servers: PostgreSQL refuses to run as root, so
//! an `up` that root started runs them as another user.

use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::{Error, Result, file_error, plain};

/// Tried in this order when root names no user.
const DEFAULT_NAMES: [&str; 2] = ["postgres", "nobody"];

/// Who runs the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OsUser {
    /// Whoever runs hihooi.
    Same,
    /// Another user: possible only for root.
    Other {
        /// Its name.
        name: String,
        /// Its number.
        uid: u32,
        /// Its primary group.
        gid: u32,
    },
}

impl OsUser {
    /// The user to run servers as: `wanted` if named; otherwise ourselves, or `postgres`, else
    /// `nobody`, when we are root.
    ///
    /// # Errors
    /// An unknown user, root itself, or another user while we are not root.
    pub fn choose(wanted: Option<&str>) -> Result<OsUser> {
        let own = nix::unistd::geteuid();
        match wanted {
            Some(name) => {
                let user = lookup(name)?.ok_or_else(|| {
                    Error::Refused(format!(
                        "there is no user {name:?} on this machine: create it, or pass another \
                         with --os-user"
                    ))
                })?;
                OsUser::checked(user, own)
            }
            None if !own.is_root() => Ok(OsUser::Same),
            None => {
                for name in DEFAULT_NAMES {
                    if let Some(user) = lookup(name)? {
                        return OsUser::checked(user, own);
                    }
                }
                Err(Error::Refused(
                    "PostgreSQL does not run as root: create a user and pass it with --os-user"
                        .to_owned(),
                ))
            }
        }
    }

    fn checked(user: nix::unistd::User, own: nix::unistd::Uid) -> Result<OsUser> {
        if user.uid.is_root() {
            return Err(Error::Refused(
                "PostgreSQL does not run as root: pass another user with --os-user".to_owned(),
            ));
        }
        if user.uid == own {
            return Ok(OsUser::Same);
        }
        if !own.is_root() {
            return Err(Error::Refused(format!(
                "only root can run servers as another user: run hihooi as {}, or leave out \
                 --os-user",
                user.name
            )));
        }
        Ok(OsUser::Other { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() })
    }

    /// Makes `command` run as this user.
    pub fn apply(&self, command: &mut Command) {
        if let OsUser::Other { uid, gid, .. } = self {
            command.uid(*uid).gid(*gid);
        }
    }

    /// Gives a file or directory to this user.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn own(&self, path: &Path) -> Result<()> {
        match self {
            OsUser::Same => Ok(()),
            OsUser::Other { uid, gid, .. } => {
                chown(path, Some(*uid), Some(*gid)).map_err(|e| file_error("chown", path, &e))
            }
        }
    }

    /// Works with files with the rights of this user alone: what is in a server's directory is the user's, links to
    /// other places included, and root must not follow them. Blocks.
    ///
    /// # Errors
    /// Those of the work; what the operating system says.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let OsUser::Other { uid, gid, .. } = self else { return work() };
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        let become_user = move || -> rustix::io::Result<()> {
            // Of this thread only, which ends with the work.
            set_thread_groups(&[])?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)
        };
        let work = move || {
            become_user().map_err(|error| Error::Refused(plain(&error.into())))?;
            work()
        };
        std::thread::scope(|scope| {
            let done = scope.spawn(work).join();
            done.unwrap_or_else(|_| Err(Error::Retry("a thread that copies files panicked".into())))
        })
    }

    /// Checks that this user can reach `directory` (an absolute path).
    ///
    /// # Errors
    /// One line that names the directory on the way that shuts it out.
    pub fn check_reaches(&self, directory: &Path) -> Result<()> {
        let OsUser::Other { name, uid, gid } = self else { return Ok(()) };
        let mut probe = Command::new("/bin/sh");
        probe.args(["-c", ":"]).current_dir(directory);
        self.apply(&mut probe);
        match probe.status() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let closed = closed_directory(directory, *uid, *gid);
                Err(Error::Refused(format!(
                    "user {name}, who runs the servers, cannot enter {}: allow it (chmod o+x), \
                     or choose another directory with --data",
                    closed.display()
                )))
            }
            Err(error) => Err(Error::Refused(format!(
                "cannot run programs as user {name}: {}; pass another with --os-user",
                plain(&error)
            ))),
            Ok(_) => Ok(()),
        }
    }
}

fn lookup(name: &str) -> Result<Option<nix::unistd::User>> {
    nix::unistd::User::from_name(name)
        .map_err(|error| Error::Refused(format!("cannot look up user {name:?}: {error}")))
}

/// The uppermost directory on the way whose mode keeps the user out (`directory` itself if the
/// modes don't tell).
fn closed_directory(directory: &Path, uid: u32, gid: u32) -> PathBuf {
    let mut way: Vec<&Path> = directory.ancestors().collect();
    way.reverse();
    for step in way {
        let Ok(meta) = step.metadata() else { continue };
        let bit = match () {
            () if meta.uid() == uid => 0o100,
            () if meta.gid() == gid => 0o010,
            () => 0o001,
        };
        if meta.mode() & bit == 0 {
            return step.to_path_buf();
        }
    }
    directory.to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_refused_as_the_servers_user() {
        let error = OsUser::choose(Some("root")).expect_err("root must be refused");
        assert!(error.to_string().contains("root"), "{error}");
    }

    #[test]
    fn an_unknown_user_is_named() {
        let error = OsUser::choose(Some("no-such-user-here")).expect_err("unknown user");
        assert!(error.to_string().contains("no-such-user-here"), "{error}");
    }
}
