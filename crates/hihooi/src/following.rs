//! Has the primary note what no event trigger was told of and no session of ours asked about: roles
//! and indexes that somebody changed at the primary itself (I2).

use std::time::Duration;

use hihooi_postgres::connection::{Connection, Login};
use tokio::time::sleep;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Notes what changed; a comparison of hashes if nothing did.
const FOLLOW: &str = "SELECT hihooi.follow_shared(), hihooi.follow_indexes(), hihooi.tidy()";

/// Looks again and again, on a connection of its own.
pub async fn keep_following(login: Login) {
    loop {
        let error = match Connection::open(&login).await {
            Ok(connection) => look(connection).await,
            Err(error) => error,
        };
        tracing::debug!(%error, "can't look for changed roles");
        sleep(LOOK_EVERY).await;
    }
}

async fn look(mut connection: Connection) -> hihooi_postgres::connection::Error {
    loop {
        if let Err(error) = connection.query(FOLLOW).await {
            return error;
        }
        sleep(LOOK_EVERY).await;
    }
}
