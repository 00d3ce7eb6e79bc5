//! Everything that talks to PostgreSQL servers on the manager's own behalf.

pub mod apply;
pub mod cluster;
pub mod collations;
pub mod collector;
pub mod connection;
pub mod control;
pub mod identity;
pub mod setup;
pub mod site;
pub mod verify;
pub mod wal_positions;
