//! Everything that the manager itself does at PostgreSQL servers, as opposed to clients' statements.

pub mod apply;
pub mod certificates;
pub mod cluster;
pub mod collations;
pub mod collector;
pub mod connection;
pub mod control;
pub mod identity;
pub mod login;
pub mod reloaded;
pub mod setup;
pub mod site;
pub mod socket;
pub mod tls;
pub mod verify;
pub mod wal_positions;
