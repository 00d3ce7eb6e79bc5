//! `hihooi serve`: the manager alone, for servers that are already running.

use crate::cli::ServeArgs;
use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::listening::{Listening, listen_for_metrics};
use crate::manager::Manager;
use crate::process::{self, allow_files};
use crate::rebuilding::Copier;
use crate::settings::{self, Reload};
use crate::signals::Signals;

/// Runs the command.
#[must_use]
pub fn run(args: &ServeArgs) -> Exit {
    process::run(serve(args))
}

async fn serve(args: &ServeArgs) -> Result<()> {
    let mut signals = Signals::new()?;
    let config = args.config()?;
    settings::doors(&config)?;
    config.logging.begin(None)?;
    allow_files(&config);
    let data = DataDir::new(&config.data)?;
    data.make(false)?;
    let _lock = data.lock("serve")?;
    data.check_whole()?;
    let listening = Listening::begin(&config.listen)?;
    let metrics = listen_for_metrics(&config)?;
    let url = listening.url(&config);
    let args = args.clone();
    let reread = Box::new(move || Ok(args.config()?));
    let reload = Reload { reread, hangup: signals.hangup.clone() };
    let mut manager = tokio::select! {
        started = Manager::start(&config, &data, listening, metrics, reload, Copier::default()) => started?,
        () = signals.next() => return Err(Failure::new("stopped while the manager started")),
    };
    let outcome = manager.run(&url, &mut signals).await;
    tokio::select! {
        // It begins to stop, also if that is asked for twice at once.
        biased;
        () = manager.stop() => {}
        () = signals.next() => {}
    }
    outcome
}
