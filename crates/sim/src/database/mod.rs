//! A replicated database by certification, to run on the simulator: sites with a whole copy each,
//! one total-order log, a certifier at every site (RSSI paper, section 3.3; vDBSM paper, section
//! 3). It is the smallest system in which a certifier can be right or wrong.
//!
//! - [`engine`]: a site's rows and versions under snapshot isolation.
//! - [`transaction`]: what clients request, how it runs, what is passed to certification.
//! - [`site`]: the site as a [`crate::Node`], with planted bugs.
//! - [`session`]: clients and their random transactions.
//! - [`history`]: what clients saw, as a history for the checker.
//! - [`trial`]: a whole run of a protocol, with its checks. - [`tally`]: what became of its transactions.

pub mod engine;
pub mod history;
pub mod session;
pub mod site;
pub mod tally;
pub mod transaction;
pub mod trial;
