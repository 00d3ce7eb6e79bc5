//! The sockets where clients connect, and the one that serves metrics.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use hihooi_postgres::cluster::plain;
use hihooi_server::Listener;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::config::{Config, Listen, Place, listen_address};
use crate::failure::{Failure, Result};

/// Connections that wait to be accepted: thousands of clients may come at once.
const BACKLOG: i32 = 4096;
/// Every user of this machine may connect to a Unix socket, as to PostgreSQL's; the directory and the rules of
/// `auth.hba_file` say who gets in.
const EVERYONE: u32 = 0o777;

/// Where clients connect, while a manager runs.
#[derive(Debug)]
pub struct Listening {
    /// The sockets.
    pub sockets: Vec<Listener>,
    /// Where they are: a free port has been found for the port 0.
    pub places: Listen,
    /// How clients get to the first.
    host: String,
    /// Its port.
    pub port: u16,
    /// The files of Unix sockets; they are removed when this is dropped.
    pub files: Vec<SocketFile>,
}

/// A Unix socket's file; removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have removed it; one that is left behind does no harm.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listening {
    /// Takes the places.
    ///
    /// # Errors
    /// A bad or taken one.
    pub fn begin(places: &Listen) -> Result<Listening> {
        let failed = |error: crate::config::BadConfig| Failure::new(error.to_string());
        let mut sockets = Vec::new();
        let (mut places, mut files) = (places.clone(), Vec::new());
        // Addresses first: a Unix socket may have the port that is found for one.
        for place in places.places().map_err(failed)? {
            let Place::Tcp(address) = place else { continue };
            let socket = listen_for(address, "--listen")?;
            if sockets.is_empty() {
                places = places.at(socket.local_addr().map_err(Failure::new)?);
            }
            sockets.push(Listener::Tcp(socket));
        }
        for place in places.places().map_err(failed)? {
            let Place::Unix(address) = place else { continue };
            let Some(path) = address.unix_socket() else { continue };
            sockets.push(Listener::Unix(listen_at(&path)?));
            files.push(SocketFile(path));
        }
        let (mut host, port) = places.host_and_port().map_err(failed)?;
        if let Some(Listener::Tcp(first)) = sockets.first()
            && !host.starts_with('/')
        {
            host = bracketed(reached_at(first).ip());
        }
        Ok(Listening { sockets, places, host, port, files })
    }

    /// How to connect.
    #[must_use]
    pub fn url(&self, config: &Config) -> String {
        let (user, database) = (config.primary().user, config.database());
        let Listening { host, port, .. } = self;
        match host.starts_with('/') {
            true => format!("postgres://{user}@/{database}?host={host}&port={port}"),
            false => format!("postgres://{user}@{host}:{port}/{database}"),
        }
    }
}

/// Takes the address that serves metrics, if there is one.
///
/// # Errors
/// A bad or taken address.
pub fn listen_for_metrics(config: &Config) -> Result<Option<TcpListener>> {
    let Some(address) = config.metrics.address() else { return Ok(None) };
    let address = listen_address(address).map_err(Failure::new)?;
    listen_for(address, "--metrics-listen (off for none)").map(Some)
}

/// Where metrics are served.
#[must_use]
pub fn metrics_url(listener: &TcpListener) -> String {
    format!("http://{}/metrics", reached_at(listener))
}

/// Takes an address that is given by this option.
fn listen_for(address: SocketAddr, option: &str) -> Result<TcpListener> {
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

/// Takes the path of a Unix socket, in place of a manager that is gone.
fn listen_at(path: &Path) -> Result<UnixListener> {
    let failed = |why: String| {
        let path = path.display();
        Failure::new(format!("cannot listen on {path}: {why}, or pass another path with --listen"))
    };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(failed("it is another file; remove it".to_owned()));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(failed("a program listens there; stop it".to_owned()));
        }
        _ => {}
    }
    bind_unix(path, EVERYONE, BACKLOG).map_err(|error| {
        failed(format!("{}; make the directory, or let us write there", plain(&error)))
    })
}

/// Makes a Unix socket, in place of one that may be there. Nobody can connect before it listens, so nobody does before
/// its permissions are what they should be.
///
/// # Errors
/// Those of the operating system.
pub fn bind_unix(path: &Path, mode: u32, backlog: i32) -> std::io::Result<UnixListener> {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.listen(backlog)?;
    Ok(OwnedFd::from(socket).into())
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

/// As URLs have it.
fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(places: &str) -> Result<Listening> {
        Listening::begin(&places.parse().expect("valid"))
    }

    #[test]
    fn a_taken_port_is_refused_in_one_line() {
        let held = begin("127.0.0.1:0").expect("a free port");
        let taken = held.places.to_string();
        let error = begin(&taken).expect_err("taken").to_string();
        assert!(error.contains(&taken) && error.contains("--listen"), "{error}");
    }

    /// A path is taken from a manager that is gone, but from nobody else.
    #[test]
    fn a_taken_path_is_refused_in_one_line() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join(".s.PGSQL.1");
        let places = path.display().to_string();
        let refused = || {
            let error = begin(&places).expect_err("taken").to_string();
            assert!(error.contains(&places) && error.contains("--listen"), "{error}");
            assert!(!error.contains('\n'), "{error}");
            error
        };
        fs::write(&path, "precious").expect("own directory");
        assert!(refused().contains("another file"));
        fs::remove_file(&path).expect("own directory");
        let held = begin(&places).expect("a free path");
        assert!(refused().contains("a program listens there"));
        drop(held);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).expect("a free path")); // as of a manager that was killed
        assert!(path.exists());
        // A child of another test has the socket between its fork and its exec.
        let begun = (0..12_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            begin(&places).ok()
        });
        let held = begun.expect("nobody listens there");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, EVERYONE);
        drop(held);
    }
}
