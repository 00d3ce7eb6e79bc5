//! Dynamic mastering (DynaMast paper): which site may write which data, how this changes, and where a
//! transaction should run. Pure: no sockets, files, clocks, threads or random source.
//!
//! A [`site::Site`] is one data site's manager: it begins and commits transactions, applies the other sites'
//! commits, releases mastership and takes it over. A [`selector::Selector`] chooses the site of each
//! transaction and moves mastership there if necessary. Both are state machines: events in, effects out. A
//! shell must carry out the effects: send messages over a network, and append to a log.

pub mod ids;
pub mod mastership;
pub mod record;
pub mod recovery;
pub mod refresh;
pub mod selector;
pub mod site;
pub mod vector;
