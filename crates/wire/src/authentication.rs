//! Messages by which a client proves who it is (manual, "Start-up" and "SASL Authentication"), for both sides.

use bytes::{BufMut, BytesMut};

use crate::backend::tag as server_tag;
use crate::frontend::{message, tag};
use crate::{Fields, Result};

const OK: i32 = 0;
const CLEARTEXT: i32 = 3;
const MD5: i32 = 5;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// What a server asks for, or says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Nothing more: the client is who it says.
    Ok,
    /// The password in clear text.
    Cleartext,
    /// The password's md5 hash, hashed with this salt.
    Md5([u8; 4]),
    /// An exchange by one of these mechanisms, the server's choice first.
    Sasl(Vec<&'a [u8]>),
    /// The exchange goes on.
    SaslContinue(&'a [u8]),
    /// The exchange has ended well, and what proves that to the client.
    SaslFinal(&'a [u8]),
    /// Something else, by its number.
    Other(i32),
}

impl<'a> Request<'a> {
    /// Reads the body of an Authentication message.
    ///
    /// # Errors
    /// It doesn't have the form that its number promises.
    pub fn read(body: &'a [u8]) -> Result<Request<'a>> {
        let mut fields = Fields::new(server_tag::AUTHENTICATION, body);
        Ok(match fields.i32()? {
            OK => Request::Ok,
            CLEARTEXT => Request::Cleartext,
            MD5 => {
                let salt = fields.bytes(4)?;
                Request::Md5([salt[0], salt[1], salt[2], salt[3]])
            }
            SASL => {
                let mut mechanisms = Vec::new();
                loop {
                    match fields.cstr()? {
                        [] => break Request::Sasl(mechanisms),
                        mechanism => mechanisms.push(mechanism),
                    }
                }
            }
            SASL_CONTINUE => Request::SaslContinue(fields.rest()),
            SASL_FINAL => Request::SaslFinal(fields.rest()),
            other => Request::Other(other),
        })
    }

    /// Writes the message.
    pub fn write(&self, out: &mut BytesMut) {
        message(server_tag::AUTHENTICATION, out, |out| match self {
            Request::Ok => out.put_i32(OK),
            Request::Cleartext => out.put_i32(CLEARTEXT),
            Request::Md5(salt) => {
                out.put_i32(MD5);
                out.put_slice(salt);
            }
            Request::Sasl(mechanisms) => {
                out.put_i32(SASL);
                for mechanism in mechanisms {
                    out.put_slice(mechanism);
                    out.put_u8(0);
                }
                out.put_u8(0);
            }
            Request::SaslContinue(data) => {
                out.put_i32(SASL_CONTINUE);
                out.put_slice(data);
            }
            Request::SaslFinal(data) => {
                out.put_i32(SASL_FINAL);
                out.put_slice(data);
            }
            Request::Other(number) => out.put_i32(*number),
        });
    }
}

/// Writes a password, in clear text or as its md5 response.
pub fn password(text: &[u8], out: &mut BytesMut) {
    message(tag::PASSWORD, out, |out| {
        out.put_slice(text);
        out.put_u8(0);
    });
}

/// Reads a password. What stands behind its terminator counts as wrong.
///
/// # Errors
/// It has no terminator, or it isn't at the end.
pub fn read_password(body: &[u8]) -> Result<&[u8]> {
    let mut fields = Fields::new(tag::PASSWORD, body);
    let text = fields.cstr()?;
    fields.rest().is_empty().then_some(text).ok_or(fields.error())
}

/// Writes the first message of a client in a SASL exchange.
pub fn sasl_initial(mechanism: &[u8], data: &[u8], out: &mut BytesMut) {
    message(tag::PASSWORD, out, |out| {
        out.put_slice(mechanism);
        out.put_u8(0);
        out.put_i32(i32::try_from(data.len()).unwrap_or(i32::MAX));
        out.put_slice(data);
    });
}

/// Reads it: the mechanism, and what belongs to that, if anything was sent.
///
/// # Errors
/// Its length isn't what it says.
pub fn read_sasl_initial(body: &[u8]) -> Result<(&[u8], Option<&[u8]>)> {
    let mut fields = Fields::new(tag::PASSWORD, body);
    let mechanism = fields.cstr()?;
    let data = match usize::try_from(fields.i32()?) {
        Ok(len) => Some(fields.bytes(len)?),
        Err(_) => None,
    };
    fields.rest().is_empty().then_some((mechanism, data)).ok_or(fields.error())
}

/// Writes a further message of a client in a SASL exchange.
pub fn sasl_response(data: &[u8], out: &mut BytesMut) {
    message(tag::PASSWORD, out, |out| out.put_slice(data));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one side writes the other reads, and every prefix of it is an error or something else.
    #[test]
    fn messages_read_back() {
        let requests = [
            Request::Ok,
            Request::Cleartext,
            Request::Md5([1, 0, 255, 7]),
            Request::Sasl(vec![b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"]),
            Request::SaslContinue(b"r=abc"),
            Request::SaslFinal(b"v=abc"),
            Request::Other(9),
        ];
        for request in requests {
            let mut out = BytesMut::new();
            request.write(&mut out);
            assert_eq!(Request::read(&out[5..]).as_ref(), Ok(&request));
            for len in 0..out.len() - 5 {
                assert_ne!(Request::read(&out[5..5 + len]).as_ref(), Ok(&request), "{len}");
            }
        }
        let mut out = BytesMut::new();
        password(b"secret", &mut out);
        assert_eq!(read_password(&out[5..]), Ok(&b"secret"[..]));
        assert!(read_password(b"secret").is_err() && read_password(b"secret\0more\0").is_err());
        let mut out = BytesMut::new();
        sasl_initial(b"SCRAM-SHA-256", b"n,,n=,r=abc", &mut out);
        let expected = (&b"SCRAM-SHA-256"[..], Some(&b"n,,n=,r=abc"[..]));
        assert_eq!(read_sasl_initial(&out[5..]), Ok(expected));
        assert_eq!(read_sasl_initial(b"X\0\xff\xff\xff\xff"), Ok((&b"X"[..], None)));
        assert!(read_sasl_initial(b"X\0\0\0\0\x05abc").is_err());
        assert!(read_sasl_initial(b"X\0\0\0\0\x01abc").is_err());
    }
}
