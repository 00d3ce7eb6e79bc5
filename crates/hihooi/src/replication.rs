//! The replication side of the manager: fencing, collector, appliers, retention, and what the
//! admin database asks of them. One thread.

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
use hihooi_postgres::control::{self, ControlRequest, VerifyNews};
use hihooi_postgres::setup::{self, SLOT};
use hihooi_postgres::site::{Replica, Site, State};
use hihooi_postgres::verify;
use hihooi_replication::ddl::ClusterKey;
use hihooi_replication::ids::Tsid;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::failure::{Failure, Result};
use crate::log_view::View;

/// News of the stream on their way to the relay; when full they hold the stream back.
const EVENTS_MAX: usize = 16_384;
/// Pause before a collector that gave up is started again.
const COLLECTOR_PAUSE: Duration = Duration::from_secs(5);
/// Pause between two tries to reach a replica for fencing.
const FENCE_PAUSE: Duration = Duration::from_secs(1);
/// How long another reader of the slot may take to go away.
const SLOT_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at the slot.
const SLOT_LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often the log is trimmed.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// Rows on which replicas differ that `verify` lists at most.
const VERIFY_ROWS_MAX: usize = 100;
/// How long replicas may take to reach the position that is verified.
const VERIFY_WAIT: Duration = Duration::from_secs(120);
/// Name in the log of the primary's incarnation.
const INCARNATION: &str = "incarnation";

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
    /// The cluster's secret.
    pub key: ClusterKey,
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
    /// The cluster's secret.
    pub key: ClusterKey,
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
    let primary = &replication.primary;
    fence.end_older(primary).await.map_err(|error| at_site(primary, &error))?;
    let incarnation = prepare_primary(&replication).await?;

    let login = Login::new(
        primary.address.clone(),
        &primary.user,
        &replication.database,
        "hihooi visibility",
    );
    let visibility = Visibility::start(login.clone());
    let status = Arc::new(CollectorStatus::default());
    let poke = Arc::new(Notify::new());
    let (events, told) = mpsc::channel(EVENTS_MAX);
    let (control, requests) = mpsc::channel(control::REQUESTS_MAX);
    let appliers = Appliers::default();
    let view = Arc::new(View {
        log: replication.log.clone(),
        primary: login,
        collector: Arc::clone(&status),
        poke: Arc::clone(&poke),
    });
    let parts = Parts {
        primary: primary.clone(),
        replicas: replication.replicas.clone(),
        appliers: appliers.clone(),
        log: replication.log.clone(),
        key: replication.key.clone(),
        fence: fence.clone(),
        events: told,
        poke: Arc::clone(&poke),
        acknowledged: visibility.acknowledgements(),
        collector: Arc::clone(&status),
        control,
    };
    if ready.send(parts).is_err() {
        return Err(Failure::new("the manager was stopped while it started"));
    }

    let config = CollectorConfig {
        address: primary.address.clone(),
        user: primary.user.clone(),
        database: replication.database.clone(),
        incarnation,
        key: replication.key.clone(),
    };
    let log = replication.log.clone();
    let collector =
        tokio::spawn(keep_collecting(config, log, events, poke, status, shutdown.clone()));
    for replica in &replication.replicas {
        let config = apply::Config {
            replica: Arc::clone(replica),
            database: replication.database.clone(),
            connections: apply::CONNECTIONS,
            origin: apply::ORIGIN.to_owned(),
            log: replication.log.clone(),
            visibility: Arc::clone(&visibility),
        };
        tokio::spawn(start_applier(fence.clone(), config, appliers.clone()));
    }
    let replicas = replication.replicas.len();
    tokio::spawn(keep_trimming(replication.log.clone(), appliers.clone(), replicas));
    let desk = Desk { replication, appliers: appliers.clone(), view };
    tokio::spawn(desk.answer(requests));

    // A manager that is dropped without a word stops as well.
    let _ = shutdown.wait_for(|&stop| stop).await;
    for applier in appliers.all() {
        applier.stop().await;
    }
    let _ = collector.await;
    Ok(())
}

fn at_site(site: &Site, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{} at {}: {error}", site.name, site.address))
}

/// Checks the primary, takes what is ours there, and tells its incarnation.
async fn prepare_primary(replication: &Replication) -> Result<u32> {
    let Replication { primary, database, log, .. } = replication;
    let login = Login::new(primary.address.clone(), &primary.user, database, "hihooi setup");
    let failed = |error: hihooi_postgres::connection::Error| at_site(primary, &error);
    let mut connection = Connection::open(&login).await.map_err(failed)?;
    let slot = wait_for_slot(&mut connection, primary).await?;
    fence::end_unrecorded(&mut connection).await.map_err(|error| at_site(primary, &error))?;
    for problem in setup::check(&mut connection).await.map_err(|error| at_site(primary, &error))? {
        match problem.fatal {
            true => return Err(at_site(primary, &problem.text)),
            false => tracing::warn!(site = primary.name, "{}", problem.text),
        }
    }
    if !slot && (!replication.replicas.is_empty() || log.last().is_some()) {
        return Err(at_site(
            primary,
            &format!(
                "has no replication slot {SLOT:?}, so that replicas would miss what was committed \
                 since it was lost: make the cluster anew"
            ),
        ));
    }
    setup::install(&mut connection).await.map_err(|error| at_site(primary, &error))?;
    connection.close().await;
    match log.meta(INCARNATION)? {
        Some(bytes) => String::from_utf8_lossy(&bytes)
            .parse()
            .map_err(|_| Failure::new("the log's incarnation is damaged")),
        None => {
            log.set_meta(INCARNATION, b"1").await?;
            Ok(1)
        }
    }
}

/// Waits until nobody reads our slot; returns whether it is there.
async fn wait_for_slot(connection: &mut Connection, primary: &Site) -> Result<bool> {
    let deadline = Instant::now() + SLOT_LIMIT;
    let text = format!(
        "SELECT s.active_pid, coalesce(host(a.client_addr), 'a local socket') \
         FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid \
         WHERE s.slot_name = '{SLOT}'"
    );
    loop {
        let answer = connection.query(&text).await.map_err(|error| at_site(primary, &error))?;
        let Some(row) = answer.rows.into_iter().next() else { return Ok(false) };
        let [Some(pid), from] = &row[..] else { return Ok(true) };
        if Instant::now() > deadline {
            let from = from.as_deref().unwrap_or("somewhere");
            return Err(at_site(
                primary,
                &format!(
                    "replication slot {SLOT:?} is in use by process {pid}, connected from {from}: \
                     another hihooi serves this server; stop it first"
                ),
            ));
        }
        sleep(SLOT_LOOK_EVERY).await;
    }
}

/// Keeps a collector running: when it gives up, writes go on and reads fall to the primary.
async fn keep_collecting(
    config: CollectorConfig,
    log: Log,
    events: mpsc::Sender<StreamEvent>,
    poke: Arc<Notify>,
    status: Arc<CollectorStatus>,
    mut shutdown: watch::Receiver<bool>,
) {
    loop {
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
            Ok(()) => return,
            Err(error) => tracing::error!(%error, "the collector gave up; it is started again"),
        }
        tokio::select! {
            () = sleep(COLLECTOR_PAUSE) => {}
            _ = shutdown.wait_for(|&stop| stop) => return,
        }
    }
}

/// Starts a replica's applier once what older managers left there is gone.
async fn start_applier(fence: Fence, config: apply::Config, appliers: Appliers) {
    let replica = Arc::clone(&config.replica);
    loop {
        match fence_replica(&fence, &replica.site).await {
            Ok(()) => break,
            Err(error) => replica.set_state(State::Failed, error.to_string()),
        }
        sleep(FENCE_PAUSE).await;
    }
    appliers.put(&replica.site.name, apply::start(config));
}

/// Ends what older managers left at a replica, appliers that hold its origins above all.
async fn fence_replica(fence: &Fence, site: &Site) -> std::result::Result<(), fence::Error> {
    fence.end_older(site).await?;
    let login = Login::new(site.address.clone(), &site.user, "postgres", "hihooi fence");
    let mut connection = Connection::open(&login).await?;
    fence::end_unrecorded(&mut connection).await?;
    connection.close().await;
    Ok(())
}

/// Forgets what every replica has on its disk (I5, I8).
async fn keep_trimming(log: Log, appliers: Appliers, replicas: usize) {
    loop {
        sleep(TRIM_EVERY).await;
        let flushed: Vec<Tsid> = appliers.all().iter().map(ApplierHandle::flushed).collect();
        if flushed.len() < replicas {
            // One was never reached: nobody knows what it needs.
            continue;
        }
        let last = log.last().map_or(Tsid::ZERO, |header| header.tsid);
        let below = flushed.into_iter().min().unwrap_or(last).next();
        if let Err(error) = log.trim(below).await {
            tracing::warn!(%error, "cannot trim the log");
        }
    }
}

/// Answers what the admin database asks.
struct Desk {
    replication: Replication,
    appliers: Appliers,
    view: Arc<View>,
}

impl Desk {
    async fn answer(self, mut requests: mpsc::Receiver<ControlRequest>) {
        while let Some(request) = requests.recv().await {
            // Whoever asked may be gone; then nobody needs the answer.
            match request {
                ControlRequest::Pause { replica, reply } => {
                    let _ = reply.send(self.applier(&replica).map(|applier| applier.pause()));
                }
                ControlRequest::Resume { replica, reply } => {
                    let _ = reply.send(self.applier(&replica).map(|applier| applier.resume()));
                }
                ControlRequest::Verify { news } => self.verify(&news).await,
            }
        }
    }

    fn applier(&self, replica: &str) -> std::result::Result<ApplierHandle, String> {
        if !self.replication.replicas.iter().any(|known| known.site.name == replica) {
            return Err(format!("there is no replica {replica:?}"));
        }
        self.appliers
            .get(replica)
            .ok_or_else(|| format!("replica {replica:?} has not been reached yet"))
    }

    /// Verifies the replicas that are reached; one that isn't makes the whole fail.
    async fn verify(&self, news: &mpsc::Sender<VerifyNews>) {
        let found = self.verified(news).await;
        let _ = news.send(VerifyNews::Done(found)).await;
    }

    async fn verified(
        &self,
        news: &mpsc::Sender<VerifyNews>,
    ) -> std::result::Result<verify::Report, String> {
        let mut replicas = Vec::new();
        for replica in &self.replication.replicas {
            replicas.push((Arc::clone(replica), self.applier(&replica.site.name)?));
        }
        let options = verify::Options {
            database: self.replication.database.clone(),
            rows_max: VERIFY_ROWS_MAX,
            wait: VERIFY_WAIT,
        };
        // A line that finds no room is only progress.
        let mut progress = |line: String| drop(news.try_send(VerifyNews::Progress(line)));
        let primary = &self.replication.primary;
        let report = verify::verify(primary, &replicas, &*self.view, &options, &mut progress)
            .await
            .map_err(|error| error.to_string())?;
        match report.skipped.first() {
            // Nothing differs so far, but "equal" would be said of replicas that nobody saw.
            Some((replica, why)) if report.verdict() == "INCOMPLETE" => {
                Err(format!("{replica} was not compared: {why}"))
            }
            _ => Ok(report),
        }
    }
}
