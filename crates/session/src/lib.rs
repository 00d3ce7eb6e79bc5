//! A client's session as a pure machine (I1): what came from the client and the servers goes in, what they are
//! to be sent and what is to be done comes out.
//!
//! - [`session`]: the machine: its state, one step, the client's messages one after another.
//! - [`events`]: what goes in and out, and what is lent.
//! - `work`: the one way of everything that needs a server, from the route to the connection's return.
//! - `simple`, `extended`: what a client sent becomes a unit, by its protocol.
//! - [`mod@unit`]: a unit, and what is written to the primary for it.
//! - `read`: whether a replica may run it, and what is written there.
//! - `block`: transaction blocks that no server has begun; `snapshot`: those that only read, at one replica.
//! - `effects`: what statements leave in their session.
//! - `names`, `own_settings`, `passwords`: prepared statements, settings of hihooi, passwords in clear text.
//! - [`downstream`]: the client's side: what came from it, what it gets.
//! - [`upstream`]: a server's side: what was sent there and is still to be answered, its transaction status,
//!   prepared statements and settings.
//! - [`answers`]: which answer of a server belongs to which message, and who gets it.
//! - [`relaying`]: takes a server's bytes apart and gives the client its part of them.
//! - [`state`]: what outlives a transaction, as the server tells it.
//! - [`sites`]: sites, and what there is one of for each.
//! - [`route`]: where a statement runs, and why.
//! - [`balance`]: which of the replicas that are fresh enough; [`standing`]: what is known of how each does its reads.
//! - [`own_types`]: types of users in what a replica describes.
//!
//! Pure: no socket, clock, task, pool or shared state; everything can be sent to another thread. What this crate
//! must NOT know: where bytes come from and go to.

pub mod answers;
pub mod balance;
mod beside;
mod block;
pub mod consistency;
pub mod downstream;
mod effects;
pub mod events;
mod extended;
mod mistakes;
mod names;
pub mod own_settings;
pub mod own_types;
mod passwords;
mod portals;
mod read;
pub mod relaying;
pub mod route;
pub mod session;
mod simple;
pub mod sites;
mod snapshot;
pub mod standing;
pub mod state;
#[cfg(test)]
mod tests;
pub mod unit;
pub mod upstream;
mod values;
mod work;
