//! A pooled connection to a server: its socket, its places in the pool and at the site, cancel requests on
//! their way. What was said on it stands in its [`Upstream`].

use std::cell::Cell;
use std::rc::Rc;

use hihooi_log::BackendRecord;
use hihooi_postgres::connection::{BackendKey, Parts};
use hihooi_session::upstream::Upstream;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::configuration::Given;
use crate::pool::Pool;
use crate::room::Place;
use crate::startup_key::StartupKey;
use hihooi_session::route::PRIMARY;

/// The identity of a server's backend, as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Process id and cancel key.
    pub key: BackendKey,
    /// How it stands in the log: process id and start time tell it from any other.
    pub record: BackendRecord,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Backend {
    /// The pool that it belongs to.
    pub pool: Rc<Pool>,
    /// Index of the site: 0 is the primary.
    pub site: usize,
    /// What it was opened with.
    pub startup: Rc<StartupKey>,
    /// What it was given in place of the server's own settings.
    pub given: Given,
    /// Who it is at the server.
    pub identity: Rc<Identity>,
    /// The socket.
    pub stream: TcpStream,
    /// What was said on it.
    pub up: Upstream,
    /// When it came back to the pool.
    pub idle_since: Instant,
    /// The session that used it last.
    pub last_session: u64,
    /// Cancel requests on their way to it: until they arrived, nobody else may use it.
    pub cancels: Rc<Cell<u32>>,
    /// The place in the pool that it takes while a session uses it.
    pub permit: Option<OwnedSemaphorePermit>,
    /// The place at the site that it takes as long as it is there.
    pub place: Option<Place>,
    /// Parameters that the server reported at start-up.
    pub parameters: Vec<(String, String)>,
}

impl Backend {
    /// Takes over an open session.
    #[must_use]
    pub fn new(
        pool: Rc<Pool>,
        startup: Rc<StartupKey>,
        given: Given,
        parts: Parts,
        record: BackendRecord,
        place: Place,
    ) -> Backend {
        let site = pool.site();
        Backend {
            site,
            up: Upstream::new(site != PRIMARY, record.pid, parts.input),
            pool,
            startup,
            given,
            identity: Rc::new(Identity { key: parts.key, record }),
            stream: parts.stream,
            idle_since: Instant::now(),
            last_session: 0,
            cancels: Rc::default(),
            permit: None,
            place: Some(place),
            parameters: parts.parameters,
        }
    }
}
