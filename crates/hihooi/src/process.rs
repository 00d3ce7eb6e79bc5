//! What the commands have in common: the event loop of the main thread, logging, the listening socket, and
//! output for the user.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hihooi_postgres::cluster::{file_error, plain};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::{Config, listen_address};
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Connections that wait to be accepted: thousands of clients may come at once.
const BACKLOG: i32 = 4096;

/// Runs a command on an event loop; a failure is printed as one line.
pub fn run(command: impl Future<Output = Result<()>>) -> Exit {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => Err(Failure::new(error)),
    };
    match ended {
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

/// How the operator's log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// Lines that are JSON objects: timestamp, level, target, message, and what else an event has.
    Json,
}

/// Sends the operator's log to a file, or to standard error.
///
/// # Errors
/// A bad filter or a file that can't be written.
pub fn log_to(file: Option<&Path>, filter: Option<&str>, format: LogFormat) -> Result<()> {
    let default = if file.is_some() { "info" } else { "warn" };
    let filter = EnvFilter::try_new(filter.unwrap_or(default))
        .map_err(|error| Failure::new(format!("bad --log: {error}")))?;
    let writer = match file {
        Some(path) => {
            let file = open_log(path)?;
            *LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some((path.to_owned(), file));
            BoxMakeWriter::new(|| ToLog)
        }
        None => BoxMakeWriter::new(std::io::stderr),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text if file.is_none() && goes_to_the_journal() => {
            builder.with_ansi(false).without_time().init();
        }
        LogFormat::Text => builder.with_ansi(false).init(),
    }
    Ok(())
}

/// Whether standard error is systemd's journal, which has times of its own (systemd.exec, `$JOURNAL_STREAM`).
fn goes_to_the_journal() -> bool {
    let Ok(file) = nix::sys::stat::fstat(std::io::stderr()) else { return false };
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    stream == format!("{}:{}", file.st_dev, file.st_ino)
}

/// The operator's log, if it is a file.
static LOG: Mutex<Option<(PathBuf, File)>> = Mutex::new(None);

/// Writes to the operator's log.
struct ToLog;

impl Write for ToLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, file)) => file.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn open_log(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    Ok(opened.map_err(|error| file_error("write", path, &error))?)
}

/// Opens the log file anew: it may have been moved away. Goes on with the old one if that fails.
pub fn open_log_anew() {
    let opened = match &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner) {
        Some((path, file)) => open_log(path).map(|anew| *file = anew),
        None => return,
    };
    match opened {
        Ok(()) => {
            tracing::info!("SIGHUP: the log file is reopened")
        }
        Err(failure) => tracing::error!("SIGHUP: the log file can't be reopened: {failure}"),
    }
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

/// Takes the address that clients connect to.
///
/// # Errors
/// A bad or taken address.
pub fn listen(text: &str) -> Result<TcpListener> {
    listen_for(text, "--listen")
}

/// Takes the address that serves metrics, if there is one.
///
/// # Errors
/// A bad or taken address.
pub fn listen_for_metrics(config: &Config) -> Result<Option<TcpListener>> {
    let address = config.metrics.address();
    address.map(|address| listen_for(address, "--metrics-listen (off for none)")).transpose()
}

/// Takes an address that is given by this option.
fn listen_for(text: &str, option: &str) -> Result<TcpListener> {
    let address = listen_address(text).map_err(Failure::new)?;
    bind(address).map_err(|error| {
        Failure::new(format!(
            "cannot listen on {address}: {}; stop the program that does, or pass another address \
             with {option}",
            plain(&error)
        ))
    })
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// How to connect.
#[must_use]
pub fn ready_url(listener: &TcpListener, config: &Config) -> String {
    let (user, address) = (config.primary().user, reached_at(listener));
    format!("postgres://{user}@{address}/{}", config.database())
}

/// Where metrics are served.
#[must_use]
pub fn metrics_url(listener: &TcpListener) -> String {
    format!("http://{}/metrics", reached_at(listener))
}

/// Where this machine reaches a socket.
fn reached_at(listener: &TcpListener) -> SocketAddr {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut address = listener.local_addr().unwrap_or(any);
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_refused_in_one_line() {
        let held = listen("127.0.0.1:0").expect("a free port");
        let taken = held.local_addr().expect("bound").to_string();
        let error = listen(&taken).expect_err("taken").to_string();
        assert!(error.contains(&taken) && error.contains("--listen"), "{error}");
    }
}
