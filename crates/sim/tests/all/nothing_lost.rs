//! Nothing lost, nothing twice (I5): what was acknowledged is in every later state of every site,
//! once, whatever was lost, doubled or crashed on the way.

use std::collections::BTreeMap;

use hihooi_certify::certification::TxnId;
use hihooi_sim::database::site::{Entry, LOG, Planted};
use hihooi_sim::database::transaction::{Answer, Op};
use hihooi_sim::database::trial::{Database, build};
use hihooi_sim::{Run, explore};

use crate::common::{RSI, is_found};

/// How many attempts were ordered more than once.
fn doubled(world: &Database) -> usize {
    let mut times: BTreeMap<TxnId, usize> = BTreeMap::new();
    for entry in world.log(LOG) {
        if let Entry::Attempt(attempt) = entry {
            *times.entry(attempt.transaction.id).or_default() += 1;
        }
    }
    times.values().filter(|times| **times > 1).count()
}

/// Looks into the sites rather than at what clients read.
fn nothing_is_lost_or_doubled(run: Run) -> Result<usize, String> {
    let mut world = build(run, &RSI, Planted::Nothing);
    world.run()?;
    for call in world.calls() {
        let answer = call.response.as_deref();
        for op in &call.request.ops {
            let Op::Append(key, element) = op else { continue };
            for (id, site) in world.running() {
                let mut list = Vec::new();
                site.engine().list(*key, site.applied(), &mut list);
                let times = list.iter().filter(|value| *value == element).count();
                let right = match answer {
                    Some(Answer::Committed { .. }) => times == 1,
                    Some(Answer::Aborted(_)) => times == 0,
                    None => times <= 1,
                };
                if !right {
                    return Err(format!("{element} is {times} times at {id:?}: {call:?}"));
                }
            }
        }
    }
    Ok(doubled(&world))
}

#[test]
fn what_was_acknowledged_is_everywhere_once() {
    let name = "nothing_lost::what_was_acknowledged_is_everywhere_once";
    let doubled: usize = explore(name, 3_000..3_200, nothing_is_lost_or_doubled).iter().sum();
    assert!(doubled > 100, "only {doubled} attempts were ordered twice");
}

#[test]
fn an_answer_before_the_decision_is_found() {
    let found = is_found(5, &RSI, &RSI, Planted::AnsweredEarly);
    assert!(found.contains("lost commit"), "{found}");
}
