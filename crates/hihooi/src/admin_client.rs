//! A client of the admin database of a running manager: over the network, or through the socket in its data directory.

use std::io::ErrorKind;
use std::time::Duration;

use hihooi_postgres::cluster::{file_error, plain};
use hihooi_postgres::connection::{Address, Connection, Error, Login};
use hihooi_postgres::socket::Socket;
use hihooi_wire::backend::{self, ErrorFields, tag};
use hihooi_wire::{ProtocolError, frontend};
use tokio::net::UnixStream;

use crate::admin_socket;
use crate::data_dir::DataDir;
use crate::failure::{Failure, Result};

/// The admin database.
const ADMIN_DATABASE: &str = "hihooi";
/// At the socket in the data directory, any role may use it.
const LOCAL_USER: &str = "hihooi";

/// A result, as text.
#[derive(Debug, Default)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Values; NULL is an empty text.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns of equal width, as psql prints them.
    #[must_use]
    pub fn to_text(&self) -> String {
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
pub struct Admin {
    connection: Connection,
    /// How long each answer may take.
    limit: Option<Duration>,
}

impl Admin {
    /// A session of a role with the manager at an address.
    ///
    /// # Errors
    /// None can be reached, or it refuses.
    pub async fn connect(address: Address, user: &str, application: &str) -> Result<Admin> {
        let login = login(address, user, application);
        let opened = Connection::open(&login).await.map_err(|error| match error {
            Error::Server(fields) => Failure::new(fields.message()),
            Error::Lost { source, address } => {
                let error = plain(&source);
                Failure::new(format!("no manager at {address}: {error}; is `hihooi up` running?"))
            }
            other => Failure::new(other),
        });
        Ok(Admin { connection: opened?, limit: None })
    }

    /// A session with the manager of a data directory, as the user who runs it. The limit is for each answer.
    ///
    /// # Errors
    /// None can be reached.
    pub async fn at(data: &DataDir, application: &str, limit: Option<Duration>) -> Result<Admin> {
        let path = admin_socket::path(data);
        let stream = UnixStream::connect(&path).await.map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::PermissionDenied => "do this as the user who started hihooi, or as root",
                _ => "it is not running, or is starting or stopping",
            };
            let error = file_error("connect to", &path, &error);
            Failure::new(format!("{error}; {remedy}"))
        })?;
        let address = Address::plain(path.display().to_string(), 0);
        let login = login(address, LOCAL_USER, application);
        let opened = within(limit, Connection::open_over(Socket::Unix(stream), &login)).await?;
        Ok(Admin { connection: opened.map_err(lost)?, limit })
    }

    /// Sends a command; notices are printed as they come.
    ///
    /// # Errors
    /// It is refused, or the manager is lost.
    pub async fn query(&mut self, text: &str) -> Result<Table> {
        let limit = self.limit;
        within(limit, self.answer(text)).await?
    }

    async fn answer(&mut self, text: &str) -> Result<Table> {
        let (mut table, connection) = (Table::default(), &mut self.connection);
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

fn login(address: Address, user: &str, application: &str) -> Login {
    Login {
        address,
        user: user.to_owned(),
        database: ADMIN_DATABASE.to_owned(),
        parameters: vec![("application_name".to_owned(), application.to_owned())],
        secret: None,
        is_own: false,
    }
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Result<T> {
    let limit = limit.unwrap_or(Duration::MAX);
    let done = tokio::time::timeout(limit, work).await;
    done.map_err(|_| Failure::new("the manager does not answer"))
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

    #[test]
    fn results_are_aligned() {
        let columns = vec!["replica".to_owned(), "result".to_owned()];
        let rows = vec![vec!["replica1".to_owned(), "equal".to_owned()]];
        let text = Table { columns, rows }.to_text();
        assert_eq!(text, "replica   result\nreplica1  equal\n");
    }
}
