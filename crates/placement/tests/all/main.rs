//! All tests of partial replication: its protocol and its model.

mod world;

mod model;
mod one_copy_si;
mod protocol;
