//! The manager of a cluster whose servers are running: log, collector, appliers and relay, on two threads with
//! an event loop each, so that neither waits for the other. A third thread serves metrics, if that is wanted.

use std::convert::Infallible;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hihooi_log::Log;
use hihooi_postgres::site::{Replica, State, Trouble};
use hihooi_server::{Listeners, metrics};
use tokio::runtime::LocalRuntime;
use tokio::sync::{self, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::admin_socket;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::failure::{Failure, Result};
use crate::listening::{Listening, SocketFile};
use crate::notify::Notify;
use crate::process::tell;
use crate::rebuilding::Copier;
use crate::relay;
use crate::replication::{self, Replication};
use crate::settings::Reload;
use crate::signals::Signals;

/// Replicas that serve so soon are not told of.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How long the threads may take to end cleanly.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether a thread has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Failures of the threads that wait to be heard.
const FAILURES_MAX: usize = 4;

/// How often the service manager is told what has changed.
const NOTIFY_EVERY: Duration = Duration::from_secs(1);

/// A running manager.
pub struct Manager {
    data: DataDir,
    /// Removed when no client is to come any more.
    socket_files: Vec<SocketFile>,
    notify: Notify,
    replicas: Vec<Arc<Replica>>,
    stop_relay: watch::Sender<bool>,
    stop_replication: watch::Sender<bool>,
    relay: JoinHandle<()>,
    replication: JoinHandle<()>,
    /// Serves metrics; ends with the relay.
    metrics: Option<JoinHandle<()>>,
    failures: mpsc::Receiver<Failure>,
    /// An operator asked for the end.
    asked_to_stop: Arc<sync::Notify>,
}

impl Manager {
    /// Starts a manager: when this returns, clients are served by the primary at least, and `metrics` are served if
    /// there is a socket for them.
    ///
    /// # Errors
    /// One line: the log, the primary or its slot can't be used.
    pub async fn start(
        config: &Config,
        data: &DataDir,
        listening: Listening,
        metrics: Option<TcpListener>,
        reload: Reload,
        copier: Copier,
    ) -> Result<Manager> {
        let notify = Notify::from_environment();
        let log = Log::open(&data.file("log"))?;
        let replicas: Vec<Arc<Replica>> =
            config.replicas().into_iter().map(|site| Arc::new(Replica::new(site))).collect();
        let (failed, failures) = mpsc::channel(FAILURES_MAX);
        let (stop_replication, stopping) = watch::channel(false);
        let (ready, started) = oneshot::channel();
        let replication = Replication {
            primary: config.primary(),
            database: config.database().to_owned(),
            replicas: replicas.clone(),
            log: log.clone(),
            method: config.apply.method,
            max_apply_delay: Duration::from_millis(config.all_replicas.max_apply_delay_ms),
            copier,
            auto_rebuild: config.all_replicas.auto_rebuild,
        };
        let replication = spawn("replication", failed.clone(), || {
            replication::run(replication, ready, stopping)
        })?;
        let Ok(parts) = started.await else {
            // The thread ended before it was ready and has told why.
            return Err(first_failure(failures).await);
        };
        let (stop_relay, stopping) = watch::channel(false);
        let (asks, asked) = metrics::channel();
        let config = config.clone();
        let asked_to_stop = Arc::new(sync::Notify::new());
        let governed = (reload, asked_to_stop.clone());
        let listeners = Listeners { clients: listening.sockets, admin: admin_socket::listen(data) };
        let told = notify.clone();
        let relay = move || relay::run(listeners, config, parts, governed, asked, stopping, told);
        let relay = spawn("relay", failed.clone(), relay)?;
        let metrics = metrics.map(|socket| serve_metrics(socket, asks, failed)).transpose()?;
        Ok(Manager {
            data: data.clone(),
            socket_files: listening.files,
            notify,
            replicas,
            stop_relay,
            stop_replication,
            relay,
            replication,
            metrics,
            failures,
            asked_to_stop,
        })
    }

    /// From now on, replicas whose servers don't run tell why, by site name.
    pub fn explain(&self, troubles: &[(String, Trouble)]) {
        for replica in &self.replicas {
            let own = troubles.iter().filter(|(name, _)| *name == replica.site.name);
            own.for_each(|(_, trouble)| replica.explain(trouble.clone()));
        }
    }

    /// Runs until a signal comes, an operator asks for the end, or a thread fails for good. Tells the user how to connect and which
    /// replicas don't serve yet, for a reason that a server may have, and later of each that does.
    ///
    /// # Errors
    /// Why it failed.
    pub async fn run(&mut self, url: &str, signals: &mut Signals) -> Result<()> {
        tokio::select! {
            () = self.tell_ready(url) => {}
            () = signals.next() => return Ok(()),
        }
        let asked_to_stop = self.asked_to_stop.clone();
        let (replicas, notify) = (self.replicas.clone(), self.notify.clone());
        tokio::select! {
            () = signals.next() => Ok(()),
            () = asked_to_stop.notified() => Ok(()),
            failure = self.failed() => Err(failure),
            never = keep_notified(&replicas, &notify, url) => match never {},
        }
    }

    async fn tell_ready(&self, url: &str) {
        for replica in self.late_replicas().await {
            let (name, reason) = (replica.site.name.clone(), replica.reason());
            let reason = if reason.is_empty() { "it starts".to_owned() } else { reason };
            tell(format!("{name} does not serve yet: {reason}"));
            tokio::spawn(async move {
                let mut progress = replica.progress();
                if progress.wait_for(|_| replica.state() == State::Serving).await.is_ok() {
                    tell(format!("{name} serves now"));
                }
            });
        }
        tell(format!("ready at {url}"));
        self.notify.ready();
    }

    /// The replicas that don't serve at once.
    async fn late_replicas(&self) -> Vec<Arc<Replica>> {
        let deadline = Instant::now() + AT_ONCE;
        let mut late = Vec::new();
        for replica in &self.replicas {
            let mut progress = replica.progress();
            let serving = progress.wait_for(|_| replica.state() == State::Serving);
            if tokio::time::timeout_at(deadline, serving).await.is_err() {
                late.push(replica.clone());
            }
        }
        late
    }

    /// Waits until a thread fails for good; why.
    async fn failed(&mut self) -> Failure {
        match self.failures.recv().await {
            Some(failure) => failure,
            None => Failure::new("the manager's threads ended"),
        }
    }

    /// Closes all clients, then ends replication in good order.
    pub async fn stop(self) {
        self.notify.stopping();
        admin_socket::remove(&self.data);
        drop(self.socket_files);
        let _ = self.stop_relay.send(true);
        join(self.relay).await;
        if let Some(metrics) = self.metrics {
            join(metrics).await;
        }
        let _ = self.stop_replication.send(true);
        join(self.replication).await;
    }
}

/// Tells the service manager how many replicas serve, whenever that has changed.
async fn keep_notified(replicas: &[Arc<Replica>], notify: &Notify, url: &str) -> Infallible {
    let mut told = String::new();
    while notify.is_wanted() {
        let status = summary(replicas, url);
        if status != told {
            notify.status(&status);
            told = status;
        }
        tokio::time::sleep(NOTIFY_EVERY).await;
    }
    std::future::pending().await
}

fn summary(replicas: &[Arc<Replica>], url: &str) -> String {
    let serves = |replica: &&Arc<Replica>| replica.state().applies();
    let serving = replicas.iter().filter(serves).count();
    format!("{serving} of {} replicas serve reads; clients connect to {url}", replicas.len())
}

fn serve_metrics(
    socket: TcpListener,
    asks: metrics::Asks,
    failed: mpsc::Sender<Failure>,
) -> Result<JoinHandle<()>> {
    let serve = async move || metrics::serve(socket, asks).await.map_err(Failure::new);
    spawn("metrics", failed, serve)
}

/// Runs `work` on a thread of its own with its own event loop.
fn spawn<Work: Future<Output = Result<()>>>(
    name: &'static str,
    failed: mpsc::Sender<Failure>,
    work: impl FnOnce() -> Work + Send + 'static,
) -> Result<JoinHandle<()>> {
    let run = move || {
        let ended = match LocalRuntime::new() {
            // A thread that is gone must not leave a manager that looks alive.
            Ok(runtime) => catch_unwind(AssertUnwindSafe(|| runtime.block_on(work())))
                .unwrap_or_else(|_| Err(Failure::new(format!("thread {name} panicked")))),
            Err(error) => Err(Failure::new(error)),
        };
        if let Err(failure) = ended {
            // Nobody listens any more once the manager stops.
            let _ = failed.try_send(failure);
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| Failure::new(format!("cannot start a thread: {error}")))
}

async fn first_failure(mut failures: mpsc::Receiver<Failure>) -> Failure {
    let told = tokio::time::timeout(STOP_LIMIT, failures.recv()).await;
    told.ok().flatten().unwrap_or_else(|| Failure::new("the manager's thread ended at once"))
}

/// Waits for a thread, at most [`STOP_LIMIT`].
async fn join(thread: JoinHandle<()>) {
    let deadline = Instant::now() + STOP_LIMIT;
    while !thread.is_finished() {
        if Instant::now() > deadline {
            tracing::warn!("a thread of the manager does not end in time");
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if thread.join().is_err() {
        tracing::error!("a thread of the manager panicked");
    }
}
