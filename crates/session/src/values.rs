//! The values of one execution of a statement: the constants in its text and the parameters of its Bind. They
//! determine which rows the statement names.

use std::cell::OnceCell;
use std::ops::Range;

use hihooi_sql::{Parameter, Values};
use hihooi_wire::frontend::{Bind, tag};
use hihooi_wire::{Fields, ProtocolError};

use crate::unit::Op;

/// What a statement runs with.
#[derive(Debug, Default)]
pub(crate) struct RunValues<'a> {
    /// Its text.
    text: &'a [u8],
    /// Where its constants stand, found when the first is asked for.
    constants: OnceCell<Vec<Range<usize>>>,
    /// The types that the client declared for parameters, as Parse has them.
    types: &'a [u8],
    /// What a Bind holds behind the names.
    bind: &'a [u8],
}

impl<'a> RunValues<'a> {
    /// Of a statement without parameters.
    pub(crate) fn of_text(text: &'a [u8]) -> RunValues<'a> {
        RunValues { text, ..RunValues::default() }
    }

    /// Of what a message runs.
    pub(crate) fn of(op: &'a Op) -> RunValues<'a> {
        let Op::Bind { message, prepared: Some((prepared, _)) } = op else {
            return RunValues::of_text(op.text());
        };
        let bind = Bind::read(message.body()).map_or(&[][..], |bind| bind.rest);
        RunValues { text: &prepared.query, types: prepared.types(), bind, ..RunValues::default() }
    }

    fn find(&self, number: u16) -> Result<Option<Parameter<'a>>, ProtocolError> {
        let mut fields = Fields::new(tag::BIND, self.bind);
        let (given, mut is_binary) = (fields.i16()?, false);
        for place in 1..=given {
            let format = fields.i16()?;
            if given == 1 || i32::from(place) == i32::from(number) {
                is_binary = format != 0;
            }
        }
        for place in 1..=fields.i16()? {
            let value = match usize::try_from(fields.i32()?) {
                Ok(len) => Some(fields.bytes(len)?),
                Err(_) => None,
            };
            if i32::from(place) == i32::from(number) {
                let declared = self.declared(number);
                return Ok(value.map(|value| Parameter { declared, is_binary, value }));
            }
        }
        Ok(None)
    }

    fn declared(&self, number: u16) -> u32 {
        let at = 2 + 4 * (usize::from(number) - 1);
        let oid = self.types.get(at..at + 4).and_then(|oid| oid.try_into().ok());
        oid.map_or(0, u32::from_be_bytes)
    }
}

impl Values for RunValues<'_> {
    fn constant(&self, place: u16) -> Option<&[u8]> {
        let constants = self.constants.get_or_init(|| hihooi_sql::constants(self.text));
        self.text.get(constants.get(usize::from(place))?.clone())
    }

    fn parameter(&self, number: u16) -> Option<Parameter<'_>> {
        if number == 0 { None } else { self.find(number).ok().flatten() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(formats: &[i16], values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut out = (formats.len() as i16).to_be_bytes().to_vec();
        formats.iter().for_each(|format| out.extend(format.to_be_bytes()));
        out.extend((values.len() as i16).to_be_bytes());
        for value in values {
            out.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
            out.extend(value.unwrap_or_default());
        }
        out.extend([0, 0]);
        out
    }

    fn told(formats: &[i16], number: u16) -> Option<(u32, bool, Vec<u8>)> {
        let bind = bind(formats, &[Some(b"a"), None, Some(b"ccc")]);
        let types = [0, 2, 0, 0, 0, 23, 0, 0, 0, 0];
        let values = RunValues { types: &types, bind: &bind, ..RunValues::default() };
        let parameter = values.parameter(number)?;
        Some((parameter.declared, parameter.is_binary, parameter.value.to_vec()))
    }

    #[test]
    fn parameters_have_their_formats_and_declared_types() {
        assert_eq!(told(&[], 1), Some((23, false, b"a".to_vec())));
        assert_eq!(told(&[1], 3), Some((0, true, b"ccc".to_vec())), "one format counts for all");
        assert_eq!(told(&[0, 0, 1], 1), Some((23, false, b"a".to_vec())));
        assert_eq!(told(&[0, 0, 1], 3), Some((0, true, b"ccc".to_vec())));
        assert_eq!(told(&[], 2), None, "NULL");
        assert_eq!(told(&[], 4), None);
        assert_eq!(told(&[], 0), None);
        let cut = RunValues { bind: &[0, 0, 0, 1, 0, 0, 0, 9, 1], ..RunValues::default() };
        assert!(cut.parameter(1).is_none());
    }
}
