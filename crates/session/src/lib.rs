//! What a session knows of its two sides, and what it makes of a frame, without a socket (I1).
//!
//! - [`downstream`]: the client's side: what came from it, what it gets.
//! - [`upstream`]: a server's side: what was sent there and is still to be answered, its transaction status,
//!   prepared statements and settings.
//! - [`answers`]: which answer of a server belongs to which message, and who gets it.
//! - [`relaying`]: takes a server's bytes apart and gives the client its part of them.
//! - [`state`]: what outlives a transaction, as the server tells it.
//! - [`route`]: where a statement runs, and why.
//! - [`own_types`]: types of users in what a replica describes.
//!
//! Pure: no socket, clock, task, pool or shared state; everything can be sent to another thread. What this crate
//! must NOT know: where bytes come from and go to.

pub mod answers;
pub mod downstream;
pub mod own_types;
pub mod relaying;
pub mod route;
pub mod state;
pub mod upstream;
