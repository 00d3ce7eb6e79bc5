//! Has the primary note what no event trigger was told of and no session of ours asked about: roles
//! and indexes that somebody changed at the primary itself (I2). And looks whether what takes the notes
//! is still there.

use std::sync::Arc;
use std::time::Duration;

use hihooi_postgres::connection::Connection;
use hihooi_postgres::identity;
use hihooi_postgres::setup::{self, Objects};
use tokio::time::sleep;

use crate::failure::{Failure, Result};
use crate::replication::Replication;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Notes what changed; a comparison of hashes if nothing did.
const FOLLOW: &str = "SELECT hihooi.follow_shared(), hihooi.follow_indexes(), hihooi.tidy()";

/// Looks again and again, on a connection of its own.
pub async fn keep_following(replication: Arc<Replication>) {
    let login = replication.login("hihooi following");
    loop {
        let ended = match Connection::open(&login).await {
            Ok(connection) => look(&replication, connection).await,
            Err(error) => Err(Failure::new(error)),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "can't look for changed roles");
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn look(replication: &Replication, mut connection: Connection) -> Result<()> {
    loop {
        if setup::objects(&mut connection).await.map_err(Failure::new)? != Objects::Complete {
            make_again(replication, &mut connection).await?;
        }
        connection.query(FOLLOW).await.map_err(Failure::new)?;
        sleep(LOOK_EVERY).await;
    }
}

/// No replica is read until it is known to lack nothing; from now on DDL is noted again.
async fn make_again(replication: &Replication, connection: &mut Connection) -> Result<()> {
    let Replication { log, primary, .. } = replication;
    replication.distrust_all().await.map_err(Failure::new)?;
    identity::restore_primary(connection, log, &primary.name).await.map_err(Failure::new)?;
    setup::install(connection).await.map_err(Failure::new)?;
    // A verification meanwhile may have missed what ran before the event triggers were there again.
    replication.distrust_all().await.map_err(Failure::new)
}
