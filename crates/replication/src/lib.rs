//! The pure core of replication: what an entry of the log is, how the primary's stream becomes
//! entries, what a read needs, and what may be applied now. No sockets, files or clocks.

pub mod assemble;
pub mod codec;
pub mod entry;
pub mod freshness;
pub mod ids;
pub mod items;
pub mod note;
pub mod pgoutput;
pub mod primary_equivalent;
pub mod retention;
pub mod schedule;
pub mod watermark;
pub mod written;
