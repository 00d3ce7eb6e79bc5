//! 1-copy snapshot isolation over partial copies: the protocol of the SIPRe paper, section 4 and
//! Figure 3, as one state machine per site ([`Site`]).
//!
//! A client's transaction is coordinated by the site it is connected to, and reads the snapshot of that site at
//! its first operation (its start timestamp). An operation on objects that the coordinator doesn't store is
//! sent to a site that does, with the changes made so far, and runs there on the snapshot of the same
//! timestamp. At commit the changes go through the total order; *every* site certifies them, the holders apply
//! them, and each commit opens a snapshot.
//!
//! Departures from Figure 3:
//! - `committedTx` grows, as printed, only where the writeset meets the local data. Then a site
//!   that holds only part of what two transactions wrote misses their conflict: the very
//!   inconsistency that section 4 warns of. Here every site remembers every writeset. The printed
//!   rule is [`Planted::HoldersOnly`]; test `certifying_only_at_the_holders_tears_a_transaction`.
//! - `validate` as printed asks for `T_j.ST <= T.CT <= T_j.CT` of a committed `T_j`; a transaction
//!   validated later has the greater `CT`, so that is never so and everything would commit. What is
//!   meant, and done, is `T.ST < T_j.CT`. Test `validation_as_printed_loses_updates`.
//! - A timestamp is a position in the total order and ticks for refused transactions too, like
//!   everywhere in this system; that numbers the same snapshots.
//! - The figure has no answer when the site of a redirected operation has not delivered as far
//!   as the coordinator had. Here the operation waits for it.
//! - One snapshot that stays open serves any number of transactions (`SET TRANSACTION SNAPSHOT`),
//!   so there is no pool of dummy transactions to run dry; it serves also the timestamps after it
//!   at which nothing was applied here.
//! - `changes(T)` is numbered, so that a site applies each change once however often it is visited,
//!   and one that lost its part of the transaction (crash, time limit) starts it again. Changes
//!   made elsewhere reach the coordinator's own database with its next local operation.
//! - A database locks rows. A certified writeset must not wait for a local transaction that can't
//!   commit any more: such transactions end first, here and at their coordinator.
//! - Snapshots are collected by what all sites report as their oldest start timestamp, and by a bound. What a
//!   certifier remembers has the same bound at all sites, so that they refuse the same transactions.
//! - Failures, which the paper doesn't treat: see [`Cause`], [`Event::Down`], [`Site::recover`].
//!
//! Not covered, as in the paper: an operation needs one site that holds all its objects, and
//! constraints across rows (secondary unique keys, foreign keys) are not certified.

mod catalog;
mod certification;
mod coordinator;
mod delivery;
mod limits;
mod message;
mod part;
mod planted;
mod site;
mod snapshot;

pub use catalog::Catalog;
pub use certification::{Checkpoint, Refusal};
pub use limits::Limits;
pub use message::{
    Cause, Change, Changes, Content, Done, Effect, Event, Failure, Item, Message, ObjectId,
    Operation, Proposal, Reply, Run,
};
pub use planted::{Planted, PlantedSite};
pub use site::Site;
