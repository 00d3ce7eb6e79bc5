//! Dynamic mastering on the simulator (DynaMast paper, sections III and V): data sites with a whole copy each,
//! one or two site selectors, logs of commits and mastership, and clients with sessions that ask a selector
//! where to run.
//!
//! - [`rows`]: a site's rows and versions, seen through version vectors.
//! - [`logs`]: which records of a raw log are valid: each site's records in their order, once, and only of its
//!   present incarnation.
//! - [`site`], [`selector`]: the cores as [`crate::Node`]s, with planted bugs; [`node`] is either of them.
//! - [`session`]: clients. [`trial`]: a whole run with its checks; [`history`]: the history for the checker.
//!
//! Departures: sites keep their data in memory only, as the paper's do, and replay the logs after
//! a crash from the beginning.

pub mod history;
pub mod logs;
pub mod node;
pub mod rows;
pub mod selector;
pub mod session;
pub mod site;
pub mod trial;
