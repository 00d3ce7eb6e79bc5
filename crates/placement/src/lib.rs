//! Partial replication (SIPRe paper): sites hold some objects, transactions travel to the data at
//! one snapshot, and how far such a system scales. Pure: no sockets, files, clocks, threads or
//! random source.
//!
//! - [`model`]: how many times the work of one site a cluster can do (section 3).
//! - [`protocol`]: 1-copy snapshot isolation over partial copies (section 4).

pub mod model;
pub mod protocol;
