//! Types and tables that users created have different OIDs at each site, because a replica creates its own
//! objects when it executes DDL. Clients look types up by OID in the primary's catalogs. So the OIDs in a
//! replica's descriptions of rows and parameters are replaced by the primary's, and those in a Parse by the
//! replica's (I1; `docs/decisions/0010-own-types.md`). Reads for which this isn't possible run on the primary:
//! if the replica's [`Objects`] lack a type, or if rows have binary values that contain OIDs. (In parameters
//! servers ignore OIDs of user-defined types.)

use std::borrow::Cow;

use ahash::AHashMap;
use hihooi_wire::backend::tag;
use hihooi_wire::frontend::Bind;
use hihooi_wire::{Fields, ProtocolError};
use schnellru::{ByLength, LruMap};

/// OIDs below this one are PostgreSQL's own, the same everywhere (manual, chapter "System Catalog
/// Initial Data").
const USERS_OID_MIN: u32 = 16_384;
/// `record` and `record[]`, whose binary form tells the types of what is inside.
const RECORDS: [u32; 2] = [2249, 2287];
/// Statements that are remembered; the least recently asked for are forgotten first (I8).
const STATEMENTS_MAX: u32 = 20_000;

/// Which objects of a replica are which of the primary's, by their OIDs. An OID belongs to its object as long
/// as that exists, whatever it is called, so a pair stays true through renaming; it must have been found while
/// both sites had the same schema.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Objects {
    types: AHashMap<u32, Type>,
    /// The replica's OID of each of the primary's types that parameters may have there. (A domain's CHECK runs when
    /// a value is given, and might read tables.)
    replicas_types: AHashMap<u32, u32>,
    /// Tables whose columns have the same numbers at both sites.
    tables: AHashMap<u32, u32>,
}

/// A type at the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Type {
    oid: u32,
    /// Its binary form has OIDs inside.
    carries: bool,
}

impl Objects {
    /// A type, by its OID at the replica and at the primary; whether its binary form carries OIDs.
    pub fn add_type(&mut self, replicas: u32, primarys: u32, carries: bool) {
        self.types.insert(replicas, Type { oid: primarys, carries });
    }

    /// A type that parameters may have at the replica, by its OID there and at the primary.
    pub fn add_parameter(&mut self, replicas: u32, primarys: u32) {
        self.replicas_types.insert(primarys, replicas);
    }

    /// A table whose columns have the same numbers at both sites, by its OID at the replica and at the primary.
    pub fn add_table(&mut self, replicas: u32, primarys: u32) {
        self.tables.insert(replicas, primarys);
    }
}

/// What a statement needs to be answered as the primary would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// A replica whose objects are known.
    Objects,
    /// The primary, if it is to answer in binary.
    Primary,
}

/// What is known of statements with such types.
pub struct OwnTypes(LruMap<u64, Needs>);

impl Default for OwnTypes {
    fn default() -> OwnTypes {
        OwnTypes(LruMap::new(ByLength::new(STATEMENTS_MAX)))
    }
}

impl OwnTypes {
    /// What this one needs; nothing, as far as is known.
    pub fn needs(&mut self, statement: u64) -> Option<Needs> {
        self.0.get(&statement).copied()
    }

    /// This one was seen to need it.
    pub fn seen(&mut self, statement: u64, needs: Needs) {
        if self.needs(statement) != Some(Needs::Primary) {
            self.0.insert(statement, needs);
        }
    }
}

/// OIDs of the types whose values name objects (`regclass`), and of their arrays: what is sent as a name is turned into the
/// OID that the object has at the server that reads it. (And of `xid`, whose age is each server's own.)
const NAMING: [u32; 20] = [
    28, 1_011, 24, 2_202, 2_203, 2_204, 2_205, 2_206, 4_089, 4_096, 4_191, 1_008, 2_207, 2_208,
    2_209, 2_210, 2_211, 4_090, 4_097, 4_192,
];

/// Whether any of a statement's parameters, as Parse has them, is of a type whose values name objects.
pub fn any_naming(body: &[u8]) -> bool {
    oids(body).any(|oid| NAMING.contains(&oid))
}

/// Whether any of a statement's parameters is of a user's type: their number and their OIDs, as Parse
/// and ParameterDescription have them.
#[must_use]
pub fn any_own(types: &[u8]) -> bool {
    oids(types).any(is_own)
}

fn is_own(oid: u32) -> bool {
    oid >= USERS_OID_MIN
}

fn oids(types: &[u8]) -> impl Iterator<Item = u32> {
    let bytes = types.get(2..).unwrap_or_default().chunks_exact(4);
    bytes.map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]))
}

/// The parameter types of a Parse as a replica knows them; `None` if one isn't known.
#[must_use]
pub fn to_replica<'a>(types: &'a [u8], objects: Option<&Objects>) -> Option<Cow<'a, [u8]>> {
    if !any_own(types) {
        return Some(Cow::Borrowed(types));
    }
    let mut translated = types.get(..2)?.to_vec();
    for oid in oids(types) {
        let oid = if is_own(oid) { *objects?.replicas_types.get(&oid)? } else { oid };
        translated.extend(oid.to_be_bytes());
    }
    Some(Cow::Owned(translated))
}

/// What a message of a replica that describes parameters or columns needs beyond what is known here of the
/// replica's objects. If the client `sees` it, each of its types must be known; if not, those of columns in
/// binary.
///
/// # Errors
/// The message is malformed.
pub fn needs(
    tag: u8,
    body: &[u8],
    sees: bool,
    objects: Option<&Objects>,
) -> Result<Option<Needs>, ProtocolError> {
    let known = |oid| objects.and_then(|objects| objects.types.get(&oid));
    let mut needs = None;
    match tag {
        tag::PARAMETER_DESCRIPTION
            if sees && oids(body).any(|oid| is_own(oid) && known(oid).is_none()) =>
        {
            needs = Some(Needs::Objects);
        }
        tag::ROW_DESCRIPTION => {
            let mut description = Description::of(body)?;
            while let Some((_, Column { oid, is_binary })) = description.next_column(body)? {
                if is_binary && RECORDS.contains(&oid) {
                    needs = Some(Needs::Primary);
                } else if is_own(oid) && (sees || is_binary) {
                    match known(oid) {
                        None => needs = needs.or(Some(Needs::Objects)),
                        Some(own) if is_binary && own.carries => needs = Some(Needs::Primary),
                        Some(_) => {}
                    }
                }
            }
        }
        _ => {}
    }
    Ok(needs)
}

/// Puts the primary's OIDs into what a replica describes. A column of a table that isn't known there is said
/// to belong to none.
///
/// # Errors
/// The message is malformed.
pub fn to_primary(
    tag: u8,
    body: &mut [u8],
    objects: Option<&Objects>,
) -> Result<(), ProtocolError> {
    match tag {
        tag::PARAMETER_DESCRIPTION => {
            let Some(objects) = objects else { return Ok(()) };
            for oid in body.get_mut(2..).unwrap_or_default().chunks_exact_mut(4) {
                put_type(oid, objects);
            }
        }
        tag::ROW_DESCRIPTION => {
            let mut description = Description::of(body)?;
            while let Some((at, _)) = description.next_column(body)? {
                put_table(&mut body[at..at + 6], objects);
                if let Some(objects) = objects {
                    put_type(&mut body[at + 6..at + 10], objects);
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The OID of a column's table and the column's number.
fn put_table(column: &mut [u8], objects: Option<&Objects>) {
    let oid = u32_at(column, 0).unwrap_or_default();
    if !is_own(oid) {
        return;
    }
    match objects.and_then(|objects| objects.tables.get(&oid)) {
        Some(primarys) => column[..4].copy_from_slice(&primarys.to_be_bytes()),
        None => column.fill(0),
    }
}

fn put_type(oid: &mut [u8], objects: &Objects) {
    if let Some(own) = u32_at(oid, 0).and_then(|oid| objects.types.get(&oid)) {
        oid.copy_from_slice(&own.oid.to_be_bytes());
    }
}

/// A column as a RowDescription has it.
struct Column {
    oid: u32,
    is_binary: bool,
}

/// The columns of a RowDescription, which may be changed meanwhile.
struct Description {
    left: i16,
    at: usize,
}

impl Description {
    fn of(body: &[u8]) -> Result<Description, ProtocolError> {
        let left = Fields::new(tag::ROW_DESCRIPTION, body).i16()?;
        Ok(Description { left, at: 2 })
    }

    /// The next one, and where its table's OID stands.
    fn next_column(&mut self, body: &[u8]) -> Result<Option<(usize, Column)>, ProtocolError> {
        if self.left <= 0 {
            return Ok(None);
        }
        let mut fields = Fields::new(tag::ROW_DESCRIPTION, &body[self.at..]);
        fields.cstr()?;
        let at = body.len() - fields.rest().len();
        let column = fields.bytes(18)?;
        let oid = u32_at(column, 6).unwrap_or_default();
        (self.left, self.at) = (self.left - 1, at + 18);
        Ok(Some((at, Column { oid, is_binary: column[17] != 0 })))
    }
}

/// Whether a Bind asks for columns in binary: what it holds behind the names.
///
/// # Errors
/// The message is malformed.
pub fn wants_binary(bind: &[u8]) -> Result<bool, ProtocolError> {
    Ok(Bind::result_formats(bind)?.any(|is_binary| is_binary))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
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

    /// A replica's types 20000 (an enum) and 20001 (its array), its table 20002.
    fn objects() -> Objects {
        let mut objects = Objects::default();
        objects.add_type(20_000, 30_000, false);
        objects.add_parameter(20_000, 30_000);
        objects.add_type(20_001, 30_001, true);
        objects.add_parameter(20_001, 30_001);
        objects.add_table(20_002, 30_002);
        objects
    }

    fn needs_of(columns: &[Vec<u8>], sees: bool) -> Option<Needs> {
        let body = description(columns);
        needs(tag::ROW_DESCRIPTION, &body, sees, Some(&objects())).expect("well-formed")
    }

    #[test]
    fn what_is_not_known_of_a_replica_needs_its_objects() {
        let unmapped = description(&[column("m", 0, 0, 20_000, 0)]);
        let needs_without = |sees| needs(tag::ROW_DESCRIPTION, &unmapped, sees, None);
        assert_eq!(needs_without(true), Ok(Some(Needs::Objects)));
        assert_eq!(needs_without(false), Ok(None), "text has no OIDs");
        assert_eq!(needs_of(&[column("a", 16_400, 1, 23, 0)], true), None);
        assert_eq!(needs_of(&[column("r", 0, 0, 2249, 0)], true), None);
        assert_eq!(needs_of(&[column("m", 20_002, 1, 20_000, 0)], true), None);
        assert_eq!(needs_of(&[column("m", 20_002, 1, 20_003, 0)], true), Some(Needs::Objects));
        assert_eq!(needs_of(&[column("m", 0, 0, 20_003, 1)], false), Some(Needs::Objects));
        let parameters = |oids: &[u32], sees| {
            let oids: Vec<u8> = oids.iter().flat_map(|oid| oid.to_be_bytes()).collect();
            let body = [&[0, 2][..], &oids].concat();
            needs(tag::PARAMETER_DESCRIPTION, &body, sees, Some(&objects()))
        };
        assert_eq!(parameters(&[23, 20_001], true), Ok(None));
        assert_eq!(parameters(&[23, 20_003], true), Ok(Some(Needs::Objects)));
        assert_eq!(parameters(&[23, 20_003], false), Ok(None));
        assert!(needs(tag::ROW_DESCRIPTION, &[0, 1, b'a'], true, None).is_err());
    }

    #[test]
    fn binary_with_oids_inside_needs_the_primary() {
        for sees in [true, false] {
            assert_eq!(needs_of(&[column("m", 0, 0, 20_000, 1)], sees), None, "an enum has none");
            assert_eq!(needs_of(&[column("m", 0, 0, 20_001, 0)], sees), None, "text has none");
            assert_eq!(needs_of(&[column("m", 0, 0, 20_001, 1)], sees), Some(Needs::Primary));
            assert_eq!(needs_of(&[column("r", 0, 0, 2249, 1)], sees), Some(Needs::Primary));
            let both = [column("m", 0, 0, 20_001, 1), column("x", 0, 0, 20_009, 1)];
            assert_eq!(needs_of(&both, sees), Some(Needs::Primary));
        }
    }

    #[test]
    fn a_replicas_oids_become_the_primarys_and_all_else_stays() {
        let columns = [
            column("a", 20_002, 1, 23, 0),
            column("m", 20_002, 2, 20_000, 1),
            column("o", 20_005, 3, 25, 0),
            column("c", 1259, 2, 26, 1),
        ];
        let mut body = description(&columns);
        to_primary(tag::ROW_DESCRIPTION, &mut body, Some(&objects())).expect("well-formed");
        let expected = [
            column("a", 30_002, 1, 23, 0),
            column("m", 30_002, 2, 30_000, 1),
            column("o", 0, 0, 25, 0),
            column("c", 1259, 2, 26, 1),
        ];
        assert_eq!(body, description(&expected));
        let mut body = [&[0, 2][..], &23_u32.to_be_bytes(), &20_001_u32.to_be_bytes()].concat();
        to_primary(tag::PARAMETER_DESCRIPTION, &mut body, Some(&objects())).expect("well-formed");
        assert_eq!(body[6..], 30_001_u32.to_be_bytes());
    }

    #[test]
    fn a_parse_gets_the_replicas_oids_if_all_are_known() {
        let types =
            |oids: [u32; 2]| [&[0, 2][..], &oids[0].to_be_bytes(), &oids[1].to_be_bytes()].concat();
        let translated = |oids| to_replica(&types(oids), Some(&objects())).map(Cow::into_owned);
        assert_eq!(translated([0, 25]), Some(types([0, 25])));
        assert_eq!(translated([30_000, 30_001]), Some(types([20_000, 20_001])));
        assert_eq!(translated([30_000, 20_000]), None);
        assert_eq!(to_replica(&types([23, 30_000]), None), None);
        assert_eq!(to_replica(&[0, 0], None), Some(Cow::Borrowed(&[0, 0][..])));
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
    fn i8_the_memory_is_bounded() {
        let mut statements = OwnTypes::default();
        let last = 3 * u64::from(STATEMENTS_MAX);
        for id in 1..=last {
            statements.seen(id, Needs::Objects);
            assert!(statements.needs(1).is_some(), "what is asked for stays");
        }
        assert!(statements.needs(last).is_some() && statements.needs(2).is_none());
        assert!(statements.0.len() <= STATEMENTS_MAX as usize);
    }
}
