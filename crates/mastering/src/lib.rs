//! Dynamic mastering (DynaMast paper): which site may write which data, how that moves, and
//! where a transaction should run. Pure: no sockets, files, clocks, threads or random source.
//!
//! A [`site::Site`] is one data site's manager: it begins and commits transactions, applies the
//! other sites' commits, gives mastership away and takes it over. A [`selector::Selector`]
//! chooses the site of each transaction and moves mastership there when need be. Both are state
//! machines: events in, effects out; a shell carries the effects over a network and to a log.

pub mod ids;
pub mod mastership;
pub mod record;
pub mod recovery;
pub mod refresh;
pub mod selector;
pub mod site;
pub mod vector;
