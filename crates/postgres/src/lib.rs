//! Everything that talks to PostgreSQL servers on the manager's own behalf.

pub mod cluster;
pub mod connection;
pub mod site;
