//! `hihooi plan scale-out`: how many times the work of one site a replicated system can do (SIPRe paper,
//! section 3).

mod figure;
mod model_file;
mod report;

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use hihooi_placement::model::even::Even;
use hihooi_placement::model::{System, Writes, solve};

use crate::failure::{Failure, Result};

pub const EXAMPLES: &str = r#"Examples:
  hihooi plan scale-out --sites 100 --copies full --updates 0.2 --write-overhead 0.15
  hihooi plan scale-out --sites 40 --copies 5 --full-sites 1 --updates 0.2 --write-overhead 0.15
  hihooi plan scale-out --sites 100 --copies 5 --updates 0.2 --write-overhead 0.15 --plot scale.svg
  hihooi plan scale-out --model shop.toml --json

A model file describes a system whose sites or objects differ:

  write_overhead = 0.15             # the cost of applying a write, as a fraction of running it

  [[site]]
  name = "s1"
  capacity = 2.0                    # 1 if left out; the scale-out counts sites of capacity 1

  [[site]]
  name = "s2"

  [[object]]                        # a table or a fragment of one
  name = "orders"
  share = 70                        # of all accesses, relative to the others'; 1 if left out
  updates = 0.5                     # the fraction of its accesses that write
  sites = ["s1", "s2"]              # the sites that store it, or "all"

A write runs at one site; every other site that stores the object applies it. The result is the
greatest load that the sites can carry, over all ways to distribute the accesses among these sites.
The write overhead can be measured: the time to apply a transaction's rows, divided by the time
to run it."#;

/// Arguments of `plan scale-out`.
#[derive(Args, Debug)]
pub struct ScaleOutArgs {
    /// Number of sites, all equal
    #[arg(long, value_name = "N", required_unless_present = "model")]
    #[arg(requires_all = ["copies", "updates", "write_overhead"], value_parser = count)]
    sites: Option<usize>,
    /// Copies of each object: `full`, `half` (of the sites, rounded up) or a number
    #[arg(long, value_name = "full|half|K", requires = "sites")]
    copies: Option<Copies>,
    /// The fraction of the accesses that write, 0 to 1
    #[arg(long, value_name = "U", requires = "sites", value_parser = fraction)]
    updates: Option<f64>,
    /// The cost of applying a write, as a fraction of running it, 0 to 1
    #[arg(long, value_name = "WO", requires = "sites", value_parser = fraction)]
    write_overhead: Option<f64>,
    /// Number of objects, all equal [default: one for each site that is not full]
    #[arg(long, value_name = "M", requires = "sites", value_parser = count)]
    objects: Option<usize>,
    /// Sites that store everything, in addition to the copies at the others
    #[arg(long, value_name = "N", requires = "sites", default_value_t = 0, value_parser = count)]
    full_sites: usize,
    /// A file that describes sites and objects (see below)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sites", "plot"])]
    model: Option<PathBuf>,
    /// Also draw the scale-out of up to N sites for several numbers of copies
    #[arg(long, value_name = "FILE.svg", requires = "sites")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn count(text: &str) -> std::result::Result<usize, String> {
    text.parse().map_err(|_| "it is not a whole number from 0 on".to_owned())
}

fn fraction(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("it is not a number from 0 to 1".to_owned()),
    }
}

/// How many copies of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    Full,
    Half,
    Number(usize),
}

impl FromStr for Copies {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Copies, String> {
        match text {
            "full" => Ok(Copies::Full),
            "half" => Ok(Copies::Half),
            _ => match text.parse() {
                Ok(number) if number > 0 => Ok(Copies::Number(number)),
                _ => Err("it is neither full nor half nor a number from 1 on".to_owned()),
            },
        }
    }
}

impl Copies {
    fn of(self, sites: usize) -> usize {
        match self {
            Copies::Full => sites,
            Copies::Half => sites.div_ceil(2),
            Copies::Number(number) => number,
        }
    }
}

/// What is to be printed.
///
/// # Errors
/// Bad input.
pub fn plan(args: &ScaleOutArgs) -> Result<String> {
    let system = system(args)?;
    let solved = solve(&system).map_err(Failure::new)?;
    if let (Some(path), Some(even)) = (&args.plot, even(args)) {
        figure::draw(path, &even)?;
    }
    Ok(if args.json { report::json(&system, &solved) } else { report::text(&system, &solved) })
}

fn system(args: &ScaleOutArgs) -> Result<System> {
    match (&args.model, even(args)) {
        (Some(path), _) => model_file::read(path),
        (None, Some(even)) => even.system().map_err(Failure::new),
        (None, None) => Err(Failure::new("give --sites or --model")),
    }
}

fn even(args: &ScaleOutArgs) -> Option<Even> {
    let sites = args.sites?;
    Some(Even {
        sites,
        full_sites: args.full_sites,
        copies: args.copies?.of(sites.saturating_sub(args.full_sites)),
        objects: args.objects.unwrap_or(sites.saturating_sub(args.full_sites).max(1)),
        updates: args.updates?,
        write_overhead: args.write_overhead?,
        writes: Writes::Proportional,
    })
}
