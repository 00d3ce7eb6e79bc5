//! Certification of transactions that ran at different sites, and how sites exchange what
//! certification needs. Pure: no sockets, files, clocks, threads or random source.
//!
//! - [`certification`]: may this transaction commit, given those that committed since its
//!   snapshot? One certifier per paper.
//! - [`gdcp`]: the protocol by which every site decides alike although readsets stay at home.

pub mod certification;
pub mod gdcp;
