//! Determines the kind of a statement, and handles the statements that are neither queries nor DDL: transaction
//! control, settings, cursors, prepared statements, COPY, EXPLAIN, CALL, DO.

use std::ops::Range;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::nodes::{
    CopyStmt, DeclareCursorStmt, DefElem, DoStmt, ExecuteStmt, ExplainStmt, FetchStmt, SelectStmt,
    TransactionStmt, VariableSetStmt,
};
use pg_raw_parse::raw::{CURSOR_OPT_HOLD, DiscardMode, DropBehavior};
use pg_raw_parse::raw::{TransactionStmtKind as Trans, VariableSetKind as Set};
use pg_raw_parse::{ConstValue, Node};

use super::relations::{Change, Part};
use super::scan::Scan;
use crate::facts::{
    Ddl, Discard, HihooiCommand, Isolation, Kind, SessionCommand, SessionEffect, TransactionModes,
    Unsafe,
};

impl<'t> Scan<'_, 't> {
    pub fn kind_of(&mut self, node: Node<'t>, range: &Range<usize>) -> Kind {
        match node {
            Node::None => Kind::Empty,
            Node::SelectStmt(select) if select_into(select) => self.ddl(node),
            Node::SelectStmt(_)
            | Node::InsertStmt(_)
            | Node::UpdateStmt(_)
            | Node::DeleteStmt(_)
            | Node::MergeStmt(_) => {
                self.query(node);
                self.read_or_write()
            }
            Node::TruncateStmt(truncate) => {
                let cascade = truncate.behavior == DropBehavior::DROP_CASCADE;
                for relation in truncate.relations() {
                    match relation {
                        Node::RangeVar(relation) => self.truncate(relation, cascade),
                        _ => self.unknown(Unsafe::Unparsable),
                    }
                }
                Kind::Write
            }
            Node::TransactionStmt(transaction) => self.transaction(transaction),
            Node::CopyStmt(copy) => self.copy(copy),
            Node::ExplainStmt(explain) => self.explain(explain, range),
            Node::CallStmt(call) => {
                if let Some(call) = call.funccall() {
                    self.function(call);
                }
                self.may_commit_inside = true;
                self.opaque(Unsafe::VolatileFunction);
                Kind::Call
            }
            Node::DoStmt(block) => self.do_block(block),
            _ => match self.session_command(node, range) {
                Some(command) => Kind::Session(command),
                None => self.hihooi_or_ddl(node),
            },
        }
    }

    fn hihooi_or_ddl(&mut self, node: Node<'t>) -> Kind {
        match node {
            Node::VariableSetStmt(set) => self.set(set),
            Node::VariableShowStmt(show) => {
                let name = lower(show.name());
                match name.strip_prefix("hihooi.") {
                    Some(name) => Kind::Hihooi(HihooiCommand::Show(name.into())),
                    None => {
                        self.primary_only(Unsafe::ServerState);
                        Kind::Session(SessionCommand::Show(name))
                    }
                }
            }
            _ => self.ddl(node),
        }
    }

    pub fn read_or_write(&self) -> Kind {
        if self.may_write() { Kind::Write } else { Kind::Read }
    }

    fn transaction(&mut self, transaction: &'t TransactionStmt) -> Kind {
        self.primary_only(Unsafe::Utility);
        let savepoint = || transaction.savepoint_name().unwrap_or_default().into();
        let gid = || transaction.gid().unwrap_or_default().into();
        match transaction.kind {
            Trans::TRANS_STMT_BEGIN | Trans::TRANS_STMT_START => {
                Kind::Begin(modes(transaction.options()))
            }
            Trans::TRANS_STMT_COMMIT => Kind::Commit { chain: transaction.chain },
            Trans::TRANS_STMT_ROLLBACK => Kind::Rollback { chain: transaction.chain },
            Trans::TRANS_STMT_SAVEPOINT => Kind::Savepoint(savepoint()),
            Trans::TRANS_STMT_RELEASE => Kind::Release(savepoint()),
            Trans::TRANS_STMT_ROLLBACK_TO => Kind::RollbackTo(savepoint()),
            Trans::TRANS_STMT_PREPARE => Kind::PrepareTransaction(gid()),
            Trans::TRANS_STMT_COMMIT_PREPARED => {
                self.opaque(Unsafe::Utility);
                self.may_commit_inside = true;
                Kind::CommitPrepared(gid())
            }
            Trans::TRANS_STMT_ROLLBACK_PREPARED => Kind::RollbackPrepared(gid()),
            _ => {
                self.unknown(Unsafe::Unparsable);
                Kind::Unparsable
            }
        }
    }

    fn copy(&mut self, copy: &'t CopyStmt) -> Kind {
        if copy.is_program {
            self.unknown(Unsafe::ServerState);
            return Kind::Write;
        }
        self.query_or_none(copy.query());
        if let Some(relation) = copy.relation() {
            if copy.is_from {
                self.write(relation, Change::INSERT, &Part::Whole)
            } else {
                self.read(relation)
            }
        }
        self.expr(copy.where_clause());
        match (copy.is_from, copy.filename()) {
            (true, None) => Kind::CopyIn,
            (false, None) => Kind::CopyOut,
            (true, Some(_)) => Kind::Write,
            (false, Some(_)) => {
                self.primary_only(Unsafe::ServerState);
                self.read_or_write()
            }
        }
    }

    fn query_or_none(&mut self, node: Node<'t>) {
        if !matches!(node, Node::None) {
            self.query(node);
        }
    }

    /// EXPLAIN plans; with ANALYZE it also runs.
    fn explain(&mut self, explain: &'t ExplainStmt, range: &Range<usize>) -> Kind {
        self.primary_only(Unsafe::Explain);
        let kind = self.kind_of(explain.query(), range);
        if explain.options().iter().any(asks_to_run) {
            return match kind {
                // No event trigger fires for what it makes.
                Kind::Ddl(ddl) => Kind::Ddl(Ddl { hidden: true, ..ddl }),
                _ => self.read_or_write(),
            };
        }
        // Planning runs what claims to be IMMUTABLE or STABLE.
        if self.may_write_everything() {
            return Kind::Write;
        }
        let planned = std::mem::take(&mut self.session);
        self.forget_effects();
        self.session = SessionEffect { any_setting: false, load: false, ..planned };
        Kind::Read
    }

    fn do_block(&mut self, block: &'t DoStmt) -> Kind {
        self.may_commit_inside = true;
        self.opaque(Unsafe::VolatileFunction);
        for option in block.args() {
            let text = string(option.arg()).unwrap_or_default();
            match option.defname() {
                Some("as") => self.session.merge(&self.catalog.leaves.of_block(text)),
                Some("language") if text.eq_ignore_ascii_case("plpgsql") => {}
                _ => self.session.merge(&SessionEffect::of_compiled_code()),
            }
        }
        Kind::Call
    }

    /// Statements that act on the session; `None` for others, and for settings.
    fn session_command(&mut self, node: Node<'t>, range: &Range<usize>) -> Option<SessionCommand> {
        let (command, reason) = match node {
            Node::ListenStmt(listen) => {
                self.session.listen = true;
                (SessionCommand::Listen(text(listen.conditionname())), Unsafe::Notify)
            }
            Node::UnlistenStmt(unlisten) => {
                self.session.listen = true;
                let channel = unlisten.conditionname().map(Into::into);
                (SessionCommand::Unlisten(channel), Unsafe::Notify)
            }
            Node::NotifyStmt(_) => (SessionCommand::Notify, Unsafe::Notify),
            Node::LockStmt(_) => {
                self.row_locks = true;
                (SessionCommand::Lock, Unsafe::RowLock)
            }
            Node::LoadStmt(_) => {
                self.session.load = true;
                (SessionCommand::Load, Unsafe::SessionState)
            }
            Node::ConstraintsSetStmt(_) => (SessionCommand::SetConstraints, Unsafe::SessionState),
            Node::DiscardStmt(discard) => {
                (SessionCommand::Discard(self.discard(discard.target)), Unsafe::SessionState)
            }
            Node::DeclareCursorStmt(declare) => (self.declare(declare), Unsafe::Cursor),
            Node::FetchStmt(fetch) => (fetch_or_move(fetch), Unsafe::Cursor),
            Node::ClosePortalStmt(close) => {
                (SessionCommand::Close(close.portalname().map(Into::into)), Unsafe::Cursor)
            }
            _ => return self.prepared_command(node, range),
        };
        self.primary_only(reason);
        Some(command)
    }

    fn prepared_command(&mut self, node: Node<'t>, range: &Range<usize>) -> Option<SessionCommand> {
        let command = match node {
            Node::PrepareStmt(prepare) => {
                let scan = Scan::new(self.catalog, self.path);
                let statement = Box::new(scan.statement(prepare.query(), range.clone()));
                SessionCommand::Prepare { name: text(prepare.name()), statement }
            }
            Node::ExecuteStmt(execute) => {
                self.prepared(execute);
                SessionCommand::Execute(text(execute.name()))
            }
            Node::DeallocateStmt(deallocate) => {
                SessionCommand::Deallocate(deallocate.name().map(Into::into))
            }
            _ => return None,
        };
        self.session.prepared = true;
        self.primary_only(Unsafe::SessionState);
        Some(command)
    }

    /// EXECUTE of a statement that isn't known here.
    pub fn prepared(&mut self, execute: &'t ExecuteStmt) {
        self.list(execute.params());
        self.row_locks = true;
        self.opaque(Unsafe::SessionState);
        self.session.executed.push(text(execute.name()));
    }

    fn discard(&mut self, target: DiscardMode::Type) -> Discard {
        match target {
            DiscardMode::DISCARD_PLANS => Discard::Plans,
            DiscardMode::DISCARD_SEQUENCES => Discard::Sequences,
            DiscardMode::DISCARD_TEMP => Discard::Temp,
            _ => {
                self.session.settings = true;
                self.session.search_path = true;
                self.session.role = true;
                self.session.discard_all = true;
                Discard::All
            }
        }
    }

    fn declare(&mut self, declare: &'t DeclareCursorStmt) -> SessionCommand {
        self.query(declare.query());
        let hold = declare.options & (CURSOR_OPT_HOLD as i32) != 0;
        self.session.cursor_hold |= hold;
        SessionCommand::Declare { name: text(declare.portalname()), hold }
    }

    fn set(&mut self, set: &'t VariableSetStmt) -> Kind {
        let name = lower(set.name());
        if let Some(ours) = name.strip_prefix("hihooi.") {
            return Kind::Hihooi(hihooi_setting(ours, set));
        }
        self.primary_only(Unsafe::SessionState);
        Kind::Session(match set.kind {
            Set::VAR_SET_MULTI => self.set_modes(&name, set),
            Set::VAR_RESET_ALL => {
                self.session.settings = true;
                self.session.search_path = true;
                SessionCommand::Reset(None)
            }
            Set::VAR_RESET => {
                self.note_setting(&name, false);
                self.session.search_path |= &*name == "search_path";
                SessionCommand::Reset(Some(name))
            }
            kind => {
                self.note_setting(&name, set.is_local);
                let values = (kind == Set::VAR_SET_VALUE).then(|| values(set.args()));
                SessionCommand::Set { name, values, local: set.is_local }
            }
        })
    }

    fn note_setting(&mut self, name: &str, local: bool) {
        if name.contains('.') {
            self.session.custom_settings.push(name.into());
        } else if local {
            self.session.local_settings = true;
        } else {
            self.session.settings = true;
        }
        self.session.role |= matches!(name, "role" | "session_authorization");
    }

    fn set_modes(&mut self, name: &str, set: &'t VariableSetStmt) -> SessionCommand {
        match name {
            "transaction" => SessionCommand::SetTransaction(modes(set.args())),
            "transaction snapshot" => SessionCommand::SetSnapshot,
            _ => {
                self.session.settings = true;
                SessionCommand::SetCharacteristics(modes(set.args()))
            }
        }
    }
}

/// Whether a SELECT makes a table. INTO may stand in the leftmost arm of a UNION only.
fn select_into(mut select: &SelectStmt) -> bool {
    while let Some(left) = select.larg() {
        select = left;
    }
    select.into_clause().is_some()
}

fn fetch_or_move(fetch: &FetchStmt) -> SessionCommand {
    let name = text(fetch.portalname());
    if fetch.ismove { SessionCommand::Move(name) } else { SessionCommand::Fetch(name) }
}

fn hihooi_setting(name: &str, set: &VariableSetStmt) -> HihooiCommand {
    match set.kind {
        Set::VAR_RESET => HihooiCommand::Reset(name.into()),
        kind => HihooiCommand::Set {
            name: name.into(),
            values: (kind == Set::VAR_SET_VALUE).then(|| values(set.args())),
            local: set.is_local,
        },
    }
}

/// ANALYZE, unless it is clearly switched off.
fn asks_to_run(option: &DefElem) -> bool {
    option.defname() == Some("analyze")
        && !string(option.arg()).is_some_and(|value| {
            ["false", "off", "0"].iter().any(|off| value.eq_ignore_ascii_case(off))
        })
}

/// The modes of a transaction, as the grammar lists them.
fn modes(options: &NodeList) -> TransactionModes {
    let mut modes = TransactionModes::default();
    for option in options {
        let Node::DefElem(option) = option else { continue };
        let value = constant(option.arg());
        match option.defname() {
            Some("transaction_isolation") => modes.isolation = value.and_then(isolation),
            Some("transaction_read_only") => modes.read_only = value.map(is_true),
            Some("transaction_deferrable") => modes.deferrable = value.map(is_true),
            _ => {}
        }
    }
    modes
}

fn isolation(value: ConstValue<'_>) -> Option<Isolation> {
    Some(match value.string_value()? {
        "serializable" => Isolation::Serializable,
        "repeatable read" => Isolation::RepeatableRead,
        _ => Isolation::ReadCommitted,
    })
}

fn is_true(value: ConstValue<'_>) -> bool {
    value.numeric_value::<i64>() != Some(0)
}

fn values(args: &NodeList) -> Box<[Box<str>]> {
    args.iter().map(value).collect()
}

fn value(node: Node<'_>) -> Box<str> {
    match node {
        Node::TypeCast(cast) => value(cast.arg()),
        _ => match constant(node) {
            Some(ConstValue::Boolean(value)) => value.to_string().into(),
            Some(ConstValue::Integer(value)) => value.to_string().into(),
            Some(ConstValue::Float(text) | ConstValue::String(text)) => text.into(),
            _ => Box::default(),
        },
    }
}

fn constant(node: Node<'_>) -> Option<ConstValue<'_>> {
    match node {
        Node::A_Const(constant) => constant.val(),
        _ => None,
    }
}

/// A word or string that is an option's argument.
fn string(node: Node<'_>) -> Option<&str> {
    match node {
        Node::String(text) => text.sval(),
        Node::Boolean(value) => Some(if value.boolval { "true" } else { "false" }),
        Node::Integer(value) if value.ival == 0 => Some("0"),
        _ => None,
    }
}

fn text(name: Option<&str>) -> Box<str> {
    name.unwrap_or_default().into()
}

fn lower(name: Option<&str>) -> Box<str> {
    name.unwrap_or_default().to_ascii_lowercase().into()
}
