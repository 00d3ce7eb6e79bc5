//! The server's side: [`challenge`] answers the client's first message, [`Exchange::finish`] its last.
//!
//! An exchange is used up by its end and has a nonce of its own, so no message counts twice. Departure from
//! PostgreSQL: an empty client nonce is refused, as RFC 5802's syntax has it.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::message::{Attributes, is_printable};
use super::{
    BASE64, Key, Keys, Nonce, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, Verifier, hash, read_key,
    signature, xor,
};
use base64::Engine;

/// Why an exchange failed. The text is PostgreSQL's message for the client, except [`Error::Proof`]'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client wants a mechanism that wasn't offered.
    #[error("client selected an invalid SASL authentication mechanism")]
    Mechanism,
    /// The message isn't as RFC 5802 has it; with what PostgreSQL tells as detail.
    #[error("malformed SCRAM message")]
    Malformed(&'static str),
    /// The last message doesn't belong to this exchange.
    #[error("invalid SCRAM response")]
    Nonce,
    /// The client wants to log in as one role and be another.
    #[error("client uses authorization identity, but it is not supported")]
    AuthorizationIdentity,
    /// A mandatory extension; RFC 5802 knows none yet.
    #[error("client requires an unsupported SCRAM extension")]
    Extension,
    /// A binding to something other than the server's certificate.
    #[error("unsupported SCRAM channel-binding type")]
    BindingType,
    /// The client could bind to the TLS connection, but thinks that we can't: someone between changed the list
    /// of mechanisms.
    #[error("SCRAM channel binding negotiation error")]
    Downgrade,
    /// The client's TLS connection ends at another certificate: someone is between.
    #[error("SCRAM channel binding check failed")]
    Binding,
    /// The password is wrong, or the role has none or doesn't exist.
    #[error("password authentication failed")]
    Proof,
}

impl Error {
    /// The SQLSTATE with which PostgreSQL refuses.
    #[must_use]
    pub fn sqlstate(self) -> &'static str {
        match self {
            Error::Mechanism | Error::Malformed(_) | Error::Nonce | Error::BindingType => "08P01",
            Error::AuthorizationIdentity | Error::Extension => "0A000",
            Error::Downgrade | Error::Binding => "28000",
            Error::Proof => "28P01",
        }
    }

    /// What PostgreSQL tells as detail.
    #[must_use]
    pub fn detail(self) -> Option<&'static str> {
        match self {
            Error::Malformed(detail) => Some(detail),
            Error::Nonce => Some("Nonce does not match."),
            Error::Downgrade => Some(
                "The client supports SCRAM channel binding but thinks the server does not.  However, this \
                 server does support channel binding.",
            ),
            _ => None,
        }
    }
}

/// The mechanisms to offer, the better one first.
#[must_use]
pub fn mechanisms(tls: bool) -> &'static [&'static str] {
    if tls { &[SCRAM_SHA_256_PLUS, SCRAM_SHA_256] } else { &[SCRAM_SHA_256] }
}

/// An exchange that awaits the client's last message.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    /// What the client's last message must have as `c`.
    binding: Binding,
    first_bare: Vec<u8>,
    server_first: String,
    /// The client's, then ours.
    nonce: Vec<u8>,
}

#[derive(Debug)]
enum Binding {
    /// Not used: a constant.
    None(&'static [u8]),
    /// The header and the certificate's hash.
    EndPoint(Vec<u8>),
}

/// Answers a client's first message: its mechanism and its data from SASLInitialResponse. `certificate_hash` is
/// that of the TLS connection's own certificate for `tls-server-end-point`; `None` without TLS, when only
/// SCRAM-SHA-256 was offered. Returns the data of AuthenticationSASLContinue.
///
/// # Errors
/// The client can't be let in.
pub fn challenge(
    verifier: Verifier,
    certificate_hash: Option<&[u8]>,
    mechanism: &str,
    client_first: &[u8],
    nonce: &Nonce,
) -> Result<(String, Exchange), Error> {
    let bound_to = match (mechanism, certificate_hash) {
        (SCRAM_SHA_256, _) => None,
        (SCRAM_SHA_256_PLUS, Some(hash)) => Some(hash),
        _ => return Err(Error::Mechanism),
    };
    let mut message = Attributes::new(client_first).map_err(Error::Malformed)?;
    let binding = header(&mut message, bound_to, certificate_hash.is_some())?;
    let first_bare = message.rest().to_vec();
    let client_nonce = bare(message)?;
    if !is_printable(client_nonce) {
        return Err(Error::Malformed("Non-printable characters in SCRAM nonce."));
    }
    // Printable ASCII, as was just checked.
    let client_nonce = String::from_utf8_lossy(client_nonce);
    let nonce = format!("{client_nonce}{}", nonce.0);
    let salt = BASE64.encode(&verifier.hashing.salt);
    let server_first = format!("r={nonce},s={salt},i={}", verifier.hashing.iterations);
    let nonce = nonce.into_bytes();
    let answer = server_first.clone();
    Ok((answer, Exchange { verifier, binding, first_bare, server_first, nonce }))
}

/// Reads the `gs2-header`, by the rules of RFC 5802, section 6. `bound_to` is the certificate's hash if the client
/// selected SCRAM-SHA-256-PLUS, `offered` whether it could.
fn header(
    message: &mut Attributes<'_>,
    bound_to: Option<&[u8]>,
    offered: bool,
) -> Result<Binding, Error> {
    let binding = match (message.rest()[0], bound_to) {
        (b'n' | b'y', Some(_)) => return Err(Error::Malformed(NOT_BOUND)),
        (b'y', None) if offered => return Err(Error::Downgrade),
        (b'n', None) => Binding::None(b"biws"), // n,,
        (b'y', None) => Binding::None(b"eSws"), // y,,
        (b'p', Some(hash)) => Binding::EndPoint(client_binding(hash)),
        (b'p', None) => return Err(Error::Malformed(BOUND)),
        _ => return Err(Error::Malformed("Unexpected channel-binding flag.")),
    };
    match &binding {
        Binding::None(_) => message
            .skip(b"n,")
            .or_else(|| message.skip(b"y,"))
            .ok_or(Error::Malformed("Comma expected."))?,
        Binding::EndPoint(_) if message.value(b'p').map_err(Error::Malformed)? != END_POINT => {
            return Err(Error::BindingType);
        }
        Binding::EndPoint(_) => {}
    }
    match message.rest().first() {
        Some(b'a') => return Err(Error::AuthorizationIdentity),
        _ => message
            .skip(b",")
            .ok_or(Error::Malformed("Unexpected attribute in client-first-message."))?,
    }
    Ok(binding)
}

const NOT_BOUND: &str = "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel \
    binding data.";
const BOUND: &str = "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes \
    channel binding data.";

/// The binding's type.
pub(super) const END_POINT: &[u8] = b"tls-server-end-point";

/// `cbind-input`: the header and the certificate's hash, as base64.
pub(super) fn client_binding(certificate_hash: &[u8]) -> Vec<u8> {
    let input = [b"p=".as_slice(), END_POINT, b",,", certificate_hash].concat();
    BASE64.encode(input).into_bytes()
}

/// The nonce of `client-first-message-bare`. Extensions behind it are ignored.
fn bare<'a>(mut message: Attributes<'a>) -> Result<&'a [u8], Error> {
    if message.rest().first() == Some(&b'm') {
        return Err(Error::Extension);
    }
    message.value(b'n').map_err(Error::Malformed)?;
    let nonce = message.value(b'r').map_err(Error::Malformed)?;
    while !message.is_at_end() {
        message.any().map_err(Error::Malformed)?;
    }
    Ok(nonce)
}

/// The client's last message.
struct Last<'a> {
    nonce: &'a [u8],
    without_proof: &'a [u8],
    proof: Key,
}

impl Exchange {
    /// Checks the client's last message. Returns the data of AuthenticationSASLFinal, and the client's keys.
    ///
    /// # Errors
    /// The client can't be let in.
    pub fn finish(self, client_final: &[u8]) -> Result<(String, Keys), Error> {
        let last = self.read(client_final)?;
        if !bool::from(last.nonce.ct_eq(&self.nonce)) {
            return Err(Error::Nonce);
        }
        let Verifier { stored_key, server_key, .. } = &self.verifier;
        let client_signature = self.sign(stored_key, last.without_proof);
        let mut client_key = Zeroizing::new(last.proof);
        xor(&mut client_key, &client_signature);
        let fits = hash(client_key.as_slice()).ct_eq(stored_key);
        if !bool::from(fits) || self.verifier.is_mock {
            return Err(Error::Proof);
        }
        let server_signature = self.sign(server_key, last.without_proof);
        let hashing = self.verifier.hashing.clone();
        let keys = Keys { hashing, client_key: *client_key, server_key: *server_key };
        Ok((format!("v={}", BASE64.encode(server_signature)), keys))
    }

    fn sign(&self, key: &Key, without_proof: &[u8]) -> Key {
        signature(key, &self.first_bare, self.server_first.as_bytes(), without_proof)
    }

    fn read<'a>(&self, client_final: &'a [u8]) -> Result<Last<'a>, Error> {
        let mut message = Attributes::new(client_final).map_err(Error::Malformed)?;
        let binding = message.value(b'c').map_err(Error::Malformed)?;
        match &self.binding {
            Binding::None(expected) if binding != *expected => {
                return Err(Error::Malformed(
                    "Unexpected SCRAM channel-binding attribute in client-final-message.",
                ));
            }
            Binding::EndPoint(expected) if !bool::from(binding.ct_eq(expected)) => {
                return Err(Error::Binding);
            }
            _ => {}
        }
        let nonce = message.value(b'r').map_err(Error::Malformed)?;
        // Extensions before the proof are ignored, but signed.
        let (without_proof, proof) = loop {
            let without_proof = message.read();
            if let (b'p', proof) = message.any().map_err(Error::Malformed)? {
                break (without_proof, proof);
            }
        };
        let proof =
            read_key(proof).ok_or(Error::Malformed("Malformed proof in client-final-message."))?;
        if !message.is_at_end() {
            return Err(Error::Malformed("Garbage found at the end of client-final-message."));
        }
        Ok(Last { nonce, without_proof, proof })
    }
}
