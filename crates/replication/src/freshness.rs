//! The freshness index: which entry wrote an item last, and which writes have no TSID yet (Hihooi section 5.1,
//! Algorithms 3 and 4; invariants I3 and I6).
//!
//! A write passes through these states:
//!
//! ```text
//! begin ─▶ in flight ─┬─ acknowledged(xid) ─▶ pending ─┬─ entry(xid) ─▶ its tables' last TSID
//!                     │                                └─ passed(lsn) ─▶ nothing visible
//!                     ├─ unidentified ─▶ pending ─────── passed(lsn)
//!                     └─ nothing (rolled back)
//! ```
//!
//! It is *in flight* from the moment its COMMIT is sent, since other sessions may see it before the
//! acknowledgement reaches us. A pending write that never appears in the stream (it only locked rows, wrote
//! temporary tables …) is resolved when the stream has passed an LSN taken after the acknowledgement.
//!
//! A write's items become known in two steps. Until its entry arrives, they are those that static analysis
//! found. The entry brings the rows that were actually written. The columns remain those that analysis found,
//! since the stream doesn't say which of a row's columns changed.
//!
//! For each table (the paper's three hash indexes) there are the last writers of any row, of each row since the
//! *floor*, of any column, and of each column. Every read needs the floor, so the last writers of rows are
//! dropped if they are at or below it. The floor is raised when all replicas have applied them, or when there
//! are too many rows.
//!
//! Departures from the paper: a TSID is known only when the stream brings the transaction, after its
//! acknowledgement, hence the states before that. Rows are in an ordered map, so that ranges of keys can be
//! looked up. Algorithm 4 takes the larger of the TSIDs that it finds for rows and for columns. Here it is the
//! smaller, since a transaction that wrote something that the read sees wrote both one of its rows and one of
//! its columns. For the same reason a read of columns doesn't need the last writer of any row.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ahash::AHashMap;

use crate::ids::{Lsn, Tsid, Xid};
use crate::items::{ColumnId, Columns, Item, Items, Key, RelId, Rows, Span};
use crate::primary_equivalent::LastCommits;

/// Beyond this many tables the index collapses them into "everything" (I8).
pub const TABLES_MAX: usize = 100_000;
/// Rows that are told apart; beyond, the floor rises over half of them (I8).
pub const ROWS_MAX: usize = 65_536;
/// So many of a table's entries wait for an acknowledgement to say which columns they wrote.
const UNCLAIMED_MAX: usize = 64;
/// So many of the latest entries' xids are remembered for acknowledgements that come after
/// their entry. An older one is resolved by LSN instead.
pub const RECENT_XIDS_MAX: usize = 65_536;

/// A write that has not been resolved: who began it, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId {
    session: u64,
    number: u64,
}

impl WriteId {
    /// No write has a greater id.
    const LAST: WriteId = WriteId { session: u64::MAX, number: u64::MAX };

    /// A write of this session; sessions have numbers from 1 on.
    #[must_use]
    pub fn of(session: u64, number: u64) -> WriteId {
        WriteId { session, number }
    }
}

/// What a read must find at the site that serves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// The applied prefix must reach this far.
    pub tsid: Tsid,
    /// These must be resolved before `tsid` is final.
    pub unresolved: Vec<WriteId>,
}

/// What a read must see, of all that it must see, comes last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decider {
    /// What was written.
    pub part: Part,
    /// The entry that did; `None` if that is still on its way.
    pub entry: Option<Tsid>,
}

/// A part of what a read reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// It may be anything: the schema changed, or so much was written that rows are not told apart any more.
    Anything,
    /// Some rows of a table.
    Table(RelId),
    /// A column of a table.
    Column(RelId, ColumnId),
    /// Rows of a table that the read names.
    Rows(RelId),
}

#[derive(Debug)]
struct Write {
    items: Items,
    /// It may change the schema.
    may_define: bool,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// Committed at the primary; its entry, if any, is on its way.
    Pending {
        xid: Option<u32>,
        nothing: Nothing,
    },
}

/// How it will be known that a pending write has no entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Nothing {
    /// No LSN is known yet; the write is pending since then, in milliseconds.
    Since(u64),
    /// The stream has passed this LSN.
    After(Lsn),
}

/// Last writers of a table's parts, and writes of it on their way.
#[derive(Debug, Default)]
struct Table {
    /// Of any row: by entries that don't tell their rows.
    any_row: Tsid,
    /// Of these rows, above the floor.
    rows: BTreeMap<Key, Tsid>,
    /// Of any column: new rows, rows that are gone, and writes whose columns aren't known.
    any_column: Tsid,
    /// Of these columns.
    columns: Vec<(ColumnId, Tsid)>,
    /// Entries, by their xids, whose acknowledgement hasn't come: it may say which columns they wrote. Until
    /// then, any.
    unclaimed: Vec<(u32, Tsid)>,
    /// Not resolved yet.
    unresolved: Vec<WriteId>,
}

impl Table {
    /// An entry wrote this of it, known as ours or not.
    fn written(&mut self, item: &Item, tsid: Tsid, xid: u32, is_own: bool) {
        match &item.rows {
            Rows::All => self.any_row = tsid,
            Rows::In(spans) if spans.iter().any(Span::is_range) => self.any_row = tsid,
            Rows::In(spans) => {
                for span in spans {
                    self.rows.insert(span.from().into(), tsid);
                }
            }
        }
        if is_own {
            return self.columns_written(&item.columns, tsid);
        }
        if self.unclaimed.len() >= UNCLAIMED_MAX {
            let (_, oldest) = self.unclaimed.remove(0);
            self.any_column = self.any_column.max(oldest);
        }
        self.unclaimed.push((xid, tsid));
    }

    fn columns_written(&mut self, columns: &Columns, tsid: Tsid) {
        let Columns::In(columns) = columns else {
            self.any_column = self.any_column.max(tsid);
            return;
        };
        for column in columns.iter() {
            match self.columns.iter_mut().find(|(known, _)| known == column) {
                Some((_, last)) => *last = tsid.max(*last),
                None => self.columns.push((*column, tsid)),
            }
        }
    }

    /// The transaction of an entry is acknowledged: these columns it wrote.
    fn claim(&mut self, xid: u32, columns: &Columns) {
        if let Some(at) = self.unclaimed.iter().rposition(|(unclaimed, _)| *unclaimed == xid) {
            let (_, tsid) = self.unclaimed.remove(at);
            self.columns_written(columns, tsid);
        }
    }

    /// By what the last entry is found that may have written what a read of this item sees.
    fn decider(&self, item: &Item) -> Decider {
        let tsid = self.needed(item);
        let is_written = |column: &&(ColumnId, Tsid)| {
            column.1 == tsid && item.columns.overlaps(&Columns::In([column.0].into()))
        };
        let part = match &item.rows {
            Rows::In(spans) if self.last_of_rows(spans) == tsid => Part::Rows(item.table),
            _ => match self.columns.iter().find(is_written) {
                Some((column, _)) => Part::Column(item.table, *column),
                None => Part::Table(item.table),
            },
        };
        Decider { part, entry: Some(tsid) }
    }

    /// The last entry that may have written what a read of this item sees (Algorithm 4).
    fn needed(&self, item: &Item) -> Tsid {
        let by_columns = self.last_of_columns(&item.columns);
        match &item.rows {
            Rows::All => by_columns,
            Rows::In(spans) => by_columns.min(self.last_of_rows(spans)),
        }
    }

    fn last_of_columns(&self, columns: &Columns) -> Tsid {
        let wanted = |column: &ColumnId| match columns {
            Columns::All => true,
            Columns::In(some) => some.binary_search(column).is_ok(),
        };
        let last = self.columns.iter().filter(|(column, _)| wanted(column)).map(|(_, tsid)| *tsid);
        let unclaimed = self.unclaimed.last().map(|(_, tsid)| *tsid).unwrap_or_default();
        last.max().unwrap_or_default().max(self.any_column).max(unclaimed)
    }

    fn last_of_rows(&self, spans: &[Span]) -> Tsid {
        let rows = spans.iter().flat_map(|span| {
            let from = self.rows.range::<[u8], _>((
                std::ops::Bound::Included(span.from()),
                std::ops::Bound::Unbounded,
            ));
            from.take_while(|(key, _)| !span.ends_before(key)).map(|(_, tsid)| *tsid)
        });
        rows.max().unwrap_or_default().max(self.any_row)
    }

    /// Forgets a row unless it was written again.
    fn forget(&mut self, row: &[u8], tsid: Tsid) {
        if self.rows.get(row) == Some(&tsid) {
            self.rows.remove(row);
        }
    }

    fn last(&self) -> Tsid {
        self.last_of_columns(&Columns::All)
    }
}

/// Last writer and unresolved writes of "everything".
#[derive(Debug, Default, Clone, Copy)]
struct Everything {
    /// The last entry that may have written anything, or the floor if that is higher.
    last: Tsid,
    unresolved: u32,
    /// Of these, writes that may change the schema.
    defining: u32,
}

/// The index. Belongs to one thread; no operation waits.
#[derive(Debug, Default)]
pub struct Freshness {
    tables: AHashMap<RelId, Table>,
    everything: Everything,
    /// The rows of entries above the floor, in order.
    rows: VecDeque<(Tsid, RelId, Key)>,
    /// The newest entry of all, for reads of everything.
    newest: Tsid,
    writes: AHashMap<WriteId, Write>,
    /// The pending ones: first those without an LSN, by age, then the others by their LSN.
    pending: BTreeSet<(Nothing, WriteId)>,
    next_write: u64,
    by_xid: AHashMap<u32, WriteId>,
    recent: AHashMap<u32, Tsid>,
    recent_order: VecDeque<(u32, Tsid)>,
    passed: Lsn,
    last_commits: LastCommits,
}

impl Freshness {
    /// An index that knows nothing of what is in the log up to `newest`: every read needs it.
    #[must_use]
    pub fn new(newest: Tsid) -> Freshness {
        let everything = Everything { last: newest, ..Everything::default() };
        Freshness { everything, newest, ..Freshness::default() }
    }

    /// A write's COMMIT is about to be sent, by no session.
    pub fn begin(&mut self, items: Items) -> WriteId {
        let id = WriteId::of(0, self.next_write);
        self.next_write += 1;
        let may_define = items == Items::Everything;
        self.begin_as(id, items, may_define);
        id
    }

    /// The same for a write whose id nobody else uses; whether it may change the schema, so that what is
    /// known of the schema isn't to be trusted.
    pub fn begin_as(&mut self, id: WriteId, items: Items, may_define: bool) {
        self.everything.defining += u32::from(may_define);
        self.last_commits.commit(&items);
        match &items {
            Items::Nothing => {}
            Items::Everything => self.everything.unresolved += 1,
            Items::Tables(items) => {
                for item in items {
                    self.tables.entry(item.table).or_default().unresolved.push(id);
                }
            }
        }
        self.writes.insert(id, Write { items, may_define, state: State::InFlight });
    }

    /// Whether a write that isn't resolved may change the schema.
    #[must_use]
    pub fn defines(&self, id: WriteId) -> bool {
        self.writes.get(&id).is_some_and(|write| write.may_define)
    }

    /// The write turned out to have committed nothing.
    pub fn nothing(&mut self, id: WriteId) {
        self.resolve(id);
    }

    /// The primary acknowledged the write, whose transaction had this id.
    pub fn acknowledged(&mut self, id: WriteId, xid: Xid, now_ms: u64) {
        let xid = xid.low();
        if self.recent.contains_key(&xid) {
            self.claim(id, xid);
            self.resolve(id);
        } else if self.pend(id, Some(xid), now_ms) {
            self.by_xid.insert(xid, id);
        }
    }

    fn claim(&mut self, id: WriteId, xid: u32) {
        let Some(Write { items: Items::Tables(items), .. }) = self.writes.get(&id) else { return };
        for item in items {
            if let Some(table) = self.tables.get_mut(&item.table) {
                table.claim(xid, &item.columns);
            }
        }
    }

    /// The write has ended, but which transactions it committed is not known: only an LSN
    /// resolves it.
    pub fn unidentified(&mut self, id: WriteId, now_ms: u64) {
        self.pend(id, None, now_ms);
    }

    fn pend(&mut self, id: WriteId, xid: Option<u32>, since_ms: u64) -> bool {
        let Some(write) = self.writes.get_mut(&id) else { return false };
        let since = Nothing::Since(since_ms);
        let before = std::mem::replace(&mut write.state, State::Pending { xid, nothing: since });
        if let State::Pending { nothing, .. } = before {
            self.pending.remove(&(nothing, id));
        }
        self.pending.insert((since, id));
        true
    }

    /// Pending writes that an LSN taken now would resolve: those known since `until_ms` or
    /// longer that wait for no LSN yet. Empty when there is nothing to ask the primary for.
    #[must_use]
    pub fn want_lsn(&self, until_ms: u64) -> Vec<WriteId> {
        self.pending
            .range(..=(Nothing::Since(until_ms), WriteId::LAST))
            .map(|&(_, id)| id)
            .collect()
    }

    /// `lsn` was taken after all of `ids` were acknowledged.
    pub fn nothing_after(&mut self, ids: &[WriteId], lsn: Lsn) {
        for &id in ids {
            if let Some(Write { state: State::Pending { nothing, .. }, .. }) =
                self.writes.get_mut(&id)
            {
                self.pending.remove(&(*nothing, id));
                *nothing = Nothing::After(lsn);
                self.pending.insert((*nothing, id));
            }
        }
        self.resolve_passed();
    }

    /// An entry came out of the stream (Algorithm 3). The rows that it wrote replace those that analysis
    /// found.
    pub fn entry(&mut self, tsid: Tsid, xid: u32, items: &Items) {
        self.newest = self.newest.max(tsid);
        self.last_commits.entry(tsid, items);
        let own = self.by_xid.get(&xid).copied();
        match items {
            Items::Nothing => {}
            Items::Everything => {
                self.everything.last = self.everything.last.max(tsid);
                self.widen();
            }
            Items::Tables(items) => {
                for item in items {
                    self.written(tsid, xid, item, own);
                }
            }
        }
        if self.tables.len() > TABLES_MAX {
            self.collapse();
        }
        if self.rows.len() > ROWS_MAX {
            self.raise_floor(self.rows[self.rows.len() / 2].0);
        }
        self.remember(xid, tsid);
        if let Some(id) = own {
            self.resolve(id);
        }
    }

    /// The schema may be another one now: what analysis found of writes on their way may lack what they set
    /// off, and names their rows by keys that may not be the tables' any more.
    fn widen(&mut self) {
        for write in
            self.writes.values_mut().filter(|write| matches!(write.items, Items::Tables(_)))
        {
            write.items = Items::Everything;
            self.everything.unresolved += 1;
        }
        self.tables.values_mut().for_each(|table| table.unresolved.clear());
    }

    fn written(&mut self, tsid: Tsid, xid: u32, item: &Item, own: Option<WriteId>) {
        let known = own.and_then(|id| self.writes.get(&id)?.items.item(item.table));
        let item = match known.map(|known| &known.columns) {
            Some(columns @ Columns::In(_)) => &Item { columns: columns.clone(), ..item.clone() },
            _ => item,
        };
        if let Rows::In(spans) = &item.rows {
            let rows = spans.iter().filter(|span| !span.is_range());
            self.rows.extend(rows.map(|span| (tsid, item.table, span.from().into())));
        }
        self.tables.entry(item.table).or_default().written(item, tsid, xid, own.is_some());
    }

    /// From now on every read needs at least this TSID, so rows written up to it are forgotten. Costs nobody
    /// anything if every replica has applied it.
    pub fn raise_floor(&mut self, floor: Tsid) {
        if self.rows.front().is_none_or(|(oldest, ..)| *oldest > floor) {
            return;
        }
        self.everything.last = self.everything.last.max(floor);
        while let Some((tsid, table, row)) = self.rows.pop_front_if(|(tsid, ..)| *tsid <= floor) {
            if let Some(table) = self.tables.get_mut(&table) {
                table.forget(&row, tsid);
            }
        }
    }

    fn remember(&mut self, xid: u32, tsid: Tsid) {
        self.recent.insert(xid, tsid);
        self.recent_order.push_back((xid, tsid));
        if self.recent_order.len() > RECENT_XIDS_MAX
            && let Some((old, old_tsid)) = self.recent_order.pop_front()
            && self.recent.get(&old) == Some(&old_tsid)
        {
            self.recent.remove(&old);
        }
    }

    /// Up to which entry the log is what the primary showed at some moment, if it showed these entries and none behind
    /// them. (The primary may make transactions visible in another order than it logs them.) `shows` tells of a
    /// transaction whether it was shown, of its low 32 bits; everything up to `known` was. The stream must have passed
    /// a position that was taken behind that moment, since what it brings later was not shown.
    #[must_use]
    pub fn shown_prefix(&self, known: Tsid, shows: impl Fn(u32) -> bool) -> Option<Tsid> {
        let mut prefix = None;
        let mut at = self.newest;
        for &(xid, tsid) in self.recent_order.iter().rev().take_while(|(_, tsid)| *tsid > known) {
            if tsid != at {
                return None;
            }
            match (shows(xid), prefix) {
                (true, None) => prefix = Some(tsid),
                (false, Some(_)) => return None,
                _ => {}
            }
            at = Tsid(tsid.0 - 1);
        }
        (at <= known).then_some(prefix.unwrap_or(known))
    }

    /// Whether the stream has brought every commit below `lsn`.
    #[must_use]
    pub fn has_passed(&self, lsn: Lsn) -> bool {
        self.passed >= lsn
    }

    /// The stream has brought every commit below `lsn`.
    pub fn passed(&mut self, lsn: Lsn) {
        self.passed = self.passed.max(lsn);
        self.resolve_passed();
    }

    fn resolve_passed(&mut self) {
        let after = |lsn, id| (Nothing::After(lsn), id);
        let passed = after(Lsn(0), WriteId::of(0, 0))..=after(self.passed, WriteId::LAST);
        while let Some(&first) = self.pending.range(passed.clone()).next() {
            self.pending.remove(&first); // whatever else is known of it: this ends
            self.resolve(first.1);
        }
    }

    fn resolve(&mut self, id: WriteId) {
        let Some(write) = self.writes.remove(&id) else { return };
        if let State::Pending { xid, nothing } = write.state {
            self.pending.remove(&(nothing, id));
            xid.and_then(|xid| self.by_xid.remove(&xid));
        }
        self.everything.defining -= u32::from(write.may_define);
        match &write.items {
            Items::Nothing => {}
            Items::Everything => {
                let left = self.everything.unresolved.checked_sub(1);
                self.everything.unresolved = left.expect("a write is resolved once");
            }
            Items::Tables(items) => {
                for item in items {
                    let table = self.tables.get_mut(&item.table);
                    table.expect("kept while unresolved").unresolved.retain(|known| *known != id);
                }
            }
        }
    }

    /// What a read of these items needs if it arrives now (Algorithm 4).
    #[must_use]
    pub fn need(&self, items: &Items) -> Need {
        Need { tsid: self.last(items), unresolved: self.overlapping(items) }
    }

    /// The last commits, by what they touched.
    #[must_use]
    pub fn last_commits(&self) -> &LastCommits {
        &self.last_commits
    }

    /// What of these items decides how far a replica must have come for a read that arrives now.
    #[must_use]
    pub fn decider(&self, items: &Items) -> Decider {
        if let Some(write) = self.overlapping(items).first().and_then(|id| self.writes.get(id)) {
            let part = match (items, &write.items) {
                (Items::Tables(read), written @ Items::Tables(_)) => {
                    let written = |item: &&Item| written.overlaps_item(item);
                    read.iter().find(written).map_or(Part::Anything, |item| match item.rows {
                        Rows::In(_) => Part::Rows(item.table),
                        Rows::All => Part::Table(item.table),
                    })
                }
                _ => Part::Anything,
            };
            return Decider { part, entry: None };
        }
        let anything = Decider { part: Part::Anything, entry: Some(self.everything.last) };
        let Items::Tables(items) = items else {
            return Decider { entry: Some(self.last(items)), ..anything };
        };
        let tables =
            items.iter().filter_map(|item| Some(self.tables.get(&item.table)?.decider(item)));
        tables.chain([anything]).max_by_key(|decider| decider.entry).unwrap_or(anything)
    }

    /// The writes on their way that may touch something of this. Whoever reads no table depends on the schema
    /// all the same: functions, types, roles.
    fn overlapping(&self, items: &Items) -> Vec<WriteId> {
        let opaque = |(id, write): (&WriteId, &Write)| {
            (*items == Items::Everything || write.items == Items::Everything).then_some(*id)
        };
        let mut found = Vec::new();
        if *items == Items::Everything || self.everything.unresolved > 0 {
            found.extend(self.writes.iter().filter_map(opaque));
        }
        let Items::Tables(items) = items else { return found };
        for item in items {
            let unresolved =
                self.tables.get(&item.table).map_or(&[][..], |table| &table.unresolved);
            let touches = |id: &&WriteId| {
                self.writes.get(id).is_some_and(|write| write.items.overlaps_item(item))
            };
            found.extend(unresolved.iter().filter(touches));
        }
        if items.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    /// Brings a need up to date: forgets what is resolved by now. When the last one is, the
    /// TSID is that of the items' last writer now, which is at or above what was needed (I6).
    pub fn refresh(&self, need: &mut Need, items: &Items) {
        if need.unresolved.is_empty() {
            return;
        }
        need.unresolved.retain(|id| self.writes.contains_key(id));
        if need.unresolved.is_empty() {
            need.tsid = need.tsid.max(self.last(items));
        }
    }

    fn last(&self, items: &Items) -> Tsid {
        match items {
            Items::Nothing => self.everything.last,
            Items::Everything => self.newest.max(self.everything.last),
            Items::Tables(items) => {
                let tables = items.iter().filter_map(|item| {
                    self.tables.get(&item.table).map(|table| table.needed(item))
                });
                tables.max().unwrap_or_default().max(self.everything.last)
            }
        }
    }

    fn collapse(&mut self) {
        let last = self.tables.values().map(Table::last).max().unwrap_or_default();
        self.everything.last = self.everything.last.max(last);
        self.rows.clear();
        self.tables.retain(|_, table| !table.unresolved.is_empty());
        self.tables.values_mut().for_each(|table| table.rows.clear());
    }

    /// Rows that are told apart now: for metrics.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Writes not resolved yet: for metrics.
    #[must_use]
    pub fn unresolved(&self) -> usize {
        self.writes.len()
    }

    /// Whether a write is still on its way: not all that it committed has come by the stream.
    #[must_use]
    pub fn is_unresolved(&self, id: WriteId) -> bool {
        self.writes.contains_key(&id)
    }

    /// Whether a write on its way may change the schema.
    #[must_use]
    pub fn is_schema_in_doubt(&self) -> bool {
        self.everything.defining > 0
    }

    /// Whether a write on its way touches one of the tables, whichever its rows: writes of different rows
    /// may wait for each other's locks (unique keys, foreign keys).
    #[must_use]
    pub fn is_in_flight(&self, items: &Items) -> bool {
        let is_written = |item: &Item| {
            self.tables.get(&item.table).is_some_and(|table| !table.unresolved.is_empty())
        };
        match items {
            Items::Nothing => false,
            Items::Everything => !self.writes.is_empty(),
            Items::Tables(items) => self.everything.unresolved > 0 || items.iter().any(is_written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn t(oids: &[u32]) -> Items {
        Items::tables(oids.iter().map(|&oid| RelId(oid)))
    }

    fn fresh(index: &Freshness, items: &Items, tsid: u64) -> bool {
        index.need(items) == Need { tsid: Tsid(tsid), unresolved: vec![] }
    }

    fn columns(numbers: &[u16]) -> Columns {
        Columns::of(numbers.iter().map(|&number| ColumnId(number)).collect())
    }

    fn rows(keys: &[&str]) -> Rows {
        Rows::of(keys.iter().map(|key| Span::row(key.as_bytes())).collect())
    }

    fn item(table: u32, rows: Rows, columns: Columns) -> Items {
        Items::of([Item { table: RelId(table), rows, columns }])
    }

    /// I3, from one snapshot: up to where the log is what the primary showed at one moment.
    #[test]
    fn i3_the_primary_shows_a_prefix_of_the_log_or_something_else() {
        let mut index = Freshness::new(Tsid(10));
        let prefix = |index: &Freshness, known: u64, shown: &[u32]| {
            index.shown_prefix(Tsid(known), |xid| shown.contains(&xid)).map(|tsid| tsid.0)
        };
        assert_eq!(prefix(&index, 10, &[]), Some(10));
        assert_eq!(prefix(&index, 9, &[]), None, "10 is not known any more");
        for (tsid, xid) in [(11, 7), (12, 5), (13, 9), (14, 6)] {
            index.entry(Tsid(tsid), xid, &t(&[1]));
        }
        assert_eq!(prefix(&index, 10, &[]), Some(10));
        assert_eq!(prefix(&index, 10, &[7, 5]), Some(12));
        assert_eq!(prefix(&index, 10, &[7, 5, 9, 6]), Some(14));
        assert_eq!(prefix(&index, 10, &[7, 9]), None, "12 is in the log, and not to be seen");
        assert_eq!(prefix(&index, 10, &[6]), None);
        assert_eq!(prefix(&index, 12, &[9]), Some(13), "what is known is shown");
        assert_eq!(prefix(&index, 14, &[]), Some(14));
        assert_eq!(prefix(&index, 9, &[7, 5, 9, 6]), None);
    }

    /// R has columns A1 to A4 and key A1, S has B1 to B5 and key B1. Of a write, an entry brings the rows, and
    /// analysis the columns.
    #[test]
    fn tables_1_3_and_5_of_the_hihooi_paper() {
        let (r, s) = (1, 2);
        let written = [
            (11, item(r, rows(&["100"]), columns(&[2, 3]))),
            (12, item(s, Rows::All, columns(&[2]))),
            (13, item(r, Rows::All, columns(&[3, 4]))),
            (14, item(r, rows(&["120"]), Columns::All)),
            (15, item(s, Rows::All, columns(&[4]))),
        ];
        let mut index = Freshness::new(Tsid(10));
        for (tsid, items) in &written {
            let write = index.begin(items.clone());
            index.acknowledged(write, Xid(*tsid), 0);
            let Items::Tables(items) = items else { panic!("{items:?}") };
            let exact = items.iter().map(|item| Item { columns: Columns::All, ..item.clone() });
            index.entry(Tsid(*tsid), *tsid as u32, &Items::of(exact));
        }
        let join = item(r, Rows::All, columns(&[1])).union(&item(s, Rows::All, columns(&[2, 3])));
        assert!(fresh(&index, &item(r, Rows::All, Columns::All), 14), "R1");
        assert!(fresh(&index, &item(r, rows(&["100"]), columns(&[1, 3, 4])), 13), "R2");
        assert!(fresh(&index, &item(s, Rows::All, columns(&[2, 3, 5])), 12), "R3");
        assert!(fresh(&index, &join, 14), "R4");
        assert!(fresh(&index, &t(&[3]), 10));
        assert!(fresh(&index, &t(&[1, 2]), 15));
    }

    #[test]
    fn rows_and_ranges_are_told_apart() {
        let mut index = Freshness::new(Tsid(0));
        index.entry(Tsid(1), 1, &item(1, rows(&["a1", "b5"]), Columns::All));
        let write = index.begin(item(1, rows(&["c1"]), columns(&[2])));
        let span = |from: &str, to: &str| {
            item(1, Rows::of(vec![Span::between(from.as_bytes(), to.as_bytes())]), Columns::All)
        };
        assert!(fresh(&index, &item(1, rows(&["a2"]), Columns::All), 0));
        assert!(fresh(&index, &item(1, rows(&["b5", "a2"]), Columns::All), 1));
        assert!(fresh(&index, &span("a", "a"), 1));
        assert!(fresh(&index, &span("a2", "b4"), 0));
        assert!(fresh(&index, &span("a2", "b"), 1));
        assert_eq!(index.need(&span("b6", "c")).unresolved, [write]);
        assert!(fresh(&index, &item(1, rows(&["c1"]), columns(&[3])), 0), "another column");
        let decider = |items: &Items| {
            let Decider { part, entry } = index.decider(items);
            (part, entry.map(|tsid| tsid.0))
        };
        assert_eq!(
            decider(&item(1, rows(&["a1"]), columns(&[3]))),
            (Part::Rows(RelId(1)), Some(1))
        );
        assert_eq!(decider(&item(1, Rows::All, columns(&[3]))), (Part::Table(RelId(1)), Some(1)));
        assert_eq!(decider(&item(1, rows(&["c1"]), columns(&[2]))), (Part::Rows(RelId(1)), None));
        assert_eq!(decider(&t(&[5])), (Part::Anything, Some(0)));
        index.acknowledged(write, Xid(2), 0);
        index.entry(Tsid(2), 2, &item(1, rows(&["c1"]), Columns::All));
        let (column, table) = (Part::Column(RelId(1), ColumnId(2)), RelId(1));
        let Decider { part, entry } = index.decider(&item(1, Rows::All, columns(&[2])));
        assert_eq!((part, entry), (column, Some(Tsid(2))));
        assert_eq!(index.decider(&t(&[1])).part, column, "{table:?}");
    }

    /// A write waits for the lock of DDL that adds a generated column; what analysis found before counts no
    /// more.
    #[test]
    fn i6_ddl_widens_what_is_on_its_way() {
        let mut index = Freshness::new(Tsid(0));
        let write = WriteId::of(1, 1);
        index.begin_as(write, item(1, rows(&["a"]), columns(&[2])), false);
        let other = item(1, rows(&["b"]), columns(&[3]));
        assert!(fresh(&index, &other, 0));
        index.entry(Tsid(1), 1, &Items::Everything);
        assert_eq!(index.need(&other).unresolved, [write]);
        assert!(!index.is_schema_in_doubt());
        index.acknowledged(write, Xid(2), 0);
        index.entry(Tsid(2), 2, &item(1, rows(&["a"]), Columns::All));
        assert!(fresh(&index, &item(1, rows(&["a"]), columns(&[3])), 2), "of any column");
        assert!(fresh(&index, &other, 1));
    }

    #[test]
    fn i8_at_the_bound_of_rows_the_floor_rises() {
        let mut index = Freshness::new(Tsid(0));
        let key = |n: u64| item(1, Rows::of(vec![Span::row(n.to_be_bytes())]), Columns::All);
        let last = ROWS_MAX as u64 + 1;
        (1..=last).for_each(|n| index.entry(Tsid(n), n as u32, &key(n)));
        assert!(index.rows() <= ROWS_MAX / 2 + 1);
        let floor = last / 2 + 1;
        assert!(fresh(&index, &key(0), floor), "never written, but needs the floor");
        assert!(fresh(&index, &key(1), floor));
        assert!(fresh(&index, &key(last), last));
        index.raise_floor(Tsid(last));
        assert_eq!((index.rows(), index.tables[&RelId(1)].rows.len()), (0, 0));
    }

    #[test]
    fn i3_a_write_counts_from_its_sending_until_its_entry() {
        let mut index = Freshness::new(Tsid(0));
        let write = index.begin(t(&[1]));
        assert_eq!(index.need(&t(&[1, 2])).unresolved, [write]);
        assert!(index.need(&t(&[2])).unresolved.is_empty());
        index.acknowledged(write, Xid(77), 0);
        assert_eq!(index.need(&t(&[1])).unresolved, [write]);
        index.entry(Tsid(1), 77, &t(&[1]));
        assert!(fresh(&index, &t(&[1]), 1));
    }

    #[test]
    fn an_entry_may_come_before_its_acknowledgement() {
        let mut index = Freshness::new(Tsid(0));
        let write = index.begin(t(&[1]));
        index.entry(Tsid(1), 77, &t(&[1]));
        assert_eq!(index.need(&t(&[1])).unresolved, [write], "not known to be the same yet");
        index.acknowledged(write, Xid((3 << 32) + 77), 0);
        assert!(fresh(&index, &t(&[1]), 1));
    }

    #[test]
    fn i3_an_xid_that_never_comes_is_resolved_by_an_lsn_taken_after_it() {
        let mut index = Freshness::new(Tsid(0));
        let write = index.begin(t(&[1]));
        index.acknowledged(write, Xid(5), 100);
        assert!(index.want_lsn(99).is_empty());
        assert_eq!(index.want_lsn(100), [write]);
        index.passed(Lsn(50));
        index.nothing_after(&[write], Lsn(60));
        assert!(index.want_lsn(100).is_empty(), "asked for once");
        assert_eq!(index.need(&t(&[1])).unresolved, [write]);
        index.passed(Lsn(60));
        assert!(fresh(&index, &t(&[1]), 0));
    }

    #[test]
    fn an_unidentified_write_is_not_resolved_by_somebodys_entry() {
        let mut index = Freshness::new(Tsid(0));
        let write = index.begin(Items::Everything);
        index.unidentified(write, 0);
        index.entry(Tsid(1), 9, &t(&[1]));
        assert_eq!(index.need(&t(&[1])).unresolved, [write]);
        index.nothing_after(&[write], Lsn(1));
        index.passed(Lsn(1));
        assert!(fresh(&index, &t(&[1]), 1));
    }

    #[test]
    fn i3_a_read_of_no_table_sees_ddl() {
        let mut index = Freshness::new(Tsid(0));
        let write = index.begin(Items::Everything);
        assert_eq!(index.need(&Items::Nothing).unresolved, [write]);
        index.acknowledged(write, Xid(9), 0);
        index.entry(Tsid(7), 9, &Items::Everything);
        assert!(fresh(&index, &Items::Nothing, 7));
        index.entry(Tsid(8), 10, &t(&[1]));
        assert!(fresh(&index, &Items::Nothing, 7));
    }

    #[test]
    fn a_waiting_read_is_told_the_entry_that_resolved_it() {
        let mut index = Freshness::new(Tsid(0));
        let write = index.begin(t(&[1]));
        let mut need = index.need(&t(&[1]));
        index.begin(t(&[1])); // a later write does not prolong the wait
        index.acknowledged(write, Xid(5), 0);
        index.entry(Tsid(4), 5, &t(&[1]));
        index.refresh(&mut need, &t(&[1]));
        assert_eq!(need, Need { tsid: Tsid(4), unresolved: vec![] });
    }

    #[test]
    fn i8_too_many_tables_collapse_into_everything() {
        let mut index = Freshness::new(Tsid(0));
        for table in 0..=TABLES_MAX as u32 {
            index.entry(Tsid(u64::from(table) + 1), table, &t(&[table]));
        }
        assert!(index.tables.len() <= 1);
        assert!(fresh(&index, &t(&[u32::MAX]), TABLES_MAX as u64 + 1));
    }

    /// The stupid twin: keeps all that ever happened.
    #[derive(Default)]
    struct Twin {
        entries: Vec<(u64, Items)>,
        open: Vec<(WriteId, Items)>,
        floor: u64,
    }

    impl Twin {
        /// The last entry that wrote one of the item's rows, or one of its columns, whichever is older.
        fn last(&self, item: &Item) -> u64 {
            let last = |item: &Item| {
                let found = self.entries.iter().filter(|(_, entry)| entry.overlaps_item(item));
                found.map(|(tsid, _)| *tsid).max().unwrap_or(0)
            };
            let by_rows = last(&Item { columns: Columns::All, ..item.clone() });
            by_rows.min(last(&Item { rows: Rows::All, ..item.clone() }))
        }

        fn need(&self, items: &Items) -> (u64, Vec<WriteId>) {
            let last = match items {
                Items::Tables(items) => items.iter().map(|item| self.last(item)).max().unwrap_or(0),
                _ => self.entries.iter().map(|(tsid, _)| *tsid).max().unwrap_or(0),
            };
            let open = self.open.iter().filter(|(_, e)| e.overlaps(items));
            (last.max(self.floor), open.map(|(id, _)| *id).collect())
        }
    }

    fn some_item() -> impl Strategy<Value = Item> {
        let key = proptest::collection::vec(0_u8..3, 2);
        let rows = prop_oneof![
            1 => Just(Rows::All),
            3 => proptest::collection::vec(key, 1..3)
                .prop_map(|keys| Rows::of(keys.into_iter().map(Span::row).collect())),
        ];
        let columns = prop_oneof![
            1 => Just(Columns::All),
            2 => proptest::collection::vec(1_u16..5, 1..3).prop_map(|numbers| columns(&numbers)),
        ];
        (0_u32..4, rows, columns).prop_map(|(table, rows, columns)| Item {
            table: RelId(table),
            rows,
            columns,
        })
    }

    fn some_items() -> impl Strategy<Value = Items> {
        prop_oneof![
            8 => proptest::collection::vec(some_item(), 1..3).prop_map(Items::of),
            1 => Just(Items::Everything),
        ]
    }

    fn probes() -> Vec<Items> {
        let range =
            |from: &[u8], to: &[u8]| item(1, Rows::of(vec![Span::between(from, to)]), Columns::All);
        vec![
            t(&[0]),
            t(&[1, 3]),
            Items::Everything,
            item(1, Rows::of(vec![Span::row([0, 1])]), Columns::All),
            item(1, Rows::of(vec![Span::row([0, 1]), Span::row([2, 2])]), columns(&[1, 2])),
            item(1, Rows::All, columns(&[2])),
            item(2, Rows::All, columns(&[])),
            range(&[1], &[1]),
            range(&[0, 2], &[1, 1]),
        ]
    }

    proptest! {
        #[test]
        fn i6_agrees_with_a_list_of_all_that_happened(
            steps in proptest::collection::vec((0..5_u8, some_items(), 0..8_usize), 1..120)
        ) {
            let mut index = Freshness::new(Tsid(0));
            let mut twin = Twin::default();
            let mut xid = 0;
            for (step, items, pick) in steps {
                match step {
                    0 => twin.open.push((index.begin(items.clone()), items)),
                    1 | 2 if !twin.open.is_empty() => {
                        let (id, items) = twin.open.remove(pick % twin.open.len());
                        xid += 1;
                        let tsid = twin.entries.len() as u64 + 1;
                        // The stream knows rows, but no columns.
                        let exact = match &items {
                            Items::Tables(items) => Items::of(items.iter().map(|item| Item {
                                columns: Columns::All,
                                ..item.clone()
                            })),
                            other => other.clone(),
                        };
                        if items == Items::Everything {
                            twin.open.iter_mut().for_each(|(_, open)| *open = Items::Everything);
                        }
                        if pick % 2 == 0 {
                            index.acknowledged(id, Xid(xid), 0);
                            index.entry(Tsid(tsid), xid as u32, &exact);
                            twin.entries.push((tsid, items));
                        } else {
                            index.entry(Tsid(tsid), xid as u32, &exact);
                            index.acknowledged(id, Xid(xid), 0);
                            twin.entries.push((tsid, items));
                        }
                    }
                    3 if !twin.open.is_empty() => {
                        index.nothing(twin.open.remove(pick % twin.open.len()).0);
                    }
                    4 if pick < 2 => {
                        let floor = twin.entries.len() / 2;
                        index.raise_floor(Tsid(floor as u64));
                        twin.floor = index.everything.last.0.max(twin.floor);
                    }
                    _ => {}
                }
                for probe in probes() {
                    let mut need = index.need(&probe);
                    need.unresolved.sort();
                    prop_assert_eq!((need.tsid.0, need.unresolved), twin.need(&probe), "{:?}", probe);
                }
            }
        }

        /// The pending writes, in order, are those that are said to be pending, and none waits for an LSN that has
        /// passed.
        #[test]
        fn i6_what_is_pending_is_in_order(
            steps in proptest::collection::vec((0..7_u8, some_items(), 0..8_u64), 1..120)
        ) {
            let mut index = Freshness::new(Tsid(0));
            let mut open = Vec::new();
            for (number, (step, items, pick)) in steps.into_iter().enumerate() {
                let (xid, now) = (number as u64, number as u64 / 3);
                let any = open.get(pick as usize % open.len().max(1)).copied();
                match (step, any) {
                    (0 | 1, _) => open.push(index.begin(items)),
                    (2, Some(id)) => index.acknowledged(id, Xid(xid), now),
                    (3, Some(id)) => index.unidentified(id, now),
                    (4, Some(id)) => index.nothing(id),
                    (5, _) => {
                        let wanted = index.want_lsn(now.saturating_sub(pick));
                        index.nothing_after(&wanted, Lsn(now + pick));
                    }
                    (6, _) if pick < 4 => index.passed(Lsn(now)),
                    // Of one that was acknowledged, perhaps.
                    (6, _) => index.entry(Tsid(xid + 1), xid.saturating_sub(pick) as u32, &items),
                    _ => {}
                }
                let pending = index.writes.iter().filter_map(|(id, write)| match &write.state {
                    State::Pending { nothing, .. } => Some((*nothing, *id)),
                    State::InFlight => None,
                });
                prop_assert_eq!(&pending.collect::<BTreeSet<_>>(), &index.pending);
                let passed = (Nothing::After(index.passed), WriteId::LAST);
                let late = index.pending.range((Nothing::After(Lsn(0)), WriteId::of(0, 0))..=passed);
                prop_assert_eq!(late.count(), 0);
            }
        }
    }
}
