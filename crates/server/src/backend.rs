//! A pooled connection to a server: its socket, its places in the pool and at the site, and pending cancel
//! requests. The state of its protocol is in its [`Upstream`].

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, ready};

use bytes::{Bytes, BytesMut};
use hihooi_log::BackendRecord;
use hihooi_postgres::connection::{BackendKey, Parts};
use hihooi_postgres::socket::Socket;
use hihooi_session::downstream::Downstream;
use hihooi_session::relaying::{self, Hold, Lent};
use hihooi_session::upstream::Upstream;
use hihooi_wire::backend::Status;
use tokio::time::Instant;

use crate::configuration::Given;
use crate::permits::Permit;
use crate::pool::Pool;
use crate::room::Place;
use crate::socket;
use crate::startup_key::StartupKey;
use hihooi_session::sites::SiteId;

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
    /// The site.
    pub site: SiteId,
    /// What it was opened with.
    pub startup: Rc<StartupKey>,
    /// What it was given in place of the server's own settings.
    pub given: Given,
    /// Who it is at the server.
    pub identity: Rc<Identity>,
    /// The socket.
    pub stream: Socket,
    /// What was said on it; not here while it is lent to a session.
    pub up: Option<Box<Upstream>>,
    /// When it came back to the pool.
    pub idle_since: Instant,
    /// The session that used it last.
    pub last_session: u64,
    /// Cancel requests on their way to it: until they arrived, nobody else may use it.
    pub cancels: Rc<Cell<u32>>,
    /// The place in the pool that it takes while a session uses it.
    pub permit: Option<Permit>,
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
            up: Some(Box::new(Upstream::new(site != SiteId::Primary, record.pid, parts.input))),
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

    /// What was said on it, to be put back in the end.
    ///
    /// # Panics
    /// It is lent already.
    pub fn lend(&mut self) -> Box<Upstream> {
        self.up.take().expect("a connection that nobody else uses")
    }

    /// Asks something of the relay's own while no session uses the connection; the rows of the answer, none if
    /// there was an error.
    ///
    /// # Errors
    /// The server is lost.
    pub async fn ask(&mut self, query: &str) -> io::Result<Vec<Vec<Option<Bytes>>>> {
        let mut up = self.lend();
        up.write_own_query(query);
        let (mut nobody, mut hold, mut input) = (Downstream::default(), Hold::No, BytesMut::new());
        while !up.answers.is_empty() {
            self.write_all(&mut up.output).await?;
            poll_fn(|cx| {
                socket::poll_read(&mut self.stream, cx, |read| match read? {
                    [] => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                    bytes => {
                        input.extend_from_slice(bytes);
                        Ok(())
                    }
                })
            })
            .await?;
            while let (used, Some(_)) =
                relaying::look_at(&input, &mut nobody, &mut up, &mut hold, Lent::default())
                    .map_err(io::Error::other)?
            {
                let _ = input.split_to(used);
            }
        }
        debug_assert_eq!(up.status, Status::Idle);
        let rows = up.answers.take_rows();
        up.answers.take_error();
        self.up = Some(up);
        Ok(rows)
    }

    /// Ends the connection; whether the server has closed it in good order.
    pub async fn end(mut self) -> bool {
        let mut goodbye = BytesMut::new();
        hihooi_wire::frontend::terminate(&mut goodbye);
        if self.write_all(&mut goodbye).await.is_err() {
            return false;
        }
        poll_fn(|cx| {
            loop {
                let read = |read: io::Result<&[u8]>| read.map(<[u8]>::len);
                match ready!(socket::poll_read(&mut self.stream, cx, read)) {
                    Ok(0) => return Poll::Ready(true),
                    Ok(_) => {}
                    Err(_) => return Poll::Ready(false),
                }
            }
        })
        .await
    }

    async fn write_all(&mut self, bytes: &mut BytesMut) -> io::Result<()> {
        poll_fn(|cx| {
            while !bytes.is_empty() {
                ready!(socket::poll_write(&mut self.stream, cx, bytes))?;
            }
            socket::poll_flush(&mut self.stream, cx)
        })
        .await
    }
}
