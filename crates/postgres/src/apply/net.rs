//! The net effect of a group of entries: at most one change of each row, arranged so that one statement can
//! make several changes of a table. Pure.
//!
//! A group is one transaction at the replica, so intermediate states are not visible (I2). Changes of different
//! rows of a table are reordered here. So this is done only in tables where rows don't depend on each other:
//! not where there is another key, or where functions run when rows are written.

use std::borrow::Cow;
use std::collections::hash_map::Entry;

use ahash::AHashMap;
use hihooi_replication::entry::{Change, Tuple, Value};
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::RelId;

/// What may be done with a table's changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// They are made as they came.
    AsTheyCame,
    /// They are new rows only, in any order.
    NewRows,
    /// By key: the columns with these numbers. (No change has another key than its row had.)
    Keyed(Vec<usize>),
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Net<'a> {
    /// These as they came; first.
    pub as_they_came: Vec<(Tsid, &'a Change)>,
    /// Then these.
    pub tables: Vec<Table<'a>>,
}

/// What is to be done in a table, in this order.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub relation: RelId,
    /// Rows that are gone.
    pub deletes: Vec<&'a Tuple>,
    /// Rows that changed, as they are now.
    pub updates: Vec<Cow<'a, Tuple>>,
    /// New rows.
    pub inserts: Vec<Cow<'a, Tuple>>,
}

/// The state of a row behind some changes of it.
enum Row<'a> {
    /// Not there, as before.
    Nothing,
    New(Cow<'a, Tuple>),
    Changed(Cow<'a, Tuple>),
    Gone(&'a Tuple),
    /// Gone, and a new one of that key is there.
    Replaced(&'a Tuple, Cow<'a, Tuple>),
}

/// What these changes do in the end. `None` if a row's changes don't follow from one another: then they are made as
/// they came, which finds out.
pub(super) fn of<'a>(
    changes: impl Iterator<Item = (Tsid, &'a Change)>,
    kind: impl Fn(RelId) -> Kind,
) -> Option<Net<'a>> {
    let mut net = Net::default();
    let mut tables: Vec<(RelId, Kind, Rows<'a>)> = Vec::new();
    for (tsid, change) in changes {
        let id = match change {
            Change::Relation(_) => continue,
            Change::Insert { relation, .. }
            | Change::Update { relation, .. }
            | Change::Delete { relation, .. } => *relation,
            Change::Truncate { .. } | Change::Note(_) => {
                net.as_they_came.push((tsid, change));
                continue;
            }
        };
        let at = tables.iter().position(|(known, ..)| *known == id).unwrap_or_else(|| {
            tables.push((id, kind(id), Rows::default()));
            tables.len() - 1
        });
        let (_, kind, rows) = &mut tables[at];
        match (kind, change) {
            (Kind::NewRows, Change::Insert { new, .. }) => {
                rows.rows.push(Row::New(Cow::Borrowed(new)));
            }
            (Kind::Keyed(key), change) => rows.add(key, change)?,
            _ => net.as_they_came.push((tsid, change)),
        }
    }
    net.tables = tables.into_iter().map(|(relation, _, rows)| rows.finish(relation)).collect();
    Some(net)
}

/// The rows of a table that changed, in the order of their first change.
#[derive(Default)]
struct Rows<'a> {
    places: AHashMap<Vec<u8>, usize>,
    rows: Vec<Row<'a>>,
}

impl<'a> Rows<'a> {
    fn add(&mut self, key: &[usize], change: &'a Change) -> Option<()> {
        let row = match change {
            Change::Insert { new, .. } | Change::Update { old: None, new, .. } => new,
            Change::Delete { old, .. } => old,
            _ => return None,
        };
        match self.places.entry(key_of(row, key)?) {
            Entry::Vacant(vacant) => {
                vacant.insert(self.rows.len());
                self.rows.push(match change {
                    Change::Insert { new, .. } => Row::New(Cow::Borrowed(new)),
                    Change::Delete { old, .. } => Row::Gone(old),
                    _ => Row::Changed(Cow::Borrowed(row)),
                });
            }
            Entry::Occupied(known) => {
                let row = &mut self.rows[*known.get()];
                *row = behind(std::mem::replace(row, Row::Nothing), change)?;
            }
        }
        Some(())
    }

    fn finish(self, relation: RelId) -> Table<'a> {
        let mut table =
            Table { relation, deletes: Vec::new(), updates: Vec::new(), inserts: Vec::new() };
        for row in self.rows {
            match row {
                Row::Nothing => {}
                Row::New(new) => table.inserts.push(new),
                Row::Changed(new) => table.updates.push(new),
                Row::Gone(old) => table.deletes.push(old),
                Row::Replaced(old, new) => {
                    table.deletes.push(old);
                    table.inserts.push(new);
                }
            }
        }
        table
    }
}

/// A row behind one more change; `None` if that can't be.
fn behind<'a>(row: Row<'a>, change: &'a Change) -> Option<Row<'a>> {
    Some(match (row, change) {
        (Row::Nothing, Change::Insert { new, .. }) => Row::New(Cow::Borrowed(new)),
        (Row::Gone(old), Change::Insert { new, .. }) => Row::Replaced(old, Cow::Borrowed(new)),
        (Row::New(before), Change::Update { new, .. }) => Row::New(over(before, new)),
        (Row::Changed(before), Change::Update { new, .. }) => Row::Changed(over(before, new)),
        (Row::Replaced(old, before), Change::Update { new, .. }) => {
            Row::Replaced(old, over(before, new))
        }
        (Row::New(_), Change::Delete { .. }) => Row::Nothing,
        (Row::Changed(_), Change::Delete { old, .. }) => Row::Gone(old),
        (Row::Replaced(old, _), Change::Delete { .. }) => Row::Gone(old),
        _ => return None,
    })
}

/// The newer row, with the older one's values where it leaves them as they were.
fn over<'a>(older: Cow<'a, Tuple>, newer: &'a Tuple) -> Cow<'a, Tuple> {
    if !newer.contains(&Value::Unchanged) {
        return Cow::Borrowed(newer);
    }
    let value = |(newer, older): (&Value, &Value)| match newer {
        Value::Unchanged => older.clone(),
        newer => newer.clone(),
    };
    Cow::Owned(newer.iter().zip(older.iter()).map(value).collect())
}

/// The texts of a row's key.
fn key_of(row: &Tuple, key: &[usize]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(16);
    for &column in key {
        let Value::Text(text) = row.get(column)? else { return None };
        bytes.extend(text.len().to_be_bytes());
        bytes.extend_from_slice(text);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    const T: RelId = RelId(1);

    fn text(number: u8) -> Value {
        Value::Text(Bytes::from(number.to_string()))
    }

    /// A table of keys and two values, and the changes that random wishes make of it.
    #[derive(Clone, Default)]
    struct Model(BTreeMap<u8, Tuple>);

    impl Model {
        fn change(&mut self, key: u8, what: u8, a: u8, b: u8) -> Change {
            let row = vec![text(key), text(a), text(b)];
            match self.0.get_mut(&key) {
                None => {
                    self.0.insert(key, row.clone());
                    Change::Insert { relation: T, new: row }
                }
                Some(_) if what == 0 => {
                    self.0.remove(&key);
                    Change::Delete { relation: T, old: vec![text(key), Value::Null, Value::Null] }
                }
                Some(known) => {
                    known[1] = text(a);
                    let mut new = known.clone();
                    match what {
                        1 => new[2] = Value::Unchanged,
                        _ => {
                            new[2] = text(b);
                            known[2] = text(b);
                        }
                    }
                    Change::Update { relation: T, old: None, new }
                }
            }
        }

        /// As a replica carries it out.
        fn carry_out(&mut self, net: &Table<'_>) {
            let key = |row: &Tuple| match &row[0] {
                Value::Text(text) => String::from_utf8_lossy(text).parse().expect("a number"),
                _ => unreachable!("keys are texts"),
            };
            for old in &net.deletes {
                assert!(self.0.remove(&key(old)).is_some(), "a row was there");
            }
            for new in &net.updates {
                let row = self.0.get_mut(&key(new)).expect("a row is there");
                for (value, new) in row.iter_mut().zip(new.iter()) {
                    if *new != Value::Unchanged {
                        *value = new.clone();
                    }
                }
            }
            for new in &net.inserts {
                assert!(!new.contains(&Value::Unchanged));
                assert!(self.0.insert(key(new), new.to_vec()).is_none(), "no row was there");
            }
        }
    }

    proptest! {
        /// The net changes lead where all of them lead, and name each row once.
        #[test]
        fn net_changes_lead_where_the_changes_lead(
            before in prop::collection::vec((0u8..8, any::<u8>(), any::<u8>()), 0..8),
            wishes in prop::collection::vec((0u8..8, 0u8..4, any::<u8>(), any::<u8>()), 0..40),
        ) {
            let mut primary = Model::default();
            for (key, a, b) in before {
                primary.0.insert(key, vec![text(key), text(a), text(b)]);
            }
            let mut replica = primary.clone();
            let changes: Vec<Change> = wishes
                .into_iter()
                .map(|(key, what, a, b)| primary.change(key, what, a, b))
                .collect();
            let tell = changes.iter().map(|change| (Tsid(1), change));
            let net = of(tell, |_| Kind::Keyed(vec![0])).expect("they follow from one another");
            prop_assert!(net.as_they_came.is_empty());
            net.tables.iter().for_each(|table| replica.carry_out(table));
            prop_assert_eq!(replica.0, primary.0);
        }
    }

    #[test]
    fn what_does_not_follow_is_made_as_it_came() {
        let insert = Change::Insert { relation: T, new: vec![text(1)] };
        let delete = Change::Delete { relation: T, old: vec![text(1)] };
        let moved = Change::Update { relation: T, old: Some(vec![text(1)]), new: vec![text(2)] };
        let of = |changes: &[&Change], kind: Kind| {
            of(changes.iter().map(|change| (Tsid(1), *change)), |_| kind.clone()).map(|net| {
                (net.as_they_came.len(), net.tables.iter().map(|t| t.inserts.len()).sum())
            })
        };
        let keyed = || Kind::Keyed(vec![0]);
        assert_eq!(of(&[&insert, &insert], keyed()), None);
        assert_eq!(of(&[&delete, &delete], keyed()), None);
        assert_eq!(of(&[&moved], keyed()), None);
        assert_eq!(of(&[&insert, &insert], Kind::NewRows), Some((0, 2usize)));
        assert_eq!(of(&[&insert, &delete], Kind::AsTheyCame), Some((2, 0)));
    }
}
