//! SELECT and its clauses (manual, chapter 7).

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{Alias, SelectStmt, WithClause};

use super::scan::Scan;
use crate::catalog::Routine;
use crate::facts::Unsafe;

impl<'t> Scan<'_, 't> {
    /// A query in the wide sense: what may stand in a WITH clause.
    pub fn query(&mut self, node: Node<'t>) {
        if self.catalog.implicit_casts != Routine::Pure {
            let leaves = self.catalog.leaves.of_casts();
            self.routine(self.catalog.implicit_casts, Some(leaves));
        }
        match node {
            Node::SelectStmt(select) => self.select(select),
            Node::InsertStmt(insert) => self.insert(insert),
            Node::UpdateStmt(update) => self.update(update),
            Node::DeleteStmt(delete) => self.delete(delete),
            Node::MergeStmt(merge) => self.merge_into(merge),
            _ => self.unknown(Unsafe::Unparsable),
        }
    }

    pub fn select(&mut self, select: &'t SelectStmt) {
        self.deeper(|scan| {
            let outer = scan.ctes.len();
            // A long chain of UNIONs leans to the left: a loop, not a recursion.
            let mut node = select;
            loop {
                scan.select_arm(node);
                if let Some(right) = node.rarg() {
                    scan.select(right);
                }
                let Some(left) = node.larg() else { break };
                node = left;
            }
            scan.ctes.truncate(outer);
        });
    }

    /// All of a SELECT but the arms of its set operation. The names of its WITH stay: its left
    /// arms see them.
    fn select_arm(&mut self, select: &'t SelectStmt) {
        if let Some(with) = select.with_clause() {
            self.with(with);
        }
        if select.into_clause().is_some() {
            // Only a whole statement may have it, which is handled as DDL.
            self.primary_only(Unsafe::Utility);
        }
        self.open_scope();
        self.from(select.from_clause());
        for target in select.target_list() {
            self.expr(target.val());
        }
        self.expr(select.where_clause());
        self.list(select.group_clause());
        self.expr(select.having_clause());
        self.list(select.window_clause());
        self.list(select.values_lists());
        self.list(select.distinct_clause());
        for sort in select.sort_clause() {
            self.sort(sort);
        }
        self.expr(select.limit_offset());
        self.expr(select.limit_count());
        if !select.locking_clause().is_empty() {
            self.row_locks = true;
            self.primary_only(Unsafe::RowLock);
        }
        self.only_where(select.where_clause());
        self.close_scope();
    }

    /// WITH: each query sees the names before it, or with RECURSIVE all of them. The caller
    /// forgets the names where their scope ends.
    pub fn with(&mut self, with: &'t WithClause) {
        if with.recursive {
            self.ctes.extend(with.ctes().iter().filter_map(|cte| cte.ctename()));
        }
        for cte in with.ctes() {
            self.deeper(|scan| {
                let outer = scan.ctes.len();
                scan.query(cte.ctequery());
                scan.ctes.truncate(outer);
            });
            if let Some(cycle) = cte.cycle_clause() {
                self.expr(cycle.cycle_mark_value());
                self.expr(cycle.cycle_mark_default());
                self.operator("=");
            }
            if !with.recursive {
                self.ctes.extend(cte.ctename());
            }
        }
    }

    pub fn from(&mut self, items: &'t pg_raw_parse::list::NodeList) {
        for item in items {
            self.source(item);
        }
    }

    pub fn source(&mut self, item: Node<'t>) {
        match item {
            Node::RangeVar(relation) => self.read_as_source(relation),
            Node::JoinExpr(_) => self.deeper(|scan| scan.join(item)),
            Node::RangeSubselect(sub) => {
                self.deeper(|scan| scan.expr(sub.subquery()));
                self.no_table(sub.alias());
            }
            Node::RangeFunction(function) => {
                self.list(function.functions());
                for column in function.coldeflist() {
                    self.type_name(column.type_name());
                }
                self.no_table(function.alias());
            }
            Node::RangeTableSample(sample) => {
                self.primary_only(Unsafe::TableSample);
                self.source(sample.relation());
                self.list(sample.args());
                self.expr(sample.repeatable());
            }
            Node::RangeTableFunc(table) => {
                self.expr(table.docexpr());
                self.expr(table.rowexpr());
                self.list(table.namespaces());
                for column in table.columns() {
                    self.type_name(column.type_name());
                    self.expr(column.colexpr());
                    self.expr(column.coldefexpr());
                }
            }
            Node::JsonTable(table) => self.json_table(table),
            _ => self.unknown(Unsafe::Unparsable),
        }
    }

    /// What isn't a table has a name that hides others.
    fn no_table(&mut self, alias: Option<&'t Alias>) {
        if let Some(name) = alias.and_then(|alias| alias.aliasname()) {
            self.add_source(name, Vec::new(), None);
        }
    }

    /// Joins lean to the left: a loop, not a recursion.
    fn join(&mut self, mut item: Node<'t>) {
        let first = self.sources();
        let mut joins = Vec::new();
        while let Node::JoinExpr(join) = item {
            joins.push(join);
            item = join.larg();
        }
        self.source(item);
        for join in joins.into_iter().rev() {
            let second = self.sources();
            self.source(join.rarg());
            self.expr(join.quals());
            if join.is_natural || !join.using_clause().is_empty() {
                self.operator("=");
            }
            self.merges(join);
            self.only_joined(join, first, second);
            if let Some(alias) = join.alias() {
                self.hides_names(alias);
            }
        }
    }
}
