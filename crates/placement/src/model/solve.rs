//! Solves a system and verifies the result before returning it: from the solver's result, a scale-out that can
//! be attained and one that can't be exceeded are computed independently. If they differ, the result is an
//! error, never a number. For a program that is too large for the solver there is still a result if the even
//! distribution can be shown to be optimal.

use super::program::{Program, VARIABLES_MAX};
use super::proof::{self, Bottleneck};
use super::{Invalid, System};

/// The relative distance allowed between the scale-out attained and the bound.
pub const GAP_MAX: f64 = 1e-8;

/// How far a system scales.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleOut {
    /// How many times the work of one unreplicated site of capacity 1.
    pub scale_out: f64,
    /// What each site does then: in one of the best distributions, that which uses the sites
    /// outside the bottleneck most evenly.
    pub sites: Vec<Usage>,
    /// The sites that limit it, ascending: what only they hold and the writes on what they hold
    /// take all their capacity. More capacity anywhere else would not help.
    pub bottleneck: Vec<usize>,
    /// Variables of the linear program after reduction.
    pub variables: usize,
}

/// What a site does, in units of work per unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Accesses that it runs: `L_i`.
    pub local: f64,
    /// Writes of other sites that it applies: `R_i`.
    pub remote: f64,
    /// What it could do: `C_i`.
    pub capacity: f64,
}

impl Usage {
    /// The part of its capacity that is used, 0 to 1.
    #[must_use]
    pub fn used(&self) -> f64 {
        (self.local + self.remote) / self.capacity
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The description is wrong.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The program is too large even after reduction.
    #[error(
        "the model has {variables} variables, at most {VARIABLES_MAX} are solved; describe \
             fewer objects, joining those with the same holders"
    )]
    TooLarge {
        /// How many.
        variables: usize,
    },
    /// The solver gave up.
    #[error("the linear program could not be solved: {0}")]
    Solver(String),
    /// The solver's answer could not be proved.
    #[error("the solution is not exact: {attained} is attained, but up to {bound} not excluded")]
    Unproved {
        /// A scale-out that can be attained.
        attained: f64,
        /// A scale-out that can't be exceeded.
        bound: f64,
    },
}

/// Finds the scale-out, exact to a relative `GAP_MAX`.
///
/// # Errors
/// A wrong description, a program that is too large, or numeric trouble.
pub fn solve(system: &System) -> Result<ScaleOut, Error> {
    system.check()?;
    solve_program(system, &Program::new(system))
}

fn solve_program(system: &System, program: &Program) -> Result<ScaleOut, Error> {
    let variables = program.variables();
    let too_large = Error::TooLarge { variables };
    let is_small = variables <= VARIABLES_MAX;
    let parts = match is_small {
        true => program.solve().map_err(|error| Error::Solver(error.to_string()))?,
        false => program.spread_evenly(),
    };
    let work = proof::work(program, &parts);
    let scale_out = proof::attained(program, &work);
    let bottleneck = proof::bottleneck(program, &parts, &work, scale_out);
    proved(scale_out, &bottleneck).map_err(|error| if is_small { error } else { too_large })?;
    let (parts, work) = levelled(program, scale_out, &bottleneck).unwrap_or((parts, work));
    Ok(ScaleOut {
        scale_out,
        sites: usage(system, program, &parts, &work, scale_out),
        bottleneck: sites(program, &bottleneck),
        variables,
    })
}

/// A best distribution that is even where there is room, for people to look at; the answer
/// doesn't depend on it.
fn levelled(
    program: &Program,
    load: f64,
    bottleneck: &Bottleneck,
) -> Option<(Vec<Vec<f64>>, Vec<f64>)> {
    if program.variables() > VARIABLES_MAX {
        return None;
    }
    let parts = program.level(load, &bottleneck.classes).ok()?;
    let work = proof::work(program, &parts);
    let is_best = proof::attained(program, &work) >= load * (1.0 - GAP_MAX);
    is_best.then_some((parts, work))
}

fn proved(attained: f64, bottleneck: &Bottleneck) -> Result<(), Error> {
    let bound = bottleneck.bound;
    let sound = attained.is_finite() && bound.is_finite() && attained > 0.0;
    if sound && (bound - attained).abs() <= GAP_MAX * bound {
        return Ok(());
    }
    Err(Error::Unproved { attained, bound })
}

fn sites(program: &Program, bottleneck: &Bottleneck) -> Vec<usize> {
    let classes = bottleneck.classes.iter().map(|&class| &program.classes[class]);
    let mut sites: Vec<usize> = classes.flat_map(|class| class.sites.iter().copied()).collect();
    sites.sort_unstable();
    sites
}

fn usage(
    system: &System,
    program: &Program,
    parts: &[Vec<f64>],
    work: &[f64],
    load: f64,
) -> Vec<Usage> {
    let mut runs = vec![0.0; program.classes.len()];
    for (stream, parts) in program.streams.iter().zip(parts) {
        for (&class, part) in stream.classes.iter().zip(parts) {
            runs[class] += stream.share * part;
        }
    }
    let mut usage = vec![Usage { local: 0.0, remote: 0.0, capacity: 0.0 }; system.sites.len()];
    for (index, class) in program.classes.iter().enumerate() {
        let local = load * runs[index] / class.size();
        let remote = (load * work[index] / class.size() - local).max(0.0);
        for &site in &class.sites {
            usage[site] = Usage { local, remote, capacity: class.capacity };
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::even::Even;
    use crate::model::{Writes, program};

    fn even(sites: usize, full_sites: usize, copies: usize) -> System {
        let (updates, write_overhead) = (0.5, 0.5);
        let objects = sites;
        let writes = Writes::Proportional;
        let even = Even { sites, full_sites, copies, objects, updates, write_overhead, writes };
        even.system().expect("a system")
    }

    /// Symmetry makes the program small; the whole one gives the same number.
    #[test]
    fn the_reduction_agrees_with_the_whole_program() {
        for (sites, full, copies) in [(1, 0, 1), (9, 0, 9), (12, 0, 4), (12, 1, 5), (15, 2, 6)] {
            let system = even(sites, full, copies);
            let whole = solve_program(&system, &program::plain(&system)).expect("a solution");
            let reduced = solve(&system).expect("a solution");
            assert_eq!(whole.variables, 1 + sites * (full + copies), "nothing was reduced");
            assert!(reduced.variables <= whole.variables);
            assert!((reduced.scale_out - whole.scale_out).abs() < 1e-9);
        }
        assert_eq!(solve(&even(100, 0, 100)).expect("a solution").variables, 2);
    }

    #[test]
    fn a_wrong_proposal_of_the_solver_is_an_error_and_not_a_number() {
        let program = program::plain(&even(4, 1, 2));
        let mut parts = program.solve().expect("a solution");
        let judge = |parts: &Vec<Vec<f64>>| {
            let work = proof::work(&program, parts);
            let attained = proof::attained(&program, &work);
            proved(attained, &proof::bottleneck(&program, parts, &work, attained))
        };
        assert_eq!(judge(&parts), Ok(()));
        parts[0].rotate_left(1);
        assert!(matches!(judge(&parts), Err(Error::Unproved { .. })));
        parts[0].fill(f64::NAN);
        assert!(matches!(judge(&parts), Err(Error::Unproved { .. })));
    }
}
