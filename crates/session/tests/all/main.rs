//! All tests of the machine from outside.

mod relaying;
mod sending;
