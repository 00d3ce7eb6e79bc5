//! Where a client comes from, as the rules of `pg_hba.conf` ask: its address, the name of its host, or the system user
//! at the other end of a Unix socket.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use dns_lookup::{LookupErrorKind, getnameinfo, lookup_host};
use hihooi_auth::hba::Network;
use nix::ifaddrs::getifaddrs;
use nix::libc::NI_NAMEREQD;
use nix::sys::socket::SockaddrStorage;
use nix::unistd::{Uid, User};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tracing::{debug, warn};

/// Where a client comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the network.
    Address(SocketAddr),
    /// From a Unix socket.
    Local,
}

impl Origin {
    /// Its address, if it has one.
    #[must_use]
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Origin::Address(address) => Some(address.ip()),
            Origin::Local => None,
        }
    }
}

/// In PostgreSQL's words.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Address(address) => address.fmt(f),
            Origin::Local => f.write_str("[local]"),
        }
    }
}

/// The system user that has the other end of a Unix socket.
///
/// # Errors
/// Why it isn't known.
pub async fn system_user(stream: &UnixStream) -> Result<String, String> {
    let peer = stream.peer_cred().map_err(|error| error.to_string())?;
    let uid = Uid::from_raw(peer.uid());
    // It may ask a directory service.
    let found = spawn_blocking(move || User::from_uid(uid)).await;
    match found.map_err(|error| error.to_string())? {
        Ok(Some(user)) => Ok(user.name),
        Ok(None) => Err(format!("there is no system user {uid}")),
        Err(error) => Err(format!("system user {uid}: {error}")),
    }
}

/// The name of the host that has an address: the one to which it leads, if that leads back to it. The place is taken
/// until the name server has answered, also if nobody waits for it any more.
pub async fn host_name(address: IpAddr, place: OwnedSemaphorePermit) -> Option<String> {
    let found = spawn_blocking(move || {
        let found = look_up(address);
        drop(place);
        found
    });
    match found.await.ok()? {
        Ok(name) => name,
        Err(why) => {
            debug!(%address, ?why, "its host's name is not known");
            None
        }
    }
}

fn look_up(address: IpAddr) -> Result<Option<String>, LookupErrorKind> {
    let address = address.to_canonical();
    let (name, _) = getnameinfo(&SocketAddr::new(address, 0), NI_NAMEREQD).map_err(|e| e.kind())?;
    let leads_back = lookup_host(&name).map_err(|_| LookupErrorKind::NoName)?;
    let leads_back = leads_back.into_iter().any(|found| found.to_canonical() == address);
    Ok(leads_back.then_some(name))
}

/// The addresses of this host, with the networks in which they are.
#[must_use]
pub fn own_networks() -> Vec<Network> {
    let interfaces = match getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            warn!(%error, "this host's own addresses are not known: samehost and samenet match nobody");
            return Vec::new();
        }
    };
    let networks = interfaces.filter_map(|found| {
        let address = ip(&found.address?)?;
        let none: IpAddr = match address {
            IpAddr::V4(_) => [0; 4].into(),
            IpAddr::V6(_) => [0; 16].into(),
        };
        let mask = found.netmask.as_ref().and_then(ip).unwrap_or(none);
        Some(Network { address, mask })
    });
    networks.collect()
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_our_own_networks() {
        let networks = own_networks();
        let ours: IpAddr = [127, 0, 0, 1].into();
        let other: IpAddr = [127, 3, 2, 1].into();
        assert!(networks.iter().any(|network| network.address == ours), "{networks:?}");
        assert!(networks.iter().any(|network| network.contains(other)), "{networks:?}");
    }

    #[tokio::test]
    async fn who_has_the_other_end_is_known() {
        let (one, _other) = UnixStream::pair().expect("sockets");
        let own = User::from_uid(Uid::effective()).expect("users").expect("we are one");
        assert_eq!(system_user(&one).await, Ok(own.name));
    }
}
