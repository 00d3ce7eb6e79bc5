//! Finds the process that runs on a data directory, so that it can be signalled without mistake: by the lock that it
//! holds, which the kernel gives up with the process. What is written in a file isn't enough: after `kill -9` the
//! number there may be another program's.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hihooi_postgres::cluster::file_error;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::data_dir::{DataDir, WHOLE_FILE};
use crate::failure::{Failure, Result};

/// The process that runs on a data directory.
#[derive(Debug)]
pub struct Holder {
    /// Its process id.
    pub pid: i32,
    /// What it is: `up`, `serve` or `rebuild`; empty if that isn't known.
    pub command: String,
    /// Since when.
    pub since: SystemTime,
    /// The process itself, which no other one with the same number can be taken for.
    process: OwnedFd,
}

impl Holder {
    /// The process that holds the lock of a directory, if one does.
    ///
    /// # Errors
    /// The file can't be read, or the process can't be seen from here.
    pub fn find(data: &DataDir) -> Result<Option<Holder>> {
        let path = data.lock_file();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file_error("read", &path, &error).into()),
        };
        loop {
            let Some(pid) = locked_by(&file, &path)? else { return Ok(None) };
            let process = match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => process,
                // It has ended; another may hold the lock by now.
                Err(Errno::SRCH) => continue,
                Err(error) => {
                    return Err(Failure::new(format!("cannot look at process {pid}: {error}")));
                }
            };
            // If the number was another process's before we had hold of it, that one has the lock now.
            if locked_by(&file, &path)? == Some(pid) {
                return Holder::new(pid, process, file, &path).map(Some);
            }
        }
    }

    fn new(pid: Pid, process: OwnedFd, mut file: File, path: &Path) -> Result<Holder> {
        let mut text = String::new();
        let read = file.read_to_string(&mut text).and_then(|_| file.metadata()?.modified());
        // It wrote its number when it had the lock, and nothing since.
        let since = read.map_err(|error| file_error("read", path, &error))?;
        let pid = pid.as_raw_nonzero().get();
        let command = match text.split_once(' ') {
            Some((number, command)) if number == pid.to_string() => command.to_owned(),
            _ => String::new(),
        };
        Ok(Holder { pid, command, since, process })
    }

    /// Sends it a signal; one that has ended gets none.
    ///
    /// # Errors
    /// It is another user's.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        match pidfd_send_signal(&self.process, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(Errno::PERM) => Err(Failure::new(format!(
                "process {} is another user's: try again as that user, or as root",
                self.pid
            ))),
            Err(error) => Err(Failure::new(format!("cannot signal process {}: {error}", self.pid))),
        }
    }

    /// Waits until it has ended; false if it hasn't within `limit`.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        let limit = Timespec::try_from(limit).map_err(Failure::new)?;
        let mut events = [PollFd::new(&self.process, PollFlags::IN)];
        loop {
            match poll(&mut events, Some(&limit)) {
                Ok(ended) => return Ok(ended > 0),
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(Failure::new(format!(
                        "cannot wait for process {}: {error}",
                        self.pid
                    )));
                }
            }
        }
    }
}

/// Who has a file locked, by the kernel's word.
fn locked_by(file: &File, path: &Path) -> Result<Option<Pid>> {
    let mut lock = WHOLE_FILE;
    fcntl(file, FcntlArg::F_GETLK(&mut lock))
        .map_err(|error| Failure::new(format!("cannot look at {}: {error}", path.display())))?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    match Pid::from_raw(lock.l_pid.max(0)) {
        Some(pid) => Ok(Some(pid)),
        None => Err(Failure::new(format!(
            "{} is locked by a process that can't be seen from here: of another container, or another host",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that is left behind, or is another program's, is nobody's.
    #[test]
    fn a_number_without_a_lock_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = DataDir::new(folder.path()).expect("it exists");
        assert!(Holder::find(&data).expect("no file").is_none());
        std::fs::write(data.lock_file(), format!("{} up", std::process::id())).expect("own folder");
        assert!(Holder::find(&data).expect("a file").is_none());
    }
}
