//! Frames: a tag byte, a length that includes itself, a body.

use crate::{ProtocolError, Result};

/// Bytes in front of a message's body.
pub const HEADER_LEN: usize = 5;
/// What PostgreSQL itself accepts at most as one message of a client (`PQ_LARGE_MESSAGE_LIMIT`,
/// the largest allocation less one).
pub const MESSAGE_LEN_MAX: usize = 0x3FFF_FFFF;

/// The first message in a buffer, which may not have arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The message's type.
    pub tag: u8,
    /// Bytes of the whole message, tag and length included.
    pub len: usize,
}

/// The header of the message that starts at the buffer's first byte, or `None` while fewer than
/// [`HEADER_LEN`] bytes are there.
pub fn peek(buffer: &[u8]) -> Result<Option<Frame>> {
    let Some(header) = buffer.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let len = i32::from_be_bytes([header[1], header[2], header[3], header[4]]);
    let body = usize::try_from(len).map_err(|_| ProtocolError::Length(len.into()))?;
    if !(4..=MESSAGE_LEN_MAX).contains(&body) {
        return Err(ProtocolError::Length(len.into()));
    }
    Ok(Some(Frame { tag: header[0], len: body + 1 }))
}

/// The first message if it has arrived whole: its tag, its bytes with the header.
pub fn whole(buffer: &[u8]) -> Result<Option<(u8, &[u8])>> {
    Ok(peek(buffer)?.and_then(|frame| buffer.get(..frame.len).map(|bytes| (frame.tag, bytes))))
}

/// The body of a whole message.
#[must_use]
pub fn body(message: &[u8]) -> &[u8] {
    &message[HEADER_LEN..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peek_waits_for_the_header_and_refuses_bad_lengths() {
        assert_eq!(peek(b"Q\0\0\0"), Ok(None));
        assert_eq!(peek(b"S\0\0\0\x04"), Ok(Some(Frame { tag: b'S', len: 5 })));
        assert_eq!(peek(b"S\0\0\0\x03"), Err(ProtocolError::Length(3)));
        assert_eq!(peek(b"S\xff\xff\xff\xff"), Err(ProtocolError::Length(-1)));
        assert_eq!(peek(b"S\x7f\xff\xff\xff"), Err(ProtocolError::Length(0x7fff_ffff)));
    }

    #[test]
    fn whole_waits_for_the_last_byte() {
        assert_eq!(whole(b"Q\0\0\0\x06a"), Ok(None));
        assert_eq!(whole(b"Q\0\0\0\x06a\0S"), Ok(Some((b'Q', &b"Q\0\0\0\x06a\0"[..]))));
    }
}
