//! All tests of balancing by conflicts.

mod example;
mod tpcc;
mod twin;
