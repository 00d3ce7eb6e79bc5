//! Prints results on standard output.

use std::io::{ErrorKind, Write};

use hihooi_postgres::cluster::plain;

use crate::failure::{Failure, Result};

/// Prints the results of a command. A reader that has seen enough may close the pipe; that they
/// can't be written for any other reason, say to a full disk, is a failure.
pub fn results(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("the results can't be written: {}", plain(&error))))
        }
        _ => Ok(()),
    }
}
