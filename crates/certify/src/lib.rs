//! Certification of transactions that ran at different sites, and how sites exchange what
//! certification needs. Pure: no sockets, files, clocks, threads or random source.
//!
//! - [`certification`]: decides whether a transaction may commit, given those that committed since its
//!   snapshot. Four certifiers.
//! - [`gdcp`]: the protocol by which all sites make the same decisions although readsets stay at their sites.

pub mod certification;
pub mod gdcp;
