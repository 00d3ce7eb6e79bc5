//! The admin database `hihooi`: a client connects to it as to any database, by the simple or the extended
//! protocol, and sends commands instead of SQL (`commands`).

mod commands;
mod shows;
mod table;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use hihooi_postgres::control::{ControlRequest, NEWS_MAX, News};
use hihooi_postgres::verify;
use hihooi_wire::backend::{self, Report, Severity, Status, tag as server_tag};
use hihooi_wire::frontend::{self, Parse, Target, tag};
use tokio::sync::{mpsc, oneshot};

use self::commands::{Action, COMMANDS, Command, words};
use self::table::Table;
use crate::client::Client;
use crate::relay::Relay;
use crate::reload::{Changed, reload};
use crate::settings::Access;
use crate::socket::Stream;
use hihooi_session::downstream::Message;

/// Names and texts of a session's prepared statements together (I8).
const STATEMENTS_LEN_MAX: usize = 64 << 10;

/// A command that is to be executed, and the formats of its result, true for binary.
#[derive(Clone, Debug, Default)]
struct Portal {
    text: String,
    formats: Vec<bool>,
}

/// A session with the admin database.
pub struct Admin<S> {
    relay: Rc<Relay>,
    client: Client<S>,
    access: Access,
    status: Status,
    statements: ahash::AHashMap<Vec<u8>, String>,
    portal: Portal,
    is_skipping: bool,
}

impl<S: Stream> Admin<S> {
    /// The session of a client that may use it.
    #[must_use]
    pub fn new(relay: Rc<Relay>, client: Client<S>, access: Access) -> Admin<S> {
        Admin {
            relay,
            client,
            access,
            status: Status::Idle,
            statements: ahash::AHashMap::new(),
            portal: Portal::default(),
            is_skipping: false,
        }
    }

    /// Serves the client until it leaves.
    pub async fn run(mut self) {
        self.welcome();
        let relay = self.relay.clone();
        let place = relay.stopping.enter();
        let served =
            place.unless_stopped(&Cell::new(true), &Cell::new(false), pin!(self.turns())).await;
        if served.is_none() {
            hihooi_session::session::going_away().write(&mut self.client.down.output);
        }
        self.client.close().await;
    }

    async fn turns(&mut self) {
        loop {
            self.client.flush().await;
            match self.client.next().await {
                Ok(Some(message)) if message.tag == tag::TERMINATE => return,
                Ok(Some(message)) => self.take(&message).await,
                Ok(None) => return,
                Err(error) => {
                    hihooi_session::events::protocol_report(&error)
                        .write(&mut self.client.down.output);
                    self.client.flush().await;
                    return;
                }
            }
        }
    }

    fn welcome(&mut self) {
        let out = &mut self.client.down.output;
        backend::authentication_ok(out);
        let known = self.relay.welcomes.borrow().values().next().cloned();
        let version = known
            .as_ref()
            .and_then(|welcome| welcome.parameters.iter().find(|(n, _)| n == "server_version"))
            .map_or("15.0", |(_, version)| version.as_str());
        for (name, value) in [
            ("server_version", version),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, MDY"),
            ("IntervalStyle", "postgres"),
            ("TimeZone", "UTC"),
            ("integer_datetimes", "on"),
            ("standard_conforming_strings", "on"),
        ] {
            backend::parameter_status(name, value, out);
        }
        backend::backend_key_data(0, &[0; 4], out);
        backend::ready_for_query(Status::Idle, out);
    }

    async fn take(&mut self, message: &Message) {
        if message.tag == tag::SYNC {
            self.is_skipping = false;
            return backend::ready_for_query(self.status, &mut self.client.down.output);
        }
        if self.is_skipping {
            return;
        }
        let taken = match message.tag {
            tag::QUERY => return self.query(message).await,
            tag::PARSE => self.parse(message),
            tag::BIND => self.bind(message),
            tag::DESCRIBE => self.describe(message),
            tag::EXECUTE => self.execute().await,
            tag::CLOSE => {
                if let Ok((Target::Statement, name)) =
                    frontend::read_target(tag::CLOSE, message.body())
                {
                    self.statements.remove(name);
                }
                backend::empty(server_tag::CLOSE_COMPLETE, &mut self.client.down.output);
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(report) = taken {
            report.write(&mut self.client.down.output);
            self.is_skipping = true;
        }
    }

    async fn query(&mut self, message: &Message) {
        let text = frontend::read_query(message.body()).map(String::from_utf8_lossy);
        let text = text.unwrap_or_default().into_owned();
        if is_empty(&text) {
            backend::empty(server_tag::EMPTY_QUERY, &mut self.client.down.output);
        } else {
            match self.command(&text).await {
                Ok(table) => {
                    if !table.columns.is_empty() {
                        table::describe(table.columns, &[], &mut self.client.down.output);
                    }
                    self.answer(&table, &[]);
                }
                Err(report) => report.write(&mut self.client.down.output),
            }
        }
        backend::ready_for_query(self.status, &mut self.client.down.output);
    }

    /// Answers with rows in these formats.
    fn answer(&mut self, table: &Table, formats: &[bool]) {
        let out = &mut self.client.down.output;
        table.rows.iter().for_each(|row| table::write_row(row, formats, out));
        backend::command_complete(&table.command, out);
    }

    fn parse(&mut self, message: &Message) -> Result<(), Report> {
        let parse = Parse::read(message.body()).map_err(|e| protocol(&e))?;
        let others = self.statements.iter().filter(|(name, _)| **name != parse.statement);
        let kept: usize = others.map(|(name, text)| name.len() + text.len()).sum();
        if kept + parse.statement.len() + parse.query.len() > STATEMENTS_LEN_MAX {
            return Err(Report::error("54000", "the session's prepared statements are too long")
                .hint("Close those that are not needed any more."));
        }
        let text = String::from_utf8_lossy(parse.query).into_owned();
        self.statements.insert(parse.statement.to_vec(), text);
        backend::empty(server_tag::PARSE_COMPLETE, &mut self.client.down.output);
        Ok(())
    }

    fn bind(&mut self, message: &Message) -> Result<(), Report> {
        let bind = frontend::Bind::read(message.body()).map_err(|e| protocol(&e))?;
        let text = self.statement(bind.statement)?;
        let formats = frontend::Bind::result_formats(bind.rest).map_err(|e| protocol(&e))?;
        self.portal = Portal { text, formats: formats.collect() };
        backend::empty(server_tag::BIND_COMPLETE, &mut self.client.down.output);
        Ok(())
    }

    fn statement(&self, name: &[u8]) -> Result<String, Report> {
        self.statements.get(name).cloned().ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Report::error("26000", format!("prepared statement \"{name}\" does not exist"))
        })
    }

    fn describe(&mut self, message: &Message) -> Result<(), Report> {
        let (target, name) =
            frontend::read_target(tag::DESCRIBE, message.body()).map_err(|e| protocol(&e))?;
        let (text, formats) = match target {
            Target::Statement => {
                let text = self.statement(name)?;
                frontend::message(
                    server_tag::PARAMETER_DESCRIPTION,
                    &mut self.client.down.output,
                    |out| out.extend_from_slice(&[0, 0]),
                );
                (text, Vec::new())
            }
            Target::Portal => (self.portal.text.clone(), self.portal.formats.clone()),
        };
        let columns = commands::find(&text).map(|(command, _)| command.columns);
        match columns.unwrap_or_default() {
            [] => backend::empty(server_tag::NO_DATA, &mut self.client.down.output),
            columns => table::describe(columns, &formats, &mut self.client.down.output),
        }
        Ok(())
    }

    async fn execute(&mut self) -> Result<(), Report> {
        let Portal { text, formats } = self.portal.clone();
        let table = self.command(&text).await?;
        self.answer(&table, &formats);
        Ok(())
    }

    async fn command(&mut self, text: &str) -> Result<Table, Report> {
        match commands::find(text) {
            Some((command, argument)) => self.act(command, argument).await,
            None => self.courtesy(text),
        }
    }

    async fn act(&mut self, command: &Command, argument: String) -> Result<Table, Report> {
        if self.access < command.access {
            let why = format!("{} needs full access to the admin database", command.syntax);
            return Err(Report::error("42501", why)
                .hint("List the user in admin_users, or in [[user]] with admin = \"full\"."));
        }
        let (table, replica) = (Table::new(command.columns), argument.clone());
        Ok(match command.action {
            Action::Replicas => shows::replicas(&self.relay, table).await,
            Action::Clients => shows::clients(&self.relay, table),
            Action::Servers => shows::servers(&self.relay, table),
            Action::Pools => shows::pools(&self.relay, table),
            Action::Stats => shows::stats(&self.relay, table),
            Action::Databases => shows::databases(&self.relay, table),
            Action::Users => shows::users(&self.relay, table),
            Action::State => shows::state(&self.relay, table),
            Action::Lists => shows::lists(&self.relay, table),
            Action::Log => shows::log(&self.relay, table),
            Action::Memory => shows::memory(&self.relay, table),
            Action::Config => shows::config(&self.relay, table),
            Action::Version => shows::version(table),
            Action::Help => shows::help(table),
            Action::Pause => {
                self.ask(|reply| ControlRequest::Pause { replica, reply }).await?;
                Table::done("PAUSE")
            }
            Action::Resume => {
                self.ask(|reply| ControlRequest::Resume { replica, reply }).await?;
                Table::done("RESUME")
            }
            Action::Verify => self.verify(table).await?,
            Action::Rebuild { is_forced } => self.rebuild(replica, is_forced).await?,
            Action::Reload => self.reload(table)?,
            Action::Kill => self.kill(&argument)?,
            Action::Shutdown => {
                self.relay.operator.stop.notify_one();
                Table::done("SHUTDOWN")
            }
            Action::ShutdownWhenLeft => {
                let relay = self.relay.clone();
                tokio::task::spawn_local(async move {
                    relay.clients.until_left().await;
                    relay.operator.stop.notify_one();
                });
                Table::done("SHUTDOWN")
            }
        })
    }

    /// What drivers and psql send by themselves.
    fn courtesy(&mut self, text: &str) -> Result<Table, Report> {
        match words(text).first().map(String::as_str) {
            Some("set") => Ok(Table::done("SET")),
            Some("begin" | "start") => self.transaction(Status::Block, "BEGIN"),
            Some("commit" | "end") => self.transaction(Status::Idle, "COMMIT"),
            Some("rollback" | "abort") => self.transaction(Status::Idle, "ROLLBACK"),
            // psql's \d, \l and tab completion, and what graphical clients ask.
            Some(
                "select" | "with" | "table" | "values" | "insert" | "update" | "delete" | "create",
            ) => {
                let what = "the database hihooi takes commands instead of SQL, and has no catalogs";
                Err(Report::error("0A000", what).hint("SHOW HELP lists the commands."))
            }
            _ => {
                let known: Vec<&str> = COMMANDS.iter().map(|command| command.syntax).collect();
                Err(Report::error("42601", format!("unknown command: {}", text.trim()))
                    .hint(format!("Commands are: {}.", known.join(", "))))
            }
        }
    }

    fn transaction(&mut self, status: Status, command: &str) -> Result<Table, Report> {
        self.status = status;
        Ok(Table::done(command))
    }

    async fn ask(
        &mut self,
        request: impl FnOnce(oneshot::Sender<Result<(), String>>) -> ControlRequest,
    ) -> Result<(), Report> {
        let (reply, answer) = oneshot::channel();
        let stopped = || Report::error("57P03", "replication is not running");
        self.relay.control.send(request(reply)).await.map_err(|_| stopped())?;
        let answer = tokio::select! {
            answer = answer => answer.map_err(|_| stopped())?,
            () = self.client.left() => return Err(left()),
        };
        answer.map_err(|why| Report::error("22023", why).hint("SHOW REPLICAS lists the replicas."))
    }

    fn reload(&self, mut table: Table) -> Result<Table, Report> {
        let changed = reload(&self.relay).map_err(|why| {
            Report::error("F0000", why)
                .hint("Nothing has changed: the former settings are in force.")
        })?;
        for Changed { key, before, now, takes_restart } in changed {
            let in_force = if takes_restart { "after a restart" } else { "now" };
            table.row([key.into(), before.into(), now.into(), in_force.into()]);
        }
        table.command = "RELOAD".to_owned();
        Ok(table)
    }

    fn kill(&self, process: &str) -> Result<Table, Report> {
        match process.parse().is_ok_and(|process| self.relay.kill(process)) {
            true => Ok(Table::done("KILL")),
            false => Err(Report::error("22023", format!("there is no session {process}"))
                .hint("SHOW CLIENTS lists the sessions with their ids.")),
        }
    }

    async fn verify(&mut self, table: Table) -> Result<Table, Report> {
        let report = self.follow(|news| ControlRequest::Verify { news }, "can't verify").await?;
        Ok(verdicts(table, &report))
    }

    async fn rebuild(&mut self, replica: String, is_forced: bool) -> Result<Table, Report> {
        let what = format!("can't rebuild {replica}");
        let request = |news| ControlRequest::Rebuild { replica, is_forced, news };
        self.follow(request, &what).await?;
        Ok(Table::done("REBUILD"))
    }

    /// Asks for long work, tells the client how far it is, and returns its result.
    async fn follow<T>(
        &mut self,
        request: impl FnOnce(mpsc::Sender<News<T>>) -> ControlRequest,
        what: &str,
    ) -> Result<T, Report> {
        let (news, mut told) = mpsc::channel(NEWS_MAX);
        let stopped = || Report::error("57P03", "replication is not running");
        self.relay.control.send(request(news)).await.map_err(|_| stopped())?;
        loop {
            let told = tokio::select! {
                told = told.recv() => told.ok_or_else(stopped)?,
                () = self.client.left() => return Err(left()),
            };
            match told {
                News::Progress(line) => self.notice(line).await,
                News::Done(Ok(result)) => return Ok(result),
                News::Done(Err(why)) => {
                    return Err(Report::error("55000", format!("{what}: {why}"))
                        .hint("SHOW REPLICAS lists the replicas and their states."));
                }
            }
        }
    }

    async fn notice(&mut self, line: String) {
        let severity = Severity::Notice;
        Report { severity, ..Report::error("00000", line) }.write(&mut self.client.down.output);
        self.client.flush().await;
    }
}

/// What is told to nobody.
fn left() -> Report {
    Report::error("08006", "the client has left")
}

/// One row a replica, or one a difference.
fn verdicts(mut table: Table, report: &verify::Report) -> Table {
    table.command = "VERIFY".to_owned();
    for replica in &report.replicas {
        let mut row = |result: &str, object: Option<String>, detail: Option<String>| {
            table.row([
                replica.as_str().into(),
                report.tsid.0.into(),
                report.tables.into(),
                report.rows.into(),
                result.into(),
                object.into(),
                detail.into(),
            ]);
        };
        let mut is_equal = true;
        for found in report.differences.iter().filter(|found| found.site == *replica) {
            is_equal = false;
            row("different", Some(found.object.clone()), Some(found.what.clone()));
        }
        for found in report.row_differences.iter().filter(|found| found.site == *replica) {
            is_equal = false;
            let text = |row: &Option<String>| row.clone().unwrap_or_else(|| "absent".to_owned());
            let detail = format!(
                "key {}: primary {}, replica {}",
                found.key,
                text(&found.primary),
                text(&found.replica)
            );
            row("different", Some(found.table.clone()), Some(detail));
        }
        if is_equal {
            row("equal", None, None);
        }
    }
    table
}

fn protocol(error: &hihooi_wire::ProtocolError) -> Report {
    Report::error("08P01", error.to_string())
}

fn is_empty(text: &str) -> bool {
    text.trim_matches(|c: char| c.is_whitespace() || c == ';').is_empty()
}
