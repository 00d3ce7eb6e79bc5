//! How appliers execute statements that may run functions of ordinary roles, without giving these functions a
//! superuser's rights.
//!
//! Appliers log in as a superuser. SET SESSION AUTHORIZATION is not enough, since a function can undo it in a
//! session of a superuser. PostgreSQL's own remedy is the security-restricted operation, in which it runs the
//! functions of a table's owner (manual, CREATE INDEX, REFRESH MATERIALIZED VIEW). In such an operation the
//! role can't be changed; nothing remains that would run later with other rights (cursors WITH HOLD, prepared
//! statements, deferred triggers); and settings are rolled back at its end.
//!
//! In SQL, REFRESH MATERIALIZED VIEW starts such an operation. The view's query is `hihooi.carry_out()`
//! (restricted.sql), which reads statements from a setting and executes them as the view's owner. The view
//! exists only during the operation, so nobody else sees it, or can make anything depend on it.
//!
//! Temporary objects would outlive the operation, and their names would take precedence in the superuser's
//! session. So creating one is an error.

use hihooi_replication::ids::Tsid;
use hihooi_wire::backend::ErrorFields;

use super::statements::{quote, quote_value};
use super::words::What;
use crate::connection::{Connection, Error, Result};
use crate::setup;

/// Sets the statements that `hihooi.carry_out()` executes next.
pub(super) const SET_WORK: &str = "select pg_catalog.set_config('hihooi.work', $1, true)";
/// Closes cursors that functions left open: their names and tables may be another operation's too.
pub(super) const CLOSE: &str = "CLOSE ALL";
/// Returns one row unless a temporary object was created in this session, and releases what would outlive the transaction.
pub(super) const NOTHING_TEMPORARY: &str = "select pg_catalog.pg_advisory_unlock_all() \
     where pg_catalog.pg_my_temp_schema() operator(pg_catalog.=) 0";
/// The same behind a ROLLBACK.
pub(super) const UNLOCK: &str = "select pg_catalog.pg_advisory_unlock_all()";
/// The error if it returns none.
pub(super) const TEMPORARY: &str = "a function that ran at the replica created a temporary object";
/// SQLSTATE of `hihooi.carry_out()` when a statement changed another number of rows than expected.
pub(super) const WRONG_COUNT: &str = "HH000";

/// Creates what an operation needs, and the event trigger that refuses DDL in it.
pub(super) async fn prepare(control: &mut Connection) -> Result<()> {
    const BEGIN: &str = "BEGIN;
        SET LOCAL session_replication_role = replica;
        SET LOCAL client_min_messages = warning;
        CREATE SCHEMA IF NOT EXISTS hihooi;";
    let script = include_str!("restricted.sql");
    let [objects, roles] = setup::DESCRIPTIONS;
    let take_back = setup::take_back();
    let parts = [BEGIN, setup::DROP_ROUTINES, objects, roles, script, &take_back, "COMMIT"];
    let done = control.simple(&parts.join("\n")).await;
    if done.is_err() {
        control.simple("ROLLBACK").await?;
    }
    done.map(drop)
}

/// Refuses what would be left behind in the session.
pub(super) async fn assert_nothing_temporary(connection: &mut Connection) -> Result<()> {
    let answer = connection.query(NOTHING_TEMPORARY).await?;
    if answer.rows.is_empty() { Err(refused(TEMPORARY)) } else { Ok(()) }
}

/// An error as if the server had refused something: 42501, insufficient privilege.
pub(super) fn refused(what: &str) -> Error {
    let fields = vec![(b'C', "42501".to_owned()), (b'M', what.to_owned())];
    Error::Server(Box::new(ErrorFields { fields }))
}

/// Whose functions a table runs when it is written to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Guard {
    /// The table's owner.
    pub owner: String,
    /// Row security binds the owner too (`FORCE ROW LEVEL SECURITY`).
    pub is_forced: bool,
    /// The search path for what it runs.
    pub path: String,
}

/// An array in PostgreSQL's text form, of values or arrays.
#[derive(Clone, Default)]
pub(super) struct Array(Vec<u8>);

impl Array {
    /// Adds a value.
    pub(super) fn push(&mut self, value: Option<&[u8]>) {
        self.separate();
        let Some(value) = value else { return self.0.extend_from_slice(b"NULL") };
        self.0.push(b'"');
        for &byte in value {
            if matches!(byte, b'"' | b'\\') {
                self.0.push(b'\\');
            }
            self.0.push(byte);
        }
        self.0.push(b'"');
    }

    /// Adds an array.
    pub(super) fn push_array(&mut self, array: &Array) {
        self.separate();
        self.0.push(b'{');
        self.0.extend_from_slice(&array.0);
        self.0.push(b'}');
    }

    fn separate(&mut self) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
    }

    /// Whether it has no values.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text form.
    pub(super) fn text(&self) -> Vec<u8> {
        [b"{", &self.0[..], b"}"].concat()
    }
}

/// Statements for `hihooi.carry_out()`.
#[derive(Default)]
pub(super) struct Work(Array);

impl Work {
    /// Adds a statement and the number of rows that it must change, if that is checked.
    pub(super) fn push(&mut self, rows: Option<u64>, text: &[u8]) {
        // (No NULL: what that means in an array depends on array_nulls, which a client may have set.)
        let rows = rows.map_or("-1".to_owned(), |rows| rows.to_string());
        let mut step = Array::default();
        step.push(Some(rows.as_bytes()));
        step.push(Some(text));
        self.0.push_array(&step);
    }

    /// Sets the search path first. (From PostgreSQL 17 on, REFRESH MATERIALIZED VIEW sets another one.)
    pub(super) fn with_path(path: &str) -> Work {
        let mut set = b"select pg_catalog.set_config('search_path', ".to_vec();
        quote_value(Some(path.as_bytes()), &mut set);
        set.extend_from_slice(b", true)");
        let mut work = Work::default();
        work.push(None, &set);
        work
    }

    /// Its value for [`SET_WORK`].
    pub(super) fn text(&self) -> Vec<u8> {
        self.0.text()
    }

    /// Bytes gathered.
    pub(super) fn len(&self) -> usize {
        self.0.0.len()
    }
}

/// The view of one connection's operations of one kind.
pub(super) struct View(String);

impl View {
    /// For changes of rows, during which DDL is refused.
    pub(super) fn rows(connection: &Connection) -> View {
        View(format!("hihooi.rows_{}", connection.key().process))
    }

    /// For DDL.
    pub(super) fn ddl(connection: &Connection) -> View {
        View(format!("hihooi.ddl_{}", connection.key().process))
    }

    /// Creates it, for operations as that role.
    pub(super) fn create(&self, role: &str) -> [String; 2] {
        let (view, role) = (&self.0, quote(role));
        let query = "SELECT hihooi.carry_out() AS done WITH NO DATA";
        [
            format!("CREATE MATERIALIZED VIEW {view} AS {query}"),
            format!("ALTER MATERIALIZED VIEW {view} OWNER TO {role}"),
        ]
    }

    /// Executes the statements.
    pub(super) fn refresh(&self) -> String {
        format!("REFRESH MATERIALIZED VIEW {}", self.0)
    }

    /// Drops it.
    pub(super) fn drop(&self) -> String {
        format!("DROP MATERIALIZED VIEW {}", self.0)
    }
}

/// Consecutive changes of tables of one owner.
pub(super) struct Gathered {
    /// The owner.
    pub owner: String,
    /// The search path for what they run.
    pub path: String,
    /// Their statements.
    pub work: Work,
    /// For messages: the change that each of them is.
    pub changes: Vec<(Tsid, What)>,
    /// Names of the tables among them whose row security binds the owner too.
    pub forced: Vec<String>,
}

impl Gathered {
    /// None yet.
    pub(super) fn new(guard: &Guard) -> Gathered {
        Gathered {
            owner: guard.owner.clone(),
            path: guard.path.clone(),
            work: Work::with_path(&guard.path),
            changes: Vec::new(),
            forced: Vec::new(),
        }
    }
}

/// The number of the statement that an error of `hihooi.carry_out()` is about, if it is about one, and the error
/// without it.
pub(super) fn told(error: Error) -> (Option<usize>, Error) {
    let Error::Server(mut fields) = error else { return (None, error) };
    fields.fields.retain(|(code, text)| *code != b'D' || !text.is_empty());
    let mut at = None;
    if let Some((_, message)) = fields.fields.iter_mut().find(|(code, _)| *code == b'M')
        && let Some((number, rest)) = message.split_once(' ')
        && let Ok(number) = number.parse()
    {
        at = Some(number);
        *message = rest.to_owned();
    }
    (at, Error::Server(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_an_array_of_pairs() {
        let mut work = Work::default();
        assert_eq!(work.text(), b"{}");
        work.push(Some(1), b"a \"b\" '\\'");
        work.push(None, b"");
        assert_eq!(work.text(), br#"{{"1","a \"b\" '\\'"},{"-1",""}}"#);
    }

    #[test]
    fn errors_tell_their_statement() {
        let error = |message: &str| {
            let fields = [(b'C', "23514"), (b'M', message), (b'D', "")];
            let fields = fields.map(|(code, text)| (code, text.to_owned())).to_vec();
            Error::Server(Box::new(ErrorFields { fields }))
        };
        let told = |message| {
            let (at, error) = told(error(message));
            (at, error.to_string())
        };
        assert_eq!(told("17 no 5"), (Some(17), "no 5 (SQLSTATE 23514)".to_owned()));
        assert_eq!(told("no 5"), (None, "no 5 (SQLSTATE 23514)".to_owned()));
    }
}
