//! Messages sent by a server: written when hihooi answers a client itself, parsed when hihooi is the client.

use bytes::{BufMut, BytesMut};

use crate::frontend::{message, put_value};
use crate::{Fields, Result};

/// Tags of a server's messages.
pub mod tag {
    #![allow(missing_docs, reason = "the names are those of the protocol's messages")]
    pub const AUTHENTICATION: u8 = b'R';
    pub const BACKEND_KEY_DATA: u8 = b'K';
    pub const BIND_COMPLETE: u8 = b'2';
    pub const CLOSE_COMPLETE: u8 = b'3';
    pub const COMMAND_COMPLETE: u8 = b'C';
    pub const COPY_BOTH: u8 = b'W';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_IN: u8 = b'G';
    pub const COPY_OUT: u8 = b'H';
    pub const DATA_ROW: u8 = b'D';
    pub const EMPTY_QUERY: u8 = b'I';
    pub const ERROR: u8 = b'E';
    pub const FUNCTION_CALL_RESPONSE: u8 = b'V';
    pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
    pub const NO_DATA: u8 = b'n';
    pub const NOTICE: u8 = b'N';
    pub const NOTIFICATION: u8 = b'A';
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    pub const PARAMETER_STATUS: u8 = b'S';
    pub const PARSE_COMPLETE: u8 = b'1';
    pub const PORTAL_SUSPENDED: u8 = b's';
    pub const READY_FOR_QUERY: u8 = b'Z';
    pub const ROW_DESCRIPTION: u8 = b'T';
}

/// Transaction status of a session, as ReadyForQuery tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Status {
    /// Not in a transaction block.
    #[default]
    Idle,
    /// In a transaction block.
    Block,
    /// In a failed transaction block.
    Failed,
}

impl Status {
    /// Reads the status byte.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Status> {
        match byte {
            b'I' => Some(Status::Idle),
            b'T' => Some(Status::Block),
            b'E' => Some(Status::Failed),
            _ => None,
        }
    }

    /// The status byte.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Status::Idle => b'I',
            Status::Block => b'T',
            Status::Failed => b'E',
        }
    }
}

/// The fields of an ErrorResponse or NoticeResponse, all of them, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ErrorFields {
    /// Field code and text.
    pub fields: Vec<(u8, String)>,
}

impl ErrorFields {
    /// Reads the body of an ErrorResponse or NoticeResponse; texts in other encodings than UTF-8
    /// are read with replacement characters.
    pub fn read(body: &[u8]) -> Result<ErrorFields> {
        let mut reader = Fields::new(tag::ERROR, body);
        let mut fields = Vec::new();
        loop {
            match reader.u8()? {
                0 => return Ok(ErrorFields { fields }),
                code => {
                    let text = String::from_utf8_lossy(reader.cstr()?).into_owned();
                    fields.push((code, text));
                }
            }
        }
    }

    /// Writes an ErrorResponse with these fields.
    pub fn write(&self, out: &mut BytesMut) {
        message(tag::ERROR, out, |out| {
            for (code, text) in &self.fields {
                field(*code, text, out);
            }
            out.put_u8(0);
        });
    }

    /// The text of a field.
    #[must_use]
    pub fn get(&self, code: u8) -> Option<&str> {
        self.fields.iter().find(|(c, _)| *c == code).map(|(_, text)| text.as_str())
    }

    /// The SQLSTATE; empty if the server sent none.
    #[must_use]
    pub fn code(&self) -> &str {
        self.get(b'C').unwrap_or_default()
    }

    /// Whether the server ends the session with it.
    #[must_use]
    pub fn ends_session(&self) -> bool {
        matches!(self.get(b'V'), Some("FATAL" | "PANIC"))
    }

    /// The primary message.
    #[must_use]
    pub fn message(&self) -> &str {
        self.get(b'M').unwrap_or_default()
    }
}

impl std::fmt::Display for ErrorFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message(), self.code())?;
        self.get(b'D').map_or(Ok(()), |detail| write!(f, "; {detail}"))
    }
}

/// How serious an error of ours is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The session ends.
    Fatal,
    /// For information only.
    Notice,
    /// Something the user should look at.
    Warning,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
        }
    }
}

/// An error or notice that hihooi itself raises.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// How serious.
    pub severity: Severity,
    /// SQLSTATE, five characters.
    pub code: &'static str,
    /// What happened.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

impl Report {
    /// An error with a message.
    pub fn error(code: &'static str, message: impl Into<String>) -> Report {
        Report {
            severity: Severity::Error,
            code,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    /// An error that ends the session.
    pub fn fatal(code: &'static str, message: impl Into<String>) -> Report {
        Report { severity: Severity::Fatal, ..Report::error(code, message) }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Report {
        self.hint = Some(hint.into());
        self
    }

    /// Adds more about it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Report {
        self.detail = Some(detail.into());
        self
    }

    /// Writes an ErrorResponse or NoticeResponse.
    pub fn write(&self, out: &mut BytesMut) {
        let tag = match self.severity {
            Severity::Error | Severity::Fatal => tag::ERROR,
            Severity::Notice | Severity::Warning => tag::NOTICE,
        };
        message(tag, out, |out| {
            field(b'S', self.severity.word(), out);
            field(b'V', self.severity.word(), out);
            field(b'C', self.code, out);
            field(b'M', &self.message, out);
            if let Some(detail) = &self.detail {
                field(b'D', detail, out);
            }
            if let Some(hint) = &self.hint {
                field(b'H', hint, out);
            }
            out.put_u8(0);
        });
    }
}

fn field(code: u8, text: &str, out: &mut BytesMut) {
    out.put_u8(code);
    out.put_slice(text.as_bytes());
    out.put_u8(0);
}

/// Writes AuthenticationOk.
pub fn authentication_ok(out: &mut BytesMut) {
    message(tag::AUTHENTICATION, out, |out| out.put_i32(0));
}

/// Writes NegotiateProtocolVersion: we speak 3.0 and know none of these options.
pub fn negotiate_protocol_version(unknown: &[&str], out: &mut BytesMut) {
    message(tag::NEGOTIATE_PROTOCOL_VERSION, out, |out| {
        out.put_i32(crate::startup::VERSION_3);
        out.put_u32(u32::try_from(unknown.len()).unwrap_or(u32::MAX));
        for option in unknown {
            out.put_slice(option.as_bytes());
            out.put_u8(0);
        }
    });
}

/// Writes ParameterStatus.
pub fn parameter_status(name: &str, value: &str, out: &mut BytesMut) {
    message(tag::PARAMETER_STATUS, out, |out| {
        out.put_slice(name.as_bytes());
        out.put_u8(0);
        out.put_slice(value.as_bytes());
        out.put_u8(0);
    });
}

/// Writes BackendKeyData.
pub fn backend_key_data(process: i32, secret: &[u8], out: &mut BytesMut) {
    message(tag::BACKEND_KEY_DATA, out, |out| {
        out.put_i32(process);
        out.put_slice(secret);
    });
}

/// Writes ReadyForQuery.
pub fn ready_for_query(status: Status, out: &mut BytesMut) {
    message(tag::READY_FOR_QUERY, out, |out| out.put_u8(status.byte()));
}

/// Writes CommandComplete.
pub fn command_complete(command: &str, out: &mut BytesMut) {
    message(tag::COMMAND_COMPLETE, out, |out| {
        out.put_slice(command.as_bytes());
        out.put_u8(0);
    });
}

/// Writes a message that has no body, such as ParseComplete.
pub fn empty(tag: u8, out: &mut BytesMut) {
    message(tag, out, |_| ());
}

/// A type, as in `pg_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnType {
    /// Its OID.
    pub oid: u32,
    /// Length of its values in bytes; -1 if they have no fixed one.
    pub len: i16,
}

impl ColumnType {
    /// `text`.
    pub const TEXT: ColumnType = ColumnType { oid: 25, len: -1 };
}

/// Writes the RowDescription of columns of type text.
pub fn row_description(columns: &[&str], out: &mut BytesMut) {
    row_description_of(columns.iter().map(|name| (*name, ColumnType::TEXT, false)), out);
}

/// Writes the RowDescription of columns: their names, types, and whether values are in binary format.
pub fn row_description_of<'a>(
    columns: impl ExactSizeIterator<Item = (&'a str, ColumnType, bool)>,
    out: &mut BytesMut,
) {
    message(tag::ROW_DESCRIPTION, out, |out| {
        out.put_u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
        for (name, ColumnType { oid, len }, is_binary) in columns {
            out.put_slice(name.as_bytes());
            out.put_u8(0);
            out.put_i32(0); // no table
            out.put_i16(0); // no column of a table
            out.put_u32(oid);
            out.put_i16(len);
            out.put_i32(-1); // no type modifier
            out.put_i16(i16::from(is_binary));
        }
    });
}

/// Writes a DataRow.
pub fn data_row(
    values: impl ExactSizeIterator<Item = Option<impl AsRef<[u8]>>>,
    out: &mut BytesMut,
) {
    message(tag::DATA_ROW, out, |out| {
        out.put_u16(u16::try_from(values.len()).unwrap_or(u16::MAX));
        for value in values {
            put_value(value.as_ref().map(AsRef::as_ref), out);
        }
    });
}

/// Reads the values of a DataRow.
pub fn read_data_row(body: &[u8]) -> Result<Vec<Option<&[u8]>>> {
    let mut fields = Fields::new(tag::DATA_ROW, body);
    let count = fields.i16()?;
    (0..count).map(|_| fields.value()).collect()
}

/// Reads the names and type OIDs of a RowDescription.
pub fn read_row_description(body: &[u8]) -> Result<Vec<(String, u32)>> {
    let mut fields = Fields::new(tag::ROW_DESCRIPTION, body);
    let count = fields.i16()?;
    (0..count)
        .map(|_| {
            let name = String::from_utf8_lossy(fields.cstr()?).into_owned();
            fields.bytes(6)?;
            let oid = fields.i32()?;
            fields.bytes(8)?;
            Ok((name, oid.cast_unsigned()))
        })
        .collect()
}

/// Reads a ParameterStatus.
pub fn read_parameter_status(body: &[u8]) -> Result<(String, String)> {
    let mut fields = Fields::new(tag::PARAMETER_STATUS, body);
    let name = String::from_utf8_lossy(fields.cstr()?).into_owned();
    Ok((name, String::from_utf8_lossy(fields.cstr()?).into_owned()))
}

/// Reads the command tag of a CommandComplete, such as `UPDATE 1`.
pub fn read_command_complete(body: &[u8]) -> Result<&str> {
    let mut fields = Fields::new(tag::COMMAND_COMPLETE, body);
    std::str::from_utf8(fields.cstr()?).map_err(|_| fields.error())
}

/// The number of rows at the end of a command tag.
#[must_use]
pub fn rows_of(command: &str) -> Option<u64> {
    command.rsplit(' ').next().and_then(|count| count.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::body;

    #[test]
    fn a_report_reads_back_with_all_fields() {
        let mut out = BytesMut::new();
        Report::error("53300", "full").detail("20 of 20").hint("raise pool.size").write(&mut out);
        let read = ErrorFields::read(body(&out)).expect("what we wrote");
        assert_eq!((read.code(), read.message()), ("53300", "full"));
        assert_eq!(read.get(b'D'), Some("20 of 20"));
        assert_eq!(read.get(b'H'), Some("raise pool.size"));
        assert_eq!(read.get(b'S'), Some("ERROR"));
    }

    #[test]
    fn rows_go_round() {
        let mut out = BytesMut::new();
        data_row([Some("a"), None, Some("")].into_iter(), &mut out);
        let values = read_data_row(body(&out)).expect("what we wrote");
        assert_eq!(values, [Some(&b"a"[..]), None, Some(&b""[..])]);
        let mut out = BytesMut::new();
        row_description(&["site", "why"], &mut out);
        let columns = read_row_description(body(&out)).expect("what we wrote");
        assert_eq!(columns, [("site".to_owned(), 25), ("why".to_owned(), 25)]);
    }

    #[test]
    fn command_tags_tell_their_rows() {
        assert_eq!(rows_of("UPDATE 1"), Some(1));
        assert_eq!(rows_of("INSERT 0 12"), Some(12));
        assert_eq!(rows_of("CREATE TABLE"), None);
    }

    #[test]
    fn truncated_bodies_are_errors() {
        assert!(ErrorFields::read(b"SERROR").is_err());
        assert!(read_data_row(&[0, 1, 0, 0, 0, 9, 1]).is_err());
        assert!(read_row_description(&[0, 1, b'a']).is_err());
    }
}
