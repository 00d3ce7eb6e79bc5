//! The checker: what clients saw, judged against isolation levels, every anomaly with a witness.
//! Pure: it reads a history from any `BufRead` and knows no socket, clock or thread.
//!
//! ```
//! use hihooi_check::{History, Level, Op, Outcome, Transaction, judge};
//!
//! let mut history = History::new();
//! let committed = |process, invoked, ops| Transaction {
//!     process,
//!     invoked,
//!     completed: Some(invoked + 10),
//!     outcome: Outcome::Committed,
//!     is_final: false,
//!     ops,
//! };
//! history.push(committed(1, 0, vec![Op::append("x", 1)]))?;
//! history.push(committed(2, 20, vec![Op::list("x", [0_i64; 0])]))?;
//! assert!(judge(&history, Level::Si).holds());
//! assert!(!judge(&history, Level::StrongSi).holds());
//! # Ok::<(), hihooi_check::BadHistory>(())
//! ```
//!
//! From a history to a verdict:
//! - [`history`], [`parse`]: what was recorded;
//! - `facts`: which transactions committed, how each key's versions followed each other;
//! - `direct`: anomalies that need no graph; `edges`, `graph`, `stage`, `name`: those that are
//!   cycles; `tell`: witnesses in words;
//! - [`judge`](mod@judge): levels.
//!
//! Sources: Adya, Weak Consistency (1999), for the graphs and levels; Kingsbury and Alvaro, Elle
//! (VLDB 2020), for how versions are inferred from lists and registers; Daudjee and Salem, Lazy
//! Database Replication with Snapshot Isolation (VLDB 2006), for strong and session SI; Terry et
//! al., Session Guarantees (PDIS 1994).
//!
//! What can't be judged:
//! - The order of two appends which no read shows. A final read of each list shows all of them.
//! - Registers tell the order of their versions only where a transaction read one and wrote the
//!   next, where one was never set, and, for the levels that know of these, by process and by
//!   real time. Anomalies that depend on another order go unseen; none is invented.
//! - Predicates (phantoms): histories name keys.
//! - What aborted and unknown transactions read.

pub mod anomaly;
mod direct;
mod edges;
mod facts;
mod graph;
pub mod history;
pub mod judge;
pub mod level;
mod name;
pub mod parse;
mod stage;
mod tell;

pub use anomaly::{Anomaly, Kind};
pub use history::{Atom, BadHistory, History, Op, Outcome, Seen, Transaction};
pub use judge::{Judge, Summary, Verdict, judge};
pub use level::Level;
