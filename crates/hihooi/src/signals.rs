//! Signals that ask the process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Result};

/// Whoever waits for a request to stop: Ctrl-C, `kill`, or a closed terminal.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// From now on these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new() -> Result<Signals> {
        let on = |kind| signal(kind).map_err(|e| Failure::new(format!("cannot get signals: {e}")));
        Ok(Signals {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Waits for the next request to stop.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
