//! The machine against simulated servers ([`hihooi_sim::postgres`]): golden scripts, all of them cut at every byte
//! and hit by every fault after every frame, and mistakes that these tests must find.

mod faults;
mod scripts;
mod world;
