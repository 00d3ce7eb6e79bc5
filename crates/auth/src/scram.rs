//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677; manual, "SASL Authentication").
//!
//! - [`server`]: the side that has a [`Verifier`], as in `pg_authid.rolpassword`. After a successful exchange it
//!   also has the client's [`Keys`], which log in wherever the verifier is the same.
//! - [`client`]: the side that has a password or those keys.
//!
//! As in PostgreSQL, the user name of the exchange is ignored: the start-up packet's counts.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

pub mod client;
mod message;
pub mod server;

/// The mechanism without channel binding.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// The mechanism with channel binding, by the hash of the server's certificate (`tls-server-end-point`,
/// RFC 5929).
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Iterations of a verifier unless `scram_iterations` says otherwise.
pub const ITERATIONS_DEFAULT: u32 = 4_096;
/// The most iterations for which we hash a password, about 500 times the default: a server must not make us hash
/// for long. Who has [`Keys`] needs no hashing.
pub const ITERATIONS_MAX: u32 = 2_000_000;
/// The longest message of an exchange that is read, in bytes, as in PostgreSQL (`PG_MAX_SASL_MESSAGE_LENGTH`).
pub const MESSAGE_LEN_MAX: usize = 1_024;
/// Bytes of a salt that we make.
pub const SALT_LEN: usize = 16;

const KEY_LEN: usize = 32;

/// A key or a hash of one.
type Key = [u8; KEY_LEN];

/// What is random in an exchange, made by each side for itself and used once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// From 18 random bytes, as many as PostgreSQL takes.
    #[must_use]
    pub fn new(random: &[u8; 18]) -> Nonce {
        Nonce(BASE64.encode(random))
    }
}

/// With what a password was hashed. No secret: the server tells everyone who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashing {
    /// At least 1.
    pub iterations: u32,
    /// Never empty.
    pub salt: Vec<u8>,
}

/// What a server stores of a password. Who knows it can check the password, but not log in with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    hashing: Hashing,
    stored_key: Key,
    server_key: Key,
    /// Nobody can log in by this one.
    is_mock: bool,
}

/// What a password becomes for one verifier: enough to log in wherever the verifier is the same. Overwritten
/// when dropped.
#[derive(Clone)]
pub struct Keys {
    hashing: Hashing,
    client_key: Key,
    server_key: Key,
}

impl Verifier {
    /// That of a password.
    ///
    /// # Panics
    /// If there are no iterations, or more than [`ITERATIONS_MAX`].
    #[must_use]
    pub fn of_password(password: &[u8], hashing: Hashing) -> Verifier {
        assert!((1..=ITERATIONS_MAX).contains(&hashing.iterations), "iterations out of bounds");
        Verifier::of_keys(&Keys::derive(password, hashing))
    }

    fn of_keys(keys: &Keys) -> Verifier {
        Verifier {
            hashing: keys.hashing.clone(),
            stored_key: hash(&keys.client_key),
            server_key: keys.server_key,
            is_mock: false,
        }
    }

    /// A verifier for a role that doesn't exist or has none, so that clients can't tell such roles from others:
    /// always the same for a name, and no password fits. Iterations are those that roles usually have.
    ///
    /// Who can watch `secret` change can tell such roles: keep it over restarts, as PostgreSQL does.
    #[must_use]
    pub fn mock(secret: &[u8], name: &str, iterations: u32) -> Verifier {
        let salt = hmac(secret, &[b"mock SCRAM salt", name.as_bytes()])[..SALT_LEN].to_vec();
        let none = [0; KEY_LEN];
        let hashing = Hashing { iterations, salt };
        Verifier { hashing, stored_key: none, server_key: none, is_mock: true }
    }

    /// With what the password was hashed.
    #[must_use]
    pub fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    /// The keys of a password that a client sent in clear text; `None` if it is wrong, or if there are more
    /// iterations than [`ITERATIONS_MAX`]. Takes as long as the iterations do.
    #[must_use]
    pub fn check_password(&self, password: &[u8]) -> Option<Keys> {
        if self.hashing.iterations > ITERATIONS_MAX {
            return None;
        }
        let keys = Keys::derive(password, self.hashing.clone());
        let fits = bool::from(keys.server_key.ct_eq(&self.server_key));
        (fits && !self.is_mock && self.is_of(&keys.client_key)).then_some(keys)
    }

    fn is_of(&self, client_key: &Key) -> bool {
        hash(client_key).ct_eq(&self.stored_key).into()
    }
}

/// Reads `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.
impl FromStr for Verifier {
    type Err = NoVerifier;

    fn from_str(text: &str) -> Result<Verifier, NoVerifier> {
        read_verifier(text).ok_or(NoVerifier)
    }
}

/// This is no SCRAM verifier: perhaps one for md5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a SCRAM-SHA-256 verifier")]
pub struct NoVerifier;

fn read_verifier(text: &str) -> Option<Verifier> {
    let (iterations, rest) = text.strip_prefix("SCRAM-SHA-256$")?.split_once(':')?;
    let (salt, keys) = rest.split_once('$')?;
    let (stored_key, server_key) = keys.split_once(':')?;
    let salt = BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?;
    let iterations = iterations.parse().ok().filter(|&iterations| iterations > 0)?;
    Some(Verifier {
        hashing: Hashing { iterations, salt },
        stored_key: read_key(stored_key)?,
        server_key: read_key(server_key)?,
        is_mock: false,
    })
}

fn read_key(text: impl AsRef<[u8]>) -> Option<Key> {
    BASE64.decode(text).ok()?.try_into().ok()
}

/// As the server stores it.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hashing { iterations, salt } = &self.hashing;
        let [salt, stored, server] =
            [salt.as_slice(), &self.stored_key, &self.server_key].map(|bytes| BASE64.encode(bytes));
        write!(f, "SCRAM-SHA-256${iterations}:{salt}${stored}:{server}")
    }
}

/// Without what could be used to guess passwords.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl Keys {
    fn derive(password: &[u8], hashing: Hashing) -> Keys {
        let salted = salted_password(&prepared(password), &hashing);
        let client_key = hmac(salted.as_slice(), &[b"Client Key"]);
        let server_key = hmac(salted.as_slice(), &[b"Server Key"]);
        Keys { hashing, client_key, server_key }
    }

    /// With what the password was hashed: another server takes these keys if its verifier has the same.
    #[must_use]
    pub fn hashing(&self) -> &Hashing {
        &self.hashing
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Keys) -> bool {
        let equal =
            self.client_key.ct_eq(&other.client_key) & self.server_key.ct_eq(&other.server_key);
        self.hashing == other.hashing && bool::from(equal)
    }
}

impl Eq for Keys {}

impl Drop for Keys {
    fn drop(&mut self) {
        self.client_key.zeroize();
        self.server_key.zeroize();
    }
}

/// Without the keys.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// A password as it is hashed: prepared by SASLprep (RFC 4013); as it is if that doesn't allow it, if it isn't
/// UTF-8, or if nothing would remain (PostgreSQL's `pg_saslprep`).
fn prepared(password: &[u8]) -> Zeroizing<Vec<u8>> {
    let text = std::str::from_utf8(password).ok();
    let prepared = text.and_then(|text| stringprep::saslprep(text).ok());
    Zeroizing::new(match prepared {
        Some(prepared) if !prepared.is_empty() => prepared.into_owned().into_bytes(),
        _ => password.to_vec(),
    })
}

/// `SaltedPassword`: Hi(password, salt, iterations), which is PBKDF2 with one block (RFC 5802, section 2.2).
fn salted_password(password: &[u8], hashing: &Hashing) -> Zeroizing<Key> {
    let keyed = keyed(password);
    let first = keyed.clone().chain_update(&hashing.salt).chain_update(1_u32.to_be_bytes());
    let mut block: Key = first.finalize().into_bytes().into();
    let mut sum = Zeroizing::new(block);
    for _ in 1..hashing.iterations {
        block = keyed.clone().chain_update(block).finalize().into_bytes().into();
        xor(&mut sum, &block);
    }
    block.zeroize();
    sum
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    parts.iter().fold(keyed(key), |mac, part| mac.chain_update(part)).finalize().into_bytes().into()
}

fn hash(bytes: &[u8]) -> Key {
    Sha256::digest(bytes).into()
}

fn xor(sum: &mut Key, other: &Key) {
    for (byte, other) in sum.iter_mut().zip(other) {
        *byte ^= other;
    }
}

/// ClientSignature or ServerSignature over the messages so far, `AuthMessage` (RFC 5802, section 3).
fn signature(key: &Key, first_bare: &[u8], server_first: &[u8], without_proof: &[u8]) -> Key {
    hmac(key, &[first_bare, b",", server_first, b",", without_proof])
}

#[cfg(test)]
mod tests;
