//! Keeps what is known of each replica's objects up to date: reads them when it has applied all DDL, and matches them
//! with the primary's.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hihooi_postgres::connection::{Connection, Result};
use hihooi_postgres::site::Replica;
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::Items;
use hihooi_session::events::Outcome;
use hihooi_session::own_types::Objects;
use hihooi_session::sites::SiteId;
use hihooi_sql::catalog_queries;
use tracing::debug;

use crate::objects::{NamedObjects, ObjectsAt};
use crate::relay::Relay;

/// After a failure at the replica.
const RETRY: Duration = Duration::from_millis(200);
/// How often a replica is looked at whose schema didn't change: its applier may have begun anew.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked at whether the stream has passed a position.
const PASSED_EVERY: Duration = Duration::from_millis(50);

/// Keeps what is known of a replica's objects up to date.
pub async fn keep(relay: Rc<Relay>, number: usize) {
    let (site, replica) = (SiteId::Replica(number), relay.replicas[number].clone());
    // A connection, kept while the schema goes on changing, and of which round it is.
    let mut idle = None;
    loop {
        let is_set = relay.catalog_set.notified();
        match relay.schema() {
            Some((changes, changed_at, primarys)) if relay.objects_at(site).is_none() => {
                let found = tokio::select! {
                    found = load(&relay, (site, &replica), (changes, changed_at), &primarys, &mut idle) => found,
                    _ = replica.silenced() => Ok(None),
                };
                match found {
                    // The catalogs were of the same schema only if that hasn't changed meanwhile.
                    Ok(Some((round, objects))) => {
                        let found = ObjectsAt { changes, round, objects: Arc::new(objects) };
                        *relay.objects[number].borrow_mut() = Some(found);
                        relay.changed.notify_waiters();
                    }
                    Ok(None) => tokio::time::sleep(RETRY).await,
                    Err(error) => {
                        debug!(site = replica.site.name, %error, "its objects can't be read");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
            _ => {
                let is_quiet = tokio::time::timeout(LOOK_EVERY, is_set).await.is_err();
                if let Some((_, connection)) = idle.take_if(|_| is_quiet) {
                    connection.close().await;
                }
            }
        }
    }
}

/// Reads a replica's objects when it has applied all DDL; of which round of its appliers they are.
async fn load(
    relay: &Relay,
    (site, replica): (SiteId, &Replica),
    (changes, changed_at): (u64, Tsid),
    primarys: &NamedObjects,
    idle: &mut Option<(u64, Connection)>,
) -> Result<Option<(u64, Objects)>> {
    let round = replica.rounds();
    let mut progress = replica.progress();
    while !(replica.state().is_readable() && replica.applied() >= changed_at) {
        if tokio::time::timeout(LOOK_EVERY, progress.changed()).await.is_err() {
            return Ok(None);
        }
    }
    if relay.schema().is_none_or(|(now, ..)| now != changes) {
        return Ok(None);
    }
    // One that fails isn't kept, nor one of another round, which may be to another server.
    let mut connection = match idle.take() {
        Some((of, connection)) if of == round => connection,
        _ => {
            let login = relay.login(site, "hihooi objects");
            let login = login.with_all(&catalog_queries::SETTINGS);
            let mut connection = Connection::open(&login).await?;
            NamedObjects::prepare(&mut connection).await?;
            connection
        }
    };
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let named = NamedObjects::read(&mut connection).await?;
    connection.query("COMMIT").await?;
    *idle = Some((round, connection));
    passed_now(relay).await;
    Ok(Some((round, primarys.matched(&named))))
}

/// Waits until the stream has told all that any site shows now.
async fn passed_now(relay: &Relay) {
    let look = relay.begin_write(Items::Nothing);
    relay.end_write(look, Outcome::Unidentified);
    while relay.freshness.borrow().is_unresolved(look) {
        // It may be told while we look.
        let _ = tokio::time::timeout(PASSED_EVERY, relay.changed.notified()).await;
    }
}
