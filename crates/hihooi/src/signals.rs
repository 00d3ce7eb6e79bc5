//! Signals: those that ask the process to stop, and SIGHUP.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use tokio::sync::Notify;

use crate::failure::{Failure, Result};
use crate::logging;

/// Whoever waits for a request to stop: Ctrl-C or `kill`. SIGQUIT counts as two requests, of which the second
/// asks to stop at once, as it does in PostgreSQL. SIGHUP has the configuration read again, and the log file opened
/// anew, for those who moved it away; a closed terminal sends it too, and ends nothing.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    on_hangup: Signal,
    /// Told when SIGHUP has come.
    pub hangup: Arc<Notify>,
    /// SIGQUIT has come, of which only half was told.
    is_immediate: bool,
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
            quit: on(SignalKind::quit())?,
            on_hangup: on(SignalKind::hangup())?,
            hangup: Arc::new(Notify::new()),
            is_immediate: false,
        })
    }

    /// Waits for the next request to stop.
    pub async fn next(&mut self) {
        if std::mem::take(&mut self.is_immediate) {
            return;
        }
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
                _ = self.quit.recv() => {
                    self.is_immediate = true;
                    return;
                }
                _ = self.on_hangup.recv() => {
                    logging::open_log_anew();
                    self.hangup.notify_one();
                }
            }
        }
    }
}
