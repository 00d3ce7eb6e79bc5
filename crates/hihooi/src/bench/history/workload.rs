//! The transactions that sessions run: on lists, to which values are appended, and on registers, which are
//! overwritten. Every value is written only once, so that the result of a read shows which writes it saw.

use rand::RngExt;
use rand_pcg::Pcg64;

/// Transactions after which all sessions go on to fresh keys, so that lists stay short.
pub const TRANSACTIONS_AN_AGE: u64 = 500;
/// Most statements that a block begins with; behind some of its writes it reads the same rows again.
const STATEMENTS_MAX: usize = 3;
/// Most rows that a statement names.
const ROWS_MAX: usize = 3;

/// What a key holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kept {
    /// A list of all values that were appended.
    List,
    /// The value that was written last.
    Register,
}

impl Kept {
    /// Both.
    pub const ALL: [Kept; 2] = [Kept::List, Kept::Register];

    /// The table.
    pub fn table(self) -> &'static str {
        match self {
            Kept::List => "hihooi_history_lists",
            Kept::Register => "hihooi_history_registers",
        }
    }

    /// The type of its values.
    pub fn kind(self) -> &'static str {
        match self {
            Kept::List => "int[]",
            Kept::Register => "int",
        }
    }
}

/// A row of one of the tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Its table.
    pub kept: Kept,
    /// Its primary key.
    pub number: i64,
}

/// What a statement does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Reads rows that it names by key.
    Read,
    /// Reads the rows of a range of keys.
    ReadRange,
    /// Reads rows by a condition that names no keys, so that it reads the whole table.
    ReadTable,
    /// Changes an existing row by UPDATE.
    Update,
    /// Changes or makes rows by INSERT … ON CONFLICT.
    Upsert,
}

/// A statement. All its rows are of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// What it does.
    pub what: What,
    /// The rows: ascending, each once.
    pub keys: Vec<Key>,
    /// For a write, the value for each row.
    pub values: Vec<i64>,
    /// Whether it is sent by the extended protocol, with parameters.
    pub is_extended: bool,
}

impl Statement {
    /// Whether it writes.
    pub fn is_write(&self) -> bool {
        matches!(self.what, What::Update | What::Upsert)
    }

    /// Whether it reads without naming its rows.
    pub fn is_wide(&self) -> bool {
        matches!(self.what, What::ReadRange | What::ReadTable)
    }

    /// Its text and the values of its parameters.
    pub fn text(&self) -> (String, Vec<String>) {
        let mut parameters = Vec::new();
        let mut put = |number: i64| {
            if !self.is_extended {
                return number.to_string();
            }
            parameters.push(number.to_string());
            format!("${}", parameters.len())
        };
        let kept = self.keys[0].kept;
        let table = kept.table();
        let numbers = self.keys.iter().map(|key| key.number);
        let (first, last) = (self.keys[0].number, self.keys[self.keys.len() - 1].number);
        let text = match self.what {
            What::Read => {
                let keys: Vec<String> = numbers.map(put).collect();
                format!("SELECT k, v FROM {table} WHERE k IN ({})", keys.join(", "))
            }
            What::ReadRange => {
                format!("SELECT k, v FROM {table} WHERE k >= {} AND k <= {}", put(first), put(last))
            }
            What::ReadTable => {
                let (first, last) = (put(first), put(last));
                format!("SELECT k, v FROM {table} WHERE k + 0 >= {first} AND k + 0 <= {last}")
            }
            What::Update => {
                let value = put(self.values[0]);
                let value = match kept {
                    Kept::List => format!("v || {value}::int"),
                    Kept::Register => value,
                };
                format!("UPDATE {table} SET v = {value} WHERE k = {}", put(first))
            }
            What::Upsert => {
                let row = |(key, value): (i64, &i64)| match kept {
                    Kept::List => format!("({}, ARRAY[{}::int])", put(key), put(*value)),
                    Kept::Register => format!("({}, {}::int)", put(key), put(*value)),
                };
                let rows: Vec<String> = numbers.zip(&self.values).map(row).collect();
                let new = match kept {
                    Kept::List => format!("{table}.v || EXCLUDED.v"),
                    Kept::Register => "EXCLUDED.v".to_owned(),
                };
                let rows = rows.join(", ");
                format!("INSERT INTO {table} VALUES {rows} ON CONFLICT (k) DO UPDATE SET v = {new}")
            }
        };
        (text, parameters)
    }
}

/// A setting that changes no answer.
const SET: &str = "SET LOCAL work_mem = '3MB'";

/// A transaction as its session runs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A statement outside of a block.
    Statement(Statement),
    /// A block in which each statement has its own snapshot: READ COMMITTED.
    Statements {
        /// How it begins, a statement each.
        begin: &'static [&'static str],
        /// What it runs.
        statements: Vec<Statement>,
    },
    /// A block with one snapshot: REPEATABLE READ.
    Snapshot {
        /// How it begins.
        begin: &'static str,
        /// What it runs.
        statements: Vec<Statement>,
    },
}

/// Draws transactions.
#[derive(Debug)]
pub struct Draw {
    random: Pcg64,
    /// Rows of each table that are in use at a time.
    keys: i64,
    first_key: i64,
}

impl Draw {
    /// From a generator, with so many rows of each table in use at a time.
    pub fn new(random: Pcg64, keys: i64) -> Draw {
        Draw { random, keys, first_key: 0 }
    }

    /// Whether a thing happens that does once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.random.random_range(0..times) == 0
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.random_range(0..choices.len())]
    }

    /// A transaction, when so many were drawn before; `value` gives fresh values.
    pub fn transaction(&mut self, drawn: u64, mut value: impl FnMut() -> i64) -> Shape {
        self.first_key = (drawn / TRANSACTIONS_AN_AGE) as i64 * self.keys;
        match self.random.random_range(0..20) {
            0..6 => Shape::Statement(self.read()),
            6..8 => Shape::Statement(self.wide_read()),
            8..13 => {
                let keys = self.rows();
                Shape::Statement(self.write(keys, &mut value))
            }
            13 => Shape::Statements { begin: &["BEGIN READ ONLY"], statements: self.reads() },
            14 => Shape::Statements { begin: &["BEGIN", SET], statements: self.reads() },
            15..17 => {
                let statements = self.statements(&mut value);
                Shape::Statements { begin: &["BEGIN"], statements }
            }
            17 => {
                let statements = self.statements(&mut value);
                Shape::Statements { begin: &["BEGIN", SET], statements }
            }
            18 => Shape::Snapshot {
                begin: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                statements: self.reads(),
            },
            _ => Shape::Snapshot {
                begin: "BEGIN ISOLATION LEVEL REPEATABLE READ",
                statements: self.statements(&mut value),
            },
        }
    }

    fn reads(&mut self) -> Vec<Statement> {
        let count = self.random.random_range(1..=STATEMENTS_MAX);
        (0..count).map(|_| if self.one_in(4) { self.wide_read() } else { self.read() }).collect()
    }

    /// Reads and writes. Writes go to ascending rows, so that blocks seldom deadlock.
    fn statements(&mut self, value: &mut impl FnMut() -> i64) -> Vec<Statement> {
        let mut statements = Vec::new();
        let mut least = None;
        for _ in 0..self.random.random_range(1..=STATEMENTS_MAX) {
            let mut keys = self.rows();
            keys.retain(|key| least.is_none_or(|least| *key > least));
            if keys.is_empty() || self.one_in(2) {
                statements.push(self.read());
                continue;
            }
            let write = self.write(keys, value);
            least = write.keys.last().copied();
            let read = self.one_in(3).then(|| self.read_of(write.keys.clone()));
            statements.push(write);
            statements.extend(read);
        }
        statements
    }

    fn read(&mut self) -> Statement {
        let keys = self.rows();
        self.read_of(keys)
    }

    fn read_of(&mut self, keys: Vec<Key>) -> Statement {
        self.statement(What::Read, keys, Vec::new())
    }

    /// A read of all rows in use.
    fn wide_read(&mut self) -> Statement {
        let kept = self.one_of(&Kept::ALL);
        let what = self.one_of(&[What::ReadRange, What::ReadTable]);
        let numbers = self.first_key..self.first_key + self.keys;
        let keys = numbers.map(|number| Key { kept, number }).collect();
        self.statement(what, keys, Vec::new())
    }

    fn write(&mut self, mut keys: Vec<Key>, value: &mut impl FnMut() -> i64) -> Statement {
        // Even rows are there from the beginning.
        let is_update = keys[0].number % 2 == 0 && self.one_in(2);
        if is_update {
            keys.truncate(1);
        }
        let values = keys.iter().map(|_| value()).collect();
        self.statement(if is_update { What::Update } else { What::Upsert }, keys, values)
    }

    fn statement(&mut self, what: What, keys: Vec<Key>, values: Vec<i64>) -> Statement {
        Statement { what, keys, values, is_extended: self.one_in(2) }
    }

    /// Some rows of one table.
    fn rows(&mut self) -> Vec<Key> {
        let kept = self.one_of(&Kept::ALL);
        let count = self.random.random_range(1..=ROWS_MAX);
        let one = |_| self.first_key + self.random.random_range(0..self.keys);
        let mut numbers: Vec<i64> = (0..count).map(one).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| Key { kept, number }).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn statements_name_their_rows_as_literals_or_as_parameters() {
        let keys = [2, 5].map(|number| Key { kept: Kept::List, number }).to_vec();
        let mut statement =
            Statement { what: What::Upsert, keys, values: vec![7, 8], is_extended: false };
        let (text, parameters) = statement.text();
        assert!(text.contains("VALUES (2, ARRAY[7::int]), (5, ARRAY[8::int]) ON"), "{text}");
        assert!(parameters.is_empty());
        statement.is_extended = true;
        let (text, parameters) = statement.text();
        assert!(text.contains("VALUES ($1, ARRAY[$2::int]), ($3, ARRAY[$4::int]) ON"), "{text}");
        assert_eq!(parameters, ["2", "7", "5", "8"]);
    }

    #[test]
    fn blocks_write_ascending_rows_each_once() {
        let mut draw = Draw::new(Pcg64::seed_from_u64(1), 5);
        for drawn in 0..2_000 {
            let mut values = 0..;
            let shape = draw.transaction(drawn, || values.next().expect("endless"));
            let (Shape::Statements { statements, .. } | Shape::Snapshot { statements, .. }) = shape
            else {
                continue;
            };
            let written: Vec<Key> =
                statements.iter().filter(|s| s.is_write()).flat_map(|s| s.keys.clone()).collect();
            assert!(written.windows(2).all(|two| two[0] < two[1]), "{statements:?}");
        }
    }
}
