//! `hihooi man` and `hihooi completions`: manual pages and shell completions, made from the definition of the command
//! line.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use hihooi_postgres::cluster::file_error;

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
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    ended(match directory {
        Some(directory) => write(&cli, directory),
        None => page(&cli).and_then(|page| print::results(&page)),
    })
}

/// Writes the page of a command, and of those below it.
fn write(command: &Command, directory: &Path) -> Result<()> {
    let file = directory.join(Man::new(command.clone()).get_filename());
    fs::write(&file, page(command)?).map_err(|error| file_error("write", &file, &error))?;
    command.get_subcommands().try_for_each(|command| write(command, directory))
}

fn page(command: &Command) -> Result<String> {
    let mut page = Vec::new();
    let man = Man::new(command.clone().after_help(None));
    man.render(&mut page).map_err(Failure::new)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    if let Some(help) = command.get_after_help() {
        page += &examples(&help.to_string());
    }
    Ok(page)
}

/// A section of what follows the options in `--help`. Indented lines are kept as they are (which clap_mangen doesn't
/// do), others are filled.
fn examples(help: &str) -> String {
    let mut section = ".SH EXAMPLES\n".to_owned();
    let mut is_kept = false;
    for line in help.trim_start_matches("Examples:\n").lines() {
        if line.starts_with(' ') != is_kept {
            is_kept = !is_kept;
            section += if is_kept { ".nf\n" } else { ".fi\n" };
        }
        section += &format!("{}\n", escaped(line));
    }
    section + ".fi\n"
}

/// A line of text for roff: a hyphen that stays one when it is copied, and no control line.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines() {
        let help = "Examples:\n  hihooi up\n  a \\\n    --b\n\nText that is\nfilled.";
        let section = ".SH EXAMPLES\n.nf\n  hihooi up\n  a \\e\n    \\-\\-b\n.fi\n\nText that is\nfilled.\n.fi\n";
        assert_eq!(examples(help), section);
        assert_eq!(escaped(".x"), "\\&.x");
    }
}
