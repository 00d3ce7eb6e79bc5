//! Records histories of list-append or register transactions in Jepsen's form, as clients see
//! them: when each transaction was sent, when its end was known, what it read, and whether its end is
//! known.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::client::{Answer, Failure, Session};
use crate::harness::{DATABASE, HANG_S_MAX, USER, eventually, ms, s};

/// Transactions of a client before it goes on to fresh keys.
const TRANSACTIONS_A_KEY: usize = 50;

/// What a key holds.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    Lists,
    Registers,
}

impl Kept {
    /// Table, type of its values, what a write of a new value is to the checker, the row that it
    /// would make, and what becomes of one that is there.
    fn words(self) -> [&'static str; 5] {
        match self {
            Kept::Lists => ["lists", "int[]", "append", "ARRAY[$]", "lists.v || EXCLUDED.v"],
            Kept::Registers => ["registers", "int", "w", "$", "EXCLUDED.v"],
        }
    }

    fn schema(self) -> String {
        let [table, kind, ..] = self.words();
        format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (k int PRIMARY KEY, v {kind})")
    }

    /// One statement that writes to several keys.
    fn writes(self, steps: &[Step]) -> String {
        let [table, _, _, new, old] = self.words();
        let rows = steps.iter().filter_map(|step| match step {
            Step::Write(key, value) => {
                Some(format!("({key}, {})", new.replace('$', &value.to_string())))
            }
            Step::Read(_) => None,
        });
        let rows = rows.collect::<Vec<_>>().join(", ");
        format!("INSERT INTO {table} VALUES {rows} ON CONFLICT (k) DO UPDATE SET v = {old}")
    }

    /// One statement that reads several keys.
    fn reads(self, steps: &[Step]) -> String {
        let keys = steps.iter().filter_map(|step| match step {
            Step::Read(key) => Some(key.to_string()),
            Step::Write(..) => None,
        });
        let keys = keys.collect::<Vec<_>>().join(", ");
        format!("SELECT k, v FROM {} WHERE k IN ({keys})", self.words()[0])
    }

    fn statement(self, step: Step) -> String {
        match step {
            Step::Write(..) => self.writes(&[step]),
            Step::Read(_) => self.reads(&[step]),
        }
    }

    /// A step as the checker reads it.
    fn value(self, step: Step, seen: Option<&Value>) -> Value {
        match step {
            Step::Write(key, value) => json!([self.words()[2], key, value]),
            Step::Read(key) => json!(["r", key, seen.unwrap_or(&Value::Null)]),
        }
    }

    /// What a read saw of its key.
    fn seen(self, step: Step, answer: &Answer) -> Value {
        let Step::Read(key) = step else { return Value::Null };
        let row = answer.rows.iter().find(|row| row[0].as_deref() == Some(&key.to_string()));
        let Some(text) = row.and_then(|row| row[1].as_deref()) else { return Value::Null };
        let number = |text: &str| json!(text.parse::<i64>().expect("a number"));
        match self {
            Kept::Registers => number(text),
            Kept::Lists => {
                let values = text.trim_matches(['{', '}']).split(',');
                values.filter(|value| !value.is_empty()).map(number).collect()
            }
        }
    }
}

/// How a client runs its transactions.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Some steps between a BEGIN like this and COMMIT.
    Block(&'static str),
    /// Some reads between a BEGIN like this and COMMIT.
    Reads(&'static str),
    /// Between a BEGIN like this and COMMIT: a read, a pause, a write to what was read.
    ReadPauseWrite(&'static str),
    /// One statement: a read of some keys.
    ReadStatement,
    /// One statement: writes to some keys.
    WriteStatement,
}

/// What is recorded.
#[derive(Clone, Debug)]
pub struct Plan {
    pub port: u16,
    pub clients: i64,
    /// Transactions of each client, at least: it goes on while something happens beside it.
    pub transactions: usize,
    pub kept: Kept,
    /// Keys in use at a time; after [`TRANSACTIONS_A_KEY`] each client goes on to fresh ones, so
    /// that lists stay short.
    pub keys: i64,
    /// Each transaction takes one of these.
    pub shapes: &'static [Shape],
    pub seed: u64,
}

/// How a transaction ended, as its client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Committed,
    Failed,
    Unknown,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            End::Committed => "ok",
            End::Failed => "fail",
            End::Unknown => "info",
        }
    }
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
struct Transaction {
    process: i64,
    invoked_ns: u64,
    ended_ns: u64,
    end: End,
    /// Its steps and, if it committed, what each of them saw.
    steps: Vec<(Step, Value)>,
    is_final: bool,
}

impl Transaction {
    /// Its two lines and their times.
    fn lines(&self, kept: Kept) -> [(u64, Value); 2] {
        let steps = |sees: bool| -> Vec<Value> {
            let one = |(step, seen): &(Step, Value)| kept.value(*step, sees.then_some(seen));
            self.steps.iter().map(one).collect()
        };
        let line = |time: u64, kind: &str, sees: bool| {
            let mut line = json!({
                "time": time, "process": self.process, "type": kind, "f": "txn",
                "value": steps(sees),
            });
            if self.is_final {
                line["final"] = json!(true);
            }
            line
        };
        let end = line(self.ended_ns, self.end.word(), self.end == End::Committed);
        [(self.invoked_ns, line(self.invoked_ns, "invoke", false)), (self.ended_ns, end)]
    }
}

/// How far a recording is, for what happens beside it.
#[derive(Debug, Default)]
pub struct Progress {
    committed: AtomicU64,
    failed: AtomicU64,
    unknown: AtomicU64,
    /// Nothing happens beside the clients any more.
    is_over: AtomicBool,
}

impl Progress {
    /// Transactions that committed so far.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// Transactions that had no effect, as their clients know.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Transactions whose clients can't know whether they committed.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Waits until that many more transactions have committed.
    pub fn more(&self, transactions: u64) {
        let goal = self.committed() + transactions;
        eventually("the clients make progress", || self.committed() >= goal);
    }
}

/// Lets the clients of a recording end, also when what happened beside them panicked.
struct Over<'a>(&'a Progress);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// What all clients of a recording share.
struct Shared {
    plan: Plan,
    progress: Progress,
    start: Instant,
    next_value: AtomicI64,
    next_process: AtomicI64,
}

/// A recorded history.
#[derive(Debug)]
pub struct Recording {
    kept: Kept,
    transactions: Vec<Transaction>,
}

impl Recording {
    /// Makes the table, runs all clients, and reads every key when they have ended. `meanwhile`
    /// runs beside them, and they don't end before it.
    pub fn make(plan: Plan, meanwhile: impl FnOnce(&Progress)) -> Recording {
        connect(plan.port).expect("a session").run(&plan.kept.schema());
        let shared = Arc::new(Shared {
            start: Instant::now(),
            next_value: AtomicI64::new(1),
            next_process: AtomicI64::new(plan.clients),
            progress: Progress::default(),
            plan,
        });
        let client = |process| {
            let client = Client::new(shared.clone(), process);
            std::thread::spawn(move || client.run())
        };
        let clients: Vec<_> = (0..shared.plan.clients).map(client).collect();
        let over = Over(&shared.progress);
        meanwhile(&shared.progress);
        drop(over);
        let (mut done, mut transactions) = (0, Vec::new());
        for client in clients {
            let client = client.join().expect("a client");
            done = done.max(client.done);
            transactions.extend(client.transactions);
        }
        transactions.extend(final_reads(&shared, done));
        Recording { kept: shared.plan.kept, transactions }
    }

    /// Writes it to a file.
    pub fn write(&self, file: &Path) {
        let mut lines: Vec<(u64, Value)> =
            self.transactions.iter().flat_map(|t| t.lines(self.kept)).collect();
        lines.sort_by_key(|(time, _)| *time);
        let lines = lines.into_iter().enumerate().map(|(index, (_, mut line))| {
            line["index"] = json!(index);
            format!("{line}\n")
        });
        std::fs::write(file, lines.collect::<String>()).expect("own folder");
    }
}

/// The final reads, of all keys of clients that did so many transactions.
fn final_reads(shared: &Arc<Shared>, done: usize) -> Vec<Transaction> {
    let mut client = Client::new(shared.clone(), shared.plan.clients * 1_000_000);
    client.is_final = true;
    let ages = done.div_ceil(TRANSACTIONS_A_KEY) as i64;
    let steps = (0..shared.plan.keys * ages).map(Step::Read).collect();
    client.transact(Shape::ReadStatement, steps);
    client.transactions
}

/// One step of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Writes a value to a key.
    Write(i64, i64),
    /// Reads a key.
    Read(i64),
}

/// Why a transaction has no good end.
enum NoEnd {
    /// It had no effect.
    Failed,
    /// It had no effect, and its session is gone.
    Lost,
    /// Its session is gone, and its COMMIT was sent.
    Unknown,
}

struct Client {
    shared: Arc<Shared>,
    process: i64,
    random: u64,
    session: Option<Session>,
    is_final: bool,
    /// Transactions so far.
    done: usize,
    transactions: Vec<Transaction>,
}

impl Client {
    fn new(shared: Arc<Shared>, process: i64) -> Client {
        let random = shared.plan.seed.wrapping_add(process as u64);
        Client {
            shared,
            process,
            random,
            session: None,
            is_final: false,
            done: 0,
            transactions: Vec::new(),
        }
    }

    fn run(mut self) -> Client {
        while self.done < self.shared.plan.transactions || !self.may_end() {
            let shapes = self.shared.plan.shapes;
            let shape = shapes[self.below(shapes.len() as u64) as usize];
            let steps = self.steps(shape);
            self.transact(shape, steps);
            self.done += 1;
        }
        self
    }

    fn may_end(&self) -> bool {
        self.shared.progress.is_over.load(Ordering::Relaxed)
    }

    /// A number from 0 below a bound (splitmix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn key(&mut self) -> i64 {
        let keys = self.shared.plan.keys;
        let age = (self.done / TRANSACTIONS_A_KEY) as i64;
        age * keys + self.below(keys as u64) as i64
    }

    fn write(&mut self, key: i64) -> Step {
        Step::Write(key, self.shared.next_value.fetch_add(1, Ordering::Relaxed))
    }

    fn steps(&mut self, shape: Shape) -> Vec<Step> {
        match shape {
            Shape::ReadPauseWrite(_) => {
                let key = self.key();
                vec![Step::Read(key), self.write(key)]
            }
            Shape::Block(_) => {
                let one = |client: &mut Client| {
                    let key = client.key();
                    if client.below(2) == 0 { client.write(key) } else { Step::Read(key) }
                };
                (0..=self.below(3)).map(|_| one(self)).collect()
            }
            Shape::Reads(_) | Shape::ReadStatement | Shape::WriteStatement => {
                let mut keys: Vec<i64> = (0..=self.below(3)).map(|_| self.key()).collect();
                keys.sort_unstable();
                keys.dedup();
                let writes = matches!(shape, Shape::WriteStatement);
                let one = |key| if writes { self.write(key) } else { Step::Read(key) };
                keys.into_iter().map(one).collect()
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.shared.start.elapsed().as_nanos() as u64
    }

    fn transact(&mut self, shape: Shape, steps: Vec<Step>) {
        if self.session.is_none() {
            self.session = Some(connect(self.shared.plan.port).expect("a session"));
        }
        let invoked_ns = self.now_ns();
        let session = self.session.as_mut().expect("opened above");
        let ended = run(session, self.shared.plan.kept, shape, &steps);
        let ended_ns = self.now_ns();
        let end = self.end_of(&ended);
        let seen = ended.unwrap_or_else(|_| vec![Value::Null; steps.len()]);
        self.transactions.push(Transaction {
            process: self.process,
            invoked_ns,
            ended_ns,
            end,
            steps: steps.into_iter().zip(seen).collect(),
            is_final: self.is_final,
        });
        if end == End::Unknown {
            // A process whose transaction may still take effect does nothing more.
            self.process = self.shared.next_process.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a transaction, and forgets a session that is gone.
    fn end_of(&mut self, ended: &Result<Vec<Value>, NoEnd>) -> End {
        if matches!(ended, Err(NoEnd::Lost | NoEnd::Unknown)) {
            self.session = None;
        }
        let progress = &self.shared.progress;
        let (end, count) = match ended {
            Ok(_) => (End::Committed, &progress.committed),
            Err(NoEnd::Failed | NoEnd::Lost) => (End::Failed, &progress.failed),
            Err(NoEnd::Unknown) => (End::Unknown, &progress.unknown),
        };
        count.fetch_add(1, Ordering::Relaxed);
        end
    }
}

/// Runs a transaction; what each of its steps saw.
fn run(
    session: &mut Session,
    kept: Kept,
    shape: Shape,
    steps: &[Step],
) -> Result<Vec<Value>, NoEnd> {
    match shape {
        Shape::Block(begin) | Shape::Reads(begin) => block(session, kept, begin, steps, ms(0)),
        Shape::ReadPauseWrite(begin) => block(session, kept, begin, steps, ms(1)),
        Shape::ReadStatement | Shape::WriteStatement => {
            let is_read = matches!(shape, Shape::ReadStatement);
            let text = if is_read { kept.reads(steps) } else { kept.writes(steps) };
            let answer =
                session.extended(&text, &[]).map_err(|failure| match is_lost(&failure) {
                    true if is_read => NoEnd::Lost,
                    // It may have committed before the connection was lost.
                    true => NoEnd::Unknown,
                    false => NoEnd::Failed,
                })?;
            Ok(steps.iter().map(|step| kept.seen(*step, &answer)).collect())
        }
    }
}

fn block(
    session: &mut Session,
    kept: Kept,
    begin: &str,
    steps: &[Step],
    pause: Duration,
) -> Result<Vec<Value>, NoEnd> {
    let mut run = |text: &str| session.simple(text).map(|mut answers| answers.pop());
    let mut inside = || -> Result<Vec<Value>, Failure> {
        run(begin)?;
        let mut all = Vec::new();
        for step in steps {
            let answer = run(&kept.statement(*step))?.unwrap_or_default();
            all.push(kept.seen(*step, &answer));
            std::thread::sleep(pause);
        }
        Ok(all)
    };
    match inside() {
        Ok(all) => match run("COMMIT") {
            Ok(_) => Ok(all),
            Err(failure) if is_lost(&failure) => Err(NoEnd::Unknown),
            Err(_) => Err(NoEnd::Failed),
        },
        // Nothing commits without COMMIT.
        Err(failure) if is_lost(&failure) => Err(NoEnd::Lost),
        Err(_) => Err(run("ROLLBACK").map_or(NoEnd::Lost, |_| NoEnd::Failed)),
    }
}

/// Errors behind which the session is gone or the transaction's end is unknown: connection
/// exceptions, shutdowns, 40003 (statement completion unknown).
fn is_lost(failure: &Failure) -> bool {
    let code = failure.code();
    code.is_empty() || code.starts_with("08") || code.starts_with("57P") || code == "40003"
}

/// A session, as soon as there is one.
pub fn connect(port: u16) -> Result<Session, Failure> {
    let parameters = [("user", USER), ("database", DATABASE)];
    let deadline = Instant::now() + s(HANG_S_MAX);
    loop {
        match Session::open(port, &parameters) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(ms(20)),
            done => return done,
        }
    }
}
