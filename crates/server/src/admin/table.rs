//! What a command answers: rows of text, numbers and times, which drivers get in the types and formats that they ask
//! for.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use hihooi_wire::backend::{self, ColumnType};
use x509_cert::der::DateTime;

/// Microseconds from the beginning of Unix' time to PostgreSQL's.
const EPOCH_2000_US: i64 = 946_684_800_000_000;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// `text`.
    Text,
    /// `bigint`.
    Int,
    /// `double precision`.
    Float,
    /// `timestamp with time zone`.
    Time,
}

/// A column of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What that means.
    pub tells: &'static str,
}

/// A column of texts.
pub(super) const fn text(name: &'static str, tells: &'static str) -> Column {
    Column { name, kind: Kind::Text, tells }
}

/// A column of whole numbers.
pub(super) const fn int(name: &'static str, tells: &'static str) -> Column {
    Column { name, kind: Kind::Int, tells }
}

/// A column of numbers.
pub(super) const fn float(name: &'static str, tells: &'static str) -> Column {
    Column { name, kind: Kind::Float, tells }
}

/// A column of times.
pub(super) const fn time(name: &'static str, tells: &'static str) -> Column {
    Column { name, kind: Kind::Time, tells }
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Null,
    Text(String),
    Int(i64),
    Float(f64),
    Time(SystemTime),
}

/// What a command answers.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Its columns; none if it has no rows.
    pub columns: &'static [Column],
    /// Its rows.
    pub rows: Vec<Vec<Value>>,
    /// Its command tag.
    pub command: String,
}

impl Table {
    /// An empty result with these columns.
    pub(super) fn new(columns: &'static [Column]) -> Table {
        Table { columns, rows: Vec::new(), command: "SHOW".to_owned() }
    }

    /// The result of a command without rows.
    pub(super) fn done(command: &str) -> Table {
        Table { command: command.to_owned(), ..Table::default() }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, values: impl IntoIterator<Item = Value>) {
        let row: Vec<Value> = values.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "{:?}", self.columns);
        debug_assert!(row.iter().zip(self.columns).all(|(value, column)| value.is(column.kind)));
        self.rows.push(row);
    }
}

/// Writes the RowDescription of columns, in these formats (as in Bind: none, one for all, or one for each).
pub(super) fn describe(columns: &[Column], formats: &[bool], out: &mut BytesMut) {
    let columns = columns.iter().enumerate().map(|(at, column)| {
        let is_binary = is_binary(formats, at);
        (column.name, column.kind.column_type(), is_binary)
    });
    backend::row_description_of(columns, out);
}

/// Writes a DataRow in these formats.
pub(super) fn write_row(row: &[Value], formats: &[bool], out: &mut BytesMut) {
    let values = row.iter().enumerate().map(|(at, value)| value.bytes(is_binary(formats, at)));
    backend::data_row(values, out);
}

fn is_binary(formats: &[bool], at: usize) -> bool {
    match formats {
        [all] => *all,
        each => each.get(at).copied().unwrap_or(false),
    }
}

impl Kind {
    /// Its OID and length, as in `pg_type`.
    fn column_type(self) -> ColumnType {
        match self {
            Kind::Text => ColumnType::TEXT,
            Kind::Int => ColumnType { oid: 20, len: 8 },
            Kind::Float => ColumnType { oid: 701, len: 8 },
            Kind::Time => ColumnType { oid: 1184, len: 8 },
        }
    }
}

impl Value {
    fn is(&self, kind: Kind) -> bool {
        match self {
            Value::Null => true,
            Value::Text(_) => kind == Kind::Text,
            Value::Int(_) => kind == Kind::Int,
            Value::Float(_) => kind == Kind::Float,
            Value::Time(_) => kind == Kind::Time,
        }
    }

    /// As it is sent; `None` is NULL.
    fn bytes(&self, is_binary: bool) -> Option<Bytes> {
        let text = match self {
            Value::Null => return None,
            Value::Text(text) => text.clone(),
            Value::Int(number) if is_binary => return Some(copied(&number.to_be_bytes())),
            Value::Float(number) if is_binary => return Some(copied(&number.to_be_bytes())),
            Value::Time(at) if is_binary => {
                let us = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
                let us = i64::try_from(us).unwrap_or(i64::MAX) - EPOCH_2000_US;
                return Some(copied(&us.to_be_bytes()));
            }
            Value::Int(number) => number.to_string(),
            Value::Float(number) => format!("{number:.2}"),
            Value::Time(at) => {
                // The only calendar among our libraries: it writes 2026-01-31T23:59:59Z.
                let written = DateTime::from_system_time(*at).map(|at| at.to_string());
                let written = written.unwrap_or_default();
                format!("{}+00", written.replace('T', " ").trim_end_matches('Z'))
            }
        };
        Some(text.into())
    }
}

fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Int(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Value {
        Value::Int(number.into())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Value {
        Value::Int(number.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Float(number)
    }
}

impl From<SystemTime> for Value {
    fn from(at: SystemTime) -> Value {
        Value::Time(at)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn values_are_written_in_both_formats() {
        let at = UNIX_EPOCH + Duration::from_secs(951_782_399); // a leap year's day
        let text = |value: Value| {
            value.bytes(false).map(|text| String::from_utf8_lossy(&text).into_owned())
        };
        assert_eq!(text(Value::from(at)).as_deref(), Some("2000-02-28 23:59:59+00"));
        assert_eq!(text(Value::from(7_u64)).as_deref(), Some("7"));
        assert_eq!(text(Value::from(1.5)).as_deref(), Some("1.50"));
        assert_eq!(text(Value::from(None::<u64>)), None);
        let binary = |value: Value| value.bytes(true).expect("a value").to_vec();
        assert_eq!(binary(Value::from(7_u64)), 7_i64.to_be_bytes());
        assert_eq!(binary(Value::from(1.5)), 1.5_f64.to_be_bytes());
        assert_eq!(binary(Value::from("a")), b"a");
        assert_eq!(binary(Value::from(at)), 5_097_599_000_000_i64.to_be_bytes());
        assert_eq!(Value::from(u64::MAX), Value::Int(i64::MAX));
    }

    #[test]
    fn formats_are_none_one_for_all_or_one_for_each() {
        let wanted = |formats: &[bool]| [0, 1].map(|at| is_binary(formats, at));
        assert_eq!(wanted(&[]), [false, false]);
        assert_eq!(wanted(&[true]), [true, true]);
        assert_eq!(wanted(&[false, true]), [false, true]);
    }
}
