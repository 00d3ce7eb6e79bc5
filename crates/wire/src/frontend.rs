//! Messages sent by a client: parsed when they come from clients, written when hihooi is the client.

use bytes::{BufMut, BytesMut};

use crate::{Fields, Result};

/// Kind of thing that Describe and Close name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

impl Target {
    fn byte(self) -> u8 {
        match self {
            Target::Statement => b'S',
            Target::Portal => b'P',
        }
    }
}

/// Tags of a client's messages.
pub mod tag {
    #![allow(missing_docs, reason = "the names are those of the protocol's messages")]
    pub const QUERY: u8 = b'Q';
    pub const PARSE: u8 = b'P';
    pub const BIND: u8 = b'B';
    pub const DESCRIBE: u8 = b'D';
    pub const EXECUTE: u8 = b'E';
    pub const CLOSE: u8 = b'C';
    pub const SYNC: u8 = b'S';
    pub const FLUSH: u8 = b'H';
    pub const FUNCTION_CALL: u8 = b'F';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_FAIL: u8 = b'f';
    pub const PASSWORD: u8 = b'p';
    pub const TERMINATE: u8 = b'X';
}

/// Whether a client may send this tag after start-up.
#[must_use]
pub fn is_known(tag: u8) -> bool {
    b"QPBDECSHFdcfpX".contains(&tag)
}

/// Parse: creates a prepared statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// Name of the statement; empty is the unnamed one.
    pub statement: &'a [u8],
    /// Its text.
    pub query: &'a [u8],
    /// Number of parameter types and their OIDs, as on the wire.
    pub types: &'a [u8],
}

impl<'a> Parse<'a> {
    /// Reads a message's body.
    pub fn read(body: &'a [u8]) -> Result<Parse<'a>> {
        let mut fields = Fields::new(tag::PARSE, body);
        let (statement, query) = (fields.cstr()?, fields.cstr()?);
        let types = fields.rest();
        // (Without a sign: PostgreSQL takes 65,535.)
        let count = usize::from(fields.i16()?.cast_unsigned());
        if fields.rest().len() != count * 4 {
            return Err(fields.error());
        }
        Ok(Parse { statement, query, types })
    }

    /// Writes the message.
    pub fn write(&self, out: &mut BytesMut) {
        message(tag::PARSE, out, |out| {
            cstr(self.statement, out);
            cstr(self.query, out);
            out.put_slice(self.types);
        });
    }
}

/// Bind: makes a portal of a prepared statement and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// Name of the portal; empty is the unnamed one.
    pub portal: &'a [u8],
    /// Name of the statement.
    pub statement: &'a [u8],
    /// Formats, values and result formats, as on the wire.
    pub rest: &'a [u8],
}

impl<'a> Bind<'a> {
    /// Reads the names; what follows is left to the server.
    pub fn read(body: &'a [u8]) -> Result<Bind<'a>> {
        let mut fields = Fields::new(tag::BIND, body);
        let (portal, statement) = (fields.cstr()?, fields.cstr()?);
        Ok(Bind { portal, statement, rest: fields.rest() })
    }

    /// For each result format in the rest of a message, whether it is binary: none, one for all columns,
    /// or one for each.
    ///
    /// # Errors
    /// The message is malformed.
    pub fn result_formats(rest: &'a [u8]) -> Result<impl Iterator<Item = bool> + 'a> {
        let mut fields = Fields::new(tag::BIND, rest);
        for _ in 0..fields.i16()? {
            fields.i16()?;
        }
        for _ in 0..fields.i16()? {
            if let Ok(len) = usize::try_from(fields.i32()?) {
                fields.bytes(len)?;
            }
        }
        let count = usize::try_from(fields.i16()?).unwrap_or(0);
        Ok(fields.bytes(2 * count)?.chunks(2).map(|format| format != [0, 0]))
    }

    /// Writes the message.
    pub fn write(&self, out: &mut BytesMut) {
        message(tag::BIND, out, |out| {
            cstr(self.portal, out);
            cstr(self.statement, out);
            out.put_slice(self.rest);
        });
    }
}

/// Reads the body of Describe or Close (`tag` says which, for the error).
pub fn read_target(tag: u8, body: &[u8]) -> Result<(Target, &[u8])> {
    let mut fields = Fields::new(tag, body);
    let target = match fields.u8()? {
        b'S' => Target::Statement,
        b'P' => Target::Portal,
        _ => return Err(fields.error()),
    };
    Ok((target, fields.cstr()?))
}

/// Reads the body of Execute: the portal's name and the limit of rows (0: none).
pub fn read_execute(body: &[u8]) -> Result<(&[u8], i32)> {
    let mut fields = Fields::new(tag::EXECUTE, body);
    Ok((fields.cstr()?, fields.i32()?))
}

/// Reads the body of Query: its text without the terminating zero.
pub fn read_query(body: &[u8]) -> Result<&[u8]> {
    Fields::new(tag::QUERY, body).cstr()
}

/// Writes a message around the body that `fill` writes.
pub fn message(tag: u8, out: &mut BytesMut, fill: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let start = out.len();
    out.put_i32(0);
    fill(out);
    let len = i32::try_from(out.len() - start).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

fn cstr(text: &[u8], out: &mut BytesMut) {
    out.put_slice(text);
    out.put_u8(0);
}

/// Writes a simple query.
pub fn query(text: &[u8], out: &mut BytesMut) {
    message(tag::QUERY, out, |out| cstr(text, out));
}

/// Writes Parse without parameter types.
pub fn parse(statement: &[u8], text: &[u8], out: &mut BytesMut) {
    Parse { statement, query: text, types: &[0, 0] }.write(out);
}

/// Writes Bind with text values and text results.
pub fn bind<'a>(
    portal: &[u8],
    statement: &[u8],
    values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    out: &mut BytesMut,
) {
    message(tag::BIND, out, |out| {
        cstr(portal, out);
        cstr(statement, out);
        out.put_i16(0);
        out.put_u16(u16::try_from(values.len()).unwrap_or(u16::MAX));
        for value in values {
            put_value(value, out);
        }
        out.put_i16(0);
    });
}

pub(crate) fn put_value(value: Option<&[u8]>, out: &mut BytesMut) {
    match value {
        None => out.put_i32(-1),
        Some(bytes) => {
            out.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
            out.put_slice(bytes);
        }
    }
}

/// Writes Describe.
pub fn describe(target: Target, name: &[u8], out: &mut BytesMut) {
    message(tag::DESCRIBE, out, |out| {
        out.put_u8(target.byte());
        cstr(name, out);
    });
}

/// Writes Close.
pub fn close(target: Target, name: &[u8], out: &mut BytesMut) {
    message(tag::CLOSE, out, |out| {
        out.put_u8(target.byte());
        cstr(name, out);
    });
}

/// Writes Execute; `rows_max` 0 means all.
pub fn execute(portal: &[u8], rows_max: i32, out: &mut BytesMut) {
    message(tag::EXECUTE, out, |out| {
        cstr(portal, out);
        out.put_i32(rows_max);
    });
}

/// Writes Sync.
pub fn sync(out: &mut BytesMut) {
    message(tag::SYNC, out, |_| ());
}

/// Writes Flush.
pub fn flush(out: &mut BytesMut) {
    message(tag::FLUSH, out, |_| ());
}

/// Writes CopyData.
pub fn copy_data(data: &[u8], out: &mut BytesMut) {
    message(tag::COPY_DATA, out, |out| out.put_slice(data));
}

/// Writes CopyDone.
pub fn copy_done(out: &mut BytesMut) {
    message(tag::COPY_DONE, out, |_| ());
}

/// Writes CopyFail with the reason.
pub fn copy_fail(reason: &str, out: &mut BytesMut) {
    message(tag::COPY_FAIL, out, |out| cstr(reason.as_bytes(), out));
}

/// Writes Terminate.
pub fn terminate(out: &mut BytesMut) {
    message(tag::TERMINATE, out, |_| ());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    #[test]
    fn parse_and_bind_go_round_byte_by_byte() {
        let mut out = BytesMut::new();
        parse(b"s1", b"select $1", &mut out);
        let read = Parse::read(frame::body(&out)).expect("what we wrote");
        assert_eq!((read.statement, read.query), (&b"s1"[..], &b"select $1"[..]));
        let mut again = BytesMut::new();
        read.write(&mut again);
        assert_eq!(out, again);

        let mut out = BytesMut::new();
        bind(b"", b"s1", [Some(&b"5"[..]), None].into_iter(), &mut out);
        let mut again = BytesMut::new();
        Bind::read(frame::body(&out)).expect("what we wrote").write(&mut again);
        assert_eq!(out, again);
    }

    /// As many as PostgreSQL takes.
    #[test]
    fn a_parse_may_have_65535_types() {
        let mut body = b"s\0select\0\xff\xff".to_vec();
        body.extend([0, 0, 0, 23].repeat(65_535));
        let read = Parse::read(&body).expect("all of them");
        assert_eq!(read.types.len(), 2 + 4 * 65_535);
        assert!(Parse::read(&body[..body.len() - 1]).is_err());
    }

    #[test]
    fn short_bodies_are_errors_not_panics() {
        for len in 0..6 {
            let _ = Parse::read(&b"s\0q\0\0\x01"[..len]).expect_err("too short");
        }
        assert!(Bind::read(b"portal").is_err());
        assert!(read_target(tag::CLOSE, b"Xname\0").is_err());
        assert!(read_execute(b"p\0\0\0").is_err());
    }
}
