//! A history: what clients requested, when, and the results that they got.
//!
//! Transactions are numbered from 1 in the order of their invocations (of [`History::push`] for those made in
//! memory). Everything is stored in flat tables: a million transactions with lists of some twenty values take a
//! few hundred megabytes.

use std::fmt;
use std::ops::Range;

use ahash::AHashMap;

/// More values in read lists than this are refused: positions have 32 bits.
pub const ELEMENTS_MAX: usize = u32::MAX as usize;
/// More transactions than this are refused: graphs have some nodes and edges for each, of 32 bits.
pub const TRANSACTIONS_MAX: usize = 1 << 26;

/// A key or a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Atom {
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
}

impl From<i64> for Atom {
    fn from(number: i64) -> Atom {
        Atom::Int(number)
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Atom {
        Atom::Text(text.to_owned())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Atom {
        Atom::Text(text)
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Int(number) => write!(f, "{number}"),
            Atom::Text(text) => f.write_str(text),
        }
    }
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Puts a value behind a list. No other append to that list may have the value, unless it
    /// aborted.
    Append(Atom, Atom),
    /// Sets a register. No other write of that register may have the value, unless it aborted.
    Write(Atom, Atom),
    /// Reads a key.
    Read(Atom, Seen),
}

/// What a read returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// No value: an empty list, or a register that was never set.
    Nothing,
    /// A list's values, oldest first.
    List(Vec<Atom>),
    /// A register's value.
    Value(Atom),
}

impl Op {
    /// Puts a value behind a list.
    pub fn append(key: impl Into<Atom>, value: impl Into<Atom>) -> Op {
        Op::Append(key.into(), value.into())
    }

    /// Sets a register.
    pub fn write(key: impl Into<Atom>, value: impl Into<Atom>) -> Op {
        Op::Write(key.into(), value.into())
    }

    /// Reads a list.
    pub fn list<A: Into<Atom>>(key: impl Into<Atom>, seen: impl IntoIterator<Item = A>) -> Op {
        Op::Read(key.into(), Seen::List(seen.into_iter().map(Into::into).collect()))
    }

    /// Reads a register.
    pub fn register<A: Into<Atom>>(key: impl Into<Atom>, seen: Option<A>) -> Op {
        let seen = seen.map_or(Seen::Nothing, |value| Seen::Value(value.into()));
        Op::Read(key.into(), seen)
    }
}

/// What the client knows about the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was told that the transaction committed.
    Committed,
    /// It was told that the transaction did not and will not commit.
    Aborted,
    /// It was told nothing: the transaction may have committed, or may do so later.
    Unknown,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The client's session: one transaction after another.
    pub process: i64,
    /// When its first statement was about to be sent, in nanoseconds.
    pub invoked: i64,
    /// When its end was known, in nanoseconds; `None` when it never was.
    pub completed: Option<i64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it read after all other clients had ended, so that it must show every
    /// acknowledged append to the lists that it read (of those that are final themselves, what had
    /// ended before).
    pub is_final: bool,
    /// Its steps. What an aborted one or one of unknown outcome read is not looked at.
    pub ops: Vec<Op>,
}

/// A history that can't be judged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadHistory {
    /// The line, from 1; for histories made in memory the transaction's number.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

/// Index of a transaction, from 0.
pub(crate) type Txn = u32;
/// Index of a key.
pub(crate) type Key = u32;
/// Index of a value.
pub(crate) type Value = u32;

/// A step, by indexes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Append(Key, Value),
    Write(Key, Value),
    /// A list at `start..start + len` of the values that were read.
    List {
        key: Key,
        start: u32,
        len: u32,
    },
    Register(Key, Value),
    Nothing(Key),
}

/// A transaction, by indexes.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub process: i64,
    pub invoked: i64,
    /// `i64::MAX` when it never completed.
    pub completed: i64,
    pub outcome: Outcome,
    pub is_final: bool,
    /// Lines of invocation and completion, 0 if there are none.
    pub lines: (u32, u32),
    steps: (u32, u32),
}

/// Who wrote a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub txn: Txn,
    /// Whether the transaction wrote nothing more to the key afterwards.
    pub last: bool,
}

/// What a key is, as its use tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Nobody wrote it or saw a value in it.
    Unknown,
    List,
    Register,
}

/// A recorded history.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(crate) records: Vec<Record>,
    steps: Vec<Step>,
    elements: Vec<Value>,
    keys: Names,
    pub(crate) shapes: Vec<Shape>,
    values: Names,
    writers: AHashMap<(Key, Value), Writer>,
}

/// Names and their indexes.
#[derive(Clone, Debug, Default)]
struct Names {
    index: AHashMap<Atom, u32>,
    names: Vec<Atom>,
}

impl Names {
    fn index(&mut self, name: Atom) -> u32 {
        if let Some(&index) = self.index.get(&name) {
            return index;
        }
        let index = self.names.len() as u32;
        self.names.push(name.clone());
        self.index.insert(name, index);
        index
    }
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new() -> History {
        History::default()
    }

    /// Adds a transaction. Those of one process are added in their order.
    ///
    /// # Errors
    /// When it writes a value that was written to that key before, or uses a list as a register.
    pub fn push(&mut self, transaction: Transaction) -> Result<(), BadHistory> {
        let line = self.records.len() + 1;
        let bad = |why| BadHistory { line, why };
        let txn = self.open(transaction.process, transaction.invoked, 0).map_err(bad)?;
        let record = &mut self.records[txn as usize];
        record.completed = transaction.completed.unwrap_or(i64::MAX);
        record.outcome = transaction.outcome;
        record.is_final = transaction.is_final;
        self.fill(txn, transaction.ops).map_err(bad)
    }

    /// Makes room for a transaction, whose outcome is unknown until it is told.
    pub(crate) fn open(&mut self, process: i64, invoked: i64, line: u32) -> Result<Txn, String> {
        if self.records.len() >= TRANSACTIONS_MAX {
            return Err(format!("more than {TRANSACTIONS_MAX} transactions"));
        }
        self.records.push(Record {
            process,
            invoked,
            completed: i64::MAX,
            outcome: Outcome::Unknown,
            is_final: false,
            lines: (line, 0),
            steps: (0, 0),
        });
        Ok(self.records.len() as u32 - 1)
    }

    /// Gives a transaction its steps.
    pub(crate) fn fill(&mut self, txn: Txn, ops: Vec<Op>) -> Result<(), String> {
        let start = self.steps.len();
        if start + ops.len() > u32::MAX as usize {
            return Err("more steps than 32 bits count".to_owned());
        }
        for op in ops {
            let step = self.step(op)?;
            self.steps.push(step);
        }
        self.records[txn as usize].steps = (start as u32, self.steps.len() as u32);
        for at in start..self.steps.len() {
            if let Step::Append(key, value) | Step::Write(key, value) = self.steps[at] {
                self.note_writer(txn, at, key, value)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, op: Op) -> Result<Step, String> {
        Ok(match op {
            Op::Append(key, value) => {
                Step::Append(self.key_of(key, Shape::List)?, self.values.index(value))
            }
            Op::Write(key, value) => {
                Step::Write(self.key_of(key, Shape::Register)?, self.values.index(value))
            }
            Op::Read(key, Seen::Nothing) => Step::Nothing(self.key_of(key, Shape::Unknown)?),
            Op::Read(key, Seen::Value(value)) => {
                Step::Register(self.key_of(key, Shape::Register)?, self.values.index(value))
            }
            Op::Read(key, Seen::List(values)) => {
                let key = self.key_of(key, Shape::List)?;
                let (start, len) = (self.elements.len(), values.len());
                if start + len > ELEMENTS_MAX {
                    return Err(format!("lists hold more than {ELEMENTS_MAX} values in all"));
                }
                for value in values {
                    let value = self.values.index(value);
                    self.elements.push(value);
                }
                Step::List { key, start: start as u32, len: len as u32 }
            }
        })
    }

    fn key_of(&mut self, name: Atom, shape: Shape) -> Result<Key, String> {
        let key = self.keys.index(name);
        if key as usize == self.shapes.len() {
            self.shapes.push(shape);
        }
        let known = &mut self.shapes[key as usize];
        if *known == Shape::Unknown {
            *known = shape;
        }
        if shape != Shape::Unknown && *known != shape {
            let name = &self.keys.names[key as usize];
            return Err(format!("key {name} is used as a list and as a register"));
        }
        Ok(key)
    }

    fn note_writer(&mut self, txn: Txn, at: usize, key: Key, value: Value) -> Result<(), String> {
        let end = self.records[txn as usize].steps.1 as usize;
        let same_key = |s: &Step| matches!(s, Step::Append(k, _) | Step::Write(k, _) if *k == key);
        let last = !self.steps[at + 1..end].iter().any(same_key);
        let aborted = |txn: Txn| self.records[txn as usize].outcome == Outcome::Aborted;
        match self.writers.get(&(key, value)) {
            // A client may try again with the same value what is known to have failed.
            Some(_) if aborted(txn) => return Ok(()),
            Some(other) if !aborted(other.txn) => {
                return Err(format!(
                    "value {} is written to key {} a second time (first by T{}): values must be \
                     unique",
                    self.value_name(value),
                    self.key_name(key),
                    other.txn + 1
                ));
            }
            _ => {}
        }
        self.writers.insert((key, value), Writer { txn, last });
        Ok(())
    }

    /// Number of transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no transactions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn record(&self, txn: Txn) -> &Record {
        &self.records[txn as usize]
    }

    /// Transactions, in the order of their numbers.
    pub(crate) fn txns(&self) -> Range<Txn> {
        0..self.records.len() as Txn
    }

    pub(crate) fn steps(&self, txn: Txn) -> &[Step] {
        let (start, end) = self.record(txn).steps;
        &self.steps[start as usize..end as usize]
    }

    pub(crate) fn elements(&self, start: u32, len: u32) -> &[Value] {
        &self.elements[start as usize..][..len as usize]
    }

    pub(crate) fn writer(&self, key: Key, value: Value) -> Option<Writer> {
        self.writers.get(&(key, value)).copied()
    }

    pub(crate) fn key_name(&self, key: Key) -> &Atom {
        &self.keys.names[key as usize]
    }

    pub(crate) fn value_name(&self, value: Value) -> &Atom {
        &self.values.names[value as usize]
    }

    pub(crate) fn keys(&self) -> usize {
        self.shapes.len()
    }
}
