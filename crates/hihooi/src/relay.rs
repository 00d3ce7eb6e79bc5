//! Starts the relay, which serves the clients.

use std::net::TcpListener;
use std::path::PathBuf;

use hihooi_server::authentication::Authentication;
use hihooi_server::metrics::Asked;
use hihooi_server::tls::Tls;
use hihooi_server::{Replication, Settings};
use tokio::sync::watch;

use crate::config::{Config, TlsMode};
use crate::failure::{Failure, Result};
use crate::replication::Parts;

/// Serves clients until `shutdown` turns true.
///
/// # Errors
/// One line when the listening socket fails.
pub async fn run(
    listener: TcpListener,
    config: Config,
    parts: Parts,
    asked: Asked,
    shutdown: watch::Receiver<bool>,
) -> Result<()> {
    let (authentication, tls) = doors(&config)?;
    let settings = Settings {
        tls,
        authentication,
        admin_users: config.admin_users.clone(),
        pool_size: config.pool.size,
        pool_wait_ms_max: config.pool.wait_ms_max,
        pool_idle_ms_max: config.pool.idle_ms_max,
        consistency: config.consistency.default,
        wait_ms: config.consistency.wait_ms,
        sync_timeout_ms: config.consistency.sync_timeout_ms,
        site_timeout_ms: config.all_sites.timeout_ms,
        weights: config.weights(),
        database: config.database().to_owned(),
        shown: shown(&config),
    };
    let appliers = parts.appliers;
    let replication = Replication {
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
    hihooi_server::run(listener, settings, replication, asked, shutdown)
        .await
        .map_err(|error| Failure::new(format!("can't serve clients: {error}")))
}

/// How clients come in: by which proofs, and how they are encrypted, if at all. Also reads the certificates for
/// connections to servers, so that what is wrong with them is told at once.
///
/// # Errors
/// What is wrong with a file, with its name.
pub fn doors(config: &Config) -> Result<(Option<Authentication>, Option<Tls>)> {
    let (hba, ident) = (config.auth.hba_file.clone(), config.auth.ident_file.clone());
    let authentication = hba.map(|hba| Authentication::load(hba, ident).map_err(Failure::new));
    let files = config.tls.files().map_err(|error| Failure::new(error.to_string()))?;
    let is_required = config.tls.mode == TlsMode::Require;
    let load =
        |files| Tls::load(files, is_required).map_err(|why| Failure::new(format!("TLS: {why}")));
    for site in &config.sites {
        let checked = site.site().address.tls.load();
        checked.map_err(|why| Failure::new(format!("site {:?}: TLS: {why}", site.name)))?;
    }
    Ok((authentication.transpose()?, files.map(load).transpose()?))
}

/// The configuration as `SHOW CONFIG` tells it.
fn shown(config: &Config) -> Vec<(String, String)> {
    let consistency = config.consistency.default;
    let path = |path: &Option<PathBuf>| {
        path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    };
    let mut keys = vec![
        ("listen".to_owned(), config.listen.clone()),
        ("data".to_owned(), config.data.display().to_string()),
        ("admin_users".to_owned(), config.admin_users.join(", ")),
        ("auth.hba_file".to_owned(), path(&config.auth.hba_file)),
        ("auth.ident_file".to_owned(), path(&config.auth.ident_file)),
        ("tls.mode".to_owned(), config.tls.mode.to_string()),
        ("tls.cert_file".to_owned(), path(&config.tls.cert_file)),
        ("tls.key_file".to_owned(), path(&config.tls.key_file)),
        ("tls.ca_file".to_owned(), path(&config.tls.ca_file)),
        ("pool.size".to_owned(), config.pool.size.to_string()),
        ("pool.wait_ms_max".to_owned(), config.pool.wait_ms_max.to_string()),
        ("pool.idle_ms_max".to_owned(), config.pool.idle_ms_max.to_string()),
        ("consistency.default".to_owned(), consistency.as_str().to_owned()),
        ("consistency.wait_ms".to_owned(), config.consistency.wait_ms.to_string()),
        ("consistency.sync_timeout_ms".to_owned(), config.consistency.sync_timeout_ms.to_string()),
        ("metrics.listen".to_owned(), config.metrics.address().unwrap_or("off").to_owned()),
        ("sites.timeout_ms".to_owned(), config.all_sites.timeout_ms.to_string()),
        (
            "replica.max_apply_delay_ms".to_owned(),
            config.all_replicas.max_apply_delay_ms.to_string(),
        ),
        ("apply.method".to_owned(), config.apply.method.to_string()),
    ];
    for site in &config.sites {
        let value = format!("{}:{} tls={}", site.host, site.port, site.tls);
        keys.push((format!("site.{}", site.name), value));
    }
    let databases: Vec<&str> = config.databases.iter().map(|each| each.name.as_str()).collect();
    keys.push(("database".to_owned(), databases.join(", ")));
    keys
}
