//! `hihooi plan`: what a cluster would do, before anyone builds it. Each tool is one file; the
//! models are pure crates. Results alone go to standard output.

mod balance;
mod isolation;
mod scale_out;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

/// The planning tools.
#[derive(Subcommand, Debug)]
pub enum PlanCommand {
    /// How much more can N sites do than one? (an analytical model of partial replication)
    #[command(after_help = scale_out::EXAMPLES)]
    ScaleOut(scale_out::ScaleOutArgs),
    /// Which transactions should run at which server, so that few conflict across servers?
    #[command(after_help = balance::EXAMPLES)]
    Balance(balance::BalanceArgs),
    /// What would each certification protocol abort, and why? (a simulation)
    #[command(after_help = isolation::EXAMPLES)]
    Isolation(isolation::IsolationArgs),
}

/// Runs one of them; exit status 2 for bad input.
pub fn run(command: &PlanCommand) -> ExitCode {
    match command {
        PlanCommand::ScaleOut(args) => finish(scale_out::plan(args)),
        PlanCommand::Balance(args) => finish(balance::plan(args)),
        PlanCommand::Isolation(args) => finish(isolation::plan(args)),
    }
}

/// Prints the answer: exit status 0; or one line on standard error about bad input: 2.
fn finish(answer: Result<String, impl Display>) -> ExitCode {
    match answer {
        Ok(text) => {
            // A reader that has seen enough may close the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("hihooi: {why}");
            ExitCode::from(2)
        }
    }
}
