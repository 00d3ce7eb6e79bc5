//! The conflicting weight per server, updated when transactions begin and end, so that a decision uses only
//! aggregates and doesn't look at the running transactions (w(C_T(S_k)) of the vDBSM paper, section 4.1).
//!
//! Departures.
//! - By class (`ClassIndex`) the weight is the paper's exactly. By items (`ItemIndex`) a running transaction
//!   counts once for every item that it shares with the submitted one: sums per item can't show that two items
//!   belong to the same transaction. It is still exact which servers conflict at all; but among several of them
//!   another one may be chosen than in the paper, one with which more items are shared. If no two transactions
//!   share two items, the weight is the paper's.
//! - Read-only transactions are not in the index: section 5.1 counts only update transactions as conflicting,
//!   although section 3's definition covers a reader as well.

use std::collections::HashMap;

use crate::relation::{ClassId, Relation};
use crate::{ServerId, Weight};

/// The most items of one transaction that count; further ones are passed over.
pub const ITEMS_PER_TRANSACTION_MAX: usize = 64;

/// Aggregated weights of update transactions by what they conflict with.
pub trait ConflictIndex {
    /// What a transaction accesses.
    type Access<'a>: Copy;
    /// What is remembered of a transaction that was entered.
    type Entry;

    /// Writes the weight that conflicts with a transaction at each server.
    fn weigh(&self, access: Self::Access<'_>, conflicting: &mut [u64]);

    /// Adds an update transaction to a server.
    fn enter(&mut self, access: Self::Access<'_>, server: ServerId, weight: Weight) -> Self::Entry;

    /// Takes it off again.
    fn leave(&mut self, entry: Self::Entry, server: ServerId, weight: Weight);
}

/// By class of a known relation. A decision takes a step per server; entering takes a step per
/// class that the transaction's conflicts with. Bound: classes times servers.
#[derive(Clone, Debug)]
pub struct ClassIndex<'r> {
    relation: &'r Relation,
    servers: usize,
    /// Per class and server: the weight there that conflicts with the class.
    conflicting: Vec<u64>,
}

impl<'r> ClassIndex<'r> {
    /// An index without transactions.
    #[must_use]
    pub fn new(relation: &'r Relation, servers: usize) -> ClassIndex<'r> {
        ClassIndex { relation, servers, conflicting: vec![0; relation.classes() * servers] }
    }

    /// The weight that conflicts with a class, per server.
    #[must_use]
    pub fn conflicting(&self, class: ClassId) -> &[u64] {
        &self.conflicting[class.index() * self.servers..][..self.servers]
    }

    fn each_cell(&mut self, class: ClassId, server: ServerId, change: impl Fn(&mut u64)) {
        for other in self.relation.conflicting(class) {
            change(&mut self.conflicting[other.index() * self.servers + server.index()]);
        }
    }
}

impl ConflictIndex for ClassIndex<'_> {
    type Access<'a> = ClassId;
    type Entry = ClassId;

    fn weigh(&self, class: ClassId, conflicting: &mut [u64]) {
        conflicting.copy_from_slice(self.conflicting(class));
    }

    fn enter(&mut self, class: ClassId, server: ServerId, weight: Weight) -> ClassId {
        self.each_cell(class, server, |cell| *cell += weight.get());
        class
    }

    fn leave(&mut self, class: ClassId, server: ServerId, weight: Weight) {
        self.each_cell(class, server, |cell| *cell -= weight.get());
    }
}

/// An item's name: a hash of table and key, say. Two items with one name cost balance, never
/// correctness.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Item(pub u64);

/// The items that a transaction accesses; one that is both read and written is named as written.
/// More than `ITEMS_PER_TRANSACTION_MAX` together don't count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Items<'a> {
    /// Read and not written.
    pub reads: &'a [Item],
    /// Written.
    pub writes: &'a [Item],
}

impl Items<'_> {
    /// The items that count, each with whether it is written; written ones first, since every
    /// other access conflicts with them.
    fn each(&self) -> impl Iterator<Item = (Item, bool)> {
        let writes = self.writes.iter().map(|&item| (item, true));
        let reads = self.reads.iter().map(|&item| (item, false));
        writes.chain(reads).take(ITEMS_PER_TRANSACTION_MAX)
    }
}

/// By item. A decision takes a look-up per item and a step per item and server. Bound: rows for
/// the items of running transactions only, at most `ITEMS_PER_TRANSACTION_MAX` of each.
#[derive(Debug)]
pub struct ItemIndex {
    servers: usize,
    rows: HashMap<Item, u32, ahash::RandomState>,
    /// The row's item, and how many running transactions hold it.
    holders: Vec<(Item, u32)>,
    /// Two halves per row: per server the weight that accesses the item, which conflicts with a
    /// writer of it; then the weight that writes it, which conflicts with a reader.
    weights: Vec<u64>,
    free_rows: Vec<u32>,
    /// Used entries, to spare the allocation of new ones.
    spare: Vec<Vec<(u32, bool)>>,
}

impl ItemIndex {
    /// An index without transactions.
    #[must_use]
    pub fn new(servers: usize) -> ItemIndex {
        ItemIndex {
            servers,
            rows: HashMap::default(),
            holders: Vec::new(),
            weights: Vec::new(),
            free_rows: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// How many items are held by running transactions.
    #[must_use]
    pub fn items(&self) -> usize {
        self.rows.len()
    }

    /// Where the half of a row begins that conflicts with a reader or a writer.
    fn half(&self, row: u32, writer: bool) -> usize {
        (row as usize * 2 + usize::from(!writer)) * self.servers
    }

    fn hold(&mut self, item: Item) -> u32 {
        if let Some(&row) = self.rows.get(&item) {
            self.holders[row as usize].1 += 1;
            return row;
        }
        let row = self.free_rows.pop().unwrap_or_else(|| self.grow());
        self.holders[row as usize] = (item, 1);
        self.rows.insert(item, row);
        row
    }

    fn grow(&mut self) -> u32 {
        let row = u32::try_from(self.holders.len()).expect("items are bounded below 2^32");
        self.holders.push((Item(0), 0));
        self.weights.resize(self.weights.len() + 2 * self.servers, 0);
        row
    }

    fn release(&mut self, row: u32) {
        let (item, holders) = &mut self.holders[row as usize];
        *holders -= 1;
        if *holders == 0 {
            self.rows.remove(item);
            self.free_rows.push(row);
        }
    }

    /// The cells that an access counts in: of those who would write the item, and, if it is
    /// written, of those who would read it.
    fn cells(
        &self,
        row: u32,
        written: bool,
        server: ServerId,
    ) -> impl Iterator<Item = usize> + use<> {
        let against_writers = self.half(row, true) + server.index();
        let against_readers = written.then(|| self.half(row, false) + server.index());
        std::iter::once(against_writers).chain(against_readers)
    }
}

impl ConflictIndex for ItemIndex {
    type Access<'a> = Items<'a>;
    type Entry = Vec<(u32, bool)>;

    fn weigh(&self, items: Items<'_>, conflicting: &mut [u64]) {
        conflicting.fill(0);
        for (item, written) in items.each() {
            let Some(&row) = self.rows.get(&item) else { continue };
            let half = &self.weights[self.half(row, written)..][..self.servers];
            conflicting.iter_mut().zip(half).for_each(|(sum, weight)| *sum += weight);
        }
    }

    fn enter(&mut self, items: Items<'_>, server: ServerId, weight: Weight) -> Self::Entry {
        let mut entry = self.spare.pop().unwrap_or_default();
        for (item, written) in items.each() {
            let row = self.hold(item);
            self.cells(row, written, server).for_each(|cell| self.weights[cell] += weight.get());
            entry.push((row, written));
        }
        entry
    }

    fn leave(&mut self, mut entry: Self::Entry, server: ServerId, weight: Weight) {
        for (row, written) in entry.drain(..) {
            self.cells(row, written, server).for_each(|cell| self.weights[cell] -= weight.get());
            self.release(row);
        }
        self.spare.push(entry);
    }
}
