//! Which rows of a table a statement names by the table's key (the row sets of the Hihooi paper's Table 2):
//! equality with constants and parameters, lists of them, and ranges of a key column whose preceding columns
//! are given.
//!
//! A condition is used only where rows for which it isn't true can't influence the result: as a top-level AND
//! term of WHERE or of an inner join's ON, and, for the nullable side of an outer join, of that join's ON. It
//! is also used for a column that must be equal to the condition's column. The meaning of a value must not
//! depend on the session's settings, and the operators must be PostgreSQL's own (I6).

use std::ops::Range;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::nodes::{A_Const, A_Expr, ColumnRef, InsertStmt, JoinExpr, TypeName};
use pg_raw_parse::raw::{A_Expr_Kind, BoolExprType, JoinType, OnConflictAction, OverridingKind};
use pg_raw_parse::{ConstValue, Node};

use super::expressions::last_name;
use super::names::{Merged, Source};
use super::scan::Scan;
use crate::catalog::{Column, Relation};
use crate::keys::KeyType;
use crate::named_rows::{Bounds, KeyTemplate, Slot, Template, text_elements, unquoted};

/// Lists that would name more rows are not followed (I8).
const KEYS_MAX: usize = 64;

/// What a row must have in a column in order to matter.
pub(super) struct Condition<'t> {
    /// Its place among the sources of the FROM.
    source: usize,
    column: &'t str,
    is: Is<'t>,
}

enum Is<'t> {
    /// One of these.
    Any(Vec<Node<'t>>),
    /// An element of this array.
    Element(Node<'t>),
    /// This or more.
    Low(Node<'t>),
    /// This or less.
    High(Node<'t>),
    /// What another source has in a column.
    Same(usize, &'t str),
}

/// Where a condition stands.
#[derive(Clone)]
struct Place {
    /// The sources that it can name.
    names: Range<usize>,
    /// Those whose rows matter only where it is true.
    narrows: Range<usize>,
}

impl<'t> Scan<'_, 't> {
    /// Only rows matter for which this is true: WHERE.
    pub fn only_where(&mut self, condition: Node<'t>) {
        let all = 0..self.sources();
        self.only_at(condition, &Place { names: all.clone(), narrows: all });
    }

    /// What must be true of the rows of a join that matter. Its left side begins with the source `first`, its right
    /// one with `second`.
    pub fn only_joined(&mut self, join: &'t JoinExpr, first: usize, second: usize) {
        let names = first..self.sources();
        let (left, right) = (first..second, second..names.end);
        let narrows = match join.jointype {
            JoinType::JOIN_INNER => names.clone(),
            JoinType::JOIN_LEFT => right.clone(),
            JoinType::JOIN_RIGHT => left.clone(),
            _ => 0..0,
        };
        self.only_at(join.quals(), &Place { names, narrows: narrows.clone() });
        for name in join.using_clause().iter().filter_map(|name| name.sval()) {
            let (left, right) =
                (self.place_of(name, left.clone()), self.place_of(name, right.clone()));
            if let (Some(left), Some(right)) = (left, right) {
                self.same(left, right, name, &narrows);
                self.same(right, left, name, &narrows);
            }
            let source = match join.jointype {
                JoinType::JOIN_INNER | JoinType::JOIN_LEFT => left,
                JoinType::JOIN_RIGHT => right,
                _ => None,
            };
            if let Some(scope) = self.scopes.last_mut() {
                scope.merged.push(Merged { name, first, source });
            }
        }
    }

    fn same(&mut self, source: usize, other: usize, column: &'t str, narrows: &Range<usize>) {
        if let Some(scope) = self.scopes.last_mut().filter(|_| narrows.contains(&source)) {
            let is = Is::Same(other, column);
            scope.conditions.push(Condition { source, column, is });
        }
    }

    fn only_at(&mut self, condition: Node<'t>, place: &Place) {
        // A loop, not a recursion: ANDs nest as deep as the parser allows.
        let mut left = vec![condition];
        while let Some(condition) = left.pop() {
            match condition {
                Node::BoolExpr(e) if e.boolop == BoolExprType::AND_EXPR => left.extend(e.args()),
                Node::A_Expr(e) => self.compared(e, place),
                _ => {}
            }
        }
    }

    fn compared(&mut self, e: &'t A_Expr, place: &Place) {
        let mut names = e.name().iter();
        let (Some(operator), None) = (names.next().and_then(|name| name.as_str()), names.next())
        else {
            return;
        };
        let (left, right) = (e.lexpr(), e.rexpr());
        match (e.kind, operator) {
            (A_Expr_Kind::AEXPR_OP, "=") => {
                if let (Node::RowExpr(left), Node::RowExpr(right)) = (left, right)
                    && left.args().len() == right.args().len()
                    && !has_star(left.args())
                    && !has_star(right.args())
                {
                    for (left, right) in left.args().iter().zip(right.args()) {
                        self.either(left, right, place, |value| Is::Any(vec![value]));
                    }
                }
                self.either(left, right, place, |value| Is::Any(vec![value]));
            }
            (A_Expr_Kind::AEXPR_OP, ">" | ">=") => {
                self.condition(left, place, Is::Low(right));
                self.condition(right, place, Is::High(left));
            }
            (A_Expr_Kind::AEXPR_OP, "<" | "<=") => {
                self.condition(left, place, Is::High(right));
                self.condition(right, place, Is::Low(left));
            }
            (A_Expr_Kind::AEXPR_IN, "=") => {
                if let Node::NodeList(list) = right {
                    self.listed(left, list, place);
                }
            }
            (A_Expr_Kind::AEXPR_OP_ANY, "=") => match right {
                Node::A_ArrayExpr(array) => self.listed(left, array.elements(), place),
                _ => self.condition(left, place, Is::Element(right)),
            },
            (A_Expr_Kind::AEXPR_BETWEEN, _) => {
                if let Node::NodeList(list) = right
                    && let (Some(low), Some(high)) = (list.get(0), list.get(1))
                {
                    self.condition(left, place, Is::Low(low));
                    self.condition(left, place, Is::High(high));
                }
            }
            _ => {}
        }
    }

    /// Of lists of rows, each column counts by itself, which names more rows.
    fn listed(&mut self, left: Node<'t>, list: &'t NodeList, place: &Place) {
        if list.len() > KEYS_MAX {
            return;
        }
        let Node::RowExpr(columns) = left else {
            return self.condition(left, place, Is::Any(list.iter().collect()));
        };
        let columns_are_told = !has_star(columns.args());
        for (at, column) in columns.args().iter().enumerate().filter(|_| columns_are_told) {
            let value = |row| match row {
                Node::RowExpr(row) if row.args().len() == columns.args().len() => {
                    row.args().get(at).filter(|_| !has_star(row.args()))
                }
                _ => None,
            };
            if let Some(values) = list.iter().map(value).collect() {
                self.condition(column, place, Is::Any(values));
            }
        }
    }

    fn either(
        &mut self,
        left: Node<'t>,
        right: Node<'t>,
        place: &Place,
        is: impl Fn(Node<'t>) -> Is<'t>,
    ) {
        self.condition(left, place, is(right));
        self.condition(right, place, is(left));
    }

    fn condition(&mut self, column: Node<'t>, place: &Place, is: Is<'t>) {
        let Node::ColumnRef(column) = column else { return };
        let narrowed = |source: &usize| place.narrows.contains(source);
        let Some(source) = self.source_of(column, place).filter(narrowed) else { return };
        let Some(column) = last_name(column.fields()) else { return };
        let is = match is {
            Is::Any(values) => match values[..] {
                [Node::ColumnRef(other)] => {
                    let Some(source) = self.source_of(other, place) else { return };
                    let Some(column) = last_name(other.fields()) else { return };
                    Is::Same(source, column)
                }
                _ => Is::Any(values),
            },
            is => is,
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.conditions.push(Condition { source, column, is });
        }
    }

    /// The only source whose column is certainly meant.
    fn source_of(&self, column: &ColumnRef, place: &Place) -> Option<usize> {
        let fields = column.fields();
        let name = last_name(fields)?;
        match fields.len() {
            1 => self.place_of(name, place.names.clone()),
            2 => {
                let qualifier = fields.get(0)?.as_str()?;
                self.only_source(name, place.names.clone(), |source| source.name == qualifier)
            }
            _ => None,
        }
    }

    /// The only one of these sources that certainly has a column of this name without a qualifier.
    fn place_of(&self, name: &str, sources: Range<usize>) -> Option<usize> {
        let scope = self.scopes.last().filter(|scope| !scope.is_natural)?;
        let is_meant =
            |merged: &&Merged<'_>| merged.name == name && sources.contains(&merged.first);
        match scope.merged.iter().rev().find(is_meant) {
            Some(merged) => merged.source,
            None => self.only_source(name, sources, |source| source.has(name)),
        }
    }

    fn only_source(
        &self,
        column: &str,
        sources: Range<usize>,
        is_meant: impl Fn(&Source<'_, '_>) -> bool,
    ) -> Option<usize> {
        let scope = self.scopes.last().filter(|scope| !scope.hides && column.is_ascii())?;
        let mut meant = sources.filter(|place| is_meant(&scope.sources[*place]));
        let place = meant.next()?;
        let source = &scope.sources[place];
        (meant.next().is_none() && source.has(column) && !source.is_renamed).then_some(place)
    }

    /// Whether PostgreSQL's own operators and types are meant.
    fn means_built_in(&self) -> bool {
        let path = self.path.is_some_and(|p| !p.schemas().iter().any(|s| &**s == "pg_catalog"));
        path && !self.catalog.has_own_comparisons
    }

    /// The keys of a table's rows that matter, if the conditions name them.
    pub fn keys_of(&self, source: usize, table: &Relation) -> Option<Vec<KeyTemplate>> {
        if table.key.is_empty() || !self.means_built_in() {
            return None;
        }
        let mut keys: Vec<Vec<Template>> = vec![Vec::new()];
        let mut columns = table.key.iter().map(|place| &table.columns[*place]);
        let next = loop {
            let Some(column) = columns.next() else { break None };
            let Some(values) = self.values_of(source, column) else { break Some(column) };
            if values.is_empty() || keys.len() * values.len() > KEYS_MAX {
                break None;
            }
            keys = product(&keys, &values);
        };
        let is_whole = keys[0].len() == table.key.len();
        let bounds = next.and_then(|column| self.bounds_of(source, column)).map(Box::new);
        if keys[0].is_empty() && bounds.is_none() {
            return None;
        }
        let key = |values: Vec<Template>| KeyTemplate {
            values: values.into(),
            bounds: bounds.clone(),
            is_whole,
        };
        Some(keys.into_iter().map(key).collect())
    }

    /// What must hold for a column of a source, and for the columns that it must be equal to.
    fn conditions_on(&self, source: usize, column: &Column) -> Vec<&Is<'t>> {
        let Some(scope) = self.scopes.last() else { return Vec::new() };
        let mut equal: Vec<(usize, &str)> = vec![(source, &*column.name)];
        let mut found = Vec::new();
        let mut next = 0;
        while let Some(&(source, name)) = equal.get(next) {
            next += 1;
            let on = |c: &&Condition<'t>| c.source == source && c.column == name;
            for condition in scope.conditions.iter().filter(on) {
                match condition.is {
                    Is::Same(other, name) => {
                        let is_new = !equal.contains(&(other, name));
                        if is_new && scope.sources[other].compares_as(name, column) {
                            equal.push((other, name));
                        }
                    }
                    _ => found.push(&condition.is),
                }
            }
        }
        found
    }

    fn values_of(&self, source: usize, column: &Column) -> Option<Vec<Template>> {
        self.conditions_on(source, column).into_iter().find_map(|is| match is {
            Is::Any(values) => values.iter().map(|value| self.template(*value, column)).collect(),
            Is::Element(array) => self.array(*array, column),
            Is::Low(_) | Is::High(_) | Is::Same(..) => None,
        })
    }

    fn bounds_of(&self, source: usize, column: &Column) -> Option<Bounds> {
        if !column.key_type.is_some_and(|key_type| key_type.is_ordered()) {
            return None;
        }
        let mut bounds = Bounds::default();
        for is in self.conditions_on(source, column) {
            match is {
                Is::Low(value) => bounds.low = bounds.low.or_else(|| self.template(*value, column)),
                Is::High(value) => {
                    bounds.high = bounds.high.or_else(|| self.template(*value, column))
                }
                Is::Any(_) | Is::Element(_) | Is::Same(..) => {}
            }
        }
        (bounds != Bounds::default()).then_some(bounds)
    }

    /// The keys of the rows that an INSERT adds, if its VALUES name them.
    pub fn inserted(&self, insert: &'t InsertStmt, table: &Relation) -> Option<Vec<KeyTemplate>> {
        let Node::SelectStmt(select) = insert.select_stmt() else { return None };
        let rows = select.values_lists();
        let given = insert.override_ == OverridingKind::OVERRIDING_USER_VALUE;
        let known = !table.key.is_empty() && self.means_built_in() && names_conflict(insert, table);
        if given || !known || rows.is_empty() || rows.len() > KEYS_MAX {
            return None;
        }
        let names: Vec<&str> = match insert.cols().is_empty() {
            true => self.target_columns()?,
            false => insert.cols().iter().map(target_name).collect::<Option<_>>()?,
        };
        rows.iter().map(|row| self.inserted_row(row, &names, table)).collect()
    }

    /// The columns of the target of an INSERT, in order.
    fn target_columns(&self) -> Option<Vec<&str>> {
        let target = self.scopes.last()?.sources.first()?;
        let [table] = target.tables[..] else { return None };
        Some(table.columns.iter().map(|column| &*column.name).collect())
    }

    fn inserted_row(&self, row: Node<'t>, names: &[&str], table: &Relation) -> Option<KeyTemplate> {
        let Node::NodeList(values) = row else { return None };
        if has_star(values) {
            return None; // its values' places aren't those of the columns
        }
        let value = |place: &usize| {
            let column = &table.columns[*place];
            let at = names.iter().position(|name| *name == &*column.name)?;
            let is_certain = column.is_exact && column.name.is_ascii() && !column.is_generated;
            self.template(values.get(at)?, column).filter(|_| is_certain)
        };
        let values: Box<[Template]> = table.key.iter().map(value).collect::<Option<_>>()?;
        Some(KeyTemplate { values, bounds: None, is_whole: true })
    }

    /// A value that is compared with a column, or put into it.
    fn template(&self, value: Node<'t>, column: &Column) -> Option<Template> {
        let key_type = column.key_type?;
        let slot = match value {
            Node::TypeCast(cast) => {
                let oid = built_in(cast.type_name()?).filter(|oid| key_type.takes(*oid))?;
                self.slot(cast.arg(), column, Some(oid))?
            }
            value => self.slot(value, column, None)?,
        };
        Some(Template { key_type, type_oid: column.base_oid, slot })
    }

    /// What an array has, which is a parameter or a string, perhaps with a cast.
    fn array(&self, value: Node<'t>, column: &Column) -> Option<Vec<Template>> {
        let key_type = column.key_type?;
        let (value, cast) = match value {
            Node::TypeCast(cast) => {
                let oid = array_of(cast.type_name()?).filter(|oid| key_type.takes(*oid))?;
                (cast.arg(), Some(oid))
            }
            value => (value, None),
        };
        let slots = match value {
            Node::ParamRef(parameter) => vec![Slot::Elements {
                number: u16::try_from(parameter.number).ok().filter(|number| *number > 0)?,
                must_be_declared: false, // told when all places are known
                cast,
            }],
            Node::A_Const(constant) => self.elements(constant, key_type)?,
            _ => return None,
        };
        let template = |slot| Template { key_type, type_oid: column.base_oid, slot };
        Some(slots.into_iter().map(template).collect())
    }

    /// The elements of a string that stands for an array.
    fn elements(&self, constant: &A_Const, key_type: KeyType) -> Option<Vec<Slot>> {
        let at = usize::try_from(constant.location).ok()?;
        let differs = self.constants.is_some_and(|all| all.iter().any(|c| c.start == at));
        let ConstValue::String(text) = constant.val()? else { return None };
        if differs || !text.is_ascii() {
            return None; // the template stands for texts with other strings, too
        }
        let element = |value: &[u8]| {
            let mut form = Vec::new();
            key_type.push_text(value, &mut form)?;
            Some(Slot::Value(form.into()))
        };
        text_elements(text.as_bytes())?.into_iter().map(element).collect()
    }

    fn slot(&self, value: Node<'t>, column: &Column, cast: Option<u32>) -> Option<Slot> {
        let key_type = column.key_type?;
        match value {
            Node::ParamRef(parameter) => Some(Slot::Parameter {
                number: u16::try_from(parameter.number).ok().filter(|number| *number > 0)?,
                must_be_declared: false, // told when all places are known
                cast,
            }),
            Node::A_Const(constant) => match constant.val()? {
                // Which bytes stand for other letters depends on the client's encoding.
                ConstValue::String(text) if key_type.is_text() && !text.is_ascii() => None,
                ConstValue::String(text) => self.string(constant, text, key_type),
                ConstValue::Boolean(value) if cast.is_none() => {
                    let mut form = Vec::new();
                    key_type.push_text(if value { b"t" } else { b"f" }, &mut form)?;
                    (key_type.takes(BOOL)).then(|| Slot::Value(form.into()))
                }
                ConstValue::Integer(_) | ConstValue::Float(_) => self.number(constant, column),
                _ => None,
            },
            _ => None,
        }
    }

    /// A string. In a template it may be a slot, unless it goes on behind it.
    fn string(&self, constant: &'t A_Const, text: &str, key_type: KeyType) -> Option<Slot> {
        let at = usize::try_from(constant.location).ok()?;
        if let Some(place) = self.constants.and_then(|all| all.iter().position(|c| c.start == at)) {
            let token = self.whole_text.get(self.constants?[place].clone())?;
            let is_whole = unquoted(token.as_bytes())? == text.as_bytes();
            return is_whole.then(|| Some(Slot::Text { place: u16::try_from(place).ok()? }))?;
        }
        let mut form = Vec::new();
        key_type.push_text(text.as_bytes(), &mut form)?;
        Some(Slot::Value(form.into()))
    }

    /// A whole number. In a template it is a slot, with the minus that stays in the template.
    fn number(&self, constant: &'t A_Const, column: &Column) -> Option<Slot> {
        let value = whole_number(constant)?;
        let at = usize::try_from(constant.location).ok()?;
        let rest = self.whole_text.get(at..)?;
        let behind = rest.strip_prefix('-').map(str::trim_ascii_start);
        let (is_negative, digits) = (behind.is_some(), behind.unwrap_or(rest));
        let start = at + rest.len() - digits.len();
        let place = |all: &[Range<usize>]| all.iter().position(|constant| constant.start == start);
        match self.constants.map(place) {
            Some(Some(place)) => {
                Some(Slot::Number { place: u16::try_from(place).ok()?, is_negative })
            }
            // Not a number that differs among texts of a template, unless a comment hides it.
            Some(None) if is_negative => None,
            _ => {
                let mut form = Vec::new();
                let (digits, is_negative) = match value.strip_prefix('-') {
                    Some(digits) => (digits, true),
                    None => (value.as_str(), false),
                };
                column.key_type?.push_number(digits.as_bytes(), is_negative, &mut form)?;
                Some(Slot::Value(form.into()))
            }
        }
    }
}

const BOOL: u32 = 16;

fn whole_number(constant: &A_Const) -> Option<String> {
    match constant.val()? {
        ConstValue::Integer(number) => Some(number.to_string()),
        ConstValue::Float(text) => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| text.to_owned())
        }
        _ => None,
    }
}

/// Whether one of these stands for several columns.
fn has_star(list: &NodeList) -> bool {
    list.iter().any(|node| match node {
        Node::ColumnRef(column) => last_name(column.fields()).is_none(),
        Node::A_Indirection(e) => e.indirection().iter().any(|step| step.as_str().is_none()),
        _ => false,
    })
}

/// Every list of values with every value behind it.
fn product(keys: &[Vec<Template>], values: &[Template]) -> Vec<Vec<Template>> {
    let with = |key: &Vec<Template>, value: &Template| {
        let mut key = key.clone();
        key.push(value.clone());
        key
    };
    keys.iter().flat_map(|key| values.iter().map(move |value| with(key, value))).collect()
}

/// Whether an INSERT touches no other rows than those that it names: those it finds in conflict have their key.
fn names_conflict(insert: &InsertStmt, table: &Relation) -> bool {
    let Some(conflict) = insert.on_conflict_clause() else { return true };
    if conflict.action == OnConflictAction::ONCONFLICT_NOTHING {
        return true;
    }
    let key = || table.key.iter().map(|place| &*table.columns[*place].name);
    let Some(infer) = conflict.infer() else { return false };
    let inferred: Option<Vec<&str>> = infer.index_elems().iter().map(column_of).collect();
    let Some(inferred) = inferred else { return false };
    let is_key = inferred.len() == table.key.len() && key().all(|name| inferred.contains(&name));
    let mut targets = conflict.target_list().iter();
    // Another index over the same columns, with a collation of its own, may find another row.
    let has_text = table
        .key
        .iter()
        .any(|place| table.columns[*place].key_type.is_none_or(|key_type| key_type.is_text()));
    is_key
        && !has_text
        && targets.all(|target| target.name().is_some_and(|name| key().all(|key| key != name)))
}

fn target_name(target: Node<'_>) -> Option<&str> {
    let Node::ResTarget(target) = target else { return None };
    target.name()
}

/// The column that an index is inferred by; `None` for expressions and for a collation or operators of its own.
fn column_of(element: Node<'_>) -> Option<&str> {
    match element {
        Node::IndexElem(e) if e.collation().is_empty() && e.opclass().is_empty() => e.name(),
        _ => None,
    }
}

/// The OID of the type of an array's elements, as [`built_in`] tells it.
fn array_of(name: &TypeName) -> Option<u32> {
    (name.array_bounds().len() == 1).then(|| element_type(name))?
}

/// The OID of a built-in type that has keys, if that is what the name means and nothing is cut or rounded.
fn built_in(name: &TypeName) -> Option<u32> {
    name.array_bounds().is_empty().then(|| element_type(name))?
}

fn element_type(name: &TypeName) -> Option<u32> {
    if !name.typmods().is_empty() || name.setof {
        return None;
    }
    let mut names = name.names().iter().rev().map(|part| part.sval());
    let last = names.next()??;
    if !matches!((names.next(), names.next()), (None | Some(Some("pg_catalog")), None)) {
        return None;
    }
    Some(match last {
        "bool" => BOOL,
        "int8" => 20,
        "int2" => 21,
        "int4" => 23,
        "text" => 25,
        "bytea" => 17,
        "varchar" => 1043,
        "date" => 1082,
        "timestamp" => 1114,
        "timestamptz" => 1184,
        "numeric" => 1700,
        "uuid" => 2950,
        _ => return None,
    })
}
