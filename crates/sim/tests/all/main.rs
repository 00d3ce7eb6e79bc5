//! All simulations. `scripts/test` runs each module as a process of its own.

mod common;

mod convergence;
mod gdcp;
mod isolation;
mod kernel;
mod liveness;
mod mastering;
mod nothing_lost;
mod one_copy_serializable;
mod one_copy_si;
mod placement;
mod session_guarantees;
mod sessions;
