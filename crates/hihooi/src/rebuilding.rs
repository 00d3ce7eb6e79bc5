//! Replaces replicas by copies of the primary while clients are served: on request (REBUILD REPLICA), and by itself a
//! replica that can't apply changes, or whose copy was interrupted. So whatever a replica meets, it goes on (I2).
//! Where the servers run is not known here: `up` takes the requests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hihooi_postgres::apply;
use hihooi_postgres::cluster::backup::Tell;
use hihooi_postgres::cluster::supervise::{Begun, CopyRequest, FindTsid};
use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::site::{Replica, Site, State};
use hihooi_replication::ids::{Lsn, Tsid};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::log_view::View;
use crate::replication::{Appliers, Replication};

/// How often it is looked for replicas to replace.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long the server of a new copy may take to start before its replica counts as failed.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A replica isn't replaced by itself again sooner,
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// nor before so many times the time has passed that the copy took: copying loads the primary.
const AGAIN_AFTER_TIMES: u32 = 10;
/// Whoever asks for a copy is told after so long why it doesn't begin.
const SILENT_FOR: Duration = Duration::from_secs(2);
/// Pauses after copies that failed.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// What is said of a replica whose copy was interrupted.
const INCOMPLETE: &str = "its copy of the primary is not complete, and will be made again";

/// The servers that can be replaced, by site name.
#[derive(Clone, Default)]
pub struct Copier(HashMap<String, (mpsc::Sender<CopyRequest>, PathBuf)>);

impl Copier {
    /// Adds a server: who takes requests, and the file that is there while its data are incomplete.
    pub fn add(&mut self, site: String, requests: mpsc::Sender<CopyRequest>, mark: PathBuf) {
        self.0.insert(site, (requests, mark));
    }

    fn is_incomplete(&self, replica: &Replica) -> bool {
        self.0.get(&replica.site.name).is_some_and(|(_, mark)| mark.exists())
    }

    async fn copy(
        &self,
        replica: &Replica,
        begun: Begun,
        find_tsid: FindTsid,
        tell: Tell,
    ) -> Result<(), String> {
        let Some((requests, _)) = self.0.get(&replica.site.name) else {
            return Err("only servers that `hihooi up` runs can be replaced".to_owned());
        };
        let (reply, answer) = oneshot::channel();
        let origin = apply::ORIGIN.to_owned();
        let stopped = || "the server is being stopped".to_owned();
        let request = CopyRequest { tell, begun, find_tsid, origin, reply };
        requests.send(request).await.map_err(|_| stopped())?;
        let copied = answer.await.map_err(|_| stopped())?;
        copied.map_err(|error| error.to_string())
    }
}

/// Replaces replicas, one at a time.
pub struct Rebuilder {
    replication: Arc<Replication>,
    appliers: Appliers,
    view: View,
    one_at_a_time: Mutex<()>,
}

impl Rebuilder {
    /// Replicas whose copies were interrupted aren't used from now on.
    pub fn new(replication: Arc<Replication>, appliers: Appliers, view: View) -> Rebuilder {
        for replica in &replication.replicas {
            if replication.copier.is_incomplete(replica) {
                replica.set_cloning(Some(INCOMPLETE.to_owned()));
            }
        }
        Rebuilder { replication, appliers, view, one_at_a_time: Mutex::new(()) }
    }

    /// Replaces a replica by a copy of the primary. `tell` gets how far it is.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn rebuild(&self, name: &str, is_forced: bool, tell: Tell) -> Result<(), String> {
        let known = self.replication.replicas.iter().find(|known| known.site.name == name);
        let replica = known.ok_or_else(|| format!("there is no replica {name:?}"))?;
        if replica.state().is_readable() && !is_forced {
            return Err(format!(
                "it is {}, and would serve no reads meanwhile: if that is wanted, send REBUILD REPLICA {name} FORCE",
                replica.state()
            ));
        }
        let Ok(_turn) = self.one_at_a_time.try_lock() else {
            return Err("a replica is being replaced: one after the other".to_owned());
        };
        self.replace(replica, tell).await
    }

    /// Replaces what has to be replaced, until the manager stops.
    pub async fn keep_replicas(&self) {
        let mut turns: HashMap<&str, Turn> = HashMap::new();
        loop {
            sleep(LOOK_EVERY).await;
            for replica in &self.replication.replicas {
                let turn = turns.entry(&replica.site.name).or_default();
                let Some(why) = self.why_replace(replica, turn) else { continue };
                let Ok(_turn) = self.one_at_a_time.try_lock() else { continue };
                self.replace_by_itself(replica, &why, turn).await;
            }
        }
    }

    /// Why it is to be replaced now, if so.
    fn why_replace(&self, replica: &Replica, turn: &Turn) -> Option<String> {
        let is_over = |pause: Option<Instant>| pause.is_none_or(|until| until <= Instant::now());
        if self.replication.copier.is_incomplete(replica) {
            return is_over(turn.retry_at).then(|| INCOMPLETE.to_owned());
        }
        let may = self.replication.auto_rebuild && is_over(turn.again_at) && is_over(turn.retry_at);
        replica.stopped().filter(|_| may)
    }

    async fn replace_by_itself(&self, replica: &Arc<Replica>, why: &str, turn: &mut Turn) {
        let site = &replica.site.name;
        tracing::warn!(site, why, "the replica is replaced by a copy of the primary");
        let began = Instant::now();
        let replaced = self.replace(replica, Arc::new(|_| {})).await;
        let took = began.elapsed();
        match replaced {
            Ok(()) => {
                turn.done(took);
                tracing::warn!(site, took_ms = took.as_millis(), "the replica was replaced");
            }
            Err(why) => {
                let next_s = turn.failed().as_secs();
                tracing::warn!(site, why, next_s, "the replica could not be replaced");
            }
        }
    }

    async fn replace(&self, replica: &Arc<Replica>, tell: Tell) -> Result<(), String> {
        let Replication { log, copier, .. } = &*self.replication;
        // Without what comes behind it, a copy can't be used; until it can be made, the replica stays as it is.
        let mut caught_up = pin!(self.view.wait_until_following());
        let followed = match timeout(SILENT_FOR, &mut caught_up).await {
            Ok(followed) => followed,
            Err(_) => {
                tell("waits until the log has what the primary has committed".to_owned());
                caught_up.await
            }
        };
        followed.map_err(|why| format!("{why}; the replica stays as it is"))?;
        // The log keeps what the copy will need.
        replica.set_copied_from(log.last().map_or(Tsid::ZERO, |last| last.tsid));
        replica.set_cloning(Some("its server is stopped".to_owned()));
        let copied = copier
            .copy(replica, self.begun(replica), self.find_tsid(), tell_all(replica, tell))
            .await;
        // It begins anew when it is used again.
        if let Some(applier) = self.appliers.get(&replica.site.name) {
            applier.restart();
        }
        match &copied {
            Ok(()) => {
                replica.count_rebuild();
                self.until_started(replica).await;
                replica.set_state(State::Cloning, "changes will be applied to it");
                replica.set_cloning(None);
            }
            Err(why) if copier.is_incomplete(replica) => {
                replica.set_cloning(Some(format!("{INCOMPLETE}: {why}")));
            }
            Err(_) => {
                replica.set_copied_from(Tsid::ZERO);
                replica.set_cloning(None);
            }
        }
        copied
    }

    /// Waits until the server of a new copy takes connections; not for long if it doesn't start.
    async fn until_started(&self, replica: &Replica) {
        let Site { address, user, .. } = &replica.site;
        let login = Login::new(address.clone(), user, &self.replication.database, "hihooi copying");
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline && Connection::open(&login).await.is_err() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whatever differed is replaced. What is found from now on may not be: the primary is copied before the end.
    fn begun(&self, replica: &Arc<Replica>) -> Begun {
        let (replication, replica) = (Arc::clone(&self.replication), Arc::clone(replica));
        Box::pin(async move { replication.set_difference(&replica, String::new()).await })
    }

    fn find_tsid(&self) -> FindTsid {
        let (view, replicas) = (self.view.clone(), self.replication.replicas.clone());
        // What a replica has applied, the primary shows.
        let shown = move || replicas.iter().map(|replica| replica.applied()).max();
        let find = move |lsn: Lsn| async move {
            view.entry_before(lsn, shown().unwrap_or(Tsid::ZERO)).await
        };
        Box::new(move |lsn| Box::pin(find(lsn)))
    }
}

/// Tells whoever asked, and everyone who looks at the replica's state.
fn tell_all(replica: &Arc<Replica>, tell: Tell) -> Tell {
    let replica = Arc::clone(replica);
    Arc::new(move |line: String| {
        replica.set_cloning(Some(line.clone()));
        tell(line);
    })
}

/// When a replica may be replaced by itself again.
#[derive(Default)]
struct Turn {
    /// After a copy that succeeded, if it can't apply a change again.
    again_at: Option<Instant>,
    /// After one that failed.
    retry_at: Option<Instant>,
    /// How long that was waited for.
    pause: Duration,
}

impl Turn {
    fn done(&mut self, took: Duration) {
        let again_at = Instant::now() + AGAIN_AFTER.max(took * AGAIN_AFTER_TIMES);
        *self = Turn { again_at: Some(again_at), ..Turn::default() };
    }

    /// Returns the pause.
    fn failed(&mut self) -> Duration {
        self.pause = (self.pause * 2).clamp(RETRY_MIN, RETRY_MAX);
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause
    }
}
