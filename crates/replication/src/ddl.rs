//! The envelope in which our own sessions put DDL into the primary's log, so that nobody else
//! can: any role may emit a logical message, hence a message counts only with a MAC that needs
//! the cluster key (I6; manual, `pg_logical_emit_message`).
//!
//! The text is `<64 hex digits of HMAC-SHA-256>:<JSON>`, ASCII only, because the stream carries
//! messages in the database's encoding. The MAC covers the JSON, which names the transaction (so
//! that a copy is worth nothing in another one) and the message's sequence number within it (so
//! that a copy is worth nothing later in the same one).

use std::fmt;

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::entry::Ddl;
use crate::ids::Xid;

/// Prefix of the messages that carry DDL.
pub const PREFIX: &str = "hihooi";
/// Prefix of messages that only make the primary flush its log; their content means nothing.
pub const FLUSH_PREFIX: &str = "hihooi_flush";
/// Version of the envelope.
const VERSION: u8 = 1;
/// Hex digits of the MAC.
const MAC_LEN: usize = 64;

/// The cluster's secret. It is in no database and in no log line.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey(pub [u8; 32]);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

/// Why a message does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Not made with this cluster's key, or changed since.
    #[error("its authentication code is wrong")]
    Forged,
    /// Made for another transaction.
    #[error("it was made for another transaction")]
    OtherTransaction,
    /// Authentic, but not newer than another one of its transaction.
    #[error("it was seen before in its transaction")]
    Replayed,
    /// Authentic, but of a version we don't know.
    #[error("it has an unknown format version")]
    Version,
}

#[derive(Serialize, Deserialize)]
struct Body {
    v: u8,
    xid: u64,
    n: u32,
    text: String,
    role: String,
    settings: Vec<(String, String)>,
    outside: bool,
    /// The statement as the client sent it, where `text` isn't that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent: Option<String>,
    /// See [`Announced::is_settled`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    settled: bool,
}

/// What one of our sessions says of DDL that it is about to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announced {
    /// What replicas run.
    pub ddl: Ddl,
    /// The statement that the primary runs, where replicas run another one in its place.
    pub sent: Option<String>,
    /// Where the primary computes values for rows that are there, replicas compute the same.
    pub is_settled: bool,
}

impl Announced {
    /// The statement that the primary runs, which its event triggers tell of.
    #[must_use]
    pub fn on_primary(&self) -> &str {
        self.sent.as_deref().unwrap_or(&self.ddl.text)
    }
}

impl From<&Ddl> for Announced {
    /// A statement that is the same everywhere, of which it isn't known what it computes.
    fn from(ddl: &Ddl) -> Announced {
        Announced { ddl: ddl.clone(), sent: None, is_settled: false }
    }
}

/// The text for `pg_logical_emit_message(true, 'hihooi', text)` in front of a DDL statement.
/// `xid` is the transaction's own id; `sequence` must rise strictly within the transaction.
#[must_use]
pub fn seal(key: &ClusterKey, xid: Xid, sequence: u32, announced: impl Into<Announced>) -> String {
    let Announced { ddl, sent, is_settled } = announced.into();
    let body = Body {
        v: VERSION,
        xid: xid.0,
        n: sequence,
        text: ddl.text,
        role: ddl.role,
        settings: ddl.settings,
        outside: ddl.outside_transaction,
        sent,
        settled: is_settled,
    };
    let json = serde_json::to_string(&body).expect("strings and numbers always serialise");
    let json = ascii(&json);
    let mac = mac(key, json.as_bytes()).finalize().into_bytes();
    let mut text = String::with_capacity(MAC_LEN + 1 + json.len());
    for byte in mac {
        text.push_str(&format!("{byte:02x}"));
    }
    text.push(':');
    text.push_str(&json);
    text
}

/// The sequence number and the content of a message that stands in the transaction whose id has the
/// low bits `xid`.
///
/// # Errors
/// [`Refused`]: the message must be ignored. The MAC is compared in constant time.
pub fn open(key: &ClusterKey, xid: u32, message: &[u8]) -> Result<(u32, Announced), Refused> {
    let (code, rest) = message.split_at_checked(MAC_LEN).ok_or(Refused::Forged)?;
    let json = rest.strip_prefix(b":").ok_or(Refused::Forged)?;
    let code = from_hex(code).ok_or(Refused::Forged)?;
    mac(key, json).verify_slice(&code).map_err(|_| Refused::Forged)?;
    let body: Body = serde_json::from_slice(json).map_err(|_| Refused::Version)?;
    if body.v != VERSION {
        return Err(Refused::Version);
    }
    if Xid(body.xid).low() != xid {
        return Err(Refused::OtherTransaction);
    }
    let ddl = Ddl {
        text: body.text,
        role: body.role,
        settings: body.settings,
        outside_transaction: body.outside,
    };
    Ok((body.n, Announced { ddl, sent: body.sent, is_settled: body.settled }))
}

fn mac(key: &ClusterKey, json: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("HMAC takes keys of any length");
    mac.update(b"hihooi ddl\0");
    mac.update(json);
    mac
}

fn from_hex(text: &[u8]) -> Option<[u8; 32]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

/// The same JSON without characters beyond ASCII, which stand only inside its strings.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ClusterKey = ClusterKey([7; 32]);
    const XID: Xid = Xid(0x5_0000_0309);

    fn ddl() -> Ddl {
        Ddl {
            text: "CREATE TABLE \"Straße 🚋\" (a int)\n".to_owned(),
            role: "joe".to_owned(),
            settings: vec![("search_path".to_owned(), "a, \"ü\"".to_owned())],
            outside_transaction: false,
        }
    }

    /// DDL travels authenticated; it must come out as it went in, in any encoding.
    #[test]
    fn what_is_sealed_opens() {
        let text = seal(&KEY, XID, 4, &ddl());
        assert!(text.is_ascii());
        assert_eq!(open(&KEY, XID.low(), text.as_bytes()), Ok((4, Announced::from(&ddl()))));
        let other = Announced { ddl: ddl(), sent: Some("ALTER …".to_owned()), is_settled: true };
        let text = seal(&KEY, XID, 5, other.clone());
        assert_eq!(open(&KEY, XID.low(), text.as_bytes()), Ok((5, other)));
    }

    /// Any role can emit a message under our prefix.
    #[test]
    fn nothing_else_opens() {
        let text = seal(&KEY, XID, 4, &ddl());
        let other = ClusterKey([8; 32]);
        assert_eq!(open(&other, XID.low(), text.as_bytes()), Err(Refused::Forged));
        assert_eq!(open(&KEY, 1, text.as_bytes()), Err(Refused::OtherTransaction));
        assert_eq!(open(&KEY, XID.low(), b"alter role joe superuser"), Err(Refused::Forged));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(open(&KEY, XID.low(), &bytes), Err(Refused::Forged), "byte {at}");
            assert!(open(&KEY, XID.low(), &text.as_bytes()[..at]).is_err());
        }
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{KEY:?}"), "ClusterKey(..)");
    }
}
