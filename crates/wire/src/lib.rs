//! The PostgreSQL wire protocol, version 3.0: encodes and decodes messages in both directions (manual, chapter
//! "Frontend/Backend Protocol"). Pure: buffers in, buffers out.
//!
//! - [`frame`]: where a message ends, which is all that is needed to relay results.
//! - [`startup`]: the untagged first packet of a connection.
//! - [`authentication`]: how a client proves who it is.
//! - [`frontend`]: messages sent by a client, parsed and written.
//! - [`backend`]: messages sent by a server, written and parsed.

pub mod authentication;
pub mod backend;
pub mod frame;
pub mod frontend;
pub mod startup;
#[cfg(test)]
mod strangers;

/// Bytes that are not the protocol: the connection can only be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A length field below its minimum or above what the receiver accepts.
    #[error("invalid message length {0}")]
    Length(i64),
    /// A tag byte that no message of this direction has.
    #[error("invalid frontend message type {0}")]
    Tag(u8),
    /// A first packet that is nobody's who speaks this protocol: PostgreSQL closes without a word.
    #[error("no start-up packet")]
    Stranger,
    /// A version of the protocol other than 3.
    #[error("unsupported frontend protocol {0}.{1}: server supports 3.0 to 3.0")]
    Version(u16, u16),
    /// The inside of a message does not have the form that its tag promises.
    #[error("invalid format of message {0:?}")]
    Format(char),
}

/// The result of reading protocol bytes.
pub type Result<T> = std::result::Result<T, ProtocolError>;

/// Reads the fields of one message body in order.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    tag: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// A reader at the first byte of the body of message `tag`.
    #[must_use]
    pub fn new(tag: u8, body: &'a [u8]) -> Fields<'a> {
        Fields { tag, rest: body }
    }

    /// What has not been read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The error for a body that does not fit its tag.
    #[must_use]
    pub fn error(&self) -> ProtocolError {
        ProtocolError::Format(char::from(self.tag))
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(self.error())?;
        self.rest = rest;
        Ok(head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    /// A big-endian 16-bit integer.
    pub fn i16(&mut self) -> Result<i16> {
        let bytes = self.bytes(2)?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A big-endian 32-bit integer.
    pub fn i32(&mut self) -> Result<i32> {
        let bytes = self.bytes(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A big-endian 64-bit integer.
    pub fn i64(&mut self) -> Result<i64> {
        let mut word = [0; 8];
        word.copy_from_slice(self.bytes(8)?);
        Ok(i64::from_be_bytes(word))
    }

    /// A string up to its terminating zero byte, which is skipped. Not necessarily UTF-8: the
    /// encoding is the client's.
    pub fn cstr(&mut self) -> Result<&'a [u8]> {
        let end = memchr::memchr(0, self.rest).ok_or_else(|| self.error())?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// A value with its length in front; -1 is NULL.
    pub fn value(&mut self) -> Result<Option<&'a [u8]>> {
        match self.i32()? {
            -1 => Ok(None),
            len => Ok(Some(self.bytes(usize::try_from(len).map_err(|_| self.error())?)?)),
        }
    }
}
