//! All tests of the checker.

mod golden;
mod long;
mod parse;
mod twin;
