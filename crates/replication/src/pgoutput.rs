//! Decodes the logical replication stream of a PostgreSQL server: the contents of CopyData, and the messages of
//! the output plugin `pgoutput`, protocol versions 1 and 2 in text format without streaming of open
//! transactions (manual, "Streaming Replication Protocol" and "Logical Replication Message Formats"). Pure;
//! damaged bytes are an error.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::entry::{Column, Identity, Relation, Tuple, Value};
use crate::ids::Lsn;
use crate::items::RelId;
use crate::text::text_of;

/// Bytes that are not the protocol we asked for: the stream can only be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// A message ends too early.
    #[error("replication message of type {0:?} is too short")]
    Short(char),
    /// A message of a type we did not ask for.
    #[error("unexpected replication message type {0:?}")]
    Type(char),
    /// The inside of a message does not have its form.
    #[error("replication message of type {0:?} is damaged")]
    Damaged(char),
}

type Result<T> = std::result::Result<T, StreamError>;

/// What one CopyData of the server holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A message of the output plugin.
    Data(Bytes),
    /// The server tells where it is.
    Keepalive {
        /// Everything that committed before it was sent.
        end: Lsn,
        /// Whether the server wants an answer at once.
        reply: bool,
    },
}

/// A message of `pgoutput`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A committed transaction begins; its changes follow, up to its commit.
    Begin {
        /// LSN of its commit record.
        commit_lsn: Lsn,
        /// Commit time, microseconds since 2000-01-01 UTC.
        commit_time_us: i64,
        /// Low 32 bits of its id.
        xid: u32,
    },
    /// The transaction ends.
    Commit {
        /// LSN of the commit record.
        commit_lsn: Lsn,
        /// LSN right after it.
        end_lsn: Lsn,
    },
    /// The transaction came from elsewhere.
    Origin,
    /// A relation as it is from here on.
    Relation(Relation),
    /// A data type that is not built in.
    Type,
    /// A new row.
    Insert {
        /// The relation.
        relation: RelId,
        /// The row.
        new: Tuple,
    },
    /// A changed row.
    Update {
        /// The relation.
        relation: RelId,
        /// Old key (other columns NULL) if it changed, or old row under FULL identity.
        old: Option<Tuple>,
        /// The row.
        new: Tuple,
    },
    /// A row that is gone.
    Delete {
        /// The relation.
        relation: RelId,
        /// Its key, or the row under FULL identity.
        old: Tuple,
    },
    /// Tables emptied.
    Truncate {
        /// The tables.
        relations: Vec<RelId>,
        /// `RESTART IDENTITY`.
        restart_identity: bool,
    },
    /// What `pg_logical_emit_message` wrote.
    Logical {
        /// Whether it is part of the transaction it stands in.
        transactional: bool,
        /// Whose it is.
        prefix: Bytes,
        /// Its content, in the database's encoding.
        content: Bytes,
    },
}

/// Reads the body of a CopyData.
///
/// # Errors
/// [`StreamError`] if it is not of the replication protocol.
pub fn read_frame(mut body: Bytes) -> Result<Frame> {
    match body.first() {
        Some(b'w') if body.len() >= 25 => {
            body.advance(25);
            Ok(Frame::Data(body))
        }
        Some(b'k') => {
            let mut fields = Fields::new(body)?;
            let end = fields.lsn()?;
            fields.i64()?;
            Ok(Frame::Keepalive { end, reply: fields.u8()? != 0 })
        }
        Some(b'w') => Err(StreamError::Short('w')),
        other => Err(StreamError::Type(char::from(other.copied().unwrap_or(0)))),
    }
}

/// Writes the body of a CopyData that tells the server what is safe with us. `clock_us` is now,
/// in microseconds since 2000-01-01 UTC; `reply` asks for a keepalive at once.
#[must_use]
pub fn status_update(written: Lsn, flushed: Lsn, clock_us: i64, reply: bool) -> Bytes {
    let mut out = BytesMut::with_capacity(34);
    out.put_u8(b'r');
    out.put_u64(written.0);
    out.put_u64(flushed.0);
    out.put_u64(flushed.0);
    out.put_i64(clock_us);
    out.put_u8(u8::from(reply));
    out.freeze()
}

/// Reads a message of `pgoutput`; values are slices of `data`.
///
/// # Errors
/// [`StreamError`] if it is damaged or of a type that we did not ask for.
pub fn read_message(data: Bytes) -> Result<Message> {
    let mut fields = Fields::new(data)?;
    let message = match fields.kind {
        b'B' => Message::Begin {
            commit_lsn: fields.lsn()?,
            commit_time_us: fields.i64()?,
            xid: fields.u32()?,
        },
        b'C' => {
            fields.u8()?;
            let commit = Message::Commit { commit_lsn: fields.lsn()?, end_lsn: fields.lsn()? };
            fields.i64()?;
            commit
        }
        b'O' => return Ok(Message::Origin),
        b'Y' => return Ok(Message::Type),
        b'R' => Message::Relation(fields.relation()?),
        b'I' => {
            let relation = fields.rel_id()?;
            fields.expect(b'N')?;
            Message::Insert { relation, new: fields.tuple()? }
        }
        b'U' => fields.update()?,
        b'D' => {
            let relation = fields.rel_id()?;
            match fields.u8()? {
                b'K' | b'O' => Message::Delete { relation, old: fields.tuple()? },
                _ => return Err(fields.damaged()),
            }
        }
        b'T' => fields.truncate()?,
        b'M' => fields.logical()?,
        other => return Err(StreamError::Type(char::from(other))),
    };
    fields.end()?;
    Ok(message)
}

/// Reads the fields of one message in order.
struct Fields {
    kind: u8,
    rest: Bytes,
}

impl Fields {
    fn new(mut data: Bytes) -> Result<Fields> {
        if data.is_empty() {
            return Err(StreamError::Type('\0'));
        }
        Ok(Fields { kind: data.get_u8(), rest: data })
    }

    fn short(&self) -> StreamError {
        StreamError::Short(char::from(self.kind))
    }

    fn damaged(&self) -> StreamError {
        StreamError::Damaged(char::from(self.kind))
    }

    fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damaged()) }
    }

    fn bytes(&mut self, len: usize) -> Result<Bytes> {
        if len > self.rest.len() { Err(self.short()) } else { Ok(self.rest.split_to(len)) }
    }

    fn u8(&mut self) -> Result<u8> {
        self.rest.try_get_u8().map_err(|_| self.short())
    }

    fn u16(&mut self) -> Result<u16> {
        self.rest.try_get_u16().map_err(|_| self.short())
    }

    fn u32(&mut self) -> Result<u32> {
        self.rest.try_get_u32().map_err(|_| self.short())
    }

    fn i64(&mut self) -> Result<i64> {
        self.rest.try_get_i64().map_err(|_| self.short())
    }

    fn lsn(&mut self) -> Result<Lsn> {
        self.rest.try_get_u64().map(Lsn).map_err(|_| self.short())
    }

    fn rel_id(&mut self) -> Result<RelId> {
        self.u32().map(RelId)
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.u8()? == byte { Ok(()) } else { Err(self.damaged()) }
    }

    fn cstr(&mut self) -> Result<Bytes> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(self.short())?;
        let text = self.rest.split_to(end);
        self.rest.advance(1);
        Ok(text)
    }

    fn name(&mut self) -> Result<String> {
        Ok(text_of(&self.cstr()?))
    }

    fn relation(&mut self) -> Result<Relation> {
        Ok(Relation {
            id: self.rel_id()?,
            schema: match self.name()? {
                // So the stream abbreviates the system's schema.
                empty if empty.is_empty() => "pg_catalog".to_owned(),
                schema => schema,
            },
            name: self.name()?,
            identity: match self.u8()? {
                b'd' => Identity::Default,
                b'i' => Identity::Index,
                b'f' => Identity::Full,
                b'n' => Identity::Nothing,
                _ => return Err(self.damaged()),
            },
            columns: self.columns()?,
        })
    }

    fn columns(&mut self) -> Result<Vec<Column>> {
        let count = self.u16()?;
        let mut columns = Vec::with_capacity(count.into());
        for _ in 0..count {
            let key = self.u8()? & 1 == 1;
            let name = self.name()?;
            let type_oid = self.u32()?;
            self.u32()?;
            columns.push(Column { name, type_oid, key });
        }
        Ok(columns)
    }

    fn tuple(&mut self) -> Result<Tuple> {
        let count = self.u16()?;
        let mut tuple = Vec::with_capacity(count.into());
        for _ in 0..count {
            tuple.push(match self.u8()? {
                b'n' => Value::Null,
                b'u' => Value::Unchanged,
                b't' => {
                    let len = self.u32()? as usize;
                    Value::Text(self.bytes(len)?)
                }
                _ => return Err(self.damaged()),
            });
        }
        Ok(tuple)
    }

    fn update(&mut self) -> Result<Message> {
        let relation = self.rel_id()?;
        let old = match self.u8()? {
            b'N' => None,
            b'K' | b'O' => {
                let old = self.tuple()?;
                self.expect(b'N')?;
                Some(old)
            }
            _ => return Err(self.damaged()),
        };
        Ok(Message::Update { relation, old, new: self.tuple()? })
    }

    fn truncate(&mut self) -> Result<Message> {
        let count = self.u32()?;
        let restart_identity = self.u8()? & 2 != 0;
        if count as usize > self.rest.len() / 4 {
            return Err(self.short());
        }
        let relations = (0..count).map(|_| self.rel_id()).collect::<Result<_>>()?;
        Ok(Message::Truncate { relations, restart_identity })
    }

    fn logical(&mut self) -> Result<Message> {
        let transactional = self.u8()? & 1 == 1;
        self.lsn()?;
        let prefix = self.cstr()?;
        let len = self.u32()? as usize;
        Ok(Message::Logical { transactional, prefix, content: self.bytes(len)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(parts: &[&[u8]]) -> Bytes {
        parts.concat().into()
    }

    const UPDATE: &[&[u8]] = &[b"U\0\0\x40\x01", b"K\0\x02t\0\0\0\x015n", b"N\0\x03t\0\0\0\x016nu"];

    #[test]
    fn updates_bring_old_key_and_unchanged_values() {
        let text = |text: &'static str| Value::Text(text.into());
        assert_eq!(
            read_message(bytes(UPDATE)),
            Ok(Message::Update {
                relation: RelId(0x4001),
                old: Some(vec![text("5"), Value::Null]),
                new: vec![text("6"), Value::Null, Value::Unchanged],
            })
        );
    }

    #[test]
    fn relations_bring_columns_and_identity() {
        let message = bytes(&[
            b"R\0\0\x40\x01public\0t\0d\0\x02",
            b"\x01id\0\0\0\0\x17\xff\xff\xff\xff",
            b"\0name\0\0\0\0\x19\xff\xff\xff\xff",
        ]);
        let column = |name: &str, type_oid, key| Column { name: name.to_owned(), type_oid, key };
        assert_eq!(
            read_message(message),
            Ok(Message::Relation(Relation {
                id: RelId(0x4001),
                schema: "public".to_owned(),
                name: "t".to_owned(),
                identity: Identity::Default,
                columns: vec![column("id", 23, true), column("name", 25, false)],
            }))
        );
    }

    #[test]
    fn frames_are_told_apart() {
        let keepalive = bytes(&[b"k", &9_u64.to_be_bytes(), &[0; 8], &[1]]);
        let keepalive = read_frame(keepalive);
        assert_eq!(keepalive, Ok(Frame::Keepalive { end: Lsn(9), reply: true }));
        let data = bytes(&[b"w", &[0; 24], b"O"]);
        assert_eq!(read_frame(data), Ok(Frame::Data(Bytes::from_static(b"O"))));
        assert_eq!(read_frame(Bytes::from_static(b"w")), Err(StreamError::Short('w')));
        assert_eq!(read_frame(Bytes::new()), Err(StreamError::Type('\0')));
    }

    #[test]
    fn streamed_open_transactions_are_refused() {
        assert_eq!(read_message(Bytes::from_static(b"S\0\0")), Err(StreamError::Type('S')));
    }

    proptest! {
        /// The outside never makes us panic.
        #[test]
        fn any_bytes_are_read_or_refused(kind in "[BCORYIUDTMSk]", body: Vec<u8>) {
            let data = bytes(&[kind.as_bytes(), &body]);
            let _ = read_message(data.clone());
            let _ = read_frame(data);
        }

        #[test]
        fn a_cut_message_is_refused(cut in 1..24_usize) {
            prop_assert!(read_message(bytes(UPDATE).slice(..cut)).is_err());
        }
    }
}
