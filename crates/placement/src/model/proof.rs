//! Verifies that a scale-out is the greatest, by two sums that don't depend on the solver being correct.
//!
//! Lower bound: the solver's parts, corrected to add up exactly, give each class's load per unit of load. The
//! scale-out at which the first class is full can be attained.
//!
//! Upper bound: for any set of classes, accesses to what only these classes hold must run there, and they must
//! apply the writes of everything that they hold. So their capacity divided by this work bounds every
//! scale-out. This corresponds to a cut of a flow, and for some set the bound is tight: all classes from which
//! no chain of moves ("run part of a stream at another holder instead") leads to a class with free capacity.
//! This set is the bottleneck, which is also reported to the user.

use super::program::{Parts, Program};

/// A set of classes whose capacity bounds the scale-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// The classes, ascending.
    pub classes: Vec<usize>,
    /// No scale-out is above this.
    pub bound: f64,
}

/// The work of each class per unit of load.
pub fn work(program: &Program, parts: &Parts) -> Vec<f64> {
    let mut work: Vec<f64> = program.classes.iter().map(|c| c.applies * c.size()).collect();
    for (stream, parts) in program.streams.iter().zip(parts) {
        for (&class, part) in stream.classes.iter().zip(parts) {
            work[class] += stream.share * stream.cost * part;
        }
    }
    work
}

/// The load at which the first class is full; NaN if some work is.
pub fn attained(program: &Program, work: &[f64]) -> f64 {
    if work.iter().any(|work| work.is_nan()) {
        return f64::NAN; // `min` would pass over it
    }
    let full = program.classes.iter().zip(work);
    full.map(|(class, work)| class.capacity * class.size() / work).fold(f64::INFINITY, f64::min)
}

/// What counts as a part that runs somewhere and as room left, tried in turn: the solver's zeros
/// are not exact.
const TOLERANCES: [f64; 6] = [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4];

/// The set of classes that bounds best.
pub fn bottleneck(program: &Program, parts: &Parts, work: &[f64], load: f64) -> Bottleneck {
    let mut best = cut(program, (0..program.classes.len()).collect());
    for tolerance in TOLERANCES {
        let classes = without_room(program, parts, work, load, tolerance);
        let found = cut(program, classes);
        if found.bound < best.bound {
            best = found;
        }
    }
    best
}

/// The classes from which no chain of moves leads to one with room left.
fn without_room(
    program: &Program,
    parts: &Parts,
    work: &[f64],
    load: f64,
    tolerance: f64,
) -> Vec<usize> {
    let mut room: Vec<bool> = (program.classes.iter().zip(work))
        .map(|(class, work)| work * load < class.capacity * class.size() * (1.0 - tolerance))
        .collect();
    loop {
        let mut changed = false;
        for (stream, parts) in program.streams.iter().zip(parts) {
            if stream.cost <= 0.0 || !stream.classes.iter().any(|&class| room[class]) {
                continue;
            }
            for (&class, &part) in stream.classes.iter().zip(parts) {
                if part > tolerance && !room[class] {
                    room[class] = true;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    (0..room.len()).filter(|&class| !room[class]).collect()
}

/// The bound that a set of classes gives: their capacity over what must be done there.
fn cut(program: &Program, classes: Vec<usize>) -> Bottleneck {
    let mut inside = vec![false; program.classes.len()];
    let (mut capacity, mut work) = (0.0, 0.0);
    for &class in &classes {
        inside[class] = true;
        capacity += program.classes[class].capacity * program.classes[class].size();
        work += program.classes[class].applies * program.classes[class].size();
    }
    let only_here = program.streams.iter().filter(|s| s.classes.iter().all(|&class| inside[class]));
    work += only_here.map(|stream| stream.share * stream.cost).sum::<f64>();
    let bound = if work > 0.0 { capacity / work } else { f64::INFINITY };
    Bottleneck { classes, bound }
}
