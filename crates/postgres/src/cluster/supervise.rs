//! Keeps a server running: restarts it whenever it ends, until the cluster is stopped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::postmaster::{Postmaster, Stop};
use super::server::{STOP_LIMIT, Server};

/// Pause after a first failure to start.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// Longest pause between two tries.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A server that ran this long is taken as healthy: the next pause is short again.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// Why the server doesn't run, as supervision reports it; empty while it does.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<String>>);

impl Trouble {
    /// Why the server doesn't run at the moment; empty if it does.
    #[must_use]
    pub fn reason(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

/// Keeps `server` running until `stop` says how to stop it; returns when it has ended.
/// `running` is its process if it was started already.
pub async fn supervise(
    server: Server,
    running: Option<Postmaster>,
    mut stop: watch::Receiver<Stop>,
    trouble: Trouble,
) {
    let mut running = running;
    let mut backoff = BACKOFF_MIN;
    loop {
        let postmaster = match running.take() {
            Some(postmaster) => postmaster,
            None => {
                let Some(postmaster) = start(&server, &mut stop, &trouble, &mut backoff).await
                else {
                    return;
                };
                postmaster
            }
        };
        let since = Instant::now();
        if watch_over(&server, postmaster, &mut stop, &trouble).await {
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
