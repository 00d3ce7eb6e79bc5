//! Starts the relay, which serves the clients.

use std::cell::RefCell;
use std::sync::Arc;

use hihooi_server::metrics::Asked;
use hihooi_server::operator::Operator;
use hihooi_server::{Listeners, Replication};
use tokio::sync::{self, watch};

use crate::config::Config;
use crate::failure::{Failure, Result};
use crate::notify::Notify;
use crate::replication::Parts;
use crate::settings::{self, Reload};

/// Serves clients until `shutdown` turns true. Tells `stop` when an operator asks for the end. `notify` is told
/// by this event loop that it isn't stuck.
///
/// # Errors
/// One line when the listening socket fails.
pub async fn run(
    listeners: Listeners,
    config: Config,
    parts: Parts,
    (reload, stop): (Reload, Arc<sync::Notify>),
    asked: Asked,
    shutdown: watch::Receiver<bool>,
    notify: Notify,
) -> Result<()> {
    tokio::task::spawn_local(notify.clone().keep_alive());
    let settings = settings::settings(&config, &config)?;
    let appliers = parts.appliers;
    let replication = Replication {
        database: config.database().to_owned(),
        site_timeout_ms: config.all_sites.timeout_ms,
        primary: parts.primary,
        replicas: parts.replicas,
        log: parts.log,
        fence: parts.fence,
        events: parts.events,
        poke: parts.poke,
        acknowledged: parts.acknowledged,
        collector: parts.collector,
        control: parts.control,
        apply_stats: std::sync::Arc::new(move |replica| Some(appliers.get(replica)?.stats())),
    };
    let operator = operator(config, reload, stop, notify);
    hihooi_server::run(listeners, settings, operator, replication, asked, shutdown)
        .await
        .map_err(|error| Failure::new(format!("can't serve clients: {error}")))
}

/// `config` is in force at first.
fn operator(config: Config, reload: Reload, stop: Arc<sync::Notify>, notify: Notify) -> Operator {
    let (in_force, reread) = (RefCell::new(config), reload.reread);
    let reread = move || {
        let read = || {
            let wanted = reread()?;
            let now = in_force.borrow().reloaded(&wanted)?;
            let settings = settings::settings(&now, &wanted)?;
            now.logging.reload();
            *in_force.borrow_mut() = now;
            Ok(settings)
        };
        let _reloading = notify.reloading();
        read().map_err(|failure: Failure| failure.to_string())
    };
    Operator { reread: Box::new(reread), hangup: reload.hangup, stop }
}
