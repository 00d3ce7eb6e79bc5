//! The checker: checks what clients saw against isolation levels, and returns a witness for every anomaly.
//! Pure: it reads a history from any `BufRead`, and uses no socket, clock or thread.
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
//! - `facts`: which transactions committed, and the order of each key's versions;
//! - `direct`: anomalies that need no graph; `edges`, `registers`, `graph`, `stage`, `name`: those
//!   that are cycles; `tell`: witnesses in words;
//! - [`judge`](mod@judge): levels.
//!
//! Sources: Adya, Weak Consistency (1999), for the graphs and levels; Kingsbury and Alvaro, Elle
//! (VLDB 2020), for how versions are inferred from lists and registers; Daudjee and Salem, Lazy
//! Database Replication with Snapshot Isolation (VLDB 2006), for strong and session SI; Terry et
//! al., Session Guarantees (PDIS 1994).
//!
//! What can't be checked:
//! - The order of two appends that no read shows. A final read of each list shows all of them.
//! - The complete order of a register's versions, since a read shows only one. The order of two versions is
//!   known if a transaction read one and wrote the other, if one of them is the unset version, if a snapshot
//!   contains one of them and something else that the other's writer wrote, and, at levels that include them,
//!   from process order and real time of the transactions that wrote or saw them. What follows only by longer
//!   chains of inference is not searched for (in general this is NP-complete). Anomalies that depend on it are
//!   not found: about two in a hundred in small random histories, almost all at levels without real time. No
//!   anomaly is reported that isn't one.
//! - Predicates (phantoms): histories name keys.
//! - What was read by transactions that aborted or whose outcome is unknown.

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
