//! Every two seconds, makes the primary write notes of changes that fire no event trigger and did not come
//! through hihooi: roles, owners and indexes that were changed at the primary itself, and what EXPLAIN ANALYZE made
//! there (I2). Also checks that hihooi's event triggers still exist, whether the primary was restarted with other libraries, and how much WAL it keeps
//! for hihooi's slot.

use std::sync::Arc;
use std::time::Duration;

use hihooi_postgres::collations;
use hihooi_postgres::collector::CollectorStatus;
use hihooi_postgres::connection::{self, Connection, Login};
use hihooi_postgres::identity;
use hihooi_postgres::setup::{self, Objects, SLOT};
use hihooi_postgres::site::{Replica, Site};
use tokio::time::sleep;

use crate::failure::{Failure, Result};
use crate::replication::Replication;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Each notes what changed, in a transaction of its own; a comparison of hashes if nothing did.
const FOLLOW: [&str; 5] = [
    "SELECT hihooi.follow_shared()",
    "SELECT hihooi.follow_unnoted()",
    "SELECT hihooi.follow_owners()",
    "SELECT hihooi.follow_indexes(false)",
    "SELECT hihooi.tidy()",
];

/// Looks again and again, on a connection of its own.
pub async fn keep_following(replication: Arc<Replication>, status: Arc<CollectorStatus>) {
    // (Compiling such queries just in time takes longer than executing them.)
    let login = replication.login("hihooi following").with("jit", "off");
    let mut told = String::new();
    loop {
        let ended = match Connection::open(&login).await {
            Ok(connection) => look(&replication, &status, connection).await,
            Err(error) => Err(Failure::new(error)),
        };
        status.set_slot_retained_bytes(None);
        if let Err(error) = ended {
            let error = error.to_string();
            if error != told {
                tracing::warn!(
                    error,
                    "can't look at the primary for schema changes that no event trigger reports; will try again"
                );
            }
            told = error;
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn look(
    replication: &Replication,
    status: &CollectorStatus,
    mut connection: Connection,
) -> Result<()> {
    // It may have been restarted.
    if collations::note_primary(&mut connection, &replication.log).await.map_err(Failure::new)? {
        for replica in &replication.replicas {
            compare_collations(replication, replica).await;
        }
    }
    loop {
        let retained = slot_retained_bytes(&mut connection).await.map_err(Failure::new)?;
        status.set_slot_retained_bytes(retained);
        if setup::objects(&mut connection).await.map_err(Failure::new)? != Objects::Complete {
            make_again(replication, &mut connection).await?;
        }
        for follow in FOLLOW {
            connection.query(follow).await.map_err(Failure::new)?;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// How much WAL the primary keeps for the slot; `None` if the slot is lost.
async fn slot_retained_bytes(connection: &mut Connection) -> connection::Result<Option<u64>> {
    let query = format!(
        "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn) \
         FROM pg_catalog.pg_replication_slots WHERE slot_name = '{SLOT}'"
    );
    Ok(connection.query(&query).await?.value().and_then(|bytes| bytes.parse().ok()))
}

/// (A replica that can't be asked is compared when it is taken again.)
async fn compare_collations(replication: &Replication, replica: &Replica) {
    let Site { address, user, .. } = &replica.site;
    let login = Login::new(address.clone(), user, &replication.database, "hihooi following");
    if let Ok(mut connection) = Connection::open(&login).await
        && let Ok(problem) = collations::problem(&mut connection, &replication.log).await
    {
        replica.set_unfit(problem);
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
