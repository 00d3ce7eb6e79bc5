//! TPC-C as the paper analyses it (vDBSM paper, section 5.1): types with warehouse and district
//! as parameters, weights by frequency, and the conflict relation between them.
//!
//! Weights are in units of 10^-12 of the workload. Frequencies: New Order 45 %, Payment 43 %,
//! Delivery, Order Status and Stock Level 4 % each; 15 % of payments are for a customer of
//! another warehouse; an order has 5 to 15 items, each from another warehouse with 1 %.
//!
//! Departures.
//! - The paper's P_ijkm ranges over all i, j, k, m; those with k = i and m != j never occur, since
//!   a payment is at home (k, m) = (i, j) or at another warehouse, and are left out. With one
//!   warehouse all payments are at home.
//! - The relation is kept as printed, but it leaves conflicts out: New Orders of one warehouse
//!   write the same stock rows whatever their districts, and an order with a remote item of
//!   warehouse x meets every order at home in x; the paper counts only two orders that are both
//!   remote there (S and Z share a warehouse). `Stock::Whole` adds these.
//! - Sets S of more than `REMOTE_WAREHOUSES_MAX` warehouses have a frequency of less than 10^-4
//!   together; it is added to those of that size.

use crate::Weight;
use crate::relation::{ClassId, Relation};
use crate::workload::{Transaction, Workload};

/// The most warehouses.
pub const WAREHOUSES_MAX: u32 = 10;

/// The most warehouses of a set S.
pub const REMOTE_WAREHOUSES_MAX: u32 = 3;

const DISTRICTS: u32 = 10;
const WHOLE: f64 = 1e12;

/// Which conflicts on stock rows count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stock {
    /// As the paper prints it: between orders that are remote to the same warehouse.
    AsPrinted,
    /// Between all orders that take items of the same warehouse.
    Whole,
}

/// Parameters that decide conflicts; warehouses and districts from 0, sets as bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Delivery { i: u32 },
    Payment { i: u32, k: u32, m: u32 },
    NewOrder { i: u32, j: u32, remote: u32 },
}

/// The workload of so many warehouses, 1 to `WAREHOUSES_MAX`; None for other numbers.
#[must_use]
pub fn workload(warehouses: u32, stock: Stock) -> Option<Workload> {
    if !(1..=WAREHOUSES_MAX).contains(&warehouses) {
        return None;
    }
    let mut builder = Builder::default();
    for i in 0..warehouses {
        builder.update(
            format!("D({})", i + 1),
            0.04 / f64::from(warehouses),
            Class::Delivery { i },
        );
        for j in 0..DISTRICTS {
            builder.payments(warehouses, i, j);
            builder.new_orders(warehouses, i, j);
            builder.read_only(warehouses, i, j);
        }
    }
    let classes = builder.classes;
    let relation = Relation::from_fn(classes.len(), |a, b| conflict(classes[a], classes[b], stock));
    Some(Workload { transactions: builder.transactions, relation })
}

/// The relation of section 5.1; each pair of types is listed in one order.
fn conflict(a: Class, b: Class, stock: Stock) -> bool {
    use Class::{Delivery, NewOrder, Payment};
    match (a, b) {
        (Delivery { i }, Delivery { i: x } | NewOrder { i: x, .. }) => x == i,
        (Delivery { i }, Payment { k, .. }) => k == i,
        (Payment { i, k, m }, Payment { i: x, k: z, m: q }) => x == i || (z == k && q == m),
        (NewOrder { i, j, remote }, NewOrder { i: x, j: y, remote: z }) => match stock {
            Stock::AsPrinted => (x == i && y == j) || remote & z != 0,
            Stock::Whole => (remote | 1 << i) & (z | 1 << x) != 0,
        },
        (NewOrder { i, j, .. }, Payment { i: x, k: z, m: q }) => x == i || (z == i && q == j),
        _ => false,
    }
}

#[derive(Default)]
struct Builder {
    transactions: Vec<Transaction>,
    classes: Vec<Class>,
    numbers: std::collections::BTreeMap<Class, u32>,
}

impl Builder {
    fn update(&mut self, name: String, frequency: f64, class: Class) {
        let next = u32::try_from(self.classes.len()).expect("fewer than CLASSES_MAX");
        let number = *self.numbers.entry(class).or_insert(next);
        if number == next {
            self.classes.push(class);
        }
        self.push(name, frequency, Some(ClassId(number)));
    }

    fn push(&mut self, name: String, frequency: f64, update: Option<ClassId>) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 10^12
        let weight = Weight::new(((frequency * WHOLE).round() as u64).max(1));
        let weight = weight.expect("a frequency below 1 in units of 10^-12");
        self.transactions.push(Transaction { name, weight, update });
    }

    fn payments(&mut self, warehouses: u32, i: u32, j: u32) {
        let here = 0.43 / f64::from(warehouses * DISTRICTS);
        let at_home = if warehouses == 1 { here } else { here * 0.85 };
        self.payment(i, j, (i, j), at_home);
        let others = f64::from((warehouses - 1) * DISTRICTS);
        for k in (0..warehouses).filter(|&k| k != i) {
            for m in 0..DISTRICTS {
                self.payment(i, j, (k, m), here * 0.15 / others);
            }
        }
    }

    fn payment(&mut self, i: u32, j: u32, (k, m): (u32, u32), frequency: f64) {
        let name = format!("P({},{},{},{})", i + 1, j + 1, k + 1, m + 1);
        self.update(name, frequency, Class::Payment { i, k, m });
    }

    fn new_orders(&mut self, warehouses: u32, i: u32, j: u32) {
        let here = 0.45 / f64::from(warehouses * DISTRICTS);
        let sets = remote_sets(warehouses, i);
        let frequencies = set_frequencies(warehouses);
        for remote in sets {
            let frequency = here * frequencies[remote.count_ones() as usize];
            let members: Vec<String> = (0..warehouses)
                .filter(|w| remote >> w & 1 == 1)
                .map(|w| (w + 1).to_string())
                .collect();
            let name = format!("NO({},{},{{{}}})", i + 1, j + 1, members.join(","));
            self.update(name, frequency, Class::NewOrder { i, j, remote });
        }
    }

    fn read_only(&mut self, warehouses: u32, i: u32, j: u32) {
        for kind in ["OS", "SL"] {
            let name = format!("{kind}({},{})", i + 1, j + 1);
            self.push(name, 0.04 / f64::from(warehouses * DISTRICTS), None);
        }
    }
}

/// The sets of warehouses other than `home`, as bits, in ascending order.
fn remote_sets(warehouses: u32, home: u32) -> impl Iterator<Item = u32> {
    (0..1u32 << warehouses)
        .filter(move |set| set >> home & 1 == 0 && set.count_ones() <= REMOTE_WAREHOUSES_MAX)
}

/// How often one particular set of remote warehouses is that of a New Order, by its size: by
/// inclusion and exclusion over orders of 5 to 15 items.
fn set_frequencies(warehouses: u32) -> Vec<f64> {
    let others = warehouses - 1;
    let remote_item = if others == 0 { 0.0 } else { 0.01 / f64::from(others) };
    let home_item = 1.0 - remote_item * f64::from(others);
    let largest = others.min(REMOTE_WAREHOUSES_MAX);
    let within = |set: u32| {
        let item = home_item + remote_item * f64::from(set);
        (5..=15).map(|items| item.powi(items)).sum::<f64>() / 11.0
    };
    let exactly = |set: u32| -> f64 {
        (0..=set).map(|less| sign(less) * choose(set, less) * within(set - less)).sum()
    };
    let mut frequencies: Vec<f64> = (0..=largest).map(exactly).collect();
    let all: f64 = (0..=largest).map(|set| choose(others, set) * exactly(set)).sum();
    frequencies[largest as usize] += (1.0 - all) / choose(others, largest);
    frequencies
}

fn sign(exponent: u32) -> f64 {
    if exponent.is_multiple_of(2) { 1.0 } else { -1.0 }
}

fn choose(from: u32, count: u32) -> f64 {
    (0..count).map(|step| f64::from(from - step) / f64::from(step + 1)).product()
}
