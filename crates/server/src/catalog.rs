//! The catalog by which statements are analysed: read at the start, and again after DDL.

use std::rc::Rc;
use std::time::Duration;

use hihooi_postgres::apply::visibility::Snapshot;
use hihooi_postgres::connection::{Connection, Error, GIVE_WAY, Result};
use hihooi_sql::{Catalog, catalog_queries};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::objects::NamedObjects;
use crate::outcomes::login;
use crate::relay::Relay;

/// After a failure at the primary.
const RETRY: Duration = Duration::from_millis(200);
/// When the catalog couldn't be read so often (10 s), the log says so. (What a client has locked, or changes
/// at this moment, can be read at the next.)
const FAILURES_TOLD: u32 = 40;
/// The catalog is read when no DDL came for so long, ...
const QUIET: Duration = Duration::from_millis(50);
/// ... and after so long, if there is no end to it: until then tables count as written whole.
const UNREAD_MAX: Duration = Duration::from_secs(1);
/// Between two looks whether the primary shows a change of the schema.
const SHOWN_EVERY: Duration = Duration::from_millis(2);

/// Reads the catalog at the start and whenever the stream brought DDL.
pub async fn keep(relay: Rc<Relay>, reload: Rc<Notify>) {
    let (mut version, mut failures) = (0, 0);
    let mut connection = None;
    loop {
        version += 1;
        let (changes, changed_by) = relay.catalog_changes();
        match load(&relay, &mut connection, version, changed_by).await {
            Ok((catalog, named)) => {
                if failures >= FAILURES_TOLD {
                    info!("the catalog was read");
                }
                failures = 0;
                relay.set_catalog(catalog, named, changes);
                relay.changed.notify_waiters();
                reload.notified().await;
                until_quiet(&relay, &reload).await;
            }
            Err(error) => {
                failures += 1;
                if failures == FAILURES_TOLD {
                    warn!(%error, "the catalog can't be read; reads stay on the primary");
                }
                connection = None;
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// DDL seldom comes alone, and reading the catalog costs the primary more than most of it does: waits until no
/// more comes, or somebody waits for it.
async fn until_quiet(relay: &Relay, reload: &Notify) {
    let began = tokio::time::Instant::now();
    while began.elapsed() < UNREAD_MAX {
        tokio::select! {
            biased;
            () = relay.catalog_wanted.notified() => return,
            () = reload.notified() => {}
            () = tokio::time::sleep(QUIET) => return,
        }
    }
}

async fn load(
    relay: &Relay,
    connection: &mut Option<Connection>,
    version: u64,
    changed_by: Option<u32>,
) -> Result<(Catalog, NamedObjects)> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(Connection::open(&login(relay, "hihooi catalog")).await?),
    };
    // The stream may be ahead of what the primary shows.
    while let Some(xid) = changed_by {
        let answer = connection.query("SELECT pg_catalog.pg_current_snapshot()").await?;
        let snapshot = answer.value().and_then(Snapshot::parse);
        if snapshot.is_some_and(|snapshot| snapshot.sees(snapshot.widen(xid))) {
            break;
        }
        tokio::time::sleep(SHOWN_EVERY).await;
    }
    // One snapshot, so that what refers to each other fits together.
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let mut builder = Catalog::builder();
    // Printing definitions locks what they refer to, one after the other (I7).
    connection.query(GIVE_WAY).await?;
    connection.query(catalog_queries::SETUP).await?;
    for question in catalog_queries::QUERIES {
        for row in connection.query(question.sql).await?.rows {
            let row: Vec<Option<&str>> = row.iter().map(Option::as_deref).collect();
            (question.read)(&mut builder, &row)
                .map_err(|bad| Error::Protocol(format!("{}: {bad}", question.name)))?;
        }
    }
    let named = NamedObjects::read(connection).await?;
    connection.query("COMMIT").await?;
    Ok((builder.build(version), named))
}
