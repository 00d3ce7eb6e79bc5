//! A connection of the manager's own to a PostgreSQL server: for its queries, the replication stream, and
//! appliers. (Clients' statements use the relay's sockets instead.)
//!
//! All values are in text format. Messages can be pipelined: write into [`Connection::buffer`], call
//! [`Connection::flush`], then read answers with [`Connection::next`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hihooi_replication::text::text_of;
use hihooi_wire::backend::{self, ErrorFields, Status, tag};
use hihooi_wire::{ProtocolError, frame, frontend, startup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::login::{Prover, Secret};
use crate::socket::Socket;
use crate::tls::{self, Connector, Mode};

/// How long a server may take to accept a connection and finish start-up.
const CONNECT_MS_MAX: u64 = 10_000;
/// How long a server may take to carry out a cancel request.
const CANCEL_MS_MAX: u64 = 2_000;
/// SQLSTATE of a connection that the rules of `pg_hba.conf` don't allow.
const NOT_ALLOWED: &str = "28000";
/// Read this much at once.
const READ_LEN: usize = 64 * 1024;

/// Where a server listens, and how connections to it are encrypted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Host name, IP address, or the directory of a Unix socket, which begins with a slash.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What encrypts connections, if anything.
    pub tls: Connector,
}

impl Address {
    /// One whose connections are not encrypted.
    #[must_use]
    pub fn plain(host: impl Into<String>, port: u16) -> Address {
        Address { host: host.into(), port, tls: Connector::disabled() }
    }

    /// The path of the Unix socket that it is, if it is one.
    #[must_use]
    pub fn unix_socket(&self) -> Option<PathBuf> {
        let is_directory = self.host.starts_with('/');
        is_directory.then(|| Path::new(&self.host).join(format!(".s.PGSQL.{}", self.port)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Why a connection or a statement failed, by what the caller must do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error; the connection can be used further, unless the error was fatal.
    #[error("{0}")]
    Server(Box<ErrorFields>),
    /// The connection is gone.
    #[error("connection to {address} lost: {source}")]
    Lost {
        /// The server.
        address: Address,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// It would not be protected as its settings ask for.
    #[error("{address}: {why}")]
    Encryption {
        /// The server.
        address: Address,
        /// In one line.
        why: String,
    },
    /// The server speaks something else than the protocol.
    #[error("unexpected answer from the server: {0}")]
    Protocol(String),
}

impl Error {
    /// SQLSTATE of a server's error.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Server(fields) => Some(fields.code()),
            _ => None,
        }
    }
}

impl From<ProtocolError> for Error {
    fn from(error: ProtocolError) -> Error {
        Error::Protocol(error.to_string())
    }
}

/// Lets a transaction that holds locks give up waiting for another one: with 55P03, long before a client
/// with which it waits in a circle is ended by PostgreSQL, after `deadlock_timeout` (1 s by default; manual,
/// chapter 20.12).
pub const GIVE_WAY: &str = "SET LOCAL lock_timeout = '50ms'";
/// SQLSTATE of a lock that was not to be had in time.
pub const LOCK_NOT_AVAILABLE: &str = "55P03";
/// SQLSTATE of what PostgreSQL holds impossible: code that refers to an object that is no more, for example.
pub const INTERNAL_ERROR: &str = "XX000";

/// The result of talking to a server.
pub type Result<T> = std::result::Result<T, Error>;

/// Number and cancel key of a server's backend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackendKey {
    /// Process id of the backend.
    pub process: i32,
    /// Its cancel key.
    pub secret: Vec<u8>,
}

/// One row of text values.
pub type Row = Vec<Option<String>>;

/// An open session, taken apart.
#[derive(Debug)]
pub struct Parts {
    /// The socket.
    pub stream: Socket,
    /// Bytes that came from the server and were not looked at yet.
    pub input: BytesMut,
    /// Number and cancel key of the backend.
    pub key: BackendKey,
    /// Parameters that the server reported, names and values.
    pub parameters: Vec<(String, String)>,
}

/// What one statement answered.
#[derive(Debug, Default, Clone)]
pub struct Answer {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Command tag, such as `UPDATE 1`.
    pub command: String,
}

impl Answer {
    /// The value of the first column of the first row.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.rows.first().and_then(|row| row.first()).and_then(|value| value.as_deref())
    }

    /// Rows affected, from the command tag.
    #[must_use]
    pub fn affected(&self) -> Option<u64> {
        backend::rows_of(&self.command)
    }
}

/// One message of a server.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its type (see [`hihooi_wire::backend::tag`]).
    pub tag: u8,
    /// Its body.
    pub body: Bytes,
}

/// What a connection is opened with.
#[derive(Clone, Debug)]
pub struct Login {
    /// The server.
    pub address: Address,
    /// Role.
    pub user: String,
    /// Database.
    pub database: String,
    /// Further start-up parameters, such as `application_name`, `options`, `replication`.
    pub parameters: Vec<(String, String)>,
    /// What proves the role if the server asks for that; without it, the password file.
    pub secret: Option<Arc<Secret>>,
    /// It is of hihooi itself, not for a client: what the server, the database or the role limits doesn't end it.
    pub is_own: bool,
}

impl Login {
    /// A login with no schema in its `search_path` but PostgreSQL's own: our sessions are
    /// superusers', and nobody who may make operators or functions elsewhere can have them run
    /// there (manual, chapter 5.9.3). It may write, also at replicas, which are read-only for others, and no client's serializable
    /// transaction fails because of it.
    #[must_use]
    pub fn new(address: Address, user: &str, database: &str, application: &str) -> Login {
        Login {
            address,
            user: user.to_owned(),
            database: database.to_owned(),
            parameters: Vec::new(),
            secret: None,
            is_own: true,
        }
        .with("application_name", application)
        .with_all(&UNLIMITED)
        .with("search_path", "pg_catalog")
        .with("default_transaction_read_only", "off")
        .with("default_transaction_isolation", "read committed")
        .with("role", "none")
    }

    /// Adds start-up parameters.
    #[must_use]
    pub fn with_all(self, parameters: &[(&str, &str)]) -> Login {
        parameters.iter().fold(self, |login, (name, value)| login.with(name, value))
    }

    /// Adds a start-up parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Login {
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Our connections have no such limits, whatever the server, the database or the role has.
const UNLIMITED: [(&str, &str); 4] = [
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];
/// The first major version with `transaction_timeout`.
const TRANSACTION_TIMEOUT_SINCE: u32 = 17;

/// An open session on a server.
pub struct Connection {
    address: Address,
    stream: Socket,
    input: BytesMut,
    output: BytesMut,
    key: BackendKey,
    parameters: Vec<(String, String)>,
    status: Status,
    /// The names of statements that the server has prepared.
    prepared: Vec<&'static str>,
}

impl Connection {
    /// Opens a session and waits until it is ready.
    ///
    /// # Errors
    /// The server's own error, or [`Error::Lost`] when it can't be reached within 10 s.
    pub async fn open(login: &Login) -> Result<Connection> {
        let lost = |source| Error::Lost { address: login.address.clone(), source };
        let limit = Duration::from_millis(CONNECT_MS_MAX);
        match tokio::time::timeout(limit, Connection::start(login)).await {
            Ok(opened) => opened,
            Err(_) => Err(lost(std::io::ErrorKind::TimedOut.into())),
        }
    }

    async fn start(login: &Login) -> Result<Connection> {
        let stream = tls::connect(&login.address, Some(&login.user)).await?;
        let may_be_plain =
            login.address.tls.mode() == Mode::Prefer && matches!(stream, Socket::Tls(_));
        let mut prover = Prover::new(login, stream.end_point());
        match Connection::start_over(stream, login, &mut prover).await {
            // As libpq, for a server whose rules allow this role without TLS only.
            Err(error)
                if may_be_plain && !prover.was_asked() && error.code() == Some(NOT_ALLOWED) =>
            {
                let again = async {
                    let stream = tls::connect_plainly(&login.address).await?;
                    Connection::start_over(stream, login, &mut Prover::new(login, None)).await
                };
                again.await.map_err(|_| error)
            }
            started => started,
        }
    }

    /// Opens a session over a connection that is open, and waits until it is ready.
    ///
    /// # Errors
    /// The server's own error, or that it is lost.
    pub async fn open_over(stream: Socket, login: &Login) -> Result<Connection> {
        let mut prover = Prover::new(login, stream.end_point());
        Connection::start_over(stream, login, &mut prover).await
    }

    async fn start_over(
        stream: Socket,
        login: &Login,
        prover: &mut Prover<'_>,
    ) -> Result<Connection> {
        let mut connection = Connection {
            address: login.address.clone(),
            stream,
            input: BytesMut::with_capacity(READ_LEN),
            output: BytesMut::new(),
            key: BackendKey::default(),
            parameters: Vec::new(),
            status: Status::Idle,
            prepared: Vec::new(),
        };
        let fixed = [("user", login.user.as_str()), ("database", login.database.as_str())];
        let further = login.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        startup::startup(fixed.into_iter().chain(further), &mut connection.output);
        connection.flush().await?;
        connection.finish_startup(prover).await?;
        // Earlier versions don't know it, and would refuse it among the start-up parameters.
        if login.is_own && connection.major_version() >= TRANSACTION_TIMEOUT_SINCE {
            connection.simple("SET transaction_timeout = 0").await?;
        }
        Ok(connection)
    }

    async fn finish_startup(&mut self, prover: &mut Prover<'_>) -> Result<()> {
        loop {
            let message = self.next().await?;
            match message.tag {
                tag::AUTHENTICATION => {
                    prover.answer(&message.body, &mut self.output)?;
                    self.flush().await?;
                }
                tag::BACKEND_KEY_DATA => {
                    let mut body = message.body;
                    if body.len() < 8 {
                        return Err(Error::Protocol("short BackendKeyData".to_owned()));
                    }
                    self.key = BackendKey { process: body.get_i32(), secret: body.to_vec() };
                }
                tag::ERROR => return Err(server_error(&message.body)),
                tag::READY_FOR_QUERY => return Ok(()),
                _ => {}
            }
        }
    }

    /// The server's major version, as it reported; 0 if it didn't.
    #[must_use]
    pub fn major_version(&self) -> u32 {
        let version = self.parameter("server_version").unwrap_or_default();
        let digits = version.bytes().take_while(u8::is_ascii_digit).count();
        version[..digits].parse().unwrap_or_default()
    }

    /// The version of TLS, if the connection is encrypted.
    #[must_use]
    pub fn tls_version(&self) -> Option<&'static str> {
        self.stream.tls_version()
    }

    /// What another process of the server does or waits for, in a few words for people.
    ///
    /// # Errors
    /// The server's own error, or that it is lost.
    pub async fn activity_of(&mut self, process: i32) -> Result<String> {
        let query = "select pg_catalog.concat_ws(', ', 'process ' || pid || ' is ' || state,
                'waits for ' || wait_event_type || ' ' || wait_event,
                'behind process ' || nullif(pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(pid), ', '), ''),
                'with ' || pg_catalog.left(pg_catalog.regexp_replace(query, '[[:space:]]+', ' ', 'g'), 100))
            from pg_catalog.pg_stat_activity where pid = $1::int";
        let answer = self.query_with(query, &[Some(&process.to_string())]).await?;
        let found = answer.rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
        Ok(found.unwrap_or_else(|| format!("process {process} is gone")))
    }

    /// Number and cancel key of the backend.
    #[must_use]
    pub fn key(&self) -> &BackendKey {
        &self.key
    }

    /// The server.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The last value the server reported of a parameter, such as `server_version`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Transaction status after the last ReadyForQuery.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Where messages to the server are written; [`Connection::flush`] sends them.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// Sends what is in the buffer.
    pub async fn flush(&mut self) -> Result<()> {
        let sent = async {
            self.stream.write_all(&self.output).await?;
            self.stream.flush().await // TLS may hold something back
        };
        let sent = sent.await;
        self.output.clear();
        sent.map_err(|source| self.lost(source))
    }

    /// The next message, notices and parameter changes aside. Cancel-safe.
    pub async fn next(&mut self) -> Result<Message> {
        loop {
            let message = self.next_or_notice().await?;
            if message.tag != tag::NOTICE {
                return Ok(message);
            }
        }
    }

    /// The next message, parameter changes aside. Cancel-safe.
    pub async fn next_or_notice(&mut self) -> Result<Message> {
        loop {
            while let Some(message) = self.buffered()? {
                match message.tag {
                    tag::NOTIFICATION => {}
                    tag::PARAMETER_STATUS => self.keep_parameter(&message.body)?,
                    tag::READY_FOR_QUERY => {
                        self.status = message
                            .body
                            .first()
                            .and_then(|&byte| Status::from_byte(byte))
                            .ok_or_else(|| Error::Protocol("bad ReadyForQuery".to_owned()))?;
                        return Ok(message);
                    }
                    _ => return Ok(message),
                }
            }
            self.read().await?;
        }
    }

    /// The next message if it has arrived already (see [`Connection::next`]); never waits.
    pub fn next_buffered(&mut self) -> Result<Option<Message>> {
        loop {
            let Some(message) = self.buffered()? else { return Ok(None) };
            match message.tag {
                tag::NOTICE | tag::NOTIFICATION => {}
                tag::PARAMETER_STATUS => self.keep_parameter(&message.body)?,
                _ => return Ok(Some(message)),
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Message>> {
        let Some(head) = frame::peek(&self.input)? else { return Ok(None) };
        if self.input.len() < head.len {
            self.input.reserve(head.len - self.input.len());
            return Ok(None);
        }
        let mut message = self.input.split_to(head.len).freeze();
        message.advance(frame::HEADER_LEN);
        Ok(Some(Message { tag: head.tag, body: message }))
    }

    async fn read(&mut self) -> Result<()> {
        self.input.reserve(READ_LEN);
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err(self.lost(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(source) => Err(self.lost(source)),
        }
    }

    fn keep_parameter(&mut self, body: &[u8]) -> Result<()> {
        let (name, value) = backend::read_parameter_status(body)?;
        self.parameters.retain(|(n, _)| *n != name);
        self.parameters.push((name, value));
        Ok(())
    }

    fn lost(&self, source: std::io::Error) -> Error {
        Error::Lost { address: self.address.clone(), source }
    }

    /// Runs one or several statements by the simple protocol; the answers in order.
    pub async fn simple(&mut self, text: &str) -> Result<Vec<Answer>> {
        frontend::query(text.as_bytes(), &mut self.output);
        self.flush().await?;
        self.answers().await
    }

    /// Runs one or several statements and returns the last answer.
    pub async fn query(&mut self, text: &str) -> Result<Answer> {
        Ok(self.simple(text).await?.pop().unwrap_or_default())
    }

    /// Runs one statement with text values for `$1`, `$2` … (unnamed statement).
    pub async fn query_with(&mut self, text: &str, values: &[Option<&str>]) -> Result<Answer> {
        frontend::parse(b"", text.as_bytes(), &mut self.output);
        self.run(b"", values).await
    }

    /// The same with a statement that is prepared under this name when it is asked first, and stays so: planning it takes
    /// longer than running it.
    ///
    /// # Errors
    /// The server's own error, or that the connection is lost.
    pub async fn query_prepared(
        &mut self,
        (name, text): (&'static str, &str),
        values: &[Option<&str>],
    ) -> Result<Answer> {
        if !self.prepared.contains(&name) {
            // It may be there, if the first query failed behind its Parse.
            frontend::close(frontend::Target::Statement, name.as_bytes(), &mut self.output);
            frontend::parse(name.as_bytes(), text.as_bytes(), &mut self.output);
        }
        let answer = self.run(name.as_bytes(), values).await?;
        if !self.prepared.contains(&name) {
            self.prepared.push(name);
        }
        Ok(answer)
    }

    /// Runs a prepared statement, behind what stands in the buffer.
    async fn run(&mut self, statement: &[u8], values: &[Option<&str>]) -> Result<Answer> {
        let values = values.iter().map(|value| value.map(str::as_bytes));
        frontend::bind(b"", statement, values, &mut self.output);
        frontend::describe(frontend::Target::Portal, b"", &mut self.output);
        frontend::execute(b"", 0, &mut self.output);
        frontend::sync(&mut self.output);
        self.flush().await?;
        Ok(self.answers().await?.pop().unwrap_or_default())
    }

    /// Collects answers up to ReadyForQuery; the first error, if any, is the result.
    pub async fn answers(&mut self) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        let mut current = Answer::default();
        let mut failed = None;
        loop {
            let message = self.next().await?;
            match message.tag {
                tag::ROW_DESCRIPTION => {
                    let columns = backend::read_row_description(&message.body)?;
                    current.columns = columns.into_iter().map(|(name, _)| name).collect();
                }
                tag::DATA_ROW => current.rows.push(text_row(&message.body)?),
                tag::COMMAND_COMPLETE => {
                    current.command = backend::read_command_complete(&message.body)?.to_owned();
                    answers.push(std::mem::take(&mut current));
                }
                tag::ERROR => {
                    failed.get_or_insert_with(|| server_error(&message.body));
                }
                tag::COPY_IN => {
                    frontend::copy_fail("no COPY data expected", &mut self.output);
                    self.flush().await?;
                }
                tag::READY_FOR_QUERY => return failed.map_or(Ok(answers), Err),
                _ => {}
            }
        }
    }

    /// Takes the open session apart, for a relay that moves its bytes itself.
    #[must_use]
    pub fn into_parts(self) -> Parts {
        Parts { stream: self.stream, input: self.input, key: self.key, parameters: self.parameters }
    }

    /// Ends the session in good order.
    pub async fn close(mut self) {
        frontend::terminate(&mut self.output);
        // The peer may be gone already; then there is nothing left to close.
        let _ = self.flush().await;
        let _ = self.stream.shutdown().await;
    }
}

/// Asks a server to cancel what a backend runs, and waits until it has done so, which may have been too late. The
/// request is encrypted as other connections are: it contains the backend's cancel key.
///
/// # Errors
/// The server can't be reached.
pub async fn cancel(address: &Address, key: &BackendKey) -> Result<()> {
    let lost = |source| Error::Lost { address: address.clone(), source };
    let mut stream = tls::connect(address, None).await?;
    let mut packet = BytesMut::new();
    startup::cancel(key.process, &key.secret, &mut packet);
    stream.write_all(&packet).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    // The server closes the connection when it has sent the signal.
    let limit = Duration::from_millis(CANCEL_MS_MAX);
    let _ = tokio::time::timeout(limit, stream.read(&mut [0])).await;
    Ok(())
}

/// Characters that are kept of what a server says in an error: functions may raise messages of any length, and they are
/// logged and shown.
const MESSAGE_LEN_MAX: usize = 2_000;

/// The error in a server's ErrorResponse.
#[must_use]
pub fn server_error(body: &[u8]) -> Error {
    match ErrorFields::read(body) {
        Ok(mut fields) => {
            for (_, text) in &mut fields.fields {
                if let Some((end, _)) = text.char_indices().nth(MESSAGE_LEN_MAX) {
                    text.replace_range(end.., " …");
                }
            }
            Error::Server(Box::new(fields))
        }
        Err(error) => error.into(),
    }
}

fn text_row(body: &[u8]) -> Result<Row> {
    let values = backend::read_data_row(body)?;
    Ok(values.into_iter().map(|value| value.map(text_of)).collect())
}
