//! What we create on the primary, and whether a server is fit for us.

use hihooi_replication::ids::Lsn;

use crate::connection::{Connection, Result};

/// Name of the slot.
pub const SLOT: &str = "hihooi";
/// Name of the publication.
pub const PUBLICATION: &str = "hihooi";

/// What [`install`] found or made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetUp {
    /// Whether the slot was made now: the log must be empty then.
    pub created: bool,
    /// The slot's confirmed position.
    pub slot_lsn: Lsn,
}

/// Something about a server that must or should be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Whether we can't work with it; otherwise only a warning.
    pub fatal: bool,
    /// One line: what is wrong and what to do.
    pub text: String,
}

/// Creates schema, event triggers, publication and slot where missing; sets replica identities.
/// Idempotent. `connection` is a superuser's, to the replicated database.
pub async fn install(connection: &mut Connection) -> Result<SetUp> {
    let _ = connection;
    unimplemented!("skeleton")
}

/// Whether the server is fit to be our primary.
pub async fn check(connection: &mut Connection) -> Result<Vec<Problem>> {
    let _ = connection;
    unimplemented!("skeleton")
}

/// Ends whoever reads the slot, by pid, and waits until the slot is free. Returns that pid.
pub async fn free_slot(connection: &mut Connection) -> Result<Option<i32>> {
    let _ = connection;
    unimplemented!("skeleton")
}
