//! `hihooi up`: creates (the first time) and runs a whole cluster on this machine.

use std::net::TcpListener;

use hihooi_postgres::cluster::binaries::Binaries;
use hihooi_postgres::cluster::os_user::OsUser;
use hihooi_postgres::cluster::postmaster::{Postmaster, Stop};
use hihooi_postgres::cluster::server::Server;
use hihooi_postgres::cluster::supervise::{Replaceable, supervise};
use hihooi_postgres::site::Trouble;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::cli::UpArgs;
use crate::cluster::{self, DEFAULT_REPLICAS, Found};
use crate::config::{Config, METRICS_DISTANCE, RoleName};
use crate::data_dir::{DataDir, Lock};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::listening::{self, Listening};
use crate::manager::Manager;
use crate::process::{self, tell};
use crate::rebuilding::Copier;
use crate::settings::{self, Reload};
use crate::signals::Signals;

/// Runs the command.
#[must_use]
pub fn run(args: &UpArgs) -> Exit {
    process::run(up(args))
}

async fn up(args: &UpArgs) -> Result<()> {
    let mut signals = Signals::new()?;
    let mut ground = Ground::check(args)?;
    ground.config.logging.begin(Some(&ground.data.file("hihooi.log")))?;
    let servers = tokio::select! {
        made = ground.servers(args) => made?,
        () = signals.next() => {
            cluster::stop_half_made(&ground.data).await;
            return Err(Failure::new("stopped; the next `hihooi up` creates the cluster again"));
        }
    };
    let Ground { data, config, listening, lock, .. } = ground;
    process::allow_files(&config);
    let running = Running::start(servers, &data, config.database(), &mut signals).await?;
    let outcome = serve(args, &config, &data, listening, &running, &mut signals).await;
    running.stop(&mut signals).await;
    drop(lock);
    outcome
}

/// Where a cluster is to run: all that can be refused before anything is touched.
struct Ground {
    data: DataDir,
    found: Found,
    config: Config,
    binaries: Binaries,
    os_user: OsUser,
    listening: Listening,
    lock: Lock,
}

impl Ground {
    fn check(args: &UpArgs) -> Result<Ground> {
        let mut config = Config::default();
        args.settings.put_over(&mut config);
        let data = DataDir::new(&config.data)?;
        let found = cluster::look(&data)?;
        if found == Found::Cluster {
            data.check_whole()?;
            config = Config::read(&data.config())?;
            args.settings.put_over(&mut config);
            config.check()?;
            check_replicas(args.replicas, &config, &data)?;
        }
        config.check_listen()?;
        config.check_limits()?;
        settings::doors(&config)?;
        config.metrics.check()?;
        config.data = data.path().to_path_buf();
        let owner = cluster::owner(&data);
        let os_user = OsUser::choose(args.os_user.as_deref().or(owner.as_deref()))?;
        let made_with = if found == Found::Cluster { cluster::made_with(&data) } else { None };
        let binaries = Binaries::find(args.pg_bin.as_deref(), made_with)?;
        // The lock comes first where it can: who holds it has taken the port as well.
        let early = if data.exists() { Some(data.lock("up")?) } else { None };
        let listening = Listening::begin(&config.listen)?;
        let lock = match early {
            Some(lock) => lock,
            None => {
                data.make(os_user != OsUser::Same)?;
                data.lock("up")?
            }
        };
        os_user.check_reaches(data.path())?;
        Ok(Ground { data, found, config, binaries, os_user, listening, lock })
    }

    /// The servers; of a new cluster they are made now.
    async fn servers(&mut self, args: &UpArgs) -> Result<Vec<Server>> {
        if self.found == Found::HalfMade {
            tell(format!(
                "{} holds a cluster whose creation was interrupted: creating it again",
                self.data.path().display()
            ));
            cluster::clear_half_made(&self.data).await?;
        }
        let Listening { places, port, .. } = &self.listening;
        if self.found != Found::Cluster {
            self.config.listen = places.clone();
            self.config.sites = cluster::plan(*port, args.replicas.unwrap_or(DEFAULT_REPLICAS))?;
        }
        let more = args.replicas.map_or(0, |wanted| wanted.saturating_sub(replicas(&self.config)));
        if more > 0 {
            let added = cluster::add_replicas(&self.data, &self.config, *port, more)?;
            tell(format!("adding {}: copied from the primary while it serves", added.join(", ")));
            self.config.sites = Config::read(&self.data.config())?.sites;
        }
        let Ground { data, config, binaries, os_user, .. } = self;
        let servers = cluster::servers(data, config, binaries, os_user)?;
        if self.found != Found::Cluster {
            cluster::make(data, config, &servers, &mut tell).await?;
        }
        Ok(servers)
    }
}

fn replicas(config: &Config) -> usize {
    config.sites.iter().filter(|site| site.role == RoleName::Replica).count()
}

/// More are added, but which ones are to go isn't said by a number.
fn check_replicas(wanted: Option<usize>, config: &Config, data: &DataDir) -> Result<()> {
    let have = replicas(config);
    match wanted {
        Some(wanted) if wanted < have => Err(Failure::new(format!(
            "the cluster in {} has {have} replicas: to remove one, remove its [[site]] from {}; or leave out \
             --replicas",
            data.path().display(),
            data.config().display()
        ))),
        _ => Ok(()),
    }
}

/// The servers while they are kept running.
struct Running {
    stop: watch::Sender<Stop>,
    keepers: Vec<JoinHandle<()>>,
    /// By site name, why a server doesn't run.
    troubles: Vec<(String, Trouble)>,
    /// Takes requests to replace replicas.
    copier: Copier,
}

impl Running {
    /// Starts the servers. The primary runs afterwards; replicas are started in the background.
    async fn start(
        servers: Vec<Server>,
        data: &DataDir,
        database: &str,
        signals: &mut Signals,
    ) -> Result<Running> {
        let mut running = Running {
            stop: watch::Sender::new(Stop::No),
            keepers: vec![],
            troubles: vec![],
            copier: Copier::default(),
        };
        let mut servers = servers.into_iter();
        let primary = servers.next().expect("a cluster has a primary");
        for replica in servers {
            let (sender, requests) = mpsc::channel(1);
            let mark = data.copying(&replica.name);
            running.copier.add(replica.name.clone(), sender, mark.clone());
            let (primary, database) = (primary.clone(), database.to_owned());
            running.keep(replica, None, Some(Replaceable { primary, database, mark, requests }));
        }
        let started = tokio::select! {
            started = primary.start() => started.map_err(Failure::from),
            () = signals.next() => Err(Failure::new("stopped while the primary started")),
        };
        match started {
            Ok(postmaster) => running.keep(primary, Some(postmaster), None),
            Err(failure) => {
                primary.give_up(Stop::Fast).await;
                running.stop(signals).await;
                return Err(failure);
            }
        }
        Ok(running)
    }

    fn keep(
        &mut self,
        server: Server,
        postmaster: Option<Postmaster>,
        replaceable: Option<Replaceable>,
    ) {
        let trouble = Trouble::default();
        self.troubles.push((server.name.clone(), trouble.clone()));
        let keeper = supervise(server, postmaster, replaceable, self.stop.subscribe(), trouble);
        self.keepers.push(tokio::spawn(keeper));
    }

    /// Stops all servers: cleanly, or at once when another signal comes.
    async fn stop(self, signals: &mut Signals) {
        // Another signal may have come before.
        self.stop.send_if_modified(|how| match how {
            Stop::No => {
                *how = Stop::Fast;
                true
            }
            Stop::Fast | Stop::Immediate => false,
        });
        let all_ended = async {
            for keeper in self.keepers {
                // A keeper that panicked has left its server behind; the next `up` adopts it.
                let _ = keeper.await;
            }
        };
        tokio::pin!(all_ended);
        loop {
            tokio::select! {
                () = &mut all_ended => return,
                () = signals.next() => {
                    self.stop.send_replace(Stop::Immediate);
                }
            }
        }
    }
}

/// Reads the cluster's configuration file again. Metrics stay where they are if it says nothing of them.
fn reread(args: UpArgs, data: &DataDir, config: &Config) -> Box<dyn Fn() -> Result<Config> + Send> {
    let (file, path, metrics) = (data.config(), data.path().to_owned(), config.metrics.clone());
    Box::new(move || {
        let mut config = Config::read(&file)?;
        args.settings.put_over(&mut config);
        config.check()?;
        config.data.clone_from(&path);
        if config.metrics.listen.is_none() {
            config.metrics = metrics.clone();
        }
        Ok(config)
    })
}

/// Runs the manager until a signal comes or it fails for good.
async fn serve(
    args: &UpArgs,
    config: &Config,
    data: &DataDir,
    listening: Listening,
    running: &Running,
    signals: &mut Signals,
) -> Result<()> {
    let url = listening.url(config);
    let mut config = config.clone();
    let metrics = listen_for_metrics(&mut config, listening.port);
    let reread = reread(args.clone(), data, &config);
    let reload = Reload { reread, hangup: signals.hangup.clone() };
    let mut manager = tokio::select! {
        started = Manager::start(&config, data, listening, metrics, reload, running.copier.clone()) => started?,
        () = signals.next() => return Err(Failure::new("stopped while the manager started")),
    };
    manager.explain(&running.troubles);
    let outcome = manager.run(&url, signals).await;
    tokio::select! {
        // It begins to stop, also if that is asked for twice at once.
        biased;
        () = manager.stop() => {}
        () = signals.next() => {
            running.stop.send_replace(Stop::Immediate);
        }
    }
    outcome
}

/// Takes the address that serves metrics. A cluster runs without them if there is none to be had.
fn listen_for_metrics(config: &mut Config, port: u16) -> Option<TcpListener> {
    let port = port.checked_add(METRICS_DISTANCE);
    let default = port.map_or("off".to_owned(), |port| format!("127.0.0.1:{port}"));
    config.metrics.listen.get_or_insert(default);
    match listening::listen_for_metrics(config) {
        Ok(Some(socket)) => {
            tell(format!("metrics at {}", listening::metrics_url(&socket)));
            Some(socket)
        }
        Ok(None) => None,
        Err(failure) => {
            tracing::warn!("metrics are not served: {failure}");
            tell(format!("metrics are not served: {failure}"));
            config.metrics.listen = None;
            None
        }
    }
}
