//! Runs every script with every kind of fault before every event. In the end the client must have an answer, an
//! error or a clean close; no write may be forgotten; and no connection with a session's state may be returned
//! to the pool. Also has planted bugs that these tests must find.

use hihooi_wire::backend::tag;

use super::scripts::{Script, scripts};
use super::world::{Fault, Pieces, World, frames, show_all};
use crate::mistakes::{self, Mistake};

/// What is wrong with a script under a fault, and how many events it had; `expected` is what a server says.
fn hit(
    script: &Script,
    expected: Option<&[Vec<u8>]>,
    at: usize,
    fault: Fault,
) -> (Vec<String>, usize) {
    let world = || World::new(Pieces::Frames, Some((at, fault)));
    let untold = end(script.play(world().untold()), expected, fault);
    if untold.wrong.is_empty() {
        return (Vec::new(), untold.events);
    }
    let told = end(script.play(world()), expected, fault);
    let (name, trace) = (&script.name, told.trace.join("\n"));
    let wrong = told.wrong.iter().map(|what| format!("{name}, {fault:?} at {at}: {what}\n{trace}"));
    (wrong.collect(), told.events)
}

fn end(mut world: World, expected: Option<&[Vec<u8>]>, fault: Fault) -> World {
    let got = frames(&world.client);
    if let Some(expected) = expected.filter(|_| fault != Fault::ClientGone) {
        compare(&mut world, &got, expected);
    }
    world.judge_end();
    let is_fatal = |frame: &Vec<u8>| show_all(std::slice::from_ref(frame)).starts_with("E:FATAL");
    if fault == Fault::Cancelled && got.iter().any(is_fatal) {
        world.wrong.push("I1: a cancel ends the session".to_owned());
    }
    world.probe();
    world.end();
    world
}

/// Up to an error, what the client gets is what a server says.
fn compare(world: &mut World, got: &[Vec<u8>], expected: &[Vec<u8>]) {
    let same = got.iter().zip(expected).take_while(|(got, expected)| got == expected).count();
    match got.get(same).map(|frame| frame[0]) {
        None | Some(tag::ERROR) => {}
        Some(_) => {
            let (got, expected) = (show_all(got), show_all(expected));
            world.wrong.push(format!("I1: the client gets\n  {got}\ninstead of\n  {expected}"));
        }
    }
}

/// What is wrong with any script, first without a fault, then under any.
fn all_wrong() -> impl Iterator<Item = String> {
    let scripts = scripts().into_iter().map(|script| (script.expected(), script));
    let scripts: Vec<_> = scripts.collect();
    let plain = scripts
        .iter()
        .map(|(expected, script)| hit(script, expected.as_deref(), usize::MAX, Fault::Refused));
    let (wrong, events): (Vec<_>, Vec<_>) = plain.unzip();
    let faults = scripts.into_iter().zip(events).flat_map(|((expected, script), events)| {
        let cases =
            Fault::ALL.into_iter().flat_map(move |fault| (0..events).map(move |at| (at, fault)));
        cases.flat_map(move |(at, fault)| hit(&script, expected.as_deref(), at, fault).0)
    });
    wrong.into_iter().flatten().chain(faults)
}

#[test]
fn every_fault_in_front_of_every_event_is_survived() {
    let wrong: Vec<_> = all_wrong().collect();
    assert!(wrong.is_empty(), "{} are wrong, first:\n{}", wrong.len(), wrong[0]);
}

#[test]
fn planted_mistakes_are_found() {
    for (mistake, told) in [
        (Mistake::NotBegun, "ends and has not begun"),
        (Mistake::DirtyReleased, "is released though"),
        (Mistake::WrongAudience, "I1: the client"),
        (Mistake::RetriedAfterRow, "I1: the client gets"),
        (Mistake::Unpinned, "is released though"),
        (Mistake::SyncSkipped, "waits in vain"),
        (Mistake::OwnFailureIsTheirs, "no read waits for it"),
        (Mistake::SettledAmidUnit, "is released though"),
        (Mistake::FailedGoesOn, "I1: the client gets"),
        (Mistake::SavepointsReversed, "I1: the client gets"),
        (Mistake::SettingLost, "I1: the client gets"),
        (Mistake::OwnWriteMissed, "I1: the client gets"),
        (Mistake::ForkStands, "I3: an answer stands"),
        (Mistake::VoidStands, "I3: an answer stands"),
    ] {
        mistakes::make(Some(mistake));
        let found = all_wrong().next().unwrap_or_default();
        mistakes::make(None);
        assert!(found.contains(told), "{mistake:?} is not found: {found}");
    }
}
