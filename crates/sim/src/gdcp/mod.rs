//! GDCP (RSSI paper, section 4, appendices B and C) on simulated sites with snapshot isolation engines: over
//! the log ([`log_site`]) and over the ring ([`ring_site`]), with crashes, restarts, network partitions and
//! losses; the checker checks the histories.
//!
//! - [`replica`]: the database of a site and the transactions that run there, in both.
//! - [`session`]: the clients. - [`history`]: what they saw. - [`trial`]: one seeded run and its
//!   judgement.

pub mod history;
pub mod log_site;
pub mod replica;
pub mod ring_site;
pub mod session;
pub mod trial;
