//! Rows: a count and a checksum for each table at each site, both independent of the rows'
//! order; where they differ, the rows themselves, found by key in buckets of the key's hash so
//! that tables of any size are compared in bounded memory (I8).

use std::collections::BTreeMap;

use hihooi_wire::frontend;

use super::{Difference, Options, Report, RowDifference, Side, VerifyError, failed};
use crate::connection::Row;

/// A table or materialized view whose rows are compared.
struct Table {
    /// Schema and name, quoted.
    name: String,
    /// Its columns, quoted.
    columns: Vec<String>,
    /// Columns of its primary key, quoted; empty if it has none.
    key: Vec<String>,
}

/// Logged tables and materialized views that hold rows.
const TABLES: &str = r"
    select format('%I.%I', n.nspname, c.relname),
           (select array_to_string(array_agg(quote_ident(a.attname) order by a.attnum), E'\n')
            from pg_attribute a
            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
           (select array_to_string(array_agg(quote_ident(a.attname) order by a.attnum), E'\n')
            from pg_index i join pg_attribute a
                 on a.attrelid = c.oid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])
            where i.indrelid = c.oid and i.indisprimary)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'm') and c.relpersistence = 'p' and c.relispopulated
      and n.nspname not in ('hihooi', 'information_schema') and n.nspname !~ '^pg_'
    order by 1";

impl Table {
    fn read(row: Row) -> Option<Table> {
        let mut values = row.into_iter();
        let name = values.next().flatten()?;
        let mut list = || -> Vec<String> {
            let text = values.next().flatten().unwrap_or_default();
            text.split('\n').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        Some(Table { name, columns: list(), key: list() })
    }

    fn row(&self) -> String {
        format!("ROW({})::text", self.columns.join(", "))
    }

    fn key(&self) -> String {
        if self.key.is_empty() { self.row() } else { format!("ROW({})::text", self.key.join(", ")) }
    }

    fn checksum(&self) -> String {
        format!(
            "SELECT count(*), coalesce(sum(('x' || substr(md5({}), 1, 16))::bit(64)::bigint\
             ::numeric), 0) FROM ONLY {}",
            self.row(),
            self.name
        )
    }

    fn buckets(&self) -> String {
        format!(
            "SELECT substr(md5({key}), 1, 3), count(*), sum(('x' || substr(md5({row}), 1, 16))\
             ::bit(64)::bigint::numeric) FROM ONLY {table} GROUP BY 1",
            key = self.key(),
            row = self.row(),
            table = self.name
        )
    }

    fn bucket(&self, bucket: &str) -> String {
        format!(
            "SELECT {key}, {row}, count(*) FROM ONLY {table} \
             WHERE substr(md5({key}), 1, 3) = '{bucket}' GROUP BY 1, 2",
            key = self.key(),
            row = self.row(),
            table = self.name
        )
    }
}

/// Compares all rows; adds what differs to the report.
pub(super) async fn compare(
    primary: &mut Side,
    sides: &mut [Side],
    options: &Options,
    report: &mut Report,
    progress: &mut (dyn FnMut(String) + Send),
) -> Result<(), VerifyError> {
    let tables: Vec<Table> =
        rows(primary, TABLES).await?.into_iter().filter_map(Table::read).collect();
    // A table that has other columns, or isn't there, was told as a difference of structure.
    let mut comparable = Vec::new();
    for side in sides.iter_mut() {
        let found = rows(side, TABLES).await?.into_iter().filter_map(Table::read);
        comparable.push(found.map(|table| (table.name, table.columns)).collect::<BTreeMap<_, _>>());
    }
    for table in &tables {
        let checksum = table.checksum();
        ask(primary, &checksum).await?;
        let mut asked = Vec::new();
        for (number, side) in sides.iter_mut().enumerate() {
            if comparable[number].get(&table.name) == Some(&table.columns) {
                ask(side, &checksum).await?;
                asked.push(number);
            }
        }
        let there = answer(primary).await?;
        let count = there.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
        report.rows += count.unwrap_or(0);
        report.tables += 1;
        let mut equal = asked.len() == sides.len();
        for number in asked {
            let side = &mut sides[number];
            let here = answer(side).await?;
            if here != there {
                equal = false;
                report.differences.push(Difference {
                    site: side.name.clone(),
                    object: format!("table {}", table.name),
                    what: format!("rows differ: {}", words(&there, &here)),
                });
                find_rows(table, primary, side, options, report).await?;
            }
        }
        let verdict = if equal { "equal" } else { "DIFFERENT" };
        progress(format!("{}: {} rows: {verdict}", table.name, count.unwrap_or(0)));
    }
    Ok(())
}

fn words(there: &[Row], here: &[Row]) -> String {
    let count = |rows: &[Row]| rows.first().and_then(|row| row.first().cloned().flatten());
    let (there, here) = (count(there).unwrap_or_default(), count(here).unwrap_or_default());
    format!("{there} on the primary, {here} here")
}

/// Finds rows that differ, at most as many as the report may list.
async fn find_rows(
    table: &Table,
    primary: &mut Side,
    side: &mut Side,
    options: &Options,
    report: &mut Report,
) -> Result<(), VerifyError> {
    let there = by_first(rows(primary, &table.buckets()).await?);
    let here = by_first(rows(side, &table.buckets()).await?);
    let buckets = there.keys().chain(here.keys().filter(|bucket| !there.contains_key(*bucket)));
    for bucket in buckets.filter(|bucket| there.get(*bucket) != here.get(*bucket)) {
        let there = by_first(rows(primary, &table.bucket(bucket)).await?);
        let here = by_first(rows(side, &table.bucket(bucket)).await?);
        let keys = there.keys().chain(here.keys().filter(|key| !there.contains_key(*key)));
        for key in keys.filter(|key| there.get(*key) != here.get(*key)) {
            if report.row_differences.len() >= options.rows_max {
                return Ok(());
            }
            report.row_differences.push(RowDifference {
                site: side.name.clone(),
                table: table.name.clone(),
                key: format!("({})={key}", key_names(table)),
                primary: there.get(key).map(|rows| row_words(rows)),
                replica: here.get(key).map(|rows| row_words(rows)),
            });
        }
    }
    Ok(())
}

fn key_names(table: &Table) -> String {
    if table.key.is_empty() { "row".to_owned() } else { table.key.join(", ") }
}

/// A row's text, and how often it is there if not once.
fn row_words(rows: &[Row]) -> String {
    let mut words = Vec::new();
    for row in rows {
        let text = row.first().cloned().flatten().unwrap_or_default();
        let count = row.get(1).cloned().flatten().unwrap_or_default();
        words.push(if count == "1" { text } else { format!("{text} x {count}") });
    }
    words.join(", ")
}

fn by_first(rows: Vec<Row>) -> BTreeMap<String, Vec<Row>> {
    let mut map: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for mut row in rows {
        let rest = row.split_off(1.min(row.len()));
        let key = row.pop().flatten().unwrap_or_default();
        map.entry(key).or_default().push(rest);
    }
    map.values_mut().for_each(|rows| rows.sort());
    map
}

/// Sends a query; the sites work at the same time.
async fn ask(side: &mut Side, text: &str) -> Result<(), VerifyError> {
    frontend::query(text.as_bytes(), side.connection.buffer());
    side.connection.flush().await.map_err(|error| failed(&side.name, &error))
}

async fn answer(side: &mut Side) -> Result<Vec<Row>, VerifyError> {
    let answers = side.connection.answers().await.map_err(|error| failed(&side.name, &error))?;
    Ok(answers.into_iter().next_back().unwrap_or_default().rows)
}

async fn rows(side: &mut Side, text: &str) -> Result<Vec<Row>, VerifyError> {
    ask(side, text).await?;
    answer(side).await
}
