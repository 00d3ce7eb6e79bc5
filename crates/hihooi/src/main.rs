//! The command `hihooi`.

mod bench;
mod check;
mod check_history;
mod cli;
mod cluster;
mod config;
mod connect;
mod controller;
mod data_dir;
mod failure;
mod following;
mod log_view;
mod manager;
mod plan;
mod primary;
mod print;
mod process;
mod rebuild;
mod relay;
mod replication;
mod serve;
mod signals;
mod trimming;
mod up;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Up(args) => up::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Rebuild(args) => rebuild::run(&args),
        Command::Check(args) => check::run(&args),
        Command::CheckHistory(args) => check_history::run(&args),
        Command::Plan { command } => plan::run(&command),
        Command::Bench { command } => bench::run(&command),
    }
}
