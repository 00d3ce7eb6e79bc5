//! `hihooi man` and `hihooi completions`: manual pages and shell completions, made from the definition of the command
//! line.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::print;

/// Prints a script that completes commands and options.
pub fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hihooi", &mut script);
    ended(print::results(&String::from_utf8_lossy(&script)))
}

/// Prints the manual page, or writes it and those of all commands to a directory.
pub fn pages(directory: Option<&Path>) -> Exit {
    ended(match directory {
        Some(directory) => clap_mangen::generate_to(described(), directory).map_err(|error| {
            hihooi_postgres::cluster::file_error("write to", directory, &error).into()
        }),
        None => page().and_then(|page| print::results(&page)),
    })
}

fn page() -> Result<String> {
    let mut page = Vec::new();
    Man::new(described()).render(&mut page).map_err(Failure::new)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// The command line; the page of each command refers to its own subcommands.
fn described() -> Command {
    Cli::command().disable_help_subcommand(true)
}

fn ended(written: Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Done,
        Err(failure) => {
            eprintln!("hihooi: {failure}");
            Exit::Failed
        }
    }
}
