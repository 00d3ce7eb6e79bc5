//! What a transaction wrote, according to the stream: rows by their replica identity, as text. The relay, which
//! has the catalog, makes [`Items`](crate::items::Items) of them. They are exact rows, a whole table, or
//! everything (I6).

use std::sync::Arc;

use crate::entry::{Change, Identity, Relation, Tuple, Value};
use crate::items::{RelId, SPANS_MAX};

/// What a transaction wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Written {
    /// It may have written anything: it changed the schema, or too many tables.
    Everything,
    /// It wrote in these tables.
    Tables(Vec<WrittenTable>),
}

/// What a transaction wrote in a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenTable {
    /// The table.
    pub table: RelId,
    /// The rows; `None` if they can't be told, or are too many.
    pub rows: Option<WrittenRows>,
}

/// Rows by the columns of their replica identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenRows {
    /// Their columns.
    pub columns: KeyColumns,
    /// The values of each row, one for each column; at most [`SPANS_MAX`] rows.
    pub keys: Vec<Box<[Box<[u8]>]>>,
}

/// Name and type of each column of a replica identity, in the order of the table.
pub type KeyColumns = Arc<[(Box<str>, u32)]>;

/// The columns of a relation's replica identity.
#[must_use]
pub fn key_columns(relation: &Relation) -> KeyColumns {
    let columns = relation.columns.iter().filter(|column| column.key);
    columns.map(|column| (column.name.as_str().into(), column.type_oid)).collect()
}

impl WrittenTable {
    /// Nothing of a table so far; `key` is what [`key_columns`] says of it.
    #[must_use]
    pub fn new(relation: &Relation, key: &KeyColumns) -> WrittenTable {
        let keyed = matches!(relation.identity, Identity::Default | Identity::Index);
        let keyed = keyed && !key.is_empty();
        let rows = keyed.then(|| WrittenRows { columns: Arc::clone(key), keys: Vec::new() });
        WrittenTable { table: relation.id, rows }
    }

    /// A change of the table.
    pub fn add(&mut self, relation: &Relation, change: &Change) {
        let is_told = match change {
            Change::Insert { new, .. } => self.row(relation, new),
            Change::Delete { old, .. } => self.row(relation, old),
            Change::Update { old, new, .. } => {
                old.as_ref().is_none_or(|old| self.row(relation, old)) && self.row(relation, new)
            }
            Change::Relation(_) => true,
            Change::Truncate { .. } | Change::Note(_) => false,
        };
        if !is_told {
            self.rows = None;
        }
    }

    fn row(&mut self, relation: &Relation, row: &Tuple) -> bool {
        let Some(rows) = &mut self.rows else { return false };
        let values = relation.columns.iter().zip(row).filter(|(column, _)| column.key);
        let texts = values.map(|(_, value)| match value {
            // Its own memory: the message it came in may be large.
            Value::Text(text) => Some(Box::from(&**text)),
            Value::Null | Value::Unchanged => None,
        });
        let Some(key) = texts.collect::<Option<Box<[_]>>>() else { return false };
        rows.keys.push(key);
        rows.keys.len() <= SPANS_MAX
    }
}
