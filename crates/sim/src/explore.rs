//! Runs a property over many seeds, and says how to repeat the run that failed. Planted bugs are searched for
//! in the same way.

use std::ops::Range;

/// One run of a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// All that is random in it.
    pub seed: u64,
    /// Whether to print every event.
    pub trace: bool,
}

/// Runs the property for every seed and returns the results, or panics at the first that fails,
/// with the command that replays it. `HIHOOI_SIM_SEED=n` runs that seed alone and prints every
/// event (with `-- --nocapture`); `HIHOOI_SIM_TRACE=0` leaves out the events.
///
/// `name` is the test's with its module, as in `one_copy_si::rsi`.
pub fn explore<T>(
    name: &str,
    seeds: Range<u64>,
    property: impl Fn(Run) -> Result<T, String>,
) -> Vec<T> {
    let seeds = wanted_seed().map_or(seeds, |seed| seed..seed + 1);
    seeds.map(|seed| property(replayable(seed)).unwrap_or_else(|e| fail(name, seed, &e))).collect()
}

/// Looks for a planted bug: the first seed that finds it and what was found.
pub fn hunt<T>(
    seeds: Range<u64>,
    property: impl Fn(Run) -> Result<T, String>,
) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| Some((seed, property(Run { seed, trace: false }).err()?)))
}

/// A number of the environment, for runs that are longer than usual.
#[must_use]
pub fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn wanted_seed() -> Option<u64> {
    number_from_environment("HIHOOI_SIM_SEED")
}

fn replayable(seed: u64) -> Run {
    let trace = wanted_seed().is_some() && number_from_environment("HIHOOI_SIM_TRACE") != Some(0);
    Run { seed, trace }
}

fn fail(name: &str, seed: u64, error: &str) -> ! {
    panic!(
        "{name} fails with seed {seed}:\n{error}\nreplay: HIHOOI_SIM_SEED={seed} cargo test \
         --release -p hihooi-sim --test all {name} -- --nocapture"
    )
}
