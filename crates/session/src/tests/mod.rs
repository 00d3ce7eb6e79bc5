//! Tests of the machine with simulated servers ([`hihooi_sim::postgres`]): golden scripts, all scripts with
//! input split at every byte and with every fault after every frame, and planted bugs that these tests must
//! find.

mod faults;
mod random;
mod scripts;
mod world;
