//! The syntax of all messages: attributes, each a letter, `=` and a value, separated by commas (RFC 5802,
//! section 5.1).

use super::MESSAGE_LEN_MAX;

/// What a message should have had, in PostgreSQL's words where it has the same error.
pub(super) type Malformed = &'static str;

/// Reads attributes in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(message: &'a [u8]) -> Result<Attributes<'a>, Malformed> {
        match message.len() {
            0 => Err("The message is empty."),
            len if len > MESSAGE_LEN_MAX => Err("The message is too long."),
            _ if message.contains(&0) => Err("Message length does not match input length."),
            _ => Ok(Attributes { message, at: 0 }),
        }
    }

    /// What has not been read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.message[self.at..]
    }

    /// What was read, without the comma behind it.
    pub(super) fn read(&self) -> &'a [u8] {
        let read = &self.message[..self.at];
        read.strip_suffix(b",").unwrap_or(read)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.message.len()
    }

    /// Skips this, or says that it isn't here.
    pub(super) fn skip(&mut self, expected: &[u8]) -> Option<()> {
        self.rest().starts_with(expected).then(|| self.at += expected.len())
    }

    /// The value of the attribute that must come next; it may be empty.
    pub(super) fn value(&mut self, attribute: u8) -> Result<&'a [u8], Malformed> {
        match self.any()? {
            (found, value) if found == attribute => Ok(value),
            _ => Err("Another attribute was expected."),
        }
    }

    /// The next attribute, whatever it is, and its value.
    pub(super) fn any(&mut self) -> Result<(u8, &'a [u8]), Malformed> {
        let rest = self.rest();
        let [attribute, b'=', value @ ..] = rest else {
            return Err("Attribute and \"=\" expected.");
        };
        if !attribute.is_ascii_alphabetic() {
            return Err("Attribute expected, but found invalid character.");
        }
        let len = value.iter().position(|&byte| byte == b',').unwrap_or(value.len());
        if len + 1 == value.len() {
            return Err("Attribute expected, but found end of string.");
        }
        self.at += (2 + len + 1).min(rest.len());
        Ok((*attribute, &value[..len]))
    }
}

/// Whether a nonce may have this value: not empty, printable ASCII; the comma can't be in a value.
pub(super) fn is_printable(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_graphic)
}
