//! The freshness index: which entry last wrote an item, and which writes are still on their way
//! (Hihooi section 5.1, Algorithms 3 and 4; invariants I3 and I6).
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
//! It is *in flight* from the moment its COMMIT is sent, since other sessions may see it before
//! the acknowledgement reaches us. A pending write that never shows in the stream (it locked
//! rows only, wrote temporary tables …) is resolved when the stream has passed an LSN taken
//! after the acknowledgement.
//!
//! Departures from the paper: a TSID is known only when the stream brings the transaction, after its
//! acknowledgement, hence the states before that. Of the paper's three hash indexes there is the one over
//! tables so far.

use std::collections::VecDeque;

use ahash::AHashMap;

use crate::ids::{Lsn, Tsid, Xid};
use crate::items::{Items, RelId};

/// Beyond this many tables the index collapses them into "everything" (I8).
pub const TABLES_MAX: usize = 100_000;
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

#[derive(Debug)]
struct Write {
    items: Items,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// Committed at the primary; its entry, if any, is on its way. `since_ms` is when that
    /// became known.
    Pending {
        xid: Option<u32>,
        since_ms: u64,
        nothing_after: Option<Lsn>,
    },
}

/// Last writer and unresolved writes of a table, or of "everything".
#[derive(Debug, Default, Clone, Copy)]
struct Writers {
    last: Tsid,
    unresolved: u32,
}

/// The index. Belongs to one thread; no operation waits.
#[derive(Debug, Default)]
pub struct Freshness {
    tables: AHashMap<RelId, Writers>,
    everything: Writers,
    /// The newest entry of all, for reads of everything.
    newest: Tsid,
    writes: AHashMap<WriteId, Write>,
    next_write: u64,
    by_xid: AHashMap<u32, WriteId>,
    recent: AHashMap<u32, Tsid>,
    recent_order: VecDeque<(u32, Tsid)>,
    passed: Lsn,
}

impl Freshness {
    /// An index that knows nothing of what is in the log up to `newest`: every read needs it.
    #[must_use]
    pub fn new(newest: Tsid) -> Freshness {
        let everything = Writers { last: newest, unresolved: 0 };
        Freshness { everything, newest, ..Freshness::default() }
    }

    /// A write's COMMIT is about to be sent, by no session.
    pub fn begin(&mut self, items: Items) -> WriteId {
        let id = WriteId::of(0, self.next_write);
        self.next_write += 1;
        self.begin_as(id, items);
        id
    }

    /// The same for a write whose id nobody else uses.
    pub fn begin_as(&mut self, id: WriteId, items: Items) {
        self.for_writers(&items, |writers| writers.unresolved += 1);
        self.writes.insert(id, Write { items, state: State::InFlight });
    }

    /// The write turned out to have committed nothing.
    pub fn nothing(&mut self, id: WriteId) {
        self.resolve(id);
    }

    /// The primary acknowledged the write, whose transaction had this id.
    pub fn acknowledged(&mut self, id: WriteId, xid: Xid, now_ms: u64) {
        let xid = xid.low();
        if self.recent.contains_key(&xid) {
            self.resolve(id);
        } else if self.pend(id, Some(xid), now_ms) {
            self.by_xid.insert(xid, id);
        }
    }

    /// The write has ended, but which transactions it committed is not known: only an LSN
    /// resolves it.
    pub fn unidentified(&mut self, id: WriteId, now_ms: u64) {
        self.pend(id, None, now_ms);
    }

    fn pend(&mut self, id: WriteId, xid: Option<u32>, since_ms: u64) -> bool {
        let Some(write) = self.writes.get_mut(&id) else { return false };
        write.state = State::Pending { xid, since_ms, nothing_after: None };
        true
    }

    /// Pending writes that an LSN taken now would resolve: those known since `until_ms` or
    /// longer that wait for no LSN yet. Empty when there is nothing to ask the primary for.
    #[must_use]
    pub fn want_lsn(&self, until_ms: u64) -> Vec<WriteId> {
        let wants = |write: &Write| {
            matches!(write.state, State::Pending { since_ms, nothing_after: None, .. }
                if since_ms <= until_ms)
        };
        self.writes.iter().filter(|(_, write)| wants(write)).map(|(&id, _)| id).collect()
    }

    /// `lsn` was taken after all of `ids` were acknowledged.
    pub fn nothing_after(&mut self, ids: &[WriteId], lsn: Lsn) {
        for id in ids {
            if let Some(Write { state: State::Pending { nothing_after, .. }, .. }) =
                self.writes.get_mut(id)
            {
                *nothing_after = Some(lsn);
            }
        }
        self.resolve_passed();
    }

    /// An entry came out of the stream (Algorithm 3). Its exact items replace those that analysis found.
    pub fn entry(&mut self, tsid: Tsid, xid: u32, items: &Items) {
        self.newest = self.newest.max(tsid);
        self.for_writers(items, |writers| writers.last = writers.last.max(tsid));
        if self.tables.len() > TABLES_MAX {
            self.collapse();
        }
        self.remember(xid, tsid);
        if let Some(id) = self.by_xid.get(&xid).copied() {
            self.resolve(id);
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

    /// The stream has brought every commit below `lsn`.
    pub fn passed(&mut self, lsn: Lsn) {
        self.passed = self.passed.max(lsn);
        self.resolve_passed();
    }

    fn resolve_passed(&mut self) {
        let passed = self.passed;
        let is_passed = |write: &Write| matches!(write.state, State::Pending { nothing_after: Some(lsn), .. } if lsn <= passed);
        let done: Vec<WriteId> =
            self.writes.iter().filter(|(_, write)| is_passed(write)).map(|(&id, _)| id).collect();
        done.into_iter().for_each(|id| self.resolve(id));
    }

    fn resolve(&mut self, id: WriteId) {
        let Some(write) = self.writes.remove(&id) else { return };
        if let State::Pending { xid: Some(xid), .. } = write.state {
            self.by_xid.remove(&xid);
        }
        self.for_writers(&write.items, |writers| {
            writers.unresolved =
                writers.unresolved.checked_sub(1).expect("a write is resolved once");
        });
    }

    fn for_writers(&mut self, items: &Items, change: impl Fn(&mut Writers)) {
        match items {
            Items::Nothing => {}
            Items::Everything => change(&mut self.everything),
            Items::Tables(tables) => {
                tables.iter().for_each(|table| change(self.tables.entry(*table).or_default()));
            }
        }
    }

    /// What a read of these items needs if it arrives now (Algorithm 4).
    #[must_use]
    pub fn need(&self, items: &Items) -> Need {
        let (tsid, unresolved) = match items {
            // A read that names no table still depends on the schema: functions, types, roles.
            Items::Nothing => (self.everything.last, self.everything.unresolved > 0),
            Items::Everything => (self.newest.max(self.everything.last), !self.writes.is_empty()),
            Items::Tables(tables) => self.need_of_tables(tables),
        };
        let unresolved = if unresolved { self.overlapping(items) } else { Vec::new() };
        Need { tsid, unresolved }
    }

    fn need_of_tables(&self, tables: &[RelId]) -> (Tsid, bool) {
        let writers = tables.iter().filter_map(|table| self.tables.get(table));
        writers.fold(
            (self.everything.last, self.everything.unresolved > 0),
            |(tsid, unresolved), table| (tsid.max(table.last), unresolved || table.unresolved > 0),
        )
    }

    fn overlapping(&self, items: &Items) -> Vec<WriteId> {
        let touches =
            |write: &Write| write.items.overlaps(items) || write.items == Items::Everything;
        self.writes.iter().filter(|(_, write)| touches(write)).map(|(&id, _)| id).collect()
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
            Items::Everything => self.newest,
            Items::Tables(tables) => self.need_of_tables(tables).0,
        }
    }

    fn collapse(&mut self) {
        let last = self.tables.values().map(|table| table.last).max().unwrap_or_default();
        self.everything.last = self.everything.last.max(last);
        self.tables.retain(|_, table| table.unresolved > 0);
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

    /// Whether a write on its way may touch everything, the schema included.
    #[must_use]
    pub fn is_anything_opaque(&self) -> bool {
        self.everything.unresolved > 0
    }

    /// Whether a write on its way touches these items.
    #[must_use]
    pub fn is_in_flight(&self, items: &Items) -> bool {
        match items {
            Items::Nothing => false,
            Items::Everything => !self.writes.is_empty(),
            Items::Tables(tables) => self.need_of_tables(tables).1,
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

    #[test]
    fn table_5_of_the_hihooi_paper_at_table_level() {
        // W1..W5 of Table 1, TSIDs 11 to 15: R is written last by 14, S by 15.
        let (r, s) = (t(&[1]), t(&[2]));
        let mut index = Freshness::new(Tsid(10));
        for (tsid, items) in [(11, &r), (12, &s), (13, &r), (14, &r), (15, &s)] {
            index.entry(Tsid(tsid), tsid as u32, items);
        }
        assert!(fresh(&index, &r, 14));
        assert!(fresh(&index, &s, 15));
        assert!(fresh(&index, &t(&[3]), 10));
        assert!(fresh(&index, &t(&[1, 2]), 15));
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
    }

    impl Twin {
        fn need(&self, items: &Items) -> (u64, Vec<WriteId>) {
            let entries = self.entries.iter().filter(|(_, e)| e.overlaps(items));
            let open = self.open.iter().filter(|(_, e)| e.overlaps(items));
            (entries.map(|(tsid, _)| *tsid).max().unwrap_or(0), open.map(|(id, _)| *id).collect())
        }
    }

    fn some_items() -> impl Strategy<Value = Items> {
        prop_oneof![
            8 => proptest::collection::vec(0_u32..6, 1..3).prop_map(|oids| t(&oids)),
            1 => Just(Items::Everything),
        ]
    }

    proptest! {
        #[test]
        fn i6_agrees_with_a_list_of_all_that_happened(
            steps in proptest::collection::vec((0..4_u8, some_items(), 0..8_usize), 1..120)
        ) {
            let mut index = Freshness::new(Tsid(0));
            let mut twin = Twin::default();
            let mut xid = 0;
            for (step, items, pick) in steps {
                match step {
                    0 => twin.open.push((index.begin(items.clone()), items)),
                    1 if !twin.open.is_empty() => {
                        let (id, items) = twin.open.remove(pick % twin.open.len());
                        xid += 1;
                        let tsid = twin.entries.len() as u64 + 1;
                        if pick % 2 == 0 {
                            index.acknowledged(id, Xid(xid), 0);
                            index.entry(Tsid(tsid), xid as u32, &items);
                        } else {
                            index.entry(Tsid(tsid), xid as u32, &items);
                            index.acknowledged(id, Xid(xid), 0);
                        }
                        twin.entries.push((tsid, items));
                    }
                    2 if !twin.open.is_empty() => {
                        index.nothing(twin.open.remove(pick % twin.open.len()).0);
                    }
                    _ => {}
                }
                for probe in [t(&[0]), t(&[1, 4]), t(&[5]), Items::Everything] {
                    let mut need = index.need(&probe);
                    need.unresolved.sort();
                    prop_assert_eq!((need.tsid.0, need.unresolved), twin.need(&probe));
                }
            }
        }
    }
}
