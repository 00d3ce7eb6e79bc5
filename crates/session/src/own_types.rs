//! Types that users defined have other OIDs at each site: a replica makes its own objects when it
//! carries out DDL. Clients look types up by OID, and find those of the primary. So what a replica
//! describes by such a type is asked of the primary instead (I1), and its statement from then on.

use hihooi_wire::backend::tag;
use hihooi_wire::frontend;
use hihooi_wire::{Fields, ProtocolError};
use schnellru::{ByLength, LruMap};

/// OIDs below this one are PostgreSQL's own, the same everywhere (manual, chapter "System Catalog
/// Initial Data").
const USERS_OID_MIN: u32 = 16_384;
/// `record` and `record[]`, whose binary form tells the types of what is inside.
const RECORDS: [u32; 2] = [2249, 2287];
/// Statements that are remembered; the least recently asked for are forgotten first (I8).
const STATEMENTS_MAX: u32 = 20_000;

/// Statements that were seen to have such types.
pub struct OwnTypes(LruMap<u64, ()>);

impl Default for OwnTypes {
    fn default() -> OwnTypes {
        OwnTypes(LruMap::new(ByLength::new(STATEMENTS_MAX)))
    }
}

impl OwnTypes {
    /// Whether this one was.
    pub fn has(&mut self, statement: u64) -> bool {
        self.0.get(&statement).is_some()
    }

    /// This one was.
    pub fn seen(&mut self, statement: u64) {
        self.0.insert(statement, ());
    }
}

/// Whether any of a statement's parameters is of a user's type: their number and their OIDs, as Parse
/// and ParameterDescription have them.
#[must_use]
pub fn any_own(types: &[u8]) -> bool {
    types
        .get(2..)
        .unwrap_or_default()
        .chunks_exact(4)
        .any(|oid| is_own([oid[0], oid[1], oid[2], oid[3]]))
}

fn is_own(oid: [u8; 4]) -> bool {
    u32::from_be_bytes(oid) >= USERS_OID_MIN
}

/// Whether a message describes parameters or columns by types of users. If the client `sees` it,
/// each of them counts; if not, those of which the binary form tells the types of what is inside.
///
/// # Errors
/// The message is malformed.
pub fn describes_own(tag: u8, body: &[u8], sees: bool) -> Result<bool, ProtocolError> {
    match tag {
        tag::PARAMETER_DESCRIPTION => Ok(any_own(body)),
        tag::ROW_DESCRIPTION => {
            let mut any = false;
            each_column(body, |_, oid, is_binary| {
                any |= is_own(oid) && (sees || is_binary)
                    || is_binary && RECORDS.contains(&u32::from_be_bytes(oid));
            })?;
            Ok(any)
        }
        _ => Ok(false),
    }
}

/// Whether a Bind asks for columns in binary: what it holds behind the names.
///
/// # Errors
/// The message is malformed.
pub fn wants_binary(bind: &[u8]) -> Result<bool, ProtocolError> {
    let mut fields = Fields::new(frontend::tag::BIND, bind);
    for _ in 0..fields.i16()? {
        fields.i16()?;
    }
    for _ in 0..fields.i16()? {
        if let Ok(len) = usize::try_from(fields.i32()?) {
            fields.bytes(len)?;
        }
    }
    let mut any = false;
    for _ in 0..fields.i16()? {
        any |= fields.i16()? != 0;
    }
    Ok(any)
}

/// Takes out of a replica's RowDescription of which tables the columns are: their OIDs too are its
/// own.
///
/// # Errors
/// The message is malformed.
pub fn forget_tables(body: &mut [u8]) -> Result<(), ProtocolError> {
    let mut tables = Vec::new();
    each_column(body, |at, _, _| tables.push(at))?;
    for at in tables {
        if body[at..at + 4].try_into().is_ok_and(is_own) {
            body[at..at + 6].fill(0); // its OID and the column's number: none
        }
    }
    Ok(())
}

/// Tells of each column where its table's OID stands, its type's, and whether its format is binary.
fn each_column(
    body: &[u8],
    mut tell: impl FnMut(usize, [u8; 4], bool),
) -> Result<(), ProtocolError> {
    let mut fields = Fields::new(tag::ROW_DESCRIPTION, body);
    for _ in 0..fields.i16()? {
        fields.cstr()?;
        let at = body.len() - fields.rest().len();
        let column = fields.bytes(18)?;
        tell(at, [column[6], column[7], column[8], column[9]], column[17] != 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, table: u32, number: u16, oid: u32, format: u16) -> Vec<u8> {
        let mut bytes = [name.as_bytes(), b"\0"].concat();
        bytes.extend(table.to_be_bytes());
        bytes.extend(number.to_be_bytes());
        bytes.extend(oid.to_be_bytes());
        bytes.extend([0, 4, 255, 255, 255, 255]);
        bytes.extend(format.to_be_bytes());
        bytes
    }

    fn description(columns: &[Vec<u8>]) -> Vec<u8> {
        [&(columns.len() as u16).to_be_bytes()[..], &columns.concat()].concat()
    }

    #[test]
    fn types_of_users_are_known_by_their_oids() {
        let describes = |columns: &[Vec<u8>]| {
            describes_own(tag::ROW_DESCRIPTION, &description(columns), true).expect("well-formed")
        };
        assert!(!describes(&[column("a", 16_400, 1, 23, 0), column("r", 0, 0, 2249, 0)]));
        assert!(describes(&[column("a", 16_400, 1, 23, 0), column("m", 16_400, 2, 16_384, 0)]));
        assert!(describes(&[column("r", 0, 0, 2249, 1)]));
        let parameters = |oids: &[u32]| {
            let oids: Vec<u8> = oids.iter().flat_map(|oid| oid.to_be_bytes()).collect();
            describes_own(tag::PARAMETER_DESCRIPTION, &[&[0, 2][..], &oids].concat(), true)
        };
        assert_eq!(parameters(&[23, 25]), Ok(false));
        assert_eq!(parameters(&[23, 20_000]), Ok(true));
        assert!(describes_own(tag::ROW_DESCRIPTION, &[0, 1, b'a'], true).is_err());
        let hidden = |columns: &[Vec<u8>]| {
            describes_own(tag::ROW_DESCRIPTION, &description(columns), false).expect("well-formed")
        };
        assert!(hidden(&[column("a", 0, 0, 16_384, 1)]));
        assert!(!hidden(&[column("a", 0, 0, 16_384, 0)]), "text has no OIDs");
    }

    #[test]
    fn a_bind_asks_for_binary_in_its_last_formats() {
        let bind = |formats: &[u8]| {
            // One parameter in binary, one value of two bytes and a NULL.
            [&[0, 1, 0, 1, 0, 2, 0, 0, 0, 2, 1, 1, 255, 255, 255, 255][..], formats].concat()
        };
        assert!(!wants_binary(&bind(&[0, 0])).expect("well-formed"));
        assert!(!wants_binary(&bind(&[0, 1, 0, 0])).expect("well-formed"));
        assert!(wants_binary(&bind(&[0, 2, 0, 0, 0, 1])).expect("well-formed"));
        assert!(wants_binary(&bind(&[0, 2, 0, 0])).is_err());
    }

    #[test]
    fn tables_of_users_are_forgotten_and_all_else_stays() {
        let mut body = description(&[column("a", 16_400, 1, 23, 0), column("c", 1259, 2, 26, 1)]);
        forget_tables(&mut body).expect("well-formed");
        assert_eq!(body, description(&[column("a", 0, 0, 23, 0), column("c", 1259, 2, 26, 1)]));
    }

    #[test]
    fn i8_the_memory_is_bounded() {
        let mut statements = OwnTypes::default();
        let last = 3 * u64::from(STATEMENTS_MAX);
        for id in 1..=last {
            statements.seen(id);
            assert!(statements.has(1), "what is asked for stays");
        }
        assert!(statements.has(last) && !statements.has(2));
        assert!(statements.0.len() <= STATEMENTS_MAX as usize);
    }
}
