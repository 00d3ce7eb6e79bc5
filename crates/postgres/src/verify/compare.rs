//! Compares rows: the checksum of each table at each site, and the rows themselves where checksums differ (see
//! `sums` and `table`).

use std::collections::BTreeMap;

use futures_util::future::{join, join_all, try_join_all};
use tokio::sync::mpsc;

use super::sums::{Buckets, Held, Selection, Sum};
use super::table::{Changed, TABLES, Table};
use super::{Difference, Options, Report, RowDifference, Side, VerifyError, failed, tell};
use crate::connection::{self, Error};

/// SQLSTATE of what was cancelled, such as by a replica's applier (`Config::max_delay`).
const QUERY_CANCELED: &str = "57014";
/// Names in it are looked up in the catalogs as they are now.
const IS_THERE: &str = "SELECT pg_catalog.to_regclass($1)";

/// Tables whose rows a replica doesn't follow (`apply::set_aside`).
const SET_ASIDE: &str = "
    SELECT format('%I.%I', n.nspname, c.relname), s.reason
    FROM hihooi.set_aside s JOIN pg_class c ON c.oid = s.local
        JOIN pg_namespace n ON n.oid = c.relnamespace";

/// What was read of a table, if it is still the table of the snapshot.
type Read<T> = connection::Result<Result<T, Changed>>;
/// The tables of a site, by name.
pub(super) type Tables = BTreeMap<String, Table>;

/// Compares all rows; adds what differs to the report.
pub(super) async fn compare(
    sites: &mut [Side],
    tables: Vec<Tables>,
    options: &Options,
    report: &mut Report,
    lines: &mpsc::Sender<String>,
) -> Result<(), VerifyError> {
    let mut tables = tables.into_iter();
    let Some((primary, replicas)) = sites.split_first_mut() else { return Ok(()) };
    let on_primary = tables.next().unwrap_or_default();
    let on_replicas: Vec<Tables> = tables.collect();
    let set_aside = try_join_all(replicas.iter_mut().map(set_aside_at)).await?;
    for table in on_primary.values() {
        // A table that has other columns, or is missing, was reported as a difference of structure.
        let mut is_complete = true;
        let sides = replicas.iter_mut().zip(&on_replicas).zip(&set_aside);
        let replicas = sides.filter_map(|((side, tables), set_aside)| {
            if let Some(reason) = set_aside.get(&table.name) {
                let why = format!("{}: set aside: {reason}", table.name);
                report.skipped.push((side.name.clone(), why));
                return None;
            }
            let here = tables.get(&table.name).filter(|here| here.is_like(table));
            is_complete &= here.is_some();
            Some(TableAt { side, table: here?, key: table })
        });
        let mut replicas: Vec<TableAt> = replicas.collect();
        let primary = TableAt { side: &mut *primary, table, key: table };
        let found = compare_table(primary, &mut replicas, options, report).await?;
        let verdict = match found {
            Some((rows, true)) if is_complete && replicas.is_empty() => {
                format!("{rows} rows: not compared")
            }
            Some((rows, true)) if is_complete => format!("{rows} rows: equal"),
            Some((rows, _)) => format!("{rows} rows: DIFFERENT"),
            None => "not compared".to_owned(), // (nor is a table that was dropped meanwhile)
        };
        tell(lines, format!("{}: {verdict}", table.name)).await?;
    }
    Ok(())
}

/// The tables of the sites, in their snapshots.
pub(super) async fn tables(sites: &mut [Side]) -> Result<Vec<Tables>, VerifyError> {
    try_join_all(sites.iter_mut().map(tables_of)).await
}

async fn tables_of(side: &mut Side) -> Result<Tables, VerifyError> {
    let answer = side.connection.query(TABLES).await;
    let answer = answer.map_err(|error| failed(&side.name, &error))?;
    let tables = answer.rows.into_iter().filter_map(Table::read);
    Ok(tables.map(|table| (table.name.clone(), table)).collect())
}

/// Tables that a replica has set aside, and why.
async fn set_aside_at(replica: &mut Side) -> Result<BTreeMap<String, String>, VerifyError> {
    let answer = replica.connection.query(SET_ASIDE).await;
    let answer = answer.map_err(|error| failed(&replica.name, &error))?;
    let tables = answer.rows.into_iter().filter_map(|row| {
        let [name, reason] = <[_; 2]>::try_from(row).ok()?;
        name.zip(reason)
    });
    Ok(tables.collect())
}

/// A table at a site.
struct TableAt<'a> {
    side: &'a mut Side,
    table: &'a Table,
    /// The table on the primary, by whose key rows are identified.
    key: &'a Table,
}

impl TableAt<'_> {
    async fn sum(&mut self) -> Read<Sum> {
        let mut sum = Sum::default();
        let changed = self.side.read(self.table, |line| sum.add(line)).await?;
        Ok(changed.map_or(Ok(sum), Err))
    }

    async fn buckets(&mut self, selection: &Selection) -> Read<Buckets> {
        let mut buckets = Buckets::default();
        let changed =
            self.side.read(self.table, |line| buckets.add(self.key, selection, line)).await?;
        Ok(changed.map_or(Ok(buckets), Err))
    }

    async fn held(&mut self, selection: &Selection) -> Read<Held> {
        let mut held = Held::default();
        let changed =
            self.side.read(self.table, |line| held.add(self.key, selection, line)).await?;
        Ok(changed.map_or(Ok(held), Err))
    }

    /// What was read; `None` if the table has been dropped since; `None`, and a line in the report, if
    /// it isn't what it was any more, or if the owner as whom it has to be read may not read it.
    async fn told<T>(
        &mut self,
        read: Read<T>,
        report: &mut Report,
    ) -> Result<Option<T>, VerifyError> {
        match read {
            Ok(Err(Changed::Dropped)) => Ok(None),
            Ok(Err(Changed::Rewritten)) => {
                let why = format!("{}: rewritten or truncated meanwhile", self.table.name);
                report.skipped.push((self.side.name.clone(), why));
                Ok(None)
            }
            Err(Error::Server(_)) if self.is_gone().await => Ok(None),
            Err(error) if error.code() == Some(QUERY_CANCELED) => {
                let why = format!(
                    "{}: cancelled by an administrator, or because it blocked applying",
                    self.table.name
                );
                report.skipped.push((self.side.name.clone(), why));
                Ok(None)
            }
            Err(error @ Error::Server(_)) if self.table.is_read_as_owner() => {
                let why = format!("{}: {error}", self.table.name);
                report.skipped.push((self.side.name.clone(), why));
                Ok(None)
            }
            Ok(Ok(read)) => Ok(Some(read)),
            Err(error) => Err(failed(&self.side.name, &error)),
        }
    }

    /// Whether the table doesn't exist any more, although the snapshot has it.
    async fn is_gone(&mut self) -> bool {
        let found = self.side.connection.query_with(IS_THERE, &[Some(&self.table.name)]).await;
        found.is_ok_and(|found| found.value().is_none())
    }
}

/// Compares a table: its rows and whether it is equal; `None` if no difference was found, but it
/// couldn't be read everywhere.
async fn compare_table(
    mut primary: TableAt<'_>,
    replicas: &mut [TableAt<'_>],
    options: &Options,
    report: &mut Report,
) -> Result<Option<(u64, bool)>, VerifyError> {
    let (there, here) = join(primary.sum(), join_all(replicas.iter_mut().map(TableAt::sum))).await;
    let Some(there) = primary.told(there, report).await? else { return Ok(None) };
    report.tables += 1;
    report.rows += there.rows;
    let mut equal = Some(true);
    for (replica, here) in replicas.iter_mut().zip(here) {
        let Some(here) = replica.told(here, report).await? else {
            equal = equal.filter(|equal| !equal);
            continue;
        };
        if here != there {
            equal = Some(false);
            report.differences.push(Difference {
                site: replica.side.name.clone(),
                object: format!("table {}", replica.table.name),
                what: format!("rows differ: {} on the primary, {} here", there.rows, here.rows),
            });
            find_rows(&mut primary, replica, options, report).await?;
        }
    }
    Ok(equal.map(|equal| (there.rows, equal)))
}

/// Finds rows that differ, at most as many as the report may list.
async fn find_rows(
    primary: &mut TableAt<'_>,
    replica: &mut TableAt<'_>,
    options: &Options,
    report: &mut Report,
) -> Result<(), VerifyError> {
    let room = options.rows_max.saturating_sub(report.row_differences.len());
    if room == 0 {
        return Ok(());
    }
    let mut selection = Selection::default();
    loop {
        let (there, here) = join(primary.buckets(&selection), replica.buckets(&selection)).await;
        let Some(there) = primary.told(there, report).await? else { return Ok(()) };
        let Some(here) = replica.told(here, report).await? else { return Ok(()) };
        if !selection.narrow(&there, &here, room) {
            break;
        }
    }
    let (there, here) = join(primary.held(&selection), replica.held(&selection)).await;
    let Some(there) = primary.told(there, report).await? else { return Ok(()) };
    let Some(here) = replica.told(here, report).await? else { return Ok(()) };
    let differing = there.differing(&here).into_iter().take(room);
    report.row_differences.extend(differing.map(|(key, there, here)| RowDifference {
        site: replica.side.name.clone(),
        table: replica.table.name.clone(),
        key: format!("({})={key}", replica.key.key_names()),
        primary: there,
        replica: here,
    }));
    Ok(())
}
