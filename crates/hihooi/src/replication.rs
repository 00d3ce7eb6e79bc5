//! The replication side of the manager: runs the collector and appliers, and restarts them when they fail. One
//! thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hihooi_log::Log;
use hihooi_postgres::apply::{self, ApplierHandle, Visibility};
use hihooi_postgres::cluster::fence::{self, Fence};
use hihooi_postgres::collector::{
    self, CollectorConfig, CollectorError, CollectorStatus, StreamEvent,
};
use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::control::{self, ControlRequest};
use hihooi_postgres::identity;
use hihooi_postgres::site::{Replica, Site, State};
use hihooi_replication::schedule::Method;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::controller::Controller;
use crate::failure::{Failure, Result};
use crate::following::keep_following;
use crate::log_view::View;
use crate::primary;
use crate::rebuilding::{Copier, Rebuilder};
use crate::trimming::keep_trimming;

/// News of the stream on their way to the relay; when full they hold the stream back.
const EVENTS_MAX: usize = 16_384;
/// Pause before a collector that gave up is started again.
const COLLECTOR_PAUSE: Duration = Duration::from_secs(5);
/// Pause between two tries to reach a replica for fencing.
const FENCE_PAUSE: Duration = Duration::from_secs(1);

/// What the replication side is started with.
pub struct Replication {
    /// The primary.
    pub primary: Site,
    /// The replicated database.
    pub database: String,
    /// The replicas.
    pub replicas: Vec<Arc<Replica>>,
    /// The log.
    pub log: Log,
    /// How it is found out which transactions replicas may apply at once.
    pub method: Method,
    /// How long anybody may hold up applying.
    pub max_apply_delay: Duration,
    /// Replaces replicas by copies of the primary.
    pub copier: Copier,
    /// Replicas that can't apply changes are replaced without being asked to.
    pub auto_rebuild: bool,
}

/// What the relay gets of the replication side.
pub struct Parts {
    /// The primary.
    pub primary: Site,
    /// The replicas.
    pub replicas: Vec<Arc<Replica>>,
    /// Their appliers.
    pub appliers: Appliers,
    /// The log.
    pub log: Log,
    /// This manager's epoch, for the record of server connections.
    pub fence: Fence,
    /// What the stream tells.
    pub events: mpsc::Receiver<StreamEvent>,
    /// Makes the primary tell its position at once.
    pub poke: Arc<Notify>,
    /// Takes the transaction ids whose acknowledgement arrived.
    pub acknowledged: mpsc::Sender<u64>,
    /// How the collector is.
    pub collector: Arc<CollectorStatus>,
    /// Takes requests of the admin database.
    pub control: mpsc::Sender<ControlRequest>,
}

/// The appliers by replica; one appears when its replica was reached for the first time.
#[derive(Clone, Default)]
pub struct Appliers(Arc<Mutex<HashMap<String, ApplierHandle>>>);

impl Appliers {
    /// The applier of a replica, if it was reached already.
    #[must_use]
    pub fn get(&self, replica: &str) -> Option<ApplierHandle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(replica).cloned()
    }

    fn put(&self, replica: &str, applier: ApplierHandle) {
        let mut appliers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        appliers.insert(replica.to_owned(), applier);
    }

    fn all(&self) -> Vec<ApplierHandle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Runs the replication side until `shutdown` turns true. `ready` gets what the relay needs once
/// the primary is known to be ours alone.
///
/// # Errors
/// One line: the primary can't be used.
pub async fn run(
    replication: Replication,
    ready: oneshot::Sender<Parts>,
    mut shutdown: watch::Receiver<bool>,
) -> Result<()> {
    let fence = Fence::take(replication.log.clone()).await?;
    let incarnation = primary::prepare(&replication, &fence).await?;
    for replica in &replication.replicas {
        let known = replication.log.meta(&difference_name(replica))?.unwrap_or_default();
        replica.set_difference(String::from_utf8_lossy(&known));
    }
    let visibility = Visibility::start(replication.login("hihooi visibility"));
    let appliers = Appliers::default();
    let (events, told) = mpsc::channel(EVENTS_MAX);
    let (control, requests) = mpsc::channel(control::REQUESTS_MAX);
    let parts = Parts {
        primary: replication.primary.clone(),
        replicas: replication.replicas.clone(),
        appliers: appliers.clone(),
        log: replication.log.clone(),
        fence: fence.clone(),
        events: told,
        poke: Arc::new(Notify::new()),
        acknowledged: visibility.acknowledgements(),
        collector: Arc::new(CollectorStatus::default()),
        control,
    };
    let view = View {
        log: replication.log.clone(),
        primary: replication.login("hihooi verify"),
        collector: Arc::clone(&parts.collector),
        poke: Arc::clone(&parts.poke),
    };
    let (poke, status) = (Arc::clone(&parts.poke), Arc::clone(&parts.collector));
    let followed = Arc::clone(&status);
    if ready.send(parts).is_err() {
        return Err(Failure::new("the manager was stopped while it started"));
    }

    let config = replication.collector(incarnation);
    let log = replication.log.clone();
    let primary = replication.primary.clone();
    let collecting =
        keep_collecting(primary, config, log.clone(), events, poke, status, shutdown.clone());
    let mut collector = tokio::spawn(collecting);
    let replication = Arc::new(replication);
    let rebuilder = Rebuilder::new(Arc::clone(&replication), appliers.clone(), view.clone());
    let rebuilder = Arc::new(rebuilder);
    for replica in &replication.replicas {
        let config = replication.applier(replica, &visibility);
        tokio::spawn(start_applier(fence.clone(), config, appliers.clone()));
    }
    tokio::spawn(keep_following(Arc::clone(&replication), followed));
    tokio::spawn(keep_trimming(log, appliers.clone(), replication.replicas.clone()));
    let keeper = Arc::clone(&rebuilder);
    tokio::spawn(async move { keeper.keep_replicas().await });
    let (appliers_too, verifying) = (appliers.clone(), tokio::sync::Mutex::default());
    let controller = Controller { replication, appliers: appliers_too, view, rebuilder, verifying };
    tokio::spawn(Arc::new(controller).answer(requests));

    let collected = tokio::select! {
        // A manager that is dropped without a word stops as well.
        _ = shutdown.wait_for(|&stop| stop) => None,
        ended = &mut collector => Some(ended),
    };
    for applier in appliers.all() {
        applier.stop().await;
    }
    let collected = match collected {
        Some(ended) => ended,
        None => collector.await,
    };
    collected.map_err(Failure::new)?
}

impl Replication {
    /// Notes how a replica differs from the primary, nothing if it isn't known to: it isn't read until
    /// then, by later managers either.
    ///
    /// # Errors
    /// A sentence for the operator: the log can't be written.
    pub async fn set_difference(
        &self,
        replica: &Replica,
        difference: String,
    ) -> std::result::Result<(), String> {
        let name = difference_name(replica);
        let known = self.log.meta(&name).map_err(|error| error.to_string())?.unwrap_or_default();
        if known != difference.as_bytes() {
            let kept = self.log.set_meta(&name, difference.as_bytes()).await;
            kept.map_err(|error| error.to_string())?;
        }
        replica.set_difference(difference);
        Ok(())
    }

    /// What notes DDL at the primary was dropped or disabled there. Whether replicas lack something since,
    /// only a comparison tells.
    ///
    /// # Errors
    /// A sentence for the operator: the log can't be written.
    pub async fn distrust_all(&self) -> std::result::Result<(), String> {
        const WHY: &str = "hihooi's schema or event triggers were dropped or disabled at the primary, so \
            DDL may be missing here: run VERIFY, which ends this where it finds no difference";
        for replica in &self.replicas {
            self.set_difference(replica, WHY.to_owned()).await?;
        }
        Ok(())
    }

    /// A login of our own at the primary, to the replicated database.
    pub fn login(&self, application: &str) -> Login {
        let Site { address, user, .. } = &self.primary;
        Login::new(address.clone(), user, &self.database, application)
    }

    fn collector(&self, incarnation: u32) -> CollectorConfig {
        CollectorConfig {
            name: self.primary.name.clone(),
            address: self.primary.address.clone(),
            user: self.primary.user.clone(),
            database: self.database.clone(),
            incarnation,
        }
    }

    fn applier(&self, replica: &Arc<Replica>, visibility: &Arc<Visibility>) -> apply::Config {
        apply::Config {
            replica: Arc::clone(replica),
            database: self.database.clone(),
            connections: apply::CONNECTIONS,
            origin: apply::ORIGIN.to_owned(),
            log: self.log.clone(),
            method: self.method,
            max_delay: self.max_apply_delay,
            visibility: Arc::clone(visibility),
        }
    }
}

/// Name in the log of how a replica differs.
fn difference_name(replica: &Replica) -> String {
    format!("different {}", replica.site.name)
}

/// Keeps a collector running: when it gives up, writes go on and reads fall to the primary.
///
/// # Errors
/// The primary isn't ours any more, or somebody else has read its slot: nobody may be served.
async fn keep_collecting(
    primary: Site,
    config: CollectorConfig,
    log: Log,
    events: mpsc::Sender<StreamEvent>,
    poke: Arc<Notify>,
    status: Arc<CollectorStatus>,
    mut shutdown: watch::Receiver<bool>,
) -> Result<()> {
    let mut told = String::new();
    loop {
        let began = Instant::now();
        let ended: std::result::Result<(), CollectorError> = collector::run(
            config.clone(),
            log.clone(),
            events.clone(),
            Arc::clone(&poke),
            Arc::clone(&status),
            shutdown.clone(),
        )
        .await;
        match ended {
            Ok(()) => return Ok(()),
            Err(CollectorError::Stranger(why)) => {
                let Site { name, address, .. } = &primary;
                return Err(Failure::new(format!("{name} at {address}: {why}")));
            }
            Err(error) => {
                let error = error.to_string();
                // What had worked for a while is a new trouble.
                if error != told || began.elapsed() > COLLECTOR_PAUSE {
                    tracing::error!(error, "the collector gave up; it will be started again");
                }
                told = error;
            }
        }
        tokio::select! {
            () = sleep(COLLECTOR_PAUSE) => {}
            _ = shutdown.wait_for(|&stop| stop) => return Ok(()),
        }
    }
}

/// Starts a replica's applier once what older managers left there is gone.
async fn start_applier(fence: Fence, config: apply::Config, appliers: Appliers) {
    let replica = Arc::clone(&config.replica);
    loop {
        replica.answering().await;
        let taken = tokio::select! {
            taken = take_replica(&fence, &config) => taken.map_err(|failure| failure.to_string()),
            why = replica.silenced() => Err(why),
        };
        match taken {
            Ok(()) => break,
            Err(why) => replica.set_state(State::Failed, why),
        }
        sleep(FENCE_PAUSE).await;
    }
    appliers.put(&replica.site.name, apply::start(config));
}

/// Makes sure that a replica is ours, then ends what older managers left there, appliers that hold its
/// origins above all.
async fn take_replica(fence: &Fence, config: &apply::Config) -> Result<()> {
    let site = &config.replica.site;
    let login = Login::new(site.address.clone(), &site.user, &config.database, "hihooi fence");
    let mut connection = Connection::open(&login).await.map_err(Failure::new)?;
    identity::take_replica(&mut connection, &config.log, &site.name).await.map_err(Failure::new)?;
    fence.end_older(site).await.map_err(Failure::new)?;
    fence::end_unrecorded(&mut connection).await.map_err(Failure::new)?;
    connection.close().await;
    Ok(())
}
