//! A workload as data: the transactions that a system expects, each with its weight and its
//! class of the conflict relation (vDBSM paper, sections 2.2 and 5.1).

use rand::{Rng, RngExt};

use crate::Weight;
use crate::relation::{ClassId, Relation};

/// The most transactions of one workload.
pub const TRANSACTIONS_MAX: usize = 65_536;

/// One transaction, or all those of one type and parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// What a person calls it.
    pub name: String,
    /// Its cost, or how often it occurs.
    pub weight: Weight,
    /// Its class; None if it is read-only.
    pub update: Option<ClassId>,
}

/// Transactions and their conflicts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// In the order given; at most `TRANSACTIONS_MAX`.
    pub transactions: Vec<Transaction>,
    /// Between their classes.
    pub relation: Relation,
}

impl Workload {
    /// The weight of all.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.transactions.iter().map(|transaction| transaction.weight.get()).sum()
    }

    /// Whether two transactions, by their places, conflict. Read-only ones don't (section 5.1).
    #[must_use]
    pub fn conflict(&self, a: usize, b: usize) -> bool {
        match (self.transactions[a].update, self.transactions[b].update) {
            (Some(a), Some(b)) => self.relation.conflict(a, b),
            _ => false,
        }
    }

    /// So many transactions drawn by weight, each of weight 1: what runs at one time, where the
    /// workload says what may run.
    #[must_use]
    pub fn sample(&self, count: usize, generator: &mut impl Rng) -> Workload {
        let mut ends = Vec::with_capacity(self.transactions.len());
        let mut end = 0;
        for transaction in &self.transactions {
            end += transaction.weight.get();
            ends.push(end);
        }
        let one = Weight::new(1).expect("1 is a weight");
        let draw = |_| {
            let point = generator.random_range(0..end);
            let drawn = &self.transactions[ends.partition_point(|&end| end <= point)];
            Transaction { weight: one, ..drawn.clone() }
        };
        let count = if end == 0 { 0 } else { count };
        Workload { transactions: (0..count).map(draw).collect(), relation: self.relation.clone() }
    }
}
