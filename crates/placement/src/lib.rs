//! Partial replication (SIPRe paper): each site stores some of the objects, and operations are sent to the
//! sites that store the data, at one snapshot. Also computes how far such a system scales. Pure: no sockets,
//! files, clocks, threads or random source.
//!
//! - [`model`]: how many times the work of one site a cluster can do (section 3).
//! - [`protocol`]: 1-copy snapshot isolation with partial replication (section 4).

pub mod model;
pub mod protocol;
