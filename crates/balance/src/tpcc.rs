//! TPC-C as the paper analyses it (vDBSM paper, section 5.1): types of transactions with warehouse
//! and district as parameters, and the conflict relation between them. `requests` draws what runs
//! at one time, for any number of warehouses; `types` has every type once with its frequency as
//! its weight (section 5.2), of which there are too many for more than a few warehouses.
//!
//! Frequencies: New Order 45 %, Payment 43 %, Delivery, Order Status and Stock Level 4 % each; 15 %
//! of payments are for a customer of another warehouse; an order has 5 to 15 items, each from
//! another warehouse with 1 %. With one warehouse all is at home.
//!
//! Departures.
//! - The paper's P_ijkm ranges over all i, j, k, m; those with k = i and m != j never occur, since
//!   a payment is at home (k, m) = (i, j) or at another warehouse, and are left out.
//! - The paper's relation leaves conflicts out: New Orders of one warehouse write the same stock
//!   rows whatever their districts, and an order with a remote item of warehouse x meets every
//!   order at home in x; the paper counts only two orders that are both remote there (S and Z
//!   share a warehouse). `Stock::Whole` has these, `Stock::AsPrinted` is the paper's.
//! - In `types`, sets S of more than `REMOTE_WAREHOUSES_MAX` warehouses have a frequency of less
//!   than 10^-4 together; it is added to those of that size.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rand::{Rng, RngExt};

use crate::Weight;
use crate::relation::{CLASSES_MAX, ClassId, Relation};
use crate::workload::{Transaction, Workload};

/// The most warehouses.
pub const WAREHOUSES_MAX: u32 = 10_000;

/// The most warehouses of which `types` makes all types.
pub const WAREHOUSES_OF_TYPES_MAX: u32 = 10;

/// The most transactions that `requests` draws: each may be a class of its own.
pub const REQUESTS_MAX: usize = CLASSES_MAX;

/// The most warehouses of a set S among all types.
pub const REMOTE_WAREHOUSES_MAX: u32 = 3;

const DISTRICTS: u32 = 10;

/// In percent of all; the rest are Order Status and Stock Level.
const NEW_ORDERS: u32 = 45;
const PAYMENTS: u32 = 43;
const OTHERS_EACH: u32 = 4;

const REMOTE_PAYMENTS: f64 = 0.15;
const REMOTE_ITEMS: f64 = 0.01;
const ITEMS: std::ops::RangeInclusive<i32> = 5..=15;

/// Weights of types are in units of 10^-12 of the workload.
const WHOLE: f64 = 1e12;

/// Which conflicts on stock rows count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stock {
    /// Between all orders that take items of the same warehouse.
    Whole,
    /// As the paper prints it: between orders that are remote to the same warehouse.
    AsPrinted,
}

/// A type of transactions with its parameters; warehouses and districts from 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Type {
    Delivery { i: u32 },
    Payment { i: u32, j: u32, k: u32, m: u32 },
    NewOrder { i: u32, j: u32, remote: BTreeSet<u32> },
    OrderStatus { i: u32, j: u32 },
    StockLevel { i: u32, j: u32 },
}

/// So many transactions of weight 1, at most `REQUESTS_MAX`, drawn by frequency on 1 to
/// `WAREHOUSES_MAX` warehouses; None for other numbers.
#[must_use]
pub fn requests(
    warehouses: u32,
    stock: Stock,
    count: usize,
    generator: &mut impl Rng,
) -> Option<Workload> {
    if !(1..=WAREHOUSES_MAX).contains(&warehouses) || count > REQUESTS_MAX {
        return None;
    }
    let one = Weight::new(1).expect("1 is a weight");
    let drawn = (0..count).map(|_| (Type::draw(warehouses, generator), one));
    Some(workload(drawn, stock))
}

/// Every type once, on 1 to `WAREHOUSES_OF_TYPES_MAX` warehouses; None for other numbers.
#[must_use]
pub fn types(warehouses: u32, stock: Stock) -> Option<Workload> {
    if !(1..=WAREHOUSES_OF_TYPES_MAX).contains(&warehouses) {
        return None;
    }
    let mut all = Types { warehouses, types: Vec::new() };
    for i in 0..warehouses {
        all.push(Type::Delivery { i }, f64::from(OTHERS_EACH * DISTRICTS));
        for j in 0..DISTRICTS {
            all.payments(i, j);
            all.new_orders(i, j);
            all.push(Type::OrderStatus { i, j }, f64::from(OTHERS_EACH));
            all.push(Type::StockLevel { i, j }, f64::from(OTHERS_EACH));
        }
    }
    Some(workload(all.types.into_iter(), stock))
}

fn workload(types: impl Iterator<Item = (Type, Weight)>, stock: Stock) -> Workload {
    let (mut classes, mut numbers) = (Vec::new(), BTreeMap::new());
    let mut number = |class: Type| {
        *numbers.entry(class).or_insert_with_key(|class| {
            classes.push(class.clone());
            ClassId(u32::try_from(classes.len() - 1).expect("at most CLASSES_MAX"))
        })
    };
    let transactions = types
        .map(|(each, weight)| Transaction {
            name: each.to_string(),
            weight,
            update: each.class().map(&mut number),
        })
        .collect();
    let conflict = |a: usize, b: usize| conflict(&classes[a], &classes[b], stock);
    Workload { transactions, relation: Relation::from_fn(classes.len(), conflict) }
}

/// The relation of section 5.1; each pair of types is listed in one order.
fn conflict(a: &Type, b: &Type, stock: Stock) -> bool {
    use Type::{Delivery, NewOrder, Payment};
    match (a, b) {
        (Delivery { i }, Delivery { i: x } | NewOrder { i: x, .. }) => x == i,
        (Delivery { i }, Payment { k, .. }) => k == i,
        (Payment { i, k, m, .. }, Payment { i: x, k: z, m: q, .. }) => x == i || (z == k && q == m),
        (NewOrder { i, j, remote }, NewOrder { i: x, j: y, remote: z }) => {
            let both_remote = !remote.is_disjoint(z);
            both_remote
                || match stock {
                    Stock::Whole => x == i || z.contains(i) || remote.contains(x),
                    Stock::AsPrinted => x == i && y == j,
                }
        }
        (NewOrder { i, j, .. }, Payment { i: x, k: z, m: q, .. }) => x == i || (z == i && q == j),
        _ => false,
    }
}

impl Type {
    fn draw(warehouses: u32, generator: &mut impl Rng) -> Type {
        const PAYMENT: u32 = NEW_ORDERS + PAYMENTS;
        const DELIVERY: u32 = PAYMENT + OTHERS_EACH;
        const ORDER_STATUS: u32 = DELIVERY + OTHERS_EACH;
        let i = generator.random_range(0..warehouses);
        let j = generator.random_range(0..DISTRICTS);
        match generator.random_range(0..100) {
            0..NEW_ORDERS => Type::draw_new_order(warehouses, i, j, generator),
            NEW_ORDERS..PAYMENT => Type::draw_payment(warehouses, i, j, generator),
            PAYMENT..DELIVERY => Type::Delivery { i },
            DELIVERY..ORDER_STATUS => Type::OrderStatus { i, j },
            _ => Type::StockLevel { i, j },
        }
    }

    fn draw_new_order(warehouses: u32, i: u32, j: u32, generator: &mut impl Rng) -> Type {
        let mut remote = BTreeSet::new();
        for _ in 0..generator.random_range(ITEMS) {
            if warehouses > 1 && generator.random_bool(REMOTE_ITEMS) {
                remote.insert(another(warehouses, i, generator));
            }
        }
        Type::NewOrder { i, j, remote }
    }

    fn draw_payment(warehouses: u32, i: u32, j: u32, generator: &mut impl Rng) -> Type {
        if warehouses == 1 || !generator.random_bool(REMOTE_PAYMENTS) {
            return Type::Payment { i, j, k: i, m: j };
        }
        let k = another(warehouses, i, generator);
        Type::Payment { i, j, k, m: generator.random_range(0..DISTRICTS) }
    }

    /// One that conflicts alike, the same for all that do; None if it is read-only.
    fn class(self) -> Option<Type> {
        match self {
            Type::OrderStatus { .. } | Type::StockLevel { .. } => None,
            Type::Payment { i, k, m, .. } => Some(Type::Payment { i, j: 0, k, m }),
            other => Some(other),
        }
    }
}

/// A warehouse other than `home`.
fn another(warehouses: u32, home: u32, generator: &mut impl Rng) -> u32 {
    (home + generator.random_range(1..warehouses)) % warehouses
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Delivery { i } => write!(f, "D({})", i + 1),
            Type::Payment { i, j, k, m } => {
                write!(f, "P({},{},{},{})", i + 1, j + 1, k + 1, m + 1)
            }
            Type::NewOrder { i, j, remote } => {
                let members: Vec<String> = remote.iter().map(|w| (w + 1).to_string()).collect();
                write!(f, "NO({},{},{{{}}})", i + 1, j + 1, members.join(","))
            }
            Type::OrderStatus { i, j } => write!(f, "OS({},{})", i + 1, j + 1),
            Type::StockLevel { i, j } => write!(f, "SL({},{})", i + 1, j + 1),
        }
    }
}

/// All types with their frequencies.
struct Types {
    warehouses: u32,
    types: Vec<(Type, Weight)>,
}

impl Types {
    /// A type that makes so many percent of what its district does.
    fn push(&mut self, each: Type, percent: f64) {
        let frequency = percent / 100.0 / f64::from(self.warehouses * DISTRICTS);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 10^12
        let weight = Weight::new(((frequency * WHOLE).round() as u64).max(1));
        self.types.push((each, weight.expect("a frequency below 1 in units of 10^-12")));
    }

    fn payments(&mut self, i: u32, j: u32) {
        let all = f64::from(PAYMENTS);
        let remote = if self.warehouses == 1 { 0.0 } else { REMOTE_PAYMENTS };
        self.push(Type::Payment { i, j, k: i, m: j }, all * (1.0 - remote));
        let others = f64::from((self.warehouses - 1) * DISTRICTS);
        for k in (0..self.warehouses).filter(|&k| k != i) {
            for m in 0..DISTRICTS {
                self.push(Type::Payment { i, j, k, m }, all * remote / others);
            }
        }
    }

    fn new_orders(&mut self, i: u32, j: u32) {
        let frequencies = set_frequencies(self.warehouses);
        for remote in remote_sets(self.warehouses, i) {
            let frequency = frequencies[remote.len()];
            self.push(Type::NewOrder { i, j, remote }, f64::from(NEW_ORDERS) * frequency);
        }
    }
}

/// The sets of warehouses other than `home`.
fn remote_sets(warehouses: u32, home: u32) -> impl Iterator<Item = BTreeSet<u32>> {
    (0..1u32 << warehouses)
        .filter(move |set| set >> home & 1 == 0 && set.count_ones() <= REMOTE_WAREHOUSES_MAX)
        .map(move |set| (0..warehouses).filter(|w| set >> w & 1 == 1).collect())
}

/// How often one particular set of remote warehouses is that of a New Order, by its size: by
/// inclusion and exclusion over orders of 5 to 15 items.
fn set_frequencies(warehouses: u32) -> Vec<f64> {
    let others = warehouses - 1;
    let remote_item = if others == 0 { 0.0 } else { REMOTE_ITEMS / f64::from(others) };
    let home_item = 1.0 - remote_item * f64::from(others);
    let largest = others.min(REMOTE_WAREHOUSES_MAX);
    let within = |set: u32| {
        let item = home_item + remote_item * f64::from(set);
        ITEMS.map(|items| item.powi(items)).sum::<f64>() / 11.0
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
