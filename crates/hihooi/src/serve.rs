//! `hihooi serve`: the manager for servers that somebody else runs.

use std::process::ExitCode;
use std::time::Duration;

use crate::cli::ServeArgs;
use crate::data_dir::DataDir;
use crate::failure::{Failure, Result};
use crate::manager::Manager;
use crate::process::{self, listen, log_to, ready_url, tell};
use crate::signals::Signals;

/// How long replicas may take before they are named and left to catch up.
const REPLICAS_LIMIT: Duration = Duration::from_secs(60);

/// Runs the command.
#[must_use]
pub fn run(args: &ServeArgs) -> ExitCode {
    process::run(serve(args))
}

async fn serve(args: &ServeArgs) -> Result<()> {
    let mut signals = Signals::new()?;
    let config = args.config()?;
    log_to(None, args.settings.log.as_deref())?;
    let data = DataDir::new(&config.data)?;
    data.make(false)?;
    let _lock = data.lock()?;
    let listener = listen(&config.listen)?;
    let url = ready_url(&listener, &config);
    let mut manager = tokio::select! {
        started = Manager::start(&config, &data, listener) => started?,
        () = signals.next() => return Err(Failure::new("stopped while the manager started")),
    };
    let outcome = tokio::select! {
        late = manager.wait_for_replicas(REPLICAS_LIMIT) => {
            for (replica, reason) in late {
                tell(format!("{replica} does not serve yet: {reason}; it is left to catch up"));
            }
            tell(format!("ready at {url}"));
            tokio::select! {
                () = signals.next() => Ok(()),
                failure = manager.failed() => Err(failure),
            }
        }
        () = signals.next() => Ok(()),
    };
    tokio::select! {
        () = manager.stop() => {}
        () = signals.next() => {}
    }
    outcome
}
