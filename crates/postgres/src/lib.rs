//! Everything that talks to PostgreSQL servers on the manager's own behalf.

pub mod cluster;
pub mod apply;
pub mod connection;
pub mod site;
pub mod verify;
