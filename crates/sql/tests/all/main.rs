//! All tests of analysis from outside.

mod common;

mod golden;
mod properties;
