//! PostgreSQL servers on this machine as a cluster: finds the binaries, creates, starts, copies and supervises
//! servers, and fences off the managers of older epochs.

use std::io;
use std::path::Path;

pub mod backup;
pub mod binaries;
pub mod clone;
pub mod fence;
pub mod os_user;
pub mod pidfile;
pub mod postmaster;
pub mod server;
pub mod supervise;

/// Why something about a server didn't work, by what the caller must do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It stays so until the operator changes something: one line that says what.
    #[error("{0}")]
    Refused(String),
    /// It may pass by itself: try again later.
    #[error("{0}")]
    Retry(String),
}

/// The result of handling servers.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed file operation: `what` says what was tried, such as `create`.
#[must_use]
pub fn file_error(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::Refused(format!("cannot {what} {}: {}", path.display(), plain(error)))
}

/// What the operating system says, without Rust's ` (os error 13)`.
#[must_use]
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
