//! The linear program of a system: equations (5) to (9) of the SIPRe paper, reduced by symmetry and put in a
//! numerically stable form.
//!
//! Let `S` be the scale-out and let stream `k` (an object's accesses) be the share `A_k` of it.
//! Site `i` runs `A_k y_ik` of the stream, `sum_i y_ik = S` (6). A holder applies every write it
//! doesn't run, so its remote work (3) is `wo` times all writes on what it holds, less `wo` times
//! those it runs. Equation (5) is then a short row:
//! `sum_k c_k A_k y_ik + wo b_i S <= C_i`, where `c_k = 1 - wo U_k` is what running an access costs
//! beyond applying it, and `b_i = sum of A_k U_k` over what `i` holds. Maximise `S` (8, 9).
//!
//! With [`Writes::Anywhere`] an object is two streams, its reads (`c = 1`) and its writes
//! (`c = 1 - wo`), and (7) is (6) for the latter.
//!
//! Symmetry: streams with the same holders and the same cost are one stream; sites with the same streams and
//! capacity are one class. Averaging an optimal solution over equal streams and sites gives an optimal
//! solution, so the optimum is the same.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOptions, Variable};

use super::{System, Writes};

/// Variables of a program at most, after reduction; more would take minutes.
pub const VARIABLES_MAX: usize = 60_000;

/// Accesses that cost the same and may run at the same classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Its share of all accesses.
    pub share: f64,
    /// What running one costs its site beyond applying it.
    pub cost: f64,
    /// The classes that can run it, ascending.
    pub classes: Vec<usize>,
}

/// Sites that hold the same and have the same capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its sites, by index.
    pub sites: Vec<usize>,
    /// The capacity of each.
    pub capacity: f64,
    /// What each applies per unit of load when it runs no write itself: `wo b_i`.
    pub applies: f64,
}

impl Class {
    /// How many sites.
    pub fn size(&self) -> f64 {
        self.sites.len() as f64
    }
}

/// The program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Kinds of sites.
    pub classes: Vec<Class>,
    /// Kinds of accesses.
    pub streams: Vec<Stream>,
}

/// What part of each stream runs at each of its classes; in the order of [`Stream::classes`],
/// adding up to 1 for each stream.
pub type Parts = Vec<Vec<f64>>;

impl Program {
    /// Of a system that was checked.
    pub fn new(system: &System) -> Program {
        reduce(plain(system))
    }

    /// How many variables it has, `S` included.
    pub fn variables(&self) -> usize {
        1 + self.streams.iter().map(|stream| stream.classes.len()).sum::<usize>()
    }

    /// Solves it; the parts are those of a best solution up to the library's tolerance.
    pub fn solve(&self) -> Result<Parts, microlp::Error> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let scale_out = problem.add_var(1.0, (0.0, f64::INFINITY));
        let runs = self.runs(&mut problem, scale_out);
        for (row, class) in self.capacity_rows(scale_out, &runs).into_iter().zip(&self.classes) {
            problem.add_constraint(row, ComparisonOp::Le, class.capacity * class.size());
        }
        run(&problem, &runs)
    }

    /// Every stream runs at all sites that hold it alike: a best solution where symmetry says so.
    pub fn spread_evenly(&self) -> Parts {
        let sizes = |stream: &Stream| -> Vec<f64> {
            stream.classes.iter().map(|&class| self.classes[class].size()).collect()
        };
        self.streams.iter().map(|stream| parts(sizes(stream).into_iter())).collect()
    }

    /// Of all distributions at this load, one that loads the classes outside the bottleneck as
    /// evenly as possible: the greatest use of capacity among them is least.
    pub fn level(&self, load: f64, bottleneck: &[usize]) -> Result<Parts, microlp::Error> {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let most_used = problem.add_var(1.0, (0.0, 1.0));
        let scale_out = problem.add_var(0.0, (load, load));
        let runs = self.runs(&mut problem, scale_out);
        let rows = self.capacity_rows(scale_out, &runs).into_iter().zip(&self.classes);
        for (index, (mut row, class)) in rows.enumerate() {
            let capacity = class.capacity * class.size();
            if bottleneck.binary_search(&index).is_ok() {
                problem.add_constraint(row, ComparisonOp::Le, capacity);
            } else {
                row.push((most_used, -capacity));
                problem.add_constraint(row, ComparisonOp::Le, 0.0);
            }
        }
        run(&problem, &runs)
    }

    /// Variables for what of each stream runs at which class, adding up to the scale-out (6).
    fn runs(&self, problem: &mut Problem, scale_out: Variable) -> Vec<Vec<Variable>> {
        let runs: Vec<Vec<Variable>> = self
            .streams
            .iter()
            .map(|stream| stream.classes.iter().map(|_| variable(problem)).collect())
            .collect();
        for runs in &runs {
            let mut row: Vec<(Variable, f64)> = runs.iter().map(|&run| (run, 1.0)).collect();
            row.push((scale_out, -1.0));
            problem.add_constraint(row, ComparisonOp::Eq, 0.0);
        }
        runs
    }

    fn capacity_rows(
        &self,
        scale_out: Variable,
        runs: &[Vec<Variable>],
    ) -> Vec<Vec<(Variable, f64)>> {
        let mut rows: Vec<Vec<(Variable, f64)>> = self
            .classes
            .iter()
            .map(|class| vec![(scale_out, class.applies * class.size())])
            .collect();
        for (stream, runs) in self.streams.iter().zip(runs) {
            for (&class, &run) in stream.classes.iter().zip(runs) {
                rows[class].push((run, stream.cost * stream.share));
            }
        }
        rows
    }
}

/// The default of `1e-7` is coarser than what is to be proved.
const FEASIBILITY: f64 = 1e-9;

fn options() -> SolveOptions {
    let mut options = SolveOptions::default();
    options.tolerances.feasibility = FEASIBILITY;
    options
}

fn run(problem: &Problem, runs: &[Vec<Variable>]) -> Result<Parts, microlp::Error> {
    let solved = problem.solve_with(options())?.into_solution().map_err(|_| interrupted())?;
    Ok(runs.iter().map(|runs| parts(runs.iter().map(|&run| solved.var_value(run)))).collect())
}

fn variable(problem: &mut Problem) -> Variable {
    problem.add_var(0.0, (0.0, f64::INFINITY))
}

fn interrupted() -> microlp::Error {
    microlp::Error::InternalError("interrupted without a limit".to_owned())
}

fn parts(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.map(|value| value.max(0.0)).collect();
    let total: f64 = values.iter().sum();
    values.iter().map(|value| value / total).collect()
}

/// The program of a system without any reduction: a class for each site, a stream or two for each
/// object.
pub fn plain(system: &System) -> Program {
    let wo = system.write_overhead;
    let total: f64 = system.objects.iter().map(|object| object.share).sum();
    let mut classes: Vec<Class> = system
        .sites
        .iter()
        .enumerate()
        .map(|(i, site)| Class { sites: vec![i], capacity: site.capacity, applies: 0.0 })
        .collect();
    let mut streams = Vec::new();
    for object in system.objects.iter().filter(|object| object.share > 0.0) {
        let share = object.share / total;
        let mut holders = object.sites.clone();
        holders.sort_unstable();
        for &site in &holders {
            classes[site].applies += wo * share * object.updates;
        }
        let mut add = |share: f64, cost: f64| {
            if share > 0.0 {
                streams.push(Stream { share, cost, classes: holders.clone() });
            }
        };
        match system.writes {
            Writes::Proportional => add(share, 1.0 - wo * object.updates),
            Writes::Anywhere => {
                add(share * (1.0 - object.updates), 1.0);
                add(share * object.updates, 1.0 - wo);
            }
        }
    }
    Program { classes, streams }
}

fn reduce(program: Program) -> Program {
    let merged = Program { streams: merge_streams(program.streams), ..program };
    merge_classes(merged)
}

/// Same holders, same cost: one stream.
fn merge_streams(streams: Vec<Stream>) -> Vec<Stream> {
    let mut merged: BTreeMap<(Vec<usize>, u64), Stream> = BTreeMap::new();
    for stream in streams {
        let key = (stream.classes.clone(), stream.cost.to_bits());
        match merged.get_mut(&key) {
            Some(same) => same.share += stream.share,
            None => drop(merged.insert(key, stream)),
        }
    }
    merged.into_values().collect()
}

/// Same streams, same capacity: one class.
fn merge_classes(program: Program) -> Program {
    let mut holds: Vec<Vec<usize>> = vec![Vec::new(); program.classes.len()];
    for (k, stream) in program.streams.iter().enumerate() {
        for &class in &stream.classes {
            holds[class].push(k);
        }
    }
    let mut classes: Vec<Class> = Vec::new();
    let mut known: BTreeMap<(Vec<usize>, u64), usize> = BTreeMap::new();
    let mut became = Vec::with_capacity(holds.len());
    for (class, held) in program.classes.into_iter().zip(holds) {
        let index = *known.entry((held, class.capacity.to_bits())).or_insert(classes.len());
        match classes.get_mut(index) {
            Some(same) => same.sites.extend(class.sites),
            None => classes.push(class),
        }
        became.push(index);
    }
    let mut streams = program.streams;
    for stream in &mut streams {
        stream.classes = stream.classes.iter().map(|&class| became[class]).collect();
        stream.classes.sort_unstable();
        stream.classes.dedup();
    }
    Program { classes, streams }
}
