//! The simulator: the protocol cores run on a simulated network with simulated sites, clients,
//! faults and time, under a seeded scheduler; every run can be replayed from its seed.
//!
//! # How to put a protocol on it
//!
//! `tests/all/kernel.rs` is a whole small example (a counter replicated over the log).
//!
//! 1. Write a file that adapts your core to [`Node`]: `start` builds the state from what the disk
//!    holds ([`Boot::disk`], a journal of your `Record`s; empty at first), `step` takes an [`Event`]
//!    (a message, a client's request, the next entry of a log, a timer, a record that became
//!    durable) and pushes [`Effect`]s: `out.send`, `out.reply`, `out.append`, `out.follow`,
//!    `out.persist`, `out.timer`. Wrap what is large in `Rc`: effects are cloned.
//! 2. State what all nodes must agree on with `out.agree("verdict", position, hash)`: the run
//!    fails where two nodes differ, or one differs from what it said before its crash. Use
//!    `out.violated(..)` for invariants of your own.
//! 3. Write a [`Client`]: told how its last call ended, it says what it asks next. An unanswered
//!    call ends by its timeout with an unknown outcome (`response: None`).
//! 4. Build a [`World`] from a [`WorldConfig`] (network, disk, clocks and a [`FaultPlan`], all from
//!    the seed), `run()` it, and judge `calls()`, `node(id)`, `log(id)` afterwards.
//! 5. Wrap that into `fn property(run: Run, planted: Planted) -> Result<T, String>` and call [`explore()`] over
//!    the seeds for the right protocol and [`hunt`] for each planted bug, which must find it within a stated
//!    number of seeds. Use `generator(run.seed, Purpose::Setup)` for random choices of your set-up.
//!
//! [`database`] is a larger example: a replicated database by certification, whose [`database::trial`] draws
//! set-up, transactions and faults, and uses the checker.
//!
//! # Environment
//!
//! - `HIHOOI_SIM_SEED=n`: that seed alone, every event printed (with `-- --nocapture`); a failing
//!   run prints the whole command. `HIHOOI_SIM_TRACE=0` leaves the events out.
//! - `HIHOOI_SIM_TRANSACTIONS=n`: at least so many transactions per protocol of [`database`].
//! - `HIHOOI_SIM_SEEDS=n`: so many seeds for [`gdcp`] and [`placement`].
//!
//! # What the world does to you
//!
//! - Messages are delayed, lost, duplicated and reordered ([`Transport::Datagram`]), or arrive in order and
//!   exactly once unless an end crashes ([`Transport::Stream`]). A network partition may affect only one
//!   direction.
//! - Appends are datagrams, too: they can be lost or ordered twice, so retry on a timer and recognise
//!   duplicates. Entries arrive at each follower in order, at its own pace; `Follow` again to go back.
//! - A crash loses everything except the journal, and a prefix of the records that are being written. Timers
//!   end with the incarnation; messages and appends that were sent do not.
//! - Each node's clock has its own offset (`skew_us_max`); `now` is the node's own.
//! - After [`Fault::Heal`] all nodes run and nothing is lost any more; all clients must end within
//!   `live_us_max` after the last fault, or the run fails: that is the liveness property.

pub mod client;
pub mod database;
pub mod explore;
pub mod faults;
pub mod gdcp;
pub mod isolation;
mod logs;
pub mod mastering;
pub mod network;
pub mod node;
pub mod placement;
pub mod postgres;
mod queue;
pub mod random;
mod record;
pub mod sessions;
pub mod time;
pub mod workload;
pub mod world;

pub use client::{Call, Client, Next};
pub use explore::{Run, explore, hunt};
pub use faults::{Fault, FaultBounds, FaultPlan};
pub use network::{Address, NetworkConfig, Transport};
pub use node::{Boot, CallId, ClientId, Effect, Effects, Event, LogId, Node, NodeId, Position};
pub use random::{Purpose, Random, generator};
pub use time::Time;
pub use world::{World, WorldConfig};
