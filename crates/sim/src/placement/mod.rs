//! Partial replication on the simulator (SIPRe paper, section 4): sites that hold some objects
//! each, one total-order log, and clients whose transactions need objects of several sites.
//!
//! - [`engine`]: a site's database: rows of its objects, versions, snapshots.
//! - [`site`]: the protocol core as a [`crate::Node`], with its planted mistakes.
//! - [`session`]: clients; a transaction is several calls.
//! - [`history`]: what they saw, as the checker takes it.
//! - [`trial`]: a whole run, judged.
//!
//! Row locks are left to the protocol's own tests: here a statement runs at an instant.

pub mod engine;
pub mod history;
pub mod session;
pub mod site;
pub mod trial;
