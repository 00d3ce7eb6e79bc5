//! A small blocking client of the wire protocol: it sends any bytes, also wrong ones, and shows
//! every message that comes back. A server that doesn't answer in time fails the test.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hihooi_wire::backend::{self, ErrorFields, tag};
use hihooi_wire::frontend::{self, Target};
use hihooi_wire::{frame, startup};
use socket2::SockRef;

use super::{HANG_S_MAX, s};

/// One message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub tag: u8,
    pub body: Vec<u8>,
}

/// Why a statement has no answer.
#[derive(Debug)]
pub enum Failure {
    /// The server said no.
    Server(ErrorFields),
    /// The connection is gone.
    Lost(std::io::Error),
}

impl Failure {
    /// SQLSTATE; empty for a lost connection.
    pub fn code(&self) -> &str {
        match self {
            Failure::Server(fields) => fields.code(),
            Failure::Lost(_) => "",
        }
    }

    /// The server's error; a lost connection fails the test.
    pub fn server(self) -> ErrorFields {
        match self {
            Failure::Server(fields) => fields,
            Failure::Lost(error) => panic!("connection lost instead of an error: {error}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Server(fields) => write!(f, "{fields}"),
            Failure::Lost(error) => write!(f, "connection lost: {error}"),
        }
    }
}

/// One row of text values.
pub type Row = Vec<Option<String>>;

/// What one statement answered.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Answer {
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
    pub command: String,
}

impl Answer {
    /// The values of the named column; the test fails when there is none.
    pub fn column(&self, name: &str) -> Vec<Option<&str>> {
        let Some(at) = self.columns.iter().position(|column| column == name) else {
            panic!("no column {name:?} in {:?}", self.columns)
        };
        self.rows.iter().map(|row| row[at].as_deref()).collect()
    }

    /// The rows as maps from column to value, NULL as empty text.
    pub fn records(&self) -> Vec<BTreeMap<String, String>> {
        let record = |row: &Row| {
            let values = row.iter().map(|value| value.clone().unwrap_or_default());
            self.columns.iter().cloned().zip(values).collect()
        };
        self.rows.iter().map(record).collect()
    }
}

/// An open session.
pub struct Session {
    stream: TcpStream,
    input: BytesMut,
    /// Number and secret that a cancel request must show.
    pub key: (i32, Vec<u8>),
    /// The messages of start-up, in their order.
    pub greeting: Vec<Message>,
    /// Notices since the session began.
    pub notices: Vec<ErrorFields>,
    /// Channel and payload of each notification.
    pub notifications: Vec<(String, String)>,
    /// The process number in each.
    pub notifiers: Vec<i32>,
    /// Status byte of the last ReadyForQuery.
    pub status: char,
    /// What was sent last, for the message of a hang.
    asked: String,
}

impl Session {
    /// Opens a session and waits until it is ready.
    pub fn open(port: u16, parameters: &[(&str, &str)]) -> Result<Session, Failure> {
        let mut out = BytesMut::new();
        startup::startup(parameters.iter().copied(), &mut out);
        Session::open_with(port, &out)
    }

    /// Opens a connection with any first packet and waits until the session is ready.
    pub fn open_with(port: u16, first: &[u8]) -> Result<Session, Failure> {
        let mut session = Session::bare(port).map_err(Failure::Lost)?;
        session.send(first).map_err(Failure::Lost)?;
        loop {
            let message = session.next().map_err(Failure::Lost)?;
            session.greeting.push(message.clone());
            match message.tag {
                tag::BACKEND_KEY_DATA => {
                    let process = message.body.first_chunk().expect("a process id");
                    let secret = message.body[4..].to_vec();
                    session.key = (i32::from_be_bytes(*process), secret);
                }
                tag::ERROR => {
                    let fields = ErrorFields::read(&message.body).expect("an error's fields");
                    return Err(Failure::Server(fields));
                }
                tag::READY_FOR_QUERY => return Ok(session),
                _ => {}
            }
        }
    }

    /// A connection on which nothing was sent yet.
    pub fn bare(port: u16) -> std::io::Result<Session> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(s(HANG_S_MAX)))?;
        stream.set_write_timeout(Some(s(HANG_S_MAX)))?;
        Ok(Session {
            stream,
            input: BytesMut::new(),
            key: (0, Vec::new()),
            greeting: Vec::new(),
            notices: Vec::new(),
            notifications: Vec::new(),
            notifiers: Vec::new(),
            status: '?',
            asked: String::new(),
        })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.asked = abbreviated(&bytes.escape_ascii().to_string());
        self.stream.write_all(bytes)
    }

    /// Sends bytes unless the other side takes none for so long.
    pub fn try_send(&mut self, bytes: &[u8], limit: Duration) -> std::io::Result<()> {
        self.stream.set_write_timeout(Some(limit))?;
        self.stream.write_all(bytes)
    }

    /// Closes the sending half.
    pub fn finish_sending(&self) {
        // The peer may be gone already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes the connection as a machine does that knows nothing of it any more: both ways at once, with an error.
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("an open socket");
    }

    /// The next message, whatever it is.
    pub fn next(&mut self) -> std::io::Result<Message> {
        self.next_unless_hang().unwrap_or_else(|| {
            panic!("no answer within {HANG_S_MAX} s: a hang (I8) after {}", self.asked);
        })
    }

    /// The next message; `None` if there is none for as long as only a hang takes.
    pub fn next_unless_hang(&mut self) -> Option<std::io::Result<Message>> {
        let deadline = Instant::now() + s(HANG_S_MAX);
        loop {
            match frame::whole(&self.input) {
                Ok(None) => {}
                Ok(Some((tag, bytes))) => {
                    let (len, body) = (bytes.len(), frame::body(bytes).to_vec());
                    let _ = self.input.split_to(len);
                    let message = Message { tag, body };
                    self.note(&message);
                    return Some(Ok(message));
                }
                Err(error) => panic!("the server sent bytes that are no message: {error}"),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            match self.read(left) {
                Ok(()) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return None;
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn read(&mut self, limit: Duration) -> std::io::Result<()> {
        self.stream.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            len => {
                self.input.extend_from_slice(&chunk[..len]);
                Ok(())
            }
        }
    }

    fn note(&mut self, message: &Message) {
        match message.tag {
            tag::NOTICE => {
                let fields = ErrorFields::read(&message.body).expect("a notice's fields");
                self.notices.push(fields);
            }
            tag::NOTIFICATION => {
                let process = message.body.first_chunk().expect("a process id");
                self.notifiers.push(i32::from_be_bytes(*process));
                let mut parts = message.body[4..].split(|&byte| byte == 0);
                let mut text = || String::from_utf8_lossy(parts.next().unwrap_or(b"")).into_owned();
                self.notifications.push((text(), text()));
            }
            tag::READY_FOR_QUERY => self.status = char::from(message.body[0]),
            _ => {}
        }
    }

    /// One byte that is no message: the answer to a request for encryption.
    pub fn raw_byte(&mut self) -> u8 {
        if self.input.is_empty() {
            self.read(s(HANG_S_MAX)).expect("one byte");
        }
        self.input.split_to(1)[0]
    }

    /// Everything up to the end of the connection; `None` if it stays open.
    pub fn until_closed(&mut self) -> Option<Vec<u8>> {
        let deadline = Instant::now() + s(HANG_S_MAX);
        loop {
            match self.read(deadline.saturating_duration_since(Instant::now())) {
                Ok(()) if Instant::now() < deadline => {}
                Err(error)
                    if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Some(self.input.to_vec());
                }
                _ => return None,
            }
        }
    }

    /// Collects messages up to and with the `ready`-th ReadyForQuery.
    pub fn until_ready(&mut self, ready: usize) -> std::io::Result<Vec<Message>> {
        let (mut messages, mut seen) = (Vec::new(), 0);
        while seen < ready {
            let message = self.next()?;
            seen += usize::from(message.tag == tag::READY_FOR_QUERY);
            messages.push(message);
        }
        Ok(messages)
    }

    /// Runs a text by the simple protocol: the answers in order, or the first error.
    pub fn simple(&mut self, text: &str) -> Result<Vec<Answer>, Failure> {
        let mut out = BytesMut::new();
        frontend::query(text.as_bytes(), &mut out);
        self.send(&out).map_err(Failure::Lost)?;
        self.answers()
    }

    /// Runs one statement by the extended protocol, unnamed, text values and results.
    pub fn extended(&mut self, text: &str, values: &[&str]) -> Result<Answer, Failure> {
        let mut out = BytesMut::new();
        frontend::parse(b"", text.as_bytes(), &mut out);
        frontend::bind(b"", b"", values.iter().map(|v| Some(v.as_bytes())), &mut out);
        frontend::describe(Target::Portal, b"", &mut out);
        frontend::execute(b"", 0, &mut out);
        frontend::sync(&mut out);
        self.send(&out).map_err(Failure::Lost)?;
        Ok(self.answers()?.pop().unwrap_or_default())
    }

    /// Runs statements by the extended protocol in one pipeline, that is, in front of one Sync.
    pub fn pipeline(&mut self, texts: &[impl AsRef<str>]) -> Result<Vec<Answer>, Failure> {
        let mut out = BytesMut::new();
        for text in texts {
            frontend::parse(b"", text.as_ref().as_bytes(), &mut out);
            frontend::bind(b"", b"", std::iter::empty(), &mut out);
            frontend::describe(Target::Portal, b"", &mut out);
            frontend::execute(b"", 0, &mut out);
        }
        frontend::sync(&mut out);
        self.send(&out).map_err(Failure::Lost)?;
        self.answers()
    }

    /// Collects the answers of a text that is on its way.
    pub fn answers(&mut self) -> Result<Vec<Answer>, Failure> {
        let (mut answers, mut answer, mut failed) = (Vec::new(), Answer::default(), None);
        loop {
            let message = match self.next() {
                Ok(message) => message,
                Err(lost) => return Err(failed.unwrap_or(Failure::Lost(lost))),
            };
            match message.tag {
                tag::ROW_DESCRIPTION => {
                    let columns = backend::read_row_description(&message.body).expect("columns");
                    answer.columns = columns.into_iter().map(|(name, _)| name).collect();
                }
                tag::DATA_ROW => answer.rows.push(text_row(&message.body)),
                tag::COMMAND_COMPLETE => {
                    answer.command = String::from_utf8_lossy(message.body.trim_ascii_end())
                        .trim_end_matches('\0')
                        .to_owned();
                    answers.push(std::mem::take(&mut answer));
                }
                tag::ERROR if failed.is_none() => {
                    let fields = ErrorFields::read(&message.body).expect("an error's fields");
                    failed = Some(Failure::Server(fields));
                }
                tag::COPY_IN => {
                    let mut out = BytesMut::new();
                    frontend::copy_fail("no data expected", &mut out);
                    self.send(&out).map_err(Failure::Lost)?;
                }
                tag::READY_FOR_QUERY => return failed.map_or(Ok(answers), Err),
                _ => {}
            }
        }
    }

    /// Runs statements that must succeed; the last answer.
    pub fn run(&mut self, text: &str) -> Answer {
        match self.simple(text) {
            Ok(mut answers) => answers.pop().unwrap_or_default(),
            Err(failure) => panic!("{}: {failure}", abbreviated(text)),
        }
    }

    /// The first value of the last statement; NULL is the text `NULL`.
    pub fn value(&mut self, text: &str) -> String {
        let answer = self.run(text);
        let Some(row) = answer.rows.first() else { panic!("{}: no row", abbreviated(text)) };
        row[0].clone().unwrap_or_else(|| "NULL".to_owned())
    }

    /// The first value as a number.
    pub fn number(&mut self, text: &str) -> i64 {
        let value = self.value(text);
        value.parse().unwrap_or_else(|_| panic!("{}: {value} is no number", abbreviated(text)))
    }

    /// Runs a statement that must fail; its error.
    pub fn error(&mut self, text: &str) -> ErrorFields {
        match self.simple(text) {
            Ok(_) => panic!("{}: succeeded instead of failing", abbreviated(text)),
            Err(failure) => failure.server(),
        }
    }

    /// Asks for cancellation of what this session runs, over a connection of its own.
    pub fn cancel(&self) {
        cancel(self.stream.peer_addr().expect("connected").port(), &self.key);
    }

    /// Where the previous statement ran and why, as fields of `SHOW hihooi.last_route`.
    pub fn route(&mut self) -> Route {
        if super::target_is_plain() {
            return Route { text: "plain server".to_owned(), fields: BTreeMap::new() };
        }
        let text = self.value("SHOW hihooi.last_route");
        let field = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Route { fields: text.split_whitespace().filter_map(field).collect(), text }
    }

    /// Ends the session in good order.
    pub fn close(mut self) {
        let mut out = BytesMut::new();
        frontend::terminate(&mut out);
        // The peer may be gone already; then there is nothing left to close.
        let _ = self.send(&out);
    }
}

/// Sends a cancel request and waits for the server to close.
pub fn cancel(port: u16, key: &(i32, Vec<u8>)) {
    let mut session = Session::bare(port).expect("a connection for the cancel request");
    let mut out = BytesMut::new();
    startup::cancel(key.0, &key.1, &mut out);
    session.send(&out).expect("cancel request sent");
    match session.next_unless_hang() {
        Some(Err(_)) => {}
        other => panic!("a cancel request is answered by closing only, not by {other:?} (I1)"),
    }
}

/// What `SHOW hihooi.last_route` says.
#[derive(Debug, Clone)]
pub struct Route {
    pub text: String,
    fields: BTreeMap<String, String>,
}

impl Route {
    /// A field's value, or empty text.
    pub fn get(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }

    /// The site it ran at.
    pub fn site(&self) -> &str {
        self.get("site")
    }

    /// Why there.
    pub fn reason(&self) -> &str {
        self.get("reason")
    }
}

fn text_row(body: &[u8]) -> Row {
    let values = backend::read_data_row(body).expect("a row");
    values.into_iter().map(|v| v.map(|v| String::from_utf8_lossy(v).into_owned())).collect()
}

fn abbreviated(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
