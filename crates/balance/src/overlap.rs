//! The quality of an assignment: load per server and overlapping ratios (vDBSM paper, section 5.2), and the
//! share of conflicts that are between servers.

use crate::ServerId;
use crate::index::{ClassIndex, ConflictIndex};
use crate::workload::Workload;

/// Figures of an assignment. Servers are in order.
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    /// Weight of the transactions of each server.
    pub load: Vec<u64>,
    /// Of its update transactions.
    pub update_load: Vec<u64>,
    /// O_R(S_i, S_j): of the weight of S_i's update transactions, the share of those that
    /// conflict with an update transaction of S_j. None where S_i has none, and for i = j.
    pub overlap: Vec<Vec<Option<f64>>>,
    /// Draw two transactions by weight; given that they conflict, how likely are they of two
    /// servers? None when no two conflict. (Not the paper's: its ratio doesn't tell a
    /// transaction with one rare conflict elsewhere from one that has all of them there.)
    pub across: Option<f64>,
}

impl Figures {
    /// The figures of an assignment, one server per transaction.
    #[must_use]
    pub fn of(workload: &Workload, assigned: &[ServerId], servers: usize) -> Figures {
        let mut index = ClassIndex::new(&workload.relation, servers);
        let (mut load, mut update_load) = (vec![0; servers], vec![0; servers]);
        for (transaction, server) in workload.transactions.iter().zip(assigned) {
            load[server.index()] += transaction.weight.get();
            if let Some(class) = transaction.update {
                update_load[server.index()] += transaction.weight.get();
                index.enter(class, *server, transaction.weight);
            }
        }
        let overlap = overlap(workload, assigned, &index, &update_load);
        Figures { load, update_load, overlap, across: across(workload, assigned, &index) }
    }

    /// The mean of the overlapping ratios, None if there is none.
    #[must_use]
    pub fn mean_overlap(&self) -> Option<f64> {
        let ratios: Vec<f64> = self.overlap.iter().flatten().copied().flatten().collect();
        #[allow(clippy::cast_precision_loss)] // at most SERVERS_MAX squared
        let count = ratios.len() as f64;
        (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / count)
    }

    /// The highest load over the mean load; 1 is even.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let highest = self.load.iter().copied().max().unwrap_or(0);
        ratio(
            u128::from(highest) * self.load.len() as u128,
            self.load.iter().map(|&w| u128::from(w)).sum(),
        )
        .unwrap_or(1.0)
    }

    /// How many servers have update transactions.
    #[must_use]
    pub fn updating_servers(&self) -> usize {
        self.update_load.iter().filter(|&&weight| weight > 0).count()
    }
}

fn overlap(
    workload: &Workload,
    assigned: &[ServerId],
    index: &ClassIndex<'_>,
    update_load: &[u64],
) -> Vec<Vec<Option<f64>>> {
    let servers = update_load.len();
    let mut meeting = vec![vec![0u64; servers]; servers];
    for (transaction, server) in workload.transactions.iter().zip(assigned) {
        let Some(class) = transaction.update else { continue };
        for (sum, &weight) in meeting[server.index()].iter_mut().zip(index.conflicting(class)) {
            *sum += if weight > 0 { transaction.weight.get() } else { 0 };
        }
    }
    let share = |i: usize, j: usize| {
        if i == j { None } else { ratio(meeting[i][j].into(), update_load[i].into()) }
    };
    (0..servers).map(|i| (0..servers).map(|j| share(i, j)).collect()).collect()
}

fn across(workload: &Workload, assigned: &[ServerId], index: &ClassIndex<'_>) -> Option<f64> {
    let (mut elsewhere, mut all) = (0u128, 0u128);
    for (transaction, server) in workload.transactions.iter().zip(assigned) {
        let Some(class) = transaction.update else { continue };
        let conflicting = index.conflicting(class);
        let total: u64 = conflicting.iter().sum();
        let weight = u128::from(transaction.weight.get());
        all += weight * u128::from(total);
        elsewhere += weight * u128::from(total - conflicting[server.index()]);
    }
    ratio(elsewhere, all)
}

#[allow(clippy::cast_precision_loss)] // a share to be printed
fn ratio(part: u128, whole: u128) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
