//! `hihooi verify`: makes the running manager compare the replicas with the primary, through the admin
//! database, and prints the result.

use std::process::ExitCode;

use hihooi_postgres::cluster::plain;
use hihooi_postgres::connection::{Connection, Error, Login};
use hihooi_wire::backend::{self, ErrorFields, tag};
use hihooi_wire::{ProtocolError, frontend};

use crate::cli::VerifyArgs;
use crate::failure::{Failure, Result};

/// The admin database.
const ADMIN_DATABASE: &str = "hihooi";
/// The column of a result row that tells whether its replica is equal.
const VERDICT_COLUMN: &str = "result";
/// What it says then.
const EQUAL: &str = "equal";

/// Runs the command; the exit status is 0 equal, 1 different, 2 not compared.
#[must_use]
pub fn run(args: &VerifyArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let verified = runtime.map_err(Failure::new).and_then(|it| it.block_on(verify(args)));
    match verified {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("hihooi: {failure}");
            ExitCode::from(2)
        }
    }
}

async fn verify(args: &VerifyArgs) -> Result<bool> {
    let mut admin = Admin::connect(args).await?;
    let table = admin.query("VERIFY").await?;
    print!("{}", table.to_text());
    table.is_equal()
}

/// A result, as text.
#[derive(Debug, Default)]
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn is_equal(&self) -> Result<bool> {
        let at = self.columns.iter().position(|column| column == VERDICT_COLUMN);
        let at = at.ok_or_else(|| Failure::new("the manager sent no result"))?;
        Ok(self.rows.iter().all(|row| row.get(at).is_some_and(|value| value == EQUAL)))
    }

    /// Columns of equal width, as psql prints them.
    fn to_text(&self) -> String {
        let lines = || std::iter::once(&self.columns).chain(&self.rows);
        let width = |at: usize| lines().filter_map(|l| l.get(at)).map(|v| v.chars().count()).max();
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| width(at).unwrap_or(0)).collect();
        let mut text = String::new();
        for line in lines() {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A session with the admin database.
struct Admin(Connection);

impl Admin {
    async fn connect(args: &VerifyArgs) -> Result<Admin> {
        let address = args.ssl.address(&args.listen)?;
        let login = Login {
            address: address.clone(),
            user: args.user.clone(),
            database: ADMIN_DATABASE.to_owned(),
            parameters: vec![("application_name".to_owned(), "hihooi verify".to_owned())],
            secret: None,
        };
        let opened = Connection::open(&login).await;
        opened.map(Admin).map_err(|error| match error {
            Error::Server(fields) => Failure::new(fields.message()),
            Error::Lost { source, .. } => {
                let error = plain(&source);
                Failure::new(format!("no manager at {address}: {error}; is `hihooi up` running?"))
            }
            other => Failure::new(other),
        })
    }

    /// Reads up to ReadyForQuery; notices are printed as they come.
    async fn query(&mut self, text: &str) -> Result<Table> {
        let mut table = Table::default();
        let Admin(connection) = self;
        frontend::query(text.as_bytes(), connection.buffer());
        connection.flush().await.map_err(lost)?;
        loop {
            let message = connection.next_or_notice().await.map_err(lost)?;
            let (body, bad) = (&message.body, |error: ProtocolError| Failure::new(error));
            match message.tag {
                tag::NOTICE => println!("{}", ErrorFields::read(body).map_err(bad)?.message()),
                tag::ROW_DESCRIPTION => {
                    let columns = backend::read_row_description(body).map_err(bad)?;
                    table.columns = columns.into_iter().map(|(name, _)| name).collect();
                }
                tag::DATA_ROW => {
                    let row = backend::read_data_row(body).map_err(bad)?;
                    let text =
                        |v: Option<&[u8]>| String::from_utf8_lossy(v.unwrap_or_default()).into();
                    table.rows.push(row.into_iter().map(text).collect());
                }
                tag::ERROR => {
                    return Err(Failure::new(ErrorFields::read(body).map_err(bad)?.message()));
                }
                tag::READY_FOR_QUERY => return Ok(table),
                _ => {}
            }
        }
    }
}

fn lost(error: Error) -> Failure {
    match error {
        Error::Lost { source, .. } => Failure::new(format!("lost the manager: {}", plain(&source))),
        other => Failure::new(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 2]]) -> Table {
        Table {
            columns: vec!["replica".to_owned(), VERDICT_COLUMN.to_owned()],
            rows: rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect(),
        }
    }

    #[test]
    fn one_different_replica_makes_the_whole_different() {
        let equal = [["replica1", "equal"], ["replica2", "equal"]];
        assert_eq!(table(&equal).is_equal(), Ok(true));
        let different = [["replica1", "equal"], ["replica2", "different"]];
        assert_eq!(table(&different).is_equal(), Ok(false));
        assert!(Table::default().is_equal().is_err(), "no result is no equality");
    }

    #[test]
    fn results_are_aligned() {
        let text = table(&[["replica1", "equal"]]).to_text();
        assert_eq!(text, "replica   result\nreplica1  equal\n");
    }
}
