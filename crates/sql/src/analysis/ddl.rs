//! Statements that change the schema or maintain the server, and how they are replicated
//! (manual, part VI). All of them touch everything, except maintenance and temporary objects.

use pg_raw_parse::Node;
use pg_raw_parse::list::NodeList;
use pg_raw_parse::nodes::{DefElem, IntoClause, RangeVar, ReindexStmt, SelectStmt, ViewStmt};
use pg_raw_parse::raw::ObjectType as Object;
use pg_raw_parse::raw::{AlterTableType, GrantTargetType, ReindexObjectType};

use super::relations::is_temporary;
use super::scan::Scan;
use crate::facts::{Ddl, Kind, Temporary, Unsafe};

/// `RangeVar.relpersistence` of CREATE TEMPORARY.
const TEMPORARY: u8 = b't';

const PLAIN: Ddl = Ddl {
    in_transaction: true,
    replicate: true,
    temporary: Temporary::No,
    shared: false,
    hidden: false,
};

/// Roles and what belongs to them.
const SHARED: Ddl = Ddl { shared: true, hidden: true, ..PLAIN };

/// Commands for which event triggers don't fire.
const HIDDEN: Ddl = Ddl { hidden: true, ..PLAIN };

/// What belongs to one server.
const LOCAL: Ddl = Ddl { replicate: false, ..PLAIN };

/// What belongs to one server and can't be in a transaction block.
const LOCAL_ALONE: Ddl = Ddl { in_transaction: false, ..LOCAL };

/// Databases and tablespaces.
const SHARED_ALONE: Ddl = Ddl { shared: true, ..LOCAL_ALONE };

const CONCURRENTLY: Ddl = Ddl { in_transaction: false, ..PLAIN };

impl<'t> Scan<'_, 't> {
    pub fn ddl(&mut self, node: Node<'t>) -> Kind {
        self.primary_only(Unsafe::Utility);
        if let Some(maintenance) = self.maintenance(node) {
            return Kind::Ddl(maintenance);
        }
        let mut ddl = how_it_travels(node);
        match node {
            Node::CreateTableAsStmt(create) => self.table_query(create.query()),
            Node::SelectStmt(_) => self.table_query(node),
            _ => {}
        }
        self.session.merge(self.catalog.leaves.of_event_triggers());
        if !only_keeps_code(node) {
            self.session.merge(&self.catalog.leaves.of_command(self.text));
        }
        // The text doesn't always tell: a type may be temporary by the search path.
        self.session.temp = true;
        ddl.temporary = self.temporary(node);
        if ddl.temporary == Temporary::Yes {
            ddl.replicate = false;
        } else {
            self.opaque(Unsafe::Utility);
        }
        self.may_commit_inside |= !ddl.in_transaction;
        Kind::Ddl(ddl)
    }

    /// Maintenance changes nothing that anybody can see, unless a function in an index does.
    fn maintenance(&mut self, node: Node<'t>) -> Option<Ddl> {
        let (ddl, may_commit_inside) = match node {
            // Also ANALYZE commits after each table when it has several.
            Node::VacuumStmt(s) if s.is_vacuumcmd => (LOCAL_ALONE, true),
            Node::VacuumStmt(_) => (LOCAL, true),
            Node::ClusterStmt(s) if s.relation().is_none() => (LOCAL_ALONE, true),
            Node::ClusterStmt(_) => (LOCAL, true),
            // It may make an index valid that replicas don't have.
            Node::ReindexStmt(s) if reindex_is_alone(s) => {
                (Ddl { hidden: true, ..LOCAL_ALONE }, true)
            }
            Node::ReindexStmt(_) => (Ddl { hidden: true, ..LOCAL }, true),
            Node::CheckPointStmt(_) => (LOCAL, false),
            Node::AlterSystemStmt(_) => (LOCAL_ALONE, false),
            _ => return None,
        };
        self.may_commit_inside |= may_commit_inside;
        if self.catalog.immutable_may_write {
            self.opaque(Unsafe::Utility);
        }
        Some(ddl)
    }

    /// The query of CREATE TABLE AS, which may also be an EXECUTE.
    fn table_query(&mut self, query: Node<'t>) {
        match query {
            Node::ExecuteStmt(execute) => self.prepared(execute),
            query => self.query(query),
        }
    }

    fn temporary(&mut self, node: Node<'t>) -> Temporary {
        match node {
            Node::CreateStmt(s) => new(s.relation()),
            Node::CreateSeqStmt(s) => new(s.sequence()),
            Node::CompositeTypeStmt(s) => new(s.typevar()),
            Node::ViewStmt(s) => self.temporary_view(s),
            Node::CreateTableAsStmt(s) => new(s.into().and_then(|into| into.rel())),
            Node::SelectStmt(s) => new(into_of(s).and_then(|into| into.rel())),
            Node::CreateFunctionStmt(s) => new_name(s.funcname()),
            Node::IndexStmt(s) => self.existing(s.relation()),
            Node::AlterTableStmt(s) => self.existing(s.relation()),
            Node::RenameStmt(s) => self.existing(s.relation()),
            Node::AlterOwnerStmt(s) => self.existing(s.relation()),
            Node::AlterObjectSchemaStmt(s) => self.existing(s.relation()),
            Node::CreateTrigStmt(s) => self.existing(s.relation()),
            Node::RuleStmt(s) => self.existing(s.relation()),
            Node::CreatePolicyStmt(s) => self.existing(s.table()),
            Node::AlterPolicyStmt(s) => self.existing(s.table()),
            Node::AlterSeqStmt(s) => self.existing(s.sequence()),
            Node::DropStmt(s) => {
                let known =
                    s.objects().iter().map(|name| self.existing_object(s.remove_type, name));
                all(known)
            }
            Node::CommentStmt(s) => self.existing_object(s.objtype, s.object()),
            Node::GrantStmt(s)
                if s.targtype == GrantTargetType::ACL_TARGET_OBJECT
                    && matches!(s.objtype, Object::OBJECT_TABLE | Object::OBJECT_SEQUENCE) =>
            {
                all(s.objects().iter().map(|relation| self.existing(Some(relation))))
            }
            _ => Temporary::No,
        }
    }

    /// A view on temporary relations becomes temporary by itself.
    fn temporary_view(&mut self, view: &'t ViewStmt) -> Temporary {
        let says = new(view.view());
        let mut scan = Scan::new(self.catalog, self.path);
        scan.query(view.query());
        if says == Temporary::No && scan.met_unknown_relation { Temporary::Perhaps } else { says }
    }

    fn existing(&self, relation: Option<&RangeVar>) -> Temporary {
        match relation {
            Some(r) => self.existing_name(r.schemaname(), r.relname().unwrap_or_default()),
            None => Temporary::No,
        }
    }

    fn existing_name(&self, schema: Option<&str>, name: &str) -> Temporary {
        if is_temporary(schema) {
            Temporary::Yes
        } else if self.catalog.resolve(schema, name, self.path).relations().is_empty() {
            Temporary::Perhaps
        } else {
            Temporary::No
        }
    }

    /// An object that is a relation, or part of one, by its list of names.
    fn existing_object(&self, object: Object::Type, name: Node<'_>) -> Temporary {
        let Node::NodeList(names) = name else { return Temporary::No };
        let of_relation = match object {
            Object::OBJECT_TABLE
            | Object::OBJECT_VIEW
            | Object::OBJECT_SEQUENCE
            | Object::OBJECT_INDEX
            | Object::OBJECT_MATVIEW
            | Object::OBJECT_FOREIGN_TABLE => names.len(),
            Object::OBJECT_COLUMN
            | Object::OBJECT_TRIGGER
            | Object::OBJECT_RULE
            | Object::OBJECT_POLICY
            | Object::OBJECT_TABCONSTRAINT => names.len().saturating_sub(1),
            _ => return new_name(names),
        };
        let mut parts = names.iter().take(of_relation).rev().map(|node| node.as_str());
        let name = parts.next().flatten().unwrap_or_default();
        self.existing_name(parts.next().flatten(), name)
    }
}

/// Whether a command keeps code for later, and runs none of it.
fn only_keeps_code(node: Node<'_>) -> bool {
    matches!(
        node,
        Node::CreateFunctionStmt(_)
            | Node::ViewStmt(_)
            | Node::RuleStmt(_)
            | Node::CreateTrigStmt(_)
            | Node::CommentStmt(_)
    )
}

fn into_of(mut select: &SelectStmt) -> Option<&IntoClause> {
    while let Some(left) = select.larg() {
        select = left;
    }
    select.into_clause()
}

/// Whether all are temporary: one that isn't makes it a statement about the schema.
fn all(objects: impl Iterator<Item = Temporary>) -> Temporary {
    objects
        .reduce(|a, b| match (a, b) {
            (Temporary::No, _) | (_, Temporary::No) => Temporary::No,
            (Temporary::Yes, Temporary::Yes) => Temporary::Yes,
            _ => Temporary::Perhaps,
        })
        .unwrap_or(Temporary::No)
}

fn new(relation: Option<&RangeVar>) -> Temporary {
    let yes = relation.is_some_and(|relation| {
        relation.relpersistence as u8 == TEMPORARY || is_temporary(relation.schemaname())
    });
    if yes { Temporary::Yes } else { Temporary::No }
}

fn new_name(names: &NodeList) -> Temporary {
    let schema = names.first().filter(|_| names.len() > 1).and_then(|node| node.as_str());
    if is_temporary(schema) { Temporary::Yes } else { Temporary::No }
}

fn reindex_is_alone(reindex: &ReindexStmt) -> bool {
    reindex.params().iter().any(is_concurrently)
        || !matches!(
            reindex.kind,
            ReindexObjectType::REINDEX_OBJECT_INDEX | ReindexObjectType::REINDEX_OBJECT_TABLE
        )
}

/// The option CONCURRENTLY; switching it off by a value is taken for on.
fn is_concurrently(option: &DefElem) -> bool {
    option.defname() == Some("concurrently")
}

fn how_it_travels(node: Node<'_>) -> Ddl {
    match node {
        Node::IndexStmt(s) if s.concurrent => CONCURRENTLY,
        Node::DropStmt(s) if s.concurrent => CONCURRENTLY,
        Node::DropStmt(s) => by_object(s.remove_type),
        Node::AlterTableStmt(s) if s.cmds().iter().any(detaches_concurrently) => CONCURRENTLY,
        Node::RenameStmt(s) => by_object(s.rename_type),
        Node::AlterOwnerStmt(s) => by_object(s.object_type),
        Node::CommentStmt(s) => by_object(s.objtype),
        Node::SecLabelStmt(s) => by_object(s.objtype),
        Node::GrantStmt(s) => by_object(s.objtype),
        Node::CreateRoleStmt(_)
        | Node::AlterRoleStmt(_)
        | Node::AlterRoleSetStmt(_)
        | Node::DropRoleStmt(_)
        | Node::GrantRoleStmt(_)
        | Node::ReassignOwnedStmt(_)
        | Node::AlterDatabaseSetStmt(_) => SHARED,
        Node::DropOwnedStmt(_) => Ddl { shared: true, ..PLAIN },
        Node::CreateEventTrigStmt(_) | Node::AlterEventTrigStmt(_) => HIDDEN,
        Node::CreatedbStmt(_)
        | Node::DropdbStmt(_)
        | Node::AlterDatabaseStmt(_)
        | Node::CreateTableSpaceStmt(_)
        | Node::DropTableSpaceStmt(_) => SHARED_ALONE,
        Node::AlterTableSpaceOptionsStmt(_) | Node::AlterDatabaseRefreshCollStmt(_) => {
            Ddl { shared: true, ..LOCAL }
        }
        Node::AlterTableMoveAllStmt(_)
        | Node::CreatePublicationStmt(_)
        | Node::AlterPublicationStmt(_) => LOCAL,
        Node::CreateSubscriptionStmt(_)
        | Node::AlterSubscriptionStmt(_)
        | Node::DropSubscriptionStmt(_) => LOCAL_ALONE,
        _ => PLAIN,
    }
}

fn detaches_concurrently(command: Node<'_>) -> bool {
    let Node::AlterTableCmd(command) = command else { return false };
    command.subtype == AlterTableType::AT_DetachPartition
        && matches!(command.def(), Node::PartitionCmd(partition) if partition.concurrent)
}

/// DROP, RENAME, OWNER, COMMENT, SECURITY LABEL, GRANT: it depends on what.
fn by_object(object: Object::Type) -> Ddl {
    match object {
        Object::OBJECT_ROLE | Object::OBJECT_DATABASE | Object::OBJECT_PARAMETER_ACL => SHARED,
        Object::OBJECT_EVENT_TRIGGER => HIDDEN,
        Object::OBJECT_TABLESPACE => Ddl { shared: true, ..LOCAL },
        Object::OBJECT_PUBLICATION
        | Object::OBJECT_PUBLICATION_NAMESPACE
        | Object::OBJECT_PUBLICATION_REL
        | Object::OBJECT_SUBSCRIPTION
        | Object::OBJECT_LARGEOBJECT => LOCAL,
        _ => PLAIN,
    }
}
