//! What each consistency level guarantees (docs/consistency.md): for each part of a history, the checker's
//! level that it must satisfy.
//!
//! Writes, and reads at the primary, are PostgreSQL's own: each has a strong snapshot in the order in which
//! commits become visible at the primary. Reads at replicas have snapshots in the order of the log. The two
//! orders can differ. Only `strict` and `sync`, and `gssi` for reads by key, hide this. So at the other levels
//! a history is checked twice: what replicas show, in the order of the log ([`Part::AtReplicas`]), and
//! everything, with replicas' reads row by row, in the order of the primary ([`Part::RowByRow`]). At `session`,
//! one session's reads of two rows may be in an order that the primary didn't have, so session order is checked
//! row by row ([`Part::EachRow`]).

use hihooi_check::Level::{self as Asked, SessionSi, Si, StrongSi};
use hihooi_check::{Judge, Summary, Verdict};

use super::recording::{self, Part, Record};
use crate::config::Level;
use crate::failure::{Failure, Result};

/// What must hold of histories at a level.
pub fn of(level: Level) -> &'static [(Part, Asked)] {
    match level {
        Level::Sync | Level::Strict => &[(Part::Whole, StrongSi)],
        Level::Gssi => {
            &[(Part::ByKey, StrongSi), (Part::AtReplicas, StrongSi), (Part::RowByRow, StrongSi)]
        }
        Level::RsiPc => &[(Part::AtReplicas, StrongSi), (Part::RowByRow, StrongSi)],
        Level::Session => {
            &[(Part::AtReplicas, SessionSi), (Part::RowByRow, Si), (Part::EachRow, SessionSi)]
        }
        Level::WeakSi => &[(Part::AtReplicas, Si), (Part::RowByRow, Si)],
    }
}

/// The verdict on a part.
pub struct Judged {
    /// The part.
    pub part: Part,
    /// Its records.
    pub records: Vec<Record>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Judges a history, whose records are in the order of their beginnings.
///
/// # Errors
/// The history can't be judged.
pub fn judge(records: &[Record], level: Level) -> Result<(Vec<Judged>, Summary)> {
    let bad = |bad| Failure::new(format!("the history can't be judged: {bad}"));
    let one = |&(part, asked): &(Part, Asked)| {
        let records = part.of(records);
        let history = recording::history(&records).map_err(bad)?;
        let verdict = hihooi_check::judge(&history, asked);
        Ok(Judged { part, records, verdict })
    };
    let judged = of(level).iter().map(one).collect::<Result<Vec<_>>>()?;
    let whole = recording::history(records).map_err(bad)?;
    Ok((judged, Judge::new(&whole).summary()))
}

#[cfg(test)]
mod tests {
    use hihooi_check::{Op, Outcome, Transaction};

    use super::*;

    fn record(site: &str, process: i64, [from, to]: [i64; 2], ops: Vec<Op>) -> Record {
        let transaction = Transaction {
            process,
            invoked: from,
            completed: Some(to),
            outcome: Outcome::Committed,
            is_final: false,
            ops,
        };
        Record { transaction, site: site.to_owned(), is_wide: false }
    }

    /// A read of two lists.
    fn read(site: &str, process: i64, times: [i64; 2], [a, b]: [&[i64]; 2]) -> Record {
        let ops = vec![Op::list("a", a.iter().copied()), Op::list("b", b.iter().copied())];
        record(site, process, times, ops)
    }

    /// Two appends, which last until then, and further records.
    fn with_writes(until: i64, further: &[Record]) -> Vec<Record> {
        let mut records = vec![
            record("primary", 1, [0, until], vec![Op::append("a", 1)]),
            record("primary", 2, [1, until], vec![Op::append("b", 2)]),
        ];
        records.extend_from_slice(further);
        records
    }

    fn holds(records: &[Record], level: Level) -> bool {
        let (judged, _) = judge(records, level).expect("a good history");
        judged.iter().all(|judged| judged.verdict.holds())
    }

    /// The levels at which a history is allowed.
    fn allowed(records: &[Record]) -> Vec<&'static str> {
        Level::ALL.into_iter().filter(|&level| holds(records, level)).map(Level::as_str).collect()
    }

    const A_NOT_B: [&[i64]; 2] = [&[1], &[]];
    const B_NOT_A: [&[i64]; 2] = [&[], &[2]];

    #[test]
    fn a_long_fork_is_allowed_between_the_primary_and_a_replica_only() {
        let fork = |sites: [&str; 2]| {
            let reads =
                [read(sites[0], 3, [20, 50], B_NOT_A), read(sites[1], 4, [30, 60], A_NOT_B)];
            with_writes(90, &reads)
        };
        assert_eq!(allowed(&fork(["primary", "replica1"])), ["rsi-pc", "session", "weak-si"]);
        assert_eq!(allowed(&fork(["replica1", "replica2"])), Vec::<&str>::new());
        assert_eq!(allowed(&fork(["primary", "primary"])), Vec::<&str>::new());
    }

    #[test]
    fn a_wide_read_may_show_a_long_fork_at_gssi() {
        let wide = Record { is_wide: true, ..read("replica1", 4, [30, 60], A_NOT_B) };
        let records = with_writes(90, &[read("primary", 3, [20, 50], B_NOT_A), wide]);
        assert_eq!(allowed(&records), ["gssi", "rsi-pc", "session", "weak-si"]);
    }

    #[test]
    fn a_stale_read_is_allowed_at_session_and_weak_si_only() {
        let stale = with_writes(10, &[read("replica1", 3, [20, 30], A_NOT_B)]);
        assert_eq!(allowed(&stale), ["session", "weak-si"]);
    }

    #[test]
    fn a_session_sees_its_own_writes_and_what_it_saw() {
        let own = with_writes(10, &[read("replica1", 2, [20, 30], A_NOT_B)]);
        assert_eq!(allowed(&own), ["weak-si"]);
        let back = |sites: [&str; 2]| {
            let reads =
                [read(sites[0], 3, [20, 30], [&[1], &[2]]), read(sites[1], 3, [40, 50], A_NOT_B)];
            with_writes(10, &reads)
        };
        assert_eq!(allowed(&back(["replica1", "replica2"])), ["weak-si"]);
        assert_eq!(allowed(&back(["primary", "replica2"])), ["weak-si"]);
    }

    /// At a replica `a` was committed before `b`, at the primary after it. A session that saw `a` at a replica may then
    /// read `b` as it was before: it saw nothing newer.
    #[test]
    fn a_session_may_see_two_rows_in_the_order_of_the_log() {
        let one = |key: &str, seen: &[i64]| vec![Op::list(key, seen.iter().copied())];
        let records = with_writes(
            90,
            &[
                read("primary", 3, [10, 20], B_NOT_A),
                record("replica1", 4, [30, 40], one("a", &[1])),
                record("replica1", 4, [50, 60], one("b", &[])),
            ],
        );
        assert_eq!(allowed(&records), ["session", "weak-si"]);
    }

    #[test]
    fn no_level_shows_half_of_a_transaction() {
        let records = [
            record("primary", 1, [0, 10], vec![Op::append("a", 1), Op::append("b", 2)]),
            read("replica1", 2, [0, 10], A_NOT_B),
            read("primary", 3, [20, 30], [&[1], &[2]]),
        ];
        assert_eq!(allowed(&records), Vec::<&str>::new());
    }
}
