//! The tables that the sessions use.

use hihooi_postgres::connection::{Connection, Error, Login};

use super::client::connect;
use super::workload::{Kept, TRANSACTIONS_AN_AGE};
use crate::failure::{Failure, Result};

/// Their comment, by which they are known.
const COMMENT: &str = "made by hihooi bench history";

/// Makes the tables, with the even rows of all that will be used. Those that an interrupted run left are replaced.
///
/// # Errors
/// Other tables have their names, or what the server says.
pub async fn make(login: &Login, transactions: u64, keys: i64) -> Result<()> {
    let failed = |error: Error| Failure::new(format!("the tables can't be created: {error}"));
    let mut session = Connection::open(login).await.map_err(failed)?;
    for kept in Kept::ALL {
        let table = kept.table();
        let known = session
            .query(&format!(
                "SELECT coalesce(obj_description(to_regclass('{table}'), 'pg_class'), '') \
                 WHERE to_regclass('{table}') IS NOT NULL"
            ))
            .await
            .map_err(failed)?;
        if known.value().is_some_and(|comment| comment != COMMENT) {
            return Err(Failure::new(format!(
                "the database has a table {table} that `hihooi bench history` didn't make: rename or \
                 drop it"
            )));
        }
    }
    let last = (transactions.div_ceil(TRANSACTIONS_AN_AGE) + 1) * keys.unsigned_abs();
    for kept in Kept::ALL {
        let (table, kind) = (kept.table(), kept.kind());
        let value = if kept == Kept::List { "'{}'" } else { "NULL" };
        let statements = [
            format!("DROP TABLE IF EXISTS {table}"),
            format!("CREATE TABLE {table} (k int PRIMARY KEY, v {kind})"),
            format!("COMMENT ON TABLE {table} IS '{COMMENT}'"),
            format!(
                "INSERT INTO {table} SELECT k, {value} FROM generate_series(0, {last}, 2) AS k"
            ),
        ];
        for statement in &statements {
            session.query(statement).await.map_err(failed)?;
        }
    }
    session.close().await;
    Ok(())
}

/// Drops the tables.
///
/// # Errors
/// What the server says.
pub async fn drop(login: &Login) -> Result<()> {
    let mut session = connect(login).await?;
    for kept in Kept::ALL {
        let table = kept.table();
        let dropped = session.query(&format!("DROP TABLE IF EXISTS {table}")).await;
        dropped.map_err(|error| Failure::new(format!("{table} can't be dropped: {error}")))?;
    }
    session.close().await;
    Ok(())
}
