//! The key `listen`: where clients connect.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use hihooi_postgres::connection::Address;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{BadConfig, DEFAULT_LISTEN, host_of, listen_address};

/// What the name of a PostgreSQL server's Unix socket begins with; the port follows.
const SOCKET_PREFIX: &str = ".s.PGSQL.";

/// Where clients connect, as it is written: addresses `host:port`, and paths of Unix sockets or of directories for them;
/// at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen(Vec<String>);

/// One of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A TCP socket.
    Tcp(SocketAddr),
    /// A Unix socket, by its directory and the port of which clients make its name.
    Unix(Address),
}

impl Default for Listen {
    fn default() -> Listen {
        Listen(vec![DEFAULT_LISTEN.to_owned()])
    }
}

impl Listen {
    fn of(places: Vec<String>) -> Result<Listen, BadConfig> {
        let listen = Listen(places);
        if listen.0.is_empty() {
            return Err(BadConfig::new(format!(
                "listen needs at least one address, such as {DEFAULT_LISTEN}"
            )));
        }
        Ok(listen)
    }

    /// The places, in their order. A directory's socket has the port of the first address, or of the default one.
    ///
    /// # Errors
    /// One line that says what is wrong with one of them.
    pub fn places(&self) -> Result<Vec<Place>, BadConfig> {
        let mut places = Vec::new();
        let port = self.port()?;
        for text in &self.0 {
            places.push(match text.starts_with('/') {
                true => unix(Path::new(text), port)?,
                false => Place::Tcp(listen_address(text).map_err(BadConfig::new)?),
            });
        }
        Ok(places)
    }

    fn port(&self) -> Result<u16, BadConfig> {
        let first = self.0.iter().find(|text| !text.starts_with('/'));
        let first = first.map_or(DEFAULT_LISTEN, String::as_str);
        Ok(listen_address(first).map_err(BadConfig::new)?.port())
    }

    /// The same, with another first address: the port 0 stands for any that is free.
    #[must_use]
    pub fn at(mut self, address: SocketAddr) -> Listen {
        if let Some(first) = self.0.iter_mut().find(|text| !text.starts_with('/')) {
            *first = address.to_string();
        }
        self
    }

    /// Where a client connects that takes the first: host, or the directory of a Unix socket, and port.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn host_and_port(&self) -> Result<(String, u16), BadConfig> {
        let places = self.places()?;
        Ok(match &places[0] {
            // By its name, which a certificate may be for.
            Place::Tcp(address) => (host_of(&self.0[0]), address.port()),
            Place::Unix(address) => (address.host.clone(), address.port),
        })
    }
}

/// A directory, or a socket in one.
fn unix(path: &Path, port: u16) -> Result<Place, BadConfig> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(number) = name.strip_prefix(SOCKET_PREFIX) else {
        return Ok(Place::Unix(Address::plain(path.display().to_string(), port)));
    };
    match (number.parse(), path.parent()) {
        (Ok(port), Some(directory)) => {
            Ok(Place::Unix(Address::plain(directory.display().to_string(), port)))
        }
        _ => Err(BadConfig::new(format!(
            "{} is not a valid listen address: a socket's name ends in a port, as {SOCKET_PREFIX}6432 does",
            path.display()
        ))),
    }
}

/// As an option or variable has it: with commas.
impl FromStr for Listen {
    type Err = BadConfig;

    fn from_str(text: &str) -> Result<Listen, BadConfig> {
        Listen::of(text.split(',').map(|one| one.trim().to_owned()).collect())
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "listen is an address, or a list of addresses")]
        enum Written {
            One(String),
            Several(Vec<String>),
        }
        let places = match Written::deserialize(deserializer)? {
            Written::One(place) => vec![place],
            Written::Several(places) => places,
        };
        Listen::of(places).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn places(text: &str) -> Vec<Place> {
        text.parse::<Listen>().and_then(|listen| listen.places()).expect("valid")
    }

    fn tcp(port: u16) -> Place {
        Place::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn unix(directory: &str, port: u16) -> Place {
        Place::Unix(Address::plain(directory, port))
    }

    /// A directory's socket gets the port by which clients find it there.
    #[test]
    fn several_places_to_listen_at() {
        assert_eq!(places(":7000"), [tcp(7000)]);
        assert_eq!(places("127.0.0.1:7000, :7001"), [tcp(7000), tcp(7001)]);
        assert_eq!(
            places("/run/hihooi,:7000,:7001"),
            [unix("/run/hihooi", 7000), tcp(7000), tcp(7001)]
        );
        assert_eq!(places("/run/hihooi"), [unix("/run/hihooi", 6432)]);
        assert_eq!(places(":7000,/run/x/.s.PGSQL.5432"), [tcp(7000), unix("/run/x", 5432)]);
    }

    #[test]
    fn bad_places_are_refused_in_one_line() {
        for (text, words) in [
            ("", "not a valid listen address"),
            (":7000,,", "not a valid listen address"),
            ("run/hihooi", "not a valid listen address"),
            ("/run/.s.PGSQL.x", "ends in a port"),
        ] {
            let places = text.parse::<Listen>().and_then(|listen| listen.places());
            let error = places.expect_err(text).to_string();
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
        for text in ["listen = []", "listen = 6432"] {
            let error = Config::parse(text).expect_err(text).to_string();
            assert!(error.contains("line 1") && !error.contains('\n'), "{error}");
            assert!(error.contains("address"), "{error}");
        }
    }

    #[test]
    fn a_file_has_one_place_or_a_list() {
        for text in ["listen = \"127.0.0.1:1\"", "listen = [\"127.0.0.1:1\", \"/run/hihooi\"]"] {
            let config = Config::parse(text).expect("valid");
            assert!(config.to_text().contains(text), "{}", config.to_text());
            assert_eq!(Config::parse(&config.to_text()), Ok(config));
        }
    }

    #[test]
    fn the_first_is_where_commands_connect() {
        let first = |text: &str| {
            text.parse::<Listen>().and_then(|listen| listen.host_and_port()).expect("valid")
        };
        assert_eq!(first("localhost:7000,/x"), ("localhost".to_owned(), 7000));
        assert_eq!(first("/x,:7000"), ("/x".to_owned(), 7000));
    }

    #[test]
    fn any_free_port_is_replaced_by_the_one_that_was_found() {
        let listen: Listen = "/run/x,:0,:1".parse().expect("valid");
        let found = listen.at(SocketAddr::from(([127, 0, 0, 1], 9)));
        assert_eq!(found.to_string(), "/run/x,127.0.0.1:9,:1");
    }
}
