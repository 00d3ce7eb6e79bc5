//! Partial replication on the simulator (SIPRe paper, section 4): sites that store some of the objects each,
//! one total-order log, and clients whose transactions need objects of several sites.
//!
//! - [`engine`]: a site's database: rows of its objects, versions, snapshots.
//! - [`site`]: the protocol core as a [`crate::Node`], with its planted bugs.
//! - [`session`]: clients; a transaction is several calls.
//! - [`history`]: what they saw, as a history for the checker.
//! - [`trial`]: a whole run with its checks.
//!
//! Row locks are left to the protocol's own tests: here a statement runs at an instant.

pub mod engine;
pub mod history;
pub mod session;
pub mod site;
pub mod trial;
