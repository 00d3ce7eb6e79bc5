//! `hihooi bench`: tests a running cluster under load.

mod history;

use clap::Subcommand;

use crate::exit::Exit;

/// The benchmarks.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Record transactions of many sessions, under faults, and check the history against a consistency level
    #[command(after_help = history::EXAMPLES)]
    History(history::HistoryArgs),
}

/// Runs one of them.
#[must_use]
pub fn run(command: &BenchCommand) -> Exit {
    match command {
        BenchCommand::History(args) => history::run(args),
    }
}
