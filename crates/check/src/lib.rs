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
//! - `direct`: anomalies that need no graph; `edges`, `registers`, `graph`, `stage`, `name`: those
//!   that are cycles; `tell`: witnesses in words;
//! - [`judge`](mod@judge): levels.
//!
//! Sources: Adya, Weak Consistency (1999), for the graphs and levels; Kingsbury and Alvaro, Elle
//! (VLDB 2020), for how versions are inferred from lists and registers; Daudjee and Salem, Lazy
//! Database Replication with Snapshot Isolation (VLDB 2006), for strong and session SI; Terry et
//! al., Session Guarantees (PDIS 1994).
//!
//! What can't be judged:
//! - The order of two appends which no read shows. A final read of each list shows all of them.
//! - All of the order of a register's versions: a read shows one. It is known where a transaction
//!   read one version and wrote the other, where one of them is the unset one, where a snapshot
//!   shows one of them and something else of the other's writer, and, for the levels that know of
//!   these, by process and by real time, from those who wrote or saw them. What follows only by
//!   longer ways is not looked for (in general that is NP-complete). Anomalies that depend on it go
//!   unseen, some two in a hundred of small random histories, almost all at levels that know no
//!   real time; none is invented.
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
mod registers;
mod stage;
mod tell;

pub use anomaly::{Anomaly, Kind};
pub use history::{Atom, BadHistory, History, Op, Outcome, Seen, Transaction};
pub use judge::{Judge, Summary, Verdict, judge};
pub use level::Level;
