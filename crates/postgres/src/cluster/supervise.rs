//! Keeps a server running: restarts it whenever it ends, until the cluster is stopped. On request, a replica is
//! replaced by a copy of the primary.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use hihooi_replication::ids::{Lsn, Tsid};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::backup::{self, Tell};
use super::postmaster::{Postmaster, Stop};
use super::server::{STOP_LIMIT, Server};
use super::{Error, Result, file_error};
use crate::site::Trouble;

/// Pause after a first failure to start.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// Longest pause between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A server that ran this long is taken as healthy: the next pause is short again.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// Finds the entry of the log up to which a copy contains everything that was committed before a position of the
/// primary's WAL; an error is a sentence for the operator.
pub type FindTsid = Box<dyn FnOnce(Lsn) -> TsidFound + Send>;
/// The answer.
pub type TsidFound = Pin<Box<dyn Future<Output = std::result::Result<Tsid, String>> + Send>>;

/// What is to be done when a copy has begun; an error is a sentence for the operator.
pub type Begun = Pin<Box<dyn Future<Output = std::result::Result<(), String>> + Send>>;

/// Asks for a replica to be replaced by a copy of the primary.
pub struct CopyRequest {
    /// Gets how far the copy is.
    pub tell: Tell,
    /// Awaited when the replica's data are about to be removed.
    pub begun: Begun,
    /// Says where the copy stands.
    pub find_tsid: FindTsid,
    /// Prefix of the replication origins that hold the applied position.
    pub origin: String,
    /// Gets the answer when the replica can be started, or why it couldn't be copied.
    pub reply: oneshot::Sender<Result<()>>,
}

/// What it takes to replace a replica by a copy of the primary.
pub struct Replaceable {
    /// The primary.
    pub primary: Server,
    /// The replicated database.
    pub database: String,
    /// Exists from before the replica's data are removed until they are complete again. Meanwhile nothing is started
    /// from them.
    pub mark: PathBuf,
    /// The requests.
    pub requests: mpsc::Receiver<CopyRequest>,
}

impl Replaceable {
    async fn replace(&self, server: &Server, request: CopyRequest) {
        let CopyRequest { tell, begun, find_tsid, origin, reply } = request;
        let replaced = async {
            let sites = (&self.primary, server);
            let begin = async {
                self.begin()?;
                begun.await.map_err(Error::Retry)
            };
            let database = &self.database;
            let (copy, lsn) = backup::copy_running(sites, database, begin, tell.clone()).await?;
            tell("the log is read up to its position".to_owned());
            let applied = find_tsid(lsn).await.map_err(Error::Retry)?;
            backup::sign(&copy, database, &origin, applied).await?;
            backup::finish(&copy).await?;
            self.end()
        };
        // Nobody may wait for it any more.
        let _ = reply.send(replaced.await);
    }

    fn begin(&self) -> Result<()> {
        let marked = File::create(&self.mark).and_then(|file| file.sync_all());
        marked
            .and_then(|()| sync_directory_of(&self.mark))
            .map_err(|error| file_error("write", &self.mark, &error))
    }

    fn end(&self) -> Result<()> {
        fs::remove_file(&self.mark)
            .and_then(|()| sync_directory_of(&self.mark))
            .map_err(|error| file_error("remove", &self.mark, &error))
    }

    fn is_incomplete(&self) -> bool {
        self.mark.exists()
    }
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Keeps `server` running until `stop` says how to stop it; returns when it has ended.
/// `running` is its process if it was started already, `replaceable` is that of a replica.
pub async fn supervise(
    server: Server,
    mut running: Option<Postmaster>,
    mut replaceable: Option<Replaceable>,
    stop: watch::Receiver<Stop>,
    trouble: Trouble,
) {
    loop {
        let is_incomplete = replaceable.as_ref().is_some_and(Replaceable::is_incomplete);
        let running = running.take();
        let request = tokio::select! {
            biased;
            () = keep(&server, running, is_incomplete, stop.clone(), &trouble) => return,
            request = next_request(&mut replaceable, &stop) => request,
        };
        let Some(replaceable) = &replaceable else { return };
        let mut stopped = stop.clone();
        tokio::select! {
            () = replaceable.replace(&server, request) => {}
            how = stopping(&mut stopped) => {
                server.give_up(how).await;
                return;
            }
        }
    }
}

/// Waits for a request to replace the server, unless all is to stop.
async fn next_request(
    replaceable: &mut Option<Replaceable>,
    stop: &watch::Receiver<Stop>,
) -> CopyRequest {
    let request = match replaceable {
        Some(replaceable) => replaceable.requests.recv().await,
        None => None,
    };
    match request {
        Some(request) if *stop.borrow() == Stop::No => request,
        _ => std::future::pending().await,
    }
}

/// Keeps the server running until `stop` says how to stop it; returns when it has ended. One whose data are incomplete
/// is not started. If this is dropped, the server may go on.
async fn keep(
    server: &Server,
    mut running: Option<Postmaster>,
    is_incomplete: bool,
    mut stop: watch::Receiver<Stop>,
    trouble: &Trouble,
) {
    if is_incomplete {
        trouble.set(format!("{} is not completely copied from the primary", server.name));
        let how = stopping(&mut stop).await;
        return server.give_up(how).await;
    }
    let mut backoff = BACKOFF_MIN;
    loop {
        let postmaster = match running.take() {
            Some(postmaster) => postmaster,
            None => {
                let Some(postmaster) = start(server, &mut stop, trouble, &mut backoff).await else {
                    return;
                };
                postmaster
            }
        };
        let since = Instant::now();
        if watch_over(server, postmaster, &mut stop, trouble).await {
            return;
        }
        if since.elapsed() > HEALTHY_AFTER {
            backoff = BACKOFF_MIN;
        }
    }
}

/// Starts the server, with retries; `None` when the cluster is to stop.
async fn start(
    server: &Server,
    stop: &mut watch::Receiver<Stop>,
    trouble: &Trouble,
    backoff: &mut Duration,
) -> Option<Postmaster> {
    loop {
        let failed = tokio::select! {
            started = server.start() => match started {
                Ok(postmaster) => {
                    trouble.set(String::new());
                    return Some(postmaster);
                }
                Err(error) => error.to_string(),
            },
            how = stopping(stop) => {
                server.give_up(how).await;
                return None;
            }
        };
        if trouble.reason() != failed {
            tracing::warn!(site = server.name, "{failed}");
        }
        trouble.set(failed);
        tokio::select! {
            () = sleep(*backoff) => {}
            _ = stopping(stop) => return None,
        }
        *backoff = (*backoff * 2).min(BACKOFF_MAX);
    }
}

/// Waits for the server's end. Returns whether that was the end which `stop` asked for.
async fn watch_over(
    server: &Server,
    mut postmaster: Postmaster,
    stop: &mut watch::Receiver<Stop>,
    trouble: &Trouble,
) -> bool {
    tokio::select! {
        status = postmaster.ended() => {
            tracing::warn!(site = server.name, status, "the server ended: starting it again");
            trouble.set(format!("{} ended ({status})", server.name));
            return false;
        }
        how = stopping(stop) => postmaster.signal(how),
    }
    let limit = sleep(STOP_LIMIT);
    tokio::pin!(limit);
    loop {
        tokio::select! {
            _ = postmaster.ended() => return true,
            () = immediately(stop) => postmaster.signal(Stop::Immediate),
            () = &mut limit => {
                tracing::warn!(site = server.name, "does not stop: stopping it immediately");
                postmaster.signal(Stop::Immediate);
                postmaster.ended().await;
                return true;
            }
        }
    }
}

/// Waits until all is to stop; how. A supervisor whose owner is gone stops as well.
async fn stopping(stop: &mut watch::Receiver<Stop>) -> Stop {
    stop.wait_for(|how| *how != Stop::No).await.map_or(Stop::Fast, |how| *how)
}

/// Waits until a stop is to be immediate, once; never returns after that.
async fn immediately(stop: &mut watch::Receiver<Stop>) {
    loop {
        if stop.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if *stop.borrow_and_update() == Stop::Immediate {
            return;
        }
    }
}
