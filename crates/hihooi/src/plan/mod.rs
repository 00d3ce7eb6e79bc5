//! `hihooi plan`: predicts what a cluster would do before it is built. Each tool is one file; the models are in
//! pure crates. Only results go to standard output; with `--json` they are one indented object.

mod balance;
mod isolation;
mod scale_out;

use std::fmt::Display;

use clap::{Arg, Subcommand};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::print;

/// The planning tools.
#[derive(Subcommand, Debug)]
pub enum PlanCommand {
    /// How many times the work of one site N sites can do (an analytical model of partial replication)
    #[command(after_help = scale_out::EXAMPLES, mut_args(negative_is_a_value))]
    ScaleOut(scale_out::ScaleOutArgs),
    /// Which transactions should run at which server, so that few conflict across servers
    #[command(after_help = balance::EXAMPLES, mut_args(negative_is_a_value))]
    Balance(balance::BalanceArgs),
    /// How many transactions each certification protocol would abort, and why (a simulation)
    #[command(after_help = isolation::EXAMPLES, mut_args(negative_is_a_value))]
    Isolation(isolation::IsolationArgs),
}

/// So that a negative number is reported as out of range, and not taken for an option.
fn negative_is_a_value(arg: Arg) -> Arg {
    let takes_value = arg.get_action().takes_values();
    arg.allow_negative_numbers(takes_value)
}

/// Runs one of them; exit status 2 for bad input.
pub fn run(command: &PlanCommand) -> Exit {
    match command {
        PlanCommand::ScaleOut(args) => finish(scale_out::plan(args)),
        PlanCommand::Balance(args) => finish(balance::plan(args)),
        PlanCommand::Isolation(args) => finish(isolation::plan(args)),
    }
}

/// Prints the result: exit status 0. If the input is bad or the result can't be written, prints one line on
/// standard error: exit status 2.
fn finish(answer: Result<String, impl Display>) -> Exit {
    match answer.map_err(Failure::new).and_then(|text| print::results(&text)) {
        Ok(()) => Exit::Done,
        Err(why) => {
            eprintln!("hihooi: {why}");
            Exit::Unknown
        }
    }
}
