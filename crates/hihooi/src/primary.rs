//! Takes over the primary when a manager starts: terminates connections of older managers and any other
//! connection that reads hihooi's slot, and creates everything that hihooi needs there (I5).

use std::pin::pin;
use std::time::Duration;

use hihooi_postgres::cluster::fence::{self, Fence};
use hihooi_postgres::collations;
use hihooi_postgres::connection::{self, Connection, Login};
use hihooi_postgres::identity;
use hihooi_postgres::setup::{self, Objects, SLOT};
use hihooi_postgres::site::Site;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::{Failure, Result};
use crate::replication::Replication;

/// How long another reader of the slot may take to go away.
const SLOT_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at the slot.
const SLOT_LOOK_EVERY: Duration = Duration::from_millis(200);
/// When the primary has kept us from beginning for so long, the operator is told why; and of another cause after as long.
const LONG: Duration = Duration::from_secs(5);
/// Name in the log of the primary's incarnation.
const INCARNATION: &str = "incarnation";

/// Ends what older managers left at the primary, checks it, makes what we need there, and tells
/// its incarnation.
///
/// # Errors
/// One line that names the primary.
pub async fn prepare(replication: &Replication, fence: &Fence) -> Result<u32> {
    let login = replication.login("hihooi setup");
    let connection =
        Connection::open(&login).await.map_err(|error| at_site(&replication.primary, &error))?;
    let process = connection.key().process;
    let mut work = pin!(prepare_over(connection, replication, fence));
    let mut told = String::new();
    loop {
        if let Ok(done) = timeout(LONG, &mut work).await {
            return done;
        }
        // (If that can't be asked either, it is asked again.)
        if let Ok(Ok(activity)) = timeout(LONG, activity_of(&login, process)).await
            && activity != told
        {
            tracing::warn!(site = replication.primary.name, "not ready yet: {activity}");
            told = activity;
        }
    }
}

async fn activity_of(login: &Login, process: i32) -> connection::Result<String> {
    let mut connection = Connection::open(login).await?;
    let activity = connection.activity_of(process).await?;
    connection.close().await;
    Ok(activity)
}

async fn prepare_over(
    mut connection: Connection,
    replication: &Replication,
    fence: &Fence,
) -> Result<u32> {
    let Replication { primary, log, .. } = replication;
    let unknown = |error: identity::Error| at_site(primary, &error);
    identity::check_primary(&mut connection, log, &primary.name).await.map_err(unknown)?;
    fence.end_older(primary).await.map_err(|error| at_site(primary, &error))?;
    let slot = wait_for_slot(&mut connection, primary).await?;
    identity::check_slot(&mut connection, log).await.map_err(unknown)?;
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
                 since it was lost: {}",
                setup::REBUILD
            ),
        ));
    }
    let objects = setup::objects(&mut connection).await;
    if slot && objects.map_err(|error| at_site(primary, &error))? == Objects::Damaged {
        replication.distrust_all().await.map_err(Failure::new)?;
        identity::restore_primary(&mut connection, log, &primary.name).await.map_err(unknown)?;
    }
    setup::install(&mut connection).await.map_err(|error| at_site(primary, &error))?;
    identity::take_primary(&mut connection, log, &primary.name).await.map_err(unknown)?;
    collations::note_primary(&mut connection, log).await.map_err(unknown)?;
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

fn at_site(site: &Site, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{} at {}: {error}", site.name, site.address))
}
