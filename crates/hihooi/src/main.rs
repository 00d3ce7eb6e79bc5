//! The command `hihooi`.

mod admin_client;
mod admin_socket;
mod bench;
mod check;
mod check_history;
mod cli;
mod cluster;
mod config;
mod connect;
mod controller;
mod data_dir;
mod exit;
mod failure;
mod following;
mod holder;
mod listening;
mod log_view;
mod logging;
mod manager;
mod manual;
mod notify;
mod plan;
mod primary;
mod print;
mod process;
mod rebuild;
mod rebuilding;
mod relay;
mod replication;
mod serve;
mod settings;
mod signals;
mod status;
mod stop;
mod trimming;
mod up;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let exit = match Cli::parse().command {
        Command::Up(args) => up::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Stop(args) => stop::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Rebuild(args) => rebuild::run(&args),
        Command::Check(args) => check::run(&args),
        Command::CheckHistory(args) => check_history::run(&args),
        Command::Plan { command } => plan::run(&command),
        Command::Bench { command } => bench::run(&command),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { dir } => manual::pages(dir.as_deref()),
    };
    exit.into()
}
