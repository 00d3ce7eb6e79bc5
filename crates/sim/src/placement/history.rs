//! What clients saw, as a history for the checker: a row is a list. At the end each site is read
//! once, all that it holds.

use std::collections::BTreeMap;

use hihooi_check::{BadHistory, History, Op, Outcome, Transaction};
use hihooi_placement::protocol::{Item, Reply};

use crate::placement::engine::Step;
use crate::placement::session::Session;
use crate::placement::site::{Site, What};
use crate::record::{self, ns};
use crate::{Call, World};

/// The history of a run that is over.
///
/// # Errors
/// When the calls are no history: a defect of the simulation.
pub fn history(
    world: &World<Site, Session>,
    holdings: &[Vec<u32>],
    rows: u32,
) -> Result<History, BadHistory> {
    let mut transactions: BTreeMap<u64, Vec<&Call<Site>>> = BTreeMap::new();
    for call in world.calls() {
        transactions.entry(call.request.number).or_default().push(call);
    }
    let mut history = History::new();
    for (number, calls) in &transactions {
        history.push(transaction(*number, calls))?;
    }
    for (id, site) in world.running() {
        let objects = &holdings[usize::from(id.0)];
        history.push(record::final_read(id, world.now(), all(site, objects, rows)))?;
    }
    Ok(history)
}

/// Each transaction is its own session: clients move between sites without a word of what they saw,
/// which 1-copy-SI allows.
fn transaction(number: u64, calls: &[&Call<Site>]) -> Transaction {
    let outcome = outcome(calls);
    let last = calls.last().and_then(|call| call.ended.filter(|_| call.response.is_some()));
    Transaction {
        process: number as i64,
        invoked: calls.first().map_or(0, |call| ns(call.invoked)),
        completed: last.filter(|_| outcome != Outcome::Unknown).map(ns),
        outcome,
        is_final: false,
        ops: calls.iter().flat_map(|call| steps(call)).collect(),
    }
}

/// Unknown only if the commit was asked for and not answered; a client that got no answer before
/// never asks for it.
fn outcome(calls: &[&Call<Site>]) -> Outcome {
    let committed =
        calls.iter().any(|call| matches!(call.response.as_deref(), Some(Reply::Committed { .. })));
    let unanswered =
        |call: &&&Call<Site>| matches!(call.request.what, What::Commit) && call.response.is_none();
    match calls.iter().find(unanswered) {
        _ if committed => Outcome::Committed,
        Some(_) => Outcome::Unknown,
        None => Outcome::Aborted,
    }
}

fn steps(call: &Call<Site>) -> Vec<Op> {
    let (What::Begin(operation) | What::Run(operation)) = &call.request.what else {
        return Vec::new();
    };
    let answer = match call.response.as_deref() {
        Some(Reply::Answered(answer)) => answer.as_slice(),
        _ => &[],
    };
    let mut lists = answer.iter();
    let mut seen = Vec::new();
    for step in &operation.statement {
        match *step {
            Step::Append(item, element) => seen.push(Op::append(key(item), element)),
            Step::Read(item) => {
                let list = lists.next();
                seen.extend(list.map(|list| Op::list(key(item), list.iter().copied())));
            }
        }
    }
    seen
}

/// As 3007: row 7 of object 3.
fn key(item: Item) -> i64 {
    i64::from(item.object.0) * 1_000 + item.row.0 as i64
}

/// All that the site holds: every row of these objects.
fn all(site: &Site, objects: &[u32], rows: u32) -> Vec<Op> {
    let newest: BTreeMap<i64, &[i64]> =
        site.engine().newest().map(|(item, list)| (key(item), list)).collect();
    let keys = objects.iter().flat_map(|object| (0..rows).map(move |row| (object, row)));
    let ops = keys.map(|(object, row)| {
        let key = i64::from(*object) * 1_000 + i64::from(row);
        Op::list(key, newest.get(&key).copied().unwrap_or(&[]).iter().copied())
    });
    ops.collect()
}
