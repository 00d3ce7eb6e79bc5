//! A primary with a collector, and replicas with appliers, all real.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hihooi_postgres::apply::{self, ApplierHandle, Config, Visibility};
use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::site::{Replica, Role, Site, State};
use hihooi_postgres::verify::{self, LogView, Report, VerifyError};
use hihooi_postgres::wal_positions::WalPositions;
use hihooi_replication::entry::Header;
use hihooi_replication::ids::Tsid;
use hihooi_replication::schedule::Method;

use tokio::task::JoinSet;

use crate::support::{Collector, PATIENCE, Primary, Server};

pub struct Follower {
    pub server: Server,
    pub replica: Arc<Replica>,
    pub applier: ApplierHandle,
}

pub struct Cluster {
    pub primary: Primary,
    pub collector: Collector,
    pub visibility: Arc<Visibility>,
    pub followers: Vec<Follower>,
}

pub fn site(name: &str, role: Role, server: &Server) -> Site {
    Site { name: name.to_owned(), role, address: server.address(), user: "postgres".to_owned() }
}

impl Cluster {
    /// All sites begin with what `script` makes.
    pub async fn start(script: &str, replicas: usize) -> Cluster {
        Cluster::start_with(script, "fsync = off", replicas).await
    }

    pub async fn start_with(script: &str, settings: &str, replicas: usize) -> Cluster {
        Cluster::start_by(script, settings, &vec![Method::default(); replicas]).await
    }

    /// A replica for each of the methods.
    pub async fn start_by(script: &str, settings: &str, methods: &[Method]) -> Cluster {
        let servers = methods.iter().map(|method| (Server::start_with(settings), *method));
        Cluster::start_on(script, servers.collect()).await
    }

    /// Replicas on these servers, which are new.
    pub async fn start_on(script: &str, servers: Vec<(Server, Method)>) -> Cluster {
        let primary = Primary::start(script).await;
        let mut collector = primary.collect();
        collector.ignore_events();
        let visibility = Visibility::start(primary.server.login("postgres", "postgres"));
        let mut cluster = Cluster { primary, collector, visibility, followers: Vec::new() };
        for (number, (server, method)) in (1..).zip(servers) {
            let mut connection = server.connect().await;
            connection.simple(script).await.expect("the script runs");
            connection.simple(&cluster.identities().await).await.expect("the identities");
            let site = site(&format!("replica{number}"), Role::Replica, &server);
            let replica = Arc::new(Replica::new(site));
            let config = Config { method, ..cluster.config(&replica) };
            let applier = apply::start(config);
            cluster.followers.push(Follower { server, replica, applier });
        }
        cluster
    }

    /// What gives a site that ran the script the identities that a copy of the primary has.
    pub async fn identities(&self) -> String {
        let query = "SELECT coalesce(string_agg(format('ALTER TABLE ONLY %s REPLICA IDENTITY FULL',
                oid::regclass), '; '), '') FROM pg_class WHERE relreplident = 'f'";
        let mut primary = self.primary.server.connect().await;
        primary.query(query).await.expect("answers").value().expect("a text").to_owned()
    }

    pub fn config(&self, replica: &Arc<Replica>) -> Config {
        Config {
            replica: Arc::clone(replica),
            database: "postgres".to_owned(),
            connections: apply::CONNECTIONS,
            origin: apply::ORIGIN.to_owned(),
            log: self.collector.log.clone(),
            method: Method::default(),
            max_delay: apply::MAX_DELAY,
            visibility: Arc::clone(&self.visibility),
        }
    }

    pub async fn run(&self, script: &str) {
        self.primary.run(script).await;
    }

    /// Runs something on the first replica behind hihooi's back.
    pub async fn run_behind(&self, script: &str) {
        self.run_behind_at(0, script).await;
    }

    /// Runs it on another replica.
    pub async fn run_behind_at(&self, number: usize, script: &str) {
        let mut connection = self.followers[number].server.connect().await;
        let script = format!("SET session_replication_role = replica; {script}");
        connection.simple(&script).await.expect("the script runs");
    }

    /// Waits until the log has all of the primary; returns its end.
    pub async fn logged(&self) -> Tsid {
        let lsn = self.primary.lsn_after().await;
        while self.collector.status.received() < lsn {
            self.collector.poke.notify_one();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.collector.log.persist().await.expect("persists")
    }

    /// Waits until every replica has applied all of the primary.
    pub async fn settle(&self) -> Tsid {
        let end = self.logged().await;
        for follower in &self.followers {
            follower.reached(end).await;
        }
        end
    }

    /// Waits until the log has `count` entries more.
    pub async fn written(&self, count: u64) {
        let wanted = self.last().0 + count;
        let mut appended = self.collector.log.appended();
        let waited = tokio::time::timeout(PATIENCE, appended.wait_for(|at| at.0 >= wanted)).await;
        waited.expect("the writers write").expect("the log is open");
    }

    pub async fn verify(&self) -> Report {
        self.try_verify().await.unwrap_or_else(|error| panic!("{error}"))
    }

    pub async fn try_verify(&self) -> Result<Report, VerifyError> {
        let primary = site("primary", Role::Primary, &self.primary.server);
        let replicas: Vec<(Arc<Replica>, ApplierHandle)> = self
            .followers
            .iter()
            .map(|follower| (Arc::clone(&follower.replica), follower.applier.clone()))
            .collect();
        let options =
            verify::Options { database: "postgres".to_owned(), rows_max: 10, wait: PATIENCE };
        verify::verify(&primary, &replicas, self, &options, &mut drop).await
    }

    /// Settles, then asserts that all sites are equal.
    pub async fn assert_equal(&self) -> Report {
        self.settle().await;
        let report = self.verify().await;
        assert!(report.is_equal(), "{report}");
        report
    }
}

/// How a session of ours ends a transaction.
const END: [&str; 2] = ["SELECT hihooi.follow(true)", "COMMIT"];

/// Runs statements in one transaction as `role`.
pub async fn through(cluster: &Cluster, role: &str, path: &str, statements: &[&str]) {
    let server = &cluster.primary.server;
    let mut connection = server.connect_as(role, "postgres").await;
    let set = format!("SET search_path = {path}; SET DateStyle = German");
    for text in [&*set, "BEGIN"].iter().chain(statements).chain(&END) {
        let ran = connection.simple(text).await;
        ran.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    connection.close().await;
}

impl LogView for Cluster {
    fn last(&self) -> Tsid {
        self.collector.log.last().map_or(Tsid::ZERO, |header| header.tsid)
    }

    fn headers_after(&self, after: Tsid) -> Result<Vec<Header>, String> {
        // What tests write is in the log's memory, so reading never waits.
        let read = self.collector.log.read(after.next(), usize::MAX, usize::MAX);
        let mut read = std::pin::pin!(read);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match read.as_mut().poll(&mut context) {
            std::task::Poll::Ready(entries) => {
                let entries = entries.map_err(|error| error.to_string())?;
                Ok(entries.iter().map(|entry| entry.header.clone()).collect())
            }
            std::task::Poll::Pending => Err("not in memory".to_owned()),
        }
    }

    fn caught_up(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async {
            let mut positions = WalPositions::new(self.primary.server.connect().await)
                .await
                .map_err(|error| error.to_string())?;
            let lsn = positions.lsn_after().await.map_err(|error| error.to_string())?;
            positions.ensure_flushed(lsn).await.map_err(|error| error.to_string())?;
            while self.collector.status.received() < lsn {
                self.collector.poke.notify_one();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(())
        })
    }
}

/// What writers run, again and again: the session, the writer's number, how often it ran before.
pub type Write = fn(writer: u64, n: u64) -> String;

/// Sessions on the primary that write until they are told to end, so that whatever is to disturb
/// them finds them at work on any machine.
pub struct Load {
    ends: Arc<AtomicBool>,
    writers: JoinSet<()>,
}

impl Load {
    pub fn start(cluster: &Cluster, writers: u64, write: Write) -> Load {
        let mut load = Load { ends: Arc::default(), writers: JoinSet::new() };
        for writer in 0..writers {
            let login = cluster.primary.server.login("postgres", "postgres");
            load.writers.spawn(run(login, Arc::clone(&load.ends), writer, write));
        }
        load
    }

    /// Lets every writer finish what it is at.
    pub async fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.writers.join_all().await;
    }
}

async fn run(login: Login, ends: Arc<AtomicBool>, writer: u64, write: Write) {
    let mut connection = Connection::open(&login).await.expect("connects");
    for n in 0.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        // Deadlocks between writers are the primary's business.
        if connection.simple(&write(writer, n)).await.is_err() {
            connection.simple("ROLLBACK").await.expect("rolls back");
        }
    }
    connection.close().await;
}

impl Follower {
    /// Waits until it has applied `count` entries more.
    pub async fn advances(&self, count: u64) {
        let wanted = self.replica.applied().0 + count;
        let mut progress = self.replica.progress();
        let waited = tokio::time::timeout(PATIENCE, progress.wait_for(|at| at.0 >= wanted)).await;
        assert!(waited.is_ok(), "{} {}", self.replica.state(), self.replica.reason());
    }

    /// Waits until an applier has executed something without committing it, and has nothing more to
    /// send; the port from which it is connected.
    pub async fn executed(&self) -> u16 {
        let idle = "SELECT client_port FROM pg_stat_activity
                    WHERE application_name = 'hihooi applier' AND state = 'idle in transaction'
                      AND clock_timestamp() - state_change > interval '0.3 s'";
        let port = self.server.shows(idle).await.expect("a port");
        port.parse().expect("a number")
    }

    /// Waits until it serves and has applied everything up to `tsid`, as long as it gets on.
    pub async fn reached(&self, tsid: Tsid) {
        let mut progress = self.replica.progress();
        while !(*progress.borrow_and_update() >= tsid && self.replica.state() == State::Serving) {
            let waited = tokio::time::timeout(PATIENCE, progress.changed()).await;
            assert!(
                matches!(waited, Ok(Ok(()))),
                "stands at {} of {tsid}: {} {}",
                self.replica.applied(),
                self.replica.state(),
                self.replica.reason()
            );
        }
    }

    /// Waits until it failed with a reason that contains `part`; returns the reason.
    pub async fn failed(&self, part: &str) -> String {
        let started = std::time::Instant::now();
        loop {
            let reason = self.replica.reason();
            if self.replica.state() == State::Failed && reason.contains(part) {
                return reason;
            }
            assert!(started.elapsed() < PATIENCE, "{}: {reason}", self.replica.state());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn connect(&self) -> Connection {
        self.server.connect().await
    }
}
