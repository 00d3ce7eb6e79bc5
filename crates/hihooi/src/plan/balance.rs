//! `hihooi plan balance`: assigns a workload's transactions to servers by the policies of conflict-aware load
//! balancing, and evaluates the assignments (vDBSM paper, sections 4 and 5).

mod file;
mod report;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use hihooi_balance::assign::{self, assign};
use hihooi_balance::overlap::Figures;
use hihooi_balance::policy::{Factor, Policy};
use hihooi_balance::tpcc::{self, Stock};
use hihooi_balance::workload::{TRANSACTIONS_MAX, Workload};
use hihooi_balance::{SERVERS_MAX, ServerId};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::plan::balance::report::{Report, Result};

/// The factor of MPF that the paper's evaluation favours.
const DEFAULT_FACTOR: f64 = 0.5;

/// How many requests of TPC-C run at one time, by default.
const TPCC_REQUESTS: i64 = 200;

pub const EXAMPLES: &str = r#"Examples:
  hihooi plan balance --policy all --servers 8 --tpcc 4
  hihooi plan balance --policy mpf --factor 0.5 --servers 8 --tpcc 100 --requests 2000
  hihooi plan balance --servers 8 --tpcc 4 --requests all --stock printed    as in the paper
  hihooi plan balance --policy mcf --servers 3 --workload shop.toml --order weight

A workload file names transactions, what they write and what they read:

  [[transaction]]
  name = "order"
  weight = 45                       # how often or how costly; 1 if left out
  repeat = { shop = 4 }             # one each for shop 1 to 4, which share the weight
  reads = ["customer of {shop}"]
  writes = ["stock of {shop}"]

  [[transaction]]
  name = "report"                   # writes nothing: read-only, conflicts with nobody
  weight = 5
  reads = ["stock of 1"]

Two transactions conflict when they share an item that one of them writes and both write
something. Transactions are assigned one after another. The same seed gives the same assignment.

  mcf           the server with conflicting transactions, otherwise the one with the lowest load
  mpf           the same among servers with similar load: FACTOR times their load is not above the
                lowest. 1 prefers even load, small factors prefer fewer conflicts
  least-loaded, round-robin, random   ignore conflicts
  all           a table that compares all policies

TPC-C: a type of transaction has its warehouse and district as parameters. Which types conflict is
defined in section 5.1 of the vDBSM paper. --stock printed uses the relation as printed there, where
two orders conflict only in one district, or if both take items of one third warehouse. whole, the
default, adds all orders that take items of the same warehouse. Randomly drawn requests represent
the transactions that run at one time. With all types at once, even rare ones, some rare payment of
each server conflicts with most transactions of every other server. Then all overlapping ratios are
near 100 %, which hides the differences between policies.

The overlapping ratio of two servers is the share of the first one's update weight that
conflicts with some update transaction of the second. "Conflicting weight across servers" is
the probability that two conflicting transactions, drawn by weight, are at two servers."#;

/// Arguments of `plan balance`.
#[derive(Args, Debug)]
pub struct BalanceArgs {
    /// How servers are chosen
    #[arg(long, value_enum, default_value = "all")]
    policy: PolicyName,
    /// How similar loads must be for `mpf`, 0 to 1 [default: 0.5]
    #[arg(long, value_name = "F")]
    factor: Option<f64>,
    /// Number of servers
    #[arg(long, value_name = "N")]
    servers: i64,
    /// Use the TPC-C mix, with this number of warehouses, 1 to 10000
    #[arg(long, value_name = "WAREHOUSES")]
    tpcc: Option<i64>,
    /// Which conflicts between TPC-C's orders count (see below)
    #[arg(long, value_enum, default_value = "whole", requires = "tpcc")]
    stock: StockName,
    /// A file that describes the workload (see below)
    #[arg(long, value_name = "FILE", conflicts_with = "tpcc")]
    workload: Option<PathBuf>,
    /// Assign this number of transactions, drawn by weight, or each once [default: tpcc 200, a file all]
    #[arg(long, value_name = "N|all")]
    requests: Option<Requests>,
    /// In which order transactions are assigned
    #[arg(long, value_enum, default_value = "random")]
    order: OrderName,
    /// Seed of the random numbers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum PolicyName {
    Mcf,
    Mpf,
    Random,
    RoundRobin,
    LeastLoaded,
    All,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum OrderName {
    Weight,
    Given,
    Random,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum StockName {
    Whole,
    Printed,
}

impl StockName {
    fn stock(self) -> Stock {
        match self {
            StockName::Whole => Stock::Whole,
            StockName::Printed => Stock::AsPrinted,
        }
    }
}

/// How many transactions of a workload are assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Requests {
    All,
    Drawn(i64),
}

impl FromStr for Requests {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Requests, Self::Err> {
        match (text, text.parse()) {
            ("all", _) => Ok(Requests::All),
            (_, Ok(count)) => Ok(Requests::Drawn(count)),
            _ => Err("it is neither a number nor all"),
        }
    }
}

impl OrderName {
    fn order(self) -> assign::Order {
        match self {
            OrderName::Weight => assign::Order::Weight,
            OrderName::Given => assign::Order::Given,
            OrderName::Random => assign::Order::Random,
        }
    }
}

/// What is to be printed.
///
/// # Errors
/// One line for what can't be done.
pub fn plan(args: &BalanceArgs) -> std::result::Result<String, String> {
    Ok(report(args)?.printed(args.json))
}

fn report(args: &BalanceArgs) -> std::result::Result<Report, String> {
    let servers = in_range("--servers", args.servers, SERVERS_MAX)?;
    let policies = policies(args)?;
    let workload = workload(args)?;
    let results =
        policies.into_iter().map(|policy| result(args, servers, &workload, policy)).collect();
    Ok(Report {
        servers,
        order: args.order.to_possible_value().expect("no value is skipped").get_name().to_owned(),
        seed: args.seed,
        workload,
        results,
        compare: args.policy == PolicyName::All,
    })
}

/// The policies to apply, each with its name.
fn policies(args: &BalanceArgs) -> std::result::Result<Vec<(String, Policy)>, String> {
    let given = args.factor.unwrap_or(DEFAULT_FACTOR);
    let factor = Factor::new(given).ok_or_else(|| format!("--factor {given}: must be 0 to 1"))?;
    let mpf = |factor: Factor| (format!("mpf {}", factor.get()), Policy::Mpf(factor));
    let mcf = ("mcf".to_owned(), Policy::MCF);
    let blind = [
        ("least-loaded".to_owned(), Policy::LeastLoaded),
        ("round-robin".to_owned(), Policy::RoundRobin),
        ("random".to_owned(), Policy::Random),
    ];
    if args.factor.is_some() && !matches!(args.policy, PolicyName::Mpf | PolicyName::All) {
        return Err("--factor is for --policy mpf or all".to_owned());
    }
    Ok(match args.policy {
        PolicyName::Mcf => vec![mcf],
        PolicyName::Mpf => vec![mpf(factor)],
        PolicyName::LeastLoaded => blind[..1].to_vec(),
        PolicyName::RoundRobin => blind[1..2].to_vec(),
        PolicyName::Random => blind[2..].to_vec(),
        PolicyName::All => {
            let mut all = vec![mcf, mpf(factor)];
            all.extend((factor != Factor::ONE).then(|| mpf(Factor::ONE)));
            all.extend(blind);
            all
        }
    })
}

fn workload(args: &BalanceArgs) -> std::result::Result<Workload, String> {
    match (&args.workload, args.tpcc) {
        (Some(path), _) => described(args, path),
        (None, Some(warehouses)) => tpcc(args, warehouses),
        (None, None) => Err("either --tpcc or --workload is needed".to_owned()),
    }
}

fn described(args: &BalanceArgs, path: &Path) -> std::result::Result<Workload, String> {
    let all = file::read(path)?;
    match args.requests {
        None | Some(Requests::All) => Ok(all),
        Some(Requests::Drawn(count)) => {
            let count = in_range("--requests", count, TRANSACTIONS_MAX)?;
            Ok(all.sample(count, &mut Pcg64Mcg::seed_from_u64(args.seed)))
        }
    }
}

fn tpcc(args: &BalanceArgs, warehouses: i64) -> std::result::Result<Workload, String> {
    let stock = args.stock.stock();
    let warehouses = in_range("--tpcc", warehouses, tpcc::WAREHOUSES_MAX)?;
    match args.requests.unwrap_or(Requests::Drawn(TPCC_REQUESTS)) {
        Requests::All => tpcc::types(warehouses, stock).ok_or_else(|| {
            let most = tpcc::WAREHOUSES_OF_TYPES_MAX;
            format!("--tpcc {warehouses}: --requests all is for 1 to {most} warehouses")
        }),
        Requests::Drawn(count) => {
            let count = in_range("--requests", count, tpcc::REQUESTS_MAX)?;
            let mut generator = Pcg64Mcg::seed_from_u64(args.seed);
            Ok(tpcc::requests(warehouses, stock, count, &mut generator).expect("in range"))
        }
    }
}

/// A number from 1 to the most.
fn in_range<N>(name: &str, value: i64, most: N) -> std::result::Result<N, String>
where
    N: TryFrom<i64> + From<u8> + PartialOrd + Display,
{
    match N::try_from(value) {
        Ok(number) if number >= N::from(1) && number <= most => Ok(number),
        _ => Err(format!("{name} {value}: must be 1 to {most}")),
    }
}

/// Every policy meets the same order.
fn result(
    args: &BalanceArgs,
    servers: usize,
    workload: &Workload,
    (name, policy): (String, Policy),
) -> Result {
    let mut generator = Pcg64Mcg::seed_from_u64(args.seed);
    let assigned: Vec<ServerId> =
        assign(workload, policy, servers, args.order.order(), &mut generator);
    let figures = Figures::of(workload, &assigned, servers);
    Result { policy: name, assigned, figures }
}
