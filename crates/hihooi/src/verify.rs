//! `hihooi verify`: makes the running manager compare the replicas with the primary, through the admin
//! database, and prints the result.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use hihooi_postgres::cluster::file_error;
use hihooi_wire::backend::{self, ErrorFields, tag};
use hihooi_wire::{frame, frontend, startup};

use crate::admin_socket;
use crate::cli::VerifyArgs;
use crate::config::listen_address;
use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// The admin database.
const ADMIN_DATABASE: &str = "hihooi";
/// Who connects to a data directory's own socket, where no role is asked for.
const LOCAL_USER: &str = "hihooi";
/// The column of a result row that tells whether its replica is equal.
const VERDICT_COLUMN: &str = "result";
/// What it says then.
const EQUAL: &str = "equal";

/// Runs the command; the exit status is 0 equal, 1 different, 2 not compared.
#[must_use]
pub fn run(args: &VerifyArgs) -> Exit {
    match verify(args) {
        Ok(is_equal) => Exit::answer(is_equal),
        Err(failure) => {
            eprintln!("hihooi: {failure}");
            Exit::Unknown
        }
    }
}

fn verify(args: &VerifyArgs) -> Result<bool> {
    let mut admin = match &args.data {
        Some(data) => Admin::at(&DataDir::new(data)?, "hihooi verify", None)?,
        None => Admin::connect(args)?,
    };
    let table = admin.query("VERIFY")?;
    print!("{}", table.to_text());
    table.is_equal()
}

/// A result, as text.
#[derive(Debug, Default)]
pub struct Table {
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows; NULL is empty.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn is_equal(&self) -> Result<bool> {
        let at = self.columns.iter().position(|column| column == VERDICT_COLUMN);
        let at = at.ok_or_else(|| Failure::new("the manager sent no result"))?;
        Ok(self.rows.iter().all(|row| row.get(at).is_some_and(|value| value == EQUAL)))
    }

    /// Columns of equal width, as psql prints them.
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
    stream: Box<dyn Stream>,
    input: BytesMut,
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Admin {
    fn connect(args: &VerifyArgs) -> Result<Admin> {
        let address = listen_address(&args.listen).map_err(Failure::new)?;
        let stream = TcpStream::connect(address).map_err(|error| {
            let error = hihooi_postgres::cluster::plain(&error);
            Failure::new(format!("no manager at {address}: {error}; is `hihooi up` running?"))
        })?;
        Admin::start(Box::new(stream), &args.user, "hihooi verify")
    }

    /// A session with the manager of a data directory, as the user who runs it. The limit is for each answer.
    ///
    /// # Errors
    /// None can be reached.
    pub fn at(data: &DataDir, application: &str, limit: Option<Duration>) -> Result<Admin> {
        let path = admin_socket::path(data);
        let stream = UnixStream::connect(&path).map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::PermissionDenied => "do this as the user who started hihooi, or as root",
                _ => "it is not running, or is starting or stopping",
            };
            let error = file_error("connect to", &path, &error);
            Failure::new(format!("{error}; {remedy}"))
        })?;
        stream.set_read_timeout(limit).map_err(|error| Failure::new(lost(&error)))?;
        Admin::start(Box::new(stream), LOCAL_USER, application)
    }

    fn start(stream: Box<dyn Stream>, user: &str, application: &str) -> Result<Admin> {
        let mut admin = Admin { stream, input: BytesMut::new() };
        let mut packet = BytesMut::new();
        let parameters =
            [("user", user), ("database", ADMIN_DATABASE), ("application_name", application)];
        startup::startup(parameters, &mut packet);
        admin.send(&packet)?;
        admin.answer()?;
        Ok(admin)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// It is refused, or the manager is lost.
    pub fn query(&mut self, text: &str) -> Result<Table> {
        let mut packet = BytesMut::new();
        frontend::query(text.as_bytes(), &mut packet);
        self.send(&packet)?;
        self.answer()
    }

    fn send(&mut self, packet: &[u8]) -> Result<()> {
        self.stream.write_all(packet).map_err(|error| Failure::new(lost(&error)))
    }

    /// Reads up to ReadyForQuery; notices are printed as they come.
    fn answer(&mut self) -> Result<Table> {
        let mut table = Table::default();
        loop {
            let (tag, body) = self.message()?;
            let bad = |error: hihooi_wire::ProtocolError| Failure::new(error);
            match tag {
                tag::NOTICE => println!("{}", ErrorFields::read(&body).map_err(bad)?.message()),
                tag::ROW_DESCRIPTION => {
                    let columns = backend::read_row_description(&body).map_err(bad)?;
                    table.columns = columns.into_iter().map(|(name, _)| name).collect();
                }
                tag::DATA_ROW => {
                    let row = backend::read_data_row(&body).map_err(bad)?;
                    let text =
                        |v: Option<&[u8]>| String::from_utf8_lossy(v.unwrap_or_default()).into();
                    table.rows.push(row.into_iter().map(text).collect());
                }
                tag::ERROR => {
                    return Err(Failure::new(ErrorFields::read(&body).map_err(bad)?.message()));
                }
                tag::AUTHENTICATION if body[..] != [0, 0, 0, 0] => {
                    return Err(Failure::new(
                        "the manager asks for a password: pass its data directory with --data instead",
                    ));
                }
                tag::READY_FOR_QUERY => return Ok(table),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> Result<(u8, BytesMut)> {
        loop {
            if let Some(head) = frame::peek(&self.input).map_err(Failure::new)?
                && self.input.len() >= head.len
            {
                let mut body = self.input.split_to(head.len);
                body.advance(frame::HEADER_LEN);
                return Ok((head.tag, body));
            }
            let mut some = [0; 8192];
            match self.stream.read(&mut some) {
                Ok(0) => return Err(Failure::new("the manager closed the connection")),
                Ok(len) => self.input.extend_from_slice(&some[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(Failure::new("the manager does not answer"));
                }
                Err(error) => return Err(Failure::new(lost(&error))),
            }
        }
    }
}

fn lost(error: &std::io::Error) -> String {
    format!("lost the manager: {}", hihooi_postgres::cluster::plain(error))
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
