//! Compares replicas with the primary at one TSID, and names the rows that differ (I2, I5).
//!
//! The appliers are stopped (*held*), and a snapshot is taken on the primary that includes exactly a prefix of
//! the log. Every replica applies entries up to that prefix, snapshots are taken there, and the appliers
//! continue. Everything that is compared is read in these snapshots, while clients continue to work.
//!
//! No user-defined code runs with a superuser's rights: the superuser queries only catalogs, with `pg_catalog`
//! as `search_path`. `table` explains how rows are read.

mod compare;
mod structure;
mod sums;
mod table;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use hihooi_replication::entry::Header;
use hihooi_replication::ids::Tsid;
use hihooi_wire::backend::{read_data_row, tag};
use hihooi_wire::frontend;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use self::compare::Tables;
use self::table::{Changed, Table};
use crate::apply::ApplierHandle;
use crate::apply::visibility::Snapshot;
use crate::collector::TEXT_SETTINGS;
use crate::connection::{
    self, Answer, Connection, GIVE_WAY, LOCK_NOT_AVAILABLE, Login, server_error,
};
use crate::site::{Replica, Site};

/// How long an applier may take to hold at its position.
const HOLD_LIMIT: Duration = Duration::from_secs(10);
/// Snapshots that are tried until one includes exactly a prefix of the log.
const SNAPSHOTS_MAX: u32 = 500;
/// Pause between two of them.
const SNAPSHOT_PAUSE: Duration = Duration::from_millis(3);
/// How often definitions are compared while DDL runs; and the pause between.
const ATTEMPTS_MAX: u32 = 8;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);
/// Pause before definitions are asked for again because a client holds a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(200);
/// The user is told whose lock is waited for after so long, and again.
const TELL_LOCKS_EVERY: Duration = Duration::from_secs(5);
/// So long, too, a table's rows wait for a lock without a word.
const WAIT_FOR_LOCKS: &str = "SET LOCAL lock_timeout = '5s'";
/// Who holds locks on tables that keep readers out.
const LOCKERS: &str = "SELECT pg_catalog.string_agg(DISTINCT coalesce( \
        'process ' || l.pid, 'the prepared transaction ' || pg_catalog.quote_literal(p.gid)), ', ') \
    FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_prepared_xacts p \
        ON l.virtualtransaction = '-1/' || p.transaction \
    WHERE l.granted AND l.mode = 'AccessExclusiveLock' AND l.relation IS NOT NULL \
        AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() AND l.database = ( \
            SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())";
/// Ends a savepoint and releases its locks.
const UNDO: &str = "ROLLBACK TO hihooi; RELEASE hihooi";
/// Lines for the user that wait to be sent; when there are more, comparing waits.
const LINES_MAX: usize = 16;

/// Tells which of the log's entries a snapshot of the primary includes.
pub trait LogView: Sync {
    /// The newest entry.
    fn last(&self) -> Tsid;
    /// The headers of the entries behind `after`, in order.
    ///
    /// # Errors
    /// A sentence for the operator when the log can't be read there.
    fn headers_after(&self, after: Tsid) -> Result<Vec<Header>, String>;
    /// Waits until the collector passed the primary's present insert position: everything that
    /// was committed before the call is then in the log.
    fn caught_up(&self) -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;
}

/// How to verify.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database.
    pub database: String,
    /// Differing rows that are listed, in all.
    pub rows_max: usize,
    /// How long the replicas may take to reach the position.
    pub wait: Duration,
}

/// One difference between a replica and the primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The replica.
    pub site: String,
    /// The table, or what else differs.
    pub object: String,
    /// What differs, in words.
    pub what: String,
}

/// A row that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowDifference {
    /// The replica.
    pub site: String,
    /// The table.
    pub table: String,
    /// The row's key, or its whole text if the table has none.
    pub key: String,
    /// The row on the primary; `None` if it isn't there.
    pub primary: Option<String>,
    /// The row on the replica; `None` if it isn't there.
    pub replica: Option<String>,
}

/// What verification found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The position at which the sites were compared.
    pub tsid: Tsid,
    /// The replicas compared.
    pub replicas: Vec<String>,
    /// Tables and materialized views compared.
    pub tables: usize,
    /// Rows compared, on the primary.
    pub rows: u64,
    /// What differs.
    pub differences: Vec<Difference>,
    /// Rows that differ, at most as many as asked for.
    pub row_differences: Vec<RowDifference>,
    /// Replicas that could not be compared, and why.
    pub skipped: Vec<(String, String)>,
}

impl Report {
    /// Whether every replica was compared and equals the primary.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.skipped.is_empty() && !self.is_different()
    }

    fn is_different(&self) -> bool {
        !self.differences.is_empty() || !self.row_differences.is_empty()
    }

    /// One word: `equal`, `DIFFERENT`, or `INCOMPLETE` when no difference was found but some
    /// replica could not be compared.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match (self.is_different(), self.skipped.is_empty()) {
            (true, _) => "DIFFERENT",
            (false, true) => "equal",
            (false, false) => "INCOMPLETE",
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tables, rows, tsid) = (self.tables, self.rows, self.tsid);
        writeln!(f, "compared {tables} tables with {rows} rows at TSID {tsid}")?;
        for (site, reason) in &self.skipped {
            writeln!(f, "{site}: not compared: {reason}")?;
        }
        for Difference { site, object, what } in &self.differences {
            writeln!(f, "{site}: {object}: {what}")?;
        }
        for row in &self.row_differences {
            let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "(none)".to_owned());
            writeln!(f, "{}: {} {}", row.site, row.table, row.key)?;
            writeln!(f, "    primary {}", text(&row.primary))?;
            writeln!(f, "    {} {}", row.site, text(&row.replica))?;
        }
        write!(f, "{}", self.verdict())
    }
}

/// Why verification could not be done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VerifyError(pub String);

/// Compares `replicas` with `primary` at one position of the log. `progress` is called with lines
/// for the user. Whoever drops this ends it, also at the servers.
///
/// # Errors
/// [`VerifyError`] when the primary or the log can't be asked, or a replica ceases to answer; one that can't be compared
/// is named in the [`Report`], which lists what differs.
pub async fn verify(
    primary: &Site,
    replicas: &[(Arc<Replica>, ApplierHandle)],
    log: &dyn LogView,
    options: &Options,
    progress: &mut (dyn FnMut(String) + Send),
) -> Result<Report, VerifyError> {
    let (lines, mut told) = mpsc::channel(LINES_MAX);
    // (One that does not answer now, or is being replaced, is not compared.)
    let mut silenced: FuturesUnordered<_> = replicas
        .iter()
        .filter(|(replica, _)| !replica.is_silent() && !replica.is_cloning())
        .map(|(replica, _)| async { failed(&replica.site.name, &replica.silenced().await) })
        .collect();
    let mut compared = pin!(compare(primary, replicas, log, options, lines));
    let report = loop {
        tokio::select! {
            biased;
            Some(line) = told.recv() => progress(line),
            report = &mut compared => break report,
            Some(silent) = silenced.next() => return Err(silent),
        }
    };
    while let Ok(line) = told.try_recv() {
        progress(line);
    }
    report
}

async fn compare(
    primary: &Site,
    replicas: &[(Arc<Replica>, ApplierHandle)],
    log: &dyn LogView,
    options: &Options,
    lines: mpsc::Sender<String>,
) -> Result<Report, VerifyError> {
    let found = compare_structure(primary, replicas, log, options, &lines).await?;
    let (mut report, sites, tables) = found;
    report.replicas = sites[1..].iter().map(|site| site.name.clone()).collect();
    let names = report.replicas.join(", ");
    tell(&lines, format!("comparing {names} with the primary at TSID {}", report.tsid)).await?;
    let (work, told) =
        (compare_rows(sites, tables, options.clone(), report, lines.clone()), lines.clone());
    // On a thread of its own, since hashing whole tables would hold up the appliers on this one.
    let compared = spawn_blocking(move || {
        Handle::current().block_on(async {
            tokio::select! {
                report = work => report,
                () = told.closed() => Err(VerifyError("nobody waits for the result".to_owned())),
            }
        })
    });
    let report = compared.await.map_err(|error| VerifyError(error.to_string()))??;
    tell(&lines, report.verdict().to_owned()).await?;
    Ok(report)
}

/// Compares definitions, in snapshots whose rows are then to be compared: of the primary, which is the
/// first, and the replicas, with their tables. PostgreSQL prints definitions as they are, not as
/// they are in a snapshot, so DDL that runs meanwhile looks like a difference, or an error: those that
/// are still there in all of some attempts are told.
async fn compare_structure(
    primary: &Site,
    replicas: &[(Arc<Replica>, ApplierHandle)],
    log: &dyn LogView,
    options: &Options,
    lines: &mpsc::Sender<String>,
) -> Result<(Report, Vec<Side>, Vec<Tables>), VerifyError> {
    let mut remaining: Option<Vec<Difference>> = None;
    let mut attempt = 1;
    loop {
        let mut report = Report::default();
        let held: Vec<_> = replicas.iter().map(|(_, applier)| Held(applier)).collect();
        let sites = take_snapshots(primary, replicas, log, options, lines, &mut report).await;
        drop(held);
        let mut sites = sites?;
        let found = describe(&mut sites, &mut report).await;
        if let Some(before) = &remaining {
            report.differences.retain(|difference| before.contains(difference));
        }
        let is_equal = found.is_ok() && report.differences.is_empty();
        let is_last = is_equal || attempt == ATTEMPTS_MAX || {
            log.caught_up().await.map_err(VerifyError)?;
            let entries = log.headers_after(report.tsid).map_err(VerifyError)?;
            !entries.iter().any(|entry| entry.has_ddl)
        };
        if is_last {
            return found.map(|tables| (report, sites, tables));
        }
        if found.is_ok() {
            remaining = Some(report.differences);
        }
        attempt += 1;
        tokio::time::sleep(ATTEMPT_PAUSE).await;
    }
}

/// Adds definitions that differ to the report; the tables of each site.
async fn describe(sites: &mut [Side], report: &mut Report) -> Result<Vec<Tables>, VerifyError> {
    structure::compare(sites, report).await?;
    compare::tables(sites).await
}

/// Compares rows, and adds to the report what differs.
async fn compare_rows(
    mut sites: Vec<Side>,
    tables: Vec<Tables>,
    options: Options,
    mut report: Report,
    lines: mpsc::Sender<String>,
) -> Result<Report, VerifyError> {
    compare::compare(&mut sites, tables, &options, &mut report, &lines).await?;
    Ok(report)
}

/// Sends the user a line; an error if the user is gone.
async fn tell(lines: &mpsc::Sender<String>, line: String) -> Result<(), VerifyError> {
    lines.send(line).await.map_err(|_| VerifyError("nobody waits for the result".to_owned()))
}

/// A connection to a site, in a transaction whose snapshot is the one to compare.
struct Side {
    name: String,
    login: Login,
    connection: Connection,
    /// For the user.
    lines: mpsc::Sender<String>,
}

impl Side {
    async fn open(
        site: &Site,
        database: &str,
        lines: &mpsc::Sender<String>,
    ) -> Result<Side, VerifyError> {
        const SETTINGS: [(&str, &str); 4] = [
            ("standard_conforming_strings", "on"),
            ("row_security", "off"),
            ("jit", "off"),
            // If nobody waits for the result any more, what runs or waits for a lock there ends, too.
            ("client_connection_check_interval", "2s"),
        ];
        let login = Login::new(site.address.clone(), &site.user, database, "hihooi verify");
        let login = login.with_all(&TEXT_SETTINGS).with_all(&SETTINGS);
        let connection = Connection::open(&login).await;
        let connection = connection.map_err(|error| failed(&site.name, &error))?;
        Ok(Side { name: site.name.clone(), login, connection, lines: lines.clone() })
    }

    /// Begins a transaction and takes its snapshot.
    async fn snapshot(&mut self) -> Result<Snapshot, VerifyError> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
        let error = |error| failed(&self.name, &error);
        self.connection.query(begin).await.map_err(error)?;
        let answer = self.connection.query("SELECT pg_catalog.pg_current_snapshot()").await;
        let answer = answer.map_err(|error| failed(&self.name, &error))?;
        let text = answer.value().unwrap_or_default();
        Snapshot::parse(text).ok_or_else(|| VerifyError(format!("not a snapshot: {text}")))
    }

    /// Asks for definitions. Printing them locks what they refer to, one table after the other, which
    /// a client may be doing in another order. So this one gives way, waits without a lock and asks
    /// again, before PostgreSQL would end the client's statement for a deadlock (I7).
    async fn printed(&mut self, query: &str) -> connection::Result<Answer> {
        let mut told = Instant::now();
        loop {
            self.connection.query("SAVEPOINT hihooi").await?;
            self.connection.query(GIVE_WAY).await?;
            let answer = self.connection.query(query).await;
            self.connection.query(UNDO).await?;
            match answer {
                Err(error) if error.code() == Some(LOCK_NOT_AVAILABLE) => {
                    if told.elapsed() >= TELL_LOCKS_EVERY {
                        self.tell_locks().await?;
                        told = Instant::now();
                    }
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    /// Tells the user whose lock is waited for, as far as it can be told.
    async fn tell_locks(&mut self) -> connection::Result<()> {
        let holders = self.connection.query(LOCKERS).await?;
        let holders = holders.value().unwrap_or("nobody any more");
        // A line that finds no room is only progress.
        let _ = self.lines.try_send(format!(
            "{}: waits for a table that is locked (ACCESS EXCLUSIVE is held by {holders})",
            self.name
        ));
        Ok(())
    }

    /// Reads all lines of a table in the snapshot; what changed it meanwhile, if they aren't those of the
    /// snapshot. Whatever fails, the snapshot stays, and no lock does (see [`Side::printed`]).
    async fn read(
        &mut self,
        table: &Table,
        each: impl FnMut(&[u8]),
    ) -> connection::Result<Option<Changed>> {
        if !table.is_read_as_owner() {
            let mut each = each;
            loop {
                let mut has_begun = false;
                self.connection.query("SAVEPOINT hihooi").await?;
                self.connection.query(WAIT_FOR_LOCKS).await?;
                let read = read(&mut self.connection, table, |line| {
                    has_begun = true;
                    each(line);
                });
                let done = read.await;
                self.connection.query(UNDO).await?;
                match done {
                    Err(error) if error.code() == Some(LOCK_NOT_AVAILABLE) && !has_begun => {
                        self.tell_locks().await?;
                    }
                    done => return done,
                }
            }
        }
        let exported = self.connection.query("SELECT pg_catalog.pg_export_snapshot()").await?;
        let login = self.login.clone().with_all(&table::PREPARE_SETTINGS);
        let mut connection = Connection::open(&login).await?;
        for statement in table.prepare(exported.value().unwrap_or_default()).iter().flatten() {
            connection.query(statement).await?;
        }
        let done = read(&mut connection, table, each).await?;
        connection.close().await;
        Ok(done)
    }
}

/// Reads a table's lines and then, with the lock on it, whether they are those of the snapshot.
async fn read(
    connection: &mut Connection,
    table: &Table,
    each: impl FnMut(&[u8]),
) -> connection::Result<Option<Changed>> {
    read_lines(connection, &table.statement(), each).await?;
    let same_file = connection.query_with(table::SAME_FILE, &[Some(&table.name)]).await?;
    Ok(match same_file.value() {
        Some("t") => None,
        Some(_) => Some(Changed::Rewritten),
        None => Some(Changed::Dropped),
    })
}

/// Runs a statement that answers with lines, by COPY or as records.
async fn read_lines(
    connection: &mut Connection,
    statement: &str,
    mut each: impl FnMut(&[u8]),
) -> connection::Result<()> {
    frontend::query(statement.as_bytes(), connection.buffer());
    connection.flush().await?;
    let mut failed = None;
    loop {
        let message = connection.next().await?;
        let body = &message.body[..];
        match message.tag {
            tag::COPY_DATA => each(body.strip_suffix(b"\n").unwrap_or(body)),
            tag::DATA_ROW => {
                let record = read_data_row(body)?.first().copied().flatten().unwrap_or_default();
                let inner = record.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")"));
                each(inner.unwrap_or(record));
            }
            tag::ERROR => failed = Some(server_error(body)),
            tag::READY_FOR_QUERY => return failed.map_or(Ok(()), Err),
            _ => {}
        }
    }
}

fn failed(site: &str, error: &dyn fmt::Display) -> VerifyError {
    VerifyError(format!("{site}: {error}"))
}

/// Releases an applier, however verification ends.
struct Held<'a>(&'a ApplierHandle);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Snapshots at one position of the log, on the primary, which comes first, and on every replica
/// that gets there. Each replica goes on as soon as it has its own: nobody waits for one that is behind.
async fn take_snapshots(
    primary: &Site,
    replicas: &[(Arc<Replica>, ApplierHandle)],
    log: &dyn LogView,
    options: &Options,
    lines: &mpsc::Sender<String>,
    report: &mut Report,
) -> Result<Vec<Side>, VerifyError> {
    let mut held = Vec::new();
    let mut oldest = None;
    for (replica, applier) in replicas {
        match applier.hold(HOLD_LIMIT).await {
            Ok(applied) => {
                oldest = Some(oldest.map_or(applied, |oldest: Tsid| oldest.min(applied)));
                held.push((replica, applier));
            }
            Err(error) => report.skipped.push((replica.site.name.clone(), why(replica, &error))),
        }
    }
    let mut sides = vec![Side::open(primary, &options.database, lines).await?];
    let Some(oldest) = oldest else {
        sides[0].snapshot().await?;
        return Ok(sides);
    };
    report.tsid = snapshot_of_prefix(&mut sides[0], oldest, log).await?;
    let tsid = report.tsid;
    let snapshots = held.into_iter().map(|(replica, applier)| async move {
        let _held = Held(applier);
        if let Err(error) = applier.hold_at(tsid, options.wait).await {
            return Ok(Err((replica.site.name.clone(), why(replica, &error))));
        }
        let mut side = Side::open(&replica.site, &options.database, lines).await?;
        side.snapshot().await?;
        Ok(Ok(side))
    });
    for taken in try_join_all(snapshots).await? {
        match taken {
            Ok(side) => sides.push(side),
            Err(skipped) => report.skipped.push(skipped),
        }
    }
    Ok(sides)
}

fn why(replica: &Replica, error: &dyn fmt::Display) -> String {
    let reason = replica.reason();
    if reason.is_empty() { format!("{error} ({})", replica.state()) } else { reason }
}

/// Takes snapshots on the primary until one includes exactly a prefix of the log: a transaction
/// can be in the write-ahead log a moment before, or after a later one, it can be seen. Returns
/// the prefix. Everything up to `seen` was applied somewhere, hence is seen by rule (2) of I3.
async fn snapshot_of_prefix(
    primary: &mut Side,
    seen: Tsid,
    log: &dyn LogView,
) -> Result<Tsid, VerifyError> {
    for _ in 0..SNAPSHOTS_MAX {
        let snapshot = primary.snapshot().await?;
        log.caught_up().await.map_err(VerifyError)?;
        let entries = log.headers_after(seen).map_err(VerifyError)?;
        let sees = |entry: &&Header| snapshot.sees(snapshot.widen(entry.xid));
        let prefix = entries.iter().take_while(sees).count();
        if !entries[prefix..].iter().any(|entry| sees(&entry)) {
            return Ok(prefix.checked_sub(1).map_or(seen, |last| entries[last].tsid));
        }
        let ended = primary.connection.query("ROLLBACK").await;
        ended.map_err(|error| failed(&primary.name, &error))?;
        tokio::time::sleep(SNAPSHOT_PAUSE).await;
    }
    Err(VerifyError(
        "no snapshot of the primary showed exactly a prefix of the log; try again under less load"
            .to_owned(),
    ))
}
