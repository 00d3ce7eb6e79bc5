//! Transaction blocks that have not begun at a server yet (Hihooi section 5.2). BEGIN is answered here, and the
//! reads in the block are routed one by one, as outside a block, since at READ COMMITTED each has its own
//! snapshot (manual, "Read Committed Isolation Level"). The first statement that isn't such a read begins the
//! transaction on the primary; from then on `beside` decides which of its reads run at replicas. A block that
//! never needs the primary also ends here.

use bytes::Bytes;
use hihooi_sql::{Isolation, Kind, Replica, Statement, TransactionModes, Unsafe};
use hihooi_wire::backend::{self, Report, Status, tag as server_tag};
use hihooi_wire::frontend::{self, Bind, Parse, tag};
use postgres_protocol::escape::escape_identifier;

use crate::downstream::Message;
use crate::events::Env;
use crate::mistakes::{Mistake, makes};
use crate::own_settings::{ChangedOwn, OwnSettings};
use crate::route::{Reason, SnapshotName};
use crate::session::{Open, Session, may_change_path};
use crate::settings_in_block::{
    ChangedSettings, HasSet, Reports, Settings, SettingsThen, reports, write_reports,
};
use crate::unit::{Ends, Op, Unit};

/// What fails a transaction whose block has failed here. The primary's log tells why.
pub(crate) const FAIL: &str = "ROLLBACK TO SAVEPOINT \"a read failed at a replica\"";

/// A block in which more savepoints are open, or more settings were made, is begun at the primary (I8).
const STEPS_MAX: usize = 64;

/// A block that the client has opened and no server has begun.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The statement that opened it.
    begin: Bytes,
    /// A statement has run in it.
    has_run: bool,
    /// A statement failed: the block can only be rolled back.
    has_failed: bool,
    /// All its statements read one snapshot.
    is_of_one_snapshot: bool,
    /// The snapshot is lost.
    loss: Option<Loss>,
    /// One of its reads has waited for the catalog.
    has_waited: bool,
    /// What has to be done at a server to be where the block is, in this order.
    steps: Vec<Step>,
    /// What it has changed of the session's settings.
    pub(crate) changed: Option<Box<ChangedSettings>>,
}

/// A statement that is repeated where the block begins later.
#[derive(Clone, Debug)]
enum Step {
    /// SAVEPOINT; it is open.
    Savepoint(Box<str>, SettingsThen),
    /// SET or RESET.
    Set(HasSet),
}

impl Step {
    fn set(&self) -> Option<&HasSet> {
        match self {
            Step::Set(set) => Some(set),
            Step::Savepoint(..) => None,
        }
    }
}

/// The snapshot of a block is lost: the block can only be rolled back, as a whole.
#[derive(Clone, Debug)]
struct Loss {
    /// What the client is told.
    report: Report,
    /// It was told. If not, it may commit what it has read.
    is_told: bool,
}

/// What the client gets for what opens or ends such a block, or a part of it.
#[derive(Debug)]
pub(crate) struct Crossed {
    /// The command tag.
    pub(crate) command: &'static str,
    /// Settings that have other values than it was told last.
    pub(crate) reports: Reports,
}

impl From<&'static str> for Crossed {
    fn from(command: &'static str) -> Crossed {
        Crossed { command, reports: Reports::new() }
    }
}

/// Where a session is with its blocks.
struct Scene {
    block: Option<Box<Block>>,
    own: OwnSettings,
    changed_own: Option<Box<ChangedOwn>>,
    settings: Settings,
}

/// What opens or ends such a block, or a part of it.
#[derive(Debug)]
pub(crate) enum Bound {
    /// This statement opens it.
    Begin {
        /// The statement.
        text: Bytes,
        /// All its statements read one snapshot.
        is_of_one_snapshot: bool,
    },
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SAVEPOINT.
    Savepoint(Box<str>),
    /// RELEASE SAVEPOINT, of one that is open.
    Release(Box<str>),
    /// ROLLBACK TO SAVEPOINT, to one that is open.
    RollbackTo(Box<str>),
}

impl Block {
    /// The status of which the client is told.
    pub(crate) fn status(&self) -> Status {
        let is_told = self.loss.as_ref().is_none_or(|loss| loss.is_told);
        if self.has_failed && is_told { Status::Failed } else { Status::Block }
    }

    /// Whether it can only be rolled back.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// What brings a server to where the block is, with this snapshot if one is told. (Behind a statement that has run,
    /// and in a savepoint, SET TRANSACTION fails.)
    pub(crate) fn replay(&self, snapshot: Option<&SnapshotName>) -> String {
        let begin = String::from_utf8_lossy(&self.begin);
        // By default it may be another at this server.
        let isolation = match self.is_of_one_snapshot {
            true => "\n;SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            false => "",
        };
        let import =
            |name: &SnapshotName| format!("\n;SET TRANSACTION SNAPSHOT '{}'", name.as_str());
        let import = snapshot.map(import).unwrap_or_default();
        let run = if self.has_run { "\n;SELECT" } else { "" };
        let step = |step: &Step| match step {
            Step::Savepoint(name, _) => format!("\n;SAVEPOINT {}", escape_identifier(name)),
            Step::Set(_) if makes(Mistake::SettingLost) => String::new(),
            Step::Set(set) => format!("\n;{}", set.text()),
        };
        let mut steps: Vec<String> = self.steps.iter().map(step).collect();
        if makes(Mistake::SavepointsReversed) {
            steps.reverse();
        }
        let steps = steps.concat();
        let fail = if self.has_failed { format!("\n;{FAIL}") } else { String::new() };
        format!("{begin}{isolation}{import}{run}{steps}{fail}")
    }

    /// Whether a savepoint can be set here. (Other letters depend on the client's encoding.)
    fn may_save(&self, name: &str) -> bool {
        !self.has_failed && name.is_ascii() && self.steps.len() < STEPS_MAX
    }

    /// Whether settings can be made here.
    pub(crate) fn takes_settings(&self) -> bool {
        !self.has_failed && !self.is_of_one_snapshot && self.steps.len() < STEPS_MAX
    }

    /// A setting was made.
    pub(crate) fn note_set(&mut self, set: HasSet) {
        self.steps.push(Step::Set(set));
    }

    /// The settings that were made and not undone, in their order.
    pub(crate) fn sets(&self) -> impl DoubleEndedIterator<Item = &HasSet> + Clone {
        self.steps.iter().filter_map(Step::set)
    }

    /// How many steps a failure leaves: those up to the newest savepoint that is open.
    fn steps_before_failure(&self) -> usize {
        self.steps.iter().rposition(|step| step.set().is_none()).map_or(0, |at| at + 1)
    }

    /// What the client is to be told if a statement fails: which settings that undoes.
    pub(crate) fn reports_of_failure(&self) -> Reports {
        let undone = &self.steps[self.steps_before_failure()..];
        reports(undone.iter().filter_map(Step::set), false)
    }

    /// The newest savepoint of this name.
    fn savepoint(&self, name: &str) -> Option<usize> {
        let is_it = |step: &Step| matches!(step, Step::Savepoint(known, _) if **known == *name);
        self.steps.iter().rposition(is_it)
    }

    /// Whether all its statements read one snapshot, which its first read takes.
    pub(crate) fn is_of_one_snapshot(&self) -> bool {
        self.is_of_one_snapshot
    }

    /// The same block without its snapshot.
    pub(crate) fn lost(self, report: Report, is_told: bool) -> Block {
        Block { has_run: true, has_failed: true, loss: Some(Loss { report, is_told }), ..self }
    }

    /// What the client is told in place of whatever it asks, but for the block's end.
    pub(crate) fn tell_loss(&mut self) -> Option<Report> {
        let loss = self.loss.as_mut()?;
        loss.is_told = true;
        Some(loss.report.clone())
    }

    /// A statement has run in it, or failed.
    pub(crate) fn has_run(&mut self, failed: bool) {
        self.has_run = true;
        if failed && !makes(Mistake::FailedGoesOn) {
            self.has_failed = true;
            self.steps.truncate(self.steps_before_failure());
        }
    }
}

impl Session {
    /// Whether names and literals may mean other things behind a statement than in front of it: the block that it ends, or
    /// in which it goes back, may have settings of its own.
    pub(crate) fn may_change_path_here(&self, statement: &Statement) -> bool {
        let has_settings = self.block.as_ref().is_some_and(|block| block.changed.is_some());
        let goes_back = matches!(
            statement.kind,
            Kind::Commit { .. } | Kind::Rollback { .. } | Kind::RollbackTo(_)
        );
        may_change_path(statement) || has_settings && goes_back
    }

    /// Whether a lone statement opens or ends a block of which no server has to know.
    pub(crate) fn bound(
        &self,
        statement: &Statement,
        text: &Bytes,
        env: &dyn Env,
    ) -> Option<Bound> {
        match (&statement.kind, &self.block) {
            (Kind::Begin(modes), None) if self.may_defer(modes, env) => {
                // With a hint, it isn't for replicas.
                let is_plain = !text.trim_ascii_start().starts_with(b"/*");
                let is_of_one_snapshot = self.may_take_snapshot(modes);
                is_plain.then(|| Bound::Begin { text: text.clone(), is_of_one_snapshot })
            }
            (Kind::Commit { chain: false }, Some(_)) => Some(Bound::Commit),
            (Kind::Rollback { chain: false }, Some(_)) => Some(Bound::Rollback),
            (Kind::Savepoint(name), Some(block)) if block.may_save(name) => {
                Some(Bound::Savepoint(name.clone()))
            }
            (Kind::Release(name), Some(block)) if !block.has_failed => {
                block.savepoint(name).map(|_| Bound::Release(name.clone()))
            }
            (Kind::RollbackTo(name), Some(block)) if block.loss.is_none() => {
                block.savepoint(name).map(|_| Bound::RollbackTo(name.clone()))
            }
            _ => None,
        }
    }

    /// Whether a block with these modes can be begun later.
    fn may_defer(&self, modes: &TransactionModes, env: &dyn Env) -> bool {
        let isolation = modes.isolation.unwrap_or(self.isolation);
        self.own.statement_routing
            && self.up.is_none()
            && self.open == Open::No
            && self.effects.is_none()
            && (isolation == Isolation::ReadCommitted || self.may_take_snapshot(modes))
            && self.opened.is_replicated
            && env.has_replicas()
    }

    /// Opens or ends a block, or a part of one; the command tag.
    pub(crate) fn cross(&mut self, bound: Bound) -> Crossed {
        match bound {
            Bound::Begin { text: begin, is_of_one_snapshot } => {
                let starts = first_word(&begin).eq_ignore_ascii_case(b"start");
                self.block = Some(Box::new(Block {
                    begin,
                    has_run: false,
                    has_failed: false,
                    is_of_one_snapshot,
                    loss: None,
                    has_waited: false,
                    steps: Vec::new(),
                    changed: None,
                }));
                Crossed::from(if starts { "START TRANSACTION" } else { "BEGIN" })
            }
            Bound::Commit => {
                let has_failed =
                    self.block.as_ref().is_some_and(|block| block.status() == Status::Failed);
                self.end_block(!has_failed)
            }
            Bound::Rollback => self.end_block(false),
            Bound::Savepoint(name) => {
                let then = self.settings_then();
                if let Some(block) = &mut self.block {
                    block.steps.push(Step::Savepoint(name.clone(), then));
                }
                self.cross_own(&Kind::Savepoint(name));
                Crossed::from("SAVEPOINT")
            }
            Bound::Release(name) => {
                if let Some(block) = &mut self.block
                    && let Some(at) = block.savepoint(&name)
                {
                    let behind = block.steps.split_off(at);
                    block.steps.extend(behind.into_iter().filter(|step| step.set().is_some()));
                }
                self.cross_own(&Kind::Release(name));
                Crossed::from("RELEASE")
            }
            Bound::RollbackTo(name) => {
                let mut crossed = Crossed::from("ROLLBACK");
                if let Some(block) = &mut self.block
                    && let Some(at) = block.savepoint(&name)
                {
                    let undone = block.steps.split_off(at + 1);
                    crossed.reports = reports(undone.iter().filter_map(Step::set), false);
                    block.has_failed = false;
                    let then = match &block.steps[at] {
                        Step::Savepoint(_, then) => then.clone(),
                        Step::Set(_) => None,
                    };
                    self.return_to(then);
                }
                self.cross_own(&Kind::RollbackTo(name));
                crossed
            }
        }
    }

    /// The block has ended without any server.
    fn end_block(&mut self, commits: bool) -> Crossed {
        self.leave_settings(commits);
        self.ends_own_changes(commits);
        let block = self.block.take();
        let sets = block.iter().flat_map(|block| block.sets()).collect::<Vec<_>>();
        Crossed {
            command: if commits { "COMMIT" } else { "ROLLBACK" },
            reports: reports(sets.into_iter(), commits),
        }
    }

    /// Whether a read, which could run at a replica, can also in the block that is open, if one is: outside of its
    /// transaction. `values` is where it may say "now".
    pub(crate) fn fits_block(&self, statement: &Statement, values: &[u8]) -> Result<(), Reason> {
        match &self.block {
            Some(block) if block.has_failed => Err(Reason::ExplicitBlock),
            Some(block) if block.is_of_one_snapshot => Ok(()),
            _ if !self.is_in_block() => Ok(()),
            _ if statement.reads_clock || names_a_day(values) => Err(Reason::Unsafe),
            _ => Ok(()),
        }
    }

    /// Whether a Parse in such a block can be left to the Bind behind it. A client that prepares a statement may wait
    /// for that while others of its connections, in their blocks, keep the whole pool busy.
    pub(crate) fn may_parse_later(&self, op: &Op, env: &dyn Env) -> bool {
        let is_open = self.block.as_ref().is_some_and(|block| !block.has_failed);
        let Op::Parse { facts, is_taken: false, .. } = op else { return false };
        let [statement] = &*facts.statements else { return false };
        let is_understood = !matches!(
            statement.replica,
            Replica::Unsafe(Unsafe::Unparsable | Unsafe::UnknownRelation | Unsafe::UnknownFunction)
        );
        is_open
            && matches!(statement.kind, Kind::Read | Kind::Write)
            && is_understood
            && !env.is_catalog_stale()
    }

    /// Whether a read of such a block is worth waiting for the catalog, once: behind DDL of others it would begin
    /// the block at the primary, where it would stay. Notes that it waits.
    pub(crate) fn may_become_read(&mut self, messages: &[Message], env: &dyn Env) -> bool {
        let is_open =
            self.block.as_ref().is_some_and(|block| !block.has_failed && !block.has_waited);
        let waits = is_open
            && self.own.wait_ms > 0
            && env.is_catalog_stale()
            && messages.iter().any(|message| self.is_read(message, env));
        if let Some(block) = self.block.as_mut().filter(|_| waits) {
            block.has_waited = true;
        }
        waits
    }

    /// Whether a message is about one statement that looks like a read.
    fn is_read(&mut self, message: &Message, env: &dyn Env) -> bool {
        let facts = match message.tag {
            tag::QUERY => {
                frontend::read_query(message.body()).ok().map(|text| self.analyse(text, env))
            }
            tag::PARSE => {
                Parse::read(message.body()).ok().map(|parse| self.analyse(parse.query, env))
            }
            tag::BIND => Bind::read(message.body())
                .ok()
                .and_then(|bind| self.named(bind.statement, env))
                .map(|(_, facts)| facts),
            _ => None,
        };
        facts.is_some_and(|facts| matches!(&*facts.statements, [one] if one.kind == Kind::Read))
    }

    /// How many of a unit's first messages open or end a block of which no server has to know.
    fn bound_of_unit(&self, unit: &Unit, env: &dyn Env) -> Option<(usize, Bound)> {
        let mut bound = None;
        for (index, op) in unit.ops.iter().enumerate() {
            match op {
                Op::Parse { is_taken: true, .. } => return None,
                Op::Parse { prepared, facts, .. }
                | Op::DescribeStatement { prepared: Some((prepared, facts)), .. }
                | Op::Bind { prepared: Some((prepared, facts)), .. } => {
                    let [statement] = &*facts.statements else { return None };
                    if prepared.types().iter().any(|&byte| byte != 0) {
                        return None; // there are parameters, which only servers check
                    }
                    let of_this = self.bound(statement, &prepared.query, env)?;
                    if let Op::Bind { message, .. } = op {
                        if !binds_nothing(message.body()) {
                            return None;
                        }
                        bound = Some(of_this);
                    }
                }
                Op::Portal(message) if !is_unnamed_portal(message) => return None,
                Op::Portal(message) if message.tag == tag::EXECUTE => {
                    return bound.map(|bound| (index + 1, bound));
                }
                Op::Portal(message) if message.tag == tag::DESCRIBE && bound.is_some() => {}
                _ => return None,
            }
        }
        None
    }

    /// Answers what in front of a unit opens or ends a block, or a part of one, of which no server has to know; what is
    /// left of the unit, if anything.
    pub(crate) fn cross_in_unit(&mut self, mut unit: Unit, env: &dyn Env) -> Option<Unit> {
        let mut before = None;
        let mut crossed: Vec<(Vec<Op>, Crossed)> = Vec::new();
        while let Some((count, bound)) = self.bound_of_unit(&unit, env) {
            before.get_or_insert_with(|| self.scene());
            let rest = unit.ops.split_off(count);
            crossed.push((std::mem::replace(&mut unit.ops, rest), self.cross(bound)));
        }
        let Some(before) = before else { return Some(unit) };
        if !unit.ops.is_empty() && !self.goes_on_here(&unit, env) {
            // It is the primary's as a whole.
            self.return_to_scene(before);
            let front = crossed.into_iter().flat_map(|(ops, _)| ops);
            unit.ops = front.chain(unit.ops).collect();
            return Some(unit);
        }
        for (ops, Crossed { command, reports }) in &crossed {
            self.answer_crossed(ops, command);
            write_reports(reports, self.output());
        }
        let parses = |op: &&Op| matches!(op, Op::Parse { .. });
        let parsed = crossed.iter().flat_map(|(ops, _)| ops).filter(parses).count();
        self.names.keep_first(parsed);
        if unit.ops.is_empty() {
            if unit.ends != Ends::Flush {
                self.write_ready();
            }
            return None;
        }
        self.down.settle();
        Some(unit)
    }

    /// What opening and ending blocks may change.
    fn scene(&self) -> Scene {
        Scene {
            block: self.block.clone(),
            own: self.own,
            changed_own: self.changed_own.clone(),
            settings: self.settings_now(),
        }
    }

    fn return_to_scene(&mut self, Scene { block, own, changed_own, settings }: Scene) {
        (self.block, self.own, self.changed_own) = (block, own, changed_own);
        self.take_settings(settings);
    }

    /// Whether what is left of a unit needs no block at the primary.
    fn goes_on_here(&mut self, rest: &Unit, env: &dyn Env) -> bool {
        rest.ends != Ends::Flush
            && (self.own_unit(rest).is_some()
                || self.setting_of_unit(rest, env).is_some()
                || self.routable_unit(rest, env).is_ok())
    }

    pub(crate) fn answer_crossed(&mut self, ops: &[Op], command: &str) {
        for op in ops {
            let out = self.output();
            match op {
                Op::Parse { .. } => backend::empty(server_tag::PARSE_COMPLETE, out),
                Op::Bind { .. } => backend::empty(server_tag::BIND_COMPLETE, out),
                Op::DescribeStatement { .. } => {
                    frontend::message(server_tag::PARAMETER_DESCRIPTION, out, |out| {
                        out.extend_from_slice(&[0, 0]);
                    });
                    backend::empty(server_tag::NO_DATA, out);
                }
                Op::Portal(message) if message.tag == tag::EXECUTE => {
                    backend::command_complete(command, out);
                }
                _ => backend::empty(server_tag::NO_DATA, out),
            }
        }
    }
}

/// Whether a Describe, an Execute or a Close is about the unnamed portal.
fn is_unnamed_portal(message: &Message) -> bool {
    // Its name comes first; a Describe or a Close says before that of what it is.
    let at = usize::from(message.tag != tag::EXECUTE);
    message.body().get(at) == Some(&0)
}

/// Whether a Bind has no values.
pub(crate) fn binds_nothing(body: &[u8]) -> bool {
    Bind::read(body)
        .is_ok_and(|bind| bind.portal.is_empty() && bind.rest.starts_with(&[0, 0, 0, 0]))
}

/// Whether a text or values may name a moment that depends on when the transaction began: as a word, in any case.
pub(crate) fn names_a_day(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    let is_part = |at: Option<&u8>| at.is_some_and(u8::is_ascii_alphanumeric);
    let begins = |byte: u8| matches!(byte.to_ascii_lowercase(), b'n' | b't' | b'y');
    let mut starts = text.iter().enumerate().filter(|(_, byte)| begins(**byte)).map(|(at, _)| at);
    starts.any(|at| {
        let names = |word: &&[u8]| {
            let found = text[at..].get(..word.len());
            found.is_some_and(|found| found.eq_ignore_ascii_case(word))
                && !is_part(text.get(at + word.len()))
        };
        !is_part(at.checked_sub(1).map(|before| &text[before])) && WORDS.iter().any(names)
    })
}

/// The first word of a statement.
fn first_word(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_day_is_seen() {
        for text in [&b"select 'now'"[..], b"x\0\0\0\x05TODAY", b"'tomorrow'::date"] {
            assert!(names_a_day(text), "{}", text.escape_ascii());
        }
        for text in [&b"select known from snow"[..], b"unknown", b"nowhere", b""] {
            assert!(!names_a_day(text), "{}", text.escape_ascii());
        }
    }
}
