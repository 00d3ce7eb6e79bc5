//! A plain PostgreSQL server with the settings that `hihooi up` gives to its own: what hihooi
//! must look like (I1).

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::reaper::Folder;
use super::{Failure, Session, bin_dir, eventually, free_port, succeed};

/// A running server.
pub struct Reference {
    _folder: Folder,
    server: Child,
    /// Where it listens.
    pub port: u16,
}

const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "wal_level=logical",
    "max_connections=300",
    "max_prepared_transactions=100",
    "max_wal_senders=32",
    "max_replication_slots=32",
    "fsync=off",
];

impl Reference {
    /// Makes and starts a server.
    pub fn start() -> Reference {
        let folder = Folder::new();
        let data = folder.path().join("reference");
        std::fs::create_dir(&data).expect("own folder");
        let port = free_port();
        if nix::unistd::geteuid().is_root() {
            let user = nix::unistd::User::from_name("postgres").expect("users");
            let user = user.expect("user postgres, whom servers run as");
            nix::unistd::chown(&data, Some(user.uid), Some(user.gid)).expect("root may");
        }
        let initdb = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-N"];
        succeed(as_server(&bin_dir().join("initdb")).args(initdb).arg("-D").arg(&data));
        let mut server = as_server(&bin_dir().join("postgres"));
        server.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k", ""]);
        SETTINGS.iter().for_each(|setting| {
            server.args(["-c", setting]);
        });
        let log = std::fs::File::create(folder.path().join("log")).expect("own folder");
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = server.spawn().expect("a server");
        let server = Reference { _folder: folder, server, port };
        eventually("the reference server accepts clients", || server.try_connect().is_ok());
        server
    }

    fn try_connect(&self) -> Result<Session, Failure> {
        Session::open(self.port, &[("user", super::USER), ("database", super::DATABASE)])
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.server.id() as i32);
        // It may have ended by itself.
        let _ = kill(pid, Signal::SIGQUIT);
        let _ = self.server.wait();
    }
}

/// A command that runs as the user who may run servers, from a folder that user can enter.
fn as_server(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/");
    if nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_name("postgres").expect("users").expect("postgres");
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}
