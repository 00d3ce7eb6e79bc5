//! The Unix socket `admin.sock` in the data directory, where a running manager serves the admin database to its own
//! user (and to root): the file's permissions are the check, so that `hihooi status`, `verify` and others need no
//! password, whatever the rules for clients say.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use crate::data_dir::DataDir;
use crate::listening::bind_unix;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Its owner may connect.
const OWNER: u32 = 0o600;

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
    // We hold the directory's lock: whoever made one that is there doesn't run any more.
    match bind_unix(&path, OWNER, BACKLOG) {
        Ok(listener) => Some(listener),
        Err(error) => {
            let path = path.display();
            tracing::warn!(%error, "can't listen on {path}: `hihooi status` won't know more than that we run");
            None
        }
    }
}

/// Removes it.
pub fn remove(data: &DataDir) {
    // It may not have been made, and one that is left behind does no harm.
    let _ = fs::remove_file(path(data));
}
