//! The admin database `hihooi`: a client connects to it as to any database, by the simple or the extended
//! protocol, and sends commands instead of SQL (`commands`).

mod commands;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::control::{ControlRequest, NEWS_MAX, VerifyNews};
use hihooi_postgres::site::{Replica, State};
use hihooi_postgres::verify;
use hihooi_postgres::wal_positions::WalPositions;
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_wire::backend::{self, Report, Severity, Status, tag as server_tag};
use hihooi_wire::frontend::{self, Parse, Target, tag};
use tokio::sync::{mpsc, oneshot};

use self::commands::{Action, COMMANDS, Command};
use crate::client::Client;
use crate::relay::Relay;
use crate::socket::Stream;
use hihooi_session::downstream::Message;

/// Name of the admin database.
pub const DATABASE: &str = "hihooi";
/// How long `SHOW REPLICAS` waits for the primary to tell its position.
const POSITION_LIMIT: Duration = Duration::from_secs(2);

/// What a command answers.
#[derive(Debug, Default)]
struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Option<String>>>,
    command: String,
}

impl Table {
    fn new(command: &Command) -> Table {
        Table { columns: command.column_names(), rows: Vec::new(), command: "SHOW".to_owned() }
    }

    fn done(command: &str) -> Table {
        Table { command: command.to_owned(), ..Table::default() }
    }

    fn row(&mut self, values: impl IntoIterator<Item = Option<String>>) {
        let row: Vec<_> = values.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "{:?}", self.columns);
        self.rows.push(row);
    }
}

/// A session with the admin database.
pub struct Admin<S> {
    relay: Rc<Relay>,
    client: Client<S>,
    status: Status,
    statements: ahash::AHashMap<Vec<u8>, String>,
    portal: String,
    is_skipping: bool,
}

impl<S: Stream> Admin<S> {
    /// The session of a client that may use it.
    #[must_use]
    pub fn new(relay: Rc<Relay>, client: Client<S>) -> Admin<S> {
        Admin {
            relay,
            client,
            status: Status::Idle,
            statements: ahash::AHashMap::new(),
            portal: String::new(),
            is_skipping: false,
        }
    }

    /// Serves the client until it leaves.
    pub async fn run(mut self) {
        self.welcome();
        let relay = self.relay.clone();
        let place = relay.stopping.enter();
        let served = place.unless_stopped(&Cell::new(true), pin!(self.turns())).await;
        if served.is_none() {
            hihooi_session::session::going_away().write(&mut self.client.down.output);
            self.client.flush().await;
        }
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
                Ok(table) => self.answer(&table, true),
                Err(report) => report.write(&mut self.client.down.output),
            }
        }
        backend::ready_for_query(self.status, &mut self.client.down.output);
    }

    fn answer(&mut self, table: &Table, describe: bool) {
        let out = &mut self.client.down.output;
        if describe && !table.columns.is_empty() {
            backend::row_description(&table.columns, out);
        }
        for row in &table.rows {
            backend::data_row(row.iter().map(Option::as_deref), out);
        }
        backend::command_complete(&table.command, out);
    }

    fn parse(&mut self, message: &Message) -> Result<(), Report> {
        let parse = Parse::read(message.body()).map_err(|e| protocol(&e))?;
        let text = String::from_utf8_lossy(parse.query).into_owned();
        self.statements.insert(parse.statement.to_vec(), text);
        backend::empty(server_tag::PARSE_COMPLETE, &mut self.client.down.output);
        Ok(())
    }

    fn bind(&mut self, message: &Message) -> Result<(), Report> {
        let bind = frontend::Bind::read(message.body()).map_err(|e| protocol(&e))?;
        self.portal = self.statement(bind.statement)?;
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
        let text = match target {
            Target::Statement => {
                let text = self.statement(name)?;
                frontend::message(
                    server_tag::PARAMETER_DESCRIPTION,
                    &mut self.client.down.output,
                    |out| out.extend_from_slice(&[0, 0]),
                );
                text
            }
            Target::Portal => self.portal.clone(),
        };
        let columns = commands::find(&text).map(|(command, _)| command.column_names());
        match columns.unwrap_or_default().as_slice() {
            [] => backend::empty(server_tag::NO_DATA, &mut self.client.down.output),
            columns => backend::row_description(columns, &mut self.client.down.output),
        }
        Ok(())
    }

    async fn execute(&mut self) -> Result<(), Report> {
        let text = self.portal.clone();
        let table = self.command(&text).await?;
        self.answer(&table, false);
        Ok(())
    }

    async fn command(&mut self, text: &str) -> Result<Table, Report> {
        match commands::find(text) {
            Some((command, argument)) => self.act(command, argument).await,
            None => self.courtesy(text),
        }
    }

    async fn act(&mut self, command: &Command, replica: String) -> Result<Table, Report> {
        let table = Table::new(command);
        Ok(match command.action {
            Action::Replicas => self.replicas(table).await,
            Action::Clients => self.clients(table),
            Action::Servers => self.servers(table),
            Action::Pools => self.pools(table),
            Action::Stats => self.stats(table),
            Action::Config => self.config(table),
            Action::Version => version(table),
            Action::Help => help(table),
            Action::Pause => {
                self.ask(|reply| ControlRequest::Pause { replica, reply }).await?;
                Table::done("PAUSE")
            }
            Action::Resume => {
                self.ask(|reply| ControlRequest::Resume { replica, reply }).await?;
                Table::done("RESUME")
            }
            Action::Verify => self.verify(table).await?,
        })
    }

    /// What drivers and psql send by themselves.
    fn courtesy(&mut self, text: &str) -> Result<Table, Report> {
        match words(text).first().map(String::as_str) {
            Some("set") => Ok(Table::done("SET")),
            Some("begin" | "start") => self.transaction(Status::Block, "BEGIN"),
            Some("commit" | "end") => self.transaction(Status::Idle, "COMMIT"),
            Some("rollback" | "abort") => self.transaction(Status::Idle, "ROLLBACK"),
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
        &self,
        request: impl FnOnce(oneshot::Sender<Result<(), String>>) -> ControlRequest,
    ) -> Result<(), Report> {
        let (reply, answer) = oneshot::channel();
        let stopped = || Report::error("57P03", "replication is not running");
        self.relay.control.send(request(reply)).await.map_err(|_| stopped())?;
        let answer = answer.await.map_err(|_| stopped())?;
        answer.map_err(|why| Report::error("22023", why).hint("SHOW REPLICAS lists the replicas."))
    }

    async fn replicas(&self, mut table: Table) -> Table {
        let newest = self.newest_now().await;
        for (number, replica) in self.relay.replicas.iter().enumerate() {
            let lag = newest.map(|newest| newest.0.saturating_sub(replica.applied().0));
            let lag_ms = match lag {
                Some(0) => Some(0),
                Some(_) => self.relay.age_ms(replica.applied().next()).await,
                None => None,
            };
            let mut row = self.replica_row(replica, lag, lag_ms);
            row.extend(self.share_of(number));
            table.row(row);
        }
        table
    }

    fn replica_row(
        &self,
        replica: &Replica,
        lag: Option<u64>,
        lag_ms: Option<u64>,
    ) -> Vec<Option<String>> {
        let stats = (self.relay.apply_stats)(&replica.site.name).unwrap_or_default();
        let us = |percent| stats.percentile_us(percent).map(|us| us.to_string());
        let mut reason = replica.reason();
        if matches!(replica.state(), State::Serving | State::CatchingUp) && lag != Some(0) {
            let others = self.why_behind(lag.is_none());
            reason = if others.is_empty() { reason } else { others };
        }
        if self.relay.is_late(replica) {
            reason =
                "serves no reads until a commit made at level sync is visible there".to_owned();
        }
        vec![
            Some(replica.site.name.clone()),
            Some(replica.state().to_string()),
            Some(replica.applied().to_string()),
            lag.map(|lag| lag.to_string()),
            lag_ms.map(|ms| ms.to_string()),
            us(50),
            us(99),
            (!reason.is_empty()).then_some(reason),
        ]
    }

    /// Which share of reads a replica gets.
    fn share_of(&self, number: usize) -> [Option<String>; 3] {
        let shown = self.relay.balance.borrow().shown(number, self.relay.now());
        let replica = &self.relay.replicas[number];
        let is_readable = replica.state().is_readable() && !self.relay.is_late(replica);
        let percent = if is_readable { (shown.share * 100.0).round() } else { 0.0 };
        [shown.weight.to_string(), percent.to_string(), format!("{:.2}", shown.slowdown)].map(Some)
    }

    /// What keeps replicas from following, if it isn't their own fault.
    fn why_behind(&self, is_unknown: bool) -> String {
        let (log, collector) = (&self.relay.log, &self.relay.collector);
        match log.stalled().or_else(|| log.failed()) {
            Some(why) => format!("the log can't be written: {why}"),
            None if !collector.error().is_empty() => {
                format!("the primary's stream: {}", collector.error())
            }
            None if is_unknown => "the primary's position is not known".to_owned(),
            None => String::new(),
        }
    }

    /// The newest entry once the collector has passed the primary's position of now.
    async fn newest_now(&self) -> Option<Tsid> {
        if self.relay.is_primary_silent.get() {
            return None;
        }
        let position = async {
            let (lsn, mut positions) = self.position_now().await.ok()?;
            if self.relay.collector.received() < lsn {
                positions.ensure_flushed(lsn).await.ok()?;
            }
            self.relay.positions.set(Some(positions));
            while self.relay.collector.received() < lsn {
                self.relay.poke.notify_one();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Some(self.relay.log.last().map_or(Tsid::ZERO, |header| header.tsid))
        };
        tokio::time::timeout(POSITION_LIMIT, position).await.ok().flatten()
    }

    /// The primary's position, and the connection that told it, to be given back to
    /// [`Relay::positions`] when nothing failed. One that was ended meanwhile is replaced.
    async fn position_now(&self) -> hihooi_postgres::connection::Result<(Lsn, WalPositions)> {
        if let Some(mut kept) = self.relay.positions.take()
            && let Ok(lsn) = kept.lsn_after().await
        {
            return Ok((lsn, kept));
        }
        let primary = &self.relay.sites.primary;
        let database = &self.relay.settings.database;
        let login = Login::new(primary.address.clone(), &primary.user, database, "hihooi admin");
        let mut opened = WalPositions::new(Connection::open(&login).await?).await?;
        Ok((opened.lsn_after().await?, opened))
    }

    fn clients(&self, mut table: Table) -> Table {
        for (process, session) in self.relay.sessions.borrow().iter() {
            let site = session.running.borrow().as_ref().map(|running| running.site);
            let application =
                session.startup.parameters.iter().find(|(name, _)| name == "application_name");
            let route = session.last_route.get();
            table.row([
                Some(process.to_string()),
                Some(session.startup.user.clone()),
                Some(session.startup.database.clone()),
                application.map(|(_, value)| value.clone()),
                Some(session.peer.address.to_string()),
                Some(session.state.get().to_owned()),
                site.map(|site| self.relay.sites[site].name.clone()),
                Some(route.describe(&self.relay.sites[route.site].name)),
                Some(session.since.elapsed().as_secs().to_string()),
                session.peer.tls.map(str::to_owned),
                Some(session.peer.how.to_owned()),
            ]);
        }
        table
    }

    fn servers(&self, mut table: Table) -> Table {
        for (id, site) in self.relay.sites.ids().zip(self.relay.sites.iter()) {
            let state = match self.relay.replica(id) {
                Some(replica) => replica.state().to_string(),
                None if self.is_primary_heard() => "serving".to_owned(),
                None => "unreachable".to_owned(),
            };
            table.row([
                Some(site.name.clone()),
                Some(site.role.to_string()),
                Some(site.address.host.clone()),
                Some(site.address.port.to_string()),
                Some(state),
                Some(self.relay.counters[id].active.get().to_string()),
                self.relay.tls_of_sites[id].get().map(str::to_owned),
            ]);
        }
        table
    }

    fn is_primary_heard(&self) -> bool {
        let is_connected = &self.relay.collector.connected;
        is_connected.load(Ordering::Relaxed) && !self.relay.is_primary_silent.get()
    }

    fn pools(&self, mut table: Table) -> Table {
        for pool in self.relay.pools.info() {
            table.row([
                Some(self.relay.sites[pool.site].name.clone()),
                Some(pool.user),
                Some(pool.database),
                Some(pool.used.to_string()),
                Some(pool.idle.to_string()),
                Some(self.relay.settings.pool_size.to_string()),
            ]);
        }
        table
    }

    fn stats(&self, mut table: Table) -> Table {
        for (site, counters) in self.relay.sites.iter().zip(self.relay.counters.iter()) {
            let number = |cell: &std::cell::Cell<u64>| Some(cell.get().to_string());
            table.row([
                Some(site.name.clone()),
                number(&counters.reads),
                number(&counters.writes),
                number(&counters.commits),
                number(&counters.errors),
                number(&counters.misjudged),
                number(&counters.discarded),
            ]);
        }
        table
    }

    fn config(&self, mut table: Table) -> Table {
        for (key, value) in &self.relay.settings.shown {
            table.row([Some(key.clone()), Some(value.clone())]);
        }
        table
    }

    async fn verify(&mut self, table: Table) -> Result<Table, Report> {
        let (news, mut told) = mpsc::channel(NEWS_MAX);
        let stopped = || Report::error("57P03", "replication is not running");
        self.relay.control.send(ControlRequest::Verify { news }).await.map_err(|_| stopped())?;
        loop {
            match told.recv().await.ok_or_else(stopped)? {
                VerifyNews::Progress(line) => self.notice(line).await,
                VerifyNews::Done(Ok(report)) => return Ok(verdicts(table, &report)),
                VerifyNews::Done(Err(why)) => {
                    return Err(Report::error("55000", format!("can't verify: {why}"))
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

/// One row a replica, or one a difference.
fn verdicts(mut table: Table, report: &verify::Report) -> Table {
    table.command = "VERIFY".to_owned();
    for replica in &report.replicas {
        let mut row = |result: &str, object: Option<String>, detail: Option<String>| {
            table.row([
                Some(replica.clone()),
                Some(report.tsid.to_string()),
                Some(report.tables.to_string()),
                Some(report.rows.to_string()),
                Some(result.to_owned()),
                object,
                detail,
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

fn version(mut table: Table) -> Table {
    table.row([Some(format!("hihooi {}", env!("CARGO_PKG_VERSION")))]);
    table
}

fn help(mut table: Table) -> Table {
    for command in COMMANDS {
        table.row([Some(command.syntax.to_owned()), Some(command.help.to_owned())]);
    }
    table
}

fn protocol(error: &hihooi_wire::ProtocolError) -> Report {
    Report::error("08P01", error.to_string())
}

/// The words of a command: quoted names as they are, others in lower case.
fn words(text: &str) -> Vec<String> {
    text.trim().trim_end_matches(';').split_whitespace().map(word).collect()
}

fn word(text: &str) -> String {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.to_owned(),
        None => text.to_lowercase(),
    }
}

fn is_empty(text: &str) -> bool {
    text.trim_matches(|c: char| c.is_whitespace() || c == ';').is_empty()
}
