//! Which rows a statement names by their keys: templates with slots, found once when the text is analysed,
//! and filled with a run's values without parsing (Hihooi section 4.1, the row sets of Table 2).
//!
//! Keeps I6: a slot without a value, or with one whose canonical form isn't certain, names all rows.

use std::fmt;

use hihooi_replication::items::{Item, Items, RelId, Rows, SPANS_MAX, Span};

use crate::keys::KeyType;

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
    /// A number of the text, by its place among the whole numbers there, from 0.
    Number { place: u16, is_negative: bool },
    /// A parameter, by its number from 1. One that stands in several places could have got its type from
    /// another: it must have been declared.
    Parameter { number: u16, must_be_declared: bool, cast: Option<u32> },
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
            Slot::Parameter { number, must_be_declared, cast } => {
                write!(f, "${number}{}", if *must_be_declared { "!" } else { "" })?;
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
    /// A whole number of the text, by its place among them.
    fn number(&self, place: u16) -> Option<&[u8]>;
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
        if self.keys.len() > SPANS_MAX {
            return None;
        }
        let spans: Option<Vec<Span>> = self.keys.iter().map(|key| key.bind(values)).collect();
        Some(Rows::of(spans?))
    }
}

impl KeyTemplate {
    /// Each parameter stands in so many places of the statement, by its number.
    pub(crate) fn counts(&mut self, places: &[u16]) {
        let bounds = self.bounds.iter_mut().flat_map(|bounds| [&mut bounds.low, &mut bounds.high]);
        for template in self.values.iter_mut().chain(bounds.flatten()) {
            if let Slot::Parameter { number, must_be_declared, .. } = &mut template.slot {
                let count = places.get(usize::from(*number)).copied();
                *must_be_declared = count != Some(1);
            }
        }
    }

    fn bind(&self, values: &dyn Values) -> Option<Span> {
        let mut key = Vec::with_capacity(16);
        for template in &self.values {
            template.push(values, &mut key)?;
        }
        if self.is_whole {
            return Some(Span::row(key));
        }
        let Some(bounds) = &self.bounds else { return Some(Span::between(key.clone(), key)) };
        let bound = |template: &Option<Template>| {
            let mut bound = key.clone();
            template.as_ref().map_or(Some(()), |low| low.push(values, &mut bound))?;
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
                self.key_type.push_number(values.number(*place)?, *is_negative, key)
            }
            Slot::Parameter { number, must_be_declared, cast } => {
                let parameter = values.parameter(*number)?;
                let type_oid = match (parameter.declared, cast) {
                    (0, _) if *must_be_declared => return None,
                    (0, Some(cast)) => *cast,
                    (0, None) => self.type_oid,
                    (declared, _) => declared,
                };
                // Which bytes stand for other letters depends on the client's encoding.
                let is_plain = !self.key_type.is_text() || parameter.value.is_ascii();
                if !self.key_type.takes(type_oid) || !is_plain {
                    return None;
                }
                match parameter.is_binary {
                    true => self.key_type.push_binary(type_oid, parameter.value, key),
                    false => self.key_type.push_text(parameter.value, key),
                }
            }
        }
    }
}
