//! The exit statuses of all commands: what each says is in the `--help` of its command, and in docs/operating.md.

use std::process::ExitCode;

/// How a command ended. (clap's own errors, about arguments, have the status of [`Exit::Unknown`].)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// It did what it was asked to; or the answer to what it was asked is yes.
    Done = 0,
    /// It failed; or the answer is no.
    Failed = 1,
    /// There is no answer.
    Unknown = 2,
    /// hihooi doesn't run there, as `pg_ctl status` and the Linux Standard Base say it.
    NotRunning = 3,
}

impl Exit {
    /// An answer.
    #[must_use]
    pub fn answer(is_yes: bool) -> Exit {
        if is_yes { Exit::Done } else { Exit::Failed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
