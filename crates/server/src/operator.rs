//! What the relay needs of the process that it runs in to do what the operator wants.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::settings::Settings;

/// How the relay reaches it.
pub struct Operator {
    /// Reads the configuration again; what is wrong with it, in one line.
    pub reread: Box<dyn Fn() -> Result<Settings, String>>,
    /// SIGHUP has come.
    pub hangup: Arc<Notify>,
    /// The manager shall stop.
    pub stop: Arc<Notify>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operator")
    }
}
