//! The pure core of replication: entries of the log, how they are made from the primary's stream, what a read
//! must see, and which entries may be applied now. No sockets, files or clocks.

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
pub mod text;
pub mod watermark;
pub mod written;
