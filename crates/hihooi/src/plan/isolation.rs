//! `hihooi plan isolation`: how many transactions certification protocols would abort, and the throughput that
//! remains, like the RSSI paper's Figure 1. The model is [`hihooi_sim::isolation`], its costs and what they
//! assume [`hihooi_sim::isolation::costs`].

mod figure;
mod report;
mod runs;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hihooi_sim::isolation::Setup;
use hihooi_sim::isolation::costs::Costs;
use hihooi_sim::isolation::protocol::Protocol;
use hihooi_sim::workload::ssibench::Parameters;
use hihooi_sim::workload::tpccpp::WAREHOUSES_MAX;

use crate::failure::{Failure, Result};
use crate::plan::isolation::runs::{Runs, Workload};

pub const EXAMPLES: &str = "Examples:
  hihooi plan isolation                                 ssibench, from only updates to only queries
  hihooi plan isolation --mpl 640 --read-only 0 --no-retry
  hihooi plan isolation --read-only 0,20,40,60,80,100 --certifier cp-roo,rssi --plot shares.svg
  hihooi plan isolation --workload tpcc++ --warehouses 100 --mpl 160 --json
  hihooi plan isolation --costs read=0.01,update=0.05,insert=0.04,certify=0.02

Certifiers: rsi aborts because of write-write conflicts only (1-copy-SI, not serializable). cp-roo
also aborts a writer whose reads were overwritten; it doesn't certify queries. rssi also aborts
because of descending structures; it certifies queries, too. It chooses the lsv so that fewer
transactions abort; rssi-letter is the protocol as the paper defines it. Aborts are in percent of
the attempts: WW write conflict, RW read overwritten, DS descending structure (how often as peak,
follow and trailing transaction). Response times of transactions that are repeated are measured
from the first attempt. The share of queries at which cp-roo overtakes rssi depends much on
--no-retry and --own-managers.

Costs: milliseconds of a site's engine to read, update or insert a row (read, update, insert), of
a site's manager for each certified transaction (certify), between two sites (hop), and the cost of
applying rows at another site as a fraction of writing them (write-overhead). The defaults are
derived from the RSSI paper's Table 1, that is, from Pentium IV machines: compare the certifiers,
and ignore absolute throughput.";

/// Arguments of `plan isolation`.
#[derive(Args, Debug)]
pub struct IsolationArgs {
    /// The clients' workload
    #[arg(long, value_enum, default_value_t = WorkloadName::Ssibench)]
    workload: WorkloadName,
    /// Number of sites
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    sites: u16,
    /// Clients of all sites together, without think time (multiprogramming level)
    #[arg(long, value_name = "M", default_value_t = 80)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    mpl: u16,
    /// Percentages of transactions that only read [default: 0,25,50,75,100; tpcc++: its own 8]
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', value_parser = percentage)]
    read_only: Vec<f64>,
    /// Protocols to compare
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = protocol)]
    #[arg(default_value = "rsi,cp-roo,rssi")]
    certifier: Vec<Protocol>,
    /// Simulated seconds to measure, after a ramp-up of half as many
    #[arg(long, value_name = "S", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3_600))]
    seconds: u16,
    /// Seed of the random numbers; the same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// After an abort, clients continue with another transaction instead of repeating the same
    #[arg(long)]
    no_retry: bool,
    /// Managers have processors of their own, instead of sharing those of their sites
    #[arg(long)]
    own_managers: bool,
    /// ssibench: rows of each of its three tables [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=1 << 32))]
    rows: Option<i64>,
    /// ssibench: rows that a transaction reads [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    reads: Option<u32>,
    /// ssibench: rows that a writing transaction writes [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    writes: Option<u32>,
    /// ssibench: percentage of the writing transactions that insert [default: 50]
    #[arg(long, value_name = "SHARE", value_parser = percentage)]
    inserts: Option<f64>,
    /// ssibench: rows are inserted between those that others read
    #[arg(long)]
    phantoms: bool,
    /// tpcc++: number of warehouses [default: 80]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(WAREHOUSES_MAX)))]
    warehouses: Option<u32>,
    /// Costs of operations (see below)
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = cost)]
    costs: Vec<(Cost, f64)>,
    /// Also draw throughput and aborts over the share of queries
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A workload's name.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum WorkloadName {
    Ssibench,
    #[value(name = "tpcc++")]
    Tpccpp,
}

/// A cost by its name.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Cost {
    Read,
    Update,
    Insert,
    WriteOverhead,
    Certify,
    Hop,
}

/// Most of any cost: a minute.
const COST_MAX: f64 = 60_000.0;
/// Least cost of a row, so that simulated time passes.
const ROW_COST_MIN: f64 = 1e-5;

fn percentage(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err("it is not a percentage from 0 to 100".to_owned()),
    }
}

fn protocol(text: &str) -> std::result::Result<Protocol, String> {
    let names = Protocol::ALL.map(Protocol::name).join(", ");
    Protocol::from_name(text).ok_or_else(|| format!("there are {names}"))
}

fn cost(text: &str) -> std::result::Result<(Cost, f64), String> {
    let (key, value) = text.split_once('=').ok_or("it is not KEY=VALUE")?;
    let key = Cost::from_str(key, false).map_err(|_| format!("there is no cost {key}"))?;
    let least = match key {
        Cost::Read | Cost::Update | Cost::Insert => ROW_COST_MIN,
        Cost::WriteOverhead | Cost::Certify | Cost::Hop => 0.0,
    };
    match value.parse::<f64>() {
        Ok(value) if (least..=COST_MAX).contains(&value) => Ok((key, value)),
        _ => Err(format!("{value} is not a number from {least} to {COST_MAX}")),
    }
}

/// What is to be printed.
///
/// # Errors
/// Bad input.
pub fn plan(args: &IsolationArgs) -> Result<String> {
    let runs = Runs {
        workload: workload(args)?,
        setup: setup(args),
        shares: shares(args),
        protocols: args.certifier.clone(),
    };
    let results = runs.run();
    if let Some(path) = &args.plot {
        figure::draw(path, &runs, &results)?;
    }
    Ok(if args.json { report::json(&runs, &results) } else { report::text(&runs, &results) })
}

fn workload(args: &IsolationArgs) -> Result<Workload> {
    match args.workload {
        WorkloadName::Ssibench => ssibench(args),
        WorkloadName::Tpccpp => tpccpp(args),
    }
}

fn ssibench(args: &IsolationArgs) -> Result<Workload> {
    if args.warehouses.is_some() {
        return Err(Failure::new("--warehouses needs --workload tpcc++"));
    }
    let usual = Parameters::default();
    let parameters = Parameters {
        rows: args.rows.map_or(usual.rows, i64::unsigned_abs),
        reads: args.reads.unwrap_or(usual.reads),
        writes: args.writes.unwrap_or(usual.writes),
        inserts: args.inserts.map_or(usual.inserts, |share| share / 100.0),
        phantoms: args.phantoms,
    };
    let most = parameters.reads.max(parameters.writes);
    if u64::from(most) > parameters.rows {
        let rows = parameters.rows;
        return Err(Failure::new(format!(
            "--rows {rows}: a transaction reads or writes {most} rows of a table; give more --rows, \
             or fewer --reads and --writes"
        )));
    }
    Ok(Workload::Ssibench(parameters))
}

fn tpccpp(args: &IsolationArgs) -> Result<Workload> {
    let of_ssibench = [
        ("--rows", args.rows.is_some()),
        ("--reads", args.reads.is_some()),
        ("--writes", args.writes.is_some()),
        ("--inserts", args.inserts.is_some()),
        ("--phantoms", args.phantoms),
    ];
    match of_ssibench.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Failure::new(format!("{name} needs --workload ssibench"))),
        None => Ok(Workload::Tpccpp(args.warehouses.unwrap_or(80))),
    }
}

/// Parts of the transactions that only read, ascending; `None` for the workload's own mix.
fn shares(args: &IsolationArgs) -> Vec<Option<f64>> {
    let mut percentages = match args.workload {
        _ if !args.read_only.is_empty() => args.read_only.clone(),
        WorkloadName::Ssibench => vec![0.0, 25.0, 50.0, 75.0, 100.0],
        WorkloadName::Tpccpp => return vec![None],
    };
    percentages.sort_by(f64::total_cmp);
    percentages.dedup();
    percentages.into_iter().map(|share| Some(share / 100.0)).collect()
}

fn setup(args: &IsolationArgs) -> Setup {
    Setup {
        sites: usize::from(args.sites),
        clients: usize::from(args.mpl),
        read_only: None,
        retry: !args.no_retry,
        own_managers: args.own_managers,
        seconds: f64::from(args.seconds),
        seed: args.seed,
        costs: args.costs.iter().fold(Costs::default(), with_cost),
    }
}

fn with_cost(mut costs: Costs, (key, value): &(Cost, f64)) -> Costs {
    *match key {
        Cost::Read => &mut costs.read_row_ms,
        Cost::Update => &mut costs.update_row_ms,
        Cost::Insert => &mut costs.insert_row_ms,
        Cost::WriteOverhead => &mut costs.write_overhead,
        Cost::Certify => &mut costs.certify_ms,
        Cost::Hop => &mut costs.hop_ms,
    } = *value;
    costs
}
