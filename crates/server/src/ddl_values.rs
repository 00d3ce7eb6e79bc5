//! What ALTER TABLE computes for rows that are there, and replicas would compute otherwise (I2):
//! the primary is asked for the value of a column's default, in the transaction that adds the
//! column, so that replicas get that value. What has another value in each row, or at each
//! moment, is refused before anything happened.

use hihooi_sql::computed::{Added, Computed, Names, Source, computed, with_values};
use hihooi_wire::backend::Report;
use hihooi_wire::frontend;

use crate::answers::{Audience, Sent};
use crate::backend::Backend;
use crate::ddl::decode_hex;
use crate::pump::{self, Hold, Lost};
use crate::session::Session;

/// What names stand for, by the worst that they may mean, and what the table is like. Functions
/// of PostgreSQL's own that are stable and in `$2` are taken for immutable.
const JUDGE: &str = "WITH RECURSIVE named AS (
        SELECT CASE WHEN p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
                         AND p.provolatile = 's' AND p.proname = ANY ($2::pg_catalog.name[])
                    THEN 'i' ELSE p.provolatile::text END AS v
        FROM pg_catalog.pg_proc p WHERE p.proname = ANY ($1::pg_catalog.name[])
        UNION ALL
        SELECT p.provolatile::text
        FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode
        WHERE o.oprname = ANY ($3::pg_catalog.name[])
          AND o.oprnamespace <> 'pg_catalog'::pg_catalog.regnamespace
        UNION ALL
        SELECT p.provolatile::text
        FROM pg_catalog.pg_cast c JOIN pg_catalog.pg_proc p ON p.oid = c.castfunc
        JOIN pg_catalog.pg_type t ON t.oid = c.casttarget
        WHERE t.typname = ANY ($4::pg_catalog.name[])
          AND p.pronamespace <> 'pg_catalog'::pg_catalog.regnamespace
    ), part AS (
        SELECT pg_catalog.to_regclass($5)::pg_catalog.oid AS id
        UNION
        SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN part ON i.inhparent = part.id
    )
    SELECT (SELECT coalesce(pg_catalog.max(v), 'i') FROM named),
        EXISTS (SELECT FROM part WHERE pg_catalog.pg_relation_size(id) > 0)::text,
        (pg_catalog.to_regtype($6) IS NOT NULL)::text,
        EXISTS (SELECT FROM pg_catalog.pg_type t
                WHERE t.oid = pg_catalog.to_regtype($6)
                  AND t.typdefaultbin::text !~ '^[{]CONST ')::text,
        EXISTS (SELECT FROM pg_catalog.pg_attribute a
                WHERE a.attrelid = pg_catalog.to_regclass($5) AND a.attname = $7::text
                  AND NOT a.attisdropped)::text,
        (pg_catalog.to_regclass($5) IS NOT NULL)::text";

/// What stands in front of the expression when the primary is asked for its value.
const VALUE_HEAD: &str = "WITH v AS(SELECT(";
/// What stands behind its type: the value as a literal that any setting of DateStyle reads alike,
/// with all digits. It is computed under the client's settings, before they are changed.
const VALUE_TAIL: &str = " AS v OFFSET 0), s AS MATERIALIZED (
        SELECT v.v, pg_catalog.current_setting('DateStyle') AS d,
            pg_catalog.current_setting('extra_float_digits') AS f,
            pg_catalog.set_config('DateStyle', 'ISO', true),
            pg_catalog.set_config('extra_float_digits', '1', true)
        FROM v)
    SELECT pg_catalog.encode(pg_catalog.convert_to(pg_catalog.format('%L', s.v), 'UTF8'), 'hex'),
        pg_catalog.set_config('DateStyle', s.d, true),
        pg_catalog.set_config('extra_float_digits', s.f, true)
    FROM s";

/// What replicas run for a statement.
#[derive(Debug)]
pub(crate) enum Replayed {
    /// This text; `None` for the statement itself.
    Text {
        /// The other text.
        other: Option<String>,
        /// What it computes for rows that are there is the same at every site.
        is_settled: bool,
    },
    /// Nothing: the client has an error, and the unit has failed.
    Nothing,
}

/// The primary's answer to [`JUDGE`].
struct Judgement {
    /// `i`, `s` or `v`.
    volatility: u8,
    has_rows: bool,
    /// Table and type exist. Otherwise the statement fails or does nothing, wherever it runs.
    is_whole: bool,
    /// The type's own default is more than a constant.
    type_computes: bool,
    has_column: bool,
}

/// What rows get in a column that is added.
enum Fate {
    /// The same everywhere.
    Settled,
    /// One value, which only the primary knows.
    Asked,
    /// Values that only the primary knows, if there are rows.
    EachRow,
}

impl Session {
    /// Finds out what replicas must run for a statement that the primary is about to run.
    pub(crate) async fn replayed(
        &mut self,
        server: &mut Backend,
        text: &str,
    ) -> Result<Replayed, Lost> {
        let Some(computed) = computed(text) else {
            return Ok(Replayed::Text { other: None, is_settled: true });
        };
        if !text.is_ascii() && !self.speaks_utf8(server).await? {
            let what = "can't replicate this ALTER TABLE in the client's encoding";
            let report = Report::error("0A000", what).hint("SET client_encoding TO 'UTF8'.");
            return self.refuse_in_unit(server, &report).await;
        }
        for names in &computed.conversions {
            let judgement = self.judge(server, names, &names.settled, &computed, None, text);
            let Some(judgement) = judgement.await? else { return Ok(Replayed::Nothing) };
            if judgement.volatility != b'i' || names.asks_for_moment || names.opaque {
                return self.refuse_in_unit(server, &conversion_refused()).await;
            }
        }
        self.with_asked_values(server, text, &computed).await
    }

    async fn with_asked_values(
        &mut self,
        server: &mut Backend,
        text: &str,
        computed: &Computed,
    ) -> Result<Replayed, Lost> {
        let (mut values, mut is_settled) = (Vec::new(), true);
        for (index, added) in computed.added.iter().enumerate() {
            let none = Names::default();
            let names =
                if let Source::Expression(_, names) = &added.source { names } else { &none };
            let judgement = self.judge(server, names, &names.fixed, computed, Some(added), text);
            let Some(judgement) = judgement.await? else { return Ok(Replayed::Nothing) };
            match judgement.fate(added) {
                Ok(Fate::Settled) => {}
                Ok(Fate::EachRow) => is_settled = false,
                Ok(Fate::Asked) => {
                    let row = self.ask(server, &question_of_value(text, added), &[]).await?;
                    let literal = row.and_then(|row| decode_hex(row.first()?.as_ref()?));
                    let Some(literal) = literal else { return Ok(Replayed::Nothing) };
                    let exists = added.if_not_exists && judgement.has_column;
                    values.push((index, literal, exists));
                }
                Err(report) => return self.refuse_in_unit(server, &report).await,
            }
        }
        if values.is_empty() {
            return Ok(Replayed::Text { other: None, is_settled });
        }
        let Some(other) = with_values(text, computed, &values) else {
            let report = Report::error("0A000", "can't replicate the defaults of these columns");
            return self.refuse_in_unit(server, &report.hint(HINT)).await;
        };
        Ok(Replayed::Text { other: Some(other), is_settled })
    }

    async fn judge(
        &mut self,
        server: &mut Backend,
        names: &Names,
        taken_for_immutable: &[Box<str>],
        computed: &Computed,
        added: Option<&Added>,
        text: &str,
    ) -> Result<Option<Judgement>, Lost> {
        let lists =
            [&names.functions[..], taken_for_immutable, &names.operators[..], &names.types[..]];
        let lists = lists.map(array);
        let of_type = added.and_then(|added| text.get(added.of_type.clone()));
        let column = added.map(|added| added.column.as_bytes());
        let table = Some(computed.table.as_bytes());
        let [functions, taken, operators, types] = lists.each_ref().map(|l| Some(l.as_bytes()));
        let of_type = of_type.map(str::as_bytes);
        let values = [functions, taken, operators, types, table, of_type, column];
        let Some(row) = self.ask(server, JUDGE, &values).await? else { return Ok(None) };
        let value = |index: usize| row.get(index).and_then(|value| value.as_deref());
        let is_true = |index| value(index) == Some(b"true");
        Ok(value(0).and_then(|volatility| {
            Some(Judgement {
                volatility: *volatility.first()?,
                has_rows: is_true(1),
                is_whole: is_true(2) && is_true(5),
                type_computes: is_true(3),
                has_column: is_true(4),
            })
        }))
    }

    async fn speaks_utf8(&mut self, server: &mut Backend) -> Result<bool, Lost> {
        let question = "SELECT pg_catalog.current_setting('client_encoding')";
        let row = self.ask(server, question, &[]).await?;
        Ok(row.is_some_and(|row| row.first().is_some_and(|v| v.as_deref() == Some(b"UTF8"))))
    }

    /// Tells the client why its statement isn't run, and fails the unit at the server.
    async fn refuse_in_unit(
        &mut self,
        server: &mut Backend,
        report: &Report,
    ) -> Result<Replayed, Lost> {
        report.write(self.output());
        server.unnamed = None;
        frontend::parse(b"", b"SELECT 1/0", &mut server.output);
        server.answers.sent(Sent::Parse(None), Audience::Us);
        frontend::bind(b"hihooi_own", b"", std::iter::empty(), &mut server.output);
        server.answers.sent(Sent::Bind, Audience::Us);
        frontend::execute(b"hihooi_own", 0, &mut server.output);
        server.answers.sent(Sent::Execute, Audience::Us);
        server.write_flush();
        while !server.answers.is_empty() {
            pump::pump(&mut self.client, server, &mut Hold::No).await?;
        }
        Ok(Replayed::Nothing)
    }
}

const HINT: &str = "Add the column without a default, fill it with UPDATE, then set the default.";

impl Judgement {
    fn fate(&self, added: &Added) -> Result<Fate, Report> {
        let column = &added.column;
        let each_row = match &added.source {
            _ if !self.is_whole && added.source != Source::Numbers => return Ok(Fate::Settled),
            Source::Constant => false,
            Source::Type => self.type_computes,
            Source::Numbers => true,
            Source::Expression(_, names) if names.opaque || self.volatility == b'v' => true,
            Source::Expression(..) if self.volatility == b'i' => return Ok(Fate::Asked),
            Source::Expression(..) => {
                let what = format!(
                    "can't replicate column \"{column}\": its default may have another value at \
                     each moment"
                );
                return Err(Report::error("0A000", what).hint(HINT));
            }
        };
        if each_row && self.has_rows {
            let what = format!(
                "can't replicate column \"{column}\": the rows that are there would get values \
                 that replicas don't know"
            );
            return Err(Report::error("0A000", what).hint(HINT));
        }
        Ok(if each_row { Fate::EachRow } else { Fate::Settled })
    }
}

fn conversion_refused() -> Report {
    Report::error("0A000", "can't replicate USING that may compute another value at each site")
        .hint("Add another column, fill it with UPDATE, drop the old one, rename the new one.")
}

/// Asks for the value of a column's default. The expression stands where it stands in the
/// statement, so that the position in an error is right.
fn question_of_value(text: &str, added: &Added) -> String {
    let Source::Expression(range, _) = &added.source else { return String::new() };
    let before = text.get(..range.start).unwrap_or_default().chars().count();
    let padding = before.saturating_sub(VALUE_HEAD.len());
    let expression = text.get(range.clone()).unwrap_or_default();
    let of_type = text.get(added.of_type.clone()).unwrap_or_default();
    format!("{:padding$}{VALUE_HEAD}{expression}\n)::{of_type}{VALUE_TAIL}", "")
}

/// An array of names in its text form.
fn array(names: &[Box<str>]) -> String {
    let quote = |name: &str| name.replace('\\', "\\\\").replace('"', "\\\"");
    let names: Vec<String> = names.iter().map(|name| format!("\"{}\"", quote(name))).collect();
    format!("{{{}}}", names.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I1: an error in a default is shown at its place.
    #[test]
    fn expressions_keep_their_position() {
        for text in ["ALTER TABLE t ADD a b DEFAULT f()", "ALTER TABLE é ADD ü int DEFAULT f()"] {
            let computed = computed(text).expect("computes");
            let question = question_of_value(text, &computed.added[0]);
            let position = |text: &str| {
                text.chars().collect::<String>().split("f()").next().map(|s| s.chars().count())
            };
            assert_eq!(position(&question), position(text), "{question}");
        }
    }

    #[test]
    fn names_are_quoted_in_arrays() {
        assert_eq!(array(&["a\"b\\".into(), "c,d".into()]), "{\"a\\\"b\\\\\",\"c,d\"}");
        assert_eq!(array(&[]), "{}");
    }
}
