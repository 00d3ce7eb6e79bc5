//! How commands connect to a running hihooi: options as libpq's.

use std::path::PathBuf;

use clap::Args;
use hihooi_postgres::connection::Address;
use hihooi_postgres::tls::{Connector, Mode, Settings};

use crate::config::Listen;
use crate::failure::{Failure, Result};

/// Encryption of a command's own connections.
#[derive(Args, Clone, Debug, Default)]
pub struct SslArgs {
    /// Use TLS: disable, prefer (if it is offered), require, or verify-full (the certificate is checked, too)
    #[arg(long, env = "HIHOOI_SSLMODE", value_name = "MODE", default_value_t)]
    pub sslmode: Mode,
    /// Authorities that may have issued hihooi's certificate, in PEM; for verify-full
    #[arg(long, env = "HIHOOI_SSLROOTCERT", value_name = "FILE")]
    pub sslrootcert: Option<PathBuf>,
}

impl SslArgs {
    /// Where to connect, and how.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn address(&self, listen: &Listen) -> Result<Address> {
        let (host, port) =
            listen.host_and_port().map_err(|error| Failure::new(error.to_string()))?;
        let (mode, ca_file) = (self.sslmode, self.sslrootcert.clone());
        let tls = Connector::new(Settings { mode, ca_file, ..Settings::default() });
        tls.load().map_err(|why| Failure::new(format!("--sslmode, --sslrootcert: {why}")))?;
        Ok(Address { host, port, tls })
    }
}
