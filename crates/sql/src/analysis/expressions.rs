//! Expressions (manual, chapters 4.2 and 9): finds function calls, relations that are read, and whatever
//! depends on the server.

use pg_raw_parse::Node;
use pg_raw_parse::list::NodeList;
use pg_raw_parse::nodes::{
    A_Expr, ColumnRef, JsonAggConstructor, JsonBehavior, JsonFuncExpr, JsonKeyValue, JsonOutput,
    JsonTable, JsonTableColumn, JsonValueExpr, SortBy, TypeName, WindowDef,
};
use pg_raw_parse::raw::A_Expr_Kind;

use super::scan::Scan;
use crate::facts::Unsafe;

impl<'t> Scan<'_, 't> {
    pub fn list(&mut self, list: &'t NodeList) {
        for node in list {
            self.expr(node);
        }
    }

    pub fn expr(&mut self, node: Node<'t>) {
        match node {
            // The frequent ones first; leaves need no count of depth.
            Node::None
            | Node::A_Const(_)
            | Node::SQLValueFunction(_)
            | Node::SetToDefault(_)
            | Node::A_Star(_)
            | Node::String(_)
            | Node::Integer(_)
            | Node::CurrentOfExpr(_) => {}
            Node::ColumnRef(column) => self.column(column),
            Node::ParamRef(parameter) => self.parameter(parameter.number),
            Node::A_Expr(_) => self.deeper(|scan| scan.operation(node)),
            _ => self.deeper(|scan| scan.compound(node)),
        }
    }

    fn compound(&mut self, node: Node<'t>) {
        match node {
            Node::FuncCall(call) => self.function(call),
            Node::TypeCast(cast) => {
                self.expr(cast.arg());
                self.cast_to(cast.type_name());
            }
            Node::BoolExpr(e) => self.list(e.args()),
            Node::NodeList(list) => self.list(list),
            Node::SelectStmt(select) => self.select(select),
            Node::SubLink(link) => {
                self.expr(link.testexpr());
                self.expr(link.subselect());
                match last_name(link.oper_name()) {
                    Some(name) => self.operator(name),
                    None => self.operator("="),
                }
            }
            // A function of a user may have its name before PostgreSQL 17.
            Node::MergeSupportFunc(_) if self.catalog.functions.contains_key("merge_action") => {
                self.unknown(Unsafe::UnknownFunction);
            }
            Node::MergeSupportFunc(_) => {}
            Node::NullTest(e) => self.expr(e.arg()),
            Node::BooleanTest(e) => self.expr(e.arg()),
            Node::CaseExpr(case) => {
                if !matches!(case.arg(), Node::None) {
                    self.operator("=");
                }
                self.expr(case.arg());
                self.list(case.args());
                self.expr(case.defresult());
            }
            Node::CaseWhen(when) => {
                self.expr(when.expr());
                self.expr(when.result());
            }
            Node::CoalesceExpr(e) => self.list(e.args()),
            Node::MinMaxExpr(e) => self.list(e.args()),
            Node::RowExpr(e) => self.list(e.args()),
            Node::A_ArrayExpr(e) => self.list(e.elements()),
            Node::CollateClause(e) => self.expr(e.arg()),
            Node::NamedArgExpr(e) => self.expr(e.arg()),
            Node::GroupingFunc(e) => self.list(e.args()),
            Node::GroupingSet(e) => self.list(e.content()),
            Node::MultiAssignRef(e) => self.expr(e.source()),
            Node::SortBy(sort) => self.sort(sort),
            Node::WindowDef(window) => self.window(window),
            Node::ResTarget(target) => {
                self.list(target.indirection());
                self.expr(target.val());
            }
            Node::A_Indirection(e) => {
                self.expr(e.arg());
                for step in e.indirection() {
                    match step.as_str() {
                        Some(name) => self.field(name),
                        None => self.expr(step),
                    }
                }
            }
            Node::A_Indices(e) => {
                self.expr(e.lidx());
                self.expr(e.uidx());
            }
            Node::ColumnDef(column) => self.type_name(column.type_name()),
            Node::IndexElem(e) => self.expr(e.expr()),
            _ => self.xml_or_json(node),
        }
    }

    /// A chain of operators leans to the left: a loop, not a recursion.
    fn operation(&mut self, mut node: Node<'t>) {
        while let Node::A_Expr(e) = node {
            self.operator_of(e);
            self.expr(e.rexpr());
            node = e.lexpr();
        }
        self.expr(node);
    }

    fn operator_of(&mut self, e: &'t A_Expr) {
        if self.catalog.operators.is_empty() {
            return;
        }
        match e.kind {
            A_Expr_Kind::AEXPR_BETWEEN
            | A_Expr_Kind::AEXPR_NOT_BETWEEN
            | A_Expr_Kind::AEXPR_BETWEEN_SYM
            | A_Expr_Kind::AEXPR_NOT_BETWEEN_SYM => {
                ["<", "<=", ">", ">="].into_iter().for_each(|name| self.operator(name));
            }
            _ => match last_name(e.name()) {
                Some(name) => self.operator(name),
                None => self.unknown(Unsafe::Unparsable),
            },
        }
    }

    /// An operator by its name: any of a user's with that name could be meant.
    pub fn operator(&mut self, name: &str) {
        if let Some(&routine) = self.catalog.operators.get(name) {
            self.routine(routine, self.catalog.leaves.of_operator(name));
        }
    }

    fn parameter(&mut self, number: i32) {
        let Ok(number) = u16::try_from(number) else { return };
        let number = usize::from(number);
        if self.parameters.len() <= number {
            self.parameters.resize(number + 1, 0);
        }
        self.parameters[number] = self.parameters[number].saturating_add(1);
    }

    fn column(&mut self, column: &'t ColumnRef) {
        let fields = column.fields();
        self.column_names(fields);
        let Some(name) = last_name(fields) else { return };
        if is_system_column(name) {
            self.primary_only(Unsafe::SystemColumn);
        }
        // `t.f` also means f(t) (manual, section 38.5.3).
        if fields.len() > 1 {
            self.row_function(name);
        }
    }

    pub fn sort(&mut self, sort: &'t SortBy) {
        self.expr(sort.node());
        if let Some(name) = last_name(sort.use_op()) {
            self.operator(name);
        }
    }

    pub fn window(&mut self, window: &'t WindowDef) {
        self.list(window.partition_clause());
        for sort in window.order_clause() {
            self.sort(sort);
        }
        self.expr(window.start_offset());
        self.expr(window.end_offset());
    }

    fn cast_to(&mut self, name: Option<&'t TypeName>) {
        let function = name
            .and_then(|name| name.names().iter().next_back()?.sval())
            .and_then(|name| self.catalog.casts.get(name));
        if let Some(&routine) = function {
            self.routine(routine, Some(self.catalog.leaves.of_casts()));
        }
        self.type_name(name);
    }

    /// A type that values are turned into: it may name catalog objects or have checks.
    pub fn type_name(&mut self, name: Option<&'t TypeName>) {
        let Some(name) = name.and_then(|name| name.names().iter().next_back()?.sval()) else {
            return;
        };
        if names_catalog_objects(name) {
            self.primary_only(Unsafe::SystemCatalog);
            self.reads.add_everything();
        }
        // Its age is each server's own.
        if matches!(name, "xid" | "_xid") {
            self.primary_only(Unsafe::ServerState);
        }
        if let Some(checks) = self.catalog.domains.get(name) {
            self.code(checks);
        }
    }

    fn xml_or_json(&mut self, node: Node<'t>) {
        // Before PostgreSQL 16 to 18 these were names as others are, which functions of users may have.
        const NAMES: [&str; 10] = [
            "json",
            "json_array",
            "json_arrayagg",
            "json_exists",
            "json_object",
            "json_objectagg",
            "json_query",
            "json_scalar",
            "json_serialize",
            "json_value",
        ];
        let functions = &self.catalog.functions;
        if NAMES.iter().any(|name| functions.contains_key(*name)) {
            self.unknown(Unsafe::UnknownFunction);
        }
        match node {
            Node::XmlExpr(e) => {
                self.list(e.named_args());
                self.list(e.args());
            }
            Node::XmlSerialize(e) => {
                self.expr(e.expr());
                self.type_name(e.type_name());
            }
            Node::JsonValueExpr(e) => self.json_value(Some(e)),
            Node::JsonKeyValue(e) => self.json_pair(Some(e)),
            Node::JsonArgument(e) => self.json_value(e.val()),
            Node::JsonFuncExpr(e) => self.json_function(e),
            Node::JsonIsPredicate(e) => self.expr(e.expr()),
            Node::JsonParseExpr(e) => {
                self.json_value(e.expr());
                self.json_output(e.output());
            }
            Node::JsonScalarExpr(e) => {
                self.expr(e.expr());
                self.json_output(e.output());
            }
            Node::JsonSerializeExpr(e) => {
                self.json_value(e.expr());
                self.json_output(e.output());
            }
            Node::JsonObjectConstructor(e) => {
                e.exprs().iter().for_each(|pair| self.json_pair(Some(pair)));
                self.json_output(e.output());
            }
            Node::JsonArrayConstructor(e) => {
                e.exprs().iter().for_each(|value| self.json_value(Some(value)));
                self.json_output(e.output());
            }
            Node::JsonArrayQueryConstructor(e) => {
                self.expr(e.query());
                self.json_output(e.output());
            }
            Node::JsonObjectAgg(e) => {
                self.json_pair(e.arg());
                self.json_aggregate(e.constructor());
            }
            Node::JsonArrayAgg(e) => {
                self.json_value(e.arg());
                self.json_aggregate(e.constructor());
            }
            // I6: what isn't known here may be anything.
            _ => self.unknown(Unsafe::Unparsable),
        }
    }

    fn json_value(&mut self, value: Option<&'t JsonValueExpr>) {
        if let Some(value) = value {
            self.expr(value.raw_expr());
            self.expr(value.formatted_expr());
        }
    }

    fn json_pair(&mut self, pair: Option<&'t JsonKeyValue>) {
        if let Some(pair) = pair {
            self.expr(pair.key());
            self.json_value(pair.value());
        }
    }

    fn json_output(&mut self, output: Option<&'t JsonOutput>) {
        if let Some(output) = output {
            self.cast_to(output.type_name());
        }
    }

    fn json_behavior(&mut self, behavior: Option<&'t JsonBehavior>) {
        if let Some(behavior) = behavior {
            self.expr(behavior.expr());
        }
    }

    fn json_aggregate(&mut self, aggregate: Option<&'t JsonAggConstructor>) {
        let Some(aggregate) = aggregate else { return };
        self.json_output(aggregate.output());
        self.expr(aggregate.agg_filter());
        self.list(aggregate.agg_order());
        if let Some(window) = aggregate.over() {
            self.window(window);
        }
    }

    fn json_function(&mut self, function: &'t JsonFuncExpr) {
        self.json_value(function.context_item());
        self.expr(function.pathspec());
        self.list(function.passing());
        self.json_output(function.output());
        self.json_behavior(function.on_empty());
        self.json_behavior(function.on_error());
    }

    pub fn json_table(&mut self, table: &'t JsonTable) {
        self.json_value(table.context_item());
        self.list(table.passing());
        self.json_behavior(table.on_error());
        for column in table.columns() {
            self.json_column(column);
        }
    }

    fn json_column(&mut self, column: &'t JsonTableColumn) {
        self.type_name(column.type_name());
        self.json_behavior(column.on_empty());
        self.json_behavior(column.on_error());
        for nested in column.columns() {
            match nested {
                Node::JsonTableColumn(nested) => self.deeper(|scan| scan.json_column(nested)),
                _ => self.unknown(Unsafe::Unparsable),
            }
        }
    }
}

/// The last of a list of names; `None` if it is no name (a star).
pub(super) fn last_name(names: &NodeList) -> Option<&str> {
    names.iter().next_back().and_then(|node| node.as_str())
}

pub(crate) fn is_system_column(name: &str) -> bool {
    matches!(name, "ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid")
}

/// The OID alias types (manual, section 8.19). Those of text search are left out: views print
/// their configuration with such a cast, and what it names is the same everywhere.
pub(crate) fn names_catalog_objects(name: &str) -> bool {
    // (An array's type has an underscore in front.)
    matches!(
        name.strip_prefix('_').unwrap_or(name),
        "regclass"
            | "regcollation"
            | "regnamespace"
            | "regoper"
            | "regoperator"
            | "regproc"
            | "regprocedure"
            | "regrole"
            | "regtype"
            | "regdatabase"
    )
}
