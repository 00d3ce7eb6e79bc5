//! What the properties' modules share: the protocols, how they are tried, how planted mistakes are
//! hunted for.

pub mod naive;

use std::time::Instant;

use hihooi_certify::certification::Limits;
use hihooi_certify::certification::cp_roo::CpRoo;
use hihooi_certify::certification::planted::{Planted as Bug, PlantedRssi};
use hihooi_certify::certification::rsi::Rsi;
use hihooi_certify::certification::rssi::Rssi;
use hihooi_certify::certification::vdbsm::Vdbsm;
use hihooi_check::Level;
use hihooi_sim::database::site::{Planted, SiteCertifier};
use hihooi_sim::database::tally::Tally;
use hihooi_sim::database::trial::{Circumstances, Protocol, trial};
use hihooi_sim::explore::number_from_environment;
use hihooi_sim::{Run, explore};

/// Trials of a protocol in the normal tests; a trial has about 370 transactions.
const TRIALS: u64 = 700;
/// What each of the four certifiers decides at least, a million together.
const TRANSACTIONS_EACH: u64 = 250_000;
/// Fewer than the mean, so that what is asked for is reached.
const TRANSACTIONS_PER_TRIAL: u64 = 300;

pub const RSI: Protocol = Protocol {
    certifier: |limits| Box::new(Rsi::new(limits)),
    certifies_read_only: false,
    tells_overwritten: false,
    levels: &[Level::OneCopySi, Level::SessionSi],
    circumstances: Circumstances::Any,
};

pub const CP_ROO: Protocol = Protocol {
    certifier: |limits| Box::new(CpRoo::new(limits)),
    levels: &[Level::Serializable, Level::SessionSi],
    ..RSI
};

pub const RSSI: Protocol = Protocol {
    certifier: |limits| Box::new(Rssi::new(limits)),
    certifies_read_only: true,
    ..CP_ROO
};

pub const VDBSM: Protocol = Protocol {
    certifier: |limits| Box::new(Vdbsm::new(limits)),
    tells_overwritten: true,
    ..CP_ROO
};

/// What most bugs of [`planted`] are planted in.
pub const RSSI_BY_THE_LETTER: Protocol = rssi_with(|limits| Box::new(Rssi::by_the_letter(limits)));

/// With a variant of the certifier.
pub const fn rssi_with(certifier: fn(Limits) -> Box<dyn SiteCertifier>) -> Protocol {
    Protocol { certifier, ..RSSI }
}

/// With a bug of the certifier itself.
pub fn planted(limits: Limits, bug: Bug) -> Box<dyn SiteCertifier> {
    Box::new(PlantedRssi::new(limits, bug))
}

/// Tries a protocol over many seeds and says what happened; `HIHOOI_SIM_TRANSACTIONS=n` makes it
/// at least so many transactions.
pub fn holds(name: &str, protocol: &Protocol) -> Tally {
    let asked = number_from_environment("HIHOOI_SIM_TRANSACTIONS");
    let trials = asked.map_or(TRIALS, |n| n.div_ceil(TRANSACTIONS_PER_TRIAL));
    let start = Instant::now();
    let tallies = explore(name, 0..trials, |run| trial(run, protocol, Planted::Nothing));
    let sum = Tally::sum(tallies);
    let least = asked.unwrap_or(TRANSACTIONS_EACH);
    let replay = number_from_environment("HIHOOI_SIM_SEED").is_some();
    assert!(replay || sum.transactions >= least, "fewer than {least}: {sum:?}");
    let per_second = sum.transactions as f64 / start.elapsed().as_secs_f64();
    println!("{name}: {trials} trials, {sum:?}, {per_second:.0} transactions/s");
    sum
}

/// The mistake is found within so many seeds, and up to there nothing is found without it.
pub fn is_found(seeds: u64, sound: &Protocol, wrong: &Protocol, planted: Planted) -> String {
    let run = |seed| Run { seed, trace: false };
    for seed in 0..seeds {
        trial(run(seed), sound, Planted::Nothing).unwrap_or_else(|e| panic!("sound, {seed}: {e}"));
        if let Err(found) = trial(run(seed), wrong, planted) {
            let first: Vec<&str> = found.lines().filter(|line| !line.is_empty()).take(2).collect();
            let what = std::thread::current().name().unwrap_or_default().to_owned();
            println!("{what} ({planted:?}): seed {seed}: {}", first.join(" / "));
            return found;
        }
    }
    panic!("{planted:?} is not found within {seeds} seeds");
}
