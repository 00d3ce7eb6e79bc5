//! INSERT, UPDATE, DELETE, MERGE (manual, chapter 6).

use pg_raw_parse::nodes::{
    DeleteStmt, InsertStmt, MergeStmt, RangeVar, ReturningClause, UpdateStmt,
};

use super::relations::Change;
use super::scan::Scan;
use crate::facts::Unsafe;

impl<'t> Scan<'_, 't> {
    pub fn insert(&mut self, insert: &'t InsertStmt) {
        let outer = self.ctes.len();
        if let Some(with) = insert.with_clause() {
            self.with(with);
        }
        let conflict = insert.on_conflict_clause();
        let change = match conflict {
            // DO NOTHING looks for the row as well.
            Some(_) => Change { delete: false, ..Change::ANY },
            None => Change::INSERT,
        };
        self.target(insert.relation(), change);
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
        self.ctes.truncate(outer);
    }

    pub fn update(&mut self, update: &'t UpdateStmt) {
        let outer = self.ctes.len();
        if let Some(with) = update.with_clause() {
            self.with(with);
        }
        self.target(update.relation(), Change::UPDATE);
        for target in update.target_list() {
            self.list(target.indirection());
            self.expr(target.val());
        }
        self.from(update.from_clause());
        self.expr(update.where_clause());
        self.returning(update.returning_clause());
        self.ctes.truncate(outer);
    }

    pub fn delete(&mut self, delete: &'t DeleteStmt) {
        let outer = self.ctes.len();
        if let Some(with) = delete.with_clause() {
            self.with(with);
        }
        self.target(delete.relation(), Change::DELETE);
        self.from(delete.using_clause());
        self.expr(delete.where_clause());
        self.returning(delete.returning_clause());
        self.ctes.truncate(outer);
    }

    pub fn merge_into(&mut self, merge: &'t MergeStmt) {
        let outer = self.ctes.len();
        if let Some(with) = merge.with_clause() {
            self.with(with);
        }
        self.target(merge.relation(), Change::ANY);
        self.source(merge.source_relation());
        self.expr(merge.join_condition());
        for when in merge.merge_when_clauses() {
            self.expr(when.condition());
            self.list(when.target_list());
            self.list(when.values());
        }
        self.returning(merge.returning_clause());
        self.ctes.truncate(outer);
    }

    fn target(&mut self, relation: Option<&'t RangeVar>, change: Change) {
        match relation {
            Some(relation) => self.write(relation, change),
            None => self.unknown(Unsafe::Unparsable),
        }
    }

    fn returning(&mut self, returning: Option<&'t ReturningClause>) {
        if let Some(returning) = returning {
            self.list(returning.exprs());
        }
    }
}
