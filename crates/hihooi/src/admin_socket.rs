//! The Unix socket `admin.sock` in the data directory, where a running manager serves the admin database to its own
//! user (and to root): the file's permissions are the check, so that `hihooi status`, `verify` and others need no
//! password, whatever the rules for clients say.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::data_dir::DataDir;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Where it is.
#[must_use]
pub fn path(data: &DataDir) -> PathBuf {
    data.file("admin.sock")
}

/// Begins to listen, in place of a manager that is gone. A cluster runs without it if that fails, as where the
/// path is longer than a socket's may be (about 100 bytes).
#[must_use]
pub fn listen(data: &DataDir) -> Option<UnixListener> {
    let path = path(data);
    match bind(&path) {
        Ok(listener) => Some(listener),
        Err(error) => {
            let path = path.display();
            tracing::warn!(%error, "can't listen on {path}: `hihooi status` won't know more than that we run");
            None
        }
    }
}

/// Nobody can connect before it listens, so nobody does before its permissions are what they should be.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    // We hold the directory's lock: whoever made this doesn't run any more.
    if let Err(error) = fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

/// Removes it.
pub fn remove(data: &DataDir) {
    // It may not have been made, and one that is left behind does no harm.
    let _ = fs::remove_file(path(data));
}
