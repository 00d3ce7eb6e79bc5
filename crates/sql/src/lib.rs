//! Determines what a statement does from its text and the catalog alone: which items it reads and writes,
//! whether a replica may run it, and what it changes in its session (Hihooi section 4.1, the affecting
//! classes). No sockets, files, clocks or threads.
//!
//! Keeps I6: the analysis may find more items than a statement touches, never fewer. A statement that can't be
//! analysed touches everything and isn't safe on a replica.
//!
//! What this crate must NOT know: sessions, sites, freshness, and where a statement will run.

pub mod analysis;
mod builtins;
pub mod cache;
pub mod catalog;
pub mod catalog_builder;
pub mod catalog_queries;
pub mod ddl_text;
pub mod facts;
pub mod hint;
pub mod keys;
mod leaves;
pub mod lexer;
pub mod named_rows;
mod own_objects;
mod parser;
mod passwords;
mod routines;
mod template;

pub use analysis::analyse;
pub use cache::Cache;
pub use catalog::{Catalog, SearchPath};
pub use catalog_builder::Builder;
pub use facts::{
    Analysis, Ddl, Discard, HihooiCommand, Isolation, Kind, Replica, SessionCommand, SessionEffect,
    Statement, Temporary, TransactionModes, Unsafe,
};
pub use hint::{Hint, hint};
pub use keys::KeyType;
pub use named_rows::{Parameter, Values};
pub use own_objects::own_object;
pub use passwords::{ClearPassword, clear_passwords};
pub use template::constants;
