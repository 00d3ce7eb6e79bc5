//! All tests on real PostgreSQL servers. `scripts/test` runs each module as a process of its own.

mod apply_support;
mod support;

mod apply;
mod apply_ddl;
mod apply_speed;
mod cluster;
mod collector;
mod identity;
mod keys;
mod latency;
mod notes;
mod privilege;
mod verify;
