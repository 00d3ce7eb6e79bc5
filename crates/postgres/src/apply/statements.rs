//! The SQL of keyed changes (row format; manual, chapter "Logical Replication"). Pure.
//!
//! Values are sent as text parameters. In VALUES and SET they get the column's type; in conditions they have a
//! cast, since an operator could resolve a parameter of unknown type to another type. Names and operators are
//! qualified: appliers have an empty search path.

use hihooi_replication::entry::{Identity, Relation, Tuple, Value};
use postgres_protocol::escape::{escape_identifier, escape_literal};

use super::catalog::{Column, Compare, Table};

/// Where a parameter's value comes from: a column's number in the new or old row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    New(usize),
    Old(usize),
}

/// A statement that can be prepared once and executed for every change of the same shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Statement {
    pub text: String,
    pub slots: Vec<Slot>,
}

impl Statement {
    /// The text for one change, with its values in place of the parameters.
    pub(super) fn literal(&self, old: &[Value], new: &[Value]) -> Vec<u8> {
        self.with_values(old, new, |_, value, text| quote_value(value, text))
    }

    /// As [`Statement::literal`], in ASCII: a value with other characters is a text of its bytes, of which the server
    /// doesn't ask whether they are valid in its encoding, converted to its column's type.
    pub(super) fn literal_of_bytes(
        &self,
        relation: &Relation,
        table: &Table,
        (old, new): (&[Value], &[Value]),
    ) -> Vec<u8> {
        self.with_values(old, new, |column, value, text| {
            let own = &table.columns[&relation.columns[column].name];
            match value.filter(|value| !value.is_ascii() && own.text_is_input) {
                Some(value) => {
                    text.extend_from_slice(b"hihooi.text_of(E'\\\\x");
                    text.extend_from_slice(hex::encode(value).as_bytes());
                    text.extend_from_slice(b"'::pg_catalog.bytea)::");
                    text.extend_from_slice(own.type_name.as_bytes());
                }
                None => quote_value(value, text),
            }
        })
    }

    /// The text with values in place of parameters: `write` writes that of a column.
    fn with_values(
        &self,
        old: &[Value],
        new: &[Value],
        write: impl Fn(usize, Option<&[u8]>, &mut Vec<u8>),
    ) -> Vec<u8> {
        let values: Vec<Option<&[u8]>> = self.values(old, new).collect();
        let mut text = Vec::new();
        // Quoted names, which are every other part, can contain dollars, too.
        for (number, part) in self.text.split('"').enumerate() {
            if number > 0 {
                text.push(b'"');
            }
            if number % 2 == 1 {
                text.extend_from_slice(part.as_bytes());
                continue;
            }
            let mut pieces = part.split('$');
            text.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
            for piece in pieces {
                let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
                let place: usize = piece[..digits].parse().expect("a parameter has a number");
                let (Slot::New(column) | Slot::Old(column)) = self.slots[place - 1];
                write(column, values[place - 1], &mut text);
                text.extend_from_slice(&piece.as_bytes()[digits..]);
            }
        }
        text
    }

    /// The values of one change. An UPDATE or DELETE whose key did not change has no old row of
    /// its own: `old` is then the new one.
    pub(super) fn values<'a>(
        &'a self,
        old: &'a [Value],
        new: &'a [Value],
    ) -> impl ExactSizeIterator<Item = Option<&'a [u8]>> {
        self.slots.iter().map(move |slot| {
            let value = match *slot {
                Slot::New(column) => &new[column],
                Slot::Old(column) => &old[column],
            };
            match value {
                Value::Text(text) => Some(&text[..]),
                Value::Null | Value::Unchanged => None,
            }
        })
    }
}

/// Why there is no statement for a change.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Impossible {
    #[error("column {0} does not exist at the replica")]
    Column(String),
    #[error("the stream gives no key by which to find the row")]
    NoKey,
    #[error("the stream's row has another number of columns than its table")]
    Width,
}

/// What makes changes share a statement: kind, columns left alone, NULLs in the identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Shape(Vec<u8>);

impl Shape {
    pub(super) fn insert() -> Shape {
        Shape(vec![b'I'])
    }

    pub(super) fn update(relation: &Relation, old: Option<&Tuple>, new: &Tuple) -> Shape {
        let mut shape = Vec::with_capacity(1 + 3 * new.len());
        shape.push(if old.is_some() { b'V' } else { b'U' });
        shape.extend(new.iter().map(|value| u8::from(*value == Value::Unchanged)));
        nulls(relation, old.unwrap_or(new), &mut shape);
        shape.extend(relation.columns.iter().enumerate().map(|(column, _)| {
            u8::from(old.is_some_and(|old| old.get(column) != new.get(column)))
        }));
        Shape(shape)
    }

    pub(super) fn delete(relation: &Relation, old: &Tuple) -> Shape {
        let mut shape = vec![b'D'];
        nulls(relation, old, &mut shape);
        Shape(shape)
    }

    /// Of many rows: what they leave as it was.
    pub(super) fn update_many(new: &Tuple) -> Shape {
        let mut shape = Vec::with_capacity(1 + new.len());
        shape.push(b'M');
        shape.extend(new.iter().map(|value| u8::from(*value == Value::Unchanged)));
        Shape(shape)
    }

    /// Of many rows.
    pub(super) fn delete_many() -> Shape {
        Shape(vec![b'N'])
    }
}

fn nulls(relation: &Relation, row: &Tuple, shape: &mut Vec<u8>) {
    if relation.identity == Identity::Full {
        shape.extend(row.iter().map(|value| u8::from(*value == Value::Null)));
    }
}

/// A value as a constant whose meaning depends on no setting.
pub(super) fn quote_value(value: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(value) = value else { return out.extend_from_slice(b"NULL") };
    let escape = value.contains(&b'\\');
    out.extend_from_slice(if escape { b"E'" } else { b"'" });
    for &byte in value {
        if byte == b'\'' || byte == b'\\' {
            out.push(byte);
        }
        out.push(byte);
    }
    out.push(b'\'');
}

/// A value as a constant.
pub(super) fn literal(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL".to_owned(), escape_literal)
}

/// An identifier in double quotes.
pub(super) fn quote(name: &str) -> String {
    escape_identifier(name)
}

/// A relation's qualified name.
pub(super) fn qualified(relation: &Relation) -> String {
    format!("{}.{}", quote(&relation.schema), quote(&relation.name))
}

/// The columns that INSERT and COPY write: their numbers.
pub(super) fn written(relation: &Relation, table: &Table) -> Vec<usize> {
    let is_written = |column: &usize| {
        let own = table.columns.get(&relation.columns[*column].name);
        own.is_none_or(|own| !own.is_generated)
    };
    (0..relation.columns.len()).filter(is_written).collect()
}

/// A column list for INSERT and COPY.
fn column_list(relation: &Relation, columns: &[usize]) -> String {
    let name = |column: &usize| quote(&relation.columns[*column].name);
    columns.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn check(relation: &Relation, table: &Table, rows: &[&Tuple]) -> Result<(), Impossible> {
    let missing = relation.columns.iter().find(|column| !table.columns.contains_key(&column.name));
    if let Some(column) = missing {
        return Err(Impossible::Column(column.name.clone()));
    }
    let fits = |row: &&Tuple| row.len() == relation.columns.len();
    if rows.iter().all(fits) { Ok(()) } else { Err(Impossible::Width) }
}

/// The statement for a new row.
pub(super) fn insert(
    relation: &Relation,
    table: &Table,
    new: &Tuple,
) -> Result<Statement, Impossible> {
    check(relation, table, &[new])?;
    let name = qualified(relation);
    let columns = written(relation, table);
    if columns.is_empty() {
        return Ok(Statement {
            text: format!("INSERT INTO {name} DEFAULT VALUES"),
            slots: Vec::new(),
        });
    }
    let places: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    let text = format!(
        "INSERT INTO {name} ({}) OVERRIDING SYSTEM VALUE VALUES ({})",
        column_list(relation, &columns),
        places.join(", ")
    );
    Ok(Statement { text, slots: columns.into_iter().map(Slot::New).collect() })
}

/// The COPY for a run of new rows, and `None` where COPY can't be used.
pub(super) fn copy(relation: &Relation, table: &Table) -> Result<Option<String>, Impossible> {
    check(relation, table, &[])?;
    let columns = column_list(relation, &written(relation, table));
    let copy = || format!("COPY {} ({columns}) FROM STDIN", qualified(relation));
    Ok((!columns.is_empty()).then(copy))
}

/// One row, of these columns, in COPY's text format.
pub(super) fn copy_row(row: &Tuple, columns: &[usize], out: &mut Vec<u8>) {
    for (number, &column) in columns.iter().enumerate() {
        if number > 0 {
            out.push(b'\t');
        }
        match &row[column] {
            Value::Text(text) => copy_text(text, out),
            Value::Null | Value::Unchanged => out.extend_from_slice(b"\\N"),
        }
    }
    out.push(b'\n');
}

fn copy_text(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        let escaped = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escaped]);
    }
}

/// The statement for a changed row. `old` as in the stream.
pub(super) fn update(
    relation: &Relation,
    table: &Table,
    old: Option<&Tuple>,
    new: &Tuple,
) -> Result<Statement, Impossible> {
    check(relation, table, &[old.unwrap_or(new), new])?;
    if always_may_change(relation, table, old, new) {
        return replace(relation, table, old, new);
    }
    let mut builder = Builder::new(relation, table);
    let mut set: Vec<String> = Vec::new();
    for (number, column) in relation.columns.iter().enumerate() {
        // An UPDATE can't set these; always_may_change found that identities are the same.
        let skip = table.columns[&column.name].cant_be_set();
        if new[number] != Value::Unchanged && !skip {
            let place = builder.place(Slot::New(number));
            set.push(format!("{} = {place}", quote(&column.name)));
        }
    }
    if set.is_empty() {
        // Nothing that could be set; the row must be there all the same.
        let Some(column) = relation.columns.first() else { return Err(Impossible::NoKey) };
        let settable = relation.columns.iter().find(|c| !table.columns[&c.name].cant_be_set());
        match settable {
            Some(column) => set.push(format!("{0} = {0}", quote(&column.name))),
            None => set.push(format!("{} = DEFAULT", quote(&column.name))),
        }
    }
    let condition = builder.condition(old.unwrap_or(new), old.is_some())?;
    let text =
        format!("UPDATE ONLY {} SET {} WHERE {condition}", qualified(relation), set.join(", "));
    Ok(Statement { text, slots: builder.slots })
}

/// Whether a `GENERATED ALWAYS AS IDENTITY` column may have another value than before: an UPDATE
/// can't set it. Under DEFAULT identity the stream has old values of the key only.
fn always_may_change(relation: &Relation, table: &Table, old: Option<&Tuple>, new: &Tuple) -> bool {
    let full = relation.identity == Identity::Full;
    relation.columns.iter().enumerate().any(|(number, column)| {
        let known = full || column.key;
        let changed = old.is_some_and(|old| old[number] != new[number]);
        table.columns[&column.name].identity_always && (!known || changed)
    })
}

/// An UPDATE as a DELETE and an INSERT, which may set every column.
fn replace(
    relation: &Relation,
    table: &Table,
    old: Option<&Tuple>,
    new: &Tuple,
) -> Result<Statement, Impossible> {
    let mut builder = Builder::new(relation, table);
    let columns = written(relation, table);
    let values: Vec<String> = columns
        .iter()
        .map(|&number| match new[number] {
            Value::Unchanged => format!("gone.{}", quote(&relation.columns[number].name)),
            _ => builder.cast(Slot::New(number)),
        })
        .collect();
    let condition = builder.condition(old.unwrap_or(new), old.is_some())?;
    let name = qualified(relation);
    let text = format!(
        "WITH gone AS (DELETE FROM ONLY {name} WHERE {condition} RETURNING *) \
         INSERT INTO {name} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM gone",
        column_list(relation, &columns),
        values.join(", ")
    );
    Ok(Statement { text, slots: builder.slots })
}

/// The statement for a row that is gone.
pub(super) fn delete(
    relation: &Relation,
    table: &Table,
    old: &Tuple,
) -> Result<Statement, Impossible> {
    check(relation, table, &[old])?;
    let mut builder = Builder::new(relation, table);
    let condition = builder.condition(old, true)?;
    let text = format!("DELETE FROM ONLY {} WHERE {condition}", qualified(relation));
    Ok(Statement { text, slots: builder.slots })
}

/// Whether many of the table's rows can be changed by one statement, by key: the numbers of the key's columns.
/// Their values come as arrays, whose elements are read as the columns' own values are.
pub(super) fn batch_key(relation: &Relation, table: &Table) -> Option<Vec<usize>> {
    let keyed = matches!(relation.identity, Identity::Default | Identity::Index);
    let fits = |column: &hihooi_replication::entry::Column| {
        table.columns.get(&column.name).is_some_and(|own| {
            (own.compare != Compare::Text || own.is_generated && !column.key)
                && !own.identity_always
                && (!column.key || own.equals.is_some())
        })
    };
    if !keyed || table.has_other_keys || !relation.columns.iter().all(fits) {
        return None;
    }
    let key = relation.columns.iter().enumerate().filter(|(_, column)| column.key);
    let key: Vec<usize> = key.map(|(number, _)| number).collect();
    (!key.is_empty()).then_some(key)
}

/// The statement that changes many rows, of which all leave the same columns as they were: its parameters are
/// arrays of new values. `None` if no column is left to be set.
pub(super) fn update_many(relation: &Relation, table: &Table, row: &Tuple) -> Option<Statement> {
    let told = |number: &usize| {
        let column = &relation.columns[*number];
        row[*number] != Value::Unchanged
            && (column.key || !table.columns[&column.name].is_generated)
    };
    let columns: Vec<usize> = (0..relation.columns.len()).filter(told).collect();
    let set: Vec<String> = columns
        .iter()
        .filter(|number| !relation.columns[**number].key)
        .map(|number| format!("{} = d.c{number}", quote(&relation.columns[*number].name)))
        .collect();
    let set = (!set.is_empty()).then(|| set.join(", "))?;
    let verb = format!("UPDATE ONLY {} t SET {set} FROM", qualified(relation));
    Some(many(relation, table, &columns, &verb))
}

/// The statement that deletes many rows: its parameters are arrays of the values of the key.
pub(super) fn delete_many(relation: &Relation, table: &Table) -> Option<Statement> {
    let key = batch_key(relation, table)?;
    let verb = format!("DELETE FROM ONLY {} t USING", qualified(relation));
    Some(many(relation, table, &key, &verb))
}

fn many(relation: &Relation, table: &Table, columns: &[usize], verb: &str) -> Statement {
    let own = |number: usize| &table.columns[&relation.columns[number].name];
    let (mut arrays, mut names, mut condition) = (Vec::new(), Vec::new(), Vec::new());
    for (place, &number) in (1..).zip(columns) {
        let column = &relation.columns[number];
        arrays.push(format!("pg_catalog.unnest(${place}::{}[])", own(number).type_name));
        names.push(format!("c{number}"));
        if let Some(equals) = own(number).equals.as_ref().filter(|_| column.key) {
            condition.push(format!("t.{} {equals} d.c{number}", quote(&column.name)));
        }
    }
    let text = format!(
        "{verb} ROWS FROM ({}) d({}) WHERE {}",
        arrays.join(", "),
        names.join(", "),
        condition.join(" AND ")
    );
    Statement { text, slots: columns.iter().map(|&number| Slot::New(number)).collect() }
}

/// TRUNCATE of all these tables, and of partitioned ones of which they are all leaves. Their
/// partitions and children are in the list themselves.
pub(super) fn truncate(
    relations: &[&Relation],
    parents: &[String],
    restart_identity: bool,
) -> String {
    let only = relations.iter().map(|relation| format!("ONLY {}", qualified(relation)));
    let names: Vec<String> = only.chain(parents.iter().cloned()).collect();
    let restart = if restart_identity { " RESTART IDENTITY" } else { "" };
    format!("TRUNCATE {}{restart}", names.join(", "))
}

/// That two values are the same text by their output functions: casts to text may be anybody's.
fn same_text(one: &str, other: &str) -> String {
    let text = |value: &str| format!("pg_catalog.format('%s', {value})");
    format!("{} OPERATOR(pg_catalog.=) {}", text(one), text(other))
}

struct Builder<'a> {
    relation: &'a Relation,
    table: &'a Table,
    slots: Vec<Slot>,
}

impl<'a> Builder<'a> {
    fn new(relation: &'a Relation, table: &'a Table) -> Builder<'a> {
        Builder { relation, table, slots: Vec::new() }
    }

    fn place(&mut self, slot: Slot) -> String {
        self.slots.push(slot);
        format!("${}", self.slots.len())
    }

    fn column(&self, number: usize) -> &'a Column {
        &self.table.columns[&self.relation.columns[number].name]
    }

    fn cast(&mut self, slot: Slot) -> String {
        let (Slot::New(number) | Slot::Old(number)) = slot;
        let type_name = &self.column(number).type_name;
        format!("{}::{type_name}", self.place(slot))
    }

    /// The condition that finds the row; `is_old` tells which row `row` is.
    fn condition(&mut self, row: &Tuple, is_old: bool) -> Result<String, Impossible> {
        let slot = |number| if is_old { Slot::Old(number) } else { Slot::New(number) };
        match self.relation.identity {
            Identity::Default | Identity::Index => self.key_condition(slot),
            Identity::Full => Ok(self.row_condition(row, slot)),
            Identity::Nothing => Err(Impossible::NoKey),
        }
    }

    fn key_condition(&mut self, slot: impl Fn(usize) -> Slot) -> Result<String, Impossible> {
        let mut parts = Vec::new();
        for (number, column) in self.relation.columns.iter().enumerate() {
            if column.key {
                let (name, value) = (quote(&column.name), self.cast(slot(number)));
                parts.push(match &self.column(number).equals {
                    Some(equals) => format!("{name} {equals} {value}"),
                    None => same_text(&name, &value),
                });
            }
        }
        if parts.is_empty() { Err(Impossible::NoKey) } else { Ok(parts.join(" AND ")) }
    }

    /// One row, whichever, of those that equal the old row.
    fn row_condition(&mut self, row: &Tuple, slot: impl Fn(usize) -> Slot) -> String {
        let mut parts = Vec::new();
        for (number, column) in self.relation.columns.iter().enumerate() {
            if self.column(number).is_generated {
                continue;
            }
            let name = quote(&column.name);
            if row[number] == Value::Null {
                // Not `IS NULL`, which holds for a composite of NULLs too.
                parts.push(format!("{name} IS NOT DISTINCT FROM NULL"));
                continue;
            }
            let compare = self.column(number).compare;
            if compare != Compare::Text {
                let value = self.cast(slot(number));
                parts.push(format!("{name} OPERATOR(pg_catalog.=) {value}"));
            }
            if compare != Compare::Exact {
                let value = self.cast(slot(number));
                parts.push(same_text(&name, &value));
            }
        }
        let condition = if parts.is_empty() { "true".to_owned() } else { parts.join(" AND ") };
        format!(
            "ctid = (SELECT ctid FROM ONLY {} WHERE {condition} LIMIT 1)",
            qualified(self.relation)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_place_of_parameters() {
        let text = "UPDATE \"a$1\".\"b\"\"$2\" SET \"c\" = $1, d = $11 WHERE e = $2::x";
        let mut slots = vec![Slot::New(0); 11];
        slots[1] = Slot::Old(0);
        slots[10] = Slot::New(1);
        let statement = Statement { text: text.to_owned(), slots };
        let value = |text: &'static str| Value::Text(text.into());
        let literal = statement.literal(&[value("it's")], &[value("\\x$1"), Value::Null]);
        let expected = "UPDATE \"a$1\".\"b\"\"$2\" SET \"c\" = E'\\\\x$1', d = NULL \
                        WHERE e = 'it''s'::x";
        assert_eq!(String::from_utf8_lossy(&literal), expected);
    }
}
