//! Client authentication (manual, chapter "Client Authentication"): who may connect, and how clients and
//! hihooi prove to each other, and to PostgreSQL servers, that they know a password.
//!
//! - [`hba`]: `pg_hba.conf`: which method a connection must authenticate by.
//! - [`ident`]: `pg_ident.conf`: which system users may log in as which roles.
//! - [`scram`]: SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, both sides (RFC 5802, RFC 7677).
//! - [`md5`]: the md5 method, both sides.
//! - [`stored`]: a role's password as the server stores it, and the check of one sent in clear text.
//! - [`passfile`]: libpq's password file.
//!
//! Pure: files are read through a trait, random bytes and the server's secrets are arguments.

pub mod files;
pub mod hba;
pub mod ident;
pub mod md5;
mod names;
pub mod passfile;
mod pattern;
pub mod scram;
pub mod stored;
