//! Carries out the commands of the admin database that concern replicas (the HController of the Hihooi
//! paper, section 3): PAUSE REPLICA, RESUME REPLICA, VERIFY, REBUILD REPLICA.

use std::sync::Arc;
use std::time::Duration;

use hihooi_postgres::apply::ApplierHandle;
use hihooi_postgres::control::{ControlRequest, News};
use hihooi_postgres::site::Replica;
use hihooi_postgres::verify;
use tokio::sync::{Mutex, mpsc};

use crate::log_view::View;
use crate::rebuilding::Rebuilder;
use crate::replication::{Appliers, Replication};

/// Rows on which replicas differ that `verify` lists at most.
const VERIFY_ROWS_MAX: usize = 100;
/// How long a commit at a replica is waited for when it is paused.
const PAUSE_WAIT: Duration = Duration::from_secs(10);
/// How long replicas may take to reach the position that is verified.
const VERIFY_WAIT: Duration = Duration::from_secs(120);

/// Carries out requests. What takes long doesn't hold up others.
pub struct Controller {
    /// The sites.
    pub replication: Arc<Replication>,
    /// The replicas' appliers.
    pub appliers: Appliers,
    /// The log.
    pub view: View,
    /// Replaces replicas.
    pub rebuilder: Arc<Rebuilder>,
    /// One VERIFY at a time: each holds the appliers.
    pub verifying: Mutex<()>,
}

impl Controller {
    /// Carries out requests until the admin database is gone.
    pub async fn answer(self: Arc<Self>, mut requests: mpsc::Receiver<ControlRequest>) {
        while let Some(request) = requests.recv().await {
            match request {
                // Whoever asked may be gone: then it is not to be done later.
                ControlRequest::Pause { reply, .. } | ControlRequest::Resume { reply, .. }
                    if reply.is_closed() => {}
                ControlRequest::Pause { replica, reply } => {
                    let _ = reply.send(self.pause(&replica).await);
                }
                ControlRequest::Resume { replica, reply } => {
                    let _ = reply.send(self.resume(&replica).await);
                }
                // These may take hours.
                ControlRequest::Verify { news } => {
                    let controller = Arc::clone(&self);
                    tokio::spawn(async move {
                        tokio::select! {
                            () = controller.verify(&news) => {}
                            () = news.closed() => {} // nobody waits for the result
                        }
                    });
                }
                ControlRequest::Rebuild { replica, is_forced, news } => {
                    let rebuilder = Arc::clone(&self.rebuilder);
                    tokio::spawn(async move {
                        let told = news.clone();
                        let tell = move |line| drop(told.try_send(News::Progress(line)));
                        let rebuilt = rebuilder.rebuild(&replica, is_forced, Arc::new(tell)).await;
                        let _ = news.send(News::Done(rebuilt)).await;
                    });
                }
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

    /// Lets a replica apply nothing more.
    async fn pause(&self, replica: &str) -> std::result::Result<(), String> {
        let paused = self.applier(replica)?.pause(PAUSE_WAIT).await;
        paused.map_err(|why| format!("replica {replica:?} is not paused yet, but will be: {why}"))
    }

    /// Lets a replica apply and be read again, whatever was found there.
    async fn resume(&self, replica: &str) -> std::result::Result<(), String> {
        let applier = self.applier(replica)?;
        applier.resume().await.map_err(|error| error.to_string())?;
        let known = self.replication.replicas.iter().find(|known| known.site.name == replica);
        match known {
            Some(replica) => self.replication.set_difference(replica, String::new()).await,
            None => Ok(()),
        }
    }

    /// What differs isn't read any more, until it is equal. (A table that couldn't be read says nothing.)
    async fn note_verdict(
        &self,
        replica: &Replica,
        report: &verify::Report,
    ) -> std::result::Result<(), String> {
        let name = &replica.site.name;
        let skipped = report.skipped.iter().any(|(skipped, _)| skipped == name);
        let difference = match report.differences.iter().find(|found| found.site == *name) {
            Some(verify::Difference { object, what, .. }) => format!(
                "verify found at entry {}: {object}: {what}; make it equal and verify again, or \
                 RESUME REPLICA {name}",
                report.tsid
            ),
            None if skipped || !report.replicas.contains(name) => return Ok(()),
            None => String::new(),
        };
        self.replication.set_difference(replica, difference).await
    }

    /// Verifies the replicas that are reached; one that isn't makes the whole fail.
    async fn verify(&self, news: &mpsc::Sender<News<verify::Report>>) {
        let turn = match self.verifying.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                let waits = "waits until another VERIFY has ended".to_owned();
                let _ = news.try_send(News::Progress(waits));
                self.verifying.lock().await
            }
        };
        let found = self.verified(news).await;
        drop(turn);
        let _ = news.send(News::Done(found)).await;
    }

    async fn verified(
        &self,
        news: &mpsc::Sender<News<verify::Report>>,
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
        let mut progress = |line: String| drop(news.try_send(News::Progress(line)));
        let primary = &self.replication.primary;
        let report = verify::verify(primary, &replicas, &self.view, &options, &mut progress)
            .await
            .map_err(|error| error.to_string())?;
        for replica in &self.replication.replicas {
            self.note_verdict(replica, &report).await?;
        }
        match report.skipped.first() {
            // Nothing differs so far, but "equal" would be said of replicas that nobody saw.
            Some((replica, why)) if report.verdict() == "INCOMPLETE" => {
                Err(format!("{replica} was not compared: {why}"))
            }
            _ => Ok(report),
        }
    }
}
