//! Why a command failed: one line that says what to do, printed once, by `main`.

use std::fmt;

/// One line for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure of this text; line breaks become spaces.
    pub fn new(text: impl fmt::Display) -> Failure {
        let text = text.to_string();
        Failure(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<crate::config::BadConfig> for Failure {
    fn from(error: crate::config::BadConfig) -> Failure {
        Failure::new(error)
    }
}

impl From<hihooi_postgres::cluster::Error> for Failure {
    fn from(error: hihooi_postgres::cluster::Error) -> Failure {
        Failure::new(error)
    }
}

impl From<hihooi_log::Error> for Failure {
    fn from(error: hihooi_log::Error) -> Failure {
        Failure::new(error)
    }
}
