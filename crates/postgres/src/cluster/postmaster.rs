//! A running server: a child process, or a server that was started by an `up` that was killed.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::pidfile;

/// How often an adopted server, which is not our child, is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long processes may take to end at once before they are killed.
const HALT_LIMIT: Duration = Duration::from_secs(10);

/// How to stop a server (manual, "Shutting Down the Server").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stop {
    /// It shall run.
    #[default]
    No,
    /// Roll back what is open, write a checkpoint, end.
    Fast,
    /// End at once; the next start recovers from the WAL.
    Immediate,
}

/// Ends all server processes that work in `data` at once, and waits until they are gone: for a
/// server whose start was given up, and which may not have written its `postmaster.pid` yet.
pub async fn halt(data: &Path) {
    let deadline = Instant::now() + HALT_LIMIT;
    loop {
        let left = pidfile::processes(data);
        if left.is_empty() {
            return;
        }
        let how = if Instant::now() < deadline { Signal::SIGQUIT } else { Signal::SIGKILL };
        left.into_iter().for_each(|pid| pidfile::signal(pid, how));
        sleep(LOOK_EVERY).await;
    }
}

/// The first process of a running server.
#[derive(Debug)]
pub struct Postmaster {
    pid: i32,
    child: Option<Child>,
}

impl Postmaster {
    /// One that we started.
    #[must_use]
    pub fn child(child: Child) -> Postmaster {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
        Postmaster { pid, child: Some(child) }
    }

    /// One that somebody else started.
    #[must_use]
    pub fn adopted(pid: i32) -> Postmaster {
        Postmaster { pid, child: None }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it was started by somebody else.
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.child.is_none()
    }

    /// Waits until it ends; tells how. Cancel-safe.
    pub async fn ended(&mut self) -> String {
        match &mut self.child {
            Some(child) => match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => format!("unknown how: {error}"),
            },
            None => {
                while pidfile::lives(self.pid) {
                    sleep(LOOK_EVERY).await;
                }
                "not our child: exit status unknown".to_owned()
            }
        }
    }

    /// Whether it ended already.
    pub fn has_ended(&mut self) -> bool {
        match &mut self.child {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => !pidfile::lives(self.pid),
        }
    }

    /// Asks it to stop.
    pub fn signal(&self, how: Stop) {
        match how {
            Stop::No => {}
            Stop::Fast => pidfile::signal(self.pid, Signal::SIGINT),
            Stop::Immediate => pidfile::signal(self.pid, Signal::SIGQUIT),
        }
    }

    /// Asks it to stop and waits; after `limit` it is stopped immediately, and at last killed.
    pub async fn stop(&mut self, how: Stop, limit: Duration) {
        self.signal(how);
        let deadline = Instant::now() + limit;
        if tokio::time::timeout_at(deadline, self.ended()).await.is_err() {
            tracing::warn!(pid = self.pid, "the server does not stop: stopping it immediately");
            self.signal(Stop::Immediate);
            if tokio::time::timeout(HALT_LIMIT, self.ended()).await.is_err() {
                // It is frozen.
                pidfile::signal(self.pid, Signal::SIGKILL);
                self.ended().await;
            }
        }
    }
}
