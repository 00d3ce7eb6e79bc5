//! The client's side of a session: the bytes that were received from it and not processed yet, and the bytes to
//! be sent to it.

use bytes::{Bytes, BytesMut};
use hihooi_wire::{ProtocolError, frame, frontend};

/// Nothing more is read from a server while this much waits for the client (I8).
pub(crate) const OUTPUT_MAX: usize = 256 * 1024;

/// A client's side of a session.
#[derive(Debug, Default)]
pub struct Downstream {
    /// What the client sent and was not looked at yet.
    pub input: BytesMut,
    /// What the client gets first: what comes behind it may yet be taken back, this not.
    pub settled: BytesMut,
    /// What the client gets.
    pub output: BytesMut,
    /// The client has gone: nothing can be read or written any more.
    pub gone: bool,
    /// Its process number, as it knows it.
    pub process: i32,
    /// `output` ends within a message, the rest of which the server has yet to send.
    pub is_amid_message: bool,
    /// Whoever waits for a server wants to know when the client goes.
    pub tells_leaving: bool,
}

/// One message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its type (see [`hihooi_wire::frontend::tag`]).
    pub tag: u8,
    /// The whole message, tag and length included.
    pub bytes: Bytes,
}

impl Message {
    /// The message's body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        frame::body(&self.bytes)
    }
}

impl Downstream {
    /// Whatever comes behind it, the client gets what there is so far.
    pub fn settle(&mut self) {
        if self.settled.is_empty() {
            std::mem::swap(&mut self.settled, &mut self.output);
        } else {
            self.settled.extend_from_slice(&self.output);
            self.output.clear();
        }
    }

    /// Bytes that the client has yet to take.
    #[must_use]
    pub fn untold(&self) -> usize {
        self.settled.len() + self.output.len()
    }

    /// The next message if it has arrived whole.
    ///
    /// # Errors
    /// Bytes that are no message of a client.
    pub fn buffered(&mut self) -> Result<Option<Message>, ProtocolError> {
        let Some(head) = frame::peek(&self.input)? else { return Ok(None) };
        if !frontend::is_known(head.tag) {
            return Err(ProtocolError::Tag(head.tag));
        }
        if self.input.len() < head.len {
            return Ok(None);
        }
        Ok(Some(Message { tag: head.tag, bytes: self.input.split_to(head.len).freeze() }))
    }
}
