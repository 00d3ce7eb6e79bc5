//! What the programs in Rust share: phases in their order, and expectations.

use std::fmt::{Debug, Display};

/// Workers that change one row, and how often each does.
pub const WORKERS: i32 = 8;
pub const ROUNDS: i32 = 10;
pub const POOL_SIZE: u32 = 4;
pub const CANCEL_S_MAX: u64 = 10;

/// A variable of the environment that the runner sets.
#[must_use]
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// What a phase found worth telling, or nothing.
pub type Told = &'static str;

/// Runs phases in their order.
#[macro_export]
macro_rules! run {
    ($of:expr) => {
        $crate::run!($of; login, migration, crud, prepared, batch, copy, retry, cancel, pool, together)
    };
    ($of:expr; $($name:ident),*) => {
        $(let told = $of.$name().await;
          println!("{}: {}", stringify!($name), if told.is_empty() { "as expected" } else { told });)*
    };
}

/// Expects a failure, whose SQLSTATE or words are these.
pub fn refused<T, E: Debug + Display>(
    result: Result<T, E>,
    expected: &str,
    state: impl Fn(&E) -> String,
) {
    match result {
        Ok(_) => panic!("not refused: {expected} was expected"),
        Err(error) => {
            assert!(state(&error).contains(expected), "{expected} was expected: {error:?}")
        }
    }
}
