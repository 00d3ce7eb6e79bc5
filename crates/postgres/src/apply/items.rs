//! What an entry writes, as [`Items`], to decide whether two entries are independent, so that a replica may
//! execute them in parallel (Hihooi section 4.2, Algorithm 1). Pure.
//!
//! Rows are identified by the values of their replica identity, in the order of the table's columns. A
//! dependency is missed only if values with different text forms are equal in PostgreSQL (a nondeterministic
//! collation), or if another key of the table makes rows depend on each other. Then execution fails, and the
//! schedule handles that.
//!
//! Columns are not distinguished: the stream doesn't say which of a row's columns changed.

use std::collections::BTreeMap;

use ahash::AHashMap;
use hihooi_replication::entry::{Change, Identity, Relation, Tuple, Value};
use hihooi_replication::items::{Columns, Item, Items, RelId, Rows, Span};
use hihooi_sql::keys::KeyType;

/// What these changes write. Tables that are `contended` count as a whole.
pub(super) fn of(changes: &[Change], contended: impl Fn(RelId) -> bool) -> Items {
    let mut relations: AHashMap<RelId, &Relation> = AHashMap::new();
    let mut tables: BTreeMap<RelId, Option<Vec<Span>>> = BTreeMap::new();
    for change in changes {
        let (id, rows) = match change {
            Change::Relation(relation) => {
                relations.insert(relation.id, relation);
                continue;
            }
            Change::Insert { relation, new } => (relation, [Some(new), None]),
            Change::Update { relation, old, new } => (relation, [Some(new), old.as_ref()]),
            Change::Delete { relation, old } => (relation, [Some(old), None]),
            Change::Truncate { relations, .. } => {
                tables.extend(relations.iter().map(|id| (*id, None)));
                continue;
            }
            Change::Note(_) => return Items::Everything,
        };
        let spans = tables.entry(*id).or_insert_with(|| (!contended(*id)).then(Vec::new));
        let Some(told) = spans else { continue };
        let span = |row| span_of(relations.get(id)?, row);
        match rows.into_iter().flatten().map(span).collect::<Option<Vec<Span>>>() {
            Some(of_change) => told.extend(of_change),
            None => *spans = None,
        }
    }
    Items::of(tables.into_iter().map(|(table, spans)| Item {
        table,
        rows: spans.map_or(Rows::All, Rows::of),
        columns: Columns::All,
    }))
}

/// The row; `None` if it has no key of its own.
fn span_of(relation: &Relation, row: &Tuple) -> Option<Span> {
    if !matches!(relation.identity, Identity::Default | Identity::Index) {
        return None;
    }
    let mut key = Vec::with_capacity(16);
    for (column, value) in relation.columns.iter().zip(row).filter(|(column, _)| column.key) {
        let Value::Text(text) = value else { return None };
        let canonical = KeyType::of(column.type_oid).and_then(|t| t.push_text(text, &mut key));
        if canonical.is_none() {
            key.extend(text.len().to_be_bytes());
            key.extend_from_slice(text);
        }
    }
    (!key.is_empty()).then(|| Span::row(key))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use hihooi_replication::entry::Column;
    use hihooi_replication::items::SPANS_MAX;
    use hihooi_replication::note::Note;

    use super::*;

    fn relation(identity: Identity, type_oid: u32) -> Change {
        let column = |name: &str, key| Column { name: name.to_owned(), type_oid, key };
        Change::Relation(Arc::new(Relation {
            id: RelId(7),
            schema: "public".to_owned(),
            name: "t".to_owned(),
            identity,
            columns: vec![column("id", true), column("v", identity == Identity::Full)],
        }))
    }

    fn row(id: &str, v: &str) -> Tuple {
        [id, v].map(|text| Value::Text(Bytes::copy_from_slice(text.as_bytes()))).to_vec()
    }

    fn conflict(a: &[Change], b: &[Change]) -> bool {
        of(a, |_| false).overlaps(&of(b, |_| false))
    }

    fn insert(id: &str) -> Vec<Change> {
        insert_of(23, id)
    }

    fn insert_of(type_oid: u32, id: &str) -> Vec<Change> {
        let insert = Change::Insert { relation: RelId(7), new: row(id, "x") };
        vec![relation(Identity::Default, type_oid), insert]
    }

    #[test]
    fn entries_conflict_on_the_same_key_only() {
        assert!(conflict(&insert("1"), &insert("1")));
        assert!(!conflict(&insert("1"), &insert("2")));
        assert!(conflict(&insert_of(1700, "1.0"), &insert_of(1700, "1.00")), "numeric");
        assert!(!conflict(&insert_of(25, "1.0"), &insert_of(25, "1.00")), "text");
        assert!(!conflict(&insert_of(25, "ä"), &insert_of(25, "ö")), "no ASCII");
        assert!(!conflict(&insert_of(16_400, "sad"), &insert_of(16_400, "ok")), "a user's type");
        let whole = of(&insert("1"), |_| true);
        assert_eq!(whole, Items::tables([RelId(7)]), "contended");
    }

    #[test]
    fn a_changed_key_counts_twice() {
        let change =
            Change::Update { relation: RelId(7), old: Some(row("1", "")), new: row("2", "x") };
        let update = [relation(Identity::Default, 23), change];
        assert!(conflict(&update, &insert("1")) && conflict(&update, &insert("2")));
        assert!(!conflict(&update, &insert("3")));
    }

    #[test]
    fn tables_conflict_as_a_whole_under_full_identity_and_truncate() {
        let full = |id| {
            let delete = Change::Delete { relation: RelId(7), old: row(id, "x") };
            [relation(Identity::Full, 23), delete]
        };
        assert!(conflict(&full("1"), &full("2")));
        let truncate = |id| [Change::Truncate { relations: vec![id], restart_identity: false }];
        assert!(conflict(&truncate(RelId(7)), &insert("2")));
        assert!(conflict(&insert("2"), &truncate(RelId(7))));
        assert!(!conflict(&truncate(RelId(8)), &insert("2")));
        let both = [insert("1"), truncate(RelId(7)).to_vec(), insert("2")].concat();
        assert!(conflict(&both, &insert("3")));
    }

    #[test]
    fn many_rows_count_as_their_table() {
        let mut many = vec![relation(Identity::Default, 23)];
        let rows = (0..=SPANS_MAX).map(|id| row(&id.to_string(), "x"));
        many.extend(rows.map(|new| Change::Insert { relation: RelId(7), new }));
        assert!(conflict(&many, &insert("-5")));
    }

    #[test]
    fn ddl_conflicts_with_everything() {
        let noted = [Change::Note(Note::Unknown("x".to_owned()))];
        assert!(conflict(&noted, &insert("1")) && conflict(&insert("1"), &noted));
    }
}
