//! Executes the net effect of a group, with one statement for many rows. If the number of changed rows isn't as
//! expected, the batch fails, and the group's changes are executed one by one.

use std::sync::Arc;

use ahash::AHashMap;
use hihooi_replication::entry::{Change, Relation, Tuple};
use hihooi_replication::ids::Tsid;
use hihooi_replication::items::RelId;
use hihooi_wire::frontend;

use super::{Expected, Followed, Session};
use crate::apply::catalog::Table;
use crate::apply::net::{self, Kind, Net};
use crate::apply::restricted::Array;
use crate::apply::statements::{self, Shape};
use crate::apply::words::What;
use crate::apply::work::Group;
use crate::connection::Result;

/// A group with so many changes of rows is looked through for what it changes in the end.
const NET_CHANGES_MIN: u64 = 8;
/// So many rows of a table, or more, are changed by one statement, and at most so many.
const BATCH_ROWS_MIN: usize = 4;
const BATCH_ROWS_MAX: usize = 1_000;

impl Session {
    /// What a group changes in the end; `None` if its changes are to be made as they came.
    pub(super) async fn net<'a>(&mut self, group: &'a Group) -> Result<Option<Net<'a>>> {
        if group.works.iter().map(|work| work.header().changes).sum::<u64>() < NET_CHANGES_MIN {
            return Ok(None);
        }
        let mut changes = Vec::new();
        for work in &group.works {
            let Some(of_entry) = work.changes.as_ref().filter(|_| !work.header().has_ddl) else {
                return Ok(None);
            };
            changes.extend(of_entry.iter().map(|change| (work.header().tsid, change)));
        }
        self.followed = Followed::default();
        let Some(kinds) = self.kinds(&changes).await? else { return Ok(None) };
        let kind = |id| kinds.get(&id).cloned().unwrap_or(Kind::AsTheyCame);
        Ok(net::of(changes.into_iter(), kind))
    }

    /// What may be done with the changes of each table; `None` if nothing but making them as they came.
    async fn kinds(
        &mut self,
        changes: &[(Tsid, &Change)],
    ) -> Result<Option<AHashMap<RelId, Kind>>> {
        let mut kinds: AHashMap<RelId, Kind> = AHashMap::new();
        for (tsid, change) in changes {
            match change {
                Change::Relation(relation) => {
                    let is_known = self.relations.get(&relation.id) == Some(relation);
                    if !kinds.contains_key(&relation.id) {
                        self.describe(relation);
                        let Some(kind) = self.kind(*tsid, relation.id).await? else {
                            return Ok(None);
                        };
                        kinds.insert(relation.id, kind);
                    } else if !is_known {
                        return Ok(None);
                    }
                }
                Change::Truncate { relations, .. } => {
                    kinds.extend(relations.iter().map(|id| (*id, Kind::AsTheyCame)));
                }
                Change::Update { relation, old, .. } => match kinds.get_mut(relation) {
                    Some(kind) if old.is_some() || *kind == Kind::NewRows => {
                        *kind = Kind::AsTheyCame;
                    }
                    _ => {}
                },
                Change::Delete { relation, .. } => match kinds.get_mut(relation) {
                    Some(kind) if *kind == Kind::NewRows => *kind = Kind::AsTheyCame,
                    _ => {}
                },
                Change::Insert { .. } => {}
                Change::Note(_) => return Ok(None),
            }
        }
        Ok(Some(kinds))
    }

    async fn kind(&mut self, tsid: Tsid, id: RelId) -> Result<Option<Kind>> {
        let Some(relation) = self.described(tsid, id) else { return Ok(None) };
        let Some(table) = self.table(tsid, &relation).await? else { return Ok(None) };
        if table.is_set_aside {
            return Ok(Some(Kind::AsTheyCame));
        }
        // What runs then may ask for other tables.
        if table.guard.is_some() || table.path.is_some() {
            return Ok(None);
        }
        Ok(Some(match statements::batch_key(&relation, &table) {
            Some(key) => Kind::Keyed(key),
            None if table.has_other_keys => Kind::AsTheyCame,
            None => Kind::NewRows,
        }))
    }

    /// Makes the changes that a group makes in the end.
    pub(super) async fn carry_out_net(&mut self, last: Tsid, net: Net<'_>) -> Result<()> {
        self.fixed("batch", "planning by keys", last, [].into_iter())?;
        for (tsid, change) in net.as_they_came {
            self.change(tsid, change).await?;
            self.keep_flowing().await?;
        }
        for table in net.tables {
            let Some(relation) = self.described(last, table.relation) else { return Ok(()) };
            let Some(own) = self.table(last, &relation).await? else { return Ok(()) };
            for rows in table.deletes.chunks(BATCH_ROWS_MAX) {
                self.many(last, "DELETE", (&relation, &own), rows).await?;
            }
            let mut updates: AHashMap<Shape, Vec<&Tuple>> = AHashMap::new();
            for row in &table.updates {
                updates.entry(Shape::update_many(row)).or_default().push(row);
            }
            for rows in updates.values().flat_map(|rows| rows.chunks(BATCH_ROWS_MAX)) {
                self.many(last, "UPDATE", (&relation, &own), rows).await?;
            }
            let inserts: Vec<&Tuple> = table.inserts.iter().map(|row| &**row).collect();
            self.insert(last, relation.id, &inserts).await?;
        }
        Ok(())
    }

    /// Changes many rows of a table, which leave the same columns as they were, by one statement; few one by one.
    async fn many(
        &mut self,
        tsid: Tsid,
        verb: &'static str,
        (relation, table): (&Arc<Relation>, &Table),
        rows: &[&Tuple],
    ) -> Result<()> {
        let is_delete = verb == "DELETE";
        let shape = if is_delete { Shape::delete_many() } else { Shape::update_many(rows[0]) };
        let key = (relation.id, shape);
        let prepared = match self.prepared.get(&key) {
            _ if rows.len() < BATCH_ROWS_MIN => None,
            Some(known) => Some(Arc::clone(known)),
            None => {
                let statement = match is_delete {
                    true => statements::delete_many(relation, table),
                    false => statements::update_many(relation, table, rows[0]),
                };
                statement.map(|statement| self.parse(key, statement, table))
            }
        };
        let Some(prepared) = prepared else {
            for row in rows {
                let (shape, old, new) = match is_delete {
                    true => (Shape::delete(relation, row), Some(*row), None),
                    false => (Shape::update(relation, None, row), None, Some(*row)),
                };
                self.row(tsid, relation.id, verb, shape, old, new).await?;
                self.keep_flowing().await?;
            }
            return Ok(());
        };
        let mut arrays = vec![Array::default(); prepared.statement.slots.len()];
        for row in rows {
            let values = prepared.statement.values(row, row);
            values.zip(&mut arrays).for_each(|(value, array)| array.push(value));
        }
        let arrays: Vec<Vec<u8>> = arrays.iter().map(Array::text).collect();
        let values = arrays.iter().map(|array| Some(&array[..]));
        frontend::bind(b"", prepared.name.as_bytes(), values, self.connection.buffer());
        frontend::execute(b"", 0, self.connection.buffer());
        let what = What::Table { verb, relation: Arc::clone(relation) };
        self.expected.push_back(Expected { tsid, rows: Some(rows.len() as u64), what });
        self.keep_flowing().await
    }
}
