//! Runs every script with every kind of fault before every event. In the end the client must have an answer, an
//! error or a clean close; no write may be forgotten; and no connection with a session's state may be returned
//! to the pool. Also has planted bugs that these tests must find.

use hihooi_wire::backend::tag;

use super::scripts::{Script, scripts};
use super::world::{Fault, Pieces, World, frames, show_all};
use crate::mistakes::{self, Mistake};

/// What is wrong with a script under a fault, and how many events it had.
fn hit(script: &Script, at: usize, fault: Fault) -> (Vec<String>, usize) {
    let mut world = script.play(Pieces::Frames, Some((at, fault)));
    let got = frames(&world.client);
    if let Some(expected) = script.expected().filter(|_| fault != Fault::ClientGone) {
        compare(&mut world, &got, &expected);
    }
    world.judge_end();
    let is_fatal = |frame: &Vec<u8>| show_all(std::slice::from_ref(frame)).starts_with("E:FATAL");
    if fault == Fault::Cancelled && got.iter().any(is_fatal) {
        world.wrong.push("I1: a cancel ends the session".to_owned());
    }
    world.probe();
    world.end();
    let events = world.events;
    let name = &script.name;
    let wrong = world
        .wrong
        .iter()
        .map(|what| format!("{name}, {fault:?} at {at}: {what}\n{}", world.trace.join("\n")));
    (wrong.collect(), events)
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
    let scripts = scripts();
    let plain: Vec<_> = scripts.iter().map(|one| hit(one, usize::MAX, Fault::Refused)).collect();
    let events: Vec<_> = plain.iter().map(|(_, events)| *events).collect();
    let faults = scripts.into_iter().zip(events).flat_map(|(script, events)| {
        let cases =
            Fault::ALL.into_iter().flat_map(move |fault| (0..events).map(move |at| (at, fault)));
        cases.flat_map(move |(at, fault)| hit(&script, at, fault).0)
    });
    plain.into_iter().flat_map(|(wrong, _)| wrong).chain(faults)
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
