//! Which rows a statement names by their keys: templates with slots, which are made once when the text is
//! analysed, and filled with the values of each execution without parsing (Hihooi section 4.1, the row sets of
//! Table 2).
//!
//! Keeps I6: if a slot has no value, or one whose canonical form isn't certain, the statement names all rows.

use std::fmt;

use hihooi_replication::items::{Item, Items, RelId, Rows, SPANS_MAX, Span};

use crate::keys::{KeyType, trim};

/// Rows of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedRows {
    /// The table.
    pub table: RelId,
    /// Their keys: any of these.
    pub keys: Box<[KeyTemplate]>,
}

/// A key, or the first values of one, and perhaps a range of the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyTemplate {
    /// The first values, in the order of the key.
    pub(crate) values: Box<[Template]>,
    /// The bounds of the value behind them.
    pub(crate) bounds: Option<Box<Bounds>>,
    /// These are all values of the key.
    pub(crate) is_whole: bool,
}

/// Bounds of a value, counted in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounds {
    pub low: Option<Template>,
    pub high: Option<Template>,
}

/// A value of a column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    pub key_type: KeyType,
    /// The column's type, or the type under its domain: what a parameter without a type of its own gets.
    pub type_oid: u32,
    pub slot: Slot,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// It stands in the text: its canonical form.
    Value(Box<[u8]>),
    /// A number of the text, by its place among the constants that a template lacks, from 0.
    Number { place: u16, is_negative: bool },
    /// A string of the text, likewise.
    Text { place: u16 },
    /// A parameter, by its number from 1. One that stands in several places could have got its type from
    /// another: it must have been declared.
    Parameter { number: u16, must_be_declared: bool, cast: Option<u32> },
    /// The elements of a parameter that is an array; `cast` is the type of an element.
    Elements { number: u16, must_be_declared: bool, cast: Option<u32> },
}

impl fmt::Display for NamedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.iter().try_for_each(|key| write!(f, "[{key}]"))
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for template in &self.values {
            write!(f, "{separator}{template}")?;
            separator = ",";
        }
        if let Some(bounds) = &self.bounds {
            let bound = |bound: &Option<Template>| bound.as_ref().map(ToString::to_string);
            let (low, high) = (bound(&bounds.low), bound(&bounds.high));
            write!(f, "{separator}{}..{}", low.unwrap_or_default(), high.unwrap_or_default())?;
        }
        if self.is_whole { Ok(()) } else { write!(f, ",…") }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.slot {
            Slot::Value(form) => write!(f, "'{}'", form.escape_ascii()),
            Slot::Number { place, is_negative } => {
                write!(f, "{}#{place}", if *is_negative { "-" } else { "" })
            }
            Slot::Text { place } => write!(f, "#{place}"),
            Slot::Parameter { number, must_be_declared, cast }
            | Slot::Elements { number, must_be_declared, cast } => {
                let all = if matches!(self.slot, Slot::Elements { .. }) { "any " } else { "" };
                write!(f, "{all}${number}{}", if *must_be_declared { "!" } else { "" })?;
                cast.map_or(Ok(()), |oid| write!(f, "::{oid}"))
            }
        }
    }
}

/// A parameter of a run.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// The OID of the type that the client declared; 0 if it left that to the server.
    pub declared: u32,
    /// It is in binary format.
    pub is_binary: bool,
    /// Its value, unless it is NULL.
    pub value: &'a [u8],
}

/// The values of a run.
pub trait Values {
    /// A constant of the text, by its place among those that its template lacks. A string has its quotes.
    fn constant(&self, place: u16) -> Option<&[u8]>;
    /// A parameter by its number, from 1; `None` if it is NULL or there is none.
    fn parameter(&self, number: u16) -> Option<Parameter<'_>>;
}

/// Items with their rows narrowed to those that a run names.
#[must_use]
pub fn narrow(items: &Items, named: &[NamedRows], values: &dyn Values) -> Items {
    let Items::Tables(tables) = items else { return items.clone() };
    if named.is_empty() {
        return items.clone();
    }
    let narrowed = tables.iter().map(|item| {
        let rows = named.iter().find(|rows| rows.table == item.table);
        let rows = rows.and_then(|rows| rows.bind(values)).unwrap_or_else(|| item.rows.clone());
        Item { rows, ..item.clone() }
    });
    Items::Tables(narrowed.collect())
}

impl NamedRows {
    /// How much memory it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let templates = self.keys.iter().map(|key| key.values.len() + 2).sum::<usize>();
        size_of_val(self) + size_of_val(&*self.keys) + templates * (size_of::<Template>() + 16)
    }

    fn bind(&self, values: &dyn Values) -> Option<Rows> {
        let mut spans = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            key.bind(values, &mut spans)?;
        }
        Some(Rows::of(spans))
    }
}

impl KeyTemplate {
    /// Each parameter stands in so many places of the statement, by its number.
    pub(crate) fn counts(&mut self, places: &[u16]) {
        let bounds = self.bounds.iter_mut().flat_map(|bounds| [&mut bounds.low, &mut bounds.high]);
        for template in self.values.iter_mut().chain(bounds.flatten()) {
            if let Slot::Parameter { number, must_be_declared, .. }
            | Slot::Elements { number, must_be_declared, .. } = &mut template.slot
            {
                let count = places.get(usize::from(*number)).copied();
                *must_be_declared = count != Some(1);
            }
        }
    }

    /// Adds the keys that a run names.
    fn bind(&self, values: &dyn Values, spans: &mut Vec<Span>) -> Option<()> {
        self.extend(&self.values, &mut Vec::with_capacity(32), values, spans)
    }

    /// Adds the keys that begin so, and go on with values of these templates: each with each, where one has
    /// several.
    fn extend(
        &self,
        templates: &[Template],
        key: &mut Vec<u8>,
        values: &dyn Values,
        spans: &mut Vec<Span>,
    ) -> Option<()> {
        let Some((template, behind)) = templates.split_first() else {
            spans.push(self.span(key, values)?);
            return (spans.len() <= SPANS_MAX).then_some(());
        };
        let Slot::Elements { number, must_be_declared, cast } = &template.slot else {
            template.push(values, key)?;
            return self.extend(behind, key, values, spans);
        };
        let array = values.parameter(*number)?;
        let declared = if array.declared == 0 { 0 } else { element_type(array.declared)? };
        let declared = template.type_of(declared, *cast, *must_be_declared)?;
        let elements = match array.is_binary {
            true => binary_elements(array.value)?,
            false => text_elements(array.value)?,
        };
        let len = key.len();
        elements.into_iter().try_for_each(|value| {
            let element = Parameter { declared, value, ..array };
            template.push_parameter(element, declared, key)?;
            self.extend(behind, key, values, spans)?;
            key.truncate(len);
            Some(())
        })
    }

    fn span(&self, key: &[u8], values: &dyn Values) -> Option<Span> {
        if self.is_whole {
            return Some(Span::row(key));
        }
        let Some(bounds) = &self.bounds else { return Some(Span::between(key, key)) };
        let bound = |template: &Option<Template>| {
            let mut bound = key.to_vec();
            template.as_ref().map_or(Some(()), |bounds| bounds.push(values, &mut bound))?;
            Some(bound)
        };
        Some(Span::between(bound(&bounds.low)?, bound(&bounds.high)?))
    }
}

impl Template {
    /// Appends the canonical form of the value; `None` if there is none for certain.
    fn push(&self, values: &dyn Values, key: &mut Vec<u8>) -> Option<()> {
        match &self.slot {
            Slot::Value(value) => {
                key.extend_from_slice(value);
                Some(())
            }
            Slot::Number { place, is_negative } => {
                self.key_type.push_number(values.constant(*place)?, *is_negative, key)
            }
            Slot::Text { place } => {
                let text = unquoted(values.constant(*place)?)?;
                self.is_plain(&text).then(|| self.key_type.push_text(&text, key))?
            }
            Slot::Parameter { number, must_be_declared, cast } => {
                let parameter = values.parameter(*number)?;
                let type_oid = self.type_of(parameter.declared, *cast, *must_be_declared)?;
                self.push_parameter(parameter, type_oid, key)
            }
            Slot::Elements { .. } => None, // many values: see `KeyTemplate::extend`
        }
    }

    /// The type in which a parameter comes, if it is certain to be compared as what it is.
    fn type_of(&self, declared: u32, cast: Option<u32>, must_be_declared: bool) -> Option<u32> {
        match (declared, cast) {
            (0, _) if must_be_declared => None,
            (0, cast) => Some(cast.unwrap_or(self.type_oid)),
            // A cast from another type may round.
            (declared, Some(cast)) if !is_kept(declared, cast) => None,
            (declared, _) => Some(declared),
        }
    }

    fn push_parameter(&self, value: Parameter<'_>, oid: u32, key: &mut Vec<u8>) -> Option<()> {
        if !self.key_type.takes(oid) || !self.is_plain(value.value) {
            return None;
        }
        match value.is_binary {
            true => self.key_type.push_binary(oid, value.value, key),
            false => self.key_type.push_text(value.value, key),
        }
    }

    /// Which bytes stand for other letters depends on the client's encoding.
    fn is_plain(&self, value: &[u8]) -> bool {
        !self.key_type.is_text() || value.is_ascii()
    }
}

/// Whether a cast between these types keeps every value.
fn is_kept(from: u32, to: u32) -> bool {
    KeyType::of(to).is_some_and(|to| to.takes(from))
}

/// What a string constant without escapes stands for.
pub(crate) fn unquoted(token: &[u8]) -> Option<Vec<u8>> {
    let inner = token.strip_prefix(b"'")?.strip_suffix(b"'")?;
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        text.push(byte);
        if byte == b'\'' {
            bytes.next().filter(|next| **next == b'\'')?;
        }
    }
    Some(text)
}

/// The elements of an array's text; `None` if any needs more than cutting, or may be a NULL (or, with `array_nulls`
/// off, the word).
pub(crate) fn text_elements(text: &[u8]) -> Option<Vec<&[u8]>> {
    let inner = trim(text).strip_prefix(b"{")?.strip_suffix(b"}")?;
    if inner.iter().any(|b| matches!(b, b'{' | b'}' | b'"' | b'\\')) {
        return None;
    }
    if trim(inner).is_empty() {
        return Some(Vec::new());
    }
    let elements: Vec<&[u8]> = inner.split(|b| *b == b',').map(trim).collect();
    let is_null = |element: &&[u8]| element.eq_ignore_ascii_case(b"null");
    (!elements.iter().any(is_null)).then_some(elements)
}

/// The elements of an array's binary form, without NULLs (`array_send` of PostgreSQL's `arrayfuncs.c`).
fn binary_elements(mut form: &[u8]) -> Option<Vec<&[u8]>> {
    let mut number = || {
        let (number, rest) = form.split_first_chunk::<4>()?;
        form = rest;
        Some(i32::from_be_bytes(*number))
    };
    let (dimensions, _has_nulls, _element_type) = (number()?, number()?, number()?);
    let count = match dimensions {
        0 => 0,
        1 => usize::try_from(number()?).ok()?,
        _ => return None,
    };
    if count > SPANS_MAX {
        return None;
    }
    if count > 0 {
        number()?; // the lower bound
    }
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        let (len, rest) = form.split_first_chunk::<4>()?;
        form = rest;
        if let Ok(len) = usize::try_from(i32::from_be_bytes(*len)) {
            let (element, rest) = form.split_at_checked(len)?;
            form = rest;
            elements.push(element);
        }
    }
    Some(elements)
}

/// The type of the elements of arrays that are built in.
fn element_type(array: u32) -> Option<u32> {
    Some(match array {
        1000 => 16,
        1001 => 17,
        1005 => 21,
        1007 => 23,
        1009 => 25,
        1014 => 1042,
        1015 => 1043,
        1016 => 20,
        1115 => 1114,
        1182 => 1082,
        1185 => 1184,
        1231 => 1700,
        2951 => 2950,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_taken_apart_or_not_at_all() {
        let texts = |text: &str| {
            let elements = text_elements(text.as_bytes())?;
            Some(
                elements
                    .iter()
                    .map(|e| String::from_utf8_lossy(e).into_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(texts("{1, 2\u{b}, a}").unwrap(), ["1", "2", "a"]);
        assert_eq!(texts(" {} ").unwrap(), [""; 0]);
        for odd in ["{1,NULL}", "{{1},{2}}", "{\"a\"}", "{a\\b}", "1", "[0:1]={1,2}", ""] {
            assert_eq!(texts(odd), None, "{odd}");
        }
        let form =
            |numbers: &[i32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
        let array = form(&[1, 1, 23, 3, 1, 4, 7, -1, 4, 9]);
        assert_eq!(binary_elements(&array).unwrap(), [7_i32.to_be_bytes(), 9_i32.to_be_bytes()]);
        assert_eq!(binary_elements(&form(&[0, 0, 23])).unwrap(), [[0; 0]; 0]);
        assert_eq!(binary_elements(&form(&[2, 0, 23, 1, 1, 1, 1, 4, 7])), None);
        assert_eq!(binary_elements(&form(&[1, 0, 23, 2, 1, 4, 7])), None, "cut");
    }

    #[test]
    fn strings_lose_their_quotes() {
        assert_eq!(unquoted(b"'it''s'").unwrap(), b"it's");
        assert_eq!(unquoted(b"''").unwrap(), b"");
        assert_eq!(unquoted(b"'open"), None);
        assert_eq!(unquoted(b"'a'b'"), None);
    }
}
