//! Tells systemd how the service is (sd_notify): that it is ready, what it is doing, that it stops, and that it
//! isn't stuck. Only if systemd, or whoever else started us, asks for it by `NOTIFY_SOCKET`.
//!
//! A message is one datagram, and std's sockets can send it, also to abstract addresses: that is less than a crate
//! would be.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Who is told.
#[derive(Clone, Debug, Default)]
pub struct Notify(Option<Arc<Listener>>);

#[derive(Debug)]
struct Listener {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How often a service that isn't stuck says so.
    alive_every: Option<Duration>,
}

impl Notify {
    /// Whoever the environment names.
    #[must_use]
    pub fn from_environment() -> Notify {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Notify::default() };
        match Listener::new(&name) {
            Ok(listener) => Notify(Some(Arc::new(listener))),
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET can't be used: {}", name.display());
                Notify::default()
            }
        }
    }

    /// Whether there is somebody.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Clients are served.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// The configuration is read again, until what this returns is dropped.
    #[must_use]
    pub fn reloading(&self) -> Reloading<'_> {
        // Which of several reloads it is (sd_notify).
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
        Reloading(self)
    }

    /// What it is doing, in one line.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    /// It stops.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Tells again and again that the event loop on which this runs isn't stuck, if that is asked for.
    pub async fn keep_alive(self) {
        let Some(every) = self.0.as_ref().and_then(|listener| listener.alive_every) else { return };
        loop {
            self.tell("WATCHDOG=1");
            tokio::time::sleep(every).await;
        }
    }

    fn tell(&self, text: &str) {
        let Some(listener) = &self.0 else { return };
        let sent = listener.socket.send_to_addr(text.as_bytes(), &listener.address);
        if let Err(error) = sent {
            tracing::warn!(%error, "can't notify the service manager");
        }
    }
}

/// While the configuration is read again.
#[derive(Debug)]
pub struct Reloading<'a>(&'a Notify);

impl Drop for Reloading<'_> {
    fn drop(&mut self) {
        self.0.ready();
    }
}

impl Listener {
    fn new(name: &OsStr) -> io::Result<Listener> {
        let socket = UnixDatagram::unbound()?;
        // Nobody waits for a service manager that doesn't read.
        socket.set_nonblocking(true)?;
        let variable = |name| env::var(name).ok();
        let alive_every =
            alive_every(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id());
        Ok(Listener { socket, address: address(name)?, alive_every })
    }
}

/// An `@` stands for the zero byte of an abstract address.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// Half the time after which a service counts as stuck (sd_watchdog_enabled), if its process is meant.
fn alive_every(usec: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid != own.to_string()) {
        return None;
    }
    let usec = usec?.parse::<u64>().ok().filter(|usec| *usec > 0)?;
    Some(Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abstract_addresses_begin_with_an_at_sign() {
        let found = address(OsStr::new("@a/b")).expect("an address");
        assert_eq!(found.as_abstract_name(), Some(&b"a/b"[..]));
        let found = address(OsStr::new("/run/notify")).expect("an address");
        assert_eq!(found.as_pathname(), Some(std::path::Path::new("/run/notify")));
    }

    #[test]
    fn the_watchdog_is_another_processs_or_ours() {
        let every = |usec: &str, pid: Option<&str>| {
            alive_every(Some(usec.to_owned()), pid.map(str::to_owned), 7)
        };
        assert_eq!(every("30000000", Some("7")), Some(Duration::from_secs(15)));
        assert_eq!(every("30000000", None), Some(Duration::from_secs(15)));
        assert_eq!(every("30000000", Some("8")), None);
        assert_eq!(every("0", None), None);
        assert_eq!(alive_every(None, None, 7), None);
    }
}
