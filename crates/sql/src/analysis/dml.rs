//! INSERT, UPDATE, DELETE, MERGE (manual, chapter 6).

use pg_raw_parse::nodes::{
    DeleteStmt, InsertStmt, MergeStmt, RangeVar, ReturningClause, UpdateStmt,
};

use super::relations::{Change, Part};
use super::scan::Scan;
use crate::facts::Unsafe;

impl<'t> Scan<'_, 't> {
    pub fn insert(&mut self, insert: &'t InsertStmt) {
        let outer = self.ctes.len();
        if let Some(with) = insert.with_clause() {
            self.with(with);
        }
        self.begin_change(insert.relation());
        let conflict = insert.on_conflict_clause();
        let change = match conflict {
            // DO NOTHING looks for the row as well.
            Some(_) => Change { delete: false, ..Change::ANY },
            None => Change::INSERT,
        };
        self.list(insert.cols());
        self.expr(insert.select_stmt());
        if let Some(conflict) = conflict {
            if let Some(infer) = conflict.infer() {
                self.list(infer.index_elems());
                self.expr(infer.where_clause());
            }
            for target in conflict.target_list() {
                self.list(target.indirection());
                self.expr(target.val());
            }
            self.expr(conflict.where_clause());
        }
        self.returning(insert.returning_clause());
        self.target(insert.relation(), change, &Part::Values(insert));
        self.close_scope();
        self.ctes.truncate(outer);
    }

    pub fn update(&mut self, update: &'t UpdateStmt) {
        let outer = self.ctes.len();
        if let Some(with) = update.with_clause() {
            self.with(with);
        }
        self.begin_change(update.relation());
        self.from(update.from_clause());
        for target in update.target_list() {
            self.list(target.indirection());
            self.expr(target.val());
        }
        self.expr(update.where_clause());
        self.returning(update.returning_clause());
        self.only_where(update.where_clause());
        let names = update.target_list().iter().map(|target| target.name().unwrap_or_default());
        let part = Part::Columns(names.collect());
        self.target(update.relation(), Change::UPDATE, &part);
        self.close_scope();
        self.ctes.truncate(outer);
    }

    pub fn delete(&mut self, delete: &'t DeleteStmt) {
        let outer = self.ctes.len();
        if let Some(with) = delete.with_clause() {
            self.with(with);
        }
        self.begin_change(delete.relation());
        self.from(delete.using_clause());
        self.expr(delete.where_clause());
        self.returning(delete.returning_clause());
        self.only_where(delete.where_clause());
        self.target(delete.relation(), Change::DELETE, &Part::Where);
        self.close_scope();
        self.ctes.truncate(outer);
    }

    pub fn merge_into(&mut self, merge: &'t MergeStmt) {
        let outer = self.ctes.len();
        if let Some(with) = merge.with_clause() {
            self.with(with);
        }
        self.begin_change(merge.relation());
        self.source(merge.source_relation());
        self.expr(merge.join_condition());
        for when in merge.merge_when_clauses() {
            self.expr(when.condition());
            self.list(when.target_list());
            self.list(when.values());
        }
        self.returning(merge.returning_clause());
        self.target(merge.relation(), Change::ANY, &Part::Whole);
        self.close_scope();
        self.ctes.truncate(outer);
    }

    /// Opens the scope of a change; its target is the first source there.
    fn begin_change(&mut self, relation: Option<&'t RangeVar>) {
        self.primary_only(Unsafe::Writes);
        self.open_scope();
        let alias = relation.and_then(|relation| relation.alias());
        let name = alias.and_then(|alias| alias.aliasname());
        let name = name.or(relation.and_then(|relation| relation.relname())).unwrap_or_default();
        let tables = relation.map(|relation| self.targets(relation)).unwrap_or_default();
        self.add_source(name, tables, alias.map(|alias| alias.colnames()));
        self.is_target();
    }

    fn target(&mut self, relation: Option<&'t RangeVar>, change: Change, part: &Part<'t>) {
        match relation {
            Some(relation) => self.write(relation, change, part),
            None => self.unknown(Unsafe::Unparsable),
        }
    }

    fn returning(&mut self, returning: Option<&'t ReturningClause>) {
        if let Some(returning) = returning {
            self.list(returning.exprs());
        }
    }
}
