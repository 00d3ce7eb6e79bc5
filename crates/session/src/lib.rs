//! A client's session as a pure state machine (I1). Its input is what the client and the servers sent; its
//! output is what to send to them, and what to do.
//!
//! - [`session`]: the machine: its state, one step, and the processing of the client's messages in order.
//! - [`events`]: the interface to the relay.
//! - `work`: the steps for everything that needs a server, from routing to the return of the connection.
//! - `simple`, `extended`: make a unit of what a client sent, for each protocol.
//! - [`mod@unit`]: a unit, and what is sent to the primary for it.
//! - `read`: whether a replica may run a unit, and what is sent there.
//! - `block`: transaction blocks that have not begun at a server, `settings_in_block`: SET in them; `beside`: reads of open transactions at
//!   replicas; `snapshot`: REPEATABLE READ, READ ONLY transactions at one replica.
//! - [`described`]: what prepared statements return, compared where that may have changed.
//! - `effects`: session state that statements leave behind.
//! - `names`, `own_settings`, `passwords`: prepared statements, settings of hihooi, passwords in clear text.
//! - [`downstream`]: the client's side: bytes received and bytes to be sent.
//! - [`upstream`]: a server's side: what was sent there and is not answered yet, its transaction status,
//!   prepared statements and settings.
//! - [`answers`]: matches answers to messages, and decides who gets them.
//! - [`relaying`]: splits a server's bytes into frames, and passes on the client's part of them.
//! - [`state`]: state that outlives a transaction, queried from the server.
//! - [`sites`]: site ids, and collections with one element for each site.
//! - [`route`]: where a statement runs, and why.
//! - [`balance`]: chooses among the replicas that are fresh enough; [`performance`]: how fast and how reliably
//!   each answers its reads.
//! - [`own_types`]: translates OIDs of user-defined types in a replica's results.
//!
//! Pure: no socket, clock, task, pool or shared state. All types can be sent to another thread. What this crate
//! must NOT know: where bytes come from and go to.

pub mod answers;
pub mod balance;
mod beside;
mod block;
pub mod consistency;
pub mod described;
pub mod downstream;
mod effects;
pub mod events;
mod extended;
mod mistakes;
mod names;
pub mod own_settings;
pub mod own_types;
mod passwords;
pub mod performance;
mod portals;
mod read;
pub mod relaying;
pub mod route;
pub mod session;
mod settings_in_block;
mod simple;
pub mod sites;
mod snapshot;
pub mod state;
#[cfg(test)]
mod tests;
pub mod unit;
pub mod upstream;
mod values;
mod work;
