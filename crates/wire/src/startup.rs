//! The first packet of a connection: no tag, a length, a code (manual, "Start-up").

use bytes::{BufMut, BytesMut};

use crate::{Fields, ProtocolError, Result};

/// Protocol 3.0.
pub const VERSION_3: i32 = 3 << 16;
const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;
/// What PostgreSQL accepts at most (`MAX_STARTUP_PACKET_LENGTH`).
pub const PACKET_LEN_MAX: usize = 10_000;
/// Cancel keys have 4 bytes up to protocol 3.0 and up to 256 from 3.2 on.
pub const CANCEL_KEY_LEN_MAX: usize = 256;

/// What a client opens a connection with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// Asks for TLS; answered with one byte.
    Ssl,
    /// Asks for GSSAPI encryption; answered with one byte.
    Gss,
    /// Cancels what another connection runs; has no answer.
    Cancel {
        /// Number of the connection to cancel, from its BackendKeyData.
        process: i32,
        /// The secret from the same message.
        secret: Vec<u8>,
    },
    /// Opens a session.
    Startup(Startup),
}

/// The parameters of a session as the client sent them, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Startup {
    /// Requested minor version of protocol 3; above 0 is answered with NegotiateProtocolVersion.
    pub minor: u16,
    /// Names and values, `user` and `database` among them.
    pub parameters: Vec<(String, String)>,
}

impl Startup {
    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Writes the request for TLS.
pub fn ssl_request(out: &mut BytesMut) {
    out.put_i32(8);
    out.put_i32(SSL_REQUEST);
}

/// Takes the first packet off the buffer; `None` while it is not whole.
pub fn parse(buffer: &mut BytesMut) -> Result<Option<Packet>> {
    let Some(&header) = buffer.first_chunk::<4>() else { return Ok(None) };
    let announced = i32::from_be_bytes(header);
    let len = usize::try_from(announced).unwrap_or(0);
    if !(8..=PACKET_LEN_MAX).contains(&len) {
        return Err(ProtocolError::Stranger);
    }
    if buffer.len() < len {
        return Ok(None);
    }
    let packet = buffer.split_to(len);
    let mut fields = Fields::new(b'*', &packet[4..]);
    match fields.i32()? {
        SSL_REQUEST => Ok(Some(Packet::Ssl)),
        GSS_REQUEST => Ok(Some(Packet::Gss)),
        CANCEL_REQUEST => {
            let process = fields.i32().map_err(|_| ProtocolError::Stranger)?;
            Ok(Some(Packet::Cancel { process, secret: fields.rest().to_vec() }))
        }
        version if version >> 16 == 3 => Ok(Some(Packet::Startup(parameters(version, fields)?))),
        version => {
            let (major, minor) = ((version >> 16) as u16, (version & 0xFFFF) as u16);
            Err(ProtocolError::Version(major, minor))
        }
    }
}

fn parameters(version: i32, mut fields: Fields<'_>) -> Result<Startup> {
    let mut parameters = Vec::new();
    loop {
        let name = text(&mut fields)?;
        if name.is_empty() {
            break;
        }
        parameters.push((name, text(&mut fields)?));
    }
    Ok(Startup { minor: (version & 0xFFFF) as u16, parameters })
}

fn text(fields: &mut Fields<'_>) -> Result<String> {
    let bytes = fields.cstr()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| fields.error())
}

/// Writes the packet that opens a session.
pub fn startup<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>, out: &mut BytesMut) {
    let start = out.len();
    out.put_i32(0);
    out.put_i32(VERSION_3);
    for (name, value) in parameters {
        out.put_slice(name.as_bytes());
        out.put_u8(0);
        out.put_slice(value.as_bytes());
        out.put_u8(0);
    }
    out.put_u8(0);
    let len = i32::try_from(out.len() - start).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// Writes the packet that cancels what a server's backend runs.
pub fn cancel(process: i32, secret: &[u8], out: &mut BytesMut) {
    out.put_i32(i32::try_from(12 + secret.len()).unwrap_or(i32::MAX));
    out.put_i32(CANCEL_REQUEST);
    out.put_i32(process);
    out.put_slice(secret);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_goes_round() {
        let mut buffer = BytesMut::new();
        startup([("user", "joe"), ("options", "-c a=b")], &mut buffer);
        let short = &mut BytesMut::from(&buffer[..buffer.len() - 1]);
        assert_eq!(parse(short), Ok(None));
        let Ok(Some(Packet::Startup(packet))) = parse(&mut buffer) else {
            panic!("not a startup packet")
        };
        assert_eq!(packet.get("user"), Some("joe"));
        assert_eq!(packet.get("options"), Some("-c a=b"));
        assert!(buffer.is_empty());
    }

    #[test]
    fn cancel_goes_round() {
        let mut buffer = BytesMut::new();
        cancel(7, &[1, 2, 3, 4], &mut buffer);
        let expected = Packet::Cancel { process: 7, secret: vec![1, 2, 3, 4] };
        assert_eq!(parse(&mut buffer), Ok(Some(expected)));
    }

    #[test]
    fn oversized_and_unterminated_packets_are_refused() {
        assert!(parse(&mut BytesMut::from(&b"GET / HTTP/1.1"[..])).is_err());
        let unterminated = b"\0\0\0\x0c\0\x03\0\0user";
        assert!(parse(&mut BytesMut::from(&unterminated[..])).is_err());
    }
}
