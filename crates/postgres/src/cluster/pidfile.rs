//! Whether a server runs in a data directory: `postmaster.pid` (manual, "Database File Layout"),
//! compared with the processes that exist.
//!
//! After `kill -9` the file remains, and its process id may belong to a zombie or to another program now.
//! PostgreSQL can't distinguish this from a running server and refuses to start. The file is removed only when
//! its process is known not to be a server of this directory.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Result, file_error};

/// Whether a server runs in a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occupant {
    /// Nobody.
    Nobody,
    /// A live server.
    Server {
        /// Its postmaster.
        pid: i32,
        /// The port it was started with.
        port: u16,
    },
    /// Nobody any more; `postmaster.pid` was left behind.
    Gone,
}

/// Looks whether a server runs in `data`.
#[must_use]
pub fn occupant(data: &Path) -> Occupant {
    let Ok(text) = std::fs::read_to_string(data.join("postmaster.pid")) else {
        return Occupant::Nobody;
    };
    // The number is negative while a stand-alone backend holds the directory.
    match parse(&text) {
        Some((pid, port)) if runs_in(pid, data) => Occupant::Server { pid, port },
        _ => Occupant::Gone,
    }
}

/// Removes a `postmaster.pid` whose process is gone.
///
/// # Errors
/// What the operating system says.
pub fn remove_stale(data: &Path) -> Result<()> {
    if occupant(data) != Occupant::Gone {
        return Ok(());
    }
    let file = data.join("postmaster.pid");
    std::fs::remove_file(&file).map_err(|error| file_error("remove", &file, &error))
}

/// Removes the lock file of a Unix socket in our own directory whose server is gone. (A server
/// that finds the lock gone replaces the socket itself.)
///
/// # Errors
/// What the operating system says.
pub fn remove_stale_socket(data: &Path, socket_dir: &Path, port: u16) -> Result<()> {
    let file = socket_dir.join(format!(".s.PGSQL.{port}.lock"));
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(()) };
    match parse(&text) {
        Some((pid, _)) if runs_in(pid, data) => Ok(()),
        _ => std::fs::remove_file(&file).map_err(|error| file_error("remove", &file, &error)),
    }
}

/// Whether a process lives (a zombie doesn't).
#[must_use]
pub fn lives(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH) && state_of(pid) != Some('Z')
}

/// All server processes that work in `data`: a postmaster, also one that has just begun, or
/// backends that outlived theirs and hold its shared memory, so that no new one can start.
#[must_use]
pub fn processes(data: &Path) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| is_postgres(pid) && runs_in(pid, data))
        .collect()
}

/// Sends a signal; a process that is gone already is no error.
pub fn signal(pid: i32, signal: Signal) {
    if let Err(error) = kill(Pid::from_raw(pid), signal)
        && error != Errno::ESRCH
    {
        tracing::warn!(pid, %signal, %error, "cannot send a signal");
    }
}

fn parse(text: &str) -> Option<(i32, u16)> {
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok()?;
    // A server that just starts hasn't written its port yet.
    let port = lines.nth(2).and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    Some((pid, port))
}

/// Whether a process lives and works in `data`: every process of a server does.
fn runs_in(pid: i32, data: &Path) -> bool {
    if pid <= 0 || !lives(pid) {
        return false;
    }
    let Ok(data) = data.canonicalize() else { return false };
    match std::fs::read_link(proc_file(pid, "cwd")) {
        Ok(directory) => directory == data,
        // Without /proc, what the file says must do. With it, an unreadable process is another
        // user's, hence not a server that we started.
        Err(_) => !Path::new("/proc/self").exists(),
    }
}

fn is_postgres(pid: i32) -> bool {
    let name = std::fs::read_to_string(proc_file(pid, "comm"));
    name.is_ok_and(|name| matches!(name.trim(), "postgres" | "postmaster"))
}

fn state_of(pid: i32) -> Option<char> {
    let text = std::fs::read_to_string(proc_file(pid, "stat")).ok()?;
    text.rsplit_once(')')?.1.trim_start().chars().next()
}

fn proc_file(pid: i32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_running_server_is_read() {
        let text = "4711\n/data\n1700000000\n6533\n\n127.0.0.1\n 123 456\nready   \n";
        assert_eq!(parse(text), Some((4711, 6533)));
        assert_eq!(parse("4711\n/data\n"), Some((4711, 0)));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_live_process_elsewhere_is_no_server_of_this_directory() {
        let own = i32::try_from(std::process::id()).expect("pids are positive");
        assert!(lives(own));
        assert!(!runs_in(own, Path::new("/proc")));
    }
}
