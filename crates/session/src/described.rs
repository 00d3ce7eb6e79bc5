//! What a prepared statement returns, as its client was told. PostgreSQL refuses to run one whose columns have changed
//! since it was prepared ("cached plan must not change result type"), and clients count on that: they read rows as they
//! were described. A connection that lacks the statement would prepare it as the schema is now. So where its meaning may
//! have changed, behind DDL or under other settings, it is described there first, and compared
//! (`docs/decisions/0021-prepared-statements.md`).

use std::sync::Arc;

use hihooi_sql::{Kind, Statement};
use hihooi_wire::backend::{ErrorFields, Report, Status, tag};
use hihooi_wire::{Fields, ProtocolError};

use crate::answers::Audience;
use crate::events::{Actions, Env, Meaning, Prepared};
use crate::session::{Open, Session};
use crate::sites::SiteId;
use crate::state::{MeaningfulSettings, Pin};
use crate::unit::Op;
use crate::upstream::{NamesDone, Upstream};
use crate::work::{Then, What};

/// PostgreSQL's words.
const CHANGED: &str = "cached plan must not change result type";

/// Names, types and type modifiers of a statement's columns, as RowDescription has them; none if it returns no rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Columns(Box<[u8]>);

impl Columns {
    /// Those of the answer to a Describe.
    ///
    /// # Errors
    /// The message is malformed.
    pub fn read(tag: u8, body: &[u8]) -> Result<Columns, ProtocolError> {
        let mut read = Vec::new();
        if tag == tag::ROW_DESCRIPTION {
            let mut fields = Fields::new(tag, body);
            let count = fields.i16()?;
            read.extend(count.to_be_bytes()); // no columns are not no rows
            for _ in 0..count {
                read.extend(fields.cstr()?);
                read.push(0);
                // OID of the table and number of the column (6 bytes), OID of the type (4), its length (2) and modifier
                // (4), format (2).
                let column = fields.bytes(18)?;
                read.extend(&column[6..10]);
                read.extend(&column[12..16]);
            }
        }
        Ok(Columns(read.into()))
    }
}

/// PostgreSQL's refusal, in place of the error that says that [`Sent::Changed`](crate::answers::Sent) named no statement.
/// Drivers know it by its routine, too, and prepare their statement anew.
pub fn changed(error: &[u8]) -> Option<ErrorFields> {
    if ErrorFields::read(error).ok()?.code() != "26000" {
        return None;
    }
    let fields = [
        (b'S', "ERROR"),
        (b'V', "ERROR"),
        (b'C', "0A000"),
        (b'M', CHANGED),
        (b'F', "plancache.c"),
        (b'R', "RevalidateCachedQuery"),
    ];
    Some(ErrorFields { fields: fields.map(|(code, text)| (code, text.to_owned())).into() })
}

impl Session {
    /// The settings under which the session prepares statements that others may share; `None` if these mean what
    /// only the session knows, as in a transaction that has set something or made a table.
    pub(crate) fn shared_settings(&self) -> Option<MeaningfulSettings> {
        (!self.has_own_meanings()).then(|| MeaningfulSettings(self.settings.clone()))
    }

    fn has_own_meanings(&self) -> bool {
        self.is_path_unknown || self.transaction.has_ddl || self.pin == Some(Pin::Temporary)
    }

    /// Asks what statements return that the connection lacks, where it may be something else than their client was
    /// told; then, or at once, the work is written.
    pub(crate) fn describe(&mut self, env: &dyn Env, out: &mut Actions) {
        let site = self.work.as_ref().map_or(SiteId::Primary, |work| work.route.site);
        let is_home = site == self.home();
        let asked = self.with_server(|session, up| {
            let missing = session.unsure_of(up, env);
            if !is_home && !missing.is_empty() {
                up.objects = env.objects(site);
            }
            missing.iter().for_each(|prepared| up.write_description(prepared));
            match session.is_unit_open() {
                _ if missing.is_empty() => {}
                true => up.write_flush(), // a Sync would commit it
                false => up.write_sync(Audience::Us),
            }
            !missing.is_empty()
        });
        match asked {
            Some(true) => self.await_own(Then::Described),
            _ => self.write_described(env, out),
        }
    }

    /// The statements that the work is about, the server lacks, and may mean something else now. (What a failed
    /// transaction is asked fails anyway.)
    fn unsure_of(&self, up: &Upstream, env: &dyn Env) -> Vec<Arc<Prepared>> {
        let mut missing: Vec<Arc<Prepared>> = Vec::new();
        let Some(What::Unit(unit)) = self.work.as_ref().map(|work| &work.what) else {
            return missing;
        };
        if up.status == Status::Failed || up.answers.is_skipping() {
            return missing;
        }
        for op in &unit.ops {
            let (Op::Bind { prepared, .. } | Op::DescribeStatement { prepared, .. }) = op else {
                continue;
            };
            if op.statement().is_some_and(|statement| statement.kind.is_bound_of_transaction()) {
                break; // what comes behind runs in another one
            }
            if let Some((prepared, facts)) = prepared
                && facts.statements.iter().all(has_columns_of_its_own)
                && prepared.columns.get().is_some()
                && self.may_differ(prepared, env)
                && !up.has_statement(prepared.id)
                && up.unnamed != Some(prepared.id)
                && !missing.iter().any(|known| known.id == prepared.id)
            {
                missing.push(prepared.clone());
            }
        }
        missing
    }

    fn may_differ(&self, prepared: &Prepared, env: &dyn Env) -> bool {
        let Meaning { schema, settings } = &prepared.meaning;
        let is_same = settings.is_some() && *settings == self.shared_settings();
        !is_same || *schema != env.schema()
    }

    /// The server has said what the statements return.
    pub(crate) fn described(&mut self, env: &dyn Env, out: &mut Actions) {
        let (Some(work), Some(up)) = (&mut self.work, &mut self.up) else { return };
        let (changed, error) = (up.answers.take_changed(), up.answers.take_error());
        if changed.is_empty() && error.is_none() {
            return self.write_described(env, out);
        }
        // What was prepared just now is not what clients have. (It is closed when it is prepared anew.)
        changed.iter().for_each(|id| up.doubt_statement(*id));
        if let What::Unit(unit) = &work.what
            && error.is_some()
        {
            // Nor is it known what was not compared.
            let prepared = unit.ops.iter().filter_map(Op::prepared);
            prepared.for_each(|(prepared, _)| up.doubt_statement(prepared.id));
        }
        let is_open = up.status != Status::Idle || self.open == Open::Running;
        let at_replica = work.route.site != SiteId::Primary;
        if at_replica && !is_open {
            // The primary tells, if it is so there, too.
            work.needs_primary();
            self.let_go(out);
            return self.lease(env, out);
        }
        if let Some(error) = error.filter(|_| is_open) {
            let fields = ErrorFields::read(&error).unwrap_or_default();
            fields.write(&mut self.down.output);
            if self.open != Open::Running {
                return self.skip(NamesDone::default());
            }
            up.unit_failed(); // what is written is skipped, up to the Sync
            return self.write_described(env, out);
        }
        if at_replica {
            // It has the transaction's snapshot.
            return self.lose_snapshot(Report::error("0A000", CHANGED), out);
        }
        if let What::Unit(unit) = &mut work.what {
            unit.ops.iter_mut().for_each(|op| op.fails_if(&changed));
        }
        // (Behind an error outside a transaction, the unit meets the same, in the server's own words.)
        self.write_described(env, out);
    }
}

/// Whether what a statement returns depends on nothing but the schema: not on what EXECUTE or FETCH name.
fn has_columns_of_its_own(statement: &Statement) -> bool {
    matches!(statement.kind, Kind::Read | Kind::Write)
}
