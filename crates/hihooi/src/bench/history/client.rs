//! A session that runs transactions and records them.
//!
//! The checker treats the following as one transaction:
//! - a statement outside a block;
//! - a REPEATABLE READ block, since it has one snapshot;
//! - each read in a READ COMMITTED block, since each statement there has its own snapshot (PostgreSQL's manual,
//!   chapter 13.2.1). It ends when it is answered, whatever becomes of the block;
//! - all writes of a READ COMMITTED block, since they become visible together. The block holds the locks of the
//!   rows until it commits. So each write changes the row's last version, as in a transaction whose snapshot is
//!   taken right before its commit. For the same reason the block's reads of rows that it has written belong to
//!   this transaction.
//!
//! By this definition a plain PostgreSQL server satisfies strong snapshot isolation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hihooi_check::{Atom, Op, Outcome, Seen, Transaction};
use hihooi_postgres::connection::{Answer, Connection, Error, Login};
use tokio::time::{sleep, timeout};

use super::recording::{PRIMARY, Record};
use super::workload::{Draw, Kept, Key, Shape, Statement};
use crate::config::Level;
use crate::failure::{Failure, Result};

/// How long a session tries to connect, seconds.
const CONNECT_S_MAX: u64 = 120;
/// Pause between two tries.
const CONNECT_EVERY: Duration = Duration::from_millis(50);
/// A statement without an answer for so long has none, seconds.
const ANSWER_S_MAX: u64 = 120;
/// With the fault `commit`, one in so many transactions is preceded by another `synchronous_commit`.
const COMMIT_CHANGES_ONE_IN: u64 = 10;

/// What all sessions share.
pub struct Shared {
    /// How they connect.
    pub login: Login,
    /// Their consistency level.
    pub level: Level,
    /// Transactions to run in all.
    pub transactions: u64,
    /// Whether sessions change `synchronous_commit`.
    pub changes_commit: bool,
    /// Whether the server tells where reads ran; only hihooi can.
    pub tells_route: bool,
    /// When the recording began.
    pub start: Instant,
    /// Set to end the recording early.
    pub stop: AtomicBool,
    /// Transactions that were begun.
    pub begun: AtomicU64,
    /// The next value to write.
    pub next_value: AtomicI64,
    /// The next client's number.
    pub next_process: AtomicI64,
    /// What happened so far.
    pub counts: Mutex<Counts>,
}

/// What happened so far.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    /// Transactions that committed, as the sessions ran them.
    pub committed: u64,
    /// Transactions that failed, by SQLSTATE; by "lost" where the connection was.
    pub failed: BTreeMap<String, u64>,
    /// Transactions whose outcome is unknown.
    pub unknown: u64,
    /// Reads by site and reason.
    pub reads: BTreeMap<(String, String), u64>,
}

impl Counts {
    /// All transactions that failed.
    pub fn all_failed(&self) -> u64 {
        self.failed.values().sum()
    }
}

impl Shared {
    /// The counts.
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    fn fresh_process(&self) -> i64 {
        self.next_process.fetch_add(1, Ordering::Relaxed)
    }
}

/// Why a transaction didn't commit.
enum NoEnd {
    /// It had no effect. SQLSTATE.
    Failed(String),
    /// It had no effect, and its session is gone.
    Lost,
    /// Its session is gone, and it may have committed.
    Unknown,
    /// Nothing can be recorded any more.
    Broken(Failure),
}

type Ended<T> = std::result::Result<T, NoEnd>;

/// A session.
pub struct Client {
    shared: Arc<Shared>,
    draw: Draw,
    /// The number of this client to the checker. A lost session is followed by another client: it remembers nothing.
    process: i64,
    session: Option<Connection>,
    records: Vec<Record>,
}

impl Client {
    /// A session that isn't connected yet.
    pub fn new(shared: Arc<Shared>, draw: Draw) -> Client {
        let process = shared.fresh_process();
        Client { shared, draw, process, session: None, records: Vec::new() }
    }

    /// Runs transactions until all are begun; what was recorded.
    ///
    /// # Errors
    /// No session can be opened, or a statement gets no answer.
    pub async fn run(mut self) -> Result<Vec<Record>> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let number = self.shared.begun.fetch_add(1, Ordering::Relaxed);
            if number >= self.shared.transactions {
                break;
            }
            let shared = self.shared.clone();
            let value = || shared.next_value.fetch_add(1, Ordering::Relaxed);
            let shape = self.draw.transaction(number, value);
            self.transact(&shape).await?;
        }
        if let Some(session) = self.session.take() {
            session.close().await;
        }
        Ok(self.records)
    }

    async fn transact(&mut self, shape: &Shape) -> Result<()> {
        let ended = self.attempt(shape).await;
        let mut counts = self.shared.counts();
        match ended {
            Ok(()) => counts.committed += 1,
            Err(NoEnd::Failed(code)) => *counts.failed.entry(code).or_default() += 1,
            Err(NoEnd::Lost) => *counts.failed.entry("lost".to_owned()).or_default() += 1,
            Err(NoEnd::Unknown) => counts.unknown += 1,
            Err(NoEnd::Broken(failure)) => return Err(failure),
        }
        Ok(())
    }

    async fn attempt(&mut self, shape: &Shape) -> Ended<()> {
        self.connect().await?;
        if self.shared.changes_commit && self.draw.one_in(COMMIT_CHANGES_ONE_IN) {
            let value = self.draw.one_of(&["on", "local", "off"]);
            self.simple(&format!("SET synchronous_commit = {value}")).await?;
        }
        match shape {
            Shape::Statement(statement) => self.statement(statement).await,
            Shape::Statements { begin, statements } => self.statements(begin, statements).await,
            Shape::Snapshot { begin, statements } => self.snapshot(begin, statements).await,
        }
    }

    async fn connect(&mut self) -> Ended<()> {
        if self.session.is_some() {
            return Ok(());
        }
        let session = connect(&self.shared.login).await.map_err(NoEnd::Broken)?;
        self.session = Some(session);
        self.process = self.shared.fresh_process();
        let level = self.shared.level;
        self.simple(&format!("SET hihooi.consistency = '{level}'")).await?;
        self.simple("SET hihooi.snapshot_routing = on").await?;
        Ok(())
    }

    /// A statement outside of a block.
    async fn statement(&mut self, statement: &Statement) -> Ended<()> {
        let mut open = Open::new(self.process, self.shared.now_ns());
        let answer = self.ask(statement).await;
        open.completed = Some(self.shared.now_ns());
        let ended = match answer {
            Ok(answer) => {
                open.ops = ops(statement, Some(&answer));
                Ok(())
            }
            Err(why) => {
                open.ops = ops(statement, None);
                // It may have committed before the connection was lost.
                Err(if statement.is_write() { why.with_effect() } else { why })
            }
        };
        if statement.is_write() {
            self.keep(open, &ended, PRIMARY.to_owned(), false);
        } else if ended.is_ok() {
            let site = self.site_of_read().await?;
            self.keep(open, &ended, site, statement.is_wide());
        }
        ended
    }

    /// A block in which each statement has its own snapshot.
    async fn statements(&mut self, begin: &[&str], statements: &[Statement]) -> Ended<()> {
        for text in begin {
            self.simple(text).await?;
        }
        let mut writes = Open::new(self.process, self.shared.now_ns());
        let inside = self.own_snapshots(statements, &mut writes).await;
        let ended = self.end(inside, !writes.ops.is_empty()).await;
        writes.completed = Some(self.shared.now_ns());
        if !writes.ops.is_empty() {
            self.keep(writes, &ended, PRIMARY.to_owned(), false);
        }
        ended
    }

    async fn own_snapshots(&mut self, statements: &[Statement], writes: &mut Open) -> Ended<()> {
        let mut written: Vec<Key> = Vec::new();
        for statement in statements {
            let mut read = Open::new(self.process, self.shared.now_ns());
            if statement.is_write() {
                if written.is_empty() {
                    writes.invoked = read.invoked;
                }
                written.extend(&statement.keys);
                writes.ops.extend(ops(statement, None));
                self.ask(statement).await?;
                continue;
            }
            let answer = self.ask(statement).await?;
            read.completed = Some(self.shared.now_ns());
            let site = self.site_of_read().await?;
            for (key, op) in statement.keys.iter().zip(ops(statement, Some(&answer))) {
                let is_own = written.contains(key);
                if is_own { writes.ops.push(op) } else { read.ops.push(op) }
            }
            if !written.is_empty() {
                // The transaction of the writes is open.
                read.process = self.shared.fresh_process();
            }
            if !read.ops.is_empty() {
                self.keep(read, &Ok(()), site, statement.is_wide());
            }
        }
        Ok(())
    }

    /// A block with one snapshot.
    async fn snapshot(&mut self, begin: &str, statements: &[Statement]) -> Ended<()> {
        let mut block = Open::new(self.process, self.shared.now_ns());
        self.simple(begin).await?;
        let inside = async {
            for statement in statements {
                if statement.is_write() {
                    block.ops.extend(ops(statement, None));
                }
                let answer = self.ask(statement).await?;
                if !statement.is_write() {
                    block.ops.extend(ops(statement, Some(&answer)));
                }
            }
            Ok(())
        };
        let inside = inside.await;
        let has_written = statements.iter().any(Statement::is_write);
        let ended = self.end(inside, has_written).await;
        block.completed = Some(self.shared.now_ns());
        let site = match &ended {
            // All of the block runs where its COMMIT does; one that writes, at the primary.
            Ok(()) if !has_written => self.site_of_read().await?,
            _ => PRIMARY.to_owned(),
        };
        let is_wide = statements.iter().any(Statement::is_wide);
        self.keep(block, &ended, site, is_wide);
        ended
    }

    /// Ends a block by COMMIT, or by ROLLBACK if something in it failed.
    async fn end(&mut self, inside: Ended<()>, has_written: bool) -> Ended<()> {
        match inside {
            Ok(()) => match self.simple("COMMIT").await {
                Ok(answer) if answer.command == "COMMIT" => Ok(()),
                Ok(answer) => Err(NoEnd::Failed(answer.command)),
                Err(why) => Err(if has_written { why.with_effect() } else { why }),
            },
            Err(NoEnd::Failed(code)) => {
                self.simple("ROLLBACK").await?;
                Err(NoEnd::Failed(code))
            }
            // Nothing commits without COMMIT.
            Err(why) => Err(why),
        }
    }

    fn keep(&mut self, open: Open, ended: &Ended<()>, site: String, is_wide: bool) {
        let outcome = match ended {
            Ok(()) => Outcome::Committed,
            Err(NoEnd::Unknown) => Outcome::Unknown,
            Err(_) => Outcome::Aborted,
        };
        let transaction = Transaction {
            process: open.process,
            invoked: open.invoked,
            completed: open.completed.filter(|_| outcome != Outcome::Unknown),
            outcome,
            is_final: false,
            ops: open.ops,
        };
        self.records.push(Record { transaction, site, is_wide });
    }

    async fn ask(&mut self, statement: &Statement) -> Ended<Answer> {
        let (text, parameters) = statement.text();
        if !statement.is_extended {
            return self.simple(&text).await;
        }
        let session = self.session.as_mut().ok_or(NoEnd::Lost)?;
        let values: Vec<Option<&str>> = parameters.iter().map(|value| Some(&**value)).collect();
        let answer = timeout(limit(), session.query_with(&text, &values)).await;
        self.answered(&text, answer)
    }

    async fn simple(&mut self, text: &str) -> Ended<Answer> {
        let session = self.session.as_mut().ok_or(NoEnd::Lost)?;
        let answer = timeout(limit(), session.query(text)).await;
        self.answered(text, answer)
    }

    fn answered(
        &mut self,
        text: &str,
        answer: std::result::Result<
            hihooi_postgres::connection::Result<Answer>,
            tokio::time::error::Elapsed,
        >,
    ) -> Ended<Answer> {
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if is_lost(&error) => {
                self.session = None;
                Err(NoEnd::Lost)
            }
            Ok(Err(error)) => Err(NoEnd::Failed(error.code().unwrap_or_default().to_owned())),
            Err(_) => {
                let why = format!("no answer to {text:?} within {ANSWER_S_MAX} s");
                Err(NoEnd::Broken(Failure::new(why)))
            }
        }
    }

    /// Where the last read ran.
    async fn site_of_read(&mut self) -> Ended<String> {
        if !self.shared.tells_route {
            return Ok(PRIMARY.to_owned());
        }
        let answer = self.simple("SHOW hihooi.last_route").await?;
        let route = answer.value().unwrap_or_default();
        let part = |name: &str| {
            let of_name =
                |part: &str| part.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            route.split(' ').find_map(of_name).unwrap_or_default()
        };
        let (site, reason) = (part("site"), part("reason"));
        *self.shared.counts().reads.entry((site.clone(), reason)).or_default() += 1;
        Ok(site)
    }
}

impl NoEnd {
    /// Of what takes effect by itself: a lost connection leaves open whether it did.
    fn with_effect(self) -> NoEnd {
        match self {
            NoEnd::Lost => NoEnd::Unknown,
            other => other,
        }
    }
}

/// A transaction that is being recorded.
struct Open {
    process: i64,
    invoked: i64,
    completed: Option<i64>,
    ops: Vec<Op>,
}

impl Open {
    fn new(process: i64, invoked: i64) -> Open {
        Open { process, invoked, completed: None, ops: Vec::new() }
    }
}

fn limit() -> Duration {
    Duration::from_secs(ANSWER_S_MAX)
}

/// Opens a session, as soon as there is one to be had.
///
/// # Errors
/// There is none for 120 s.
pub async fn connect(login: &Login) -> Result<Connection> {
    let deadline = Instant::now() + Duration::from_secs(CONNECT_S_MAX);
    loop {
        match Connection::open(login).await {
            Ok(session) => return Ok(session),
            Err(error) if Instant::now() > deadline => {
                return Err(Failure::new(format!("no session for {CONNECT_S_MAX} s: {error}")));
            }
            Err(_) => sleep(CONNECT_EVERY).await,
        }
    }
}

/// Reads all rows when all sessions have ended, as a final read.
///
/// # Errors
/// What hihooi says.
pub async fn final_read(shared: &Shared) -> Result<Record> {
    let failed = |error: Error| Failure::new(format!("the final reads failed: {error}"));
    let mut session = connect(&shared.login).await?;
    session.query("SET hihooi.consistency = 'strict'").await.map_err(failed)?;
    let invoked = shared.now_ns();
    let mut all = Vec::new();
    session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(failed)?;
    for kept in Kept::ALL {
        let text = format!("SELECT k, v FROM {} ORDER BY k", kept.table());
        for row in session.query(&text).await.map_err(failed)?.rows {
            let number = row[0].as_deref().unwrap_or_default().parse().unwrap_or_default();
            all.push(Op::Read(name(Key { kept, number }), seen(kept, row[1].as_deref())));
        }
    }
    session.query("COMMIT").await.map_err(failed)?;
    session.close().await;
    let transaction = Transaction {
        process: shared.fresh_process(),
        invoked,
        completed: Some(shared.now_ns()),
        outcome: Outcome::Committed,
        is_final: true,
        ops: all,
    };
    Ok(Record { transaction, site: PRIMARY.to_owned(), is_wide: true })
}

/// The steps of a statement for the checker; without an answer, its reads saw nothing.
fn ops(statement: &Statement, answer: Option<&Answer>) -> Vec<Op> {
    let read = |key: &Key| {
        let number = key.number.to_string();
        let is_it = |row: &&Vec<Option<String>>| row[0].as_deref() == Some(number.as_str());
        let row = answer.and_then(|answer| answer.rows.iter().find(is_it));
        Op::Read(name(*key), seen(key.kept, row.and_then(|row| row[1].as_deref())))
    };
    let write = |(key, value): (&Key, &i64)| match key.kept {
        Kept::List => Op::append(name(*key), *value),
        Kept::Register => Op::write(name(*key), *value),
    };
    match statement.is_write() {
        true => statement.keys.iter().zip(&statement.values).map(write).collect(),
        false => statement.keys.iter().map(read).collect(),
    }
}

/// A key's name to the checker.
fn name(key: Key) -> Atom {
    match key.kept {
        Kept::List => Atom::Int(key.number),
        Kept::Register => Atom::Text(format!("r{}", key.number)),
    }
}

/// What a row holds.
fn seen(kept: Kept, text: Option<&str>) -> Seen {
    let Some(text) = text else { return Seen::Nothing };
    // Whatever isn't a number was never written, and the checker says so.
    let number = |text: &str| text.parse().map_or_else(|_| Atom::from(text), Atom::Int);
    match kept {
        Kept::Register => Seen::Value(number(text)),
        Kept::List => {
            let values = text.trim_matches(['{', '}']).split(',');
            Seen::List(values.filter(|value| !value.is_empty()).map(number).collect())
        }
    }
}

/// Errors behind which the session is gone or the statement's end is unknown: connection exceptions (08), ended by an
/// operator (57P), 40003 (statement completion unknown).
fn is_lost(error: &Error) -> bool {
    match error.code() {
        Some(code) => code.starts_with("08") || code.starts_with("57P") || code == "40003",
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_lists_and_registers() {
        assert_eq!(seen(Kept::List, Some("{4,15}")), Seen::List(vec![4.into(), 15.into()]));
        assert_eq!(seen(Kept::List, Some("{}")), Seen::List(Vec::new()));
        assert_eq!(seen(Kept::Register, Some("7")), Seen::Value(7.into()));
        assert_eq!(seen(Kept::Register, None), Seen::Nothing);
    }
}
