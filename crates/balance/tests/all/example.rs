//! The ten transactions of the vDBSM paper's section 4.3: golden assignments.

use hihooi_balance::assign::{Order, assign};
use hihooi_balance::overlap::Figures;
use hihooi_balance::policy::{Factor, Policy};
use hihooi_balance::relation::{ClassId, Relation};
use hihooi_balance::workload::{Transaction, Workload};
use hihooi_balance::{ServerId, Weight};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

/// T1 to T10, each of its own number's weight; odd ones conflict, and even ones.
fn ten() -> Workload {
    let transaction = |number: u32| Transaction {
        name: format!("T{number}"),
        weight: Weight::new(number.into()).expect("a weight"),
        update: Some(ClassId(number % 2)),
    };
    Workload {
        transactions: (1..=10).map(transaction).collect(),
        relation: Relation::from_fn(2, |a, b| a == b),
    }
}

fn mpf(factor: f64) -> Policy {
    Policy::Mpf(Factor::new(factor).expect("a factor"))
}

fn assigned(policy: Policy) -> Vec<ServerId> {
    assign(&ten(), policy, 4, Order::Weight, &mut Pcg64Mcg::seed_from_u64(0))
}

/// Per server the numbers of its transactions, the heaviest first.
fn by_server(policy: Policy) -> Vec<Vec<usize>> {
    let assigned = assigned(policy);
    let of = |server| (1..=10).rev().filter(|&t| assigned[t - 1] == ServerId(server)).collect();
    (0..4).map(of).collect()
}

fn figures(policy: Policy) -> Figures {
    Figures::of(&ten(), &assigned(policy), 4)
}

/// Section 4.3: all even ones on S1, all odd ones on S2, two idle servers.
#[test]
fn mcf_concentrates() {
    let nobody = Vec::new();
    let expected = [vec![10, 8, 6, 4, 2], vec![9, 7, 5, 3, 1], nobody.clone(), nobody];
    assert_eq!(by_server(Policy::MCF), expected);
    let figures = figures(Policy::MCF);
    assert_eq!(figures.load, [30, 25, 0, 0]);
    assert_eq!(figures.across, Some(0.0));
}

/// Section 4.3: even loads, conflicts everywhere. There are no ties of conflicting weight.
#[test]
fn mpf_1_balances() {
    assert_eq!(by_server(mpf(1.0)), [vec![10, 3, 2], vec![9, 4, 1], vec![8, 5], vec![7, 6]]);
    assert_eq!(figures(mpf(1.0)).load, [15, 14, 13, 13]);
}

/// Section 4.3: a compromise. T2 finds S1 and S3 equal in load (14) and in conflicting weight
/// (14), and the paper takes S1; T1 finds S2 and S4 equal (12, 12), and it takes S4. No rule
/// on what the servers hold tells the second pair from the first; taking equal servers in turn
/// does.
#[test]
fn mpf_0_8_compromises() {
    assert_eq!(by_server(mpf(0.8)), [vec![10, 4, 2], vec![9, 3], vec![8, 6], vec![7, 5, 1]]);
    let figures = figures(mpf(0.8));
    assert_eq!(figures.load, [16, 12, 14, 13]);
    // Even ones are on S1 and S3, odd ones on S2 and S4.
    let meets = |i: usize, j: usize| figures.overlap[i][j] == Some(1.0);
    let pairs: Vec<(usize, usize)> =
        (0..4).flat_map(|i| (0..4).map(move |j| (i, j))).filter(|&(i, j)| meets(i, j)).collect();
    assert_eq!(pairs, [(0, 2), (1, 3), (2, 0), (3, 1)]);
}

/// Section 4.2: MCF is MPF with factor 0.
#[test]
fn mcf_is_mpf_with_factor_0() {
    assert_eq!(assigned(Policy::MCF), assigned(mpf(0.0)));
}

/// Section 5.2's example of the overlapping ratio: T1 of {T1, T2, T3} conflicts with T4, T2 with
/// T6 of {T4, T5, T6, T7}.
#[test]
fn the_overlapping_ratio_is_that_of_section_5_2() {
    let pairs = [(0, 3), (1, 5)];
    let transactions: Vec<Transaction> = (0..7)
        .map(|number| Transaction {
            name: format!("T{}", number + 1),
            weight: Weight::new(10 + u64::from(number)).expect("a weight"),
            update: Some(ClassId(number)),
        })
        .collect();
    let relation = Relation::from_fn(7, |a, b| pairs.contains(&(a, b)));
    let workload = Workload { transactions, relation };
    let assigned: Vec<ServerId> = (0..7).map(|t| ServerId(u16::from(t >= 3))).collect();
    let figures = Figures::of(&workload, &assigned, 2);
    assert_eq!(figures.overlap[0][1], Some((10.0 + 11.0) / (10.0 + 11.0 + 12.0)));
    assert_eq!(figures.overlap[1][0], Some((13.0 + 15.0) / (13.0 + 14.0 + 15.0 + 16.0)));
    assert_eq!((figures.overlap[0][0], figures.across), (None, Some(1.0)));
}
