//! What the commands have in common: the event loop of the main thread, the number of open files, and output for
//! the user.

use std::io::Write;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Runs work on an event loop.
///
/// # Errors
/// Its own.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::new)?.block_on(work)
}

/// Runs a command on an event loop; a failure is printed as one line.
pub fn run(command: impl Future<Output = Result<()>>) -> Exit {
    match block_on(command) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            eprintln!("hihooi: {failure}");
            Exit::Failed
        }
    }
}

/// A line for the user, who may have closed the terminal.
pub fn tell(text: String) {
    let _ = writeln!(std::io::stdout(), "hihooi: {text}");
}

/// Files and sockets besides those of clients that have logged in: of those that have not, of servers, of the log.
const OTHER_FILES: u64 = 2_000;

/// Lets the process open as many files as it may be allowed, and says in the log if that is too few for the clients
/// that may come.
pub fn allow_files(config: &Config) {
    let limit = Resource::RLIMIT_NOFILE;
    let raised = getrlimit(limit).and_then(|(_, most)| setrlimit(limit, most, most).map(|()| most));
    let wanted = u64::try_from(config.limits.clients_max).unwrap_or(u64::MAX);
    match raised {
        Ok(most) if most < wanted.saturating_add(OTHER_FILES) => tracing::warn!(
            "only {most} files can be open at once (ulimit -n), too few for limits.clients_max {wanted}"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the number of open files can't be raised"),
    }
}
