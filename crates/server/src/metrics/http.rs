//! `/metrics`, `/livez` and `/readyz` over HTTP/1.1, on a thread of its own. Nobody is asked for a password: what is
//! told has no secrets in it.
//!
//! A connection is for one request and has a limited time; so have its headers, and their length. When too many
//! connections are open, the oldest is closed for a new one, so that idle connections keep no health check away.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, oneshot};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::seen::{Asks, Seen};
use super::text::{self, Format};

/// Connections at a time; for another the oldest is closed (I8).
const CONNECTIONS_MAX: usize = 32;
/// How long a connection lives at most.
const CONNECTION_S_MAX: u64 = 10;
/// How long a request's headers may take to come.
const HEADERS_S_MAX: u64 = 5;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// Bytes that are held of a request: its headers have no more.
const REQUEST_LEN_MAX: usize = 16 << 10;
/// The relay's thread has so long to tell how it is.
const ANSWER_S_MAX: u64 = 2;
/// What was seen so recently is told again, so that many requests are few questions to the relay's thread.
const SEEN_AGAIN: Duration = Duration::from_millis(100);
/// After a failure to accept (no file descriptors left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves metrics and health checks as long as the relay's thread runs. To be run on a
/// [`tokio::runtime::LocalRuntime`].
///
/// # Errors
/// The listening socket can't be used.
pub async fn serve(listener: std::net::TcpListener, asks: Asks) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let watched = Rc::new(Watched { asks, seen: Mutex::default() });
    let mut open = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = watched.asks.0.closed() => return Ok(()),
        };
        match accepted {
            Ok((stream, _)) => {
                make_room(&mut open);
                open.push_back(spawn_local(connection(watched.clone(), stream)));
            }
            Err(error) => {
                warn!(%error, "can't accept a connection for metrics");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Forgets connections that have ended, and closes the oldest if there are still too many.
fn make_room(open: &mut VecDeque<JoinHandle<()>>) {
    open.retain(|connection| !connection.is_finished());
    if open.len() >= CONNECTIONS_MAX
        && let Some(oldest) = open.pop_front()
    {
        oldest.abort();
    }
}

async fn connection(watched: Rc<Watched>, stream: TcpStream) {
    let respond = service_fn(|request| respond(watched.clone(), request));
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(HEADERS_S_MAX))
        .max_headers(HEADERS_MAX)
        .max_buf_size(REQUEST_LEN_MAX)
        .serve_connection(TokioIo::new(stream), respond);
    match timeout(Duration::from_secs(CONNECTION_S_MAX), served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection for metrics ended"),
        Err(_) => debug!("a connection for metrics took too long"),
    }
}

async fn respond(
    watched: Rc<Watched>,
    request: Request<Incoming>,
) -> Result<Response<String>, Infallible> {
    let tells = match request.uri().path() {
        "/metrics" => metrics,
        "/livez" => livez,
        "/readyz" => readyz,
        _ => return Ok(line(StatusCode::NOT_FOUND, "not found: /metrics, /livez and /readyz are")),
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = line(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    Ok(match watched.look().await {
        Some(seen) => tells(&seen, &request),
        None => line(StatusCode::SERVICE_UNAVAILABLE, "the relay does not answer"),
    })
}

fn metrics(seen: &Arc<Seen>, request: &Request<Incoming>) -> Response<String> {
    let accepted = request.headers().get_all(ACCEPT).iter();
    let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
    let format = Format::wanted(&accepted.join(","));
    let mut response = Response::new(text::write(seen, format));
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// The relay's thread has answered: it lives, whatever the servers do.
fn livez(_: &Arc<Seen>, _: &Request<Incoming>) -> Response<String> {
    line(StatusCode::OK, "ok")
}

fn readyz(seen: &Arc<Seen>, _: &Request<Incoming>) -> Response<String> {
    match seen.not_ready {
        None => line(StatusCode::OK, "ok"),
        Some(why) => line(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// A line that nobody keeps.
fn line(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(format!("{text}\n"));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The relay's thread, as requests see it.
struct Watched {
    asks: Asks,
    /// What it told last, and when. Who holds the lock asks for all who wait for it.
    seen: Mutex<Option<(Instant, Arc<Seen>)>>,
}

impl Watched {
    /// How the relay is; `None` if it does not answer.
    async fn look(&self) -> Option<Arc<Seen>> {
        let asked = timeout(Duration::from_secs(ANSWER_S_MAX), self.ask()).await;
        asked.ok().flatten()
    }

    async fn ask(&self) -> Option<Arc<Seen>> {
        let mut last = self.seen.lock().await;
        if let Some((at, seen)) = &*last
            && at.elapsed() < SEEN_AGAIN
        {
            return Some(seen.clone());
        }
        let (reply, answer) = oneshot::channel();
        self.asks.0.send(reply).await.ok()?;
        let seen = Arc::new(answer.await.ok()?);
        *last = Some((Instant::now(), seen.clone()));
        Some(seen)
    }
}
