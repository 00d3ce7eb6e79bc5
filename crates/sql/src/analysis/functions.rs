//! Function calls. An unqualified name can mean a function of any schema, and a user's function can shadow a
//! built-in one (manual, section 5.9.6), so all functions of that name are considered.

use pg_raw_parse::nodes::FuncCall;
use pg_raw_parse::{ConstValue, Node};

use super::expressions::{is_system_column, last_name};
use super::scan::Scan;
use crate::builtins::Builtin;
use crate::catalog::UserFunction;
use crate::facts::{SessionEffect, Unsafe};

impl<'t> Scan<'_, 't> {
    pub fn function(&mut self, call: &'t FuncCall) {
        self.arguments(call);
        for sort in call.agg_order() {
            self.sort(sort);
        }
        self.expr(call.agg_filter());
        if let Some(window) = call.over() {
            self.window(window);
        }
        let mut names = call.funcname().iter().rev().map(|node| node.as_str());
        let name = names.next().flatten().unwrap_or_default();
        let schema = names.next().flatten();
        self.lists_prepared |= matches!(name, "pg_prepared_statement" | "pg_cursor");
        self.call(schema, name, call);
    }

    /// The arguments; but the name of a sequence is no use of the catalogs that would matter.
    fn arguments(&mut self, call: &'t FuncCall) {
        let name = last_name(call.funcname());
        let is_sequence = matches!(name, Some("nextval" | "currval" | "setval"));
        let first = usize::from(is_sequence && constant(call, 0).is_some());
        for argument in call.args().iter().skip(first) {
            self.expr(argument);
        }
    }

    fn call(&mut self, schema: Option<&str>, name: &str, call: &'t FuncCall) {
        let in_reach = |function: &&UserFunction| schema.is_none_or(|s| *s == *function.schema);
        let user = self.users(name).iter().filter(in_reach).map(|f| f.routine).max();
        let is_in_reach = schema.is_none_or(|schema| schema == "pg_catalog");
        let builtin = is_in_reach.then(|| self.catalog.builtins.get(name)).flatten();
        if user.is_none() && builtin.is_none() {
            return self.unknown(Unsafe::UnknownFunction);
        }
        if let Some(routine) = user {
            self.routine(routine, self.catalog.leaves.of_name(name));
        }
        if let Some(builtin) = builtin {
            self.builtin(builtin, Some(call));
        }
    }

    /// `row.name` may mean name(row), if a user's function takes a row, or one of PostgreSQL's that takes anything.
    pub fn row_function(&mut self, name: &str) {
        if name.starts_with("pg_")
            && let Some(builtin) = self.catalog.builtins.get(name)
        {
            self.builtin(builtin, None);
        }
        let user = self.users(name).iter().filter(|f| f.takes_row).map(|f| f.routine).max();
        if let Some(routine) = user {
            self.routine(routine, self.catalog.leaves.of_name(name));
        }
    }

    /// `(expression).name` may mean name(expression), whatever type that has; or a column of a whole row.
    pub fn field(&mut self, name: &str) {
        if is_system_column(name) {
            self.primary_only(Unsafe::SystemColumn);
        }
        if let Some(routine) = self.users(name).iter().map(|f| f.routine).max() {
            self.routine(routine, self.catalog.leaves.of_name(name));
        }
        if let Some(builtin) = self.catalog.builtins.get(name) {
            self.builtin(builtin, None);
        }
    }

    /// Users' functions of a name.
    fn users(&self, name: &str) -> &[UserFunction] {
        self.catalog.functions.get(name).map_or(&[], Vec::as_slice)
    }

    fn builtin(&mut self, builtin: Builtin, call: Option<&'t FuncCall>) {
        match builtin {
            Builtin::Safe => {}
            Builtin::Primary(reason) => self.primary_only(reason),
            Builtin::ReadsAnything(reason) => {
                self.primary_only(reason);
                self.reads.add_everything();
            }
            Builtin::Opaque => self.opaque(Unsafe::VolatileFunction),
            Builtin::RunsText => {
                self.opaque(Unsafe::VolatileFunction);
                match call.and_then(|call| constant(call, 0)) {
                    Some(text) => self.session.merge(&self.catalog.leaves.of_command(text)),
                    None => self
                        .session
                        .merge(&SessionEffect { any_setting: false, ..SessionEffect::anything() }),
                }
            }
            Builtin::SessionLock => {
                self.session.advisory = true;
                self.primary_only(Unsafe::AdvisoryLock);
            }
            Builtin::SetSeed => {
                self.session.settings = true;
                self.primary_only(Unsafe::SessionState);
            }
            Builtin::SetConfig => self.set_config(call),
            Builtin::CurrentSetting => {
                let name = call.and_then(|call| constant(call, 0));
                if !name.is_some_and(|name| name.contains('.')) {
                    self.primary_only(Unsafe::SessionState);
                }
            }
        }
    }

    /// `set_config(name, value, is_local)` (manual, section 9.28.1).
    fn set_config(&mut self, call: Option<&'t FuncCall>) {
        self.primary_only(Unsafe::SessionState);
        let name = call.and_then(|call| constant(call, 0)).map(str::to_ascii_lowercase);
        if let Some(name) = name.as_ref().filter(|name| name.contains('.')) {
            self.session.custom_settings.push(name.as_str().into());
            return;
        }
        match call.and_then(constant_bool) {
            Some(true) => self.session.local_settings = true,
            Some(false) => self.session.settings = true,
            None => (self.session.local_settings, self.session.settings) = (true, true),
        }
        let Some(name) = name else {
            (self.session.search_path, self.session.role) = (true, true);
            self.session.any_setting |= call.and_then(constant_bool) != Some(true);
            return;
        };
        match &*name {
            "search_path" => self.session.search_path = true,
            "role" | "session_authorization" => self.session.role = true,
            _ => {}
        }
    }
}

/// The string constant that is an argument of a call, perhaps with a cast.
fn constant(call: &FuncCall, argument: usize) -> Option<&str> {
    let mut node = call.args().get(argument)?;
    if let Node::TypeCast(cast) = node {
        node = cast.arg();
    }
    match node {
        Node::A_Const(constant) => match constant.val()? {
            ConstValue::String(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The boolean constant that is the third argument of a call.
fn constant_bool(call: &FuncCall) -> Option<bool> {
    match call.args().get(2)? {
        Node::A_Const(constant) => constant.val()?.bool_value(),
        _ => None,
    }
}
