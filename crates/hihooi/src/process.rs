//! What the commands have in common: the event loop of the main thread, the listening socket, and
//! output for the user.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use hihooi_postgres::cluster::plain;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{Config, listen_address};
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Connections that wait to be accepted: thousands of clients may come at once.
const BACKLOG: i32 = 4096;

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
